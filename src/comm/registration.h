/* Memory that the user registered. */
#ifndef RONDO_COMM_REGISTRATION_H
#define RONDO_COMM_REGISTRATION_H

#include "comm/comm.h"

/** End all registrations. */
void rondo_ctx_deregister(struct rondo_ctx *ctx);

#endif
