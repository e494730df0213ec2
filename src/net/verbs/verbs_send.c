/* Sending: find clear-to-sends, match them by tag, and write the data in stripes over lanes. */
#include "net/verbs/verbs.h"

#include <arpa/inet.h>
#include <string.h>
#include "base/mem.h"
#include "base/param.h"

/* The writes of a message on one lane. */
struct chain {
    struct ibv_send_wr wr[RONDO_NET_MAX_RECVS + 1];
    struct ibv_sge sge[RONDO_NET_MAX_RECVS + 1][RONDO_VERBS_PIECES];
    int n, short_last; /* the last write is at most one packet */
};

/* ---- stripes ---- */

size_t rondo_verbs_stripe(const struct rondo_verbs_comm *comm, uint64_t bytes)
{
    size_t lanes = comm->split ? (size_t)comm->nlanes : 1;
    return rondo_max_size(
        rondo_round_up((size_t)bytes / lanes + ((size_t)bytes % lanes != 0), RONDO_VERBS_STRIPE),
        RONDO_VERBS_STRIPE);
}

int rondo_verbs_stripes(const struct rondo_verbs_comm *comm, uint64_t bytes)
{
    size_t stripe = rondo_verbs_stripe(comm, bytes);
    return bytes == 0 ? 1 : (int)(((size_t)bytes + stripe - 1) / stripe);
}

/* ---- clear to send ---- */

static rondo_status hostile_cts(struct rondo_verbs_comm *comm)
{
    char ends[RONDO_VERBS_ENDS];
    rondo_verbs_ends(comm, ends);
    return rondo_verbs_comm_fail(comm, RONDO_REMOTE_ERROR,
                                 "an invalid clear-to-send arrived, %s; the other end is broken", ends);
}

/* Copy the next clear-to-send when all its parts have arrived; else group->parts stays 0. */
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
        if (parts < 1 || parts > RONDO_NET_MAX_RECVS || group->cts[i].parts != parts ||
            group->cts[i].nonce != comm->mine.nonce) {
            return hostile_cts(comm);
        }
    }
    group->matched = 0;
    memset(group->request, 0, sizeof group->request);
    group->parts = (int)parts;
    return RONDO_SUCCESS;
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

/* ---- writing ---- */

static int part_fits(const struct rondo_verbs_group *group, int part)
{
    return group->placed || group->request[part]->by_word ||
           group->request[part]->bytes[0] <= group->cts[part].bytes;
}

/* Offset and length of a part's writes. */
static size_t part_from(const struct rondo_verbs_group *group, int part)
{
    return group->placed ? group->request[part]->head_bytes : 0;
}
static size_t part_bytes(const struct rondo_verbs_group *group, int part)
{
    return group->request[part]->bytes[0] - part_from(group, part);
}

/* Where a part goes. */
static struct rondo_net_target target_of(const struct rondo_verbs_group *group, int part)
{
    const struct rondo_verbs_cts *cts = &group->cts[part];
    if (group->request[part]->by_word) {
        return group->request[part]->target;
    }
    return group->placed ? (struct rondo_net_target){ cts->place, cts->place_rkey }
                         : (struct rondo_net_target){ cts->address, cts->rkey };
}

/* Add a write of n pieces. The NIC, not the CPU, reads data that is not inline. */
static void chain_add(struct chain *chain, const struct rondo_verbs_lane *lane, const struct ibv_sge *sge,
                      int n, uint64_t to, uint32_t rkey, int by_cpu)
{
    struct ibv_send_wr *wr = &chain->wr[chain->n];
    memcpy(chain->sge[chain->n], sge, (size_t)n * sizeof *sge);
    wr->opcode = IBV_WR_RDMA_WRITE;
    wr->sg_list = chain->sge[chain->n];
    wr->num_sge = n;
    wr->send_flags = by_cpu && rondo_verbs_wr_bytes(wr) <= lane->inline_bytes ? IBV_SEND_INLINE : 0;
    wr->wr.rdma.remote_addr = to;
    wr->wr.rdma.rkey = rkey;
    chain->n++;
    chain->short_last = 0;
}

