/* How fast this host copies between two cores, measured at its first creation (tuner/calibration.h). */
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/uio.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/wait.h"
#include "comm/backend.h"
#include "init/phases.h"
#include "kern/reduce.h"
#include "tuner/model.h"

/*
 * Local rank 0 goes through the steps, REPEATS times each, and takes the least time. It announces each step
 * in a word of its mailbox place; local rank 1 then writes its payload anew, reads local rank 0's output, and
 * answers: so each step finds the lines in the caches where a call finds them. In the steps of the kernel
 * both ranks then swap sums at the same time, as two-shot does in place. Payload and output lie in places
 * that no operation has used yet; local rank 1 zeroes them at the end. Neither rank blocks. After MOST_NS
 * local rank 0 gives up, and nothing is known.
 */
enum {
    BYTES = 120 << 10, /* of a place of two ranks; the caches of a core hold it */
    LEAST_BYTES = 8 << 10,
    AFTER_WORDS = 4096, /* bytes of a place before the payload */
    REPEATS = 10,
    LEAST_REPEATS = 4, /* enough if time is over */
    MOST_NS = 20000000,
    LISTEN_NS = 20000,
    FOLLOW_LISTENS = 10, /* each of LISTEN_NS: slow cores write BYTES in that time */
    KERNEL_PART = 4      /* the kernel's steps have two lengths: all, and this part of it */
};
static const uint64_t end_word = UINT64_MAX, not_swapped = UINT64_MAX;

/* The words of a rank, in the line of its place. The handover's comes first. */
enum { STEP_WORD = 2, ADDRESS_WORD = 3, GO_WORD = 4 };

/* The numbers and how they are measured. */
enum step {
    STEP_COPY,
    STEP_STREAM,
    STEP_SUM,
    STEP_STORES,
    STEP_OVER,
    STEP_PAST,
    STEP_FIRST,
    STEP_KERNEL,
    STEP_KERNEL_PART,
    STEP_YIELD,
    NUM_STEPS
};

/* What this process knows of its host, by placement, and whether it has tried. */
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rondo_calibration known[2];
static int tried[2];

/* The other rank copies into this by its address (swap_sums), perhaps late: after this rank has given up, or
 * has left the creation with an error. Only when round "done" has succeeded is it known that it has not
 * stopped in between. Without that the memory stays the process's, for a later calibration. */
struct input {
    struct input *next;
    int late; /* it was kept once: a peer of then may still write to it */
    uint8_t bytes[BYTES] RONDO_ALIGNED(RONDO_CACHE_LINE);
};
static struct input *kept; /* known_lock */

static void in_child(void)
{
    if (!rondo_fork_lock(&known_lock)) {
        memset(known, 0, sizeof(known));
        kept = NULL;
    }
}
RONDO_AT_FORK(in_child)

static int placement_of(uint32_t ns) { return strcmp(rondo_model_handover_name(ns), "far") == 0; }

static void recall(uint32_t ns, struct rondo_calibration *c)
{
    pthread_mutex_lock(&known_lock);
    *c = strcmp(rondo_model_handover_name(ns), "unknown") == 0 ? (struct rondo_calibration){ .flag = 0 }
                                                               : known[placement_of(ns)];
    pthread_mutex_unlock(&known_lock);
}

/* A host that is busy now may be so for long: try once. */
static int tries(uint32_t ns)
{
    int *placement = &tried[placement_of(ns)], first;
    pthread_mutex_lock(&known_lock);
    first = !*placement;
    *placement = 1;
    pthread_mutex_unlock(&known_lock);
    return first;
}

static void remember(uint32_t ns, const struct rondo_calibration *c)
{
    pthread_mutex_lock(&known_lock);
    known[placement_of(ns)] = *c;
    pthread_mutex_unlock(&known_lock);
}

/* ---- where ---- */

static uint64_t *words_of(const struct rondo_ctx *ctx, int local)
{
    return (uint64_t *)(void *)rondo_mailbox_place(ctx->wiring.mailbox, 0, local);
}

