/* Direct access: OPEN, the moves, CLOSE. */
#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "coll/twoshot.h"
#include "kern/direct_impl.h"
#include "kern/cpu/exec_cpu.h"
#include "kern/reduce.h"

/* A slice: how much to move before other runs make progress. */
enum { SLICE_BYTES = 256 << 10, KERNEL_SLICE_BYTES = 1 << 20 };

/* Phases of OPEN, in flow->done. */
enum { NOT_BEGUN, OFFERED, ANSWERED };

/* A message of OPEN. It lies right after the arrival word even if it is longer than the line: the offer,
 * which every call reads, shares that line. */
enum { BEHIND_WORD = 8 };
struct message {
    struct rondo_direct_offer offer;
    struct rondo_segment_note note[RONDO_NUM_BUFFERS];
};
_Static_assert(sizeof(struct message) <= RONDO_TWOSHOT_BYTES &&
                   sizeof(struct rondo_direct_offer) <= RONDO_MAILBOX_INLINE,
               "a message fits its place, and an offer the arrival word's line");

/* ---- which bytes ---- */

/* Elements of all ranks' blocks together. */
static size_t gathered(const struct rondo_work *w)
{
    size_t end = 0;
    if (w->counts == NULL) {
        return w->block * (size_t)w->seat.nranks;
    }
    for (int r = 0; r < w->seat.nranks; r++) {
        end = rondo_max_size(end, (w->displs != NULL ? w->displs[r] : (size_t)r * w->block) + w->counts[r]);
    }
    return end;
}

/* Bytes of the buffers that other ranks access: one rank's part, or everything. */
static size_t extent(const struct rondo_work *w, int rank)
{
    size_t n = w->coll == RONDO_COLL_REDUCE_SCATTER || w->coll == RONDO_COLL_ALL_TO_ALL ? gathered(w)
               : w->coll == RONDO_COLL_ALL_GATHER && w->counts != NULL                  ? w->counts[rank]
                                                                                        : w->off + w->len;
    return n * w->elem_bytes;
}

static uint32_t move_of(const struct rondo_run *run)
{
    return run->schedule->flow[0].step(&run->work.seat, 1).act;
}

/* ---- OPEN ---- */

static struct rondo_direct_kind *kind_of(const struct rondo_work *w)
{
    return &w->direct->kind[w->coll][63 - __builtin_clzll((unsigned long long)w->len * w->elem_bytes | 1)];
}

int rondo_direct_declines(const struct rondo_work *w)
{
    struct rondo_direct_kind *kind = kind_of(w);
    return kind->wait > 0 && !rondo_direct_asks(kind);
}

/* Offer this rank's buffer to the others. */
static void offer_buffer(const struct rondo_work *w, struct message *m, int buffer, const void *ptr)
{
    struct rondo_direct *d = w->direct;
    struct rondo_place *place = &m->offer.buffer[buffer];
    size_t bytes = extent(w, d->index);
    /* Of an empty input it may be no address, and the kernel would be asked to read there. */
    int is_memory = bytes > 0 || d->one_process || buffer != RONDO_BUFFER_IN;
    place->at = is_memory ? (uint64_t)(uintptr_t)ptr : 0;
    place->segment = d->one_process || bytes == 0 ? 0 : rondo_direct_segment(d, buffer, ptr, bytes);
    if (d->one_process ||
        bytes == 0) { /* an empty block needs no memory: it must not send the others to the fallback */
        m->offer.open |= 1u << buffer;
    } else if (place->segment != 0) {
        const struct rondo_known *known = rondo_direct_known(d, place->segment);
        if (known != NULL) {
            m->offer.open |= (uint32_t)(known->base != NULL) << buffer;
        } else if (rondo_segment_note(place->segment, d->serve, &m->note[buffer]) == RONDO_SUCCESS) {
            m->offer.open |= 1u << buffer;
            m->offer.notes |= 1u << buffer;
        }
    }
}

/* all_to_all in place: others write to this rank's output, so it is offered too. */
static int is_swapped(const struct rondo_work *w)
{
    return w->coll == RONDO_COLL_ALL_TO_ALL && w->in == w->out;
}

