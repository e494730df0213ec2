/* What Rondo does not have, made from nccl.def; and the teams of the device API, which are of one rank. */
#include "shim/nccl/face.h"

/* These ignore their arguments. The caller pushes and pops them, so the function need not know them. */
#define REFUSE_FACE(NAME, reason)
#define REFUSE_DEVICE(NAME, reason) REFUSE_(NAME, reason)
#define REFUSE_RMA(NAME, reason) REFUSE_(NAME, reason)
#define REFUSE_SUSPEND(NAME, reason) REFUSE_(NAME, reason)
#define REFUSE_ENCRYPT(NAME, reason) REFUSE_(NAME, reason)
#define REFUSE_(NAME, reason) \
    NCCL_FACE(ncclResult_t, NAME, void) { return nccl_refuse(RONDO_INVALID_USAGE, "nccl" #NAME ": " reason); }
#define ROW_(ctx, NAME, kind) REFUSE_##kind(NAME, NCCL_FACE_REASON_##kind)
#define NCCL_FACE_REASON_FACE
NCCL_FACE_TABLE(ROW_, )

/* ---- teams ---- */

static ncclTeam_t alone(void) { return (ncclTeam_t){ 1, 0, 1 }; }

NCCL_FACE(ncclTeam_t, TeamWorld, ncclComm_t comm)
{
    ncclTeam_t team = { 0, 0, 1 };
    (void)rondo_comm_count(nccl_comm(comm), &team.nRanks);
    (void)rondo_comm_rank(nccl_comm(comm), &team.rank);
    return team;
}

#define ALONE_(NAME)                             \
    NCCL_FACE(ncclTeam_t, NAME, ncclComm_t comm) \
    {                                            \
        (void)comm;                              \
        return alone();                          \
    }
ALONE_(TeamLsa)
ALONE_(TeamRail)
ALONE_(TeamCft)
ALONE_(TeamCftMultimem)

NCCL_FACE(int, TeamRankToWorld, ncclComm_t comm, ncclTeam_t team, int rank)
{
    int self = 0, n = 0;
    int64_t world;
    if (rondo_comm_rank(nccl_comm(comm), &self) != RONDO_SUCCESS ||
        rondo_comm_count(nccl_comm(comm), &n) != RONDO_SUCCESS || rank < 0 || rank >= team.nRanks) {
        return -1;
    }
    world = self + ((int64_t)rank - team.rank) * team.stride;
    return world >= 0 && world < n ? (int)world : -1;
}

NCCL_FACE(int, TeamRankToLsa, ncclComm_t comm, ncclTeam_t team, int rank)
{
    (void)comm;
    return rank == team.rank ? 0 : -1;
}

/* Slots of 8 bytes for the elements of an exchange; -1: too many for an int. */
NCCL_FACE(int, LLA2ACalcSlots, int maxElts, int maxEltSize)
{
    int64_t slots = ((int64_t)maxEltSize + 7) / 8 * maxElts;
    return maxElts < 0 || maxEltSize < 0 || slots > 0x7fffffff ? -1 : (int)slots;
}
