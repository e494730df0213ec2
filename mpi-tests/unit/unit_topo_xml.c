/* Topology files: how they are read, and the errors for those that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <hwloc.h>
#include "topo_texts.h"
#include "topo/xml/xml_read.h"

/* ---- reading ---- */

static const char all_fields[] =
    "<system version=\"1\">\n"
    "  <cpu host_hash=\"0xabc\" numaid=\"1\" affinity=\"0000000f,000000ff\" arch=\"x86_64\" "
    "vendor=\"GenuineIntel\" familyid=\"6\" "
    "modelid=\"143\" "
    "package=\"1\">\n"
    "    <cache level=\"3\" size=\"33554432\" affinity=\"f\"/>\n"
    "    <pci busid=\"0000:10:00.0\" class=\"0x060400\" vendor=\"0x1000\" device=\"0xc010\" "
    "subsystem_vendor=\"0x1000\" "
    "subsystem_device=\"0xa096\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
    "      <pcilink target=\"0000:11:00.0\"/>\n"
    "      <pci busid=\"0000:17:00.0\" class=\"0x030200\" vendor=\"0x10de\" link_speed=\"8 GT/s\" "
    "link_width=\"8\">\n"
    "        <gpu dev=\"3\" sm=\"90\" rank=\"7\" gdr=\"1\" nop2p=\"0x5\" "
    "uuid=\"GPU-00112233-4455-6677-8899-aabbccddeeff\" "
    "name=\"H100\">\n"
    "          <nvlink target=\"fffffff:ffff:ff\" count=\"18\" tclass=\"0x068000\"/>\n"
    "          <c2c bw=\"44712\" count=\"5\"/>\n"
    "        </gpu>\n"
    "      </pci>\n"
    "    </pci>\n"
    "    <nic>\n"
    "      <net name=\"mlx5_0\" dev=\"2\" latency=\"1.25\" speed=\"400000\" port=\"1\" rail=\"2\" "
    "plane=\"1\" "
    "guid=\"0xfedcba9876543210\" "
    "maxconn=\"131072\" gdr=\"0\" coll=\"1\" keep=\"1\"/>\n"
    "    </nic>\n"
    "  </cpu>\n"
    "</system>\n";

static void check_places(const struct rondo_machine *m)
{
    const struct rondo_item *cpu = item_at(m, RONDO_ITEM_CPU, 0), *cache = item_at(m, RONDO_ITEM_CACHE, 0);
    assert_int_equal(cpu->cpu.host_hash, 0xabc);
    assert_int_equal(cpu->cpu.numa, 1);
    assert_int_equal(cpu->cpu.cores.bits[0], 0xf000000ffull);
    assert_int_equal(cpu->cpu.arch, RONDO_ARCH_X86);
    assert_int_equal(cpu->cpu.vendor, RONDO_VENDOR_INTEL);
    assert_int_equal(cpu->cpu.family, 6);
    assert_int_equal(cpu->cpu.model, 143);
    assert_int_equal(cpu->cpu.package, 1);
    assert_int_equal(cache->cache.level, 3);
    assert_int_equal(cache->cache.bytes, 33554432);
    assert_int_equal(cache->cache.cores.bits[0], 0xf);
    const struct rondo_item *bridge = item_at(m, RONDO_ITEM_PCI, 0), *pci = item_at(m, RONDO_ITEM_PCI, 1);
    assert_int_equal(bridge->pci.busid, 0x10000);
    assert_int_equal(bridge->pci.class_code, 0x060400);
    assert_int_equal(bridge->pci.vendor, 0x1000);
    assert_int_equal(bridge->pci.device, 0xc010);
    assert_int_equal(bridge->pci.subsystem_vendor, 0x1000);
    assert_int_equal(bridge->pci.subsystem_device, 0xa096);
    assert_int_equal(bridge->pci.speed, 320);
    assert_int_equal(bridge->pci.width, 16);
    assert_int_equal(pci->pci.speed, 80);
    assert_int_equal(item_at(m, RONDO_ITEM_PCILINK, 0)->pcilink.target, 0x11000);
}

