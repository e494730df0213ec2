/*
 * The wire over a net device that writes into memory of the other end (RONDO_NET_WRITES: verbs). Every write
 * is an RDMA write whose immediate data says what it is:
 *
 *     0xffffffff  the message buffer, into the other end's inbox
 *     0xfffffffe  an acknowledgement, without data
 *     an index    the content of this request, from where it lies to where the request says; a note of 32
 *                 bytes comes with it
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
#include "tensor/regions.h"

enum {
    PORTS = RONDO_TENSOR_PORTS,
    WORDS = 16,   /* writes that the other end may have under way, for each port */
    FLIGHTS = 24, /* of this end */
    SLOTS = 8,    /* small contents that are copied to registered memory, under way */
    PIECE = 4 << 20
};
_Static_assert((int)WORDS <= (int)RONDO_NET_MAX_REQUESTS && (int)FLIGHTS <= (int)RONDO_NET_MAX_REQUESTS,
               "a comm has room");

/* What comes with a content; in network byte order. */
struct note {
    uint32_t epoch, flags;
    uint64_t bytes, step, checksum;
};
_Static_assert(sizeof(struct note) == RONDO_NET_NOTE, "a note is filled");

struct record {
    uint32_t device; /* index in rondo_netdevs */
    uint32_t ports;
    uint64_t inbox;
    uint32_t inbox_key, reserved;
    uint8_t handle[PORTS][2][RONDO_NET_HANDLE] RONDO_ALIGNED(8); /* sends, receives */
};
_Static_assert(sizeof(struct record) <= RONDO_TENSOR_RECORD, "a record has room");

struct sending {
    struct sending *next;
    struct rondo_tensor_response *response;
    struct rondo_tensor_content content;
    const uint8_t *data;
    struct rondo_tensor_hold hold[PORTS];
    int slot; /* of its data; -1: it lies elsewhere */
    size_t posted, done;
    int begun; /* also without bytes there is one write */
};

/* A content of several pieces, or for a GPU, that comes in. */
struct arriving {
    struct arriving *next;
    struct rondo_tensor_content content;
    void *place;
    size_t came;
    int flushing; /* all of it has come, to memory of a GPU, and may not be seen there yet */
    int flushed[PORTS];
    void *flush[PORTS]; /* requests */
};

enum flight_kind { FLIGHT_NONE, FLIGHT_MESSAGE, FLIGHT_ACK, FLIGHT_CONTENT };

struct flight {
    enum flight_kind kind;
    void *request;
    struct sending *sending;
    size_t bytes;
};

struct port {
    void *out, *in; /* comms */
    int out_connected, in_connected;
    struct rondo_tensor_regions sends, receives;
    void *out_region; /* of link->out */
    struct flight flight[FLIGHTS];
    void *word[WORDS]; /* requests */
    struct rondo_net_came came[WORDS];
    uint32_t received;
};

struct link {
    const struct rondo_net_device *device;
    int nports;
    struct port port[PORTS];
    size_t eager;
    uint8_t *out; /* the message buffer, then slots */
    uint8_t *in;  /* the other end's message buffer */
    size_t out_bytes, in_bytes;
    void *in_region;
    uint8_t *message;              /* a copy of what came: the other end could change it while it is read */
    struct rondo_net_target inbox; /* the other end's */
    uint32_t slots;                /* bits: in use */
    struct sending *first, **last; /* contents that are not posted in full */
    struct sending *posted;        /* and those that are */
    struct arriving *arriving;
};

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
    struct link *link = conn->link;
    struct port *port = &link->port[p];
    struct rondo_net_properties properties;
    /* Negative and far from those of collectives; the ports of each store differ. */
    const struct rondo_net_peer peer = rondo_tensor_net_peer(conn, -1000 - PORTS * (int)core->number - p);
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
    struct link *link;
    int n = 0;
    memset(&record, 0, sizeof(record));
    RONDO_TRY(RONDO_NEW(link, "a connection for tensors over a net device"));
    conn->link = link;
    link->last = &link->first;
    link->device = rondo_netdev_common(core->netdevs, conn->netdevs);
    link->eager = (size_t)rondo_params()->tensor_eager;
    link->out_bytes = core->message_bytes + SLOTS * link->eager;
    link->in_bytes = core->message_bytes;
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
    memcpy(record_out, &record, sizeof(record));
    return RONDO_SUCCESS;
}

