/* Detection of links and networks from a fake sysfs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/log.h"
#include "fake_sysfs.h"

static void rates_and_guids_are_parsed(void **state)
{
    (void)state;
    assert_int_equal(rondo_detect_ib_rate("100 Gb/sec (4X EDR)"), 100000);
    assert_int_equal(rondo_detect_ib_rate("2.5 Gb/sec (1X SDR)"), 2500);
    assert_int_equal(rondo_detect_ib_rate("400 Gb/sec (4X NDR)"), 400000);
    assert_int_equal(rondo_detect_ib_rate("unknown"), 0);
    assert_int_equal(rondo_detect_ib_rate("100"), 0);
    assert_int_equal(rondo_detect_ib_rate("99999999999999 Gb/sec"), 0);
    assert_true(rondo_detect_guid("0c42:a103:0065:bc2e") == UINT64_C(0x0c42a1030065bc2e));
    assert_true(rondo_detect_guid("0c42:a103:0065") == 0);
    assert_true(rondo_detect_guid("0c42:a103:0065:bc2x") == 0);
}

static void hwloc_bandwidth_is_rounded_to_a_pci_generation(void **state)
{
    (void)state;
    static const struct {
        double gbs;
        int32_t speed, width;
    } rows[] = {
        { 15.753846, 80, 16 }, { 31.507692, 160, 16 }, { 63.015385, 320, 16 }, { 7.876923, 80, 8 },
        { 0.984615, 80, 1 },   { 8.0, 50, 16 },        { 4.0, 25, 16 },        { 2.0, 25, 8 },
        { 0, 0, 0 },           { -3, 0, 0 },
    };
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        int32_t speed, width;
        rondo_detect_link_from_gbs(rows[i].gbs, &speed, &width);
        assert_int_equal(speed, rows[i].speed);
        assert_int_equal(width, rows[i].width);
    }
}

static void link_is_the_least_of_device_and_port(void **state)
{
    (void)state;
    struct rondo_machine machine;
    machine_new(&machine);
    pci_put("pci0000:00/0000:00:01.0", "0x060400", "16.0 GT/s PCIe", "8");
    pci_put("pci0000:00/0000:00:01.0/0000:01:00.0", "0x030200", "32.0 GT/s PCIe", "16");
    pci_put("pci0000:00/0000:00:02.0", "0x030200", "8 GT/s", "16");
    pci_put("pci0000:00/0000:00:03.0", "0x030200", "Unknown", "255");
    pci_put("pci0000:00/0000:00:04.0", "0x020000", "8.0 GT/s PCIe", "16");
    pci_put("pci0000:00/0000:00:04.1", "0x020000", "Unknown", "0");
    join("devices/pci0000:00/0000:00:04.1/physfn", "devices/pci0000:00/0000:00:04.0");
    static const char *const busid[] = { "0000:01:00.0", "0000:00:02.0", "0000:00:03.0",
                                         "0000:00:04.1", "0000:99:00.0", "0000:00:04.0" };
    static const int32_t expected[][2] = {
        { 160, 8 }, { 80, 16 }, { 0, 0 }, { 80, 16 }, { 0, 0 }, { 50, 4 }
    };
    for (size_t i = 0; i < RONDO_COUNTOF(busid); i++) {
        int32_t item = add_pci(&machine, 0, busid[i], RONDO_CLASS_GPU, RONDO_VENDOR_ID_NVIDIA);
        machine.item[item].pci.speed = i == 5 ? 50 : 0; /* known already */
        machine.item[item].pci.width = i == 5 ? 4 : 0;
    }
    assert_int_equal(rondo_detect_pci_links(&machine, sysfs), RONDO_SUCCESS);
    for (size_t i = 0; i < RONDO_COUNTOF(busid); i++) {
        assert_int_equal(pci_at(&machine, busid[i])->pci.speed, expected[i][0]);
        assert_int_equal(pci_at(&machine, busid[i])->pci.width, expected[i][1]);
    }
    rondo_machine_release(&machine);
}

