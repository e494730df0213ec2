/*
 * Connections. Both ends do the same: say hello, and with the other's hello choose the wire, make a record,
 * and with the other's record connect. Wires whose first write may not come before the other end is connected
 * also say that they are ready. All this travels over the control plane.
 *
 * Messages wait in a queue of bytes. The message buffer is filled with as many as fit when it is idle here
 * and at the other end: when it was written, and the other end has acknowledged it.
 */
#include "tensor/store.h"

#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "net/netdev.h"

enum { ENOUGH_REQUESTS = 512 /* in a run: work for the other end while this one makes more */ };

enum letter_kind { LETTER_HELLO, LETTER_RECORD, LETTER_READY, LETTER_END };

/* version is the least one, because ends of that version take no other; newest is the one that this end
 * prefers, and 0 from such an end. */
struct letter {
    uint32_t magic, version;
    uint32_t kind, netdevs, message_bytes, newest;
    uint8_t record[RONDO_TENSOR_RECORD]; /* of an end: why, as a sentence */
};
_Static_assert(sizeof(struct letter) <= RONDO_MSG_BYTES, "a letter fits a control message");

static rondo_status hold_netdevs(struct rondo_tensor_core *core)
{
    if (!core->holds_netdevs) {
        rondo_netdev_hold();
        core->holds_netdevs = 1;
        RONDO_TRY(rondo_netdev_mask(&core->netdevs, NULL, 0));
    }
    return RONDO_SUCCESS;
}

/* The same on both ends: a function of the records of both and of a parameter on which ranks agree. */
static int shares_memory(const struct rondo_tensor_core *core, int peer)
{
    const struct rondo_peer *peers = core->ctx->wiring.peers;
    return rondo_params()->tensor_transport != RONDO_TENSOR_TRANSPORT_NET &&
           rondo_peer_same_node(&peers[core->rank], &peers[peer]);
}

static uint32_t common_version(uint32_t mine, uint32_t theirs)
{
    uint32_t newest = mine < theirs ? mine : theirs;
    return newest > RONDO_TENSOR_LEAST_VERSION ? newest : RONDO_TENSOR_LEAST_VERSION;
}

rondo_status rondo_tensor_conn_get(struct rondo_tensor_core *core, int peer,
                                   struct rondo_tensor_conn **conn_out)
{
    struct rondo_tensor_conn *conn = core->conn_of[peer];
    if (conn != NULL) {
        *conn_out = conn;
        return conn->state != RONDO_TENSOR_CONN_BROKEN
                   ? RONDO_SUCCESS
                   : rondo_fail_quiet(conn->failure, "%s", conn->failure_text);
    }
    if (peer != core->rank && !shares_memory(core, peer)) {
        RONDO_TRY(hold_netdevs(core));
    }
    RONDO_TRY(RONDO_NEW(conn, "a connection for tensors"));
    conn->core = core;
    conn->peer = peer;
    conn->version = common_version(core->newest, core->newest);
    if (peer == core->rank) {
        conn->wire = &rondo_tensor_wire_self;
        conn->state = RONDO_TENSOR_CONN_OPEN;
        rondo_status status = conn->wire->open(conn, conn->record);
        if (status != RONDO_SUCCESS) {
            conn->wire->close(conn);
            rondo_free(conn);
            return status;
        }
    } else {
        core->nopening++;
    }
    conn->next = core->conns;
    core->conns = conn;
    core->conn_of[peer] = conn;
    core->stats.connections++;
    *conn_out = conn;
    return RONDO_SUCCESS;
}

/* ---- connecting ---- */

static rondo_status send_letter(struct rondo_tensor_conn *conn, enum letter_kind kind)
{
    struct rondo_tensor_core *core = conn->core;
    struct letter letter = { .magic = RONDO_TENSOR_WIRE_MAGIC,
                             .version = RONDO_TENSOR_LEAST_VERSION,
                             .newest = core->newest,
                             .kind = kind,
                             .netdevs = core->netdevs,
                             .message_bytes = (uint32_t)core->message_bytes };
    if (kind == LETTER_RECORD) {
        memcpy(letter.record, conn->record, sizeof(letter.record));
    } else if (kind == LETTER_END) {
        snprintf((char *)letter.record, sizeof(letter.record), "%s", conn->failure_text);
    }
    return rondo_control_send(core->ctx->wiring.control, conn->peer, core->tag, &letter, sizeof(letter));
}

