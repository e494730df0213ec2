/*
 * The wire over a net device that writes into memory of the other end (RONDO_NET_WRITES: verbs). Every write
 * is an RDMA write whose immediate data says what it is:
 *
 *     0xffffffff  the message buffer, into the other end's inbox
 *     0xfffffffe  an acknowledgement, without data
 *     0xfffffffd  a frame of small contents (frame.h), into the other end's frames
 *     an index    the content of this request, from where it lies to where the request says; a note of 32
 *                 bytes comes with it
 *
 * Frames need no flow control of their own. They go over the first port, where write n may use frame n % 16:
 * it is allowed only when write n - 16 has been read (RONDO_TENSOR_WRITES_IN).
 *
 * A content of more than 4 MiB is written in pieces, each with its index, over all ports of the connection;
 * the device spreads a piece over its queue pairs. It has landed when all its bytes have.
 *
 * A puller tells where a content goes (`offer`), so the memory must stay until the content has come or the
 * publisher has said that it will not come: pull.c.
 */
#include <endian.h>
#include <string.h>
#include <sys/mman.h>

#include "base/heap.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "tensor/wire_write.h"

enum {
    SLOTS = 8, /* frames, and small contents that are copied to registered memory, under way */
    LEAST_FRAME = 256,
    PIECE = 4 << 20
};

struct record {
    uint32_t device; /* index in rondo_netdevs */
    uint32_t ports;
    uint64_t inbox;
    uint32_t inbox_key;
    uint32_t frame_bytes; /* of each frame behind the inbox, whose key is the same; 0: there are none */
    uint8_t handle[RONDO_TENSOR_PORTS][2][RONDO_NET_HANDLE] RONDO_ALIGNED(8); /* sends, receives */
};
_Static_assert(sizeof(struct record) <= RONDO_TENSOR_RECORD, "a record has room");

/* ---- connecting ---- */

int rondo_tensor_writes_to(const struct rondo_tensor_core *core, const struct rondo_tensor_conn *conn)
{
    const struct rondo_net_device *device = rondo_netdev_common(core->netdevs, conn->netdevs);
    struct rondo_net_properties properties;
    int n = 0;
    return device != NULL && device->init(&n, NULL, 0) == RONDO_SUCCESS && n > 0 &&
           device->properties(0, &properties) == RONDO_SUCCESS && (properties.memory & RONDO_NET_WRITES) != 0;
}

static rondo_status port_open(struct rondo_tensor_conn *conn, int p, int number,
                              uint8_t handle[2][RONDO_NET_HANDLE])
{
    struct rondo_tensor_core *core = conn->core;
    struct rondo_tensor_write_link *link = conn->link;
    struct rondo_tensor_write_port *port = &link->port[p];
    struct rondo_net_properties properties;
    /* Negative and far from those of collectives; the ports of each store differ. */
    const struct rondo_net_peer peer = rondo_tensor_net_peer(
        conn, -1000 - RONDO_TENSOR_PORTS * (int)core->number - p);
    RONDO_TRY(link->device->prepare(number, &peer, 1, &port->out, handle[0]));
    RONDO_TRY(link->device->prepare(number, &peer, 0, &port->in, handle[1]));
    RONDO_TRY(link->device->properties(number, &properties));
    port->sends = (struct rondo_tensor_regions){ .device = link->device,
                                                 .comm = port->out,
                                                 .memory = properties.memory };
    port->receives = port->sends;
    port->receives.comm = port->in;
    RONDO_TRY(
        link->device->reg(port->out, link->out, link->out_bytes, RONDO_NET_HOST, -1, &port->out_region));
    core->stats.registrations++;
    return RONDO_SUCCESS;
}

