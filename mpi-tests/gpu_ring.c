/*
 * gpu_ring: one launch whose blocks are the ranks of a ring, for tools that run one kernel at a time
 * (compute-sanitizer, ncu). Kernels that wait for one another would hang there, but the blocks of one launch
 * run together. The kernels are the library's own: a block does what its work says, whichever rank it belongs
 * to.
 */
#include "gpu_world.h"
#include "mpi_calls.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kern/cuda/kernels.h"
#include "kern/proto.h"

struct options {
    long ranks, channels, launches, timeout_s;
    size_t bytes, slot_bytes;
    const struct test_coll *coll;
    enum rondo_coll number;
    int type;
    enum rondo_proto proto;
};

/* A channel between a rank and the next one. */
struct edge {
    struct rondo_conn_tail tail;
    struct rondo_conn_head head;
};

/* The connections of a block, as its work has them. */
struct conns {
    struct rondo_conn recv, send;
};

/* The state in device memory, and its image on the host up to the slots. All pointers in it are device
 * pointers. */
struct state {
    size_t works, conns, edges, slots, bytes; /* offset of each part, and the size */
    unsigned char *there, *host;
};

struct ring {
    struct options o;
    int nblocks; /* rank r's channel c is block r * channels + c */
    size_t count;
    struct state state;
    struct test_call call[GPU_MOST_RANKS];
    unsigned char *send[GPU_MOST_RANKS], *recv[GPU_MOST_RANKS];
    struct rondo_gpu_words *words;
    struct rondo_launch launch;
    CUmodule module;
    CUfunction function;
    rondo_stream stream;
};

#define PROTO_ROW(ctx, name, NAME, value) { #name, RONDO_PROTO_##NAME },
static const struct {
    const char *name;
    enum rondo_proto proto;
} protos[] = { RONDO_PROTO_TABLE(PROTO_ROW, ) };

static const struct {
    const char *name;
    enum rondo_coll coll;
} colls[] = { { "all_reduce", RONDO_COLL_ALL_REDUCE },
              { "all_gather", RONDO_COLL_ALL_GATHER },
              { "reduce_scatter", RONDO_COLL_REDUCE_SCATTER } };

/* ---- wiring ---- */

static int block_of(const struct ring *ring, int rank, int channel)
{
    return rank * (int)ring->o.channels + channel;
}

static void *place(const struct ring *ring, size_t begin, size_t bytes, int index)
{
    return ring->state.there + begin + bytes * (size_t)index;
}
static void *picture(const struct ring *ring, size_t begin, size_t bytes, int index)
{
    return ring->state.host + begin + bytes * (size_t)index;
}

static void state_new(struct ring *ring)
{
    struct state *s = &ring->state;
    const size_t n = (size_t)ring->nblocks, line = RONDO_CTRL_ALIGN;
    s->works = 0;
    s->conns = rondo_round_up(s->works + n * sizeof(struct rondo_work), line);
    s->edges = rondo_round_up(s->conns + n * sizeof(struct conns), line);
    s->slots = rondo_round_up(s->edges + n * sizeof(struct edge), line);
    s->bytes = s->slots + n * RONDO_SLOTS * ring->o.slot_bytes;
    s->there = test_device_alloc(s->bytes);
    s->host = aligned_alloc(line, s->slots);
    if (s->host == NULL) {
        test_die("no memory for the ring's state");
    }
    memset(s->host, 0, s->slots);
}

/* Connect a rank to the next one. Steps start at 0. */
static void wire_edge(struct ring *ring, int rank, int channel)
{
    const int next = (rank + 1) % (int)ring->o.ranks, at = block_of(ring, rank, channel),
              there = block_of(ring, next, channel);
    struct edge *address = place(ring, ring->state.edges, sizeof(*address), at);
    struct conns *mine = picture(ring, ring->state.conns, sizeof(*mine), at),
                 *its = picture(ring, ring->state.conns, sizeof(*its), there);
    struct rondo_conn conn = { .tail = &address->tail, .head = &address->head, .channel = channel };
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) { /* a launch uses one protocol, so all share the slots */
        conn.slots[p] = place(ring, ring->state.slots, RONDO_SLOTS * ring->o.slot_bytes, at);
        conn.slot_bytes[p] = (uint32_t)ring->o.slot_bytes;
    }
    mine->send = its->recv = conn;
    mine->send.peer = next;
    its->recv.peer = rank;
}

