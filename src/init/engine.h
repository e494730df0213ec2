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
/** How a creation went before rondo_engine_create: an error refuses the open group, too. @return status. */
rondo_status rondo_engine_refuse(rondo_status status);
/**
 * For the members of a communicator, collectively: all[i * bytes ..] = rank i's mine. Waits; carried by the
 * control plane, whatever memory the communicator is of. Not in a group.
 */
rondo_status rondo_engine_share(rondo_comm *comm, const void *mine, void *all, size_t bytes);
/**
 * Create a communicator of the parent's ranks members[0 .. n - 1], which all call this with the same members
 * and tag; nobody else need. As rondo_comm_shrink otherwise, but it leaves the parent's calls alone.
 * @param tag  a new one for each creation with these members
 * Threads of a rank take turns in this call, and in the steps of such creations, which no other
 * communicator's poll moves.
 */
rondo_status rondo_engine_among(rondo_comm *comm, const int *members, int n, uint64_t tag,
                                const rondo_config *config, rondo_comm **newcomm);
/**
 * For both ranks of a communicator of two: connect their messages in both directions, so that the first ones
 * need not wait in their calls. Does not wait.
 * @return RONDO_IN_PROGRESS: call again, as the peer does
 */
rondo_status rondo_engine_pair(rondo_comm *comm);
/** End the communicator on all ranks as soon as they notice, with this reason, and keep it until it is
 * destroyed. From any thread. */
void rondo_engine_end(rondo_comm *comm, rondo_status reason, const char *text);
/** @return RONDO_SUCCESS, or the error that has ended the communicator, whose sentence is then this thread's.
 * From any thread. */
rondo_status rondo_engine_check(rondo_comm *comm);
/** A call takes too long: describe the ranks that have not made it ("; rank 3 on host has ..", empty if there
 * are none), and have the report written that RONDO_REPORT asks for, which begins with why. From any
 * thread. */
void rondo_engine_late(rondo_comm *comm, const char *why, char *text, size_t size);
/**
 * End the work of all ranks as soon as they notice, as after an error, but keep the communicator, so that it
 * can be shrunk and destroyed. On a rank that has called this, rondo_comm_async_error says RONDO_IN_PROGRESS
 * until no call is under way, then RONDO_SUCCESS, and any shrink is one with RONDO_SHRINK_ABORT. From any
 * thread.
 */
rondo_status rondo_engine_revoke(rondo_comm *comm);
/** Store the settings that the communicator was created with, without its name. what: the user's function,
 * for the error. From any thread. */
rondo_status rondo_engine_config(rondo_comm *comm, const char *what, rondo_config *config);
/** Store the bytes of memory that the communicator's buffers take. From any thread. */
rondo_status rondo_engine_bytes(rondo_comm *comm, uint64_t *bytes);
/** @return whether the communicator reduces this type by this operation: GPUs need a kernel of the library
 * for it. From any thread. */
int rondo_engine_reduces(const rondo_comm *comm, rondo_dtype type, rondo_op op);
/** @return how many communicators of this process are neither destroyed nor aborted. */
int rondo_engine_ncomms(void);

#endif