static rondo_status write_open(struct rondo_tensor_conn *conn, void *record_out)
{
    struct rondo_tensor_core *core = conn->core;
    struct record record;
    struct rondo_tensor_write_link *link;
    int n = 0;
    memset(&record, 0, sizeof(record));
    RONDO_TRY(RONDO_NEW(link, "a connection for tensors over a net device"));
    conn->link = link;
    link->last = &link->first;
    link->device = rondo_netdev_common(core->netdevs, conn->netdevs);
    link->eager = (size_t)rondo_params()->tensor_eager;
    link->slot_bytes = rondo_max_size(link->eager, core->message_bytes / 2);
    link->out_bytes = core->message_bytes + SLOTS * link->slot_bytes;
    link->frame_bytes = link->eager >= LEAST_FRAME ? link->slot_bytes : 0;
    link->in_bytes = core->message_bytes + RONDO_TENSOR_WRITES_IN * link->frame_bytes;
    RONDO_TRY(rondo_calloc(&link->message, 1, core->message_bytes, "a message about tensors"));
    RONDO_TRY(rondo_tensor_pages_map(&link->out_bytes, &link->out));
    RONDO_TRY(rondo_tensor_pages_map(&link->in_bytes, &link->in));
    RONDO_TRY(link->device->init(&n, NULL, 0));
    if (n < 1) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "rank %d on %s: %s no longer has any device", core->rank,
                          rondo_log_host(), link->device->name);
    }
    link->nports = (int)rondo_params()->tensor_ports < n ? (int)rondo_params()->tensor_ports : n;
    for (int p = 0; p < link->nports; p++) { /* the same at both ends */
        RONDO_TRY(port_open(conn, p, (core->rank + conn->peer + p) % n, record.handle[p]));
    }
    RONDO_TRY(
        link->device->reg(link->port[0].in, link->in, link->in_bytes, RONDO_NET_HOST, -1, &link->in_region));
    core->stats.registrations++;
    record.device = (uint32_t)__builtin_ctz(core->netdevs & conn->netdevs);
    record.ports = (uint32_t)link->nports;
    record.inbox = (uintptr_t)link->in;
    record.inbox_key = link->device->key(link->in_region);
    record.frame_bytes = (uint32_t)link->frame_bytes;
    memcpy(record_out, &record, sizeof(record));
    return RONDO_SUCCESS;
}

static void port_close(struct rondo_tensor_write_link *link, struct rondo_tensor_write_port *port)
{
    if (port->out_region != NULL) {
        link->device->unreg(port->out, port->out_region);
    }
    if (port->out != NULL) {
        rondo_tensor_regions_close(&port->sends);
        link->device->close(port->out);
    }
    if (port->in != NULL) {
        rondo_tensor_regions_close(&port->receives);
        link->device->close(port->in);
    }
    memset(port, 0, sizeof(*port));
}

static rondo_status take_record(struct rondo_tensor_conn *conn, const struct record *record)
{
    struct rondo_tensor_write_link *link = conn->link;
    char who[96];
    if (record->device != (uint32_t)__builtin_ctz(conn->core->netdevs & conn->netdevs) || record->ports < 1 ||
        record->ports > RONDO_TENSOR_PORTS) {
        return rondo_fail(RONDO_REMOTE_ERROR,
                          "rank %d on %s: %s wants to connect with net device %u and %u ports for tensors",
                          conn->core->rank, rondo_log_host(), rondo_tensor_who(conn->core, conn->peer, who),
                          record->device, record->ports);
    }
    for (; link->nports > (int)record->ports; link->nports--) { /* those that the other end lacks */
        port_close(link, &link->port[link->nports - 1]);
    }
    link->inbox = (struct rondo_net_target){ record->inbox, record->inbox_key };
    link->frame_bytes = conn->version >= RONDO_TENSOR_FRAMES_VERSION
                            ? rondo_min_size(link->frame_bytes, record->frame_bytes)
                            : 0;
    conn->framed_most = link->frame_bytes >= LEAST_FRAME
                            ? rondo_min_size(link->frame_bytes - RONDO_TENSOR_FRAME_START -
                                                 RONDO_TENSOR_FRAME_MOST_CONTENT,
                                             rondo_min_size(link->eager, UINT16_MAX))
                            : 0;
    return RONDO_SUCCESS;
}

