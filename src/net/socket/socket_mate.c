/* A sender and a receiver between the same ranks, one of which has a lane over a connection of the other:
 * contract in netdev_socket_impl.h. */
#include "net/socket/socket_impl.h"

#include <sys/socket.h>

void rondo_socket_mate(struct rondo_socket_comm *comm)
{
    struct rondo_socket_device *device = comm->device;
    struct rondo_socket_comm *first = NULL;
    if (comm->peer.owner == NULL) {
        return;
    }
    pthread_mutex_lock(&device->lock);
    for (struct rondo_socket_comm *at = device->waiting; at;
         at = at->next) { /* the first that was prepared is the last here */
        if (at->peer.owner == comm->peer.owner && at->peer.rank == comm->peer.rank &&
            at->peer.channel == comm->peer.channel && at->mate == NULL) {
            first = at;
        }
    }
    pthread_mutex_unlock(&device->lock);
    if (first) {
        comm->mate = first;
        first->mate = comm;
    }
}

static void part(struct rondo_socket_comm *comm)
{
    comm->mate->mate = NULL;
    comm->mate = NULL;
}

/* Has the comm a lane? 1, 0; -1: not known yet. */
static int has_lane(struct rondo_socket_comm *comm)
{
    const struct rondo_socket_comm *mate = comm->mate, *sender = comm->is_send ? comm : mate,
                                   *receiver = comm->is_send ? mate : comm;
    if (mate->other.magic == 0) {
        return -1;
    }
    if (receiver->other.mate !=
        sender->other.cookie) { /* my receiver hears from one whose mate is not my sender's other end */
        part(comm);
        return 0;
    }
    return comm->is_send ? sender->cookie > receiver->other.cookie : sender->cookie < receiver->other.cookie;
}

rondo_status rondo_socket_lane(struct rondo_socket_comm *comm)
{
    int has = comm->mate != NULL ? has_lane(comm) : 0;
    if (has < 0 || (has > 0 && !comm->mate->opened)) {
        return RONDO_IN_PROGRESS;
    }
    if (has > 0) {
        if (!comm->is_send) {
            RONDO_TRY(rondo_socket_stage_room(comm, &comm->stage[1], RONDO_SOCKET_READ));
        }
        comm->lane = comm->nconns;
        comm->conn[comm->lane] = (struct rondo_socket_conn){ .fd = comm->mate->conn[0].fd,
                                                             .state = RONDO_SOCKET_READY };
        comm->shared = comm->mate->shared = 1;
    }
    comm->connected = 1;
    return RONDO_SUCCESS;
}

int rondo_socket_unmate(struct rondo_socket_comm *comm)
{
    int stays = comm->shared && comm->mate != NULL ? comm->lane
                                                   : -1; /* its mate's, or the one that is its mate's lane */
    if (comm->mate != NULL) {
        part(comm);
    }
    if (stays >= 0 && comm->is_send) {
        shutdown(comm->conn[stays].fd, SHUT_WR);
    }
    return stays;
}
