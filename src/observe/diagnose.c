/* The diagnosis: from what was seen to sentences, the worst first. Contract: observe.h. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "coll/algo.h"
#include "kern/exec.h"
#include "observe/observe.h"

enum { MOST_SHOWN = 8, SURE_CALLS = 32 };
static const uint64_t much_swap = 64 << 20;
static const int64_t late_ns = 100000;

#define RONDO_NAME_ROW_(ctx, NAME, name) #name,
static const char *const names[] = { RONDO_FINDING_TABLE(RONDO_NAME_ROW_, ) };
#undef RONDO_NAME_ROW_

const char *rondo_finding_name(enum rondo_finding_kind kind)
{
    return (unsigned)kind < RONDO_NUM_FINDINGS ? names[kind] : "?";
}

struct look {
    const struct rondo_seen *seen;
    const struct rondo_seen_comm *comm;
    int at; /* index of comm */
    int64_t slow_ns;
    struct rondo_diagnosis *out;
};

/* ---- ranks ---- */

static const struct rondo_seen_process *process_of(const struct look *l, const struct rondo_seen_rank *r)
{
    return &l->seen->processes[r->process];
}

static const struct rondo_seen_rank *rank_of(const struct rondo_seen_comm *comm, int rank)
{
    for (int i = 0; i < comm->n; i++) {
        if (comm->ranks[i].rank == rank) {
            return &comm->ranks[i];
        }
    }
    return NULL;
}

/* The collective that a rank is in; NULL: none. */
static const struct rondo_seen_call *open_call(const struct rondo_seen_rank *r)
{
    const struct rondo_seen_call *call = r->begun > r->done ? rondo_seen_call_of(r, r->begun) : NULL;
    return call != NULL && call->state == 1 ? call : NULL;
}

static int has_left(const struct rondo_seen_rank *r) { return r->life == 3; }
static int is_dead(const struct look *l, const struct rondo_seen_rank *r)
{
    return process_of(l, r)->state == 0 && !has_left(r);
}
static int is_stopped(const struct look *l, const struct rondo_seen_rank *r)
{
    char state = process_of(l, r)->state;
    return (state == 'T' || state == 't') && !has_left(r);
}

/* ---- sentences ---- */

struct sentence {
    char *text;
    size_t at, size;
};

static void say(struct sentence *s, const char *fmt, ...) RONDO_PRINTF(2, 3);
static void say(struct sentence *s, const char *fmt, ...)
{
    va_list args;
    int n;
    va_start(args, fmt);
    n = s->at < s->size ? vsnprintf(s->text + s->at, s->size - s->at, fmt, args) : 0;
    va_end(args);
    s->at += n > 0 ? (size_t)n : 0;
}

static int by_weight(const void *a, const void *b)
{
    const struct rondo_finding *x = a, *y = b;
    int by_kind = (x->kind > y->kind) - (x->kind < y->kind);
    int by_waiting = (x->waiting < y->waiting) - (x->waiting > y->waiting);
    /* A stopped rank that nobody waits for is no more than a remark. */
    int idle = (x->kind == RONDO_FINDING_STOPPED && x->waiting == 0) -
               (y->kind == RONDO_FINDING_STOPPED && y->waiting == 0);
    return idle != 0 ? idle : by_kind != 0 ? by_kind : by_waiting != 0 ? by_waiting : x->rank - y->rank;
}

/* Where a new finding goes: if there are too many, the least one makes room, or this one is dropped. */
static struct rondo_finding *place_for(struct rondo_diagnosis *out, const struct rondo_finding *made)
{
    struct rondo_finding *least = &out->finding[0];
    if (out->n < RONDO_MOST_FINDINGS) {
        return &out->finding[out->n++];
    }
    for (int i = 1; i < out->n; i++) {
        least = by_weight(&out->finding[i], least) > 0 ? &out->finding[i] : least;
    }
    return by_weight(made, least) < 0 ? least : &out->dropped;
}

/* Begin a finding and its sentence. */
static struct sentence begin(const struct look *l, enum rondo_finding_kind kind, int rank, int other,
                             int waiting, int64_t since_ns)
{
    struct rondo_finding made = {
        .kind = kind, .comm = l->at, .rank = rank, .other = other, .waiting = waiting, .since_ns = since_ns
    };
    struct rondo_finding *f = place_for(l->out, &made);
    *f = made;
    return (struct sentence){ f->text, 0, sizeof(f->text) };
}

