/* Detection with NVML: NVLinks, C2C, pairs with P2P. The few prototypes are declared here; the library is
 * opened at run time and closed again. */
#include "topo/detect/detect_impl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "topo/machine_field.h"

typedef struct nvml_device *nvml_device; /* opaque */

struct nvml_pci {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem_ids;
    char busid[32];
};

struct nvml_field {
    unsigned id, scope;
    long long when, latency_us;
    int type, status;
    union {
        double d;
        unsigned ui;
        unsigned long ul;
        unsigned long long ull;
        long long sll;
        int si;
        unsigned short us;
    } value;
};

enum { NVML_OK = 0, NVML_INVALID_ARGUMENT = 2 };
enum { NVML_CAP_P2P = 0, NVML_P2P_READ = 0, NVML_P2P_WRITE = 1, NVML_MAX_LINKS = 64 };
enum { NVML_REMOTE_GPU = 0, NVML_REMOTE_NPU = 1, NVML_REMOTE_SWITCH = 2, NVML_REMOTE_UNKNOWN = 255 };
enum { NVML_C2C_COUNT = 170, NVML_C2C_STATUS = 171, NVML_C2C_MAX_BW = 172 };
_Static_assert(sizeof(struct nvml_pci) == 68 && sizeof(struct nvml_field) == 40,
               "the layout of NVML's structs");

/* X(member, symbol, arguments, required) */
/* clang-format off */
#define NVML_TABLE(X)                                                                              \
    X(init, "nvmlInit_v2", (void), 1)                                                              \
    X(shutdown, "nvmlShutdown", (void), 1)                                                         \
    X(count, "nvmlDeviceGetCount_v2", (unsigned *), 1)                                             \
    X(handle, "nvmlDeviceGetHandleByIndex_v2", (unsigned, nvml_device *), 1)                       \
    X(pci, "nvmlDeviceGetPciInfo_v3", (nvml_device, struct nvml_pci *), 1)                         \
    X(uuid, "nvmlDeviceGetUUID", (nvml_device, char *, unsigned), 0)                               \
    X(name, "nvmlDeviceGetName", (nvml_device, char *, unsigned), 0)                               \
    X(capability, "nvmlDeviceGetCudaComputeCapability", (nvml_device, int *, int *), 0)            \
    X(link_state, "nvmlDeviceGetNvLinkState", (nvml_device, unsigned, int *), 0)                   \
    X(link_capability, "nvmlDeviceGetNvLinkCapability", (nvml_device, unsigned, int, unsigned *), 0) \
    X(link_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2", (nvml_device, unsigned, struct nvml_pci *), 0) \
    X(link_type, "nvmlDeviceGetNvLinkRemoteDeviceType", (nvml_device, unsigned, int *), 0)         \
    X(p2p, "nvmlDeviceGetP2PStatus", (nvml_device, nvml_device, int, int *), 0)                    \
    X(fields, "nvmlDeviceGetFieldValues", (nvml_device, int, struct nvml_field *), 0)              \
    X(pcie_generation, "nvmlDeviceGetMaxPcieLinkGeneration", (nvml_device, unsigned *), 0)         \
    X(pcie_width, "nvmlDeviceGetMaxPcieLinkWidth", (nvml_device, unsigned *), 0)
/* clang-format on */

struct rondo_topo_nvml {
#define MEMBER(member, symbol, args, needed) int(*member) args;
    NVML_TABLE(MEMBER)
#undef MEMBER
    void *library;
};

/* A GPU in NVML's list. */
struct gpu {
    nvml_device device;
    int64_t busid;
    int32_t item, dev;
};

struct listing {
    const struct rondo_topo_nvml *nvml;
    struct rondo_machine *machine;
    struct gpu *gpu;
    int n;
    int lost_links; /* to GPUs that are not visible */
};

/* Call a function that this NVML may lack. */
#define NVML(table, function, ...) ((table)->function ? (table)->function(__VA_ARGS__) : -1)

/* ---- the library ---- */

static void nvml_close(struct rondo_topo_nvml *nvml)
{
    if (nvml->library) {
        dlclose(nvml->library);
    }
    nvml->library = NULL;
}

/* @return NULL, or why NVML is unavailable. */
static const char *nvml_open(struct rondo_topo_nvml *nvml, const char *library)
{
    memset(nvml, 0, sizeof *nvml);
    nvml->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!nvml->library) {
        return "is not installed";
    }
    const char *why = NULL;
#define FIND(member, symbol, args, needed)                       \
    do {                                                         \
        void *found = dlsym(nvml->library, symbol);              \
        memcpy(&nvml->member, &found, sizeof found);             \
        why = needed && !found && !why ? "has no " symbol : why; \
    } while (0);
    NVML_TABLE(FIND)
#undef FIND
    if (!why && nvml->init() != NVML_OK) {
        why = "does not start: no driver, or no access to /dev/nvidiactl";
    }
    if (why) {
        nvml_close(nvml);
    }
    return why;
}

