/*
 * Who tells whom the reason why a communicator has ended, who watches whom, and when silence is one: state
 * machines without thread, socket or clock. control_wire_watch.c drives them over the wire, the simulator of
 * mpi-tests/sim over simulated time.
 *
 * The nodes form a ring; a node's fingers are the nodes at distance +-2^k. The lowest live rank of a node
 * leads it. Leaders watch the leaders of the fingers ahead, and pass a reason on to all their fingers, once.
 * So a reason reaches every node within log2(nodes) steps, and by many paths, should some leaders be dead.
 */
#ifndef RONDO_NET_CONTROL_SPREAD_H
#define RONDO_NET_CONTROL_SPREAD_H

#include <stdint.h>

enum { RONDO_SPREAD_FINGERS = 2 * 31 };

struct rondo_finger {
    int node, ahead; /* ahead: this node's leader watches it */
    int watched;     /* rank; -1: none */
    int told;        /* rank that was told the reason; -1: none */
};

struct rondo_spread {
    int nnodes, nfingers;
    const int *first; /* node -> its lowest rank */
    const int *after; /* rank -> the next one of its node; -1: none */
    struct rondo_finger finger[RONDO_SPREAD_FINGERS];
};

struct rondo_spread_ops {
    /* Is a rank alive, as known here? */
    int (*is_alive)(void *arg, int rank);
    /* Keep a connection with a rank's process, and ask it for beats. @return 0: not now */
    int (*watch)(void *arg, int rank);
    /* Tell a rank the reason. @return 0: not now */
    int (*tell)(void *arg, int rank);
};

/** first and after must outlive it. */
void rondo_spread_init(struct rondo_spread *spread, int node, int nnodes, const int *first, const int *after);
/** @return the rank that leads a node, as known here; -1: none is left. */
int rondo_spread_leader(const struct rondo_spread *spread, int node, const struct rondo_spread_ops *ops,
                        void *arg);
/** Watch the leaders ahead that are not watched yet. Call it while this rank leads its node: at the start,
 * and with every beat. */
void rondo_spread_watch(struct rondo_spread *spread, const struct rondo_spread_ops *ops, void *arg);
/** Tell the leaders of all fingers that have not been told. Call it again when a leader has died. */
void rondo_spread_tell(struct rondo_spread *spread, const struct rondo_spread_ops *ops, void *arg);

/** A rank that was taken for lost is there: watch it, and tell it, as one that was neither. */
void rondo_spread_anew(struct rondo_spread *spread, int rank);

/* What two processes hear of each other. */
struct rondo_beats {
    int64_t heard_ns;
    uint8_t watching, beating, silent; /* this end asked for beats; the other end did; it counts as silent */
};

/** Something came. @return 1: the process was silent */
static inline int rondo_beats_heard(struct rondo_beats *beats, int64_t now)
{
    int was_silent = beats->silent;
    beats->heard_ns = now;
    beats->silent = 0;
    return was_silent;
}

/** Look at a beat's time. @param limit_ns  how long the process may be silent; 0: for ever
 * @return for how long it has been, if it counts as silent from now on; else 0 */
static inline int64_t rondo_beats_silence(struct rondo_beats *beats, int64_t now, int64_t limit_ns)
{
    int64_t silent_ns = now - beats->heard_ns;
    if (!beats->watching || beats->silent || limit_ns <= 0 || silent_ns <= limit_ns) {
        return 0;
    }
    beats->silent = 1;
    return silent_ns;
}

#endif
