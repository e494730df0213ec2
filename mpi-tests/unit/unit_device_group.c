/* Groups over several communicators of GPUs on the fake CUDA driver: launches of a device run one after the
 * other, and must not wait for one another in a circle. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "comm/comm.h"
#include "device_world.h"

enum { COMMS = 3, ROUNDS = 4, RANKS = 12 };

/* r->comm and others over the same ranks; each in its own stream, or all in one. */
struct comms {
    rondo_comm *comm[COMMS];
    CUstream stream[COMMS];
};

static rondo_status comms_make(struct fake_rank *r, struct comms *c)
{
    c->comm[0] = r->comm;
    c->stream[0] = device_of(r)->stream;
    for (int i = 1; i < COMMS; i++) {
        CU(cu()->StreamCreateWithPriority(&c->stream[i], CU_STREAM_NON_BLOCKING, 0));
        RONDO_TRY(rondo_comm_split(r->comm, 0, r->rank, NULL, &c->comm[i]));
    }
    return RONDO_SUCCESS;
}

static void comms_sync(const struct comms *c)
{
    for (int i = 0; i < COMMS; i++) {
        CU(cu()->StreamSynchronize(c->stream[i]));
    }
}

static void comms_free(struct fake_rank *r, const struct comms *c)
{
    for (int i = 1; i < COMMS; i++) {
        FAKE_OK(r, rondo_comm_destroy(c->comm[i]));
        CU(cu()->StreamDestroy(c->stream[i]));
    }
}

/* A group with a call on each communicator, beginning with comm[first], in separate streams or one. */
static void group_of(struct fake_rank *r, const struct comms *c, int first, int one_stream,
                     struct fake_call (*call_of)(int comm, int round), int round)
{
    struct device_call call[COMMS];
    memset(call, 0, sizeof(call));
    FAKE_OK(r, rondo_group_start());
    for (int i = 0; i < COMMS; i++) {
        int k = (first + i) % COMMS;
        call[i].call = call_of(k, round);
        call[i].call.rank = r->rank;
        call[i].call.nranks = r->nranks;
        device_call_prepare(device_of(r), &call[i]);
        FAKE_OK(r, device_call_issue(&call[i], c->comm[k], c->stream[one_stream ? 0 : k]));
    }
    FAKE_OK(r, rondo_group_end());
    comms_sync(c);
    for (int i = 0; i < COMMS; i++) {
        const char *wrong = device_call_check(device_of(r), &call[i]);
        FAKE_CHECK(r, *wrong == '\0', "call %d: %s", i, wrong);
    }
}

/* ---- calls in another order on each rank ---- */

static struct fake_call any_call(int comm, int round)
{
    return (struct fake_call){ .coll = comm == 1 ? FAKE_ALL_TO_ALL : FAKE_ALL_REDUCE,
                               .type = RONDO_INT32,
                               .count = 2000,
                               .seed = (unsigned)(comm + round) };
}

static void orders(struct fake_rank *r)
{
    struct comms c;
    FAKE_OK(r, comms_make(r, &c));
    for (int i = 0; i < ROUNDS && r->failure[0] == '\0'; i++) {
        group_of(r, &c, r->rank, i % 2, any_call, i);
    }
    comms_free(r, &c);
}

static void communicators_may_be_used_in_any_order(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    device_ranks(2, 0, orders, NULL);
    device_ranks(3, 0, orders, NULL);
    device_ranks(2, 1, orders, NULL);
}

/* ---- more launches on one rank than on others ---- */

/* On one channel the root takes as many messages in its first launch as a block has room for, the others in
 * its second; none fits into the slots. Each communicator has its turn, whichever goes first. */
static struct fake_call one_gathers(int comm, int round)
{
    return (struct fake_call){ .coll = comm == round ? FAKE_GATHER : FAKE_ALL_REDUCE,
                               .type = RONDO_INT32,
                               .count = comm == round ? 3000 : 100 };
}

static void gathers(struct fake_rank *r)
{
    struct comms c;
    FAKE_OK(r, comms_make(r, &c));
    for (int i = 0; i < COMMS && r->failure[0] == '\0'; i++) {
        group_of(r, &c, 0, 0, one_gathers, i);
    }
    comms_free(r, &c);
}

static void launches_of_a_call_are_not_interleaved_with_others(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", NULL);
    device_ranks(RANKS, 0, gathers, NULL);
}

/* Ranks at a distance of half of all have two messages of that distance. On one channel a launch has room for
 * eight, and one empty block of each of two such ranks makes it end between those two. */
