/*
 * The bootstrap of a child over its parent's control plane. A round is a set of flows. Each flow sends one
 * member a record (or the table of all records), or receives it, in fragments of one control message; every
 * test moves all flows. In an allgather, records go to member 0 and the table comes back.
 *
 * Members also send notes: "creation failed, because ..." (when they close after a failure), "who is
 * missing?" (to member 0), and "these are missing" (from member 0). The parent may already have been ended:
 * only the deaths of members count.
 */
#include "net/bootstrap/bootstrap.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "net/auth.h"
#include "net/control/control_impl.h"

#define LOOK_NS (10 * INT64_C(1000000)) /* between looks for deaths and notes */
/* How long to wait for member 0's answer; `missing` takes 1 s at most. */
#define ANSWER_NS (900 * INT64_C(1000000))
/* When to ask whether a member of another node is alive: this long without its record, then this often. */
#define ASK_AFTER_NS (200 * INT64_C(1000000))
#define ASK_NS (1000 * INT64_C(1000000))
#define TELL_NS (200 * INT64_C(1000000)) /* how long member 0 tries to tell everyone while inboxes are full */

enum { FRAGMENT_DATA = RONDO_MSG_BYTES - 24, NOTE_RANKS = (RONDO_MSG_BYTES - 16) / 4 };

struct fragment {
    uint32_t round, reserved;
    uint64_t offset, total;
    uint8_t data[FRAGMENT_DATA];
};

enum { NOTE_FAILED = 1, NOTE_WHO, NOTE_MISSING };

struct note {
    uint32_t kind, round;
    uint32_t nranks, reserved;
    union {
        rondo_round_text failed;
        int32_t ranks[NOTE_RANKS]; /* missing, ranks of the child */
    } u;
};

_Static_assert(sizeof(struct fragment) == RONDO_MSG_BYTES && sizeof(struct note) <= RONDO_MSG_BYTES,
               "each fits a control message");

/* One record, or table, on its way to or from a member. */
struct flow {
    int member, finished;
    uint8_t *data;
    size_t bytes, done;
};

struct control_bootstrap {
    struct rondo_bootstrap base;
    struct rondo_control *parent;
    int *members; /* rank of the child -> rank of the parent */
    uint64_t data_tag, note_tag, secret[2];
    uint32_t round;
    enum {
        ROUND_NONE,
        ROUND_GATHER,
        ROUND_SPREAD,
        ROUND_EXCHANGE
    } phase; /* an allgather gathers, then spreads */
    struct flow *out, *in;
    int nout, nin;
    int64_t looked_ns, asks_ns; /* asks_ns: when to ask silent members next */
    rondo_status ended;         /* what test returns from now on; RONDO_SUCCESS: nothing has failed */
    int told;                   /* the members know that creation has failed */
    int64_t asked_ns;           /* first call of missing in this round */
    int asked;                  /* member 0 has this rank's question */
    uint8_t *has_list;          /* on member 0: which members have the list of missing ranks */
    int *missing, nmissing;     /* nmissing < 0: not known */
};

static struct control_bootstrap *self_of(struct rondo_bootstrap *b) { return (struct control_bootstrap *)b; }

/* ---- notes ---- */

/* @return the status that ends creation; RONDO_SUCCESS: this note does not. */
static rondo_status read_note(struct control_bootstrap *self, int member, const struct note *note)
{
    if (note->kind == NOTE_FAILED) {
        self->told = 1;
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "%.*s", (int)sizeof(note->u.failed) - 1, note->u.failed);
    }
    if (note->kind == NOTE_WHO && self->base.rank == 0 && self->phase == ROUND_GATHER &&
        note->round == self->round) {
        return RONDO_TIMEOUT; /* the caller calls `missing`, which answers everyone */
    }
    if (note->kind == NOTE_MISSING && member == 0 && note->round == self->round &&
        note->nranks <= NOTE_RANKS && self->phase != ROUND_NONE) {
        self->nmissing = 0;
        for (uint32_t i = 0; i < note->nranks && self->nmissing < self->base.nranks; i++) {
            int rank = note->u.ranks[i];
            if (rank >= 0 && rank < self->base.nranks) { /* it comes from a peer, and indexes tables */
                self->missing[self->nmissing++] = rank;
            }
        }
        self->told = 1;
        return RONDO_TIMEOUT;
    }
    return RONDO_SUCCESS;
}

