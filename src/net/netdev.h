/*
 * Net devices: how slots cross nodes under the net transport. One explicit list (verbs, socket, fault, a loaded plugin), filled by the net transport's files.
 * Everything is non-blocking; requests complete in `test`. A request that has failed ends its connection, with a sentence that names both ends.
 */
#ifndef RONDO_NET_NETDEV_H
#define RONDO_NET_NETDEV_H

#include "base/status.h"

enum { RONDO_NET_HANDLE = 112, RONDO_NET_MAX_RECVS = 8 };

struct rondo_net_properties {
    const char *name, *pci_path;
    uint64_t guid;
    uint32_t pointer_support; /* bit 0 host, bit 1 CUDA, bit 2 DMA-BUF */
    int speed_mbps, port, max_comms, max_recvs;
    double latency_us;
};

struct rondo_net_device {
    const char *name;
    rondo_status (*init)(int *ndevices);
    rondo_status (*properties)(int device, struct rondo_net_properties *properties);
    /* Symmetric set-up by records that the bootstrap carries: no handshake of its own. */
    rondo_status (*prepare)(int device, int is_send, void **comm, void *handle /* RONDO_NET_HANDLE bytes */);
    rondo_status (*connect)(void *comm, const void *peer_handle); /* RONDO_IN_PROGRESS: call again */
    rondo_status (*reg)(void *comm, void *data, size_t bytes, int kind, void **region);
    rondo_status (*unreg)(void *comm, void *region);
    /* *request NULL: no credit, try again. */
    rondo_status (*isend)(void *comm, const void *data, size_t bytes, int tag, void *region, void **request);
    rondo_status (*irecv)(void *comm, int n, void *const *data, const size_t *bytes, const int *tags, void *const *regions, void **request);
    rondo_status (*iflush)(void *comm, int n, void *const *data, const size_t *bytes, void *const *regions, void **request);
    rondo_status (*test)(void *request, int *done, size_t *bytes);
    void (*close)(void *comm);
};

#endif
