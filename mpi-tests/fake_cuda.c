/* The fake CUDA driver: devices, contexts, errors, and failures on request. */
#include "fake_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { STACK = 16, VERSION = 13000, SMS = 132, LEAKED = 97, GREATEST_PRIORITY = -5 };

struct fake fake = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static __thread struct {
    CUcontext stack[STACK];
    int n;
} current;

int fake_number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? atoi(text) : otherwise;
}

int64_t fake_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- injected failures, leaks ---- */

static int fails_here(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *want = getenv("FAKE_CUDA_FAIL_RANK");
    rank = rank != NULL ? rank : getenv("PMI_RANK");
    return want == NULL || (rank != NULL && atoi(rank) == atoi(want));
}

/* The CUresult that this call of `name` is to return; 0: none. Each item of the list has its own count. */
static CUresult wanted_failure(const char *name)
{
    static int calls[16];
    const char *item = getenv("FAKE_CUDA_FAIL");
    const size_t length = strlen(name);
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; item != NULL && i < RONDO_COUNTOF(calls); i++) {
        int nth = 1, error = CUDA_ERROR_UNKNOWN;
        if (strncmp(item, name, length) == 0 &&
            (item[length] == ':' || item[length] == ',' || item[length] == '\0')) {
            (void)sscanf(item + length, ":%d:%d", &nth, &error);
            if (__atomic_add_fetch(&calls[i], 1, __ATOMIC_RELAXED) == nth && fails_here()) {
                result = (CUresult)error;
            }
        }
        item = strchr(item, ',');
        item = item == NULL ? NULL : item + 1;
    }
    return result;
}

CUresult fake_enter(const char *name, int needs_init)
{
    fake_count_call(name);
    if (needs_init && !fake.initialized) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    return wanted_failure(name);
}

void fake_count(enum fake_kind kind, int change)
{
    __atomic_add_fetch(&fake.live[kind], change, __ATOMIC_RELAXED);
}

static void __attribute__((destructor)) report_leaks(void)
{
    static const char *const what[FAKE_KINDS] = { "contexts",
                                                  "allocations",
                                                  "pinned allocations",
                                                  "registrations",
                                                  "opened IPC handles",
                                                  "memory handles",
                                                  "reserved ranges",
                                                  "streams",
                                                  "events",
                                                  "modules",
                                                  "graphs",
                                                  "executable graphs",
                                                  "user objects" };
    int leaks = 0;
    if (fake_number("FAKE_CUDA_LEAKS", 0) == 0) {
        return;
    }
    for (int i = 0; i < FAKE_KINDS; i++) {
        if (fake.live[i] != 0) {
            fprintf(stderr, "fake CUDA: process %d: %d %s left\n", (int)getpid(), fake.live[i], what[i]);
            leaks++;
        }
    }
    if (leaks > 0) {
        _exit(LEAKED);
    }
}

/* ---- errors ---- */

#define ERRORS(X)                                                                                          \
    X(SUCCESS, "no error")                                                                                 \
    X(ERROR_INVALID_VALUE, "invalid argument")                                                             \
    X(ERROR_OUT_OF_MEMORY, "out of memory")                                                                \
    X(ERROR_NOT_INITIALIZED, "initialization error")                                                       \
    X(ERROR_NO_DEVICE, "no CUDA-capable device is detected")                                               \
    X(ERROR_INVALID_DEVICE, "invalid device ordinal")                                                      \
    X(ERROR_INVALID_CONTEXT, "invalid device context")                                                     \
    X(ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices")             \
    X(ERROR_INVALID_HANDLE, "invalid resource handle")                                                     \
    X(ERROR_NOT_FOUND, "named symbol not found")                                                           \
    X(ERROR_NOT_READY, "device not ready")                                                                 \
    X(ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                                   \
    X(ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled")                                 \
    X(ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped") \
    X(ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region")       \
    X(ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated")                                     \
    X(ERROR_LAUNCH_FAILED, "unspecified launch failure")                                                   \
    X(ERROR_NOT_SUPPORTED, "operation not supported")                                                      \
    X(ERROR_MPS_CONNECTION_FAILED,                                                                         \
      "MPS client failed to connect to the MPS control daemon or the MPS server")                          \
    X(ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")                \
    X(ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture")         \
    X(ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work")                                 \
    X(ERROR_STREAM_CAPTURE_WRONG_THREAD,                                                                   \
      "attempt to terminate a thread-local capture sequence from another thread")                          \
    X(ERROR_UNKNOWN, "unknown error")

