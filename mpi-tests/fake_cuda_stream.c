/* The fake CUDA driver: streams (a thread and a queue each) and events (places in a queue). */
#include "fake_cuda.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

static CUstream streams; /* those with a handle */
static CUevent events;

/* ---- a stream's thread ---- */

static int waits(const struct fake_op *op)
{
    for (int i = 0; i < op->nwaits; i++) {
        if (op->wait[i].stream->done < op->wait[i].seq) return 1;
    }
    return 0;
}

/* In order. A write comes after all that its stream did before, which is the default. */
static void run_words(const struct fake_op *op)
{
    const CUstreamBatchMemOpParams *one = op->parameter;
    for (uint32_t i = 0; i < op->blocks; i++, one++) {
        uint32_t *word = (uint32_t *)(uintptr_t)one->waitValue.address;
        if (one->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32) {
            __atomic_store_n(word, one->writeValue.value, __ATOMIC_SEQ_CST);
        } else {
            while ((int32_t)(__atomic_load_n(word, __ATOMIC_SEQ_CST) - one->waitValue.value) < 0) {
                sched_yield();
            }
        }
    }
}

CUresult fake_run(const struct fake_op *op)
{
    switch (op->kind) {
    case FAKE_OP_COPY: memmove(op->to, op->from, op->bytes); return CUDA_SUCCESS;
    case FAKE_OP_SET: memset(op->to, op->value, op->bytes); return CUDA_SUCCESS;
    case FAKE_OP_HOST: op->fn(op->arg); return CUDA_SUCCESS;
    case FAKE_OP_KERNEL: return fake_run_kernel(op);
    case FAKE_OP_GRAPH: return fake_run_graph(op->graph);
    case FAKE_OP_WORDS: run_words(op); return CUDA_SUCCESS;
    default: return CUDA_SUCCESS;
    }
}

void fake_release_stream(CUstream s)
{
    if (--s->refs == 0) {
        free(s);
    }
}

static void end_op(CUstream s, struct fake_op *op, CUresult result)
{
    if (result != CUDA_SUCCESS) s->ctx->error = result;
    if (op->kind == FAKE_OP_RECORD && op->event != NULL && op->event->stream == s &&
        op->event->seq == op->seq) {
        op->event->ns = fake_now();
    }
    for (int i = 0; i < op->nwaits; i++) {
        fake_release_stream(op->wait[i].stream);
    }
    s->done = op->seq;
    fake_queue_leave(s);
    pthread_cond_broadcast(&fake.changed);
    free(op->parameter);
    free(op);
}

static void *stream_main(void *arg)
{
    CUstream s = arg;
    fake_open_memory();
    pthread_mutex_lock(&fake.lock);
    for (;;) {
        struct fake_op *op = s->first;
        CUresult result = CUDA_SUCCESS;
        if (op == NULL && s->destroyed) break;
        if (op == NULL || waits(op) || !fake_queue_may_start(s, op)) {
            pthread_cond_wait(&fake.changed, &fake.lock);
            continue;
        }
        s->first = op->next;
        if (s->first == NULL) s->last = NULL;
        fake_queue_start(s);
        if (s->ctx->error == CUDA_SUCCESS) {
            pthread_mutex_unlock(&fake.lock);
            result = fake_run(op);
            pthread_mutex_lock(&fake.lock);
        }
        end_op(s, op, result);
    }
    for (int i = 0; i < s->npending; i++) {
        fake_release_stream(s->pending[i].stream);
    }
    fake_release_stream(s);
    pthread_mutex_unlock(&fake.lock);
    return NULL;
}

/* Call with the lock held. */
static CUstream stream_new(CUcontext ctx, unsigned flags, int priority, int legacy)
{
    CUstream s = calloc(1, sizeof(*s));
    pthread_attr_t attr;
    pthread_t thread;
    if (s == NULL) return NULL;
    s->ctx = ctx;
    s->flags = flags;
    s->priority = priority;
    s->legacy = legacy;
    fake_queue_choose(s);
    s->refs = 2; /* the handle's and the thread's */
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attr, stream_main, s) != 0) {
        free(s);
        s = NULL;
    }
    pthread_attr_destroy(&attr);
    if (s != NULL) {
        s->next_stream = streams;
        streams = s;
    }
    return s;
}

/* The stream that the handle names in this thread. */
static CUstream stream_of_thread(CUcontext ctx)
{
    CUstream s = streams;
    while (s != NULL && !(s->ctx == ctx && s->per_thread && pthread_equal(s->owner, pthread_self()))) {
        s = s->next_stream;
    }
    if (s == NULL && ctx != NULL && (s = stream_new(ctx, CU_STREAM_DEFAULT, 0, 0)) != NULL) {
        s->per_thread = 1;
        s->owner = pthread_self();
    }
    return s;
}

