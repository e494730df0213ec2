/* One event, for all plugins of a communicator and each in the layout of its version. */
#include <string.h>

#include "prof/prof_impl.h"

enum { PARENT_IS_API = 5 /* the first version where the parent of Coll and P2p is the API's event */ };

/* ---- versions ---- */

static int init_v1(const struct rondo_prof_plugin_table *table, struct rondo_prof_context *context,
                   const struct rondo_prof *prof)
{
    (void)prof;
    return table->init.v1(&context->context, &context->plugin->mask);
}

static int init_v4(const struct rondo_prof_plugin_table *table, struct rondo_prof_context *context,
                   const struct rondo_prof *prof)
{
    return table->init.v4(&context->context, &context->plugin->mask, prof->name, prof->comm.hash,
                          prof->comm.nnodes, prof->comm.nranks, prof->comm.rank, rondo_prof_log);
}

static int init_v5(const struct rondo_prof_plugin_table *table, struct rondo_prof_context *context,
                   const struct rondo_prof *prof)
{
    return table->init.v5(&context->context, prof->comm.hash, &context->plugin->mask, prof->name,
                          prof->comm.nnodes, prof->comm.nranks, prof->comm.rank, rondo_prof_log);
}

/* What versions 1 to 3 lay out alike. OLD: the older descriptor, d: the newer one. */
#define COMMON_HEAD(d)                                                       \
    {                                                                        \
        .type = (uint8_t)(d)->type, .parent = (d)->parent, .rank = (d)->rank \
    }
#define COMMON_COLL(old, d, prof)                      \
    do {                                               \
        (old).coll.name = (prof)->name;                \
        (old).coll.hash = (prof)->comm.hash;           \
        (old).coll.seq = (d)->coll.seq;                \
        (old).coll.send = (d)->coll.send;              \
        (old).coll.recv = (d)->coll.recv;              \
        (old).coll.count = (d)->coll.count;            \
        (old).coll.root = (d)->coll.root;              \
        (old).coll.max_channels = (d)->coll.nchannels; \
        (old).coll.nwarps = (d)->coll.nwarps;          \
    } while (0)
#define COMMON_P2P(old, d, prof)            \
    do {                                    \
        (old).p2p.name = (prof)->name;      \
        (old).p2p.hash = (prof)->comm.hash; \
        (old).p2p.buf = (d)->p2p.buf;       \
        (old).p2p.count = (d)->p2p.count;   \
        (old).p2p.peer = (d)->p2p.peer;     \
    } while (0)
/* Versions 2 and 3 have strings. */
#define STRINGS_COLL(old, d)                      \
    do {                                          \
        (old).coll.func = (d)->coll.func;         \
        (old).coll.datatype = (d)->coll.datatype; \
        (old).coll.algo = (d)->coll.algo;         \
        (old).coll.proto = (d)->coll.proto;       \
    } while (0)
#define STRINGS_P2P(old, d)                     \
    do {                                        \
        (old).p2p.func = (d)->p2p.func;         \
        (old).p2p.datatype = (d)->p2p.datatype; \
    } while (0)

static int start_v1(const struct rondo_prof *prof, const struct rondo_prof_context *context, void **handle,
                    struct rondo_prof_descr_v4 *d, const struct rondo_prof_extra *extra)
{
    struct rondo_prof_descr_v1 old = COMMON_HEAD(d);
    switch (d->type) {
    case RONDO_PROF_COLL:
        COMMON_COLL(old, d, prof);
        old.coll.func = extra->func;
        old.coll.datatype = extra->datatype;
        old.coll.op = extra->op;
        old.coll.algo = extra->algo;
        old.coll.proto = extra->proto;
        old.coll.traffic_bytes = extra->traffic_bytes;
        break;
    case RONDO_PROF_P2P:
        COMMON_P2P(old, d, prof);
        old.p2p.func = extra->func;
        old.p2p.datatype = extra->datatype;
        break;
    case RONDO_PROF_PROXY_OP: old.proxy_op = d->proxy_op; break;
    case RONDO_PROF_PROXY_STEP: old.proxy_step = d->proxy_step; break;
    default: break;
    }
    return context->plugin->table->start(context->context, handle, &old);
}

