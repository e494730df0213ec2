/* The fake CUDA driver: memory. */
#include "fake_cuda.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x6f646e6f72435544ull

/* ---- known memory ---- */

struct fake_memory *fake_find(uintptr_t address)
{
    struct fake_memory *m = fake.memory;
    while (m != NULL && (address < m->base || address >= m->base + m->bytes)) {
        m = m->next;
    }
    return m;
}

static struct fake_memory *find_base(enum fake_kind kind, uintptr_t base)
{
    struct fake_memory *m = fake.memory;
    while (m != NULL && (m->base != base || m->kind != kind)) {
        m = m->next;
    }
    return m;
}

struct fake_memory *fake_add(enum fake_kind kind, uintptr_t base, size_t bytes, int device)
{
    struct fake_memory *m = calloc(1, sizeof(*m));
    if (m != NULL) {
        m->kind = kind;
        m->base = base;
        m->bytes = bytes;
        m->device = device;
        m->fd = -1;
        m->refs = 1;
        m->next = fake.memory;
        fake.memory = m;
        fake_count(kind, 1);
    }
    return m;
}

void fake_forget(struct fake_memory *memory)
{
    struct fake_memory **at = &fake.memory;
    while (*at != memory) {
        at = &(*at)->next;
    }
    *at = memory->next;
    fake_count(memory->kind, -1);
    if (memory->fd >= 0) {
        close(memory->fd);
    }
    free(memory);
}

int fake_range_fits(uintptr_t p, size_t bytes)
{
    const struct fake_memory *m = fake_find(p);
    return m == NULL || bytes <= m->base + m->bytes - p;
}

/* ---- descriptors ---- */

int fake_descriptor(size_t bytes, int device, uint64_t *nonce)
{
    static uint64_t serial;
    const struct fake_trailer trailer = { MAGIC,
                                          (uint64_t)getpid() << 32 |
                                              __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED),
                                          bytes, fake.physical[device] };
    const int fd = memfd_create("fake-gpu", MFD_CLOEXEC);
    if (fd >= 0 && (ftruncate(fd, (off_t)(bytes + FAKE_PAGE)) != 0 ||
                    pwrite(fd, &trailer, sizeof trailer, (off_t)bytes) != (ssize_t)sizeof trailer)) {
        close(fd);
        return -1;
    }
    *nonce = trailer.nonce;
    return fd;
}

int fake_trailer_read(int fd, struct fake_trailer *trailer)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size < FAKE_PAGE ||
        pread(fd, trailer, sizeof *trailer, st.st_size - FAKE_PAGE) != (ssize_t)sizeof *trailer) {
        return 0;
    }
    return trailer->magic == MAGIC && trailer->bytes == (uint64_t)st.st_size - FAKE_PAGE;
}

