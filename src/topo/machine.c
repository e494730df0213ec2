#include "topo/machine.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "base/array.h"
#include "base/mem.h"
#include "topo/machine_field.h"

#define BIT(KIND) (1u << RONDO_ITEM_##KIND)

/* Allowed parents of each kind, and the maximum number of items. */
static const struct {
    const char *name, *title;
    uint32_t parents;
    int32_t most;
} kinds[] = {
    [RONDO_ITEM_CPU] = { "cpu", "NUMA node", 0, RONDO_MACHINE_MAX_CPUS },
    [RONDO_ITEM_PCI] = { "pci", "PCI", BIT(CPU) | BIT(PCI), 0 },
    [RONDO_ITEM_GPU] = { "gpu", "GPU", BIT(PCI), RONDO_MACHINE_MAX_GPUS },
    [RONDO_ITEM_NIC] = { "nic", "NIC", BIT(CPU) | BIT(PCI), 0 },
    [RONDO_ITEM_NET] = { "net", "NET", BIT(NIC), RONDO_MACHINE_MAX_NETS },
    [RONDO_ITEM_NVLINK] = { "nvlink", "NVLink", BIT(GPU), 0 },
    [RONDO_ITEM_C2C] = { "c2c", "C2C", BIT(GPU), 0 },
    [RONDO_ITEM_PCILINK] = { "pcilink", "PCI link", BIT(PCI), 0 },
    [RONDO_ITEM_CACHE] = { "cache", "cache", BIT(CPU), 0 },
};
_Static_assert(RONDO_COUNTOF(kinds) == RONDO_NUM_ITEM_KINDS, "one row per kind");

const char *rondo_item_kind_name(enum rondo_item_kind kind)
{
    return (unsigned)kind < RONDO_NUM_ITEM_KINDS ? kinds[kind].name : "unknown";
}

/* ---- building ---- */

void rondo_machine_release(struct rondo_machine *machine)
{
    rondo_free(machine->item);
    memset(machine, 0, sizeof *machine);
}

static int32_t item_depth(const struct rondo_machine *machine, int32_t item)
{
    int32_t depth = 0;
    for (; item >= 0 && depth <= RONDO_MACHINE_MAX_DEPTH; item = machine->item[item].parent) {
        depth++;
    }
    return depth;
}

static void item_init(struct rondo_item *item, enum rondo_item_kind kind, int32_t parent)
{
    memset(item, 0, sizeof *item);
    item->kind = (int32_t)kind;
    item->parent = parent;
    switch (kind) {
    case RONDO_ITEM_CPU: item->cpu.package = item->cpu.arch = item->cpu.vendor = -1; break;
    case RONDO_ITEM_PCI: item->pci.busid = -1; break;
    case RONDO_ITEM_GPU: item->gpu.rank = item->gpu.gdr = -1; break;
    case RONDO_ITEM_NET:
        item->net.gdr = item->net.coll = item->net.keep = item->net.rail = item->net.plane = -1;
        break;
    case RONDO_ITEM_NVLINK: item->nvlink.target = -1; break;
    case RONDO_ITEM_PCILINK: item->pcilink.target = -1; break;
    default: break;
    }
}

static int parent_valid(const struct rondo_machine *machine, enum rondo_item_kind kind, int32_t parent)
{
    if (parent < 0) {
        return parent == -1 && kinds[kind].parents == 0;
    }
    return parent < machine->nitems && (kinds[kind].parents & 1u << machine->item[parent].kind) != 0;
}

