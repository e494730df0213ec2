/* The net transport: ends of conns between nodes, from offer to close. Contract:
 * net/transport/transport_net.h; transport_net_proxy.c moves the data. */
#include "net/transport/transport_net.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"

/* The content of a connect record. The rest is the device's handle. */
struct net_record {
    uint8_t device; /* index in rondo_netdevs */
    uint8_t protos;
    uint16_t split; /* 1: this end wants headers as messages of their own */
    uint8_t handle[RONDO_NET_HANDLE];
};
_Static_assert(sizeof(struct net_record) <= RONDO_CONNECT_DATA,
               "the record of a net link fits a connect record");

static const struct rondo_net_device *device_of(const struct rondo_peer *self, const struct rondo_peer *peer)
{
    return rondo_netdev_common(self->netdevs, peer->netdevs);
}

/* Index of that device in rondo_netdevs. */
static uint8_t common_of(const struct rondo_net *net, int peer)
{
    return (uint8_t)__builtin_ctz(net->peers[net->rank].netdevs & net->peers[peer].netdevs);
}

static int net_reaches(const struct rondo_net *net, const struct rondo_peer *self,
                       const struct rondo_peer *peer)
{
    (void)net;
    return !rondo_params()->net_disable && device_of(self, peer) != NULL;
}

static const char *net_why_not(const struct rondo_net *net, const struct rondo_peer *self,
                               const struct rondo_peer *peer)
{
    (void)net;
    if (rondo_params()->net_disable) {
        return "is disabled by RONDO_NET_DISABLE";
    }
    if (self->netdevs == 0) {
        return "found no network device on this host (RONDO_DEBUG=INFO RONDO_DEBUG_SUBSYS=NET says why)";
    }
    return peer->netdevs == 0
               ? "found no network device on the other host (RONDO_DEBUG=INFO RONDO_DEBUG_SUBSYS=NET there "
                 "says why)"
               : "has no device of one kind on both hosts (RONDO_NET, RONDO_SOCKET_IFNAME, RONDO_IB_HCA)";
}

static rondo_status net_open(struct rondo_net *net, void **state_out, int max_links)
{
    struct rondo_net_state *state;
    (void)max_links;
    RONDO_TRY(RONDO_NEW(state, "the net transport"));
    state->net = net;
    *state_out = state;
    return RONDO_SUCCESS;
}

/* ---- an end's memory ---- */

/* Slots of lazy links are smaller: a rank may have one with every other rank. */
static uint32_t slot_bytes_of(const struct rondo_net *net, const struct rondo_link *link, int proto)
{
    uint32_t bytes = net->slot_bytes[proto];
    int64_t most = rondo_params()->p2p_net_chunksize;
    return link->channel < 0 && bytes > most ? (uint32_t)(most / RONDO_CTRL_ALIGN * RONDO_CTRL_ALIGN) : bytes;
}

size_t rondo_net_largest(const struct rondo_net *net, const struct rondo_link *link)
{
    size_t largest = 0;
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        if (link->protos >> p & 1) {
            largest = rondo_max_size(largest, slot_bytes_of(net, link, p));
        }
    }
    return largest;
}

size_t rondo_net_room(size_t slot_bytes)
{
    return rondo_round_up(2 * RONDO_CTRL_ALIGN + RONDO_SLOTS * (RONDO_CTRL_ALIGN + slot_bytes),
                          (size_t)sysconf(_SC_PAGESIZE));
}

/* For a relay, allocate in the segment that senders see. It has room for all ends; pages are reserved when
 * needed. */
static rondo_status segment_memory(struct rondo_net_end *end, size_t largest)
{
    struct rondo_net_state *state = end->owner;
    if (!end->borrowed) {
        end->borrowed = 1;
        end->offset = state->segment_used;
        state->segment_used += rondo_net_room(largest);
    }
    RONDO_TRY(rondo_shm_reserve(state->segment, end->offset, end->bytes));
    end->memory = end->address = state->segment->base + end->offset;
    return RONDO_SUCCESS;
}