/* The area that a local rank writes. @return its bytes; 0: the mailbox is too small. */
static size_t area_of(const struct rondo_ctx *ctx, int local, uint8_t **area)
{
    const struct rondo_mailbox *box = ctx->wiring.mailbox;
    size_t room;
    if (box->nranks == 2) {
        *area = box->places + (size_t)local * box->stride + AFTER_WORDS;
        room = box->stride > AFTER_WORDS ? box->stride - AFTER_WORDS : 0;
    } else { /* behind the words of both */
        room = box->stride * (rondo_mailbox_nplaces(box->nranks) - 2) / 2 / RONDO_CTRL_ALIGN *
               RONDO_CTRL_ALIGN;
        *area = box->places + 2 * box->stride + (size_t)local * room;
    }
    room = rondo_min_size(room, BYTES) / LEAST_BYTES * LEAST_BYTES;
    return room;
}

static rondo_status get_memory(struct rondo_calibrating *c)
{
    struct input *input;
    pthread_mutex_lock(&known_lock);
    input = kept;
    kept = input != NULL ? input->next : NULL;
    pthread_mutex_unlock(&known_lock);
    RONDO_TRY(input == NULL ? RONDO_NEW(input, "the calibration's input") : RONDO_SUCCESS);
    c->mine = input->bytes;
    return RONDO_NEW_ARRAY(c->sum, BYTES, "the calibration's output");
}

void rondo_init_free_calibrating(struct rondo_init *init, int done)
{
    struct rondo_calibrating *c = &init->calibrating;
    struct input *input = c->mine != NULL ? (void *)(c->mine - offsetof(struct input, bytes)) : NULL;
    if (input != NULL && done && !input->late) {
        rondo_free(input);
    } else if (input != NULL) {
        pthread_mutex_lock(&known_lock);
        input->late = 1;
        input->next = kept;
        kept = input;
        pthread_mutex_unlock(&known_lock);
    }
    rondo_free(c->sum);
    rondo_free(c->ns);
    c->mine = c->sum = NULL;
    c->ns = NULL;
}

/* ---- the kernel's copies ---- */

static int uses_kernel(uint64_t step)
{
    enum step what = (enum step)(step % NUM_STEPS);
    return (what == STEP_KERNEL || what == STEP_KERNEL_PART) && rondo_params()->cma != RONDO_CMA_NEVER;
}

static ssize_t carry(int pid, int writes, void *here, uint64_t there, size_t bytes)
{
    struct iovec local = { here, bytes }, remote = { (void *)(uintptr_t)there, bytes };
    return (writes ? process_vm_writev : process_vm_readv)(pid, &local, 1, &remote, 1, 0);
}

/* This rank's part of an in-place two-shot: local rank 0 sums the first half, local rank 1 the second.
 * @return 0: the kernel does not copy. */
static int swap_sums(const struct rondo_init *init, int local, size_t bytes)
{
    const struct rondo_ctx *ctx = init->ctx;
    int pid = ctx->wiring.peers[ctx->wiring.layout.local_ranks[1 - local]].pid;
    size_t half = bytes / 2, at = local == 0 ? 0 : half;
    uint64_t there = words_of(ctx, 1 - local)[ADDRESS_WORD] + at;
    uint8_t *mine = init->calibrating.mine; /* ordinary memory, as the calls' */
    const void *srcs[2];
    srcs[local] = mine + at;
    srcs[1 - local] = init->calibrating.sum;
    if (carry(pid, 0, init->calibrating.sum, there, half) != (ssize_t)half) {
        return 0;
    }
    rondo_reduce_get(RONDO_FLOAT32, RONDO_REDUCE_SUM)(mine + at, srcs, 2, half / sizeof(float));
    return carry(pid, 1, mine + at, there, half) == (ssize_t)half;
}

static size_t swapped_bytes(uint64_t step, size_t bytes)
{
    return step % NUM_STEPS == STEP_KERNEL ? bytes : bytes / KERNEL_PART;
}

/* Local rank 1 swaps once local rank 0 does, which writes its input anew before that. It says whether it has
 * swapped: what local rank 0 does alone is no measure. */
static void follow(const struct rondo_init *init, uint64_t step, size_t bytes)
{
    const uint64_t *go = words_of(init->ctx, 0) + GO_WORD;
    int swapped = 0;
    for (int i = 0; i < FOLLOW_LISTENS && !swapped; i++) {
        swapped = rondo_init_hears(go, step + 1);
    }
    swapped = swapped && swap_sums(init, 1, swapped_bytes(step, bytes));
    __atomic_store_n(words_of(init->ctx, 1) + GO_WORD, swapped ? step + 1 : not_swapped, __ATOMIC_RELEASE);
}

