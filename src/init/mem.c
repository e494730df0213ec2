/* Memory for the user's buffers, on the host (base/heap.h) or on a GPU. */
#include "base/heap.h"
#include "base/log.h"
#include "base/param.h"
#include "gpu/gpu.h"

rondo_status rondo_mem_alloc(void **ptr, size_t bytes)
{
    if (ptr == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_mem_alloc: the pointer for the result is NULL");
    }
    if (bytes == 0) {
        *ptr = NULL;
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_param_init());
    rondo_log_init();
    return rondo_heap_alloc(ptr, bytes);
}

rondo_status rondo_mem_alloc_device(void **ptr, size_t bytes, int device)
{
    if (device == RONDO_CONFIG_DEFAULT || ptr == NULL || bytes == 0) {
        return rondo_mem_alloc(ptr, bytes);
    }
    RONDO_TRY(rondo_param_init());
    rondo_log_init();
    return rondo_gpu.alloc(ptr, bytes, device);
}

rondo_status rondo_mem_free(void *ptr)
{
    return ptr == NULL || rondo_gpu.release(ptr) ? RONDO_SUCCESS : rondo_heap_free(ptr);
}
