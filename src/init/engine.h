/*
 * The engine for the MPI and NCCL front ends and the tools, besides rondo.h. Exported under a private symbol
 * version, without a stable ABI.
 */
#ifndef RONDO_INIT_ENGINE_H
#define RONDO_INIT_ENGINE_H

#include "net/bootstrap/bootstrap.h"
#include "rondo.h"

/**
 * Create a communicator over a bootstrap. Always takes ownership of the bootstrap, and closes it as the last
 * step of creation. Blocking, non-blocking and inside a group, as rondo_comm_create describes.
 */
rondo_status rondo_engine_create(struct rondo_bootstrap *bootstrap, const rondo_config *config,
                                 rondo_comm **comm);
/**
 * For the members of a communicator, collectively: all[i * bytes ..] = rank i's mine. Waits; carried by the
 * control plane, whatever memory the communicator is of. Not in a group.
 */
rondo_status rondo_engine_share(rondo_comm *comm, const void *mine, void *all, size_t bytes);
/** End the work of all ranks as soon as they notice, as after an error, but keep the communicator, so that it
 * can be shrunk and destroyed. From any thread. */
rondo_status rondo_engine_revoke(rondo_comm *comm);
/** Store the bytes of memory that the communicator's buffers take. From any thread. */
rondo_status rondo_engine_bytes(rondo_comm *comm, uint64_t *bytes);
/** @return how many communicators of this process are neither destroyed nor aborted. */
int rondo_engine_ncomms(void);

#endif
