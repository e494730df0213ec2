/* The interpreter of PTX (ptx/ptx.h): each instruction's value, memory, threads that work together, and what
 * it refuses. In a build with CUDA, every kernel of the image is decoded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "ptx/ptx.h"

enum { WHY = 400, TEXT = 8192, THREADS = 64, MOST_VALUES = 300 };

#define HEAD                                          \
    ".version 9.0\n.target sm_80\n.address_size 64\n" \
    ".visible .entry test(\n.param .align 8 .b8 test_param_0[%d]\n)\n.maxntid 512, 1, 1\n{\n"
#define REGISTERS                                                                        \
    ".reg .pred %%p<20>;\n.reg .b16 %%rs<20>;\n.reg .b32 %%r<20>;\n.reg .f32 %%f<20>;\n" \
    ".reg .b64 %%rd<20>;\n.reg .f64 %%fd<20>;\n.shared .align 8 .b8 mem[256];\n"

/* ---- running a text ---- */

static struct rondo_sim_result run_text(const char *body, const void *argument, int bytes, uint32_t threads)
{
    const struct rondo_sim_rules rules = { .patience = 1000 };
    struct rondo_sim_result result;
    struct rondo_sim_grid grid;
    struct ptx_run run = { .argument = argument };
    struct ptx_module *m;
    char why[WHY] = "", *text = malloc(TEXT);
    assert_non_null(text);
    snprintf(text, TEXT, HEAD REGISTERS "%s\nret;\n}\n", bytes, body);
    m = ptx_open(text, why, sizeof why);
    assert_string_equal(why, "");
    assert_non_null(m);
    run.program = ptx_find(m, "test", why, sizeof why);
    if (run.program == NULL) fail_msg("%s\n%s", why, body);
    grid = ptx_grid(&run, 1, threads);
    rondo_sim_run(&rules, &grid, 1, &result);
    ptx_close(m);
    free(text);
    return result;
}
static void run_well(const char *body, const void *argument, int bytes, uint32_t threads)
{
    const struct rondo_sim_result result = run_text(body, argument, bytes, threads);
    assert_string_equal(result.why, "");
    assert_int_equal(result.end, RONDO_SIM_ENDED);
}

/* ---- values ---- */

#define F(x)            \
    (((union {          \
         float v;       \
         uint32_t bits; \
     }){ x })           \
         .bits)
#define D(x)            \
    (((union {          \
         double v;      \
         uint64_t bits; \
     }){ x })           \
         .bits)

/* An instruction with the registers of its result and operands: p, h (16 bits), r (32), f, d (64), g
 * (f64). */
struct value {
    const char *text, *registers;
    uint64_t want, a, b, c, e;
};
#define V(text, registers, result, ...) { text, registers, result, OPERANDS_(__VA_ARGS__, 0, 0, 0) },
#define OPERANDS_(a, b, c, e, ...) a, b, c, e
static int read_values(struct value *values)
{
    const struct value rows[] = {
#include "ptx/ptx_values.def"
    };
    assert_in_range(RONDO_COUNTOF(rows), 1, MOST_VALUES);
    memcpy(values, rows, sizeof rows);
    return (int)RONDO_COUNTOF(rows);
}
#undef V

static const char *register_of(char class)
{
    return class == 'p'   ? "%p"
           : class == 'h' ? "%rs"
           : class == 'r' ? "%r"
           : class == 'f' ? "%f"
           : class == 'd' ? "%rd"
                          : "%fd";
}