static void say_rank(struct sentence *s, const struct look *l, const struct rondo_seen_rank *r)
{
    const struct rondo_seen_process *p = process_of(l, r);
    say(s, "rank %d (pid %d on %s)", r->rank, p->pid, p->host);
}

static void say_since(struct sentence *s, const struct look *l, int64_t since_ns)
{
    char text[16];
    if (since_ns > 0) {
        say(s, " since %s", rondo_seen_time_text(l->seen->now_ns - since_ns, text));
    }
}

static void say_call(struct sentence *s, const struct rondo_seen_call *call)
{
    char text[128];
    rondo_seen_call_text(call, text, sizeof(text));
    say(s, "%s", text);
}

/* "; 7 ranks wait for it since 31 s" */
static void say_waiting(struct sentence *s, const struct look *l, int waiting, int64_t since_ns)
{
    if (waiting > 0) {
        say(s, "; %d rank%s wait%s for it", waiting, waiting > 1 ? "s" : "", waiting > 1 ? "" : "s");
        say_since(s, l, since_ns);
    }
}

/* The communicator, where there is more than one. */
static void say_comm(struct sentence *s, const struct look *l)
{
    if (l->seen->ncomms > 1) {
        say(s, " of communicator \"%s\"", l->comm->name);
    }
}

/* The frame that tells what a process does: an MPI call if there is one, else the first outside libc. */
static int telling_frame(const char *stack, char *name, size_t size)
{
    static const char *const dull[] = { "__",    "clock_nanosleep", "nanosleep",   "usleep",  "sleep",
                                        "poll",  "epoll_",          "select",      "syscall", "read",
                                        "futex", "sched_yield",     "start_thread" };
    char first[128] = "";
    for (const char *at = stack; *at != '\0'; at += strcspn(at, "\n") + 1) {
        int n = (int)strcspn(at, "\n"), is_dull = n == 4 && strncmp(at, "main", 4) == 0;
        if (strncmp(at, "MPI_", 4) == 0 || strncmp(at, "PMPI_", 5) == 0) {
            snprintf(name, size, "%.*s", at[0] == 'P' ? n - 1 : n, at[0] == 'P' ? at + 1 : at);
            return 1;
        }
        for (size_t i = 0; i < RONDO_COUNTOF(dull); i++) {
            is_dull |= strncmp(at, dull[i], strlen(dull[i])) == 0;
        }
        if (first[0] == '\0' && !is_dull) {
            snprintf(first, sizeof(first), "%.*s", n, at);
        }
        if (at[n] == '\0') {
            break;
        }
    }
    snprintf(name, size, "%s", first);
    return first[0] != '\0';
}

/* What a process does that has not made a call: ", it is in MPI_Barrier", ", it sleeps in read". */
static void say_doing(struct sentence *s, const struct rondo_seen_process *p)
{
    char frame[128];
    if (telling_frame(p->stack, frame, sizeof(frame))) {
        say(s, "; it is in %s", frame);
    }
    if (p->state == 'R' || (p->sampled && p->percent >= 50)) {
        say(s, "; it runs");
        if (p->sampled && p->percent >= 5) {
            say(s, " and uses %d %% of a core", p->percent);
        }
    } else if (p->state == 'D') {
        say(s, "; the kernel waits for a device (state D%s%s)", p->wchan[0] ? ", " : "", p->wchan);
    } else if (p->syscall[0] != '\0' && strcmp(p->syscall, "running") != 0) {
        say(s, "; it sleeps in %s", p->syscall);
    } else if (p->wchan[0] != '\0') {
        say(s, "; it sleeps (%s)", p->wchan);
    }
}

/* ---- dead and stopped ranks ---- */

/* Ranks that wait in a call which `behind` has not finished. */
static int count_waiting(const struct look *l, const struct rondo_seen_rank *behind, int64_t *since_ns)
{
    int n = 0;
    for (int i = 0; i < l->comm->n; i++) {
        const struct rondo_seen_rank *r = &l->comm->ranks[i];
        const struct rondo_seen_call *call = open_call(r);
        int for_it = call != NULL && call->seq > behind->done;
        if (!for_it && r->message_open && r->message.root == behind->rank) {
            call = &r->message;
            for_it = 1;
        }
        if (r != behind && for_it && !is_dead(l, r)) {
            n++;
            if (call->begin_ns != 0 && (*since_ns == 0 || call->begin_ns < *since_ns)) {
                *since_ns = call->begin_ns;
            }
        }
    }
    return n;
}

