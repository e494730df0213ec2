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
/** @return how many communicators of this process are neither destroyed nor aborted. */
int rondo_engine_ncomms(void);

#endif
