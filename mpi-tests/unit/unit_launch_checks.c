/* init/launcher.h and init/launch_checks.h, on made-up environments and peer records. Nothing is read from
 * this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/mem.h"
#include "init/launch_checks.h"

enum { MAX_RANKS = 1000 };

static const char *const variables[] = {
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMI_SIZE",
    "PMI_RANK",
    "MPI_LOCALNRANKS",
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_NODEID",
    "SLURM_STEP_TASKS_PER_NODE",
};

static struct rondo_peer *peers;
static struct rondo_peer_parts parts[MAX_RANKS]; /* of the peers */
static struct rondo_launch_scene scene;
static struct rondo_launch_view view;
static int32_t gone;      /* the process that does not exist */
static int32_t reachable; /* the process whose probe can be opened */
static int probes;        /* how many were opened */
static char text[RONDO_ERROR_TEXT * 2];

static int has_process(int32_t pid) { return pid != gone; }
static int can_open(const struct rondo_peer *peer)
{
    probes++;
    return peer->pid == reachable;
}

static int setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(variables); i++) {
        unsetenv(variables[i]);
    }
    gone = reachable = -1;
    probes = 0;
    memset(&scene, 0, sizeof scene);
    memset(parts, 0, sizeof parts);
    scene.launcher.task = -1;
    scene.has_process = has_process;
    scene.can_open = can_open;
    return RONDO_NEW_ARRAY(peers, MAX_RANKS, "peers") == RONDO_SUCCESS ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    rondo_free(peers);
    return 0;
}

/* Ranks in blocks on hosts n0, n1, ..., each bound to its own core. */
static void job(int nhosts, int per_host)
{
    scene.peers = peers;
    scene.nranks = nhosts * per_host;
    for (int r = 0; r < scene.nranks; r++) {
        struct rondo_peer *peer = &peers[r];
        int host = r / per_host;
        snprintf(parts[r].host, sizeof parts[r].host, "n%d", host);
        peer->host = parts[r].host;
        peer->cores = &parts[r].cores;
        peer->rank = r;
        peer->pid = 1000 + r;
        peer->host_hash = 77 + (uint64_t)host;
        peer->shm_dev = 28;
        peer->pidns = 42;
        peer->process_hash = (uint64_t)(r * 31 + 1);
        parts[r].cores.bits[0] = UINT64_C(1) << r % per_host;
    }
    scene.launcher_cores.bits[0] = 0xff;
}

static int warns(enum rondo_launch_check check)
{
    text[0] = '\0';
    return rondo_launch_check_text(&scene, &view, check, text, RONDO_ERROR_TEXT);
}

/* Inspect as a rank: the check `expected` fails and no other; RONDO_NUM_LAUNCH_CHECKS: none fails. */
static void inspect(int rank, enum rondo_launch_check expected)
{
    scene.rank = rank;
    rondo_launch_look(&scene, &view);
    for (int i = 0; i < RONDO_NUM_LAUNCH_CHECKS; i++) {
        if (warns((enum rondo_launch_check)i) != (i == (int)expected)) {
            fail_msg("rank %d, check %d: \"%s\"", rank, i, text);
        }
    }
    if (expected < RONDO_NUM_LAUNCH_CHECKS) {
        warns(expected);
    }
}

#define assert_text(part)                                 \
    do {                                                  \
        if (!strstr(text, part)) {                        \
            fail_msg("\"%s\" is not in: %s", part, text); \
        }                                                 \
    } while (0)

/* ---- the launcher ---- */

static void without_a_launcher_all_is_unknown(void **state)
{
    (void)state;
    struct rondo_launcher launcher;
    setenv("SLURM_NTASKS", "4", 1); /* a batch script: no task has been launched */
    rondo_launcher_read(&launcher);
    assert_null(launcher.name);
    assert_int_equal(launcher.tasks, 0);
    assert_int_equal(launcher.task, -1);
    assert_int_equal(launcher.local_tasks, 0);
}

