/* The conns of a communicator: this rank's ends of ring and tree edges, and of sends and receives on first
 * use. */
#include "comm/links.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "coll/algo.h"
#include "coll/doubling.h"
#include "comm/layout_fill.h"

/* A ring edge in and out, and one conn in each direction for each tree neighbour. */
enum { LINKS_A_CHANNEL = 2 + 2 * (1 + RONDO_TREE_FAN) };

int rondo_links_max(const struct rondo_layout *layout, int nchannels)
{
    return nchannels * LINKS_A_CHANNEL + 2 * rondo_doubling_dims(layout);
}

/* Ports of a channel that are linked at creation: all before PEER; the first channel adds those of recursive
 * doubling. */
static int ports_of(const struct rondo_layout *layout, int c)
{
    return RONDO_PORT_PEER + (c == 0 ? rondo_doubling_dims(layout) : 0);
}

static int port_at(int i) { return i < RONDO_PORT_PEER ? i : RONDO_PORT_DIM + i - RONDO_PORT_PEER; }

/* The peer at a port of this channel; -1: none. */
static int port_peer(const struct rondo_layout *layout, int c, int port, int is_send)
{
    const struct rondo_channel_layout *channel = &layout->channel[c];
    if (port >= RONDO_PORT_DIM) {
        return rondo_doubling_peer(layout->rank, layout->nranks, (uint32_t)(port - RONDO_PORT_DIM));
    }
    if (port == RONDO_PORT_RING) {
        return is_send ? channel->ring.next : channel->ring.prev;
    }
    if (port == RONDO_PORT_PARENT) {
        return channel->tree.parent;
    }
    return port - RONDO_PORT_CHILD < channel->tree.nchildren ? channel->tree.child[port - RONDO_PORT_CHILD]
                                                             : -1;
}

/* List the peers of receiving ends, then of sending ends. @return the number of receiving ends. */
static int list_peers(const struct rondo_layout *layout, int *peers, int *n)
{
    int nrecv = 0;
    *n = 0;
    for (int is_send = 0; is_send < 2; is_send++) {
        for (int c = 0; c < layout->nchannels; c++) {
            for (int i = 0; i < ports_of(layout, c); i++) {
                int peer = port_peer(layout, c, port_at(i), is_send);
                if (peer >= 0) {
                    peers[(*n)++] = peer;
                }
            }
        }
        nrecv = is_send ? nrecv : *n;
    }
    return nrecv;
}

/* Announce all conns first: GPU memory comes in few, large blocks. */
static rondo_status expect(struct rondo_ctx *ctx)
{
    int *peers, n, nrecv;
    rondo_status status;
    if (ctx->wiring.net.device == NULL) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(RONDO_NEW_ARRAY(peers, rondo_links_max(&ctx->wiring.layout, ctx->wiring.layout.nchannels),
                              "the list of peers"));
    nrecv = list_peers(&ctx->wiring.layout, peers, &n);
    status = rondo_net_expect(&ctx->wiring.net, peers, nrecv, n - nrecv, ctx->wiring.layout.protos);
    rondo_free(peers);
    return status;
}

rondo_status rondo_links_offer(struct rondo_ctx *ctx, struct rondo_connect *records)
{
    const struct rondo_layout *layout = &ctx->wiring.layout;
    int nchannels = layout->nchannels, most = rondo_links_max(layout, nchannels);
    RONDO_TRY(RONDO_NEW_ARRAY(ctx->wiring.links, most, "the connections"));
    RONDO_TRY(RONDO_NEW_ARRAY(ctx->wiring.ports, nchannels, "the ports"));
    RONDO_TRY(RONDO_NEW_ARRAY(ctx->wiring.wired, nchannels, "the ports"));
    RONDO_TRY(expect(ctx));
    memset(records, 0, sizeof(*records) * (size_t)most);
    for (int c = 0; c < nchannels; c++) {
        int nports = ports_of(layout, c);
        for (int i = 0; i < 2 * nports; i++) { /* receiving ends first */
            int port = port_at(i % nports), is_send = i >= nports;
            int peer = port_peer(layout, c, port, is_send);
            struct rondo_link *link = &ctx->wiring.links[ctx->wiring.nlinks];
            if (peer < 0) {
                continue;
            }
            RONDO_TRY(rondo_link_offer(&ctx->wiring.net, link, peer, c, is_send, layout->protos,
                                       rondo_layout_net(layout, c, port, is_send),
                                       &records[ctx->wiring.nlinks]));
            records[ctx->wiring.nlinks].port = (uint8_t)port;
            (is_send ? ctx->wiring.ports[c].send : ctx->wiring.ports[c].recv)[port] = &link->conn;
            ctx->wiring.nlinks++;
        }
    }
    return RONDO_SUCCESS;
}

