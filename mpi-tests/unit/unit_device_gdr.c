/* Communicators with a GPU whose data cross a NIC by GPUDirect: the fake CUDA driver's kernels,
 * fake_verbs.h's NICs, a machine from a file; and the thread that carries the data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <sys/stat.h>
#include <unistd.h>

#include "base/cores.h"
#include "comm/comm.h"
#include "gpu/device.h"
#include "device_world.h"
#include "fake_verbs.h"
#include "net/transport/transport_net.h"
#include "init/node.h"

static char directory[] = "/tmp/unit_device_gdr.XXXXXX", machine[64];
static int near_core;

static void write_file(const char *name, const char *text)
{
    char path[128];
    FILE *file;
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Two of the fake driver's GPUs and the NIC, all under one switch. */
static const char machine_text[] =
    "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ffffffff\" arch=\"x86_64\" vendor=\"GenuineIntel\" "
    "familyid=\"6\" modelid=\"207\">"
    "<pci busid=\"0000:10:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">"
    "<pci busid=\"0000:17:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu "
    "dev=\"0\" sm=\"90\"/></pci>"
    "<pci busid=\"0000:27:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu "
    "dev=\"1\" sm=\"90\"/></pci>"
    "<pci busid=\"0000:11:00.0\" class=\"0x020700\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><nic>"
    "<net name=\"fake0\" dev=\"0\" speed=\"400000\" port=\"2\" guid=\"0x1\" maxconn=\"131072\"/></nic></pci>"
    "</pci></cpu></system>\n";

static void use(const char *parameter, const char *value)
{
    fake_params(SMALL, "MAX_NCHANNELS", "2", "P2P_DISABLE", "1", "SHM_DISABLE", "1", "NET", "verbs", "IB_HCA",
                "=fake0:2", "TOPO_FILE", machine, parameter, value, NULL);
    rondo_node_forget_machine();
}

static void all_is_given_back(void)
{
    assert_int_equal(fake_verbs_objects(), 0);
    assert_int_equal(fake.bad_uses, 0);
    assert_int_equal(fake.overruns, 0);
}

/* ---- results ---- */

static void every_collective(struct fake_rank *r)
{
    const char *wanted = ((struct place *)r->arg)->arg;
    const struct rondo_ctx *ctx = r->comm->ctx;
    for (int i = 0; i < ctx->wiring.nlinks; i++) {
        FAKE_CHECK(r,
                   fake_has(ctx->wiring.links[i].conn.via, "/GDRDMA") ==
                       fake_has(wanted, ctx->wiring.links[i].is_send ? "send" : "recv"),
                   "%s", ctx->wiring.links[i].conn.via);
    }
    for (int coll = 0; coll < FAKE_NUM_COLLS; coll++) {
        static const size_t counts[] = { 1, 3001 };
        for (size_t k = 0; k < RONDO_COUNTOF(counts); k++) {
            DEVICE_CALL(r, device_of(r), .coll = (enum fake_coll)coll, .type = RONDO_INT32,
                        .root = (int)(k % (unsigned)r->nranks), .count = counts[k], .in_place = (int)(k & 1),
                        .seed = (unsigned)coll);
        }
    }
}

static void collectives_are_right_with_slots_on_gpus_or_not(void **state)
{
    static const char *const protos[] = { "simple", "ll" }; /* LL128 is for NVLink */
    (void)state;
    for (size_t p = 0; p < RONDO_COUNTOF(protos); p++) {
        use("PROTO", protos[p]);
        device_ranks(2, 0, every_collective, (void *)(uintptr_t) "send recv");
        all_is_given_back();
    }
    assert_true(fake.reads > 0);
    use("NET_GDR_READ", "0");
    device_ranks(2, 0, every_collective, (void *)(uintptr_t) "recv");
    use("NET_GDR_LEVEL", "LOC");
    device_ranks(2, 0, every_collective, (void *)(uintptr_t) "");
    all_is_given_back();
}

/* ---- the thread ---- */

static int is_bound(const struct rondo_ctx *ctx)
{
    cpu_set_t set;
    return pthread_getaffinity_np(ctx->device->thread, sizeof(set), &set) == 0 && CPU_COUNT(&set) == 1 &&
           CPU_ISSET(near_core, &set);
}

static void one_call(struct fake_rank *r)
{
    const int *wanted = ((struct place *)r->arg)->arg;
    DEVICE_CALL(r, device_of(r), .coll = FAKE_ALL_REDUCE, .type = RONDO_INT32, .count = 260);
    FAKE_CHECK(r, is_bound(r->comm->ctx) == *wanted, "%d is wanted", *wanted);
}

static void the_thread_runs_near_the_nic(void **state)
{
    struct rondo_cores own;
    int yes = 1, no = 0;
    (void)state;
    assert_int_equal(rondo_cores_affinity(&own), 0);
    if (rondo_cores_count(&own) < 2) {
        print_message("skipped: this process may run on one core only\n");
        skip();
    }
    use("PROXY_CORES", "near");
    device_ranks(2, 0, one_call, &yes);
    use("PROXY_CORES", "nic");
    device_ranks(2, 0, one_call, &yes);
    use("PROXY_CORES", "any");
    device_ranks(2, 0, one_call, &no);
    write_file("device/local_cpulist", "1023\n"); /* where nobody may run */
    use("PROXY_CORES", "near");
    device_ranks(2, 0, one_call, &no);
}

/* ---- the world ---- */

/* The NIC's directory in sysfs, near a core that we may use. */
static int setup(void **state)
{
    struct rondo_cores own;
    char text[16];
    (void)state;
    fake_verbs_reset();
    snprintf(fake.nic[0].device.ibdev_path, sizeof(fake.nic[0].device.ibdev_path), "%s", directory);
    rondo_verbs_lib_replace(&fake_verbs_lib);
    assert_int_equal(rondo_cores_affinity(&own), 0);
    for (near_core = 0; !(own.bits[near_core / 64] >> near_core % 64 & 1); near_core++) {
    }
    snprintf(text, sizeof(text), "%d\n", near_core);
    write_file("device/local_cpulist", text);
    write_file("machine.xml", machine_text);
    snprintf(machine, sizeof(machine), "%s/machine.xml", directory);
    return 0;
}

static int make_directory(void **state)
{
    char path[64];
    (void)state;
    setenv("FAKE_CUDA_DMABUF", "1", 1);
    snprintf(path, sizeof(path), "%s/device", mkdtemp(directory));
    return mkdir(path, 0755);
}

static int remove_directory(void **state)
{
    static const char *const names[] = { "device/local_cpulist", "device", "machine.xml", "" };
    char path[128];
    int failed = 0;
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
        failed |= remove(path);
    }
    return failed;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(collectives_are_right_with_slots_on_gpus_or_not, setup),
        cmocka_unit_test_setup(the_thread_runs_near_the_nic, setup),
    };
    fake_watchdog(300);
    device_driver();
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
