/* A job of equal nodes. */
#include "base/mem.h"
#include "topo/stitch.h"

rondo_status rondo_stitch_job_create(struct rondo_stitch_job *job, const struct rondo_topo *topo,
                                     const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int nodes)
{
    int n = topo->ndevs;
    *job = (struct rondo_stitch_job){
        .input = { .nranks = nodes * n, .ndistinct = 1, .host_trees = !topo->all_gpus }
    };
    RONDO_TRY(rondo_graphs_pack_topo(topo, graphs, &job->packed, &job->nbytes));
    rondo_status status = RONDO_NEW_ARRAY(job->rank, job->input.nranks, "the ranks of a job");
    if (status != RONDO_SUCCESS) {
        rondo_stitch_job_release(job);
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

void rondo_stitch_job_release(struct rondo_stitch_job *job)
{
    rondo_free(job->rank);
    rondo_free(job->packed);
    *job = (struct rondo_stitch_job){ .rank = NULL };
}
