/* Turns a plan's runs into launches. Contract: kern/cuda/exec_cuda.h. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "coll/algo.h"
#include "kern/cuda/exec_cuda_impl.h"

/* The works of one launch: items [at, end) of the plan, and those of each block. */
struct batch {
    int kernel, n, end;
    uint32_t nblocks, threads; /* threads: of a block, as many as any of its works asks for */
    size_t bytes;              /* that do not fit the arguments: works, counts, displacements */
    int scalars;               /* works whose scalar lies on the device */
    uint16_t first[RONDO_MAX_CHANNELS + 1];
};

/* ---- order of runs ---- */

static int is_message(const struct rondo_work *w)
{
    return w->coll == RONDO_COLL_SEND || w->coll == RONDO_COLL_RECV;
}
static int is_copy(const struct rondo_work *w) { return w->seat.nranks == 1 && !w->premul && !is_message(w); }

static int by_conn(const void *x, const void *y)
{
    const struct rondo_cuda_item *a = x, *b = y;
    return a->lane != b->lane ? (a->lane > b->lane) - (a->lane < b->lane)
                              : (a->index > b->index) - (a->index < b->index);
}

static int by_round(const void *x, const void *y)
{
    const struct rondo_cuda_item *a = x, *b = y;
    if (a->repeat != b->repeat) {
        return (a->repeat > b->repeat) - (a->repeat < b->repeat);
    }
    return a->distance != b->distance ? (a->distance > b->distance) - (a->distance < b->distance)
                                      : (a->sender > b->sender) - (a->sender < b->sender);
}

static void sort_messages(const struct rondo_exec *exec, struct rondo_cuda_item *item, int n)
{
    uint32_t nranks = (uint32_t)exec->config.nranks, rank = (uint32_t)exec->config.rank;
    if (n == 0) { /* there may be no array */
        return;
    }
    qsort(item, (size_t)n, sizeof(*item), by_conn);
    for (int i = 0; i < n; i++) {
        uint32_t peer = (item[i].lane - (uint32_t)exec->config.nchannels) / 2,
                 is_send = (item[i].lane - (uint32_t)exec->config.nchannels) % 2;
        item[i].repeat = i > 0 && item[i - 1].lane == item[i].lane ? item[i - 1].repeat + 1 : 0;
        item[i].distance = (is_send ? peer + nranks - rank : rank + nranks - peer) % nranks;
        item[i].sender = is_send ? rank : peer;
    }
    qsort(item, (size_t)n, sizeof(*item), by_round);
}

static rondo_status list_items(struct rondo_exec *exec)
{
    int n = 0;
    RONDO_TRY(RONDO_ARRAY_RESERVE(exec->item, 0, exec->nruns, exec->capacity, "the works of a group"));
    for (int pass = 0; pass < 3; pass++) {
        for (int i = 0; i < exec->nruns; i++) {
            const struct rondo_work *w = &exec->runs[i].work;
            if ((is_copy(w) ? 0 : is_message(w) ? 2 : 1) == pass && !rondo_run_stays_out(&exec->runs[i])) {
                exec->item[n++] = (struct rondo_cuda_item){ .index = i, .lane = exec->runs[i].lane };
            }
        }
        if (pass == 0) {
            exec->ncopies = n;
        } else if (pass == 1) {
            exec->ncolls = n - exec->ncopies;
        }
    }
    exec->nitems = n;
    sort_messages(exec, exec->item + exec->ncopies + exec->ncolls, n - exec->ncopies - exec->ncolls);
    return RONDO_SUCCESS;
}

/* ---- streams ---- */