static void port_close(struct link *link, struct port *port)
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
    struct link *link = conn->link;
    char who[96];
    if (record->device != (uint32_t)__builtin_ctz(conn->core->netdevs & conn->netdevs) || record->ports < 1 ||
        record->ports > PORTS) {
        return rondo_fail(RONDO_REMOTE_ERROR,
                          "rank %d on %s: %s wants to connect with net device %u and %u ports for tensors",
                          conn->core->rank, rondo_log_host(), rondo_tensor_who(conn->core, conn->peer, who),
                          record->device, record->ports);
    }
    for (; link->nports > (int)record->ports; link->nports--) { /* those that the other end lacks */
        port_close(link, &link->port[link->nports - 1]);
    }
    link->inbox = (struct rondo_net_target){ record->inbox, record->inbox_key };
    return RONDO_SUCCESS;
}

static rondo_status connect_one(struct link *link, void *comm, const void *handle, int *connected, int *all)
{
    rondo_status status = *connected ? RONDO_SUCCESS : link->device->connect(comm, handle);
    *connected = status == RONDO_SUCCESS;
    *all &= *connected;
    return status == RONDO_IN_PROGRESS ? RONDO_SUCCESS : status;
}

static rondo_status write_connect(struct rondo_tensor_conn *conn, const void *record_in)
{
    struct link *link = conn->link;
    struct record record;
    int all = 1;
    memcpy(&record, record_in, sizeof(record));
    RONDO_TRY(take_record(conn, &record));
    for (int p = 0; p < link->nports; p++) {
        struct port *port = &link->port[p];
        RONDO_TRY(connect_one(link, port->out, record.handle[p][1], &port->out_connected, &all));
        RONDO_TRY(connect_one(link, port->in, record.handle[p][0], &port->in_connected, &all));
    }
    return all ? RONDO_SUCCESS : RONDO_IN_PROGRESS;
}

static void sendings_free(struct link *link, struct sending *sending)
{
    while (sending != NULL) {
        struct sending *next = sending->next;
        for (int p = 0; p < link->nports; p++) {
            rondo_tensor_unhold(&link->port[p].sends, &sending->hold[p]);
        }
        rondo_free(sending);
        sending = next;
    }
}

