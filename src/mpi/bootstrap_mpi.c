/*
 * The bootstrap over MPI. Its rounds are non-blocking collectives, which are polled. Their buffers belong to
 * the bootstrap, because a request whose partner never comes cannot be cancelled and must outlive its caller:
 * it goes to the graveyard with its buffers.
 *
 * The communicator. A creation makes none of MPI's: MPI_Comm_dup and MPI_Comm_idup run the program's
 * attribute callbacks, and whatever else makes one blocks until all ranks come, for ever if one has died. Its
 * rounds are MPI_Iallgather and MPI_Ialltoallv on the program's communicator. They never meet the program's
 * messages, and come in the order of the program's collectives as long as the program makes none before
 * creation is complete. Where it may (a creation that does not block, or a group of them), only the first
 * round runs there, begun inside the program's call: in it ranks also tell each other where they listen. The
 * others run over TCP (net/bootstrap/meeting.h), in `inner`.
 *
 * Failures. Once all ranks have greeted, each watches the processes of its node (watch.h). A rank whose
 * deadline passes asks who is there; a rank that fails mails its last word (mail.h).
 */
#include "mpi/bootstrap_mpi.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/wait.h"
#include "mpi/comm_mpi.h"
#include "mpi/idle_mpi.h"
#include "mpi/mail.h"
#include "net/bootstrap/meeting.h"

#define MS INT64_C(1000000)
/* Between looks for letters and deaths; how long rank 0 collects answers, another rank waits for its last
 * word, and a rank that ends tries to deliver its own. */
static const int64_t LOOK_NS = 10 * MS, COLLECT_NS = 1000 * MS, ANSWER_NS = 5000 * MS, DELIVER_NS = 1000 * MS;

struct mpi_bootstrap {
    struct rondo_bootstrap base;
    struct mpi_bootstrap *next_grave;
    MPI_Comm user;  /* the program's */
    int one_thread; /* MPI may be called from `thread` only */
    pthread_t thread;
    int broken; /* MPI reported an error: requests under way are not touched again */

    enum { ROUND_NONE, ROUND_HELLO, ROUND_GATHER, ROUND_EXCHANGE } round;
    MPI_Request requests[2];
    uint8_t *sent, *got; /* the round's own buffers */
    int *counts;         /* of an exchange */
    int nrecords;
    void *result; /* the caller's: got is copied here */
    size_t bytes; /* of a record */

    struct rondo_meeting_place *places; /* of all ranks, then this rank's own; NULL: MPI carries all rounds */
    int listener;
    rondo_round_text no_place;     /* why this rank has none */
    struct rondo_bootstrap *inner; /* NULL: not yet */

    /* failures */
    struct rondo_watch watch;
    struct rondo_mail mail;
    int open;          /* the mail works */
    int held;          /* the round was not begun, because the creation has failed */
    int64_t looked_ns; /* for letters */
    int64_t asked_ns;  /* when this rank began to ask who is there; 0: not yet */
    int64_t broken_ns;
    int listed, n, missing[RONDO_MAIL_RANKS]; /* listed: the question is settled */
};

static struct {
    pthread_mutex_t lock;
    int keyval; /* of the attribute that counts the creations on a communicator */
    struct mpi_bootstrap *graves;
    int ngraves;
    int idle_one_thread;      /* the idle hook may call MPI from MPI's main thread only */
    struct rondo_watch known; /* processes of this node that have greeted, by rank of MPI_COMM_WORLD */
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
    self->broken_ns = rondo_now_ns();
    return rondo_fail_quiet(RONDO_SYSTEM_ERROR,
                            "rank %d on %s: %s failed while creating a communicator of %d ranks: %.300s",
                            self->base.rank, rondo_log_host(), call, self->base.nranks, text);
}

#define MPI_CALL(self, call, what)                \
    do {                                          \
        int rc_ = (call);                         \
        if (RONDO_UNLIKELY(rc_ != MPI_SUCCESS)) { \
            return mpi_fail(self, rc_, what);     \
        }                                         \
    } while (0)