/* ---- GPUs ---- */

void rondo_detect_uuid(struct rondo_item *gpu, const char *text)
{
    char expected[RONDO_FIELD_TEXT];
    int n;
    const struct rondo_field *field = rondo_fields(RONDO_ITEM_GPU, &n);
    for (int i = 0; i < n; i++) {
        if (field[i].type == RONDO_FIELD_UUID && rondo_field_parse(&field[i], gpu, text, expected)) {
            memset(gpu->gpu.uuid, 0, sizeof gpu->gpu.uuid);
        }
    }
}

static int64_t pci_busid(const struct nvml_pci *pci)
{
    char text[sizeof pci->busid];
    snprintf(text, sizeof text, "%.*s", (int)sizeof pci->busid - 1, pci->busid);
    int64_t busid = rondo_busid_parse(text);
    return rondo_busid_valid(busid) && busid >> 20 < 0xfffffff ? busid : -1;
}

static int32_t gpu_item_of(const struct listing *list, int64_t busid)
{
    for (int i = 0; i < list->n; i++) {
        if (list->gpu[i].busid == busid) {
            return list->gpu[i].item;
        }
    }
    return -1;
}

static int is_listed(const struct listing *list, int64_t busid) { return gpu_item_of(list, busid) >= 0; }

/* Find a GPU's item. A GPU that PCI does not show (WSL, a container without /sys) is added below the first
 * CPU. */
static rondo_status gpu_find(const struct listing *list, struct gpu *gpu, const struct nvml_pci *pci)
{
    struct rondo_machine *machine = list->machine;
    int32_t parent = rondo_machine_find_pci(machine, gpu->busid);
    if (parent < 0) {
        RONDO_TRY(rondo_machine_add(machine, RONDO_ITEM_PCI, rondo_detect_cpu(machine, -1), &parent));
        struct rondo_item *item = &machine->item[parent];
        item->pci.busid = gpu->busid;
        item->pci.class_code = RONDO_CLASS_GPU;
        item->pci.vendor = (uint16_t)pci->ids;
        item->pci.device = (uint16_t)(pci->ids >> 16);
        item->pci.subsystem_vendor = (uint16_t)pci->subsystem_ids;
        item->pci.subsystem_device = (uint16_t)(pci->subsystem_ids >> 16);
    }
    gpu->item = rondo_detect_child(machine, parent, RONDO_ITEM_GPU);
    return gpu->item >= 0 ? RONDO_SUCCESS : rondo_machine_add(machine, RONDO_ITEM_GPU, parent, &gpu->item);
}

static void gpu_describe(const struct listing *list, const struct gpu *gpu)
{
    const struct rondo_topo_nvml *nvml = list->nvml;
    struct rondo_item *item = &list->machine->item[gpu->item], *pci = &list->machine->item[item->parent];
    char text[96] = "";
    int major, minor;
    unsigned generation, width;
    static const int32_t speeds[] = {
#define SPEED(ctx, name, speed, lane) speed,
        RONDO_TOPO_PCI_TABLE(SPEED, )
#undef SPEED
    };
    item->gpu.dev = gpu->dev;
    if (NVML(nvml, capability, gpu->device, &major, &minor) == NVML_OK && major > 0 && major < 100 &&
        minor >= 0 && minor < 10) {
        item->gpu.sm = major * 10 + minor;
    }
    if (NVML(nvml, name, gpu->device, text, sizeof text - 1) == NVML_OK) {
        rondo_detect_name(item->gpu.name, text);
    }
    if (NVML(nvml, uuid, gpu->device, text, sizeof text - 1) == NVML_OK) {
        rondo_detect_uuid(item, text);
    }
    if (pci->pci.speed == 0 && NVML(nvml, pcie_generation, gpu->device, &generation) == NVML_OK &&
        generation >= 1 && generation <= RONDO_COUNTOF(speeds) &&
        NVML(nvml, pcie_width, gpu->device, &width) == NVML_OK && width <= 16) {
        pci->pci.speed = speeds[generation - 1];
        pci->pci.width = (int32_t)width;
    }
}

static void gpu_p2p(const struct listing *list, const struct gpu *gpu)
{
    uint64_t no_p2p = 0;
    for (int i = 0; i < list->n; i++) {
        const struct gpu *peer = &list->gpu[i];
        for (int act = NVML_P2P_READ; act <= NVML_P2P_WRITE && peer != gpu && peer->dev < 64; act++) {
            int state;
            if (NVML(list->nvml, p2p, gpu->device, peer->device, act, &state) == NVML_OK && state != 0) {
                no_p2p |= UINT64_C(1) << peer->dev;
            }
        }
    }
    list->machine->item[gpu->item].gpu.no_p2p = no_p2p;
}

