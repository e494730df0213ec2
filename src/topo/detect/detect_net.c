/* Network ports: the InfiniBand devices of sysfs or, without any, the network interfaces. */
#include "topo/detect/detect_impl.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/array.h"
#include "base/ifnames.h"
#include "base/mem.h"

struct port {
    char name[RONDO_MACHINE_NAME];
    char path[PATH_MAX]; /* of the PCI device; "": none */
    int64_t busid;       /* INT64_MAX: none */
    int32_t mbps, port;
    uint64_t guid;
};

struct ports {
    struct port *port;
    int n, capacity;
};

static rondo_status port_new(struct ports *ports, const char *name, struct port **port)
{
    if (ports->n >= RONDO_MACHINE_MAX_NETS) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "this host has more than %d network ports",
                          RONDO_MACHINE_MAX_NETS);
    }
    RONDO_TRY(RONDO_ARRAY_GROW(ports->port, ports->n, ports->capacity, "the list of network ports"));
    *port = &ports->port[ports->n++];
    rondo_detect_name((*port)->name, name);
    (*port)->busid = INT64_MAX;
    return RONDO_SUCCESS;
}

/* @return the last PCI address in a path; INT64_MAX: none. */
static int64_t path_busid(const char *path)
{
    int64_t busid = INT64_MAX;
    while (*path) {
        size_t length = strcspn(path, "/");
        char part[24];
        snprintf(part, sizeof part, "%.*s", (int)rondo_min_size(length, sizeof part - 1), path);
        int64_t here = length < sizeof part ? rondo_sysfs_busid(part) : -1;
        busid = here >= 0 ? here : busid;
        path += length + (path[length] == '/');
    }
    return busid;
}

/* A virtual function is placed at its physical function. */
static void port_place(struct port *port, const char *device)
{
    if (rondo_sysfs_real(port->path, "%s/physfn", device) != 0 &&
        rondo_sysfs_real(port->path, "%s", device) != 0) {
        port->path[0] = '\0';
    }
    port->busid = path_busid(port->path);
    if (port->busid == INT64_MAX) {
        port->path[0] = '\0';
    }
}

/* Find the PCI device of an interface; for a bond or bridge, that of its first lower interface. */
static void iface_place(struct port *port, const char *sysfs, const char *name, int depth)
{
    char device[PATH_MAX], **entry;
    if (rondo_sysfs_real(device, "%s/class/net/%s/device", sysfs, name) == 0) {
        port_place(port, device);
        return;
    }
    int n = depth < 4 ? rondo_sysfs_list(&entry, "%s/class/net/%s", sysfs, name) : 0;
    for (int i = 0; i < n && !port->path[0]; i++) {
        if (strncmp(entry[i], "lower_", 6) == 0) {
            iface_place(port, sysfs, entry[i] + 6, depth + 1);
        }
    }
    if (depth < 4) {
        rondo_sysfs_list_free(entry, n);
    }
}

/* ---- InfiniBand ---- */

int32_t rondo_detect_ib_rate(const char *text)
{
    char *end;
    long whole = strtol(text, &end, 10), hundreds = 0;
    if (end == text || whole < 0 || whole > 100000) {
        return 0;
    }
    if (*end == '.' && end[1] >= '0' && end[1] <= '9') {
        hundreds = (end[1] - '0') * 100;
        end += 1 + strspn(end + 1, "0123456789");
    }
    return strncmp(end, " Gb/sec", 7) == 0 ? (int32_t)(whole * 1000 + hundreds) : 0;
}

uint64_t rondo_detect_guid(const char *text)
{
    uint64_t guid = 0;
    int digits = 0;
    for (; *text && *text != '\n'; text++) {
        int c = *text | 0x20, digit = c >= '0' && c <= '9'   ? c - '0'
                                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                             : -1;
        if (digit >= 0) {
            guid = guid << 4 | (uint64_t)digit;
            digits++;
        } else if (*text != ':') {
            return 0;
        }
    }
    return digits == 16 ? guid : 0;
}

