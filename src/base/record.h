/*
 * The flight recorder: what a rank leaves in shared memory for rondo-doctor (src/observe), which reads it
 * while the rank runs, is stopped, or is dead as long as one other process of its node has the segment.
 *
 *   a process's index                        a node's control segment of a communicator (net/control)
 *   memfd "rondo-record", 0600               head: where the blocks and rings are
 *   head: who, which job                     block of each local rank: pid, calls, where it waits
 *   entry of each communicator ------------> rings of each local rank: its last collectives and messages
 *     the segment: a descriptor of this
 *     process, offset and bytes
 *
 * A reader finds indices by their name in /proc/PID/fd, which only the owner's user and root may look at.
 * Nothing has a name in a file system: the kernel frees index and segment when the last process that holds
 * them has gone. Each process of a node holds the descriptor of its leader's segment, so that a segment
 * outlives the leader.
 *
 * Writers never wait. A reader copies with pread, which reserves no memory, checks the versions, and takes no
 * number that it read for an index before it has checked it. Layout changes: count the version up.
 */
#ifndef RONDO_BASE_RECORD_H
#define RONDO_BASE_RECORD_H

#include <stdatomic.h>

#include "base/types.h"
#include "base/wait.h"

enum {
    RONDO_RECORD_VERSION = 1,
    RONDO_RECORD_MAGIC = 0x64636572,
    RONDO_RECORD_CALLS = 256,  /* collectives, and messages, that a rank keeps; a power of two */
    RONDO_RECORD_LANES = 4,    /* blocked runs that a waiting rank shows */
    RONDO_RECORD_COMMS = 4096, /* communicators that an index has room for */
    RONDO_RECORD_JOB = 64      /* bytes of the name of a job, with its end */
};
#define RONDO_RECORD_NAME "rondo-record"

/* ---- one operation: a cache line that its rank alone writes ---- */

/*
 * Words of a line. SEQ is 0 while the others are written. KIND: root or peer, collective << 32, type << 40,
 * state << 48 (1: entered, 2: done). OP: call word, operation << 32. Times are ticks of the segment's clock;
 * END 0: not done, or done within the first looks at the mailbox (some 200 reads), whose end is not timed.
 */
enum {
    RONDO_LINE_SEQ,
    RONDO_LINE_COUNT,
    RONDO_LINE_OP,
    RONDO_LINE_KIND,
    RONDO_LINE_BEGIN,
    RONDO_LINE_END,
    RONDO_LINE_WORDS = 8,
    RONDO_LINE_STATE_SHIFT = 48
};
struct rondo_record_line {
    _Atomic uint64_t word[RONDO_LINE_WORDS];
} RONDO_ALIGNED(RONDO_CACHE_LINE);

/* Collectives and messages are numbered apart, from 1; number n is in line n % RONDO_RECORD_CALLS. */
struct rondo_record_rings {
    struct rondo_record_line collective[RONDO_RECORD_CALLS], message[RONDO_RECORD_CALLS];
};

/* ---- where a rank waits ---- */

enum rondo_blocked_what {
    RONDO_BLOCKED_NONE,
    RONDO_BLOCKED_DATA,    /* from the peer */
    RONDO_BLOCKED_CREDIT,  /* of the peer: it has not taken what was sent */
    RONDO_BLOCKED_MESSAGE, /* of the peer, in the node's mailbox */
    RONDO_BLOCKED_CONNECT, /* the peer has not made its side of a connection */
    RONDO_NUM_BLOCKED
};

/* What a run waits for. */
struct rondo_blocked {
    int32_t peer; /* a rank; -1 - local rank on the mailbox; RONDO_NO_PEER (kern/exec.h) */
    uint16_t channel;
    uint8_t proto; /* enum rondo_proto; RONDO_NUM_PROTOS: none */
    uint8_t what;  /* enum rondo_blocked_what */
    uint64_t step;
};

/* Written by the rank's waiting thread, some 50 ms after a wait began and then a few times a second at least.
 * It may be out of date by the time that it is read, so readers compare it with the rank's calls. */
struct rondo_record_wait {
    _Atomic uint64_t stamp; /* odd while the rest is written */
    int64_t since_ns;       /* CLOCK_MONOTONIC: in this state since about then; 0: not waiting */
    uint64_t begun;         /* collectives that the rank had begun */
    uint32_t nlanes;
    uint32_t reserved;
    struct rondo_blocked lane[RONDO_RECORD_LANES]; /* peers are ranks */
    char text[128];                                /* the first of them in words */
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);
_Static_assert(sizeof(struct rondo_record_wait) == 256, "documented size");

/* ---- the clock ---- */

enum rondo_record_clock {
    RONDO_CLOCK_OFF,     /* RONDO_RECORDER=0: a short ring without times */
    RONDO_CLOCK_COUNTER, /* the processor's counter of constant rate */
    RONDO_CLOCK_NS       /* CLOCK_MONOTONIC */
};

/** Read the processor's counter. It may be read before earlier instructions have ended. */
static inline uint64_t rondo_counter(void)
{
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return (uint64_t)rondo_now_ns();
#endif
}

static inline uint64_t rondo_record_ticks(enum rondo_record_clock clock)
{
    return RONDO_LIKELY(clock == RONDO_CLOCK_COUNTER) ? rondo_counter()
           : clock == RONDO_CLOCK_NS                  ? (uint64_t)rondo_now_ns()
                                                      : 0;
}

/** The clock of segments that this process makes: RONDO_RECORDER, and what the host's counter is good for. */
enum rondo_record_clock rondo_record_clock(void);

/* ---- a process's index ---- */

struct rondo_record_index {
    uint32_t magic, version;
    int32_t pid;
    int32_t ncomms;  /* entries from here on were never used */
    uint64_t start;  /* rondo_process_start */
    uint64_t missed; /* communicators that found no room */
    char host[RONDO_HOST_LEN];
    char job[RONDO_RECORD_JOB]; /* the launcher's name of the job; "": none */
    uint32_t slurm;             /* it is a job of Slurm */
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);

struct rondo_record_entry {
    _Atomic uint32_t state; /* 1: the rest is valid */
    int32_t fd;             /* of the segment in this process; -1: it holds none, another process does */
    int32_t rank, nranks;
    int32_t local_rank, nlocal;
    int32_t node, nnodes;
    uint64_t comm_hash;
    uint64_t inode; /* of the segment */
    uint64_t offset, bytes;
    char name[64];
} RONDO_ALIGNED(RONDO_CTRL_ALIGN);
_Static_assert(sizeof(struct rondo_record_entry) == 128, "documented size");

struct rondo_shm;

/**
 * Enter a communicator in the process's index, which the first one makes. Any thread.
 * @param entry  state and fd are ignored
 * @param shm  the mapped segment; its descriptor is held unless it is this process's own
 * @return the entry's number for rondo_record_remove; -1: there is no room, or no descriptor is left: the
 * doctor then sees the rank through the other processes only.
 */
int rondo_record_add(const struct rondo_record_entry *entry, const struct rondo_shm *shm);
/** Take it out again; the last one closes the index. number -1: nothing. */
void rondo_record_remove(int number);

#endif
