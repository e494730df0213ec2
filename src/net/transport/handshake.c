#include "net/transport/handshake.h"

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
        conn->seen = conn->step;
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
