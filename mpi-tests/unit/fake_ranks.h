/*
 * Ranks that are threads of the test program, and calls whose results are checked. cmocka's asserts end the
 * test by a jump, which only the test's own thread may do: ranks note their first failure (FAKE_CHECK), and
 * fake_ranks() asserts in the test's thread that there was none.
 */
#ifndef RONDO_TESTS_FAKE_RANKS_H
#define RONDO_TESTS_FAKE_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "rondo.h"
#include "../holdings.h"

struct fake_rank {
    int rank, nranks;
    rondo_local *local; /* where the ranks meet */
    rondo_comm *comm;   /* made before the rank runs and destroyed after it; NULL with fake_ranks_bare() */
    void *arg;
    char failure[768]; /* "": none */
};
typedef void fake_rank_fn(struct fake_rank *r);

/** Run fn as n ranks of one new communicator; fails the test when a rank failed. */
void fake_ranks(int n, fake_rank_fn *fn, void *arg);
/** The same without a communicator: the ranks make their own. */
void fake_ranks_bare(int n, fake_rank_fn *fn, void *arg);

/** Note a failure, unless there is one already. */
void fake_fail(struct fake_rank *r, const char *file, int line, const char *what, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Checks return from the rank's function when they fail. */
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
/* Status and a part of the sentence of this thread. */
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

/** Parameters for what follows: names without RONDO_ and values, ending with NULL. Those of the call before,
 * and all of the environment, are forgotten. */
void fake_params(const char *name, ...);
/** Ends the program with a message when the test does not end within these seconds; 0: off. */
void fake_watchdog(int seconds);
double fake_now(void);
void fake_sleep_ms(int ms);
/** Fails the test unless this process holds what it held then; mappings: of shared memory. */
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
    FAKE_NUM_COLLS
};
extern const char *const fake_coll_names[FAKE_NUM_COLLS];

struct fake_call {
    enum fake_coll coll;
    rondo_dtype type; /* i8, u8, i32, i64, f32 or f64 */
    rondo_op op;
    int root;
    size_t count;
    int in_place; /* where the call has such a form; the v-forms are never */
    unsigned seed;
    int rank, nranks;
};

/* Buffers of a call: memory with guards; the v-forms' counts. */
struct fake_buffers {
    uint8_t *memory[2], *send, *recv;
    size_t bytes[2]; /* without the guards */
    size_t
        *counts; /* four arrays of nranks: receive counts and displacements, send counts and displacements */
};

/** Can this call be made in place by any rank? */
int fake_call_has_in_place(enum fake_coll coll);
void fake_call_prepare(const struct fake_call *c, struct fake_buffers *b);
rondo_status fake_call_issue(const struct fake_call *c, const struct fake_buffers *b, rondo_comm *comm,
                             rondo_stream stream);
/** Results are right, nothing else was written. @return "" or what is wrong, valid until this thread's next
 * check. Frees the buffers. */
const char *fake_call_check(const struct fake_call *c, struct fake_buffers *b);
/** Only the guards, after a call that failed: nobody writes past its own buffers. Frees them. */
const char *fake_call_guards(const struct fake_call *c, struct fake_buffers *b);
/** All of it: rank and nranks are filled in. A failure is noted. */
void fake_call(struct fake_rank *r, struct fake_call c, rondo_stream stream);
#define FAKE_CALL(r, ...)                                      \
    do {                                                       \
        fake_call(r, (struct fake_call){ __VA_ARGS__ }, NULL); \
        if ((r)->failure[0] != '\0') return;                   \
    } while (0)

#endif
