/* Detection of the machine: hwloc's topologies, virtual machines, a fake NVML built by the test, this host.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "fake_sysfs.h"
#include "topo/xml/xml_read.h"

static void device_ids_give_the_compute_capability(void **state)
{
    (void)state;
    assert_int_equal(rondo_detect_gpu_sm(0x1db1), 70);  /* V100 */
    assert_int_equal(rondo_detect_gpu_sm(0x20b0), 80);  /* A100 */
    assert_int_equal(rondo_detect_gpu_sm(0x2230), 86);  /* A6000 */
    assert_int_equal(rondo_detect_gpu_sm(0x26b9), 89);  /* L40S */
    assert_int_equal(rondo_detect_gpu_sm(0x2335), 90);  /* H200 */
    assert_int_equal(rondo_detect_gpu_sm(0x2901), 100); /* B200 */
    assert_int_equal(rondo_detect_gpu_sm(0x0001), 0);
}

/* ---- NVLinks of a machine ---- */

static const struct rondo_item *nvlink_of(const struct rondo_machine *machine, int dev, int64_t target)
{
    for (int32_t i = 0; i < machine->nitems; i++) {
        const struct rondo_item *item = &machine->item[i];
        if (item->kind == RONDO_ITEM_NVLINK && item->nvlink.target == target &&
            machine->item[item->parent].gpu.dev == dev) {
            return item;
        }
    }
    return NULL;
}

static void assert_links(const struct rondo_machine *machine, int dev, const char *target, int count,
                         uint32_t tclass)
{
    const struct rondo_item *item = nvlink_of(machine, dev,
                                              target ? rondo_busid_parse(target) : RONDO_BUSID_HIDDEN);
    assert_non_null(item);
    assert_int_equal(item->nvlink.count, count);
    assert_int_equal(item->nvlink.tclass, tclass);
}

/* ---- hwloc ---- */

static void synthetic_topology_acts(void **state)
{
    (void)state;
    struct rondo_machine machine;
    setenv("HWLOC_SYNTHETIC", "pack:2 numa:2 l3:2 core:4 pu:1", 1);
    assert_int_equal(rondo_machine_detect(&machine, NULL), RONDO_SUCCESS);
    assert_says(machine.source, "HWLOC_SYNTHETIC=pack:2");
    assert_int_equal(machine.is_virtual, 0);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_CPU), 4);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_CACHE), 8);
    assert_int_equal(machine.nitems, 12); /* nothing from this host */
    for (int n = 0; n < 4; n++) {
        int32_t i = rondo_machine_nth(&machine, RONDO_ITEM_CPU, n);
        const struct rondo_item *cpu = &machine.item[i], *cache = cpu + 1;
        assert_int_equal(cpu->cpu.numa, n);
        assert_int_equal(cpu->cpu.package, n / 2);
        assert_true(cpu->cpu.cores.bits[0] == UINT64_C(0xff) << 8 * n);
        assert_int_equal(cache->kind, RONDO_ITEM_CACHE);
        assert_int_equal(cache->parent, i);
        assert_int_equal(cache->cache.level, 3);
        assert_true(cache->cache.bytes > 0);
        assert_true(cache->cache.cores.bits[0] == UINT64_C(0x0f) << 8 * n);
    }
    rondo_machine_release(&machine);
}

static void cache_of_several_nodes_is_in_each(void **state)
{
    (void)state;
    struct rondo_machine machine;
    setenv("HWLOC_SYNTHETIC", "pack:1 l3:1 numa:2 l2:1 core:2 pu:1", 1);
    assert_int_equal(rondo_machine_detect(&machine, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_CACHE), 2);
    for (int n = 0; n < 2; n++) {
        const struct rondo_item *cache = &machine.item[rondo_machine_nth(&machine, RONDO_ITEM_CACHE, n)];
        assert_true(cache->cache.cores.bits[0] == UINT64_C(3) << 2 * n);
    }
    rondo_machine_release(&machine);
    setenv("HWLOC_SYNTHETIC", "pack:1 numa:1 l2:2 core:2 pu:1", 1);
    assert_int_equal(rondo_machine_detect(&machine, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_CACHE), 2);
    assert_int_equal(machine.item[rondo_machine_nth(&machine, RONDO_ITEM_CACHE, 0)].cache.level, 2);
    rondo_machine_release(&machine);
}

