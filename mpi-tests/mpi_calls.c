#include "mpi_calls.h"

#include <string.h>

static size_t bytes(const struct test_call *c, size_t elements)
{
    return elements * test_types[c->type].size;
}

static void put_input(const struct test_call *c, int rank, size_t first, size_t count, char *recv, size_t at)
{
    test_values_input(c->values, rank, c->first + first, count, recv + bytes(c, at));
}

static int is_root(const struct test_call *c) { return c->rank == c->root; }

/* ---- all ranks, or a root, with equal counts ---- */

static struct test_extent extent_equal(const struct test_call *c)
{
    return (struct test_extent){ .send = c->count, .recv = c->count };
}

static rondo_status run_all_reduce(const struct test_call *c, const void *send, void *recv, rondo_comm *comm,
                                   rondo_stream stream)
{
    return rondo_all_reduce(send, recv, c->count, c->type, c->handle, comm, stream);
}

static void expect_all_reduce(const struct test_call *c, char *recv)
{
    test_values_result(c->values, c->first, c->count, recv);
}

static struct test_extent extent_reduce(const struct test_call *c)
{
    return (struct test_extent){ .send = c->count, .recv = is_root(c) ? c->count : 0 };
}

static rondo_status run_reduce(const struct test_call *c, const void *send, void *recv, rondo_comm *comm,
                               rondo_stream stream)
{
    return rondo_reduce(send, recv, c->count, c->type, c->handle, c->root, comm, stream);
}

static void expect_reduce(const struct test_call *c, char *recv)
{
    if (is_root(c)) {
        expect_all_reduce(c, recv);
    }
}

static struct test_extent extent_broadcast(const struct test_call *c)
{
    return (struct test_extent){ .send = is_root(c) ? c->count : 0, .recv = c->count };
}

static rondo_status run_broadcast(const struct test_call *c, const void *send, void *recv, rondo_comm *comm,
                                  rondo_stream stream)
{
    return rondo_broadcast(send, recv, c->count, c->type, c->root, comm, stream);
}

static void expect_broadcast(const struct test_call *c, char *recv)
{
    put_input(c, c->root, 0, c->count, recv, 0);
}

static struct test_extent extent_all_gather(const struct test_call *c)
{
    size_t n = (size_t)c->nranks;
    return (struct test_extent){ .send = c->count,
                                 .recv = n * c->count,
                                 .inplace_send = (size_t)c->rank * c->count };
}

static rondo_status run_all_gather(const struct test_call *c, const void *send, void *recv, rondo_comm *comm,
                                   rondo_stream stream)
{
    return rondo_all_gather(send, recv, c->count, c->type, comm, stream);
}

static void expect_all_gather(const struct test_call *c, char *recv)
{
    for (int r = 0; r < c->nranks; r++) {
        put_input(c, r, 0, c->count, recv, (size_t)r * c->count);
    }
}

static struct test_extent extent_reduce_scatter(const struct test_call *c)
{
    size_t n = (size_t)c->nranks;
    return (struct test_extent){ .send = n * c->count,
                                 .recv = c->count,
                                 .inplace_recv = (size_t)c->rank * c->count };
}

static rondo_status run_reduce_scatter(const struct test_call *c, const void *send, void *recv,
                                       rondo_comm *comm, rondo_stream stream)
{
    return rondo_reduce_scatter(send, recv, c->count, c->type, c->handle, comm, stream);
}

static void expect_reduce_scatter(const struct test_call *c, char *recv)
{
    test_values_result(c->values, c->first + (size_t)c->rank * c->count, c->count, recv);
}

static struct test_extent extent_all_to_all(const struct test_call *c)
{
    size_t total = (size_t)c->nranks * c->count;
    return (struct test_extent){ .send = total, .recv = total };
}

static rondo_status run_all_to_all(const struct test_call *c, const void *send, void *recv, rondo_comm *comm,
                                   rondo_stream stream)
{
    return rondo_all_to_all(send, recv, c->count, c->type, comm, stream);
}

static void expect_all_to_all(const struct test_call *c, char *recv)
{
    for (int r = 0; r < c->nranks; r++) {
        put_input(c, r, (size_t)c->rank * c->count, c->count, recv, (size_t)r * c->count);
    }
}

static struct test_extent extent_gather(const struct test_call *c)
{
    struct test_extent extent = extent_all_gather(c);
    extent.recv = is_root(c) ? extent.recv : 0;
    return extent;
}

