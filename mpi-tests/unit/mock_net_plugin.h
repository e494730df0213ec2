/*
 * The exports of a net plugin of version VERSION (8 to 12), for mock_net_plugin.c. Written from the published
 * headers, version by version, independently of src/net/plugin/plugin_abi.h, so that each checks the other.
 * Without VERSION: what the tests read.
 */
#ifndef RONDO_MOCK_NET_PLUGIN_H
#define RONDO_MOCK_NET_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

/* What the tests read. */
struct mock_net {
    int version, bad, inits, finals, comms, listeners, regions, requests, logs;
    uint64_t ids[8];
    int traffic_class;
    char text[64]; /* the first violation */
};
enum { MOCK_KIND = 9 << 16 | 1 /* of its profiler events; their data is the number of a receive's parts */ };
#ifdef VERSION

typedef void (*log_fn)(int level, unsigned long flags, const char *file, int line, const char *fmt, ...);
typedef int (*profile_fn)(void **event, int type, void *parent, int64_t plugin, void *data);

struct properties {
    char *name;
    char *pciPath;
    uint64_t guid;
    int ptrSupport;
    int regIsGlobal;
#if VERSION >= 9
    int forceFlush;
#endif
    int speed;
    int port;
    float latency;
    int maxComms;
    int maxRecvs;
    int netDeviceType;
    int netDeviceVersion;
#if VERSION >= 9
    struct {
        int ndevs;
        int devs[VERSION >= 12 ? 8 : 4];
    } vProps;
    size_t maxP2pBytes;
    size_t maxCollBytes;
#endif
#if VERSION >= 11
    int maxMultiRequestSize;
#endif
#if VERSION >= 12
    int16_t railId;
    int16_t planeId;
#endif
};

typedef int (*any_fn)(void);

struct functions {
    const char *name;
    any_fn init, devices, getProperties, listen, connect, accept, regMr, regMrDmaBuf, deregMr, isend, irecv,
        iflush, test, closeSend, closeRecv, closeListen, getDeviceMr, irecvConsumed;
#if VERSION >= 9
    any_fn makeVDevice;
#endif
#if VERSION >= 11
    any_fn finalize, setNetAttr;
#endif
};

/* X(name) */
#if VERSION >= 11
#define FUNCTIONS_11(X) X(finalize)
#else
#define FUNCTIONS_11(X)
#endif
#define FUNCTIONS(X) \
    X(init)          \
    X(devices)       \
    X(getProperties) \
    X(listen)        \
    X(connect)       \
    X(accept)        \
    X(regMr)         \
    X(regMrDmaBuf)   \
    X(deregMr) X(isend) X(irecv) X(iflush) X(test) X(closeSend) X(closeRecv) X(closeListen) FUNCTIONS_11(X)

#endif
#endif
