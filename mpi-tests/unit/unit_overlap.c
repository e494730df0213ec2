/* Send and receive buffers that overlap are refused, unless they lie in place; counts per rank may
 * interleave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fake_ranks.h"

enum { RANKS = 3, COUNT = 4, ROOT = 1, SPAN = RANKS * COUNT, ROOM = 4 * SPAN };

enum call {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    NUM_CALLS
};
/* Elements of the two buffers in counts; recv - send in place, in elements, for this rank. */
static const struct {
    const char *name;
    int sends, receives, sends_own, receives_own, root_only;
} calls[NUM_CALLS] = {
    [ALL_REDUCE] = { "all_reduce", 1, 1, 0, 0, 0 },
    [REDUCE] = { "reduce", 1, 1, 0, 0, 1 },
    [BROADCAST] = { "broadcast", 1, 1, 0, 0, 1 },
    [ALL_GATHER] = { "all_gather", 1, RANKS, 0, 1, 0 },
    [REDUCE_SCATTER] = { "reduce_scatter", RANKS, 1, 1, 0, 0 },
    [ALL_TO_ALL] = { "all_to_all", RANKS, RANKS, 0, 0, 0 },
    [GATHER] = { "gather", 1, RANKS, 0, 1, 1 },
    [SCATTER] = { "scatter", RANKS, 1, 1, 0, 1 },
};

static rondo_status make(enum call call, const int32_t *send, int32_t *recv, rondo_comm *comm)
{
    switch (call) {
    case ALL_REDUCE: return rondo_all_reduce(send, recv, COUNT, RONDO_INT32, RONDO_SUM, comm, NULL);
    case REDUCE: return rondo_reduce(send, recv, COUNT, RONDO_INT32, RONDO_SUM, ROOT, comm, NULL);
    case BROADCAST: return rondo_broadcast(send, recv, COUNT, RONDO_INT32, ROOT, comm, NULL);
    case ALL_GATHER: return rondo_all_gather(send, recv, COUNT, RONDO_INT32, comm, NULL);
    case REDUCE_SCATTER: return rondo_reduce_scatter(send, recv, COUNT, RONDO_INT32, RONDO_SUM, comm, NULL);
    case ALL_TO_ALL: return rondo_all_to_all(send, recv, COUNT, RONDO_INT32, comm, NULL);
    case GATHER: return rondo_gather(send, recv, COUNT, RONDO_INT32, ROOT, comm, NULL);
    default: return rondo_scatter(send, recv, COUNT, RONDO_INT32, ROOT, comm, NULL);
    }
}

static int is_in_place(enum call call, int rank, int distance)
{
    return distance == COUNT * rank * (calls[call].sends_own - calls[call].receives_own) ||
           (call == REDUCE_SCATTER && distance == 0);
}

/* A call that is refused is made by one rank only: nobody waits for the others. */
static void every_distance(struct fake_rank *r)
{
    static _Thread_local int32_t memory[ROOM];
    int32_t *send = memory + SPAN;
    for (enum call call = 0; call < NUM_CALLS; call++) {
        int sent = COUNT * calls[call].sends, received = COUNT * calls[call].receives;
        if (calls[call].root_only && r->rank != ROOT) {
            continue;
        }
        for (int distance = 1 - received; distance < sent; distance++) {
            if (!is_in_place(call, r->rank, distance)) {
                FAKE_ERROR(r, make(call, send, send + distance, r->comm), RONDO_INVALID_ARGUMENT, "overlap");
                FAKE_CHECK(r, fake_has(rondo_last_error(r->comm), calls[call].name), "%s",
                           rondo_last_error(r->comm));
            }
        }
    }
}

/* In place, and with the buffers next to each other, thrice each: from the second on small calls take the
 * fast path, which refuses too. */
static void what_is_allowed(struct fake_rank *r)
{
    static _Thread_local int32_t memory[ROOM];
    for (enum call call = 0; call < NUM_CALLS; call++) {
        int sent = COUNT * (calls[call].sends == 1 ? 1 : r->nranks),
            received = COUNT * (calls[call].receives == 1 ? 1 : r->nranks);
        int in_place = COUNT * r->rank * (calls[call].sends_own - calls[call].receives_own);
        int distance[] = { in_place, sent, -received, call == REDUCE_SCATTER ? 0 : in_place };
        for (size_t d = 0; d < sizeof(distance) / sizeof(*distance); d++) {
            int32_t *send = memory + SPAN, *recv = send + distance[d];
            for (int time = 0; time < 3; time++) {
                memset(memory, 0, sizeof(memory));
                FAKE_OK(r, make(call, send, recv, r->comm));
                if (!calls[call].root_only || r->rank == ROOT) {
                    FAKE_ERROR(r, make(call, send, send + 1 - received, r->comm), RONDO_INVALID_ARGUMENT,
                               "overlap");
                }
            }
        }
    }
}

