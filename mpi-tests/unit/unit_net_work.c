/* What collectives ask of RDMA cards: exactly what net_work.h says that they need, with every algorithm and protocol, over the recording cards of fake_verbs.h. Ranks are threads. */
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

enum { MOST_RANKS = 5 };

static const char *const proto_names[] = { [RONDO_PROTO_LL] = "ll", [RONDO_PROTO_LL128] = "ll128", [RONDO_PROTO_SIMPLE] = "simple" };

/* What the ranks share. */
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

/* Not in one process: what needs several nodes, and connections made by use, whose ends the fake card does not wait for. Those are mpi_cost's. */
static int is_here(const struct net_work_row *row) { return !row->several_nodes && row->as[0] != '\0'; }

static enum fake_coll coll_by_name(const char *name)
{
    int coll = 0;
    while (strcmp(fake_coll_names[coll], name) != 0) {
        coll++;
    }
    return (enum fake_coll)coll;
}

static void calls(struct fake_rank *r)
{
    static const size_t sizes[] = { 8, 1000, 4096, 12000, 16384, 32768, 65536 };
    const struct net_work_row *row = all.row;
    for (size_t i = 0; i < RONDO_COUNTOF(sizes) && sizes[i] <= row->most; i++) {
        char needed_text[200], text[200];
        struct net_work needed = net_work_needed(row, all.proto, r->comm->ctx->net.slot_bytes, r->nranks, sizes[i]), done;
        struct fake_call call = { .coll = coll_by_name(row->coll), .type = RONDO_FLOAT32, .count = sizes[i] / 4 };
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
            fake_fail(r, __FILE__, __LINE__, "more work than needed", ": %s %s %s, %zu bytes: %s; needed are %s", row->coll, row->algo,
                      proto_names[all.proto], sizes[i], text, needed_text);
        }
        pthread_barrier_wait(&all.barrier); /* all have read the totals */
    }
    if (!all.over_verbs && r->failure[0] == '\0') {
        fake_fail(r, __FILE__, __LINE__, "a conn is not over verbs", "%s", "");
    }
}

static void count_with(int nranks, const struct net_work_row *row, int proto)
{
    char algo[64];
    snprintf(algo, sizeof algo, "%s:%s", row->as, row->algo);
    fake_params("SHM_DISABLE", "1", "NET", "verbs", "IB_HCA", "=fake0:2", "MAX_NCHANNELS", "1", "ALGO", algo, "PROTO", proto_names[proto],
                NULL);
    all.row = row;
    all.proto = proto;
    all.over_verbs = 1;
    pthread_barrier_init(&all.barrier, NULL, (unsigned)nranks);
    fake_ranks(nranks, calls, NULL);
    pthread_barrier_destroy(&all.barrier);
    assert_int_equal(fake_verbs_objects(), 0);
    assert_int_equal(fake.bad_uses, 0);
    assert_int_equal(fake.overruns, 0);
}

static void collectives_ask_for_the_least(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= MOST_RANKS; nranks++) {
        for (int proto = 0; proto < RONDO_NUM_PROTOS; proto++) {
            for (size_t i = 0; i < NET_WORK_ROWS; i++) {
                if (is_here(&net_work_rows[i])) {
                    count_with(nranks, &net_work_rows[i], proto);
                }
            }
        }
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
    static const struct CMUnitTest tests[] = { cmocka_unit_test_setup(collectives_ask_for_the_least, setup) };
    fake_watchdog(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
