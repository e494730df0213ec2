/* What comes over a net device that writes into memory of this end: words, and what they announce. */
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "tensor/wire_write.h"

enum { TOP_UP = RONDO_TENSOR_WRITES_IN / 2 /* writes that are allowed together */ };

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
    struct rondo_tensor_write_link *link = conn->link;
    size_t end, most = conn->core->message_bytes;
    memcpy(link->message, link->in, RONDO_TENSOR_BATCH_HEAD);
    /* How much to copy. A head that is wrong gets its sentence below. */
    if (rondo_tensor_batch_decode(link->message, most, conn->version, conn->came + 1, &end) !=
        RONDO_SUCCESS) {
        end = RONDO_TENSOR_BATCH_HEAD;
    }
    memcpy(link->message + RONDO_TENSOR_BATCH_HEAD, link->in + RONDO_TENSOR_BATCH_HEAD,
           end - RONDO_TENSOR_BATCH_HEAD);
    return rondo_tensor_message_came(conn, link->message, end);
}

/* As rondo_tensor_place, for a content that was written to it. */
static rondo_status place_of(struct rondo_tensor_conn *conn, const struct rondo_tensor_content *content,
                             const struct rondo_net_came *came, void **place)
{
    RONDO_TRY(rondo_tensor_place(conn, content, place));
    return *place != NULL && content->bytes > 0 && rondo_tensor_offer_of(conn, content) == NULL
               ? refuse(conn, came, "of a content that was to come in a frame")
               : RONDO_SUCCESS;
}

/* The content that a piece belongs to. */
static rondo_status arriving_of(struct rondo_tensor_conn *conn, const struct rondo_tensor_content *content,
                                const struct rondo_net_came *came,
                                struct rondo_tensor_arriving **arriving_out)
{
    struct rondo_tensor_write_link *link = conn->link;
    struct rondo_tensor_arriving *arriving = link->arriving;
    while (arriving != NULL && arriving->content.index != content->index) {
        arriving = arriving->next;
    }
    if (arriving == NULL) {
        RONDO_TRY(RONDO_NEW(arriving, "a content under way"));
        arriving->content = *content;
        arriving->next = link->arriving;
        link->arriving = arriving;
        RONDO_TRY(place_of(conn, content, came, &arriving->place));
    }
    *arriving_out = arriving;
    return RONDO_SUCCESS;
}

