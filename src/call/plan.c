/* Turn calls into works. A collective becomes one run a channel, as the tuner selected; other calls are made
 * of sends and receives (plan_messages.c). */
#include <string.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/param.h"
#include "call/cached.h"
#include "call/overlap.h"
#include "call/choose.h"
#include "call/drift.h"
#include "call/plan_impl.h"
#include "comm/backend.h"
#include "comm/links.h"

enum { PREMUL_OP = RONDO_NUM_OPS };

/* ---- calls: what all ranks must agree on ---- */

uint64_t rondo_task_hash(const struct rondo_task *t)
{
    /* Ranks may have different handles for a pre-multiplied sum; they agree only on its kind. */
    uint64_t op = t->op >= RONDO_NUM_OPS ? PREMUL_OP : t->op;
    uint64_t h = rondo_mix(
        rondo_mix((uint64_t)t->coll << 48 | (uint64_t)t->dtype << 40 | op << 32 | (uint32_t)t->root,
                  rondo_task_has_own_counts(t) ? 0 : t->count),
        0x5bd1e995);
    if (RONDO_UNLIKELY(t->counts != NULL && !rondo_task_has_own_counts(t) &&
                       t->coll != RONDO_COLL_ALL_TO_ALLV)) {
        h = rondo_hash(t->counts, sizeof(size_t) * (size_t)t->ctx->job.nranks, h);
    }
    return h;
}

static void note_call(struct rondo_plan *plan, const struct rondo_task *t, uint32_t word)
{
    struct rondo_ctx *ctx = plan->ctx;
    plan->last_seq = ctx->calls.seq;
    if (plan->first_seq == 0) {
        plan->first_seq = ctx->calls.seq;
    }
    if (ctx->wiring.control != NULL) {
        size_t count = t->count;
        if (t->counts != NULL && !rondo_task_has_own_counts(t)) {
            count = rondo_task_bytes(t) / rondo_dtype_size((rondo_dtype)t->dtype);
            rondo_control_counts_put(ctx->wiring.control, ctx->calls.seq,
                                     t->send_counts != NULL ? t->send_counts : t->counts);
        }
        rondo_call_record(ctx, (enum rondo_coll)t->coll, (unsigned)t->dtype, t->op, t->root, count, word);
    }
}

/* ---- works ---- */

void rondo_plan_fill_op(struct rondo_work *w, const struct rondo_task *t)
{
    w->dtype = (uint8_t)t->dtype;
    w->elem_bytes = (uint8_t)rondo_dtype_size((rondo_dtype)t->dtype);
    if (t->op >= RONDO_NUM_OPS) {
        w->reduce = RONDO_REDUCE_SUM;
        w->premul = t->premul;
        w->scalar = t->scalar;
    } else {
        w->reduce = (uint8_t)rondo_op_reduce(t->op);
        w->divide = t->op == RONDO_AVG;
    }
}

rondo_status rondo_plan_add_local(struct rondo_plan *plan, const struct rondo_task *t, const void *in,
                                  void *out, size_t count)
{
    struct rondo_run *run;
    struct rondo_work *w;
    if (count == 0 || (in == out && t->op < RONDO_NUM_OPS)) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_plan_next_run(plan, &run));
    w = &run->work;
    rondo_plan_fill_op(w, t);
    w->divide = 0;
    run->schedule = rondo_schedule_first(RONDO_COLL_ALL_REDUCE, RONDO_MEDIUM_CONNS);
    w->coll = RONDO_COLL_ALL_REDUCE;
    w->algo = run->schedule->algo;
    w->proto = RONDO_PROTO_SIMPLE;
    w->in = in;
    w->out = out;
    w->block = w->len = w->chunk = count;
    w->seat.nranks = 1;
    w->seat.parent = -1;
    rondo_run_begin(run);
    return RONDO_SUCCESS;
}

/* Does the run show this rank no call word of another rank? */
static int only_sends(const struct rondo_run *run)
{
    const struct rondo_work *w = &run->work;
    if (w->coll != RONDO_COLL_BROADCAST && w->coll != RONDO_COLL_REDUCE) {
        return 0;
    }
    return rondo_algo_medium(w->algo) == RONDO_MEDIUM_MAILBOX
               ? (w->coll == RONDO_COLL_BROADCAST) == (w->seat.index == w->seat.root)
               : run->schedule->flow[0].step(&w->seat, 0).nfrom == 0;
}

