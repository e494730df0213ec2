/* Topology files on disk, and round trips. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <locale.h>
#include <sys/stat.h>
#include "base/param.h"
#include "topo_texts.h"

static void directories_and_unreadable_files_are_refused(void **state)
{
    (void)state;
    struct rondo_machine m = { 0 };
    assert_int_equal(rondo_machine_read(&m, path("missing")), RONDO_INVALID_ARGUMENT);
    assert_says("cannot open ");
    assert_says("missing: No such file");
    assert_int_equal(rondo_machine_read(&m, directory), RONDO_INVALID_ARGUMENT);
    assert_says("is a directory; expected an XML file");
    assert_int_equal(rondo_machine_read(&m, "/dev/zero"), RONDO_INVALID_ARGUMENT);
    assert_says("not a regular file");
    FILE *file = fopen(path("empty"), "we");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(rondo_machine_read(&m, path("empty")), RONDO_INVALID_ARGUMENT);
    assert_says("0 bytes, expected XML");
    assert_int_equal(chmod(path("empty"), 0), 0);
    if (access(path("empty"), R_OK) != 0) { /* root may read everything */
        assert_int_equal(rondo_machine_read(&m, path("empty")), RONDO_INVALID_ARGUMENT);
        assert_says("cannot open ");
        assert_says(": Permission denied");
    }
    /* Larger than the limit, but sparse. */
    assert_int_equal(chmod(path("empty"), 0600), 0);
    assert_int_equal(truncate(path("empty"), RONDO_XML_MAX_BYTES + 1), 0);
    assert_int_equal(rondo_machine_read(&m, path("empty")), RONDO_INVALID_ARGUMENT);
    assert_says("exceeds the limit of 67108864 bytes");
    unlink(path("empty"));
}

/* A user has set a variable, and may not know which file that is. */
static void sentences_about_parameters_files_name_variable_and_path(void **state)
{
    struct rondo_graph graphs[RONDO_NUM_GRAPHS];
    struct rondo_machine m = { 0 };
    char bad[256];
    FILE *file = fopen(path("bad.xml"), "we");
    (void)state;
    assert_non_null(file);
    fprintf(file, "<system>\n<wrong>\n");
    fclose(file);
    snprintf(bad, sizeof bad, "RONDO_TOPO_FILE=%s:", path("bad.xml"));
    setenv("RONDO_TOPO_FILE", path("bad.xml"), 1);
    setenv("RONDO_GRAPH_FILE", "/no/such/graph", 1);
    setenv("RONDO_TOPO_DUMP_FILE", "/no/such/dump", 1);
    assert_ok(rondo_param_reload());
    assert_int_equal(rondo_machine_read(&m, rondo_params()->topo_file), RONDO_INVALID_ARGUMENT);
    assert_says(bad);
    assert_int_equal(rondo_machine_read(&m, path("bad.xml")), RONDO_INVALID_ARGUMENT);
    assert_null(strstr(rondo_error_text(), "RONDO_TOPO_FILE")); /* a tool's argument */
    assert_int_equal(rondo_graphs_read(graphs, NULL, rondo_params()->graph_file), RONDO_INVALID_ARGUMENT);
    assert_says("cannot open RONDO_GRAPH_FILE=/no/such/graph: No such file");
    assert_ok(parse(&m, CPU GPU_A GPU_END END));
    assert_int_equal(rondo_machine_write(&m, rondo_params()->topo_dump_file), RONDO_SYSTEM_ERROR);
    assert_says("cannot write RONDO_TOPO_DUMP_FILE=/no/such/dump: No such file");
    unsetenv("RONDO_TOPO_FILE");
    unsetenv("RONDO_GRAPH_FILE");
    unsetenv("RONDO_TOPO_DUMP_FILE");
    assert_ok(rondo_param_reload());
    rondo_machine_release(&m);
    unlink(path("bad.xml"));
}

