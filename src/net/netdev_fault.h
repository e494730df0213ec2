/*
 * Net devices that misbehave on purpose, for tests: RONDO_NET_FAULT="seed=7,delay=200us,again=3". Each device
 * of the list has a wrapper that does what the list of words says, and nothing that a reliable network could
 * not do: data arrives whole and in order, or the comm ends with an error.
 *
 *   seed=N         of the random numbers (1); every comm draws its own, so that comms get out of step
 *   rank=R         only in threads of this rank, or comms made by them
 *   delay=TIME     a completion is told up to TIME later
 *   late=K         or after test was asked up to K times more
 *   again=K        isend and irecv have no room K times before each request
 *   connect=K      connecting stays under way K times
 *   fail=F:N       the N-th call of F in this process fails (init, properties, prepare, connect, reg, unreg,
 * isend, irecv, iflush, test); fail=F:N:S     with the status S: system (usual), remote, internal die=N a
 * comm dies at its N-th isend or irecv, as when the other host is gone
 */
#ifndef RONDO_NET_NETDEV_FAULT_H
#define RONDO_NET_NETDEV_FAULT_H

#include "net/netdev.h"

enum { RONDO_FAULT_NETDEVS = 3 };
/** Wrappers of rondo_netdevs, by index. */
extern const struct rondo_net_device rondo_netdev_faults[RONDO_FAULT_NETDEVS];

/** Read RONDO_NET_FAULT. *armed 0: it is empty. @return RONDO_INVALID_ARGUMENT that names the word that
 * cannot be understood. */
rondo_status rondo_netdev_fault_init(int *armed);

#endif
