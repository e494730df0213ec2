/* Fault injection for net devices. Contract and syntax: netdev_fault.h. */
#include "net/netdev_fault.h"

#ifdef RONDO_FAULTS

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/wait.h"

enum { POOL = 2 * RONDO_NET_MAX_REQUESTS };

/* X(ctx, name): functions whose calls are counted. */
#define FUNCTIONS(X, ctx) \
    X(ctx, init)          \
    X(ctx, properties)    \
    X(ctx, prepare)       \
    X(ctx, connect)       \
    X(ctx, reg)           \
    X(ctx, unreg)         \
    X(ctx, isend)         \
    X(ctx, irecv)         \
    X(ctx, iflush)        \
    X(ctx, test)
#define ENUM_ROW(ctx, name) FAULT_##name,
enum function { FUNCTIONS(ENUM_ROW, ) NUM_FUNCTIONS };
#define NAME_ROW(ctx, name) #name,
static const char *const function_names[] = { FUNCTIONS(NAME_ROW, ) };

static struct {
    int64_t seed, rank, delay_ns, late, again, connect, die;
    int fails, function; /* enum function */
    int64_t fail_at;
    rondo_status fail_with;
    int ncomms; /* atomic */
    int64_t calls[NUM_FUNCTIONS];
} fault;

/* ---- the words ---- */

/* X(ctx, word, least, most) for words with a number. */
static const struct {
    const char *word;
    int64_t *value, least, most;
} numbers[] = {
    { "seed", &fault.seed, 0, INT64_MAX },     { "rank", &fault.rank, 0, INT_MAX },
    { "late", &fault.late, 1, 1000000 },       { "again", &fault.again, 1, 1000000 },
    { "connect", &fault.connect, 1, 1000000 }, { "die", &fault.die, 1, INT64_MAX },
};

/* Parse "isend:3:remote". @return 0 on success. */
static int parse_fail(const char *value)
{
    static const struct {
        const char *name;
        rondo_status status;
    } statuses[] = { { "system", RONDO_SYSTEM_ERROR },
                     { "remote", RONDO_REMOTE_ERROR },
                     { "internal", RONDO_INTERNAL_ERROR } };
    char text[64], *name = text, *at, *status;
    if (snprintf(text, sizeof text, "%s", value) >= (int)sizeof text || (at = strchr(text, ':')) == NULL) {
        return -1;
    }
    *at++ = '\0';
    status = strchr(at, ':');
    if (status != NULL) {
        *status++ = '\0';
    }
    fault.function = -1;
    for (int i = 0; i < NUM_FUNCTIONS; i++) {
        fault.function = strcmp(name, function_names[i]) == 0 ? i : fault.function;
    }
    fault.fails = fault.function >= 0 && rondo_parse_int(at, &fault.fail_at) == 0 && fault.fail_at >= 1;
    fault.fail_with = status == NULL ? RONDO_SYSTEM_ERROR : RONDO_SUCCESS;
    for (size_t i = 0; status != NULL && i < RONDO_COUNTOF(statuses); i++) {
        fault.fail_with = strcmp(status, statuses[i].name) == 0 ? statuses[i].status : fault.fail_with;
    }
    return fault.fails && fault.fail_with != RONDO_SUCCESS ? 0 : -1;
}

static int parse_word(char *word)
{
    char *value = strchr(word, '=');
    if (value == NULL) {
        return -1;
    }
    *value++ = '\0';
    if (strcmp(word, "fail") == 0) {
        return parse_fail(value);
    }
    if (strcmp(word, "delay") == 0) {
        return rondo_parse_time(value, &fault.delay_ns) == 0 && fault.delay_ns >= 0 ? 0 : -1;
    }
    for (size_t i = 0; i < RONDO_COUNTOF(numbers); i++) {
        if (strcmp(word, numbers[i].word) == 0) {
            int64_t *number = numbers[i].value;
            return rondo_parse_int(value, number) == 0 && *number >= numbers[i].least &&
                           *number <= numbers[i].most
                       ? 0
                       : -1;
        }
    }
    return -1;
}

rondo_status rondo_netdev_fault_init(int *armed)
{
    const char *text = rondo_params()->net_fault;
    char *copy, *rest, *word, shown[64];
    rondo_status status = RONDO_SUCCESS;
    *armed = 0;
    memset(&fault, 0, sizeof fault);
    fault.seed = 1;
    fault.rank = -1;
    if (text[0] == '\0') {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_calloc(&copy, 1, strlen(text) + 1, "RONDO_NET_FAULT"));
    memcpy(copy, text, strlen(text));
    rest = copy;
    while (status == RONDO_SUCCESS && (word = strsep(&rest, ",")) != NULL) {
        snprintf(shown, sizeof shown, "%s", word);
        if (parse_word(word) != 0) {
            status = rondo_fail(RONDO_INVALID_ARGUMENT,
                                "RONDO_NET_FAULT has \"%s\"; it takes seed=N, rank=R, delay=TIME, late=K, "
                                "again=K, connect=K, die=N, "
                                "fail=FUNCTION:N[:system|remote|internal]",
                                shown);
        }
    }
    rondo_free(copy);
    if (status == RONDO_SUCCESS) {
        *armed = 1;
        RONDO_WARN("RONDO_NET_FAULT=%s: fault injection into net devices is on", text);
    }
    return status;
}

