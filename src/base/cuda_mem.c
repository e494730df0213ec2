#include "base/cuda_mem.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/shm_socket.h"

_Static_assert(sizeof(struct rondo_gpu_name) == 96, "a name leaves room in connect records");

enum { LEAST_UNIT = 2 << 20, MOST_WAIT_MS = 10000, NAME_DIGITS = 16 };
#define PATH_PREFIX "@rondo-"
_Static_assert(sizeof(PATH_PREFIX) + NAME_DIGITS == RONDO_GPU_PATH, "a path fits a name");

static const double MIB = 1 << 20;

/* Whether peers may open a block: never, once it is offered, always. */
enum share { SHARE_NONE, SHARE_LATER, SHARE_NOW };

/* A block of this process, or one that it has opened; counts its users. */
struct rondo_gpu_block {
    struct rondo_gpu_block *next;
    struct rondo_cuda_device
        device; /* of the memory, or (opened) that which it is mapped for: holds the context */
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t bytes;
    enum rondo_gpu_kind kind;
    int own, users, mapped;
    int fd;       /* of a VMM block that is offered; -1 */
    uint64_t key; /* of that offer */
    struct rondo_gpu_name name;
    int alloc; /* rondo_gpu_alloc's: found by address */
};

static struct {
    pthread_mutex_t lock;
    struct rondo_gpu_block *own; /* blocks of this process */
    uint64_t nonce, epoch;       /* epoch: atomic */
    uint32_t serial;
} blocks = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* A forked child cannot use its parent's devices. It frees host memory, for which it looks here first. */
static void blocks_child(void)
{
    (void)rondo_fork_lock(&blocks.lock);
    blocks.own = NULL;
    blocks.nonce = 0;
}
RONDO_AT_FORK(blocks_child)

/* Identify this process; a forked child is another one. Called with the lock held. */
static rondo_status process_word(uint64_t *word)
{
    pid_t pid = getpid();
    if (blocks.nonce == 0) {
        RONDO_TRY(rondo_random(&blocks.nonce, sizeof(blocks.nonce)));
    }
    *word = rondo_hash(&pid, sizeof(pid), blocks.nonce);
    return RONDO_SUCCESS;
}

/* Set the sentence "cuMemMap: invalid argument (...)" for errors that the caller logs. @return
 * RONDO_SYSTEM_ERROR: memory is lacking. */
static rondo_status quiet(const struct rondo_cuda *cuda, CUresult result, const char *call)
{
    const char *name = NULL, *text = NULL;
    (void)cuda->GetErrorName(result, &name);
    (void)cuda->GetErrorString(result, &text);
    return rondo_fail_quiet(
        result == CUDA_ERROR_OUT_OF_MEMORY ? RONDO_SYSTEM_ERROR : RONDO_UNHANDLED_CUDA_ERROR, "%s: %s (%s)",
        call, text != NULL ? text : "unknown error", name != NULL ? name : "?");
}
#define QUIET_TRY(call, name)                              \
    do {                                                   \
        CUresult result_ = (call);                         \
        if (result_ != CUDA_SUCCESS) {                     \
            return quiet(rondo_cuda(NULL), result_, name); \
        }                                                  \
    } while (0)

void rondo_gpu_relax(CUstreamCaptureMode *before)
{
    *before = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)rondo_cuda(NULL)->ThreadExchangeStreamCaptureMode(before);
}

void rondo_gpu_unrelax(CUstreamCaptureMode before)
{
    (void)rondo_cuda(NULL)->ThreadExchangeStreamCaptureMode(&before);
}

/* ---- the memory of a block ---- */

/* A block retains its device's context, which must outlive the block's creator. */
static rondo_status device_hold(struct rondo_gpu_block *block, const struct rondo_cuda_device *device)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    QUIET_TRY(cuda->DevicePrimaryCtxRetain(&block->device.context, device->handle),
              "cuDevicePrimaryCtxRetain");
    CUcontext context = block->device.context;
    block->device = *device;
    block->device.context = context;
    return RONDO_SUCCESS;
}

