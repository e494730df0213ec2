/* The checking profiler plugin, in version VERSION (prof_check.h). One thread at a time calls it for a
 * communicator, and the tests use one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "prof_check.h"

#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)
#if VERSION < 4
typedef struct GLUE(rondo_prof_descr_v, VERSION) descr_t;
typedef union rondo_prof_args_v1 args_t;
#else
typedef struct rondo_prof_descr_v4 descr_t;
typedef union rondo_prof_args_v4 args_t;
#endif

__attribute__((visibility("default"))) struct prof_check prof_check = { .version = VERSION };

enum {
    ALIVE = 0x70726f66,
    SYSTEM_ERROR = 2,
    MOST_OPEN = 8 /* of a connection's steps, whose slots they are */
};

struct context {
    int nranks, rank;
    uint64_t hash;
    struct event *events;
};

struct event {
    int magic, open, type, state; /* state: the last one, -1: none */
    struct context *context;
    struct event *parent, *next;
    int children;  /* open */
    int net;       /* ProxyStep: NetPlugin events that have started */
    int steps;     /* ProxyOp: steps that have started */
    int nsteps;    /* ProxyOp: announced */
    int nchannels; /* Coll, P2p: announced */
    int kernels;   /* Coll, P2p: KernelCh that have started */
    int peer, is_send;
    uint64_t timer;
    size_t last_bytes;
    int last_steps;
};

static void bad(const char *what, long long value)
{
    if (prof_check.bad++ == 0) {
        snprintf(prof_check.text, sizeof prof_check.text, "v%d: %s (%lld)", VERSION, what, value);
    }
}
static void must(int ok, const char *what, long long value)
{
    if (!ok) {
        bad(what, value);
    }
}

static int flag(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && text[0] == '1';
}

/* ---- start ---- */

#define ROW_(v, NAME, name, bit, version) | ((version) <= (v) ? 1 << (bit) : 0)
enum { ALL = 0 RONDO_PROF_TYPE_TABLE(ROW_, VERSION) };
#undef ROW_

/* The parents that an event of this type may have; 0: it has none. */
static int parents_of(int type)
{
    int call = RONDO_PROF_COLL | RONDO_PROF_P2P;
    switch (type) {
    case RONDO_PROF_COLL: return VERSION < 5 ? RONDO_PROF_GROUP : RONDO_PROF_COLL_API;
    case RONDO_PROF_P2P: return VERSION < 5 ? RONDO_PROF_GROUP : RONDO_PROF_P2P_API;
    case RONDO_PROF_PROXY_OP:
    case RONDO_PROF_KERNEL_CH: return call;
    case RONDO_PROF_PROXY_STEP: return RONDO_PROF_PROXY_OP;
    case RONDO_PROF_NET_PLUGIN: return RONDO_PROF_PROXY_STEP;
    case RONDO_PROF_COLL_API:
    case RONDO_PROF_P2P_API:
    case RONDO_PROF_KERNEL_LAUNCH: return RONDO_PROF_GROUP_API;
    default: return 0;
    }
}

static void check_parent(struct event *e, const descr_t *d)
{
    int wanted = parents_of(e->type);
    e->parent = d->parent;
    if (wanted == 0) {
        must(d->parent == NULL, "an event without parents has one", e->type);
        e->parent = NULL;
        return;
    }
    if (e->parent == NULL || e->parent->magic != ALIVE) {
        bad("an event has no parent", e->type);
        e->parent = NULL;
        return;
    }
    must((e->parent->type & wanted) != 0, "the parent is of another type", e->parent->type);
    must(e->parent->context == e->context, "the parent is of another communicator", e->type);
    /* Events of the API end when its functions return, and what they have caused goes on. */
    must(e->parent->open ||
             (e->parent->type & (RONDO_PROF_GROUP_API | RONDO_PROF_COLL_API | RONDO_PROF_P2P_API)) != 0,
         "the parent has ended", e->type);
    e->parent->children += e->parent->open;
}

