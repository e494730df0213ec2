/* rondo-info --devices: what this process could use on this host, and why it would not use the rest. */
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/ifnames.h"
#include "base/log.h"
#include "base/status.h"
#ifdef RONDO_CUDA
#include "base/cuda.h"
#endif
#include "net/netdev.h"
#include "tools/info/info.h"
#include "topo/detect/detect.h"

enum { WHY = 1024, MOST_IFACES = 1024 };

/* A list of one kind, as text or JSON. */
struct list {
    int json, n;
};

static void list_begin(struct list *list, const char *title, const char *name)
{
    list->n = 0;
    if (list->json) {
        printf(",\n  \"%s\": [", name);
    } else {
        printf("\n%s\n", title);
    }
}

/* state: "used", "not used", ...; text: the details or the reason */
static void list_add(struct list *list, const char *name, const char *state, const char *text)
{
    char head[128];
    if (list->json) {
        printf("%s\n    {\"name\": ", list->n++ > 0 ? "," : "");
        info_json_text(name);
        printf(", \"state\": ");
        info_json_text(state);
        printf(", \"text\": ");
        info_json_text(text);
        printf("}");
        return;
    }
    list->n++;
    snprintf(head, sizeof head, "  %-14s %-9s  ", name, state);
    info_wrap(head, text, "                            ", info_width());
}

static void list_end(const struct list *list)
{
    if (list->json) {
        printf("\n  ]");
    }
}

/* ---- GPUs ---- */

static void gpus(struct list *list, const struct rondo_machine *machine)
{
    const char *why = "this build has no CUDA (see --build): GPUs are shown, but not used";
    int usable = 0;
#ifdef RONDO_CUDA
    usable = rondo_cuda(&why) != NULL;
#endif
    list_begin(list, "GPUs", "gpus");
    for (int i = 0; i < machine->nitems; i++) {
        const struct rondo_item *item = &machine->item[i];
        char name[32], text[WHY];
        if (item->kind != RONDO_ITEM_GPU) continue;
        snprintf(name, sizeof name, "GPU %d", item->gpu.dev);
        snprintf(text, sizeof text, "%s, compute capability %d.%d%s%s",
                 item->gpu.name[0] ? item->gpu.name : "unknown model", item->gpu.sm / 10, item->gpu.sm % 10,
                 usable ? "" : "; ", usable ? "" : why);
        list_add(list, name, usable ? "usable" : "not used", text);
    }
    if (list->n == 0) list_add(list, "none", "", usable ? "the CUDA driver works, but there is no GPU" : why);
    list_end(list);
}

/* ---- net devices ---- */

static void net_devices(struct list *list, const struct rondo_net_device *net, int n)
{
    for (int i = 0; i < n; i++) {
        struct rondo_net_properties p;
        char text[256];
        if (net->properties(i, &p) != RONDO_SUCCESS) {
            list_add(list, net->name, "error", rondo_error_text());
            continue;
        }
        snprintf(text, sizeof text, "%s, %d Mbit/s%s%s%s", net->name, p.speed_mbps,
                 p.memory & (RONDO_NET_CUDA | RONDO_NET_DMABUF) ? ", GPU memory" : "",
                 p.pci_path[0] ? ", " : "", p.pci_path);
        list_add(list, p.name, "usable", text);
    }
}

/* In the order of preference. RONDO_NET may allow one of them only. */
static void nets(struct list *list)
{
    const char *only = rondo_params()->net;
    uint32_t allowed = 0;
    char unused[WHY];
    int error = rondo_netdev_mask(&allowed, unused, sizeof unused) != RONDO_SUCCESS;
    list_begin(list, "Net devices, in order of preference", "net_devices");
    if (error) list_add(list, "RONDO_NET", "error", unused);
    for (int i = 0; i < rondo_num_netdevs; i++) {
        const struct rondo_net_device *net = rondo_netdevs[i];
        char why[WHY] = "";
        int n = 0;
        if (only[0] != '\0' && !(allowed & 1u << i)) {
            snprintf(why, sizeof why, "RONDO_NET=%s allows no other", only);
            list_add(list, net->name, "not used", why);
        } else if (net->init(&n, why, sizeof why) != RONDO_SUCCESS) {
            list_add(list, net->name, "error", rondo_error_text());
        } else if (n == 0) {
            list_add(list, net->name, "none", why[0] ? why : "there is none on this host");
        } else {
            net_devices(list, net, n);
        }
    }
    list_end(list);
}