static void writing_is_all_or_nothing(void **state)
{
    (void)state;
    struct rondo_machine m, back = { 0 };
    assert_ok(parse(&m, CPU GPU_A GPU_END END));
    for (int i = 0; i < 2; i++) { /* also replaces an older file */
        assert_ok(rondo_machine_write(&m, path("m.xml")));
        assert_int_equal(files_here(), 1);
    }
    assert_ok(rondo_machine_read(&back, path("m.xml")));
    assert_string_equal(back.source, path("m.xml"));
    assert_int_equal(rondo_machine_hash(&back), rondo_machine_hash(&m));
    unlink(path("m.xml"));
    assert_int_equal(rondo_machine_write(&m, path("no/such")), RONDO_SYSTEM_ERROR);
    assert_says("cannot write ");
    assert_says(": No such file");
    assert_ok(rondo_machine_write(&m, "/dev/null")); /* a device is not replaced by a file */
    struct stat st;
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    m.item[0].cpu.numa = -7;
    assert_int_equal(rondo_machine_write(&m, path("m.xml")), RONDO_INVALID_ARGUMENT);
    assert_says("numaid is not an integer");
    assert_int_equal(files_here(), 0);
    rondo_machine_release(&m);
    rondo_machine_release(&back);
}

/* ---- round trips ---- */

/* Every known rule of NCCL's parser. */
static void assert_nccl_reads(const char *text)
{
    assert_int_equal(strncmp(text, "<system ", 8), 0);
    assert_null(strchr(text, '\t'));
    assert_null(strchr(text, '&'));
    for (const char *line = text; *line;) {
        const char *end = strchr(line, '\n');
        assert_non_null(end);
        const char *open = strchr(line, '<');
        assert_true(open && open < end && end[-1] == '>');
        int quotes = 0;
        const char *value = NULL;
        for (const char *c = line; c < end; c++) {
            if (*c == '"') {
                quotes++;
                assert_true(quotes % 2 || c - value <= 255);
                value = c + 1;
            }
        }
        assert_true(quotes / 2 <= 16);
        line = end + 1;
    }
}

static void assert_round_trip(const struct rondo_machine *machine)
{
    char *text, *again, *differences;
    int n;
    struct rondo_machine back = { 0 };
    assert_ok(rondo_machine_text(machine, &text));
    assert_nccl_reads(text);
    assert_ok(rondo_machine_parse(&back, text, strlen(text), "back"));
    assert_int_equal(back.nitems, machine->nitems);
    assert_int_equal(rondo_machine_hash(&back), rondo_machine_hash(machine));
    assert_ok(rondo_machine_diff(machine, &back, &differences, &n));
    if (n) {
        fail_msg("differs: %s", differences);
    }
    assert_ok(rondo_machine_text(&back, &again));
    assert_string_equal(text, again); /* also fields outside the hash */
    free(text);
    free(again);
    free(differences);
    rondo_machine_release(&back);
}

static void a_full_machine_is_read_back(void **state)
{
    (void)state;
    struct rondo_machine m;
    assert_ok(parse(&m, CPU
                    "<cache level=\"3\"/>" GPU_A TO_B(2) "<c2c bw=\"1\" count=\"1\"/>" GPU_END GPU_B TO_A(2)
                        GPU_END "<pci busid=\"0000:20:00.0\" class=\"0x060400\"><pcilink "
                                "target=\"0000:21:00.0\"/></pci><nic><net name=\"a\"/></nic>" END));
    /* Set every field to an allowed value. */
    m.is_virtual = 1;
    snprintf(m.note, sizeof m.note, "virtual machine (kvm): the PCI tree is flat");
    for (int32_t i = 0; i < m.nitems; i++) {
        struct rondo_item *item = &m.item[i];
        switch (item->kind) {
        case RONDO_ITEM_CPU:
            item->cpu.host_hash = UINT64_MAX;
            item->cpu.package = 3;
            item->cpu.vendor = RONDO_VENDOR_ZHAOXIN2;
            memset(&item->cpu.cores, 0xff, sizeof item->cpu.cores);
            break;
        case RONDO_ITEM_PCI:
            item->pci.vendor = item->pci.device = item->pci.subsystem_vendor = item->pci.subsystem_device =
                0xffff;
            item->pci.speed = 1280;
            item->pci.width = 32;
            break;
        case RONDO_ITEM_GPU:
            item->gpu.sm = 103;
            item->gpu.rank = INT32_MAX;
            item->gpu.gdr = 0;
            item->gpu.no_p2p = UINT64_MAX;
            memset(item->gpu.uuid, 0xa5, sizeof item->gpu.uuid);
            memset(item->gpu.name, '~', RONDO_MACHINE_NAME - 1);
            break;
        case RONDO_ITEM_NET:
            memset(item->net.name, 'n', RONDO_MACHINE_NAME - 1);
            item->net.dev = 65535;
            item->net.mbps = 800000000;
            item->net.port = 1;
            item->net.guid = UINT64_MAX;
            item->net.gdr = item->net.coll = item->net.keep = item->net.rail = item->net.plane = 1;
            item->net.maxconn = INT32_MAX;
            item->net.latency = 1.0 / 3;
            break;
        case RONDO_ITEM_CACHE:
            item->cache.bytes = INT64_C(1) << 50;
            item->cache.cores.bits[15] = UINT64_C(1) << 63;
            break;
        default: break;
        }
    }
    assert_round_trip(&m);
    char *text;
    assert_ok(rondo_machine_text(&m, &text));
    assert_non_null(strstr(text, "virtual=\"1\" note=\"virtual machine (kvm): the PCI tree is flat\""));
    free(text);
    /* A foreign note cannot break the file. */
    snprintf(m.note, sizeof m.note, "a \"b\" <c> &d;\n\t%s", "e");
    assert_ok(rondo_machine_text(&m, &text));
    assert_non_null(strstr(text, "note=\"a  b   c   d;  e\""));
    assert_nccl_reads(text);
    free(text);
    rondo_machine_release(&m);
}

