/*
 * The collectives, for tests and benchmarks. A row says how much a rank sends and receives, how to make the
 * call, and what the receive buffer must hold afterwards. To add a collective, add its three functions and
 * its row to mpi_calls.c.
 */
#ifndef RONDO_TESTS_MPI_CALLS_H
#define RONDO_TESTS_MPI_CALLS_H

#include "mpi_common.h"
#include "mpi_values.h"

enum { TEST_CALL_GAP = 3 }; /* unused elements between the blocks of a v-form */

struct test_coll;

struct test_call {
    const struct test_coll *coll;
    rondo_dtype type;
    int op;          /* a rondo_op, TEST_OP_PREMUL or TEST_OP_NONE */
    rondo_op handle; /* the operation passed to the library */
    int root;        /* sendrecv: distance from sender to receiver in ranks */
    size_t count;    /* unused by the v-forms */
    int rank, nranks;
    const struct test_values *values;
    size_t first; /* first element of the pattern in the inputs */
    /* v-forms: elements of rank r at [r]; all_to_allv: from s to d at [s * nranks + d], symmetric in place */
    const size_t *many;
};

/* Sizes of the buffers, and for calls in place the offsets of send and recv in the one buffer. In elements. A
 * buffer of 0 elements may be NULL. With TEST_AT_START, recv may lie at offset 0 as well. */
struct test_extent {
    size_t send, recv, inplace_send, inplace_recv;
};

enum test_inplace { TEST_NEVER_INPLACE, TEST_INPLACE, TEST_INPLACE_AT_ROOT, TEST_AT_START };

struct test_coll {
    const char *name;
    int reduces, rooted, vform;
    enum test_inplace inplace;
    struct test_extent (*extent)(const struct test_call *call);
    rondo_status (*run)(const struct test_call *call, const void *send, void *recv, rondo_comm *comm,
                        rondo_stream stream);
    void (*expect)(const struct test_call *call, char *recv); /* writes exactly what the call must write */
};

extern const struct test_coll test_colls[];
extern const int test_num_colls;

/** @return NULL if there is no collective of that name. */
const struct test_coll *test_coll_by_name(const char *name);

/** @return true if this rank's call can be in place. */
int test_call_inplace(const struct test_call *call);
/** Write this rank's inputs. */
void test_call_fill(const struct test_call *call, void *send);

/** Run a collective once, out of place, on new guarded buffers, and check the result. *wrong: the number of
 * wrong elements, or 1 for a damaged guard. */
rondo_status test_call_once(const char *coll, rondo_comm *comm, rondo_dtype type, rondo_op op, size_t count,
                            uint64_t seed, size_t *wrong);

#endif
