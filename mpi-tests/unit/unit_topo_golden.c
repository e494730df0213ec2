/*
 * The search on the machines in machines/ finds at least what NCCL finds (reference.txt) and exactly what
 * golden.txt holds. Prints found / bound for each. GOLDEN_UPDATE=1 rewrites golden.txt; review the difference
 * before you commit it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "topo/xml/xml.h"

enum { MAX_CASES = 2000, LINE = 512 };
/* Searches per case, for the median time, which means nothing under sanitizers. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { RUNS = 1 };
#else
enum { RUNS = 5 };
#endif

struct result {
    char key[160];  /* "dgx_h100 2 0,1,2 ring" */
    char text[128]; /* pattern, channels, speeds, types */
    double ms;
    int channels, inside, between, type_inside, type_between, found, bound;
    int nodes, big;
};

static struct result results[MAX_CASES];
static int nresults;

static const char *machines_path(const char *name, const char *suffix, char *path, size_t bytes)
{
    const char *srcdir = getenv("srcdir");
    snprintf(path, bytes, "%s/mpi-tests/unit/machines/%s%s", srcdir != NULL ? srcdir : ".", name, suffix);
    return path;
}

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void search(const struct rondo_topo *topo, struct rondo_graph graphs[RONDO_NUM_GRAPHS])
{
    memset(graphs, 0, sizeof(*graphs) * RONDO_NUM_GRAPHS);
    assert_int_equal(rondo_topo_search(topo, graphs), RONDO_SUCCESS);
}

static double search_ms(const struct rondo_topo *topo)
{
    struct rondo_graph graphs[RONDO_NUM_GRAPHS];
    double ms[RUNS];
    for (int i = 0; i < RUNS; i++) {
        ms[i] = cpu_ms();
        search(topo, graphs);
        ms[i] = cpu_ms() - ms[i];
        for (int g = 0; g < RONDO_NUM_GRAPHS; g++) {
            rondo_graph_release(&graphs[g]);
        }
    }
    qsort(ms, RUNS, sizeof(*ms), by_value);
    return ms[RUNS / 2];
}

static void add_result(const char *name, const char *list, int nodes, const struct rondo_topo *topo,
                       const struct rondo_graph *g, double ms)
{
    struct result *r = &results[nresults++];
    char limit[160];
    assert_true(nresults < MAX_CASES);
    snprintf(r->key, sizeof(r->key), "%.100s %d %.32s %s", name, nodes, list != NULL ? list : "all",
             rondo_graph_name(g->id));
    snprintf(r->text, sizeof(r->text), "%dx%d/%d %s/%s bound %d%s", g->nchannels, g->bw_intra, g->bw_inter,
             rondo_path_type_name(g->type_intra), nodes > 1 ? rondo_path_type_name(g->type_inter) : "-",
             g->bound, g->fallback ? " fallback" : "");
    r->ms = ms;
    r->channels = g->nchannels;
    r->inside = g->bw_intra;
    r->between = g->bw_inter;
    r->type_inside = g->type_intra;
    r->type_between = g->type_inter;
    r->found = g->found;
    r->bound = g->bound;
    r->nodes = nodes;
    r->big = topo->ndevs > 32;
    printf("%-40s %-44s %5.1f %% %8.2f ms %8lld steps  %s\n", r->key, r->text,
           g->bound > 0 ? 100.0 * g->found / g->bound : 100.0, ms, (long long)g->steps,
           rondo_graph_limit(topo, g, limit, sizeof(limit)));
}

static void run_case(const struct rondo_machine *machine, const char *name, const char *list, int nodes)
{
    struct rondo_topo_options options = RONDO_TOPO_OPTIONS_DEFAULT;
    struct rondo_topo_rank *ranks;
    struct rondo_topo *topo;
    struct rondo_graph graphs[RONDO_NUM_GRAPHS];
    int n;
    double ms;
    options.nnodes = nodes;
    assert_int_equal(rondo_topo_ranks(machine, list, &ranks, &n), RONDO_SUCCESS);
    assert_int_equal(rondo_topo_create(&topo, machine, ranks, n, &options), RONDO_SUCCESS);
    ms = search_ms(topo);
    search(topo, graphs);
    for (int g = 0; g < RONDO_NUM_GRAPHS; g++) {
        if (rondo_graph_check(topo, &graphs[g]) != RONDO_SUCCESS) {
            fail_msg("%s, %d nodes, %s: %s", name, nodes, list != NULL ? list : "all", rondo_error_text());
        }
        if (graphs[g].bound > 0 && graphs[g].found > graphs[g].bound) {
            fail_msg("%s, %d nodes, %s: found %d above the bound %d", name, nodes,
                     list != NULL ? list : "all", graphs[g].found, graphs[g].bound);
        }
        add_result(name, list, nodes, topo, &graphs[g], ms);
        rondo_graph_release(&graphs[g]);
    }
    rondo_topo_destroy(topo);
    rondo_free(ranks);
}

