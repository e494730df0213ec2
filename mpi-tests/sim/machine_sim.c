/* The simulated machine's fibers: switching, barriers and warps. */
#include "sim/machine_sim_impl.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(RONDO_SIM_UCONTEXT)
#define RONDO_SIM_UCONTEXT 1
#endif
#ifdef RONDO_SIM_UCONTEXT
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
enum { STACK_BYTES = 256 * 1024 };
#else
enum { STACK_BYTES = 64 * 1024 };
#endif
enum { CANARY = 0x51ac51ac, IDLE_YIELD = 4, IDLE_SLEEP = 4096, IDLE_SLEEP_NS = 50000 };

__thread struct rondo_sim_self *rondo_sim_self;

/* ---- switching ---- */

static void fiber_main(void);

#ifdef RONDO_SIM_UCONTEXT
static void context_switch(struct sim_context *from, const struct sim_context *to)
{
    swapcontext(from->ucontext, to->ucontext);
}
static int context_make(struct sim_context *c, uint8_t *stack, size_t bytes)
{
    ucontext_t *u = calloc(1, sizeof(*u));
    c->ucontext = u;
    if (u == NULL || getcontext(u) != 0) {
        return 0;
    }
    u->uc_stack.ss_sp = stack;
    u->uc_stack.ss_size = bytes;
    makecontext(u, fiber_main, 0);
    return 1;
}
static int context_make_main(struct sim_context *c)
{
    return (c->ucontext = calloc(1, sizeof(ucontext_t))) != NULL;
}
static void context_free(struct sim_context *c) { free(c->ucontext); }
#else
/* void rondo_sim_switch(void **save, void *to): push the callee-saved registers, store the stack pointer to
 * *save, and continue on the stack `to`. */
#if defined(__x86_64__)
/* Six registers, the return address, and that function's own return address. At a function's entry the stack
 * pointer is 8 off a multiple of 16. */
enum { FRAME_WORDS = 8, RETURN_WORD = 6 };
__asm__(".text\n"
        ".p2align 4\n"
        ".hidden rondo_sim_switch\n"
        ".globl rondo_sim_switch\n"
        ".type rondo_sim_switch, @function\n"
        "rondo_sim_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size rondo_sim_switch, .-rondo_sim_switch\n");
#else
enum { FRAME_WORDS = 20, RETURN_WORD = 11 };
__asm__(".text\n"
        ".p2align 4\n"
        ".hidden rondo_sim_switch\n"
        ".globl rondo_sim_switch\n"
        ".type rondo_sim_switch, %function\n"
        "rondo_sim_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n    stp x25, "
        "x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n    stp d8, d9, [sp, #96]\n    stp d10, "
        "d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n    str x9, [x0]\n    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n    ldp x25, "
        "x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n    ldp d8, d9, [sp, #96]\n    ldp d10, "
        "d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size rondo_sim_switch, .-rondo_sim_switch\n");
#endif
void rondo_sim_switch(void **save, void *to) __attribute__((visibility("hidden")));

static void context_switch(struct sim_context *from, const struct sim_context *to)
{
    rondo_sim_switch(&from->sp, to->sp);
}
/* A stack as if the fiber had called the switch at its entry. Its return address is 0, where unwinders stop.
 */
static int context_make(struct sim_context *c, uint8_t *stack, size_t bytes)
{
    void **sp = (void **)(void *)(stack + bytes) - FRAME_WORDS;
    memset(sp, 0, FRAME_WORDS * sizeof(void *));
    sp[RETURN_WORD] = (void *)(uintptr_t)fiber_main;
    c->sp = sp;
    return 1;
}
static int context_make_main(struct sim_context *c)
{
    (void)c;
    return 1;
}
static void context_free(struct sim_context *c) { (void)c; }
#endif

/* Tell sanitizers which stack is next. gone: the fiber never comes back. */
static void switch_to(struct sim_context *from, struct sim_context *to, int gone)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(gone ? NULL : &from->fake_stack, to->stack, to->stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
    (void)gone;
    context_switch(from, to);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}

static void run_main(struct sim *sim, struct sim_context *from, int gone)
{
    rondo_sim_self = NULL;
    switch_to(from, &sim->main, gone);
}

static void make_ready(struct sim *sim, struct sim_thread *t)
{
    uint32_t at = (sim->first + sim->nready++) % sim->nthreads;
    sim->ready[at] = t;
}