static rondo_status connect_one(struct rondo_tensor_write_link *link, void *comm, const void *handle,
                                int *connected, int *all)
{
    rondo_status status = *connected ? RONDO_SUCCESS : link->device->connect(comm, handle);
    *connected = status == RONDO_SUCCESS;
    *all &= *connected;
    return status == RONDO_IN_PROGRESS ? RONDO_SUCCESS : status;
}

static rondo_status write_connect(struct rondo_tensor_conn *conn, const void *record_in)
{
    struct rondo_tensor_write_link *link = conn->link;
    struct record record;
    int all = 1;
    memcpy(&record, record_in, sizeof(record));
    RONDO_TRY(take_record(conn, &record));
    for (int p = 0; p < link->nports; p++) {
        struct rondo_tensor_write_port *port = &link->port[p];
        RONDO_TRY(connect_one(link, port->out, record.handle[p][1], &port->out_connected, &all));
        RONDO_TRY(connect_one(link, port->in, record.handle[p][0], &port->in_connected, &all));
    }
    return all ? RONDO_SUCCESS : RONDO_IN_PROGRESS;
}

static void sendings_free(struct rondo_tensor_write_link *link, struct rondo_tensor_sending *sending)
{
    while (sending != NULL) {
        struct rondo_tensor_sending *next = sending->next;
        for (int p = 0; p < link->nports; p++) {
            rondo_tensor_unhold(&link->port[p].sends, &sending->hold[p]);
        }
        rondo_free(sending);
        sending = next;
    }
}

static void write_close(struct rondo_tensor_conn *conn)
{
    struct rondo_tensor_write_link *link = conn->link;
    if (link == NULL) {
        return;
    }
    for (int p = 0; p < link->nports; p++) { /* from now on nobody writes or reads */
        struct rondo_tensor_write_port *port = &link->port[p];
        if (port->out != NULL && link->device->stop != NULL) {
            link->device->stop(port->out);
        }
        if (port->in != NULL && link->device->stop != NULL) {
            link->device->stop(port->in);
        }
    }
    sendings_free(link, link->first);
    sendings_free(link, link->posted);
    if (link->in_region != NULL) {
        link->device->unreg(link->port[0].in, link->in_region);
    }
    for (int p = 0; p < RONDO_TENSOR_PORTS; p++) {
        port_close(link, &link->port[p]);
    }
    while (link->arriving != NULL) {
        struct rondo_tensor_arriving *arriving = link->arriving;
        link->arriving = arriving->next;
        rondo_free(arriving);
    }
    if (link->out != NULL) {
        munmap(link->out, link->out_bytes);
    }
    if (link->in != NULL) {
        munmap(link->in, link->in_bytes);
    }
    rondo_free(link->message);
    rondo_free(link);
    conn->link = NULL;
}

/* ---- places ---- */

static rondo_status write_offer(struct rondo_tensor_conn *conn, void *data, size_t bytes, int gpu,
                                struct rondo_tensor_offer *offer)
{
    struct rondo_tensor_write_link *link = conn->link;
    memset(offer, 0, sizeof(*offer));
    offer->address = (uintptr_t)data;
    offer->gpu = gpu;
    for (int p = 0; p < link->nports; p++) {
        rondo_status status = rondo_tensor_hold(conn, &link->port[p].receives, data, bytes, gpu,
                                                &offer->hold[p]);
        if (status != RONDO_SUCCESS) {
            while (p-- > 0) {
                rondo_tensor_unhold(&link->port[p].receives, &offer->hold[p]);
            }
            return status;
        }
        offer->key[p] = link->device->key(offer->hold[p].region);
    }
    return RONDO_SUCCESS;
}

