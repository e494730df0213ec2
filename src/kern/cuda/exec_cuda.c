/* What a communicator owns on its device. Contract: kern/cuda/exec_cuda.h. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "kern/cuda/exec_cuda_impl.h"

enum {
    RING_BYTES = 1 << 20,
    STAGING_BYTES = 64 << 10,
};

const char *rondo_exec_cuda_where(const struct rondo_exec *exec, char text[80])
{
    const struct rondo_exec_cuda_config *c = &exec->config;
    snprintf(text, 80, "rank %d on GPU %d (%s)", c->rank, c->device->ordinal, c->device->bus_id);
    return text;
}

rondo_status rondo_exec_cuda_enter(const struct rondo_exec *exec, CUstreamCaptureMode *before)
{
    RONDO_TRY(rondo_cuda_enter(exec->config.device));
    rondo_gpu_relax(before);
    return RONDO_SUCCESS;
}

void rondo_exec_cuda_leave(CUstreamCaptureMode before)
{
    rondo_gpu_unrelax(before);
    rondo_cuda_leave();
}

rondo_status rondo_exec_cuda_enter_lightly(const struct rondo_exec *exec, int *pushed)
{
    CUcontext context = NULL;
    *pushed = exec->cuda->CtxGetCurrent(&context) != CUDA_SUCCESS || context != exec->config.device->context;
    return *pushed ? rondo_cuda_enter(exec->config.device) : RONDO_SUCCESS;
}

void rondo_exec_cuda_leave_lightly(int pushed)
{
    if (pushed) {
        rondo_cuda_leave();
    }
}

/* ---- memory ---- */

/* Device memory that lives as long as the executor. */
static rondo_status device_alloc(struct rondo_exec *exec, CUdeviceptr *memory, size_t bytes)
{
    return rondo_gpu_arena_take(&exec->arena, exec->config.device, bytes, memory);
}

