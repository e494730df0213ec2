/* Direct access among the GPUs of a node: which memory ranks have announced, and who has mapped it. Contract:
 * kern/cuda/exec_cuda.h; how kernels use it: kern/cuda/block_direct.h. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/cuda_mem.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "coll/oneshot.h"
#include "coll/twoshot.h"
#include "kern/cuda/exec_cuda_impl.h"

enum verdict { UNDECIDED, AGREES, REFUSES };
enum { OWN = 0 }; /* the region of cells and staging buffers; users' regions follow */

/* A region as its owner announces it. */
struct note {
    uint64_t serial; /* written last; 0: none, or not any more */
    struct rondo_gpu_name name;
};

/* A rank's answer to another one's note: where it has mapped that memory; 0: nowhere. */
struct answer {
    uint64_t serial, at;
};

/* A rank's entry in the table. Only that rank writes it, except `changes`. */
struct entry {
    uint64_t changes; /* of the whole table, in the first entry */
    uint64_t verdict;
    struct note note[RONDO_DIRECT_REGIONS];
    struct answer answer[]; /* [owner * RONDO_DIRECT_REGIONS + region] */
};

/* Memory of this rank, with a reference as long as peers may have it mapped; or a peer's. */
struct region {
    struct rondo_gpu_mem mem; /* base NULL: none */
    uint64_t serial;          /* of its note; 0: free */
    int settled;              /* own: opened to kernels, or refused by a peer */
    int opened;               /* own: to kernels, and to copies */
    int ending;               /* own: peers are to unmap it */
};

struct rondo_cuda_direct {
    struct rondo_cuda_direct_config config;
    uint8_t *places; /* NULL: no table yet */
    size_t stride;
    struct rondo_gpu_mem memory; /* cells | staging buffers | slots | what kernels read */
    CUdeviceptr there;           /* struct rondo_gpu_direct */
    int on;
    uint64_t serials, seen, epoch;
    uint64_t works; /* works of direct kernels */
    struct region own[RONDO_DIRECT_REGIONS];
    struct region *map;       /* [peer * RONDO_DIRECT_REGIONS + region] */
    const uint8_t *missed[2]; /* in, out: pointers that were in no region at the last look */
};

#define LOAD(word) __atomic_load_n(&(word), __ATOMIC_ACQUIRE)
#define STORE(word, value) __atomic_store_n(&(word), value, __ATOMIC_RELEASE)

static struct entry *entry_of(const struct rondo_cuda_direct *d, int local)
{
    return (struct entry *)(void *)(d->places + (size_t)local * d->stride);
}
static struct entry *mine(const struct rondo_cuda_direct *d) { return entry_of(d, d->config.index); }
static void changed(const struct rondo_cuda_direct *d)
{
    __atomic_fetch_add(&entry_of(d, 0)->changes, 1, __ATOMIC_ACQ_REL);
}
static struct region *map_of(const struct rondo_cuda_direct *d, int peer, int k)
{
    return &d->map[peer * RONDO_DIRECT_REGIONS + k];
}

static size_t beyond_at(int nlocal)
{
    return rondo_round_up(sizeof(struct entry) +
                              sizeof(struct answer) * RONDO_DIRECT_REGIONS * (size_t)nlocal,
                          RONDO_CTRL_ALIGN);
}

size_t rondo_exec_cuda_direct_entry_bytes(int nlocal)
{
    return beyond_at(nlocal) + rondo_cuda_copy_place_bytes(nlocal);
}

uint8_t *rondo_cuda_direct_beyond(const struct rondo_exec *exec, int local)
{
    const struct rondo_cuda_direct *d = exec->direct;
    return (uint8_t *)entry_of(d, local) + beyond_at(d->config.nlocal);
}

/* ---- what peers announce ---- */

static void unmap(const struct rondo_cuda_direct *d, int peer, int k)
{
    struct region *map = map_of(d, peer, k);
    struct answer *answer = &mine(d)->answer[peer * RONDO_DIRECT_REGIONS + k];
    if (map->serial != 0) {
        rondo_gpu_mem_close(&map->mem);
        map->serial = 0;
        STORE(answer->at, 0);
        STORE(answer->serial, 0);
        changed(d);
    }
}

