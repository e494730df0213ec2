/* Shared by the tests of the CPU executor: random numbers, memory, progress. */
#ifndef EXEC_PROGRESS_H
#define EXEC_PROGRESS_H

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kern/exec.h"

static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline void *zeroed(size_t bytes)
{
    void *memory = aligned_alloc(128, (bytes + 127) / 128 * 128);
    assert_non_null(memory);
    return memset(memory, 0, bytes);
}

/* Make progress until it waits for others. */
static inline void progress_until_stuck(struct rondo_exec *exec)
{
    int moved = 1;
    while (moved) {
        moved = 0;
        assert_int_equal(rondo_exec_cpu.progress(exec, &moved), RONDO_SUCCESS);
    }
}

/* Check what it waits for; peer is a rank, or -1 - a local rank. */
static inline void assert_waits_for(struct rondo_exec *exec, int peer, const char *what)
{
    char text[200] = "";
    struct rondo_blocked blocked;
    assert_true(rondo_exec_cpu.describe(exec, 0, text, sizeof(text), &blocked) > 0);
    assert_int_equal(blocked.peer, peer);
    assert_string_equal(text, what);
}

/* One step of one rank; the including header defines it. @return 1: it has no calls left. */
struct rank;
static inline int rank_step(struct rank *r, int *moved);

/* A thread that makes all steps of its rank. */
static inline void *thread_main(void *arg)
{
    struct rank *r = arg;
    int moved, done = 0;
    while (!done) {
        moved = 0;
        done = rank_step(r, &moved);
        if (!moved) {
            sched_yield();
        }
    }
    return NULL;
}

#endif