/* ---- slots: at the first call that needs them ---- */

/* The ports [*begin, *end) that an algorithm with this seating uses. */
static void ports_in(enum rondo_seating seating, int *begin, int *end)
{
    *begin = *end = 0;
    if (seating == RONDO_SEATING_RING) {
        *begin = RONDO_PORT_RING;
        *end = RONDO_PORT_RING + 1;
    } else if (seating == RONDO_SEATING_TREE) {
        *begin = RONDO_PORT_PARENT;
        *end = RONDO_PORT_PEER;
    } else if (seating == RONDO_SEATING_DIMS) {
        *begin = RONDO_PORT_DIM;
        *end = RONDO_NUM_PORTS;
    }
}

/* Apply fn to the links of a channel that an algorithm uses, also after RONDO_IN_PROGRESS: a rank that waits
 * for its receiver must have told its sender. */
static rondo_status each_link(struct rondo_ctx *ctx, int channel, enum rondo_seating seating,
                              rondo_status (*fn)(struct rondo_net *net, struct rondo_link *link))
{
    struct rondo_ports *ports = &ctx->wiring.ports[channel];
    rondo_status pending = RONDO_SUCCESS;
    int begin, end;
    ports_in(seating, &begin, &end);
    for (int i = 2 * begin; i < 2 * end; i++) {
        struct rondo_conn *conn = i & 1 ? ports->send[i / 2] : ports->recv[i / 2];
        rondo_status status = conn == NULL ? RONDO_SUCCESS : fn(&ctx->wiring.net, rondo_link_of(conn));
        if (status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS) {
            return status;
        }
        pending = status == RONDO_IN_PROGRESS ? status : pending;
    }
    return pending;
}

static rondo_status is_wired(struct rondo_net *net, struct rondo_link *link)
{
    (void)net;
    return link->unwired ? RONDO_IN_PROGRESS : RONDO_SUCCESS;
}

static uint8_t bit_of(enum rondo_seating seating) { return (uint8_t)(1u << seating); }

/* Note that the conns of a seating have their slots, if they do. */
static rondo_status note_wired(struct rondo_ctx *ctx, int channel, enum rondo_seating seating,
                               rondo_status (*fn)(struct rondo_net *net, struct rondo_link *link))
{
    RONDO_TRY(each_link(ctx, channel, seating, fn));
    /* Pairs with the acquire in rondo_links_wired(). */
    __atomic_fetch_or(&ctx->wiring.wired[channel], bit_of(seating), __ATOMIC_RELEASE);
    return RONDO_SUCCESS;
}

/* Connecting has wired some links, or all. */
static void note_all_wired(struct rondo_ctx *ctx)
{
    for (int c = 0; c < ctx->wiring.layout.nchannels; c++) {
        for (int seating = 0; seating < RONDO_NUM_SEATINGS; seating++) {
            (void)note_wired(ctx, c, (enum rondo_seating)seating, is_wired);
        }
    }
}

/* Another thread may be getting the slots for a queued plan: so do not look at the links. */
int rondo_links_wired(const struct rondo_ctx *ctx, int channel, enum rondo_algo algo)
{
    int begin, end;
    if (ctx->wiring.net.limited) {
        ports_in(rondo_algo_seating(algo), &begin, &end);
        return begin == end;
    }
    return ctx->wiring.wired == NULL || (__atomic_load_n(&ctx->wiring.wired[channel], __ATOMIC_ACQUIRE) &
                                         bit_of(rondo_algo_seating(algo)));
}

rondo_status rondo_links_wire(struct rondo_ctx *ctx, int channel, enum rondo_algo algo)
{
    if (ctx->wiring.net.limited) {
        return each_link(ctx, channel, rondo_algo_seating(algo), rondo_link_use);
    }
    return rondo_links_wired(ctx, channel, algo)
               ? RONDO_SUCCESS
               : note_wired(ctx, channel, rondo_algo_seating(algo), rondo_link_wire);
}

static rondo_status rest(struct rondo_net *net, struct rondo_link *link)
{
    rondo_link_rest(net, link);
    return RONDO_SUCCESS;
}

void rondo_links_rest(struct rondo_ctx *ctx, int channel, enum rondo_algo algo)
{
    (void)each_link(ctx, channel, rondo_algo_seating(algo), rest);
}

/* ---- connecting ---- */

