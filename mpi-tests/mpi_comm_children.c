/* mpi_comm: splits, shrinks, and creations that overlap. */
#include <string.h>

#include "comm/comm.h"
#include "mpi_comm.h"

static void split_once(rondo_comm *world, uint64_t seed)
{
    uint64_t hash = test_hash(seed, 5, (uint64_t)test.rank);
    int color = (int)(hash % 4) - 1, key = (int)(hash >> 20 & 7) - 4, count = 0, rank = -1, n = 0, at = -1;
    int members[TEST_MAX_RANKS], want[TEST_MAX_RANKS];
    MPI_Comm oracle;
    rondo_comm *child = (rondo_comm *)&seed;
    MPI_Comm_split(MPI_COMM_WORLD, color < 0 ? MPI_UNDEFINED : color, key, &oracle);
    TEST_MUST(rondo_comm_split(world, color, key, NULL, &child), world);
    if (color < 0) {
        test_check(child == NULL, "a rank without a color got a communicator");
        return;
    }
    TEST_MUST(rondo_comm_count(child, &count), child);
    TEST_MUST(rondo_comm_rank(child, &rank), child);
    MPI_Comm_size(oracle, &n);
    MPI_Comm_rank(oracle, &at);
    if (test_check(count == n && rank == at, "color %d, key %d: rank %d of %d, MPI has %d of %d", color, key,
                   rank, count, at, n)) {
        MPI_Allgather(&test.rank, 1, MPI_INT, want, 1, MPI_INT, oracle);
        TEST_MUST(rondo_all_gather(&test.rank, members, 1, RONDO_INT32, child, NULL), child);
        test_check(memcmp(members, want, (size_t)n * sizeof(int)) == 0,
                   "color %d: members or order differ from MPI's", color);
        verify(child, "split child");
    }
    destroy(child);
    MPI_Comm_free(&oracle);
}

void split_agrees_with_mpi(void)
{
    rondo_comm *world = create(MPI_COMM_WORLD);
    for (uint64_t round = 0; round < 6; round++) {
        split_once(world, round);
        verify(world, "parent after split");
    }
    destroy(world);
}

void children_outlive_their_parents(void)
{
    rondo_comm *world = create(MPI_COMM_WORLD), *child, *grandchild;
    TEST_MUST(rondo_comm_split(world, 0, -test.rank, NULL, &child), world);
    destroy(world);
    verify(child, "child after its parent");
    TEST_MUST(rondo_comm_split(child, test.rank % 2, 0, NULL, &grandchild), child);
    destroy(child);
    verify(grandchild, "grandchild after its parents");
    destroy(grandchild);
}

void shrink_leaves_a_rank_out(void)
{
    rondo_comm *world, *child = NULL;
    int out, count = 0, rank = -1;
    if (test.nranks < 2) {
        return;
    }
    world = create(MPI_COMM_WORLD);
    out = test.nranks / 2;
    if (test.rank != out) {
        TEST_MUST(rondo_comm_shrink(world, &out, 1, RONDO_SHRINK_DEFAULT, NULL, &child), world);
        TEST_MUST(rondo_comm_count(child, &count), child);
        TEST_MUST(rondo_comm_rank(child, &rank), child);
        test_check(count == test.nranks - 1 && rank == test.rank - (test.rank > out),
                   "rank %d of %d after rank %d left", rank, count, out);
        verify(child, "shrunk");
        destroy(child);
    }
    verify(world, "parent after shrink");
    destroy(world);
}

/* Same numbers, so that a call of a child is carried as well as the parent's. */
static void compare_models(const rondo_comm *child, const rondo_comm *parent, const char *what)
{
    const struct rondo_wiring *c = &child->ctx->wiring, *p = &parent->ctx->wiring;
    const struct rondo_layout *cl = &c->layout, *pl = &p->layout;
    test_check(memcmp(&c->calibration, &p->calibration, sizeof(c->calibration)) == 0,
               "%s: a copy %u MB/s, the parent has %u", what, c->calibration.copy, p->calibration.copy);
    test_check(cl->model.calibrated == pl->model.calibrated && cl->has_fixed == pl->has_fixed,
               "%s: calibrated %d, fixed %d, the parent %d, %d", what, cl->model.calibrated, cl->has_fixed,
               pl->model.calibrated, pl->has_fixed);
    test_check(memcmp(&cl->model, &pl->model, sizeof(cl->model)) == 0 &&
                   memcmp(&cl->fixed, &pl->fixed, sizeof(cl->fixed)) == 0,
               "%s: its model is not that of the parent", what);
}

void children_have_the_model_of_their_parent(void)
{
    rondo_comm *world = create(MPI_COMM_WORLD), *child, *grandchild, *shrunk;
    TEST_MUST(rondo_comm_split(world, 0, test.rank, NULL, &child), world);
    compare_models(child, world, "a split");
    TEST_MUST(rondo_comm_split(child, 0, test.rank, NULL, &grandchild), child);
    compare_models(grandchild, world, "a split of a split");
    TEST_MUST(rondo_comm_shrink(grandchild, NULL, 0, RONDO_SHRINK_DEFAULT, NULL, &shrunk), grandchild);
    compare_models(shrunk, world, "a shrink");
    verify(shrunk, "grandchild's shrink");
    destroy(shrunk);
    destroy(grandchild);
    destroy(child);
    destroy(world);
}

/* A poll of one creation moves the other, too, where the thread may call MPI at any time. */
void creations_are_polled_in_any_order(void)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *comm[2] = { NULL, NULL };
    double end = test_now() + 20;
    int level;
    MPI_Query_thread(&level);
    config.blocking = 0;
    config.mpi_progress = level == MPI_THREAD_SERIALIZED ? 1 : RONDO_CONFIG_DEFAULT;
    for (int i = 0; i < 2; i++) {
        rondo_status status = rondo_comm_create(MPI_COMM_WORLD, &config, &comm[i]);
        test_check(status == RONDO_IN_PROGRESS || status == RONDO_SUCCESS, "creation %d gave %s: %s", i,
                   rondo_status_string(status), rondo_last_error(NULL));
    }
    for (int i = 0; i < 2; i++) {
        int at = test.rank % 2 == 0 ? i : 1 - i;
        rondo_status error = RONDO_IN_PROGRESS;
        while (error == RONDO_IN_PROGRESS && test_now() < end) {
            TEST_MUST(rondo_comm_async_error(comm[at], &error), comm[at]);
        }
        if (!test_check(error == RONDO_SUCCESS, "creation %d: %s", at, rondo_status_string(error))) {
            test_die("a creation that does not block does not end");
        }
    }
    for (int i = 0; i < 2; i++) {
        verify(comm[i], "polled in another order");
        destroy(comm[i]);
    }
}
