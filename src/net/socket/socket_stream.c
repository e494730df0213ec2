/* Messages over the connections of a comm: frames, parts, matching of receives, and detection of links
 * that do not answer. */
#include "net/socket/socket.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "base/log.h"
#include "base/param.h"
#include "base/wait.h"

enum {
    CALLS = 16,      /* most system calls of a connection in one call of test */
    PIECES = 24,     /* iovecs of a gathered call */
    CLOCK_TESTS = 64 /* calls of test without progress between two looks at the clock */
};

/* ---- requests ---- */

static rondo_status comm_usable(struct rondo_socket_comm *comm, int is_send)
{
    if (comm->status != RONDO_SUCCESS) {
        return rondo_socket_ended(comm);
    }
    if (!comm->connected || comm->is_send != is_send) {
        return rondo_fail(RONDO_INVALID_USAGE, "a socket comm to rank %d is asked to %s, but it %s",
                          comm->peer.rank, is_send ? "send" : "receive",
                          comm->connected ? "goes the other way" : "is not connected yet");
    }
    return RONDO_SUCCESS;
}

static struct rondo_socket_request *request_new(struct rondo_socket_comm *comm, int n)
{
    for (int i = 0; i < RONDO_NET_MAX_REQUESTS; i++) {
        struct rondo_socket_request *request = &comm->request[i];
        if (!request->used) {
            request->comm = comm;
            request->used = 1;
            request->n = request->left = n;
            request->empty = (1u << n) - 1;
            request->head = NULL;
            request->head_bytes = 0;
            rondo_net_events_begin(&request->events);
            return request;
        }
    }
    return NULL;
}

/* ---- destinations of a message's bytes ---- */

/* Connections from 1 on only see messages with several parts. */
static int is_helped(const struct rondo_socket_comm *comm, int i) { return i > 0 && i < comm->nconns; }

static uint64_t end_of(const struct rondo_socket_comm *comm, int i)
{
    return is_helped(comm, i) ? __atomic_load_n(&comm->published, __ATOMIC_ACQUIRE) : comm->head;
}

static struct rondo_socket_message *message_at(struct rondo_socket_comm *comm, int i, uint64_t seq)
{
    uint64_t place = seq % RONDO_SOCKET_MESSAGES;
    return &comm->message[is_helped(comm, i) ? comm->spread[place] : place];
}

/* Let connections from 1 on move all messages so far. The caller no longer changes these messages' memory. */
static void publish(struct rondo_socket_comm *comm)
{
    if (comm->published != comm->nspread) {
        __atomic_store_n(&comm->published, comm->nspread, __ATOMIC_SEQ_CST);
        rondo_socket_help_wake(comm);
    }
}

/* Somebody watches: an event for each connection that has a part. */
static void tell_parts(const struct rondo_socket_comm *comm, const struct rondo_socket_message *message)
{
    for (int i = 0; i < comm->nconns && (i == 0 || (size_t)i * message->part < message->bytes); i++) {
        size_t from = (size_t)i * message->part;
        struct rondo_net_socket_event event = {
            .type = 1,
            .socket = { .fd = comm->conn[i == 0 && message->lane ? comm->lane : i].fd,
                        .op = !comm->is_send,
                        .bytes = rondo_min_size(message->part, message->bytes - from) }
        };
        rondo_net_events_add(&message->request->events, RONDO_NET_KIND_SOCKET, &event);
    }
}

/* The entry is free: a request is not done before all connections have passed its messages, so at most the
 * messages of all requests are remembered. */
