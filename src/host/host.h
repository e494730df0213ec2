/* The backend of communicators with buffers in host memory, behind the table that src/gpu fills for GPUs
 * (comm/backend.h): the CPU executor, the mailbox and direct access. */
#ifndef RONDO_HOST_HOST_H
#define RONDO_HOST_HOST_H

#include "comm/backend.h"

extern const struct rondo_backend_ops rondo_backend_host;

#endif
