/* Messages: clear-to-send, writes, completions. */
#include "net/netdev_verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include "base/param.h"

enum { POLL = 16, FLUSH_BYTES = 1 };

static uint64_t wr_id(enum rondo_verbs_kind kind, uint64_t value) { return (uint64_t)kind << 32 | (uint32_t)value; }

static rondo_status progress(struct rondo_verbs_comm *comm);

/* ---- requests ---- */

static struct rondo_verbs_request *request_take(struct rondo_verbs_comm *comm, enum rondo_verbs_kind kind, int most)
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
    return rondo_fail(RONDO_INVALID_ARGUMENT, "%s of %s with rank %d: %s", comm->is_send ? "a send" : "a receive", comm->port->name,
                      comm->peer.rank, what);
}

/* Usable at all, in this direction. */
static rondo_status comm_check(const struct rondo_verbs_comm *comm, int is_send)
{
    RONDO_TRY(rondo_verbs_comm_error(comm));
    if (!comm->connected || comm->is_send != is_send) {
        return bad_argument(comm, !comm->connected ? "it is not connected yet" : "wrong direction");
    }
    return RONDO_SUCCESS;
}

static rondo_status region_check(const struct rondo_verbs_comm *comm, const struct rondo_verbs_region *region, const void *data,
                                 size_t bytes)
{
    uintptr_t begin = (uintptr_t)data;
    if (bytes > comm->address.max_message) {
        return bad_argument(comm, "more bytes than the card can move at once");
    }
    if (bytes > 0 && (region == NULL || begin < region->begin || begin > region->end || bytes > region->end - begin)) {
        return bad_argument(comm, "the region does not cover the data");
    }
    return RONDO_SUCCESS;
}

static rondo_status post(struct rondo_verbs_comm *comm, struct ibv_qp *qp, struct ibv_send_wr *wr, const char *what)
{
    struct ibv_send_wr *bad;
    char ends[RONDO_VERBS_ENDS];
    int rc = ibv_post_send(qp, wr, &bad);
    if (rc == 0) {
        return RONDO_SUCCESS;
    }
    rondo_verbs_ends(comm, ends);
    return rondo_verbs_comm_fail(comm, RONDO_SYSTEM_ERROR, "cannot post the %s, %s: %s; %s", what, ends, strerror(rc),
                                 rondo_verbs_errno_cause(rc));
}

/* ---- sending ---- */

static rondo_status hostile_cts(struct rondo_verbs_comm *comm)
{
    char ends[RONDO_VERBS_ENDS];
    rondo_verbs_ends(comm, ends);
    return rondo_verbs_comm_fail(comm, RONDO_REMOTE_ERROR, "a clear-to-send that makes no sense came, %s; the other end is broken", ends);
}

/* Copy the next clear-to-send when all its parts are there; group->parts stays 0 otherwise. */
static rondo_status group_look(struct rondo_verbs_comm *comm, struct rondo_verbs_group *group)
{
    const struct rondo_verbs_cts *entry = comm->memory->fifo[comm->sequence % RONDO_VERBS_SLOTS];
    uint64_t sequence = comm->sequence + 1;
    uint32_t parts = 1;
    for (uint32_t i = 0; i < parts; i++) {
        if (__atomic_load_n(&entry[i].sequence, __ATOMIC_ACQUIRE) != sequence) {
            return RONDO_SUCCESS;
        }
        memcpy(&group->cts[i], &entry[i], sizeof entry[i]);
        parts = group->cts[0].parts;
        if (parts < 1 || parts > RONDO_NET_MAX_RECVS || group->cts[i].parts != parts || group->cts[i].nonce != comm->mine.nonce) {
            return hostile_cts(comm);
        }
    }
    group->matched = 0;
    memset(group->request, 0, sizeof group->request);
    group->parts = (int)parts;
    return RONDO_SUCCESS;
}

static int part_fits(const struct rondo_verbs_group *group, int part) { return group->request[part]->bytes[0] <= group->cts[part].bytes; }

static void write_of_part(const struct rondo_verbs_group *group, int part, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
    const struct rondo_verbs_request *request = group->request[part];
    *sge = (struct ibv_sge){ .addr = request->address, .length = (uint32_t)request->bytes[0], .lkey = request->lkey };
    wr->opcode = IBV_WR_RDMA_WRITE;
    wr->sg_list = sge;
    wr->num_sge = 1;
    wr->wr.rdma.remote_addr = group->cts[part].address;
    wr->wr.rdma.rkey = group->cts[part].rkey;
}