/* "in all_reduce #17 (..)" or "after ..", or "before its first call" */
static void say_place(struct sentence *s, const struct rondo_seen_rank *r)
{
    const struct rondo_seen_call *call = open_call(r), *last = rondo_seen_call_of(r, r->begun);
    if (call != NULL) {
        say(s, " in ");
        say_call(s, call);
    } else if (r->message_open) {
        say(s, " in ");
        say_call(s, &r->message);
    } else if (last != NULL) {
        say(s, " after ");
        say_call(s, last);
    } else {
        say(s, " before its first collective");
    }
}

static void look_for_dead(const struct look *l)
{
    for (int i = 0; i < l->comm->n; i++) {
        const struct rondo_seen_rank *r = &l->comm->ranks[i];
        int64_t since = 0;
        int dead = is_dead(l, r), waiting = dead || is_stopped(l, r) ? count_waiting(l, r, &since) : 0;
        if (dead || is_stopped(l, r)) {
            struct sentence s = begin(l, dead ? RONDO_FINDING_DEAD : RONDO_FINDING_STOPPED, r->rank, -1,
                                      waiting, since);
            say_rank(&s, l, r);
            say_comm(&s, l);
            say(&s, "%s", dead ? " has died" : " is stopped by a signal");
            say_place(&s, r);
            say_waiting(&s, l, waiting, since);
            if (!dead) {
                say(&s, "; kill -CONT %d lets it go on", process_of(l, r)->pid);
            }
        }
    }
}

/* ---- calls that differ ---- */

static int differs_at(const struct look *l, uint64_t seq, const struct rondo_seen_call **a,
                      const struct rondo_seen_call **b, int *ra, int *rb)
{
    *a = NULL;
    for (int i = 0; i < l->comm->n; i++) {
        const struct rondo_seen_call *call = rondo_seen_call_of(&l->comm->ranks[i], seq);
        if (call == NULL) {
            continue;
        }
        if (*a == NULL) {
            *a = call;
            *ra = i;
        } else if (call->word != (*a)->word) {
            *b = call;
            *rb = i;
            return 1;
        }
    }
    return 0;
}

static int count_word(const struct look *l, uint64_t seq, uint32_t word)
{
    int n = 0;
    for (int i = 0; i < l->comm->n; i++) {
        const struct rondo_seen_call *call = rondo_seen_call_of(&l->comm->ranks[i], seq);
        n += call != NULL && call->word == word;
    }
    return n;
}

/* @return 1: found */
static int look_for_mismatch(const struct look *l)
{
    uint64_t newest = 0, oldest;
    for (int i = 0; i < l->comm->n; i++) {
        newest = l->comm->ranks[i].begun > newest ? l->comm->ranks[i].begun : newest;
    }
    oldest = newest > RONDO_RECORD_CALLS ? newest - RONDO_RECORD_CALLS + 1 : 1;
    for (uint64_t seq = oldest; seq <= newest; seq++) {
        const struct rondo_seen_call *a, *b;
        int ra = 0, rb = 0, na, nb;
        struct sentence s;
        char texts[2][128];
        if (!differs_at(l, seq, &a, &b, &ra, &rb)) {
            continue;
        }
        na = count_word(l, seq, a->word);
        nb = count_word(l, seq, b->word);
        if (na < nb) { /* the odd one first */
            const struct rondo_seen_call *call = a;
            int r = ra;
            a = b, b = call, ra = rb, rb = r, na = nb;
        }
        s = begin(l, RONDO_FINDING_MISMATCH, l->comm->ranks[rb].rank, l->comm->ranks[ra].rank, l->comm->n - 1,
                  a->begin_ns);
        rondo_seen_call_text(a, texts[0], sizeof(texts[0]));
        rondo_seen_call_text(b, texts[1], sizeof(texts[1]));
        say(&s, "calls differ: ");
        say_rank(&s, l, &l->comm->ranks[rb]);
        say_comm(&s, l);
        say(&s, " calls %s, %d other rank%s (%d the first) %s%s", texts[1], na, na > 1 ? "s" : "",
            l->comm->ranks[ra].rank, na > 1 ? "call " : "calls ", texts[0]);
        if (strcmp(texts[0], texts[1]) == 0) {
            say(&s, " with other counts, or after an earlier call that differed");
        }
        return 1;
    }
    return 0;
}