/* Load operands from the arguments into their registers, compute, and store the result. */
static void write_body(const struct value *v, char *body, size_t bytes)
{
    size_t n = (size_t)snprintf(body, bytes,
                                "mov.b64 %%rd19, test_param_0;\nld.param.u64 %%rd18, [%%rd19];\n");
    const char *r = v->registers;
    for (int i = 1; r[i] != 0; i++) {
        static const struct {
            char class;
            const char *from;
        } ways[] = { { 'p', "setp.ne.s64 %%p%d, %%rd17, 0;\n" }, { 'h', "cvt.u16.u64 %%rs%d, %%rd17;\n" },
                     { 'r', "cvt.u32.u64 %%r%d, %%rd17;\n" },    { 'd', "mov.b64 %%rd%d, %%rd17;\n" },
                     { 'g', "mov.b64 %%fd%d, %%rd17;\n" },       { 'f', "cvt.u32.u64 %%r17, %%rd17;\n" } };
        n += (size_t)snprintf(body + n, bytes - n, "ld.param.u64 %%rd17, [%%rd19+%d];\n", 8 * i);
        for (size_t k = 0; k < RONDO_COUNTOF(ways); k++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            if (ways[k].class == r[i]) n += (size_t)snprintf(body + n, bytes - n, ways[k].from, i);
#pragma GCC diagnostic pop
        }
        if (r[i] == 'f') n += (size_t)snprintf(body + n, bytes - n, "mov.b32 %%f%d, %%r17;\n", i);
    }
    n += (size_t)snprintf(body + n, bytes - n, "%s %s0", v->text, register_of(r[0]));
    for (int i = 1; r[i] != 0; i++) {
        n += (size_t)snprintf(body + n, bytes - n, ", %s%d", register_of(r[i]), i);
    }
    n += (size_t)snprintf(body + n, bytes - n, ";\n");
    n += (size_t)snprintf(body + n, bytes - n, "%s",
                          r[0] == 'p'   ? "selp.u64 %rd0, 1, 0, %p0;\n"
                          : r[0] == 'h' ? "cvt.u64.u16 %rd0, %rs0;\n"
                          : r[0] == 'r' ? "cvt.u64.u32 %rd0, %r0;\n"
                          : r[0] == 'f' ? "mov.b32 %r0, %f0;\ncvt.u64.u32 %rd0, %r0;\n"
                          : r[0] == 'g' ? "mov.b64 %rd0, %fd0;\n"
                                        : "");
    snprintf(body + n, bytes - n, "st.global.u64 [%%rd18], %%rd0;\n");
}

static void instructions_have_the_values_of_the_isa(void **state)
{
    static struct value values[MOST_VALUES];
    const int n = read_values(values);
    (void)state;
    for (int i = 0; i < n; i++) {
        const struct value *v = &values[i];
        static uint64_t got;
        const uint64_t argument[] = { (uintptr_t)&got, v->a, v->b, v->c, v->e };
        char body[2048];
        got = 0x123456789abcdef;
        write_body(v, body, sizeof body);
        run_well(body, argument, sizeof argument, 32);
        if (got != v->want) {
            fail_msg("%s of 0x%llx 0x%llx 0x%llx: 0x%llx, but it is 0x%llx", v->text,
                     (unsigned long long)v->a, (unsigned long long)v->b, (unsigned long long)v->c,
                     (unsigned long long)got, (unsigned long long)v->want);
        }
    }
}

/* Those that compute have a row in ptx_values.def; the rest are tested below. */
static void every_instruction_has_a_test(void **state)
{
    static const char *const others[] = { "ld.", "st.",   "red.",  "bra",   "ret",         "fence.",
                                          "bar", "vote.", "shfl.", "cvta.", "a predicate", "mov.b64" };
    static struct value values[MOST_VALUES];
    const int n = read_values(values);
    (void)state;
    for (int f = 0; f < ptx_forms(); f++) {
        int tested = 0;
        for (size_t i = 0; i < RONDO_COUNTOF(others); i++) {
            tested |= strncmp(ptx_form(f), others[i], strlen(others[i])) == 0;
        }
        for (int i = 0; i < n; i++) tested |= strcmp(values[i].text, ptx_form(f)) == 0;
        if (!tested) fail_msg("no test of %s", ptx_form(f));
    }
}

/* ---- memory, branches, other threads ---- */