static int is_special(CUstream stream)
{
    return stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* One handle names another stream in each thread. @return the calling thread's number, which no other has;
 * 0: the handle is the stream's alone. */
static uint64_t thread_of(CUstream stream)
{
    static uint64_t threads;
    static __thread uint64_t mine;
    if (RONDO_LIKELY(stream != CU_STREAM_PER_THREAD)) {
        return 0;
    }
    mine = mine != 0 ? mine : __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
    return mine;
}

static int is_same(const struct rondo_cuda_stream *before, CUstream stream)
{
    return before->handle == stream && before->thread == thread_of(stream);
}

/* The context that owns a stream's events. */
static rondo_status context_of(const struct rondo_exec *exec, CUstream stream, CUcontext *context)
{
    char where[80];
    *context = exec->config.device->context;
    if (!is_special(stream)) {
        RONDO_CUDA_TRY(exec->cuda->StreamGetCtx(stream, context), "%s: is %p a CUDA stream? cuStreamGetCtx",
                       rondo_exec_cuda_where(exec, where), (void *)stream);
        return RONDO_SUCCESS;
    }
    if (exec->config.sharers > 1 && stream != CU_STREAM_PER_THREAD) {
        return rondo_fail(
            RONDO_INVALID_USAGE,
            "%s: a process with several ranks of a communicator on one GPU cannot use the default "
            "stream, where their kernels would wait for one another: give each rank its own "
            "stream (CU_STREAM_NON_BLOCKING)",
            rondo_exec_cuda_where(exec, where));
    }
    return RONDO_SUCCESS;
}

/* Make one of our streams wait for all work in another one. */
static rondo_status wait_for(struct rondo_exec *exec, CUstream waits, CUstream other, CUcontext context)
{
    const struct rondo_cuda *cuda = exec->cuda;
    char where[80];
    CUcontext popped;
    CUresult result;
    if (exec->foreign != context && exec->foreign_event != NULL) {
        (void)cuda->EventDestroy(exec->foreign_event);
        exec->foreign_event = NULL;
    }
    RONDO_CUDA_TRY(cuda->CtxPushCurrent(context), "%s: entering the context of the stream",
                   rondo_exec_cuda_where(exec, where));
    result = exec->foreign_event == NULL ? cuda->EventCreate(&exec->foreign_event, CU_EVENT_DISABLE_TIMING)
                                         : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        exec->foreign = context;
        result = cuda->EventRecord(exec->foreign_event, other);
    }
    (void)cuda->CtxPopCurrent(&popped);
    RONDO_CUDA_TRY(result, "%s: an event of stream %p", rondo_exec_cuda_where(exec, where), (void *)other);
    RONDO_CUDA_TRY(cuda->StreamWaitEvent(waits, exec->foreign_event, 0),
                   "%s: waiting for stream %p (do all streams of the group capture?)",
                   rondo_exec_cuda_where(exec, where), (void *)other);
    return RONDO_SUCCESS;
}

/* For another device's stream, launch on the executor's own stream between two events. The stream of the last
 * launch is not asked again: if it was destroyed and another device's has its handle, the launch fails. */
static rondo_status choose_stream(struct rondo_exec *exec, CUstream stream)
{
    CUcontext context;
    exec->stream = stream;
    if (stream == exec->known && stream == exec->last.handle && stream != NULL) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(context_of(exec, stream, &context));
    exec->known = context == exec->config.device->context && !is_special(stream) ? stream : NULL;
    if (context != exec->config.device->context) {
        RONDO_TRY(wait_for(exec, exec->own, stream, context));
        exec->stream = exec->own;
    }
    return RONDO_SUCCESS;
}

static rondo_status mark_done(struct rondo_exec *exec)
{
    CUresult result = exec->cuda->EventRecord(exec->done, exec->stream);
    char where[80];
    exec->unreported = result;
    RONDO_CUDA_TRY(result, "%s: cuEventRecord", rondo_exec_cuda_where(exec, where));
    exec->marked = 1;
    return RONDO_SUCCESS;
}

/* Make the stream wait for the words that the blocks of the last launch write at their end. */
static rondo_status wait_for_blocks(struct rondo_exec *exec)
{
    CUstreamBatchMemOpParams op[RONDO_MAX_CHANNELS];
    const struct rondo_cuda_flight *flight = &exec->flight[exec->last_serial % RONDO_CUDA_FLIGHTS];
    char where[80];
    memset(op, 0, sizeof(op));
    for (uint32_t b = 0; b < flight->nblocks; b++) {
        op[b].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
        op[b].waitValue.address = (CUdeviceptr)(uintptr_t)&exec->words_there[0]->block[b].ended;
        op[b].waitValue.value =
            (cuuint32_t)exec->last_serial; /* compared in a circle; the low half comes first */
        op[b].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    }
    RONDO_CUDA_TRY(exec->cuda->StreamBatchMemOp(exec->stream, flight->nblocks, op, 0),
                   "%s: ordering two streams by cuStreamBatchMemOp", rondo_exec_cuda_where(exec, where));
    return RONDO_SUCCESS;
}

