/* Events become records (trace.h). */
#include "prof/trace/trace.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/rondo_types.def"

struct trace_settings trace_settings;

enum { SMALL = 64 << 10, LARGE = 2 << 20 /* bytes of the first chunk, and of later ones: a huge page */ };

/* ---- settings ---- */

#define MAX_DEFAULT "1000000"

static const char *setting(const char *name, const char *otherwise)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? text : otherwise;
}

static int has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncasecmp(at, word, n) == 0 && (at[n] == ',' || at[n] == '\0')) {
            return 1;
        }
    }
    return 0;
}

static void refuse(const char *name, const char *text, const char *allowed, const char *taken)
{
    fprintf(stderr, "rondo-trace: %s=\"%.300s\" is not allowed: %s; %s is used\n", name, text, allowed,
            taken);
}

static enum trace_level level_of(const char *text)
{
    static const char *const name[] = { "calls", "channels", "steps" };
    for (int i = TRACE_CALLS; i <= TRACE_STEPS; i++) {
        if (strcasecmp(text, name[i]) == 0) {
            return (enum trace_level)i;
        }
    }
    refuse("RONDO_TRACE_LEVEL", text, "choose calls, channels or steps", name[TRACE_CHANNELS]);
    return TRACE_CHANNELS;
}

static uint64_t max_of(const char *text)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0) {
        return n;
    }
    refuse("RONDO_TRACE_MAX", text, "give a whole number of events", MAX_DEFAULT);
    return strtoull(MAX_DEFAULT, NULL, 10);
}

static void read_settings(void)
{
    const char *prefix = setting("RONDO_TRACE_FILE", "rondo-trace"),
               *summary = setting("RONDO_TRACE_SUMMARY", "text");
    trace_settings.level = level_of(setting("RONDO_TRACE_LEVEL", "channels"));
    trace_settings.max = max_of(setting("RONDO_TRACE_MAX", MAX_DEFAULT));
    if (strlen(prefix) >= sizeof trace_settings.prefix) {
        refuse("RONDO_TRACE_FILE", prefix, "it is too long", "rondo-trace");
        prefix = "rondo-trace";
    }
    snprintf(trace_settings.prefix, sizeof trace_settings.prefix, "%s", prefix);
    trace_settings.text = has_word(summary, "text");
    trace_settings.json = has_word(summary, "json");
    trace_settings.prometheus = has_word(summary, "prometheus");
    trace_clock_open();
}

static int mask_of(enum trace_level level)
{
    int mask = RONDO_PROF_GROUP | RONDO_PROF_COLL | RONDO_PROF_P2P;
    mask |= level >= TRACE_CHANNELS ? RONDO_PROF_KERNEL_CH : 0;
    mask |= level >= TRACE_STEPS ? RONDO_PROF_PROXY_OP | RONDO_PROF_PROXY_STEP : 0;
    return mask;
}

/* ---- contexts ---- */

static int begin(void **context, int *mask, const char *name, uint64_t hash, int nnodes, int nranks, int rank)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct trace_context *c = calloc(1, sizeof *c);
    struct timespec real;
    pthread_once(&once, read_settings);
    if (c == NULL) {
        return 2; /* a system error: the library goes on without this plugin */
    }
    pthread_mutex_init(&c->lock, NULL);
    c->hash = hash;
    c->nnodes = nnodes;
    c->nranks = nranks;
    c->rank = rank;
    snprintf(c->name, sizeof c->name, "%s", name != NULL ? name : "");
    c->begun_monotonic = trace_ns();
    clock_gettime(CLOCK_REALTIME, &real);
    c->begun_real = (uint64_t)real.tv_sec * 1000000000u + (uint64_t)real.tv_nsec;
    c->clock_rank = -1;
    *context = c;
    *mask = mask_of(trace_settings.level);
    return 0;
}

static int init_v4(void **context, int *mask, const char *name, uint64_t hash, int nnodes, int nranks,
                   int rank, rondo_prof_log_fn log)
{
    (void)log;
    return begin(context, mask, name, hash, nnodes, nranks, rank);
}

static int init_v5(void **context, uint64_t hash, int *mask, const char *name, int nnodes, int nranks,
                   int rank, rondo_prof_log_fn log)
{
    (void)log;
    return begin(context, mask, name, hash, nnodes, nranks, rank);
}

static int finalize(void *context)
{
    struct trace_context *c = context;
    trace_write(c);
    while (c->first != NULL) {
        struct trace_chunk *chunk = c->first;
        c->first = chunk->next;
        free(chunk);
    }
    pthread_mutex_destroy(&c->lock);
    free(c);
    return 0;
}

/* ---- records ---- */

/* A page that is touched for the first time costs as much as dozens of events, so chunks are huge pages where
 * there are such. */
static struct trace_chunk *chunk_new(size_t bytes)
{
    struct trace_chunk *chunk = aligned_alloc(bytes, bytes);
    if (chunk == NULL) {
        return NULL;
    }
    (void)madvise(chunk, bytes, MADV_HUGEPAGE);
    *chunk = (struct trace_chunk){ .anchor = trace_anchor_now(),
                                   .room = (uint32_t)((bytes - sizeof *chunk) / sizeof chunk->record[0]) };
    return chunk;
}