static struct sim_thread *next_ready(struct sim *sim)
{
    struct sim_thread *t;
    if (sim->rules->seed != 0 && sim->nready > 1) {
        uint32_t at = (sim->first + (uint32_t)(sim_random(sim) % sim->nready)) % sim->nthreads;
        t = sim->ready[at];
        sim->ready[at] = sim->ready[sim->first];
        sim->ready[sim->first] = t;
    }
    t = sim->ready[sim->first];
    sim->first = (sim->first + 1) % sim->nthreads;
    sim->nready--;
    return t;
}

/* Leave the running fiber, which is ready, waits in a list, or has ended. */
static void schedule(struct sim_thread *t)
{
    struct sim *sim = t->block->sim;
    struct sim_thread *to;
    if (*(const uint32_t *)t->context.stack != CANARY) {
        rondo_sim_break("thread %u of block %u has used more than its stack of %d bytes", t->self.tid,
                        t->self.block, (int)STACK_BYTES);
    }
    if (sim_is_late(sim)) {
        rondo_sim_memory_tick(sim);
    }
    if (sim->nready == 0) {
        if (sim->nrunning > 0) {
            rondo_sim_break("all threads that have not ended wait at a barrier or a warp operation; one is "
                            "thread %u of block %u",
                            t->self.tid, t->self.block);
        }
        run_main(sim, &t->context, 1);
    }
    to = next_ready(sim);
    sim->alone = 0;
    if (to != t) {
        if (++sim->result->switches > sim->most) {
            rondo_sim_break(
                "no end after %llu switches between threads; one that still runs is thread %u of block %u",
                (unsigned long long)sim->most, t->self.tid, t->self.block);
        }
        rondo_sim_self = &to->self;
        switch_to(&t->context, &to->context, t->done);
        rondo_sim_self = &t->self;
    }
}

void rondo_sim_yield(void)
{
    struct sim_thread *t = sim_self();
    make_ready(t->block->sim, t);
    schedule(t);
}

void rondo_sim_break(const char *fmt, ...)
{
    struct sim_thread *t = sim_self();
    struct sim *sim = t->block->sim;
    va_list args;
    va_start(args, fmt);
    vsnprintf(sim->result->why, sizeof(sim->result->why), fmt, args);
    va_end(args);
    sim->result->end = RONDO_SIM_BROKEN;
    run_main(sim, &t->context, 1);
    abort(); /* nobody switches back */
}

static void fiber_main(void)
{
    struct sim_thread *t = sim_self();
    struct sim *sim = t->block->sim;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
    t->block->grid->body(t->block->grid->arg, t->block->shared);
    if (t->warp->arrived != 0) {
        rondo_sim_break("thread %u of block %u ended while lanes of its warp wait for it", t->self.tid,
                        t->self.block);
    }
    if (++t->warp->ended == RONDO_WARP) {
        rondo_sim_lines_close(t->block, t->warp);
    }
    rondo_sim_memory_publish(t);
    t->done = 1;
    sim->nrunning--;
    sim->idle = 0;
    schedule(t);
    abort();
}

/* ---- waiting ---- */

int rondo_sim_breath(void)
{
    struct sim_thread *t = sim_self();
    struct sim *sim = t->block->sim;
    uint64_t rounds = ++sim->idle / (sim->nready + 1u);
    rondo_sim_lines_close(t->block, t->warp);
    /* In a large run chance may have kept a store back for so long. */
    if (sim->rules->patience != 0 && rounds > sim->rules->patience && !sim->leave &&
        !rondo_sim_memory_settle(sim)) {
        sim->leave = 1;
        sim->result->end = RONDO_SIM_STUCK;
        snprintf(sim->result->why, sizeof(sim->result->why), "nothing moves; thread %u of block %u waits",
                 t->self.tid, t->self.block);
    }
    if (sim->rules->patience == 0 && rounds > IDLE_YIELD && sim->idle % (sim->nready + 1u) == 0) {
        struct timespec nap = { 0, IDLE_SLEEP_NS };
        if (rounds > IDLE_SLEEP) {
            nanosleep(&nap, NULL);
        } else {
            sched_yield();
        }
    }
    rondo_sim_yield();
    return !sim->leave;
}

