/*
 * mpi_nccl: what NCCL programs do under a launcher, over the NCCL face. MPI carries the unique ids, and
 * nothing else: communicators of all ranks, of subsets at once, with an id whose maker is no member, of
 * several threads a process, and after MPI_Finalize.
 *
 *   mpirun -n N mpi_nccl [--gpu]    --gpu: in GPU memory, those cases that have one rank a process
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_common.h"
#include "mpi_device.h"
#include "shim/nccl/nccl.h"

enum { COUNT = 5000, THREADS = 3 };

static int on_gpu;
static rondo_stream stream; /* on a GPU */

/* Where calls find their data: a copy in GPU memory, or the data itself. */
static double *there(double *data)
{
    double *copy = data;
    if (on_gpu) {
        copy = test_device_alloc(COUNT * sizeof(*data));
        test_device_copy(copy, data, COUNT * sizeof(*data));
    }
    return copy;
}

/* Wait for the calls, and fetch a result. */
static void back(double *data, const double *copy)
{
    if (on_gpu) {
        test_device_wait(stream);
        test_device_copy(data, copy, COUNT * sizeof(*data));
    }
}

static void let_go(double *copy)
{
    if (on_gpu) {
        test_device_free(copy);
    }
}

static int ok(ncclResult_t result, const char *what)
{
    return test_check(result == ncclSuccess, "%s: %s: %s", what, ncclGetErrorString(result),
                      ncclGetLastError(NULL));
}
#define OK(call) ok((call), #call)

/* The id of `maker`, a rank of comm, for all of its ranks. */
static ncclUniqueId id_from(int maker, MPI_Comm comm)
{
    ncclUniqueId id;
    int rank;
    memset(&id, 0, sizeof(id));
    MPI_Comm_rank(comm, &rank);
    if (rank == maker) {
        OK(ncclGetUniqueId(&id));
    }
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, maker, comm);
    return id;
}

/* An allreduce and a ring of messages among n ranks, with whole numbers, so that any order gives the same. */
static void use(ncclComm_t comm, int rank, int n)
{
    double *in = calloc(COUNT, sizeof(*in)), *out = calloc(COUNT, sizeof(*out));
    double *from, *to;
    cudaStream_t at = (cudaStream_t)stream;
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        in[i] = rank + i;
    }
    from = there(in);
    to = there(out);
    OK(ncclAllReduce(from, to, COUNT, ncclDouble, ncclSum, comm, at));
    back(out, to);
    for (int i = 0; i < COUNT; i++) {
        wrong += out[i] != (double)n * i + n * (n - 1) / 2;
    }
    OK(ncclGroupStart());
    OK(ncclSend(from, COUNT, ncclDouble, (rank + 1) % n, comm, at));
    OK(ncclRecv(to, COUNT, ncclDouble, (rank + n - 1) % n, comm, at));
    OK(ncclGroupEnd());
    back(out, to);
    let_go(from);
    let_go(to);
    for (int i = 0; i < COUNT; i++) {
        wrong += out[i] != (rank + n - 1) % n + i;
    }
    test_check(wrong == 0, "%d wrong values on rank %d of %d", wrong, rank, n);
    free(in);
    free(out);
}

static void create_use_destroy(ncclUniqueId id, int rank, int n)
{
    ncclComm_t comm;
    if (OK(ncclCommInitRank(&comm, n, id, rank))) {
        int device = -2;
        OK(ncclCommCuDevice(comm, &device));
        test_check((device >= 0) == on_gpu, "the communicator is of device %d", device);
        use(comm, rank, n);
        OK(ncclCommDestroy(comm));
    }
}

/* Even and odd ranks at the same time. The maker of an id is the last rank of the other half. */
static void halves(void)
{
    int color = test.rank % 2, n = (test.nranks + 1 - color) / 2;
    int maker[2] = { test.nranks > 1 ? 1 : 0, 0 };
    ncclUniqueId id[2] = { id_from(maker[0], MPI_COMM_WORLD), id_from(maker[1], MPI_COMM_WORLD) };
    test.what = "halves";
    create_use_destroy(id[color], test.rank / 2, n);
}