static void run_machine(const char *name)
{
    /* Devices by NVML index: the reference's, and some other selections (one per socket, all but one
     * switch's). */
    static const char *const subsets[] = { NULL,      "0,1",     "0,1,2",       "0,2", "0,4",
                                           "0,1,2,3", "0,2,4,6", "0,1,2,3,4,5", "2-7", "0,1,2,3,4,5,6,7" };
    static const uint8_t least[] = { 0, 4, 4, 4, 8, 6, 8, 8, 8, 16 },
                         most[] = { 255, 16, 16, 4, 16, 255, 16, 16, 16, 255 };
    struct rondo_machine machine = { 0 };
    char path[512];
    int gpus;
    if (rondo_machine_read(&machine, machines_path(name, ".xml", path, sizeof(path))) != RONDO_SUCCESS) {
        fail_msg("%s: %s", name, rondo_error_text());
    }
    gpus = rondo_machine_count(&machine, RONDO_ITEM_GPU);
    for (size_t i = 0; i < RONDO_COUNTOF(subsets); i++) {
        for (int nodes = 1; nodes <= 4 && gpus >= least[i] && gpus <= most[i]; nodes *= 2) {
            run_case(&machine, name, subsets[i], nodes);
        }
    }
    rondo_machine_release(&machine);
}

static int is_machine(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return n > 4 && strcmp(entry->d_name + n - 4, ".xml") == 0;
}

static int run_all(void **state)
{
    struct dirent **list;
    char path[512], name[128];
    const char *only = getenv("MACHINE");
    int n = scandir(machines_path("", "", path, sizeof(path)), &list, is_machine, alphasort);
    (void)state;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "%.*s", (int)strlen(list[i]->d_name) - 4, list[i]->d_name);
        if (only == NULL || strcmp(only, name) == 0) {
            run_machine(name);
        }
        free(list[i]);
    }
    free(list);
    return 0;
}

static const struct result *find(const char *key)
{
    for (int i = 0; i < nresults; i++) {
        if (strcmp(results[i].key, key) == 0) {
            return &results[i];
        }
    }
    return NULL;
}

struct reference {
    char machine[64], devices[64], graph[8], inside[8], between[8];
    int nodes, channels, bw_inside, bw_between;
    double us;
};

/* @return 1: found; 0: no more lines. */
static int next_reference(FILE *file, struct reference *r)
{
    char line[LINE];
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "%63s %d %63s %7s %d %d %d %7s %7s %lf", r->machine, &r->nodes, r->devices, r->graph,
                   &r->channels, &r->bw_inside, &r->bw_between, r->inside, r->between, &r->us) == 10) {
            return 1;
        }
    }
    return 0;
}

/* @return what our graph lacks; NULL: nothing. A graph that carries more may have worse paths. */
static const char *lacks(const struct result *ours, const struct reference *theirs)
{
    int most = theirs->channels * (theirs->nodes > 1 ? theirs->bw_between : theirs->bw_inside);
    if (ours->found < most) {
        return "less bandwidth";
    }
    if (ours->found > most + most / 64) {
        return NULL;
    }
    if (theirs->nodes > 1 && ours->channels * ours->inside < theirs->channels * theirs->bw_inside) {
        return "less bandwidth inside the node";
    }
    if (ours->type_inside > rondo_path_type_from_name(theirs->inside)) {
        return "worse paths inside the node";
    }
    return theirs->nodes > 1 && ours->type_between > rondo_path_type_from_name(theirs->between)
               ? "worse paths to the nets"
               : NULL;
}

