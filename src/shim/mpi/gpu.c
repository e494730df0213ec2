/* Buffers on GPUs: where the ranks' are, and calls on them. */
#include <stdlib.h>

#include "shim/mpi/shim.h"

#ifdef RONDO_CUDA

#include <link.h>

#include "base/cuda_mem.h"
#include "base/log.h"
#include "base/param.h"
#include "call/stream.h"
#include "init/engine.h"
#include "mpi/idle_mpi.h"

/* Where the buffers of a call are, of one rank or of all. Pinned host memory fits everywhere, so it
 * has no bit. */
enum { ON_HOST = 1, ON_GPU = 2, MANAGED = 4, NOT_HERE = 8, NO_DEVICE = 16, NOT_READY = 32 };

struct shim_gpu {
    struct shim_comm on;     /* first; its Rondo's communicator is made by the first call that needs it */
    enum shim_reason leaves; /* why calls on GPU memory go to MPI; NONE: they need not */
    struct rondo_cuda_device device;
    int is_open;
    CUstream stream; /* of the device */
};

static int is_runtime(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash != NULL ? slash + 1 : info->dlpi_name;
    (void)bytes, (void)arg;
    return strncmp(name, "libcudart.so", strlen("libcudart.so")) == 0;
}

int shim_gpu_is_used(void) { return rondo_cuda_loaded() || dl_iterate_phdr(is_runtime, NULL); }

int shim_gpu_works(void) { return !rondo_cuda_loaded() || rondo_cuda(NULL) != NULL; }

/* dl_iterate_phdr's first object has the number of libraries that were ever loaded. */
static int loads_of(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    (void)bytes;
    *(unsigned long long *)arg = info->dlpi_adds;
    return 1;
}

/* rondo_cuda_loaded, for every call: it goes through the libraries only if there is a new one. */
static int is_driver_loaded(void)
{
    static unsigned long long without; /* so many were loaded, and no driver */
    static int is_loaded;
    unsigned long long loads = 0;
    if (__atomic_load_n(&is_loaded, __ATOMIC_RELAXED)) {
        return 1;
    }
    dl_iterate_phdr(loads_of, &loads);
    if (loads == __atomic_load_n(&without, __ATOMIC_RELAXED)) {
        return 0;
    }
    if (rondo_cuda_loaded()) {
        __atomic_store_n(&is_loaded, 1, __ATOMIC_RELAXED);
        return 1;
    }
    __atomic_store_n(&without, loads, __ATOMIC_RELAXED);
    return 0;
}

struct shim_gpu *shim_gpu_new(struct shim_comm *c)
{
    struct shim_gpu *gpu = calloc(1, sizeof *gpu);
    struct shim_cells *cells = calloc(1, sizeof *cells);
    if (gpu == NULL || cells == NULL) {
        free(gpu);
        free(cells);
        return NULL;
    }
    gpu->on.comm = c->comm;
    gpu->on.rank = c->rank;
    gpu->on.n = c->n;
    gpu->on.host = c;
    gpu->on.cells = cells;
    return gpu;
}

/* ---- the device ---- */

static void gpu_close(struct shim_gpu *gpu)
{
    if (gpu->stream != NULL && rondo_cuda_enter(&gpu->device) == RONDO_SUCCESS) {
        (void)rondo_cuda(NULL)->StreamDestroy(gpu->stream);
        rondo_cuda_leave();
    }
    if (gpu->is_open) {
        rondo_cuda_close(&gpu->device);
    }
    gpu->stream = NULL;
    gpu->is_open = 0;
}

static rondo_status gpu_open(struct shim_gpu *gpu, int ordinal)
{
    CUresult result;
    RONDO_TRY(rondo_cuda_open(ordinal, &gpu->device));
    gpu->is_open = 1;
    RONDO_TRY(rondo_cuda_enter(&gpu->device));
    result = rondo_cuda(NULL)->StreamCreateWithPriority(&gpu->stream, CU_STREAM_NON_BLOCKING, 0);
    rondo_cuda_leave();
    RONDO_CUDA_TRY(result, "a stream for MPI's collectives on GPU %d", ordinal);
    return RONDO_SUCCESS;
}

void shim_gpu_end(struct shim_gpu *gpu)
{
    shim_comm_end_rondo(&gpu->on);
    gpu_close(gpu);
}

void shim_gpu_free(struct shim_gpu *gpu)
{
    if (gpu != NULL) {
        shim_gpu_end(gpu);
        free(gpu);
    }
}

/* ---- where buffers are ---- */

/* Does the memory belong to another context than the device's primary one, in which Rondo's kernels run? */
static int is_foreign(const struct shim_gpu *gpu, const void *pointer)
{
    CUcontext context = NULL;
    CUpointer_attribute which[] = { CU_POINTER_ATTRIBUTE_CONTEXT };
    void *values[] = { &context };
    (void)rondo_cuda(NULL)->PointerGetAttributes(1, which, values, (CUdeviceptr)(uintptr_t)pointer);
    return context != NULL && context != gpu->device.context;
}

