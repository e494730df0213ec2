#include "base/cuda_pool.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

/* ---- pinned memory ---- */

struct block {
    struct block *next;
    uint8_t *host;
    CUdeviceptr device;
    size_t bytes;
};

/* The blocks of one device. */
struct pool {
    struct pool *next;
    struct rondo_cuda_device device; /* holds the context, with which blocks would go */
    int out;                         /* blocks in use, or being made */
    struct block *used, *spare;
};

static struct {
    pthread_mutex_t lock;
    struct pool *list;
} pools = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Find or make the device's pool, and count a block. Call with the lock held. */
static rondo_status pool_use(struct pool **out, const struct rondo_cuda_device *device)
{
    struct pool *pool = pools.list;
    while (pool != NULL && pool->device.handle != device->handle) {
        pool = pool->next;
    }
    if (pool == NULL) {
        RONDO_TRY(RONDO_NEW(pool, "a pool of pinned memory"));
        pool->device = *device;
        CUresult result = rondo_cuda(NULL)->DevicePrimaryCtxRetain(&pool->device.context, device->handle);
        if (result != CUDA_SUCCESS) {
            rondo_free(pool);
            return rondo_cuda_fail(result, "cuDevicePrimaryCtxRetain of GPU %d (%s)", device->ordinal,
                                   device->bus_id);
        }
        pool->next = pools.list;
        pools.list = pool;
    }
    pool->out++;
    *out = pool;
    return RONDO_SUCCESS;
}

static void block_free(struct block *block)
{
    if (block->host != NULL) {
        (void)rondo_cuda(NULL)->MemFreeHost(block->host);
    }
    rondo_free(block);
}

/* Nothing of the pool is in use: no kernel of ours runs on the device, so its memory can go. */
static void pool_free(struct pool *pool)
{
    CUstreamCaptureMode before;
    rondo_gpu_relax(&before);
    int entered = rondo_cuda_enter(&pool->device) == RONDO_SUCCESS;
    while (pool->spare != NULL) {
        struct block *block = pool->spare;
        pool->spare = block->next;
        block_free(block);
    }
    if (entered) {
        rondo_cuda_leave();
    }
    (void)rondo_cuda(NULL)->DevicePrimaryCtxRelease(pool->device.handle);
    rondo_gpu_unrelax(before);
    rondo_free(pool);
}

/* Uncount a block. */
static void pool_unuse(struct pool *pool)
{
    struct pool **at = &pools.list;
    pthread_mutex_lock(&pools.lock);
    int last = --pool->out == 0;
    while (last && *at != pool) {
        at = &(*at)->next;
    }
    if (last) {
        *at = pool->next;
    }
    pthread_mutex_unlock(&pools.lock);
    if (last) {
        pool_free(pool);
    }
}

/* The smallest spare block that is large enough, but not wasteful. Call with the lock held. */
static struct block *spare_take(struct pool *pool, size_t bytes)
{
    struct block **best = NULL, *block;
    for (struct block **at = &pool->spare; *at != NULL; at = &(*at)->next) {
        if ((*at)->bytes >= bytes && (*at)->bytes / 2 <= bytes &&
            (best == NULL || (*at)->bytes < (*best)->bytes)) {
            best = at;
        }
    }
    if (best == NULL) {
        return NULL;
    }
    block = *best;
    *best = block->next;
    return block;
}

/* The device's context is current. */
static rondo_status block_make(struct block **out, size_t bytes, const char *what)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    struct block *block;
    void *host = NULL;
    RONDO_TRY(RONDO_NEW(block, "a block of pinned memory"));
    CUresult result = cuda->MemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (result != CUDA_SUCCESS) {
        rondo_free(block);
        return rondo_cuda_fail(result, "cuMemHostAlloc of %zu bytes for %s (check ulimit -l)", bytes, what);
    }
    block->host = host;
    block->bytes = bytes;
    result = cuda->MemHostGetDevicePointer(&block->device, host, 0);
    if (result != CUDA_SUCCESS) {
        block_free(block);
        return rondo_cuda_fail(result, "cuMemHostGetDevicePointer for %s", what);
    }
    *out = block;
    return RONDO_SUCCESS;
}

