/* The interpreter: one fiber of the simulated machine for each thread. */
#include <string.h>

#include "ptx_impl.h"
#include "ptx_math.h"
#include "sim/machine_sim_impl.h"

/* As ptx.def says them. */
enum { WEAK, RELAXED, ACQUIRE, RELEASE };
/* What is less is an address of another space, or none. */
enum { FIRST_GLOBAL = 65536 };

struct ptx_thread {
    const struct ptx_run *run;
    uint8_t *shared;
    const struct ptx_insn *now; /* the instruction, for errors */
    int leave, polled;          /* polled: a load that another agent's store may change, and no store since */
};

static uint32_t line_of(const struct ptx_thread *t)
{
    return t->run->program->line[t->now - t->run->program->insn];
}

static void __attribute__((noreturn)) stop(const struct ptx_thread *t, const char *why, uint64_t value)
{
    rondo_sim_break("%s, line %u of the PTX: %s (0x%llx)", t->run->program->name, line_of(t), why,
                    (unsigned long long)value);
}

/* ---- addresses ---- */

static int is_inside(const void *memory, size_t bytes, uint64_t p) { return p - (uintptr_t)memory < bytes; }

static void *address(const struct ptx_thread *t, enum ptx_space space, uint64_t p, uint32_t bytes)
{
    const struct ptx_program *program = t->run->program;
    const size_t limit = space == PTX_SHARED ? program->shared_bytes : program->argument_bytes;
    if (p % bytes != 0) stop(t, "the address is no multiple of the access's size", p);
    if (space == PTX_SHARED || space == PTX_PARAM) {
        if (p >= limit || bytes > limit - p) {
            stop(t, space == PTX_SHARED ? "outside of shared memory" : "outside of the arguments", p);
        }
        return space == PTX_SHARED ? t->shared + p : (uint8_t *)(uintptr_t)t->run->argument + p;
    }
    if (p < FIRST_GLOBAL) stop(t, "an address of shared memory or of the arguments, or no address", p);
    if (space == PTX_GLOBAL && is_inside(t->run->argument, program->argument_bytes, p)) {
        stop(t, "an address of the arguments as one of global memory", p);
    }
    return (void *)(uintptr_t)p;
}

/* Does the machine's memory not take part? It models payload of 16 bytes and what is ordered; other plain
 * accesses are plain here, too, as those of the kernels in C. If these took part, threads would remember too
 * many lines to see old values of any. */
static int is_plain(enum ptx_space space, int order, uint32_t bytes)
{
    return space == PTX_SHARED || space == PTX_PARAM || (order == WEAK && bytes < 16);
}

/* Elements of a load in `to`. */
static void load(struct ptx_thread *t, enum ptx_space space, int order, const void *p, void *to,
                 uint32_t bytes, uint32_t each)
{
    if (is_plain(space, order, bytes)) {
        memcpy(to, p, bytes);
    } else if (order == WEAK) {
        rondo_sim_load_plain(p, to, bytes);
    } else if (bytes > each) {
        rondo_sim_load_pair(p, to);
        t->polled = 1;
    } else {
        const uint64_t v = t->leave && p == t->run->abort ? 1 : rondo_sim_load(p, bytes, order == ACQUIRE);
        memcpy(to, &v, bytes);
        t->polled = 1;
    }
}

static void store(struct ptx_thread *t, enum ptx_space space, int order, void *p, const void *from,
                  uint32_t bytes, uint32_t each)
{
    t->polled = 0;
    if (is_plain(space, order, bytes)) {
        memcpy(p, from, bytes);
    } else if (order == WEAK) {
        rondo_sim_store_plain(p, from, bytes);
    } else if (bytes > each) {
        rondo_sim_store_pair(p, from);
    } else {
        uint64_t v = 0;
        memcpy(&v, from, bytes);
        rondo_sim_store(p, v, bytes, order == RELEASE);
    }
}

static uint64_t ptx_divisor(const struct ptx_thread *t, uint64_t v)
{
    if (v == 0) stop(t, "division by 0", v);
    return v;
}

/* ---- threads that work together ---- */

/* All lanes must be named, as all kernels do. */
static uint64_t warp(const struct ptx_thread *t, enum rondo_sim_vote vote, uint64_t v, uint32_t lane,
                     uint32_t mask)
{
    if (mask != UINT32_MAX) stop(t, "a warp operation of less than all lanes", mask);
    return rondo_sim_warp(vote, v, lane);
}

/* The lane whose value shfl.idx takes, and whether it is one of the segment. */
static uint32_t source(uint32_t lane, uint32_t index, uint32_t clamp, int *within)
{
    const uint32_t segment = clamp >> 8 & 31, most = (lane & segment) | (clamp & 31 & ~segment),
                   from = (lane & segment) | (index & 31 & ~segment);
    *within = from <= most;
    return *within ? from : lane;
}

