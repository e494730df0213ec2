/* Collectives give RDMA NICs exactly the work that net_work.h says they need: with every algorithm and
 * protocol, and with registered memory. Ranks are threads, and the NICs are those of fake_verbs.h, which
 * count. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "fake_ranks.h"
#include "fake_verbs.h"
#include "../net_work.h"

enum { MOST_RANKS = FAKE_MANY_RANKS };

static const char *const proto_names[] = {
    [RONDO_PROTO_LL] = "ll", [RONDO_PROTO_LL128] = "ll128", [RONDO_PROTO_SIMPLE] = "simple"
};

/* All ranks share this. */
static struct {
    const struct net_work_row *row;
    int proto;
    pthread_barrier_t barrier;
    struct net_work before, after;
    int over_verbs;
} all;

static void add(const rondo_comm *comm, struct net_work *total)
{
    struct net_work mine = { 0 };
    int over_verbs = net_work_read(comm, &mine);
    __atomic_and_fetch(&all.over_verbs, over_verbs, __ATOMIC_SEQ_CST);
    for (size_t i = 0; i < NET_WORK_WORDS; i++) {
        __atomic_add_fetch((uint64_t *)total + i, ((const uint64_t *)&mine)[i], __ATOMIC_SEQ_CST);
    }
    pthread_barrier_wait(&all.barrier);
}

/* @return FAKE_NUM_COLLS if there is no such collective. */
static enum fake_coll coll_by_name(const char *name)
{
    int coll = 0;
    while (coll < FAKE_NUM_COLLS && strcmp(fake_coll_names[coll], name) != 0) {
        coll++;
    }
    return (enum fake_coll)coll;
}

/* Leave out algorithms that need several nodes, which one process cannot have. mpi_cost measures them. */
static int is_here(const struct net_work_row *row, int proto)
{
    int by_use = row->as[0] == '\0'; /* its own connections, whatever protocol is requested */
    return !row->several_nodes && coll_by_name(row->coll) < FAKE_NUM_COLLS &&
           (!by_use || proto == RONDO_PROTO_SIMPLE);
}

static void calls(struct fake_rank *r)
{
    static const size_t sizes[] = { 8, 1000, 4096, 12000, 16384, 32768, 65536 };
    const struct net_work_row *row = all.row;
    for (size_t i = 0; i < RONDO_COUNTOF(sizes) && sizes[i] <= row->most; i++) {
        char needed_text[200], text[200];
        struct net_work needed = net_work_needed(row, all.proto, r->comm->ctx->wiring.net.slot_bytes,
                                                 r->nranks, sizes[i]),
                        done;
        struct fake_call call = { .coll = coll_by_name(row->coll),
                                  .type = RONDO_FLOAT32,
                                  .count = sizes[i] / 4 };
        fake_call(r, call, NULL);
        pthread_barrier_wait(&all.barrier);
        if (r->rank == 0) {
            memset(&all.before, 0, sizeof all.before);
            memset(&all.after, 0, sizeof all.after);
        }
        pthread_barrier_wait(&all.barrier);
        add(r->comm, &all.before);
        fake_call(r, call, NULL);
        add(r->comm, &all.after);
        for (size_t w = 0; w < NET_WORK_WORDS; w++) {
            ((uint64_t *)&done)[w] = ((uint64_t *)&all.after)[w] - ((uint64_t *)&all.before)[w];
        }
        net_work_text(&needed, needed_text, sizeof needed_text);
        net_work_text(&done, text, sizeof text);
        if (memcmp(&done, &needed, sizeof done) != 0 && r->failure[0] == '\0') {
            fake_fail(r, __FILE__, __LINE__, "more work than needed",
                      ": %s %s %s, %zu bytes: %s; needed are %s", row->coll, row->algo,
                      proto_names[all.proto], sizes[i], text, needed_text);
        }
        pthread_barrier_wait(&all.barrier); /* until all have read the totals */
    }
    if (!all.over_verbs && r->failure[0] == '\0') {
        fake_fail(r, __FILE__, __LINE__, "a conn is not over verbs", "%s", "");
    }
}