/* *ordinal: its GPU. */
static unsigned place_of(const struct shim_gpu *gpu, const void *pointer, int *ordinal)
{
    enum rondo_pointer_kind kind;
    int on;
    if (pointer == NULL) {
        return 0;
    }
    if (!is_driver_loaded()) {
        return ON_HOST;
    }
    if (rondo_cuda(NULL) == NULL || rondo_cuda_pointer(pointer, &kind, &on) != RONDO_SUCCESS) {
        return NOT_HERE;
    }
    switch (kind) {
    case RONDO_POINTER_HOST: return ON_HOST;
    case RONDO_POINTER_PINNED: return 0;
    case RONDO_POINTER_MANAGED: return MANAGED;
    case RONDO_POINTER_DEVICE: break;
    }
    if (*ordinal < 0) {
        *ordinal = on;
    }
    if (gpu->is_open && (on != gpu->device.ordinal || is_foreign(gpu, pointer))) {
        return NOT_HERE;
    }
    return on == *ordinal ? ON_GPU : NOT_HERE;
}

/* An address with data: a block's, or the buffer's. */
static const void *some_data(const struct shim_side *s)
{
    if (s->count == 0) {
        return NULL;
    }
    for (int r = 0; r < s->blocks; r++) {
        if (shim_int(s->counts, r) > 0) {
            return s->buf + shim_int(s->displs, r) * s->extent;
        }
    }
    return s->buf;
}

/* Only the CPU packs. A type with absolute addresses may have them anywhere. */
static unsigned side_place(const struct shim_gpu *gpu, const struct shim_side *s, int *ordinal)
{
    unsigned place = place_of(gpu, some_data(s), ordinal);
    if (s->is_plain || s->count == 0) {
        return place;
    }
    return s->buf == NULL || (place & ~(unsigned)ON_HOST) != 0 ? NOT_HERE : ON_HOST;
}

static int scatters(const struct shim_call *call)
{
    return call->coll == SHIM_REDUCE_SCATTER || call->coll == SHIM_REDUCE_SCATTER_BLOCK;
}
static int is_reduction(const struct shim_call *call)
{
    return call->coll == SHIM_ALLREDUCE || call->coll == SHIM_REDUCE || scatters(call);
}

static unsigned places(const struct shim_gpu *gpu, const struct shim_call *call, int *ordinal)
{
    unsigned place = 0;
    if (is_reduction(call)) {
        place = place_of(gpu, call->send, ordinal) | place_of(gpu, call->recv, ordinal);
        /* In place MPI has the result at the start. Rondo's kernels cannot put it there, and memory of the
         * call is the host's. */
        return scatters(call) && call->send == call->recv && (place & (ON_GPU | MANAGED)) ? place | NOT_HERE
                                                                                          : place;
    }
    if (call->has_out) {
        place |= side_place(gpu, &call->out, ordinal);
    }
    if (call->has_in) {
        place |= side_place(gpu, &call->in, ordinal);
    }
    return place;
}

/* ---- the choice ---- */

static rondo_status all_places(const struct shim_call *call, unsigned mine, unsigned *all)
{
    int64_t bits = (int64_t)mine, together = 0;
    struct shim_outer outer = shim_enter(SHIM_CALLS);
    rondo_status status = rondo_all_reduce(&bits, &together, 1, RONDO_INT64, RONDO_BOR, call->c->rondo, NULL);
    shim_exit(outer);
    *all = (unsigned)together;
    return status;
}

/* Collective. The caller's pointer is on this GPU. */
static rondo_status gpu_make(const struct shim_call *call, struct shim_gpu *gpu, int ordinal)
{
    unsigned mine = shim_comm_is_full() ? NOT_READY : 0, all = 0;
    rondo_status status;
    if (gpu_open(gpu, ordinal) != RONDO_SUCCESS || (places(gpu, call, &ordinal) & NOT_HERE)) {
        mine = NOT_READY;
    }
    RONDO_TRY(all_places(call, mine, &all));
    gpu->on.one_host = call->c->one_host;
    status = all == 0 ? shim_comm_make_rondo(&gpu->on, gpu->device.ordinal) : RONDO_SYSTEM_ERROR;
    if (status != RONDO_SUCCESS) { /* of creation: on all ranks */
        RONDO_INFO(RONDO_SUBSYS_INIT, "rank %d of %d: calls on GPU memory stay with MPI: %s", call->c->rank,
                   call->c->n,
                   all == 0       ? rondo_last_error(NULL)
                   : mine == 0    ? "another rank cannot use its GPU"
                   : gpu->is_open ? "too many communicators (RONDO_MPI_COMMS), or memory of another context"
                                  : rondo_last_error(NULL));
        gpu->leaves = SHIM_BY_FAILED;
        gpu_close(gpu);
    }
    return RONDO_SUCCESS;
}

static struct shim_cell *cell_of(const struct shim_comm *c, const struct shim_call *call)
{
    return &c->cells->cell[call->coll][call->inexact][shim_class(call->bytes)];
}

/* Does MPI carry this call wherever its buffers are? */
static int is_settled(const struct shim_call *call, const struct shim_gpu *gpu)
{
    return cell_of(call->c, call)->verdict == SHIM_LEAVE &&
           (gpu->leaves != SHIM_BY_NONE || cell_of(&gpu->on, call)->verdict == SHIM_LEAVE);
}

