/* The control groups of this process, versions 1 and 2. */
#ifndef RONDO_BASE_CGROUP_H
#define RONDO_BASE_CGROUP_H

#include <stddef.h>

/** Read the beginning of a small file, terminated. @return 0 and "": it cannot be read. */
int rondo_read_text(const char *path, char *text, size_t size);
/** The same with a file of a level. */
int rondo_cgroup_text(const char *directory, const char *file, char *text, size_t size);

/* version: of the hierarchy. @return 1: end the walk. */
typedef int rondo_cgroup_level(void *arg, const char *directory, int version);
/**
 * Visit the levels of the groups that have a controller, each from the process's own group up to the root of
 * the mount. Inside a container the path may be the host's: levels that do not exist here are visited, too,
 * and the root of the mount is the container's own group.
 * @param membership  text of /proc/self/cgroup;  @param mount  where the hierarchies are: /sys/fs/cgroup
 * @param controller  "cpu", "memory"
 * @return 1: a visit ended the walk
 */
int rondo_cgroup_walk(const char *membership, const char *mount, const char *controller,
                      rondo_cgroup_level *visit, void *arg);

#endif
