/* The mailbox: one-shot algorithms, access marks and progress counts. */
#include <sched.h>
#include <string.h>

#include "base/cores.h"
#include "base/wait.h"
#include "coll/chunk.h"
#include "kern/cpu/exec_cpu.h"
#include "kern/reduce.h"

/* To even out the ranks on the cores: from the first look to the second, and pauses after a move, each twice
 * as long as the last. */
enum { SECOND_LOOK_NS = 50 * 1000, LEAST_PAUSE_NS = 1000 * 1000, MOST_PAUSE_NS = 1000 * 1000 * 1000 };

/* Threads map the mailbox at different addresses, so ThreadSanitizer cannot see that a reader sees what a
 * writer published. Tell it. */
#ifdef __SANITIZE_THREAD__
void __tsan_release(void *address);
void __tsan_acquire(void *address);
static char all_mailboxes;
static void sanitizer_release(void) { __tsan_release(&all_mailboxes); }
static void sanitizer_acquire(void) { __tsan_acquire(&all_mailboxes); }
#else
static void sanitizer_release(void) {}
static void sanitizer_acquire(void) {}
#endif

uint8_t *rondo_mailbox_begin(struct rondo_mailbox *mailbox)
{
    mailbox->op += mailbox->op == UINT32_MAX
                       ? 3
                       : 1; /* skip 0, which fresh memory holds, and 1, which would use the same bank again */
    return rondo_mailbox_place(mailbox, mailbox->op, mailbox->index);
}

void rondo_mailbox_publish(struct rondo_mailbox *mailbox, uint32_t call_word)
{
    uint64_t *word = (uint64_t *)(void *)rondo_mailbox_place(mailbox, mailbox->op, mailbox->index);
    sanitizer_release();
    __atomic_store_n(word, (uint64_t)call_word << 32 | mailbox->op, __ATOMIC_RELEASE);
}

int rondo_mailbox_collect(struct rondo_exec *exec, const struct rondo_work *w, struct rondo_flow *flow,
                          size_t at, rondo_status *status)
{
    const struct rondo_mailbox *mailbox = w->mailbox;
    for (; flow->unit < (size_t)mailbox->nranks; flow->unit++) {
        const uint8_t *place = rondo_mailbox_place(mailbox, mailbox->op, (int)flow->unit);
        uint64_t word;
        if ((int)flow->unit == mailbox->index) { /* others may overwrite it */
            exec->sources[flow->unit] = NULL;
            continue;
        }
        exec->sources[flow->unit] = place + at;
        word = rondo_mailbox_look(exec, place, mailbox->op);
        if ((uint32_t)word != mailbox->op) {
            return 0;
        }
        if (RONDO_UNLIKELY((uint32_t)(word >> 32) != w->call_word)) {
            *status = exec->owner->mismatch(exec->owner->arg, -1 - (int)flow->unit, w,
                                            (uint32_t)(word >> 32));
            return -1;
        }
    }
    sanitizer_acquire();
    return 1;
}

/* ---- access marks: seq_cst, so that of two ranks at least one sees the other's mark ---- */

int rondo_mailbox_enter(const struct rondo_mailbox *mailbox)
{
    const uint32_t *revoked = rondo_mailbox_mark(mailbox, mailbox->nranks);
    if (RONDO_UNLIKELY(__atomic_load_n(revoked, __ATOMIC_RELAXED) != 0)) {
        return 0; /* leave the mark unset: a rank that revokes access waits until it is clear */
    }
    (void)__atomic_exchange_n(rondo_mailbox_mark(mailbox, mailbox->index), 1, __ATOMIC_SEQ_CST);
    if (RONDO_LIKELY(__atomic_load_n(revoked, __ATOMIC_SEQ_CST) == 0)) {
        return 1;
    }
    rondo_mailbox_leave(mailbox);
    return 0;
}