/* The channels split a rank's elements at whole lines. */
static void make_work(struct ring *ring, int rank, int channel)
{
    const struct options *o = &ring->o;
    const size_t size = test_types[o->type].size, line = RONDO_CACHE_LINE / size,
                 nchannels = (size_t)o->channels;
    const size_t share = rondo_round_up((ring->count + nchannels - 1) / nchannels, line),
                 off = share * (size_t)channel;
    const int at = block_of(ring, rank, channel);
    struct rondo_work *w = picture(ring, ring->state.works, sizeof(*w), at);
    *w = (struct rondo_work){
        .coll = (uint8_t)o->number,
        .algo = RONDO_ALGO_RING,
        .proto = (uint8_t)o->proto,
        .dtype = (uint8_t)o->type,
        .reduce = RONDO_REDUCE_SUM,
        .elem_bytes = (uint8_t)size,
        .call_word = rondo_call_word(1, (uint64_t)channel),
        .channel = (uint32_t)channel,
        .in = ring->send[rank],
        .out = ring->recv[rank],
        .block = ring->count,
        .off = off < ring->count ? off : ring->count,
        .chunk = rondo_proto_capacity(o->proto, o->slot_bytes) / size,
        .seat = { .index = rank, .nranks = (int32_t)o->ranks, .parent = -1, .child = { -1, -1, -1 } },
        .conns = place(ring, ring->state.conns, sizeof(struct conns), at),
        .wired = 1u << RONDO_PORT_RING | 1u << (RONDO_NUM_PORTS + RONDO_PORT_RING)
    };
    w->len = ring->count - w->off < share ? ring->count - w->off : share;
}

static void make_state(struct ring *ring)
{
    for (int r = 0; r < ring->o.ranks; r++) {
        for (int c = 0; c < ring->o.channels; c++) {
            wire_edge(ring, r, c);
            make_work(ring, r, c);
        }
    }
}

static void make_launch(struct ring *ring)
{
    CUdeviceptr words;
    void *memory;
    test_device_must(gpu_cuda()->MemHostAlloc(&memory, sizeof(*ring->words), CU_MEMHOSTALLOC_DEVICEMAP),
                     "cuMemHostAlloc");
    test_device_must(gpu_cuda()->MemHostGetDevicePointer(&words, memory, 0), "cuMemHostGetDevicePointer");
    ring->words = memset(memory, 0, sizeof(*ring->words));
    ring->launch.words = (struct rondo_gpu_words *)(uintptr_t)words;
    ring->launch.works = place(ring, ring->state.works, 0, 0);
    ring->launch.nblocks = (uint32_t)ring->nblocks;
    for (int b = 0; b <= ring->nblocks; b++) {
        ring->launch.first[b] = (uint16_t)b;
    }
}

static void find_kernel(struct ring *ring)
{
    const struct rondo_work *w = picture(ring, ring->state.works, 0, 0);
    char name[RONDO_KERNEL_NAME];
    int blocks = 0;
    rondo_kernel_name(name, w);
    ring->module = gpu_module_load();
    test_device_must(gpu_cuda()->ModuleGetFunction(&ring->function, ring->module, name), name);
    test_device_must(gpu_cuda()->OccupancyMaxActiveBlocksPerMultiprocessor(&blocks, ring->function,
                                                                           (int)rondo_kernel_threads(w), 0),
                     "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    if (blocks < 1) {
        test_die("no block of %s fits on this device", name);
    }
    printf("gpu_ring: %s, %ld ranks, %ld channels, %zu bytes\n", name, ring->o.ranks, ring->o.channels,
           ring->o.bytes);
}

/* ---- data ---- */

static size_t bytes_of(const struct ring *ring, size_t elements)
{
    return elements * test_types[ring->o.type].size;
}

static void make_data(struct ring *ring)
{
    const int op = ring->o.coll->reduces ? (int)RONDO_SUM : TEST_OP_NONE;
    for (int r = 0; r < ring->o.ranks; r++) {
        struct test_call *c = &ring->call[r];
        struct test_extent e;
        void *host;
        *c = (struct test_call){ .coll = ring->o.coll,
                                 .type = (rondo_dtype)ring->o.type,
                                 .op = op,
                                 .handle = RONDO_SUM,
                                 .count = ring->count,
                                 .rank = r,
                                 .nranks = (int)ring->o.ranks,
                                 .values = test_values_get((rondo_dtype)ring->o.type, op, (int)ring->o.ranks,
                                                           1) };
        e = c->coll->extent(c);
        host = test_guard_alloc(bytes_of(ring, e.send));
        ring->send[r] = test_device_alloc(bytes_of(ring, e.send));
        ring->recv[r] = test_device_alloc(bytes_of(ring, e.recv));
        test_call_fill(c, host);
        test_device_copy(ring->send[r], host, bytes_of(ring, e.send));
        test_guard_free(host);
    }
}