/* A virtual function's port shares the physical port's wire, so it gets the physical function's guid. */
static uint64_t ib_guid(const char *sysfs, const char *name)
{
    char text[RONDO_SYSFS_TEXT], path[PATH_MAX], **entry;
    uint64_t guid = 0;
    if (rondo_sysfs_real(path, "%s/class/infiniband/%s/device/physfn", sysfs, name) == 0) {
        int n = rondo_sysfs_list(&entry, "%s/infiniband", path);
        if (n > 0 && rondo_sysfs_read(text, "%s/infiniband/%s/node_guid", path, entry[0]) == 0) {
            guid = rondo_detect_guid(text);
        }
        rondo_sysfs_list_free(entry, n);
    }
    if (guid == 0 && rondo_sysfs_read(text, "%s/class/infiniband/%s/node_guid", sysfs, name) == 0) {
        guid = rondo_detect_guid(text);
    }
    return guid;
}

static void ib_place(struct port *port, const char *sysfs, const char *name)
{
    char device[PATH_MAX], text[RONDO_SYSFS_TEXT];
    if (rondo_sysfs_real(device, "%s/class/infiniband/%s/device", sysfs, name) == 0) {
        port_place(port, device);
    }
    if (port->path[0]) {
        return;
    }
    /* A software device on top of a network interface. */
    if ((rondo_sysfs_read(text, "%s/class/infiniband/%s/parent", sysfs, name) == 0 ||
         rondo_sysfs_read(text, "%s/class/infiniband/%s/ports/%d/gid_attrs/ndevs/0", sysfs, name,
                          port->port) == 0) &&
        text[0] && !strchr(text, '/')) {
        iface_place(port, sysfs, text, 0);
    }
}

static rondo_status ib_device(struct ports *ports, const char *sysfs, const char *name)
{
    char **entry, text[RONDO_SYSFS_TEXT];
    int n = rondo_sysfs_list(&entry, "%s/class/infiniband/%s/ports", sysfs, name);
    rondo_status status = RONDO_SUCCESS;
    for (int i = 0; i < n; i++) {
        struct port *port;
        int number = atoi(entry[i]);
        if (number < 1 || number > 255 ||
            rondo_sysfs_read(text, "%s/class/infiniband/%s/ports/%d/state", sysfs, name, number) != 0 ||
            strncmp(text, "4:", 2) != 0) {
            continue;
        }
        RONDO_TRY_GOTO(port_new(ports, name, &port), out);
        port->port = number;
        if (rondo_sysfs_read(text, "%s/class/infiniband/%s/ports/%d/rate", sysfs, name, number) == 0) {
            port->mbps = rondo_detect_ib_rate(text);
        }
        port->guid = ib_guid(sysfs, name);
        ib_place(port, sysfs, name);
    }
out:
    rondo_sysfs_list_free(entry, n);
    return status;
}

static rondo_status ib_ports(struct ports *ports, const char *sysfs)
{
    char **entry;
    int n = rondo_sysfs_list(&entry, "%s/class/infiniband", sysfs);
    rondo_status status = RONDO_SUCCESS;
    for (int i = 0; i < n && status == RONDO_SUCCESS; i++) {
        status = ib_device(ports, sysfs, entry[i]);
    }
    rondo_sysfs_list_free(entry, n);
    return status;
}

/* ---- interfaces ---- */

/* Can a peer use this address? It cannot use link-local IPv6 addresses. */
static int addr_usable(const struct sockaddr *addr)
{
    struct sockaddr_in6 in6;
    if (!addr || addr->sa_family != AF_INET6) {
        return addr && addr->sa_family == AF_INET;
    }
    memcpy(&in6, addr, sizeof in6);
    return !IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr);
}

/* One entry per name; getifaddrs repeats the name for each address. */
static int ifaces_fill(struct rondo_iface *iface, const struct ifaddrs *list)
{
    int n = 0;
    for (const struct ifaddrs *ifa = list; ifa; ifa = ifa->ifa_next) {
        int i = 0;
        while (i < n && strcmp(iface[i].name, ifa->ifa_name) != 0) {
            i++;
        }
        if (i == n) {
            snprintf(iface[n].name, sizeof iface[n].name, "%s", ifa->ifa_name);
            n++;
        }
        iface[i].loopback = (ifa->ifa_flags & IFF_LOOPBACK) != 0;
        iface[i].up |= (ifa->ifa_flags & IFF_UP) && (ifa->ifa_flags & IFF_RUNNING) &&
                       addr_usable(ifa->ifa_addr);
    }
    return n;
}

