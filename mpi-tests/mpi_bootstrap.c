/*
 * mpi_bootstrap: the bootstrap over MPI, without the engine. Rounds, refusals, errors that all ranks share,
 * missing and late ranks, and progress of MPI from the idle hook.
 *
 *   mpirun -n N mpi_bootstrap    all cases; with one rank, those that need no second rank
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/wait.h"
#include "mpi_common.h"
#include "mpi/bootstrap_mpi.h"
#include "mpi/comm_mpi.h"
#include "net/peer.h"

enum { MAX_BYTES = 2000, PATIENCE_S = 120 };
static const int64_t LONG_NS = 30000000000, SHORT_NS = 600000000;

struct outcome {
    rondo_status status;
    int missing[8];
    int n; /* number of missing ranks */
    double took_s;
    char text[RONDO_ERROR_TEXT];
};

/* Progress a round until it ends or `wait_ns` have passed, as the engine does. */
static struct outcome drive(struct rondo_bootstrap *b, int64_t wait_ns)
{
    struct outcome out = { .status = RONDO_IN_PROGRESS };
    int64_t begin = rondo_now_ns();
    while ((out.status = b->ops->test(b)) == RONDO_IN_PROGRESS && rondo_now_ns() - begin < wait_ns) {
        sched_yield();
    }
    snprintf(out.text, sizeof(out.text), "%s",
             out.status == RONDO_IN_PROGRESS ? "own deadline" : rondo_error_text());
    if (out.status == RONDO_IN_PROGRESS || out.status == RONDO_TIMEOUT) {
        int64_t asked = rondo_now_ns();
        while ((out.status = b->ops->missing(b, out.missing, (int)TEST_ARRAY_LEN(out.missing), &out.n)) ==
               RONDO_IN_PROGRESS) {
            sched_yield();
        }
        test_check(out.status == RONDO_SUCCESS || out.status == RONDO_TIMEOUT, "missing gave %s",
                   rondo_error_text());
        test_check((double)(rondo_now_ns() - asked) * 1e-9 < 6, "finding the missing ranks took %.2f s",
                   (double)(rondo_now_ns() - asked) * 1e-9);
        if (out.status == RONDO_SUCCESS) { /* found, not told */
            out.status = rondo_fail_quiet(RONDO_TIMEOUT, "rank %d: missing: rank %d", b->rank,
                                          out.missing[0]);
        } else {
            snprintf(out.text, sizeof(out.text), "%s", rondo_error_text());
        }
    }
    b->ended = out.status;
    out.took_s = (double)(rondo_now_ns() - begin) * 1e-9;
    return out;
}

static int overlaps; /* of the next bootstraps: MPI carries their first round only */

static struct rondo_bootstrap *boot(MPI_Comm comm)
{
    struct rondo_bootstrap *b = NULL;
    if (!test_check(rondo_bootstrap_mpi(comm, &b) == RONDO_SUCCESS, "%s", rondo_error_text())) {
        test_die("cannot create the bootstrap");
    }
    b->overlaps = overlaps;
    return b;
}

static struct rondo_bootstrap *boot_open(MPI_Comm comm)
{
    struct rondo_bootstrap *b = boot(comm);
    if (!test_check(b->ops->open_start(b) == RONDO_SUCCESS && drive(b, LONG_NS).status == RONDO_SUCCESS,
                    "open: %s", rondo_error_text())) {
        test_die("not open");
    }
    return b;
}

/* ---- rounds ---- */

static uint8_t byte_of(int from, int to, int round, size_t i)
{
    return (uint8_t)(from * 31 + to * 17 + round * 7 + (int)i);
}

static void allgather_case(struct rondo_bootstrap *b, int round, size_t bytes)
{
    uint8_t mine[MAX_BYTES], *all = test_guard_alloc((size_t)b->nranks * bytes);
    int wrong = 0;
    for (size_t i = 0; i < bytes; i++) {
        mine[i] = byte_of(b->rank, 0, round, i);
    }
    rondo_status status = b->ops->allgather_start(b, mine, all, bytes);
    memset(mine, 0, sizeof(mine)); /* the round has its own copy */
    test_check(status == RONDO_SUCCESS && drive(b, LONG_NS).status == RONDO_SUCCESS, "allgather %zu: %s",
               bytes, rondo_error_text());
    for (int from = 0; from < b->nranks; from++) {
        for (size_t i = 0; i < bytes; i++) {
            wrong += all[(size_t)from * bytes + i] != byte_of(from, 0, round, i);
        }
    }
    test_check(wrong == 0, "allgather of %zu bytes: %d wrong", bytes, wrong);
    test_check(test_guard_intact(all, (size_t)b->nranks * bytes),
               "allgather of %zu bytes wrote beyond its end", bytes);
    test_guard_free(all);
}

