/*
 * Ranks for the tests of transports: threads, forked processes, or one thread that runs them in turn. A table
 * of records in shared memory replaces the bootstrap. Every channel has a ring and a binary tree; kinds of
 * links: RING to the next rank, UP to the parent, DOWN to the children.
 */
#ifndef TRANSPORT_WORLD_H
#define TRANSPORT_WORLD_H

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/wait.h"
#include "net/transport/transport.h"
#include "net/netdev.h"
#include "net/transport/transport_net.h"

enum {
    MAX_RANKS = 8,
    CHANNELS = 2,
    RING = 0,
    UP = 1,
    DOWN = 2,
    KINDS = 3,
    MAX_LINKS = CHANNELS * 8,
    SLICES = 1000,
    ALL_PROTOS = 7
};
static const int64_t deadline_ns = 60ll * 1000000000;

/* cmocka's asserts only end a test in the main thread of its process; CHECK ends the program from
 * anywhere. */
#define CHECK(cond)                                                                         \
    do {                                                                                    \
        if (!(cond)) {                                                                      \
            fprintf(stderr, "%s:%d: %s fails; last error: %s\n", __FILE__, __LINE__, #cond, \
                    rondo_error_text());                                                    \
            abort();                                                                        \
        }                                                                                   \
    } while (0)
#define CHECK_OK(call) CHECK((call) == RONDO_SUCCESS)

struct end {
    struct rondo_link link;
    int kind;
    uint64_t slices; /* moved by stream() */
};

struct world;

struct rank {
    struct world *world;
    struct rondo_net net;
    struct rondo_progress progress;
    struct end ends[MAX_LINKS];
    int nends;
};

/* In memory that forked processes share. */
struct world {
    int nranks;
    uint32_t protos;
    void (*body)(struct world *w, struct rank *r);
    /* Hooks that add to a net: before it is opened, before it offers, after it is closed. NULL: none. */
    void (*before)(struct world *w, struct rank *r), (*between)(struct world *w, struct rank *r),
        (*after)(struct world *w, struct rank *r);
    rondo_status (*offer)(struct world *w, int rank); /* replaces rank_offer */
    const char *net_name;                             /* of all links */
    struct rondo_peer peers[MAX_RANKS];
    char hosts[MAX_RANKS][16];
    int index[MAX_RANKS], node_of[MAX_RANKS];
    enum rondo_shm_mode mode;
    int apart, index_apart[MAX_RANKS][MAX_RANKS],
        self[MAX_RANKS]; /* each rank is its own host: local_of and local_ranks by rank */
    uint32_t slot_bytes[RONDO_NUM_PROTOS];
    struct rondo_shm_name arenas[MAX_RANKS];
    struct rondo_connect records[CHANNELS][KINDS][MAX_RANKS][MAX_RANKS][2]; /* from, to, is_send */
    pthread_barrier_t barrier;
    struct rank rank[MAX_RANKS];
};

static inline struct world *world_new(int nranks, enum rondo_shm_mode mode, uint32_t slot_bytes)
{
    struct world *w = mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attr;

    CHECK(w != MAP_FAILED);
    w->nranks = nranks;
    w->mode = mode;
    w->protos = ALL_PROTOS;
    w->slot_bytes[RONDO_PROTO_SIMPLE] = slot_bytes;
    w->slot_bytes[RONDO_PROTO_LL] = (uint32_t)rondo_round_up(slot_bytes / 2, 128);
    w->slot_bytes[RONDO_PROTO_LL128] = 384;
    for (int i = 0; i < nranks; i++) {
        w->index[i] = i;
        w->peers[i].rank = i;
        w->peers[i].nranks = nranks;
        w->peers[i].pid = getpid();
        w->peers[i].host_hash = 17;
        snprintf(w->hosts[i], sizeof(w->hosts[i]), "host%d", i);
        w->peers[i].host = w->hosts[i];
    }
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&w->barrier, &attr, (unsigned)nranks);
    pthread_barrierattr_destroy(&attr);
    return w;
}

/* No two ranks share memory: they use a net device. */
static inline void world_spread(struct world *w)
{
    w->apart = 1;
    for (int i = 0; i < w->nranks; i++) {
        w->peers[i].host_hash += (uint64_t)i;
        w->self[i] = i;
        w->node_of[i] = i;
        for (int k = 0; k < w->nranks; k++) {
            w->index_apart[i][k] = k == i ? 0 : -1;
        }
        CHECK_OK(rondo_netdev_mask(&w->peers[i].netdevs, NULL, 0));
    }
}