static void variables_of_mpirun_win_over_those_of_slurm(void **state)
{
    (void)state;
    struct rondo_launcher launcher;
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "2", 1); /* mpirun's daemons */
    setenv("SLURM_PROCID", "1", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "16", 1);
    setenv("OMPI_COMM_WORLD_RANK", "9", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "8", 1);
    rondo_launcher_read(&launcher);
    assert_string_equal(launcher.name, "mpirun");
    assert_int_equal(launcher.tasks, 16);
    assert_int_equal(launcher.task, 9);
    assert_int_equal(launcher.local_tasks, 8);
}

static void hydra_is_distinguished_from_srun_with_pmi2(void **state)
{
    (void)state;
    struct rondo_launcher launcher;
    setenv("PMI_SIZE", "6", 1);
    setenv("PMI_RANK", "5", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "3", 1);
    rondo_launcher_read(&launcher);
    assert_string_equal(launcher.name, "srun");
    assert_int_equal(launcher.tasks, 3);
    setenv("MPI_LOCALNRANKS", "2", 1); /* hydra's proxies are tasks of srun */
    rondo_launcher_read(&launcher);
    assert_string_equal(launcher.name, "mpiexec");
    assert_int_equal(launcher.tasks, 6);
    assert_int_equal(launcher.task, 5);
    assert_int_equal(launcher.local_tasks, 2);
    unsetenv("SLURM_STEP_ID");
    unsetenv("MPI_LOCALNRANKS");
    rondo_launcher_read(&launcher);
    assert_string_equal(launcher.name, "mpiexec");
    assert_int_equal(launcher.tasks, 6);
}

static void srun_gives_the_tasks_of_the_step_and_of_the_node(void **state)
{
    (void)state;
    struct rondo_launcher launcher;
    setenv("SLURM_STEP_ID", "3", 1);
    setenv("SLURM_NTASKS", "5", 1);
    setenv("SLURM_PROCID", "4", 1);
    setenv("SLURM_NODEID", "2", 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", "2(x2),1", 1);
    rondo_launcher_read(&launcher);
    assert_string_equal(launcher.name, "srun");
    assert_int_equal(launcher.tasks, 5);
    assert_int_equal(launcher.task, 4);
    assert_int_equal(launcher.local_tasks, 1);
    setenv("SLURM_NTASKS", "many", 1);
    setenv("SLURM_PROCID", "-3", 1);
    unsetenv("SLURM_NODEID");
    rondo_launcher_read(&launcher);
    assert_int_equal(launcher.tasks, 0);
    assert_int_equal(launcher.task, -1);
    assert_int_equal(launcher.local_tasks, 0);
}

static void slurm_task_lists_are_parsed(void **state)
{
    (void)state;
    static const struct {
        const char *list;
        int node, tasks;
    } rows[] = {
        { "4", 0, 4 },         { "4", 1, 0 },       { "4(x3)", 2, 4 },
        { "4(x3)", 3, 0 },     { "2(x3),1", 3, 1 }, { "1,2,3(x2)", 1, 2 },
        { "1,2,3(x2)", 3, 3 }, { "", 0, 0 },        { "x", 0, 0 },
        { "4(x", 0, 0 },       { "4(x0)", 0, 0 },   { "4(x3", 1, 0 },
        { "-1", 0, 0 },        { "4,", 1, 0 },      { "1(x2147483647),2(x9)", 2147483647, 0 },
    };
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        if (rondo_launcher_slurm_tasks(rows[i].list, rows[i].node) != rows[i].tasks) {
            fail_msg("tasks of node %d in \"%s\"", rows[i].node, rows[i].list);
        }
    }
}

/* ---- checks ---- */

static void a_correct_job_passes_every_check(void **state)
{
    (void)state;
    job(3, 4);
    scene.launcher = (struct rondo_launcher){ "srun", "srun --cpu-bind=none", 12, 0, 4 };
    for (int r = 0; r < 12; r++) {
        inspect(r, RONDO_NUM_LAUNCH_CHECKS);
        assert_int_equal(view.leads, r % 4 == 0);
    }
    assert_int_equal(probes, 3); /* the first rank of each later host, and no other */
}