/* Does a rank receive so much that it is stored past the caches? */
static int is_past_caches(const struct rondo_ctx *ctx, const struct rondo_task *t)
{
    int block = rondo_coll_scheduled_as((enum rondo_coll)t->coll) == RONDO_COLL_REDUCE_SCATTER;
    size_t least = ctx->wiring.layout.model.stream_bytes;
    return least > 0 && rondo_task_bytes(t) / (size_t)(block ? ctx->job.nranks : 1) >= least;
}

/* Get the slots of the run's conns. A sender without them has no credit: so the run begins at once, and a
 * rank waits for no peer that it does not need. */
static int conns_ready(struct rondo_run *run, rondo_status *status)
{
    struct rondo_ctx *ctx = run->ready_ctx;
    *status = rondo_links_wire(ctx, (int)run->work.channel, (enum rondo_algo)run->work.algo);
    return *status == RONDO_SUCCESS ? 1 : *status == RONDO_IN_PROGRESS ? 2 : -1;
}

/* RONDO_MEM_LIMIT: the slots may go until the run's next time. */
static void conns_rest(struct rondo_run *run)
{
    rondo_links_rest(run->ready_ctx, (int)run->work.channel, (enum rondo_algo)run->work.algo);
    run->ready = conns_ready;
}

/* Threads of a GPU's blocks by the model that chose their number; 0: the most, or RONDO_NTHREADS. */
static uint16_t threads_of(const struct rondo_ctx *ctx, const struct rondo_task *t,
                           const struct rondo_choice *choice)
{
    int nchannels, threads;
    if (!ctx->backend->is_gpu || !rondo_is_gpu_model(&ctx->wiring.layout) || rondo_params()->nthreads > 0 ||
        rondo_algo_medium(choice->algo) != RONDO_MEDIUM_CONNS) {
        return 0;
    }
    rondo_gpu_blocks(&ctx->wiring.layout, (enum rondo_algo)choice->algo, (enum rondo_proto)choice->proto,
                     rondo_task_bytes(t), &nchannels, &threads);
    return (uint16_t)threads;
}

static void fill_work(struct rondo_ctx *ctx, struct rondo_run *run, const struct rondo_task *t,
                      const struct rondo_choice *choice, int channel)
{
    struct rondo_work *w = &run->work;
    rondo_plan_fill_op(w, t);
    w->coll = (uint8_t)rondo_coll_scheduled_as((enum rondo_coll)t->coll);
    w->algo = choice->algo;
    w->proto = choice->proto;
    w->channel = (uint32_t)channel;
    w->counts = t->counts;
    w->displs = t->displs;
    w->block = t->count;
    w->block_rank = rondo_algo_seating(w->algo) == RONDO_SEATING_RING
                        ? ctx->wiring.layout.channel[channel].ring.rank_at
                        : NULL;
    w->ports = &ctx->wiring.ports[channel];
    w->mailbox = ctx->wiring.mailbox;
    w->direct = ctx->wiring.direct;
    run->lane = (uint32_t)channel;
    run->threads = threads_of(ctx, t, choice);
    run->schedule = rondo_schedule_find((enum rondo_coll)w->coll, (enum rondo_algo)w->algo);
    rondo_seat_of(&ctx->wiring.layout, channel, (enum rondo_algo)w->algo, (enum rondo_coll)w->coll, t->root,
                  &w->seat);
    if (!rondo_links_wired(ctx, channel, (enum rondo_algo)w->algo)) {
        run->ready = conns_ready;
        run->ready_ctx = ctx;
        run->ended = ctx->wiring.net.limited ? conns_rest : NULL;
    }
    w->stream = is_past_caches(ctx, t);
    w->apart = (uint8_t)ctx->wiring.layout.model.apart;
    run->only_sends = only_sends(run);
    rondo_plan_cut(ctx, w, t, run->schedule->map, channel, choice->nchannels);
}

