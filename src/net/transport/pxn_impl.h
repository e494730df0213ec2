/* What a net's state has of PXN: its relay's part (pxn_relay.c) and its senders' (pxn_sender.c). Contract:
 * net/transport/pxn.h. */
#ifndef RONDO_NET_TRANSPORT_PXN_IMPL_H
#define RONDO_NET_TRANSPORT_PXN_IMPL_H

#include "net/transport/pxn.h"

/* Of another rank. */
struct rondo_pxn_process {
    int32_t pid;
    uint64_t start; /* rondo_process_start; 0: not known */
};

/* A local rank's relay, as it is open here for conns of ours. */
struct rondo_pxn_map {
    struct rondo_shm shm;
    struct rondo_pxn_header *header; /* NULL: not open */
    struct rondo_gpu_mem block;      /* base NULL: it has none */
    int ncells;                      /* as it was when it was looked at */
    int shut;                        /* it could not be opened: not tried again */
    struct rondo_pxn_process owner;  /* its relay */
};

/* An end's. */
struct rondo_pxn_use {
    struct rondo_pxn_map *map;
    struct rondo_pxn_cell *cell;
    int relay; /* its rank */
    int asked; /* theirs is written */
    int64_t
        still_ns; /* when its head was first seen where it is, or its relay was looked at last; 0: it moves */
};

enum { RONDO_PXN_LOOK_NS = 500000000 }; /* how often a process that says nothing is looked at */

struct rondo_pxn_thread;
struct rondo_pxn {
    struct rondo_pxn_map *map; /* by local rank; NULL: none was needed */
    struct rondo_pxn_thread *relay;
};

/** A rank's, while it is known to be alive. Has it ended? Also when nobody has waited for it yet, or another
 * process has got its pid. */
struct rondo_pxn_process rondo_pxn_process(const struct rondo_net *net, int rank);
int rondo_pxn_is_dead(const struct rondo_pxn_process *process);
/** The cell's relay has failed, with this thread's sentence. */
void rondo_pxn_cell_fail(struct rondo_pxn_cell *cell, rondo_status status);
/** The state's, made at first use. */
rondo_status rondo_pxn_get(struct rondo_net_state *state, struct rondo_pxn **pxn);
/** What a relay holds of memory. */
void rondo_pxn_relay_settle(struct rondo_pxn_thread *relay);
/** Its communicator goes: it stays as long as senders are there. */
void rondo_pxn_relay_leave(struct rondo_pxn_thread *relay);

static inline uint32_t rondo_pxn_load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
static inline void rondo_pxn_store(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
static inline int rondo_pxn_swap(uint32_t *word, uint32_t from, uint32_t to)
{
    return __atomic_compare_exchange_n(word, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

#endif