/* Find the pieces of [from, from + bytes) of a message. @return pieces */
static int pieces_of(const struct rondo_verbs_request *request, size_t from, size_t bytes,
                     struct ibv_sge *sge)
{
    int n = 0;
    for (int i = 0; i < RONDO_VERBS_PIECES && bytes > 0; i++) {
        size_t skip = rondo_min_size(from, request->piece[i].length),
               take = rondo_min_size(request->piece[i].length - skip, bytes);
        from -= skip;
        bytes -= take;
        if (take > 0) { /* some NICs take 0 bytes for the maximum */
            sge[n++] = (struct ibv_sge){ .addr = request->piece[i].addr + skip,
                                         .length = (uint32_t)take,
                                         .lkey = request->piece[i].lkey };
        }
    }
    return n;
}

/* Add stripe i of a part, if the part has one. */
static void add_stripe(const struct rondo_verbs_comm *comm, const struct rondo_verbs_group *group, int part,
                       int i, struct chain *chain, const struct rondo_verbs_lane *lane)
{
    const struct rondo_verbs_request *request = group->request[part];
    struct rondo_net_target to = target_of(group, part);
    size_t all = part_bytes(group, part), stripe = rondo_verbs_stripe(comm, all), from = (size_t)i * stripe;
    if (request->by_word && !request->has_note) { /* the receiver cannot count its stripes */
        stripe = rondo_max_size(all, 1);
    }
    if (from < all) {
        struct ibv_sge sge[RONDO_VERBS_PIECES];
        int n = pieces_of(request, part_from(group, part) + from, rondo_min_size(stripe, all - from), sge);
        chain_add(chain, lane, sge, n, to.address + from, to.key, request->by_cpu);
    }
}

/* Write into the receiver's block the first bytes of this end's sizes. */
static void add_block(struct rondo_verbs_comm *comm, struct chain *chain, const struct rondo_verbs_lane *lane,
                      size_t bytes)
{
    uint64_t slot = comm->sequence % RONDO_VERBS_SLOTS;
    struct ibv_sge sge = { .addr = (uintptr_t)comm->memory->sizes[slot],
                           .length = (uint32_t)bytes,
                           .lkey = comm->memory_mr->lkey };
    uint64_t to = comm->theirs.address + offsetof(struct rondo_verbs_memory, sizes) +
                  slot * sizeof comm->memory->sizes[0];
    chain_add(chain, lane, &sge, 1, to, comm->theirs.rkey, 1);
    chain->short_last = 1;
}

static void add_sizes(struct rondo_verbs_comm *comm, const struct rondo_verbs_group *group,
                      struct chain *chain, const struct rondo_verbs_lane *lane)
{
    uint64_t *sizes = comm->memory->sizes[comm->sequence % RONDO_VERBS_SLOTS];
    for (int i = 0; i < group->parts; i++) {
        sizes[i] = group->request[i]->bytes[0];
    }
    add_block(comm, chain, lane, sizeof *sizes * (size_t)group->parts);
}

static void add_note(struct rondo_verbs_comm *comm, const struct rondo_verbs_request *request,
                     struct chain *chain, const struct rondo_verbs_lane *lane)
{
    uint64_t *sizes = comm->memory->sizes[comm->sequence % RONDO_VERBS_SLOTS];
    sizes[0] = request->bytes[0];
    memcpy(&sizes[1], request->note, RONDO_NET_NOTE);
    add_block(comm, chain, lane, sizeof *sizes + RONDO_NET_NOTE);
}

/* The network may reorder packets within a write (adaptive routing); a separate write after it does not
 * overtake it. */
static int is_told_apart(const struct rondo_verbs_comm *comm, size_t bytes)
{
    const struct rondo_params *params = rondo_params();
    int adaptive = params->ib_adaptive_routing == RONDO_IB_ADAPTIVE_ROUTING_ALWAYS ||
                   (params->ib_adaptive_routing == RONDO_IB_ADAPTIVE_ROUTING_AUTO &&
                    comm->address.link_layer == IBV_LINK_LAYER_INFINIBAND);
    return adaptive && bytes > (uint64_t)params->ib_ar_threshold;
}

/* The immediate data of a message. */
static uint32_t word_of(const struct rondo_verbs_group *group)
{
    uint32_t bytes = (uint32_t)part_bytes(group, 0);
    if (group->request[0]->by_word) {
        return group->request[0]->word;
    }
    return group->parts > 1 ? (uint32_t)group->parts : group->placed ? bytes | RONDO_VERBS_PLACED : bytes;
}

