#include "base/cores.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    KERNEL_CORES =
        8192, /* more than any kernel supports: the affinity call refuses sets smaller than its own */
    TEXT_MAX = 4096,
};

static int is_set(const struct rondo_cores *cores, int core)
{
    return (int)(cores->bits[core / 64] >> (core % 64) & 1);
}

/* Read the beginning of a small file, terminated. @return 0, or -1 if it cannot be read. */
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

/* The quota of one level of a hierarchy, in cores; 0: no limit. */
static int level_quota(const char *directory, int version)
{
    char path[PATH_MAX], text[64];
    long long quota = 0, period = 0, cores;
    if (version == 2) {
        snprintf(path, sizeof path, "%.4000s/cpu.max", directory);
        if (file_text(path, text, sizeof text) != 0 ||
            sscanf(text, "%lld %lld", &quota, &period) != 2) { /* "max 100000" */
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

static void group_directory(char directory[PATH_MAX], const char *root, const char *group)
{
    if (snprintf(directory, PATH_MAX, "%s%s", root, group) >= 4000 || strstr(group, "..")) {
        snprintf(directory, PATH_MAX, "%s", root);
    }
}

/*
 * Find the smallest quota from the group up to the hierarchy's root. Inside a container the path may be the
 * host's. Levels that do not exist here set no limit, and the root of the mount is the container's own group.
 */
static int hierarchy_quota(const char *root, const char *group, int version)
{
    char directory[PATH_MAX];
    size_t keep = strlen(root);
    int least = 0;
    group_directory(directory, root, group);
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
static int has_controller(const char *controllers, const char *name)
{
    for (;;) {
        size_t n = strcspn(controllers, ",");
        if (n == strlen(name) && strncmp(controllers, name, n) == 0) {
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
    if (!has_controller(controllers, "cpu")) {
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

/* "0-3,8" and a newline. @return 0: no list. */
static int list_parse(const char *text, struct rondo_cores *cores)
{
    memset(cores, 0, sizeof *cores);
    for (;;) {
        char *end;
        long first = strtol(text, &end, 10), last = first;
        if (end == text || first < 0) {
            return 0;
        }
        if (*end == '-') {
            last = strtol(end + 1, &end, 10);
        }
        for (long core = first; core <= last && core < RONDO_MAX_CORES; core++) {
            cores->bits[core / 64] |= UINT64_C(1) << (core % 64);
        }
        if (*end != ',') {
            return 1;
        }
        text = end + 1;
    }
}

static int hierarchy_cpuset(const char *root, const char *group, const char *name, struct rondo_cores *cores)
{
    char directory[PATH_MAX], path[PATH_MAX], text[TEXT_MAX], *slash;
    size_t keep = strlen(root);
    group_directory(directory, root, group);
    for (;;) {
        snprintf(path, sizeof path, "%.4000s/%s", directory, name);
        if (file_text(path, text, sizeof text) == 0 && list_parse(text, cores)) {
            return 1;
        }
        slash = strrchr(directory + keep, '/');
        if (!slash) {
            return 0;
        }
        *slash = '\0';
    }
}

static int line_cpuset(char *line, const char *mount, struct rondo_cores *cores)
{
    char root[PATH_MAX], *controllers = strchr(line, ':'), *group;
    if (!controllers || !(group = strchr(controllers + 1, ':'))) {
        return 0;
    }
    *group++ = '\0';
    controllers++;
    if (controllers[0] == '\0') {
        return hierarchy_cpuset(mount, group, "cpuset.cpus.effective", cores);
    }
    if (!has_controller(controllers, "cpuset")) {
        return 0;
    }
    snprintf(root, sizeof root, "%s/cpuset", mount);
    return hierarchy_cpuset(root, group, "cpuset.effective_cpus", cores) ||
           hierarchy_cpuset(root, group, "cpuset.cpus", cores);
}

int rondo_cores_cpuset(const char *membership, const char *mount, struct rondo_cores *cores)
{
    while (*membership) {
        char line[TEXT_MAX];
        size_t n = strcspn(membership, "\n");
        snprintf(line, sizeof line, "%.*s", (int)rondo_min_size(n, sizeof line - 1), membership);
        if (line_cpuset(line, mount, cores)) {
            return 1;
        }
        membership += n + (membership[n] == '\n');
    }
    return 0;
}

int rondo_cores_near(const char *directory, struct rondo_cores *cores)
{
    char path[PATH_MAX], text[TEXT_MAX];
    snprintf(path, sizeof path, "%.4000s/local_cpulist", directory);
    if (file_text(path, text, sizeof text) == 0 && list_parse(text, cores)) {
        return 1;
    }
    memset(cores, 0, sizeof *cores);
    return 0;
}

void rondo_cores_intersect(struct rondo_cores *cores, const struct rondo_cores *other)
{
    for (size_t i = 0; i < RONDO_COUNTOF(cores->bits); i++) {
        cores->bits[i] &= other->bits[i];
    }
}

int rondo_cores_bind(const struct rondo_cores *cores)
{
    cpu_set_t *set = CPU_ALLOC(RONDO_MAX_CORES);
    size_t size = CPU_ALLOC_SIZE(RONDO_MAX_CORES);
    if (set == NULL) {
        return -1;
    }
    CPU_ZERO_S(size, set);
    for (int core = 0; core < RONDO_MAX_CORES; core++) {
        if (is_set(cores, core)) {
            CPU_SET_S(core, size, set);
        }
    }
    int failed = sched_setaffinity(0, size, set);
    CPU_FREE(set);
    return failed;
}

/* The affinity of a process, 0: the calling thread. @return 0, or -1 if the kernel refuses. */
static int affinity(pid_t pid, struct rondo_cores *cores)
{
    cpu_set_t *set = CPU_ALLOC(KERNEL_CORES);
    size_t size = CPU_ALLOC_SIZE(KERNEL_CORES);
    int failed = !set || sched_getaffinity(pid, size, set) != 0;
    memset(cores, 0, sizeof *cores);
    for (int core = 0; core < RONDO_MAX_CORES && !failed; core++) {
        if (CPU_ISSET_S(core, size, set)) {
            cores->bits[core / 64] |= UINT64_C(1) << (core % 64);
        }
    }
    CPU_FREE(set);
    return failed ? -1 : 0;
}

int rondo_cores_affinity(struct rondo_cores *cores) { return affinity(0, cores); }

/* Keep the lowest cores. */
static void cut_to_quota(struct rondo_cores *cores, const char *membership)
{
    int left = rondo_cores_quota(membership, "/sys/fs/cgroup");
    for (int core = 0; core < RONDO_MAX_CORES && left > 0; core++) {
        if (is_set(cores, core) && --left == 0) {
            for (core++; core < RONDO_MAX_CORES; core++) {
                cores->bits[core / 64] &= ~(UINT64_C(1) << (core % 64));
            }
        }
    }
}

void rondo_cores_allowed(struct rondo_cores *cores)
{
    char membership[TEXT_MAX];
    if (affinity(0, cores) != 0) {
        cores->bits[0] = 1; /* a process runs on some core */
    } else if (file_text("/proc/self/cgroup", membership, sizeof membership) == 0) {
        cut_to_quota(cores, membership);
    }
}

/* Find the process that started this one, past a shell as in "mpirun sh -c". @return 0: unknown. */
static pid_t launcher_pid(void)
{
    static const char *const shells[] = { "sh", "bash", "dash", "ash", "ksh", "zsh", "csh", "tcsh" };
    pid_t pid = getppid();
    for (int depth = 0; depth < 8 && pid > 1; depth++) {
        char path[64], text[512], *comm, *end;
        int parent, is_shell = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        if (file_text(path, text, sizeof text) != 0 || !(comm = strchr(text, '(')) ||
            !(end = strrchr(text, ')')) || sscanf(end + 1, " %*c %d", &parent) != 1) {
            return 0;
        }
        *end = '\0';
        for (size_t i = 0; i < RONDO_COUNTOF(shells); i++) {
            is_shell |= strcmp(comm + 1, shells[i]) == 0;
        }
        if (!is_shell) {
            return pid;
        }
        pid = parent;
    }
    return 0;
}

void rondo_cores_launcher(struct rondo_cores *cores)
{
    struct rondo_cores group;
    char membership[TEXT_MAX];
    pid_t pid = launcher_pid();
    memset(cores, 0, sizeof *cores);
    if (pid <= 0 || affinity(pid, cores) != 0 ||
        file_text("/proc/self/cgroup", membership, sizeof membership) != 0) {
        return;
    }
    if (rondo_cores_cpuset(membership, "/sys/fs/cgroup", &group)) {
        for (size_t i = 0; i < RONDO_COUNTOF(group.bits); i++) {
            cores->bits[i] &= group.bits[i];
        }
    }
    cut_to_quota(cores, membership);
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
