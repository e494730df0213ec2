/* Conns of GPUs over the fake CUDA driver: ranks that are threads and processes, both kinds of device memory,
 * writes and reads, lazy links. Without P2P: conns by shared memory and over a net device. */
#include "p2p_world.h"

#include "base/param.h"

static const enum rondo_p2p_mode both_ways[] = { RONDO_P2P_MODE_WRITE, RONDO_P2P_MODE_READ };

/* This test runs first, because a process that has used the driver cannot fork. */
static void processes_share_device_memory(void **state)
{
    (void)state;
    for (int no_vmm = 0; no_vmm < 2; no_vmm++) {
        for (size_t i = 0; i < RONDO_COUNTOF(both_ways); i++) {
            struct world *w = gpus_new(3, 2, both_ways[i], 1);
            gpus->no_vmm = no_vmm;
            w->body = body_gpus;
            run_processes(w);
            gpus_free(w);
        }
    }
}

/* An owner waits for a rank that has its memory open. If that rank never closes it, the owner keeps it. */
static void body_dies(struct world *w, struct rank *r)
{
    pthread_barrier_wait(&w->barrier);
    if (r->net.rank == 1) {
        _exit(0);
    }
    setenv("RONDO_P2P_CHECK", "500ms", 1);
    CHECK_OK(rondo_param_reload());
    rank_close(r);
    CHECK(driver.things[BLOCK] == r->net.nlocal - 1 && driver.things[OPENED] == 0 &&
          driver.things[STREAM] == 0);
    _exit(0);
}

static void memory_that_a_dead_rank_had_open_is_kept(void **state)
{
    struct world *w = gpus_new(2, 2, RONDO_P2P_MODE_WRITE, 1);
    (void)state;
    gpus->no_vmm = 1;
    w->protos = 1u << RONDO_PROTO_SIMPLE; /* so that there is one block */
    w->body = body_dies;
    run_processes(w);
    gpus_free(w);
}

/* What copies at the end still use stays, however they go on. */
static void body_hangs(struct world *w, struct rank *r)
{
    pthread_barrier_wait(&w->barrier);
    setenv("RONDO_P2P_CHECK", "100ms", 1);
    CHECK_OK(rondo_param_reload());
    driver.hang_words = r->net.rank == 0;
    rank_close(r);
    if (r->net.rank == 0) {
        CHECK(driver.things[BLOCK] == r->net.nlocal - 1 && driver.things[OPENED] == 1 &&
              driver.things[PINNED] == 1 && driver.things[STREAM] == 0);
    }
    pthread_barrier_wait(&w->barrier);
    _exit(0);
}

static void memory_of_copies_that_do_not_end_is_kept(void **state)
{
    struct world *w = gpus_new(2, 2, RONDO_P2P_MODE_WRITE, 1);
    (void)state;
    gpus->no_vmm = 1;
    w->protos = 1u << RONDO_PROTO_SIMPLE;
    w->body = body_hangs;
    run_processes(w);
    gpus_free(w);
}

static void threads_share_device_memory(void **state)
{
    static const struct {
        int nranks, ngpus;
    } cases[] = { { 2, 1 }, { 2, 2 }, { 5, 2 } };
    (void)state;
    for (size_t c = 0; c < RONDO_COUNTOF(cases); c++) {
        for (int i = 0; i < 4; i++) {
            struct world *w = gpus_new(cases[c].nranks, cases[c].ngpus, both_ways[i % 2], 0);
            gpus->no_vmm = i / 2;
            w->body = body_gpus;
            run_threads(w);
            gpus_free(w);
            check_nothing_left();
        }
    }
}

/* ---- lazy links: the control plane carries their records ---- */

/* Of a stream: until somebody has asked, or for 2 s. */
struct hold {
    int asked, late; /* atomic */
};

static void hold_it(void *arg)
{
    struct hold *hold = arg;
    int64_t end = rondo_now_ns() + 2000000000;
    while (!__atomic_load_n(&hold->asked, __ATOMIC_ACQUIRE) && !hold->late) {
        __atomic_store_n(&hold->late, rondo_now_ns() > end, __ATOMIC_RELEASE);
        sched_yield();
    }
}