static void write_withdraw(struct rondo_tensor_conn *conn, struct rondo_tensor_offer *offer)
{
    struct rondo_tensor_write_link *link = conn->link;
    for (int p = 0; p < link->nports; p++) {
        rondo_tensor_unhold(&link->port[p].receives, &offer->hold[p]);
    }
}

/* Every port must take it, so that it is known before the content is announced. */
static int write_takes_gpu(struct rondo_tensor_conn *conn, const void *data, size_t bytes, int gpu)
{
    struct rondo_tensor_write_link *link = conn->link;
    int takes = 1;
    for (int p = 0; p < link->nports && takes; p++) {
        struct rondo_tensor_hold hold = { 0 };
        takes = rondo_tensor_hold(conn, &link->port[p].sends, (void *)(uintptr_t)data, bytes, gpu, &hold) ==
                RONDO_SUCCESS;
        rondo_tensor_unhold(&link->port[p].sends, &hold);
    }
    return takes;
}

/* ---- out ---- */

static uint8_t *write_buffer(struct rondo_tensor_conn *conn)
{
    return ((struct rondo_tensor_write_link *)conn->link)->out;
}

static struct rondo_tensor_flight *flight_free(struct rondo_tensor_write_port *port)
{
    for (int i = 0; i < RONDO_TENSOR_WRITES_OUT; i++) {
        if (port->flight[i].kind == RONDO_TENSOR_FLIGHT_NONE) {
            return &port->flight[i];
        }
    }
    return NULL;
}

/* Begin a write over a port. @return RONDO_IN_PROGRESS: no room now. */
static rondo_status begin(struct rondo_tensor_write_link *link, struct rondo_tensor_write_port *port,
                          const struct rondo_tensor_flight *kind, const struct rondo_net_span *data,
                          const struct rondo_net_target *target, uint32_t word,
                          const struct rondo_tensor_note *note)
{
    struct rondo_tensor_flight *flight = flight_free(port);
    void *request = NULL;
    if (flight == NULL) {
        return RONDO_IN_PROGRESS;
    }
    RONDO_TRY(link->device->iwrite(port->out, data, target, word, note, &request));
    if (request == NULL) {
        return RONDO_IN_PROGRESS;
    }
    *flight = *kind;
    port->written++;
    flight->request = request;
    flight->bytes = data->bytes;
    return RONDO_SUCCESS;
}

/* Write the frame. */
static rondo_status write_flush(struct rondo_tensor_conn *conn)
{
    struct rondo_tensor_write_link *link = conn->link;
    struct rondo_tensor_write_port *port = &link->port[0];
    const struct rondo_tensor_flight kind = { .kind = RONDO_TENSOR_FLIGHT_FRAME, .slot = link->frame_slot };
    const struct rondo_net_span data = { link->frame.data, port->out_region, link->frame.bytes };
    const struct rondo_net_target target = { link->inbox.address + conn->core->message_bytes +
                                                 port->written % RONDO_TENSOR_WRITES_IN * link->frame_bytes,
                                             link->inbox.key };
    if (link->frame.data == NULL) {
        return RONDO_SUCCESS;
    }
    rondo_tensor_frame_end(&link->frame, link->frames_out + 1);
    RONDO_TRY(begin(link, port, &kind, &data, &target, RONDO_TENSOR_IMM_FRAME, NULL));
    link->frame.data = NULL;
    link->frames_out++;
    return RONDO_SUCCESS;
}

static rondo_status write_write(struct rondo_tensor_conn *conn, size_t bytes)
{
    static const struct rondo_tensor_flight kind = { .kind = RONDO_TENSOR_FLIGHT_MESSAGE };
    struct rondo_tensor_write_link *link = conn->link;
    const struct rondo_net_span data = { link->out, link->port[0].out_region, bytes };
    RONDO_TRY(write_flush(conn)); /* in order */
    return begin(link, &link->port[0], &kind, &data, &link->inbox, RONDO_TENSOR_IMM_MESSAGE, NULL);
}

