/* Phase "open": the bootstrap connects the ranks. */
#include "base/fault.h"
#include "init/phases.h"

void rondo_init_arm_faults(struct rondo_init *init)
{
    rondo_init_keep(init, rondo_fault_init());
    rondo_init_keep(init, rondo_fault("open", init->ctx->job.rank, 0));
}

static rondo_status start_open(struct rondo_init *init)
{
    rondo_init_arm_faults(init);
    return init->bootstrap->ops->open_start(init->bootstrap);
}

const struct rondo_phase rondo_phase_open = {
    .name = "open",
    .start = start_open,
};
