/* Stragglers: ranks that have made fewer collectives than this one. The report of a long wait names them. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "call/wait.h"

enum { MOST_NAMED = 4 };

/* A rank and its last collective; seq 0: none. */
struct straggler {
    int rank;
    struct rondo_call last;
};

/* The rank that is farthest behind comes first. */
struct stragglers {
    int n;
    int silent; /* a rank that was asked and did not answer in time, or RONDO_NO_PEER */
    struct straggler list[MOST_NAMED];
};

static void add(struct stragglers *who, const struct rondo_ctx *ctx, const struct straggler *b)
{
    int at;
    uint64_t seq = __atomic_load_n(&ctx->calls.seq, __ATOMIC_RELAXED);
    int full = who->n == MOST_NAMED && who->list[MOST_NAMED - 1].last.seq <= b->last.seq;
    if (b->rank == ctx->job.rank || b->last.seq >= seq || full) {
        return;
    }
    for (at = who->n < MOST_NAMED ? who->n++ : MOST_NAMED - 1;
         at > 0 && who->list[at - 1].last.seq > b->last.seq; at--) {
        who->list[at] = who->list[at - 1];
    }
    who->list[at] = *b;
}

/* Has this rank a connection to the node? */
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

/* Pick ranks of neighbour nodes to ask at once, the lowest first. */
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
 * Ranks answer soon or cannot be reached. Ranks that left or died are not asked; their last known call
 * counts. If it is not known, the rank may have left because the deadline of another rank has passed, and
 * that rank aborts the communicator, which ends this wait.
 */
static void ask_afar(struct rondo_ctx *ctx, struct stragglers *who)
{
    int ranks[RONDO_CONTROL_ASKED], n = ranks_to_ask(ctx, ranks), left = 0, moved;
    int64_t begin = rondo_now_ns(), end = begin + RONDO_ANSWER_NS;
    while ((n > 0 || (left && who->n == 0)) && !rondo_control_aborted(ctx->wiring.control) &&
           rondo_now_ns() < end) {
        for (int i = n - 1; i >= 0; i--) {
            struct straggler b = { .rank = ranks[i] };
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
    if (n > 0 && rondo_control_aborted(ctx->wiring.control)) {
        who->n = 0; /* the answers are not complete: the rank that aborted knows more */
    } else if (n > 0) {
        who->silent = ranks[0];
    }
}

static void find(struct rondo_ctx *ctx, struct stragglers *who)
{
    for (int i = 0; i < ctx->wiring.layout.nlocal; i++) {
        struct straggler b = { .rank = ctx->wiring.layout.local_ranks[i] };
        (void)rondo_control_last_call(ctx->wiring.control, b.rank, 0, &b.last);
        add(who, ctx, &b);
    }
    if (who->n == 0) {
        ask_afar(ctx, who);
    }
}

/* ---- what such a rank does instead ---- */

/* Does a rank of that process wait in a call of this other communicator that this rank has not made? */
static int waits_there(const struct rondo_ctx *other, uint64_t process, struct rondo_call *call)
{
    for (int i = 0; i < other->wiring.layout.nlocal; i++) {
        int r = other->wiring.layout.local_ranks[i];
        if (r != other->job.rank && other->wiring.peers[r].process_hash == process &&
            rondo_control_call_of(other->wiring.control, r, 0, call) && call->state == 1 &&
            call->seq > __atomic_load_n(&other->calls.seq, __ATOMIC_RELAXED)) {
            return 1;
        }
    }
    return 0;
}

struct elsewhere {
    const struct rondo_ctx *ctx;
    uint64_t process;
    char *text;
    size_t size;
};

/* One of this process's communicators; only those that this thread uses are known to be idle. */
static int look_elsewhere(void *arg, struct rondo_shell *shell)
{
    const struct elsewhere *e = arg;
    const struct rondo_ctx *other = __atomic_load_n(&((const rondo_comm *)shell)->ctx,
                                                    __ATOMIC_RELAXED); /* freed after the shell is buried */
    struct rondo_call call;
    char text[128];
    int found = other != NULL && other != e->ctx && pthread_equal(other->job.thread, e->ctx->job.thread) &&
                __atomic_load_n(&other->life.state, __ATOMIC_ACQUIRE) == RONDO_COMM_READY &&
                other->wiring.control != NULL && waits_there(other, e->process, &call);
    if (found) {
        rondo_call_text(&call, text, sizeof(text));
        snprintf(e->text, e->size,
                 ", and it waits for rank %d of communicator \"%s\" in %s: the two processes use their "
                 "communicators in different orders",
                 other->job.rank, other->job.name, text);
    }
    return found;
}

static void doing_text(struct rondo_ctx *ctx, int rank, char *text, size_t size)
{
    struct rondo_message message;
    struct elsewhere e = {
        .ctx = ctx, .process = ctx->wiring.peers[rank].process_hash, .text = text, .size = size
    };
    char what[96];
    text[0] = '\0';
    if (ctx->wiring.layout.node_of[rank] != ctx->wiring.layout.node) {
        return;
    }
    if (rondo_control_message_of(ctx->wiring.control, rank, &message)) {
        rondo_message_text(&message, what, sizeof(what));
        snprintf(text, size, ", and it waits in %s", what);
        return;
    }
    rondo_shells_visit(&rondo_comms, look_elsewhere, &e);
}

void rondo_stragglers_text(struct rondo_ctx *ctx, int *peer, char *text, size_t size)
{
    struct stragglers who = { .silent = RONDO_NO_PEER };
    size_t at = 0;
    text[0] = '\0';
    if (ctx->wiring.control != NULL) {
        find(ctx, &who);
    }
    if (who.n > 0) {
        *peer = who.list[0].rank;
    }
    for (int i = 0; i < who.n && at < size; i++) {
        const struct straggler *b = &who.list[i];
        char last[96] = "none so far", doing[200];
        if (b->last.seq > 0) {
            rondo_call_text(&b->last, last, sizeof(last));
        }
        doing_text(ctx, b->rank, doing, sizeof(doing));
        at += (size_t)snprintf(text + at, size - at,
                               "; rank %d on %s has not made this call, its last collective: %s%s%s", b->rank,
                               ctx->wiring.peers[b->rank].host, last,
                               b->last.seq == 0     ? ""
                               : b->last.state == 2 ? " (done)"
                                                    : " (under way)",
                               doing);
    }
    if (who.silent != RONDO_NO_PEER && at < size) {
        snprintf(text + at, size - at, "; rank %d on %s did not say what it does", who.silent,
                 ctx->wiring.peers[who.silent].host);
    }
}
