/* Shrink, with threads as ranks. */
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/types.h"
#include "comm/comm.h"
#include "net/control/control_impl.h"
#include "child_check.h"

static void shrink_around(struct fake_rank *r)
{
    int leaves[2] = { 1, 1 }, members[16], n = 0;
    rondo_comm *child = NULL;
    for (int q = 0; q < r->nranks; q++) {
        if (q != 1) {
            members[n++] = q;
        }
    }
    if (r->rank == 1) {
        return; /* alive, but does not call */
    }
    FAKE_OK(r, rondo_comm_shrink(r->comm, leaves, 2, RONDO_SHRINK_DEFAULT, NULL, &child));
    check_child(r, child, members, n);
    /* It has the parent's records, and did not ask for new ones. */
    FAKE_CHECK(r, child->ctx->wiring.names == r->comm->ctx->wiring.names);
    FAKE_OK(r, rondo_comm_destroy(child));
}

static void shrink_can_exclude_a_live_rank(void **state)
{
    (void)state;
    fake_params("INIT_TIMEOUT", "5s", NULL);
    for (int n = 2; n <= 5; n++) {
        fake_ranks(n, shrink_around, NULL);
    }
}

/* Rank 0 aborts; the other ranks find out in a call and continue without it. */
static void shrink_after_abort(struct fake_rank *r)
{
    int x[500] = { 0 }, gone = 0, members[16], again[1] = { 1 };
    rondo_comm *child = NULL, *small = NULL;
    rondo_status status = RONDO_SUCCESS;
    if (r->rank == 0) {
        FAKE_OK(r, rondo_all_reduce(x, x, 500, RONDO_INT32, RONDO_SUM, r->comm, NULL));
        FAKE_OK(r, rondo_comm_abort(r->comm));
        r->comm = NULL;
        return;
    }
    while (status == RONDO_SUCCESS) {
        status = rondo_all_reduce(x, x, 500, RONDO_INT32, RONDO_SUM, r->comm, NULL);
    }
    FAKE_CHECK(r, status == RONDO_REMOTE_ERROR, "%s", rondo_last_error(r->comm));
    FAKE_ERROR(r, rondo_comm_shrink(r->comm, &gone, 1, RONDO_SHRINK_DEFAULT, NULL, &child),
               RONDO_REMOTE_ERROR, "aborted");
    FAKE_OK(r, rondo_comm_shrink(r->comm, &gone, 1, RONDO_SHRINK_ABORT, NULL, &child));
    for (int q = 1; q < r->nranks; q++) {
        members[q - 1] = q;
    }
    check_child(r, child, members, r->nranks - 1);
    if (r->rank != 2) { /* shrink the child as well: its rank 1 is the parent's rank 2 */
        FAKE_OK(r, rondo_comm_shrink(child, again, 1, RONDO_SHRINK_ABORT, NULL, &small));
        members[1] = members[0];
        members[2] = 3;
        check_child(r, small, members + 1, r->nranks - 2);
        FAKE_OK(r, rondo_comm_destroy(small));
    }
    FAKE_OK(r, rondo_comm_destroy(child));
}

static void shrink_works_after_an_abort(void **state)
{
    (void)state;
    fake_params("INIT_TIMEOUT", "10s", NULL);
    for (int round = 0; round < 5; round++) {
        fake_ranks(4, shrink_after_abort, NULL);
    }
}

/* The first shrink excludes rank 3, the second rank 2: these ranks have counted fewer shrinks than others. */
static void shrink_others_out(struct fake_rank *r)
{
    static const int leaves[] = { 3, 2, 3, 3, 2, 0 };
    for (size_t i = 0; i < RONDO_COUNTOF(leaves); i++) {
        rondo_comm *child;
        int members[3], n = 0;
        for (int m = 0; m < 4; m++) {
            if (m != leaves[i]) {
                members[n++] = m;
            }
        }
        if (r->rank == leaves[i]) {
            continue;
        }
        FAKE_OK(r, rondo_comm_shrink(r->comm, &leaves[i], 1, RONDO_SHRINK_DEFAULT, NULL, &child));
        check_child(r, child, members, n);
        FAKE_OK(r, rondo_comm_destroy(child));
    }
}

