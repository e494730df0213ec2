/*
 * The bootstrap of ranks that meet at an address (meeting.h): first the table of addresses, then rounds.h
 * over TCP. Ranks that turn out to be threads of the creator's process go on in a hub instead.
 */
#include "net/bootstrap/meeting.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/wait.h"
#include "net/bootstrap/meeting_ranks.h"
#include "net/bootstrap/rounds.h"

enum { QUEUED = 64 << 10 /* bytes of a connection that wait to be written */ };
/* FLUSH_NS: how long the end of a creation waits for a peer to take what was sent to it. After a failure
 * less: the peer may be what failed. */
static const int64_t FLUSH_NS = 10000 * INT64_C(1000000), FLUSH_FAILED_NS = 1000 * INT64_C(1000000),
                     ASK_NS = 2000 * INT64_C(1000000);

struct meeting_bootstrap {
    struct rondo_bootstrap base;
    struct rondo_meet_ranks ranks;
    struct rondo_bootstrap *inner; /* of the hub, once it is known that all ranks are in this process */
    enum { MEETS_NOT, MEETS, HAS_MET } phase;
    int registered, is_local;       /* local: the creator is this process, and has yet to say that all came */
    int looks;                      /* it is this process, and has said so: the table comes */
    int asks;                       /* root is a connection for a question only */
    uint8_t addr[RONDO_ADDR_BYTES]; /* of the listener */
    struct rondo_meet_conn *root;   /* to the creator; NULL: none */
    int64_t moved_ns;               /* when it was last moved */
    int away;                       /* it was not moved for so long that the creator may have dropped it */
    struct rondo_rounds rounds;
    const uint8_t *from; /* the round's memory */
    uint8_t *to;
    int64_t asked_ns; /* the creator, who is missing */
    int missing[RONDO_MEETING_NAMES], nmissing;
    rondo_status refused; /* by the creator; its sentence is refusal */
    rondo_round_text refusal;
};

static struct meeting_bootstrap *self_of(struct rondo_bootstrap *b) { return (struct meeting_bootstrap *)b; }

/* ---- the creator ---- */

static rondo_status root_open(struct meeting_bootstrap *self)
{
    rondo_status status = rondo_meet_connect(&self->ranks.id, self->ranks.id.addr, self->base.rank,
                                             RONDO_MEET_ROOT, sizeof(int32_t) + sizeof(rondo_round_text),
                                             &self->root);
    self->moved_ns = rondo_now_ns();
    self->away = 0;
    return status == RONDO_SUCCESS ? status : rondo_fail_aloud(status);
}

static rondo_status root_register(struct meeting_bootstrap *self)
{
    struct rondo_meet_register mine = { .rank = self->base.rank, .nranks = self->base.nranks };
    memcpy(mine.addr, self->addr, sizeof(mine.addr));
    RONDO_TRY(root_open(self));
    return rondo_meet_send(self->root, RONDO_MEET_REGISTER, &mine, sizeof(mine), NULL, 0);
}

static void root_move(struct meeting_bootstrap *self)
{
    int64_t now = rondo_now_ns();
    self->away |= now - self->moved_ns > rondo_meet_silent_ns / 2;
    self->moved_ns = now;
    rondo_meet_move(self->root, 1, rondo_meet_ranks_judge, &self->ranks);
}

static void root_close(struct meeting_bootstrap *self)
{
    if (self->root != NULL) {
        rondo_meet_free(self->root);
        self->root = NULL;
    }
}

/* The creator has let this rank go, and cannot say who is missing: it has exited, or all have come. */
static rondo_status table_lost(const struct meeting_bootstrap *self, int all_came)
{
    const int parent = rondo_subtree_of(self->base.rank, self->base.nranks).parent;
    char own[RONDO_SOCKET_ADDR_TEXT], from[64];
    rondo_meet_text(own, self->addr);
    if (parent < 0) {
        snprintf(from, sizeof(from), "the process that made the unique id");
    } else {
        snprintf(from, sizeof(from), "rank %d", parent);
    }
    return rondo_fail(RONDO_TIMEOUT,
                      "rank %d on %s: %s the table of all addresses has not come: it comes from %s, which "
                      "has exited, waits for it too, or cannot reach this rank at %s; check "
                      "RONDO_SOCKET_IFNAME",
                      self->base.rank, rondo_log_host(),
                      all_came ? "all ranks have come, but"
                               : "the process that made the unique id does not answer, and",
                      from, own);
}