static inline void world_free(struct world *w)
{
    pthread_barrier_destroy(&w->barrier);
    munmap(w, sizeof(*w));
}

static inline rondo_status rank_open(struct world *w, int rank, int max_links)
{
    struct rank *r = &w->rank[rank];

    memset(r, 0, sizeof(*r));
    r->world = w;
    r->net = (struct rondo_net){ .rank = rank,
                                 .nranks = w->nranks,
                                 .peers = w->peers,
                                 .nlocal = w->apart ? 1 : w->nranks,
                                 .local_rank = w->apart ? 0 : rank,
                                 .local_of = w->apart ? w->index_apart[rank] : w->index,
                                 .local_ranks = w->apart ? &w->self[rank] : w->index,
                                 .node_of = w->node_of,
                                 .shm_mode = w->mode,
                                 .lazy_protos = 1u << RONDO_PROTO_LL,
                                 .progress = &r->progress,
                                 .name = "test",
                                 .arenas = w->apart ? &w->arenas[rank] : w->arenas };
    memcpy(r->net.slot_bytes, w->slot_bytes, sizeof(w->slot_bytes));
    if (w->before != NULL) {
        w->before(w, r);
    }
    RONDO_TRY(rondo_net_open(&r->net, max_links));
    w->arenas[rank] = r->net.arena;
    return RONDO_SUCCESS;
}

static inline rondo_status offer_one(struct world *w, struct rank *r, int kind, int channel, int peer,
                                     int is_send)
{
    int from = is_send ? r->net.rank : peer, to = is_send ? peer : r->net.rank;
    struct end *end = &r->ends[r->nends];

    if (peer < 0 || peer >= w->nranks || peer == r->net.rank) {
        return RONDO_SUCCESS;
    }
    CHECK(r->nends < MAX_LINKS);
    end->kind = kind;
    RONDO_TRY(rondo_link_offer(&r->net, &end->link, peer, channel, is_send, w->protos, w->net_name,
                               &w->records[channel][kind][from][to][is_send]));
    r->nends++;
    return RONDO_SUCCESS;
}

static inline rondo_status rank_offer(struct world *w, int rank)
{
    struct rank *r = &w->rank[rank];
    int n = w->nranks, parent = rank > 0 ? (rank - 1) / 2 : -1;

    for (int c = 0; c < CHANNELS; c++) {
        RONDO_TRY(offer_one(w, r, RING, c, (rank + n - 1) % n, 0));
        RONDO_TRY(offer_one(w, r, RING, c, (rank + 1) % n, 1));
        RONDO_TRY(offer_one(w, r, DOWN, c, parent, 0));
        RONDO_TRY(offer_one(w, r, UP, c, parent, 1));
        for (int child = 2 * rank + 1; child <= 2 * rank + 2; child++) {
            RONDO_TRY(offer_one(w, r, UP, c, child, 0));
            RONDO_TRY(offer_one(w, r, DOWN, c, child, 1));
        }
    }
    return RONDO_SUCCESS;
}

/* The record that the other end offered. */
static inline struct rondo_connect *record_of(struct world *w, const struct rank *r, const struct end *end)
{
    int self = r->net.rank, peer = end->link.peer, send = end->link.is_send;

    return &w->records[end->link.channel][end->kind][send ? self : peer][send ? peer : self][!send];
}

static inline rondo_status rank_connect(struct world *w, int rank)
{
    struct rank *r = &w->rank[rank];

    rondo_status pending = RONDO_SUCCESS;

    for (int i = 0; i < r->nends; i++) {
        rondo_status status = rondo_link_connect(&r->net, &r->ends[i].link, record_of(w, r, &r->ends[i]));
        if (status == RONDO_IN_PROGRESS) {
            pending = status;
        } else {
            RONDO_TRY(status);
        }
    }
    return pending == RONDO_SUCCESS ? rondo_net_connect_all(&r->net) : pending;
}

