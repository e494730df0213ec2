/* What the cost model on host memory takes from the machine: the CPUs, and the share of a rank in their
 * caches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/param.h"
#include "coll/algo.h"
#include "tuner/tuner.h"
#include "tuner/model.h"
#include "node_job.h"

enum { PLACE = 128 << 10, BIG = 64 << 20 };

static const int32_t amd = 1 << RONDO_GRAPH_CPU(RONDO_ARCH_X86, RONDO_VENDOR_AMD),
                     intel = 1 << RONDO_GRAPH_CPU(RONDO_ARCH_X86, RONDO_VENDOR_INTEL);

enum { ZEN3 = 25, ZEN5 = 26 };

/* Ranks on two cores of these CPUs (bits of rondo_graph.cpus). */
static struct rondo_layout ranks_on(int n, int32_t cpus, int32_t family)
{
    struct rondo_stitch_summary summary = { .graph[RONDO_GRAPH_RING] = { .cpus = cpus, .family = family } };
    struct rondo_layout l;
    memset(&l, 0, sizeof(l));
    l.nranks = l.nlocal = l.max_local = n;
    l.nnodes = l.nchannels = 1;
    l.protos = RONDO_ALL_PROTOS;
    rondo_model_host(&l.model, n / 2.0);
    rondo_model_machine(&l.model, &summary);
    return l;
}

static double mapped_us(const struct rondo_layout *l, enum rondo_coll coll, size_t bytes)
{
    return rondo_cost_us(l, coll, RONDO_ALGO_TWOSHOT, RONDO_PROTO_SIMPLE, 1, bytes, PLACE);
}

/* Mapped buffers are faster than one-shot everywhere; on AMD one-shot of any size is faster than the kernel's
 * copies. */
static void processors_differ_in_what_two_ranks_publish(void **state)
{
    static const struct {
        int32_t cpus, family;
    } rows[] = {
        { 0, 0 }, { intel, 6 }, { intel, ZEN5 }, { amd | intel, ZEN5 }, { amd, ZEN3 }, { amd, ZEN5 }
    };
    (void)state;
    for (size_t i = 0; i < 2 * RONDO_COUNTOF(rows); i++) {
        const int32_t cpu = rows[i / 2].cpus;
        struct rondo_layout l = ranks_on(2, cpu, rows[i / 2].family);
        rondo_model_handover(&l.model, i % 2 == 0 ? 60 : 270); /* near, far */
        for (size_t bytes = 2 << 20; bytes <= BIG; bytes *= 2) {
            double posted = rondo_cost_us(&l, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE,
                                          1, bytes, PLACE),
                   copied = rondo_cma_cost_us(&l, RONDO_ALGO_TWOSHOT, RONDO_COLL_ALL_REDUCE, bytes, 1);
            assert_int_equal(posted < copied, cpu == amd);
            assert_true(mapped_us(&l, RONDO_COLL_ALL_REDUCE, bytes) < posted);
            assert_true(mapped_us(&l, RONDO_COLL_ALL_GATHER, bytes) <
                        rondo_cost_us(&l, RONDO_COLL_ALL_GATHER, RONDO_ALGO_ONESHOT, RONDO_PROTO_SIMPLE, 1,
                                      bytes, PLACE));
        }
    }
}

/* On Zen 5 conns are faster than the kernel's copies, in place or not, on near, far and oversubscribed
 * cores; on others the copies are, where nothing more is copied. */
static void processors_differ_in_what_is_fastest_without_mapped_buffers(void **state)
{
    static const enum rondo_coll colls[] = { RONDO_COLL_BROADCAST, RONDO_COLL_REDUCE, RONDO_COLL_ALL_REDUCE };
    static const uint32_t handover_ns[] = { 0, 60, 270, 500 };
    (void)state;
    for (size_t i = 0; i < 4 * RONDO_COUNTOF(handover_ns) * RONDO_COUNTOF(colls); i++) {
        int n = i & 1 ? 4 : 2, zen5 = i >> 1 & 1, near = i / 4 % RONDO_COUNTOF(handover_ns) < 2;
        enum rondo_coll coll = colls[i / 4 / RONDO_COUNTOF(handover_ns)];
        struct rondo_layout l = ranks_on(n, amd, zen5 ? ZEN5 : ZEN3);
        rondo_model_handover(&l.model, handover_ns[i / 4 % RONDO_COUNTOF(handover_ns)]);
        for (size_t bytes = 256 << 10; bytes <= BIG; bytes *= 2) {
            double conns = rondo_cost_us(&l, coll, RONDO_ALGO_RING, RONDO_PROTO_SIMPLE, 1, bytes, PLACE);
            double kernel[] = { rondo_cma_cost_us(&l, RONDO_ALGO_TWOSHOT, coll, bytes, 0),
                                rondo_cma_cost_us(&l, RONDO_ALGO_TWOSHOT, coll, bytes, 1) };
            assert_true(!zen5 || (conns < kernel[0] && conns < kernel[1]));
            assert_true(zen5 || coll == RONDO_COLL_REDUCE || (n > 2 && near) || kernel[1] < conns);
        }
    }
}

/* ---- the CPU family ---- */