#define MPI_TRY(self, call, ...) MPI_CALL(self, P##call(__VA_ARGS__), #call)

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

/* MPI has failed, perhaps because a process has died: wait a moment for its end to show. */
static rondo_status blame(struct mpi_bootstrap *self)
{
    char text[RONDO_ERROR_TEXT];
    snprintf(text, sizeof text, "%s", rondo_error_text());
    while (rondo_now_ns() - self->broken_ns < COLLECT_NS) {
        RONDO_TRY(rondo_watch_look(&self->watch, 0));
        sched_yield();
    }
    return rondo_fail(RONDO_SYSTEM_ERROR, "%s", text);
}

/* Call a function that calls MPI, with MPI's errors returned as codes. */
static rondo_status guard_call(struct mpi_bootstrap *self, rondo_status (*call)(struct mpi_bootstrap *self))
{
    struct rondo_mpi_guard guard;
    rondo_mpi_guard_enter(&guard, self->user);
    rondo_status status = call(self);
    rondo_mpi_guard_leave(&guard);
    return status;
}

/* The same, if MPI may be called. */
static rondo_status guarded(struct mpi_bootstrap *self, rondo_status (*call)(struct mpi_bootstrap *self))
{
    RONDO_TRY(usable(self));
    rondo_status status = guard_call(self, call);
    return self->broken && status != RONDO_SUCCESS ? blame(self) : status;
}

/* Are the round's requests complete? (MPI_Testall causes warnings in MPICH's header.) */
static rondo_status requests_test(struct mpi_bootstrap *self, int *done)
{
    *done = 1;
    for (size_t i = 0; i < RONDO_COUNTOF(self->requests) && *done; i++) {
        if (self->requests[i] != MPI_REQUEST_NULL) {
            MPI_TRY(self, MPI_Test, &self->requests[i], done, MPI_STATUS_IGNORE);
        }
    }
    return RONDO_SUCCESS;
}

/* ---- rounds ---- */

static void round_free(struct mpi_bootstrap *self)
{
    rondo_free(self->sent);
    rondo_free(self->got);
    rondo_free(self->counts);
    self->sent = self->got = NULL;
    self->counts = NULL;
    self->round = ROUND_NONE;
}

/* Allocate a round's buffers: it sends `nsent` records of `bytes` and receives `nrecords`. */
static rondo_status round_begin(struct mpi_bootstrap *self, int round, const void *data, int nsent,
                                int nrecords, size_t bytes)
{
    if (bytes > INT_MAX) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "a record of %zu bytes; MPI carries at most %d", bytes,
                          INT_MAX);
    }
    self->round = round;
    RONDO_TRY(rondo_calloc(&self->sent, (size_t)nsent, bytes, "a record for the other ranks"));
    RONDO_TRY(rondo_calloc(&self->got, (size_t)nrecords, bytes, "the records of the other ranks"));
    if (nsent > 0 && bytes > 0) {
        memcpy(self->sent, data, (size_t)nsent * bytes);
    }
    self->bytes = bytes;
    self->nrecords = nrecords;
    self->looked_ns = rondo_now_ns();
    return RONDO_SUCCESS;
}

static rondo_status take_call(struct mpi_bootstrap *self)
{
    MPI_CALL(self, rondo_mail_take(&self->mail), "a message about a failure");
    return RONDO_SUCCESS;
}

/*
 * A rank that has been told that the creation has failed begins no more rounds than others have: then the
 * program can use its communicator again, and create another one. The test of the round reports the failure.
 */
static rondo_status round_call(struct mpi_bootstrap *self, rondo_status (*call)(struct mpi_bootstrap *self))
{
    RONDO_TRY(guarded(self, take_call));
    self->held = self->mail.told && self->mail.begun >= self->mail.told_begun;
    if (self->held) {
        return RONDO_SUCCESS;
    }
    self->mail.begun++;
    return guarded(self, call);
}

static rondo_status gather_call(struct mpi_bootstrap *self)
{
    MPI_TRY(self, MPI_Iallgather, self->sent, (int)self->bytes, MPI_BYTE, self->got, (int)self->bytes,
            MPI_BYTE, self->user, &self->requests[0]);
    return RONDO_SUCCESS;
}

