/*
 * The MPI face: a library for LD_PRELOAD that runs an MPI program's own collectives on Rondo. One source,
 * built once per MPI. docs/mpi-face.md is the user's view.
 *
 * A call. Each function of MPI that shim.def names is defined in calls.c. It fills a struct shim_call from
 * its arguments (plan.c), asks whether the call is taken over (tune.c), and either runs it on Rondo (run.c,
 * or request.c for a non-blocking call), or calls the MPI library's function with the arguments as they are.
 *
 * Every rank decides the same. What decides is the collective, the bytes of the type signature, whether the
 * result depends on the order of a sum, and the communicator with its history of calls: all ranks of a
 * communicator have these in common. Handles, addresses, alignment, MPI_IN_PLACE and local failures decide
 * nothing. Arguments that MPI refuses go to MPI, so that its messages appear.
 *
 * A communicator. State hangs on the program's communicator by an attribute, which a duplicate does not
 * inherit. The Nth call that could be taken over creates Rondo's communicator, after one small MPI_Allreduce
 * in which the ranks agree that all can. The state goes when the program frees the communicator, before the
 * callbacks of the program's attributes run, or in MPI_Finalize (a callback of MPI_COMM_SELF), in the order of
 * creation, because all ranks have that in common.
 *
 * Progress. A call that waits in Rondo makes progress in MPI (rondo_mpi.h). The other way, a pending
 * non-blocking call moves in each call of MPI that waits: the library runs Rondo from its progress engine, or
 * the program's waits are taken over (progress.c).
 *
 * Threads. As MPI has it: one collective at a time on a communicator, any number on different ones. A thread
 * remembers the communicator and the types that it used last, and forgets them when any is freed.
 */
#ifndef RONDO_SHIM_MPI_SHIM_H
#define RONDO_SHIM_MPI_SHIM_H

#include <mpi.h>
#if defined OPEN_MPI && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#endif
#include <string.h>
#include "base/inside.h"
#include "base/types.h"
#include "base/wait.h"
#include "rondo.h"
#include "shim/mpi/shim.def"

/* The prefix of persistent collectives. */
#if MPI_VERSION >= 4 || (defined OPEN_MPI && OMPI_MAJOR_VERSION >= 5)
#define SHIM_PERSISTENT MPI
#elif defined OMPI_HAVE_MPI_EXT_PCOLLREQ
#define SHIM_PERSISTENT MPIX
#endif

#pragma GCC visibility push(hidden)

#define SHIM_ENUM_ROW_(ctx, NAME, ...) SHIM_##NAME,
enum shim_coll { SHIM_TABLE(SHIM_ENUM_ROW_, ) SHIM_NCOLLS };
#undef SHIM_ENUM_ROW_
#define SHIM_ENUM_ROW_(ctx, NAME, ...) SHIM_BY_##NAME,
enum shim_reason { SHIM_REASON_TABLE(SHIM_ENUM_ROW_, ) SHIM_NREASONS };
#undef SHIM_ENUM_ROW_

/* ---- types and operations (type.c) ---- */

/* What MPI lets an operation combine. */
enum shim_kind {
    SHIM_KIND_OTHER = 0,
    SHIM_KIND_INT = 1, /* of C */
    SHIM_KIND_FLOAT = 2,
    SHIM_KIND_LOGICAL = 4,
    SHIM_KIND_BYTE = 8,
    SHIM_KIND_COMPLEX = 16,
    SHIM_KIND_PAIR = 32,
    SHIM_KIND_OTHER_INT = 64 /* of Fortran, and addresses: no logical operations */
};
enum { SHIM_NTYPES = 32, SHIM_FEW = 64 };

struct shim_type {
    MPI_Datatype handle;
    size_t size;     /* bytes of its signature */
    MPI_Aint extent; /* from one element to the next */
    int is_plain;    /* its elements lie in memory as MPI_Pack writes them, without gaps */
    int dtype;       /* Rondo's, of a predefined type; -1: none */
    enum shim_kind kind;
};

/* The last call of a collective that its count, type and operation alone send to MPI: the next such call need
 * not be planned. comm MPI_COMM_NULL: none. */
struct shim_left {
    MPI_Comm comm;
    unsigned generation;
    int64_t count;
    MPI_Datatype type;
    MPI_Op op;
};

