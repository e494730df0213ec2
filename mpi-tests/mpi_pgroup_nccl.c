/* mpi_pgroup: the calls of PyTorch's ProcessGroupNCCL, in its order, over the NCCL face. MPI plays its store,
 * point to point, as only the ranks of a communicator take part in its set-up. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mpi_pgroup.h"
#include "shim/nccl/nccl.h"

static int ok(ncclResult_t result, const char *what)
{
    return test_check(result == ncclSuccess, "%s: %s: %s", what, ncclGetErrorString(result),
                      ncclGetLastError(NULL));
}
#define OK(call) ok((call), #call)
#define STREAM ((cudaStream_t)pg_stream)

enum { STORE_TAG = 77 };

/* What ProcessGroupNCCL keeps: a communicator a key, and how many groups the program has open. */
struct process_group {
    ncclComm_t all, pair[TEST_MAX_RANKS];
    int open; /* ncclActiveGroupCounter_ */
};

/* broadcastUniqueNCCLID: the first of the ranks makes the id, the others take it from the store. */
static ncclUniqueId store_id(const int *ranks, int n, int self)
{
    ncclUniqueId id;
    memset(&id, 0, sizeof(id));
    if (self > 0) {
        MPI_Recv(&id, sizeof(id), MPI_BYTE, ranks[0], STORE_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return id;
    }
    OK(ncclGetUniqueId(&id));
    for (int i = 1; i < n; i++) {
        MPI_Send(&id, sizeof(id), MPI_BYTE, ranks[i], STORE_TAG, MPI_COMM_WORLD);
    }
    return id;
}

/* initNCCLComm: the open groups are closed first, so that the communicator exists when it returns. */
static ncclComm_t init_comm(struct process_group *pg, const int *ranks, int n, int self)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id = store_id(ranks, n, self);
    ncclComm_t comm = NULL;
    for (int i = 0; i < pg->open; i++) {
        OK(ncclGroupEnd());
    }
    OK(ncclCommInitRankConfig(&comm, n, id, self, &config));
    for (int i = 0; i < pg->open; i++) {
        OK(ncclGroupStart());
    }
    return comm;
}

static ncclComm_t all_of(struct process_group *pg)
{
    int ranks[TEST_MAX_RANKS];
    for (int r = 0; r < test.nranks; r++) {
        ranks[r] = r;
    }
    if (pg->all == NULL) {
        pg->all = init_comm(pg, ranks, test.nranks, test.rank);
    }
    return pg->all;
}

/* A single message: two ranks, the lower one is 0; to itself one rank. *peer: the peer's rank there. */
static ncclComm_t pair_with(struct process_group *pg, int other, int *peer)
{
    int ranks[2] = { other < test.rank ? other : test.rank, other < test.rank ? test.rank : other };
    int self = ranks[0] != test.rank, alone = other == test.rank;
    if (pg->pair[other] == NULL) {
        pg->pair[other] = init_comm(pg, ranks, alone ? 1 : 2, alone ? 0 : self);
    }
    *peer = alone ? 0 : !self;
    return pg->pair[other];
}

static void lazy(struct process_group *pg)
{
    double *data = pg_data(test.rank);
    int n = test.nranks;
    test.what = "nccl: lazy";
    OK(ncclAllReduce(data, data, PG_COUNT, ncclDouble, ncclSum, all_of(pg), STREAM));
    test_check(pg_is(data, n * (n - 1) / 2.0, n), "the first sum is wrong");
    pg_free(data);
}

/* The first collective of a coalescing block makes the communicator inside it. */
static void coalesced(struct process_group *pg)
{
    double *data[3];
    test.what = "nccl: coalesced";
    for (int depth = 1; depth < 3; depth++) {
        struct process_group fresh = { NULL, { NULL }, 0 };
        for (; fresh.open < depth; fresh.open++) {
            OK(ncclGroupStart());
        }
        for (int i = 0; i < 3; i++) {
            data[i] = pg_data(i);
            OK(ncclAllReduce(data[i], data[i], PG_COUNT, ncclDouble, ncclSum, all_of(&fresh), STREAM));
        }
        for (; fresh.open > 0; fresh.open--) {
            OK(ncclGroupEnd());
        }
        for (int i = 0; i < 3; i++) {
            test_check(pg_is(data[i], i * test.nranks, test.nranks), "sum %d of the block is wrong", i);
            pg_free(data[i]);
        }
        OK(ncclCommFinalize(fresh.all));
        OK(ncclCommDestroy(fresh.all));
    }
    (void)pg;
}

/* batch_isend_irecv: through the communicator of all ranks. */
static void batch(struct process_group *pg)
{
    int n = test.nranks, next = (test.rank + 1) % n, last = (test.rank + n - 1) % n;
    double *out = pg_data(test.rank), *in = pg_data(-1);
    test.what = "nccl: batch";
    OK(ncclGroupStart());
    OK(ncclSend(out, PG_COUNT, ncclDouble, next, all_of(pg), STREAM));
    OK(ncclRecv(in, PG_COUNT, ncclDouble, last, all_of(pg), STREAM));
    OK(ncclGroupEnd());
    test_check(pg_is(in, last, 1), "the batch's message is wrong");
    pg_free(out);
    pg_free(in);
}

