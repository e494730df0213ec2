/*
 * A node's graphs as bytes, little endian:
 *
 *   header   magic u32, version u16, graphs u16, total bytes u32, devices u16, nets u16
 *   net      rail i32, length of the name u8, name
 *   graph    fields i32 in the order of fields[]; orders u16; each order: devices x u16;
 *            each channel: {number of its order, net in, net out} i16
 *   tail     depends on the version:
 *     2      nothing
 *     3      per net: GPUDirect, u64 per enum rondo_gdr; at least one bit is set
 *     4      host memory: levels u8; kind u8 of each; cut u8 of each place of the ring's first order
 *            (layout/group_tree.h)
 *     5      as 3, where bits may all be zero; then per net and device, for at most 64 devices: 1 + the
 *            device u8 that it sends through, 0: none; at least one is not 0
 *
 * Orders are numbered by first appearance and never repeat, so equal graphs give equal bytes.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "layout/group_tree.h"
#include "topo/stitch.h"

enum {
    MAGIC = 0x68677252, /* "Rrgh" */
    VERSION = 2,
    VERSION_GDR = 3,
    VERSION_LEVELS = 4,
    VERSION_RELAYS = 5,
    HEADER = 16
};
enum { NET_HEAD = 5, NET_TAIL = 8 * RONDO_NUM_GDR };

struct reader {
    const uint8_t *at, *end;
    int version;
};

/* ---- bytes ---- */

static void put16(uint8_t **at, int value)
{
    *(*at)++ = (uint8_t)value;
    *(*at)++ = (uint8_t)(value >> 8);
}

static void put32(uint8_t **at, int32_t value)
{
    put16(at, (int)((uint32_t)value & 0xffff));
    put16(at, (int)((uint32_t)value >> 16));
}

static int has_bytes(const struct reader *in, size_t bytes) { return (size_t)(in->end - in->at) >= bytes; }

static uint16_t get16(struct reader *in)
{
    uint16_t value = (uint16_t)(in->at[0] | in->at[1] << 8);
    in->at += 2;
    return value;
}

static uint32_t get32(struct reader *in)
{
    uint32_t low = get16(in);
    return low | (uint32_t)get16(in) << 16;
}

/* ---- fields of a graph ---- */

struct field {
    const char *name;
    size_t offset;
    int32_t min, max;
};

#define FIELD(name, min, max)                               \
    {                                                       \
#name, offsetof(struct rondo_graph, name), min, max \
    }
static const struct field fields[] = {
    FIELD(id, 0, RONDO_NUM_GRAPHS - 1),
    FIELD(pattern, RONDO_PATTERN_BALANCED_TREE, RONDO_PATTERN_RING),
    FIELD(nchannels, 1, RONDO_TOPO_CHANNELS),
    FIELD(bw_intra, 0, RONDO_MACHINE_MAX_MBS),
    FIELD(bw_inter, 0, RONDO_MACHINE_MAX_MBS),
    FIELD(latency_inter, 0, INT32_MAX),
    FIELD(type_intra, 0, RONDO_NUM_PATH_TYPES - 1),
    FIELD(type_inter, 0, RONDO_NUM_PATH_TYPES - 1),
    FIELD(cross_nic, 0, 2),
    FIELD(same_channels, 0, 1),
    FIELD(nhops, 0, INT32_MAX),
    FIELD(min_sm, 0, 10000),
    FIELD(max_sm, 0, 10000),
    FIELD(cpus, 0, INT32_MAX),
    FIELD(family, -1, INT32_MAX),
    FIELD(cache, 0, INT32_MAX),
    FIELD(bound, 0, INT32_MAX),
    FIELD(bound_cut, 0, RONDO_CUT_CHANNELS),
    FIELD(bound_at, -1, RONDO_MACHINE_MAX_ITEMS * 2),
    FIELD(found, 0, INT32_MAX),
    FIELD(fallback, 0, 1),
};
#undef FIELD
enum { GRAPH_HEAD = 4 * (int)RONDO_COUNTOF(fields) + 2 };

static int32_t *field_of(const struct rondo_graph *graph, const struct field *field)
{
    return (int32_t *)(uintptr_t)((const char *)graph + field->offset);
}

/* ---- checks, for packing and unpacking ---- */

static rondo_status RONDO_PRINTF(1, 2) wrong(const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return rondo_fail(RONDO_INTERNAL_ERROR,
                      "a node's packed graphs are damaged: %s; all ranks must run the same librondo", text);
}

