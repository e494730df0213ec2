/* Shared by the parts of the simulated machine: machine_sim.c runs fibers, machine_sim_memory.c is their
 * memory, machine_sim_race.c checks that accesses are ordered. */
#ifndef RONDO_SIM_MACHINE_SIM_IMPL_H
#define RONDO_SIM_MACHINE_SIM_IMPL_H

#include "sim/machine_sim.h"

enum {
    SIM_LINE = 128,
    SIM_OPEN = 8,       /* lines that a warp may have begun */
    SIM_BUFFER = 32,    /* delayed stores of a thread */
    SIM_BLOCK = 512,    /* delayed stores of a block */
    SIM_HISTORY = 2048, /* stores whose overwritten values are kept */
    SIM_LOOK_BACK = 64, /* of these, how many a load may ignore */
    SIM_LATELY = 4096,
    SIM_SEEN = 16, /* lines whose version a thread remembers */
    SIM_BARRIERS = 16
};

/* A delayed store; it becomes visible as a whole. */
struct sim_entry {
    uintptr_t addr;
    uint32_t bytes;
    uint8_t data[SIM_LINE];
};
struct sim_buffer {
    struct sim_entry *entry; /* in program order */
    int n, most;
};

/* A past store, and the value it overwrote. */
struct sim_past {
    uintptr_t addr;
    uint32_t bytes;
    const struct sim_block *writer;
    uint8_t old[SIM_LINE];
};

struct sim_open_line {
    uintptr_t addr;
    uint32_t words; /* bit per word: a lane has stored it */
    uint64_t word[SIM_LINE / 8];
};

struct sim_snap {
    uintptr_t addr;
    uint32_t taken;               /* bit per lane: it has taken its part */
    uint64_t generation, version; /* generation: the warp's syncs */
    uint64_t word[SIM_LINE / 8];
};

struct sim_warp {
    uint32_t arrived; /* lanes that have reached the warp operation */
    uint32_t ended;   /* lanes that have ended */
    enum rondo_sim_vote vote;
    uint64_t value[RONDO_WARP];
    uint32_t source[RONDO_WARP];
    uint64_t syncs; /* warp syncs passed */
    struct sim_clock *clock;
    uint32_t pair_stored, pair_loaded; /* when, in accesses of the race check */
    struct sim_open_line open[SIM_OPEN];
    int nopen;
    struct sim_snap
        snap[SIM_OPEN]; /* lines that lanes have loaded, for lanes that have not taken their part */
};

struct sim_barrier {
    uint32_t arrived, nthreads;
    uint64_t version;
    struct sim_clock *clock;
    struct sim_thread *waiting; /* list, latest first */
};

struct sim_block {
    struct sim *sim;
    const struct rondo_sim_grid *grid;
    uint32_t index;
    int number; /* of its grid */
    void *shared;
    struct sim_thread *thread;
    struct sim_warp *warp;
    struct sim_barrier barrier[SIM_BARRIERS];
    struct sim_buffer buffer;
    struct sim_clock *credits; /* that its threads have loaded */
};

struct sim_context {
    void *sp;       /* of a fiber that is not running */
    void *ucontext; /* on machines without a switch above */
    void *fake_stack, *tsan;
    const void *stack;
    size_t stack_bytes;
};

struct sim_thread {
    struct rondo_sim_self self; /* must be first */
    struct sim_block *block;
    struct sim_warp *warp;
    struct sim_context context;
    struct sim_thread *next; /* waits at the same barrier */
    uint64_t result;         /* of the last warp operation */
    uint64_t paired;         /* the warp's syncs and 1, at its last pair */
    int done;
    /* for delayed mode */
    struct sim_buffer buffer;
    uint64_t floor;  /* loads return at least the memory after this many stores of the run */
    uint64_t loaded; /* the newest store that a load has seen */
    struct {
        uintptr_t line;
        uint64_t version; /* as floor, for one line */
    } seen[SIM_SEEN];
    /* for the race check */
    uint32_t epoch;
    struct sim_clock *known, *found,
        *fenced;               /* found: by relaxed loads since the last fence; fenced: at it */
    struct sim_clock *credits; /* of its block at its last barrier or warp sync, and its own */
};

