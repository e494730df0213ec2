/* Collectives, sends and receives, operators, groups. */
#include <string.h>

#include "call/group.h"
#include "shim/nccl/face.h"

/* Rondo has more types and operators than NCCL; their numbers are no handles of NCCL's. */
static int is_bad_type(const char *call, int type)
{
    if (type >= 0 && type < ncclNumTypes) {
        return 0;
    }
    nccl_refuse(RONDO_INVALID_ARGUMENT, "%s: there is no data type %d; NCCL has 0 to %d", call, type,
                ncclNumTypes - 1);
    return 1;
}

static int is_bad_op(const char *call, int op)
{
    if (op >= 0 && (op < ncclNumOps || op >= RONDO_NUM_OPS)) {
        return 0;
    }
    nccl_refuse(RONDO_INVALID_ARGUMENT,
                "%s: there is no operator %d; NCCL has 0 to %d, and those of ncclRedOpCreatePreMulSum", call,
                op, ncclNumOps - 1);
    return 1;
}

/* On host memory a call has no stream: it completes before it returns. */
static rondo_status stream_of(ncclComm_t comm, cudaStream_t stream, rondo_stream *to)
{
    int device;
    RONDO_TRY(rondo_comm_device(nccl_comm(comm), &device));
    *to = device >= 0 ? RONDO_CUDA_STREAM(stream) : NULL;
    return RONDO_SUCCESS;
}

/* Make a call that has passed the checks above. The engine notes its own errors in an open group, but not one
 * of the communicator's handle. */
#define CALL_(function, ...)                                            \
    do {                                                                \
        rondo_stream at;                                                \
        rondo_status status_ = stream_of(comm, stream, &at);            \
        if (status_ != RONDO_SUCCESS) {                                 \
            rondo_group_note_error(status_);                            \
            return nccl_result(status_);                                \
        }                                                               \
        return nccl_result(function(__VA_ARGS__, nccl_comm(comm), at)); \
    } while (0)
#define TYPE_ ((rondo_dtype)datatype)
#define OP_ ((rondo_op)op)
#define CHECK_TYPE_(NAME) \
    if (is_bad_type("nccl" #NAME, (int)datatype)) return ncclInvalidArgument
#define CHECK_OP_(NAME) \
    if (is_bad_op("nccl" #NAME, (int)op)) return ncclInvalidArgument

/* A collective, and since 2.31 the same with settings of one call, which are advice about channels and
 * algorithms: a config is checked, and the tuner decides as always. */
static int is_bad_config(const char *call, const ncclCollConfig_t *config)
{
    struct {
        size_t size;
        unsigned magic, version;
    } head = { 16, 0xcafebeef, 0 };
    if (config != NULL) {
        memcpy(&head, config, sizeof(head));
    }
    if (head.magic == 0xcafebeef && head.size >= sizeof(head)) {
        return 0;
    }
    nccl_refuse(RONDO_INVALID_ARGUMENT,
                "%s: the config has size %zu and magic 0x%x: start from NCCL_COLL_CONFIG_INITIALIZER", call,
                head.size, head.magic);
    return 1;
}

#define COLLECTIVE_(NAME, PARAMS, BODY)                                                                   \
    static ncclResult_t call_##NAME(UNPACK_ PARAMS, ncclComm_t comm, cudaStream_t stream) BODY NCCL_FACE( \
        ncclResult_t, NAME, UNPACK_ PARAMS, ncclComm_t comm, cudaStream_t stream)                         \
    {                                                                                                     \
        return call_##NAME(NAMES_##NAME, comm, stream);                                                   \
    }                                                                                                     \
    NCCL_FACE(ncclResult_t, NAME##Config, UNPACK_ PARAMS, ncclComm_t comm, cudaStream_t stream,           \
              const ncclCollConfig_t *config)                                                             \
    {                                                                                                     \
        return is_bad_config("nccl" #NAME "Config", config) ? ncclInvalidArgument                         \
                                                            : call_##NAME(NAMES_##NAME, comm, stream);    \
    }
#define UNPACK_(...) __VA_ARGS__
#define NAMES_AllReduce sendbuff, recvbuff, count, datatype, op
#define NAMES_Reduce sendbuff, recvbuff, count, datatype, op, root
#define NAMES_ReduceScatter sendbuff, recvbuff, count, datatype, op
#define NAMES_Broadcast sendbuff, recvbuff, count, datatype, root
#define NAMES_AllGather sendbuff, recvbuff, count, datatype
#define NAMES_AlltoAll sendbuff, recvbuff, count, datatype
#define NAMES_Gather sendbuff, recvbuff, count, datatype, root
#define NAMES_Scatter sendbuff, recvbuff, count, datatype, root

/* clang-format off */
COLLECTIVE_(AllReduce,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op), {
    CHECK_TYPE_(AllReduce);
    CHECK_OP_(AllReduce);
    CALL_(rondo_all_reduce, sendbuff, recvbuff, count, TYPE_, OP_);
})
COLLECTIVE_(Reduce,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
             int root), {
    CHECK_TYPE_(Reduce);
    CHECK_OP_(Reduce);
    CALL_(rondo_reduce, sendbuff, recvbuff, count, TYPE_, OP_, root);
})
COLLECTIVE_(ReduceScatter,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op), {
    CHECK_TYPE_(ReduceScatter);
    CHECK_OP_(ReduceScatter);
    CALL_(rondo_reduce_scatter, sendbuff, recvbuff, count, TYPE_, OP_);
})
COLLECTIVE_(Broadcast,
            (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root), {
    CHECK_TYPE_(Broadcast);
    CALL_(rondo_broadcast, sendbuff, recvbuff, count, TYPE_, root);
})
COLLECTIVE_(AllGather, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype), {
    CHECK_TYPE_(AllGather);
    CALL_(rondo_all_gather, sendbuff, recvbuff, count, TYPE_);
})
COLLECTIVE_(AlltoAll, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype), {
    CHECK_TYPE_(AlltoAll);
    CALL_(rondo_all_to_all, sendbuff, recvbuff, count, TYPE_);
})
COLLECTIVE_(Gather, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root), {
    CHECK_TYPE_(Gather);
    CALL_(rondo_gather, sendbuff, recvbuff, count, TYPE_, root);
})
COLLECTIVE_(Scatter, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root), {
    CHECK_TYPE_(Scatter);
    CALL_(rondo_scatter, sendbuff, recvbuff, count, TYPE_, root);
})
/* clang-format on */

