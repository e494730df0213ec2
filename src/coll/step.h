/*
 * A schedule is a pure function of where a rank sits and of k: what to do at step k with which block, from
 * whom and to whom. For every loop of a work (coll/chunk.h) the executor runs k = 0 .. nsteps - 1. Ports name
 * neighbours (base/conn.h).
 *
 * What an act means, on the block's elements:
 *   source  = RECV ? received : in
 *   REDUCE:  source = received[0] op received[1] ... op in      (left to right; `in` last)
 *   FINISH:  the reduction is complete here: apply the call's last operation (divide, for avg)
 *   COPY:    out = source;   SEND: every `to` port gets source
 *   OWN_FIRST: `in` comes first in the reduction;   OWN_OUT: `in` is what an earlier step left in out
 * A step whose block is empty in this loop is skipped on every rank alike.
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
 * RONDO_PUBLISH: put the block's `in` on the mailbox for everyone; RONDO_COLLECT: the source is every
 * rank's post, reduced in rank order (REDUCE), or each the block of its rank. Of a broadcast only the root
 * has something to post, and the source is its post. RONDO_OPEN: from here on ranks reach into one another's
 * buffers, or the run ends (exec.h); RONDO_CLOSE: nobody goes on before everyone has come here. Between them:
 *   PULL: the source is every rank's `in`, reduced in rank order (REDUCE), or `in` of the rank that has the
 * block; PULL_ROOT: the root's PUSH: `out` of every rank gets it; PUSH_ROOT: the root's; COPY: this rank's
 * GROUPS, with the acts between them: for every block that this rank holds at the step's level
 * (layout/nest.h), from and to those that hold it in the groups inside that. PULL: what they have for it,
 * their `in` where these are ranks, else their `out`, reduced in the order of positions; without PULL: what
 * this rank has in its `out`. Where several loops have them OPEN is passed in the first one only and CLOSE in
 * the last.
 */

struct rondo_step {
    uint16_t act; /* 0: nothing */
    uint8_t nfrom, nto, level;
    uint8_t from[RONDO_TREE_FAN], to[RONDO_TREE_FAN]; /* enum rondo_port, in order of reduction */
    int32_t block; /* which block of the loop: ring position; 0 where there is one block */
};

#define RONDO_ENUM_ROW_(ctx, name, NAME, ...) RONDO_COLL_##NAME,
enum rondo_coll { RONDO_COLL_TABLE(RONDO_ENUM_ROW_, ) RONDO_NUM_COLLS };
#undef RONDO_ENUM_ROW_

#define RONDO_ENUM_ROW_(ctx, name, NAME, ...) RONDO_ALGO_##NAME,
enum rondo_algo { RONDO_ALGO_TABLE(RONDO_ENUM_ROW_, ) RONDO_NUM_ALGOS };
#undef RONDO_ENUM_ROW_

/* How blocks map to elements: coll/chunk.h. */
enum rondo_map { RONDO_MAP_SPLIT, RONDO_MAP_BLOCK, RONDO_MAP_WHOLE };

RONDO_FN struct rondo_step rondo_step_none(void)
{
    struct rondo_step s;
    s.act = s.nfrom = s.nto = s.level = 0;
    for (int i = 0; i < RONDO_TREE_FAN; i++) s.from[i] = s.to[i] = 0;
    s.block = 0;
    return s;
}

/* One port more. Written so that a thread of a GPU can hold a step in registers: what is indexed by a
 * variable has none. */
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

/* A step that receives from and sends to one port each, as far as the act says so. */
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
