/* What starting a job of many equal nodes would cost, by doing it in one process. */
#include "topo/stitch.h"

#include <time.h>
#include "base/mem.h"

enum { VIEWS = 64 }; /* ranks whose whole view is timed, spread over the job */

struct job {
    const uint8_t *bytes;
    size_t nbytes;
    int32_t ndevs;
    int32_t host_trees;
};

struct cost {
    double create_ms, view_us;
    struct rondo_stitch_summary sum;
};

static double cpu_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static double views_us(const struct rondo_stitch *stitch)
{
    const struct rondo_stitch_summary *sum = rondo_stitch_summary(stitch);
    struct rondo_channel_layout view;
    double start = cpu_us();
    for (int i = 0; i < VIEWS; i++) {
        int rank = (int)((int64_t)i * sum->nranks / VIEWS);
        for (int c = 0; c < sum->nchannels; c++) {
            rondo_stitch_channel(stitch, rank, c, &view);
        }
    }
    return (cpu_us() - start) / VIEWS;
}

static rondo_status job_run(const struct job *job, int nnodes, struct cost *cost)
{
    struct rondo_stitch_rank *rank;
    struct rondo_stitch *stitch;
    struct rondo_stitch_input input = { .nranks = nnodes * job->ndevs, .ndistinct = 1, .bytes = &job->bytes, .nbytes = &job->nbytes };
    uint64_t hash = rondo_graphs_hash(job->bytes, job->nbytes);
    RONDO_TRY(RONDO_NEW_ARRAY(rank, input.nranks, "the ranks of a simulated job"));
    for (int i = 0; i < input.nranks; i++) {
        rank[i] = (struct rondo_stitch_rank){ .graphs = hash, .node = (uint32_t)(i / job->ndevs), .local = (uint16_t)(i % job->ndevs) };
    }
    input.rank = rank;
    input.host_trees = job->host_trees;
    double start = cpu_us();
    rondo_status status = rondo_stitch_create(&stitch, &input);
    cost->create_ms = (cpu_us() - start) / 1e3;
    if (status == RONDO_SUCCESS) {
        cost->sum = *rondo_stitch_summary(stitch);
        cost->view_us = views_us(stitch);
        status = rondo_stitch_check(stitch);
    }
    rondo_stitch_destroy(stitch);
    rondo_free(rank);
    return status;
}

/* "812 B", "64.0 KiB", "3.1 GiB" */
static const char *bytes_text(double bytes, char text[16])
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    size_t u = 0;
    for (; bytes >= 1024 && u + 1 < RONDO_COUNTOF(unit); u++) {
        bytes /= 1024;
    }
    snprintf(text, 16, u == 0 ? "%.0f %s" : "%.1f %s", bytes, unit[u]);
    return text;
}

static void row_print(const struct job *job, const struct cost *cost, FILE *out)
{
    char memory[16], each[16], all[16];
    double received = (double)cost->sum.nranks * sizeof(struct rondo_stitch_rank) + (double)job->nbytes;
    fprintf(out, "%9d %8d %9d %11.2f %9.2f %11s %13s %11s %9d\n", cost->sum.nranks, cost->sum.nnodes, cost->sum.nchannels, cost->create_ms,
            cost->view_us, bytes_text((double)cost->sum.bytes, memory), bytes_text(received, each),
            bytes_text(received * cost->sum.nranks, all), 1);
}

static rondo_status rows_print(const struct job *job, int nodes, FILE *out)
{
    struct cost cost;
    fprintf(out, "%9s %8s %9s %11s %9s %11s %13s %11s %9s\n", "ranks", "nodes", "channels", "merge", "view", "memory", "a rank gets",
            "in all", "distinct");
    fprintf(out, "%9s %8s %9s %11s %9s %11s %13s %11s %9s\n", "", "", "", "CPU ms", "CPU us", "of a rank", "by allgather", "", "graphs");
    for (int64_t ranks = 1000; ranks <= (int64_t)nodes * job->ndevs; ranks *= 2) {
        int n = (int)((ranks + job->ndevs - 1) / job->ndevs);
        if (n < nodes) {
            RONDO_TRY(job_run(job, n, &cost));
            row_print(job, &cost, out);
        }
    }
    RONDO_TRY(job_run(job, nodes, &cost));
    row_print(job, &cost, out);
    fprintf(out, "Checked: every ring closed with each rank once, every tree reaches all ranks.\n");
    return fflush(out) != 0 || ferror(out) ? rondo_fail(RONDO_SYSTEM_ERROR, "the simulated jobs could not be written: %m") : RONDO_SUCCESS;
}

rondo_status rondo_stitch_simulate(const struct rondo_topo *topo, const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes, FILE *out)
{
    uint8_t *bytes;
    struct job job = { .ndevs = topo->ndevs, .host_trees = !topo->all_gpus };
    if (nodes < 1 || (int64_t)nodes * topo->ndevs > RONDO_STITCH_MAX_RANKS) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%d nodes of %d ranks cannot be simulated, expected 1 to %d nodes", nodes, topo->ndevs,
                          RONDO_STITCH_MAX_RANKS / topo->ndevs);
    }
    RONDO_TRY(rondo_graphs_pack_topo(topo, graphs, &bytes, &job.nbytes));
    job.bytes = bytes;
    rondo_status status = rows_print(&job, nodes, out);
    rondo_free(bytes);
    return status;
}
