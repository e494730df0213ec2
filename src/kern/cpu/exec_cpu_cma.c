/* Direct access to unmapped memory of other processes: the kernel copies (CMA), through scratch that fits the
 * second-level cache. */
#include <string.h>
#include <sys/uio.h>

#include "base/log.h"
#include "base/mem.h"
#include "kern/direct_impl.h"
#include "kern/cpu/exec_cpu.h"
#include "kern/reduce.h"

enum { SCRATCH_BYTES = 512 << 10, MOST_CHUNK = 128 << 10, LEAST_CHUNK = 4 << 10, PROBE_BYTES = 8 };

size_t rondo_cma_chunk(const struct rondo_direct *d)
{
    size_t chunk = SCRATCH_BYTES / (size_t)d->nlocal / RONDO_CTRL_ALIGN * RONDO_CTRL_ALIGN;
    return chunk > MOST_CHUNK ? MOST_CHUNK : chunk < LEAST_CHUNK ? LEAST_CHUNK : chunk;
}

static ssize_t transfer(const struct rondo_direct *d, int r, int writes, void *here, const void *there,
                        size_t bytes)
{
    struct iovec local = { here, bytes }, remote = { (void *)(uintptr_t)there, bytes };
    return (writes ? process_vm_writev : process_vm_readv)(d->pids[r], &local, 1, &remote, 1, 0);
}

int rondo_cma_try(struct rondo_direct *d)
{
    uint8_t word[PROBE_BYTES];
    if (d->pids == NULL ||
        (d->scratch == NULL && rondo_calloc(&d->scratch, (size_t)d->nlocal, rondo_cma_chunk(d),
                                            "scratch of CMA") != RONDO_SUCCESS)) {
        return 0;
    }
    for (int r = 0; r < d->nlocal; r++) {
        uint64_t at = d->offer[r].buffer[RONDO_BUFFER_IN].at;
        at = at != 0 ? at : d->offer[r].buffer[RONDO_BUFFER_OUT].at;
        if (r != d->index && at != 0 && transfer(d, r, 0, word, (const void *)(uintptr_t)at, 1) != 1) {
            return 0;
        }
    }
    return 1;
}

int rondo_cma_carry(const struct rondo_direct *d, int r, int writes, void *here, const void *there,
                    size_t bytes, rondo_status *status)
{
    ssize_t n = transfer(d, r, writes, here, there, bytes);
    if (RONDO_LIKELY(n == (ssize_t)bytes)) {
        return 1;
    }
    *status = n < 0
                  ? rondo_fail(RONDO_REMOTE_ERROR,
                               "cannot %s %zu bytes at %p of local rank %d (process %d) on host %s: %m; has "
                               "it ended, or freed its buffer?",
                               writes ? "write" : "read", bytes, there, r, (int)d->pids[r], rondo_log_host())
                  : rondo_fail(RONDO_REMOTE_ERROR,
                               "only %zd of %zu bytes at %p of local rank %d (process %d) on host %s could "
                               "be %s: its buffer is shorter than "
                               "its call says",
                               n, bytes, there, r, (int)d->pids[r], rondo_log_host(),
                               writes ? "written" : "read");
    return 0;
}

/* ---- equal shares of time ---- */

void rondo_cma_span(const struct rondo_work *w, struct rondo_flow *flow)
{
    size_t n = (size_t)w->seat.nranks, others = n - 1, line = RONDO_CACHE_LINE / w->elem_bytes, begin = 0;
    size_t root = w->len / (n + others * others) * n / line * line, each = root;
    if (w->seat.index != w->seat.root) {
        each = ((w->len - root + others - 1) / others + line - 1) / line * line;
        begin = rondo_min_size(root + each * (size_t)(w->seat.index - (w->seat.index > w->seat.root)),
                               w->len);
    }
    flow->in = flow->out = w->off + begin;
    flow->n = rondo_min_size(each, w->len - begin);
}

/* ---- the moves ---- */

/* Write a result that lies at `from` to the ranks that the act names. Skip rank `has` where the data is at
 * `src` already; other ranks may use the same address in other processes. */
