/* PCI links from sysfs: speed and width; and virtual machines, where sysfs knows little. */
#include "topo/detect/detect_impl.h"

#if defined __x86_64__ || defined __i386__
#include <cpuid.h>
#endif
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- reading sysfs ---- */

static int path_print(char path[PATH_MAX], const char *fmt, va_list args)
{
    int n = vsnprintf(path, PATH_MAX, fmt, args);
    return n >= 0 && n < PATH_MAX ? 0 : -1;
}

static int line_read(char text[RONDO_SYSFS_TEXT], const char *path)
{
    FILE *file = fopen(path, "re");
    text[0] = '\0';
    if (!file) {
        return -1;
    }
    int failed = !fgets(text, RONDO_SYSFS_TEXT, file);
    fclose(file);
    if (failed) { /* files of devices that are down may open but fail to read */
        text[0] = '\0';
        return -1;
    }
    size_t skip = strspn(text, " \t"), length = strlen(text);
    while (length > skip && strchr(" \t\r\n", text[length - 1])) {
        length--;
    }
    memmove(text, text + skip, length - skip);
    text[length - skip] = '\0';
    return 0;
}

int rondo_sysfs_read(char text[RONDO_SYSFS_TEXT], const char *fmt, ...)
{
    char path[PATH_MAX];
    va_list args;
    va_start(args, fmt);
    int failed = path_print(path, fmt, args);
    va_end(args);
    text[0] = '\0';
    return failed ? -1 : line_read(text, path);
}

long long rondo_sysfs_number(long long otherwise, const char *fmt, ...)
{
    char path[PATH_MAX], text[RONDO_SYSFS_TEXT], *end;
    va_list args;
    va_start(args, fmt);
    int failed = path_print(path, fmt, args);
    va_end(args);
    if (failed || line_read(text, path) != 0) {
        return otherwise;
    }
    errno = 0;
    long long value = strtoll(text, &end, strncmp(text, "0x", 2) == 0 ? 16 : 10);
    return errno == 0 && end != text && *end == '\0' ? value : otherwise;
}

int rondo_sysfs_real(char path[PATH_MAX], const char *fmt, ...)
{
    char given[PATH_MAX];
    va_list args;
    va_start(args, fmt);
    int failed = path_print(given, fmt, args);
    va_end(args);
    return !failed && realpath(given, path) ? 0 : -1;
}

static int not_hidden(const struct dirent *entry) { return entry->d_name[0] != '.'; }
static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

int rondo_sysfs_list(char ***names, const char *fmt, ...)
{
    char path[PATH_MAX];
    struct dirent **entry;
    va_list args;
    va_start(args, fmt);
    int failed = path_print(path, fmt, args);
    va_end(args);
    *names = NULL;
    int n = failed ? -1 : scandir(path, &entry, not_hidden, by_bytes);
    if (n < 0) {
        return 0;
    }
    *names = calloc((size_t)n + 1, sizeof **names);
    int kept = 0;
    for (int i = 0; i < n; i++) {
        char *name = *names ? strdup(entry[i]->d_name) : NULL;
        if (name) {
            (*names)[kept++] = name;
        }
        free(entry[i]);
    }
    free(entry);
    return kept;
}

void rondo_sysfs_list_free(char **names, int n)
{
    for (int i = 0; i < n; i++) {
        free(names[i]);
    }
    free(names);
}

/* ---- links ---- */

#define SPEED(ctx, text, speed, lane) speed,
static const int32_t speeds[] = { RONDO_TOPO_PCI_TABLE(SPEED, ) }; /* GT/s x 10 */
#undef SPEED
enum { GEN3 = 80, GEN4 = 160, GEN5 = 320 };

/* MB/s on the wire, before packet overhead: Gen1 and Gen2 send 8 bits in 10, the others 128 in 130. */
static int64_t link_mbs(int32_t speed, int32_t width)
{
    int64_t mbs = (int64_t)speed * 100 * width / 8;
    return speed < GEN3 ? mbs * 8 / 10 : mbs * 128 / 130;
}

