/*
 * The bootstrap over MPI. All rounds run on a duplicate of the user's communicator, made by MPI_Comm_idup,
 * and are polled: MPI_Iallgather, MPI_Isend and MPI_Irecv. Their buffers belong to the bootstrap, because a
 * request whose partner never comes cannot be cancelled and must outlive its caller: it goes to the
 * graveyard with its buffers.
 *
 * Finding the missing ranks. Once a deadline has passed on any rank, ranks other than 0 send "here" to rank
 * 0. Rank 0 sends "query" to all, collects answers for half a second, and sends the ranks that answered the
 * list of those that did not. A rank whose own deadline is still far away sees the query in its test. These
 * messages travel on the duplicate; while it does not exist, on the user's communicator, with a tag at the
 * end of the range. None is sent before a deadline has passed.
 */
#include "mpi/bootstrap_mpi.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/wait.h"
#include "net/peer.h"

enum {
    EXCHANGE_TAG = 1,
    MSG_RANKS = 64, /* missing ranks that a list names: few enough for any MPI to send it eagerly */
    MSG_TAG_BELOW = 0x52
};
static const int64_t LISTEN_AFTER_NS = 250000000; /* after this long a round looks for messages */
static const int64_t COLLECT_NS = 500000000, DELIVER_NS = 750000000, LIST_NS = 1000000000;

struct message {
    int32_t kind;    /* enum msg_kind */
    int32_t attempt; /* counts the creations on this communicator */
    int32_t n, ranks[MSG_RANKS];
};
enum msg_kind { MSG_HERE, MSG_QUERY, MSG_LIST };
enum { MSG_HEAD = offsetof(struct message, ranks) };

struct mpi_bootstrap {
    struct rondo_bootstrap base;
    struct mpi_bootstrap *next_grave;
    MPI_Comm user, dup;
    int have_dup;
    int one_thread; /* MPI may be called from `thread` only */
    pthread_t thread;
    int broken; /* MPI reported an error: requests under way are not touched again */

    enum { ROUND_NONE, ROUND_OPEN, ROUND_HELLO, ROUND_GATHER, ROUND_EXCHANGE } round;
    int64_t started_ns;
    MPI_Request *requests;
    int nrequests;
    uint8_t *sent, *got; /* the round's own buffers */
    void *result;        /* the caller's: got is copied here */
    size_t result_bytes;

    /* after a deadline */
    int tag, attempt;
    int told;         /* another rank's deadline has passed */
    int64_t asked_ns; /* when this rank began to ask; 0: not yet */
    uint8_t *here;    /* on rank 0: which ranks answered */
    int nhere;
    struct message incoming, outgoing, list;
    MPI_Request incoming_request;
    MPI_Request *msg_requests; /* on rank 0, queries, then lists; on others, here */
    int nqueries, nlists;
    enum { MSG_OPEN, MSG_LISTED } msg_state;
};

static struct {
    pthread_mutex_t lock;
    int keyval; /* of the attribute that counts the creations on a communicator */
    struct mpi_bootstrap *graves;
    int ngraves;
    int idle_one_thread; /* the idle hook may call MPI from MPI's main thread only */
} process = { .lock = PTHREAD_MUTEX_INITIALIZER, .keyval = MPI_KEYVAL_INVALID };

static struct mpi_bootstrap *self_of(struct rondo_bootstrap *b) { return (struct mpi_bootstrap *)b; }

static rondo_status mpi_fail(struct mpi_bootstrap *self, int rc, const char *call)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (PMPI_Error_string(rc, text, &length) != MPI_SUCCESS) {
        snprintf(text, sizeof text, "error %d", rc);
    }
    for (char *c = text; *c; c++) {
        *c = *c == '\n' ? ' ' : *c;
    }
    self->broken = 1;
    return rondo_fail(
        RONDO_SYSTEM_ERROR, "rank %d on %s: %s failed while creating a communicator of %d ranks: %.300s%s",
        self->base.rank, rondo_log_host(), call, self->base.nranks, text,
        self->round == ROUND_OPEN ? "; free some if the program holds many communicators (MPICH has 2,046)"
                                  : "");
}

