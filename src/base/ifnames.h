/* Which network interfaces to use: the rules of RONDO_SOCKET_IFNAME, and the default. Pure functions. */
#ifndef RONDO_BASE_IFNAMES_H
#define RONDO_BASE_IFNAMES_H

enum { RONDO_IFACE_NAME = 16 }; /* the kernel's IFNAMSIZ */

/* In order of preference. */
enum rondo_iface_class {
    RONDO_IFACE_NETWORK,
    RONDO_IFACE_VIRTUAL /* made for containers or virtual machines */,
    RONDO_IFACE_LOOP
};

struct rondo_iface {
    char name[RONDO_IFACE_NAME];
    int up; /* up, running, and it has an address */
    int loopback;
    int chosen;
};

enum rondo_iface_class rondo_iface_class(const struct rondo_iface *iface);
/**
 * Mark the interfaces that a rule chooses: "eth,ib" prefixes, "=eth0" names, "^docker" all others, "^=eth0"
 * all but names; only those that are up. NULL or "": those of the best class that is up. @return how many
 */
int rondo_ifaces_choose(struct rondo_iface *iface, int n, const char *rule);

#endif
