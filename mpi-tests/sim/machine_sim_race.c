/*
 * The simulated machine's race check. Two accesses of different threads to the same bytes, one of them a
 * store and one of them plain, race if nothing orders them: a barrier, a warp sync, or a store after a fence
 * (or a release) whose value the other thread loads before a fence (or by an acquire). Votes and shuffles
 * order nothing, as on a GPU. The check does not depend on luck: what races is found under every seed that
 * makes both accesses.
 *
 * Threads have vector clocks. A thread's epoch grows whenever others may learn what it has done; its clock
 * says which epochs of the others it knows. For each 4 bytes, or each byte of those that are used apart, a
 * cell has the last store, the loads since, and the clocks that the last ordered store carried.
 *
 * A credit, the reader's word to the writer that a slot is free, is stored without a fence: the loads have
 * ended where their values were used, before the block's barrier. So such a word orders the loads that a
 * barrier puts before it, but no store, before what its loader's block overwrites.
 *
 * Where the compiler can, the file with the kernels is compiled with -fsanitize=thread, and the calls that it
 * then makes for plain accesses end here instead of in ThreadSanitizer's library. Elsewhere only the
 * functions of kern/machine.h are checked.
 */
#include "sim/machine_sim_impl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_BYTES = 256, CELL_BYTES = 4, CELLS = PAGE_BYTES / CELL_BYTES, FRAMES = 3 };

struct sim_clock {
    uint32_t refs, stamp; /* stamp: the last meeting that it was merged into */
    uint32_t owner;       /* whose clock it was */
    uint32_t at[];        /* by thread: its epochs up to this one are known */
};

struct sim_access {
    uint32_t epoch; /* 0: none */
    uint32_t thread : 31, strong : 1;
    int32_t place; /* of the code, relative to rondo_sim_run */
    uint32_t time; /* accesses of the run before it */
};

struct sim_cell {
    struct sim_access write, read; /* read: the only one since the write, unless there are `reads` */
    struct sim_access *reads;      /* by thread */
    uint32_t first, end;           /* of these, those that may be used */
    struct sim_clock *clock;       /* that the last strong store carries */
    struct sim_clock *used;        /* of its thread: loads up to these epochs have ended */
    struct sim_cell *bytes;        /* CELL_BYTES cells: the bytes are used apart */
};

struct sim_page {
    uintptr_t number;
    struct sim_cell cell[CELLS];
};

struct sim_race {
    uint32_t n, stamp, time;
    struct sim_page **page; /* hashed by number */
    uint32_t npages, most;  /* most: a power of two */
    struct sim_page *last;
    /* the first race */
    const struct sim_thread *second;
    const struct sim_thread *first;
    struct sim_access here, there;
    uintptr_t addr;
    uint32_t bytes;
    int here_writes, there_writes;
};

static void *more(size_t n, size_t size)
{
    void *p = calloc(n, size);
    if (p == NULL) {
        rondo_sim_break("no memory for the race check");
    }
    return p;
}

/* ---- clocks ---- */

static uint32_t number_of(const struct sim_thread *t) { return (uint32_t)(t - t->block->sim->thread); }

static struct sim_clock *clock_new(const struct sim *sim, const struct sim_clock *from)
{
    const size_t bytes = sizeof(struct sim_clock) + sim->nthreads * sizeof(uint32_t);
    struct sim_clock *c = more(1, bytes);
    if (from != NULL) {
        memcpy(c, from, bytes);
    }
    c->refs = 1;
    c->stamp = 0;
    return c;
}

static void clock_drop(struct sim_clock **c)
{
    if (*c != NULL && --(*c)->refs == 0) {
        free(*c);
    }
    *c = NULL;
}

static void clock_set(struct sim_clock **c, struct sim_clock *to)
{
    if (to != NULL) {
        to->refs++;
    }
    clock_drop(c);
    *c = to;
}

static void clock_merge(const struct sim *sim, struct sim_clock *c, const struct sim_clock *other)
{
    for (uint32_t i = 0; i < sim->nthreads; i++) {
        c->at[i] = other->at[i] > c->at[i] ? other->at[i] : c->at[i];
    }
}

/* *c also knows what `other` knows. */
static void clock_learn(const struct sim *sim, struct sim_clock **c, struct sim_clock *other)
{
    struct sim_clock *both;
    if (other == NULL || (*c != NULL && (*c)->at[other->owner] >= other->at[other->owner])) {
        return; /* a clock that knows another's last epoch knows all that it knew then */
    }
    if (*c == NULL) {
        clock_set(c, other);
        return;
    }
    both = clock_new(sim, *c);
    clock_merge(sim, both, other);
    clock_drop(c);
    *c = both;
}

