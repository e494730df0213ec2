#include "net/transport/transport.h"

#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "net/control/control.h"

const struct rondo_transport *const rondo_transports[] = {
#ifdef RONDO_CUDA
    &rondo_transport_p2p,
#endif
    &rondo_transport_shm,
    &rondo_transport_net,
};
const int rondo_num_transports = (int)RONDO_COUNTOF(rondo_transports);
_Static_assert(RONDO_COUNTOF(rondo_transports) <= RONDO_MAX_TRANSPORTS,
               "rondo_net has a state for each transport");

static int transport_index(const struct rondo_transport *transport)
{
    int i = 0;

    while (rondo_transports[i] != transport) {
        i++;
    }
    return i;
}

void *rondo_transport_state(const struct rondo_net *net, const struct rondo_transport *transport)
{
    return net->state[transport_index(transport)];
}

static void *state_of(const struct rondo_net *net, const struct rondo_link *link)
{
    return rondo_transport_state(net, link->transport);
}

rondo_status rondo_transport_select(const struct rondo_net *net, int peer,
                                    const struct rondo_transport **transport)
{
    char why[256] = "";
    size_t used = 0;

    if (peer < 0 || peer >= net->nranks) {
        return rondo_fail(RONDO_INTERNAL_ERROR, "rank %d of %s has no peer %d: ranks are 0..%d", net->rank,
                          net->name, peer, net->nranks - 1);
    }
    const struct rondo_peer *a = &net->peers[net->rank], *b = &net->peers[peer];
    for (int i = 0; i < rondo_num_transports; i++) {
        if (net->state[i] == NULL) {
            continue;
        }
        if (rondo_transports[i]->reaches(net, a, b)) {
            *transport = rondo_transports[i];
            return RONDO_SUCCESS;
        }
        if (used < sizeof(why)) {
            used += (size_t)snprintf(why + used, sizeof(why) - used, "%s%s %s", used > 0 ? "; " : "",
                                     rondo_transports[i]->name, rondo_transports[i]->why_not(net, a, b));
        }
    }
    return rondo_fail(RONDO_INTERNAL_ERROR,
                      "no transport found between rank %d (host %.*s) and rank %d (host %.*s): %s", net->rank,
                      RONDO_HOST_LEN, a->host, peer, RONDO_HOST_LEN, b->host, why);
}

size_t rondo_net_slots_bytes(const struct rondo_net *net, uint32_t protos)
{
    size_t bytes = 0;
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        bytes += (protos >> p & 1) * (size_t)net->slot_bytes[p] * RONDO_SLOTS;
    }
    return bytes;
}

