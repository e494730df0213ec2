/* The simulated machine's memory: which accesses are whole, late or old. Rules: sim/machine_sim.h. */
#include "sim/machine_sim_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory: word by word, the last word last, so that other OS threads see a line with its flag ---- */

static void copy_in(void *to, uintptr_t addr, uint32_t bytes)
{
    uint8_t *out = to;
    if (addr % 8 == 0 && bytes % 8 == 0) {
        const uint64_t *from = (const uint64_t *)addr;
        uint32_t last = bytes / 8 - 1;
        uint64_t word = __atomic_load_n(from + last, __ATOMIC_ACQUIRE);
        memcpy(out + 8 * (size_t)last, &word, 8);
        for (uint32_t i = 0; i < last; i++) {
            word = __atomic_load_n(from + i, __ATOMIC_ACQUIRE);
            memcpy(out + 8 * (size_t)i, &word, 8);
        }
    } else if (addr % 4 == 0 && bytes == 4) {
        uint32_t word = __atomic_load_n((const uint32_t *)addr, __ATOMIC_ACQUIRE);
        memcpy(out, &word, 4);
    } else {
        memcpy(out, (const void *)addr, bytes);
    }
}

static void copy_out(uintptr_t addr, const void *from, uint32_t bytes)
{
    const uint8_t *in = from;
    if (addr % 8 == 0 && bytes % 8 == 0) {
        for (uint32_t i = 0; i < bytes / 8; i++) {
            uint64_t word;
            memcpy(&word, in + 8 * (size_t)i, 8);
            __atomic_store_n((uint64_t *)addr + i, word, __ATOMIC_RELEASE);
        }
    } else if (addr % 4 == 0 && bytes == 4) {
        uint32_t word;
        memcpy(&word, in, 4);
        __atomic_store_n((uint32_t *)addr, word, __ATOMIC_RELEASE);
    } else {
        memcpy((void *)addr, in, bytes);
    }
}