/* Slots whose zeroing waits for other work of the GPU: nobody waits for it inside the call. */
static void link_on_hold(struct rank *r, int peer)
{
    struct rondo_p2p *p2p = rondo_transport_state(&r->net, &rondo_transport_p2p);
    struct rondo_link link;
    static struct hold holds[MAX_RANKS];
    struct hold *hold = &holds[r->net.rank];
    *hold = (struct hold){ .asked = 0 };
    CHECK_OK(rondo_cuda_enter(r->net.device));
    CHECK(table()->LaunchHostFunc(p2p->stream, hold_it, hold) == CUDA_SUCCESS);
    rondo_cuda_leave();
    for (int is_send = 0; is_send < 2; is_send++) { /* one of the ends has slots */
        CHECK_OK(rondo_link_lazy(&r->net, &link, peer, is_send));
        if (is_send == (gpus->found[r->net.rank][peer] == RONDO_P2P_MODE_READ)) {
            CHECK(rondo_link_connect_lazy(&r->net, &link) == RONDO_IN_PROGRESS);
            CHECK(!__atomic_load_n(&hold->late, __ATOMIC_ACQUIRE));
        }
        rondo_link_close(&r->net, &link);
    }
    __atomic_store_n(&hold->asked, 1, __ATOMIC_RELEASE);
}

static void body_lazy_gpus(struct world *w, struct rank *r)
{
    struct rondo_control_config config = { .rank = r->net.rank,
                                           .nranks = w->nranks,
                                           .local_rank = r->net.rank,
                                           .nlocal = w->nranks,
                                           .local_ranks = w->index,
                                           .peers = w->peers,
                                           .comm_hash = 0x1234,
                                           .name = "test" };
    size_t before = rondo_net_bytes(&r->net);
    if (r->net.rank == 0) {
        CHECK_OK(rondo_control_create(&r->net.control, &config, &gpus->segment));
    }
    pthread_barrier_wait(&w->barrier);
    if (r->net.rank != 0) {
        CHECK_OK(rondo_control_attach(&r->net.control, &config, &gpus->segment));
    }
    pthread_barrier_wait(&w->barrier);
    CHECK_OK(rondo_control_start(r->net.control));
    pthread_barrier_wait(&w->barrier);
    link_on_hold(r, (r->net.rank + 1) % w->nranks);
    body_lazy(w, r);
    /* Lazy links have a block of their own, because the names of the first blocks have been dropped. */
    CHECK(rondo_net_bytes(&r->net) >= before + (2 << 20));
    pthread_barrier_wait(&w->barrier);
    rondo_control_close(r->net.control);
}

static void lazy_links_join_all_pairs(void **state)
{
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(both_ways); i++) {
        struct world *w = gpus_new(4, 2, both_ways[i], 0);
        w->body = body_lazy_gpus;
        run_threads(w);
        gpus_free(w);
        check_nothing_left();
    }
}

/* ---- without P2P ---- */

static void body_pinned(struct world *w, struct rank *r)
{
    for (int i = 0; i < r->nends; i++) {
        const struct rondo_link *link = &r->ends[i].link;
        CUdeviceptr tail = 0;
        CHECK(rondo_cuda_enter(r->net.device) == RONDO_SUCCESS);
        /* The tail is registered, and the conn uses its device address. */
        CHECK(table()->MemHostGetDevicePointer(&tail, link->tail, 0) == CUDA_SUCCESS);
        CHECK(tail == (CUdeviceptr)(uintptr_t)link->conn.tail && link->head != NULL);
        rondo_cuda_leave();
    }
    body_stream(w, r);
}

static void shared_memory_is_mapped_into_the_gpu(void **state)
{
    struct world *w = gpus_new(3, 2, RONDO_P2P_MODE_NONE, 0);
    (void)state;
    w->body = body_pinned;
    run_threads(w);
    gpus_free(w);
    check_nothing_left();
}

static void ends_between_nodes_are_pinned(void **state)
{
    struct world *w = gpus_new(2, 2, RONDO_P2P_MODE_WRITE, 0);
    (void)state;
    world_spread(w);
    w->body = body_pinned;
    run_threads(w);
    gpus_free(w);
    rondo_netdev_finalize();
    check_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_share_device_memory),
        cmocka_unit_test(memory_that_a_dead_rank_had_open_is_kept),
        cmocka_unit_test(memory_of_copies_that_do_not_end_is_kept),
        cmocka_unit_test(threads_share_device_memory),
        cmocka_unit_test(lazy_links_join_all_pairs),
        cmocka_unit_test(shared_memory_is_mapped_into_the_gpu),
        cmocka_unit_test(ends_between_nodes_are_pinned),
    };

    alarm(120);
    choose_driver();
    setenv("RONDO_SOCKET_IFNAME", "lo", 1);
    rondo_log_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
