/* The wire of a rank to itself: the connection is both ends. Contents are copied in progress. */
#include <string.h>

#include "base/mem.h"
#include "tensor/store.h"

struct link {
    size_t message; /* bytes of a message that was written; 0: none */
    int acks;
    struct rondo_tensor_response *content; /* that was written; NULL: none */
    uint8_t *in; /* a copy: messages that are read cause messages that are written */
    uint8_t buffer[];
};

static rondo_status self_open(struct rondo_tensor_conn *conn, void *record)
{
    size_t bytes = conn->core->message_bytes;
    struct link *link;
    (void)record;
    RONDO_TRY(rondo_calloc(&link, 1, sizeof(*link) + 2 * bytes, "message buffers for tensors"));
    link->in = link->buffer + bytes;
    conn->link = link;
    return RONDO_SUCCESS;
}

static rondo_status self_connect(struct rondo_tensor_conn *conn, const void *record)
{
    (void)conn, (void)record;
    return RONDO_SUCCESS;
}

static uint8_t *self_buffer(struct rondo_tensor_conn *conn) { return ((struct link *)conn->link)->buffer; }

static rondo_status self_write(struct rondo_tensor_conn *conn, size_t bytes)
{
    ((struct link *)conn->link)->message = bytes;
    return RONDO_SUCCESS;
}

static rondo_status self_ack(struct rondo_tensor_conn *conn)
{
    ((struct link *)conn->link)->acks++;
    return RONDO_SUCCESS;
}

static rondo_status self_content(struct rondo_tensor_conn *conn, struct rondo_tensor_response *response)
{
    struct link *link = conn->link;
    if (link->content != NULL) {
        return RONDO_IN_PROGRESS;
    }
    link->content = response;
    return RONDO_SUCCESS;
}

static rondo_status deliver(struct rondo_tensor_conn *conn, struct rondo_tensor_response *response)
{
    struct rondo_tensor_content content;
    void *place;
    int landed = 0;
    rondo_tensor_content_of(response, &content);
    RONDO_TRY(rondo_tensor_place(conn, &content, &place));
    if (place != NULL) {
        int apart = content.bytes >= RONDO_TENSOR_APART;
        if (apart) { /* the connection is busy: pull and response stay (conn.c) */
            pthread_mutex_unlock(&conn->core->lock);
        }
        if (content.bytes > 0) {
            memcpy(place, response->data, content.bytes);
        }
        if (apart) {
            pthread_mutex_lock(&conn->core->lock);
        }
        landed = rondo_tensor_landed(conn, &content, RONDO_SUCCESS);
    }
    rondo_tensor_sent(response, !landed);
    return RONDO_SUCCESS;
}

static rondo_status self_progress(struct rondo_tensor_conn *conn, int *moved)
{
    struct link *link = conn->link;
    while (link->acks > 0) {
        link->acks--;
        *moved = 1;
        RONDO_TRY(rondo_tensor_ack_came(conn));
    }
    while (link->content != NULL) {
        struct rondo_tensor_response *response = link->content;
        link->content = NULL;
        *moved = 1;
        RONDO_TRY(deliver(conn, response));
        if (conn->closing) {
            return RONDO_SUCCESS;
        }
        rondo_tensor_conn_flush(conn); /* the next one */
    }
    if (link->message > 0) {
        size_t bytes = link->message;
        memcpy(link->in, link->buffer, bytes);
        link->message = 0;
        *moved = 1;
        rondo_tensor_written(conn);
        RONDO_TRY(rondo_tensor_message_came(conn, link->in, bytes));
    }
    return RONDO_SUCCESS;
}

static void self_close(struct rondo_tensor_conn *conn)
{
    rondo_free(conn->link);
    conn->link = NULL;
}

const struct rondo_tensor_wire rondo_tensor_wire_self = { .name = "memory of the rank",
                                                          .delivers = 1,
                                                          .open = self_open,
                                                          .connect = self_connect,
                                                          .buffer = self_buffer,
                                                          .write = self_write,
                                                          .ack = self_ack,
                                                          .content = self_content,
                                                          .progress = self_progress,
                                                          .close = self_close };