#if VERSION >= 5
static void check_group(const struct event *e, const void *group)
{
    const struct event *g = group;
    must(g != NULL && g->magic == ALIVE && g->type == RONDO_PROF_GROUP && g->open, "parentGroup", e->type);
}
#endif

static void check_coll(struct event *e, const descr_t *d)
{
#if VERSION == 1
    snprintf(prof_check.func, sizeof prof_check.func, "%u", d->coll.func);
    must(d->coll.proto <= 2 || d->coll.proto == 255, "proto", d->coll.proto);
#else
    snprintf(prof_check.func, sizeof prof_check.func, "%s", d->coll.func);
    snprintf(prof_check.algo, sizeof prof_check.algo, "%s", d->coll.algo);
    snprintf(prof_check.proto, sizeof prof_check.proto, "%s", d->coll.proto);
    must(strlen(d->coll.proto) > 0 && strlen(d->coll.datatype) > 0, "names", 0);
#endif
#if VERSION < 4
    must(d->coll.name != NULL && d->coll.hash != 0, "the communicator's name and hash", 0);
    e->nchannels = d->coll.max_channels;
#else
    e->nchannels = d->coll.nchannels;
#endif
#if VERSION >= 5
    check_group(e, d->coll.parent_group);
#endif
    must(d->coll.seq > 0, "seqNumber", (long long)d->coll.seq);
    prof_check.most_steps = 0;
    prof_check.channels += (uint64_t)e->nchannels;
}

static void check_p2p(struct event *e, const descr_t *d)
{
#if VERSION >= 4
    e->nchannels = d->p2p.nchannels;
#endif
#if VERSION >= 5
    check_group(e, d->p2p.parent_group);
#endif
    must(d->p2p.peer >= 0 && d->p2p.peer < PROF_CHECK_RANKS, "peer", d->p2p.peer);
    must(d->p2p.buf != NULL || d->p2p.count == 0, "buff", 0);
    prof_check.channels += (uint64_t)e->nchannels;
}

static void check_op(struct event *e, const descr_t *d)
{
    e->nsteps = d->proxy_op.nsteps;
    e->peer = d->proxy_op.peer;
    e->is_send = d->proxy_op.is_send;
    must(e->nsteps > 0, "nSteps", e->nsteps);
    must(e->is_send == 0 || e->is_send == 1, "isSend", e->is_send);
    must(d->proxy_op.pid == getpid(), "pid", d->proxy_op.pid);
    must(d->proxy_op.channel < 64, "channelId", d->proxy_op.channel);
    must(d->proxy_op.chunk_bytes > 0, "chunkSize", d->proxy_op.chunk_bytes);
    must(e->peer >= 0 && e->peer < PROF_CHECK_RANKS && e->peer != d->rank, "peer", e->peer);
    prof_check.most_steps = prof_check.most_steps < e->nsteps ? e->nsteps : prof_check.most_steps;
}

static void check_step(struct event *e, const descr_t *d)
{
    struct event *op = e->parent;
    if (op == NULL) {
        return;
    }
    must(d->proxy_step.step == op->steps, "step", d->proxy_step.step);
    must(op->children <= MOST_OPEN, "steps of an operation that are open", op->children);
    prof_check.most_open = prof_check.most_open < op->children ? op->children : prof_check.most_open;
    op->steps++;
    must(op->steps <= op->nsteps, "more steps than announced", op->steps);
}

#if VERSION >= 3
static void check_net(const struct event *e, const descr_t *d)
{
    struct event *step = e->parent, *op = step != NULL ? step->parent : NULL;
    const struct rondo_net_ib_event *ib = d->net_plugin.data;
    const struct rondo_net_socket_event *tcp = d->net_plugin.data;
    if (op == NULL) {
        return;
    }
    step->net++;
    switch (d->net_plugin.id) {
    case RONDO_NET_KIND_IB:
        must(ib->type == 1 && ib->qp.device >= 0 && ib->qp.number > 0, "a queue pair's event", ib->qp.number);
        prof_check.net[PROF_CHECK_VERBS]++;
        break;
    case RONDO_NET_KIND_SOCKET:
        must(tcp->type == 1 && tcp->socket.fd >= 0, "a socket's event", tcp->socket.fd);
        must(tcp->socket.op == !op->is_send && tcp->socket.bytes > 0, "a socket's event", tcp->socket.op);
        prof_check.net[PROF_CHECK_SOCKET]++;
        break;
    case PROF_CHECK_KIND:
        must(*(const int *)d->net_plugin.data == -PROF_CHECK_KIND, "a plugin's data", 0);
        prof_check.net[PROF_CHECK_PLUGIN]++;
        break;
    default: bad("who defines a NetPlugin event", d->net_plugin.id);
    }
}
#endif

