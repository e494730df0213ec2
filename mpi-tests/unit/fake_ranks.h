/*
 * Ranks that are threads of the test program, and calls with checked results. A failed cmocka assert jumps
 * out of the test, which only the test's own thread may do: ranks note their first failure (FAKE_CHECK), and
 * fake_ranks() asserts in the test's thread that there is none.
 */
#ifndef RONDO_TESTS_FAKE_RANKS_H
#define RONDO_TESTS_FAKE_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "rondo.h"
#include "../holdings.h"

/* Under ThreadSanitizer every access is slow: counts of large calls and of rounds are an eighth and a third
 * there. Races depend on the order of accesses, not on how many bytes a call moves. */
#ifdef __SANITIZE_THREAD__
enum { FAKE_MANY_RANKS = 3 };
#define FAKE_LARGE(count) ((count) / 8)
#define FAKE_ROUNDS(rounds) ((rounds) / 3)
#else
enum { FAKE_MANY_RANKS = 5 };
#define FAKE_LARGE(count) (count)
#define FAKE_ROUNDS(rounds) (rounds)
#endif

struct fake_rank {
    int rank, nranks;
    rondo_local *local; /* where the ranks meet */
    rondo_comm *comm;   /* made before the rank runs and destroyed after it; NULL with fake_ranks_bare() */
    void *arg;
    char failure[768]; /* "": none */
};
typedef void fake_rank_fn(struct fake_rank *r);

/** Run fn as n ranks of one new communicator. Fails the test if a rank fails. */
void fake_ranks(int n, fake_rank_fn *fn, void *arg);
/** Like fake_ranks, but the ranks create communicators themselves. */
void fake_ranks_bare(int n, fake_rank_fn *fn, void *arg);

/** Note the first failure of a rank. */
void fake_fail(struct fake_rank *r, const char *file, int line, const char *what, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* A check that fails returns from the rank's function. */
#define FAKE_CHECK(r, condition, ...)                                                  \
    do {                                                                               \
        if (!(condition)) {                                                            \
            fake_fail(r, __FILE__, __LINE__, "not (" #condition ")", " " __VA_ARGS__); \
            return;                                                                    \
        }                                                                              \
    } while (0)
#define FAKE_OK(r, call)                                                                      \
    do {                                                                                      \
        rondo_status status_ = (call);                                                        \
        if (status_ != RONDO_SUCCESS) {                                                       \
            fake_fail(r, __FILE__, __LINE__, #call, ": %s: %s", rondo_status_string(status_), \
                      rondo_last_error(NULL));                                                \
            return;                                                                           \
        }                                                                                     \
    } while (0)
/* Check the status, and that this thread's error text contains a part. */
#define FAKE_ERROR(r, call, wanted, part)                                                                \
    do {                                                                                                 \
        rondo_status status_ = (call);                                                                   \
        if (status_ != (wanted) || !fake_has(rondo_last_error(NULL), part)) {                            \
            fake_fail(r, __FILE__, __LINE__, #call, ": %s: %s (wanted %s: %s)",                          \
                      rondo_status_string(status_), rondo_last_error(NULL), rondo_status_string(wanted), \
                      part);                                                                             \
            return;                                                                                      \
        }                                                                                                \
    } while (0)
int fake_has(const char *text, const char *part);

/* Set parameters: pairs of a name without RONDO_ and a value, then NULL. They replace those of the last call
 * and of the environment. */
void fake_params(const char *name, ...);
/** End the program with a message if the test takes longer than this many seconds; 0: no limit. */
void fake_watchdog(int seconds);
double fake_now(void);
void fake_sleep_ms(int ms);
/** Fail the test unless this process holds as many resources as then. Of mappings, shared memory counts. */
void fake_holds(struct holdings then);

/* ---- calls with known results ---- */

enum fake_coll {
    FAKE_ALL_REDUCE,
    FAKE_REDUCE,
    FAKE_BROADCAST,
    FAKE_ALL_GATHER,
    FAKE_REDUCE_SCATTER,
    FAKE_ALL_TO_ALL,
    FAKE_GATHER,
    FAKE_SCATTER,
    FAKE_ALL_GATHERV,
    FAKE_REDUCE_SCATTERV,
    FAKE_ALL_TO_ALLV,
    FAKE_BARRIER,
    FAKE_NUM_COLLS,
    FAKE_OPS = RONDO_AVG + 1 /* the first operations, which all types of these calls have */
};
extern const char *const fake_coll_names[FAKE_NUM_COLLS];

/* A call without that form takes the one before. AT_START: the result lies at the start of the input. */
enum fake_place { FAKE_OUT_OF_PLACE, FAKE_IN_PLACE, FAKE_AT_START };

/* Blocks of v-forms lie in another order on each rank, with gaps of other sizes. */
struct fake_call {
    enum fake_coll coll;
    rondo_dtype type; /* i8, u8, i32, i64, f32 or f64 */
    rondo_op op;
    int root;
    size_t count;
    int in_place; /* enum fake_place */
    unsigned seed;
    int rank, nranks;
};

/* The buffers of a call, between guards, and the counts of v-forms. */
struct fake_buffers {
    uint8_t *memory[2], *send, *recv;
    size_t bytes[2]; /* without the guards */
    size_t *counts;  /* four arrays of nranks: receive counts, displacements, send counts, displacements */
};

/** @return the last form that a call has. */
enum fake_place fake_call_last_place(enum fake_coll coll);
void fake_call_prepare(const struct fake_call *c, struct fake_buffers *b);
rondo_status fake_call_issue(const struct fake_call *c, const struct fake_buffers *b, rondo_comm *comm,
                             rondo_stream stream);
/* Check the results, and that nothing else was written. Free the buffers. @return "", or what is wrong; it is
 * valid until this thread's next check. */
const char *fake_call_check(const struct fake_call *c, struct fake_buffers *b);
/** After a call that failed, check only the guards. Free the buffers. */
const char *fake_call_guards(const struct fake_call *c, struct fake_buffers *b);
/** Make a call, check it, and note a failure. This sets rank and nranks. */
void fake_call(struct fake_rank *r, struct fake_call c, rondo_stream stream);
#define FAKE_CALL(r, ...)                                      \
    do {                                                       \
        fake_call(r, (struct fake_call){ __VA_ARGS__ }, NULL); \
        if ((r)->failure[0] != '\0') return;                   \
    } while (0)

#endif