static rondo_status run_gather(const struct test_call *c, const void *send, void *recv, rondo_comm *comm,
                               rondo_stream stream)
{
    return rondo_gather(send, recv, c->count, c->type, c->root, comm, stream);
}

static void expect_gather(const struct test_call *c, char *recv)
{
    if (is_root(c)) {
        expect_all_gather(c, recv);
    }
}

static struct test_extent extent_scatter(const struct test_call *c)
{
    struct test_extent extent = extent_reduce_scatter(c);
    extent.send = is_root(c) ? extent.send : 0;
    return extent;
}

static rondo_status run_scatter(const struct test_call *c, const void *send, void *recv, rondo_comm *comm,
                                rondo_stream stream)
{
    return rondo_scatter(send, recv, c->count, c->type, c->root, comm, stream);
}

static void expect_scatter(const struct test_call *c, char *recv)
{
    put_input(c, c->root, (size_t)c->rank * c->count, c->count, recv, 0);
}

static rondo_status run_sendrecv(const struct test_call *c, const void *send, void *recv, rondo_comm *comm,
                                 rondo_stream stream)
{
    int to = (c->rank + c->root) % c->nranks, from = (c->rank - c->root % c->nranks + c->nranks) % c->nranks;
    rondo_status sent, received, ended, status = rondo_group_start();
    if (status != RONDO_SUCCESS) {
        return status;
    }
    sent = rondo_send(send, c->count, c->type, to, comm, stream);
    received = rondo_recv(recv, c->count, c->type, from, comm, stream);
    ended = rondo_group_end();
    return sent != RONDO_SUCCESS ? sent : received != RONDO_SUCCESS ? received : ended;
}

static void expect_sendrecv(const struct test_call *c, char *recv)
{
    put_input(c, (c->rank - c->root % c->nranks + c->nranks) % c->nranks, 0, c->count, recv, 0);
}

/* ---- v-forms: blocks lie in another order on each rank (all_to_allv: in order), with gaps ---- */

/* Compute the offset of each rank's block: in reverse order, which begins with the block of `rank`. @return
 * the span of all blocks. */
static size_t turned_displs(const struct test_call *c, int rank, size_t *displs)
{
    size_t at = 0;
    for (int k = 0; k < c->nranks; k++) {
        int r = (rank + c->nranks - k) % c->nranks;
        displs[r] = at;
        at += c->many[r] + TEST_CALL_GAP;
    }
    return at;
}

static struct test_extent extent_all_gatherv(const struct test_call *c)
{
    size_t displs[TEST_MAX_RANKS], span = turned_displs(c, c->rank, displs);
    return (struct test_extent){ .send = c->many[c->rank], .recv = span, .inplace_send = displs[c->rank] };
}

static rondo_status run_all_gatherv(const struct test_call *c, const void *send, void *recv, rondo_comm *comm,
                                    rondo_stream stream)
{
    size_t displs[TEST_MAX_RANKS];
    turned_displs(c, c->rank, displs);
    return rondo_all_gatherv(send, recv, c->many, displs, c->type, comm, stream);
}

static void expect_all_gatherv(const struct test_call *c, char *recv)
{
    size_t displs[TEST_MAX_RANKS];
    turned_displs(c, c->rank, displs);
    for (int r = 0; r < c->nranks; r++) {
        put_input(c, r, 0, c->many[r], recv, displs[r]);
    }
}

static struct test_extent extent_reduce_scatterv(const struct test_call *c)
{
    size_t displs[TEST_MAX_RANKS], span = turned_displs(c, c->rank, displs);
    return (struct test_extent){ .send = span, .recv = c->many[c->rank], .inplace_recv = displs[c->rank] };
}

static rondo_status run_reduce_scatterv(const struct test_call *c, const void *send, void *recv,
                                        rondo_comm *comm, rondo_stream stream)
{
    size_t displs[TEST_MAX_RANKS];
    turned_displs(c, c->rank, displs);
    return rondo_reduce_scatterv(send, recv, c->many, displs, c->type, c->handle, comm, stream);
}

/* Where rank 0 has a block is also where the block begins in the pattern, on all ranks. */
static void fill_reduce_scatterv(const struct test_call *c, char *send)
{
    size_t displs[TEST_MAX_RANKS], first[TEST_MAX_RANKS];
    turned_displs(c, c->rank, displs);
    turned_displs(c, 0, first);
    for (int r = 0; r < c->nranks; r++) {
        put_input(c, c->rank, first[r], c->many[r], send, displs[r]);
    }
}

