/* The fake CUDA driver: memory that is created, mapped and shared by separate calls (VMM), and DMA-BUF
 * descriptors. */
#include "fake_cuda.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Memory without an address. */
struct made {
    struct made *next;
    int fd, device, refs; /* refs: the handle's, and one per mapping */
    int shares;           /* created with a descriptor */
    int own;              /* not imported: it takes this process's memory of the device */
    size_t bytes;
};
static struct made *all_made;

/* A reserved range of addresses. */
struct range {
    struct range *next;
    uintptr_t base;
    size_t bytes;
};
static struct range *ranges;

/* What is mapped where. */
struct mapping {
    struct mapping *next;
    uintptr_t base;
    struct made *made;
};
static struct mapping *mappings;

static int no_vmm(void) { return fake_number("FAKE_CUDA_NO_VMM", 0) != 0; }

static struct made *made_of(CUmemGenericAllocationHandle handle)
{
    struct made *m = all_made;
    while (m != NULL && (CUmemGenericAllocationHandle)(uintptr_t)m != handle) {
        m = m->next;
    }
    return m;
}

static struct made *made_add(int fd, int device, size_t bytes, int shares)
{
    struct made *m = calloc(1, sizeof(*m));
    if (m != NULL) {
        *m = (struct made){ all_made, fd, device, 1, shares, 0, bytes };
        all_made = m;
    }
    return m;
}