/* A crash of a plugin is one of its process. */
static void crash_when_told(const struct context *c)
{
    enum { CRASH_AT = 500 };
    const char *rank = getenv("PROF_CHECK_CRASH");
    if (rank != NULL && c->rank == atoi(rank) && prof_check.stopped + (uint64_t)prof_check.open >= CRASH_AT) {
        abort();
    }
}

static int start(void *context, void **handle, void *descr)
{
    const descr_t *d = descr;
    struct event *e = calloc(1, sizeof *e);
    crash_when_told(context);
    if (e == NULL || flag("PROF_CHECK_DECLINE")) {
        free(e);
        return SYSTEM_ERROR; /* which has no effect */
    }
    *e = (struct event){ .magic = ALIVE, .open = 1, .state = -1, .context = context };
#if VERSION < 5
    e->type = ((const uint8_t *)descr)[0];
#else
    e->type = (int)d->type;
#endif
    e->next = e->context->events;
    e->context->events = e;
    must((e->type & ALL) != 0 && (e->type & (e->type - 1)) == 0, "type", e->type);
    must(d->rank == e->context->rank || VERSION < 4, "rank", d->rank);
    check_parent(e, d);
    switch (e->type) {
    case RONDO_PROF_COLL: check_coll(e, d); break;
    case RONDO_PROF_P2P: check_p2p(e, d); break;
    case RONDO_PROF_PROXY_OP: check_op(e, d); break;
    case RONDO_PROF_PROXY_STEP: check_step(e, d); break;
#if VERSION >= 3
    case RONDO_PROF_NET_PLUGIN: check_net(e, d); break;
#endif
    case RONDO_PROF_KERNEL_CH:
        if (e->parent != NULL) {
            e->parent->kernels++;
        }
#if VERSION >= 4
        e->timer = d->kernel_ch.timer;
        must(e->timer > 0, "pTimer", 0);
#endif
        break;
    default: break;
    }
    prof_check.started[__builtin_ctz((unsigned)e->type | 1u << 31)]++;
    prof_check.open++;
    *handle = e;
    return 0;
}

/* ---- states ---- */