static rondo_status mpi_allgather_start(struct rondo_bootstrap *b, const void *mine, void *all, size_t bytes)
{
    struct mpi_bootstrap *self = self_of(b);
    if (b->nranks == 1) {
        memcpy(all, mine, bytes);
        return RONDO_SUCCESS;
    }
    if (self->inner != NULL) {
        return self->inner->ops->allgather_start(self->inner, mine, all, bytes);
    }
    RONDO_TRY(round_begin(self, ROUND_GATHER, mine, 1, b->nranks, bytes));
    self->result = all;
    return round_call(self, gather_call);
}

/* A collective, because messages on the program's communicator could meet its own receives. */
static rondo_status exchange_call(struct mpi_bootstrap *self)
{
    int n = self->base.nranks, *counts = self->counts, *displs = self->counts + n;
    MPI_TRY(self, MPI_Ialltoallv, self->sent, counts, displs, MPI_BYTE, self->got, counts, displs, MPI_BYTE,
            self->user, &self->requests[0]);
    return RONDO_SUCCESS;
}

static rondo_status mpi_exchange_start(struct rondo_bootstrap *b, int n, const int *peer, const void *send,
                                       void *recv, size_t bytes)
{
    struct mpi_bootstrap *self = self_of(b);
    if (b->nranks == 1) {
        return RONDO_SUCCESS;
    }
    if (self->inner != NULL) {
        return self->inner->ops->exchange_start(self->inner, n, peer, send, recv, bytes);
    }
    if ((size_t)n * bytes > INT_MAX) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%d records of %zu bytes; MPI carries at most %d bytes", n,
                          bytes, INT_MAX);
    }
    RONDO_TRY(round_begin(self, ROUND_EXCHANGE, send, n, n, bytes));
    RONDO_TRY(RONDO_NEW_ARRAY(self->counts, 2 * b->nranks, "the sizes of records"));
    for (int i = 0; i < n; i++) {
        self->counts[peer[i]] = (int)bytes;
        self->counts[b->nranks + peer[i]] = i * (int)bytes;
    }
    self->result = recv;
    return round_call(self, exchange_call);
}

/* ---- places ---- */

/* A rank that has none greets nevertheless: then all ranks end alike. */
static rondo_status place_open(struct mpi_bootstrap *self)
{
    struct rondo_meeting_place *mine;
    RONDO_TRY(RONDO_NEW_ARRAY(self->places, self->base.nranks + 1, "the places of ranks"));
    mine = &self->places[self->base.nranks];
    if (rondo_meeting_place_open(mine, &self->listener) != RONDO_SUCCESS) {
        rondo_round_text_fill(self->no_place, self->base.rank);
    }
    MPI_TRY(self, MPI_Iallgather, mine, (int)sizeof(*mine), MPI_BYTE, self->places, (int)sizeof(*mine),
            MPI_BYTE, self->user, &self->requests[1]);
    return RONDO_SUCCESS;
}

/* All places are known: MPI has no more part in the creation. */
static rondo_status places_end(struct mpi_bootstrap *self)
{
    for (int r = 0; r < self->base.nranks; r++) {
        rondo_status status = (rondo_status)self->places[r].status;
        if (status != RONDO_SUCCESS) {
            self->base.quiet = 1; /* all ranks see it */
            return r == self->base.rank
                       ? rondo_fail_quiet(status, "%s", self->no_place)
                       : rondo_fail_quiet(
                             status,
                             "rank %d cannot listen for the other ranks of the communicator; see "
                             "that rank's own output for the cause",
                             r);
        }
    }
    RONDO_TRY(rondo_bootstrap_places(self->places, self->base.rank, self->base.nranks, self->listener,
                                     &self->inner));
    self->listener = -1;
    self->base.secret = self->inner->secret;
    return RONDO_SUCCESS;
}

/* ---- the processes of this node ---- */

