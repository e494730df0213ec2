/* Machines: nesting, limits, order, checks, hash, differences, addresses and names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "topo/machine.h"

#define assert_ok(call) assert_int_equal(call, RONDO_SUCCESS)
#define assert_refused(call, part)                                      \
    do {                                                                \
        assert_int_equal(call, RONDO_INVALID_ARGUMENT);                 \
        if (!strstr(rondo_error_text(), part)) {                        \
            fail_msg("\"%s\" is not in: %s", part, rondo_error_text()); \
        }                                                               \
    } while (0)

static int32_t add(struct rondo_machine *machine, enum rondo_item_kind kind, int32_t parent)
{
    int32_t index = -1;
    assert_ok(rondo_machine_add(machine, kind, parent, &index));
    return index;
}

static int32_t add_pci(struct rondo_machine *machine, int32_t parent, const char *busid, uint32_t class_code)
{
    int32_t pci = add(machine, RONDO_ITEM_PCI, parent);
    machine->item[pci].pci.busid = rondo_busid_parse(busid);
    machine->item[pci].pci.class_code = class_code;
    machine->item[pci].pci.speed = 160;
    machine->item[pci].pci.width = 16;
    return pci;
}

static int32_t add_gpu(struct rondo_machine *machine, int32_t parent, const char *busid, int dev)
{
    int32_t gpu = add(machine, RONDO_ITEM_GPU, add_pci(machine, parent, busid, 0x030200));
    machine->item[gpu].gpu.dev = dev;
    return gpu;
}

static int32_t add_nvlink(struct rondo_machine *machine, int32_t gpu, const char *target, int count)
{
    int32_t link = add(machine, RONDO_ITEM_NVLINK, gpu);
    machine->item[link].nvlink.target = rondo_busid_parse(target);
    machine->item[link].nvlink.count = count;
    return link;
}

static int32_t add_net(struct rondo_machine *machine, int32_t nic, const char *name, int dev)
{
    int32_t net = add(machine, RONDO_ITEM_NET, nic);
    snprintf(machine->item[net].net.name, RONDO_MACHINE_NAME, "%s", name);
    machine->item[net].net.dev = dev;
    return net;
}

static void add_c2c(struct rondo_machine *machine, int mbs, int count)
{
    int32_t c2c = add(machine, RONDO_ITEM_C2C, rondo_machine_nth(machine, RONDO_ITEM_GPU, 0));
    machine->item[c2c].c2c.mbs = mbs;
    machine->item[c2c].c2c.count = count;
}

/* Two linked GPUs behind a switch; a NIC with two ports. Links come last, as detection adds them. */
static void small(struct rondo_machine *machine)
{
    memset(machine, 0, sizeof *machine);
    int32_t cpu = add(machine, RONDO_ITEM_CPU, -1);
    int32_t bridge = add_pci(machine, cpu, "0000:10:00.0", 0x060400);
    int32_t a = add_gpu(machine, bridge, "0000:17:00.0", 0), b = add_gpu(machine, bridge, "0000:18:00.0", 1);
    int32_t nic = add(machine, RONDO_ITEM_NIC, add_pci(machine, cpu, "0000:20:00.0", 0x020000));
    add_net(machine, nic, "mlx5_0", 0);
    add_net(machine, nic, "mlx5_1", 1);
    add_nvlink(machine, a, "0000:18:00.0", 4);
    add_nvlink(machine, b, "0000:17:00.0", 4);
}

static int32_t gpu_item(const struct rondo_machine *machine, int n)
{
    return rondo_machine_nth(machine, RONDO_ITEM_GPU, n);
}
static int32_t net_item(const struct rondo_machine *machine, int n)
{
    return rondo_machine_nth(machine, RONDO_ITEM_NET, n);
}

/* ---- items ---- */

