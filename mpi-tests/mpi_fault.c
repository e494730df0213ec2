/*
 * mpi_fault: a rank dies or stops. The others must get an error that names it, in bounded time, and may go on
 * without it. Survivors end with _exit, because MPI cannot be finalized after a death. fault_tests.sh runs
 * this program and reads the lines that it prints.
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mpi_calls.h"

#define LIMIT 5.0   /* seconds that a failing call may take */
#define CALLS 20000 /* calls without an error after which the fault counts as not noticed */

static struct {
    long victim, after, delay_us;
    long watch;        /* seconds */
    const char *until; /* or until this file exists; NULL: none */
    long most;         /* most elements of a call */
    int signal;        /* SIGKILL or SIGSTOP */
    int mid, init, shrink, forever;
    int no_limit, polled; /* how --init creates */
    unsigned linger;      /* seconds */
    uint64_t seed;
} o = { .victim = -1, .after = 50, .seed = 1, .most = 900000 };

static pid_t pids[TEST_MAX_RANKS];

static void *strike_later(void *unused)
{
    (void)unused;
    usleep((useconds_t)o.delay_us);
    kill(getpid(), o.signal);
    return NULL;
}

/* Kill or stop this rank: now, or in a moment, wherever the main thread is then. */
static void strike(void)
{
    pthread_t thread;
    if (!o.mid) {
        kill(getpid(), o.signal);
    } else if (pthread_create(&thread, NULL, strike_later, NULL) != 0) {
        test_die("no thread");
    }
}

/* Run an all_reduce with known results. @return false if one is wrong. */
static int sum(rondo_comm *comm, size_t count, int32_t *in, int32_t *out, int32_t total, rondo_status *status)
{
    for (size_t i = 0; i < count; i++) {
        in[i] = (test.rank + 1) * (int32_t)(i % 7 + 1);
        out[i] = -1;
    }
    *status = rondo_all_reduce(in, out, count, RONDO_INT32, RONDO_SUM, comm, NULL);
    for (size_t i = 0; i < count && *status == RONDO_SUCCESS; i++) {
        if (out[i] != total * (int32_t)(i % 7 + 1)) {
            return 0;
        }
    }
    return 1;
}

static int32_t total_of_ranks(int without)
{
    int32_t total = 0;
    for (int r = 0; r < test.nranks; r++) {
        total += r == without ? 0 : r + 1;
    }
    return total;
}

/* The survivors make a communicator without the victim, and check that it carries data. */
static void shrink(rondo_comm *comm, int32_t *in, int32_t *out)
{
    int exclude = (int)o.victim, count = 0;
    rondo_comm *child = NULL;
    rondo_status status = rondo_comm_shrink(comm, &exclude, 1, RONDO_SHRINK_ABORT, NULL, &child);
    if (!test_check(status == RONDO_SUCCESS, "shrink: %s: %s", rondo_status_string(status),
                    rondo_last_error(comm))) {
        return;
    }
    rondo_comm_count(child, &count);
    for (int i = 0; i < 20 && status == RONDO_SUCCESS; i++) {
        test_check(sum(child, 1 + (size_t)i * 5000, in, out, total_of_ranks(exclude), &status),
                   "wrong sum after shrink");
    }
    if (test_check(status == RONDO_SUCCESS && count == test.nranks - 1,
                   "%d ranks after shrink; all_reduce: %s: %s", count, rondo_status_string(status),
                   rondo_last_error(child))) {
        test_say("shrunk to %d ranks, verified", count);
    }
    test_check(rondo_comm_destroy(child) == RONDO_SUCCESS, "destroying the child");
}

static void leave(void)
{
    fflush(stdout);
    _exit(test.failed == 0 ? 0 : 1);
}

