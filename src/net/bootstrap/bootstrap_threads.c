/*
 * The bootstrap of ranks that are threads of one process, which meet in a hub. In an allgather each rank
 * copies its record into an array and, once all have, copies the array out. Two arrays suffice: a rank
 * begins round k + 2 only when round k + 1 is complete, so after every rank has copied out round k. Records
 * between pairs go into the receiver's inbox.
 */
#include "net/bootstrap/bootstrap.h"

#include <pthread.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "net/peer.h"

struct message {
    struct message *next;
    int from;
    size_t bytes;
    uint8_t data[];
};

struct list {
    struct message *first, *last;
};

/* State of a rank that outlives its bootstrap: several communicators can be created in one hub. */
struct seat {
    int taken;
    uint64_t gathers;   /* allgathers begun; written under the lock */
    struct list inbox;  /* under the lock */
    struct list parked; /* messages from peers that are a round ahead; only this rank touches it */
};

struct gather {
    uint64_t number; /* of the allgather, from 1 */
    int opener;      /* the rank that came first and set `bytes` */
    size_t bytes;
    uint8_t *all;
    int arrived; /* ranks that have copied their record: release, read with acquire */
};

struct rondo_hub {
    pthread_mutex_t lock;
    int nranks;
    int refs;
    int failed;              /* set last, with release */
    rondo_round_text reason; /* of the rank that failed first */
    struct gather gather[2];
    struct seat seat[];
};

struct thread_bootstrap {
    struct rondo_bootstrap base;
    struct rondo_hub *hub;
    struct seat *seat;
    enum { ROUND_NONE, ROUND_GATHER, ROUND_EXCHANGE } round;
    void *result;
    size_t bytes;
    int *slot_of; /* rank -> index of its outstanding record, else -1; NULL before the first exchange */
    int pending;
};

static void list_append(struct list *list, struct message *message)
{
    message->next = NULL;
    if (list->last) {
        list->last->next = message;
    } else {
        __atomic_store_n(&list->first, message, __ATOMIC_RELAXED); /* test looks at it without the lock */
    }
    list->last = message;
}

static struct list list_take(struct list *list)
{
    struct list taken = *list;
    __atomic_store_n(&list->first, NULL, __ATOMIC_RELAXED);
    list->last = NULL;
    return taken;
}

static void list_free(struct list *list)
{
    for (struct message *message = list->first, *next; message; message = next) {
        next = message->next;
        rondo_free(message);
    }
}

rondo_status rondo_hub_create(int nranks, struct rondo_hub **hub)
{
    if (nranks < 1) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "a meeting place of %d ranks; it needs at least 1", nranks);
    }
    struct rondo_hub *h;
    RONDO_TRY(rondo_calloc(&h, 1, sizeof *h + (size_t)nranks * sizeof h->seat[0],
                           "the meeting place of ranks that are threads"));
    pthread_mutex_init(&h->lock, NULL);
    h->nranks = nranks;
    h->refs = 1;
    *hub = h;
    return RONDO_SUCCESS;
}

void rondo_hub_retain(struct rondo_hub *hub) { __atomic_add_fetch(&hub->refs, 1, __ATOMIC_RELAXED); }