/* Copy through pinned memory, in a separate stream, so as not to wait for kernels. */
static rondo_status upload_relaxed(struct rondo_exec *exec, CUdeviceptr to, const void *from, size_t bytes)
{
    char where[80];
    for (size_t at = 0; at < bytes;) {
        size_t n = rondo_min_size(bytes - at, exec->staging.bytes);
        memcpy(exec->staging.host, (const uint8_t *)from + at, n);
        RONDO_CUDA_TRY(exec->cuda->MemcpyAsync(to + at, exec->staging.device, n, exec->uploads),
                       "%s: copying %zu bytes to the device", rondo_exec_cuda_where(exec, where), n);
        CUresult result = exec->cuda->StreamSynchronize(exec->uploads);
        exec->stuck |= result != CUDA_SUCCESS;
        RONDO_CUDA_TRY(result, "%s: copying %zu bytes to the device", rondo_exec_cuda_where(exec, where), n);
        at += n;
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_exec_cuda_upload(struct rondo_exec *exec, CUdeviceptr to, const void *from, size_t bytes)
{
    CUstreamCaptureMode before;
    rondo_status status;
    rondo_gpu_relax(&before);
    status = upload_relaxed(exec, to, from, bytes);
    rondo_gpu_unrelax(before);
    return status;
}

/* ---- life ---- */

static rondo_status open_entered(struct rondo_exec *exec)
{
    const struct rondo_exec_cuda_config *c = &exec->config;
    const struct rondo_cuda *cuda = exec->cuda;
    size_t words = rondo_round_up(sizeof(struct rondo_gpu_words), RONDO_CTRL_ALIGN);
    size_t ring = rondo_max_size(RING_BYTES,
                                 rondo_round_up(8 * 2 * sizeof(size_t) * (size_t)c->nranks,
                                                RONDO_CTRL_ALIGN)); /* counts of a v-form, eight times */
    char where[80];
    rondo_exec_cuda_where(exec, where);
    RONDO_TRY(rondo_gpu_pinned_take(&exec->words_memory, c->device, 2 * words, "a communicator's words"));
    RONDO_TRY(rondo_gpu_pinned_take(&exec->ring, c->device, ring, "a communicator's works"));
    RONDO_TRY(rondo_gpu_pinned_take(&exec->staging, c->device, STAGING_BYTES, "copies to the device"));
    for (size_t i = 0; i < RONDO_COUNTOF(exec->words); i++) {
        exec->words[i] = (struct rondo_gpu_words *)(void *)(exec->words_memory.host + i * words);
        exec->words_there[i] = (struct rondo_gpu_words *)(uintptr_t)(exec->words_memory.device + i * words);
    }
    RONDO_CUDA_TRY(cuda->StreamCreateWithPriority(&exec->own, CU_STREAM_NON_BLOCKING, 0),
                   "%s: cuStreamCreate", where);
    RONDO_CUDA_TRY(cuda->StreamCreateWithPriority(&exec->uploads, CU_STREAM_NON_BLOCKING, 0),
                   "%s: cuStreamCreate", where);
    RONDO_CUDA_TRY(cuda->EventCreate(&exec->done, CU_EVENT_DISABLE_TIMING), "%s: cuEventCreate", where);
    RONDO_CUDA_TRY(cuda->EventCreate(&exec->captured, CU_EVENT_DISABLE_TIMING), "%s: cuEventCreate", where);
    return RONDO_SUCCESS;
}

static void exec_close(struct rondo_exec *exec);

rondo_status rondo_exec_cuda_open(struct rondo_exec **exec_out, const struct rondo_exec_cuda_config *config)
{
    struct rondo_exec *exec;
    CUstreamCaptureMode before;
    rondo_status status;
    RONDO_TRY(rondo_cuda_kernels_join(config->kernels, config));
    status = RONDO_NEW(exec, "an executor");
    if (status != RONDO_SUCCESS) {
        struct rondo_exec none = { .config = *config };
        rondo_cuda_kernels_quit(config->kernels, &none);
        return status;
    }
    exec->config = *config;
    exec->cuda = rondo_cuda(NULL);
    pthread_mutex_init(&exec->lock, NULL);
    exec->in_order = rondo_params()->launch_order_implicit && config->sharers == 1;
    exec->flights = config->flights > 0 && config->flights < RONDO_CUDA_FLIGHTS ? config->flights
                                                                                : RONDO_CUDA_FLIGHTS - 1;
    status = rondo_exec_cuda_enter(exec, &before);
    if (status == RONDO_SUCCESS) {
        status = open_entered(exec);
        rondo_exec_cuda_leave(before);
    }
    if (status != RONDO_SUCCESS) {
        exec_close(exec);
        return status;
    }
    *exec_out = exec;
    return RONDO_SUCCESS;
}

static void free_entered(struct rondo_exec *exec)
{
    const struct rondo_cuda *cuda = exec->cuda;
    rondo_cuda_direct_close(exec);
    if (!exec->stuck && !exec->kept) { /* else an upload may still read and write these */
        rondo_gpu_arena_release(&exec->arena);
        rondo_gpu_pinned_put(&exec->staging);
    }
    CUevent events[] = { exec->done, exec->captured, exec->foreign_event };
    for (size_t i = 0; i < RONDO_COUNTOF(events); i++) {
        if (events[i] != NULL) {
            (void)cuda->EventDestroy(events[i]);
        }
    }
    CUstream streams[] = { exec->own, exec->uploads };
    for (size_t i = 0; i < RONDO_COUNTOF(streams); i++) {
        if (streams[i] != NULL) {
            (void)cuda->StreamDestroy(streams[i]);
        }
    }
    if (!exec->kept) {
        rondo_gpu_pinned_put(&exec->words_memory);
        rondo_gpu_pinned_put(&exec->ring);
    }
}

static void exec_close(struct rondo_exec *exec)
{
    CUstreamCaptureMode before;
    rondo_cuda_kernels_quit(exec->config.kernels, exec);
    if (rondo_exec_cuda_enter(exec, &before) == RONDO_SUCCESS) {
        int left = rondo_cuda_capture_reap(exec, 1);
        if (left > 0) {
            RONDO_WARN(
                "rank %d: communicator \"%s\" ends, but %d graph%s with its calls still exist%s: do not "
                "launch %s again",
                exec->config.rank, exec->config.name, left, left == 1 ? "" : "s", left == 1 ? "s" : "",
                left == 1 ? "it" : "them");
        }
        free_entered(exec);
        rondo_exec_cuda_leave(before);
    }
    pthread_mutex_destroy(&exec->lock);
    rondo_free(exec->item);
    rondo_free(exec->composed);
    rondo_free(exec->spare);
    rondo_free(exec);
}

/* ---- wiring ---- */

static size_t count_conns(const struct rondo_ports *ports, int nchannels)
{
    size_t n = 0;
    for (int c = 0; c < nchannels; c++) {
        for (int p = 0; p < RONDO_NUM_PORTS; p++) {
            n += (size_t)(ports[c].recv[p] != NULL) + (size_t)(ports[c].send[p] != NULL);
        }
    }
    return n;
}

/* What kernels will read: | connections of each channel | a spare line | rings, each order once | */
static void fill_wiring(struct rondo_exec *exec, uint8_t *image, size_t rings_at,
                        const int32_t *const *rank_at)
{
    struct rondo_conn *conn = (void *)image;
    size_t ring = sizeof(int32_t) * (size_t)exec->config.nranks;
    int nrings = 0;
    for (int c = 0; c < exec->config.nchannels; c++) {
        int same = 0;
        exec->conns_there[c] = (struct rondo_conn *)(uintptr_t)(exec->wiring +
                                                                (size_t)((uint8_t *)conn - image));
        exec->wired[c] = rondo_launch_conns(&exec->ports[c], conn);
        conn += count_conns(&exec->ports[c], 1);
        while (rank_at[same] != rank_at[c]) {
            same++;
        }
        if (same == c) {
            memcpy(image + rings_at + ring * (size_t)nrings, rank_at[c], ring);
            exec->rank_at_there[c] = (const int32_t *)(uintptr_t)(exec->wiring + rings_at +
                                                                  ring * (size_t)nrings++);
        } else {
            exec->rank_at_there[c] = exec->rank_at_there[same];
        }
    }
}

static rondo_status wire_entered(struct rondo_exec *exec, const int32_t *const *rank_at)
{
    size_t n = (size_t)exec->config.nchannels, ring = sizeof(int32_t) * (size_t)exec->config.nranks;
    size_t conns = count_conns(exec->ports, exec->config.nchannels);
    size_t line_at = rondo_round_up(sizeof(struct rondo_conn) * conns, RONDO_CTRL_ALIGN);
    size_t rings_at = line_at + RONDO_CTRL_ALIGN;
    size_t nrings = 0, bytes;
    uint8_t *image;
    rondo_status status;
    for (size_t c = 0; c < n; c++) {
        nrings += c == 0 || rank_at[c] != rank_at[c - 1];
    }
    bytes = rings_at + ring * nrings;
    RONDO_TRY(device_alloc(exec, &exec->wiring, bytes));
    RONDO_TRY(rondo_calloc(&image, 1, bytes, "a communicator's connections"));
    fill_wiring(exec, image, rings_at, rank_at);
    exec->line = exec->wiring + line_at;
    status = rondo_exec_cuda_upload(exec, exec->wiring, image, bytes);
    rondo_free(image);
    return status;
}

rondo_status rondo_exec_cuda_wire(struct rondo_exec *exec, const struct rondo_ports *ports,
                                  const int32_t *const *rank_at)
{
    CUstreamCaptureMode before;
    rondo_status status;
    exec->ports = ports;
    RONDO_TRY(rondo_exec_cuda_enter(exec, &before));
    status = wire_entered(exec, rank_at);
    rondo_exec_cuda_leave(before);
    return status;
}

void *rondo_exec_cuda_line(const struct rondo_exec *exec) { return (void *)(uintptr_t)exec->line; }

static rondo_status wire_peer_entered(struct rondo_exec *exec, const struct rondo_conn *conn,
                                      struct rondo_conn **there)
{
    CUdeviceptr at;
    RONDO_TRY(device_alloc(exec, &at, sizeof(*conn)));
    RONDO_TRY(rondo_exec_cuda_upload(exec, at, conn, sizeof(*conn)));
    *there = (struct rondo_conn *)(uintptr_t)at;
    return RONDO_SUCCESS;
}

rondo_status rondo_exec_cuda_wire_peer(struct rondo_exec *exec, const struct rondo_conn *conn,
                                       struct rondo_conn **there)
{
    CUstreamCaptureMode before;
    rondo_status status;
    RONDO_TRY(rondo_exec_cuda_enter(exec, &before));
    status = wire_peer_entered(exec, conn, there);
    rondo_exec_cuda_leave(before);
    return status;
}

/* Pieces grow at least twofold, so that all together are less than four times the largest that was asked for;
 * not where the GPU has no room for that. */
static size_t scratch_size(const struct rondo_exec *exec, size_t bytes)
{
    size_t twice = 2 * exec->scratch_bytes, free = 0, all = 0;
    if (twice <= bytes || rondo_cuda_enter(exec->config.device) != RONDO_SUCCESS) {
        return bytes;
    }
    (void)exec->cuda->MemGetInfo(&free, &all);
    rondo_cuda_leave();
    return twice <= free / 2 ? twice : bytes;
}

rondo_status rondo_exec_cuda_scratch(struct rondo_exec *exec, size_t bytes, void **memory)
{
    if (exec->scratch_bytes < bytes) { /* launches and graphs may still use the smaller pieces */
        bytes = scratch_size(exec, bytes);
        RONDO_TRY(device_alloc(exec, &exec->scratch, bytes));
        exec->scratch_bytes = bytes;
    }
    *memory = (void *)(uintptr_t)exec->scratch;
    return RONDO_SUCCESS;
}

/* ---- how far launches are ---- */

/* Kernel threads write these with plain stores, each of which is atomic. */
#define WORD(word) __atomic_load_n(&(word), __ATOMIC_ACQUIRE)

static int flight_ended(const struct rondo_exec *exec, uint64_t serial)
{
    const struct rondo_cuda_flight *flight = &exec->flight[serial % RONDO_CUDA_FLIGHTS];
    if (flight->copies) {
        return rondo_cuda_copy_ended(exec, flight->copied);
    }
    for (uint32_t b = 0; b < flight->nblocks; b++) {
        if (WORD(exec->words[0]->block[b].ended) < serial) {
            return 0;
        }
    }
    return 1;
}

void rondo_exec_cuda_reap(struct rondo_exec *exec)
{
    while (exec->ended < exec->issued && flight_ended(exec, exec->ended + 1)) {
        exec->ended++;
        exec->tail = exec->flight[exec->ended % RONDO_CUDA_FLIGHTS].end;
    }
}

uint64_t rondo_exec_cuda_issued(const struct rondo_exec *exec)
{
    return __atomic_load_n(&exec->issued, __ATOMIC_ACQUIRE);
}

/* A stream may have begun to wait, or reset its word, after the first abort: abort again. */
static void abort_again(struct rondo_exec *exec)
{
    if (RONDO_UNLIKELY(WORD(exec->words[0]->abort) != 0)) {
        rondo_cuda_copy_release(exec);
    }
}

uint64_t rondo_exec_cuda_ended(struct rondo_exec *exec)
{
    uint64_t ended;
    abort_again(exec);
    pthread_mutex_lock(&exec->lock);
    rondo_exec_cuda_reap(exec);
    ended = exec->ended;
    pthread_mutex_unlock(&exec->lock);
    return ended;
}

int rondo_exec_cuda_graphs(struct rondo_exec *exec)
{
    int n;
    pthread_mutex_lock(&exec->lock);
    n = rondo_cuda_captures(exec);
    pthread_mutex_unlock(&exec->lock);
    return n;
}

/* The work that a kernel complained about; NULL: too long ago. Call with the lock held. */
static const struct rondo_work *find_note(const struct rondo_exec *exec, int captured, uint64_t serial,
                                          uint32_t index)
{
    for (size_t i = 0; !captured && i < RONDO_CUDA_NOTES; i++) {
        if (exec->note[i].serial == serial && exec->note[i].index == index) {
            return &exec->note[i].work;
        }
    }
    for (const struct rondo_cuda_capture *c = captured ? exec->capture : NULL; c != NULL; c = c->next) {
        for (int i = 0; i < c->nnotes; i++) {
            if (c->note[i].serial == serial && c->note[i].index == index) {
                return &c->note[i].work;
            }
        }
    }
    return NULL;
}

static rondo_status report(struct rondo_exec *exec, int captured)
{
    const struct rondo_gpu_words *words = exec->words[captured];
    int peer = WORD(words->fault_peer);
    uint32_t got = WORD(words->fault_got), index = WORD(words->fault_work);
    uint64_t serial = WORD(words->fault_serial);
    const struct rondo_work *found;
    struct rondo_work work;
    pthread_mutex_lock(&exec->lock);
    found = find_note(exec, captured, serial, index);
    if (found != NULL) {
        work = *found;
    }
    pthread_mutex_unlock(&exec->lock);
    if (found == NULL || peer < 0 || peer >= exec->config.nranks) {
        char where[80];
        return rondo_fail(
            RONDO_INVALID_USAGE,
            "calls differ: %s received a slice of another call from rank %d (call word %08x): all "
            "ranks must make the same calls "
            "in the same order",
            rondo_exec_cuda_where(exec, where), peer, got);
    }
    return exec->config.owner->mismatch(exec->config.owner->arg, peer, &work, got);
}

rondo_status rondo_exec_cuda_fault(struct rondo_exec *exec)
{
    for (int i = 0; i < (int)RONDO_COUNTOF(exec->words); i++) {
        if (RONDO_UNLIKELY(WORD(exec->words[i]->fault) != RONDO_GPU_FINE) &&
            !__atomic_exchange_n(&exec->faulted, 1, __ATOMIC_ACQ_REL)) {
            return report(exec, i);
        }
    }
    return RONDO_SUCCESS;
}

void rondo_exec_cuda_abort(struct rondo_exec *exec)
{
    for (size_t i = 0; i < RONDO_COUNTOF(exec->words); i++) {
        __atomic_store_n(&exec->words[i]->abort, 1, __ATOMIC_RELEASE);
    }
    rondo_cuda_copy_release(exec);
}

void rondo_exec_cuda_keep(struct rondo_exec *exec) { exec->kept = 1; }

/* The blocks' words say so, or the event; without either the context can only tell that it is lost. */
static CUresult query_entered(struct rondo_exec *exec)
{
    CUresult result;
    if (exec->unreported != CUDA_SUCCESS) {
        return exec->unreported;
    }
    if (exec->marked || !exec->launched) {
        return exec->cuda->EventQuery(exec->done);
    }
    if (rondo_exec_cuda_ended(exec) >= rondo_exec_cuda_issued(exec)) {
        return CUDA_SUCCESS;
    }
    result = exec->cuda->StreamQuery(exec->own);
    return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : result;
}

rondo_status rondo_exec_cuda_query(struct rondo_exec *exec)
{
    CUstreamCaptureMode before;
    CUresult result;
    char where[80];
    abort_again(exec);
    RONDO_TRY(rondo_exec_cuda_enter(exec, &before));
    result = query_entered(exec);
    rondo_exec_cuda_leave(before);
    if (result == CUDA_ERROR_NOT_READY) {
        return RONDO_IN_PROGRESS;
    }
    RONDO_CUDA_TRY(result, "%s: a launch failed", rondo_exec_cuda_where(exec, where));
    return RONDO_SUCCESS;
}

int rondo_exec_cuda_lost(struct rondo_exec *exec)
{
    CUstreamCaptureMode before;
    CUresult result;
    if (rondo_exec_cuda_enter(exec, &before) != RONDO_SUCCESS) {
        return 1;
    }
    result = exec->cuda->StreamQuery(exec->own); /* the stream is empty, so an error is the context's */
    rondo_exec_cuda_leave(before);
    return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
}

/* ---- who waits for whom ---- */

/* @return for how many ns `wait` has not changed. */
static int64_t follow_wait(struct rondo_cuda_wait *wait, struct rondo_cuda_wait now, int64_t now_ns)
{
    now.since_ns = wait->since_ns;
    if (now.waits == 0) {
        now.since_ns = 0;
    } else if (wait->since_ns == 0 || now.step != wait->step || now.serial != wait->serial ||
               now.peer != wait->peer || now.port != wait->port || now.waits != wait->waits) {
        now.since_ns = now_ns;
    }
    *wait = now;
    return now.since_ns != 0 ? now_ns - now.since_ns : 0;
}

int64_t rondo_exec_cuda_waited(struct rondo_exec *exec, struct rondo_cuda_wait *wait, int64_t now_ns)
{
    int64_t longest = 0, ns;
    struct rondo_cuda_wait copies = { .port = RONDO_NUM_PORTS };
    for (size_t i = 0; i < RONDO_COUNTOF(exec->words); i++) {
        for (int b = 0; b < exec->config.nchannels; b++, wait++) {
            ns = follow_wait(wait,
                             (struct rondo_cuda_wait){ .step = WORD(exec->words[i]->block[b].step),
                                                       .serial = WORD(exec->words[i]->block[b].waited),
                                                       .peer = WORD(exec->words[i]->block[b].peer),
                                                       .port = WORD(exec->words[i]->block[b].port),
                                                       .waits = WORD(exec->words[i]->block[b].waits) },
                             now_ns);
            longest = ns > longest ? ns : longest;
        }
    }
    copies.peer = rondo_cuda_copy_waits(exec, &copies.serial);
    copies.waits = copies.peer >= 0;
    ns = follow_wait(wait, copies, now_ns);
    return ns > longest ? ns : longest;
}

static int exec_describe(struct rondo_exec *exec, int at, char *text, size_t size,
                         struct rondo_blocked *blocked)
{
    static const char *const what[] = { "", "data from", "credit of" };
    int silent;
    for (size_t i = 0; i < RONDO_COUNTOF(exec->words); i++) {
        for (int b = 0; b < exec->config.nchannels; b++) {
            uint16_t waits = WORD(exec->words[i]->block[b].waits), port = WORD(exec->words[i]->block[b].port);
            if (waits == 0 || waits >= RONDO_COUNTOF(what) || at-- > 0) {
                continue;
            }
            *blocked = (struct rondo_blocked){ .peer = WORD(exec->words[i]->block[b].peer),
                                               .channel = (uint16_t)b,
                                               .proto = RONDO_NUM_PROTOS,
                                               .what = waits == 1 ? RONDO_BLOCKED_DATA : RONDO_BLOCKED_CREDIT,
                                               .step = WORD(exec->words[i]->block[b].step) };
            return snprintf(text, size, "%s rank %d (block %d, %s, step %llu)", what[waits],
                            (int)blocked->peer, b,
                            port == RONDO_NUM_PORTS   ? "direct"
                            : port == RONDO_PORT_RING ? "ring"
                            : port == RONDO_PORT_PEER ? "send or receive"
                            : port < RONDO_PORT_PEER  ? "tree"
                                                      : "doubling",
                            (unsigned long long)blocked->step);
        }
    }
    *blocked = (struct rondo_blocked){ .peer = RONDO_NO_PEER };
    silent = at == 0 ? rondo_cuda_copy_silent(exec) : -1; /* read it once: the stream may go on */
    if (silent >= 0) {
        *blocked =
            (struct rondo_blocked){ .peer = silent, .proto = RONDO_NUM_PROTOS, .what = RONDO_BLOCKED_DATA };
        return snprintf(text, size, "rank %d to make a call by copy engines", silent);
    }
    return 0;
}

const struct rondo_exec_ops rondo_exec_cuda = {
    .name = "cuda",
    .drop = rondo_exec_cuda_abort,
    .describe = exec_describe,
    .close = exec_close,
};
