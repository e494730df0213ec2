/*
 * Does a peer's device memory hold what is written there? On some machines (PCIe access control, IOMMU)
 * writes between GPUs get lost or end elsewhere, on others they hang. So each rank reads, for each peer, the
 * words that the peer's cell for it must have, writes others beside them and reads those back. Each peer has
 * a stream of its own, because a pair that hangs must not delay the others.
 */
#include "net/transport/transport_p2p.h"

#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/wait.h"

static void broken(struct rondo_p2p *p2p, int local, const char *what)
{
    const struct rondo_net *net = p2p->net;
    const struct rondo_peer *self = &net->peers[net->rank], *peer = &net->peers[net->local_ranks[local]];
    net->p2p_modes[local] = RONDO_P2P_MODE_BROKEN;
    RONDO_WARN("P2P from rank %d (GPU %.*s) to rank %d (GPU %.*s) on %s %s; they use shared memory instead. "
               "PCIe access control (ACS) or an "
               "IOMMU can cause this: disable ACS on the bridges between them and boot with "
               "iommu=pt, or set RONDO_P2P_LEVEL or "
               "RONDO_P2P_DISABLE=1",
               net->rank, (int)sizeof(self->bus_id), self->bus_id, peer->rank, (int)sizeof(peer->bus_id),
               peer->bus_id, rondo_log_host(), what);
}

static CUresult copies(const struct rondo_p2p *p2p, int local, const struct rondo_gpu_mem *mem)
{
    const struct rondo_cuda *cuda = p2p->cuda;
    struct rondo_p2p_look *look = &p2p->look[local];
    CUstream stream = p2p->map[local].stream;
    CUdeviceptr owner = rondo_p2p_address(mem, RONDO_P2P_CELL(p2p->net->local_rank, owner));
    CUdeviceptr writer = rondo_p2p_address(mem, RONDO_P2P_CELL(p2p->net->local_rank, writer));
    CUresult result = cuda->MemcpyAsync((CUdeviceptr)(uintptr_t)look->owner, owner, sizeof(look->owner),
                                        stream);
    if (result == CUDA_SUCCESS) {
        result = cuda->MemcpyAsync(writer, (CUdeviceptr)(uintptr_t)look->writer, sizeof(look->writer),
                                   stream);
    }
    return result == CUDA_SUCCESS
               ? cuda->MemcpyAsync((CUdeviceptr)(uintptr_t)look->found, writer, sizeof(look->found), stream)
               : result;
}

/* @return an error of this rank. A failure of the peer only breaks the P2P mode. */
static rondo_status begin(struct rondo_p2p *p2p, int local)
{
    const struct rondo_net *net = p2p->net;
    struct rondo_p2p_look *look = &p2p->look[local];
    struct rondo_gpu_mem mem;
    char what[RONDO_ERROR_TEXT];
    if (rondo_p2p_open(p2p, local, NULL, &mem) != RONDO_SUCCESS) {
        snprintf(what, sizeof(what), "cannot be set up (%.400s)", rondo_error_text());
        broken(p2p, local, what);
        return RONDO_SUCCESS;
    }
    CUresult result = p2p->cuda->StreamCreateWithPriority(&p2p->map[local].stream, CU_STREAM_NON_BLOCKING, 0);
    if (result != CUDA_SUCCESS) {
        p2p->map[local].stream = NULL;
        return rondo_cuda_fail(result, "rank %d on %s: a stream of GPU %d (%s)", net->rank, rondo_log_host(),
                               net->device->ordinal, net->device->bus_id);
    }
    memset(look, 0, sizeof(*look));
    rondo_p2p_pattern(&net->gpus[local], net->nlocal + net->local_rank, look->writer);
    if (copies(p2p, local, &mem) != CUDA_SUCCESS) {
        broken(p2p, local, "does not take copies");
    }
    return RONDO_SUCCESS;
}

static rondo_status begin_all(struct rondo_p2p *p2p)
{
    struct rondo_net *net = p2p->net;
    p2p->deadline_ns = rondo_now_ns() + rondo_params()->p2p_check;
    for (int i = 0; i < net->nlocal; i++) {
        if (i != net->local_rank &&
            (net->p2p_modes[i] == RONDO_P2P_MODE_WRITE || net->p2p_modes[i] == RONDO_P2P_MODE_READ)) {
            RONDO_TRY(begin(p2p, i));
        }
    }
    return RONDO_SUCCESS;
}

static void compare(struct rondo_p2p *p2p, int local)
{
    const struct rondo_p2p_look *look = &p2p->look[local];
    uint64_t owner[2];
    rondo_p2p_pattern(&p2p->net->gpus[local], p2p->net->local_rank, owner);
    if (memcmp(look->owner, owner, sizeof(owner)) != 0) {
        broken(p2p, local, "reads wrong bytes");
    } else if (memcmp(look->found, look->writer, sizeof(look->found)) != 0) {
        broken(p2p, local, "loses writes");
    }
}

/* Progress the check of one peer. @return 1: its copies are in flight. */
static int progress(struct rondo_p2p *p2p, int local)
{
    struct rondo_p2p_map *map = &p2p->map[local];
    CUresult result = p2p->cuda->StreamQuery(map->stream);
    int late = rondo_now_ns() > p2p->deadline_ns;
    if (result == CUDA_ERROR_NOT_READY && !late) {
        return 1;
    }
    if (p2p->net->p2p_modes[local] != RONDO_P2P_MODE_BROKEN) {
        if (result == CUDA_SUCCESS) {
            compare(p2p, local);
        } else {
            broken(p2p, local, late ? "does not answer within RONDO_P2P_CHECK" : "fails during copies");
        }
    }
    if (result != CUDA_SUCCESS) { /* copies may still touch this memory: keep it */
        p2p->stuck |= rondo_p2p_wait(p2p, map->stream, p2p->deadline_ns) != RONDO_SUCCESS;
    }
    (void)p2p->cuda->StreamDestroy(map->stream);
    map->stream = NULL;
    return 0;
}

rondo_status rondo_p2p_check(struct rondo_p2p *p2p)
{
    int open = 0;
    if (p2p->deadline_ns == 0) {
        RONDO_TRY(begin_all(p2p));
    }
    for (int i = 0; i < p2p->net->nlocal; i++) {
        open += p2p->map[i].stream != NULL && progress(p2p, i);
    }
    return open > 0 ? RONDO_IN_PROGRESS : RONDO_SUCCESS;
}