static int give(const struct rondo_work *w, uint32_t act, size_t at, uint8_t *from, int has,
                const uint8_t *src, size_t bytes, rondo_status *status)
{
    const struct rondo_direct *d = w->direct;
    int all = (act & RONDO_PUSH) != 0;
    for (int i = 1; i < d->nlocal && (act & (RONDO_PUSH | RONDO_PUSH_ROOT)); i++) {
        int r = (d->index + i) % d->nlocal;
        uint8_t *to = d->out[r] + at;
        if ((all || r == w->seat.root) && (r != has || to != src) &&
            !rondo_cma_carry(d, r, 1, from, to, bytes, status)) {
            return 0;
        }
    }
    return 1;
}

static int reduce_chunk(struct rondo_exec *exec, const struct rondo_work *w, const struct rondo_flow *flow,
                        size_t at, size_t bytes, rondo_status *status)
{
    struct rondo_direct *d = w->direct;
    size_t from = flow->in * w->elem_bytes + at, to = flow->out * w->elem_bytes + at,
           chunk = rondo_cma_chunk(d);
    uint8_t *own = d->scratch + (size_t)d->index * chunk, *first = w->out + to;
    for (int r = 0; r < d->nlocal; r++) {
        uint8_t *scratch = d->scratch + (size_t)r * chunk;
        exec->sources[r] = r == d->index ? d->in[r] + from : scratch;
        if (r != d->index && !rondo_cma_carry(d, r, 0, scratch, d->in[r] + from, bytes, status)) {
            return 0;
        }
    }
    if ((flow->step.act & RONDO_PUSH) &&
        /* this rank stores past the caches, so copy the others' results from scratch, which is in them */
        rondo_past_caches(w)) {
        struct rondo_reduction what = rondo_work_reduction(exec, w, d->nlocal);
        rondo_reduce_past(&what, &first, 1, own, bytes / w->elem_bytes);
        return give(w, flow->step.act, to, own, d->index, NULL, bytes, status);
    }
    /* A result for the root alone goes to scratch. */
    first = (flow->step.act & RONDO_PUSH_ROOT) && w->seat.index != w->seat.root ? own : first;
    rondo_reduce_get((rondo_dtype)w->dtype, (enum rondo_reduce)w->reduce)(first, exec->sources, d->nlocal,
                                                                          bytes / w->elem_bytes);
    if (w->divide) {
        rondo_divide(first, bytes / w->elem_bytes, (rondo_dtype)w->dtype, w->seat.nranks);
    }
    return give(w, flow->step.act, to, first, d->index, NULL, bytes, status);
}

static int copy_chunk(const struct rondo_work *w, const struct rondo_flow *flow, size_t at, size_t bytes,
                      rondo_status *status)
{
    const struct rondo_direct *d = w->direct;
    int source = flow->step.act & RONDO_PULL_ROOT ? w->seat.root : flow->step.block;
    const uint8_t *src = d->in[source] + flow->in * w->elem_bytes + at;
    size_t to = flow->out * w->elem_bytes + at;
    if (source != d->index) {
        return rondo_cma_carry(d, source, 0, w->out + to, src, bytes, status) &&
               give(w, flow->step.act, to, w->out + to, source, src, bytes, status);
    }
    if (w->out + to != src) {
        rondo_copy(w->out + to, src, bytes, w->stream);
    }
    return give(w, flow->step.act, to, (uint8_t *)src, source, src, bytes,
                /* copy from the source, which is in the caches; the output may have been stored past them */
                status);
}

int rondo_cma_move(struct rondo_exec *exec, const struct rondo_work *w, const struct rondo_flow *flow,
                   size_t n, rondo_status *status)
{
    size_t begin = flow->done * w->elem_bytes, end = begin + n * w->elem_bytes,
           chunk = rondo_cma_chunk(w->direct), bytes;
    int reduces = (flow->step.act & RONDO_REDUCE) != 0;
    if ((flow->step.act & (RONDO_REDUCE | RONDO_PUSH | RONDO_PUSH_ROOT)) == 0) {
        chunk = end - begin; /* nothing is read twice, and a system call costs as much as copying a few KiB */
    }
    for (size_t at = begin; at < end; at += bytes) {
        bytes = rondo_min_size(chunk, end - at);
        if (!(reduces ? reduce_chunk(exec, w, flow, at, bytes, status)
                      : copy_chunk(w, flow, at, bytes, status))) {
            return 0;
        }
    }
    return 1;
}
