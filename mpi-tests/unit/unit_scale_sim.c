/* The simulators of mpi-tests/sim against real runs: the same machines send as many messages over shared
 * memory and sockets as in simulated time. And small sizes of what scripts/simulate-scale publishes. */
#include "control_nodes.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "../sim/death_sim.h"
#include "../sim/rounds_sim.h"
#include "net/bootstrap/bootstrap.h"

enum { MOST = 256, NROUNDS = 5 };

/* An allgather of some KiB, a barrier, a sum, records of a ring's neighbours, statuses. */
static const size_t record[NROUNDS] = { 24, 0, 8, 1500, 16 };
static const uint8_t kind[NROUNDS] = { ROUNDS_SIM_ALLGATHER, ROUNDS_SIM_ALLGATHER, ROUNDS_SIM_REDUCE,
                                       ROUNDS_SIM_RING, ROUNDS_SIM_ALLGATHER };

/* ---- ranks of one node ---- */

struct ranks {
    int n, local_ranks[MOST], members[MOST];
    struct rondo_peer *peers;
    struct rondo_shm_name name;
};

static void ranks_init(struct ranks *ranks, int n)
{
    memset(ranks, 0, sizeof(*ranks));
    ranks->n = n;
    ranks->peers = calloc((size_t)n, sizeof(*ranks->peers));
    for (int i = 0; i < n; i++) {
        ranks->local_ranks[i] = ranks->members[i] = i;
        ranks->peers[i].rank = i;
        ranks->peers[i].process_hash = 100 + (uint64_t)i;
        ranks->peers[i].host = "thishost";
    }
}

static struct rondo_control *ranks_control(struct ranks *ranks, int rank)
{
    struct rondo_control_config config = { .rank = rank,
                                           .nranks = ranks->n,
                                           .local_rank = rank,
                                           .nlocal = ranks->n,
                                           .local_ranks = ranks->local_ranks,
                                           .peers = ranks->peers,
                                           .comm_hash = 0x5ca1e,
                                           .name = "test" };
    struct rondo_control *control = NULL;
    rondo_status status = rank == 0 ? rondo_control_create(&control, &config, &ranks->name)
                                    : rondo_control_attach(&control, &config, &ranks->name);
    return status == RONDO_SUCCESS ? control : NULL;
}

/* One rank's rounds, to be moved in turn with those of others. */
struct progress {
    struct rondo_bootstrap *b;
    int round;
    rondo_status status;
    uint8_t *all, *mine;
    uint64_t parts, notes;
};

static void add(void *into, const void *from)
{
    uint64_t sum[2];
    memcpy(&sum[0], into, sizeof(sum[0]));
    memcpy(&sum[1], from, sizeof(sum[1]));
    sum[0] += sum[1];
    memcpy(into, sum, sizeof(sum[0]));
}

/* Each rank has added one. */
static int is_sum(const struct progress *p)
{
    uint64_t sum;
    memcpy(&sum, p->all, sizeof(sum));
    return sum == (uint64_t)p->b->nranks;
}

static void progress_start(struct progress *p)
{
    int n = p->b->nranks, peer[2] = { (p->b->rank + 1) % n, (p->b->rank + n - 1) % n };
    if (kind[p->round] == ROUNDS_SIM_RING) {
        p->b->ops->exchange_start(p->b, n > 2 ? 2 : 1, peer, p->mine, p->all, record[p->round]);
    } else if (kind[p->round] == ROUNDS_SIM_REDUCE) {
        memcpy(p->all, &(uint64_t){ 1 }, sizeof(uint64_t));
        p->b->ops->reduce_start(p->b, p->all, record[p->round], add);
    } else {
        p->b->ops->allgather_start(p->b, p->mine, p->all, record[p->round]);
    }
}

