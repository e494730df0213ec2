/*
 * What the ranks of a host do, as another process sees it: the flight recorder's reader, and the diagnosis of
 * rondo-doctor.
 *
 *   rondo_observe          processes -> indices -> control segments (base/record.h) -> struct rondo_seen
 *   rondo_observe_nodes    the same of other nodes, through the control plane (net/control/look.h)
 *   rondo_seen_write/read  the same as bytes, from the hosts of a job to the one where rondo-doctor runs
 *   rondo_diagnose         what keeps the job: findings, the worst first
 *   rondo_seen_text, ...   the report: text, JSON, PyTorch's flight recorder, SVG
 *
 * Nothing here stops, signals or waits for a rank, or changes what it reads; a rank may run meanwhile, so
 * what is read is a moment of each rank, not one of all. What a rank wrote is checked before it is used.
 * Times are of CLOCK_REALTIME, so that those of several hosts can be compared as well as their clocks agree.
 */
#ifndef RONDO_OBSERVE_OBSERVE_H
#define RONDO_OBSERVE_OBSERVE_H

#include <stdio.h>

#include "base/record.h"
#include "base/status.h"

struct rondo_control_place;
struct rondo_look;

/* ---- what was seen ---- */

struct rondo_seen_call {
    uint64_t seq, count;
    int64_t begin_ns, end_ns; /* 0: not known */
    uint32_t word;
    int32_t op, root;           /* root: or the peer of a message */
    uint8_t coll, dtype, state; /* state 1: under way, 2: done */
};

enum { RONDO_SEEN_STACK = 4096 };

struct rondo_seen_process {
    int32_t pid;
    char state;    /* as in /proc/PID/stat: R, S, D, T, t, Z; 0: it has ended, or is not this pid any more */
    uint8_t slurm; /* job is one of Slurm */
    uint8_t sampled; /* percent is valid */
    int16_t percent; /* of a core, while rondo_observe looked */
    uint64_t start;
    uint64_t swapped; /* bytes */
    char host[RONDO_HOST_LEN];
    char job[RONDO_RECORD_JOB];
    char command[32];
    char wchan[48], syscall[48];  /* where the kernel has it; "": not known */
    char stack[RONDO_SEEN_STACK]; /* of its first thread, a frame a line; "": none */
};

struct rondo_seen_rank {
    int32_t rank, node, process; /* process: index */
    int32_t ncalls, nmessages;
    uint8_t life;         /* 1: attached, 2: alive, 3: left */
    uint8_t waits;        /* the fields below are valid */
    uint8_t message_open; /* it waits in this send or receive */
    uint64_t begun, done; /* collectives */
    struct rondo_seen_call message;
    int64_t since_ns;
    uint32_t nlanes;
    struct rondo_blocked lane[RONDO_RECORD_LANES];
    char text[128];
    struct rondo_seen_call *calls, *messages; /* ascending */
};

struct rondo_seen_comm {
    uint64_t hash;
    char name[64];
    int32_t nranks, nnodes, n, room; /* n: ranks that were seen; room: of ranks */
    int32_t reason_rank;
    int32_t reason; /* why it has ended, a rondo_status; RONDO_SUCCESS: it has not */
    char reason_text[RONDO_ERROR_TEXT];
    struct rondo_seen_rank *ranks; /* ascending */
};

/* Where the ranks of a communicator of several nodes listen. */
struct rondo_seen_wire {
    uint64_t hash, secret[2];
    uint32_t scope;
    int32_t nranks, nnodes;
    struct rondo_control_place *places; /* by rank */
    char (*hosts)[RONDO_HOST_LEN];      /* by node */
};

struct rondo_seen {
    int64_t now_ns;
    int ncomms, nprocesses, ncomms_room, nprocesses_room;
    int nforbidden; /* processes that may be ranks and could not be read */
    int nelsewhere; /* ranks of containers with another host name */
    struct rondo_seen_comm *comms;
    struct rondo_seen_process *processes;
    struct rondo_seen_wire *wires; /* of this host only; they go to no other */
    int nwires, nwires_room;
};

struct rondo_observe_request {
    const int *pids; /* begin with these processes and follow their communicators; NULL: all of this user */
    int npids;
    int sample_ms;            /* how long to watch what the processes use of a core; 0: not at all */
    int any_host;             /* also processes whose host name is another one (containers) */
    const char *job;          /* only processes of this job; NULL: any */
    int wires;                /* also find where ranks of other nodes listen, for rondo_observe_nodes */
    const _Atomic int *ended; /* watch no longer once it is set; NULL: it never is */
};

/** Look at the ranks of this host. Zero *seen first. @return an error of memory; that there are no ranks is
 * none. Release *seen in either case. */
rondo_status rondo_observe(struct rondo_seen *seen, const struct rondo_observe_request *request);
/** Look at one communicator of this process, by its own mapping of the segment: no index and no descriptor is
 * needed. entry: of the segment at base, from rondo_control_record. Zero *seen first.
 * @return RONDO_SYSTEM_ERROR: no memory, or no /proc. Release *seen in either case. */
rondo_status rondo_observe_own(struct rondo_seen *seen, const struct rondo_record_entry *entry,
                               const void *base);
void rondo_seen_release(struct rondo_seen *seen);

/**
 * Ask the ranks of the nodes of which none was seen, and add what they see. A node's processes are asked one
 * after the other until one answers: those that are stopped do not.
 * @param silent  called with the host of each node of which none did
 */
void rondo_observe_nodes(struct rondo_seen *seen, const struct rondo_look *look,
                         void (*silent)(const char *host, void *arg), void *arg);

/** @return a rank's collective of this number; NULL: it is not on record. */
const struct rondo_seen_call *rondo_seen_call_of(const struct rondo_seen_rank *rank, uint64_t seq);