static void items_start_unknown(void **state)
{
    (void)state;
    struct rondo_machine machine = { 0 };
    int32_t cpu = add(&machine, RONDO_ITEM_CPU, -1), pci = add(&machine, RONDO_ITEM_PCI, cpu),
            gpu = add(&machine, RONDO_ITEM_GPU, pci);
    int32_t nic = add(&machine, RONDO_ITEM_NIC, cpu), net = add(&machine, RONDO_ITEM_NET, nic);
    const struct rondo_item *item = machine.item;
    assert_int_equal(item[cpu].parent, -1);
    assert_int_equal(item[cpu].cpu.package, -1);
    assert_int_equal(item[cpu].cpu.arch, -1);
    assert_int_equal(item[cpu].cpu.vendor, -1);
    assert_int_equal(item[pci].pci.busid, -1);
    assert_int_equal(item[gpu].gpu.rank, -1);
    assert_int_equal(item[gpu].gpu.gdr, -1);
    assert_int_equal(item[gpu].gpu.no_p2p, 0);
    assert_int_equal(item[net].net.rail, -1);
    assert_int_equal(item[net].net.coll, -1);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_PCI), 1);
    assert_int_equal(rondo_machine_nth(&machine, RONDO_ITEM_NET, 0), net);
    assert_int_equal(rondo_machine_nth(&machine, RONDO_ITEM_NET, 1), -1);
    assert_int_equal(rondo_machine_find_pci(&machine, 5), -1);
    rondo_machine_release(&machine);
    assert_null(machine.item);
}

static void each_kind_accepts_only_its_parents(void **state)
{
    (void)state;
    /* Rows: child; columns: parent. */
    static const char *const can[RONDO_NUM_ITEM_KINDS] = {
        [RONDO_ITEM_CPU] = "",        [RONDO_ITEM_PCI] = "cpu pci", [RONDO_ITEM_GPU] = "pci",
        [RONDO_ITEM_NIC] = "cpu pci", [RONDO_ITEM_NET] = "nic",     [RONDO_ITEM_NVLINK] = "gpu",
        [RONDO_ITEM_C2C] = "gpu",     [RONDO_ITEM_PCILINK] = "pci", [RONDO_ITEM_CACHE] = "cpu",
    };
    struct rondo_machine machine;
    small(&machine);
    int32_t index, cache = add(&machine, RONDO_ITEM_CACHE, 0);
    assert_int_equal(machine.item[cache].kind, RONDO_ITEM_CACHE);
    for (int child = 0; child < RONDO_NUM_ITEM_KINDS; child++) {
        for (int parent = 0; parent < RONDO_NUM_ITEM_KINDS; parent++) {
            int32_t item = rondo_machine_nth(&machine, (enum rondo_item_kind)parent, 0);
            if (item >= 0) {
                char why[RONDO_ERROR_TEXT];
                int want = strstr(can[child], rondo_item_kind_name((enum rondo_item_kind)parent)) != NULL;
                assert_int_equal(rondo_machine_may_add(&machine, (enum rondo_item_kind)child, item, why),
                                 want);
            }
        }
    }
    assert_refused(rondo_machine_add(&machine, RONDO_ITEM_GPU, 0, &index), "a gpu below cpu");
    assert_refused(rondo_machine_add(&machine, RONDO_ITEM_PCI, -1, &index), "a pci below the top");
    assert_refused(rondo_machine_add(&machine, RONDO_ITEM_PCI, machine.nitems, &index), "below the top");
    assert_refused(rondo_machine_add(&machine, RONDO_ITEM_CPU, 0, &index), "a cpu below cpu");
    assert_int_equal(rondo_machine_add(&machine, RONDO_NUM_ITEM_KINDS, 0, &index), RONDO_INVALID_ARGUMENT);
    rondo_machine_release(&machine);
}