NCCL_FACE(ncclResult_t, Bcast, void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
          cudaStream_t stream)
{
    CHECK_TYPE_(Bcast);
    CALL_(rondo_broadcast, buff, buff, count, TYPE_, root);
}

NCCL_FACE(ncclResult_t, Send, const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
          ncclComm_t comm, cudaStream_t stream)
{
    CHECK_TYPE_(Send);
    CALL_(rondo_send, sendbuff, count, TYPE_, peer);
}

NCCL_FACE(ncclResult_t, Recv, void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
          ncclComm_t comm, cudaStream_t stream)
{
    CHECK_TYPE_(Recv);
    CALL_(rondo_recv, recvbuff, count, TYPE_, peer);
}

/* ---- operators ---- */

/* A scalar of the device is read when a call runs; on host memory there is only one place, and it is read
 * now. */
NCCL_FACE(ncclResult_t, RedOpCreatePreMulSum, ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
          ncclScalarResidence_t residence, ncclComm_t comm)
{
    rondo_op made;
    rondo_status status;
    int device;
    CHECK_TYPE_(RedOpCreatePreMulSum);
    if (op == NULL || scalar == NULL ||
        (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT,
                           "ncclRedOpCreatePreMulSum: place for the operator %p, scalar %p, residence %d: "
                           "give pointers, and ncclScalarDevice or ncclScalarHostImmediate",
                           (void *)op, scalar, (int)residence);
    }
    status = rondo_comm_device(nccl_comm(comm), &device);
    if (status == RONDO_SUCCESS) {
        status = residence == ncclScalarDevice && device >= 0
                     ? rondo_op_create_premul_sum_device(&made, scalar, TYPE_, nccl_comm(comm))
                     : rondo_op_create_premul_sum(&made, scalar, TYPE_, nccl_comm(comm));
    }
    if (status == RONDO_SUCCESS) {
        *op = (ncclRedOp_t)made;
    }
    return nccl_result(status);
}

NCCL_FACE(ncclResult_t, RedOpDestroy, ncclRedOp_t op, ncclComm_t comm)
{
    if ((int)op >= 0 && (int)op < RONDO_NUM_OPS) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT,
                           "ncclRedOpDestroy: operator %d is not one of ncclRedOpCreatePreMulSum", (int)op);
    }
    return nccl_result(rondo_op_destroy((rondo_op)op, nccl_comm(comm)));
}

/* ---- groups ---- */

NCCL_FACE(ncclResult_t, GroupStart, void) { return nccl_result(rondo_group_start()); }

NCCL_FACE(ncclResult_t, GroupEnd, void) { return nccl_result(rondo_group_end()); }

NCCL_FACE(ncclResult_t, GroupSimulateEnd, ncclSimInfo_t *simInfo)
{
    double us;
    rondo_status status;
    ncclResult_t refused;
    if (simInfo != NULL && (simInfo->magic != 0x74685283 || simInfo->size < sizeof(*simInfo))) {
        refused = nccl_refuse(RONDO_INVALID_ARGUMENT,
                              "ncclGroupSimulateEnd: the info has size %zu and magic 0x%x: start from "
                              "NCCL_SIM_INFO_INITIALIZER",
                              simInfo->size, simInfo->magic);
        status = rondo_group_end();
        return status == RONDO_SUCCESS ? refused : nccl_result(status);
    }
    if (rondo_group_depth() > 1) { /* as NCCL: the group goes on, and nothing is estimated */
        return nccl_result(rondo_group_end());
    }
    status = rondo_group_simulate(&us);
    if (status == RONDO_SUCCESS && simInfo != NULL) {
        simInfo->estimatedTime = (float)us;
    }
    return nccl_result(status);
}
