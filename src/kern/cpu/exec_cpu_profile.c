/* What the CPU executor tells profiler plugins: a run is a KernelCh, each of its conns a ProxyOp, and each
 * slice of a conn a ProxyStep, as a proxy would report them. A proxy's own slices are told by who moves the
 * net. */
#include "kern/cpu/exec_cpu.h"

#include "kern/profile.h"

void rondo_profile_advance(const struct rondo_exec *exec, struct rondo_run *run)
{
    struct rondo_prof_conn conns[RONDO_PROFILE_KEYS];
    enum rondo_medium medium;
    int nconns = 0;
    if (rondo_prof_run_begun(run->prof)) {
        return;
    }
    rondo_prof_run_seen(run->prof);
    medium = rondo_algo_medium(run->work.algo);
    if (medium == RONDO_MEDIUM_DIRECT && run->verdict != RONDO_DIRECT) {
        return; /* it ends at once if its fallback runs instead */
    }
    if (medium == RONDO_MEDIUM_CONNS && rondo_prof_run_wants_conns(run->prof)) {
        nconns = rondo_profile_conns(run, conns);
    }
    rondo_prof_run_begin(run->prof, conns, nconns);
    if (nconns > 0 && exec->owner->conns_begin != NULL) {
        exec->owner->conns_begin(exec->owner->arg, run, conns, nconns);
    }
}

void rondo_profile_end(const struct rondo_exec *exec, struct rondo_run *run, int given_up)
{
    if (run->verdict == RONDO_DIRECT) {
        rondo_profile_advance(exec, run); /* it was decided in the step that also ended it */
    }
    if (exec->owner->conns_end != NULL && rondo_algo_medium(run->work.algo) == RONDO_MEDIUM_CONNS) {
        exec->owner->conns_end(exec->owner->arg, run, given_up);
    }
    rondo_prof_run_end(run->prof);
    run->prof = NULL;
}

void rondo_profile_slice(const struct rondo_exec *exec, const struct rondo_run *run,
                         const struct rondo_step *step, enum rondo_prof_stage stage, size_t bytes)
{
    const struct rondo_ports *ports = run->work.ports;
    int all = exec->owner->conns_begin == NULL;
    for (int i = 0; i < step->nfrom; i++) {
        if (all || !ports->recv[step->from[i]]->proxied) {
            rondo_prof_step(run->prof, rondo_profile_key(0, step->from[i]), stage, bytes);
        }
    }
    for (int i = 0; i < step->nto; i++) {
        if (all || !ports->send[step->to[i]]->proxied) {
            rondo_prof_step(run->prof, rondo_profile_key(1, step->to[i]), stage, bytes);
        }
    }
}