static void item_counts_and_depth_are_bounded(void **state)
{
    (void)state;
    struct rondo_machine machine = { 0 };
    int32_t index, cpu = add(&machine, RONDO_ITEM_CPU, -1), deep = cpu,
                   pci = add(&machine, RONDO_ITEM_PCI, cpu), nic = add(&machine, RONDO_ITEM_NIC, cpu);
    for (int depth = 1; depth < RONDO_MACHINE_MAX_DEPTH; depth++) {
        deep = add(&machine, RONDO_ITEM_PCI, deep);
    }
    assert_refused(rondo_machine_add(&machine, RONDO_ITEM_PCI, deep, &index), "deeper than 64");
    for (int i = 0; i < RONDO_MACHINE_MAX_GPUS; i++) {
        add(&machine, RONDO_ITEM_GPU, pci);
        add(&machine, RONDO_ITEM_NET, nic);
    }
    assert_refused(rondo_machine_add(&machine, RONDO_ITEM_GPU, pci, &index),
                   "more than 1024 items of kind gpu");
    assert_refused(rondo_machine_add(&machine, RONDO_ITEM_NET, nic, &index),
                   "more than 1024 items of kind net");
    for (int i = 1; i < RONDO_MACHINE_MAX_CPUS; i++) {
        add(&machine, RONDO_ITEM_CPU, -1);
    }
    assert_refused(rondo_machine_add(&machine, RONDO_ITEM_CPU, -1, &index),
                   "more than 1024 items of kind cpu");
    while (machine.nitems < RONDO_MACHINE_MAX_ITEMS) {
        add(&machine, RONDO_ITEM_PCI, cpu);
    }
    assert_refused(rondo_machine_add(&machine, RONDO_ITEM_PCI, cpu, &index), "more than 65536 items");
    rondo_machine_release(&machine);
}

static void sorting_groups_children_below_their_parents(void **state)
{
    (void)state;
    struct rondo_machine machine;
    small(&machine);
    uint64_t hash = rondo_machine_hash(&machine);
    int32_t *order;
    assert_ok(rondo_machine_order(&machine, &order));
    assert_int_equal(order[4], 10); /* the first GPU's link, added last but one */
    rondo_free(order);
    assert_ok(rondo_machine_sort(&machine));
    assert_int_equal(machine.item[4].kind, RONDO_ITEM_NVLINK);
    assert_int_equal(machine.item[4].parent, 3);
    assert_int_equal(machine.item[machine.nitems - 1].kind, RONDO_ITEM_NET);
    assert_ok(rondo_machine_check(&machine));
    assert_int_equal(rondo_machine_hash(&machine), hash);
    add_nvlink(&machine, gpu_item(&machine, 0), "0000:20:01.0", 1); /* there is room after a sort */
    rondo_machine_release(&machine);
    assert_ok(rondo_machine_sort(&machine)); /* an empty machine */
    rondo_machine_release(&machine);
}

/* ---- checks ---- */

