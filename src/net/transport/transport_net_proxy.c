/* The proxy of the net transport: moves the slices of all conns over net devices. Contract:
 * net/transport/transport_net.h. */
#include <string.h>

#include "base/array.h"
#include "base/heap.h"
#include "base/log.h"
#include "net/transport/transport_net.h"

rondo_status rondo_net_carry(struct rondo_net_end *end)
{
    struct rondo_net_ends *ends = &end->owner->ends[end->link->is_send];
    RONDO_TRY(RONDO_ARRAY_GROW(ends->at, ends->n, ends->capacity, "the list of conns between nodes"));
    end->word = end->link->is_send ? &end->link->tail->tail : &end->link->head->head;
    end->index = ends->n;
    ends->at[ends->n++] = end;
    end->owner->net->proxied++;
    return RONDO_SUCCESS;
}

void rondo_net_drop(struct rondo_net_end *end)
{
    struct rondo_net_ends *ends = &end->owner->ends[end->link->is_send];
    if (end->index < 0) {
        return;
    }
    ends->at[end->index] = ends->at[--ends->n];
    ends->at[end->index]->index = end->index;
    end->index = -1;
    end->owner->net->proxied--;
}

/* Keep an error's sentence. @return @a status. */
static rondo_status keep(struct rondo_net_end *end, rondo_status status)
{
    if (status != RONDO_SUCCESS) {
        memcpy(end->text, rondo_error_text(), sizeof(end->text));
        end->text[sizeof(end->text) - 1] = '\0';
        end->logged = rondo_error_logged();
    }
    return status;
}

/* Stop using the device for this end. Slices in flight fail when somebody waits for them. */
static void end_failed(struct rondo_net_end *end, rondo_status status) { end->failed = keep(end, status); }

static rondo_status end_error(struct rondo_net_end *end)
{
    rondo_status status = rondo_fail_quiet(end->failed, "%s", end->text);
    if (!end->logged) {
        end->logged = 1;
        rondo_fail_aloud(status);
    }
    return status;
}

static int is_relayed(const struct rondo_net_end *end) { return end->owner->segment != NULL; }

/* ---- profiler plugins see what the device does ---- */

void rondo_net_parent_begin(const struct rondo_net_end *end)
{
    const struct rondo_net *net = end->owner->net;
    if (RONDO_UNLIKELY(net->watch != NULL) && !is_relayed(end)) {
        (void)net->watch->parent(net->watch_arg, end->link, end->posted, &rondo_net_parent);
    }
}

int rondo_net_may_receive(const struct rondo_net_end *end)
{
    const struct rondo_net *net = end->owner->net;
    const struct rondo_conn *conn = &end->link->conn;
    return RONDO_LIKELY(net->watch == NULL) || (!end->gpu && conn->wanted && end->posted <= conn->step) ||
           net->watch->parent(net->watch_arg, end->link, end->posted, NULL);
}

/* ---- slots in a GPU's memory: a slice is two messages ---- */

static struct rondo_net_header *header_at(const struct rondo_net_end *end, uint64_t step)
{
    return (struct rondo_net_header *)(void *)rondo_net_slot(end, step) - 1;
}

static uint8_t *place_of(const struct rondo_net_end *end, uint64_t step)
{
    return end->gdr.on ? end->gdr.slots + (step % RONDO_SLOTS) * end->gdr.stride : rondo_net_slot(end, step);
}

static void *region_of(const struct rondo_net_end *end)
{
    return end->gdr.on ? end->gdr.region : end->region;
}

static size_t room_of(const struct rondo_net_end *end)
{
    return end->gdr.on ? end->gdr.stride : end->stride - RONDO_CTRL_ALIGN;
}

static rondo_status split_send(struct rondo_net_end *end, size_t bytes, void **request)
{
    void **head = &end->head[end->posted % RONDO_SLOTS];
    *request = NULL;
    if (*head == NULL) {
        RONDO_TRY(end->device->isend(end->comm, header_at(end, end->posted), sizeof(struct rondo_net_header),
                                     0, end->region, head));
    }
    return *head == NULL
               ? RONDO_SUCCESS
               : end->device->isend(end->comm, place_of(end, end->posted), bytes, 0, region_of(end), request);
}