/* @return 0: it does not work, or local rank 1 was late or has not swapped. */
static int swap_together(const struct rondo_init *init, uint64_t step, size_t bytes)
{
    __atomic_store_n(words_of(init->ctx, 0) + GO_WORD, step + 1, __ATOMIC_RELEASE);
    return swap_sums(init, 0, swapped_bytes(step, bytes)) &&
           rondo_init_hears(words_of(init->ctx, 1) + GO_WORD, step + 1);
}

/* ---- local rank 1 ---- */

/* Write by loads and stores: string instructions may leave the lines elsewhere. */
static void rewrite(uint8_t *at, size_t bytes)
{
    const void *srcs[2] = { at, at };
    rondo_reduce_get(RONDO_FLOAT32, RONDO_REDUCE_SUM)(at, srcs, 2, bytes / sizeof(float));
}

/* Write the payload and read the output of local rank 0. */
static void prepare(uint8_t *payload, const uint8_t *output, size_t bytes)
{
    volatile uint8_t line;
    rewrite(payload, bytes);
    for (size_t i = 0; i < bytes; i += RONDO_CACHE_LINE) {
        line = output[i];
    }
    (void)line;
}

static rondo_status answer(struct rondo_init *init)
{
    struct rondo_calibrating *c = &init->calibrating;
    const struct rondo_ctx *ctx = init->ctx;
    const uint64_t *other = words_of(ctx, 0) + STEP_WORD;
    uint64_t *mine = words_of(ctx, 1);
    int64_t end = rondo_now_ns() + LISTEN_NS;
    uint8_t *payload, *output;
    size_t bytes = area_of(ctx, 1, &payload);
    (void)area_of(ctx, 0, &output);
    RONDO_TRY(c->sum == NULL ? get_memory(c) : RONDO_SUCCESS);
    mine[ADDRESS_WORD] = (uint64_t)(uintptr_t)c->mine;
    do {
        uint64_t heard = __atomic_load_n(other, __ATOMIC_ACQUIRE);
        if (heard == end_word) {
            memset(payload, 0, bytes);
            memset(output, 0, bytes);
            return RONDO_SUCCESS;
        }
        if (heard == (uint64_t)c->step + 1) {
            prepare(payload, output, bytes);
            rewrite(c->mine, bytes);
            __atomic_store_n(&mine[STEP_WORD], heard, __ATOMIC_RELEASE);
            if (uses_kernel(heard - 1)) {
                follow(init, heard - 1, bytes);
            }
            c->step++;
            end = rondo_now_ns() + LISTEN_NS;
        }
    } while (rondo_now_ns() < end);
    return RONDO_IN_PROGRESS;
}

/* ---- local rank 0 ---- */

/* Do what a step times. @return 0: it does not work here. */
static int run_step(const struct rondo_init *init, enum step step, const uint8_t *theirs, uint8_t *output,
                    size_t bytes)
{
    const struct rondo_calibrating *c = &init->calibrating;
    const void *srcs[2] = { c->mine, theirs };
    rondo_reduce_fn *reduce = rondo_reduce_get(RONDO_FLOAT32, RONDO_REDUCE_SUM);
    struct rondo_reduction what = { .type = RONDO_FLOAT32, .op = RONDO_REDUCE_SUM, .nsrcs = 2, .srcs = srcs };
    size_t n = bytes / sizeof(float);
    int works = 1;
    switch (step) {
    case STEP_COPY: memcpy(c->sum, c->mine, bytes); break;
    case STEP_STREAM: rondo_copy(c->sum, c->mine, bytes, 1); break;
    case STEP_SUM: reduce(c->mine, srcs, 2, n); break;
    case STEP_STORES: reduce(output, srcs, 2, n); break;
    case STEP_OVER: rondo_reduce_over(&what, &output, 1, n); break;
    case STEP_PAST: rondo_reduce_past(&what, &output, 1, NULL, n); break;
    case STEP_FIRST:
        memcpy(output, c->mine, bytes);
        srcs[0] = output;
        reduce(output, srcs, 2, n);
        break;
    case STEP_KERNEL:
    case STEP_KERNEL_PART:
        works = uses_kernel((uint64_t)step) && swap_together(init, (uint64_t)c->step, bytes);
        break;
    case STEP_YIELD: sched_yield(); break;
    case NUM_STEPS: break;
    }
    return works;
}

static uint64_t timed(const struct rondo_init *init, enum step step, const uint8_t *theirs, uint8_t *output,
                      size_t bytes)
{
    int64_t begin;
    int works;
    rewrite(init->calibrating.mine, bytes); /* it is in this core's caches, as a caller's input */
    begin = rondo_now_ns();
    works = run_step(init, step, theirs, output, bytes);
    return works ? (uint64_t)(rondo_now_ns() - begin) : 0;
}

