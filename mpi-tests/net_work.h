/*
 * What collectives ask of RDMA NICs, and the least they can ask: messages, bytes and work requests, summed
 * over all ranks, with NET/verbs between every pair of ranks, one channel, and one queue pair per connection.
 *
 * A call moves blocks over hops, each from one rank to another. A block travels in pieces of a slot's
 * payload: a whole slot with Simple, 120 of 128 bytes with LL128, half with LL. A piece is one message of a
 * 16-byte header and the lines that its payload needs. Each message costs:
 *
 *   sender     1 write
 *   receiver   1 receive, and 1 write of 64 bytes that returns the slot to the sender
 *
 * Hops and blocks for n ranks and S bytes (of one rank's block, if there are several):
 *
 *   all_reduce ring             2(n - 1) hops of n blocks of S / n, in whole cache lines; the last blocks may
 *                               be shorter or empty
 *   all_reduce tree             2(n - 1) hops of 1 block
 *   all_reduce doubling         p log2 p + 2(n - p) hops of 1 block, p: the largest power of two up to n
 *   broadcast, reduce           n - 1 hops of 1 block
 *   all_gather, reduce_scatter  n - 1 hops of n blocks
 *   all_to_all                  n(n - 1) hops of 1 block
 *   gather, scatter             n - 1 hops of 1 block
 *   sendrecv                    n hops of 1 block
 *
 * The last three always use Simple, in slots of RONDO_P2P_NET_CHUNKSIZE. Longer blocks of rings take several
 * loops (coll/chunk.h) whose last pieces are short; these additional messages are not counted here.
 */
#ifndef RONDO_TESTS_NET_WORK_H
#define RONDO_TESTS_NET_WORK_H

#include <string.h>

#include "base/param.h"
#include "comm/links.h"
#include "net/verbs/verbs.h"
#include "net/transport/transport_net.h"

enum { NET_WORK_HEADER = 16, NET_WORK_CREDIT = 64, NET_WORK_LINE = 64 };

/* Sums over all ranks. */
struct net_work {
    uint64_t messages, bytes, doorbells;                        /* senders */
    uint64_t receives, credits, credit_bytes, credit_doorbells; /* receivers */
};
enum { NET_WORK_WORDS = sizeof(struct net_work) / sizeof(uint64_t) };

struct net_work_row {
    const char *coll, *algo;
    const char *as;               /* the collective's name in RONDO_ALGO; "": it has only this algorithm */
    uint64_t (*hops)(uint64_t n); /* hops of each block */
    enum { NET_ONE, NET_EACH, NET_SPLIT } blocks;
    size_t most;       /* bytes up to which this row holds */
    int several_nodes; /* 1: not used inside a node */
};

static inline uint64_t net_hops_twice(uint64_t n) { return 2 * (n - 1); }
static inline uint64_t net_hops_once(uint64_t n) { return n - 1; }
static inline uint64_t net_hops_pairs(uint64_t n) { return n * (n - 1); }
static inline uint64_t net_hops_ring(uint64_t n) { return n > 1 ? n : 0; }
static inline uint64_t net_hops_doubling(uint64_t n)
{
    uint64_t bits = 63 - (uint64_t)__builtin_clzll(n), power = 1ull << bits;
    return power * bits + 2 * (n - power);
}

static const struct net_work_row net_work_rows[] = {
    { "all_reduce", "ring", "all_reduce", net_hops_twice, NET_SPLIT, 32 << 10, 0 },
    { "all_reduce", "tree", "all_reduce", net_hops_twice, NET_ONE, 64 << 10, 0 },
    { "all_reduce", "doubling", "all_reduce", net_hops_doubling, NET_ONE, 64 << 10, 1 },
    { "broadcast", "ring", "broadcast", net_hops_once, NET_ONE, 64 << 10, 0 },
    { "broadcast", "tree", "broadcast", net_hops_once, NET_ONE, 64 << 10, 0 },
    { "reduce", "ring", "reduce", net_hops_once, NET_ONE, 64 << 10, 0 },
    { "reduce", "tree", "reduce", net_hops_once, NET_ONE, 64 << 10, 0 },
    { "all_gather", "ring", "all_gather", net_hops_once, NET_EACH, 16 << 10, 0 },
    { "reduce_scatter", "ring", "reduce_scatter", net_hops_once, NET_EACH, 16 << 10, 0 },
    { "all_to_all", "p2p", "", net_hops_pairs, NET_ONE, 64 << 10, 1 },
    { "gather", "p2p", "", net_hops_once, NET_ONE, 64 << 10, 0 },
    { "scatter", "p2p", "", net_hops_once, NET_ONE, 64 << 10, 0 },
    { "sendrecv", "p2p", "", net_hops_ring, NET_ONE, 64 << 10, 0 },
};
enum { NET_WORK_ROWS = sizeof(net_work_rows) / sizeof(net_work_rows[0]) };