static CUmemAllocationProp vmm_properties(const struct rondo_cuda *cuda,
                                          const struct rondo_cuda_device *device, enum share share)
{
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = share != SHARE_NONE ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                    : CU_MEM_HANDLE_TYPE_NONE,
        .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->handle }
    };
    int rdma = 0;
    if (cuda->DeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                                 device->handle) == CUDA_SUCCESS) {
        properties.allocFlags.gpuDirectRDMACapable = rdma != 0;
    }
    return properties;
}

/* Give the memory behind block->handle an address that block->device may use. */
static rondo_status vmm_map(struct rondo_gpu_block *block)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
                                             .id = block->device.handle },
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    QUIET_TRY(cuda->MemAddressReserve(&block->address, block->bytes, LEAST_UNIT, 0, 0),
              "cuMemAddressReserve");
    QUIET_TRY(cuda->MemMap(block->address, block->bytes, 0, block->handle, 0), "cuMemMap");
    block->mapped = 1;
    QUIET_TRY(cuda->MemSetAccess(block->address, block->bytes, &access, 1), "cuMemSetAccess");
    return RONDO_SUCCESS;
}

static rondo_status vmm_create(struct rondo_gpu_block *block, size_t bytes, enum share share)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    CUmemAllocationProp properties = vmm_properties(cuda, &block->device, share);
    size_t unit = 0;
    block->kind = RONDO_GPU_VMM;
    QUIET_TRY(cuda->MemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
              "cuMemGetAllocationGranularity");
    block->bytes = rondo_round_up(bytes, rondo_max_size(unit, LEAST_UNIT));
    QUIET_TRY(cuda->MemCreate(&block->handle, block->bytes, &properties, 0), "cuMemCreate");
    return vmm_map(block);
}

/* An IPC handle covers whole allocation units, so a block has units of its own. */
static rondo_status plain_create(struct rondo_gpu_block *block, size_t bytes)
{
    block->kind = RONDO_GPU_IPC;
    block->bytes = rondo_round_up(bytes, LEAST_UNIT);
    QUIET_TRY(rondo_cuda(NULL)->MemAlloc(&block->address, block->bytes), "cuMemAlloc");
    return RONDO_SUCCESS;
}

static void vmm_free(struct rondo_gpu_block *block)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    if (block->mapped) {
        (void)cuda->MemUnmap(block->address, block->bytes);
    }
    if (block->address != 0) {
        (void)cuda->MemAddressFree(block->address, block->bytes);
    }
    if (block->handle != 0) {
        (void)cuda->MemRelease(block->handle);
    }
}

/* Release whatever the block has so far; its context is current. */
static void memory_free(struct rondo_gpu_block *block)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    if (block->kind == RONDO_GPU_VMM) {
        vmm_free(block);
    } else if (block->address != 0) {
        (void)(block->own ? cuda->MemFree(block->address) : cuda->IpcCloseMemHandle(block->address));
    }
    block->address = 0;
    block->handle = 0;
    block->mapped = 0;
}

/* ---- offering a block ---- */

static rondo_status vmm_offer(struct rondo_gpu_block *block)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    uint64_t random[2];
    QUIET_TRY(cuda->MemExportToShareableHandle(&block->fd, block->handle,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
              "cuMemExportToShareableHandle");
    RONDO_TRY(rondo_random(random, sizeof(random)));
    snprintf(block->name.path, sizeof(block->name.path), PATH_PREFIX "%016llx",
             (unsigned long long)random[0]);
    block->key = random[1];
    return rondo_shm_offer(block->fd, block->key, block->name.path);
}

static rondo_status block_offer(struct rondo_gpu_block *block)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    if (block->kind == RONDO_GPU_VMM) {
        return vmm_offer(block);
    }
    QUIET_TRY(cuda->IpcGetMemHandle(&block->name.handle, block->address), "cuIpcGetMemHandle");
    return RONDO_SUCCESS;
}

static void block_withdraw(struct rondo_gpu_block *block)
{
    if (block->fd >= 0) {
        rondo_shm_withdraw(block->key);
        close(block->fd);
        block->fd = -1;
    }
}

/* ---- the life of a block ---- */

static void block_free(struct rondo_gpu_block *block)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    CUstreamCaptureMode before;
    block_withdraw(block);
    if (block->device.context != NULL) {
        rondo_gpu_relax(&before);
        if (rondo_cuda_enter(&block->device) == RONDO_SUCCESS) {
            memory_free(block);
            rondo_cuda_leave();
        }
        (void)cuda->DevicePrimaryCtxRelease(block->device.handle);
        rondo_gpu_unrelax(before);
    }
    rondo_free(block);
}

