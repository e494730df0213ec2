/*
 * The control plane between nodes when processes die, stop or leave. This process is rank 0; it forks the
 * others before any control thread exists, and they write what they find into a shared page.
 */
#include "control_nodes.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "net/bootstrap/bootstrap.h"

#define NO_BEATS "1000s", "1000000s" /* what depends on them fails at DEADLINE_NS */

static int setup(void **state)
{
    (void)state;
    use_loop("50ms", "10s");
    return 0;
}

struct shared {
    uint8_t addr[NODES_MAX][RONDO_ADDR_BYTES];
    uint32_t number[NODES_MAX];
    int pid[NODES_MAX];
    struct rondo_shm_name name[NODES_MAX];
    _Atomic int listening, leading, attached, started, ended, go;
    struct {
        _Atomic int done; /* set last */
        rondo_status status;
        int rank;
        int64_t noticed_ns;
        char text[RONDO_ERROR_TEXT];
    } found[NODES_MAX];
};

struct scene {
    struct nodes w;
    struct shared *shared;
    pid_t pid[NODES_MAX];
};

typedef void (*role)(struct rondo_control *control, struct shared *shared);

/* The watched processes have sent their welcome: from here on their end is a death. */
static int settled(struct rondo_control *control)
{
    int open = 0;
    rondo_wire_lock();
    for (const struct rondo_wire_conn *conn = rondo_wire->conns; conn; conn = conn->next) {
        open += conn->state != RONDO_WIRE_OPEN;
    }
    for (int i = 0; i < control->wire->spread.nfingers && control->local_rank == 0; i++) {
        open += control->wire->spread.finger[i].ahead && control->wire->spread.finger[i].watched < 0;
    }
    rondo_wire_unlock();
    return open == 0;
}

/* As in creation: everyone listens, leaders create, others attach, all start. */
static rondo_status come_up(struct scene *scene, int r)
{
    struct nodes *w = &scene->w;
    struct shared *shared = scene->shared;
    RONDO_TRY(rondo_control_listen(shared->addr[r], &shared->number[r]));
    shared->pid[r] = getpid();
    atomic_fetch_add(&shared->listening, 1);
    WAIT_FOR(atomic_load(&shared->listening) == w->nranks);
    for (int i = 0; i < w->nranks; i++) {
        memcpy(w->peers[i].control_addr, shared->addr[i], RONDO_ADDR_BYTES);
        w->peers[i].control_number = shared->number[i];
        w->peers[i].pid = shared->pid[i];
    }
    if (w->local_of[r] == 0) {
        RONDO_TRY(nodes_make(w, r));
        shared->name[w->node_of[r]] = w->name[w->node_of[r]];
        atomic_fetch_add(&shared->leading, 1);
    } else {
        WAIT_FOR(atomic_load(&shared->leading) == w->nnodes);
        w->name[w->node_of[r]] = shared->name[w->node_of[r]];
        RONDO_TRY(nodes_make(w, r));
    }
    atomic_fetch_add(&shared->attached, 1);
    WAIT_FOR(atomic_load(&shared->attached) == w->nranks);
    RONDO_TRY(rondo_control_start(w->control[r]));
    WAIT_FOR(settled(w->control[r]));
    atomic_fetch_add(&shared->started, 1);
    WAIT_FOR(atomic_load(&shared->started) == w->nranks);
    return RONDO_SUCCESS;
}

static void scene_open(struct scene *scene, int nnodes, int nlocal, const role *roles)
{
    memset(scene, 0, sizeof(*scene));
    nodes_init(&scene->w, nnodes, nlocal, 1);
    scene->shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                         0);
    assert_true(scene->shared != MAP_FAILED);
    fflush(NULL);
    for (int r = 1; r < scene->w.nranks; r++) {
        scene->pid[r] = fork();
        assert_true(scene->pid[r] >= 0);
        if (scene->pid[r] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (come_up(scene, r) != RONDO_SUCCESS) {
                _exit(1);
            }
            roles[r](scene->w.control[r], scene->shared);
            _exit(0);
        }
    }
    assert_int_equal(come_up(scene, 0), RONDO_SUCCESS);
}