static int start_v2(const struct rondo_prof *prof, const struct rondo_prof_context *context, void **handle,
                    struct rondo_prof_descr_v4 *d, const struct rondo_prof_extra *extra)
{
    struct rondo_prof_descr_v2 old = COMMON_HEAD(d);
    switch (d->type) {
    case RONDO_PROF_COLL:
        COMMON_COLL(old, d, prof);
        STRINGS_COLL(old, d);
        old.coll.traffic_bytes = extra->traffic_bytes;
        break;
    case RONDO_PROF_P2P:
        COMMON_P2P(old, d, prof);
        STRINGS_P2P(old, d);
        break;
    case RONDO_PROF_PROXY_OP: old.proxy_op = d->proxy_op; break;
    case RONDO_PROF_PROXY_STEP: old.proxy_step = d->proxy_step; break;
    default: break;
    }
    return context->plugin->table->start(context->context, handle, &old);
}

static int start_v3(const struct rondo_prof *prof, const struct rondo_prof_context *context, void **handle,
                    struct rondo_prof_descr_v4 *d, const struct rondo_prof_extra *extra)
{
    struct rondo_prof_descr_v3 old = COMMON_HEAD(d);
    (void)extra;
    switch (d->type) {
    case RONDO_PROF_COLL:
        COMMON_COLL(old, d, prof);
        STRINGS_COLL(old, d);
        break;
    case RONDO_PROF_P2P:
        COMMON_P2P(old, d, prof);
        STRINGS_P2P(old, d);
        break;
    case RONDO_PROF_PROXY_OP: old.proxy_op = d->proxy_op; break;
    case RONDO_PROF_PROXY_STEP: old.proxy_step = d->proxy_step; break;
    case RONDO_PROF_KERNEL_CH: old.kernel_ch.channel = d->kernel_ch.channel; break;
    case RONDO_PROF_NET_PLUGIN: old.net_plugin = d->net_plugin; break;
    default: break;
    }
    return context->plugin->table->start(context->context, handle, &old);
}

/* Versions 4 to 7 read as much of the descriptor as they know. */
static int start_v4(const struct rondo_prof *prof, const struct rondo_prof_context *context, void **handle,
                    struct rondo_prof_descr_v4 *d, const struct rondo_prof_extra *extra)
{
    (void)prof, (void)extra;
    return context->plugin->table->start(context->context, handle, d);
}

#define UP_TO_(v, NAME, name, bit, version) | ((version) <= (v) ? 1 << (bit) : 0)
#define ROW(v, init, start)                                                     \
    {                                                                           \
        v, "ncclProfiler_v" #v, 0 RONDO_PROF_TYPE_TABLE(UP_TO_, v), init, start \
    }
const struct rondo_prof_version rondo_prof_versions[] = {
    ROW(7, init_v5, start_v4), ROW(6, init_v5, start_v4), ROW(5, init_v5, start_v4),
    ROW(4, init_v4, start_v4), ROW(3, init_v1, start_v3), ROW(2, init_v1, start_v2),
    ROW(1, init_v1, start_v1),
};
#undef ROW
const int rondo_prof_num_versions = RONDO_COUNTOF(rondo_prof_versions);

/* ---- events ---- */

/* The parents of events, from the leaves up. */
static const struct {
    int types, parents;
} parents_of[] = {
    { RONDO_PROF_KERNEL_PHASE, RONDO_PROF_KERNEL_CH },
    { RONDO_PROF_NET_PLUGIN, RONDO_PROF_PROXY_STEP },
    { RONDO_PROF_PROXY_STEP, RONDO_PROF_PROXY_OP },
    { RONDO_PROF_PROXY_OP | RONDO_PROF_KERNEL_CH, RONDO_PROF_COLL | RONDO_PROF_P2P },
    { RONDO_PROF_COLL, RONDO_PROF_GROUP | RONDO_PROF_COLL_API },
    { RONDO_PROF_P2P, RONDO_PROF_GROUP | RONDO_PROF_P2P_API },
    { RONDO_PROF_GROUP | RONDO_PROF_COLL_API | RONDO_PROF_P2P_API | RONDO_PROF_KERNEL_LAUNCH,
      RONDO_PROF_GROUP_API },
};

