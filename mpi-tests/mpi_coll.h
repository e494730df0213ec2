/*
 * The parts of mpi_coll: the list of cases (mpi_coll_list.c), a case on one communicator (mpi_coll_case.c),
 * and groups, streams and several communicators (mpi_coll_group.c). gpu_ranks uses the first two; its ranks
 * are threads, so all state of a rank is in its coll_run.
 */
#ifndef RONDO_TESTS_MPI_COLL_H
#define RONDO_TESTS_MPI_COLL_H

#include "mpi_calls.h"

/* Misalign a buffer: it starts one element after a multiple of 64 bytes. */
enum { COLL_ALIGN_SEND = 1, COLL_ALIGN_RECV = 2 };

/* COLL_START: in place, with the result at the start (TEST_AT_START). */
enum coll_place { COLL_OUT, COLL_IN, COLL_START, COLL_NUM_PLACES };

/* The memory of the buffers. */
enum coll_memory { COLL_ORDINARY, COLL_HEAP, COLL_MIXED, COLL_DEVICE, COLL_DEVICE_HEAP };

struct coll_case {
    const struct test_coll *coll;
    rondo_dtype type;
    int op; /* TEST_OP_NONE when the collective does not reduce */
    size_t count;
    int root, inplace, align, stream; /* inplace: enum coll_place */
};

struct coll_run {
    rondo_comm *comm;
    rondo_stream stream;
    uint64_t seed;
    int rank, nranks;
    int memory;                        /* enum coll_memory */
    size_t most;                       /* bytes of a rank's block at most */
    char again[48];                    /* command that repeats a failure */
    char text[160];                    /* the running case, for the watchdog */
    rondo_op premul[RONDO_NUM_DTYPES]; /* created on first use */
    struct {
        unsigned char *memory;
        size_t bytes;
        int open;
    } room[2]; /* see coll_run_room; device-heap: larger buffers are allocated per case */
};

/* A buffer with its guards, and an image of both that reveals any byte that changed. */
struct coll_box {
    unsigned char *mem, *data, *image;
    size_t bytes, mapped; /* mapped: bytes for munmap; 0: not mapped */
    int in_heap;
    unsigned char *device; /* NULL: the library is passed `memory` itself */
    int in_room;           /* device belongs to run->room */
};

/* A case that was started. Its buffers live until coll_case_finish(). */
struct coll_open {
    struct coll_case c;
    struct test_call call;
    struct coll_box in, out; /* alone: one buffer, in, serves for both */
    int alone;
    unsigned char *send, *recv;
    char text[160];
};

/* The selected cases. */
struct coll_wish {
    int full;                     /* 1: every combination */
    const struct test_coll *coll; /* NULL: all */
    int type, op;                 /* -1: all */
};

struct coll_list {
    struct coll_case *cases;
    size_t count, room;
};

/* @return count, limited to the elements that fit in run->most. */
static inline size_t coll_fit(const struct coll_run *run, size_t count, size_t size)
{
    return count < run->most / size ? count : run->most / size;
}

/** List the cases of run->seed in a shuffled order. All ranks get the same list. */
void coll_list_make(struct coll_list *list, const struct coll_run *run, const struct coll_wish *wish);
void coll_list_free(struct coll_list *list);
/** @return the value of RONDO_ALGO or RONDO_PROTO, or "any". */
const char *coll_forced(const char *name);

/** Start a run on MPI_COMM_WORLD; release it with coll_run_release. */
void coll_run_init(struct coll_run *run, uint64_t seed, size_t most, int memory);
/** Start and end a run whose communicator and stream the caller made. */
rondo_status coll_run_begin(struct coll_run *run);
void coll_run_end(struct coll_run *run);
/**
 * Allocate device memory for buffer `which` (0 or 1) of all further cases; open: with rondo_mem_alloc_device.
 * Without it each case allocates its own. Freeing device memory waits for all kernels, also those of other
 * ranks: ranks that share a context must allocate once, for the largest case, while nothing runs.
 */
void coll_run_room(struct coll_run *run, int which, size_t bytes, int open);
/** @return the bytes of memory that a case needs at most. */
size_t coll_case_room(const struct coll_run *run, const struct coll_case *c);
/** @return enum coll_memory, or -1. */
int coll_memory_by_name(const char *name);
void coll_run_release(struct coll_run *run);
/** Run and check a case. A failure prints the command that repeats it. */
void coll_case_run(struct coll_run *run, const struct coll_case *c);
/**
 * The two halves of it, for calls in groups, on streams, and calls that may fail: make the call; then, once
 * it is complete, check its result if it has succeeded, and free its buffers.
 */
rondo_status coll_case_start(struct coll_run *run, const struct coll_case *c, struct coll_open *open);
void coll_case_finish(const struct coll_run *run, struct coll_open *open, int succeeded);
/** @return a random case, the same on all ranks that pass the same hash. */
struct coll_case coll_case_random(const struct coll_run *run, uint64_t hash);
/* "all_reduce,f32,sum,17,0,in,3,stream" */
void coll_case_text(const struct coll_case *c, char *text, size_t len);
int coll_case_parse(const char *text, int nranks, struct coll_case *c);

/** Test groups, streams and several communicators; `rounds` times with new random choices. */
void coll_group_tests(struct coll_run *run, int rounds);

#endif
