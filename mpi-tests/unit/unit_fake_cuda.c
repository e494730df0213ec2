/* The fake CUDA driver (mpi-tests/fake_cuda.h) does and refuses what the real one does and refuses. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cuda.h"
#include "coll/step.h"
#include "kern/cuda/kernels.h"
#include "in_child.h"

enum { BYTES = 10000, SLOT_BYTES = 1024 };

static const struct rondo_cuda *cuda;
static char library[4096];

/* Test programs make these calls, but the library does not. */
static CUresult (*begin_capture)(CUstream, CUstreamCaptureMode);
static CUresult (*end_capture)(CUstream, CUgraph *);
static CUresult (*instantiate)(CUgraphExec *, CUgraph, unsigned long long);
static CUresult (*graph_launch)(CUgraphExec, CUstream);
static CUresult (*exec_destroy)(CUgraphExec);
static CUresult (*graph_destroy)(CUgraph);

#define ok(call) assert_int_equal(call, CUDA_SUCCESS)
#define refused(call, error) assert_int_equal(call, CUDA_ERROR_##error)

#define TEXT__(name) #name
#define TEXT_(name) TEXT__(name)
static void find_calls(void)
{
    void *handle = dlopen(library, RTLD_NOW);
    assert_non_null(handle);
    *(void **)&begin_capture = dlsym(handle, TEXT_(cuStreamBeginCapture));
    *(void **)&end_capture = dlsym(handle, TEXT_(cuStreamEndCapture));
    *(void **)&instantiate = dlsym(handle, TEXT_(cuGraphInstantiate));
    *(void **)&graph_launch = dlsym(handle, TEXT_(cuGraphLaunch));
    *(void **)&exec_destroy = dlsym(handle, TEXT_(cuGraphExecDestroy));
    *(void **)&graph_destroy = dlsym(handle, TEXT_(cuGraphDestroy));
#define CHECK_(ctx, Name) assert_non_null(dlsym(handle, TEXT_(cu##Name)));
    RONDO_CUDA_TABLE(CHECK_, )
    RONDO_CUDA_OPTIONAL_TABLE(CHECK_, )
#undef CHECK_
}

static CUcontext enter(int device)
{
    CUcontext ctx;
    ok(cuda->DevicePrimaryCtxRetain(&ctx, device));
    ok(cuda->CtxPushCurrent(ctx));
    return ctx;
}
static void leave(int device)
{
    CUcontext ctx;
    ok(cuda->CtxPopCurrent(&ctx));
    ok(cuda->DevicePrimaryCtxRelease(device));
}