static rondo_status write_ack(struct rondo_tensor_conn *conn)
{
    static const struct rondo_tensor_flight kind = { .kind = RONDO_TENSOR_FLIGHT_ACK };
    struct rondo_tensor_write_link *link = conn->link;
    const struct rondo_net_span nothing = { NULL, NULL, 0 };
    return begin(link, &link->port[0], &kind, &nothing, &link->inbox, RONDO_TENSOR_IMM_ACK, NULL);
}

/* The port of a piece. */
static int port_of(const struct rondo_tensor_write_link *link, const struct rondo_tensor_sending *sending)
{
    return (int)((sending->content.index + sending->posted / PIECE) % (uint32_t)link->nports);
}

static rondo_status post_piece(struct rondo_tensor_conn *conn, struct rondo_tensor_sending *sending)
{
    struct rondo_tensor_write_link *link = conn->link;
    const struct rondo_tensor_response *response = sending->response;
    const struct rondo_tensor_content *content = &sending->content;
    int p = port_of(link, sending);
    struct rondo_tensor_write_port *port = &link->port[p];
    struct rondo_tensor_flight kind = { .kind = RONDO_TENSOR_FLIGHT_CONTENT, .sending = sending };
    struct rondo_net_span data = { (uint8_t *)(uintptr_t)sending->data + sending->posted, NULL,
                                   rondo_min_size(content->bytes - sending->posted, PIECE) };
    const struct rondo_net_target target = { response->address + sending->posted, response->rkey[p] };
    const struct rondo_tensor_note note = { .epoch = htobe32(content->epoch),
                                            .flags = htobe32(content->flags),
                                            .bytes = htobe64(content->bytes),
                                            .step = htobe64(content->step),
                                            .checksum = htobe64(content->checksum) };
    if (sending->slot >= 0) {
        data.region = port->out_region;
    } else if (data.bytes > 0) {
        data.region = sending->hold[p].region;
    }
    RONDO_TRY(begin(link, port, &kind, &data, &target, content->index, &note));
    sending->posted += data.bytes;
    sending->begun = 1;
    return RONDO_SUCCESS;
}

static rondo_status post(struct rondo_tensor_conn *conn, int *moved)
{
    struct rondo_tensor_write_link *link = conn->link;
    while (link->first != NULL) {
        struct rondo_tensor_sending *sending = link->first;
        rondo_status status = post_piece(conn, sending);
        if (status != RONDO_SUCCESS) {
            return status == RONDO_IN_PROGRESS ? RONDO_SUCCESS : status;
        }
        *moved = 1;
        if (sending->posted == sending->content.bytes) {
            link->first = sending->next;
            if (link->first == NULL) {
                link->last = &link->first;
            }
            sending->next = link->posted;
            link->posted = sending;
        }
    }
    return RONDO_SUCCESS;
}

static uint8_t *slot_at(const struct rondo_tensor_conn *conn, int slot)
{
    const struct rondo_tensor_write_link *link = conn->link;
    return link->out + conn->core->message_bytes + (size_t)slot * link->slot_bytes;
}

/* @return -1: there is none now. */
static int slot_take(struct rondo_tensor_write_link *link)
{
    int slot = __builtin_ctz(~link->slots);
    link->slots |= slot < SLOTS ? 1u << slot : 0;
    return slot < SLOTS ? slot : -1;
}

/* Small data outside of regions is cheaper to copy than to register. @return 0: there is no slot now. */
static int copy_small(struct rondo_tensor_conn *conn, struct rondo_tensor_sending *sending)
{
    struct rondo_tensor_write_link *link = conn->link;
    size_t bytes = sending->content.bytes;
    struct rondo_region region;
    if (bytes == 0 || bytes > link->eager || sending->response->gpu != RONDO_TENSOR_NO_GPU ||
        rondo_region_find(sending->data, bytes, &region)) {
        return 1;
    }
    sending->slot = slot_take(link);
    if (sending->slot < 0) {
        return 0;
    }
    memcpy(slot_at(conn, sending->slot), sending->data, bytes);
    conn->core->stats.staged_bytes += bytes;
    sending->data = slot_at(conn, sending->slot);
    return 1;
}

