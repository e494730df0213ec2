/* Communicators: ids, creation, end, queries. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "call/group.h"
#include "init/engine.h"
#include "net/bootstrap/meeting.h"
#include "shim/nccl/face.h"
#ifdef RONDO_CUDA
#include "base/cuda.h"
#endif

ncclResult_t nccl_refuse(rondo_status status, const char *fmt, ...)
{
    char text[RONDO_ERROR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    rondo_fail(status, "%s", text);
    rondo_group_note_error(status);
    return nccl_result(status);
}

/* Of a failed call of the engine, which may not know of the group. */
static ncclResult_t noted(rondo_status status)
{
    if (status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS) {
        rondo_group_note_error(status);
    }
    return nccl_result(status);
}

/* ---- host memory or GPU ---- */

static int has_gpu(void)
{
#ifdef RONDO_CUDA
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    int n = 0;
    return cuda != NULL && cuda->DeviceGetCount(&n) == CUDA_SUCCESS && n > 0;
#else
    return 0;
#endif
}

rondo_status nccl_device(int *device)
{
    RONDO_TRY(rondo_param_init());
    switch (rondo_params()->nccl_memory) {
    case RONDO_NCCL_MEMORY_HOST: *device = RONDO_CONFIG_DEFAULT; break;
    case RONDO_NCCL_MEMORY_GPU: *device = RONDO_DEVICE_CURRENT; break;
    default: *device = has_gpu() ? RONDO_DEVICE_CURRENT : RONDO_CONFIG_DEFAULT;
    }
    return RONDO_SUCCESS;
}

/* ---- ids ---- */

static ncclResult_t make_id(const char *call, ncclUniqueId *to)
{
    struct rondo_meeting_id id;
    rondo_status status;
    if (to == NULL) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT, "%s: the place for the unique id is NULL", call);
    }
    status = rondo_meeting_create(&id);
    if (status != RONDO_SUCCESS) {
        return noted(status);
    }
    memset(to, 0, sizeof(*to));
    memcpy(to->internal, &id, sizeof(id));
    return ncclSuccess;
}

/* NCCL_COMM_ID makes the ids of all processes one, so that each may make its own. */
static void warn_of_comm_id(void)
{
    static int said;
    struct rondo_param_ignored row;
    rondo_param_get_ignored(rondo_param_find_ignored("COMM_ID"), &row);
    if (row.origin[0] != '\0' && !__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED)) {
        RONDO_WARN("ncclGetUniqueId: NCCL_COMM_ID (%s) has no effect in Rondo: each call makes an id of its "
                   "own, and ranks with different ids wait for one another in vain. One process makes the "
                   "id and hands it to the others",
                   row.origin);
    }
}

NCCL_FACE(ncclResult_t, GetUniqueId, ncclUniqueId *uniqueId)
{
    warn_of_comm_id();
    return make_id("ncclGetUniqueId", uniqueId);
}

/* ---- creation ---- */

static rondo_status meet(const ncclUniqueId *uid, int nranks, int rank, const rondo_config *config,
                         rondo_comm **comm)
{
    struct rondo_meeting_id id;
    struct rondo_bootstrap *bootstrap;
    memcpy(&id, uid->internal, sizeof(id));
    RONDO_TRY(rondo_bootstrap_meeting(&id, rank, nranks, &bootstrap));
    return rondo_engine_create(bootstrap, config, comm);
}

static rondo_status create(const char *call, const ncclUniqueId *uid, int nranks, int rank,
                           const ncclConfig_t *config, int device, rondo_comm **comm)
{
    rondo_config mine;
    RONDO_TRY(nccl_config_decode(call, config, &mine));
    if (device == RONDO_CONFIG_DEFAULT) {
        RONDO_TRY(nccl_device(&mine.device));
    } else {
        mine.device = device;
    }
    return meet(uid, nranks, rank, &mine, comm);
}

/* NCCL leaves NULL behind after an error. */
static ncclResult_t created(rondo_status status, ncclComm_t *comm)
{
    if (status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS) {
        *comm = NULL;
    }
    return noted(status);
}

static ncclResult_t init_rank(const char *call, ncclComm_t *comm, int nranks, const ncclUniqueId *id,
                              int rank, const ncclConfig_t *config)
{
    if (comm == NULL) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT, "%s: the place for the communicator is NULL", call);
    }
    return created(create(call, id, nranks, rank, config, RONDO_CONFIG_DEFAULT, nccl_place(comm)), comm);
}

NCCL_FACE(ncclResult_t, CommInitRank, ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    return init_rank("ncclCommInitRank", comm, nranks, &commId, rank, NULL);
}