static void write_close(struct rondo_tensor_conn *conn)
{
    struct link *link = conn->link;
    if (link == NULL) {
        return;
    }
    for (int p = 0; p < link->nports; p++) { /* from now on nobody writes or reads */
        struct port *port = &link->port[p];
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
    for (int p = 0; p < PORTS; p++) {
        port_close(link, &link->port[p]);
    }
    while (link->arriving != NULL) {
        struct arriving *arriving = link->arriving;
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
    struct link *link = conn->link;
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
    struct link *link = conn->link;
    for (int p = 0; p < link->nports; p++) {
        rondo_tensor_unhold(&link->port[p].receives, &offer->hold[p]);
    }
}

/* Every port must take it, so that it is known before the content is announced. */
static int write_takes_gpu(struct rondo_tensor_conn *conn, const void *data, size_t bytes, int gpu)
{
    struct link *link = conn->link;
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

static uint8_t *write_buffer(struct rondo_tensor_conn *conn) { return ((struct link *)conn->link)->out; }

static struct flight *flight_free(struct port *port)
{
    for (int i = 0; i < FLIGHTS; i++) {
        if (port->flight[i].kind == FLIGHT_NONE) {
            return &port->flight[i];
        }
    }
    return NULL;
}

/* Begin a write over a port. @return RONDO_IN_PROGRESS: no room now. */
static rondo_status begin(struct link *link, struct port *port, const struct flight *kind,
                          const struct rondo_net_span *data, const struct rondo_net_target *target,
                          uint32_t word, const struct note *note)
{
    struct flight *flight = flight_free(port);
    void *request = NULL;
    if (flight == NULL) {
        return RONDO_IN_PROGRESS;
    }
    RONDO_TRY(link->device->iwrite(port->out, data, target, word, note, &request));
    if (request == NULL) {
        return RONDO_IN_PROGRESS;
    }
    *flight = *kind;
    flight->request = request;
    flight->bytes = data->bytes;
    return RONDO_SUCCESS;
}

static rondo_status write_write(struct rondo_tensor_conn *conn, size_t bytes)
{
    static const struct flight kind = { .kind = FLIGHT_MESSAGE };
    struct link *link = conn->link;
    const struct rondo_net_span data = { link->out, link->port[0].out_region, bytes };
    return begin(link, &link->port[0], &kind, &data, &link->inbox, RONDO_TENSOR_IMM_MESSAGE, NULL);
}

static rondo_status write_ack(struct rondo_tensor_conn *conn)
{
    static const struct flight kind = { .kind = FLIGHT_ACK };
    struct link *link = conn->link;
    const struct rondo_net_span nothing = { NULL, NULL, 0 };
    return begin(link, &link->port[0], &kind, &nothing, &link->inbox, RONDO_TENSOR_IMM_ACK, NULL);
}

/* The port of a piece. */
static int port_of(const struct link *link, const struct sending *sending)
{
    return (int)((sending->content.index + sending->posted / PIECE) % (uint32_t)link->nports);
}

static rondo_status post_piece(struct rondo_tensor_conn *conn, struct sending *sending)
{
    struct link *link = conn->link;
    const struct rondo_tensor_response *response = sending->response;
    const struct rondo_tensor_content *content = &sending->content;
    int p = port_of(link, sending);
    struct port *port = &link->port[p];
    struct flight kind = { .kind = FLIGHT_CONTENT, .sending = sending };
    struct rondo_net_span data = { (uint8_t *)(uintptr_t)sending->data + sending->posted, NULL,
                                   rondo_min_size(content->bytes - sending->posted, PIECE) };
    const struct rondo_net_target target = { response->address + sending->posted, response->rkey[p] };
    const struct note note = { .epoch = htobe32(content->epoch),
                               .flags = htobe32(content->flags),
                               .bytes = htobe64(content->bytes),
                               .step = htobe64(content->step),
                               .checksum = htobe64(content->checksum) };
    if (sending->slot >= 0) {
        data.region = port->out_region;
    } else if (data.bytes > 0) {
        if (sending->hold[p].region == NULL) {
            RONDO_TRY(rondo_tensor_hold(conn, &port->sends, (uint8_t *)(uintptr_t)sending->data,
                                        content->bytes, response->gpu, &sending->hold[p]));
        }
        data.region = sending->hold[p].region;
    }
    RONDO_TRY(begin(link, port, &kind, &data, &target, content->index, &note));
    sending->posted += data.bytes;
    sending->begun = 1;
    return RONDO_SUCCESS;
}

static rondo_status post(struct rondo_tensor_conn *conn, int *moved)
{
    struct link *link = conn->link;
    while (link->first != NULL) {
        struct sending *sending = link->first;
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

/* Small data outside of regions is cheaper to copy than to register. @return 0: there is no slot now. */
static int copy_small(struct rondo_tensor_conn *conn, struct sending *sending)
{
    struct link *link = conn->link;
    size_t bytes = sending->content.bytes;
    struct rondo_region region;
    if (bytes == 0 || bytes > link->eager || sending->response->gpu != RONDO_TENSOR_NO_GPU ||
        rondo_region_find(sending->data, bytes, &region)) {
        return 1;
    }
    int slot = __builtin_ctz(~link->slots);
    if (slot >= SLOTS) {
        return 0;
    }
    uint8_t *copy = link->out + conn->core->message_bytes + (size_t)slot * link->eager;
    memcpy(copy, sending->data, bytes);
    conn->core->stats.staged_bytes += bytes;
    link->slots |= 1u << slot;
    sending->data = copy;
    sending->slot = slot;
    return 1;
}

static rondo_status write_content(struct rondo_tensor_conn *conn, struct rondo_tensor_response *response)
{
    struct link *link = conn->link;
    struct sending *sending;
    int moved;
    if (link->first != NULL) {
        return RONDO_IN_PROGRESS; /* the queue of the connection can still be cloned and cancelled */
    }
    RONDO_TRY(RONDO_NEW(sending, "a content under way"));
    sending->response = response;
    sending->data = response->data;
    sending->slot = -1;
    rondo_tensor_content_of(response, &sending->content);
    if (!copy_small(conn, sending)) {
        rondo_free(sending);
        return RONDO_IN_PROGRESS;
    }
    conn->core->stats.direct += sending->slot < 0;
    *link->last = sending;
    link->last = &sending->next;
    return post(conn, &moved);
}

static void sending_end(struct rondo_tensor_conn *conn, struct sending *sending)
{
    struct link *link = conn->link;
    struct rondo_tensor_response *response = sending->response;
    struct sending **at = &link->posted;
    while (*at != sending) {
        at = &(*at)->next;
    }
    *at = sending->next;
    sending->next = NULL;
    link->slots &= sending->slot >= 0 ? ~(1u << sending->slot) : ~0u;
    sendings_free(link, sending);
    rondo_tensor_sent(response, 0);
}

static rondo_status flights_progress(struct rondo_tensor_conn *conn, struct port *port, int *moved)
{
    struct link *link = conn->link;
    for (int i = 0; i < FLIGHTS; i++) {
        struct flight flight = port->flight[i];
        int done = 0;
        if (flight.kind == FLIGHT_NONE) {
            continue;
        }
        RONDO_TRY(link->device->test(flight.request, &done, NULL));
        if (!done) {
            continue;
        }
        *moved = 1;
        port->flight[i].kind = FLIGHT_NONE;
        if (flight.kind == FLIGHT_MESSAGE) {
            rondo_tensor_written(conn);
        } else if (flight.kind == FLIGHT_CONTENT) {
            flight.sending->done += flight.bytes;
            if (flight.sending->done == flight.sending->content.bytes) {
                sending_end(conn, flight.sending);
            }
        }
    }
    return RONDO_SUCCESS;
}

/* ---- in ---- */

static rondo_status refuse(const struct rondo_tensor_conn *conn, const struct rondo_net_came *came,
                           const char *why)
{
    char who[96];
    return rondo_fail(RONDO_REMOTE_ERROR,
                      "rank %d on %s got from %s a write of %zu bytes with immediate %08x %s, and ends their "
                      "connection for tensors",
                      conn->core->rank, rondo_log_host(), rondo_tensor_who(conn->core, conn->peer, who),
                      came->bytes, came->word, why);
}

static rondo_status message_in(struct rondo_tensor_conn *conn)
{
    struct link *link = conn->link;
    size_t end, most = conn->core->message_bytes;
    memcpy(link->message, link->in, RONDO_TENSOR_BATCH_HEAD);
    /* How much to copy. A head that is wrong gets its sentence below. */
    if (rondo_tensor_batch_decode(link->message, most, conn->came + 1, &end) != RONDO_SUCCESS) {
        end = RONDO_TENSOR_BATCH_HEAD;
    }
    memcpy(link->message + RONDO_TENSOR_BATCH_HEAD, link->in + RONDO_TENSOR_BATCH_HEAD,
           end - RONDO_TENSOR_BATCH_HEAD);
    return rondo_tensor_message_came(conn, link->message, end);
}

/* The content that a piece belongs to. */
static rondo_status arriving_of(struct rondo_tensor_conn *conn, const struct rondo_tensor_content *content,
                                struct arriving **arriving_out)
{
    struct link *link = conn->link;
    struct arriving *arriving = link->arriving;
    while (arriving != NULL && arriving->content.index != content->index) {
        arriving = arriving->next;
    }
    if (arriving == NULL) {
        RONDO_TRY(RONDO_NEW(arriving, "a content under way"));
        arriving->content = *content;
        arriving->next = link->arriving;
        link->arriving = arriving;
        RONDO_TRY(rondo_tensor_place(conn, content, &arriving->place));
    }
    *arriving_out = arriving;
    return RONDO_SUCCESS;
}

/* All of it is there. */
static void arriving_end(struct rondo_tensor_conn *conn, struct arriving *arriving)
{
    struct link *link = conn->link;
    struct arriving **at = &link->arriving;
    const struct rondo_tensor_content content = arriving->content;
    int wanted = arriving->place != NULL;
    while (*at != arriving) {
        at = &(*at)->next;
    }
    *at = arriving->next;
    rondo_free(arriving);
    if (wanted) {
        (void)rondo_tensor_landed(conn, &content, RONDO_SUCCESS);
    }
}

static int goes_to_gpu(const struct rondo_tensor_conn *conn, const struct rondo_tensor_content *content)
{
    const struct rondo_tensor_offer *offer = rondo_tensor_offer_of(conn, content);
    return content->bytes > 0 && offer != NULL && offer->gpu != RONDO_TENSOR_NO_GPU;
}

/* Wait until the GPU sees what the ports have written, and then end the content. */
static rondo_status flush(struct rondo_tensor_conn *conn, struct arriving *arriving, int *moved)
{
    struct link *link = conn->link;
    const struct rondo_tensor_offer *offer = rondo_tensor_offer_of(conn, &arriving->content);
    int all = 1;
    for (int p = 0; p < link->nports && offer != NULL; p++) {
        struct port *port = &link->port[p];
        void *data = arriving->place, *region = offer->hold[p].region;
        size_t bytes = arriving->content.bytes;
        if (!arriving->flushed[p] && arriving->flush[p] == NULL) {
            RONDO_TRY(link->device->iflush(port->in, 1, &data, &bytes, &region, &arriving->flush[p]));
            arriving->flushed[p] = arriving->flush[p] == NULL;
        }
        if (!arriving->flushed[p]) {
            RONDO_TRY(link->device->test(arriving->flush[p], &arriving->flushed[p], NULL));
        }
        all &= arriving->flushed[p];
    }
    if (all) {
        *moved = 1;
        arriving_end(conn, arriving);
    }
    return RONDO_SUCCESS;
}

static rondo_status flushes_progress(struct rondo_tensor_conn *conn, int *moved)
{
    struct link *link = conn->link;
    for (struct arriving *arriving = link->arriving, *next; arriving != NULL; arriving = next) {
        next = arriving->next;
        if (arriving->flushing) {
            RONDO_TRY(flush(conn, arriving, moved));
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status content_in(struct rondo_tensor_conn *conn, const struct rondo_net_came *came)
{
    struct note note;
    struct arriving *arriving;
    memcpy(&note, came->note, sizeof(note));
    const struct rondo_tensor_content content = { .index = came->word,
                                                  .epoch = be32toh(note.epoch),
                                                  .flags = be32toh(note.flags),
                                                  .bytes = be64toh(note.bytes),
                                                  .step = be64toh(note.step),
                                                  .checksum = be64toh(note.checksum) };
    if (!came->has_note || content.bytes > INT64_MAX || came->bytes > content.bytes ||
        (came->bytes == 0 && content.bytes > 0)) {
        return refuse(conn, came, "and not the right note");
    }
    if (came->bytes == content.bytes && !goes_to_gpu(conn, &content)) {
        void *place;
        RONDO_TRY(rondo_tensor_place(conn, &content, &place));
        if (place != NULL) {
            (void)rondo_tensor_landed(conn, &content, RONDO_SUCCESS);
        }
        return RONDO_SUCCESS;
    }
    RONDO_TRY(arriving_of(conn, &content, &arriving));
    if (content.bytes != arriving->content.bytes || content.epoch != arriving->content.epoch ||
        came->bytes > content.bytes - arriving->came) {
        return refuse(conn, came, "that is no piece of the content before it");
    }
    arriving->came += came->bytes;
    if (arriving->came == content.bytes && arriving->place != NULL && goes_to_gpu(conn, &content)) {
        arriving->flushing = 1;
    } else if (arriving->came == content.bytes) {
        arriving_end(conn, arriving);
    }
    return RONDO_SUCCESS;
}

static rondo_status words_post(struct link *link, struct port *port)
{
    for (uint32_t i = 0; i < WORDS; i++) { /* in the order in which they will come */
        uint32_t at = (port->received + i) % WORDS;
        if (port->word[at] == NULL) {
            RONDO_TRY(link->device->irecv_word(port->in, &port->came[at], &port->word[at]));
            if (port->word[at] == NULL) {
                break;
            }
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status words_progress(struct rondo_tensor_conn *conn, struct port *port, int *moved)
{
    struct link *link = conn->link;
    RONDO_TRY(words_post(link, port));
    for (;;) {
        uint32_t at = port->received % WORDS;
        int done = 0;
        if (port->word[at] == NULL) {
            return RONDO_SUCCESS;
        }
        RONDO_TRY(link->device->test(port->word[at], &done, NULL));
        if (!done) {
            return RONDO_SUCCESS;
        }
        struct rondo_net_came came = port->came[at];
        port->word[at] = NULL;
        port->received++;
        *moved = 1;
        RONDO_TRY(words_post(link, port));
        if (came.word <= RONDO_TENSOR_LAST_INDEX) {
            RONDO_TRY(content_in(conn, &came));
        } else if (came.word == RONDO_TENSOR_IMM_MESSAGE) {
            RONDO_TRY(message_in(conn));
        } else {
            RONDO_TRY(rondo_tensor_ack_came(conn));
        }
    }
}

static rondo_status write_progress(struct rondo_tensor_conn *conn, int *moved)
{
    struct link *link = conn->link;
    for (int p = 0; p < link->nports; p++) {
        RONDO_TRY(words_progress(conn, &link->port[p], moved));
        RONDO_TRY(flights_progress(conn, &link->port[p], moved));
    }
    RONDO_TRY(flushes_progress(conn, moved));
    return post(conn, moved);
}

const struct rondo_tensor_wire rondo_tensor_wire_write = { .name = "writes of a net device",
                                                           .delivers = 0,
                                                           .over_net = 1,
                                                           .says_ready = 1,
                                                           .open = write_open,
                                                           .connect = write_connect,
                                                           .buffer = write_buffer,
                                                           .write = write_write,
                                                           .ack = write_ack,
                                                           .content = write_content,
                                                           .offer = write_offer,
                                                           .takes_gpu = write_takes_gpu,
                                                           .withdraw = write_withdraw,
                                                           .progress = write_progress,
                                                           .close = write_close };