/* Choose pairs by a hash of (round, lower, higher); in every second round, all pairs. */
static void exchange_case(struct rondo_bootstrap *b, int round, size_t bytes)
{
    int peer[TEST_MAX_RANKS], n = 0, wrong = 0;
    for (int r = b->nranks - 1; r >= 0; r--) {
        int low = r < b->rank ? r : b->rank, high = r < b->rank ? b->rank : r;
        if (r != b->rank &&
            (round % 2 == 0 || (test_hash((uint64_t)round, (uint64_t)low, (uint64_t)high) & 1))) {
            peer[n++] = r;
        }
    }
    size_t size = (size_t)n * bytes;
    uint8_t *send = test_guard_alloc(size), *recv = test_guard_alloc(size);
    for (size_t i = 0; i < size; i++) {
        send[i] = byte_of(b->rank, peer[i / bytes], round, i % bytes);
    }
    rondo_status status = b->ops->exchange_start(b, n, peer, send, recv, bytes);
    test_check(status == RONDO_SUCCESS && drive(b, LONG_NS).status == RONDO_SUCCESS, "exchange with %d: %s",
               n, rondo_error_text());
    for (size_t i = 0; i < size; i++) {
        wrong += recv[i] != byte_of(peer[i / bytes], b->rank, round, i % bytes);
    }
    test_check(wrong == 0, "exchange of %zu bytes with %d peers: %d wrong", bytes, n, wrong);
    test_check(test_guard_intact(recv, size), "exchange of %zu bytes with %d peers wrote beyond its end",
               bytes, n);
    test_guard_free(send);
    test_guard_free(recv);
}

static void rounds_case(const char *what, MPI_Comm comm)
{
    static const size_t sizes[] = { 1, 4, 17, 1100, MAX_BYTES };
    int rank, size, graves = rondo_bootstrap_mpi_graves();
    test.what = what;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    struct rondo_bootstrap *b = boot_open(comm);
    test_check(b->rank == rank && b->nranks == size, "rank %d of %d", b->rank, b->nranks);
    for (int round = 0; round < 2 * (int)TEST_ARRAY_LEN(sizes); round++) {
        allgather_case(b, round, sizes[round / 2]);
        exchange_case(b, round, sizes[round / 2]);
    }
    b->ops->close(b, 1);
    test_check(rondo_bootstrap_mpi_graves() == graves, "the bootstrap leaked requests");
}

static void communicators_of_any_kind(void)
{
    MPI_Comm comm;
    rounds_case("rounds on MPI_COMM_WORLD", MPI_COMM_WORLD);
    rounds_case("rounds on MPI_COMM_SELF", MPI_COMM_SELF);
    MPI_Comm_split(MPI_COMM_WORLD, test.rank % 2, -test.rank, &comm);
    rounds_case("rounds on odd and even ranks, reversed", comm);
    struct rondo_bootstrap *b = boot(comm);
    int last = test.nranks - 1;
    test_check(b->root_world_rank == (last % 2 == test.rank % 2 ? last : last - 1), "root's world rank is %d",
               b->root_world_rank);
    b->ops->close(b, 0);
    MPI_Comm_free(&comm);
}

/* More than a process may have descriptors, and MPICH communicators (2,046). */
static void all_is_given_back(void)
{
    test.what = "many bootstraps, one after the other";
    for (int i = 0; i < (test.nranks <= 2 ? 2100 : 50); i++) {
        test_watchdog(PATIENCE_S); /* beside other work, all of them take long */
        struct rondo_bootstrap *b = boot_open(MPI_COMM_WORLD);
        b->ops->close(b, 1);
    }
}

/* Several creations on one communicator of MPI, begun in one order and polled in another on each rank; the
 * last one, of which MPI carries all rounds, is complete first. */