/* What a thread knows of types. */
struct shim_types {
    unsigned generation;
    struct shim_left left[2][SHIM_NCOLLS]; /* of blocking calls, of non-blocking ones */
    struct shim_type entry[SHIM_NTYPES];   /* direct-mapped by handle; MPI_DATATYPE_NULL: none */
};
extern unsigned shim_types_generation; /* of the process: grows when a type is freed */

/**
 * Look up a type. The result is valid until this thread looks up the next types (there are two at least).
 * @return NULL: MPI_DATATYPE_NULL, or MPI does not know it
 */
const struct shim_type *shim_type_find(MPI_Datatype type);
/** Make a type that stays when the program frees its own, to be freed by MPI_Type_free: one element of that,
 * because a duplicate would run the callbacks of the program's attributes. @return MPI's code */
int shim_type_hold(MPI_Datatype type, MPI_Datatype *held);
/** @return Rondo's operation if it may combine the type, or -1. */
int shim_op_find(MPI_Op op, const struct shim_type *type);

/* ---- communicators (comm.c) ---- */

struct shim_gpu;
enum { SHIM_NCLASSES = 32, SHIM_SAMPLES = 15, SHIM_MAX_CHILDREN = 32 };

/* Times of a cell on trial, in ns: [0] while MPI carries its calls, [1] while Rondo does. */
struct shim_trial {
    int64_t own[2][SHIM_SAMPLES];  /* of the call */
    int64_t rest[2][SHIM_SAMPLES]; /* of the communicator's other calls until the cell's next one */
    int64_t agreed[2];             /* sums of the ranks' own times */
};
enum shim_verdict { SHIM_OPEN, SHIM_TAKE, SHIM_LEAVE };
/* The decision for a collective and a size class. */
struct shim_cell {
    uint8_t verdict; /* enum shim_verdict */
    uint8_t round;   /* calls on trial */
    struct shim_trial *trial;
};
struct shim_cells {
    struct shim_cell cell[SHIM_NCOLLS][2][SHIM_NCLASSES]; /* [1]: the result depends on the order of a sum */
};

struct shim_comm {
    MPI_Comm comm;
    int rank, n;
    enum shim_reason leaves; /* why all calls go to MPI; NONE: they need not */
    int ncalls;              /* that could have been taken over, until Rondo's communicator exists */
    int failed;              /* Rondo's communicator has ended with an error */
    struct shim_comm *host;  /* of one of GPU memory: that of host memory beside it; else NULL */
    struct shim_gpu *gpu;    /* a rank uses CUDA, so buffers may be on a GPU; NULL: none does */
    int one_host;
    int moves_requests;         /* the waits of all its ranks move non-blocking calls */
    int starts_requests;        /* all its ranks see the starts of persistent calls */
    struct shim_cells *cells;   /* set: Rondo's communicator exists */
    struct shim_cells *steady;  /* the same, while no cell is on trial and no buffer on a GPU; else NULL */
    struct shim_cell *tried;    /* the cell on trial; NULL: none */
    int has_mark;               /* the tried cell was called, so that these are known: */
    int64_t own_ns;             /* the time of its last call */
    int64_t spent_ns;           /* of that call and all since */
    unsigned nothers, patience; /* other calls since then, and how many of them end the trial */
    rondo_comm *rondo;
    struct shim_comm *children[SHIM_MAX_CHILDREN]; /* Rondo's communicators of persistent calls (persist.c) */
    int nchildren;
    int busy, orphan;                  /* a child: of a persistent call; of a communicator that was freed */
    size_t *sizes;                     /* 4 * n counts and displacements for one call; NULL: not needed yet */
    struct shim_comm *next, *previous; /* of the process, in order of creation */
};

enum shim_inside { SHIM_OUTSIDE, SHIM_CALLS, SHIM_CREATES };

/* What a thread used last. The generations say when it must forget. */
struct shim_thread {
    MPI_Comm comm;
    struct shim_comm *state;
    unsigned generation;
    int inside; /* in a call of Rondo, enum shim_inside */
    struct shim_types *types;
    const struct shim_freed *freed; /* NULL: it frees no communicator */
};
extern __thread struct shim_thread shim_thread __attribute__((tls_model("initial-exec")));
extern unsigned shim_generation;
extern int shim_reporting;  /* RONDO_MPI_REPORT is set */
extern int shim_inside_mpi; /* MPI itself calls (coll_component.c); it calls error handlers, too */

