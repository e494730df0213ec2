#include "gpu_world.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "base/param.h"

enum { SPINS = 2000 }; /* spins before a waiting rank yields */

struct gpu_team {
    int n, here;
    unsigned round;
    double given[GPU_MOST_RANKS];
};

struct seat {
    struct gpu_rank rank;
    rondo_local *local;
    gpu_rank_fn *fn;
    pthread_t thread;
};

static int by_mpi; /* ranks are processes */

static int begin(void)
{
    const char *why = "";
    if (test_device_begin(0, &why) < 0) {
        if (test.rank == 0) {
            printf("skipped: %s\n", why);
        }
        return GPU_SKIPPED;
    }
    return 0;
}

int gpu_begin(const char *program)
{
    test_init_plain(program);
    test.rank = 0;
    /* Streams that share a hardware queue wait for one another's kernels, so ask for the most queues. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    return begin();
}

int gpu_begin_mpi(const char *program)
{
    int status;
    by_mpi = 1;
    test_init(program, MPI_THREAD_SINGLE);
    status = begin();
    if (status != 0) {
        MPI_Finalize();
    }
    return status;
}

int gpu_end(void)
{
    test_device_end();
    return by_mpi ? test_finish() : test_finish_plain();
}

void gpu_meet(const struct gpu_rank *r)
{
    struct gpu_team *team = r->team;
    if (by_mpi) {
        MPI_Barrier(MPI_COMM_WORLD);
        return;
    }
    unsigned round = __atomic_load_n(&team->round, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&team->here, 1, __ATOMIC_ACQ_REL) == team->n) {
        __atomic_store_n(&team->here, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&team->round, round + 1, __ATOMIC_RELEASE);
        return;
    }
    for (unsigned spins = 0; __atomic_load_n(&team->round, __ATOMIC_ACQUIRE) == round; spins++) {
        if (spins >= SPINS) {
            sched_yield();
        }
    }
}

double gpu_most(const struct gpu_rank *r, double mine)
{
    double most = mine;
    if (by_mpi) {
        MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        return most;
    }
    r->team->given[r->rank] = mine;
    gpu_meet(r);
    for (int i = 0; i < r->nranks; i++) {
        most = r->team->given[i] > most ? r->team->given[i] : most;
    }
    gpu_meet(r);
    return most;
}

static void *seat_main(void *arg)
{
    struct seat *seat = arg;
    struct gpu_rank *r = &seat->rank;
    rondo_config config = RONDO_CONFIG_INIT;
    struct rondo_cuda_device device;
    config.device = 0;
    config.allow_shared_gpu = 1;
    TEST_MUST(rondo_cuda_open(config.device, &device), NULL);
    TEST_MUST(rondo_cuda_enter(&device), NULL);
    if (by_mpi) {
        TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, &config, &r->comm), NULL);
    } else {
        TEST_MUST(rondo_comm_create_local(seat->local, r->rank, &config, &r->comm), NULL);
    }
    r->stream = test_device_stream_new();
    gpu_meet(r);
    seat->fn(r);
    gpu_meet(r); /* freeing memory waits for all kernels, so meet first */
    test_device_stream_free(r->stream);
    TEST_MUST(rondo_comm_destroy(r->comm), NULL);
    rondo_cuda_leave();
    rondo_cuda_close(&device);
    return NULL;
}

void gpu_ranks_run(int n, gpu_rank_fn *fn, void *arg)
{
    struct gpu_team team = { .n = n };
    struct seat seat[GPU_MOST_RANKS];
    rondo_local *local;
    if (by_mpi) {
        seat[0] = (struct seat){ .rank = { .rank = test.rank, .nranks = test.nranks, .leads = 1, .arg = arg },
                                 .fn = fn };
        seat_main(&seat[0]);
        return;
    }
    TEST_MUST(rondo_local_create(n, &local), NULL);
    for (int i = 0; i < n; i++) {
        seat[i] =
            (struct seat){ .rank = { .rank = i, .nranks = n, .leads = i == 0, .team = &team, .arg = arg },
                           .local = local,
                           .fn = fn };
        if (pthread_create(&seat[i].thread, NULL, seat_main, &seat[i]) != 0) {
            test_die("cannot create the thread of rank %d of %d", i, n);
        }
    }
    for (int i = 0; i < n; i++) {
        pthread_join(seat[i].thread, NULL);
    }
    TEST_MUST(rondo_local_destroy(local), NULL);
}

void *gpu_driver_call(const char *name)
{
    const char *library = rondo_params()->cuda_lib;
    void *driver = dlopen(library, RTLD_NOW | RTLD_NOLOAD),
         *address = driver != NULL ? dlsym(driver, name) : NULL;
    if (address == NULL) {
        test_die("the CUDA driver (%s) has no %s", library, name);
    }
    dlclose(driver);
    return address;
}
