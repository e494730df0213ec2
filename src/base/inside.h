/*
 * What a thread is inside of: a public call, and open groups. A signal handler that interrupts a call finds
 * locks and communicators in use by its own thread, which will not go on before the handler returns. So its
 * calls are refused.
 */
#ifndef RONDO_BASE_INSIDE_H
#define RONDO_BASE_INSIDE_H

#include "base/status.h"

/* Every call reads it: initial-exec puts it at a fixed offset of the thread's memory, even when the library
 * is loaded by dlopen. */
#define RONDO_FAST_TLS __attribute__((tls_model("initial-exec")))

enum { RONDO_INSIDE_CALL = 1, RONDO_INSIDE_GROUP = 2 };
/* RONDO_INSIDE_CALL, plus RONDO_INSIDE_GROUP for each open group. */
extern _Thread_local int rondo_inside RONDO_FAST_TLS;

static inline int rondo_is_inside_call(void) { return rondo_inside & RONDO_INSIDE_CALL; }
/** @return how many groups this thread has open. */
static inline int rondo_open_groups(void) { return rondo_inside / RONDO_INSIDE_GROUP; }

/** Refuse a public function that a signal handler calls inside another one. @return RONDO_INVALID_USAGE. */
rondo_status rondo_inside_refuse(const char *what);

static inline rondo_status rondo_inside_check(const char *what)
{
    return RONDO_UNLIKELY(rondo_is_inside_call()) ? rondo_inside_refuse(what) : RONDO_SUCCESS;
}

/** Begin and end a public function. what: its name. */
static inline rondo_status rondo_inside_begin(const char *what)
{
    RONDO_TRY(rondo_inside_check(what));
    rondo_inside |= RONDO_INSIDE_CALL;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return RONDO_SUCCESS;
}

static inline void rondo_inside_end(void)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    rondo_inside &= ~RONDO_INSIDE_CALL;
}

/* The body of a public function. */
#define RONDO_RUN_INSIDE(what, call)         \
    do {                                     \
        rondo_status ended_;                 \
        RONDO_TRY(rondo_inside_begin(what)); \
        ended_ = (call);                     \
        rondo_inside_end();                  \
        return ended_;                       \
    } while (0)

#endif