/** Look up a communicator that this thread did not use last. @return NULL: calls go to MPI. */
struct shim_comm *shim_comm_find(MPI_Comm comm);
/** MPI_Allreduce for the face itself, in which Rondo's calls under way move. @return MPI's code */
int shim_comm_agree(const void *mine, void *all, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
/** Create Rondo's communicator; collective. Sets cells, or leaves. */
void shim_comm_make(struct shim_comm *c);
/** @return memory for one more child, to be freed by the caller; NULL: there is no room or no memory */
struct shim_comm *shim_comm_new_child(const struct shim_comm *c);
/** Create its communicator of Rondo and make it the last child of c; collective. @return 0: failed, on all
 * ranks */
int shim_comm_make_child(struct shim_comm *c, struct shim_comm *child);
/** Create the communicator of Rondo of a state that shares c->comm with another one; collective. device: as
 * in rondo_config. */
rondo_status shim_comm_make_rondo(struct shim_comm *c, int device);
/** Destroy it, and free what calls on it needed. */
void shim_comm_end_rondo(struct shim_comm *c);
/** Have as many communicators one of Rondo as may? */
int shim_comm_is_full(void);
/** Bits of the children of c that no persistent call uses. */
uint64_t shim_comm_free_children(const struct shim_comm *c);
/** Give a child to a persistent call. */
void shim_comm_take_child(struct shim_comm *child);
/** Its persistent call has failed: no other may use it. */
void shim_comm_fail_child(struct shim_comm *child);
/** The persistent call is freed: a later one may use the child, which ends if its communicator has gone. */
void shim_comm_leave_child(struct shim_comm *child);
/** Get a communicator of this rank alone, which is not the program's, and whose errors are returned. Made
 * when MPI_Init returns; where nobody says that, here, which waits for a pending MPI_Comm_idup in Open MPI.
 * @return MPI's code */
int shim_comm_self(MPI_Comm *self);
/** The same, if it is there. @return MPI_COMM_NULL: it is not */
MPI_Comm shim_comm_self_made(void);
/** Abort Rondo's communicator. */
void shim_comm_fail(struct shim_comm *c);

/* The settings (RONDO_MPI_*), read once. */
struct shim_settings {
    int wrong;        /* a parameter of this rank is: it counts calls by its defaults, and votes for MPI */
    int off;          /* no state can be kept: all calls go to MPI */
    unsigned allowed; /* a bit for each enum shim_coll */
    size_t min, max;  /* bytes */
    int after, comms, exact, tune, gpu;
    const char *report;
};
extern struct shim_settings shim_process_settings;
static inline const struct shim_settings *shim_settings(void) { return &shim_process_settings; }
/** Parse the text of RONDO_MPI. @return 0, or -1 */
int shim_selection_parse(const char *text, struct shim_settings *settings);
const char *shim_coll_name(enum shim_coll coll);

/* ---- a call ---- */

/* An array of int, or of MPI_Count or MPI_Aint in the large-count functions. */
struct shim_ints {
    const void *at;
    size_t width;
};
#define SHIM_INTS(array) ((struct shim_ints){ array, sizeof(*(array)) })
static inline int64_t shim_int(struct shim_ints a, int i)
{
    return a.width == sizeof(int) ? ((const int *)a.at)[i] : ((const int64_t *)a.at)[i];
}

/* A buffer as MPI describes it: count elements, or a block for each rank. */
struct shim_side {
    char *buf;
    int64_t count;
    MPI_Datatype type;
    size_t size;
    MPI_Aint extent;
    int is_plain;
    int blocks;                      /* their number; 0: none */
    struct shim_ints counts, displs; /* of blocks */
    void *packed;                    /* memory of the call; NULL: none */
    MPI_Datatype held;               /* the type as a non-blocking call keeps it; or MPI_DATATYPE_NULL */
};

/* Whose blocks a reduce_scatter has, and so what runs it. */
enum shim_blocks {
    SHIM_EQUAL, /* each rank's, of one size */
    SHIM_SOLE,  /* one rank's: a reduce with that root */
    SHIM_SMALL, /* an all_reduce into memory of the call, of which a rank keeps its block */
    SHIM_UNEVEN
};

struct shim_call {
    struct shim_comm *c;
    uint8_t coll;    /* enum shim_coll */
    uint8_t inexact; /* the result depends on the order of a sum */
    uint8_t moves;   /* out and in are set: packs, or has blocks */
    uint8_t timed;   /* its time counts: it is reported to shim_passed or shim_took */
    uint8_t reason;  /* enum shim_reason */
    uint8_t sampled; /* of the cell on trial */
    uint8_t blocks;  /* enum shim_blocks, of a reduce_scatter */
    int dtype, op, root;
    size_t bytes; /* that decide; for each rank */
    const void *send;
    void *recv;
    size_t count; /* elements of dtype */
    struct shim_cell *cell;
    int64_t start_ns;
    int has_out, has_in;
    struct shim_side out, in;
    size_t *sizes; /* counts and displacements of blocks, in bytes: in, then out */
    void *temp;    /* result of a reduce_scatter; its part of temp_bytes at temp_at is copied to temp_to */
    void *temp_to;
    size_t temp_at, temp_bytes;
};

/** Begin a call: what is not set here is unset. @return 0: it goes to MPI. */
static inline int shim_begin(struct shim_call *call, enum shim_coll coll, MPI_Comm comm);

/* Fill a call from its arguments (plan.c). @return 0: it goes to MPI, and call->reason says why */
int shim_plan_allreduce(struct shim_call *call, const void *send, void *recv, int64_t count,
                        MPI_Datatype type, MPI_Op op);
int shim_plan_reduce(struct shim_call *call, const void *send, void *recv, int64_t count, MPI_Datatype type,
                     MPI_Op op, int root);
int shim_plan_reduce_scatter_block(struct shim_call *call, const void *send, void *recv, int64_t count,
                                   MPI_Datatype type, MPI_Op op);
int shim_plan_reduce_scatter(struct shim_call *call, const void *send, void *recv, struct shim_ints counts,
                             MPI_Datatype type, MPI_Op op);
int shim_plan_barrier(struct shim_call *call);
int shim_plan_bcast(struct shim_call *call, void *buf, int64_t count, MPI_Datatype type, int root);
int shim_plan_allgather(struct shim_call *call, const void *send, int64_t sendcount, MPI_Datatype sendtype,
                        void *recv, int64_t recvcount, MPI_Datatype recvtype);
int shim_plan_alltoall(struct shim_call *call, const void *send, int64_t sendcount, MPI_Datatype sendtype,
                       void *recv, int64_t recvcount, MPI_Datatype recvtype);
int shim_plan_gather(struct shim_call *call, const void *send, int64_t sendcount, MPI_Datatype sendtype,
                     void *recv, int64_t recvcount, MPI_Datatype recvtype, int root);
int shim_plan_scatter(struct shim_call *call, const void *send, int64_t sendcount, MPI_Datatype sendtype,
                      void *recv, int64_t recvcount, MPI_Datatype recvtype, int root);
int shim_plan_allgatherv(struct shim_call *call, const void *send, int64_t sendcount, MPI_Datatype sendtype,
                         void *recv, struct shim_ints counts, struct shim_ints displs, MPI_Datatype recvtype);
int shim_plan_alltoallv(struct shim_call *call, const void *send, struct shim_ints sendcounts,
                        struct shim_ints sdispls, MPI_Datatype sendtype, void *recv,
                        struct shim_ints recvcounts, struct shim_ints rdispls, MPI_Datatype recvtype);
int shim_plan_gatherv(struct shim_call *call, const void *send, int64_t sendcount, MPI_Datatype sendtype,
                      void *recv, struct shim_ints counts, struct shim_ints displs, MPI_Datatype recvtype,
                      int root);
int shim_plan_scatterv(struct shim_call *call, const void *send, struct shim_ints counts,
                       struct shim_ints displs, MPI_Datatype sendtype, void *recv, int64_t recvcount,
                       MPI_Datatype recvtype, int root);

/* ---- decisions (tune.c) ---- */

/** Is a planned blocking call taken over? May create Rondo's communicator. If not, the caller calls MPI, and
 * then shim_passed if call->timed. */
static inline int shim_takes(struct shim_call *call);
int shim_takes_slow(struct shim_call *call);
/** The same for a non-blocking call; never waits. */
int shim_takes_request(struct shim_call *call);
/** The same for a persistent call; collective. Sets call->c to a child. */
int shim_takes_persistent(struct shim_call *call);
/** A call that went to MPI has returned. */
void shim_passed(struct shim_call *call);
/** A call has run on Rondo in ns. */
void shim_took(struct shim_call *call, int64_t ns);
/** Free the cells of a communicator. */
void shim_cells_free(struct shim_cells *cells);

/* ---- running (run.c) ---- */

/** Run a call on Rondo. @return MPI's code; the error handler has been called */
int shim_run(struct shim_call *call);
/* The parts, for request.c. Prepare packs and fills call->sizes; finish unpacks unless the call failed, and
 * frees what prepare has allocated. @return RONDO_SYSTEM_ERROR with a sentence */
rondo_status shim_prepare(struct shim_call *call, int keeps);
rondo_status shim_issue(const struct shim_call *call, rondo_stream stream);
rondo_status shim_finish(struct shim_call *call, rondo_status status);
/** Rondo has failed: say why, and end its communicator. */
void shim_fail(struct shim_call *call, rondo_status status);
/** The same, and call the error handler unless MPI does. @return MPI's code */
int shim_error(struct shim_call *call, rondo_status status);

/* ---- buffers on GPUs (gpu.c) ---- */

/* Rondo's communicator of GPU memory beside that of host memory, once it is needed. A rank knows only where
 * its own buffers are. So the ranks agree on that before each blocking call of a communicator that has one
 * of these; and what a rank alone cannot do on its GPU, such as packing, sends the call to MPI on all of
 * them. */

/** Does this process use CUDA, so that its buffers may be on a GPU? */
int shim_gpu_is_used(void);
/** Can Rondo ask the driver where they are? Not if that is too old. */
int shim_gpu_works(void);
/** @return NULL: no memory, or a build without CUDA */
struct shim_gpu *shim_gpu_new(struct shim_comm *c);
/** Choose call->c by where the buffers of all ranks are; collective. @return 0: the call goes to MPI */
int shim_gpu_choose(struct shim_call *call);
/** Run a call on GPU memory, and wait for it. */
rondo_status shim_gpu_run(struct shim_call *call);
/** End Rondo's communicator; free the rest. */
void shim_gpu_end(struct shim_gpu *gpu);
void shim_gpu_free(struct shim_gpu *gpu);

/* ---- non-blocking calls (request.c, progress.c) ---- */

/** Do MPI's waits in this process move Rondo's calls? */
int shim_progress_works(void);
/** Do the calls that start and free persistent requests come here? Not if a tool hides them. */
int shim_starts_are_seen(void);
/** A call is under way: from now on they do. */
void shim_progress_begin(void);
/** @return how many calls are under way */
int shim_nrequests(void);
/** They do because we take them over (wait.c); known after shim_progress_works. */
extern int shim_waits_are_taken;
int shim_request_start(struct shim_call *call, MPI_Request *request);

struct shim_request {
    struct shim_call call;
    rondo_stream stream;
    MPI_Request handle;
    int code;                             /* MPI's error code */
    void (*ended)(struct shim_request *); /* the call has ended: complete the handle */
    struct shim_request *next;
};
/** Give it a stream for its next call: a stream keeps its first error. */
rondo_status shim_request_renew(struct shim_request *request);
/** Start request->call, for which it prepares and cleans up. @return RONDO_IN_PROGRESS: it is under way;
 * RONDO_SUCCESS: it has ended, with request->code; else it did not start */
rondo_status shim_request_issue(struct shim_request *request);
/** A call that was issued is under way, until request->ended. */
void shim_request_add(struct shim_request *request);

/* ---- persistent calls (persist.c) ---- */

int shim_persistent_make(struct shim_call *call, MPI_Request *request);
/** Call the error handlers of the communicators whose persistent calls have failed under way. */
void shim_persistent_tell(void);

/* ---- the report (report.c) ---- */

/** Count a call that has ended. taken 1: on Rondo. */
void shim_report_add(const struct shim_call *call, int taken, int64_t ns);
/** Write the report on rank 0 of MPI_COMM_WORLD. where: "1" is stderr, else a file. */
void shim_report_write(const char *where);

/* ---- inline parts ---- */

struct shim_outer {
    int rondo, shim;
};
/** A call of Rondo begins. The program's own groups (rondo_group_start) are not for it: it runs at once. It
 * may be part of another one. @return for shim_exit */
static inline struct shim_outer shim_enter(enum shim_inside how)
{
    struct shim_outer outer = { rondo_inside, shim_thread.inside };
    rondo_inside &= RONDO_INSIDE_CALL;
    shim_thread.inside = how;
    return outer;
}
static inline void shim_exit(struct shim_outer outer)
{
    shim_thread.inside = outer.shim;
    rondo_inside = outer.rondo;
}

static inline int shim_class(size_t bytes)
{
    int class = bytes < 2 ? 0 : 64 - __builtin_clzl(bytes - 1); /* (2^(i-1), 2^i] */
    return class < SHIM_NCLASSES ? class : SHIM_NCLASSES - 1;
}

/** A call goes to MPI; the report and a trial count its time. @return 0 */
static inline int shim_leave(struct shim_call *call, enum shim_reason reason)
{
    call->reason = (uint8_t)reason;
    if (RONDO_UNLIKELY(shim_reporting || (call->c != NULL && call->c->tried != NULL))) {
        call->timed = 1;
        call->start_ns = rondo_now_ns();
    }
    return 0;
}

/** Does MPI carry this call, as it did the last one like it? count: -1: another argument decides */
static inline int shim_is_left(int is_request, enum shim_coll coll, MPI_Comm comm, int64_t count,
                               MPI_Datatype type, MPI_Op op)
{
    const struct shim_types *types = shim_thread.types;
    const struct shim_left *left;
    if (RONDO_UNLIKELY(types == NULL)) {
        return 0;
    }
    left = &types->left[is_request][coll];
    return left->comm == comm && left->count == count && left->type == type && left->op == op &&
           left->generation == __atomic_load_n(&shim_generation, __ATOMIC_ACQUIRE) &&
           types->generation == __atomic_load_n(&shim_types_generation, __ATOMIC_ACQUIRE);
}
/** @return the sum of a count for each rank; -1: it is not worth the time, or MPI refuses a count */
static inline int64_t shim_total(MPI_Comm comm, struct shim_ints counts)
{
    const struct shim_thread *t = &shim_thread;
    int64_t total = 0, or = 0;
    if (t->comm != comm || t->generation != __atomic_load_n(&shim_generation, __ATOMIC_ACQUIRE) ||
        t->state->n > SHIM_FEW || counts.at == NULL) {
        return -1;
    }
    for (int r = 0; r < t->state->n; r++) {
        total += shim_int(counts, r);
        or |= shim_int(counts, r);
    }
    return or < 0 ? -1 : total;
}
/** A call goes to MPI: see whether others like it will. */
void shim_note_left(int is_request, const struct shim_call *call, MPI_Comm comm, int64_t count,
                    MPI_Datatype type, MPI_Op op);

static inline int shim_begin(struct shim_call *call, enum shim_coll coll, MPI_Comm comm)
{
    struct shim_thread *t = &shim_thread;
    call->c = RONDO_LIKELY(t->comm == comm &&
                           t->generation == __atomic_load_n(&shim_generation, __ATOMIC_ACQUIRE))
                  ? t->state
                  : shim_comm_find(comm);
    call->coll = (uint8_t)coll;
    call->timed = call->sampled = 0;
    call->bytes = 0;
    if (call->c == NULL || call->c->leaves != SHIM_BY_NONE) {
        return shim_leave(call, call->c == NULL ? SHIM_BY_CLOSED : call->c->leaves);
    }
    call->inexact = call->moves = 0;
    call->root = 0;
    call->temp = NULL;
    return 1;
}

static inline int shim_takes(struct shim_call *call)
{
    const struct shim_comm *c = call->c;
    if (RONDO_LIKELY(c->steady != NULL)) {
        call->cell = &c->steady->cell[call->coll][call->inexact][shim_class(call->bytes)];
        if (RONDO_LIKELY(call->cell->verdict == SHIM_TAKE)) {
            return 1;
        }
    }
    return shim_takes_slow(call);
}

#pragma GCC visibility pop
#endif
