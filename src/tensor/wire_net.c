/* The wire over a net device: connecting, and frames. */
#include "tensor/wire_net.h"

#include <endian.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/param.h"

/* In network byte order. */
struct frame {
    uint32_t imm, flags, epoch, reserved;
    uint64_t bytes, step, checksum;
};
_Static_assert(sizeof(struct frame) == RONDO_TENSOR_FRAME_HEAD, "the head of a frame");

struct record {
    uint32_t device; /* index in rondo_netdevs */
    uint32_t reserved;
    uint8_t handle[RONDO_TENSOR_COMMS][RONDO_NET_HANDLE] RONDO_ALIGNED(8);
};
_Static_assert(sizeof(struct record) <= RONDO_TENSOR_RECORD, "a record has room");

/* ---- connecting ---- */

static rondo_status prepare(struct rondo_tensor_conn *conn, int number, struct record *record)
{
    struct rondo_tensor_core *core = conn->core;
    struct rondo_tensor_net *net = conn->link;
    for (int i = 0; i < RONDO_TENSOR_COMMS; i++) {
        /* Negative and far from those of collectives; the two kinds of comms of each store differ. */
        int channel = -1000 - 2 * (int)core->number - i / 2;
        const struct rondo_net_peer peer = rondo_tensor_net_peer(conn, channel);
        RONDO_TRY(net->device->prepare(number, &peer, i % 2 == 0, &net->comm[i], record->handle[i]));
    }
    return RONDO_SUCCESS;
}

static rondo_status net_open(struct rondo_tensor_conn *conn, void *record_out)
{
    struct rondo_tensor_core *core = conn->core;
    struct rondo_net_properties properties;
    struct rondo_tensor_net *net;
    struct record record;
    int n = 0, number;
    memset(&record, 0, sizeof(record));
    RONDO_TRY(RONDO_NEW(net, "a connection for tensors over a net device"));
    conn->link = net;
    net->device = rondo_netdev_common(core->netdevs, conn->netdevs);
    net->sends.is_send = 1;
    net->eager = (size_t)rondo_params()->tensor_eager;
    net->frame_bytes = RONDO_TENSOR_FRAME_HEAD + rondo_max_size(core->message_bytes, net->eager);
    net->out_bytes = RONDO_TENSOR_FRAME_HEAD + core->message_bytes +
                     RONDO_TENSOR_FRAMES_OUT * net->frame_bytes;
    net->in_bytes = RONDO_TENSOR_FRAMES_IN * net->frame_bytes;
    RONDO_TRY(rondo_tensor_pages_map(&net->out_bytes, &net->out));
    RONDO_TRY(rondo_tensor_pages_map(&net->in_bytes, &net->in));
    RONDO_TRY(net->device->init(&n, NULL, 0));
    if (n < 1) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "rank %d on %s: %s no longer has any device", core->rank,
                          rondo_log_host(), net->device->name);
    }
    number = (core->rank + conn->peer) % n; /* the same at both ends */
    RONDO_TRY(net->device->properties(number, &properties));
    net->sends.regions.apart = net->receives.regions.apart = (properties.memory & RONDO_NET_APART) != 0;
    net->sends.regions.device = net->receives.regions.device = net->device;
    record.device = (uint32_t)__builtin_ctz(core->netdevs & conn->netdevs);
    RONDO_TRY(prepare(conn, number, &record));
    memcpy(record_out, &record, sizeof(record));
    return RONDO_SUCCESS;
}

static rondo_status post_frame(struct rondo_tensor_net *net, uint32_t at)
{
    void *data = net->in + at * net->frame_bytes, *region = net->in_region;
    size_t bytes = net->frame_bytes;
    int tag = 0;
    return net->device->irecv(net->comm[RONDO_TENSOR_IN], 1, &data, &bytes, &tag, &region, &net->posted[at]);
}

