/* Meetings whose ids this process makes, or another one that is no rank. Included by the tests of meetings,
 * after cmocka.h. */
#ifndef RONDO_TESTS_MEETING_WORLD_H
#define RONDO_TESTS_MEETING_WORLD_H

#include <errno.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "net/bootstrap/meeting.h"
#include "bootstrap_finish.h"

/* Forked processes have threads of their own. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

static pid_t creator; /* 0: this process */
static int ids_from = -1, asks_to = -1;
static int creator_spares = -1; /* descriptors that it has left once it has made an id; -1: all */

static inline void use_descriptors(int left)
{
    const struct rlimit few = { 256, 256 };
    int fds[256], n = 0;
    assert_return_code(setrlimit(RLIMIT_NOFILE, &few), errno);
    while ((fds[n] = dup(0)) >= 0) {
        n++;
    }
    while (left-- > 0) {
        close(fds[--n]);
    }
}

/* A process that makes an id whenever it is asked, and is no rank. */
static inline void creator_start(void)
{
    int ask[2], answer[2];
    assert_return_code(pipe(ask), errno);
    assert_return_code(pipe(answer), errno);
    creator = fork();
    assert_true(creator >= 0);
    if (creator == 0) {
        char byte;
        close(ask[1]);
        close(answer[0]);
        while (read(ask[0], &byte, 1) == 1) {
            struct rondo_meeting_id id;
            if (rondo_meeting_create(&id) != RONDO_SUCCESS ||
                write(answer[1], &id, sizeof(id)) != (ssize_t)sizeof(id)) {
                _exit(1);
            }
            if (creator_spares >= 0) {
                use_descriptors(creator_spares);
            }
        }
        _exit(0);
    }
    close(ask[0]);
    close(answer[1]);
    asks_to = ask[1];
    ids_from = answer[0];
}

static inline int creator_stop(void **state)
{
    (void)state;
    if (creator > 0) {
        close(asks_to);
        close(ids_from);
        waitpid(creator, NULL, 0);
        creator = 0;
    }
    return 0;
}

static inline int remote(void **state)
{
    (void)state;
    creator_start();
    return 0;
}

static inline struct rondo_meeting_id new_id(void)
{
    struct rondo_meeting_id id;
    if (creator == 0) {
        assert_int_equal(rondo_meeting_create(&id), RONDO_SUCCESS);
    } else {
        assert_int_equal(write(asks_to, "?", 1), 1);
        assert_int_equal(read(ids_from, &id, sizeof(id)), (int)sizeof(id));
    }
    return id;
}

/* Has the creator a rank on its list, on which others are missing? */
static inline int is_registered(struct rondo_meeting_id id, int rank, int nranks)
{
    struct rondo_bootstrap *asks; /* asks only, and is no member */
    int ranks[64], n = 0, found = 0;
    rondo_status status;
    assert_int_equal(rondo_bootstrap_meeting(&id, rank, nranks, &asks), RONDO_SUCCESS);
    while ((status = asks->ops->missing(asks, ranks, 64, &n)) == RONDO_IN_PROGRESS) {
        sched_yield();
    }
    for (int i = 0; i < n; i++) {
        found |= ranks[i] == rank;
    }
    asks->ops->close(asks, 1);
    return status == RONDO_SUCCESS && n > 0 && !found;
}

/* Begin a rank without moving it: it stays registered. */
static inline struct rondo_bootstrap *begin(struct rondo_meeting_id id, int rank, int nranks)
{
    int64_t end = rondo_now_ns() + DEADLINE_NS;
    struct rondo_bootstrap *b;
    assert_int_equal(rondo_bootstrap_meeting(&id, rank, nranks, &b), RONDO_SUCCESS);
    assert_int_equal(b->ops->open_start(b), RONDO_SUCCESS);
    do {
        assert_int_equal(b->ops->test(b), RONDO_IN_PROGRESS);
        assert_true(rondo_now_ns() < end);
        usleep(1000);
    } while (!is_registered(id, rank, nranks));
    assert_int_equal(b->ops->test(b), RONDO_IN_PROGRESS); /* it has been told */
    return b;
}

#endif