static rondo_status root_lost(struct meeting_bootstrap *self)
{
    char text[RONDO_SOCKET_ADDR_TEXT];
    int error = self->root->error;
    rondo_meet_text(text, self->ranks.id.addr);
    root_close(self);
    if (self->registered && self->asks) {
        return table_lost(self, error == 0 || error == EACCES);
    }
    if (self->registered && !self->asks) {
        return rondo_fail(RONDO_REMOTE_ERROR,
                          "rank %d on %s: the process that made the unique id (pid %d on %s, %s) has exited "
                          "before all ranks had come; it must live until they have",
                          self->base.rank, rondo_log_host(), self->ranks.id.pid, self->ranks.id.host, text);
    }
    errno = error;
    return error == EACCES || error == 0
               ? rondo_fail(RONDO_INVALID_USAGE,
                            "rank %d on %s: the process that made the unique id (pid %d on %s, %s) does not "
                            "know it any more: it was used already, or that process is another one by now; "
                            "make a new id for each communicator",
                            self->base.rank, rondo_log_host(), self->ranks.id.pid, self->ranks.id.host, text)
               : rondo_fail(RONDO_REMOTE_ERROR,
                            "rank %d on %s cannot reach the process that made the unique id (pid %d on %s, "
                            "%s): %m; it must live until all ranks have called, and RONDO_SOCKET_IFNAME "
                            "name an interface that all hosts reach",
                            self->base.rank, rondo_log_host(), self->ranks.id.pid, self->ranks.id.host, text);
}

static void take_refusal(struct meeting_bootstrap *self, const void *data, size_t bytes)
{
    int32_t code;
    if (bytes == sizeof(code) + sizeof(self->refusal)) {
        memcpy(&code, data, sizeof(code));
        memcpy(self->refusal, (const uint8_t *)data + sizeof(code), sizeof(self->refusal));
        self->refusal[sizeof(self->refusal) - 1] = '\0';
        self->refused = code > RONDO_SUCCESS && code < RONDO_NUM_STATUSES && code != RONDO_IN_PROGRESS
                            ? (rondo_status)code
                            : RONDO_INTERNAL_ERROR;
    }
}

static void take_missing(struct meeting_bootstrap *self, const void *data, size_t bytes)
{
    self->nmissing = (int)(bytes / sizeof(int32_t));
    self->nmissing = self->nmissing < RONDO_MEETING_NAMES ? self->nmissing : RONDO_MEETING_NAMES;
    for (int i = 0; i < self->nmissing; i++) {
        int32_t rank;
        memcpy(&rank, (const uint8_t *)data + (size_t)i * sizeof(rank), sizeof(rank));
        self->missing[i] = rank;
    }
}

/* The connection has ended. A rank that was busy elsewhere, in a creation that does not block, calls
 * again. */
static rondo_status root_ended(struct meeting_bootstrap *self)
{
    if (!self->away || self->registered || self->asks) {
        return root_lost(self);
    }
    root_close(self);
    RONDO_TRY(root_register(self));
    return RONDO_IN_PROGRESS;
}

/* Read what the creator says. The connection of a rank that has registered stays open, as long as both live,
 * until all ranks have come. @return RONDO_IN_PROGRESS, or RONDO_SUCCESS: something has come */
static rondo_status root_answer(struct meeting_bootstrap *self)
{
    struct rondo_meet_head head;
    const void *data;
    root_move(self);
    data = rondo_meet_next(self->root, &head);
    if (data == NULL) {
        return self->root->state == RONDO_MEET_ENDED ? root_ended(self) : RONDO_IN_PROGRESS;
    }
    if (head.kind == RONDO_MEET_REFUSED) {
        take_refusal(self, data, head.bytes);
    } else if (head.kind == RONDO_MEET_MISSING) {
        take_missing(self, data, head.bytes);
    } else if (head.kind == RONDO_MEET_ACCEPTED) {
        self->registered = 1;
    }
    if (self->asks || head.kind == RONDO_MEET_REFUSED || head.kind == RONDO_MEET_BYE) {
        root_close(self);
    }
    return self->refused == RONDO_SUCCESS ? RONDO_SUCCESS : rondo_fail(self->refused, "%s", self->refusal);
}