NCCL_FACE(ncclResult_t, CommInitRankConfig, ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
          ncclConfig_t *config)
{
    return init_rank("ncclCommInitRankConfig", comm, nranks, &commId, rank, config);
}

/* All ranks have the same ids, and one suffices: its maker only takes addresses. */
NCCL_FACE(ncclResult_t, CommInitRankScalable, ncclComm_t *newcomm, int nranks, int myrank, int nId,
          ncclUniqueId *commIds, ncclConfig_t *config)
{
    if (nId < 1 || nId > nranks || commIds == NULL) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT,
                           "ncclCommInitRankScalable: %d unique ids at %p for %d ranks: give 1 to nranks",
                           nId, (void *)commIds, nranks);
    }
    return init_rank("ncclCommInitRankScalable", newcomm, nranks, commIds, myrank, config);
}

static rondo_status init_all(ncclComm_t *comms, int n, const int *devices, const ncclUniqueId *id)
{
    rondo_status status = rondo_group_start(), ended;
    int on_gpu;
    RONDO_TRY(status);
    status = nccl_device(&on_gpu);
    for (int r = 0; r < n && status == RONDO_SUCCESS; r++) {
        int device = devices != NULL ? devices[r] : r;
        comms[r] = NULL;
        status = create("ncclCommInitAll", id, n, r, NULL,
                        on_gpu == RONDO_CONFIG_DEFAULT ? RONDO_CONFIG_DEFAULT : device,
                        nccl_place(&comms[r]));
    }
    rondo_group_note_error(status);
    ended = rondo_group_end();
    return status == RONDO_SUCCESS ? ended : status;
}

NCCL_FACE(ncclResult_t, CommInitAll, ncclComm_t *comm, int ndev, const int *devlist)
{
    ncclUniqueId id;
    ncclResult_t result;
    if (comm == NULL || ndev < 1) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT,
                           "ncclCommInitAll: %d devices, places for the communicators at %p: give at least 1",
                           ndev, (void *)comm);
    }
    for (int i = 0; devlist != NULL && i < ndev; i++) {
        if (devlist[i] < 0) {
            return nccl_refuse(RONDO_INVALID_ARGUMENT, "ncclCommInitAll: device %d of the list is %d", i,
                               devlist[i]);
        }
    }
    result = make_id("ncclCommInitAll", &id);
    return result == ncclSuccess ? nccl_result(init_all(comm, ndev, devlist, &id)) : result;
}

/* ---- children ---- */

/* Without a config, a child has its parent's. *device: the parent's. */
static rondo_status child_config(const char *call, rondo_comm *parent, const ncclConfig_t *config,
                                 rondo_config *mine, int *device)
{
    rondo_config theirs;
    RONDO_TRY(rondo_engine_config(parent, call, &theirs));
    RONDO_TRY(nccl_config_decode(call, config, mine));
    *device = theirs.device;
    if (config == NULL) {
        mine->blocking = theirs.blocking;
        mine->max_channels = theirs.max_channels;
    }
    return RONDO_SUCCESS;
}

static int is_missing(const char *call, ncclComm_t *newcomm)
{
    if (newcomm == NULL) {
        nccl_refuse(RONDO_INVALID_ARGUMENT, "%s: the place for the new communicator is NULL", call);
    }
    return newcomm == NULL;
}

NCCL_FACE(ncclResult_t, CommSplit, ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
          ncclConfig_t *config)
{
    rondo_config mine;
    rondo_status status;
    int device;
    if (is_missing("ncclCommSplit", newcomm)) {
        return ncclInvalidArgument;
    }
    status = child_config("ncclCommSplit", nccl_comm(comm), config, &mine, &device);
    if (status == RONDO_SUCCESS) {
        if (color == NCCL_SPLIT_NOCOLOR) {
            mine.blocking = 1; /* its communicator is NULL on return */
        }
        status = rondo_comm_split(nccl_comm(comm), color, key, &mine, nccl_place(newcomm));
    }
    return created(status, newcomm);
}

NCCL_FACE(ncclResult_t, CommShrink, ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
          ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags)
{
    rondo_config mine;
    rondo_status status;
    int device;
    if (is_missing("ncclCommShrink", newcomm)) {
        return ncclInvalidArgument;
    }
    status = child_config("ncclCommShrink", nccl_comm(comm), config, &mine, &device);
    if (status == RONDO_SUCCESS) {
        status = rondo_comm_shrink(nccl_comm(comm), excludeRanksList, excludeRanksCount, shrinkFlags, &mine,
                                   nccl_place(newcomm));
    }
    return created(status, newcomm);
}