/* Remember who greeted: a later creation watches them before they greet again. */
static rondo_status known_add(struct mpi_bootstrap *self)
{
    rondo_status status = RONDO_SUCCESS;
    pthread_mutex_lock(&process.lock);
    for (int i = 0; i < self->watch.n && status == RONDO_SUCCESS; i++) {
        struct rondo_watched watched = self->watch.process[i];
        watched.rank = rondo_mpi_rank_translate(self->user, watched.rank, MPI_COMM_WORLD);
        if (watched.rank != MPI_UNDEFINED && !rondo_watch_sees(&process.known, watched.rank)) {
            status = rondo_watch_add(&process.known, &watched);
        }
    }
    pthread_mutex_unlock(&process.lock);
    return status;
}

static rondo_status known_watch(struct mpi_bootstrap *self)
{
    rondo_status status = RONDO_SUCCESS;
    pthread_mutex_lock(&process.lock);
    for (int i = 0; i < process.known.n && status == RONDO_SUCCESS; i++) {
        struct rondo_watched watched = process.known.process[i];
        watched.rank = rondo_mpi_rank_translate(MPI_COMM_WORLD, watched.rank, self->user);
        if (watched.rank != MPI_UNDEFINED) {
            status = rondo_watch_add(&self->watch, &watched);
        }
    }
    pthread_mutex_unlock(&process.lock);
    return status;
}

/* ---- the end of a round ---- */

static rondo_status hello_end(struct mpi_bootstrap *self)
{
    const struct rondo_hello *hello = (const struct rondo_hello *)self->got;
    rondo_status status = rondo_hello_check(hello, self->base.nranks);
    rondo_watch_close(&self->watch);
    if (status == RONDO_SUCCESS) {
        status = rondo_watch_open(&self->watch, hello, self->base.nranks, self->base.rank);
    }
    if (status == RONDO_SUCCESS) {
        status = known_add(self);
    }
    self->base.met = 1;
    if (status == RONDO_SUCCESS && self->places != NULL) {
        status = places_end(self);
    }
    round_free(self);
    return status;
}

static rondo_status round_end(struct mpi_bootstrap *self)
{
    if (self->round == ROUND_HELLO) {
        return hello_end(self);
    }
    if (self->nrecords > 0 && self->bytes > 0) {
        memcpy(self->result, self->got, (size_t)self->nrecords * self->bytes);
    }
    round_free(self);
    return RONDO_SUCCESS;
}

/* ---- failures ---- */

/* @return the error of the last word that has come; RONDO_SUCCESS: none has. It comes from another process.
 * */
static rondo_status heard(const struct mpi_bootstrap *self)
{
    const struct rondo_letter *last = &self->mail.last;
    if (last->kind == 0) {
        return RONDO_SUCCESS;
    }
    rondo_status status = last->status > RONDO_SUCCESS && last->status < RONDO_NUM_STATUSES &&
                                  last->status != RONDO_IN_PROGRESS
                              ? (rondo_status)last->status
                              : RONDO_REMOTE_ERROR;
    return last->text[0] ? rondo_fail_quiet(status, "%s", last->text)
                         : rondo_fail_quiet(status, "rank %d gave the creation up", self->mail.last_from);
}

/* Look for letters. */
static rondo_status look_letters(struct mpi_bootstrap *self)
{
    self->looked_ns = rondo_now_ns();
    if (!self->broken) {
        RONDO_TRY(guarded(self, take_call));
    }
    RONDO_TRY(heard(self));
    if (self->mail.told && !self->asked_ns) {
        return rondo_fail_quiet(
            RONDO_TIMEOUT,
            "another of the %d ranks stopped waiting: its limit passed before all ranks had "
            "come",
            self->base.nranks);
    }
    return RONDO_SUCCESS;
}

/* Look for letters and deaths. late: the deadline has passed. */
static rondo_status look(struct mpi_bootstrap *self, int late)
{
    rondo_status status = look_letters(self);
    if (status != RONDO_SUCCESS && (status != RONDO_TIMEOUT || self->mail.last.kind != 0)) {
        return status;
    }
    RONDO_TRY(rondo_watch_look(&self->watch, late));
    return status;
}

