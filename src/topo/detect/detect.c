/* Building a machine from hwloc's topology, of this host or of a file. */
#include "topo/detect/detect_impl.h"

#include <hwloc.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "topo/xml/xml.h"
#include "topo/xml/xml_read.h"

struct reader {
    hwloc_topology_t topology;
    struct rondo_machine *machine;
    const char *sysfs; /* NULL: the topology is not this host's */
};

/* ---- NUMA nodes and caches ---- */

static void cores_from(struct rondo_cores *cores, hwloc_const_bitmap_t set)
{
    for (int i = hwloc_bitmap_first(set); i >= 0 && i < RONDO_MAX_CORES; i = hwloc_bitmap_next(set, i)) {
        cores->bits[i / 64] |= UINT64_C(1) << i % 64;
    }
}

static int arch_of(hwloc_topology_t topology)
{
    struct utsname host;
    const char *name = hwloc_obj_get_info_by_name(hwloc_get_root_obj(topology), "Architecture");
    if (!name && uname(&host) == 0) {
        name = host.machine;
    }
    if (!name) {
        return -1;
    }
    if (strncmp(name, "aarch64", 7) == 0) {
        return RONDO_ARCH_ARM;
    }
    if (strncmp(name, "ppc64", 5) == 0) {
        return RONDO_ARCH_POWER;
    }
    return strlen(name) == 4 && name[0] == 'i' && strcmp(name + 2, "86") == 0 ? RONDO_ARCH_X86
                                                                              : rondo_arch_from_name(name);
}

/* hwloc may have stripped spaces around the vendor's name. */
static int vendor_of(hwloc_obj_t package)
{
    const char *name = hwloc_obj_get_info_by_name(package, "CPUVendor");
    if (!name) {
        const char *implementer = hwloc_obj_get_info_by_name(package, "CPUImplementer"); /* ARM */
        long id = implementer ? strtol(implementer, NULL, 0) : -1;
        return id == 'A' ? RONDO_VENDOR_VENDOR_ARM : id == 'N' ? RONDO_VENDOR_NVIDIA : -1;
    }
    return strstr(name, "Shanghai") ? RONDO_VENDOR_ZHAOXIN2 : rondo_vendor_from_name(name);
}

static int32_t info_number(hwloc_obj_t obj, const char *name)
{
    const char *text = obj ? hwloc_obj_get_info_by_name(obj, name) : NULL;
    long value = text ? strtol(text, NULL, 0) : 0;
    return value > 0 && value < INT32_MAX ? (int32_t)value : 0;
}

static hwloc_obj_t package_of(hwloc_topology_t topology, hwloc_obj_t node)
{
    hwloc_obj_t package = NULL;
    while ((package = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, package)) != NULL) {
        if (hwloc_bitmap_intersects(package->cpuset, node->cpuset)) {
            return package;
        }
    }
    return NULL;
}

/* @return 1 for memory without cores of its own (HBM, CXL, a GPU's): its cores belong to other nodes. The
 * smallest node owns the cores; among equals, the one with the lowest number. */
static int only_memory(hwloc_topology_t topology, hwloc_obj_t node, hwloc_bitmap_t others)
{
    hwloc_obj_t other = NULL;
    hwloc_bitmap_zero(others);
    while ((other = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, other)) != NULL) {
        int inside = hwloc_bitmap_isincluded(other->cpuset, node->cpuset) &&
                     !hwloc_bitmap_iszero(other->cpuset);
        if (inside &&
            (!hwloc_bitmap_isequal(other->cpuset, node->cpuset) || other->os_index < node->os_index)) {
            hwloc_bitmap_or(others, others, other->cpuset);
        }
    }
    return hwloc_bitmap_isincluded(node->cpuset, others);
}

static rondo_status cpu_add(const struct reader *reader, hwloc_obj_t node)
{
    int32_t i;
    RONDO_TRY(rondo_machine_add(reader->machine, RONDO_ITEM_CPU, -1, &i));
    struct rondo_item *item = &reader->machine->item[i];
    hwloc_obj_t package = package_of(reader->topology, node);
    item->cpu.numa = node->os_index == HWLOC_UNKNOWN_INDEX ? -1 : (int32_t)node->os_index;
    item->cpu.package = !package || package->os_index == HWLOC_UNKNOWN_INDEX ? -1
                                                                             : (int32_t)package->os_index;
    item->cpu.arch = arch_of(reader->topology);
    item->cpu.vendor = package ? vendor_of(package) : -1;
    item->cpu.family = info_number(package, "CPUFamilyNumber");
    item->cpu.model = info_number(package, "CPUModelNumber");
    cores_from(&item->cpu.cores, node->cpuset);
    return RONDO_SUCCESS;
}