/* The least time of a step. @return 0: it does not work, or the two least differ so much that the core was
 * shared all the time. */
static uint64_t least(const struct rondo_calibrating *c, enum step step)
{
    uint64_t first = 0, second = 0;
    for (int i = 0; i < REPEATS; i++) {
        uint64_t ns = c->ns[i * NUM_STEPS + (int)step];
        if (ns > 0 && (first == 0 || ns < first)) {
            second = first;
            first = ns;
        } else if (ns > 0 && (second == 0 || ns < second)) {
            second = ns;
        }
    }
    return second == 0 || second > 2 * first + 200 ? 0 : first;
}

static uint32_t mbs(uint64_t ns, size_t bytes) { return ns == 0 ? 0 : (uint32_t)(bytes * 1000 / ns); }

/* Two lengths give what a call costs, and a byte. An exchange has two calls. */
static void conclude_kernel(const struct rondo_calibrating *c, size_t bytes, struct rondo_calibration *found)
{
    uint64_t all = least(c, STEP_KERNEL), part = least(c, STEP_KERNEL_PART), moved;
    if (all == 0 || part == 0 || all <= part) {
        return;
    }
    moved = (all - part) * KERNEL_PART / (KERNEL_PART - 1);
    found->kernel = mbs(moved, bytes);
    found->kernel_call = (uint32_t)(all > moved + 40 ? (all - moved) / 2 : 20);
}

static void conclude(struct rondo_init *init, size_t bytes)
{
    struct rondo_calibrating *c = &init->calibrating;
    struct rondo_calibration found = { .flag = init->handover.best_ns,
                                       .copy = mbs(least(c, STEP_COPY), bytes),
                                       .stream = mbs(least(c, STEP_STREAM), bytes),
                                       .sum = mbs(least(c, STEP_SUM), bytes),
                                       .apart_stores = mbs(least(c, STEP_STORES), bytes),
                                       .apart_over = mbs(least(c, STEP_OVER), bytes),
                                       .apart_past = mbs(least(c, STEP_PAST), bytes),
                                       .apart_copy = mbs(least(c, STEP_FIRST), bytes),
                                       .yield = (uint32_t)least(c, STEP_YIELD) };
    char key[RONDO_CALIBRATION_KEY];
    conclude_kernel(c, bytes, &found);
    if (!rondo_calibration_known(&found) || !rondo_calibration_valid(&found)) {
        RONDO_INFO(RONDO_SUBSYS_TUNING, "the calibration failed: the cores were busy with other work");
        return;
    }
    c->found = found;
    rondo_calibration_write(rondo_calibration_key(rondo_model_handover_name(found.flag), key), &found);
}

/* Go through the steps until local rank 1 is late. @return RONDO_SUCCESS: all done, or given up. */
static rondo_status go_through(struct rondo_init *init)
{
    struct rondo_calibrating *c = &init->calibrating;
    uint64_t *mine = words_of(init->ctx, 0) + STEP_WORD;
    const uint64_t *other = words_of(init->ctx, 1) + STEP_WORD;
    uint8_t *theirs, *output;
    size_t bytes = area_of(init->ctx, 0, &output);
    (void)area_of(init->ctx, 1, &theirs);
    words_of(init->ctx, 0)[ADDRESS_WORD] = (uint64_t)(uintptr_t)c->mine;
    for (; c->step < NUM_STEPS * REPEATS && rondo_now_ns() - c->begin_ns < MOST_NS; c->step++) {
        __atomic_store_n(mine, (uint64_t)c->step + 1, __ATOMIC_RELEASE);
        if (!rondo_init_hears(other, (uint64_t)c->step + 1)) {
            return RONDO_IN_PROGRESS;
        }
        c->ns[c->step] = timed(init, (enum step)(c->step % NUM_STEPS), theirs, output, bytes);
    }
    if (c->step >= NUM_STEPS * LEAST_REPEATS) {
        conclude(init, bytes);
    } else {
        RONDO_INFO(RONDO_SUBSYS_TUNING, "the calibration took longer than %d ms: it is left out",
                   MOST_NS / 1000000);
    }
    return RONDO_SUCCESS;
}