/* ---- ranks that have not made a call ---- */

/* Does a rank of this process wait in another communicator for a rank of the process `other`? */
static const struct rondo_seen_rank *waits_elsewhere(const struct look *l, int process, int other,
                                                     const struct rondo_seen_comm **where, int *cycle)
{
    for (int c = 0; c < l->seen->ncomms; c++) {
        const struct rondo_seen_comm *comm = &l->seen->comms[c];
        const struct rondo_seen_rank *mine = NULL, *theirs = NULL;
        for (int i = 0; i < comm->n && comm != l->comm; i++) {
            mine = comm->ranks[i].process == process ? &comm->ranks[i] : mine;
            theirs = comm->ranks[i].process == other ? &comm->ranks[i] : theirs;
        }
        if (mine != NULL && (open_call(mine) != NULL || mine->message_open)) {
            *where = comm;
            *cycle = theirs != NULL && open_call(mine) != NULL && theirs->begun < mine->begun;
            return mine;
        }
    }
    return NULL;
}

static void say_missing(const struct look *l, const struct rondo_seen_rank *r,
                        const struct rondo_seen_rank *first, const struct rondo_seen_call *call, int waiting,
                        int64_t since)
{
    const struct rondo_seen_comm *where = NULL;
    int cycle = 0;
    const struct rondo_seen_rank *elsewhere = waits_elsewhere(l, r->process, first->process, &where, &cycle);
    struct sentence s = begin(l, cycle ? RONDO_FINDING_ORDER : RONDO_FINDING_MISSING, r->rank, first->rank,
                              waiting, since);
    say_rank(&s, l, r);
    say(&s, " has not called ");
    say_call(&s, call);
    say_comm(&s, l);
    say_waiting(&s, l, waiting, since);
    if (r->message_open) {
        say(&s, "; it waits in ");
        say_call(&s, &r->message);
    } else if (elsewhere != NULL) {
        say(&s, "; it waits in ");
        say_call(&s, elsewhere->message_open ? &elsewhere->message : open_call(elsewhere));
        say(&s, " of communicator \"%s\"", where->name);
        if (cycle) {
            say(&s, ", which rank %d has not called: the ranks use their communicators in different orders",
                first->rank);
        }
    } else if (has_left(r)) {
        say(&s, "; it has destroyed the communicator");
    } else {
        say_doing(&s, process_of(l, r));
    }
}

/* Find the rank with the fewest calls that is in none, and those that wait for it. @return 1: found */
static int look_for_missing(const struct look *l)
{
    const struct rondo_seen_rank *behind = NULL, *first = NULL;
    int waiting = 0, found = 0;
    int64_t since = 0;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < l->comm->n; i++) {
        least = l->comm->ranks[i].begun < least ? l->comm->ranks[i].begun : least;
    }
    for (int i = 0; i < l->comm->n; i++) {
        const struct rondo_seen_rank *r = &l->comm->ranks[i];
        const struct rondo_seen_call *call = open_call(r);
        if (call != NULL && call->seq > least) {
            waiting++;
            first = first == NULL || call->seq < open_call(first)->seq ? r : first;
            since = since == 0 || (call->begin_ns != 0 && call->begin_ns < since) ? call->begin_ns : since;
        }
    }
    if (first == NULL || l->seen->now_ns - since < l->slow_ns) {
        return 0;
    }
    for (int i = 0; i < l->comm->n; i++) {
        const struct rondo_seen_rank *r = &l->comm->ranks[i];
        if (r->begun == least && open_call(r) == NULL && !is_dead(l, r) && !is_stopped(l, r)) {
            const struct rondo_seen_call *call = rondo_seen_call_of(first, least + 1);
            behind = r;
            found++;
            if (found <= MOST_SHOWN) {
                say_missing(l, behind, first, call != NULL ? call : open_call(first), waiting, since);
            }
        }
    }
    return found > 0;
}

/* ---- messages ---- */

static int meets(const struct rondo_seen_rank *r, const struct rondo_seen_rank *peer)
{
    return peer->message_open && peer->message.root == r->rank && peer->message.coll != r->message.coll;
}