/* React to a note that has changed. */
static void follow(const struct rondo_exec *exec, struct rondo_cuda_direct *d, int peer, int k)
{
    const struct note *note = &entry_of(d, peer)->note[k];
    struct answer *answer = &mine(d)->answer[peer * RONDO_DIRECT_REGIONS + k];
    struct region *map = map_of(d, peer, k);
    uint64_t serial = LOAD(note->serial);
    struct rondo_gpu_name name;
    if (serial == map->serial) {
        return;
    }
    unmap(d, peer, k);
    memcpy(&name, &note->name, sizeof(name));
    if (serial == 0 || LOAD(note->serial) != serial) {
        return; /* gone, or changing: look again later */
    }
    if (rondo_gpu_mem_open(&map->mem, exec->config.device, &name) != RONDO_SUCCESS) {
        RONDO_INFO(RONDO_SUBSYS_P2P,
                   "rank %d: cannot map memory of rank %d on GPU %d (%s): calls that use it are staged",
                   exec->config.rank, peer, exec->config.device->ordinal, rondo_error_text());
        memset(&map->mem, 0, sizeof(map->mem));
    }
    map->serial = serial;
    STORE(answer->at, (uint64_t)(uintptr_t)map->mem.base);
    STORE(answer->serial, serial);
    changed(d);
}

/* ---- what this rank announces ---- */

static void announce(struct rondo_cuda_direct *d, int k, const struct rondo_gpu_name *name)
{
    struct note *note = &mine(d)->note[k];
    d->own[k].serial = ++d->serials;
    d->own[k].settled = d->own[k].opened = d->own[k].ending = 0;
    note->name = *name;
    STORE(note->serial, d->own[k].serial);
    changed(d);
}

/* Number of peers that have answered `serial`; *refused: one of them cannot access the memory. */
static int answered(const struct rondo_cuda_direct *d, int k, uint64_t serial, int *refused)
{
    int n = 0;
    *refused = 0;
    for (int i = 0; i < d->config.nlocal; i++) {
        const struct answer *answer = &entry_of(d, i)->answer[d->config.index * RONDO_DIRECT_REGIONS + k];
        if (i != d->config.index && LOAD(answer->serial) == serial) {
            n++;
            *refused |= LOAD(answer->at) == 0;
        }
    }
    return n;
}

static CUdeviceptr region_there(const struct rondo_cuda_direct *d, int k)
{
    return d->there + offsetof(struct rondo_gpu_direct, region) + sizeof(struct rondo_gpu_region) * (size_t)k;
}

/* Allow kernels to use the region (open 1), or forbid it. */
static rondo_status region_open(struct rondo_exec *exec, struct rondo_cuda_direct *d, int k, uint64_t open)
{
    d->own[k].opened = open != 0;
    return rondo_exec_cuda_upload(exec, region_there(d, k) + offsetof(struct rondo_gpu_region, open), &open,
                                  sizeof(open));
}

static rondo_status region_settle(struct rondo_exec *exec, struct rondo_cuda_direct *d, int k)
{
    struct region *own = &d->own[k];
    struct rondo_gpu_region image = { .base = (uint64_t)(uintptr_t)own->mem.base, .bytes = own->mem.bytes };
    int refused;
    if (answered(d, k, own->serial, &refused) < d->config.nlocal - 1) {
        return RONDO_SUCCESS;
    }
    own->settled = 1;
    for (int i = 0; i < d->config.nlocal; i++) {
        image.at[i] = i == d->config.index
                          ? image.base
                          : LOAD(entry_of(d, i)->answer[d->config.index * RONDO_DIRECT_REGIONS + k].at);
    }
    if (refused) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_exec_cuda_upload(exec, region_there(d, k), &image, sizeof(image)));
    RONDO_INFO(RONDO_SUBSYS_P2P, "rank %d: %.1f MiB at %p of GPU %d are mapped by all %d ranks",
               exec->config.rank, (double)own->mem.bytes / (1 << 20), (void *)own->mem.base,
               exec->config.device->ordinal, d->config.nlocal);
    return region_open(exec, d, k, 1);
}

/* The user has freed it: release the memory when no peer has it mapped. */
static rondo_status region_end(struct rondo_exec *exec, struct rondo_cuda_direct *d, int k)
{
    RONDO_TRY(region_open(exec, d, k, 0));
    d->own[k].ending = 1;
    STORE(mine(d)->note[k].serial, 0);
    changed(d);
    return RONDO_SUCCESS;
}