/* The last launch was in another stream, which may be gone. */
static rondo_status wait_for_last(struct rondo_exec *exec)
{
    char where[80];
    if (exec->marked) {
        RONDO_CUDA_TRY(exec->cuda->StreamWaitEvent(exec->stream, exec->done, 0), "%s: ordering two streams",
                       rondo_exec_cuda_where(exec, where));
        return RONDO_SUCCESS;
    }
    return rondo_exec_cuda_ended(exec) >= exec->last_serial ? RONDO_SUCCESS : wait_for_blocks(exec);
}

/* Wait for what must end before a launch: this communicator's last one, and in implicit order the last one of
 * any other (exec_cuda.h). Call with the device's order held if the executor keeps it. */
static rondo_status order_before(struct rondo_exec *exec)
{
    const struct rondo_cuda *cuda = exec->cuda;
    struct rondo_exec *last = exec->in_order ? exec->config.kernels->last : NULL;
    char where[80];
    exec->ordered = 0;
    if (exec->capturing != NULL) {
        if (exec->last_capture == exec->capturing->id && !is_same(&exec->last_captured, exec->stream)) {
            RONDO_CUDA_TRY(cuda->StreamWaitEvent(exec->stream, exec->captured, 0),
                           "%s: ordering two captured streams", rondo_exec_cuda_where(exec, where));
        }
        return RONDO_SUCCESS;
    }
    if (exec->launched && !is_same(&exec->last, exec->stream)) {
        RONDO_TRY(wait_for_last(exec));
    }
    if (last != NULL && last != exec) {
        RONDO_CUDA_TRY(cuda->StreamWaitEvent(exec->stream, last->done, 0), "%s: ordering two communicators",
                       rondo_exec_cuda_where(exec, where));
    }
    exec->ordered = 1;
    return RONDO_SUCCESS;
}

/* The blocks of a kernel tell when they end. What needs an event records it: other communicators, copies. */
static rondo_status order_after(struct rondo_exec *exec, int tells)
{
    const struct rondo_cuda_stream stream = { exec->stream, thread_of(exec->stream) };
    char where[80];
    if (exec->capturing != NULL) {
        RONDO_CUDA_TRY(exec->cuda->EventRecord(exec->captured, exec->stream), "%s: cuEventRecord",
                       rondo_exec_cuda_where(exec, where));
        exec->last_capture = exec->capturing->id;
        exec->last_captured = stream;
        return RONDO_SUCCESS;
    }
    exec->launched = 1;
    exec->last = stream;
    exec->last_serial = exec->issued;
    exec->marked = 0;
    if (!tells || exec->in_order || exec->cuda->StreamBatchMemOp == NULL) {
        RONDO_TRY(mark_done(exec));
    }
    if (exec->in_order) {
        exec->config.kernels->last = exec;
    }
    return RONDO_SUCCESS;
}

/* ---- copies ---- */

static rondo_status copy_all(struct rondo_exec *exec)
{
    char where[80];
    for (int i = 0; i < exec->ncopies; i++) {
        const struct rondo_work *w = &exec->runs[exec->item[i].index].work;
        size_t bytes = w->len * w->elem_bytes, at = w->off * w->elem_bytes;
        RONDO_CUDA_TRY(exec->cuda->MemcpyAsync((CUdeviceptr)(uintptr_t)(w->out + at),
                                               (CUdeviceptr)(uintptr_t)(w->in + at), bytes, exec->stream),
                       "%s: cuMemcpyAsync of %zu bytes from %p to %p", rondo_exec_cuda_where(exec, where),
                       bytes, (const void *)(w->in + at), (void *)(w->out + at));
    }
    exec->at = exec->ncopies;
    return RONDO_SUCCESS;
}