/** Write what was seen, for rondo_seen_read of the same version. @return RONDO_SYSTEM_ERROR */
rondo_status rondo_seen_write(FILE *out, const struct rondo_seen *seen);
/** Add what another host saw. @return RONDO_REMOTE_ERROR: these are no such bytes. */
rondo_status rondo_seen_read(FILE *in, struct rondo_seen *seen);

/** Ask a debugger for the stack of a process (gdb or eu-stack, at most 10 s each). @return 0: there is none,
 * and *stack is empty. */
int rondo_process_stack(int pid, char stack[RONDO_SEEN_STACK]);
/** Is a process neither stopped nor ended? A debugger would wait for it else. */
int rondo_process_runs(const struct rondo_seen_process *process);
/** Take the stacks of all running processes, which are of this host, until *ended is set (NULL: of all). */
void rondo_seen_stacks(struct rondo_seen *seen, const _Atomic int *ended);
/** Take those of up to four that a finding names. The first nhere processes are of this host, those before
 * nasked were seen by rondo_observe_nodes, which asks for theirs; of later ones nothing is taken. */
void rondo_seen_stacks_wanted(struct rondo_seen *seen, int nhere, int nasked, int64_t slow_ns);
/** Read a process's state, memory and place in the kernel. */
void rondo_process_seen(struct rondo_seen_process *process);

/* ---- diagnosis ---- */

/* X(ctx, NAME, name): the worst first. */
#define RONDO_FINDING_TABLE(X, ctx)                                                   \
    X(ctx, DEAD, dead)         /* a rank has died; the others may not know yet */     \
    X(ctx, MISMATCH, mismatch) /* ranks make different calls under one number */      \
    X(ctx, ORDER, order)       /* ranks use two communicators in different orders */  \
    X(ctx, STOPPED, stopped)   /* a rank that others wait for is stopped */           \
    X(ctx, MISSING, missing)   /* a rank has not made the call that others wait in */ \
    X(ctx, MESSAGE, message)   /* a send or receive that its peer has not met */      \
    X(ctx, STUCK, stuck)       /* all ranks are in the call, and it does not move */  \
    X(ctx, ENDED, ended)       /* the communicator has ended with an error */         \
    X(ctx, SWAPPED, swapped)   /* a rank's memory is on disk */                       \
    X(ctx, LATE, late)         /* a rank arrives last in most calls */                \
    X(ctx, NOTHING, nothing)   /* nobody waits */
#define RONDO_ENUM_ROW_(ctx, NAME, name) RONDO_FINDING_##NAME,
enum rondo_finding_kind { RONDO_FINDING_TABLE(RONDO_ENUM_ROW_, ) RONDO_NUM_FINDINGS };
#undef RONDO_ENUM_ROW_

enum { RONDO_FINDING_TEXT = 600, RONDO_MOST_FINDINGS = 32 };
struct rondo_finding {
    enum rondo_finding_kind kind;
    int comm, rank; /* index of the communicator; the rank to look at, -1: none */
    int other;      /* another rank that the sentence names, -1: none */
    int waiting;    /* ranks that wait because of it */
    int64_t since_ns;
    char text[RONDO_FINDING_TEXT]; /* the sentence */
};

struct rondo_diagnosis {
    int n;
    struct rondo_finding finding[RONDO_MOST_FINDINGS];
    struct rondo_finding dropped; /* less than all of these */
};

/** Find out what keeps the job. The first finding is the verdict; there is always one. slow_ns: how long a
 * rank may be late, or wait, before it is a finding. */
void rondo_diagnose(const struct rondo_seen *seen, int64_t slow_ns, struct rondo_diagnosis *diagnosis);
const char *rondo_finding_name(enum rondo_finding_kind kind);

/* How late a rank was in the calls that all seen ranks of its communicator have on record. On several hosts,
 * whose clocks differ: in calls that no rank ends before all have begun, by how long each was in the call. */
enum { RONDO_LATE_BINS = 8 }; /* below 1 us, 10 us, 100 us, 1 ms, 10 ms, 100 ms, 1 s, and more */
struct rondo_lateness {
    int ncalls, nlast;
    int bin[RONDO_LATE_BINS];
    int64_t median_ns;
};
/** Fill in one entry for each seen rank of the communicator. */
rondo_status rondo_lateness_of(const struct rondo_seen_comm *comm, struct rondo_lateness *late);

/* ---- the report ---- */

/** "all_reduce #17 (count 8, f32, sum)", "a send of 8 f32 to rank 2" */
void rondo_seen_call_text(const struct rondo_seen_call *call, char *text, size_t size);
/** "0-3,7". @return text */
char *rondo_seen_ranks_text(const int *ranks, int n, char *text, size_t size);
/** "31 s", "2.5 ms" */
char *rondo_seen_time_text(int64_t ns, char text[16]);

void rondo_seen_text(FILE *out, const struct rondo_seen *seen, const struct rondo_diagnosis *diagnosis);
void rondo_seen_json(FILE *out, const struct rondo_seen *seen, const struct rondo_diagnosis *diagnosis);
/** In the form of PyTorch's flight recorder (its JSON dump, version 2.4): one object for each seen rank's
 * communicators. */
void rondo_seen_flight(FILE *out, const struct rondo_seen *seen);
/** Such an object of one rank. */
void rondo_seen_flight_of(FILE *out, const struct rondo_seen_comm *comm, const struct rondo_seen_rank *rank);
/** Ranks by time: a row for each rank of a communicator, its recorded calls as bars. */
void rondo_seen_svg(FILE *out, const struct rondo_seen *seen, const struct rondo_diagnosis *diagnosis);

#endif