static void made_release(struct made *m)
{
    struct made **at = &all_made;
    if (--m->refs > 0) return;
    while (*at != m) {
        at = &(*at)->next;
    }
    *at = m->next;
    if (m->own) fake.used[m->device] -= m->bytes;
    close(m->fd);
    free(m);
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    FAKE_ENTER("cuMemGetAllocationGranularity");
    (void)prop, (void)option;
    if (no_vmm()) return CUDA_ERROR_NOT_SUPPORTED;
    *bytes = FAKE_GRANULE;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long flags)
{
    const size_t most = (size_t)fake_number("FAKE_CUDA_MEMORY", 4096) << 20;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    struct made *m = NULL;
    uint64_t nonce;
    FAKE_ENTER("cuMemCreate");
    if (no_vmm() || (prop->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (flags != 0 || bytes == 0 || bytes % FAKE_GRANULE != 0 ||
        prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->location.id < 0 || prop->location.id >= fake.ndevices) return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&fake.lock);
    if (fake.used[prop->location.id] + bytes <= most) {
        const int fd = fake_descriptor(bytes, prop->location.id, &nonce);
        m = fd < 0 ? NULL : made_add(fd, prop->location.id, bytes, prop->requestedHandleTypes != 0);
    }
    if (m != NULL) {
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)m;
        m->own = 1;
        fake.used[m->device] += bytes;
        fake_count(FAKE_HANDLE, 1);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct made *m;
    FAKE_ENTER("cuMemRelease");
    pthread_mutex_lock(&fake.lock);
    m = made_of(handle);
    if (m != NULL) {
        made_release(m);
        fake_count(FAKE_HANDLE, -1);
    }
    pthread_mutex_unlock(&fake.lock);
    return m != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags)
{
    uint8_t *room, *p;
    struct range *r;
    FAKE_ENTER("cuMemAddressReserve");
    (void)wanted;
    if (no_vmm()) return CUDA_ERROR_NOT_SUPPORTED;
    if (flags != 0 || bytes == 0 || bytes % FAKE_GRANULE != 0 || (alignment & (alignment - 1)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    alignment = rondo_max_size(alignment, FAKE_GRANULE);
    room = mmap(NULL, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    r = room == MAP_FAILED ? NULL : calloc(1, sizeof(*r));
    if (r == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    p = (uint8_t *)rondo_round_up((uintptr_t)room, alignment);
    if (p > room) munmap(room, (size_t)(p - room));
    munmap(p + bytes, (size_t)(room + alignment - p));
    pthread_mutex_lock(&fake.lock);
    *r = (struct range){ ranges, (uintptr_t)p, bytes };
    ranges = r;
    fake_count(FAKE_RANGE, 1);
    pthread_mutex_unlock(&fake.lock);
    *pointer = (CUdeviceptr)p;
    return CUDA_SUCCESS;
}

static int anything_mapped(uintptr_t base, size_t bytes)
{
    for (const struct mapping *m = mappings; m != NULL; m = m->next) {
        if (m->base < base + bytes && base < m->base + m->made->bytes) return 1;
    }
    return 0;
}

static int is_reserved(uintptr_t base, size_t bytes)
{
    for (const struct range *r = ranges; r != NULL; r = r->next) {
        if (base >= r->base && bytes <= r->bytes && base - r->base <= r->bytes - bytes) return 1;
    }
    return 0;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct range **at, *r;
    FAKE_ENTER("cuMemAddressFree");
    pthread_mutex_lock(&fake.lock);
    for (at = &ranges; (r = *at) != NULL && r->base != pointer; at = &r->next) {
    }
    if (r != NULL && r->bytes == bytes && !anything_mapped(pointer, bytes)) {
        *at = r->next;
        munmap((void *)r->base, r->bytes);
        free(r);
        fake_count(FAKE_RANGE, -1);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* Inaccessible until cuMemSetAccess. */
static CUresult map_made(CUdeviceptr pointer, struct made *made)
{
    struct mapping *m = calloc(1, sizeof(*m));
    struct fake_memory *known = m == NULL ? NULL : fake_add(FAKE_RANGE, pointer, made->bytes, made->device);
    if (known == NULL ||
        mmap((void *)pointer, made->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, made->fd, 0) == MAP_FAILED) {
        free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *m = (struct mapping){ mappings, pointer, made };
    mappings = m;
    made->refs++;
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct made *made;
    FAKE_ENTER("cuMemMap");
    pthread_mutex_lock(&fake.lock);
    made = made_of(handle);
    if (made != NULL && flags == 0 && offset == 0 && bytes == made->bytes && is_reserved(pointer, bytes) &&
        !anything_mapped(pointer, bytes)) {
        result = map_made(pointer, made);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct mapping **at, *m;
    FAKE_ENTER("cuMemUnmap");
    pthread_mutex_lock(&fake.lock);
    for (at = &mappings; (m = *at) != NULL && m->base != pointer; at = &m->next) {
    }
    if (m != NULL && m->made->bytes == bytes) {
        *at = m->next;
        (void)mmap((void *)pointer, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                   -1, 0);
        fake_forget(fake_find(pointer));
        made_release(m->made);
        free(m);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
    CUresult result = CUDA_SUCCESS;
    const struct fake_memory *m;
    FAKE_ENTER("cuMemSetAccess");
    pthread_mutex_lock(&fake.lock);
    m = fake_find(pointer);
    for (size_t i = 0; i < count && m != NULL && result == CUDA_SUCCESS; i++) {
        const int device = desc[i].location.id;
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || device < 0 || device >= fake.ndevices ||
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else if (device != m->device && !fake_peers(device, m->device)) {
            result = CUDA_ERROR_INVALID_DEVICE;
        }
    }
    if (m == NULL || m->base != pointer || m->bytes != bytes || count == 0) result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS &&
        (fake.pkey > 0 ? pkey_mprotect((void *)pointer, bytes, PROT_READ | PROT_WRITE, fake.pkey)
                       : mprotect((void *)pointer, bytes, PROT_READ | PROT_WRITE)) != 0) {
        result = CUDA_ERROR_UNKNOWN;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    const struct made *m;
    int fd = -1;
    FAKE_ENTER("cuMemExportToShareableHandle");
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&fake.lock);
    m = made_of(handle);
    if (m != NULL && m->shares && flags == 0) fd = fcntl(m->fd, F_DUPFD_CLOEXEC, 0);
    pthread_mutex_unlock(&fake.lock);
    if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                        CUmemAllocationHandleType type)
{
    struct fake_trailer trailer;
    struct made *m = NULL;
    int fd = (int)(intptr_t)os_handle, device = 0;
    FAKE_ENTER("cuMemImportFromShareableHandle");
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    if (!fake_trailer_read(fd, &trailer) || (fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake.lock);
    for (int i = 0; i < fake.ndevices; i++) {
        device = fake.physical[i] == trailer.device ? i : device;
    }
    m = made_add(fd, device, trailer.bytes, 1);
    if (m != NULL) fake_count(FAKE_HANDLE, 1);
    pthread_mutex_unlock(&fake.lock);
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)m;
    return m != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    struct mapping *m;
    FAKE_ENTER("cuMemRetainAllocationHandle");
    pthread_mutex_lock(&fake.lock);
    for (m = mappings;
         m != NULL && ((uintptr_t)address < m->base || (uintptr_t)address >= m->base + m->made->bytes);
         m = m->next) {
    }
    if (m != NULL) {
        m->made->refs++;
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)m->made;
        fake_count(FAKE_HANDLE, 1);
    }
    pthread_mutex_unlock(&fake.lock);
    return m != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t bytes,
                                       CUmemRangeHandleType type, unsigned long long flags)
{
    const struct fake_memory *m;
    int fd = -1;
    FAKE_ENTER("cuMemGetHandleForAddressRange");
    (void)flags;
    if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || fake_number("FAKE_CUDA_DMABUF", 0) == 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (pointer % FAKE_PAGE != 0 || bytes % FAKE_PAGE != 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake.lock);
    m = fake_find(pointer);
    if (m != NULL && m->device >= 0 && fake_range_fits(pointer, bytes))
        fd = memfd_create("fake-dmabuf", MFD_CLOEXEC);
    pthread_mutex_unlock(&fake.lock);
    if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
    *(int *)handle = fd;
    return CUDA_SUCCESS;
}