static void what_hwloc_cannot_use_is_said(void **state)
{
    (void)state;
    struct rondo_machine machine;
    setenv("HWLOC_SYNTHETIC", "pack:2 nonsense", 1);
    assert_int_equal(rondo_machine_detect(&machine, NULL), RONDO_INVALID_USAGE);
    assert_says(rondo_error_text(), "HWLOC_SYNTHETIC=pack:2 nonsense");
    assert_null(machine.item);
    unsetenv("HWLOC_SYNTHETIC");
    setenv("HWLOC_XMLFILE", "/nowhere/machine.xml", 1);
    assert_int_equal(rondo_machine_detect(&machine, NULL), RONDO_INVALID_USAGE);
    assert_says(rondo_error_text(), "HWLOC_XMLFILE=/nowhere/machine.xml");
}

/* hwloc's XML of a machine; the file describes its contents. */
static char switch_file[PATH_MAX], *switch_xml;
static size_t switch_bytes;

static int switch_load(void **state)
{
    (void)state;
    const char *srcdir = getenv("srcdir");
    snprintf(switch_file, sizeof switch_file, "%s/mpi-tests/unit/hwloc_switch.xml", srcdir ? srcdir : ".");
    return rondo_xml_load(switch_file, &switch_xml, &switch_bytes) == RONDO_SUCCESS ? 0 : -1;
}

static int switch_free(void **state)
{
    (void)state;
    rondo_free(switch_xml);
    return 0;
}

static void hwloc_xml_becomes_a_machine(void **state)
{
    (void)state;
    struct rondo_machine machine;
    assert_int_equal(rondo_machine_from_hwloc_xml(&machine, switch_xml, switch_bytes, "dgx.xml"),
                     RONDO_SUCCESS);
    assert_string_equal(machine.source, "dgx.xml");
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_CPU),
                     2); /* the CXL memory has no cores of its own */
    const struct rondo_item *cpu = &machine.item[rondo_machine_nth(&machine, RONDO_ITEM_CPU, 1)];
    assert_int_equal(cpu->cpu.arch, RONDO_ARCH_X86);
    assert_int_equal(cpu->cpu.vendor, RONDO_VENDOR_AMD);
    assert_int_equal(cpu->cpu.family, 25);
    assert_int_equal(cpu->cpu.model, 17);
    assert_true(cpu->cpu.cores.bits[0] == 0xc);
    /* A switch is its upstream port; root ports, downstream ports and the display have no item. */
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_PCI), 5);
    const struct rondo_item *bridge = pci_at(&machine, "0000:01:00.0"),
                            *device = pci_at(&machine, "0000:03:00.0");
    assert_int_equal(machine.item[bridge->parent].kind, RONDO_ITEM_CPU);
    assert_ptr_equal(&machine.item[device->parent], bridge);
    assert_int_equal(device->pci.class_code, RONDO_CLASS_GPU);
    assert_int_equal(device->pci.subsystem_device, 0x134f);
    assert_int_equal(device->pci.speed, 160);
    assert_int_equal(device->pci.width, 16);
    assert_ptr_equal(&machine.item[pci_at(&machine, "0001:01:00.0")->parent], cpu);
    assert_ptr_equal(&machine.item[pci_at(&machine, "0000:05:00.0")->parent], bridge); /* NVSwitch */
    const struct rondo_item *gpu = device + 1;
    assert_int_equal(gpu->kind, RONDO_ITEM_GPU);
    assert_int_equal(gpu->gpu.dev, 0);
    assert_int_equal(gpu->gpu.sm, 80);
    assert_string_equal(gpu->gpu.name, "NVIDIA A100");
    assert_int_equal(gpu->gpu.uuid[15], 0xff);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_GPU), 2);
    /* Both functions are one NIC. */
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_NIC), 1);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_NET), 2);
    assert_net(&machine, 0, "mlx5_0", 0, 1, "0000:04:00.0");
    assert_net(&machine, 1, "mlx5_1", 0, 1, "0000:04:00.0");
    assert_true(machine.item[rondo_machine_nth(&machine, RONDO_ITEM_NET, 1)].net.guid ==
                UINT64_C(0x0c42a1030065bc2f));
    assert_says(machine.note, "speed of network ports");
    assert_links(&machine, 0, "0000:05:00.0", 12, RONDO_CLASS_NVSWITCH);
    assert_links(&machine, 0, "0001:01:00.0", 4, RONDO_CLASS_GPU);
    assert_links(&machine, 1, "0000:03:00.0", 4, RONDO_CLASS_GPU);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_NVLINK), 3);
    rondo_machine_release(&machine);
}