/* ---- meeting ---- */

static rondo_status meeting_open_start(struct rondo_bootstrap *b)
{
    struct meeting_bootstrap *self = self_of(b);
    self->phase = MEETS;
    RONDO_TRY(rondo_meet_listen(&self->ranks.listener, self->addr));
    self->is_local = rondo_meeting_is_mine(&self->ranks.id);
    if (self->is_local) {
        RONDO_TRY(rondo_meeting_register(&self->ranks.id, b->rank, b->nranks, self->addr));
        self->registered = 1;
        return RONDO_SUCCESS;
    }
    return root_register(self);
}

static rondo_status enter_hub(struct meeting_bootstrap *self, struct rondo_hub *hub)
{
    rondo_status status = rondo_bootstrap_threads(hub, self->base.rank, &self->inner);
    rondo_hub_release(hub);
    RONDO_TRY(status);
    close(self->ranks.listener);
    self->ranks.listener = -1;
    return self->inner->ops->open_start(self->inner);
}

static rondo_status test_meeting(struct meeting_bootstrap *self)
{
    rondo_status status;
    if (self->is_local) {
        struct rondo_hub *hub;
        status = rondo_meeting_poll(&self->ranks.id, &hub);
        if (status != RONDO_SUCCESS) {
            return status;
        }
        self->is_local = 0;
        self->looks = hub == NULL;
        if (hub != NULL) {
            RONDO_TRY(enter_hub(self, hub));
        }
    }
    if (self->inner == NULL) {
        RONDO_TRY(rondo_meet_ranks_move(&self->ranks));
        if (self->ranks.table == NULL && self->root != NULL) {
            status = root_answer(self);
            return status == RONDO_SUCCESS ? RONDO_IN_PROGRESS : status;
        }
        if (self->ranks.table == NULL) {
            status = self->looks ? rondo_meeting_look(&self->ranks.id) : RONDO_SUCCESS;
            return status == RONDO_SUCCESS ? RONDO_IN_PROGRESS : rondo_fail_aloud(status);
        }
        root_close(self);
    }
    self->phase = HAS_MET;
    self->base.met = 1;
    return RONDO_SUCCESS;
}

/* ---- what the rounds send and receive ---- */

static rondo_status send_part(void *arg, int rank, const struct rondo_rounds_part *part)
{
    struct meeting_bootstrap *self = arg;
    struct rondo_meet_part head = { .round = part->round, .at = part->at, .bytes = part->bytes };
    struct rondo_meet_conn *conn;
    RONDO_TRY(rondo_meet_conn_to(&self->ranks, rank, &conn));
    if (conn->state == RONDO_MEET_ENDED) {
        return RONDO_REMOTE_ERROR;
    }
    if (rondo_meet_queued(conn) > QUEUED) {
        return RONDO_IN_PROGRESS;
    }
    return rondo_meet_send(conn, RONDO_MEET_PART, &head, sizeof(head), self->from + part->where, part->n);
}

static rondo_status receive_part(void *arg, int rank, const struct rondo_rounds_part *part)
{
    struct meeting_bootstrap *self = arg;
    struct rondo_meet_item *item = rondo_meet_item_take(&self->ranks.parts, rank);
    struct rondo_meet_part head;
    int fits;
    if (item == NULL) {
        return RONDO_IN_PROGRESS;
    }
    memcpy(&head, item->data, sizeof(head));
    fits = head.round == part->round && head.at == part->at && head.bytes == part->bytes &&
           item->bytes == sizeof(head) + part->n;
    if (fits && part->n > 0) {
        memcpy(self->to + part->where, item->data + sizeof(head), part->n);
    }
    rondo_meet_part_free(item);
    return fits ? RONDO_SUCCESS
                : rondo_fail(RONDO_INTERNAL_ERROR,
                             "rank %d sent a record of round %u that rank %d, in round %u, does not expect",
                             rank, head.round, self->base.rank, part->round);
}

