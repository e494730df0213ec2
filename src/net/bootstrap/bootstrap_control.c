/*
 * The bootstrap of a child over its parent's control plane: rounds.h, with control messages for its parts and
 * notes.
 *
 * When the parent ends, some members may be told in another call, and never come, or leave it. They are not
 * to blame: the parent's reason is (orphaned). Members may also have done their part already, and just need
 * this rank's steps, so they have a moment. A child may also be made of a parent that has ended (over_ended):
 * then only the losses of members count.
 */
#include "net/bootstrap/bootstrap.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "net/auth.h"
#include "net/bootstrap/bootstrap_node.h"
#include "net/bootstrap/rounds.h"
#include "net/control/control_impl.h"

struct fragment {
    uint32_t round, reserved;
    uint64_t offset, total;
    uint8_t data[RONDO_ROUNDS_PART];
};

_Static_assert(sizeof(struct fragment) == RONDO_MSG_BYTES &&
                   sizeof(struct rondo_rounds_note) <= RONDO_MSG_BYTES,
               "each fits a control message");

enum { MOST_LOOKS = 1024 }; /* members looked at each time */

struct control_bootstrap {
    struct rondo_bootstrap base;
    struct rondo_control *parent;
    int *members; /* rank of the child -> rank of the parent */
    uint64_t data_tag, note_tag, secret[2];
    struct rondo_rounds rounds;
    struct rondo_node_rounds node; /* the rounds whose records lie in the parent's segment */
    int over_ended;
    int64_t hopes_ns;    /* until then, silent members of other nodes may answer */
    int64_t looked_ns;   /* at the members */
    int64_t orphaned_ns; /* since when this round is known to be without a parent; 0: it is not */
    int next_look;
    const uint8_t *from; /* the round's memory: what is sent, and where records go */
    uint8_t *to;
    void (*merge)(void *into, const void *from); /* of a reduction */
};

static struct control_bootstrap *self_of(struct rondo_bootstrap *b) { return (struct control_bootstrap *)b; }

/* ---- what the rounds send and receive ---- */

/* What a part becomes, or must be. */
static struct fragment fragment_of(const struct rondo_rounds_part *part)
{
    return (struct fragment){ .round = part->round, .offset = part->at, .total = part->bytes };
}

static rondo_status send_part(void *arg, int member, const struct rondo_rounds_part *part)
{
    struct control_bootstrap *self = arg;
    struct fragment fragment = fragment_of(part);
    if (rondo_node_round_is(&self->node)) {
        return RONDO_SUCCESS; /* every rank reads all records itself */
    }
    if (part->n > 0) {
        memcpy(fragment.data, self->from + part->where, part->n);
    }
    return rondo_control_send(self->parent, self->members[member], self->data_tag, &fragment,
                              offsetof(struct fragment, data) + part->n);
}

static rondo_status receive_part(void *arg, int member, const struct rondo_rounds_part *part)
{
    struct control_bootstrap *self = arg;
    int rank = self->members[member];
    struct fragment fragment, wanted = fragment_of(part);
    size_t bytes;
    if (rondo_node_round_is(&self->node)) {
        return rondo_node_round_read(&self->node, self->parent, self->members, part->where, part->n,
                                     self->to);
    }
    RONDO_TRY(rondo_control_receive(self->parent, rank, self->data_tag, &fragment, sizeof(fragment), &bytes));
    if (bytes != offsetof(struct fragment, data) + part->n ||
        memcmp(&fragment, &wanted, offsetof(struct fragment, data)) != 0) {
        return rondo_fail(
            RONDO_INTERNAL_ERROR,
            "child of communicator %s: rank %d sent %zu bytes of a record of round %u that rank %d, in "
            "round %u, does not expect; do all members create the same children in the same order?",
            self->parent->name, rank, bytes, fragment.round, self->parent->rank, part->round);
    }
    if (part->n > 0) {
        memcpy(self->to + part->where, fragment.data, part->n);
    }
    return RONDO_SUCCESS;
}

static rondo_status say(void *arg, int member, const struct rondo_rounds_note *note)
{
    struct control_bootstrap *self = arg;
    struct rondo_rounds_note mine = *note;
    mine.from = self->base.rank;
    return rondo_control_send(self->parent, self->members[member], self->note_tag, &mine, sizeof(mine));
}

static rondo_status hear(void *arg, struct rondo_rounds_note *note)
{
    struct control_bootstrap *self = arg;
    size_t bytes;
    int rank;
    RONDO_TRY(rondo_control_progress(self->parent, NULL));
    do {
        RONDO_TRY(
            rondo_control_receive_any(self->parent, self->note_tag, &rank, note, sizeof(*note), &bytes));
    } while (bytes != sizeof(*note) || note->from < 0 || note->from >= self->base.nranks ||
             self->members[note->from] != rank);
    return RONDO_SUCCESS;
}

