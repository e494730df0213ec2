/* Who has made fewer collectives than this rank: in a report of a wait, those whom all wait for. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "call/wait.h"

enum { MOST_NAMED = 4 };

/* A rank and the last collective it made; seq 0: none. */
struct behind {
    int rank;
    struct rondo_call last;
};

/* The farthest behind first. */
struct laggards {
    int n;
    struct behind behind[MOST_NAMED];
};

static void add(struct laggards *who, const struct rondo_ctx *ctx, const struct behind *b)
{
    int at;
    int full = who->n == MOST_NAMED && who->behind[MOST_NAMED - 1].last.seq <= b->last.seq;
    if (b->rank == ctx->job.rank || b->last.seq >= ctx->calls.seq || full) {
        return;
    }
    for (at = who->n < MOST_NAMED ? who->n++ : MOST_NAMED - 1;
         at > 0 && who->behind[at - 1].last.seq > b->last.seq; at--) {
        who->behind[at] = who->behind[at - 1];
    }
    who->behind[at] = *b;
}

/* A node that this rank has a connection to. */
static int is_next_node(const struct rondo_ctx *ctx, int node)
{
    for (int i = 0; i < ctx->wiring.nlinks; i++) {
        if (ctx->wiring.links[i].conn.proxied &&
            ctx->wiring.layout.node_of[ctx->wiring.links[i].peer] == node) {
            return node != ctx->wiring.layout.node;
        }
    }
    return 0;
}

/* Ranks of other nodes that can be asked at once: of the nodes next to this rank's, the lowest first. */
static int ranks_to_ask(const struct rondo_ctx *ctx, int ranks[RONDO_CONTROL_ASKED])
{
    int n = 0, node = -1, next = 0;
    for (int r = 0; ctx->wiring.net.proxied > 0 && r < ctx->job.nranks && n < RONDO_CONTROL_ASKED; r++) {
        if (ctx->wiring.layout.node_of[r] != node) {
            node = ctx->wiring.layout.node_of[r];
            next = is_next_node(ctx, node);
        }
        if (next) {
            ranks[n++] = r;
        }
    }
    return n;
}

/*
 * They answer soon, or are not to be reached. Who has left or died is not asked: what it made, if it is
 * known, counts; if not, it may have left because another rank's deadline has passed, who says so to this
 * rank as well: with that the question has its answer.
 */
static void ask_afar(struct rondo_ctx *ctx, struct laggards *who)
{
    int ranks[RONDO_CONTROL_ASKED], n = ranks_to_ask(ctx, ranks), left = 0, moved;
    int64_t begin = rondo_now_ns(), end = begin + RONDO_ANSWER_NS;
    while ((n > 0 || (left && who->n == 0)) && !rondo_control_aborted(ctx->wiring.control) &&
           rondo_now_ns() < end) {
        for (int i = n - 1; i >= 0; i--) {
            struct behind b = { .rank = ranks[i] };
            int known = rondo_control_last_call(ctx->wiring.control, b.rank, begin - RONDO_CONTROL_ASK_NS,
                                                &b.last);
            int is_here = rondo_control_state_of(ctx->wiring.control, b.rank) == RONDO_RANK_ALIVE;
            if (known > 0 || (known == 0 && is_here)) {
                add(who, ctx, &b);
            }
            left |= known <= 0 && !is_here;
            if (known >= 0 || !is_here) {
                ranks[i] = ranks[--n];
            }
        }
        (void)rondo_control_progress(ctx->wiring.control, &moved);
        sched_yield();
    }
}

static void find(struct rondo_ctx *ctx, struct laggards *who)
{
    for (int i = 0; i < ctx->wiring.layout.nlocal; i++) {
        struct behind b = { .rank = ctx->wiring.layout.local_ranks[i] };
        (void)rondo_control_last_call(ctx->wiring.control, b.rank, 0, &b.last);
        add(who, ctx, &b);
    }
    if (who->n == 0) {
        ask_afar(ctx, who);
    }
}

void rondo_stragglers_text(struct rondo_ctx *ctx, int *peer, char *text, size_t size)
{
    struct laggards who = { 0 };
    size_t at = 0;
    text[0] = '\0';
    if (ctx->wiring.control != NULL) {
        find(ctx, &who);
    }
    if (who.n > 0) {
        *peer = who.behind[0].rank;
    }
    for (int i = 0; i < who.n && at < size; i++) {
        const struct behind *b = &who.behind[i];
        char last[96] = "none so far";
        if (b->last.seq > 0) {
            rondo_call_text(&b->last, last, sizeof(last));
        }
        at += (size_t)snprintf(text + at, size - at,
                               "; rank %d on %s has not made this call, its last collective: %s%s", b->rank,
                               ctx->wiring.peers[b->rank].host, last,
                               b->last.seq == 0     ? ""
                               : b->last.state == 2 ? " (done)"
                                                    : " (under way)");
    }
}
