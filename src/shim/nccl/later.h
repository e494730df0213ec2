/* What NCCL's interface has gained after 2.27, as far as the face has it; nccl.h stays at 2.27. */
#ifndef RONDO_SHIM_NCCL_LATER_H
#define RONDO_SHIM_NCCL_LATER_H

#include <stdbool.h>
#include <stdint.h>
#include "shim/nccl/nccl.h"

typedef struct {
    size_t size;
    unsigned int magic, version;
    int rank, nRanks, cudaDev, nvmlDev;
    bool deviceApiSupport, multimemSupport;
    int ginType, nLsaTeams;
    bool hostRmaSupport;
    int railedGinType;
} ncclCommProperties_t;

typedef struct {
    int nRanks, rank, stride;
} ncclTeam_t;

typedef struct ncclCollConfig ncclCollConfig_t; /* begins with size_t size, unsigned magic, version */
typedef struct ncclParamHandle ncclParamHandle_t;

enum { NCCL_MEM_SUSPEND = 0, NCCL_MEM_SUSPENDED = 1, NCCL_MEM_PERSIST = 2, NCCL_MEM_TOTAL = 3 };

NCCL_DECLARE_(ncclResult_t, CommGetUniqueId, ncclComm_t comm, ncclUniqueId *uniqueId)
NCCL_DECLARE_(ncclResult_t, CommGrow, ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank,
              ncclComm_t *newcomm, ncclConfig_t *config)
NCCL_DECLARE_(ncclResult_t, CommRevoke, ncclComm_t comm, int revokeFlags)
NCCL_DECLARE_(ncclResult_t, CommMemStats, ncclComm_t comm, int stat, uint64_t *value)
NCCL_DECLARE_(ncclResult_t, CommQueryProperties, ncclComm_t comm, ncclCommProperties_t *properties)
NCCL_DECLARE_(ncclResult_t, WinGetUserPtr, ncclComm_t comm, ncclWindow_t win, void **ptr)
NCCL_DECLARE_(ncclResult_t, AlltoAll, const void *sendbuff, void *recvbuff, size_t count,
              ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
NCCL_DECLARE_(ncclResult_t, Gather, const void *sendbuff, void *recvbuff, size_t count,
              ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
NCCL_DECLARE_(ncclResult_t, Scatter, const void *sendbuff, void *recvbuff, size_t count,
              ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)

/* The collectives of 2.31 with settings of one call. */
#define NCCL_CONFIGURED_(NAME, ...)                                                      \
    NCCL_DECLARE_(ncclResult_t, NAME, __VA_ARGS__, ncclComm_t comm, cudaStream_t stream, \
                  const ncclCollConfig_t *config)
NCCL_CONFIGURED_(AllReduceConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                 ncclRedOp_t op)
NCCL_CONFIGURED_(ReduceConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                 ncclRedOp_t op, int root)
NCCL_CONFIGURED_(ReduceScatterConfig, const void *sendbuff, void *recvbuff, size_t count,
                 ncclDataType_t datatype, ncclRedOp_t op)
NCCL_CONFIGURED_(BroadcastConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                 int root)
NCCL_CONFIGURED_(AllGatherConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype)
NCCL_CONFIGURED_(AlltoAllConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype)
NCCL_CONFIGURED_(GatherConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                 int root)
NCCL_CONFIGURED_(ScatterConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                 int root)

NCCL_DECLARE_(ncclResult_t, ParamBind, ncclParamHandle_t **handle, const char *key)
NCCL_DECLARE_(ncclResult_t, ParamGetI8, ncclParamHandle_t *handle, int8_t *value)
NCCL_DECLARE_(ncclResult_t, ParamGetI16, ncclParamHandle_t *handle, int16_t *value)
NCCL_DECLARE_(ncclResult_t, ParamGetI32, ncclParamHandle_t *handle, int32_t *value)
NCCL_DECLARE_(ncclResult_t, ParamGetI64, ncclParamHandle_t *handle, int64_t *value)
NCCL_DECLARE_(ncclResult_t, ParamGetU8, ncclParamHandle_t *handle, uint8_t *value)
NCCL_DECLARE_(ncclResult_t, ParamGetU16, ncclParamHandle_t *handle, uint16_t *value)
NCCL_DECLARE_(ncclResult_t, ParamGetU32, ncclParamHandle_t *handle, uint32_t *value)
NCCL_DECLARE_(ncclResult_t, ParamGetU64, ncclParamHandle_t *handle, uint64_t *value)
NCCL_DECLARE_(ncclResult_t, ParamGetStr, ncclParamHandle_t *handle, const char **value)
NCCL_DECLARE_(ncclResult_t, ParamGet, ncclParamHandle_t *handle, void *buffer, int maxLen, int *len)
NCCL_DECLARE_(ncclResult_t, ParamGetParameter, const char *key, const char **value, int *len)
NCCL_DECLARE_(ncclResult_t, ParamGetAllParameterKeys, const char ***keys, int *len)
NCCL_DECLARE_(void, ParamDumpAll, void)

NCCL_DECLARE_(ncclTeam_t, TeamWorld, ncclComm_t comm)
NCCL_DECLARE_(ncclTeam_t, TeamLsa, ncclComm_t comm)
NCCL_DECLARE_(ncclTeam_t, TeamRail, ncclComm_t comm)
NCCL_DECLARE_(ncclTeam_t, TeamCft, ncclComm_t comm)
NCCL_DECLARE_(ncclTeam_t, TeamCftMultimem, ncclComm_t comm)
NCCL_DECLARE_(int, TeamRankToWorld, ncclComm_t comm, ncclTeam_t team, int rank)
NCCL_DECLARE_(int, TeamRankToLsa, ncclComm_t comm, ncclTeam_t team, int rank)
NCCL_DECLARE_(int, LLA2ACalcSlots, int maxElts, int maxEltSize)
void ncclResetDebugInitInternal(void);

#endif