static int overlap(uintptr_t a, uint32_t a_bytes, uintptr_t b, uint32_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* Copy to `to` those bytes of [addr, addr + bytes) that a store of `from` at `at` covers. */
static void overlay(uint8_t *to, uintptr_t addr, uint32_t bytes, uintptr_t at, const uint8_t *from,
                    uint32_t from_bytes)
{
    uintptr_t begin = at > addr ? at : addr,
              end = at + from_bytes < addr + bytes ? at + from_bytes : addr + bytes;
    if (begin < end) {
        memcpy(to + (begin - addr), from + (begin - at), end - begin);
    }
}

/* After how many stores of the run this word, or another one of the same number, was last stored. */
static uint64_t *lately(const struct sim *sim, uintptr_t addr)
{
    return &sim->lately[(addr / 8 * 0x9e3779b97f4a7c15ull >> 40) % SIM_LATELY];
}

static void done(struct sim *sim, const struct sim_block *writer, uintptr_t addr, const void *from,
                 uint32_t bytes)
{
    sim->idle = 0;
    if (sim->rules->delayed) {
        struct sim_past *past = &sim->past[sim->version++ % SIM_HISTORY];
        past->addr = addr;
        past->bytes = bytes;
        past->writer = writer;
        copy_in(past->old, addr, bytes);
        for (uintptr_t word = addr / 8 * 8; word < addr + bytes; word += 8) {
            *lately(sim, word) = sim->version;
        }
    }
    copy_out(addr, from, bytes);
}

/* ---- delayed stores ---- */

/* The first store up to `last` that overlaps these bytes. */
static int first_of(const struct sim_buffer *buffer, int last, uintptr_t addr, uint32_t bytes)
{
    for (int i = 0; i < last; i++) {
        if (overlap(buffer->entry[i].addr, buffer->entry[i].bytes, addr, bytes)) {
            return i;
        }
    }
    return last;
}

static struct sim_entry take(struct sim_buffer *buffer, int at)
{
    struct sim_entry e = buffer->entry[at];
    buffer->n--;
    memmove(&buffer->entry[at], &buffer->entry[at + 1], (size_t)(buffer->n - at) * sizeof(e));
    return e;
}

/* Make any one store visible, after all earlier stores to the same bytes, by this thread or before a barrier
 * by another. */
static void drain_one(struct sim *sim, struct sim_block *block, struct sim_buffer *buffer)
{
    int at = (int)(sim_random(sim) % (uint64_t)buffer->n), before;
    struct sim_entry e;
    do {
        before = at;
        at = first_of(buffer, before, buffer->entry[before].addr, buffer->entry[before].bytes);
    } while (at != before);
    e = take(buffer, at);
    while (buffer != &block->buffer &&
           first_of(&block->buffer, block->buffer.n, e.addr, e.bytes) < block->buffer.n) {
        struct sim_entry older = take(&block->buffer,
                                      first_of(&block->buffer, block->buffer.n, e.addr, e.bytes));
        done(sim, block, older.addr, older.data, older.bytes);
    }
    done(sim, block, e.addr, e.data, e.bytes);
}

static void drain_all(struct sim *sim, struct sim_block *writer, struct sim_buffer *buffer)
{
    while (buffer->n > 0) {
        drain_one(sim, writer, buffer);
    }
}

static void push(struct sim *sim, struct sim_block *block, struct sim_buffer *buffer, uintptr_t addr,
                 const void *from, uint32_t bytes)
{
    struct sim_entry *e;
    if (buffer->n == buffer->most) {
        drain_one(sim, block, buffer);
    }
    e = &buffer->entry[buffer->n++];
    e->addr = addr;
    e->bytes = bytes;
    memcpy(e->data, from, bytes);
}

/* An unordered store of this thread. */
static void store(struct sim_thread *t, uintptr_t addr, const void *from, uint32_t bytes)
{
    struct sim *sim = t->block->sim;
    if (!sim_is_late(sim)) {
        done(sim, t->block, addr, from, bytes);
        return;
    }
    (void)*(volatile const uint8_t *)
        addr; /* touch it now: a bad address should fail here, not when the store drains */
    (void)*(volatile const uint8_t *)(addr + bytes - 1);
    push(sim, t->block, &t->buffer, addr, from, bytes);
}

void rondo_sim_memory_share(struct sim_thread *t)
{
    struct sim *sim = t->block->sim;
    if (!sim_is_late(sim)) {
        return;
    }
    for (int i = 0; i < t->buffer.n; i++) {
        const struct sim_entry *e = &t->buffer.entry[i];
        push(sim, t->block, &t->block->buffer, e->addr, e->data, e->bytes);
    }
    t->buffer.n = 0;
}

void rondo_sim_memory_publish(struct sim_thread *t)
{
    struct sim *sim = t->block->sim;
    if (sim_is_late(sim)) {
        rondo_sim_memory_share(t);
        drain_all(sim, t->block, &t->block->buffer);
    }
}

/* All lanes of a warp see what any has stored to these bytes. */
static void see_lines(struct sim_thread *t, uintptr_t addr, uint32_t bytes)
{
    for (int i = 0; i < t->warp->nopen; i++) {
        if (overlap(t->warp->open[i].addr, SIM_LINE, addr, bytes)) {
            rondo_sim_lines_close(t->block, t->warp);
        }
    }
}

static void drain_range(struct sim_thread *t, struct sim_buffer *buffer, uintptr_t addr, uint32_t bytes)
{
    struct sim_block *block = t->block;
    for (int i; (i = first_of(buffer, buffer->n, addr, bytes)) < buffer->n;) {
        const struct sim_entry e = take(buffer, i);
        done(block->sim, block, e.addr, e.data, e.bytes);
    }
}

void rondo_sim_memory_plain(struct sim_thread *t, uintptr_t addr, uint32_t bytes)
{
    const struct sim_block *block = t->block;
    see_lines(t, addr, bytes);
    if (sim_is_late(block->sim) && addr - (uintptr_t)block->shared >= block->grid->shared_bytes) {
        drain_range(t, &t->block->buffer, addr, bytes);
        drain_range(t, &t->buffer, addr, bytes);
    }
}

void rondo_sim_memory_tick(struct sim *sim)
{
    struct sim_thread *t = &sim->thread[sim_random(sim) % sim->nthreads];
    struct sim_buffer *buffer = sim_chance(sim, 2) ? &t->buffer : &t->block->buffer;
    if (buffer->n > 0 && sim_chance(sim, 2)) {
        drain_one(sim, t->block, buffer);
    }
}

int rondo_sim_memory_settle(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->nthreads; i++) {
        rondo_sim_memory_publish(&sim->thread[i]);
    }
    return sim->idle == 0; /* a store has been done */
}

