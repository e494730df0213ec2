/* Core sets: which cores this process may use (affinity and cgroup), as a fixed record that ranks can
 * exchange and unite. */
#ifndef RONDO_BASE_CORES_H
#define RONDO_BASE_CORES_H

#include "base/types.h"

enum { RONDO_MAX_CORES = 1024 };

struct rondo_cores {
    uint64_t bits[RONDO_MAX_CORES / 64];
};

/** The calling thread's allowed cores, reduced to the cgroup's cpu quota (rounded up; the lowest ones stay).
 */
void rondo_cores_allowed(struct rondo_cores *cores);
int rondo_cores_count(const struct rondo_cores *cores);
void rondo_cores_unite(struct rondo_cores *cores, const struct rondo_cores *other);
/**
 * The cgroup's cpu quota in cores, rounded up: the least of all levels, cgroup v1 and v2; 0: no limit.
 * @param membership  text of /proc/self/cgroup;  @param mount  where the hierarchies are: /sys/fs/cgroup
 */
int rondo_cores_quota(const char *membership, const char *mount);
/**
 * The cgroup's cpuset, from the nearest level that has one (cgroup v1 and v2). @return 0: none has.
 * @param membership, mount  as above
 */
int rondo_cores_cpuset(const char *membership, const char *mount, struct rondo_cores *cores);
/**
 * The cores that this process's launcher may use (shells in between are skipped), within this process's
 * cgroup. If they are more than its own cores, the launcher has bound it. Empty: unknown.
 */
void rondo_cores_launcher(struct rondo_cores *cores);
/** The calling thread's affinity, whatever the quota. @return 0, or -1 and no cores: unknown. */
int rondo_cores_affinity(struct rondo_cores *cores);
/** The cores near a device, from local_cpulist in its sysfs directory. @return 0 and no cores: unknown. */
int rondo_cores_near(const char *directory, struct rondo_cores *cores);
/** Keep those of `cores` that `other` has too. */
void rondo_cores_intersect(struct rondo_cores *cores, const struct rondo_cores *other);
/** Bind the calling thread to these cores. @return 0, or -1 if it may run on none of them. */
int rondo_cores_bind(const struct rondo_cores *cores);
/** Move the calling thread to that core, or to another than its own (core -1), if it may use one. Its
 * affinity stays as it is. Takes some 30 us. @return 0, or -1: it may not. */
int rondo_cores_move(int core);
/** Choose the core with the fewest threads among those that the calling thread may use. nthreads: of each of
 * RONDO_MAX_CORES cores. @return the core, or -1: moving from core `here` to it would not even them out. */
int rondo_cores_emptier(const uint16_t *nthreads, int here);

#endif