static void survive(rondo_comm *comm, rondo_status status, double took, int32_t *in, int32_t *out)
{
    test_watchdog(30);
    if (o.forever) { /* the launcher ends the ranks one by one */
        rondo_comm_abort(comm);
        leave();
    }
    if (o.victim == test.rank) {
        test_say("resumed: %s after %.0f ms: %s", rondo_status_string(status), 1e3 * took,
                 rondo_last_error(comm));
        test_check(status == RONDO_REMOTE_ERROR, "resumed rank had %s", rondo_status_string(status));
        rondo_comm_abort(comm);
        leave();
    }
    test_say("survivor %d: %s after %.0f ms: %s", test.rank,
             status == RONDO_REMOTE_ERROR ? "REMOTE_ERROR" : rondo_status_string(status), 1e3 * took,
             rondo_last_error(comm));
    test_check(status == RONDO_REMOTE_ERROR, "expected %s", rondo_status_string(RONDO_REMOTE_ERROR));
    test_check(test_names_rank(rondo_last_error(comm), (int)o.victim),
               "the error text does not name rank %ld", o.victim);
    test_check(took < LIMIT, "%.1f s until the error", took);
    if (o.shrink) {
        shrink(comm, in, out);
    }
    test_check(rondo_comm_abort(comm) == RONDO_SUCCESS, "abort");
    if (o.signal == SIGSTOP) {
        kill(pids[o.victim],
             SIGCONT); /* every survivor does this when it is done; only the first one wakes the
                                          victim */
    }
    leave();
}

static size_t size_of_call(long i)
{
    static const size_t sizes[] = { 1, 60, 3000, 70000, 900000 };
    size_t size = sizes[test_hash(o.seed, 4, (uint64_t)i) % TEST_ARRAY_LEN(sizes)];
    return size < (size_t)o.most ? size : (size_t)o.most;
}

static void run_calls(void)
{
    rondo_comm *comm;
    rondo_status status;
    size_t most = 900000 * sizeof(int32_t);
    int32_t *in = malloc(most), *out = malloc(most);
    long last = o.forever ? INT64_MAX : o.victim < 0 ? o.after : o.after + CALLS;
    if (in == NULL || out == NULL) {
        test_die("no memory");
    }
    status = rondo_comm_create(MPI_COMM_WORLD, NULL, &comm);
    if (status != RONDO_SUCCESS) {
        test_die("creation: %s: %s", rondo_status_string(status), rondo_last_error(NULL));
    }
    for (long i = 0; i < last; i++) {
        double start = test_now();
        if (i == o.after && test.rank == o.victim) {
            strike();
        }
        if (i == 1 && test.rank == 0) {
            test_say("running");
        }
        if (!test_check(sum(comm, size_of_call(i), in, out, total_of_ranks(-1), &status),
                        "wrong sum in call %ld", i)) {
            leave();
        }
        if (status != RONDO_SUCCESS) {
            survive(comm, status, test_now() - start, in, out);
        }
        if (i % 64 == 0) {
            test_watchdog(30);
        }
    }
    test_check(o.victim < 0, "the fault was not noticed in %d calls", CALLS);
    TEST_MUST(rondo_comm_destroy(comm), NULL);
    free(in);
    free(out);
}

static double wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/*
 * Make calls for some seconds, while something is done to the job from outside. Each rank prints how its
 * calls went, and when they ended. All ranks agree on the last call, by rank 0's clock.
 */