/* The other end has ended the connection. @return its error */
static rondo_status take_end(struct rondo_tensor_conn *conn, const struct letter *letter)
{
    char who[96], text[RONDO_TENSOR_RECORD];
    size_t n = strnlen((const char *)letter->record, sizeof(text) - 1);
    for (size_t i = 0; i < n; i++) {
        text[i] = letter->record[i] < ' ' || letter->record[i] == 127 ? '?' : (char)letter->record[i];
    }
    text[n] = '\0';
    conn->end_came = 1;
    return rondo_fail_quiet(RONDO_REMOTE_ERROR, "%s has ended the connection for tensors: %s",
                            rondo_tensor_who(conn->core, conn->peer, who), text);
}

static rondo_status take_letter(struct rondo_tensor_conn *conn, const struct letter *letter, size_t bytes)
{
    char who[96];
    const struct rondo_tensor_core *core = conn->core;
    int ours = bytes == sizeof(*letter) && letter->magic == RONDO_TENSOR_WIRE_MAGIC &&
               letter->version == RONDO_TENSOR_LEAST_VERSION;
    if (ours && letter->kind == LETTER_END) {
        return take_end(conn, letter);
    }
    int in_turn = letter->kind == LETTER_HELLO    ? !conn->hello_came
                  : letter->kind == LETTER_RECORD ? conn->hello_came && !conn->record_came
                                                  : conn->record_came && !conn->ready_came;
    if (!ours || letter->message_bytes != core->message_bytes || letter->kind > LETTER_READY || !in_turn) {
        return rondo_fail(
            RONDO_REMOTE_ERROR,
            "rank %d on %s cannot connect to %s for tensors: it sent %zu bytes, version %u, message "
            "buffers of %u bytes; here are %zu, %d, %zu",
            core->rank, rondo_log_host(), rondo_tensor_who(core, conn->peer, who), bytes, letter->version,
            letter->message_bytes, sizeof(*letter), RONDO_TENSOR_LEAST_VERSION, core->message_bytes);
    }
    if (letter->kind == LETTER_RECORD) {
        memcpy(conn->their_record, letter->record, sizeof(conn->their_record));
        conn->record_came = 1;
    } else if (letter->kind == LETTER_READY) {
        conn->ready_came = 1;
    } else {
        conn->netdevs = letter->netdevs;
        conn->version = common_version(core->newest, letter->newest);
        conn->hello_came = 1;
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_conns_listen(struct rondo_tensor_core *core, int *moved)
{
    struct rondo_control *control = core->ctx->wiring.control;
    union {
        struct letter letter;
        uint8_t bytes[RONDO_MSG_BYTES];
    } in;
    for (int rank = -1;;) {
        struct rondo_tensor_conn *conn;
        size_t bytes = 0;
        memset(&in.letter, 0, sizeof(in.letter));
        rondo_status status = rondo_control_receive_any(control, core->tag, &rank, in.bytes, sizeof(in),
                                                        &bytes);
        if (status == RONDO_IN_PROGRESS) {
            return RONDO_SUCCESS;
        }
        RONDO_TRY(status);
        *moved = 1;
        if (rondo_tensor_conn_get(core, rank, &conn) != RONDO_SUCCESS) {
            continue; /* a connection that is broken stays so */
        }
        status = take_letter(conn, &in.letter, bytes);
        if (status != RONDO_SUCCESS) {
            rondo_tensor_conn_break(conn, status);
        }
    }
}

static rondo_status choose_wire(struct rondo_tensor_conn *conn)
{
    const struct rondo_tensor_core *core = conn->core;
    char who[96];
    if (shares_memory(core, conn->peer)) {
        conn->wire = &rondo_tensor_wire_shm;
    } else if (rondo_params()->tensor_transport == RONDO_TENSOR_TRANSPORT_SHM ||
               rondo_netdev_common(core->netdevs, conn->netdevs) == NULL) {
        return rondo_fail(
            RONDO_SYSTEM_ERROR,
            "rank %d on %s has no way to %s for tensors: they share no memory or "
            "RONDO_TENSOR_TRANSPORT forbids it, and %s",
            core->rank, rondo_log_host(), rondo_tensor_who(core, conn->peer, who),
            rondo_params()->tensor_transport == RONDO_TENSOR_TRANSPORT_SHM
                ? "RONDO_TENSOR_TRANSPORT=shm forbids net devices"
                : "have no net device of one kind (RONDO_NET, RONDO_SOCKET_IFNAME, RONDO_IB_HCA)");
    } else {
        conn->wire = rondo_tensor_writes_to(core, conn) ? &rondo_tensor_wire_write : &rondo_tensor_wire_net;
    }
    return RONDO_SUCCESS;
}

/* @return RONDO_IN_PROGRESS: the other end has not done its part. */
static rondo_status connect_step(struct rondo_tensor_conn *conn)
{
    if (!conn->hello_sent) {
        RONDO_TRY(send_letter(conn, LETTER_HELLO));
        conn->hello_sent = 1;
    }
    if (!conn->hello_came) {
        return RONDO_IN_PROGRESS;
    }
    if (!conn->record_made) {
        RONDO_TRY(choose_wire(conn));
        RONDO_TRY(conn->wire->open(conn, conn->record));
        conn->record_made = 1;
        conn->state = RONDO_TENSOR_CONN_RECORD;
    }
    if (!conn->record_sent) {
        RONDO_TRY(send_letter(conn, LETTER_RECORD));
        conn->record_sent = 1;
    }
    if (!conn->record_came) {
        return RONDO_IN_PROGRESS;
    }
    conn->state = RONDO_TENSOR_CONN_CONNECT;
    if (!conn->connected) {
        RONDO_TRY(conn->wire->connect(conn, conn->their_record));
        conn->connected = 1;
    }
    if (conn->wire->says_ready && !conn->ready_sent) {
        RONDO_TRY(send_letter(conn, LETTER_READY));
        conn->ready_sent = 1;
    }
    if (conn->wire->says_ready && !conn->ready_came) {
        return RONDO_IN_PROGRESS;
    }
    conn->state = RONDO_TENSOR_CONN_OPEN;
    conn->core->nopening--;
    conn->core->nnet += conn->wire->over_net;
    RONDO_INFO(RONDO_SUBSYS_NET, "rank %d: tensors to and from rank %d go over %s", conn->core->rank,
               conn->peer, conn->wire->name);
    return RONDO_SUCCESS;
}

/* Say that the connection has ended: the other end may still wait for this one. While there is no room for
 * the letter, each progress tries again. */
static void say_end(struct rondo_tensor_conn *conn)
{
    conn->owes_end = send_letter(conn, LETTER_END) == RONDO_IN_PROGRESS && !rondo_tensor_has_gone(conn);
}

/* Does the other end, which is of this process, still copy contents? */
static int is_read(struct rondo_tensor_conn *conn)
{
    return conn->wire != NULL && conn->wire->is_read != NULL && conn->wire->is_read(conn);
}

/* May it have contents that somebody reads: this thread, a device, or the other end? */
static int reads_on(struct rondo_tensor_conn *conn)
{
    return conn->wire != NULL && ((conn->busy && conn->wire->revoke == NULL) || is_read(conn));
}

/* End what a broken connection still has. Somebody who is in its wire closes it when it is back. */
static void try_close(struct rondo_tensor_conn *conn)
{
    if (conn->busy || is_read(conn)) {
        return;
    }
    if (conn->wire != NULL) {
        conn->wire->close(conn);
        conn->wire = NULL;
    }
    conn->closing = 0;
    rondo_tensor_responses_drop(conn);
    rondo_tensor_pulls_drop(conn->core, conn, conn->failure, conn->failure_text);
}

void rondo_tensor_conns_settle(struct rondo_tensor_core *core)
{
    for (struct rondo_tensor_conn *conn = core->conns; conn != NULL; conn = conn->next) {
        if (conn->closing) {
            try_close(conn);
        }
    }
}

void rondo_tensor_conn_break(struct rondo_tensor_conn *conn, rondo_status status)
{
    struct rondo_tensor_core *core = conn->core;
    if (conn->state == RONDO_TENSOR_CONN_BROKEN) {
        return;
    }
    if (conn->state == RONDO_TENSOR_CONN_OPEN) {
        core->nnet -= conn->wire->over_net;
    } else {
        core->nopening--;
    }
    rondo_tensor_conn_doom(conn, status);
    conn->state = RONDO_TENSOR_CONN_BROKEN;
    if (core->failure == RONDO_SUCCESS && !conn->end_came && conn->peer != core->rank) {
        say_end(conn);
    }
    RONDO_INFO(RONDO_SUBSYS_NET, "rank %d: the connection for tensors with rank %d ended: %s", core->rank,
               conn->peer, conn->failure_text);
    if (conn->wire != NULL && conn->wire->revoke != NULL) {
        conn->wire->revoke(conn); /* before contents are given back */
    }
    conn->closing = 1;
    try_close(conn);
    if (conn->closing && !reads_on(conn)) {
        rondo_tensor_responses_drop(conn);
    }
    if (conn->closing) { /* those that nobody writes to */
        rondo_tensor_pulls_drop(core, conn, conn->failure, conn->failure_text);
    }
}

void rondo_tensor_conn_doom(struct rondo_tensor_conn *conn, rondo_status status)
{
    if (status != RONDO_SUCCESS && conn->failure == RONDO_SUCCESS) {
        conn->failure = status;
        snprintf(conn->failure_text, sizeof(conn->failure_text), "%s", rondo_error_text());
    }
}

/* ---- messages out ---- */

static rondo_status queue_room(struct rondo_tensor_conn *conn, size_t bytes)
{
    uint8_t *queue;
    size_t used = conn->queue_end - conn->queue_first, size = rondo_max_size(conn->queue_size, 4096);
    if (conn->queue_size - conn->queue_end >= bytes) {
        return RONDO_SUCCESS;
    }
    while (size < 2 * (used + bytes)) {
        size *= 2;
    }
    RONDO_TRY(RONDO_NEW_ARRAY(queue, size, "messages about tensors"));
    if (used > 0) {
        memcpy(queue, conn->queue + conn->queue_first, used);
    }
    rondo_free(conn->queue);
    conn->queue = queue;
    conn->queue_size = size;
    conn->tail.at -= conn->tail.count > 0 ? conn->queue_first : 0;
    conn->queue_first = 0;
    conn->queue_end = used;
    return RONDO_SUCCESS;
}

static void count_message(rondo_tensor_stats *stats, enum rondo_tensor_type type)
{
    switch (type) {
    case RONDO_TENSOR_TENSOR_REQUEST:
    case RONDO_TENSOR_NUMBERED_REQUEST:
    case RONDO_TENSOR_REPEAT_REQUEST:
    case RONDO_TENSOR_REPEAT_TO_PLACE: stats->requests++; break;
    case RONDO_TENSOR_TENSOR_RE_REQUEST: stats->re_requests++; break;
    case RONDO_TENSOR_META_DATA_RESPONSE: stats->meta_data++; break;
    case RONDO_TENSOR_ERROR_STATUS: stats->errors++; break;
    default: stats->other_messages++;
    }
}

/* The run that messages of a type become. @return RONDO_TENSOR_NUM_TYPES: they become none. */
static enum rondo_tensor_type run_of(const struct rondo_tensor_conn *conn, enum rondo_tensor_type type)
{
    if (conn->version < RONDO_TENSOR_RUNS_VERSION) {
        return RONDO_TENSOR_NUM_TYPES;
    }
    return type == RONDO_TENSOR_REPEAT_REQUEST ? RONDO_TENSOR_REPEAT_RUN
           : type == RONDO_TENSOR_DELIVERED    ? RONDO_TENSOR_DELIVERED_RUN
                                               : RONDO_TENSOR_NUM_TYPES;
}

static int continues(const struct rondo_tensor_tail *tail, enum rondo_tensor_type run,
                     const struct rondo_tensor_message *m)
{
    return tail->count > 0 && tail->count < RONDO_TENSOR_NUMBERS && tail->type == run &&
           tail->index + tail->count == m->index && tail->epoch == m->epoch && tail->flags == m->flags &&
           (run == RONDO_TENSOR_DELIVERED_RUN ||
            (tail->step == m->step && tail->number + tail->count == m->number));
}

/* The last message of the queue becomes a run, or a longer one. Called with room for a message. */
static void lengthen(struct rondo_tensor_conn *conn)
{
    struct rondo_tensor_tail *tail = &conn->tail;
    uint8_t *at = conn->queue + tail->at;
    if (++tail->count == 2) {
        const struct rondo_tensor_message run = { .type = tail->type,
                                                  .flags = tail->flags,
                                                  .index = tail->index,
                                                  .epoch = tail->epoch,
                                                  .step = tail->step,
                                                  .number = tail->number };
        tail->bytes = rondo_tensor_encode(&run, at, RONDO_TENSOR_MAX_MESSAGE);
        conn->queue_end = tail->at + tail->bytes;
    }
    rondo_tensor_encode_count(at, tail->bytes, tail->count);
}

static rondo_status queue_message(struct rondo_tensor_conn *conn, struct rondo_tensor_message *message)
{
    enum rondo_tensor_type run = run_of(conn, message->type);
    RONDO_TRY(queue_room(conn, RONDO_TENSOR_MAX_MESSAGE));
    count_message(&conn->core->stats, message->type);
    if (continues(&conn->tail, run, message)) {
        lengthen(conn);
        return RONDO_SUCCESS;
    }
    size_t bytes = rondo_tensor_encode(message, conn->queue + conn->queue_end,
                                       conn->queue_size - conn->queue_end);
    if (bytes == 0) {
        return rondo_fail(RONDO_INTERNAL_ERROR, "a tensor message of type %d has no room",
                          (int)message->type);
    }
    conn->tail = (struct rondo_tensor_tail){ .type = run,
                                             .at = conn->queue_end,
                                             .bytes = bytes,
                                             .count = run != RONDO_TENSOR_NUM_TYPES,
                                             .flags = message->flags,
                                             .index = message->index,
                                             .epoch = message->epoch,
                                             .number = message->number,
                                             .step = message->step };
    conn->queue_end += bytes;
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_say(struct rondo_tensor_conn *conn, struct rondo_tensor_message *message)
{
    conn->urgent = 1;
    return queue_message(conn, message);
}

rondo_status rondo_tensor_say_later(struct rondo_tensor_conn *conn, struct rondo_tensor_message *message)
{
    if (!conn->core->has_thread) {
        return rondo_tensor_say(conn, message); /* who knows when the next call comes */
    }
    if (conn->queue_first == conn->queue_end) {
        conn->later_ns = rondo_now_ns() + RONDO_TENSOR_LATER_NS;
    }
    return queue_message(conn, message);
}

int rondo_tensor_conn_has_enough(const struct rondo_tensor_conn *conn)
{
    return conn->queue_end - conn->queue_first >= conn->core->message_bytes ||
           conn->tail.count >= ENOUGH_REQUESTS;
}

/* Take whole messages off the queue, as many as fit. */
static size_t fill_buffer(struct rondo_tensor_conn *conn, uint8_t *buffer)
{
    size_t room = conn->core->message_bytes - RONDO_TENSOR_BATCH_HEAD, bytes = 0, left;
    for (;;) {
        const uint8_t *message = conn->queue + conn->queue_first + bytes;
        left = conn->queue_end - conn->queue_first - bytes;
        size_t length = left > 0 ? (size_t)message[2] << 8 | message[3] : 0;
        if (length == 0 || bytes + length > room) {
            break;
        }
        bytes += length;
    }
    memcpy(buffer + RONDO_TENSOR_BATCH_HEAD, conn->queue + conn->queue_first, bytes);
    rondo_tensor_batch_encode(buffer, conn->version, RONDO_TENSOR_BATCH_HEAD + bytes, conn->written + 1);
    return bytes;
}

static rondo_status write_messages(struct rondo_tensor_conn *conn)
{
    if (conn->queue_first == conn->queue_end || conn->local_busy || conn->remote_busy ||
        (!conn->urgent && rondo_now_ns() < conn->later_ns)) {
        return RONDO_SUCCESS;
    }
    size_t bytes = fill_buffer(conn, conn->wire->buffer(conn));
    conn->local_busy = conn->remote_busy = 1;
    rondo_status status = conn->wire->write(conn, RONDO_TENSOR_BATCH_HEAD + bytes);
    if (status != RONDO_SUCCESS) {
        conn->local_busy = conn->remote_busy = 0;
        return status;
    }
    conn->busy_ns = rondo_now_ns();
    conn->written++;
    conn->core->stats.message_writes++;
    conn->queue_first += bytes;
    conn->tail.count = 0; /* it was taken, or is behind what was */
    if (conn->queue_first == conn->queue_end) {
        conn->queue_first = conn->queue_end = 0;
        conn->urgent = 0;
    }
    return RONDO_SUCCESS;
}

/* Is the acknowledgement that is owed lost? By a test's fault only. */
static int ack_is_lost(const struct rondo_tensor_conn *conn)
{
    return rondo_fault("tensor_ack", conn->core->rank, conn->came) != RONDO_SUCCESS;
}

static rondo_status write_acks(struct rondo_tensor_conn *conn)
{
    while (conn->owes_acks > 0) {
        if (!ack_is_lost(conn)) {
            RONDO_TRY(conn->wire->ack(conn));
            conn->core->stats.acks++;
        }
        conn->owes_acks--;
    }
    return RONDO_SUCCESS;
}

int rondo_tensor_ack_rides(struct rondo_tensor_conn *conn)
{
    if (conn->owes_acks > 0 && ack_is_lost(conn)) {
        conn->owes_acks--;
        return 0;
    }
    return conn->owes_acks > 0;
}

void rondo_tensor_ack_rode(struct rondo_tensor_conn *conn)
{
    conn->owes_acks--;
    conn->core->stats.acks++;
}

/* As many as the wire takes now, which may gather small ones until its flush. */
static rondo_status begin_contents(struct rondo_tensor_conn *conn)
{
    rondo_status status = RONDO_SUCCESS;
    while (conn->sends.first != NULL && status == RONDO_SUCCESS) {
        struct rondo_tensor_response *response = conn->sends.first;
        uint64_t bytes = response->meta.bytes;
        rondo_tensor_queue_remove(&conn->sends, response);
        response->state = RONDO_TENSOR_SENDING;
        status = conn->wire->content(conn, response); /* it may be gone after success */
        if (status == RONDO_SUCCESS) {
            conn->core->stats.contents++;
            conn->core->stats.content_bytes += bytes;
        } else { /* first again */
            response->state = RONDO_TENSOR_QUEUED;
            rondo_tensor_queue_insert(&conn->sends, response, NULL);
        }
    }
    return status;
}

static rondo_status write_contents(struct rondo_tensor_conn *conn)
{
    rondo_status status = begin_contents(conn);
    if (conn->wire->flush != NULL && (status == RONDO_SUCCESS || status == RONDO_IN_PROGRESS)) {
        rondo_status flushed = conn->wire->flush(conn);
        status = flushed != RONDO_SUCCESS ? flushed : status;
    }
    return status;
}

rondo_status rondo_tensor_conn_send_early(struct rondo_tensor_conn *conn)
{
    rondo_status status = conn->wire->takes_acks ? RONDO_SUCCESS : write_acks(conn);
    if (status == RONDO_SUCCESS || status == RONDO_IN_PROGRESS) {
        status = begin_contents(conn);
    }
    return status == RONDO_IN_PROGRESS ? RONDO_SUCCESS : status;
}

static rondo_status write_all(struct rondo_tensor_conn *conn)
{
    const struct rondo_tensor_response *first = conn->sends.first;
    int one = first != NULL && first->next == NULL; /* somebody waits for it */
    int takes_ack = conn->wire->takes_acks &&
                    (conn->wire->offer == NULL || (first != NULL && (first->flags & RONDO_TENSOR_FRAMED)));
    rondo_status status = one || takes_ack ? write_contents(conn) : RONDO_SUCCESS;
    if (status == RONDO_SUCCESS || status == RONDO_IN_PROGRESS) {
        status = write_acks(conn);
    }
    if (status == RONDO_SUCCESS || status == RONDO_IN_PROGRESS) {
        status = write_messages(conn);
    }
    if (status == RONDO_SUCCESS || status == RONDO_IN_PROGRESS) {
        status = write_contents(conn);
    }
    if (conn->urgent && (status == RONDO_SUCCESS || status == RONDO_IN_PROGRESS)) {
        status = write_messages(conn); /* that there is no content (rondo_tensor_unable) */
    }
    return status == RONDO_IN_PROGRESS ? RONDO_SUCCESS : status;
}

void rondo_tensor_conn_flush(struct rondo_tensor_conn *conn)
{
    if (conn->state == RONDO_TENSOR_CONN_OPEN) {
        rondo_status status = write_all(conn);
        if (status != RONDO_SUCCESS) {
            rondo_tensor_conn_break(conn, status);
        }
    }
}

void rondo_tensor_flush_all(struct rondo_tensor_core *core)
{
    for (struct rondo_tensor_conn *conn = core->conns; conn != NULL; conn = conn->next) {
        rondo_tensor_conn_flush(conn);
    }
}

void rondo_tensor_conn_send(struct rondo_tensor_conn *conn, struct rondo_tensor_response *response)
{
    response->state = RONDO_TENSOR_QUEUED;
    rondo_tensor_queue_insert(&conn->sends, response, conn->sends.last);
}

void rondo_tensor_written(struct rondo_tensor_conn *conn) { conn->local_busy = 0; }

/* ---- messages in ---- */

static rondo_status dispatch(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m)
{
    switch (m->type) {
    case RONDO_TENSOR_TENSOR_REQUEST: return rondo_tensor_on_request(conn, m);
    case RONDO_TENSOR_META_DATA_RESPONSE: return rondo_tensor_on_meta_data(conn, m);
    case RONDO_TENSOR_TENSOR_RE_REQUEST: return rondo_tensor_on_re_request(conn, m);
    case RONDO_TENSOR_ERROR_STATUS: return rondo_tensor_on_error(conn, m);
    case RONDO_TENSOR_CANCEL: return rondo_tensor_on_cancel(conn, m);
    case RONDO_TENSOR_DELIVERED: return rondo_tensor_on_delivered(conn, m);
    case RONDO_TENSOR_LOCATE: return rondo_tensor_on_locate(conn, m);
    case RONDO_TENSOR_LOCATION: return rondo_tensor_on_location(conn, m);
    case RONDO_TENSOR_ANNOUNCE: return rondo_tensor_on_announce(conn, m);
    case RONDO_TENSOR_CANCELLED: return rondo_tensor_on_cancelled(conn, m);
    case RONDO_TENSOR_NUMBERED_REQUEST:
    case RONDO_TENSOR_REPEAT_REQUEST:
    case RONDO_TENSOR_REPEAT_TO_PLACE: return rondo_tensor_on_numbered(conn, m);
    case RONDO_TENSOR_REPEAT_RUN: return rondo_tensor_on_run(conn, m);
    case RONDO_TENSOR_DELIVERED_RUN: return rondo_tensor_on_delivered_run(conn, m);
    default: return RONDO_INTERNAL_ERROR;
    }
}

static rondo_status read_messages(struct rondo_tensor_conn *conn, const uint8_t *data, size_t bytes)
{
    size_t at = RONDO_TENSOR_BATCH_HEAD, end, used = 0;
    RONDO_TRY(rondo_tensor_batch_decode(data, bytes, conn->version, conn->came, &end));
    for (; at < end; at += used) {
        struct rondo_tensor_message message;
        RONDO_TRY(rondo_tensor_decode(data + at, end - at, &message, &used));
        RONDO_TRY(dispatch(conn, &message));
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_message_came(struct rondo_tensor_conn *conn, const uint8_t *data, size_t bytes)
{
    char text[RONDO_ERROR_TEXT], who[96];
    int early = bytes > conn->core->message_bytes / 2; /* others wait: they can be written meanwhile */
    conn->came++;
    conn->owes_acks++;
    if (early) {
        rondo_status acked = write_acks(conn);
        RONDO_TRY(acked == RONDO_IN_PROGRESS ? RONDO_SUCCESS : acked);
    }
    rondo_status status = read_messages(conn, data, bytes);
    if (status != RONDO_REMOTE_ERROR) {
        return status;
    }
    snprintf(text, sizeof(text), "%s", rondo_error_text());
    return rondo_fail(
        RONDO_REMOTE_ERROR, "rank %d on %s got from %s, and ends their connection for tensors: %s",
        conn->core->rank, rondo_log_host(), rondo_tensor_who(conn->core, conn->peer, who), text);
}

rondo_status rondo_tensor_ack_came(struct rondo_tensor_conn *conn)
{
    char who[96];
    if (!conn->remote_busy) {
        return rondo_fail(
            RONDO_REMOTE_ERROR,
            "rank %d on %s got an acknowledgement from %s for no message, and ends their connection "
            "for tensors",
            conn->core->rank, rondo_log_host(), rondo_tensor_who(conn->core, conn->peer, who));
    }
    conn->remote_busy = 0;
    return RONDO_SUCCESS;
}

/* ---- progress ---- */

rondo_status rondo_tensor_conn_progress(struct rondo_tensor_conn *conn, int *moved)
{
    rondo_status status = RONDO_SUCCESS;
    if (conn->busy || conn->state == RONDO_TENSOR_CONN_BROKEN) {
        if (conn->owes_end) {
            say_end(conn);
        }
        if (conn->closing) {
            try_close(conn);
        }
        return RONDO_SUCCESS;
    }
    if (conn->failure != RONDO_SUCCESS) {
        rondo_tensor_conn_break(conn, conn->failure);
        return RONDO_SUCCESS;
    }
    if (conn->state != RONDO_TENSOR_CONN_OPEN) {
        status = connect_step(conn);
        *moved |= status == RONDO_SUCCESS;
        status = status == RONDO_IN_PROGRESS ? RONDO_SUCCESS : status;
    }
    if (conn->state == RONDO_TENSOR_CONN_OPEN) {
        conn->busy = 1;
        status = conn->wire->progress(conn, moved);
        conn->busy = 0;
        if (conn->closing) { /* broken by another thread meanwhile */
            try_close(conn);
            return RONDO_SUCCESS;
        }
        status = status == RONDO_SUCCESS ? write_all(conn) : status;
    }
    if (status != RONDO_SUCCESS) {
        rondo_tensor_conn_break(conn, status);
    }
    return RONDO_SUCCESS;
}

void rondo_tensor_conns_release(struct rondo_tensor_core *core)
{
    while (core->conns != NULL) {
        struct rondo_tensor_conn *conn = core->conns;
        core->conns = conn->next;
        if (conn->wire != NULL) {
            conn->wire->close(conn);
        }
        rondo_tensor_map_release(&conn->responses);
        rondo_tensor_map_release(&conn->locates);
        rondo_tensor_map_release(&conn->later);
        rondo_tensor_numbers_release(&conn->numbers);
        rondo_free(conn->queue);
        rondo_free(conn);
    }
    rondo_free(core->conn_of);
    core->conn_of = NULL;
    if (core->holds_netdevs) {
        rondo_netdev_finalize();
        core->holds_netdevs = 0;
    }
}