static void look_for_messages(const struct look *l)
{
    for (int i = 0; i < l->comm->n; i++) {
        const struct rondo_seen_rank *r = &l->comm->ranks[i];
        const struct rondo_seen_rank *peer = r->message_open ? rank_of(l->comm, r->message.root) : NULL;
        struct sentence s;
        int is_send = r->message.coll == RONDO_COLL_SEND;
        if (!r->message_open || is_dead(l, r) || l->seen->now_ns - r->message.begin_ns < l->slow_ns ||
            (peer != NULL && (is_dead(l, peer) || is_stopped(l, peer) || (meets(r, peer) && peer < r)))) {
            continue;
        }
        s = begin(l, RONDO_FINDING_MESSAGE, r->message.root, r->rank, 1, r->message.begin_ns);
        say_rank(&s, l, r);
        say_comm(&s, l);
        say(&s, " waits in ");
        say_call(&s, &r->message);
        say_since(&s, l, r->message.begin_ns);
        if (peer == NULL) {
            say(&s, "; rank %d is on a host that was not seen", r->message.root);
        } else if (meets(r, peer)) {
            say(&s, "; rank %d waits in ", peer->rank);
            say_call(&s, &peer->message);
            if (peer->message.count != r->message.count || peer->message.dtype != r->message.dtype) {
                say(&s, ": the two differ");
            }
        } else {
            say(&s, "; rank %d has not %s it", peer->rank, is_send ? "received" : "sent");
            if (open_call(peer) != NULL || peer->message_open) {
                say(&s, "; it waits in ");
                say_call(&s, peer->message_open ? &peer->message : open_call(peer));
            } else {
                say_doing(&s, process_of(l, peer));
            }
        }
    }
}

/* ---- a call that all ranks are in ---- */

static const char *blocked_name(const struct rondo_blocked *b)
{
    static const char *const what[] = { "nothing of", "data from", "credit of", "the message of",
                                        "a connection with" };
    return b->what < RONDO_NUM_BLOCKED ? what[b->what] : "?";
}

static void say_lane(struct sentence *s, const struct look *l, const struct rondo_blocked *b)
{
    const struct rondo_seen_rank *peer = rank_of(l->comm, b->peer);
    const char *proto = rondo_proto_name((enum rondo_proto)b->proto);
    say(s, "%s rank %d", blocked_name(b), b->peer);
    if (peer != NULL) {
        say(s, " on %s", process_of(l, peer)->host);
    }
    if (b->what == RONDO_BLOCKED_DATA || b->what == RONDO_BLOCKED_CREDIT) {
        say(s, " (channel %u, %s%sstep %llu)", (unsigned)b->channel, proto != NULL ? proto : "",
            proto != NULL ? ", " : "", (unsigned long long)b->step);
    }
}

/* Follow who waits for whom to a rank that waits for nobody, or to a ring. */
static const struct rondo_seen_rank *end_of_chain(const struct look *l, const struct rondo_seen_rank *r)
{
    for (int steps = 0; steps <= l->comm->n; steps++) {
        const struct rondo_seen_rank *next = r->waits ? rank_of(l->comm, r->lane[0].peer) : NULL;
        if (next == NULL || next == r) {
            return r;
        }
        r = next;
    }
    return r;
}

static void look_for_stuck(const struct look *l)
{
    const struct rondo_seen_rank *oldest = NULL, *end;
    const struct rondo_seen_call *call;
    struct sentence s;
    int in = 0, peer, unseen;
    for (int i = 0; i < l->comm->n; i++) {
        const struct rondo_seen_rank *r = &l->comm->ranks[i];
        call = open_call(r);
        if (call != NULL) {
            in++;
            oldest = oldest == NULL || call->seq < open_call(oldest)->seq ||
                             (call->seq == open_call(oldest)->seq &&
                              call->begin_ns < open_call(oldest)->begin_ns)
                         ? r
                         : oldest;
        }
    }
    if (oldest == NULL || l->seen->now_ns - open_call(oldest)->begin_ns < l->slow_ns) {
        return;
    }
    call = open_call(oldest);
    end = end_of_chain(l, oldest);
    peer = end->waits ? end->lane[0].peer : -1;
    unseen = end->waits && rank_of(l->comm, peer) == NULL;
    s = begin(l, RONDO_FINDING_STUCK, unseen ? peer : end->rank, -1, in, call->begin_ns);
    say(&s, "%s%d ranks", l->comm->n == l->comm->nranks && in == l->comm->n ? "all " : "", in);
    say_comm(&s, l);
    say(&s, " are in ");
    say_call(&s, call);
    say_since(&s, l, call->begin_ns);
    say(&s, " and do not end it: ");
    if (end->waits) {
        say_rank(&s, l, end);
        say(&s, " waits for ");
        say_lane(&s, l, &end->lane[0]);
        say_since(&s, l, end->since_ns);
        if (unseen) {
            say(&s, ", on a host that was not seen");
        }
    } else {
        say_rank(&s, l, end);
        say(&s, " is in it");
        say_doing(&s, process_of(l, end));
    }
}