/* ---- comms ---- */

struct comm;

struct request {
    struct comm *comm;
    void *inner;
    int used, n, done, begun; /* done: by the device inside; begun: completion was seen and a delay drawn */
    int64_t due_ns, tests;
    size_t bytes[RONDO_NET_MAX_RECVS];
};

struct comm {
    const struct rondo_net_device *net;
    void *inner;
    struct rondo_net_peer peer;
    int is_send, mine; /* mine: rank= selects it */
    uint64_t random;
    int64_t refused, connecting, nmessages;
    rondo_status status;
    char text[RONDO_ERROR_TEXT];
    struct request request[POOL];
};

static int rank_meant(void) { return fault.rank < 0 || fault.rank == rondo_log_rank(); }

/* Count a call, and fail if this is the one. */
static rondo_status counted(enum function function, int meant)
{
    int64_t call;
    if (!fault.fails || fault.function != (int)function || !meant) {
        return RONDO_SUCCESS;
    }
    call = __atomic_add_fetch(&fault.calls[function], 1, __ATOMIC_RELAXED);
    return call == fault.fail_at
               ? rondo_fail(fault.fail_with, "call %lld of %s fails by RONDO_NET_FAULT on %s",
                            (long long)call, function_names[function], rondo_log_host())
               : RONDO_SUCCESS;
}

static rondo_status comm_end(struct comm *comm, rondo_status status)
{
    snprintf(comm->text, sizeof comm->text, "%s", rondo_error_text());
    comm->status = status;
    return status;
}

static rondo_status comm_ended(const struct comm *comm)
{
    return rondo_fail_quiet(comm->status, "%s", comm->text);
}

/* Called before each function of a comm. */
static rondo_status before(struct comm *comm, enum function function)
{
    rondo_status status = comm->status != RONDO_SUCCESS ? comm_ended(comm) : counted(function, comm->mine);
    return status == RONDO_SUCCESS || comm->status != RONDO_SUCCESS ? status : comm_end(comm, status);
}

/* Draw a random number with splitmix64. */
static uint64_t draw(struct comm *comm, uint64_t most)
{
    uint64_t z = comm->random += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return most == 0 ? 0 : (z ^ z >> 31) % (most + 1);
}

static rondo_status prepare_over(const struct rondo_net_device *net, int device,
                                 const struct rondo_net_peer *peer, int is_send, void **comm, void *handle)
{
    struct comm *new;
    rondo_status status;
    *comm = NULL;
    RONDO_TRY(counted(FAULT_prepare, rank_meant()));
    RONDO_TRY(RONDO_NEW(new, "a comm with faults"));
    new->net = net;
    new->peer = *peer;
    new->is_send = is_send;
    new->mine = rank_meant();
    new->random = (uint64_t)fault.seed +
                  1000003ull * (uint64_t)__atomic_fetch_add(&fault.ncomms, 1, __ATOMIC_RELAXED);
    status = net->prepare(device, peer, is_send, &new->inner, handle);
    if (status != RONDO_SUCCESS) {
        rondo_free(new);
        return status;
    }
    *comm = new;
    return RONDO_SUCCESS;
}

static rondo_status fault_connect(void *arg, const void *handle)
{
    struct comm *comm = arg;
    RONDO_TRY(before(comm, FAULT_connect));
    if (comm->mine && comm->connecting < fault.connect) {
        comm->connecting++;
        return RONDO_IN_PROGRESS;
    }
    return comm->net->connect(comm->inner, handle);
}

static void fault_close(void *arg)
{
    struct comm *comm = arg;
    if (comm != NULL) {
        comm->net->close(comm->inner);
        rondo_free(comm);
    }
}

static rondo_status fault_reg(void *arg, void *data, size_t bytes, int kind, int fd, void **region)
{
    struct comm *comm = arg;
    RONDO_TRY(counted(FAULT_reg, comm->mine));
    return comm->net->reg(comm->inner, data, bytes, kind, fd, region);
}

static rondo_status fault_unreg(void *arg, void *region)
{
    struct comm *comm = arg;
    rondo_status status = comm->net->unreg(comm->inner, region); /* even if unreg then fails */
    RONDO_TRY(counted(FAULT_unreg, comm->mine));
    return status;
}

