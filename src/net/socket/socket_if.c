/* Choose the network interfaces that are devices, and their addresses. */
#include "net/socket/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"

enum { DEFAULT_MBPS = 10000, MAX_MBPS = 10000000, SYSFS_TEXT = 72 };

/* Rank of an address. LINK_LOCAL ones do not tell which interface of the other host they belong to; they
 * are used only when there is no other. */
enum grade { NO_ADDRESS, LINK_LOCAL, GLOBAL6, ADDRESS4 };

struct candidate {
    enum grade grade;
    union rondo_socket_addr addr;
};

void rondo_socket_addr_text(char text[RONDO_SOCKET_ADDR_TEXT], const union rondo_socket_addr *addr)
{
    char host[INET6_ADDRSTRLEN] = "", scope[IF_NAMESIZE + 1] = "", port[8] = "";
    int is6 = addr->any.sa_family == AF_INET6;
    inet_ntop(addr->any.sa_family,
              is6 ? (const void *)&addr->in6.sin6_addr : (const void *)&addr->in.sin_addr, host, sizeof host);
    if (is6 && addr->in6.sin6_scope_id != 0) {
        char name[IF_NAMESIZE];
        snprintf(scope, sizeof scope, "%%%s", if_indextoname(addr->in6.sin6_scope_id, name) ? name : "?");
    }
    unsigned number = ntohs(is6 ? addr->in6.sin6_port : addr->in.sin_port);
    if (number != 0) {
        snprintf(port, sizeof port, ":%u", number);
    }
    int brackets = is6 && number != 0;
    snprintf(text, RONDO_SOCKET_ADDR_TEXT, "%s%s%s%s%s", brackets ? "[" : "", host, scope,
             brackets ? "]" : "", port);
}

static enum grade grade_of(const struct sockaddr *addr, int family)
{
    struct sockaddr_in6 in6;
    if (!addr ||
        (addr->sa_family == AF_INET ? family == RONDO_SOCKET_FAMILY_6
                                    : addr->sa_family != AF_INET6 || family == RONDO_SOCKET_FAMILY_4)) {
        return NO_ADDRESS;
    }
    if (addr->sa_family == AF_INET) {
        return ADDRESS4;
    }
    memcpy(&in6, addr, sizeof in6);
    return IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr) ? LINK_LOCAL : GLOBAL6;
}

