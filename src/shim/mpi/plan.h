/* PLAN_NAME of a row of shim.def: its arguments, with counts of any width, become the plan of `call`. */
#ifndef RONDO_SHIM_MPI_PLAN_H
#define RONDO_SHIM_MPI_PLAN_H

#include "shim/mpi/shim.h"

#define PLAN_ALLGATHER shim_plan_allgather(&call, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype)
#define PLAN_ALLGATHERV                                                                       \
    shim_plan_allgatherv(&call, sendbuf, sendcount, sendtype, recvbuf, SHIM_INTS(recvcounts), \
                         SHIM_INTS(displs), recvtype)
#define PLAN_ALLREDUCE shim_plan_allreduce(&call, sendbuf, recvbuf, count, datatype, op)
#define PLAN_ALLTOALL shim_plan_alltoall(&call, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype)
#define PLAN_ALLTOALLV                                                                                \
    shim_plan_alltoallv(&call, sendbuf, SHIM_INTS(sendcounts), SHIM_INTS(sdispls), sendtype, recvbuf, \
                        SHIM_INTS(recvcounts), SHIM_INTS(rdispls), recvtype)
#define PLAN_BARRIER shim_plan_barrier(&call)
#define PLAN_BCAST shim_plan_bcast(&call, buffer, count, datatype, root)
#define PLAN_GATHER shim_plan_gather(&call, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root)
#define PLAN_GATHERV                                                                       \
    shim_plan_gatherv(&call, sendbuf, sendcount, sendtype, recvbuf, SHIM_INTS(recvcounts), \
                      SHIM_INTS(displs), recvtype, root)
#define PLAN_REDUCE shim_plan_reduce(&call, sendbuf, recvbuf, count, datatype, op, root)
#define PLAN_REDUCE_SCATTER \
    shim_plan_reduce_scatter(&call, sendbuf, recvbuf, SHIM_INTS(recvcounts), datatype, op)
#define PLAN_REDUCE_SCATTER_BLOCK \
    shim_plan_reduce_scatter_block(&call, sendbuf, recvbuf, recvcount, datatype, op)
#define PLAN_SCATTER \
    shim_plan_scatter(&call, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root)
#define PLAN_SCATTERV                                                                               \
    shim_plan_scatterv(&call, sendbuf, SHIM_INTS(sendcounts), SHIM_INTS(displs), sendtype, recvbuf, \
                       recvcount, recvtype, root)

/* LEFT_NAME: the count, type and operation that decide whether a call like it is left to MPI
 * (shim_is_left). */
#define LEFT_ALLGATHER sendbuf == MPI_IN_PLACE ? -1 : (int64_t)sendcount, sendtype, MPI_OP_NULL
#define LEFT_ALLGATHERV -1, recvtype, MPI_OP_NULL
#define LEFT_ALLREDUCE count, datatype, op
#define LEFT_ALLTOALL LEFT_ALLGATHER
#define LEFT_ALLTOALLV LEFT_ALLGATHERV
#define LEFT_BARRIER 0, MPI_DATATYPE_NULL, MPI_OP_NULL
#define LEFT_BCAST count, datatype, MPI_OP_NULL
#define LEFT_GATHER LEFT_ALLGATHER
#define LEFT_GATHERV LEFT_ALLGATHERV
#define LEFT_REDUCE LEFT_ALLREDUCE
#define LEFT_REDUCE_SCATTER shim_total(comm, SHIM_INTS(recvcounts)), datatype, op
#define LEFT_REDUCE_SCATTER_BLOCK recvcount, datatype, op
#define LEFT_SCATTER recvbuf == MPI_IN_PLACE ? -1 : (int64_t)recvcount, recvtype, MPI_OP_NULL
#define LEFT_SCATTERV LEFT_ALLGATHERV

#endif