rondo_status rondo_net_open(struct rondo_net *net, int max_links)
{
    for (int i = 0; i < rondo_num_transports; i++) {
        rondo_status status = rondo_transports[i]->open(net, &net->state[i], max_links);
        if (status != RONDO_SUCCESS) {
            net->state[i] = NULL;
            rondo_net_close(net);
            return status;
        }
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_net_expect(struct rondo_net *net, const int *peers, int nrecv, int nsend, uint32_t protos)
{
    int links[RONDO_MAX_TRANSPORTS][2] = { { 0 } };

    for (int i = 0; i < nrecv + nsend; i++) {
        const struct rondo_transport *transport;
        RONDO_TRY(rondo_transport_select(net, peers[i], &transport));
        links[transport_index(transport)][i >= nrecv]++;
    }
    for (int t = 0; t < rondo_num_transports; t++) {
        if (rondo_transports[t]->expect != NULL && net->state[t] != NULL) {
            RONDO_TRY(rondo_transports[t]->expect(net->state[t], links[t][0], links[t][1], protos));
        }
    }
    return RONDO_SUCCESS;
}

static void link_log(const struct rondo_net *net, const struct rondo_link *link)
{
    char channel[16] = "p2p";
    int from = link->is_send ? net->rank : link->peer, to = link->is_send ? link->peer : net->rank;

    if (!rondo_log_on(RONDO_LOG_INFO, RONDO_SUBSYS_P2P | RONDO_SUBSYS_SHM | RONDO_SUBSYS_NET)) {
        return;
    }
    if (link->channel >= 0) {
        snprintf(channel, sizeof(channel), "%02d", link->channel);
    }
    RONDO_INFO(RONDO_SUBSYS_P2P | RONDO_SUBSYS_SHM | RONDO_SUBSYS_NET,
               "Channel %s : %d[%.*s] -> %d[%.*s] [%s] via %s", channel, from, RONDO_HOST_LEN,
               net->peers[from].host, to, RONDO_HOST_LEN, net->peers[to].host,
               link->is_send ? "send" : "receive", link->conn.via);
}

rondo_status rondo_link_offer(struct rondo_net *net, struct rondo_link *link, int peer, int channel,
                              int is_send, uint32_t protos, const char *net_name,
                              struct rondo_connect *record)
{
    const struct rondo_transport *transport;

    memset(link, 0, sizeof(*link));
    memset(record, 0, sizeof(*record));
    if (peer == -1) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_transport_select(net, peer, &transport));
    link->transport = transport;
    link->peer = peer;
    link->channel = channel;
    link->is_send = is_send != 0;
    link->protos = protos;
    link->net_name = net_name;
    record->transport = transport->number;
    record->is_send = (uint8_t)link->is_send;
    record->channel = (uint16_t)channel;
    record->peer = peer;
    rondo_status status = transport->offer(state_of(net, link), link, record);
    if (status != RONDO_SUCCESS) {
        rondo_link_close(net, link);
        memset(record, 0, sizeof(*record));
    }
    return status;
}

rondo_status rondo_link_connect(struct rondo_net *net, struct rondo_link *link,
                                const struct rondo_connect *record)
{
    if (link->transport == NULL || link->connected) {
        return RONDO_SUCCESS;
    }
    if (record->transport != link->transport->number || record->is_send > 1 ||
        record->is_send == link->is_send || record->channel != link->channel || record->peer != net->rank) {
        return rondo_fail(RONDO_INTERNAL_ERROR,
                          "rank %d expected the record of a %s link of channel %d with %s from rank %d (host "
                          "%.*s), but got one of a %s link of channel "
                          "%d with transport %d, for rank %d",
                          net->rank, link->is_send ? "receive" : "send", link->channel, link->transport->name,
                          link->peer, RONDO_HOST_LEN, net->peers[link->peer].host,
                          record->is_send ? "send" : "receive", record->channel, record->transport,
                          record->peer);
    }
    RONDO_TRY(link->transport->connect(state_of(net, link), link, record));
    link->connected = 1;
    link_log(net, link);
    return RONDO_SUCCESS;
}

rondo_status rondo_link_lazy(struct rondo_net *net, struct rondo_link *link, int peer, int is_send)
{
    const struct rondo_transport *transport;

    memset(link, 0, sizeof(*link));
    RONDO_TRY(rondo_transport_select(net, peer, &transport));
    link->transport = transport;
    link->peer = peer;
    link->channel = -1;
    link->is_send = is_send != 0;
    link->protos = 1u << RONDO_PROTO_SIMPLE | (transport->progress == NULL ? net->lazy_protos : 0);
    return RONDO_SUCCESS;
}

rondo_status rondo_link_connect_lazy(struct rondo_net *net, struct rondo_link *link)
{
    if (link->connected) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(link->transport->connect_lazy(state_of(net, link), link));
    __atomic_store_n(&link->connected, 1, __ATOMIC_RELEASE);
    link_log(net, link);
    return RONDO_SUCCESS;
}

rondo_status rondo_link_wire(struct rondo_net *net, struct rondo_link *link)
{
    if (link->unwired) {
        RONDO_TRY(link->transport->wire(state_of(net, link), link));
        link->unwired = 0;
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_link_use(struct rondo_net *net, struct rondo_link *link)
{
    if (link->used) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_link_wire(net, link));
    if (link->transport->use != NULL) {
        RONDO_TRY(link->transport->use(state_of(net, link), link));
    }
    link->used = 1;
    return RONDO_SUCCESS;
}

void rondo_link_rest(struct rondo_net *net, struct rondo_link *link)
{
    if (link->used && link->transport->rest != NULL) {
        link->transport->rest(state_of(net, link), link);
    }
    link->used = 0;
}

void rondo_link_close(struct rondo_net *net, struct rondo_link *link)
{
    if (link->transport != NULL) {
        link->transport->disconnect(state_of(net, link), link);
    }
    memset(link, 0, sizeof(*link));
}

rondo_status rondo_net_connect_all(struct rondo_net *net)
{
    for (int i = 0; i < rondo_num_transports; i++) {
        if (net->state[i] != NULL) {
            RONDO_TRY(rondo_transports[i]->connect_all(net->state[i]));
        }
    }
    return RONDO_SUCCESS;
}

void rondo_net_settle(struct rondo_net *net)
{
    for (int i = 0; i < rondo_num_transports; i++) {
        if (net->state[i] != NULL) {
            rondo_transports[i]->settle(net->state[i]);
        }
    }
}

void rondo_net_close(struct rondo_net *net)
{
    for (int i = rondo_num_transports - 1; i >= 0; i--) {
        if (net->state[i] != NULL) {
            rondo_transports[i]->close(net->state[i]);
            net->state[i] = NULL;
        }
    }
}

rondo_status rondo_net_progress(struct rondo_net *net, int *moved)
{
    net->busy = 0;
    for (int i = 0; i < rondo_num_transports; i++) {
        if (rondo_transports[i]->progress != NULL && net->state[i] != NULL) {
            RONDO_TRY(rondo_transports[i]->progress(net->state[i], moved));
        }
    }
    return RONDO_SUCCESS;
}

void rondo_net_revoke(struct rondo_net *net)
{
    for (int i = 0; i < rondo_num_transports; i++) {
        if (rondo_transports[i]->revoke != NULL && net->state[i] != NULL) {
            rondo_transports[i]->revoke(net->state[i]);
        }
    }
}

void rondo_net_cores(const struct rondo_net *net, struct rondo_cores *cores)
{
    memset(cores, 0, sizeof(*cores));
    for (int i = 0; i < rondo_num_transports; i++) {
        if (rondo_transports[i]->cores != NULL && net->state[i] != NULL) {
            rondo_transports[i]->cores(net->state[i], cores);
        }
    }
}

void rondo_net_bind(int rank, const struct rondo_cores *near, const char *does)
{
    int mode = rondo_params()->proxy_cores;
    struct rondo_cores there = *near, own;
    if (mode == RONDO_PROXY_CORES_ANY) {
        return;
    }
    (void)rondo_cores_affinity(&own);
    if (mode == RONDO_PROXY_CORES_NEAR) {
        rondo_cores_intersect(&there, &own);
    }
    if (rondo_cores_count(&there) > 0 && rondo_cores_bind(&there) == 0) {
        RONDO_INFO(RONDO_SUBSYS_INIT | RONDO_SUBSYS_NET,
                   "rank %d: the thread that %s is on %d cores near its NIC", rank, does,
                   rondo_cores_count(&there));
    } else {
        RONDO_INFO(RONDO_SUBSYS_INIT | RONDO_SUBSYS_NET,
                   "rank %d: the thread that %s is on the rank's %d cores: none is known to be near "
                   "its NIC",
                   rank, does, rondo_cores_count(&own));
    }
}

size_t rondo_net_bytes(const struct rondo_net *net)
{
    size_t bytes = 0;

    for (int i = 0; i < rondo_num_transports; i++) {
        bytes += net->state[i] != NULL ? rondo_transports[i]->bytes(net->state[i]) : 0;
    }
    return bytes;
}

/* ---- lazy links ---- */

struct message {
    uint32_t told; /* 0: the record; 1: "I have connected" */
    struct rondo_connect record;
};
_Static_assert(sizeof(struct message) <= RONDO_MSG_BYTES, "a message");

/* A pair has one link in each direction, so the tag says which end writes: its sender or its receiver. */
static uint64_t msg_tag(int from_sender, int told)
{
    char kind[] = { 'p', '2', 'p', (char)from_sender, (char)told };
    return rondo_hash(kind, sizeof(kind), 0);
}

static rondo_status lazy_say(const struct rondo_net *net, const struct rondo_link *link,
                             const struct rondo_lazy *lazy, uint32_t told)
{
    struct message message = { .told = told };
    if (!told) {
        message.record = lazy->record;
    }
    return rondo_control_send(net->control, link->peer, msg_tag(link->is_send, (int)told), &message,
                              sizeof(message));
}

static rondo_status lazy_hear(const struct rondo_net *net, const struct rondo_link *link,
                              struct rondo_lazy *lazy, uint32_t told)
{
    struct message message;
    size_t bytes;
    RONDO_TRY(rondo_control_receive(net->control, link->peer, msg_tag(!link->is_send, (int)told), &message,
                                    sizeof(message), &bytes));
    if (bytes != sizeof(message) || message.told != told) {
        return rondo_fail(RONDO_INTERNAL_ERROR,
                          "rank %d got a record of %zu bytes for a connection with rank %d, expected %zu",
                          net->rank, bytes, link->peer, sizeof(message));
    }
    if (!told) {
        lazy->record = message.record;
    }
    return RONDO_SUCCESS;
}

static rondo_status lazy_step(const struct rondo_net *net, void *state, struct rondo_link *link,
                              struct rondo_lazy *lazy)
{
    switch (lazy->stage) {
    case RONDO_LAZY_ASK: return lazy_say(net, link, lazy, 0);
    case RONDO_LAZY_HEAR: return lazy_hear(net, link, lazy, 0);
    case RONDO_LAZY_CONNECT: return link->transport->connect(state, link, &lazy->record);
    case RONDO_LAZY_TELL: return lazy_say(net, link, lazy, 1);
    default:
        return lazy_hear(net, link, lazy, 1); /* the other end uses the conn only once it has
                                                    * connected */
    }
}

rondo_status rondo_lazy_move(const struct rondo_net *net, void *state, struct rondo_link *link,
                             struct rondo_lazy *lazy)
{
    for (;; lazy->stage++) {
        RONDO_TRY(lazy_step(net, state, link, lazy));
        if (lazy->stage == RONDO_LAZY_TOLD) {
            return RONDO_SUCCESS;
        }
    }
}

/* ---- hello ---- */

static void hello_send(struct rondo_link *link)
{
    struct rondo_conn *conn = &link->conn;

    if (link->hello == RONDO_HELLO_NONE) {
        if (conn->proxied) {
            link->tail->size[conn->step % RONDO_SLOTS] = rondo_conn_size(conn->step, RONDO_PROTO_SIMPLE, 0);
        }
        conn->step++;
        __atomic_store_n(&link->tail->tail, conn->step, __ATOMIC_RELEASE);
        link->hello = RONDO_HELLO_POSTED;
    }
    /* Pairs with the release in hello_receive(). */
    if (__atomic_load_n(&link->head->head, __ATOMIC_ACQUIRE) >= conn->step) {
        conn->seen = link->unwired ? conn->seen : conn->step;
        link->hello = RONDO_HELLO_PASSED;
    }
}

static void hello_receive(struct rondo_link *link)
{
    struct rondo_conn *conn = &link->conn;

    /* Pairs with the release in hello_send(). The sender posts no more before it has this credit. */
    if (__atomic_load_n(&link->tail->tail, __ATOMIC_ACQUIRE) > conn->step) {
        conn->step++;
        conn->seen = conn->step;
        __atomic_store_n(&link->head->head, conn->step, __ATOMIC_RELEASE);
        conn->wanted = 0;
        link->hello = RONDO_HELLO_PASSED;
    } else {
        conn->wanted = conn->proxied;
    }
}

rondo_status rondo_link_hello(struct rondo_link **links, int n, int *pending_peer)
{
    *pending_peer = -1;
    for (int i = 0; i < n; i++) {
        struct rondo_link *link = links[i];
        if (link == NULL || !link->connected || link->hello == RONDO_HELLO_PASSED) {
            continue;
        }
        if (link->transport->hello != NULL && link->tail == NULL) {
            RONDO_TRY(link->transport->hello(link));
        } else if (link->is_send) {
            hello_send(link);
        } else {
            hello_receive(link);
        }
        if (link->hello != RONDO_HELLO_PASSED && *pending_peer < 0) {
            *pending_peer = link->peer;
        }
    }
    return *pending_peer < 0 ? RONDO_SUCCESS : RONDO_IN_PROGRESS;
}