/* Does a machine whose CPUs have these families (0: no such CPU) count as Zen 5? */
static int is_zen5(int first, int second)
{
    static const int core[] = { 0, 1 };
    char path[] = "/tmp/rondo-unit-XXXXXX";
    int fd = mkstemp(path), family[] = { first, second };
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    struct job job;
    assert_non_null(file);
    fprintf(file, "<system version=\"1\">\n");
    for (int i = 0; i < 2 && family[i] != 0; i++) {
        fprintf(file,
                "<cpu numaid=\"%d\" affinity=\"%d\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"%d\" "
                "modelid=\"2\"/>\n",
                i, second != 0 ? 1 << i : 3, family[i]);
    }
    fprintf(file, "</system>\n");
    fclose(file);
    setenv("RONDO_TOPO_FILE", path, 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    rondo_node_forget_machine();
    job_init(&job, 2, core, NULL);
    job_lay(&job, 2);
    int zen5 = job.layout.model.conn_slows < 1;
    job_release(&job);
    unlink(path);
    unsetenv("RONDO_TOPO_FILE");
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    rondo_node_forget_machine();
    return zen5;
}

/* From CPUID, and as NCCL writes it; the oldest of several counts. */
static void the_family_comes_from_the_machine(void **state)
{
    static const struct {
        int first, second, zen5;
    } rows[] = { { 23, 0, 0 },  { 25, 0, 0 },  { 26, 0, 1 },   { 143, 0, 0 }, { 175, 0, 0 },
                 { 191, 0, 1 }, { 26, 26, 1 }, { 26, 191, 1 }, { 25, 26, 0 }, { 26, 175, 0 } };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        if (is_zen5(rows[i].first, rows[i].second) != rows[i].zen5) {
            fail_msg("families %d and %d", rows[i].first, rows[i].second);
        }
    }
}

/* GPUs do not publish in pieces: 0 in the model. */
static void gpus_publish_as_before(void **state)
{
    struct rondo_stitch_summary summary = { .graph[RONDO_GRAPH_RING].cpus = amd };
    struct rondo_model m;
    (void)state;
    rondo_model_host(&m, 1);
    m.pair_bw = 0;
    rondo_model_machine(&m, &summary);
    assert_true(m.pair_bw == 0);
}

/* ---- results past the caches ---- */

static size_t stream_bytes(int32_t kib, int32_t family, const char *param)
{
    struct rondo_stitch_summary summary = { .graph[RONDO_GRAPH_RING] = {
                                                .cache = kib, .cpus = amd, .family = family } };
    struct rondo_model m;
    setenv("RONDO_STREAM_SIZE", param, 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    rondo_model_host(&m, 1);
    rondo_model_machine(&m, &summary);
    unsetenv("RONDO_STREAM_SIZE");
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    return m.stream_bytes;
}

/* The limit is half of a rank's share, on Zen 5 all of it, if it is known and not too large; or the user's.
 */
static void results_larger_than_the_caches_are_stored_past_them(void **state)
{
    static const struct {
        int32_t kib;
        size_t wanted;
    } rows[] = { { 0, 16 << 20 },
                 { 64, 32 << 10 },
                 { 16 << 10, 8 << 20 },
                 { 32 << 10, 16 << 20 },
                 { INT32_MAX, 16 << 20 } };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        assert_int_equal(stream_bytes(rows[i].kib, ZEN3, ""), rows[i].wanted);
        assert_int_equal(stream_bytes(rows[i].kib / 2, ZEN5, ""), rows[i].wanted);
        assert_int_equal(stream_bytes(rows[i].kib, 0, "auto"), rows[i].wanted);
        assert_int_equal(stream_bytes(rows[i].kib, ZEN5, "24K"), 24 << 10);
        assert_int_equal(stream_bytes(rows[i].kib, ZEN5, "0"), 0);
    }
}

/* The limit in MiB for ranks on these cores; NULL: any. */
static void assert_stream(const char *machine, int n, const int *core, size_t wanted)
{
    int any[MAX_RANKS] = { 0 };
    struct job job;
    synthetic(machine);
    job_init(&job, n, core != NULL ? core : any, NULL);
    job_lay(&job, 2);
    assert_int_equal(job.layout.model.stream_bytes, wanted << 20);
    job_release(&job);
}

static void ranks_share_the_outermost_caches_of_their_cores(void **state)
{
    static const int one_cache[] = { 0, 1 }, two[] = { 0, 2 }, all[] = { 0, 1, 2, 3 };
    static const char machine[] = "package:1 numa:1 l3:2(size=16777216) core:2 pu:1";
    (void)state;
    assert_stream(machine, 4, all, 4);
    assert_stream(machine, 2, one_cache, 4);
    assert_stream(machine, 2, two, 8);
    assert_stream("package:1 numa:1 l3:1(size=16777216) l2:2(size=67108864) core:1 pu:1", 2, one_cache, 4);
    assert_stream("package:1 l3:1(size=16777216) numa:2 core:1 pu:1", 2, one_cache,
                  4); /* which the two nodes share */
    assert_stream("package:1 numa:1 l2:2(size=8388608) core:1 pu:1", 2, one_cache, 4);
    assert_stream("package:2 numa:1 l3:1(size=536870912) core:1 pu:1", 2, one_cache, 16);
    assert_stream("package:2 numa:1 core:1 pu:1", 2, one_cache, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processors_differ_in_what_two_ranks_publish),
        cmocka_unit_test(processors_differ_in_what_is_fastest_without_mapped_buffers),
        cmocka_unit_test(the_family_comes_from_the_machine),
        cmocka_unit_test(gpus_publish_as_before),
        cmocka_unit_test(results_larger_than_the_caches_are_stored_past_them),
        cmocka_unit_test_teardown(ranks_share_the_outermost_caches_of_their_cores, no_synthetic),
    };
    rondo_log_mask = RONDO_LOG_NONE;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