static rondo_status frames_open(struct rondo_tensor_conn *conn)
{
    struct rondo_tensor_net *net = conn->link;
    uint8_t *at = net->out + RONDO_TENSOR_FRAME_HEAD + conn->core->message_bytes;
    RONDO_TRY(net->device->reg(net->comm[RONDO_TENSOR_OUT], net->out, net->out_bytes, RONDO_NET_HOST, -1,
                               &net->out_region));
    RONDO_TRY(net->device->reg(net->comm[RONDO_TENSOR_IN], net->in, net->in_bytes, RONDO_NET_HOST, -1,
                               &net->in_region));
    conn->core->stats.registrations += 2;
    for (int i = 0; i < RONDO_TENSOR_FRAMES_OUT; i++, at += net->frame_bytes) {
        net->frame[i].data = at;
    }
    net->sends.regions.comm = net->comm[RONDO_TENSOR_DATA_OUT];
    net->receives.regions.comm = net->comm[RONDO_TENSOR_DATA_IN];
    return RONDO_SUCCESS;
}

static rondo_status net_connect(struct rondo_tensor_conn *conn, const void *record_in)
{
    struct rondo_tensor_net *net = conn->link;
    struct record record;
    rondo_status result = RONDO_SUCCESS;
    char who[96];
    memcpy(&record, record_in, sizeof(record));
    if (record.device != (uint32_t)__builtin_ctz(conn->core->netdevs & conn->netdevs)) {
        return rondo_fail(
            RONDO_REMOTE_ERROR, "rank %d on %s: %s wants to connect with net device %u for tensors",
            conn->core->rank, rondo_log_host(), rondo_tensor_who(conn->core, conn->peer, who), record.device);
    }
    for (int i = 0; i < RONDO_TENSOR_COMMS; i++) {
        rondo_status status = RONDO_SUCCESS;
        if (!net->connected[i]) {
            status = net->device->connect(net->comm[i], record.handle[i ^ 1]);
            net->connected[i] = status == RONDO_SUCCESS;
        }
        if (status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS) {
            return status;
        }
        result = status != RONDO_SUCCESS ? status : result;
    }
    return result == RONDO_SUCCESS ? frames_open(conn) : result;
}

static void net_close(struct rondo_tensor_conn *conn)
{
    struct rondo_tensor_net *net = conn->link;
    if (net == NULL) {
        return;
    }
    for (int i = 0; i < RONDO_TENSOR_COMMS; i++) {
        if (net->comm[i] != NULL && net->device->stop != NULL) {
            net->device->stop(net->comm[i]);
        }
    }
    if (net->out_region != NULL) {
        net->device->unreg(net->comm[RONDO_TENSOR_OUT], net->out_region);
    }
    if (net->in_region != NULL) {
        net->device->unreg(net->comm[RONDO_TENSOR_IN], net->in_region);
    }
    rondo_tensor_moves_close(conn, &net->sends);
    rondo_tensor_moves_close(conn, &net->receives);
    for (int i = 0; i < RONDO_TENSOR_COMMS; i++) {
        if (net->comm[i] != NULL) {
            net->device->close(net->comm[i]);
        }
    }
    if (net->out != NULL) {
        munmap(net->out, net->out_bytes);
    }
    if (net->in != NULL) {
        munmap(net->in, net->in_bytes);
    }
    rondo_free(net);
    conn->link = NULL;
}

/* ---- frames out ---- */

static void frame_fill(uint8_t *out, uint32_t imm, const struct rondo_tensor_content *content)
{
    struct frame frame = { .imm = htobe32(imm),
                           .flags = htobe32(content->flags),
                           .epoch = htobe32(content->epoch),
                           .bytes = htobe64(content->bytes),
                           .step = htobe64(content->step),
                           .checksum = htobe64(content->checksum) };
    memcpy(out, &frame, sizeof(frame));
}

static uint8_t *net_buffer(struct rondo_tensor_conn *conn)
{
    return ((struct rondo_tensor_net *)conn->link)->out + RONDO_TENSOR_FRAME_HEAD;
}