/* May the kernel copy between ordinary buffers of two processes, rather than the fallback run? */
static uint8_t kernel_copies(const struct rondo_ctx *ctx, const struct rondo_task *t,
                             const struct rondo_selection *selection)
{
    int mode = (int)rondo_params()->cma;
    if (mode != RONDO_CMA_AUTO) {
        return mode == RONDO_CMA_ALWAYS ? RONDO_KERNEL_ALWAYS : RONDO_KERNEL_NEVER;
    }
    return (uint8_t)rondo_select_kernel(&ctx->wiring.layout, (enum rondo_coll)t->coll, rondo_task_bytes(t),
                                        selection);
}

/* Fill in run `at` of a call: those of the primary come first, at `primary`. */
static void fill_run(struct rondo_ctx *ctx, struct rondo_run *run, const struct rondo_task *t,
                     const struct rondo_selection *selection, int at, struct rondo_run *primary)
{
    int nprimary = selection->primary.nchannels, is_fallback = at >= nprimary;
    fill_work(ctx, run, t, is_fallback ? &selection->fallback : &selection->primary,
              is_fallback ? at - nprimary : at);
    run->work.cma = kernel_copies(ctx, t, selection);
    run->fallback_of = is_fallback ? primary : NULL;
    run->asks = ctx->backend->is_gpu && !is_fallback && selection->fallback.nchannels > 0;
}

/* all_to_all in one work: an all_gather with a different block for each rank. */
static void fill_exchange(struct rondo_ctx *ctx, struct rondo_run *run, const struct rondo_task *t,
                          const struct rondo_selection *selection, int at, struct rondo_run *primary)
{
    struct rondo_task as = *t;
    as.coll = RONDO_COLL_ALL_GATHER;
    fill_run(ctx, run, &as, selection, at, primary);
    run->work.coll = RONDO_COLL_ALL_TO_ALL;
}

/* A run for the GPUs' copy engines; the call's other runs are its fallbacks. */
static void fill_copies(struct rondo_ctx *ctx, struct rondo_run *run, const struct rondo_task *t)
{
    int exchange = t->coll == RONDO_COLL_ALL_TO_ALL;
    enum rondo_coll as = exchange ? RONDO_COLL_ALL_GATHER : (enum rondo_coll)t->coll;
    struct rondo_selection direct = { .primary = {
                                          .algo = rondo_schedule_first(as, RONDO_MEDIUM_DIRECT)->algo,
                                          .proto = RONDO_PROTO_SIMPLE,
                                          .nchannels = 1 } };
    (exchange ? fill_exchange : fill_run)(ctx, run, t, &direct, 0, NULL);
    run->copies = 1;
}

/* reduce_scatter: does the result lie at the start of the input, where the block of another rank lies? */
static int ends_in_other_block(const struct rondo_ctx *ctx, const struct rondo_work *w)
{
    return w->coll == RONDO_COLL_REDUCE_SCATTER && w->counts == NULL && w->in == w->out && ctx->job.rank != 0;
}

static void begin_call(const struct rondo_ctx *ctx, struct rondo_run *run, const void *in, void *out,
                       uint32_t word)
{
    rondo_run_call(run, in, out, word, ctx->calls.seq);
    run->in_place = (uint8_t)ends_in_other_block(ctx, &run->work);
    rondo_run_begin(run);
}

/* How many runs for copy engines has the call? Its other runs are these runs' fallbacks, and have none. */
static int copies_of(const struct rondo_task *t, struct rondo_selection *selection)
{
    int copies = t->ctx->backend->copies(t);
    if (copies && selection->fallback.nchannels > 0) {
        *selection = (struct rondo_selection){ .primary = selection->fallback };
    }
    return copies;
}

static rondo_status add_copies(struct rondo_plan *plan, const struct rondo_task *t, uint32_t word)
{
    struct rondo_run *run;
    RONDO_TRY(rondo_plan_next_run(plan, &run));
    fill_copies(plan->ctx, run, t);
    begin_call(plan->ctx, run, t->send, t->recv, word);
    return RONDO_SUCCESS;
}

static int is_empty(const struct rondo_task *t)
{
    return t->counts == NULL ? t->count == 0 : rondo_task_bytes(t) == 0;
}

/* A single rank copies its own part. */
static rondo_status add_alone(struct rondo_plan *plan, const struct rondo_task *t)
{
    size_t count = t->counts != NULL ? t->counts[0] : t->count,
           at = t->displs != NULL ? t->displs[0] * rondo_dtype_size((rondo_dtype)t->dtype) : 0;
    const char *in = t->send;
    char *out = t->recv;
    if (t->coll == RONDO_COLL_ALL_GATHERV) {
        out += at;
    } else if (t->coll == RONDO_COLL_REDUCE_SCATTERV) {
        in += at;
    }
    return rondo_plan_add_local(plan, t, in, out, count);
}