static void check_devices(const struct rondo_machine *m)
{
    const struct rondo_item *gpu = item_at(m, RONDO_ITEM_GPU, 0), *net = item_at(m, RONDO_ITEM_NET, 0);
    assert_int_equal(gpu->gpu.dev, 3);
    assert_int_equal(gpu->gpu.sm, 90);
    assert_int_equal(gpu->gpu.rank, 7);
    assert_int_equal(gpu->gpu.gdr, 1);
    assert_int_equal(gpu->gpu.no_p2p, 5);
    assert_int_equal(gpu->gpu.uuid[1], 0x11);
    assert_int_equal(gpu->gpu.uuid[15], 0xff);
    assert_string_equal(gpu->gpu.name, "H100");
    assert_int_equal(item_at(m, RONDO_ITEM_NVLINK, 0)->nvlink.target, RONDO_BUSID_HIDDEN);
    assert_int_equal(item_at(m, RONDO_ITEM_NVLINK, 0)->nvlink.count, 18);
    assert_int_equal(item_at(m, RONDO_ITEM_NVLINK, 0)->nvlink.tclass, 0x068000);
    assert_int_equal(item_at(m, RONDO_ITEM_C2C, 0)->c2c.mbs, 44712);
    assert_int_equal(item_at(m, RONDO_ITEM_C2C, 0)->c2c.count, 5);
    assert_string_equal(net->net.name, "mlx5_0");
    assert_int_equal(net->net.dev, 2);
    assert_true(net->net.latency == 1.25);
    assert_int_equal(net->net.mbps, 400000);
    assert_int_equal(net->net.port, 1);
    assert_int_equal(net->net.rail, 2);
    assert_int_equal(net->net.plane, 1);
    assert_true(net->net.guid == 0xfedcba9876543210ull);
    assert_int_equal(net->net.maxconn, 131072);
    assert_int_equal(net->net.gdr, 0);
    assert_int_equal(net->net.coll, 1);
    assert_int_equal(net->net.keep, 1);
}

static void all_fields_are_read(void **state)
{
    struct rondo_machine m;
    (void)state;
    assert_ok(parse(&m, all_fields));
    assert_string_equal(m.source, "m.xml");
    check_places(&m);
    check_devices(&m);
    rondo_machine_release(&m);
}

/* NCCL's parser fails here, or silently misreads a value. */
static void values_that_nccl_misreads_are_read_correctly(void **state)
{
    (void)state;
    static const struct {
        const char *speed;
        int want;
    } speeds[] = { { "16 GT/s", 160 }, { "16.0 GT/s PCIe", 160 }, { "16.0 GT/s", 160 }, { "16GT/s", 160 },
                   { "", 0 },          { "Unknown", 0 } };
    struct rondo_machine m;
    char text[1024];
    for (size_t i = 0; i < RONDO_COUNTOF(speeds); i++) {
        snprintf(text, sizeof text,
                 CPU "<pci busid=\"0000:17:00.0\" class=\"0x060400\" link_speed=\"%s\" link_width=\"\"/>" END,
                 speeds[i].speed);
        assert_ok(parse(&m, text));
        assert_int_equal(item_at(&m, RONDO_ITEM_PCI, 0)->pci.speed, speeds[i].want);
        assert_int_equal(item_at(&m, RONDO_ITEM_PCI, 0)->pci.width, 0);
        rondo_machine_release(&m);
    }
    assert_ok(parse(&m, "<?xml version=\"1.0\"?>\n<!-- comment --><system\tversion='1'>\n\t<cpu\n\t "
                        "numaid=\"-1\"\n>\n\t</cpu>\n</system>"));
    assert_int_equal(item_at(&m, RONDO_ITEM_CPU, 0)->cpu.numa, -1);
    rondo_machine_release(&m);
    /* Classes with and without 0x, short and upper case; unknown elements and attributes; defaults. */
    assert_ok(
        parse(&m, CPU
              "<pci busid=\"0000:17:00.0\" class=\"030200\" colour=\"blue\"><gpu/><thing><gpu/></thing></pci>"
              "<pci busid=\"0000:18:00.0\" class=\"0x03\"><gpu dev=\"1\"/></pci><what><cpu/></what>"
              "<nic><net name=\"a\"/><net/></nic>" END));
    assert_int_equal(rondo_machine_count(&m, RONDO_ITEM_GPU), 2);
    assert_int_equal(item_at(&m, RONDO_ITEM_PCI, 0)->pci.class_code, 0x030200);
    assert_int_equal(item_at(&m, RONDO_ITEM_PCI, 1)->pci.class_code, 0x030000);
    assert_int_equal(item_at(&m, RONDO_ITEM_GPU, 0)->gpu.dev, 0);
    assert_int_equal(item_at(&m, RONDO_ITEM_GPU, 1)->gpu.dev, 1);
    assert_int_equal(item_at(&m, RONDO_ITEM_NET, 1)->net.dev, 1);
    assert_string_equal(item_at(&m, RONDO_ITEM_NET, 1)->net.name, "net1");
    rondo_machine_release(&m);
    assert_ok(parse(
        &m,
        "<system version=\"1\"><cpu numaid=\"0\" arch=\"riscv\" vendor=\"Other\" familyid=\"\"/></system>"));
    assert_int_equal(item_at(&m, RONDO_ITEM_CPU, 0)->cpu.arch, -1);
    assert_int_equal(item_at(&m, RONDO_ITEM_CPU, 0)->cpu.vendor, -1);
    rondo_machine_release(&m);
}

