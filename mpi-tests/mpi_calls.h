/*
 * The collectives as the tests and the benchmarks see them: one row says how much a rank sends and receives,
 * how the call is made, and what must be in the receive buffer afterwards. To add a collective: its three
 * functions and its row in mpi_calls.c.
 */
#ifndef RONDO_TESTS_MPI_CALLS_H
#define RONDO_TESTS_MPI_CALLS_H

#include "mpi_common.h"
#include "mpi_values.h"

enum { TEST_CALL_GAP = 3 }; /* elements left alone between the blocks of a v-form */

struct test_coll;

struct test_call {
    const struct test_coll *coll;
    rondo_dtype type;
    int op;          /* a rondo_op, TEST_OP_PREMUL or TEST_OP_NONE */
    rondo_op handle; /* what the library is given */
    int root;        /* sendrecv: how many ranks further the data goes */
    size_t count;    /* unused by the v-forms */
    int rank, nranks;
    const struct test_values *values;
    size_t first;       /* where in the pattern the inputs begin */
    const size_t *many; /* v-forms: all_to_allv: elements from s to d at [s * nranks + d]; else elements of
                           rank r at [r] */
};

/* In elements. A buffer of 0 elements may be NULL. In place: where send and recv lie in the one buffer. */
struct test_extent {
    size_t send, recv, inplace_send, inplace_recv;
};

enum test_inplace { TEST_NEVER_INPLACE, TEST_INPLACE, TEST_INPLACE_AT_ROOT };

struct test_coll {
    const char *name;
    int reduces, rooted, vform;
    enum test_inplace inplace;
    struct test_extent (*extent)(const struct test_call *call);
    rondo_status (*run)(const struct test_call *call, const void *send, void *recv, rondo_comm *comm,
                        rondo_stream stream);
    void (*expect)(const struct test_call *call,
                   char *recv); /* writes what the call must write, and nothing else */
};

extern const struct test_coll test_colls[];
extern const int test_num_colls;

/* NULL when there is none of that name. */
const struct test_coll *test_coll_by_name(const char *name);

/* True when this rank passes one buffer in this call's in-place form. */
int test_call_inplace(const struct test_call *call);
/* Write this rank's inputs. */
void test_call_fill(const struct test_call *call, void *send);

/*
 * Run a collective once, out of place, on fresh guarded buffers, and check it. RONDO_SUCCESS with *wrong > 0:
 * wrong elements, or 1 for a damaged guard.
 */
rondo_status test_call_once(const char *coll, rondo_comm *comm, rondo_dtype type, rondo_op op, size_t count,
                            uint64_t seed, size_t *wrong);

#endif