static void check_data(const struct ring *ring)
{
    for (int r = 0; r < ring->o.ranks; r++) {
        const struct test_call *c = &ring->call[r];
        size_t count = c->coll->extent(c).recv, first = 0, wrong;
        void *got = test_guard_alloc(bytes_of(ring, count)), *want = test_guard_alloc(bytes_of(ring, count));
        test_device_copy(got, ring->recv[r], bytes_of(ring, count));
        c->coll->expect(c, want);
        wrong = test_values_wrong(c->values, got, want, count, &first);
        test_check(wrong == 0, "rank %d: %zu of %zu elements are wrong, first %zu", r, wrong, count, first);
        test_guard_free(got);
        test_guard_free(want);
    }
}

/* ---- a launch ---- */

/* The deadline has passed: tell the kernel to leave; if it does not, end the process. */
static void give_up(struct ring *ring)
{
    __atomic_store_n(&ring->words->abort, 1, __ATOMIC_RELEASE);
    for (int b = 0; b < ring->nblocks; b++) {
        if (ring->words->block[b].waits != 0) {
            test_say("block %d waits for %s of rank %d at step %llu", b,
                     ring->words->block[b].waits == 1 ? "data" : "credit", ring->words->block[b].peer,
                     (unsigned long long)ring->words->block[b].step);
        }
    }
    test_die("the launch has not ended after %ld s", ring->o.timeout_s);
}

static void wait_for(struct ring *ring)
{
    const struct timespec pause = { 0, 20000 };
    const double end = test_now() + (double)ring->o.timeout_s;
    CUresult result;
    while ((result = gpu_cuda()->StreamQuery((CUstream)ring->stream)) == CUDA_ERROR_NOT_READY) {
        if (test_now() > end) {
            give_up(ring);
        }
        nanosleep(&pause, NULL);
    }
    test_device_must(result, "the kernel");
}

static void launch(struct ring *ring)
{
    const struct rondo_work *w = picture(ring, ring->state.works, 0, 0);
    void *arguments[] = { &ring->launch };
    const struct state *s = &ring->state;
    test_watchdog((int)ring->o.timeout_s + 60); /* our own deadline expires first */
    ring->launch.serial++;
    test_device_copy(s->there, s->host, s->slots);
    test_device_must(gpu_cuda()->MemsetD8Async(gpu_address(s->there + s->slots), 0, s->bytes - s->slots,
                                               (CUstream)ring->stream),
                     "cuMemsetD8Async");
    test_device_must(gpu_cuda()->LaunchKernel(ring->function, (unsigned)ring->nblocks, 1, 1,
                                              rondo_kernel_threads(w), 1, 1, 0, (CUstream)ring->stream,
                                              arguments, NULL),
                     "cuLaunchKernel");
    wait_for(ring);
    test_check(ring->words->fault == RONDO_GPU_FINE, "the kernel found a mismatched call");
    for (int b = 0; b < ring->nblocks; b++) {
        test_check(ring->words->block[b].ended == ring->launch.serial, "block %d has not ended", b);
    }
}

static void run(struct ring *ring)
{
    const size_t size = test_types[ring->o.type].size;
    ring->nblocks = (int)(ring->o.ranks * ring->o.channels);
    ring->count = ring->o.bytes / size /
                  (ring->o.number == RONDO_COLL_ALL_REDUCE ? 1 : (size_t)ring->o.ranks);
    ring->stream = test_device_stream_new();
    make_data(ring);
    state_new(ring);
    make_state(ring);
    make_launch(ring);
    find_kernel(ring);
    for (long i = 0; i < ring->o.launches; i++) {
        launch(ring);
    }
    check_data(ring);
}

static void release(struct ring *ring)
{
    for (int r = 0; r < ring->o.ranks; r++) {
        test_device_free(ring->send[r]);
        test_device_free(ring->recv[r]);
    }
    test_device_free(ring->state.there);
    free(ring->state.host);
    test_device_must(gpu_cuda()->MemFreeHost(ring->words), "cuMemFreeHost");
    test_device_must(gpu_cuda()->ModuleUnload(ring->module), "cuModuleUnload");
    test_device_stream_free(ring->stream);
    test_values_clear();
}

/* ---- options ---- */

