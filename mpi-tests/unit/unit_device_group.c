/* Groups over several communicators of GPUs, over the tests' CUDA driver: launches of a device follow one another, and may not wait for one another in a circle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "comm.h"
#include "device_world.h"

enum { COMMS = 3, ROUNDS = 4, RANKS = 12 };

/* r->comm and others over the same ranks; in each stream of its own, or all in one. */
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

/* A group of a call on each communicator, beginning with comm[first], in streams of their own or in one. */
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
    return (struct fake_call){
        .coll = comm == 1 ? FAKE_ALL_TO_ALL : FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 2000, .seed = (unsigned)(comm + round)
    };
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

static void communicators_may_come_in_any_order(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    device_ranks(2, 0, orders, NULL);
    device_ranks(3, 0, orders, NULL);
    device_ranks(2, 1, orders, NULL);
}

/* ---- more launches on one rank than on others ---- */

/* On one channel the root takes as many messages in its first launch as a block has room for, and the others in its second; none fits into the slots. Each communicator has its turn, whichever goes first. */
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

static void launches_of_a_call_are_not_parted_by_others(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", NULL);
    device_ranks(RANKS, 0, gathers, NULL);
}

/* ---- one thread has all ranks ---- */

static void one_thread_may_have_them_in_any_order(void **state)
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
            call[r][i].call = (struct fake_call){ .coll = FAKE_ALL_TO_ALL, .type = RONDO_INT32, .count = 300, .rank = r, .nranks = N };
            device_call_prepare(&device[r], &call[r][i]);
            assert_int_equal(device_call_issue(&call[r][i], comm[(r + i) % 2][r], device[r].stream), RONDO_SUCCESS);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(communicators_may_come_in_any_order),
        cmocka_unit_test(launches_of_a_call_are_not_parted_by_others),
        cmocka_unit_test(one_thread_may_have_them_in_any_order),
    };
    setenv("FAKE_CUDA_DEVICES", "12", 1);
    device_driver();
    fake_watchdog(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