/* All but the last rank, which makes the id and goes on to other work. */
static void all_but_maker(void)
{
    ncclUniqueId id = id_from(test.nranks - 1, MPI_COMM_WORLD);
    test.what = "all but the maker";
    if (test.rank < test.nranks - 1) {
        create_use_destroy(id, test.rank, test.nranks - 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A creation that nobody moves is noticed. */
static void await_soon(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    for (double end = MPI_Wtime() + 20; state == ncclInProgress && MPI_Wtime() < end;) {
        OK(ncclCommGetAsyncError(comm, &state));
    }
    if (!OK(state)) {
        test_die("a creation that does not block does not end");
    }
}

/* Ranks ask for creations that do not block in different orders, and wait for one that blocks meanwhile. */
static void orders(void)
{
    ncclUniqueId id[3] = { id_from(0, MPI_COMM_WORLD), id_from(0, MPI_COMM_WORLD),
                           id_from(test.nranks - 1, MPI_COMM_WORLD) };
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm[5];
    test.what = "polls in different orders";
    config.blocking = 0;
    for (int i = 0; i < 2; i++) {
        ncclResult_t result = ncclCommInitRankConfig(&comm[i], test.nranks, id[i], test.rank, &config);
        test_check(result == ncclSuccess || result == ncclInProgress, "creation %d: %s", i,
                   ncclGetLastError(NULL));
    }
    if (test.rank % 2 == 1) {
        await_soon(comm[1]);
    }
    OK(ncclCommInitRank(&comm[2], test.nranks, id[2], test.rank));
    await_soon(comm[0]);
    await_soon(comm[1]);
    for (int i = 0; i < 3; i++) {
        use(comm[i], test.rank, test.nranks);
    }
    for (int i = 3; i < 5; i++) {
        ncclResult_t result = ncclCommSplit(comm[2], 0, 0, &comm[i], &config);
        test_check(result == ncclSuccess || result == ncclInProgress, "split %d: %s", i,
                   ncclGetLastError(NULL));
    }
    await_soon(comm[test.rank % 2 == 1 ? 3 : 4]);
    await_soon(comm[test.rank % 2 == 1 ? 4 : 3]);
    for (int i = 0; i < 5; i++) {
        OK(ncclCommDestroy(comm[i]));
    }
}

struct member {
    pthread_t thread;
    ncclUniqueId id;
    int rank, n, wrong;
};

/* The threads of a process count no cases: test_check is for one thread. */
static void *member_main(void *arg)
{
    struct member *m = arg;
    ncclComm_t comm;
    int64_t mine = m->rank + 1, sum = 0;
    m->wrong = ncclCommInitRank(&comm, m->n, m->id, m->rank) != ncclSuccess;
    if (!m->wrong) {
        m->wrong = ncclAllReduce(&mine, &sum, 1, ncclInt64, ncclSum, comm, NULL) != ncclSuccess ||
                   sum != (int64_t)m->n * (m->n + 1) / 2;
        m->wrong |= ncclCommDestroy(comm) != ncclSuccess;
    }
    return NULL;
}

/* Several threads a process, which know nothing of MPI: its thread level does not matter. */
static void threads(void)
{
    struct member m[THREADS];
    ncclUniqueId id = id_from(0, MPI_COMM_WORLD);
    test.what = "threads";
    for (int t = 0; t < THREADS; t++) {
        m[t] = (struct member){ .id = id, .rank = test.rank * THREADS + t, .n = test.nranks * THREADS };
        if (pthread_create(&m[t].thread, NULL, member_main, &m[t]) != 0) {
            test_die("no thread");
        }
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(m[t].thread, NULL);
        test_check(!m[t].wrong, "thread %d", t);
    }
}

/* One thread with several ranks, in groups. */
static void one_thread(void)
{
    ncclComm_t comm[2];
    ncclUniqueId id = id_from(0, MPI_COMM_WORLD);
    int n = 2 * test.nranks, in[2], out[2] = { 0, 0 };
    test.what = "one thread, two ranks";
    OK(ncclGroupStart());
    for (int t = 0; t < 2; t++) {
        OK(ncclCommInitRank(&comm[t], n, id, 2 * test.rank + t));
    }
    OK(ncclGroupEnd());
    OK(ncclGroupStart());
    for (int t = 0; t < 2; t++) {
        in[t] = 2 * test.rank + t;
        OK(ncclAllReduce(&in[t], &out[t], 1, ncclInt, ncclSum, comm[t], NULL));
    }
    OK(ncclGroupEnd());
    for (int t = 0; t < 2; t++) {
        test_check(out[t] == n * (n - 1) / 2, "sum %d of rank %d", out[t], t);
        OK(ncclCommDestroy(comm[t]));
    }
}

static void begin(int argc, char **argv)
{
    const char *why = "";
    on_gpu = argc > 1 && strcmp(argv[1], "--gpu") == 0;
    test_init("mpi_nccl", MPI_THREAD_SINGLE);
    test_watchdog(60);
    if (on_gpu && test_device_begin(test.rank, &why) < 0) {
        test_die("%s", why);
    }
    stream = on_gpu ? test_device_stream_new() : NULL;
}

int main(int argc, char **argv)
{
    ncclUniqueId id;
    ncclComm_t comm;
    int status;
    begin(argc, argv);
    test.what = "all ranks";
    create_use_destroy(id_from(0, MPI_COMM_WORLD), test.rank, test.nranks);
    halves();
    if (test.nranks > 1) {
        all_but_maker();
    }
    if (!on_gpu) {
        orders();
        threads();
        one_thread();
    }
    test.what = "after MPI_Finalize";
    id = id_from(0, MPI_COMM_WORLD);
    if (!OK(ncclCommInitRank(&comm, test.nranks, id_from(0, MPI_COMM_WORLD), test.rank))) {
        return test_finish();
    }
    status = test_finish();
    /* The maker of an id lives until all ranks have registered: all end together below. */
    use(comm, test.rank, test.nranks);
    create_use_destroy(id, test.rank, test.nranks);
    OK(ncclCommDestroy(comm));
    if (on_gpu) {
        test_device_stream_free(stream);
        test_device_end();
    }
    return status != 0 || test.failed != 0;
}
