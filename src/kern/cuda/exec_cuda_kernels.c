/* What is on a device once per process: the kernels, and who launches them. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "coll/algo.h"
#include "kern/cuda/exec_cuda_impl.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rondo_cuda_kernels *list;

enum {
    P2P_KERNEL,
    COPY_KERNELS,
    REDUCE_KERNELS = COPY_KERNELS + RONDO_CUDA_VARIANTS,
    DIRECT = RONDO_NUM_PROTOS
};

int rondo_cuda_kernel_of(const struct rondo_work *w)
{
    const int variant = rondo_work_is_direct(w) ? DIRECT : w->proto;
    if (w->coll == RONDO_COLL_SEND || w->coll == RONDO_COLL_RECV) {
        return P2P_KERNEL;
    }
    return rondo_coll_reduces(rondo_coll_scheduled_as((enum rondo_coll)w->coll))
               ? REDUCE_KERNELS + (w->dtype * RONDO_DEVICE_REDUCES + w->reduce) * RONDO_CUDA_VARIANTS +
                     variant
               : COPY_KERNELS + variant;
}

int rondo_cuda_kernels_reduce(const struct rondo_cuda_kernels *kernels, rondo_dtype type,
                              enum rondo_reduce reduce)
{
    return (int)type < RONDO_DEVICE_DTYPES && (int)reduce < RONDO_DEVICE_REDUCES &&
           kernels->function[REDUCE_KERNELS +
                             ((int)type * RONDO_DEVICE_REDUCES + (int)reduce) * RONDO_CUDA_VARIANTS] != NULL;
}

/* Some work that kernel i runs. */
static struct rondo_work sample(int i)
{
    struct rondo_work w = { .coll = RONDO_COLL_SEND, .proto = RONDO_PROTO_SIMPLE, .elem_bytes = 1 };
    enum rondo_medium medium = RONDO_MEDIUM_CONNS;
    int variant = 0;
    if (i >= REDUCE_KERNELS) {
        int j = i - REDUCE_KERNELS;
        variant = j % RONDO_CUDA_VARIANTS;
        w.coll = RONDO_COLL_ALL_REDUCE;
        w.reduce = (uint8_t)(j / RONDO_CUDA_VARIANTS % RONDO_DEVICE_REDUCES);
        w.dtype = (uint8_t)(j / RONDO_CUDA_VARIANTS / RONDO_DEVICE_REDUCES);
        w.elem_bytes = (uint8_t)rondo_dtype_size((rondo_dtype)w.dtype);
    } else if (i >= COPY_KERNELS) {
        variant = i - COPY_KERNELS;
        w.coll = RONDO_COLL_ALL_GATHER;
    }
    if (i >= COPY_KERNELS) {
        medium = variant == DIRECT ? RONDO_MEDIUM_DIRECT : RONDO_MEDIUM_CONNS;
        w.proto = (uint8_t)(variant == DIRECT ? RONDO_PROTO_SIMPLE : variant);
    }
    w.algo = rondo_schedule_first((enum rondo_coll)w.coll, medium)->algo;
    return w;
}

/* Load a kernel that the driver would load at its first launch, when loading may wait for running kernels.
 * Before 12.4 asking for a kernel's attributes is the best there is. */
static rondo_status load_now(const struct rondo_cuda_kernels *k, const struct rondo_cuda *cuda,
                             CUfunction function, const char *name)
{
    CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_LOADED;
    int registers;
    RONDO_CUDA_TRY(cuda->FuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function),
                   "cuFuncGetAttribute of %s on GPU %d (%s)", name, k->device.ordinal, k->device.bus_id);
    if (cuda->FuncLoad == NULL) {
        return RONDO_SUCCESS;
    }
    RONDO_CUDA_TRY(cuda->FuncLoad(function), "cuFuncLoad of %s on GPU %d (%s)", name, k->device.ordinal,
                   k->device.bus_id);
    if (cuda->FuncIsLoaded != NULL) {
        RONDO_CUDA_TRY(cuda->FuncIsLoaded(&state, function), "cuFuncIsLoaded of %s on GPU %d (%s)", name,
                       k->device.ordinal, k->device.bus_id);
    }
    if (state != CU_FUNCTION_LOADING_STATE_LOADED) {
        return rondo_fail(
            RONDO_SYSTEM_ERROR,
            "the driver of GPU %d (%s) does not load kernel %s in advance, and its first launch "
            "could wait for ever: set CUDA_MODULE_LOADING=EAGER",
            k->device.ordinal, k->device.bus_id, name);
    }
    return RONDO_SUCCESS;
}