static rondo_status fields_check(const struct rondo_graph *graph, int id)
{
    for (size_t i = 0; i < RONDO_COUNTOF(fields); i++) {
        int32_t value = *field_of(graph, &fields[i]);
        if (value < fields[i].min || value > fields[i].max) {
            return wrong("%s of graph %d is %d, expected %d to %d", fields[i].name, id, value, fields[i].min,
                         fields[i].max);
        }
    }
    if (graph->id != id) {
        return wrong("found graph %d instead of graph %d", graph->id, id);
    }
    if ((id == RONDO_GRAPH_RING) != (graph->pattern == RONDO_PATTERN_RING)) {
        return wrong("pattern %d does not belong to graph %d", graph->pattern, id);
    }
    return RONDO_SUCCESS;
}

static rondo_status order_check(const int16_t *order, int ndevs, int id)
{
    uint64_t seen[RONDO_TOPO_MAX_LOCAL / 64] = { 0 };
    for (int i = 0; i < ndevs; i++) {
        int dev = order[i];
        if (dev < 0 || dev >= ndevs || (seen[dev / 64] >> (dev % 64) & 1) != 0) {
            return wrong("graph %d: device %d at place %d of an order, expected each of 0 to %d once", id,
                         dev, i, ndevs - 1);
        }
        seen[dev / 64] |= (uint64_t)1 << (dev % 64);
    }
    return RONDO_SUCCESS;
}

static rondo_status net_check(int net, int nnets, int channel, int id)
{
    return net >= -1 && net < nnets
               ? RONDO_SUCCESS
               : wrong("graph %d, channel %d: net %d does not exist, there are %d", id, channel, net, nnets);
}

static rondo_status sizes_check(int ndevs, int nnets)
{
    if (ndevs < 1 || ndevs > RONDO_TOPO_MAX_LOCAL) {
        return wrong("%d devices, expected 1 to %d", ndevs, RONDO_TOPO_MAX_LOCAL);
    }
    if (nnets < 0 || nnets > RONDO_MACHINE_MAX_NETS) {
        return wrong("%d nets, expected 0 to %d", nnets, RONDO_MACHINE_MAX_NETS);
    }
    return RONDO_SUCCESS;
}

static rondo_status graph_sound(const struct rondo_graph *graph, int id, int ndevs, int nnets)
{
    RONDO_TRY(fields_check(graph, id));
    if (graph->ndevs != ndevs || graph->order == NULL) {
        return wrong("graph %d has %d devices, expected %d", id, graph->order == NULL ? 0 : graph->ndevs,
                     ndevs);
    }
    for (int c = 0; c < graph->nchannels; c++) {
        RONDO_TRY(order_check(graph->order + (size_t)c * (size_t)ndevs, ndevs, id));
        RONDO_TRY(net_check(graph->net[2 * c], nnets, c, id));
        RONDO_TRY(net_check(graph->net[2 * c + 1], nnets, c, id));
    }
    return RONDO_SUCCESS;
}

/* Adds what the levels need to *bytes and sets *version. */
static rondo_status levels_check(const struct rondo_graph *ring, int ndevs, size_t *bytes, int *version)
{
    struct rondo_group_levels levels = ring->levels;
    if (levels.n == 0) {
        return RONDO_SUCCESS;
    }
    const char *fault = levels.n < 0 || levels.n > RONDO_NUM_LEVELS || ring->cut == NULL
                            ? "their number or cuts are invalid"
                            : NULL;
    if (fault == NULL) {
        rondo_levels_count(&levels, ring->cut, ndevs);
        fault = *version != VERSION && *version != VERSION_LEVELS
                    ? "the node has GPUs"
                    : rondo_levels_fault(&levels, ring->cut, ndevs);
    }
    *version = VERSION_LEVELS;
    *bytes += 1 + (size_t)levels.n + (size_t)ndevs;
    return fault == NULL ? RONDO_SUCCESS : wrong("the levels of %d ranks: %s", ndevs, fault);
}

