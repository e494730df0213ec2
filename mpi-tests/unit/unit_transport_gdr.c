/* GPUDirect: conns between nodes whose slots are in GPU memory, over the NICs of fake_verbs.h and the fake
 * CUDA driver. Which ends use it, flushes, and memory that cannot be allocated or registered. */
#include "nic_world.h"

#include <errno.h>

#include "faults.h"
#include "net/transport/transport_net.h"

enum {
    WRITE = 1 << RONDO_GDR_WRITE,
    READ = 1 << RONDO_GDR_READ,
    FLUSH = 1 << RONDO_GDR_FLUSH,
    OWN = 1 << RONDO_GDR_OWN,
    FORTUNE = 200 /* more rounds than connecting takes */
};

/* What the topology tells each rank about its NIC. */
static struct rondo_nic nics[MAX_RANKS];

static void nics_before(struct world *w, struct rank *r)
{
    gpus_before(w, r);
    r->net.nics = &nics[r->net.rank];
    r->net.nnics = 1;
}

/* Each rank has a host and a GPU of its own. */
static struct world *gdr_new(int nranks, uint32_t first, uint32_t others)
{
    struct world *w = gpus_new(nranks, 2, RONDO_P2P_MODE_NONE, 0);
    world_spread(w);
    w->before = nics_before;
    w->between = NULL;
    for (int i = 0; i < nranks; i++) {
        snprintf(nics[i].name, sizeof(nics[i].name), "fake0:2");
        nics[i].gdr = i == 0 ? first : others;
    }
    return w;
}

static const struct rondo_net_gdr *gdr_of(const struct end *end)
{
    return &((const struct rondo_net_end *)end->link.state)->gdr;
}

static int is_gdr(const struct end *end) { return strstr(end->link.conn.via, "/GDRDMA") != NULL; }

/* ---- which ends use GPUDirect ---- */

static void body_where(struct world *w, struct rank *r)
{
    (void)w;
    for (int i = 0; i < r->nends; i++) {
        const struct end *end = &r->ends[i];
        enum rondo_pointer_kind kind;
        int ordinal, may = (nics[r->net.rank].gdr & (end->link.is_send ? READ : WRITE)) != 0;
        CHECK_OK(rondo_cuda_pointer(end->link.conn.slots[RONDO_PROTO_SIMPLE], &kind, &ordinal));
        CHECK(kind == (may ? RONDO_POINTER_DEVICE : RONDO_POINTER_PINNED) && is_gdr(end) == may);
        CHECK_OK(rondo_cuda_pointer(end->link.conn.tail, &kind, &ordinal));
        CHECK(kind == RONDO_POINTER_PINNED && end->link.tail != NULL);
    }
    stream(r, r->ends, r->nends, FEW);
    for (int i = 0; i < r->nends; i++) {
        const struct rondo_net_gdr *gdr = gdr_of(&r->ends[i]);
        int flushes = is_gdr(&r->ends[i]) && !r->ends[i].link.is_send && (nics[r->net.rank].gdr & FLUSH);
        CHECK(flushes ? gdr->flushes > 0 && gdr->flushes <= FEW : gdr->flushes == 0);
    }
}

static void slots_are_where_the_topology_says(void **state)
{
    static const uint32_t first[] = { 0, READ, WRITE, WRITE | FLUSH, READ | WRITE },
                          others[] = { READ | WRITE | FLUSH, 0 };
    (void)state;
    set("FAKE_CUDA_ORDERED", "1"); /* so only the topology asks for flushes */
    for (size_t i = 0; i < RONDO_COUNTOF(first); i++) {
        for (size_t k = 0; k < RONDO_COUNTOF(others); k++) {
            struct world *w = gdr_new(3, first[i], others[k]);
            w->body = body_where;
            run_threads(w);
            gpus_free(w);
            all_is_given_back();
        }
    }
    set("FAKE_CUDA_ORDERED", NULL);
}