static rondo_status frame_send(struct rondo_tensor_net *net, const uint8_t *data, size_t bytes,
                               void **request)
{
    *request = NULL;
    RONDO_TRY(net->device->isend(net->comm[RONDO_TENSOR_OUT], data, bytes, 0, net->out_region, request));
    return *request != NULL ? RONDO_SUCCESS : RONDO_IN_PROGRESS;
}

static rondo_status net_write(struct rondo_tensor_conn *conn, size_t bytes)
{
    struct rondo_tensor_net *net = conn->link;
    struct rondo_tensor_content content = { .bytes = bytes };
    frame_fill(net->out, RONDO_TENSOR_IMM_MESSAGE, &content);
    return frame_send(net, net->out, RONDO_TENSOR_FRAME_HEAD + bytes, &net->message);
}

static struct rondo_tensor_frame_out *frame_free(struct rondo_tensor_net *net)
{
    for (int i = 0; i < RONDO_TENSOR_FRAMES_OUT; i++) {
        if (net->frame[i].request == NULL && &net->frame[i] != net->open) {
            return &net->frame[i];
        }
    }
    return NULL;
}

static rondo_status net_ack(struct rondo_tensor_conn *conn)
{
    struct rondo_tensor_net *net = conn->link;
    struct rondo_tensor_content nothing = { 0 };
    struct rondo_tensor_frame_out *frame = frame_free(net);
    if (frame == NULL) {
        return RONDO_IN_PROGRESS;
    }
    frame_fill(frame->data, RONDO_TENSOR_IMM_ACK, &nothing);
    return frame_send(net, frame->data, RONDO_TENSOR_FRAME_HEAD, &frame->request);
}

/* Send the frame of small contents. */
static rondo_status net_flush(struct rondo_tensor_conn *conn)
{
    struct rondo_tensor_net *net = conn->link;
    if (net->open != NULL) {
        RONDO_TRY(frame_send(net, net->open->data, net->gathered, &net->open->request));
        net->open = NULL;
    }
    return RONDO_SUCCESS;
}

/* Copy a small content to the frame. */
static rondo_status gather(struct rondo_tensor_conn *conn, struct rondo_tensor_response *response,
                           struct rondo_tensor_content *content)
{
    struct rondo_tensor_net *net = conn->link;
    if (net->open != NULL && net->gathered + RONDO_TENSOR_FRAME_HEAD + content->bytes > net->frame_bytes) {
        RONDO_TRY(net_flush(conn));
    }
    if (net->open == NULL) {
        net->open = frame_free(net);
        net->gathered = 0;
    }
    if (net->open == NULL) {
        return RONDO_IN_PROGRESS;
    }
    if (rondo_tensor_ack_rides(conn)) {
        content->flags |= RONDO_TENSOR_CONTENT_ACK;
        rondo_tensor_ack_rode(conn);
    }
    frame_fill(net->open->data + net->gathered, content->index, content);
    net->gathered += RONDO_TENSOR_FRAME_HEAD;
    if (content->bytes > 0) {
        memcpy(net->open->data + net->gathered, response->data, content->bytes);
    }
    net->gathered += content->bytes;
    conn->core->stats.staged_bytes += content->bytes;
    rondo_tensor_sent(response, 0);
    return RONDO_SUCCESS;
}