static void scene_close(struct scene *scene)
{
    rondo_control_close(scene->w.control[0]);
    rondo_control_unlisten();
    for (int r = 1; r < scene->w.nranks; r++) {
        kill(scene->pid[r], SIGKILL);
        waitpid(scene->pid[r], NULL, 0);
    }
    munmap(scene->shared, sizeof(struct shared));
    use_loop("50ms", "10s");
}

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
    WAIT_FOR(atomic_load(&shared->ended));
    rondo_control_close(control);
    rondo_control_unlisten();
}

static void leave_and_exit(struct rondo_control *control, struct shared *shared)
{
    (void)shared;
    rondo_control_close(control);
    rondo_control_unlisten();
}

static void exit_when_told(struct rondo_control *control, struct shared *shared)
{
    (void)control;
    WAIT_FOR(atomic_load(&shared->go));
}

static const role watchers[NODES_MAX] = { NULL,
                                          watch_until_ended,
                                          watch_until_ended,
                                          watch_until_ended,
                                          watch_until_ended,
                                          watch_until_ended,
                                          watch_until_ended,
                                          watch_until_ended,
                                          watch_until_ended,
                                          watch_until_ended,
                                          watch_until_ended,
                                          watch_until_ended };

/* Check that all but `gone` know that `gone` is at fault. */
static void check_found(struct scene *scene, int gone, int64_t since_ns, const char *words)
{
    char who[80];
    find(scene->w.control[0], scene->shared);
    snprintf(who, sizeof(who), "rank %d (pid %d on host host%d) of communicator test", gone,
             (int)scene->pid[gone], scene->w.node_of[gone]);
    for (int r = 0; r < scene->w.nranks; r++) {
        if (r == gone) {
            continue;
        }
        WAIT_FOR(atomic_load(&scene->shared->found[r].done));
        assert_int_equal(atomic_load(&scene->shared->found[r].done), 1);
        assert_int_equal(scene->shared->found[r].status, RONDO_REMOTE_ERROR);
        assert_int_equal(scene->shared->found[r].rank, gone);
        if (strstr(scene->shared->found[r].text, who) == NULL ||
            strstr(scene->shared->found[r].text, words) == NULL) {
            fail_msg("rank %d found: %s", r, scene->shared->found[r].text);
        }
    }
    print_message("rank 0 noticed after %.1f ms\n",
                  (double)(scene->shared->found[0].noticed_ns - since_ns) / 1e6);
    atomic_store(&scene->shared->ended, 1);
}

static void a_killed_process_is_known_on_all_nodes(void **state)
{
    static const int shape[][3] = {
        { 2, 1, 1 }, { 3, 1, 2 }, { 3, 2, 2 /* leads */ }, { 3, 2, 5 /* does not */ }, { 5, 1, 3 }
    };
    struct scene scene;
    (void)state;
    use_loop(NO_BEATS); /* the death is found without them */
    for (size_t i = 0; i < RONDO_COUNTOF(shape); i++) {
        int dead = shape[i][2];
        int64_t start;
        scene_open(&scene, shape[i][0], shape[i][1], watchers);
        start = rondo_now_ns();
        kill(scene.pid[dead], SIGKILL);
        check_found(&scene, dead, start, "exited without destroying its communicator");
        scene_close(&scene);
        use_loop(NO_BEATS);
    }
    use_loop("50ms", "10s");
}

/* Do one allgather over the parent's ranks. @return its status; text: RONDO_ERROR_TEXT bytes, the error. */
static rondo_status make_child(struct rondo_control *control, const int *members, int n, int self,
                               uint64_t tag, char *text)
{
    struct rondo_bootstrap *b = NULL;
    int64_t end = rondo_now_ns() + DEADLINE_NS;
    int mine = control->rank, all[NODES_MAX] = { 0 };
    rondo_status status;
    RONDO_TRY(rondo_bootstrap_control(control, members, n, self, tag, 1, &b));
    b->ops->allgather_start(b, &mine, all, sizeof(mine));
    while ((status = b->ops->test(b)) == RONDO_IN_PROGRESS && rondo_now_ns() < end) {
        sched_yield();
    }
    for (int i = 0; i < n && status == RONDO_SUCCESS; i++) {
        status = all[i] == members[i] ? RONDO_SUCCESS : RONDO_INTERNAL_ERROR;
    }
    snprintf(text, RONDO_ERROR_TEXT, "%s", rondo_error_text());
    b->ops->close(b, status == RONDO_SUCCESS);
    return status;
}

