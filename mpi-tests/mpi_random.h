/*
 * mpi_random: random MPI programs from a seed. Every rank draws the same program, runs its part and checks
 * each result, and every byte around it, against values that are computed here. It knows no Rondo: under
 * mpirun alone it tests the MPI library, which is the control; with librondo_pmpi preloaded it tests the
 * face. What the MPI libraries themselves get wrong is not drawn (is_broken and others, with the reason).
 *
 *     mpi_random.c            options, threads, the loop over programs
 *     mpi_random_program.c    statements: which communicator does what; what is still open
 *     mpi_random_comms.c      statements that make and free communicators, and wrong arguments
 *     mpi_random_calls.c      collective calls in their forms, with the results that they must have
 *     mpi_random_wait.c       the ways to complete requests
 *     mpi_random_area.c       buffers in derived datatypes
 *     mpi_random_values.c     basic types, operations, values
 */
#ifndef RONDO_TESTS_MPI_RANDOM_H
#define RONDO_TESTS_MPI_RANDOM_H

#include <mpi.h>
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#endif
#include <stddef.h>
#include <stdint.h>

#if MPI_VERSION >= 4
#define RANDOM_MPI4 1
#else
#define RANDOM_MPI4 0
#endif
/* Persistent collectives, if MPI has them: the name of Name's function. */
#if MPI_VERSION >= 4 || (defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5)
#define RANDOM_INIT(Name) MPI_##Name##_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define RANDOM_INIT(Name) MPIX_##Name##_init
#endif

enum { MAX_RANKS = 16, MAX_COMMS = 10, MAX_OPS = 24, MAX_DUE = 64, MOST_THREADS = 8 };

/* ---- random numbers ---- */

struct rng {
    uint64_t state;
};
uint64_t rng_next(struct rng *rng);
/** @return a number from 0 to below - 1. */
int rng_below(struct rng *rng, int below);
/** @return true once in `n` times. */
int rng_one_in(struct rng *rng, int n);

/* ---- values (mpi_random_values.c) ---- */

enum kind { K_INT, K_UINT, K_FLOAT, K_COMPLEX, K_BOOL, K_LOGICAL, K_BYTE, K_CHAR, K_PAIR, K_AFFINE };

/* A type whose elements are computed with. `extent` is the distance of two elements; `size` bytes hold a
 * value (of a pair: its first member), the index of a pair stands at `loc`; other bytes are padding. */
struct basic {
    const char *name;
    MPI_Datatype type;
    enum kind kind;
    int size, extent, loc, align;
    unsigned ops; /* bit by bit, the operations of `opers` that MPI allows */
};
struct oper {
    const char *name;
    MPI_Op op;
};
enum {
    O_SUM,
    O_PROD,
    O_MIN,
    O_MAX,
    O_LAND,
    O_LOR,
    O_LXOR,
    O_BAND,
    O_BOR,
    O_BXOR,
    O_MINLOC,
    O_MAXLOC,
    O_USER_SUM,
    O_USER_FIRST,
    O_USER_AFFINE,
    O_COUNT,
    O_NONE = O_COUNT
};

/** Make the derived basic types and user operations / free them. Call once a process. */
void values_open(void);
void values_close(void);
int values_basics(void);
const struct basic *values_basic(int i);
const struct oper *values_oper(int op);

/** Write the value that (call, a, b, index) stands for; op O_NONE: any value. */
void value_write(const struct basic *basic, int op, uint64_t call, int a, int b, long index, void *dst);
/** Write the reduction of value(call, r, 0, index) for r = first .. last in this order. */
void value_reduce(const struct basic *basic, int op, uint64_t call, int first, int last, long index,
                  void *dst);
/** @return true if both stand for the same value; padding and the sign of zero are not compared. */
int value_same(const struct basic *basic, const void *a, const void *b);
void value_text(const struct basic *basic, const void *element, char *text, size_t len);
/** @return a number that stands for the value: equal if value_same */
uint64_t value_digest(const struct basic *basic, const void *element);

/* ---- areas (mpi_random_area.c) ---- */

/* How a rank lays out elements: `per` elements form one item of `type`; items are `extent` apart. */
struct layout {
    MPI_Datatype type;
    int owned, per;
    MPI_Aint extent;
    long disp[64];
    char name[24];
};

enum want { W_KEEP, W_VALUE, W_REDUCED, W_ANY };
struct block {
    long elements;
    MPI_Aint offset; /* bytes from `at` */
    /* what it holds before the call, if `filled`: value(call, in_a, in_b, in_first ..) */
    int filled, in_a, in_b;
    long in_first;
    /* what it holds after the call: W_VALUE: value(call, a, b, first ..); W_REDUCED: ranks a to b reduced */
    enum want want;
    int a, b;
    long first;
};

/* Memory for the blocks of a call, in one layout, between known bytes. */
struct area {
    const struct basic *basic;
    struct layout layout;
    struct block *blocks;
    int nblocks, absolute;
    unsigned char *mem, *image; /* image: what `mem` must hold */
    size_t bytes;
    unsigned char *at; /* what displacements are counted from */
};

/** Make an area of blocks one after the other (gaps 0), or at random places. `counts`: elements of each.
 * `plain`: lay out elements without a derived type, as reductions need. */
