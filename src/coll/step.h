/*
 * A schedule is a pure function of a rank's seat and of k: what to do at step k with which block, from whom
 * and to whom. The executor runs k = 0 .. nsteps - 1 for every loop of a work (coll/chunk.h). Ports name
 * neighbours (base/conn.h).
 *
 * Acts on the block's elements:
 *   source     = RECV ? received : in
 *   REDUCE     source = received[0] op received[1] ... op in, left to right, `in` last
 *   FINISH     the reduction is complete: apply the call's last operation (divide, for avg)
 *   COPY       out = source
 *   SEND       send source to every `to` port
 *   OWN_FIRST  `in` comes first in the reduction
 *   OWN_OUT    `in` is what an earlier step left in out
 * All ranks skip a step whose block is empty in this loop.
 */
#ifndef RONDO_COLL_STEP_H
#define RONDO_COLL_STEP_H

#include "base/conn.h"
#include "coll/work.h"
#include "coll/coll.def"

enum rondo_act {
    RONDO_RECV = 1,
    RONDO_REDUCE = 2,
    RONDO_COPY = 4,
    RONDO_SEND = 8,
    RONDO_FINISH = 16,
    RONDO_PUBLISH = 32,
    RONDO_COLLECT = 64,
    RONDO_OWN_FIRST = 128,
    RONDO_OWN_OUT = 256,
    RONDO_OPEN = 512,
    RONDO_CLOSE = 1024,
    RONDO_PULL = 2048,
    RONDO_PULL_ROOT = 4096,
    RONDO_PUSH = 8192,
    RONDO_PUSH_ROOT = 16384,
    RONDO_GROUPS = 32768
};
/*
 * RONDO_PUBLISH: put the block's `in` into the mailbox for everyone. RONDO_COLLECT: the source is every
 * rank's message, reduced in rank order (REDUCE), or each the block of its rank. In a broadcast only the
 * root's message has a payload, and the source is that.
 *
 * RONDO_OPEN: ranks get direct access to one another's buffers, or the run ends (exec.h). RONDO_CLOSE: wait
 * until every rank has come here. Between them:
 *   PULL       the source is every rank's `in`, reduced in rank order (REDUCE), or `in` of the block's rank
 *   PULL_ROOT  the source is the root's `in`
 *   PUSH       copy to every rank's `out`
 *   PUSH_ROOT  copy to the root's `out`
 *   COPY       copy to this rank's `out`
 *   GROUPS     with these acts: for every block that this rank holds at the step's level (layout/nest.h),
 *              from and to its holders in the groups inside. PULL: their `in` where they are ranks, else
 *              their `out`, reduced in the order of positions; without PULL the source is this rank's `out`
 * With several loops, only the first has OPEN and only the last has CLOSE.
 */

struct rondo_step {
    uint16_t act; /* 0: nothing */
    uint8_t nfrom, nto, level;
    uint8_t from[RONDO_TREE_FAN], to[RONDO_TREE_FAN]; /* enum rondo_port, in order of reduction */
    int32_t block; /* block of the loop: ring position; 0 if there is one block */
};

#define RONDO_ENUM_ROW_(ctx, name, NAME, ...) RONDO_COLL_##NAME,
enum rondo_coll { RONDO_COLL_TABLE(RONDO_ENUM_ROW_, ) RONDO_NUM_COLLS };
#undef RONDO_ENUM_ROW_

#define RONDO_ENUM_ROW_(ctx, name, NAME, ...) RONDO_ALGO_##NAME,
enum rondo_algo { RONDO_ALGO_TABLE(RONDO_ENUM_ROW_, ) RONDO_NUM_ALGOS };
#undef RONDO_ENUM_ROW_

/* Properties of algorithms (coll/coll.def); algo: enum rondo_algo. */
enum rondo_medium { RONDO_MEDIUM_CONNS, RONDO_MEDIUM_MAILBOX, RONDO_MEDIUM_DIRECT };
enum rondo_seating {
    RONDO_SEATING_RING,
    RONDO_SEATING_TREE,
    RONDO_SEATING_DIMS,
    RONDO_SEATING_PEER,
    RONDO_SEATING_RANKS,
    RONDO_SEATING_GROUPS
};
enum { RONDO_NUM_SEATINGS = RONDO_SEATING_GROUPS + 1 };
#define RONDO_ALGO_CASE_(ctx, name, NAME, medium, ...) algo == RONDO_ALGO_##NAME ? RONDO_MEDIUM_##medium:
RONDO_FN enum rondo_medium rondo_algo_medium(uint32_t algo)
{
    return RONDO_ALGO_TABLE(RONDO_ALGO_CASE_, ) RONDO_MEDIUM_CONNS;
}
#undef RONDO_ALGO_CASE_
#define RONDO_ALGO_CASE_(ctx, name, NAME, medium, seating, ...) \
    algo == RONDO_ALGO_##NAME ? RONDO_SEATING_##seating:
RONDO_FN enum rondo_seating rondo_algo_seating(uint32_t algo)
{
    return RONDO_ALGO_TABLE(RONDO_ALGO_CASE_, ) RONDO_SEATING_RANKS;
}
#undef RONDO_ALGO_CASE_

/* How blocks map to elements (coll/chunk.h). */
enum rondo_map { RONDO_MAP_SPLIT, RONDO_MAP_BLOCK, RONDO_MAP_WHOLE };

RONDO_FN struct rondo_step rondo_step_none(void)
{
    struct rondo_step s;
    s.act = s.nfrom = s.nto = s.level = 0;
    for (int i = 0; i < RONDO_TREE_FAN; i++) s.from[i] = s.to[i] = 0;
    s.block = 0;
    return s;
}

/* Add a port. A GPU thread keeps a step in registers, which cannot be indexed by a variable. */
RONDO_FN void rondo_step_from(struct rondo_step *s, int port)
{
    RONDO_UNROLLED for (int i = 0; i < RONDO_TREE_FAN; i++)
    {
        if (i == s->nfrom) s->from[i] = (uint8_t)port;
    }
    s->nfrom++;
}
RONDO_FN void rondo_step_to(struct rondo_step *s, int port)
{
    RONDO_UNROLLED for (int i = 0; i < RONDO_TREE_FAN; i++)
    {
        if (i == s->nto) s->to[i] = (uint8_t)port;
    }
    s->nto++;
}

/* A step that receives from and sends to one port each, if the act says so. */
RONDO_FN struct rondo_step rondo_step_on(uint32_t act, enum rondo_port port, int32_t block)
{
    struct rondo_step s = rondo_step_none();
    s.act = (uint16_t)act;
    s.nfrom = (act & RONDO_RECV) != 0;
    s.nto = (act & RONDO_SEND) != 0;
    s.from[0] = s.to[0] = (uint8_t)port;
    s.block = block;
    return s;
}

#endif
