/* The NCCL face: the life of communicators, and calls that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <time.h>

#include "nccl_world.h"

/* ---- illegal calls ---- */

static void communicators_that_do_not_exist_are_refused(void **state)
{
    ncclComm_t gone = alone();
    float a = 1, b = 0;
    int n;
    ncclResult_t result;
    ncclRedOp_t op;
    (void)state;
    OK(ncclCommDestroy(gone));
    for (int i = 0; i < 2; i++) {
        ncclComm_t bad = i == 0 ? NULL : gone;
        assert_int_equal(ncclAllReduce(&a, &b, 1, ncclFloat, ncclSum, bad, NULL), ncclInvalidArgument);
        assert_int_equal(ncclReduce(&a, &b, 1, ncclFloat, ncclSum, 0, bad, NULL), ncclInvalidArgument);
        assert_int_equal(ncclReduceScatter(&a, &b, 1, ncclFloat, ncclSum, bad, NULL), ncclInvalidArgument);
        assert_int_equal(ncclBroadcast(&a, &b, 1, ncclFloat, 0, bad, NULL), ncclInvalidArgument);
        assert_int_equal(ncclBcast(&a, 1, ncclFloat, 0, bad, NULL), ncclInvalidArgument);
        assert_int_equal(ncclAllGather(&a, &b, 1, ncclFloat, bad, NULL), ncclInvalidArgument);
        assert_int_equal(ncclAlltoAll(&a, &b, 1, ncclFloat, bad, NULL), ncclInvalidArgument);
        assert_int_equal(ncclGather(&a, &b, 1, ncclFloat, 0, bad, NULL), ncclInvalidArgument);
        assert_int_equal(ncclScatter(&a, &b, 1, ncclFloat, 0, bad, NULL), ncclInvalidArgument);
        assert_int_equal(ncclSend(&a, 1, ncclFloat, 0, bad, NULL), ncclInvalidArgument);
        assert_int_equal(ncclRecv(&b, 1, ncclFloat, 0, bad, NULL), ncclInvalidArgument);
        assert_int_equal(ncclCommRevoke(bad, 0), ncclInvalidArgument);
        assert_int_equal(ncclCommGetAsyncError(bad, &result), ncclInvalidArgument);
        assert_int_equal(ncclCommCount(bad, &n), ncclInvalidArgument);
        assert_int_equal(ncclCommCuDevice(bad, &n), ncclInvalidArgument);
        assert_int_equal(ncclCommUserRank(bad, &n), ncclInvalidArgument);
        assert_int_equal(ncclRedOpCreatePreMulSum(&op, &a, ncclFloat, ncclScalarHostImmediate, bad),
                         ncclInvalidArgument);
        ncclComm_t child = NULL;
        assert_int_equal(ncclCommSplit(bad, 0, 0, &child, NULL), ncclInvalidArgument);
        assert_int_equal(ncclCommShrink(bad, &n, 0, &child, NULL, 0), ncclInvalidArgument);
    }
    assert_int_equal(ncclCommFinalize(gone), ncclInvalidArgument);
    OK(ncclGroupStart());
    OK(ncclCommFinalize(NULL));
    OK(ncclGroupEnd());
    OK(ncclCommDestroy(NULL));
    OK(ncclCommAbort(NULL));
    assert_int_equal(ncclCommDestroy(gone), ncclInvalidArgument);
    assert_int_equal(ncclCommAbort(gone), ncclInvalidArgument);
}