static rondo_status cpus_add(const struct reader *reader)
{
    hwloc_bitmap_t others = hwloc_bitmap_alloc();
    hwloc_obj_t node = NULL;
    rondo_status status = others ? RONDO_SUCCESS
                                 : rondo_fail(RONDO_SYSTEM_ERROR, "no memory for the cores of NUMA nodes");
    while (status == RONDO_SUCCESS &&
           (node = hwloc_get_next_obj_by_type(reader->topology, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        if (!only_memory(reader->topology, node, others)) {
            status = cpu_add(reader, node);
        }
    }
    hwloc_bitmap_free(others);
    if (status == RONDO_SUCCESS && reader->machine->nitems == 0) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "hwloc finds no NUMA node with cores; is /sys mounted?");
    }
    return status;
}

/* Add a cache to each NUMA node that it serves, with the node's share of its cores and size. */
static rondo_status cache_add(const struct reader *reader, hwloc_obj_t cache)
{
    struct rondo_cores cores = { { 0 } };
    cores_from(&cores, cache->cpuset);
    int32_t ncpus = rondo_machine_count(reader->machine, RONDO_ITEM_CPU);
    for (int32_t n = 0; n < ncpus; n++) {
        struct rondo_cores part = reader->machine->item[n].cpu.cores; /* CPUs are the first items */
        for (size_t w = 0; w < RONDO_COUNTOF(part.bits); w++) {
            part.bits[w] &= cores.bits[w];
        }
        if (rondo_cores_count(&part) > 0) {
            int32_t i;
            RONDO_TRY(rondo_machine_add(reader->machine, RONDO_ITEM_CACHE, n, &i));
            struct rondo_item *item = &reader->machine->item[i];
            item->cache.level = (int32_t)cache->attr->cache.depth;
            item->cache.bytes = (int64_t)(cache->attr->cache.size * (unsigned)rondo_cores_count(&part) /
                                          (unsigned)rondo_cores_count(&cores));
            item->cache.cores = part;
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status caches_add(const struct reader *reader)
{
    hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(reader->topology, HWLOC_OBJ_L3CACHE) > 0
                                ? HWLOC_OBJ_L3CACHE
                                : HWLOC_OBJ_L2CACHE;
    hwloc_obj_t cache = NULL;
    while ((cache = hwloc_get_next_obj_by_type(reader->topology, type, cache)) != NULL) {
        RONDO_TRY(cache_add(reader, cache));
    }
    return RONDO_SUCCESS;
}

/* ---- PCI ---- */

static int64_t busid_of(const struct hwloc_pcidev_attr_s *pci)
{
    return (int64_t)pci->domain << 20 | (int64_t)pci->bus << 12 | (int64_t)pci->dev << 4 | pci->func;
}

/* The NUMA node of a device according to hwloc, or to sysfs if hwloc names several; else the first one. */
static int32_t cpu_of(const struct reader *reader, hwloc_obj_t device)
{
    hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(reader->topology, device);
    int32_t first = -1, n = 0;
    for (int32_t i = 0; i < reader->machine->nitems && near && near->nodeset; i++) {
        const struct rondo_item *item = &reader->machine->item[i];
        if (item->kind == RONDO_ITEM_CPU && item->cpu.numa >= 0 &&
            hwloc_bitmap_isset(near->nodeset, (unsigned)item->cpu.numa)) {
            first = first < 0 ? i : first;
            n++;
        }
    }
    if (n > 1 && reader->sysfs && device->type == HWLOC_OBJ_PCI_DEVICE) {
        char address[24];
        long long numa = rondo_sysfs_number(-1, "%s/bus/pci/devices/%s/numa_node", reader->sysfs,
                                            rondo_busid_text(busid_of(&device->attr->pcidev), address));
        return numa >= 0 ? rondo_detect_cpu(reader->machine, (int)numa) : first;
    }
    return first >= 0 ? first : rondo_detect_cpu(reader->machine, -1);
}

/* Both ends of a link report its speed. With NVML, hwloc reports Gen3 for faster GPUs, so the port above
 * may know better. */
static double gbs_of(hwloc_obj_t obj)
{
    hwloc_obj_t up = obj->parent;
    double gbs = obj->type == HWLOC_OBJ_PCI_DEVICE ? (double)obj->attr->pcidev.linkspeed
                                                   : (double)obj->attr->bridge.upstream.pci.linkspeed;
    int port = obj->type == HWLOC_OBJ_PCI_DEVICE && up && up->type == HWLOC_OBJ_BRIDGE &&
               up->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
    double above = port ? (double)up->attr->bridge.upstream.pci.linkspeed : 0;
    return above > gbs ? above : gbs;
}

static rondo_status pci_add(const struct reader *reader, hwloc_obj_t obj, int32_t parent, int32_t *i)
{
    const struct hwloc_pcidev_attr_s *pci = obj->type == HWLOC_OBJ_PCI_DEVICE
                                                ? &obj->attr->pcidev
                                                : &obj->attr->bridge.upstream.pci;

    *i = rondo_machine_find_pci(reader->machine, busid_of(pci));
    if (*i >= 0) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_machine_add(reader->machine, RONDO_ITEM_PCI, parent, i));
    struct rondo_item *item = &reader->machine->item[*i];
    item->pci.busid = busid_of(pci);
    item->pci.class_code = rondo_detect_class((uint32_t)pci->class_id << 8);
    item->pci.vendor = pci->vendor_id;
    item->pci.device = pci->device_id;
    item->pci.subsystem_vendor = pci->subvendor_id;
    item->pci.subsystem_device = pci->subdevice_id;
    if (!reader->sysfs || !rondo_detect_pci_link(item, reader->sysfs)) {
        rondo_detect_link_from_gbs(gbs_of(obj), &item->pci.speed, &item->pci.width);
    }
    return RONDO_SUCCESS;
}

/* Take a GPU's model and UUID from its OS devices, if NVML told hwloc. */
static void gpu_infos(struct rondo_item *gpu, hwloc_obj_t device)
{
    for (hwloc_obj_t os = device->io_first_child; os; os = os->next_sibling) {
        const char *name = hwloc_obj_get_info_by_name(os, "GPUModel"),
                   *uuid = hwloc_obj_get_info_by_name(os, "NVIDIAUUID");
        if (name && !gpu->gpu.name[0]) {
            rondo_detect_name(gpu->gpu.name, name);
        }
        if (uuid) {
            rondo_detect_uuid(gpu, uuid);
        }
    }
}

/* Add a device with the switches above it. */
static rondo_status device_add(const struct reader *reader, hwloc_obj_t device, enum rondo_pci_kind kind)
{
    hwloc_obj_t bridge[RONDO_MACHINE_MAX_DEPTH];
    int n = 0;
    for (hwloc_obj_t up = device->parent;
         up && up->type == HWLOC_OBJ_BRIDGE && n < (int)RONDO_COUNTOF(bridge); up = up->parent) {
        if (up->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI) {
            bridge[n++] = up;
        }
    }
    int32_t parent = cpu_of(reader, device), i;
    for (int depth = 0; depth < n; depth++) {
        if (rondo_detect_bridge_kept(depth)) {
            RONDO_TRY(pci_add(reader, bridge[n - 1 - depth], parent, &parent));
        }
    }
    RONDO_TRY(pci_add(reader, device, parent, &parent));
    if (kind == RONDO_PCI_GPU) {
        RONDO_TRY(rondo_machine_add(reader->machine, RONDO_ITEM_GPU, parent, &i));
        reader->machine->item[i].gpu.sm = rondo_detect_gpu_sm(device->attr->pcidev.device_id);
        gpu_infos(&reader->machine->item[i], device);
    }
    return RONDO_SUCCESS;
}

static rondo_status devices_add(const struct reader *reader)
{
    hwloc_obj_t device = NULL;
    while ((device = hwloc_get_next_pcidev(reader->topology, device)) != NULL) {
        const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;
        enum rondo_pci_kind kind = rondo_detect_kind(rondo_detect_class((uint32_t)pci->class_id << 8),
                                                     pci->vendor_id);
        if (kind != RONDO_PCI_BRIDGE) {
            RONDO_TRY(device_add(reader, device, kind));
        }
    }
    rondo_detect_number_gpus(reader->machine);
    return RONDO_SUCCESS;
}

/* ---- only for hwloc's XML: NVLinks from hwloc's matrix, networks from OS devices ---- */

static int64_t obj_busid(hwloc_obj_t obj)
{
    if (obj && obj->type == HWLOC_OBJ_OS_DEVICE) {
        obj = obj->parent;
    }
    return obj && obj->type == HWLOC_OBJ_PCI_DEVICE ? busid_of(&obj->attr->pcidev) : -1;
}

static int32_t obj_item(const struct reader *reader, hwloc_obj_t obj)
{
    int64_t busid = obj_busid(obj);
    return busid < 0 ? -1 : rondo_machine_find_pci(reader->machine, busid);
}

#if HWLOC_API_VERSION >= 0x00020100
/* hwloc assumes 20 GB/s per NVLink of the first generation and 25 for all others. */
static int32_t nvlinks_of(uint64_t mbs)
{
    uint64_t n = mbs % 25000 == 0 ? mbs / 25000 : mbs / 20000;
    return n < 1 ? 1 : n > 1024 ? 1024 : (int32_t)n;
}

static rondo_status nvlinks_from(const struct reader *reader, const struct hwloc_distances_s *matrix)
{
    struct rondo_machine *machine = reader->machine;
    for (unsigned from = 0; from < matrix->nbobjs; from++) {
        int32_t pci = obj_item(reader, matrix->objs[from]),
                gpu = pci < 0 ? -1 : rondo_detect_child(machine, pci, RONDO_ITEM_GPU);
        for (unsigned to = 0; gpu >= 0 && to < matrix->nbobjs; to++) {
            int32_t peer = obj_item(reader, matrix->objs[to]), i; /* -1: a CPU */
            uint64_t mbs = matrix->values[(size_t)from * matrix->nbobjs + to];
            if (peer >= 0 && peer != pci && mbs > 0) {
                RONDO_TRY(rondo_machine_add(machine, RONDO_ITEM_NVLINK, gpu, &i));
                machine->item[i].nvlink.target = machine->item[peer].pci.busid;
                machine->item[i].nvlink.tclass = machine->item[peer].pci.class_code;
                machine->item[i].nvlink.count = nvlinks_of(mbs);
            }
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status nvlinks_add(const struct reader *reader)
{
    struct hwloc_distances_s *matrix;
    unsigned n = 1;
    if (hwloc_distances_get_by_name(reader->topology, "NVLinkBandwidth", &n, &matrix, 0) != 0 || n == 0) {
        return RONDO_SUCCESS;
    }
    rondo_status status = nvlinks_from(reader, matrix);
    hwloc_distances_release(reader->topology, matrix);
    return status;
}
#else
static rondo_status nvlinks_add(const struct reader *reader)
{
    (void)reader;
    return RONDO_SUCCESS;
}
#endif

static rondo_status net_add(const struct reader *reader, hwloc_obj_t os, int port, int32_t *dev)
{
    hwloc_obj_t device = os->parent;
    int pci = device && device->type == HWLOC_OBJ_PCI_DEVICE;
    int32_t function = pci ? rondo_detect_nic_pci(
                                 reader->machine,
                                 rondo_machine_find_pci(reader->machine, busid_of(&device->attr->pcidev)))
                           : -1,
            i;
    RONDO_TRY(rondo_detect_nic(reader->machine, function, &i));
    RONDO_TRY(rondo_machine_add(reader->machine, RONDO_ITEM_NET, i, &i));
    struct rondo_item *item = &reader->machine->item[i];
    const char *guid = hwloc_obj_get_info_by_name(os, "NodeGUID");
    rondo_detect_name(item->net.name, os->name ? os->name : "net");
    item->net.dev = (*dev)++;
    item->net.port = port;
    item->net.guid = guid ? rondo_detect_guid(guid) : 0;
    return RONDO_SUCCESS;
}

static rondo_status fabrics_add(const struct reader *reader, hwloc_obj_t os, int32_t *dev)
{
    for (int port = 1; port < 256; port++) {
        char name[32];
        snprintf(name, sizeof name, "Port%dState", port);
        const char *state = hwloc_obj_get_info_by_name(os, name);
        if (!state) {
            break;
        }
        if (strcmp(state, "4") == 0) {
            RONDO_TRY(net_add(reader, os, port, dev));
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status os_nets_add(const struct reader *reader)
{
    int32_t dev = 0;
    for (int type = 0; type < 2 && dev == 0; type++) {
        hwloc_obj_t os = NULL;
        while ((os = hwloc_get_next_osdev(reader->topology, os)) != NULL) {
            if (type == 0 && os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) {
                RONDO_TRY(fabrics_add(reader, os, &dev));
            } else if (type == 1 && os->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK &&
                       os->parent->type == HWLOC_OBJ_PCI_DEVICE) {
                RONDO_TRY(net_add(reader, os, 0, &dev));
            }
        }
    }
    if (dev > 0) {
        rondo_detect_note(reader->machine, "hwloc does not report the speed of network ports");
    }
    return RONDO_SUCCESS;
}

/* ---- whole machines ---- */

static rondo_status topology_new(hwloc_topology_t *topology)
{
    if (hwloc_topology_init(topology) != 0) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "hwloc cannot start: %m");
    }
    int failed = hwloc_topology_set_flags(*topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0 ||
                 hwloc_topology_set_io_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_ALL) != 0 ||
                 hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE) != 0;
#if HWLOC_API_VERSION >= 0x00020100
    /* These would open a display or start CUDA in this process; "pci" leaks memory of libpciaccess, and on
     * Linux hwloc finds the same in sysfs. hwloc rejects names it does not know, which does no harm. */
    static const char *const unwanted[] = { "gl", "opencl", "cuda", "nvml", "rsmi", "levelzero", "pci" };
    for (size_t i = 0; i < RONDO_COUNTOF(unwanted); i++) {
        (void)hwloc_topology_set_components(*topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, unwanted[i]);
    }
#endif
    if (failed) {
        hwloc_topology_destroy(*topology);
        return rondo_fail(RONDO_INTERNAL_ERROR,
                          "this hwloc (API 0x%x) rejects the settings that Rondo needs: %m",
                          hwloc_get_api_version());
    }
    return RONDO_SUCCESS;
}

/* Read everything from hwloc; the items are not sorted yet. */
static rondo_status topology_read(const struct reader *reader)
{
    RONDO_TRY(cpus_add(reader));
    RONDO_TRY(caches_add(reader));
    return devices_add(reader);
}

static const char *env_text(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* When hwloc cannot use the input it was given, it describes this host instead. */
static int is_from_file(hwloc_topology_t topology)
{
    return !hwloc_topology_is_thissystem(topology) || env_text("HWLOC_THISSYSTEM");
}

/* @return the variable that makes hwloc describe something other than this host, NULL: none. */
static const char *env_source(void)
{
    static const char *const names[] = { "HWLOC_XMLFILE", "HWLOC_SYNTHETIC", "HWLOC_CPUID_PATH",
                                         "HWLOC_FSROOT" }; /* the first one set wins */
    for (size_t i = 0; i < RONDO_COUNTOF(names); i++) {
        if (env_text(names[i])) {
            return names[i];
        }
    }
    return NULL;
}

static rondo_status topology_env_check(hwloc_topology_t topology, char *source, size_t size)
{
    const char *name = env_source(), *value = name ? env_text(name) : NULL;
    int file = name && strcmp(name, "HWLOC_XMLFILE") == 0;
    if (name && (!is_from_file(topology) || (file && strcmp(value, "-") != 0 && access(value, R_OK) != 0))) {
        return rondo_fail(RONDO_INVALID_USAGE, "hwloc cannot use %s=%.200s; give %s, or unset it", name,
                          value, file ? "a readable file written by lstopo" : "what its manual describes");
    }
    if (name) {
        snprintf(source, size, "%s=%.200s", name, value);
    } else {
        snprintf(source, size, "%s",
                 hwloc_topology_is_thissystem(topology) ? "this host" : "hwloc's configured input");
    }
    return RONDO_SUCCESS;
}

static rondo_status detect_hwloc(struct rondo_machine *machine, const char *sysfs, int *thissystem)
{
    struct reader reader = { .machine = machine };
    rondo_status status;
    RONDO_TRY(topology_new(&reader.topology));
    if (hwloc_topology_load(reader.topology) != 0) {
        status = rondo_fail(RONDO_SYSTEM_ERROR, "hwloc cannot detect this host: %m; is /sys mounted?");
        goto out;
    }
    RONDO_TRY_GOTO(topology_env_check(reader.topology, machine->source, sizeof machine->source), out);
    *thissystem = hwloc_topology_is_thissystem(reader.topology) != 0;
    machine->is_described = !*thissystem;
    reader.sysfs = *thissystem ? sysfs : NULL;
    RONDO_TRY_GOTO(topology_read(&reader), out);
    if (!*thissystem) {
        RONDO_TRY_GOTO(nvlinks_add(&reader), out);
        status = os_nets_add(&reader);
    }
out:
    hwloc_topology_destroy(reader.topology);
    return status;
}

/* Add GPU items to a description that has only their PCI devices. */
static rondo_status gpus_complete(struct rondo_machine *machine)
{
    int added = 0;
    for (int32_t i = 0, n = machine->nitems; i < n; i++) {
        int32_t gpu;
        if (machine->item[i].kind == RONDO_ITEM_PCI &&
            rondo_pci_kind(machine->item[i].pci.class_code) == RONDO_PCI_GPU &&
            rondo_detect_child(machine, i, RONDO_ITEM_GPU) < 0) {
            RONDO_TRY(rondo_machine_add(machine, RONDO_ITEM_GPU, i, &gpu));
            machine->item[gpu].gpu.sm = rondo_detect_gpu_sm(machine->item[i].pci.device);
            added = 1;
        }
    }
    if (added) {
        rondo_detect_number_gpus(machine);
    }
    return RONDO_SUCCESS;
}

/* The provider of a virtual machine may describe what its hardware does not show. */
static rondo_status detect_provided(struct rondo_machine *machine, const char *file)
{
    RONDO_TRY(rondo_machine_read(machine, file));
    rondo_detect_note(machine, "the PCI tree comes from the virtual machine's provider, in %s", file);
    snprintf(machine->source, sizeof machine->source, "this host and %.200s", file);
    return gpus_complete(machine);
}

static rondo_status detect(struct rondo_machine *machine, const struct rondo_detect *options)
{
    const char *sysfs = options->sysfs ? options->sysfs : "/sys";
    const char *file = options->virtual_file ? options->virtual_file
                                             : "/var/run/nvidia-topologyd/virtualTopology.xml";
    int live = 1, provided = !env_source() && access(file, R_OK) == 0;
    RONDO_TRY(provided ? detect_provided(machine, file) : detect_hwloc(machine, sysfs, &live));
    if (live) {
        RONDO_TRY(options->no_nvml ? RONDO_SUCCESS : rondo_detect_nvml(machine));
        RONDO_TRY(options->no_nets ? RONDO_SUCCESS : rondo_detect_nets(machine, options));
        RONDO_TRY(rondo_detect_pci_links(machine, sysfs));
        if (provided) {
            machine->is_virtual = 1;
        } else {
            rondo_detect_virtual(machine, sysfs);
        }
    }
    RONDO_TRY(rondo_detect_arrange(machine, NULL));
    return rondo_machine_check(machine);
}

rondo_status rondo_machine_detect(struct rondo_machine *machine, const struct rondo_detect *options)
{
    static const struct rondo_detect defaults;
    memset(machine, 0, sizeof *machine);
    rondo_status status = detect(machine, options ? options : &defaults);
    if (status != RONDO_SUCCESS) {
        rondo_machine_release(machine);
    }
    return status;
}

/* ---- hwloc's XML ---- */

/* Check the file before hwloc parses it: hwloc 2 dereferences null pointers if some attributes are missing,
 * and recurses as deep as the file nests. */
enum { MAX_INDEX = 65535 };

/* Check a set of cores or NUMA nodes: "0xff", "0x1,0xffffffff,,0x3", "0xf...f". */
static rondo_status set_check(const struct rondo_xml_element *element, const char *name)
{
    const char *value = rondo_xml_attr(element, name);
    if (!value || strncmp(value, "0x", 2) != 0 || value[strspn(value, "0123456789abcdefx,.")] != '\0') {
        return rondo_xml_fail(element, value ? name : NULL,
                              "%s is %s; expected hexadecimal words as lstopo writes them", name,
                              value ? "not a set" : "missing");
    }
    return RONDO_SUCCESS;
}

static rondo_status sets_check(const struct rondo_xml_element *element, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        RONDO_TRY(set_check(element, names[i]));
    }
    return RONDO_SUCCESS;
}

static int is_one_of(const char *text, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text, names[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

static rondo_status object_check(const struct rondo_xml_element *element)
{
    static const char *const setless[] = { "Bridge", "PCIDev", "OSDev", "Misc" }, *const numbered[] = {
        "PU", "NUMANode"
    };
    static const char *const sets[] = { "cpuset", "complete_cpuset", "nodeset", "complete_nodeset" };
    static const char *const root_sets[] = { "allowed_cpuset", "allowed_nodeset" };
    const char *type = rondo_xml_attr(element, "type");
    int32_t index = 0;
    if (!type) {
        return rondo_xml_fail(element, NULL, "type is missing; expected an object as lstopo writes it");
    }
    if (is_one_of(type, setless, RONDO_COUNTOF(setless))) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(sets_check(element, sets, RONDO_COUNTOF(sets)));
    if (element->depth == 2) {
        RONDO_TRY(sets_check(element, root_sets, RONDO_COUNTOF(root_sets)));
    }
    return rondo_xml_int(element, "os_index", is_one_of(type, numbered, RONDO_COUNTOF(numbered)), 0,
                         MAX_INDEX, &index);
}

static rondo_status element_check(void *arg, const struct rondo_xml_element *element,
                                  enum rondo_xml_next *next)
{
    (void)arg, (void)next;
    if (element->depth == 1) {
        const char *version = rondo_xml_attr(element, "version");
        return version && strncmp(version, "2.", 2) == 0
                   ? RONDO_SUCCESS
                   : rondo_xml_fail(
                         element, version ? "version" : NULL,
                         "not of hwloc 2; convert it: lstopo -i FILE --of xml NEWFILE, with hwloc 2");
    }
    return strcmp(element->name, "object") == 0 ? object_check(element) : RONDO_SUCCESS;
}

static rondo_status xml_check(const char *text, size_t bytes, const char *name)
{
    static const struct rondo_xml_visitor visitor = { .start = element_check,
                                                      .doctype = "topology",
                                                      .max_elements = 16 * RONDO_MACHINE_MAX_ITEMS };
    return rondo_xml_walk(text, bytes, name, &visitor, NULL);
}

static rondo_status hwloc_xml_read(struct reader *reader, const char *text, size_t bytes, const char *name)
{
    errno = 0;
    if (hwloc_topology_set_xmlbuffer(reader->topology, text, (int)bytes) != 0 ||
        hwloc_topology_load(reader->topology) != 0 || !is_from_file(reader->topology)) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s: hwloc cannot read this topology: %s; write it with lstopo", name,
                          errno ? strerror(errno) : "not hwloc's XML");
    }
    RONDO_TRY(topology_read(reader));
    RONDO_TRY(nvlinks_add(reader));
    RONDO_TRY(os_nets_add(reader));
    RONDO_TRY(rondo_detect_arrange(reader->machine, NULL));
    return rondo_machine_check(reader->machine);
}

rondo_status rondo_machine_from_hwloc_xml(struct rondo_machine *machine, const char *text, size_t bytes,
                                          const char *name)
{
    struct reader reader = { .machine = machine };
    char *copy = NULL; /* hwloc's own parser needs a terminated string */
    rondo_status status;
    memset(machine, 0, sizeof *machine);
    snprintf(machine->source, sizeof machine->source, "%s", name);
    if (bytes == 0 || bytes > RONDO_XML_MAX_BYTES) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: the topology has %zu bytes, expected 1 to %d", name,
                          bytes, RONDO_XML_MAX_BYTES);
    }
    RONDO_TRY(xml_check(text, bytes, name));
    RONDO_TRY(RONDO_NEW_ARRAY(copy, bytes + 1, "the text of a topology"));
    memcpy(copy, text, bytes);
    RONDO_TRY_GOTO(topology_new(&reader.topology), out);
    status = hwloc_xml_read(&reader, copy, bytes + 1, name);
    hwloc_topology_destroy(reader.topology);
out:
    rondo_free(copy);
    if (status != RONDO_SUCCESS) {
        rondo_machine_release(machine);
    }
    return status;
}
