/* Rounds: the flows of records, and the end of rounds by failures. */
#include "net/bootstrap/rounds.h"

#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/mem.h"

rondo_status rondo_rounds_init(struct rondo_rounds *r, int rank, int n, const struct rondo_rounds_ops *ops,
                               void *arg)
{
    *r = (struct rondo_rounds){ .ops = ops, .arg = arg, .n = n, .place = rondo_subtree_of(rank, n) };
    r->part = RONDO_ROUNDS_PART;
    r->capacity = RONDO_SUBTREE_ARITY + 1;
    rondo_status status = RONDO_NEW_ARRAY(r->in, r->capacity, "a round's records");
    if (status == RONDO_SUCCESS) {
        status = RONDO_NEW_ARRAY(r->out, r->capacity, "a round's records");
    }
    if (status != RONDO_SUCCESS) {
        rondo_free(r->in);
    }
    return status;
}

void rondo_rounds_release(struct rondo_rounds *r)
{
    rondo_free(r->in);
    rondo_free(r->out);
    rondo_free(r->heard);
    rondo_free(r->late);
}

void rondo_rounds_reset(struct rondo_rounds *r, int rank, int n)
{
    rondo_free(r->heard);
    rondo_free(r->late);
    *r = (struct rondo_rounds){ .ops = r->ops,
                                .arg = r->arg,
                                .n = n,
                                .place = rondo_subtree_of(rank, n),
                                .part = r->part,
                                .in = r->in,
                                .out = r->out,
                                .capacity = r->capacity };
}

/* ---- flows ---- */

struct rondo_rounds_flow *rondo_rounds_open_flow(struct rondo_rounds_flow *flows, int n, int rank)
{
    for (int i = 0; i < n; i++) {
        if (flows[i].rank == rank && !flows[i].finished) {
            return &flows[i];
        }
    }
    return NULL;
}

static void add_flow(struct rondo_rounds_flow *flows, int *n, int rank, uint64_t where, uint64_t bytes)
{
    flows[(*n)++] = (struct rondo_rounds_flow){ .rank = rank, .where = where, .bytes = bytes };
}

static struct rondo_rounds_part next_part(const struct rondo_rounds *r, const struct rondo_rounds_flow *flow)
{
    return (struct rondo_rounds_part){ .round = r->round,
                                       .at = flow->done,
                                       .bytes = flow->bytes,
                                       .n = rondo_min_size(flow->bytes - flow->done, r->part),
                                       .where = flow->where + flow->done };
}

static void flow_advance(struct rondo_rounds_flow *flow, size_t n)
{
    flow->done += n;
    flow->finished = flow->done == flow->bytes; /* a piece without bytes is one empty part */
}

/* May this part be sent already? What follows waits for what comes from the parent. */
static int has_come(const struct rondo_rounds *r, const struct rondo_rounds_flow *flow, size_t n)
{
    return !flow->follows || r->in[0].finished || (n > 0 && flow->done + n <= r->in[0].done);
}

/* A rank has ended, and this round needs it. Its last words may still be under way, by other paths: if it has
 * left in order, they have a moment. @return RONDO_IN_PROGRESS: wait for them */
static rondo_status miss(struct rondo_rounds *r, int rank)
{
    RONDO_TRY(rondo_rounds_listen(r, r->looked_ns)); /* its own reason says more */
    if (r->ops->state(r->arg, rank) == RONDO_ROUNDS_LEFT) {
        r->left_ns = r->left_ns == 0 ? r->looked_ns : r->left_ns;
        if (r->looked_ns - r->left_ns < RONDO_ROUNDS_LAST) {
            return RONDO_IN_PROGRESS;
        }
    }
    return r->ops->lost(r->arg, rank);
}