static rondo_status say(void *arg, int rank, const struct rondo_rounds_note *note)
{
    struct meeting_bootstrap *self = arg;
    struct rondo_rounds_note mine = *note;
    struct rondo_meet_conn *conn;
    mine.from = self->base.rank;
    RONDO_TRY(rondo_meet_conn_to(&self->ranks, rank, &conn));
    if (conn->state == RONDO_MEET_ENDED) {
        return RONDO_REMOTE_ERROR;
    }
    return rondo_meet_send(conn, RONDO_MEET_NOTE, &mine, sizeof(mine), NULL, 0);
}

static rondo_status hear(void *arg, struct rondo_rounds_note *note)
{
    struct meeting_bootstrap *self = arg;
    for (;;) {
        struct rondo_meet_item *item = rondo_meet_item_take(&self->ranks.notes, -1);
        int from;
        if (item == NULL) {
            return RONDO_IN_PROGRESS;
        }
        memcpy(note, item->data, sizeof(*note));
        from = item->conn->rank;
        rondo_free(item);
        if (note->from == from) {
            return RONDO_SUCCESS;
        }
    }
}

static enum rondo_rounds_state state_of(void *arg, int rank)
{
    return ((struct meeting_bootstrap *)arg)->ranks.state[rank];
}

/* A connection tells whether the rank's process is there. */
static void ask(void *arg, int rank)
{
    struct rondo_meet_conn *conn;
    (void)rondo_meet_conn_to(&((struct meeting_bootstrap *)arg)->ranks, rank, &conn);
}

static rondo_status lost(void *arg, int rank)
{
    struct meeting_bootstrap *self = arg;
    char text[RONDO_SOCKET_ADDR_TEXT];
    rondo_meet_text(text, rondo_meet_addr_of(&self->ranks, rank));
    return rondo_fail(RONDO_REMOTE_ERROR, "rank %d on %s cannot create the communicator: rank %d (%s) %s",
                      self->base.rank, rondo_log_host(), rank, text,
                      self->ranks.state[rank] == RONDO_ROUNDS_LOST ? "has exited, or cannot be reached"
                                                                   : "has ended its creation");
}

static const struct rondo_rounds_ops rounds_ops = {
    .send = send_part,
    .receive = receive_part,
    .say = say,
    .hear = hear,
    .state = state_of,
    .ask = ask,
    .lost = lost,
};

/* ---- the rounds ---- */

static rondo_status meeting_allgather_start(struct rondo_bootstrap *b, const void *mine, void *all,
                                            size_t bytes)
{
    struct meeting_bootstrap *self = self_of(b);
    if (self->inner != NULL) {
        return self->inner->ops->allgather_start(self->inner, mine, all, bytes);
    }
    if (bytes > 0) {
        memmove((uint8_t *)all + bytes * (size_t)b->rank, mine, bytes);
    }
    self->from = self->to = all;
    rondo_rounds_allgather(&self->rounds, bytes, rondo_now_ns());
    return RONDO_SUCCESS;
}

static rondo_status meeting_exchange_start(struct rondo_bootstrap *b, int n, const int *peer,
                                           const void *send, void *recv, size_t bytes)
{
    struct meeting_bootstrap *self = self_of(b);
    if (self->inner != NULL) {
        return self->inner->ops->exchange_start(self->inner, n, peer, send, recv, bytes);
    }
    self->from = send;
    self->to = recv;
    return rondo_rounds_exchange(&self->rounds, n, peer, bytes, rondo_now_ns());
}

