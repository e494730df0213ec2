#include "perf.h"

#include <stdlib.h>
#include <string.h>

enum { OPT_VS = 256, OPT_JSON, OPT_START, OPT_COPY };

static const struct option long_options[] = {
    { "minbytes", 1, NULL, 'b' },
    { "maxbytes", 1, NULL, 'e' },
    { "stepbytes", 1, NULL, 'i' },
    { "stepfactor", 1, NULL, 'f' },
    { "iters", 1, NULL, 'n' },
    { "agg_iters", 1, NULL, 'm' },
    { "warmup_iters", 1, NULL, 'w' },
    { "op", 1, NULL, 'o' },
    { "datatype", 1, NULL, 'd' },
    { "root", 1, NULL, 'r' },
    { "check", 1, NULL, 'c' },
    { "blocking", 1, NULL, 'z' },
    { "average", 1, NULL, 'a' },
    { "report_cputime", 1, NULL, 'C' },
    { "timeout", 1, NULL, 'T' },
    { "nthreads", 1, NULL, 't' },
    { "ngpus", 1, NULL, 'g' },
    { "verbose", 0, NULL, 'v' },
    { "local_register", 1, NULL, 'R' },
    { "help", 0, NULL, 'h' },
    { "vs", 1, NULL, OPT_VS },
    { "json", 1, NULL, OPT_JSON },
    { "start", 1, NULL, OPT_START },
    { "copy", 0, NULL, OPT_COPY },
    { NULL, 0, NULL, 0 },
};

static void usage(const char *program)
{
    printf("usage: mpirun -n RANKS %s [OPTION]...\n"
           "\n"
           "Measure a collective and check its results. Options, columns and exit status follow nccl-tests.\n"
           "\n"
           "Sizes (SIZE takes K, M, G):\n"
           "  -b, --minbytes SIZE         smallest size (default: 8)\n"
           "  -e, --maxbytes SIZE         largest size (default: 32M)\n"
           "  -f, --stepfactor N          multiply each size by N to get the next (default: 4)\n"
           "  -i, --stepbytes SIZE        add SIZE to each size instead\n"
           "\n"
           "Calls:\n"
           "  -d, --datatype TYPE|all     data type (default: f32)\n"
           "  -o, --op OP|all             operation (default: sum)\n"
           "  -r, --root RANK|all         root (default: 0)\n"
           "  -z, --blocking 0|1          1: blocking calls (default); 0: calls on a stream\n"
           "  -m, --agg_iters N           calls per group (default: 1)\n"
           "  -R, --local_register 0|1|2  buffers: 0: ordinary (default); 1: ordinary, registered;\n"
           "                              2: from rondo_mem_alloc, registered\n"
           "\n"
           "Measuring:\n"
           "  -n, --iters N               timed iterations (default: 20)\n"
           "  -w, --warmup_iters N        untimed iterations (default: 1)\n"
           "  -c, --check N               checked runs per size; 0: none (default: 1)\n"
           "  -a, --average N             time over ranks: 0: rank 0; 1: average; 2: minimum; 3: maximum "
           "(default)\n"
           "  -C, --report_cputime 0|1    1: report CPU time instead of wall time (default: 0)\n"
           "  --start instant|barrier     start the ranks at an instant of the node's clock, or after a "
           "barrier\n"
           "                              (default: instant if all ranks are on one node with a core each)\n"
           "  --vs mpi                    alternate with MPI's collective on the same buffers; ratio > 1: "
           "Rondo\n"
           "                              is faster\n"
           "  --copy                      alternate out of place, in place and a local copy; excess: out of "
           "place\n"
           "                              over in place + 1.2 copies, which should not exceed 1\n"
           "\n"
           "Output and other options:\n"
           "  -v, --verbose               also show the minimum and maximum over the iterations\n"
           "  --json FILE                 also write the rows to FILE\n"
           "  -T, --timeout SECONDS       deadline of every wait (default: RONDO_TIMEOUT)\n"
           "  -h, --help                  show this help and exit\n"
           "\n"
           "Types:     ",
           program);
    for (int type = 0; type < RONDO_NUM_DTYPES; type++) {
        printf(" %s", test_types[type].name);
    }
    printf("\nOperations:");
    for (int op = 0; op < RONDO_NUM_OPS; op++) {
        printf(" %s", test_op_names[op]);
    }
    printf("\n\nExit status: 0 success, 3 library error, 4 timeout, 6 wrong option, 7 wrong results\n");
}

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