/* ---- interfaces ---- */

static int iface_find(struct rondo_iface *iface, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(iface[i].name, name) == 0) return i;
    }
    return -1;
}

static int ifaces_read(struct rondo_iface *iface)
{
    struct ifaddrs *all, *at;
    int n = 0;
    if (getifaddrs(&all) != 0) return 0;
    for (at = all; at != NULL; at = at->ifa_next) {
        int has_address = at->ifa_addr != NULL &&
                          (at->ifa_addr->sa_family == AF_INET || at->ifa_addr->sa_family == AF_INET6);
        int i = iface_find(iface, n, at->ifa_name);
        if (i < 0 && n == MOST_IFACES) break;
        if (i < 0) {
            i = n++;
            iface[i] = (struct rondo_iface){ .loopback = (at->ifa_flags & IFF_LOOPBACK) != 0 };
            snprintf(iface[i].name, sizeof iface[i].name, "%s", at->ifa_name);
        }
        if (has_address && (at->ifa_flags & IFF_UP) && (at->ifa_flags & IFF_RUNNING)) iface[i].up = 1;
    }
    freeifaddrs(all);
    return n;
}

static const char *iface_why(const struct rondo_iface *iface, const char *rule)
{
    static const char *const classes[] = { [RONDO_IFACE_NETWORK] = "a network",
                                           [RONDO_IFACE_VIRTUAL] = "for containers or virtual machines",
                                           [RONDO_IFACE_LOOP] = "the loopback" };
    if (!iface->up) return "it is down, or has no address";
    if (iface->chosen) return classes[rondo_iface_class(iface)];
    if (rule[0]) return "RONDO_SOCKET_IFNAME does not choose it";
    return rondo_iface_class(iface) == RONDO_IFACE_LOOP
               ? "the loopback; RONDO_SOCKET_IFNAME can choose it"
               : "for containers or virtual machines; RONDO_SOCKET_IFNAME can choose it";
}

static void interfaces(struct list *list)
{
    struct rondo_iface *iface = calloc(MOST_IFACES, sizeof *iface);
    const char *rule = rondo_params()->socket_ifname;
    int n = iface ? ifaces_read(iface) : 0;
    list_begin(list, "Interfaces (for sockets)", "interfaces");
    rondo_ifaces_choose(iface, n, rule);
    for (int i = 0; i < n; i++)
        list_add(list, iface[i].name, iface[i].chosen ? "used" : "not used", iface_why(&iface[i], rule));
    list_end(list);
    free(iface);
}

/* ---- cards ---- */

static void cards(struct list *list, const struct rondo_machine *machine)
{
    list_begin(list, "Network ports of the topology", "ports");
    for (int i = 0; i < machine->nitems; i++) {
        const struct rondo_item *item = &machine->item[i];
        char text[256];
        if (item->kind != RONDO_ITEM_NET) continue;
        snprintf(text, sizeof text, "port %d, %d Mbit/s%s, GPUDirect %s", item->net.port, item->net.mbps,
                 item->net.mbps > 0 ? "" : " (unknown, taken as 10000)",
                 item->net.gdr > 0    ? "yes"
                 : item->net.gdr == 0 ? "no"
                                      : "unknown");
        list_add(list, item->net.name, "found", text);
    }
    if (list->n == 0)
        list_add(list, "none", "", "sysfs lists no active port of an InfiniBand device, and no interface");
    list_end(list);
    if (!list->json && machine->note[0]) {
        printf("\n");
        info_wrap("Note: ", machine->note, "      ", info_width());
    }
}

int info_devices(int json)
{
    struct rondo_machine machine = { 0 };
    struct list list = { .json = json };
    if (rondo_machine_detect(&machine, NULL) != RONDO_SUCCESS) {
        fprintf(stderr, "rondo-info: %s\n", rondo_error_text());
        return 1;
    }
    gpus(&list, &machine);
    nets(&list);
    interfaces(&list);
    cards(&list, &machine);
    if (!json) printf("\n");
    rondo_machine_release(&machine);
    return 0;
}