static void wrong_arguments_are_refused(void **state)
{
    ncclComm_t comm = alone();
    float a = 1, b = 0;
    ncclRedOp_t op;
    (void)state;
    for (int type = -1; type < 40; type += type < 0 ? 13 : 1) {
        REFUSED(ncclAllReduce(&a, &b, 1, (ncclDataType_t)type, ncclSum, comm, NULL), ncclInvalidArgument,
                "no data type");
        REFUSED(ncclBcast(&a, 1, (ncclDataType_t)type, 0, comm, NULL), ncclInvalidArgument, "no data type");
    }
    for (int bad = -1; bad < 13; bad += bad < 0 ? 6 : 1) { /* Rondo's logical operators are not NCCL's */
        REFUSED(ncclAllReduce(&a, &b, 1, ncclInt, (ncclRedOp_t)bad, comm, NULL), ncclInvalidArgument,
                "no operator");
        assert_int_equal(ncclRedOpDestroy((ncclRedOp_t)bad, comm), ncclInvalidArgument);
    }
    assert_int_equal(ncclRedOpDestroy(ncclSum, comm), ncclInvalidArgument);
    assert_int_equal(ncclRedOpDestroy((ncclRedOp_t)5000, comm), ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(&a, &b, 1, ncclFloat, (ncclRedOp_t)5000, comm, NULL), ncclInvalidArgument);
    REFUSED(ncclRedOpCreatePreMulSum(NULL, &a, ncclFloat, ncclScalarDevice, comm), ncclInvalidArgument,
            "PreMul");
    REFUSED(ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat, ncclScalarDevice, comm), ncclInvalidArgument,
            "PreMul");
    REFUSED(ncclRedOpCreatePreMulSum(&op, &a, ncclFloat, (ncclScalarResidence_t)2, comm), ncclInvalidArgument,
            "residence 2");
    assert_int_equal(ncclBroadcast(&a, &b, 1, ncclFloat, 1, comm, NULL), ncclInvalidArgument);
    assert_int_equal(ncclReduce(&a, &b, 1, ncclFloat, ncclSum, -1, comm, NULL), ncclInvalidArgument);
    assert_int_equal(ncclSend(&a, 1, ncclFloat, 1, comm, NULL), ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(NULL, &b, 1, ncclFloat, ncclSum, comm, NULL), ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(&a, NULL, 1, ncclFloat, ncclSum, comm, NULL), ncclInvalidArgument);
    assert_int_equal(ncclCommCount(comm, NULL), ncclInvalidArgument);
    assert_int_equal(ncclCommUserRank(comm, NULL), ncclInvalidArgument);
    assert_int_equal(ncclCommCuDevice(comm, NULL), ncclInvalidArgument);
    assert_int_equal(ncclCommGetAsyncError(comm, NULL), ncclInvalidArgument);
    REFUSED(ncclCommSplit(comm, 0, 0, NULL, NULL), ncclInvalidArgument, "ncclCommSplit");
    REFUSED(ncclCommShrink(comm, NULL, 0, NULL, NULL, 0), ncclInvalidArgument, "ncclCommShrink");
    REFUSED(ncclCommRevoke(comm, 1), ncclInvalidArgument, "ncclCommRevoke");
    OK(ncclCommDestroy(comm));
}

static void a_refused_call_ends_its_group_and_nothing_else(void **state)
{
    ncclComm_t comm = alone(), gone = alone();
    float a = 1, b = 0;
    ncclResult_t result;
    (void)state;
    OK(ncclCommDestroy(gone));
    struct {
        size_t size;
        unsigned magic, version;
    } config = { sizeof(config), 1, 0 };
    REFUSED(ncclAllReduceConfig(&a, &b, 1, ncclFloat, ncclSum, comm, NULL, (ncclCollConfig_t *)&config),
            ncclInvalidArgument, "NCCL_COLL_CONFIG_INITIALIZER");
    config.magic = 0xcafebeef;
    OK(ncclAllReduceConfig(&a, &b, 1, ncclFloat, ncclSum, comm, NULL, (ncclCollConfig_t *)&config));
    assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
    /* A refused call ends its group, whose other calls are not made. */
    b = 0;
    OK(ncclGroupStart());
    OK(ncclAllReduce(&a, &b, 1, ncclFloat, ncclSum, comm, NULL));
    assert_int_equal(ncclAllReduce(&a, &b, 1, (ncclDataType_t)77, ncclSum, comm, NULL), ncclInvalidArgument);
    REFUSED(ncclGroupEnd(), ncclInvalidArgument, "no data type 77");
    assert_true(b == 0);
    OK(ncclGroupStart());
    assert_int_equal(ncclAllReduce(&a, &b, 1, ncclFloat, ncclSum, gone, NULL), ncclInvalidArgument);
    assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
    OK(ncclCommGetAsyncError(comm, &result));
    assert_int_equal(result, ncclSuccess);
    OK(ncclAllReduce(&a, &b, 1, ncclFloat, ncclSum, comm, NULL));
    OK(ncclCommFinalize(comm));
    assert_int_equal(ncclAllReduce(&a, &b, 1, ncclFloat, ncclSum, comm, NULL), ncclInvalidUsage);
    OK(ncclCommDestroy(comm));
}

/* ---- life ---- */