/* May `state` follow `before` in an event of this type? */
static int follows(const struct event *e, int before, int state)
{
    int send = e->type == RONDO_PROF_PROXY_OP ? e->is_send : e->parent != NULL && e->parent->is_send;
    switch (e->type) {
    case RONDO_PROF_PROXY_OP:
        if (VERSION >= 4) {
            return before == -1 && state == RONDO_PROF_OP_IN_PROGRESS;
        }
        return state >= (send ? RONDO_PROF_SEND_POSTED : RONDO_PROF_RECV_POSTED) &&
               state <= (send ? RONDO_PROF_SEND_DONE : RONDO_PROF_RECV_DONE) &&
               (before == -1                                                     ? state % 4 == 0
                : before == (send ? RONDO_PROF_SEND_DONE : RONDO_PROF_RECV_DONE) ? state % 4 == 0
                                                                                 : state == before + 1);
    case RONDO_PROF_PROXY_STEP:
        if (!send) {
            return state == (before == -1 ? RONDO_PROF_STEP_RECV_WAIT : before + 1) &&
                   state <= RONDO_PROF_STEP_RECV_GPU_WAIT;
        }
        return before == -1 ? state == RONDO_PROF_STEP_SEND_GPU_WAIT
               : before == RONDO_PROF_STEP_SEND_GPU_WAIT
                   ? state == (VERSION >= 4 ? RONDO_PROF_STEP_SEND_PEER_WAIT : RONDO_PROF_STEP_SEND_WAIT)
               : before == RONDO_PROF_STEP_SEND_PEER_WAIT ? state == RONDO_PROF_STEP_SEND_WAIT
                                                          : 0;
    case RONDO_PROF_PROXY_CTRL:
        return before == RONDO_PROF_CTRL_APPEND
                   ? state == RONDO_PROF_CTRL_APPEND_END
                   : before == -1 && state >= RONDO_PROF_CTRL_IDLE && state <= RONDO_PROF_CTRL_APPEND;
    case RONDO_PROF_KERNEL_CH: return VERSION >= 4 && before == -1 && state == RONDO_PROF_KERNEL_CH_STOP;
    case RONDO_PROF_NET_PLUGIN: return VERSION >= 4 && state == RONDO_PROF_NET_PLUGIN_UPDATE;
    case RONDO_PROF_GROUP_API:
        return state == (before == -1 ? RONDO_PROF_GROUP_START_API_STOP : before + 1) &&
               state <= RONDO_PROF_GROUP_END_API_START;
    default: return 0;
    }
}

static void check_args(struct event *e, int state, const args_t *args)
{
#if VERSION < 4
    if (e->type == RONDO_PROF_PROXY_OP) {
        must(args->proxy_op.bytes >= e->last_bytes, "transSize falls", (long long)args->proxy_op.bytes);
        must(args->proxy_op.steps >= e->last_steps, "steps falls", args->proxy_op.steps);
        must(args->proxy_op.steps <= e->nsteps, "steps", args->proxy_op.steps);
        e->last_bytes = args->proxy_op.bytes;
        e->last_steps = args->proxy_op.steps;
    }
#else
    if (e->type == RONDO_PROF_KERNEL_CH) {
        must(args->kernel_ch.timer >= e->timer, "pTimer falls", (long long)args->kernel_ch.timer);
    } else if (e->parent != NULL && e->type == RONDO_PROF_PROXY_STEP &&
               (state == RONDO_PROF_STEP_SEND_WAIT || state == RONDO_PROF_STEP_RECV_FLUSH_WAIT)) {
        must(args->proxy_step.bytes > 0, "transSize", 0);
        *(e->parent->is_send ? &prof_check.sent_bytes[e->parent->peer]
                             : &prof_check.received_bytes[e->parent->peer]) += args->proxy_step.bytes;
    }
#endif
#if VERSION >= 4
    if (state == RONDO_PROF_NET_PLUGIN_UPDATE) {
        must(*(const int *)args->net_plugin.data == -PROF_CHECK_KIND, "a plugin's data in an update", 0);
    }
#endif
    if (state == RONDO_PROF_CTRL_APPEND_END) {
        must(args->proxy_ctrl.appended >= 0, "appendedProxyOps", args->proxy_ctrl.appended);
    }
}

static int record(void *handle, int state, void *args)
{
    struct event *e = handle;
    if (e == NULL || e->magic != ALIVE || !e->open) {
        bad("a state of an event that has ended", state);
        return 0;
    }
    must(follows(e, e->state, state), "a state in the wrong place",
         e->type * 10000 + (e->state + 1) * 100 + state);
    e->state = state;
    check_args(e, state, args);
    return 0;
}

/* ---- stop ---- */

static void check_end(const struct event *e)
{
    int partial = flag("PROF_CHECK_PARTIAL");
    /* What a function of the API has caused may go on after it, on a stream. */
    must(e->children == 0 || (e->type & (RONDO_PROF_COLL_API | RONDO_PROF_P2P_API)) != 0,
         "an event ends before its children", e->type);
    if (partial) {
        return;
    }
    switch (e->type) {
    case RONDO_PROF_PROXY_OP:
        must(e->steps == e->nsteps || prof_check.started[4] == 0, "steps", e->steps);
        break;
    case RONDO_PROF_PROXY_STEP:
        must(e->state == RONDO_PROF_STEP_SEND_WAIT || e->state == RONDO_PROF_STEP_RECV_GPU_WAIT,
             "a step ends in state", e->state);
        break;
    case RONDO_PROF_KERNEL_CH:
        must(VERSION < 4 || e->state == RONDO_PROF_KERNEL_CH_STOP, "KernelCh ends in state", e->state);
        break;
    default: break;
    }
}

