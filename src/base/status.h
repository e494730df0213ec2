/*
 * Errors: one status enum, one sentence per error, logged once where it is decided.
 *
 * Whoever decides an error calls rondo_fail(): it formats the sentence (cause, rank, host, remedy), keeps it
 * for rondo_last_error() of this thread, logs it at WARN and returns the status. Everyone else passes the
 * status up with RONDO_TRY and undoes in reverse with RONDO_TRY_GOTO. The API boundary copies the thread's
 * sentence into the communicator.
 */
#ifndef RONDO_BASE_STATUS_H
#define RONDO_BASE_STATUS_H

#include <stdarg.h>
#include "base/types.h"

enum { RONDO_ERROR_TEXT = 512 }; /* bytes of a sentence, terminated; longer ones are cut */

/** Decide an error. @return @a status. errno is preserved; %m prints it. */
rondo_status rondo_fail(rondo_status status, const char *fmt, ...) RONDO_PRINTF(2, 3);
/** The same without logging, for errors that are expected or were logged elsewhere (another rank's sentence).
 */
rondo_status rondo_fail_quiet(rondo_status status, const char *fmt, ...) RONDO_PRINTF(2, 3);
/** Log this thread's last sentence unless it was logged, for a quiet error that turns out to matter. @return
 * @a status. */
rondo_status rondo_fail_aloud(rondo_status status);
/** Was this thread's last sentence logged? Setting the same sentence again does not change that. */
int rondo_error_logged(void);
/** This thread's last sentence; "" when there was none. */
const char *rondo_error_text(void);
void rondo_error_clear(void);

/**
 * Texts of the calling thread. They are no thread-local variables, as a library that a running program opens
 * (dlopen) gets only some hundred bytes of those, and base/inside.h makes all of Rondo's count. A thread has
 * them once it needs them, until it ends. May be called in a signal handler. Never NULL.
 */
struct rondo_thread_texts {
    char error[RONDO_ERROR_TEXT];      /* rondo_error_text */
    char comm_error[RONDO_ERROR_TEXT]; /* a copy that rondo_last_error returns */
    char group_error[RONDO_ERROR_TEXT];
    char plugin_warning[160];
};
struct rondo_thread_texts *rondo_thread_texts_get(void);

#define RONDO_TRY(call)                                 \
    do {                                                \
        rondo_status status_ = (call);                  \
        if (RONDO_UNLIKELY(status_ != RONDO_SUCCESS)) { \
            return status_;                             \
        }                                               \
    } while (0)

/* Needs a local `status` and a label that unwinds. */
#define RONDO_TRY_GOTO(call, label)                    \
    do {                                               \
        status = (call);                               \
        if (RONDO_UNLIKELY(status != RONDO_SUCCESS)) { \
            goto label;                                \
        }                                              \
    } while (0)

#endif