/* Allocate a new block's memory by VMM or cuMemAlloc; its context is current. Where memory is lacking,
 * cuMemAlloc would find none either, and first wait for the device, perhaps for ever (base/cuda_pool.h). */
static rondo_status memory_create(struct rondo_gpu_block *block, size_t bytes, enum share share)
{
    rondo_status status = RONDO_UNHANDLED_CUDA_ERROR;
    if (block->device.vmm) {
        status = vmm_create(block, bytes, share);
        if (status == RONDO_SYSTEM_ERROR) {
            return status;
        }
        if (status == RONDO_SUCCESS && share == SHARE_NOW) {
            status = block_offer(block);
        }
        if (status == RONDO_SUCCESS) {
            return status;
        }
        RONDO_INFO(RONDO_SUBSYS_P2P | RONDO_SUBSYS_ALLOC,
                   "GPU %d (%s): no %smemory by cuMemCreate (%s); using cuMemAlloc", block->device.ordinal,
                   block->device.bus_id, share == SHARE_NONE ? "" : "shareable ", rondo_error_text());
        block_withdraw(block);
        memory_free(block);
        memset(&block->name, 0, sizeof(block->name));
    }
    RONDO_TRY(plain_create(block, bytes));
    return share == SHARE_NOW ? block_offer(block) : RONDO_SUCCESS;
}

static rondo_status create_failed(const struct rondo_cuda_device *device, size_t bytes, enum share share,
                                  const char *cause)
{
    size_t free = 0, all = 0;
    char text[RONDO_ERROR_TEXT / 2], lower[RONDO_LOWER_TEXT];
    snprintf(text, sizeof(text), "%.*s", (int)sizeof(text) - 1, cause);
    if (rondo_cuda_enter(device) == RONDO_SUCCESS) {
        (void)rondo_cuda(NULL)->MemGetInfo(&free, &all);
        rondo_cuda_leave();
    }
    return rondo_fail(RONDO_UNHANDLED_CUDA_ERROR,
                      "cannot allocate %.1f MiB on GPU %d (%s) of host %s, which has %.1f of %.1f MiB free: "
                      "%s; %s, or find "
                      "out what else uses the GPU",
                      (double)bytes / MIB, device->ordinal, device->bus_id, rondo_log_host(),
                      (double)free / MIB, (double)all / MIB, text,
                      share == SHARE_LATER ? "allocate less"
                                           : rondo_param_lower_buffers(1, lower)); /* LATER: the user's */
}

static void list_add(struct rondo_gpu_block *block)
{
    pthread_mutex_lock(&blocks.lock);
    block->name.serial = ++blocks.serial;
    block->next = blocks.own;
    blocks.own = block;
    pthread_mutex_unlock(&blocks.lock);
}

static rondo_status name_fill(struct rondo_gpu_block *block)
{
    pthread_mutex_lock(&blocks.lock);
    rondo_status status = process_word(&block->name.process);
    pthread_mutex_unlock(&blocks.lock);
    block->name.address = block->address;
    block->name.bytes = block->bytes;
    block->name.kind = block->kind;
    return status;
}

static rondo_status block_create(struct rondo_gpu_block **out, const struct rondo_cuda_device *device,
                                 size_t bytes, enum share share)
{
    struct rondo_gpu_block *block;
    CUstreamCaptureMode before;
    rondo_status status;
    if (bytes == 0 || bytes > (size_t)PTRDIFF_MAX / 2) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "cannot allocate %zu bytes on GPU %d of host %s: the size is 0 or too large", bytes,
                          device->ordinal, rondo_log_host());
    }
    RONDO_TRY(RONDO_NEW(block, "a block of device memory"));
    block->own = block->users = 1;
    block->fd = -1;
    rondo_gpu_relax(&before);
    RONDO_TRY_GOTO(device_hold(block, device), fail);
    RONDO_TRY_GOTO(rondo_cuda_enter(&block->device), fail);
    status = memory_create(block, bytes, share);
    rondo_cuda_leave();
    RONDO_TRY_GOTO(status, fail);
    RONDO_TRY_GOTO(name_fill(block), fail);
    rondo_gpu_unrelax(before);
    list_add(block);
    *out = block;
    return RONDO_SUCCESS;
