/* The p2p transport: links in device memory, from offer to close. Contract: net/transport/transport_p2p.h. */
#include "net/transport/transport_p2p.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "net/control/control.h"

/* The content of a connect record. Offsets in the offering rank's blocks: line in the first one, slots in
 * the named one. */
struct p2p_record {
    struct rondo_gpu_name block; /* zero: no slots at this end */
    uint64_t line, slots;
    uint32_t slot_bytes[RONDO_NUM_PROTOS]; /* of all protocols of the link */
    uint8_t protos, way;
    uint16_t reserved;
};
_Static_assert(sizeof(struct p2p_record) <= RONDO_CONNECT_DATA,
               "the record of a p2p link fits a connect record");

/* Names of the P2P modes in the log. */
static const char *const vias[RONDO_NUM_P2P_MODES][2] = {
    /* in one process, between two */
    [RONDO_P2P_MODE_WRITE] = { "P2P/direct", "P2P/IPC" },
    [RONDO_P2P_MODE_READ] = { "P2P/direct/read", "P2P/IPC/read" },
};

static enum rondo_p2p_mode way_to(const struct rondo_net *net, const struct rondo_peer *self,
                                  const struct rondo_peer *peer)
{
    if (net->device == NULL || net->p2p_modes == NULL || self->rank == peer->rank ||
        !rondo_peer_same_node(self, peer)) {
        return RONDO_P2P_MODE_NONE;
    }
    return (enum rondo_p2p_mode)net->p2p_modes[net->local_of[peer->rank]];
}

static int p2p_reaches(const struct rondo_net *net, const struct rondo_peer *self,
                       const struct rondo_peer *peer)
{
    return vias[way_to(net, self, peer)][0] != NULL;
}

static const char *p2p_why_not(const struct rondo_net *net, const struct rondo_peer *self,
                               const struct rondo_peer *peer)
{
    if (rondo_params()->p2p_disable) {
        return "is disabled by RONDO_P2P_DISABLE";
    }
    if (!rondo_peer_same_node(self, peer)) {
        return "does not reach another host";
    }
    return way_to(net, self, peer) == RONDO_P2P_MODE_BROKEN ? "failed its check (a warning said why)"
                                                            : "has no path within RONDO_P2P_LEVEL";
}

/* ---- the state ---- */

static void p2p_close(void *state)
{
    struct rondo_p2p *p2p = state;
    CUstreamCaptureMode before;
    if (rondo_p2p_enter(p2p, &before) == RONDO_SUCCESS) {
        rondo_p2p_drop(p2p);
        rondo_p2p_leave(before);
    }
    rondo_free(p2p);
}

static rondo_status p2p_open(struct rondo_net *net, void **state, int max_links)
{
    struct rondo_p2p *p2p;
    CUstreamCaptureMode before;
    rondo_status status;
    *state = NULL;
    if (net->device == NULL || net->nlocal < 2) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(RONDO_NEW(p2p, "the p2p transport"));
    p2p->net = net;
    p2p->cuda = rondo_cuda(NULL);
    status = rondo_p2p_enter(p2p, &before);
    if (status != RONDO_SUCCESS) {
        rondo_free(p2p);
        return status;
    }
    status = rondo_p2p_make(p2p, max_links);
    rondo_p2p_leave(before);
    if (status != RONDO_SUCCESS) {
        p2p_close(p2p);
        return status;
    }
    *state = p2p;
    return RONDO_SUCCESS;
}

void rondo_net_gpu(const struct rondo_net *net, struct rondo_gpu_name *name)
{
    const struct rondo_p2p *p2p = rondo_transport_state(net, &rondo_transport_p2p);
    memset(name, 0, sizeof(*name));
    if (p2p != NULL) {
        *name = p2p->block[0].mem.name;
    }
}

