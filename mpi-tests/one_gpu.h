/*
 * Included before all else in programs that give each rank a GPU of its own, so that their ranks share the
 * GPUs that there are: the runtime seems to have many devices, and device d is GPU d modulo their number.
 * Such programs give collectives to streams that do not wait for the default stream.
 * scripts/nccl-programs compiles nccl-tests with it for scripts/gpu-check.
 */
#ifndef RONDO_TESTS_ONE_GPU_H
#define RONDO_TESTS_ONE_GPU_H

#ifdef __CUDACC__
#include <cuda_runtime.h>

enum { ONE_GPU_DEVICES = 64 };

static inline cudaError_t one_gpu_count(int *n)
{
    cudaError_t error = cudaGetDeviceCount(n);
    if (error == cudaSuccess && *n > 0) {
        *n = ONE_GPU_DEVICES;
    }
    return error;
}

/* The GPU that a device is. */
static inline cudaError_t one_gpu_of(int device, int *gpu)
{
    int n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    *gpu = error == cudaSuccess && n > 0 ? device % n : device;
    return error;
}

static inline cudaError_t one_gpu_set(int device)
{
    int gpu;
    cudaError_t error = one_gpu_of(device, &gpu);
    return error == cudaSuccess ? cudaSetDevice(gpu) : error;
}

static inline cudaError_t one_gpu_properties(cudaDeviceProp *properties, int device)
{
    int gpu;
    cudaError_t error = one_gpu_of(device, &gpu);
    return error == cudaSuccess ? cudaGetDeviceProperties(properties, gpu) : error;
}

static inline cudaError_t one_gpu_attribute(int *value, cudaDeviceAttr attribute, int device)
{
    int gpu;
    cudaError_t error = one_gpu_of(device, &gpu);
    return error == cudaSuccess ? cudaDeviceGetAttribute(value, attribute, gpu) : error;
}

/* What the caller gave to the default stream is done. Waiting for all of the GPU would also wait for the
 * kernel of another rank of this process, which may wait for this rank's next call. */
static inline cudaError_t one_gpu_synchronize(void) { return cudaStreamSynchronize(cudaStreamLegacy); }

#undef cudaGetDeviceProperties /* older runtimes have it as a macro */
#define cudaGetDeviceCount one_gpu_count
#define cudaSetDevice one_gpu_set
#define cudaDeviceSynchronize one_gpu_synchronize
#define cudaDeviceGetAttribute one_gpu_attribute
#define cudaGetDeviceProperties one_gpu_properties
#endif

#endif