/* ---- calls that repeat ---- */

/* May an all_to_all go through the mailbox? */
static int mailbox_allowed(const struct rondo_ctx *ctx)
{
    const struct rondo_schedule *schedule = rondo_schedule_first(RONDO_COLL_ALL_GATHER, RONDO_MEDIUM_MAILBOX);
    return ctx->running.allowed.protos[RONDO_COLL_ALL_TO_ALL][schedule->algo] != 0;
}

static int cacheable(const struct rondo_ctx *ctx, const struct rondo_task *t)
{
    int small = t->coll == RONDO_COLL_ALL_TO_ALL && ctx->wiring.mailbox != NULL &&
                (rondo_is_pair(&ctx->wiring.layout) ||
                 rondo_task_bytes(t) <= ctx->wiring.mailbox->capacity) &&
                mailbox_allowed(ctx);
    return t->counts == NULL && t->count > 0 && t->op < RONDO_NUM_OPS &&
           (t->coll <= RONDO_COLL_REDUCE_SCATTER || t->coll == RONDO_COLL_BARRIER || small);
}

static uint64_t what_of(const struct rondo_task *t)
{
    return rondo_call_what((enum rondo_coll)t->coll, (unsigned)t->dtype, (unsigned)t->op, t->root);
}

/* Only algorithms that forward data need the byte of a barrier. */
static void leave_byte_out(struct rondo_shot *shot)
{
    if (shot->kind == RONDO_SHOT_COLLECTS) {
        shot->kind = RONDO_SHOT_COLLECTS_WORDS;
        shot->n = 0;
    }
}

/* May rondo_fast_path make this call from now on? */
static enum rondo_cached_state state_of(const struct rondo_ctx *ctx, const struct rondo_cached *entry)
{
    int last = entry->nruns - 1;
    if (last > 1 || entry->runs[last].shot.kind == RONDO_SHOT_NEEDS_STEPS ||
        ctx->running.exec_ops->publish == NULL || ctx->backend->is_gpu || ctx->check_pointer != NULL ||
        ctx->prof != NULL) {
        return RONDO_CACHED_RUNS;
    }
    return last == 0 ? (entry->kind == NULL ? RONDO_CACHED_SHOT : RONDO_CACHED_COUNTED)
           : rondo_algo_medium(entry->runs[0].work.algo) == RONDO_MEDIUM_DIRECT ? RONDO_CACHED_FALLBACK
                                                                                : RONDO_CACHED_RUNS;
}

/* Get a free entry of the set, or evict one. */
static struct rondo_cached *room_for(struct rondo_ctx *ctx, uint64_t what, size_t count)
{
    struct rondo_cached *set = rondo_cached_set(ctx, what, count), *entry = set;
    while (entry < set + RONDO_CACHED_WAYS && entry->state != RONDO_CACHED_FREE) {
        entry++;
    }
    entry = entry < set + RONDO_CACHED_WAYS ? entry : &set[ctx->calls.cached_out++ % RONDO_CACHED_WAYS];
    entry->state = RONDO_CACHED_FREE;
    rondo_free(entry->runs);
    entry->runs = NULL;
    return entry;
}

/* Without direct access, does all_to_all consist of messages? */
static int falls_back_on_messages(const struct rondo_selection *selection)
{
    return rondo_algo_medium(
               (selection->fallback.nchannels > 0 ? &selection->fallback : &selection->primary)->algo) ==
           RONDO_MEDIUM_CONNS;
}

