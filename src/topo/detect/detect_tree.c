/* The tree that detection builds: where a device belongs, and the final sorting. */
#include "topo/detect/detect_impl.h"

#include <stdio.h>
#include <string.h>
#include "base/mem.h"

void rondo_detect_note(struct rondo_machine *machine, const char *fmt, ...)
{
    size_t used = strlen(machine->note);
    if (used > 0 && used + 2 < sizeof machine->note) {
        memcpy(machine->note + used, "; ", 3);
        used += 2;
    }
    va_list args;
    va_start(args, fmt);
    vsnprintf(machine->note + used, sizeof machine->note - used, fmt, args);
    va_end(args);
}

void rondo_detect_name(char name[RONDO_MACHINE_NAME], const char *text)
{
    snprintf(name, RONDO_MACHINE_NAME, "%s", text);
    for (char *c = name; *c; c++) {
        if (*c < ' ' || *c > '~' || strchr("\"'&<>", *c)) {
            *c = '_';
        }
    }
}

int32_t rondo_detect_cpu(const struct rondo_machine *machine, int numa)
{
    int32_t first = -1;
    for (int32_t i = 0; i < machine->nitems; i++) {
        if (machine->item[i].kind == RONDO_ITEM_CPU) {
            if (machine->item[i].cpu.numa == numa) {
                return i;
            }
            first = first < 0 ? i : first;
        }
    }
    return first;
}

int32_t rondo_detect_child(const struct rondo_machine *machine, int32_t parent, enum rondo_item_kind kind)
{
    for (int32_t i = parent + 1; i < machine->nitems; i++) {
        if (machine->item[i].parent == parent && machine->item[i].kind == (int32_t)kind) {
            return i;
        }
    }
    return -1;
}

int64_t rondo_sysfs_busid(const char *text)
{
    size_t length = strlen(text);
    return length >= 12 && length < 24 && strspn(text, "0123456789abcdefABCDEF:.") == length &&
                   text[length - 2] == '.'
               ? rondo_busid_parse(text)
               : -1;
}

/* List the PCI addresses in a path, from the root. @return their number; only the first `most` are listed. */
static int path_busids(const char *path, int64_t *busid, size_t *end, int most)
{
    int n = 0;
    for (const char *part = path; *part && n < most;) {
        size_t length = strcspn(part, "/");
        char name[24];
        snprintf(name, sizeof name, "%.*s", (int)rondo_min_size(length, sizeof name - 1), part);
        int64_t address = rondo_sysfs_busid(name);
        if (address >= 0) {
            end[n] = (size_t)(part - path) + length;
            busid[n++] = address;
        }
        part += length + (part[length] == '/');
    }
    return n;
}

/* Read class and ids from a device's directory. What cannot be read stays unknown. */
static void pci_ids(struct rondo_item *item, const char *path, size_t length, int leaf)
{
    int n = (int)length;
    uint32_t class_code = (uint32_t)rondo_sysfs_number(leaf ? RONDO_CLASS_NIC : RONDO_CLASS_BRIDGE,
                                                       "%.*s/class", n, path);
    item->pci.class_code = rondo_detect_class(class_code & 0xffffff);
    item->pci.vendor = (uint16_t)rondo_sysfs_number(0, "%.*s/vendor", n, path);
    item->pci.device = (uint16_t)rondo_sysfs_number(0, "%.*s/device", n, path);
    item->pci.subsystem_vendor = (uint16_t)rondo_sysfs_number(0, "%.*s/subsystem_vendor", n, path);
    item->pci.subsystem_device = (uint16_t)rondo_sysfs_number(0, "%.*s/subsystem_device", n, path);
}

rondo_status rondo_detect_pci_path(struct rondo_machine *machine, const char *path, int32_t *item)
{
    int64_t busid[RONDO_MACHINE_MAX_DEPTH / 2];
    size_t end[RONDO_COUNTOF(busid)];
    int n = path_busids(path, busid, end, RONDO_COUNTOF(busid));
    *item = n > 0 ? rondo_machine_find_pci(machine, busid[n - 1]) : -1;
    if (n == 0 || *item >= 0) {
        return RONDO_SUCCESS;
    }
    int32_t parent = rondo_detect_cpu(machine,
                                      (int)rondo_sysfs_number(-1, "%.*s/numa_node", (int)end[n - 1], path));
    for (int i = 0; i < n; i++) {
        int leaf = i == n - 1;
        if (!leaf && !rondo_detect_bridge_kept(i)) {
            continue;
        }
        int32_t here = rondo_machine_find_pci(machine, busid[i]);
        if (here < 0) {
            RONDO_TRY(rondo_machine_add(machine, RONDO_ITEM_PCI, parent, &here));
            machine->item[here].pci.busid = busid[i];
            pci_ids(&machine->item[here], path, end[i], leaf);
        }
        parent = here;
    }
    *item = parent;
    return RONDO_SUCCESS;
}

int32_t rondo_detect_nic_pci(const struct rondo_machine *machine, int32_t pci)
{
    if (pci < 0) {
        return pci;
    }
    const struct rondo_item *item = &machine->item[pci];
    int32_t first = rondo_machine_find_pci(machine, item->pci.busid & ~(int64_t)0xf);
    if (first < 0) {
        return pci;
    }
    const struct rondo_item *zero = &machine->item[first];
    int same = zero->parent == item->parent && rondo_pci_kind(zero->pci.class_code) == RONDO_PCI_NIC &&
               zero->pci.vendor == item->pci.vendor && zero->pci.device == item->pci.device;
    return same ? first : pci;
}