rondo_status rondo_net_check(struct rondo_net *net)
{
    struct rondo_p2p *p2p = rondo_transport_state(net, &rondo_transport_p2p);
    CUstreamCaptureMode before;
    rondo_status status;
    if (p2p == NULL || net->p2p_modes == NULL) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_p2p_enter(p2p, &before));
    status = rondo_p2p_check(p2p);
    rondo_p2p_leave(before);
    return status;
}

/* ---- what lies where ---- */

/* Protocols whose slots are at this end. Polled ones (LL, LL128) lie at the receiver, which polls its own
 * memory. */
static uint32_t protos_at(uint32_t protos, enum rondo_p2p_mode way, int is_send)
{
    uint32_t read = way == RONDO_P2P_MODE_READ ? 1u << RONDO_PROTO_SIMPLE : 0;
    return is_send ? protos & read : protos & ~read;
}

static enum rondo_p2p_mode way_of(const struct rondo_net *net, int peer)
{
    return (enum rondo_p2p_mode)net->p2p_modes[net->local_of[peer]];
}

static rondo_status p2p_expect(void *state, int nrecv, int nsend, uint32_t protos)
{
    struct rondo_p2p *p2p = state;
    const struct rondo_net *net = p2p->net;
    size_t recv = rondo_net_slots_bytes(net, protos_at(protos, RONDO_P2P_MODE_WRITE, 0)), send = 0;
    for (int i = 0; net->p2p_modes != NULL && i < net->nlocal; i++) {
        if (net->p2p_modes[i] == RONDO_P2P_MODE_READ) {
            send = rondo_net_slots_bytes(net, protos_at(protos, RONDO_P2P_MODE_READ, 1));
        }
    }
    p2p->expected = (size_t)nrecv * recv + (size_t)nsend * send;
    return RONDO_SUCCESS;
}

/* ---- offer ---- */

static rondo_status offer(struct rondo_p2p *p2p, struct rondo_link *link, struct rondo_connect *record)
{
    const struct rondo_net *net = p2p->net;
    enum rondo_p2p_mode way = way_of(net, link->peer);
    uint32_t here = protos_at(link->protos, way, link->is_send);
    struct p2p_record data = { .protos = (uint8_t)link->protos, .way = (uint8_t)way };
    struct rondo_p2p_link *own;
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        data.slot_bytes[p] = (link->protos >> p & 1) * net->slot_bytes[p];
        if ((link->protos >> p & 1) &&
            (net->slot_bytes[p] == 0 || net->slot_bytes[p] % RONDO_CTRL_ALIGN != 0)) {
            return rondo_fail(RONDO_INTERNAL_ERROR,
                              "rank %d offers a link for %s, whose slots have %u bytes: not a multiple of %d",
                              net->rank, rondo_proto_name((enum rondo_proto)p), net->slot_bytes[p],
                              RONDO_CTRL_ALIGN);
        }
    }
    RONDO_TRY(RONDO_NEW(own, "a p2p link"));
    own->owner = p2p;
    own->place = -1;
    link->state = own; /* disconnect frees it, also when a later step fails */
    RONDO_TRY(rondo_p2p_take_line(p2p, own));
    data.line = own->line;
    if (here != 0) {
        RONDO_TRY(rondo_p2p_take_slots(p2p, own, rondo_net_slots_bytes(net, here)));
        data.block = p2p->block[own->place].mem.name;
        data.slots = own->slots;
    }
    memcpy(record->data, &data, sizeof(data));
    return RONDO_SUCCESS;
}

static rondo_status p2p_offer(void *state, struct rondo_link *link, struct rondo_connect *record)
{
    struct rondo_p2p *p2p = state;
    CUstreamCaptureMode before;
    rondo_status status;
    RONDO_TRY(rondo_p2p_enter(p2p, &before));
    status = offer(p2p, link, record);
    if (status == RONDO_SUCCESS && link->channel >= 0 && p2p->zeroing) {
        status = rondo_p2p_zero(p2p);
    }
    rondo_p2p_leave(before);
    return status;
}

/* ---- connect ---- */

