/* LL128 is for pairs of GPUs between which the 128 bytes of a store arrive as one. On the fake CUDA driver:
 * not where the machine does not show them, nor where a pair turns out to have no access. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/log.h"
#include "tuner/tuner.h"
#include "comm/comm.h"
#include "device_world.h"

enum { LL128 = 1u << RONDO_PROTO_LL128 };

/* What creation has found; what calls use. */
struct expected {
    int known;      /* the machine shows the GPUs */
    int ll128;      /* calls may use LL128 */
    int only_ll128; /* RONDO_PROTO allows nothing else */
};

static int may_go_by_ll128(const struct fake_rank *r, enum rondo_coll coll, size_t bytes)
{
    const struct rondo_ctx *ctx = r->comm->ctx;
    struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS];
    int n = 0;
    rondo_cost_table(&ctx->wiring.layout, &ctx->running.allowed, coll, bytes, 0, table);
    for (int a = 0; a < RONDO_NUM_ALGOS; a++) {
        n += table[a][RONDO_PROTO_LL128].us >= 0;
    }
    return n;
}

static void looks(struct fake_rank *r)
{
    const struct device *d = device_of(r);
    const struct expected *e = ((const struct place *)r->arg)->arg;
    const struct rondo_layout *l = &r->comm->ctx->wiring.layout;
    int n = 0;
    FAKE_CHECK(r, rondo_is_gpu_model(l) == e->known);
    FAKE_CHECK(r, !e->known || (l->model.gpu.ring.ll128 == e->ll128 && l->model.gpu.tree.ll128 == e->ll128));
    FAKE_CHECK(r, e->known || (l->protos & LL128) == 0);
    for (size_t bytes = 8; bytes <= 64 << 20; bytes *= 2) {
        n += may_go_by_ll128(r, RONDO_COLL_ALL_REDUCE, bytes) +
             may_go_by_ll128(r, RONDO_COLL_ALL_GATHER, bytes);
    }
    FAKE_CHECK(r, (n > 0) == e->ll128, "%d ways to go by LL128", n);
    if (e->only_ll128 && !e->ll128) {
        CUdeviceptr memory = device_new(8192);
        void *x = (void *)(uintptr_t)memory;
        FAKE_ERROR(r,
                   rondo_all_reduce(x, x, 100, RONDO_INT32, RONDO_SUM, r->comm, RONDO_CUDA_STREAM(d->stream)),
                   RONDO_INVALID_USAGE, "RONDO_PROTO");
        CU(cu()->MemFree(memory));
        return;
    }
    DEVICE_CALL(r, d, .coll = FAKE_ALL_REDUCE, .type = RONDO_FLOAT32, .count = 3001);
    DEVICE_CALL(r, d, .coll = FAKE_ALL_GATHER, .type = RONDO_INT32, .count = 3001);
}

static void gpus_on_nvlink_use_ll128(void **state)
{
    struct expected expected = { .known = 1, .ll128 = 1 };
    const char *machine = device_machine(device_machine_text);
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", "TOPO_FILE", machine, NULL);
    device_ranks(2, 0, looks, &expected);
    device_ranks(4, 0, looks, &expected);
    device_machine_end(machine);
}

/* Not proven there; RONDO_PROTO asks for it all the same. */
static void ranks_that_share_a_gpu_use_ll128_on_request(void **state)
{
    struct expected expected = { .known = 1 };
    const char *machine = device_machine(device_machine_text);
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", "TOPO_FILE", machine, NULL);
    device_ranks(3, 1, looks, &expected);
    expected.ll128 = 1;
    fake_params(SMALL, "MAX_NCHANNELS", "2", "PROTO", "ll128,simple", "TOPO_FILE", machine, NULL);
    device_ranks(3, 1, looks, &expected);
    device_machine_end(machine);
}

static void gpus_missing_from_the_machine_do_not_use_ll128(void **state)
{
    struct expected expected = { .known = 0 };
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    device_ranks(2, 0, looks, &expected);
    device_ranks(3, 1, looks, &expected);
    expected.only_ll128 = 1;
    fake_params(SMALL, "MAX_NCHANNELS", "2", "ALGO", "ring", "PROTO", "ll128", NULL);
    device_ranks(2, 0, looks, &expected);
}

/* ---- pairs without access, whatever the topology says ---- */

static void broken(const char *pairs, int nranks, const struct expected *expected)
{
    /* as with bridges that enable ACS, or containers that forbid IPC */
    setenv("FAKE_CUDA_NO_PEER", pairs, 1);
    device_ranks(nranks, 0, looks, (void *)(uintptr_t)expected);
    unsetenv("FAKE_CUDA_NO_PEER");
}

static void one_broken_pair_keeps_all_ranks_from_ll128(void **state)
{
    struct expected expected = { .known = 1 };
    const char *machine = device_machine(device_machine_text);
    uint32_t mask;
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", "TOPO_FILE", machine, NULL);
    mask = rondo_log_mask;
    rondo_log_mask = RONDO_LOG_NONE; /* there is a warning for each pair */
    broken("0-1", 2, &expected);
    broken("0-2", 3, &expected); /* a ring of three has every pair; rank 1 can access both others */
    broken("0-1,0-2,0-3", 4, &expected);
    fake_params(SMALL, "MAX_NCHANNELS", "2", "ALGO", "ring", "PROTO", "ll128", "TOPO_FILE", machine, NULL);
    rondo_log_mask = RONDO_LOG_NONE;
    expected.only_ll128 = 1;
    broken("1-2", 3, &expected);
    rondo_log_mask = mask;
    device_machine_end(machine);
}

/* A proxy carries slices whole. */
static void slices_that_a_proxy_carries_use_ll128(void **state)
{
    struct expected expected = { .known = 1, .ll128 = 1 };
    const char *machine = device_machine(device_machine_text);
    uint32_t mask;
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", "SHM_DISABLE", "1", "SOCKET_IFNAME", "lo", "TOPO_FILE", machine,
                NULL);
    mask = rondo_log_mask;
    rondo_log_mask = RONDO_LOG_NONE;
    broken("0-1", 2, &expected);
    rondo_log_mask = mask;
    device_machine_end(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_on_nvlink_use_ll128),
        cmocka_unit_test(ranks_that_share_a_gpu_use_ll128_on_request),
        cmocka_unit_test(gpus_missing_from_the_machine_do_not_use_ll128),
        cmocka_unit_test(one_broken_pair_keeps_all_ranks_from_ll128),
        cmocka_unit_test(slices_that_a_proxy_carries_use_ll128),
    };
    device_driver();
    fake_watchdog(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
