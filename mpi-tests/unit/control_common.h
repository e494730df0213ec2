/* Shared by the tests of the control plane, within a node and between nodes. */
#ifndef RONDO_UNIT_CONTROL_COMMON_H
#define RONDO_UNIT_CONTROL_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "net/control/control.h"
#include "../holdings.h"

/* The longest wait of a test. Ranks are threads and processes, where a failed assert of cmocka would not end
 * the test, so a wait that reaches the limit ends the process. */
static const int64_t DEADLINE_NS = 60000000000;

#define WAIT_FOR(condition)                                                                        \
    do {                                                                                           \
        int64_t end_ = rondo_now_ns() + DEADLINE_NS;                                               \
        while (!(condition)) {                                                                     \
            if (rondo_now_ns() > end_) {                                                           \
                fprintf(stderr, "%s:%d: waited in vain for " #condition "\n", __FILE__, __LINE__); \
                abort();                                                                           \
            }                                                                                      \
            pause_1ms();                                                                           \
        }                                                                                          \
    } while (0)

static inline void pause_1ms(void)
{
    struct timespec ms = { .tv_nsec = 1000000 };
    nanosleep(&ms, NULL);
}

/* @return the silence, in ms, for which a reason blames a rank; -1: the reason is another one. */
static inline long silence_in(const char *text)
{
    static const char words[] = "is unresponsive: no heartbeat for ";
    const char *at = strstr(text, words);
    return at ? strtol(at + sizeof(words) - 1, NULL, 10) : -1;
}

static inline void describe(const struct rondo_call *call, char *text, size_t bytes)
{
    snprintf(text, bytes, "all_reduce #%llu of %llu", (unsigned long long)call->seq,
             (unsigned long long)call->count);
}

#endif