/* ASCII and U+1F600 in UTF-16. @return bytes. */
static size_t wide_text(char *wide, const char *text, int big, int mark)
{
    static const uint16_t face[] = { 0xd83d, 0xde00 };
    size_t n = 0;
    for (int i = mark ? -1 : 0; i < 0 || text[i]; i++) {
        int smile = i >= 0 && text[i] == '@';
        for (int half = 0; half <= smile; half++) {
            unsigned unit = i < 0 ? 0xfeff : smile ? face[half] : (unsigned char)text[i];
            wide[n++] = (char)(big ? unit >> 8 : unit);
            wide[n++] = (char)(big ? unit : unit >> 8);
        }
    }
    return n;
}

static void utf8_and_utf16_are_read_others_refused(void **state)
{
    (void)state;
    struct rondo_machine m = { 0 };
    char wide[512];
    assert_ok(parse(&m, "\xef\xbb\xbf<!-- \xc3\xa9 --><system version=\"1\"><cpu numaid=\"5\"/></system>"));
    assert_int_equal(item_at(&m, RONDO_ITEM_CPU, 0)->cpu.numa, 5);
    for (int kind = 0; kind < 4; kind++) {
        size_t n = wide_text(wide,
                             "<?xml version=\"1.0\" encoding=\"utf-16\"?><!-- @ --><system "
                             "version=\"1\"><cpu numaid=\"5\"/></system>",
                             kind % 2, kind / 2);
        assert_ok(rondo_machine_parse(&m, wide, n, "wide"));
        assert_int_equal(item_at(&m, RONDO_ITEM_CPU, 0)->cpu.numa, 5);
        rondo_machine_release(&m);
        assert_int_equal(rondo_machine_parse(&m, wide, n - 1, "wide"), RONDO_INVALID_ARGUMENT);
        assert_says("wide: damaged or truncated UTF-16");
    }
    /* A declared encoding is ignored: no file makes iconv load a module. */
    assert_ok(parse(
        &m, "<?xml version=\"1.0\" encoding=\"utf-7\"?><system version=\"1\"><cpu numaid=\"5\"/></system>"));
    rondo_machine_release(&m);
    static const char *const bad[] = {
        "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?><!-- \xe9 --><system version=\"1\"/>",
        "<system version=\"1\" note=\"\xff\xfe\"/>", "<system version=\"1\" note=\"\xed\xa0\x80\"/>"
    };
    for (size_t i = 0; i < RONDO_COUNTOF(bad); i++) {
        assert_int_equal(parse(&m, bad[i]), RONDO_INVALID_ARGUMENT);
        assert_says("m.xml:1: a byte that is not text; expected UTF-8 or UTF-16");
    }
    assert_int_equal(parse(&m, "\x4c\x6f\xa7\x94"), RONDO_INVALID_ARGUMENT); /* <?xm in EBCDIC */
    assert_says("m.xml:1: not XML; expected UTF-8 or UTF-16 text that starts with <");
    assert_int_equal(rondo_machine_parse(&m, "\0\0\0<", 4, "m.xml"), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_machine_parse(&m, "<\0\0\0", 4, "m.xml"), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_machine_parse(&m, "\xef\xbb\xbf<\0\0\0", 7, "m.xml"), RONDO_INVALID_ARGUMENT);
    assert_says("without NUL bytes");
    assert_int_equal(rondo_machine_parse(&m, "\xef\xbb\xbf", 3, "m.xml"), RONDO_INVALID_ARGUMENT);
}