/* Slots and words of both ends, as addresses of this device. */
struct place {
    uint8_t *here, *there; /* slots at this end, at the peer's; NULL: none */
    uint8_t *mine, *theirs;
};

static void conn_fill(struct rondo_p2p *p2p, struct rondo_link *link, enum rondo_p2p_mode way,
                      struct place place)
{
    const struct rondo_net *net = p2p->net;
    uint32_t here = protos_at(link->protos, way, link->is_send);
    struct rondo_conn *conn = &link->conn;
    memset(conn, 0, sizeof(*conn));
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        if (link->protos >> p & 1) {
            uint8_t **slots = here >> p & 1 ? &place.here : &place.there;
            conn->slots[p] = *slots;
            conn->slot_bytes[p] = net->slot_bytes[p];
            *slots += (size_t)RONDO_SLOTS * conn->slot_bytes[p];
        }
    }
    conn->tail = (struct rondo_conn_tail *)(void *)(link->is_send ? place.theirs : place.mine);
    conn->head = (struct rondo_conn_head *)(void *)(link->is_send ? place.mine : place.theirs);
    conn->peer = link->peer;
    conn->channel = link->channel;
    conn->via = vias[way][net->peers[net->rank].process_hash != net->peers[link->peer].process_hash];
}

static rondo_status refuse(const struct rondo_net *net, const struct rondo_link *link, const char *why)
{
    return rondo_fail(RONDO_INTERNAL_ERROR,
                      "rank %d refuses the record of rank %d (host %.*s) for channel %d over P2P: %s",
                      net->rank, link->peer, RONDO_HOST_LEN, net->peers[link->peer].host, link->channel, why);
}

static rondo_status open_failed(const struct rondo_net *net, const struct rondo_link *link,
                                rondo_status status)
{
    char why[RONDO_ERROR_TEXT / 2];
    snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1, rondo_error_text());
    return rondo_fail(status,
                      "rank %d cannot map the memory of the GPU of rank %d (host %.*s): %s; "
                      "RONDO_P2P_DISABLE=1 avoids this",
                      net->rank, link->peer, RONDO_HOST_LEN, net->peers[link->peer].host, why);
}

/* Does the record describe the other end of this link? */
static int fits(const struct rondo_net *net, const struct rondo_link *link, const struct p2p_record *data)
{
    int same = data->protos == link->protos && data->way == way_of(net, link->peer);
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        same &= data->slot_bytes[p] == (link->protos >> p & 1) * net->slot_bytes[p];
    }
    return same;
}

static rondo_status connect_to(struct rondo_p2p *p2p, struct rondo_link *link, const struct p2p_record *data)
{
    const struct rondo_net *net = p2p->net;
    const struct rondo_p2p_link *own = link->state;
    enum rondo_p2p_mode way = way_of(net, link->peer);
    uint32_t there = protos_at(link->protos, way, !link->is_send);
    struct rondo_gpu_mem first, block = { 0 };
    int local = net->local_of[link->peer];
    rondo_status status;
    if (!fits(net, link, data)) {
        return refuse(net, link, "its protocols, sizes or P2P mode differ");
    }
    status = rondo_p2p_open(p2p, local, NULL, &first);
    if (status == RONDO_SUCCESS && there != 0) {
        status = rondo_p2p_open(p2p, local, &data->block, &block);
    }
    if (status != RONDO_SUCCESS) {
        return open_failed(net, link, status);
    }
    if (!rondo_net_inside(data->line, RONDO_CTRL_ALIGN, p2p->first_line, first.bytes) ||
        (there != 0 && !rondo_net_inside(data->slots, rondo_net_slots_bytes(net, there), 0, block.bytes))) {
        return refuse(net, link, "it points outside its memory");
    }
    conn_fill(p2p, link, way,
              (struct place){ .here = own->place < 0 ? NULL : p2p->block[own->place].mem.base + own->slots,
                              .there = there != 0 ? block.base + data->slots : NULL,
                              .mine = p2p->block[0].mem.base + own->line,
                              .theirs = first.base + data->line });
    return RONDO_SUCCESS;
}