void rondo_mailbox_leave(const struct rondo_mailbox *mailbox)
{
    sanitizer_release();
    __atomic_store_n(rondo_mailbox_mark(mailbox, mailbox->index), 0, __ATOMIC_RELEASE);
}

void rondo_mailbox_revoke(const struct rondo_mailbox *mailbox, const struct rondo_exec_owner *owner)
{
    int64_t start = rondo_now_ns();
    (void)__atomic_exchange_n(rondo_mailbox_mark(mailbox, mailbox->nranks), 1, __ATOMIC_SEQ_CST);
    for (int r = 0; r < mailbox->nranks; r++) {
        while (r != mailbox->index &&
               __atomic_load_n(rondo_mailbox_mark(mailbox, r), __ATOMIC_SEQ_CST) != 0) {
            if (owner->given_up != NULL && owner->given_up(owner->arg, r, rondo_now_ns() - start)) {
                break;
            }
            sched_yield();
        }
    }
    sanitizer_acquire();
}

/* ---- progress counts ---- */

void rondo_mailbox_report(const struct rondo_mailbox *mailbox, uint32_t count)
{
    sanitizer_release();
    __atomic_store_n(rondo_mailbox_count(mailbox, mailbox->index), count, __ATOMIC_RELEASE);
}

int rondo_mailbox_reached(const struct rondo_mailbox *mailbox, int rank, uint32_t count)
{
    int all = __atomic_load_n(rondo_mailbox_count(mailbox, rank), __ATOMIC_ACQUIRE) >= count;
    sanitizer_acquire();
    return all;
}

/* all_to_all and reduce_scatter publish a block for each other rank. */
static int for_each_a_block(const struct rondo_work *w)
{
    return w->coll == RONDO_COLL_ALL_TO_ALL || w->coll == RONDO_COLL_REDUCE_SCATTER;
}

/* Elements of a loop's payload, or of a block in it. Blocks of v-forms differ in length. */
static size_t piece_of(const struct rondo_work *w) { return rondo_min_size(w->chunk, w->len); }

/* Offset of a one-shot work's payload in a place. */
static size_t payload_at(const struct rondo_work *w)
{
    size_t n = for_each_a_block(w) ? piece_of(w) * (size_t)(w->mailbox->nranks - 1) : piece_of(w);
    return rondo_mailbox_at(w->counts != NULL ? SIZE_MAX : n * w->elem_bytes);
}

/* Offset in bytes, in a payload with one block per other rank, of the block from `from` to `to`. */
static size_t block_at(const struct rondo_work *w, int from, int to)
{
    return (size_t)(to - (to > from)) * piece_of(w) * w->elem_bytes;
}

/* ---- rooted calls: broadcast and reduce ---- */

static int is_rooted(const struct rondo_work *w)
{
    return w->coll == RONDO_COLL_BROADCAST || w->coll == RONDO_COLL_REDUCE;
}

static uint64_t rooted_word(const struct rondo_mailbox *mailbox, uint32_t op, int rank)
{
    return __atomic_load_n((const uint64_t *)(const void *)rondo_mailbox_rooted(mailbox, op, rank),
                           __ATOMIC_ACQUIRE);
}

/* The last call before `op` that a rank has published, among those in other banks than `op`'s. If there is
 * none, `op` less the number of banks. */
static uint32_t last_published(const struct rondo_mailbox *mailbox, uint32_t op, int rank)
{
    uint32_t at = op - 1;
    for (; at != op - RONDO_ROOTED_BANKS; at--) {
        uint64_t word = rooted_word(mailbox, at, rank);
        if (word != 0 && (int32_t)((uint32_t)word - at) >= 0) {
            break;
        }
    }
    return at;
}

/* May this rank overwrite its place for `op`, because everyone has read the old message? Looks at other
 * places only when rooted_seen does not tell. */