static rondo_status read_notes(struct control_bootstrap *self)
{
    struct note note;
    size_t bytes;
    for (int i = 0; i < self->base.nranks; i++) {
        while (i != self->base.rank) {
            rondo_status status = rondo_control_receive(self->parent, self->members[i], self->note_tag, &note,
                                                        sizeof(note), &bytes);
            if (status == RONDO_IN_PROGRESS) {
                break;
            }
            RONDO_TRY(status);
            if (bytes == sizeof(note)) {
                RONDO_TRY(read_note(self, i, &note));
            }
        }
    }
    return RONDO_SUCCESS;
}

/* ---- flows ---- */

/* A member has ended, so the round cannot. Prefer the reason that it gave itself. */
static rondo_status lost(struct control_bootstrap *self, int member)
{
    static const char *const what[] = {
        [RONDO_RANK_ALIVE] = "cannot be reached",
        [RONDO_RANK_LEFT] = "destroyed the parent before the child was created",
        [RONDO_RANK_DEAD] = "has exited; leave it out of the child",
        [RONDO_RANK_SILENT] =
            "does not answer: it is stopped, or its host cut off; leave it out of the child",
        [RONDO_RANK_GONE] = "has exited, or destroyed the parent before the child was created",
    };
    struct rondo_control *parent = self->parent;
    int rank = self->members[member], local = parent->local_of[rank];
    int state = local >= 0 ? rondo_control_state_of(parent, rank) : rondo_wire_state_of(parent, rank);
    RONDO_TRY(read_notes(self));
    return rondo_fail(RONDO_REMOTE_ERROR,
                      "cannot create a child of communicator %s: its member rank %d (pid %d on host %.*s) %s",
                      parent->name, rank,
                      local >= 0 ? parent->blocks[local].life.pid : parent->peers[rank].pid,
                      RONDO_HOST_LEN - 1, parent->peers[rank].host, what[state]);
}

static rondo_status flow_send(struct control_bootstrap *self, struct flow *flow)
{
    while (!flow->finished) {
        size_t bytes = rondo_min_size(flow->bytes - flow->done, FRAGMENT_DATA);
        struct fragment fragment = { .round = self->round, .offset = flow->done, .total = flow->bytes };
        rondo_status status;
        if (bytes > 0) {
            memcpy(fragment.data, flow->data + flow->done, bytes);
        }
        status = rondo_control_send(self->parent, self->members[flow->member], self->data_tag, &fragment,
                                    offsetof(struct fragment, data) + bytes);
        if (status == RONDO_REMOTE_ERROR) {
            return lost(self, flow->member);
        }
        RONDO_TRY(status);
        flow->done += bytes;
        flow->finished = flow->done == flow->bytes;
    }
    return RONDO_SUCCESS;
}

static rondo_status flow_receive(struct control_bootstrap *self, struct flow *flow)
{
    while (!flow->finished) {
        int rank = self->members[flow->member];
        struct fragment fragment;
        size_t bytes;
        RONDO_TRY(
            rondo_control_receive(self->parent, rank, self->data_tag, &fragment, sizeof(fragment), &bytes));
        if (bytes < offsetof(struct fragment, data) || fragment.round != self->round ||
            fragment.offset != flow->done || fragment.total != flow->bytes ||
            bytes - offsetof(struct fragment, data) !=
                rondo_min_size(flow->bytes - flow->done, FRAGMENT_DATA)) {
            return rondo_fail(
                RONDO_INTERNAL_ERROR,
                "child of communicator %s: rank %d sent %zu bytes of a record of round %u that rank %d, in "
                "round %u, does not expect; do all members create the same children in the same order?",
                self->parent->name, rank, bytes, fragment.round, self->parent->rank, self->round);
        }
        bytes -= offsetof(struct fragment, data);
        if (bytes > 0) {
            memcpy(flow->data + flow->done, fragment.data, bytes);
        }
        flow->done += bytes;
        flow->finished = flow->done == flow->bytes;
    }
    return RONDO_SUCCESS;
}

/* Move all flows. @return RONDO_SUCCESS: all are finished. */
static rondo_status flows_move(struct control_bootstrap *self)
{
    int open = 0;
    for (int i = 0; i < self->nout; i++) {
        rondo_status status = flow_send(self, &self->out[i]);
        if (status != RONDO_IN_PROGRESS) {
            RONDO_TRY(status);
        }
        open += !self->out[i].finished;
    }
    for (int i = 0; i < self->nin; i++) {
        rondo_status status = flow_receive(self, &self->in[i]);
        if (status != RONDO_IN_PROGRESS) {
            RONDO_TRY(status);
        }
        open += !self->in[i].finished;
    }
    return open ? RONDO_IN_PROGRESS : RONDO_SUCCESS;
}

