/*
 * Net devices that inject faults, for tests: RONDO_NET_FAULT="seed=7,delay=200us,again=3". Each device has a
 * wrapper that injects the faults of the list and nothing that a reliable network could not do: data arrives
 * whole and in order, or the comm ends with an error. Only builds with --enable-devel or --enable-sanitizers
 * have them (RONDO_FAULTS).
 *
 *   seed=N         seed of the random numbers (1); each comm has its own generator, so comms differ
 *   rank=R         affect only calls from threads of this rank, and comms that they prepared
 *   delay=TIME     report a completion up to TIME late
 *   late=K         report a completion up to K calls of test late
 *   again=K        isend and irecv report no room K times before each request
 *   connect=K      connect returns RONDO_IN_PROGRESS K times
 *   fail=F:N[:S]   the N-th call of F in this process fails with status S: system (default), remote,
 * internal; F: init, properties, prepare, connect, reg, unreg, isend, irecv, iflush, test die=N          a
 * comm dies at its N-th isend or irecv, as if the other host went down
 */
#ifndef RONDO_NET_NETDEV_FAULT_H
#define RONDO_NET_NETDEV_FAULT_H

#include "net/netdev.h"

enum { RONDO_FAULT_NETDEVS = 3 };

/** Read RONDO_NET_FAULT. *armed 0: it is empty. @return RONDO_INVALID_ARGUMENT if a word is unknown (the
 * sentence names it), or if this build has no faults. */
rondo_status rondo_netdev_fault_init(int *armed);

/** @return the wrapper of rondo_netdevs[i]; the device itself in a build without faults. */
#ifdef RONDO_FAULTS
const struct rondo_net_device *rondo_netdev_fault_over(int i);
#else
static inline const struct rondo_net_device *rondo_netdev_fault_over(int i) { return rondo_netdevs[i]; }
#endif

#endif
