#include "net/transport/pinned.h"

#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cuda_mem.h"
#include "base/log.h"
#include "base/mem.h"

/* Call with the device's context current. */
static rondo_status add(struct rondo_pinned *pinned, struct rondo_pinned_range *range)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    CUdeviceptr address = 0;
    RONDO_CUDA_TRY(cuda->MemHostRegister(range->begin, range->bytes,
                                         CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
                   "rank %d on %s: pinning %zu bytes of shared memory for GPU %d (%s; check ulimit -l)",
                   rondo_log_rank(), rondo_log_host(), range->bytes, pinned->device->ordinal,
                   pinned->device->bus_id);
    CUresult result = cuda->MemHostGetDevicePointer(&address, range->begin, 0);
    if (result != CUDA_SUCCESS) {
        (void)cuda->MemHostUnregister(range->begin);
        return rondo_cuda_fail(result, "rank %d on %s: mapping pinned memory into GPU %d (%s)",
                               rondo_log_rank(), rondo_log_host(), pinned->device->ordinal,
                               pinned->device->bus_id);
    }
    range->address = (uint8_t *)(uintptr_t)address;
    pinned->at[pinned->n++] = *range;
    return RONDO_SUCCESS;
}

rondo_status rondo_pinned_map(struct rondo_pinned *pinned, void *host, size_t bytes, uint8_t **address)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)host;
    struct rondo_pinned_range range = { .begin = (uint8_t *)(at / page * page),
                                        .bytes = rondo_round_up(at % page + bytes, page) };
    CUstreamCaptureMode before;
    rondo_status status;
    *address = host;
    if (pinned->device == NULL) {
        return RONDO_SUCCESS;
    }
    for (int i = 0; i < pinned->n; i++) {
        const struct rondo_pinned_range *known = &pinned->at[i];
        if (range.begin >= known->begin && range.begin + range.bytes <= known->begin + known->bytes) {
            *address = known->address + ((uint8_t *)host - known->begin);
            return RONDO_SUCCESS;
        }
    }
    RONDO_TRY(RONDO_ARRAY_GROW(pinned->at, pinned->n, pinned->capacity, "the list of pinned memory"));
    rondo_gpu_relax(&before);
    status = rondo_cuda_enter(pinned->device);
    if (status == RONDO_SUCCESS) {
        status = add(pinned, &range);
        rondo_cuda_leave();
    }
    rondo_gpu_unrelax(before);
    RONDO_TRY(status);
    *address = pinned->at[pinned->n - 1].address + ((uint8_t *)host - range.begin);
    return RONDO_SUCCESS;
}

void rondo_pinned_release(struct rondo_pinned *pinned)
{
    CUstreamCaptureMode before;
    if (pinned->n > 0) {
        rondo_gpu_relax(&before);
        if (rondo_cuda_enter(pinned->device) == RONDO_SUCCESS) {
            while (pinned->n > 0) {
                (void)rondo_cuda(NULL)->MemHostUnregister(pinned->at[--pinned->n].begin);
            }
            rondo_cuda_leave();
        }
        rondo_gpu_unrelax(before);
    }
    rondo_pinned_leave(pinned);
}

void rondo_pinned_leave(struct rondo_pinned *pinned)
{
    rondo_free(pinned->at);
    memset(pinned, 0, sizeof(*pinned));
}