static rondo_status flow_send(struct rondo_rounds *r, struct rondo_rounds_flow *flow)
{
    while (!flow->finished) {
        struct rondo_rounds_part part = next_part(r, flow);
        if (!has_come(r, flow, part.n)) {
            return RONDO_IN_PROGRESS;
        }
        rondo_status status = r->ops->send(r->arg, flow->rank, &part);
        if (status == RONDO_REMOTE_ERROR) {
            return miss(r, flow->rank);
        }
        RONDO_TRY(status);
        r->nparts++;
        flow_advance(flow, part.n);
    }
    return RONDO_SUCCESS;
}

static rondo_status flow_receive(struct rondo_rounds *r, struct rondo_rounds_flow *flow)
{
    while (!flow->finished) {
        struct rondo_rounds_part part = next_part(r, flow);
        RONDO_TRY(r->ops->receive(r->arg, flow->rank, &part));
        flow_advance(flow, part.n);
    }
    return RONDO_SUCCESS;
}

/* Move all flows. @return RONDO_SUCCESS: all are finished. */
static rondo_status flows_move(struct rondo_rounds *r)
{
    int open = 0;
    for (int i = 0; i < r->nin + r->nout; i++) {
        struct rondo_rounds_flow *flow = i < r->nin ? &r->in[i] : &r->out[i - r->nin];
        rondo_status status = i < r->nin ? flow_receive(r, flow) : flow_send(r, flow);
        if (status != RONDO_IN_PROGRESS) {
            RONDO_TRY(status);
        }
        open += !flow->finished;
    }
    return open ? RONDO_IN_PROGRESS : RONDO_SUCCESS;
}

/* ---- the rounds ---- */

static void round_start(struct rondo_rounds *r, int phase, size_t record, int64_t now)
{
    r->round++;
    r->phase = phase;
    r->reduces = 0;
    r->record = record;
    r->nin = r->nout = 0;
    r->left_ns = 0;
    if (now - r->looked_ns > RONDO_ROUNDS_LOOK) {
        r->looked_ns = now - RONDO_ROUNDS_LOOK; /* who is found to have left before the first look left now */
    }
    r->asks_ns = now + RONDO_ROUNDS_ASK_AFTER;
    rondo_free(r->late);
    r->late = NULL;
}

static uint64_t place_of(const struct rondo_rounds *r, int rank) { return (uint64_t)rank * r->record; }

void rondo_rounds_allgather(struct rondo_rounds *r, size_t record, int64_t now)
{
    round_start(r, RONDO_ROUNDS_GATHER, record, now);
    for (int i = 0; i < r->place.nchildren; i++) {
        int from = r->place.child[i], to = r->place.child[i + 1];
        add_flow(r->in, &r->nin, from, place_of(r, from), place_of(r, to) - place_of(r, from));
    }
}

void rondo_rounds_reduce(struct rondo_rounds *r, size_t record, int64_t now)
{
    round_start(r, RONDO_ROUNDS_GATHER, record, now);
    r->reduces = 1;
    for (int i = 0; i < r->place.nchildren; i++) {
        add_flow(r->in, &r->nin, r->place.child[i], place_of(r, i + 1), record);
    }
}

/* This rank has its subtree's records: they go up, and the table comes down. A parent sends what comes down
 * when it has all that went up, so that in a reduction both may have the same place. */
static void spread_start(struct rondo_rounds *r)
{
    int first = r->reduces ? 0 : r->place.rank, end = r->reduces ? 1 : r->place.end;
    int parent = r->place.parent;
    uint64_t bytes = place_of(r, r->reduces ? 1 : r->n);
    for (int i = 0; i < r->place.nchildren && r->reduces; i++) {
        r->ops->merge(r->arg, place_of(r, i + 1));
    }
    r->phase = RONDO_ROUNDS_SPREAD;
    r->nin = r->nout = 0;
    if (parent >= 0) {
        add_flow(r->in, &r->nin, parent, 0, bytes);
        add_flow(r->out, &r->nout, parent, place_of(r, first), place_of(r, end) - place_of(r, first));
    }
    for (int i = 0; i < r->place.nchildren; i++) {
        add_flow(r->out, &r->nout, r->place.child[i], 0, bytes);
        r->out[r->nout - 1].follows = parent >= 0;
    }
}