/* Somebody watches: an event for the queue pair, as of its signaled write. */
static void tell_chain(const struct rondo_verbs_comm *comm, const struct rondo_verbs_group *group,
                       const struct chain *chain, int n, const struct rondo_verbs_lane *lane)
{
    struct rondo_net_ib_event event = { .type = 1,
                                        .qp = { .device = comm->device,
                                                .wr_id = chain->wr[n - 1].wr_id,
                                                .opcode = (int)chain->wr[n - 1].opcode,
                                                .number = (int)lane->qp->qp_num } };
    for (int i = 0; i < n; i++) {
        event.qp.bytes += rondo_verbs_wr_bytes(&chain->wr[i]);
    }
    rondo_net_events_add(&group->request[0]->events, RONDO_NET_KIND_IB, &event);
}

/* Let the chain's last write announce completion, or a write without data. */
static rondo_status chain_post(struct rondo_verbs_comm *comm, const struct rondo_verbs_group *group,
                               struct chain *chain, const struct rondo_verbs_lane *lane)
{
    int with_data = chain->n > 0 && (chain->short_last ||
                                     !is_told_apart(comm, rondo_verbs_wr_bytes(&chain->wr[chain->n - 1])));
    int last = with_data ? chain->n - 1 : chain->n;
    for (int i = 0; i < last; i++) {
        chain->wr[i].wr_id = rondo_verbs_wr_id(RONDO_VERBS_SEND, comm->sequence);
        chain->wr[i].next = &chain->wr[i + 1];
    }
    chain->wr[last].wr_id = rondo_verbs_wr_id(RONDO_VERBS_SEND, comm->sequence);
    chain->wr[last].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    chain->wr[last].send_flags |= IBV_SEND_SIGNALED;
    chain->wr[last].imm_data = htonl(word_of(group));
    if (RONDO_UNLIKELY(group->request[0]->events.parent != NULL)) {
        tell_chain(comm, group, chain, last + 1, lane);
    }
    return rondo_verbs_post(comm, lane->qp, chain->wr, "write of a message");
}

/* A part that is too long for its receive is announced but not written: the receiver reports the error. */
static int group_lanes(const struct rondo_verbs_comm *comm, const struct rondo_verbs_group *group)
{
    int lanes = 1;
    for (int part = 0; part < group->parts; part++) {
        const struct rondo_verbs_request *request = group->request[part];
        int splits = part_fits(group, part) && (!request->by_word || request->has_note);
        int stripes = splits ? rondo_verbs_stripes(comm, part_bytes(group, part)) : 1;
        lanes = stripes > lanes ? stripes : lanes;
    }
    return lanes;
}

/* May the message, which has one part, go without its head into the receiver's place of exactly its size? */
static int is_placed(const struct rondo_verbs_group *group)
{
    const struct rondo_verbs_request *request = group->request[0];
    return group->parts == 1 && request->head_bytes > 0 && group->cts[0].place_bytes > 0 &&
           group->cts[0].place_bytes == request->bytes[0] - request->head_bytes;
}

static rondo_status group_post(struct rondo_verbs_comm *comm, struct rondo_verbs_group *group)
{
    group->placed = is_placed(group);
    int lanes = group_lanes(comm, group);
    group->open = lanes;
    for (int i = 0; i < lanes; i++) {
        struct rondo_verbs_lane *lane = rondo_verbs_lane_of(comm, comm->sequence, i);
        struct chain chain;
        memset(&chain, 0, sizeof chain);
        for (int part = 0; part < group->parts; part++) {
            if (part_fits(group, part)) {
                add_stripe(comm, group, part, i, &chain, lane);
            }
        }
        /* Last: so short a write can announce completion in any network, without another one behind it. */
        if (i == 0 && group->parts > 1) {
            add_sizes(comm, group, &chain, lane);
        } else if (i == 0 && group->request[0]->has_note) {
            add_note(comm, group->request[0], &chain, lane);
        }
        RONDO_TRY(chain_post(comm, group, &chain, lane));
    }
    return RONDO_SUCCESS;
}

void rondo_verbs_group_done(struct rondo_verbs_comm *comm, uint32_t sequence)
{
    struct rondo_verbs_group *group = &comm->groups[sequence % RONDO_VERBS_SLOTS];
    if (--group->open > 0) {
        return;
    }
    for (int i = 0; i < group->parts; i++) {
        group->request[i]->done = 1;
    }
    group->parts = 0;
}

