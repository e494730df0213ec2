/* PXN: conns that leave by a NIC through another GPU of the node (pxn_world.h). Where their slots are, what
 * the relay carries, and which ranks use no relay. */
#include "pxn_world.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/cores.h"
#include "faults.h"

static void slices_leave_from_the_gpu_next_to_the_nic(void **state)
{
    (void)state;
    run_it(pxn_new(0), body_through);
}

static void nics_that_take_no_gpu_memory_send_from_the_relays_segment(void **state)
{
    struct world *w;
    (void)state;
    set("RONDO_DMABUF_ENABLE", "0");
    w = pxn_new(0);
    shared->staged = 1;
    run_it(w, body_through);
    set("RONDO_DMABUF_ENABLE", NULL);
}

/* The NIC refuses after the sender has been promised its cell. One refused registration of the relay is
 * enough for all its conns. */
static void memory_that_the_nic_refuses_is_sent_from_the_segment(void **state)
{
    struct world *w = pxn_new(0);
    uint32_t mask = rondo_log_mask;
    (void)state;
    rondo_log_mask = RONDO_LOG_NONE;
    nic_of[TO].gdr = 0; /* so it registers nothing, and the relay's registration fails */
    fake.fail_dmabuf_in = 1;
    fake.fail_errno = EINVAL;
    shared->staged = 1;
    run_it(w, body_through);
    rondo_log_mask = mask;
}

static void late_and_busy_devices_lose_nothing(void **state)
{
    (void)state;
    needs_faults();
    set("RONDO_NET_FAULT", "seed=7,late=3,again=2,connect=5");
    run_it(pxn_new(0), body_through);
    set("RONDO_NET_FAULT", NULL);
}

/* ---- the relay's thread ---- */

/* @return the relay's thread of this process, found by its name; -1: there is none. */
static pid_t relay_thread(void)
{
    DIR *tasks = opendir("/proc/self/task");
    pid_t found = -1;
    CHECK(tasks != NULL);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[300], name[32] = "";
        FILE *file;
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
        file = fopen(path, "r");
        if (file != NULL && fgets(name, sizeof(name), file) != NULL && strcmp(name, "rondo-pxn\n") == 0) {
            found = (pid_t)atoi(task->d_name);
        }
        if (file != NULL) {
            fclose(file);
        }
    }
    closedir(tasks);
    return found;
}

static struct cores_case {
    const char *mode;
    int core, bound; /* core: the one near the NIC; -1: near_core, which this process may use */
} cores_case;
static int near_core;

/* Once slices have been sent, the relay's thread must be on its core. */
static void body_bound(struct world *w, struct rank *r)
{
    body_through(w, r);
    if (r->net.rank == RELAY) {
        cpu_set_t set;
        pid_t thread = relay_thread();
        CHECK(thread > 0 && sched_getaffinity(thread, sizeof(set), &set) == 0);
        CHECK((CPU_COUNT(&set) == 1 && CPU_ISSET(near_core, &set)) == cores_case.bound);
    }
}

/* Run with this directory as the NIC's in sysfs. */
static void run_near(const char *directory)
{
    char path[128];
    FILE *file;
    snprintf(path, sizeof(path), "%s/device/local_cpulist", directory);
    file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%d\n", cores_case.core < 0 ? near_core : cores_case.core);
    assert_int_equal(fclose(file), 0);
    fake_verbs_reset();
    snprintf(fake.nic[0].device.ibdev_path, sizeof(fake.nic[0].device.ibdev_path), "%s", directory);
    set("RONDO_PROXY_CORES", cores_case.mode);
    run_it(pxn_new(0), body_bound);
    assert_int_equal(remove(path), 0);
}

static void the_relays_thread_runs_near_its_nic(void **state)
{
    static const struct cores_case cases[] = {
        { "near", -1, 1 }, { "nic", -1, 1 }, { "any", -1, 0 }, { "near", RONDO_MAX_CORES - 1, 0 }
    };
    char directory[] = "/tmp/unit_transport_pxn.XXXXXX", path[64];
    struct rondo_cores own;
    (void)state;
    assert_int_equal(rondo_cores_affinity(&own), 0);
    if (rondo_cores_count(&own) < 2) {
        print_message("skipped: this process may run on one core only\n");
        skip();
    }
    for (near_core = 0; !(own.bits[near_core / 64] >> near_core % 64 & 1); near_core++) {
    }
    snprintf(path, sizeof(path), "%s/device", mkdtemp(directory));
    assert_int_equal(mkdir(path, 0755), 0);
    for (size_t i = 0; i < RONDO_COUNTOF(cases); i++) {
        cores_case = cases[i];
        run_near(directory);
    }
    set("RONDO_PROXY_CORES", NULL);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(directory), 0);
}

static void processes_send_through_the_gpu_of_another_process(void **state)
{
    static const char *const no_vmm[] = { "0", "1" };
    (void)state;
    for (int i = 0; i < 2; i++) {
        setenv("FAKE_CUDA_NO_VMM", no_vmm[i], 1);
        run_it_in_processes(body_through, -1);
    }
    unsetenv("FAKE_CUDA_NO_VMM");
}

/* A relay sends for others by its own NIC, even if the topology reaches that NIC through another GPU. */
static void a_relay_uses_its_own_nic(void **state)
{
    struct world *w = pxn_new(0);
    (void)state;
    nic_of[RELAY].relay = 1 + 1;
    run_it(w, body_through);
}

static void a_rank_without_relay_sends_by_itself(void **state)
{
    struct world *w;
    (void)state;
    w = pxn_new(0);
    shared->own[1] = shared->own[2] = 1;
    shared->offers = 0;
    run_it(w, body_through);
    w = pxn_new(0); /* the check finds the pair broken, so the relay's cells for it stay free */
    shared->own[1] = 1;
    gpus->way[1][RELAY] = RONDO_P2P_MODE_NONE;
    run_it(w, body_through);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(slices_leave_from_the_gpu_next_to_the_nic),
        TEST(nics_that_take_no_gpu_memory_send_from_the_relays_segment),
        TEST(memory_that_the_nic_refuses_is_sent_from_the_segment),
        TEST(late_and_busy_devices_lose_nothing),
        TEST(the_relays_thread_runs_near_its_nic),
        TEST(processes_send_through_the_gpu_of_another_process),
        TEST(a_relay_uses_its_own_nic),
        TEST(a_rank_without_relay_sends_by_itself),
    };
    setenv("FAKE_CUDA_DEVICES", "4", 1);
    choose_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