static rondo_status split_receive(struct rondo_net_end *end, void **request)
{
    void **head = &end->head[end->posted % RONDO_SLOTS], *header = header_at(end, end->posted),
         *place = place_of(end, end->posted);
    const size_t header_bytes = sizeof(struct rondo_net_header), room = room_of(end);
    void *region = region_of(end);
    const int tag = 0;
    *request = NULL;
    if (*head == NULL) {
        RONDO_TRY(end->device->irecv(end->comm, 1, &header, &header_bytes, &tag, &end->region, head));
    }
    return *head == NULL ? RONDO_SUCCESS
                         : end->device->irecv(end->comm, 1, &place, &room, &tag, &region, request);
}

static rondo_status split_test(struct rondo_net_end *end, int *done, size_t *bytes)
{
    uint32_t slot = (uint32_t)(end->done % RONDO_SLOTS);
    size_t header_bytes = sizeof(struct rondo_net_header);
    if (end->head[slot] != NULL) {
        RONDO_TRY(end->device->test(end->head[slot], done, bytes != NULL ? &header_bytes : NULL));
        if (!*done) {
            return RONDO_SUCCESS;
        }
        end->head[slot] = NULL;
        if (header_bytes != sizeof(struct rondo_net_header)) { /* receiver: a message without a header is
                                                                * not a slice */
            *bytes = 0;
            return RONDO_SUCCESS;
        }
    }
    RONDO_TRY(end->device->test(end->request[slot], done, bytes));
    if (*done && bytes != NULL) {
        *bytes += sizeof(struct rondo_net_header);
    }
    return RONDO_SUCCESS;
}

/* ---- flushes ---- */

static rondo_status flush_start(struct rondo_net_end *end)
{
    struct rondo_net_gdr *gdr = &end->gdr;
    void *place = place_of(end, end->done - 1);
    gdr->flushing = end->done;
    if (gdr->dirty) {
        RONDO_TRY(end->device->iflush(end->comm, 1, &place, &gdr->stride, &gdr->region, &gdr->request));
        gdr->flushes += gdr->request != NULL;
        gdr->dirty = 0;
    }
    return RONDO_SUCCESS;
}

static rondo_status flush(struct rondo_net_end *end, int *moved)
{
    struct rondo_net_gdr *gdr = &end->gdr;
    int done = 1;
    if (gdr->request == NULL && gdr->told < end->done) {
        RONDO_TRY(flush_start(end));
    }
    if (gdr->request != NULL) {
        RONDO_TRY(end->device->test(gdr->request, &done, NULL));
    }
    if (done && gdr->told < gdr->flushing) {
        gdr->request = NULL;
        gdr->told = gdr->flushing;
        /* Pairs with the acquire of the receiver, as in the proxy: now the GPU sees the slots. */
        __atomic_store_n(&end->link->tail->tail, gdr->told, __ATOMIC_RELEASE);
        *moved = 1;
    }
    return RONDO_SUCCESS;
}

/* ---- sending ---- */

/* Another process has posted what a relay sends: check it before use. */
static rondo_status relayed_check(const struct rondo_net_end *end, uint64_t ahead, size_t bytes)
{
    size_t room = end->gdr.on ? end->gdr.stride : end->stride - RONDO_CTRL_ALIGN;
    if (ahead <= RONDO_SLOTS && bytes <= room) {
        return RONDO_SUCCESS;
    }
    return rondo_fail(
        RONDO_INTERNAL_ERROR,
        "rank %d on %s: the slices posted for rank %d on channel %d, to relay through its NIC, are "
        "invalid (memory is damaged): %llu slices, one of %zu bytes, "
        "where %d of %zu bytes fit",
        end->owner->net->rank, rondo_log_host(), end->link->peer, end->link->channel,
        (unsigned long long)ahead, bytes, (int)RONDO_SLOTS, room);
}