static rondo_status net_content(struct rondo_tensor_conn *conn, struct rondo_tensor_response *response)
{
    struct rondo_tensor_net *net = conn->link;
    struct rondo_tensor_frame_out *frame;
    struct rondo_tensor_content content;
    struct rondo_tensor_move *move;
    rondo_tensor_content_of(response, &content);
    if (content.bytes <= net->eager) {
        return gather(conn, response, &content);
    }
    RONDO_TRY(net_flush(conn)); /* in order */
    if ((frame = frame_free(net)) == NULL) {
        return RONDO_IN_PROGRESS;
    }
    rondo_status status = rondo_tensor_move_new(conn, &net->sends, response, &content, NULL, &move);
    if (status != RONDO_SUCCESS) {
        rondo_tensor_unable(response, status);
        return RONDO_SUCCESS;
    }
    int acks = rondo_tensor_ack_rides(conn);
    content.flags |= acks ? RONDO_TENSOR_CONTENT_ACK : 0;
    frame_fill(frame->data, content.index, &content);
    status = frame_send(net, frame->data, RONDO_TENSOR_FRAME_HEAD, &frame->request);
    if (status != RONDO_SUCCESS) {
        rondo_tensor_move_free(&net->sends, move);
        return status;
    }
    if (acks) {
        rondo_tensor_ack_rode(conn);
    }
    return rondo_tensor_move_add(conn, &net->sends, move);
}

static rondo_status frames_out_progress(struct rondo_tensor_conn *conn, int *moved)
{
    struct rondo_tensor_net *net = conn->link;
    int done = 0;
    if (net->message != NULL) {
        RONDO_TRY(net->device->test(net->message, &done, NULL));
        if (done) {
            net->message = NULL;
            *moved = 1;
            rondo_tensor_written(conn);
        }
    }
    for (int i = 0; i < RONDO_TENSOR_FRAMES_OUT; i++) {
        struct rondo_tensor_frame_out *frame = &net->frame[i];
        done = 0;
        if (frame->request != NULL) {
            RONDO_TRY(net->device->test(frame->request, &done, NULL));
        }
        if (done) {
            frame->request = NULL;
            *moved = 1;
        }
    }
    return RONDO_SUCCESS;
}

/* ---- frames in ---- */

static rondo_status refuse_frame(const struct rondo_tensor_conn *conn, const struct frame *frame,
                                 size_t bytes)
{
    char who[96];
    return rondo_fail(
        RONDO_REMOTE_ERROR,
        "rank %d on %s got from %s a frame of %zu bytes with immediate %08x that says %llu, and ends "
        "their connection for tensors",
        conn->core->rank, rondo_log_host(), rondo_tensor_who(conn->core, conn->peer, who), bytes,
        be32toh(frame->imm), (unsigned long long)be64toh(frame->bytes));
}

static rondo_status content_came(struct rondo_tensor_conn *conn, const struct rondo_tensor_content *content,
                                 const uint8_t *data, size_t bytes)
{
    struct rondo_tensor_net *net = conn->link;
    void *place;
    RONDO_TRY(rondo_tensor_place(conn, content, &place));
    if (bytes == 0 && content->bytes > 0) {
        struct rondo_tensor_move *move;
        rondo_status status = rondo_tensor_move_new(conn, &net->receives, NULL, content, place, &move);
        if (status != RONDO_SUCCESS && place != NULL) { /* the pull fails, and its content is dropped */
            (void)rondo_tensor_landed(conn, content, status);
            status = rondo_tensor_move_new(conn, &net->receives, NULL, content, NULL, &move);
        }
        return status == RONDO_SUCCESS ? rondo_tensor_move_add(conn, &net->receives, move) : status;
    }
    if (place != NULL) {
        if (bytes > 0) {
            memcpy(place, data, bytes);
        }
        conn->core->stats.staged_bytes += bytes;
        (void)rondo_tensor_landed(conn, content, RONDO_SUCCESS);
    }
    return RONDO_SUCCESS;
}