CUstream fake_stream(CUstream handle, CUcontext ctx)
{
    CUstream s = streams;
    if (handle == CU_STREAM_PER_THREAD) return stream_of_thread(ctx);
    if (handle == NULL || handle == CU_STREAM_LEGACY) {
        if (ctx != NULL && ctx->legacy == NULL) ctx->legacy = stream_new(ctx, CU_STREAM_DEFAULT, 0, 1);
        return ctx != NULL ? ctx->legacy : NULL;
    }
    while (s != NULL && s != handle) {
        s = s->next_stream;
    }
    return s;
}

/* ---- issuing ---- */

static void add_wait(struct fake_op *op, CUstream s, uint64_t seq)
{
    if (s->done < seq && op->nwaits < FAKE_TAILS) {
        s->refs++;
        op->wait[op->nwaits++] = (struct fake_wait){ s, seq };
    }
}

/* The legacy stream waits for all earlier work of its context's other streams, and they wait for it. */
static void order_legacy(struct fake_op *op, CUstream stream)
{
    for (CUstream s = streams; s != NULL; s = s->next_stream) {
        if (s != stream && s->ctx == stream->ctx && (s->legacy || stream->legacy) &&
            !((s->flags | stream->flags) & CU_STREAM_NON_BLOCKING)) {
            add_wait(op, s, s->issued);
        }
    }
}

CUresult fake_issue(CUstream s, const struct fake_op *wanted)
{
    struct fake_op *op;
    CUresult result;
    if (s->capture != NULL) {
        if (s->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        return fake_graph_add(s->capture->graph, wanted, s->tail, &s->ntails);
    }
    op = malloc(sizeof(*op));
    if (op == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *op = *wanted;
    op->next = NULL;
    op->ctx = s->ctx;
    result = fake_queue_enter(s, op);
    if (result != CUDA_SUCCESS) {
        free(op);
        return result;
    }
    op->seq = ++s->issued;
    op->nwaits = s->npending; /* with their references */
    memcpy(op->wait, s->pending, sizeof op->wait);
    s->npending = 0;
    order_legacy(op, s);
    if (s->last != NULL)
        s->last->next = op;
    else
        s->first = op;
    s->last = op;
    pthread_cond_broadcast(&fake.changed);
    return CUDA_SUCCESS;
}

static CUresult issue(const char *name, CUstream handle, const struct fake_op *op)
{
    CUcontext ctx;
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    CUstream s;
    FAKE_ENTER_CTX(name, ctx);
    pthread_mutex_lock(&fake.lock);
    s = fake_stream(handle, ctx);
    if (s != NULL && op->kind == FAKE_OP_COPY &&
        !(fake_range_fits((uintptr_t)op->to, op->bytes) && fake_range_fits((uintptr_t)op->from, op->bytes))) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (s != NULL && op->kind == FAKE_OP_SET &&
               (fake_find((uintptr_t)op->to) == NULL || !fake_range_fits((uintptr_t)op->to, op->bytes))) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (s != NULL) {
        result = fake_issue(s, op);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    const struct fake_op op = {
        .kind = FAKE_OP_COPY, .to = (void *)to, .from = (const void *)from, .bytes = bytes
    };
    return issue("cuMemcpyAsync", stream, &op);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
    const struct fake_op op = { .kind = FAKE_OP_SET, .to = (void *)to, .value = value, .bytes = bytes };
    return issue("cuMemsetD8Async", stream, &op);
}

/* Only 32-bit words. Waits are only for "at least", in the order of the difference. */
static int is_word(const CUstreamBatchMemOpParams *one)
{
    const int waits = one->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32;
    return (waits || one->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32) && one->waitValue.address % 4 == 0 &&
           fake_find((uintptr_t)one->waitValue.address) != NULL &&
           fake_range_fits((uintptr_t)one->waitValue.address, 4) &&
           one->waitValue.flags ==
               (unsigned)(waits ? CU_STREAM_WAIT_VALUE_GEQ : CU_STREAM_WRITE_VALUE_DEFAULT);
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned n, CUstreamBatchMemOpParams *words, unsigned flags)
{
    struct fake_op op = { .kind = FAKE_OP_WORDS, .blocks = n };
    CUresult result = flags == 0 && n > 0 && n < 256 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake.lock);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < n; i++) {
        result = is_word(&words[i]) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&fake.lock);
    if (result != CUDA_SUCCESS) return result;
    if ((op.parameter = calloc(1, FAKE_PARAMETER)) == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(op.parameter, words, sizeof(*words) * n);
    result = issue("cuStreamBatchMemOp", stream, &op);
    if (result != CUDA_SUCCESS) free(op.parameter);
    return result;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *arg)
{
    const struct fake_op op = { .kind = FAKE_OP_HOST, .fn = fn, .arg = arg };
    return issue("cuLaunchHostFunc", stream, &op);
}

static void wait_done(CUstream s, uint64_t seq)
{
    s->refs++;
    while (s->done < seq) {
        pthread_cond_wait(&fake.changed, &fake.lock);
    }
    fake_release_stream(s);
}

/* For programs: runs on the legacy stream and blocks. */
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    const struct fake_op op = {
        .kind = FAKE_OP_COPY, .to = (void *)to, .from = (const void *)from, .bytes = bytes
    };
    CUresult result = issue("cuMemcpy", NULL, &op);
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&fake.lock);
        wait_done(fake_current()->legacy, fake_current()->legacy->issued);
        pthread_mutex_unlock(&fake.lock);
    }
    return result;
}