/* The thread's clock now, which others may get. */
static struct sim_clock *clock_of(struct sim_thread *t)
{
    struct sim_clock *c = clock_new(t->block->sim, t->known);
    c->owner = number_of(t);
    c->at[c->owner] = t->epoch++;
    clock_drop(&t->known);
    t->known = c;
    return c;
}

void rondo_sim_race_arrive(struct sim_clock **meeting, struct sim_thread *t)
{
    const struct sim *sim = t->block->sim;
    struct sim_clock *c = *meeting;
    if (sim->race == NULL) {
        return;
    }
    if (c == NULL) {
        *meeting = c = clock_new(sim, NULL);
        c->stamp = ++sim->race->stamp;
    }
    if (t->known != NULL && t->known->stamp != c->stamp) {
        t->known->stamp = c->stamp;
        clock_merge(sim, c, t->known);
    }
    c->owner = number_of(t);
    c->at[c->owner] = t->epoch++;
}

void rondo_sim_race_meet(struct sim_clock *meeting, struct sim_thread *t)
{
    if (meeting != NULL) {
        clock_set(&t->known, meeting);
        clock_set(&t->credits, t->block->credits);
    }
}

void rondo_sim_race_met(struct sim_clock **meeting) { clock_drop(meeting); }

void rondo_sim_race_fence(struct sim_thread *t)
{
    if (t->block->sim->race == NULL) {
        return;
    }
    clock_learn(t->block->sim, &t->known, t->found);
    clock_drop(&t->found);
    clock_set(&t->fenced, clock_of(t));
}

/* ---- cells ---- */

static uint32_t slot_of(const struct sim_race *race, uintptr_t number)
{
    uint32_t at = (uint32_t)(number * 0x9e3779b97f4a7c15ull >> 40) & (race->most - 1);
    while (race->page[at] != NULL && race->page[at]->number != number) {
        at = (at + 1) & (race->most - 1);
    }
    return at;
}

static void grow(struct sim_race *race)
{
    struct sim_page **old = race->page;
    const uint32_t most = race->most;
    struct sim_page **wider = more(most == 0 ? 256 : 2 * (size_t)most, sizeof(struct sim_page *));
    race->most = most == 0 ? 256 : 2 * most;
    race->page = wider;
    for (uint32_t i = 0; i < most; i++) {
        if (old[i] != NULL) {
            race->page[slot_of(race, old[i]->number)] = old[i];
        }
    }
    free(old);
}

static struct sim_cell *cell_of(struct sim_race *race, uintptr_t addr)
{
    const uintptr_t number = addr / PAGE_BYTES;
    if (race->last == NULL || race->last->number != number) {
        uint32_t at;
        if (2 * race->npages >= race->most) {
            grow(race);
        }
        at = slot_of(race, number);
        if (race->page[at] == NULL) {
            race->page[at] = more(1, sizeof(struct sim_page));
            race->page[at]->number = number;
            race->npages++;
        }
        race->last = race->page[at];
    }
    return &race->last->cell[addr % PAGE_BYTES / CELL_BYTES];
}

/* From now on each byte has its own cell. */
static void split(const struct sim_race *race, struct sim_cell *c)
{
    c->bytes = more(CELL_BYTES, sizeof(*c));
    for (int i = 0; i < CELL_BYTES; i++) {
        struct sim_cell *b = &c->bytes[i];
        b->write = c->write;
        b->read = c->read;
        b->first = c->first;
        b->end = c->end;
        if (c->reads != NULL) {
            b->reads = more(race->n, sizeof(*b->reads));
            memcpy(b->reads, c->reads, race->n * sizeof(*b->reads));
        }
    }
}

static void cell_free(struct sim_cell *c)
{
    for (int i = 0; c->bytes != NULL && i < CELL_BYTES; i++) {
        free(c->bytes[i].reads);
    }
    free(c->bytes);
    free(c->reads);
    clock_drop(&c->clock);
    clock_drop(&c->used);
}

/* ---- accesses ---- */

struct now {
    struct sim_thread *t;
    struct sim_access access;
    int writes;
    uintptr_t addr;
    uint32_t bytes;
};