/* Does a member of another node count as silent? */
static int is_silent(const struct control_bootstrap *self, int member)
{
    int rank = self->members[member];
    return self->parent->local_of[rank] < 0 &&
           rondo_control_state_of(self->parent, rank) == RONDO_RANK_SILENT;
}

static enum rondo_rounds_state state_of(void *arg, int member)
{
    struct control_bootstrap *self = arg;
    int state = rondo_control_state_of(self->parent, self->members[member]);
    if (is_silent(self, member) && rondo_now_ns() < self->hopes_ns) {
        return RONDO_ROUNDS_ALIVE;
    }
    return state == RONDO_RANK_DEAD || state == RONDO_RANK_SILENT ? RONDO_ROUNDS_LOST
           : state == RONDO_RANK_LEFT                             ? RONDO_ROUNDS_LEFT
                                                                  : RONDO_ROUNDS_ALIVE;
}

static void ask(void *arg, int member)
{
    struct control_bootstrap *self = arg;
    int rank = self->members[member];
    if (self->parent->local_of[rank] < 0 && rondo_control_state_of(self->parent, rank) == RONDO_RANK_ALIVE) {
        rondo_wire_ask(self->parent, rank);
    }
}

/* @return the error by which the parent's end is the child's; RONDO_SUCCESS: it has not ended, or may
 * have. */
static rondo_status parents_end(struct control_bootstrap *self)
{
    char text[RONDO_ERROR_TEXT];
    int rank;
    if (self->over_ended || !rondo_control_aborted(self->parent)) {
        return RONDO_SUCCESS;
    }
    (void)rondo_control_reason(self->parent, text, &rank);
    return rondo_fail(RONDO_REMOTE_ERROR, "cannot create a child of communicator %s, which has ended: %s",
                      self->parent->name, text);
}

static rondo_status lost(void *arg, int member)
{
    static const char *const what[] = {
        [RONDO_RANK_ALIVE] = "cannot be reached",
        [RONDO_RANK_LEFT] = "destroyed the parent before the child was created",
        [RONDO_RANK_DEAD] = "has exited; leave it out of the child",
        [RONDO_RANK_SILENT] =
            "does not answer: it is stopped, or its host cut off; leave it out of the child",
        [RONDO_RANK_GONE] = "has exited, or destroyed the parent before the child was created",
    };
    struct control_bootstrap *self = arg;
    struct rondo_control *parent = self->parent;
    int rank = self->members[member], local = parent->local_of[rank];
    int state = rondo_control_state_of(parent, rank);
    if (state == RONDO_RANK_LEFT) {
        RONDO_TRY(parents_end(self));
        state = local < 0 ? (int)rondo_wire_state_of(parent, rank) : state; /* RONDO_RANK_GONE */
    }
    return rondo_fail(RONDO_REMOTE_ERROR,
                      "cannot create a child of communicator %s: its member rank %d (pid %d on host %.*s) %s",
                      parent->name, rank,
                      local >= 0 ? parent->blocks[local].life.pid : parent->peers[rank].pid,
                      RONDO_HOST_LEN - 1, parent->peers[rank].host, what[state]);
}

static void merge(void *arg, uint64_t where)
{
    struct control_bootstrap *self = arg;
    self->merge(self->to, self->to + where);
}

static const struct rondo_rounds_ops rounds_ops = {
    .send = send_part,
    .receive = receive_part,
    .say = say,
    .hear = hear,
    .state = state_of,
    .ask = ask,
    .lost = lost,
    .merge = merge,
};

/* ---- the rounds ---- */

static rondo_status control_open_start(struct rondo_bootstrap *b)
{
    (void)b; /* the parent's control plane exists */
    return RONDO_SUCCESS;
}

static rondo_status control_allgather_start(struct rondo_bootstrap *b, const void *mine, void *all,
                                            size_t bytes)
{
    struct control_bootstrap *self = self_of(b);
    if (bytes > 0) {
        memmove((uint8_t *)all + bytes * (size_t)b->rank, mine, bytes);
    }
    self->from = self->to = all;
    rondo_node_round_start(&self->node, mine, bytes);
    self->orphaned_ns = 0;
    rondo_rounds_allgather(&self->rounds, bytes, rondo_now_ns());
    return RONDO_SUCCESS;
}