static void run_watch(void)
{
    char host[64] = "";
    rondo_comm *comm;
    size_t most = 900000 * sizeof(int32_t);
    int32_t *in = malloc(most), *out = malloc(most), enough = 0;
    double begin, longest = 0;
    long n = 0;
    if (in == NULL || out == NULL || gethostname(host, sizeof(host) - 1) != 0) {
        test_die("no memory, or this host has no name");
    }
    rondo_status status = rondo_comm_create(MPI_COMM_WORLD, NULL, &comm);
    if (status != RONDO_SUCCESS) {
        test_say("watch %d: %s at %.6f in creation: %s", test.rank, rondo_status_string(status), wall_clock(),
                 rondo_last_error(NULL));
        leave();
    }
    begin = test_now();
    for (; status == RONDO_SUCCESS && !enough; n++) {
        double start = test_now();
        int32_t end = test.rank == 0 &&
                      (start - begin > (double)o.watch || (o.until != NULL && access(o.until, F_OK) == 0));
        test_watchdog(60);
        if (!test_check(sum(comm, size_of_call(n), in, out, total_of_ranks(-1), &status),
                        "wrong sum in call %ld", n)) {
            leave();
        }
        if (status == RONDO_SUCCESS) {
            status = rondo_all_reduce(&end, &enough, 1, RONDO_INT32, RONDO_MAX, comm, NULL);
        }
        longest = test_now() - start > longest ? test_now() - start : longest;
        if (n == 2) {
            test_say("watching %d: pid %d on %s", test.rank, (int)getpid(), host);
        }
    }
    if (status != RONDO_SUCCESS) {
        test_say("watch %d: %s at %.6f after %ld calls: %s", test.rank,
                 status == RONDO_REMOTE_ERROR ? "REMOTE_ERROR" : rondo_status_string(status), wall_clock(), n,
                 rondo_last_error(comm));
        rondo_comm_abort(comm);
        leave();
    }
    test_say("watch %d: passed %ld calls, the longest took %.0f ms", test.rank, n, 1e3 * longest);
    TEST_MUST(rondo_comm_destroy(comm), NULL);
    free(in);
    free(out);
}

static rondo_status create(rondo_comm **comm)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_status status, error = RONDO_IN_PROGRESS;
    config.init_timeout_ms = o.no_limit ? 0 : RONDO_CONFIG_DEFAULT;
    config.blocking = !o.polled;
    status = rondo_comm_create(MPI_COMM_WORLD, &config, comm);
    while (status == RONDO_IN_PROGRESS && error == RONDO_IN_PROGRESS) {
        TEST_MUST(rondo_comm_async_error(*comm, &error), *comm);
        usleep(100);
    }
    return status == RONDO_IN_PROGRESS ? error : status;
}

/* Create and destroy communicators until a creation fails because the victim died in it. */
static void run_init(void)
{
    int32_t in[60], out[60];
    if (test.rank == o.victim && o.signal != 0) {
        strike();
    }
    for (long i = 0; i < CALLS; i++) {
        rondo_comm *comm = NULL;
        rondo_status status;
        double start = test_now(), took;
        const char *what = "creation";
        test_watchdog(30);
        status = create(&comm);
        if (status == RONDO_SUCCESS) {
            what = "first call";
            test_check(sum(comm, 60, in, out, total_of_ranks(-1), &status), "wrong sum");
        }
        if (status == RONDO_SUCCESS) {
            what = "destruction";
            status = rondo_comm_destroy(comm);
            comm = NULL;
        }
        took = test_now() - start;
        if (status != RONDO_SUCCESS) {
            test_say("survivor %d: %s after %.0f ms in %s %ld, %s: %s", test.rank,
                     rondo_status_string(status), 1e3 * took, what, i,
                     test_names_rank(rondo_last_error(comm), (int)o.victim) ? "named" : "not named",
                     rondo_last_error(comm));
            test_check(took < 2 * LIMIT, "%.1f s until the error", took);
            if (comm != NULL) {
                rondo_comm_abort(comm);
            }
            fflush(stdout);
            sleep(o.linger);
            leave();
        }
    }
    test_die("the victim is still alive after %d creations", CALLS);
}

static int usage(void)
{
    fprintf(
        stderr,
        "usage: mpirun --enable-recovery -n RANKS mpi_fault [OPTION]...\n"
        "\n"
        "Kill or stop a rank, and check that the others notice. Without options, make calls that succeed.\n"
        "\n"
        "  --kill RANK    kill this rank (SIGKILL)\n"
        "  --stop RANK    stop this rank (SIGSTOP); set RONDO_DEAD_AFTER\n"
        "  --after N      at its call N (default: 50)\n"
        "  --mid          not before the call, but a moment later, from another thread\n"
        "  --delay US     that moment in microseconds (default: random)\n"
        "  --shrink       survivors create a communicator without the victim and use it\n"
        "  --init         fault during creations instead of calls\n"
        "  --no-limit     with --init: ranks may come as late as they like (config.init_timeout_ms 0)\n"
        "  --polled       with --init: creations do not block, and MPI_THREAD_MULTIPLE\n"
        "  --linger S     with --init: survivors stay for S seconds, so that their exit is no further fault\n"
        "  --victim RANK  with --init: this rank dies by RONDO_FAULT\n"
        "  --forever      make calls until the program is ended from outside\n"
        "  --watch S      make calls for S seconds; each rank prints how they went and when they failed\n"
        "  --until FILE   with --watch: or until FILE exists; rank 0 looks for it\n"
        "  --most N       most elements of a call (default: 900000)\n"
        "  --seed N       choose other sizes and moments\n");
    return 2;
}

