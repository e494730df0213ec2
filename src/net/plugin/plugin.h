/*
 * External net plugins, shared by their files: opening one (netdev_plugin_load.c), what differs between
 * versions (netdev_plugin_abi.c), the device over it (netdev_plugin.c).
 *
 * One plugin a process. What it does is its own: it is code of whoever wrote it, it gets addresses that peers
 * sent, and it trusts who connects to its listeners. What it says (numbers of devices, names, sizes) is
 * checked.
 *
 * RONDO_NET_PLUGIN (or NCCL_NET_PLUGIN) names a plugin that is used before verbs and sockets: a path, a
 * library, or "aws-ofi" for libnccl-net-aws-ofi.so. A plugin that was asked for and does not work is an
 * error; "none" turns plugins off, libnccl-net.so included. A plugin's connections do not check the
 * communicator's secret: whoever reaches its listener is let in.
 */
#ifndef RONDO_NET_PLUGIN_PLUGIN_H
#define RONDO_NET_PLUGIN_PLUGIN_H

#include "net/netdev.h"
#include "net/plugin/plugin_abi.h"

enum {
    RONDO_PLUGIN_DEVICES = 1024, /* most that are believed */
    RONDO_PLUGIN_BYTES = 1 << 30 /* most of a message: test says its size as an int, in every version */
};

/* Where a communicator's comms are made, from version 11 on; one for all before. */
struct rondo_plugin_context {
    struct rondo_plugin_context *next;
    uint64_t id; /* of the communicator; 0: the process's own */
    int refs;    /* comms */
    void *context;
    struct rondo_plugin_config config;
};

/* One version: how its functions are called. Those that are not here are the same in all. */
struct rondo_plugin_abi {
    int version, has_contexts;
    const char *symbol;
    int (*init)(const struct rondo_plugin_net *net, struct rondo_plugin_context *context);
    int (*properties)(const struct rondo_plugin_net *net, int device,
                      struct rondo_plugin_properties_v12 *properties);
    int (*listen)(const struct rondo_plugin_net *net, struct rondo_plugin_context *context, int device,
                  void *handle, void **listener);
    int (*connect)(const struct rondo_plugin_net *net, struct rondo_plugin_context *context, int device,
                   void *handle, void **comm);
    int (*isend)(const struct rondo_plugin_net *net, void *comm, void *data, size_t bytes, int tag,
                 void *region, void **request);
    int (*irecv)(const struct rondo_plugin_net *net, void *comm, int n, void **data, size_t *bytes, int *tags,
                 void **regions, void **request);
};

extern const struct rondo_plugin_abi rondo_plugin_abis[]; /* newest first */
extern const int rondo_num_plugin_abis;

struct rondo_plugin_device {
    struct rondo_net_properties properties;
    size_t max_bytes; /* of a message */
};

struct rondo_plugin {
    void *library; /* NULL: none is open */
    const struct rondo_plugin_abi *abi;
    const struct rondo_plugin_net *net;
    char name[64], path[256];
    int ndevices;
    struct rondo_plugin_device *device;
    struct rondo_plugin_context *contexts; /* the process's own is the last */
};

/**
 * Open one by a user's word: a path, the name of a library, or what follows "libnccl-net-" in it. On error
 * the plugin stays zeroed and the sentence is not logged: the caller may know another one.
 */
rondo_status rondo_plugin_open(struct rondo_plugin *plugin, const char *word);
/** Safe on a zeroed one. */
void rondo_plugin_close(struct rondo_plugin *plugin);
/** A reference to the context of a communicator, made for the first one. Under the caller's lock, as the
 * next. */
rondo_status rondo_plugin_context_get(struct rondo_plugin *plugin, const uint64_t secret[2],
                                      struct rondo_plugin_context **context);
void rondo_plugin_context_put(struct rondo_plugin *plugin, struct rondo_plugin_context *context);

/** "net plugin NAME (v11, PATH): FUNCTION gave 2 (system error)", and what it warned of last in this thread.
 */
void rondo_plugin_says(const struct rondo_plugin *plugin, const char *function, int code, char *text,
                       size_t bytes);
/** The status for a plugin's code. remote: in a call that other hosts take part in, where plugins count
 * errors of the network among those of the system. */
rondo_status rondo_plugin_status(int code, int remote);

/* What its init is given (netdev_plugin_log.c). */
void rondo_plugin_log(int level, unsigned long subsystems, const char *file, int line, const char *fmt, ...)
    RONDO_PRINTF(5, 6);
int rondo_plugin_profile(void **event, int what, void *parent, int64_t kind, void *more);
/** Warnings in this thread are information: of a close that gives requests up on purpose. */
void rondo_plugin_log_quiet(int on);
/** The last warning in this thread, "" none. */
const char *rondo_plugin_warning(void);

/** The name of the plugin that is in use, "" none. */
const char *rondo_netdev_plugin_name(void);

#endif