/* Get the slots of all links, as the first calls do. */
static inline rondo_status rank_wire(struct rank *r)
{
    rondo_status pending = RONDO_SUCCESS;

    for (int i = 0; i < r->nends; i++) {
        rondo_status status = rondo_link_wire(&r->net, &r->ends[i].link);
        if (status == RONDO_IN_PROGRESS) {
            pending = status;
        } else {
            RONDO_TRY(status);
        }
    }
    return pending;
}

static inline rondo_status rank_hello(struct rank *r, int *pending)
{
    struct rondo_link *links[MAX_LINKS + 1] = { NULL };

    for (int i = 0; i < r->nends; i++) {
        links[i] = &r->ends[i].link;
    }
    return rondo_link_hello(links, r->nends + 1, pending);
}

/* Progress proxied conns, as a waiting thread does. */
static inline int rank_progress(struct rank *r)
{
    int moved = 0;

    if (r->net.proxied > 0) {
        CHECK_OK(rondo_net_progress(&r->net, &moved));
    }
    return moved;
}

/* Progress until the rank has nothing in flight. */
static inline void rank_flush(struct rank *r)
{
    int64_t late = rondo_now_ns() + deadline_ns;

    do {
        rank_progress(r);
        CHECK(rondo_now_ns() < late);
    } while (r->net.busy);
}

static inline void rank_close(struct rank *r)
{
    for (int i = 0; i < r->nends; i++) {
        rondo_link_close(&r->net, &r->ends[i].link);
    }
    rondo_net_close(&r->net);
    if (r->world != NULL && r->world->after != NULL) {
        r->world->after(r->world, r);
    }
}

/* The whole life of a rank, with the world's body in the middle. */
static inline void rank_live(struct world *w, int rank)
{
    struct rank *r = &w->rank[rank];
    int64_t end = rondo_now_ns() + deadline_ns;
    int pending;
    rondo_status status;

    CHECK_OK(rank_open(w, rank, MAX_LINKS));
    if (w->between != NULL) {
        w->between(w, r);
    }
    CHECK_OK(w->offer != NULL ? w->offer(w, rank) : rank_offer(w, rank));
    pthread_barrier_wait(&w->barrier);
    while ((status = rank_connect(w, rank)) == RONDO_IN_PROGRESS) {
        CHECK(rondo_now_ns() < end);
        sched_yield();
    }
    CHECK_OK(status);
    pthread_barrier_wait(&w->barrier);
    rondo_net_settle(&r->net);
    while ((status = rank_hello(r, &pending)) == RONDO_IN_PROGRESS) {
        CHECK(pending >= 0 && pending != rank && rondo_now_ns() < end);
        rank_progress(r);
        sched_yield();
    }
    rank_flush(r);
    CHECK_OK(status);
    CHECK(pending == -1);
    while ((status = rank_wire(r)) == RONDO_IN_PROGRESS) {
        CHECK(rondo_now_ns() < end);
        sched_yield();
    }
    CHECK_OK(status);
    w->body(w, r);
    pthread_barrier_wait(&w->barrier);
    rank_close(r);
}

struct thread_arg {
    struct world *w;
    int rank;
};

static inline void *thread_main(void *arg)
{
    const struct thread_arg *a = arg;

    rank_live(a->w, a->rank);
    return NULL;
}

static inline void run_threads(struct world *w)
{
    pthread_t thread[MAX_RANKS];
    struct thread_arg arg[MAX_RANKS];

    for (int i = 0; i < w->nranks; i++) {
        arg[i] = (struct thread_arg){ w, i };
        CHECK(pthread_create(&thread[i], NULL, thread_main, &arg[i]) == 0);
    }
    for (int i = 0; i < w->nranks; i++) {
        pthread_join(thread[i], NULL);
    }
}

/* Connect all ranks, one after the other in this thread. */
static inline void ranks_connect(struct world *w)
{
    for (int i = 0; i < w->nranks; i++) {
        assert_int_equal(rank_open(w, i, MAX_LINKS), RONDO_SUCCESS);
        assert_int_equal(rank_offer(w, i), RONDO_SUCCESS);
    }
    for (int i = 0; i < w->nranks; i++) {
        assert_int_equal(rank_connect(w, i), RONDO_SUCCESS);
    }
    for (int i = 0; i < w->nranks; i++) {
        rondo_net_settle(&w->rank[i].net);
    }
}