/* ---- requests ---- */

/* Is there room for one more message? *new NULL: no. */
static rondo_status message_begin(struct comm *comm, enum function function, struct request **new)
{
    *new = NULL;
    RONDO_TRY(before(comm, function));
    if (comm->mine && comm->refused < fault.again) {
        comm->refused++;
        return RONDO_SUCCESS;
    }
    if (comm->mine && fault.die > 0 && comm->nmessages + 1 >= fault.die) {
        rondo_fail(
            RONDO_REMOTE_ERROR,
            "the connection of channel %d %s rank %d on %s dies at its message %lld by RONDO_NET_FAULT "
            "on %s",
            comm->peer.channel, comm->is_send ? "to" : "from", comm->peer.rank, comm->peer.host,
            (long long)fault.die, rondo_log_host());
        return comm_end(comm, RONDO_REMOTE_ERROR);
    }
    for (int i = 0; i < POOL; i++) {
        if (!comm->request[i].used) {
            *new = &comm->request[i];
            break;
        }
    }
    return RONDO_SUCCESS;
}

/* Keep the request if the device inside accepted it. */
static void request_begun(struct comm *comm, struct request *new, int n, void *inner, void **request)
{
    if (inner != NULL) {
        *new = (struct request){ .comm = comm, .inner = inner, .used = 1, .n = n };
        *request = new;
    }
}

static void message_begun(struct comm *comm, struct request *new, int n, void *inner, void **request)
{
    request_begun(comm, new, n, inner, request);
    comm->nmessages += inner != NULL;
    comm->refused = inner != NULL ? 0 : comm->refused;
}

/* Start a message of n parts (0: a send) with a call of the device inside. */
#define MESSAGE(comm, function, n, call)                \
    do {                                                \
        struct request *new;                            \
        void *inner = NULL;                             \
        *request = NULL;                                \
        RONDO_TRY(message_begin(comm, function, &new)); \
        if (new == NULL) {                              \
            return RONDO_SUCCESS;                       \
        }                                               \
        RONDO_TRY((comm)->net->call);                   \
        message_begun(comm, new, n, inner, request);    \
        return RONDO_SUCCESS;                           \
    } while (0)

static rondo_status fault_isend(void *arg, const void *data, size_t bytes, int tag, void *region,
                                void **request)
{
    struct comm *comm = arg;
    MESSAGE(comm, FAULT_isend, 0, isend(comm->inner, data, bytes, tag, region, &inner));
}

static rondo_status fault_irecv(void *arg, int n, void *const *data, const size_t *bytes, const int *tags,
                                void *const *regions, void **request)
{
    struct comm *comm = arg;
    MESSAGE(comm, FAULT_irecv, n, irecv(comm->inner, n, data, bytes, tags, regions, &inner));
}

static rondo_status fault_isend_apart(void *arg, const void *head, size_t head_bytes, const void *data,
                                      size_t bytes, int tag, void **request)
{
    struct comm *comm = arg;
    MESSAGE(comm, FAULT_isend, 0, isend_apart(comm->inner, head, head_bytes, data, bytes, tag, &inner));
}

static rondo_status fault_irecv_apart(void *arg, void *head, size_t head_bytes, void *data, size_t bytes,
                                      int tag, void **request)
{
    struct comm *comm = arg;
    MESSAGE(comm, FAULT_irecv, 1, irecv_apart(comm->inner, head, head_bytes, data, bytes, tag, &inner));
}

static rondo_status fault_isend_from(void *arg, const struct rondo_net_span *head,
                                     const struct rondo_net_span *data, int plain, int tag, void **request)
{
    struct comm *comm = arg;
    MESSAGE(comm, FAULT_isend, 0, isend_from(comm->inner, head, data, plain, tag, &inner));
}

static rondo_status fault_irecv_into(void *arg, const struct rondo_net_span *whole,
                                     const struct rondo_net_span *place, int tag, void **request)
{
    struct comm *comm = arg;
    MESSAGE(comm, FAULT_irecv, 2, irecv_into(comm->inner, whole, place, tag, &inner));
}

static rondo_status fault_iwrite(void *arg, const struct rondo_net_span *data,
                                 const struct rondo_net_target *target, uint32_t word, const void *note,
                                 void **request)
{
    struct comm *comm = arg;
    MESSAGE(comm, FAULT_isend, 0, iwrite(comm->inner, data, target, word, note, &inner));
}

static rondo_status fault_irecv_word(void *arg, struct rondo_net_came *came, int more, void **request)
{
    struct comm *comm = arg;
    MESSAGE(comm, FAULT_irecv, 0, irecv_word(comm->inner, came, more, &inner));
}

static void fault_stop(void *arg)
{
    struct comm *comm = arg;
    if (comm->net->stop != NULL) {
        comm->net->stop(comm->inner);
    }
}

