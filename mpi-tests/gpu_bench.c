/*
 * gpu_bench: the time of GPU calls compared with a lower bound, on one GPU, with threads as ranks. Prints a
 * Markdown table. One algorithm and one protocol per process, because parameters are read once.
 */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_world.h"
#include "mpi_values.h"

enum { BENCH_LIST = 16, BENCH_SAMPLES = 1000 };

struct bench_algo {
    const char *name;
    double (*user)(double n), (*slots)(double n); /* bytes that all n ranks move per byte of the call */
    double goal;                                  /* share of the lower bound to reach; 0: none */
    int goal_ranks;                               /* number of ranks for the goal; 0: any */
    int may_lack;                                 /* 1: a build or a device may not have it */
};

struct bench {
    int nranks, ranks[BENCH_LIST];
    int nbytes; /* 0: the default of the mode */
    size_t bytes[BENCH_LIST];
    int ntypes;
    rondo_dtype types[BENCH_LIST];
    const struct bench_algo *algo;
    const char *proto, *buffsize; /* NULL: the library chooses */
    int cached;
    long iters, timeout_s;
    int (*run)(const struct bench *b); /* @return the number of rows printed */
};

/* ---- buffers with known contents, too large to be filled by the host ---- */

enum { PIECE = 1 << 20, PIECES = 16 };

static void *host_memory(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL) {
        test_die("no memory for %zu bytes", bytes);
    }
    return memory;
}

/* Fill device memory with a rank's input for a sum, and wait for the stream. The first period comes from the
 * host and is doubled on the device. */
static void bench_fill(const struct test_values *values, size_t size, int rank, void *there, size_t count,
                       rondo_stream stream)
{
    size_t done = count < TEST_PERIOD ? count : TEST_PERIOD;
    unsigned char *to = there, *host = host_memory(done * size);
    test_values_input(values, rank, 0, done, host);
    test_device_copy(to, host, done * size);
    while (done < count) {
        size_t part = done < count - done ? done : count - done;
        test_device_must(gpu_cuda()->MemcpyAsync(gpu_address(to + done * size), gpu_address(to), part * size,
                                                 (CUstream)stream),
                         "cuMemcpyAsync on the device");
        done += part;
    }
    test_device_wait(stream);
    free(host);
}

static int piece_is_right(const struct test_values *values, size_t size, int rank, const unsigned char *there,
                          size_t first, size_t count)
{
    size_t at = 0, wrong;
    unsigned char *got = host_memory(count * size), *want = host_memory(count * size);
    test_device_copy(got, there + first * size, count * size);
    test_values_result(values, first, count, want);
    wrong = test_values_wrong(values, got, want, count, &at);
    test_check(wrong == 0, "rank %d: %zu of elements %zu .. %zu are wrong, first %zu", rank, wrong, first,
               first + count - 1, first + at);
    free(got);
    free(want);
    return wrong == 0;
}

/* Check that device memory holds the sum: the first and last piece and some between. Counts a failure. */
static void bench_check(const struct test_values *values, size_t size, int rank, const void *there,
                        size_t count)
{
    size_t piece = PIECE / size, last = count > piece ? count - piece : 0;
    for (size_t i = 0; i < PIECES; i++) {
        size_t first = last / (PIECES - 1) * i, n = count < piece ? count : piece;
        if (i == PIECES - 1) {
            first = last;
        }
        if (!piece_is_right(values, size, rank, there, first, n) || count <= piece) {
            return;
        }
    }
}

/* ---- tables ---- */

enum { IN_A_ROW = 50, WARM = 3, COPIES = 8 };

/* Shared by the ranks of a table. */
struct table {
    const struct bench *b;
    double copy; /* bytes per second, read plus written */
    const struct test_values *values;
    int rows; /* number of rows printed, by rank 0 */
    double samples[BENCH_SAMPLES];
};

static double median(double *samples, long n)
{
    qsort(samples, (size_t)n, sizeof(*samples), test_compare_times);
    return n % 2 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
}

static const char *size_text(size_t bytes, char text[24])
{
    static const char units[] = " KMG";
    int unit = 0;
    while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 24, unit == 0 ? "%zu B" : "%zu %ciB", bytes, units[unit]);
    return text;
}

static const char *met(double goal, int good) { return goal == 0 ? "" : good ? "met" : "missed"; }