static void hwloc_files_are_recognized_by_their_root(void **state)
{
    (void)state;
    hwloc_topology_t topology;
    char *text;
    int bytes;
    struct rondo_machine m = { 0 };
    assert_int_equal(hwloc_topology_init(&topology), 0);
    assert_int_equal(hwloc_topology_set_synthetic(topology, "numa:2 core:3 pu:1"), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    assert_int_equal(hwloc_topology_export_xmlbuffer(topology, &text, &bytes, 0), 0);
    assert_non_null(strstr(text, "<!DOCTYPE topology"));
    assert_ok(rondo_machine_parse(&m, text, strlen(text), "h.xml"));
    assert_int_equal(rondo_machine_count(&m, RONDO_ITEM_CPU), 2);
    assert_string_equal(m.source, "h.xml");
    /* hwloc would follow the declaration. */
    char *place = strstr(text, "UTF-8");
    assert_true(place && place < strstr(text, "?>"));
    memcpy(place, "UTF-7", 5);
    assert_int_equal(rondo_machine_parse(&m, text, strlen(text), "h.xml"), RONDO_INVALID_ARGUMENT);
    assert_says("must be UTF-8");
    hwloc_free_xmlbuffer(topology, text);
    hwloc_topology_destroy(topology);
    rondo_machine_release(&m);
}

/* ---- NVLinks ---- */

static void nvlinks_become_symmetric(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int count;
    } all[] = {
        { CPU GPU_A TO_B(4) GPU_END GPU_B TO_A(4) GPU_END END, 4 },
        { CPU GPU_A TO_B(4) GPU_END GPU_B TO_A(2) GPU_END END, 2 }, /* the smaller */
        { CPU GPU_A TO_B(1) GPU_END GPU_B TO_A(3) GPU_END END, 1 },
        { CPU GPU_A TO_B(4) GPU_END GPU_B GPU_END END, 4 }, /* the other direction is added */
        { CPU GPU_A GPU_END GPU_B TO_A(3) GPU_END END, 3 },
        { CPU GPU_A TO_B(1) TO_B(1) GPU_END GPU_B TO_A(2) GPU_END END, 2 }, /* one element per link */
        { CPU GPU_A TO_B(1) TO_B(1) GPU_END GPU_B GPU_END END, 2 },
    };
    for (size_t i = 0; i < RONDO_COUNTOF(all); i++) {
        struct rondo_machine m, straight;
        assert_ok(parse(&m, all[i].text));
        assert_int_equal(rondo_machine_count(&m, RONDO_ITEM_NVLINK), 2);
        for (int link = 0; link < 2; link++) {
            const struct rondo_item *item = item_at(&m, RONDO_ITEM_NVLINK, link);
            assert_int_equal(item->nvlink.count, all[i].count);
            assert_int_equal(item->nvlink.tclass, 0x030200);
            assert_int_equal(item->parent, rondo_machine_nth(&m, RONDO_ITEM_GPU, link));
        }
        assert_ok(rondo_machine_check(&m));
        assert_ok(parse(&straight, all[0].text));
        assert_int_equal(rondo_machine_hash(&m) == rondo_machine_hash(&straight), all[i].count == 4);
        rondo_machine_release(&m);
        rondo_machine_release(&straight);
    }
    struct rondo_machine m;
    assert_int_equal(parse(&m, CPU GPU_A "\n" TO_B(1000) "\n" TO_B(100) GPU_END GPU_B GPU_END END),
                     RONDO_INVALID_ARGUMENT);
    assert_says("m.xml:5: more than 1024 NVLinks to one target in total");
}

