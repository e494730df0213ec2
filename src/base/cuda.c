#include "base/cuda.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/param.h"

enum { OLDEST_DRIVER = 12000 };

/* The header's macros add versions to names (cuMemAlloc_v2), so expand them before making them text. */
#define TEXT__(name) #name
#define TEXT_(name) TEXT__(name)
#define ROW_(ctx, Name) { TEXT_(cu##Name), offsetof(struct rondo_cuda, Name), 1 },
#define OPTIONAL_ROW_(ctx, Name) { TEXT_(cu##Name), offsetof(struct rondo_cuda, Name), 0 },
static const struct {
    const char *name;
    size_t offset;
    int needed;
} symbols[] = { RONDO_CUDA_TABLE(ROW_, ) RONDO_CUDA_OPTIONAL_TABLE(OPTIONAL_ROW_, ) };
#undef ROW_
#undef OPTIONAL_ROW_

static struct {
    pthread_once_t once;
    struct rondo_cuda table;
    int works;
    char why[256];
} driver = { .once = PTHREAD_ONCE_INIT };

static const char *result_text(CUresult result, const char **name)
{
    const char *text = NULL;
    *name = NULL;
    if (driver.table.GetErrorName == NULL || driver.table.GetErrorName(result, name) != CUDA_SUCCESS ||
        *name == NULL) {
        *name = "unknown";
    }
    if (driver.table.GetErrorString == NULL || driver.table.GetErrorString(result, &text) != CUDA_SUCCESS ||
        text == NULL) {
        text = "an error that this driver has no text for";
    }
    return text;
}

static int symbols_find(void *handle, const char *lib)
{
    for (size_t i = 0; i < RONDO_COUNTOF(symbols); i++) {
        void *address = dlsym(handle, symbols[i].name);
        if (address == NULL && symbols[i].needed) {
            snprintf(driver.why, sizeof driver.why, "the CUDA driver %.100s has no %s: it is older than 12.0",
                     lib, symbols[i].name);
            return 0;
        }
        memcpy((char *)&driver.table + symbols[i].offset, &address, sizeof address);
    }
    return 1;
}

/* Never unload a driver: it has threads of its own. */
static int driver_start(void)
{
    const char *lib = rondo_params()->cuda_lib, *name;
    void *handle = dlopen(lib, RTLD_NOW | RTLD_LOCAL);
    int version = 0;
    if (handle == NULL) {
        snprintf(driver.why, sizeof driver.why, "no CUDA driver (%.100s)", lib);
        return 0;
    }
    if (!symbols_find(handle, lib)) {
        return 0;
    }
    CUresult result = driver.table.Init(0);
    if (result != CUDA_SUCCESS) {
        const char *text = result_text(result, &name);
        snprintf(driver.why, sizeof driver.why, "the CUDA driver does not start: %s (%s)", text, name);
        return 0;
    }
    result = driver.table.DriverGetVersion(&version);
    if (result != CUDA_SUCCESS || version < OLDEST_DRIVER) {
        snprintf(driver.why, sizeof driver.why, "the CUDA driver is of version %d.%d, older than %d.%d",
                 version / 1000, version % 1000 / 10, OLDEST_DRIVER / 1000, OLDEST_DRIVER % 1000 / 10);
        return 0;
    }
    return 1;
}

static void driver_open(void)
{
    __atomic_store_n(&driver.works, driver_start(), __ATOMIC_RELEASE);
    if (!driver.works) {
        RONDO_INFO(RONDO_SUBSYS_INIT, "%s: host memory only", driver.why);
    }
}

const struct rondo_cuda *rondo_cuda(const char **why)
{
    pthread_once(&driver.once, driver_open);
    if (why != NULL) {
        *why = driver.why;
    }
    return driver.works ? &driver.table : NULL;
}

/* dlopen with RTLD_NOLOAD would search the loader's folders. */
static int is_driver(struct dl_phdr_info *info, size_t size, void *found)
{
    const char *name = strrchr(info->dlpi_name, '/');
    (void)size;
    name = name != NULL ? name + 1 : info->dlpi_name;
    *(int *)found = strncmp(name, "libcuda.so", strlen("libcuda.so")) == 0;
    return *(int *)found; /* the end of the search */
}

int rondo_cuda_loaded(void)
{
    int found = __atomic_load_n(&driver.works, __ATOMIC_ACQUIRE);
    if (!found) {
        dl_iterate_phdr(is_driver, &found);
    }
    return found;
}

rondo_status rondo_cuda_fail(CUresult result, const char *fmt, ...)
{
    char what[RONDO_ERROR_TEXT];
    const char *name, *text = result_text(result, &name);
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return rondo_fail(RONDO_UNHANDLED_CUDA_ERROR, "%.300s: %.120s (%.60s)", what, text, name);
}

/* ---- devices ---- */

static rondo_status attribute(const struct rondo_cuda *cuda, CUdevice handle, CUdevice_attribute which,
                              const char *what, int ordinal, int *value)
{
    RONDO_CUDA_TRY(cuda->DeviceGetAttribute(value, which, handle), "cuDeviceGetAttribute (%s) of GPU %d",
                   what, ordinal);
    return RONDO_SUCCESS;
}