static const int survivors[2] = { 2, 0 };

static void shrink_when_ended(struct rondo_control *control, struct shared *shared)
{
    find(control, shared);
    shared->found[2].status = make_child(control, survivors, 2, 0, 1, shared->found[2].text);
    atomic_fetch_add(&shared->go, 1);
    WAIT_FOR(atomic_load(&shared->ended));
}

static void survivors_of_a_death_create_a_child(void **state)
{
    static const role roles[3] = { NULL, watch_until_ended, shrink_when_ended };
    static const int with_the_dead[2] = { 0, 1 };
    struct scene scene;
    char text[RONDO_ERROR_TEXT];
    (void)state;
    scene_open(&scene, 3, 1, roles);
    kill(scene.pid[1], SIGKILL);
    find(scene.w.control[0], scene.shared);
    assert_int_equal(make_child(scene.w.control[0], survivors, 2, 1, 1, text), RONDO_SUCCESS);
    WAIT_FOR(atomic_load(&scene.shared->go) == 1);
    assert_int_equal(scene.shared->found[2].status, RONDO_SUCCESS);
    assert_int_equal(make_child(scene.w.control[0], with_the_dead, 2, 0, 2, text), RONDO_REMOTE_ERROR);
    assert_non_null(strstr(text, "member rank 1 (pid "));
    assert_non_null(strstr(text, "exited"));
    atomic_store(&scene.shared->ended, 1);
    scene_close(&scene);
}

static void a_process_that_exits_without_leaving_is_dead(void **state)
{
    static const role roles[3] = { NULL, watch_until_ended, exit_when_told };
    struct scene scene;
    int64_t start;
    (void)state;
    scene_open(&scene, 3, 1, roles);
    start = rondo_now_ns();
    atomic_store(&scene.shared->go, 1);
    check_found(&scene, 2, start, "exited without destroying its communicator");
    scene_close(&scene);
}

static void a_stopped_process_is_unresponsive(void **state)
{
    struct scene scene;
    int64_t start;
    (void)state;
    use_loop("50ms", "3s"); /* far longer than a busy machine keeps a thread from running */
    scene_open(&scene, 3, 1, watchers);
    start = rondo_now_ns();
    kill(scene.pid[1], SIGSTOP);
    check_found(&scene, 1, start, "is unresponsive: no heartbeat for ");
    assert_in_range(silence_in(scene.shared->found[0].text), 3000, 1000000); /* not before the limit */
    WAIT_FOR(rondo_control_state_of(scene.w.control[0], 1) ==
             RONDO_RANK_SILENT); /* another rank told it, or it found out itself */
    assert_int_equal(rondo_control_state_of(scene.w.control[0], 1), RONDO_RANK_SILENT);
    kill(scene.pid[1], SIGCONT);
    WAIT_FOR(atomic_load(
        &scene.shared->found[1].done)); /* it learns the reason too, and blames nobody for its own absence */
    assert_int_equal(atomic_load(&scene.shared->found[1].done), 1);
    assert_int_equal(scene.shared->found[1].rank, 1);
    WAIT_FOR(rondo_control_state_of(scene.w.control[0], 1) !=
             RONDO_RANK_SILENT); /* it speaks again, or has left */
    assert_int_not_equal(rondo_control_state_of(scene.w.control[0], 1), RONDO_RANK_SILENT);
    scene_close(&scene);
}

/* @return when a rank's process was last heard; 0: it has not answered yet. */
static int64_t heard(const struct scene *scene, int rank)
{
    const struct rondo_wire_conn *conn;
    int64_t ns;
    rondo_wire_lock();
    conn = rondo_wire_conn_of(rondo_wire_process(&scene->w.peers[0]),
                              rondo_wire_process(&scene->w.peers[rank]));
    ns = conn && conn->state == RONDO_WIRE_OPEN ? conn->beats.heard_ns : 0;
    rondo_wire_unlock();
    return ns;
}

