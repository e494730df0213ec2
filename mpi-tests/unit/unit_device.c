/* Communicators with a GPU on the fake CUDA driver: collectives, streams, groups, graphs, operations,
 * children. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "comm/links.h"
#include "device_world.h"

/* ---- collectives ---- */

static void collectives_are_right_on_1_2_and_4_gpus(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    device_ranks(1, 0, device_every_collective, NULL);
    device_ranks(2, 0, device_every_collective, NULL);
    device_ranks(4, 0, device_every_collective, NULL);
}

static void collectives_are_right_with_each_algorithm_and_protocol(void **state)
{
    static const char *const algos[] = { "ring", "ring;all_reduce:tree;broadcast:tree;reduce:tree" },
                             *const protos[] = { "simple", "ll", "ll128" };
    const char *machine = device_machine(device_machine_text);
    (void)state;
    for (size_t a = 0; a < RONDO_COUNTOF(algos); a++) {
        for (size_t p = 0; p < RONDO_COUNTOF(protos); p++) {
            fake_params(SMALL, "MAX_NCHANNELS", "2", "ALGO", algos[a], "PROTO", protos[p], "TOPO_FILE",
                        machine, NULL);
            device_ranks(3, 0, device_every_collective, NULL);
        }
    }
    device_machine_end(machine);
}

static void all_to_all_by_hand(struct fake_rank *r);

/* Only a net device, with slots in pinned memory and a thread that carries them. */
static void collectives_are_right_through_sockets(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", "P2P_DISABLE", "1", "SHM_DISABLE", "1", "SOCKET_IFNAME", "lo",
                NULL);
    device_ranks(2, 0, device_every_collective, NULL);
    device_ranks(2, 0, all_to_all_by_hand, NULL);
}

/* Kernels use the device's addresses, hosts their own. */
static int is_elsewhere(const struct rondo_link *link)
{
    return (const void *)link->conn.head != (const void *)link->head &&
           (const void *)link->conn.tail != (const void *)link->tail;
}

static void at_device_addresses(struct fake_rank *r)
{
    const struct rondo_wiring *wiring = &r->comm->ctx->wiring;
    all_to_all_by_hand(r);
    for (int i = 0; i < wiring->nlinks; i++) {
        FAKE_CHECK(r, is_elsewhere(&wiring->links[i]), "link %d", i);
    }
    for (int p = 0; p < r->nranks; p++) {
        for (int d = 0; d < 2 && p != r->rank; d++) {
            FAKE_CHECK(r, is_elsewhere(&wiring->p2p[p]->link[d]), "direction %d with rank %d", d, p);
        }
    }
}

/* Slots in host memory, mapped on both GPUs, which may see it elsewhere. */
static void collectives_are_right_through_shared_memory(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", "P2P_DISABLE", "1", NULL);
    device_ranks(2, 0, device_every_collective, NULL);
    device_ranks(3, 0, all_to_all_by_hand, NULL);
    setenv("FAKE_CUDA_ALIAS", "1", 1);
    device_ranks(2, 0, device_every_collective, NULL);
    device_ranks(3, 0, at_device_addresses, NULL);
    unsetenv("FAKE_CUDA_ALIAS");
}

static void ranks_may_share_a_gpu_when_allowed(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    device_ranks(2, 1, device_every_collective, NULL);
}

/* ---- streams ---- */

enum { IN_A_ROW = 40 };

