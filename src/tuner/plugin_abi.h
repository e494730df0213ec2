/*
 * What a tuner plugin for NCCL exports: `ncclTunerPlugin_v<N>`, a table of functions, described here for N =
 * 2 to 6 on 64-bit systems. It includes nothing of Rondo. Functions return 0 for success.
 */
#ifndef RONDO_TUNER_PLUGIN_ABI_H
#define RONDO_TUNER_PLUGIN_ABI_H

#include <stddef.h>
#include <stdint.h>

/* NCCL's numbers. */
enum rondo_tuner_func {
    RONDO_TUNER_BROADCAST,
    RONDO_TUNER_REDUCE,
    RONDO_TUNER_ALL_GATHER,
    RONDO_TUNER_REDUCE_SCATTER,
    RONDO_TUNER_ALL_REDUCE
};
enum rondo_tuner_algo { RONDO_TUNER_TREE, RONDO_TUNER_RING, RONDO_TUNER_ALGOS = 7 /* with NCCL's others */ };
enum rondo_tuner_proto { RONDO_TUNER_LL, RONDO_TUNER_LL128, RONDO_TUNER_SIMPLE, RONDO_TUNER_PROTOS };

typedef void (*rondo_tuner_log_fn)(int level, unsigned long subsystems, const char *file, int line,
                                   const char *fmt, ...);

struct rondo_tuner_domains { /* of NVLink */
    int32_t n, least_ranks, most_ranks;
};

/* NCCL's constants. A plugin may have been built with a shorter struct, never with a longer one. */
struct rondo_tuner_constants {
    double base_latency[RONDO_TUNER_ALGOS][RONDO_TUNER_PROTOS];
    double hw_latency[3][RONDO_TUNER_ALGOS][RONDO_TUNER_PROTOS];
    double ll_bandwidth[4][3], ring_ll128_bandwidth[4][3], tree_ll128_bandwidth[4][3], tree_bandwidth[4][3],
        nvls_tree_bandwidth[4][3];
};

struct rondo_tuner_v2 { /* and v3, v4 */
    const char *name;
    int (*init)(size_t nranks, size_t nnodes, rondo_tuner_log_fn log, void **context);
    union {
        int (*v2)(void *context, int func, size_t bytes, int collnet, int nvls, int npipe, int *algo,
                  int *proto, int *nchannels);
        int (*v3)(void *context, int func, size_t bytes, int npipe, float **table, int nalgos, int nprotos,
                  int *nchannels);
        int (*v4)(void *context, int func, size_t bytes, int npipe, float **table, int nalgos, int nprotos,
                  int registered, int *nchannels);
    } choose;
    int (*destroy)(void *context);
};

struct rondo_tuner_v5 { /* v6 has chunk */
    const char *name;
    int (*init)(void **context, uint64_t comm, size_t nranks, size_t nnodes, rondo_tuner_log_fn log,
                struct rondo_tuner_domains *domains, struct rondo_tuner_constants *constants);
    int (*choose)(void *context, int func, size_t bytes, int npipe, float **table, int nalgos, int nprotos,
                  int registered, int *nchannels);
    int (*destroy)(void *context);
    int (*chunk)(void *context, int func, size_t bytes, int algo, int proto, int nchannels, size_t *chunk);
};

_Static_assert(sizeof(struct rondo_tuner_constants) == 1152, "as long as NCCL's");
_Static_assert(sizeof(struct rondo_tuner_domains) == 12, "three numbers");
_Static_assert(sizeof(struct rondo_tuner_v2) == 32 && offsetof(struct rondo_tuner_v5, chunk) == 32 &&
                   sizeof(struct rondo_tuner_v5) == 40,
               "the tables of versions 2 to 5, and of 6");

#endif