static void count_with(int nranks, const struct net_work_row *row, int proto)
{
    char algo[64];
    snprintf(algo, sizeof algo, row->as[0] != '\0' ? "%s:%s" : "", row->as, row->algo);
    fake_params("SHM_DISABLE", "1", "NET", "verbs", "IB_HCA", "=fake0:2", "MAX_NCHANNELS", "1", "ALGO", algo,
                "PROTO", proto_names[proto], NULL);
    all.row = row;
    all.proto = proto;
    all.over_verbs = 1;
    pthread_barrier_init(&all.barrier, NULL, (unsigned)nranks);
    fake_ranks(nranks, calls, NULL);
    pthread_barrier_destroy(&all.barrier);
    assert_int_equal(fake_verbs_objects(), 0);
    assert_int_equal(fake.bad_uses, 0);
    assert_int_equal(fake.overruns, 0);
    assert_int_equal(fake.early, 0); /* a real NIC would retry and then fail */
}

static void collectives_post_the_least_work(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= MOST_RANKS; nranks++) {
        for (int proto = 0; proto < RONDO_NUM_PROTOS; proto++) {
            for (size_t i = 0; i < NET_WORK_ROWS; i++) {
                if (is_here(&net_work_rows[i], proto)) {
                    count_with(nranks, &net_work_rows[i], proto);
                }
            }
        }
    }
}

/* ---- registered memory ---- */

enum { SLICE = 8192, SLICES = 64, CALLED = SLICES * SLICE };

/* The work of calls on one kind of memory, and their slices that used no slot (sent, received). */
struct kind {
    struct net_work work;
    uint64_t passed[2];
};
static struct kind kinds[2]; /* ordinary memory, registered memory */
static int gathers, mrs[2];

static uint64_t passed_by(const rondo_comm *comm, int is_send)
{
    uint64_t passed = 0;
    for (int i = 0; i < comm->ctx->wiring.nlinks; i++) {
        const struct rondo_link *link = &comm->ctx->wiring.links[i];
        passed += link->state != NULL && link->is_send == is_send
                      ? ((const struct rondo_net_end *)link->state)->passed_by
                      : 0;
    }
    return passed;
}

static void call_on(struct fake_rank *r, const uint8_t *in, uint8_t *out)
{
    size_t blocks = gathers ? (size_t)r->nranks : 1;
    memset(out, 0, blocks * CALLED);
    pthread_barrier_wait(&all.barrier);
    FAKE_OK(r, gathers ? rondo_all_gather(in, out, CALLED, RONDO_UINT8, r->comm, NULL)
                       : rondo_broadcast(in, out, CALLED, RONDO_UINT8, 0, r->comm, NULL));
    for (size_t b = 0; b < blocks; b++) {
        for (size_t i = 0; i < CALLED; i++) {
            FAKE_CHECK(r, out[b * CALLED + i] == (uint8_t)(b * 50 + i + i / 251));
        }
    }
}

/* Sum over all ranks, and subtract the sums before the calls. */
static void measure(struct fake_rank *r, struct kind *kind, int64_t sign)
{
    struct net_work mine = { 0 };
    net_work_read(r->comm, &mine);
    for (size_t w = 0; w < NET_WORK_WORDS; w++) {
        __atomic_add_fetch((uint64_t *)&kind->work + w,
                           (uint64_t)(sign * (int64_t)((const uint64_t *)&mine)[w]), __ATOMIC_SEQ_CST);
    }
    for (int is_send = 0; is_send < 2; is_send++) {
        __atomic_add_fetch(&kind->passed[is_send], (uint64_t)(sign * (int64_t)passed_by(r->comm, is_send)),
                           __ATOMIC_SEQ_CST);
    }
    pthread_barrier_wait(&all.barrier);
}