static rondo_status iface_ports(struct ports *ports, const char *sysfs, const struct rondo_iface *iface,
                                int n)
{
    for (int i = 0; i < n; i++) {
        struct port *port;
        if (!iface[i].chosen) {
            continue;
        }
        RONDO_TRY(port_new(ports, iface[i].name, &port));
        long long mbps = rondo_sysfs_number(0, "%s/class/net/%s/speed", sysfs, iface[i].name);
        port->mbps = mbps > 0 && mbps <= RONDO_MACHINE_MAX_MBS ? (int32_t)mbps : 10000;
        iface_place(port, sysfs, iface[i].name, 0);
    }
    return RONDO_SUCCESS;
}

static rondo_status ifaces_add(struct rondo_machine *machine, struct ports *ports, const char *sysfs,
                               const char *rule)
{
    struct ifaddrs *list;
    struct rondo_iface *iface;
    int n = 0;
    if (getifaddrs(&list) != 0) {
        rondo_detect_note(machine, "cannot list network interfaces (%m)");
        return RONDO_SUCCESS;
    }
    for (const struct ifaddrs *ifa = list; ifa; ifa = ifa->ifa_next) {
        n++;
    }
    rondo_status status = RONDO_NEW_ARRAY(iface, n, "the list of network interfaces");
    if (status == RONDO_SUCCESS) {
        n = ifaces_fill(iface, list);
        if (rondo_ifaces_choose(iface, n, rule) == 0) {
            rondo_detect_note(machine,
                              rule && rule[0] ? "no network interface that is up matches \"%.64s\""
                                              : "no network interface is up",
                              rule ? rule : "");
        }
        status = iface_ports(ports, sysfs, iface, n);
        rondo_free(iface);
    }
    freeifaddrs(list);
    return status;
}

/* ---- all ---- */

static int port_order(const void *x, const void *y)
{
    const struct port *a = x, *b = y;
    if (a->busid != b->busid) {
        return a->busid < b->busid ? -1 : 1;
    }
    int order = strcmp(a->name, b->name);
    return order ? order : a->port - b->port;
}

static rondo_status port_add(struct rondo_machine *machine, const struct port *port, int32_t dev)
{
    int32_t pci = -1, i;
    if (port->path[0]) {
        RONDO_TRY(rondo_detect_pci_path(machine, port->path, &pci));
    }
    RONDO_TRY(rondo_detect_nic(machine, rondo_detect_nic_pci(machine, pci), &i));
    RONDO_TRY(rondo_machine_add(machine, RONDO_ITEM_NET, i, &i));
    struct rondo_item *item = &machine->item[i];
    memcpy(item->net.name, port->name, sizeof item->net.name);
    item->net.dev = dev;
    item->net.mbps = port->mbps;
    item->net.port = port->port;
    item->net.guid = port->guid;
    return RONDO_SUCCESS;
}

rondo_status rondo_detect_nets(struct rondo_machine *machine, const struct rondo_detect *options)
{
    const char *sysfs = options && options->sysfs ? options->sysfs : "/sys";
    struct ports ports = { 0 };
    rondo_status status;
    RONDO_TRY_GOTO(ib_ports(&ports, sysfs), out);
    if (ports.n == 0) {
        RONDO_TRY_GOTO(ifaces_add(machine, &ports, sysfs, options ? options->interfaces : NULL), out);
    }
    if (ports.n > 0) {
        qsort(ports.port, (size_t)ports.n, sizeof *ports.port, port_order);
    }
    for (int i = 0; i < ports.n; i++) {
        RONDO_TRY_GOTO(port_add(machine, &ports.port[i], i), out);
    }
out:
    rondo_free(ports.port);
    return status;
}
