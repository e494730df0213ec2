/* Device memory of the p2p transport: this rank's blocks, and its peers' blocks that are open here.
 * Contract: net/transport/transport_p2p.h. */
#include "net/transport/transport_p2p.h"

#include <sched.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/wait.h"

_Static_assert(sizeof(struct rondo_p2p_cell) == RONDO_CTRL_ALIGN, "cells are lines");

rondo_status rondo_p2p_enter(const struct rondo_p2p *p2p, CUstreamCaptureMode *before)
{
    rondo_status status;
    rondo_gpu_relax(before);
    status = rondo_cuda_enter(p2p->net->device);
    if (status != RONDO_SUCCESS) {
        rondo_gpu_unrelax(*before);
    }
    return status;
}

void rondo_p2p_leave(CUstreamCaptureMode before)
{
    rondo_cuda_leave();
    rondo_gpu_unrelax(before);
}

rondo_status rondo_p2p_wait(const struct rondo_p2p *p2p, CUstream stream, int64_t deadline_ns)
{
    const struct rondo_net *net = p2p->net;
    for (;;) {
        CUresult result = p2p->cuda->StreamQuery(stream);
        if (result == CUDA_SUCCESS) {
            return RONDO_SUCCESS;
        }
        if (result != CUDA_ERROR_NOT_READY) {
            return rondo_cuda_fail(result, "rank %d on %s: copies of GPU %d (%s)", net->rank,
                                   rondo_log_host(), net->device->ordinal, net->device->bus_id);
        }
        if (rondo_now_ns() > deadline_ns) {
            return rondo_fail_quiet(
                RONDO_TIMEOUT, "rank %d on %s: copies of GPU %d (%s) did not complete within RONDO_P2P_CHECK",
                net->rank, rondo_log_host(), net->device->ordinal, net->device->bus_id);
        }
        sched_yield();
    }
}

static int64_t patience(void) { return rondo_now_ns() + rondo_params()->p2p_check; }

static int64_t creation_ns(void)
{
    int64_t limit = rondo_params()->init_timeout;
    return limit > 0 ? rondo_now_ns() + limit : INT64_MAX;
}

/* ---- this rank's blocks ---- */

void rondo_p2p_pattern(const struct rondo_gpu_name *owner, int local, uint64_t pattern[2])
{
    pattern[0] = rondo_hash(owner, sizeof(*owner), (uint64_t)local + 1);
    pattern[1] = ~pattern[0];
}

/* Peers may read the block once the stream has zeroed it, maybe behind kernels that fill the GPU now. */
static rondo_status block_make(struct rondo_p2p *p2p, size_t bytes)
{
    const struct rondo_net *net = p2p->net;
    struct rondo_p2p_block *block;
    RONDO_TRY(
        RONDO_ARRAY_GROW(p2p->block, p2p->nblocks, p2p->capacity, "the list of blocks of device memory"));
    block = &p2p->block[p2p->nblocks];
    memset(block, 0, sizeof(*block));
    RONDO_TRY(rondo_gpu_mem_create(&block->mem, net->device, bytes, net->nlocal > 1));
    p2p->nblocks++; /* drop frees it with the others, also after an error */
    CUresult result = p2p->cuda->MemsetD8Async(rondo_p2p_address(&block->mem, 0), 0, block->mem.bytes,
                                               p2p->stream);
    if (result != CUDA_SUCCESS) {
        return rondo_cuda_fail(result, "rank %d on %s: zeroing %zu bytes of GPU %d (%s)", net->rank,
                               rondo_log_host(), block->mem.bytes, net->device->ordinal, net->device->bus_id);
    }
    p2p->zeroing = 1;
    return RONDO_SUCCESS;
}

rondo_status rondo_p2p_zero(struct rondo_p2p *p2p)
{
    rondo_status status = rondo_p2p_wait(p2p, p2p->stream, creation_ns());
    p2p->zeroing = status != RONDO_SUCCESS;
    return status == RONDO_TIMEOUT ? rondo_fail(status, "%s", rondo_error_text()) : status;
}

