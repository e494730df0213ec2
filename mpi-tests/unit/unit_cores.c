/* base/cores.h: affinity, and cgroup quotas (v1 and v2) from trees made here. base/thread.h. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/cores.h"
#include "base/thread.h"
#include "file_tree.h"

static void version_2_quota_is_rounded_up(void **state)
{
    (void)state;
    tree_put("/job/cpu.max", "150000 100000\n");
    assert_int_equal(rondo_cores_quota("0::/job\n", tree), 2);
    tree_put("/job/cpu.max", "200000 100000\n");
    assert_int_equal(rondo_cores_quota("0::/job\n", tree), 2);
    tree_put("/job/cpu.max", "1000 100000\n");
    assert_int_equal(rondo_cores_quota("0::/job\n", tree), 1);
    tree_put("/job/cpu.max", "max 100000\n");
    assert_int_equal(rondo_cores_quota("0::/job\n", tree), 0);
}

static void the_smallest_quota_of_all_levels_applies(void **state)
{
    (void)state;
    tree_put("/a/b/c/cpu.max", "max 100000\n");
    tree_put("/a/b/cpu.max", "800000 100000\n");
    tree_put("/a/cpu.max", "300000 100000\n");
    assert_int_equal(rondo_cores_quota("0::/a/b/c\n", tree), 3);
    tree_put("/a/b/c/cpu.max", "50000 50000\n");
    assert_int_equal(rondo_cores_quota("0::/a/b/c\n", tree), 1);
}

/* In a container the path is the host's, but the mount's root is the container's cgroup. */
static void a_missing_path_falls_back_to_the_root(void **state)
{
    (void)state;
    tree_put("/cpu.max", "400000 100000\n");
    assert_int_equal(rondo_cores_quota("0::/docker/0123\n", tree), 4);
    assert_int_equal(rondo_cores_quota("0::/../../elsewhere\n", tree), 4);
    assert_int_equal(rondo_cores_quota("0::/\n", tree), 4);
}

static void version_1_quota_is_found_under_both_names(void **state)
{
    static const char text[] = "7:memory:/m\n4:cpu,cpuacct:/job\n3:cpuset:/s\n1:name=systemd:/\n0::/\n";
    (void)state;
    tree_put("/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n");
    tree_put("/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    assert_int_equal(rondo_cores_quota(text, tree), 3);
    tree_put("/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(rondo_cores_quota(text, tree), 0);
    tree_put("/cpu/job/cpu.cfs_quota_us", "100000\n");
    tree_put("/cpu/job/cpu.cfs_period_us", "100000\n");
    assert_int_equal(rondo_cores_quota("1:cpu:/job\n", tree), 1);
}

static void malformed_files_are_no_limit(void **state)
{
    static const char *const memberships[] = { "",      "\n\n",          "0",          "0:", "0::", "::::",
                                               "1:cpu", "0::relative\n", "9:cpuset:/x" };
    (void)state;
    tree_put("/x/cpu.max", "garbage\n");
    tree_put("/y/cpu.max", "5 0\n");
    tree_put("/z/cpu.max", "9223372036854775807 1\n");
    tree_put("/e/cpu.max", "");
    for (size_t i = 0; i < RONDO_COUNTOF(memberships); i++) {
        assert_int_equal(rondo_cores_quota(memberships[i], tree), 0);
    }
    assert_int_equal(rondo_cores_quota("0::/x\n0::/y\n0::/z\n0::/e\n", tree), 0);
}

static void allowed_cores_follow_the_threads_affinity(void **state)
{
    cpu_set_t all, one;
    struct rondo_cores cores;
    int count, last = -1;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    rondo_cores_allowed(&cores);
    count = rondo_cores_count(&cores);
    assert_in_range(count, 1, CPU_COUNT(&all));
    for (int core = 0; core < CPU_SETSIZE; core++) {
        last = CPU_ISSET(core, &all) ? core : last;
    }
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    rondo_cores_allowed(&cores);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(rondo_cores_count(&cores), 1);
    assert_true(cores.bits[last / 64] == UINT64_C(1) << last % 64);
}

static void sets_unite_and_count(void **state)
{
    struct rondo_cores a = { { 0 } }, b = { { 0 } };
    (void)state;
    a.bits[0] = 0xf;
    a.bits[15] = UINT64_C(1) << 63;
    b.bits[0] = 0x3c;
    rondo_cores_unite(&a, &b);
    assert_int_equal(rondo_cores_count(&a), 7);
    assert_int_equal(rondo_cores_count(&b), 4);
}

static void a_thread_is_bound_near_a_device(void **state)
{
    cpu_set_t all, one;
    struct rondo_cores cores, own, after;
    char path[64], text[32];
    int last = 0;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(rondo_cores_affinity(&own), 0);
    assert_int_equal(rondo_cores_count(&own), CPU_COUNT(&all));
    for (int core = 0; core < CPU_SETSIZE; core++) {
        last = CPU_ISSET(core, &all) ? core : last;
    }
    snprintf(text, sizeof text, "%d,1022-1023\n", last);
    tree_put("/device/local_cpulist", text);
    tree_put("/other/local_cpulist", "\n");
    snprintf(path, sizeof path, "%s/device", tree);
    assert_int_equal(rondo_cores_near(path, &cores), 1);
    assert_int_equal(rondo_cores_count(&cores), 3);
    rondo_cores_intersect(&cores, &own);
    assert_int_equal(rondo_cores_bind(&cores), 0);
    assert_int_equal(sched_getaffinity(0, sizeof one, &one), 0);
    rondo_cores_affinity(&after);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_true(CPU_COUNT(&one) == 1 && CPU_ISSET(last, &one));
    assert_memory_equal(&after, &cores, sizeof after);
    memset(&cores, 0, sizeof cores);
    assert_int_equal(rondo_cores_bind(&cores), -1);
    snprintf(path, sizeof path, "%s/other", tree);
    assert_int_equal(rondo_cores_near(path, &cores), 0);
    snprintf(path, sizeof path, "%s/none", tree);
    assert_int_equal(rondo_cores_near(path, &cores), 0);
    assert_int_equal(rondo_cores_count(&cores), 0);
}

static void a_thread_moves_to_another_core_and_keeps_its_affinity(void **state)
{
    cpu_set_t all, one, after;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    int here = sched_getcpu();
    if (CPU_COUNT(&all) > 1) {
        CPU_ZERO(&one);
        CPU_SET(here, &one);
        assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
        assert_int_equal(rondo_cores_move(-1), -1);
        assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    }
    assert_int_equal(rondo_cores_move(-1), CPU_COUNT(&all) > 1 ? 0 : -1);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&all, &after));
}

