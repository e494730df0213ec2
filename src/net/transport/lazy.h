/*
 * Lazy links whose ends exchange records over the control plane. Each end offers when it is asked for, sends
 * its record, receives the other's, connects, and says so. Neither uses the conn before both have connected.
 */
#ifndef RONDO_NET_TRANSPORT_LAZY_H
#define RONDO_NET_TRANSPORT_LAZY_H

#include "net/transport/transport.h"

enum rondo_lazy_stage {
    RONDO_LAZY_ASK,
    RONDO_LAZY_HEAR,
    RONDO_LAZY_CONNECT,
    RONDO_LAZY_TELL,
    RONDO_LAZY_TOLD
};

/* State of one link, zeroed. record: written by its transport's offer. */
struct rondo_lazy {
    enum rondo_lazy_stage stage;
    struct rondo_connect record; /* this end's, later the other end's */
};

/** Progress the link by one step or several. RONDO_IN_PROGRESS: call again. state: the transport's. */
rondo_status rondo_lazy_move(const struct rondo_net *net, void *state, struct rondo_link *link,
                             struct rondo_lazy *lazy);

#endif
