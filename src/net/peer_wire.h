/*
 * A peer's record as it travels: 256 bytes, so that the records of 131,072 ranks are 32 MiB. Numbers that are
 * usually small take few bytes, and core sets are ranges or bits, whichever is shorter.
 *
 * What does not fit is given up in this order: the end of the host's name beyond 23 bytes, then gaps in the
 * core set, the smallest first (the set becomes larger; only sets of many scattered ranges need it).
 */
#ifndef RONDO_NET_PEER_WIRE_H
#define RONDO_NET_PEER_WIRE_H

#include "net/peer.h"

struct rondo_peer_wire {
    struct rondo_round_head head;
    uint8_t bytes[248];
};
_Static_assert(sizeof(struct rondo_peer_wire) == 256, "a peer's record on the wire");

/** Write a record, with its head. control_addr, control_number and netdevs do not travel.
 * @return 0: names and numbers are so long that the record does not fit. */
int rondo_peer_pack(struct rondo_peer_wire *wire, const struct rondo_peer *peer);
/**
 * Read a record. Of one of another version only head, version and record_bytes are read; rondo_peers_check
 * reports it.
 * @param peer   may lie where the record does
 * @param parts  what peer points to
 * @return 0: no such record was packed; peer and its parts are zero but for its head then.
 */
int rondo_peer_unpack(struct rondo_peer *peer, struct rondo_peer_parts *parts,
                      const struct rondo_peer_wire *wire);

#endif