void rondo_detect_link_from_gbs(double gbs, int32_t *speed, int32_t *width)
{
    *speed = *width = 0;
    int64_t given = gbs > 0 && gbs < 10000 ? (int64_t)(gbs * 1000 + 0.5) : 0, least = INT64_MAX;
    for (int32_t lanes = 16; given > 0 && lanes > 0; lanes /= 2) {
        for (size_t i = 0; i < RONDO_COUNTOF(speeds); i++) {
            int64_t off = link_mbs(speeds[i], lanes) - given;
            off = off < 0 ? -off : off;
            if (off < least) {
                least = off;
                *speed = speeds[i];
                *width = lanes;
            }
        }
    }
}

/* Read the port's maximum, not its current state: idle devices slow down. @return 0 if the device is not
 * PCI Express or sysfs does not say. */
static int port_read(const char *path, int32_t *speed, int32_t *width)
{
    char text[RONDO_SYSFS_TEXT];
    *speed = rondo_sysfs_read(text, "%s/max_link_speed", path) == 0 ? rondo_pci_speed_parse(text) : 0;
    long long lanes = rondo_sysfs_number(0, "%s/max_link_width", path);
    *width = lanes > 0 && lanes <= 32 ? (int32_t)lanes : 0;
    return *speed > 0 && *width > 0;
}

/* Change the path to the directory of the port above. @return 0 if there is none. */
static int path_up(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash) {
        return 0;
    }
    *slash = '\0';
    slash = strrchr(path, '/');
    return slash && rondo_sysfs_busid(slash + 1) >= 0;
}

int rondo_detect_pci_link(struct rondo_item *item, const char *sysfs)
{
    char address[24], path[PATH_MAX];
    int32_t speed, width, above_speed, above_width;
    if (rondo_sysfs_real(path, "%s/bus/pci/devices/%s", sysfs, rondo_busid_text(item->pci.busid, address)) !=
        0) {
        return 0;
    }
    if (!port_read(path, &speed, &width) &&
        (rondo_sysfs_real(path, "%s/physfn", path) != 0 || !port_read(path, &speed, &width))) {
        return 0;
    }
    if (path_up(path) && port_read(path, &above_speed, &above_width)) {
        speed = above_speed < speed ? above_speed : speed;
        width = above_width < width ? above_width : width;
    }
    item->pci.speed = speed;
    item->pci.width = width;
    return 1;
}

rondo_status rondo_detect_pci_links(struct rondo_machine *machine, const char *sysfs)
{
    for (int32_t i = 0; i < machine->nitems; i++) {
        struct rondo_item *item = &machine->item[i];
        if (item->kind == RONDO_ITEM_PCI && (item->pci.speed == 0 || item->pci.width == 0)) {
            (void)rondo_detect_pci_link(item, sysfs);
        }
    }
    return RONDO_SUCCESS;
}

/* ---- virtual machines ---- */

static const struct {
    const char *sign, *name; /* signature from the processor or the firmware */
} hypervisors[] = {
    { "KVMKVMKVM", "kvm" },
    { "Microsoft Hv", "hyper-v" },
    { "VMwareVMware", "vmware" },
    { "XenVMMXenVMM", "xen" },
    { "Linux KVM Hv", "kvm" },
    { "TCGTCGTCGTCG", "qemu" },
    { "KVM", "kvm" },
    { "QEMU", "qemu" },
    { "VMware", "vmware" },
    { "Virtual Machine", "hyper-v" },
    { "VirtualBox", "virtualbox" },
    { "HVM domU", "xen" },
};

static const char *hypervisor_named(const char *text, char name[32])
{
    for (size_t i = 0; i < RONDO_COUNTOF(hypervisors); i++) {
        if (strstr(text, hypervisors[i].sign)) {
            snprintf(name, 32, "%s", hypervisors[i].name);
            return name;
        }
    }
    return NULL;
}

static const char *hypervisor_of_cpu(char name[32])
{
#if defined __x86_64__ || defined __i386__
    unsigned eax, sign[4] = { 0 }, ecx = 0, edx;
    if (!__get_cpuid(1, &eax, &sign[0], &ecx, &edx) || !(ecx >> 31)) {
        return NULL;
    }
    __cpuid(0x40000000, eax, sign[0], sign[1], sign[2]);
    if (!hypervisor_named((const char *)sign, name)) {
        snprintf(name, 32, "unknown hypervisor");
    }
    return name;
#else
    (void)name;
    return NULL;
#endif
}