void rondo_sim_barrier(uint32_t barrier, uint32_t nthreads)
{
    struct sim_thread *t = sim_self(), *next;
    struct sim *sim = t->block->sim;
    struct sim_barrier *b = &t->block->barrier[barrier % SIM_BARRIERS];
    if (barrier >= SIM_BARRIERS || nthreads == 0 || nthreads % RONDO_WARP != 0 ||
        nthreads > t->self.nthreads) {
        rondo_sim_break("barrier %u of %u threads in a block of %u", barrier, nthreads, t->self.nthreads);
    }
    if (b->arrived > 0 && b->nthreads != nthreads) {
        rondo_sim_break("barrier %u of block %u: one thread says that %u share it, thread %u that %u",
                        barrier, t->self.block, b->nthreads, t->self.tid, nthreads);
    }
    rondo_sim_lines_close(t->block, t->warp);
    rondo_sim_memory_share(t);
    b->nthreads = nthreads;
    b->version = t->floor > b->version ? t->floor : b->version;
    rondo_sim_race_arrive(&b->clock, t);
    if (++b->arrived < nthreads) {
        t->next = b->waiting;
        b->waiting = t;
        schedule(t);
        return;
    }
    t->floor = b->version;
    rondo_sim_race_meet(b->clock, t);
    for (struct sim_thread *w = b->waiting; w != NULL; w = next) {
        next = w->next;
        w->floor = b->version;
        rondo_sim_race_meet(b->clock, w);
        make_ready(sim, w);
    }
    rondo_sim_race_met(&b->clock);
    memset(b, 0, sizeof(*b));
    sim->idle = 0;
    rondo_sim_yield();
}

static void finish_warp(struct sim_thread *t, struct sim_thread *lane)
{
    struct sim_warp *w = t->warp;
    uint64_t all = 1, any = 0;
    for (int i = 0; i < RONDO_WARP; i++) {
        all &= w->value[i] != 0;
        any |= w->value[i] != 0;
    }
    for (int i = 0; i < RONDO_WARP; i++) {
        rondo_sim_race_meet(w->clock, &lane[i]);
        lane[i].result = w->vote == RONDO_SIM_ALL   ? all
                         : w->vote == RONDO_SIM_ANY ? any
                                                    : w->value[w->source[i] % RONDO_WARP];
    }
    rondo_sim_race_met(&w->clock);
    w->arrived = 0;
    w->syncs += w->vote == RONDO_SIM_SYNC;
}

uint64_t rondo_sim_warp(enum rondo_sim_vote vote, uint64_t value, uint32_t source)
{
    struct sim_thread *t = sim_self(), *lane = t - t->self.tid % RONDO_WARP;
    struct sim_warp *w = t->warp;
    uint32_t me = t->self.tid % RONDO_WARP;
    if (w->arrived != 0 && w->vote != vote) {
        rondo_sim_break("warp %u of block %u: its lanes are at different operations",
                        t->self.tid / RONDO_WARP, t->self.block);
    }
    w->vote = vote;
    w->value[me] = value;
    w->source[me] = source;
    w->arrived |= 1u << me;
    if (vote == RONDO_SIM_SYNC) {
        rondo_sim_race_arrive(&w->clock, t);
    }
    if (w->arrived != UINT32_MAX) {
        schedule(t);
        return t->result;
    }
    rondo_sim_lines_close(t->block, w);
    finish_warp(t, lane);
    /* In the order of lanes, whichever lane came last. */
    for (int i = 0; i < RONDO_WARP; i++) {
        make_ready(t->block->sim, &lane[i]);
    }
    schedule(t);
    return t->result;
}

/* ---- a run ---- */

static int make_threads(struct sim *sim, struct sim_block *b, uint32_t *made)
{
    b->thread = sim->thread + *made;
    for (uint32_t i = 0; i < b->grid->threads; i++) {
        struct sim_thread *t = &b->thread[i];
        uint8_t *stack = sim->stacks + (size_t)*made * STACK_BYTES;
        t->self = (struct rondo_sim_self){ i, b->grid->threads, b->index };
        t->block = b;
        t->warp = &b->warp[i / RONDO_WARP];
        t->context.stack = stack;
        t->context.stack_bytes = STACK_BYTES;
        *(uint32_t *)(void *)stack = CANARY;
        if (!context_make(&t->context, stack, STACK_BYTES)) {
            return 0;
        }
#if defined(__SANITIZE_THREAD__)
        t->context.tsan = __tsan_create_fiber(0);
#endif
        make_ready(sim, t);
        ++*made;
    }
    return 1;
}