void rondo_hub_release(struct rondo_hub *hub)
{
    if (!hub || __atomic_sub_fetch(&hub->refs, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    for (int i = 0; i < hub->nranks; i++) {
        list_free(&hub->seat[i].inbox);
        list_free(&hub->seat[i].parked);
    }
    rondo_free(hub->gather[0].all);
    rondo_free(hub->gather[1].all);
    pthread_mutex_destroy(&hub->lock);
    rondo_free(hub);
}

static int hub_failed(struct rondo_hub *hub) { return __atomic_load_n(&hub->failed, __ATOMIC_ACQUIRE); }

static rondo_status hub_error(struct rondo_hub *hub)
{
    return rondo_fail_quiet(RONDO_REMOTE_ERROR, "%s", hub->reason);
}

static struct thread_bootstrap *self_of(struct rondo_bootstrap *b) { return (struct thread_bootstrap *)b; }

static rondo_status threads_open_start(struct rondo_bootstrap *b)
{
    (void)b; /* the hub exists */
    return RONDO_SUCCESS;
}

/* Find or open the array of allgather `number`, with the lock held. */
static rondo_status gather_open(struct rondo_hub *hub, int rank, uint64_t number, size_t bytes,
                                struct gather **gather)
{
    struct gather *g = &hub->gather[number & 1];
    *gather = g;
    if (g->number == number) {
        if (g->bytes == bytes) {
            return RONDO_SUCCESS;
        }
        return rondo_fail(
            RONDO_INVALID_USAGE,
            "rank %d sends %zu bytes where rank %d sent %zu in round %llu of a communicator's creation", rank,
            bytes, g->opener, g->bytes, (unsigned long long)number);
    }
    if (!g->all || g->bytes != bytes) {
        rondo_free(g->all);
        g->all = NULL;
        RONDO_TRY(rondo_calloc(&g->all, (size_t)hub->nranks, bytes, "the records of all ranks"));
    }
    g->number = number;
    g->opener = rank;
    g->bytes = bytes;
    __atomic_store_n(&g->arrived, 0, __ATOMIC_RELAXED);
    return RONDO_SUCCESS;
}

static rondo_status threads_allgather_start(struct rondo_bootstrap *b, const void *mine, void *all,
                                            size_t bytes)
{
    struct thread_bootstrap *self = self_of(b);
    struct rondo_hub *hub = self->hub;
    if (hub_failed(hub)) {
        return hub_error(hub);
    }
    struct gather *gather;
    pthread_mutex_lock(&hub->lock);
    rondo_status status = gather_open(hub, b->rank, ++self->seat->gathers, bytes, &gather);
    pthread_mutex_unlock(&hub->lock);
    RONDO_TRY(status);
    memcpy(gather->all + (size_t)b->rank * bytes, mine, bytes);
    __atomic_add_fetch(&gather->arrived, 1, __ATOMIC_RELEASE);
    self->round = ROUND_GATHER;
    self->result = all;
    self->bytes = bytes;
    return RONDO_SUCCESS;
}

/* Copy the messages of this round to their places; park the rest. */
static rondo_status deliver(struct thread_bootstrap *self, struct list list)
{
    rondo_status status = RONDO_SUCCESS;
    for (struct message *message = list.first, *next; message; message = next) {
        next = message->next;
        int slot = self->slot_of[message->from];
        if (slot < 0) {
            list_append(&self->seat->parked, message);
            continue;
        }
        if (message->bytes == self->bytes) {
            memcpy((uint8_t *)self->result + (size_t)slot * self->bytes, message->data, self->bytes);
            self->slot_of[message->from] = -1;
            self->pending--;
        } else {
            status = rondo_fail(RONDO_INVALID_USAGE,
                                "rank %d sends rank %d a record of %zu bytes where %zu are expected",
                                message->from, self->base.rank, message->bytes, self->bytes);
        }
        rondo_free(message);
    }
    return status;
}

static rondo_status exchange_drain(struct thread_bootstrap *self)
{
    struct list *inbox = &self->seat->inbox;
    if (!__atomic_load_n(&inbox->first, __ATOMIC_RELAXED)) {
        return RONDO_SUCCESS;
    }
    pthread_mutex_lock(&self->hub->lock);
    struct list list = list_take(inbox);
    pthread_mutex_unlock(&self->hub->lock);
    return deliver(self, list);
}

static rondo_status slots_prepare(struct thread_bootstrap *self, int n, const int *peer)
{
    int nranks = self->base.nranks;
    if (!self->slot_of) {
        RONDO_TRY(RONDO_NEW_ARRAY(self->slot_of, nranks, "the list of peers"));
        memset(self->slot_of, -1, (size_t)nranks * sizeof *self->slot_of);
    }
    for (int i = 0; i < n; i++) {
        if (peer[i] < 0 || peer[i] >= nranks || peer[i] == self->base.rank || self->slot_of[peer[i]] >= 0) {
            return rondo_fail(RONDO_INTERNAL_ERROR,
                              "rank %d cannot exchange records with peer %d of %d ranks: it is itself, out "
                              "of range or named twice",
                              self->base.rank, peer[i], nranks);
        }
        self->slot_of[peer[i]] = i;
    }
    return RONDO_SUCCESS;
}

static rondo_status threads_exchange_start(struct rondo_bootstrap *b, int n, const int *peer,
                                           const void *send, void *recv, size_t bytes)
{
    struct thread_bootstrap *self = self_of(b);
    if (hub_failed(self->hub)) {
        return hub_error(self->hub);
    }
    RONDO_TRY(slots_prepare(self, n, peer));
    self->round = ROUND_EXCHANGE;
    self->result = recv;
    self->bytes = bytes;
    self->pending = n;
    for (int i = 0; i < n; i++) {
        struct message *message;
        RONDO_TRY(rondo_calloc(&message, 1, sizeof *message + bytes, "a record for a peer"));
        message->from = b->rank;
        message->bytes = bytes;
        memcpy(message->data, (const uint8_t *)send + (size_t)i * bytes, bytes);
        pthread_mutex_lock(&self->hub->lock);
        list_append(&self->hub->seat[peer[i]].inbox, message);
        pthread_mutex_unlock(&self->hub->lock);
    }
    return deliver(self, list_take(&self->seat->parked));
}

static rondo_status threads_test(struct rondo_bootstrap *b)
{
    struct thread_bootstrap *self = self_of(b);
    int done = 1;
    if (self->round == ROUND_GATHER) {
        const struct gather *gather = &self->hub->gather[self->seat->gathers & 1];
        done = __atomic_load_n(&gather->arrived, __ATOMIC_ACQUIRE) == b->nranks;
        if (done) {
            memcpy(self->result, gather->all, (size_t)b->nranks * self->bytes);
        }
    } else if (self->round == ROUND_EXCHANGE) {
        RONDO_TRY(exchange_drain(self));
        done = self->pending == 0;
    }
    if (done) {
        self->round = ROUND_NONE;
        return RONDO_SUCCESS;
    }
    return hub_failed(self->hub) ? hub_error(self->hub) : RONDO_IN_PROGRESS;
}

static rondo_status threads_missing(struct rondo_bootstrap *b, int *ranks, int max, int *n)
{
    struct thread_bootstrap *self = self_of(b);
    *n = 0;
    if (self->round == ROUND_EXCHANGE) {
        RONDO_TRY(exchange_drain(self));
    }
    pthread_mutex_lock(&self->hub->lock);
    for (int i = 0; i < b->nranks && *n < max; i++) {
        int absent = (self->round == ROUND_GATHER && self->hub->seat[i].gathers < self->seat->gathers) ||
                     (self->round == ROUND_EXCHANGE && self->slot_of[i] >= 0);
        if (absent) {
            ranks[(*n)++] = i;
        }
    }
    pthread_mutex_unlock(&self->hub->lock);
    return RONDO_SUCCESS;
}

static void threads_close(struct rondo_bootstrap *b, int ok)
{
    struct thread_bootstrap *self = self_of(b);
    struct rondo_hub *hub = self->hub;
    pthread_mutex_lock(&hub->lock);
    if (!ok && !hub->failed) {
        rondo_round_text_fill(hub->reason, b->rank);
        __atomic_store_n(&hub->failed, 1, __ATOMIC_RELEASE);
    }
    self->seat->taken = 0;
    pthread_mutex_unlock(&hub->lock);
    rondo_free(self->slot_of);
    rondo_free(self);
    rondo_hub_release(hub);
}

static const struct rondo_bootstrap_ops threads_ops = {
    .name = "threads",
    .open_start = threads_open_start,
    .allgather_start = threads_allgather_start,
    .exchange_start = threads_exchange_start,
    .test = threads_test,
    .missing = threads_missing,
    .close = threads_close,
};

rondo_status rondo_bootstrap_threads(struct rondo_hub *hub, int rank, struct rondo_bootstrap **b)
{
    if (rank < 0 || rank >= hub->nranks) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rank %d of a meeting place of %d ranks; ranks are 0..%d",
                          rank, hub->nranks, hub->nranks - 1);
    }
    if (hub_failed(hub)) {
        return rondo_fail(
            RONDO_INVALID_USAGE,
            "the meeting place cannot be used again after a failed creation (%.200s); create a new one",
            hub->reason);
    }
    struct thread_bootstrap *self;
    RONDO_TRY(RONDO_NEW(self, "a bootstrap"));
    struct seat *seat = &hub->seat[rank];
    pthread_mutex_lock(&hub->lock);
    int taken = seat->taken;
    seat->taken = 1;
    pthread_mutex_unlock(&hub->lock);
    if (taken) {
        rondo_free(self);
        return rondo_fail(RONDO_INVALID_USAGE,
                          "two threads are rank %d of one meeting place; give each thread its own rank",
                          rank);
    }
    rondo_hub_retain(hub);
    self->base = (struct rondo_bootstrap){
        .ops = &threads_ops, .rank = rank, .nranks = hub->nranks, .root_world_rank = -1
    };
    self->hub = hub;
    self->seat = seat;
    *b = &self->base;
    return RONDO_SUCCESS;
}