static void half_of_a_pair_fits(struct fake_rank *r)
{
    enum { N = 10, EACH = 40 };
    const struct device *d = device_of(r);
    size_t sends[N], recvs[N], at[N], wrong = 0;
    uint8_t *x, out[N * EACH], in[N * EACH] = { 0 };
    CUdeviceptr memory = device_new(2 * sizeof(out));
    x = (uint8_t *)(uintptr_t)memory;
    for (int p = 0; p < N; p++) {
        sends[p] = r->rank % 5 == 0 && p == r->rank + 1 ? 0 : EACH;
        recvs[p] = p % 5 == 0 && r->rank == p + 1 ? 0 : EACH;
        at[p] = (size_t)p * EACH;
        memset(out + at[p], 1 + 16 * r->rank + p, EACH);
    }
    device_put(d, memory, out, sizeof(out));
    device_put(d, memory + sizeof(out), in, sizeof(in));
    FAKE_OK(r, rondo_all_to_allv(x, sends, at, x + sizeof(out), recvs, at, RONDO_UINT8, r->comm,
                                 RONDO_CUDA_STREAM(d->stream)));
    CU(cu()->StreamSynchronize(d->stream));
    device_get(d, in, memory + sizeof(out), sizeof(in));
    for (int p = 0; p < N; p++) {
        for (int i = 0; i < EACH; i++) {
            wrong += in[at[p] + (size_t)i] != (recvs[p] > 0 ? (uint8_t)(1 + 16 * p + r->rank) : 0);
        }
    }
    FAKE_CHECK(r, wrong == 0, "%zu bytes are wrong", wrong);
    CU(cu()->MemFree(memory));
}

static void launches_of_messages_end_at_the_same_place_at_both_ends(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", "TIMEOUT", "20s", NULL);
    device_ranks(10, 0, half_of_a_pair_fits, NULL);
}

/* ---- one thread has all ranks ---- */

static void one_thread_may_use_them_in_any_order(void **state)
{
    enum { N = 2 };
    struct device device[N];
    struct device_call call[N][2] = { 0 };
    rondo_comm *comm[2][N];
    rondo_local *local[2];
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    for (int k = 0; k < 2; k++) {
        local[k] = device_one_thread(N, comm[k]);
    }
    rondo_group_start();
    for (int r = 0; r < N; r++) {
        device_open(&device[r], r);
        for (int i = 0; i < 2; i++) {
            call[r][i].call = (struct fake_call){
                .coll = FAKE_ALL_TO_ALL, .type = RONDO_INT32, .count = 300, .rank = r, .nranks = N
            };
            device_call_prepare(&device[r], &call[r][i]);
            assert_int_equal(device_call_issue(&call[r][i], comm[(r + i) % 2][r], device[r].stream),
                             RONDO_SUCCESS);
        }
    }
    assert_int_equal(rondo_group_end(), RONDO_SUCCESS);
    for (int r = N - 1; r >= 0; r--) { /* contexts nest */
        CU(cu()->StreamSynchronize(device[r].stream));
        for (int i = 0; i < 2; i++) {
            assert_string_equal(device_call_check(&device[r], &call[r][i]), "");
        }
        device_close(&device[r]);
    }
    for (int k = 0; k < 2; k++) {
        for (int r = 0; r < N; r++) {
            assert_int_equal(rondo_comm_destroy(comm[k][r]), RONDO_SUCCESS);
        }
        rondo_local_destroy(local[k]);
    }
}

/* ---- an error half way ---- */

static CUresult (*launch)(const CUlaunchConfig *, CUfunction, void **, void **);
static __thread int launches_left = -1; /* this thread's, until one fails; -1: none fails */