rondo_status rondo_p2p_zeroed(struct rondo_p2p *p2p, struct rondo_p2p_link *own)
{
    rondo_status status = own->zeroing ? rondo_p2p_wait(p2p, p2p->stream, 0) : RONDO_SUCCESS;
    if (status == RONDO_SUCCESS) {
        p2p->zeroing = own->zeroing = 0;
    }
    return status == RONDO_TIMEOUT ? RONDO_IN_PROGRESS : status;
}

/* Write what the cells must hold before peers read them. */
static rondo_status cells_write(struct rondo_p2p *p2p)
{
    const struct rondo_net *net = p2p->net;
    const struct rondo_gpu_mem *mem = &p2p->block[0].mem;
    for (int i = 0; i < net->nlocal; i++) {
        rondo_p2p_pattern(&mem->name, i, p2p->look[i].owner);
        CUresult result = p2p->cuda->MemcpyAsync(rondo_p2p_address(mem, RONDO_P2P_CELL(i, owner)),
                                                 (CUdeviceptr)(uintptr_t)p2p->look[i].owner,
                                                 sizeof(p2p->look[i].owner), p2p->stream);
        if (result != CUDA_SUCCESS) {
            return rondo_cuda_fail(result, "rank %d on %s: writing to GPU %d (%s)", net->rank,
                                   rondo_log_host(), net->device->ordinal, net->device->bus_id);
        }
    }
    return rondo_p2p_wait(p2p, p2p->stream, patience());
}

static rondo_status pin(struct rondo_p2p *p2p)
{
    const struct rondo_net *net = p2p->net;
    size_t looks = sizeof(struct rondo_p2p_look) * (size_t)net->nlocal,
           bytes = looks + sizeof(uint64_t) * (2 + p2p->max_lines);
    RONDO_TRY(rondo_gpu_pinned_take(&p2p->pinned, net->device, bytes, "checks of peers' memory"));
    p2p->look = (struct rondo_p2p_look *)(void *)p2p->pinned.host;
    p2p->constant = (uint64_t *)(void *)(p2p->pinned.host + looks);
    p2p->word = p2p->constant + 2;
    p2p->constant[0] = RONDO_P2P_OPENED; /* also the value of the first slice's count */
    p2p->constant[1] = RONDO_P2P_CLOSED;
    return RONDO_SUCCESS;
}

rondo_status rondo_p2p_make(struct rondo_p2p *p2p, int max_links)
{
    const struct rondo_net *net = p2p->net;
    CUresult result = p2p->cuda->StreamCreateWithPriority(&p2p->stream, CU_STREAM_NON_BLOCKING, 0);
    if (result != CUDA_SUCCESS) {
        p2p->stream = NULL;
        return rondo_cuda_fail(result, "rank %d on %s: a stream of GPU %d (%s)", net->rank, rondo_log_host(),
                               net->device->ordinal, net->device->bus_id);
    }
    p2p->first_line = (size_t)net->nlocal * sizeof(struct rondo_p2p_cell);
    p2p->max_lines = (size_t)max_links + 2 * (size_t)net->nlocal;
    RONDO_TRY(pin(p2p));
    RONDO_TRY(RONDO_NEW_ARRAY(p2p->map, net->nlocal, "maps of the GPUs of this node"));
    RONDO_TRY(block_make(p2p, p2p->first_line + p2p->max_lines * RONDO_CTRL_ALIGN));
    p2p->block[0].used = p2p->first_line + p2p->max_lines * RONDO_CTRL_ALIGN;
    RONDO_TRY(rondo_p2p_zero(p2p));
    return cells_write(p2p);
}

rondo_status rondo_p2p_take_line(struct rondo_p2p *p2p, struct rondo_p2p_link *own)
{
    if (p2p->nlines == p2p->max_lines) {
        return rondo_fail(RONDO_INTERNAL_ERROR, "rank %d offers more than the %zu links that it announced",
                          p2p->net->rank, p2p->max_lines);
    }
    own->number = p2p->nlines++;
    own->line = p2p->first_line + own->number * RONDO_CTRL_ALIGN;
    return RONDO_SUCCESS;
}

