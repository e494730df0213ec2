/*
 * Events: hooks that src/prof fills (profiler plugins, flight recorder, traces). All NULL by default: a
 * disabled event costs one load and a branch. Emitted by src/ (group, coll, p2p) and net/ (proxy). Handles
 * are opaque to the emitter; a NULL handle is passed on as parent.
 */
#ifndef RONDO_BASE_EVENT_H
#define RONDO_BASE_EVENT_H

#include "base/types.h"

enum rondo_event_kind {
    RONDO_EVENT_GROUP,
    RONDO_EVENT_COLL,
    RONDO_EVENT_P2P,
    RONDO_EVENT_PROXY_OP,
    RONDO_EVENT_PROXY_STEP,
    RONDO_EVENT_PROXY_CTRL
};

struct rondo_event_desc {
    enum rondo_event_kind kind;
    void *parent;
    const char *comm_name;
    uint64_t comm_hash, seq;
    int rank;
    uint8_t coll, algo, proto, dtype, nchannels;
    int peer_or_root;
    size_t count;
    const void *send;
    void *recv;
};

struct rondo_events {
    uint32_t mask; /* bit per kind that is wanted; 0: none */
    void *(*start)(void *arg, const struct rondo_event_desc *desc);
    void (*stop)(void *arg, void *event);
    void (*state)(void *arg, void *event, int state, uint64_t value);
    void *arg;
};

#endif