int rondo_machine_may_add(const struct rondo_machine *machine, enum rondo_item_kind kind, int32_t parent,
                          char *text)
{
    if ((unsigned)kind >= RONDO_NUM_ITEM_KINDS) {
        snprintf(text, RONDO_ERROR_TEXT, "a machine has no items of kind %d", (int)kind);
    } else if (!parent_valid(machine, kind, parent)) {
        const char *above = parent >= 0 && parent < machine->nitems ? kinds[machine->item[parent].kind].name
                                                                    : "the top";
        snprintf(text, RONDO_ERROR_TEXT, "a machine cannot have a %s below %s", kinds[kind].name, above);
    } else if (machine->nitems >= RONDO_MACHINE_MAX_ITEMS) {
        snprintf(text, RONDO_ERROR_TEXT, "a machine with more than %d items is not supported",
                 RONDO_MACHINE_MAX_ITEMS);
    } else if (kinds[kind].most && rondo_machine_count(machine, kind) >= kinds[kind].most) {
        snprintf(text, RONDO_ERROR_TEXT, "a machine with more than %d items of kind %s is not supported",
                 kinds[kind].most, kinds[kind].name);
    } else if (item_depth(machine, parent) >= RONDO_MACHINE_MAX_DEPTH) {
        snprintf(text, RONDO_ERROR_TEXT, "a machine nested deeper than %d items is not supported",
                 RONDO_MACHINE_MAX_DEPTH);
    } else {
        return 1;
    }
    return 0;
}

rondo_status rondo_machine_add(struct rondo_machine *machine, enum rondo_item_kind kind, int32_t parent,
                               int32_t *index)
{
    char why[RONDO_ERROR_TEXT];
    if (!rondo_machine_may_add(machine, kind, parent, why)) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s", why);
    }
    RONDO_TRY(RONDO_ARRAY_GROW(machine->item, machine->nitems, machine->capacity, "the items of a machine"));
    item_init(&machine->item[machine->nitems], kind, parent);
    *index = machine->nitems++;
    return RONDO_SUCCESS;
}

/* ---- order ---- */

rondo_status rondo_machine_order(const struct rondo_machine *machine, int32_t **order)
{
    int32_t n = machine->nitems, *work, top = 0, at = 0;
    *order = NULL;
    RONDO_TRY(RONDO_NEW_ARRAY(work, 3 * (n + 1), "the order of a machine's items"));
    rondo_status status = RONDO_NEW_ARRAY(*order, n + 1, "the order of a machine's items");
    if (status != RONDO_SUCCESS) {
        rondo_free(work);
        return status;
    }
    /* first[p + 1]: first child of p; next[i]: next sibling of i. Links are index + 1. */
    int32_t *first = work, *next = work + n + 1, *stack = next + n;
    for (int32_t i = n - 1; i >= 0; i--) {
        next[i] = first[machine->item[i].parent + 1];
        first[machine->item[i].parent + 1] = i + 1;
    }
    for (stack[top++] = first[0]; top > 0;) {
        int32_t i = stack[--top] - 1;
        if (i < 0) {
            continue;
        }
        (*order)[at++] = i;
        stack[top++] = next[i];
        stack[top++] = first[i + 1];
    }
    rondo_free(work);
    return RONDO_SUCCESS;
}

rondo_status rondo_machine_sort(struct rondo_machine *machine)
{
    int32_t *order, *place = NULL;
    struct rondo_item *item = NULL;
    rondo_status status;
    RONDO_TRY(rondo_machine_order(machine, &order));
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(place, machine->nitems + 1, "the order of a machine's items"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(item, machine->nitems + 1, "the items of a machine"), out);
    for (int32_t i = 0; i < machine->nitems; i++) {
        place[order[i]] = i;
        item[i] = machine->item[order[i]];
        item[i].parent = item[i].parent < 0 ? -1 : place[item[i].parent];
    }
    rondo_free(machine->item);
    machine->item = item;
    machine->capacity = machine->nitems + 1;
    item = NULL;
out:
    rondo_free(order);
    rondo_free(place);
    rondo_free(item);
    return status;
}

/* ---- questions ---- */

int32_t rondo_machine_find_pci(const struct rondo_machine *machine, int64_t busid)
{
    for (int32_t i = 0; i < machine->nitems; i++) {
        if (machine->item[i].kind == RONDO_ITEM_PCI && machine->item[i].pci.busid == busid) {
            return i;
        }
    }
    return -1;
}

