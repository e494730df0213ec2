/* What a control does on the wire: tables, reasons, leaves, questions and answers, and dispatch to it. */
#include "net/control/control_wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

_Static_assert(RONDO_CALL_RING * sizeof(struct rondo_call) <= RONDO_MSG_BYTES, "an answer holds the ring");
_Static_assert(sizeof(struct rondo_wire_head) == 40, "the wire format is fixed");

/* ---- a control's part ---- */

static int compare_process(const void *a, const void *b, void *peers_arg)
{
    const struct rondo_peer *peers = peers_arg;
    uint64_t x = rondo_wire_process(&peers[*(const int *)a]), y = rondo_wire_process(&peers[*(const int *)b]);
    return x != y ? (x < y ? -1 : 1) : *(const int *)a - *(const int *)b;
}

static rondo_status part_fill(struct rondo_wire_part *part, const struct rondo_control_config *config)
{
    part->node_of = config->node_of;
    part->nnodes = config->nnodes;
    part->secret = config->peers[0].id.nonce;
    rondo_auth_derive(part->secret, "rondo epoch", &config->comm_hash, sizeof(config->comm_hash),
                      &part->epoch, sizeof(part->epoch));
    memset(part->first, -1, sizeof(int) * (size_t)config->nnodes);
    for (int r = config->nranks - 1; r >= 0; r--) {
        int node = config->node_of[r];
        if (node < 0 || node >= config->nnodes) {
            return rondo_fail(RONDO_INTERNAL_ERROR, "control plane of %s: rank %d is on node %d of %d",
                              config->name, r, node, config->nnodes);
        }
        part->after[r] = part->first[node];
        part->first[node] = r;
        part->by_process[r] = r;
    }
    for (int i = 0; i < RONDO_WIRE_BUCKETS; i++) {
        part->last_msg[i] = &part->first_msg[i];
    }
    for (int i = 0; i < RONDO_WIRE_ASKED; i++) {
        part->asked[i].rank = -1;
    }
    rondo_spread_init(&part->spread, config->node_of[config->rank], part->nnodes, part->first, part->after);
    return RONDO_SUCCESS;
}

rondo_status rondo_wire_new(struct rondo_control *control, const struct rondo_control_config *config)
{
    struct rondo_wire_part *part;
    if (config->nnodes <= 1) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(RONDO_NEW(part, "control plane between nodes"));
    control->wire = part; /* from here on, rondo_wire_free frees what was allocated */
    RONDO_TRY(RONDO_NEW_ARRAY(part->first, config->nnodes, "control plane's nodes"));
    RONDO_TRY(RONDO_NEW_ARRAY(part->after, config->nranks, "control plane's nodes"));
    RONDO_TRY(RONDO_NEW_ARRAY(part->by_process, config->nranks, "control plane's processes"));
    RONDO_TRY(RONDO_NEW_ARRAY(part->state, config->nranks, "control plane's states"));
    RONDO_TRY(RONDO_NEW_ARRAY(part->waiting, config->nranks, "control plane's messages"));
    return part_fill(part, config);
}

void rondo_wire_free(struct rondo_control *control)
{
    struct rondo_wire_part *part = control->wire;
    if (part == NULL) {
        return;
    }
    rondo_wire_msg_clear(part);
    rondo_free(part->first);
    rondo_free(part->after);
    rondo_free(part->by_process);
    rondo_free((void *)part->state);
    rondo_free((void *)part->waiting);
    rondo_free(part);
}

struct rondo_control *rondo_wire_control(uint64_t comm_hash, int rank)
{
    struct rondo_control *control = rondo_wire->controls;
    while (control && (control->head->comm_hash != comm_hash || control->rank != rank)) {
        control = control->wire->next;
    }
    return control;
}

const struct rondo_wire_closed *rondo_wire_closed_of(uint64_t comm_hash, int rank)
{
    for (unsigned i = 0; i < RONDO_WIRE_CLOSED && i < rondo_wire->nclosed; i++) {
        if (rondo_wire->closed[i].comm_hash == comm_hash && rondo_wire->closed[i].rank == rank) {
            return &rondo_wire->closed[i];
        }
    }
    return NULL;
}