static rondo_status send_one(struct rondo_net_end *end, int *sent)
{
    struct rondo_conn *conn = &end->link->conn;
    uint32_t slot = (uint32_t)(end->posted % RONDO_SLOTS);
    uint64_t size = __atomic_load_n(&end->link->tail->size[slot], __ATOMIC_RELAXED); /* ordered by the tail */
    struct rondo_net_header header = { .step = (uint32_t)end->posted,
                                       .call = __atomic_load_n(&end->link->tail->call[slot],
                                                               __ATOMIC_RELAXED),
                                       .bytes = rondo_conn_size_bytes(size),
                                       .proto = (uint32_t)rondo_conn_size_proto(size) };
    uint8_t *message = rondo_net_slot(end, end->posted) - sizeof(header),
            *outside = conn->outside != NULL ? conn->outside[slot] : NULL;
    rondo_status status;
    void *request;
    RONDO_TRY(is_relayed(end) ? relayed_check(end, 1, header.bytes) : RONDO_SUCCESS);
    if (end->head[slot] == NULL) { /* NULL: not sent yet */
        memcpy(message, &header, sizeof(header));
    }
    rondo_net_parent_begin(end);
    status =
        end->split    ? split_send(end, header.bytes, &request)
        : end->places ? rondo_net_user_send(end, &header, outside, &request)
        : outside != NULL
            ? end->device->isend_apart(end->comm, message, sizeof(header), outside, header.bytes, 0, &request)
            : end->device->isend(end->comm, message, sizeof(header) + header.bytes, 0, end->region, &request);
    rondo_net_parent = NULL;
    RONDO_TRY(status);
    *sent = request != NULL;
    if (request != NULL) {
        end->request[slot] = request;
        end->posted++;
        end->passed_by += outside != NULL && end->apart;
    }
    return RONDO_SUCCESS;
}

/* Test slice end->done. */
static rondo_status test_one(struct rondo_net_end *end, int *done, size_t *bytes)
{
    return end->split ? split_test(end, done, bytes)
                      : end->device->test(end->request[end->done % RONDO_SLOTS], done, bytes);
}

static rondo_status send_progress(struct rondo_net_end *end, uint64_t tail, int *moved)
{
    int go = 1;
    RONDO_TRY(is_relayed(end) ? relayed_check(end, tail - end->done, 0) : RONDO_SUCCESS);
    while (end->posted < tail && go) {
        RONDO_TRY(send_one(end, &go));
        *moved |= go;
    }
    for (go = 1; end->done < end->posted && go;) {
        RONDO_TRY(test_one(end, &go, NULL));
        if (go) {
            rondo_net_user_done(end, end->done);
            end->done++;
            /* Pairs with the acquire in rondo_conn_credit(): the device no longer reads the slot. */
            __atomic_store_n(&end->link->head->head, end->done, __ATOMIC_RELEASE);
            *moved = 1;
        }
    }
    return RONDO_SUCCESS;
}

/* ---- receiving ---- */

/* Host ends over a device that takes any memory post receives late. */
static int posts_late(const struct rondo_net_end *end)
{
    return end->apart && end->link->conn.outside != NULL;
}

/* Receive the wanted slice, into the destination that the executor gives. */
static rondo_status receive_late(struct rondo_net_end *end)
{
    const struct rondo_conn *conn = &end->link->conn;
    uint32_t slot = (uint32_t)(end->posted % RONDO_SLOTS);
    uint8_t *place = rondo_net_slot(end, end->posted), *into = end->posted == conn->step ? conn->into : NULL;
    size_t room = into != NULL ? conn->into_bytes : end->stride - RONDO_CTRL_ALIGN;
    struct rondo_net_header *header = (struct rondo_net_header *)(void *)place - 1;
    rondo_status status;
    void *request;
    rondo_net_parent_begin(end);
    status = end->device->irecv_apart(end->comm, header, sizeof(*header), into != NULL ? into : place, room,
                                      0, &request);
    rondo_net_parent = NULL;
    RONDO_TRY(status);
    if (request != NULL) {
        end->request[slot] = request;
        conn->outside[slot] = into;
        end->posted++;
        end->passed_by += into != NULL;
    }
    return RONDO_SUCCESS;
}

/* Post a receive for every consumed slot. */
static rondo_status receive_post(struct rondo_net_end *end, uint64_t head)
{
    const size_t bytes = end->stride - RONDO_CTRL_ALIGN + sizeof(struct rondo_net_header);
    const int tag = 0;
    while (end->posted < head + RONDO_SLOTS && rondo_net_may_receive(end)) {
        void *message = rondo_net_slot(end, end->posted) - sizeof(struct rondo_net_header), *request;
        rondo_status status;
        rondo_net_parent_begin(end);
        status = end->split
                     ? split_receive(end, &request)
                     : end->device->irecv(end->comm, 1, &message, &bytes, &tag, &end->region, &request);
        rondo_net_parent = NULL;
        RONDO_TRY(status);
        if (request == NULL) {
            return RONDO_SUCCESS;
        }
        end->request[end->posted % RONDO_SLOTS] = request;
        end->posted++;
    }
    return RONDO_SUCCESS;
}