static void region_free_if_left(struct rondo_cuda_direct *d, int k)
{
    int refused;
    if (answered(d, k, 0, &refused) == d->config.nlocal - 1) {
        rondo_gpu_mem_close(&d->own[k].mem);
        memset(&d->own[k], 0, sizeof(d->own[k]));
    }
}

/* Is it rondo_mem_alloc_device's, of this process, and not freed? */
static int is_users(const struct rondo_gpu_mem *mem)
{
    struct rondo_gpu_name name;
    return rondo_gpu_find(mem->base, &name) && name.serial == mem->name.serial;
}

static rondo_status look_at_own(struct rondo_exec *exec, struct rondo_cuda_direct *d, int k, int freed)
{
    struct region *own = &d->own[k];
    if (own->serial == 0) {
        return RONDO_SUCCESS;
    }
    if (freed && !own->ending && !is_users(&own->mem)) {
        RONDO_TRY(region_end(exec, d, k));
    }
    if (own->ending) {
        region_free_if_left(d, k);
        return RONDO_SUCCESS;
    }
    return own->settled ? RONDO_SUCCESS : region_settle(exec, d, k);
}

static rondo_status look_at_all(struct rondo_exec *exec, struct rondo_cuda_direct *d, int freed)
{
    memset(d->missed, 0, sizeof(d->missed));
    for (int i = 0; i < d->config.nlocal; i++) {
        for (int k = OWN + 1; k < RONDO_DIRECT_REGIONS && i != d->config.index; k++) {
            follow(exec, d, i, k);
        }
    }
    for (int k = OWN + 1; k < RONDO_DIRECT_REGIONS; k++) {
        RONDO_TRY(look_at_own(exec, d, k, freed));
    }
    return RONDO_SUCCESS;
}

/* Usually nothing has changed. Mapping and unmapping memory are what a capture forbids to the thread. */
static rondo_status look(struct rondo_exec *exec, struct rondo_cuda_direct *d)
{
    uint64_t changes = LOAD(entry_of(d, 0)->changes), epoch = rondo_gpu_epoch();
    int freed = epoch != d->epoch;
    CUstreamCaptureMode before;
    rondo_status status;
    if (RONDO_LIKELY(changes == d->seen && !freed)) {
        return RONDO_SUCCESS;
    }
    d->seen = changes;
    d->epoch = epoch;
    rondo_gpu_relax(&before);
    status = look_at_all(exec, d, freed);
    rondo_gpu_unrelax(before);
    return status;
}

/* ---- users' buffers ---- */

static int is_inside(const struct region *own, const uint8_t *ptr, size_t bytes)
{
    return own->serial != 0 && !own->ending && ptr >= own->mem.base &&
           (size_t)(ptr - own->mem.base) <= own->mem.bytes &&
           bytes <= own->mem.bytes - (size_t)(ptr - own->mem.base);
}

static int region_find(const struct rondo_cuda_direct *d, const uint8_t *ptr, size_t bytes)
{
    int k = RONDO_DIRECT_REGIONS - 1;
    while (k > OWN && !is_inside(&d->own[k], ptr, bytes)) {
        k--;
    }
    return k;
}

/* Announce the memory of a buffer, if it is rondo_mem_alloc_device's. @return its region, or OWN. */
static int region_add(struct rondo_exec *exec, struct rondo_cuda_direct *d, const uint8_t *ptr, size_t bytes)
{
    struct rondo_gpu_name name;
    int k = OWN + 1;
    if (!rondo_gpu_find(ptr, &name) || bytes > name.bytes - ((uint64_t)(uintptr_t)ptr - name.address)) {
        return OWN;
    }
    while (k < RONDO_DIRECT_REGIONS && d->own[k].serial != 0) {
        k++;
    }
    if (k == RONDO_DIRECT_REGIONS) {
        RONDO_INFO(RONDO_SUBSYS_P2P,
                   "rank %d: more than %d allocations are in use for direct access: the one at %p is staged",
                   exec->config.rank, RONDO_DIRECT_REGIONS - 1, (const void *)ptr);
        return OWN;
    }
    if (rondo_gpu_mem_open(&d->own[k].mem, exec->config.device, &name) !=
        RONDO_SUCCESS) { /* it takes a reference: the memory was just freed */
        memset(&d->own[k].mem, 0, sizeof(d->own[k].mem));
        return OWN;
    }
    announce(d, k, &name);
    return k;
}