struct sim {
    const struct rondo_sim_rules *rules;
    struct rondo_sim_result *result;
    uint64_t random;
    struct sim_block *block;
    uint32_t nblocks, nthreads, nrunning;
    struct sim_thread *thread;
    struct sim_thread **ready; /* ring */
    uint32_t first, nready;
    struct sim_context main;
    uint64_t idle;  /* breaths since anything moved */
    uint64_t most;  /* switches */
    uint32_t alone; /* plain accesses since the last switch */
    int leave;
    uint8_t *stacks;
    size_t stack_bytes;
    /* for delayed mode */
    struct sim_entry *entries;
    struct sim_past *past;
    uint64_t *lately;      /* [SIM_LATELY], by a word's hash: the newest store to such a word */
    uint64_t version;      /* stores done */
    struct sim_race *race; /* NULL: no check */
};

static inline struct sim_thread *sim_self(void) { return (struct sim_thread *)(void *)rondo_sim_self; }

static inline uint64_t sim_random(struct sim *sim)
{
    sim->random ^= sim->random << 13;
    sim->random ^= sim->random >> 7;
    sim->random ^= sim->random << 17;
    return sim->random;
}
/* True with a chance of one in n, a power of two. */
static inline int sim_chance(struct sim *sim, uint64_t n) { return (sim_random(sim) >> 11 & (n - 1)) == 0; }

static inline int sim_is_late(const struct sim *sim) { return sim->rules->delayed || sim->rules->late; }

/** Let another fiber run; the caller stays ready. */
void rondo_sim_yield(void);
/** End the run because of a forbidden operation, with a sentence. Does not return. */
void rondo_sim_break(const char *fmt, ...) RONDO_PRINTF(1, 2) __attribute__((noreturn));

/* In machine_sim_memory.c. @return 0: no memory. */
int rondo_sim_memory_begin(struct sim *sim);
void rondo_sim_memory_end(struct sim *sim);
/** A step of time: perhaps some delayed store becomes visible. */
void rondo_sim_memory_tick(struct sim *sim);
/** All delayed stores become visible. @return 0: there was none. */
int rondo_sim_memory_settle(struct sim *sim);
/** The lanes of a warp diverge or meet: store the lines that they have begun as they are. */
void rondo_sim_lines_close(struct sim_block *block, struct sim_warp *warp);
/** A thread reaches a barrier: its stores go to the block's buffer. */
void rondo_sim_memory_share(struct sim_thread *thread);
/** A thread has ended: its stores become visible. */
void rondo_sim_memory_publish(struct sim_thread *thread);
/** Before a plain access that is not the machine's: the block's delayed stores to these bytes become
 * visible. */
void rondo_sim_memory_plain(struct sim_thread *thread, uintptr_t addr, uint32_t bytes);

/* In machine_sim_race.c. @return 0: no memory. */
int rondo_sim_race_begin(struct sim *sim);
/** Completes the result's sentence. */
void rondo_sim_race_end(struct sim *sim);
/** A thread comes to a barrier or warp sync; when all have come, each meets; then the meeting is over. */
void rondo_sim_race_arrive(struct sim_clock **meeting, struct sim_thread *thread);
void rondo_sim_race_meet(struct sim_clock *meeting, struct sim_thread *thread);
void rondo_sim_race_met(struct sim_clock **meeting);
void rondo_sim_race_fence(struct sim_thread *thread);
enum { SIM_READS = 0, SIM_WRITES = 1, SIM_STRONG = 2 };
/** pc: the code that makes the access. Does not return if it races. */
void rondo_sim_race_access(struct sim_thread *thread, uintptr_t addr, uint32_t bytes, int how,
                           const void *pc);
/** The same for a relaxed access, or an ordered one: acquire or release. */
void rondo_sim_race_strong(struct sim_thread *thread, uintptr_t addr, uint32_t bytes, int how, int ordered,
                           const void *pc);
/** The same for a pair. */
void rondo_sim_race_pair(struct sim_thread *thread, uintptr_t addr, int how, const void *pc);

#endif