/* ---- the lower bound: a copy ---- */

static double time_copies(CUdeviceptr to, CUdeviceptr from, size_t bytes, int copies, rondo_stream stream)
{
    double start = test_now();
    for (int i = 0; i < copies; i++) {
        test_device_must(gpu_cuda()->MemcpyAsync(to, from, bytes, (CUstream)stream),
                         "cuMemcpyAsync on the device");
    }
    test_device_wait(stream);
    return (test_now() - start) / copies;
}

/* @return the bytes per second that a copy reads plus writes. */
static double copy_bandwidth(size_t bytes, long iters)
{
    unsigned char *memory = test_device_alloc(2 * bytes);
    rondo_stream stream = test_device_stream_new();
    double samples[BENCH_SAMPLES];
    (void)time_copies(gpu_address(memory), gpu_address(memory + bytes), bytes, WARM, stream);
    for (long i = 0; i < iters; i++) {
        samples[i] = time_copies(gpu_address(memory), gpu_address(memory + bytes), bytes, COPIES, stream);
    }
    test_device_stream_free(stream);
    test_device_free(memory);
    return 2 * (double)bytes / median(samples, iters);
}

/* ---- calls ---- */

/* A rank's buffers for a row. */
struct buffers {
    void *send, *recv, *handle[2];
    size_t bytes, count;
    rondo_dtype type;
};

static struct buffers buffers_new(const struct gpu_rank *r, size_t bytes, rondo_dtype type)
{
    struct buffers x = { .bytes = bytes, .count = bytes / test_types[type].size, .type = type };
    TEST_MUST(rondo_mem_alloc_device(&x.send, bytes, RONDO_DEVICE_CURRENT), r->comm);
    TEST_MUST(rondo_mem_alloc_device(&x.recv, bytes, RONDO_DEVICE_CURRENT), r->comm);
    TEST_MUST(rondo_comm_register(r->comm, x.send, bytes, &x.handle[0]), r->comm);
    TEST_MUST(rondo_comm_register(r->comm, x.recv, bytes, &x.handle[1]), r->comm);
    return x;
}

static void buffers_free(const struct gpu_rank *r, struct buffers *x)
{
    gpu_meet(r);
    for (int i = 0; i < 2; i++) {
        if (x->handle[i] != NULL) {
            TEST_MUST(rondo_comm_deregister(r->comm, x->handle[i]), r->comm);
        }
    }
    gpu_meet(r);
    TEST_MUST(rondo_mem_free(x->send), r->comm);
    TEST_MUST(rondo_mem_free(x->recv), r->comm);
    gpu_meet(r);
}

static void call(const struct gpu_rank *r, const struct buffers *x, int calls)
{
    for (int i = 0; i < calls; i++) {
        rondo_status status = rondo_all_reduce(x->send, x->recv, x->count, x->type, RONDO_SUM, r->comm,
                                               r->stream);
        if (status != RONDO_SUCCESS) {
            test_die("rank %d: all_reduce of %zu bytes: %s: %s", r->rank, x->bytes,
                     rondo_status_string(status), rondo_last_error(r->comm));
        }
    }
    test_device_wait(r->stream);
}

/* Try a first call. @return 0 if the algorithm is missing, which is allowed; nothing was launched. */
static int try_call(const struct gpu_rank *r, const struct buffers *x, const struct bench *b)
{
    rondo_status status = rondo_all_reduce(x->send, x->recv, x->count, x->type, RONDO_SUM, r->comm,
                                           r->stream);
    int skipped = b->algo->may_lack && gpu_most(r, status == RONDO_INVALID_USAGE) > 0;
    if (skipped) {
        if (r->rank == 0) {
            printf("skipped: all_reduce by %s with %d ranks: %s\n", b->algo->name, r->nranks,
                   rondo_last_error(r->comm));
        }
        return 0;
    }
    TEST_MUST(status, r->comm);
    test_device_wait(r->stream);
    return 1;
}