/* The network may deliver packets of one write in any order (adaptive routing); a write of its own after it does not overtake. */
static int is_split(const struct rondo_verbs_comm *comm, size_t bytes)
{
    return comm->address.link_layer == IBV_LINK_LAYER_INFINIBAND && bytes > (uint64_t)rondo_params()->ib_ar_threshold;
}

/* The sizes of the parts into the receiver's block. */
static void write_of_sizes(struct rondo_verbs_comm *comm, const struct rondo_verbs_group *group, struct ibv_send_wr *wr,
                           struct ibv_sge *sge)
{
    uint64_t slot = comm->sequence % RONDO_VERBS_SLOTS;
    uint64_t *sizes = comm->memory->sizes[slot];
    for (int i = 0; i < group->parts; i++) {
        sizes[i] = group->request[i]->bytes[0];
    }
    *sge = (struct ibv_sge){ .addr = (uintptr_t)sizes,
                             .length = (uint32_t)(sizeof *sizes * (size_t)group->parts),
                             .lkey = comm->memory_mr->lkey };
    wr->sg_list = sge;
    wr->num_sge = 1;
    wr->wr.rdma.remote_addr = comm->theirs.address + offsetof(struct rondo_verbs_memory, sizes) + slot * sizeof comm->memory->sizes[0];
    wr->wr.rdma.rkey = comm->theirs.rkey;
}

/* A part that is too long for its receive is announced and not written: the receiver says so. */
static rondo_status group_post(struct rondo_verbs_comm *comm, const struct rondo_verbs_group *group)
{
    struct ibv_send_wr wr[RONDO_NET_MAX_RECVS + 1];
    struct ibv_sge sge[RONDO_NET_MAX_RECVS + 1];
    int n = 0, single = group->parts == 1, last;
    memset(wr, 0, sizeof wr);
    for (int i = 0; i < group->parts; i++) {
        if (group->request[i]->bytes[0] > 0 && part_fits(group, i)) {
            write_of_part(group, i, &wr[n], &sge[n]);
            wr[n].wr_id = wr_id(RONDO_VERBS_SEND, comm->sequence);
            n++;
        }
    }
    last = single && n == 1 && !is_split(comm, group->request[0]->bytes[0]) ? 0 : n;
    if (!single) {
        write_of_sizes(comm, group, &wr[last], &sge[last]);
    }
    for (int i = 0; i < last; i++) {
        wr[i].next = &wr[i + 1];
    }
    wr[last].wr_id = wr_id(RONDO_VERBS_SEND, comm->sequence);
    wr[last].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr[last].send_flags = IBV_SEND_SIGNALED;
    wr[last].imm_data = htonl(single ? (uint32_t)group->request[0]->bytes[0] : (uint32_t)group->parts);
    return post(comm, comm->qp, wr, "write of a message");
}

static int group_match(const struct rondo_verbs_group *group, int tag)
{
    for (int i = 0; i < group->parts; i++) {
        if (group->request[i] == NULL && group->cts[i].tag == tag) {
            return i;
        }
    }
    return -1;
}

rondo_status rondo_verbs_isend(void *comm_in, const void *data, size_t bytes, int tag, void *region_in, void **request_out)
{
    struct rondo_verbs_comm *comm = comm_in;
    const struct rondo_verbs_region *region = region_in;
    struct rondo_verbs_group *group = &comm->groups[comm->sequence % RONDO_VERBS_SLOTS];
    struct rondo_verbs_request *request;
    int part;
    *request_out = NULL;
    RONDO_TRY(comm_check(comm, 1));
    RONDO_TRY(region_check(comm, region, data, bytes));
    if (group->parts == 0 && comm->in_use[RONDO_VERBS_SEND] < RONDO_NET_MAX_REQUESTS) {
        RONDO_TRY(group_look(comm, group));
    }
    part = group_match(group, tag);
    request = part >= 0 ? request_take(comm, RONDO_VERBS_SEND, RONDO_NET_MAX_REQUESTS) : NULL;
    if (request == NULL) { /* the caller may have nothing to test, and is told of errors here */
        return progress(comm);
    }
    request->n = 1;
    request->bytes[0] = bytes;
    request->address = (uintptr_t)data;
    request->lkey = bytes > 0 ? region->shared->mr->lkey : 0;
    group->request[part] = request;
    if (++group->matched == group->parts) {
        RONDO_TRY(group_post(comm, group));
        comm->sequence++;
    }
    *request_out = request;
    return RONDO_SUCCESS;
}

/* ---- receiving ---- */