static void shrinks_of_a_parent_may_exclude_different_ranks(void **state)
{
    (void)state;
    fake_params("INIT_TIMEOUT", "30s", NULL);
    fake_ranks(4, shrink_others_out, NULL);
}

/* Room for n numbers that ends where nothing is mapped. It is never freed. */
static int *end_of_a_page(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0);
    return (int *)(void *)(pages + page) - n;
}

static void wrong_shrinks(struct fake_rank *r)
{
    int self = r->rank, nobody = 9, others[] = { (r->rank + 1) % 3, (r->rank + 2) % 3 }, other = others[0];
    int *last = end_of_a_page(3);
    rondo_comm *child = NULL;
    rondo_stream stream;
    int got = -1;
    FAKE_OK(r, rondo_stream_create(&stream));
    if (r->rank == 0) { /* it goes on */
        FAKE_OK(r, rondo_recv(&got, 1, RONDO_INT32, 1, r->comm, stream));
    }
    FAKE_ERROR(r, rondo_comm_shrink(r->comm, &nobody, 1, RONDO_SHRINK_ABORT, NULL, &child),
               RONDO_INVALID_ARGUMENT, "no such rank");
    if (r->rank == 1) {
        FAKE_OK(r, rondo_send(&self, 1, RONDO_INT32, 0, r->comm, NULL));
    }
    FAKE_OK(r, rondo_stream_synchronize(stream));
    FAKE_CHECK(r, got == (r->rank == 0 ? 1 : -1), "received %d", got);
    FAKE_OK(r, rondo_stream_destroy(stream));
    last[0] = last[1] = last[2] = other;
    FAKE_ERROR(r, rondo_comm_shrink(r->comm, &self, 1, RONDO_SHRINK_DEFAULT, NULL, &child),
               RONDO_INVALID_ARGUMENT, "do not call");
    FAKE_ERROR(r, rondo_comm_shrink(r->comm, &nobody, 1, RONDO_SHRINK_DEFAULT, NULL, &child),
               RONDO_INVALID_ARGUMENT, "no such rank");
    FAKE_ERROR(r, rondo_comm_shrink(r->comm, NULL, 1, RONDO_SHRINK_DEFAULT, NULL, &child),
               RONDO_INVALID_ARGUMENT, "NULL");
    /* Nothing is mapped behind these three entries. */
    FAKE_ERROR(r, rondo_comm_shrink(r->comm, last, -1, RONDO_SHRINK_DEFAULT, NULL, &child),
               RONDO_INVALID_ARGUMENT, "has -1 ranks");
    FAKE_ERROR(r, rondo_comm_shrink(r->comm, last, INT_MAX, RONDO_SHRINK_DEFAULT, NULL, &child),
               RONDO_INVALID_ARGUMENT, "has 2147483647 ranks");
    FAKE_ERROR(r, rondo_comm_shrink(r->comm, last, 4, RONDO_SHRINK_DEFAULT, NULL, &child),
               RONDO_INVALID_ARGUMENT, "has 4 ranks, the communicator 3");
    FAKE_ERROR(r, rondo_comm_shrink(r->comm, &other, 1, 2, NULL, &child), RONDO_INVALID_ARGUMENT, "flags 2");
    FAKE_ERROR(r, rondo_comm_shrink(r->comm, &other, 1, RONDO_SHRINK_DEFAULT, NULL, NULL),
               RONDO_INVALID_ARGUMENT, "NULL");
    FAKE_OK(r, rondo_comm_shrink(r->comm, others, 2, RONDO_SHRINK_DEFAULT, NULL, &child)); /* each alone */
    check_child(r, child, &self, 1);
    FAKE_OK(r, rondo_comm_destroy(child));
}

static void wrong_shrinks_are_errors(void **state)
{
    (void)state;
    fake_params(NULL);
    fake_ranks(3, wrong_shrinks, NULL);
}

