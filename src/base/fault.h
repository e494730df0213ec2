/*
 * Fault injection for tests. RONDO_FAULT="rank=2,phase=call,op=17,act=kill" arms one fault. Each fault point
 * names its phase; where rank, phase and op match, the process kills itself (kill), stops itself (stop),
 * exits without cleaning up (exit) or sleeps (delay:MS), or the point fails (fail). An absent word matches
 * everything.
 *
 * Phases: the rounds of creation (open, peers, graphs, shapes, connections, ready, hello), colors and names
 * (after the rounds colors and graphs; of colors it is the parent's rank), control (after ready, before the
 * control plane runs), `call` and `plan` (it is not issued), where
 * op is the number of the collective, and of tensors tensor_ack, tensor_content and tensor_help, where it is
 * that of the acknowledgement, the content that arrives, or the entry of the ring whose copy this rank helps
 * with.
 *
 * Only builds with --enable-devel or --enable-sanitizers have fault points (RONDO_FAULTS); there, an unarmed
 * point costs a load and a branch.
 */
#ifndef RONDO_BASE_FAULT_H
#define RONDO_BASE_FAULT_H

#include "base/status.h"

/** Read RONDO_FAULT. @return RONDO_INVALID_ARGUMENT if the value is malformed, or if this build has no
 * faults. */
rondo_status rondo_fault_init(void);

#ifdef RONDO_FAULTS
extern int rondo_fault_armed;

/** Act out the armed fault if it matches this point; rondo_fault checks first whether one is armed. */
rondo_status rondo_fault_act(const char *phase, int rank, uint64_t op);
#else
enum { rondo_fault_armed = 0 };

static inline rondo_status rondo_fault_act(const char *phase, int rank, uint64_t op)
{
    (void)phase, (void)rank, (void)op;
    return RONDO_SUCCESS;
}
#endif

/** A fault point. @return RONDO_SUCCESS, or RONDO_INTERNAL_ERROR if act=fail is armed for this point. */
static inline rondo_status rondo_fault(const char *phase, int rank, uint64_t op)
{
    return RONDO_LIKELY(!rondo_fault_armed) ? RONDO_SUCCESS : rondo_fault_act(phase, rank, op);
}

#endif
