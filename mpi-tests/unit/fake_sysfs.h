/* For tests of detection: a fake sysfs in a temporary directory, and machines built by hand. */
#ifndef RONDO_TEST_FAKE_SYSFS_H
#define RONDO_TEST_FAKE_SYSFS_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "topo/detect/detect_impl.h"

static char sysfs[PATH_MAX - 512]; /* a new directory for each test */

#define assert_says(text, part)                           \
    do {                                                  \
        if (!strstr(text, part)) {                        \
            fail_msg("\"%s\" is not in: %s", part, text); \
        }                                                 \
    } while (0)

static inline int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static inline int sysfs_new(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(sysfs, sizeof sysfs, "%s/rondo-sysfs-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
    return mkdtemp(sysfs) ? 0 : -1;
}

static inline int sysfs_remove(void **state)
{
    (void)state;
    static const char *const set[] = { "HWLOC_SYNTHETIC", "HWLOC_XMLFILE", "FAKE_NVML" };
    for (size_t i = 0; i < RONDO_COUNTOF(set); i++) {
        unsetenv(set[i]);
    }
    return nftw(sysfs, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static inline void dirs_make(const char *path)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *c = strchr(part + 1, '/'); c; c = strchr(c + 1, '/')) {
        *c = '\0';
        mkdir(part, 0700);
        *c = '/';
    }
}

/* Write a file of the fake sysfs. */
static inline void put(const char *text, const char *fmt, ...)
{
    char path[PATH_MAX];
    int used = snprintf(path, sizeof path, "%s/", sysfs);
    va_list args;
    va_start(args, fmt);
    vsnprintf(path + used, sizeof path - (size_t)used, fmt, args);
    va_end(args);
    dirs_make(path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", text);
    fclose(file);
}

/* Make a symbolic link from `from` to `to`, both in the fake sysfs. */
static inline void join(const char *from, const char *to)
{
    char source[PATH_MAX], target[PATH_MAX];
    snprintf(source, sizeof source, "%s/%s", sysfs, from);
    snprintf(target, sizeof target, "%s/%s", sysfs, to);
    dirs_make(source);
    assert_int_equal(symlink(target, source), 0);
}

/* Create a PCI device at a path below devices/: "pci0000:00/0000:00:01.0/...". */
static inline void pci_put(const char *path, const char *class_code, const char *speed, const char *width)
{
    char from[128], to[512];
    snprintf(from, sizeof from, "bus/pci/devices/%s", strrchr(path, '/') + 1);
    snprintf(to, sizeof to, "devices/%s", path);
    put(class_code, "%s/class", to);
    put("0x15b3", "%s/vendor", to);
    put("0x1017", "%s/device", to);
    put("1", "%s/numa_node", to);
    if (speed) {
        put(speed, "%s/max_link_speed", to);
        put(width, "%s/max_link_width", to);
    }
    join(from, to);
}

static inline void ib_put(const char *name, const char *device, int port, const char *state, const char *rate)
{
    char from[128], to[512];
    put(state, "class/infiniband/%s/ports/%d/state", name, port);
    put(rate, "class/infiniband/%s/ports/%d/rate", name, port);
    snprintf(from, sizeof from, "class/infiniband/%s/device", name);
    snprintf(to, sizeof to, "devices/%s", device ? device : "");
    if (device && port == 1) {
        put("0c42:a103:0065:bc2e", "class/infiniband/%s/node_guid", name);
        join(from, to);
    }
}

/* Two empty NUMA nodes. */
static inline void machine_new(struct rondo_machine *machine)
{
    memset(machine, 0, sizeof *machine);
    for (int numa = 0; numa < 2; numa++) {
        int32_t i;
        assert_int_equal(rondo_machine_add(machine, RONDO_ITEM_CPU, -1, &i), RONDO_SUCCESS);
        machine->item[i].cpu.numa = numa;
    }
}

static inline int32_t add(struct rondo_machine *machine, enum rondo_item_kind kind, int32_t parent)
{
    int32_t i;
    assert_int_equal(rondo_machine_add(machine, kind, parent, &i), RONDO_SUCCESS);
    return i;
}

static inline int32_t add_pci(struct rondo_machine *machine, int32_t parent, const char *busid,
                              uint32_t class_code, int vendor)
{
    int32_t i = add(machine, RONDO_ITEM_PCI, parent);
    machine->item[i].pci.busid = rondo_busid_parse(busid);
    machine->item[i].pci.class_code = class_code;
    machine->item[i].pci.vendor = (uint16_t)vendor;
    return i;
}

static inline const struct rondo_item *pci_at(const struct rondo_machine *machine, const char *busid)
{
    int32_t i = rondo_machine_find_pci(machine, rondo_busid_parse(busid));
    assert_true(i >= 0);
    return &machine->item[i];
}

/* Check the n-th port, and the PCI item above its NIC; "" none. */
static inline void assert_net(const struct rondo_machine *machine, int n, const char *name, int mbps,
                              int port, const char *busid)
{
    int32_t i = rondo_machine_nth(machine, RONDO_ITEM_NET, n);
    assert_true(i >= 0);
    const struct rondo_item *net = &machine->item[i],
                            *above = &machine->item[machine->item[net->parent].parent];
    char address[24] = "";
    assert_string_equal(net->net.name, name);
    assert_int_equal(net->net.mbps, mbps);
    assert_int_equal(net->net.port, port);
    assert_int_equal(net->net.dev, n);
    assert_string_equal(above->kind == RONDO_ITEM_PCI ? rondo_busid_text(above->pci.busid, address) : "",
                        busid);
}

#define WITH_SYSFS(test) cmocka_unit_test_setup_teardown(test, sysfs_new, sysfs_remove)

#endif