/* At `at`, or anywhere on the boundary of what devices share. NULL: no memory. */
void *fake_map(int fd, size_t bytes, void *at)
{
    uint8_t *p = at;
    if (at == NULL) {
        uint8_t *room = mmap(NULL, bytes + FAKE_GRANULE, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room == MAP_FAILED) return NULL;
        p = (uint8_t *)rondo_round_up((uintptr_t)room, FAKE_GRANULE);
        if (p > room) munmap(room, (size_t)(p - room));
        munmap(p + bytes, (size_t)(room + bytes + FAKE_GRANULE - (p + bytes)));
    }
    if (mmap(p, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) return NULL;
    if (fake.pkey > 0) (void)pkey_mprotect(p, bytes, PROT_READ | PROT_WRITE, fake.pkey);
    return p;
}

void fake_open_memory(void)
{
    if (fake.pkey > 0) {
        (void)pkey_set(fake.pkey, 0);
    }
}

/* ---- device memory ---- */

static CUresult allocate(CUcontext ctx, size_t asked, CUdeviceptr *pointer)
{
    const size_t bytes = rondo_round_up(asked, FAKE_PAGE),
                 most = (size_t)fake_number("FAKE_CUDA_MEMORY", 4096) << 20;
    uint64_t nonce;
    struct fake_memory *m;
    void *p = NULL;
    int fd = -1;
    if (asked == 0) return CUDA_ERROR_INVALID_VALUE;
    if (asked > most || fake.used[ctx->device] + bytes > most ||
        (fd = fake_descriptor(bytes, ctx->device, &nonce)) < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    p = fake_map(fd, bytes, NULL);
    m = p == NULL ? NULL : fake_add(FAKE_MEMORY, (uintptr_t)p, bytes, ctx->device);
    if (m == NULL) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    m->fd = fd;
    m->nonce = nonce;
    fake.used[ctx->device] += bytes;
    *pointer = m->base;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *pointer, size_t bytes)
{
    CUcontext ctx;
    CUresult result;
    FAKE_ENTER_CTX("cuMemAlloc", ctx);
    pthread_mutex_lock(&fake.lock);
    result = fake_unsafe();
    if (result == CUDA_SUCCESS) result = fake_may_wait_idle("cuMemAlloc", ctx);
    if (result == CUDA_SUCCESS) result = allocate(ctx, bytes, pointer);
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuMemFree(CUdeviceptr pointer)
{
    CUcontext ctx;
    CUresult result;
    struct fake_memory *m;
    FAKE_ENTER_CTX("cuMemFree", ctx);
    if (pointer == 0) return CUDA_SUCCESS;
    pthread_mutex_lock(&fake.lock);
    result = fake_unsafe();
    if (result == CUDA_SUCCESS) result = fake_may_wait_idle("cuMemFree", ctx);
    m = find_base(FAKE_MEMORY, pointer);
    if (result == CUDA_SUCCESS && m == NULL) result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        fake.used[m->device] -= m->bytes;
        munmap((void *)m->base, m->bytes);
        fake_forget(m);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total)
{
    CUcontext ctx;
    FAKE_ENTER_CTX("cuMemGetInfo", ctx);
    *total = (size_t)fake_number("FAKE_CUDA_MEMORY", 4096) << 20;
    pthread_mutex_lock(&fake.lock);
    *free_bytes = *total - fake.used[ctx->device];
    pthread_mutex_unlock(&fake.lock);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    const struct fake_memory *m;
    FAKE_ENTER("cuMemGetAddressRange");
    pthread_mutex_lock(&fake.lock);
    m = fake_find(pointer);
    if (m != NULL && base != NULL) *base = m->base;
    if (m != NULL && bytes != NULL) *bytes = m->bytes;
    pthread_mutex_unlock(&fake.lock);
    return m != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuCtxSynchronize(void)
{
    CUcontext ctx;
    CUresult result;
    FAKE_ENTER_CTX("cuCtxSynchronize", ctx);
    pthread_mutex_lock(&fake.lock);
    result = fake_unsafe();
    if (result == CUDA_SUCCESS) result = fake_wait_idle("cuCtxSynchronize", ctx);
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* ---- host memory ---- */

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    CUcontext ctx;
    CUresult result;
    void *p = NULL;
    FAKE_ENTER_CTX("cuMemHostAlloc", ctx);
    (void)flags;
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake.lock);
    result = fake_unsafe();
    if (result == CUDA_SUCCESS) result = fake_may_wait_idle("cuMemHostAlloc", NULL);
    if (result == CUDA_SUCCESS) {
        p = aligned_alloc(FAKE_PAGE, rondo_round_up(bytes, FAKE_PAGE));
        if (p == NULL || fake_add(FAKE_PINNED, (uintptr_t)p, bytes, -1) == NULL)
            result = CUDA_ERROR_OUT_OF_MEMORY;
        *pointer = p;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* Shared memory can be mapped a second time. The alias is known as memory, too. */
static void make_alias(struct fake_memory *m)
{
    void *p = fake_number("FAKE_CUDA_ALIAS", 0) != 0 ? mremap((void *)m->base, 0, m->bytes, MREMAP_MAYMOVE)
                                                     : MAP_FAILED;
    if (p != MAP_FAILED && fake_add(FAKE_REGISTERED, (uintptr_t)p, m->bytes, -1) != NULL)
        m->alias = (uintptr_t)p;
}

static void forget_alias(const struct fake_memory *m)
{
    if (m->alias != 0) {
        fake_forget(fake_find(m->alias));
        munmap((void *)m->alias, m->bytes);
    }
}

static CUresult forget_host(enum fake_kind kind, void *pointer, CUresult unknown)
{
    struct fake_memory *m;
    CUresult result;
    pthread_mutex_lock(&fake.lock);
    result = fake_unsafe();
    if (result == CUDA_SUCCESS && kind == FAKE_PINNED) result = fake_may_wait_idle("cuMemFreeHost", NULL);
    m = find_base(kind, (uintptr_t)pointer);
    if (result == CUDA_SUCCESS && m == NULL) result = unknown;
    if (result == CUDA_SUCCESS) {
        if (kind == FAKE_PINNED) free(pointer);
        forget_alias(m);
        fake_forget(m);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuMemFreeHost(void *pointer)
{
    CUcontext ctx;
    FAKE_ENTER_CTX("cuMemFreeHost", ctx);
    return forget_host(FAKE_PINNED, pointer, CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned flags)
{
    CUcontext ctx;
    CUresult result;
    FAKE_ENTER_CTX("cuMemHostRegister", ctx);
    (void)flags;
    if (pointer == NULL || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake.lock);
    result = fake_unsafe();
    for (const struct fake_memory *m = fake.memory; m != NULL && result == CUDA_SUCCESS; m = m->next) {
        if ((uintptr_t)pointer < m->base + m->bytes && m->base < (uintptr_t)pointer + bytes)
            result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    if (result == CUDA_SUCCESS) {
        struct fake_memory *m = fake_add(FAKE_REGISTERED, (uintptr_t)pointer, bytes, -1);
        if (m == NULL) result = CUDA_ERROR_OUT_OF_MEMORY;
        if (m != NULL) make_alias(m);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuMemHostUnregister(void *pointer)
{
    CUcontext ctx;
    FAKE_ENTER_CTX("cuMemHostUnregister", ctx);
    return forget_host(FAKE_REGISTERED, pointer, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *device, void *pointer, unsigned flags)
{
    CUcontext ctx;
    const struct fake_memory *m;
    FAKE_ENTER_CTX("cuMemHostGetDevicePointer", ctx);
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake.lock);
    m = fake_find((uintptr_t)pointer);
    pthread_mutex_unlock(&fake.lock);
    *device = (CUdeviceptr)pointer;
    if (m != NULL && m->alias != 0) *device = m->alias + ((uintptr_t)pointer - m->base);
    return m != NULL && m->device < 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- pointers ---- */

static CUresult attribute(const struct fake_memory *m, CUpointer_attribute which, void *value,
                          CUdeviceptr pointer)
{
    const int host = m != NULL && m->device < 0;
    switch ((int)which) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = m == NULL ? 0 : host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)value = 0; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = m == NULL ? -2 : host ? 0 : m->device; break;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = m == NULL || host || m->kind == FAKE_RANGE ? NULL : &fake.context[m->device];
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)value = m == NULL ? 0 : pointer; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: *(void **)value = host ? (void *)pointer : NULL; break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)value = m == NULL ? 0 : (unsigned long long)(uintptr_t)m;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)value = m == NULL ? 0 : m->base; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)value = m == NULL ? 0 : m->bytes; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *which, void **value, CUdeviceptr pointer)
{
    CUresult result = CUDA_SUCCESS;
    FAKE_ENTER("cuPointerGetAttributes");
    pthread_mutex_lock(&fake.lock);
    for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++) {
        result = attribute(fake_find(pointer), which[i], value[i], pointer);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* ---- handles for other processes ---- */

struct handle {
    uint64_t magic, nonce;
    int32_t process, fd;
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "an IPC handle has 64 bytes");

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    const struct fake_memory *m;
    struct handle h = { .magic = MAGIC, .process = getpid() };
    FAKE_ENTER("cuIpcGetMemHandle");
    pthread_mutex_lock(&fake.lock);
    m = fake_find(pointer);
    if (m != NULL) {
        h.fd = m->fd;
        h.nonce = m->nonce;
    }
    pthread_mutex_unlock(&fake.lock);
    if (m == NULL || m->kind != FAKE_MEMORY) return CUDA_ERROR_INVALID_VALUE;
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &h, sizeof h);
    return CUDA_SUCCESS;
}

/* This process's number of a device of the machine, or its first device if it does not see that one. */
static int visible(int physical)
{
    for (int i = 0; i < fake.ndevices; i++) {
        if (fake.physical[i] == physical) return i;
    }
    return 0;
}

static CUresult open_handle(CUcontext ctx, const struct handle *h, CUdeviceptr *pointer)
{
    char path[64];
    struct fake_trailer trailer;
    struct fake_memory *m = fake.memory;
    void *p;
    int fd;
    for (; m != NULL && (m->kind != FAKE_OPENED || m->nonce != h->nonce); m = m->next) {
    }
    if (m != NULL) {
        m->refs++;
        *pointer = m->base;
        return CUDA_SUCCESS;
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", h->process, h->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
    if (!fake_trailer_read(fd, &trailer) || trailer.nonce != h->nonce) {
        close(fd);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!fake_peers(ctx->device, visible(trailer.device))) {
        close(fd);
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    p = fake_map(fd, trailer.bytes, NULL);
    m = p == NULL ? NULL : fake_add(FAKE_OPENED, (uintptr_t)p, trailer.bytes, visible(trailer.device));
    if (m == NULL) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    m->fd = fd;
    m->nonce = h->nonce;
    *pointer = m->base;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags)
{
    CUcontext ctx;
    CUresult result;
    struct handle h;
    FAKE_ENTER_CTX("cuIpcOpenMemHandle", ctx);
    memcpy(&h, &handle, sizeof h);
    if (h.magic != MAGIC || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
    if (h.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT; /* a process cannot open its own */
    pthread_mutex_lock(&fake.lock);
    result = fake_unsafe();
    if (result == CUDA_SUCCESS) result = open_handle(ctx, &h, pointer);
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    CUcontext ctx;
    CUresult result;
    struct fake_memory *m;
    FAKE_ENTER_CTX("cuIpcCloseMemHandle", ctx);
    pthread_mutex_lock(&fake.lock);
    result = fake_unsafe();
    m = find_base(FAKE_OPENED, pointer);
    if (result == CUDA_SUCCESS && m == NULL) result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && --m->refs == 0) {
        munmap((void *)m->base, m->bytes);
        fake_forget(m);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}