static void progress_open(struct progress *p, struct rondo_control *control, const struct ranks *ranks,
                          int rank)
{
    size_t bytes = (size_t)ranks->n * 24 > 3000 ? (size_t)ranks->n * 24 : 3000;
    p->status = rondo_bootstrap_control(control, ranks->members, ranks->n, rank, 3, 0, &p->b);
    p->all = calloc(1, bytes);
    p->mine = calloc(1, 3000);
    if (p->status == RONDO_SUCCESS) {
        progress_start(p);
        p->status = RONDO_IN_PROGRESS;
    }
}

static void progress_move(struct progress *p)
{
    while (p->status == RONDO_IN_PROGRESS && (p->status = p->b->ops->test(p->b)) == RONDO_SUCCESS) {
        if (kind[p->round] == ROUNDS_SIM_REDUCE && !is_sum(p)) {
            p->status = rondo_fail_quiet(RONDO_INTERNAL_ERROR, "the sum is wrong");
        } else if (++p->round < NROUNDS) {
            progress_start(p);
            p->status = RONDO_IN_PROGRESS;
        }
    }
}

static void progress_close(struct progress *p)
{
    rondo_bootstrap_control_sent(p->b, &p->parts, &p->notes);
    p->b->ops->close(p->b, p->status == RONDO_SUCCESS);
    free(p->all);
    free(p->mine);
}

static void check_with_simulation(const uint64_t *parts, int n, const char *how)
{
    struct rounds_sim_config config = { .n = n,
                                        .nrounds = NROUNDS,
                                        .record = record,
                                        .kind = kind,
                                        .latency_ns = 10000,
                                        .timeout_ns = INT64_C(60000000000),
                                        .seed = 1 };
    struct rounds_sim *sim = rounds_sim_new(&config);
    rounds_sim_run(sim);
    for (int rank = 0; rank < n; rank++) {
        assert_int_equal(rounds_sim_rank(sim, rank)->status, RONDO_SUCCESS);
        if (rounds_sim_rank(sim, rank)->sent != parts[rank]) {
            fail_msg("%s, rank %d of %d sends %llu messages, in the simulation %llu", how, rank, n,
                     (unsigned long long)parts[rank], (unsigned long long)rounds_sim_rank(sim, rank)->sent);
        }
    }
    rounds_sim_free(sim);
}

static void rounds_send_what_the_simulation_says(void **state)
{
    static const int sizes[] = { 4, 64, 256 };
    (void)state;
    for (size_t s = 0; s < RONDO_COUNTOF(sizes); s++) {
        static struct rondo_control *control[MOST];
        static struct progress p[MOST];
        static uint64_t parts[MOST];
        struct ranks ranks;
        int n = sizes[s], open = n;
        int64_t end = rondo_now_ns() + DEADLINE_NS;
        ranks_init(&ranks, n);
        memset(p, 0, sizeof(p));
        for (int i = 0; i < n; i++) {
            control[i] = ranks_control(&ranks, i);
            assert_non_null(control[i]);
            assert_int_equal(rondo_control_start(control[i]), RONDO_SUCCESS);
        }
        for (int i = 0; i < n; i++) {
            progress_open(&p[i], control[i], &ranks, i);
        }
        while (open > 0 && rondo_now_ns() < end) {
            open = 0;
            for (int i = 0; i < n; i++) {
                progress_move(&p[i]);
                open += p[i].status == RONDO_IN_PROGRESS;
            }
        }
        for (int i = 0; i < n; i++) {
            assert_int_equal(p[i].status, RONDO_SUCCESS);
            progress_close(&p[i]);
            assert_int_equal(p[i].notes, 0);
            parts[i] = p[i].parts;
            rondo_control_close(control[i]);
        }
        check_with_simulation(parts, n, "in turn");
        free(ranks.peers);
    }
}

/* ---- the same with a process a rank ---- */