/* ---- streams ---- */

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    CUcontext ctx;
    FAKE_ENTER_CTX("cuStreamCreateWithPriority", ctx);
    if ((flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake.lock);
    *stream = stream_new(ctx, flags, priority, 0);
    if (*stream != NULL) fake_count(FAKE_STREAM, 1);
    pthread_mutex_unlock(&fake.lock);
    return *stream != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamDestroy(CUstream handle)
{
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    CUstream *at, s;
    FAKE_ENTER("cuStreamDestroy");
    pthread_mutex_lock(&fake.lock);
    for (at = &streams; (s = *at) != NULL && s != handle; at = &s->next_stream) {
    }
    if (s != NULL && !s->legacy && s->capture == NULL) {
        *at = s->next_stream;
        s->destroyed = 1; /* its work still runs */
        fake_count(FAKE_STREAM, -1);
        fake_release_stream(s);
        pthread_cond_broadcast(&fake.changed);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* Query or synchronise a stream. */
static CUresult asked(const char *name, CUstream handle, int wait)
{
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    CUstream s;
    FAKE_ENTER(name);
    pthread_mutex_lock(&fake.lock);
    s = fake_stream(handle, fake_current());
    if (s != NULL && s->capture != NULL) {
        s->capture->invalid = 1;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (s != NULL) {
        const uint64_t last = s->issued; /* other threads may add to the stream meanwhile */
        result = fake_unsafe();
        if (result == CUDA_SUCCESS && wait) wait_done(s, last);
        if (result == CUDA_SUCCESS)
            result = s->ctx->error != CUDA_SUCCESS ? s->ctx->error
                     : s->done < last              ? CUDA_ERROR_NOT_READY
                                                   : CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuStreamSynchronize(CUstream stream) { return asked("cuStreamSynchronize", stream, 1); }
CUresult cuStreamQuery(CUstream stream) { return asked("cuStreamQuery", stream, 0); }

CUresult cuStreamGetCtx(CUstream handle, CUcontext *ctx)
{
    CUstream s;
    FAKE_ENTER("cuStreamGetCtx");
    pthread_mutex_lock(&fake.lock);
    s = fake_stream(handle, fake_current());
    if (s != NULL) *ctx = s->ctx;
    pthread_mutex_unlock(&fake.lock);
    return s != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- events ---- */

static CUevent event_of(CUevent handle)
{
    CUevent e = events;
    while (e != NULL && e != handle) {
        e = e->next_event;
    }
    return e;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    CUcontext ctx;
    CUevent e;
    FAKE_ENTER_CTX("cuEventCreate", ctx);
    e = calloc(1, sizeof(*e));
    if (e == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    e->flags = flags;
    pthread_mutex_lock(&fake.lock);
    e->next_event = events;
    events = e;
    fake_count(FAKE_EVENT, 1);
    pthread_mutex_unlock(&fake.lock);
    *event = e;
    return CUDA_SUCCESS;
}

static void forget_record(CUevent e)
{
    if (e->stream != NULL) fake_release_stream(e->stream);
    e->stream = NULL;
    e->capture = 0;
}

static CUresult record(CUevent e, CUstream s)
{
    const struct fake_op op = { .kind = FAKE_OP_RECORD, .event = e };
    CUresult result;
    if (s->capture != NULL) {
        forget_record(e);
        e->capture = s->capture->id;
        e->ntails = s->ntails;
        memcpy(e->tail, s->tail, sizeof e->tail);
        return s->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    }
    result = fake_issue(s, &op);
    if (result != CUDA_SUCCESS) return result;
    s->refs++;
    forget_record(e);
    e->stream = s;
    e->seq = s->issued;
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent handle, CUstream stream)
{
    CUcontext ctx;
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    CUstream s;
    CUevent e;
    FAKE_ENTER_CTX("cuEventRecord", ctx);
    pthread_mutex_lock(&fake.lock);
    e = event_of(handle);
    s = fake_stream(stream, ctx);
    if (e != NULL && s != NULL) result = record(e, s);
    pthread_mutex_unlock(&fake.lock);
    return result;
}

static CUresult event_asked(const char *name, CUevent handle, int wait)
{
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    CUevent e;
    FAKE_ENTER(name);
    pthread_mutex_lock(&fake.lock);
    e = event_of(handle);
    if (e != NULL && e->capture != 0) {
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (e != NULL) {
        result = fake_unsafe();
        if (result == CUDA_SUCCESS && e->stream != NULL) {
            if (wait) wait_done(e->stream, e->seq);
            result = e->stream->ctx->error != CUDA_SUCCESS ? e->stream->ctx->error
                     : e->stream->done < e->seq            ? CUDA_ERROR_NOT_READY
                                                           : CUDA_SUCCESS;
        }
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuEventQuery(CUevent event) { return event_asked("cuEventQuery", event, 0); }
CUresult cuEventSynchronize(CUevent event) { return event_asked("cuEventSynchronize", event, 1); }

CUresult cuEventElapsedTime(float *ms, CUevent begin, CUevent end)
{
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    FAKE_ENTER("cuEventElapsedTime");
    pthread_mutex_lock(&fake.lock);
    if (event_of(begin) != NULL && event_of(end) != NULL && begin->ns != 0 && end->ns != 0 &&
        !((begin->flags | end->flags) & CU_EVENT_DISABLE_TIMING)) {
        *ms = (float)(end->ns - begin->ns) * 1e-6f;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* Operations that were to mark its time will find that it is gone. */
static void forget_event(CUevent gone)
{
    for (CUstream s = streams; s != NULL; s = s->next_stream) {
        for (struct fake_op *op = s->first; op != NULL; op = op->next) {
            op->event = op->event == gone ? NULL : op->event;
        }
    }
}

CUresult cuEventDestroy(CUevent handle)
{
    CUevent *at, e;
    FAKE_ENTER("cuEventDestroy");
    pthread_mutex_lock(&fake.lock);
    for (at = &events; (e = *at) != NULL && e != handle; at = &e->next_event) {
    }
    if (e != NULL) {
        *at = e->next_event;
        forget_event(e);
        forget_record(e);
        free(e);
        fake_count(FAKE_EVENT, -1);
    }
    pthread_mutex_unlock(&fake.lock);
    return e != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- waiting for events ---- */

static void add_tail(CUstream s, int node)
{
    for (int i = 0; i < s->ntails; i++) {
        if (s->tail[i] == node) return;
    }
    if (s->ntails < FAKE_TAILS) s->tail[s->ntails++] = node;
}

/* The stream joins the capture in which the event was recorded. */
static CUresult join(CUstream s, CUevent e)
{
    struct fake_capture *c = NULL;
    for (CUstream other = streams; other != NULL && c == NULL; other = other->next_stream) {
        c = other->capture != NULL && other->capture->id == e->capture ? other->capture : NULL;
    }
    if (c == NULL || (s->capture != NULL && s->capture != c)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    s->capture = c;
    for (int i = 0; i < e->ntails; i++) {
        add_tail(s, e->tail[i]);
    }
    return CUDA_SUCCESS;
}

static CUresult wait_event(CUstream s, CUevent e)
{
    const struct fake_op nothing = { .kind = FAKE_OP_NOTHING };
    if (e->capture != 0) return join(s, e);
    if (s->capture != NULL)
        return e->stream == NULL ? CUDA_SUCCESS
                                 : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* work from outside the capture */
    if (e->stream == NULL || e->stream->done >= e->seq) return CUDA_SUCCESS;
    e->stream->refs++;
    s->pending[s->npending++] = (struct fake_wait){ e->stream, e->seq };
    return fake_issue(s, &nothing);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned flags)
{
    CUcontext ctx;
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    CUstream s;
    CUevent e;
    FAKE_ENTER_CTX("cuStreamWaitEvent", ctx);
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake.lock);
    e = event_of(handle);
    s = fake_stream(stream, ctx);
    if (e != NULL && s != NULL) result = wait_event(s, e);
    pthread_mutex_unlock(&fake.lock);
    return result;
}

void fake_capture_leave(const struct fake_capture *capture)
{
    for (CUstream s = streams; s != NULL; s = s->next_stream) {
        if (s->capture == capture) {
            s->capture = NULL;
            s->ntails = 0;
        }
    }
}