static CUstream new_stream(void)
{
    CUstream stream;
    ok(cuda->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

static void devices_are_described(void **state)
{
    struct rondo_cuda_device device;
    int count, can;
    (void)state;
    ok(cuda->DeviceGetCount(&count));
    assert_int_equal(count, 4);
    assert_int_equal(rondo_cuda_open(2, &device), RONDO_SUCCESS);
    assert_int_equal(device.capability, 90);
    assert_string_equal(device.bus_id, "0000:37:00.0");
    assert_int_equal(device.uuid[15], 2);
    rondo_cuda_close(&device);
    ok(cuda->DeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 1);
    ok(cuda->DeviceCanAccessPeer(&can, 2, 3)); /* FAKE_CUDA_NO_PEER says so */
    assert_int_equal(can, 0);
    refused(cuda->DeviceGet(&count, 4), INVALID_DEVICE);
}

static void memory_has_kinds_and_bounds(void **state)
{
    CUdeviceptr memory, twice, base;
    enum rondo_pointer_kind kind;
    uint8_t *host = malloc(BYTES), *pinned;
    size_t bytes;
    int ordinal;
    CUstream s;
    (void)state;
    refused(cuda->MemAlloc(&memory, 100), INVALID_CONTEXT);
    enter(1);
    s = new_stream();
    ok(cuda->MemAlloc(&memory, BYTES));
    ok(cuda->MemHostAlloc((void **)&pinned, BYTES, 0));
    ok(cuda->MemsetD8Async(memory, 0x33, BYTES, s));
    ok(cuda->MemcpyAsync((CUdeviceptr)host, memory, BYTES, s));
    ok(cuda->StreamSynchronize(s));
    assert_int_equal(host[BYTES - 1], 0x33);
    refused(cuda->MemcpyAsync((CUdeviceptr)host, memory + 5000, 12288, s), INVALID_VALUE);
    refused(cuda->MemsetD8Async((CUdeviceptr)host, 0, 1, s), INVALID_VALUE);
    assert_int_equal(rondo_cuda_pointer((void *)(memory + 77), &kind, &ordinal), RONDO_SUCCESS);
    assert_true(kind == RONDO_POINTER_DEVICE && ordinal == 1);
    assert_int_equal(rondo_cuda_pointer(pinned, &kind, &ordinal), RONDO_SUCCESS);
    assert_int_equal(kind, RONDO_POINTER_PINNED);
    assert_int_equal(rondo_cuda_pointer(host, &kind, &ordinal), RONDO_SUCCESS);
    assert_int_equal(kind, RONDO_POINTER_HOST);
    ok(cuda->MemHostRegister(host, BYTES, 0));
    refused(cuda->MemHostRegister(host + 5, 1, 0), HOST_MEMORY_ALREADY_REGISTERED);
    ok(cuda->MemHostUnregister(host));
    refused(cuda->MemHostUnregister(host), HOST_MEMORY_NOT_REGISTERED);
    ok(cuda->MemGetAddressRange(&base, &bytes, memory + 9));
    assert_true(base == memory && bytes >= BYTES);
    refused(cuda->MemAlloc(&twice, (size_t)1 << 40), OUT_OF_MEMORY);
    ok(cuda->MemFree(memory));
    refused(cuda->MemFree(memory), INVALID_VALUE);
    ok(cuda->MemFreeHost(pinned));
    ok(cuda->StreamDestroy(s));
    refused(cuda->StreamQuery(s), INVALID_HANDLE);
    leave(1);
    free(host);
}

/* ---- streams ---- */

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int open, passed;
};
static void pass_gate(void *arg)
{
    struct gate *g = arg;
    pthread_mutex_lock(&g->lock);
    while (!g->open) {
        pthread_cond_wait(&g->changed, &g->lock);
    }
    g->passed++;
    pthread_mutex_unlock(&g->lock);
}
static void open_gate(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = 1;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}
static void add_one(void *arg) { ++*(int *)arg; }

static void streams_keep_order_and_wait_for_events(void **state)
{
    struct gate gate = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0 };
    CUstream a, b;
    CUevent event;
    int count = 0;
    (void)state;
    enter(0);
    a = new_stream();
    b = new_stream();
    ok(cuda->EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    ok(cuda->EventQuery(event));
    ok(cuda->LaunchHostFunc(a, pass_gate, &gate));
    ok(cuda->EventRecord(event, a));
    ok(cuda->StreamWaitEvent(b, event, 0));
    ok(cuda->LaunchHostFunc(b, add_one, &count));
    refused(cuda->EventQuery(event), NOT_READY);
    refused(cuda->StreamQuery(a), NOT_READY);
    refused(cuda->StreamQuery(b), NOT_READY);
    open_gate(&gate);
    ok(cuda->StreamSynchronize(b));
    assert_true(count == 1 && gate.passed == 1);
    ok(cuda->EventSynchronize(event));
    ok(cuda->StreamDestroy(a));
    ok(cuda->StreamDestroy(b));
    ok(cuda->EventDestroy(event));
    leave(0);
}

static CUstreamBatchMemOpParams word_op(CUstreamBatchMemOpType type, uint32_t *word, uint32_t value)
{
    CUstreamBatchMemOpParams op = { .writeValue = { .operation = type, .address = (CUdeviceptr)word } };
    op.writeValue.value = value;
    return op;
}

/* A wait compares the difference, because words may wrap around. */
static void streams_wait_for_words(void **state)
{
    uint32_t *word;
    CUstream s;
    (void)state;
    enter(0);
    s = new_stream();
    ok(cuda->MemHostAlloc((void **)&word, BYTES, 0));
    CUstreamBatchMemOpParams ops[] = { word_op(CU_STREAM_MEM_OP_WAIT_VALUE_32, word, 7),
                                       word_op(CU_STREAM_MEM_OP_WRITE_VALUE_32, word + 1, 9) };
    __atomic_store_n(word, 6, __ATOMIC_SEQ_CST);
    ok(cuda->StreamBatchMemOp(s, 2, ops, 0));
    refused(cuda->StreamQuery(s), NOT_READY);
    assert_int_equal(__atomic_load_n(word + 1, __ATOMIC_SEQ_CST), 0);
    __atomic_store_n(word, 7u + INT32_MAX, __ATOMIC_SEQ_CST);
    ok(cuda->StreamSynchronize(s));
    assert_int_equal(word[1], 9);
    refused(cuda->StreamBatchMemOp(s, 256, ops, 0), INVALID_VALUE);
    ops[1] = word_op(CU_STREAM_MEM_OP_WRITE_VALUE_32, (uint32_t *)((uint8_t *)word + 2), 1);
    refused(cuda->StreamBatchMemOp(s, 2, ops, 0), INVALID_VALUE);
    /* The driver does not know this memory. */
    ops[1] = word_op(CU_STREAM_MEM_OP_WRITE_VALUE_32, &(uint32_t){ 0 }, 1);
    refused(cuda->StreamBatchMemOp(s, 2, ops, 0), INVALID_VALUE);
    ok(cuda->StreamDestroy(s));
    ok(cuda->MemFreeHost(word));
    leave(0);
}

static void legacy_stream_waits_for_the_others(void **state)
{
    struct gate gate = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0 };
    CUstream blocking;
    int count = 0;
    (void)state;
    enter(0);
    ok(cuda->StreamCreateWithPriority(&blocking, CU_STREAM_DEFAULT, 0));
    ok(cuda->LaunchHostFunc(blocking, pass_gate, &gate));
    ok(cuda->LaunchHostFunc(NULL, add_one, &count));
    refused(cuda->StreamQuery(NULL), NOT_READY);
    open_gate(&gate);
    ok(cuda->StreamSynchronize(NULL));
    assert_true(gate.passed == 1 && count == 1);
    ok(cuda->StreamDestroy(blocking));
    leave(0);
}