/* ---- NVLinks ---- */

/* Add one link from a GPU to a target. */
static rondo_status link_add(const struct listing *list, int32_t gpu, int64_t target, uint32_t tclass)
{
    struct rondo_machine *machine = list->machine;
    int32_t i;
    for (i = gpu + 1; i < machine->nitems; i++) {
        struct rondo_item *item = &machine->item[i];
        if (item->kind == RONDO_ITEM_NVLINK && item->parent == gpu && item->nvlink.target == target) {
            item->nvlink.count++;
            return RONDO_SUCCESS;
        }
    }
    RONDO_TRY(rondo_machine_add(machine, RONDO_ITEM_NVLINK, gpu, &i));
    machine->item[i].nvlink.target = target;
    machine->item[i].nvlink.tclass = tclass;
    machine->item[i].nvlink.count = 1;
    return RONDO_SUCCESS;
}

/* A target that a virtual machine hides counts as an NVSwitch. */
static uint32_t target_class(const struct listing *list, int64_t target, int type)
{
    if (type == NVML_REMOTE_SWITCH || target == RONDO_BUSID_HIDDEN) {
        return RONDO_CLASS_NVSWITCH;
    }
    if (type == NVML_REMOTE_NPU) {
        return RONDO_CLASS_NVLINK_CPU;
    }
    int32_t item = rondo_machine_find_pci(list->machine, target);
    return type == NVML_REMOTE_GPU || is_listed(list, target) ? RONDO_CLASS_GPU
           : item >= 0                                        ? list->machine->item[item].pci.class_code
                                                              : RONDO_CLASS_NVSWITCH;
}

static rondo_status gpu_link(struct listing *list, const struct gpu *gpu, unsigned link, int *past)
{
    const struct rondo_topo_nvml *nvml = list->nvml;
    struct nvml_pci remote = { .legacy = "" };
    int active = 0, type = NVML_REMOTE_UNKNOWN;
    unsigned p2p = 1;
    int result = NVML(nvml, link_state, gpu->device, link, &active);
    *past = result == NVML_INVALID_ARGUMENT || result == -1;
    if (result != NVML_OK || !active) {
        return RONDO_SUCCESS;
    }
    if (NVML(nvml, link_capability, gpu->device, link, NVML_CAP_P2P, &p2p) == NVML_OK && !p2p) {
        return RONDO_SUCCESS;
    }
    if (NVML(nvml, link_type, gpu->device, link, &type) != NVML_OK) {
        type = NVML_REMOTE_UNKNOWN;
    }
    int known = NVML(nvml, link_pci, gpu->device, link, &remote) == NVML_OK;
    int64_t target = known ? pci_busid(&remote) : -1;
    if (target < 0) {
        if (!known && type != NVML_REMOTE_SWITCH) {
            return RONDO_SUCCESS;
        }
        target = RONDO_BUSID_HIDDEN;
    }
    uint32_t tclass = target_class(list, target, type);
    if (tclass == RONDO_CLASS_GPU && !is_listed(list, target)) {
        list->lost_links++;
        return RONDO_SUCCESS;
    }
    return target == gpu->busid ? RONDO_SUCCESS : link_add(list, gpu->item, target, tclass);
}

static rondo_status gpu_links(struct listing *list, const struct gpu *gpu)
{
    int past = 0;
    for (unsigned link = 0; link < NVML_MAX_LINKS && !past; link++) {
        RONDO_TRY(gpu_link(list, gpu, link, &past));
    }
    return RONDO_SUCCESS;
}

/* ---- chip to chip ---- */

static long long field_value(const struct nvml_field *field)
{
    switch (field->type) {
    case 0: return (long long)field->value.d;
    case 1: return field->value.ui;
    case 2: return (long long)field->value.ul;
    case 3: return (long long)field->value.ull;
    case 4: return field->value.sll;
    case 5: return field->value.si;
    case 6: return field->value.us;
    default: return 0;
    }
}

static long long field_read(const struct listing *list, const struct gpu *gpu, unsigned id, unsigned scope)
{
    struct nvml_field field = { .id = id, .scope = scope };
    int failed = NVML(list->nvml, fields, gpu->device, 1, &field) != NVML_OK || field.status != NVML_OK;
    long long value = failed ? 0 : field_value(&field);
    return value > 0 && value <= RONDO_MACHINE_MAX_MBS ? value : 0;
}