static void memory_is_loaded_and_stored_in_every_width(void **state)
{
    static uint64_t words[16] __attribute__((aligned(16)));
    uint64_t argument[] = { (uintptr_t)words, 0x80 };
    (void)state;
    words[0] = 0xfedcba9876543210;
    words[1] = 0x1111111122222222;
    run_well(
        "mov.b64 %rd19, test_param_0;\nld.param.u64 %rd1, [%rd19];\nld.param.u16 %rs9, [test_param_0+8];\n"
        "cvta.to.global.u64 %rd1, %rd1;\n"
        "cvta.param.u64 %rd2, %rd19;\nld.u64 %rd3, [%rd2+8];\nst.u64 [%rd1+16], %rd3;\n"
        "ld.u8 %rs1, [%rd1+1];\nst.u16 [%rd1+24], %rs1;\nst.u8 [%rd1+26], %rs9;\n"
        "ld.u16 %rs2, [%rd1+2];\nst.u16 [%rd1+28], %rs2;\nld.u32 %r1, [%rd1+4];\nst.u32 [%rd1+32], %r1;\n"
        "ld.global.v2.u64 {%rd4, %rd5}, [%rd1];\nst.global.v2.u64 [%rd1+48], {%rd5, %rd4};\n"
        "ld.relaxed.sys.global.v2.u64 {%rd6, %rd7}, [%rd1];\n"
        "st.relaxed.sys.global.v2.u64 [%rd1+64], {%rd7, %rd6};\n"
        "ld.relaxed.sys.global.u32 %r2, [%rd1];\nst.relaxed.sys.global.u32 [%rd1+80], %r2;\n"
        "ld.acquire.sys.global.u64 %rd8, [%rd1+8];\nfence.acq_rel.sys;\n"
        "st.relaxed.sys.global.u64 [%rd1+88], %rd8;\nld.relaxed.sys.global.u64 %rd9, [%rd1];\n"
        "st.global.u64 [%rd1+96], %rd9;\nld.global.u64 %rd10, [%rd1];\nst.global.u64 [%rd1+104], %rd10;\n",
        argument, sizeof argument, 32);
    assert_true(words[2] == 0x80);
    assert_true((words[3] & 0xffffffff) == 0x00800032 && words[3] >> 32 == 0x7654);
    assert_true((uint32_t)words[4] == 0xfedcba98);
    assert_true(words[6] == words[1] && words[7] == words[0] && words[8] == words[1] && words[9] == words[0]);
    assert_true((uint32_t)words[10] == 0x76543210 && words[11] == words[1]);
    assert_true(words[12] == words[0] && words[13] == words[0]);
}

static void global_memory_has_smaller_words(void **state)
{
    static uint64_t words[8];
    uint64_t argument[] = { (uintptr_t)words, 0xaabbccdd };
    (void)state;
    words[0] = 0xfedcba9876543210;
    run_well("ld.param.u64 %rd1, [test_param_0];\nld.param.u32 %r9, [test_param_0+8];\n"
             "ld.global.u8 %rs1, [%rd1+1];\nst.global.u16 [%rd1+8], %rs1;\n"
             "ld.global.u16 %rs2, [%rd1+2];\nst.global.u8 [%rd1+10], %rs2;\n"
             "ld.global.u32 %r1, [%rd1+4];\nst.global.u32 [%rd1+12], %r1;\n"
             "st.global.v2.u32 [%rd1+16], {%r9, %r1};\n"
             "mov.b32 %f1, %r9;\nst.global.f32 [%rd1+28], %f1;\n"
             "mov.b64 %fd1, %rd1;\nst.global.f64 [%rd1+32], %fd1;\n"
             "mov.b32 {%rs3, %rs4}, %r9;\nst.u16 [%rd1+40], %rs4;\nst.u16 [%rd1+42], %rs3;\n",
             argument, sizeof argument, 32);
    assert_true(words[1] == 0xfedcba9800540032 && words[2] == 0xfedcba98aabbccdd);
    assert_true(words[3] == 0xaabbccdd00000000 && words[4] == argument[0] && words[5] == 0xccddaabb);
}

