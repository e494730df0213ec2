/* The options of *_perf. Letters, names and defaults are those of nccl-tests 2.19; what cannot work here is
 * refused with the reason. */
#include "perf.h"

#include <stdlib.h>
#include <string.h>

/* X(ctx, NAME, "-b, --option", arguments, least, most, "group", "help") */
#define PERF_OPTION_TABLE(X, ctx)                                                                            \
    X(ctx, MINBYTES, "-b, --minbytes", "SIZE", 1, 1, "Sizes (SIZE takes K, M, G)",                           \
      "smallest size (default: 32M)")                                                                        \
    X(ctx, MAXBYTES, "-e, --maxbytes", "SIZE", 1, 1, "", "largest size (default: 32M, or -b if larger)")     \
    X(ctx, STEPBYTES, "-i, --stepbytes", "SIZE", 1, 1, "", "add SIZE to each size (default: 1M)")            \
    X(ctx, STEPFACTOR, "-f, --stepfactor", "N", 1, 1, "", "multiply each size by N instead")                 \
    X(ctx, DATATYPE, "-d, --datatype", "TYPE|all", 1, 1, "Calls", "data type (default: float)")              \
    X(ctx, OP, "-o, --op", "OP|all", 1, 1, "", "operation (default: sum)")                                   \
    X(ctx, ROOT, "-r, --root", "RANK|all", 1, 1, "", "root (default: 0)")                                    \
    X(ctx, BLOCKING, "-z, --blocking", "0|1|2|3", 1, 1, "",                                                  \
      "0: calls on a stream, back to back (default); 1: blocking calls, each followed by a barrier, which "  \
      "counts; 2: blocking calls, back to back; 3: the ranks start each call together, and it is timed "     \
      "alone (default with --vs, --copy, --start, -F and --osu)")                                            \
    X(ctx, AGG_ITERS, "-m, --agg_iters", "N", 1, 1, "", "calls per group (default: 1)")                      \
    X(ctx, LOCAL_REGISTER, "-R, --local_register", "0|1|2", 1, 1, "",                                        \
      "buffers: 0: ordinary (default); 1: ordinary, registered; 2: from rondo_mem_alloc, registered")        \
    X(ctx, UNALIGN, "-u, --unalign", "N", 1, 1, "", "begin the buffers at element N of a page (default: 0)") \
    X(ctx, ITERS, "-n, --iters", "N", 1, 1, "Measuring", "timed iterations (default: 20)")                   \
    X(ctx, WARMUP, "-w, --warmup_iters", "N", 1, 1, "", "untimed iterations of each size (default: 5)")      \
    X(ctx, CYCLES, "-N, --run_cycles", "N", 1, 1, "",                                                        \
      "run and print all sizes N times; 0: until the job is ended (default: 1)")                             \
    X(ctx, CHECK, "-c, --check", "N", 1, 1, "", "checked runs per size; 0: none (default: 1)")               \
    X(ctx, AVERAGE, "-a, --average", "0|1|2|3", 1, 1, "",                                                    \
      "time over ranks: 0: rank 0; 1: average (default); 2: minimum; 3: maximum (default with --vs, --copy " \
      "and --start)")                                                                                        \
    X(ctx, CPUTIME, "-C, --report_cputime", "0|1", 1, 1, "",                                                 \
      "1: report CPU time instead of wall time (default: 0)")                                                \
    X(ctx, PER_ITER, "-I, --per_iter_timing", "0|1", 1, 1, "",                                               \
      "1: also show minimum, maximum, 99th percentile and variation of the iterations; needs -z 1, 2 or 3")  \
    X(ctx, PER_ITER_SKIP, "-K, --per_iter_skip", "N", 1, 1, "",                                              \
      "leave the first N iterations out of -I (default: 0)")                                                 \
    X(ctx, FLUSH, "-F, --cache_flush", "N", 1, 1, "",                                                        \
      "with -z 3: push the buffers out of the caches before every Nth iteration; 0: never (default)")        \
    X(ctx, START, "--start", "instant|barrier", 1, 1, "",                                                    \
      "with -z 3: start the ranks at an instant of the node's clock, or after a barrier (default: instant "  \
      "if all ranks are on one node with a core each)")                                                      \
    X(ctx, VS, "--vs", "mpi", 1, 1, "",                                                                      \
      "alternate with MPI's collective on the same buffers; ratio > 1: Rondo is faster")                     \
    X(ctx, COPY, "--copy", "", 0, 0, "",                                                                     \
      "alternate out of place, in place and a local copy; excess: out of place over in place + 1.2 copies, " \
      "which should not exceed 1")                                                                           \
    X(ctx, VERBOSE, "-v, --verbose", "", 0, 0, "Output",                                                     \
      "also show the minimum and maximum over the iterations; needs -z 1, 2 or 3")                           \
    X(ctx, TIMESTAMPS, "-S, --report_timestamps", "0|1", 1, 1, "", "1: end each line with the time")         \
    X(ctx, MEMORY, "-M, --memory", "0|1", 1, 1, "", "1: report the memory that is held")                     \
    X(ctx, OUTPUT, "-J, --output_file", "FILE", 1, 1, "", "also write nccl-tests' JSON to FILE (*.json)")    \
    X(ctx, JSON, "--json", "FILE", 1, 1, "", "also write the rows to FILE, with every number known")         \
    X(ctx, OSU, "--osu", "", 0, 0, "",                                                                       \
      "OSU's columns, sizes and iterations: size and average time; with -v also the fastest and the "        \
      "slowest rank and the iterations; a size is a rank's block")                                           \
    X(ctx, TIMEOUT, "-T, --timeout", "SECONDS", 1, 1, "Other options",                                       \
      "deadline of every wait (default: RONDO_TIMEOUT)")                                                     \
    X(ctx, HELP, "-h, --help", "", 0, 0, "", "show this help and exit")                                      \
    X(ctx, NTHREADS, "-t, --nthreads", "1", 1, 1, "Options of nccl-tests that can have only this value",     \
      "a process is one rank, so there is no other number of threads")                                       \
    X(ctx, NGPUS, "-g, --ngpus", "1", 1, 1, "", "a process is one rank: start more of them with mpirun -n")  \
    X(ctx, PARALLEL_INIT, "-p, --parallel_init", "0|1", 1, 1, "",                                            \
      "no effect: each process starts its one rank, all at the same time")                                   \
    X(ctx, STREAM_NULL, "-y, --stream_null", "0", 1, 1, "",                                                  \
      "a call on the null stream blocks; that is -z 2")                                                      \
    X(ctx, CUDAGRAPH, "-G, --cudagraph", "0", 1, 1, "",                                                      \
      "buffers are in host memory, and CUDA graphs record work of a GPU")                                    \
    X(ctx, CTA_POLICY, "-x, --cta_policy", "0", 1, 1, "",                                                    \
      "buffers are in host memory, where no kernel of a GPU runs")                                           \
    X(ctx, DEVICE_IMPL, "-D, --device_implementation", "0", 1, 1, "",                                        \
      "Rondo has no calls for kernels, which these variants of nccl-tests make")                             \
    X(ctx, DEVICE_CTAS, "-V, --device_cta_count", "N", 1, 1, "", "no effect: it belongs to -D")

