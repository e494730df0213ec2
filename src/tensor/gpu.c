/* Tensors in memory of GPUs: gpu.h. */
#include "tensor/gpu.h"

#include "base/log.h"
#include "base/mem.h"

#ifdef RONDO_CUDA

#include <string.h>
#include <unistd.h>

#include "base/cuda_mem.h"
#include "base/param.h"

/* A GPU that a store has used. */
struct gpu {
    struct gpu *next;
    struct rondo_cuda_device device;
    CUstream stream;
};

struct owned {
    struct owned *next;
    void *data;
};

struct rondo_tensor_gpus {
    struct gpu *first;
    struct owned *owned;
};

static CUdeviceptr address(const void *data) { return (CUdeviceptr)(uintptr_t)data; }

static rondo_status gpus_get(struct rondo_tensor_gpus **gpus)
{
    return *gpus != NULL ? RONDO_SUCCESS : RONDO_NEW(*gpus, "the GPUs of a tensor store");
}

/* Call with the device's context current. */
static rondo_status stream_new(struct gpu *gpu)
{
    RONDO_CUDA_TRY(rondo_cuda(NULL)->StreamCreateWithPriority(&gpu->stream, CU_STREAM_NON_BLOCKING, 0),
                   "cuStreamCreateWithPriority for tensors on GPU %d (%s)", gpu->device.ordinal,
                   gpu->device.bus_id);
    return RONDO_SUCCESS;
}

static rondo_status gpu_get(struct rondo_tensor_gpus **gpus, int ordinal, struct gpu **gpu_out)
{
    struct gpu *gpu;
    rondo_status status;
    RONDO_TRY(gpus_get(gpus));
    for (gpu = (*gpus)->first; gpu != NULL && gpu->device.ordinal != ordinal; gpu = gpu->next) {
    }
    if (gpu == NULL) {
        RONDO_TRY(RONDO_NEW(gpu, "a GPU of a tensor store"));
        status = rondo_cuda_open(ordinal, &gpu->device);
        if (status != RONDO_SUCCESS) {
            rondo_free(gpu);
            return status;
        }
        status = rondo_cuda_enter(&gpu->device);
        if (status == RONDO_SUCCESS) {
            status = stream_new(gpu);
            rondo_cuda_leave();
        }
        if (status != RONDO_SUCCESS) {
            rondo_cuda_close(&gpu->device);
            rondo_free(gpu);
            return status;
        }
        gpu->next = (*gpus)->first;
        (*gpus)->first = gpu;
    }
    *gpu_out = gpu;
    return RONDO_SUCCESS;
}

int rondo_tensor_gpu_region(const void *data, size_t bytes, struct rondo_tensor_gpu_region *region)
{
    CUdeviceptr base = 0;
    unsigned long long id = 0;
    size_t size = 0;
    CUpointer_attribute which[] = { CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                    CU_POINTER_ATTRIBUTE_RANGE_SIZE };
    void *values[] = { &id, &base, &size };
    if (rondo_cuda(NULL)->PointerGetAttributes((unsigned)RONDO_COUNTOF(which), which, values,
                                               address(data)) != CUDA_SUCCESS ||
        base == 0 || address(data) < base || bytes > size || address(data) - base > size - bytes) {
        return 0;
    }
    *region = (struct rondo_tensor_gpu_region){ .id = id, .base = (void *)(uintptr_t)base, .bytes = size };
    return 1;
}

uint64_t rondo_tensor_gpu_epoch(void) { return rondo_gpu_epoch(); }

rondo_status rondo_tensor_gpu_of(const void *data, size_t bytes, int *ordinal)
{
    enum rondo_pointer_kind kind;
    struct rondo_tensor_gpu_region region;
    RONDO_TRY(rondo_cuda_pointer(data, &kind, ordinal));
    if (kind != RONDO_POINTER_DEVICE || *ordinal < 0 || !rondo_tensor_gpu_region(data, bytes, &region)) {
        return rondo_fail_quiet(
            RONDO_INVALID_ARGUMENT,
            "its memory is RONDO_TENSOR_CUDA, but %zu bytes from %p on are no memory of one GPU", bytes,
            data);
    }
    return RONDO_SUCCESS;
}