static void all_threads_add_to_a_word(void **state)
{
    static uint64_t word;
    uint64_t argument[] = { (uintptr_t)&word };
    (void)state;
    run_well("ld.param.u64 %rd1, [test_param_0];\nmov.u32 %r1, %tid.x;\ncvt.u64.u32 %rd2, %r1;\n"
             "red.global.add.u64 [%rd1], %rd2;\n",
             argument, sizeof argument, THREADS);
    assert_true(word == THREADS * (THREADS - 1) / 2);
}

static void shared_memory_keeps_what_is_stored(void **state)
{
    static uint64_t words[8];
    uint64_t argument[] = { (uintptr_t)words };
    (void)state;
    run_well(
        "ld.param.u64 %rd1, [test_param_0];\nmov.u32 %r1, mem;\nmov.u64 %rd2, 0x8877665544332211;\n"
        "st.shared.u64 [%r1+8], %rd2;\nld.shared.u64 %rd3, [mem+8];\nst.u64 [%rd1], %rd3;\n"
        "ld.shared.f64 %fd1, [%r1+8];\nmov.b64 %rd4, %fd1;\nst.u64 [%rd1+8], %rd4;\n"
        "ld.shared.v2.u32 {%r2, %r3}, [%r1+8];\nst.shared.v2.u32 [mem], {%r3, %r2};\n"
        "ld.shared.u32 %r4, [mem];\nst.u32 [%rd1+16], %r4;\nmov.b32 %r5, -2;\nst.shared.u32 [mem], %r5;\n"
        "ld.shared.s32 %rd5, [mem];\nst.u64 [%rd1+24], %rd5;\nld.shared.u8 %rs1, [mem+15];\n"
        "st.u16 [%rd1+32], %rs1;\nld.shared.v2.u8 {%rs2, %rs3}, [mem+8];\nst.u16 [%rd1+34], %rs3;\n"
        "mov.b64 {%r6, %r7}, %rd2;\nmov.b64 %rd6, {%r7, %r6};\nst.u64 [%rd1+40], %rd6;\n",
        argument, sizeof argument, 32);
    assert_true(words[0] == 0x8877665544332211 && words[1] == words[0]);
    assert_true((uint32_t)words[2] == 0x88776655 && words[3] == 0xfffffffffffffffe);
    assert_true((uint32_t)words[4] == 0x00220088 && words[5] == 0x4433221188776655);
}

/* Lanes sum their numbers in a loop that each leaves at another time; they vote, shuffle and meet. */
static void lanes_diverge_and_meet(void **state)
{
    static uint64_t words[THREADS];
    uint64_t argument[] = { (uintptr_t)words };
    (void)state;
    run_well(
        "ld.param.u64 %rd1, [test_param_0];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, 0;\nmov.u32 %r3, 0;\n"
        "and.b32 %r4, %r1, 31;\n"
        "$LOOP:\nsetp.ge.u32 %p1, %r2, %r4;\n@%p1 bra $DONE;\nadd.s32 %r2, %r2, 1;\nadd.s32 %r3, %r3, %r2;\n"
        "bra.uni $LOOP;\n$DONE:\n"
        "bar.warp.sync -1;\nmov.u32 %r10, -1;\nmov.u32 %r11, 31;\nsub.s32 %r12, %r11, %r4;\n"
        "shfl.sync.idx.b32 %r5|%p2, %r3, %r12, %r11, %r10;\n"
        "setp.ge.u32 %p3, %r3, 496;\nvote.sync.any.pred %p4, %p3, %r10;\nvote.sync.all.pred %p5, %p3, %r10;\n"
        "selp.u32 %r6, 1000, 0, %p4;\nadd.s32 %r5, %r5, %r6;\n@%p5 add.s32 %r5, %r5, 7;\n"
        "@!%p2 add.s32 %r5, %r5, 9;\n"
        "shl.b32 %r7, %r1, 2;\nmov.u32 %r8, mem;\nadd.s32 %r8, %r8, %r7;\nst.shared.u32 [%r8], %r5;\n"
        "mov.u32 %r13, 0;\nmov.u32 %r14, %ntid.x;\nbarrier.sync %r13, %r14;\n"
        "xor.b32 %r7, %r7, 128;\nmov.u32 %r8, mem;\nadd.s32 %r8, %r8, %r7;\nld.shared.u32 %r9, [%r8];\n"
        "mul.wide.u32 %rd2, %r1, 8;\nadd.s64 %rd2, %rd1, %rd2;\ncvt.u64.u32 %rd3, %r9;\nst.u64 [%rd2], "
        "%rd3;\n",
        argument, sizeof argument, THREADS);
    for (uint64_t i = 0; i < THREADS; i++) {
        const uint64_t from = 31 - i % 32;
        assert_true(words[i] == from * (from + 1) / 2 + 1000);
    }
}

