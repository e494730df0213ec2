/* The functions of MPI that a program calls: each takes the call over, or passes it on as it is. */
#include "shim/mpi/helper.h"
#include "shim/mpi/shim.h"

/* How a row's arguments become a plan, with counts of any width. */
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

#define BLOCKING(NAME, function, C, D)                                                                \
    int MPI_##function(SHIM_PARAMS_##NAME(C, D))                                                      \
    {                                                                                                 \
        struct shim_call call;                                                                        \
        if (RONDO_LIKELY(shim_begin(&call, SHIM_##NAME, comm)) && PLAN_##NAME && shim_takes(&call)) { \
            return shim_run(&call);                                                                   \
        }                                                                                             \
        int helped = shim_help_begin(), code = PMPI_##function(SHIM_ARGS_##NAME);                     \
        shim_help_end(helped);                                                                        \
        if (RONDO_UNLIKELY(call.timed)) {                                                             \
            shim_passed(&call);                                                                       \
        }                                                                                             \
        return code;                                                                                  \
    }

#define REQUEST(NAME, function, C, D)                                                               \
    int MPI_##function(SHIM_PARAMS_##NAME(C, D), MPI_Request *request)                              \
    {                                                                                               \
        struct shim_call call;                                                                      \
        if (RONDO_LIKELY(shim_begin(&call, SHIM_##NAME, comm)) && request != NULL && PLAN_##NAME && \
            shim_takes_request(&call)) {                                                            \
            return shim_request_start(&call, request);                                              \
        }                                                                                           \
        int code = PMPI_##function(SHIM_ARGS_##NAME, request);                                      \
        if (RONDO_UNLIKELY(call.timed)) {                                                           \
            shim_passed(&call);                                                                     \
        }                                                                                           \
        return code;                                                                                \
    }

/* A library that this one may run with need not have it. */
#define PRAGMA_(text) _Pragma(#text)
#define WEAK_(function) PRAGMA_(weak function)
#define PERSISTENT(NAME, X, function, C, D)                                                        \
    WEAK_(P##X##_##function)                                                                       \
    int X##_##function(SHIM_PARAMS_##NAME(C, D), MPI_Info info, MPI_Request *request)              \
    {                                                                                              \
        struct shim_call call;                                                                     \
        if (shim_begin(&call, SHIM_##NAME, comm) && request != NULL && PLAN_##NAME &&              \
            shim_takes_persistent(&call)) {                                                        \
            return shim_persistent_make(&call, request);                                           \
        }                                                                                          \
        int helped = shim_help_begin(), code = P##X##_##function(SHIM_ARGS_##NAME, info, request); \
        shim_help_end(helped);                                                                     \
        return code;                                                                               \
    }

#define ROW_(ctx, NAME, name, Name) \
    BLOCKING(NAME, Name, int, int)  \
    REQUEST(NAME, I##name, int, int)
SHIM_TABLE(ROW_, )

#ifdef SHIM_PERSISTENT
#define PERSISTENT_(NAME, X, function) PERSISTENT(NAME, X, function, int, int)
#define INIT_ROW_(ctx, NAME, name, Name) PERSISTENT_(NAME, SHIM_PERSISTENT, Name##_init)
SHIM_TABLE(INIT_ROW_, )
#endif

/* MPI 4 has each function again with large counts, but for those without counts. */
#if MPI_VERSION >= 4
#define LARGE_(NAME, name, Name)                    \
    BLOCKING(NAME, Name##_c, MPI_Count, MPI_Aint)   \
    REQUEST(NAME, I##name##_c, MPI_Count, MPI_Aint) \
    PERSISTENT(NAME, MPI, Name##_init_c, MPI_Count, MPI_Aint)
LARGE_(ALLGATHER, allgather, Allgather)
LARGE_(ALLGATHERV, allgatherv, Allgatherv)
LARGE_(ALLREDUCE, allreduce, Allreduce)
LARGE_(ALLTOALL, alltoall, Alltoall)
LARGE_(ALLTOALLV, alltoallv, Alltoallv)
LARGE_(BCAST, bcast, Bcast)
LARGE_(GATHER, gather, Gather)
LARGE_(GATHERV, gatherv, Gatherv)
LARGE_(REDUCE, reduce, Reduce)
LARGE_(REDUCE_SCATTER, reduce_scatter, Reduce_scatter)
LARGE_(REDUCE_SCATTER_BLOCK, reduce_scatter_block, Reduce_scatter_block)
LARGE_(SCATTER, scatter, Scatter)
LARGE_(SCATTERV, scatterv, Scatterv)
#endif
