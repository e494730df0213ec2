/* The numbers of the cost model: where they come from. */
#ifndef RONDO_TUNER_MODEL_H
#define RONDO_TUNER_MODEL_H

#include "topo/stitch.h"

/**
 * Host memory: what one hand-over between two cores, and a copy through slots that stay in the cache, cost on
 * the machines at hand. Rough on purpose: it orders the algorithms; it must be the same on all ranks.
 * ranks_per_core: of the most loaded node.
 */
void rondo_model_host(struct rondo_model *model, double ranks_per_core);
/**
 * The model after it was measured how long a line takes from core to core: "near" as the model assumes, or
 * "far", where conns and the mailbox are as much slower and copies between user buffers, of which each byte
 * passes once, a little. ns 0, or so long that the two cannot have had a core each: nothing changes. What
 * lies between the two on some level is in the model already.
 */
void rondo_model_handover(struct rondo_model *model, uint32_t ns);
const char *rondo_model_handover_name(uint32_t ns);
/** Host memory: what the ranks' CPUs and their caches are, from the merged graphs. After rondo_model_host,
 * before rondo_model_handover. */
void rondo_model_machine(struct rondo_model *model, const struct rondo_stitch_summary *summary);
/** Host memory: what lies between groups of a node's ranks, from the merged graphs. Without levels nothing
 * changes. Before rondo_model_handover. */
void rondo_model_levels(struct rondo_model *model, const struct rondo_stitch_summary *summary);
/* What joins nodes. */
enum rondo_model_net { RONDO_MODEL_SOCKETS, RONDO_MODEL_RDMA, RONDO_MODEL_NUM_NETS };
/**
 * Several nodes, host memory: latency of a slice between two ranks, and what a node's ranks together pass to
 * other nodes each way: what the ports of the merged graphs carry, and over sockets no more than one thread
 * moves. LL and LL128 send flags and padding too, and gain nothing.
 */
void rondo_model_net(struct rondo_model *model, const struct rondo_stitch_summary *summary,
                     enum rondo_model_net net);
/** GPUs: from the merged graphs of all nodes. Ranks without GPUs, or with GPUs that nothing is known of:
 * model->gpu is zeroed, and the rest stays as it is. */
void rondo_model_from_graphs(struct rondo_model *model, const struct rondo_stitch_summary *summary);

#endif
