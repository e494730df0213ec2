/*
 * gpu_ranks: the cases of mpi_coll in device memory, with ranks that are threads of this process and share
 * one GPU. Needs no launcher. RONDO_ALGO and RONDO_PROTO force the algorithm and the protocol; a process
 * reads them once.
 */
#include "gpu_world.h"
#include "mpi_coll.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

struct options {
    long ranks, timeout_s, graphs;
    uint64_t seed;
    struct coll_wish wish;
    size_t most;
    int open; /* 1: buffers come from rondo_mem_alloc_device */
    const char *one;
};

struct job {
    const struct options *options;
    struct coll_list list;
    struct coll_run run[GPU_MOST_RANKS];
};

/* Fill the tables of values before the ranks read them, because reading may grow them. */
static void prepare_values(const struct coll_run *run, const struct coll_case *c)
{
    const struct test_values *values = test_values_get(c->type, c->op, run->nranks, run->seed);
    for (int r = 0; r < run->nranks; r++) {
        test_values_input(values, r, 0, 0, NULL);
    }
    if (c->op != TEST_OP_NONE) {
        test_values_result(values, 0, 0, NULL);
    }
}

static void make_room(struct coll_run *run, const struct coll_list *list, int open)
{
    size_t most = 0;
    for (size_t i = 0; i < list->count; i++) {
        size_t room = coll_case_room(run, &list->cases[i]);
        most = room > most ? room : most;
    }
    coll_run_room(run, 0, most, open);
    coll_run_room(run, 1, most, open);
}

static struct coll_run run_of(const struct options *o, int rank)
{
    struct coll_run run = {
        .seed = o->seed, .rank = rank, .nranks = (int)o->ranks, .memory = COLL_DEVICE, .most = o->most
    };
    snprintf(run.again, sizeof(run.again), "gpu_ranks -n %ld", o->ranks);
    return run;
}

static void run_cases(struct gpu_rank *r)
{
    struct job *job = r->arg;
    struct coll_run *run = &job->run[r->rank];
    *run = run_of(job->options, r->rank);
    run->comm = r->comm;
    run->stream = r->stream;
    TEST_MUST(coll_run_begin(run), run->comm);
    make_room(run, &job->list, job->options->open);
    for (size_t i = 0; i < job->list.count; i++) {
        struct coll_case c = job->list.cases[i];
        c.stream = 1; /* ranks that share a device may not use the default stream */
        gpu_meet(r);
        if (r->rank == 0) {
            test_watchdog((int)job->options->timeout_s);
            prepare_values(run, &c);
        }
        gpu_meet(r);
        coll_case_run(run, &c);
    }
    gpu_meet(r);
    coll_run_end(run);
}

static void usage(void)
{
    printf("usage: gpu_ranks -n RANKS [OPTION]...\n"
           "\n"
           "Run the cases of mpi_coll with threads as ranks that share one GPU.\n"
           "\n"
           "  --quick        every pair of properties with every collective (default)\n"
           "  --full         every combination\n"
           "  --coll NAME    only this collective\n"
           "  --type TYPE    only this type\n"
           "  --op OP        only this operation\n"
           "  --most BYTES   limit a rank's block (default: no limit)\n"
           "  --open         buffers from rondo_mem_alloc_device\n"
           "  --seed N       seed of the random choices (default: 1)\n"
           "  --case TEXT    only the case that a failure printed\n"
           "  --graphs N     instead: replay captured calls N times\n"
           "  --timeout S    give up after S seconds without progress (default: 30)\n"
           "  -h, --help     show this help and exit\n"
           "\n"
           "RONDO_ALGO and RONDO_PROTO force the algorithm and the protocol.\n"
           "Exit status: 0 success, 1 failure, 77 no GPU\n");
}

