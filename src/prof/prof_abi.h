/*
 * What a profiler plugin for NCCL (libnccl-profiler*.so) exports: `ncclProfiler_v<N>`, a table of functions,
 * described here for N = 1 to 7 on 64-bit systems. It includes nothing of Rondo, so that plugins can use it.
 *
 * From version 4 on a descriptor only grows: fields of older versions keep their places, and
 * rondo_prof_descr_v4 describes versions 4 to 7. A plugin reads the part that its version has. Versions 1 to
 * 3 have layouts of their own. Strings in descriptors are constants; those of a communicator's name live
 * until finalize.
 */
#ifndef RONDO_PROF_PROF_ABI_H
#define RONDO_PROF_PROF_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(ctx, NAME, name, bit, first version): types of events. */
#define RONDO_PROF_TYPE_TABLE(X, ctx)          \
    X(ctx, GROUP, Group, 0, 1)                 \
    X(ctx, COLL, Coll, 1, 1)                   \
    X(ctx, P2P, P2p, 2, 1)                     \
    X(ctx, PROXY_OP, ProxyOp, 3, 1)            \
    X(ctx, PROXY_STEP, ProxyStep, 4, 1)        \
    X(ctx, PROXY_CTRL, ProxyCtrl, 5, 1)        \
    X(ctx, KERNEL_CH, KernelCh, 6, 3)          \
    X(ctx, NET_PLUGIN, NetPlugin, 7, 3)        \
    X(ctx, GROUP_API, GroupApi, 8, 5)          \
    X(ctx, COLL_API, CollApi, 9, 5)            \
    X(ctx, P2P_API, P2pApi, 10, 5)             \
    X(ctx, KERNEL_LAUNCH, KernelLaunch, 11, 5) \
    X(ctx, CE_COLL, CeColl, 12, 6)             \
    X(ctx, CE_SYNC, CeSync, 13, 6)             \
    X(ctx, CE_BATCH, CeBatch, 14, 6)           \
    X(ctx, KERNEL_PHASE, KernelPhase, 15, 7)

#define RONDO_PROF_ROW_(ctx, NAME, name, bit, version) RONDO_PROF_##NAME = 1 << bit,
enum rondo_prof_type { RONDO_PROF_TYPE_TABLE(RONDO_PROF_ROW_, ) };
#undef RONDO_PROF_ROW_
#define RONDO_PROF_ROW_(ctx, NAME, name, bit, version) +1
enum { RONDO_PROF_NUM_TYPES = 0 RONDO_PROF_TYPE_TABLE(RONDO_PROF_ROW_, ) };
#undef RONDO_PROF_ROW_

enum rondo_prof_state {
    /* proxy operations, versions 1 to 3 */
    RONDO_PROF_SEND_POSTED = 0,
    RONDO_PROF_SEND_REM_FIFO_WAIT = 1,
    RONDO_PROF_SEND_TRANSMITTED = 2,
    RONDO_PROF_SEND_DONE = 3,
    RONDO_PROF_RECV_POSTED = 4,
    RONDO_PROF_RECV_RECEIVED = 5,
    RONDO_PROF_RECV_TRANSMITTED = 6,
    RONDO_PROF_RECV_DONE = 7,
    /* proxy steps */
    RONDO_PROF_STEP_SEND_GPU_WAIT = 8,
    RONDO_PROF_STEP_SEND_WAIT = 9,
    RONDO_PROF_STEP_RECV_WAIT = 10,
    RONDO_PROF_STEP_RECV_FLUSH_WAIT = 11,
    RONDO_PROF_STEP_RECV_GPU_WAIT = 12,
    /* proxy control */
    RONDO_PROF_CTRL_IDLE = 13,
    RONDO_PROF_CTRL_ACTIVE = 14,
    RONDO_PROF_CTRL_SLEEP = 15,
    RONDO_PROF_CTRL_WAKEUP = 16,
    RONDO_PROF_CTRL_APPEND = 17,
    RONDO_PROF_CTRL_APPEND_END = 18,
    /* version 4 */
    RONDO_PROF_OP_IN_PROGRESS = 19,
    RONDO_PROF_STEP_SEND_PEER_WAIT = 20,
    RONDO_PROF_NET_PLUGIN_UPDATE = 21,
    RONDO_PROF_KERNEL_CH_STOP = 22,
    /* version 5 */
    RONDO_PROF_GROUP_START_API_STOP = 23,
    RONDO_PROF_GROUP_END_API_START = 24
};

/* ---- descriptors of events, passed to startEvent ---- */