/* Add a call to the cache. *kept NULL: calls of this kind are not cached. */
static rondo_status keep(struct rondo_ctx *ctx, const struct rondo_task *t, uint64_t what,
                         struct rondo_cached **kept)
{
    struct rondo_cached *entry;
    struct rondo_selection selection;
    int copies;
    RONDO_TRY(rondo_plan_choose(ctx, t, &selection));
    copies = copies_of(t, &selection);
    *kept = NULL;
    if (t->coll == RONDO_COLL_ALL_TO_ALL && falls_back_on_messages(&selection)) {
        return RONDO_SUCCESS; /* messages are built for every call */
    }
    entry = room_for(ctx, what, t->count);
    RONDO_TRY(rondo_drift_kind_of(ctx, t, &entry->kind));
    entry->nruns = copies + selection.primary.nchannels + selection.fallback.nchannels;
    RONDO_TRY(RONDO_NEW_ARRAY(entry->runs, entry->nruns, "the works of a repeated call"));
    for (int c = 0; c < entry->nruns; c++) {
        if (c < copies) {
            fill_copies(ctx, &entry->runs[c], t);
        } else {
            (t->coll == RONDO_COLL_ALL_TO_ALL ? fill_exchange : fill_run)(ctx, &entry->runs[c], t, &selection,
                                                                          c - copies, entry->runs);
            entry->runs[c].fallback_of = copies ? entry->runs : entry->runs[c].fallback_of;
        }
        entry->runs[c].open = &ctx->calls.immediate.open;
        rondo_run_begin(&entry->runs[c]); /* count loops and steps once */
    }
    if (t->coll == RONDO_COLL_BARRIER) {
        leave_byte_out(&entry->runs[entry->nruns - 1].shot);
    }
    entry->what = what;
    entry->count = t->count;
    entry->call_hash = rondo_task_hash(t);
    entry->needed = (uint8_t)rondo_task_needs(t, t->count, t->count);
    entry->overlap = rondo_task_overlap(t, entry->needed);
    entry->state = (uint8_t)state_of(ctx, entry);
    *kept = entry;
    return RONDO_SUCCESS;
}

/* *found NULL: calls of this kind are not cached. */
static rondo_status find_or_keep(struct rondo_ctx *ctx, const struct rondo_task *t,
                                 struct rondo_cached **found)
{
    uint64_t what = what_of(t);
    struct rondo_cached *entry = rondo_cached_find(ctx, what, t->count);
    if (RONDO_UNLIKELY(entry == NULL)) {
        RONDO_TRY(keep(ctx, t, what, &entry));
    }
    *found = entry;
    return RONDO_SUCCESS;
}

/* The same for a call that is made now. If it may be timed, it is counted, and it may have to choose anew.
 * waits: this thread runs it and nothing else until it is done. */
static rondo_status find_and_count(struct rondo_ctx *ctx, const struct rondo_task *t, int waits,
                                   struct rondo_cached **found)
{
    rondo_status status;
    RONDO_TRY(find_or_keep(ctx, t, found));
    if (RONDO_LIKELY(*found == NULL || (*found)->kind == NULL || rondo_drift_passes((*found)->kind))) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_drift_reached(ctx, (*found)->kind, waits));
    status = find_or_keep(ctx, t, found);
    /* It is counted: if this rank made it again, it would count one more than the others. */
    return status == RONDO_SUCCESS ? status : rondo_ctx_fail(ctx, status, ctx->job.rank);
}

rondo_status rondo_plan_cached(struct rondo_ctx *ctx, const struct rondo_task *t,
                               struct rondo_cached **cached)
{
    const void *in = t->send;
    void *out = t->recv;
    struct rondo_cached *entry;
    uint32_t word;
    if (ctx->job.nranks == 1 || !cacheable(ctx, t)) {
        *cached = NULL;
        return RONDO_SUCCESS;
    }
    if (t->coll == RONDO_COLL_BARRIER) {
        ctx->backend->barrier_bytes(ctx, &in, &out);
    }
    RONDO_TRY(rondo_fault("plan", ctx->job.rank, ctx->calls.seq + 1));
    RONDO_TRY(find_and_count(ctx, t, 1, &entry));
    if (entry == NULL) {
        *cached = NULL;
        return RONDO_SUCCESS;
    }
    word = rondo_next_word(ctx, entry->call_hash);
    note_call(&ctx->calls.immediate, t, word);
    for (int c = 0; c < entry->nruns; c++) {
        rondo_run_call(&entry->runs[c], in, out, word, ctx->calls.seq);
        entry->runs[c].in_place = (uint8_t)ends_in_other_block(ctx, &entry->runs[c].work);
        rondo_run_again(&entry->runs[c]);
    }
    *cached = entry;
    return RONDO_SUCCESS;
}