static int parse(int argc, char **argv)
{
    static const struct option rows[] = {
        { "kill", 1, NULL, 'k' },   { "stop", 1, NULL, 's' },     { "victim", 1, NULL, 'v' },
        { "after", 1, NULL, 'a' },  { "mid", 0, NULL, 'm' },      { "delay", 1, NULL, 'd' },
        { "shrink", 0, NULL, 'r' }, { "init", 0, NULL, 'i' },     { "forever", 0, NULL, 'f' },
        { "seed", 1, NULL, 'e' },   { "watch", 1, NULL, 'w' },    { "most", 1, NULL, 'n' },
        { "until", 1, NULL, 'u' },  { "no-limit", 0, NULL, 'l' }, { "polled", 0, NULL, 'p' },
        { "linger", 1, NULL, 'g' }, { NULL, 0, NULL, 0 }
    };
    int opt, ok = 1;
    long seed = 1;
    o.delay_us = -1;
    while ((opt = getopt_long(argc, argv, "", rows, NULL)) != -1) {
        switch (opt) {
        case 'k':
            o.signal = SIGKILL;
            ok &= test_parse_long(optarg, 0, TEST_MAX_RANKS, &o.victim);
            break;
        case 's':
            o.signal = SIGSTOP;
            ok &= test_parse_long(optarg, 0, TEST_MAX_RANKS, &o.victim);
            break;
        case 'v': ok &= test_parse_long(optarg, 0, TEST_MAX_RANKS, &o.victim); break;
        case 'a': ok &= test_parse_long(optarg, 0, 1000000000, &o.after); break;
        case 'd':
            o.mid = 1;
            ok &= test_parse_long(optarg, 0, 100000000, &o.delay_us);
            break;
        case 'e': ok &= test_parse_long(optarg, 0, 1000000000, &seed); break;
        case 'w': ok &= test_parse_long(optarg, 1, 100000, &o.watch); break;
        case 'n': ok &= test_parse_long(optarg, 1, 900000, &o.most); break;
        case 'u': o.until = optarg; break;
        case 'l': o.no_limit = 1; break;
        case 'p': o.polled = 1; break;
        case 'g': o.linger = (unsigned)atoi(optarg); break;
        case 'm': o.mid = 1; break;
        case 'r': o.shrink = 1; break;
        case 'i': o.init = 1; break;
        case 'f': o.forever = 1; break;
        default: ok = 0;
        }
    }
    o.seed = (uint64_t)seed;
    if (o.delay_us < 0) {
        o.delay_us = (long)(test_hash(o.seed, 8, 8) % 20000);
    }
    return ok && optind == argc;
}

int main(int argc, char **argv)
{
    pid_t pid = getpid();
    if (!parse(argc, argv)) {
        return usage();
    }
    test_init("mpi_fault", o.polled ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    test.what = o.init ? "creating communicators" : "all_reduce";
    if (o.victim >= test.nranks) {
        test_die("there is no rank %ld", o.victim);
    }
    MPI_Allgather(&pid, sizeof(pid), MPI_BYTE, pids, sizeof(pid), MPI_BYTE, MPI_COMM_WORLD);
    if (o.init) {
        run_init();
    } else if (o.watch > 0) {
        run_watch();
    } else {
        run_calls();
    }
    return test_finish();
}