static void expect_reduce_scatterv(const struct test_call *c, char *recv)
{
    size_t displs[TEST_MAX_RANKS];
    turned_displs(c, 0, displs);
    test_values_result(c->values, c->first + displs[c->rank], c->many[c->rank], recv);
}

static struct test_extent extent_gatherv(const struct test_call *c)
{
    struct test_extent extent = extent_all_gatherv(c);
    extent.recv = is_root(c) ? extent.recv : 0;
    return extent;
}

/* Only the root has the counts of others. */
static rondo_status run_gatherv(const struct test_call *c, const void *send, void *recv, rondo_comm *comm,
                                rondo_stream stream)
{
    size_t displs[TEST_MAX_RANKS];
    turned_displs(c, c->rank, displs);
    return rondo_gatherv(send, c->many[c->rank], recv, is_root(c) ? c->many : NULL,
                         is_root(c) ? displs : (const size_t *)-1, c->type, c->root, comm, stream);
}

static void expect_gatherv(const struct test_call *c, char *recv)
{
    if (is_root(c)) {
        expect_all_gatherv(c, recv);
    }
}

static struct test_extent extent_scatterv(const struct test_call *c)
{
    struct test_extent extent = extent_reduce_scatterv(c);
    extent.send = is_root(c) ? extent.send : 0;
    return extent;
}

static rondo_status run_scatterv(const struct test_call *c, const void *send, void *recv, rondo_comm *comm,
                                 rondo_stream stream)
{
    size_t displs[TEST_MAX_RANKS];
    turned_displs(c, c->rank, displs);
    return rondo_scatterv(send, is_root(c) ? c->many : NULL, is_root(c) ? displs : NULL, recv,
                          c->many[c->rank], c->type, c->root, comm, stream);
}

static void expect_scatterv(const struct test_call *c, char *recv)
{
    size_t displs[TEST_MAX_RANKS];
    turned_displs(c, c->root, displs);
    put_input(c, c->root, displs[c->rank], c->many[c->rank], recv, 0);
}

/* Compute what a rank sends to, or receives from, every rank, and the offsets. */
static size_t row_displs(const struct test_call *c, int rank, int sends, size_t *counts, size_t *displs)
{
    size_t at = 0;
    for (int r = 0; r < c->nranks; r++) {
        counts[r] = sends ? c->many[rank * c->nranks + r] : c->many[r * c->nranks + rank];
        displs[r] = at;
        at += counts[r] + TEST_CALL_GAP;
    }
    return at;
}

static struct test_extent extent_all_to_allv(const struct test_call *c)
{
    size_t counts[TEST_MAX_RANKS], displs[TEST_MAX_RANKS];
    return (struct test_extent){ .send = row_displs(c, c->rank, 1, counts, displs),
                                 .recv = row_displs(c, c->rank, 0, counts, displs) };
}

static rondo_status run_all_to_allv(const struct test_call *c, const void *send, void *recv, rondo_comm *comm,
                                    rondo_stream stream)
{
    size_t scounts[TEST_MAX_RANKS], sdispls[TEST_MAX_RANKS], rcounts[TEST_MAX_RANKS], rdispls[TEST_MAX_RANKS];
    row_displs(c, c->rank, 1, scounts, sdispls);
    row_displs(c, c->rank, 0, rcounts, rdispls);
    return rondo_all_to_allv(send, scounts, sdispls, recv, rcounts, rdispls, c->type, comm, stream);
}

static void expect_all_to_allv(const struct test_call *c, char *recv)
{
    size_t counts[TEST_MAX_RANKS], displs[TEST_MAX_RANKS], from[TEST_MAX_RANKS], at[TEST_MAX_RANKS];
    row_displs(c, c->rank, 0, counts, displs);
    for (int r = 0; r < c->nranks; r++) {
        row_displs(c, r, 1, from, at);
        put_input(c, r, at[c->rank], counts[r], recv, displs[r]);
    }
}

/* ---- the table ---- */

#define ROW(coll, does_reduce, has_root, is_vform, place, extent_fn)                        \
    {                                                                                       \
#coll, does_reduce, has_root, is_vform, place, extent_fn, run_##coll, expect_##coll \
    }