/* ---- batches ---- */

static const struct rondo_run *run_at(const struct rondo_exec *exec, int i)
{
    return &exec->runs[exec->item[i].index];
}

/* Bytes of the work's arrays. */
static size_t array_bytes(const struct rondo_exec *exec, const struct rondo_work *w)
{
    return w->counts != NULL ? 2 * sizeof(size_t) * (size_t)exec->config.nranks : 0;
}

/* In whole warps, at least two: trees have two teams. */
static uint32_t threads_of(const struct rondo_run *run, uint32_t most)
{
    const uint32_t asked = run->threads / RONDO_WARP * RONDO_WARP;
    return asked < 2 * RONDO_WARP || asked > most ? most : asked;
}

static void add_item(const struct rondo_exec *exec, struct batch *b, int i, uint32_t block)
{
    const struct rondo_work *w = &run_at(exec, i)->work;
    const uint32_t threads = threads_of(run_at(exec, i), exec->config.kernels->threads[b->kernel]);
    b->threads = threads > b->threads ? threads : b->threads;
    b->bytes += sizeof(*w) + array_bytes(exec, w);
    b->scalars += w->premul == RONDO_PREMUL_DEVICE;
    b->first[block + 1]++;
    b->nblocks = block + 1 > b->nblocks ? block + 1 : b->nblocks;
    b->n++;
    b->end = i + 1;
}

/* Take successive collectives of one kernel, as many as the ring has room for. */
static void fill_colls(const struct rondo_exec *exec, struct batch *b)
{
    int end = exec->ncopies + exec->ncolls;
    for (int i = exec->at; i < end; i++) {
        const struct rondo_work *w = &run_at(exec, i)->work;
        if (run_at(exec, i)->copies) {
            break;
        }
        if (i > exec->at && (rondo_cuda_kernel_of(w) != b->kernel ||
                             b->bytes + sizeof(*w) + array_bytes(exec, w) > exec->ring.bytes / 4)) {
            break;
        }
        add_item(exec, b, i, exec->item[i].lane);
    }
}

/* Take as many messages as run at once, each on its own warps, at most one per connection. */
static void fill_messages(const struct rondo_exec *exec, struct batch *b)
{
    int channels = exec->config.nchannels, most = channels * RONDO_LAUNCH_P2P, n = 0;
    while (exec->at + n < exec->nitems && n < most &&
           exec->item[exec->at + n].repeat == exec->item[exec->at].repeat) {
        n++;
    }
    for (int i = 0; i < n; i++) {
        add_item(exec, b, exec->at + i, (uint32_t)(i % (n < channels ? n : channels)));
    }
}

static void fill_batch(const struct rondo_exec *exec, struct batch *b)
{
    memset(b, 0, sizeof(*b));
    b->kernel = rondo_cuda_kernel_of(&run_at(exec, exec->at)->work);
    if (exec->at < exec->ncopies + exec->ncolls) {
        fill_colls(exec, b);
    } else {
        fill_messages(exec, b);
    }
    for (uint32_t k = 0; k < b->nblocks; k++) {
        b->first[k + 1] = (uint16_t)(b->first[k + 1] + b->first[k]);
    }
}

/* ---- memory of a launch ---- */

/* Reserve one piece of the ring. @return 0: no room now. Call with the lock held. */
static int ring_room(struct rondo_exec *exec, size_t bytes, struct rondo_cuda_piece *memory)
{
    uint64_t head = rondo_round_up(exec->head, RONDO_CTRL_ALIGN);
    size_t at = head % exec->ring.bytes;
    if (at + bytes > exec->ring.bytes) {
        head += exec->ring.bytes - at;
        at = 0;
    }
    if (exec->ended == exec->issued) {
        exec->tail = head; /* the ring is empty */
    }
    if (head + bytes - exec->tail > exec->ring.bytes) {
        return 0;
    }
    exec->head = head + bytes;
    *memory = (struct rondo_cuda_piece){ .host = exec->ring.host + at,
                                         .device = exec->ring.device + at,
                                         .bytes = bytes };
    return 1;
}

