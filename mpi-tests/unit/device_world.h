/* Ranks are threads with a GPU each (or one GPU for all), on the driver that RONDO_CUDA_LIB names, fake or
 * real. Buffers of calls with known results (fake_ranks.h) have a mirror in device memory. */
#ifndef DEVICE_WORLD_H
#define DEVICE_WORLD_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cuda.h"
#include "fake_ranks.h"
#include "kern/cuda/kernels.h"
#include "init/node.h"

/* Small buffers: a few KiB go several times around the slots. */
#define SMALL "BUFFSIZE", "4K", "LL_BUFFSIZE", "4K", "LL128_BUFFSIZE", "8K"

enum { DEVICE_GUARD = 256 }; /* as in fake_calls.c, on both sides */

static inline const struct rondo_cuda *cu(void)
{
    const char *why = "";
    const struct rondo_cuda *cuda = rondo_cuda(&why);
    if (cuda == NULL) {
        fprintf(stderr, "the tests' driver: %s\n", why);
        abort();
    }
    return cuda;
}

#define CU(call)                                                                         \
    do {                                                                                 \
        CUresult result_ = (call);                                                       \
        if (result_ != CUDA_SUCCESS) {                                                   \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, (int)result_); \
            abort();                                                                     \
        }                                                                                \
    } while (0)

/* A rank's device, whose context is current in this thread, and a stream. */
struct device {
    struct rondo_cuda_device gpu;
    CUstream stream;
};

static inline void device_open(struct device *d, int ordinal)
{
    if (rondo_cuda_open(ordinal, &d->gpu) != RONDO_SUCCESS || rondo_cuda_enter(&d->gpu) != RONDO_SUCCESS) {
        fprintf(stderr, "%s\n", rondo_last_error(NULL));
        abort();
    }
    CU(cu()->StreamCreateWithPriority(&d->stream, CU_STREAM_NON_BLOCKING, 0));
}

static inline void device_close(struct device *d)
{
    CU(cu()->StreamDestroy(d->stream));
    rondo_cuda_leave();
    rondo_cuda_close(&d->gpu);
}

static inline rondo_config device_config(int ordinal)
{
    rondo_config config = RONDO_CONFIG_INIT;
    config.device = ordinal;
    return config;
}

/* A rank's memory to take buffers from, if it has any (unit_device_direct). */
static __thread struct {
    CUdeviceptr base;
    size_t bytes, used;
    int live;
} device_pool;

static inline CUdeviceptr device_new(size_t bytes)
{
    CUdeviceptr memory;
    if (device_pool.base != 0 && device_pool.used + bytes <= device_pool.bytes) {
        memory = device_pool.base + device_pool.used;
        device_pool.used += rondo_round_up(bytes + 1, RONDO_CTRL_ALIGN);
        device_pool.live++;
        return memory;
    }
    CU(cu()->MemAlloc(&memory, bytes > 0 ? bytes : 1));
    return memory;
}

static inline void device_delete(CUdeviceptr memory)
{
    if (device_pool.base == 0 || memory - device_pool.base >= device_pool.bytes) {
        CU(cu()->MemFree(memory));
    } else if (--device_pool.live == 0) {
        device_pool.used = 0;
    }
}

/* The copies need no pinned memory, because the test waits. */
static inline void device_put(const struct device *d, CUdeviceptr to, const void *from, size_t bytes)
{
    if (bytes > 0) {
        CU(cu()->MemcpyAsync(to, (CUdeviceptr)(uintptr_t)from, bytes, d->stream));
        CU(cu()->StreamSynchronize(d->stream));
    }
}

static inline void device_get(const struct device *d, void *to, CUdeviceptr from, size_t bytes)
{
    if (bytes > 0) {
        CU(cu()->MemcpyAsync((CUdeviceptr)(uintptr_t)to, from, bytes, d->stream));
        CU(cu()->StreamSynchronize(d->stream));
    }
}

/* ---- streams on hold ---- */

static int device_gone_on; /* atomic; 0: streams on hold stay so */