struct rondo_prof_proxy_op {
    int32_t pid; /* of the process whose call it belongs to: parent events are its own */
    uint8_t channel;
    int32_t peer, nsteps, chunk_bytes, is_send;
};
struct rondo_prof_proxy_step {
    int32_t step;
};
struct rondo_prof_net_plugin {
    int64_t id;
    void *data;
};

struct rondo_prof_descr_v1 {
    uint8_t type; /* enum rondo_prof_type */
    void *parent;
    int32_t rank;
    union {
        struct {
            const char *name; /* of the communicator */
            uint64_t hash, seq;
            uint8_t func; /* NCCL's number, as datatype, op, algo and proto */
            const void *send;
            void *recv;
            size_t count;
            int32_t root;
            uint8_t datatype;
            uint32_t op;
            size_t traffic_bytes;
            uint8_t max_channels, nwarps, algo, proto;
            int32_t is_collnet, is_nvls;
        } coll;
        struct {
            const char *name;
            uint64_t hash;
            uint8_t func;
            void *buf;
            uint8_t datatype;
            size_t count;
            int32_t peer;
        } p2p;
        struct rondo_prof_proxy_op proxy_op;
        struct rondo_prof_proxy_step proxy_step;
    };
};

struct rondo_prof_p2p_v2 {
    const char *name;
    uint64_t hash;
    const char *func;
    void *buf;
    const char *datatype;
    size_t count;
    int32_t peer;
};

struct rondo_prof_descr_v2 {
    uint8_t type;
    void *parent;
    int32_t rank;
    union {
        struct {
            const char *name;
            uint64_t hash, seq;
            const char *func;
            const void *send;
            void *recv;
            size_t count;
            int32_t root;
            const char *datatype;
            size_t traffic_bytes;
            uint8_t max_channels, nwarps;
            const char *algo, *proto;
        } coll;
        struct rondo_prof_p2p_v2 p2p;
        struct rondo_prof_proxy_op proxy_op;
        struct rondo_prof_proxy_step proxy_step;
    };
};

struct rondo_prof_descr_v3 {
    uint8_t type;
    void *parent;
    int32_t rank;
    union {
        struct {
            const char *name;
            uint64_t hash, seq;
            const char *func;
            const void *send;
            void *recv;
            size_t count;
            int32_t root;
            const char *datatype;
            uint8_t max_channels, nwarps;
            const char *algo, *proto;
        } coll;
        struct rondo_prof_p2p_v2 p2p;
        struct rondo_prof_proxy_op proxy_op;
        struct rondo_prof_proxy_step proxy_step;
        struct {
            uint8_t channel;
        } kernel_ch;
        struct rondo_prof_net_plugin net_plugin;
    };
};

/* Versions 4 to 7. A comment "v5" marks the first version that has the field. */
struct rondo_prof_descr_v4 {
    union {
        uint8_t type_v4;
        uint64_t type; /* v5 */
    };
    void *parent; /* of Coll and P2p: the Group; v5: CollApi or P2pApi */
    int32_t rank;
    union {
        struct { /* v5, as the other events of the API */
            bool graph_captured;
            int32_t depth;
        } group_api;
        struct {
            const char *func;
            size_t count;
            const char *datatype;
            int32_t root;
            void *stream;
            bool graph_captured;
            uint64_t user_tag; /* v7 */
        } coll_api;
        struct {
            const char *func;
            size_t count;
            const char *datatype;
            void *stream;
            bool graph_captured;
            uint64_t user_tag; /* v7 */
        } p2p_api;
        struct {
            void *stream;
        } kernel_launch;
        struct {
            uint64_t seq;
            const char *func;
            const void *send;
            void *recv;
            size_t count;
            int32_t root;
            const char *datatype;
            uint8_t nchannels, nwarps;
            const char *algo, *proto;
            void *parent_group;         /* v5 */
            const char *kernel_variant; /* v7, as what follows */
            bool is_symmetric;
            uint64_t user_tag;
        } coll;
        struct {
            const char *func;
            void *buf;
            const char *datatype;
            size_t count;
            int32_t peer;
            uint8_t nchannels;
            void *parent_group; /* v5 */
            uint64_t user_tag;  /* v7 */
        } p2p;
        struct rondo_prof_proxy_op proxy_op;
        struct rondo_prof_proxy_step proxy_step;
        struct {
            uint8_t channel;
            uint64_t timer; /* ns */
        } kernel_ch;
        struct rondo_prof_net_plugin net_plugin;
        struct { /* v6 */
            uint64_t seq;
            const char *func;
            const void *send;
            void *recv;
            size_t count;
            int32_t root;
            const char *datatype, *sync;
            bool intra_batch_sync;
            uint32_t batch_size, nbatches, ce_seq;
            void *stream;
            uint64_t user_tag; /* v7 */
        } ce_coll;
    };
};

