/*
 * A CUDA runtime over the driver that RONDO_CUDA_LIB names (fake_cuda.h), for programs that nvcc compiled
 * with -cudart none (scripts/nccl-programs). It has what nccl-tests calls. The program's own kernels are
 * loaded as PTX, which nvcc has to put into the fat binary (for a virtual architecture), not compressed.
 *
 *   FAKE_CUDART_SPOIL=verify  before each launch of a kernel whose name has this in it, the first byte that
 *                             its first argument points to gets another highest bit: is a wrong result found?
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 16 };

static pthread_once_t opened = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *driver;
static CUresult initialised;
static CUcontext contexts[DEVICES];        /* primary ones, kept until the process ends */
static __thread int current, entered = -1; /* devices */
static __thread cudaError_t last;

/* ---- the driver ---- */

static void *symbol(const char *name)
{
    void *found = driver != NULL ? dlsym(driver, name) : NULL;
    if (found == NULL) {
        fprintf(stderr, "fake_cudart: %s: RONDO_CUDA_LIB must name the tests' driver, which has it\n", name);
        abort();
    }
    return found;
}
/* cuda.h defines names as those with a version. */
#define NAMED(name) #name
#define EXPANDED(name) NAMED(name)
#define DRIVER(name) ((__typeof__(&name))symbol(EXPANDED(name)))

static void open_driver(void)
{
    const char *file = getenv("RONDO_CUDA_LIB");
    driver = dlopen(file != NULL ? file : "libcuda.so.1", RTLD_NOW);
    initialised = DRIVER(cuInit)(0);
}

static cudaError_t end(CUresult result)
{
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
        last = (cudaError_t)result; /* the numbers of errors are the driver's */
    }
    return (cudaError_t)result;
}

/* Make the thread's device current. */
static CUresult enter(void)
{
    CUresult result;
    pthread_once(&opened, open_driver);
    if (initialised != CUDA_SUCCESS || entered == current) {
        return initialised;
    }
    pthread_mutex_lock(&lock);
    result = contexts[current] != NULL ? CUDA_SUCCESS
                                       : DRIVER(cuDevicePrimaryCtxRetain)(&contexts[current], current);
    pthread_mutex_unlock(&lock);
    if (result == CUDA_SUCCESS) {
        result = DRIVER(cuCtxSetCurrent)(contexts[current]);
    }
    if (result == CUDA_SUCCESS) {
        entered = current;
    }
    return result;
}

/* Make a call of the driver in the thread's device. */
#define CALL(call)                       \
    do {                                 \
        CUresult result_ = enter();      \
        if (result_ == CUDA_SUCCESS) {   \
            result_ = DRIVER_CALL(call); \
        }                                \
        return end(result_);             \
    } while (0)
#define DRIVER_CALL(call) DRIVER call

/* ---- devices ---- */

cudaError_t cudaGetDeviceCount(int *count) { CALL((cuDeviceGetCount)(count)); }

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= DEVICES) {
        return end(CUDA_ERROR_INVALID_DEVICE);
    }
    current = device;
    return end(enter());
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    CALL((cuDeviceGetAttribute)(value, (CUdevice_attribute)attribute, device));
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    const struct {
        int *value;
        CUdevice_attribute attribute;
    } attributes[] = { { &p->pciBusID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID },
                       { &p->pciDeviceID, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID },
                       { &p->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR },
                       { &p->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR } };
    CUresult result = enter();
    memset(p, 0, sizeof(*p));
    if (result == CUDA_SUCCESS) {
        result = DRIVER(cuDeviceGetName)(p->name, sizeof(p->name), device);
    }
    if (result == CUDA_SUCCESS) {
        result = DRIVER(cuDeviceTotalMem)(&p->totalGlobalMem, device);
    }
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes && result == CUDA_SUCCESS; i++) {
        result = DRIVER(cuDeviceGetAttribute)(attributes[i].value, attributes[i].attribute, device);
    }
    return end(result);
}

cudaError_t cudaDeviceSynchronize(void) { CALL((cuCtxSynchronize)()); }
cudaError_t cudaDeviceReset(void) { return cudaDeviceSynchronize(); }

/* ---- memory ---- */

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    CALL((cuMemAlloc)((CUdeviceptr *)pointer, bytes > 0 ? bytes : 1));
}

cudaError_t cudaFree(void *pointer) { CALL((cuMemFree)((CUdeviceptr)pointer)); }

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    CALL((cuMemHostAlloc)(pointer, bytes, flags));
}

