#include "net/control/spread.h"

#include <stddef.h>

static void finger_add(struct rondo_spread *spread, int node, int ahead)
{
    for (int i = 0; i < spread->nfingers; i++) {
        if (spread->finger[i].node == node) {
            spread->finger[i].ahead |= ahead;
            return;
        }
    }
    spread->finger[spread->nfingers++] =
        (struct rondo_finger){ .node = node, .ahead = ahead, .watched = -1, .told = -1 };
}

void rondo_spread_init(struct rondo_spread *spread, int node, int nnodes, const int *first, const int *after)
{
    spread->nnodes = nnodes;
    spread->first = first;
    spread->after = after;
    spread->nfingers = 0;
    for (int64_t distance = 1; distance < nnodes; distance *= 2) {
        finger_add(spread, (int)((node + distance) % nnodes), 1);
        finger_add(spread, (int)((node - distance + nnodes) % nnodes), 0);
    }
}

int rondo_spread_leader(const struct rondo_spread *spread, int node, const struct rondo_spread_ops *ops,
                        void *arg)
{
    int rank = spread->first[node];
    while (rank >= 0 && !ops->is_alive(arg, rank)) {
        rank = spread->after[rank];
    }
    return rank;
}

void rondo_spread_watch(struct rondo_spread *spread, const struct rondo_spread_ops *ops, void *arg)
{
    for (int i = 0; i < spread->nfingers; i++) {
        struct rondo_finger *finger = &spread->finger[i];
        int rank = finger->ahead ? rondo_spread_leader(spread, finger->node, ops, arg) : -1;
        if (rank >= 0 && rank != finger->watched && ops->watch(arg, rank)) {
            finger->watched = rank;
        }
    }
}

void rondo_spread_tell(struct rondo_spread *spread, const struct rondo_spread_ops *ops, void *arg)
{
    for (int i = 0; i < spread->nfingers; i++) {
        struct rondo_finger *finger = &spread->finger[i];
        int rank = rondo_spread_leader(spread, finger->node, ops, arg);
        if (rank >= 0 && rank != finger->told && ops->tell(arg, rank)) {
            finger->told = rank;
        }
    }
}

void rondo_spread_anew(struct rondo_spread *spread, int rank)
{
    for (int i = 0; i < spread->nfingers; i++) {
        struct rondo_finger *finger = &spread->finger[i];
        finger->watched = finger->watched == rank ? -1 : finger->watched;
        finger->told = finger->told == rank ? -1 : finger->told;
    }
}