static inline void device_hold_it(void *arg)
{
    double end = fake_now() + 30;
    (void)arg;
    while (!__atomic_load_n(&device_gone_on, __ATOMIC_ACQUIRE) && fake_now() < end) {
        fake_sleep_ms(1);
    }
    __atomic_fetch_add(&device_gone_on, 1, __ATOMIC_ACQ_REL);
}

/* Streams can be put on hold from here on. */
static inline void device_hold_begin(void) { __atomic_store_n(&device_gone_on, 0, __ATOMIC_RELEASE); }
/* The stream's later work waits until device_release, or for 30 s. */
static inline void device_hold(CUstream stream) { CU(cu()->LaunchHostFunc(stream, device_hold_it, NULL)); }
static inline void device_let_go(void) { __atomic_store_n(&device_gone_on, 1, __ATOMIC_RELEASE); }
/* @return 0: streams were released, or one went on after its time. */
static inline int device_held(void) { return !__atomic_load_n(&device_gone_on, __ATOMIC_ACQUIRE); }

/* ---- ranks ---- */

static char library[4096]; /* the driver */

/* Open the driver and the kernel library once, before other parameters are set. */
static inline void device_driver(void)
{
    const char *given = getenv("RONDO_CUDA_LIB"), *builddir = getenv("builddir"), *why = NULL;
    snprintf(library, sizeof(library), "%s%s",
             given != NULL      ? given
             : builddir != NULL ? builddir
                                : ".",
             given != NULL ? "" : "/.libs/libfakecuda.so");
    setenv("FAKE_CUDA_DEVICES", "4", 0);
    fake_params("CUDA_LIB", library, "KERNELS_LIB", library, NULL);
    if (rondo_kernels_image(&why) == NULL) {
        fprintf(stderr, "%s\n", why);
        abort();
    }
    (void)cu();
}

/* ---- the machine ---- */

/* Four GPUs behind one CPU, on one NVLink switch. */
#define DEVICE_GPU_TEXT(ordinal, bus)                                                                \
    "<pci busid=\"0000:" bus                                                                         \
    ":00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"" ordinal \
    "\" sm=\"90\"><nvlink target=\"fffffff:ffff:ff\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>"
static const char device_machine_text[] __attribute__((unused)) =
    "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\" arch=\"x86_64\" vendor=\"GenuineIntel\" "
    "familyid=\"6\" modelid=\"207\">" DEVICE_GPU_TEXT("0", "17") DEVICE_GPU_TEXT("1", "27")
        DEVICE_GPU_TEXT("2", "37") DEVICE_GPU_TEXT("3", "47") "</cpu></system>\n";

/* A file with that text for RONDO_TOPO_FILE, which applies from here on; and the end of both. */
static inline __attribute__((unused)) const char *device_machine(const char *text)
{
    static char path[32];
    int fd;
    snprintf(path, sizeof(path), "/tmp/rondo-machine.XXXXXX");
    fd = mkstemp(path);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        abort();
    }
    close(fd);
    rondo_node_forget_machine();
    return path;
}
static inline __attribute__((unused)) void device_machine_end(const char *path)
{
    rondo_node_forget_machine();
    unlink(path);
}

/* ---- how ranks get their GPUs ---- */

struct setup {
    int shared; /* all have GPU 0 */
    fake_rank_fn *fn;
    void *arg;
};

/* What r->arg of a rank's function points to. */
struct place {
    struct device device;
    void *arg;
};

static inline const struct device *device_of(const struct fake_rank *r)
{
    return &((struct place *)r->arg)->device;
}