static struct rondo_socket_message *message_new(struct rondo_socket_comm *comm,
                                                struct rondo_socket_request *request, void *data,
                                                size_t bytes)
{
    struct rondo_socket_message *message = &comm->message[comm->head % RONDO_SOCKET_MESSAGES];
    size_t nconns = (size_t)comm->nconns;
    *message = (struct rondo_socket_message){ .request = request,
                                              .head = request->head,
                                              .head_bytes = (uint32_t)request->head_bytes,
                                              .data = data,
                                              .bytes = bytes,
                                              .left = 1 + (comm->lane != 0),
                                              .lane = comm->is_send
                                                          ? comm->lane && bytes <= RONDO_SOCKET_SMALL
                                                          : comm->at != 0 };
    message->switches = comm->is_send && message->lane != (comm->at != 0);
    comm->at = message->lane ? comm->lane : 0;
    message->part = rondo_max_size(bytes / nconns + (bytes % nconns != 0), comm->least_part);
    if (bytes > message->part) {
        message->left += comm->nconns - 1;
        comm->spread[comm->nspread++ % RONDO_SOCKET_MESSAGES] = (uint8_t)(comm->head % RONDO_SOCKET_MESSAGES);
    }
    message->frame = (struct rondo_socket_frame){ .bytes = bytes,
                                                  .check = RONDO_SOCKET_MAGIC + (uint32_t)comm->head };
    comm->head++;
    if (RONDO_UNLIKELY(request->events.parent != NULL)) {
        tell_parts(comm, message);
    }
    return message;
}

/* What connection i moves for a message: a frame if any, and a part, whose first bytes may lie elsewhere
 * (heads are shorter than parts); or the switch before it. */
enum { OF_MESSAGE = 3 };
static const struct rondo_socket_frame elsewhere = { .bytes = UINT64_MAX, .check = RONDO_SOCKET_MAGIC };
static void pieces_of(const struct rondo_socket_comm *comm, struct rondo_socket_message *message, int i,
                      struct iovec piece[OF_MESSAGE])
{
    int by_lane = i >= comm->nconns, k = by_lane ? 0 : i;
    if (by_lane != message->lane) {
        piece[0] = (struct iovec){ (void *)&elsewhere, message->switches && k == 0 ? sizeof elsewhere : 0 };
        piece[1] = piece[2] = (struct iovec){ NULL, 0 };
        return;
    }
    size_t from = rondo_min_size((size_t)k * message->part, message->bytes),
           bytes = rondo_min_size(message->part, message->bytes - from);
    size_t head = k == 0 ? rondo_min_size(message->head_bytes, bytes) : 0;
    piece[0] = (struct iovec){ &message->frame, comm->is_send && k == 0 ? sizeof message->frame : 0 };
    piece[1] = (struct iovec){ message->head, head };
    piece[2] = (struct iovec){ bytes > head ? message->data + (from + head - message->head_bytes) : NULL,
                               bytes - head };
}

/* Gather the next bytes of connection i's stream, from as many messages up to `end` as fit. */
static int gather(struct rondo_socket_comm *comm, int i, uint64_t end, struct iovec *piece, int most)
{
    const struct rondo_socket_conn *conn = &comm->conn[i];
    size_t skip = conn->offset;
    int n = 0;
    for (uint64_t seq = conn->seq; seq < end && n + OF_MESSAGE <= most; seq++) {
        struct iovec of[OF_MESSAGE];
        pieces_of(comm, message_at(comm, i, seq), i, of);
        for (int k = 0; k < OF_MESSAGE; k++) {
            size_t skipped = rondo_min_size(skip, of[k].iov_len);
            skip -= skipped;
            if (of[k].iov_len > skipped) {
                piece[n++] = (struct iovec){ (char *)of[k].iov_base + skipped, of[k].iov_len - skipped };
            }
        }
    }
    return n;
}

static void message_done(struct rondo_socket_message *message)
{
    if (__atomic_sub_fetch(&message->left, 1, __ATOMIC_ACQ_REL) == 0) {
        __atomic_sub_fetch(&message->request->left, 1, __ATOMIC_RELEASE); /* last access to either */
    }
}

