#include "fake_ranks.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/param.h"

extern char **environ;

enum { STACK_BYTES = 1 << 20 };

struct thread {
    struct fake_rank rank;
    fake_rank_fn *fn;
    int bare;
    pthread_t id;
};

void fake_fail(struct fake_rank *r, const char *file, int line, const char *what, const char *fmt, ...)
{
    char text[640];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (r->failure[0] == '\0') {
        snprintf(r->failure, sizeof(r->failure), "%s:%d: rank %d of %d: %s%s", file, line, r->rank, r->nranks,
                 what, text);
    }
}

int fake_has(const char *text, const char *part) { return strstr(text, part) != NULL; }

static void run_with_comm(struct thread *t)
{
    struct fake_rank *r = &t->rank;
    FAKE_OK(r, rondo_comm_create_local(r->local, r->rank, NULL, &r->comm));
    t->fn(r);
    if (r->comm != NULL && r->failure[0] != '\0') {
        rondo_comm_abort(r->comm); /* so that other ranks do not wait for this one */
    } else if (r->comm != NULL) {
        FAKE_OK(r, rondo_comm_destroy(r->comm));
    }
}

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    if (t->bare) {
        t->fn(&t->rank);
    } else {
        run_with_comm(t);
    }
    return NULL;
}

static void run(int n, fake_rank_fn *fn, void *arg, int bare)
{
    struct thread *threads = calloc((size_t)n, sizeof(*threads));
    rondo_local *local;
    pthread_attr_t attr;
    int failed = 0;
    assert_non_null(threads);
    assert_int_equal(rondo_local_create(n, &local), RONDO_SUCCESS);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (int i = 0; i < n; i++) {
        threads[i] = (struct thread){ .rank = { .rank = i, .nranks = n, .local = local, .arg = arg },
                                      .fn = fn,
                                      .bare = bare };
        assert_int_equal(pthread_create(&threads[i].id, &attr, thread_main, &threads[i]), 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i].id, NULL);
        if (threads[i].rank.failure[0] != '\0') {
            print_error("%s\n", threads[i].rank.failure);
            failed++;
        }
    }
    pthread_attr_destroy(&attr);
    rondo_local_destroy(local);
    free(threads);
    assert_int_equal(failed, 0);
}

void fake_ranks(int n, fake_rank_fn *fn, void *arg) { run(n, fn, arg, 0); }

void fake_ranks_bare(int n, fake_rank_fn *fn, void *arg) { run(n, fn, arg, 1); }

/* ---- environment and limits ---- */

static int is_parameter(const char *entry)
{
    return strncmp(entry, "RONDO_", 6) == 0 || strncmp(entry, "NCCL_", 5) == 0;
}

static void forget_parameters(void)
{
    for (char **entry = environ; *entry != NULL;) {
        char name[64];
        if (!is_parameter(*entry)) {
            entry++;
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
        unsetenv(name); /* this moves later entries up */
    }
}

void fake_params(const char *name, ...)
{
    char full[64];
    va_list args;
    forget_parameters();
    setenv("RONDO_DEBUG", "NONE", 1); /* tests provoke errors */
    setenv("RONDO_TIMEOUT", "60s", 1);
    setenv("RONDO_INIT_TIMEOUT", "60s", 1);
    va_start(args, name);
    for (; name != NULL; name = va_arg(args, const char *)) {
        snprintf(full, sizeof(full), "RONDO_%s", name);
        setenv(full, va_arg(args, const char *), 1);
    }
    va_end(args);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
}

static void on_alarm(int signal)
{
    static const char text[] = "the watchdog ends the test program: a test hangs\n";
    (void)signal;
    if (write(2, text, sizeof(text) - 1) < 0) {
        _exit(4);
    }
    abort();
}

void fake_watchdog(int seconds)
{
    signal(SIGALRM, on_alarm);
    alarm((unsigned)seconds);
}

double fake_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void fake_sleep_ms(int ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000L };
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}

void fake_holds(struct holdings then)
{
    struct holdings now = holdings_now();
    assert_int_equal(now.fds, then.fds);
    assert_int_equal(now.shared, then.shared);
    assert_int_equal(now.threads, then.threads);
}