/* Call with the device's context current. */
static rondo_status copy_entered(struct gpu *gpu, void *to, const void *from, size_t bytes)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    RONDO_CUDA_TRY(cuda->MemcpyAsync(address(to), address(from), bytes, gpu->stream),
                   "a copy of %zu bytes of a tensor on GPU %d (%s)", bytes, gpu->device.ordinal,
                   gpu->device.bus_id);
    RONDO_CUDA_TRY(cuda->StreamSynchronize(gpu->stream), "a copy of %zu bytes of a tensor on GPU %d (%s)",
                   bytes, gpu->device.ordinal, gpu->device.bus_id);
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_gpu_copy(struct rondo_tensor_gpus **gpus, int ordinal, void *to, const void *from,
                                   size_t bytes)
{
    CUstreamCaptureMode before;
    struct gpu *gpu;
    rondo_status status;
    RONDO_TRY(gpu_get(gpus, ordinal, &gpu));
    RONDO_TRY(rondo_cuda_enter(&gpu->device));
    rondo_gpu_relax(&before);
    status = copy_entered(gpu, to, from, bytes);
    rondo_gpu_unrelax(before);
    rondo_cuda_leave();
    return status;
}

rondo_status rondo_tensor_gpu_current(int *ordinal)
{
    const char *why;
    return rondo_cuda(&why) != NULL
               ? rondo_cuda_current(ordinal)
               : rondo_fail_quiet(RONDO_INVALID_USAGE, "its place is RONDO_TENSOR_CUDA, but %s", why);
}

rondo_status rondo_tensor_gpu_alloc(struct rondo_tensor_gpus **gpus, int ordinal, size_t bytes, void **data)
{
    CUstreamCaptureMode before;
    struct owned *owned;
    struct gpu *gpu;
    rondo_status status;
    RONDO_TRY(gpu_get(gpus, ordinal, &gpu));
    RONDO_TRY(RONDO_NEW(owned, "memory of a GPU for a tensor"));
    rondo_gpu_relax(&before);
    status = rondo_gpu_alloc(&gpu->device, rondo_max_size(bytes, 1), data);
    rondo_gpu_unrelax(before);
    if (status != RONDO_SUCCESS) {
        rondo_free(owned);
        return status;
    }
    owned->data = *data;
    owned->next = (*gpus)->owned;
    (*gpus)->owned = owned;
    return RONDO_SUCCESS;
}

static void gpu_free(void *data)
{
    CUstreamCaptureMode before;
    rondo_gpu_relax(&before);
    (void)rondo_gpu_free(data);
    rondo_gpu_unrelax(before);
}

int rondo_tensor_gpu_free(struct rondo_tensor_gpus **gpus, void *data)
{
    struct owned **at = *gpus != NULL ? &(*gpus)->owned : NULL;
    while (at != NULL && *at != NULL && (*at)->data != data) {
        at = &(*at)->next;
    }
    if (at == NULL || *at == NULL) {
        return 0;
    }
    struct owned *owned = *at;
    *at = owned->next;
    rondo_free(owned);
    gpu_free(data);
    return 1;
}

static int attribute(const struct gpu *gpu, CUdevice_attribute which)
{
    int value = 0;
    return rondo_cuda(NULL)->DeviceGetAttribute(&value, which, gpu->device.handle) == CUDA_SUCCESS ? value
                                                                                                   : 0;
}

static rondo_status register_dmabuf(const struct gpu *gpu, const struct rondo_net_device *device, void *comm,
                                    const struct rondo_tensor_gpu_region *region, void **registered)
{
    CUstreamCaptureMode before;
    rondo_status status;
    rondo_gpu_relax(&before);
    int fd = rondo_gpu_dmabuf(&gpu->device, region->base, region->bytes);
    rondo_gpu_unrelax(before);
    if (fd < 0) {
        return rondo_fail_quiet(RONDO_UNHANDLED_CUDA_ERROR,
                                "GPU %d (%s) cannot export a DMA-BUF of %zu bytes", gpu->device.ordinal,
                                gpu->device.bus_id, region->bytes);
    }
    status = device->reg(comm, region->base, region->bytes, RONDO_NET_DMABUF, fd, registered);
    close(fd); /* the registration keeps the buffer alive */
    return status;
}

