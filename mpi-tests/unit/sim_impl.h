/* Private header of the simulation: sim.c (the executor), sim_direct.c (mailbox and direct access) and
 * sim_buffers.c (buffers, connections, results). Contract: sim.h. */
#ifndef RONDO_TESTS_SIM_IMPL_H
#define RONDO_TESTS_SIM_IMPL_H

#include "base/mailbox.h"
#include "coll/chunk.h"
#include "sim.h"

struct elem {
    uint64_t sum, order;
};

struct message {
    size_t loop, at, n;
    int32_t block;
};

struct conn {
    int to; /* rank; -1: does not exist */
    int to_port;
    uint64_t head, tail;
    struct message message[RONDO_SLOTS];
    struct elem *data; /* RONDO_SLOTS slices, allocated for the first message */
};

struct flow {
    size_t loop, done;
    uint32_t k;
    int entered, finished, met; /* met: it has reached its current OPEN or CLOSE */
    int block;                  /* of a move with GROUPS */
    struct rondo_step step;
    struct rondo_span span;
};

/* A place of the mailbox in one bank. */
struct place {
    uint32_t op;
    int reads;
    size_t n;
    struct elem *data;
};

struct rank {
    struct rondo_work work;
    const struct rondo_schedule *schedule;
    size_t nloops, nin, nout;
    struct elem *in, *out; /* NULL: the call has none */
    struct elem *in_memory, *out_memory;
    uint8_t *writes;
    struct flow flow[2];
    struct conn send[RONDO_NUM_PORTS];
    struct conn *recv[RONDO_NUM_PORTS];
    int receives_from[RONDO_NUM_PORTS];
    struct place place[RONDO_ROOTED_BANKS]; /* for rooted calls; others use the first RONDO_MAILBOX_BANKS */
    uint32_t op, meetings;                  /* published; OPENs and CLOSEs reached */
    uint32_t moves;                         /* made with GROUPS */
};

struct sim {
    const struct sim_case *c;
    struct sim_result *result;
    struct rondo_layout *layout;
    int n;
    struct rank *rank;
    size_t *displs;
    int *pool, npool; /* flows that may be able to move: 2 * rank + flow */
    uint8_t *in_pool;
    uint64_t random;
    size_t open; /* unfinished flows */
};

/* ---- elements ---- */

/* Record the run's first failure. */
void sim_fail(struct sim *s, const char *fmt, ...) RONDO_PRINTF(2, 3);

static inline struct elem value_of(int rank, size_t at)
{
    uint64_t state = (uint64_t)rank << 40 ^ at;
    struct elem e;
    e.sum = e.order = sim_random(&state);
    return e;
}

static inline struct elem reduce(struct elem a, struct elem b)
{
    uint64_t state = a.order * 31 + b.order;
    a.sum += b.sum;
    a.order = sim_random(&state);
    return a;
}

static inline struct elem finish(struct elem a)
{
    uint64_t state = a.order ^ 0xf1;
    a.sum = a.sum * 3 + 1;
    a.order = sim_random(&state);
    return a;
}

/* ---- the call ---- */

static inline enum rondo_coll coll_of(const struct sim *s, int rank)
{
    return s->c->coll == RONDO_COLL_SEND && rank % 2 == 1 ? RONDO_COLL_RECV : s->c->coll;
}

static inline size_t count_of(const struct sim *s, int rank)
{
    return s->c->counts != NULL ? s->c->counts[rank] : s->c->len;
}

static inline void count_moved(const struct sim *s, int from, int to, size_t n)
{
    if (s->c->moved != NULL && from != to) {
        s->c->moved[from * s->n + to] += n;
    }
}

/* ---- buffers, conns, results ---- */

/** Elements of a buffer that holds every rank's block. */
size_t sim_gathered(const struct sim *s);
/** all: the elements of sim_gathered(). */
void sim_make_buffers(struct sim *s, int r, size_t all);
/** Connect both ends as creation does: a parent's child i and that child's parent have one connection each
 * way. */
void sim_connect_rank(struct sim *s, int channel, int r);
void sim_make_work(struct sim *s, int channel, int r);
void sim_check_results(struct sim *s, size_t all);

/* ---- the executor ---- */

/** Rank r's flows may be able to move. */
void sim_wake(struct sim *s, int r);
/** again: an earlier step has written it. */
void sim_put_out(struct sim *s, int r, size_t at, struct elem e, int again);
struct elem sim_get_in(struct sim *s, int r, size_t at);
/* The rank's own operand of the flow's block: its input, or what an earlier step made of it. */
struct elem sim_get_own(struct sim *s, int r, const struct flow *flow, size_t at);

/* Steps over the mailbox. @return 1: moved, 0: blocked. */
int sim_publish(struct sim *s, int r, const struct flow *flow);
int sim_collect(struct sim *s, int r, const struct flow *flow);
int sim_meet(struct sim *s, int r, struct flow *flow);
/** Between OPEN and CLOSE: a slice, between ranks' buffers. */
void sim_move_open(struct sim *s, int r, struct flow *flow);
/** Move one block. */
int sim_move_groups(struct sim *s, int r, struct flow *flow);

#endif