static rondo_status receive_post(struct rondo_verbs_comm *comm)
{
    struct ibv_recv_wr wr = { .wr_id = wr_id(RONDO_VERBS_RECV, comm->sequence) }, *bad;
    char ends[RONDO_VERBS_ENDS];
    int rc = ibv_post_recv(comm->qp, &wr, &bad);
    if (rc == 0) {
        return RONDO_SUCCESS;
    }
    rondo_verbs_ends(comm, ends);
    return rondo_verbs_comm_fail(comm, RONDO_SYSTEM_ERROR, "cannot post a receive, %s: %s; %s", ends, strerror(rc),
                                 rondo_verbs_errno_cause(rc));
}

static rondo_status cts_post(struct rondo_verbs_comm *comm, const struct rondo_verbs_request *request, void *const *data,
                             void *const *regions)
{
    uint64_t slot = comm->sequence % RONDO_VERBS_SLOTS;
    struct rondo_verbs_cts *entry = comm->memory->fifo[slot];
    struct ibv_sge sge = { .addr = (uintptr_t)entry,
                           .length = (uint32_t)(sizeof *entry * (size_t)request->n),
                           .lkey = comm->memory_mr->lkey };
    struct ibv_send_wr wr = { .wr_id = wr_id(RONDO_VERBS_CTS, comm->sequence),
                              .sg_list = &sge,
                              .num_sge = 1,
                              .opcode = IBV_WR_RDMA_WRITE,
                              .send_flags = IBV_SEND_SIGNALED };
    wr.wr.rdma.remote_addr = comm->theirs.address + offsetof(struct rondo_verbs_memory, fifo) + slot * sizeof comm->memory->fifo[0];
    wr.wr.rdma.rkey = comm->theirs.rkey;
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
    comm->cts_open++;
    return post(comm, comm->qp, &wr, "clear-to-send");
}

rondo_status rondo_verbs_irecv(void *comm_in, int n, void *const *data, const size_t *bytes, const int *tags, void *const *regions,
                               void **request_out)
{
    struct rondo_verbs_comm *comm = comm_in;
    struct rondo_verbs_request *request;
    *request_out = NULL;
    RONDO_TRY(comm_check(comm, 0));
    if (n < 1 || n > RONDO_NET_MAX_RECVS) {
        return bad_argument(comm, "it has no parts, or too many");
    }
    for (int i = 0; i < n; i++) {
        RONDO_TRY(region_check(comm, regions[i], data[i], bytes[i]));
    }
    /* The block's slot and the queue are free again when the write of the clear-to-send has completed, which may be later than the message. */
    request = comm->cts_open < RONDO_VERBS_SLOTS ? request_take(comm, RONDO_VERBS_RECV, RONDO_NET_MAX_REQUESTS) : NULL;
    if (request == NULL) {
        return progress(comm);
    }
    request->n = n;
    memcpy(request->tags, tags, (size_t)n * sizeof *tags);
    memcpy(request->room, bytes, (size_t)n * sizeof *bytes);
    comm->receives[comm->sequence % RONDO_VERBS_SLOTS] = request;
    RONDO_TRY(receive_post(comm));
    RONDO_TRY(cts_post(comm, request, data, regions));
    comm->sequence++;
    *request_out = request;
    return RONDO_SUCCESS;
}

rondo_status rondo_verbs_iflush(void *comm_in, int n, void *const *data, const size_t *bytes, void *const *regions, void **request_out)
{
    struct rondo_verbs_comm *comm = comm_in;
    struct rondo_verbs_request *request;
    int last = -1;
    *request_out = NULL;
    RONDO_TRY(comm_check(comm, 0));
    if (n < 1 || n > RONDO_NET_MAX_RECVS) {
        return bad_argument(comm, "it has no parts, or too many");
    }
    for (int i = 0; i < n; i++) {
        RONDO_TRY(region_check(comm, regions[i], data[i], bytes[i]));
        last = bytes[i] > 0 && ((struct rondo_verbs_region *)regions[i])->shared->kind != RONDO_NET_HOST ? i : last;
    }
    request = last >= 0 ? request_take(comm, RONDO_VERBS_FLUSH, RONDO_VERBS_FLUSHES) : NULL;
    if (last < 0) {
        return RONDO_SUCCESS;
    }
    if (request == NULL) {
        return bad_argument(comm, "more flushes are under way than messages can be");
    }
    /* A read is not answered before the writes that came before it are there. */
    struct ibv_sge sge = { .addr = (uintptr_t)&comm->memory->landing, .length = FLUSH_BYTES, .lkey = comm->memory_mr->lkey };
    struct ibv_send_wr wr = { .wr_id = wr_id(RONDO_VERBS_FLUSH, (uint64_t)(request - comm->requests)),
                              .sg_list = &sge,
                              .num_sge = 1,
                              .opcode = IBV_WR_RDMA_READ,
                              .send_flags = IBV_SEND_SIGNALED };
    wr.wr.rdma.remote_addr = (uintptr_t)data[last];
    wr.wr.rdma.rkey = ((struct rondo_verbs_region *)regions[last])->shared->mr->rkey;
    RONDO_TRY(post(comm, comm->flush_qp, &wr, "read that flushes GPU memory"));
    *request_out = request;
    return RONDO_SUCCESS;
}

