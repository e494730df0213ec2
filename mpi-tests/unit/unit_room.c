/* base/room.h: a full host or cgroup is an error, and no process is killed. The limits are files made here;
 * with RONDO_TEST_CGROUP=DIR (a memory cgroup that may have children), also the kernel's. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/room.h"
#include "fake_ranks.h"
#include "file_tree.h"
#include "in_child.h"
#include "says.h"

enum { MIB = 1 << 20 };

static const char meminfo[] = "MemTotal:       16384000 kB\n"
                              "MemFree:          100000 kB\n"
                              "MemAvailable:    1024000 kB\n"
                              "SwapFree:          51200 kB\n";

static uint64_t room_now(struct rondo_room *room)
{
    rondo_room_find(tree, room);
    return room->bytes;
}

static void a_host_has_what_is_available_and_its_swap_space(void **state)
{
    struct rondo_room room;
    (void)state;
    assert_true(room_now(&room) == UINT64_MAX);
    tree_put("/proc/meminfo", "MemTotal: 5 kB\nMemAvailable: no\n");
    assert_true(room_now(&room) == UINT64_MAX);
    tree_put("/proc/meminfo", meminfo);
    assert_true(room_now(&room) == 1050ull * MIB);
    assert_false(room.is_cgroup);
    assert_string_equal(room.limit, "the host has 1050.0 MiB available");
}

static void version_2_has_the_least_of_all_levels(void **state)
{
    struct rondo_room room;
    (void)state;
    tree_put("/proc/meminfo", "MemAvailable: 1024000 kB\nSwapFree: 0 kB\n");
    tree_put("/proc/self/cgroup", "0::/slurm/job/step\n");
    tree_put("/sys/fs/cgroup/slurm/job/step/memory.max", "max\n");
    tree_put("/sys/fs/cgroup/slurm/job/step/memory.current", "104857600\n");
    assert_true(room_now(&room) == 1000ull * MIB);
    tree_put("/sys/fs/cgroup/slurm/memory.max", "314572800\n");
    tree_put("/sys/fs/cgroup/slurm/memory.current", "209715200\n");
    assert_true(room_now(&room) == 100ull * MIB);
    assert_true(room.is_cgroup);
    tree_put("/sys/fs/cgroup/slurm/job/memory.max", "115343360\n");
    tree_put("/sys/fs/cgroup/slurm/job/memory.current", "104857600\n");
    assert_true(room_now(&room) == 10ull * MIB);
    assert_true(strstr(room.limit, "/sys/fs/cgroup/slurm/job: 10.0 of 110.0 MiB left") != NULL);
    /* The kernel drops caches of files, but not shared memory, which "file" counts, too. */
    tree_put("/sys/fs/cgroup/slurm/job/memory.stat",
             "anon 4096\nfile 50000000\ninactive_anon 7\ninactive_file 4194304\nactive_file 1048576\n");
    assert_true(room_now(&room) == 15ull * MIB);
    tree_put("/sys/fs/cgroup/slurm/job/memory.current", "209715200\n"); /* over its limit */
    assert_true(room_now(&room) == 0);
}

static void swap_space_counts_as_far_as_the_group_may_use_it(void **state)
{
    struct rondo_room room;
    (void)state;
    tree_put("/proc/meminfo", meminfo); /* 50 MiB of swap */
    tree_put("/proc/self/cgroup", "0::/job\n");
    tree_put("/sys/fs/cgroup/job/memory.max", "20971520\n");
    tree_put("/sys/fs/cgroup/job/memory.current", "10485760\n");
    assert_true(room_now(&room) == 60ull * MIB);
    tree_put("/sys/fs/cgroup/job/memory.swap.max", "8388608\n");
    tree_put("/sys/fs/cgroup/job/memory.swap.current", "1048576\n");
    assert_true(room_now(&room) == 17ull * MIB);
    tree_put("/sys/fs/cgroup/job/memory.swap.max", "0\n");
    assert_true(room_now(&room) == 10ull * MIB);
}

static void version_1_has_the_least_of_all_levels(void **state)
{
    struct rondo_room room;
    (void)state;
    tree_put("/proc/meminfo", meminfo);
    tree_put("/proc/self/cgroup", "4:memory:/job/step\n3:cpuset:/\n0::/\n");
    tree_put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    tree_put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "8000000000\n");
    assert_true(room_now(&room) == 1050ull * MIB);
    tree_put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "41943040\n");
    tree_put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "31457280\n");
    assert_true(room_now(&room) == 60ull * MIB); /* 10 and the swap space */
    tree_put("/sys/fs/cgroup/memory/job/memory.memsw.limit_in_bytes", "41943040\n");
    tree_put("/sys/fs/cgroup/memory/job/memory.memsw.usage_in_bytes", "33554432\n");
    assert_true(room_now(&room) == 8ull * MIB);
    tree_put("/sys/fs/cgroup/memory/job/memory.stat", "total_inactive_file 2097152\ninactive_file 1\n");
    assert_true(room_now(&room) == 10ull * MIB);
    assert_true(strstr(room.limit, "/sys/fs/cgroup/memory/job: 10.0 of 40.0 MiB left") != NULL);
}

/* A host with room, and a group with 10 MiB. */
static void a_small_group(void)
{
    tree_put("/proc/meminfo", "MemAvailable: 1024000 kB\nSwapFree: 0 kB\n");
    tree_put("/proc/self/cgroup", "0::/job\n");
    tree_put("/sys/fs/cgroup/job/memory.max", "104857600\n");
    tree_put("/sys/fs/cgroup/job/memory.current", "94371840\n");
}

