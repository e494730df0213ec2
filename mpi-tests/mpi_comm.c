/* mpi_comm: the life of a communicator under MPI, from creation to the end of the process. */
#include <getopt.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "holdings.h"
#include "mpi_comm.h"

static long loops = 100, many = 64;

void expect_status(rondo_status got, rondo_status want, const rondo_comm *comm, const char *what)
{
    test_check(got == want, "%s gave %s, expected %s: %s", what, rondo_status_string(got),
               rondo_status_string(want), rondo_last_error(comm));
}

void verify(rondo_comm *comm, const char *what)
{
    size_t count = 1000 + strlen(what), wrong = 0, wrong_copy = 0;
    rondo_status status = test_call_once("all_reduce", comm, RONDO_FLOAT32, RONDO_SUM, count, count, &wrong);
    if (status == RONDO_SUCCESS) {
        status = test_call_once("broadcast", comm, RONDO_INT8, RONDO_SUM, 33, count, &wrong_copy);
    }
    if (status != RONDO_SUCCESS) {
        test_die("%s: %s: %s: %s", test.what, what, rondo_status_string(status), rondo_last_error(comm));
    }
    test_check(wrong == 0 && wrong_copy == 0, "%s: %zu elements of all_reduce and %zu of broadcast wrong",
               what, wrong, wrong_copy);
}

rondo_comm *create(MPI_Comm mpi_comm)
{
    rondo_comm *comm = NULL;
    TEST_MUST(rondo_comm_create(mpi_comm, NULL, &comm), NULL);
    return comm;
}

void destroy(rondo_comm *comm) { TEST_MUST(rondo_comm_destroy(comm), NULL); }

/* ---- creation ---- */

static void world_self_and_halves_work_together(void)
{
    MPI_Comm half_mpi;
    rondo_comm *world = create(MPI_COMM_WORLD), *self = create(MPI_COMM_SELF), *half;
    float in = 2, sums[3] = { 0, 0, 0 };
    int halves;
    MPI_Comm_split(MPI_COMM_WORLD, test.rank % 2, 0, &half_mpi);
    half = create(half_mpi);
    MPI_Comm_size(half_mpi, &halves);
    MPI_Comm_free(&half_mpi); /* the library no longer needs the caller's communicator */
    for (int i = 0; i < 3; i++) {
        verify(world, "world");
        verify(self, "self");
        verify(half, "half");
    }
    TEST_MUST(rondo_group_start(), NULL);
    TEST_MUST(rondo_all_reduce(&in, &sums[0], 1, RONDO_FLOAT32, RONDO_SUM, world, NULL), world);
    TEST_MUST(rondo_all_reduce(&in, &sums[1], 1, RONDO_FLOAT32, RONDO_SUM, half, NULL), half);
    TEST_MUST(rondo_all_reduce(&in, &sums[2], 1, RONDO_FLOAT32, RONDO_SUM, self, NULL), self);
    TEST_MUST(rondo_group_end(), NULL);
    test_check(sums[0] == 2 * (float)test.nranks && sums[1] == 2 * (float)halves && sums[2] == 2,
               "one group over three: %g %g %g", (double)sums[0], (double)sums[1], (double)sums[2]);
    destroy(half);
    verify(world, "world after half was destroyed");
    destroy(self);
    destroy(world);
}

static void queries_answer(void)
{
    rondo_comm *comm = create(MPI_COMM_WORLD);
    rondo_status error = RONDO_INTERNAL_ERROR;
    int count = -1, rank = -1, device = 0, version = 0;
    TEST_MUST(rondo_comm_count(comm, &count), comm);
    TEST_MUST(rondo_comm_rank(comm, &rank), comm);
    TEST_MUST(rondo_comm_device(comm, &device), comm);
    TEST_MUST(rondo_comm_async_error(comm, &error), comm);
    TEST_MUST(rondo_get_version(&version), NULL);
    test_check(count == test.nranks && rank == test.rank && device == -1 && error == RONDO_SUCCESS,
               "count %d, rank %d, device %d, async error %d", count, rank, device, error);
    test_check(version == RONDO_VERSION_CODE, "version %d, header says %d", version, RONDO_VERSION_CODE);
    expect_status(rondo_comm_count(comm, NULL), RONDO_INVALID_ARGUMENT, comm, "count into NULL");
    expect_status(rondo_comm_rank(comm, NULL), RONDO_INVALID_ARGUMENT, comm, "rank into NULL");
    expect_status(rondo_comm_device(comm, NULL), RONDO_INVALID_ARGUMENT, comm, "device into NULL");
    expect_status(rondo_comm_async_error(comm, NULL), RONDO_INVALID_ARGUMENT, comm, "async_error into NULL");
    destroy(comm);
}