static rondo_status refuse_framed(const struct rondo_tensor_conn *conn,
                                  const struct rondo_tensor_content *content)
{
    char who[96];
    return rondo_fail(RONDO_REMOTE_ERROR,
                      "rank %d on %s: %s wants content %u of %llu bytes in a frame, where %zu have room, and "
                      "that ends their connection for tensors",
                      conn->core->rank, rondo_log_host(), rondo_tensor_who(conn->core, conn->peer, who),
                      content->index, (unsigned long long)content->bytes, conn->framed_most);
}

/* Copy a small content to the frame. */
static rondo_status gather(struct rondo_tensor_conn *conn, struct rondo_tensor_response *response)
{
    struct rondo_tensor_write_link *link = conn->link;
    struct rondo_tensor_content content;
    rondo_tensor_content_of(response, &content);
    if (conn->framed_most == 0 || content.bytes > conn->framed_most) {
        return refuse_framed(conn, &content);
    }
    if (response->gpu != RONDO_TENSOR_NO_GPU) {
        rondo_status status = rondo_tensor_stage(response);
        if (status != RONDO_SUCCESS) {
            rondo_tensor_unable(response, status);
            return RONDO_SUCCESS;
        }
    }
    if (link->frame.data == NULL || !rondo_tensor_frame_add(&link->frame, &content, response->data)) {
        RONDO_TRY(write_flush(conn));
        link->frame_slot = slot_take(link);
        if (link->frame_slot < 0) {
            return RONDO_IN_PROGRESS;
        }
        rondo_tensor_frame_begin(&link->frame, slot_at(conn, link->frame_slot), link->frame_bytes,
                                 content.epoch, conn->version >= RONDO_TENSOR_RUNS_VERSION);
        (void)rondo_tensor_frame_add(&link->frame, &content, response->data); /* an empty frame has room */
    }
    if (rondo_tensor_ack_rides(conn)) {
        link->frame.flags |= RONDO_TENSOR_CONTENT_ACK;
        rondo_tensor_ack_rode(conn);
    }
    conn->core->stats.staged_bytes += content.bytes;
    conn->core->stats.framed++;
    rondo_tensor_sent(response, 0);
    return RONDO_SUCCESS;
}

/* Register the data with every port that a piece of it goes over. */
static rondo_status hold_data(struct rondo_tensor_conn *conn, struct rondo_tensor_sending *sending)
{
    struct rondo_tensor_write_link *link = conn->link;
    size_t bytes = sending->slot < 0 ? sending->content.bytes : 0;
    for (size_t at = 0; at < bytes && at / PIECE < (size_t)link->nports; at += PIECE) {
        int p = (int)((sending->content.index + at / PIECE) % (uint32_t)link->nports);
        RONDO_TRY(rondo_tensor_hold(conn, &link->port[p].sends, (uint8_t *)(uintptr_t)sending->data, bytes,
                                    sending->response->gpu, &sending->hold[p]));
    }
    return RONDO_SUCCESS;
}