#define MPI_TRY(self, call, ...)                  \
    do {                                          \
        int rc_ = P##call(__VA_ARGS__);           \
        if (RONDO_UNLIKELY(rc_ != MPI_SUCCESS)) { \
            return mpi_fail(self, rc_, #call);    \
        }                                         \
    } while (0)

/*
 * While the duplicate is being made, MPI reports errors to the handler of the user's communicator, or of
 * MPI_COMM_WORLD or MPI_COMM_SELF (MPICH, out of communicators), which by default aborts the program. Rondo
 * wants them back as codes, so it replaces these handlers during each call.
 */
struct guard {
    MPI_Comm comm[3];
    MPI_Errhandler saved[3];
    int n;
};

static void guard_enter(struct guard *guard, const struct mpi_bootstrap *self)
{
    *guard = (struct guard){ .comm = { MPI_COMM_WORLD, MPI_COMM_SELF, self->user },
                             .n = self->have_dup ? 0 : 3 };
    for (int i = 0; i < guard->n; i++) {
        PMPI_Comm_get_errhandler(guard->comm[i], &guard->saved[i]);
        PMPI_Comm_set_errhandler(guard->comm[i], MPI_ERRORS_RETURN);
    }
}

static void guard_leave(struct guard *guard)
{
    for (int i = guard->n - 1; i >= 0;
         i--) { /* in reverse: the user's communicator may be one of the others */
        PMPI_Comm_set_errhandler(guard->comm[i], guard->saved[i]);
        PMPI_Errhandler_free(&guard->saved[i]);
    }
}

static int mpi_finalized(void)
{
    int finalized = 0;
    PMPI_Finalized(&finalized);
    return finalized;
}

static int mpi_may_step(struct rondo_bootstrap *b)
{
    return !self_of(b)->one_thread || pthread_equal(self_of(b)->thread, pthread_self());
}

static rondo_status usable(struct mpi_bootstrap *self)
{
    const char *why = NULL;
    if (!mpi_may_step(&self->base)) {
        why = "a thread continues a creation that another thread began, but MPI was initialised for one "
              "thread; "
              "ask for MPI_THREAD_MULTIPLE";
    } else if (mpi_finalized()) {
        why = "MPI was finalised while a communicator was being created; finalise it after creation is "
              "complete";
    }
    return why ? rondo_fail(RONDO_INVALID_USAGE, "rank %d on %s: %s", self->base.rank, rondo_log_host(), why)
               : RONDO_SUCCESS;
}

/* Run a function that calls MPI, if MPI may be called, with MPI's errors returned as codes. */
static rondo_status guarded(struct mpi_bootstrap *self, rondo_status (*call)(struct mpi_bootstrap *self))
{
    struct guard guard;
    RONDO_TRY(usable(self));
    guard_enter(&guard, self);
    rondo_status status = call(self);
    guard_leave(&guard);
    return status;
}

/* Are all complete? (MPI_Testall causes warnings in MPICH's header.) */
static rondo_status requests_test(struct mpi_bootstrap *self, MPI_Request *requests, int n, int *done)
{
    *done = 1;
    for (int i = 0; i < n && *done; i++) {
        if (requests[i] != MPI_REQUEST_NULL) {
            MPI_TRY(self, MPI_Test, &requests[i], done, MPI_STATUS_IGNORE);
        }
    }
    return RONDO_SUCCESS;
}

/* ---- rounds ---- */

static void round_free(struct mpi_bootstrap *self)
{
    rondo_free(self->requests);
    rondo_free(self->sent);
    rondo_free(self->got);
    self->requests = NULL;
    self->nrequests = 0;
    self->sent = self->got = NULL;
    self->round = ROUND_NONE;
}

/* Allocate a round's buffers and null requests: it sends `data_bytes` and receives n records of `bytes`. */
static rondo_status round_begin(struct mpi_bootstrap *self, int round, const void *data, size_t data_bytes,
                                int n, size_t bytes, int nrequests)
{
    RONDO_TRY(usable(self));
    if (bytes > INT_MAX) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "a record of %zu bytes; MPI carries at most %d", bytes,
                          INT_MAX);
    }
    self->round = round;
    RONDO_TRY(RONDO_NEW_ARRAY(self->requests, nrequests, "requests of MPI"));
    for (int i = 0; i < nrequests; i++) {
        self->requests[i] = MPI_REQUEST_NULL;
    }
    self->nrequests = nrequests;
    RONDO_TRY(rondo_calloc(&self->sent, 1, data_bytes, "a record for the other ranks"));
    RONDO_TRY(rondo_calloc(&self->got, (size_t)n, bytes, "the records of the other ranks"));
    if (data_bytes) {
        memcpy(self->sent, data, data_bytes);
    }
    self->result_bytes = (size_t)n * bytes;
    self->started_ns = rondo_now_ns();
    return RONDO_SUCCESS;
}