int32_t rondo_machine_nth(const struct rondo_machine *machine, enum rondo_item_kind kind, int n)
{
    for (int32_t i = 0; i < machine->nitems; i++) {
        if (machine->item[i].kind == (int32_t)kind && n-- == 0) {
            return i;
        }
    }
    return -1;
}

int32_t rondo_machine_count(const struct rondo_machine *machine, enum rondo_item_kind kind)
{
    int32_t n = 0;
    for (int32_t i = 0; i < machine->nitems; i++) {
        n += machine->item[i].kind == (int32_t)kind;
    }
    return n;
}

static int64_t busid_above(const struct rondo_machine *machine, int32_t item)
{
    for (; item >= 0; item = machine->item[item].parent) {
        if (machine->item[item].kind == RONDO_ITEM_PCI) {
            return machine->item[item].pci.busid;
        }
    }
    return -1;
}

static int32_t cpu_above(const struct rondo_machine *machine, int32_t item)
{
    while (item >= 0 && machine->item[item].parent >= 0) {
        item = machine->item[item].parent;
    }
    return item;
}

const char *rondo_machine_item_name(const struct rondo_machine *machine, int32_t item, char *text,
                                    size_t bytes)
{
    const struct rondo_item *at = &machine->item[item];
    const char *title = kinds[at->kind].title;
    char here[24], target[24];
    rondo_busid_text(busid_above(machine, item), here);
    switch (at->kind) {
    case RONDO_ITEM_CPU: snprintf(text, bytes, "%s %d", title, at->cpu.numa); break;
    case RONDO_ITEM_NET: snprintf(text, bytes, "%s %.*s", title, RONDO_MACHINE_NAME - 1, at->net.name); break;
    case RONDO_ITEM_NVLINK:
        snprintf(text, bytes, "%s %s to %s", title, here, rondo_busid_text(at->nvlink.target, target));
        break;
    case RONDO_ITEM_PCILINK:
        snprintf(text, bytes, "%s %s to %s", title, here, rondo_busid_text(at->pcilink.target, target));
        break;
    case RONDO_ITEM_CACHE:
        snprintf(text, bytes, "L%d %s of NUMA node %d", at->cache.level, title,
                 machine->item[cpu_above(machine, item)].cpu.numa);
        break;
    default:
        if (busid_above(machine, item) < 0) {
            snprintf(text, bytes, "%s of NUMA node %d", title,
                     machine->item[cpu_above(machine, item)].cpu.numa);
        } else {
            snprintf(text, bytes, "%s %s", title, here);
        }
    }
    return text;
}

/* ---- hash ---- */

/* A net on a shared wire is identified by the wire's first net: guids differ between machines, the sharing
 * does not. */
static int32_t first_of_wire(const struct rondo_machine *machine, const int32_t *order, int32_t at)
{
    const struct rondo_item *net = &machine->item[order[at]];
    for (int32_t i = 0, n = 0; net->net.guid && i < at; i++) {
        const struct rondo_item *other = &machine->item[order[i]];
        if (other->kind == RONDO_ITEM_NET) {
            if (other->net.guid == net->net.guid && other->net.port == net->net.port) {
                return n;
            }
            n++;
        }
    }
    return -1;
}

static uint64_t item_hash(const struct rondo_item *item, uint64_t hash)
{
    int n;
    const struct rondo_field *field = rondo_fields((enum rondo_item_kind)item->kind, &n);
    for (int i = 0; i < n; i++) {
        if (!(field[i].flags & RONDO_FIELD_IDENTITY)) {
            hash = rondo_field_hash(&field[i], item, hash);
        }
    }
    return hash;
}