rondo_status rondo_detect_nic(struct rondo_machine *machine, int32_t pci, int32_t *nic)
{
    if (pci >= 0) {
        *nic = rondo_detect_child(machine, pci, RONDO_ITEM_NIC);
        if (*nic >= 0) {
            return RONDO_SUCCESS;
        }
    }
    return rondo_machine_add(machine, RONDO_ITEM_NIC, pci >= 0 ? pci : rondo_detect_cpu(machine, -1), nic);
}

int32_t rondo_detect_gpu_sm(int device)
{
    int32_t sm = 0;
#define ROW(ctx, least, value) sm = device >= least ? value : sm;
    RONDO_TOPO_GPU_ID_TABLE(ROW, )
#undef ROW
    return sm;
}

void rondo_detect_number_gpus(struct rondo_machine *machine)
{
    for (int32_t i = 0; i < machine->nitems; i++) {
        if (machine->item[i].kind != RONDO_ITEM_GPU) {
            continue;
        }
        int64_t busid = machine->item[machine->item[i].parent].pci.busid;
        int32_t dev = 0;
        for (int32_t k = 0; k < machine->nitems; k++) {
            dev += machine->item[k].kind == RONDO_ITEM_GPU &&
                   machine->item[machine->item[k].parent].pci.busid < busid;
        }
        machine->item[i].gpu.dev = dev;
    }
}

/* ---- order ---- */

struct arranging {
    struct rondo_item *old; /* copy of the original items */
    int32_t *sorted;        /* indices by (parent, kind, bus id, index) */
    int32_t *first; /* index + 1 -> start of its children in sorted; first[0]: items without a parent */
    uint8_t *keep;
    struct rondo_machine *machine;
};

static int64_t order_of(const struct rondo_item *item)
{
    switch (item->kind) {
    case RONDO_ITEM_CPU: return item->cpu.numa;
    case RONDO_ITEM_PCI: return item->pci.busid;
    case RONDO_ITEM_NVLINK: return item->nvlink.target;
    case RONDO_ITEM_NET: return item->net.dev;
    default: return 0;
    }
}

static int item_compare(const void *x, const void *y, void *context)
{
    const struct rondo_item *old = context;
    int32_t i = *(const int32_t *)x, k = *(const int32_t *)y;
    const struct rondo_item *a = &old[i], *b = &old[k];
    if (a->parent != b->parent) {
        return a->parent < b->parent ? -1 : 1;
    }
    if (a->kind != b->kind) {
        return a->kind < b->kind ? -1 : 1;
    }
    int64_t v = order_of(a), w = order_of(b);
    return v != w ? (v < w ? -1 : 1) : (i > k) - (i < k);
}

static void keep_undropped(struct arranging *a, int n, const uint8_t *drop)
{
    for (int i = 0; i < n; i++) {
        a->keep[i] = !drop[i] && (a->old[i].parent < 0 || a->keep[a->old[i].parent]);
    }
}

/* Keep what leads to a GPU, an NVSwitch or a NET. Parents come before their children. */
static void keep_useful(struct arranging *a, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        const struct rondo_item *item = &a->old[i];
        int pci = item->kind == RONDO_ITEM_PCI;
        int leads = a->keep[i] || item->kind == RONDO_ITEM_GPU || item->kind == RONDO_ITEM_NET ||
                    (pci && rondo_detect_kind(item->pci.class_code, item->pci.vendor) == RONDO_PCI_NVSWITCH);
        a->keep[i] = leads || !(pci || item->kind == RONDO_ITEM_NIC);
        if (leads && item->parent >= 0) {
            a->keep[item->parent] = 1;
        }
    }
    for (int i = 0; i < n; i++) {
        a->keep[i] = a->keep[i] && (a->old[i].parent < 0 || a->keep[a->old[i].parent]);
    }
}

/* Emit an old item and all items below it. rondo_machine_add bounds the depth. */
static void emit(struct arranging *a, int32_t old, int32_t parent)
{
    if (!a->keep[old]) {
        return;
    }
    int32_t here = a->machine->nitems++;
    a->machine->item[here] = a->old[old];
    a->machine->item[here].parent = parent;
    for (int32_t i = a->first[old + 1]; i < a->first[old + 2]; i++) {
        emit(a, a->sorted[i], here);
    }
}

static void arrange(struct arranging *a, int n, const uint8_t *drop)
{
    memcpy(a->old, a->machine->item, (size_t)n * sizeof *a->old);
    for (int i = 0; i < n; i++) {
        a->sorted[i] = i;
        a->first[a->old[i].parent + 2]++;
    }
    for (int i = 0; i <= n; i++) {
        a->first[i + 1] += a->first[i];
    }
    qsort_r(a->sorted, (size_t)n, sizeof *a->sorted, item_compare, a->old);
    if (drop) {
        keep_undropped(a, n, drop);
    } else {
        keep_useful(a, n);
    }
    a->machine->nitems = 0;
    for (int i = 0; i < a->first[1]; i++) {
        emit(a, a->sorted[i], -1);
    }
}

rondo_status rondo_detect_arrange(struct rondo_machine *machine, const uint8_t *drop)
{
    struct arranging a = { .machine = machine };
    int n = machine->nitems;
    rondo_status status;
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(a.old, n, "the items of the machine"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(a.sorted, n, "the order of the machine's items"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(a.first, n + 2, "the order of the machine's items"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(a.keep, n, "the order of the machine's items"), out);
    if (n > 0) {
        arrange(&a, n, drop);
    }
out:
    rondo_free(a.old);
    rondo_free(a.sorted);
    rondo_free(a.first);
    rondo_free(a.keep);
    return status;
}