NCCL_FACE(ncclResult_t, CommGetUniqueId, ncclComm_t comm, ncclUniqueId *uniqueId)
{
    int rank;
    rondo_status status = rondo_comm_rank(nccl_comm(comm), &rank);
    return status == RONDO_SUCCESS ? make_id("ncclCommGetUniqueId", uniqueId) : noted(status);
}

/* What the members of a communicator that grows tell each other. */
struct grown {
    int32_t nranks, has_id;
    ncclUniqueId id;
};

/* Find the one id that a member was given. */
static rondo_status agree(rondo_comm *comm, int old, struct grown *mine)
{
    struct grown *all;
    rondo_status status;
    int from = -1;
    RONDO_TRY(RONDO_NEW_ARRAY(all, old, "the members of a communicator that grows"));
    status = rondo_engine_share(comm, mine, all, sizeof(*mine));
    for (int r = 0; status == RONDO_SUCCESS && r < old; r++) {
        if (all[r].nranks != mine->nranks || (all[r].has_id && from >= 0)) {
            status = all[r].nranks != mine->nranks
                         ? rondo_fail(RONDO_INVALID_USAGE,
                                      "ncclCommGrow: rank %d wants %d ranks, this one %d", r, all[r].nranks,
                                      mine->nranks)
                         : rondo_fail(RONDO_INVALID_USAGE,
                                      "ncclCommGrow: ranks %d and %d both have a unique id; one of the "
                                      "members gives it, the others NULL",
                                      from, r);
        }
        from = all[r].has_id ? r : from;
    }
    if (status == RONDO_SUCCESS && from < 0) {
        status = rondo_fail(RONDO_INVALID_USAGE, "ncclCommGrow: no member has a unique id; one of them gives "
                                                 "that of ncclCommGetUniqueId");
    }
    if (status == RONDO_SUCCESS) {
        mine->id = all[from].id;
    }
    rondo_free(all);
    return status;
}

static rondo_status grow(rondo_comm *comm, int nranks, const ncclUniqueId *id, int rank,
                         const ncclConfig_t *config, rondo_comm **newcomm)
{
    struct grown mine = { .nranks = nranks, .has_id = id != NULL };
    rondo_config settings;
    int old, device;
    if (comm == NULL) { /* a new member */
        return id == NULL ? rondo_fail(RONDO_INVALID_ARGUMENT,
                                       "ncclCommGrow: a new member (NULL communicator) needs the unique id")
                          : create("ncclCommGrow", id, nranks, rank, config, RONDO_CONFIG_DEFAULT, newcomm);
    }
    RONDO_TRY(rondo_comm_count(comm, &old));
    RONDO_TRY(child_config("ncclCommGrow", comm, config, &settings, &device));
    if (rank != -1 || nranks <= old) {
        return rondo_fail(
            RONDO_INVALID_ARGUMENT,
            "ncclCommGrow of %d ranks to %d, as rank %d: a member gives rank -1, and the number "
            "of ranks must grow",
            old, nranks, rank);
    }
    if (rondo_group_depth() > 0) {
        return rondo_fail(RONDO_INVALID_USAGE, "ncclCommGrow: call it outside of groups: its members agree "
                                               "on the unique id first");
    }
    if (id != NULL) {
        mine.id = *id;
    }
    RONDO_TRY(agree(comm, old, &mine));
    RONDO_TRY(rondo_comm_rank(comm, &rank));
    settings.device = device; /* the thread may have gone to another one */
    return meet(&mine.id, nranks, rank, &settings, newcomm);
}

NCCL_FACE(ncclResult_t, CommGrow, ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank,
          ncclComm_t *newcomm, ncclConfig_t *config)
{
    if (is_missing("ncclCommGrow", newcomm)) {
        return ncclInvalidArgument;
    }
    return created(grow(nccl_comm(comm), nRanks, uniqueId, rank, config, nccl_place(newcomm)), newcomm);
}

/* ---- the end ---- */

NCCL_FACE(ncclResult_t, CommFinalize, ncclComm_t comm)
{
    return comm == NULL ? ncclSuccess : noted(rondo_comm_finalize(nccl_comm(comm)));
}

NCCL_FACE(ncclResult_t, CommDestroy, ncclComm_t comm)
{
    if (comm == NULL) {
        return ncclSuccess;
    }
    nccl_windows_end(comm);
    return noted(rondo_comm_destroy(nccl_comm(comm)));
}

