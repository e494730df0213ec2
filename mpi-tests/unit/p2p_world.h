/*
 * Ranks with a GPU each, over the tests' CUDA driver (RONDO_CUDA_LIB), on top of transport_world.h: device
 * memory, P2P modes and the rounds that publish both. Also wraps the driver, to make any of its calls fail
 * and to count what it allocates and frees.
 */
#ifndef P2P_WORLD_H
#define P2P_WORLD_H

#include "transport_world.h"

#include <sys/wait.h>

#include "base/cuda_mem.h"
#include "net/control/control.h"
#include "net/transport/transport_p2p.h"

/* Shared by forked ranks. */
struct gpus {
    struct rondo_gpu_name name[MAX_RANKS];
    uint8_t way[MAX_RANKS][MAX_RANKS],
        found[MAX_RANKS][MAX_RANKS]; /* as the topology says; after each rank's check */
    int ordinal[MAX_RANKS];
    int no_vmm;
    struct rondo_shm_name segment;
};
static struct gpus *gpus;
static struct rondo_cuda_device gpu_of_rank[MAX_RANKS];

/* ---- the driver, watched ---- */

enum kind {
    NOTHING,
    BLOCK,
    HANDLE,
    ADDRESS,
    MAPPING,
    OPENED,
    PINNED,
    REGISTERED,
    STREAM,
    CONTEXT,
    KINDS_OF_THINGS
};
static struct {
    struct rondo_cuda real;
    int things[KINDS_OF_THINGS];
    int calls, fail_at; /* the call with this number fails; 0: none */
    uint8_t *lossy;     /* copies of cell words into this memory are lost */
    size_t lossy_bytes;
    int hang;       /* streams created from now on never complete their work */
    int hang_words; /* the same for streams that copy one word from now on */
    CUstream hung[MAX_RANKS * MAX_RANKS];
    int nhung;
} driver;
static _Thread_local int driver_rests; /* this thread's calls are not counted and do not fail */