static void check_names_each_fault(void **state)
{
    (void)state;
    struct rondo_machine m;
#define FAULT(change, part)                            \
    do {                                               \
        small(&m);                                     \
        assert_ok(rondo_machine_check(&m));            \
        change;                                        \
        assert_refused(rondo_machine_check(&m), part); \
        rondo_machine_release(&m);                     \
    } while (0)
    FAULT(m.item[4].pci.busid = rondo_busid_parse("0000:17:00.0"), "PCI 0000:17:00.0: it appears twice");
    FAULT(add(&m, RONDO_ITEM_CPU, -1), "NUMA node 0: it appears twice");
    FAULT(m.item[1].pci.busid = -1, "busid is not a PCI address");
    FAULT(m.item[1].pci.busid = RONDO_BUSID_HIDDEN, "busid is not a PCI address");
    FAULT(m.item[1].pci.width = -1, "link_width is not an integer from 0 to 64");
    FAULT(m.item[1].pci.speed = -5, "link_speed is not a speed");
    FAULT(m.item[1].pci.class_code = 0x1000000, "class is not a hexadecimal number up to 0xffffff");
    FAULT(m.item[net_item(&m, 0)].net.mbps = 1000000000,
          "NET mlx5_0: speed is not an integer from -1 to 800000000");
    FAULT(m.item[net_item(&m, 0)].net.latency = NAN, "NET mlx5_0: latency is not a number from 0 to 1000000");
    FAULT(m.item[net_item(&m, 0)].net.latency = -1, "latency");
    FAULT(m.item[net_item(&m, 1)].net.name[4] = '"', "name is not a name");
    FAULT(m.item[net_item(&m, 1)].net.name[4] = '\n', "name is not a name");
    FAULT(memset(m.item[gpu_item(&m, 0)].gpu.name, 'x', RONDO_MACHINE_NAME),
          "GPU 0000:17:00.0: name is not a name of at most 63");
    FAULT(m.item[gpu_item(&m, 0)].gpu.dev = -1, "dev is not an integer from 0");
    FAULT(m.item[gpu_item(&m, 0)].gpu.gdr = 2, "gdr is not an integer from -1 to 1");
    FAULT(m.item[m.nitems - 1].nvlink.count = 0,
          "NVLink 0000:18:00.0 to 0000:17:00.0: count is not an integer from 1");
    FAULT(m.item[m.nitems - 1].nvlink.target = rondo_busid_parse("0000:18:00.0"), "leads to its own device");
    FAULT(m.item[m.nitems - 1].nvlink.target = rondo_busid_parse("0000:10:00.0"),
          "a device of class 0x060400");
    FAULT(m.item[m.nitems - 1].nvlink.target = rondo_busid_parse("0000:20:00.0"),
          "a device of class 0x020000");
    FAULT(m.item[2].pci.class_code = 0x020000, "GPU 0000:17:00.0: its PCI device is of class 0x020000");
    FAULT(m.item[m.nitems - 1].nvlink.target = -1, "target is not a PCI address");
    FAULT(m.item[m.nitems - 1].parent = 0, "has the parent 0, which cannot have it");
    FAULT(m.item[1].parent = 1, "has the parent 1");
    FAULT(m.item[2].kind = 99, "of kind 99");
    FAULT(m.item[0].cpu.arch = RONDO_NUM_ARCHS, "arch is not");
    FAULT(m.item[0].cpu.numa = -2, "numaid is not");
    FAULT(add_c2c(&m, 1, 0), "C2C 0000:17:00.0: count is not");
    FAULT(add_c2c(&m, RONDO_MACHINE_MAX_MBS, 2), "bw x count is 200000000 MB/s");
#undef FAULT
}

static void nvlink_targets_may_be_missing(void **state)
{
    (void)state;
    struct rondo_machine machine;
    small(&machine);
    machine.item[machine.nitems - 1].nvlink.target = rondo_busid_parse(
        "0000:99:00.0"); /* a GPU outside this container */
    machine.item[machine.nitems - 2].nvlink.target = RONDO_BUSID_HIDDEN;
    assert_ok(rondo_machine_check(&machine));
    rondo_machine_release(&machine);
}

/* ---- hash and differences ---- */

static int ndiffs(const struct rondo_machine *a, const struct rondo_machine *b, const char *part)
{
    char *text;
    int n;
    assert_ok(rondo_machine_diff(a, b, &text, &n));
    if (!strstr(text, part)) {
        fail_msg("\"%s\" is not in: %s", part, text);
    }
    free(text);
    return n;
}