static rondo_status end_memory(struct rondo_net_end *end)
{
    const struct rondo_net *net = end->owner->net;
    size_t largest = rondo_net_largest(net, end->link);
    rondo_net_gdr_memory(end, largest);
    end->stride = RONDO_CTRL_ALIGN + (end->gdr.on ? 0 : largest);
    end->bytes = rondo_net_room(end->gdr.on ? 0 : largest);
    if (end->owner->segment != NULL) {
        return segment_memory(end, largest);
    }
    void *memory = mmap(NULL, end->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return rondo_fail(
            RONDO_SYSTEM_ERROR,
            "rank %d on %s: no %zu bytes for a connection with rank %d: %m; lower RONDO_BUFFSIZE", net->rank,
            rondo_log_host(), end->bytes, end->link->peer);
    }
    end->memory = memory;
    end->owner->bytes += end->bytes;
    end->gpu = net->device != NULL;
    end->pinned.device = net->device;
    return rondo_pinned_map(&end->pinned, end->memory, end->bytes, &end->address);
}

void rondo_net_conn_fill(struct rondo_net_end *end)
{
    struct rondo_link *link = end->link;
    struct rondo_conn *conn = &link->conn;
    memset(conn, 0, sizeof(*conn));
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        if (link->protos >> p & 1) {
            conn->slots[p] = end->gdr.on ? end->gdr.slots
                                         : end->address + (rondo_net_slot(end, 0) - end->memory);
            conn->slot_bytes[p] = slot_bytes_of(end->owner->net, link, p);
            conn->slot_gap[p] = (uint32_t)(end->gdr.on ? end->gdr.stride : end->stride) - conn->slot_bytes[p];
        }
    }
    conn->tail = (struct rondo_conn_tail *)(void *)end->address;
    conn->head = (struct rondo_conn_head *)(void *)(end->address + RONDO_CTRL_ALIGN);
    link->tail = (struct rondo_conn_tail *)(void *)end->memory;
    link->head = (struct rondo_conn_head *)(void *)(end->memory + RONDO_CTRL_ALIGN);
    conn->peer = link->peer;
    conn->channel = link->channel;
    conn->proxied = 1;
    conn->outside = end->places || (end->apart && end->owner->net->device == NULL) ? end->outside : NULL;
    conn->via = end->via;
}

/* ---- offer ---- */

const struct rondo_nic *rondo_net_nic(const struct rondo_net *net, const char *name)
{
    for (int i = 0; i < net->nnics; i++) {
        if (strcmp(net->nics[i].name, name) == 0) {
            return &net->nics[i];
        }
    }
    return NULL;
}

/* Choose among the devices that belong to this rank's GPU, round robin; -1: none. */
static int own_number(const struct rondo_net *net, const struct rondo_net_device *device, int n, int nth)
{
    struct rondo_net_properties properties;
    int own = 0;
    for (int i = 0; net->nnics > 0 && i < 2 * n; i++) { /* the first pass counts them */
        if (i == n && own > 0) {
            nth %= own;
        }
        const struct rondo_nic *nic = device->properties(i % n, &properties) == RONDO_SUCCESS
                                          ? rondo_net_nic(net, properties.name)
                                          : NULL;
        if (nic != NULL && (nic->gdr >> RONDO_GDR_OWN & 1)) {
            if (i >= n && nth-- == 0) {
                return i % n;
            }
            own++;
        }
    }
    return -1;
}

/* Choose the graphs' device, or one near the GPU; else by channel, so that channels share the node's
 * devices. */
static int number_of(const struct rondo_net *net, const struct rondo_net_device *device, int n,
                     const struct rondo_link *link)
{
    struct rondo_net_properties properties;
    int nth = link->channel < 0 ? net->rank + link->peer : link->channel,
        own; /* the sum: both ends get the same value, and their networks may be separate */
    for (int i = 0; i < n && link->net_name != NULL; i++) {
        if (device->properties(i, &properties) == RONDO_SUCCESS &&
            strcmp(properties.name, link->net_name) == 0) {
            return i;
        }
    }
    own = own_number(net, device, n, nth);
    return own >= 0 ? own : nth % n;
}

