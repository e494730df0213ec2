/*
 * The simulated machine: a thread block whose threads are fibers of one OS thread, for tests without a GPU.
 * Contract: kern/machine.h, which includes this if RONDO_MACHINE_SIM is defined.
 *
 * A run has grids (a rank of a test, or a kernel of a stream), whose blocks are all resident. Without a seed,
 * fibers switch only where they wait. With one, they also switch at random at every memory operation of a
 * protocol, and the two halves of a 16-byte access are separate stores with such a chance in between.
 *
 * `delayed` is the harshest mode. A store first lies in its thread's buffer, after a barrier in its block's,
 * and drains in any order until a fence or release (stores to one address keep theirs). Loads that nothing
 * orders may return older values.
 *
 * With `whole_lines`, the lanes' first pairs after a warp sync are one access for each line of 128 bytes, as
 * over NVLink; without it, and for a lane's later pairs, they are separate words.
 *
 * Accesses that race end a run as BROKEN, with the places of both (sim/machine_sim_race.c).
 *
 * Runs in different OS threads can communicate if none is `delayed` (they may be `late`); the fake CUDA
 * driver runs each stream in one.
 */
#ifndef RONDO_SIM_MACHINE_SIM_H
#define RONDO_SIM_MACHINE_SIM_H

#ifndef RONDO_MACHINE_SIM
#define RONDO_MACHINE_SIM 1
#endif
#include "kern/cuda/launch.h"
#include "kern/machine.h"

/* ---- running ---- */

struct rondo_sim_grid {
    void (*body)(void *arg, void *shared); /* what each thread runs; shared: the block's memory */
    void *arg;
    uint32_t blocks, threads; /* threads of a block, in whole warps */
    size_t shared_bytes;      /* uninitialised */
};

struct rondo_sim_rules {
    uint64_t seed; /* 0: fibers switch where they wait, in turn */
    int delayed;   /* needs a seed */
    int late;      /* the same for stores alone: no load returns an old value */
    int whole_lines;
    int open; /* runs in other OS threads take part: no race check, which does not know what these order */
    uint32_t patience; /* the run is stuck after this many idle breaths of all fibers; 0: never */
    uint64_t most;     /* switches between fibers before it is broken; 0: RONDO_SIM_MOST, but never if open */
};

enum {
    RONDO_SIM_MOST = 1 << 26,
    RONDO_SIM_ALONE = 1 << 26 /* plain accesses of a thread without a switch, after which a run is broken */
};

enum rondo_sim_end {
    RONDO_SIM_ENDED = 0,
    RONDO_SIM_STUCK = 1, /* nothing moved: all breaths returned 0, and all threads left */
    RONDO_SIM_BROKEN =
        2 /* a forbidden operation, such as a barrier that not all can reach; the threads were abandoned */
};
struct rondo_sim_result {
    enum rondo_sim_end end;
    char why[600];     /* unless ENDED: a sentence */
    uint64_t switches; /* between fibers */
    uint64_t delayed;  /* loads that returned an old value */
    uint64_t plain16;  /* rondo_load_data16 and rondo_store_data16 */
    uint64_t fences;   /* and releases */
};

/** Look for races in later runs (1, as at first) or not (0). */
void rondo_sim_check_races(int on);
/** Run all grids in this OS thread until they end. */
void rondo_sim_run(const struct rondo_sim_rules *rules, const struct rondo_sim_grid *grids, int ngrids,
                   struct rondo_sim_result *result);

/* ---- the words of machine.h ---- */

struct rondo_team {
    uint32_t tid, nthreads, barrier;
};

/* The running fiber's state that the functions below need. */
struct rondo_sim_self {
    uint32_t tid, nthreads, block;
};
extern __thread struct rondo_sim_self *rondo_sim_self;

RONDO_FN uint32_t rondo_block_tid(void) { return rondo_sim_self->tid; }
RONDO_FN uint32_t rondo_block_threads(void) { return rondo_sim_self->nthreads; }
RONDO_FN uint32_t rondo_block_index(void) { return rondo_sim_self->block; }
RONDO_FN uint32_t rondo_lane(void) { return rondo_sim_self->tid % RONDO_WARP; }