/* Slice end->done has arrived: check its header before use. */
static rondo_status receive_take(struct rondo_net_end *end, size_t bytes)
{
    struct rondo_conn *conn = &end->link->conn;
    const struct rondo_net *net = end->owner->net;
    struct rondo_net_header header = { 0 };
    const uint8_t *message = rondo_net_slot(end, end->done) - sizeof(header);
    if (bytes >= sizeof(header)) {
        memcpy(&header, message, sizeof(header));
    }
    if (bytes < sizeof(header) || header.bytes != bytes - sizeof(header) ||
        header.step != (uint32_t)end->done || header.proto >= RONDO_NUM_PROTOS) {
        return rondo_fail(RONDO_REMOTE_ERROR,
                          "rank %d: slice %llu from rank %d (host %.*s, channel %d) over %s is invalid: %zu "
                          "bytes, header of slice %u with %u "
                          "bytes; are both ends of one version?",
                          net->rank, (unsigned long long)end->done, conn->peer, RONDO_HOST_LEN,
                          net->peers[conn->peer].host, conn->channel, end->device->name, bytes, header.step,
                          header.bytes);
    }
    __atomic_store_n(&end->link->tail->call[end->done % RONDO_SLOTS], header.call, __ATOMIC_RELAXED);
    end->done++;
    end->gdr.dirty |= header.bytes > 0;
    if (!end->gdr.flush) {
        /* Pairs with the acquire of the receiver: publishes slot and call word. */
        __atomic_store_n(&end->link->tail->tail, end->done, __ATOMIC_RELEASE);
    }
    return RONDO_SUCCESS;
}

static rondo_status receive_progress(struct rondo_net_end *end, uint64_t head, int *moved)
{
    struct rondo_conn *conn = &end->link->conn;
    size_t bytes[2] = { 0 };
    int go = 1;
    if (end->refused == RONDO_SUCCESS && !posts_late(end)) {
        end->refused = keep(end, end->places ? rondo_net_user_receive(end, head) : receive_post(end, head));
    }
    /* Not past the wanted slice: a peer that has finished and left may follow. GPU kernels cannot say what
     * they want: they wait for any slice. */
    while ((end->gpu || (conn->wanted && end->done <= conn->step)) && go) {
        RONDO_TRY(posts_late(end) && end->done == end->posted ? receive_late(end) : RONDO_SUCCESS);
        if (end->done == end->posted) {
            end->failed = end->refused;
            break;
        }
        RONDO_TRY(test_one(end, &go, bytes));
        if (go) {
            rondo_net_user_done(end, end->done);
            if (end->places && rondo_net_user_arrived(end, bytes)) {
                bytes[0] = bytes[1] + sizeof(struct rondo_net_header);
            }
            RONDO_TRY(receive_take(end, bytes[0]));
            bytes[1] = 0;
            *moved = 1;
        }
    }
    conn->wanted = end->gpu ? conn->wanted : 0;
    return RONDO_SUCCESS;
}

/* Announce slices that have come but not been flushed; an error is reported after them. @return whether
 * any are left. */
static int is_flushing(struct rondo_net_end *end, int *moved)
{
    if (!end->gdr.flush || end->gdr.failed || end->gdr.told == end->done) {
        return 0;
    }
    rondo_status status = flush(end, moved);
    if (status != RONDO_SUCCESS) {
        end->gdr.failed = 1;
        end_failed(end, status);
    }
    return !end->gdr.failed && end->gdr.told < end->done;
}

/* ---- progress ---- */

/* Is there work even if nobody waits? Receives that are posted late belong to waiting. */
static int is_open(const struct rondo_net_end *end, int is_send, uint64_t word)
{
    return is_send ? end->done < word
                   : end->refused == RONDO_SUCCESS && !posts_late(end) && !end->user.late &&
                         end->posted < word + RONDO_SLOTS && rondo_net_may_receive(end);
}

