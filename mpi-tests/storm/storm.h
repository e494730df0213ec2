/*
 * mpi_storm: random calls on random communicators, each result checked exactly, while ranks die or stop.
 *
 * All ranks draw the same steps from one seed, so they agree without talking which communicators there are
 * and who is in them. A rank skips what concerns only others. The parts: storm.c (options, the sequence of
 * steps), storm_comms.c (communicators come and go), storm_calls.c (calls on them), storm_fault.c (deaths,
 * what the survivors must be told, going on without the dead).
 *
 * A step returns the status of the first call that failed, after storm_failed() has judged it.
 */
#ifndef RONDO_TESTS_STORM_H
#define RONDO_TESTS_STORM_H

#include "mpi_coll.h"

enum {
    STORM_RANKS = 16,
    STORM_SLOTS = 8, /* communicators at once; slot 0 has all ranks that live */
    STORM_BATCH = 6, /* calls, or messages, under way at once */
    STORM_STREAMS = 2,
    STORM_TEXT = 256
};

/* A communicator. All ranks agree on all fields before `place`. */
struct storm_slot {
    int used;
    int n, members[STORM_RANKS]; /* ranks of the job, in the order of their ranks here */
    long born;                   /* the step that made it */
    int creating;                /* number of the step that creates it without blocking; 0: none */
    int over_mpi;                /* created over MPI, and not from another communicator */
    char name[32];
    struct {
        char name[32];
        int n, members[STORM_RANKS];
    } parent;            /* what it was split or shrunk from */
    int place;           /* this rank's rank; -1: no member */
    struct coll_run run; /* comm NULL: no member, or the communicator has failed */
    rondo_comm *outside; /* what a split without blocking gives to a rank without colour */
};

/* Shared by all processes, also by the dead. */
struct storm_board {
    int64_t struck_us[STORM_RANKS]; /* test_now() just before a rank was killed or stopped; 0: not */
    int pid[STORM_RANKS];
    int aimed[STORM_RANKS]; /* epochs that a rank has begun */
};

struct storm {
    /* options */
    uint64_t seed;
    long steps;         /* end after so many; 0: no limit */
    long seconds;       /* or after this long, by rank 0's clock */
    long deaths;        /* ranks that die or stop, one or two at a time */
    int signals;        /* which: bits of enum storm_signal */
    int scarce;         /* errors because of too little memory or files are no failures */
    long limit_ms;      /* a death must be known after this long */
    long dead_after_ms; /* RONDO_DEAD_AFTER: a stopped rank counts as dead */
    long watchdog_s;
    size_t most;  /* bytes of a rank's block at most */
    int multiple; /* MPI_THREAD_MULTIPLE */
    int verbose;

    /* the sequence */
    int epoch; /* a new one begins after each death */
    long step;
    uint64_t key; /* of this step */
    double step_began;
    char what[STORM_TEXT];
    struct storm_slot slot[STORM_SLOTS];
    rondo_stream stream[STORM_STREAMS];

    /* faults */
    struct storm_board *board;
    int nvictims, victim[2]; /* of this epoch */
    int signal;
    long refusals; /* errors that `scarce` allows */
    int known;     /* deaths that this rank was told of */
    double worst;  /* seconds until this rank knew of a death, at most */
};
extern struct storm storm;

enum storm_signal { STORM_KILL = 1, STORM_STOP = 2 };

/** @return a random number of this step, the same on all ranks. */
uint64_t storm_draw(uint64_t salt);
/** The same for each rank of a communicator, or for whatever `of` numbers. */
uint64_t storm_draw_of(uint64_t salt, int of);
/** Name what is done now, for messages and the watchdog. */
void storm_says(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- communicators ---- */

/** Create slot 0 over MPI. Collective. */
rondo_status storm_world(void);
/** @return a used slot, chosen by the number; never one below `least`. NULL: there is none. */
struct storm_slot *storm_pick(uint64_t number, int least);
/** Is this rank in it, and is it usable? Its creation is complete once storm_complete() has returned. */
int storm_is_in(const struct storm_slot *s);
/** Complete the creation of this communicator, and of its siblings. All ranks call it, members or not. */
rondo_status storm_complete(struct storm_slot *s);
rondo_status storm_complete_all(void);
/* Steps. */
rondo_status storm_create(void);
rondo_status storm_split(void);
rondo_status storm_shrink(void);
rondo_status storm_destroy(void);
rondo_status storm_abort(void);
/** Destroy all communicators, slot 0 last. */
rondo_status storm_destroy_all(void);
/** Prepare a slot's run, of a communicator that is ready. */
rondo_status storm_slot_ready(struct storm_slot *s);
void storm_slot_free(struct storm_slot *s);
/** The communicators of MPI that storm_create() uses. */
void storm_mpi_begin(void);
void storm_mpi_end(void);

/* ---- calls: steps ---- */

rondo_status storm_call(void);
rondo_status storm_batch(void);
rondo_status storm_messages(void);
rondo_status storm_barrier(void);
rondo_status storm_misuse(void);
rondo_status storm_memory(void);
/** Free the buffers of calls that have failed, and make new streams. */
void storm_drop(void);

/* ---- faults ---- */

/** Map the file that all ranks share. Collective. */
void storm_board_open(void);
/** Draw this epoch's victims, and when they are struck. */
void storm_aim(void);
/**
 * A call on the communicator has failed, or one that creates it. Ends the program if it may not fail, or not
 * like that.
 * @return status; RONDO_SUCCESS if the storm goes on without this communicator, which is aborted then.
 */
rondo_status storm_failed(struct storm_slot *s, int creating, rondo_status status, const char *text);
/** After a failure: check that every communicator with a victim says so, then go on without the victims. A
 * victim does not return. */
void storm_recover(void);

#endif