static rondo_status gather_start(struct mpi_bootstrap *self, int round, const void *mine, void *all,
                                 size_t bytes)
{
    RONDO_TRY(round_begin(self, round, mine, bytes, self->base.nranks, bytes, 1));
    self->result = all;
    MPI_TRY(self, MPI_Iallgather, self->sent, (int)bytes, MPI_BYTE, self->got, (int)bytes, MPI_BYTE,
            self->dup, self->requests);
    return RONDO_SUCCESS;
}

static rondo_status mpi_allgather_start(struct rondo_bootstrap *b, const void *mine, void *all, size_t bytes)
{
    if (b->nranks == 1) {
        memcpy(all, mine, bytes);
        return RONDO_SUCCESS;
    }
    return gather_start(self_of(b), ROUND_GATHER, mine, all, bytes);
}

static rondo_status mpi_exchange_start(struct rondo_bootstrap *b, int n, const int *peer, const void *send,
                                       void *recv, size_t bytes)
{
    struct mpi_bootstrap *self = self_of(b);
    if (n == 0) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(round_begin(self, ROUND_EXCHANGE, send, (size_t)n * bytes, n, bytes, 2 * n));
    self->result = recv;
    for (int i = 0; i < n; i++) {
        uint8_t *out = self->sent + (size_t)i * bytes, *in = self->got + (size_t)i * bytes;
        MPI_TRY(self, MPI_Irecv, in, (int)bytes, MPI_BYTE, peer[i], EXCHANGE_TAG, self->dup,
                &self->requests[i]);
        MPI_TRY(self, MPI_Isend, out, (int)bytes, MPI_BYTE, peer[i], EXCHANGE_TAG, self->dup,
                &self->requests[n + i]);
    }
    return RONDO_SUCCESS;
}

static rondo_status hello_start(struct mpi_bootstrap *self)
{
    self->have_dup = 1;
    round_free(self);
    MPI_TRY(self, MPI_Comm_set_errhandler, self->dup, MPI_ERRORS_RETURN);
    struct rondo_hello hello = { .magic = RONDO_PEER_MAGIC,
                                 .version = RONDO_VERSION_CODE,
                                 .record_bytes = sizeof(struct rondo_peer) };
    snprintf(hello.host, sizeof hello.host, "%s", rondo_log_host());
    RONDO_TRY(gather_start(self, ROUND_HELLO, &hello, NULL, sizeof hello));
    return RONDO_IN_PROGRESS;
}

static rondo_status round_end(struct mpi_bootstrap *self)
{
    rondo_status status = RONDO_SUCCESS;
    if (self->round == ROUND_OPEN) {
        return hello_start(self);
    }
    if (self->round == ROUND_HELLO) {
        status = rondo_hello_check((const struct rondo_hello *)self->got, self->base.nranks);
    } else if (self->result_bytes) {
        memcpy(self->result, self->got, self->result_bytes);
    }
    round_free(self);
    return status;
}

/* ---- messages about missing ranks ---- */

static void msg_handle(struct mpi_bootstrap *self, int from)
{
    const struct message *message = &self->incoming;
    /* A lower attempt is a message left by an earlier creation that failed; a higher one means that the
     * others have given this creation up. */
    if (message->attempt < self->attempt) {
        return;
    }
    self->told = 1;
    if (self->here && from > 0 && from < self->base.nranks && !self->here[from]) {
        self->here[from] = 1;
        self->nhere++;
    } else if (!self->here && message->kind == MSG_LIST && message->attempt == self->attempt) {
        self->list = *message;
        self->msg_state = MSG_LISTED;
    }
}

