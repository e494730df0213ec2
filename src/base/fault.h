/*
 * Faults on purpose, for tests: RONDO_FAULT="rank=2,phase=call,op=17,act=kill". A point in the code names its
 * phase; when rank, phase and op match, the process is killed (kill), stopped (stop), left without cleaning
 * up (exit), delayed (delay:MS), or the point fails (fail). Costs one load and a branch where nothing is
 * armed.
 *
 * Phases: the rounds of creation (open, peers, graphs, connections, ready, hello) and `call` (op: number of
 * the collective).
 */
#ifndef RONDO_BASE_FAULT_H
#define RONDO_BASE_FAULT_H

#include "base/status.h"

extern int rondo_fault_armed;

/** Read RONDO_FAULT. @return RONDO_INVALID_ARGUMENT when it cannot be understood. */
rondo_status rondo_fault_init(void);
rondo_status rondo_fault_act(const char *phase, int rank, uint64_t op);

/** RONDO_SUCCESS, or RONDO_INTERNAL_ERROR where act=fail is armed for this point. */
static inline rondo_status rondo_fault(const char *phase, int rank, uint64_t op)
{
    return RONDO_LIKELY(!rondo_fault_armed) ? RONDO_SUCCESS : rondo_fault_act(phase, rank, op);
}

#endif
