/* The watch of a creation: processes of this node that end or are stopped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/param.h"
#include "base/process.h"
#include "base/wait.h"
#include "net/bootstrap/watch.h"
#include "says.h"

enum { SELF, CHILD, AFAR, RANKS };

static pid_t child_start(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        for (;;) {
            pause();
        }
    }
    assert_true(pid > 0);
    return pid;
}

/* The child is rank 1; rank 2 has its pid, but is on another host. */
static void watch_child(struct rondo_watch *watch, pid_t pid)
{
    struct rondo_hello hello[RANKS];
    for (int r = 0; r < RANKS; r++) {
        rondo_hello_fill(&hello[r]);
    }
    hello[CHILD].pid = hello[AFAR].pid = (int32_t)pid;
    hello[CHILD].start = hello[AFAR].start = rondo_process_start((int)pid);
    hello[AFAR].host_hash++;
    *watch = (struct rondo_watch){ 0 };
    assert_int_equal(rondo_watch_open(watch, hello, RANKS, SELF), RONDO_SUCCESS);
}

/* Look until it finds something; its own throttle and patience are 1.1 s together. */
static rondo_status look_for(struct rondo_watch *watch, int late, double seconds)
{
    int64_t end = rondo_now_ns() + (int64_t)(seconds * 1e9);
    rondo_status status;
    while ((status = rondo_watch_look(watch, late)) == RONDO_SUCCESS && rondo_now_ns() < end) {
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    return status;
}

static void a_process_that_ended_is_named(void **state)
{
    (void)state;
    struct rondo_watch watch;
    pid_t pid = child_start();
    watch_child(&watch, pid);
    assert_true(rondo_watch_sees(&watch, CHILD));
    assert_false(rondo_watch_sees(&watch, SELF));
    assert_false(rondo_watch_sees(&watch, AFAR));
    assert_int_equal(rondo_watch_look(&watch, 1), RONDO_SUCCESS);
    assert_int_equal(kill(pid, SIGKILL), 0); /* it stays a zombie: nobody waits for it yet */
    assert_int_equal(look_for(&watch, 0, 60), RONDO_REMOTE_ERROR);
    assert_says("rank 1 (pid ");
    assert_says("exited while the communicator was being created");
    assert_true(rondo_watch_lost(&watch, CHILD));
    rondo_watch_close(&watch);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(rondo_process_look((int)pid, 0), RONDO_PROCESS_GONE);
}

static void a_stopped_process_is_named_after_the_deadline(void **state)
{
    (void)state;
    struct rondo_watch watch;
    pid_t pid = child_start();
    watch_child(&watch, pid);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
    assert_int_equal(look_for(&watch, 0, 1.5), RONDO_SUCCESS); /* RONDO_DEAD_AFTER is 10 s */
    assert_int_equal(look_for(&watch, 1, 60), RONDO_REMOTE_ERROR);
    assert_says("rank 1 (pid ");
    assert_says("is stopped");
    assert_int_equal(kill(pid, SIGCONT), 0);
    while (rondo_process_look((int)pid, 0) == RONDO_PROCESS_STOPPED) {
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL); /* the watch reads /proc every 10 ms */
    assert_int_equal(rondo_watch_look(&watch, 1), RONDO_SUCCESS);
    rondo_watch_close(&watch);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void another_process_with_the_pid_is_not_the_rank(void **state)
{
    (void)state;
    uint64_t start = rondo_process_start(getpid());
    assert_int_not_equal(start, 0);
    assert_int_equal(rondo_process_look(getpid(), start), RONDO_PROCESS_RUNS);
    assert_int_equal(rondo_process_look(getpid(), start - 1), RONDO_PROCESS_GONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_ended_is_named),
        cmocka_unit_test(a_stopped_process_is_named_after_the_deadline),
        cmocka_unit_test(another_process_with_the_pid_is_not_the_rank),
    };
    if (rondo_param_init() != RONDO_SUCCESS) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