/* Handle the messages that have arrived; never blocks. */
static rondo_status msg_take(struct mpi_bootstrap *self)
{
    MPI_Comm comm = self->have_dup ? self->dup : self->user;
    for (;;) {
        MPI_Status status;
        int flag = 0, bytes = 0;
        if (self->incoming_request != MPI_REQUEST_NULL) {
            MPI_TRY(self, MPI_Test, &self->incoming_request, &flag, &status);
            if (!flag) {
                return RONDO_SUCCESS;
            }
            msg_handle(self, status.MPI_SOURCE);
        }
        MPI_TRY(self, MPI_Iprobe, self->here ? MPI_ANY_SOURCE : 0, self->tag, comm, &flag, &status);
        if (!flag) {
            return RONDO_SUCCESS;
        }
        MPI_TRY(self, MPI_Get_count, &status, MPI_BYTE, &bytes);
        if (bytes < MSG_HEAD || bytes > (int)sizeof self->incoming) {
            return RONDO_SUCCESS; /* a message of the program's own */
        }
        MPI_TRY(self, MPI_Irecv, &self->incoming, bytes, MPI_BYTE, status.MPI_SOURCE, self->tag, comm,
                &self->incoming_request);
    }
}

static rondo_status msg_send(struct mpi_bootstrap *self, const struct message *message, int to,
                             MPI_Request *request)
{
    int bytes = MSG_HEAD + message->n * (int)sizeof message->ranks[0];
    MPI_TRY(self, MPI_Isend, message, bytes, MPI_BYTE, to, self->tag, self->have_dup ? self->dup : self->user,
            request);
    return RONDO_SUCCESS;
}

static rondo_status msg_begin(struct mpi_bootstrap *self)
{
    int n = self->base.nranks, is_root = self->base.rank == 0;
    RONDO_TRY(RONDO_NEW_ARRAY(self->msg_requests, is_root ? 2 * n : 1, "requests of MPI"));
    self->asked_ns = rondo_now_ns();
    self->outgoing = (struct message){ .kind = is_root ? MSG_QUERY : MSG_HERE, .attempt = self->attempt };
    for (int to = is_root; to < (is_root ? n : 1); to++) {
        RONDO_TRY(msg_send(self, &self->outgoing, to, &self->msg_requests[self->nqueries]));
        self->nqueries++;
    }
    return RONDO_SUCCESS;
}

