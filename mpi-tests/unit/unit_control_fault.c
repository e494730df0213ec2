/*
 * The control plane when ranks are processes that die, stop or leave. The test's own process is rank 0; it
 * forks the others before any control thread exists. Children play their role, write what they find into a
 * shared page, and end by _exit.
 */
#include "control_world.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/param.h"
#include "net/bootstrap/bootstrap.h"

struct shared {
    struct rondo_shm_name name;
    _Atomic int named, attached, started, go;
    struct {
        _Atomic int done; /* set last */
        rondo_status status;
        int rank;
        int64_t noticed_ns;
        char text[RONDO_ERROR_TEXT];
    } found[WORLD_MAX];
};

struct scene {
    struct world world;
    struct shared *shared;
    pid_t pid[WORLD_MAX];
    struct rondo_control *control; /* rank 0's, in this process */
};

/* What a child does after all have started. When it returns, the child calls _exit(0) without leaving. */
typedef void (*role)(struct rondo_control *control, struct shared *shared);

static void child_main(struct scene *scene, int rank, role body)
{
    struct shared *shared = scene->shared;
    struct rondo_control_config config = world_config(&scene->world, rank);
    struct rondo_control *control;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (rank == 0 || rondo_param_reload() != RONDO_SUCCESS) {
        _exit(1);
    }
    WAIT_FOR(atomic_load(&shared->named));
    if (rondo_control_attach(&control, &config, &shared->name) != RONDO_SUCCESS) {
        _exit(2);
    }
    atomic_fetch_add(&shared->attached, 1);
    WAIT_FOR(atomic_load(&shared->attached) == scene->world.nranks);
    if (rondo_control_start(control) != RONDO_SUCCESS) {
        _exit(3);
    }
    atomic_fetch_add(&shared->started, 1);
    body(control, shared);
    _exit(0);
}

/* before: called in each process with its rank, to set its environment; may be NULL. */
static void scene_open(struct scene *scene, int nranks, const role *roles, void (*before)(int rank))
{
    struct rondo_control_config config;
    memset(scene, 0, sizeof(*scene));
    world_init(&scene->world, nranks, 1);
    scene->shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                         0);
    assert_true(scene->shared != MAP_FAILED);
    fflush(NULL);
    for (int i = 1; i < nranks; i++) {
        scene->pid[i] = fork();
        assert_true(scene->pid[i] >= 0);
        if (scene->pid[i] == 0) {
            if (before) {
                before(i);
            }
            child_main(scene, i, roles[i]);
        }
    }
    if (before) {
        before(0);
    }
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    config = world_config(&scene->world, 0);
    assert_int_equal(rondo_control_create(&scene->control, &config, &scene->shared->name), RONDO_SUCCESS);
    atomic_store(&scene->shared->named, 1);
    atomic_fetch_add(&scene->shared->attached, 1);
    WAIT_FOR(atomic_load(&scene->shared->attached) == nranks);
    assert_int_equal(rondo_control_start(scene->control), RONDO_SUCCESS);
    atomic_fetch_add(&scene->shared->started, 1);
    WAIT_FOR(atomic_load(&scene->shared->started) == nranks);
    assert_int_equal(atomic_load(&scene->shared->started), nranks);
}

static void scene_close(struct scene *scene)
{
    rondo_control_close(scene->control);
    for (int i = 1; i < scene->world.nranks; i++) {
        kill(scene->pid[i], SIGKILL);
        waitpid(scene->pid[i], NULL, 0);
    }
    munmap(scene->shared, sizeof(struct shared));
    unsetenv("RONDO_HEARTBEAT");
    unsetenv("RONDO_DEAD_AFTER");
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
}

/* ---- roles ---- */

static void find(struct rondo_control *control, struct shared *shared)
{
    WAIT_FOR(rondo_control_aborted(control));
    shared->found[control->rank].noticed_ns = rondo_now_ns();
    shared->found[control->rank].status = rondo_control_reason(control, shared->found[control->rank].text,
                                                               &shared->found[control->rank].rank);
    atomic_store(&shared->found[control->rank].done, 1);
}

static void watch_until_ended(struct rondo_control *control, struct shared *shared)
{
    find(control, shared);
    rondo_control_leave(control);
    rondo_control_close(control);
}

/* Look only from waiting threads, and very often: nothing may break. */
static void progress_until_ended(struct rondo_control *control, struct shared *shared)
{
    WAIT_FOR(rondo_control_progress(control, NULL) != RONDO_SUCCESS || rondo_control_aborted(control));
    watch_until_ended(control, shared);
}

