/* Calibration: its file (damaged, hostile, written by many at once), what it does to the model, and that it
 * never changes the bits of a result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "coll/algo.h"
#include "tuner/calibration.h"
#include "tuner/model.h"
#include "tuner/tuner.h"

enum { PLACE = 128 << 10, BIG = 64 << 20, WRITERS = 8, WRITES = 40 };

static char home[] = "/tmp/rondo-unit-XXXXXX";
static char file_name[PATH_MAX];
static uint64_t seed = 20260917;

/* A Xeon with near cores, about. */
static const struct rondo_calibration near_cores = { .flag = 127,
                                                     .copy = 53000,
                                                     .stream = 10400,
                                                     .sum = 13000,
                                                     .apart_stores = 10100,
                                                     .apart_over = 7200,
                                                     .apart_past = 6200,
                                                     .apart_copy = 6400,
                                                     .kernel_call = 900,
                                                     .kernel = 9000,
                                                     .yield = 300 };

static uint32_t below(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static uint32_t random_mbs(void) { return 100 + below(60000); }

static struct rondo_calibration random_calibration(void)
{
    return (struct rondo_calibration){ .flag = 30 + below(900),
                                       .copy = random_mbs(),
                                       .stream = random_mbs(),
                                       .sum = random_mbs(),
                                       .apart_stores = random_mbs(),
                                       .apart_over = random_mbs(),
                                       .apart_past = random_mbs(),
                                       .apart_copy = random_mbs(),
                                       .kernel_call = below(4) == 0 ? 0 : 100 + below(20000),
                                       .kernel = random_mbs(),
                                       .yield = 10 + below(5000) };
}

/* ---- the file ---- */

static int begin(void **state)
{
    (void)state;
    return mkdtemp(home) == NULL || setenv("XDG_CACHE_HOME", home, 1) != 0;
}

static int end(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", home);
    return system(command);
}

static const char *key_of(char key[RONDO_CALIBRATION_KEY]) { return rondo_calibration_key("near", key); }

/* Find the only file of the cache. */
static void find_file(void)
{
    char folder[PATH_MAX / 2];
    struct dirent *entry;
    DIR *dir;
    int n = 0;
    snprintf(folder, sizeof(folder), "%s/rondo", home);
    assert_non_null(dir = opendir(folder));
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            snprintf(file_name, sizeof(file_name), "%s/%.200s", folder, entry->d_name);
            n++;
        }
    }
    closedir(dir);
    assert_int_equal(n, 1); /* nothing is left beside it */
}

