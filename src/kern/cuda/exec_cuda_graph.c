/* Calls in a captured stream. What a launch reads beyond its arguments goes to device memory that belongs to
 * the graph. The graph holds a user object, whose destructor the driver calls when the graph and everything
 * made from it are gone. The destructor must make no CUDA call. The executor gives the memory to other graphs
 * later, and releases it when it closes. */
#include <string.h>

#include "base/array.h"
#include "base/mem.h"
#include "kern/cuda/exec_cuda_impl.h"

enum { PIECE_UNIT = 1024 };

static void free_host(struct rondo_cuda_capture *c)
{
    rondo_free(c->block);
    rondo_free(c->note);
    rondo_free(c);
}

/* Drop a reference. @return 1: it was the last one. */
static int let_go(struct rondo_cuda_capture *c)
{
    return __atomic_sub_fetch(&c->owners, 1, __ATOMIC_ACQ_REL) == 0;
}

/* The graph is gone. The executor keeps its device memory for other graphs, unless it is gone too. */
static void CUDA_CB graph_gone(void *arg)
{
    struct rondo_cuda_capture *c = arg;
    if (let_go(c)) {
        free_host(c);
    }
}

/* May its graph still run? */
static int is_alive(const struct rondo_cuda_capture *c)
{
    return c->unreported || __atomic_load_n(&c->owners, __ATOMIC_ACQUIRE) == 2;
}

/* A driver without user objects reports nothing: keep what graphs own until the executor closes. */
static rondo_status hand_to_graph(struct rondo_exec *exec, struct rondo_cuda_capture *c, CUgraph graph)
{
    const struct rondo_cuda *cuda = exec->cuda;
    CUuserObject object;
    char where[80];
    c->owners = 1;
    c->unreported = graph == NULL || cuda->UserObjectCreate == NULL || cuda->GraphRetainUserObject == NULL ||
                    cuda->UserObjectRelease == NULL;
    if (c->unreported) {
        return RONDO_SUCCESS;
    }
    c->owners = 2;
    CUresult result = cuda->UserObjectCreate(&object, c, graph_gone, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (result != CUDA_SUCCESS) {
        c->owners = 1;
        return rondo_cuda_fail(result, "%s: cuUserObjectCreate for a graph",
                               rondo_exec_cuda_where(exec, where));
    }
    result = cuda->GraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    if (result != CUDA_SUCCESS) {
        (void)cuda->UserObjectRelease(object, 1); /* calls graph_gone */
        return rondo_cuda_fail(result, "%s: cuGraphRetainUserObject", rondo_exec_cuda_where(exec, where));
    }
    return RONDO_SUCCESS;
}

static rondo_status find_capture(struct rondo_exec *exec, cuuint64_t id, CUgraph graph)
{
    struct rondo_cuda_capture *c;
    rondo_status status;
    for (c = exec->capture; c != NULL; c = c->next) {
        if (c->id == id && is_alive(c)) {
            exec->capturing = c;
            return RONDO_SUCCESS;
        }
    }
    RONDO_TRY(RONDO_NEW(c, "the calls of a graph"));
    c->id = id;
    status = hand_to_graph(exec, c, graph);
    if (status != RONDO_SUCCESS) {
        if (let_go(c)) {
            free_host(c);
        }
        return status;
    }
    pthread_mutex_lock(&exec->lock);
    c->next = exec->capture;
    exec->capture = c;
    pthread_mutex_unlock(&exec->lock);
    exec->capturing = c;
    return RONDO_SUCCESS;
}

int rondo_exec_cuda_captures(const struct rondo_exec *exec, CUstream stream)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    return exec->cuda->StreamIsCapturing(stream, &capture) == CUDA_SUCCESS &&
           capture == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* Captures could not be told apart. */
static rondo_status refuse_capture(struct rondo_exec *exec)
{
    char where[80];
    return rondo_fail(RONDO_INVALID_USAGE,
                      "%s: the stream captures, for which the CUDA driver is too old: update it to 12.3 or "
                      "later, or make the call outside of captures",
                      rondo_exec_cuda_where(exec, where));
}

rondo_status rondo_exec_cuda_check_stream(struct rondo_exec *exec, CUstream stream)
{
    return RONDO_UNLIKELY(exec->cuda->StreamGetCaptureInfo == NULL) && rondo_exec_cuda_captures(exec, stream)
               ? refuse_capture(exec)
               : RONDO_SUCCESS;
}

rondo_status rondo_exec_cuda_capture(struct rondo_exec *exec, CUstream stream)
{
    const struct rondo_cuda *cuda = exec->cuda;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUgraph graph = NULL;
    CUresult result;
    char where[80];
    exec->capturing = NULL;
    result = cuda->StreamIsCapturing(stream, &capture);
    if (result == CUDA_SUCCESS && capture == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        if (cuda->StreamGetCaptureInfo == NULL) { /* it began after rondo_exec_cuda_check_stream */
            return refuse_capture(exec);
        }
#if CUDA_VERSION >= 13000
        result = cuda->StreamGetCaptureInfo(stream, &capture, &id, &graph, NULL, NULL, NULL);
#else
        result = cuda->StreamGetCaptureInfo(stream, &capture, &id, &graph, NULL, NULL);
#endif
    }
    RONDO_CUDA_TRY(result, "%s: asking whether the stream captures", rondo_exec_cuda_where(exec, where));
    if (capture == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
        return rondo_fail(
            RONDO_INVALID_USAGE,
            "%s: the stream's capture was invalidated by an earlier call: end it and begin anew",
            rondo_exec_cuda_where(exec, where));
    }
    return capture == CU_STREAM_CAPTURE_STATUS_ACTIVE ? find_capture(exec, id, graph) : RONDO_SUCCESS;
}

static rondo_status grow(void *array, int n, size_t size, const char *what)
{
    void **place = array, *larger;
    if ((n & (n - 1)) != 0 || n == 1) { /* full at 0, 2, 4, 8, .. */
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_calloc(&larger, (size_t)(n == 0 ? 2 : 2 * n), size, what));
    if (n > 0) {
        memcpy(larger, *place, size * (size_t)n);
    }
    rondo_free(*place);
    *place = larger;
    return RONDO_SUCCESS;
}

/* Host memory in which to compose a piece. */
static rondo_status compose(struct rondo_exec *exec, size_t bytes)
{
    uint8_t *larger;
    if (exec->composed_bytes >= bytes) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_calloc(&larger, 1, bytes, "the calls of a graph"));
    rondo_free(exec->composed);
    exec->composed = larger;
    exec->composed_bytes = bytes;
    return RONDO_SUCCESS;
}