static inline void ranks_close(struct world *w)
{
    for (int i = 0; i < w->nranks; i++) {
        rank_close(&w->rank[i]);
    }
}

/* Equal at both ends and different for each conn. */
static inline uint32_t conn_id(const struct rank *r, const struct end *end)
{
    int send = end->link.is_send, self = r->net.rank, peer = end->link.peer;

    return (uint32_t)(((end->link.channel + 1) * KINDS + end->kind) * MAX_RANKS + (send ? self : peer)) *
               MAX_RANKS +
           (uint32_t)(send ? peer : self) + 1;
}

/* Move one slice if there is room or data. @return 1 when something moved. */
static inline int stream_slice(const struct rank *r, struct end *end)
{
    struct rondo_conn *conn = &end->link.conn;
    uint32_t words = conn->slot_bytes[RONDO_PROTO_SIMPLE] / 4, id = conn_id(r, end) * 2654435761u;
    size_t stride = conn->slot_bytes[RONDO_PROTO_SIMPLE] + conn->slot_gap[RONDO_PROTO_SIMPLE];
    uint32_t *slot = (uint32_t *)(conn->slots[RONDO_PROTO_SIMPLE] + conn->step % RONDO_SLOTS * stride);

    if (end->link.is_send) {
        if (__atomic_load_n(&conn->head->head, __ATOMIC_ACQUIRE) + RONDO_SLOTS <= conn->step) {
            return 0;
        }
        for (uint32_t i = 0; i < words; i++) {
            slot[i] = id + (uint32_t)conn->step * 7919 + i;
        }
        conn->tail->call[conn->step % RONDO_SLOTS] = id;
        conn->tail->size[conn->step % RONDO_SLOTS] = rondo_conn_size(conn->step, RONDO_PROTO_SIMPLE,
                                                                     words * 4);
        __atomic_store_n(&conn->tail->tail, ++conn->step, __ATOMIC_RELEASE);
    } else {
        if (__atomic_load_n(&conn->tail->tail, __ATOMIC_ACQUIRE) <= conn->step) {
            conn->wanted = 1;
            return 0;
        }
        for (uint32_t i = 0; i < words; i++) {
            CHECK(slot[i] == id + (uint32_t)conn->step * 7919 + i);
        }
        CHECK(conn->tail->call[conn->step % RONDO_SLOTS] == id);
        conn->wanted = 0;
        __atomic_store_n(&conn->head->head, ++conn->step, __ATOMIC_RELEASE);
    }
    end->slices++;
    return 1;
}

static inline void stream(struct rank *r, struct end *ends, int n, uint64_t slices)
{
    int64_t late = rondo_now_ns() + deadline_ns;
    int open = n;

    while (open > 0) {
        int moved = 0;
        for (int i = 0; i < n; i++) {
            if (ends[i].slices < slices && stream_slice(r, &ends[i])) {
                moved = 1;
                open -= ends[i].slices == slices;
            }
        }
        moved |= rank_progress(r);
        if (!moved) {
            CHECK(rondo_now_ns() < late);
            sched_yield();
        }
    }
    rank_flush(r);
}

/* Every sender fills its slots of all protocols with the conn's number; every receiver must find its own
 * number everywhere. */
static inline void conns_are_apart(struct world *w, const struct rank *r, const struct end *ends, int nends,
                                   uint32_t protos)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < nends; i++) {
            const struct end *end = &ends[i];
            for (int p = 0; p < RONDO_NUM_PROTOS && end->link.is_send == (pass == 0); p++) {
                uint32_t *word = (uint32_t *)end->link.conn.slots[p],
                         n = RONDO_SLOTS * end->link.conn.slot_bytes[p] / 4;
                CHECK((word != NULL) == (protos >> p & 1));
                if (word == NULL) {
                    continue;
                }
                CHECK((uintptr_t)word % RONDO_CTRL_ALIGN == 0 && n == RONDO_SLOTS * w->slot_bytes[p] / 4);
                for (uint32_t k = 0; k < n; k++) {
                    if (pass == 0) {
                        word[k] = conn_id(r, end) + (uint32_t)p * 4096;
                    } else {
                        CHECK(word[k] == conn_id(r, end) + (uint32_t)p * 4096);
                    }
                }
            }
        }
        pthread_barrier_wait(&w->barrier);
    }
}

