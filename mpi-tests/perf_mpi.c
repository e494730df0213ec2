/* MPI's collectives, for --vs mpi. */
#include "perf.h"

#include <limits.h>
#include <string.h>

/* @return MPI_DATATYPE_NULL if MPI has no such type. */
static MPI_Datatype mpi_type(rondo_dtype type)
{
    switch (type) {
    case RONDO_INT8: return MPI_INT8_T;
    case RONDO_INT16: return MPI_INT16_T;
    case RONDO_UINT16: return MPI_UINT16_T;
    case RONDO_BOOL8: return MPI_C_BOOL;
    case RONDO_LONG_DOUBLE: return MPI_LONG_DOUBLE;
    case RONDO_COMPLEX_FLOAT32: return MPI_C_FLOAT_COMPLEX;
    case RONDO_COMPLEX_FLOAT64: return MPI_C_DOUBLE_COMPLEX;
    case RONDO_COMPLEX_LONG_DOUBLE: return MPI_C_LONG_DOUBLE_COMPLEX;
    case RONDO_FLOAT_INT: return MPI_FLOAT_INT;
    case RONDO_DOUBLE_INT: return MPI_DOUBLE_INT;
    case RONDO_LONG_INT: return MPI_LONG_INT;
    case RONDO_INT_INT: return MPI_2INT;
    case RONDO_SHORT_INT: return MPI_SHORT_INT;
    case RONDO_LONG_DOUBLE_INT: return MPI_LONG_DOUBLE_INT;
    case RONDO_UINT8: return MPI_UINT8_T;
    case RONDO_INT32: return MPI_INT32_T;
    case RONDO_UINT32: return MPI_UINT32_T;
    case RONDO_INT64: return MPI_INT64_T;
    case RONDO_UINT64: return MPI_UINT64_T;
    case RONDO_FLOAT32: return MPI_FLOAT;
    case RONDO_FLOAT64: return MPI_DOUBLE;
    default: return MPI_DATATYPE_NULL;
    }
}

static MPI_Op mpi_op(int op)
{
    switch (op) {
    case RONDO_SUM: return MPI_SUM;
    case RONDO_PROD: return MPI_PROD;
    case RONDO_MAX: return MPI_MAX;
    case RONDO_MIN: return MPI_MIN;
    case RONDO_LAND: return MPI_LAND;
    case RONDO_LOR: return MPI_LOR;
    case RONDO_LXOR: return MPI_LXOR;
    case RONDO_BAND: return MPI_BAND;
    case RONDO_BOR: return MPI_BOR;
    case RONDO_BXOR: return MPI_BXOR;
    case RONDO_MINLOC: return MPI_MINLOC;
    case RONDO_MAXLOC: return MPI_MAXLOC;
    default: return MPI_OP_NULL;
    }
}

int perf_mpi_has(const struct test_call *call)
{
    return mpi_type(call->type) != MPI_DATATYPE_NULL &&
           (!call->coll->reduces || mpi_op(call->op) != MPI_OP_NULL) && call->count <= INT_MAX &&
           !call->coll->vform;
}

static void run_reducing(const struct test_call *call, const char *name, const void *send, void *recv,
                         int inplace)
{
    MPI_Datatype type = mpi_type(call->type);
    MPI_Op op = mpi_op(call->op);
    int count = (int)call->count, root = call->root;
    if (strcmp(name, "all_reduce") == 0) {
        MPI_Allreduce(inplace ? MPI_IN_PLACE : send, recv, count, type, op, MPI_COMM_WORLD);
    } else if (strcmp(name, "reduce") == 0) {
        MPI_Reduce(inplace && call->rank == root ? MPI_IN_PLACE : send, recv, count, type, op, root,
                   MPI_COMM_WORLD);
    } else {
        /* In place, MPI puts the result at the start of the buffer, Rondo into this rank's block. */
        MPI_Reduce_scatter_block(inplace ? MPI_IN_PLACE : send, inplace ? (void *)send : recv, count, type,
                                 op, MPI_COMM_WORLD);
    }
}

void perf_mpi_run(const struct test_call *call, const void *send, void *recv, int inplace)
{
    const char *name = call->coll->name;
    MPI_Datatype type = mpi_type(call->type);
    int count = (int)call->count, root = call->root, n = call->nranks;
    int at_root = inplace && call->rank == root;
    if (call->coll->reduces) {
        run_reducing(call, name, send, recv, inplace);
    } else if (strcmp(name, "barrier") == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(name, "broadcast") == 0) {
        /* MPI_Bcast has one buffer, so out of place the root copies it to its result, as Rondo does. */
        int copies = call->rank == root && !inplace;
        MPI_Bcast(copies ? (void *)send : recv, count, type, root, MPI_COMM_WORLD);
        if (copies) {
            memcpy(recv, send, call->count * test_types[call->type].size);
        }
    } else if (strcmp(name, "all_gather") == 0) {
        MPI_Allgather(inplace ? MPI_IN_PLACE : send, count, type, recv, count, type, MPI_COMM_WORLD);
    } else if (strcmp(name, "all_to_all") == 0) {
        MPI_Alltoall(inplace ? MPI_IN_PLACE : send, count, type, recv, count, type, MPI_COMM_WORLD);
    } else if (strcmp(name, "gather") == 0) {
        MPI_Gather(at_root ? MPI_IN_PLACE : send, count, type, recv, count, type, root, MPI_COMM_WORLD);
    } else if (strcmp(name, "scatter") == 0) {
        MPI_Scatter(send, count, type, at_root ? MPI_IN_PLACE : recv, count, type, root, MPI_COMM_WORLD);
    } else {
        MPI_Sendrecv(send, count, type, (call->rank + root) % n, 0, recv, count, type,
                     (call->rank - root % n + n) % n, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}