cudaError_t cudaFreeHost(void *pointer) { CALL((cuMemFreeHost)(pointer)); }
cudaError_t cudaMemGetInfo(size_t *room, size_t *total) { CALL((cuMemGetInfo)(room, total)); }

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    CUresult result = enter();
    if (result == CUDA_SUCCESS) {
        result = DRIVER(cuMemsetD8Async)((CUdeviceptr)to, (unsigned char)value, bytes, NULL);
    }
    if (result == CUDA_SUCCESS) {
        result = DRIVER(cuStreamSynchronize)(NULL);
    }
    return end(result);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind; /* addresses say it */
    CALL((cuMemcpy)((CUdeviceptr)to, (CUdeviceptr)from, bytes));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    CALL((cuMemcpyAsync)((CUdeviceptr)to, (CUdeviceptr)from, bytes, stream));
}

/* ---- streams, events, graphs ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    CALL((cuStreamCreateWithPriority)(stream, flags, 0));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) { CALL((cuStreamDestroy)(stream)); }
cudaError_t cudaStreamQuery(cudaStream_t stream) { CALL((cuStreamQuery)(stream)); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { CALL((cuStreamSynchronize)(stream)); }
cudaError_t cudaEventCreate(cudaEvent_t *event) { CALL((cuEventCreate)(event, CU_EVENT_DEFAULT)); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { CALL((cuEventDestroy)(event)); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { CALL((cuEventRecord)(event, stream)); }

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t stop)
{
    CALL((cuEventElapsedTime)(ms, begin, stop));
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    CALL((cuStreamBeginCapture)(stream, (CUstreamCaptureMode)mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    CALL((cuStreamEndCapture)(stream, graph));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags)
{
    CALL((cuGraphInstantiateWithFlags)(made, graph, flags));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    CALL((cuGraphLaunch)(graph, stream));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { CALL((cuGraphExecDestroy)(graph)); }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { CALL((cuGraphDestroy)(graph)); }

/* ---- errors ---- */

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last;
    last = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) { return last; }

const char *cudaGetErrorString(cudaError_t error)
{
    const char *text = "an error that the driver does not know";
    pthread_once(&opened, open_driver);
    (void)DRIVER(cuGetErrorString)((CUresult)error, &text);
    return text;
}

const char *cudaGetErrorName(cudaError_t error)
{
    const char *text = "unknown";
    pthread_once(&opened, open_driver);
    (void)DRIVER(cuGetErrorName)((CUresult)error, &text);
    return text;
}

/* ---- the program's kernels ---- */

/* What nvcc registers (its fatbinary_section.h). */
enum { WRAPPER_MAGIC = 0x466243b1 };
struct wrapper {
    int magic, version;
    const void *data;
    void *more;
};
/* A fat binary of the program, and a kernel of one. They are kept until the process ends. */
struct binary {
    const struct wrapper *wrapper;
    CUmodule module[DEVICES];
};
struct kernel {
    struct kernel *next;
    struct binary *binary;
    const void *host; /* the host's function of the same name */
    const char *name;
    CUfunction function[DEVICES];
};
static struct kernel *kernels;

struct configuration {
    dim3 blocks, threads;
    size_t shared;
    cudaStream_t stream;
};
static __thread struct configuration pushed;

/* The text of PTX that a fat binary has, with the 0 after it. Before its images stand a magic number, a
 * version and the bytes of this header, of 4, 2 and 2 bytes, and the bytes of all images. */
static const char *find_ptx(const struct wrapper *wrapper)
{
    static const char begin[] = "\n.version ";
    uint16_t header;
    uint64_t bytes;
    const char *images = wrapper->data, *text;
    memcpy(&header, images + 6, sizeof header);
    memcpy(&bytes, images + 8, sizeof bytes);
    images += header;
    text = wrapper->magic == WRAPPER_MAGIC ? memmem(images, bytes, begin, sizeof begin - 1) : NULL;
    return text != NULL && memchr(text, 0, bytes - (size_t)(text - images)) != NULL ? text : NULL;
}