/* An end is busy until it is done, except for data that has not arrived yet. */
rondo_status rondo_net_end_progress(struct rondo_net_end *end, int is_send, int *busy, int *moved)
{
    /* Pairs with the executor's release: its slots are filled, or read. */
    uint64_t word = __atomic_load_n(end->word, __ATOMIC_ACQUIRE);
    int open = is_open(end, is_send, word), waited = is_send ? open : end->link->conn.wanted;
    rondo_status status;
    if (end->pxn != NULL) {
        return rondo_pxn_progress(end, word, busy, moved);
    }
    if (!open && !waited && (is_send || !end->gpu)) {
        return RONDO_SUCCESS;
    }
    if (end->failed == RONDO_SUCCESS) {
        status = is_send ? send_progress(end, word, moved) : receive_progress(end, word, moved);
        if (status != RONDO_SUCCESS) {
            end_failed(end, status);
        }
    }
    int flushing = !is_send && is_flushing(end, moved);
    if (end->failed != RONDO_SUCCESS) {
        return waited && !flushing ? end_error(end) : RONDO_SUCCESS;
    }
    *busy |= is_open(end, is_send, word);
    return RONDO_SUCCESS;
}

/* Look for ended regions only when any region has ended. */
static void look_at_regions(struct rondo_net_state *state)
{
    uint64_t epoch = rondo_region_epoch();
    if (RONDO_LIKELY(state->epoch == epoch)) {
        return;
    }
    int all = 1;
    for (int is_send = 0; is_send < 2; is_send++) {
        for (int i = 0; i < state->ends[is_send].n; i++) {
            all &= rondo_net_user_look(state->ends[is_send].at[i]);
        }
    }
    state->epoch = all ? epoch : state->epoch;
}

/* Slots belong to the transport: stop only ends that also use user memory. */
void rondo_net_state_revoke(void *arg)
{
    struct rondo_net_state *state = arg;
    for (int is_send = 0; is_send < 2; is_send++) {
        for (int i = 0; i < state->ends[is_send].n; i++) {
            struct rondo_net_end *end = state->ends[is_send].at[i];
            if (end->device->stop != NULL && (posts_late(end) || end->user.uses > 0)) {
                end->device->stop(end->comm);
                end_failed(end,
                           rondo_fail_quiet(RONDO_REMOTE_ERROR, "the connection with rank %d was given up",
                                            end->link->peer));
            }
        }
    }
}

/* ---- who watches ---- */

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void tell(const struct rondo_net *net, const struct rondo_net_end *end, int is_send)
{
    uint64_t word = __atomic_load_n(end->word, __ATOMIC_ACQUIRE);
    struct rondo_link_steps steps;
    if (is_send && end->pxn != NULL) { /* another process has the device */
        steps.passed = __atomic_load_n(&end->link->head->head, __ATOMIC_ACQUIRE);
        steps.moving = steps.passed;
        steps.here = word;
    } else if (is_send) {
        steps.passed = end->done;
        steps.moving = end->posted;
        steps.here = word;
    } else {
        steps.here = end->done;
        steps.moving = end->gdr.flush ? end->gdr.told : end->done;
        steps.passed = least(word, steps.moving);
    }
    net->watch->steps(net->watch_arg, end->link, &steps);
}

uint32_t rondo_link_slice_bytes(const struct rondo_link *link, uint64_t step)
{
    const struct rondo_net_header *header = header_at(link->state, step);
    return header->step == (uint32_t)step ? header->bytes : 0;
}

static rondo_status progress(struct rondo_net_state *state, int *moved)
{
    int busy = 0;
    look_at_regions(state);
    /* Sends first: other ranks wait for them, and looking for arrivals may be a system call. */
    for (int is_send = 1; is_send >= 0; is_send--) {
        for (int i = 0; i < state->ends[is_send].n; i++) {
            if (RONDO_UNLIKELY(state->net->watch != NULL && !is_send)) { /* slots that it may receive into */
                tell(state->net, state->ends[is_send].at[i], is_send);
            }
            RONDO_TRY(rondo_net_end_progress(state->ends[is_send].at[i], is_send, &busy, moved));
            if (RONDO_UNLIKELY(state->net->watch != NULL)) {
                tell(state->net, state->ends[is_send].at[i], is_send);
            }
        }
    }
    state->net->busy |= busy;
    return RONDO_SUCCESS;
}

rondo_status rondo_net_state_progress(void *arg, int *moved)
{
    struct rondo_net_state *state = arg;
    struct rondo_net_inside inside;
    rondo_status status;
    rondo_net_enter(state->net, &inside);
    status = progress(state, moved);
    rondo_net_leave(&inside);
    return status;
}
