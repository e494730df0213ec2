/* The conns of a communicator: for its rings and trees, and for sends and receives. */
#ifndef RONDO_COMM_LINKS_H
#define RONDO_COMM_LINKS_H

#include "comm/comm.h"

/* Sends to and receives from one peer. */
struct rondo_p2p {
    struct rondo_link link[2]; /* 0: from the peer, 1: to it */
    struct rondo_ports ports[2];
    uint64_t calls[2];                 /* made so far in each direction */
    uint8_t lazy[2];                   /* the link was offered */
    struct rondo_conn *device_conn[2]; /* GPU: as its kernels read them; NULL: not wired yet */
};

/** The most links of a rank with so many channels. */
int rondo_links_max(const struct rondo_layout *layout, int nchannels);
/** Offer this rank's ends of all rings, trees and recursive doubling. records: rondo_links_max() of them. */
rondo_status rondo_links_offer(struct rondo_ctx *ctx, struct rondo_connect *records);
/** Connect to the peers' ends; records_of(arg, peer): the peer's records. @return RONDO_IN_PROGRESS: call
 * again, *pending is a peer that is not connected yet (else -1). */
rondo_status rondo_links_connect(struct rondo_ctx *ctx,
                                 const struct rondo_connect *(*records_of)(void *arg, int peer), void *arg,
                                 int *pending);
/** Do the conns that an algorithm uses in a channel have their slots, for good? Any thread. */
int rondo_links_wired(const struct rondo_ctx *ctx, int channel, enum rondo_algo algo);
/** Get these slots; all ranks of the channel call it, in the thread that moves the executor, where
 * net.limited for each run. @return RONDO_IN_PROGRESS: some senders have none yet; call again. */
rondo_status rondo_links_wire(struct rondo_ctx *ctx, int channel, enum rondo_algo algo);
/** A run that had wired them has ended: where net.limited, their slots may be given back. */
void rondo_links_rest(struct rondo_ctx *ctx, int channel, enum rondo_algo algo);
/** Close all links: a peer sees then that this end failed. */
void rondo_links_close(struct rondo_ctx *ctx);
/** List the ranks that this one has, or after an error would have, links with: ascending, no duplicates.
 * @return their number. */
int rondo_links_peers(const struct rondo_ctx *ctx, int *peers);
/** Get the entry of a peer; prepares its link in that direction on first use. */
rondo_status rondo_p2p_get(struct rondo_ctx *ctx, int peer, int is_send, struct rondo_p2p **p2p);
/** Mask of protocols that messages between GPUs may use besides Simple. All ranks return the same. */
uint32_t rondo_message_protos(const struct rondo_ctx *ctx);
/** Protocol of a message. Both ends of a link return the same. */
enum rondo_proto rondo_message_proto(const struct rondo_link *link, size_t bytes);

#endif