static int parse_one(int opt, const char *text, struct options *o)
{
    long seed;
    switch (opt) {
    case 'n': return test_parse_long(text, 1, GPU_MOST_RANKS, &o->ranks);
    case 's': return test_parse_long(text, 0, 1L << 62, &seed) && (o->seed = (uint64_t)seed, 1);
    case 'q': o->wish.full = 0; return 1;
    case 'f': o->wish.full = 1; return 1;
    case 'c': return (o->wish.coll = test_coll_by_name(text)) != NULL;
    case 't': return (o->wish.type = test_type_by_name(text)) >= 0;
    case 'o': return (o->wish.op = test_op_by_name(text)) >= 0;
    case 'b': return test_parse_size(text, &o->most) && o->most >= 64;
    case 'm': o->open = 1; return 1;
    case '1': o->one = text; return 1;
    case 'g': return test_parse_long(text, 1, 1000000, &o->graphs);
    case 'w': return test_parse_long(text, 1, 1000000, &o->timeout_s);
    default: return 0;
    }
}

/* @return 0: go on; 1: done; 2: wrong usage. */
static int parse(int argc, char **argv, struct options *o)
{
    static const struct option rows[] = { { "seed", 1, NULL, 's' }, { "quick", 0, NULL, 'q' },
                                          { "full", 0, NULL, 'f' }, { "coll", 1, NULL, 'c' },
                                          { "type", 1, NULL, 't' }, { "op", 1, NULL, 'o' },
                                          { "most", 1, NULL, 'b' }, { "open", 0, NULL, 'm' },
                                          { "case", 1, NULL, '1' }, { "graphs", 1, NULL, 'g' },
                                          { "help", 0, NULL, 'h' }, { "timeout", 1, NULL, 'w' },
                                          { NULL, 0, NULL, 0 } };
    int opt;
    *o = (struct options){
        .ranks = 2, .seed = 1, .timeout_s = 30, .wish = { .type = -1, .op = -1 }, .most = SIZE_MAX
    };
    while ((opt = getopt_long(argc, argv, "hn:", rows, NULL)) != -1) {
        if (opt == 'h') {
            usage();
            return 1;
        }
        if (!parse_one(opt, optarg, o)) {
            fprintf(stderr, "gpu_ranks: invalid option or value: %s; try '--help'\n",
                    optarg != NULL ? optarg : argv[optind - 1]);
            return 2;
        }
    }
    return optind < argc ? 2 : 0;
}

/* List the case of --case, or the selected cases. @return 0 if the case is invalid. */
static int make_list(const struct options *o, struct coll_list *list)
{
    struct coll_run run = run_of(o, 0);
    struct coll_case one;
    if (o->one == NULL) {
        coll_list_make(list, &run, &o->wish);
        return 1;
    }
    if (!coll_case_parse(o->one, run.nranks, &one)) {
        fprintf(stderr, "gpu_ranks: invalid case: %s\n", o->one);
        return 0;
    }
    list->cases = malloc(sizeof(one));
    if (list->cases == NULL) {
        test_die("no memory for a case");
    }
    list->cases[0] = one;
    list->count = 1;
    return 1;
}

int main(int argc, char **argv)
{
    static struct job job;
    struct options o;
    int stop = parse(argc, argv, &o);
    if (stop == 0 && o.graphs == 0 && !make_list(&o, &job.list)) {
        stop = 2;
    }
    if (stop != 0) {
        return stop == 1 ? 0 : 2;
    }
    stop = gpu_begin("gpu_ranks");
    if (stop != 0) {
        return stop;
    }
    printf("gpu_ranks: %ld ranks on one GPU, algorithm %s, protocol %s, seed %llu\n", o.ranks,
           coll_forced("RONDO_ALGO"), coll_forced("RONDO_PROTO"), (unsigned long long)o.seed);
    test_watchdog((int)o.timeout_s);
    job.options = &o;
    if (o.graphs > 0) {
        gpu_ranks_run((int)o.ranks, gpu_graph_rank, &o.graphs);
    } else {
        gpu_ranks_run((int)o.ranks, run_cases, &job);
    }
    test.what = "the end";
    coll_list_free(&job.list);
    test_values_clear();
    return gpu_end();
}