static rondo_status fault_iflush(void *arg, int n, void *const *data, const size_t *bytes,
                                 void *const *regions, void **request)
{
    struct comm *comm = arg;
    struct request *new = NULL;
    void *inner = NULL;
    *request = NULL;
    RONDO_TRY(before(comm, FAULT_iflush));
    for (int i = 0; i < POOL && new == NULL; i++) {
        new = comm->request[i].used ? NULL : &comm->request[i];
    }
    if (new == NULL) {
        return rondo_fail(RONDO_INVALID_USAGE,
                          "more than %d requests are under way on a connection with faults", POOL);
    }
    RONDO_TRY(comm->net->iflush(comm->inner, n, data, bytes, regions, &inner));
    request_begun(comm, new, 0, inner, request);
    return RONDO_SUCCESS;
}

/* Is it time to report the completion? */
static int told(struct request *request)
{
    struct comm *comm = request->comm;
    if (!comm->mine) {
        return 1;
    }
    if (!request->begun) {
        request->begun = 1;
        request->tests = (int64_t)draw(comm, (uint64_t)fault.late);
        request->due_ns = fault.delay_ns > 0 ? rondo_now_ns() + (int64_t)draw(comm, (uint64_t)fault.delay_ns)
                                             : 0;
    }
    return request->tests-- <= 0 && (request->due_ns == 0 || rondo_now_ns() >= request->due_ns);
}

static rondo_status fault_test(void *arg, int *done, size_t *bytes)
{
    struct request *request = arg;
    struct comm *comm = request->comm;
    *done = 0;
    RONDO_TRY(before(comm, FAULT_test));
    if (!request->done) {
        RONDO_TRY(comm->net->test(request->inner, &request->done, request->bytes));
    }
    if (!request->done || !told(request)) {
        return RONDO_SUCCESS;
    }
    *done = 1;
    request->used = 0;
    if (bytes != NULL && request->n > 0) {
        memcpy(bytes, request->bytes, (size_t)request->n * sizeof *bytes);
    }
    return RONDO_SUCCESS;
}

/* ---- a wrapper a device ---- */

#define WRAP(i)                                                                                              \
    static rondo_status init_##i(int *ndevices, char *why, size_t bytes)                                     \
    {                                                                                                        \
        RONDO_TRY(counted(FAULT_init, rank_meant()));                                                        \
        return rondo_netdevs[i]->init(ndevices, why, bytes);                                                 \
    }                                                                                                        \
    static rondo_status properties_##i(int device, struct rondo_net_properties *properties)                  \
    {                                                                                                        \
        RONDO_TRY(counted(FAULT_properties, rank_meant()));                                                  \
        return rondo_netdevs[i]->properties(device, properties);                                             \
    }                                                                                                        \
    static rondo_status prepare_##i(int device, const struct rondo_net_peer *peer, int is_send, void **comm, \
                                    void *handle)                                                            \
    {                                                                                                        \
        return prepare_over(rondo_netdevs[i], device, peer, is_send, comm, handle);                          \
    }                                                                                                        \
    static uint32_t key_##i(void *region) { return rondo_netdevs[i]->key(region); }                          \
    static void finalize_##i(void) { rondo_netdevs[i]->finalize(); }
WRAP(0)
WRAP(1)
WRAP(2)

#define ROW(i)                                                                                      \
    {                                                                                               \
        .name = "fault", .init = init_##i, .properties = properties_##i, .prepare = prepare_##i,    \
        .connect = fault_connect, .reg = fault_reg, .unreg = fault_unreg, .isend = fault_isend,     \
        .irecv = fault_irecv, .isend_apart = fault_isend_apart, .irecv_apart = fault_irecv_apart,   \
        .isend_from = fault_isend_from, .irecv_into = fault_irecv_into, .iflush = fault_iflush,     \
        .iwrite = fault_iwrite, .irecv_word = fault_irecv_word, .key = key_##i, .test = fault_test, \
        .stop = fault_stop, .close = fault_close, .finalize = finalize_##i                          \
    }
static const struct rondo_net_device wrappers[RONDO_FAULT_NETDEVS] = { ROW(0), ROW(1), ROW(2) };

const struct rondo_net_device *rondo_netdev_fault_over(int i) { return &wrappers[i]; }

#else

#include "base/param.h"

rondo_status rondo_netdev_fault_init(int *armed)
{
    *armed = 0;
    return rondo_params()->net_fault[0] == '\0'
               ? RONDO_SUCCESS
               : rondo_fail(
                     RONDO_INVALID_ARGUMENT,
                     "RONDO_NET_FAULT is set, but this build of Rondo has no fault injection: unset it, "
                     "or configure with --enable-devel");
}

#endif