static uint8_t region_of(struct rondo_exec *exec, struct rondo_cuda_direct *d, int buffer, const uint8_t *ptr,
                         size_t bytes)
{
    int k;
    if (ptr == NULL || bytes == 0 || ptr == d->missed[buffer]) {
        return OWN;
    }
    k = region_find(d, ptr, bytes);
    k = k == OWN ? region_add(exec, d, ptr, bytes) : k;
    d->missed[buffer] = k == OWN ? ptr : NULL;
    return (uint8_t)k;
}

rondo_status rondo_cuda_direct_look(struct rondo_exec *exec) { return look(exec, exec->direct); }

int rondo_cuda_direct_spot(struct rondo_exec *exec, int buffer, const void *ptr, size_t bytes,
                           struct rondo_cuda_spot *spot)
{
    int k = region_of(exec, exec->direct, buffer, ptr, bytes);
    const struct region *own = &exec->direct->own[k];
    *spot = (struct rondo_cuda_spot){ .serial = own->serial,
                                      .region = (uint64_t)k,
                                      .offset = (uint64_t)((const uint8_t *)ptr - own->mem.base) };
    return k != OWN && own->opened;
}

CUdeviceptr rondo_cuda_direct_at(const struct rondo_exec *exec, int peer, const struct rondo_cuda_spot *spot,
                                 size_t bytes)
{
    const struct region *map = spot->region < RONDO_DIRECT_REGIONS
                                   ? map_of(exec->direct, peer, (int)spot->region)
                                   : NULL;
    if (map == NULL || map->serial != spot->serial || map->mem.base == NULL ||
        spot->offset > map->mem.bytes || bytes > map->mem.bytes - spot->offset) {
        return 0;
    }
    return (CUdeviceptr)(uintptr_t)(map->mem.base + spot->offset);
}

void rondo_exec_cuda_direct_announce(struct rondo_exec *exec, const void *ptr, size_t bytes)
{
    struct rondo_cuda_direct *d = exec->direct;
    CUstreamCaptureMode before;
    if (d == NULL || !d->on || rondo_exec_cuda_enter(exec, &before) != RONDO_SUCCESS) {
        return;
    }
    if (look(exec, d) == RONDO_SUCCESS && region_find(d, ptr, bytes) == OWN) {
        (void)region_add(exec, d, ptr, bytes);
    }
    rondo_exec_cuda_leave(before);
}

/* Elements of a work's buffer: every rank's block, or a range. */
static size_t extent(const struct rondo_work *w, int gathers)
{
    size_t end = 0;
    if (!gathers) {
        return w->counts != NULL ? w->counts[w->seat.index] : w->off + w->len;
    }
    for (int r = 0; w->counts != NULL && r < w->seat.nranks; r++) {
        end = rondo_max_size(end, (w->displs != NULL ? w->displs[r] : (size_t)r * w->block) + w->counts[r]);
    }
    return w->counts != NULL ? end : w->block * (size_t)w->seat.nranks;
}

/* In reduce_scatterv, displacements may differ: each rank knows only its own, with which it stages. */
static void find_regions(struct rondo_exec *exec, struct rondo_cuda_direct *d, struct rondo_work *w)
{
    if (w->coll == RONDO_COLL_REDUCE_SCATTER && w->counts != NULL) {
        return;
    }
    w->in_region = region_of(exec, d, 0, w->in,
                             extent(w, w->coll == RONDO_COLL_REDUCE_SCATTER) * w->elem_bytes);
    w->out_region = region_of(exec, d, 1, w->out,
                              extent(w, w->coll == RONDO_COLL_ALL_GATHER) * w->elem_bytes);
}

/* Can peers access what they need of this rank's buffers? A graph finds out when it runs. Where one launch
 * may be in progress, the host would wait between the two works until the peers have come to the first. */
static int may_open(const struct rondo_exec *exec, const struct rondo_cuda_direct *d,
                    const struct rondo_run *run)
{
    const struct rondo_work *w = &run->work;
    const uint32_t needs = rondo_twoshot_needs(run->schedule->flow[0].step(&w->seat, 1).act, 0);
    int graph = exec->capturing != NULL, may = exec->flights > 1;
    if (needs & 1) {
        may &= w->in_region != OWN && (graph || d->own[w->in_region].opened);
    }
    if (needs & 2) {
        may &= w->out_region != OWN && (graph || d->own[w->out_region].opened);
    }
    return may;
}