/* Links of equal speed are one item. */
static rondo_status gpu_c2c(const struct listing *list, const struct gpu *gpu)
{
    long long links = field_read(list, gpu, NVML_C2C_COUNT, 0);
    for (long long link = 0; link < links && link < NVML_MAX_LINKS; link++) {
        int32_t mbs = (int32_t)field_read(list, gpu, NVML_C2C_MAX_BW, (unsigned)link), i;
        if (mbs == 0 || field_read(list, gpu, NVML_C2C_STATUS, (unsigned)link) != 1) {
            continue;
        }
        i = rondo_detect_child(list->machine, gpu->item, RONDO_ITEM_C2C);
        if (i < 0) {
            RONDO_TRY(rondo_machine_add(list->machine, RONDO_ITEM_C2C, gpu->item, &i));
            list->machine->item[i].c2c.mbs = mbs;
        }
        list->machine->item[i].c2c.count += list->machine->item[i].c2c.mbs == mbs;
    }
    return RONDO_SUCCESS;
}

/* ---- all ---- */

/* Does the other GPU report this link as down? */
static int is_one_sided(const struct listing *list, const struct rondo_item *link)
{
    const struct rondo_machine *machine = list->machine;
    int32_t other = gpu_item_of(list, link->nvlink.target);
    int64_t here = machine->item[machine->item[link->parent].parent].pci.busid;
    for (int32_t i = other + 1; other >= 0 && i < machine->nitems; i++) {
        if (machine->item[i].kind == RONDO_ITEM_NVLINK && machine->item[i].parent == other &&
            machine->item[i].nvlink.target == here) {
            return 0;
        }
    }
    return other >= 0;
}

/* Drop GPUs that only PCI shows: they belong to another container or have no driver. Drop links with only
 * one end. */
static rondo_status gpus_drop(struct listing *list)
{
    struct rondo_machine *machine = list->machine;
    uint8_t *drop;
    int gpus = 0, links = list->lost_links;
    RONDO_TRY(RONDO_NEW_ARRAY(drop, machine->nitems, "the list of GPUs"));
    for (int32_t i = 0; i < machine->nitems; i++) {
        const struct rondo_item *item = &machine->item[i];
        if (item->kind == RONDO_ITEM_GPU && !is_listed(list, machine->item[item->parent].pci.busid)) {
            drop[i] = 1;
            gpus++;
        } else if (item->kind == RONDO_ITEM_NVLINK && is_one_sided(list, item)) {
            drop[i] = 1;
            links += item->nvlink.count;
        }
    }
    if (gpus) {
        rondo_detect_note(machine,
                          "NVML lists %d of %d GPUs; the others are ignored (not visible in this container?)",
                          list->n, list->n + gpus);
    }
    if (links) {
        rondo_detect_note(machine, "%d NVLinks are ignored: their other end is not visible or down", links);
    }
    rondo_status status = rondo_detect_arrange(machine, drop);
    rondo_free(drop);
    return status;
}

static rondo_status gpus_list(struct listing *list, unsigned count)
{
    RONDO_TRY(RONDO_NEW_ARRAY(list->gpu, count, "the list of GPUs"));
    for (unsigned i = 0; i < count; i++) {
        struct gpu *gpu = &list->gpu[list->n];
        struct nvml_pci pci = { .legacy = "" };
        if (list->nvml->handle(i, &gpu->device) != NVML_OK || list->nvml->pci(gpu->device, &pci) != NVML_OK) {
            continue; /* fell off the bus */
        }
        gpu->busid = pci_busid(&pci);
        if (gpu->busid >= 0 && !is_listed(list, gpu->busid)) {
            RONDO_TRY(gpu_find(list, gpu, &pci));
            gpu->dev = (int32_t)i;
            list->n++;
            gpu_describe(list, gpu);
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status listing_fill(struct listing *list)
{
    unsigned count = 0;
    if (list->nvml->count(&count) != NVML_OK || count > RONDO_MACHINE_MAX_GPUS) {
        count = 0;
    }
    RONDO_TRY(gpus_list(list, count));
    for (int i = 0; i < list->n; i++) {
        gpu_p2p(list, &list->gpu[i]);
        RONDO_TRY(gpu_links(list, &list->gpu[i]));
        RONDO_TRY(gpu_c2c(list, &list->gpu[i]));
    }
    return gpus_drop(list);
}

rondo_status rondo_detect_nvml_from(struct rondo_machine *machine, const char *library)
{
    struct rondo_topo_nvml nvml;
    struct listing list = { .nvml = &nvml, .machine = machine };
    const char *why = nvml_open(&nvml, library);
    if (why) {
        if (rondo_machine_count(machine, RONDO_ITEM_GPU) > 0) {
            rondo_detect_note(machine, "%s %s: NVLinks are unknown", library, why);
        }
        return RONDO_SUCCESS;
    }
    rondo_status status = listing_fill(&list);
    rondo_free(list.gpu);
    nvml.shutdown();
    nvml_close(&nvml);
    return status;
}

rondo_status rondo_detect_nvml(struct rondo_machine *machine)
{
    return rondo_detect_nvml_from(machine, "libnvidia-ml.so.1");
}
