/*
 * Schedules on a binary tree, one step a loop. Between a parent and a child there is a conn each way, so
 * the same tree serves any root: seen from root r, every position has one neighbour towards r
 * (seat->toward) and the others away from it. all_reduce uses the tree's own root, and two flows. A
 * position has at most RONDO_TREE_FAN neighbours. In trees over four or more nodes of GPUs a rank may have
 * one more: the cost model leaves such trees (wide_trees) to all_reduce, for a step has no room for
 * a fourth source or destination. A tree of one position copies. Pure functions, shared with CUDA.
 */
#ifndef RONDO_COLL_TREE_H
#define RONDO_COLL_TREE_H

#include "coll/step.h"

/* Neighbour 0 is the parent, neighbour i is child i - 1; that gives the port in both directions. */
RONDO_FN int rondo_tree_has(const struct rondo_seat *seat, int32_t i)
{
    return i > 0 ? i <= seat->nchildren : seat->parent >= 0;
}

/* Receive from all neighbours but `except` (-1: none), in the order of their ports. */
RONDO_FN void rondo_tree_from_others(const struct rondo_seat *seat, int32_t except, struct rondo_step *s)
{
    RONDO_UNROLLED for (int32_t i = 0; i <= RONDO_TREE_FAN; i++)
    {
        if (i != except && rondo_tree_has(seat, i)) rondo_step_from(s, RONDO_PORT_PARENT + i);
    }
    if (s->nfrom > 0) s->act |= RONDO_RECV | RONDO_REDUCE;
}

RONDO_FN void rondo_tree_to_others(const struct rondo_seat *seat, int32_t except, struct rondo_step *s)
{
    RONDO_UNROLLED for (int32_t i = 0; i <= RONDO_TREE_FAN; i++)
    {
        if (i != except && rondo_tree_has(seat, i)) rondo_step_to(s, RONDO_PORT_PARENT + i);
    }
    if (s->nto > 0) s->act |= RONDO_SEND;
}

RONDO_FN uint32_t rondo_rooted_up_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 1;
}

/* reduce: data moves towards the root. */
RONDO_FN struct rondo_step rondo_rooted_up_step(const struct rondo_seat *seat, uint32_t k)
{
    struct rondo_step s = rondo_step_none();
    (void)k;
    rondo_tree_from_others(seat, seat->toward, &s);
    if (seat->toward < 0) {
        s.act |= RONDO_FINISH | RONDO_COPY;
    } else {
        rondo_step_to(&s, RONDO_PORT_PARENT + seat->toward);
        s.act |= RONDO_SEND;
    }
    return s;
}

RONDO_FN uint32_t rondo_rooted_down_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 1;
}

/* broadcast: data moves away from the root. */
RONDO_FN struct rondo_step rondo_rooted_down_step(const struct rondo_seat *seat, uint32_t k)
{
    struct rondo_step s = rondo_step_none();
    (void)k;
    s.act = RONDO_COPY;
    if (seat->toward >= 0) {
        rondo_step_from(&s, RONDO_PORT_PARENT + seat->toward);
        s.act |= RONDO_RECV;
    }
    rondo_tree_to_others(seat, seat->toward, &s);
    return s;
}

RONDO_FN uint32_t rondo_tree_up_nsteps(const struct rondo_seat *seat)
{
    (void)seat;
    return 1;
}

/* all_reduce, flow 0: reduce to the tree's root, which shares the result in the same step, while it is in its
 * cache. */
RONDO_FN struct rondo_step rondo_tree_up_step(const struct rondo_seat *seat, uint32_t k)
{
    struct rondo_step s = rondo_step_none();
    (void)k;
    rondo_tree_from_others(seat, 0, &s);
    if (seat->parent >= 0) {
        rondo_step_to(&s, RONDO_PORT_PARENT);
        s.act |= RONDO_SEND;
    } else {
        s.act |= RONDO_FINISH | RONDO_COPY;
        rondo_tree_to_others(seat, 0, &s);
    }
    return s;
}

RONDO_FN uint32_t rondo_tree_down_nsteps(const struct rondo_seat *seat) { return seat->parent >= 0; }

/* all_reduce, flow 1: share the result. */
RONDO_FN struct rondo_step rondo_tree_down_step(const struct rondo_seat *seat, uint32_t k)
{
    struct rondo_step s = rondo_step_none();
    (void)k;
    rondo_step_from(&s, RONDO_PORT_PARENT);
    s.act = RONDO_RECV | RONDO_COPY;
    rondo_tree_to_others(seat, 0, &s);
    return s;
}

#endif