rondo_status rondo_rounds_exchange(struct rondo_rounds *r, int n, const int *peer, size_t record, int64_t now)
{
    if (n > r->capacity) {
        int in = r->capacity, out = r->capacity;
        RONDO_TRY(RONDO_ARRAY_RESERVE(r->in, 0, n, in, "a round's records"));
        RONDO_TRY(RONDO_ARRAY_RESERVE(r->out, 0, n, out, "a round's records"));
        r->capacity = in < out ? in : out;
    }
    round_start(r, RONDO_ROUNDS_EXCHANGE, record, now);
    for (int i = 0; i < n; i++) {
        add_flow(r->out, &r->nout, peer[i], place_of(r, i), record);
        add_flow(r->in, &r->nin, peer[i], place_of(r, i), record);
    }
    return RONDO_SUCCESS;
}

/* ---- failures ---- */

/* Is this rank, which has ended or left, still needed? It may have done its part first: its last message may
 * have come since the flows moved. */
static rondo_status check_rank(struct rondo_rounds *r, int rank)
{
    enum rondo_rounds_state state = rank < 0 ? RONDO_ROUNDS_ALIVE : r->ops->state(r->arg, rank);
    struct rondo_rounds_flow *flow = rondo_rounds_open_flow(r->in, r->nin, rank);
    rondo_status status = RONDO_SUCCESS;
    if (state == RONDO_ROUNDS_LOST) {
        status = RONDO_IN_PROGRESS;
    } else if (state == RONDO_ROUNDS_LEFT && flow) {
        status = flow_receive(r, flow);
    }
    if (status == RONDO_IN_PROGRESS) {
        status = miss(r, rank);
    }
    return status == RONDO_IN_PROGRESS ? RONDO_SUCCESS : status;
}

/* A death on another node shows only on a connection to it: ask ranks that have not sent their records. */
static void ask_the_silent(struct rondo_rounds *r, int64_t now)
{
    if (now < r->asks_ns) {
        return;
    }
    r->asks_ns = now + RONDO_ROUNDS_ASK;
    for (int i = 0; i < r->nin; i++) {
        if (!r->in[i].finished) {
            r->ops->ask(r->arg, r->in[i].rank);
        }
    }
}

/* Look for notes, and for deaths of neighbours and peers. Any death ends the round: that of another rank is
 * seen by its own neighbours. */
