/*
 * What an external net plugin for NCCL (libnccl-net*.so) exports: `ncclNetPlugin_v<N>`, a struct of
 * functions, described here for N = 8 to 12 on 64-bit systems.
 *
 * Functions keep their positions from version to version; new ones were appended. A function whose parameters
 * changed is a union here: its member v9 applies from version 9 until the version of the next member. The
 * table in plugin_abi.c selects the members of each version. All functions return a result code, 0 for
 * success, with the same numbers as rondo_status.
 *
 * Rules that the types do not show: connect and accept succeed with *comm NULL while in progress; connect
 * keeps its state in the handle, which must not move between calls; isend and irecv succeed with *request
 * NULL when there is no room, iflush when there is nothing to wait for; test returns one size for each part
 * of the receive; names and paths belong to the plugin.
 */
#ifndef RONDO_NET_PLUGIN_PLUGIN_ABI_H
#define RONDO_NET_PLUGIN_PLUGIN_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "base/net_event.h"

enum { RONDO_PLUGIN_HANDLE = 128 /* bytes of a listener's address; a plugin may use all */ };
enum rondo_plugin_pointer { RONDO_PLUGIN_HOST = 1, RONDO_PLUGIN_CUDA = 2, RONDO_PLUGIN_DMABUF = 4 };

/* Passed to a plugin's init: one writes the log, the other reports events to a profiler. */
typedef void (*rondo_plugin_log_fn)(int level, unsigned long subsystems, const char *file, int line,
                                    const char *fmt, ...);
typedef rondo_net_event_fn rondo_plugin_profile_fn;

struct rondo_plugin_config {
    int traffic_class; /* the plugin's own numbering; -1: it chooses */
};

/* ---- properties of a device ---- */

struct rondo_plugin_properties_v8 {
    char *name, *pci_path;
    uint64_t guid;
    int pointers; /* enum rondo_plugin_pointer */
    int reg_is_global;
    int speed_mbps, port;
    float latency_us;
    int max_comms, max_recvs;
    int offload, offload_version; /* device code that NCCL kernels need for its data; 0: none */
};

struct rondo_plugin_fused {
    int n, device[4]; /* devices merged into this one */
};
struct rondo_plugin_fused_v12 {
    int n, device[8];
};

struct rondo_plugin_properties_v9 {
    char *name, *pci_path;
    uint64_t guid;
    int pointers;
    int reg_is_global, force_flush;
    int speed_mbps, port;
    float latency_us;
    int max_comms, max_recvs;
    int offload, offload_version;
    struct rondo_plugin_fused fused;
    size_t max_bytes, max_coll_bytes; /* of a message */
};

struct rondo_plugin_properties_v11 {
    struct rondo_plugin_properties_v9 v9;
    int max_multi_request;
};

struct rondo_plugin_properties_v12 {
    char *name, *pci_path;
    uint64_t guid;
    int pointers;
    int reg_is_global, force_flush;
    int speed_mbps, port;
    float latency_us;
    int max_comms, max_recvs;
    int offload, offload_version;
    struct rondo_plugin_fused_v12 fused;
    size_t max_bytes, max_coll_bytes;
    int max_multi_request;
    int16_t rail, plane; /* -1: unknown */
};

/* ---- functions ---- */

