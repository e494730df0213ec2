/* The data of contents over a net device: pieces, and registrations of the memory that they lie in. */
#include <string.h>

#include "base/mem.h"
#include "tensor/wire_net.h"

static struct rondo_tensor_net *net_of(const struct rondo_tensor_conn *conn) { return conn->link; }

static rondo_status drop_open(struct rondo_tensor_conn *conn, struct rondo_tensor_moves *moves)
{
    if (moves->drop == NULL) {
        RONDO_TRY(RONDO_NEW_ARRAY(moves->drop, RONDO_TENSOR_PIECE, "a place for contents that nobody wants"));
        RONDO_TRY(net_of(conn)->device->reg(moves->regions.comm, moves->drop, RONDO_TENSOR_PIECE,
                                            RONDO_NET_HOST, -1, &moves->drop_region));
    }
    return RONDO_SUCCESS;
}

/* ---- pieces ---- */

static rondo_status post_piece(struct rondo_tensor_conn *conn, struct rondo_tensor_moves *moves,
                               struct rondo_tensor_move *move, size_t bytes, void **request)
{
    const struct rondo_net_device *device = net_of(conn)->device;
    void *data = move->data != NULL ? move->data + move->posted : moves->drop,
         *region = move->data != NULL ? move->hold.region : moves->drop_region;
    int tag = 0;
    *request = NULL;
    return moves->is_send ? device->isend(moves->regions.comm, data, bytes, tag, region, request)
                          : device->irecv(moves->regions.comm, 1, &data, &bytes, &tag, &region, request);
}

static rondo_status post(struct rondo_tensor_conn *conn, struct rondo_tensor_moves *moves, int *moved)
{
    while (moves->posting != NULL && moves->began - moves->ended < RONDO_TENSOR_FLIGHTS) {
        struct rondo_tensor_move *move = moves->posting;
        size_t bytes = rondo_min_size(move->content.bytes - move->posted, RONDO_TENSOR_PIECE);
        void *request;
        RONDO_TRY(post_piece(conn, moves, move, bytes, &request));
        if (request == NULL) {
            return RONDO_SUCCESS;
        }
        *moved = 1;
        moves->flight[moves->began % RONDO_TENSOR_FLIGHTS].request = request;
        moves->flight[moves->began % RONDO_TENSOR_FLIGHTS].move = move;
        moves->flight[moves->began++ % RONDO_TENSOR_FLIGHTS].bytes = bytes;
        move->posted += bytes;
        if (move->posted == move->content.bytes) {
            moves->posting = move->next;
        }
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_move_new(struct rondo_tensor_conn *conn, struct rondo_tensor_moves *moves,
                                   struct rondo_tensor_response *response,
                                   const struct rondo_tensor_content *content, void *place,
                                   struct rondo_tensor_move **move_out)
{
    struct rondo_tensor_move *move;
    rondo_status status;
    RONDO_TRY(RONDO_NEW(move, "a content under way"));
    move->response = response;
    move->content = *content;
    move->data = response != NULL ? (uint8_t *)(uintptr_t)response->data : place;
    status = move->data != NULL ? rondo_tensor_hold(conn, &moves->regions, move->data, content->bytes,
                                                    RONDO_TENSOR_NO_GPU, &move->hold)
                                : drop_open(conn, moves);
    if (status != RONDO_SUCCESS) {
        rondo_free(move);
        return status;
    }
    *move_out = move;
    return RONDO_SUCCESS;
}

void rondo_tensor_move_free(struct rondo_tensor_moves *moves, struct rondo_tensor_move *move)
{
    rondo_tensor_unhold(&moves->regions, &move->hold);
    rondo_free(move);
}

rondo_status rondo_tensor_move_add(struct rondo_tensor_conn *conn, struct rondo_tensor_moves *moves,
                                   struct rondo_tensor_move *move)
{
    int posted;
    if (moves->first == NULL) {
        moves->last = &moves->first;
    }
    *moves->last = move;
    moves->last = &move->next;
    if (moves->posting == NULL) {
        moves->posting = move;
    }
    return moves->is_send ? post(conn, moves, &posted) : RONDO_SUCCESS; /* a send can begin now */
}

/* The first content has been moved. */
static void move_end(struct rondo_tensor_conn *conn, struct rondo_tensor_moves *moves)
{
    struct rondo_tensor_move *move = moves->first;
    moves->first = move->next;
    rondo_tensor_unhold(&moves->regions, &move->hold);
    if (moves->is_send) {
        rondo_tensor_sent(move->response, 0);
    } else if (move->data != NULL) {
        (void)rondo_tensor_landed(conn, &move->content, RONDO_SUCCESS);
    }
    rondo_free(move);
}

rondo_status rondo_tensor_moves_progress(struct rondo_tensor_conn *conn, struct rondo_tensor_moves *moves,
                                         int *moved)
{
    char who[96];
    RONDO_TRY(post(conn, moves, moved));
    while (moves->ended != moves->began) {
        uint32_t at = moves->ended % RONDO_TENSOR_FLIGHTS;
        size_t bytes = moves->flight[at].bytes;
        int done = 0;
        RONDO_TRY(
            net_of(conn)->device->test(moves->flight[at].request, &done, moves->is_send ? NULL : &bytes));
        if (!done) {
            break;
        }
        if (bytes != moves->flight[at].bytes) {
            moves->ended++;
            return rondo_fail(RONDO_REMOTE_ERROR, "rank %d got %zu bytes of a tensor from %s, and not %zu",
                              conn->core->rank, bytes, rondo_tensor_who(conn->core, conn->peer, who),
                              moves->flight[at].bytes);
        }
        *moved = 1;
        moves->ended++;
        moves->flight[at].move->done += bytes;
        if (moves->flight[at].move->done == moves->flight[at].move->content.bytes) {
            move_end(conn, moves);
        }
    }
    return post(conn, moves, moved);
}

void rondo_tensor_moves_close(struct rondo_tensor_conn *conn, struct rondo_tensor_moves *moves)
{
    while (moves->first != NULL) {
        struct rondo_tensor_move *move = moves->first;
        moves->first = move->next;
        rondo_tensor_move_free(moves, move);
    }
    rondo_tensor_regions_close(&moves->regions);
    if (moves->drop_region != NULL) {
        net_of(conn)->device->unreg(moves->regions.comm, moves->drop_region);
    }
    rondo_free(moves->drop);
}