static void braces_have_their_own_registers(void **state)
{
    static uint64_t words[3];
    uint64_t argument[] = { (uintptr_t)words };
    (void)state;
    run_well("ld.param.u64 %rd1, [test_param_0];\nmov.u64 %rd2, 3;\n"
             "{\n.reg .b64 %lhs;\nmov.u64 %lhs, 5;\n"
             "{.reg .b64 %lhs;\n.reg .b64 %rd<3>;\nmov.u64 %lhs, 7;\nmov.u64 %rd2, %lhs;\n}\n"
             "st.u64 [%rd1], %lhs;\n}\nst.u64 [%rd1+8], %rd2;\n"
             "{.reg .b16 c;\nmov.b16 c, 0x3f80U;\nst.u16 [%rd1+16], c;}\n",
             argument, sizeof argument, 32);
    assert_true(words[0] == 5 && words[1] == 3 && words[2] == 0x3f80);
}

/* ---- modules that others' compilers wrote ---- */

#define OTHER                                                                                   \
    "//\n// Of another program\n//\n.version 9.0\n.target sm_80\n.address_size 64\n"            \
    ".extern .func (.param .b32 func_retval0) vprintf\n(\n.param .b64 vprintf_param_0\n)\n;\n"  \
    ".global .align 1 .b8 $str[4] = {102, 125, 102, 0};\n\n"                                    \
    ".entry first(\n.param .u64 first_param_0,\n.param .align 1 .b8 first_param_1[3],\n"        \
    ".param .u32 first_param_2\n)\n.maxntid 64, 1, 1\n{\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n" \
    "ld.param.u64 %rd1, [first_param_0];\nld.param.u32 %r1, [first_param_2];\n"                 \
    "mov.u32 %r2, %nctaid.x;\nmov.u32 %r3, %ctaid.x;\nmul.lo.s32 %r4, %r1, %r2;\n"              \
    "mul.wide.u32 %rd2, %r3, 8;\nadd.s64 %rd3, %rd1, %rd2;\ncvt.u64.u32 %rd4, %r4;\n"           \
    "st.u64 [%rd3], %rd4;\n{st.u64 [%rd3], %rd4;\n}\nret;\n\n}\n"                               \
    ".entry second()\n{\n.reg .b64 %rd<9>;\nmov.u64 %rd1, $str;\nret;\n}\n"