/* Connection i has moved `bytes` more: pass messages up to `end` that have nothing (more) for it. */
static void advance(struct rondo_socket_comm *comm, int i, uint64_t end, size_t bytes)
{
    struct rondo_socket_conn *conn = &comm->conn[i];
    while (conn->seq < end) {
        struct rondo_socket_message *message = message_at(comm, i, conn->seq);
        struct iovec of[OF_MESSAGE];
        pieces_of(comm, message, i, of);
        size_t here = of[0].iov_len + of[1].iov_len + of[2].iov_len - conn->offset;
        if (bytes < here) {
            conn->offset += bytes;
            return;
        }
        bytes -= here;
        conn->offset = 0;
        __atomic_store_n(&conn->seq, conn->seq + 1, __ATOMIC_RELAXED);
        message_done(message);
    }
}

/* With one piece, a plain call is 10 to 25 % cheaper than a gathered one, which matters for small
 * messages. */
static ssize_t call(int fd, int is_send, struct iovec *piece, int n)
{
    struct msghdr header = { .msg_iov = piece, .msg_iovlen = (size_t)n };
    if (n == 1) {
        return is_send ? send(fd, piece->iov_base, piece->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                       : recv(fd, piece->iov_base, piece->iov_len, MSG_DONTWAIT);
    }
    return is_send ? sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) : recvmsg(fd, &header, MSG_DONTWAIT);
}

/* Make one call on connection i. *moved less than asked: no more can move now. @return as
 * rondo_socket_conn_move */
static int try_move(struct rondo_socket_comm *comm, int i, struct iovec *piece, int n, size_t *moved)
{
    ssize_t bytes;
    do {
        bytes = call(comm->conn[i].fd, comm->is_send, piece, n);
    } while (bytes < 0 && errno == EINTR);
    *moved = bytes > 0 ? (size_t)bytes : 0;
    if (bytes > 0) {
        __atomic_store_n(&comm->stalled_ns, 0, __ATOMIC_RELAXED);
        return RONDO_SOCKET_FINE;
    }
    if (bytes < 0 && errno == EAGAIN) {
        return RONDO_SOCKET_FINE;
    }
    return bytes < 0 ? errno : 0;
}

static rondo_status lost_if(struct rondo_socket_comm *comm, int error)
{
    return error == RONDO_SOCKET_FINE
               ? RONDO_SUCCESS
               : rondo_socket_lost(comm, error, comm->is_send ? "sending" : "receiving");
}

static rondo_status move(struct rondo_socket_comm *comm, int i, struct iovec *piece, int n, size_t *moved)
{
    return lost_if(comm, try_move(comm, i, piece, n, moved));
}

/* Copy small pieces together in a sender's free stage. @return pieces */
static int copy_together(struct rondo_socket_comm *comm, struct iovec *piece, int n, size_t bytes)
{
    if (n < 2 || bytes > RONDO_SOCKET_COPIED) {
        return n;
    }
    for (size_t k = 0, at = 0; k < (size_t)n; at += piece[k++].iov_len) {
        memcpy(comm->stage[0].bytes + at, piece[k].iov_base, piece[k].iov_len);
    }
    piece[0] = (struct iovec){ comm->stage[0].bytes, bytes };
    return 1;
}

/* Everything a sender does, and a receiver on connections without frames. */
int rondo_socket_conn_move(struct rondo_socket_comm *comm, int i, int *left)
{
    const uint64_t end = end_of(
        comm, i); /* once: what is published meanwhile may have nothing for this connection */
    struct iovec piece[PIECES];
    int error = RONDO_SOCKET_FINE;
    advance(comm, i, end, 0);
    for (int call = 0; call < CALLS && error == RONDO_SOCKET_FINE && comm->conn[i].seq < end; call++) {
        size_t asked = 0, moved;
        int n = gather(comm, i, end, piece, PIECES);
        for (int k = 0; k < n; k++) {
            asked += piece[k].iov_len;
        }
        n = comm->is_send && !is_helped(comm, i) ? copy_together(comm, piece, n, asked) : n;
        error = try_move(comm, i, piece, n, &moved);
        advance(comm, i, end, moved);
        if (moved < asked) {
            break;
        }
    }
    *left = comm->conn[i].seq < end;
    return error;
}

