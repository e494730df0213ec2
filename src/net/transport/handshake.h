/*
 * The end of a connection's set-up: every conn passes one empty slot each way, so that a pair whose memory is
 * not really shared, or whose other end never came, is named at creation and not found in the first
 * collective.
 */
#ifndef RONDO_NET_TRANSPORT_HANDSHAKE_H
#define RONDO_NET_TRANSPORT_HANDSHAKE_H

#include "net/transport/transport.h"

/**
 * Move the hello of @a n links (NULL and unconnected ones are passed over); with rondo_net_progress between
 * the calls where conns are proxied. Never blocks; call again with the same links while RONDO_IN_PROGRESS.
 *
 * Sends post one empty slice, receives consume it, sends see its credit. When done, step == seen == 1 on both
 * ends (of a fresh conn): all protocols share the step, so flags of LL and LL128 go on from there. An error
 * is a device's: words that lie in its memory are moved by its copies.
 *
 * @param pending_peer a rank whose part is missing; -1 when done.
 */
rondo_status rondo_link_hello(struct rondo_link **links, int n, int *pending_peer);

#endif