/* Make one candidate per name; getifaddrs lists a name once for each address. */
static int candidates_fill(struct rondo_iface *iface, struct candidate *candidate, const struct ifaddrs *list,
                           int family)
{
    int n = 0;
    for (const struct ifaddrs *ifa = list; ifa; ifa = ifa->ifa_next) {
        enum grade grade = (ifa->ifa_flags & IFF_UP) && (ifa->ifa_flags & IFF_RUNNING)
                               ? grade_of(ifa->ifa_addr, family)
                               : NO_ADDRESS;
        int i = 0;
        while (i < n && strcmp(iface[i].name, ifa->ifa_name) != 0) {
            i++;
        }
        if (i == n) {
            snprintf(iface[n++].name, sizeof iface->name, "%s", ifa->ifa_name);
        }
        iface[i].loopback = (ifa->ifa_flags & IFF_LOOPBACK) != 0;
        if (grade > candidate[i].grade) {
            candidate[i].grade = grade;
            memcpy(&candidate[i].addr, ifa->ifa_addr,
                   grade == ADDRESS4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        }
    }
    return n;
}

/* Prefer interfaces with an address that needs no scope; else take any. */
static int choose(struct rondo_iface *iface, const struct candidate *candidate, int n, const char *rule)
{
    int chosen = 0;
    for (enum grade least = GLOBAL6; chosen == 0 && least >= LINK_LOCAL; least--) {
        for (int i = 0; i < n; i++) {
            iface[i].up = candidate[i].grade >= least;
        }
        chosen = rondo_ifaces_choose(iface, n, rule);
    }
    return chosen;
}

static void reason(char *text, size_t size, enum rondo_iface_class class, const char *rule)
{
    static const char *const of_class[] = {
        [RONDO_IFACE_NETWORK] = "it is up, has an address and is not a container network",
        [RONDO_IFACE_VIRTUAL] = "only networks of containers or virtual machines are up",
        [RONDO_IFACE_LOOP] = "only the loopback is up, which no other host can reach",
    };
    if (rule && rule[0]) {
        snprintf(text, size, "RONDO_SOCKET_IFNAME is \"%.64s\"", rule);
    } else {
        snprintf(text, size, "%s", of_class[class]);
    }
}

/* "" if the file is missing. */
static void sysfs_read(const char *name, const char *what, char text[SYSFS_TEXT])
{
    char path[64];
    text[0] = '\0';
    snprintf(path, sizeof path, "/sys/class/net/%s/%s", name, what);
    FILE *file = fopen(path, "re");
    if (file) {
        (void)!fgets(text, SYSFS_TEXT, file);
        fclose(file);
    }
}

static int32_t speed_of(const char *name)
{
    char text[SYSFS_TEXT];
    sysfs_read(name, "speed", text);
    long mbps = strtol(text, NULL, 10);
    return mbps > 0 && mbps <= MAX_MBPS ? (int32_t)mbps : DEFAULT_MBPS;
}

uint64_t rondo_socket_guid(const char *address)
{
    uint64_t guid = 0;
    for (; *address; address++) {
        const char *digits = "0123456789abcdef", *digit = strchr(digits, *address | 0x20);
        guid = digit ? guid << 4 | (uint64_t)(digit - digits) : guid;
    }
    return guid;
}

static void device_fill(struct rondo_socket_device *device, const struct rondo_iface *iface,
                        const union rondo_socket_addr *addr)
{
    char path[64], real[PATH_MAX], address[SYSFS_TEXT];
    memcpy(device->name, iface->name, sizeof device->name);
    snprintf(path, sizeof path, "/sys/class/net/%s/device", iface->name);
    if (realpath(path, real) && strlen(real) < sizeof device->pci_path) {
        memcpy(device->pci_path, real, strlen(real) + 1);
    }
    device->addr = *addr;
    rondo_socket_addr_text(device->text, addr);
    device->mbps = speed_of(iface->name);
    sysfs_read(iface->name, "address", address);
    device->guid = rondo_socket_guid(address);
    device->listener = device->epoll = -1;
}

static rondo_status devices_make(struct rondo_socket_device **device, const struct rondo_iface *iface,
                                 const struct candidate *candidate, int n, int chosen)
{
    int d = 0;
    const char *rule = rondo_params()->socket_ifname;
    RONDO_TRY(RONDO_NEW_ARRAY(*device, chosen, "the socket devices"));
    for (int i = 0; i < n; i++) {
        if (iface[i].chosen) {
            char text[128];
            device_fill(&(*device)[d], &iface[i], &candidate[i].addr);
            reason(text, sizeof text, rondo_iface_class(&iface[i]), rule);
            RONDO_INFO(RONDO_SUBSYS_NET, "net: socket device %d is %s at %s, %d Mbit/s: %s", d, iface[i].name,
                       (*device)[d].text, (*device)[d].mbps, text);
            d++;
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status find_in(struct rondo_socket_device **device, int *n, const struct ifaddrs *list,
                            char *why, size_t bytes)
{
    static const char *const family_name[] = { "", " IPv4", " IPv6" };
    const struct rondo_params *params = rondo_params();
    int family = params->socket_family;
    struct rondo_iface *iface = NULL;
    struct candidate *candidate = NULL;
    int count = 0;
    rondo_status status;
    for (const struct ifaddrs *ifa = list; ifa; ifa = ifa->ifa_next) {
        count++;
    }
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(iface, count, "the list of network interfaces"), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(candidate, count, "the list of network interfaces"), out);
    count = candidates_fill(iface, candidate, list, family);
    *n = choose(iface, candidate, count, params->socket_ifname);
    if (*n == 0) {
        snprintf(why, bytes, "no network interface that is up and has an%s address%s%.64s",
                 family_name[family], params->socket_ifname[0] ? " is chosen by RONDO_SOCKET_IFNAME=" : "",
                 params->socket_ifname);
    } else {
        status = devices_make(device, iface, candidate, count, *n);
    }
out:
    rondo_free(iface);
    rondo_free(candidate);
    return status;
}

rondo_status rondo_socket_find(struct rondo_socket_device **device, int *n, char *why, size_t bytes)
{
    struct ifaddrs *list;
    *device = NULL;
    *n = 0;
    RONDO_TRY(rondo_socket_congestion_check(rondo_params()->socket_congestion));
    if (getifaddrs(&list) != 0) {
        snprintf(why, bytes, "network interfaces cannot be listed (%m)");
        return RONDO_SUCCESS;
    }
    rondo_status status = find_in(device, n, list, why, bytes);
    freeifaddrs(list);
    return status;
}
