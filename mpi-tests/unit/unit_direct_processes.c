/* Two-shot between processes: memory of another process that can be mapped, that cannot, and that is gone. */
#include "direct_world.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* Run one rank of two processes, with its own memory, until its calls end. @return 0: all were right and had
 * the verdict. */
static int run_alone(struct world *w, int rank, enum rondo_verdict verdict)
{
    struct rank *r = &w->rank[rank];
    int moved = 0;
    w->memory = HEAP;
    r->in = buffer_new(r);
    r->out = buffer_new(r);
    while (!rank_step(r, &moved)) {
        sched_yield();
    }
    if (r->wrong[0] != '\0') {
        fprintf(stderr, "%s\n", r->wrong);
    }
    return r->wrong[0] != '\0' || r->carried[verdict] != w->ncalls;
}

static void two_processes(int refused)
{
    struct world *w = world_new(2, ORDINARY);
    enum rondo_verdict verdict = refused ? RONDO_NOT_DIRECT : RONDO_DIRECT;
    size_t bytes = rondo_mailbox_bytes(4 * MOST_COUNT, 2);
    uint8_t *places = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    float *ordinary[2] = { w->rank[0].in, w->rank[0].out };
    struct rlimit old, none;
    int status;
    pid_t child;
    assert_true(places != MAP_FAILED);
    w->rank[0].mailbox.places = w->rank[1].mailbox.places = places;
    w->ncalls = 20;
    for (int k = 0; k < w->ncalls; k++) {
        w->call[k] =
            (struct call){ .coll = RONDO_COLL_ALL_REDUCE, .count = 100 + (size_t)k * 91, .in_place = k % 2 };
    }
    fflush(NULL);
    child = fork();
    if (child == 0) {
        _exit(run_alone(w, 1, verdict));
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = 3; /* allocate first: only opening peers' segments must fail */
    {
        void *kept;
        assert_int_equal(rondo_heap_alloc(&kept, PLACE), RONDO_SUCCESS);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, refused ? &none : &old), 0);
        assert_int_equal(run_alone(w, 0, verdict), 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        assert_int_equal(rondo_heap_free(kept), RONDO_SUCCESS);
    }
    assert_int_equal(rondo_segments_mapped(), refused ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    buffer_free(&w->rank[0], w->rank[0].in);
    buffer_free(&w->rank[0], w->rank[0].out);
    w->memory = ORDINARY;
    w->rank[0].in = ordinary[0];
    w->rank[0].out = ordinary[1];
    world_free(w);
    assert_int_equal(rondo_segments_mapped(), 0);
    munmap(places, bytes);
}

static void processes_map_each_others_memory(void **state)
{
    (void)state;
    two_processes(0);
}

static void memory_that_a_process_cannot_map_uses_the_fallback(void **state)
{
    (void)state;
    two_processes(1);
}

static int32_t dead_process(void)
{
    int status;
    pid_t child;
    fflush(NULL);
    child = fork();
    if (child == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return (int32_t)child;
}

/* One rank cannot map: then nobody does, and the call is made by the fallback. */
static void one_rank_that_cannot_map_stops_all_ranks(void **state)
{
    (void)state;
    for (int in_place = 0; in_place < 2; in_place++) {
        struct world *w = world_new(3, KERNEL);
        w->rank[1].direct->pids[2] = dead_process();
        w->only_in_place = in_place;
        w->ncalls = NCALLS;
        for (int k = 0; k < w->ncalls; k++) {
            w->call[k] = (struct call){ .coll = RONDO_COLL_ALL_REDUCE, .count = 500, .in_place = in_place };
        }
        run_in_order(w);
        for (int i = 0; i < 3; i++) {
            assert_string_equal(w->rank[i].wrong, "");
            assert_int_equal(w->rank[i].carried[RONDO_NOT_DIRECT], NCALLS);
            assert_int_equal(w->rank[i].direct->cma, RONDO_CMA_REFUSED);
            assert_true(w->rank[i].direct->ncalls < NCALLS); /* asking stops at some time */
        }
        world_free(w);
    }
}

/* A peer has ended when its memory is wanted. */
static void a_process_that_has_ended_is_an_error(void **state)
{
    struct call c = { .coll = RONDO_COLL_ALL_REDUCE, .count = 500 };
    struct world *w = world_new(2, KERNEL);
    rondo_status status = RONDO_SUCCESS;
    int moved = 1;
    (void)state;
    for (int i = 0; i < 2; i++) {
        w->rank[i].direct->cma = RONDO_CMA_WORKS;
        w->rank[i].direct->scratch = zeroed(1 << 20);
    }
    w->rank[0].direct->pids[1] = dead_process();
    submit(&w->rank[0], &c, 0);
    submit(&w->rank[1], &c, 0);
    progress_until_stuck(w->rank[0].exec);
    (void)rondo_exec_cpu.progress(w->rank[1].exec, &moved);
    while (status == RONDO_SUCCESS && moved) {
        moved = 0;
        status = rondo_exec_cpu.progress(w->rank[0].exec, &moved);
    }
    assert_int_equal(status, RONDO_REMOTE_ERROR);
    assert_non_null(strstr(rondo_error_text(), "local rank 1"));
    world_free(w);
}

/* Refused kinds of calls ask less and less, but never stop; once granted, they always ask. */
static void refused_calls_ask_less_and_less_often(void **state)
{
    struct rondo_direct_kind kind = { 0 };
    int asked = 0, gap = 0, longest = 0;
    (void)state;
    for (int call = 0; call < 2000; call++) {
        if (rondo_direct_asks(&kind)) {
            rondo_direct_learn(&kind, 1);
            asked++;
            gap = 0;
        }
        longest = ++gap > longest ? gap : longest;
        assert_true(call >= 4 || asked == call + 1);
    }
    assert_in_range(asked, 20, 60);
    assert_int_equal(longest, 65);
    while (!rondo_direct_asks(&kind)) {
    }
    rondo_direct_learn(&kind, 0);
    for (int call = 0; call < 100; call++) {
        assert_true(rondo_direct_asks(&kind));
        rondo_direct_learn(&kind, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_map_each_others_memory),
        cmocka_unit_test(memory_that_a_process_cannot_map_uses_the_fallback),
        cmocka_unit_test(one_rank_that_cannot_map_stops_all_ranks),
        cmocka_unit_test(a_process_that_has_ended_is_an_error),
        cmocka_unit_test(refused_calls_ask_less_and_less_often),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
