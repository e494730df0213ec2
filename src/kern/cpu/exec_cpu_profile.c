/* What the CPU executor tells profiler plugins: a run is a KernelCh, each of its conns a ProxyOp, and each
 * slice of a conn a ProxyStep, as a proxy would report them. */
#include "kern/cpu/exec_cpu.h"

#include <string.h>

#include "coll/chunk.h"
#include "kern/proto.h"

enum { KEYS = 2 * RONDO_NUM_PORTS };

/* Conns of a run, in the order in which it uses them. */
struct conns {
    struct rondo_prof_conn at[KEYS];
    int n;
    int8_t index[KEYS]; /* by key; -1: not in the list */
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

/* Go through the schedule, as the executor will. */
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

void rondo_profile_advance(struct rondo_run *run)
{
    struct conns conns = { .n = 0 };
    enum rondo_medium medium;
    if (rondo_prof_run_begun(run->prof)) {
        return;
    }
    rondo_prof_run_seen(run->prof);
    medium = rondo_algo_medium(run->work.algo);
    if (medium == RONDO_MEDIUM_DIRECT && run->verdict != RONDO_DIRECT) {
        return; /* it ends at once if its fallback runs instead */
    }
    if (medium == RONDO_MEDIUM_CONNS && rondo_prof_run_wants_conns(run->prof)) {
        memset(conns.index, -1, sizeof(conns.index));
        count_run(run, &conns);
    }
    rondo_prof_run_begin(run->prof, conns.at, conns.n);
}

void rondo_profile_end(struct rondo_run *run)
{
    if (run->verdict == RONDO_DIRECT) {
        rondo_profile_advance(run); /* it was decided in the step that also ended it */
    }
    rondo_prof_run_end(run->prof);
    run->prof = NULL;
}

void rondo_profile_slice(const struct rondo_run *run, const struct rondo_step *step,
                         enum rondo_prof_stage stage, size_t bytes)
{
    for (int i = 0; i < step->nfrom; i++) {
        rondo_prof_step(run->prof, rondo_profile_key(0, step->from[i]), stage, bytes);
    }
    for (int i = 0; i < step->nto; i++) {
        rondo_prof_step(run->prof, rondo_profile_key(1, step->to[i]), stage, bytes);
    }
}