static void call_and_hang(struct rondo_control *control, struct shared *shared)
{
    for (uint64_t seq = 1; seq <= 17; seq++) {
        struct rondo_call call = { .seq = seq, .count = 1024 };
        rondo_control_call_begin(control, &call);
        if (seq < 17) {
            rondo_control_call_end(control, seq);
        }
    }
    atomic_store(&shared->go, 1);
    watch_until_ended(control, shared); /* a stopped rank that resumes finds the reason too */
}

static void exit_at_once(struct rondo_control *control, struct shared *shared)
{
    (void)control;
    (void)shared;
}

static void leave_and_exit(struct rondo_control *control, struct shared *shared)
{
    (void)shared;
    rondo_control_leave(control);
    rondo_control_close(control);
}

/* ---- tests ---- */

/* Check that rank 0 and all of `others` know that rank `dead` is at fault, and clear what they found. */
static void check_found(struct scene *scene, int nranks, int dead, int64_t since_ns)
{
    char pid[32];
    find(scene->control, scene->shared);
    snprintf(pid, sizeof(pid), "(pid %d on host thishost)", (int)scene->pid[dead]);
    for (int i = 0; i < nranks; i++) {
        if (i == dead) {
            continue;
        }
        WAIT_FOR(atomic_load(&scene->shared->found[i].done));
        assert_int_equal(atomic_load(&scene->shared->found[i].done), 1);
        assert_int_equal(scene->shared->found[i].status, RONDO_REMOTE_ERROR);
        assert_int_equal(scene->shared->found[i].rank, dead);
        assert_non_null(strstr(scene->shared->found[i].text, pid));
        assert_string_equal(scene->shared->found[i].text, scene->shared->found[0].text);
    }
    print_message("rank 0 noticed after %.1f ms: %s\n",
                  (double)(scene->shared->found[0].noticed_ns - since_ns) / 1e6,
                  scene->shared->found[0].text);
}

static void a_killed_rank_is_named_on_all_others(void **state)
{
    const role roles[4] = { NULL, watch_until_ended, progress_until_ended, call_and_hang };
    struct scene scene;
    int64_t start;
    int fds = count_fds();
    (void)state;
    scene_open(&scene, 4, roles, NULL);
    WAIT_FOR(atomic_load(&scene.shared->go));
    start = rondo_now_ns();
    kill(scene.pid[3], SIGKILL);
    check_found(&scene, 4, 3, start);
    assert_non_null(strstr(scene.shared->found[0].text, "rank 3 "));
    assert_non_null(strstr(scene.shared->found[0].text, "exited without destroying its communicator"));
    assert_non_null(strstr(scene.shared->found[0].text, "last call: all_reduce #17 of 1024 (under way)"));
    /* Another rank may have set the reason; this process's own watcher sees the death a moment later. */
    WAIT_FOR(rondo_control_state_of(scene.control, 3) == RONDO_RANK_DEAD);
    assert_int_equal(rondo_control_state_of(scene.control, 3), RONDO_RANK_DEAD);
    assert_int_equal(rondo_control_send(scene.control, 3, 1, "x", 1), RONDO_REMOTE_ERROR);
    scene_close(&scene);
    assert_int_equal(count_fds(), fds);
}

static void a_rank_that_exits_without_destroy_is_a_fault(void **state)
{
    const role roles[3] = { NULL, watch_until_ended, exit_at_once };
    struct scene scene;
    siginfo_t info;
    (void)state;
    scene_open(&scene, 3, roles, NULL);
    assert_int_equal(waitid(P_PID, (id_t)scene.pid[2], &info, WEXITED | WNOWAIT), 0);
    check_found(&scene, 3, 2, rondo_now_ns());
    assert_non_null(strstr(scene.shared->found[0].text, "it had made no call yet"));
    scene_close(&scene);
}

static void a_rank_that_leaves_and_exits_is_no_fault(void **state)
{
    const role roles[3] = { NULL, watch_until_ended, leave_and_exit };
    struct scene scene;
    int status;
    (void)state;
    scene_open(&scene, 3, roles, NULL);
    assert_int_equal(waitpid(scene.pid[2], &status, 0), scene.pid[2]);
    scene.pid[2] = fork(); /* a process for scene_close to end */
    if (scene.pid[2] == 0) {
        _exit(0);
    }
    for (int i = 0; i < 20; i++) {
        rondo_control_look(scene.control);
        assert_int_equal(rondo_control_aborted(scene.control), 0);
    }
    assert_int_equal(rondo_control_state_of(scene.control, 2), RONDO_RANK_LEFT);
    assert_int_equal(rondo_control_state_of(scene.control, 1), RONDO_RANK_ALIVE);
    kill(scene.pid[1], SIGKILL); /* the watcher still watches the others */
    find(scene.control, scene.shared);
    assert_int_equal(scene.shared->found[0].rank, 1);
    scene_close(&scene);
}