static int run_process(struct ranks *ranks, int rank, uint64_t *parts)
{
    struct rondo_control *control = ranks_control(ranks, rank);
    struct progress p = { .b = NULL };
    int64_t end = rondo_now_ns() + DEADLINE_NS;
    if (control == NULL || rondo_control_start(control) != RONDO_SUCCESS) {
        return 1;
    }
    progress_open(&p, control, ranks, rank);
    while (p.status == RONDO_IN_PROGRESS && rondo_now_ns() < end) {
        progress_move(&p);
        sched_yield();
    }
    progress_close(&p);
    parts[rank] = p.parts;
    rondo_control_close(control);
    return p.status != RONDO_SUCCESS;
}

static void rounds_of_processes_send_as_many(void **state)
{
    static const int sizes[] = { 4, 64 };
    (void)state;
    for (size_t s = 0; s < RONDO_COUNTOF(sizes); s++) {
        struct ranks ranks;
        int n = sizes[s], status, bad = 0;
        pid_t pid[MOST];
        uint64_t *parts = mmap(NULL, sizeof(*parts) * MOST, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(parts, MAP_FAILED);
        ranks_init(&ranks, n);
        struct rondo_control *leader = ranks_control(&ranks, 0);
        assert_non_null(leader);
        for (int i = 1; i < n; i++) {
            pid[i] = fork();
            assert_true(pid[i] >= 0);
            if (pid[i] == 0) {
                _exit(run_process(&ranks, i, parts));
            }
        }
        /* Rank 0's name stays until all have attached: it starts, but its rounds need them all. */
        struct progress p = { .b = NULL };
        int64_t end = rondo_now_ns() + DEADLINE_NS;
        progress_open(&p, leader, &ranks, 0);
        while (p.status == RONDO_IN_PROGRESS && rondo_now_ns() < end) {
            progress_move(&p);
            sched_yield();
        }
        assert_int_equal(p.status, RONDO_SUCCESS);
        progress_close(&p);
        parts[0] = p.parts;
        for (int i = 1; i < n; i++) {
            waitpid(pid[i], &status, 0);
            bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
        }
        rondo_control_close(leader);
        assert_int_equal(bad, 0);
        check_with_simulation(parts, n, "processes");
        munmap(parts, sizeof(*parts) * MOST);
        free(ranks.peers);
    }
}

/* ---- the end of a communicator ---- */

/* Nodes of one rank, in this process, with real sockets. */
struct many {
    int n, *node_of, *zero;
    struct rondo_peer *peers;
    struct rondo_control **control;
};

static void many_open(struct many *w, int n)
{
    uint8_t addr[RONDO_ADDR_BYTES];
    uint32_t number;
    *w = (struct many){ .n = n };
    w->node_of = calloc((size_t)n, sizeof(int));
    w->zero = calloc((size_t)n, sizeof(int));
    w->peers = calloc((size_t)n, sizeof(*w->peers));
    w->control = calloc((size_t)n, sizeof(void *));
    assert_int_equal(rondo_control_listen(addr, &number), RONDO_SUCCESS);
    for (int r = 0; r < n; r++) {
        w->node_of[r] = w->zero[r] = r;
        w->peers[r].rank = r;
        w->peers[r].process_hash = 1000 + (uint64_t)r;
        w->peers[r].id.nonce[0] = 5;
        memcpy(w->peers[r].control_addr, addr, sizeof(addr));
        w->peers[r].control_number = number;
    }
    for (int r = 0; r < n; r++) {
        struct rondo_shm_name name;
        struct rondo_control_config config = { .rank = r,
                                               .nranks = n,
                                               .nlocal = 1,
                                               .local_ranks = &w->zero[r],
                                               .peers = w->peers,
                                               .nnodes = n,
                                               .node_of = w->node_of,
                                               .comm_hash = 0xabc,
                                               .name = "test" };
        assert_int_equal(rondo_control_create(&w->control[r], &config, &name), RONDO_SUCCESS);
    }
    for (int r = 0; r < n; r++) {
        assert_int_equal(rondo_control_start(w->control[r]), RONDO_SUCCESS);
    }
}

static void many_close(struct many *w)
{
    for (int r = 0; r < w->n; r++) {
        rondo_control_close(w->control[r]);
    }
    rondo_control_unlisten();
    free(w->node_of);
    free(w->zero);
    free(w->peers);
    free(w->control);
}

static int all_watch(const struct many *w)
{
    int open = 0;
    rondo_wire_lock();
    for (int r = 0; r < w->n; r++) {
        const struct rondo_spread *spread = &w->control[r]->wire->spread;
        for (int i = 0; i < spread->nfingers; i++) {
            open += spread->finger[i].ahead && spread->finger[i].watched < 0;
        }
    }
    rondo_wire_unlock();
    return open == 0;
}

static int all_know(const struct many *w)
{
    int know = 0;
    for (int r = 0; r < w->n; r++) {
        know += rondo_control_aborted(w->control[r]);
    }
    return know == w->n;
}

static uint64_t told(const struct many *w)
{
    uint64_t n = 0;
    rondo_wire_lock(); /* its thread may still tell */
    for (int r = 0; r < w->n; r++) {
        const struct rondo_spread *spread = &w->control[r]->wire->spread;
        for (int i = 0; i < spread->nfingers; i++) {
            n += spread->finger[i].told >= 0;
        }
    }
    rondo_wire_unlock();
    return n;
}

/* Descriptors for two ends of each connection. */
static int may_open(int n)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur > (rlim_t)n * 20 + 256;
}

