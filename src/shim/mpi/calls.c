/* The functions of MPI that a program calls: each takes the call over, or passes it on as it is. */
#include "shim/mpi/helper.h"
#include "shim/mpi/plan.h"
#include "shim/mpi/shim.h"

/* A call that the last one like it left to MPI goes there at once. */
#define BLOCKING(NAME, function, C, D)                                                                \
    static __attribute__((noinline)) int planned_##function(SHIM_PARAMS_##NAME(C, D))                 \
    {                                                                                                 \
        struct shim_call call;                                                                        \
        if (RONDO_LIKELY(shim_begin(&call, SHIM_##NAME, comm)) && PLAN_##NAME && shim_takes(&call)) { \
            return shim_run(&call);                                                                   \
        }                                                                                             \
        shim_note_left(0, &call, comm, LEFT_##NAME);                                                  \
        int helped = shim_help_begin(), code = PMPI_##function(SHIM_ARGS_##NAME);                     \
        shim_help_end(helped);                                                                        \
        if (RONDO_UNLIKELY(call.timed)) {                                                             \
            shim_passed(&call);                                                                       \
        }                                                                                             \
        return code;                                                                                  \
    }                                                                                                 \
    int MPI_##function(SHIM_PARAMS_##NAME(C, D))                                                      \
    {                                                                                                 \
        return shim_is_left(0, SHIM_##NAME, comm, LEFT_##NAME) && !shim_help_is_needed()              \
                   ? PMPI_##function(SHIM_ARGS_##NAME)                                                \
                   : planned_##function(SHIM_ARGS_##NAME);                                            \
    }

#define REQUEST(NAME, function, C, D)                                                                       \
    static __attribute__((noinline)) int planned_##function(SHIM_PARAMS_##NAME(C, D), MPI_Request *request) \
    {                                                                                                       \
        struct shim_call call;                                                                              \
        if (RONDO_LIKELY(shim_begin(&call, SHIM_##NAME, comm)) && request != NULL && PLAN_##NAME &&         \
            shim_takes_request(&call)) {                                                                    \
            return shim_request_start(&call, request);                                                      \
        }                                                                                                   \
        if (request != NULL) {                                                                              \
            shim_note_left(1, &call, comm, LEFT_##NAME);                                                    \
        }                                                                                                   \
        int code = PMPI_##function(SHIM_ARGS_##NAME, request);                                              \
        if (RONDO_UNLIKELY(call.timed)) {                                                                   \
            shim_passed(&call);                                                                             \
        }                                                                                                   \
        return code;                                                                                        \
    }                                                                                                       \
    int MPI_##function(SHIM_PARAMS_##NAME(C, D), MPI_Request *request)                                      \
    {                                                                                                       \
        return shim_is_left(1, SHIM_##NAME, comm, LEFT_##NAME)                                              \
                   ? PMPI_##function(SHIM_ARGS_##NAME, request)                                             \
                   : planned_##function(SHIM_ARGS_##NAME, request);                                         \
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
    WEAK_(PMPI_##Name##_c)                          \
    WEAK_(PMPI_I##name##_c)                         \
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