/* X(Name, what it gives, what it takes, parameters, arguments): the calls of transports and their memory. */
#define P2P_CALLS(X)                                                                                         \
    X(MemAlloc, BLOCK, NOTHING, (CUdeviceptr * a, size_t b), (a, b))                                         \
    X(MemFree, NOTHING, BLOCK, (CUdeviceptr a), (a))                                                         \
    X(MemCreate, HANDLE, NOTHING,                                                                            \
      (CUmemGenericAllocationHandle * a, size_t b, const CUmemAllocationProp *c, unsigned long long d),      \
      (a, b, c, d))                                                                                          \
    X(MemRelease, NOTHING, HANDLE, (CUmemGenericAllocationHandle a), (a))                                    \
    X(MemAddressReserve, ADDRESS, NOTHING,                                                                   \
      (CUdeviceptr * a, size_t b, size_t c, CUdeviceptr d, unsigned long long e), (a, b, c, d, e))           \
    X(MemAddressFree, NOTHING, ADDRESS, (CUdeviceptr a, size_t b), (a, b))                                   \
    X(MemMap, MAPPING, NOTHING,                                                                              \
      (CUdeviceptr a, size_t b, size_t c, CUmemGenericAllocationHandle d, unsigned long long e),             \
      (a, b, c, d, e))                                                                                       \
    X(MemUnmap, NOTHING, MAPPING, (CUdeviceptr a, size_t b), (a, b))                                         \
    X(MemSetAccess, NOTHING, NOTHING, (CUdeviceptr a, size_t b, const CUmemAccessDesc *c, size_t d),         \
      (a, b, c, d))                                                                                          \
    X(MemGetAllocationGranularity, NOTHING, NOTHING,                                                         \
      (size_t * a, const CUmemAllocationProp *b, CUmemAllocationGranularity_flags c), (a, b, c))             \
    X(MemExportToShareableHandle, NOTHING, NOTHING,                                                          \
      (void *a, CUmemGenericAllocationHandle b, CUmemAllocationHandleType c, unsigned long long d),          \
      (a, b, c, d))                                                                                          \
    X(MemImportFromShareableHandle, HANDLE, NOTHING,                                                         \
      (CUmemGenericAllocationHandle * a, void *b, CUmemAllocationHandleType c), (a, b, c))                   \
    X(IpcGetMemHandle, NOTHING, NOTHING, (CUipcMemHandle * a, CUdeviceptr b), (a, b))                        \
    X(IpcOpenMemHandle, OPENED, NOTHING, (CUdeviceptr * a, CUipcMemHandle b, unsigned c), (a, b, c))         \
    X(IpcCloseMemHandle, NOTHING, OPENED, (CUdeviceptr a), (a))                                              \
    X(MemHostAlloc, PINNED, NOTHING, (void **a, size_t b, unsigned c), (a, b, c))                            \
    X(MemFreeHost, NOTHING, PINNED, (void *a), (a))                                                          \
    X(MemHostRegister, REGISTERED, NOTHING, (void *a, size_t b, unsigned c), (a, b, c))                      \
    X(MemHostUnregister, NOTHING, REGISTERED, (void *a), (a))                                                \
    X(MemHostGetDevicePointer, NOTHING, NOTHING, (CUdeviceptr * a, void *b, unsigned c), (a, b, c))          \
    X(MemcpyAsync, NOTHING, NOTHING, (CUdeviceptr a, CUdeviceptr b, size_t c, CUstream d), (a, b, c, d))     \
    X(MemsetD8Async, NOTHING, NOTHING, (CUdeviceptr a, unsigned char b, size_t c, CUstream d), (a, b, c, d)) \
    X(StreamCreateWithPriority, STREAM, NOTHING, (CUstream * a, unsigned b, int c), (a, b, c))               \
    X(StreamQuery, NOTHING, NOTHING, (CUstream a), (a))                                                      \
    X(StreamDestroy, NOTHING, STREAM, (CUstream a), (a))                                                     \
    X(DevicePrimaryCtxRetain, CONTEXT, NOTHING, (CUcontext * a, CUdevice b), (a, b))                         \
    X(DevicePrimaryCtxRelease, NOTHING, CONTEXT, (CUdevice a), (a))

/* Calls that only release things do not fail: no caller could react. */
#define WATCHED(Name, gives, takes, parameters, arguments)                              \
    static CUresult watched_##Name parameters                                           \
    {                                                                                   \
        CUresult result;                                                                \
        if ((takes) == NOTHING && !driver_rests &&                                      \
            __atomic_add_fetch(&driver.calls, 1, __ATOMIC_RELAXED) == driver.fail_at) { \
            return CUDA_ERROR_UNKNOWN;                                                  \
        }                                                                               \
        result = driver.real.Name arguments;                                            \
        if (result == CUDA_SUCCESS) {                                                   \
            __atomic_add_fetch(&driver.things[gives], 1, __ATOMIC_RELAXED);             \
            __atomic_sub_fetch(&driver.things[takes], 1, __ATOMIC_RELAXED);             \
        }                                                                               \
        return result;                                                                  \
    }
P2P_CALLS(WATCHED)

static void hang(CUstream stream)
{
    for (int i = 0; i < driver.nhung; i++) {
        if (driver.hung[i] == stream) {
            return;
        }
    }
    driver.hung[driver.nhung++] = stream;
}

static CUresult lossy_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    uint8_t *at = (uint8_t *)(uintptr_t)to;
    int lost = driver.lossy != NULL && bytes == 2 * sizeof(uint64_t) && at >= driver.lossy &&
               at < driver.lossy + driver.lossy_bytes;
    if (driver.hang_words && bytes == sizeof(uint64_t)) {
        hang(stream);
    }
    return lost ? CUDA_SUCCESS : watched_MemcpyAsync(to, from, bytes, stream);
}

static CUresult hanging_create(CUstream *stream, unsigned flags, int priority)
{
    CUresult result = watched_StreamCreateWithPriority(stream, flags, priority);
    if (driver.hang && result == CUDA_SUCCESS) {
        hang(*stream);
    }
    return result;
}