rondo_status rondo_tensor_gpu_register(struct rondo_tensor_gpus **gpus, int ordinal,
                                       const struct rondo_net_device *device, void *comm, uint32_t memory,
                                       const struct rondo_tensor_gpu_region *region, void **registered)
{
    struct gpu *gpu;
    rondo_status status = RONDO_UNHANDLED_CUDA_ERROR;
    RONDO_TRY(gpu_get(gpus, ordinal, &gpu));
    if ((memory & RONDO_NET_DMABUF) != 0 && gpu->device.dmabuf) {
        status = register_dmabuf(gpu, device, comm, region, registered);
    }
    if (status != RONDO_SUCCESS && (memory & RONDO_NET_CUDA) != 0 &&
        attribute(gpu, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED)) {
        status = device->reg(comm, region->base, region->bytes, RONDO_NET_CUDA, -1, registered);
    }
    return status == RONDO_SUCCESS
               ? status
               : rondo_fail_quiet(status,
                                  "the NIC cannot register memory of GPU %d (%s), neither by DMA-BUF "
                                  "nor by the module nvidia_peermem",
                                  ordinal, gpu->device.bus_id);
}

void rondo_tensor_gpus_release(struct rondo_tensor_gpus **gpus)
{
    if (*gpus == NULL) {
        return;
    }
    while ((*gpus)->owned != NULL) {
        (void)rondo_tensor_gpu_free(gpus, (*gpus)->owned->data);
    }
    while ((*gpus)->first != NULL) {
        struct gpu *gpu = (*gpus)->first;
        (*gpus)->first = gpu->next;
        if (rondo_cuda_enter(&gpu->device) == RONDO_SUCCESS) {
            (void)rondo_cuda(NULL)->StreamDestroy(gpu->stream);
            rondo_cuda_leave();
        }
        rondo_cuda_close(&gpu->device);
        rondo_free(gpu);
    }
    rondo_free(*gpus);
    *gpus = NULL;
}

#else

static rondo_status none(void)
{
    return rondo_fail_quiet(RONDO_INVALID_USAGE,
                            "its memory is RONDO_TENSOR_CUDA, but this library was built without CUDA: "
                            "configure --with-cuda");
}

rondo_status rondo_tensor_gpu_of(const void *data, size_t bytes, int *ordinal)
{
    (void)data, (void)bytes, (void)ordinal;
    return none();
}

rondo_status rondo_tensor_gpu_copy(struct rondo_tensor_gpus **gpus, int ordinal, void *to, const void *from,
                                   size_t bytes)
{
    (void)gpus, (void)ordinal, (void)to, (void)from, (void)bytes;
    return none();
}

rondo_status rondo_tensor_gpu_current(int *ordinal)
{
    (void)ordinal;
    return none();
}

rondo_status rondo_tensor_gpu_alloc(struct rondo_tensor_gpus **gpus, int ordinal, size_t bytes, void **data)
{
    (void)gpus, (void)ordinal, (void)bytes, (void)data;
    return none();
}

int rondo_tensor_gpu_free(struct rondo_tensor_gpus **gpus, void *data)
{
    (void)gpus, (void)data;
    return 0;
}

int rondo_tensor_gpu_region(const void *data, size_t bytes, struct rondo_tensor_gpu_region *region)
{
    (void)data, (void)bytes, (void)region;
    return 0;
}

rondo_status rondo_tensor_gpu_register(struct rondo_tensor_gpus **gpus, int ordinal,
                                       const struct rondo_net_device *device, void *comm, uint32_t memory,
                                       const struct rondo_tensor_gpu_region *region, void **registered)
{
    (void)gpus, (void)ordinal, (void)device, (void)comm, (void)memory, (void)region, (void)registered;
    return none();
}

uint64_t rondo_tensor_gpu_epoch(void) { return 0; }

void rondo_tensor_gpus_release(struct rondo_tensor_gpus **gpus) { (void)gpus; }

#endif