static inline void body_stream(struct world *w, struct rank *r)
{
    for (int i = 0; i < r->nends; i++) {
        const struct rondo_conn *conn = &r->ends[i].link.conn;
        CHECK(conn->step == 1 && conn->seen == 1 && conn->peer == r->ends[i].link.peer);
        CHECK(w->apart ? strncmp(conn->via, "NET/", 4) == 0
                       : strncmp(conn->via, "SHM/", 4) == 0 &&
                             strcmp(conn->via + 4, rondo_shm_mode_name(w->mode)) == 0);
    }
    if (!w->apart) {
        conns_are_apart(w, r, r->ends, r->nends, w->protos);
    }
    stream(r, r->ends, r->nends, SLICES);
}

/* Lazy links to and from every rank, including itself, made in any order. */
static inline void body_lazy(struct world *w, struct rank *r)
{
    struct end ends[2 * MAX_RANKS];
    int n = 2 * w->nranks, open = n;
    int64_t late = rondo_now_ns() + deadline_ns;

    memset(ends, 0, sizeof(ends));
    for (int i = 0; i < n; i++) {
        CHECK_OK(rondo_link_lazy(&r->net, &ends[i].link, (i / 2 + r->net.rank) % w->nranks, i % 2));
    }
    while (open > 0) {
        CHECK(rondo_now_ns() < late);
        open = 0;
        for (int i = 0; i < n; i++) {
            rondo_status status = rondo_link_connect_lazy(&r->net, &ends[i].link);
            CHECK(status == RONDO_SUCCESS || status == RONDO_IN_PROGRESS);
            open += status == RONDO_IN_PROGRESS;
        }
        sched_yield();
    }
    if (!w->apart) {
        conns_are_apart(w, r, ends, n, 1u << RONDO_PROTO_SIMPLE | r->net.lazy_protos);
    }
    stream(r, ends, n, 50);
    stream(r, r->ends, r->nends, 10);
    for (int i = 0; i < n; i++) {
        CHECK(ends[i].link.conn.channel == -1 &&
              (!w->apart || ends[i].link.protos == 1u << RONDO_PROTO_SIMPLE)); /* a proxy carries it */
        rondo_link_close(&r->net, &ends[i].link);
    }
}

/* ---- ranks that share no memory, in one thread ---- */

/* Two ranks in one thread, connected and past the hello. */
static inline struct world *two_apart(uint32_t slot_bytes)
{
    struct world *w = world_new(2, RONDO_SHM_MODE_MEMFD, slot_bytes);
    int pending, open = 1;
    int64_t late = rondo_now_ns() + deadline_ns;
    world_spread(w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rank_open(w, i, MAX_LINKS), RONDO_SUCCESS);
        assert_int_equal(rank_offer(w, i), RONDO_SUCCESS);
    }
    while (open) {
        open = 0;
        for (int i = 0; i < 2; i++) {
            rondo_status status = rank_connect(w, i);
            assert_true(status == RONDO_SUCCESS || status == RONDO_IN_PROGRESS);
            open |= status != RONDO_SUCCESS;
        }
        assert_true(rondo_now_ns() < late);
    }
    for (open = 1; open;) {
        open = 0;
        for (int i = 0; i < 2; i++) {
            open |= rank_hello(&w->rank[i], &pending) != RONDO_SUCCESS;
            rank_progress(&w->rank[i]);
            open |= w->rank[i].net.busy;
        }
        assert_true(rondo_now_ns() < late);
    }
    for (int i = 0; i < 4; i++) { /* receivers tell, then senders know */
        rondo_status status = rank_wire(&w->rank[i % 2]);
        assert_true(status == RONDO_SUCCESS || (status == RONDO_IN_PROGRESS && i == 0));
    }
    return w;
}

static inline const struct rondo_net_end *net_end(const struct end *end) { return end->link.state; }

static inline struct end *first_end(struct rank *r, int is_send)
{
    for (int i = 0; i < r->nends; i++) {
        if (r->ends[i].link.is_send == is_send) {
            return &r->ends[i];
        }
    }
    return NULL;
}

static const enum rondo_shm_mode modes[] = { RONDO_SHM_MODE_MEMFD, RONDO_SHM_MODE_SOCKET,
                                             RONDO_SHM_MODE_FILE };

#endif
