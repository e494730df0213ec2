/* The conns of a communicator: of its rings and trees, and of sends and receives. */
#ifndef RONDO_COMM_LINKS_H
#define RONDO_COMM_LINKS_H

#include "comm/comm.h"

/* Both directions to one peer of send and recv. */
struct rondo_p2p {
    struct rondo_link link[2]; /* 0: from the peer, 1: to it */
    struct rondo_ports ports[2];
    uint64_t calls[2];                         /* sequence of calls in each direction */
    uint8_t lazy[2];                           /* link prepared */
    const struct rondo_ports *device_ports[2]; /* on a GPU: what its kernels read; NULL: not wired yet */
};

/** Offer this rank's ends of all rings and trees, and of exchanges. records: rondo_links_max() of them. */
int rondo_links_max(const struct rondo_layout *layout, int nchannels);
rondo_status rondo_links_offer(struct rondo_ctx *ctx, struct rondo_connect *records);
/** records_of(arg, peer): the peer's records. RONDO_IN_PROGRESS: call again; *pending: a peer whose part is
 * missing, else -1. */
rondo_status rondo_links_connect(struct rondo_ctx *ctx,
                                 const struct rondo_connect *(*records_of)(void *arg, int peer), void *arg,
                                 int *pending);
/** Close them all: an end that came to nothing is then seen at the other end too. */
void rondo_links_close(struct rondo_ctx *ctx);
/** Ranks this one has or (after an error) would have links with, ascending, without repetition. @return how
 * many. */
int rondo_links_peers(const struct rondo_ctx *ctx, int *peers);
rondo_status rondo_p2p_get(struct rondo_ctx *ctx, int peer, int is_send, struct rondo_p2p **p2p);
/** Protocols that messages between GPUs may use besides Simple, as a mask: the same on all ranks. */
uint32_t rondo_message_protos(const struct rondo_ctx *ctx);
/** How a message of so many bytes goes: both ends find the same, of a link whose protocols both have. */
enum rondo_proto rondo_message_proto(const struct rondo_link *link, size_t bytes);

#endif