/* ---- needed ---- */

static inline void net_work_block(int proto, size_t slot_bytes, size_t bytes, uint64_t hops,
                                  struct net_work *w)
{
    static const struct {
        size_t line, payload; /* bytes */
    } protos[] = {
        [RONDO_PROTO_LL] = { 16, 8 }, [RONDO_PROTO_LL128] = { 128, 120 }, [RONDO_PROTO_SIMPLE] = { 1, 1 }
    };
    size_t slot = slot_bytes / protos[proto].line * protos[proto].payload;
    for (size_t piece; bytes > 0; bytes -= piece) {
        size_t lines;
        piece = bytes < slot ? bytes : slot;
        lines = (piece + protos[proto].payload - 1) / protos[proto].payload;
        w->messages += hops;
        w->bytes += hops * (NET_WORK_HEADER + lines * protos[proto].line);
    }
}

/* slot_bytes: bytes of a slot, by protocol. */
static inline struct net_work net_work_needed(const struct net_work_row *row, int proto,
                                              const uint32_t *slot_bytes, int nranks, size_t bytes)
{
    struct net_work w = { 0 };
    uint64_t n = (uint64_t)nranks, hops = row->hops(n);
    int is_p2p = row->as[0] == '\0', used = is_p2p ? RONDO_PROTO_SIMPLE : proto;
    size_t slot = slot_bytes[used], chunk = (size_t)rondo_params()->p2p_net_chunksize;
    size_t share = (bytes + n - 1) / n, left = bytes;
    slot = is_p2p && slot > chunk ? chunk : slot;
    share = (share + NET_WORK_LINE - 1) / NET_WORK_LINE * NET_WORK_LINE;
    switch (row->blocks) {
    case NET_ONE: net_work_block(used, slot, bytes, hops, &w); break;
    case NET_EACH: net_work_block(used, slot, bytes, n * hops, &w); break;
    default:
        for (; left > 0; left -= left < share ? left : share) {
            net_work_block(used, slot, left < share ? left : share, hops, &w);
        }
    }
    w.doorbells = w.receives = w.credits = w.credit_doorbells = w.messages;
    w.credit_bytes = w.messages * NET_WORK_CREDIT;
    return w;
}

/* ---- done ---- */

/* @return 0 if this link does not use verbs. */
static inline int net_work_of_link(const struct rondo_link *link, struct net_work *w)
{
    const struct rondo_net_end *end = link->state;
    const struct rondo_verbs_counts *counts;
    if (link->transport != &rondo_transport_net || end == NULL || end->device != &rondo_netdev_verbs) {
        return 0;
    }
    counts = rondo_verbs_counts(end->comm);
    if (link->is_send) {
        w->messages += counts->sends;
        w->bytes += counts->bytes;
        w->doorbells += counts->doorbells;
    }
    w->receives += counts->receives;
    if (!link->is_send) {
        w->credits += counts->sends;
        w->credit_bytes += counts->bytes;
        w->credit_doorbells += counts->doorbells;
    }
    return 1;
}

/* Add the work of this rank's connections so far. @return 0 if one of them does not use verbs. */
static inline int net_work_read(const rondo_comm *comm, struct net_work *w)
{
    const struct rondo_ctx *ctx = comm->ctx;
    int all = 1;
    for (int i = 0; i < ctx->wiring.nlinks; i++) {
        all &= net_work_of_link(&ctx->wiring.links[i], w);
    }
    for (int r = 0; ctx->wiring.p2p != NULL && r < ctx->job.nranks; r++) {
        for (int d = 0; ctx->wiring.p2p[r] != NULL && d < 2; d++) {
            if (ctx->wiring.p2p[r]->lazy[d] && r != ctx->job.rank) {
                all &= net_work_of_link(&ctx->wiring.p2p[r]->link[d], w);
            }
        }
    }
    return all;
}

static inline void net_work_text(const struct net_work *w, char *text, size_t size)
{
    snprintf(
        text, size,
        "%llu messages of %llu bytes by %llu calls, %llu receives, %llu credits of %llu bytes by %llu calls",
        (unsigned long long)w->messages, (unsigned long long)w->bytes, (unsigned long long)w->doorbells,
        (unsigned long long)w->receives, (unsigned long long)w->credits, (unsigned long long)w->credit_bytes,
        (unsigned long long)w->credit_doorbells);
}

#endif
