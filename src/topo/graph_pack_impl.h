/*
 * A node's graphs as bytes: what graph_pack.c (the graphs) and graph_pack_nets.c (what is said of nets) have
 * in common. The format: graph_pack.c.
 */
#ifndef RONDO_TOPO_GRAPH_PACK_IMPL_H
#define RONDO_TOPO_GRAPH_PACK_IMPL_H

#include "topo/stitch.h"

enum {
    RONDO_PACK_VERSION = 2,
    RONDO_PACK_VERSION_GDR = 3,
    RONDO_PACK_VERSION_LEVELS = 4,
    RONDO_PACK_VERSION_RELAYS = 5,
    RONDO_PACK_HEADER = 16
};

/** An error: of bytes, or of graphs that are to be packed. */
rondo_status rondo_pack_wrong(const char *fmt, ...) RONDO_PRINTF(1, 2);

/* graph_pack_nets.c */
/** nets NULL: nothing is known of them. *bytes: of the nets; *version: as what is known of them needs. */
rondo_status rondo_pack_nets_check(const struct rondo_graph_net *nets, int nnets, int ndevs, size_t *bytes,
                                   int *version);
/** Rails and names, after the header. */
void rondo_pack_nets_put(uint8_t **at, const struct rondo_graph_net *nets, int nnets);
/** What devices make of them (gdr and relay of struct rondo_graph_net), after the graphs; nothing in versions
 * without it. */
void rondo_pack_tails_put(uint8_t **at, int version, const struct rondo_graph_net *nets, int nnets,
                          int ndevs);

struct rondo_pack_reader {
    const uint8_t *at, *end;
    int version;
};

/** The same two, checked and passed over. */
rondo_status rondo_pack_nets_get(struct rondo_pack_reader *in, int nnets);
rondo_status rondo_pack_tails_get(struct rondo_pack_reader *in, int nnets, int ndevs);

/* ---- bytes ---- */

static inline void rondo_pack_put16(uint8_t **at, int value)
{
    *(*at)++ = (uint8_t)value;
    *(*at)++ = (uint8_t)(value >> 8);
}

static inline void rondo_pack_put32(uint8_t **at, int32_t value)
{
    rondo_pack_put16(at, (int)((uint32_t)value & 0xffff));
    rondo_pack_put16(at, (int)((uint32_t)value >> 16));
}

static inline int rondo_pack_has(const struct rondo_pack_reader *in, size_t bytes)
{
    return (size_t)(in->end - in->at) >= bytes;
}

static inline uint16_t rondo_pack_get16(struct rondo_pack_reader *in)
{
    uint16_t value = (uint16_t)(in->at[0] | in->at[1] << 8);
    in->at += 2;
    return value;
}

static inline uint32_t rondo_pack_get32(struct rondo_pack_reader *in)
{
    uint32_t low = rondo_pack_get16(in);
    return low | (uint32_t)rondo_pack_get16(in) << 16;
}

#endif