static void publish_offers(const struct rondo_run *run)
{
    const struct rondo_work *w = &run->work;
    uint32_t needs = rondo_twoshot_needs(move_of(run), w->seat.index == w->seat.root) |
                     (uint32_t)is_swapped(w) << RONDO_BUFFER_OUT;
    struct message m;
    memset(&m.offer, 0, sizeof(m.offer));
    m.offer.in_place = w->in == w->out ||
                       (w->coll == RONDO_COLL_BROADCAST &&
                        w->seat.index != w->seat.root); /* a rank without input does not matter */
    if (w->coll == RONDO_COLL_REDUCE_SCATTER && w->displs != NULL) {
        m.offer.displs = rondo_hash(w->displs, sizeof(*w->displs) * (size_t)w->seat.nranks, 0);
    }
    w->direct->ncalls++;
    if ((move_of(run) & RONDO_GROUPS) || w->coll == RONDO_COLL_REDUCE_SCATTER) {
        /* nobody reads the count: all ranks have closed the call before */
        rondo_mailbox_report(w->mailbox, 0);
    }
    for (int b = 0; b < RONDO_NUM_BUFFERS; b++) {
        if (needs >> b & 1) {
            offer_buffer(w, &m, b, b == RONDO_BUFFER_IN ? (const void *)w->in : w->out);
        } else {
            m.offer.open |= 1u << b;
        }
    }
    w->direct->offer[w->direct->index] = m.offer;
    memcpy(w->direct->note, m.note, m.offer.notes != 0 ? sizeof(m.note) : 0);
    memcpy(rondo_mailbox_begin(w->mailbox) + BEHIND_WORD, &m,
           m.offer.notes != 0 ? sizeof(m) : sizeof(m.offer));
    rondo_mailbox_publish(w->mailbox, w->call_word);
}

/* Copy all ranks' offers, since the mailbox is needed again. @return 1: every owner says that its buffers can
 * be accessed. */
static int keep_offers(struct rondo_exec *exec, struct rondo_direct *d, int *notes, int *in_place)
{
    int open = 1;
    *notes = 0;
    *in_place = 1;
    for (int r = 0; r < d->nlocal; r++) {
        if (r != d->index) {
            memcpy(&d->offer[r], exec->sources[r], sizeof(d->offer[r]));
        }
        *in_place &= d->offer[r].in_place != 0;
        open &= d->offer[r].open == (1u << RONDO_NUM_BUFFERS) - 1;
        *notes |= d->offer[r].notes != 0;
    }
    for (int r = 0; open && *notes && r < d->nlocal; r++) {
        rondo_direct_touch(d, d->offer[r].buffer[RONDO_BUFFER_IN].segment);
        rondo_direct_touch(d, d->offer[r].buffer[RONDO_BUFFER_OUT].segment);
    }
    return open;
}

/* Where rank r's buffer is in this process. @return RONDO_INTERNAL_ERROR when it lies outside the segment
 * that r named. */
static rondo_status resolve(const struct rondo_work *w, int r, int buffer, uint8_t **ptr)
{
    struct rondo_direct *d = w->direct;
    const struct rondo_place *place = &d->offer[r].buffer[buffer];
    const struct rondo_known *known;
    size_t at;
    if (place->segment == 0 || d->reach == RONDO_REACH_CMA) {
        *ptr = (uint8_t *)(uintptr_t)place->at;
        return RONDO_SUCCESS;
    }
    known = rondo_direct_known(d, place->segment);
    rondo_direct_touch(d, place->segment);
    at = known != NULL ? place->at - known->owner_base : 0;
    if (known == NULL || known->base == NULL || at > known->bytes || extent(w, r) > known->bytes - at) {
        return rondo_fail(RONDO_INTERNAL_ERROR,
                          "the buffer of local rank %d lies outside the segment that it named", r);
    }
    *ptr = known->base + at;
    return RONDO_SUCCESS;
}

static int resolve_all(const struct rondo_work *w, rondo_status *status)
{
    struct rondo_direct *d = w->direct;
    for (int r = 0; r < d->nlocal; r++) {
        uint8_t *in = NULL;
        *status = resolve(w, r, RONDO_BUFFER_IN, &in);
        if (*status == RONDO_SUCCESS) {
            *status = resolve(w, r, RONDO_BUFFER_OUT, &d->out[r]);
        }
        d->in[r] = in;
        if (*status != RONDO_SUCCESS) {
            return -1;
        }
    }
    return 1;
}