static rondo_status conn_move(struct rondo_socket_comm *comm, int i)
{
    int left;
    return lost_if(comm, rondo_socket_conn_move(comm, i, &left));
}

/* ---- receiving on connection 0, or the lane ---- */

/* The stage of the connection that brings the next frame: what was read ahead there. */
static struct rondo_socket_stage *stage_of(struct rondo_socket_comm *comm)
{
    return &comm->stage[comm->at != 0];
}

/* The receive that is next; NULL: none is posted. */
static struct rondo_socket_request *receive_next(struct rondo_socket_comm *comm)
{
    return comm->matched < comm->posted ? comm->order[comm->matched % RONDO_NET_MAX_REQUESTS] : NULL;
}

static int part_for(const struct rondo_socket_request *request, int tag)
{
    for (int part = 0; part < request->n; part++) {
        if ((request->empty >> part & 1) && request->tags[part] == tag) {
            return part;
        }
    }
    return -1;
}

/* Process the frame in the stage. */
static rondo_status frame_take(struct rondo_socket_comm *comm)
{
    struct rondo_socket_request *request = receive_next(comm);
    struct rondo_socket_stage *stage = stage_of(comm);
    struct rondo_socket_frame frame;
    memcpy(&frame, stage->bytes + stage->from, sizeof frame);
    stage->from += sizeof frame;
    if (frame.bytes == elsewhere.bytes && frame.check == elsewhere.check && comm->lane != 0) {
        comm->at = comm->at == 0 ? comm->lane : 0;
        return RONDO_SUCCESS;
    }
    if (frame.check != RONDO_SOCKET_MAGIC + (uint32_t)comm->head) {
        return rondo_socket_lost(comm, -1, "receiving");
    }
    int part = part_for(request, frame.tag);
    if (part < 0) {
        return rondo_socket_end(comm, RONDO_INVALID_USAGE,
                                "message %llu has tag %d, which no part of the next receive expects (it "
                                "has %d parts, the first of tag %d)",
                                (unsigned long long)comm->head, frame.tag, request->n, request->tags[0]);
    }
    if (frame.bytes > request->bytes[part]) {
        return rondo_socket_end(comm, RONDO_INVALID_USAGE,
                                "message %llu of tag %d has %llu bytes, but the receive has room for %zu; do "
                                "both ranks call with the same count and type?",
                                (unsigned long long)comm->head, frame.tag, (unsigned long long)frame.bytes,
                                request->bytes[part]);
    }
    request->empty &= ~(1u << part);
    request->bytes[part] = (size_t)frame.bytes;
    comm->matched += request->empty == 0;
    const struct rondo_socket_message *message = message_new(comm, request, request->data[part],
                                                             (size_t)frame.bytes);
    stage->last = rondo_min_size(message->part, message->bytes);
    return RONDO_SUCCESS;
}

/* Read more bytes behind those in the stage. *calls 0: no more can move now. */
static rondo_status stage_fill(struct rondo_socket_comm *comm, int *calls)
{
    struct rondo_socket_stage *stage = stage_of(comm);
    size_t moved, waiting = stage->to - stage->from;
    memmove(stage->bytes, stage->bytes + stage->from, waiting);
    stage->from = 0;
    stage->to = waiting;
    struct iovec piece = { stage->bytes + waiting, RONDO_SOCKET_READ - waiting };
    RONDO_TRY(move(comm, comm->at, &piece, 1, &moved));
    stage->to += moved;
    *calls = moved < piece.iov_len ? 0 : *calls - 1;
    return RONDO_SUCCESS;
}