static void overlapping_buffers_are_refused_at_every_distance_but_in_place(void **state)
{
    (void)state;
    fake_ranks(RANKS, every_distance, NULL);
}

static void disjoint_and_in_place_buffers_are_accepted_again_and_again(void **state)
{
    (void)state;
    fake_ranks(RANKS, what_is_allowed, NULL);
    fake_ranks(2, what_is_allowed, NULL);
}

/* Blocks of 1, 2, 3 elements, with room for the same blocks of the other buffer between them. */
static void blocks(struct fake_rank *r)
{
    static _Thread_local int32_t memory[ROOM];
    size_t counts[RANKS], displs[RANKS], at = 0, own;
    for (int i = 0; i < RANKS; i++) {
        counts[i] = (size_t)i + 1;
        displs[i] = at;
        at += 2 * counts[i];
    }
    own = displs[r->rank];
    FAKE_OK(r, rondo_all_gatherv(memory + own, memory, counts, displs, RONDO_INT32, r->comm, NULL));
    FAKE_OK(r, rondo_all_gatherv(memory + own + counts[r->rank], memory, counts, displs, RONDO_INT32, r->comm,
                                 NULL));
    FAKE_OK(r, rondo_reduce_scatterv(memory, memory + own, counts, displs, RONDO_INT32, RONDO_SUM, r->comm,
                                     NULL));
    FAKE_OK(r, rondo_reduce_scatterv(memory, memory + own + counts[r->rank], counts, displs, RONDO_INT32,
                                     RONDO_SUM, r->comm, NULL));
    for (size_t i = 0; i + counts[r->rank] <= at; i++) {
        int hits = 0;
        for (int k = 0; k < RANKS; k++) {
            hits |= i < displs[k] + counts[k] && displs[k] < i + counts[r->rank];
        }
        if (hits && i != own) {
            FAKE_ERROR(r, rondo_all_gatherv(memory + i, memory, counts, displs, RONDO_INT32, r->comm, NULL),
                       RONDO_INVALID_ARGUMENT, "overlap");
            FAKE_ERROR(r,
                       rondo_reduce_scatterv(memory, memory + i, counts, displs, RONDO_INT32, RONDO_SUM,
                                             r->comm, NULL),
                       RONDO_INVALID_ARGUMENT, "overlap");
        }
    }
}

static void interleaved(struct fake_rank *r)
{
    static _Thread_local int32_t memory[ROOM];
    size_t counts[RANKS] = { 2, 2, 2 }, sdispls[RANKS] = { 8, 0, 4 }, rdispls[RANKS] = { 2, 6, 10 };
    FAKE_OK(r,
            rondo_all_to_allv(memory, counts, sdispls, memory, counts, rdispls, RONDO_INT32, r->comm, NULL));
    for (int k = 0; k < RANKS; k++) {
        rdispls[k]--;
        FAKE_ERROR(
            r,
            rondo_all_to_allv(memory, counts, sdispls, memory, counts, rdispls, RONDO_INT32, r->comm, NULL),
            RONDO_INVALID_ARGUMENT, "overlap");
        rdispls[k]++;
    }
}

/* all_to_allv in place: counts and displacements are equal or left out, and no block overlaps another. */
static void swapped(struct fake_rank *r)
{
    static _Thread_local int32_t x[ROOM];
    size_t counts[RANKS] = { 2, 2, 2 }, displs[RANKS] = { 8, 0, 4 }, others[RANKS] = { 2, 2, 2 };
    FAKE_OK(r, rondo_all_to_allv(x, counts, displs, x, others, displs, RONDO_INT32, r->comm, NULL));
    FAKE_OK(r, rondo_all_to_allv(x, NULL, NULL, x, counts, displs, RONDO_INT32, r->comm, NULL));
    FAKE_ERROR(r, rondo_all_to_allv(x, NULL, NULL, x + ROOM / 2, counts, displs, RONDO_INT32, r->comm, NULL),
               RONDO_INVALID_ARGUMENT, "are NULL");
    others[(r->rank + 1) % RANKS]--;
    FAKE_ERROR(r, rondo_all_to_allv(x, others, displs, x, counts, displs, RONDO_INT32, r->comm, NULL),
               RONDO_INVALID_ARGUMENT, "the same counts and displacements");
    displs[0] = 5;
    FAKE_ERROR(r, rondo_all_to_allv(x, NULL, NULL, x, counts, displs, RONDO_INT32, r->comm, NULL),
               RONDO_INVALID_ARGUMENT, "disjoint");
}

static void blocks_of_calls_with_counts_may_interleave_but_not_overlap(void **state)
{
    (void)state;
    fake_ranks(RANKS, blocks, NULL);
    fake_ranks(RANKS, interleaved, NULL);
    fake_ranks(RANKS, swapped, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlapping_buffers_are_refused_at_every_distance_but_in_place),
        cmocka_unit_test(disjoint_and_in_place_buffers_are_accepted_again_and_again),
        cmocka_unit_test(blocks_of_calls_with_counts_may_interleave_but_not_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