/* Visit every unknown segment of the notes once, in the same order on all ranks. */
static void each_note(struct rondo_exec *exec, struct rondo_direct *d,
                      void (*visit)(struct rondo_direct *d, const struct rondo_segment_note *, int *),
                      int *arg)
{
    for (int r = 0; r < d->nlocal; r++) {
        for (int b = 0; b < RONDO_NUM_BUFFERS; b++) {
            if (d->offer[r].notes >> b & 1) {
                struct rondo_segment_note note = d->note[b];
                if (r != d->index) {
                    memcpy(&note, (const uint8_t *)exec->sources[r] + offsetof(struct message, note[b]),
                           sizeof(note));
                }
                if (rondo_direct_known(d, note.id) == NULL) {
                    visit(d, &note, arg);
                }
            }
        }
    }
}

/* Enter a segment into the table, mapped or not. If any rank fails to map it, all unmap it again. */
static void introduce(struct rondo_direct *d, const struct rondo_segment_note *note, int *failed)
{
    uint8_t *base = NULL;
    size_t bytes = 0;
    if (rondo_segment_get(note, &base, &bytes) != RONDO_SUCCESS) {
        *failed = 1;
        base = NULL;
    }
    rondo_direct_remember(d, note, base, bytes);
}

/* Map the new segments, or try CMA, and publish whether it worked. */
static void publish_answer(struct rondo_exec *exec, const struct rondo_work *w)
{
    struct rondo_direct *d = w->direct;
    int failed = 0;
    if (d->reach == RONDO_REACH_CMA) {
        failed = !rondo_cma_try(d);
    } else {
        rondo_direct_sweep(d);
        each_note(exec, d, introduce, &failed);
    }
    d->could = !failed;
    memcpy(rondo_mailbox_begin(w->mailbox) + BEHIND_WORD, &d->could, sizeof(d->could));
    rondo_mailbox_publish(w->mailbox, w->call_word);
}

/* Keep this call's new segments in the table as refused. */
static void refuse_segments(struct rondo_direct *d)
{
    for (int r = 0; r < d->nlocal; r++) {
        for (int b = 0; b < RONDO_NUM_BUFFERS; b++) {
            struct rondo_known *known = d->offer[r].notes >> b & 1
                                            ? rondo_direct_known(d, d->offer[r].buffer[b].segment)
                                            : NULL;
            if (known != NULL && known->base != NULL) {
                rondo_segment_put(known->id);
                known->base = NULL;
            }
        }
    }
}

/* Did it work for every rank? */
static int all_could(struct rondo_exec *exec, struct rondo_direct *d)
{
    uint32_t all = d->could, said;
    for (int r = 0; r < d->nlocal; r++) {
        if (r != d->index) {
            memcpy(&said, exec->sources[r], sizeof(said));
            all &= said;
        }
    }
    if (d->reach == RONDO_REACH_CMA) {
        d->cma = all ? RONDO_CMA_WORKS : RONDO_CMA_REFUSED;
        RONDO_INFO(RONDO_SUBSYS_TUNING,
                   "local rank %d: the kernel %s between the processes of this node (process_vm_readv)",
                   d->index, all ? "copies" : "does not copy");
    } else if (!all) {
        refuse_segments(d);
    }
    return (int)all;
}

static int same_displs(const struct rondo_direct *d)
{
    for (int r = 1; r < d->nlocal; r++) {
        if (d->offer[r].displs != d->offer[0].displs) {
            return 0;
        }
    }
    return 1;
}

static int not_direct(struct rondo_run *run)
{
    /* The one place tells nothing about the next call, which may be in the other, and asking costs little
     * beside such a copy. */
    if (run->work.cma < RONDO_KERNEL_IN_PLACE || run->work.direct->cma == RONDO_CMA_REFUSED) {
        rondo_direct_learn(kind_of(&run->work), 1);
    }
    run->verdict = RONDO_NOT_DIRECT;
    return 1;
}

static int opened(struct rondo_run *run, struct rondo_flow *flow, rondo_status *status)
{
    rondo_direct_learn(kind_of(&run->work), 0);
    run->verdict = RONDO_DIRECT;
    flow->done = flow->n;
    return resolve_all(&run->work, status);
}

