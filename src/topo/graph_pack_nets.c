/* What packed graphs say of nets: their names, and what devices make of them. Contract:
 * topo/graph_pack_impl.h, topo/stitch.h. */
#include <string.h>

#include "topo/graph_pack_impl.h"

enum { NET_HEAD = 5, NET_TAIL = 8 * RONDO_NUM_GDR };

/* ---- what must be, on both ends ---- */

/* It goes into messages and is compared with what a net device says: no blanks, nothing that is not shown. */
static rondo_status name_check(const char *name, size_t n, int net)
{
    if (n >= RONDO_NET_NAME) {
        return rondo_pack_wrong("the name of net %d has %zu bytes, expected at most %d", net, n,
                                RONDO_NET_NAME - 1);
    }
    for (size_t i = 0; i < n; i++) {
        if (name[i] <= ' ' || name[i] > '~') {
            return rondo_pack_wrong("byte %zu of the name of net %d is %d, expected a visible character", i,
                                    net, (unsigned char)name[i]);
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status gdr_check(uint64_t devices, int ndevs, int net)
{
    return ndevs >= 64 || devices >> ndevs == 0 ? RONDO_SUCCESS
                                                : rondo_pack_wrong("net %d says something of device %d of %d",
                                                                   net, 63 - __builtin_clzll(devices), ndevs);
}

/* Devices of which it is said through whom they send. */
static int relaying(int ndevs) { return ndevs < RONDO_NET_DEVS ? ndevs : RONDO_NET_DEVS; }

static rondo_status relays_check(const uint8_t *relay, int n, int ndevs, int net)
{
    for (int d = 0; d < n; d++) {
        if (relay[d] != 0 && (d >= ndevs || relay[d] > relaying(ndevs) || relay[d] - 1 == d)) {
            return rondo_pack_wrong("device %d of %d sends to net %d through device %d", d, ndevs, net,
                                    relay[d] - 1);
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

/* Bytes of what devices make of a net. */
static size_t tail_bytes(int version, int ndevs)
{
    return version == RONDO_PACK_VERSION_RELAYS ? NET_TAIL + (size_t)relaying(ndevs)
           : version == RONDO_PACK_VERSION_GDR  ? NET_TAIL
                                                : 0;
}

rondo_status rondo_pack_nets_check(const struct rondo_graph_net *nets, int nnets, int ndevs, size_t *bytes,
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
    *version = relays ? RONDO_PACK_VERSION_RELAYS : any != 0 ? RONDO_PACK_VERSION_GDR : RONDO_PACK_VERSION;
    *bytes += tail_bytes(*version, ndevs) * (size_t)nnets;
    return RONDO_SUCCESS;
}

/* ---- pack ---- */

static void net_put(uint8_t **at, const struct rondo_graph_net *net)
{
    size_t n = net == NULL ? 0 : strlen(net->name);
    rondo_pack_put32(at, net == NULL || net->rail < 0 ? -1 : net->rail);
    *(*at)++ = (uint8_t)n;
    for (size_t i = 0; i < n; i++) {
        *(*at)++ = (uint8_t)net->name[i];
    }
}

void rondo_pack_nets_put(uint8_t **at, const struct rondo_graph_net *nets, int nnets)
{
    for (int i = 0; i < nnets; i++) {
        net_put(at, nets == NULL ? NULL : &nets[i]);
    }
}

static void gdr_put(uint8_t **at, const uint64_t gdr[RONDO_NUM_GDR])
{
    for (int kind = 0; kind < RONDO_NUM_GDR; kind++) {
        rondo_pack_put32(at, (int32_t)(uint32_t)gdr[kind]);
        rondo_pack_put32(at, (int32_t)(uint32_t)(gdr[kind] >> 32));
    }
}

void rondo_pack_tails_put(uint8_t **at, int version, const struct rondo_graph_net *nets, int nnets, int ndevs)
{
    for (int i = 0; tail_bytes(version, ndevs) > 0 && i < nnets; i++) {
        gdr_put(at, nets[i].gdr);
    }
    for (int i = 0; version == RONDO_PACK_VERSION_RELAYS && i < nnets; i++, *at += relaying(ndevs)) {
        memcpy(*at, nets[i].relay, (size_t)relaying(ndevs));
    }
}

/* ---- unpack ---- */

rondo_status rondo_pack_nets_get(struct rondo_pack_reader *in, int nnets)
{
    for (int i = 0; i < nnets; i++) {
        if (!rondo_pack_has(in, NET_HEAD)) {
            return rondo_pack_wrong("they end within %d nets", nnets);
        }
        int32_t rail = (int32_t)rondo_pack_get32(in);
        size_t n = *in->at++;
        if (rail < -1) {
            return rondo_pack_wrong("rail %d of net %d, expected -1 or more", rail, i);
        }
        if (!rondo_pack_has(in, n)) {
            return rondo_pack_wrong("they end within the name of net %d", i);
        }
        RONDO_TRY(name_check((const char *)in->at, n, i));
        in->at += n;
    }
    return RONDO_SUCCESS;
}

static void gdr_get(struct rondo_pack_reader *in, uint64_t gdr[RONDO_NUM_GDR])
{
    for (int kind = 0; kind < RONDO_NUM_GDR; kind++) {
        uint64_t low = rondo_pack_get32(in);
        gdr[kind] = low | (uint64_t)rondo_pack_get32(in) << 32;
    }
}

static rondo_status relays_get(struct rondo_pack_reader *in, int nnets, int ndevs)
{
    size_t n = (size_t)relaying(ndevs);
    int any = 0;
    if (!rondo_pack_has(in, n * (size_t)nnets)) {
        return rondo_pack_wrong("they end within the relays of %d nets", nnets);
    }
    for (int i = 0; i < nnets; i++, in->at += n) {
        RONDO_TRY(relays_check(in->at, (int)n, ndevs, i));
        any |= any_relay(in->at, (int)n);
    }
    return any ? RONDO_SUCCESS
               : rondo_pack_wrong("no device sends through another one to %d nets, and version %d says it",
                                  nnets, RONDO_PACK_VERSION_RELAYS);
}

rondo_status rondo_pack_tails_get(struct rondo_pack_reader *in, int nnets, int ndevs)
{
    uint64_t any = 0, gdr[RONDO_NUM_GDR];
    if (tail_bytes(in->version, ndevs) == 0) {
        return RONDO_SUCCESS;
    }
    for (int i = 0; i < nnets; i++) {
        if (!rondo_pack_has(in, NET_TAIL)) {
            return rondo_pack_wrong("they end within what devices make of %d nets", nnets);
        }
        gdr_get(in, gdr);
        for (int kind = 0; kind < RONDO_NUM_GDR; kind++) {
            RONDO_TRY(gdr_check(gdr[kind], ndevs, i));
            any |= gdr[kind];
        }
    }
    if (in->version == RONDO_PACK_VERSION_RELAYS) {
        return relays_get(in, nnets, ndevs);
    }
    return any != 0 ? RONDO_SUCCESS
                    : rondo_pack_wrong("devices make nothing of %d nets, and version %d says it", nnets,
                                       RONDO_PACK_VERSION_GDR);
}

int rondo_graphs_nnets(const uint8_t *bytes)
{
    struct rondo_pack_reader in = { .at = bytes + RONDO_PACK_HEADER - 2 };
    return rondo_pack_get16(&in);
}

void rondo_graphs_nets(const uint8_t *bytes, struct rondo_graph_net *nets)
{
    struct rondo_pack_reader in = { .at = bytes + 4 };
    int nnets = rondo_graphs_nnets(bytes), version = rondo_pack_get16(&in);
    in.at = bytes + 8;
    const uint8_t *end = bytes + rondo_pack_get32(&in);
    int ndevs = rondo_pack_get16(&in);
    size_t tail = tail_bytes(version, ndevs), relays = tail > NET_TAIL ? tail - NET_TAIL : 0;
    in.at = bytes + RONDO_PACK_HEADER;
    for (int i = 0; i < nnets; i++) {
        nets[i].rail = (int32_t)rondo_pack_get32(&in);
        size_t n = *in.at++;
        memset(nets[i].name, 0, sizeof nets[i].name);
        memcpy(nets[i].name, in.at, n);
        in.at += n;
        memset(nets[i].gdr, 0, sizeof nets[i].gdr);
        memset(nets[i].relay, 0, sizeof nets[i].relay);
        if (tail > 0) {
            gdr_get(&(struct rondo_pack_reader){ .at = end - tail * (size_t)nnets + NET_TAIL * (size_t)i },
                    nets[i].gdr);
            memcpy(nets[i].relay, end - relays * (size_t)(nnets - i), relays);
        }
    }
}