enum perf_option {
#define PERF_OPTION_ID(ctx, NAME, ...) PERF_OPT_##NAME,
    PERF_OPTION_TABLE(PERF_OPTION_ID, ) PERF_NUM_OPTIONS
#undef PERF_OPTION_ID
};
static const struct tool_option table[] = { PERF_OPTION_TABLE(TOOL_OPTION_ROW, ) };
_Static_assert((int)PERF_NUM_OPTIONS <= (int)TOOL_MAX_OPTIONS, "TOOL_MAX_OPTIONS is too small");

enum { DEFAULT_BYTES = 32 << 20, DEFAULT_STEP = 1 << 20 };
/* As in OSU's benchmarks of collectives. */
enum { OSU_LEAST = 4, OSU_MOST = 1 << 20 };

/* ---- any program ---- */

int perf_args_complain(int print, const char *fmt, ...)
{
    va_list args;
    if (print) {
        fprintf(stderr, "%s: ", test.program);
        va_start(args, fmt);
        vfprintf(stderr, fmt, args);
        va_end(args);
        fprintf(stderr, "; try '%s --help'\n", test.program);
    }
    return PERF_USAGE;
}

const char *perf_args_valid(int right) { return right ? NULL : "invalid value"; }

int perf_args_parse(const struct perf_args *args, void *options, int argc, char **argv, int print)
{
    struct tool_options o = *args->options;
    struct tool_given given;
    o.program = test.program;
    if (tool_options_parse(&o, &given, argc, argv, !print) != 0) {
        return PERF_USAGE;
    }
    if (given.given[o.help]) {
        if (print) {
            tool_options_help(&o);
        }
        return PERF_HELP;
    }
    for (int id = 0; id < o.n; id++) {
        const char *text = given.value[id][0],
                   *wrong = given.given[id] ? args->one(options, id, text != NULL ? text : "") : NULL;
        if (wrong != NULL) {
            return perf_args_complain(print, "%s %s: %s", o.option[id].name, text != NULL ? text : "", wrong);
        }
    }
    return PERF_OK;
}

