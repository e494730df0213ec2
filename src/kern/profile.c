#include "kern/profile.h"

#include <string.h>

#include "coll/chunk.h"
#include "kern/proto.h"

struct conns {
    struct rondo_prof_conn *at;
    int n;
    int8_t index[RONDO_PROFILE_KEYS]; /* by key; -1: not in the list */
};

static size_t slice_elems(const struct rondo_work *w, const struct rondo_conn *conn)
{
    return rondo_proto_capacity((enum rondo_proto)w->proto, conn->slot_bytes[w->proto]) / w->elem_bytes;
}

static void count_slices(struct conns *conns, const struct rondo_work *w, int is_send, int port, size_t n)
{
    const struct rondo_conn *conn = is_send ? w->ports->send[port] : w->ports->recv[port];
    uint8_t key = rondo_profile_key(is_send, port);
    size_t most = slice_elems(w, conn);
    if (conns->index[key] < 0) {
        conns->index[key] = (int8_t)conns->n;
        conns->at[conns->n++] = (struct rondo_prof_conn){ .key = key,
                                                          .peer = conn->peer,
                                                          .chunk_bytes = (uint32_t)(most * w->elem_bytes),
                                                          .is_send = (uint8_t)is_send };
    }
    conns->at[conns->index[key]].nsteps += (uint32_t)((n + most - 1) / most);
}

/* Go through the schedule, as executors will. */
static void count_run(const struct rondo_run *run, struct conns *conns)
{
    const struct rondo_work *w = &run->work;
    for (uint32_t f = 0; f < run->nflows; f++) {
        for (size_t loop = 0; loop < run->nloops && run->flow[f].nsteps > 0; loop++) {
            for (uint32_t k = 0; k < run->flow[f].nsteps; k++) {
                struct rondo_step step = run->schedule->flow[f].step(&w->seat, k);
                size_t n = rondo_work_span(w, run->schedule->map, loop, step.block).n;
                for (int i = 0; n > 0 && step.act != 0 && i < step.nfrom; i++) {
                    count_slices(conns, w, 0, step.from[i], n);
                }
                for (int i = 0; n > 0 && step.act != 0 && i < step.nto; i++) {
                    count_slices(conns, w, 1, step.to[i], n);
                }
            }
        }
    }
}

int rondo_profile_conns(const struct rondo_run *run, struct rondo_prof_conn conns[RONDO_PROFILE_KEYS])
{
    struct conns found = { .at = conns };
    memset(found.index, -1, sizeof(found.index));
    count_run(run, &found);
    return found.n;
}
