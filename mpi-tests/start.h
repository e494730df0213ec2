/*
 * Start a timed part on all ranks together. Ranks leave a barrier one after the other: 0.07 to 0.1 us apart
 * after most calls, and 0.2 to 0.35 us apart after MPI's broadcast or reduce of a few bytes, whose root
 * leaves early. When two libraries alternate, the one that runs after the other's broadcast would seem slower
 * than it is. Therefore rank 0 names an instant of the node's clock after the barrier, and all ranks start
 * then: 0.02 us apart.
 */
#ifndef RONDO_TESTS_START_H
#define RONDO_TESTS_START_H

enum test_start_kind { TEST_START_AUTO, TEST_START_BARRIER, TEST_START_INSTANT };

/** Collective. AUTO chooses an instant if all ranks are on one node and have a core each, because ranks spin
 * until the instant; else a barrier. On several nodes INSTANT also means a barrier. */
void test_start_open(enum test_start_kind kind);
/** Collective. Call it before MPI_Finalize. */
void test_start_close(void);
/** Collective. Returns on all ranks together. */
void test_start(void);
/** @return "at one instant" or "after a barrier". */
const char *test_start_name(void);

#endif