static int is_inline(const struct batch *b) { return b->n <= RONDO_LAUNCH_INLINE && b->scalars == 0; }

/* Sets *room to 0 if nothing is free now. */
static rondo_status find_room(struct rondo_exec *exec, const struct batch *b, struct rondo_cuda_piece *memory,
                              int *room)
{
    size_t bytes = b->bytes - (is_inline(b) ? sizeof(struct rondo_work) * (size_t)b->n : 0);
    *room = 1;
    memset(memory, 0, sizeof(*memory));
    if (exec->capturing != NULL) {
        return bytes > 0 ? rondo_cuda_capture_memory(exec, bytes, memory) : RONDO_SUCCESS;
    }
    pthread_mutex_lock(&exec->lock);
    rondo_exec_cuda_reap(exec);
    *room = exec->issued - exec->ended < (uint64_t)exec->flights &&
            (bytes == 0 || ring_room(exec, bytes, memory));
    pthread_mutex_unlock(&exec->lock);
    return RONDO_SUCCESS;
}

/* Copy an array from the host to where the device reads it. */
static const size_t *put_array(const struct rondo_exec *exec, const size_t *from,
                               const struct rondo_cuda_piece *memory, size_t *at)
{
    size_t bytes = sizeof(size_t) * (size_t)exec->config.nranks;
    const size_t *there = (const size_t *)(uintptr_t)(memory->device + *at);
    memcpy(memory->host + *at, from, bytes);
    *at += bytes;
    return there;
}

/* Copy the work of an item, with device addresses in place of the host's. */
static void translate(struct rondo_exec *exec, const struct rondo_run *run, struct rondo_work *w,
                      const struct rondo_cuda_piece *memory, size_t *at)
{
    *w = run->work;
    w->mailbox = NULL;
    w->direct = NULL;
    if (!is_message(w) && w->ports != NULL) {
        const size_t channel = (size_t)(w->ports - exec->ports);
        w->conns = exec->conns_there[channel];
        w->wired = exec->wired[channel];
        w->block_rank = w->block_rank != NULL ? exec->rank_at_there[run->lane] : NULL;
    }
    if (w->counts != NULL) {
        w->counts = put_array(exec, w->counts, memory, at);
        w->displs = put_array(exec, w->displs, memory, at);
    }
}

/* Copy scalars from the device into the works, when the stream gets there. */
static rondo_status fetch_scalars(struct rondo_exec *exec, const struct batch *b, struct rondo_work *works,
                                  CUdeviceptr works_there)
{
    char where[80];
    for (size_t i = 0; b->scalars > 0 && i < (size_t)b->n; i++) {
        CUdeviceptr from = (CUdeviceptr)works[i].scalar,
                    to = works_there + i * sizeof(*works) + offsetof(struct rondo_work, scalar);
        if (works[i].premul == RONDO_PREMUL_DEVICE) {
            works[i].premul = 1;
            works[i].scalar = 0;
            RONDO_CUDA_TRY(exec->cuda->MemcpyAsync(to, from, works[i].elem_bytes, exec->stream),
                           "%s: reading the scalar of an operation at %#llx",
                           rondo_exec_cuda_where(exec, where), (unsigned long long)from);
        }
    }
    return RONDO_SUCCESS;
}

static void fill_launch(struct rondo_exec *exec, const struct batch *b, const struct rondo_cuda_piece *memory,
                        struct rondo_launch *launch)
{
    uint16_t next[RONDO_MAX_CHANNELS];
    int messages = exec->at >= exec->ncopies + exec->ncolls;
    size_t at = is_inline(b) ? 0 : sizeof(struct rondo_work) * (size_t)b->n;
    struct rondo_work *works = is_inline(b) ? launch->inline_works
                                            : (struct rondo_work *)(void *)memory->host;
    launch->works = is_inline(b) ? NULL : (const struct rondo_work *)(uintptr_t)memory->device;
    launch->words = exec->words_there[exec->capturing != NULL];
    launch->direct = rondo_cuda_direct_there(exec);
    launch->nblocks = b->nblocks;
    memcpy(launch->first, b->first, sizeof(launch->first));
    memcpy(next, b->first, sizeof(next));
    for (int i = exec->at; i < b->end; i++) {
        uint32_t block = messages ? (uint32_t)(i - exec->at) % b->nblocks : exec->item[i].lane;
        uint16_t place = next[block]++;
        translate(exec, run_at(exec, i), &works[place], memory, &at);
    }
}