/* NCCL's results are lower bounds of channels x bandwidth and, at equal bandwidth, of the path types. */
static void not_below_reference(void **state)
{
    char path[512], key[200];
    int bad = 0, seen = 0, better = 0;
    double theirs_ms = 0, ours_ms = 0;
    struct reference r;
    FILE *file = fopen(machines_path("reference", ".txt", path, sizeof(path)), "r");
    (void)state;
    assert_non_null(file);
    while (next_reference(file, &r)) {
        const struct result *ours;
        const char *what;
        if (getenv("MACHINE") != NULL && strcmp(getenv("MACHINE"), r.machine) != 0) {
            continue;
        }
        if (r.nodes == 2) { /* NCCL's search only distinguishes one node and several */
            snprintf(key, sizeof(key), "%s 4 %s %s", r.machine, r.devices, r.graph);
            assert_non_null(find(key));
            assert_null(lacks(find(key), &r));
        }
        snprintf(key, sizeof(key), "%s %d %s %s", r.machine, r.nodes, r.devices, r.graph);
        ours = find(key);
        assert_non_null(ours);
        what = lacks(ours, &r);
        if (strcmp(r.devices, "all") == 0) {
            printf("%-32s ours %-44s NCCL %dx%d/%d %s/%s in %.2f ms\n", key, ours->text, r.channels,
                   r.bw_inside, r.bw_between, r.inside, r.between, r.us * 1e-3);
        }
        if (what != NULL) {
            print_error("%s: %s; NCCL %dx%d/%d %s/%s: %s\n", key, ours->text, r.channels, r.bw_inside,
                        r.bw_between, r.inside, r.between, what);
            bad++;
        }
        seen++;
        better += ours->found > r.channels * (r.nodes > 1 ? r.bw_between : r.bw_inside);
        theirs_ms += r.us * 1e-3;
        ours_ms += ours->ms / RONDO_NUM_GRAPHS;
    }
    fclose(file);
    printf("%d results of NCCL: %d bettered, %d equalled; search of all: NCCL %.0f ms (on another day), here "
           "%.0f ms\n",
           seen, better, seen - better - bad, theirs_ms, ours_ms);
    assert_int_equal(bad, 0);
    assert_true(seen > 0);
}

/* Every line of golden.txt matches, and there is no new one. */
static void search_matches_golden_and_reaches_nccl(void **state)
{
    char path[512], line[LINE], was[LINE];
    int at = 0, bad = 0;
    const char *update = getenv("GOLDEN_UPDATE");
    int writes = update != NULL && update[0] != '\0';
    FILE *file = fopen(machines_path("golden", ".txt", path, sizeof(path)), writes ? "w" : "r");
    (void)state;
    if (getenv("MACHINE") != NULL) {
        skip();
    }
    assert_non_null(file);
    for (; at < nresults; at++) {
        snprintf(line, sizeof(line), "%.160s: %.128s\n", results[at].key, results[at].text);
        if (writes) {
            fputs(line, file);
        } else if (fgets(was, sizeof(was), file) == NULL || strcmp(was, line) != 0) {
            print_error("now %swas %s", line, was);
            bad++;
        }
    }
    fclose(file);
    assert_int_equal(bad, 0);
}

/* Prints the times. The limit leaves room for slow machines: only a search that does not end fails. */
static void searches_end_in_time(void **state)
{
    double ms[MAX_CASES], worst = 0, worst_big = 0;
    int n = 0;
    (void)state;
    for (int i = 0; i < nresults; i += RONDO_NUM_GRAPHS) {
        double *most = results[i].big ? &worst_big : &worst;
        ms[n++] = results[i].ms;
        *most = results[i].ms > *most ? results[i].ms : *most;
    }
    qsort(ms, (size_t)n, sizeof(*ms), by_value);
    printf("ring and tree, CPU ms, median of %d: median %.2f, nine of ten below %.2f, worst %.2f; more than "
           "32 devices: worst %.2f (%d "
           "cases)\n",
           RUNS, ms[n / 2], ms[n * 9 / 10], worst, worst_big, n);
    assert_true(ms[n * 9 / 10] < 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(not_below_reference),
                                        cmocka_unit_test(search_matches_golden_and_reaches_nccl),
                                        cmocka_unit_test(searches_end_in_time) };
    return cmocka_run_group_tests(tests, run_all, NULL);
}