/* Count registrations while no rank is in a call. */
static void registrations(const struct fake_rank *r, int i)
{
    pthread_barrier_wait(&all.barrier);
    if (r->rank == 0) {
        mrs[i] = fake.live[FAKE_MR];
    }
    pthread_barrier_wait(&all.barrier);
}

static void on_both_kinds(struct fake_rank *r)
{
    for (int registered = 0; registered < 2; registered++) {
        size_t bytes = (gathers ? (size_t)r->nranks : 1) * CALLED;
        void *in = malloc(CALLED), *out = malloc(bytes);
        if (registered) {
            free(in);
            free(out);
            FAKE_OK(r, rondo_mem_alloc(&in, CALLED));
            FAKE_OK(r, rondo_mem_alloc(&out, bytes));
        }
        for (size_t i = 0; i < CALLED; i++) {
            ((uint8_t *)in)[i] = (uint8_t)((gathers ? (size_t)r->rank * 50 : 0) + i + i / 251);
        }
        registrations(r, 0);
        call_on(r, in, out); /* these use up the receives that were posted for slots */
        measure(r, &kinds[registered], -1);
        call_on(r, in, out);
        measure(r, &kinds[registered], 1);
        registrations(r, 1);
        FAKE_CHECK(r, (mrs[1] > mrs[0]) == registered);
        if (registered) {
            FAKE_OK(r, rondo_mem_free(in));
            FAKE_OK(r, rondo_mem_free(out));
            pthread_barrier_wait(&all.barrier);
            FAKE_CALL(r, .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32,
                      .count = 1); /* the communicator forgets the freed memory */
            pthread_barrier_wait(&all.barrier);
            int left = fake.live[FAKE_MR];
            pthread_barrier_wait(&all.barrier);
            FAKE_CHECK(r, left == mrs[0], "%d are registered, %d were", left, mrs[0]);
        } else {
            free(in);
            free(out);
        }
    }
}

/* All data leaves from user memory, and all but a call's first slice on each conn arrives there. This takes
 * no more work than slots do, and fewer headers. */
static void registered_memory_uses_no_slot(void **state)
{
    enum { N = 3 };
    (void)state;
    for (gathers = 0; gathers < 2; gathers++) {
        uint64_t hops = gathers ? N * (N - 1) : N - 1, sent = hops * SLICES, conns = gathers ? N : N - 1;
        fake_params("SHM_DISABLE", "1", "NET", "verbs", "IB_HCA", "=fake0:2", "MAX_NCHANNELS", "1", "ALGO",
                    "ring", "PROTO", "simple", "BUFFSIZE", "64K", NULL);
        memset(kinds, 0, sizeof kinds);
        pthread_barrier_init(&all.barrier, NULL, N);
        fake_ranks(N, on_both_kinds, NULL);
        pthread_barrier_destroy(&all.barrier);
        assert_int_equal(kinds[0].passed[0] + kinds[0].passed[1], 0);
        assert_int_equal(kinds[1].passed[1], sent);
        assert_int_equal(kinds[1].passed[0], sent - conns);
        assert_int_equal(kinds[0].work.messages, sent);
        assert_int_equal(kinds[1].work.messages, sent);
        assert_int_equal(kinds[1].work.doorbells, sent);
        assert_int_equal(kinds[1].work.bytes, sent * SLICE + conns * NET_WORK_HEADER);
        assert_true(kinds[1].work.receives <= sent && kinds[1].work.credits <= sent);
        assert_int_equal(fake_verbs_objects(), 0);
        assert_int_equal(fake.bad_uses, 0);
    }
}

static int setup(void **state)
{
    (void)state;
    fake_verbs_reset();
    rondo_verbs_lib_replace(&fake_verbs_lib);
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = { cmocka_unit_test_setup(collectives_post_the_least_work, setup),
                                               cmocka_unit_test_setup(registered_memory_uses_no_slot,
                                                                      setup) };
    fake_watchdog(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