static int may_publish(struct rondo_mailbox *mailbox, uint32_t op, struct rondo_flow *flow)
{
    uint32_t least = op - 1;
    if (RONDO_LIKELY(op - mailbox->rooted_seen < RONDO_ROOTED_BANKS)) {
        return 1;
    }
    for (int r = 0; r < mailbox->nranks; r++) {
        uint32_t at = r == mailbox->index ? op - 1 : last_published(mailbox, op, r);
        if (op - at == RONDO_ROOTED_BANKS) {
            flow->unit = (size_t)r;
            return 0;
        }
        least = op - at > op - least ? at : least;
    }
    sanitizer_acquire();
    mailbox->rooted_seen = least;
    return 1;
}

static int publish_rooted(const struct rondo_work *w, struct rondo_flow *flow)
{
    struct rondo_mailbox *mailbox = w->mailbox;
    uint32_t op = mailbox->rooted + 1;
    uint8_t *place = rondo_mailbox_rooted(mailbox, op, mailbox->index), *payload = place + payload_at(w);
    if (!may_publish(mailbox, op, flow)) {
        return 0;
    }
    mailbox->rooted = op;
    flow->called = op;
    if (w->premul) {
        rondo_premul(payload, w->in, w->len, (rondo_dtype)w->dtype, w->scalar);
    } else if (w->coll == RONDO_COLL_REDUCE || w->seat.index == w->seat.root) {
        memcpy(payload, w->in, w->len * w->elem_bytes);
    }
    sanitizer_release();
    __atomic_store_n((uint64_t *)(void *)place, (uint64_t)w->call_word << 32 | op, __ATOMIC_RELEASE);
    return 1;
}

/* As rondo_mailbox_collect, for the messages that this rank needs: the root's, or everyone's. */
static int collect_rooted(struct rondo_exec *exec, const struct rondo_work *w, struct rondo_flow *flow,
                          rondo_status *status)
{
    const struct rondo_mailbox *mailbox = w->mailbox;
    size_t at = payload_at(w);
    for (; flow->unit < (size_t)mailbox->nranks; flow->unit++) {
        int r = (int)flow->unit;
        const uint8_t *place = rondo_mailbox_rooted(mailbox, mailbox->rooted, r);
        uint64_t word;
        exec->sources[r] = place + at;
        if (r == mailbox->index || (w->coll == RONDO_COLL_BROADCAST && r != w->seat.root)) {
            continue;
        }
        word = rondo_mailbox_look(exec, place, mailbox->rooted);
        if ((uint32_t)word != mailbox->rooted || word == 0) { /* 0: fresh memory; call words are never 0 */
            return 0;
        }
        if (RONDO_UNLIKELY((uint32_t)(word >> 32) != w->call_word)) {
            *status = exec->owner->mismatch(exec->owner->arg, -1 - r, w, (uint32_t)(word >> 32));
            return -1;
        }
    }
    sanitizer_acquire();
    return 1;
}

int rondo_mailbox_differs(const struct rondo_run *run, int *unknown)
{
    const struct rondo_work *w = &run->work;
    uint32_t op = run->flow[0].called;
    *unknown = 0;
    for (int r = 0; r < w->mailbox->nranks; r++) {
        uint64_t word = r == w->mailbox->index ? (uint64_t)w->call_word << 32 | op
                                               : rooted_word(w->mailbox, op, r);
        if ((uint32_t)word == op && word != 0) {
            if (RONDO_UNLIKELY((uint32_t)(word >> 32) != w->call_word)) {
                return r;
            }
        } else if (word == 0 || (int32_t)((uint32_t)word - op) < 0) {
            *unknown = 1;
        }
    }
    return -1;
}

/* ---- one-shot ---- */

static void put_part(const struct rondo_work *w, uint8_t *payload, size_t at, size_t n)
{
    const uint8_t *in = w->in + at * w->elem_bytes;
    if (n == 0) {
        return;
    }
    if (w->premul) {
        rondo_premul(payload, in, n, (rondo_dtype)w->dtype, w->scalar);
    } else {
        memcpy(payload, in, n * w->elem_bytes);
    }
}