static rondo_status block_new(struct block **block, const struct pool *pool, size_t bytes, const char *what)
{
    CUstreamCaptureMode before;
    rondo_status status;
    RONDO_TRY(rondo_cuda_enter(&pool->device));
    rondo_gpu_relax(&before);
    status = block_make(block, bytes, what);
    rondo_gpu_unrelax(before);
    rondo_cuda_leave();
    return status;
}

rondo_status rondo_gpu_pinned_take(struct rondo_gpu_pinned *memory, const struct rondo_cuda_device *device,
                                   size_t bytes, const char *what)
{
    struct pool *pool = NULL;
    struct block *block = NULL;
    rondo_status status;
    pthread_mutex_lock(&pools.lock);
    status = pool_use(&pool, device);
    if (status == RONDO_SUCCESS) {
        block = spare_take(pool, bytes);
    }
    pthread_mutex_unlock(&pools.lock);
    RONDO_TRY(status);
    if (block == NULL) {
        status = block_new(&block, pool, bytes, what);
        if (status != RONDO_SUCCESS) {
            pool_unuse(pool);
            return status;
        }
    }
    memset(block->host, 0, block->bytes);
    pthread_mutex_lock(&pools.lock);
    block->next = pool->used;
    pool->used = block;
    pthread_mutex_unlock(&pools.lock);
    *memory = (struct rondo_gpu_pinned){
        .host = block->host, .device = block->device, .bytes = bytes, .gpu = device->handle
    };
    return RONDO_SUCCESS;
}

void rondo_gpu_pinned_put(struct rondo_gpu_pinned *memory)
{
    struct pool *pool;
    struct block **at, *block;
    if (memory->host == NULL) {
        return;
    }
    pthread_mutex_lock(&pools.lock);
    for (pool = pools.list; pool->device.handle != memory->gpu; pool = pool->next) {
    }
    for (at = &pool->used; (*at)->host != memory->host; at = &(*at)->next) {
    }
    block = *at;
    *at = block->next;
    block->next = pool->spare;
    pool->spare = block;
    pthread_mutex_unlock(&pools.lock);
    pool_unuse(pool);
    memset(memory, 0, sizeof(*memory));
}

/* ---- device memory ---- */

enum { LEAST_BLOCK = 2 << 20 };

struct rondo_gpu_arena_block {
    struct rondo_gpu_arena_block *next;
    struct rondo_gpu_mem mem;
    size_t used;
};

rondo_status rondo_gpu_arena_take(struct rondo_gpu_arena *arena, const struct rondo_cuda_device *device,
                                  size_t bytes, CUdeviceptr *memory)
{
    struct rondo_gpu_arena_block *block = arena->block;
    rondo_status status;
    bytes = rondo_round_up(bytes, RONDO_CTRL_ALIGN);
    if (block == NULL || block->mem.bytes - block->used < bytes) {
        RONDO_TRY(RONDO_NEW(block, "a block of device memory"));
        status = rondo_gpu_mem_create(&block->mem, device, rondo_max_size(bytes, LEAST_BLOCK), 0);
        if (status != RONDO_SUCCESS) {
            rondo_free(block);
            return status;
        }
        block->next = arena->block;
        arena->block = block;
    }
    *memory = (CUdeviceptr)(uintptr_t)block->mem.base + block->used;
    block->used += bytes;
    return RONDO_SUCCESS;
}

void rondo_gpu_arena_release(struct rondo_gpu_arena *arena)
{
    while (arena->block != NULL) {
        struct rondo_gpu_arena_block *block = arena->block;
        arena->block = block->next;
        rondo_gpu_mem_close(&block->mem);
        rondo_free(block);
    }
}