static void await(struct rank *r, ncclComm_t comm)
{
    ncclResult_t state;
    do {
        CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
    } while (state == ncclInProgress && !r->failed);
    CHECK(state == ncclSuccess);
}

/* A child's ranks are not its parent's, and are not known before its ranks have told their colours. */
static void unknown_ranks(struct rank *r, ncclComm_t child)
{
    int n = -7, device = 0;
    CHECK(ncclCommCount(child, &n) == ncclInvalidUsage && n == -7);
    CHECK(strstr(ncclGetLastError(NULL), "not known yet") != NULL);
    CHECK(ncclCommUserRank(child, &n) == ncclInvalidUsage && n == -7);
    CHECK(ncclCommCuDevice(child, &device) == ncclSuccess && device == -1);
}

/* The last rank is alone. */
static void children_of_a_group(struct rank *r, ncclComm_t parent)
{
    ncclComm_t child = NULL;
    int last = r->rank == r->n - 1, n = 0, rank = -1;
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclCommSplit(parent, last, 0, &child, NULL) == ncclSuccess);
    unknown_ranks(r, child);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(ncclCommCount(child, &n) == ncclSuccess && n == (last ? 1 : r->n - 1));
    CHECK(ncclCommUserRank(child, &rank) == ncclSuccess && rank == (last ? 0 : r->rank));
    CHECK(ncclCommDestroy(child) == ncclSuccess);
}

/* Without a config, a child does not block either. A rank without a colour has no communicator all the
 * same. */
static void nonblocking_children(struct rank *r, ncclComm_t parent)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t child = NULL;
    static _Atomic int looked; /* rank 0 has */
    ncclResult_t result;
    int n = 0;
    while (r->rank > 0 && !looked) {
        usleep(1000);
    }
    result = ncclCommSplit(parent, 0, 0, &child, NULL);
    CHECK(result == ncclInProgress || (r->rank > 0 && result == ncclSuccess));
    if (r->rank == 0) {
        unknown_ranks(r, child);
        looked = 1;
    }
    await(r, child);
    if (r->rank == 0) {
        looked = 0; /* all have seen it */
    }
    CHECK(ncclCommCount(child, &n) == ncclSuccess && n == r->n);
    CHECK(ncclCommDestroy(child) == ncclSuccess);
    config.blocking = 0;
    child = (ncclComm_t)(void *)&n;
    result = ncclCommSplit(parent, r->rank == 1 ? NCCL_SPLIT_NOCOLOR : 0, 0, &child, &config);
    CHECK(result == ncclSuccess || (r->rank != 1 && result == ncclInProgress));
    CHECK((child == NULL) == (r->rank == 1));
    if (child != NULL) {
        await(r, child);
        CHECK(ncclCommCount(child, &n) == ncclSuccess && n == r->n - 1);
    }
    CHECK(ncclCommDestroy(child) == ncclSuccess);
}