/* The chunk is full: have another one. @return NULL: there is none. */
static struct trace_chunk *grow(struct trace_context *c, struct trace_chunk *full)
{
    struct trace_chunk *chunk;
    pthread_mutex_lock(&c->lock);
    chunk = c->last;
    if (chunk == full) { /* no other thread was here first */
        uint64_t left = trace_settings.max - c->room;
        chunk = left > 0 ? chunk_new(full == NULL ? SMALL : LARGE) : NULL;
        if (chunk != NULL) {
            chunk->room = chunk->room < left ? chunk->room : (uint32_t)left;
            c->room += chunk->room;
            *(full != NULL ? &full->next : &c->first) = chunk;
            __atomic_store_n(&c->last, chunk, __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return chunk;
}

/* @return a record whose bytes are not set; NULL: there is no room. */
static struct trace_record *take(struct trace_context *c)
{
    struct trace_chunk *chunk = __atomic_load_n(&c->last, __ATOMIC_ACQUIRE);
    do {
        if (chunk != NULL && __atomic_load_n(&chunk->n, __ATOMIC_RELAXED) < chunk->room) {
            uint32_t at = __atomic_fetch_add(&chunk->n, 1, __ATOMIC_RELAXED);
            if (at < chunk->room) {
                return &chunk->record[at];
            }
        }
    } while ((chunk = grow(c, chunk)) != NULL);
    __atomic_fetch_add(&c->lost, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* Bytes of an element, by the names that NCCL and Rondo give to types. */
static size_t size_of_type(const char *type)
{
#define TYPE_ROW(ctx, name, NAME, value, storage, ...) { #name, sizeof(storage) },
    static const struct {
        const char *name;
        size_t bytes;
    } types[] = { RONDO_DTYPE_TABLE(TYPE_ROW, ) };
#undef TYPE_ROW
    size_t n = strlen(type);
    for (size_t i = 0; strncmp(type, "nccl", 4) != 0 && i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(type, types[i].name) == 0) {
            return types[i].bytes;
        }
    }
    return n > 2 && strcmp(type + n - 2, "64") == 0   ? 8
           : n > 2 && strcmp(type + n - 2, "32") == 0 ? 4
           : n > 2 && strcmp(type + n - 2, "16") == 0 ? 2
                                                      : 1;
}

/* As nccl-tests counts them: where each rank has a block, all blocks. */
static uint64_t bytes_of(const struct trace_context *c, const char *func, const char *type, uint64_t count)
{
    int blocks = strcmp(func, "AllGather") == 0 || strcmp(func, "ReduceScatter") == 0 ||
                 strcmp(func, "AlltoAll") == 0 || strcmp(func, "Gather") == 0 || strcmp(func, "Scatter") == 0;
    return count * size_of_type(type) * (uint64_t)(blocks ? c->nranks : 1);
}

static void fill_coll(struct trace_record *r, const struct rondo_prof_descr_v4 *d)
{
    r->call.what = (struct trace_what){
        .func = d->coll.func, .datatype = d->coll.datatype, .algo = d->coll.algo, .proto = d->coll.proto
    };
    r->peer = d->coll.root;
    r->call.seq = d->coll.seq;
    r->call.count = d->coll.count;
    r->call.nchannels = d->coll.nchannels;
}

static void fill_p2p(struct trace_record *r, const struct rondo_prof_descr_v4 *d)
{
    r->call.what =
        (struct trace_what){ .func = d->p2p.func, .datatype = d->p2p.datatype, .algo = "P2P", .proto = "" };
    r->peer = d->p2p.peer;
    r->call.count = d->p2p.count;
    r->call.nchannels = d->p2p.nchannels;
}

/* The first lane of its connection that no open step has; the last one for all that come too many. */
static void take_lane(struct trace_record *r)
{
    r->step.lane = ~r->parent->op.lanes != 0 ? __builtin_ctz(~r->parent->op.lanes) : 31;
    r->parent->op.lanes |= 1u << r->step.lane;
}

/* NCCL moves another process's data where that process has no way to the network itself (PXN). Context and
 * parent of such an event are pointers of that process. */
static int is_foreign(const struct rondo_prof_descr_v4 *d, uint32_t type)
{
    return (type == RONDO_PROF_PROXY_OP && d->proxy_op.pid != getpid()) ||
           (type == RONDO_PROF_PROXY_STEP && d->parent == NULL); /* a step of such an operation */
}

static int start(void *context, void **handle, const struct rondo_prof_descr_v4 *d, uint32_t type)
{
    struct trace_record *r;
    *handle = NULL;
    if (is_foreign(d, type) ||
        !((int)type & (RONDO_PROF_COLL | RONDO_PROF_P2P | RONDO_PROF_KERNEL_CH | RONDO_PROF_PROXY_OP |
                       RONDO_PROF_PROXY_STEP)) ||
        (r = take(context)) == NULL) {
        return 0;
    }
    memset(r, 0, sizeof *r);
    r->context = context;
    r->type = type;
    switch (type) {
    case RONDO_PROF_COLL: fill_coll(r, d); break;
    case RONDO_PROF_P2P: fill_p2p(r, d); break;
    case RONDO_PROF_KERNEL_CH:
        r->parent = d->parent;
        r->channel = d->kernel_ch.channel;
        break;
    case RONDO_PROF_PROXY_OP:
        r->parent = d->parent;
        r->channel = d->proxy_op.channel;
        r->peer = d->proxy_op.peer;
        r->op.nsteps = d->proxy_op.nsteps;
        r->op.is_send = d->proxy_op.is_send;
        break;
    default:
        r->parent = d->parent;
        r->step.step = d->proxy_step.step;
        take_lane(r);
        break;
    }
    r->start = trace_ticks();
    *handle = r;
    return 0;
}

static int start_v4(void *context, void **handle, void *descr)
{
    const struct rondo_prof_descr_v4 *d = descr;
    return start(context, handle, d, d->type_v4);
}

static int start_v5(void *context, void **handle, void *descr)
{
    const struct rondo_prof_descr_v4 *d = descr;
    return start(context, handle, d, (uint32_t)d->type);
}

static int is_call(const struct trace_record *r)
{
    return r->type == RONDO_PROF_COLL || r->type == RONDO_PROF_P2P;
}

static int stop(void *handle)
{
    struct trace_record *r = handle, *up;
    if (r == NULL) {
        return 0;
    }
    up = r->parent;
    r->stop = trace_ticks();
    if (r->type == RONDO_PROF_PROXY_STEP) {
        up->op.bytes += r->step.bytes;
        up->op.lanes &= ~(1u << r->step.lane);
    }
    if ((r->type == RONDO_PROF_KERNEL_CH || r->type == RONDO_PROF_PROXY_OP) && up != NULL) {
        up->call.last = up->call.last < r->stop ? r->stop : up->call.last;
    }
    return 0;
}

static int state(void *handle, int state, void *arguments)
{
    struct trace_record *r = handle;
    const union rondo_prof_args_v4 *args = arguments;
    if (r == NULL || r->type != RONDO_PROF_PROXY_STEP) {
        return 0;
    }
    if (state == RONDO_PROF_STEP_SEND_PEER_WAIT || state == RONDO_PROF_STEP_RECV_FLUSH_WAIT) {
        r->step.waited = trace_ticks();
    } else if (state == RONDO_PROF_STEP_SEND_WAIT || state == RONDO_PROF_STEP_RECV_GPU_WAIT) {
        r->step.moved = trace_ticks();
    }
    if ((state == RONDO_PROF_STEP_SEND_WAIT || state == RONDO_PROF_STEP_RECV_FLUSH_WAIT) && args != NULL) {
        r->step.bytes = args->proxy_step.bytes;
    }
    return 0;
}

/* Calls are counted once all is known: with NCCL, a call's events go on after its own stop. */
static void count_calls(struct trace_context *c)
{
    for (struct trace_chunk *chunk = c->first; chunk != NULL; chunk = chunk->next) {
        for (uint64_t i = 0; i < trace_records(chunk); i++) {
            struct trace_record *r = &chunk->record[i];
            if (is_call(r) && r->stop != 0) {
                r->call.what.bytes = bytes_of(c, r->call.what.func, r->call.what.datatype, r->call.count);
                r->stop = r->stop < r->call.last ? r->call.last : r->stop;
                trace_summary_add(c, &r->call.what, r->stop - r->start);
            }
        }
    }
}

static int finish(void *context)
{
    struct trace_context *c = context;
    c->end = trace_anchor_now();
    trace_times(c);
    count_calls(c);
    return finalize(c);
}

__attribute__((visibility("default"))) extern const rondo_prof_clock_fn rondoProfilerClock_v1;
static int clock_is(void *context, int rank, int64_t offset_ns, int64_t error_ns)
{
    struct trace_context *c = context;
    c->clock_rank = rank;
    c->offset_ns = offset_ns;
    c->error_ns = error_ns;
    return 0;
}
const rondo_prof_clock_fn rondoProfilerClock_v1 = clock_is;

#define TABLE(version, begin_fn, start_fn)                                                           \
    __attribute__((                                                                                  \
        visibility("default"))) extern const struct rondo_prof_plugin_table ncclProfiler_v##version; \
    const struct rondo_prof_plugin_table ncclProfiler_v##version = { .name = "rondo",                \
                                                                     .init = begin_fn,               \
                                                                     .start = start_fn,              \
                                                                     .stop = stop,                   \
                                                                     .state = state,                 \
                                                                     .finalize = finish }
TABLE(4, { .v4 = init_v4 }, start_v4);
TABLE(5, { .v5 = init_v5 }, start_v5);
TABLE(6, { .v5 = init_v5 }, start_v5);
TABLE(7, { .v5 = init_v5 }, start_v5);