static rondo_status mpi_look(struct rondo_bootstrap *b, int late)
{
    struct mpi_bootstrap *self = self_of(b);
    if (self->inner != NULL) {
        return rondo_watch_look(&self->watch, late);
    }
    if (!self->open || !mpi_may_step(b) || (!late && rondo_now_ns() - self->looked_ns < LOOK_NS)) {
        return RONDO_SUCCESS;
    }
    return look(self, late);
}

static rondo_status ask_call(struct mpi_bootstrap *self)
{
    MPI_CALL(self, rondo_mail_ask(&self->mail), "a message about a failure");
    self->asked_ns = rondo_now_ns();
    return RONDO_SUCCESS;
}

static void list_absent(struct mpi_bootstrap *self)
{
    self->listed = 1;
    for (int r = 0; r < self->base.nranks && self->n < RONDO_MAIL_RANKS; r++) {
        if (!self->mail.here[r]) {
            self->missing[self->n++] = r;
        }
    }
}

/* @return RONDO_SUCCESS: the missing ranks are known, or that they cannot be. */
static rondo_status missing_find(struct mpi_bootstrap *self)
{
    int64_t waited = rondo_now_ns() - self->asked_ns;
    if (self->base.rank == 0) {
        if (self->mail.nhere < self->base.nranks && waited < COLLECT_NS) {
            return RONDO_IN_PROGRESS;
        }
        list_absent(self);
    } else {
        if (waited < ANSWER_NS) {
            return RONDO_IN_PROGRESS;
        }
        /* Rank 0 has left no word. If it has asked, or had come and its process runs, it is only slow. */
        self->listed = 1;
        self->n = !self->mail.queried && !(self->base.met && rondo_watch_sees(&self->watch, 0));
        self->missing[0] = 0;
    }
    return RONDO_SUCCESS;
}

static rondo_status mpi_missing(struct rondo_bootstrap *b, int *ranks, int max, int *n)
{
    struct mpi_bootstrap *self = self_of(b);
    rondo_status status = RONDO_SUCCESS;
    *n = 0;
    if (self->inner != NULL) {
        return self->inner->ops->missing(self->inner, ranks, max, n);
    }
    if (self->round == ROUND_NONE || self->broken || !self->open) {
        return RONDO_SUCCESS;
    }
    if (!self->listed) {
        status = look(self, 1);
        if (status == RONDO_SUCCESS || (status == RONDO_TIMEOUT && self->mail.last.kind == 0)) {
            RONDO_TRY(self->asked_ns ? RONDO_SUCCESS : guarded(self, ask_call));
            RONDO_TRY(missing_find(self));
            status = RONDO_SUCCESS;
        }
    }
    const struct rondo_letter *last = &self->mail.last;
    int has_letter = status != RONDO_SUCCESS && last->kind != 0;
    int count = has_letter ? last->n : self->n;
    for (int i = 0; i < count && i < RONDO_MAIL_RANKS && *n < max; i++) {
        int rank = has_letter ? last->ranks[i] : self->missing[i];
        if (rank >= 0 && rank < b->nranks) {
            ranks[(*n)++] = rank;
        }
    }
    return status;
}

/* @return the lowest rank that is not known to be lost. */
static int judge_of(const struct mpi_bootstrap *self)
{
    int judge = 0;
    while (judge < self->base.rank && rondo_watch_lost(&self->watch, judge)) {
        judge++;
    }
    return judge;
}

static void letter_write(const struct mpi_bootstrap *self, struct rondo_letter *letter)
{
    rondo_status status = self->base.ended != RONDO_SUCCESS ? self->base.ended
                          : self->listed                    ? RONDO_TIMEOUT
                                                            : RONDO_REMOTE_ERROR;
    *letter = (struct rondo_letter){ .status = status, .n = self->n };
    memcpy(letter->ranks, self->missing, sizeof self->missing);
    if (strncmp(rondo_error_text(), "rank ", 5) == 0) {
        snprintf(letter->text, sizeof letter->text, "%s", rondo_error_text());
    } else if (rondo_error_text()[0]) {
        rondo_round_text_fill(letter->text, self->base.rank);
    }
}