/* ---- loads that may return old values ---- */

/* How new a line must be for this thread: as new as it has seen it, and as what orders it. */
static uint64_t newest_known(const struct sim_thread *t, uintptr_t line)
{
    uint32_t at = (uint32_t)(line / SIM_LINE % SIM_SEEN);
    return t->seen[at].line == line && t->seen[at].version > t->floor ? t->seen[at].version : t->floor;
}

static void remember(struct sim_thread *t, uintptr_t line, uint64_t version)
{
    uint32_t at = (uint32_t)(line / SIM_LINE % SIM_SEEN);
    if (t->seen[at].line != line && t->seen[at].version > t->floor) {
        t->floor = t->seen[at].version; /* no room to remember it: from now on this holds for every line */
    }
    t->seen[at].line = line;
    t->seen[at].version = version;
}

/* Load memory as it was after `oldest` stores or more. Goes back at random over stores by others, but not
 * over those of this block, which a barrier may have ordered. @return after how many stores. */
static uint64_t load_past(struct sim_thread *t, uintptr_t addr, uint32_t bytes, uint8_t *to, uint64_t oldest)
{
    struct sim *sim = t->block->sim;
    uint64_t version = sim->version, newest = version;
    copy_in(to, addr, bytes);
    if (oldest + SIM_LOOK_BACK < version) {
        oldest = version - SIM_LOOK_BACK;
    }
    if (oldest >= version || !sim->rules->delayed || !sim_chance(sim, 2)) {
        return version;
    }
    oldest += sim_random(sim) % (version - oldest);
    for (; version > oldest; version--) {
        const struct sim_past *past = &sim->past[(version - 1) % SIM_HISTORY];
        if (!overlap(past->addr, past->bytes, addr, bytes)) {
            continue;
        }
        if (past->writer == t->block) {
            break;
        }
        overlay(to, addr, bytes, past->addr, past->old, past->bytes);
        newest = version - 1;
    }
    sim->result->delayed += newest < sim->version;
    return version;
}

/* The last store to these bytes, which an ordered load of them must see. */
static uint64_t last_store(const struct sim *sim, uintptr_t addr, uint32_t bytes)
{
    uint64_t newest = 0;
    for (uintptr_t word = addr / 8 * 8; sim->rules->delayed && word < addr + bytes; word += 8) {
        const uint64_t v = *lately(sim, word);
        newest = v > newest ? v : newest;
    }
    for (uint64_t v = newest; v > 0 && v + SIM_HISTORY > sim->version; v--) {
        const struct sim_past *past = &sim->past[(v - 1) % SIM_HISTORY];
        if (overlap(past->addr, past->bytes, addr, bytes)) {
            return v;
        }
    }
    return 0;
}

static void forward(const struct sim_buffer *buffer, uint8_t *to, uintptr_t addr, uint32_t bytes)
{
    for (int i = 0; i < buffer->n; i++) {
        overlay(to, addr, bytes, buffer->entry[i].addr, buffer->entry[i].data, buffer->entry[i].bytes);
    }
}

