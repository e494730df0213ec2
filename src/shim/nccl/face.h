/*
 * The NCCL face: NCCL's interface over rondo.h, so that programs written for NCCL run unchanged.
 *
 *     program (nccl.h)  ->  libnccl.so.2: this folder  ->  librondo.so: rondo.h, init/engine.h
 *
 * Handles. An ncclComm_t is a rondo_comm: the shell that outlives the communicator makes a use after destroy
 * an error. A window is this folder's own, in a list that its communicator's end empties. An ncclRedOp_t and
 * an ncclDataType_t have Rondo's numbers; those that NCCL lacks are refused. A result is a rondo_status.
 *
 * Memory and streams. A communicator is of the GPU that is current when it is made, or of host memory where
 * there is none, or where RONDO_NCCL_MEMORY says so. On host memory the stream is ignored: a call is complete
 * when it returns, a group's calls when the group ends. On a GPU the stream is the program's CUDA stream.
 *
 * Set-up. A unique id is a meeting (net/bootstrap/meeting.h): any process makes it, the ranks call at its
 * address over TCP. The library neither links MPI nor opens it, so nothing depends on whether, when and with
 * which thread level the program uses MPI; ids work under mpirun, srun, torchrun and without any of them; a
 * communicator needs no collective on MPI_COMM_WORLD; the maker of an id need not be a member, nor wait; a
 * communicator may be created and destroyed after MPI_Finalize. The price is that hosts must reach one
 * another over TCP at set-up, as NCCL asks, too (RONDO_SOCKET_IFNAME). Ranks may come up to 30 minutes
 * apart, unless RONDO_INIT_TIMEOUT is set.
 *
 * Threads. As NCCL: one thread at a time uses a communicator; abort, revoke, async error and queries from
 * any.
 *
 * Errors. Every refusal is a sentence, which ncclGetLastError returns: this thread's last one, else the
 * communicator's. Inside a group it also ends the group. What Rondo cannot do is ncclInvalidUsage with the
 * reason (nccl.def).
 *
 * Files: nccl.h (public), later.h (after 2.27), nccl.def (all names), config.def (fields of ncclConfig_t);
 * comm.c creates and ends communicators, call.c has the calls, config.c decodes settings, window.c windows
 * and memory, param.c parameters, refuse.c what is refused.
 */
#ifndef RONDO_SHIM_NCCL_FACE_H
#define RONDO_SHIM_NCCL_FACE_H

#include "base/status.h"
#include "rondo.h"
#include "shim/nccl/later.h"
#include "shim/nccl/nccl.def"

/* Defines pncclNAME, and ncclNAME as its weak alias. The compiler must not think that the two can differ. */
#define NCCL_FACE(type, NAME, ...)                                                                   \
    __attribute__((visibility("default"))) type pnccl##NAME(__VA_ARGS__);                            \
    __attribute__((visibility("default"), weak, alias("pnccl" #NAME))) type nccl##NAME(__VA_ARGS__); \
    type pnccl##NAME(__VA_ARGS__)

/* The numbers of statuses are NCCL's. */
static inline ncclResult_t nccl_result(rondo_status status) { return (ncclResult_t)status; }
static inline rondo_comm *nccl_comm(ncclComm_t comm) { return (rondo_comm *)comm; }
static inline rondo_comm **nccl_place(ncclComm_t *comm) { return (rondo_comm **)comm; }

/** Refuse a call: the sentence is this thread's last error, and the group's if there is one open. */
ncclResult_t nccl_refuse(rondo_status status, const char *fmt, ...) RONDO_PRINTF(2, 3);
/** The device of communicators and memory that this thread makes: RONDO_DEVICE_CURRENT, or
 * RONDO_CONFIG_DEFAULT for host memory. */
rondo_status nccl_device(int *device);
/** Decode settings of any version of NCCL. config: NULL: none. call: for sentences. The result's name points
 * into the config. */
rondo_status nccl_config_decode(const char *call, const ncclConfig_t *config, rondo_config *to);
/** Forget the windows of a communicator that ends. */
void nccl_windows_end(ncclComm_t comm);

#endif