/* Calls of two works: does this rank launch both, or the second one alone? Their channels' runs lie in a row.
 * @return the run after the call's. */
static int settle_pair(struct rondo_exec *exec, struct rondo_cuda_direct *d, int first)
{
    struct rondo_run *runs = exec->runs;
    int second = first, end, may = 1;
    for (; second < exec->nruns && runs[second].asks; second++) {
        find_regions(exec, d, &runs[second].work);
        may &= may_open(exec, d, &runs[second]);
    }
    for (int i = first; i < second; i++) {
        runs[i].work.pair = RONDO_PAIR_ASKS;
        runs[i].verdict = may ? RONDO_UNDECIDED : RONDO_NOT_DIRECT;
    }
    for (end = second; end < exec->nruns && runs[end].fallback_of == &runs[first]; end++) {
        runs[end].work.pair = may ? RONDO_PAIR_FOLLOWS : RONDO_PAIR_DECLINES;
    }
    return end;
}

rondo_status rondo_cuda_direct_prepare(struct rondo_exec *exec)
{
    struct rondo_cuda_direct *d = exec->direct;
    if (d == NULL || !d->on) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(look(exec, d));
    for (int i = 0; i < exec->nruns;) {
        i = exec->runs[i].asks ? settle_pair(exec, d, i) : i + 1;
    }
    for (int i = 0; i < exec->nruns; i++) {
        struct rondo_run *run = &exec->runs[i];
        if (run->copies || rondo_run_stays_out(run)) { /* no kernel runs it */
            continue;
        }
        d->works += (uint64_t)rondo_work_is_direct(&run->work);
        if (rondo_algo_medium(run->work.algo) == RONDO_MEDIUM_DIRECT && !run->asks) {
            find_regions(exec, d, &run->work);
        }
    }
    return RONDO_SUCCESS;
}

/* ---- creation ---- */

static size_t cells_bytes(const struct rondo_exec *exec, const struct rondo_cuda_direct *d)
{
    return sizeof(struct rondo_gpu_cell) * (size_t)exec->config.nchannels * (size_t)d->config.nlocal;
}
static size_t stages_bytes(const struct rondo_exec *exec, const struct rondo_cuda_direct *d)
{
    return 2 * d->config.stage_bytes * (size_t)exec->config.nchannels;
}
static size_t slots_bytes(const struct rondo_exec *exec, const struct rondo_cuda_direct *d)
{
    size_t n = (size_t)d->config.nlocal;
    return 2 * n * rondo_oneshot_slot_bytes(d->config.stage_bytes, n) * (size_t)exec->config.nchannels;
}
static size_t peers_bytes(const struct rondo_exec *exec, const struct rondo_cuda_direct *d)
{
    return cells_bytes(exec, d) + stages_bytes(exec, d) + slots_bytes(exec, d);
}

static rondo_status make_memory(struct rondo_exec *exec, struct rondo_cuda_direct *d)
{
    size_t bytes = peers_bytes(exec, d) + sizeof(struct rondo_gpu_direct);
    char where[80];
    RONDO_TRY(rondo_gpu_mem_create(&d->memory, exec->config.device, bytes, 1));
    d->there = (CUdeviceptr)(uintptr_t)d->memory.base + peers_bytes(exec, d);
    rondo_exec_cuda_where(exec, where);
    RONDO_CUDA_TRY(
        exec->cuda->MemsetD8Async((CUdeviceptr)(uintptr_t)d->memory.base, 0, d->memory.bytes, exec->uploads),
        "%s: zeroing %zu bytes", where, d->memory.bytes);
    CUresult result = exec->cuda->StreamSynchronize(exec->uploads);
    exec->stuck |= result != CUDA_SUCCESS;
    RONDO_CUDA_TRY(result, "%s: zeroing %zu bytes", where, d->memory.bytes);
    RONDO_INFO(RONDO_SUBSYS_INIT | RONDO_SUBSYS_P2P | RONDO_SUBSYS_ALLOC,
               "%s: %.1f MiB for direct access: two staging buffers of %zu bytes for each of %d channels",
               where, (double)d->memory.bytes / (1 << 20), d->config.stage_bytes, exec->config.nchannels);
    return RONDO_SUCCESS;
}

