/* Waiting for a step of a bootstrap. */
#ifndef RONDO_TESTS_BOOTSTRAP_FINISH_H
#define RONDO_TESTS_BOOTSTRAP_FINISH_H

#include <sched.h>
#include "base/wait.h"
#include "net/bootstrap/bootstrap.h"

static const int64_t DEADLINE_NS = INT64_C(60000000000); /* of any wait: a test that reaches it has failed */

static inline rondo_status finish(struct rondo_bootstrap *b)
{
    int64_t end = rondo_now_ns() + DEADLINE_NS;
    rondo_status status;
    while ((status = b->ops->test(b)) == RONDO_IN_PROGRESS) {
        if (rondo_now_ns() > end) {
            return rondo_fail(RONDO_TIMEOUT, "the test's own deadline");
        }
        sched_yield();
    }
    return status;
}

#endif