/* Calls of streams and groups that repeat: copy the prepared runs. The choice among algorithms costs more. */
static rondo_status add_repeated(struct rondo_plan *plan, const struct rondo_task *t, uint32_t word,
                                 const struct rondo_cached *entry)
{
    int first = plan->nruns;
    for (int c = 0; c < entry->nruns; c++) {
        struct rondo_run *run;
        RONDO_TRY(rondo_plan_next_run(plan, &run));
        *run = entry->runs[c];
        run->prof = NULL;
        run->open = &plan->open;
        run->next = NULL;
        run->fallback_of = run->fallback_of != NULL
                               ? &plan->runs[first + (int)(run->fallback_of - entry->runs)]
                               : NULL;
        rondo_run_call(run, t->send, t->recv, word, plan->ctx->calls.seq);
        run->in_place = (uint8_t)ends_in_other_block(plan->ctx, &run->work);
        rondo_run_again(run);
    }
    return RONDO_SUCCESS;
}

/* A call that the tuner refuses has no number: as a blocking call it has none either. */
static rondo_status add_collective(struct rondo_plan *plan, const struct rondo_task *t)
{
    struct rondo_ctx *ctx = plan->ctx;
    struct rondo_selection selection;
    struct rondo_cached *entry = NULL;
    uint32_t word;
    int copies, first = plan->nruns, runs = ctx->job.nranks > 1 && !is_empty(t);
    if (runs && !ctx->backend->is_gpu && cacheable(ctx, t)) {
        RONDO_TRY(find_and_count(ctx, t, 0, &entry));
    }
    if (runs && entry == NULL) {
        RONDO_TRY(rondo_plan_choose(ctx, t, &selection));
    }
    word = rondo_next_word(ctx, rondo_task_hash(t));
    if (ctx->job.nranks == 1) {
        return add_alone(plan, t);
    }
    note_call(plan, t, word);
    if (!runs) {
        return RONDO_SUCCESS;
    }
    if (entry != NULL) {
        return add_repeated(plan, t, word, entry);
    }
    copies = copies_of(t, &selection);
    RONDO_TRY(copies ? add_copies(plan, t, word) : RONDO_SUCCESS);
    for (int c = 0; c < selection.primary.nchannels + selection.fallback.nchannels; c++) {
        struct rondo_run *run;
        RONDO_TRY(rondo_plan_next_run(plan, &run));
        fill_run(ctx, run, t, &selection, c, &plan->runs[first]);
        run->fallback_of = copies ? &plan->runs[first] : run->fallback_of;
        begin_call(ctx, run, t->send, t->recv, word);
    }
    return RONDO_SUCCESS;
}

/* ---- all_to_all ---- */

/* Add all_to_all without messages if possible. *first: the run that finds out whether messages are needed
 * after all; -1: they are. @return RONDO_IN_PROGRESS: add the messages as well. */
static rondo_status add_exchange(struct rondo_plan *plan, const struct rondo_task *t, const void *send,
                                 uint32_t word, int *first)
{
    struct rondo_selection selection;
    struct rondo_run *run;
    int posts, asks = 1, at = plan->nruns;
    *first = -1;
    if (plan->ctx->wiring.direct == NULL || t->count == 0) {
        return RONDO_IN_PROGRESS;
    }
    RONDO_TRY(rondo_plan_choose(plan->ctx, t, &selection));
    if (rondo_algo_medium(selection.primary.algo) == RONDO_MEDIUM_CONNS) {
        return RONDO_IN_PROGRESS;
    }
    posts = !falls_back_on_messages(&selection);
    for (int c = 0; c < 1 + (posts && selection.fallback.nchannels > 0); c++) {
        const struct rondo_choice *choice = c == 0 ? &selection.primary : &selection.fallback;
        RONDO_TRY(rondo_plan_next_run(plan, &run));
        fill_exchange(plan->ctx, run, t, &selection, c, &plan->runs[at]);
        /* only for a call that runs now: calls of a group or a stream first learn what earlier calls find */
        if (plan == &plan->ctx->calls.immediate && !plan->ctx->backend->is_gpu &&
            rondo_algo_medium(choice->algo) == RONDO_MEDIUM_DIRECT && rondo_direct_declines(&run->work)) {
            plan->nruns--;
            asks = 0;
            continue;
        }
        run->fallback_of = asks ? run->fallback_of : NULL;
        begin_call(plan->ctx, run, send, t->recv, word);
    }
    *first = posts || !asks ? -1 : plan->nruns - 1;
    return posts ? RONDO_SUCCESS : RONDO_IN_PROGRESS;
}