static void ranks_bound_to_one_core_get_advice_to_unbind(void **state)
{
    (void)state;
    job(2, 4);
    scene.launcher.unbind = "mpirun --bind-to none";
    for (int r = 4; r < 8; r++) {
        parts[r].cores.bits[0] = 8;
    }
    inspect(0, RONDO_NUM_LAUNCH_CHECKS);
    inspect(4, RONDO_LAUNCH_CORES);
    assert_text("the 4 ranks on n1 are bound to 1 core, though their launcher may use 8");
    assert_text("mpirun --bind-to none");
    inspect(5, RONDO_NUM_LAUNCH_CHECKS);
    /* Two of them share a core. */
    parts[5].cores.bits[0] = 1;
    parts[6].cores.bits[0] = 2;
    inspect(4, RONDO_LAUNCH_CORES);
    assert_text("bound to 3 cores");
    scene.launcher.unbind = NULL;
    inspect(4, RONDO_LAUNCH_CORES);
    assert_text("--cpu-bind=none");
}

static void no_warning_when_the_launcher_has_no_more_cores(void **state)
{
    (void)state;
    job(1, 4);
    for (int r = 0; r < 4; r++) {
        parts[r].cores.bits[0] = 3;
    }
    scene.launcher_cores.bits[0] = 3;
    inspect(0, RONDO_NUM_LAUNCH_CHECKS);
    memset(&scene.launcher_cores, 0, sizeof scene.launcher_cores); /* unknown */
    inspect(0, RONDO_NUM_LAUNCH_CHECKS);
    scene.launcher_cores.bits[0] = 0xff;
    inspect(0, RONDO_LAUNCH_CORES);
    for (int r = 0; r < 4; r++) { /* threads of one process: no launcher bound them */
        peers[r].process_hash = 5;
    }
    inspect(0, RONDO_NUM_LAUNCH_CHECKS);
}

static void a_record_of_a_process_that_does_not_exist_is_reported(void **state)
{
    (void)state;
    job(2, 2);
    gone = peers[3].pid;
    inspect(0, RONDO_NUM_LAUNCH_CHECKS);
    inspect(2, RONDO_LAUNCH_STRANGER);
    assert_text("rank 3 on n1 claims to be process 1003 on the host of rank 2, n1");
    assert_text("boot id");
    assert_text("its own RONDO_HOSTID");
    scene.has_hostid = 1;
    inspect(2, RONDO_LAUNCH_STRANGER);
    assert_text("the same identity (RONDO_HOSTID)");
    peers[2].pidns = peers[3].pidns = 0; /* an unknown pid namespace: pids cannot be compared */
    inspect(2, RONDO_NUM_LAUNCH_CHECKS);
}

static void more_processes_on_a_host_than_were_launched_are_reported(void **state)
{
    (void)state;
    job(1, 4);
    scene.launcher = (struct rondo_launcher){ "srun", "", 4, 0, 2 };
    inspect(0, RONDO_LAUNCH_NODES);
    assert_text("srun started 2 processes on the node of rank 0, but 4 processes claim");
    assert_text("host n0");
    assert_text("RONDO_HOSTID");
    assert_text("OMPI_MCA_btl=self,tcp");
    inspect(1, RONDO_NUM_LAUNCH_CHECKS);
    peers[1].process_hash = peers[0].process_hash; /* ranks as threads: two processes */
    peers[3].process_hash = peers[2].process_hash;
    inspect(0, RONDO_NUM_LAUNCH_CHECKS);
    scene.launcher.local_tasks = 1;
    inspect(0, RONDO_LAUNCH_NODES);
    assert_text("srun started 1 process on");
    scene.launcher.tasks = 1; /* which started the ranks, as torchrun does */
    inspect(0, RONDO_NUM_LAUNCH_CHECKS);
    scene.launcher.tasks = 4;
    inspect(0, RONDO_LAUNCH_NODES);
    scene.has_hostid = 1;
    inspect(0, RONDO_NUM_LAUNCH_CHECKS);
}