int rondo_prof_mask(const struct rondo_prof_plugin *plugin)
{
    int mask = __atomic_load_n(&plugin->mask, __ATOMIC_RELAXED);
    for (size_t i = 0; i < RONDO_COUNTOF(parents_of); i++) {
        mask |= mask & parents_of[i].types ? parents_of[i].parents : 0;
    }
    return mask & plugin->version->mask;
}

static int bit_of(uint64_t type) { return __builtin_ctzll(type); }

void rondo_prof_start_locked(struct rondo_prof *prof, const int *masks, struct rondo_prof_event *event,
                             struct rondo_prof_descr_v4 *descr, const struct rondo_prof_extra *extra,
                             const struct rondo_prof_event *parents, const struct rondo_prof_event *groups)
{
    descr->rank = prof->comm.rank;
    for (int i = 0; i < prof->n; i++) {
        struct rondo_prof_context *context = &prof->at[i];
        int version = context->plugin->version->version;
        event->handle[i] = NULL;
        event->open &= ~(1u << i);
        if (!((uint64_t)masks[i] & descr->type)) {
            continue;
        }
        descr->parent = parents != NULL ? parents->handle[i] : NULL;
        if (groups != NULL) {
            descr->parent = version < PARENT_IS_API ? groups->handle[i] : descr->parent;
            *(descr->type == RONDO_PROF_P2P ? &descr->p2p.parent_group
                                            : &descr->coll.parent_group) = groups->handle[i];
        }
        (void)context->plugin->version->start(prof, context, &event->handle[i], descr, extra);
        if (event->handle[i] != NULL) {
            event->open |= 1u << i;
            context->started[bit_of(descr->type)]++;
        } else {
            context->declined++;
        }
    }
}

void rondo_prof_stop_locked(struct rondo_prof *prof, struct rondo_prof_event *event)
{
    for (int i = 0; event->open != 0 && i < prof->n; i++) {
        if (event->open & 1u << i) {
            event->open &= ~(1u << i); /* no state and no second stop from here on */
            prof->at[i].stopped++;
            (void)prof->at[i].plugin->table->stop(event->handle[i]);
        }
    }
}

void rondo_prof_state_locked(struct rondo_prof *prof, const struct rondo_prof_event *event, int first,
                             int last, enum rondo_prof_state state, void *args)
{
    for (int i = 0; event->open != 0 && i < prof->n; i++) {
        const struct rondo_prof_plugin *plugin = prof->at[i].plugin;
        if (event->open & 1u << i && plugin->version->version >= first && plugin->version->version <= last) {
            (void)plugin->table->state(event->handle[i], (int)state, args);
        }
    }
}

static void lock(const struct rondo_prof *prof)
{
    if (RONDO_UNLIKELY(prof->shared)) {
        rondo_prof_calls_lock();
    }
}

static void unlock(const struct rondo_prof *prof)
{
    if (RONDO_UNLIKELY(prof->shared)) {
        rondo_prof_calls_unlock();
    }
}

void rondo_prof_start(struct rondo_prof *prof, const int *masks, struct rondo_prof_event *event,
                      struct rondo_prof_descr_v4 *descr, const struct rondo_prof_extra *extra,
                      const struct rondo_prof_event *parents, const struct rondo_prof_event *groups)
{
    lock(prof);
    rondo_prof_start_locked(prof, masks, event, descr, extra, parents, groups);
    unlock(prof);
}

void rondo_prof_stop(struct rondo_prof *prof, struct rondo_prof_event *event)
{
    lock(prof);
    rondo_prof_stop_locked(prof, event);
    unlock(prof);
}

void rondo_prof_state(struct rondo_prof *prof, const struct rondo_prof_event *event, int first, int last,
                      enum rondo_prof_state state, void *args)
{
    lock(prof);
    rondo_prof_state_locked(prof, event, first, last, state, args);
    unlock(prof);
}
