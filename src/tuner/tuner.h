/*
 * The tuner: what every way to carry a call would cost on this layout, and which one carries it. Pure
 * functions of the layout and the parameters, so all ranks come to the same choice.
 *
 * Time in us = base + hops * latency + bytes / bandwidth, from the numbers of the layout's model
 * (layout/layout.h), or the measured time where a tuning file has one. `bytes` is the size of the larger user
 * buffer of one rank (all_gather, reduce_scatter: nranks blocks), as in nccl-tests. `mailbox` is the payload
 * of one place of the node's mailbox in bytes; 0: no mailbox. A bandwidth of 0 in the model says that the
 * protocol does not work there.
 */
#ifndef RONDO_TUNER_TUNER_H
#define RONDO_TUNER_TUNER_H

#include "coll/algo.h"
#include "coll/work.h"

struct rondo_choice {
    uint8_t algo, proto; /* enum rondo_algo, rondo_proto */
    uint8_t nchannels;   /* 0: none */
    uint8_t measured;    /* 1: `us` is a measured time; 0: the model's */
    double us;           /* negative: cannot run */
};

static inline int rondo_is_gpu_model(const struct rondo_layout *layout)
{
    return layout->model.gpu.nchannels > 0;
}

/* ---- what the user allows ---- */

/* Allowed (collective, algorithm, protocol): bit `proto` of protos[coll][algo]. It may include what does not
 * exist. */
struct rondo_allowed {
    uint8_t protos[RONDO_NUM_COLLS][RONDO_NUM_ALGOS];
};

/**
 * Parse RONDO_ALGO and RONDO_PROTO, with NCCL's syntax and its names of collectives: lists separated by ';',
 * each "ring,tree", or "^oneshot" for all but these. The first list may apply to all collectives; the others,
 * "broadcast:^tree", replace it for one. NULL or empty allows all. A list for all collectives does not apply
 * to those that none of its algorithms carries ("tree" carries no all_gather), nor to sends and receives,
 * which have no choice. Algorithms that only NCCL has (nvls, pat, ...) are ignored; a list of nothing else
 * allows all.
 * @return RONDO_INVALID_ARGUMENT naming the parameter, the word and what is allowed.
 */
rondo_status rondo_allowed_parse(struct rondo_allowed *allowed, const char *algo, const char *proto);
/** For collectives that reduce, keep only algorithms that do so in rank order (coll/coll.def). */
void rondo_allowed_rank_order(struct rondo_allowed *allowed);
/** What RONDO_ALGO, RONDO_PROTO, RONDO_DIRECT and RONDO_DETERMINISM allow. @return as rondo_allowed_parse. */
rondo_status rondo_tune_allowed(struct rondo_allowed *allowed);
/** @return 1: all is allowed, so that no call can be refused. */
int rondo_allowed_all(const struct rondo_allowed *allowed);
/** RONDO_DETERMINISM=strict: rings are in rank order, and reductions run from rank 0 to the last. */
int rondo_tune_is_strict(void);

/* ---- what a choice costs ---- */

/** Predict the time of an algorithm from the model. @return us; negative when the algorithm does not carry
 * the collective, or cannot on this layout (one-shot across nodes, or larger than the mailbox). */
double rondo_cost_us(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_algo algo,
                     enum rondo_proto proto, int nchannels, size_t bytes, size_t mailbox);
/** What takes most of that time: "latency", "copy bandwidth", "network latency" or "network bandwidth"; for
 * GPUs one of rondo_gpu_limit (tuner/cost_impl.h). Or why it cannot run; this ignores the mailbox. */
const char *rondo_cost_limit(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_algo algo,
                             enum rondo_proto proto, int nchannels, size_t bytes);
/** Predict the time of an algorithm with direct access when the kernel copies between processes
 * (process_vm_readv); rondo_cost_us is for buffers that are mapped. */
double rondo_cma_cost_us(const struct rondo_layout *layout, enum rondo_algo algo, enum rondo_coll coll,
                         size_t bytes, int in_place);
