#include "tools/simulate.h"

#include <time.h>

#include "base/mem.h"
#include "tools/draw/text.h"

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

enum { VIEWS = 64 }; /* number of ranks, spread over the job, whose view is timed */

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

static void row_print(const struct rondo_job *job, const struct cost *cost, FILE *out)
{
    char memory[24], each[24], all[24];
    int64_t received = (int64_t)cost->sum.nranks * (int64_t)sizeof(struct rondo_stitch_rank) +
                       (int64_t)job->nbytes;
    fprintf(out, "%9d %8d %9d %11.2f %9.2f %11s %13s %11s %9d\n", cost->sum.nranks, cost->sum.nnodes,
            cost->sum.nchannels, cost->create_ms, cost->view_us,
            rondo_text_bytes((int64_t)cost->sum.bytes, memory), rondo_text_bytes(received, each),
            rondo_text_bytes(received * cost->sum.nranks, all), 1);
}

static rondo_status rows_print(const struct rondo_job *job, int ndevs, FILE *out)
{
    struct cost cost;
    fprintf(out, "%9s %8s %9s %11s %9s %11s %13s %11s %9s\n", "ranks", "nodes", "channels", "merge", "view",
            "memory", "received", "received", "distinct");
    fprintf(out, "%9s %8s %9s %11s %9s %11s %13s %11s %9s\n", "", "", "", "CPU ms", "CPU us", "per rank",
            "per rank", "in all", "graphs");
    for (int64_t ranks = 1000; ranks <= job->input.nranks; ranks *= 2) {
        int n = (int)((ranks + ndevs - 1) / ndevs * ndevs);
        if (n < job->input.nranks) {
            RONDO_TRY(job_run(job, n, &cost));
            row_print(job, &cost, out);
        }
    }
    RONDO_TRY(job_run(job, job->input.nranks, &cost));
    row_print(job, &cost, out);
    fprintf(out, "Checked: every ring is closed and has each rank once, and every tree reaches all ranks.\n");
    return fflush(out) != 0 || ferror(out)
               ? rondo_fail(RONDO_SYSTEM_ERROR, "cannot write the simulated jobs: %m")
               : RONDO_SUCCESS;
}

rondo_status rondo_job_simulate(const struct rondo_topo *topo,
                                const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes, FILE *out)
{
    struct rondo_job job;
    if (nodes < 1 || (int64_t)nodes * topo->ndevs > RONDO_STITCH_MAX_RANKS) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "cannot simulate %d nodes with %d ranks each: expected 1 to %d nodes", nodes,
                          topo->ndevs, RONDO_STITCH_MAX_RANKS / topo->ndevs);
    }
    RONDO_TRY(rondo_job_create(&job, topo, graphs, nodes));
    rondo_status status = rows_print(&job, topo->ndevs, out);
    rondo_job_release(&job);
    return status;
}