static void creations_on_one_communicator_keep_apart(void)
{
    enum { N = 4 };
    test.what = "several bootstraps at once on one communicator";
    for (int round = 0; round < 100; round++) {
        struct rondo_bootstrap *b[N];
        uint64_t hash = test_hash(5, (uint64_t)round, (uint64_t)test.rank);
        test_watchdog(PATIENCE_S);
        for (int i = 0; i < N; i++) {
            overlaps = i < N - 1;
            b[i] = boot(MPI_COMM_WORLD);
            test_check(b[i]->ops->open_start(b[i]) == RONDO_SUCCESS, "open: %s", rondo_error_text());
            for (int looks = (int)(hash >> 4 * i) & 7; looks > 0; looks--) {
                (void)b[i]->ops->test(b[i]);
            }
        }
        test_check(drive(b[N - 1], LONG_NS).status == RONDO_SUCCESS, "open: %s", rondo_error_text());
        for (int open = N - 1; open > 0;) {
            open = 0;
            for (int k = 0; k < N - 1; k++) {
                struct rondo_bootstrap *each = b[(k + (int)(hash % 3)) % (N - 1)];
                rondo_status status = each->ops->test(each);
                test_check(status == RONDO_SUCCESS || status == RONDO_IN_PROGRESS, "%s", rondo_error_text());
                open += status == RONDO_IN_PROGRESS;
            }
            sched_yield();
        }
        for (int i = 0; i < N; i++) {
            allgather_case(b[i], round + i, 17);
            b[i]->ops->close(b[i], 1);
        }
    }
    overlaps = 0;
}

/* ---- refusals ---- */