static rondo_status meeting_test(struct rondo_bootstrap *b)
{
    struct meeting_bootstrap *self = self_of(b);
    rondo_status status;
    if (self->phase == MEETS) {
        RONDO_TRY(test_meeting(self));
    }
    if (self->inner != NULL) {
        return self->inner->ops->test(self->inner);
    }
    if (self->rounds.phase == RONDO_ROUNDS_NONE && self->rounds.ended == RONDO_SUCCESS) {
        return RONDO_SUCCESS; /* open is done */
    }
    RONDO_TRY(rondo_meet_ranks_move(&self->ranks));
    status = rondo_rounds_test(&self->rounds, rondo_now_ns());
    for (struct rondo_meet_conn *conn = self->ranks.conns; conn != NULL; conn = conn->next) {
        if (conn->state == RONDO_MEET_OPEN && rondo_meet_queued(conn) > 0) {
            rondo_meet_move(conn, 0, rondo_meet_ranks_judge, &self->ranks);
        }
    }
    return status;
}

/* Before the ranks have met, the creator knows who is missing. */
static rondo_status missing_of_root(struct meeting_bootstrap *self, int *ranks, int max, int *n)
{
    rondo_status status = RONDO_SUCCESS;
    if (self->is_local) {
        rondo_meeting_missing(&self->ranks.id, ranks, max, n);
        return RONDO_SUCCESS;
    }
    if (self->asked_ns == 0) {
        if (self->root != NULL && !self->registered) {
            status = root_answer(self); /* if it has been accepted, the end of the connection is its death */
            if (status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS) {
                return status;
            }
        }
        self->asked_ns = rondo_now_ns();
        self->asks = self->root == NULL || !self->registered;
        if (self->asks) {
            root_close(self);
            RONDO_TRY(root_open(self));
        }
        RONDO_TRY(rondo_meet_send(self->root, RONDO_MEET_WHO, NULL, 0, NULL, 0));
    }
    if (self->root != NULL) {
        status = root_answer(self);
        if (status == RONDO_IN_PROGRESS && rondo_now_ns() - self->asked_ns < ASK_NS) {
            return status;
        }
        if (status == RONDO_SUCCESS && self->root == NULL && !self->asks) {
            self->asked_ns = 0; /* let go meanwhile: call for this question */
            return RONDO_IN_PROGRESS;
        }
    }
    for (int i = 0; i < self->nmissing && *n < max; i++) {
        if (self->missing[i] >= 0 && self->missing[i] < self->base.nranks) {
            ranks[(*n)++] = self->missing[i];
        }
    }
    return status == RONDO_IN_PROGRESS ? RONDO_SUCCESS : status;
}

static rondo_status meeting_missing(struct rondo_bootstrap *b, int *ranks, int max, int *n)
{
    struct meeting_bootstrap *self = self_of(b);
    *n = 0;
    if (self->inner != NULL) {
        return self->inner->ops->missing(self->inner, ranks, max, n);
    }
    if (self->phase != HAS_MET) {
        return missing_of_root(self, ranks, max, n);
    }
    RONDO_TRY(rondo_meet_ranks_move(&self->ranks));
    return rondo_rounds_missing(&self->rounds, rondo_now_ns(), ranks, max, n);
}

/* ---- the end ---- */

/* Tell the creator, so that a rank that comes later need not wait for its deadline. */
static void give_up_meeting(struct meeting_bootstrap *self, const rondo_round_text text)
{
    if (!self->registered) {
        return; /* one that was refused is no reason for the others to end */
    }
    if (self->is_local) {
        rondo_meeting_fail(self->ranks.id.name, self->ranks.id.serial, text);
        return;
    }
    if (self->asks) {
        root_close(self);
    }
    if (self->root != NULL || root_open(self) == RONDO_SUCCESS) {
        (void)rondo_meet_send(self->root, RONDO_MEET_FAILED, text, sizeof(rondo_round_text), NULL, 0);
        rondo_meet_flush(&self->ranks, self->root, FLUSH_FAILED_NS);
    }
}

static void close_inner(struct meeting_bootstrap *self, int ok)
{
    if (self->inner != NULL) {
        self->inner->ended = self->base.ended;
        self->inner->quiet = self->base.quiet;
        self->inner->ops->close(self->inner, ok);
    }
}

