/* How to call the functions of each version of net plugins: one row a version. */
#include "net/plugin/plugin.h"

#include <string.h>

/* ---- init ---- */

static int init_v8(const struct rondo_plugin_net *net, struct rondo_plugin_context *context)
{
    (void)context;
    return net->init.v8(rondo_plugin_log);
}

static int init_v10(const struct rondo_plugin_net *net, struct rondo_plugin_context *context)
{
    (void)context;
    return net->init.v10(rondo_plugin_log, rondo_plugin_profile);
}

static int init_v11(const struct rondo_plugin_net *net, struct rondo_plugin_context *context)
{
    return net->init.v11(&context->context, context->id, &context->config, rondo_plugin_log,
                         rondo_plugin_profile);
}

/* ---- properties: those missing in a version get the values of a separate device ---- */

/* Fields that the structs of two versions share. */
#define COPY(to, from)                                                                    \
    do {                                                                                  \
        (to)->name = (from)->name, (to)->pci_path = (from)->pci_path;                     \
        (to)->guid = (from)->guid, (to)->pointers = (from)->pointers;                     \
        (to)->speed_mbps = (from)->speed_mbps, (to)->port = (from)->port;                 \
        (to)->latency_us = (from)->latency_us;                                            \
        (to)->max_comms = (from)->max_comms, (to)->max_recvs = (from)->max_recvs;         \
        (to)->offload = (from)->offload, (to)->offload_version = (from)->offload_version; \
    } while (0)

static int properties_v8(const struct rondo_plugin_net *net, int device,
                         struct rondo_plugin_properties_v12 *properties)
{
    struct rondo_plugin_properties_v8 found = { .name = NULL };
    int code = net->properties.v8(device, &found);
    COPY(properties, &found);
    properties->max_bytes = RONDO_PLUGIN_BYTES;
    return code;
}

static int properties_v9(const struct rondo_plugin_net *net, int device,
                         struct rondo_plugin_properties_v12 *properties)
{
    struct rondo_plugin_properties_v9 found = { .name = NULL };
    int code = net->properties.v9(device, &found);
    COPY(properties, &found);
    properties->force_flush = found.force_flush;
    properties->max_bytes = found.max_bytes;
    return code;
}

static int properties_v11(const struct rondo_plugin_net *net, int device,
                          struct rondo_plugin_properties_v12 *properties)
{
    struct rondo_plugin_properties_v11 found = { .v9.name = NULL };
    int code = net->properties.v11(device, &found);
    COPY(properties, &found.v9);
    properties->force_flush = found.v9.force_flush;
    properties->max_bytes = found.v9.max_bytes;
    return code;
}

static int properties_v12(const struct rondo_plugin_net *net, int device,
                          struct rondo_plugin_properties_v12 *properties)
{
    return net->properties.v12(device, properties);
}

/* ---- connections ---- */

static int listen_v8(const struct rondo_plugin_net *net, struct rondo_plugin_context *context, int device,
                     void *handle, void **listener)
{
    (void)context;
    return net->listen.v8(device, handle, listener);
}

static int listen_v11(const struct rondo_plugin_net *net, struct rondo_plugin_context *context, int device,
                      void *handle, void **listener)
{
    return net->listen.v11(context->context, device, handle, listener);
}

static int connect_v8(const struct rondo_plugin_net *net, struct rondo_plugin_context *context, int device,
                      void *handle, void **comm)
{
    void *offload = NULL;
    (void)context;
    return net->connect.v8(device, handle, comm, &offload);
}

static int connect_v10(const struct rondo_plugin_net *net, struct rondo_plugin_context *context, int device,
                       void *handle, void **comm)
{
    void *offload = NULL;
    return net->connect.v10(device, &context->config, handle, comm, &offload);
}

static int connect_v11(const struct rondo_plugin_net *net, struct rondo_plugin_context *context, int device,
                       void *handle, void **comm)
{
    void *offload = NULL;
    return net->connect.v11(context->context, device, handle, comm, &offload);
}

/* ---- messages: sizes are RONDO_PLUGIN_BYTES at most ---- */

static int isend_v8(const struct rondo_plugin_net *net, void *comm, void *data, size_t bytes, int tag,
                    void *region, void **request)
{
    return net->isend.v8(comm, data, (int)bytes, tag, region, request);
}

static int isend_v9(const struct rondo_plugin_net *net, void *comm, void *data, size_t bytes, int tag,
                    void *region, void **request)
{
    return net->isend.v9(comm, data, bytes, tag, region, request);
}

static int isend_v10(const struct rondo_plugin_net *net, void *comm, void *data, size_t bytes, int tag,
                     void *region, void **request)
{
    return net->isend.v10(comm, data, bytes, tag, region, rondo_net_parent, request);
}

static int irecv_v8(const struct rondo_plugin_net *net, void *comm, int n, void **data, size_t *bytes,
                    int *tags, void **regions, void **request)
{
    int sizes[RONDO_NET_MAX_RECVS];
    for (int i = 0; i < n; i++) {
        sizes[i] = (int)bytes[i];
    }
    return net->irecv.v8(comm, n, data, sizes, tags, regions, request);
}

static int irecv_v9(const struct rondo_plugin_net *net, void *comm, int n, void **data, size_t *bytes,
                    int *tags, void **regions, void **request)
{
    return net->irecv.v9(comm, n, data, bytes, tags, regions, request);
}

static int irecv_v10(const struct rondo_plugin_net *net, void *comm, int n, void **data, size_t *bytes,
                     int *tags, void **regions, void **request)
{
    void *parents[RONDO_NET_MAX_RECVS];
    for (int i = 0; i < n; i++) {
        parents[i] = rondo_net_parent;
    }
    return net->irecv.v10(comm, n, data, bytes, tags, regions, parents, request);
}

const struct rondo_plugin_abi rondo_plugin_abis[] = {
    { 12, 1, "ncclNetPlugin_v12", init_v11, properties_v12, listen_v11, connect_v11, isend_v10, irecv_v10 },
    { 11, 1, "ncclNetPlugin_v11", init_v11, properties_v11, listen_v11, connect_v11, isend_v10, irecv_v10 },
    { 10, 0, "ncclNetPlugin_v10", init_v10, properties_v9, listen_v8, connect_v10, isend_v10, irecv_v10 },
    { 9, 0, "ncclNetPlugin_v9", init_v8, properties_v9, listen_v8, connect_v8, isend_v9, irecv_v9 },
    { 8, 0, "ncclNetPlugin_v8", init_v8, properties_v8, listen_v8, connect_v8, isend_v8, irecv_v8 },
};
const int rondo_num_plugin_abis = RONDO_COUNTOF(rondo_plugin_abis);