rondo_status rondo_exec_cuda_direct_open(struct rondo_exec *exec,
                                         const struct rondo_cuda_direct_config *config)
{
    struct rondo_cuda_direct *d;
    CUstreamCaptureMode before;
    rondo_status status;
    RONDO_TRY(RONDO_NEW(d, "direct calls"));
    exec->direct = d; /* closed with the executor */
    d->config = *config;
    d->epoch = rondo_gpu_epoch();
    RONDO_TRY(RONDO_NEW_ARRAY(d->map, config->nlocal * RONDO_DIRECT_REGIONS, "the memory of peers"));
    if (!config->reaches_all) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_exec_cuda_enter(exec, &before));
    status = make_memory(exec, d);
    rondo_exec_cuda_leave(before);
    return status == RONDO_SUCCESS && config->copies
               ? rondo_cuda_copy_open(exec, config->nlocal, config->index)
               : status;
}

static void put_verdict(const struct rondo_cuda_direct *d, enum verdict verdict)
{
    STORE(mine(d)->verdict, (uint64_t)verdict);
    changed(d);
}

void rondo_exec_cuda_direct_table(struct rondo_exec *exec, uint8_t *places, size_t stride)
{
    struct rondo_cuda_direct *d = exec->direct;
    if (d == NULL) {
        return;
    }
    d->places = places;
    d->stride = stride;
    if (d->memory.base == NULL) {
        put_verdict(d, REFUSES);
    } else {
        announce(d, OWN, &d->memory.name);
    }
}

/* Map what peers announce. @return AGREES: all of it is mapped; REFUSES: some rank cannot. */
static enum verdict map_peers(struct rondo_exec *exec, struct rondo_cuda_direct *d)
{
    int n = 0;
    for (int i = 0; i < d->config.nlocal; i++) {
        const struct region *map = map_of(d, i, OWN);
        if (LOAD(entry_of(d, i)->verdict) == REFUSES) {
            return REFUSES;
        }
        if (i != d->config.index) {
            follow(exec, d, i, OWN);
            if (map->serial != 0 && map->mem.bytes != d->memory.bytes) {
                return REFUSES;
            }
        }
        n += i == d->config.index || map->serial != 0;
    }
    return n == d->config.nlocal ? AGREES : UNDECIDED;
}

static rondo_status switch_on(struct rondo_exec *exec, struct rondo_cuda_direct *d)
{
    struct rondo_gpu_reach reach = { .nranks = (uint32_t)d->config.nlocal,
                                     .index = (uint32_t)d->config.index,
                                     .stage_bytes = d->config.stage_bytes,
                                     .slot_bytes = rondo_oneshot_slot_bytes(d->config.stage_bytes,
                                                                            (size_t)d->config.nlocal) };
    for (int i = 0; i < d->config.nlocal; i++) {
        uint8_t *base = i == d->config.index ? d->memory.base : map_of(d, i, OWN)->mem.base;
        reach.cell[i] = (struct rondo_gpu_cell *)(void *)base;
        reach.stage[i] = base + cells_bytes(exec, d);
        reach.slots[i] = reach.stage[i] + stages_bytes(exec, d);
    }
    RONDO_TRY(rondo_exec_cuda_upload(exec, d->there + offsetof(struct rondo_gpu_direct, reach), &reach,
                                     sizeof(reach)));
    d->on = 1;
    rondo_cuda_copy_agree(exec);
    return RONDO_SUCCESS;
}

