/* The parts of mpi_coll: one case on one communicator (mpi_coll_case.c), and groups, streams and several communicators (mpi_coll_group.c). */
#ifndef RONDO_TESTS_MPI_COLL_H
#define RONDO_TESTS_MPI_COLL_H

#include "mpi_calls.h"

enum { COLL_ALIGN_SEND = 1, COLL_ALIGN_RECV = 2 }; /* that buffer begins one element after a multiple of 64 bytes */

/* What buffers of single calls are made of. */
enum coll_memory { COLL_ORDINARY, COLL_HEAP, COLL_MIXED, COLL_DEVICE };

struct coll_case {
    const struct test_coll *coll;
    rondo_dtype type;
    int op; /* TEST_OP_NONE when the collective does not reduce */
    size_t count;
    int root, inplace, align, stream;
};

struct coll_run {
    rondo_comm *comm;
    rondo_stream stream;
    uint64_t seed;
    int memory;                        /* enum coll_memory */
    size_t most;                       /* bytes of a rank's block, in any call */
    rondo_op premul[RONDO_NUM_DTYPES]; /* one for each type, made once */
};

/* Elements that fit. */
static inline size_t coll_fit(const struct coll_run *run, size_t count, size_t size)
{
    return count < run->most / size ? count : run->most / size;
}

void coll_run_init(struct coll_run *run, uint64_t seed, size_t most, int memory);
/* -1: there is none of this name. */
int coll_memory_by_name(const char *name);
void coll_run_release(struct coll_run *run);
/* Run and check one case; a failure prints how to run it alone. */
void coll_case_run(struct coll_run *run, const struct coll_case *c);
/* "all_reduce,f32,sum,17,0,in,3,stream" */
void coll_case_text(const struct coll_case *c, char *text, size_t len);
int coll_case_parse(const char *text, int nranks, struct coll_case *c);

/* Everything that is not one call at a time; `rounds` repetitions with other random choices. */
void coll_group_tests(struct coll_run *run, int rounds);

#endif