/* send and recv of two ranks, while the others do nothing; then to itself. */
static void pairs(struct process_group *pg)
{
    double *data = pg_data(test.rank), *in = pg_data(-1);
    int peer;
    ncclComm_t comm;
    test.what = "nccl: pairs";
    if (test.rank < 2 && test.nranks > 1) {
        comm = pair_with(pg, !test.rank, &peer);
        if (test.rank == 0) {
            OK(ncclSend(data, PG_COUNT, ncclDouble, peer, comm, STREAM));
            OK(ncclRecv(in, PG_COUNT, ncclDouble, peer, comm, STREAM));
        } else {
            OK(ncclRecv(in, PG_COUNT, ncclDouble, peer, comm, STREAM));
            OK(ncclSend(data, PG_COUNT, ncclDouble, peer, comm, STREAM));
        }
        test_check(pg_is(in, !test.rank, 1), "the pair's message is wrong");
    }
    test.what = "nccl: to itself";
    comm = pair_with(pg, test.rank, &peer);
    OK(ncclGroupStart());
    OK(ncclSend(data, PG_COUNT, ncclDouble, peer, comm, STREAM));
    OK(ncclRecv(in, PG_COUNT, ncclDouble, peer, comm, STREAM));
    OK(ncclGroupEnd());
    test_check(pg_is(in, test.rank, 1), "the message to itself is wrong");
    pg_free(data);
    pg_free(in);
}

/* A group that is split from its parent: ranks outside call with no colour. */
static void split(struct process_group *pg)
{
    int in = test.rank < (test.nranks + 1) / 2, n = (test.nranks + 1) / 2;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t half = NULL;
    test.what = "nccl: split";
    OK(ncclCommSplit(all_of(pg), in ? 0 : NCCL_SPLIT_NOCOLOR, test.rank, &half, &config));
    test_check((half != NULL) == in, "a rank without a colour has a communicator");
    if (in) {
        double *data = pg_data(test.rank);
        OK(ncclAllReduce(data, data, PG_COUNT, ncclDouble, ncclSum, half, STREAM));
        test_check(pg_is(data, n * (n - 1) / 2.0, n), "the half's sum is wrong");
        pg_free(data);
        OK(ncclCommDestroy(half));
    }
}

/* ---- the watchdog ---- */

struct watched {
    ncclComm_t comm;
    int aborts; /* 1: abort after a while, as after a time limit; 0: only look */
    ncclResult_t seen;
};

/* The watchdog polls for errors; after the limit it aborts, while the main thread may be inside a call. */
static void *watch(void *arg)
{
    struct watched *w = arg;
    ncclResult_t error = ncclSuccess;
    double begun = test_now();
    while (test_now() - begun < 30 && error == ncclSuccess && (!w->aborts || test_now() - begun < 0.2)) {
        (void)ncclCommGetAsyncError(w->comm, &error);
        usleep(2000);
    }
    w->seen = error;
    if (w->aborts) {
        (void)ncclGroupStart(); /* since 2.22 PyTorch groups its aborts */
        (void)ncclCommAbort(w->comm);
        (void)ncclGroupEnd();
    }
    return NULL;
}

/* The last rank does not make the call. */
static void time_limit(void)
{
    struct process_group pg = { NULL, { NULL }, 0 };
    struct watched watched = { .aborts = 1 };
    double *data = pg_data(0);
    pthread_t thread;
    test.what = "nccl: time limit";
    watched.comm = all_of(&pg);
    OK(ncclAllReduce(data, data, PG_COUNT, ncclDouble, ncclSum, pg.all, STREAM));
    test_check(pg_is(data, 0, test.nranks), "the sum before the time limit is wrong");
    if (test.rank != test.nranks - 1) {
        ncclResult_t result;
        pthread_create(&thread, NULL, watch, &watched);
        result = ncclAllReduce(data, data, PG_COUNT, ncclDouble, ncclSum, pg.all, STREAM);
        test_check(pg_on_gpu || result != ncclSuccess, "a call that was aborted gave success");
        pthread_join(thread, NULL); /* it has freed the communicator */
    } else {
        watched.aborts = 0;
        watch(&watched);
        test_check(watched.seen == ncclRemoteError, "the abort of the others is seen as %s",
                   ncclGetErrorString(watched.seen));
        OK(ncclCommAbort(pg.all));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    pg_free(data);
}

void pg_nccl_cases(void)
{
    struct process_group pg = { NULL, { NULL }, 0 };
    lazy(&pg);
    coalesced(&pg);
    batch(&pg);
    pairs(&pg);
    split(&pg);
    if (test.nranks > 1) {
        time_limit();
    }
    test.what = "nccl: destroy";
    for (int r = 0; r < test.nranks; r++) {
        if (pg.pair[r] != NULL) {
            OK(ncclCommDestroy(pg.pair[r]));
        }
    }
    OK(ncclCommFinalize(pg.all));
    OK(ncclCommDestroy(pg.all));
}
