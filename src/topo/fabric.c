/* Sort keys of nodes from the scheduler's description of the network. */
#include "topo/stitch.h"

#include <string.h>
#include "base/mem.h"

enum { LEVELS = 3, LEVEL_BITS = 21, NUMBER_BITS = 12 };

/*
 * Encode a switch's name in LEVEL_BITS: for "leaf12" a hash of "leaf", then 12, so that numbered neighbours
 * sort together; for a name without a small number at its end, a hash of all of it. A collision only costs
 * order.
 */
static uint64_t level_value(const char *name, size_t length)
{
    size_t digits = 0;
    uint64_t number = 0;
    while (digits < length && name[length - 1 - digits] >= '0' && name[length - 1 - digits] <= '9') {
        digits++;
    }
    for (size_t i = length - digits; i < length && number >> NUMBER_BITS == 0; i++) {
        number = number * 10 + (uint64_t)(name[i] - '0');
    }
    if (digits == 0 || number >> NUMBER_BITS != 0) {
        return rondo_hash(name, length, 0) >> (64 - LEVEL_BITS);
    }
    return rondo_hash(name, length - digits, 0) >> (64 - LEVEL_BITS + NUMBER_BITS) << NUMBER_BITS | number;
}

/* The topmost switch has the high bits. If there are too many levels, the topmost ones, which say least,
 * are dropped. The last name is the node's own. */
uint64_t rondo_fabric_key(const char *slurm_topology_addr)
{
    const char *name = slurm_topology_addr, *dot;
    uint64_t key = 0;
    int nlevels = 0, level = 0;
    for (dot = name == NULL ? NULL : strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        nlevels++;
    }
    if (nlevels == 0) {
        return 0;
    }
    for (int skip = nlevels > LEVELS ? nlevels - LEVELS : 0; level < LEVELS; level++) {
        key <<= LEVEL_BITS;
        if (level >= nlevels) {
            continue;
        }
        for (dot = strchr(name, '.'); skip > 0; skip--) {
            dot = strchr(dot + 1, '.');
        }
        key |= level_value(name, (size_t)(dot - name));
        name = dot + 1;
    }
    return key << 1 | 1;
}