/* Ranks 0 and 1 leave a call that rank 2 waits in, and go on without it. */
static void shrink_away_from_a_call(struct fake_rank *r)
{
    enum { COUNT = 1 << 16 };
    const int members[2] = { 0, 1 }, gone = 2;
    int *x = calloc(COUNT, sizeof(*x));
    rondo_comm *child = NULL;
    rondo_stream stream;
    FAKE_OK(r, rondo_stream_create(&stream));
    if (r->rank == gone) {
        pthread_barrier_wait(r->arg); /* the others have begun it */
        FAKE_ERROR(r, rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, r->comm, NULL),
                   RONDO_REMOTE_ERROR, "RONDO_SHRINK_ABORT");
    } else {
        FAKE_OK(r, rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, r->comm, stream));
        pthread_barrier_wait(r->arg);
        FAKE_OK(r, rondo_comm_shrink(r->comm, &gone, 1, RONDO_SHRINK_ABORT, NULL, &child));
        check_child(r, child, members, 2);
        FAKE_OK(r, rondo_comm_destroy(child));
        (void)rondo_stream_synchronize(stream);
    }
    rondo_stream_destroy(stream);
    free(x);
}

static void a_shrink_that_drops_calls_ends_them_on_all_ranks(void **state)
{
    pthread_barrier_t meet;
    (void)state;
    fake_params("INIT_TIMEOUT", "10s", "TIMEOUT", "5s", NULL);
    pthread_barrier_init(&meet, NULL, 3);
    fake_ranks(3, shrink_away_from_a_call, &meet);
    pthread_barrier_destroy(&meet);
}

struct parents_end {
    pthread_barrier_t meet;
    int enters; /* rank 1 calls the shrink that fails, too */
};

/* The parent ends while rank 0 waits in a shrink that rank 1 has yet to call. */
static void shrink_as_the_parent_ends(struct fake_rank *r)
{
    struct parents_end *end = r->arg;
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *child = NULL, *small = NULL;
    rondo_status error;
    const int members[2] = { 0, 1 }, gone = 2;
    config.blocking = 0;
    if (r->rank == 0) {
        error = rondo_comm_shrink(r->comm, &gone, 1, RONDO_SHRINK_DEFAULT, &config, &child);
        FAKE_CHECK(r, error == RONDO_IN_PROGRESS, "without rank 1: %s", rondo_status_string(error));
    }
    pthread_barrier_wait(&end->meet);
    if (r->rank == gone) {
        rondo_control_end(r->comm->ctx->wiring.control, RONDO_REMOTE_ERROR, gone, RONDO_LOSS_DEAD,
                          "rank 2 of the parent exited");
    }
    pthread_barrier_wait(&end->meet);
    if (r->rank == 0) {
        error = poll_child(child);
        FAKE_CHECK(r, error == RONDO_REMOTE_ERROR, "%s", rondo_status_string(error));
        FAKE_OK(r, rondo_comm_abort(child));
    } else if (r->rank == 1 && end->enters) {
        FAKE_ERROR(r, rondo_comm_shrink(r->comm, &gone, 1, RONDO_SHRINK_DEFAULT, NULL, &small),
                   RONDO_REMOTE_ERROR, "rank 2 of the parent exited");
    }
    pthread_barrier_wait(&end->meet);
    if (r->rank != gone) {
        FAKE_OK(r, rondo_comm_shrink(r->comm, &gone, 1, RONDO_SHRINK_ABORT, NULL, &small));
        check_child(r, small, members, 2);
        FAKE_OK(r, rondo_comm_destroy(small));
    }
    FAKE_OK(r, rondo_comm_abort(r->comm));
    r->comm = NULL;
}

static void shrinks_meet_after_one_that_the_parents_end_refused(void **state)
{
    struct parents_end end;
    (void)state;
    fake_params("INIT_TIMEOUT", "10s", NULL);
    pthread_barrier_init(&end.meet, NULL, 3);
    for (end.enters = 0; end.enters < 2; end.enters++) {
        fake_ranks(3, shrink_as_the_parent_ends, &end);
    }
    pthread_barrier_destroy(&end.meet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shrink_can_exclude_a_live_rank),
        cmocka_unit_test(shrink_works_after_an_abort),
        cmocka_unit_test(shrinks_of_a_parent_may_exclude_different_ranks),
        cmocka_unit_test(wrong_shrinks_are_errors),
        cmocka_unit_test(a_shrink_that_drops_calls_ends_them_on_all_ranks),
        cmocka_unit_test(shrinks_meet_after_one_that_the_parents_end_refused),
    };
    fake_watchdog(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