const char *rondo_detect_hypervisor(const char *sysfs, char name[32])
{
    char text[RONDO_SYSFS_TEXT];
    const char *found = strcmp(sysfs, "/sys") == 0 ? hypervisor_of_cpu(name) : NULL;
    if (!found && rondo_sysfs_read(text, "%s/class/dmi/id/product_name", sysfs) == 0) {
        found = hypervisor_named(text, name);
    }
    if (!found && rondo_sysfs_read(text, "%s/class/dmi/id/sys_vendor", sysfs) == 0) {
        found = hypervisor_named(text, name);
    }
    if (!found && rondo_sysfs_read(text, "%s/hypervisor/type", sysfs) == 0) {
        snprintf(name, 32, "%.31s", text);
        found = name;
    }
    return found;
}

/* A GPU or NIC, not a switch. */
static int is_device(const struct rondo_machine *machine, int32_t i)
{
    return machine->item[i].kind == RONDO_ITEM_PCI && (rondo_detect_child(machine, i, RONDO_ITEM_GPU) >= 0 ||
                                                       rondo_detect_child(machine, i, RONDO_ITEM_NIC) >= 0);
}

static int32_t gpu_speed(const struct rondo_machine *machine, int32_t pci)
{
    const struct rondo_item *gpu = &machine->item[rondo_detect_child(machine, pci, RONDO_ITEM_GPU)];
    int32_t sm = gpu->gpu.sm ? gpu->gpu.sm : rondo_detect_gpu_sm(machine->item[pci].pci.device);
    return sm >= 90 ? GEN5 : sm >= 80 ? GEN4 : GEN3;
}

/* The sum of a NIC's ports. */
static int64_t nic_mbs(const struct rondo_machine *machine, int32_t pci)
{
    int64_t mbps = 0;
    int32_t nic = rondo_detect_child(machine, pci, RONDO_ITEM_NIC);
    for (int32_t i = nic + 1; nic >= 0 && i < machine->nitems; i++) {
        if (machine->item[i].kind == RONDO_ITEM_NET && machine->item[i].parent == nic) {
            mbps += machine->item[i].net.mbps;
        }
    }
    return mbps / 8;
}

static int32_t nic_speed(const struct rondo_machine *machine, int32_t pci)
{
    int64_t mbs = nic_mbs(machine, pci);
    int32_t speed = GEN3;
    for (size_t i = 0; i < RONDO_COUNTOF(speeds) && link_mbs(speed, 16) < mbs; i++) {
        speed = speeds[i] > speed ? speeds[i] : speed;
    }
    return speed;
}

/* @return 1 if the link is unknown, slower than the NIC's ports, or an emulated port's, which claims to be
 * slower than any GPU. */
static int link_implausible(const struct rondo_machine *machine, int32_t pci, int gpu)
{
    int64_t mbs = link_mbs(machine->item[pci].pci.speed, machine->item[pci].pci.width);
    return mbs == 0 || mbs < (gpu ? link_mbs(GEN3, 4) : nic_mbs(machine, pci));
}

void rondo_detect_virtual(struct rondo_machine *machine, const char *sysfs)
{
    char name[32], address[24], path[PATH_MAX];
    int devices = 0, behind = 0, assumed = 0;
    if (!rondo_detect_hypervisor(sysfs, name)) {
        return;
    }
    for (int32_t i = 0; i < machine->nitems; i++) {
        struct rondo_item *item = &machine->item[i];
        if (!is_device(machine, i)) {
            continue;
        }
        devices++;
        int real = rondo_sysfs_real(path, "%s/bus/pci/devices/%s", sysfs,
                                    rondo_busid_text(item->pci.busid, address)) == 0 &&
                   path_up(path);
        behind += real || machine->item[item->parent].kind == RONDO_ITEM_PCI;
        int gpu = rondo_detect_child(machine, i, RONDO_ITEM_GPU) >= 0;
        if (link_implausible(machine, i, gpu)) {
            item->pci.speed = gpu ? gpu_speed(machine, i) : nic_speed(machine, i);
            item->pci.width = 16;
            assumed++;
        }
    }
    machine->is_virtual = behind < devices || devices == 0 || assumed > 0;
    if (machine->is_virtual) {
        rondo_detect_note(machine,
                          "virtual machine (%s): PCI tree is %s; links of %d of %d devices are assumed", name,
                          devices == 0       ? "empty"
                          : behind < devices ? "flat"
                                             : "emulated",
                          assumed, devices);
    }
}