static void null_and_intercommunicators_are_refused(void)
{
    struct rondo_bootstrap *b = NULL;
    test.what = "refused communicators";
    test_check(rondo_bootstrap_mpi(MPI_COMM_NULL, &b) == RONDO_INVALID_ARGUMENT, "MPI_COMM_NULL was taken");
    test_check(strstr(rondo_error_text(), "MPI_COMM_NULL") != NULL, "%s", rondo_error_text());
    if (test.nranks == 1) {
        return;
    }
    MPI_Comm half, inter;
    MPI_Comm_split(MPI_COMM_WORLD, test.rank % 2, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - test.rank % 2, 5, &inter);
    test_check(rondo_bootstrap_mpi(inter, &b) == RONDO_INVALID_ARGUMENT, "an intercommunicator was taken");
    test_check(strstr(rondo_error_text(), "intercommunicator") != NULL, "%s", rondo_error_text());
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

static void *other_thread(void *arg)
{
    struct rondo_bootstrap *b = NULL;
    *(rondo_status *)arg = rondo_bootstrap_mpi(MPI_COMM_SELF, &b);
    if (b) {
        b->ops->close(b, 0);
    }
    return NULL;
}

/* A second thread may create a bootstrap only from MPI_THREAD_SERIALIZED up. */
static void thread_level_is_respected(void)
{
    int level;
    rondo_status status = RONDO_SUCCESS;
    pthread_t thread;
    test.what = "a thread that may not call MPI";
    MPI_Query_thread(&level);
    if (pthread_create(&thread, NULL, other_thread, &status) != 0) {
        test_die("no thread");
    }
    pthread_join(thread, NULL);
    test_check(status == (level >= MPI_THREAD_SERIALIZED ? RONDO_SUCCESS : RONDO_INVALID_USAGE),
               "level %d gave status %d", level, (int)status);
    struct rondo_bootstrap *b = boot(MPI_COMM_WORLD);
    test_check((b->idle != NULL) == (test.nranks > 1), "idle hook at level %d", level);
    test_check(b->idle_asks == (test.nranks > 1 && level == MPI_THREAD_SERIALIZED), "default at level %d",
               level);
    b->ops->close(b, 0);
}

/* ---- all ranks fail together ---- */

static void error_of_one_rank_is_the_error_of_all(void)
{
    test.what = "one rank has failed before a round";
    struct rondo_bootstrap *b = boot_open(MPI_COMM_WORLD);
    struct rondo_round_head mine = { RONDO_PEER_MAGIC, RONDO_SUCCESS };
    struct rondo_round_head *all = calloc((size_t)b->nranks, sizeof(*all));
    rondo_round_text text = "", *texts = calloc((size_t)b->nranks, sizeof(*texts));
    int bad = b->nranks - 1;
    if (b->rank == bad) {
        mine.status = rondo_fail_quiet(RONDO_SYSTEM_ERROR, "/dev/shm is full");
        rondo_round_text_fill(text, b->rank);
    }
    b->ops->allgather_start(b, &mine, all, sizeof(mine));
    test_check(drive(b, LONG_NS).status == RONDO_SUCCESS, "the round itself: %s", rondo_error_text());
    rondo_error_clear();
    test_check(rondo_round_failed(all, sizeof(*all), b->nranks), "the error is not reported to this rank");
    b->ops->allgather_start(b, text, texts, sizeof(text));
    test_check(drive(b, LONG_NS).status == RONDO_SUCCESS, "the error texts: %s", rondo_error_text());
    test_check(rondo_round_check(all, sizeof(*all), b->nranks, texts) == RONDO_SYSTEM_ERROR,
               "the error is not reported");
    char got[RONDO_ERROR_TEXT], root[RONDO_ERROR_TEXT], start[32];
    snprintf(got, sizeof(got), "%s", rondo_error_text());
    memcpy(root, got, sizeof(root));
    MPI_Bcast(root, (int)sizeof(root), MPI_CHAR, 0, MPI_COMM_WORLD);
    snprintf(start, sizeof(start), "rank %d on ", bad);
    test_check(strncmp(got, start, strlen(start)) == 0 && strstr(got, ": /dev/shm is full"), "%s", got);
    test_check(strcmp(got, root) == 0, "\"%s\" is not rank 0's \"%s\"", got, root);
    b->ops->close(b, 1);
    test_check(rondo_bootstrap_mpi_graves() == 0, "a complete round leaks nothing");
    free(all);
    free(texts);
}

/* ---- missing and late ranks ---- */

/* Found by this rank, or told by one whose deadline passed before. */
static int is_missing(const struct outcome *out, int rank)
{
    char told[32];
    snprintf(told, sizeof(told), "missing: rank %d", rank);
    return out->status == RONDO_TIMEOUT &&
           (out->n == 1 ? out->missing[0] == rank : out->n == 0 && strstr(out->text, told) != NULL);
}

/* A barrier. On a busy machine a rank that is only late may be named, so then it is not looked at who is.
 * @return 1: it was looked at */
static int check_named(double start, const struct outcome *out, int absent, int64_t deadline_ns)
{
    double deadline = 1e-9 * (double)deadline_ns, longest = 8; /* it takes seconds to find who is missing */
    int counts = test_are_punctual(start, absent, deadline, longest);
    test_check(test.rank == absent || (counts ? is_missing(out, absent) : out->status == RONDO_TIMEOUT),
               "rank %d should be missing: status %d, n %d, first %d, %s", absent, (int)out->status, out->n,
               out->missing[0], out->text);
    return counts;
}

/* Repeat a case until the ranks were punctual once. */
static void until_it_counts(int (*run)(int, int), int absent, int exchange)
{
    enum { MOST = 20 };
    int times = 0;
    do {
        test_watchdog(PATIENCE_S);
    } while (!run(absent, exchange) && ++times < MOST);
    test_check(times < MOST, "the name of the absent rank was never looked at");
}

/*
 * Only one rank has a short deadline. It informs the others, except when rank 0 is absent. The absent rank
 * comes after the others have given up, with its own deadline: it must not hang, and nothing may be pending
 * at the end. @return 1: the ranks were punctual
 */
static int absent_from_the_start(int absent, int exchange)
{
    MPI_Comm comm;
    struct outcome named = { 0 };
    double start;
    int counts;
    (void)exchange;
    test.what = absent ? "a rank never comes" : "rank 0 never comes";
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    start = test_now();
    int hasty = absent == test.nranks - 1 ? 0 : test.nranks - 1, graves = rondo_bootstrap_mpi_graves();
    if (test.rank != absent) {
        struct rondo_bootstrap *b = boot(comm);
        test_check(b->ops->open_start(b) == RONDO_SUCCESS, "%s", rondo_error_text());
        named = drive(b, test.rank == hasty || absent == 0 ? SHORT_NS : LONG_NS);
        b->ops->close(b, 0);
        test_check(rondo_bootstrap_mpi_graves() == graves + 1, "the pending round was not kept");
    }
    counts = check_named(start, &named, absent, SHORT_NS);
    if (test.rank == absent) {
        struct rondo_bootstrap *b = boot(comm);
        test_check(b->ops->open_start(b) == RONDO_SUCCESS, "%s", rondo_error_text());
        struct outcome out = drive(b, SHORT_NS);
        test_check(out.status == RONDO_TIMEOUT, "the late rank's status is %d: %s", (int)out.status,
                   out.text);
        b->ops->close(b, 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* All ranks have called once. A second creation must work, although it is slow enough for the absent rank
     * to receive a message of the first one. */
    if (test.rank == hasty) {
        usleep(400000);
    }
    rounds_case("rounds where a creation failed before", comm);
    return counts;
}

/* All ranks have the bootstrap; then one rank misses a round. Deadlines differ. */
static int absent_from_a_round(int absent, int exchange)
{
    struct outcome out = { 0 };
    double start;
    int counts = 0;
    test.what = exchange ? "a rank does not come to an exchange" : "a rank does not come to an allgather";
    struct rondo_bootstrap *b = boot_open(MPI_COMM_WORLD);
    int mine[TEST_MAX_RANKS] = { 0 }, all[TEST_MAX_RANKS], peer[TEST_MAX_RANKS], n = 0;
    allgather_case(b, 0, 8);
    for (int r = 0; r < b->nranks; r++) {
        if (r != b->rank && (r == absent || b->rank == absent)) {
            peer[n++] = r;
        }
    }
    start = test_now();
    /* First the ranks that come, then the absent one, so that MPI has nothing pending at the end. */
    for (int round = 0; round < 2; round++) {
        if ((b->rank == absent) == round) {
            rondo_status status = exchange ? b->ops->exchange_start(b, n, peer, mine, all, sizeof(int))
                                           : b->ops->allgather_start(b, mine, all, sizeof(int));
            test_check(status == RONDO_SUCCESS, "%s", rondo_error_text());
            out = drive(b, b->rank % 2 ? SHORT_NS : SHORT_NS * 2);
            b->ops->close(b, round && out.status == RONDO_SUCCESS);
        }
        if (round == 0) {
            counts = check_named(start, &out, absent, SHORT_NS);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return counts;
}

static void next_creation_works(void)
{
    rounds_case("rounds after failures on other communicators", MPI_COMM_SELF);
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    test.what = "rounds after failures";
    struct rondo_bootstrap *b = boot_open(comm);
    allgather_case(b, 3, 40);
    b->ops->close(b, 1);
    MPI_Comm_free(&comm);
}

/* ---- progress of the program's messages ---- */

/*
 * Rank 1 sends more than MPI can buffer, and then creates a file. Rank 0 has posted the receive and calls
 * only the idle hook until the file exists: MPI_Send returns only if rank 0's MPI makes progress.
 */
static void idle_hook_moves_the_programs_messages(void)
{
    enum { COUNT = 1 << 20 };
    char folder[256] = "", path[300];
    int *data = calloc(COUNT, sizeof(int)), level;
    test.what = "idle hook";
    MPI_Query_thread(&level);
    if (level == MPI_THREAD_SERIALIZED || test.nranks < 2) {
        free(data);
        return;
    }
    struct rondo_bootstrap *b = boot_open(MPI_COMM_WORLD);
    rondo_status (*idle)(void *, int *) = b->idle;
    void *arg = b->idle_arg;
    b->ops->close(b, 1); /* the hook outlives the bootstrap */
    if (test.rank == 0) {
        test_folder_make(folder, sizeof(folder));
    }
    MPI_Bcast(folder, (int)sizeof(folder), MPI_CHAR, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof(path), "%s/sent", folder);
    if (test.rank == 0) {
        MPI_Request request;
        int64_t end = rondo_now_ns() + 10000000000;
        int bad = 0;
        MPI_Irecv(data, COUNT, MPI_INT, 1, 3, MPI_COMM_WORLD, &request);
        while (access(path, F_OK) != 0 && rondo_now_ns() < end) {
            int moved = 0;
            bad += idle(arg, &moved) != RONDO_SUCCESS;
            sched_yield();
        }
        test_check(bad == 0 && access(path, F_OK) == 0, "the message made no progress (%d errors)", bad);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        test_check(data[COUNT - 1] == 77, "the message's last word is %d", data[COUNT - 1]);
        unlink(path);
        rmdir(folder);
    } else if (test.rank == 1) {
        data[COUNT - 1] = 77;
        MPI_Send(data, COUNT, MPI_INT, 0, 3, MPI_COMM_WORLD);
        FILE *file = fopen(path, "w");
        test_check(file != NULL, "cannot write %s", path);
        if (file) {
            fclose(file);
        }
    }
    free(data);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- MPI's errors ---- */

static void error_handlers_are_left_alone(void)
{
    MPI_Errhandler before, after;
    test.what = "error handlers";
    MPI_Comm comms[] = { MPI_COMM_WORLD, MPI_COMM_SELF };
    for (size_t i = 0; i < TEST_ARRAY_LEN(comms); i++) {
        MPI_Comm_set_errhandler(comms[i], i ? MPI_ERRORS_RETURN : MPI_ERRORS_ARE_FATAL);
        MPI_Comm_get_errhandler(comms[i], &before);
        struct rondo_bootstrap *b = boot_open(MPI_COMM_WORLD);
        b->ops->close(b, 1);
        MPI_Comm_get_errhandler(comms[i], &after);
        test_check(before == after, "the error handler of communicator %zu changed", i);
        MPI_Errhandler_free(&before);
        MPI_Errhandler_free(&after);
    }
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

/* Threads that move creations on one communicator may be in MPI at once. */
static void guards_may_end_in_any_order(void)
{
    MPI_Comm comm;
    MPI_Errhandler handler;
    struct rondo_mpi_guard first, second;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
    rondo_mpi_guard_enter(&first, comm);
    rondo_mpi_guard_enter(&second, comm);
    rondo_mpi_guard_leave(&first);
    MPI_Comm_get_errhandler(comm, &handler);
    test_check(handler == MPI_ERRORS_RETURN, "an error in the second guard would not come back");
    MPI_Errhandler_free(&handler);
    rondo_mpi_guard_leave(&second);
    MPI_Comm_get_errhandler(comm, &handler);
    test_check(handler == MPI_ERRORS_ARE_FATAL, "the program's error handler is gone");
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&comm);
}

/* ---- descriptors ---- */

/* The last rank has no descriptor left for its listener: all ranks end with its error. */
static void descriptors_run_out(void)
{
    struct rlimit before, none;
    struct rondo_bootstrap *b;
    int last = test.nranks - 1, next = dup(0);
    char name[32];
    test.what = "out of descriptors";
    if (next < 0 || getrlimit(RLIMIT_NOFILE, &before) != 0) {
        test_die("no descriptor");
    }
    close(next);
    none = (struct rlimit){ .rlim_cur = (rlim_t)next, .rlim_max = before.rlim_max };
    MPI_Barrier(MPI_COMM_WORLD);
    overlaps = 1;
    b = boot(MPI_COMM_WORLD);
    if (test.rank == last) {
        setrlimit(RLIMIT_NOFILE, &none);
    }
    test_check(b->ops->open_start(b) == RONDO_SUCCESS, "open: %s", rondo_error_text());
    setrlimit(RLIMIT_NOFILE, &before);
    struct outcome out = drive(b, LONG_NS);
    snprintf(name, sizeof(name), "rank %d ", last);
    test_check(out.status == RONDO_SYSTEM_ERROR, "status %d: %s", (int)out.status, out.text);
    test_check(strncmp(out.text, name, strlen(name)) == 0, "%s", out.text);
    test_check(test.rank != last || strstr(out.text, "ulimit -n") != NULL, "%s", out.text);
    b->ops->close(b, 0);
    rounds_case("rounds after a creation without descriptors", MPI_COMM_WORLD);
    overlaps = 0;
}

int main(void)
{
    int levels[] = { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE };
    const char *level = getenv("TEST_THREAD_LEVEL"); /* 0..3 */
    test_init("mpi_bootstrap", levels[level ? atoi(level) & 3 : 3]);
    test_watchdog(PATIENCE_S);
    communicators_of_any_kind();
    overlaps = 1;
    communicators_of_any_kind();
    all_is_given_back();
    creations_on_one_communicator_keep_apart();
    null_and_intercommunicators_are_refused();
    thread_level_is_respected();
    error_of_one_rank_is_the_error_of_all();
    error_handlers_are_left_alone();
    guards_may_end_in_any_order();
    idle_hook_moves_the_programs_messages();
    if (test.nranks > 1) {
        descriptors_run_out();
        until_it_counts(absent_from_the_start, test.nranks - 1, 0);
        until_it_counts(absent_from_the_start, 0, 0);
        for (overlaps = 0; overlaps < 2; overlaps++) {
            until_it_counts(absent_from_a_round, test.nranks - 1, 0);
            until_it_counts(absent_from_a_round, test.nranks / 2, 1);
        }
        overlaps = 0;
        next_creation_works();
    }
    return test_finish();
}