/* Is there something to measure? */
static int begins(struct rondo_init *init)
{
    struct rondo_calibrating *c = &init->calibrating;
    uint8_t *area;
    char key[RONDO_CALIBRATION_KEY];
    uint32_t ns = init->handover.best_ns;
    const char *placement = rondo_model_handover_name(ns);
    size_t bytes = area_of(init->ctx, 0, &area);
    if (strcmp(placement, "unknown") == 0) { /* the cores were not free, or the caller is slow */
        return 0;
    }
    recall(ns, &c->found);
    if (rondo_calibration_known(&c->found) ||
        (rondo_params()->calibrate == RONDO_CALIBRATE_ONCE &&
         rondo_calibration_read(rondo_calibration_key(placement, key), &c->found))) {
        return 0;
    }
    c->begin_ns = rondo_now_ns();
    return bytes >= LEAST_BYTES && tries(ns) && get_memory(c) == RONDO_SUCCESS &&
           RONDO_NEW_ARRAY(c->ns, NUM_STEPS * REPEATS, "the calibration's times") == RONDO_SUCCESS;
}

static rondo_status lead(struct rondo_init *init)
{
    struct rondo_calibrating *c = &init->calibrating;
    if (!c->begun) {
        c->begun = 1;
        c->step = begins(init) ? 0 : -1;
    }
    if (c->step >= 0) {
        RONDO_TRY(go_through(init));
    }
    __atomic_store_n(words_of(init->ctx, 0) + STEP_WORD, end_word, __ATOMIC_RELEASE);
    return RONDO_SUCCESS;
}

/* ---- both ---- */

/* Local ranks 0 and 1 of a node whose ranks have a core each. */
static int takes_part(const struct rondo_init *init)
{
    const struct rondo_ctx *ctx = init->ctx;
    const struct rondo_layout *l = &ctx->wiring.layout;
    return rondo_params()->calibrate != RONDO_CALIBRATE_NEVER && ctx->wiring.direct != NULL &&
           l->model.ranks_per_core <= 1 && l->nlocal > 1 && l->local_rank <= 1 && !ctx->backend->is_gpu &&
           ctx->wiring.peers[l->local_ranks[0]].process_hash !=
               ctx->wiring.peers[l->local_ranks[1]].process_hash;
}

rondo_status rondo_init_calibrate(struct rondo_init *init, int *silent)
{
    const struct rondo_layout *l = &init->ctx->wiring.layout;
    rondo_status status;
    if (!takes_part(init)) {
        return RONDO_SUCCESS;
    }
    if (init->handover.known) { /* these two have met before, and no step follows */
        recall(init->handover.best_ns, &init->calibrating.found);
        return RONDO_SUCCESS;
    }
    status = l->local_rank == 0 ? lead(init) : answer(init);
    *silent = status == RONDO_IN_PROGRESS ? l->local_ranks[1 - l->local_rank] : *silent;
    return status;
}

static void use(struct rondo_init *init, const struct rondo_calibration *c, uint32_t ns)
{
    struct rondo_ctx *ctx = init->ctx;
    struct rondo_layout *l = &ctx->wiring.layout;
    char text[512];
    if (ctx->wiring.direct != NULL && !ctx->backend->is_gpu) {
        l->fixed = l->model;
        l->has_fixed = 1;
        rondo_model_calibrate(&l->model, c);
    }
    ctx->wiring.calibration = l->model.calibrated ? *c : (struct rondo_calibration){ .flag = 0 };
    if (l->model.calibrated && ctx->job.rank == 0) {
        RONDO_INFO(RONDO_SUBSYS_INIT | RONDO_SUBSYS_TUNING, "%s: this host, cores %s: %s", ctx->job.name,
                   rondo_model_handover_name(ns), rondo_calibration_text(c, text, sizeof(text)));
    }
    rondo_init_use_handover(init, ns);
}

void rondo_init_use_measured(struct rondo_init *init, const struct rondo_calibration *c, uint32_t ns)
{
    use(init, c, ns);
    if (init->ctx->wiring.layout.model.calibrated) {
        remember(ns, c);
    }
}

/* Not what this process knows: another rank's may be older. */
void rondo_init_use_inherited(struct rondo_init *init)
{
    struct rondo_calibration c = init->ctx->wiring.calibration;
    uint32_t ns = init->handover.best_ns;
    if (c.flag == 0 || ns == 0 || placement_of(c.flag) != placement_of(ns)) {
        c = (struct rondo_calibration){ .flag = 0 };
    }
    use(init, &c, ns);
}