/* Mail this rank's last word, unless the judge has sent one. */
static rondo_status last_call(struct mpi_bootstrap *self)
{
    struct rondo_letter letter = self->mail.last;
    int judge = judge_of(self), relays = letter.kind != 0 && self->mail.last_from != judge;
    if (letter.kind != 0 && self->base.rank != judge && !relays) {
        return RONDO_SUCCESS;
    }
    if (letter.kind == 0) {
        letter_write(self, &letter);
    }
    int rc = rondo_mail_last(&self->mail, &letter, relays ? self->base.rank : judge), rest = 0;
    int64_t end = rondo_now_ns() + DELIVER_NS;
    while (rc == MPI_SUCCESS && !rest && rondo_now_ns() < end) {
        rc = rondo_mail_take(&self->mail); /* so that less of it is left for the program */
        rc = rc == MPI_SUCCESS ? rondo_mail_test(&self->mail, &rest) : rc;
        sched_yield();
    }
    return RONDO_SUCCESS;
}

/* ---- open, test, close ---- */

/* Number this creation among those on the communicator: all its ranks count alike, and letters carry it. */
static int attempt_count(struct mpi_bootstrap *self)
{
    void *value = NULL;
    int found = 0;
    pthread_mutex_lock(&process.lock);
    if (process.keyval == MPI_KEYVAL_INVALID) {
        PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &process.keyval, NULL);
    }
    pthread_mutex_unlock(&process.lock);
    PMPI_Comm_get_attr(self->user, process.keyval, &value, &found);
    int attempt = found ? (int)(intptr_t)value + 1 : 1;
    PMPI_Comm_set_attr(self->user, process.keyval, (void *)(intptr_t)attempt);
    return attempt;
}

/* All begins inside the program's call, in the order of its own collectives. */
static rondo_status open_call(struct mpi_bootstrap *self)
{
    struct rondo_hello hello;
    MPI_CALL(self, rondo_mail_open(&self->mail, self->user, attempt_count(self)),
             "a message about a failure");
    self->open = 1;
    RONDO_TRY(known_watch(self));
    rondo_hello_fill(&hello);
    RONDO_TRY(round_begin(self, ROUND_HELLO, &hello, 1, self->base.nranks, sizeof hello));
    self->mail.begun = 1;
    RONDO_TRY(gather_call(self));
    return self->base.overlaps ? place_open(self) : RONDO_SUCCESS;
}

static rondo_status mpi_open_start(struct rondo_bootstrap *b)
{
    return b->nranks == 1 ? RONDO_SUCCESS : guarded(self_of(b), open_call);
}

static rondo_status test_call(struct mpi_bootstrap *self)
{
    int done = 0;
    RONDO_TRY(requests_test(self, &done));
    return done && !self->held ? RONDO_SUCCESS : RONDO_IN_PROGRESS;
}

/* Other ranks may wait for this one's MPI to make progress with their greetings. */
static rondo_status test_inner(struct mpi_bootstrap *self)
{
    rondo_status status;
    RONDO_TRY(usable(self));
    status = self->inner->ops->test(self->inner);
    if (status == RONDO_IN_PROGRESS) {
        rondo_mpi_progress();
        RONDO_TRY(rondo_watch_look(&self->watch, 0));
    }
    return status;
}

static rondo_status mpi_test(struct rondo_bootstrap *b)
{
    struct mpi_bootstrap *self = self_of(b);
    if (self->inner != NULL) {
        return test_inner(self);
    }
    if (self->round == ROUND_NONE) {
        return RONDO_SUCCESS;
    }
    rondo_status status = guarded(self, test_call);
    if (status == RONDO_SUCCESS) {
        RONDO_TRY(look_letters(self)); /* one that is late may find that the others have given up */
        return guarded(self, round_end);
    }
    if (status == RONDO_IN_PROGRESS && (self->held || rondo_now_ns() - self->looked_ns >= LOOK_NS)) {
        RONDO_TRY(look(self, 0));
    }
    return status;
}