static rondo_status prepare(struct rondo_net_end *end, struct rondo_connect *connect)
{
    const struct rondo_net *net = end->owner->net;
    struct rondo_link *link = end->link;
    /* Lazy links connect one by one: none waits for another. The reverse direction of a relayed conn is
     * elsewhere. */
    int alone = link->channel < 0 || end->owner->segment != NULL;
    struct rondo_net_peer peer = { .rank = link->peer,
                                   .channel = link->channel,
                                   .self = link->relayed ? link->relayed - 1 : net->rank,
                                   .owner = alone ? NULL : end->owner };
    struct rondo_net_properties properties;
    uint8_t handle[RONDO_NET_HANDLE] RONDO_ALIGNED(8);
    struct net_record record = { .device = common_of(net, link->peer), .protos = (uint8_t)link->protos };
    int n = 0;
    snprintf(peer.host, sizeof(peer.host), "%s", net->peers[link->peer].host);
    memcpy(peer.secret, net->peers[0].id.nonce, sizeof(peer.secret));
    RONDO_TRY(end->device->init(&n, NULL, 0));
    if (n < 1) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "rank %d on %s: %s no longer has any device", net->rank,
                          rondo_log_host(), end->device->name);
    }
    end->number = number_of(net, end->device, n, link);
    RONDO_TRY(end->device->properties(end->number, &properties));
    end->apart = (properties.memory & RONDO_NET_APART) != 0;
    end->places = (properties.memory & RONDO_NET_PLACES) != 0 && net->device == NULL;
    snprintf(end->via, sizeof(end->via), "NET/%.8s/%.16s", end->device->name, properties.name);
    rondo_net_gdr_choose(end, &properties);
    end->split = end->gdr.wanted;
    record.split = (uint16_t)end->split;
    RONDO_TRY(end->device->prepare(end->number, &peer, link->is_send, &end->comm, handle));
    memcpy(record.handle, handle, sizeof(handle));
    memcpy(connect->data, &record, sizeof(record));
    return RONDO_SUCCESS;
}

rondo_status rondo_net_end_new(struct rondo_net_state *state, struct rondo_link *link)
{
    const struct rondo_peer *peers = state->net->peers;
    struct rondo_net_end *end;
    RONDO_TRY(RONDO_NEW(end, "a connection between nodes"));
    end->owner = state;
    end->link = link;
    end->index = -1;
    end->device = device_of(&peers[state->net->rank], &peers[link->peer]);
    link->state = end; /* disconnect frees it, also when a later step fails */
    return RONDO_SUCCESS;
}

static rondo_status offer(struct rondo_net_state *state, struct rondo_link *link,
                          struct rondo_connect *record)
{
    if (link->is_send && rondo_pxn_offer(state, link, record)) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_net_end_new(state, link));
    RONDO_TRY(prepare(link->state, record));
    return end_memory(link->state);
}

static rondo_status net_offer(void *arg, struct rondo_link *link, struct rondo_connect *record)
{
    struct rondo_net_state *state = arg;
    struct rondo_net_inside inside;
    rondo_status status;
    rondo_net_enter(state->net, &inside);
    status = offer(state, link, record);
    rondo_net_leave(&inside);
    return status;
}

/* ---- connect ---- */

static void end_unmap(struct rondo_net_end *end)
{
    if (end->owner->net->kept) {
        rondo_pinned_leave(&end->pinned);
        return;
    }
    rondo_pinned_release(&end->pinned);
    if (end->memory != NULL && !end->borrowed) {
        munmap(end->memory, end->bytes);
        end->owner->bytes -= end->bytes;
    }
    end->memory = NULL;
}

/* The device has connected. If it refuses slots in GPU memory, allocate them in host memory. */
static rondo_status end_register(struct rondo_net_end *end)
{
    int had = end->gdr.on;
    rondo_net_gdr_register(end);
    if (had && !end->gdr.on) {
        end_unmap(end);
        end->gdr.wanted = 0;
        RONDO_TRY(end_memory(end));
    }
    if (end->gdr.on) {
        strncat(end->via, "/GDRDMA", sizeof(end->via) - strlen(end->via) - 1);
    }
    return end->device->reg(end->comm, end->memory, end->bytes, RONDO_NET_HOST, -1, &end->region);
}