void rondo_wire_ranks_of(const struct rondo_control *control, const struct rondo_wire_conn *conn, int *from,
                         int *to)
{
    const int *by_process = control->wire->by_process;
    int low = 0, n = conn->own == rondo_wire_process(&control->peers[control->rank]) ? control->nranks : 0;
    for (int high = n; low < high;) {
        int middle = low + (high - low) / 2;
        if (rondo_wire_process(&control->peers[by_process[middle]]) < conn->process) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *from = *to = low;
    while (*to < n && rondo_wire_process(&control->peers[by_process[*to]]) == conn->process) {
        (*to)++;
    }
}

int rondo_wire_hello_renew(struct rondo_wire_conn *conn)
{
    struct rondo_auth_hello *hello = &conn->hello;
    struct rondo_control *control = rondo_wire_control(hello->comm_hash, hello->client_rank);
    if (control != NULL && rondo_wire_state_of(control, hello->server_rank) != RONDO_RANK_LEFT) {
        return 1;
    }
    for (control = rondo_wire->controls; control; control = control->wire->next) {
        int from, to;
        rondo_wire_ranks_of(control, conn, &from, &to);
        for (int i = from; i < to; i++) {
            int rank = control->wire->by_process[i];
            if (control->local_of[rank] < 0 && rondo_wire_state_of(control, rank) != RONDO_RANK_LEFT) {
                hello->comm_hash = control->head->comm_hash;
                hello->client_rank = control->rank;
                hello->server_rank = rank;
                memcpy(conn->secret, control->wire->secret, sizeof(conn->secret));
                return 1;
            }
        }
    }
    return 0;
}

/* ---- sending ---- */

struct rondo_wire_head rondo_wire_head_of(const struct rondo_control *control, int rank,
                                          enum rondo_wire_kind kind, uint64_t tag, size_t bytes)
{
    return (struct rondo_wire_head){ .magic = RONDO_WIRE_MAGIC,
                                     .kind = (uint16_t)kind,
                                     .bytes = (uint16_t)bytes,
                                     .comm_hash = control->head->comm_hash,
                                     .tag = tag,
                                     .epoch = control->wire->epoch,
                                     .from = control->rank,
                                     .to = rank };
}

int rondo_wire_say(struct rondo_control *control, int rank, enum rondo_wire_kind kind, uint64_t tag,
                   const void *data, size_t bytes)
{
    struct rondo_wire_head head = rondo_wire_head_of(control, rank, kind, tag, bytes);
    struct rondo_wire_conn *conn;
    return rondo_wire_conn_to(control, rank, &conn) == RONDO_SUCCESS && rondo_wire_put(conn, &head, data, 0);
}

/* ---- reasons and leaves ---- */

static int on_abort(struct rondo_control *control, const struct rondo_wire_head *head, const void *data)
{
    struct rondo_wire_abort abort;
    if (head->bytes != sizeof(abort)) {
        return 0;
    }
    memcpy(&abort, data, sizeof(abort));
    if (abort.status <= RONDO_SUCCESS || abort.status >= RONDO_NUM_STATUSES || abort.rank < -1 ||
        abort.rank >= control->nranks || abort.loss < RONDO_LOSS_NONE || abort.loss >= RONDO_NUM_LOSSES ||
        (abort.loss != RONDO_LOSS_NONE && abort.rank < 0)) {
        return 0;
    }
    abort.text[sizeof(abort.text) - 1] = '\0';
    if (abort.loss != RONDO_LOSS_NONE && abort.text[0] == '\0') {
        rondo_loss_text(control, abort.rank, (enum rondo_loss)abort.loss, abort.text, sizeof(abort.text));
    }
    if (rondo_control_end(control, (rondo_status)abort.status, abort.rank, (enum rondo_loss)abort.loss,
                          abort.text)) {
        control->wire->spreading = 1;
        rondo_wire_spread_on(control);
    }
    return 1;
}

static int on_leave(struct rondo_control *control, const struct rondo_wire_head *head, const void *data)
{
    (void)data;
    atomic_store_explicit(&control->wire->state[head->from], RONDO_RANK_LEFT, memory_order_release);
    return 1;
}

/* Tell a rank at the other end that this one leaves, and why, if that has ended the communicator. */
static void say_leave(struct rondo_control *control, struct rondo_wire_conn *conn, int rank,
                      const struct rondo_wire_abort *why)
{
    struct rondo_wire_head head = rondo_wire_head_of(control, rank, RONDO_WIRE_ABORT, 0, sizeof(*why));
    if (why != NULL) {
        rondo_wire_put(conn, &head, why, 0);
    }
    head = rondo_wire_head_of(control, rank, RONDO_WIRE_LEAVE, 0, 0);
    rondo_wire_put(conn, &head, NULL, 0);
}

void rondo_wire_leave(struct rondo_control *control)
{
    struct rondo_wire_part *part = control->wire;
    struct rondo_wire_abort why;
    int ended = part != NULL && rondo_control_aborted(control);
    if (part == NULL || !part->joined || part->left) {
        return;
    }
    if (ended) {
        why = rondo_wire_abort_of(control);
    }
    rondo_wire_lock();
    part->left = 1;
    for (struct rondo_wire_conn *conn = rondo_wire->conns; conn; conn = conn->next) {
        int from = 0, to = 0;
        if (conn->sending) {
            rondo_wire_ranks_of(control, conn, &from, &to);
        }
        for (int i = from; i < to; i++) { /* each rank has a control of its own */
            say_leave(control, conn, part->by_process[i], ended ? &why : NULL);
        }
    }
    rondo_wire_unlock();
}

/* ---- questions ---- */

static int on_ask(struct rondo_control *control, const struct rondo_wire_head *head, const void *data)
{
    struct rondo_call call[RONDO_CALL_RING];
    uint64_t last = atomic_load_explicit(&control->own->calls.begun, memory_order_acquire);
    int n = 0;
    (void)data;
    memset(call, 0, sizeof(call));
    for (uint64_t seq = last > RONDO_CALL_RING ? last - RONDO_CALL_RING + 1 : 1;
         seq <= last && n < RONDO_CALL_RING; seq++) {
        n += rondo_control_call_of(control, control->rank, seq, &call[n]);
    }
    if (control->wire->left && rondo_control_aborted(control)) {
        struct rondo_wire_abort why = rondo_wire_abort_of(control);
        rondo_wire_say(control, head->from, RONDO_WIRE_ABORT, 0, &why, sizeof(why));
    }
    rondo_wire_say(control, head->from, RONDO_WIRE_TELL, control->wire->left, call,
                   sizeof(call[0]) * (size_t)n);
    return 1;
}

static int on_tell(struct rondo_control *control, const struct rondo_wire_head *head, const void *data)
{
    if (head->tag > 1 || head->bytes % sizeof(struct rondo_call) != 0) {
        return 0;
    }
    if (head->tag == 1) {
        on_leave(control, head, NULL);
    }
    for (int i = 0; i < RONDO_WIRE_ASKED; i++) {
        struct rondo_wire_asked *asked = &control->wire->asked[i];
        if (asked->rank == head->from) {
            asked->ncalls = (int)(head->bytes / sizeof(struct rondo_call));
            asked->told_ns = rondo_now_ns();
            memcpy(asked->call, data, head->bytes);
        }
    }
    return 1;
}

void rondo_wire_ask(struct rondo_control *control, int rank)
{
    rondo_wire_lock();
    rondo_wire_say(control, rank, RONDO_WIRE_ASK, 0, NULL, 0);
    rondo_wire_unlock();
}

/* Find the entry for a rank's answer, or reuse the one that was not used for longest. */
static struct rondo_wire_asked *asked_of(struct rondo_wire_part *part, int rank)
{
    struct rondo_wire_asked *oldest = &part->asked[0];
    for (int i = 0; i < RONDO_WIRE_ASKED; i++) {
        if (part->asked[i].rank == rank) {
            return &part->asked[i];
        }
        oldest = part->asked[i].used_ns < oldest->used_ns ? &part->asked[i] : oldest;
    }
    oldest->rank = rank;
    oldest->ncalls = -1;
    oldest->asked_ns = 0;
    return oldest;
}

int rondo_wire_call_of(struct rondo_control *control, int rank, uint64_t seq, int64_t since_ns,
                       struct rondo_call *call)
{
    int64_t now = rondo_now_ns();
    struct rondo_wire_asked *asked;
    const struct rondo_call *found = NULL;
    int answered;
    if (!control->wire->joined || !rondo_wire_trylock()) {
        return -1;
    }
    asked = asked_of(control->wire, rank);
    asked->used_ns = now;
    if (now - asked->asked_ns >= RONDO_CONTROL_ASK_NS &&
        rondo_wire_state_of(control, rank) == RONDO_RANK_ALIVE) {
        asked->asked_ns = now;
        rondo_wire_say(control, rank, RONDO_WIRE_ASK, 0, NULL, 0);
    }
    answered = asked->ncalls >= 0 && asked->told_ns >= since_ns;
    for (int i = 0; answered && i < asked->ncalls; i++) {
        const struct rondo_call *one = &asked->call[i];
        if (seq ? one->seq == seq : found == NULL || one->seq > found->seq) {
            found = one;
        }
    }
    if (found) {
        *call = *found;
    }
    rondo_wire_unlock();
    return found != NULL ? 1 : answered ? 0 : -1;
}

enum rondo_rank_state rondo_wire_state_of(struct rondo_control *control, int rank)
{
    return atomic_load_explicit(&control->wire->state[rank], memory_order_acquire);
}

/* ---- receiving ---- */

static int (*const on_kind[RONDO_WIRE_NUM_KINDS])(struct rondo_control *, const struct rondo_wire_head *,
                                                  const void *) = {
    [RONDO_WIRE_MSG] = rondo_wire_on_msg,
    [RONDO_WIRE_CREDIT] = rondo_wire_on_credit,
    [RONDO_WIRE_ABORT] = on_abort,
    [RONDO_WIRE_LEAVE] = on_leave,
    [RONDO_WIRE_ASK] = on_ask,
    [RONDO_WIRE_TELL] = on_tell,
    [RONDO_WIRE_ASK_COUNTS] = rondo_wire_on_ask_counts,
    [RONDO_WIRE_TELL_COUNTS] = rondo_wire_on_tell_counts,
    [RONDO_WIRE_ASK_CLOCK] = rondo_wire_on_ask_clock,
    [RONDO_WIRE_TELL_CLOCK] = rondo_wire_on_tell_clock,
};

static int deliver(struct rondo_control *control, uint64_t process, const struct rondo_wire_head *head,
                   const void *data)
{
    if (head->epoch != control->wire->epoch) {
        rondo_wire_count(RONDO_WIRE_DROP_MESSAGE);
        return 1;
    }
    if (head->from < 0 || head->from >= control->nranks || control->local_of[head->from] >= 0 ||
        rondo_wire_process(&control->peers[head->from]) != process) {
        return 0;
    }
    return on_kind[head->kind](control, head, data);
}

/* Answer a question for a communicator that was closed here; drop other messages. */
static void answer_for_closed(const struct rondo_wire_closed *closed, struct rondo_wire_conn *conn,
                              const struct rondo_wire_head *head)
{
    const struct rondo_wire_abort why = { .status = RONDO_REMOTE_ERROR,
                                          .rank = closed->lost,
                                          .loss = (int32_t)closed->loss };
    struct rondo_wire_head left = *head;
    if (head->kind != RONDO_WIRE_ASK) {
        rondo_wire_count(RONDO_WIRE_DROP_MESSAGE);
        return;
    }
    left.from = closed->rank;
    left.to = head->from;
    if (closed->loss != RONDO_LOSS_NONE) {
        left.kind = RONDO_WIRE_ABORT;
        left.bytes = sizeof(why);
        left.tag = 0;
        rondo_wire_put(conn, &left, &why, 0);
    }
    left.kind = RONDO_WIRE_TELL;
    left.bytes = 0;
    left.tag = 1;
    rondo_wire_put(conn, &left, NULL, 0);
}

/* Is it an answer? Then a communicator that is closed and forgotten said here what it answers. */
static int is_answer(int kind)
{
    return kind == RONDO_WIRE_CREDIT || kind == RONDO_WIRE_TELL || kind == RONDO_WIRE_TELL_COUNTS ||
           kind == RONDO_WIRE_TELL_CLOCK;
}

/* Most leaves are of such communicators, too: the oldest gives up its place. @return NULL: all are taken */
static struct rondo_wire_parked *place_to_park(void)
{
    struct rondo_wire_parked *oldest = NULL;
    for (int i = 0; i < RONDO_WIRE_PARKED; i++) {
        struct rondo_wire_parked *parked = &rondo_wire->parked[i];
        if (parked->since_ns == 0) {
            return parked;
        }
        if (parked->head.kind == RONDO_WIRE_LEAVE && (oldest == NULL || parked->number < oldest->number)) {
            oldest = parked;
        }
    }
    return oldest;
}

static void park(uint64_t process, const struct rondo_wire_head *head, const void *data)
{
    struct rondo_wire_parked *parked = is_answer(head->kind) ? NULL : place_to_park();
    if (parked == NULL || parked->since_ns != 0) {
        rondo_wire_count(RONDO_WIRE_DROP_OLD);
    }
    if (parked != NULL) {
        parked->since_ns = rondo_now_ns();
        parked->number = ++rondo_wire->nparked;
        parked->process = process;
        parked->head = *head;
        memcpy(parked->data, data, head->bytes);
    }
}

int rondo_wire_dispatch(struct rondo_wire_conn *conn, const struct rondo_wire_head *head, const void *data)
{
    struct rondo_control *control;
    const struct rondo_wire_closed *closed;
    if (head->kind == RONDO_WIRE_WATCH || head->kind == RONDO_WIRE_BEAT) {
        conn->beats.beating |= head->kind == RONDO_WIRE_WATCH;
        return 1;
    }
    if (head->kind == RONDO_WIRE_BYE) {
        rondo_wire_bye(conn);
        return 1;
    }
    control = rondo_wire_control(head->comm_hash, head->to);
    if (control) {
        return deliver(control, conn->process, head, data);
    }
    closed = rondo_wire_closed_of(head->comm_hash, head->to);
    if (closed) {
        answer_for_closed(closed, conn, head);
    } else {
        park(conn->process, head, data);
    }
    return 1;
}

/* ---- joining and parting ---- */

/* @return the oldest message that was kept for a control; NULL: none. */
static struct rondo_wire_parked *parked_for(const struct rondo_control *control)
{
    struct rondo_wire_parked *oldest = NULL;
    for (int i = 0; i < RONDO_WIRE_PARKED; i++) {
        struct rondo_wire_parked *parked = &rondo_wire->parked[i];
        if (parked->since_ns != 0 && parked->head.comm_hash == control->head->comm_hash &&
            parked->head.to == control->rank && (oldest == NULL || parked->number < oldest->number)) {
            oldest = parked;
        }
    }
    return oldest;
}

/* Handle the messages and connections that came for a control before it existed. */
static void take_parked(struct rondo_control *control)
{
    struct rondo_wire_conn *next;
    struct rondo_wire_parked *parked;
    while ((parked = parked_for(control)) != NULL) {
        parked->since_ns = 0;
        if (!deliver(control, parked->process, &parked->head, parked->data)) {
            rondo_wire_count(RONDO_WIRE_DROP_STRANGER);
        }
    }
    for (struct rondo_wire_conn *conn = rondo_wire->conns; conn; conn = next) {
        next = conn->next;
        if (conn->state == RONDO_WIRE_WAITING && conn->hello.comm_hash == control->head->comm_hash &&
            conn->hello.server_rank == control->rank) {
            rondo_wire_parse(conn);
        }
    }
}

rondo_status rondo_wire_join(struct rondo_control *control)
{
    rondo_status status;
    if (control->wire == NULL) {
        return RONDO_SUCCESS;
    }
    /* Sort here: when the control was made, the peers' listeners may not have been known. */
    qsort_r(control->wire->by_process, (size_t)control->nranks, sizeof(int), compare_process,
            (void *)(uintptr_t)control->peers);
    rondo_wire_lock();
    status = rondo_wire_need();
    if (status == RONDO_SUCCESS) {
        control->wire->next = rondo_wire->controls;
        rondo_wire->controls = control;
        control->wire->joined = 1;
        take_parked(control);
        rondo_wire_watch_ahead(control);
    }
    rondo_wire_unlock();
    return status;
}

void rondo_wire_part(struct rondo_control *control)
{
    struct rondo_wire_part *part = control->wire;
    struct rondo_control **link;
    enum rondo_loss loss;
    int lost;
    if (part == NULL || !part->joined) {
        return;
    }
    loss = rondo_control_loss(control, &lost);
    rondo_wire_lock();
    link = &rondo_wire->controls;
    while (*link != control) {
        link = &(*link)->wire->next;
    }
    *link = part->next;
    part->joined = 0;
    rondo_wire->closed[rondo_wire->nclosed++ % RONDO_WIRE_CLOSED] =
        (struct rondo_wire_closed){ .comm_hash = control->head->comm_hash,
                                    .secret = { part->secret[0], part->secret[1] },
                                    .process = rondo_wire_process(&control->peers[control->rank]),
                                    .rank = control->rank,
                                    .lost = lost,
                                    .loss = loss };
    rondo_wire_release();
    rondo_wire_unlock();
}