static inline void with_device(struct fake_rank *r)
{
    const struct setup *setup = r->arg;
    struct place place = { .arg = setup->arg };
    rondo_config config = device_config(setup->shared ? 0 : r->rank);
    config.allow_shared_gpu = setup->shared;
    device_open(&place.device, config.device);
    if (rondo_comm_create_local(r->local, r->rank, &config, &r->comm) != RONDO_SUCCESS) {
        fake_fail(r, __FILE__, __LINE__, "create", ": %s", rondo_last_error(NULL));
    } else {
        r->arg = &place;
        setup->fn(r);
        if (r->failure[0] != '\0' && r->comm != NULL) {
            rondo_comm_abort(r->comm);
        } else if (r->comm != NULL && rondo_comm_destroy(r->comm) != RONDO_SUCCESS) {
            fake_fail(r, __FILE__, __LINE__, "destroy", ": %s", rondo_last_error(NULL));
        }
    }
    device_close(&place.device);
}

static inline void device_ranks(int n, int shared, fake_rank_fn *fn, void *arg)
{
    struct setup setup = { .shared = shared, .fn = fn, .arg = arg };
    fake_ranks_bare(n, with_device, &setup);
}

/* One thread has all ranks, each on its own GPU. */
static inline __attribute__((unused)) rondo_local *device_one_thread(int n, rondo_comm **comm)
{
    rondo_local *local = NULL;
    rondo_status status = rondo_local_create(n, &local);
    rondo_group_start();
    for (int r = 0; r < n && status == RONDO_SUCCESS; r++) {
        rondo_config config = device_config(r);
        status = rondo_comm_create_local(local, r, &config, &comm[r]);
    }
    if (rondo_group_end() != RONDO_SUCCESS || status != RONDO_SUCCESS) {
        fprintf(stderr, "%s\n", rondo_last_error(NULL));
        abort();
    }
    return local;
}

/* ---- graphs: driver calls that only programs make ---- */

static inline void *device_symbol(const char *name)
{
    void *driver = dlopen(library, RTLD_NOW | RTLD_NOLOAD),
         *address = driver != NULL ? dlsym(driver, name) : NULL;
    if (address == NULL) {
        fprintf(stderr, "%s has no %s\n", library, name);
        abort();
    }
    dlclose(driver);
    return address;
}
#define DEVICE_CALL_OF(name, ...) ((CUresult(*)(__VA_ARGS__))device_symbol(name))

struct device_graph {
    CUgraph graph;
    CUgraphExec exec;
};