/* All offers have arrived. @return 1: the verdict is reached, 0: a second round is needed, -1: *status is an
 * error. */
static int decide(struct rondo_exec *exec, struct rondo_run *run, struct rondo_flow *flow,
                  rondo_status *status)
{
    struct rondo_direct *d = run->work.direct;
    int notes, in_place, mapped = keep_offers(exec, d, &notes, &in_place);
    int copies = run->work.cma == RONDO_KERNEL_IN_PLACE ? in_place
                 : run->work.cma == RONDO_KERNEL_APART  ? !in_place
                                                        : run->work.cma != RONDO_KERNEL_NEVER;
    d->reach = mapped ? RONDO_REACH_MAPPED : RONDO_REACH_CMA;
    if (!same_displs(d)) { /* which tells nothing about the memory of other calls */
        run->verdict = RONDO_NOT_DIRECT;
        return 1;
    }
    if (!mapped && (!copies || d->cma == RONDO_CMA_REFUSED)) {
        return not_direct(run);
    }
    if (mapped ? !notes : d->cma == RONDO_CMA_WORKS) {
        return opened(run, flow, status);
    }
    publish_answer(exec, &run->work);
    flow->done = ANSWERED;
    flow->unit = 0;
    return 0;
}

static int open_step(struct rondo_exec *exec, struct rondo_run *run, struct rondo_flow *flow,
                     rondo_status *status, int *moved)
{
    const struct rondo_work *w = &run->work;
    int all;
    if (flow->done == NOT_BEGUN) {
        if (!rondo_direct_asks(kind_of(w))) {
            run->verdict = RONDO_NOT_DIRECT;
            return 1;
        }
        publish_offers(run);
        flow->done = OFFERED;
        flow->unit = 0;
    }
    all = rondo_mailbox_collect(exec, w, flow, BEHIND_WORD, status);
    if (all != 1) {
        return all;
    }
    *moved = 1;
    if (flow->done == OFFERED) {
        return decide(exec, run, flow, status);
    }
    return all_could(exec, w->direct) ? opened(run, flow, status) : not_direct(run);
}

/* ---- the moves ---- */

/* Where a slice goes. This rank's own buffer comes first: the others are copied from it while it is in the
 * cache. */
static int targets(const struct rondo_work *w, uint32_t act, size_t at, uint8_t **dst)
{
    const struct rondo_direct *d = w->direct;
    int n = 0;
    if (act & RONDO_PUSH_ROOT) {
        dst[n++] = d->out[w->seat.root] + at;
        return n;
    }
    dst[n++] = w->out + at;
    for (int i = 1; i < d->nlocal && (act & RONDO_PUSH); i++) {
        dst[n++] = d->out[(d->index + i) % d->nlocal] + at;
    }
    return n;
}

static void reduce_slice(struct rondo_exec *exec, const struct rondo_work *w, const struct rondo_flow *flow,
                         size_t n)
{
    const struct rondo_direct *d = w->direct;
    size_t from = (flow->in + flow->done) * w->elem_bytes, to = (flow->out + flow->done) * w->elem_bytes,
           bytes = n * w->elem_bytes;
    rondo_reduce_fn *reduce = rondo_reduce_get((rondo_dtype)w->dtype, (enum rondo_reduce)w->reduce);
    int ndst = targets(w, flow->step.act, to, exec->targets);
    size_t tile = ndst == 1 && !w->divide ? bytes : RONDO_TILE_BYTES;
    for (int r = 0; r < d->nlocal; r++) {
        exec->sources[r] = d->in[r] + from;
    }
    if (rondo_reduce_apart(exec, w, d->nlocal, exec->targets, ndst, n)) {
        return;
    }
    for (size_t at = 0; at < bytes; at += tile) {
        size_t here = rondo_min_size(tile, bytes - at);
        uint8_t *first = exec->targets[0] + at;
        reduce(first, exec->sources, d->nlocal, here / w->elem_bytes);
        if (w->divide) {
            rondo_divide(first, here / w->elem_bytes, (rondo_dtype)w->dtype, w->seat.nranks);
        }
        for (int i = 1; i < ndst; i++) {
            rondo_copy(exec->targets[i] + at, first, here, 0);
        }
        for (int r = 0; r < d->nlocal; r++) {
            exec->sources[r] = (const uint8_t *)exec->sources[r] + here;
        }
    }
}

