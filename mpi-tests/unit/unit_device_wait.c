/* Calls of communicators with a GPU wait for nothing that may wait for them. The fake CUDA driver
 * (mpi-tests/fake_cuda.h) waits where hardware and driver do: for an idle device, in in-order queues, for room
 * in a queue. What waits in vain fails there after FAKE_CUDA_PATIENCE. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "comm/comm.h"
#include "device_world.h"

enum { COUNT = 600, RANKS = 2 };

/* What the test's thread has made for a rank, because nothing can be allocated while the device is busy. */
struct made {
    CUdeviceptr memory;
    rondo_comm *comm;
    int ran;
};
struct scene {
    struct made rank[RANKS];
    int shared;
    pthread_barrier_t all;
    void (*fn)(struct fake_rank *r, const struct device *d, struct made *made);
};

static struct scene *scene_of(const struct fake_rank *r) { return ((struct place *)r->arg)->arg; }

/* Rank 0 holds a stream of each device, so that none is idle until all ranks are through. */
static void while_devices_are_busy(struct fake_rank *r)
{
    struct scene *scene = scene_of(r);
    const struct device *d = device_of(r);
    struct made *made = &scene->rank[r->rank];
    CUstream busy;
    made->comm = r->comm;
    CU(cu()->MemAlloc(&made->memory, 4 * RANKS * COUNT * sizeof(int32_t)));
    CU(cu()->StreamCreateWithPriority(&busy, CU_STREAM_NON_BLOCKING, 0));
    if (r->rank == 0) {
        device_hold_begin();
    }
    pthread_barrier_wait(&scene->all);
    device_hold(busy);
    pthread_barrier_wait(&scene->all);
    scene->fn(r, d, made);
    pthread_barrier_wait(&scene->all);
    FAKE_CHECK(r, r->rank != 0 || device_held());
    pthread_barrier_wait(&scene->all);
    device_let_go();
    CU(cu()->StreamSynchronize(busy));
    pthread_barrier_wait(&scene->all);
    CU(cu()->StreamDestroy(busy));
    CU(cu()->MemFree(made->memory));
    FAKE_CHECK(r, made->ran);
}

static void busy_world(void (*fn)(struct fake_rank *r, const struct device *d, struct made *made))
{
    struct scene scene = { .fn = fn };
    for (scene.shared = 0; scene.shared < 2; scene.shared++) {
        memset(scene.rank, 0, sizeof(scene.rank));
        pthread_barrier_init(&scene.all, NULL, RANKS);
        device_ranks(RANKS, scene.shared, while_devices_are_busy, &scene);
        pthread_barrier_destroy(&scene.all);
    }
}

/* ---- an idle device ---- */

/* Connections of messages, memory for a call in place, and twice a graph with more works than its arguments
 * have room for. */
static void every_way(struct fake_rank *r, const struct device *d, struct made *made)
{
    void *x = (void *)(uintptr_t)made->memory;
    int32_t *y = (int32_t *)x + 2 * RANKS * COUNT;
    rondo_stream stream = RONDO_CUDA_STREAM(d->stream);
    struct device_graph graph;
    FAKE_OK(r, rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, r->comm, stream));
    FAKE_OK(r, rondo_all_to_all(x, y, COUNT, RONDO_INT32, r->comm, stream));
    FAKE_OK(r, rondo_all_to_all(x, x, COUNT, RONDO_INT32, r->comm, stream));
    for (int i = 0; i < 2; i++) {
        device_capture(d);
        FAKE_OK(r, rondo_group_start());
        for (int k = 0; k < 2 * RONDO_LAUNCH_INLINE; k++) {
            FAKE_OK(r, rondo_all_reduce(y, y, COUNT, RONDO_INT32, RONDO_MAX, r->comm, stream));
        }
        FAKE_OK(r, rondo_group_end());
        device_graph_make(d, &graph);
        device_graph_run(d, &graph, 2);
        device_graph_free(&graph);
        fake_sleep_ms(20); /* the driver tells from a thread of its own that the graph is gone */
        FAKE_OK(r, rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, r->comm, stream));
        CU(cu()->StreamSynchronize(d->stream));
    }
    made->ran = 1;
}

static void calls_do_not_wait_for_an_idle_device(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    busy_world(every_way);
}

/* A communicator is split off and destroyed; the next one gets its memory. */
static void split(struct fake_rank *r, const struct device *d, struct made *made)
{
    void *x = (void *)(uintptr_t)made->memory;
    for (int i = 0; i < 3; i++) {
        rondo_comm *child = made->comm;
        FAKE_OK(r,
                rondo_all_reduce(x, x, COUNT, RONDO_INT32, RONDO_SUM, child, RONDO_CUDA_STREAM(d->stream)));
        CU(cu()->StreamSynchronize(d->stream));
        if (i > 0) {
            FAKE_OK(r, rondo_comm_destroy(child));
        }
        made->comm = NULL;
        if (i < 2) {
            FAKE_OK(r, rondo_comm_split(r->comm, 0, r->rank, NULL, &made->comm));
        }
    }
    made->ran = 1;
}

/* Before the device is busy, so that there is memory to take over. */
static void split_once(struct fake_rank *r)
{
    rondo_comm *child = NULL;
    FAKE_OK(r, rondo_comm_split(r->comm, 0, r->rank, NULL, &child));
    FAKE_OK(r, rondo_comm_destroy(child));
    while_devices_are_busy(r);
}

static void communicators_pass_on_their_memory_while_the_device_is_busy(void **state)
{
    struct scene scene = { .fn = split };
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    for (scene.shared = 0; scene.shared < 2; scene.shared++) {
        memset(scene.rank, 0, sizeof(scene.rank));
        pthread_barrier_init(&scene.all, NULL, RANKS);
        device_ranks(RANKS, scene.shared, split_once, &scene);
        pthread_barrier_destroy(&scene.all);
    }
}

/* ---- kernels ---- */

/* The first launches of several kernels. */
static void first_launches(struct fake_rank *r, const struct device *d, struct made *made)
{
    void *x = (void *)(uintptr_t)made->memory;
    for (int op = RONDO_SUM; op <= RONDO_MIN; op++) {
        FAKE_OK(r, rondo_all_reduce(x, x, COUNT, RONDO_INT32, (rondo_op)op, r->comm,
                                    RONDO_CUDA_STREAM(d->stream)));
        CU(cu()->StreamSynchronize(d->stream));
    }
    made->ran = 1;
}

static void kernels_are_loaded_before_the_first_call(void **state)
{
    (void)state;
    fake_params(SMALL, "MAX_NCHANNELS", "2", NULL);
    setenv("FAKE_CUDA_LAZY", "1", 1);
    busy_world(first_launches);
    unsetenv("FAKE_CUDA_LAZY");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_do_not_wait_for_an_idle_device),
        cmocka_unit_test(communicators_pass_on_their_memory_while_the_device_is_busy),
        cmocka_unit_test(kernels_are_loaded_before_the_first_call),
    };
    setenv("FAKE_CUDA_IDLE", "1", 1);
    setenv("FAKE_CUDA_PATIENCE", "3", 1);
    fake_watchdog(120);
    device_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