static void xmlfile_of_the_environment_is_the_same_machine(void **state)
{
    (void)state;
    struct rondo_machine machine, same;
    setenv("HWLOC_XMLFILE", switch_file, 1);
    assert_int_equal(rondo_machine_detect(&machine, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_machine_from_hwloc_xml(&same, switch_xml, switch_bytes, switch_file),
                     RONDO_SUCCESS);
    assert_true(rondo_machine_hash(&machine) == rondo_machine_hash(&same));
    assert_says(machine.source, "HWLOC_XMLFILE=");
    rondo_machine_release(&machine);
    rondo_machine_release(&same);
}

static void broken_hwloc_xml_is_refused_with_its_name(void **state)
{
    (void)state;
    struct rondo_machine machine;
    const size_t lengths[] = { 0, 1, 100, 1000, 3000, switch_bytes - 40 };
    for (size_t i = 0; i < RONDO_COUNTOF(lengths); i++) {
        assert_int_equal(rondo_machine_from_hwloc_xml(&machine, switch_xml, lengths[i], "cut.xml"),
                         RONDO_INVALID_ARGUMENT);
        assert_says(rondo_error_text(), "cut.xml");
        assert_null(machine.item);
    }
    /* hwloc would dereference null pointers, allocate gigabytes, or read another format. */
    static const struct {
        const char *from, *to, *says;
    } rows[] = {
        { "complete_nodeset='0x4'", "complete_nodexxx='0x4'", "complete_nodeset is missing" },
        { "<object type='Core' os_index='3' gp_index='44' cpuset='0x8'",
          "<object type='Core' os_index='3' gp_index='44' cpuset='0z8'", "not a set" },
        { "type='NUMANode' os_index='1'", "type='NUMANode' xx_index='1'", "os_index" },
        { "type='PU' os_index='2' gp_index='43'", "type='PU' os_index='222222222222222'", "os_index" },
        { "version='2.0'", "version='1.0'", "not of hwloc 2" },
        { "allowed_cpuset='0xf'", "allowed_cpuxxx='0xf'", "allowed_cpuset is missing" },
    };
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        char *text = strndup(switch_xml, switch_bytes), *at = strstr(text, rows[i].from);
        assert_non_null(at);
        assert_int_equal(strlen(rows[i].from), strlen(rows[i].to));
        memcpy(at, rows[i].to, strlen(rows[i].to));
        assert_int_equal(rondo_machine_from_hwloc_xml(&machine, text, switch_bytes, "broken.xml"),
                         RONDO_INVALID_ARGUMENT);
        free(text);
        assert_says(rondo_error_text(), "broken.xml:");
        assert_says(rondo_error_text(), rows[i].says);
        assert_null(machine.item);
    }
}

/* ---- virtual machines ---- */

static int32_t add_gpu(struct rondo_machine *machine, int32_t parent, const char *busid, int sm)
{
    int32_t i = add(machine, RONDO_ITEM_GPU,
                    add_pci(machine, parent, busid, RONDO_CLASS_GPU, RONDO_VENDOR_ID_NVIDIA));
    machine->item[i].gpu.sm = sm;
    return i;
}

