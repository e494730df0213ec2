/* Moves of hierarchical algorithms (coll/hierarchical.h) by direct access: block by block, between the ranks
 * that hold the block in the inner groups. */
#include "coll/chunk.h"
#include "coll/hierarchical.h"
#include "kern/direct_impl.h"
#include "kern/cpu/exec_cpu.h"
#include "kern/reduce.h"

/* How much to move before other runs make progress. */
enum { PROGRESS_BYTES = 256 << 10 };

/* A step of this rank, and its current block. */
struct move {
    struct rondo_exec *exec;
    const struct rondo_work *w;
    const struct rondo_step *step;
    int begin, end, place; /* positions of the group, and this rank's */
    int block;
};

static const struct rondo_nest *nest_of(const struct move *m) { return m->w->direct->nest; }

/* The local rank that holds the block in the inner group beginning at a position. */
static int holder_of(const struct move *m, int position)
{
    return rondo_nest_rank(nest_of(m), m->step->level + 1, position, m->block);
}

static int next_group(const struct move *m, int position)
{
    return rondo_nest_end(nest_of(m), m->step->level + 1, position);
}

/* The next group, cyclically. */
static int after(const struct move *m, int position)
{
    int next = next_group(m, position);
    return next < m->end ? next : m->begin;
}

/* At the innermost level a group is one rank, whose data is its input; outer groups have their holders'
 * results. */
static int from_inputs(const struct move *m) { return m->step->level == nest_of(m)->nlevels; }

/* ---- which ranks to wait for ---- */

/* Have the ranks whose data this step reads or passes on done `count` moves? @return -1: yes, else the local
 * rank of a straggler. */
static int straggler(const struct move *m, uint32_t count)
{
    const struct rondo_mailbox *mailbox = m->w->mailbox;
    if ((m->step->act & RONDO_PULL) == 0) {
        int giver = rondo_nest_rank(nest_of(m), m->step->level - 1, m->place, m->block);
        return rondo_mailbox_reached(mailbox, giver, count) ? -1 : giver;
    }
    for (int c = m->begin; c < m->end && !from_inputs(m); c = next_group(m, c)) {
        int holder = holder_of(m, c);
        if (!rondo_mailbox_reached(mailbox, holder, count)) {
            return holder;
        }
    }
    return -1;
}

/* ---- a part of a block ---- */

/* Scratch per group: this step's groups share all of it. */
static size_t chunk_of(const struct move *m)
{
    const struct rondo_direct *d = m->w->direct;
    size_t n = 0;
    for (int c = m->begin; c < m->end; c = next_group(m, c)) {
        n++;
    }
    return rondo_cma_chunk(d) * (size_t)d->nlocal / n / RONDO_CTRL_ALIGN * RONDO_CTRL_ALIGN;
}

/* Point exec->sources to the holders' data, copied to scratch for CMA. @return the number of sources; 0:
 * *status is an error. */
static int fetch(const struct move *m, size_t at, size_t bytes, rondo_status *status)
{
    const struct rondo_direct *d = m->w->direct;
    int n = 0;
    for (int c = m->begin; c < m->end; c = next_group(m, c)) {
        int r = holder_of(m, c);
        const uint8_t *there = (from_inputs(m) ? d->in[r] : d->out[r]) + at;
        if (d->reach == RONDO_REACH_CMA && r != d->index) {
            uint8_t *scratch = d->scratch + (size_t)n * bytes;
            if (!rondo_cma_carry(d, r, 0, scratch, there, bytes, status)) {
                return 0;
            }
            there = scratch;
        }
        m->exec->sources[n++] = there;
    }
    return n;
}

/* Reduce into this rank's output. */
static void combine(const struct move *m, int nsources, size_t at, size_t bytes)
{
    const struct rondo_work *w = m->w;
    const void **sources = m->exec->sources;
    size_t n = bytes / w->elem_bytes;
    if (nsources > 1 || sources[0] != w->out + at) {
        rondo_reduce_get((rondo_dtype)w->dtype, (enum rondo_reduce)w->reduce)(w->out + at, sources, nsources,
                                                                              n);
    }
    if (w->divide && (m->step->act & RONDO_FINISH)) {
        rondo_divide(w->out + at, n, (rondo_dtype)w->dtype, w->seat.nranks);
    }
}

/* Copy from this rank's output to the holders', beginning after this rank so that not all begin with the same
 * one. @return 0: *status is an error. */