/* ---- launching ---- */

/* Give the launch a serial and note its works as long as it runs. */
static rondo_status note_launch(struct rondo_exec *exec, const struct batch *b,
                                const struct rondo_work *works, struct rondo_launch *launch)
{
    rondo_status status = RONDO_SUCCESS;
    pthread_mutex_lock(&exec->lock);
    launch->serial = exec->capturing != NULL ? ++exec->captures : exec->issued + 1;
    for (uint32_t i = 0; i < (uint32_t)b->n && status == RONDO_SUCCESS; i++) {
        if (exec->capturing != NULL) {
            status = rondo_cuda_capture_note(exec, launch->serial, i, &works[i]);
        } else {
            exec->note[exec->nnotes++ % RONDO_CUDA_NOTES] =
                (struct rondo_cuda_note){ .serial = launch->serial, .index = i, .work = works[i] };
        }
    }
    if (status == RONDO_SUCCESS && exec->capturing == NULL) {
        exec->flight[launch->serial % RONDO_CUDA_FLIGHTS] = (struct rondo_cuda_flight){ .nblocks = b->nblocks,
                                                                                        .end = exec->head };
        __atomic_store_n(&exec->issued, launch->serial, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&exec->lock);
    return status;
}

static CUresult launch_kernel(const struct rondo_exec *exec, const struct batch *b,
                              struct rondo_launch *launch)
{
    const struct rondo_cuda_kernels *kernels = exec->config.kernels;
    /* as long as they are: a call of one work has a tenth of the most */
    size_t bytes = offsetof(struct rondo_launch, inline_works) +
                   (launch->works == NULL ? (size_t)b->n * sizeof(struct rondo_work) : 0);
    void *arguments[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, launch, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                          CU_LAUNCH_PARAM_END };
    CUlaunchConfig config = { .gridDimX = b->nblocks,
                              .gridDimY = 1,
                              .gridDimZ = 1,
                              .blockDimX = b->threads,
                              .blockDimY = 1,
                              .blockDimZ = 1,
                              .hStream = exec->stream,
                              .attrs = (CUlaunchAttribute *)(uintptr_t)kernels->attribute,
                              .numAttrs = kernels->nattributes };
    return exec->cuda->LaunchKernelEx(&config, kernels->function[b->kernel], NULL, arguments);
}

/* Was the stream taken for the last launch's, but is another device's? */
static int is_another(const struct rondo_exec *exec, CUresult result)
{
    return (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT) &&
           exec->known != NULL && exec->stream == exec->known;
}

/* The kernel has not been launched: its serial is free again. */
static void forget_launch(struct rondo_exec *exec, const struct rondo_launch *launch)
{
    pthread_mutex_lock(&exec->lock);
    if (exec->capturing == NULL && exec->issued == launch->serial) {
        __atomic_store_n(&exec->issued, launch->serial - 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&exec->lock);
}

static rondo_status launch_noted(struct rondo_exec *exec, const struct batch *b,
                                 const struct rondo_cuda_piece *memory, struct rondo_work *works,
                                 struct rondo_launch *launch)
{
    char name[RONDO_KERNEL_NAME], where[80];
    RONDO_TRY(fetch_scalars(exec, b, works, memory->device));
    if (exec->capturing != NULL && memory->bytes > 0) {
        RONDO_TRY(rondo_exec_cuda_upload(exec, memory->device, memory->host, memory->bytes));
    }
    CUresult result = launch_kernel(exec, b, launch);
    if (RONDO_UNLIKELY(is_another(exec, result))) {
        exec->known = NULL;
        RONDO_TRY(choose_stream(exec, exec->stream));
        RONDO_TRY(order_before(exec));
        result = launch_kernel(exec, b, launch);
    }
    if (result != CUDA_SUCCESS) {
        rondo_kernel_name(name, &run_at(exec, exec->at)->work);
        return rondo_cuda_fail(result, "%s: cuLaunchKernelEx of %s, %u blocks of %u threads",
                               rondo_exec_cuda_where(exec, where), name, b->nblocks, b->threads);
    }
    exec->at = b->end;
    return RONDO_SUCCESS;
}

static rondo_status launch_batch(struct rondo_exec *exec, const struct batch *b,
                                 const struct rondo_cuda_piece *memory)
{
    struct rondo_launch launch;
    struct rondo_work *works;
    rondo_status status;
    fill_launch(exec, b, memory, &launch);
    works = launch.works == NULL ? launch.inline_works : (struct rondo_work *)(void *)memory->host;
    RONDO_TRY(note_launch(exec, b, works, &launch)); /* before the device may write to them */
    status = launch_noted(exec, b, memory, works, &launch);
    if (status != RONDO_SUCCESS) {
        forget_launch(exec, &launch);
    }
    return status;
}

/* What the next step launches. */
enum step { STEP_OWN, STEP_COPIES, STEP_BATCH };

/* The launch has failed, and perhaps copies for it are in the stream: the event says when these have ended,
 * and all before them. */
static void give_up(struct rondo_exec *exec, enum step step)
{
    if (exec->ordered && step != STEP_COPIES) { /* which has waited itself */
        exec->unreported = exec->cuda->EventRecord(exec->done, exec->stream);
        exec->marked = exec->unreported == CUDA_SUCCESS;
    }
}

static rondo_status launch_copies(struct rondo_exec *exec)
{
    RONDO_TRY(rondo_cuda_copy_launch(exec, run_at(exec, exec->at)));
    exec->at++;
    return RONDO_SUCCESS;
}

static rondo_status step_alone(struct rondo_exec *exec, enum step step, const struct batch *b,
                               const struct rondo_cuda_piece *memory)
{
    rondo_status status;
    RONDO_TRY(order_before(exec));
    status = step == STEP_OWN      ? copy_all(exec)
             : step == STEP_COPIES ? launch_copies(exec)
                                   : launch_batch(exec, b, memory);
    if (status != RONDO_SUCCESS) {
        give_up(exec, step);
        return status;
    }
    return order_after(exec, step == STEP_BATCH);
}

/* Without implicit order no lock is held: if the driver blocks one launch, others go on. */
static rondo_status step_ordered(struct rondo_exec *exec, enum step step, const struct batch *b,
                                 const struct rondo_cuda_piece *memory)
{
    rondo_status status;
    if (!exec->in_order) {
        return step_alone(exec, step, b, memory);
    }
    pthread_mutex_lock(&exec->config.kernels->order);
    status = step_alone(exec, step, b, memory);
    pthread_mutex_unlock(&exec->config.kernels->order);
    return status;
}

static rondo_status check_kernel(const struct rondo_exec *exec, const struct batch *b)
{
    char name[RONDO_KERNEL_NAME], where[80];
    if (RONDO_LIKELY(exec->config.kernels->function[b->kernel] != NULL)) {
        return RONDO_SUCCESS;
    }
    rondo_kernel_name(name, &run_at(exec, exec->at)->work);
    return rondo_fail(RONDO_INVALID_USAGE,
                      "%s: the kernel library has no %s: configure --enable-dtypes with this type",
                      rondo_exec_cuda_where(exec, where), name);
}

static rondo_status step_entered(struct rondo_exec *exec, int *moved)
{
    struct rondo_cuda_piece memory;
    struct batch batch;
    int room;
    if (exec->at < exec->ncopies) {
        RONDO_TRY(step_ordered(exec, STEP_OWN, NULL, NULL));
    } else {
        enum step step = run_at(exec, exec->at)->copies ? STEP_COPIES : STEP_BATCH;
        memset(&batch, 0, sizeof(batch));
        if (step == STEP_BATCH) {
            fill_batch(exec, &batch);
            RONDO_TRY(check_kernel(exec, &batch));
        }
        RONDO_TRY(find_room(exec, &batch, &memory, &room));
        if (!room || (step == STEP_COPIES && !rondo_cuda_copy_room(exec))) {
            return RONDO_IN_PROGRESS;
        }
        RONDO_TRY(step_ordered(exec, step, &batch, &memory));
    }
    *moved = 1;
    return exec->at < exec->nitems ? RONDO_IN_PROGRESS : RONDO_SUCCESS;
}

rondo_status rondo_exec_cuda_step(struct rondo_exec *exec, int *moved)
{
    rondo_status status;
    int pushed;
    *moved = 0;
    if (exec->nitems == 0) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_exec_cuda_enter_lightly(exec, &pushed));
    status = step_entered(exec, moved);
    rondo_exec_cuda_leave_lightly(pushed);
    return status;
}

static rondo_status begin_entered(struct rondo_exec *exec, CUstream stream)
{
    RONDO_TRY(choose_stream(exec, stream));
    RONDO_TRY(rondo_exec_cuda_capture(exec, exec->stream));
    RONDO_TRY(rondo_cuda_direct_prepare(exec));
    RONDO_TRY(list_items(exec));
    if (RONDO_UNLIKELY(exec->capture != NULL)) {
        pthread_mutex_lock(&exec->lock);
        rondo_cuda_capture_reap(exec, 0);
        pthread_mutex_unlock(&exec->lock);
    }
    return RONDO_SUCCESS;
}

static void take(struct rondo_exec *exec, struct rondo_run *runs, int n)
{
    exec->runs = runs;
    exec->nruns = n;
    exec->at = exec->nitems = 0;
}

rondo_status rondo_exec_cuda_begin(struct rondo_exec *exec, CUstream stream, struct rondo_run *runs, int n)
{
    rondo_status status;
    int pushed;
    take(exec, runs, n);
    RONDO_TRY(rondo_exec_cuda_enter_lightly(exec, &pushed));
    status = begin_entered(exec, stream);
    rondo_exec_cuda_leave_lightly(pushed);
    return status;
}

rondo_status rondo_exec_cuda_start(struct rondo_exec *exec, CUstream stream, struct rondo_run *runs, int n)
{
    rondo_status status;
    int pushed, moved = 1;
    take(exec, runs, n);
    RONDO_TRY(rondo_exec_cuda_enter_lightly(exec, &pushed));
    status = begin_entered(exec, stream);
    if (status == RONDO_SUCCESS && exec->nitems > 0) {
        do {
            moved = 0;
            status = step_entered(exec, &moved);
        } while (status == RONDO_IN_PROGRESS && moved);
    }
    rondo_exec_cuda_leave_lightly(pushed);
    return status;
}

static rondo_status behind_entered(struct rondo_exec *exec, CUstream stream)
{
    CUcontext context;
    RONDO_TRY(context_of(exec, stream, &context));
    return wait_for(exec, exec->stream, stream, context);
}

rondo_status rondo_exec_cuda_behind(struct rondo_exec *exec, CUstream stream)
{
    CUstreamCaptureMode before;
    rondo_status status;
    if (exec->nitems == 0) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_exec_cuda_enter(exec, &before));
    status = behind_entered(exec, stream);
    rondo_exec_cuda_leave(before);
    return status;
}

static rondo_status end_entered(struct rondo_exec *exec, CUstream stream)
{
    char where[80];
    if (exec->capturing == NULL && !exec->marked) {
        RONDO_TRY(mark_done(exec));
    }
    RONDO_CUDA_TRY(
        exec->cuda->StreamWaitEvent(stream, exec->capturing != NULL ? exec->captured : exec->done, 0),
        "%s: making stream %p wait for the group", rondo_exec_cuda_where(exec, where), (void *)stream);
    return RONDO_SUCCESS;
}

rondo_status rondo_exec_cuda_end(struct rondo_exec *exec, CUstream stream)
{
    CUstreamCaptureMode before;
    rondo_status status;
    if (exec->nitems == 0 || stream == exec->stream) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_exec_cuda_enter(exec, &before));
    status = end_entered(exec, stream);
    rondo_exec_cuda_leave(before);
    return status;
}