static void hash_ignores_identities(void **state)
{
    (void)state;
    struct rondo_machine a, b;
    small(&a);
    small(&b);
    b.item[0].cpu.host_hash = 77;
    b.item[gpu_item(&b, 0)].gpu.rank = 5;
    b.item[gpu_item(&b, 0)].gpu.uuid[3] = 1;
    b.item[net_item(&b, 0)].net.guid = 0x1234;
    b.item[net_item(&b, 1)].net.guid = 0x1235;
    snprintf(b.source, sizeof b.source, "elsewhere");
    snprintf(b.note, sizeof b.note, "a note");
    assert_int_equal(rondo_machine_hash(&a), rondo_machine_hash(&b));
    assert_int_equal(ndiffs(&a, &b, ""), 0);
    b.item[net_item(&b, 1)].net.guid = 0x1234; /* now both ports share a wire */
    assert_int_not_equal(rondo_machine_hash(&a), rondo_machine_hash(&b));
    assert_int_equal(ndiffs(&a, &b, "NET mlx5_1: wire of its own, there NET mlx5_0\n"), 1);
    b.item[net_item(&b, 1)].net.port = 1; /* another port of the NIC */
    a.item[net_item(&a, 1)].net.port = 1;
    assert_int_equal(rondo_machine_hash(&a), rondo_machine_hash(&b));
    rondo_machine_release(&a);
    rondo_machine_release(&b);
}

static void differences_are_found(void **state)
{
    (void)state;
    struct rondo_machine a, b;
#define DIFFERS(change, n, part)                                              \
    do {                                                                      \
        small(&a);                                                            \
        small(&b);                                                            \
        change;                                                               \
        assert_int_not_equal(rondo_machine_hash(&a), rondo_machine_hash(&b)); \
        assert_int_equal(ndiffs(&a, &b, part), n);                            \
        rondo_machine_release(&a);                                            \
        rondo_machine_release(&b);                                            \
    } while (0)
    DIFFERS((b.item[2].pci.speed = 80, b.item[2].pci.width = 8), 1,
            "PCI 0000:17:00.0: link 16 GT/s x16, there 8 GT/s x8\n");
    DIFFERS((b.item[2].pci.speed = 0, b.item[2].pci.width = 0), 1,
            "link 16 GT/s x16, there unknown speed x?\n");
    DIFFERS(b.item[0].cpu.cores.bits[0] = 0xff, 1, "NUMA node 0: affinity unknown, there 000000ff\n");
    DIFFERS(a.item[gpu_item(&a, 1)].gpu.sm = 90, 1, "GPU 0000:18:00.0: sm 90, there unknown\n");
    DIFFERS(b.item[b.nitems - 1].nvlink.count = 2, 1,
            "NVLink 0000:18:00.0 to 0000:17:00.0: count 4, there 2\n");
    DIFFERS(add_gpu(&b, 0, "0000:30:00.0", 2), 1, "PCI 0000:30:00.0: only there\n");
    DIFFERS(add_net(&a, a.item[net_item(&a, 0)].parent, "mlx5_2", 2), 1, "NET mlx5_2: only here\n");
    DIFFERS(b.item[2].parent = 0, 1, "PCI 0000:17:00.0: below PCI 0000:10:00.0, there NUMA node 0\n");
    DIFFERS(b.is_virtual = 1, 1, "machine: is real, there virtual\n");
    DIFFERS(b.item[net_item(&b, 0)].net.latency = 2.5, 1, "NET mlx5_0: latency unknown, there 2.5\n");
#undef DIFFERS
    small(&a);
    memset(&b, 0, sizeof b);
    assert_int_equal(ndiffs(&a, &b, "NUMA node 0: only here\n"), 1);
    assert_int_equal(ndiffs(&b, &a, "NUMA node 0: only there\n"), 1);
    rondo_machine_release(&a);
}

static int allocations_left = -1; /* -1: all there are */

/* The engine's allocations from 1 KiB on come here: it is linked statically. */
int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    if (allocations_left == 0) {
        return ENOMEM;
    }
    allocations_left -= allocations_left > 0;
    *memory = aligned_alloc(alignment, bytes);
    return *memory == NULL ? ENOMEM : 0;
}