static rondo_status control_reduce_start(struct rondo_bootstrap *b, void *record, size_t bytes,
                                         void (*merge_records)(void *into, const void *from))
{
    struct control_bootstrap *self = self_of(b);
    self->from = self->to = record;
    self->merge = merge_records;
    self->node.bytes = 0;
    self->orphaned_ns = 0;
    rondo_rounds_reduce(&self->rounds, bytes, rondo_now_ns());
    return RONDO_SUCCESS;
}

static rondo_status control_exchange_start(struct rondo_bootstrap *b, int n, const int *peer,
                                           const void *send, void *recv, size_t bytes)
{
    struct control_bootstrap *self = self_of(b);
    for (int i = 0; i < n; i++) {
        if (n >= b->nranks || peer[i] < 0 || peer[i] >= b->nranks || peer[i] == b->rank) {
            return rondo_fail(RONDO_INTERNAL_ERROR, "exchange of %d records: peer %d of rank %d of %d", n,
                              peer[i], b->rank, b->nranks);
        }
    }
    self->from = send;
    self->to = recv;
    self->node.bytes = 0;
    self->orphaned_ns = 0;
    return rondo_rounds_exchange(&self->rounds, n, peer, bytes, rondo_now_ns());
}

/*
 * The rounds look at their neighbours. But a dead member's neighbours may have been told of the death in
 * another call, so that they never begin this creation: look at all members whose death is known here, some
 * at a time.
 */
static rondo_status look_at_members(struct control_bootstrap *self, int64_t now)
{
    if (now - self->looked_ns < RONDO_ROUNDS_LOOK) {
        return RONDO_IN_PROGRESS;
    }
    self->looked_ns = now;
    for (int i = 0; i < MOST_LOOKS && i < self->base.nranks; i++) {
        int member = self->next_look;
        self->next_look = (member + 1) % self->base.nranks;
        if (state_of(self, member) == RONDO_ROUNDS_LOST) {
            return rondo_rounds_lose(&self->rounds, member);
        }
    }
    return RONDO_IN_PROGRESS;
}

/* @return RONDO_SUCCESS: the parent has not ended, or not for long enough. */
static rondo_status orphaned(struct control_bootstrap *self, int64_t now)
{
    if (self->over_ended || !rondo_control_aborted(self->parent)) {
        return RONDO_SUCCESS;
    }
    self->orphaned_ns = self->orphaned_ns == 0 ? now : self->orphaned_ns;
    return now - self->orphaned_ns < RONDO_BOOTSTRAP_ORPHAN_NS ? RONDO_SUCCESS : parents_end(self);
}

static rondo_status control_test(struct rondo_bootstrap *b)
{
    struct control_bootstrap *self = self_of(b);
    int64_t now = rondo_now_ns();
    rondo_node_round_write(&self->node, self->parent);
    rondo_status status = rondo_rounds_test(&self->rounds, now);
    if (status == RONDO_IN_PROGRESS) {
        RONDO_TRY(orphaned(self, now));
        status = look_at_members(self, now);
    }
    return status;
}

/* Between nodes the connections that ranks make meanwhile tell of deaths. */
static rondo_status control_look(struct rondo_bootstrap *b, int late)
{
    struct control_bootstrap *self = self_of(b);
    int64_t now = rondo_now_ns();
    rondo_status status;
    RONDO_TRY(orphaned(self, now));
    if (self->parent->wire != NULL || (!late && now - self->looked_ns < RONDO_ROUNDS_LOOK)) {
        return RONDO_SUCCESS;
    }
    self->looked_ns = now;
    status = rondo_rounds_listen(&self->rounds, now);
    for (int i = 0; status == RONDO_SUCCESS && i < b->nranks; i++) {
        if (i != b->rank && state_of(self, i) == RONDO_ROUNDS_LOST) {
            return lost(self, i);
        }
    }
    /* Another rank's deadline has passed: this one's comes soon, too. */
    return status == RONDO_TIMEOUT && self->rounds.heard == NULL ? RONDO_SUCCESS : status;
}

static rondo_status control_cause(struct rondo_bootstrap *b)
{
    struct control_bootstrap *self = self_of(b);
    rondo_control_tell_loss(self->parent);
    for (int i = 0; i < b->nranks; i++) {
        if (i != b->rank && state_of(self, i) == RONDO_ROUNDS_LOST) {
            return lost(self, i);
        }
    }
    return parents_end(self);
}

static rondo_status control_missing(struct rondo_bootstrap *b, int *ranks, int max, int *n)
{
    RONDO_TRY(parents_end(self_of(b)));
    return rondo_rounds_missing(&self_of(b)->rounds, rondo_now_ns(), ranks, max, n);
}