/* Load a value at least as new as `oldest`. @return the version that was loaded. */
static uint64_t load_since(struct sim_thread *t, uintptr_t addr, uint32_t bytes, void *to, uint64_t oldest,
                           int acquire)
{
    struct sim *sim = t->block->sim;
    uintptr_t line = addr / SIM_LINE * SIM_LINE;
    uint64_t version, stored;
    if (!sim_is_late(sim)) {
        copy_in(to, addr, bytes);
        return 0;
    }
    version = load_past(t, addr, bytes, to, oldest);
    forward(&t->block->buffer, to, addr, bytes);
    forward(&t->buffer, to, addr, bytes);
    remember(t, line, version);
    stored = last_store(sim, addr, bytes);
    stored = stored < version ? stored : version;
    t->loaded = stored > t->loaded ? stored : t->loaded;
    if (acquire && stored > t->floor) {
        t->floor = stored;
    }
    return version;
}

static void load(struct sim_thread *t, uintptr_t addr, uint32_t bytes, void *to, int acquire)
{
    const uint64_t oldest = acquire ? t->block->sim->version : newest_known(t, addr / SIM_LINE * SIM_LINE);
    (void)load_since(t, addr, bytes, to, oldest, acquire);
}

/* ---- lines of a warp ---- */

static void close_line(struct sim_block *block, const struct sim_open_line *line)
{
    struct sim *sim = block->sim;
    const uint32_t whole = (1u << SIM_LINE / 8) - 1;
    if (line->words == whole && !sim_is_late(sim)) {
        done(sim, block, line->addr, line->word, SIM_LINE);
    } else if (line->words == whole) {
        push(sim, block, &block->buffer, line->addr, line->word, SIM_LINE);
    } else {
        for (uint32_t i = 0; i < SIM_LINE / 8; i++) {
            if (!(line->words >> i & 1)) {
                continue;
            }
            if (sim_is_late(sim)) {
                push(sim, block, &block->buffer, line->addr + 8 * i, &line->word[i], 8);
            } else {
                done(sim, block, line->addr + 8 * i, &line->word[i], 8);
            }
        }
    }
}

void rondo_sim_lines_close(struct sim_block *block, struct sim_warp *w)
{
    for (int i = 0; i < w->nopen; i++) {
        close_line(block, &w->open[i]);
    }
    w->nopen = 0;
}

static struct sim_open_line *open_line(struct sim_thread *t, uintptr_t addr)
{
    struct sim_warp *w = t->warp;
    struct sim_open_line *line;
    for (int i = 0; i < w->nopen; i++) {
        if (w->open[i].addr == addr) {
            return &w->open[i];
        }
    }
    if (w->nopen == SIM_OPEN) {
        close_line(t->block, &w->open[0]);
        memmove(&w->open[0], &w->open[1], (SIM_OPEN - 1) * sizeof(w->open[0]));
        w->nopen--;
    }
    line = &w->open[w->nopen++];
    line->addr = addr;
    line->words = 0;
    return line;
}

static void store_to_line(struct sim_thread *t, uintptr_t addr, const uint64_t pair[2])
{
    uintptr_t at = addr / SIM_LINE * SIM_LINE;
    struct sim_open_line *line = open_line(t, at);
    struct sim_warp *w = t->warp;
    uint32_t first = (uint32_t)(addr - at) / 8;
    if (line->words >> first & 1) { /* a second store to the word: another instruction */
        close_line(t->block, line);
        line->words = 0;
    }
    line->word[first] = pair[0];
    line->word[first + 1] = pair[1];
    line->words |= 3u << first;
    if (line->words == (1u << SIM_LINE / 8) - 1) {
        close_line(t->block, line);
        *line = w->open[--w->nopen];
    }
}

/* One access serves all lanes, so it is as new as any of them needs. */
static uint64_t newest_of_warp(const struct sim_thread *t, uintptr_t line)
{
    const struct sim_thread *lane = t - t->self.tid % RONDO_WARP;
    uint64_t newest = 0;
    for (int i = 0; i < RONDO_WARP; i++) {
        const uint64_t known = newest_known(&lane[i], line);
        newest = known > newest ? known : newest;
    }
    return newest;
}