static void a_kernel_has_parameters_and_its_place_in_a_grid(void **state)
{
    static uint64_t words[5];
    static struct {
        uint64_t words;
        uint8_t bytes[3];
        uint32_t factor;
    } argument = { .factor = 7 };
    const struct rondo_sim_rules rules = { .patience = 1000 };
    const struct ptx_parameter *p;
    struct ptx_run run = { .argument = &argument };
    struct rondo_sim_result result;
    struct rondo_sim_grid grid;
    char why[WHY] = "";
    struct ptx_module *m = ptx_open(OTHER, why, sizeof why);
    (void)state;
    assert_string_equal(why, "");
    assert_int_equal(ptx_count(m), 2);
    run.program = ptx_find(m, "first", why, sizeof why);
    assert_non_null(run.program);
    assert_int_equal(ptx_parameters(run.program, &p), 3);
    assert_true(p[0].at == 0 && p[0].bytes == 8 && p[1].at == 8 && p[1].bytes == 3);
    assert_true(p[2].at == 12 && p[2].bytes == 4 && ptx_argument_bytes(run.program) == sizeof argument);
    argument.words = (uintptr_t)words;
    grid = ptx_grid(&run, 2, 32);
    rondo_sim_run(&rules, &grid, 1, &result);
    assert_string_equal(result.why, "");
    assert_true(words[0] == 14 && words[1] == 14 && words[2] == 0);
    run.first = 3;
    run.blocks = 5;
    grid = ptx_grid(&run, 2, 32);
    rondo_sim_run(&rules, &grid, 1, &result);
    assert_true(words[0] == 14 && words[2] == 0 && words[3] == 35 && words[4] == 35);
    assert_null(ptx_find(m, "second", why, sizeof why));
    assert_string_equal(why, "line 40: unknown operand: $str");
    ptx_close(m);
}

/* A thread polls a word that another one sets after some time. */
static void a_polling_loop_gives_way(void **state)
{
    static uint64_t words[2];
    uint64_t argument[] = { (uintptr_t)words };
    (void)state;
    words[0] = 0;
    run_well("ld.param.u64 %rd1, [test_param_0];\nmov.u32 %r1, %tid.x;\nsetp.eq.s32 %p1, %r1, 63;\n@%p1 bra "
             "$SET;\n"
             "$POLL:\nld.relaxed.sys.global.u64 %rd2, [%rd1];\nsetp.eq.s64 %p2, %rd2, 0;\n@%p2 bra "
             "$POLL;\nbra.uni $END;\n"
             "$SET:\nmov.u64 %rd3, 1;\nst.relaxed.sys.global.u64 [%rd1], %rd3;\n$END:\n",
             argument, sizeof argument, THREADS);
}

/* ---- refused ---- */

static void what_a_gpu_would_fault_at_ends_the_run(void **state)
{
    static uint64_t words[4];
    static const struct {
        const char *body, *why;
    } cases[] = {
        { "ld.u32 %r1, [%rd1+2];", "no multiple" },
        { "st.global.u64 [%rd1+4], %rd1;", "no multiple" },
        { "ld.shared.u32 %r1, [mem+256];", "outside of shared memory" },
        { "ld.param.u64 %rd2, [test_param_0+8];", "outside of the arguments" },
        { "red.global.add.u64 [%rd1+4], %rd1;", "no multiple" },
        { "mov.b64 %rd2, test_param_0;\nld.u64 %rd3, [%rd2];", "or no address" },
        { "mov.b64 %rd2, test_param_0;\ncvta.param.u64 %rd3, %rd2;\nld.global.u64 %rd4, [%rd3];",
          "of the arguments" },
        { "mov.u32 %r1, 0;\ndiv.u32 %r2, %r1, %r1;", "division by 0" },
        { "bar.warp.sync 1;", "less than all lanes" },
        { "mov.u32 %r1, 0;\nmov.u32 %r2, 33;\nbarrier.sync %r1, %r2;", "barrier 0 of 33 threads" },
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(cases); i++) {
        uint64_t argument[] = { (uintptr_t)words };
        char body[400];
        struct rondo_sim_result result;
        snprintf(body, sizeof body, "ld.param.u64 %%rd1, [test_param_0];\n%s", cases[i].body);
        result = run_text(body, argument, sizeof argument, 32);
        assert_int_equal(result.end, RONDO_SIM_BROKEN);
        if (strstr(result.why, cases[i].why) == NULL) fail_msg("%s: %s", cases[i].body, result.why);
        if (strstr(result.why, "barrier") == NULL) assert_non_null(strstr(result.why, "test, line 1"));
    }
}