/* The device delays or refuses for now either message of a slice, and flushes. */
static void devices_that_are_late_or_busy_lose_nothing(void **state)
{
    struct world *w;
    (void)state;
    needs_faults();
    set("FAKE_CUDA_ORDERED", "1");
    set("RONDO_NET_FAULT", "seed=7,late=3,again=2,connect=5");
    w = gdr_new(2, READ | WRITE | FLUSH, READ | WRITE);
    w->body = body_where;
    run_threads(w);
    gpus_free(w);
    set("RONDO_NET_FAULT", NULL);
    set("FAKE_CUDA_ORDERED", NULL);
    all_is_given_back();
}

static void body_staged(struct world *w, struct rank *r)
{
    (void)w;
    for (int i = 0; i < r->nends; i++) {
        CHECK(!is_gdr(&r->ends[i]) && !((struct rondo_net_end *)r->ends[i].link.state)->split);
    }
    stream(r, r->ends, r->nends, FEW);
}

static void nics_that_take_no_gpu_memory_are_not_given_any(void **state)
{
    struct world *w;
    (void)state;
    set("RONDO_DMABUF_ENABLE", "0");
    w = gdr_new(2, READ | WRITE, READ | WRITE);
    w->body = body_staged;
    run_threads(w);
    gpus_free(w);
    all_is_given_back();
    set("RONDO_DMABUF_ENABLE", NULL);
}

/* ---- flushes ---- */

static struct end *ring_end(struct world *w, int rank, int is_send)
{
    struct rank *r = &w->rank[rank];
    for (int i = 0; i < r->nends; i++) {
        if (r->ends[i].kind == RING && r->ends[i].link.channel == 0 && r->ends[i].link.is_send == is_send) {
            return &r->ends[i];
        }
    }
    fail_msg("rank %d has no such end", rank);
    return NULL;
}

/* Two ranks in this thread, which have said hello. */
static struct world *two_connected(uint32_t bits)
{
    struct world *w = gdr_new(2, bits, bits);
    int pending, open = 1;
    ranks_connect(w);
    for (int round = 0; open && round < FORTUNE; round++) {
        open = 0;
        for (int i = 0; i < 2; i++) {
            open |= rank_hello(&w->rank[i], &pending) == RONDO_IN_PROGRESS;
            rank_progress(&w->rank[i]);
        }
    }
    assert_false(open);
    return w;
}

static void progress_both(struct world *w)
{
    for (int round = 0; round < 20; round++) {
        rank_progress(&w->rank[0]);
        rank_progress(&w->rank[1]);
    }
}

/* Post slices one by one, and send all of them before the receiver makes progress. */
static void post(struct world *w, struct end *from, int slices)
{
    for (int i = 0; i < slices; i++) {
        assert_int_equal(stream_slice(&w->rank[0], from), 1);
    }
    for (int round = 0; round < 20; round++) {
        rank_progress(&w->rank[0]);
    }
}

static void slices_that_arrive_together_are_flushed_once_before_they_are_announced(void **state)
{
    struct world *w = two_connected(READ | WRITE | FLUSH);
    struct end *from = ring_end(w, 0, 1), *to = ring_end(w, 1, 0);
    const struct rondo_verbs_comm *comm = ((const struct rondo_net_end *)to->link.state)->comm;
    int reads = fake.reads;
    (void)state;
    assert_non_null(comm->flush_qp);
    assert_int_equal(gdr_of(to)->flushes, 0); /* the hello has no bytes to flush */
    fake.hold_qpn = comm->flush_qp->qp_num;
    post(w, from, 3);
    progress_both(w);
    assert_int_equal(fake.reads, reads + 1);
    assert_int_equal(to->link.tail->tail, 1); /* the slices are not announced before the flush */
    post(w, from, 2);                         /* later slices wait for the next flush */
    progress_both(w);
    assert_int_equal(fake.reads, reads + 1);
    fake.hold_qpn = 0;
    progress_both(w);
    assert_int_equal(fake.reads, reads + 2);
    assert_int_equal(gdr_of(to)->flushes, 2);
    assert_int_equal(to->link.tail->tail, 6);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(stream_slice(&w->rank[1], to), 1);
    }
    progress_both(w);
    ranks_close_gpus(w);
    all_is_given_back();
}