uint64_t rondo_machine_hash(const struct rondo_machine *machine)
{
    int32_t *order;
    if (rondo_machine_order(machine, &order) != RONDO_SUCCESS) {
        return 0;
    }
    uint64_t hash = rondo_hash(&machine->is_virtual, sizeof machine->is_virtual, 0);
    for (int32_t i = 0; i < machine->nitems; i++) {
        const struct rondo_item *item = &machine->item[order[i]];
        int32_t place[3] = { item->kind, item_depth(machine, order[i]), -1 };
        if (item->kind == RONDO_ITEM_NET) {
            place[2] = first_of_wire(machine, order, i);
        }
        hash = item_hash(item, rondo_hash(place, sizeof place, hash));
    }
    rondo_free(order);
    return hash;
}

/* ---- checks ---- */

struct fault {
    const struct rondo_machine *machine;
    char *text; /* RONDO_ERROR_TEXT bytes */
    int32_t *item;
};

static rondo_status RONDO_PRINTF(3, 4) fault_at(const struct fault *fault, int32_t item, const char *fmt, ...)
{
    va_list args;
    *fault->item = item;
    va_start(args, fmt);
    int at = item < 0 ? 0 : (int)strlen(rondo_machine_item_name(fault->machine, item, fault->text, 128));
    at += item < 0 ? 0 : snprintf(fault->text + at, (size_t)(RONDO_ERROR_TEXT - at), ": ");
    vsnprintf(fault->text + at, (size_t)(RONDO_ERROR_TEXT - at), fmt, args);
    va_end(args);
    return RONDO_INVALID_ARGUMENT;
}

static rondo_status item_check(const struct fault *fault, int32_t i)
{
    const struct rondo_machine *machine = fault->machine;
    const struct rondo_item *item = &machine->item[i];
    if ((uint32_t)item->kind >= RONDO_NUM_ITEM_KINDS || item->parent >= i ||
        !parent_valid(machine, (enum rondo_item_kind)item->kind, item->parent)) {
        *fault->item = -1;
        snprintf(fault->text, RONDO_ERROR_TEXT, "item %d of kind %d has the parent %d, which cannot have it",
                 i, item->kind, item->parent);
        return RONDO_INVALID_ARGUMENT;
    }
    if (item_depth(machine, i) > RONDO_MACHINE_MAX_DEPTH) {
        return fault_at(fault, i, "nested deeper than %d items", RONDO_MACHINE_MAX_DEPTH);
    }
    int n;
    char expected[RONDO_FIELD_TEXT];
    const struct rondo_field *field = rondo_fields((enum rondo_item_kind)item->kind, &n);
    for (int f = 0; f < n; f++) {
        if (rondo_field_check(&field[f], item, expected)) {
            return fault_at(fault, i, "%s is not %s", field[f].name, expected);
        }
    }
    if (item->kind == RONDO_ITEM_GPU &&
        rondo_pci_kind(machine->item[item->parent].pci.class_code) != RONDO_PCI_GPU) {
        return fault_at(fault, i, "its PCI device is of class 0x%06x; a GPU's is 0x03....",
                        machine->item[item->parent].pci.class_code);
    }
    if (item->kind == RONDO_ITEM_C2C && (int64_t)item->c2c.mbs * item->c2c.count > RONDO_MACHINE_MAX_MBS) {
        return fault_at(fault, i, "bw x count is %" PRId64 " MB/s, more than the limit of %d",
                        (int64_t)item->c2c.mbs * item->c2c.count, RONDO_MACHINE_MAX_MBS);
    }
    return RONDO_SUCCESS;
}

struct key {
    uint64_t a;
    int64_t b;
    int32_t item;
};

static int key_compare(const void *pa, const void *pb)
{
    const struct key *a = pa, *b = pb;
    if (a->a != b->a) {
        return a->a < b->a ? -1 : 1;
    }
    if (a->b != b->b) {
        return a->b < b->b ? -1 : 1;
    }
    return (a->item > b->item) - (a->item < b->item);
}