/* ---- errors ---- */

static const struct {
    const char *text, *part;
} refused[] = {
    { "<system version=\"2\"/>", "m.xml:1: <system version=\"2\">: expected version=\"1\"" },
    { "<system/>", "m.xml:1: <system>: expected version=\"1\"" },
    { "<system version=\"1\"/>", "m.xml: the machine has no <cpu>" },
    { "<graphs version=\"1\"/>",
      "m.xml:1: <graphs>: not a machine; expected a root element <system version=\"1\">" },
    { "<html>\n</html>", "m.xml:1: <html>: not a machine" },
    { "<system version=\"1\" virtual=\"2\"/>", "virtual=\"2\">: expected 0 or 1" },
    { "<system version=\"1\">\n<cpu/></system>", "m.xml:2: <cpu>: the attribute numaid is missing" },
    { "<system version=\"1\">\n<cpu numaid=\"x\"/></system>",
      "m.xml:2: <cpu numaid=\"x\">: expected an integer from -1 to 65535" },
    { "<system version=\"1\">\n<cpu numaid=\"0\" affinity=\"0,zz\"/></system>",
      "affinity=\"0,zz\">: expected hexadecimal words" },
    { "<system version=\"1\">\n<cpu numaid=\"0\" affinity=\"123456789\"/></system>",
      "expected hexadecimal words of at most 8 digits" },
    { "<system version=\"1\">\n<gpu/></system>",
      "m.xml:2: <gpu>: a machine cannot have a gpu below the top" },
    { CPU "<gpu/>" END, "m.xml:3: <gpu>: a machine cannot have a gpu below cpu" },
    { CPU "<cpu numaid=\"1\"/>" END, "a machine cannot have a cpu below cpu" },
    { CPU "<pci class=\"0x03\"/>" END, "m.xml:3: <pci>: the attribute busid is missing" },
    { CPU "<pci busid=\"0000:17:00.0\"/>" END, "m.xml:3: <pci>: the attribute class is missing" },
    { CPU "<pci busid=\"17\" class=\"0x03\"/>" END,
      "<pci busid=\"17\">: expected a PCI address like 0000:17:00.0" },
    { CPU "<pci busid=\"fffffff:ffff:ff\" class=\"0x03\"/>" END, "expected a PCI address like 0000:17:00.0" },
    { CPU "<pci busid=\"0000:17:00.0\" class=\"0x03020000\"/>" END,
      "class=\"0x03020000\">: expected a hexadecimal number up to 0xffffff" },
    { CPU "<pci busid=\"0000:17:00.0\" class=\"0x03\" link_speed=\"NaN\"/>" END,
      "link_speed=\"NaN\">: expected a speed like \"16 GT/s\"" },
    { CPU "<pci busid=\"0000:17:00.0\" class=\"0x03\" link_speed=\"1000000000 GT/s\"/>" END,
      "expected a speed like" },
    { CPU "<pci busid=\"0000:17:00.0\" class=\"0x03\" link_speed=\"-8 GT/s\"/>" END,
      "expected a speed like" },
    { CPU "<pci busid=\"0000:17:00.0\" class=\"0x03\" link_width=\"-1\"/>" END,
      "link_width=\"-1\">: expected an integer from 0 to 64" },
    { CPU "<pci busid=\"0000:17:00.0\" class=\"0x03\" vendor=\"0x10000\"/>" END,
      "expected a hexadecimal number up to 0xffff" },
    { CPU PCI("0000:17:00.0", "0x03") "</pci>\n" PCI("0000:17:00.0", "0x03") "</pci>" END,
      "m.xml:4: PCI 0000:17:00.0: it appears twice" },
    { CPU "</cpu>\n<cpu numaid=\"0\">" END, "m.xml:4: NUMA node 0: it appears twice" },
    { CPU GPU_A "<nvlink target=\"0000:18:00.0\"/>" GPU_END END,
      "m.xml:3: <nvlink>: the attribute count is missing" },
    { CPU GPU_A "<nvlink target=\"x\" count=\"1\"/>" GPU_END END, "or fffffff:ffff:ff for a hidden one" },
    { CPU GPU_A TO_B(0) GPU_END END, "count=\"0\">: expected an integer from 1 to 1024" },
    { CPU GPU_A TO_A(1) GPU_END END,
      "m.xml:3: NVLink 0000:17:00.0 to 0000:17:00.0: the link leads to its own device" },
    { CPU GPU_A TO_B(1) GPU_END PCI("0000:18:00.0", "0x0604") "</pci>" END,
      "the target is a device of class 0x060400" },
    { CPU GPU_A "<c2c bw=\"1000000000\" count=\"1\"/>" GPU_END END,
      "<c2c bw=\"1000000000\">: expected an integer from 1 to 100000000" },
    { CPU GPU_A "<c2c bw=\"NaN\" count=\"1\"/>" GPU_END END, "<c2c bw=\"NaN\">: expected an integer" },
    { CPU GPU_A "<c2c bw=\"-1\" count=\"1\"/>" GPU_END END, "expected an integer" },
    { CPU GPU_A "<c2c bw=\"1e9\" count=\"1\"/>" GPU_END END, "expected an integer" },
    { CPU GPU_A "<c2c bw=\"99999999999999999999\" count=\"1\"/>" GPU_END END, "expected an integer" },
    { CPU GPU_A "<c2c bw=\"100000000\" count=\"1024\"/>" GPU_END END,
      "C2C 0000:17:00.0: bw x count is 102400000000 MB/s" },
    { CPU "<nic><net name=\"a\" speed=\"1000000000\"/></nic>" END,
      "<net speed=\"1000000000\">: expected an integer from -1 to 800000000" },
    { CPU "<nic><net name=\"a\" latency=\"nan\"/></nic>" END,
      "<net latency=\"nan\">: expected a number from 0 to 1000000" },
    { CPU "<nic><net name=\"a\" latency=\"-1\"/></nic>" END, "expected a number from 0" },
    { CPU "<nic><net name=\"a\" latency=\"1e400\"/></nic>" END, "expected a number from 0" },
    { CPU "<nic><net name=\"a\" guid=\"0x12345678123456789\"/></nic>" END,
      "expected a hexadecimal number up to 0xffffffffffffffff" },
    { CPU "<nic><net name=\"a&lt;b\"/></nic>" END, "expected a name of at most 63" },
    { CPU GPU_A GPU_END
      "<nic><net name=\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"/></nic>" END,
      "expected a name of at most 63" },
    { CPU PCI("0000:17:00.0", "0x03") "<gpu uuid=\"GPU-12\"/></pci>" END, "expected a UUID of 32" },
    { CPU PCI("0000:17:00.0", "0x02") "\n<gpu/></pci>" END,
      "m.xml:4: GPU 0000:17:00.0: its PCI device is of class 0x020000" },
    { CPU "<cache level=\"0\"/>" END, "<cache level=\"0\">: expected an integer from 1 to 9" },
    { CPU "<cache level=\"3\" size=\"-1\"/>" END, "expected an integer from 0" },
    /* not well-formed */
    { CPU, "m.xml:2: the file is truncated inside 2 open elements" },
    { "<system version=\"1\"><cpu numaid=\"0\"></system>",
      "m.xml:1: not well-formed XML: Opening and ending tag mismatch" },
    { "<system version=\"1\">\n\n<cpu numaid=0/></system>", "m.xml:3: not well-formed XML" },
    { "<system version=\"1\"><cpu numaid=\"0\" numaid=\"1\"/></system>",
      "not well-formed XML: Attribute numaid redefined" },
    { CPU END "<system/>", "not well-formed XML: Extra content" },
    { "not XML", "m.xml:1: not XML; expected UTF-8 or UTF-16 text that starts with <" },
    { CPU "&undefined;" END, "not well-formed XML" },
    { CPU "\x01" END, "m.xml:3: a byte that is not text" },
    { "", "m.xml: 0 bytes, expected XML" },
};