/* ---- completions ---- */

static rondo_status strange(struct rondo_verbs_comm *comm, const char *what)
{
    char ends[RONDO_VERBS_ENDS];
    rondo_verbs_ends(comm, ends);
    return rondo_verbs_comm_fail(comm, RONDO_REMOTE_ERROR, "%s, %s; the other end is broken", what, ends);
}

static rondo_status message_came(struct rondo_verbs_comm *comm, const struct ibv_wc *wc)
{
    uint64_t slot = comm->finished % RONDO_VERBS_SLOTS;
    struct rondo_verbs_request *request = comm->receives[slot];
    uint32_t imm = ntohl(wc->imm_data);
    if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM || (wc->wc_flags & IBV_WC_WITH_IMM) == 0 || comm->finished >= comm->sequence ||
        (uint32_t)wc->wr_id != (uint32_t)comm->finished || (request->n > 1 && imm != (uint32_t)request->n)) {
        return strange(comm, "a message that nobody waits for came");
    }
    for (int i = 0; i < request->n; i++) {
        uint64_t size = request->n == 1 ? imm : __atomic_load_n(&comm->memory->sizes[slot][i], __ATOMIC_RELAXED);
        if (size > request->room[i]) {
            char ends[RONDO_VERBS_ENDS];
            rondo_verbs_ends(comm, ends);
            return rondo_verbs_comm_fail(comm, RONDO_INVALID_USAGE,
                                         "a message of %llu bytes (tag %d) came for a receive of %zu, %s; send and receive the same count",
                                         (unsigned long long)size, request->tags[i], request->room[i], ends);
        }
        request->bytes[i] = size;
    }
    request->done = 1;
    comm->finished++;
    return RONDO_SUCCESS;
}

static void group_done(struct rondo_verbs_comm *comm, uint32_t sequence)
{
    struct rondo_verbs_group *group = &comm->groups[sequence % RONDO_VERBS_SLOTS];
    for (int i = 0; i < group->parts; i++) {
        group->request[i]->done = 1;
    }
    group->parts = 0;
}

static rondo_status completion(struct rondo_verbs_comm *comm, const struct ibv_wc *wc)
{
    if (wc->status != IBV_WC_SUCCESS) {
        return rondo_verbs_fail_wc(comm, wc);
    }
    switch ((enum rondo_verbs_kind)(wc->wr_id >> 32)) {
    case RONDO_VERBS_SEND: group_done(comm, (uint32_t)wc->wr_id); break;
    case RONDO_VERBS_RECV: return message_came(comm, wc);
    case RONDO_VERBS_CTS: comm->cts_open--; break;
    case RONDO_VERBS_FLUSH: comm->requests[(uint32_t)wc->wr_id].done = 1; break;
    case RONDO_VERBS_NUM_KINDS: break;
    }
    return RONDO_SUCCESS;
}

static rondo_status progress(struct rondo_verbs_comm *comm)
{
    struct ibv_wc wc[POLL];
    int n = ibv_poll_cq(comm->cq, POLL, wc);
    if (n < 0) {
        return strange(comm, "the completion queue cannot be polled");
    }
    for (int i = 0; i < n; i++) {
        RONDO_TRY(completion(comm, &wc[i]));
    }
    comm->idle = n > 0 ? 0 : comm->idle + 1;
    if (comm->idle >= RONDO_VERBS_IDLE) {
        comm->idle = 0;
        return rondo_verbs_events(comm);
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_verbs_test(void *request_in, int *done, size_t *bytes)
{
    struct rondo_verbs_request *request = request_in;
    struct rondo_verbs_comm *comm = request->comm;
    *done = 0;
    RONDO_TRY(rondo_verbs_comm_error(comm));
    if (!request->done) {
        RONDO_TRY(progress(comm));
    }
    if (!request->done) {
        return RONDO_SUCCESS;
    }
    if (bytes != NULL) {
        memcpy(bytes, request->bytes, (size_t)request->n * sizeof *bytes);
    }
    comm->in_use[request->kind]--;
    request->busy = 0;
    *done = 1;
    return RONDO_SUCCESS;
}