/* The other ranks do what this one cannot know. So the call is taken, and fails. */
static int end_here(struct shim_call *call, rondo_status status)
{
    shim_fail(call, status);
    return 1;
}

static int choose_gpu(struct shim_call *call, unsigned all, int ordinal)
{
    struct shim_gpu *gpu = call->c->gpu;
    if (gpu->leaves == SHIM_BY_NONE && gpu->on.rondo == NULL) {
        if (all & NO_DEVICE) {
            return shim_leave(call, SHIM_BY_PLACES);
        }
        rondo_status status = gpu_make(call, gpu, ordinal);
        if (status != RONDO_SUCCESS) {
            return end_here(call, status);
        }
    }
    if (gpu->leaves != SHIM_BY_NONE) {
        return shim_leave(call, gpu->leaves);
    }
    if (is_reduction(call) &&
        !rondo_engine_reduces(gpu->on.rondo, (rondo_dtype)call->dtype, (rondo_op)call->op)) {
        return shim_leave(call, SHIM_BY_TYPE);
    }
    if (call->coll == SHIM_REDUCE_SCATTER && call->blocks == SHIM_SMALL) {
        call->blocks = SHIM_UNEVEN;
    }
    call->c = &gpu->on;
    return 1;
}

int shim_gpu_choose(struct shim_call *call)
{
    struct shim_gpu *gpu = call->c->gpu;
    int ordinal = -1;
    unsigned mine, all;
    rondo_status status;
    if (call->c->failed || call->coll == SHIM_BARRIER) {
        return 1;
    }
    if (is_settled(call, gpu)) {
        return shim_leave(call, SHIM_BY_SLOWER);
    }
    mine = places(gpu, call, &ordinal);
    status = all_places(call, ordinal < 0 ? mine | NO_DEVICE : mine, &all);
    if (status != RONDO_SUCCESS) {
        return end_here(call, status);
    }
    if ((all & NOT_HERE) || ((all & ON_HOST) && (all & (ON_GPU | MANAGED)))) {
        return shim_leave(call, SHIM_BY_PLACES);
    }
    return !(all & (ON_GPU | MANAGED)) || choose_gpu(call, all, ordinal);
}

/* ---- a call ---- */

/* Wait for the stream, and make progress in MPI and in Rondo's non-blocking calls meanwhile. */
static rondo_status gpu_wait(const struct shim_gpu *gpu)
{
    const struct rondo_wait_policy policy = { .spins = 2000, .sleep_after_ns = rondo_params()->sleep_after };
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    rondo_status error = RONDO_SUCCESS;
    struct rondo_wait wait;
    CUresult result;
    rondo_wait_begin(&wait, &policy);
    for (unsigned round = 0; (result = cuda->StreamQuery(gpu->stream)) == CUDA_ERROR_NOT_READY; round++) {
        if (round % 64 == 63) {
            RONDO_TRY(rondo_streams_poll());
            rondo_mpi_progress();
        }
        RONDO_TRY(rondo_wait_once(&wait));
    }
    RONDO_CUDA_TRY(result, "an MPI collective on GPU %d", gpu->device.ordinal);
    RONDO_TRY(rondo_comm_async_error(gpu->on.rondo, &error));
    return error;
}

/* A capture of any thread forbids to ask a stream. */
static rondo_status gpu_wait_relaxed(const struct shim_gpu *gpu)
{
    CUstreamCaptureMode before;
    rondo_status status;
    rondo_gpu_relax(&before);
    status = gpu_wait(gpu);
    rondo_gpu_unrelax(before);
    return status;
}

static rondo_status run_entered(struct shim_call *call, const struct shim_gpu *gpu)
{
    if (call->moves) {
        RONDO_TRY(shim_prepare(call, 0)); /* counts and displacements: data is not packed here */
    }
    RONDO_TRY(shim_issue(call, RONDO_CUDA_STREAM(gpu->stream)));
    return gpu_wait_relaxed(gpu);
}

rondo_status shim_gpu_run(struct shim_call *call)
{
    const struct shim_gpu *gpu = (const struct shim_gpu *)call->c;
    rondo_status status;
    call->out.packed = call->in.packed = NULL;
    call->out.held = call->in.held = MPI_DATATYPE_NULL;
    RONDO_TRY(rondo_cuda_enter(&gpu->device));
    status = run_entered(call, gpu);
    rondo_cuda_leave();
    return call->moves ? shim_finish(call, status) : status;
}

#else

int shim_gpu_is_used(void) { return 0; }
int shim_gpu_works(void) { return 1; }
struct shim_gpu *shim_gpu_new(struct shim_comm *c) { return (void)c, NULL; }
int shim_gpu_choose(struct shim_call *call) { return (void)call, 0; }
rondo_status shim_gpu_run(struct shim_call *call) { return (void)call, RONDO_INTERNAL_ERROR; }
void shim_gpu_end(struct shim_gpu *gpu) { (void)gpu; }
void shim_gpu_free(struct shim_gpu *gpu) { (void)gpu; }

#endif