static rondo_status look(struct rondo_rounds *r, int64_t now)
{
    if (now - r->looked_ns < RONDO_ROUNDS_LOOK) {
        return RONDO_SUCCESS;
    }
    r->looked_ns = now;
    RONDO_TRY(rondo_rounds_listen(r, now));
    ask_the_silent(r, now);
    RONDO_TRY(check_rank(r, r->place.parent));
    for (int i = 0; i < r->place.nchildren; i++) {
        RONDO_TRY(check_rank(r, r->place.child[i]));
    }
    for (int i = 0; i < r->nin && r->phase == RONDO_ROUNDS_EXCHANGE; i++) {
        RONDO_TRY(check_rank(r, r->in[i].rank));
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_rounds_heard(const struct rondo_rounds *r)
{
    return rondo_fail_quiet(r->heard->value == RONDO_TIMEOUT ? RONDO_TIMEOUT : RONDO_REMOTE_ERROR, "%s",
                            r->heard->u.text);
}

rondo_status rondo_rounds_listen(struct rondo_rounds *r, int64_t now)
{
    struct rondo_rounds_note note;
    rondo_status status;
    while ((status = r->ops->hear(r->arg, &note)) == RONDO_SUCCESS) {
        if (note.kind == RONDO_ROUNDS_FAILED) {
            if (r->heard == NULL) {
                RONDO_TRY(RONDO_NEW(r->heard, "another rank's error"));
                *r->heard = note;
                r->heard->u.text[sizeof(note.u.text) - 1] = '\0';
            }
            return rondo_rounds_heard(r);
        }
        RONDO_TRY(rondo_rounds_on_note(r, &note, now));
    }
    return status == RONDO_IN_PROGRESS ? RONDO_SUCCESS : status;
}

/* Tell a rank, and in place of one that has ended its neighbours. */
static void tell(struct rondo_rounds *r, const struct rondo_rounds_note *note, int rank, int from, int *most)
{
    if (rank < 0 || rank == r->place.rank || (*most)-- <= 0) {
        return;
    }
    if (r->ops->state(r->arg, rank) != RONDO_ROUNDS_LOST) {
        if (r->heard == NULL || rank != r->heard->from) {
            r->nnotes++;
            r->ops->say(r->arg, rank, note); /* one whose inbox is full ends at its own deadline */
        }
        return;
    }
    struct rondo_subtree place = rondo_subtree_of(rank, r->n);
    if (place.parent != from) {
        tell(r, note, place.parent, rank, most);
    }
    for (int i = 0; i < place.nchildren; i++) {
        if (place.child[i] != from) {
            tell(r, note, place.child[i], rank, most);
        }
    }
}

void rondo_rounds_give_up(struct rondo_rounds *r, rondo_status status, const char *text)
{
    int most = 4 * RONDO_ROUNDS_NAMES;
    struct rondo_rounds_note note = { .kind = RONDO_ROUNDS_FAILED,
                                      .round = r->round,
                                      .value = r->heard ? r->heard->value : (uint32_t)status };
    if (r->told) {
        return;
    }
    r->told = 1;
    snprintf(note.u.text, sizeof(note.u.text), "%s", r->heard ? r->heard->u.text : text);
    tell(r, &note, r->place.parent, r->place.rank, &most);
    for (int i = 0; i < r->place.nchildren; i++) {
        tell(r, &note, r->place.child[i], r->place.rank, &most);
    }
    for (int i = 0; i < r->nin && r->phase == RONDO_ROUNDS_EXCHANGE; i++) {
        if (!r->in[i].finished) {
            tell(r, &note, r->in[i].rank, r->place.rank, &most);
        }
    }
}

/* ---- test ---- */

static rondo_status round_progress(struct rondo_rounds *r, int64_t now)
{
    rondo_status status = flows_move(r);
    if (status == RONDO_SUCCESS && r->phase == RONDO_ROUNDS_GATHER) {
        spread_start(r);
        status = flows_move(r);
    }
    if (status == RONDO_IN_PROGRESS) {
        RONDO_TRY(look(r, now));
    }
    return status;
}

rondo_status rondo_rounds_test(struct rondo_rounds *r, int64_t now)
{
    if (r->ended != RONDO_SUCCESS || r->phase == RONDO_ROUNDS_NONE) {
        return r->ended;
    }
    rondo_status status = round_progress(r, now);
    if (status == RONDO_SUCCESS) {
        r->phase = RONDO_ROUNDS_NONE;
    } else if (status != RONDO_IN_PROGRESS) {
        r->ended = status;
    }
    return status;
}

rondo_status rondo_rounds_lose(struct rondo_rounds *r, int rank)
{
    rondo_status status = rondo_rounds_listen(r, r->looked_ns); /* a reason that was given says more */
    r->ended = status == RONDO_SUCCESS ? r->ops->lost(r->arg, rank) : status;
    return r->ended;
}

int64_t rondo_rounds_wake(const struct rondo_rounds *r)
{
    if (r->late != NULL) {
        return rondo_rounds_late_wake(r);
    }
    if (r->phase == RONDO_ROUNDS_NONE || r->ended != RONDO_SUCCESS) {
        return INT64_MAX;
    }
    int64_t look_ns = r->looked_ns + RONDO_ROUNDS_LOOK;
    return r->asks_ns > look_ns ? r->asks_ns : look_ns;
}