/* Without memory, wherever it ends, it fails and frees what it had once. */
static void differences_without_memory_are_an_error(void **state)
{
    struct rondo_machine a = { 0 };
    char *text;
    int n, failed = 0;
    (void)state;
    for (int i = 0; i < 300; i++) {
        add(&a, RONDO_ITEM_CPU, -1);
    }
    for (allocations_left = 0;; allocations_left = ++failed) {
        rondo_status status = rondo_machine_diff(&a, &a, &text, &n);
        allocations_left = -1;
        if (status == RONDO_SUCCESS) {
            break;
        }
        assert_int_equal(status, RONDO_SYSTEM_ERROR);
        assert_null(text);
    }
    assert_in_range(failed, 4, 100);
    free(text);
    rondo_machine_release(&a);
}

static void order_of_siblings_is_a_difference(void **state)
{
    (void)state;
    struct rondo_machine a = { 0 }, b = { 0 };
    for (int i = 0; i < 2; i++) {
        int32_t here = add(&a, RONDO_ITEM_CPU, -1), there = add(&b, RONDO_ITEM_CPU, -1);
        a.item[here].cpu.numa = i;
        b.item[there].cpu.numa = 1 - i;
    }
    assert_int_not_equal(rondo_machine_hash(&a), rondo_machine_hash(&b));
    assert_int_equal(ndiffs(&a, &b, "machine: has the same items, there in another order\n"), 1);
    rondo_machine_release(&a);
    rondo_machine_release(&b);
}

/* ---- texts ---- */

static void addresses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t busid;
        const char *back;
    } good[] = {
        { "0000:17:00.0", 0x17000, "0000:17:00.0" },
        { "0000:AF:1f.7", 0xaf1f7, "0000:af:1f.7" },
        { "17:00.0", 0x17000, "0000:17:00.0" },
        { "00000001:17:00.0", 0x117000, "0001:17:00.0" },
        { "ffffffff:ff:1f.f", 0xffffffffff1ff, "ffffffff:ff:1f.f" },
        { "10000:e1:00.0", 0x10000e1000, "10000:e1:00.0" },
        { "fffffff:ffff:ff", RONDO_BUSID_HIDDEN, "fffffff:ffff:ff" },
        { "fffffff:ffff:ff.0", RONDO_BUSID_HIDDEN, "fffffff:ffff:ff" },
        { "FFFFFFFF:FF:FF.0", RONDO_BUSID_HIDDEN, "fffffff:ffff:ff" },
    };
    char text[24];
    for (size_t i = 0; i < RONDO_COUNTOF(good); i++) {
        assert_int_equal(rondo_busid_parse(good[i].text), good[i].busid);
        assert_string_equal(rondo_busid_text(good[i].busid, text), good[i].back);
        assert_int_equal(rondo_busid_valid(good[i].busid), good[i].busid != RONDO_BUSID_HIDDEN);
    }
    static const char *const bad[] = { "",
                                       "17",
                                       "0000:17:00",
                                       "0000:17:00.0 ",
                                       " 0000:17:00.0",
                                       "0000:17:20.0",
                                       "0000:117:00.0",
                                       "000000000:17:00.0",
                                       "0:0:0:0.0",
                                       "g000:17:00.0",
                                       "0000:17:00.10",
                                       ":17:00.0",
                                       "0000::00.0",
                                       "0000:17:.0",
                                       "0000:17:00.",
                                       "-1:17:00.0",
                                       "fffffff:fff1:ff",
                                       "ffffff:ff:ff.f" };
    for (size_t i = 0; i < RONDO_COUNTOF(bad); i++) {
        assert_int_equal(rondo_busid_parse(bad[i]), -1);
    }
    assert_int_equal(rondo_busid_parse(NULL), -1);
    assert_string_equal(rondo_busid_text(-1, text), "none");
    assert_false(rondo_busid_valid(-1));
}