static void active_ports_become_nets_of_their_nics(void **state)
{
    (void)state;
    struct rondo_machine machine;
    const struct rondo_detect options = { .sysfs = sysfs };
    machine_new(&machine);
    /* Behind a switch, a NIC with two functions, of which the second has its port down; on a root port, a NIC
     * with two ports; a third one behind a root port at the first CPU. */
    pci_put("pci0000:80/0000:80:01.0", "0x060400", "16.0 GT/s PCIe", "16");
    pci_put("pci0000:80/0000:80:01.0/0000:81:00.0", "0x060400", "16.0 GT/s PCIe", "16");
    pci_put("pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0", "0x060400", "16.0 GT/s PCIe", "16");
    pci_put("pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:83:00.0", "0x020700", "16.0 GT/s PCIe",
            "16");
    pci_put("pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:83:00.1", "0x020700", "16.0 GT/s PCIe",
            "16");
    pci_put("pci0000:00/0000:00:01.0/0000:01:00.0", "0x0c0600", "8.0 GT/s PCIe", "8");
    put("0", "devices/pci0000:00/0000:00:01.0/0000:01:00.0/numa_node");
    ib_put("mlx5_1", "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:83:00.0", 1, "4: ACTIVE",
           "200 Gb/sec (4X HDR)");
    ib_put("mlx5_2", "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:83:00.1", 1, "4: ACTIVE",
           "100 Gb/sec (2X HDR)");
    ib_put("mlx4_0", "pci0000:00/0000:00:01.0/0000:01:00.0", 1, "1: DOWN", "10 Gb/sec (4X SDR)");
    ib_put("mlx4_0", "pci0000:00/0000:00:01.0/0000:01:00.0", 2, "4: ACTIVE", "56 Gb/sec (4X FDR)");
    ib_put("rxe0", NULL, 1, "4: ACTIVE", "2.5 Gb/sec (1X SDR)");
    ib_put("rxe1", NULL, 1, "4: ACTIVE", "nonsense");
    put("lan0", "class/infiniband/rxe0/parent");
    put("1", "class/net/lan0/lower_wire0");
    join("class/net/wire0/device", "devices/pci0000:00/0000:00:01.0/0000:01:00.0");
    assert_int_equal(rondo_detect_nets(&machine, &options), RONDO_SUCCESS);
    assert_int_equal(rondo_detect_pci_links(&machine, sysfs), RONDO_SUCCESS);
    assert_int_equal(rondo_detect_arrange(&machine, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_machine_check(&machine), RONDO_SUCCESS);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_NET), 5);
    int32_t rxe1 = rondo_machine_nth(&machine, RONDO_ITEM_NET,
                                     2); /* without a device: at the first CPU, the last port */
    assert_string_equal(machine.item[rxe1].net.name, "rxe1");
    assert_int_equal(machine.item[rxe1].net.dev, 4);
    assert_int_equal(machine.item[rxe1].net.mbps, 0);
    assert_int_equal(machine.item[machine.item[rxe1].parent].parent, 0);
    machine.item[rxe1].net.dev = 2;
    assert_net(&machine, 0, "mlx4_0", 56000, 2, "0000:01:00.0");
    assert_net(&machine, 1, "rxe0", 2500, 1, "0000:01:00.0");
    assert_true(machine.item[rondo_machine_nth(&machine, RONDO_ITEM_NET, 0)].net.guid ==
                UINT64_C(0x0c42a1030065bc2e));
    const struct rondo_item *bridge = pci_at(&machine, "0000:81:00.0"),
                            *nic = pci_at(&machine, "0000:83:00.0");
    assert_ptr_equal(&machine.item[nic->parent], bridge);
    assert_int_equal(machine.item[bridge->parent].cpu.numa, 1);
    assert_int_equal(bridge->pci.class_code, RONDO_CLASS_BRIDGE);
    assert_int_equal(nic->pci.vendor, 0x15b3);
    assert_int_equal(nic->pci.speed, 160);
    assert_int_equal(pci_at(&machine, "0000:01:00.0")->pci.class_code, RONDO_CLASS_INFINIBAND);
    assert_int_equal(rondo_machine_find_pci(&machine, rondo_busid_parse("0000:83:00.1")), -1);
    rondo_machine_release(&machine);
}