static void nonblocking(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclResult_t result;
    int n = -1, mine = 1, sum = 0;
    ncclUniqueId *id = r->arg;
    config.blocking = 0;
    config.commName = "lazy";
    result = ncclCommInitRankConfig(&comm, r->n, *id, r->rank, &config);
    CHECK(result == ncclInProgress || result == ncclSuccess);
    await(r, comm);
    CHECK(ncclCommCount(comm, &n) == ncclSuccess && n == r->n);
    CHECK(ncclAllReduce(&mine, &sum, 1, ncclInt, ncclSum, comm, NULL) == ncclSuccess && sum == r->n);
    nonblocking_children(r, comm);
    children_of_a_group(r, comm);
    CHECK(ncclCommFinalize(comm) == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

/* As await, but a creation that nobody moves is noticed. */
static void await_soon(struct rank *r, ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    for (time_t end = time(NULL) + 20; state == ncclInProgress && !r->failed && time(NULL) < end;) {
        CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
    }
    CHECK(state == ncclSuccess);
}

/* Each rank asks for its creations in an order of its own, and may end one before it has asked for the next:
 * a poll of one moves all. */
static void orders(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId *id = r->arg;
    ncclComm_t comms[4] = { NULL }; /* two of ids, two splits */
    config.blocking = 0;
    for (int round = 0; round < 4 && !r->failed; round++) {
        for (int i = 0; i < 4; i++) {
            ncclResult_t result = i < 2 ? ncclCommInitRankConfig(&comms[i], r->n, id[2 * round + i], r->rank,
                                                                 &config)
                                        : ncclCommSplit(r->comm, 0, 0, &comms[i], &config);
            CHECK(result == ncclInProgress || result == ncclSuccess);
        }
        for (int i = 0; i < 4 && !r->failed; i++) {
            int at = r->rank % 2 == 0 ? i : 3 - i, n = 0;
            await_soon(r, comms[at]);
            CHECK(ncclCommCount(comms[at], &n) == ncclSuccess && n == r->n);
            CHECK(round % 2 == 0 || ncclCommDestroy(comms[at]) == ncclSuccess);
        }
        for (int i = 0; i < 4 && round % 2 == 0 && !r->failed; i++) {
            CHECK(ncclCommDestroy(comms[i]) == ncclSuccess);
        }
    }
    for (int i = 0; i < 4 && r->failed; i++) {
        ncclCommAbort(comms[i]);
    }
}

static void children(struct rank *r)
{
    ncclComm_t half = NULL, small = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int n = 0, rank = -1, mine = 1, sum = 0, leaves[1] = { 0 };
    CHECK(ncclCommSplit(r->comm, r->rank % 2, -r->rank, &half, NULL) == ncclSuccess);
    CHECK(ncclCommCount(half, &n) == ncclSuccess && n == (r->n + 1 - r->rank % 2) / 2);
    CHECK(ncclAllReduce(&mine, &sum, 1, ncclInt, ncclSum, half, NULL) == ncclSuccess && sum == n);
    CHECK(ncclCommDestroy(half) == ncclSuccess);
    CHECK(ncclCommSplit(r->comm, r->rank == 0 ? NCCL_SPLIT_NOCOLOR : 1, 0, &half, &config) == ncclSuccess);
    CHECK((half == NULL) == (r->rank == 0));
    CHECK(ncclCommDestroy(half) == ncclSuccess);
    if (r->rank != 0) {
        CHECK(ncclCommShrink(r->comm, leaves, 1, &small, &config, NCCL_SHRINK_DEFAULT) == ncclSuccess);
        CHECK(ncclCommUserRank(small, &rank) == ncclSuccess && rank == r->rank - 1);
        CHECK(ncclAllReduce(&mine, &sum, 1, ncclInt, ncclSum, small, NULL) == ncclSuccess && sum == r->n - 1);
        CHECK(ncclCommDestroy(small) == ncclSuccess);
    }
    CHECK(ncclAllReduce(&mine, &sum, 1, ncclInt, ncclSum, r->comm, NULL) == ncclSuccess && sum == r->n);
}

/* Old members grow their communicator with new ones, who are threads, too. */
struct growth {
    pthread_barrier_t has_id;
    ncclUniqueId id;
};

static void check_grown(struct rank *r, ncclComm_t grown, int n, int rank)
{
    int got = -1, mine = 1, sum = 0;
    CHECK(ncclCommUserRank(grown, &got) == ncclSuccess && got == rank);
    CHECK(ncclAllReduce(&mine, &sum, 1, ncclInt, ncclSum, grown, NULL) == ncclSuccess && sum == n);
    CHECK(ncclCommDestroy(grown) == ncclSuccess);
}

static void *new_member(void *arg)
{
    struct rank *r = arg;
    struct growth *growth = r->arg;
    ncclComm_t grown = NULL;
    pthread_barrier_wait(&growth->has_id);
    CHECK(ncclCommGrow(NULL, r->n, &growth->id, r->rank, &grown, NULL) == ncclSuccess);
    if (!r->failed) {
        check_grown(r, grown, r->n, r->rank);
    }
    return NULL;
}

static void grows(struct rank *r)
{
    struct growth *growth = r->arg;
    ncclComm_t grown = NULL;
    const ncclUniqueId *id = NULL;
    if (r->rank == 1) { /* any member may */
        CHECK(ncclCommGetUniqueId(r->comm, &growth->id) == ncclSuccess);
        id = &growth->id;
        pthread_barrier_wait(&growth->has_id);
    }
    CHECK(ncclCommGrow(r->comm, r->n, NULL, -1, &grown, NULL) == ncclInvalidArgument);
    CHECK(ncclCommGrow(r->comm, r->n + 2, id, -1, &grown, NULL) == ncclSuccess);
    if (!r->failed) {
        check_grown(r, grown, r->n + 2, r->rank);
    }
    /* No member, then two, have an id: the error is the same on all. */
    CHECK(ncclCommGrow(r->comm, r->n + 2, NULL, -1, &grown, NULL) == ncclInvalidUsage);
    CHECK(ncclCommGrow(r->comm, r->n + 2, &growth->id, -1, &grown, NULL) == ncclInvalidUsage);
}

/* A rank revokes while another waits in a call; those that stay revoke, too, and shrink. */
static void revokes(struct rank *r)
{
    int mine = 1, sum = 0, leaves[1] = { 0 };
    ncclResult_t state = ncclSuccess;
    ncclComm_t small = NULL;
    if (r->rank == 0) {
        usleep(50000);
        CHECK(ncclCommRevoke(r->comm, 0) == ncclSuccess);
        CHECK(ncclCommRevoke(r->comm, 0) == ncclSuccess);
    } else {
        CHECK(ncclAllReduce(&mine, &sum, 1, ncclInt, ncclSum, r->comm, NULL) == ncclRemoteError);
        CHECK(strstr(ncclGetLastError(r->comm), "revoked") != NULL);
        CHECK(ncclCommGetAsyncError(r->comm, &state) == ncclSuccess && state == ncclRemoteError);
        CHECK(ncclCommShrink(r->comm, leaves, 1, &small, NULL, NCCL_SHRINK_DEFAULT) == ncclRemoteError);
        CHECK(ncclCommRevoke(r->comm, 0) == ncclSuccess);
        await(r, r->comm);
        CHECK(ncclCommShrink(r->comm, leaves, 1, &small, NULL,
                             r->rank == 1 ? NCCL_SHRINK_DEFAULT : NCCL_SHRINK_ABORT) == ncclSuccess);
        CHECK(ncclAllReduce(&mine, &sum, 1, ncclInt, ncclSum, small, NULL) == ncclSuccess && sum == r->n - 1);
        CHECK(ncclCommDestroy(small) == ncclSuccess);
    }
    await(r, r->comm);
    CHECK(ncclAllReduce(&mine, &sum, 1, ncclInt, ncclSum, r->comm, NULL) == ncclRemoteError);
}

static void *aborter(void *arg)
{
    usleep(50000);
    ncclCommAbort(((struct rank *)arg)->comm);
    return NULL;
}

/* Another thread aborts while this one waits for ranks that never call. */
static void aborts(struct rank *r)
{
    int mine = 1, sum = 0;
    pthread_t thread;
    if (r->rank == 0) {
        CHECK(pthread_create(&thread, NULL, aborter, r) == 0);
        CHECK(ncclAllReduce(&mine, &sum, 1, ncclInt, ncclSum, r->comm, NULL) != ncclSuccess);
        pthread_join(thread, NULL);
    } else {
        ncclResult_t state = ncclSuccess;
        while (state == ncclSuccess && !r->failed) { /* the others learn of it */
            CHECK(ncclCommGetAsyncError(r->comm, &state) == ncclSuccess);
            usleep(1000);
        }
        CHECK(ncclCommAbort(r->comm) == ncclSuccess);
    }
    r->comm = NULL; /* abort has freed it */
}

static void test_life(void **state)
{
    ncclUniqueId id, ids[8];
    struct growth growth;
    struct rank joins[2];
    (void)state;
    OK(ncclGetUniqueId(&id));
    run(3, nonblocking, &id);
    for (int i = 0; i < 8; i++) {
        OK(ncclGetUniqueId(&ids[i]));
    }
    run(4, orders, ids);
    run(4, children, NULL);
    run(3, revokes, NULL);
    run(3, aborts, NULL);
    pthread_barrier_init(&growth.has_id, NULL, 3);
    for (int i = 0; i < 2; i++) {
        joins[i] = (struct rank){ .rank = 2 + i, .n = 4, .arg = &growth };
        assert_int_equal(pthread_create(&joins[i].thread, NULL, new_member, &joins[i]), 0);
    }
    run(2, grows, &growth);
    for (int i = 0; i < 2; i++) {
        pthread_join(joins[i].thread, NULL);
        assert_string_equal(joins[i].text, "");
    }
    pthread_barrier_destroy(&growth.has_id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),
        cmocka_unit_test(communicators_that_do_not_exist_are_refused),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(a_refused_call_ends_its_group_and_nothing_else),
    };
    use_host_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