static rondo_status join_entered(struct rondo_exec *exec, struct rondo_cuda_direct *d, int *silent)
{
    int refused = 0;
    if (LOAD(mine(d)->verdict) == UNDECIDED) {
        enum verdict verdict = map_peers(exec, d);
        if (verdict != UNDECIDED) {
            rondo_cuda_copy_offer(exec);
            put_verdict(d, verdict);
        }
    }
    for (int i = 0; i < d->config.nlocal; i++) {
        uint64_t verdict = LOAD(entry_of(d, i)->verdict);
        if (verdict == UNDECIDED) {
            *silent = i;
            return RONDO_IN_PROGRESS;
        }
        refused |= verdict != AGREES;
    }
    if (!refused) {
        return switch_on(exec, d);
    }
    if (d->config.index == 0) {
        RONDO_INFO(RONDO_SUBSYS_INIT | RONDO_SUBSYS_P2P,
                   "rank %d: not all GPUs of the node can access one another: no direct access",
                   exec->config.rank);
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_exec_cuda_direct_join(struct rondo_exec *exec, int *silent)
{
    struct rondo_cuda_direct *d = exec->direct;
    CUstreamCaptureMode before;
    rondo_status status;
    if (d == NULL || d->on) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_exec_cuda_enter(exec, &before));
    status = join_entered(exec, d, silent);
    rondo_exec_cuda_leave(before);
    return status;
}

size_t rondo_exec_cuda_direct_stage(const struct rondo_exec *exec)
{
    return exec->direct != NULL && exec->direct->on ? exec->direct->config.stage_bytes : 0;
}

struct rondo_gpu_direct *rondo_cuda_direct_there(const struct rondo_exec *exec)
{
    return exec->direct != NULL && exec->direct->on
               ? (struct rondo_gpu_direct *)(uintptr_t)exec->direct->there
               : NULL;
}

/* ---- the end ---- */

/* Do peers still have this rank's memory mapped, which goes with the executor? They unmap it when they close,
 * too; peers in this process hold references. */
static int is_held(const struct rondo_cuda_direct *d, int k)
{
    uint64_t here = d->own[k].mem.name.process;
    int held = 0;
    for (int i = 0; rondo_gpu_mem_mortal(&d->own[k].mem) && i < d->config.nlocal; i++) {
        const struct entry *entry = entry_of(d, i);
        held |= entry->note[OWN].name.process != here &&
                LOAD(entry->answer[d->config.index * RONDO_DIRECT_REGIONS + k].serial) != 0;
    }
    return held;
}

static int any_held(const struct rondo_cuda_direct *d)
{
    int held = 0;
    for (int k = 0; k < RONDO_DIRECT_REGIONS; k++) {
        held |= is_held(d, k);
    }
    return held;
}

/* Kernels that have not ended may use all of it, so it stays, but for references to what users of this
 * process have not freed: they are to free it. Peers may unmap what is this rank's. */
static void leave_all(struct rondo_cuda_direct *d)
{
    for (int k = 0; d->places != NULL && k < RONDO_DIRECT_REGIONS; k++) {
        STORE(mine(d)->note[k].serial, 0);
        for (int i = 0; k != OWN && i < d->config.nlocal; i++) {
            if (is_users(&map_of(d, i, k)->mem)) {
                unmap(d, i, k);
            }
        }
        if (k != OWN && is_users(&d->own[k].mem) && !is_held(d, k)) {
            rondo_gpu_mem_close(&d->own[k].mem);
        }
    }
    if (d->places != NULL) {
        changed(d);
    }
}

/* keep: do not free the destination of uploads. */
static void take_back(struct rondo_cuda_direct *d, int keep)
{
    int64_t end_ns = rondo_now_ns() + rondo_params()->p2p_check;
    if (!keep) {
        d->own[OWN].mem = d->memory;
    }
    for (int k = 0; k < RONDO_DIRECT_REGIONS; k++) {
        STORE(mine(d)->note[k].serial, 0);
        for (int i = 0; i < d->config.nlocal; i++) {
            unmap(d, i, k);
        }
    }
    changed(d);
    while (any_held(d) && rondo_now_ns() < end_ns) {
        sched_yield();
    }
    for (int k = 0; k < RONDO_DIRECT_REGIONS; k++) {
        if (is_held(d, k)) {
            RONDO_INFO(RONDO_SUBSYS_P2P | RONDO_SUBSYS_DESTROY,
                       "memory at %p of GPU %d is still in use by another rank after RONDO_P2P_CHECK: it is "
                       "kept until the process ends",
                       (void *)d->own[k].mem.base, d->own[k].mem.device->ordinal);
        } else {
            rondo_gpu_mem_close(&d->own[k].mem);
        }
    }
}

void rondo_cuda_direct_close(struct rondo_exec *exec)
{
    struct rondo_cuda_direct *d = exec->direct;
    if (d == NULL) {
        return;
    }
    RONDO_INFO(RONDO_SUBSYS_DESTROY, "rank %d: %llu works used direct access", exec->config.rank,
               (unsigned long long)d->works);
    rondo_cuda_copy_close(exec);
    if (exec->kept) {
        leave_all(d);
    } else if (d->places != NULL) {
        take_back(d, exec->stuck);
    } else if (!exec->stuck) {
        rondo_gpu_mem_close(&d->memory);
    }
    rondo_free(d->map);
    rondo_free(d);
    exec->direct = NULL;
}