static int32_t place_of(const void *pc) { return (int32_t)((intptr_t)pc - (intptr_t)&rondo_sim_run); }

/* A thread that passes on what it has loaded, in a pair with a flag, has loaded it. Who has seen what came of
 * that may overwrite the place: one flow of a tree stores where the other has loaded. The lanes of a warp
 * load, shuffle and pass on together. Taken for seen is any pair that was loaded later. And who has a credit
 * may overwrite what its thread's block had loaded before a barrier. */
static int was_passed_on(const struct now *now, const struct sim_access *read)
{
    const struct sim_thread *reader = &now->t->block->sim->thread[read->thread];
    const struct sim_clock *credits = now->t->credits;
    return (credits != NULL && credits->at[read->thread] >= read->epoch) ||
           (reader->warp->pair_stored > read->time && now->t->warp->pair_loaded > read->time);
}

/* The run ends here if nothing orders an earlier access before this one. */
static void must_follow(const struct now *now, const struct sim_access *earlier, int wrote)
{
    struct sim *sim = now->t->block->sim;
    struct sim_race *race = sim->race;
    const struct sim_clock *known = now->t->known;
    if (earlier->epoch == 0 || earlier->thread == now->access.thread ||
        (earlier->strong && now->access.strong) ||
        (known != NULL && known->at[earlier->thread] >= earlier->epoch) ||
        (!wrote && was_passed_on(now, earlier))) {
        return;
    }
    race->second = now->t;
    race->first = &sim->thread[earlier->thread];
    race->here = now->access;
    race->there = *earlier;
    race->here_writes = now->writes;
    race->there_writes = wrote;
    race->addr = now->addr;
    race->bytes = now->bytes;
    rondo_sim_break("a race");
}

/* It is the last one, unless the same thread has made a plain one in the same epoch, which says more. */
static void note(struct sim_access *last, const struct now *now)
{
    if (last->thread != now->access.thread || last->epoch != now->access.epoch || last->strong) {
        *last = now->access;
    }
}

static void note_read(const struct now *now, struct sim_cell *c)
{
    const uint32_t me = now->access.thread;
    struct sim_access *mine = &c->read;
    if (c->reads == NULL && c->read.epoch != 0 && c->read.thread != me) {
        c->reads = more(now->t->block->sim->race->n, sizeof(*c->reads));
    }
    if (c->reads != NULL && c->first == c->end) { /* the first of several */
        c->first = me;
        c->end = me + 1;
        if (c->read.epoch != 0) {
            c->reads[c->read.thread] = c->read;
            c->first = c->read.thread < me ? c->read.thread : me;
            c->end = c->read.thread < me ? me + 1 : c->read.thread + 1u;
        }
    }
    if (c->reads != NULL) {
        c->first = me < c->first ? me : c->first;
        c->end = me >= c->end ? me + 1 : c->end;
        mine = &c->reads[me];
    }
    note(mine, now);
}

static void access_cell(const struct now *now, struct sim_cell *c)
{
    must_follow(now, &c->write, 1);
    if (!now->writes) {
        note_read(now, c);
        return;
    }
    if (c->first == c->end) {
        must_follow(now, &c->read, 0);
    }
    for (uint32_t i = c->first; i < c->end; i++) {
        must_follow(now, &c->reads[i], 0);
    }
    if (c->first < c->end) {
        memset(&c->reads[c->first], 0, (c->end - c->first) * sizeof(*c->reads));
    }
    c->first = c->end = 0;
    c->read.epoch = 0;
    note(&c->write, now);
}

void rondo_sim_race_access(struct sim_thread *t, uintptr_t addr, uint32_t bytes, int how, const void *pc)
{
    struct sim *sim = t->block->sim;
    struct now now = { .t = t,
                       .access = { t->epoch, number_of(t), (how & SIM_STRONG) != 0, place_of(pc), 0 },
                       .writes = (how & SIM_WRITES) != 0,
                       .addr = addr,
                       .bytes = bytes };
    if (sim->race == NULL) {
        return;
    }
    now.access.time = ++sim->race->time;
    for (const uintptr_t end = addr + bytes; addr < end;) {
        const uintptr_t next = (addr / CELL_BYTES + 1) * CELL_BYTES, upto = next < end ? next : end;
        struct sim_cell *c = cell_of(sim->race, addr);
        if (c->bytes == NULL && upto - addr == CELL_BYTES) {
            access_cell(&now, c);
        } else {
            if (c->bytes == NULL) {
                split(sim->race, c);
            }
            for (; addr < upto; addr++) {
                access_cell(&now, &c->bytes[addr % CELL_BYTES]);
            }
        }
        addr = upto;
    }
}