const struct test_coll test_colls[] = {
    ROW(all_reduce, 1, 0, 0, TEST_INPLACE, extent_equal),
    ROW(reduce, 1, 1, 0, TEST_INPLACE, extent_reduce),
    ROW(broadcast, 0, 1, 0, TEST_INPLACE, extent_broadcast),
    ROW(all_gather, 0, 0, 0, TEST_INPLACE, extent_all_gather),
    ROW(reduce_scatter, 1, 0, 0, TEST_AT_START, extent_reduce_scatter),
    ROW(all_to_all, 0, 0, 0, TEST_INPLACE, extent_all_to_all),
    ROW(gather, 0, 1, 0, TEST_INPLACE_AT_ROOT, extent_gather),
    ROW(scatter, 0, 1, 0, TEST_INPLACE_AT_ROOT, extent_scatter),
    ROW(sendrecv, 0, 1, 0, TEST_NEVER_INPLACE, extent_equal),
    ROW(all_gatherv, 0, 0, 1, TEST_INPLACE, extent_all_gatherv),
    ROW(reduce_scatterv, 1, 0, 1, TEST_INPLACE, extent_reduce_scatterv),
    ROW(all_to_allv, 0, 0, 1, TEST_INPLACE, extent_all_to_allv),
    ROW(gatherv, 0, 1, 1, TEST_INPLACE_AT_ROOT, extent_gatherv),
    ROW(scatterv, 0, 1, 1, TEST_INPLACE_AT_ROOT, extent_scatterv),
};
const int test_num_colls = (int)TEST_ARRAY_LEN(test_colls);

/* For barrier_perf only; mpi_coll has its own check. */
static rondo_status run_barrier(const struct test_call *c, const void *send, void *recv, rondo_comm *comm,
                                rondo_stream stream)
{
    (void)c, (void)send, (void)recv;
    return rondo_barrier(comm, stream);
}

static void expect_barrier(const struct test_call *c, char *recv) { (void)c, (void)recv; }

static struct test_extent extent_none(const struct test_call *c)
{
    (void)c;
    return (struct test_extent){ 0 };
}

static const struct test_coll test_barrier = ROW(barrier, 0, 0, 0, TEST_NEVER_INPLACE, extent_none);

const struct test_coll *test_coll_by_name(const char *name)
{
    if (strcmp(name, test_barrier.name) == 0) {
        return &test_barrier;
    }
    for (int i = 0; i < test_num_colls; i++) {
        if (strcmp(test_colls[i].name, name) == 0) {
            return &test_colls[i];
        }
    }
    return NULL;
}

int test_call_inplace(const struct test_call *c)
{
    return c->coll->inplace == TEST_INPLACE || c->coll->inplace == TEST_AT_START ||
           (c->coll->inplace == TEST_INPLACE_AT_ROOT && is_root(c));
}

void test_call_fill(const struct test_call *c, void *send)
{
    if (c->coll->run == run_reduce_scatterv) {
        fill_reduce_scatterv(c, send);
    } else {
        test_values_input(c->values, c->rank, c->first, c->coll->extent(c).send, send);
    }
}

rondo_status test_call_once(const char *coll, rondo_comm *comm, rondo_dtype type, rondo_op op, size_t count,
                            uint64_t seed, size_t *wrong)
{
    struct test_call call = { .coll = test_coll_by_name(coll),
                              .type = type,
                              .handle = op,
                              .count = count,
                              .first = seed % TEST_PERIOD };
    struct test_extent extent;
    char *send, *recv, *want;
    rondo_status status = rondo_comm_rank(comm, &call.rank);
    if (status == RONDO_SUCCESS) {
        status = rondo_comm_count(comm, &call.nranks);
    }
    if (status != RONDO_SUCCESS) {
        return status;
    }
    call.op = call.coll->reduces ? (int)op : TEST_OP_NONE;
    call.root = call.coll->run == run_sendrecv; /* to the next rank, instead of to itself */
    call.values = test_values_get(type, call.op, call.nranks, 1);
    extent = call.coll->extent(&call);
    send = test_guard_alloc(bytes(&call, extent.send));
    recv = test_guard_alloc(bytes(&call, extent.recv));
    want = test_guard_alloc(bytes(&call, extent.recv));
    test_call_fill(&call, send);
    call.coll->expect(&call, want);
    status = call.coll->run(&call, send, recv, comm, NULL);
    *wrong = test_values_wrong(call.values, recv, want, extent.recv, NULL);
    if (*wrong == 0 && !test_guard_intact(recv, bytes(&call, extent.recv))) {
        *wrong = 1;
    }
    test_guard_free(send);
    test_guard_free(recv);
    test_guard_free(want);
    return status;
}