/* ---- *_perf ---- */

static int parse_named(const char *text, int (*find)(const char *), int count, int *all, int *value)
{
    *all = strcmp(text, "all") == 0;
    *value = *all ? 0 : find(text);
    return *value >= 0 && *value < count;
}

static int parse_root(const char *text, struct perf_options *o)
{
    long root = 0;
    o->all_roots = strcmp(text, "all") == 0;
    if (!o->all_roots && !test_parse_long(text, 0, test.nranks - 1, &root)) {
        return 0;
    }
    o->root = (int)root;
    return 1;
}

static int parse_start(const char *text, struct perf_options *o)
{
    o->start = strcmp(text, "instant") == 0 ? TEST_START_INSTANT : TEST_START_BARRIER;
    return o->start == TEST_START_INSTANT || strcmp(text, "barrier") == 0;
}

static int ends_in_json(const char *text)
{
    size_t n = strlen(text), tail = strlen(".json");
    return n > tail && strcmp(text + n - tail, ".json") == 0;
}

/* Options that can have one value: the reason is their help. */
static const char *only(int id, const char *text, long value)
{
    long given;
    return test_parse_long(text, value, value, &given) ? NULL : table[id].help;
}

static int parse_value(struct perf_options *o, int id, const char *text)
{
    long one;
    switch (id) {
    case PERF_OPT_MINBYTES: return test_parse_size(text, &o->min_bytes);
    case PERF_OPT_MAXBYTES: return test_parse_size(text, &o->max_bytes);
    case PERF_OPT_STEPBYTES: return test_parse_size(text, &o->step_bytes) && o->step_bytes > 0;
    case PERF_OPT_STEPFACTOR: return test_parse_size(text, &o->factor) && o->factor > 0;
    case PERF_OPT_DATATYPE:
        return parse_named(text, test_type_by_name, RONDO_NUM_DTYPES, &o->all_types, &o->type);
    case PERF_OPT_OP: return parse_named(text, test_op_by_name, TEST_OP_PREMUL + 1, &o->all_ops, &o->op);
    case PERF_OPT_ROOT: return parse_root(text, o);
    case PERF_OPT_BLOCKING: return test_parse_long(text, PERF_STREAM, PERF_EACH, &o->blocking);
    case PERF_OPT_AGG_ITERS: return test_parse_long(text, 1, 1000, &o->aggregate);
    case PERF_OPT_LOCAL_REGISTER: return test_parse_long(text, PERF_ORDINARY, PERF_MEM_ALLOC, &o->memory);
    case PERF_OPT_UNALIGN: return test_parse_long(text, 0, 1 << 20, &o->unalign);
    case PERF_OPT_ITERS: return test_parse_long(text, 1, 1000000, &o->iters);
    case PERF_OPT_WARMUP: return test_parse_long(text, 0, 1000000, &o->warmup);
    case PERF_OPT_CYCLES: return test_parse_long(text, 0, 1000000000, &o->cycles);
    case PERF_OPT_CHECK: return test_parse_long(text, 0, 1000000, &o->check);
    case PERF_OPT_AVERAGE: return test_parse_long(text, PERF_RANK0, PERF_MAX, &o->average);
    case PERF_OPT_CPUTIME: return test_parse_long(text, 0, 1, &o->cputime);
    case PERF_OPT_PER_ITER: return test_parse_long(text, 0, 1, &o->per_iter);
    case PERF_OPT_PER_ITER_SKIP: return test_parse_long(text, 0, 1000000, &o->per_iter_skip);
    case PERF_OPT_FLUSH: return test_parse_long(text, 0, 1000000, &o->flush);
    case PERF_OPT_START: return parse_start(text, o);
    case PERF_OPT_VS: o->vs_mpi = 1; return strcmp(text, "mpi") == 0;
    case PERF_OPT_COPY: return o->copy = 1;
    case PERF_OPT_VERBOSE: return o->verbose = 1;
    case PERF_OPT_TIMESTAMPS: return test_parse_long(text, 0, 1, &o->timestamps);
    case PERF_OPT_MEMORY: return test_parse_long(text, 0, 1, &o->memory_report);
    case PERF_OPT_JSON: o->json = text; return *text != '\0';
    case PERF_OPT_OSU: return o->osu = 1;
    case PERF_OPT_TIMEOUT: return test_parse_long(text, 0, 1000000, &o->timeout_s);
    case PERF_OPT_PARALLEL_INIT: return test_parse_long(text, 0, 1, &one);
    case PERF_OPT_DEVICE_CTAS: return test_parse_long(text, 1, 128, &one);
    default: return 0;
    }
}