void rondo_sim_race_pair(struct sim_thread *t, uintptr_t addr, int how, const void *pc)
{
    const struct sim_race *race = t->block->sim->race;
    if (race != NULL) {
        rondo_sim_race_strong(t, addr, 16, how, 0, pc);
        *(how & SIM_WRITES ? &t->warp->pair_stored : &t->warp->pair_loaded) = race->time;
    }
}

/* A word may be a credit: of what the thread knows, loads have ended. */
static void pass_credit(struct sim_thread *t, struct sim_cell *c, int writes)
{
    const struct sim *sim = t->block->sim;
    if (writes) {
        clock_set(&c->used, t->known);
    } else {
        clock_learn(sim, &t->credits, c->used);
        clock_learn(sim, &t->block->credits, c->used);
    }
}

void rondo_sim_race_strong(struct sim_thread *t, uintptr_t addr, uint32_t bytes, int how, int ordered,
                           const void *pc)
{
    struct sim *sim = t->block->sim;
    struct sim_cell *c;
    if (sim->race == NULL) {
        return;
    }
    rondo_sim_race_access(t, addr, bytes, how | SIM_STRONG, pc);
    c = cell_of(sim->race, addr);
    if (bytes <= sizeof(rondo_word)) {
        pass_credit(t, c, how & SIM_WRITES);
    }
    if (how & SIM_WRITES) {
        clock_set(&c->clock, ordered ? clock_of(t) : t->fenced);
    } else if (ordered) {
        clock_learn(sim, &t->known, c->clock);
    } else if (c->clock != NULL &&
               (t->known == NULL || t->known->at[c->clock->owner] < c->clock->at[c->clock->owner])) {
        clock_learn(sim, &t->found, c->clock);
    }
}

/* ---- the report ---- */

/* Lines of code, innermost first, as "prim.h:185 < block.h:207"; without debug information the library and
 * the offset in it. */
static void say_place(int32_t place, char *to, size_t bytes)
{
    const char *const pc = (const char *)(intptr_t)&rondo_sim_run + place - 1; /* of the call */
    char command[600], line[600];
    size_t n = 0;
    int frames = 0;
    Dl_info info;
    FILE *out;
    if (dladdr(pc, &info) == 0) {
        snprintf(to, bytes, "at %p", (const void *)pc);
        return;
    }
    snprintf(to, bytes, "%s+0x%zx", info.dli_fname, (size_t)(pc - (const char *)info.dli_fbase));
    snprintf(command, sizeof command, "addr2line -i -e '%s' 0x%zx 2>/dev/null", info.dli_fname,
             (size_t)(pc - (const char *)info.dli_fbase));
    out = popen(command, "r");
    while (out != NULL && fgets(line, sizeof line, out) != NULL) {
        const char *name = strrchr(line, '/');
        name = name == NULL ? line : name + 1;
        line[strcspn(line, " \n")] = '\0';
        if (*name == '?' || strncmp(name, "machine_sim", 11) == 0 || frames == FRAMES) {
            continue;
        }
        frames++;
        n += (size_t)snprintf(to + n, bytes - n, "%s%s", n == 0 ? "" : " < ", name);
        n = n < bytes ? n : bytes - 1;
    }
    if (out != NULL) {
        (void)pclose(out);
    }
}

static void report(const struct sim *sim)
{
    const struct sim_race *race = sim->race;
    const struct sim_block *block = race->second->block;
    const uintptr_t at = race->addr - (uintptr_t)block->shared;
    const int is_shared = at < block->grid->shared_bytes;
    char here[160], there[160], where[40];
    say_place(race->here.place, here, sizeof here);
    say_place(race->there.place, there, sizeof there);
    snprintf(where, sizeof where, is_shared ? "shared memory + 0x%zx" : "memory at 0x%zx",
             (size_t)(is_shared ? at : race->addr));
    snprintf(
        sim->result->why, sizeof(sim->result->why),
        "a race: thread %u of block %u of grid %d %s %u bytes of %s (%s), and thread %u of block %u of grid "
        "%d %s (%s): no barrier, warp sync or fences order them",
        race->second->self.tid, block->index, block->number, race->here_writes ? "writes" : "reads",
        race->bytes, where, here, race->first->self.tid, race->first->block->index,
        race->first->block->number, race->there_writes ? "has written them" : "has read them", there);
}