static void copy_slice(struct rondo_exec *exec, const struct rondo_work *w, const struct rondo_flow *flow,
                       size_t n)
{
    const struct rondo_direct *d = w->direct;
    int source = flow->step.act & RONDO_PULL_ROOT ? w->seat.root : flow->step.block;
    const uint8_t *src = d->in[source] + (flow->in + flow->done) * w->elem_bytes;
    int ndst = targets(w, flow->step.act, (flow->out + flow->done) * w->elem_bytes, exec->targets);
    size_t bytes = n * w->elem_bytes, tile = ndst == 1 ? bytes : RONDO_TILE_BYTES;
    for (size_t at = 0; at < bytes; at += tile) {
        for (int i = 0; i < ndst; i++) {
            if (exec->targets[i] != src) {
                rondo_copy(exec->targets[i] + at, src + at, rondo_min_size(tile, bytes - at),
                           rondo_past_caches(w));
            }
        }
    }
}

/* Slices that the kernel only copies are longer: a system call costs as much as copying a few KiB. */
static size_t slice_bytes(const struct rondo_work *w, uint32_t act)
{
    int longer = w->direct->reach == RONDO_REACH_CMA &&
                 (act & (RONDO_REDUCE | RONDO_PUSH | RONDO_PUSH_ROOT)) == 0;
    return longer ? KERNEL_SLICE_BYTES : SLICE_BYTES;
}

/* ---- all_to_all in place ---- */

/*
 * Where a rank's input is its output, what arrives takes the place of what leaves, so two ranks swap their
 * blocks: each swaps one half. If only one of the two is in place, the other moves both blocks. A rank that
 * is in place has offered its output in OPEN.
 */

/* Part of two blocks that change places: the peer's goes here, this rank's goes there. */
struct piece {
    const uint8_t *theirs, *mine;
    uint8_t *here, *there;
};

static int swaps(const struct rondo_work *w, int peer)
{
    return w->coll == RONDO_COLL_ALL_TO_ALL && peer != w->direct->index &&
           (w->in == w->out || w->direct->out[peer] != NULL);
}

/* Which of the block's n elements this rank moves: [*begin, *end). */
static void own_part(const struct rondo_work *w, int peer, size_t n, size_t *begin, size_t *end)
{
    int me_in_place = w->in == w->out, both = me_in_place && w->direct->out[peer] != NULL,
        first = w->direct->index < peer;
    *begin = both && !first ? n / 2 : 0;
    *end = (both && first) ? n / 2 : me_in_place && !both ? 0 : n;
}

static void swap_mapped(struct rondo_exec *exec, const struct piece *p, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += RONDO_TILE_BYTES) {
        size_t here = rondo_min_size(RONDO_TILE_BYTES, bytes - at);
        memcpy(exec->tile[0], p->theirs + at, here);
        memcpy(p->there + at, p->mine + at, here);
        memcpy(p->here + at, exec->tile[0], here);
    }
}

static int swap_by_kernel(const struct rondo_work *w, int peer, const struct piece *p, size_t bytes,
                          rondo_status *status)
{
    const struct rondo_direct *d = w->direct;
    size_t chunk = rondo_cma_chunk(d), n;
    for (size_t at = 0; at < bytes; at += n) {
        n = rondo_min_size(chunk, bytes - at);
        if (!rondo_cma_carry(d, peer, 0, d->scratch, p->theirs + at, n, status) ||
            !rondo_cma_carry(d, peer, 1, (uint8_t *)p->mine + at, p->there + at, n, status)) {
            return 0;
        }
        memcpy(p->here + at, d->scratch, n);
    }
    return 1;
}