/* All of it is there. */
static void arriving_end(struct rondo_tensor_conn *conn, struct rondo_tensor_arriving *arriving)
{
    struct rondo_tensor_write_link *link = conn->link;
    struct rondo_tensor_arriving **at = &link->arriving;
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
static rondo_status flush(struct rondo_tensor_conn *conn, struct rondo_tensor_arriving *arriving, int *moved)
{
    struct rondo_tensor_write_link *link = conn->link;
    const struct rondo_tensor_offer *offer = rondo_tensor_offer_of(conn, &arriving->content);
    int all = 1;
    for (int p = 0; p < link->nports && offer != NULL; p++) {
        struct rondo_tensor_write_port *port = &link->port[p];
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

rondo_status rondo_tensor_flushes_progress(struct rondo_tensor_conn *conn, int *moved)
{
    struct rondo_tensor_write_link *link = conn->link;
    for (struct rondo_tensor_arriving *arriving = link->arriving, *next; arriving != NULL; arriving = next) {
        next = arriving->next;
        if (arriving->flushing) {
            RONDO_TRY(flush(conn, arriving, moved));
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status content_in(struct rondo_tensor_conn *conn, const struct rondo_net_came *came)
{
    struct rondo_tensor_note note;
    struct rondo_tensor_arriving *arriving;
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
        RONDO_TRY(place_of(conn, &content, came, &place));
        if (place != NULL) {
            (void)rondo_tensor_landed(conn, &content, RONDO_SUCCESS);
        }
        return RONDO_SUCCESS;
    }
    RONDO_TRY(arriving_of(conn, &content, came, &arriving));
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

static rondo_status framed_in(struct rondo_tensor_conn *conn, struct rondo_tensor_frame_in *frame)
{
    struct rondo_tensor_content content;
    const uint8_t *data;
    void *place;
    RONDO_TRY(rondo_tensor_frame_next(frame, &content, &data));
    RONDO_TRY(rondo_tensor_place(conn, &content, &place));
    if (place != NULL && rondo_tensor_offer_of(conn, &content) != NULL) { /* not one of an epoch before */
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "a frame with content %u, which was to come to a place",
                                content.index);
    }
    if (place != NULL) {
        if (content.bytes > 0) {
            memcpy(place, data, content.bytes);
        }
        conn->core->stats.staged_bytes += content.bytes;
        (void)rondo_tensor_landed(conn, &content, RONDO_SUCCESS);
    }
    return RONDO_SUCCESS;
}

static rondo_status frame_read(struct rondo_tensor_conn *conn, const uint8_t *data)
{
    struct rondo_tensor_write_link *link = conn->link;
    struct rondo_tensor_frame_in frame;
    RONDO_TRY(rondo_tensor_frame_open(&frame, data, link->frame_bytes, ++link->frames_in,
                                      conn->version >= RONDO_TENSOR_RUNS_VERSION));
    if (frame.flags & RONDO_TENSOR_CONTENT_ACK) {
        RONDO_TRY(rondo_tensor_ack_came(conn));
    }
    while (frame.left > 0) {
        RONDO_TRY(framed_in(conn, &frame));
    }
    return RONDO_SUCCESS;
}

/* Frame `at` has come. */
static rondo_status frame_in(struct rondo_tensor_conn *conn, uint32_t at)
{
    struct rondo_tensor_write_link *link = conn->link;
    char text[RONDO_ERROR_TEXT], who[96];
    rondo_status status = frame_read(conn, link->in + conn->core->message_bytes + at * link->frame_bytes);
    if (status != RONDO_REMOTE_ERROR) {
        return status;
    }
    snprintf(text, sizeof(text), "%s", rondo_error_text());
    return rondo_fail(
        RONDO_REMOTE_ERROR, "rank %d on %s got from %s, and ends their connection for tensors: %s",
        conn->core->rank, rondo_log_host(), rondo_tensor_who(conn->core, conn->peer, who), text);
}

/* What has come on a port as write number port->received. */
static rondo_status write_in(struct rondo_tensor_conn *conn, struct rondo_tensor_write_port *port,
                             const struct rondo_net_came *came)
{
    struct rondo_tensor_write_link *link = conn->link;
    if (came->word == RONDO_TENSOR_IMM_FRAME && link->frame_bytes > 0 && port == link->port) {
        return frame_in(conn, port->received % RONDO_TENSOR_WRITES_IN);
    }
    if (came->word <= RONDO_TENSOR_LAST_INDEX) {
        return content_in(conn, came);
    }
    return came->word == RONDO_TENSOR_IMM_MESSAGE ? message_in(conn) : rondo_tensor_ack_came(conn);
}

/* Allow writes in the order in which they will come: many at a time, because the other end is told of them
 * in one write, and has as many left meanwhile. */
static rondo_status words_post(struct rondo_tensor_write_link *link, struct rondo_tensor_write_port *port)
{
    while (port->received + RONDO_TENSOR_WRITES_IN - port->allowed >= (port->topping ? 1 : TOP_UP)) {
        uint32_t at = port->allowed % RONDO_TENSOR_WRITES_IN;
        int last = port->allowed + 1 == port->received + RONDO_TENSOR_WRITES_IN;
        RONDO_TRY(link->device->irecv_word(port->in, &port->came[at], !last, &port->word[at]));
        if (port->word[at] == NULL) {
            break; /* the rest when there is room: those before it may wait for it */
        }
        port->topping = !last;
        port->allowed++;
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_words_progress(struct rondo_tensor_conn *conn, struct rondo_tensor_write_port *port,
                                         int *moved)
{
    struct rondo_tensor_write_link *link = conn->link;
    RONDO_TRY(words_post(link, port));
    for (;;) {
        uint32_t at = port->received % RONDO_TENSOR_WRITES_IN;
        int done = 0;
        if (port->received == port->allowed) {
            return RONDO_SUCCESS;
        }
        RONDO_TRY(link->device->test(port->word[at], &done, NULL));
        if (!done) {
            return RONDO_SUCCESS;
        }
        *moved = 1;
        RONDO_TRY(write_in(conn, port, &port->came[at]));
        port->received++;
        RONDO_TRY(words_post(link, port)); /* only now may its frame be written again */
    }
}