static void unknown_text_is_an_error_with_its_line(void **state)
{
    static const char *const bodies[] = {
        "frob.s32 %r1, %r2;",
        "add.s32 %r1, %r2, %rd1;",
        "add.sat.s32 %r1, %r2, %r3;",
        "add.s32 %r1, %r2;",
        "ld.u32 %r1, [%r2];",
        "ld.u32 %rs1, [%rd1];",
        "mov.u32 %r1, %laneid;",
        "mov.u32 %r1, %r99;",
        "bra $NOWHERE;",
        ".local .align 8 .b8 x[8];",
        "mov.u32 5, %r1;",
        "ld.shared.u32 %r1, [test_param_0];",
        "add.ftz.f32 %f1, %f2, %f3;",
        "atom.add.u32 %r1, [%rd1], 1;",
        "{ .reg .b64 %lhs; } mov.u64 %lhs, 5;",
        "red.shared.add.u64 [%r1], %rd1;",
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(bodies); i++) {
        char text[2048], why[WHY] = "";
        struct ptx_module *m;
        snprintf(text, sizeof text, HEAD REGISTERS "%s\nret;\n}\n", 8, bodies[i]);
        m = ptx_open(text, why, sizeof why);
        assert_non_null(m);
        if (ptx_find(m, "test", why, sizeof why) != NULL) fail_msg("taken: %s", bodies[i]);
        if (strncmp(why, "line 16:", 8) != 0) fail_msg("%s: %s", bodies[i], why);
        ptx_close(m);
    }
}

static void unknown_modules_are_refused(void **state)
{
    static const char *const texts[] = {
        "",
        ".version 9.0\n.global .b8 x[4];\n",
        ".version 9.0\n.visible .func f()\n{\n}\n",
        ".version 9.0\n.visible .entry f(\n)\n{\n",
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(texts); i++) {
        char why[WHY] = "";
        assert_null(ptx_open(texts[i], why, sizeof why));
        assert_true(strncmp(why, "line ", 5) == 0);
    }
}

/* ---- the image ---- */

static void every_kernel_of_the_image_is_known(void **state)
{
    static const char *const files[] = { "kernels/all-80.ptx", "kernels/all-90.ptx" };
    int kernels = 0;
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(files); i++) {
        char why[WHY] = "";
        struct ptx_module *m;
        if (access(files[i], R_OK) != 0) continue;
        m = ptx_open_file(files[i], why, sizeof why);
        if (m == NULL) fail_msg("%s: %s", files[i], why);
        for (int k = 0; k < ptx_count(m); k++, kernels++) {
            if (ptx_find(m, ptx_name(m, k), why, sizeof why) == NULL) fail_msg("%s: %s", ptx_name(m, k), why);
        }
        ptx_close(m);
    }
    print_message("%d kernels of kernels/all-*.ptx\n", kernels);
    if (kernels == 0) skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instructions_have_the_values_of_the_isa),
        cmocka_unit_test(every_instruction_has_a_test),
        cmocka_unit_test(memory_is_loaded_and_stored_in_every_width),
        cmocka_unit_test(global_memory_has_smaller_words),
        cmocka_unit_test(all_threads_add_to_a_word),
        cmocka_unit_test(shared_memory_keeps_what_is_stored),
        cmocka_unit_test(lanes_diverge_and_meet),
        cmocka_unit_test(braces_have_their_own_registers),
        cmocka_unit_test(a_kernel_has_parameters_and_its_place_in_a_grid),
        cmocka_unit_test(a_polling_loop_gives_way),
        cmocka_unit_test(what_a_gpu_would_fault_at_ends_the_run),
        cmocka_unit_test(unknown_text_is_an_error_with_its_line),
        cmocka_unit_test(unknown_modules_are_refused),
        cmocka_unit_test(every_kernel_of_the_image_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