/* The receiver has asked for more slices than it needs when its peer leaves. Those that arrived are flushed
 * and announced; only waiting for more fails. */
static void slices_that_arrived_outlive_their_sender(void **state)
{
    struct world *w = two_connected(READ | WRITE | FLUSH);
    struct end *from = ring_end(w, 0, 1), *to = ring_end(w, 1, 0);
    const struct rondo_verbs_comm *comm = ((const struct rondo_net_end *)to->link.state)->comm;
    uint32_t mask = rondo_log_mask;
    int moved;
    (void)state;
    post(w, from, 1);
    progress_both(w);
    post(w, from, 2);
    /* The next progress asks the peer for a slice into the free slot, but the peer has left. */
    assert_int_equal(stream_slice(&w->rank[1], to), 1);
    rank_close(&w->rank[0]);
    fake.hold_qpn = comm->flush_qp->qp_num;
    to->link.conn.wanted = 1;
    for (int round = 0; round < 20; round++) {
        rank_progress(&w->rank[1]); /* no error before the flush, although the peer has left */
        assert_int_equal(to->link.tail->tail, 2);
    }
    assert_true(comm->gone);
    fake.hold_qpn = 0;
    to->link.conn.wanted = 0;
    for (int round = 0; round < 20; round++) {
        rank_progress(&w->rank[1]);
    }
    assert_int_equal(to->link.tail->tail, 4);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stream_slice(&w->rank[1], to), 1);
    }
    rank_progress(&w->rank[1]);
    rondo_log_mask = RONDO_LOG_NONE;
    assert_int_equal(stream_slice(&w->rank[1], to), 0); /* it wants one more */
    assert_int_equal(rondo_net_progress(&w->rank[1].net, &moved), RONDO_REMOTE_ERROR);
    rondo_log_mask = mask;
    rank_close(&w->rank[1]);
    gpus_free(w);
    all_is_given_back();
}

/* @return the number of flushes for 10 slices that are sent one by one. */
static uint64_t flushes_of(uint32_t bits, const char *parameter)
{
    struct world *w;
    struct end *from, *to;
    uint64_t flushes;
    if (parameter != NULL) {
        set(parameter, "1");
    }
    w = two_connected(bits);
    from = ring_end(w, 0, 1);
    to = ring_end(w, 1, 0);
    for (int i = 0; i < 10; i++) {
        post(w, from, 1);
        progress_both(w);
        assert_int_equal(stream_slice(&w->rank[1], to), 1);
        progress_both(w);
    }
    flushes = gdr_of(to)->flushes;
    ranks_close_gpus(w);
    all_is_given_back();
    if (parameter != NULL) {
        set(parameter, NULL);
    }
    return flushes;
}

static void flushes_are_left_out_where_nothing_needs_them(void **state)
{
    (void)state;
    assert_int_equal(flushes_of(READ | WRITE, NULL), 10); /* the GPU needs them */
    assert_int_equal(flushes_of(READ | WRITE, "FAKE_CUDA_ORDERED"), 0);
    assert_int_equal(flushes_of(READ | WRITE | FLUSH, "FAKE_CUDA_ORDERED"), 10);
    assert_int_equal(flushes_of(READ | WRITE | FLUSH, "RONDO_GDR_FLUSH_DISABLE"), 0);
    assert_int_equal(flushes_of(READ, NULL), 0);
}

/* ---- the context ---- */

static int calls_inside, calls_outside;