static void a_warning_names_the_namespace_that_divides_a_host(void **state)
{
    (void)state;
    job(4, 2);
    for (int r = 0; r < 8; r++) {
        peers[r].host_hash = 9 + (r < 2);
        peers[r].shm_dev = 20 + (uint64_t)(r / 2);
        peers[r].host = "same";
    }
    inspect(0, RONDO_NUM_LAUNCH_CHECKS);
    inspect(2, RONDO_LAUNCH_DIVIDED);
    assert_text("rank 2 on same and rank 4 on same have the same host identity (name and boot id), but "
                "different /dev/shm: ");
    assert_text("--ipc=host --pid=host");
    inspect(4, RONDO_NUM_LAUNCH_CHECKS); /* one warning a host is enough */
    inspect(6, RONDO_NUM_LAUNCH_CHECKS);
    peers[4].pidns++;
    peers[5].pidns++;
    inspect(2, RONDO_LAUNCH_DIVIDED);
    assert_text("but different /dev/shm and pid namespaces: ");
    peers[4].shm_dev = peers[5].shm_dev = peers[2].shm_dev;
    scene.has_hostid = 1;
    inspect(2, RONDO_LAUNCH_DIVIDED);
    assert_text("identity (RONDO_HOSTID), but different pid namespaces: ");
}

static void two_identities_of_one_machine_are_reported(void **state)
{
    (void)state;
    job(3, 2);
    reachable = peers[4].pid;
    inspect(0, RONDO_LAUNCH_TWINS);
    assert_text("rank 0 on n0 and rank 4 on n2 have different host identities");
    assert_text("the same RONDO_HOSTID");
    inspect(2, RONDO_LAUNCH_TWINS);
    assert_text("rank 2 on n1 and rank 4 on n2");
    inspect(4, RONDO_NUM_LAUNCH_CHECKS);
    inspect(1, RONDO_NUM_LAUNCH_CHECKS);
    scene.has_hostid = 1; /* the user chose these nodes */
    inspect(0, RONDO_NUM_LAUNCH_CHECKS);
    scene.has_hostid = 0;
    probes = 0;
    peers[4].shm_dev++;
    inspect(0, RONDO_NUM_LAUNCH_CHECKS);
    assert_int_equal(probes, 1); /* that of n1 */
}

static void at_most_64_hosts_are_probed(void **state)
{
    (void)state;
    job(250, 4);
    inspect(0, RONDO_NUM_LAUNCH_CHECKS);
    assert_int_equal(probes, 64);
    probes = 0;
    inspect(996, RONDO_NUM_LAUNCH_CHECKS);
    assert_int_equal(probes, 0);
}

static void the_longest_warnings_are_not_truncated(void **state)
{
    (void)state;
    job(1, 4);
    for (int r = 0; r < 4; r++) {
        memset(parts[r].host, 'h', sizeof parts[r].host); /* without a terminator */
        peers[r].pid = INT32_MAX;
        parts[r].cores.bits[0] = 1;
    }
    scene.launcher = (struct rondo_launcher){ "mpiexec", NULL, 4, 0, 2 };
    scene.rank = 0;
    rondo_launch_look(&scene, &view);
    view.stranger = view.divided = view.twin = 3;
    peers[3].shm_dev++;
    peers[3].pidns++;
    for (int i = 0; i < RONDO_NUM_LAUNCH_CHECKS; i++) {
        assert_true(rondo_launch_check_text(&scene, &view, (enum rondo_launch_check)i, text, sizeof text));
        assert_in_range(strlen(text), 100, RONDO_ERROR_TEXT - 1);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_a_launcher_all_is_unknown),
        TEST(variables_of_mpirun_win_over_those_of_slurm),
        TEST(hydra_is_distinguished_from_srun_with_pmi2),
        TEST(srun_gives_the_tasks_of_the_step_and_of_the_node),
        TEST(slurm_task_lists_are_parsed),
        TEST(a_correct_job_passes_every_check),
        TEST(ranks_bound_to_one_core_get_advice_to_unbind),
        TEST(no_warning_when_the_launcher_has_no_more_cores),
        TEST(a_record_of_a_process_that_does_not_exist_is_reported),
        TEST(more_processes_on_a_host_than_were_launched_are_reported),
        TEST(a_warning_names_the_namespace_that_divides_a_host),
        TEST(two_identities_of_one_machine_are_reported),
        TEST(at_most_64_hosts_are_probed),
        TEST(the_longest_warnings_are_not_truncated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