/* The first call of a row, with known inputs and a checked result. @return 0 if the row is skipped. */
static int first_call(const struct gpu_rank *r, const struct buffers *x)
{
    struct table *t = r->arg;
    size_t size = test_types[x->type].size;
    gpu_meet(r);
    if (r->rank == 0) {
        test_watchdog((int)t->b->timeout_s);
        t->values = test_values_get(x->type, RONDO_SUM, r->nranks, 1);
        test_values_result(t->values, 0, 0, NULL);
    }
    gpu_meet(r);
    bench_fill(t->values, size, r->rank, x->send, x->count, r->stream);
    test_device_must(gpu_cuda()->MemsetD8Async(gpu_address(x->recv), 0x5a, x->bytes, (CUstream)r->stream),
                     "cuMemsetD8Async");
    test_device_wait(r->stream);
    gpu_meet(r);
    if (!try_call(r, x, t->b)) {
        return 0;
    }
    bench_check(t->values, size, r->rank, x->recv, x->count);
    gpu_meet(r);
    call(r, x, 1);
    t->rows += r->rank == 0;
    return 1;
}

/* Collective. @return the median time of a call in seconds, slowest rank; valid on rank 0. */
static double time_calls(const struct gpu_rank *r, const struct buffers *x, int calls, double *samples,
                         long iters)
{
    for (long i = 0; i < iters; i++) {
        double start, took;
        gpu_meet(r);
        start = test_now();
        call(r, x, calls);
        took = gpu_most(r, test_now() - start) / calls;
        if (r->rank == 0) {
            samples[i] = took;
        }
    }
    return r->rank == 0 ? median(samples, iters) : 0;
}

/* ---- bandwidth ---- */

static void print_bandwidth(const struct table *t, const struct gpu_rank *r, const struct buffers *x,
                            double seconds)
{
    const struct bench *b = t->b;
    const struct bench_algo *algo = b->algo;
    double moved = (double)x->bytes * (algo->user(r->nranks) + (b->cached ? 0 : algo->slots(r->nranks))),
           floor = moved / t->copy;
    double goal = algo->goal_ranks == 0 || algo->goal_ranks == r->nranks ? algo->goal : 0,
           reached = floor / seconds;
    char size[24], aim[16] = "";
    if (goal > 0) {
        snprintf(aim, sizeof(aim), "%.2f", goal);
    }
    printf("| %s%s%s | %d | %s | %s | %.1f | %.1f | %.0f | %.1f | %.2f | %s | %s |\n", algo->name,
           b->proto != NULL ? " " : "", b->proto != NULL ? b->proto : "", r->nranks, test_types[x->type].name,
           size_text(x->bytes, size), seconds * 1e6, (double)x->bytes / seconds * 1e-9, t->copy * 1e-9,
           floor * 1e6, reached, aim, met(goal, reached >= goal));
}

static void bandwidth_row(struct gpu_rank *r, size_t bytes, rondo_dtype type)
{
    struct table *t = r->arg;
    struct buffers x = buffers_new(r, bytes, type);
    if (first_call(r, &x)) {
        double seconds = time_calls(r, &x, 1, t->samples, t->b->iters);
        bench_check(t->values, test_types[type].size, r->rank, x.recv, x.count);
        if (r->rank == 0) {
            print_bandwidth(t, r, &x, seconds);
        }
    }
    buffers_free(r, &x);
}

static void bandwidth_rank(struct gpu_rank *r)
{
    const struct bench *b = ((struct table *)r->arg)->b;
    for (int type = 0; type < b->ntypes; type++) {
        for (int i = 0; i < b->nbytes; i++) {
            bandwidth_row(r, b->bytes[i], b->types[type]);
        }
    }
}

static size_t largest(const struct bench *b)
{
    size_t most = 0;
    for (int i = 0; i < b->nbytes; i++) {
        most = b->bytes[i] > most ? b->bytes[i] : most;
    }
    return most;
}

/* Add the default sizes if none were given. */
static struct bench with_sizes(const struct bench *b, const size_t *bytes, int n)
{
    struct bench own = *b;
    for (int i = 0; b->nbytes == 0 && i < n; i++) {
        own.bytes[i] = bytes[i];
        own.nbytes = n;
    }
    return own;
}

static int bench_bandwidth(const struct bench *b)
{
    static const size_t sizes[] = { 256u << 20, 1u << 30 };
    static struct table t;
    struct bench own = with_sizes(b, sizes, TEST_ARRAY_LEN(sizes));
    t.b = &own;
    test.what = "bandwidth";
    printf(
        "| all_reduce%s | ranks | type | size | us | GB/s | copy GB/s | floor us | floor / time | goal | |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n",
        b->cached ? ", slots in the cache" : "");
    for (int i = 0; i < b->nranks; i++) {
        t.copy = copy_bandwidth(largest(&own), own.iters);
        gpu_ranks_run(b->ranks[i], bandwidth_rank, &t);
    }
    return t.rows;
}

