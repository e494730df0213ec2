/*
 * The slots of receiving links, and RONDO_MEM_LIMIT. A process that needs slots beyond the limit first gives
 * back those of other links that have rested longest. A link whose slots are gone gets slots again when a run
 * uses it. Slots in use stay, so calls that need more than the limit at once exceed it.
 *
 * Slots go only when neither end uses them and all that was posted is consumed. A word in the sender's line
 * decides (rondo_use):
 *
 *     step << 2 | RESTS   no run of the sender uses the link, on which it has posted `step` slices
 *                 USED    a run of the sender may post
 *                 GONE    the receiver has given the slots back
 *
 *     sender    a run begins   RESTS -> USED, by a compare and swap; GONE: it has no credit and tries again
 *               a run ends     USED -> RESTS, with its step
 *     receiver  gives back     RESTS -> GONE, by a compare and swap, with the step that its last run ended at
 *               a run begins   GONE -> RESTS, once the slots are there
 *
 * Steps only grow, so a swap fails if anything was posted meanwhile. Only pages go: the part keeps its place,
 * which the sender has mapped, so nobody is told of anything.
 *
 * All functions may be called by any thread; those of one link by one thread at a time.
 */
#ifndef RONDO_NET_TRANSPORT_SLOTS_H
#define RONDO_NET_TRANSPORT_SLOTS_H

#include "base/shm.h"

enum rondo_use { RONDO_USE_RESTS, RONDO_USE_USED, RONDO_USE_GONE };

/* The slots of one receiving link. Zeroed: it has none. */
struct rondo_slots {
    struct rondo_shm part;           /* base NULL: none */
    size_t bytes;                    /* whole pages */
    uint64_t *use;                   /* the sender's word; NULL: these slots are never given back */
    uint64_t step;                   /* resting: what the word says if all is consumed */
    struct rondo_slots *prev, *next; /* in the list of those that rest */
    uint8_t state;                   /* enum rondo_use, of the receiver */
    unsigned life;                   /* of the process: a forked child has another */
};

/** Take slots for a run that begins. use NULL: no limit applies to them. step: the slices consumed so far;
 * the sender may use its word once it has been told of the slots. */
rondo_status rondo_slots_take(struct rondo_slots *slots, size_t bytes, enum rondo_shm_mode mode,
                              uint64_t *use, uint64_t step);
/** A run of the receiver begins: get slots again if they are gone. On error they stay gone. */
rondo_status rondo_slots_begin(struct rondo_slots *slots);
/** A run of the receiver has ended, after `step` slices. */
void rondo_slots_rest(struct rondo_slots *slots, uint64_t step);
/** Close the part. Safe on zeroed slots. */
void rondo_slots_close(struct rondo_slots *slots);

/** A run of the sender begins. @return 0: the receiver has no slots. */
int rondo_use_begin(uint64_t *use, uint64_t step);
/** A run of the sender has ended. */
void rondo_use_rest(uint64_t *use, uint64_t step);

/* What this process has, of slots that may be given back. */
struct rondo_slots_held {
    size_t bytes;       /* with pages now */
    size_t links;       /* these have them */
    size_t resting;     /* of which so many rest */
    uint64_t gone, got; /* since the process began: how often slots were given back, and taken again */
};
void rondo_slots_look(struct rondo_slots_held *held);

#endif
