/* The numbers of the cost model, from what the machine is and what was measured. All ranks compute the
 * same. */
#ifndef RONDO_TUNER_MODEL_H
#define RONDO_TUNER_MODEL_H

#include "topo/stitch.h"

/**
 * Fill in the numbers for host memory: what a handover between two cores and a copy through slots in the
 * cache cost on the machines that were measured. Rough: they only have to order the algorithms.
 * ranks_per_core: of the most loaded node.
 */
void rondo_model_host(struct rondo_model *model, double ranks_per_core);
/**
 * Adapt the model to the measured time of a cache line from core to core. "near": the model assumes it;
 * "far": conns and the mailbox become as much slower, and copies between user buffers, which pass each byte
 * once, a little. Nothing changes if ns is 0, or so long that the two ranks cannot have had a core each.
 * The model already has what the level between the two adds.
 */
void rondo_model_handover(struct rondo_model *model, uint32_t ns);
const char *rondo_model_handover_name(uint32_t ns);
/** Adapt the model for host memory to the CPUs and caches of the merged graphs. Call it after
 * rondo_model_host and before rondo_model_handover. */
void rondo_model_machine(struct rondo_model *model, const struct rondo_stitch_summary *summary);
/** Add the levels of groups of a node's ranks, from the merged graphs. Without levels nothing changes. Call
 * it before rondo_model_handover. */
void rondo_model_levels(struct rondo_model *model, const struct rondo_stitch_summary *summary);
/* What connects nodes. */
enum rondo_model_net { RONDO_MODEL_SOCKETS, RONDO_MODEL_RDMA, RONDO_MODEL_NUM_NETS };
/**
 * Fill in the network of several nodes with host memory: the latency of a slice between two ranks, and the
 * bandwidth of a node's ranks together each way: what the ports of the merged graphs carry, but over
 * sockets at most what one thread moves. LL and LL128 also send flags and padding, and gain nothing.
 */
void rondo_model_net(struct rondo_model *model, const struct rondo_stitch_summary *summary,
                     enum rondo_model_net net);
/** Fill in model->gpu from the merged graphs of all nodes. Without GPUs, or with unknown ones, it is zeroed
 * and the rest stays. */
void rondo_model_from_graphs(struct rondo_model *model, const struct rondo_stitch_summary *summary);

#endif
