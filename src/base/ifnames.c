#include "base/ifnames.h"

#include <string.h>

static int rule_matches(const char *list, int exact, const char *name)
{
    while (*list) {
        size_t length = strcspn(list, ",");
        if (length > 0 && strncmp(list, name, length) == 0 && (!exact || name[length] == '\0')) {
            return 1;
        }
        list += length + (list[length] == ',');
    }
    return 0;
}

enum rondo_iface_class rondo_iface_class(const struct rondo_iface *iface)
{
    if (iface->loopback) {
        return RONDO_IFACE_LOOP;
    }
    return rule_matches("docker,virbr,veth,br-,cni,flannel,cali", 0, iface->name) ? RONDO_IFACE_VIRTUAL
                                                                                  : RONDO_IFACE_NETWORK;
}

int rondo_ifaces_choose(struct rondo_iface *iface, int n, const char *rule)
{
    int chosen = 0, given = rule && rule[0];
    int inverse = given && *rule == '^';
    enum rondo_iface_class best = RONDO_IFACE_LOOP;
    rule += inverse;
    int exact = given && *rule == '=';
    rule += exact;
    for (int i = 0; i < n; i++) {
        enum rondo_iface_class class = iface[i].up ? rondo_iface_class(&iface[i]) : RONDO_IFACE_LOOP;
        best = class < best ? class : best;
    }
    for (int i = 0; i < n; i++) {
        iface[i].chosen = iface[i].up && (given ? rule_matches(rule, exact, iface[i].name) != inverse
                                                : rondo_iface_class(&iface[i]) == best);
        chosen += iface[i].chosen;
    }
    return chosen;
}