static void a_thread_moves_to_a_core_with_fewer_threads(void **state)
{
    static uint16_t nthreads[RONDO_MAX_CORES];
    cpu_set_t all, after;
    int first = -1, last = -1;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (int core = 0; core < RONDO_MAX_CORES; core++) {
        if (CPU_ISSET(core, &all)) {
            first = first < 0 ? core : first;
            last = core;
            nthreads[core] = 2;
        }
    }
    assert_int_equal(rondo_cores_emptier(nthreads, first), -1); /* even */
    nthreads[first] = 3;
    assert_int_equal(rondo_cores_emptier(nthreads, first), -1); /* the odd one */
    nthreads[last] = 1;
    nthreads[RONDO_MAX_CORES - 1] = nthreads[RONDO_MAX_CORES - 1] == 2 ? 2 : 0; /* may not be used */
    assert_int_equal(rondo_cores_emptier(nthreads, first), last == first ? -1 : last);
    nthreads[first] = 1;
    nthreads[last] = last == first ? 1 : 0;
    assert_int_equal(rondo_cores_emptier(nthreads, first), -1); /* alone there */
    if (last > first) {
        assert_int_equal(rondo_cores_move(last), 0);
        assert_int_equal(rondo_cores_move(first), 0);
        assert_int_equal(rondo_cores_move(CPU_ISSET(RONDO_MAX_CORES - 1, &all) ? -1 : RONDO_MAX_CORES - 1),
                         CPU_ISSET(RONDO_MAX_CORES - 1, &all) ? 0 : -1);
    }
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&all, &after));
}

static void the_nearest_level_with_a_cpuset_applies(void **state)
{
    (void)state;
    struct rondo_cores cores;
    tree_put("/cpuset.cpus.effective", "0-63\n");
    tree_put("/job/cpuset.cpus.effective", "0-3,8\n");
    tree_put("/job/step/cpu.max", "max 100000\n");
    assert_int_equal(rondo_cores_cpuset("0::/job/step\n", tree, &cores), 1);
    assert_int_equal(cores.bits[0], 0x10f);
    assert_int_equal(rondo_cores_cpuset("0::/elsewhere\n", tree, &cores), 1);
    assert_int_equal(rondo_cores_count(&cores), 64);
    tree_put("/job/cpuset.cpus.effective", "\n"); /* an empty list is none */
    assert_int_equal(rondo_cores_cpuset("0::/job/step\n", tree, &cores), 1);
    assert_int_equal(rondo_cores_count(&cores), 64);
    tree_put("/job/cpuset.cpus.effective", "1000-999999999\n");
    assert_int_equal(rondo_cores_cpuset("0::/job\n", tree, &cores), 1);
    assert_int_equal(rondo_cores_count(&cores), RONDO_MAX_CORES - 1000);
}