static void errors_name_file_line_and_element(void **state)
{
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(refused); i++) {
        struct rondo_machine m;
        rondo_error_clear();
        if (parse(&m, refused[i].text) != RONDO_INVALID_ARGUMENT) {
            fail_msg("not refused: %s", refused[i].text);
        }
        assert_says(refused[i].part);
        assert_null(m.item);
        assert_int_equal(m.nitems, 0);
    }
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    static const char text[] = CPU GPU_A TO_B(4) GPU_END GPU_B TO_A(4) GPU_END
        "<nic><net name=\"mlx5_0\" speed=\"100000\"/></nic>" END;
    struct rondo_machine m = { 0 };
    for (size_t n = 0; n < sizeof text - 1; n++) {
        assert_int_equal(rondo_machine_parse(&m, text, n, "cut"), RONDO_INVALID_ARGUMENT);
        assert_null(m.item);
    }
    assert_ok(rondo_machine_parse(&m, text, sizeof text - 1, "whole"));
    rondo_machine_release(&m);
}

static void documents_with_dtds_are_refused(void **state)
{
    (void)state;
    static const char *const all[] = {
        "<!DOCTYPE system><system version=\"1\"><cpu numaid=\"0\"/></system>",
        "<!DOCTYPE system SYSTEM \"file:///etc/passwd\"><system version=\"1\"><cpu numaid=\"0\"/></system>",
        "<!DOCTYPE system [<!ENTITY a SYSTEM \"file:///etc/passwd\">]><system version=\"1\"><cpu "
        "numaid=\"0\">&a;</cpu></system>",
        "<!DOCTYPE system [<!ENTITY a \"0\">]><system version=\"1\"><cpu numaid=\"&a;\"/></system>",
        "<!DOCTYPE system [<!ENTITY % p SYSTEM \"http://localhost/x\"> %p;]><system version=\"1\"><cpu "
        "numaid=\"0\"/></system>",
        "<?xml version=\"1.0\"?>\n<!DOCTYPE b [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b "
        "\"&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;\">"
        "<!ENTITY c \"&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;\"><!ENTITY d \"&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;\">]>"
        "<system version=\"1\"><cpu numaid=\"&d;\"/></system>",
        /* hwloc's DOCTYPE does not get around this */
        "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\"><system version=\"1\"><cpu numaid=\"0\"/></system>",
        "<!DOCTYPE topology [<!ENTITY a \"0\">]><topology version=\"2.0\">&a;</topology>",
        "<!DOCTYPE topology [<!ATTLIST object type CDATA \"Machine\">]><topology version=\"2.0\"/>",
        "<!DOCTYPE topology [<!ELEMENT topology EMPTY>]><topology version=\"2.0\"/>",
        "<!DOCTYPE topology [<!NOTATION n SYSTEM \"n\"><!ENTITY u SYSTEM \"u\" NDATA n>]><topology "
        "version=\"2.0\"/>",
    };
    for (size_t i = 0; i < RONDO_COUNTOF(all); i++) {
        struct rondo_machine m;
        rondo_error_clear();
        assert_int_equal(parse(&m, all[i]), RONDO_INVALID_ARGUMENT);
        assert_says("documents with a DTD or entities are not supported");
        assert_says("m.xml:");
    }
    struct rondo_machine m;
    assert_int_equal(parse(&m, CPU "<nic><net name=\"&#97;&amp;\" colour=\"&quot;\"/></nic>" END),
                     RONDO_INVALID_ARGUMENT);
    assert_says("expected a name"); /* XML's five entities are decoded before the value is checked */
}