static const char *parse_one(void *options, int id, const char *text)
{
    struct perf_options *o = options;
    switch (id) {
    case PERF_OPT_NTHREADS:
    case PERF_OPT_NGPUS: return only(id, text, 1);
    case PERF_OPT_STREAM_NULL:
    case PERF_OPT_CUDAGRAPH:
    case PERF_OPT_CTA_POLICY:
    case PERF_OPT_DEVICE_IMPL: return only(id, text, 0);
    case PERF_OPT_OUTPUT:
        o->nccl_json = text;
        return ends_in_json(text) ? NULL : "JSON is the only format, so the name must end in .json";
    default: return perf_args_valid(parse_value(o, id, text));
    }
}

/* What an option leaves to the others. */
static void fill_in(struct perf_options *o)
{
    int each = o->vs_mpi || o->copy || o->osu || o->flush > 0 || o->start != TEST_START_AUTO;
    if (o->blocking < 0) {
        o->blocking = each ? PERF_EACH : PERF_STREAM;
    }
    if (o->average < 0) {
        o->average = each && !o->osu ? PERF_MAX : PERF_AVERAGE;
    }
    if (o->min_bytes == SIZE_MAX) {
        o->min_bytes = o->osu ? OSU_LEAST : DEFAULT_BYTES;
    }
    if (o->max_bytes == SIZE_MAX) {
        size_t most = o->osu ? OSU_MOST : DEFAULT_BYTES;
        o->max_bytes = o->min_bytes > most ? o->min_bytes : most;
    }
    if (o->factor == SIZE_MAX) {
        o->factor = o->osu && o->step_bytes == SIZE_MAX ? 2 : 0;
    }
    o->factor = o->factor == 1 ? 0 : o->factor; /* as in nccl-tests */
    o->step_bytes = o->step_bytes == SIZE_MAX ? DEFAULT_STEP : o->step_bytes;
    o->osu_iters = o->osu && o->iters < 0;
    o->warmup = o->warmup >= 0 ? o->warmup : o->osu ? 100 : 5;
    o->iters = o->iters >= 0 ? o->iters : o->osu ? 1000 : 20;
}