/* ---- slow ranks ---- */

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int bin_of(int64_t ns)
{
    int bin = 0;
    for (int64_t limit = 1000; bin < RONDO_LATE_BINS - 1 && ns >= limit; limit *= 10) {
        bin++;
    }
    return bin;
}

/* Can no rank end it before all have begun? With no elements each returns at once. */
static int waits_for_all(const struct rondo_seen_call *call)
{
    switch (call->coll) {
    case RONDO_COLL_BARRIER: return 1;
    case RONDO_COLL_ALL_REDUCE:
    case RONDO_COLL_ALL_GATHER:
    case RONDO_COLL_REDUCE_SCATTER:
    case RONDO_COLL_ALL_TO_ALL:
    case RONDO_COLL_ALL_GATHERV:
    case RONDO_COLL_REDUCE_SCATTERV:
    case RONDO_COLL_ALL_TO_ALLV: return call->count > 0;
    default: return 0;
    }
}

/* When a rank came to its call, up to a constant. Clocks of hosts differ; there, who comes last waits least:
 * all ends count as one moment. 0: it is not known. */
static int64_t arrival_of(const struct rondo_seen_comm *comm, const struct rondo_seen_call *call)
{
    if (call == NULL || call->begin_ns == 0) {
        return 0;
    }
    if (comm->nnodes <= 1) {
        return call->begin_ns;
    }
    return waits_for_all(call) && call->end_ns > call->begin_ns ? INT64_MAX - (call->end_ns - call->begin_ns)
                                                                : 0;
}

/* Find the first and the last rank to come to call `seq`. @return 0: not all have it */
static int arrivals_of(const struct rondo_seen_comm *comm, uint64_t seq, int64_t *first, int *last)
{
    int64_t latest = 0;
    *first = 0;
    for (int i = 0; i < comm->n; i++) {
        int64_t at = arrival_of(comm, rondo_seen_call_of(&comm->ranks[i], seq));
        if (at == 0) {
            return 0;
        }
        *first = *first == 0 || at < *first ? at : *first;
        if (at > latest) {
            latest = at;
            *last = i;
        }
    }
    return 1;
}

rondo_status rondo_lateness_of(const struct rondo_seen_comm *comm, struct rondo_lateness *late)
{
    int64_t *times, first;
    uint64_t newest = UINT64_MAX, seq;
    int n = 0, last = 0;
    memset(late, 0, sizeof(*late) * (size_t)comm->n);
    RONDO_TRY(RONDO_NEW_ARRAY(times, (size_t)comm->n * RONDO_RECORD_CALLS, "times of arrival"));
    for (int i = 0; i < comm->n; i++) {
        newest = comm->ranks[i].begun < newest ? comm->ranks[i].begun : newest;
    }
    seq = newest > RONDO_RECORD_CALLS ? newest - RONDO_RECORD_CALLS + 1 : 1;
    for (; comm->n > 1 && seq <= newest && n < RONDO_RECORD_CALLS; seq++) {
        if (!arrivals_of(comm, seq, &first, &last)) {
            continue;
        }
        for (int i = 0; i < comm->n; i++) {
            int64_t ns = arrival_of(comm, rondo_seen_call_of(&comm->ranks[i], seq)) - first;
            times[(size_t)i * RONDO_RECORD_CALLS + (size_t)n] = ns;
            late[i].bin[bin_of(ns)]++;
        }
        late[last].nlast++;
        n++;
    }
    for (int i = 0; i < comm->n && n > 0; i++) {
        int64_t *own = times + (size_t)i * RONDO_RECORD_CALLS;
        qsort(own, (size_t)n, sizeof(*own), by_time);
        late[i].median_ns = own[n / 2];
        late[i].ncalls = n;
    }
    rondo_free(times);
    return RONDO_SUCCESS;
}