static rondo_status describe(const struct rondo_cuda *cuda, struct rondo_cuda_device *d)
{
    int major = 0, minor = 0;
    CUuuid uuid;
    RONDO_CUDA_TRY(cuda->DeviceGetName(d->name, (int)sizeof d->name, d->handle), "cuDeviceGetName of GPU %d",
                   d->ordinal);
    RONDO_CUDA_TRY(cuda->DeviceGetPCIBusId(d->bus_id, (int)sizeof d->bus_id, d->handle),
                   "cuDeviceGetPCIBusId of GPU %d", d->ordinal);
    RONDO_CUDA_TRY(cuda->DeviceGetUuid(&uuid, d->handle), "cuDeviceGetUuid of GPU %d", d->ordinal);
    RONDO_CUDA_TRY(cuda->DeviceTotalMem(&d->memory, d->handle), "cuDeviceTotalMem of GPU %d", d->ordinal);
    memcpy(d->uuid, uuid.bytes, sizeof d->uuid);
    for (char *c = d->bus_id; *c != '\0'; c++) { /* as sysfs spells it */
        *c = (char)(*c >= 'A' && *c <= 'F' ? *c - 'A' + 'a' : *c);
    }
    RONDO_TRY(attribute(cuda, d->handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, "compute capability",
                        d->ordinal, &major));
    RONDO_TRY(attribute(cuda, d->handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, "compute capability",
                        d->ordinal, &minor));
    RONDO_TRY(attribute(cuda, d->handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "multiprocessors",
                        d->ordinal, &d->sms));
    RONDO_TRY(attribute(cuda, d->handle, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                        "shareable memory", d->ordinal, &d->vmm));
    RONDO_TRY(
        attribute(cuda, d->handle, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, "DMA-BUF", d->ordinal, &d->dmabuf));
    d->capability = 10 * major + minor;
    d->vmm = d->vmm && cuda->MemCreate != NULL && cuda->MemExportToShareableHandle != NULL;
    d->dmabuf = d->dmabuf && cuda->MemGetHandleForAddressRange != NULL;
    return RONDO_SUCCESS;
}

rondo_status rondo_cuda_open(int ordinal, struct rondo_cuda_device *device)
{
    const char *why, *visible = getenv("CUDA_VISIBLE_DEVICES");
    const struct rondo_cuda *cuda = rondo_cuda(&why);
    int count = 0;
    memset(device, 0, sizeof *device);
    if (cuda == NULL) {
        return rondo_fail(RONDO_INVALID_USAGE, "cannot create a communicator for GPU %d: %s", ordinal, why);
    }
    RONDO_CUDA_TRY(cuda->DeviceGetCount(&count), "cuDeviceGetCount");
    if (ordinal < 0 || ordinal >= count) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "there is no GPU %d: this process sees %d (CUDA_VISIBLE_DEVICES is %.80s)", ordinal,
                          count, visible != NULL ? visible : "not set");
    }
    device->ordinal = ordinal;
    RONDO_CUDA_TRY(cuda->DeviceGet(&device->handle, ordinal), "cuDeviceGet of GPU %d", ordinal);
    RONDO_TRY(describe(cuda, device));
    RONDO_CUDA_TRY(cuda->DevicePrimaryCtxRetain(&device->context, device->handle),
                   "cuDevicePrimaryCtxRetain of GPU %d (%s)", ordinal, device->bus_id);
    return RONDO_SUCCESS;
}

void rondo_cuda_close(struct rondo_cuda_device *device)
{
    const struct rondo_cuda *cuda = device->context != NULL ? rondo_cuda(NULL) : NULL;
    if (cuda != NULL) {
        (void)cuda->DevicePrimaryCtxRelease(device->handle);
    }
    memset(device, 0, sizeof *device);
}

rondo_status rondo_cuda_enter(const struct rondo_cuda_device *device)
{
    RONDO_CUDA_TRY(rondo_cuda(NULL)->CtxPushCurrent(device->context), "cuCtxPushCurrent of GPU %d (%s)",
                   device->ordinal, device->bus_id);
    return RONDO_SUCCESS;
}

void rondo_cuda_leave(void)
{
    CUcontext context;
    (void)rondo_cuda(NULL)->CtxPopCurrent(&context);
}

rondo_status rondo_cuda_current(int *ordinal)
{
    const char *why;
    const struct rondo_cuda *cuda = rondo_cuda(&why);
    CUcontext context = NULL;
    CUdevice device = 0;
    *ordinal = 0; /* the default of the CUDA runtime */
    if (cuda == NULL) {
        return rondo_fail(RONDO_INVALID_USAGE, "cannot create a communicator for the current GPU: %s", why);
    }
    if (cuda->CtxGetCurrent(&context) == CUDA_SUCCESS && context != NULL) {
        RONDO_CUDA_TRY(cuda->CtxGetDevice(&device), "cuCtxGetDevice of this thread's context");
        *ordinal = (int)device;
    }
    return RONDO_SUCCESS;
}

/* ---- pointers ---- */

rondo_status rondo_cuda_pointer(const void *pointer, enum rondo_pointer_kind *kind, int *ordinal)
{
    const struct rondo_cuda *cuda = rondo_cuda(NULL);
    unsigned type = 0, managed = 0;
    int device = -1;
    CUpointer_attribute which[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL };
    void *values[] = { &type, &managed, &device };
    *kind = RONDO_POINTER_HOST;
    *ordinal = -1;
    if (cuda == NULL) {
        return RONDO_SUCCESS;
    }
    CUresult result = cuda->PointerGetAttributes((unsigned)RONDO_COUNTOF(which), which, values,
                                                 (CUdeviceptr)(uintptr_t)pointer);
    if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_CONTEXT) {
        return RONDO_SUCCESS; /* memory unknown to the driver */
    }
    RONDO_CUDA_TRY(result, "cuPointerGetAttributes of %p", pointer);
    if (managed) {
        *kind = RONDO_POINTER_MANAGED;
    } else if (type == CU_MEMORYTYPE_DEVICE) {
        *kind = RONDO_POINTER_DEVICE;
        *ordinal = device;
    } else if (type == CU_MEMORYTYPE_HOST) {
        *kind = RONDO_POINTER_PINNED;
    }
    return RONDO_SUCCESS;
}