/* Names go into messages and are compared with those of net devices: visible characters only. */
static rondo_status name_check(const char *name, size_t n, int net)
{
    if (n >= RONDO_NET_NAME) {
        return wrong("the name of net %d has %zu bytes, expected at most %d", net, n, RONDO_NET_NAME - 1);
    }
    for (size_t i = 0; i < n; i++) {
        if (name[i] <= ' ' || name[i] > '~') {
            return wrong("byte %zu of the name of net %d is %d, expected a visible character", i, net,
                         (unsigned char)name[i]);
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status gdr_check(uint64_t devices, int ndevs, int net)
{
    return ndevs >= 64 || devices >> ndevs == 0 ? RONDO_SUCCESS
                                                : wrong("net %d has GPUDirect with device %d of %d", net,
                                                        63 - __builtin_clzll(devices), ndevs);
}

/* The number of devices with an entry for the device they send through. */
static int relaying(int ndevs) { return ndevs < RONDO_NET_DEVS ? ndevs : RONDO_NET_DEVS; }

static rondo_status relays_check(const uint8_t *relay, int n, int ndevs, int net)
{
    for (int d = 0; d < n; d++) {
        if (relay[d] != 0 && (d >= ndevs || relay[d] > relaying(ndevs) || relay[d] - 1 == d)) {
            return wrong("device %d of %d sends to net %d through device %d", d, ndevs, net, relay[d] - 1);
        }
    }
    return RONDO_SUCCESS;
}

static int any_relay(const uint8_t *relay, int n)
{
    int any = 0;
    for (int d = 0; d < n; d++) {
        any |= relay[d];
    }
    return any != 0;
}

/* Bytes of a net in the tail. */
static size_t tail_bytes(int version, int ndevs)
{
    return version == VERSION_RELAYS ? NET_TAIL + (size_t)relaying(ndevs)
           : version == VERSION_GDR  ? NET_TAIL
                                     : 0;
}

static rondo_status nets_check(const struct rondo_graph_net *nets, int nnets, int ndevs, size_t *bytes,
                               int *version)
{
    uint64_t any = 0;
    int relays = 0;
    *bytes = NET_HEAD * (size_t)nnets;
    for (int i = 0; nets != NULL && i < nnets; i++) {
        size_t n = strnlen(nets[i].name, RONDO_NET_NAME);
        RONDO_TRY(name_check(nets[i].name, n, i));
        *bytes += n;
        for (int kind = 0; kind < RONDO_NUM_GDR; kind++) {
            RONDO_TRY(gdr_check(nets[i].gdr[kind], ndevs, i));
            any |= nets[i].gdr[kind];
        }
        RONDO_TRY(relays_check(nets[i].relay, RONDO_NET_DEVS, ndevs, i));
        relays |= any_relay(nets[i].relay, RONDO_NET_DEVS);
    }
    *version = relays ? VERSION_RELAYS : any != 0 ? VERSION_GDR : VERSION;
    *bytes += tail_bytes(*version, ndevs) * (size_t)nnets;
    return RONDO_SUCCESS;
}

/* ---- pack ---- */

static void net_put(uint8_t **at, const struct rondo_graph_net *net)
{
    size_t n = net == NULL ? 0 : strlen(net->name);
    put32(at, net == NULL || net->rail < 0 ? -1 : net->rail);
    *(*at)++ = (uint8_t)n;
    for (size_t i = 0; i < n; i++) {
        *(*at)++ = (uint8_t)net->name[i];
    }
}

static void nets_put(uint8_t **at, const struct rondo_graph_net *nets, int nnets)
{
    for (int i = 0; i < nnets; i++) {
        net_put(at, nets == NULL ? NULL : &nets[i]);
    }
}

static void gdr_put(uint8_t **at, const uint64_t gdr[RONDO_NUM_GDR])
{
    for (int kind = 0; kind < RONDO_NUM_GDR; kind++) {
        put32(at, (int32_t)(uint32_t)gdr[kind]);
        put32(at, (int32_t)(uint32_t)(gdr[kind] >> 32));
    }
}

static void tails_put(uint8_t **at, int version, const struct rondo_graph_net *nets, int nnets, int ndevs)
{
    for (int i = 0; tail_bytes(version, ndevs) > 0 && i < nnets; i++) {
        gdr_put(at, nets[i].gdr);
    }
    for (int i = 0; version == VERSION_RELAYS && i < nnets; i++, *at += relaying(ndevs)) {
        memcpy(*at, nets[i].relay, (size_t)relaying(ndevs));
    }
}

static void levels_put(uint8_t **at, const struct rondo_graph *ring)
{
    *(*at)++ = (uint8_t)ring->levels.n;
    memcpy(*at, ring->levels.kind, (size_t)ring->levels.n);
    memcpy(*at + ring->levels.n, ring->cut, (size_t)ring->ndevs);
    *at += ring->levels.n + ring->ndevs;
}

/* Number the distinct orders of the channels. @return how many there are. */
static int orders_number(const struct rondo_graph *graph, int number[RONDO_TOPO_CHANNELS],
                         int first[RONDO_TOPO_CHANNELS])
{
    size_t n = (size_t)graph->ndevs;
    int norders = 0;
    for (int c = 0; c < graph->nchannels; c++) {
        int k = 0;
        while (k < norders && memcmp(graph->order + (size_t)first[k] * n, graph->order + (size_t)c * n,
                                     n * sizeof(*graph->order)) != 0) {
            k++;
        }
        number[c] = k;
        if (k == norders) {
            first[norders++] = c;
        }
    }
    return norders;
}

static size_t graph_bytes(int nchannels, int norders, int ndevs)
{
    return GRAPH_HEAD + 2 * (size_t)norders * (size_t)ndevs + 6 * (size_t)nchannels;
}

static void graph_put(uint8_t **at, const struct rondo_graph *graph)
{
    int number[RONDO_TOPO_CHANNELS], first[RONDO_TOPO_CHANNELS],
        norders = orders_number(graph, number, first);
    for (size_t i = 0; i < RONDO_COUNTOF(fields); i++) {
        put32(at, *field_of(graph, &fields[i]));
    }
    put16(at, norders);
    for (int k = 0; k < norders; k++) {
        for (int i = 0; i < graph->ndevs; i++) {
            put16(at, graph->order[first[k] * graph->ndevs + i]);
        }
    }
    for (int c = 0; c < graph->nchannels; c++) {
        put16(at, number[c]);
        put16(at, graph->net[2 * c]);
        put16(at, graph->net[2 * c + 1]);
    }
}

rondo_status rondo_graphs_pack(const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int ndevs, int nnets,
                               const struct rondo_graph_net *nets, uint8_t **bytes, size_t *n)
{
    size_t total;
    int version;
    RONDO_TRY(sizes_check(ndevs, nnets));
    RONDO_TRY(nets_check(nets, nnets, ndevs, &total, &version));
    total += HEADER;
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        int number[RONDO_TOPO_CHANNELS], first[RONDO_TOPO_CHANNELS];
        RONDO_TRY(graph_sound(&graphs[id], id, ndevs, nnets));
        total += graph_bytes(graphs[id].nchannels, orders_number(&graphs[id], number, first), ndevs);
    }
    RONDO_TRY(levels_check(&graphs[RONDO_GRAPH_RING], ndevs, &total, &version));
    RONDO_TRY(rondo_calloc(bytes, total, 1, "the packed graphs of this node"));
    uint8_t *at = *bytes;
    put32(&at, MAGIC);
    put16(&at, version);
    put16(&at, RONDO_NUM_GRAPHS);
    put32(&at, (int32_t)total);
    put16(&at, ndevs);
    put16(&at, nnets);
    nets_put(&at, nets, nnets);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        graph_put(&at, &graphs[id]);
    }
    tails_put(&at, version, nets, nnets, ndevs);
    if (version == VERSION_LEVELS) {
        levels_put(&at, &graphs[RONDO_GRAPH_RING]);
    }
    *n = total;
    return RONDO_SUCCESS;
}

/* ---- unpack ---- */

static rondo_status nets_get(struct reader *in, int nnets)
{
    for (int i = 0; i < nnets; i++) {
        if (!has_bytes(in, NET_HEAD)) {
            return wrong("truncated in the list of %d nets", nnets);
        }
        int32_t rail = (int32_t)get32(in);
        size_t n = *in->at++;
        if (rail < -1) {
            return wrong("rail %d of net %d, expected -1 or more", rail, i);
        }
        if (!has_bytes(in, n)) {
            return wrong("truncated in the name of net %d", i);
        }
        RONDO_TRY(name_check((const char *)in->at, n, i));
        in->at += n;
    }
    return RONDO_SUCCESS;
}

static void gdr_get(struct reader *in, uint64_t gdr[RONDO_NUM_GDR])
{
    for (int kind = 0; kind < RONDO_NUM_GDR; kind++) {
        uint64_t low = get32(in);
        gdr[kind] = low | (uint64_t)get32(in) << 32;
    }
}

static rondo_status relays_get(struct reader *in, int nnets, int ndevs)
{
    size_t n = (size_t)relaying(ndevs);
    int any = 0;
    if (!has_bytes(in, n * (size_t)nnets)) {
        return wrong("truncated in the relays of %d nets", nnets);
    }
    for (int i = 0; i < nnets; i++, in->at += n) {
        RONDO_TRY(relays_check(in->at, (int)n, ndevs, i));
        any |= any_relay(in->at, (int)n);
    }
    return any ? RONDO_SUCCESS : wrong("version %d without a relay to any of %d nets", VERSION_RELAYS, nnets);
}

static rondo_status tails_get(struct reader *in, int nnets, int ndevs)
{
    uint64_t any = 0, gdr[RONDO_NUM_GDR];
    if (tail_bytes(in->version, ndevs) == 0) {
        return RONDO_SUCCESS;
    }
    for (int i = 0; i < nnets; i++) {
        if (!has_bytes(in, NET_TAIL)) {
            return wrong("truncated in the GPUDirect bits of %d nets", nnets);
        }
        gdr_get(in, gdr);
        for (int kind = 0; kind < RONDO_NUM_GDR; kind++) {
            RONDO_TRY(gdr_check(gdr[kind], ndevs, i));
            any |= gdr[kind];
        }
    }
    if (in->version == VERSION_RELAYS) {
        return relays_get(in, nnets, ndevs);
    }
    return any != 0 ? RONDO_SUCCESS
                    : wrong("version %d without GPUDirect to any of %d nets", VERSION_GDR, nnets);
}

static rondo_status header_get(struct reader *in, int *ndevs, int *nnets)
{
    size_t n = (size_t)(in->end - in->at);
    if (n < HEADER) {
        return wrong("%zu bytes, expected at least %d", n, HEADER);
    }
    uint32_t magic = get32(in);
    in->version = get16(in);
    int ngraphs = get16(in);
    uint32_t total = get32(in);
    *ndevs = get16(in);
    *nnets = get16(in);
    if (magic != MAGIC) {
        return wrong("magic 0x%08x, expected 0x%08x", magic, (unsigned)MAGIC);
    }
    if (in->version < VERSION || in->version > VERSION_RELAYS || ngraphs != RONDO_NUM_GRAPHS) {
        return wrong("version %d with %d graphs, expected version %d to %d with %d", in->version, ngraphs,
                     VERSION, VERSION_RELAYS, RONDO_NUM_GRAPHS);
    }
    if (total != n) {
        return wrong("%zu bytes, but the header says %u", n, total);
    }
    RONDO_TRY(sizes_check(*ndevs, *nnets));
    return nets_get(in, *nnets);
}

static rondo_status orders_get(struct reader *in, struct rondo_graph *graph, int norders, int16_t *orders)
{
    int n = graph->ndevs;
    for (int k = 0; k < norders; k++) {
        int16_t *order = orders + (size_t)k * (size_t)n;
        for (int i = 0; i < n; i++) {
            order[i] = (int16_t)get16(in);
        }
        RONDO_TRY(order_check(order, n, graph->id));
        for (int j = 0; j < k; j++) {
            if (memcmp(orders + (size_t)j * (size_t)n, order, (size_t)n * sizeof(*order)) == 0) {
                return wrong("orders %d and %d of graph %d are equal", j, k, graph->id);
            }
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status channels_get(struct reader *in, struct rondo_graph *graph, int norders, int nnets,
                                 const int16_t *orders)
{
    size_t n = (size_t)graph->ndevs;
    int next = 0;
    for (int c = 0; c < graph->nchannels; c++) {
        int k = get16(in);
        graph->net[2 * c] = (int16_t)get16(in);
        graph->net[2 * c + 1] = (int16_t)get16(in);
        if (k > next || k >= norders) {
            return wrong("channel %d of graph %d has order %d of %d, but only %d were used before", c,
                         graph->id, k, norders, next);
        }
        next += k == next;
        RONDO_TRY(net_check(graph->net[2 * c], nnets, c, graph->id));
        RONDO_TRY(net_check(graph->net[2 * c + 1], nnets, c, graph->id));
        memcpy(graph->order + (size_t)c * n, orders + (size_t)k * n, n * sizeof(*orders));
    }
    return next == norders ? RONDO_SUCCESS
                           : wrong("graph %d has %d orders but uses %d", graph->id, norders, next);
}

static rondo_status graph_get(struct reader *in, int id, int ndevs, int nnets, struct rondo_graph *graph)
{
    if (!has_bytes(in, GRAPH_HEAD)) {
        return wrong("truncated in graph %d", id);
    }
    for (size_t i = 0; i < RONDO_COUNTOF(fields); i++) {
        *field_of(graph, &fields[i]) = (int32_t)get32(in);
    }
    int norders = get16(in);
    RONDO_TRY(fields_check(graph, id));
    if (norders < 1 || norders > graph->nchannels) {
        return wrong("%d orders for the %d channels of graph %d", norders, graph->nchannels, id);
    }
    if (!has_bytes(in, graph_bytes(graph->nchannels, norders, ndevs) - GRAPH_HEAD)) {
        return wrong("truncated in the orders of graph %d", id);
    }
    int16_t *orders;
    graph->ndevs = ndevs;
    memset(graph->net, 0xff, sizeof graph->net);
    RONDO_TRY(RONDO_NEW_ARRAY(graph->order, graph->nchannels * ndevs, "the orders of a graph"));
    RONDO_TRY(RONDO_NEW_ARRAY(orders, norders * ndevs, "the orders of a graph"));
    rondo_status status = orders_get(in, graph, norders, orders);
    if (status == RONDO_SUCCESS) {
        status = channels_get(in, graph, norders, nnets, orders);
    }
    rondo_free(orders);
    return status;
}

static rondo_status levels_get(struct reader *in, struct rondo_graph *ring)
{
    struct rondo_group_levels *levels = &ring->levels;
    size_t ndevs = (size_t)ring->ndevs, ignored = 0;
    int version = in->version;
    levels->n = has_bytes(in, 1) ? *in->at++ : 0;
    if (levels->n < 1 || levels->n > RONDO_NUM_LEVELS || !has_bytes(in, (size_t)levels->n + ndevs)) {
        return wrong("truncated in %d levels, expected 1 to %d", levels->n, RONDO_NUM_LEVELS);
    }
    memcpy(levels->kind, in->at, (size_t)levels->n);
    in->at += levels->n;
    RONDO_TRY(RONDO_NEW_ARRAY(ring->cut, ndevs, "the levels of a node"));
    memcpy(ring->cut, in->at, ndevs);
    in->at += ndevs;
    rondo_levels_count(levels, ring->cut, ring->ndevs);
    return levels_check(ring, ring->ndevs, &ignored, &version);
}

rondo_status rondo_graphs_unpack(const uint8_t *bytes, size_t n, struct rondo_graph graphs[RONDO_NUM_GRAPHS])
{
    struct reader in = { bytes, bytes + n, 0 };
    int ndevs = 0, nnets = 0;
    rondo_status status;
    RONDO_TRY(header_get(&in, &ndevs, &nnets));
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        RONDO_TRY_GOTO(graph_get(&in, id, ndevs, nnets, &graphs[id]), fail);
    }
    RONDO_TRY_GOTO(in.version == VERSION_LEVELS ? levels_get(&in, &graphs[RONDO_GRAPH_RING])
                                                : tails_get(&in, nnets, ndevs),
                   fail);
    if (in.at != in.end) {
        status = wrong("%zu bytes follow the last graph", (size_t)(in.end - in.at));
        goto fail;
    }
    return RONDO_SUCCESS;
fail:
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        rondo_graph_release(&graphs[id]);
    }
    return status;
}

uint64_t rondo_graphs_hash(const uint8_t *bytes, size_t n) { return rondo_hash(bytes, n, 0); }

int rondo_graphs_nnets(const uint8_t *bytes)
{
    struct reader in = { .at = bytes + HEADER - 2 };
    return get16(&in);
}

void rondo_graphs_nets(const uint8_t *bytes, struct rondo_graph_net *nets)
{
    struct reader in = { .at = bytes + 4 };
    int nnets = rondo_graphs_nnets(bytes), version = get16(&in);
    in.at = bytes + 8;
    const uint8_t *end = bytes + get32(&in);
    int ndevs = get16(&in);
    size_t tail = tail_bytes(version, ndevs), relays = tail > NET_TAIL ? tail - NET_TAIL : 0;
    in.at = bytes + HEADER;
    for (int i = 0; i < nnets; i++) {
        nets[i].rail = (int32_t)get32(&in);
        size_t n = *in.at++;
        memset(nets[i].name, 0, sizeof nets[i].name);
        memcpy(nets[i].name, in.at, n);
        in.at += n;
        memset(nets[i].gdr, 0, sizeof nets[i].gdr);
        memset(nets[i].relay, 0, sizeof nets[i].relay);
        if (tail > 0) {
            gdr_get(&(struct reader){ .at = end - tail * (size_t)nnets + NET_TAIL * (size_t)i }, nets[i].gdr);
            memcpy(nets[i].relay, end - relays * (size_t)(nnets - i), relays);
        }
    }
}