static int swap_move(struct rondo_exec *exec, const struct rondo_work *w, const struct rondo_flow *flow,
                     size_t n, rondo_status *status)
{
    int peer = flow->step.block;
    size_t begin, end, at, bytes;
    struct piece p;
    own_part(w, peer, flow->n, &begin, &end);
    begin = rondo_max_size(begin, flow->done);
    end = rondo_min_size(end, flow->done + n);
    if (begin >= end) {
        return 1;
    }
    at = begin * w->elem_bytes;
    bytes = (end - begin) * w->elem_bytes;
    p.theirs = w->direct->in[peer] + flow->in * w->elem_bytes + at;
    p.there = w->direct->out[peer] + flow->in * w->elem_bytes + at;
    p.mine = w->in + flow->out * w->elem_bytes +
             at; /* a block's place in the input is its place in the output */
    p.here = w->out + flow->out * w->elem_bytes + at;
    if (w->direct->reach == RONDO_REACH_CMA) {
        return swap_by_kernel(w, peer, &p, bytes, status);
    }
    swap_mapped(exec, &p, bytes);
    return 1;
}

/* ---- reduce_scatter with the result at the start of the input ---- */

/* Rank 0's block lies there, and only rank 0 reads it: it announces its slices, and each of the others writes
 * a slice after rank 0. Slices have the same length on all ranks. */
static uint32_t nslices(size_t elements, size_t most) { return (uint32_t)((elements + most - 1) / most); }

static int move_step(struct rondo_exec *exec, const struct rondo_run *run, struct rondo_flow *flow,
                     rondo_status *status, int *moved)
{
    const struct rondo_work *w = &run->work;
    size_t n, most = slice_bytes(w, flow->step.act) / w->elem_bytes;
    int passed = 1;
    if (w->direct->reach == RONDO_REACH_CMA && (flow->step.act & RONDO_PUSH_ROOT) && flow->done == 0) {
        rondo_cma_span(w, flow);
    }
    n = rondo_min_size(flow->n - flow->done, most);
    if (n == 0) {
        return 1;
    }
    if (run->in_place && !rondo_mailbox_reached(w->mailbox, 0, nslices(flow->done + n, most))) {
        return 0;
    }
    if (!rondo_mailbox_enter(w->mailbox)) {
        return 0; /* another rank has ended the call with an error, which it reports */
    }
    if (swaps(w, flow->step.block)) {
        passed = swap_move(exec, w, flow, n, status);
    } else if (w->direct->reach == RONDO_REACH_CMA) {
        passed = rondo_cma_move(exec, w, flow, n, status);
    } else {
        (flow->step.act & RONDO_REDUCE ? reduce_slice : copy_slice)(exec, w, flow, n);
    }
    rondo_mailbox_leave(w->mailbox);
    flow->done += n;
    *moved = 1;
    if (passed && w->coll == RONDO_COLL_REDUCE_SCATTER && w->seat.index == 0) {
        rondo_mailbox_report(w->mailbox, nslices(flow->done, most));
    }
    return passed ? flow->done >= flow->n : -1;
}

/* ---- CLOSE ---- */

static int close_step(struct rondo_exec *exec, const struct rondo_work *w, struct rondo_flow *flow,
                      rondo_status *status)
{
    int all;
    if (flow->done == 0) {
        rondo_mailbox_begin(w->mailbox);
        rondo_mailbox_publish(w->mailbox, w->call_word);
        flow->done = 1;
        flow->unit = 0;
    }
    all = rondo_mailbox_collect(exec, w, flow, BEHIND_WORD, status);
    if (all == 1) {
        flow->done = rondo_max_size(flow->n, 1);
    }
    return all;
}

/* With several loops, the first one opens and the last one closes. */
static int is_passed(const struct rondo_run *run, const struct rondo_flow *flow)
{
    return (flow->step.act & RONDO_OPEN)
               ? flow->loop > 0
               : (flow->step.act & RONDO_CLOSE) != 0 && flow->loop + 1 < run->nloops;
}

int rondo_direct_step(struct rondo_exec *exec, struct rondo_run *run, struct rondo_flow *flow,
                      rondo_status *status, int *moved)
{
    if (is_passed(run, flow)) {
        flow->done = flow->n;
        return 1;
    }
    if (flow->step.act & RONDO_OPEN) {
        return open_step(exec, run, flow, status, moved);
    }
    if (flow->step.act & RONDO_CLOSE) {
        return close_step(exec, &run->work, flow, status);
    }
    return (flow->step.act & RONDO_GROUPS) ? rondo_hierarchical_move(exec, run, flow, status, moved)
                                           : move_step(exec, run, flow, status, moved);
}