static int make_blocks(struct sim *sim, const struct rondo_sim_grid *grids, int ngrids)
{
    uint32_t made = 0, at = 0;
    for (int g = 0; g < ngrids; g++) {
        for (uint32_t i = 0; i < grids[g].blocks; i++) {
            struct sim_block *b = &sim->block[at++];
            b->sim = sim;
            b->grid = &grids[g];
            b->index = i;
            b->number = g;
            b->warp = calloc(grids[g].threads / RONDO_WARP, sizeof(*b->warp));
            b->shared = aligned_alloc(SIM_LINE, rondo_round_up(grids[g].shared_bytes + 1, SIM_LINE));
            if (b->warp == NULL || b->shared == NULL) {
                return 0;
            }
            memset(b->shared, 0xa5, grids[g].shared_bytes);
            if (!make_threads(sim, b, &made)) {
                return 0;
            }
        }
    }
    return 1;
}

static int sim_begin(struct sim *sim, const struct rondo_sim_grid *grids, int ngrids)
{
    for (int g = 0; g < ngrids; g++) {
        if (grids[g].threads == 0 || grids[g].threads % RONDO_WARP != 0) {
            return 0;
        }
        sim->nblocks += grids[g].blocks;
        sim->nthreads += grids[g].blocks * grids[g].threads;
    }
    sim->nrunning = sim->nthreads;
    sim->stack_bytes = (size_t)sim->nthreads * STACK_BYTES;
    sim->stacks = mmap(NULL, sim->stack_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sim->stacks == MAP_FAILED) {
        sim->stacks = NULL;
        return 0;
    }
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(sim->stacks, sim->stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
    sim->main.tsan = __tsan_get_current_fiber();
#endif
    sim->block = calloc(sim->nblocks, sizeof(*sim->block));
    sim->thread = calloc(sim->nthreads, sizeof(*sim->thread));
    sim->ready = calloc(sim->nthreads, sizeof(struct sim_thread *));
    return sim->block != NULL && sim->thread != NULL && sim->ready != NULL && context_make_main(&sim->main) &&
           make_blocks(sim, grids, ngrids) && rondo_sim_memory_begin(sim) && rondo_sim_race_begin(sim);
}

static void sim_end(struct sim *sim)
{
    rondo_sim_memory_end(sim);
    rondo_sim_race_end(sim);
    for (uint32_t i = 0; sim->block != NULL && i < sim->nblocks; i++) {
        free(sim->block[i].warp);
        free(sim->block[i].shared);
    }
    for (uint32_t i = 0; sim->thread != NULL && i < sim->nthreads; i++) {
#if defined(__SANITIZE_THREAD__)
        if (sim->thread[i].context.tsan != NULL) {
            __tsan_destroy_fiber(sim->thread[i].context.tsan);
        }
#endif
        context_free(&sim->thread[i].context);
    }
    context_free(&sim->main);
    free(sim->block);
    free(sim->thread);
    free(sim->ready);
    if (sim->stacks != NULL) {
        munmap(sim->stacks, sim->stack_bytes);
    }
}

/* Find the stack that the run was called on: the sanitizer must know it when fibers go back. */
static void learn_main_stack(struct sim_context *main)
{
#if defined(__SANITIZE_ADDRESS__)
    pthread_attr_t attr;
    void *base;
    size_t bytes;
    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
        pthread_attr_getstack(&attr, &base, &bytes);
        pthread_attr_destroy(&attr);
        main->stack = base;
        main->stack_bytes = bytes;
    }
#else
    (void)main;
#endif
}

void rondo_sim_run(const struct rondo_sim_rules *rules, const struct rondo_sim_grid *grids, int ngrids,
                   struct rondo_sim_result *result)
{
    struct sim sim = { .rules = rules, .result = result, .random = rules->seed * 0x9e3779b97f4a7c15ull | 1 };
    memset(result, 0, sizeof(*result));
    sim.most = rules->most != 0 ? rules->most : rules->open ? UINT64_MAX : RONDO_SIM_MOST;
    if (!sim_begin(&sim, grids, ngrids)) {
        result->end = RONDO_SIM_BROKEN;
        snprintf(result->why, sizeof(result->why),
                 "no memory for %u threads of %u blocks, or blocks that are not whole warps", sim.nthreads,
                 sim.nblocks);
    } else if (sim.nthreads > 0) {
        struct sim_thread *t = next_ready(&sim);
        learn_main_stack(&sim.main);
        rondo_sim_self = &t->self;
        switch_to(&sim.main, &t->context, 0);
    }
    sim_end(&sim);
}