/* ---- latency ---- */

/* Time a launch with a wait for its end, and one of many launches in a row. */
static void time_empty(const struct gpu_rank *r, struct table *t, double *once, double *in_a_row)
{
    struct gpu_empty empty;
    gpu_empty_open(&empty);
    for (int calls = 1; calls <= IN_A_ROW; calls += IN_A_ROW - 1) {
        for (long i = -WARM; i < t->b->iters; i++) {
            double start = test_now();
            for (int k = 0; k < calls; k++) {
                gpu_empty_launch(&empty, (CUstream)r->stream);
            }
            test_device_wait(r->stream);
            if (i >= 0) {
                t->samples[i] = (test_now() - start) / calls;
            }
        }
        *(calls == 1 ? once : in_a_row) = median(t->samples, t->b->iters);
    }
    printf("For comparison: %s: %.2f us with a wait for its end, %.2f us in a row of %d.\n\n", empty.name,
           *once * 1e6, *in_a_row * 1e6, IN_A_ROW);
    gpu_empty_close(&empty);
}

static void time_latency(struct gpu_rank *r, const struct buffers *x, double empty)
{
    static const double goal = 3e-6;
    struct table *t = r->arg;
    double once, in_a_row;
    char size[24];
    call(r, x, WARM);
    once = time_calls(r, x, 1, t->samples, t->b->iters);
    in_a_row = time_calls(r, x, IN_A_ROW, t->samples, t->b->iters);
    if (r->rank == 0) {
        int has_goal = r->nranks == 2;
        printf("| %s %s | %d | %s | %.2f | %.2f | %.2f | %s | %s |\n", t->b->algo->name,
               t->b->proto != NULL ? t->b->proto : "", r->nranks, size_text(x->bytes, size), once * 1e6,
               (once - empty) * 1e6, in_a_row * 1e6, has_goal ? "3" : "",
               met(has_goal, once - empty <= goal));
    }
}

static void latency_row(struct gpu_rank *r, size_t bytes, rondo_dtype type, double empty)
{
    struct buffers x = buffers_new(r, bytes, type);
    if (first_call(r, &x)) {
        time_latency(r, &x, empty);
    }
    buffers_free(r, &x);
}

static void latency_rank(struct gpu_rank *r)
{
    struct table *t = r->arg;
    const struct bench *b = t->b;
    double once = 0, in_a_row = 0;
    if (r->rank == 0) {
        time_empty(r, t, &once, &in_a_row);
        printf("| all_reduce | ranks | size | us | beyond an empty launch, us | in a row, us | goal, us | "
               "|\n|---|---|---|---|---|---|---|---|\n");
    }
    gpu_meet(r);
    for (int i = 0; i < b->nbytes; i++) {
        latency_row(r, b->bytes[i], b->types[0], once);
    }
}

static int bench_latency(const struct bench *b)
{
    static const size_t sizes[] = { 8, 64, 512, 4096, 16384, 65536 };
    static struct table t;
    struct bench own = with_sizes(b, sizes, TEST_ARRAY_LEN(sizes));
    t.b = &own;
    test.what = "latency";
    for (int i = 0; i < b->nranks; i++) {
        gpu_ranks_run(b->ranks[i], latency_rank, &t);
    }
    return t.rows;
}

/* ---- one rank ---- */

static void one_rank_row(struct gpu_rank *r, size_t bytes, rondo_dtype type)
{
    struct table *t = r->arg;
    struct buffers x = buffers_new(r, bytes, type);
    static double copies[BENCH_SAMPLES];
    double ours, copy;
    char size[24];
    (void)first_call(r, &x); /* calls of one rank are copies, which are always available */
    call(r, &x, WARM);
    (void)time_copies(gpu_address(x.recv), gpu_address(x.send), bytes, WARM, r->stream);
    for (long i = 0; i < t->b->iters; i++) {
        (void)time_calls(r, &x, 1, &t->samples[i], 1);
        copies[i] = time_copies(gpu_address(x.recv), gpu_address(x.send), bytes, 1, r->stream);
    }
    ours = median(t->samples, t->b->iters);
    copy = median(copies, t->b->iters);
    printf("| %s | %s | %.2f | %.2f | %.2f |\n", test_types[type].name, size_text(bytes, size), ours * 1e6,
           copy * 1e6, copy / ours);
    buffers_free(r, &x);
}

