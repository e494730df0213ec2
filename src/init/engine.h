/*
 * What the faces (MPI, NCCL, tools) need of the engine besides rondo.h. Exported under a private symbol
 * version: no ABI promise.
 */
#ifndef RONDO_INIT_ENGINE_H
#define RONDO_INIT_ENGINE_H

#include "net/bootstrap/bootstrap.h"
#include "rondo.h"

/**
 * Create a communicator through a bootstrap; takes ownership of it in every case (closes it as the last step
 * of creation). Blocking, non-blocking and inside a group as rondo_comm_create describes.
 */
rondo_status rondo_engine_create(struct rondo_bootstrap *bootstrap, const rondo_config *config,
                                 rondo_comm **comm);
/** Communicators that exist in this process (created and neither destroyed nor aborted). */
int rondo_engine_ncomms(void);

#endif