/* ---- arguments of states, passed to recordEventState ---- */

/* Versions 1 to 3. */
union rondo_prof_args_v1 {
    struct {
        size_t bytes; /* moved so far */
        int32_t steps;
    } proxy_op;
    struct {
        int32_t appended;
    } proxy_ctrl;
};

/* Versions 4 to 7. */
union rondo_prof_args_v4 {
    struct {
        size_t bytes; /* of this step */
    } proxy_step;
    struct {
        int32_t appended;
    } proxy_ctrl;
    struct {
        void *data;
    } net_plugin;
    struct {
        uint64_t timer; /* ns */
    } kernel_ch;
};

/* ---- the table of functions ---- */

typedef void (*rondo_prof_log_fn)(int level, unsigned long subsystems, const char *file, int line,
                                  const char *fmt, ...);

/* All return 0 for success. Only an error of init has an effect: it turns the plugin off. *handle stays NULL
 * if the plugin has no use for the event: then it gets no state and no stop. */
struct rondo_prof_plugin_table {
    const char *name;
    union {
        int (*v1)(void **context, int *mask);
        int (*v4)(void **context, int *mask, const char *comm_name, uint64_t comm_hash, int nnodes,
                  int nranks, int rank, rondo_prof_log_fn log);
        int (*v5)(void **context, uint64_t comm_hash, int *mask, const char *comm_name, int nnodes,
                  int nranks, int rank, rondo_prof_log_fn log);
    } init;
    int (*start)(void *context, void **handle, void *descr);
    int (*stop)(void *handle);
    int (*state)(void *handle, int state, void *args);
    int (*finalize)(void *context);
};

/*
 * Not of NCCL: a plugin may also export `rondoProfilerClock_v1`, a pointer to such a function. After init a
 * library that has compared this host's CLOCK_MONOTONIC with that of another rank's host calls it, at most
 * once: offset_ns added to a time of this host gives that of the other one, to error_ns.
 */
typedef int (*rondo_prof_clock_fn)(void *context, int rank, int64_t offset_ns, int64_t error_ns);

/* Sizes and places that differ from version to version. */
#define RONDO_PROF_AT(type, member, offset) \
    _Static_assert(offsetof(type, member) == (offset), "the layout of " #type)
_Static_assert(sizeof(struct rondo_prof_descr_v1) == 120, "version 1");
_Static_assert(sizeof(struct rondo_prof_descr_v2) == 128, "version 2");
_Static_assert(sizeof(struct rondo_prof_descr_v3) == 120, "version 3");
_Static_assert(offsetof(struct rondo_prof_descr_v4, coll.parent_group) == 104, "version 4 has 104 bytes");
_Static_assert(offsetof(struct rondo_prof_descr_v4, coll.kernel_variant) == 112, "version 5 has 112 bytes");
_Static_assert(offsetof(struct rondo_prof_descr_v4, ce_coll.user_tag) == 112, "version 6 has 112 bytes");
_Static_assert(sizeof(struct rondo_prof_descr_v4) == 136, "version 7");
_Static_assert(sizeof(union rondo_prof_args_v1) == 16, "versions 1 to 3");
_Static_assert(sizeof(union rondo_prof_args_v4) == 8, "versions 4 to 7");
_Static_assert(sizeof(struct rondo_prof_plugin_table) == 48, "the table");
RONDO_PROF_AT(struct rondo_prof_descr_v2, coll.traffic_bytes, 96);
RONDO_PROF_AT(struct rondo_prof_descr_v2, coll.proto, 120);
RONDO_PROF_AT(struct rondo_prof_descr_v2, p2p.peer, 72);
RONDO_PROF_AT(struct rondo_prof_descr_v2, proxy_op.is_send, 44);
RONDO_PROF_AT(struct rondo_prof_descr_v4, parent, 8);
RONDO_PROF_AT(struct rondo_prof_descr_v4, rank, 16);
RONDO_PROF_AT(struct rondo_prof_descr_v4, coll.proto, 96);
RONDO_PROF_AT(struct rondo_prof_descr_v4, p2p.nchannels, 60);
RONDO_PROF_AT(struct rondo_prof_descr_v4, p2p.parent_group, 64);
RONDO_PROF_AT(struct rondo_prof_descr_v4, kernel_ch.timer, 32);
RONDO_PROF_AT(struct rondo_prof_descr_v4, ce_coll.stream, 104);

#endif
