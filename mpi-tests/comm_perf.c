/* comm_perf: what a communicator costs. comm_perf_times.c has the times, comm_perf_held.c the resources. */
#include "comm_perf.h"

#include <stdlib.h>
#include <string.h>

/* X(ctx, NAME, "-n, --option", arguments, least, most, "group", "help") */
#define COMM_OPTION_TABLE(X, ctx)                                                                            \
    X(ctx, ITERS, "-n, --iters", "N", 1, 1, "Options",                                                       \
      "timed calls after the first; 0: do not time calls (default: 20)")                                     \
    X(ctx, LIVE, "--live", "N[,N]...", 1, 1, "",                                                             \
      "numbers of communicators that are alive at once; 0: none (default: 1,10,100)")                        \
    X(ctx, MOST, "--most", "KIB", 1, 1, "",                                                                  \
      "fail if a communicator and rank holds more memory than this, or half a file, in the mean of the "     \
      "largest --live (default: 0, no limit)")                                                               \
    X(ctx, JSON, "--json", "FILE", 1, 1, "", "also write the rows to FILE")                                  \
    X(ctx, TIMEOUT, "-T, --timeout", "SECONDS", 1, 1, "", "deadline of every wait (default: RONDO_TIMEOUT)") \
    X(ctx, HELP, "-h, --help", "", 0, 0, "", "show this help and exit")

enum comm_option {
#define COMM_OPTION_ID(ctx, NAME, ...) COMM_OPT_##NAME,
    COMM_OPTION_TABLE(COMM_OPTION_ID, ) COMM_NUM_OPTIONS
#undef COMM_OPTION_ID
};
static const struct tool_option table[] = { COMM_OPTION_TABLE(TOOL_OPTION_ROW, ) };

static const struct tool_options comm_options = {
    .usage =
        "[OPTION]...\n"
        "\n"
        "Measure what a communicator costs: the time of the calls of its life, beside MPI's own, and what\n"
        "it holds while it lives. Every communicator is used in a verified all_reduce. Fails if anything is\n"
        "left over after the communicators were destroyed. Start it with mpirun or srun.",
    .outro = "Exit status: 0 success, 1 something is left over or --most is exceeded, 3 library error, 4 "
             "timeout,\n"
             "6 wrong option or more communicators than the host has memory for, 7 wrong results\n",
    .option = table,
    .n = COMM_NUM_OPTIONS,
    .help = COMM_OPT_HELP,
    .version = -1,
    .last_wins = 1,
};

static int parse_live(const char *text, struct comm_perf *cp)
{
    cp->nlive = 0;
    for (;;) {
        char number[16];
        size_t len = strcspn(text, ",");
        long n = 0;
        snprintf(number, sizeof(number), "%.*s", (int)len, text);
        if (cp->nlive == COMM_PERF_MOST_LIVE || !test_parse_long(number, 0, 1000000, &n)) {
            return 0;
        }
        if (n > 0) {
            cp->live[cp->nlive++] = n;
        }
        if (text[len] == '\0') {
            return 1;
        }
        text += len + 1;
    }
}

static const char *parse_one(void *options, int id, const char *text)
{
    struct comm_perf *cp = options;
    switch (id) {
    case COMM_OPT_ITERS: return perf_args_valid(test_parse_long(text, 0, 1000000, &cp->iters));
    case COMM_OPT_TIMEOUT: return perf_args_valid(test_parse_long(text, 0, 1000000, &cp->timeout_s));
    case COMM_OPT_LIVE: return perf_args_valid(parse_live(text, cp));
    case COMM_OPT_MOST: return perf_args_valid(test_parse_long(text, 0, 1000000, &cp->most_kib));
    case COMM_OPT_JSON: cp->json = text; return perf_args_valid(*text != '\0');
    default: return "invalid value";
    }
}

void comm_perf_prepare(const struct comm_perf *cp, rondo_comm *comm, size_t bytes, struct test_call *call)
{
    *call = (struct test_call){ .coll = test_coll_by_name("all_reduce"),
                                .type = RONDO_FLOAT32,
                                .op = RONDO_SUM,
                                .handle = RONDO_SUM,
                                .count = bytes / sizeof(float) };
    perf_must(rondo_comm_rank(comm, &call->rank), comm, "asking for the rank");
    perf_must(rondo_comm_count(comm, &call->nranks), comm, "asking for the number of ranks");
    call->values = test_values_get(call->type, call->op, call->nranks, 1);
    memset(cp->recv, 0x5a, bytes);
    test_call_fill(call, cp->send);
    call->coll->expect(call, cp->want);
}

size_t comm_perf_wrong(const struct comm_perf *cp, const struct test_call *call)
{
    return test_values_wrong(call->values, cp->recv, cp->want, call->count, NULL);
}

static int open_json(const struct comm_perf *cp)
{
    int ready = 1;
    if (test.rank == 0 && cp->json != NULL) {
        ready = perf_json_begin(test.program, cp->json);
        perf_json_text(",\"iters\":%ld},\n", cp->iters);
    }
    MPI_Bcast(&ready, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return ready;
}

static int close_json(const struct comm_perf *cp, double at_start, double at_end)
{
    int written = 1;
    if (test.rank == 0) {
        perf_json_placements(at_start, at_end);
        perf_json_text(",\"wrong\":%zu}\n", cp->wrong);
        written = perf_json_end();
        if (!written) {
            fprintf(stderr, "%s: cannot write %s\n", test.program, cp->json);
        }
    }
    MPI_Bcast(&written, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return written;
}

static void setup(struct comm_perf *cp)
{
    if (cp->timeout_s >= 0) {
        cp->config.timeout_ms = 1000 * cp->timeout_s;
    }
    cp->config.name = test.program;
    cp->send = perf_buffer(COMM_PERF_LARGE);
    cp->recv = perf_buffer(COMM_PERF_LARGE);
    cp->want = perf_buffer(COMM_PERF_LARGE);
}

static void teardown(struct comm_perf *cp)
{
    free(cp->send);
    free(cp->recv);
    free(cp->want);
    test_values_clear();
}

static int measure(struct comm_perf *cp)
{
    double before = perf_probe_one_way(), after;
    int held;
    if (!open_json(cp)) {
        return PERF_USAGE;
    }
    test_start_open(TEST_START_AUTO);
    setup(cp);
    if (test.rank == 0) {
        perf_print_title(test.program);
        printf(", ranks start %s\n", test_start_name());
        perf_print_placement(before);
    }
    comm_perf_times(cp);
    held = comm_perf_held(cp);
    after = perf_probe_one_way();
    if (test.rank == 0) {
        printf("# Out of bounds values : %zu %s\n", cp->wrong, cp->wrong == 0 ? "OK" : "FAILED");
    }
    if (!close_json(cp, before, after) && held == PERF_OK) {
        held = PERF_INTERNAL;
    }
    teardown(cp);
    test_start_close();
    return held != PERF_OK ? held : cp->wrong > 0 ? PERF_DATA : PERF_OK;
}

int main(int argc, char **argv)
{
    static const struct perf_args args = { &comm_options, parse_one };
    struct comm_perf cp = {
        .iters = 20, .timeout_s = -1, .live = { 1, 10, 100 }, .nlive = 3, .config = RONDO_CONFIG_INIT
    };
    int code;
    test_init(perf_program_name(argv[0]), MPI_THREAD_SINGLE);
    code = perf_args_parse(&args, &cp, argc, argv, test.rank == 0);
    if (code == PERF_OK) {
        code = measure(&cp);
    }
    MPI_Finalize();
    return code == PERF_HELP ? PERF_OK : code;
}
