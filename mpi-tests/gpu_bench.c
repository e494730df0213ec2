/*
 * gpu_bench: the time of GPU calls compared with a lower bound, on one GPU, with threads or processes as
 * ranks. Prints Markdown tables. One algorithm and one protocol per process, because parameters are read
 * once.
 */
#include "gpu_bench.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

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
              { "one-rank", bench_one_rank },
              { "overlap", bench_overlap },
              { "torn", bench_torn } };

static void usage(void)
{
    printf("usage: gpu_bench bandwidth|latency|one-rank|overlap|torn [OPTION]...\n"
           "\n"
           "Compare GPU calls with a lower bound, or with what must come out:\n"
           "  bandwidth      all_reduce, with copying the bytes that its algorithm must move\n"
           "  latency        all_reduce of a few bytes, with an empty kernel\n"
           "  one-rank       all_reduce of one rank, with a copy\n"
           "  overlap        all_reduce on two communicators at once, with either alone\n"
           "  torn           all_reduce of random bytes, for --seconds; every result is checked\n"
           "\n"
           "  -n LIST        numbers of ranks (default: 2)\n"
           "  --bytes LIST   sizes (default: depends on the mode)\n"
           "  --type LIST    types (default: f32)\n"
           "  --algo NAME    allow only this algorithm (default: ring)\n"
           "  --proto NAME   allow only this protocol (default: any)\n"
           "  --buffsize B   bytes of a connection's Simple buffer\n"
           "  --cached       these buffers fit in the cache, so slots cost no memory traffic\n"
           "  --iters N      measurements per row (default: 20)\n"
           "  --seconds S    duration of torn (default: 10)\n"
           "  --rows FILE    add a line to FILE for each measurement: what, ranks, bytes, us, the lower\n"
           "                 bound in us, what that is; separated by tabs\n"
           "  --mpi          the ranks are mpirun's processes; -n is not used\n"
           "  --nccl FILE    with --mpi: this NCCL carries the calls (bandwidth, latency)\n"
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
    case 'd': return test_parse_long(text, 1, 100000, &b->seconds);
    case 'r': b->rows = text; return 1;
    case 'm': b->mpi = 1; return 1;
    case 'l': b->nccl = text; return 1;
    default: return 0;
    }
}

/* @return 0 to go on, else the exit status + 1. */
static int parse(int argc, char **argv, struct bench *b)
{
    static const struct option rows[] = { { "bytes", 1, NULL, 'b' },    { "type", 1, NULL, 't' },
                                          { "algo", 1, NULL, 'a' },     { "proto", 1, NULL, 'p' },
                                          { "iters", 1, NULL, 'i' },    { "timeout", 1, NULL, 'w' },
                                          { "buffsize", 1, NULL, 's' }, { "cached", 0, NULL, 'c' },
                                          { "seconds", 1, NULL, 'd' },  { "rows", 1, NULL, 'r' },
                                          { "mpi", 0, NULL, 'm' },      { "nccl", 1, NULL, 'l' },
                                          { "help", 0, NULL, 'h' },     { NULL, 0, NULL, 0 } };
    int opt;
    *b = (struct bench){ .nranks = 1,
                         .ranks = { 2 },
                         .ntypes = 1,
                         .types = { RONDO_FLOAT32 },
                         .algo = &algos[0],
                         .iters = 20,
                         .timeout_s = 60,
                         .seconds = 10 };
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
    if (b->nccl != NULL && !b->mpi) {
        fprintf(stderr, "gpu_bench: --nccl needs --mpi\n");
        return 3;
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
    if (b->run == bench_overlap) { /* all blocks of both communicators must fit on the device */
        setenv("RONDO_MAX_NCHANNELS", "8", 0);
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
    stop = b.mpi ? gpu_begin_mpi("gpu_bench") : gpu_begin("gpu_bench");
    if (stop != 0) {
        return stop;
    }
    test_watchdog((int)b.timeout_s);
    rows = b.run(&b);
    test_values_clear();
    stop = gpu_end();
    return stop == 0 && rows == 0 ? GPU_SKIPPED : stop;
}