static rondo_status p2p_connect(void *state, struct rondo_link *link, const struct rondo_connect *record)
{
    struct rondo_p2p *p2p = state;
    struct p2p_record data;
    CUstreamCaptureMode before;
    rondo_status status;
    memcpy(&data, record->data, sizeof(data));
    RONDO_TRY(rondo_p2p_enter(p2p, &before));
    status = connect_to(p2p, link, &data);
    rondo_p2p_leave(before);
    return status;
}

/* The peer learns of slots that are zeroed: that may be late, and whoever waits for the link has checks. */
static rondo_status slots_zeroed(struct rondo_p2p *p2p, struct rondo_p2p_link *own)
{
    CUstreamCaptureMode before;
    rondo_status status;
    RONDO_TRY(rondo_p2p_enter(p2p, &before));
    status = rondo_p2p_zeroed(p2p, own);
    rondo_p2p_leave(before);
    return status;
}

static rondo_status p2p_connect_lazy(void *state, struct rondo_link *link)
{
    struct rondo_p2p *p2p = state;
    struct rondo_connect record = { 0 };
    struct rondo_p2p_link *own;
    if (link->state == NULL) {
        RONDO_TRY(p2p_offer(state, link, &record));
        own = link->state;
        own->lazy.record = record;
    }
    own = link->state;
    if (own->zeroing) {
        RONDO_TRY(slots_zeroed(p2p, own));
    }
    return rondo_lazy_move(p2p->net, state, link, &own->lazy);
}

static rondo_status p2p_connect_all(void *state)
{
    struct rondo_p2p *p2p = state;
    const struct rondo_net *net = p2p->net;
    struct rondo_gpu_mem mem;
    CUstreamCaptureMode before;
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY(rondo_p2p_enter(p2p, &before));
    for (int i = 0; net->p2p_modes != NULL && i < net->nlocal && status == RONDO_SUCCESS; i++) {
        int peer = net->local_ranks[i];
        if (p2p_reaches(net, &net->peers[net->rank],
                        &net->peers[peer])) { /* settle removes the name; lazy links come later */
            struct rondo_link lazy = { .peer = peer };
            status = rondo_p2p_open(p2p, i, NULL, &mem);
            status = status == RONDO_SUCCESS ? status : open_failed(net, &lazy, status);
        }
    }
    rondo_p2p_leave(before);
    return status;
}

/* ---- hello: copies move words of device memory, which are read when the copies are done ---- */

static rondo_status copy(struct rondo_p2p *p2p, const void *to, const void *from)
{
    const struct rondo_net *net = p2p->net;
    CUresult result = p2p->cuda->MemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
                                             sizeof(uint64_t), p2p->stream);
    return result == CUDA_SUCCESS
               ? RONDO_SUCCESS
               : rondo_cuda_fail(result, "rank %d on %s: copying a word of GPU %d (%s)", net->rank,
                                 rondo_log_host(), net->device->ordinal, net->device->bus_id);
}

/* Start reading the word that this end polls. */
static rondo_status look(struct rondo_p2p *p2p, struct rondo_p2p_link *own)
{
    own->looking = 1;
    return copy(p2p, &p2p->word[own->number], p2p->block[0].mem.base + own->line);
}

/* *done: all copies so far are complete. Errors come from the device. */
static rondo_status looked(const struct rondo_p2p *p2p, int *done)
{
    const struct rondo_cuda_device *device = p2p->net->device;
    CUresult result = p2p->cuda->StreamQuery(p2p->stream);
    *done = result == CUDA_SUCCESS;
    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY
               ? RONDO_SUCCESS
               : rondo_cuda_fail(result, "rank %d on %s: copies of GPU %d (%s)", p2p->net->rank,
                                 rondo_log_host(), device->ordinal, device->bus_id);
}