rondo_status rondo_p2p_take_slots(struct rondo_p2p *p2p, struct rondo_p2p_link *own, size_t bytes)
{
    struct rondo_p2p_block *last = &p2p->block[p2p->nblocks - 1];
    if (last->mem.bytes - last->used < bytes) {
        RONDO_TRY(block_make(p2p, rondo_max_size(bytes, p2p->expected)));
        last = &p2p->block[p2p->nblocks - 1];
    }
    own->zeroing = p2p->zeroing;
    own->place = p2p->nblocks - 1;
    own->slots = last->used;
    last->used += bytes;
    p2p->expected -= rondo_min_size(p2p->expected, bytes);
    return RONDO_SUCCESS;
}

/* ---- blocks of peers ---- */

/* In the owner's cell for this rank. */
static CUresult tell(const struct rondo_p2p *p2p, const struct rondo_p2p_map *map, const uint64_t *what)
{
    return p2p->cuda->MemcpyAsync(rondo_p2p_address(&map->mem[0], RONDO_P2P_CELL(p2p->net->local_rank, open)),
                                  (CUdeviceptr)(uintptr_t)what, sizeof(*what), p2p->stream);
}

/* Check that the first block has our cell, and tell the owner where needed that we have it open. */
static rondo_status first_check(struct rondo_p2p *p2p, struct rondo_p2p_map *map)
{
    if (map->mem[0].bytes <= p2p->first_line) {
        return rondo_fail_quiet(RONDO_INTERNAL_ERROR,
                                "its first block has %zu bytes, fewer than its cells take",
                                map->mem[0].bytes);
    }
    if (rondo_gpu_mem_mortal(&map->mem[0]) && rondo_gpu_mem_foreign(&map->mem[0])) {
        CUresult result = tell(p2p, map, &p2p->constant[0]);
        if (result != CUDA_SUCCESS) {
            return rondo_cuda_fail(result, "rank %d on %s: writing to a peer's GPU", p2p->net->rank,
                                   rondo_log_host());
        }
        map->told = 1;
        return rondo_p2p_wait(p2p, p2p->stream, patience());
    }
    return RONDO_SUCCESS;
}

static rondo_status open_more(struct rondo_p2p *p2p, struct rondo_p2p_map *map,
                              const struct rondo_gpu_name *name)
{
    RONDO_TRY(RONDO_ARRAY_GROW(map->mem, map->n, map->capacity, "the list of a peer's blocks"));
    RONDO_TRY(rondo_gpu_mem_open(&map->mem[map->n], p2p->net->device, name));
    map->n++;
    return map->n == 1 ? first_check(p2p, map) : RONDO_SUCCESS;
}

rondo_status rondo_p2p_open(struct rondo_p2p *p2p, int local, const struct rondo_gpu_name *name,
                            struct rondo_gpu_mem *mem)
{
    struct rondo_p2p_map *map = &p2p->map[local];
    const struct rondo_gpu_name *first = &p2p->net->gpus[local];
    rondo_status status;
    name = name != NULL ? name : first;
    if (map->n == 0) {
        status = open_more(p2p, map, first);
        if (status != RONDO_SUCCESS) {
            p2p->stuck |= map->told && status == RONDO_TIMEOUT; /* the copy may come yet */
            for (int i = 0; i < map->n && !p2p->stuck; i++) {
                rondo_gpu_mem_close(&map->mem[i]);
            }
            map->n = map->told = 0;
            return status;
        }
    }
    for (int i = 0; i < map->n; i++) {
        if (memcmp(&map->mem[i].name, name, sizeof(*name)) == 0) {
            *mem = map->mem[i];
            return RONDO_SUCCESS;
        }
    }
    RONDO_TRY(open_more(p2p, map, name));
    *mem = map->mem[map->n - 1];
    return RONDO_SUCCESS;
}

/* ---- the check ---- */

/*
 * Does a peer's device memory hold what is written there? On some machines (PCIe access control, IOMMU)
 * writes between GPUs get lost or end elsewhere, on others they hang. So each rank, for each peer, reads the
 * words that the peer's cell of it must have, writes others beside them and reads those back: on a stream of
 * its own, because a pair that hangs must not hold up the others.
 */

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

/* ---- the end ---- */

