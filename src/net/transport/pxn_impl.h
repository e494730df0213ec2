/* PXN's private state: the relay's part (pxn_relay.c) and the senders' part (pxn_sender.c). Contract:
 * net/transport/pxn.h. */
#ifndef RONDO_NET_TRANSPORT_PXN_IMPL_H
#define RONDO_NET_TRANSPORT_PXN_IMPL_H

#include "net/transport/pxn.h"

/* The process of another rank. */
struct rondo_pxn_process {
    int32_t pid;
    uint64_t start; /* rondo_process_start; 0: unknown */
};

/* A local rank's relay, opened here for this rank's conns. */
struct rondo_pxn_map {
    struct rondo_shm shm;
    struct rondo_pxn_header *header; /* NULL: not open */
    struct rondo_gpu_mem block;      /* base NULL: it has no block */
    int ncells;                      /* read once, when opened */
    int shut;                        /* opening failed: not tried again */
    struct rondo_pxn_process owner;  /* the relay's process */
};

/* A sending end's use of a relay. */
struct rondo_pxn_use {
    struct rondo_pxn_map *map;
    struct rondo_pxn_cell *cell;
    int relay;        /* rank */
    int asked;        /* `theirs` is written */
    int64_t still_ns; /* when the head was first seen at its present value, or the relay's process was last
                   * checked; 0: the head moves */
};

enum { RONDO_PXN_LOOK_NS = 500000000 }; /* interval between checks of a process that does not answer */

struct rondo_pxn_thread;
struct rondo_pxn {
    struct rondo_pxn_map *map; /* by local rank; NULL: no sender needed one */
    struct rondo_pxn_thread *relay;
};

/** Identify a rank's process while it is known to be alive. rondo_pxn_is_dead tells whether it has ended,
 * even if it is a zombie or another process has its pid now. */
struct rondo_pxn_process rondo_pxn_process(const struct rondo_net *net, int rank);
int rondo_pxn_is_dead(const struct rondo_pxn_process *process);
/** Mark the cell's relay as failed, with this thread's error sentence. */
void rondo_pxn_cell_fail(struct rondo_pxn_cell *cell, rondo_status status);
/** Get the state's rondo_pxn; the first call creates it. */
rondo_status rondo_pxn_get(struct rondo_net_state *state, struct rondo_pxn **pxn);
/** Release the names of the relay's memory. */
void rondo_pxn_relay_settle(struct rondo_pxn_thread *relay);
/** The relay's communicator closes: the relay stays until its senders have left. */
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