/** Elements that a work over groups of ranks moves at once: what a rank holds of them stays in its caches
 * until it is needed again. */
size_t rondo_groups_chunk(const struct rondo_layout *layout, uint32_t elem_bytes);

/** Compute the channels that the bytes fill on GPUs, at least one, and the threads of their blocks. */
void rondo_gpu_blocks(const struct rondo_layout *layout, enum rondo_algo algo, enum rondo_proto proto,
                      size_t bytes, int *nchannels, int *nthreads);

/** Fill in us and measured of a choice whose algorithm, protocol and channels are given. @return the model's
 * time, even where a measured time replaces it. */
double rondo_choice_time(const struct rondo_layout *layout, enum rondo_coll coll, size_t bytes,
                         size_t mailbox, struct rondo_choice *choice);
/** Is x better? Measured goes before predicted, then the shorter time wins; what cannot run never does. */
int rondo_choice_better(const struct rondo_choice *x, const struct rondo_choice *than);

/* ---- what carries a call ---- */

/**
 * Fill in the best choice of every algorithm and protocol: the fastest number of channels, the smallest among
 * equals; at least the layout's least_channels, or as many as the algorithm can use. us is negative where the
 * pair does not exist, is not allowed, or cannot run. @a allowed NULL: all.
 */
void rondo_cost_table(const struct rondo_layout *layout, const struct rondo_allowed *allowed,
                      enum rondo_coll coll, size_t bytes, size_t mailbox,
                      struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS]);
/** Take the best of the table, the first among equals. @return RONDO_INVALID_USAGE naming the collective,
 * RONDO_ALGO and RONDO_PROTO when nothing can run. */
rondo_status rondo_cost_choose(const struct rondo_layout *layout, const struct rondo_allowed *allowed,
                               enum rondo_coll coll, size_t bytes, size_t mailbox,
                               struct rondo_choice *choice);
/** The same without direct access. Where what is allowed then cannot carry the call, choose among everything
 * that can (rank_order: that reduces in rank order). */
rondo_status rondo_cost_choose_without_direct(const struct rondo_layout *layout,
                                              const struct rondo_allowed *allowed, enum rondo_coll coll,
                                              size_t bytes, size_t mailbox, int rank_order,
                                              struct rondo_choice *choice);

struct rondo_tuner_plugin;

/** All that a selection depends on. All ranks pass the same values. */
struct rondo_select_input {
    const struct rondo_layout *layout;
    const struct rondo_allowed *allowed;
    const struct rondo_choice *forced; /* run this whatever it costs; NULL: select */
    enum rondo_coll coll;
    size_t bytes, mailbox;
    int uneven;         /* blocks differ in length (v-forms) */
    int rank_order;     /* what runs where direct access fails must reduce in rank order */
    int private_scalar; /* the operation multiplies by a scalar that other ranks do not know */
    int gpu;    /* GPU memory: kernels find out whether direct access fails, and stage the data then */
    int direct; /* host memory: ranks of the node can have direct access to one another's buffers */
    struct rondo_tuner_plugin *plugin; /* changes the table (tuner/plugin.h); NULL: none */
};

struct rondo_selection {
    struct rondo_choice primary;
    /* runs where direct access fails; nchannels 0: none. GPUs: has as many channels as the primary */
    struct rondo_choice fallback;
};

/** Select what carries a call. @return as rondo_cost_choose. */
rondo_status rondo_select(const struct rondo_select_input *in, struct rondo_selection *selection);
/** Does what was measured choose freely between two algorithms, because both give the same bits? */
int rondo_bits_fixed(const struct rondo_layout *layout, enum rondo_coll coll, enum rondo_algo a,
                     enum rondo_algo b);
/** With ordinary memory: may the kernel copy between the processes, rather than the fallback run? */
enum rondo_kernel_copies rondo_select_kernel(const struct rondo_layout *layout, enum rondo_coll coll,
                                             size_t bytes, const struct rondo_selection *selection);

#endif