/* In place, data from a peer arrives where the data for that peer lies. Sends go to the next ranks, the
 * nearest first, and receives come from the previous ones: the same peers in reverse order. */
static void arrive_in_place(struct rondo_run *runs, int nruns)
{
    int leaves = nruns;
    for (int i = 0; i < nruns; i++) {
        runs[i].in_place = 1;
        if (runs[i].work.coll == RONDO_COLL_RECV) {
            do {
                leaves--;
            } while (runs[leaves].work.coll != RONDO_COLL_SEND);
            runs[i].arrives_after = &runs[leaves];
        }
    }
}

/* In place, where data that arrives may overwrite data to be sent: send from a copy. It has no gaps. */
static rondo_status put_aside(struct rondo_plan *plan, struct rondo_task *t)
{
    size_t elem = rondo_dtype_size((rondo_dtype)t->dtype), n = (size_t)plan->ctx->job.nranks, end = 0;
    void *copy, *displs = NULL;
    RONDO_TRY(plan->ctx->backend->scratch(plan, rondo_task_bytes(t), &copy));
    if (t->counts == NULL) {
        RONDO_TRY(rondo_plan_add_local(plan, t, t->send, copy, t->count * n));
    } else {
        RONDO_TRY(rondo_plan_temp(plan, n * sizeof(size_t), &displs));
    }
    for (size_t r = 0; displs != NULL && r < n; r++) {
        RONDO_TRY(rondo_plan_add_local(plan, t, (const char *)t->send + t->displs[r] * elem,
                                       (char *)copy + end * elem, t->counts[r]));
        ((size_t *)displs)[r] = end;
        end += t->counts[r];
    }
    t->send = copy;
    t->send_displs = displs;
    return RONDO_SUCCESS;
}

/* A rank's own block is no message: it must not match a send of the user to itself. */
static rondo_status add_own_block(struct rondo_plan *plan, const struct rondo_task *t, const char *send,
                                  char *recv)
{
    int v = t->coll == RONDO_COLL_ALL_TO_ALLV, own = plan->ctx->job.rank;
    size_t elem = rondo_dtype_size((rondo_dtype)t->dtype);
    return rondo_plan_add_local(plan, t, send + (v ? t->send_displs[own] : (size_t)own * t->count) * elem,
                                recv + (v ? t->displs[own] : (size_t)own * t->count) * elem,
                                v ? t->counts[own] : t->count);
}

/* A message to and one from every other rank. */
static rondo_status add_messages(struct rondo_plan *plan, const struct rondo_task *t)
{
    struct rondo_ctx *ctx = plan->ctx;
    size_t elem = rondo_dtype_size((rondo_dtype)t->dtype), block = t->count * elem;
    int v = t->coll == RONDO_COLL_ALL_TO_ALLV;
    for (int d = 1; d < ctx->job.nranks; d++) { /* each rank starts with a different peer */
        int to = (ctx->job.rank + d) % ctx->job.nranks,
            from = (ctx->job.rank + ctx->job.nranks - d) % ctx->job.nranks;
        const char *out = (const char *)t->send + (v ? t->send_displs[to] * elem : (size_t)to * block);
        char *in = (char *)t->recv + (v ? t->displs[from] * elem : (size_t)from * block);
        size_t nsend = v ? t->send_counts[to] : t->count, nrecv = v ? t->counts[from] : t->count;
        RONDO_TRY(rondo_plan_add_message(plan, t, 1, to, out, NULL, nsend));
        RONDO_TRY(rondo_plan_add_message(plan, t, 0, from, NULL, in, nrecv));
    }
    return RONDO_SUCCESS;
}