static void load_from_line(struct sim_thread *t, uintptr_t addr, uint64_t pair[2])
{
    const uintptr_t line = addr / SIM_LINE * SIM_LINE;
    const struct sim_warp *w = t->warp;
    struct sim_snap *snap = &t->warp->snap[line / SIM_LINE % SIM_OPEN];
    const uint32_t bit = 1u << t->self.tid % RONDO_WARP;
    const int again = snap->addr != line || snap->generation != w->syncs || (snap->taken & bit);
    if (again) {
        snap->version = load_since(t, line, SIM_LINE, snap->word, newest_of_warp(t, line), 0);
        snap->addr = line;
        snap->generation = w->syncs;
        snap->taken = 0;
    } else if (t->block->sim->rules->delayed) {
        remember(t, line, snap->version);
        t->loaded = snap->version > t->loaded ? snap->version : t->loaded;
    }
    snap->taken |= bit;
    memcpy(pair, &snap->word[(addr - line) / 8], 16);
}

/* ---- the words ---- */

/* Another fiber may run here. */
static void perhaps_another(const struct sim_thread *t)
{
    struct sim *sim = t->block->sim;
    if (sim->rules->seed != 0 && sim_chance(sim, 8)) {
        rondo_sim_yield();
    }
}

/* Is this the lane's first pair since its warp has synchronised? Later, lanes may be apart. */
static int is_together(struct sim_thread *t)
{
    const uint64_t syncs = t->warp->syncs + 1;
    const int first = t->paired != syncs;
    t->paired = syncs;
    return first && t->block->sim->rules->whole_lines;
}

/* The code that called a function of this file. */
#define CALLER __builtin_return_address(0)

uint64_t rondo_sim_load(const void *p, uint32_t bytes, int acquire)
{
    struct sim_thread *t = sim_self();
    uint64_t v = 0;
    perhaps_another(t);
    rondo_sim_race_strong(t, (uintptr_t)p, bytes, SIM_READS, acquire, CALLER);
    see_lines(t, (uintptr_t)p, bytes);
    load(t, (uintptr_t)p, bytes, &v, acquire);
    return v;
}

void rondo_sim_store(void *p, uint64_t v, uint32_t bytes, int release)
{
    struct sim_thread *t = sim_self();
    perhaps_another(t);
    rondo_sim_race_strong(t, (uintptr_t)p, bytes, SIM_WRITES, release, CALLER);
    see_lines(t, (uintptr_t)p, bytes);
    if (release) {
        t->block->sim->result->fences++;
        rondo_sim_lines_close(t->block, t->warp);
        rondo_sim_memory_publish(t);
        done(t->block->sim, t->block, (uintptr_t)p, &v, bytes);
    } else {
        store(t, (uintptr_t)p, &v, bytes);
    }
}

int rondo_sim_aborted(const uint32_t *abort)
{
    rondo_sim_race_strong(sim_self(), (uintptr_t)abort, sizeof(*abort), SIM_READS, 0, CALLER);
    return __atomic_load_n(abort, __ATOMIC_RELAXED) != 0;
}

void rondo_sim_fence(void)
{
    struct sim_thread *t = sim_self();
    t->block->sim->result->fences++;
    rondo_sim_race_fence(t);
    rondo_sim_lines_close(t->block, t->warp);
    rondo_sim_memory_publish(t);
    t->floor = t->loaded > t->floor ? t->loaded : t->floor;
}

static void check_aligned(const void *p)
{
    if ((uintptr_t)p % 16 != 0) {
        rondo_sim_break("16 bytes at %p, which is no multiple of 16", p);
    }
}