static void speeds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int speed;
    } all[] = { { "16 GT/s", 160 },        { "16.0 GT/s PCIe", 160 }, { "16.0 GT/s", 160 },
                { "16GT/s", 160 },         { "2.5 GT/s", 25 },        { "2.5 GT/s PCIe", 25 },
                { "64.0 GT/s PCIe", 640 }, { "64 GT/s", 640 },        { "", 0 },
                { "Unknown speed", 0 },    { "Unknown", 0 },          { "0", 0 },
                { "\t8 GT/s\n", 80 },      { "1280 GT/s", 12800 },    { "1281 GT/s", -1 },
                { "NaN GT/s", -1 },        { "-8 GT/s", -1 },         { "16", -1 },
                { "16 GB/s", -1 },         { "1e9 GT/s", -1 },        { "99999999999999999999 GT/s", -1 },
                { "16 GT/s x16", -1 },     { "16. GT/s", -1 },        { "2.55 GT/s", -1 } };
    char text[24];
    for (size_t i = 0; i < RONDO_COUNTOF(all); i++) {
        assert_int_equal(rondo_pci_speed_parse(all[i].text), all[i].speed);
    }
    assert_string_equal(rondo_pci_speed_text(25, text), "2.5 GT/s");
    assert_string_equal(rondo_pci_speed_text(160, text), "16 GT/s");
    assert_string_equal(rondo_pci_speed_text(1280, text), "128.0 GT/s");
    assert_string_equal(rondo_pci_speed_text(0, text), "");
}

static void classes_and_names(void **state)
{
    (void)state;
    assert_int_equal(rondo_pci_kind(0x030200), RONDO_PCI_GPU);
    assert_int_equal(rondo_pci_kind(0x030000), RONDO_PCI_GPU);
    assert_int_equal(rondo_pci_kind(0x020700), RONDO_PCI_NIC);
    assert_int_equal(rondo_pci_kind(0x068000), RONDO_PCI_NVSWITCH);
    assert_int_equal(rondo_pci_kind(0x068001), RONDO_PCI_NVLINK_CPU);
    assert_int_equal(rondo_pci_kind(0x060400), RONDO_PCI_BRIDGE);
    assert_int_equal(rondo_pci_kind(0x080100), RONDO_PCI_BRIDGE);
    assert_int_equal(rondo_pci_kind(0), RONDO_PCI_BRIDGE);
    for (int i = 0; i < RONDO_NUM_ARCHS; i++) {
        assert_int_equal(rondo_arch_from_name(rondo_arch_name(i)), i);
    }
    for (int i = 0; i < RONDO_NUM_VENDORS; i++) {
        assert_int_equal(rondo_vendor_from_name(rondo_vendor_name(i)), i);
    }
    assert_int_equal(rondo_vendor_from_name("AuthenticAMD"), RONDO_VENDOR_AMD);
    assert_int_equal(rondo_arch_from_name("riscv"), -1);
    assert_null(rondo_arch_name(-1));
    assert_null(rondo_vendor_name(RONDO_NUM_VENDORS));
    assert_string_equal(rondo_item_kind_name(RONDO_ITEM_PCILINK), "pcilink");
    assert_string_equal(rondo_item_kind_name(RONDO_NUM_ITEM_KINDS), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_start_unknown),
        cmocka_unit_test(each_kind_accepts_only_its_parents),
        cmocka_unit_test(item_counts_and_depth_are_bounded),
        cmocka_unit_test(sorting_groups_children_below_their_parents),
        cmocka_unit_test(check_names_each_fault),
        cmocka_unit_test(nvlink_targets_may_be_missing),
        cmocka_unit_test(hash_ignores_identities),
        cmocka_unit_test(differences_are_found),
        cmocka_unit_test(order_of_siblings_is_a_difference),
        cmocka_unit_test(differences_without_memory_are_an_error),
        cmocka_unit_test(addresses),
        cmocka_unit_test(speeds),
        cmocka_unit_test(classes_and_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