/* ---- graphs ---- */

static void destroyed(void *arg) { __atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE); }

static void captured_work_runs_with_each_launch(void **state)
{
    CUstreamCaptureStatus status;
    CUstream a, b;
    CUevent fork, join;
    CUgraph graph, inside;
    CUgraphExec exec;
    CUuserObject object;
    cuuint64_t id;
    int count = 0, gone = 0;
    (void)state;
    enter(0);
    a = new_stream();
    b = new_stream();
    ok(cuda->EventCreate(&fork, 0));
    ok(cuda->EventCreate(&join, 0));
    ok(begin_capture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(cuda->StreamGetCaptureInfo(a, &status, &id, &inside, NULL, NULL, NULL));
    assert_true(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0);
    ok(cuda->UserObjectCreate(&object, &gone, destroyed, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    ok(cuda->GraphRetainUserObject(inside, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    ok(cuda->LaunchHostFunc(a, add_one, &count));
    ok(cuda->EventRecord(fork, a));
    ok(cuda->StreamWaitEvent(b, fork, 0));
    ok(cuda->LaunchHostFunc(b, add_one, &count));
    ok(cuda->EventRecord(join, b));
    ok(cuda->StreamWaitEvent(a, join, 0));
    ok(end_capture(a, &graph));
    assert_int_equal(count, 0);
    ok(instantiate(&exec, graph, 0));
    ok(graph_destroy(graph));
    for (int i = 0; i < 50; i++) {
        ok(graph_launch(exec, a));
    }
    ok(cuda->StreamSynchronize(a));
    assert_int_equal(count, 100);
    assert_int_equal(__atomic_load_n(&gone, __ATOMIC_ACQUIRE), 0);
    ok(exec_destroy(exec));
    while (!__atomic_load_n(&gone, __ATOMIC_ACQUIRE)) {
        sched_yield();
    }
    ok(cuda->StreamDestroy(a));
    ok(cuda->StreamDestroy(b));
    ok(cuda->EventDestroy(fork));
    ok(cuda->EventDestroy(join));
    leave(0);
}

static void a_capture_forbids_what_the_driver_forbids(void **state)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstream a, b;
    CUdeviceptr memory;
    CUevent event;
    CUgraph graph;
    int count = 0;
    (void)state;
    enter(0);
    a = new_stream();
    b = new_stream();
    ok(cuda->EventCreate(&event, 0));
    ok(begin_capture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    refused(cuda->MemAlloc(&memory, 8), STREAM_CAPTURE_UNSUPPORTED);
    refused(end_capture(a, &graph), STREAM_CAPTURE_INVALIDATED);
    ok(begin_capture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok(cuda->ThreadExchangeStreamCaptureMode(&mode));
    ok(cuda->MemAlloc(&memory, 8));
    ok(cuda->MemFree(memory));
    ok(cuda->ThreadExchangeStreamCaptureMode(&mode));
    ok(cuda->LaunchHostFunc(a, add_one, &count));
    ok(cuda->EventRecord(event, a));
    ok(cuda->StreamWaitEvent(b, event, 0));
    ok(cuda->LaunchHostFunc(b, add_one, &count));
    refused(end_capture(a, &graph), STREAM_CAPTURE_UNJOINED);
    ok(cuda->LaunchHostFunc(b, add_one, &count));
    ok(cuda->StreamSynchronize(b));
    assert_int_equal(count, 1);
    ok(cuda->StreamDestroy(a));
    ok(cuda->StreamDestroy(b));
    ok(cuda->EventDestroy(event));
    leave(0);
}

/* ---- sharing ---- */

static int add_by_handle(void *arg)
{
    CUipcMemHandle handle;
    CUdeviceptr there, again;
    memcpy(&handle, arg, sizeof handle);
    enter(1);
    if (cuda->IpcOpenMemHandle(&there, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS) return 1;
    if (cuda->IpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS ||
        again != there)
        return 2;
    memset((void *)there, 0x44, BYTES);
    if (cuda->IpcCloseMemHandle(there) != CUDA_SUCCESS || cuda->IpcCloseMemHandle(there) != CUDA_SUCCESS)
        return 3;
    return cuda->IpcCloseMemHandle(there) == CUDA_SUCCESS ? 4 : 0;
}

static void another_process_opens_memory_by_its_handle(void **state)
{
    CUipcMemHandle handle;
    CUdeviceptr memory, own;
    (void)state;
    enter(0);
    ok(cuda->MemAlloc(&memory, BYTES));
    ok(cuda->IpcGetMemHandle(&handle, memory));
    refused(cuda->IpcOpenMemHandle(&own, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), INVALID_CONTEXT);
    assert_int_equal(in_child(add_by_handle, &handle), 0);
    assert_int_equal(((uint8_t *)memory)[BYTES - 1], 0x44);
    ok(cuda->MemFree(memory));
    assert_int_equal(in_child(add_by_handle, &handle), 1);
    leave(0);
}

static void memory_is_shared_by_descriptor(void **state)
{
    const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 2 } };
    CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 2 },
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    CUmemGenericAllocationHandle one, two;
    CUdeviceptr here[2];
    size_t granule;
    int fd;
    (void)state;
    enter(2);
    ok(cuda->MemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    refused(cuda->MemCreate(&one, granule / 2, &prop, 0), INVALID_VALUE);
    ok(cuda->MemCreate(&one, granule, &prop, 0));
    ok(cuda->MemExportToShareableHandle(&fd, one, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ok(cuda->MemImportFromShareableHandle(&two, (void *)(intptr_t)fd,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    for (int i = 0; i < 2; i++) {
        ok(cuda->MemAddressReserve(&here[i], granule, 0, 0, 0));
        ok(cuda->MemMap(here[i], granule, 0, i == 0 ? one : two, 0));
        refused(cuda->MemMap(here[i], granule, 0, one, 0), INVALID_VALUE);
        ok(cuda->MemSetAccess(here[i], granule, &access, 1));
        ok(cuda->MemRelease(i == 0 ? one : two));
    }
    access.location.id = 3;
    refused(cuda->MemSetAccess(here[0], granule, &access, 1), INVALID_DEVICE);
    *(int *)here[0] = 55;
    assert_int_equal(*(int *)here[1], 55);
    for (int i = 0; i < 2; i++) {
        refused(cuda->MemAddressFree(here[i], granule), INVALID_VALUE);
        ok(cuda->MemUnmap(here[i], granule));
        ok(cuda->MemAddressFree(here[i], granule));
    }
    leave(2);
}

/* ---- kernels ---- */

struct rank {
    struct rondo_launch launch;
    struct rondo_gpu_words words;
    struct rondo_conn conn[2]; /* to receive, to send */
    struct rondo_conn_tail tail;
    struct rondo_conn_head head;
    float in[700], out[700];
};

/* Two ranks make a ring; each has a stream on its device. */
static void connect_two(struct rank *r, uint8_t *slots)
{
    for (int i = 0; i < 2; i++) {
        struct rank *to = &r[!i];
        struct rondo_conn *send = &r[i].conn[1];
        *send = (struct rondo_conn){ .tail = &to->tail, .head = &r[i].head, .peer = !i };
        for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
            send->slots[p] = slots + (size_t)(i * RONDO_NUM_PROTOS + p) * RONDO_SLOTS * SLOT_BYTES;
            send->slot_bytes[p] = SLOT_BYTES;
        }
        to->conn[0] = *send;
        to->conn[0].peer = i;
    }
}

static void kernels_of_two_streams_reduce_together(void **state)
{
    CUmodule module;
    CUfunction f;
    CUstream s[2];
    struct rank *r;
    uint8_t *slots;
    (void)state;
    enter(0);
    refused(cuda->ModuleLoadData(&module, NULL), INVALID_VALUE);
    ok(cuda->ModuleLoadData(&module, "any"));
    refused(cuda->ModuleGetFunction(&f, module, "rondo_f33_sum_ll"), NOT_FOUND);
    ok(cuda->MemHostAlloc((void **)&r, 2 * sizeof *r, 0));
    ok(cuda->MemHostAlloc((void **)&slots, (size_t)2 * RONDO_NUM_PROTOS * RONDO_SLOTS * SLOT_BYTES, 0));
    for (int proto = 0; proto < RONDO_NUM_PROTOS; proto++) {
        static const char *const names[] = { "rondo_f32_sum_ll", "rondo_f32_sum_ll128",
                                             "rondo_f32_sum_simple" };
        memset(r, 0, 2 * sizeof *r);
        memset(slots, 0, (size_t)2 * RONDO_NUM_PROTOS * RONDO_SLOTS * SLOT_BYTES);
        connect_two(r, slots);
        ok(cuda->ModuleGetFunction(&f, module, names[proto]));
        for (int i = 0; i < 2; i++) {
            void *parameter[] = { &r[i].launch };
            for (int k = 0; k < 700; k++) r[i].in[k] = (float)(k + i);
            r[i].launch =
                (struct rondo_launch){ .serial = 1, .words = &r[i].words, .nblocks = 1, .first = { 0, 1 } };
            r[i].launch.inline_works[0] = (struct rondo_work){
                .coll = RONDO_COLL_ALL_REDUCE,
                .algo = RONDO_ALGO_RING,
                .proto = (uint8_t)proto,
                .dtype = RONDO_FLOAT32,
                .elem_bytes = 4,
                .call_word = 5,
                .in = (uint8_t *)r[i].in,
                .out = (uint8_t *)r[i].out,
                .block = 700,
                .len = 700,
                .chunk = 200,
                .seat = { .index = i, .nranks = 2, .parent = -1 },
                .conns = r[i].conn,
                .wired = 1u << RONDO_PORT_RING | 1u << (RONDO_NUM_PORTS + RONDO_PORT_RING)
            };
            s[i] = new_stream();
            refused(cuda->LaunchKernel(f, 2, 1, 1, 64, 1, 1, 0, s[i], parameter, NULL), INVALID_VALUE);
            ok(cuda->LaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, s[i], parameter, NULL));
        }
        for (int i = 0; i < 2; i++) {
            ok(cuda->StreamSynchronize(s[i]));
            ok(cuda->StreamDestroy(s[i]));
            for (int k = 0; k < 700; k++) assert_true(r[i].out[k] == (float)(2 * k + 1));
        }
    }
    ok(cuda->MemFreeHost(r));
    ok(cuda->MemFreeHost(slots));
    ok(cuda->ModuleUnload(module));
    leave(0);
}

#define OWN                                                                                         \
    "// A program's\n.version 9.0\n.target sm_80\n.address_size 64\n"                               \
    ".entry fill(\n.param .u64 fill_param_0,\n.param .u32 fill_param_1\n)\n.maxntid 128, 1, 1\n{\n" \
    ".reg .b32 %r<9>;\n.reg .b64 %rd<9>;\nld.param.u64 %rd1, [fill_param_0];\n"                     \
    "ld.param.u32 %r1, [fill_param_1];\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\n"            \
    "mov.u32 %r4, %tid.x;\nmad.lo.s32 %r5, %r2, %r3, %r4;\nmul.wide.u32 %rd2, %r5, 4;\n"            \
    "add.s64 %rd3, %rd1, %rd2;\nmov.u32 %r6, %nctaid.x;\nmul.lo.s32 %r7, %r6, %r1;\n"               \
    "st.u32 [%rd3], %r7;\nret;\n}\n"                                                                \
    ".entry odd()\n{\nfrob.u32 1;\n}\n"

static void a_program_brings_its_own_kernels(void **state)
{
    enum { BLOCKS = 3, THREADS = 128 };
    CUdeviceptr memory;
    CUmodule module;
    CUfunction f;
    CUstream s;
    uint32_t got[BLOCKS * THREADS + 1], factor = 5;
    void *parameter[] = { &memory, &factor };
    (void)state;
    enter(0);
    refused(cuda->ModuleLoadData(&module, ".version 9.0\n.visible .func f()\n{\n}\n"), INVALID_PTX);
    ok(cuda->ModuleLoadData(&module, OWN));
    refused(cuda->ModuleGetFunction(&f, module, "rondo_f32_sum_ll"), NOT_FOUND);
    refused(cuda->ModuleGetFunction(&f, module, "odd"), INVALID_PTX);
    ok(cuda->ModuleGetFunction(&f, module, "fill"));
    ok(cuda->MemAlloc(&memory, sizeof got));
    s = new_stream();
    ok(cuda->MemsetD8Async(memory, 0, sizeof got, s));
    refused(cuda->LaunchKernel(f, BLOCKS, 1, 1, 160, 1, 1, 0, s, parameter, NULL), INVALID_VALUE);
    refused(cuda->LaunchKernel(f, BLOCKS, 1, 1, THREADS, 1, 1, 0, s, NULL, NULL), INVALID_VALUE);
    ok(cuda->LaunchKernel(f, BLOCKS, 1, 1, THREADS, 1, 1, 0, s, parameter, NULL));
    factor = 6; /* arguments are copied */
    ok(cuda->MemcpyAsync((CUdeviceptr)got, memory, sizeof got, s));
    ok(cuda->StreamSynchronize(s));
    for (int i = 0; i < BLOCKS * THREADS; i++) assert_int_equal(got[i], 5 * BLOCKS);
    assert_int_equal(got[BLOCKS * THREADS], 0);
    ok(cuda->StreamDestroy(s));
    ok(cuda->MemFree(memory));
    ok(cuda->ModuleUnload(module));
    leave(0);
}

/* ---- checks on request, each in a process that opens the driver anew ---- */

struct part {
    const char *name, *value, *part;
};
static int become_part(void *arg)
{
    const struct part *p = arg;
    setenv(p->name, p->value, 1);
    execl("/proc/self/exe", "unit_fake_cuda", p->part, (char *)NULL);
    return 50;
}
static int run_part(const char *name, const char *value, const char *part)
{
    struct part p = { name, value, part };
    return in_child(become_part, &p);
}

static int part_fail(void)
{
    CUdeviceptr memory[3];
    CUcontext ctx;
    if (cuda->DevicePrimaryCtxRetain(&ctx, 0) != CUDA_SUCCESS || cuda->CtxPushCurrent(ctx) != CUDA_SUCCESS)
        return 1;
    return cuda->MemAlloc(&memory[0], 8) == CUDA_SUCCESS &&
                   cuda->MemAlloc(&memory[1], 8) == CUDA_ERROR_OUT_OF_MEMORY &&
                   cuda->MemAlloc(&memory[2], 8) == CUDA_SUCCESS
               ? 0
               : 2;
}
static int part_leak(void)
{
    CUcontext ctx;
    (void)cuda->DevicePrimaryCtxRetain(&ctx, 0);
    return 0;
}
static int part_touch(void)
{
    CUdeviceptr memory;
    CUcontext ctx;
    const int key = pkey_alloc(0, 0);
    signal(SIGSEGV, SIG_DFL);
    if (key < 0) /* without protection keys, the driver cannot catch it */
        return getenv("FAKE_CUDA_STRICT")[0] == '1' ? 128 + SIGSEGV : 0;
    (void)cuda->DevicePrimaryCtxRetain(&ctx, 0);
    (void)cuda->CtxPushCurrent(ctx);
    (void)cuda->MemAlloc(&memory, 8);
    *(volatile int *)memory = 1;
    return 0;
}

static void failures_leaks_and_touches_are_reported_on_request(void **state)
{
    (void)state;
    assert_int_equal(run_part("FAKE_CUDA_FAIL", "cuStreamQuery:1:1,cuMemAlloc:2:2", "fail"), 0);
    assert_int_equal(run_part("FAKE_CUDA_LEAKS", "1", "leak"), 97);
    assert_int_equal(run_part("FAKE_CUDA_LEAKS", "0", "leak"), 0);
    assert_int_equal(run_part("FAKE_CUDA_STRICT", "1", "touch"), 128 + SIGSEGV);
    assert_int_equal(run_part("FAKE_CUDA_STRICT", "0", "touch"), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_described),
        cmocka_unit_test(memory_has_kinds_and_bounds),
        cmocka_unit_test(streams_keep_order_and_wait_for_events),
        cmocka_unit_test(streams_wait_for_words),
        cmocka_unit_test(legacy_stream_waits_for_the_others),
        cmocka_unit_test(captured_work_runs_with_each_launch),
        cmocka_unit_test(a_capture_forbids_what_the_driver_forbids),
        cmocka_unit_test(another_process_opens_memory_by_its_handle),
        cmocka_unit_test(memory_is_shared_by_descriptor),
        cmocka_unit_test(kernels_of_two_streams_reduce_together),
        cmocka_unit_test(a_program_brings_its_own_kernels),
        cmocka_unit_test(failures_leaks_and_touches_are_reported_on_request),
    };
    const char *build = getenv("builddir"), *why = "";
    snprintf(library, sizeof library, "%.4000s/.libs/libfakecuda.so", build != NULL ? build : ".");
    setenv("RONDO_CUDA_LIB", library, 1);
    setenv("FAKE_CUDA_NO_PEER", "2-3", 1);
    cuda = rondo_cuda(&why);
    if (cuda == NULL) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    if (argc > 1)
        return strcmp(argv[1], "fail") == 0   ? part_fail()
               : strcmp(argv[1], "leak") == 0 ? part_leak()
                                              : part_touch();
    find_calls();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