static void virtual_functions_share_the_nic_and_its_wire(void **state)
{
    (void)state;
    struct rondo_machine machine;
    const struct rondo_detect options = { .sysfs = sysfs };
    machine_new(&machine);
    pci_put("pci0000:00/0000:00:01.0/0000:01:00.0", "0x020700", "16.0 GT/s PCIe", "16");
    pci_put("pci0000:00/0000:00:01.0/0000:01:00.4", "0x020700", "Unknown", "0");
    join("devices/pci0000:00/0000:00:01.0/0000:01:00.4/physfn",
         "devices/pci0000:00/0000:00:01.0/0000:01:00.0");
    ib_put("mlx5_0", "pci0000:00/0000:00:01.0/0000:01:00.0", 1, "4: ACTIVE", "200 Gb/sec (4X HDR)");
    ib_put("mlx5_7", "pci0000:00/0000:00:01.0/0000:01:00.4", 1, "4: ACTIVE", "200 Gb/sec (4X HDR)");
    put("aaaa:bbbb:cccc:dddd", "class/infiniband/mlx5_7/node_guid");
    put("0c42:a103:0065:bc2e", "devices/pci0000:00/0000:00:01.0/0000:01:00.0/infiniband/mlx5_0/node_guid");
    assert_int_equal(rondo_detect_nets(&machine, &options), RONDO_SUCCESS);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_NIC), 1);
    assert_net(&machine, 0, "mlx5_0", 200000, 1, "0000:01:00.0");
    assert_net(&machine, 1, "mlx5_7", 200000, 1, "0000:01:00.0");
    assert_true(machine.item[rondo_machine_nth(&machine, RONDO_ITEM_NET, 0)].net.guid ==
                machine.item[rondo_machine_nth(&machine, RONDO_ITEM_NET, 1)].net.guid);
    rondo_machine_release(&machine);
}

static void interfaces_are_offered_only_without_infiniband(void **state)
{
    (void)state;
    struct rondo_machine machine;
    struct rondo_detect options = { .sysfs = sysfs,
                                    .interfaces = "=lo" }; /* loopback, which every host has */
    machine_new(&machine);
    pci_put("pci0000:00/0000:00:03.0", "0x020000", NULL, NULL);
    put("25000", "class/net/lo/speed");
    join("class/net/lo/device", "devices/pci0000:00/0000:00:03.0/virtio2");
    put("x", "devices/pci0000:00/0000:00:03.0/virtio2/uevent");
    ib_put("mlx5_0", NULL, 1, "1: DOWN", "40 Gb/sec (4X QDR)");
    assert_int_equal(rondo_detect_nets(&machine, &options), RONDO_SUCCESS);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_NET), 1);
    assert_net(&machine, 0, "lo", 25000, 0, "0000:00:03.0");
    rondo_machine_release(&machine);
    machine_new(&machine);
    put("-1", "class/net/lo/speed");
    assert_int_equal(rondo_detect_nets(&machine, &options), RONDO_SUCCESS);
    assert_net(&machine, 0, "lo", 10000, 0, "0000:00:03.0");
    rondo_machine_release(&machine);
    machine_new(&machine);
    options.interfaces = "=no-such-interface";
    assert_int_equal(rondo_detect_nets(&machine, &options), RONDO_SUCCESS);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_NET), 0);
    assert_says(machine.note, "no-such-interface");
    put("4: ACTIVE", "class/infiniband/mlx5_0/ports/1/state");
    options.interfaces = "=lo";
    assert_int_equal(rondo_detect_nets(&machine, &options), RONDO_SUCCESS);
    assert_int_equal(rondo_machine_count(&machine, RONDO_ITEM_NET), 1);
    assert_net(&machine, 0, "mlx5_0", 40000, 1, "");
    rondo_machine_release(&machine);
}

int main(void)
{
    setenv("RONDO_DEBUG", "NONE", 1); /* tests check the sentences */
    rondo_log_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_and_guids_are_parsed),
        cmocka_unit_test(hwloc_bandwidth_is_rounded_to_a_pci_generation),
        WITH_SYSFS(link_is_the_least_of_device_and_port),
        WITH_SYSFS(active_ports_become_nets_of_their_nics),
        WITH_SYSFS(virtual_functions_share_the_nic_and_its_wire),
        WITH_SYSFS(interfaces_are_offered_only_without_infiniband),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