static void quick_beats(int rank)
{
    (void)rank;
    setenv("RONDO_HEARTBEAT", "50ms", 1);
    setenv("RONDO_DEAD_AFTER", "3s", 1); /* far longer than this machine keeps a thread from running */
}

static uint64_t beat_of(const struct scene *scene, int rank)
{
    return atomic_load(&scene->control->blocks[rank].life.beat);
}

static void wait_beats(const struct scene *scene, int rank, uint64_t n)
{
    uint64_t first = beat_of(scene, rank);
    WAIT_FOR(beat_of(scene, rank) >= first + n);
    assert_true(beat_of(scene, rank) >= first + n);
}

static void stop_and_see(pid_t pid)
{
    int status;
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
}

static void a_stopped_rank_is_unresponsive_and_learns_it_when_it_resumes(void **state)
{
    const role roles[3] = { NULL, watch_until_ended, call_and_hang };
    struct scene scene;
    int64_t start;
    (void)state;
    scene_open(&scene, 3, roles, quick_beats);
    WAIT_FOR(atomic_load(&scene.shared->go));
    stop_and_see(scene.pid[2]);
    wait_beats(&scene, 0, 4); /* 200 ms: far below the limit */
    assert_int_equal(rondo_control_aborted(scene.control), 0);
    kill(scene.pid[2], SIGCONT);
    wait_beats(&scene, 2, 4);
    wait_beats(&scene, 0, 4);
    assert_int_equal(rondo_control_aborted(scene.control), 0);
    start = rondo_now_ns();
    stop_and_see(scene.pid[2]);
    check_found(&scene, 3, 2, start);
    assert_non_null(strstr(scene.shared->found[0].text, "rank 2 "));
    assert_in_range(silence_in(scene.shared->found[0].text), 3000, 1000000); /* not before the limit */
    assert_non_null(strstr(scene.shared->found[0].text, "last call: all_reduce #17"));
    kill(scene.pid[2], SIGCONT);
    WAIT_FOR(atomic_load(&scene.shared->found[2].done));
    assert_int_equal(scene.shared->found[2].rank, 2);
    assert_int_equal(scene.shared->found[2].status, RONDO_REMOTE_ERROR);
    scene_close(&scene);
}

static void only_rank_1_judges_beats(int rank)
{
    setenv("RONDO_HEARTBEAT", "50ms", 1);
    setenv("RONDO_DEAD_AFTER", rank == 1 ? "5s" : "0", 1); /* as with quick_beats, and two waits for beats */
}

/* Both are stopped (a frozen container), and the watcher resumes first: it must not count its own pause
 * against the other. */
static void a_watcher_that_was_stopped_accuses_nobody(void **state)
{
    const role roles[3] = { NULL, watch_until_ended, watch_until_ended };
    struct scene scene;
    int64_t start;
    (void)state;
    scene_open(&scene, 3, roles, only_rank_1_judges_beats);
    wait_beats(&scene, 1, 2);
    wait_beats(&scene, 2, 2);
    stop_and_see(scene.pid[2]);
    wait_beats(&scene, 1, 2); /* rank 1 has seen rank 2's last beat */
    stop_and_see(scene.pid[1]);
    start = rondo_now_ns();
    WAIT_FOR(rondo_now_ns() - start > 5500000000);
    kill(scene.pid[1], SIGCONT);
    wait_beats(&scene, 1, 3);
    kill(scene.pid[2], SIGCONT);
    wait_beats(&scene, 2, 3);
    wait_beats(&scene, 1, 3);
    assert_int_equal(rondo_control_aborted(scene.control), 0);
    scene_close(&scene);
}

/* Simulate a kernel, or container, without pidfd_open. @return 0: not possible here. */
static int forbid_pidfd(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { .len = RONDO_COUNTOF(filter), .filter = filter };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 &&
           syscall(SYS_pidfd_open, getpid(), 0) < 0 && errno == ENOSYS;
}

enum { EXIT_SKIPPED = 77 };

static void run_without_pidfd(void)
{
    const role roles[3] = { NULL, watch_until_ended, call_and_hang };
    struct scene scene;
    if (!forbid_pidfd()) {
        _exit(EXIT_SKIPPED);
    }
    scene_open(&scene, 3, roles, NULL); /* the filter is inherited */
    WAIT_FOR(atomic_load(&scene.shared->go));
    kill(scene.pid[2], SIGKILL); /* it stays a zombie: nobody waits for it yet */
    find(scene.control, scene.shared);
    _exit(scene.shared->found[0].status == RONDO_REMOTE_ERROR && scene.shared->found[0].rank == 2 &&
                  strstr(scene.shared->found[0].text, "exited without destroying") /* not: unresponsive */
              ? 0
              : 1);
}