static void add_flow(struct flow *flows, int *n, int member, void *data, size_t bytes)
{
    flows[(*n)++] = (struct flow){ .member = member, .data = data, .bytes = bytes };
}

/* Member 0 has all records: the table goes to everyone. */
static void spread_start(struct control_bootstrap *self)
{
    uint8_t *all = self->out[0].data; /* control_allgather_start put it there */
    size_t bytes = self->out[0].bytes;
    self->phase = ROUND_SPREAD;
    self->nin = self->nout = 0;
    for (int i = 1; i < self->base.nranks; i++) {
        add_flow(self->out, &self->nout, i, all, bytes);
    }
}

/* ---- the rounds ---- */

static rondo_status control_open_start(struct rondo_bootstrap *b)
{
    (void)b; /* the parent's control plane exists */
    return RONDO_SUCCESS;
}

static void round_start(struct control_bootstrap *self, int phase)
{
    self->round++;
    self->phase = phase;
    self->nin = self->nout = 0;
    self->asked_ns = 0;
    self->asks_ns = rondo_now_ns() + ASK_AFTER_NS;
    self->asked = 0;
    self->nmissing = -1;
    memset(self->has_list, 0, (size_t)self->base.nranks);
}

static rondo_status control_allgather_start(struct rondo_bootstrap *b, const void *mine, void *all,
                                            size_t bytes)
{
    struct control_bootstrap *self = self_of(b);
    size_t table = bytes * (size_t)b->nranks;
    round_start(self, ROUND_GATHER);
    if (bytes > 0) {
        memmove((uint8_t *)all + bytes * (size_t)b->rank, mine, bytes);
    }
    if (b->rank == 0) {
        self->out[0] = (struct flow){ .data = all, .bytes = table, .finished = 1 }; /* for spread_start */
        for (int i = 1; i < b->nranks; i++) {
            add_flow(self->in, &self->nin, i, (uint8_t *)all + bytes * (size_t)i, bytes);
        }
    } else {
        add_flow(self->out, &self->nout, 0, (uint8_t *)all + bytes * (size_t)b->rank, bytes);
        add_flow(self->in, &self->nin, 0, all, table);
    }
    return RONDO_SUCCESS;
}

static rondo_status control_exchange_start(struct rondo_bootstrap *b, int n, const int *peer,
                                           const void *send, void *recv, size_t bytes)
{
    struct control_bootstrap *self = self_of(b);
    round_start(self, ROUND_EXCHANGE);
    for (int i = 0; i < n; i++) {
        if (n >= b->nranks || peer[i] < 0 || peer[i] >= b->nranks || peer[i] == b->rank) {
            return rondo_fail(RONDO_INTERNAL_ERROR, "exchange of %d records: peer %d of rank %d of %d", n,
                              peer[i], b->rank, b->nranks);
        }
        add_flow(self->out, &self->nout, peer[i], (uint8_t *)(uintptr_t)send + bytes * (size_t)i, bytes);
        add_flow(self->in, &self->nin, peer[i], (uint8_t *)recv + bytes * (size_t)i, bytes);
    }
    return RONDO_SUCCESS;
}

/* @return the unfinished flow of this member; NULL: none. */
static struct flow *open_flow(struct flow *flows, int n, int member)
{
    for (int i = 0; i < n; i++) {
        if (flows[i].member == member && !flows[i].finished) {
            return &flows[i];
        }
    }
    return NULL;
}

/* A death on another node shows only on a connection to it: ask members that have not sent their record. */
static void ask_the_silent(struct control_bootstrap *self, int64_t now)
{
    if (now < self->asks_ns) {
        return;
    }
    self->asks_ns = now + ASK_NS;
    for (int i = 0; i < self->nin; i++) {
        int rank = self->members[self->in[i].member];
        if (!self->in[i].finished && self->parent->local_of[rank] < 0 &&
            rondo_control_state_of(self->parent, rank) == RONDO_RANK_ALIVE) {
            rondo_wire_ask(self->parent, rank);
        }
    }
}

/* Look for deaths and notes. Any member's death ends the round, also when this rank expects nothing from it:
 * some other member does. */
