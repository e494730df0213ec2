/* What cost.c (host memory), cost_gpu.c (GPUs) and select.c share. */
#ifndef RONDO_TUNER_COST_IMPL_H
#define RONDO_TUNER_COST_IMPL_H

#include "base/mailbox.h"
#include "tuner/model.def"
#include "tuner/tuner.h"

/* v-forms (coll/chunk.h) and messages have one channel. */
static inline int rondo_one_channel(enum rondo_coll coll)
{
    return coll == RONDO_COLL_ALL_GATHERV || coll == RONDO_COLL_REDUCE_SCATTERV ||
           rondo_coll_scheduled_as(coll) == RONDO_COLL_SEND ||
           rondo_coll_scheduled_as(coll) == RONDO_COLL_RECV;
}

/* The most bytes that a rank may publish. Calls with a root have places of their own; `mailbox` is the
 * payload of the others. */
static inline size_t rondo_most_published(enum rondo_coll coll, const struct rondo_layout *layout,
                                          size_t mailbox)
{
    int v = coll == RONDO_COLL_ALL_GATHERV || coll == RONDO_COLL_REDUCE_SCATTERV;
    return rondo_coll_has_root(coll)     ? rondo_rooted_capacity(mailbox)
           : rondo_is_pair(layout) && !v ? SIZE_MAX
                                         : mailbox;
}

/* ---- select.c: ordinary memory ---- */

/** us that a sum which is not in place adds. by_kernel: the kernel stores half of it, which does not
 * suffer. */
double rondo_apart_us(const struct rondo_layout *layout, enum rondo_coll coll, size_t bytes, int by_kernel);
/** Predict what the kernel's copies take. Out of place they take no longer than in place and a local copy
 * (measured), where that is known and stays inside the caches. */
double rondo_kernel_us(const struct rondo_layout *layout, enum rondo_algo algo, enum rondo_coll coll,
                       size_t bytes, int in_place);

/* ---- cost_gpu.c ---- */

/*
 * Costs on GPU machines: time = latency of the hops on the longest path + bytes / bandwidth that the graph,
 * the protocol and the generation of GPUs allow. The numbers are in tuner/model.def.
 *
 * A call that uses as many channels as its bytes fill (rondo_gpu_blocks) gets the bandwidth of all
 * channels; with fewer it gets a proportional part.
 *
 * This is NCCL's model, extended for trees with a root (half the traffic of all_reduce's), chains (every
 * hop counts, not one), sends and receives (a share of the ring's links and nets), one-shot and two-shot.
 */
#define RONDO_ENUM_ROW_(ctx, KIND, ...) RONDO_GPU_HOST_##KIND,
enum rondo_gpu_host { RONDO_MODEL_HOST_TABLE(RONDO_ENUM_ROW_, ) RONDO_NUM_GPU_HOSTS };
#undef RONDO_ENUM_ROW_

/** @return us; negative: the algorithm or the protocol does not run there. */
double rondo_gpu_cost_us(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_algo algo,
                         enum rondo_proto proto, int nchannels, size_t bytes);
/** us of two-shot where all ranks' buffers are registered, with the launch of the work that would carry the
 * call if they were not; negative: it does not run there. */
double rondo_gpu_registered_us(const struct rondo_layout *layout, enum rondo_coll coll, int nchannels,
                               size_t bytes);
/**
 * Name what takes most of that time: "base latency", "NVLink latency", "PCI latency", "net latency",
 * "posting to nets"; "NVLink bandwidth", "PCI bandwidth", "net bandwidth", "LL bandwidth", "LL128
 * bandwidth", "tree bandwidth", "number of channels". Or why it cannot run.
 */
const char *rondo_gpu_limit(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_algo algo,
                            enum rondo_proto proto, int nchannels, size_t bytes);

#endif