static int stop(void *handle)
{
    struct event *e = handle;
    if (e == NULL || e->magic != ALIVE || !e->open) {
        bad("a stop of an event that has ended", 0);
        return 0;
    }
    check_end(e);
    if (e->type == RONDO_PROF_PROXY_STEP && e->parent != NULL) {
        ++*(e->parent->is_send ? &prof_check.sent[e->parent->peer] : &prof_check.received[e->parent->peer]);
        *(e->parent->is_send ? &prof_check.sends_without : &prof_check.receives_without) += e->net == 0;
    }
    e->open = 0;
    if (e->parent != NULL && e->parent->open) {
        e->parent->children--;
    }
    prof_check.open--;
    prof_check.stopped++;
    return 0;
}

/* ---- contexts ---- */

static int begin(void **context, int *mask, int nranks, int rank, uint64_t hash)
{
    struct context *c;
    const char *how = getenv("PROF_CHECK_INIT"), *wanted = getenv("PROF_CHECK_MASK");
    prof_check.inits++;
    if (how != NULL && strcmp(how, "fail") == 0) {
        return SYSTEM_ERROR;
    }
    c = calloc(1, sizeof *c);
    if (c == NULL) {
        return SYSTEM_ERROR;
    }
    *c = (struct context){ .nranks = nranks, .rank = rank, .hash = hash };
    *context = c;
    *mask = wanted != NULL ? (int)strtol(wanted, NULL, 0) : 0xffff;
    return 0;
}

#if VERSION < 4
static int init(void **context, int *mask) { return begin(context, mask, 0, -1, 0); }
#elif VERSION == 4
static int init(void **context, int *mask, const char *name, uint64_t hash, int nnodes, int nranks, int rank,
                rondo_prof_log_fn log)
{
    must(name != NULL && hash != 0 && nnodes > 0 && rank >= 0 && rank < nranks, "init", rank);
    log(3, 1ul << 14, __FILE__, __LINE__, "version %d checks rank %d", VERSION, rank);
    return begin(context, mask, nranks, rank, hash);
}
#else
static int init(void **context, uint64_t hash, int *mask, const char *name, int nnodes, int nranks, int rank,
                rondo_prof_log_fn log)
{
    must(name != NULL && hash != 0 && nnodes > 0 && rank >= 0 && rank < nranks, "init", rank);
    log(3, 1ul << 14, __FILE__, __LINE__, "version %d checks rank %d", VERSION, rank);
    return begin(context, mask, nranks, rank, hash);
}
#endif

static int finalize(void *context)
{
    struct context *c = context;
    while (c->events != NULL) {
        struct event *e = c->events;
        c->events = e->next;
        must(!e->open, "an event is open at the end", e->type);
        e->magic = 0;
        free(e);
    }
    free(c);
    prof_check.finalizes++;
    if (flag("PROF_CHECK_REPORT")) {
        printf("prof_check v%d: %d open, %d violations %s\n", VERSION, prof_check.open, prof_check.bad,
               prof_check.text);
    }
    return 0;
}

__attribute__((visibility("default"))) extern const struct rondo_prof_plugin_table GLUE(ncclProfiler_v,
                                                                                        VERSION);
const struct rondo_prof_plugin_table GLUE(ncclProfiler_v, VERSION) = {
    .name = "check",
#if VERSION < 4
    .init.v1 = init,
#elif VERSION == 4
    .init.v4 = init,
#else
    .init.v5 = init,
#endif
    .start = start,
    .stop = stop,
    .state = record,
    .finalize = finalize,
};