static void version_1_cpuset_is_found_under_both_names(void **state)
{
    (void)state;
    struct rondo_cores cores;
    tree_put("/cpuset/job/cpuset.cpus", "5,7\n");
    assert_int_equal(rondo_cores_cpuset("4:cpu,cpuacct:/other\n3:cpuset:/job\n", tree, &cores), 1);
    assert_int_equal(cores.bits[0], 0xa0);
    tree_put("/cpuset/job/cpuset.effective_cpus", "5\n");
    assert_int_equal(rondo_cores_cpuset("3:cpuset:/job\n", tree, &cores), 1);
    assert_int_equal(cores.bits[0], 0x20);
    assert_int_equal(rondo_cores_cpuset("4:cpu,cpuacct:/job\nnonsense\n", tree, &cores), 0);
}

/* Start this program from a shell bound to one core, and return how many cores it finds for its launcher. */
static int cores_of_launcher_through_a_shell(void)
{
    char self[4096] = "", answer[32] = "";
    int fd[2];
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        cpu_set_t set;
        int core = 0;
        sched_getaffinity(0, sizeof set, &set);
        while (!CPU_ISSET(core, &set)) {
            core++;
        }
        CPU_ZERO(&set);
        CPU_SET(core, &set);
        sched_setaffinity(0, sizeof set, &set);
        dup2(fd[1], STDOUT_FILENO);
        execl("/bin/sh", "sh", "-c", "\"$0\" launcher; exit $?", self, (char *)NULL);
        _exit(127);
    }
    close(fd[1]);
    assert_true(read(fd[0], answer, sizeof answer - 1) > 0);
    close(fd[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return atoi(answer);
}

static void launcher_cores_are_not_those_of_its_children(void **state)
{
    (void)state;
    struct rondo_cores mine;
    rondo_cores_allowed(&mine);
    assert_int_equal(cores_of_launcher_through_a_shell(), rondo_cores_count(&mine));
}

struct seen {
    int blocks_signals;
    size_t stack_bytes;
};

static void *look_at_itself(void *arg)
{
    struct seen *seen = arg;
    pthread_attr_t attr;
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    seen->blocks_signals = sigismember(&blocked, SIGINT) && sigismember(&blocked, SIGUSR1);
    pthread_getattr_np(pthread_self(), &attr);
    pthread_attr_getstacksize(&attr, &seen->stack_bytes);
    pthread_attr_destroy(&attr);
    return arg;
}

static void library_threads_leave_signals_to_the_program(void **state)
{
    struct seen seen = { 0 };
    pthread_t thread;
    sigset_t here;
    (void)state;
    assert_int_equal(rondo_thread_start(&thread, "rondo-test", look_at_itself, &seen), RONDO_SUCCESS);
    pthread_join(thread, NULL);
    assert_true(seen.blocks_signals);
    assert_true(seen.stack_bytes >= (size_t)8 << 20);
    pthread_sigmask(SIG_SETMASK, NULL, &here);
    assert_false(sigismember(&here, SIGINT));
}

#define TEST(name) cmocka_unit_test_teardown(name, tree_clean)

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "launcher") == 0) {
        struct rondo_cores cores;
        rondo_cores_launcher(&cores);
        printf("%d\n", rondo_cores_count(&cores));
        return 0;
    }
    const struct CMUnitTest tests[] = {
        TEST(version_2_quota_is_rounded_up),
        TEST(the_smallest_quota_of_all_levels_applies),
        TEST(a_missing_path_falls_back_to_the_root),
        TEST(version_1_quota_is_found_under_both_names),
        TEST(malformed_files_are_no_limit),
        TEST(the_nearest_level_with_a_cpuset_applies),
        TEST(version_1_cpuset_is_found_under_both_names),
        TEST(launcher_cores_are_not_those_of_its_children),
        TEST(allowed_cores_follow_the_threads_affinity),
        TEST(sets_unite_and_count),
        TEST(a_thread_is_bound_near_a_device),
        TEST(a_thread_moves_to_another_core_and_keeps_its_affinity),
        TEST(a_thread_moves_to_a_core_with_fewer_threads),
        TEST(library_threads_leave_signals_to_the_program),
    };
    return cmocka_run_group_tests(tests, tree_make, tree_remove);
}