static CUresult hanging_query(CUstream stream)
{
    for (int i = 0; i < driver.nhung; i++) {
        if (driver.hung[i] == stream) {
            return CUDA_ERROR_NOT_READY;
        }
    }
    if (driver.real.StreamQuery(stream) == CUDA_ERROR_NOT_READY) { /* repeated queries count as one call */
        return CUDA_ERROR_NOT_READY;
    }
    return watched_StreamQuery(stream);
}

static CUresult hanging_destroy(CUstream stream)
{
    for (int i = 0; i < driver.nhung; i++) {
        if (driver.hung[i] == stream) { /* another stream may get its address */
            driver.hung[i] = driver.hung[--driver.nhung];
            break;
        }
    }
    return watched_StreamDestroy(stream);
}

/* Call before anything else in main(). */
static inline void choose_driver(void)
{
    const char *build = getenv("builddir");
    char library[4096];
    snprintf(library, sizeof(library), "%.4000s/.libs/libfakecuda.so", build != NULL ? build : ".");
    setenv("RONDO_CUDA_LIB", library, 0);
}

/* The table that the library uses. */
static inline struct rondo_cuda *table(void)
{
    const char *why = "";
    struct rondo_cuda *cuda = (struct rondo_cuda *)(uintptr_t)rondo_cuda(&why);
    if (cuda == NULL) {
        fprintf(stderr, "the tests' driver: %s\n", why);
        abort();
    }
    return cuda;
}

static inline void watch_once(void)
{
    driver.real = *table();
#define WATCH(Name, gives, takes, parameters, arguments) table()->Name = watched_##Name;
    P2P_CALLS(WATCH)
    table()->MemcpyAsync = lossy_copy;
    table()->StreamCreateWithPriority = hanging_create;
    table()->StreamQuery = hanging_query;
    table()->StreamDestroy = hanging_destroy;
}

static inline void watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_once);
}

/* Everything that the driver allocated has been freed. */
static inline void check_nothing_left(void)
{
    for (int i = NOTHING + 1; i < KINDS_OF_THINGS; i++) {
        if (driver.things[i] != 0) {
            fprintf(stderr, "%d things of kind %d are left\n", driver.things[i], i);
        }
        CHECK(driver.things[i] == 0);
    }
}

/* ---- the world ---- */

static inline void gpus_before(struct world *w, struct rank *r)
{
    struct rondo_cuda_device *device = &gpu_of_rank[r->net.rank];
    (void)w;
    watch();
    driver_rests = 1; /* the loader's tests cover failures here */
    CHECK_OK(rondo_cuda_open(gpus->ordinal[r->net.rank], device));
    driver_rests = 0;
    device->vmm = device->vmm && !gpus->no_vmm;
    r->net.device = device;
    r->net.gpus = gpus->name;
    r->net.p2p_modes = gpus->found[r->net.rank];
    memcpy(r->net.p2p_modes, gpus->way[r->net.rank], sizeof(gpus->way[0]));
}

static inline void gpus_after(struct world *w, struct rank *r)
{
    (void)w;
    rondo_cuda_close(&gpu_of_rank[r->net.rank]);
}

/* Combine what all ranks found, as creation does. */
static inline void agree(struct world *w, int rank)
{
    for (int i = 0; i < w->nranks; i++) {
        if (gpus->found[i][rank] == RONDO_P2P_MODE_BROKEN) {
            gpus->found[rank][i] = RONDO_P2P_MODE_BROKEN;
        }
    }
}

static inline void check_until_done(struct rank *r)
{
    int64_t late = rondo_now_ns() + deadline_ns;
    rondo_status status;
    while ((status = rondo_net_check(&r->net)) == RONDO_IN_PROGRESS) {
        CHECK(rondo_now_ns() < late);
        sched_yield();
    }
    CHECK_OK(status);
}