static void an_allocation_without_room_is_an_error(void **state)
{
    void *memory = NULL;
    (void)state;
    fake_params(NULL);
    a_small_group();
    rondo_room_set_root(tree);
    assert_int_equal(rondo_mem_alloc(&memory, 200 * MIB), RONDO_SYSTEM_ERROR);
    assert_null(memory);
    assert_says("cannot reserve 200.0 MiB of shared memory on host ");
    assert_says("/sys/fs/cgroup/job: 10.0 of 100.0 MiB left): ask for less, or raise that limit");
    assert_int_equal(rondo_mem_alloc(&memory, 10 * MIB), RONDO_SYSTEM_ERROR); /* and page tables */
    assert_int_equal(rondo_mem_alloc(&memory, 8 * MIB), RONDO_SUCCESS);
    memset(memory, 1, 8 * MIB);
    assert_int_equal(rondo_mem_free(memory), RONDO_SUCCESS);
    tree_put("/proc/meminfo", "MemAvailable: 4096 kB\nSwapFree: 0 kB\n");
    rondo_room_set_root(tree);
    assert_int_equal(rondo_mem_alloc(&memory, 8 * MIB), RONDO_SYSTEM_ERROR);
    assert_says("(the host has 4.0 MiB available): ask for less, or free memory on the host");
    rondo_room_set_root("");
}

static void create_without_room(struct fake_rank *r)
{
    rondo_comm *comm = NULL;
    FAKE_ERROR(r, rondo_comm_create_local(r->local, r->rank, NULL, &comm), RONDO_SYSTEM_ERROR,
               "/job: 0.5 of 100.0 MiB left): ");
    FAKE_CHECK(r, comm == NULL);
}

static void a_creation_without_room_is_the_same_error_on_all_ranks(void **state)
{
    (void)state;
    fake_params(NULL);
    a_small_group();
    tree_put("/sys/fs/cgroup/job/memory.current", "104333312\n");
    rondo_room_set_root(tree);
    fake_ranks_bare(3, create_without_room, NULL);
    rondo_room_set_root("");
}

/* ---- the kernel's limits ---- */

enum { LIMIT_MIB = 96, BLOCK_MIB = 16 };

static char parent[4000], group[4096]; /* parent: RONDO_TEST_CGROUP, which fake_params unsets; "": none */

static int group_put(const char *file, long number)
{
    char path[4200];
    FILE *out;
    int failed;
    snprintf(path, sizeof path, "%s/%s", group, file);
    out = fopen(path, "w");
    if (out == NULL) {
        return -1;
    }
    failed = fprintf(out, "%ld\n", number) < 0;
    return fclose(out) != 0 || failed ? -1 : 0;
}

/* Allocate until it is refused: then nearly all is in use. */
static int fill_the_group(void *arg)
{
    void *memory;
    int n = 0;
    (void)arg;
    if (group_put("cgroup.procs", (long)getpid()) != 0) {
        return SKIPPED;
    }
    if (rondo_mem_alloc(&memory, 1024l * MIB) != RONDO_SYSTEM_ERROR ||
        !fake_has(rondo_last_error(NULL), "MiB left): ask for less, or raise that limit")) {
        return 1;
    }
    while (n < 100 && rondo_mem_alloc(&memory, (size_t)BLOCK_MIB * MIB) == RONDO_SUCCESS) {
        memset(memory, 1, (size_t)BLOCK_MIB * MIB);
        n++;
    }
    return n >= 3 && n < LIMIT_MIB / BLOCK_MIB ? 0 : 2;
}

static void a_full_cgroup_is_an_error_and_not_the_end(void **state)
{
    int code = SKIPPED;
    (void)state;
    fake_params(NULL);
    snprintf(group, sizeof group, "%s/rondo-%d", parent, (int)getpid());
    if (parent[0] != '\0' && mkdir(group, 0700) == 0) {
        if (group_put("memory.max", (long)LIMIT_MIB * MIB) == 0 ||
            group_put("memory.limit_in_bytes", (long)LIMIT_MIB * MIB) == 0) {
            group_put("memory.swap.max", 0);
            code = in_child(fill_the_group, NULL);
        }
        assert_int_equal(rmdir(group), 0);
    }
    if (code == SKIPPED) {
        print_message("skipped: RONDO_TEST_CGROUP names no memory cgroup that may have children\n");
        skip();
    }
    assert_int_equal(code, 0);
}

#define TEST(name) cmocka_unit_test_teardown(name, tree_clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_host_has_what_is_available_and_its_swap_space),
        TEST(version_2_has_the_least_of_all_levels),
        TEST(swap_space_counts_as_far_as_the_group_may_use_it),
        TEST(version_1_has_the_least_of_all_levels),
        TEST(an_allocation_without_room_is_an_error),
        TEST(a_creation_without_room_is_the_same_error_on_all_ranks),
        TEST(a_full_cgroup_is_an_error_and_not_the_end),
    };
    const char *given = getenv("RONDO_TEST_CGROUP");
    snprintf(parent, sizeof parent, "%s", given != NULL ? given : "");
    fake_watchdog(120);
    return cmocka_run_group_tests(tests, tree_make, tree_remove);
}