static void a_short_stop_is_no_fault(void **state)
{
    struct scene scene;
    struct timespec stop = { .tv_nsec = 400000000 }; /* the length of the fault */
    int64_t resumed;
    (void)state;
    use_loop("50ms", "10s");
    scene_open(&scene, 3, 1, watchers);
    kill(scene.pid[1], SIGSTOP);
    nanosleep(&stop, NULL);
    resumed = rondo_now_ns();
    kill(scene.pid[1], SIGCONT);
    WAIT_FOR(heard(&scene, 1) > resumed);
    assert_true(heard(&scene, 1) > resumed);
    assert_int_equal(rondo_control_aborted(scene.w.control[0]), 0);
    assert_int_equal(rondo_control_state_of(scene.w.control[0], 1), RONDO_RANK_ALIVE);
    scene_close(&scene);
}

/* The others leave one by one, also those that lead their nodes; the rest still hears of a death. */
static void leaving_in_order_is_no_fault(void **state)
{
    static const role roles[6] = { NULL,           leave_and_exit, leave_and_exit, watch_until_ended,
                                   leave_and_exit, leave_and_exit };
    struct scene scene;
    int64_t start;
    (void)state;
    scene_open(&scene, 3, 2, roles);
    for (int r = 1; r < 6; r++) {
        if (r != 3) {
            waitpid(scene.pid[r], NULL, 0);
            WAIT_FOR(r == 1 || r == 5 || rondo_control_state_of(scene.w.control[0], r) == RONDO_RANK_LEFT);
        }
    }
    assert_int_equal(rondo_control_state_of(scene.w.control[0], 2), RONDO_RANK_LEFT);
    assert_int_equal(rondo_control_state_of(scene.w.control[0], 4), RONDO_RANK_LEFT);
    WAIT_FOR(heard(&scene, 3) > 0); /* it leads node 1 now, and its end is a death */
    assert_true(heard(&scene, 3) > 0);
    assert_int_equal(rondo_control_aborted(scene.w.control[0]), 0);
    assert_int_equal(rondo_control_state_of(scene.w.control[0], 3), RONDO_RANK_ALIVE);
    send_all(scene.w.control[0], 3, 1, "x", 1);
    start = rondo_now_ns();
    kill(scene.pid[3], SIGKILL);
    find(scene.w.control[0], scene.shared);
    assert_int_equal(scene.shared->found[0].rank, 3);
    assert_non_null(strstr(scene.shared->found[0].text, "exited without destroying its communicator"));
    print_message("rank 0 noticed after %.1f ms\n",
                  (double)(scene.shared->found[0].noticed_ns - start) / 1e6);
    for (int r = 1; r < 6; r++) {
        scene.pid[r] = r == 3 ? scene.pid[r] : fork(); /* for scene_close */
        if (scene.pid[r] == 0) {
            pause();
        }
    }
    scene_close(&scene);
}

/* Five nodes of two ranks. One leader is stopped, another dies before it is told: all others end at once. */
static void a_reason_gets_past_a_dead_leader(void **state)
{
    struct scene scene;
    (void)state;
    use_loop("100ms", "1000000s"); /* none of them depends on silence */
    scene_open(&scene, 5, 2, watchers);
    kill(scene.pid[2], SIGKILL);
    kill(scene.pid[8], SIGSTOP);
    rondo_control_abort(scene.w.control[0], RONDO_TIMEOUT, 0, "rank 0 waited too long");
    for (int r = 1; r < 10; r++) {
        if (r == 2 || r == 8 || r == 9) {
            continue; /* rank 9 depends on its node's leader, which does not move: for it the limit is
                         RONDO_DEAD_AFTER */
        }
        WAIT_FOR(atomic_load(&scene.shared->found[r].done));
        assert_int_equal(atomic_load(&scene.shared->found[r].done), 1);
        assert_true(scene.shared->found[r].status == RONDO_TIMEOUT || scene.shared->found[r].rank == 2);
    }
    atomic_store(&scene.shared->ended, 1);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_process_is_known_on_all_nodes),
        cmocka_unit_test(survivors_of_a_death_create_a_child),
        cmocka_unit_test(a_process_that_exits_without_leaving_is_dead),
        cmocka_unit_test(a_stopped_process_is_unresponsive),
        cmocka_unit_test(a_short_stop_is_no_fault),
        cmocka_unit_test(leaving_in_order_is_no_fault),
        cmocka_unit_test(a_reason_gets_past_a_dead_leader),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
