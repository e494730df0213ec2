/* Memory that the user registered with rondo_comm_register. */
#ifndef RONDO_COMM_REGISTRATION_H
#define RONDO_COMM_REGISTRATION_H

#include "comm/comm.h"

/** End all registrations. */
void rondo_ctx_deregister(struct rondo_ctx *ctx);

#endif