/* ---- a run ---- */

static int off;

void rondo_sim_check_races(int on) { __atomic_store_n(&off, !on, __ATOMIC_RELAXED); }

int rondo_sim_race_begin(struct sim *sim)
{
    if (sim->rules->open || __atomic_load_n(&off, __ATOMIC_RELAXED)) {
        return 1;
    }
    sim->race = calloc(1, sizeof(*sim->race));
    if (sim->race == NULL) {
        return 0;
    }
    sim->race->n = sim->nthreads;
    for (uint32_t i = 0; i < sim->nthreads; i++) {
        sim->thread[i].epoch = 1;
    }
    return 1;
}

void rondo_sim_race_end(struct sim *sim)
{
    struct sim_race *race = sim->race;
    if (race == NULL) {
        return;
    }
    if (race->first != NULL) {
        report(sim);
    }
    for (uint32_t i = 0; i < sim->nthreads; i++) {
        clock_drop(&sim->thread[i].known);
        clock_drop(&sim->thread[i].found);
        clock_drop(&sim->thread[i].fenced);
        clock_drop(&sim->thread[i].credits);
    }
    for (uint32_t i = 0; i < sim->nblocks; i++) {
        clock_drop(&sim->block[i].credits);
        for (uint32_t k = 0; k < sim->block[i].grid->threads / RONDO_WARP; k++) {
            clock_drop(&sim->block[i].warp[k].clock);
        }
        for (int k = 0; k < SIM_BARRIERS; k++) {
            clock_drop(&sim->block[i].barrier[k].clock);
        }
    }
    for (uint32_t i = 0; i < race->most; i++) {
        for (int k = 0; race->page[i] != NULL && k < CELLS; k++) {
            cell_free(&race->page[i]->cell[k]);
        }
        free(race->page[i]);
    }
    free(race->page);
    free(race);
    sim->race = NULL;
}

/* ---- what the compiler calls before plain accesses ---- */

#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifndef __SANITIZE_THREAD__

static void plain(const void *p, size_t bytes, int how, const void *pc)
{
    struct sim_thread *t = sim_self();
    if (t != NULL) {
        struct sim *sim = t->block->sim;
        if (++sim->alone > RONDO_SIM_ALONE) {
            rondo_sim_break("no end: thread %u of block %u waits for nobody and does not end", t->self.tid,
                            t->self.block);
        }
        if ((uintptr_t)p - (uintptr_t)sim->stacks >= sim->stack_bytes) {
            rondo_sim_memory_plain(t, (uintptr_t)p, (uint32_t)bytes);
            rondo_sim_race_access(t, (uintptr_t)p, (uint32_t)bytes, how, pc);
        }
    }
}

#ifndef __clang__ /* GCC knows some of them by other types when it compiles for AddressSanitizer */
#pragma GCC diagnostic ignored "-Wbuiltin-declaration-mismatch"
#endif
#define HIDDEN __attribute__((visibility("hidden")))
#define ACCESS(name, bytes, how)        \
    HIDDEN void __tsan_##name(void *p); \
    void __tsan_##name(void *p) { plain(p, bytes, how, __builtin_return_address(0)); }
#define ACCESSES(bytes)                               \
    ACCESS(read##bytes, bytes, SIM_READS)             \
    ACCESS(write##bytes, bytes, SIM_WRITES)           \
    ACCESS(unaligned_read##bytes, bytes, SIM_READS)   \
    ACCESS(unaligned_write##bytes, bytes, SIM_WRITES) \
    ACCESS(volatile_read##bytes, bytes, SIM_READS)    \
    ACCESS(volatile_write##bytes, bytes, SIM_WRITES)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

#define RANGE(name, how)                              \
    HIDDEN void __tsan_##name(void *p, size_t bytes); \
    void __tsan_##name(void *p, size_t bytes) { plain(p, bytes, how, __builtin_return_address(0)); }
RANGE(read_range, SIM_READS)
RANGE(write_range, SIM_WRITES)

HIDDEN void __tsan_init(void);
void __tsan_init(void) {}
HIDDEN void __tsan_func_entry(void *pc);
void __tsan_func_entry(void *pc) { (void)pc; }
HIDDEN void __tsan_func_exit(void);
void __tsan_func_exit(void) {}

#endif