static void look_for_late(const struct look *l)
{
    struct rondo_lateness *late;
    if (l->comm->n < 2 || RONDO_NEW_ARRAY(late, l->comm->n, "lateness") != RONDO_SUCCESS) {
        return;
    }
    if (rondo_lateness_of(l->comm, late) == RONDO_SUCCESS) {
        for (int i = 0; i < l->comm->n; i++) {
            char text[16];
            if (late[i].ncalls >= SURE_CALLS && late[i].nlast * 10 >= late[i].ncalls * 8 &&
                late[i].median_ns >= late_ns) {
                struct sentence s = begin(l, RONDO_FINDING_LATE, l->comm->ranks[i].rank, -1, 0, 0);
                say_rank(&s, l, &l->comm->ranks[i]);
                say_comm(&s, l);
                say(&s, " arrives last in %d of %d calls, by %s in the median", late[i].nlast, late[i].ncalls,
                    rondo_seen_time_text(late[i].median_ns, text));
            }
        }
    }
    rondo_free(late);
}

static void look_for_swapped(const struct look *l)
{
    for (int i = 0; i < l->comm->n; i++) {
        const struct rondo_seen_process *p = process_of(l, &l->comm->ranks[i]);
        if (p->swapped >= much_swap) {
            struct sentence s = begin(l, RONDO_FINDING_SWAPPED, l->comm->ranks[i].rank, -1, 0, 0);
            say_rank(&s, l, &l->comm->ranks[i]);
            say(&s, " has %.0f MiB of its memory on disk: its host is short of memory",
                (double)p->swapped / (1 << 20));
        }
    }
}

/* ---- all of it ---- */

static void look_at(const struct look *l)
{
    int differs;
    look_for_dead(l);
    differs = look_for_mismatch(l);
    if (l->comm->reason != RONDO_SUCCESS) {
        struct sentence s = begin(l, RONDO_FINDING_ENDED, l->comm->reason_rank, -1, 0, 0);
        say(&s, "communicator \"%s\" has ended: %s", l->comm->name,
            l->comm->reason_text[0] != '\0' ? l->comm->reason_text : "its reason was not written");
        return;
    }
    if (!differs && !look_for_missing(l)) {
        look_for_stuck(l);
    }
    look_for_messages(l);
    look_for_swapped(l);
    look_for_late(l);
}

static void say_nothing(const struct rondo_seen *seen, struct rondo_diagnosis *out)
{
    struct look l = { .seen = seen, .at = -1, .out = out };
    struct sentence s = begin(&l, RONDO_FINDING_NOTHING, -1, -1, 0, 0);
    int64_t newest = 0;
    int ranks = 0;
    char text[16];
    for (int c = 0; c < seen->ncomms; c++) {
        ranks += seen->comms[c].n;
        for (int i = 0; i < seen->comms[c].n; i++) {
            const struct rondo_seen_rank *r = &seen->comms[c].ranks[i];
            int64_t begin_ns = r->ncalls > 0 ? r->calls[r->ncalls - 1].begin_ns : 0;
            newest = begin_ns > newest ? begin_ns : newest;
        }
    }
    if (ranks == 0) {
        say(&s, "there is no rank of Rondo here");
        if (seen->nelsewhere > 0) {
            say(&s, "; %d processes have another host name: --any-host shows them", seen->nelsewhere);
        }
        return;
    }
    say(&s, "nobody waits: %d rank%s in %d communicator%s", ranks, ranks > 1 ? "s" : "", seen->ncomms,
        seen->ncomms > 1 ? "s" : "");
    if (newest > 0) {
        say(&s, ", the last call began %s ago", rondo_seen_time_text(seen->now_ns - newest, text));
    }
}

void rondo_diagnose(const struct rondo_seen *seen, int64_t slow_ns, struct rondo_diagnosis *diagnosis)
{
    memset(diagnosis, 0, sizeof(*diagnosis));
    for (int c = 0; c < seen->ncomms; c++) {
        struct look l = {
            .seen = seen, .comm = &seen->comms[c], .at = c, .slow_ns = slow_ns, .out = diagnosis
        };
        look_at(&l);
    }
    qsort(diagnosis->finding, (size_t)diagnosis->n, sizeof(diagnosis->finding[0]), by_weight);
    if (diagnosis->n == 0) {
        say_nothing(seen, diagnosis);
    }
}