static void flat_tree_gets_sane_links(void **state)
{
    (void)state;
    struct rondo_machine machine;
    static const char *const busid[] = { "0000:00:05.0", "0000:00:06.0", "0000:00:07.0" };
    static const int sm[] = { 75, 80, 90 }, expected[] = { 80, 160, 320 };
    machine_new(&machine);
    for (int i = 0; i < 3; i++) {
        add_gpu(&machine, 0, busid[i], sm[i]);
    }
    int32_t net = add(
        &machine, RONDO_ITEM_NET,
        add(&machine, RONDO_ITEM_NIC, add_pci(&machine, 0, "0000:00:08.0", RONDO_CLASS_NIC, 0x1d0f)));
    machine.item[net].net.mbps = 400000;
    rondo_detect_virtual(&machine, sysfs); /* nothing shows that this is not hardware */
    assert_int_equal(machine.is_virtual, 0);
    assert_int_equal(pci_at(&machine, "0000:00:05.0")->pci.speed, 0);
    put("Standard PC (Q35 + ICH9, 2009) KVM", "class/dmi/id/product_name");
    rondo_detect_virtual(&machine, sysfs);
    assert_int_equal(machine.is_virtual, 1);
    assert_says(machine.note, "virtual machine (kvm): PCI tree is flat");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pci_at(&machine, busid[i])->pci.speed, expected[i]);
        assert_int_equal(pci_at(&machine, busid[i])->pci.width, 16);
    }
    assert_int_equal(pci_at(&machine, "0000:00:08.0")->pci.speed, 320); /* 400 Gbit/s need Gen5 */
    rondo_machine_release(&machine);
}

static void virtual_machine_with_a_whole_tree_is_believed(void **state)
{
    (void)state;
    struct rondo_machine machine;
    put("xen", "hypervisor/type");
    machine_new(&machine);
    int32_t bridge = add_pci(&machine, 1, "0000:10:00.0", RONDO_CLASS_BRIDGE, 0x1000);
    int32_t pci = machine.item[add_gpu(&machine, bridge, "0000:12:00.0", 80)].parent;
    machine.item[pci].pci.speed = 80;
    machine.item[pci].pci.width = 16;
    rondo_detect_virtual(&machine, sysfs);
    assert_int_equal(machine.is_virtual, 0);
    assert_string_equal(machine.note, "");
    assert_int_equal(machine.item[pci].pci.speed, 80);
    machine.item[pci].pci.speed = 25; /* an emulated port's */
    machine.item[pci].pci.width = 1;
    rondo_detect_virtual(&machine, sysfs);
    assert_int_equal(machine.is_virtual, 1);
    assert_says(machine.note, "xen");
    assert_int_equal(machine.item[pci].pci.speed, 160);
    rondo_machine_release(&machine);
}

static void providers_description_is_used(void **state)
{
    (void)state;
    struct rondo_machine machine;
    char file[PATH_MAX];
    put("<system version=\"1\"><cpu numaid=\"0\" affinity=\"000000ff\" arch=\"x86_64\" "
        "vendor=\"AuthenticAMD\" familyid=\"23\" "
        "modelid=\"49\">"
        "<pci busid=\"ffff:ff:01.0\" class=\"0x060400\" link_speed=\"16 GT/s\" link_width=\"16\">"
        "<pci busid=\"0001:00:00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x20b0\" link_speed=\"16 "
        "GT/s\" link_width=\"16\"/>"
        "</pci></cpu></system>",
        "topology.xml");
    snprintf(file, sizeof file, "%s/topology.xml", sysfs);
    const struct rondo_detect options = { .sysfs = sysfs, .virtual_file = file, .no_nets = 1, .no_nvml = 1 };
    assert_int_equal(rondo_machine_detect(&machine, &options), RONDO_SUCCESS);
    assert_says(machine.source, "topology.xml");
    assert_says(machine.note, "provider");
    assert_int_equal(machine.is_virtual, 1);
    const struct rondo_item *gpu = &machine.item[rondo_machine_nth(&machine, RONDO_ITEM_GPU, 0)];
    assert_int_equal(gpu->gpu.sm, 80);
    assert_true(machine.item[machine.item[gpu->parent].parent].pci.busid ==
                rondo_busid_parse("ffff:ff:01.0"));
    rondo_machine_release(&machine);
}

/* ---- NVML ---- */

static char fake_nvml[PATH_MAX];

static const char *compiler(void)
{
    const char *cc = getenv("CC");
    return cc && cc[0] ? cc : "cc";
}

static int compiler_runs(void)
{
    char command[PATH_MAX];
    snprintf(command, sizeof command, "%s --version >/dev/null 2>&1", compiler());
    return system(command) == 0;
}