static CUresult launch_some(const CUlaunchConfig *config, CUfunction f, void **arguments, void **extra)
{
    if (launches_left == 0) {
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    launches_left -= launches_left > 0;
    return launch(config, f, arguments, extra);
}

static pthread_barrier_t launched;

static rondo_status sums(const struct comms *c, CUdeviceptr memory)
{
    rondo_status status = RONDO_SUCCESS;
    rondo_group_start();
    for (int k = 0; k < COMMS; k++) {
        int32_t *x = (int32_t *)(uintptr_t)memory + 100 * k;
        status = status == RONDO_SUCCESS ? rondo_all_reduce(x, x, 100, RONDO_INT32, RONDO_SUM, c->comm[k],
                                                            RONDO_CUDA_STREAM(c->stream[k]))
                                         : status;
    }
    return rondo_group_end() == RONDO_SUCCESS ? status : RONDO_REMOTE_ERROR;
}

/* The communicator that a group launches first. */
static int first_of(const struct comms *c)
{
    int first = 0;
    for (int k = 1; k < COMMS; k++) {
        first = c->comm[k]->ctx->job.hash < c->comm[first]->ctx->job.hash ? k : first;
    }
    return first;
}

static void half_launched(struct fake_rank *r)
{
    struct comms c;
    CUdeviceptr memory = device_new(COMMS * 100 * sizeof(int32_t));
    int first;
    FAKE_OK(r, comms_make(r, &c));
    first = first_of(&c);
    if (r->rank == 1) {
        FAKE_CHECK(r, sums(&c, memory) == RONDO_SUCCESS);
    }
    pthread_barrier_wait(&launched);
    if (r->rank == 0) {
        launches_left = 1;
        FAKE_CHECK(r, sums(&c, memory) != RONDO_SUCCESS);
        launches_left = -1;
    }
    comms_sync(&c); /* no kernel of rank 1 waits for what rank 0 has not launched */
    for (int k = 0; k < COMMS; k++) {
        rondo_status status = RONDO_SUCCESS;
        double end = fake_now() + 30;
        do {
            FAKE_OK(r, rondo_comm_async_error(c.comm[k], &status));
        } while (status == RONDO_SUCCESS && k != first && fake_now() < end);
        FAKE_CHECK(r, (status == RONDO_SUCCESS) == (k == first), "communicator %d, %d is the first: %s", k,
                   first, rondo_status_string(status));
    }
    {
        struct fake_rank as = *r; /* the launched one still works */
        as.comm = c.comm[first];
        DEVICE_CALL(&as, device_of(r), .coll = FAKE_ALL_GATHER, .type = RONDO_INT32, .count = 500);
        FAKE_CHECK(r, as.failure[0] == '\0', "%s", as.failure);
    }
    pthread_barrier_wait(&launched); /* nobody looks at it any more */
    for (int k = COMMS - 1; k >= 0; k--) {
        rondo_comm_abort(c.comm[k]);
        if (k > 0) {
            CU(cu()->StreamDestroy(c.stream[k]));
        }
    }
    r->comm = NULL;
    CU(cu()->MemFree(memory));
}

static void an_error_ends_what_is_not_launched_and_nothing_else(void **state)
{
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu();
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", NULL);
    launch = table->LaunchKernelEx;
    table->LaunchKernelEx = launch_some;
    pthread_barrier_init(&launched, NULL, 2);
    device_ranks(2, 0, half_launched, NULL);
    pthread_barrier_destroy(&launched);
    table->LaunchKernelEx = launch;
}

static pthread_barrier_t both_wait;

/* Ranks 0 and 1 leave a call that rank 2 does not make, and go on in the same streams. */
static void shrink_away_from_a_call(struct fake_rank *r)
{
    const struct device *d = device_of(r);
    const int gone = 2;
    rondo_comm *child = NULL;
    CUdeviceptr memory = device_new(8192);
    void *x = (void *)(uintptr_t)memory;
    rondo_stream stream = RONDO_CUDA_STREAM(d->stream);
    if (r->rank != gone) {
        FAKE_OK(r, rondo_all_reduce(x, x, 1000, RONDO_INT32, RONDO_SUM, r->comm, stream));
        pthread_barrier_wait(&both_wait);
        FAKE_OK(r, rondo_comm_shrink(r->comm, &gone, 1, RONDO_SHRINK_ABORT, NULL, &child));
        FAKE_OK(r, rondo_all_reduce(x, x, 1000, RONDO_INT32, RONDO_SUM, child, stream));
        CU(cu()->StreamSynchronize(d->stream));
        FAKE_OK(r, rondo_comm_destroy(child));
    } else {
        rondo_status status = RONDO_SUCCESS;
        double end = fake_now() + 30;
        while (status == RONDO_SUCCESS && fake_now() < end) {
            FAKE_OK(r, rondo_comm_async_error(r->comm, &status));
            fake_sleep_ms(1);
        }
        FAKE_CHECK(r, status == RONDO_REMOTE_ERROR, "%s", rondo_status_string(status));
    }
    rondo_comm_abort(r->comm);
    r->comm = NULL;
    CU(cu()->MemFree(memory));
}

static void a_shrink_that_drops_calls_ends_kernels(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", "INIT_TIMEOUT", "20s", NULL);
    pthread_barrier_init(&both_wait, NULL, 2);
    device_ranks(3, 0, shrink_away_from_a_call, NULL);
    pthread_barrier_destroy(&both_wait);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(communicators_may_be_used_in_any_order),
        cmocka_unit_test(launches_of_a_call_are_not_interleaved_with_others),
        cmocka_unit_test(launches_of_messages_end_at_the_same_place_at_both_ends),
        cmocka_unit_test(one_thread_may_use_them_in_any_order),
        cmocka_unit_test(an_error_ends_what_is_not_launched_and_nothing_else),
        cmocka_unit_test(a_shrink_that_drops_calls_ends_kernels),
    };
    setenv("FAKE_CUDA_DEVICES", "12", 1);
    device_driver();
    fake_watchdog(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