static void written_machines_are_read_back(void **state)
{
    (void)state;
    char name[512];
    int n = 0;
    const char *srcdir = getenv("srcdir");
    snprintf(name, sizeof name, "%s/mpi-tests/unit/machines", srcdir ? srcdir : ".");
    DIR *dir = opendir(name);
    if (!dir) {
        skip();
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name);
        if (length > 4 && strcmp(entry->d_name + length - 4, ".xml") == 0) {
            struct rondo_machine m = { 0 };
            snprintf(name, sizeof name, "%s/mpi-tests/unit/machines/%.200s", srcdir ? srcdir : ".",
                     entry->d_name);
            assert_ok(rondo_machine_read(&m, name));
            assert_round_trip(&m);
            rondo_machine_release(&m);
            n++;
        }
    }
    closedir(dir);
    assert_true(n > 20);
}

/* Items in an arbitrary order of discovery. */
static void any_order_of_items_is_written_as_a_tree(void **state)
{
    (void)state;
    struct rondo_machine m = { 0 };
    int32_t a, b, pci, nic, net;
    assert_ok(rondo_machine_add(&m, RONDO_ITEM_CPU, -1, &a));
    assert_ok(rondo_machine_add(&m, RONDO_ITEM_CPU, -1, &b));
    m.item[b].cpu.numa = 1;
    assert_ok(rondo_machine_add(&m, RONDO_ITEM_NIC, b, &nic));
    assert_ok(rondo_machine_add(&m, RONDO_ITEM_PCI, a, &pci));
    m.item[pci].pci.busid = 0x17000;
    assert_ok(rondo_machine_add(&m, RONDO_ITEM_NET, nic, &net));
    m.item[net].net.name[0] = 'e';
    assert_round_trip(&m);
    rondo_machine_release(&m);
}

static void the_locale_does_not_matter(void **state)
{
    (void)state;
    static const char *const names[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8" };
    for (size_t i = 0; i < RONDO_COUNTOF(names); i++) {
        if (setlocale(LC_ALL, names[i])) {
            struct rondo_machine m;
            assert_ok(parse(&m, CPU "<nic><net name=\"a\" latency=\"2.75\"/></nic>" END));
            assert_true(item_at(&m, RONDO_ITEM_NET, 0)->net.latency == 2.75);
            assert_round_trip(&m);
            rondo_machine_release(&m);
        }
    }
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(directories_and_unreadable_files_are_refused),
        cmocka_unit_test(sentences_about_parameters_files_name_variable_and_path),
        cmocka_unit_test(writing_is_all_or_nothing),
        cmocka_unit_test(a_full_machine_is_read_back),
        cmocka_unit_test(written_machines_are_read_back),
        cmocka_unit_test(any_order_of_items_is_written_as_a_tree),
        cmocka_unit_test(the_locale_does_not_matter),
    };
    return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