void area_make(struct area *area, struct rng *rng, const struct basic *basic, int nblocks, const long *counts,
               int gaps, int plain);
/** @return what to pass as the buffer. MPI_BOTTOM if the layout has absolute addresses. */
void *area_buffer(const struct area *area);
/** @return the number of items of a block. */
int area_items(const struct area *area, int block);
/** @return the displacement of a block, in items. */
int area_place(const struct area *area, int block);
/** Write what the blocks hold before a call, and remember all bytes: what no block wants must not change. */
void area_fill(struct area *area, int op, uint64_t call);
/** Compare the memory with what the blocks want, and mix the values of the results into *digest. @return 0 if
 * equal; else `text` says where it differs. */
int area_check(struct area *area, int op, uint64_t call, uint64_t *digest, char *text, size_t len);
void area_type_free(struct area *area);
void area_free(struct area *area);

/* ---- calls (mpi_random_calls.c) ---- */

enum coll {
    C_BARRIER,
    C_BCAST,
    C_REDUCE,
    C_ALLREDUCE,
    C_GATHER,
    C_GATHERV,
    C_SCATTER,
    C_SCATTERV,
    C_ALLGATHER,
    C_ALLGATHERV,
    C_ALLTOALL,
    C_ALLTOALLV,
    C_ALLTOALLW,
    C_REDUCE_SCATTER,
    C_REDUCE_SCATTER_BLOCK,
    C_SCAN,
    C_EXSCAN,
    C_COUNT
};
enum form { F_BLOCKING, F_NONBLOCKING, F_PERSISTENT, F_LARGE, F_LARGE_NONBLOCKING };

struct comm {
    int alive, id, n, rank; /* rank: mine, -1 if I am not a member */
    int members[MAX_RANKS]; /* ranks of the program's first communicator */
    MPI_Comm handle;
    int busy; /* statements still to come that use it */
};

/* A collective call, or a message, that one rank takes part in. */
struct op {
    int used, statement;
    char text[160];
    /* the call, equal on all ranks */
    enum coll coll;
    enum form form;
    const struct basic *basic;
    int oper, root, in_place, n, rank;
    long count, counts[MAX_RANKS];
    uint64_t call;
    MPI_Comm comm;
    /* this rank's part */
    struct area send, recv;
    int has_send, has_recv, junk; /* junk: arguments that MPI does not look at are nonsense */
    int ints[4][MAX_RANKS];       /* counts and displacements, which must live as long as the request */
    MPI_Datatype types[2][MAX_RANKS];
    MPI_Request request;
    /* a message */
    int message, source, tag, ready, persistent, active;
};

/** Draw the call from `rng`, the same on all ranks: all but form and communicator. */
void call_draw(struct op *op, struct rng *rng, const struct comm *comm);
void call_describe(const struct op *op, const struct comm *comm, char *text, size_t len);
/** Make this rank's buffers; `local` draws what may differ between ranks. */
void call_prepare(struct op *op, struct rng *local, const struct comm *comm);
/** Write the inputs of the call once more, and forget the results. */
void call_fill(struct op *op);
/** Make the call. @return MPI's code. A request is in op->request. */
int call_issue(struct op *op);
void call_free(struct op *op);

/* ---- programs (mpi_random_program.c) ---- */

enum due_kind { D_SEND, D_RECV, D_RESTART, D_RELEASE };
struct due {
    int used, when, comm, source, dest, op;
    enum due_kind kind;
    const struct basic *basic;
    long count;
    uint64_t call;
    int tag, how;
};

struct run {
    uint64_t seed;
    int thread, statement, statements, next_comm, next_tag, quiet, threaded, persistent;
    struct rng all, mine; /* equal on all ranks; this rank's own */
    struct comm comms[MAX_COMMS];
    struct op ops[MAX_OPS];
    struct due due[MAX_DUE];
    char *text; /* what runs now */
    /* What MPI gave this rank: a sum over results, so that their order, which time decides, has no part in
     * it. */
    uint64_t digest;
};
enum { RUN_TEXT = 240 };

/** Run the program of a seed on communicators that the caller keeps. */
void run_program(struct run *run, uint64_t seed, MPI_Comm world, MPI_Comm self);
/** Report a failure of the statement that runs, or of `op` if it is not NULL. */
void run_failed(struct run *run, const struct op *op, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/** Add what MPI gave for `what` to the digest. */
void run_saw(struct run *run, uint64_t what, uint64_t value);
/** End the program if MPI gave an error. */
void run_must(struct run *run, int code, const char *call);
#define MUST(run, call) run_must((run), (call), #call)

/* mpi_random_wait.c: check results and free a completed op; complete some, or all, of those that can. */
void run_completed(struct run *run, struct op *op);
void run_complete_some(struct run *run);
void run_complete(struct run *run, struct op *op);
void run_complete_all(struct run *run);

/* mpi_random_comms.c */
void run_comms_open(struct run *run, MPI_Comm world, MPI_Comm self);
void run_comms_close(struct run *run);
/** So many programs begin at once, in the threads 0 to `threads` - 1. */
void run_turns_open(int threads);
void statement_comm(struct run *run);
void statement_inter(struct run *run);
void statement_wrong(struct run *run);
struct comm *run_any_comm(struct run *run);
/** Write the statement's text where the watchdog and failures find it. */
void run_say(struct run *run, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
