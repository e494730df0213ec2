/* What the two parts of the simulated machine share: machine_sim.c runs fibers, machine_sim_memory.c is their
 * memory. */
#ifndef RONDO_SIM_MACHINE_SIM_IMPL_H
#define RONDO_SIM_MACHINE_SIM_IMPL_H

#include "sim/machine_sim.h"

enum {
    SIM_LINE = 128,
    SIM_OPEN = 8,       /* lines that a warp may have begun */
    SIM_BUFFER = 32,    /* delayed stores of a thread */
    SIM_BLOCK = 512,    /* of a block */
    SIM_HISTORY = 2048, /* stores whose old values are kept */
    SIM_LOOK_BACK = 64, /* of them, how far a load may be behind */
    SIM_SEEN = 16,      /* lines of which a thread remembers how new they were */
    SIM_BARRIERS = 16
};

/* A store under way; what it holds becomes visible at once. */
struct sim_entry {
    uintptr_t addr;
    uint32_t bytes;
    uint8_t data[SIM_LINE];
};
struct sim_buffer {
    struct sim_entry *entry; /* in the order of the program */
    int n, most;
};

/* A store that was done, and what was there. */
struct sim_past {
    uintptr_t addr;
    uint32_t bytes;
    const struct sim_block *writer;
    uint8_t old[SIM_LINE];
};

struct sim_open_line {
    uintptr_t addr;
    uint32_t words; /* bit per word that a lane has stored */
    uint64_t word[SIM_LINE / 8];
};

struct sim_snap {
    uintptr_t addr;
    uint32_t taken; /* lanes that have */
    uint64_t generation, version;
    uint64_t word[SIM_LINE / 8];
};

struct sim_warp {
    uint32_t arrived; /* lanes at a warp operation */
    uint32_t ended;   /* how many lanes have */
    enum rondo_sim_vote vote;
    uint64_t value[RONDO_WARP];
    uint32_t source[RONDO_WARP];
    uint64_t generation; /* warp operations passed */
    struct sim_open_line open[SIM_OPEN];
    int nopen;
    struct sim_snap
        snap[SIM_OPEN]; /* lines that lanes have loaded, for those that have not taken their part */
};

struct sim_barrier {
    uint32_t arrived, nthreads;
    uint64_t version;
    struct sim_thread *waiting; /* list, the last one first */
};

struct sim_block {
    struct sim *sim;
    const struct rondo_sim_grid *grid;
    uint32_t index;
    void *shared;
    struct sim_thread *thread;
    struct sim_warp *warp;
    struct sim_barrier barrier[SIM_BARRIERS];
    struct sim_buffer buffer;
};

struct sim_context {
    void *sp;       /* of a fiber that does not run */
    void *ucontext; /* where there is no switch of our own */
    void *fake_stack, *tsan;
    const void *stack;
    size_t stack_bytes;
};

struct sim_thread {
    struct rondo_sim_self self; /* first */
    struct sim_block *block;
    struct sim_warp *warp;
    struct sim_context context;
    struct sim_thread *next; /* at a barrier */
    uint64_t result;         /* of the last warp operation */
    int done;
    /* delayed */
    struct sim_buffer buffer;
    uint64_t floor;  /* every load gives at least what was there after so many stores of the run */
    uint64_t loaded; /* the newest store that a load has seen */
    struct {
        uintptr_t line;
        uint64_t version; /* as floor, for one line */
    } seen[SIM_SEEN];
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
    uint64_t idle; /* breaths since something moved */
    int leave;
    uint8_t *stacks;
    size_t stack_bytes;
    /* delayed */
    struct sim_entry *entries;
    struct sim_past *past;
    uint64_t version; /* stores done */
};

static inline struct sim_thread *sim_self(void) { return (struct sim_thread *)(void *)rondo_sim_self; }

static inline uint64_t sim_random(struct sim *sim)
{
    sim->random ^= sim->random << 13;
    sim->random ^= sim->random >> 7;
    sim->random ^= sim->random << 17;
    return sim->random;
}
/* With one chance in n, n a power of two. */
static inline int sim_chance(struct sim *sim, uint64_t n) { return (sim_random(sim) >> 11 & (n - 1)) == 0; }

/** Let another fiber run. The caller is ready to go on. */
void rondo_sim_yield(void);
/** A sentence for what no program may do; the run ends. Does not return. */
void rondo_sim_break(const char *fmt, ...) RONDO_PRINTF(1, 2) __attribute__((noreturn));

/* Of machine_sim_memory.c. @return 0: no memory */
int rondo_sim_memory_begin(struct sim *sim);
void rondo_sim_memory_end(struct sim *sim);
/** A step of time: some delayed store of somebody becomes visible, perhaps. */
void rondo_sim_memory_tick(struct sim *sim);
/** The lanes of a warp go separate ways or on together: lines that were begun are stored as they are. */
void rondo_sim_lines_close(struct sim_block *block, struct sim_warp *warp);
/** A thread comes to a barrier: its stores are the block's. */
void rondo_sim_memory_share(struct sim_thread *thread);
/** A thread has ended. */
void rondo_sim_memory_publish(struct sim_thread *thread);

#endif