/* The kernel's function in the thread's device. Call with the lock held. */
static CUresult load(struct kernel *k)
{
    CUmodule *module = &k->binary->module[current];
    const char *text = find_ptx(k->binary->wrapper);
    CUresult result = CUDA_SUCCESS;
    if (text == NULL) {
        fprintf(stderr,
                "fake_cudart: kernel %s: the program has no PTX of it that is not compressed (compile "
                "with nvcc -no-compress, for compute_80)\n",
                k->name);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    if (*module == NULL) result = DRIVER(cuModuleLoadData)(module, text);
    if (result == CUDA_SUCCESS) result = DRIVER(cuModuleGetFunction)(&k->function[current], *module, k->name);
    return result;
}

/* Invert the highest bit of what a pointer points to, after all that has been issued. */
static CUresult spoil(CUdeviceptr at)
{
    uint8_t byte;
    CUresult result = DRIVER(cuCtxSynchronize)();
    if (result == CUDA_SUCCESS) result = DRIVER(cuMemcpy)((CUdeviceptr)&byte, at, 1);
    byte ^= 0x80;
    return result == CUDA_SUCCESS ? DRIVER(cuMemcpy)(at, (CUdeviceptr)&byte, 1) : result;
}

static cudaError_t launch(const void *host, const struct configuration *c, void **arguments)
{
    const char *spoiled = getenv("FAKE_CUDART_SPOIL");
    struct kernel *k = kernels;
    CUresult result = enter();
    while (k != NULL && k->host != host) k = k->next;
    if (k == NULL) return end(CUDA_ERROR_INVALID_HANDLE);
    pthread_mutex_lock(&lock);
    if (result == CUDA_SUCCESS && k->function[current] == NULL) result = load(k);
    pthread_mutex_unlock(&lock);
    if (result == CUDA_SUCCESS && spoiled != NULL && strstr(k->name, spoiled) != NULL) {
        result = spoil(*(CUdeviceptr *)arguments[0]);
    }
    if (result == CUDA_SUCCESS) {
        result = DRIVER(cuLaunchKernel)(k->function[current], c->blocks.x, c->blocks.y, c->blocks.z,
                                        c->threads.x, c->threads.y, c->threads.z, (unsigned)c->shared,
                                        c->stream, arguments, NULL);
    }
    return end(result);
}

/* ---- what nvcc's code calls: it registers kernels, and launches them ---- */

void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **binary);
void __cudaUnregisterFatBinary(void **binary);
void __cudaRegisterFunction(void **binary, const char *host, char *device, const char *name, int limit,
                            void *thread_id, void *block_id, void *threads, void *blocks, int *warp);
void __cudaRegisterVar(void **binary, char *host, char *device, const char *name, int outside, size_t bytes,
                       int constant, int global);
char __cudaInitModule(void **binary);
unsigned __cudaPushCallConfiguration(dim3 blocks, dim3 threads, size_t shared, struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *blocks, dim3 *threads, size_t *shared, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 blocks, dim3 threads, void **arguments,
                               size_t shared, cudaStream_t stream);

static void *must_have(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (p == NULL) abort();
    return p;
}

void **__cudaRegisterFatBinary(void *wrapper)
{
    struct binary *b = must_have(sizeof *b);
    b->wrapper = wrapper;
    return (void **)b;
}

void __cudaRegisterFatBinaryEnd(void **binary) { (void)binary; }
void __cudaUnregisterFatBinary(void **binary) { (void)binary; }

void __cudaRegisterFunction(void **binary, const char *host, char *device, const char *name, int limit,
                            void *thread_id, void *block_id, void *threads, void *blocks, int *warp)
{
    struct kernel *k = must_have(sizeof *k);
    (void)device, (void)limit, (void)thread_id, (void)block_id, (void)threads, (void)blocks, (void)warp;
    k->binary = (struct binary *)binary;
    k->host = host;
    k->name = name;
    k->next = kernels;
    kernels = k;
}

void __cudaRegisterVar(void **binary, char *host, char *device, const char *name, int outside, size_t bytes,
                       int constant, int global)
{
    (void)binary, (void)host, (void)device, (void)name, (void)outside, (void)bytes, (void)constant,
        (void)global;
}

char __cudaInitModule(void **binary)
{
    (void)binary;
    return 1;
}

unsigned __cudaPushCallConfiguration(dim3 blocks, dim3 threads, size_t shared, struct CUstream_st *stream)
{
    pushed = (struct configuration){ blocks, threads, shared, stream };
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *blocks, dim3 *threads, size_t *shared, void *stream)
{
    *blocks = pushed.blocks;
    *threads = pushed.threads;
    *shared = pushed.shared;
    *(cudaStream_t *)stream = pushed.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function)
{
    *kernel = (cudaKernel_t)(uintptr_t)function;
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 blocks, dim3 threads, void **arguments,
                               size_t shared, cudaStream_t stream)
{
    return launch(kernel, &(struct configuration){ blocks, threads, shared, stream }, arguments);
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 blocks, dim3 threads, void **arguments, size_t shared,
                             cudaStream_t stream)
{
    return launch(kernel, &(struct configuration){ blocks, threads, shared, stream }, arguments);
}