/* A loop goes on. If it only looks at memory, let others run. */
static void give_way(struct ptx_thread *t)
{
    if (t->polled) {
        t->polled = 0;
        t->leave |= !rondo_sim_breath();
    }
}

/* ---- instructions ---- */

#define TYPE_U16 uint16_t
#define TYPE_S16 int16_t
#define TYPE_U32 uint32_t
#define TYPE_S32 int32_t
#define TYPE_U64 uint64_t
#define TYPE_S64 int64_t
#define TYPE_F32 float
#define TYPE_F64 double
#define TYPE_PRED int
/* A place's word as a value, and a value as a word. */
#define GET_U16(v) (uint16_t)(v)
#define GET_S16(v) (int16_t)(v)
#define GET_U32(v) (uint32_t)(v)
#define GET_S32(v) (int32_t)(v)
#define GET_U64(v) (v)
#define GET_S64(v) (int64_t)(v)
#define GET_F32(v) rondo_f32_from_bits((uint32_t)(v))
#define GET_F64(v) f64_from_bits(v)
#define GET_PRED(v) ((v) != 0)
#define PUT_U16(v) (uint16_t)(v)
#define PUT_S16(v) (uint16_t)(v)
#define PUT_U32(v) (uint32_t)(v)
#define PUT_S32(v) (uint32_t)(v)
#define PUT_U64(v) (uint64_t)(v)
#define PUT_S64(v) (uint64_t)(v)
#define PUT_F32(v) rondo_f32_bits(v)
#define PUT_F64(v) f64_bits(v)
#define PUT_PRED(v) (uint64_t)((v) != 0)