static void put_blocks(const struct rondo_work *w, const struct rondo_flow *flow, uint8_t *payload)
{
    size_t begin = flow->loop * w->chunk;
    for (int r = 0; r < w->mailbox->nranks; r++) {
        if (r != w->mailbox->index) {
            put_part(w, payload + block_at(w, w->mailbox->index, r), (size_t)r * w->block + begin, flow->n);
        }
    }
}

int rondo_oneshot_publish(const struct rondo_work *w, struct rondo_flow *flow)
{
    uint8_t *payload;
    if (is_rooted(w)) {
        return publish_rooted(w, flow);
    }
    payload = rondo_mailbox_begin(w->mailbox) + payload_at(w);
    if (for_each_a_block(w)) {
        put_blocks(w, flow, payload);
    } else {
        put_part(w, payload, flow->in, flow->n);
    }
    rondo_mailbox_publish(w->mailbox, w->call_word);
    return 1;
}

/* Point exec->sources to the data for this rank. Its own comes from the input: it does not publish to itself.
 */
static void find_payloads(struct rondo_exec *exec, const struct rondo_work *w, const struct rondo_flow *flow)
{
    int own = w->mailbox->index;
    for (int r = 0; for_each_a_block(w) && r < w->mailbox->nranks; r++) {
        exec->sources[r] = r == own ? NULL : (const uint8_t *)exec->sources[r] + block_at(w, r, own);
    }
    exec->sources[own] = w->in + flow->in * w->elem_bytes;
}

/* Copy every rank's block from its message to the output. */
static void copy_payloads(const struct rondo_exec *exec, const struct rondo_work *w,
                          const struct rondo_flow *flow)
{
    for (int r = 0; r < w->mailbox->nranks; r++) {
        struct rondo_span span = rondo_work_span(w, RONDO_MAP_BLOCK, flow->loop, r);
        uint8_t *to = w->out + span.out * w->elem_bytes;
        if (span.n > 0 && to != exec->sources[r]) {
            rondo_copy(to, exec->sources[r], span.n * w->elem_bytes, rondo_past_caches(w));
        }
    }
}

/* again: the result is read at once, so it stays in the caches. */
static void reduce_payloads(struct rondo_exec *exec, const struct rondo_work *w,
                            const struct rondo_flow *flow, rondo_reduce_fn *reduce, int again)
{
    uint8_t *to = w->out + flow->out * w->elem_bytes;
    if (w->premul) {
        rondo_premul(to, exec->sources[w->mailbox->index], flow->n, (rondo_dtype)w->dtype, w->scalar);
        exec->sources[w->mailbox->index] = to;
    }
    if (!again && rondo_reduce_apart(exec, w, w->mailbox->nranks, &to, 1, flow->n)) {
        return;
    }
    reduce(to, exec->sources, w->mailbox->nranks, flow->n);
    if (w->divide) {
        rondo_divide(to, flow->n, (rondo_dtype)w->dtype, w->mailbox->nranks);
    }
}

int rondo_oneshot_collect(struct rondo_exec *exec, const struct rondo_work *w, struct rondo_flow *flow,
                          rondo_reduce_fn *reduce, rondo_status *status)
{
    int all = is_rooted(w) ? collect_rooted(exec, w, flow, status)
                           : rondo_mailbox_collect(exec, w, flow, payload_at(w), status);
    if (all != 1) {
        return all;
    }
    if (w->coll == RONDO_COLL_BROADCAST) {
        memcpy(w->out, exec->sources[w->seat.root], w->len * w->elem_bytes);
        return 1;
    }
    find_payloads(exec, w, flow);
    if (reduce == NULL) {
        copy_payloads(exec, w, flow);
    } else {
        reduce_payloads(exec, w, flow, reduce, 0);
    }
    return 1;
}