NCCL_FACE(ncclResult_t, CommAbort, ncclComm_t comm)
{
    if (comm == NULL) {
        return ncclSuccess;
    }
    nccl_windows_end(comm);
    return noted(rondo_comm_abort(nccl_comm(comm)));
}

NCCL_FACE(ncclResult_t, CommRevoke, ncclComm_t comm, int revokeFlags)
{
    if (revokeFlags != 0) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT, "ncclCommRevoke: flags %d are unknown: give 0",
                           revokeFlags);
    }
    return noted(rondo_engine_revoke(nccl_comm(comm)));
}

/* ---- queries ---- */

NCCL_FACE(ncclResult_t, CommGetAsyncError, ncclComm_t comm, ncclResult_t *asyncError)
{
    rondo_status error, status = rondo_comm_async_error(nccl_comm(comm), asyncError != NULL ? &error : NULL);
    if (status == RONDO_SUCCESS) {
        *asyncError = nccl_result(error);
    }
    return nccl_result(status);
}

NCCL_FACE(ncclResult_t, CommCount, const ncclComm_t comm, int *count)
{
    return nccl_result(rondo_comm_count(nccl_comm(comm), count));
}

NCCL_FACE(ncclResult_t, CommCuDevice, const ncclComm_t comm, int *device)
{
    return nccl_result(rondo_comm_device(nccl_comm(comm), device));
}

NCCL_FACE(ncclResult_t, CommUserRank, const ncclComm_t comm, int *rank)
{
    return nccl_result(rondo_comm_rank(nccl_comm(comm), rank));
}

NCCL_FACE(ncclResult_t, CommMemStats, ncclComm_t comm, int stat, uint64_t *value)
{
    uint64_t bytes;
    rondo_status status;
    if (value == NULL || stat < NCCL_MEM_SUSPEND || stat > NCCL_MEM_TOTAL) {
        return nccl_refuse(
            RONDO_INVALID_ARGUMENT,
            "ncclCommMemStats: statistic %d, place for the value %p: give 0 to 3 and a pointer", stat,
            (void *)value);
    }
    status = rondo_engine_bytes(nccl_comm(comm), &bytes);
    if (status == RONDO_SUCCESS) {
        *value = stat == NCCL_MEM_PERSIST || stat == NCCL_MEM_TOTAL ? bytes : 0; /* none can be suspended */
    }
    return nccl_result(status);
}

static void fill_properties(ncclComm_t comm, ncclCommProperties_t *mine)
{
    (void)rondo_comm_rank(nccl_comm(comm), &mine->rank);
    (void)rondo_comm_device(nccl_comm(comm), &mine->cudaDev);
    mine->nvmlDev = mine->cudaDev;
    mine->nLsaTeams = mine->nRanks; /* each rank is alone in its own */
}

NCCL_FACE(ncclResult_t, CommQueryProperties, ncclComm_t comm, ncclCommProperties_t *properties)
{
    ncclCommProperties_t mine = { .deviceApiSupport = false };
    rondo_status status;
    if (properties == NULL || properties->magic != 0xcafebeef ||
        properties->size < offsetof(ncclCommProperties_t, rank)) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT,
                           "ncclCommQueryProperties: start from NCCL_COMM_PROPERTIES_INITIALIZER");
    }
    status = rondo_comm_count(nccl_comm(comm), &mine.nRanks);
    if (status == RONDO_SUCCESS) {
        size_t bytes = properties->size < sizeof(mine) ? properties->size : sizeof(mine);
        mine.size = properties->size;
        mine.magic = properties->magic;
        mine.version = properties->version;
        fill_properties(comm, &mine);
        memcpy(properties, &mine, bytes);
    }
    return nccl_result(status);
}

/* ---- the library ---- */

NCCL_FACE(ncclResult_t, GetVersion, int *version)
{
    if (version == NULL) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT, "ncclGetVersion: the place for the version is NULL");
    }
    (void)rondo_param_init(); /* a bad parameter is reported when a communicator is created */
    *version = (int)rondo_params()->nccl_version;
    return ncclSuccess;
}

NCCL_FACE(const char *, GetErrorString, ncclResult_t result)
{
    return rondo_status_string((rondo_status)result);
}

NCCL_FACE(const char *, GetLastError, ncclComm_t comm)
{
    return rondo_error_text()[0] != '\0' ? rondo_last_error(NULL) : rondo_last_error(nccl_comm(comm));
}

NCCL_FACE(void, ResetDebugInit, void) { rondo_log_init(); }

__attribute__((visibility("default"))) void ncclResetDebugInitInternal(void) { rondo_log_init(); }