rondo_status rondo_socket_stage_room(struct rondo_socket_comm *comm, struct rondo_socket_stage *stage,
                                     size_t bytes)
{
    uint8_t *larger = bytes > stage->room ? realloc(stage->bytes, bytes) : stage->bytes;
    if (!larger) {
        return rondo_socket_end(comm, RONDO_SYSTEM_ERROR, "no memory on host %s for %zu bytes of messages",
                                rondo_log_host(), bytes);
    }
    stage->bytes = larger;
    stage->room = rondo_max_size(stage->room, bytes);
    return RONDO_SUCCESS;
}

/* Copy a receive's memory from `from` on to the stage. */
static void stage_copy(uint8_t *stage, const struct rondo_socket_request *request, size_t from, size_t bytes)
{
    size_t head = from < request->head_bytes ? rondo_min_size(request->head_bytes - from, bytes) : 0;
    if (head > 0) {
        memcpy(stage, (const uint8_t *)request->head + from, head);
    }
    if (bytes > head) {
        memcpy(stage + head, (const uint8_t *)request->data[0] + (from + head - request->head_bytes),
               bytes - head);
    }
}

/* Sort a read that began with a frame, which is in the stage: `direct` bytes behind it are at the
 * request's destination; those of later messages move to the stage. */
static rondo_status frame_sort(struct rondo_socket_comm *comm, const struct rondo_socket_request *request,
                               size_t direct)
{
    struct rondo_socket_stage *stage = stage_of(comm);
    uint64_t before = comm->head;
    int at = comm->at;
    RONDO_TRY(frame_take(comm));
    size_t mine = comm->head > before ? rondo_min_size(direct, stage->last) : 0 /* a switch */,
           later = direct - mine;
    if (later > 0) {
        RONDO_TRY(rondo_socket_stage_room(comm, stage, later));
        stage_copy(stage->bytes, request, mine, later);
        stage->from = 0;
        stage->to = later;
    }
    advance(comm, at, comm->head, mine);
    return RONDO_SUCCESS;
}

/* Is the destination of the next message known, and would stage_fill not read a message as long as the
 * last one whole? */
static int is_expected(const struct rondo_socket_comm *comm, const struct rondo_socket_request *request)
{
    size_t last = comm->stage[comm->at != 0].last;
    return request->n == 1 && sizeof(struct rondo_socket_frame) + last > RONDO_SOCKET_READ &&
           request->bytes[0] >= last && last >= request->head_bytes;
}

/* Read a frame, and its data into its destination. The stage is empty. */
static rondo_status frame_read(struct rondo_socket_comm *comm, const struct rondo_socket_request *request,
                               int *calls)
{
    struct rondo_socket_stage *stage = stage_of(comm);
    const size_t frame = sizeof(struct rondo_socket_frame), expected = stage->last,
                 head = request->head_bytes;
    struct iovec piece[3] = { { stage->bytes, frame },
                              { request->head, head },
                              { request->data[0], expected - head } };
    size_t moved;
    if (head == 0) {
        piece[1] = piece[2];
    }
    RONDO_TRY(move(comm, comm->at, piece, head == 0 ? 2 : 3, &moved));
    *calls = moved < frame + expected ? 0 : *calls - 1;
    stage->from = 0;
    stage->to = rondo_min_size(moved, frame);
    return moved < frame ? RONDO_SUCCESS : frame_sort(comm, request, moved - frame);
}

/* Read data of the current message into its destination, and what follows into the stage. */
static rondo_status data_read(struct rondo_socket_comm *comm, int *calls)
{
    struct rondo_socket_stage *stage = stage_of(comm);
    struct iovec piece[OF_MESSAGE + 1];
    int n = gather(comm, comm->at, comm->head, piece, OF_MESSAGE);
    size_t want = 0, moved;
    for (int k = 0; k < n; k++) {
        want += piece[k].iov_len;
    }
    piece[n] = (struct iovec){ stage->bytes, RONDO_SOCKET_READ };
    RONDO_TRY(move(comm, comm->at, piece, n + 1, &moved));
    stage->from = 0;
    stage->to = moved > want ? moved - want : 0;
    advance(comm, comm->at, comm->head, rondo_min_size(moved, want));
    *calls = moved < want + RONDO_SOCKET_READ ? 0 : *calls - 1;
    return RONDO_SUCCESS;
}