/* A head and what is behind it, which is the rest of the frame; *used: how much of it. */
static rondo_status part_came(struct rondo_tensor_conn *conn, const uint8_t *data, size_t bytes, int is_first,
                              size_t *used)
{
    struct frame frame = { 0 };
    size_t rest = bytes - RONDO_TENSOR_FRAME_HEAD;
    memcpy(&frame, data, rondo_min_size(bytes, sizeof(frame)));
    struct rondo_tensor_content content = { .index = be32toh(frame.imm),
                                            .epoch = be32toh(frame.epoch),
                                            .flags = be32toh(frame.flags),
                                            .bytes = be64toh(frame.bytes),
                                            .step = be64toh(frame.step),
                                            .checksum = be64toh(frame.checksum) };
    int is_content = content.index <= RONDO_TENSOR_LAST_INDEX, follows = rest == 0 && content.bytes > 0;
    if (bytes < RONDO_TENSOR_FRAME_HEAD || content.bytes > INT64_MAX ||
        (!is_first && (!is_content || follows)) ||
        (is_content ? content.bytes > rest && !follows : content.bytes != rest)) {
        return refuse_frame(conn, &frame, bytes);
    }
    size_t here = follows ? 0 : content.bytes;
    data += RONDO_TENSOR_FRAME_HEAD;
    *used = RONDO_TENSOR_FRAME_HEAD + here;
    if (content.index == RONDO_TENSOR_IMM_MESSAGE) {
        return rondo_tensor_message_came(conn, data, here);
    }
    if (content.index == RONDO_TENSOR_IMM_ACK) {
        return rondo_tensor_ack_came(conn);
    }
    if (content.flags & RONDO_TENSOR_CONTENT_ACK) {
        RONDO_TRY(rondo_tensor_ack_came(conn));
    }
    return content_came(conn, &content, data, here);
}

static rondo_status frame_came(struct rondo_tensor_conn *conn, const uint8_t *data, size_t bytes)
{
    size_t at = 0, used = 0;
    do {
        RONDO_TRY(part_came(conn, data + at, bytes - at, at == 0, &used));
        at += used;
    } while (at < bytes);
    return RONDO_SUCCESS;
}

/* In the order in which they will be filled: a device that has no room for one gets no later one. */
static rondo_status frames_post(struct rondo_tensor_net *net)
{
    for (uint32_t i = 0; i < RONDO_TENSOR_FRAMES_IN; i++) {
        uint32_t at = (net->received + i) % RONDO_TENSOR_FRAMES_IN;
        if (net->posted[at] == NULL) {
            RONDO_TRY(post_frame(net, at));
            if (net->posted[at] == NULL) {
                break;
            }
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status frames_in_progress(struct rondo_tensor_conn *conn, int *moved)
{
    struct rondo_tensor_net *net = conn->link;
    RONDO_TRY(frames_post(net));
    for (;;) {
        uint32_t at = net->received % RONDO_TENSOR_FRAMES_IN;
        size_t bytes = 0;
        int done = 0;
        if (net->posted[at] == NULL) {
            return RONDO_SUCCESS;
        }
        RONDO_TRY(net->device->test(net->posted[at], &done, &bytes));
        if (!done) {
            return RONDO_SUCCESS;
        }
        net->posted[at] = NULL;
        net->received++;
        *moved = 1;
        RONDO_TRY(frame_came(conn, net->in + at * net->frame_bytes, bytes));
        RONDO_TRY(frames_post(net));
    }
}

static rondo_status net_progress(struct rondo_tensor_conn *conn, int *moved)
{
    struct rondo_tensor_net *net = conn->link;
    rondo_tensor_regions_look(&net->sends.regions);
    rondo_tensor_regions_look(&net->receives.regions);
    RONDO_TRY(frames_in_progress(conn, moved));
    RONDO_TRY(rondo_tensor_moves_progress(conn, &net->receives, moved));
    RONDO_TRY(frames_out_progress(conn, moved));
    return rondo_tensor_moves_progress(conn, &net->sends, moved);
}

const struct rondo_tensor_wire rondo_tensor_wire_net = { .name = "a net device",
                                                         .delivers = 0,
                                                         .takes_acks = 1,
                                                         .over_net = 1,
                                                         .open = net_open,
                                                         .connect = net_connect,
                                                         .buffer = net_buffer,
                                                         .write = net_write,
                                                         .ack = net_ack,
                                                         .content = net_content,
                                                         .flush = net_flush,
                                                         .progress = net_progress,
                                                         .close = net_close };