/* Successive calls in different streams, without the host waiting; each reads what the previous one wrote. */
static void chain(struct fake_rank *r)
{
    const struct device *d = device_of(r);
    CUstream other;
    CUdeviceptr memory = device_new(sizeof(int64_t));
    int64_t one = 1, sum = 0, want = 1;
    CU(cu()->StreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
    device_put(d, memory, &one, sizeof(one));
    for (int i = 0; i < IN_A_ROW; i++, want *= r->nranks) {
        void *x = (void *)(uintptr_t)memory;
        FAKE_OK(r, rondo_all_reduce(x, x, 1, RONDO_INT64, RONDO_SUM, r->comm,
                                    RONDO_CUDA_STREAM(i % 2 == 0 ? d->stream : other)));
    }
    CU(cu()->StreamSynchronize(other));
    device_get(d, &sum, memory, sizeof(sum));
    FAKE_CHECK(r, sum == want, "%lld, not %lld", (long long)sum, (long long)want);
    CU(cu()->StreamDestroy(other));
    CU(cu()->MemFree(memory));
}

static void calls_in_several_streams_keep_their_order(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    device_ranks(2, 0, chain, NULL);
}

static void hold(void *arg)
{
    (void)arg;
    fake_sleep_ms(20); /* later than a host that does not wait */
}

/* A group's calls in three streams. Each call has its input from its own stream, and each stream continues
 * after the whole group. */
static void streams_of_a_group(struct fake_rank *r)
{
    enum { STREAMS = 3, GROUPS = 5 };
    const struct device *d = device_of(r);
    CUstream stream[STREAMS] = { d->stream };
    CUdeviceptr memory = device_new(STREAMS * sizeof(int64_t)), other = device_new(STREAMS * sizeof(int64_t));
    int64_t *x = (void *)(uintptr_t)memory, *y = (void *)(uintptr_t)other, host[STREAMS],
            got[STREAMS] = { 0 };
    for (int s = 1; s < STREAMS; s++) {
        CU(cu()->StreamCreateWithPriority(&stream[s], CU_STREAM_NON_BLOCKING, 0));
    }
    for (int g = 0; g < GROUPS; g++) {
        for (int s = 0; s < STREAMS; s++) {
            host[s] = 100 * g + 10 * s + r->rank;
            if (s == 1 + g % 2) { /* neither the first one nor all others */
                CU(cu()->LaunchHostFunc(stream[(s + g) % STREAMS], hold, NULL));
            }
            CU(cu()->MemcpyAsync((CUdeviceptr)(uintptr_t)(x + s), (CUdeviceptr)(uintptr_t)&host[s],
                                 sizeof(*x), stream[(s + g) % STREAMS]));
        }
        FAKE_OK(r, rondo_group_start());
        for (int s = 0; s < STREAMS; s++) {
            FAKE_OK(r, rondo_all_reduce(x + s, y + s, 1, RONDO_INT64, RONDO_SUM, r->comm,
                                        RONDO_CUDA_STREAM(stream[(s + g) % STREAMS])));
        }
        FAKE_OK(r, rondo_group_end());
        for (int s = 0; s < STREAMS; s++) { /* call s in another stream of the group */
            CUstream reads = stream[(s + g + 1) % STREAMS];
            CU(cu()->MemcpyAsync((CUdeviceptr)(uintptr_t)&got[s], (CUdeviceptr)(uintptr_t)(y + s), sizeof(*y),
                                 reads));
            CU(cu()->StreamSynchronize(reads));
            FAKE_CHECK(r, got[s] == (100 * g + 10 * s) * r->nranks + r->nranks * (r->nranks - 1) / 2,
                       "group %d, call %d: %lld", g, s, (long long)got[s]);
        }
    }
    for (int s = 1; s < STREAMS; s++) {
        CU(cu()->StreamDestroy(stream[s]));
    }
    CU(cu()->MemFree(other));
    CU(cu()->MemFree(memory));
}

static void calls_of_a_group_may_be_in_several_streams(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    device_ranks(2, 0, streams_of_a_group, NULL);
    device_ranks(2, 1, streams_of_a_group, NULL);
}

/* The stream of another device than the communicator's. */
static void foreign(struct fake_rank *r)
{
    struct device other;
    struct device_call c = { .call = { .coll = FAKE_ALL_REDUCE,
                                       .type = RONDO_INT32,
                                       .count = 1000,
                                       .rank = r->rank,
                                       .nranks = r->nranks } };
    const char *wrong;
    device_call_prepare(device_of(r), &c);
    device_open(&other, r->nranks - 1 - r->rank);
    FAKE_OK(r, device_call_issue(&c, r->comm, other.stream));
    CU(cu()->StreamSynchronize(other.stream));
    device_close(&other);
    wrong = device_call_check(device_of(r), &c);
    FAKE_CHECK(r, *wrong == '\0', "%s", wrong);
}

static void a_stream_of_another_device_is_accepted(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    device_ranks(2, 0, foreign, NULL);
}

static void default_stream(struct fake_rank *r)
{
    struct device_call c = { .call = { .coll = FAKE_ALL_REDUCE,
                                       .type = RONDO_INT32,
                                       .count = 100,
                                       .rank = r->rank,
                                       .nranks = r->nranks } };
    device_call_prepare(device_of(r), &c);
    FAKE_ERROR(r, device_call_issue(&c, r->comm, NULL), RONDO_INVALID_USAGE, "default stream");
    device_call_check(device_of(r), &c);
    rondo_comm_abort(r->comm);
    r->comm = NULL;
}

static void the_default_stream_is_refused_to_ranks_that_share_a_gpu(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    device_ranks(2, 1, default_stream, NULL);
}

static void host_types(struct fake_rank *r)
{
    const struct device *d = device_of(r);
    CUdeviceptr memory = device_new(4096);
    void *x = (void *)(uintptr_t)memory;
    rondo_stream stream = RONDO_CUDA_STREAM(d->stream);
    FAKE_ERROR(r, rondo_all_reduce(x, x, 4, RONDO_INT16, RONDO_SUM, r->comm, stream), RONDO_INVALID_ARGUMENT,
               "i16 is of host memory only; on a GPU there are i8, u8,");
    FAKE_ERROR(r, rondo_all_gather(x, x, 1, RONDO_FLOAT_INT, r->comm, stream), RONDO_INVALID_ARGUMENT,
               "float_int is of host memory only");
    FAKE_ERROR(r, rondo_all_reduce(x, x, 4, RONDO_INT32, RONDO_BXOR, r->comm, stream), RONDO_INVALID_ARGUMENT,
               "i32 has sum, prod, max, min, avg on a GPU");
    device_delete(memory);
    DEVICE_CALL(r, d, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 5);
}

static void types_and_operations_that_gpus_lack_are_refused(void **state)
{
    (void)state;
    device_ranks(2, 0, host_types, NULL);
}

/* ---- groups ---- */

enum { MESSAGES = 3, WORDS = 700 };

/* Everyone sends several messages to everyone, itself included: more than run at once on one channel. */
static void all_to_all_by_hand(struct fake_rank *r)
{
    const struct device *d = device_of(r);
    size_t n = (size_t)r->nranks * MESSAGES * WORDS;
    int32_t *host = malloc(2 * n * sizeof(*host));
    CUdeviceptr memory = device_new(2 * n * sizeof(*host));
    for (size_t i = 0; i < n; i++) {
        host[i] = r->rank * 1000000 + (int)i;
        host[n + i] = -1;
    }
    device_put(d, memory, host, 2 * n * sizeof(*host));
    FAKE_OK(r, rondo_group_start());
    for (int m = 0; m < MESSAGES; m++) {
        for (int p = 0; p < r->nranks; p++) {
            int32_t *send = (int32_t *)(uintptr_t)memory + (p * MESSAGES + m) * WORDS, *recv = send + n;
            FAKE_OK(r, rondo_send(send, WORDS, RONDO_INT32, p, r->comm, RONDO_CUDA_STREAM(d->stream)));
            FAKE_OK(r, rondo_recv(recv, WORDS, RONDO_INT32, p, r->comm, RONDO_CUDA_STREAM(d->stream)));
        }
    }
    FAKE_OK(r, rondo_group_end());
    CU(cu()->StreamSynchronize(d->stream));
    device_get(d, host, memory, 2 * n * sizeof(*host));
    for (size_t i = 0; i < n; i++) {
        int from = (int)(i / (MESSAGES * WORDS)),
            want = from * 1000000 + r->rank * MESSAGES * WORDS + (int)(i % (MESSAGES * WORDS));
        FAKE_CHECK(r, host[n + i] == want, "word %zu is %d, not %d", i, host[n + i], want);
    }
    free(host);
    CU(cu()->MemFree(memory));
}

static void groups_of_messages_never_block_each_other(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", NULL);
    device_ranks(2, 0, all_to_all_by_hand, NULL);
    device_ranks(4, 0, all_to_all_by_hand, NULL);
}

/* Slices that this rank has received by LL: lines with a flag. */
static int ll_slots_used(const struct device *d, const struct rondo_conn *conn)
{
    uint64_t line[2];
    int n = 0;
    for (int s = 0; conn->slots[RONDO_PROTO_LL] != NULL && s < RONDO_SLOTS; s++) {
        device_get(d, line,
                   (CUdeviceptr)(uintptr_t)conn->slots[RONDO_PROTO_LL] +
                       (size_t)s * conn->slot_bytes[RONDO_PROTO_LL],
                   sizeof(line));
        n += line[0] >> 32 != 0;
    }
    return n;
}

/* A message of each length between two ranks in one group. Those of up to RONDO_P2P_LL_THRESHOLD bytes use
 * LL, as both ends know; *arg: how many. */
static void some_messages(struct fake_rank *r)
{
    static const size_t length[] = { 1, 200, 201, 256 }; /* a slice each */
    const struct device *d = device_of(r);
    uint8_t host[2][4][1000];
    CUdeviceptr memory = device_new(sizeof(host));
    const int other = 1 - r->rank, want = *(const int *)((struct place *)r->arg)->arg;
    int used;
    for (size_t i = 0; i < sizeof(host); i++)
        ((uint8_t *)host)[i] = (uint8_t)(i * 13 + (size_t)r->rank * 100 + i / 1000);
    device_put(d, memory, host, sizeof(host));
    FAKE_OK(r, rondo_group_start());
    for (size_t i = 0; i < RONDO_COUNTOF(length); i++) {
        uint8_t *send = (uint8_t *)(uintptr_t)memory + i * 1000, *recv = send + sizeof(host[0]);
        FAKE_OK(r, rondo_send(send, length[i], RONDO_UINT8, other, r->comm, RONDO_CUDA_STREAM(d->stream)));
        FAKE_OK(r, rondo_recv(recv, length[i], RONDO_UINT8, other, r->comm, RONDO_CUDA_STREAM(d->stream)));
    }
    FAKE_OK(r, rondo_group_end());
    CU(cu()->StreamSynchronize(d->stream));
    device_get(d, host[1], memory + sizeof(host[0]), sizeof(host[1]));
    for (size_t k = 0; k < sizeof(host[0]); k++) {
        uint8_t mine = (uint8_t)((k + sizeof(host[0])) * 13 + (size_t)r->rank * 100 +
                                 (k + sizeof(host[0])) / 1000);
        uint8_t theirs = (uint8_t)(k * 13 + (size_t)other * 100 + k / 1000);
        FAKE_CHECK(r, ((uint8_t *)host[1])[k] == (k % 1000 < length[k / 1000] ? theirs : mine), "byte %zu",
                   k);
    }
    used = ll_slots_used(d, &r->comm->ctx->wiring.p2p[other]->link[0].conn);
    FAKE_CHECK(r, used == want, "%d messages came by LL, not %d", used, want);
    CU(cu()->MemFree(memory));
}

static void small_messages_use_ll(void **state)
{
    static const struct {
        const char *threshold, *proto, *no_p2p;
        int by_ll;
    } cases[] = {
        { "200", "", "0", 2 }, { "16K", "", "1", 4 }, { "0", "", "0", 0 }, { "16K", "send:simple", "0", 0 }
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(cases); i++) {
        int by_ll = cases[i].by_ll;
        fake_params(SMALL, "P2P_LL_THRESHOLD", cases[i].threshold, "PROTO", cases[i].proto, "P2P_DISABLE",
                    cases[i].no_p2p, NULL);
        device_ranks(2, 0, some_messages, &by_ll);
    }
}

/* More works than fit the arguments of a launch, of several kernels, in one group. */
static void many_in_a_group(struct fake_rank *r)
{
    enum { CALLS = 30 };
    struct device_call c[CALLS];
    memset(c, 0, sizeof(c));
    FAKE_OK(r, rondo_group_start());
    for (unsigned i = 0; i < CALLS; i++) {
        c[i].call = (struct fake_call){ .coll = (enum fake_coll)(i % 7),
                                        .type = i < 20 ? RONDO_INT32 : RONDO_FLOAT32,
                                        .count = 50 + i,
                                        .seed = i,
                                        .rank = r->rank,
                                        .nranks = r->nranks };
        device_call_prepare(device_of(r), &c[i]);
        FAKE_OK(r, device_call_issue(&c[i], r->comm, device_of(r)->stream));
    }
    FAKE_OK(r, rondo_group_end());
    CU(cu()->StreamSynchronize(device_of(r)->stream));
    for (int i = 0; i < CALLS; i++) {
        const char *wrong = device_call_check(device_of(r), &c[i]);
        FAKE_CHECK(r, *wrong == '\0', "call %d: %s", i, wrong);
    }
}

static void a_group_may_hold_more_than_a_launch(void **state)
{
    (void)state;
    fake_params(SMALL, "MIN_NCHANNELS", "4", NULL);
    device_ranks(2, 0, many_in_a_group, NULL);
}

/* One thread has two ranks, each on its own GPU, in groups. */
static void one_thread_may_run_all_ranks(void **state)
{
    enum { N = 2 };
    struct device device[N];
    struct device_call c[N] = { 0 };
    rondo_comm *comm[N];
    rondo_local *local;
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    local = device_one_thread(N, comm);
    rondo_group_start();
    for (int r = 0; r < N; r++) {
        device_open(&device[r], r);
        c[r].call = (struct fake_call){
            .coll = FAKE_ALL_TO_ALL, .type = RONDO_INT32, .count = 3000, .rank = r, .nranks = N
        };
        device_call_prepare(&device[r], &c[r]);
        assert_int_equal(device_call_issue(&c[r], comm[r], device[r].stream), RONDO_SUCCESS);
    }
    assert_int_equal(rondo_group_end(), RONDO_SUCCESS);
    for (int r = N - 1; r >= 0; r--) { /* contexts nest */
        CU(cu()->StreamSynchronize(device[r].stream));
        assert_string_equal(device_call_check(&device[r], &c[r]), "");
        device_close(&device[r]);
    }
    for (int r = 0; r < N; r++) {
        assert_int_equal(rondo_comm_destroy(comm[r]), RONDO_SUCCESS);
    }
    rondo_local_destroy(local);
}

/* Both ranks have calls in both devices' streams. No stream may wait for one rank before it has the other
 * one's launch. */
static void one_thread_may_use_its_streams_crosswise(void **state)
{
    enum { N = 2 };
    struct device device[N];
    struct device_call c[N][N] = { 0 };
    rondo_comm *comm[N];
    rondo_local *local;
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    local = device_one_thread(N, comm);
    for (int r = 0; r < N; r++) {
        device_open(&device[r], r);
        for (int i = 0; i < N; i++) {
            c[r][i].call = (struct fake_call){
                .coll = FAKE_ALL_TO_ALL, .type = RONDO_INT32, .count = 300, .rank = r, .nranks = N
            };
            device_call_prepare(&device[r], &c[r][i]);
        }
    }
    rondo_group_start();
    for (int r = 0; r < N; r++) {
        for (int i = 0; i < N; i++) {
            assert_int_equal(device_call_issue(&c[r][i], comm[r], device[(r + i) % N].stream), RONDO_SUCCESS);
        }
    }
    assert_int_equal(rondo_group_end(), RONDO_SUCCESS);
    rondo_group_start(); /* one stream, which for one rank is another device's */
    for (int r = 0; r < N; r++) {
        assert_int_equal(device_call_issue(&c[r][0], comm[r], device[1].stream), RONDO_SUCCESS);
    }
    assert_int_equal(rondo_group_end(), RONDO_SUCCESS);
    CU(cu()->StreamSynchronize(device[1].stream));
    CU(cu()->StreamSynchronize(device[0].stream));
    for (int r = N - 1; r >= 0; r--) { /* contexts nest */
        for (int i = 0; i < N; i++) {
            assert_string_equal(device_call_check(&device[r], &c[r][i]), "");
        }
        device_close(&device[r]);
    }
    for (int r = 0; r < N; r++) {
        assert_int_equal(rondo_comm_destroy(comm[r]), RONDO_SUCCESS);
    }
    rondo_local_destroy(local);
}

/* ---- graphs ---- */

/* A second stream that joins the capture has a call of the same group. */
static void captured_streams(struct fake_rank *r)
{
    enum { REPLAYS = 20 };
    const struct device *d = device_of(r);
    CUdeviceptr memory = device_new(2 * sizeof(int64_t));
    int64_t *x = (void *)(uintptr_t)memory, host[2] = { 1, 1 }, want = 1;
    struct device_graph graph;
    CUstream other;
    CUevent event;
    CU(cu()->StreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
    CU(cu()->EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    device_put(d, memory, host, sizeof(host));
    device_capture(d);
    CU(cu()->EventRecord(event, d->stream));
    CU(cu()->StreamWaitEvent(other, event, 0));
    FAKE_OK(r, rondo_group_start());
    FAKE_OK(r, rondo_all_reduce(x, x, 1, RONDO_INT64, RONDO_SUM, r->comm, RONDO_CUDA_STREAM(d->stream)));
    FAKE_OK(r, rondo_all_reduce(x + 1, x + 1, 1, RONDO_INT64, RONDO_SUM, r->comm, RONDO_CUDA_STREAM(other)));
    FAKE_OK(r, rondo_group_end());
    CU(cu()->EventRecord(event, other));
    CU(cu()->StreamWaitEvent(d->stream, event, 0));
    device_graph_make(d, &graph);
    device_graph_run(d, &graph, REPLAYS);
    device_get(d, host, memory, sizeof(host));
    for (int i = 0; i < REPLAYS; i++) {
        want *= r->nranks;
    }
    FAKE_CHECK(r, host[0] == want && host[1] == want, "%lld and %lld, not %lld", (long long)host[0],
               (long long)host[1], (long long)want);
    device_graph_free(&graph);
    CU(cu()->EventDestroy(event));
    CU(cu()->StreamDestroy(other));
    CU(cu()->MemFree(memory));
}

/* Also of a group. Calls before and after it are made. */
static void capture_refused(struct fake_rank *r)
{
    const struct device *d = device_of(r);
    struct device_graph graph;
    rondo_stream stream = RONDO_CUDA_STREAM(d->stream);
    CUdeviceptr memory = device_new(sizeof(int32_t));
    int32_t *x = (void *)(uintptr_t)memory, host = 1;
    device_put(d, memory, &host, sizeof(host));
    FAKE_OK(r, rondo_all_reduce(x, x, 1, RONDO_INT32, RONDO_SUM, r->comm, stream));
    device_capture(d);
    FAKE_ERROR(r, rondo_all_reduce(x, x, 1, RONDO_INT32, RONDO_SUM, r->comm, stream), RONDO_INVALID_USAGE,
               "update it to 12.3");
    FAKE_OK(r, rondo_group_start());
    FAKE_ERROR(r, rondo_all_reduce(x, x, 1, RONDO_INT32, RONDO_SUM, r->comm, stream), RONDO_INVALID_USAGE,
               "update it to 12.3");
    FAKE_ERROR(r, rondo_group_end(), RONDO_INVALID_USAGE, "update it to 12.3");
    device_graph_make(d, &graph);
    device_graph_free(&graph);
    FAKE_OK(r, rondo_all_reduce(x, x, 1, RONDO_INT32, RONDO_SUM, r->comm, stream));
    device_get(d, &host, memory, sizeof(host));
    FAKE_CHECK(r, host == r->nranks * r->nranks, "%d", (int)host);
    CU(cu()->MemFree(memory));
}

/* What tells captures apart, drivers 12.0 to 12.2 lack under the name of newer headers. */
static void an_old_driver_makes_calls_but_captures_none(void **state)
{
    struct rondo_cuda *table = (struct rondo_cuda *)(uintptr_t)cu(), real = *table;
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", NULL);
    table->StreamGetCaptureInfo = NULL;
    device_ranks(2, 0, capture_refused, NULL);
    *table = real;
}

static void captured_groups_may_use_several_streams(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "1", NULL);
    device_ranks(2, 0, captured_streams, NULL);
}

static void create_only(struct fake_rank *r)
{
    rondo_config config = device_config(r->rank);
    FAKE_OK(r, rondo_comm_create_local(r->local, r->rank, &config, &r->comm));
    FAKE_OK(r, rondo_comm_destroy(r->comm));
    r->comm = NULL;
}

/* The first communicator of a GPU loads its kernels, the last one to end unloads them. */
static void communicators_come_and_go_while_another_thread_captures(void **state)
{
    struct device d;
    CUgraph graph = NULL;
    (void)state;
    device_open(&d, 3);
    CU(DEVICE_CALL_OF("cuStreamBeginCapture_v2", CUstream,
                      CUstreamCaptureMode)(d.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    fake_ranks_bare(2, create_only, NULL);
    CU(DEVICE_CALL_OF("cuStreamEndCapture", CUstream, CUgraph *)(d.stream, &graph)); /* it is still valid */
    CU(DEVICE_CALL_OF("cuGraphDestroy", CUgraph)(graph));
    device_close(&d);
}

/* Captured once and replayed: sums and messages use what the previous replay left. */
static void replays(struct fake_rank *r)
{
    const struct device *d = device_of(r);
    enum { REPLAYS = 1000 };
    uint32_t host[4] = { (uint32_t)r->rank + 1, 0, 0, 0 }, want = 0;
    CUdeviceptr memory = device_new(sizeof(host));
    uint32_t *x = (uint32_t *)(uintptr_t)memory;
    size_t counts[3] = { 1, 1, 1 }, displs[3] = { 0, 1, 2 };
    int next = (r->rank + 1) % r->nranks, before = (r->rank + r->nranks - 1) % r->nranks;
    rondo_stream stream = RONDO_CUDA_STREAM(d->stream);
    struct device_graph graph;
    device_put(d, memory, host, sizeof(host));
    device_capture(d);
    FAKE_OK(r, rondo_group_start());
    FAKE_OK(r, rondo_send(x, 1, RONDO_UINT32, next, r->comm, stream));
    FAKE_OK(r, rondo_recv(x + 1, 1, RONDO_UINT32, before, r->comm, stream));
    FAKE_OK(r, rondo_group_end());
    FAKE_OK(r, rondo_all_reduce(x + 1, x, 1, RONDO_UINT32, RONDO_SUM, r->comm, stream));
    FAKE_OK(r, rondo_all_gatherv(x, x + 1, counts, displs, RONDO_UINT32, r->comm,
                                 stream)); /* reads counts from the graph's memory */
    device_graph_make(d, &graph);
    counts[0] = counts[1] = counts[2] = 0; /* the array is ours again */
    device_graph_run(d, &graph, REPLAYS);
    device_get(d, host, memory, sizeof(host));
    for (int i = 0; i < REPLAYS; i++) {
        want = i == 0 ? (uint32_t)r->nranks * ((uint32_t)r->nranks + 1) / 2 : want * (uint32_t)r->nranks;
    }
    for (int i = 0; i < 4; i++) {
        FAKE_CHECK(r, host[i] == want, "word %d is %u, not %u", i, host[i], want);
    }
    device_graph_free(&graph);
    CU(cu()->MemFree(memory));
    DEVICE_CALL(r, d, .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32,
                .count = 100); /* the communicator still works */
}

static void graphs_of_all_calls_replay_1000_times(void **state)
{
    (void)state;
    fake_params("BUFFSIZE", "64K", "MAX_NCHANNELS", "2", NULL);
    device_ranks(3, 0, replays, NULL);
}

/* ---- operations ---- */

static void scalars(struct fake_rank *r)
{
    const struct device *d = device_of(r);
    CUdeviceptr memory = device_new(64);
    double *x = (double *)(uintptr_t)memory, host[2] = { 1, 0 }, scalar = r->rank + 2, want = 0;
    rondo_op op;
    device_put(d, memory, host, sizeof(host));
    FAKE_OK(r, rondo_op_create_premul_sum_device(&op, x + 4, RONDO_FLOAT64, r->comm));
    device_put(d, memory + 32, &scalar, sizeof(scalar)); /* after the operation was created */
    FAKE_OK(r, rondo_all_reduce(x, x + 1, 1, RONDO_FLOAT64, op, r->comm, RONDO_CUDA_STREAM(d->stream)));
    CU(cu()->StreamSynchronize(d->stream));
    device_get(d, host, memory, sizeof(host));
    for (int i = 0; i < r->nranks; i++) {
        want += i + 2;
    }
    FAKE_CHECK(r, host[1] == want, "%g, not %g", host[1], want);
    FAKE_OK(r, rondo_op_destroy(op, r->comm));
    CU(cu()->MemFree(memory));
}

static void scalars_on_the_device_are_read_when_the_call_runs(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    device_ranks(1, 0, scalars, NULL);
    device_ranks(2, 0, scalars, NULL);
}

/* ---- several communicators, children ---- */

static void children(struct fake_rank *r)
{
    rondo_comm *parent = r->comm, *child = NULL;
    int device = -1;
    FAKE_OK(r, rondo_comm_split(parent, 0, r->nranks - r->rank, NULL, &child));
    FAKE_OK(r, rondo_comm_device(child, &device));
    FAKE_CHECK(r, device == device_of(r)->gpu.ordinal);
    for (int i = 0; i < 6; i++) {
        struct fake_rank as = *r;
        as.comm = i % 2 == 0 ? parent : child;
        as.rank = i % 2 == 0 ? r->rank : r->nranks - 1 - r->rank;
        DEVICE_CALL(&as, device_of(r), .coll = FAKE_ALL_GATHER, .type = RONDO_INT32, .count = 500,
                    .seed = (unsigned)i);
        FAKE_CHECK(r, as.failure[0] == '\0', "%s", as.failure);
    }
    FAKE_OK(r, rondo_comm_destroy(child));
}

static void children_use_their_parents_device(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    device_ranks(2, 0, children, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_are_right_on_1_2_and_4_gpus),
        cmocka_unit_test(collectives_are_right_with_each_algorithm_and_protocol),
        cmocka_unit_test(collectives_are_right_through_sockets),
        cmocka_unit_test(collectives_are_right_through_shared_memory),
        cmocka_unit_test(ranks_may_share_a_gpu_when_allowed),
        cmocka_unit_test(calls_in_several_streams_keep_their_order),
        cmocka_unit_test(calls_of_a_group_may_be_in_several_streams),
        cmocka_unit_test(a_stream_of_another_device_is_accepted),
        cmocka_unit_test(the_default_stream_is_refused_to_ranks_that_share_a_gpu),
        cmocka_unit_test(types_and_operations_that_gpus_lack_are_refused),
        cmocka_unit_test(groups_of_messages_never_block_each_other),
        cmocka_unit_test(small_messages_use_ll),
        cmocka_unit_test(a_group_may_hold_more_than_a_launch),
        cmocka_unit_test(one_thread_may_run_all_ranks),
        cmocka_unit_test(one_thread_may_use_its_streams_crosswise),
        cmocka_unit_test(captured_groups_may_use_several_streams),
        cmocka_unit_test(an_old_driver_makes_calls_but_captures_none),
        cmocka_unit_test(communicators_come_and_go_while_another_thread_captures),
        cmocka_unit_test(graphs_of_all_calls_replay_1000_times),
        cmocka_unit_test(scalars_on_the_device_are_read_when_the_call_runs),
        cmocka_unit_test(children_use_their_parents_device),
    };
    device_driver();
    fake_watchdog(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
