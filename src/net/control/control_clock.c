/* How the clocks of nodes compare: pings between their leaders, each of the one before it in a tree, so that
 * none is asked by more than two. Any thread of the asked process answers; it takes some microseconds
 * there. */
#include <sched.h>
#include <string.h>

#include "net/control/control_wire.h"

enum { PINGS = 8 /* the first one connects */ };
#define LIMIT_NS (100 * INT64_C(1000000))

int rondo_wire_on_ask_clock(struct rondo_control *control, const struct rondo_wire_head *head,
                            const void *data)
{
    int64_t now = rondo_now_ns();
    (void)data;
    rondo_wire_say(control, head->from, RONDO_WIRE_TELL_CLOCK, head->tag, &now, sizeof(now));
    return 1;
}

int rondo_wire_on_tell_clock(struct rondo_control *control, const struct rondo_wire_head *head,
                             const void *data)
{
    struct rondo_wire_ping *ping = &control->wire->ping;
    if (head->bytes != sizeof(ping->told_ns)) {
        return 0;
    }
    if (ping->rank == head->from && ping->number == head->tag && ping->heard_ns == 0) {
        memcpy(&ping->told_ns, data, sizeof(ping->told_ns));
        ping->heard_ns = rondo_now_ns();
    }
    return 1;
}

/* @return whether the answer came before `end`. */
static int ping(struct rondo_control *control, int rank, int64_t end)
{
    struct rondo_wire_ping *ping = &control->wire->ping;
    int heard = 0, said;
    rondo_wire_lock();
    *ping = (struct rondo_wire_ping){ .rank = rank, .number = ping->number + 1, .asked_ns = rondo_now_ns() };
    said = rondo_wire_say(control, rank, RONDO_WIRE_ASK_CLOCK, ping->number, NULL, 0);
    rondo_wire_unlock();
    while (said && !heard && rondo_now_ns() < end && !rondo_control_aborted(control)) {
        sched_yield();
        rondo_wire_lock();
        rondo_wire_progress();
        heard = ping->heard_ns != 0;
        rondo_wire_unlock();
    }
    return heard;
}

int rondo_control_clock(struct rondo_control *control, int *rank, int64_t *offset_ns, int64_t *error_ns)
{
    struct rondo_wire_part *part = control->wire;
    const struct rondo_wire_ping *said;
    int64_t end = rondo_now_ns() + LIMIT_NS, best = INT64_MAX;
    int node;
    if (part == NULL || !part->joined || (node = part->node_of[control->rank]) == 0 ||
        part->first[node] != control->rank) {
        return 0;
    }
    said = &part->ping;
    *rank = part->first[(node - 1) / 2];
    for (int i = 0; i < PINGS && ping(control, *rank, end); i++) {
        int64_t half = (said->heard_ns - said->asked_ns + 1) / 2;
        if (half < best) {
            best = half;
            *offset_ns = said->told_ns - (said->asked_ns + half);
            *error_ns = half + 1;
        }
    }
    return best < INT64_MAX;
}
