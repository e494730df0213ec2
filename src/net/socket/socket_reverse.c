/* A sender and a receiver between the same ranks, of which one has a lane over a connection of the other.
 * Contract: socket_impl.h. */
#include "net/socket/socket_impl.h"

#include <sys/socket.h>

void rondo_socket_reverse_find(struct rondo_socket_comm *comm)
{
    struct rondo_socket_device *device = comm->device;
    struct rondo_socket_comm *first = NULL;
    if (comm->peer.owner == NULL) {
        return;
    }
    pthread_mutex_lock(&device->lock);
    for (struct rondo_socket_comm *at = device->waiting; at;
         at = at->next) { /* newest first: the last match was prepared first */
        if (at->peer.owner == comm->peer.owner && at->peer.rank == comm->peer.rank &&
            at->peer.channel == comm->peer.channel && at->reverse == NULL) {
            first = at;
        }
    }
    pthread_mutex_unlock(&device->lock);
    if (first) {
        comm->reverse = first;
        first->reverse = comm;
    }
}

static void part(struct rondo_socket_comm *comm)
{
    comm->reverse->reverse = NULL;
    comm->reverse = NULL;
}

/* Does the comm have a lane? 1, 0; -1: unknown yet. */
static int has_lane(struct rondo_socket_comm *comm)
{
    const struct rondo_socket_comm *reverse = comm->reverse, *sender = comm->is_send ? comm : reverse,
                                   *receiver = comm->is_send ? reverse : comm;
    if (reverse->other.magic == 0) {
        return -1;
    }
    if (receiver->other.reverse !=
        sender->other.cookie) { /* our receiver's other end has a reverse comm that is not our sender's
                                 * other end */
        part(comm);
        return 0;
    }
    return comm->is_send ? sender->cookie > receiver->other.cookie : sender->cookie < receiver->other.cookie;
}

rondo_status rondo_socket_lane(struct rondo_socket_comm *comm)
{
    int has = comm->reverse != NULL ? has_lane(comm) : 0;
    if (has < 0 || (has > 0 && !comm->reverse->opened)) {
        return RONDO_IN_PROGRESS;
    }
    if (has > 0) {
        if (!comm->is_send) {
            RONDO_TRY(rondo_socket_stage_room(comm, &comm->stage[1], RONDO_SOCKET_READ));
        }
        comm->lane = comm->nconns;
        comm->conn[comm->lane] = (struct rondo_socket_conn){ .fd = comm->reverse->conn[0].fd,
                                                             .state = RONDO_SOCKET_READY };
        comm->shared = comm->reverse->shared = 1;
    }
    comm->connected = 1;
    return RONDO_SUCCESS;
}

int rondo_socket_reverse_leave(struct rondo_socket_comm *comm)
{
    int stays = comm->shared && comm->reverse != NULL
                    ? comm->lane
                    : -1; /* the reverse comm's, or the one that is its lane */
    if (comm->reverse != NULL) {
        part(comm);
    }
    if (stays >= 0 && comm->is_send) {
        shutdown(comm->conn[stays].fd, SHUT_WR);
    }
    return stays;
}