static rondo_status look(struct control_bootstrap *self)
{
    int64_t now = rondo_now_ns();
    if (now - self->looked_ns < LOOK_NS) {
        return RONDO_SUCCESS;
    }
    self->looked_ns = now;
    RONDO_TRY(rondo_control_progress(self->parent, NULL));
    RONDO_TRY(read_notes(self));
    ask_the_silent(self, now);
    for (int i = 0; i < self->base.nranks; i++) {
        int state = i == self->base.rank ? RONDO_RANK_ALIVE
                                         : rondo_control_state_of(self->parent, self->members[i]);
        if (state == RONDO_RANK_DEAD || state == RONDO_RANK_SILENT) {
            return lost(self, i);
        }
        /* A member that left may have done its part first: its last message may have come since the flows
         * moved. */
        if (state == RONDO_RANK_LEFT && open_flow(self->in, self->nin, i)) {
            rondo_status status = flow_receive(self, open_flow(self->in, self->nin, i));
            if (status != RONDO_SUCCESS) {
                return status == RONDO_IN_PROGRESS ? lost(self, i) : status;
            }
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status round_progress(struct control_bootstrap *self)
{
    rondo_status status = flows_move(self);
    if (status == RONDO_SUCCESS && self->phase == ROUND_GATHER && self->base.rank == 0 &&
        self->base.nranks > 1) {
        spread_start(self);
        status = flows_move(self);
    }
    if (status == RONDO_IN_PROGRESS) {
        RONDO_TRY(look(self));
    }
    return status;
}

static rondo_status control_test(struct rondo_bootstrap *b)
{
    struct control_bootstrap *self = self_of(b);
    rondo_status status;
    if (self->ended != RONDO_SUCCESS || self->phase == ROUND_NONE) {
        return self->ended;
    }
    status = round_progress(self);
    if (status == RONDO_SUCCESS) {
        self->phase = ROUND_NONE;
    } else if (status != RONDO_IN_PROGRESS) {
        self->ended = status;
    }
    return status;
}

/* ---- after a deadline ---- */

/* List the members from which this rank lacks a record, or which do not take the table from it; ascending. */
static void list_missing(struct control_bootstrap *self)
{
    self->nmissing = 0;
    for (int i = 0; i < self->base.nranks; i++) {
        if (open_flow(self->in, self->nin, i) ||
            (self->phase == ROUND_SPREAD && open_flow(self->out, self->nout, i))) {
            self->missing[self->nmissing++] = i;
        }
    }
}

/* Member 0 sends the list to all whose inboxes have room. @return 0: some do not have it yet. */
static int tell_missing(struct control_bootstrap *self)
{
    struct note note = { .kind = NOTE_MISSING, .round = self->round };
    int open = 0;
    for (int i = 0; i < self->nmissing && i < NOTE_RANKS; i++) {
        note.u.ranks[note.nranks++] = self->missing[i];
    }
    for (int i = 1; i < self->base.nranks; i++) {
        if (!self->has_list[i]) {
            self->has_list[i] = rondo_control_send(self->parent, self->members[i], self->note_tag, &note,
                                                   sizeof(note)) != RONDO_IN_PROGRESS;
            open |= !self->has_list[i];
        }
    }
    self->told = 1;
    return !open;
}

/* Ask member 0. @return RONDO_SUCCESS: the list is known, or the round has ended meanwhile. */
static rondo_status ask_missing(struct control_bootstrap *self, int64_t now)
{
    rondo_status status;
    if (!self->asked) {
        struct note note = { .kind = NOTE_WHO, .round = self->round };
        self->asked = rondo_control_send(self->parent, self->members[0], self->note_tag, &note,
                                         sizeof(note)) == RONDO_SUCCESS;
    }
    status = read_notes(self);
    if (self->nmissing >= 0) {
        return RONDO_SUCCESS;
    }
    if (status != RONDO_SUCCESS && status != RONDO_TIMEOUT) {
        self->nmissing = 0; /* a member has given up for another reason */
        return RONDO_SUCCESS;
    }
    status = flows_move(self);
    if (status != RONDO_IN_PROGRESS) {
        self->nmissing = 0;
        return RONDO_SUCCESS;
    }
    if (now - self->asked_ns < ANSWER_NS) {
        return RONDO_IN_PROGRESS;
    }
    /* Member 0 would answer from any test of this round, so it is the one that is missing. */
    self->missing[0] = 0;
    self->nmissing = 1;
    return RONDO_SUCCESS;
}

static rondo_status control_missing(struct rondo_bootstrap *b, int *ranks, int max, int *n)
{
    struct control_bootstrap *self = self_of(b);
    int64_t now = rondo_now_ns();
    self->ended = self->ended == RONDO_SUCCESS ? RONDO_TIMEOUT : self->ended;
    if (self->asked_ns == 0) {
        self->asked_ns = now;
    }
    if (self->nmissing < 0) {
        if (self->phase == ROUND_GATHER && b->rank > 0) {
            RONDO_TRY(ask_missing(self, now));
        } else {
            list_missing(self);
        }
    }
    if (self->phase != ROUND_EXCHANGE && b->rank == 0 && !tell_missing(self) &&
        now - self->asked_ns < TELL_NS) {
        return RONDO_IN_PROGRESS;
    }
    *n = 0;
    for (int i = 0; i < self->nmissing && *n < max; i++) {
        ranks[(*n)++] = self->missing[i];
    }
    return RONDO_SUCCESS;
}

static void control_close(struct rondo_bootstrap *b, int ok)
{
    struct control_bootstrap *self = self_of(b);
    if (!ok && !self->told) {
        struct note note = { .kind = NOTE_FAILED, .round = self->round };
        rondo_round_text_fill(note.u.failed, b->rank);
        for (int i = 0; i < b->nranks; i++) {
            if (i != b->rank) {
                rondo_control_send(self->parent, self->members[i], self->note_tag, &note,
                                   sizeof(note)); /* a rank whose inbox is full ends at its own deadline */
            }
        }
    }
    rondo_control_forget(self->parent, self->data_tag);
    rondo_control_forget(self->parent, self->note_tag);
    rondo_free(self->members);
    rondo_free(self->missing);
    rondo_free(self->has_list);
    rondo_free(self->out);
    rondo_free(self->in);
    rondo_free(self);
}

static const struct rondo_bootstrap_ops control_ops = {
    .name = "control",
    .open_start = control_open_start,
    .allgather_start = control_allgather_start,
    .exchange_start = control_exchange_start,
    .test = control_test,
    .missing = control_missing,
    .close = control_close,
};

static rondo_status check_members(struct rondo_control *parent, const int *members, int n, int self)
{
    if (n < 1 || self < 0 || self >= n || members[self] != parent->rank) {
        return rondo_fail(RONDO_INTERNAL_ERROR, "child of communicator %s: rank %d is not member %d of %d",
                          parent->name, parent->rank, self, n);
    }
    for (int i = 0; i < n; i++) {
        if (members[i] < 0 || members[i] >= parent->nranks ||
            (parent->local_of[members[i]] < 0 && !parent->wire)) {
            return rondo_fail(RONDO_INTERNAL_ERROR,
                              "child of communicator %s: member %d is rank %d, which cannot be reached",
                              parent->name, i, members[i]);
        }
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_bootstrap_control(struct rondo_control *parent, const int *members, int n, int self,
                                     uint64_t tag, struct rondo_bootstrap **b)
{
    struct control_bootstrap *made;
    rondo_status status;
    RONDO_TRY(check_members(parent, members, n, self));
    RONDO_TRY(RONDO_NEW(made, "bootstrap of a child"));
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(made->members, n, "bootstrap's members"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(made->missing, n, "bootstrap's missing ranks"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(made->has_list, n, "bootstrap's notes"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(made->out, n, "bootstrap's flows"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(made->in, n, "bootstrap's flows"), fail);
    memcpy(made->members, members, sizeof(int) * (size_t)n);
    made->base.ops = &control_ops;
    made->base.rank = self;
    made->base.nranks = n;
    made->base.root_world_rank = members[0];
    made->parent = parent;
    made->nmissing = -1;
    /* Hashed, so that they differ from those of other children and of the parent's own messages. */
    made->data_tag = rondo_hash("child data", 10, rondo_hash(&tag, sizeof(tag), parent->head->comm_hash));
    made->note_tag = rondo_hash("child note", 10, made->data_tag);
    rondo_auth_derive(parent->peers[0].id.nonce, "rondo child", &tag, sizeof(tag), made->secret,
                      sizeof(made->secret));
    made->base.secret = made->secret;
    *b = &made->base;
    return RONDO_SUCCESS;
fail:
    rondo_free(made->members);
    rondo_free(made->missing);
    rondo_free(made->has_list);
    rondo_free(made->out);
    rondo_free(made->in);
    rondo_free(made);
    return status;
}
