/* Receives and their clear-to-sends, flushes, completions, requests. Sending: verbs_send.c. */
#include "net/verbs/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

enum { POLL = 16, FLUSH_BYTES = 1 };

/* ---- requests ---- */

struct rondo_verbs_request *rondo_verbs_request_take(struct rondo_verbs_comm *comm,
                                                     enum rondo_verbs_kind kind, int most)
{
    struct rondo_verbs_request *request = comm->requests;
    if (comm->in_use[kind] >= most) {
        return NULL;
    }
    while (request->busy) {
        request++;
    }
    *request = (struct rondo_verbs_request){ .comm = comm, .kind = kind, .busy = 1 };
    comm->in_use[kind]++;
    return request;
}

static rondo_status bad_argument(const struct rondo_verbs_comm *comm, const char *what)
{
    return rondo_fail(RONDO_INVALID_ARGUMENT, "%s of %s with rank %d: %s",
                      comm->is_send ? "a send" : "a receive", comm->port->name, comm->peer.rank, what);
}

rondo_status rondo_verbs_comm_check(const struct rondo_verbs_comm *comm, int is_send)
{
    RONDO_TRY(rondo_verbs_comm_error(comm));
    if (!comm->connected || comm->is_send != is_send) {
        return bad_argument(comm, !comm->connected ? "it is not connected yet" : "wrong direction");
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_verbs_region_check(const struct rondo_verbs_comm *comm,
                                      const struct rondo_verbs_region *region, const void *data, size_t bytes)
{
    uintptr_t begin = (uintptr_t)data;
    if (bytes > comm->address.max_message) {
        return bad_argument(comm, "more bytes than the NIC can move at once");
    }
    if (bytes > 0 &&
        (region == NULL || begin < region->begin || begin > region->end || bytes > region->end - begin)) {
        return bad_argument(comm, "the region does not cover the data");
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_verbs_post(struct rondo_verbs_comm *comm, struct ibv_qp *qp, struct ibv_send_wr *wr,
                              const char *what)
{
    struct ibv_send_wr *bad;
    char ends[RONDO_VERBS_ENDS];
    for (const struct ibv_send_wr *at = wr; at != NULL; at = at->next) {
        comm->counts.sends++;
        comm->counts.bytes += rondo_verbs_wr_bytes(at);
        comm->counts.inlined += (at->send_flags & IBV_SEND_INLINE) != 0;
    }
    comm->counts.doorbells++;
    int rc = ibv_post_send(qp, wr, &bad);
    if (rc == 0) {
        return RONDO_SUCCESS;
    }
    rondo_verbs_ends(comm, ends);
    return rondo_verbs_comm_fail(comm, RONDO_SYSTEM_ERROR, "cannot post the %s, %s: %s; %s", what, ends,
                                 strerror(rc), rondo_verbs_errno_cause(rc));
}

/* ---- receiving ---- */

static rondo_status receive_post(struct rondo_verbs_comm *comm, struct rondo_verbs_lane *lane)
{
    struct ibv_recv_wr wr = { .wr_id = rondo_verbs_wr_id(RONDO_VERBS_RECV, (uint64_t)(lane - comm->lane)) },
                       *bad;
    char ends[RONDO_VERBS_ENDS];
    int rc = ibv_post_recv(lane->qp, &wr, &bad);
    if (rc == 0) {
        lane->posted++;
        comm->counts.receives++;
        return RONDO_SUCCESS;
    }
    rondo_verbs_ends(comm, ends);
    return rondo_verbs_comm_fail(comm, RONDO_SYSTEM_ERROR, "cannot post a receive, %s: %s; %s", ends,
                                 strerror(rc), rondo_verbs_errno_cause(rc));
}

/*
 * Before a clear-to-send, post a receive on every lane that may still get a word of this message or of an
 * earlier one. Nobody here knows how many lanes a split message takes; unused receives serve the next
 * message.
 */
static rondo_status receives_post(struct rondo_verbs_comm *comm)
{
    uint64_t waiting = comm->sequence + 1 - comm->finished;
    for (int i = 0; i < (comm->split ? comm->nlanes : 1); i++) {
        struct rondo_verbs_lane *lane = rondo_verbs_lane_of(comm, comm->sequence, i);
        if (!comm->split || (uint64_t)lane->posted + (lane->came - lane->taken) < waiting) {
            RONDO_TRY(receive_post(comm, lane));
        }
    }
    return RONDO_SUCCESS;
}

/* Write the clear-to-sends of the messages from first to before comm->sequence, which do not go around; the
 * last one has `parts`. */
static rondo_status cts_write(struct rondo_verbs_comm *comm, uint64_t first, int parts)
{
    uint64_t slot = first % RONDO_VERBS_SLOTS, more = comm->sequence - 1 - first;
    const struct rondo_verbs_lane *lane = rondo_verbs_lane_of(comm, first, 0);
    struct ibv_sge sge = { .addr = (uintptr_t)comm->memory->fifo[slot],
                           .length = (uint32_t)(more * sizeof comm->memory->fifo[0] +
                                                (size_t)parts * sizeof comm->memory->fifo[0][0]),
                           .lkey = comm->memory_mr->lkey };
    uint32_t slots = (uint32_t)((UINT64_C(2) << more) - 1) << slot;
    struct ibv_send_wr wr = { .wr_id = rondo_verbs_wr_id(RONDO_VERBS_CTS, slots),
                              .sg_list = &sge,
                              .num_sge = 1,
                              .opcode = IBV_WR_RDMA_WRITE,
                              .send_flags = IBV_SEND_SIGNALED |
                                            (sge.length <= lane->inline_bytes ? IBV_SEND_INLINE : 0) };
    wr.wr.rdma.remote_addr = comm->theirs.address + offsetof(struct rondo_verbs_memory, fifo) +
                             slot * sizeof comm->memory->fifo[0];
    wr.wr.rdma.rkey = comm->theirs.rkey;
    comm->cts_waiting = 0;
    comm->cts_open |= slots;
    return rondo_verbs_post(comm, lane->qp, &wr, "clear-to-send");
}

/* The clear-to-sends that wait for another one to go with, which will not come now. */
static rondo_status cts_flush(struct rondo_verbs_comm *comm)
{
    return comm->cts_waiting > 0 ? cts_write(comm, comm->sequence - comm->cts_waiting, 1) : RONDO_SUCCESS;
}

/* place NULL: none. more: it may wait for the next one. */
static rondo_status cts_post(struct rondo_verbs_comm *comm, const struct rondo_verbs_request *request,
                             void *const *data, void *const *regions, const struct rondo_net_span *place,
                             int more)
{
    uint64_t slot = comm->sequence % RONDO_VERBS_SLOTS;
    struct rondo_verbs_cts *entry = comm->memory->fifo[slot];
    for (int i = 0; i < request->n; i++) {
        const struct rondo_verbs_region *region = regions[i];
        entry[i] = (struct rondo_verbs_cts){ .address = (uintptr_t)data[i],
                                             .bytes = request->room[i],
                                             .rkey = request->room[i] > 0 ? region->shared->mr->rkey : 0,
                                             .tag = request->tags[i],
                                             .parts = (uint32_t)request->n,
                                             .nonce = comm->theirs.nonce,
                                             .sequence = comm->sequence + 1 };
    }
    if (place != NULL) {
        entry->place = (uintptr_t)place->data;
        entry->place_bytes = place->bytes;
        entry->place_rkey = ((const struct rondo_verbs_region *)place->region)->shared->mr->rkey;
    }
    comm->sequence++;
    comm->cts_waiting++;
    return more && slot < RONDO_VERBS_SLOTS - 1
               ? RONDO_SUCCESS
               : cts_write(comm, comm->sequence - comm->cts_waiting, request->n);
}

static void request_give(struct rondo_verbs_request *request)
{
    request->comm->in_use[request->kind]--;
    request->busy = 0;
}

/* Somebody watches: an event for the queue pair that gets the message's first word, and its room. */
static void tell_receive(struct rondo_verbs_comm *comm, struct rondo_verbs_request *request)
{
    const struct rondo_verbs_lane *lane = rondo_verbs_lane_of(comm, comm->sequence, 0);
    struct rondo_net_ib_event event = { .type = 1,
                                        .qp = { .device = comm->device,
                                                .wr_id = rondo_verbs_wr_id(RONDO_VERBS_RECV,
                                                                           (uint64_t)(lane - comm->lane)),
                                                .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                                                .number = (int)lane->qp->qp_num,
                                                .bytes = request->room[0] } };
    rondo_net_events_add(&request->events, RONDO_NET_KIND_IB, &event);
}

static rondo_status receive(struct rondo_verbs_comm *comm, int n, void *const *data, const size_t *bytes,
                            const int *tags, void *const *regions, const struct rondo_net_span *place,
                            int more, void **request_out)
{
    struct rondo_verbs_request *request;
    rondo_status status;
    *request_out = NULL;
    RONDO_TRY(rondo_verbs_comm_check(comm, 0));
    if (n < 1 || n > RONDO_NET_MAX_RECVS) {
        return bad_argument(comm, "it has no parts, or too many");
    }
    for (int i = 0; i < n; i++) {
        RONDO_TRY(rondo_verbs_region_check(comm, regions[i], data[i], bytes[i]));
    }
    if (place != NULL) {
        RONDO_TRY(rondo_verbs_region_check(comm, place->region, place->data, place->bytes));
    }
    /* The block's slot and the queue entry are free only when the write of the clear-to-send has
     * completed, which may be later than the message. */
    int is_free = (comm->cts_open >> comm->sequence % RONDO_VERBS_SLOTS & 1) == 0;
    request = is_free ? rondo_verbs_request_take(comm, RONDO_VERBS_RECV, RONDO_NET_MAX_REQUESTS) : NULL;
    if (request == NULL) {
        RONDO_TRY(cts_flush(comm));
        return rondo_verbs_progress(comm);
    }
    request->n = n;
    request->place_bytes = place != NULL ? place->bytes : 0;
    memcpy(request->tags, tags, (size_t)n * sizeof *tags);
    memcpy(request->room, bytes, (size_t)n * sizeof *bytes);
    comm->receives[comm->sequence % RONDO_VERBS_SLOTS] = request;
    rondo_net_events_begin(&request->events);
    if (RONDO_UNLIKELY(request->events.parent != NULL)) {
        tell_receive(comm, request);
    }
    status = receives_post(comm);
    status = status == RONDO_SUCCESS ? cts_post(comm, request, data, regions, place, more) : status;
    if (status != RONDO_SUCCESS) {
        request_give(request);
        return status;
    }
    *request_out = request;
    return RONDO_SUCCESS;
}

rondo_status rondo_verbs_irecv(void *comm, int n, void *const *data, const size_t *bytes, const int *tags,
                               void *const *regions, void **request)
{
    return receive(comm, n, data, bytes, tags, regions, NULL, 0, request);
}

rondo_status rondo_verbs_irecv_into(void *comm, const struct rondo_net_span *whole,
                                    const struct rondo_net_span *place, int tag, void **request)
{
    if (place->bytes == 0 || rondo_max_size(whole->bytes, place->bytes) >= RONDO_VERBS_PLACED) {
        return bad_argument(comm, "its place is empty, or it is too long for one");
    }
    return receive(comm, 1, &whole->data, &whole->bytes, &tag, &whole->region, place, 0, request);
}

rondo_status rondo_verbs_iflush(void *comm_in, int n, void *const *data, const size_t *bytes,
                                void *const *regions, void **request_out)
{
    struct rondo_verbs_comm *comm = comm_in;
    struct rondo_verbs_request *request;
    int last = -1;
    *request_out = NULL;
    RONDO_TRY(comm->gone ? RONDO_SUCCESS : rondo_verbs_comm_check(comm, 0));
    if (n < 1 || n > RONDO_NET_MAX_RECVS) {
        return bad_argument(comm, "it has no parts, or too many");
    }
    for (int i = 0; i < n; i++) {
        RONDO_TRY(rondo_verbs_region_check(comm, regions[i], data[i], bytes[i]));
        last = bytes[i] > 0 && ((struct rondo_verbs_region *)regions[i])->shared->kind != RONDO_NET_HOST
                   ? i
                   : last;
    }
    if (last < 0 || comm->flush_qp == NULL) { /* host memory, or RONDO_GDR_FLUSH_DISABLE */
        return RONDO_SUCCESS;
    }
    request = rondo_verbs_request_take(comm, RONDO_VERBS_FLUSH, RONDO_VERBS_FLUSHES);
    if (request == NULL) {
        return bad_argument(comm, "more flushes are in flight than messages are possible");
    }
    /* The answer to a read comes only after all earlier writes are visible. */
    struct ibv_sge sge = { .addr = (uintptr_t)&comm->memory->landing,
                           .length = FLUSH_BYTES,
                           .lkey = comm->memory_mr->lkey };
    struct ibv_send_wr wr = { .wr_id = rondo_verbs_wr_id(RONDO_VERBS_FLUSH,
                                                         (uint64_t)(request - comm->requests)),
                              .sg_list = &sge,
                              .num_sge = 1,
                              .opcode = IBV_WR_RDMA_READ,
                              .send_flags = IBV_SEND_SIGNALED };
    wr.wr.rdma.remote_addr = (uintptr_t)data[last];
    wr.wr.rdma.rkey = ((struct rondo_verbs_region *)regions[last])->shared->mr->rkey;
    RONDO_TRY(rondo_verbs_post(comm, comm->flush_qp, &wr, "read that flushes GPU memory"));
    *request_out = request;
    return RONDO_SUCCESS;
}

/* ---- writes with a word ---- */

rondo_status rondo_verbs_irecv_word(void *comm_in, struct rondo_net_came *came, int more, void **request_out)
{
    struct rondo_verbs_comm *comm = comm_in;
    uint64_t *size = comm->memory->sizes[comm->sequence % RONDO_VERBS_SLOTS];
    void *data = NULL, *region = NULL;
    size_t bytes = 0;
    int tag = RONDO_VERBS_WORD_TAG;
    /* Its slot belongs to a message that has been tested, or to none: nobody writes there before the
     * clear-to-send. */
    if (comm->in_use[RONDO_VERBS_RECV] < RONDO_NET_MAX_REQUESTS) {
        __atomic_store_n(size, RONDO_VERBS_NO_NOTE, __ATOMIC_RELAXED);
    }
    RONDO_TRY(receive(comm, 1, &data, &bytes, &tag, &region, NULL, more, request_out));
    if (*request_out != NULL) {
        struct rondo_verbs_request *request = *request_out;
        request->by_word = 1;
        request->came = came;
    }
    return RONDO_SUCCESS;
}

uint32_t rondo_verbs_key(void *region) { return ((struct rondo_verbs_region *)region)->shared->mr->rkey; }

static void word_give(const struct rondo_verbs_request *request)
{
    struct rondo_net_came *came = request->came;
    *came = (struct rondo_net_came){ .word = request->word,
                                     .has_note = request->has_note,
                                     .bytes = request->bytes[0] };
    memcpy(came->note, request->note, RONDO_NET_NOTE);
}

/* ---- completions ---- */

static rondo_status strange(struct rondo_verbs_comm *comm, const char *what)
{
    char ends[RONDO_VERBS_ENDS];
    rondo_verbs_ends(comm, ends);
    return rondo_verbs_comm_fail(comm, RONDO_REMOTE_ERROR, "%s, %s; the other end is broken", what, ends);
}

/* Read the word of a write, and its note. */
static rondo_status word_take(struct rondo_verbs_comm *comm, struct rondo_verbs_request *request,
                              uint32_t imm)
{
    const uint64_t *sizes = comm->memory->sizes[comm->finished % RONDO_VERBS_SLOTS];
    uint64_t size = __atomic_load_n(&sizes[0], __ATOMIC_RELAXED);
    if (size > UINT32_MAX && size != RONDO_VERBS_NO_NOTE) {
        return strange(comm, "a write arrived that is longer than any");
    }
    request->word = imm;
    request->has_note = size != RONDO_VERBS_NO_NOTE;
    request->bytes[0] = request->has_note ? size : 0;
    request->stripes = request->has_note ? rondo_verbs_stripes(comm, size) : 1;
    if (request->has_note) {
        memcpy(request->note, &sizes[1], RONDO_NET_NOTE);
    }
    return RONDO_SUCCESS;
}

/* Read the sizes of the next message, from the word on its first lane. They are read once: later writes of
 * the peer change nothing. */
static rondo_status sizes_take(struct rondo_verbs_comm *comm, struct rondo_verbs_request *request,
                               uint32_t imm)
{
    const uint64_t *sizes = comm->memory->sizes[comm->finished % RONDO_VERBS_SLOTS];
    if (request->n > 1 && imm != (uint32_t)request->n) {
        return strange(comm, "a message arrived with parts that no receive expects");
    }
    request->stripes = 1;
    for (int i = 0; i < request->n; i++) {
        int placed = request->place_bytes > 0 && (imm & RONDO_VERBS_PLACED) != 0;
        uint64_t size = request->n > 1 ? __atomic_load_n(&sizes[i], __ATOMIC_RELAXED)
                        : placed       ? imm & ~RONDO_VERBS_PLACED
                                       : imm;
        if (size > (placed ? request->place_bytes : request->room[i])) {
            char ends[RONDO_VERBS_ENDS];
            rondo_verbs_ends(comm, ends);
            return rondo_verbs_comm_fail(comm, RONDO_INVALID_USAGE,
                                         "a message of %llu bytes (tag %d) arrived for a receive of %zu, %s; "
                                         "send and receive the same count",
                                         (unsigned long long)size, request->tags[i], request->room[i], ends);
        }
        int stripes = rondo_verbs_stripes(comm, size);
        request->stripes = stripes > request->stripes ? stripes : request->stripes;
        request->bytes[i + placed] = size;
    }
    return RONDO_SUCCESS;
}

/* Take the words of the next message. *all 1: all were there and are taken. */
static rondo_status words_take(struct rondo_verbs_comm *comm, struct rondo_verbs_request *request, int *all)
{
    const struct rondo_verbs_lane *first = rondo_verbs_lane_of(comm, comm->finished, 0);
    uint32_t imm = first->imm[first->taken % RONDO_VERBS_SLOTS];
    *all = 0;
    if (first->came == first->taken) {
        return RONDO_SUCCESS;
    }
    if (request->stripes == 0) {
        RONDO_TRY(request->by_word ? word_take(comm, request, imm) : sizes_take(comm, request, imm));
    }
    for (int i = 1; i < request->stripes; i++) {
        const struct rondo_verbs_lane *lane = rondo_verbs_lane_of(comm, comm->finished, i);
        if (lane->came == lane->taken) {
            return RONDO_SUCCESS;
        }
        if (lane->imm[lane->taken % RONDO_VERBS_SLOTS] != imm) {
            return strange(comm, "the parts of a received message do not belong together");
        }
    }
    for (int i = 0; i < request->stripes; i++) {
        rondo_verbs_lane_of(comm, comm->finished, i)->taken++;
    }
    *all = 1;
    return RONDO_SUCCESS;
}

static rondo_status word_came(struct rondo_verbs_comm *comm, const struct ibv_wc *wc)
{
    struct rondo_verbs_lane *lane = &comm->lane[(uint32_t)wc->wr_id];
    int all = 1;
    lane->posted--;
    if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM || (wc->wc_flags & IBV_WC_WITH_IMM) == 0 ||
        lane->came - lane->taken >= comm->sequence - comm->finished) {
        return strange(comm, "a message arrived that no receive expects");
    }
    lane->imm[lane->came++ % RONDO_VERBS_SLOTS] = ntohl(wc->imm_data);
    while (all && comm->finished < comm->sequence) {
        struct rondo_verbs_request *request = comm->receives[comm->finished % RONDO_VERBS_SLOTS];
        RONDO_TRY(words_take(comm, request, &all));
        if (all) {
            request->done = 1;
            comm->finished++;
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status completion(struct rondo_verbs_comm *comm, const struct ibv_wc *wc)
{
    enum rondo_verbs_kind kind = (enum rondo_verbs_kind)(wc->wr_id >> 32);
    if (wc->status != IBV_WC_SUCCESS) {
        if (kind == RONDO_VERBS_FLUSH) {
            comm->requests[(uint32_t)wc->wr_id].failed = 1;
        }
        return comm->error != RONDO_SUCCESS ? rondo_verbs_comm_error(comm) : rondo_verbs_fail_wc(comm, wc);
    }
    switch (kind) {
    case RONDO_VERBS_SEND: rondo_verbs_group_done(comm, (uint32_t)wc->wr_id); break;
    case RONDO_VERBS_RECV: return word_came(comm, wc);
    case RONDO_VERBS_CTS: comm->cts_open &= ~(uint32_t)wc->wr_id; break;
    case RONDO_VERBS_FLUSH: comm->requests[(uint32_t)wc->wr_id].done = 1; break;
    case RONDO_VERBS_NUM_KINDS: break;
    }
    return RONDO_SUCCESS;
}

/* When the peer is gone, take all completions, in whatever order the queue has them: what arrived before
 * stays valid. */
rondo_status rondo_verbs_progress(struct rondo_verbs_comm *comm)
{
    struct ibv_wc wc[POLL];
    rondo_status status = RONDO_SUCCESS;
    int n;
    do {
        if ((n = ibv_poll_cq(comm->cq, POLL, wc)) < 0) {
            return strange(comm, "the completion queue cannot be polled");
        }
        comm->counts.completions += (uint64_t)n;
        for (int i = 0; i < n; i++) {
            rondo_status one = completion(comm, &wc[i]);
            status = status == RONDO_SUCCESS ? one : status;
            if (status != RONDO_SUCCESS && !comm->gone) {
                return status;
            }
        }
    } while (status != RONDO_SUCCESS && n > 0);
    comm->idle = n > 0 ? 0 : comm->idle + 1;
    if (status == RONDO_SUCCESS && comm->idle >= RONDO_VERBS_IDLE) {
        comm->idle = 0;
        return rondo_verbs_events(comm);
    }
    return status;
}

/* A flush involves only this NIC and its own memory: it continues without the peer. */
static int goes_on(const struct rondo_verbs_request *request)
{
    return request->kind == RONDO_VERBS_FLUSH && request->comm->gone && !request->failed;
}

rondo_status rondo_verbs_test(void *request_in, int *done, size_t *bytes)
{
    struct rondo_verbs_request *request = request_in;
    struct rondo_verbs_comm *comm = request->comm;
    rondo_status status = RONDO_SUCCESS;
    *done = 0;
    if (!request->done) {
        status = comm->error == RONDO_SUCCESS || goes_on(request) ? rondo_verbs_progress(comm)
                                                                  : rondo_verbs_comm_error(comm);
    }
    if (!request->done) {
        return goes_on(request) ? RONDO_SUCCESS : status;
    }
    if (request->kind == RONDO_VERBS_RECV && request->by_word) {
        word_give(request);
    } else if (bytes != NULL) {
        memcpy(bytes, request->bytes, (size_t)(request->n + (request->place_bytes > 0)) * sizeof *bytes);
    }
    if (RONDO_UNLIKELY(request->events.parent != NULL)) {
        rondo_net_events_end(&request->events);
    }
    request_give(request);
    *done = 1;
    return RONDO_SUCCESS;
}

const struct rondo_verbs_counts *rondo_verbs_counts(const void *comm)
{
    return &((const struct rondo_verbs_comm *)comm)->counts;
}