#define ERROR_ROW(NAME, said) { CUDA_##NAME, "CUDA_" #NAME, said },
static const struct {
    CUresult result;
    const char *name, *text;
} errors[] = { ERRORS(ERROR_ROW) };

CUresult cuGetErrorName(CUresult error, const char **text)
{
    for (size_t i = 0; i < RONDO_COUNTOF(errors); i++) {
        if (errors[i].result == error) {
            *text = errors[i].name;
            return CUDA_SUCCESS;
        }
    }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    for (size_t i = 0; i < RONDO_COUNTOF(errors); i++) {
        if (errors[i].result == error) {
            *text = errors[i].text;
            return CUDA_SUCCESS;
        }
    }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

/* ---- devices ---- */

static void choose_devices(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    const int all = fake_number("FAKE_CUDA_DEVICES", 4);
    fake.ndevices = 0;
    for (int i = 0; visible == NULL && i < all && i < FAKE_DEVICES; i++) {
        fake.physical[fake.ndevices++] = i;
    }
    while (visible != NULL && *visible != '\0' && fake.ndevices < FAKE_DEVICES) {
        const int device = atoi(visible);
        if (device < 0 || device >= all) break; /* as the driver: a bad entry hides all that follow */
        fake.physical[fake.ndevices++] = device;
        visible = strchr(visible, ',');
        visible = visible == NULL ? NULL : visible + 1;
    }
}

/* A child is forked while no stream's thread holds the lock: it would wait for ever for a thread that it does
 * not have. */
static void before_fork(void) { pthread_mutex_lock(&fake.lock); }
static void after_fork(void) { pthread_mutex_unlock(&fake.lock); }
__attribute__((constructor)) static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

CUresult cuInit(unsigned flags)
{
    CUresult result = fake_enter("cuInit", 0);
    if (result != CUDA_SUCCESS) return result;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake.lock);
    if (!fake.initialized) {
        choose_devices();
        if (fake_number("FAKE_CUDA_STRICT", 0) != 0) {
            const int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
            fake.pkey = key > 0 ? key : 0;
        }
        fake.initialized = fake.ndevices > 0;
    }
    pthread_mutex_unlock(&fake.lock);
    return fake.ndevices > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version)
{
    CUresult result = fake_enter("cuDriverGetVersion", 0);
    *version = VERSION;
    return result;
}

CUresult cuDeviceGetCount(int *count)
{
    FAKE_ENTER("cuDeviceGetCount");
    *count = fake.ndevices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    FAKE_ENTER("cuDeviceGet");
    if (ordinal < 0 || ordinal >= fake.ndevices) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

#define CHECK_DEVICE(device) \
    if ((device) < 0 || (device) >= fake.ndevices) return CUDA_ERROR_INVALID_DEVICE

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    FAKE_ENTER("cuDeviceGetName");
    CHECK_DEVICE(device);
    snprintf(name, (size_t)length, "Fake H200 %d", fake.physical[device]);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    FAKE_ENTER("cuDeviceGetAttribute");
    CHECK_DEVICE(device);
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = SMS; break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *value = fake_number("FAKE_CUDA_NO_VMM", 0) == 0;
        break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
        *value = fake_number("FAKE_CUDA_ORDERED", 0) ? CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER
                                                     : CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE;
        break;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: *value = fake_number("FAKE_CUDA_DMABUF", 0) != 0; break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT: *value = 4; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = 0x17 + 0x10 * fake.physical[device]; break;
    default: *value = 0; break;
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    FAKE_ENTER("cuDeviceGetUuid");
    CHECK_DEVICE(device);
    memcpy(uuid->bytes, "fake GPU, rondo.", sizeof uuid->bytes);
    uuid->bytes[15] = (char)fake.physical[device];
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    FAKE_ENTER("cuDeviceGetPCIBusId");
    CHECK_DEVICE(device);
    snprintf(text, (size_t)length, "0000:%02X:00.0", 0x17 + 0x10 * fake.physical[device]);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    FAKE_ENTER("cuDeviceTotalMem");
    CHECK_DEVICE(device);
    *bytes = (size_t)fake_number("FAKE_CUDA_MEMORY", 4096) << 20;
    return CUDA_SUCCESS;
}