static rondo_status write_content(struct rondo_tensor_conn *conn, struct rondo_tensor_response *response)
{
    struct rondo_tensor_write_link *link = conn->link;
    struct rondo_tensor_sending *sending;
    int moved;
    if (link->first != NULL) {
        return RONDO_IN_PROGRESS; /* the queue of the connection can still be cloned and cancelled */
    }
    if (response->flags & RONDO_TENSOR_FRAMED) {
        return gather(conn, response);
    }
    RONDO_TRY(write_flush(conn)); /* in order */
    rondo_status status = RONDO_NEW(sending, "a content under way");
    if (status != RONDO_SUCCESS) {
        rondo_tensor_unable(response, status);
        return RONDO_SUCCESS;
    }
    sending->response = response;
    sending->data = response->data;
    sending->slot = -1;
    rondo_tensor_content_of(response, &sending->content);
    if (!copy_small(conn, sending)) {
        rondo_free(sending);
        return RONDO_IN_PROGRESS;
    }
    status = hold_data(conn, sending);
    if (status != RONDO_SUCCESS) {
        sendings_free(link, sending);
        rondo_tensor_unable(response, status);
        return RONDO_SUCCESS;
    }
    conn->core->stats.direct += sending->slot < 0;
    *link->last = sending;
    link->last = &sending->next;
    return post(conn, &moved);
}

static void sending_end(struct rondo_tensor_conn *conn, struct rondo_tensor_sending *sending)
{
    struct rondo_tensor_write_link *link = conn->link;
    struct rondo_tensor_response *response = sending->response;
    struct rondo_tensor_sending **at = &link->posted;
    while (*at != sending) {
        at = &(*at)->next;
    }
    *at = sending->next;
    sending->next = NULL;
    link->slots &= sending->slot >= 0 ? ~(1u << sending->slot) : ~0u;
    sendings_free(link, sending);
    rondo_tensor_sent(response, 0);
}

static rondo_status flights_progress(struct rondo_tensor_conn *conn, struct rondo_tensor_write_port *port,
                                     int *moved)
{
    struct rondo_tensor_write_link *link = conn->link;
    for (int i = 0; i < RONDO_TENSOR_WRITES_OUT; i++) {
        struct rondo_tensor_flight flight = port->flight[i];
        int done = 0;
        if (flight.kind == RONDO_TENSOR_FLIGHT_NONE) {
            continue;
        }
        RONDO_TRY(link->device->test(flight.request, &done, NULL));
        if (!done) {
            continue;
        }
        *moved = 1;
        port->flight[i].kind = RONDO_TENSOR_FLIGHT_NONE;
        if (flight.kind == RONDO_TENSOR_FLIGHT_MESSAGE) {
            rondo_tensor_written(conn);
        } else if (flight.kind == RONDO_TENSOR_FLIGHT_FRAME) {
            link->slots &= ~(1u << flight.slot);
        } else if (flight.kind == RONDO_TENSOR_FLIGHT_CONTENT) {
            flight.sending->done += flight.bytes;
            if (flight.sending->done == flight.sending->content.bytes) {
                sending_end(conn, flight.sending);
            }
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status write_progress(struct rondo_tensor_conn *conn, int *moved)
{
    struct rondo_tensor_write_link *link = conn->link;
    for (int p = 0; p < link->nports; p++) {
        rondo_tensor_regions_look(&link->port[p].sends);
        rondo_tensor_regions_look(&link->port[p].receives);
        RONDO_TRY(rondo_tensor_words_progress(conn, &link->port[p], moved));
        RONDO_TRY(flights_progress(conn, &link->port[p], moved));
    }
    RONDO_TRY(rondo_tensor_flushes_progress(conn, moved));
    return post(conn, moved);
}

const struct rondo_tensor_wire rondo_tensor_wire_write = { .name = "writes of a net device",
                                                           .delivers = 0,
                                                           .takes_acks = 1,
                                                           .over_net = 1,
                                                           .says_ready = 1,
                                                           .open = write_open,
                                                           .connect = write_connect,
                                                           .buffer = write_buffer,
                                                           .write = write_write,
                                                           .ack = write_ack,
                                                           .content = write_content,
                                                           .flush = write_flush,
                                                           .offer = write_offer,
                                                           .takes_gpu = write_takes_gpu,
                                                           .withdraw = write_withdraw,
                                                           .progress = write_progress,
                                                           .close = write_close };
