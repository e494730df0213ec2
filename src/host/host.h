/* Communicators whose buffers are in host memory. */
#ifndef RONDO_HOST_HOST_H
#define RONDO_HOST_HOST_H

#include "comm/backend.h"

extern const struct rondo_backend_ops rondo_backend_host;

#endif