static rondo_status add_all_to_all(struct rondo_plan *plan, const struct rondo_task *task, uint32_t word)
{
    struct rondo_task copied = *task, *t = &copied;
    struct rondo_ctx *ctx = plan->ctx;
    int v = t->coll == RONDO_COLL_ALL_TO_ALLV, first = -1, begin,
        swaps = v ? rondo_task_swaps_blocks(t) : t->send == t->recv;
    if (!v && t->count > 0 && ctx->backend->copies(t)) {
        first = plan->nruns;
        RONDO_TRY(add_copies(plan, t, word));
    }
    if (swaps && !is_empty(t) && ctx->backend->scratch != NULL) {
        RONDO_TRY(put_aside(plan, t));
        if (first >= 0) {
            plan->runs[first].aside = (void *)t->send;
        }
        swaps = 0;
    }
    if (!v && first < 0) {
        rondo_status status = add_exchange(plan, t, t->send, word, &first);
        if (status != RONDO_IN_PROGRESS) {
            return status;
        }
    }
    RONDO_TRY(add_own_block(plan, t, t->send, t->recv));
    begin = plan->nruns;
    RONDO_TRY(add_messages(plan, t));
    if (swaps) {
        arrive_in_place(&plan->runs[begin], plan->nruns - begin);
    }
    for (int i = first + 1; first >= 0 && i < plan->nruns; i++) {
        plan->runs[i].fallback_of = &plan->runs[first];
    }
    return RONDO_SUCCESS;
}

/* Does the tuner choose among algorithms for the call? Others are messages, which all_to_all may avoid. */
static int is_chosen(const struct rondo_task *t)
{
    switch ((enum rondo_coll)t->coll) {
    case RONDO_COLL_ALL_TO_ALL:
    case RONDO_COLL_ALL_TO_ALLV:
    case RONDO_COLL_GATHER:
    case RONDO_COLL_GATHERV:
    case RONDO_COLL_SCATTERV:
    case RONDO_COLL_SCATTER:
    case RONDO_COLL_SEND:
    case RONDO_COLL_RECV: return 0;
    default: return 1;
    }
}

static rondo_status copy_arrays(struct rondo_plan *plan, struct rondo_task *t)
{
    size_t n = (size_t)plan->ctx->job.nranks * sizeof(size_t);
    void *copy;
    if (t->counts == NULL || t->coll == RONDO_COLL_ALL_TO_ALLV || rondo_task_has_own_counts(t)) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_plan_temp(plan, 2 * n, &copy));
    memcpy(copy, t->counts, n);
    memcpy((char *)copy + n, t->displs, n);
    t->counts = copy;
    t->displs = (const size_t *)((char *)copy + n);
    return RONDO_SUCCESS;
}

rondo_status rondo_plan_add(struct rondo_plan *plan, const struct rondo_task *task)
{
    struct rondo_task t = *task;
    struct rondo_ctx *ctx = plan->ctx;
    uint32_t word;
    if (t.coll == RONDO_COLL_SEND || t.coll == RONDO_COLL_RECV) {
        return rondo_plan_add_p2p(plan, &t, 0);
    }
    if (t.coll == RONDO_COLL_BARRIER) {
        ctx->backend->barrier_bytes(ctx, &t.send, &t.recv);
    }
    RONDO_TRY(rondo_fault("plan", ctx->job.rank, ctx->calls.seq + 1));
    RONDO_TRY(copy_arrays(plan, &t));
    if (is_chosen(&t)) {
        return add_collective(plan, &t);
    }
    word = rondo_next_word(ctx, rondo_task_hash(&t));
    note_call(plan, &t, word);
    return t.coll == RONDO_COLL_ALL_TO_ALL || t.coll == RONDO_COLL_ALL_TO_ALLV
               ? add_all_to_all(plan, &t, word)
               : rondo_plan_add_rooted(plan, &t);
}

rondo_status rondo_plan_check_choice(const struct rondo_task *t)
{
    struct rondo_ctx *ctx = t->ctx;
    struct rondo_selection selection;
    struct rondo_cached *entry;
    if (RONDO_LIKELY(!ctx->running.may_refuse) || ctx->job.nranks == 1 || !is_chosen(t) || is_empty(t)) {
        return RONDO_SUCCESS;
    }
    return !ctx->backend->is_gpu && cacheable(ctx, t) ? find_or_keep(ctx, t, &entry)
                                                      : rondo_plan_choose(ctx, t, &selection);
}

rondo_status rondo_plan_fails(struct rondo_ctx *ctx, rondo_status status)
{
    return status == RONDO_SUCCESS || status == RONDO_INVALID_USAGE || status == RONDO_INVALID_ARGUMENT
               ? status
               : rondo_ctx_fail(ctx, status, ctx->job.rank);
}
