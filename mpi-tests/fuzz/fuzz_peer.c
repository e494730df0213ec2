/* Fuzz peers' records as other ranks send them. What can be read is a valid record: packed and read again, it
 * stays the same, and its texts end. */
#include <stdlib.h>
#include <string.h>
#include "net/peer_wire.h"

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct rondo_peer_wire wire, again;
    struct rondo_peer peer, other;
    struct rondo_peer_parts parts, others;
    uint32_t known[2] = { RONDO_VERSION_CODE, sizeof(struct rondo_peer) };
    memset(&wire, 0, sizeof(wire));
    memcpy(wire.bytes, known, sizeof(known)); /* else most inputs would end here */
    memcpy(wire.bytes + sizeof(known), data,
           bytes < sizeof(wire.bytes) - sizeof(known) ? bytes : sizeof(wire.bytes) - sizeof(known));
    if (!rondo_peer_unpack(&peer, &parts, &wire)) {
        return 0;
    }
    require(memchr(parts.host, 0, sizeof(parts.host)) && memchr(peer.bus_id, 0, sizeof(peer.bus_id)));
    if (rondo_peer_pack(&again, &peer)) {
        require(rondo_peer_unpack(&other, &others, &again));
        require(other.rank == peer.rank && other.host_hash == peer.host_hash && other.memory == peer.memory &&
                other.probe.inode == peer.probe.inode);
        for (size_t i = 0; i < RONDO_COUNTOF(parts.cores.bits); i++) { /* a set may grow, never shrink */
            require((parts.cores.bits[i] & ~others.cores.bits[i]) == 0);
        }
    }
    return 0;
}
