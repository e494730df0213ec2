/* The conns of a run as profiler plugins see them: on host memory each is a ProxyOp, on GPUs each that a
 * proxy carries. */
#ifndef RONDO_KERN_PROFILE_H
#define RONDO_KERN_PROFILE_H

#include "kern/exec.h"

enum { RONDO_PROFILE_KEYS = 2 * RONDO_NUM_PORTS };

/** A conn's key in a profile. */
static inline uint8_t rondo_profile_key(int is_send, int port) { return (uint8_t)(port << 1 | is_send); }
static inline int rondo_profile_key_port(uint8_t key) { return key >> 1; }
/** List the conns that a run with RONDO_MEDIUM_CONNS uses, in the order in which it does, and the slices on
 * each.
 * @return their number */
int rondo_profile_conns(const struct rondo_run *run, struct rondo_prof_conn conns[RONDO_PROFILE_KEYS]);

#endif
