/* Ranks that are threads of one process. */
#include "base/inside.h"
#include "base/mem.h"
#include "init/engine.h"

struct rondo_local {
    struct rondo_hub *hub;
    int nranks;
};

static rondo_status local_create(int nranks, rondo_local **local)
{
    rondo_local *made;
    rondo_status status;
    if (local == NULL || nranks < 1) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "rondo_local_create: give at least 1 rank (not %d) and a pointer for the result",
                          nranks);
    }
    RONDO_TRY(RONDO_NEW(made, "a meeting place"));
    made->nranks = nranks;
    status = rondo_hub_create(nranks, &made->hub);
    if (status != RONDO_SUCCESS) {
        rondo_free(made);
        return status;
    }
    *local = made;
    return RONDO_SUCCESS;
}

static rondo_status local_destroy(rondo_local *local)
{
    if (local == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_local_destroy: the meeting place is NULL");
    }
    rondo_hub_release(local->hub);
    rondo_free(local);
    return RONDO_SUCCESS;
}

rondo_status rondo_local_create(int nranks, rondo_local **local)
{
    RONDO_RUN_INSIDE("rondo_local_create", local_create(nranks, local));
}

rondo_status rondo_local_destroy(rondo_local *local)
{
    RONDO_RUN_INSIDE("rondo_local_destroy", local_destroy(local));
}

static rondo_status join(rondo_local *local, int rank, struct rondo_bootstrap **bootstrap)
{
    if (local == NULL || rank < 0 || rank >= local->nranks) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_create_local: %s (rank %d)",
                          local == NULL ? "the meeting place is NULL" : "the meeting place has no such rank",
                          rank);
    }
    return rondo_bootstrap_threads(local->hub, rank, bootstrap);
}

rondo_status rondo_comm_create_local(rondo_local *local, int rank, const rondo_config *config,
                                     rondo_comm **comm)
{
    struct rondo_bootstrap *bootstrap;
    rondo_status status;
    RONDO_TRY(rondo_inside_check("rondo_comm_create_local"));
    status = join(local, rank, &bootstrap);
    return status == RONDO_SUCCESS ? rondo_engine_create(bootstrap, config, comm)
                                   : rondo_engine_refuse(status);
}