/* ---- two-shot ---- */

/*
 * A message has room for n shares: first the result of the loop before, then what the others want of this
 * loop's input. So there is one message a loop, and one at the end.
 */
static size_t share_at(const struct rondo_work *w, int from, int to)
{
    return w->chunk * w->elem_bytes + block_at(w, from, to);
}

static void put_shares(const struct rondo_work *w, const struct rondo_flow *flow, uint8_t *payload)
{
    int own = w->mailbox->index;
    for (int r = 0; r < w->mailbox->nranks; r++) {
        struct rondo_span span = rondo_work_span(w, RONDO_MAP_SPLIT, flow->loop, r);
        if (r != own) {
            put_part(w, payload + share_at(w, own, r), span.in, span.n);
        }
    }
}

static void put_result(const struct rondo_work *w, size_t loop, uint8_t *payload)
{
    struct rondo_span span = rondo_work_span(w, RONDO_MAP_SPLIT, loop, w->mailbox->index);
    memcpy(payload, w->out + span.out * w->elem_bytes, span.n * w->elem_bytes);
}

/* Each rank begins with a different one. */
static void take_results(const struct rondo_exec *exec, const struct rondo_work *w, size_t loop)
{
    int own = w->mailbox->index, n = w->mailbox->nranks;
    for (int i = 1; i < n; i++) {
        int r = (own + i) % n;
        struct rondo_span span = rondo_work_span(w, RONDO_MAP_SPLIT, loop, r);
        if (span.n > 0) {
            rondo_copy(w->out + span.out * w->elem_bytes, exec->sources[r], span.n * w->elem_bytes,
                       rondo_past_caches(w));
        }
    }
}

/* A loop's results travel with the next loop's shares. */
static int travels_later(const struct rondo_run *run, const struct rondo_flow *flow)
{
    return (flow->step.act & RONDO_OWN_OUT) && flow->loop + 1 < run->nloops;
}

int rondo_mail_twoshot_publish(const struct rondo_run *run, const struct rondo_flow *flow)
{
    const struct rondo_work *w = &run->work;
    int results = (flow->step.act & RONDO_OWN_OUT) != 0;
    uint8_t *payload;
    if (travels_later(run, flow)) {
        return 1;
    }
    payload = rondo_mailbox_begin(w->mailbox) + RONDO_CACHE_LINE;
    if (results || flow->loop > 0) {
        put_result(w, flow->loop - (size_t)!results, payload);
    }
    if (!results) {
        put_shares(w, flow, payload);
    }
    rondo_mailbox_publish(w->mailbox, w->call_word);
    return 1;
}

int rondo_mail_twoshot_collect(struct rondo_exec *exec, const struct rondo_run *run, struct rondo_flow *flow,
                               rondo_reduce_fn *reduce, rondo_status *status)
{
    const struct rondo_work *w = &run->work;
    int own = w->mailbox->index, all, results = (flow->step.act & RONDO_OWN_OUT) != 0;
    if (travels_later(run, flow)) {
        return 1;
    }
    all = rondo_mailbox_collect(exec, w, flow, RONDO_CACHE_LINE, status);
    if (all != 1) {
        return all;
    }
    if (results || flow->loop > 0) {
        take_results(exec, w, flow->loop - (size_t)!results);
    }
    for (int r = 0; !results && r < w->mailbox->nranks; r++) {
        exec->sources[r] = r == own ? (const void *)(w->in + flow->in * w->elem_bytes)
                                    : (const uint8_t *)exec->sources[r] + share_at(w, r, own);
    }
    if (!results && flow->n > 0) {
        reduce_payloads(exec, w, flow, reduce, 1);
    }
    return 1;
}

/* ---- where the ranks run ---- */

