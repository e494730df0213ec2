/* For tests of split and shrink. */
#ifndef RONDO_TESTS_CHILD_CHECK_H
#define RONDO_TESTS_CHILD_CHECK_H

#include <sched.h>

#include "fake_ranks.h"

/* Check that the child works and has these members. members: ranks of the parent, in the child's order. */
static inline void check_child(struct fake_rank *r, rondo_comm *child, const int *members, int n)
{
    int count = -1, rank = -1, mine = r->rank, all[16] = { 0 };
    FAKE_OK(r, rondo_comm_count(child, &count));
    FAKE_OK(r, rondo_comm_rank(child, &rank));
    FAKE_CHECK(r, count == n && members[rank] == r->rank, "%d ranks, place %d", count, rank);
    FAKE_OK(r, rondo_all_gather(&mine, all, 1, RONDO_INT32, child, NULL));
    for (int i = 0; i < n; i++) {
        FAKE_CHECK(r, all[i] == members[i], "member %d is rank %d", i, all[i]);
    }
    struct fake_rank view = { .rank = rank, .nranks = n, .comm = child };
    fake_call(&view, (struct fake_call){ .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .count = 3000 },
              NULL);
    fake_call(&view, (struct fake_call){ .coll = FAKE_ALL_TO_ALL, .type = RONDO_INT32, .count = 5 }, NULL);
    FAKE_CHECK(r, view.failure[0] == '\0', "%s", view.failure);
}

static inline rondo_status poll_child(rondo_comm *child)
{
    rondo_status error = RONDO_IN_PROGRESS, status = RONDO_SUCCESS;
    while (status == RONDO_SUCCESS && error == RONDO_IN_PROGRESS) {
        status = rondo_comm_async_error(child, &error);
        sched_yield();
    }
    return status != RONDO_SUCCESS ? status : error;
}

#endif