static void note_context(enum fake_verb verb)
{
    CUcontext context = NULL;
    int inside = table()->CtxGetCurrent(&context) == CUDA_SUCCESS &&
                 (context == gpu_of_rank[0].context || context == gpu_of_rank[1].context);
    if (verb == FAKE_MR || verb == FAKE_QP || verb >= FAKE_POST_SEND) {
        *(inside ? &calls_inside : &calls_outside) += 1;
    }
}

/* Net plugins may call CUDA, for the GPU whose data they carry. */
static void devices_are_called_with_the_gpus_context(void **state)
{
    struct world *w;
    (void)state;
    calls_inside = calls_outside = 0;
    fake.called = note_context;
    w = two_connected(READ | WRITE | FLUSH);
    post(w, ring_end(w, 0, 1), 3);
    progress_both(w);
    fake.called = NULL;
    assert_true(calls_inside > 0);
    assert_int_equal(calls_outside, 0);
    ranks_close_gpus(w);
    all_is_given_back();
}

/* ---- memory that cannot be used ---- */

static int staged_ends; /* atomic */

static void body_some_staged(struct world *w, struct rank *r)
{
    (void)w;
    for (int i = 0; i < r->nends; i++) {
        __atomic_fetch_add(&staged_ends, !is_gdr(&r->ends[i]), __ATOMIC_SEQ_CST);
        CHECK(((struct rondo_net_end *)r->ends[i].link.state)->split); /* both ends said so */
    }
    stream(r, r->ends, r->nends, FEW);
}

static int staged_with(struct world *w)
{
    staged_ends = 0;
    w->body = body_some_staged;
    run_threads(w);
    gpus_free(w);
    all_is_given_back();
    return staged_ends;
}

enum { ENDS_OF_TWO = 2 * CHANNELS * 4 };

/* The end whose memory the NIC refuses uses host memory, and so do later ends of this rank. The others do
 * not. */
static void slots_that_the_nic_refuses_are_in_host_memory(void **state)
{
    uint32_t mask = rondo_log_mask;
    (void)state;
    rondo_log_mask = RONDO_LOG_NONE;
    for (int n = 1; n <= ENDS_OF_TWO; n++) {
        fake.fail_dmabuf_in = n;
        fake.fail_errno = EINVAL;
        int staged = staged_with(gdr_new(2, READ | WRITE | FLUSH, READ | WRITE | FLUSH));
        assert_in_range(staged, 1, ENDS_OF_TWO / 2);
        assert_int_equal(fake.fail_dmabuf_in, 0);
    }
    rondo_log_mask = mask;
}