/* @return RONDO_SUCCESS: no request is under way any more. */
static rondo_status rest_call(struct mpi_bootstrap *self)
{
    int round, mail = 1;
    RONDO_TRY(requests_test(self, &round));
    if (self->open) {
        MPI_CALL(self, rondo_mail_test(&self->mail, &mail), "a message about a failure");
    }
    return round && mail ? RONDO_SUCCESS : RONDO_IN_PROGRESS;
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

static void close_inner(struct mpi_bootstrap *self, int ok)
{
    if (self->inner != NULL) {
        self->inner->ended = self->base.ended;
        self->inner->quiet = self->base.quiet;
        self->inner->ops->close(self->inner, ok);
    }
    if (self->listener >= 0) {
        close(self->listener);
    }
}

static void mpi_close(struct rondo_bootstrap *b, int ok)
{
    struct mpi_bootstrap *self = self_of(b);
    int may_call = mpi_may_step(b) && !mpi_finalized();
    char text[RONDO_ERROR_TEXT];
    snprintf(text, sizeof text, "%s", rondo_error_text());
    if (!ok && self->open && may_call && !b->quiet && self->inner == NULL) {
        (void)guard_call(self, last_call);
    }
    close_inner(self, ok);
    rondo_watch_close(&self->watch);
    if (self->round != ROUND_NONE || self->mail.nrequests > 0 ||
        (self->open && self->mail.incoming_request != MPI_REQUEST_NULL)) {
        if (self->broken || !may_call || guard_call(self, rest_call) != RONDO_SUCCESS) {
            bury(self);
            rondo_fail_quiet(b->ended, "%s", text);
            return;
        }
    }
    round_free(self);
    rondo_mail_close(&self->mail);
    if (b->ended != RONDO_SUCCESS) {
        rondo_fail_quiet(b->ended, "%s", text);
    }
    rondo_free(self->places);
    rondo_free(self);
}

/* ---- the program's MPI ---- */

static rondo_status mpi_idle(void *arg, int *moved)
{
    (void)arg;
    (void)moved; /* MPI does not say */
    int may_call = 1;
    if (__atomic_load_n(&process.idle_one_thread, __ATOMIC_RELAXED) && !mpi_finalized()) {
        PMPI_Is_thread_main(&may_call);
    }
    if (may_call) {
        rondo_mpi_progress();
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

static const struct rondo_bootstrap_ops mpi_ops = {
    .name = "mpi",
    .open_start = mpi_open_start,
    .allgather_start = mpi_allgather_start,
    .exchange_start = mpi_exchange_start,
    .test = mpi_test,
    .missing = mpi_missing,
    .look = mpi_look,
    .may_step = mpi_may_step,
    .close = mpi_close,
};

rondo_status rondo_bootstrap_mpi(MPI_Comm comm, struct rondo_bootstrap **b)
{
    int level;
    RONDO_TRY(comm_check(comm));
    RONDO_TRY(thread_check(&level));
    struct mpi_bootstrap *self;
    RONDO_TRY(RONDO_NEW(self, "a bootstrap"));
    self->base.ops = &mpi_ops;
    PMPI_Comm_rank(comm, &self->base.rank);
    PMPI_Comm_size(comm, &self->base.nranks);
    int root = rondo_mpi_rank_translate(comm, 0, MPI_COMM_WORLD);
    self->base.root_world_rank = root == MPI_UNDEFINED ? -1 : root; /* -1: not in the world (spawned) */
    self->user = comm;
    self->listener = -1;
    self->requests[0] = self->requests[1] = MPI_REQUEST_NULL;
    self->one_thread = level < MPI_THREAD_SERIALIZED;
    self->thread = pthread_self();
    if (self->base.nranks > 1) {
        __atomic_store_n(&process.idle_one_thread, self->one_thread, __ATOMIC_RELAXED);
        self->base.idle = mpi_idle;
        self->base.idle_asks = level == MPI_THREAD_SERIALIZED;
    }
    *b = &self->base;
    return RONDO_SUCCESS;
}