static void data_from_stage(struct rondo_socket_comm *comm)
{
    struct rondo_socket_stage *stage = stage_of(comm);
    struct iovec piece[OF_MESSAGE];
    gather(comm, comm->at, comm->head, piece, OF_MESSAGE);
    size_t bytes = rondo_min_size(piece[0].iov_len, stage->to - stage->from);
    memcpy(piece[0].iov_base, stage->bytes + stage->from, bytes);
    stage->from += bytes;
    advance(comm, comm->at, comm->head, bytes);
}

/* Read only when a receive asks for it: unrequested data stays in the peer's buffers. */
static rondo_status framed_receive(struct rondo_socket_comm *comm)
{
    for (int calls = CALLS;;) {
        publish(comm); /* bytes read beyond a message have left its memory */
        size_t waiting = stage_of(comm)->to - stage_of(comm)->from;
        advance(comm, 0, comm->head, 0);
        advance(comm, comm->lane, comm->head, 0);
        int in_message = comm->conn[comm->at].seq < comm->head;
        const struct rondo_socket_request *next = in_message ? NULL : receive_next(comm);
        if (!in_message && !next) {
            return RONDO_SUCCESS;
        }
        if (in_message && waiting > 0) {
            data_from_stage(comm);
        } else if (!in_message && waiting >= sizeof(struct rondo_socket_frame)) {
            RONDO_TRY(frame_take(comm));
        } else if (calls <= 0) {
            return RONDO_SUCCESS;
        } else if (in_message) {
            RONDO_TRY(data_read(comm, &calls));
        } else if (waiting == 0 && is_expected(comm, next)) {
            RONDO_TRY(frame_read(comm, next, &calls));
        } else {
            RONDO_TRY(stage_fill(comm, &calls));
        }
    }
}

/* ---- links that do not answer ---- */

/*
 * For a sender whose bytes are not accepted: does the other host's kernel answer at all? TCP_USER_TIMEOUT
 * cannot tell: it also ends a connection whose peer is alive and acknowledges, but does not read for that
 * long (a rank that computes). Receivers and idle connections rely on TCP keepalive, except a receiver whose
 * reverse comm has sent: unacknowledged data postpones keepalive. The kernel probes a closed window at
 * intervals as long as the window has been closed (120 s at most), so a link that died while the peer did not
 * read is noticed that late.
 */