static const char *fake_nvml_library(void)
{
    char command[4 * PATH_MAX];
    const char *srcdir = getenv("srcdir");
    snprintf(fake_nvml, sizeof fake_nvml, "%s/libfake-ml.so", sysfs);
    snprintf(command, sizeof command, "%s -shared -fPIC -o %s %s/mpi-tests/unit/fake_nvml.c", compiler(),
             fake_nvml, srcdir ? srcdir : ".");
    assert_int_equal(system(command), 0);
    return fake_nvml;
}

/* The PCI tree has GPUs 0 and 3 and one that NVML does not list; 1 and 2 are missing. */
static void gpus_new(struct rondo_machine *machine)
{
    machine_new(machine);
    add_gpu(machine, 1, "0000:63:00.0", 0);
    add_gpu(machine, 0, "0000:17:00.0", 0);
    add_gpu(machine, 0, "0000:77:00.0", 0);
    rondo_detect_number_gpus(machine);
}

static void nvml_tells_links_and_peers(void **state)
{
    (void)state;
    struct rondo_machine machine;
    if (!compiler_runs()) {
        print_message("skipped: no C compiler ($CC)\n");
        skip();
    }
    const char *library = fake_nvml_library();
    gpus_new(&machine);
    assert_int_equal(rondo_detect_nvml_from(&machine, library), RONDO_SUCCESS);
    assert_int_equal(rondo_detect_arrange(&machine, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_machine_check(&machine), RONDO_SUCCESS);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_GPU), 4);
    assert_int_equal(rondo_machine_find_pci(&machine, rondo_busid_parse("0000:77:00.0")), -1);
    assert_says(machine.note, "NVML lists 4 of 5 GPUs");
    assert_says(machine.note, "2 NVLinks are ignored");
    const struct rondo_item *gpu = pci_at(&machine, "0000:63:00.0") + 1;
    assert_int_equal(gpu->gpu.dev, 3);
    assert_int_equal(gpu->gpu.sm, 90);
    assert_string_equal(gpu->gpu.name, "Fake _3_");
    assert_int_equal(gpu->gpu.uuid[0], 0);
    assert_int_equal(gpu->gpu.uuid[15], 3);
    assert_int_equal(pci_at(&machine, "0000:2a:00.0")->pci.device, 0x2330);
    assert_links(&machine, 0, "0000:c7:00.0", 6, RONDO_CLASS_NVSWITCH);
    assert_links(&machine, 0, "0000:c8:00.0", 6, RONDO_CLASS_NVSWITCH);
    assert_links(&machine, 1, "0000:63:00.0", 4, RONDO_CLASS_GPU);
    assert_links(&machine, 2, NULL, 12, RONDO_CLASS_NVSWITCH);
    assert_links(&machine, 3, "0000:2a:00.0", 4, RONDO_CLASS_GPU);
    assert_null(nvlink_of(&machine, 3, rondo_busid_parse("0000:17:00.0"))); /* GPU 0 does not know of it */
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_NVLINK), 7);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_C2C), 2);
    const struct rondo_item *c2c = &machine.item[rondo_machine_nth(&machine, RONDO_ITEM_C2C, 1)];
    assert_int_equal(c2c->c2c.mbs, 44712);
    assert_int_equal(c2c->c2c.count, 9);
    static const uint64_t no_p2p[] = { 4, 0, 1, 0 };
    for (int n = 0; n < 4; n++) {
        gpu = &machine.item[rondo_machine_nth(&machine, RONDO_ITEM_GPU, n)];
        assert_true(gpu->gpu.no_p2p == no_p2p[gpu->gpu.dev]);
    }
    rondo_machine_release(&machine);
    setenv("FAKE_NVML", "1", 1);
    gpus_new(&machine);
    assert_int_equal(rondo_detect_nvml_from(&machine, library), RONDO_SUCCESS);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_GPU), 1);
    assert_says(machine.note, "NVML lists 1 of 3 GPUs");
    rondo_machine_release(&machine);
    setenv("FAKE_NVML", "no driver", 1);
    gpus_new(&machine);
    assert_int_equal(rondo_detect_nvml_from(&machine, library), RONDO_SUCCESS);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_GPU), 3);
    assert_says(machine.note, "NVLinks are unknown");
    rondo_machine_release(&machine);
}