/* Begin a send of n pieces. *request_out NULL: there is no room or no clear-to-send for this tag. */
static rondo_status send_begin(struct rondo_verbs_comm *comm, const struct rondo_net_span *piece, int n,
                               int tag, int *part_out, struct rondo_verbs_request **request_out)
{
    struct rondo_verbs_group *group = &comm->groups[comm->sequence % RONDO_VERBS_SLOTS];
    struct rondo_verbs_request *request;
    int part;
    *request_out = NULL;
    RONDO_TRY(rondo_verbs_comm_check(comm, 1));
    for (int i = 0; i < n; i++) {
        RONDO_TRY(rondo_verbs_region_check(comm, piece[i].region, piece[i].data, piece[i].bytes));
    }
    if (group->parts == 0 && comm->in_use[RONDO_VERBS_SEND] < RONDO_NET_MAX_REQUESTS) {
        RONDO_TRY(group_look(comm, group));
    }
    part = group_match(group, tag);
    request = part >= 0 ? rondo_verbs_request_take(comm, RONDO_VERBS_SEND, RONDO_NET_MAX_REQUESTS) : NULL;
    if (request == NULL) { /* the caller may have no request to test, so it gets the error here */
        return rondo_verbs_progress(comm);
    }
    request->n = 1;
    request->by_cpu = 1;
    rondo_net_events_begin(&request->events);
    for (int i = 0; i < n; i++) {
        const struct rondo_verbs_region *region = piece[i].region;
        if (piece[i].bytes > 0) {
            request->piece[i] = (struct ibv_sge){ .addr = (uintptr_t)piece[i].data,
                                                  .length = (uint32_t)piece[i].bytes,
                                                  .lkey = region->shared->mr->lkey };
            request->by_cpu &= region->shared->kind == RONDO_NET_HOST;
        }
        request->bytes[0] += piece[i].bytes;
    }
    *part_out = part;
    *request_out = request;
    return RONDO_SUCCESS;
}

static rondo_status send_end(struct rondo_verbs_comm *comm, int part, struct rondo_verbs_request *request,
                             void **request_out)
{
    struct rondo_verbs_group *group = &comm->groups[comm->sequence % RONDO_VERBS_SLOTS];
    group->request[part] = request;
    if (++group->matched == group->parts) {
        RONDO_TRY(group_post(comm, group));
        comm->sequence++;
    }
    *request_out = request;
    return RONDO_SUCCESS;
}

/* Queue a send of n pieces, of which a place can do without the first head_bytes. */
static rondo_status give(struct rondo_verbs_comm *comm, const struct rondo_net_span *piece, int n,
                         size_t head_bytes, int tag, void **request_out)
{
    struct rondo_verbs_request *request;
    int part;
    *request_out = NULL;
    RONDO_TRY(send_begin(comm, piece, n, tag, &part, &request));
    if (request == NULL) {
        return RONDO_SUCCESS;
    }
    request->head_bytes = head_bytes;
    return send_end(comm, part, request, request_out);
}

rondo_status rondo_verbs_iwrite(void *comm_in, const struct rondo_net_span *data,
                                const struct rondo_net_target *target, uint32_t word, const void *note,
                                void **request_out)
{
    struct rondo_verbs_comm *comm = comm_in;
    struct rondo_verbs_request *request;
    int part;
    *request_out = NULL;
    RONDO_TRY(send_begin(comm, data, 1, RONDO_VERBS_WORD_TAG, &part, &request));
    if (request == NULL) {
        return RONDO_SUCCESS;
    }
    if (comm->groups[comm->sequence % RONDO_VERBS_SLOTS].parts != 1) {
        return hostile_cts(comm);
    }
    request->by_word = 1;
    request->target = *target;
    request->word = word;
    request->has_note = note != NULL;
    if (note != NULL) {
        memcpy(request->note, note, RONDO_NET_NOTE);
    }
    return send_end(comm, part, request, request_out);
}

rondo_status rondo_verbs_isend(void *comm, const void *data, size_t bytes, int tag, void *region,
                               void **request)
{
    const struct rondo_net_span span = { .data = (void *)data, .bytes = bytes, .region = region };
    return give(comm, &span, 1, 0, tag, request);
}

rondo_status rondo_verbs_isend_from(void *comm, const struct rondo_net_span *head,
                                    const struct rondo_net_span *data, int plain, int tag, void **request)
{
    struct rondo_net_span piece[RONDO_VERBS_PIECES] = { *head, *data };
    int as_one = head->region == data->region && (uint8_t *)head->data + head->bytes == data->data;
    piece[0].bytes += as_one ? data->bytes : 0;
    return give(comm, piece, as_one ? 1 : RONDO_VERBS_PIECES, plain ? head->bytes : 0, tag, request);
}