static int parse_one(void *options, int opt, const char *text)
{
    struct perf_options *o = options;
    long one;
    switch (opt) {
    case 'b': return test_parse_size(text, &o->min_bytes);
    case 'e': return test_parse_size(text, &o->max_bytes);
    case 'i': o->factor = 0; return test_parse_size(text, &o->step_bytes) && o->step_bytes > 0;
    case 'f': return test_parse_size(text, &o->factor) && o->factor > 1;
    case 'n': return test_parse_long(text, 1, 1000000, &o->iters);
    case 'm': return test_parse_long(text, 1, 1000, &o->aggregate);
    case 'w': return test_parse_long(text, 0, 1000000, &o->warmup);
    case 'c': return test_parse_long(text, 0, 1000000, &o->check);
    case 'z': return test_parse_long(text, 0, 1, &o->blocking);
    case 'a': return test_parse_long(text, PERF_RANK0, PERF_MAX, &o->average);
    case 'C': return test_parse_long(text, 0, 1, &o->cputime);
    case 'T': return test_parse_long(text, 0, 1000000, &o->timeout_s);
    case 'R': return test_parse_long(text, PERF_ORDINARY, PERF_MEM_ALLOC, &o->memory);
    case 't':
    case 'g': return test_parse_long(text, 1, 1, &one);
    case 'd': return parse_named(text, test_type_by_name, RONDO_NUM_DTYPES, &o->all_types, &o->type);
    case 'o': return parse_named(text, test_op_by_name, RONDO_NUM_OPS, &o->all_ops, &o->op);
    case 'r': return parse_root(text, o);
    case 'v': o->verbose = 1; return 1;
    case OPT_VS: o->vs_mpi = 1; return strcmp(text, "mpi") == 0;
    case OPT_COPY: o->copy = 1; return 1;
    case OPT_JSON: o->json = text; return *text != '\0';
    case OPT_START:
        o->start = strcmp(text, "instant") == 0 ? TEST_START_INSTANT : TEST_START_BARRIER;
        return o->start == TEST_START_INSTANT || strcmp(text, "barrier") == 0;
    default: return 0;
    }
}

static const char *option_name(const struct option *rows, int opt)
{
    for (const struct option *row = rows; row->name != NULL; row++) {
        if (row->val == opt) {
            return row->name;
        }
    }
    return "?";
}

int perf_args_complain(int print, const char *what, const char *value)
{
    if (print) {
        fprintf(stderr, "%s: %s%s%s; try '--help'\n", test.program, what, value != NULL ? " " : "",
                value != NULL ? value : "");
    }
    return PERF_USAGE;
}

int perf_args_parse(const struct perf_args *args, void *options, int argc, char **argv, int print)
{
    int opt;
    char what[64];
    opterr = 0;
    while ((opt = getopt_long(argc, argv, args->letters, args->rows, NULL)) != -1) {
        if (opt == 'h') {
            if (print) {
                args->usage(test.program);
            }
            return PERF_HELP;
        }
        if (opt == '?') {
            return perf_args_complain(print, "unknown option, or missing value:", argv[optind - 1]);
        }
        if (!args->one(options, opt, optarg)) {
            snprintf(what, sizeof(what), "--%s: invalid value", option_name(args->rows, opt));
            return perf_args_complain(print, what, optarg);
        }
    }
    return optind < argc ? perf_args_complain(print, "unexpected argument", argv[optind]) : PERF_OK;
}

int perf_options_parse(struct perf_options *o, int argc, char **argv, int print)
{
    static const struct perf_args args = { "b:e:i:f:n:m:w:c:z:a:C:T:t:g:d:o:r:R:vh", long_options, usage,
                                           parse_one };
    int result;
    *o = (struct perf_options){ .min_bytes = 8,
                                .max_bytes = SIZE_MAX,
                                .factor = 4,
                                .iters = 20,
                                .warmup = 1,
                                .aggregate = 1,
                                .check = 1,
                                .blocking = 1,
                                .average = PERF_MAX,
                                .timeout_s = -1,
                                .type = RONDO_FLOAT32,
                                .op = RONDO_SUM };
    result = perf_args_parse(&args, o, argc, argv, print);
    if (result != PERF_OK) {
        return result;
    }
    if (o->max_bytes == SIZE_MAX) {
        o->max_bytes = o->min_bytes > 32 << 20 ? o->min_bytes : 32 << 20;
    }
    if (o->min_bytes > o->max_bytes) {
        return perf_args_complain(print, "the smallest size (-b) exceeds the largest (-e)", NULL);
    }
    return PERF_OK;
}
