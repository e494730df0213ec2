/* Memory for the user's buffers, on the host (base/heap.h) or on a GPU. */
#include "base/heap.h"
#include "base/inside.h"
#include "base/log.h"
#include "base/param.h"
#include "gpu/gpu.h"

static rondo_status alloc(void **ptr, size_t bytes, int device, const char *what)
{
    if (ptr == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: the pointer for the result is NULL", what);
    }
    if (bytes == 0) {
        *ptr = NULL;
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_param_init());
    rondo_log_init();
    return device == RONDO_CONFIG_DEFAULT ? rondo_heap_alloc(ptr, bytes)
                                          : rondo_gpu.alloc(ptr, bytes, device);
}

static rondo_status release(void *ptr)
{
    return ptr == NULL || rondo_gpu.release(ptr) ? RONDO_SUCCESS : rondo_heap_free(ptr);
}

rondo_status rondo_mem_alloc(void **ptr, size_t bytes)
{
    RONDO_RUN_INSIDE("rondo_mem_alloc", alloc(ptr, bytes, RONDO_CONFIG_DEFAULT, "rondo_mem_alloc"));
}

rondo_status rondo_mem_alloc_device(void **ptr, size_t bytes, int device)
{
    RONDO_RUN_INSIDE("rondo_mem_alloc_device", alloc(ptr, bytes, device, "rondo_mem_alloc_device"));
}

rondo_status rondo_mem_free(void *ptr) { RONDO_RUN_INSIDE("rondo_mem_free", release(ptr)); }