static void an_abort_over_sockets_is_told_as_often(void **state)
{
    static const int sizes[] = { 4, 64, 256 };
    (void)state;
    use_loop("50ms", "60s");
    for (size_t s = 0; s < RONDO_COUNTOF(sizes); s++) {
        struct death_sim_config config = { .nranks = sizes[s],
                                           .nlocal = 1,
                                           .kind = DEATH_SIM_ABORT,
                                           .rank = sizes[s] / 2,
                                           .latency_ns = 10000,
                                           .beat_ns = 50000000,
                                           .dead_ns = INT64_C(60000000000),
                                           .seed = 1 };
        struct death_sim_result result;
        struct many w;
        if (!may_open(sizes[s])) {
            printf("%d nodes: too few descriptors (ulimit -n)\n", sizes[s]);
            continue;
        }
        death_sim_run(&config, &result);
        assert_int_equal(result.nknow, sizes[s]);
        many_open(&w, sizes[s]);
        WAIT_FOR(all_watch(&w));
        rondo_control_abort(w.control[sizes[s] / 2], RONDO_REMOTE_ERROR, sizes[s] / 2, "enough");
        WAIT_FOR(all_know(&w) && told(&w) == result.messages);
        assert_int_equal(told(&w), result.messages);
        many_close(&w);
    }
}

/* ---- what is published, at small sizes ---- */

static void ends_reach_all_nodes_in_log_steps(void **state)
{
    (void)state;
    for (int n = 2; n <= 2048; n *= 2) {
        for (int k = 0; k <= 2; k++) {
            struct death_sim_config config = { .nranks = n,
                                               .nlocal = 1,
                                               .kind = (enum death_sim_kind)k,
                                               .rank = n / 3,
                                               .also = k == 1 ? n / 17 : 0,
                                               .latency_ns = 10000,
                                               .beat_ns = 1000000000,
                                               .dead_ns = 4000000000,
                                               .seed = (uint64_t)n };
            struct death_sim_result result;
            int steps = 1;
            death_sim_run(&config, &result);
            for (int m = 1; m < n; m *= 2) {
                steps++;
            }
            assert_int_equal(result.nknow, result.nlive);
            assert_int_equal(result.wrong, 0);
            assert_true(result.most_messages <= (uint64_t)(2 * steps));
            assert_true(result.last_ns - result.first_ns <= steps * INT64_C(20000));
            assert_true(k != 2 || (result.first_ns > 2900000000 && result.first_ns < 6000000000));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_send_what_the_simulation_says),
        cmocka_unit_test(rounds_of_processes_send_as_many),
        cmocka_unit_test(an_abort_over_sockets_is_told_as_often),
        cmocka_unit_test(ends_reach_all_nodes_in_log_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