static rondo_status connect_to(const struct rondo_net *net, struct rondo_link *link,
                               const struct rondo_connect *connect)
{
    struct rondo_net_end *end = link->state;
    uint8_t handle[RONDO_NET_HANDLE] RONDO_ALIGNED(8);
    struct net_record record;
    memcpy(&record, connect->data, sizeof(record));
    if (record.device != common_of(net, link->peer) || record.protos != link->protos ||
        record.split > (net->device != NULL)) {
        return rondo_fail(RONDO_INTERNAL_ERROR,
                          "rank %d refuses the record of rank %d (host %.*s) for channel %d: the net devices "
                          "or protocols differ",
                          net->rank, link->peer, RONDO_HOST_LEN, net->peers[link->peer].host, link->channel);
    }
    if (end->pxn != NULL) {
        return rondo_pxn_connect(end, connect);
    }
    memcpy(handle, record.handle, sizeof(handle));
    RONDO_TRY(end->device->connect(end->comm, handle));
    end->split |= record.split;
    RONDO_TRY(end_register(end));
    rondo_net_conn_fill(end);
    /* Nothing is posted before the other end has connected, which may be much later for a lazy one. */
    return link->channel < 0 ? RONDO_SUCCESS : rondo_net_carry(end);
}

static rondo_status net_connect(void *arg, struct rondo_link *link, const struct rondo_connect *connect)
{
    const struct rondo_net *net = ((struct rondo_net_state *)arg)->net;
    struct rondo_net_inside inside;
    rondo_status status;
    rondo_net_enter(net, &inside);
    status = connect_to(net, link, connect);
    rondo_net_leave(&inside);
    return status;
}

static rondo_status net_connect_lazy(void *state, struct rondo_link *link)
{
    struct rondo_connect record = { 0 };
    struct rondo_net_end *end;
    if (link->state == NULL) {
        RONDO_TRY(net_offer(state, link, &record));
        end = link->state;
        end->lazy.record = record;
    }
    end = link->state;
    RONDO_TRY(rondo_lazy_move(end->owner->net, state, link, &end->lazy));
    return rondo_net_carry(end);
}

/* ---- the end ---- */

static void net_disconnect(void *arg, struct rondo_link *link)
{
    struct rondo_net_end *end = link->state;
    struct rondo_net_inside inside;
    if (end == NULL) {
        return;
    }
    rondo_net_enter(((struct rondo_net_state *)arg)->net, &inside);
    rondo_net_drop(end);
    if (end->pxn != NULL) {
        rondo_pxn_disconnect(end);
    }
    rondo_net_user_close(end);
    if (end->region != NULL) {
        (void)end->device->unreg(end->comm, end->region);
    }
    if (end->gdr.region != NULL) {
        (void)end->device->unreg(end->comm, end->gdr.region);
    }
    if (end->comm != NULL) {
        end->device->close(end->comm);
    }
    end_unmap(end);
    rondo_net_leave(&inside);
    rondo_free(end);
    link->state = NULL;
}

static rondo_status net_connect_all(void *state)
{
    (void)state;
    return RONDO_SUCCESS;
}

static void net_settle(void *state) { rondo_pxn_settle(state); }

static void net_close(void *arg)
{
    struct rondo_net_state *state = arg;
    rondo_pxn_close(state);
    for (int i = 0; i < 2; i++) {
        rondo_free(state->ends[i].at);
    }
    rondo_net_gdr_close(state);
    rondo_free(state);
}

static size_t net_bytes(void *state)
{
    return ((struct rondo_net_state *)state)->bytes + rondo_pxn_bytes(state);
}

/* Several ends usually share a device: ask about each device once. */
static void net_cores(void *arg, struct rondo_cores *cores)
{
    const struct rondo_net_state *state = arg;
    uint64_t asked = 0;
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < state->ends[i].n; k++) {
            const struct rondo_net_end *end = state->ends[i].at[k];
            struct rondo_net_properties properties;
            struct rondo_cores near;
            if (end->pxn == NULL && !(asked >> end->number % 64 & 1) &&
                end->device->properties(end->number, &properties) == RONDO_SUCCESS &&
                properties.pci_path[0] != '\0' && rondo_cores_near(properties.pci_path, &near)) {
                rondo_cores_unite(cores, &near);
            }
            asked |= (uint64_t)(end->pxn == NULL) << end->number % 64;
        }
    }
}

const struct rondo_transport rondo_transport_net = {
    .name = "net",
    .number = 2,
    .reaches = net_reaches,
    .why_not = net_why_not,
    .open = net_open,
    .offer = net_offer,
    .connect = net_connect,
    .connect_lazy = net_connect_lazy,
    .disconnect = net_disconnect,
    .connect_all = net_connect_all,
    .settle = net_settle,
    .close = net_close,
    .bytes = net_bytes,
    .progress = rondo_net_state_progress,
    .revoke = rondo_net_state_revoke,
    .cores = net_cores,
};