static void without_nvml_only_the_note_changes(void **state)
{
    (void)state;
    struct rondo_machine machine;
    gpus_new(&machine);
    uint64_t before = rondo_machine_hash(&machine);
    assert_int_equal(rondo_detect_nvml_from(&machine, "libno-such-library.so"), RONDO_SUCCESS);
    assert_says(machine.note, "libno-such-library.so is not installed");
    assert_true(rondo_machine_hash(&machine) == before);
    rondo_machine_release(&machine);
    machine_new(&machine);
    assert_int_equal(rondo_detect_nvml_from(&machine, "libno-such-library.so"), RONDO_SUCCESS);
    assert_string_equal(machine.note, "");
    rondo_machine_release(&machine);
}

/* ---- order ---- */

static void order_of_discovery_does_not_matter(void **state)
{
    (void)state;
    static const char *const busid[] = { "0000:17:00.0", "0000:18:00.0", "0000:19:00.0" };
    uint64_t hash = 0;
    for (int first = 0; first < 3; first++) {
        struct rondo_machine machine;
        machine_new(&machine);
        add_pci(&machine, 0, "0000:05:00.0", RONDO_CLASS_NIC, 0x15b3); /* without a port: removed */
        add_pci(&machine, 0, "0000:06:00.0", 0x068000, 0x8086);        /* a chipset's */
        for (int i = 0; i < 3; i++) {
            int at = (i + first) % 3;
            add_gpu(&machine, at == 2, busid[at], 80);
        }
        add(&machine, RONDO_ITEM_CACHE, 1);
        rondo_detect_number_gpus(&machine);
        assert_int_equal(rondo_detect_arrange(&machine, NULL), RONDO_SUCCESS);
        assert_int_equal(machine.nitems, 9);
        assert_int_equal(machine.item[1].pci.busid, rondo_busid_parse(busid[0]));
        assert_int_equal(machine.item[4].gpu.dev, 1);
        assert_true(first == 0 || rondo_machine_hash(&machine) == hash);
        hash = rondo_machine_hash(&machine);
        rondo_machine_release(&machine);
    }
}

/* ---- this host ---- */

static void detecting_this_host_twice_gives_the_same_machine(void **state)
{
    (void)state;
    struct rondo_machine first, second;
    assert_int_equal(rondo_machine_detect(&first, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_machine_detect(&second, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_machine_check(&first), RONDO_SUCCESS);
    assert_true(rondo_machine_count(&first, RONDO_ITEM_CPU) >= 1);
    assert_true(rondo_cores_count(&first.item[0].cpu.cores) >= 1);
    assert_true(first.item[0].cpu.arch >= 0);
    assert_true(rondo_machine_hash(&first) == rondo_machine_hash(&second));
    assert_string_equal(first.note, second.note);
    rondo_machine_release(&first);
    rondo_machine_release(&second);
}

int main(void)
{
    static const char *const hwloc[] = { "HWLOC_SYNTHETIC", "HWLOC_XMLFILE", "HWLOC_FSROOT",
                                         "HWLOC_CPUID_PATH", "HWLOC_THISSYSTEM" };
    for (size_t i = 0; i < RONDO_COUNTOF(hwloc); i++) {
        unsetenv(hwloc[i]);
    }
    setenv("RONDO_DEBUG", "NONE", 1); /* tests check the sentences */
    rondo_log_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_ids_give_the_compute_capability),
        WITH_SYSFS(synthetic_topology_acts),
        WITH_SYSFS(cache_of_several_nodes_is_in_each),
        WITH_SYSFS(what_hwloc_cannot_use_is_said),
        cmocka_unit_test(hwloc_xml_becomes_a_machine),
        WITH_SYSFS(xmlfile_of_the_environment_is_the_same_machine),
        cmocka_unit_test(broken_hwloc_xml_is_refused_with_its_name),
        WITH_SYSFS(flat_tree_gets_sane_links),
        WITH_SYSFS(virtual_machine_with_a_whole_tree_is_believed),
        WITH_SYSFS(providers_description_is_used),
        WITH_SYSFS(nvml_tells_links_and_peers),
        cmocka_unit_test(without_nvml_only_the_note_changes),
        cmocka_unit_test(order_of_discovery_does_not_matter),
        cmocka_unit_test(detecting_this_host_twice_gives_the_same_machine),
    };
    return cmocka_run_group_tests(tests, switch_load, switch_free);
}