static rondo_status watch(struct rondo_socket_comm *comm)
{
    const int64_t timeout_ms = rondo_params()->socket_timeout / 1000000;
    for (int i = 0; i < rondo_socket_conns(comm); i++) {
        struct tcp_info info;
        socklen_t bytes = sizeof info;
        memset(&info, 0, sizeof info);
        int at_rest = __atomic_load_n(&comm->conn[i].seq, __ATOMIC_RELAXED) >= end_of(comm, i);
        if ((comm->is_send && at_rest) ||
            getsockopt(comm->conn[i].fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) {
            continue;
        }
        int unanswered = info.tcpi_unacked > 0 ? info.tcpi_retransmits > 0 : info.tcpi_probes > 1;
        if (unanswered && info.tcpi_last_ack_recv >= timeout_ms) {
            return rondo_socket_lost(comm, ETIMEDOUT, comm->is_send ? "sending" : "receiving");
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status watch_sometimes(struct rondo_socket_comm *comm)
{
    const int64_t timeout_ns = rondo_params()->socket_timeout;
    if ((!comm->is_send && !comm->shared) || (comm->tests & (CLOCK_TESTS - 1)) != 0) {
        return RONDO_SUCCESS;
    }
    int64_t now_ns = rondo_now_ns();
    if (__atomic_load_n(&comm->stalled_ns, __ATOMIC_RELAXED) == 0) {
        __atomic_store_n(&comm->stalled_ns, now_ns, __ATOMIC_RELAXED);
        comm->watched_ns = now_ns;
    }
    if (now_ns - comm->watched_ns < timeout_ns / 8) {
        return RONDO_SUCCESS;
    }
    comm->watched_ns = now_ns;
    return watch(comm);
}

rondo_status rondo_socket_progress(struct rondo_socket_comm *comm)
{
    RONDO_TRY(comm->helpers != NULL ? lost_if(comm, rondo_socket_help_lost(comm)) : RONDO_SUCCESS);
    if (!comm->is_send) {
        RONDO_TRY(framed_receive(comm));
    }
    for (int i = 0; i < rondo_socket_conns(comm); i++) {
        if (is_helped(comm, i) ? comm->helpers == NULL : comm->is_send) {
            RONDO_TRY(conn_move(comm, i));
        }
    }
    return watch_sometimes(comm);
}

/* ---- the calls ---- */

rondo_status rondo_socket_isend(void *comm, const void *data, size_t bytes, int tag, void *region,
                                void **request)
{
    (void)region;
    return rondo_socket_isend_apart(comm, NULL, 0, data, bytes, tag, request);
}

rondo_status rondo_socket_isend_apart(void *arg, const void *head, size_t head_bytes, const void *data,
                                      size_t bytes, int tag, void **request)
{
    struct rondo_socket_comm *comm = arg;
    struct rondo_socket_request *sending;
    *request = NULL;
    RONDO_TRY(comm_usable(comm, 1));
    sending = request_new(comm, 1);
    if (!sending) {
        return RONDO_SUCCESS;
    }
    uint64_t next = comm->head;
    sending->head = (void *)head;
    sending->head_bytes = head_bytes;
    message_new(comm, sending, (void *)data, head_bytes + bytes)->frame.tag = tag;
    publish(comm);
    if (comm->conn[comm->at].seq == next) { /* nothing is queued before it: send now */
        rondo_status status = rondo_socket_progress(comm);
        if (status != RONDO_SUCCESS) {
            sending->used = 0;
            return status;
        }
    }
    *request = sending;
    return RONDO_SUCCESS;
}

rondo_status rondo_socket_irecv(void *arg, int n, void *const *data, const size_t *bytes, const int *tags,
                                void *const *regions, void **request)
{
    struct rondo_socket_comm *comm = arg;
    struct rondo_socket_request *receiving;
    (void)regions;
    *request = NULL;
    RONDO_TRY(comm_usable(comm, 0));
    if (n < 1 || n > RONDO_NET_MAX_RECVS) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "a receive has %d parts; allowed are 1 to %d", n,
                          RONDO_NET_MAX_RECVS);
    }
    receiving = request_new(comm, n);
    if (!receiving) {
        return RONDO_SUCCESS;
    }
    for (int i = 0; i < n; i++) {
        receiving->data[i] = data[i];
        receiving->bytes[i] = bytes[i];
        receiving->tags[i] = tags[i];
    }
    comm->order[comm->posted++ % RONDO_NET_MAX_REQUESTS] = receiving;
    *request = receiving;
    return RONDO_SUCCESS;
}

rondo_status rondo_socket_irecv_apart(void *arg, void *head, size_t head_bytes, void *data, size_t bytes,
                                      int tag, void **request)
{
    const size_t room = head_bytes + bytes;
    RONDO_TRY(rondo_socket_irecv(arg, 1, &data, &room, &tag, NULL, request));
    if (*request != NULL) {
        struct rondo_socket_request *receiving = *request;
        receiving->head = head;
        receiving->head_bytes = head_bytes;
    }
    return RONDO_SUCCESS;
}