static inline void gpus_between(struct world *w, struct rank *r)
{
    int self = r->net.rank, nrecv = 0, peers[MAX_LINKS];
    rondo_net_gpu(&r->net, &gpus->name[self]);
    pthread_barrier_wait(&w->barrier);
    check_until_done(r);
    pthread_barrier_wait(&w->barrier);
    agree(w, self);
    pthread_barrier_wait(&w->barrier);
    for (int i = 0; i < w->nranks; i++) {
        if (i != self) {
            peers[nrecv++] = i;
        }
    }
    CHECK_OK(rondo_net_expect(&r->net, peers, nrecv, 0, w->protos));
}

/* ngpus: rank r uses device r % ngpus. Ranks are threads of one process, or processes. */
static inline struct world *gpus_new(int nranks, int ngpus, enum rondo_p2p_mode way, int processes)
{
    struct world *w = world_new(nranks, RONDO_SHM_MODE_MEMFD, 1024);
    gpus = mmap(NULL, sizeof(*gpus), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(gpus != MAP_FAILED);
    for (int i = 0; i < nranks; i++) {
        gpus->ordinal[i] = i % ngpus;
        w->peers[i].device = i % ngpus;
        w->peers[i].process_hash = processes ? (uint64_t)i + 1 : 1;
        for (int k = 0; k < nranks; k++) {
            gpus->way[i][k] = (uint8_t)(i == k ? RONDO_P2P_MODE_NONE : way);
        }
    }
    w->before = gpus_before;
    w->between = gpus_between;
    w->after = gpus_after;
    return w;
}

static inline void gpus_free(struct world *w)
{
    munmap(gpus, sizeof(*gpus));
    world_free(w);
}

static inline void run_processes(struct world *w)
{
    pid_t pid[MAX_RANKS];
    int status;
    fflush(NULL);
    for (int i = 0; i < w->nranks; i++) {
        if ((pid[i] = fork()) == 0) {
            alarm(60);
            w->peers[i].pid = getpid();
            rank_live(w, i);
            check_nothing_left();
            _exit(0);
        }
    }
    for (int i = 0; i < w->nranks; i++) {
        CHECK(waitpid(pid[i], &status, 0) == pid[i] && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

/* Open and offer for all ranks, one after the other in this thread. */
static inline void ranks_open(struct world *w)
{
    for (int i = 0; i < w->nranks; i++) {
        CHECK_OK(rank_open(w, i, MAX_LINKS));
        rondo_net_gpu(&w->rank[i].net, &gpus->name[i]);
    }
    for (int i = 0; i < w->nranks; i++) {
        check_until_done(&w->rank[i]);
    }
    for (int i = 0; i < w->nranks; i++) {
        agree(w, i);
    }
}

static inline void ranks_close_gpus(struct world *w)
{
    ranks_close(w);
    gpus_free(w);
}

/* ---- bodies ---- */

static inline int is_p2p(const struct end *end) { return strncmp(end->link.conn.via, "P2P/", 4) == 0; }

/* The slots lie in device memory at the end that the P2P mode says, separate for each conn, and carry
 * data; other pairs use shared memory. */
static inline void body_gpus(struct world *w, struct rank *r)
{
    for (int i = 0; i < r->nends; i++) {
        const struct end *end = &r->ends[i];
        const struct rondo_conn *conn = &end->link.conn;
        enum rondo_p2p_mode way = (enum rondo_p2p_mode)gpus->found[r->net.rank][end->link.peer];
        char via[32];
        snprintf(via, sizeof(via), "P2P/%s%s",
                 w->peers[r->net.rank].process_hash == w->peers[end->link.peer].process_hash ? "direct"
                                                                                             : "IPC",
                 way == RONDO_P2P_MODE_READ ? "/read" : "");
        CHECK(strcmp(conn->via, way == RONDO_P2P_MODE_BROKEN ? "SHM/memfd" : via) == 0);
        CHECK((end->link.tail == NULL) == is_p2p(end) && conn->step == 1 && conn->seen == 1);
        CHECK(conn->tail->tail == 1 && conn->head->head == 1);
    }
    conns_are_apart(w, r, r->ends, r->nends, w->protos);
    stream(r, r->ends, r->nends, SLICES);
}

#endif