static double f64_from_bits(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}
static uint64_t f64_bits(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* An instruction, on a thread's registers. @return the next one; NULL: the thread has ended. */
typedef const struct ptx_insn *step_fn(struct ptx_thread *t, const struct ptx_insn *i, uint64_t *r);
#define STEP(name) \
    static const struct ptx_insn *name(struct ptx_thread *t, const struct ptx_insn *i, uint64_t *r)

/* ---- those that are written out ---- */

STEP(do_HALVES)
{
    const uint64_t v = r[i->r[2]];
    (void)t;
    r[i->r[0]] = (uint16_t)v;
    r[i->r[1]] = (uint16_t)(v >> 16);
    return i + 1;
}
STEP(do_PACK)
{
    (void)t;
    r[i->r[0]] = r[i->r[2]] << 32 | (uint32_t)r[i->r[1]];
    return i + 1;
}
STEP(do_UNPACK)
{
    const uint64_t v = r[i->r[2]];
    (void)t;
    r[i->r[0]] = (uint32_t)v;
    r[i->r[1]] = v >> 32;
    return i + 1;
}
STEP(do_FENCE)
{
    (void)t, (void)r;
    rondo_sim_fence();
    return i + 1;
}
STEP(do_BARRIER)
{
    t->polled = 0;
    rondo_sim_barrier((uint32_t)r[i->r[0]], (uint32_t)r[i->r[1]]);
    return i + 1;
}
STEP(do_WARP)
{
    (void)warp(t, RONDO_SIM_SYNC, 0, 0, (uint32_t)r[i->r[0]]);
    return i + 1;
}
STEP(do_ALL)
{
    r[i->r[0]] = warp(t, RONDO_SIM_ALL, r[i->r[1]] != 0, 0, (uint32_t)r[i->r[2]]);
    return i + 1;
}
STEP(do_ANY)
{
    r[i->r[0]] = warp(t, RONDO_SIM_ANY, r[i->r[1]] != 0, 0, (uint32_t)r[i->r[2]]);
    return i + 1;
}
STEP(do_SHUFFLE)
{
    int within;
    const uint32_t from = source(rondo_lane(), (uint32_t)r[i->r[3]], (uint32_t)r[i->r[4]], &within);
    r[i->r[0]] = (uint32_t)warp(t, RONDO_SIM_SHUFFLE, (uint32_t)r[i->r[2]], from, (uint32_t)r[i->r[5]]);
    r[i->r[1]] = (uint64_t)within;
    return i + 1;
}
/* Of a branch or a predicated instruction: does the predicate have the value that it needs? */
static int holds(const struct ptx_insn *i, const uint64_t *r) { return (r[i->r[0]] != 0) == i->at; }
STEP(do_UNLESS)
{
    (void)t;
    return i + (holds(i, r) ? 1 : 2);
}
STEP(do_BRA)
{
    (void)r;
    return t->run->program->insn + i->to;
}
STEP(do_BRA_BACK)
{
    give_way(t);
    return do_BRA(t, i, r);
}
STEP(do_BRA_IF) { return holds(i, r) ? do_BRA(t, i, r) : i + 1; }
STEP(do_BRA_BACK_IF) { return holds(i, r) ? do_BRA_BACK(t, i, r) : i + 1; }
STEP(do_RET)
{
    (void)t, (void)i, (void)r;
    return NULL;
}

/* ---- the rows of ptx.def: each is a function, named after its line ---- */

#define STEP_OF__(line) step_##line
#define STEP_OF_(line) STEP_OF__(line)
#define ROW STEP(STEP_OF_(__LINE__))
#define OPERAND(T, name, at) const TYPE_##T name = GET_##T(r[i->r[at]])
#define RESULT(D, expr)                         \
    do {                                        \
        t->now = i;                             \
        r[i->r[0]] = PUT_##D((TYPE_##D)(expr)); \
        return i + 1;                           \
    } while (0)
#define OP1(text, D, A, expr) \
    ROW                       \
    {                         \
        OPERAND(A, a, 1);     \
        RESULT(D, expr);      \
    }
#define OP2(text, D, A, B, expr) \
    ROW                          \
    {                            \
        OPERAND(A, a, 1);        \
        OPERAND(B, b, 2);        \
        RESULT(D, expr);         \
    }
#define OP3(text, D, A, B, C, expr) \
    ROW                             \
    {                               \
        OPERAND(A, a, 1);           \
        OPERAND(B, b, 2);           \
        OPERAND(C, c, 3);           \
        RESULT(D, expr);            \
    }
#define OP4(text, D, A, B, C, E, expr) \
    ROW                                \
    {                                  \
        OPERAND(A, a, 1);              \
        OPERAND(B, b, 2);              \
        OPERAND(C, c, 3);              \
        OPERAND(E, e, 4);              \
        RESULT(D, expr);               \
    }
#define WHERE(space, type, n) address(t, PTX_##space, r[i->r[n]] + (uint64_t)(int64_t)i->at, sizeof(type) * n)
#define LOAD(text, space, order, type, n)                                              \
    ROW                                                                                \
    {                                                                                  \
        type v[n];                                                                     \
        t->now = i;                                                                    \
        load(t, PTX_##space, order, WHERE(space, type, n), v, sizeof v, sizeof(type)); \
        for (int k = 0; k < n; k++) r[i->r[k]] = (uint64_t)v[k];                       \
        return i + 1;                                                                  \
    }
#define STORE(text, space, order, type, n)                                              \
    ROW                                                                                 \
    {                                                                                   \
        type v[n];                                                                      \
        t->now = i;                                                                     \
        for (int k = 0; k < n; k++) v[k] = (type)r[i->r[k]];                            \
        store(t, PTX_##space, order, WHERE(space, type, n), v, sizeof v, sizeof(type)); \
        return i + 1;                                                                   \
    }
/* A red is relaxed. Here it comes after the thread's stores before it, which is more than it promises. */
#define RED(text, space, type, builtin)                                                   \
    ROW                                                                                   \
    {                                                                                     \
        t->now = i;                                                                       \
        t->polled = 0;                                                                    \
        rondo_sim_fence();                                                                \
        (void)builtin((type *)WHERE(space, type, 1), (type)r[i->r[0]], __ATOMIC_RELAXED); \
        return i + 1;                                                                     \
    }
#define SPECIAL(text, name, ...)   \
    ROW                            \
    {                              \
        t->now = i;                \
        return do_##name(t, i, r); \
    }
#include "ptx.def"

static step_fn *const step_of[] = {
#define ENTRY(...) STEP_OF_(__LINE__),
#define OP1 ENTRY
#define OP2 ENTRY
#define OP3 ENTRY
#define OP4 ENTRY
#define LOAD ENTRY
#define STORE ENTRY
#define RED ENTRY
#define SPECIAL ENTRY
#include "ptx.def"
};

static void run_thread(void *arg, void *shared)
{
    const struct ptx_run *run = arg;
    const struct ptx_insn *i = run->program->insn;
    const uint32_t block = run->first + rondo_block_index();
    struct ptx_thread t = { .run = run, .shared = shared, .now = i };
    uint64_t r[run->program->places];
    if (rondo_block_tid() == 0 && block == 0) {
        __atomic_fetch_add(&run->program->runs, 1, __ATOMIC_RELAXED);
    }
    memset(r, 0x5c, sizeof r);
    r[PTX_TID_X] = rondo_block_tid();
    r[PTX_NTID_X] = rondo_block_threads();
    r[PTX_CTAID_X] = block;
    r[PTX_NCTAID_X] = run->blocks;
    memcpy(r + PTX_FIRST_CONSTANT, run->program->constant, run->program->nconstants * sizeof *r);
    while (i != NULL) i = step_of[i->op](&t, i, r);
}

struct rondo_sim_grid ptx_grid(struct ptx_run *run, uint32_t blocks, uint32_t threads)
{
    rondo_sim_check_races(0); /* most plain accesses are not the machine's */
    if (run->blocks == 0) run->blocks = blocks;
    return (struct rondo_sim_grid){ run_thread, run, blocks, threads, run->program->shared_bytes };
}