enum rondo_sim_vote { RONDO_SIM_SYNC, RONDO_SIM_ALL, RONDO_SIM_ANY, RONDO_SIM_SHUFFLE };
void rondo_sim_barrier(uint32_t barrier, uint32_t nthreads);
uint64_t rondo_sim_warp(enum rondo_sim_vote vote, uint64_t value, uint32_t lane);
int rondo_sim_breath(void); /* @return 0: leave */
int rondo_sim_aborted(const uint32_t *abort);
void rondo_sim_fence(void);
uint64_t rondo_sim_load(const void *p, uint32_t bytes, int acquire);
void rondo_sim_store(void *p, uint64_t v, uint32_t bytes, int release);
void rondo_sim_load_pair(const void *p, uint64_t pair[2]);
void rondo_sim_store_pair(void *p, const uint64_t pair[2]);
void rondo_sim_load_plain(const void *p, void *to, uint32_t bytes);
void rondo_sim_load_part16(const void *p, void *to, uint32_t first, uint32_t end); /* uses these bytes only */
void rondo_sim_store_plain(void *p, const void *from, uint32_t bytes);

RONDO_FN void rondo_team_sync(const struct rondo_team *team)
{
    rondo_sim_barrier(team->barrier, team->nthreads);
}
RONDO_FN void rondo_warp_sync(void) { (void)rondo_sim_warp(RONDO_SIM_SYNC, 0, 0); }
RONDO_FN int rondo_warp_all(int p) { return (int)rondo_sim_warp(RONDO_SIM_ALL, p != 0, 0); }
RONDO_FN int rondo_warp_any(int p) { return (int)rondo_sim_warp(RONDO_SIM_ANY, p != 0, 0); }
RONDO_FN uint64_t rondo_warp_shuffle(uint64_t v, uint32_t lane)
{
    return rondo_sim_warp(RONDO_SIM_SHUFFLE, v, lane);
}
RONDO_FN void rondo_fence(void) { rondo_sim_fence(); }

RONDO_FN uint64_t rondo_load_acquire(const rondo_word *p) { return rondo_sim_load(p, 8, 1); }
RONDO_FN void rondo_store_release(rondo_word *p, uint64_t v) { rondo_sim_store(p, v, 8, 1); }
RONDO_FN uint64_t rondo_load_relaxed(const rondo_word *p) { return rondo_sim_load(p, 8, 0); }
RONDO_FN void rondo_store_relaxed(rondo_word *p, uint64_t v) { rondo_sim_store(p, v, 8, 0); }
RONDO_FN uint32_t rondo_load_relaxed32(const uint32_t *p) { return (uint32_t)rondo_sim_load(p, 4, 0); }
RONDO_FN void rondo_store_relaxed32(uint32_t *p, uint32_t v) { rondo_sim_store(p, v, 4, 0); }

RONDO_FN uint32_t rondo_load_shared32(const uint32_t *p) { return (uint32_t)rondo_sim_load(p, 4, 0); }
RONDO_FN void rondo_store_shared32(uint32_t *p, uint32_t v) { rondo_sim_store(p, v, 4, 0); }

RONDO_FN void rondo_load_pair(const rondo_word *p, uint64_t *lo, uint64_t *hi)
{
    uint64_t pair[2];
    rondo_sim_load_pair(p, pair);
    *lo = pair[0];
    *hi = pair[1];
}
RONDO_FN void rondo_store_pair(rondo_word *p, uint64_t lo, uint64_t hi)
{
    const uint64_t pair[2] = { lo, hi };
    rondo_sim_store_pair(p, pair);
}

RONDO_FN uint64_t rondo_load_word(const rondo_word *p) { return rondo_sim_load(p, 8, 0); }
RONDO_FN void rondo_store_word(rondo_word *p, uint64_t v) { rondo_sim_store(p, v, 8, 0); }

/* 16 bytes of payload. */
struct rondo_data16 {
    uint64_t lo, hi;
};
RONDO_FN struct rondo_data16 rondo_load_part16(const void *p, uint32_t first, uint32_t end)
{
    struct rondo_data16 v;
    rondo_sim_load_part16(p, &v, first, end);
    return v;
}
RONDO_FN struct rondo_data16 rondo_load_data16(const void *p) { return rondo_load_part16(p, 0, 16); }
RONDO_FN void rondo_store_data16(void *p, struct rondo_data16 v) { rondo_sim_store_plain(p, &v, 16); }

RONDO_FN int rondo_breath(const struct rondo_gpu_words *words, uint32_t *spins)
{
    ++*spins;
    return rondo_sim_breath() && !rondo_sim_aborted(&words->abort);
}

#endif