static rondo_status resolve(struct rondo_cuda_kernels *k, const struct rondo_cuda *cuda, int i, int *per_sm)
{
    struct rondo_work w = sample(i);
    char name[RONDO_KERNEL_NAME];
    CUfunction function;
    int blocks = 0;
    rondo_kernel_name(name, &w);
    CUresult result = cuda->ModuleGetFunction(&function, k->module, name);
    if (result == CUDA_ERROR_NOT_FOUND) {
        return RONDO_SUCCESS;
    }
    k->threads[i] = rondo_kernel_threads(&w);
    RONDO_CUDA_TRY(result, "cuModuleGetFunction of %s on GPU %d (%s)", name, k->device.ordinal,
                   k->device.bus_id);
    RONDO_TRY(load_now(k, cuda, function, name));
    RONDO_CUDA_TRY(cuda->OccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, (int)k->threads[i], 0),
                   "cuOccupancyMaxActiveBlocksPerMultiprocessor of %s on GPU %d (%s)", name,
                   k->device.ordinal, k->device.bus_id);
    if (blocks < 1) {
        return rondo_fail(
            RONDO_INVALID_USAGE,
            "a block of kernel %s with %u threads does not fit on GPU %d (%s): lower RONDO_NTHREADS", name,
            k->threads[i], k->device.ordinal, k->device.bus_id);
    }
    k->function[i] = function;
    *per_sm = *per_sm == 0 || blocks < *per_sm ? blocks : *per_sm;
    return RONDO_SUCCESS;
}

/* Kernels go before the program's where both are ready, and their fences wait for their own traffic only. */
static rondo_status choose_attributes(struct rondo_cuda_kernels *k, const struct rondo_cuda *cuda)
{
    int greatest = 0, domains = 0;
    RONDO_CUDA_TRY(cuda->CtxGetStreamPriorityRange(NULL, &greatest),
                   "cuCtxGetStreamPriorityRange of GPU %d (%s)", k->device.ordinal, k->device.bus_id);
    k->attribute[k->nattributes].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    k->attribute[k->nattributes++].value.priority = greatest;
    if (cuda->DeviceGetAttribute(&domains, CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, k->device.handle) ==
            CUDA_SUCCESS &&
        domains > 1) {
        k->attribute[k->nattributes].id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
        k->attribute[k->nattributes++].value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
    }
    return RONDO_SUCCESS;
}

static rondo_status load_entered(struct rondo_cuda_kernels *k, const struct rondo_cuda *cuda)
{
    const char *why = "";
    const void *image = rondo_kernels_image(&why);
    int64_t begin = rondo_now_ns();
    int per_sm = 0, n = 0;
    if (image == NULL) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "%s", why);
    }
    RONDO_CUDA_TRY(cuda->ModuleLoadData(&k->module, image),
                   "loading the kernels (compute capability %d) on GPU %d (%s)", k->device.capability,
                   k->device.ordinal, k->device.bus_id);
    for (int i = 0; i < RONDO_CUDA_KERNELS; i++) {
        RONDO_TRY(resolve(k, cuda, i, &per_sm));
        n += k->function[i] != NULL;
    }
    if (n == 0) {
        return rondo_fail(
            RONDO_SYSTEM_ERROR,
            "the kernel library contains no kernel of this version: reinstall it with librondo.so");
    }
    RONDO_TRY(choose_attributes(k, cuda));
    k->blocks = per_sm * k->device.sms;
    RONDO_INFO(RONDO_SUBSYS_INIT,
               "GPU %d (%s, %s, compute capability %d): %d kernels in %.1f ms, %d blocks run together",
               k->device.ordinal, k->device.name, k->device.bus_id, k->device.capability, n,
               (double)(rondo_now_ns() - begin) * 1e-6, k->blocks);
    return RONDO_SUCCESS;
}

static void unload(struct rondo_cuda_kernels *k)
{
    CUstreamCaptureMode before;
    if (k->module != NULL && rondo_cuda_enter(&k->device) == RONDO_SUCCESS) {
        rondo_gpu_relax(&before);
        (void)rondo_cuda(NULL)->ModuleUnload(k->module);
        rondo_gpu_unrelax(before);
        rondo_cuda_leave();
    }
    pthread_mutex_destroy(&k->order);
    rondo_cuda_close(&k->device);
    rondo_free(k);
}