fail:
    rondo_gpu_unrelax(before);
    status = create_failed(device, bytes, share, rondo_error_text());
    block_free(block);
    return status;
}

static void mem_fill(struct rondo_gpu_mem *mem, const struct rondo_cuda_device *device,
                     struct rondo_gpu_block *block)
{
    *mem = (struct rondo_gpu_mem){
        .base = (uint8_t *)(uintptr_t)block->address, .bytes = block->bytes, .device = device, .block = block
    };
    mem->name = block->name;
}

rondo_status rondo_gpu_mem_create(struct rondo_gpu_mem *mem, const struct rondo_cuda_device *device,
                                  size_t bytes, int share)
{
    struct rondo_gpu_block *block;
    RONDO_TRY(block_create(&block, device, bytes, share ? SHARE_NOW : SHARE_NONE));
    mem_fill(mem, device, block);
    return RONDO_SUCCESS;
}

/* ---- opening ---- */

/* Let another device of this process access one of its blocks. */
static rondo_status access_from(const struct rondo_gpu_block *block, const struct rondo_cuda_device *device)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->handle },
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    CUresult result;
    int can = 0;
    if (device->handle == block->device.handle) {
        return RONDO_SUCCESS;
    }
    QUIET_TRY(cuda->DeviceCanAccessPeer(&can, device->handle, block->device.handle), "cuDeviceCanAccessPeer");
    if (!can) {
        return rondo_fail_quiet(RONDO_UNHANDLED_CUDA_ERROR, "the driver gives GPU %d no access to GPU %d",
                                device->ordinal, block->device.ordinal);
    }
    if (block->kind == RONDO_GPU_VMM) {
        QUIET_TRY(cuda->MemSetAccess(block->address, block->bytes, &access, 1), "cuMemSetAccess");
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_cuda_enter(device));
    result = cuda->CtxEnablePeerAccess(block->device.context, 0);
    rondo_cuda_leave();
    if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
        QUIET_TRY(result, "cuCtxEnablePeerAccess");
    }
    return RONDO_SUCCESS;
}

/* Find the named block of this process, and count one more user. */
static struct rondo_gpu_block *own_take(const struct rondo_gpu_name *name)
{
    struct rondo_gpu_block *block;
    pthread_mutex_lock(&blocks.lock);
    for (block = blocks.own; block != NULL; block = block->next) {
        if (block->name.serial == name->serial && block->name.address == name->address &&
            block->name.bytes == name->bytes && block->name.kind == name->kind) {
            block->users++;
            break;
        }
    }
    pthread_mutex_unlock(&blocks.lock);
    return block;
}

static int socket_wait_ms(void)
{
    int64_t limit_ms = rondo_params()->init_timeout / 1000000;
    return limit_ms > 0 && limit_ms < MOST_WAIT_MS ? (int)limit_ms : MOST_WAIT_MS;
}

