/* The end of connection setup: every conn passes one empty slot each way. A pair whose memory is not
 * really shared, or whose other end never came, is thus reported at creation, not in the first collective. */
#ifndef RONDO_NET_TRANSPORT_HANDSHAKE_H
#define RONDO_NET_TRANSPORT_HANDSHAKE_H

#include "net/transport/transport.h"

/**
 * Progress the hello of @a n links; skips NULL and unconnected ones. Where conns are proxied, call
 * rondo_net_progress between the calls. Never blocks; call again with the same links while RONDO_IN_PROGRESS.
 *
 * Senders post one empty slice, receivers consume it, senders see the credit. When done, step == seen == 1 on
 * both ends (of a fresh conn): all protocols share the step, so the flags of LL and LL128 continue from
 * there. Errors come from a device: its copies move the words that lie in its memory.
 *
 * @param pending_peer a rank that has not done its part; -1 when done.
 */
rondo_status rondo_link_hello(struct rondo_link **links, int n, int *pending_peer);

#endif