static void one_rank(struct gpu_rank *r)
{
    const struct bench *b = ((struct table *)r->arg)->b;
    printf(
        "| all_reduce of one rank | size | us | cuMemcpyAsync, us | copy / ours |\n|---|---|---|---|---|\n");
    for (int i = 0; i < b->nbytes; i++) {
        one_rank_row(r, b->bytes[i], b->types[0]);
    }
}

static int bench_one_rank(const struct bench *b)
{
    static const size_t sizes[] = { 4096, 1u << 20, 256u << 20, 1u << 30 };
    static struct table t;
    struct bench own = with_sizes(b, sizes, TEST_ARRAY_LEN(sizes));
    t.b = &own;
    test.what = "one rank";
    gpu_ranks_run(1, one_rank, &t);
    return t.rows;
}

/* ---- options ---- */

/*
 * Bytes that all n ranks together read and write for an all_reduce of one byte, in users' buffers and in
 * slots; slots that stay in the cache need no memory traffic.
 *
 *   ring     each rank reads its input and writes its output; 2 (n - 1) / n of the bytes are written to a
 *            slot by one rank and read by the next
 *   tree     all bytes pass n - 1 edges up and down, each through a slot
 *   twoshot  each rank reads its share from all buffers and writes it to all of them; nothing is staged,
 *            because the buffers come from rondo_mem_alloc_device
 *   oneshot  each rank reads all buffers
 */
static double user_ring(double n) { return 2 * n; }
static double slots_ring(double n) { return 4 * (n - 1); }
static double slots_none(double n) { return 0 * n; }
static double user_oneshot(double n) { return n * n + n; }

static const struct bench_algo algos[] = {
    { "ring", user_ring, slots_ring, 0.7, 0, 0 },
    { "tree", user_ring, slots_ring, 0, 0, 0 },
    { "twoshot", user_ring, slots_none, 0.85, 2, 1 },
    { "oneshot", user_oneshot, slots_none, 0.85, 2, 1 },
};

static const struct {
    const char *name;
    int (*run)(const struct bench *b);
} modes[] = { { "bandwidth", bench_bandwidth },
              { "latency", bench_latency },
              { "one-rank", bench_one_rank } };

static void usage(void)
{
    printf("usage: gpu_bench bandwidth|latency|one-rank [OPTION]...\n"
           "\n"
           "Compare GPU calls with a lower bound:\n"
           "  bandwidth      all_reduce, with copying the bytes that its algorithm must move\n"
           "  latency        all_reduce of a few bytes, with an empty kernel\n"
           "  one-rank       all_reduce of one rank, with a copy\n"
           "\n"
           "  -n LIST        numbers of ranks (default: 2)\n"
           "  --bytes LIST   sizes (default: depends on the mode)\n"
           "  --type LIST    types (default: f32)\n"
           "  --algo NAME    allow only this algorithm (default: ring)\n"
           "  --proto NAME   allow only this protocol (default: any)\n"
           "  --buffsize B   bytes of a connection's Simple buffer\n"
           "  --cached       these buffers fit in the cache, so slots cost no memory traffic\n"
           "  --iters N      measurements per row (default: 20)\n"
           "  --timeout S    give up after S seconds without progress (default: 60)\n"
           "  -h, --help     show this help and exit\n"
           "\n"
           "Exit status: 0 success, 1 failure, 77 no GPU, or the algorithm can run no row\n");
}

static int parse_rank(const char *item, struct bench *b, int i)
{
    long value;
    return test_parse_long(item, 1, GPU_MOST_RANKS, &value) && (b->ranks[i] = (int)value, 1);
}
static int parse_size(const char *item, struct bench *b, int i)
{
    return test_parse_size(item, &b->bytes[i]) && b->bytes[i] >= 8;
}
static int parse_type(const char *item, struct bench *b, int i)
{
    const int type = test_type_by_name(item);
    b->types[i] = (rondo_dtype)type;
    return type >= 0;
}

