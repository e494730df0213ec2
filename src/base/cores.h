/* Core sets: which cores this process may use (affinity and cgroup), as a fixed record that ranks can
 * exchange and unite. */
#ifndef RONDO_BASE_CORES_H
#define RONDO_BASE_CORES_H

#include "base/types.h"

enum { RONDO_MAX_CORES = 1024 };

struct rondo_cores {
    uint64_t bits[RONDO_MAX_CORES / 64];
};

/** The calling thread's allowed cores, cut to the cgroup's cpu quota (rounded up, the lowest ones kept). */
void rondo_cores_allowed(struct rondo_cores *cores);
int rondo_cores_count(const struct rondo_cores *cores);
void rondo_cores_unite(struct rondo_cores *cores, const struct rondo_cores *other);
/**
 * Cores' worth of time that the cgroup allows, rounded up; 0: no limit. The least of all levels, cgroup v1
 * and v2.
 * @param membership  text of /proc/self/cgroup;  @param mount  where the hierarchies are: /sys/fs/cgroup
 */
int rondo_cores_quota(const char *membership, const char *mount);
/**
 * The cores that a group may use, of the nearest level that tells (cgroup v1 and v2). @return 0: none tells.
 * @param membership, mount  as above
 */
int rondo_cores_cpuset(const char *membership, const char *mount, struct rondo_cores *cores);
/**
 * The cores that what started this process may use, shells between left out, as far as this process's cgroup
 * allows them: where they are more than its own, the launcher has bound it. Empty: unknown.
 */
void rondo_cores_launcher(struct rondo_cores *cores);
/** The cores on which the calling thread may run, whatever the quota. @return 0, or -1: not known, and none.
 */
int rondo_cores_affinity(struct rondo_cores *cores);
/** The cores near a device, as its directory in sysfs says (local_cpulist). @return 0: it does not, and none.
 */
int rondo_cores_near(const char *directory, struct rondo_cores *cores);
/** Of `cores` those of other too. */
void rondo_cores_intersect(struct rondo_cores *cores, const struct rondo_cores *other);
/** From now on the calling thread runs on these. @return 0, or -1 when it may run on none of them. */
int rondo_cores_bind(const struct rondo_cores *cores);
/** NUMA node of the lowest allowed core; -1 unknown. */
int rondo_cores_numa(const struct rondo_cores *cores);

#endif
