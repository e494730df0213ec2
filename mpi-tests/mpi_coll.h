/*
 * The parts of mpi_coll: the list of cases (mpi_coll_list.c), one case on one communicator (mpi_coll_case.c),
 * and groups, streams and several communicators (mpi_coll_group.c). The first two also of gpu_ranks, whose
 * ranks are threads: what they need of a rank lies in its coll_run.
 */
#ifndef RONDO_TESTS_MPI_COLL_H
#define RONDO_TESTS_MPI_COLL_H

#include "mpi_calls.h"

enum {
    COLL_ALIGN_SEND = 1,
    COLL_ALIGN_RECV = 2
}; /* that buffer begins one element after a multiple of 64 bytes */

/* What buffers of single calls are made of. */
enum coll_memory { COLL_ORDINARY, COLL_HEAP, COLL_MIXED, COLL_DEVICE, COLL_DEVICE_HEAP };

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
    int rank, nranks;
    int memory;                        /* enum coll_memory */
    size_t most;                       /* bytes of a rank's block, in any call */
    char again[48];                    /* what starts the program again, for a failure */
    char text[160];                    /* of the case that runs; outlives it: the watchdog prints it */
    rondo_op premul[RONDO_NUM_DTYPES]; /* one for each type, made once */
    struct {
        unsigned char *memory;
        size_t bytes;
        int open;
    } room[2]; /* coll_run_room; device-heap: what is larger lies elsewhere */
};

/* Which cases. */
struct coll_wish {
    int full;                     /* every combination */
    const struct test_coll *coll; /* NULL: all */
    int type, op;                 /* -1: all */
};

struct coll_list {
    struct coll_case *cases;
    size_t count, room;
};

/* Elements that fit. */
static inline size_t coll_fit(const struct coll_run *run, size_t count, size_t size)
{
    return count < run->most / size ? count : run->most / size;
}

/* The cases of run->seed, in an order that mixes them; the same on all ranks. */
void coll_list_make(struct coll_list *list, const struct coll_run *run, const struct coll_wish *wish);
void coll_list_free(struct coll_list *list);
/* What a parameter that forces something says; "any". */
const char *coll_forced(const char *name);

/* All of it, over MPI_COMM_WORLD. */
void coll_run_init(struct coll_run *run, uint64_t seed, size_t most, int memory);
/* What a run has besides its communicator and stream, where others have made those; and back. */
void coll_run_begin(struct coll_run *run);
void coll_run_end(struct coll_run *run);
/*
 * Room for buffer `which` (0, 1) of all cases to come, in device memory, of rondo_mem_alloc_device if `open`;
 * without it each case has memory of its own. To give device memory back waits for all kernels, those of
 * other ranks too: ranks that share a context make room once, for the largest case, while nothing runs.
 */
void coll_run_room(struct coll_run *run, int which, size_t bytes, int open);
/* At most so much room does a case need. */
size_t coll_case_room(const struct coll_run *run, const struct coll_case *c);
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