/* Where memory ends with its owner, tell the owner, who waits, that this rank has closed it. */
static void maps_tell(struct rondo_p2p *p2p)
{
    int told = 0;
    for (int i = 0; i < p2p->net->nlocal; i++) {
        struct rondo_p2p_map *map = &p2p->map[i];
        for (int k = 1; k < map->n; k++) {
            rondo_gpu_mem_close(&map->mem[k]);
        }
        told |= map->told;
        if (map->told) {
            (void)tell(p2p, map, &p2p->constant[1]);
        }
    }
    if (told) {
        p2p->stuck |= rondo_p2p_wait(p2p, p2p->stream, patience()) != RONDO_SUCCESS;
    }
}

static void maps_close(struct rondo_p2p *p2p)
{
    if (p2p->map == NULL) {
        return;
    }
    if (!p2p->stuck) {
        maps_tell(p2p);
    }
    for (int i = 0; i < p2p->net->nlocal; i++) {
        struct rondo_p2p_map *map = &p2p->map[i];
        if (map->n > 0 && !p2p->stuck) {
            rondo_gpu_mem_close(&map->mem[0]);
        }
        rondo_free(map->mem);
    }
    rondo_free(p2p->map);
}

/* Read our cells. @return how many peers have our memory open; -1: unknown. */
static int opened(struct rondo_p2p *p2p)
{
    int n = 0;
    for (int i = 0; i < p2p->net->nlocal; i++) {
        if (p2p->cuda->MemcpyAsync((CUdeviceptr)(uintptr_t)&p2p->look[i].open,
                                   rondo_p2p_address(&p2p->block[0].mem, RONDO_P2P_CELL(i, open)),
                                   sizeof(uint64_t), p2p->stream) != CUDA_SUCCESS) {
            return -1;
        }
    }
    if (rondo_p2p_wait(p2p, p2p->stream, patience()) != RONDO_SUCCESS) {
        p2p->stuck = 1;
        return -1;
    }
    for (int i = 0; i < p2p->net->nlocal; i++) {
        n += p2p->look[i].open == RONDO_P2P_OPENED;
    }
    return n;
}

/* @return 1: our memory may be freed. */
static int nobody_uses(struct rondo_p2p *p2p)
{
    int64_t end_ns = patience();
    int n;
    if (!rondo_gpu_mem_mortal(&p2p->block[0].mem)) {
        return 1;
    }
    while ((n = opened(p2p)) > 0 && rondo_now_ns() < end_ns) {
        sched_yield();
    }
    return n == 0;
}

/* Complete the copies of a check that stopped half way. */
static void check_end(struct rondo_p2p *p2p)
{
    for (int i = 0; p2p->map != NULL && i < p2p->net->nlocal; i++) {
        if (p2p->map[i].stream != NULL) {
            p2p->stuck |= rondo_p2p_wait(p2p, p2p->map[i].stream, p2p->deadline_ns) != RONDO_SUCCESS;
            (void)p2p->cuda->StreamDestroy(p2p->map[i].stream);
        }
    }
}

static void blocks_close(struct rondo_p2p *p2p)
{
    if (p2p->nblocks > 0 && p2p->look != NULL && (p2p->stuck || !nobody_uses(p2p))) {
        RONDO_INFO(RONDO_SUBSYS_P2P | RONDO_SUBSYS_DESTROY,
                   "rank %d: this rank's memory of GPU %d is still in use after RONDO_P2P_CHECK: it is kept "
                   "until the process ends",
                   p2p->net->rank, p2p->net->device->ordinal);
        p2p->nblocks = 0;
    }
    for (int i = 0; i < p2p->nblocks; i++) {
        rondo_gpu_mem_close(&p2p->block[i].mem);
    }
    rondo_free(p2p->block);
}

void rondo_p2p_drop(struct rondo_p2p *p2p)
{
    check_end(p2p);
    p2p->stuck |= p2p->net->kept;
    p2p->stuck |= p2p->stream != NULL && rondo_p2p_wait(p2p, p2p->stream, patience()) != RONDO_SUCCESS;
    maps_close(p2p);
    blocks_close(p2p);
    if (!p2p->stuck) {
        rondo_gpu_pinned_put(&p2p->pinned);
    }
    if (p2p->stream != NULL) {
        (void)p2p->cuda->StreamDestroy(p2p->stream);
    }
}