static CUresult no_handle(void *handle, CUdeviceptr pointer, size_t bytes, CUmemRangeHandleType type,
                          unsigned long long flags)
{
    (void)handle, (void)pointer, (void)bytes, (void)type, (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static void slots_without_a_descriptor_are_in_host_memory(void **state)
{
    __typeof__(table()->MemGetHandleForAddressRange) real = table()->MemGetHandleForAddressRange;
    (void)state;
    table()->MemGetHandleForAddressRange = no_handle;
    assert_int_equal(staged_with(gdr_new(2, READ | WRITE, READ | WRITE)), ENDS_OF_TWO);
    table()->MemGetHandleForAddressRange = real;
}

static rondo_status try_to_connect(struct world *w)
{
    for (int i = 0; i < w->nranks; i++) {
        RONDO_TRY(rank_open(w, i, MAX_LINKS));
        RONDO_TRY(rank_offer(w, i));
    }
    for (int i = 0; i < w->nranks; i++) {
        RONDO_TRY(rank_connect(w, i));
    }
    return RONDO_SUCCESS;
}

static struct world *reading_and_writing(void) { return gdr_new(2, READ | WRITE, READ | WRITE); }

static void driver_calls_that_fail_leave_nothing(void **state)
{
    (void)state;
    fail_each_call(reading_and_writing, try_to_connect, ranks_close_gpus);
}

/* ---- registration alone ---- */

static struct {
    int kinds[4], n, takes; /* takes: the only kind that is accepted */
} asked;

static rondo_status asked_reg(void *comm, void *data, size_t bytes, int kind, int fd, void **region)
{
    (void)comm, (void)bytes;
    asked.kinds[asked.n++] = kind;
    assert_int_equal(fd >= 0, kind == RONDO_NET_DMABUF);
    *region = kind == asked.takes ? data : NULL;
    return kind == asked.takes ? RONDO_SUCCESS : rondo_fail_quiet(RONDO_SYSTEM_ERROR, "the NIC refuses");
}

static void the_kernel_module_is_tried_after_dma_buf(void **state)
{
    static const int takes[] = { RONDO_NET_DMABUF, RONDO_NET_CUDA, 0 };
    const struct rondo_net_device device = { .name = "asked", .reg = asked_reg };
    const struct rondo_net_properties properties = {
        .name = "fake0:2", .memory = RONDO_NET_HOST | RONDO_NET_CUDA | RONDO_NET_DMABUF
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(takes); i++) {
        struct world *w = gdr_new(1, WRITE, 0);
        assert_int_equal(rank_open(w, 0, MAX_LINKS), RONDO_SUCCESS);
        struct rondo_net_state owner = { .net = &w->rank[0].net };
        struct rondo_link link = { 0 };
        struct rondo_net_end end = { .owner = &owner, .link = &link, .device = &device };
        memset(&asked, 0, sizeof(asked));
        asked.takes = takes[i];
        rondo_net_gdr_choose(&end, &properties);
        assert_true(end.gdr.wanted);
        rondo_net_gdr_memory(&end, 1024);
        rondo_net_gdr_register(&end);
        assert_int_equal(end.gdr.on, takes[i] != 0);
        assert_int_equal(asked.n, takes[i] == RONDO_NET_DMABUF ? 1 : 2);
        assert_int_equal(asked.kinds[asked.n - 1], asked.n == 1 ? RONDO_NET_DMABUF : RONDO_NET_CUDA);
        assert_int_equal(owner.no_gdr, takes[i] == 0);
        rondo_net_gdr_close(&owner);
        ranks_close_gpus(w);
        check_nothing_left();
    }
}

/* Only what is received may need a flush. */
static void a_nic_that_cannot_flush_is_given_memory_that_needs_none(void **state)
{
    const struct rondo_net_device device = { .name = "asked", .reg = asked_reg };
    const struct rondo_net_properties properties = {
        .name = "fake0:2", .memory = RONDO_NET_HOST | RONDO_NET_DMABUF | RONDO_NET_NO_FLUSH
    };
    (void)state;
    set("FAKE_CUDA_ORDERED", "1"); /* so only the topology asks for flushes */
    for (int flush = 0; flush < 2; flush++) {
        struct world *w = gdr_new(1, READ | WRITE | (flush ? FLUSH : 0), 0);
        assert_int_equal(rank_open(w, 0, MAX_LINKS), RONDO_SUCCESS);
        for (int is_send = 0; is_send < 2; is_send++) {
            struct rondo_net_state owner = { .net = &w->rank[0].net };
            struct rondo_link link = { .is_send = is_send };
            struct rondo_net_end end = { .owner = &owner, .link = &link, .device = &device };
            rondo_net_gdr_choose(&end, &properties);
            assert_int_equal(end.gdr.wanted, is_send || !flush);
            assert_false(end.gdr.flush);
        }
        ranks_close_gpus(w);
        check_nothing_left();
    }
    set("FAKE_CUDA_ORDERED", NULL);
}

/* Data that the NIC writes past the GPU's order is flushed, whatever the GPU and the topology say. */
static void a_nic_that_wants_flushes_gets_them(void **state)
{
    static const struct {
        uint32_t says;
        int off, wanted, flush;
    } rows[] = { { 0, 0, 1, 0 },
                 { RONDO_NET_FLUSH, 0, 1, 1 },
                 { RONDO_NET_FLUSH, 1, 1, 0 },
                 { RONDO_NET_FLUSH | RONDO_NET_NO_FLUSH, 0, 0, 0 } };
    const struct rondo_net_device device = { .name = "asked", .reg = asked_reg };
    (void)state;
    set("FAKE_CUDA_ORDERED", "1");
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        const struct rondo_net_properties properties = {
            .name = "fake0:2", .memory = RONDO_NET_HOST | RONDO_NET_DMABUF | rows[i].says
        };
        set("RONDO_GDR_FLUSH_DISABLE", rows[i].off ? "1" : NULL);
        struct world *w = gdr_new(1, READ | WRITE, 0);
        assert_int_equal(rank_open(w, 0, MAX_LINKS), RONDO_SUCCESS);
        for (int is_send = 0; is_send < 2; is_send++) {
            struct rondo_net_state owner = { .net = &w->rank[0].net };
            struct rondo_link link = { .is_send = is_send };
            struct rondo_net_end end = { .owner = &owner, .link = &link, .device = &device };
            rondo_net_gdr_choose(&end, &properties);
            assert_int_equal(end.gdr.wanted, is_send || rows[i].wanted);
            assert_int_equal(end.gdr.flush, !is_send && rows[i].flush);
        }
        ranks_close_gpus(w);
        check_nothing_left();
    }
    set("RONDO_GDR_FLUSH_DISABLE", NULL);
    set("FAKE_CUDA_ORDERED", NULL);
}

/* ---- lazy links ---- */

static void lazy_links_use_the_gpus_own_nic(void **state)
{
    struct world *w = gdr_new(2, READ | WRITE | OWN, READ | WRITE | OWN);
    (void)state;
    set("RONDO_IB_HCA", "fake0"); /* allow both ports */
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(rank_open(w, rank, MAX_LINKS), RONDO_SUCCESS);
    }
    for (int is_send = 0; is_send < 2; is_send++) {
        struct rondo_link link;
        struct rondo_connect record;
        assert_int_equal(
            rondo_link_offer(&w->rank[0].net, &link, 1, -1, is_send, 1u << RONDO_PROTO_SIMPLE, NULL, &record),
            RONDO_SUCCESS);
        assert_string_equal(((struct rondo_net_end *)link.state)->via, "NET/verbs/fake0:2");
        rondo_link_close(&w->rank[0].net, &link);
    }
    snprintf(nics[0].name, sizeof(nics[0].name), "fake0:1");
    struct rondo_link link;
    struct rondo_connect record;
    assert_int_equal(
        rondo_link_offer(&w->rank[0].net, &link, 1, -1, 1, 1u << RONDO_PROTO_SIMPLE, NULL, &record),
        RONDO_SUCCESS);
    assert_string_equal(((struct rondo_net_end *)link.state)->via, "NET/verbs/fake0:1");
    rondo_link_close(&w->rank[0].net, &link);
    ranks_close_gpus(w);
    all_is_given_back();
    set("RONDO_IB_HCA", "=fake0:2");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(slots_are_where_the_topology_says),
        TEST(devices_that_are_late_or_busy_lose_nothing),
        TEST(nics_that_take_no_gpu_memory_are_not_given_any),
        TEST(slices_that_arrive_together_are_flushed_once_before_they_are_announced),
        TEST(slices_that_arrived_outlive_their_sender),
        TEST(flushes_are_left_out_where_nothing_needs_them),
        TEST(devices_are_called_with_the_gpus_context),
        TEST(slots_that_the_nic_refuses_are_in_host_memory),
        TEST(slots_without_a_descriptor_are_in_host_memory),
        TEST(driver_calls_that_fail_leave_nothing),
        TEST(the_kernel_module_is_tried_after_dma_buf),
        TEST(a_nic_that_wants_flushes_gets_them),
        TEST(a_nic_that_cannot_flush_is_given_memory_that_needs_none),
        TEST(lazy_links_use_the_gpus_own_nic),
    };
    choose_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