static void refuse(MPI_Comm mpi_comm, const rondo_config *config, const char *what)
{
    rondo_comm *mark = (rondo_comm *)&loops, *comm = mark;
    rondo_status status = rondo_comm_create(mpi_comm, config, &comm);
    expect_status(status, RONDO_INVALID_ARGUMENT, NULL, what);
    test_check(comm == mark, "%s: an error touched the output argument", what);
    test_check(strlen(rondo_last_error(NULL)) > 10, "%s: no error text", what);
}

static void unusable_mpi_communicators_are_refused(void)
{
    MPI_Comm half, inter;
    refuse(MPI_COMM_NULL, NULL, "creation on MPI_COMM_NULL");
    expect_status(rondo_comm_create(MPI_COMM_WORLD, NULL, NULL), RONDO_INVALID_ARGUMENT, NULL,
                  "creation into NULL");
    if (test.nranks < 2) {
        return;
    }
    MPI_Comm_split(MPI_COMM_WORLD, test.rank % 2, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, test.rank % 2 ? 0 : 1, 7, &inter);
    refuse(inter, NULL, "creation on an intercommunicator");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

static void bad_configs_are_refused(void)
{
    rondo_config config = RONDO_CONFIG_INIT;
    config.size = 0;
    refuse(MPI_COMM_WORLD, &config, "config of size 0");
    config = (rondo_config)RONDO_CONFIG_INIT;
    config.magic ^= 1;
    refuse(MPI_COMM_WORLD, &config, "config with another magic");
    config = (rondo_config){ 0 };
    refuse(MPI_COMM_WORLD, &config, "config of zeros");
}

static void non_blocking_creation_completes_by_polling(void)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *comm = NULL;
    rondo_status status, error = RONDO_IN_PROGRESS;
    double end = test_now() + 30;
    config.blocking = 0;
    config.name = "polled";
    status = rondo_comm_create(MPI_COMM_WORLD, &config, &comm);
    test_check(status == RONDO_IN_PROGRESS || status == RONDO_SUCCESS, "non-blocking creation gave %s: %s",
               rondo_status_string(status), rondo_last_error(NULL));
    while (error == RONDO_IN_PROGRESS && test_now() < end) {
        TEST_MUST(rondo_comm_async_error(comm, &error), comm);
        usleep(200 * (unsigned)test.rank); /* ranks poll at different times */
    }
    expect_status(error, RONDO_SUCCESS, comm, "polling a creation");
    verify(comm, "created by polling");
    destroy(comm);
}

struct watch {
    rondo_comm *comm;
    rondo_status error;
    int looks;
};

static void *look_on(void *arg)
{
    struct watch *watch = arg;
    do {
        if (rondo_comm_async_error(watch->comm, &watch->error) != RONDO_SUCCESS) {
            watch->error = RONDO_INTERNAL_ERROR;
        }
        __atomic_add_fetch(&watch->looks, 1, __ATOMIC_RELAXED);
    } while (watch->error == RONDO_IN_PROGRESS);
    __atomic_store_n(&watch->looks, 1000, __ATOMIC_RELAXED); /* stop looking */
    return NULL;
}

/* At any thread level, a thread that may not call MPI sees that the creation is in progress, and does not
 * complete it. */