/* Any thread may be capturing meanwhile. */
static rondo_status load(struct rondo_cuda_kernels **kernels, int ordinal)
{
    struct rondo_cuda_kernels *k;
    CUstreamCaptureMode before;
    rondo_status status;
    RONDO_TRY(RONDO_NEW(k, "the kernels of a GPU"));
    pthread_mutex_init(&k->order, NULL);
    RONDO_TRY_GOTO(rondo_cuda_open(ordinal, &k->device), fail); /* a reference to the context */
    RONDO_TRY_GOTO(rondo_cuda_enter(&k->device), fail);
    rondo_gpu_relax(&before);
    status = load_entered(k, rondo_cuda(NULL));
    rondo_gpu_unrelax(before);
    rondo_cuda_leave();
    if (status == RONDO_SUCCESS) {
        *kernels = k;
        return RONDO_SUCCESS;
    }
fail:
    unload(k);
    return status;
}

rondo_status rondo_cuda_kernels_get(struct rondo_cuda_kernels **kernels,
                                    const struct rondo_cuda_device *device)
{
    struct rondo_cuda_kernels *k;
    rondo_status status = RONDO_SUCCESS;
    pthread_mutex_lock(&list_lock);
    for (k = list; k != NULL && k->device.context != device->context; k = k->next) {
    }
    if (k == NULL) {
        status = load(&k, device->ordinal);
        if (status == RONDO_SUCCESS) {
            k->next = list;
            list = k;
        }
    }
    if (status == RONDO_SUCCESS) {
        k->refs++;
        *kernels = k;
    }
    pthread_mutex_unlock(&list_lock);
    return status;
}

void rondo_cuda_kernels_put(struct rondo_cuda_kernels *kernels)
{
    pthread_mutex_lock(&list_lock);
    if (--kernels->refs == 0) {
        struct rondo_cuda_kernels **at = &list;
        while (*at != kernels) {
            at = &(*at)->next;
        }
        *at = kernels->next;
        unload(kernels);
    }
    pthread_mutex_unlock(&list_lock);
}

int rondo_cuda_kernels_blocks(const struct rondo_cuda_kernels *kernels) { return kernels->blocks; }

/* ---- executors that launch ---- */

/* Blocks of executors that are alone in their communicator here, as many as may run at once. Call with the
 * order held. */
static int blocks_alone(const struct rondo_cuda_kernels *k, int in_order)
{
    int blocks = 0;
    for (int n = RONDO_MAX_CHANNELS; n > 0 && !(in_order && blocks > 0); n--) {
        blocks += in_order ? n * (k->alone[n] > 0) : n * k->alone[n];
    }
    return blocks;
}

static rondo_status too_many(const struct rondo_cuda_kernels *k, const struct rondo_exec_cuda_config *c,
                             int blocks, int in_order)
{
    return rondo_fail(RONDO_INVALID_USAGE,
                      "rank %d: ranks of one communicator share GPU %d (%s), and with \"%s\" %d blocks must "
                      "run together, of at most %d: destroy other communicators%s%s",
                      c->rank, k->device.ordinal, k->device.bus_id, c->name, blocks, k->blocks,
                      c->nchannels > 1 ? ", or lower RONDO_MAX_NCHANNELS" : "",
                      in_order ? "" : ", or set RONDO_LAUNCH_ORDER_IMPLICIT=1");
}

rondo_status rondo_cuda_kernels_join(struct rondo_cuda_kernels *k, const struct rondo_exec_cuda_config *c)
{
    int alone = c->sharers == 1, in_order = rondo_params()->launch_order_implicit, shared, blocks;
    pthread_mutex_lock(&k->order);
    shared = k->shared_blocks + (alone ? 0 : c->nchannels);
    k->alone[c->nchannels] += alone;
    blocks = shared + blocks_alone(k, in_order);
    if (shared > 0 && blocks > k->blocks) {
        k->alone[c->nchannels] -= alone;
        pthread_mutex_unlock(&k->order);
        return too_many(k, c, blocks, in_order);
    }
    k->shared_blocks = shared;
    pthread_mutex_unlock(&k->order);
    return RONDO_SUCCESS;
}

void rondo_cuda_kernels_quit(struct rondo_cuda_kernels *k, struct rondo_exec *exec)
{
    pthread_mutex_lock(&k->order);
    if (exec->config.sharers == 1) {
        k->alone[exec->config.nchannels]--;
    } else {
        k->shared_blocks -= exec->config.nchannels;
    }
    if (k->last == exec) {
        k->last = NULL;
    }
    pthread_mutex_unlock(&k->order);
}