/* @return this thread's core, from 1 on, which the other ranks see; 0: unknown */
static uint32_t show_core(const struct rondo_mailbox *mailbox)
{
    uint32_t *shown = rondo_mailbox_core(mailbox, mailbox->index), core = (uint32_t)(sched_getcpu() + 1);
    if (RONDO_UNLIKELY(__atomic_load_n(shown, __ATOMIC_RELAXED) != core)) {
        __atomic_store_n(shown, core, __ATOMIC_RELAXED);
    }
    return core;
}

/* Does the step wait for this local rank, from which nothing has come yet? */
static int lacks(const struct rondo_work *w, const struct rondo_flow *flow, int r)
{
    const struct rondo_mailbox *mailbox = w->mailbox;
    int rooted = is_rooted(w) && rondo_algo_medium(w->algo) == RONDO_MEDIUM_MAILBOX;
    if (r == mailbox->index) {
        return 0;
    }
    if (flow->step.act & (RONDO_GROUPS | RONDO_PULL) || (rooted && flow->step.act & RONDO_PUBLISH)) {
        return r == (int)flow->unit;
    }
    if (rooted) {
        return (w->coll == RONDO_COLL_REDUCE || r == w->seat.root) &&
               (uint32_t)rooted_word(mailbox, mailbox->rooted, r) != mailbox->rooted;
    }
    return (uint32_t)__atomic_load_n(
               (const uint64_t *)(const void *)rondo_mailbox_place(mailbox, mailbox->op, r),
               __ATOMIC_RELAXED) != mailbox->op;
}

/* @return the core to which to move so that the ranks are even; -1: they are, or it is not known */
static int emptier_core(const struct rondo_mailbox *mailbox, uint32_t core)
{
    uint16_t nranks[RONDO_MAX_CORES] = { 0 };
    for (int r = 0; r < mailbox->nranks; r++) {
        uint32_t its = __atomic_load_n(rondo_mailbox_core(mailbox, r), __ATOMIC_RELAXED);
        if (its == 0 || its > RONDO_MAX_CORES) {
            return -1;
        }
        nranks[its - 1]++;
    }
    return core == 0 || core > RONDO_MAX_CORES ? -1 : rondo_cores_emptier(nranks, (int)core - 1);
}

/* Move if this core has more ranks than another. The kernel takes 0.1 s and more to do it, because ranks that
 * wait keep the cores busy. What ranks show may be old: look twice. */
static void even_out(struct rondo_exec *exec, const struct rondo_mailbox *mailbox, uint32_t core)
{
    struct rondo_evening *evening = &exec->evening;
    int64_t now_ns = rondo_now_ns();
    int to;
    if (now_ns < evening->next_ns) {
        return;
    }
    to = emptier_core(mailbox, core);
    if (to < 0 || !evening->seen) {
        evening->seen = to >= 0;
        evening->next_ns = now_ns + (to < 0 ? LEAST_PAUSE_NS : SECOND_LOOK_NS);
        return;
    }
    (void)rondo_cores_move(to);
    (void)show_core(mailbox);
    evening->seen = 0;
    evening->pause_ns = evening->pause_ns == 0                  ? LEAST_PAUSE_NS
                        : evening->pause_ns < MOST_PAUSE_NS / 2 ? 2 * evening->pause_ns
                                                                : MOST_PAUSE_NS;
    evening->next_ns = now_ns + evening->pause_ns;
}

/* Has this core more ranks than the average of those that have any? Then who looks for a rank of another core
 * keeps one of this core from what it could do. */
static int is_crowded(const struct rondo_mailbox *mailbox, uint32_t core)
{
    struct rondo_cores cores = { { 0 } };
    int here = 0;
    for (int r = 0; r < mailbox->nranks; r++) {
        uint32_t its = __atomic_load_n(rondo_mailbox_core(mailbox, r), __ATOMIC_RELAXED) - 1;
        here += its == core - 1;
        if (its < RONDO_MAX_CORES) {
            cores.bits[its / 64] |= UINT64_C(1) << (its % 64);
        }
    }
    return here * rondo_cores_count(&cores) > mailbox->nranks;
}

