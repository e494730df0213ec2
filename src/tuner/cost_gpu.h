/*
 * Costs on GPU machines: cost.c asks here when the layout's model has GPUs. Time = latency of the hops on the
 * longest way + bytes / bandwidth that the graph, the protocol and the generation of GPUs leave. Numbers:
 * tuner/model.def.
 *
 * Channels: a call's bandwidth is that of all channels once it uses as many as its bytes fill
 * (rondo_gpu_blocks), and in proportion with fewer.
 *
 * As NCCL, but for what it has no model for: trees with a root (half the traffic of all_reduce's), chains
 * (each hop is counted, not one), sends and receives (a share of the ring's links and nets), and for one-shot
 * and two-shot.
 */
#ifndef RONDO_TUNER_COST_GPU_H
#define RONDO_TUNER_COST_GPU_H

#include "coll/algo.h"
#include "tuner/model.def"

#define RONDO_ENUM_ROW_(ctx, KIND, ...) RONDO_GPU_HOST_##KIND,
enum rondo_gpu_host { RONDO_MODEL_HOST_TABLE(RONDO_ENUM_ROW_, ) RONDO_NUM_GPU_HOSTS };
#undef RONDO_ENUM_ROW_

static inline int rondo_is_gpu_model(const struct rondo_layout *layout)
{
    return layout->model.gpu.nchannels > 0;
}

/** us; negative: the algorithm or the protocol does not run there. */
double rondo_gpu_cost_us(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_algo algo,
                         enum rondo_proto proto, int nchannels, size_t bytes);
/**
 * What takes most of that time: "base latency", "NVLink latency", "PCI latency", "net latency", "posting to
 * nets"; "NVLink bandwidth", "PCI bandwidth", "net bandwidth", "LL bandwidth", "LL128 bandwidth", "tree
 * bandwidth", "number of channels". Or why it cannot run.
 */
const char *rondo_gpu_limit(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_algo algo,
                            enum rondo_proto proto, int nchannels, size_t bytes);
/** Channels that so many bytes fill, one at least, and threads of each of their blocks. */
void rondo_gpu_blocks(const struct rondo_layout *layout, enum rondo_algo algo, enum rondo_proto proto,
                      size_t bytes, int *nchannels, int *nthreads);

#endif
