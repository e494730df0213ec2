/* What a cost (cost.c) and the choice among them (cost_choose.c) both go by. */
#ifndef RONDO_TUNER_COST_IMPL_H
#define RONDO_TUNER_COST_IMPL_H

#include "base/mailbox.h"
#include "coll/algo.h"

/* v-forms are one channel's work (coll/chunk.h), and so is what has one peer or a mailbox. */
static inline int rondo_one_channel(enum rondo_coll coll)
{
    return coll == RONDO_COLL_ALL_GATHERV || coll == RONDO_COLL_REDUCE_SCATTERV ||
           rondo_coll_scheduled_as(coll) == RONDO_COLL_SEND ||
           rondo_coll_scheduled_as(coll) == RONDO_COLL_RECV;
}

/* One for all and all for one have places of their own. mailbox: payload bytes of the others. */
static inline size_t rondo_most_posted(enum rondo_coll coll, const struct rondo_layout *layout,
                                       size_t mailbox)
{
    int v = coll == RONDO_COLL_ALL_GATHERV || coll == RONDO_COLL_REDUCE_SCATTERV;
    return rondo_coll_has_root(coll)     ? rondo_rooted_capacity(mailbox)
           : rondo_is_pair(layout) && !v ? SIZE_MAX
                                         : mailbox;
}

#endif