int rondo_mailbox_elsewhere(struct rondo_exec *exec, const struct rondo_work *w,
                            const struct rondo_flow *flow)
{
    const struct rondo_mailbox *mailbox = w->mailbox;
    uint32_t core = show_core(mailbox);
    for (int r = (int)flow->unit; r < mailbox->nranks; r++) {
        uint32_t its = __atomic_load_n(rondo_mailbox_core(mailbox, r), __ATOMIC_RELAXED);
        if ((its == core || its == 0) && lacks(w, flow, r)) {
            even_out(exec, mailbox, core);
            return 0;
        }
    }
    return core != 0 && !is_crowded(mailbox, core);
}

/* ---- one-shot without steps ---- */

rondo_reduce_fn *rondo_shot_reduce(const struct rondo_work *w, const struct rondo_step *step)
{
    return step->act & RONDO_REDUCE ? rondo_reduce_get((rondo_dtype)w->dtype, (enum rondo_reduce)w->reduce)
                                    : NULL;
}

static enum rondo_shot_kind kind_of(const struct rondo_run *run, const struct rondo_step *first,
                                    const struct rondo_step *second)
{
    if (run->nflows != 1 || run->nloops != 1 || !(first->act & RONDO_PUBLISH) || run->flow[0].nsteps > 2) {
        return RONDO_SHOT_NEEDS_STEPS;
    }
    if (run->flow[0].nsteps == 1) {
        return RONDO_SHOT_PUBLISHES_ONLY;
    }
    return second->act & RONDO_COLLECT                      ? RONDO_SHOT_COLLECTS
           : second->act == RONDO_COPY && !run->work.premul ? RONDO_SHOT_COPIES_INPUT
                                                            : RONDO_SHOT_NEEDS_STEPS;
}

void rondo_shot_begin(struct rondo_run *run)
{
    const struct rondo_work *w = &run->work;
    run->shot.kind = RONDO_SHOT_NEEDS_STEPS;
    if (rondo_algo_medium(w->algo) == RONDO_MEDIUM_MAILBOX) {
        struct rondo_step first = run->schedule->flow[0].step(&w->seat, 0),
                          second = run->schedule->flow[0].step(&w->seat, 1);
        struct rondo_span span = rondo_work_span(w, run->schedule->map, 0, first.block);
        run->shot.kind = kind_of(run, &first, &second);
        run->shot.reduce = rondo_shot_reduce(w, &second);
        run->shot.in = span.in;
        run->shot.out = span.out;
        run->shot.n = span.n;
    }
}

int rondo_shot_publish(struct rondo_run *run)
{
    struct rondo_flow *flow = &run->flow[0];
    flow->loop = 0;
    flow->in = run->shot.in;
    flow->out = run->shot.out;
    flow->n = run->shot.n;
    return rondo_oneshot_publish(&run->work, flow);
}

int rondo_shot_collect(struct rondo_exec *exec, struct rondo_run *run, int looks, rondo_status *status)
{
    const struct rondo_work *w = &run->work;
    struct rondo_flow *flow = &run->flow[0];
    int ended = 1;
    if (run->shot.kind >= RONDO_SHOT_COLLECTS) {
        flow->unit = 0;
        exec->looks = looks;
        ended = run->shot.kind == RONDO_SHOT_COLLECTS_WORDS
                    ? rondo_mailbox_collect(exec, w, flow, payload_at(w), status)
                    : rondo_oneshot_collect(exec, w, flow, run->shot.reduce, status);
        exec->looks = 0;
        if (ended == 0) { /* its steps resume after the publish */
            flow->k = 1;
            flow->entered = 0;
        }
    } else if (run->shot.kind == RONDO_SHOT_COPIES_INPUT && w->out != w->in) {
        memcpy(w->out, w->in, w->len * w->elem_bytes);
    }
    return ended;
}