static int give(const struct move *m, size_t at, size_t bytes, rondo_status *status)
{
    const struct rondo_work *w = m->w;
    const struct rondo_direct *d = w->direct;
    int last = from_inputs(m) && rondo_past_caches(w); /* nobody passes it on */
    int own = rondo_nest_begin(nest_of(m), m->step->level + 1, m->place);
    for (int c = after(m, own); c != own; c = after(m, c)) {
        int r = holder_of(m, c);
        if (d->reach != RONDO_REACH_CMA) {
            rondo_copy(d->out[r] + at, w->out + at, bytes, last);
        } else if (!rondo_cma_carry(d, r, 1, w->out + at, d->out[r] + at, bytes, status)) {
            return 0;
        }
    }
    return 1;
}

/* Tiles stay in the first-level cache until all holders have them. @return 0: *status is an error. */
static int pass_mapped(const struct move *m, size_t at, size_t bytes, rondo_status *status)
{
    int reduces = (m->step->act & RONDO_PULL) != 0, gives = (m->step->act & RONDO_PUSH) != 0;
    size_t tile = reduces && gives ? RONDO_TILE_BYTES : bytes;
    int n = reduces ? fetch(m, at, bytes, status) : 0;
    for (size_t done = 0; done < bytes; done += tile) {
        size_t here = rondo_min_size(tile, bytes - done);
        if (reduces) {
            combine(m, n, at + done, here);
        }
        for (int i = 0; i < n; i++) {
            m->exec->sources[i] = (const uint8_t *)m->exec->sources[i] + here;
        }
        if (gives && !give(m, at + done, here, status)) {
            return 0;
        }
    }
    return 1;
}

static int pass_cma(const struct move *m, size_t at, size_t bytes, rondo_status *status)
{
    size_t chunk = chunk_of(m);
    for (size_t done = 0; done < bytes; done += chunk) {
        size_t here = rondo_min_size(chunk, bytes - done);
        int n = (m->step->act & RONDO_PULL) ? fetch(m, at + done, here, status) : 0;
        if (n == 0 && (m->step->act & RONDO_PULL)) {
            return 0;
        }
        if (n > 0) {
            combine(m, n, at + done, here);
        }
        if ((m->step->act & RONDO_PUSH) && !give(m, at + done, here, status)) {
            return 0;
        }
    }
    return 1;
}

/* ---- a step ---- */

static struct move move_of(struct rondo_exec *exec, const struct rondo_run *run,
                           const struct rondo_flow *flow)
{
    const struct rondo_nest *nest = run->work.direct->nest;
    struct move m = {
        .exec = exec, .w = &run->work, .step = &flow->step, .place = nest->place[run->work.direct->index]
    };
    m.begin = rondo_nest_begin(nest, flow->step.level, m.place);
    m.end = rondo_nest_end(nest, flow->step.level, m.place);
    return m;
}

/* Move the blocks that this rank holds until one is not ready. @return 1: all are done, 0: not yet, -1:
 * *status is an error. */
static int pass_blocks(struct move *m, const struct rondo_run *run, struct rondo_flow *flow, uint32_t before,
                       rondo_status *status, int *moved)
{
    const struct rondo_nest *nest = nest_of(m);
    size_t bytes = 0;
    for (; flow->done < (size_t)nest->n && bytes < PROGRESS_BYTES; flow->done++) {
        m->block = (int)flow->done;
        if (rondo_nest_holder(nest, m->step->level, m->place, m->block) != m->place) {
            continue;
        }
        struct rondo_span span = rondo_work_span(m->w, run->schedule->map, flow->loop, m->block);
        int late = span.n == 0 ? -1 : straggler(m, before);
        if (late >= 0) {
            flow->unit = (size_t)late;
            return 0;
        }
        size_t n = span.n * m->w->elem_bytes;
        if (!(m->w->direct->reach == RONDO_REACH_CMA ? pass_cma : pass_mapped)(m, span.out * m->w->elem_bytes,
                                                                               n, status)) {
            return -1;
        }
        bytes += n;
        *moved |= n > 0;
    }
    return flow->done == (size_t)nest->n;
}

int rondo_hierarchical_move(struct rondo_exec *exec, struct rondo_run *run, struct rondo_flow *flow,
                            rondo_status *status, int *moved)
{
    struct move m = move_of(exec, run, flow);
    uint32_t before = (uint32_t)flow->loop * rondo_hierarchical_moves(run->work.seat.nlevels) + flow->k -
                      1; /* moves that this rank has done */
    int passed;
    if (!rondo_mailbox_enter(run->work.mailbox)) {
        return 0; /* another rank has ended the call with an error, which it reports */
    }
    passed = pass_blocks(&m, run, flow, before, status, moved);
    rondo_mailbox_leave(run->work.mailbox);
    if (passed == 1) {
        rondo_mailbox_report(run->work.mailbox, before + 1);
        flow->done = rondo_max_size(flow->n, flow->done);
        *moved = 1;
    }
    return passed;
}