void rondo_sim_load_pair(const void *p, uint64_t pair[2])
{
    struct sim_thread *t = sim_self();
    perhaps_another(t);
    check_aligned(p);
    rondo_sim_race_pair(t, (uintptr_t)p, SIM_READS, CALLER);
    see_lines(t, (uintptr_t)p, 16);
    if (is_together(t)) {
        load_from_line(t, (uintptr_t)p, pair);
        return;
    }
    load(t, (uintptr_t)p, 8, &pair[0], 0);
    perhaps_another(t);
    load(t, (uintptr_t)p + 8, 8, &pair[1], 0);
}

void rondo_sim_store_pair(void *p, const uint64_t pair[2])
{
    struct sim_thread *t = sim_self();
    struct sim *sim = t->block->sim;
    int first;
    perhaps_another(t);
    check_aligned(p);
    rondo_sim_race_pair(t, (uintptr_t)p, SIM_WRITES, CALLER);
    if (is_together(t)) {
        for (int i = 0; i < t->buffer.n; i++) {
            if (overlap(t->buffer.entry[i].addr, t->buffer.entry[i].bytes, (uintptr_t)p, 16)) {
                rondo_sim_memory_share(t); /* so that our older store to these bytes stays the older one */
            }
        }
        store_to_line(t, (uintptr_t)p, pair);
        return;
    }
    see_lines(t, (uintptr_t)p, 16);
    first = sim->rules->seed != 0 && sim_chance(sim, 2);
    store(t, (uintptr_t)p + 8 * (uintptr_t)first, &pair[first], 8);
    perhaps_another(t);
    store(t, (uintptr_t)p + 8 * (uintptr_t)!first, &pair[!first], 8);
}

void rondo_sim_load_plain(const void *p, void *to, uint32_t bytes)
{
    struct sim_thread *t = sim_self();
    rondo_sim_race_access(t, (uintptr_t)p, bytes, SIM_READS, CALLER);
    see_lines(t, (uintptr_t)p, bytes);
    load(t, (uintptr_t)p, bytes, to, 0);
}

void rondo_sim_load_part16(const void *p, void *to, uint32_t first, uint32_t end)
{
    struct sim_thread *t = sim_self();
    t->block->sim->result->plain16++;
    rondo_sim_race_access(t, (uintptr_t)p + first, end - first, SIM_READS, CALLER);
    see_lines(t, (uintptr_t)p, 16);
    load(t, (uintptr_t)p, 16, to, 0);
}

void rondo_sim_store_plain(void *p, const void *from, uint32_t bytes)
{
    struct sim_thread *t = sim_self();
    t->block->sim->result->plain16 += bytes == 16;
    rondo_sim_race_access(t, (uintptr_t)p, bytes, SIM_WRITES, CALLER);
    if (bytes == 16 && sim_is_late(t->block->sim)) {
        store(t, (uintptr_t)p, from, 8);
        store(t, (uintptr_t)p + 8, (const uint8_t *)from + 8, 8);
    } else {
        store(t, (uintptr_t)p, from, bytes);
    }
}

int rondo_sim_memory_begin(struct sim *sim)
{
    struct sim_entry *e;
    if (!sim_is_late(sim)) {
        return 1;
    }
    sim->past = calloc(SIM_HISTORY, sizeof(*sim->past));
    sim->entries = e = calloc((size_t)sim->nthreads * SIM_BUFFER + (size_t)sim->nblocks * SIM_BLOCK,
                              sizeof(*e));
    sim->lately = calloc(SIM_LATELY, sizeof(*sim->lately));
    if (sim->past == NULL || e == NULL || sim->lately == NULL) {
        return 0;
    }
    for (uint32_t i = 0; i < sim->nthreads; i++, e += SIM_BUFFER) {
        sim->thread[i].buffer = (struct sim_buffer){ e, 0, SIM_BUFFER };
    }
    for (uint32_t i = 0; i < sim->nblocks; i++, e += SIM_BLOCK) {
        sim->block[i].buffer = (struct sim_buffer){ e, 0, SIM_BLOCK };
    }
    return 1;
}

void rondo_sim_memory_end(struct sim *sim)
{
    free(sim->past);
    free(sim->lately);
    free(sim->entries);
}