/* The smallest piece that graphs have left and that is large enough; else a new one. */
static rondo_status take_piece(struct rondo_exec *exec, size_t bytes, struct rondo_cuda_piece *piece)
{
    int best = -1;
    for (int i = 0; i < exec->nspare; i++) {
        if (exec->spare[i].bytes >= bytes && (best < 0 || exec->spare[i].bytes < exec->spare[best].bytes)) {
            best = i;
        }
    }
    if (best >= 0) {
        *piece = exec->spare[best];
        exec->spare[best] = exec->spare[--exec->nspare];
        return RONDO_SUCCESS;
    }
    piece->bytes = rondo_round_up(bytes, PIECE_UNIT);
    return rondo_gpu_arena_take(&exec->arena, exec->config.device, piece->bytes, &piece->device);
}

rondo_status rondo_cuda_capture_memory(struct rondo_exec *exec, size_t bytes, struct rondo_cuda_piece *memory)
{
    struct rondo_cuda_capture *c = exec->capturing;
    struct rondo_cuda_piece *piece;
    RONDO_TRY(grow(&c->block, c->nblocks, sizeof(*c->block), "the calls of a graph"));
    RONDO_TRY(compose(exec, bytes));
    piece = &c->block[c->nblocks];
    RONDO_TRY(take_piece(exec, bytes, piece));
    c->nblocks++;
    *memory = (struct rondo_cuda_piece){ .host = exec->composed, .device = piece->device, .bytes = bytes };
    return RONDO_SUCCESS;
}

rondo_status rondo_cuda_capture_note(struct rondo_exec *exec, uint64_t serial, uint32_t index,
                                     const struct rondo_work *work)
{
    struct rondo_cuda_capture *c = exec->capturing;
    RONDO_TRY(grow(&c->note, c->nnotes, sizeof(*c->note), "the calls of a graph"));
    c->note[c->nnotes++] = (struct rondo_cuda_note){ .serial = serial, .index = index, .work = *work };
    return RONDO_SUCCESS;
}

int rondo_cuda_captures(const struct rondo_exec *exec)
{
    int n = 0;
    for (const struct rondo_cuda_capture *c = exec->capture; c != NULL; c = c->next) {
        n += is_alive(c);
    }
    return n;
}

/* Without memory for the list, the piece is not used again. */
static void keep_piece(struct rondo_exec *exec, const struct rondo_cuda_piece *piece)
{
    if (RONDO_ARRAY_GROW(exec->spare, exec->nspare, exec->spare_capacity, "the memory of graphs") ==
        RONDO_SUCCESS) {
        exec->spare[exec->nspare++] = *piece;
    }
}

int rondo_cuda_capture_reap(struct rondo_exec *exec, int all)
{
    struct rondo_cuda_capture **at = &exec->capture;
    int left = 0;
    while (*at != NULL) {
        struct rondo_cuda_capture *c = *at;
        int alive = is_alive(c) && !(all && c->unreported);
        if (alive && !all) {
            at = &c->next;
            left++;
            continue;
        }
        *at = c->next;
        left += alive;
        for (int i = 0; !all && i < c->nblocks; i++) {
            keep_piece(exec, &c->block[i]);
        }
        if (let_go(c)) {
            free_host(c);
        }
    }
    return left;
}