static void another_thread_may_look_at_a_creation(void)
{
    rondo_config config = RONDO_CONFIG_INIT;
    struct watch watch = { NULL, RONDO_SUCCESS, 0 };
    rondo_status error = RONDO_IN_PROGRESS;
    double end = test_now() + 30;
    pthread_t thread;
    config.blocking = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (test.rank != 0) {
        usleep(100000); /* give rank 0's thread time to look; the result does not depend on it */
    }
    rondo_comm_create(MPI_COMM_WORLD, &config, &watch.comm);
    if (watch.comm == NULL || pthread_create(&thread, NULL, look_on, &watch) != 0) {
        test_die("cannot create the communicator or the thread: %s", rondo_last_error(NULL));
    }
    while (test.nranks > 1 && __atomic_load_n(&watch.looks, __ATOMIC_RELAXED) < 10 && test_now() < end &&
           test.rank == 0) {
        usleep(100); /* wait until it has looked */
    }
    while (error == RONDO_IN_PROGRESS && test_now() < end) {
        TEST_MUST(rondo_comm_async_error(watch.comm, &error), watch.comm);
    }
    pthread_join(thread, NULL);
    expect_status(error, RONDO_SUCCESS, watch.comm, "polling a creation while another thread looks");
    expect_status(watch.error, RONDO_SUCCESS, watch.comm, "looking at a creation from another thread");
    verify(watch.comm, "looked at by another thread");
    destroy(watch.comm);
}

/* ---- the end ---- */

static void ended_communicators_are_refused(void)
{
    rondo_comm *comm = create(MPI_COMM_WORLD), *child = NULL;
    rondo_status error;
    int value;
    float x = 0;
    destroy(comm);
    expect_status(rondo_all_reduce(&x, &x, 1, RONDO_FLOAT32, RONDO_SUM, comm, NULL), RONDO_INVALID_ARGUMENT,
                  NULL, "all_reduce after destroy");
    expect_status(rondo_send(&x, 1, RONDO_FLOAT32, 0, comm, NULL), RONDO_INVALID_ARGUMENT, NULL,
                  "send after destroy");
    expect_status(rondo_barrier(comm, NULL), RONDO_INVALID_ARGUMENT, NULL, "barrier after destroy");
    expect_status(rondo_comm_count(comm, &value), RONDO_INVALID_ARGUMENT, NULL, "count after destroy");
    expect_status(rondo_comm_rank(comm, &value), RONDO_INVALID_ARGUMENT, NULL, "rank after destroy");
    expect_status(rondo_comm_async_error(comm, &error), RONDO_INVALID_ARGUMENT, NULL,
                  "async_error after destroy");
    expect_status(rondo_comm_split(comm, 0, 0, NULL, &child), RONDO_INVALID_ARGUMENT, NULL,
                  "split after destroy");
    expect_status(rondo_comm_finalize(comm), RONDO_INVALID_ARGUMENT, NULL, "finalize after destroy");
    expect_status(rondo_comm_destroy(comm), RONDO_INVALID_ARGUMENT, NULL, "second destroy");
    expect_status(rondo_comm_abort(comm), RONDO_INVALID_ARGUMENT, NULL, "abort after destroy");
    expect_status(rondo_comm_destroy(NULL), RONDO_INVALID_ARGUMENT, NULL, "destroy of NULL");
    test_check(rondo_last_error(comm) != NULL, "last_error of a destroyed communicator is NULL");
}

static void finalized_communicators_answer_queries_only(void)
{
    rondo_comm *comm = create(MPI_COMM_WORLD);
    int count = 0;
    float x = 0;
    TEST_MUST(rondo_comm_finalize(comm), comm);
    TEST_MUST(rondo_comm_count(comm, &count), comm);
    test_check(count == test.nranks, "count %d after finalize", count);
    test_check(rondo_all_reduce(&x, &x, 1, RONDO_FLOAT32, RONDO_SUM, comm, NULL) != RONDO_SUCCESS,
               "all_reduce after finalize succeeded");
    destroy(comm);
}

static size_t count_of(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        n++;
    }
    return n;
}