/* Sorted keys: NUMA nodes by host and number, or PCI devices by address. */
static int32_t keys_fill(const struct rondo_machine *machine, int32_t kind, struct key *key)
{
    int32_t n = 0;
    for (int32_t i = 0; i < machine->nitems; i++) {
        const struct rondo_item *item = &machine->item[i];
        if (item->kind == kind) {
            int cpu = kind == RONDO_ITEM_CPU;
            key[n++] = (struct key){ cpu ? item->cpu.host_hash : 0, cpu ? item->cpu.numa : item->pci.busid,
                                     i };
        }
    }
    qsort(key, (size_t)n, sizeof *key, key_compare);
    return n;
}

static rondo_status unique_check(const struct fault *fault, const struct key *key, int32_t n)
{
    for (int32_t i = 1; i < n; i++) {
        if (key[i].a == key[i - 1].a && key[i].b == key[i - 1].b) {
            return fault_at(fault, key[i].item,
                            "it appears twice; each NUMA node and PCI address must be unique");
        }
    }
    return RONDO_SUCCESS;
}

static const struct rondo_item *key_find(const struct rondo_machine *machine, const struct key *key,
                                         int32_t n, int64_t busid)
{
    int32_t low = 0, high = n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (key[middle].b < busid) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < n && key[low].b == busid ? &machine->item[key[low].item] : NULL;
}

static rondo_status links_check(const struct fault *fault, const struct key *key, int32_t n)
{
    const struct rondo_machine *machine = fault->machine;
    for (int32_t i = 0; i < machine->nitems; i++) {
        const struct rondo_item *item = &machine->item[i], *target;
        if (item->kind != RONDO_ITEM_NVLINK && item->kind != RONDO_ITEM_PCILINK) {
            continue;
        }
        int64_t busid = item->kind == RONDO_ITEM_NVLINK ? item->nvlink.target : item->pcilink.target;
        if (busid == busid_above(machine, i)) {
            return fault_at(fault, i, "the link leads to its own device");
        }
        target = key_find(machine, key, n, busid);
        enum rondo_pci_kind kind = target ? rondo_pci_kind(target->pci.class_code) : RONDO_PCI_GPU;
        if (item->kind == RONDO_ITEM_NVLINK && (kind == RONDO_PCI_BRIDGE || kind == RONDO_PCI_NIC)) {
            return fault_at(fault, i,
                            "the target is a device of class 0x%06x; NVLinks lead to GPUs (0x03), NVSwitches "
                            "(0x0680) and CPUs (0x068001)",
                            target->pci.class_code);
        }
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_machine_fault(const struct rondo_machine *machine, char *text, int32_t *item)
{
    const struct fault fault = { machine, text, item };
    struct key *key;
    *item = -1;
    if (machine->nitems > RONDO_MACHINE_MAX_ITEMS) {
        return fault_at(&fault, -1, "%d items; at most %d are supported", machine->nitems,
                        RONDO_MACHINE_MAX_ITEMS);
    }
    for (int32_t i = 0; i < machine->nitems; i++) {
        RONDO_TRY(item_check(&fault, i));
    }
    rondo_status status = RONDO_NEW_ARRAY(key, machine->nitems + 1, "the check of a machine");
    if (status != RONDO_SUCCESS) {
        snprintf(text, RONDO_ERROR_TEXT, "%s", rondo_error_text());
        return status;
    }
    RONDO_TRY_GOTO(unique_check(&fault, key, keys_fill(machine, RONDO_ITEM_CPU, key)), out);
    int32_t n = keys_fill(machine, RONDO_ITEM_PCI, key);
    RONDO_TRY_GOTO(unique_check(&fault, key, n), out);
    RONDO_TRY_GOTO(links_check(&fault, key, n), out);
out:
    rondo_free(key);
    return status;
}

rondo_status rondo_machine_check(const struct rondo_machine *machine)
{
    char text[RONDO_ERROR_TEXT];
    int32_t item;
    rondo_status status = rondo_machine_fault(machine, text, &item);
    return status == RONDO_SUCCESS ? status
                                   : rondo_fail(status, "%s: %s", rondo_machine_source(machine), text);
}
