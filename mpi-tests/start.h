/*
 * Ranks that begin a timed part together. A barrier lets them go one after the other: 0.07 to 0.1 us apart
 * behind most calls, 0.2 to 0.35 us behind MPI's broadcast or reduce of a few bytes (their root leaves early,
 * and MPI's barrier does not make up for it), so that of two libraries that take turns the one that comes
 * behind the other's broadcast seems to take longer than it does. What is measured here begins at an instant
 * of the node's clock that rank 0 names behind the barrier: 0.02 us apart.
 */
#ifndef RONDO_TESTS_START_H
#define RONDO_TESTS_START_H

enum test_start_kind { TEST_START_AUTO, TEST_START_BARRIER, TEST_START_INSTANT };

/** Collective. AUTO: an instant where all ranks are on one node and have cores of their own (who waits for an
 * instant spins), else a barrier, which is all there is with INSTANT on several nodes, too. */
void test_start_open(enum test_start_kind kind);
/** Collective, before MPI's end. */
void test_start_close(void);
/** Collective: pass a barrier and begin. */
void test_start(void);
/** "at one instant" or "behind a barrier": what test_start_open has chosen. */
const char *test_start_name(void);

#endif