static void a_file_is_read_back(void **state)
{
    char key[RONDO_CALIBRATION_KEY], far_key[RONDO_CALIBRATION_KEY];
    struct rondo_calibration c;
    struct stat info;
    (void)state;
    memset(&c, 0, sizeof(c));
    assert_false(rondo_calibration_read(key_of(key), &c));
    rondo_calibration_write(key, &near_cores);
    assert_true(rondo_calibration_read(key, &c));
    assert_memory_equal(&c, &near_cores, sizeof(c));
    assert_false(rondo_calibration_read(rondo_calibration_key("far", far_key), &c));
    find_file();
    assert_int_equal(stat(file_name, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

static void put(const char *text, size_t n)
{
    int fd = open(file_name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, text, n) == (ssize_t)n && close(fd) == 0);
}

/* Every shorter file, and every file with one other byte, is ignored. */
static void a_damaged_file_is_ignored(void **state)
{
    char key[RONDO_CALIBRATION_KEY], good[2048], bad[2048];
    struct rondo_calibration c, untouched;
    size_t n;
    FILE *file;
    (void)state;
    rondo_calibration_write(key_of(key), &near_cores);
    find_file();
    assert_non_null(file = fopen(file_name, "re"));
    n = fread(good, 1, sizeof(good), file);
    fclose(file);
    memset(&c, 0x11, sizeof(c));
    untouched = c;
    for (size_t i = 0; i < n; i++) {
        const char *why;
        memcpy(bad, good, n);
        bad[i] = '\0';
        assert_false(rondo_calibration_parse(bad, key, &c, &why));
        assert_non_null(why);
        bad[i] = (char)(good[i] == '7' ? '8' : '7');
        bad[n] = '\0';
        assert_false(rondo_calibration_parse(bad, key, &c, &why));
        put(good, i);
        assert_false(rondo_calibration_read(key, &c));
    }
    memset(bad, 'x', sizeof(bad));
    put(bad, sizeof(bad));
    assert_false(rondo_calibration_read(key, &c));
    put("a\0b", 3);
    assert_false(rondo_calibration_read(key, &c));
    assert_memory_equal(&c, &untouched, sizeof(c));
    rondo_calibration_write(key, &near_cores);
    assert_true(rondo_calibration_read(key, &c));
}

/* Numbers with a right checksum, but out of bounds. */
static void impossible_numbers_are_ignored(void **state)
{
    char key[RONDO_CALIBRATION_KEY];
    struct rondo_calibration bad[] = { near_cores, near_cores, near_cores, near_cores }, c;
    (void)state;
    bad[0].sum = 1;
    bad[1].copy = UINT32_MAX;
    bad[2].sum = 0; /* needed */
    bad[3].flag = 100001;
    for (size_t i = 0; i < RONDO_COUNTOF(bad); i++) {
        struct rondo_model m = { .base_us = 0 }, before;
        rondo_model_host(&m, 1);
        before = m;
        rondo_calibration_write(key_of(key), &bad[i]);
        assert_false(rondo_calibration_read(key, &c));
        rondo_model_calibrate(&m, &bad[i]);
        assert_memory_equal(&m, &before, sizeof(m));
    }
    rondo_calibration_write(key, &near_cores);
}

static void what_is_no_plain_file_of_the_user_is_ignored(void **state)
{
    char key[RONDO_CALIBRATION_KEY], other[PATH_MAX + 8];
    struct rondo_calibration c;
    (void)state;
    rondo_calibration_write(key_of(key), &near_cores);
    find_file();
    assert_int_equal(chmod(file_name, 0622), 0);
    assert_false(rondo_calibration_read(key, &c));
    assert_int_equal(chmod(file_name, 0600), 0);
    assert_true(rondo_calibration_read(key, &c));
    snprintf(other, sizeof(other), "%s.x", file_name);
    assert_int_equal(rename(file_name, other), 0);
    assert_int_equal(symlink(other, file_name), 0);
    assert_false(rondo_calibration_read(key, &c));
    assert_int_equal(unlink(file_name), 0);
    assert_int_equal(mkfifo(file_name, 0600), 0); /* opening it must not wait */
    assert_false(rondo_calibration_read(key, &c));
    assert_int_equal(unlink(file_name), 0);
    assert_int_equal(mkdir(file_name, 0700), 0);
    assert_false(rondo_calibration_read(key, &c));
    rondo_calibration_write(key, &near_cores); /* cannot replace it, which is no error */
    assert_int_equal(rmdir(file_name), 0);
    assert_int_equal(unlink(other), 0);
}

static void no_home_is_no_error(void **state)
{
    char key[RONDO_CALIBRATION_KEY], file[PATH_MAX];
    struct rondo_calibration c;
    const char *const homes[] = { "/proc/none", "relative", "", file };
    (void)state;
    snprintf(file, sizeof(file), "%s/file", home);
    assert_int_equal(close(open(file, O_CREAT | O_WRONLY, 0600)), 0);
    for (size_t i = 0; i < RONDO_COUNTOF(homes); i++) {
        setenv("XDG_CACHE_HOME", homes[i], 1);
        setenv("HOME", homes[i], 1);
        rondo_calibration_write(key_of(key), &near_cores);
        assert_false(rondo_calibration_read(key, &c));
    }
    setenv("XDG_CACHE_HOME", home, 1);
}

static const char *cpu_of(const char *cpuinfo, char cpu[RONDO_CALIBRATION_CPU])
{
    char text[512];
    FILE *file;
    snprintf(text, sizeof(text), "%s", cpuinfo);
    assert_non_null(file = fmemopen(text, strlen(text), "r"));
    rondo_calibration_cpu(file, cpu);
    fclose(file);
    return cpu;
}

/* On Arm there is no name: two kinds of nodes with one home must not share a file. */
static void the_key_says_which_cpu(void **state)
{
    char cpu[RONDO_CALIBRATION_CPU], other[RONDO_CALIBRATION_CPU];
    (void)state;
    assert_string_equal(
        cpu_of("processor\t: 0\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n", cpu),
        "AMD EPYC, family 25, model 1");
    cpu_of("processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
           "CPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n",
           cpu);
    assert_string_equal(cpu, "implementer 0x41, part 0xd0c, variant 0x3");
    cpu_of("processor\t: 0\nBogoMIPS\t: 2100.00\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
           "CPU variant\t: 0x1\nCPU part\t: 0xd40\nCPU revision\t: 1\n",
           other);
    assert_string_not_equal(cpu, other);
}

/* Whoever reads while others write sees a whole file of one of them. */
static void many_write_at_once(void **state)
{
    char key[RONDO_CALIBRATION_KEY];
    struct rondo_calibration c = near_cores;
    int left = WRITERS;
    (void)state;
    rondo_calibration_write(key_of(key), &c);
    for (int w = 0; w < WRITERS; w++) {
        pid_t child = fork();
        assert_true(child >= 0);
        for (uint32_t i = 0; child == 0 && i < WRITES; i++) {
            c.copy = c.stream = 1000 + (uint32_t)w * WRITES + i;
            rondo_calibration_write(key, &c);
        }
        if (child == 0) {
            _exit(0);
        }
    }
    while (left > 0) {
        int status;
        assert_true(rondo_calibration_read(key, &c));
        assert_true(c.copy == near_cores.copy || c.copy == c.stream);
        while (left > 0 && waitpid(-1, &status, WNOHANG) > 0) {
            assert_int_equal(status, 0);
            left--;
        }
    }
    find_file();
}

/* ---- the model ---- */

static struct rondo_layout ranks_of(int n, const struct rondo_calibration *c)
{
    struct rondo_layout l;
    memset(&l, 0, sizeof(l));
    l.nranks = l.nlocal = l.max_local = n;
    l.nnodes = l.nchannels = 1;
    l.protos = RONDO_ALL_PROTOS;
    rondo_model_host(&l.model, 1);
    l.fixed = l.model;
    l.has_fixed = c != NULL;
    if (c != NULL) {
        rondo_model_calibrate(&l.model, c);
        rondo_model_handover(&l.model, c->flag);
    }
    return l;
}

/* algo: the only one that is allowed; NULL: all are. */
static struct rondo_selection selected(const struct rondo_layout *l, enum rondo_coll coll, size_t bytes,
                                       const char *algo)
{
    struct rondo_allowed allowed;
    struct rondo_selection selection;
    struct rondo_select_input in = { .layout = l,
                                     .allowed = &allowed,
                                     .coll = coll,
                                     .bytes = bytes,
                                     .mailbox = l->nranks <= RONDO_MAILBOX_FEW ? PLACE : 16 << 10,
                                     .direct = 1 };
    memset(&allowed, 0xff, sizeof(allowed));
    if (algo != NULL) {
        assert_int_equal(rondo_allowed_parse(&allowed, algo, ""), RONDO_SUCCESS);
    }
    assert_int_equal(rondo_select(&in, &selection), RONDO_SUCCESS);
    return selection;
}

/* What runs with ordinary memory. */
static enum rondo_algo ordinary(const struct rondo_layout *l, enum rondo_coll coll, size_t bytes,
                                int in_place, const char *algo)
{
    struct rondo_selection s = selected(l, coll, bytes, algo);
    enum rondo_kernel_copies copies = rondo_select_kernel(l, coll, bytes, &s);
    int kernel = copies == RONDO_KERNEL_ALWAYS ||
                 copies == (in_place ? RONDO_KERNEL_IN_PLACE : RONDO_KERNEL_APART);
    return (enum rondo_algo)(s.fallback.nchannels == 0 || kernel ? s.primary : s.fallback).algo;
}

/* Whatever was measured, reductions of more than two ranks have the bits that they have without it. */
static void measuring_changes_no_bits(void **state)
{
    static const enum rondo_coll colls[] = { RONDO_COLL_ALL_REDUCE, RONDO_COLL_REDUCE,
                                             RONDO_COLL_REDUCE_SCATTER };
    int differs = 0;
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 400; i++) {
        struct rondo_calibration c = random_calibration();
        int n = 3 + (int)below(14);
        struct rondo_layout l = ranks_of(n, &c), plain = ranks_of(n, NULL);
        enum rondo_coll coll = colls[below(RONDO_COUNTOF(colls))];
        const char *algo = coll == RONDO_COLL_ALL_REDUCE && i % 2 ? "twoshot" : NULL; /* needs a fallback */
        for (size_t bytes = 64; bytes <= BIG; bytes *= 4) {
            for (int in_place = 0; in_place < 2; in_place++) {
                enum rondo_algo with = ordinary(&l, coll, bytes, in_place, algo),
                                without = ordinary(&plain, coll, bytes, in_place, algo);
                differs += with != without;
                if (!rondo_bits_fixed(&l, coll, with, without)) {
                    fail_msg("%d ranks, %zu bytes: %s instead of %s", n, bytes, rondo_algo_name(with),
                             rondo_algo_name(without));
                }
            }
        }
    }
    assert_true(differs > 0); /* it does choose */
}

static void bits_are_fixed_where_they_must_be(void **state)
{
    struct rondo_layout two = ranks_of(2, NULL), three = ranks_of(3, NULL);
    (void)state;
    assert_true(rondo_bits_fixed(&two, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_RING, RONDO_ALGO_TWOSHOT));
    assert_true(rondo_bits_fixed(&three, RONDO_COLL_ALL_GATHER, RONDO_ALGO_RING, RONDO_ALGO_TWOSHOT));
    assert_true(rondo_bits_fixed(&three, RONDO_COLL_REDUCE, RONDO_ALGO_ONESHOT, RONDO_ALGO_TWOSHOT));
    assert_false(rondo_bits_fixed(&three, RONDO_COLL_REDUCE, RONDO_ALGO_RING, RONDO_ALGO_TWOSHOT));
    assert_false(rondo_bits_fixed(&three, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ORDERED, RONDO_ALGO_TWOSHOT));
    three.rank_order = 1; /* its rings begin with rank 0 */
    assert_true(rondo_bits_fixed(&three, RONDO_COLL_ALL_REDUCE, RONDO_ALGO_ORDERED, RONDO_ALGO_TWOSHOT));
}

/* Two ranks take what is faster: far cores whose stores are slow leave them to the kernel out of place, and
 * publish in place. */
static void two_ranks_take_what_was_faster(void **state)
{
    struct rondo_calibration c = near_cores, slow = near_cores;
    struct rondo_layout l;
    (void)state;
    c.kernel = 100;
    l = ranks_of(2, &c);
    assert_int_equal(ordinary(&l, RONDO_COLL_ALL_REDUCE, 1 << 20, 0, NULL), RONDO_ALGO_ONESHOT);
    assert_int_equal(ordinary(&l, RONDO_COLL_ALL_REDUCE, 1 << 20, 1, NULL), RONDO_ALGO_ONESHOT);
    c.kernel = 60000;
    l = ranks_of(2, &c);
    assert_int_equal(ordinary(&l, RONDO_COLL_ALL_REDUCE, 1 << 20, 0, NULL), RONDO_ALGO_TWOSHOT);
    assert_int_equal(ordinary(&l, RONDO_COLL_ALL_REDUCE, 1 << 20, 1, NULL), RONDO_ALGO_TWOSHOT);
    slow.kernel = 8000;
    slow.apart_stores = slow.apart_over = slow.apart_past = slow.apart_copy = 1700;
    l = ranks_of(2, &slow);
    assert_int_equal(ordinary(&l, RONDO_COLL_ALL_REDUCE, 512 << 10, 0, NULL), RONDO_ALGO_TWOSHOT);
    assert_int_equal(ordinary(&l, RONDO_COLL_ALL_REDUCE, 512 << 10, 1, NULL), RONDO_ALGO_ONESHOT);
    assert_true(l.model.apart_us > 0);
}

static void the_way_to_store_is_the_fastest(void **state)
{
    struct rondo_calibration c = near_cores;
    struct rondo_layout l = ranks_of(2, &c);
    (void)state;
    assert_int_equal(l.model.apart, RONDO_APART_STORES);
    c.apart_past = 20000;
    assert_int_equal(ranks_of(2, &c).model.apart, RONDO_APART_PAST);
    c.apart_over = 30000;
    assert_int_equal(ranks_of(2, &c).model.apart, RONDO_APART_OVER);
    c.apart_copy = 60000;
    assert_int_equal(ranks_of(2, &c).model.apart, RONDO_APART_COPY);
    assert_true(ranks_of(2, &c).model.apart_us == 0);
    l = ranks_of(2, NULL);
    assert_int_equal(l.model.apart, RONDO_APART_DEFAULT);
    rondo_model_host(&l.model, 2); /* ranks that share cores */
    rondo_model_calibrate(&l.model, &c);
    assert_int_equal(l.model.apart, RONDO_APART_DEFAULT);
    assert_int_equal(l.model.calibrated, 0);
}

/* The flag's time still counts, but the bandwidths were measured where the ranks are. */
static void far_cores_keep_measured_bandwidths(void **state)
{
    struct rondo_model m = { .base_us = 0 };
    double bw, us;
    (void)state;
    rondo_model_host(&m, 1);
    rondo_model_calibrate(&m, &near_cores);
    bw = m.pair_bw;
    us = m.mailbox_us;
    rondo_model_handover(&m, 500);
    assert_true(m.pair_bw == bw);
    assert_true(m.mailbox_us > 3 * us);
}

static void every_number_has_its_name(void **state)
{
    char text[1024];
    (void)state;
    rondo_calibration_text(&near_cores, text, sizeof(text));
    assert_non_null(strstr(text, "sum in place 13000 MB/s"));
    assert_non_null(strstr(text, "sched_yield 300 ns"));
    rondo_calibration_text(&(struct rondo_calibration){ .flag = 0 }, text, sizeof(text));
    assert_string_equal(text, "");
    for (size_t size = 1; size < 40; size++) { /* it fits any room */
        memset(text, 'x', sizeof(text));
        rondo_calibration_text(&near_cores, text, size);
        assert_true(strlen(text) < size && text[size] == 'x');
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_back),
        cmocka_unit_test(a_damaged_file_is_ignored),
        cmocka_unit_test(impossible_numbers_are_ignored),
        cmocka_unit_test(what_is_no_plain_file_of_the_user_is_ignored),
        cmocka_unit_test(no_home_is_no_error),
        cmocka_unit_test(the_key_says_which_cpu),
        cmocka_unit_test(many_write_at_once),
        cmocka_unit_test(measuring_changes_no_bits),
        cmocka_unit_test(bits_are_fixed_where_they_must_be),
        cmocka_unit_test(two_ranks_take_what_was_faster),
        cmocka_unit_test(the_way_to_store_is_the_fastest),
        cmocka_unit_test(far_cores_keep_measured_bandwidths),
        cmocka_unit_test(every_number_has_its_name),
    };
    rondo_log_mask = RONDO_LOG_NONE; /* ignored files are expected */
    return cmocka_run_group_tests(tests, begin, end);
}