/* Are these two ends of one conn? Same channel, opposite directions, and parent to child or the same port. */
static int records_match(const struct rondo_connect *mine, const struct rondo_connect *theirs, int rank)
{
    int same = mine->port == RONDO_PORT_RING || mine->port >= RONDO_PORT_DIM;
    return theirs->transport != 0 && theirs->channel == mine->channel && theirs->peer == rank &&
           theirs->is_send != mine->is_send &&
           (same ? theirs->port == mine->port
                 : theirs->port > RONDO_PORT_RING && theirs->port < RONDO_PORT_PEER &&
                       (mine->port == RONDO_PORT_PARENT) != (theirs->port == RONDO_PORT_PARENT));
}

rondo_status rondo_links_connect(struct rondo_ctx *ctx,
                                 const struct rondo_connect *(*records_of)(void *arg, int peer), void *arg,
                                 int *pending)
{
    const struct rondo_connect *mine = records_of(arg, ctx->job.rank);
    int most = rondo_links_max(&ctx->wiring.layout, ctx->wiring.layout.nchannels);
    rondo_status status;
    *pending = -1;
    for (int i = 0; i < ctx->wiring.nlinks; i++) {
        const struct rondo_connect *theirs, *match = NULL;
        if (ctx->wiring.links[i].connected) {
            continue;
        }
        theirs = records_of(arg, ctx->wiring.links[i].peer);
        for (int k = 0; k < most && match == NULL; k++) {
            match = records_match(&mine[i], &theirs[k], ctx->job.rank) ? &theirs[k] : NULL;
        }
        if (match == NULL) {
            return rondo_fail(
                RONDO_INTERNAL_ERROR,
                "rank %d on %s: rank %d offered no end for channel %d: the ranks found different layouts",
                ctx->job.rank, rondo_log_host(), ctx->wiring.links[i].peer, ctx->wiring.links[i].channel);
        }
        status = rondo_link_connect(&ctx->wiring.net, &ctx->wiring.links[i], match);
        if (status == RONDO_IN_PROGRESS) {
            *pending = *pending < 0 ? ctx->wiring.links[i].peer : *pending;
        } else {
            RONDO_TRY(status);
        }
    }
    if (*pending >= 0) {
        return RONDO_IN_PROGRESS;
    }
    note_all_wired(ctx);
    return RONDO_SUCCESS;
}

void rondo_links_close(struct rondo_ctx *ctx)
{
    for (int i = 0; i < ctx->wiring.nlinks; i++) {
        rondo_link_close(&ctx->wiring.net, &ctx->wiring.links[i]);
    }
}

static int by_value(const void *x, const void *y)
{
    int a = *(const int *)x, b = *(const int *)y;
    return (a > b) - (a < b);
}

int rondo_links_peers(const struct rondo_ctx *ctx, int *peers)
{
    int n, kept = 0;
    (void)list_peers(&ctx->wiring.layout, peers, &n);
    qsort(peers, (size_t)n, sizeof(*peers), by_value);
    for (int i = 0; i < n; i++) {
        if (i == 0 || peers[i] != peers[kept - 1]) {
            peers[kept++] = peers[i];
        }
    }
    return kept;
}

uint32_t rondo_message_protos(const struct rondo_ctx *ctx)
{
    const struct rondo_schedule *schedule = rondo_schedule_first(RONDO_COLL_SEND, RONDO_MEDIUM_CONNS);
    uint32_t ll = ctx->running.allowed.protos[RONDO_COLL_SEND][schedule->algo] & 1u << RONDO_PROTO_LL;
    return rondo_params()->p2p_ll_threshold > 0 ? ll : 0;
}

enum rondo_proto rondo_message_proto(const struct rondo_link *link, size_t bytes)
{
    int small = bytes <= (size_t)rondo_params()->p2p_ll_threshold;
    return small && (link->protos >> RONDO_PROTO_LL & 1) ? RONDO_PROTO_LL : RONDO_PROTO_SIMPLE;
}

rondo_status rondo_p2p_get(struct rondo_ctx *ctx, int peer, int is_send, struct rondo_p2p **p2p_out)
{
    struct rondo_p2p *p2p;
    if (ctx->wiring.p2p == NULL) {
        RONDO_TRY(RONDO_NEW_ARRAY(ctx->wiring.p2p, ctx->job.nranks, "the list of send and recv peers"));
    }
    if (ctx->wiring.p2p[peer] == NULL) {
        RONDO_TRY(RONDO_NEW(ctx->wiring.p2p[peer], "a send and recv peer"));
    }
    p2p = ctx->wiring.p2p[peer];
    if (!p2p->lazy[is_send]) {
        RONDO_TRY(rondo_link_lazy(&ctx->wiring.net, &p2p->link[is_send], peer, is_send));
        p2p->lazy[is_send] = 1;
        (is_send ? p2p->ports[1].send : p2p->ports[0].recv)[RONDO_PORT_PEER] = &p2p->link[is_send].conn;
    }
    *p2p_out = p2p;
    return RONDO_SUCCESS;
}