/* ---- contexts ---- */

CUcontext fake_current(void) { return current.n > 0 ? current.stack[current.n - 1] : NULL; }

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
    FAKE_ENTER("cuDevicePrimaryCtxRetain");
    CHECK_DEVICE(device);
    pthread_mutex_lock(&fake.lock);
    fake.context[device].device = device;
    fake.context[device].refs++;
    fake_count(FAKE_CONTEXT, 1);
    pthread_mutex_unlock(&fake.lock);
    *ctx = &fake.context[device];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    FAKE_ENTER("cuDevicePrimaryCtxRelease");
    CHECK_DEVICE(device);
    pthread_mutex_lock(&fake.lock);
    if (fake.context[device].refs > 0) {
        fake.context[device].refs--;
        fake_count(FAKE_CONTEXT, -1);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

static int is_context(CUcontext ctx)
{
    pthread_mutex_lock(&fake.lock);
    int is = ctx >= fake.context && ctx < fake.context + fake.ndevices && ctx->refs > 0;
    pthread_mutex_unlock(&fake.lock);
    return is;
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
    FAKE_ENTER("cuCtxPushCurrent");
    if (!is_context(ctx) || current.n == STACK) return CUDA_ERROR_INVALID_CONTEXT;
    current.stack[current.n++] = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *ctx)
{
    FAKE_ENTER("cuCtxPopCurrent");
    if (current.n == 0) return CUDA_ERROR_INVALID_CONTEXT;
    current.n--;
    if (ctx != NULL) *ctx = current.stack[current.n];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    FAKE_ENTER("cuCtxSetCurrent");
    if (ctx != NULL && !is_context(ctx)) return CUDA_ERROR_INVALID_CONTEXT;
    current.n -= current.n > 0;
    if (ctx != NULL) current.stack[current.n++] = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
    FAKE_ENTER("cuCtxGetCurrent");
    *ctx = fake_current();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    CUcontext ctx;
    FAKE_ENTER_CTX("cuCtxGetStreamPriorityRange", ctx);
    if (least != NULL) *least = 0;
    if (greatest != NULL) *greatest = GREATEST_PRIORITY;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    FAKE_ENTER("cuCtxGetDevice");
    if (fake_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    *device = fake_current()->device;
    return CUDA_SUCCESS;
}

/* ---- peers ---- */

int fake_peers(int a, int b)
{
    const char *pair = getenv("FAKE_CUDA_NO_PEER");
    const int x = fake.physical[a], y = fake.physical[b];
    int i, j;
    for (; pair != NULL && sscanf(pair, "%d-%d", &i, &j) == 2;
         pair = strchr(pair, ',') != NULL ? strchr(pair, ',') + 1 : NULL) {
        if ((i == x && j == y) || (i == y && j == x)) return 0;
    }
    return 1;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    FAKE_ENTER("cuDeviceCanAccessPeer");
    CHECK_DEVICE(device);
    CHECK_DEVICE(peer);
    *can = device != peer && fake_peers(device, peer);
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    CUcontext ctx;
    CUresult result = CUDA_SUCCESS;
    FAKE_ENTER_CTX("cuCtxEnablePeerAccess", ctx);
    if (!is_context(peer) || peer == ctx) return CUDA_ERROR_INVALID_DEVICE;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!fake_peers(ctx->device, peer->device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    pthread_mutex_lock(&fake.lock);
    if (ctx->peers >> peer->device & 1) result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    ctx->peers |= 1u << peer->device;
    pthread_mutex_unlock(&fake.lock);
    return result;
}