/* On rank 0: send the list to the ranks that answered. */
static rondo_status list_send(struct mpi_bootstrap *self)
{
    self->msg_state = MSG_LISTED;
    self->list = (struct message){ .kind = MSG_LIST, .attempt = self->attempt };
    for (int i = 1; i < self->base.nranks && self->list.n < MSG_RANKS; i++) {
        if (!self->here[i]) {
            self->list.ranks[self->list.n++] = i;
        }
    }
    for (int i = 1; i < self->base.nranks; i++) {
        if (self->here[i]) {
            RONDO_TRY(msg_send(self, &self->list, i, &self->msg_requests[self->nqueries + self->nlists]));
            self->nlists++;
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status missing_root(struct mpi_bootstrap *self)
{
    int64_t waited = rondo_now_ns() - self->asked_ns;
    if (self->msg_state == MSG_OPEN) {
        if (self->nhere < self->base.nranks && waited < COLLECT_NS) {
            return RONDO_IN_PROGRESS;
        }
        RONDO_TRY(list_send(self));
    }
    int sent = 0;
    RONDO_TRY(requests_test(self, self->msg_requests + self->nqueries, self->nlists, &sent));
    return sent || waited >= DELIVER_NS ? RONDO_SUCCESS : RONDO_IN_PROGRESS;
}

static rondo_status missing_other(struct mpi_bootstrap *self)
{
    if (self->msg_state == MSG_LISTED) {
        return RONDO_SUCCESS;
    }
    if (rondo_now_ns() - self->asked_ns < LIST_NS) {
        return RONDO_IN_PROGRESS;
    }
    /* No answer: rank 0 is missing. If it did ask before, it has ended since, and nothing is known. */
    self->msg_state = MSG_LISTED;
    self->list = (struct message){ .n = !self->told, .ranks = { 0 } };
    return RONDO_SUCCESS;
}

static rondo_status missing_progress(struct mpi_bootstrap *self)
{
    if (!self->asked_ns) {
        RONDO_TRY(msg_begin(self));
    }
    RONDO_TRY(msg_take(self));
    return self->here ? missing_root(self) : missing_other(self);
}

static rondo_status mpi_missing(struct rondo_bootstrap *b, int *ranks, int max, int *n)
{
    struct mpi_bootstrap *self = self_of(b);
    *n = 0;
    if (self->round == ROUND_NONE || self->broken) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(guarded(self, missing_progress));
    /* The list came from another process: its length is bounded here. */
    for (int i = 0; i < self->list.n && i < MSG_RANKS && *n < max; i++) {
        if (self->list.ranks[i] >= 0 && self->list.ranks[i] < b->nranks) {
            ranks[(*n)++] = self->list.ranks[i];
        }
    }
    return RONDO_SUCCESS;
}

/* ---- open, test, close ---- */

/* Number this creation among those on the communicator: all its ranks count alike, and messages carry it. */
static void attempt_count(struct mpi_bootstrap *self)
{
    void *value = NULL;
    int found = 0;
    pthread_mutex_lock(&process.lock);
    if (process.keyval == MPI_KEYVAL_INVALID) {
        PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &process.keyval, NULL);
    }
    pthread_mutex_unlock(&process.lock);
    PMPI_Comm_get_attr(self->user, process.keyval, &value, &found);
    self->attempt = found ? (int)(intptr_t)value + 1 : 1;
    PMPI_Comm_set_attr(self->user, process.keyval, (void *)(intptr_t)self->attempt);
}

static rondo_status open_call(struct mpi_bootstrap *self)
{
    RONDO_TRY(round_begin(self, ROUND_OPEN, NULL, 0, 0, 0, 1));
    attempt_count(self);
    MPI_TRY(self, MPI_Comm_idup, self->user, &self->dup, self->requests);
    return RONDO_SUCCESS;
}

static rondo_status mpi_open_start(struct rondo_bootstrap *b)
{
    return b->nranks == 1 ? RONDO_SUCCESS : guarded(self_of(b), open_call);
}

static rondo_status test_call(struct mpi_bootstrap *self)
{
    int done = 0;
    RONDO_TRY(requests_test(self, self->requests, self->nrequests, &done));
    if (done) {
        return round_end(self);
    }
    if (rondo_now_ns() - self->started_ns < LISTEN_AFTER_NS) {
        return RONDO_IN_PROGRESS;
    }
    RONDO_TRY(msg_take(self));
    if (!self->told) {
        return RONDO_IN_PROGRESS;
    }
    return rondo_fail_quiet(
        RONDO_TIMEOUT,
        "another of the %d ranks stopped waiting: its RONDO_INIT_TIMEOUT passed before all ranks had arrived",
        self->base.nranks);
}

static rondo_status mpi_test(struct rondo_bootstrap *b)
{
    struct mpi_bootstrap *self = self_of(b);
    return self->round == ROUND_NONE ? RONDO_SUCCESS : guarded(self, test_call);
}

/* @return RONDO_SUCCESS: no request is under way any more. */
static rondo_status rest_call(struct mpi_bootstrap *self)
{
    int round, in, out;
    RONDO_TRY(requests_test(self, self->requests, self->nrequests, &round));
    RONDO_TRY(requests_test(self, &self->incoming_request, 1, &in));
    RONDO_TRY(requests_test(self, self->msg_requests, self->nqueries + self->nlists, &out));
    return round && in && out ? RONDO_SUCCESS : RONDO_IN_PROGRESS;
}

static void bury(struct mpi_bootstrap *self)
{
    pthread_mutex_lock(&process.lock);
    self->next_grave = process.graves;
    process.graves = self;
    __atomic_add_fetch(&process.ngraves, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&process.lock);
}

int rondo_bootstrap_mpi_graves(void) { return __atomic_load_n(&process.ngraves, __ATOMIC_RELAXED); }

static void mpi_close(struct rondo_bootstrap *b, int ok)
{
    (void)ok; /* the requests under way tell */
    struct mpi_bootstrap *self = self_of(b);
    int may_call = mpi_may_step(b) && !mpi_finalized();
    int pending = self->round != ROUND_NONE || self->incoming_request != MPI_REQUEST_NULL ||
                  self->msg_requests;
    if (pending && (self->broken || !may_call || guarded(self, rest_call) != RONDO_SUCCESS)) {
        bury(self);
        return;
    }
    if (self->have_dup && may_call) {
        PMPI_Comm_free(&self->dup);
    }
    round_free(self);
    rondo_free(self->here);
    rondo_free(self->msg_requests);
    rondo_free(self);
}

/* ---- the program's MPI ---- */

static rondo_status mpi_idle(void *arg, int *moved)
{
    (void)arg;
    (void)moved; /* MPI does not say */
    int may_call = !mpi_finalized(), flag;
    if (may_call && __atomic_load_n(&process.idle_one_thread, __ATOMIC_RELAXED)) {
        PMPI_Is_thread_main(&may_call);
    }
    if (may_call) { /* on MPI_COMM_SELF, MPICH would look no further than this process */
        PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    return RONDO_SUCCESS;
}

/* ---- creation ---- */

static rondo_status thread_check(int *level)
{
    int is_main = 0;
    PMPI_Query_thread(level);
    PMPI_Is_thread_main(&is_main);
    if (*level >= MPI_THREAD_SERIALIZED || is_main) {
        return RONDO_SUCCESS;
    }
    return rondo_fail(RONDO_INVALID_USAGE,
                      "a thread on %s that may not call MPI creates a communicator (MPI was initialised with "
                      "%s); create it from MPI's main thread, or initialise with MPI_Init_thread(..., "
                      "MPI_THREAD_MULTIPLE, ...)",
                      rondo_log_host(),
                      *level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE");
}

static rondo_status comm_check(MPI_Comm comm)
{
    if (comm == MPI_COMM_NULL) {
        return rondo_fail(
            RONDO_INVALID_ARGUMENT,
            "the MPI communicator is MPI_COMM_NULL on %s; ranks outside it must not call rondo_comm_create",
            rondo_log_host());
    }
    int inter = 0;
    PMPI_Comm_test_inter(comm, &inter);
    if (inter) {
        return rondo_fail(
            RONDO_INVALID_ARGUMENT,
            "the MPI communicator is an intercommunicator; merge it first (MPI_Intercomm_merge)");
    }
    return RONDO_SUCCESS;
}

/* @return the world rank of the communicator's rank 0; -1: it is not in the world (spawned). */
static int root_world_rank(MPI_Comm comm)
{
    MPI_Group group, world;
    int zero = 0, root = MPI_UNDEFINED;
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_translate_ranks(group, 1, &zero, world, &root);
    PMPI_Group_free(&world);
    PMPI_Group_free(&group);
    return root == MPI_UNDEFINED ? -1 : root;
}

static const struct rondo_bootstrap_ops mpi_ops = {
    .name = "mpi",
    .open_start = mpi_open_start,
    .allgather_start = mpi_allgather_start,
    .exchange_start = mpi_exchange_start,
    .test = mpi_test,
    .missing = mpi_missing,
    .may_step = mpi_may_step,
    .close = mpi_close,
};

rondo_status rondo_bootstrap_mpi(MPI_Comm comm, struct rondo_bootstrap **b)
{
    int level, found = 0, *tag_ub = NULL;
    RONDO_TRY(comm_check(comm));
    RONDO_TRY(thread_check(&level));
    struct mpi_bootstrap *self;
    RONDO_TRY(RONDO_NEW(self, "a bootstrap"));
    self->base.ops = &mpi_ops;
    PMPI_Comm_rank(comm, &self->base.rank);
    PMPI_Comm_size(comm, &self->base.nranks);
    self->base.root_world_rank = root_world_rank(comm);
    self->user = comm;
    self->dup = MPI_COMM_NULL;
    self->incoming_request = MPI_REQUEST_NULL;
    self->one_thread = level < MPI_THREAD_SERIALIZED;
    self->thread = pthread_self();
    PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_ub, &found);
    self->tag = (found ? *tag_ub : 32767) - MSG_TAG_BELOW; /* 32767: what every MPI allows */
    if (self->base.rank == 0 && self->base.nranks > 1) {
        rondo_status status = RONDO_NEW_ARRAY(self->here, self->base.nranks, "the list of ranks");
        if (status != RONDO_SUCCESS) {
            rondo_free(self);
            return status;
        }
        self->here[0] = 1;
        self->nhere = 1;
    }
    if (self->base.nranks > 1) {
        __atomic_store_n(&process.idle_one_thread, self->one_thread, __ATOMIC_RELAXED);
        self->base.idle = mpi_idle;
        self->base.idle_asks = level == MPI_THREAD_SERIALIZED;
    }
    *b = &self->base;
    return RONDO_SUCCESS;
}