/* Parse a comma-separated list. @return the number of items; 0: invalid. */
static int parse_list(const char *text, struct bench *b,
                      int (*parse_item)(const char *item, struct bench *b, int i))
{
    char copy[256], *save = NULL;
    int n = 0;
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *item = strtok_r(copy, ",", &save); item != NULL; item = strtok_r(NULL, ",", &save), n++) {
        if (n == BENCH_LIST || !parse_item(item, b, n)) {
            return 0;
        }
    }
    return n;
}

static const struct bench_algo *algo_by_name(const char *name)
{
    for (size_t i = 0; i < TEST_ARRAY_LEN(algos); i++) {
        if (strcmp(algos[i].name, name) == 0) {
            return &algos[i];
        }
    }
    return NULL;
}

static int parse_one(int opt, const char *text, struct bench *b)
{
    switch (opt) {
    case 'n': return (b->nranks = parse_list(text, b, parse_rank)) > 0;
    case 'b': return (b->nbytes = parse_list(text, b, parse_size)) > 0;
    case 't': return (b->ntypes = parse_list(text, b, parse_type)) > 0;
    case 'a': return (b->algo = algo_by_name(text)) != NULL;
    case 'p': b->proto = text; return 1;
    case 's': b->buffsize = text; return 1;
    case 'c': b->cached = 1; return 1;
    case 'i': return test_parse_long(text, 1, BENCH_SAMPLES, &b->iters);
    case 'w': return test_parse_long(text, 1, 1000000, &b->timeout_s);
    default: return 0;
    }
}

/* @return 0 to go on, else the exit status + 1. */
static int parse(int argc, char **argv, struct bench *b)
{
    static const struct option rows[] = { { "bytes", 1, NULL, 'b' },    { "type", 1, NULL, 't' },
                                          { "algo", 1, NULL, 'a' },     { "proto", 1, NULL, 'p' },
                                          { "buffsize", 1, NULL, 's' }, { "cached", 0, NULL, 'c' },
                                          { "iters", 1, NULL, 'i' },    { "timeout", 1, NULL, 'w' },
                                          { "help", 0, NULL, 'h' },     { NULL, 0, NULL, 0 } };
    int opt;
    *b = (struct bench){ .nranks = 1,
                         .ranks = { 2 },
                         .ntypes = 1,
                         .types = { RONDO_FLOAT32 },
                         .algo = &algos[0],
                         .iters = 20,
                         .timeout_s = 60 };
    while ((opt = getopt_long(argc, argv, "hn:", rows, NULL)) != -1) {
        if (opt == 'h') {
            usage();
            return 1;
        }
        if (!parse_one(opt, optarg, b)) {
            fprintf(stderr, "gpu_bench: invalid option or value: %s; try '--help'\n",
                    optarg != NULL ? optarg : argv[optind - 1]);
            return 3;
        }
    }
    for (size_t i = 0; optind + 1 == argc && i < TEST_ARRAY_LEN(modes); i++) {
        if (strcmp(modes[i].name, argv[optind]) == 0) {
            b->run = modes[i].run;
            return 0;
        }
    }
    usage();
    return 3;
}

/* Call this before the library reads its parameters. */
static void set_parameters(const struct bench *b)
{
    char text[64];
    snprintf(text, sizeof(text), "all_reduce:%s", b->algo->name);
    setenv("RONDO_ALGO", text, 1);
    if (b->algo->may_lack) {
        setenv("RONDO_DIRECT_GPU", "64K", 1);
    }
    if (b->proto != NULL) {
        setenv("RONDO_PROTO", b->proto, 1);
    }
    if (b->buffsize != NULL) {
        setenv("RONDO_BUFFSIZE", b->buffsize, 1);
    }
}

int main(int argc, char **argv)
{
    struct bench b;
    int stop = parse(argc, argv, &b), rows;
    if (stop != 0) {
        return stop - 1;
    }
    set_parameters(&b);
    stop = gpu_begin("gpu_bench");
    if (stop != 0) {
        return stop;
    }
    test_watchdog((int)b.timeout_s);
    rows = b.run(&b);
    test_values_clear();
    gpu_end();
    stop = test_finish_plain();
    return stop == 0 && rows == 0 ? GPU_SKIPPED : stop;
}