/* clang-format off */
struct rondo_plugin_net {
    const char *name;
    union {
        int (*v8)(rondo_plugin_log_fn log);
        int (*v10)(rondo_plugin_log_fn log, rondo_plugin_profile_fn profile);
        /* Called once a communicator; id: the same on all its ranks. */
        int (*v11)(void **context, uint64_t id, struct rondo_plugin_config *config, rondo_plugin_log_fn log,
                   rondo_plugin_profile_fn profile);
    } init;
    int (*devices)(int *n);
    union {
        int (*v8)(int device, struct rondo_plugin_properties_v8 *properties);
        int (*v9)(int device, struct rondo_plugin_properties_v9 *properties);
        int (*v11)(int device, struct rondo_plugin_properties_v11 *properties);
        int (*v12)(int device, struct rondo_plugin_properties_v12 *properties);
    } properties;
    union {
        int (*v8)(int device, void *handle, void **listener);
        int (*v11)(void *context, int device, void *handle, void **listener);
    } listen;
    /* offload: for NCCL kernels; stays NULL. */
    union {
        int (*v8)(int device, void *handle, void **comm, void **offload);
        int (*v10)(int device, struct rondo_plugin_config *config, void *handle, void **comm, void **offload);
        int (*v11)(void *context, int device, void *handle, void **comm, void **offload);
    } connect;
    int (*accept)(void *listener, void **comm, void **offload);
    int (*reg)(void *comm, void *data, size_t bytes, int pointer, void **region);
    int (*reg_dmabuf)(void *comm, void *data, size_t bytes, int pointer, uint64_t offset, int fd,
                      void **region);
    int (*unreg)(void *comm, void *region);
    union {
        int (*v8)(void *comm, void *data, int bytes, int tag, void *region, void **request);
        int (*v9)(void *comm, void *data, size_t bytes, int tag, void *region, void **request);
        int (*v10)(void *comm, void *data, size_t bytes, int tag, void *region, void *parent, void **request);
    } isend;
    union {
        int (*v8)(void *comm, int n, void **data, int *bytes, int *tags, void **regions, void **request);
        int (*v9)(void *comm, int n, void **data, size_t *bytes, int *tags, void **regions, void **request);
        int (*v10)(void *comm, int n, void **data, size_t *bytes, int *tags, void **regions, void **parents,
                   void **request);
    } irecv;
    int (*iflush)(void *comm, int n, void **data, int *bytes, void **regions, void **request);
    int (*test)(void *request, int *done, int *bytes);
    int (*close_send)(void *comm);
    int (*close_recv)(void *comm);
    int (*close_listen)(void *listener);
    void *offload_region, *offload_consumed; /* functions for NCCL kernels, not called */
    void *fuse;                              /* v9: merges devices, not called */
    int (*finalize)(void *context);          /* v11 */
    void *hint;                              /* v11: announces how comms will be used, not called */
};
/* clang-format on */

/* The layout that compilers for 64-bit Linux give the published declarations. */
#define RONDO_PLUGIN_AT(type, field, offset) \
    _Static_assert(offsetof(struct type, field) == (offset), "the layout of " #type "." #field)
#define RONDO_PLUGIN_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), "the size of " #type)
RONDO_PLUGIN_AT(rondo_plugin_properties_v8, pointers, 24);
RONDO_PLUGIN_AT(rondo_plugin_properties_v8, latency_us, 40);
RONDO_PLUGIN_AT(rondo_plugin_properties_v8, offload, 52);
RONDO_PLUGIN_SIZE(rondo_plugin_properties_v8, 64);
RONDO_PLUGIN_AT(rondo_plugin_properties_v9, speed_mbps, 36);
RONDO_PLUGIN_AT(rondo_plugin_properties_v9, offload, 56);
RONDO_PLUGIN_AT(rondo_plugin_properties_v9, fused, 64);
RONDO_PLUGIN_AT(rondo_plugin_properties_v9, max_bytes, 88);
RONDO_PLUGIN_SIZE(rondo_plugin_properties_v9, 104); /* and of version 10 */
RONDO_PLUGIN_AT(rondo_plugin_properties_v11, max_multi_request, 104);
RONDO_PLUGIN_SIZE(rondo_plugin_properties_v11, 112);
RONDO_PLUGIN_AT(rondo_plugin_properties_v12, offload, 56);
RONDO_PLUGIN_AT(rondo_plugin_properties_v12, max_bytes, 104);
RONDO_PLUGIN_AT(rondo_plugin_properties_v12, max_multi_request, 120);
RONDO_PLUGIN_AT(rondo_plugin_properties_v12, plane, 126);
RONDO_PLUGIN_SIZE(rondo_plugin_properties_v12, 128);
RONDO_PLUGIN_SIZE(rondo_plugin_config, 4);
RONDO_PLUGIN_AT(rondo_plugin_net, listen, 32);
RONDO_PLUGIN_AT(rondo_plugin_net, reg, 56);
RONDO_PLUGIN_AT(rondo_plugin_net, isend, 80);
RONDO_PLUGIN_AT(rondo_plugin_net, test, 104);
RONDO_PLUGIN_AT(rondo_plugin_net, fuse, 152); /* the end of version 8 */
RONDO_PLUGIN_AT(rondo_plugin_net, finalize, 160);
RONDO_PLUGIN_SIZE(rondo_plugin_net, 176);

#endif