static rondo_status vmm_import(struct rondo_gpu_block *block, const struct rondo_gpu_name *name)
{
    const char *why = "";
    char path[RONDO_GPU_PATH];
    memcpy(path, name->path, sizeof(path));
    path[sizeof(path) - 1] = '\0';
    if (strncmp(path, PATH_PREFIX, strlen(PATH_PREFIX)) != 0 || strlen(path) != RONDO_GPU_PATH - 1) {
        return rondo_fail_quiet(RONDO_INTERNAL_ERROR, "its record is not one of Rondo's");
    }
    int fd = rondo_shm_receive(path, socket_wait_ms(), &why);
    if (fd < 0) {
        return rondo_fail_quiet(RONDO_SYSTEM_ERROR, "its descriptor is not available (%s): %s", path, why);
    }
    CUresult result = rondo_cuda(NULL)->MemImportFromShareableHandle(
        &block->handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    QUIET_TRY(result, "cuMemImportFromShareableHandle");
    return vmm_map(block);
}

static rondo_status ipc_import(struct rondo_gpu_block *block, const struct rondo_gpu_name *name)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    CUdeviceptr begin = 0;
    size_t bytes = 0;
    QUIET_TRY(cuda->IpcOpenMemHandle(&block->address, name->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
              "cuIpcOpenMemHandle");
    QUIET_TRY(cuda->MemGetAddressRange(&begin, &bytes, block->address), "cuMemGetAddressRange");
    if (begin > block->address || block->address - begin > bytes ||
        name->bytes > bytes - (block->address - begin)) {
        return rondo_fail_quiet(RONDO_INTERNAL_ERROR,
                                "its memory has %zu bytes, fewer than its record states", bytes);
    }
    return RONDO_SUCCESS;
}

static rondo_status block_import(struct rondo_gpu_block **out, const struct rondo_cuda_device *device,
                                 const struct rondo_gpu_name *name)
{
    struct rondo_gpu_block *block;
    rondo_status status;
    RONDO_TRY(RONDO_NEW(block, "a peer's device memory"));
    block->users = 1;
    block->fd = -1;
    block->kind = (enum rondo_gpu_kind)name->kind;
    block->bytes = name->bytes;
    block->name = *name;
    RONDO_TRY_GOTO(device_hold(block, device), fail);
    RONDO_TRY_GOTO(rondo_cuda_enter(&block->device), fail);
    status = name->kind == RONDO_GPU_VMM ? vmm_import(block, name) : ipc_import(block, name);
    rondo_cuda_leave();
    RONDO_TRY_GOTO(status, fail);
    *out = block;
    return RONDO_SUCCESS;
fail:
    block_free(block);
    return status;
}

/* Do not try to open what no owner can have created. */
static rondo_status name_check(const struct rondo_cuda_device *device, const struct rondo_gpu_name *name)
{
    if (name->kind == RONDO_GPU_NONE || name->kind >= RONDO_NUM_GPU_KINDS || name->bytes == 0 ||
        name->bytes % LEAST_UNIT != 0 || name->bytes > (uint64_t)PTRDIFF_MAX / 2) {
        return rondo_fail_quiet(RONDO_INTERNAL_ERROR, "its record is invalid");
    }
    if (name->kind == RONDO_GPU_VMM && !device->vmm) {
        return rondo_fail_quiet(RONDO_UNHANDLED_CUDA_ERROR, "GPU %d cannot map memory by its descriptor",
                                device->ordinal);
    }
    return RONDO_SUCCESS;
}

static void block_put(struct rondo_gpu_block *block)
{
    struct rondo_gpu_block **link;
    pthread_mutex_lock(&blocks.lock);
    int last = --block->users == 0;
    for (link = &blocks.own; last && *link != NULL; link = &(*link)->next) {
        if (*link == block) {
            *link = block->next;
            break;
        }
    }
    pthread_mutex_unlock(&blocks.lock);
    if (last) {
        block_free(block);
    }
}

rondo_status rondo_gpu_mem_open(struct rondo_gpu_mem *mem, const struct rondo_cuda_device *device,
                                const struct rondo_gpu_name *name)
{
    struct rondo_gpu_block *block = NULL;
    CUstreamCaptureMode before;
    uint64_t process;
    rondo_status status;
    RONDO_TRY(name_check(device, name));
    pthread_mutex_lock(&blocks.lock);
    status = process_word(&process);
    pthread_mutex_unlock(&blocks.lock);
    RONDO_TRY(status);
    rondo_gpu_relax(&before);
    if (name->process != process) {
        status = block_import(&block, device, name);
    } else if ((block = own_take(name)) == NULL) {
        status = rondo_fail_quiet(RONDO_INTERNAL_ERROR,
                                  "its record names memory that this process does not have");
    } else if ((status = access_from(block, device)) != RONDO_SUCCESS) {
        block_put(block);
    }
    rondo_gpu_unrelax(before);
    RONDO_TRY(status);
    mem_fill(mem, device, block);
    return RONDO_SUCCESS;
}

int rondo_gpu_mem_mortal(const struct rondo_gpu_mem *mem)
{
    return mem->block != NULL && mem->block->kind == RONDO_GPU_IPC;
}

int rondo_gpu_mem_foreign(const struct rondo_gpu_mem *mem) { return mem->block != NULL && !mem->block->own; }

void rondo_gpu_mem_settle(struct rondo_gpu_mem *mem)
{
    if (mem->block != NULL && mem->block->own) {
        block_withdraw(mem->block);
    }
}

void rondo_gpu_mem_close(struct rondo_gpu_mem *mem)
{
    if (mem->block != NULL) {
        block_put(mem->block);
    }
    memset(mem, 0, sizeof(*mem));
}

/* ---- DMA-BUF ---- */

int rondo_gpu_dmabuf(const struct rondo_cuda_device *device, const void *begin, size_t bytes)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    int fd = -1;
    if (!device->dmabuf || cuda->MemGetHandleForAddressRange == NULL ||
        rondo_cuda_enter(device) != RONDO_SUCCESS) {
        return -1;
    }
    CUresult result = cuda->MemGetHandleForAddressRange(&fd, (CUdeviceptr)(uintptr_t)begin, bytes,
                                                        CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    rondo_cuda_leave();
    return result == CUDA_SUCCESS ? fd : -1;
}

/* ---- rondo_mem_alloc_device ---- */

size_t rondo_gpu_allocated(void)
{
    size_t bytes = 0;
    pthread_mutex_lock(&blocks.lock);
    for (const struct rondo_gpu_block *block = blocks.own; block != NULL; block = block->next) {
        bytes += block->alloc ? block->bytes : 0;
    }
    pthread_mutex_unlock(&blocks.lock);
    return bytes;
}

uint64_t rondo_gpu_epoch(void) { return __atomic_load_n(&blocks.epoch, __ATOMIC_ACQUIRE); }

rondo_status rondo_gpu_alloc(const struct rondo_cuda_device *device, size_t bytes, void **pointer)
{
    struct rondo_gpu_block *block;
    RONDO_TRY(block_create(&block, device, bytes,
                           SHARE_LATER)); /* a descriptor and a socket each, once a peer wants it */
    pthread_mutex_lock(&blocks.lock);
    block->alloc = 1;
    __atomic_fetch_add(&blocks.epoch, 1, __ATOMIC_ACQ_REL);
    pthread_mutex_unlock(&blocks.lock);
    *pointer = (void *)(uintptr_t)block->address;
    return RONDO_SUCCESS;
}

/* Called with the lock held. */
static struct rondo_gpu_block *alloc_at(const void *pointer, int inside)
{
    uintptr_t at = (uintptr_t)pointer;
    for (struct rondo_gpu_block *block = blocks.own; block != NULL; block = block->next) {
        if (block->alloc && at >= block->address && at - block->address < (inside ? block->bytes : 1)) {
            return block;
        }
    }
    return NULL;
}

int rondo_gpu_free(void *pointer)
{
    pthread_mutex_lock(&blocks.lock);
    struct rondo_gpu_block *block = alloc_at(pointer, 0);
    if (block != NULL) {
        block->alloc = 0; /* peers of this process may still have it open */
        __atomic_fetch_add(&blocks.epoch, 1, __ATOMIC_ACQ_REL);
    }
    pthread_mutex_unlock(&blocks.lock);
    if (block != NULL) {
        block_put(block);
    }
    return block != NULL;
}

/* Called with the lock held, the first time a peer wants to open the block. */
static rondo_status offer_once(struct rondo_gpu_block *block)
{
    static const CUipcMemHandle none;
    int offered = block->kind == RONDO_GPU_VMM ? block->fd >= 0
                                               : memcmp(&block->name.handle, &none, sizeof(none)) != 0;
    CUstreamCaptureMode before;
    rondo_status status;
    if (offered) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_cuda_enter(&block->device));
    rondo_gpu_relax(&before);
    status = block_offer(block);
    rondo_gpu_unrelax(before);
    rondo_cuda_leave();
    if (status != RONDO_SUCCESS) {
        block_withdraw(block); /* else it would count as offered, where nobody answers */
    }
    return status;
}

int rondo_gpu_find(const void *pointer, struct rondo_gpu_name *name)
{
    int found = 0;
    pthread_mutex_lock(&blocks.lock);
    struct rondo_gpu_block *block = alloc_at(pointer, 1);
    if (block != NULL && offer_once(block) == RONDO_SUCCESS) {
        *name = block->name;
        found = 1;
    }
    pthread_mutex_unlock(&blocks.lock);
    return found;
}