/* The form is that of PyTorch's flight recorder: mpi-tests/bindings reads it as JSON. */
static void calls_are_dumped(void)
{
    enum { CALLS = 5, MOST = 64 << 10 };
    static char text[MOST];
    char folder[256], path[300];
    rondo_comm *comm = create(MPI_COMM_WORLD);
    rondo_status status;
    FILE *file;
    size_t n = 0;
    int rank = -1;
    if (test.nranks == 1) {
        expect_status(rondo_comm_dump(comm, "/dev/null"), RONDO_INVALID_USAGE, comm, "a dump of one rank");
        destroy(comm);
        return;
    }
    for (int i = 0; i < CALLS; i++) {
        verify(comm, "before a dump");
    }
    test_folder_make(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/dump.json", folder);
    TEST_MUST(rondo_comm_dump(comm, path), comm);
    file = fopen(path, "r");
    if (file != NULL) {
        n = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
    }
    text[n] = '\0';
    unlink(path);
    rmdir(folder);
    test_check(sscanf(text, "{\"version\": \"2.4\", \"rank\": %d, ", &rank) == 1 && rank == test.rank,
               "a dump begins with %.40s", text);
    test_check(count_of(text, "\"record_id\"") == 2 * CALLS && count_of(text, "\"completed\"") == 2 * CALLS &&
                   count_of(text, "\"nccl:all_reduce\"") == CALLS &&
                   count_of(text, "\"nccl:broadcast\"") == CALLS,
               "a dump of %d calls has %zu", 2 * CALLS, count_of(text, "\"record_id\""));
    status = rondo_comm_dump(comm, "/nowhere/at/all");
    test_check(status == RONDO_SYSTEM_ERROR && strstr(rondo_last_error(NULL), "/nowhere/at/all") != NULL,
               "a dump to nowhere: %s", rondo_status_string(status));
    expect_status(rondo_comm_dump(comm, NULL), RONDO_INVALID_ARGUMENT, comm, "a dump without a file");
    /* A rank that has left takes nothing away that another one's dump needs. */
    if (test.rank == 0) {
        destroy(comm);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (test.rank != 0) {
        TEST_MUST(rondo_comm_dump(comm, "/dev/null"), comm);
        destroy(comm);
    }
    expect_status(rondo_comm_dump(comm, path), RONDO_INVALID_ARGUMENT, NULL,
                  "a dump of an ended communicator");
}

static void *abort_soon(void *comm)
{
    usleep(100000); /* enough for the others to wait in the call; if not, the call is refused, which is also
                       right */
    return rondo_comm_abort(comm) == RONDO_SUCCESS ? NULL : comm;
}

/* Rank 0 never makes the call in which the others wait. A thread of the last rank aborts it for all. */
static void abort_ends_a_waiting_call(void)
{
    rondo_comm *comm = create(MPI_COMM_WORLD);
    int aborter = test.nranks - 1;
    float x = 1, y = 0;
    double start = test_now(), took;
    rondo_status status;
    pthread_t thread;
    void *failed = NULL;
    if (test.rank == aborter && pthread_create(&thread, NULL, abort_soon, comm) != 0) {
        test_die("no thread");
    }
    status = test.rank == 0 && aborter != 0 ? test_wait_error(comm, 10)
             : aborter == 0                 ? RONDO_REMOTE_ERROR
                            : rondo_all_reduce(&x, &y, 1, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
    took = test_now() - start;
    test_check(status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS && took < 5,
               "aborted by rank %d: %s after %.1f s", aborter, rondo_status_string(status), took);
    if (test.rank == aborter) {
        pthread_join(thread, &failed);
        test_check(failed == NULL, "abort in a thread failed");
        expect_status(rondo_comm_abort(comm), RONDO_INVALID_ARGUMENT, NULL, "second abort");
    } else {
        expect_status(rondo_comm_abort(comm), RONDO_SUCCESS, NULL,
                      "abort of a communicator that another rank aborted");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    comm = create(MPI_COMM_WORLD);
    verify(comm, "after an abort");
    destroy(comm);
}

static void *use_in_thread(void *arg)
{
    rondo_comm *comm = arg;
    int32_t in[257], out[257];
    for (int i = 0; i < 257; i++) {
        in[i] = i + 1;
    }
    for (int round = 0; round < 50; round++) {
        if (rondo_all_reduce(in, out, 257, RONDO_INT32, RONDO_SUM, comm, NULL) != RONDO_SUCCESS) {
            return arg;
        }
        for (int i = 0; i < 257; i++) {
            if (out[i] != (i + 1) * test.nranks) {
                return arg;
            }
        }
    }
    return NULL;
}

static void threads_use_communicators_of_their_own(void)
{
    rondo_comm *comms[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        comms[i] = create(MPI_COMM_WORLD);
    }
    for (int i = 0; i < 3; i++) {
        if (pthread_create(&threads[i], NULL, use_in_thread, comms[i]) != 0) {
            test_die("no thread");
        }
    }
    for (int i = 0; i < 3; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        test_check(failed == NULL, "thread %d: wrong result or error: %s", i, rondo_last_error(comms[i]));
    }
    for (int i = 0; i < 3; i++) {
        destroy(comms[i]);
    }
}

/* ---- leaks ---- */

static void create_and_destroy_leaves_nothing(void)
{
    struct holdings before = { 0 }, after;
    for (long i = -10; i < loops; i++) {
        rondo_comm *comm;
        if (i == 0) { /* from here on, MPI and libc hold all they keep */
            MPI_Barrier(MPI_COMM_WORLD);
            before = holdings_now();
        }
        comm = create(MPI_COMM_WORLD);
        if (i % 10 == 0) {
            verify(comm, "in a loop");
        }
        destroy(comm);
        test_watchdog(60);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    after = holdings_now();
    test_check(after.fds == before.fds, "%d files open, %d before %ld communicators", after.fds, before.fds,
               loops);
    test_check(after.threads == before.threads, "%d threads, %d before %ld communicators", after.threads,
               before.threads, loops);
    test_check(after.shared == before.shared, "%d shared mappings, %d before %ld communicators", after.shared,
               before.shared, loops);
    test_check(after.maps <= before.maps + loops / 10, "%d mappings, %d before %ld communicators", after.maps,
               before.maps, loops);
}

static void many_communicators_live_at_once(void)
{
    rondo_comm **comms = calloc((size_t)many, sizeof(*comms));
    struct holdings before, after;
    if (comms == NULL) {
        test_die("no memory");
    }
    destroy(create(MPI_COMM_WORLD));
    before = holdings_now();
    for (long i = 0; i < many; i++) {
        comms[i] = create(MPI_COMM_WORLD);
        test_watchdog(60);
    }
    for (long i = many - 1; i >= 0; i--) {
        verify(comms[i], "one of many");
    }
    for (long i = 0; i < many; i++) {
        destroy(comms[i * 7 % many]); /* not in the order of creation */
        comms[i * 7 % many] = NULL;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    after = holdings_now();
    test_check(after.fds == before.fds && after.threads == before.threads && after.shared == before.shared,
               "after %ld communicators: files %d -> %d, threads %d -> %d, shared mappings %d -> %d", many,
               before.fds, after.fds, before.threads, after.threads, before.shared, after.shared);
    free(comms);
}

/* ---- beside the program's own MPI ---- */

static int copies, deletes;

static int on_copy(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)keyval, (void)extra;
    copies++;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static int on_delete(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value, (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

static void create_without_callbacks(MPI_Comm mpi_comm, int blocking)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *comm = NULL;
    rondo_status error = RONDO_IN_PROGRESS;
    double end = test_now() + 30;
    config.blocking = blocking;
    rondo_comm_create(mpi_comm, &config, &comm);
    MPI_Barrier(mpi_comm); /* whatever the program does meanwhile */
    while (comm != NULL && error == RONDO_IN_PROGRESS && test_now() < end) {
        TEST_MUST(rondo_comm_async_error(comm, &error), comm);
    }
    expect_status(error, RONDO_SUCCESS, comm, "creation on a communicator with attributes");
    verify(comm, "with attributes");
    destroy(comm);
    test_check(copies == 0 && deletes == 0, "%s creation ran %d copy and %d delete callbacks of the program",
               blocking ? "blocking" : "non-blocking", copies, deletes);
    copies = deletes = 0;
}

static void creation_runs_no_attribute_callbacks(void)
{
    MPI_Comm mpi_comm;
    int keyval, value;
    MPI_Comm_dup(MPI_COMM_WORLD, &mpi_comm);
    MPI_Comm_create_keyval(on_copy, on_delete, &keyval, NULL);
    MPI_Comm_set_attr(mpi_comm, keyval, &value);
    create_without_callbacks(mpi_comm, 1);
    create_without_callbacks(mpi_comm, 1);
    create_without_callbacks(mpi_comm, 0);
    create_without_callbacks(mpi_comm, 0);
    MPI_Comm_free(&mpi_comm);
    MPI_Comm_free_keyval(&keyval);
}

/*
 * Rank 1 sends more than MPI can buffer and then makes Rondo's call. Rank 0 has posted the receive and is
 * already in that call: MPI_Send returns only if rank 0 makes progress in MPI while it waits.
 */
static void send_before(rondo_status (*call)(rondo_comm *), rondo_comm *comm)
{
    enum { COUNT = 2 << 20 };
    int *data = calloc(COUNT, sizeof(int));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    if (test.rank == 0) {
        MPI_Irecv(data, COUNT, MPI_INT, 1, 3, MPI_COMM_WORLD, &request);
    } else if (test.rank == 1) {
        data[COUNT - 1] = 77;
        MPI_Send(data, COUNT, MPI_INT, 0, 3, MPI_COMM_WORLD);
    }
    TEST_MUST(call(comm), comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    test_check(test.rank != 0 || data[COUNT - 1] == 77, "the message's last word is %d", data[COUNT - 1]);
    free(data);
}

static rondo_status reduce_small(rondo_comm *comm)
{
    float in = 1, out = 0;
    return rondo_all_reduce(&in, &out, 1, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
}

static rondo_status reduce_large(rondo_comm *comm)
{
    enum { COUNT = 1 << 20 };
    float *in = calloc(COUNT, sizeof(float)), *out = calloc(COUNT, sizeof(float));
    rondo_status status = rondo_all_reduce(in, out, COUNT, RONDO_FLOAT32, RONDO_SUM, comm, NULL);
    free(in);
    free(out);
    return status;
}

static rondo_status reduce_in_stream(rondo_comm *comm)
{
    float in = 1, out = 0;
    rondo_stream stream;
    TEST_MUST(rondo_stream_create(&stream), NULL);
    TEST_MUST(rondo_all_reduce(&in, &out, 1, RONDO_FLOAT32, RONDO_SUM, comm, stream), comm);
    TEST_MUST(rondo_stream_synchronize(stream), comm);
    return rondo_stream_destroy(stream);
}

static rondo_status split_and_reduce(rondo_comm *comm)
{
    rondo_comm *child;
    TEST_MUST(rondo_comm_split(comm, 0, 0, NULL, &child), comm);
    send_before(reduce_small, child);
    return rondo_comm_destroy(child);
}

static void messages_move_while_a_call_waits(void)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *comm;
    int level;
    MPI_Query_thread(&level);
    config.mpi_progress = level == MPI_THREAD_SERIALIZED ? 1 : RONDO_CONFIG_DEFAULT;
    TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, &config, &comm), NULL);
    for (int i = 0; i < 3 && test.nranks > 1; i++) {
        send_before(reduce_small, comm);
        send_before(reduce_large, comm);
        send_before(reduce_in_stream, comm);
        send_before(split_and_reduce, comm);
    }
    destroy(comm);
}

/* ---- the limit of creation ---- */

static rondo_status create_late(MPI_Comm mpi_comm, int64_t limit_ms, unsigned late_us)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *comm = NULL;
    config.init_timeout_ms = limit_ms;
    if (test.rank == test.nranks - 1) {
        usleep(late_us);
    }
    rondo_status status = rondo_comm_create(mpi_comm, &config, &comm);
    if (status == RONDO_SUCCESS) {
        verify(comm, "created late");
        destroy(comm);
    }
    return status;
}

/* @return 1: the other ranks were punctual, so that it was looked at which rank is named */
static int late_rank_is_named(MPI_Comm mpi_comm)
{
    enum { LIMIT_MS = 300 };
    int last = test.nranks - 1, counts;
    double start = test_now();
    rondo_status status = create_late(mpi_comm, LIMIT_MS, 5 * 1000 * LIMIT_MS);
    char name[32];
    test_check(status == RONDO_TIMEOUT, "a limit of 0.3 s gave %s", rondo_status_string(status));
    counts = test_are_punctual(start, last, 1e-3 * LIMIT_MS, 6e-3 * LIMIT_MS);
    snprintf(name, sizeof(name), "answer: rank %d", last);
    test_check(test.rank == last || !counts || strstr(rondo_last_error(NULL), name) != NULL, "%s",
               rondo_last_error(NULL));
    return counts;
}

static void the_config_sets_the_limit_of_creation(void)
{
    enum { MOST = 10 };
    MPI_Comm mpi_comm;
    const char *limit = getenv("RONDO_INIT_TIMEOUT");
    MPI_Comm_dup(MPI_COMM_WORLD, &mpi_comm);
    if (test.nranks > 1) {
        int times = 0;
        while (!late_rank_is_named(mpi_comm) && ++times < MOST) {
            test_watchdog(60);
        }
        test_check(times < MOST, "the name of the late rank was never looked at");
    }
    /* RONDO_INIT_TIMEOUT=1s is then the shorter one. The same communicator can be used again. */
    expect_status(create_late(mpi_comm, 0, limit != NULL ? 2500000 : 1000), RONDO_SUCCESS, NULL,
                  "creation without a limit");
    MPI_Comm_free(&mpi_comm);
}

/* ---- the program ---- */

#define CASE(fn) \
    {            \
#fn, fn  \
    }
static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    CASE(world_self_and_halves_work_together),
    CASE(queries_answer),
    CASE(unusable_mpi_communicators_are_refused),
    CASE(bad_configs_are_refused),
    CASE(non_blocking_creation_completes_by_polling),
    CASE(another_thread_may_look_at_a_creation),
    CASE(split_agrees_with_mpi),
    CASE(children_outlive_their_parents),
    CASE(shrink_leaves_a_rank_out),
    CASE(children_have_the_model_of_their_parent),
    CASE(creations_are_polled_in_any_order),
    CASE(ended_communicators_are_refused),
    CASE(finalized_communicators_answer_queries_only),
    CASE(calls_are_dumped),
    CASE(abort_ends_a_waiting_call),
    CASE(threads_use_communicators_of_their_own),
    CASE(create_and_destroy_leaves_nothing),
    CASE(many_communicators_live_at_once),
    CASE(creation_runs_no_attribute_callbacks),
    CASE(messages_move_while_a_call_waits),
    CASE(the_config_sets_the_limit_of_creation),
};

static void run_cases(const char *only, const char *skip)
{
    int n = 0;
    for (size_t i = 0; i < TEST_ARRAY_LEN(cases); i++) {
        if ((only == NULL || strstr(cases[i].name, only) != NULL) &&
            (skip == NULL || strstr(cases[i].name, skip) == NULL)) {
            test.what = cases[i].name;
            test_watchdog(60);
            cases[i].run();
            n++;
        }
    }
    if (n == 0) {
        test_die("no case is chosen");
    }
}

/* MPI ends before the communicator; both must survive it. */
static int finalize_first(void)
{
    rondo_comm *comm;
    test_init("mpi_comm", MPI_THREAD_SINGLE);
    test.what = "MPI_Finalize before destroy";
    comm = create(MPI_COMM_WORLD);
    verify(comm, "before MPI_Finalize");
    MPI_Finalize();
    verify(comm, "after MPI_Finalize");
    expect_status(rondo_comm_destroy(comm), RONDO_SUCCESS, NULL, "destroy after MPI_Finalize");
    test_values_clear();
    return test_finish_plain();
}

static int no_init_failed;

/* Registered before the library's atexit handler, so it runs after it. */
static void finalised_at_exit(void)
{
    int ended = 0;
    MPI_Finalized(&ended);
    if (!ended || no_init_failed) {
        test_say("FAIL the library initialized MPI but did not finalize it at exit");
        _exit(1);
    }
}

static int no_init(void)
{
    rondo_comm *comm;
    int running = 1;
    test_init_plain("mpi_comm");
    test.what = "creation before MPI_Init";
    atexit(finalised_at_exit);
    MPI_Initialized(&running);
    test_check(!running, "MPI is already initialized");
    comm = create(MPI_COMM_WORLD);
    TEST_MUST(rondo_comm_rank(comm, &test.rank), comm);
    TEST_MUST(rondo_comm_count(comm, &test.nranks), comm);
    MPI_Initialized(&running);
    test_check(running, "the library did not initialize MPI");
    verify(comm, "without MPI_Init");
    destroy(comm);
    test_values_clear();
    no_init_failed = test_finish_plain();
    return no_init_failed;
}

static int thread_level(const char *name)
{
    static const struct {
        const char *name;
        int level;
    } levels[] = { { "single", MPI_THREAD_SINGLE },
                   { "funneled", MPI_THREAD_FUNNELED },
                   { "serialized", MPI_THREAD_SERIALIZED },
                   { "multiple", MPI_THREAD_MULTIPLE } };
    for (size_t i = 0; i < TEST_ARRAY_LEN(levels); i++) {
        if (strcmp(levels[i].name, name) == 0) {
            return levels[i].level;
        }
    }
    return -1;
}

static int usage(int code)
{
    fprintf(code ? stderr : stdout,
            "usage: mpirun -n RANKS mpi_comm [OPTION]...\n"
            "\n"
            "Test the life of a communicator, from creation to the end of the process.\n"
            "\n"
            "  --thread LEVEL    single (default), funneled, serialized or multiple: the level to request "
            "from MPI\n"
            "  --no-init         only the case in which the library initializes MPI\n"
            "  --finalize-first  only the case in which MPI ends before the communicator\n"
            "  --loop N          create and destroy N communicators (default: 100)\n"
            "  --many N          keep N communicators alive at once; not a multiple of 7 (default: 64)\n"
            "  --only TEXT       only the cases with TEXT in their names\n"
            "  --skip TEXT       not the cases with TEXT in their names\n"
            "Cases:\n");
    for (size_t i = 0; i < TEST_ARRAY_LEN(cases); i++) {
        fprintf(code ? stderr : stdout, "  %s\n", cases[i].name);
    }
    return code;
}

int main(int argc, char **argv)
{
    static const struct option rows[] = {
        { "thread", 1, NULL, 't' }, { "no-init", 0, NULL, 'n' }, { "finalize-first", 0, NULL, 'f' },
        { "loop", 1, NULL, 'l' },   { "many", 1, NULL, 'm' },    { "only", 1, NULL, 'o' },
        { "skip", 1, NULL, 's' },   { "help", 0, NULL, 'h' },    { NULL, 0, NULL, 0 }
    };
    const char *only = NULL, *skip = NULL;
    int opt, level = MPI_THREAD_SINGLE, ok = 1;
    while ((opt = getopt_long(argc, argv, "h", rows, NULL)) != -1) {
        switch (opt) {
        case 't': ok = ok && (level = thread_level(optarg)) >= 0; break;
        case 'n': return no_init();
        case 'f': return finalize_first();
        case 'l': ok = ok && test_parse_long(optarg, 1, 1000000, &loops); break;
        case 'm': ok = ok && test_parse_long(optarg, 1, 100000, &many) && many % 7 != 0; break;
        case 'o': only = optarg; break;
        case 's': skip = optarg; break;
        case 'h': return usage(0);
        default: ok = 0;
        }
    }
    if (!ok || optind < argc) {
        return usage(2);
    }
    setenv("RONDO_DEBUG", "NONE", 0); /* errors are expected */
    test_init("mpi_comm", level);
    run_cases(only, skip);
    test_values_clear();
    return test_finish();
}
