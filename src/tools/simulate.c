#include "tools/simulate.h"

#include <time.h>

#include "base/mem.h"

rondo_status rondo_job_create(struct rondo_job *job, const struct rondo_topo *topo,
                              const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes)
{
    int n = topo->ndevs;
    *job =
        (struct rondo_job){ .input = { .nranks = nodes * n, .ndistinct = 1, .host_trees = !topo->all_gpus } };
    RONDO_TRY(rondo_graphs_pack_topo(topo, graphs, &job->packed, &job->nbytes));
    rondo_status status = RONDO_NEW_ARRAY(job->rank, job->input.nranks, "the ranks of a job");
    if (status != RONDO_SUCCESS) {
        rondo_job_release(job);
        return status;
    }
    uint64_t hash = rondo_graphs_hash(job->packed, job->nbytes);
    for (int r = 0; r < job->input.nranks; r++) {
        job->rank[r] = (struct rondo_stitch_rank){ .graphs = hash,
                                                   .node = (uint32_t)(r / n),
                                                   .local = (uint16_t)(r % n) };
    }
    job->bytes = job->packed;
    job->input.rank = job->rank;
    job->input.bytes = &job->bytes;
    job->input.nbytes = &job->nbytes;
    return RONDO_SUCCESS;
}

void rondo_job_release(struct rondo_job *job)
{
    rondo_free(job->rank);
    rondo_free(job->packed);
    *job = (struct rondo_job){ .rank = NULL };
}

/* ---- cost ---- */

enum { VIEWS = 64 }; /* ranks whose whole view is timed, spread over the job */

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

static rondo_status job_run(const struct rondo_job *job, int nranks, struct cost *cost)
{
    struct rondo_stitch *stitch;
    struct rondo_stitch_input input = job->input;
    input.nranks = nranks;
    double start = cpu_us();
    rondo_status status = rondo_stitch_create(&stitch, &input);
    cost->create_ms = (cpu_us() - start) / 1e3;
    if (status == RONDO_SUCCESS) {
        cost->sum = *rondo_stitch_summary(stitch);
        cost->view_us = views_us(stitch);
        status = rondo_stitch_check(stitch);
    }
    rondo_stitch_destroy(stitch);
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

static void row_print(const struct rondo_job *job, const struct cost *cost, FILE *out)
{
    char memory[16], each[16], all[16];
    double received = (double)cost->sum.nranks * sizeof(struct rondo_stitch_rank) + (double)job->nbytes;
    fprintf(out, "%9d %8d %9d %11.2f %9.2f %11s %13s %11s %9d\n", cost->sum.nranks, cost->sum.nnodes,
            cost->sum.nchannels, cost->create_ms, cost->view_us, bytes_text((double)cost->sum.bytes, memory),
            bytes_text(received, each), bytes_text(received * cost->sum.nranks, all), 1);
}

static rondo_status rows_print(const struct rondo_job *job, int ndevs, FILE *out)
{
    struct cost cost;
    fprintf(out, "%9s %8s %9s %11s %9s %11s %13s %11s %9s\n", "ranks", "nodes", "channels", "merge", "view",
            "memory", "a rank gets", "in all", "distinct");
    fprintf(out, "%9s %8s %9s %11s %9s %11s %13s %11s %9s\n", "", "", "", "CPU ms", "CPU us", "of a rank",
            "by allgather", "", "graphs");
    for (int64_t ranks = 1000; ranks <= job->input.nranks; ranks *= 2) {
        int n = (int)((ranks + ndevs - 1) / ndevs * ndevs);
        if (n < job->input.nranks) {
            RONDO_TRY(job_run(job, n, &cost));
            row_print(job, &cost, out);
        }
    }
    RONDO_TRY(job_run(job, job->input.nranks, &cost));
    row_print(job, &cost, out);
    fprintf(out, "Checked: every ring closed with each rank once, every tree reaches all ranks.\n");
    return fflush(out) != 0 || ferror(out)
               ? rondo_fail(RONDO_SYSTEM_ERROR, "the simulated jobs could not be written: %m")
               : RONDO_SUCCESS;
}

rondo_status rondo_job_simulate(const struct rondo_topo *topo,
                                const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes, FILE *out)
{
    struct rondo_job job;
    if (nodes < 1 || (int64_t)nodes * topo->ndevs > RONDO_STITCH_MAX_RANKS) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%d nodes of %d ranks cannot be simulated, expected 1 to %d nodes", nodes,
                          topo->ndevs, RONDO_STITCH_MAX_RANKS / topo->ndevs);
    }
    RONDO_TRY(rondo_job_create(&job, topo, graphs, nodes));
    rondo_status status = rows_print(&job, topo->ndevs, out);
    rondo_job_release(&job);
    return status;
}