/* Begin a capture. Other ranks of this process are not captured. */
static inline void device_capture(const struct device *d)
{
    CU(DEVICE_CALL_OF("cuStreamBeginCapture_v2", CUstream,
                      CUstreamCaptureMode)(d->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}
static inline void device_graph_make(const struct device *d, struct device_graph *g)
{
    CU(DEVICE_CALL_OF("cuStreamEndCapture", CUstream, CUgraph *)(d->stream, &g->graph));
    CU(DEVICE_CALL_OF("cuGraphInstantiateWithFlags", CUgraphExec *, CUgraph,
                      unsigned long long)(&g->exec, g->graph, 0));
}
static inline void device_graph_run(const struct device *d, const struct device_graph *g, int times)
{
    CUresult (*run)(CUgraphExec, CUstream) = DEVICE_CALL_OF("cuGraphLaunch", CUgraphExec, CUstream);
    for (int i = 0; i < times; i++) {
        CU(run(g->exec, d->stream));
    }
    CU(cu()->StreamSynchronize(d->stream));
}
static inline void device_graph_free(const struct device_graph *g)
{
    CU(DEVICE_CALL_OF("cuGraphExecDestroy", CUgraphExec)(g->exec));
    CU(DEVICE_CALL_OF("cuGraphDestroy", CUgraph)(g->graph));
}

/* ---- calls with known results ---- */

struct device_call {
    struct fake_call call;
    struct fake_buffers host, device;
};

static inline uint8_t *mirror_of(const uint8_t *pointer, const struct fake_buffers *host,
                                 uint8_t *const *memory)
{
    for (int m = 0; m < 2; m++) {
        const uint8_t *begin = host->memory[m];
        if (begin != NULL && pointer >= begin && pointer <= begin + host->bytes[m] + 2 * DEVICE_GUARD) {
            return memory[m] + (pointer - begin);
        }
    }
    return NULL;
}

static inline void device_call_prepare(const struct device *d, struct device_call *c)
{
    fake_call_prepare(&c->call, &c->host);
    c->device = c->host;
    for (int m = 0; m < 2; m++) {
        size_t bytes = c->host.bytes[m] + 2 * DEVICE_GUARD;
        c->device.memory[m] = NULL;
        if (c->host.memory[m] != NULL) {
            CUdeviceptr memory = device_new(bytes);
            device_put(d, memory, c->host.memory[m], bytes);
            c->device.memory[m] = (uint8_t *)(uintptr_t)memory;
        }
    }
    c->device.send = mirror_of(c->host.send, &c->host, c->device.memory);
    c->device.recv = mirror_of(c->host.recv, &c->host, c->device.memory);
}

static inline rondo_status device_call_issue(const struct device_call *c, rondo_comm *comm, CUstream stream)
{
    return fake_call_issue(&c->call, &c->device, comm, RONDO_CUDA_STREAM(stream));
}

/* Call it after the stream has ended the call. @return "" or what is wrong. */
static inline const char *device_call_check(const struct device *d, struct device_call *c)
{
    for (int m = 0; m < 2; m++) {
        if (c->device.memory[m] != NULL) {
            device_get(d, c->host.memory[m], (CUdeviceptr)(uintptr_t)c->device.memory[m],
                       c->host.bytes[m] + 2 * DEVICE_GUARD);
            device_delete((CUdeviceptr)(uintptr_t)c->device.memory[m]);
        }
    }
    return fake_call_check(&c->call, &c->host);
}

/* Make a call and check it. */
static inline void device_call(struct fake_rank *r, const struct device *d, struct fake_call call)
{
    struct device_call c = { .call = call };
    const char *wrong;
    rondo_status status;
    c.call.rank = r->rank;
    c.call.nranks = r->nranks;
    device_call_prepare(d, &c);
    status = device_call_issue(&c, r->comm, d->stream);
    if (status != RONDO_SUCCESS) {
        fake_fail(r, __FILE__, __LINE__, fake_coll_names[call.coll], " of %zu: %s: %s", call.count,
                  rondo_status_string(status), rondo_last_error(NULL));
        return;
    }
    CU(cu()->StreamSynchronize(d->stream));
    status = RONDO_SUCCESS;
    rondo_comm_async_error(r->comm, &status);
    wrong = device_call_check(d, &c);
    if (status != RONDO_SUCCESS || *wrong != '\0') {
        fake_fail(r, __FILE__, __LINE__, wrong, ": %s: %s", rondo_status_string(status),
                  rondo_last_error(r->comm));
    }
}
#define DEVICE_CALL(r, d, ...)                                \
    do {                                                      \
        device_call(r, d, (struct fake_call){ __VA_ARGS__ }); \
        if ((r)->failure[0] != '\0') return;                  \
    } while (0)

/* Make calls of a collective with types, operations and sizes in turn. */
static inline void device_collective(struct fake_rank *r, enum fake_coll coll)
{
    static const size_t counts[] = { 0, 1, 260, 3001 };
    static const rondo_dtype types[] = { RONDO_FLOAT32, RONDO_UINT8, RONDO_INT32, RONDO_FLOAT64,
                                         RONDO_INT64 };
    for (size_t k = 0; k < RONDO_COUNTOF(counts); k++) {
        unsigned seed = (unsigned)coll * (unsigned)RONDO_COUNTOF(counts) + (unsigned)k;
        DEVICE_CALL(r, device_of(r), .coll = coll, .type = types[seed % RONDO_COUNTOF(types)],
                    .op = (rondo_op)(seed / 3 % FAKE_OPS), .root = (int)(seed % (unsigned)r->nranks),
                    .count = counts[k], .in_place = (int)(seed & 1), .seed = seed);
    }
}

static inline __attribute__((unused)) void device_every_collective(struct fake_rank *r)
{
    for (int coll = 0; coll < FAKE_NUM_COLLS && r->failure[0] == '\0'; coll++) {
        device_collective(r, (enum fake_coll)coll);
    }
}

#endif