static void a_killed_rank_is_noticed_without_pidfd(void **state)
{
    int status, code;
    pid_t pid;
    (void)state;
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        run_without_pidfd();
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == EXIT_SKIPPED) {
        print_message("skipped: no seccomp filter can be set here\n");
        skip();
    }
    assert_int_equal(code, 0);
}

/* ---- children of a communicator with dead ranks ---- */

static rondo_status gather_ranks(struct rondo_control *control, const int *members, int n, uint64_t tag)
{
    struct rondo_bootstrap *b;
    int self = 0, mine[500] = { control->rank }, all[500 * WORLD_MAX];
    int64_t end = rondo_now_ns() + DEADLINE_NS;
    rondo_status status;
    while (members[self] != control->rank) {
        self++;
    }
    RONDO_TRY(rondo_bootstrap_control(control, members, n, self, tag, 1, &b));
    status = b->ops->allgather_start(b, mine, all, sizeof(mine));
    while (status == RONDO_SUCCESS && (status = b->ops->test(b)) == RONDO_IN_PROGRESS &&
           rondo_now_ns() < end) {
        status = RONDO_SUCCESS;
        sched_yield();
    }
    for (int i = 0; i < n && status == RONDO_SUCCESS; i++) {
        status = all[500 * i] == members[i] ? RONDO_SUCCESS : RONDO_INTERNAL_ERROR;
    }
    b->ops->close(b, status == RONDO_SUCCESS);
    return status;
}

static const int all_four[4] = { 0, 1, 2, 3 }, survivors[3] = { 0, 1, 3 };

/* Create a child with rank 2, which dies before it joins; then one without it. */
static void make_two_children(struct rondo_control *control, struct shared *shared)
{
    rondo_status status = gather_ranks(control, all_four, 4, 1);
    snprintf(shared->found[control->rank].text, RONDO_ERROR_TEXT, "%s", rondo_error_text());
    shared->found[control->rank].status = status;
    shared->found[control->rank].rank = gather_ranks(control, survivors, 3, 2) == RONDO_SUCCESS;
    atomic_store(&shared->found[control->rank].done, 1);
    WAIT_FOR(atomic_load(&shared->go) == 9);
    leave_and_exit(control, shared);
}

static void a_child_with_a_dead_member_fails_and_one_without_works(void **state)
{
    const role roles[4] = { NULL, make_two_children, exit_at_once, make_two_children };
    struct scene scene;
    rondo_status status;
    (void)state;
    scene_open(&scene, 4, roles, NULL);
    status = gather_ranks(scene.control, all_four, 4, 1);
    assert_int_equal(status, RONDO_REMOTE_ERROR);
    assert_non_null(strstr(rondo_error_text(), "rank 2 "));
    assert_int_equal(gather_ranks(scene.control, survivors, 3, 2), RONDO_SUCCESS);
    for (int i = 1; i < 4; i += 2) {
        WAIT_FOR(atomic_load(&scene.shared->found[i].done));
        assert_int_equal(scene.shared->found[i].status, RONDO_REMOTE_ERROR);
        assert_non_null(strstr(scene.shared->found[i].text, "rank 2 "));
        assert_int_equal(scene.shared->found[i].rank, 1);
    }
    atomic_store(&scene.shared->go, 9);
    scene_close(&scene);
}

/* fork() copies the communicator; what the copy does must not touch the original. */
static void a_forked_copy_does_not_touch_the_original(void **state)
{
    struct world world;
    int status;
    pid_t pid;
    (void)state;
    world_open(&world, 2);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        rondo_control_leave(world.control[0]);
        rondo_control_close(world.control[0]);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(rondo_control_state_of(world.control[1], 0), RONDO_RANK_ALIVE);
    assert_int_equal(rondo_control_aborted(world.control[1]), 0);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_named_on_all_others),
        cmocka_unit_test(a_rank_that_exits_without_destroy_is_a_fault),
        cmocka_unit_test(a_rank_that_leaves_and_exits_is_no_fault),
        cmocka_unit_test(a_stopped_rank_is_unresponsive_and_learns_it_when_it_resumes),
        cmocka_unit_test(a_watcher_that_was_stopped_accuses_nobody),
        cmocka_unit_test(a_killed_rank_is_noticed_without_pidfd),
        cmocka_unit_test(a_child_with_a_dead_member_fails_and_one_without_works),
        cmocka_unit_test(a_forked_copy_does_not_touch_the_original),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