/* Options that do not go together. @return NULL, or the sentence. */
static const char *contradiction(const struct perf_options *o)
{
    if (o->min_bytes > o->max_bytes) return "the smallest size (-b) exceeds the largest (-e)";
    if (o->blocking != PERF_EACH && (o->copy || o->flush > 0 || o->osu || o->start != TEST_START_AUTO))
        return "--copy, --start, --osu and -F time each call alone, which is -z 3";
    if (o->blocking == PERF_STREAM && (o->per_iter || o->verbose))
        return "-I and -v need the time of each call, and calls on a stream (-z 0) have none: add -z 1, 2 or "
               "3";
    if (o->per_iter_skip > 0 && !o->per_iter) return "-K is for -I 1";
    if (o->per_iter_skip >= o->iters) return "-K leaves no iteration (-n)";
    if (o->osu && (o->vs_mpi || o->copy || o->per_iter))
        return "--osu has no columns for --vs, --copy and -I";
    if (o->unalign > 0 && o->memory != PERF_ORDINARY) return "-u and -R do not go together";
    if (getenv("NCCL_TESTS_SPLIT") != NULL || getenv("NCCL_TESTS_SPLIT_MASK") != NULL)
        return "NCCL_TESTS_SPLIT is set, and all ranks are one group here: start a job for each group";
    return NULL;
}

static const char usage[] =
    "[OPTION]...\n"
    "\n"
    "Measure a collective and check its results. Options, columns and exit status follow nccl-tests 2.19.\n"
    "Start it with mpirun or srun, which give the number of ranks.";

/* The names of types and operations, as --help shows them. */
static const char *outro(void)
{
    static char text[2048];
    size_t used = (size_t)snprintf(text, sizeof text, "Types:     ");
    for (int type = 0; type < RONDO_NUM_DTYPES && used < sizeof text; type++) {
        used += (size_t)snprintf(text + used, sizeof text - used, " %s", test_type_nccl_name(type));
    }
    used += (size_t)snprintf(text + used, sizeof text - used, "\nOperations:");
    for (int op = 0; op <= TEST_OP_PREMUL && used < sizeof text; op++) {
        used += (size_t)snprintf(text + used, sizeof text - used, " %s", test_op_nccl_name(op));
    }
    snprintf(
        text + used, sizeof text - used,
        "\n\nExit status: 0 success, 3 library error, 4 timeout, 6 wrong option, 7 wrong results, or less\n"
        "than 0.9 of the bandwidth in NCCL_TESTS_MIN_BW\n");
    return text;
}

int perf_options_parse(struct perf_options *o, int argc, char **argv, int print)
{
    const struct tool_options options = { .usage = usage,
                                          .outro = outro(),
                                          .option = table,
                                          .n = PERF_NUM_OPTIONS,
                                          .help = PERF_OPT_HELP,
                                          .version = -1,
                                          .last_wins = 1 };
    const struct perf_args args = { &options, parse_one };
    const char *wrong;
    int result;
    *o = (struct perf_options){ .min_bytes = SIZE_MAX,
                                .max_bytes = SIZE_MAX,
                                .step_bytes = SIZE_MAX,
                                .factor = SIZE_MAX,
                                .iters = -1,
                                .warmup = -1,
                                .aggregate = 1,
                                .cycles = 1,
                                .check = 1,
                                .blocking = -1,
                                .average = -1,
                                .timeout_s = -1,
                                .type = RONDO_FLOAT32,
                                .op = RONDO_SUM };
    result = perf_args_parse(&args, o, argc, argv, print);
    if (result != PERF_OK) {
        return result;
    }
    fill_in(o);
    wrong = contradiction(o);
    return wrong != NULL ? perf_args_complain(print, "%s", wrong) : PERF_OK;
}