static void sizes_are_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *head, *middle;
        int n;
        const char *tail, *part;
    } all[] = {
        { CPU, "<pci busid=\"0000:17:00.0\" class=\"0x060400\"/>\n", 1000000, END,
          "more than the limit of 65536 elements" },
        { CPU, "<x/>", 1000000, END, "more than the limit of 65536 elements" },
        { CPU, "<pci busid=\"0000:17:00.0\" class=\"0x060400\">", 100000, "",
          "m.xml:3: elements nested deeper than the limit of 64" },
        { CPU, "<x>", 100000, "", "elements nested deeper than the limit of 64" },
        { CPU "<x a=\"", "0123456789", 100000, "\"/>" END,
          "a tag or comment exceeds the limit of 65536 bytes" },
        { CPU "<x ", "a=\">\" ", 100000, "/>" END, "" /* redefined, or too long: depends on the parser */ },
        { CPU "<!--", "0123456789", 100000, "-->" END, "a tag or comment exceeds the limit of 65536 bytes" },
        { "<!DOCTYPE topology [", "          ", 100000, "]>",
          "a tag or comment exceeds the limit of 65536 bytes" },
        { CPU "<", "x", 100000, "/>" END, "a tag or comment exceeds the limit of 65536 bytes" },
        { "", "<", 100000, "", "" },
        { "<topology version=\"2.0\">", "<object type=\"Misc\">", 100000, "",
          "elements nested deeper than the limit of 64" },
        { "<topology version=\"2.0\">", "<info/>", 1000000, "</topology>",
          "more than the limit of 65536 elements" },
        { "<system version=\"1\">", "<cpu numaid=\"0\"/>", 1025, "</system>",
          "more than 1024 items of kind cpu" },
        { CPU PCI("0000:17:00.0", "0x03"), "<gpu/>", 1025, "</pci>" END, "more than 1024 items of kind gpu" },
        { CPU "<nic>", "<net/>", 1025, "</nic>" END, "more than 1024 items of kind net" },
        { "", "          ", (RONDO_XML_MAX_BYTES + 10) / 10, "", "bytes, expected XML of 1 to" },
    };
    for (size_t i = 0; i < RONDO_COUNTOF(all); i++) {
        size_t bytes;
        char *text = repeat(all[i].head, all[i].middle, all[i].n, all[i].tail, &bytes);
        struct rondo_machine m = { 0 };
        rondo_error_clear();
        assert_int_equal(rondo_machine_parse(&m, text, bytes, "m.xml"), RONDO_INVALID_ARGUMENT);
        assert_says(all[i].part);
        rondo_free(text);
    }
}

static void attributes_are_bounded(void **state)
{
    (void)state;
    char text[4096];
    struct rondo_machine m;
    for (int n = 63; n <= 65; n++) {
        for (int spaces = 0; spaces < 2; spaces++) {
            int at = snprintf(text, sizeof text, CPU "<x");
            for (int i = 0; i < n; i++) {
                at += snprintf(text + at, sizeof text - (size_t)at, " %s%d=\"v\"", spaces ? "xmlns:a" : "a",
                               i);
            }
            snprintf(text + at, sizeof text - (size_t)at, "/>" END);
            assert_int_equal(parse(&m, text), n <= 64 ? RONDO_SUCCESS : RONDO_INVALID_ARGUMENT);
            rondo_machine_release(&m);
        }
    }
    assert_says("an element has 65 attributes; at most 64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_fields_are_read),
        cmocka_unit_test(values_that_nccl_misreads_are_read_correctly),
        cmocka_unit_test(utf8_and_utf16_are_read_others_refused),
        cmocka_unit_test(hwloc_files_are_recognized_by_their_root),
        cmocka_unit_test(nvlinks_become_symmetric),
        cmocka_unit_test(errors_name_file_line_and_element),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(documents_with_dtds_are_refused),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(attributes_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
