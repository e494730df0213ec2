/*
 * External net plugins, shared by their files: opening one (plugin_load.c), differences between versions
 * (plugin_abi.c), the device over it (plugin.c).
 *
 * A process uses one plugin. Its code is not Rondo's: it gets addresses that peers sent, and decides whom its
 * listeners admit. Rondo checks what it reports (device counts, names, sizes).
 *
 * RONDO_NET_PLUGIN (or NCCL_NET_PLUGIN) names a plugin that is used before verbs and sockets: a path, a
 * library, or "aws-ofi" for libnccl-net-aws-ofi.so. A requested plugin that does not work is an error. "none"
 * turns plugins off, including libnccl-net.so. A sender's handle proves that it belongs to the communicator,
 * but the plugin's own connections do not: whoever reaches its listener is admitted.
 */
#ifndef RONDO_NET_PLUGIN_PLUGIN_H
#define RONDO_NET_PLUGIN_PLUGIN_H

#include "base/library.h"
#include "net/netdev.h"
#include "net/plugin/plugin_abi.h"

enum {
    RONDO_PLUGIN_DEVICES = 1024, /* most devices accepted */
    RONDO_PLUGIN_BYTES = 1 << 30 /* longest message: test reports sizes as int in every version */
};

/* Where comms of a communicator are made: one each from version 11 on, one for all before. */
struct rondo_plugin_context {
    struct rondo_plugin_context *next;
    uint64_t id; /* of the communicator; 0: the process's own context */
    int refs;    /* number of comms */
    void *context;
    struct rondo_plugin_config config;
};

/* How to call the functions of one version. Functions not listed here are the same in all versions. */
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
    char name[64], path[RONDO_LIBRARY_PATH];
    int ndevices;
    struct rondo_plugin_device *device;
    struct rondo_plugin_context *contexts; /* the process's own is the last */
};

/** Open the plugin that the user named: by path, by library name, or by what follows "libnccl-net-" in it.
 * On error the plugin stays zeroed and the sentence is not logged: the caller may try another name. */
rondo_status rondo_plugin_open(struct rondo_plugin *plugin, const char *word);
/** Close a plugin; safe on a zeroed one. */
void rondo_plugin_close(struct rondo_plugin *plugin);
/** Get a reference to the context of a communicator; the first one creates it. The caller holds its lock
 * for this and for put. */
rondo_status rondo_plugin_context_get(struct rondo_plugin *plugin, const uint64_t secret[2],
                                      struct rondo_plugin_context **context);
void rondo_plugin_context_put(struct rondo_plugin *plugin, struct rondo_plugin_context *context);

/** Write "net plugin NAME (v11, PATH): FUNCTION gave 2 (system error)" and the plugin's last warning in
 * this thread. */
void rondo_plugin_says(const struct rondo_plugin *plugin, const char *function, int code, char *text,
                       size_t bytes);
/** Convert a plugin's result code. remote: the call involves other hosts; plugins report network errors as
 * system errors there. */
rondo_status rondo_plugin_status(int code, int remote);

/* Passed to the plugin's init. */
void rondo_plugin_log(int level, unsigned long subsystems, const char *file, int line, const char *fmt, ...)
    RONDO_PRINTF(5, 6);
int rondo_plugin_profile(void **event, int what, void *parent, int64_t kind, void *more);

/** @return the name of the plugin in use, "": none. */
const char *rondo_netdev_plugin_name(void);

#endif
