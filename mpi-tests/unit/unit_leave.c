/* A rank that leaves a call in the middle has its buffers to itself from then on: ranks on a mailbox in a
 * two-shot, whose memory goes as soon as a rank has left. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/mem.h"
#include "fake_ranks.h"
#include "kern/direct_impl.h"
#include "kern/exec.h"

enum {
    NRANKS = 3,
    COUNT = 30000,
    BYTES = COUNT * 4,
    SCRATCH = 1 << 20,
    ROUNDS = 25,
    CALL_COUNT = 300000,
    CALL_BYTES = CALL_COUNT * 4
};

struct rank {
    struct rondo_exec *exec;
    struct rondo_exec_owner owner;
    struct rondo_mailbox mailbox;
    struct rondo_direct *direct;
    struct rondo_run run;
    /* calls of given_up so far; after `patience` calls it gives up, or clears a mark */
    int open, asked, patience;
    uint32_t *clears;
    uint8_t *in, *out;
};

struct world {
    uint8_t *places;
    struct rank rank[NRANKS];
};

static void *pages(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

/* Another rank is marked as busy: after some calls it finishes its slice, or counts as dead. */
static int on_given_up(void *arg, int local, int64_t waited_ns)
{
    struct rank *r = arg;
    (void)local;
    if (++r->asked < r->patience || waited_ns < 0) {
        return 0;
    }
    if (r->clears == NULL) {
        return 1;
    }
    __atomic_store_n(r->clears, 0, __ATOMIC_RELEASE);
    return 0;
}

static struct world *world_new(enum rondo_reach reach)
{
    struct world *w = calloc(1, sizeof(*w));
    size_t mailbox = rondo_mailbox_bytes(4096, NRANKS);
    int32_t pids[NRANKS];
    assert_non_null(w);
    w->places = aligned_alloc(RONDO_CTRL_ALIGN, mailbox);
    assert_non_null(w->places);
    memset(w->places, 0, mailbox);
    for (int i = 0; i < NRANKS; i++) {
        pids[i] = (int32_t)getpid();
    }
    for (int i = 0; i < NRANKS; i++) {
        struct rank *r = &w->rank[i];
        struct rondo_direct_config config = {
            .nlocal = NRANKS, .index = i, .one_process = reach == RONDO_REACH_MAPPED, .pids = pids
        };
        r->owner = (struct rondo_exec_owner){ .arg = r, .given_up = on_given_up };
        r->mailbox =
            (struct rondo_mailbox){ w->places, rondo_mailbox_stride(4096), 4096, i, NRANKS, 0, 0, 0 };
        r->in = pages(BYTES);
        r->out = pages(BYTES);
        assert_int_equal(rondo_exec_cpu.open(&r->exec, 1, NRANKS, &r->owner), RONDO_SUCCESS);
        assert_int_equal(rondo_direct_open(&r->direct, &config), RONDO_SUCCESS);
        if (reach == RONDO_REACH_CMA) {
            r->direct->cma = RONDO_CMA_WORKS;
            assert_int_equal(rondo_calloc(&r->direct->scratch, 1, SCRATCH, "scratch"), RONDO_SUCCESS);
        }
    }
    return w;
}

static void world_free(struct world *w)
{
    for (int i = 0; i < NRANKS; i++) {
        rondo_exec_cpu.close(w->rank[i].exec);
        rondo_direct_close(w->rank[i].direct);
        if (w->rank[i].in != NULL) {
            munmap(w->rank[i].in, BYTES);
            munmap(w->rank[i].out, BYTES);
        }
    }
    free(w->places);
    free(w);
}

static void submit(struct world *w, int i, enum rondo_coll coll)
{
    struct rank *r = &w->rank[i];
    struct rondo_work *work = &r->run.work;
    int blocks = coll == RONDO_COLL_ALL_GATHER || coll == RONDO_COLL_REDUCE_SCATTER;
    work->coll = (uint8_t)coll;
    work->algo = RONDO_ALGO_TWOSHOT;
    work->dtype = RONDO_INT32;
    work->elem_bytes = 4;
    work->cma = 1;
    work->call_word = 1;
    work->in = r->in;
    work->out = r->out;
    work->len = work->block = work->chunk = blocks ? COUNT / NRANKS : COUNT;
    work->seat = (struct rondo_seat){ .index = i, .nranks = NRANKS, .root = 1, .parent = -1 };
    work->mailbox = &r->mailbox;
    work->direct = r->direct;
    r->run.schedule = rondo_schedule_find(coll, RONDO_ALGO_TWOSHOT);
    r->run.open = &r->open;
    r->open = 1;
    rondo_run_begin(&r->run);
    rondo_exec_cpu.submit(r->exec, &r->run, 1);
}

/* Make progress until it blocks; errors do not matter. */
static void progress_until_blocked(struct rank *r)
{
    for (int moved = 1; moved;) {
        moved = 0;
        assert_int_equal(rondo_exec_cpu.progress(r->exec, &moved), RONDO_SUCCESS);
    }
}

static void leave(struct rank *r)
{
    rondo_exec_cpu.drop(r->exec);
    assert_int_equal(r->open, 0);
    munmap(r->in, BYTES);
    munmap(r->out, BYTES);
    r->in = r->out = NULL;
}

/* All have published where their buffers are. One rank leaves and its memory goes: those that go on must not
 * touch it. */
static void leave_before_the_others_move(enum rondo_reach reach, enum rondo_coll coll, int leaver)
{
    struct world *w = world_new(reach);
    int last = (leaver + 1) % NRANKS;
    for (int i = 0; i < NRANKS; i++) {
        submit(w, i, coll);
    }
    for (int i = 0; i < NRANKS; i++) {
        if (i != last) {
            progress_until_blocked(&w->rank[i]); /* it waits for the last rank's message */
        }
    }
    leave(&w->rank[leaver]);
    for (int i = 1; i < NRANKS; i++) {
        progress_until_blocked(&w->rank[(leaver + i) % NRANKS]);
        assert_int_equal(w->rank[(leaver + i) % NRANKS].run.verdict, RONDO_DIRECT);
        assert_int_equal(w->rank[(leaver + i) % NRANKS].open, 1);
        assert_int_equal(*rondo_mailbox_mark(&w->rank[0].mailbox, (leaver + i) % NRANKS), 0);
    }
    for (int i = 1; i < NRANKS; i++) {
        leave(&w->rank[(leaver + i) % NRANKS]);
    }
    world_free(w);
}

static void nobody_touches_the_buffers_of_a_rank_that_has_left(void **state)
{
    static const enum rondo_coll colls[] = { RONDO_COLL_ALL_REDUCE, RONDO_COLL_REDUCE_SCATTER,
                                             RONDO_COLL_ALL_GATHER, RONDO_COLL_BROADCAST, RONDO_COLL_REDUCE };
    (void)state;
    for (size_t c = 0; c < RONDO_COUNTOF(colls); c++) {
        for (int leaver = 0; leaver < NRANKS; leaver++) {
            leave_before_the_others_move(RONDO_REACH_MAPPED, colls[c], leaver);
            leave_before_the_others_move(RONDO_REACH_CMA, colls[c], leaver);
        }
    }
}

/* Rank 2 is in the middle of a slice when rank 0 leaves; then it goes on, or is found dead. */
static void a_leaving_rank_waits_for_slices_but_not_for_dead_ranks(void **state)
{
    (void)state;
    for (int dies = 0; dies < 2; dies++) {
        struct world *w = world_new(RONDO_REACH_MAPPED);
        uint32_t *mark = rondo_mailbox_mark(&w->rank[0].mailbox, 2);
        submit(w, 0, RONDO_COLL_ALL_REDUCE);
        progress_until_blocked(&w->rank[0]);
        *mark = 1;
        w->rank[0].patience = 5;
        w->rank[0].clears = dies ? NULL : mark;
        leave(&w->rank[0]);
        assert_int_equal(w->rank[0].asked, 5);
        assert_int_equal(*mark, dies);
        world_free(w);
    }
}

/* ---- the whole engine ---- */

struct leaving {
    int round;
    pthread_barrier_t meet; /* all ranks and the aborting thread */
};

struct aborter {
    struct leaving *leaving;
    rondo_comm *comm;
    rondo_status status;
};

static void *abort_some_time(void *arg)
{
    struct aborter *a = arg;
    pthread_barrier_wait(&a->leaving->meet);
    fake_sleep_ms(1 + a->leaving->round % 4); /* any time is fine */
    a->status = rondo_comm_abort(a->comm);
    return NULL;
}

/* Call until a call fails; then free the memory at once. */
static void call_until_aborted(struct fake_rank *r)
{
    struct leaving *l = r->arg;
    struct aborter a = { .leaving = l, .comm = r->comm };
    void *in = mmap(NULL, CALL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *out = mmap(NULL, CALL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    rondo_status status = RONDO_SUCCESS;
    pthread_t thread;
    if (r->rank == 0) {
        pthread_create(&thread, NULL, abort_some_time, &a);
    }
    pthread_barrier_wait(&l->meet);
    while (status == RONDO_SUCCESS) {
        status = rondo_all_reduce(in, out, CALL_COUNT, RONDO_FLOAT32, RONDO_SUM, r->comm, NULL);
    }
    munmap(in, CALL_BYTES);
    munmap(out, CALL_BYTES);
    if (r->rank == 0) {
        pthread_join(thread, NULL);
        r->comm = NULL;
        FAKE_CHECK(r, a.status == RONDO_SUCCESS &&
                          (status == RONDO_REMOTE_ERROR || status == RONDO_INVALID_ARGUMENT));
    } else {
        FAKE_CHECK(r, status == RONDO_REMOTE_ERROR, "%s", rondo_last_error(r->comm));
    }
}

static void memory_may_be_freed_as_soon_as_an_aborted_call_returns(void **state)
{
    (void)state;
    fake_params("ALGO", "twoshot", NULL);
    for (int round = 0; round < ROUNDS; round++) {
        struct leaving l = { .round = round };
        pthread_barrier_init(&l.meet, NULL, NRANKS + 1);
        fake_ranks(NRANKS, call_until_aborted, &l);
        pthread_barrier_destroy(&l.meet);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_touches_the_buffers_of_a_rank_that_has_left),
        cmocka_unit_test(a_leaving_rank_waits_for_slices_but_not_for_dead_ranks),
        cmocka_unit_test(memory_may_be_freed_as_soon_as_an_aborted_call_returns),
    };
    fake_watchdog(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
