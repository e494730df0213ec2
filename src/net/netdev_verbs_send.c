/* Sending: clear-to-sends are looked for, matched by tag, and the data written in stripes over lanes. */
#include "net/netdev_verbs.h"

#include <arpa/inet.h>
#include <string.h>
#include "base/mem.h"
#include "base/param.h"

enum routing { ROUTING_AUTO, ROUTING_FIXED, ROUTING_ADAPTIVE, ROUTING_AUTO_TOO }; /* RONDO_IB_ADAPTIVE_ROUTING */

/* The writes of a message on one lane. */
struct chain {
    struct ibv_send_wr wr[RONDO_NET_MAX_RECVS + 1];
    struct ibv_sge sge[RONDO_NET_MAX_RECVS + 1];
    int n, short_last; /* the last write is one packet at most */
};

/* ---- stripes ---- */

size_t rondo_verbs_stripe(const struct rondo_verbs_comm *comm, uint64_t bytes)
{
    size_t lanes = comm->split ? (size_t)comm->nlanes : 1;
    return rondo_max_size(rondo_round_up((size_t)bytes / lanes + ((size_t)bytes % lanes != 0), RONDO_VERBS_STRIPE), RONDO_VERBS_STRIPE);
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

static int part_fits(const struct rondo_verbs_group *group, int part) { return group->request[part]->bytes[0] <= group->cts[part].bytes; }

/* A card, not the CPU, reads what is not inline. */
static void chain_add(struct chain *chain, const struct rondo_verbs_lane *lane, struct ibv_sge sge, uint64_t to, uint32_t rkey, int by_cpu)
{
    struct ibv_send_wr *wr = &chain->wr[chain->n];
    chain->sge[chain->n] = sge;
    wr->opcode = IBV_WR_RDMA_WRITE;
    wr->sg_list = &chain->sge[chain->n];
    wr->num_sge = 1;
    wr->send_flags = by_cpu && sge.length <= lane->inline_bytes ? IBV_SEND_INLINE : 0;
    wr->wr.rdma.remote_addr = to;
    wr->wr.rdma.rkey = rkey;
    chain->n++;
}

/* Stripe i of a part, if it has so many. */
static void add_stripe(const struct rondo_verbs_comm *comm, const struct rondo_verbs_group *group, int part, int i, struct chain *chain,
                       const struct rondo_verbs_lane *lane)
{
    const struct rondo_verbs_request *request = group->request[part];
    const struct rondo_verbs_cts *cts = &group->cts[part];
    size_t stripe = rondo_verbs_stripe(comm, request->bytes[0]), from = (size_t)i * stripe;
    if (from < request->bytes[0]) {
        struct ibv_sge sge = { .addr = request->address + from,
                               .length = (uint32_t)rondo_min_size(stripe, request->bytes[0] - from),
                               .lkey = request->lkey };
        chain_add(chain, lane, sge, cts->address + from, cts->rkey, request->by_cpu);
    }
}

/* The sizes of the parts into the receiver's block. */
static void add_sizes(struct rondo_verbs_comm *comm, const struct rondo_verbs_group *group, struct chain *chain,
                      const struct rondo_verbs_lane *lane)
{
    uint64_t slot = comm->sequence % RONDO_VERBS_SLOTS;
    uint64_t *sizes = comm->memory->sizes[slot];
    for (int i = 0; i < group->parts; i++) {
        sizes[i] = group->request[i]->bytes[0];
    }
    struct ibv_sge sge = { .addr = (uintptr_t)sizes,
                           .length = (uint32_t)(sizeof *sizes * (size_t)group->parts),
                           .lkey = comm->memory_mr->lkey };
    uint64_t to = comm->theirs.address + offsetof(struct rondo_verbs_memory, sizes) + slot * sizeof comm->memory->sizes[0];
    chain_add(chain, lane, sge, to, comm->theirs.rkey, 1);
    chain->short_last = 1;
}

/* The network may deliver packets of one write in any order (adaptive routing); a write of its own after it does not overtake. */
static int is_told_apart(const struct rondo_verbs_comm *comm, size_t bytes)
{
    const struct rondo_params *params = rondo_params();
    int adaptive = params->ib_adaptive_routing == ROUTING_ADAPTIVE ||
                   (params->ib_adaptive_routing != ROUTING_FIXED && comm->address.link_layer == IBV_LINK_LAYER_INFINIBAND);
    return adaptive && bytes > (uint64_t)params->ib_ar_threshold;
}

/* The chain's last write says that it is all, or one without data does. */
static rondo_status chain_post(struct rondo_verbs_comm *comm, const struct rondo_verbs_group *group, struct chain *chain,
                               const struct rondo_verbs_lane *lane)
{
    int with_data = chain->n > 0 && (chain->short_last || !is_told_apart(comm, chain->sge[chain->n - 1].length));
    int last = with_data ? chain->n - 1 : chain->n;
    for (int i = 0; i < last; i++) {
        chain->wr[i].wr_id = rondo_verbs_wr_id(RONDO_VERBS_SEND, comm->sequence);
        chain->wr[i].next = &chain->wr[i + 1];
    }
    chain->wr[last].wr_id = rondo_verbs_wr_id(RONDO_VERBS_SEND, comm->sequence);
    chain->wr[last].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    chain->wr[last].send_flags |= IBV_SEND_SIGNALED;
    chain->wr[last].imm_data = htonl(group->parts == 1 ? (uint32_t)group->request[0]->bytes[0] : (uint32_t)group->parts);
    return rondo_verbs_post(comm, lane->qp, chain->wr, "write of a message");
}

/* A part that is too long for its receive is announced and not written: the receiver says so. */
static int group_lanes(const struct rondo_verbs_comm *comm, const struct rondo_verbs_group *group)
{
    int lanes = 1;
    for (int part = 0; part < group->parts; part++) {
        int stripes = part_fits(group, part) ? rondo_verbs_stripes(comm, group->request[part]->bytes[0]) : 1;
        lanes = stripes > lanes ? stripes : lanes;
    }
    return lanes;
}

static rondo_status group_post(struct rondo_verbs_comm *comm, struct rondo_verbs_group *group)
{
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
        if (i == 0 && group->parts > 1) {
            add_sizes(comm, group, &chain, lane);
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

rondo_status rondo_verbs_isend(void *comm_in, const void *data, size_t bytes, int tag, void *region_in, void **request_out)
{
    struct rondo_verbs_comm *comm = comm_in;
    const struct rondo_verbs_region *region = region_in;
    struct rondo_verbs_group *group = &comm->groups[comm->sequence % RONDO_VERBS_SLOTS];
    struct rondo_verbs_request *request;
    int part;
    *request_out = NULL;
    RONDO_TRY(rondo_verbs_comm_check(comm, 1));
    RONDO_TRY(rondo_verbs_region_check(comm, region, data, bytes));
    if (group->parts == 0 && comm->in_use[RONDO_VERBS_SEND] < RONDO_NET_MAX_REQUESTS) {
        RONDO_TRY(group_look(comm, group));
    }
    part = group_match(group, tag);
    request = part >= 0 ? rondo_verbs_request_take(comm, RONDO_VERBS_SEND, RONDO_NET_MAX_REQUESTS) : NULL;
    if (request == NULL) { /* the caller may have nothing to test, and is told of errors here */
        return rondo_verbs_progress(comm);
    }
    request->n = 1;
    request->bytes[0] = bytes;
    request->address = (uintptr_t)data;
    request->lkey = bytes > 0 ? region->shared->mr->lkey : 0;
    request->by_cpu = bytes > 0 && region->shared->kind == RONDO_NET_HOST;
    group->request[part] = request;
    if (++group->matched == group->parts) {
        RONDO_TRY(group_post(comm, group));
        comm->sequence++;
    }
    *request_out = request;
    return RONDO_SUCCESS;
}