static rondo_status hello_send(struct rondo_p2p *p2p, struct rondo_link *link, struct rondo_p2p_link *own)
{
    struct rondo_conn *conn = &link->conn;
    if (link->hello == RONDO_HELLO_NONE) {
        conn->step = 1;
        RONDO_TRY(copy(p2p, &conn->tail->tail, &p2p->constant[0]));
        link->hello = RONDO_HELLO_POSTED;
    } else if (p2p->word[own->number] >= 1) {
        conn->seen = 1;
        link->hello = RONDO_HELLO_PASSED;
        return RONDO_SUCCESS;
    }
    return look(p2p, own);
}

/* Passed when the credit is written: a kernel may write the next one at once. */
static rondo_status hello_receive(struct rondo_p2p *p2p, struct rondo_link *link, struct rondo_p2p_link *own)
{
    struct rondo_conn *conn = &link->conn;
    if (link->hello == RONDO_HELLO_POSTED) {
        conn->step = conn->seen = 1;
        link->hello = RONDO_HELLO_PASSED;
        return RONDO_SUCCESS;
    }
    if (p2p->word[own->number] >= 1) {
        link->hello = RONDO_HELLO_POSTED;
        own->looking = 1;
        return copy(p2p, &conn->head->head, &p2p->constant[0]);
    }
    return look(p2p, own);
}

static rondo_status hello_progress(struct rondo_p2p *p2p, struct rondo_link *link, struct rondo_p2p_link *own)
{
    int done = 1;
    if (own->looking) {
        RONDO_TRY(looked(p2p, &done));
    }
    if (!done) {
        return RONDO_SUCCESS;
    }
    own->looking = 0;
    return link->is_send ? hello_send(p2p, link, own) : hello_receive(p2p, link, own);
}

static rondo_status p2p_hello(struct rondo_link *link)
{
    struct rondo_p2p_link *own = link->state;
    CUstreamCaptureMode before;
    rondo_status status;
    RONDO_TRY(rondo_p2p_enter(own->owner, &before));
    status = hello_progress(own->owner, link, own);
    rondo_p2p_leave(before);
    return status;
}

/* ---- the end ---- */

static void p2p_disconnect(void *state, struct rondo_link *link)
{
    (void)state;
    rondo_free(link->state);
    link->state = NULL;
}

static size_t p2p_bytes(void *state)
{
    const struct rondo_p2p *p2p = state;
    size_t bytes = 0;
    for (int i = 0; i < p2p->nblocks; i++) {
        bytes += p2p->block[i].mem.bytes;
    }
    return bytes;
}

/* Lazy links take their slots from new blocks: the names of these blocks are no longer valid. */
static void p2p_settle(void *state)
{
    struct rondo_p2p *p2p = state;
    for (int i = 0; i < p2p->nblocks; i++) {
        rondo_gpu_mem_settle(&p2p->block[i].mem);
        p2p->block[i].used = p2p->block[i].mem.bytes;
    }
    RONDO_INFO(
        RONDO_SUBSYS_INIT | RONDO_SUBSYS_P2P | RONDO_SUBSYS_ALLOC,
        "rank %d: %zu bytes of GPU %d (%s) for P2P, in %d blocks: %zu links, slots for the protocols in use",
        p2p->net->rank, p2p_bytes(p2p), p2p->net->device->ordinal, p2p->net->device->bus_id, p2p->nblocks,
        p2p->nlines);
}

const struct rondo_transport rondo_transport_p2p = {
    .name = "p2p",
    .number = 3,
    .reaches = p2p_reaches,
    .why_not = p2p_why_not,
    .open = p2p_open,
    .expect = p2p_expect,
    .offer = p2p_offer,
    .connect = p2p_connect,
    .hello = p2p_hello,
    .connect_lazy = p2p_connect_lazy,
    .disconnect = p2p_disconnect,
    .connect_all = p2p_connect_all,
    .settle = p2p_settle,
    .close = p2p_close,
    .bytes = p2p_bytes,
};
