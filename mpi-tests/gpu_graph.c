/* Replays of a captured graph. Each replay works on the results of the previous one, so that a missing or an
 * additional replay is detected. */
#include "gpu_world.h"

enum {
    WORDS = 1003,
    AT_ONCE = 64
}; /* pending replays: a full queue would block the launching rank, and perhaps the others */

/* Driver calls for graphs. */
static struct {
    CUresult (*begin)(CUstream, CUstreamCaptureMode);
    CUresult (*end)(CUstream, CUgraph *);
    CUresult (*instantiate)(CUgraphExec *, CUgraph, unsigned long long);
    CUresult (*launch)(CUgraphExec, CUstream);
    CUresult (*destroy)(CUgraph);
    CUresult (*destroy_exec)(CUgraphExec);
} call;

static void find_calls(void)
{
    call.begin = (CUresult(*)(CUstream, CUstreamCaptureMode))gpu_driver_call("cuStreamBeginCapture_v2");
    call.end = (CUresult(*)(CUstream, CUgraph *))gpu_driver_call("cuStreamEndCapture");
    call.instantiate = (CUresult(*)(CUgraphExec *, CUgraph, unsigned long long))gpu_driver_call(
        "cuGraphInstantiateWithFlags");
    call.launch = (CUresult(*)(CUgraphExec, CUstream))gpu_driver_call("cuGraphLaunch");
    call.destroy = (CUresult(*)(CUgraph))gpu_driver_call("cuGraphDestroy");
    call.destroy_exec = (CUresult(*)(CUgraphExec))gpu_driver_call("cuGraphExecDestroy");
}

/* x: sums, equal on all ranks; out: the message to the next rank; in: the message received. */
struct words {
    uint64_t x[WORDS], out[WORDS], in[WORDS];
};

/* Rank 0 multiplies by 3, the others by 2: the sum of all is odd, and its powers never become 0. */
static uint64_t scalar_of(int rank) { return rank == 0 ? 3 : 2; }

static uint64_t power(uint64_t base, long exponent)
{
    uint64_t result = 1;
    for (long i = 0; i < exponent; i++) {
        result *= base;
    }
    return result;
}

static void fill(struct words *w, int rank)
{
    for (size_t i = 0; i < WORDS; i++) {
        w->x[i] = test_hash(1, 0, i) | 1;
        w->out[i] = test_hash(2, (uint64_t)rank, i);
        w->in[i] = 0;
    }
}

static void issue(const struct gpu_rank *r, struct words *w, rondo_op op)
{
    int next = (r->rank + 1) % r->nranks, before = (r->rank + r->nranks - 1) % r->nranks;
    TEST_MUST(rondo_all_reduce(w->x, w->x, WORDS, RONDO_UINT64, op, r->comm, r->stream), r->comm);
    TEST_MUST(rondo_group_start(), r->comm);
    TEST_MUST(rondo_send(w->out, WORDS, RONDO_UINT64, next, r->comm, r->stream), r->comm);
    TEST_MUST(rondo_recv(w->in, WORDS, RONDO_UINT64, before, r->comm, r->stream), r->comm);
    TEST_MUST(rondo_group_end(), r->comm);
    test_device_must(
        gpu_cuda()->MemcpyAsync(gpu_address(w->out), gpu_address(w->in), sizeof(w->in), (CUstream)r->stream),
        "cuMemcpyAsync into a graph");
}

static void check(const struct gpu_rank *r, const struct words *w, long replays)
{
    uint64_t factor = power(2 * (uint64_t)r->nranks + 1, replays);
    int from = (int)((r->rank + r->nranks - replays % r->nranks) % r->nranks);
    for (size_t i = 0; i < WORDS; i++) {
        uint64_t x = (test_hash(1, 0, i) | 1) * factor, came = test_hash(2, (uint64_t)from, i);
        if (w->x[i] != x || w->in[i] != came || w->out[i] != came) {
            test_check(0,
                       "rank %d: word %zu after %ld replays: sum %#llx, not %#llx; message %#llx and %#llx, "
                       "not %#llx",
                       r->rank, i, replays, (unsigned long long)w->x[i], (unsigned long long)x,
                       (unsigned long long)w->in[i], (unsigned long long)w->out[i], (unsigned long long)came);
            return;
        }
    }
    test_check(1, "graph");
}

static void replay(const struct gpu_rank *r, struct words *there, rondo_op op, long replays)
{
    CUstream stream = (CUstream)r->stream;
    CUgraphExec exec;
    CUgraph graph;
    test_device_must(call.begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
    issue(r, there, op);
    test_device_must(call.end(stream, &graph), "cuStreamEndCapture");
    test_device_must(call.instantiate(&exec, graph, 0), "cuGraphInstantiateWithFlags");
    gpu_meet(r);
    for (long i = 0; i < replays; i++) {
        test_device_must(call.launch(exec, stream), "cuGraphLaunch");
        if (i % AT_ONCE == AT_ONCE - 1) {
            test_device_wait(r->stream);
        }
    }
    test_device_wait(r->stream);
    gpu_meet(r);
    test_device_must(call.destroy_exec(exec), "cuGraphExecDestroy");
    test_device_must(call.destroy(graph), "cuGraphDestroy");
}

void gpu_graph_rank(struct gpu_rank *r)
{
    long replays = *(const long *)r->arg;
    uint64_t scalar = scalar_of(r->rank);
    struct words host, *there = test_device_alloc(sizeof(host));
    rondo_status status = RONDO_SUCCESS;
    rondo_op op;
    if (r->rank == 0) {
        test.what = "a graph";
        find_calls();
    }
    fill(&host, r->rank);
    test_device_copy(there, &host, sizeof(host));
    TEST_MUST(rondo_op_create_premul_sum(&op, &scalar, RONDO_UINT64, r->comm), r->comm);
    gpu_meet(r);
    replay(r, there, op, replays);
    test_device_copy(&host, there, sizeof(host));
    check(r, &host, replays);
    gpu_meet(r);
    issue(r, there, op); /* the communicator still works without the graph */
    test_device_wait(r->stream);
    TEST_MUST(rondo_comm_async_error(r->comm, &status), r->comm);
    TEST_MUST(status, r->comm);
    test_device_copy(&host, there, sizeof(host));
    check(r, &host, replays + 1);
    TEST_MUST(rondo_op_destroy(op, r->comm), r->comm);
    gpu_meet(r);
    test_device_free(there);
}
