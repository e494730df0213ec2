#include "base/cores.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    KERNEL_CORES = 8192, /* more than any kernel is built for: the affinity call refuses smaller sets than the kernel's */
    TEXT_MAX = 4096,
};

static int is_set(const struct rondo_cores *cores, int core) { return (int)(cores->bits[core / 64] >> (core % 64) & 1); }

/* The beginning of a small file, terminated. @return 0, or -1 when it cannot be read. */
static int file_text(const char *path, char *text, size_t size)
{
    ssize_t got = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, text, size - 1);
        close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
    return got < 0 ? -1 : 0;
}

/* Cores of one level of a hierarchy; 0: no limit there. */
static int level_quota(const char *directory, int version)
{
    char path[PATH_MAX], text[64];
    long long quota = 0, period = 0, cores;
    if (version == 2) {
        snprintf(path, sizeof path, "%.4000s/cpu.max", directory);
        if (file_text(path, text, sizeof text) != 0 || sscanf(text, "%lld %lld", &quota, &period) != 2) { /* "max 100000" */
            return 0;
        }
    } else {
        snprintf(path, sizeof path, "%.4000s/cpu.cfs_quota_us", directory);
        if (file_text(path, text, sizeof text) != 0 || sscanf(text, "%lld", &quota) != 1) {
            return 0;
        }
        snprintf(path, sizeof path, "%.4000s/cpu.cfs_period_us", directory);
        if (file_text(path, text, sizeof text) != 0 || sscanf(text, "%lld", &period) != 1) {
            return 0;
        }
    }
    if (quota <= 0 || period <= 0) {
        return 0;
    }
    cores = (quota - 1) / period + 1;
    return cores > RONDO_MAX_CORES ? 0 : (int)cores;
}

/*
 * The least quota from the group up to the hierarchy's root. Inside a container the path may be the host's and not exist here: the levels
 * that do not exist say nothing, and the root of the mount is the container's own group.
 */
static int hierarchy_quota(const char *root, const char *group, int version)
{
    char directory[PATH_MAX];
    size_t keep = strlen(root);
    int least = 0;
    if (snprintf(directory, sizeof directory, "%s%s", root, group) >= 4000 || strstr(group, "..")) {
        snprintf(directory, sizeof directory, "%s", root);
    }
    for (;;) {
        int quota = level_quota(directory, version);
        char *slash = strrchr(directory + keep, '/');
        least = quota > 0 && (least == 0 || quota < least) ? quota : least;
        if (!slash) {
            return least;
        }
        *slash = '\0';
    }
}

/* Is "cpu" one of the controllers of "cpu,cpuacct"? */
static int has_cpu(const char *controllers)
{
    for (;;) {
        size_t n = strcspn(controllers, ",");
        if (n == 3 && strncmp(controllers, "cpu", 3) == 0) {
            return 1;
        }
        if (controllers[n] == '\0') {
            return 0;
        }
        controllers += n + 1;
    }
}

/* One line of /proc/self/cgroup: "0::/group" (v2), "4:cpu,cpuacct:/group" (v1). */
static int line_quota(char *line, const char *mount)
{
    char root[PATH_MAX], *controllers = strchr(line, ':'), *group;
    if (!controllers || !(group = strchr(controllers + 1, ':'))) {
        return 0;
    }
    *group++ = '\0';
    controllers++;
    if (controllers[0] == '\0') {
        int quota = hierarchy_quota(mount, group, 2);
        snprintf(root, sizeof root, "%s/unified", mount);
        return quota ? quota : hierarchy_quota(root, group, 2);
    }
    if (!has_cpu(controllers)) {
        return 0;
    }
    snprintf(root, sizeof root, "%s/%.256s", mount, controllers);
    if (access(root, F_OK) != 0) {
        snprintf(root, sizeof root, "%s/cpu", mount);
    }
    return hierarchy_quota(root, group, 1);
}

int rondo_cores_quota(const char *membership, const char *mount)
{
    int least = 0;
    while (*membership) {
        char line[TEXT_MAX];
        size_t n = strcspn(membership, "\n");
        int quota;
        snprintf(line, sizeof line, "%.*s", (int)rondo_min_size(n, sizeof line - 1), membership);
        quota = line_quota(line, mount);
        least = quota > 0 && (least == 0 || quota < least) ? quota : least;
        membership += n + (membership[n] == '\n');
    }
    return least;
}

void rondo_cores_allowed(struct rondo_cores *cores)
{
    cpu_set_t *set = CPU_ALLOC(KERNEL_CORES);
    size_t size = CPU_ALLOC_SIZE(KERNEL_CORES);
    char membership[TEXT_MAX];
    int left = 0;

    memset(cores, 0, sizeof *cores);
    if (!set || sched_getaffinity(0, size, set) != 0) {
        cores->bits[0] = 1; /* a process runs on some core */
        CPU_FREE(set);
        return;
    }
    if (file_text("/proc/self/cgroup", membership, sizeof membership) == 0) {
        left = rondo_cores_quota(membership, "/sys/fs/cgroup");
    }
    left = left > 0 ? left : RONDO_MAX_CORES;
    for (int core = 0; core < RONDO_MAX_CORES && left > 0; core++) {
        if (CPU_ISSET_S(core, size, set)) {
            cores->bits[core / 64] |= UINT64_C(1) << (core % 64);
            left--;
        }
    }
    CPU_FREE(set);
}

int rondo_cores_count(const struct rondo_cores *cores)
{
    int count = 0;
    for (size_t i = 0; i < RONDO_COUNTOF(cores->bits); i++) {
        count += __builtin_popcountll(cores->bits[i]);
    }
    return count;
}

void rondo_cores_unite(struct rondo_cores *cores, const struct rondo_cores *other)
{
    for (size_t i = 0; i < RONDO_COUNTOF(cores->bits); i++) {
        cores->bits[i] |= other->bits[i];
    }
}

int rondo_cores_numa(const struct rondo_cores *cores)
{
    char path[64];
    int core = 0, node = -1;
    struct dirent *entry;
    DIR *directory;
    while (core < RONDO_MAX_CORES && !is_set(cores, core)) {
        core++;
    }
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d", core);
    directory = opendir(path);
    while (directory && node < 0 && (entry = readdir(directory)) != NULL) {
        char rest;
        if (sscanf(entry->d_name, "node%d%c", &node, &rest) != 1) {
            node = -1;
        }
    }
    if (directory) {
        closedir(directory);
    }
    return node;
}