void rondo_bootstrap_control_sent(const struct rondo_bootstrap *b, uint64_t *parts, uint64_t *notes)
{
    const struct rondo_rounds *rounds = &((const struct control_bootstrap *)b)->rounds;
    *parts = rounds->nparts;
    *notes = rounds->nnotes;
}

static void control_close(struct rondo_bootstrap *b, int ok)
{
    struct control_bootstrap *self = self_of(b);
    char kept[RONDO_ERROR_TEXT];
    rondo_round_text text;
    if (!ok) {
        snprintf(kept, sizeof(kept), "%s", rondo_error_text());
        rondo_round_text_fill(text, b->rank);
        rondo_rounds_give_up(&self->rounds, b->ended,
                             text); /* whom it cannot tell would be this thread's error */
        if (b->ended != RONDO_SUCCESS) {
            rondo_fail_quiet(b->ended, "%s", kept);
        }
        if (self->node.serial != 0) {
            rondo_control_split_end(self->parent, self->node.serial);
        }
    }
    rondo_control_forget(self->parent, self->data_tag);
    rondo_control_forget(self->parent, self->note_tag);
    rondo_rounds_release(&self->rounds);
    rondo_free(self->members);
    rondo_free(self);
}

static const struct rondo_bootstrap_ops control_ops = {
    .name = "control",
    .open_start = control_open_start,
    .allgather_start = control_allgather_start,
    .reduce_start = control_reduce_start,
    .exchange_start = control_exchange_start,
    .test = control_test,
    .missing = control_missing,
    .look = control_look,
    .cause = control_cause,
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

/* A host that was cut off may be back. Nothing has been said to it since, so it is asked. */
static void ask_the_silent(struct control_bootstrap *self)
{
    self->hopes_ns = rondo_now_ns() + RONDO_ROUNDS_STEP;
    for (int i = 0; i < self->base.nranks; i++) {
        if (is_silent(self, i)) {
            rondo_wire_ask(self->parent, self->members[i]);
        }
    }
}

static void set_group(struct control_bootstrap *b, const int *members, int n, int self, uint64_t tag)
{
    struct rondo_control *parent = b->parent;
    memcpy(b->members, members, sizeof(int) * (size_t)n);
    b->base.rank = self;
    b->base.nranks = n;
    b->base.root_world_rank = members[0];
    /* Hashed, so that they differ from those of other children and of the parent's own messages. */
    b->data_tag = rondo_hash("child data", 10, rondo_hash(&tag, sizeof(tag), parent->head->comm_hash));
    b->note_tag = rondo_hash("child note", 10, b->data_tag);
    if (parent->wire != NULL) { /* a child of one node has no use for a secret */
        rondo_auth_derive(parent->peers[0].id.nonce, "rondo child", &tag, sizeof(tag), b->secret,
                          sizeof(b->secret));
        b->base.secret = b->secret;
    }
}

rondo_status rondo_bootstrap_control(struct rondo_control *parent, const int *members, int n, int self,
                                     uint64_t tag, int over_ended, struct rondo_bootstrap **b)
{
    struct control_bootstrap *made;
    rondo_status status;
    RONDO_TRY(check_members(parent, members, n, self));
    RONDO_TRY(RONDO_NEW(made, "bootstrap of a child"));
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(made->members, n, "bootstrap's members"), fail);
    RONDO_TRY_GOTO(rondo_rounds_init(&made->rounds, self, n, &rounds_ops, made), fail);
    made->base.ops = &control_ops;
    made->parent = parent;
    made->over_ended = over_ended;
    set_group(made, members, n, self, tag);
    if (over_ended) { /* else the silence has ended the parent, and the child with it */
        ask_the_silent(made);
    }
    *b = &made->base;
    return RONDO_SUCCESS;
fail:
    rondo_free(made->members);
    rondo_free(made);
    return status;
}

void rondo_bootstrap_control_divide(struct rondo_bootstrap *b, const int *members, int n, int self,
                                    uint64_t tag)
{
    struct control_bootstrap *made = self_of(b);
    rondo_control_forget(made->parent, made->data_tag);
    rondo_control_forget(made->parent, made->note_tag);
    rondo_rounds_reset(&made->rounds, self, n);
    made->node = (struct rondo_node_rounds){ 0 };
    made->next_look = 0;
    set_group(made, members, n, self, tag);
}

void rondo_bootstrap_control_node(struct rondo_bootstrap *b, uint64_t serial, int of_child)
{
    self_of(b)->node.serial = serial;
    self_of(b)->node.of_child = of_child;
}