static void usage(void)
{
    printf("usage: gpu_ring [OPTION]...\n"
           "\n"
           "Run the library's kernels in one launch whose blocks are the ranks of a ring.\n"
           "\n"
           "  -n RANKS       ranks of the ring (default: 2)\n"
           "  --channels C   parallel rings; RANKS x C is at most %d (default: 1)\n"
           "  --coll NAME    all_reduce (default), all_gather or reduce_scatter\n"
           "  --proto NAME   ll, ll128 or simple (default)\n"
           "  --type TYPE    type of the elements (default: f32)\n"
           "  --bytes B      bytes of the largest buffer (default: 64K)\n"
           "  --slot B       bytes of a slot (default: 16K)\n"
           "  --launches N   launches, one after the other (default: 1)\n"
           "  --timeout S    deadline of a launch in seconds (default: 20)\n"
           "  -h, --help     show this help and exit\n"
           "\n"
           "Exit status: 0 success, 1 failure, 77 no GPU\n",
           RONDO_MAX_CHANNELS);
}

static int parse_proto(const char *text, enum rondo_proto *proto)
{
    for (size_t i = 0; i < TEST_ARRAY_LEN(protos); i++) {
        if (strcmp(protos[i].name, text) == 0) {
            *proto = protos[i].proto;
            return 1;
        }
    }
    return 0;
}

static int parse_coll(const char *text, struct options *o)
{
    for (size_t i = 0; i < TEST_ARRAY_LEN(colls); i++) {
        if (strcmp(colls[i].name, text) == 0) {
            o->number = colls[i].coll;
            o->coll = test_coll_by_name(text);
            return 1;
        }
    }
    return 0;
}

static int parse_one(int opt, const char *text, struct options *o)
{
    switch (opt) {
    case 'n': return test_parse_long(text, 2, GPU_MOST_RANKS, &o->ranks);
    case 'c': return test_parse_long(text, 1, RONDO_MAX_CHANNELS, &o->channels);
    case 'o': return parse_coll(text, o);
    case 'p': return parse_proto(text, &o->proto);
    case 't': return (o->type = test_type_by_name(text)) >= 0;
    case 'b': return test_parse_size(text, &o->bytes) && o->bytes > 0;
    case 's':
        return test_parse_size(text, &o->slot_bytes) && o->slot_bytes >= 128 && o->slot_bytes <= 1u << 24 &&
               o->slot_bytes % 128 == 0;
    case 'l': return test_parse_long(text, 1, 1000000, &o->launches);
    case 'w': return test_parse_long(text, 1, 1000000, &o->timeout_s);
    default: return 0;
    }
}

/* @return 0: go on; 1: done; 2: wrong usage. */
static int parse(int argc, char **argv, struct options *o)
{
    static const struct option rows[] = { { "channels", 1, NULL, 'c' }, { "coll", 1, NULL, 'o' },
                                          { "proto", 1, NULL, 'p' },    { "type", 1, NULL, 't' },
                                          { "bytes", 1, NULL, 'b' },    { "slot", 1, NULL, 's' },
                                          { "launches", 1, NULL, 'l' }, { "timeout", 1, NULL, 'w' },
                                          { "help", 0, NULL, 'h' },     { NULL, 0, NULL, 0 } };
    int opt;
    *o = (struct options){
        .ranks = 2, .channels = 1, .launches = 1, .timeout_s = 20, .bytes = 64 << 10, .slot_bytes = 16 << 10
    };
    o->proto = RONDO_PROTO_SIMPLE;
    o->type = RONDO_FLOAT32;
    (void)parse_coll("all_reduce", o);
    while ((opt = getopt_long(argc, argv, "hn:", rows, NULL)) != -1) {
        if (opt == 'h') {
            usage();
            return 1;
        }
        if (!parse_one(opt, optarg, o)) {
            fprintf(stderr, "gpu_ring: invalid option or value: %s; try '--help'\n",
                    optarg != NULL ? optarg : argv[optind - 1]);
            return 2;
        }
    }
    if (optind < argc || o->ranks * o->channels > RONDO_MAX_CHANNELS) {
        usage();
        return 2;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct ring ring;
    int stop = parse(argc, argv, &ring.o);
    if (stop != 0) {
        return stop == 1 ? 0 : 2;
    }
    stop = gpu_begin("gpu_ring");
    if (stop != 0) {
        return stop;
    }
    test_watchdog((int)ring.o.timeout_s + 60);
    test.what = "a launch";
    run(&ring);
    release(&ring);
    return gpu_end();
}