static void meeting_close(struct rondo_bootstrap *b, int ok)
{
    struct meeting_bootstrap *self = self_of(b);
    char kept[RONDO_ERROR_TEXT];
    rondo_round_text text;
    rondo_status ended = b->ended;
    snprintf(kept, sizeof(kept), "%s", rondo_error_text());
    rondo_round_text_fill(text, b->rank);
    close_inner(self, ok);
    if (!ok && self->phase == MEETS && self->inner == NULL) {
        give_up_meeting(self, text);
    } else if (!ok && self->phase == HAS_MET && self->inner == NULL) {
        rondo_rounds_give_up(&self->rounds, b->ended, text);
    }
    rondo_meet_say_goodbye(&self->ranks, ok ? FLUSH_NS : FLUSH_FAILED_NS);
    root_close(self);
    rondo_rounds_release(&self->rounds);
    rondo_meet_ranks_release(&self->ranks);
    rondo_free(self);
    if (ended != RONDO_SUCCESS) {
        rondo_fail_quiet(ended, "%s", kept);
    }
}

static const struct rondo_bootstrap_ops meeting_ops = {
    .name = "meeting",
    .open_start = meeting_open_start,
    .allgather_start = meeting_allgather_start,
    .exchange_start = meeting_exchange_start,
    .test = meeting_test,
    .missing = meeting_missing,
    .close = meeting_close,
};

/* @return a bootstrap without an id or a listener. */
static rondo_status make(int rank, int nranks, struct meeting_bootstrap **made)
{
    struct meeting_bootstrap *self;
    rondo_status status;
    RONDO_TRY(RONDO_NEW(self, "a bootstrap"));
    RONDO_TRY_GOTO(rondo_meet_ranks_init(&self->ranks, rank, nranks), fail);
    RONDO_TRY_GOTO(rondo_rounds_init(&self->rounds, rank, nranks, &rounds_ops, self), fail);
    self->base.ops = &meeting_ops;
    self->base.rank = rank;
    self->base.nranks = nranks;
    self->base.root_world_rank = -1;
    self->base.secret = self->ranks.id.secret;
    *made = self;
    return RONDO_SUCCESS;
fail:
    rondo_meet_ranks_release(&self->ranks);
    rondo_free(self);
    return status;
}

rondo_status rondo_bootstrap_meeting(const struct rondo_meeting_id *id, int rank, int nranks,
                                     struct rondo_bootstrap **b)
{
    struct meeting_bootstrap *made;
    RONDO_TRY(rondo_meeting_check(id));
    if (nranks < 1 || rank < 0 || rank >= nranks) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rank %d of %d ranks: ranks are 0 to nranks - 1", rank,
                          nranks);
    }
    RONDO_TRY(make(rank, nranks, &made));
    made->ranks.id = *id;
    *b = &made->base;
    return RONDO_SUCCESS;
}

rondo_status rondo_meeting_place_open(struct rondo_meeting_place *place, int *listener)
{
    rondo_status status;
    *listener = -1;
    *place = (struct rondo_meeting_place){ .status = RONDO_SUCCESS };
    RONDO_TRY_GOTO(rondo_random(&place->name, sizeof(place->name)), end);
    RONDO_TRY_GOTO(rondo_random(place->secret, sizeof(place->secret)), end);
    status = rondo_meet_listen(listener, place->addr);
end:
    place->status = status;
    return status;
}

rondo_status rondo_bootstrap_places(const struct rondo_meeting_place *places, int rank, int nranks,
                                    int listener, struct rondo_bootstrap **b)
{
    struct meeting_bootstrap *made;
    RONDO_TRY(make(rank, nranks, &made));
    if (rondo_calloc(&made->ranks.table, (size_t)nranks, RONDO_ADDR_BYTES, "the ranks' addresses") !=
        RONDO_SUCCESS) {
        meeting_close(&made->base, 0);
        return RONDO_SYSTEM_ERROR;
    }
    for (int r = 0; r < nranks; r++) {
        memcpy(made->ranks.table + (size_t)r * RONDO_ADDR_BYTES, places[r].addr, RONDO_ADDR_BYTES);
    }
    made->ranks.id.name = places[0].name;
    memcpy(made->ranks.id.secret, places[0].secret, sizeof(made->ranks.id.secret));
    made->ranks.listener = listener;
    made->phase = HAS_MET;
    made->base.met = 1;
    *b = &made->base;
    return RONDO_SUCCESS;
}
