#include "base/cores.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cgroup.h"

enum {
    KERNEL_CORES =
        8192, /* more than any kernel supports: the affinity call refuses sets smaller than its own */
    TEXT_MAX = 4096,
};

static int is_set(const struct rondo_cores *cores, int core)
{
    return (int)(cores->bits[core / 64] >> (core % 64) & 1);
}

struct quota {
    int least; /* in cores; 0: no limit */
};

static int level_quota(void *arg, const char *directory, int version)
{
    struct quota *quota = arg;
    char text[64];
    long long us = 0, period = 0, cores;
    if (version == 2) {
        if (!rondo_cgroup_text(directory, "cpu.max", text, sizeof text) ||
            sscanf(text, "%lld %lld", &us, &period) != 2) { /* "max 100000" */
            return 0;
        }
    } else if (!rondo_cgroup_text(directory, "cpu.cfs_quota_us", text, sizeof text) ||
               sscanf(text, "%lld", &us) != 1 ||
               !rondo_cgroup_text(directory, "cpu.cfs_period_us", text, sizeof text) ||
               sscanf(text, "%lld", &period) != 1) {
        return 0;
    }
    cores = us > 0 && period > 0 ? (us - 1) / period + 1 : 0;
    if (cores > 0 && cores <= RONDO_MAX_CORES && (quota->least == 0 || cores < quota->least)) {
        quota->least = (int)cores;
    }
    return 0;
}

int rondo_cores_quota(const char *membership, const char *mount)
{
    struct quota quota = { 0 };
    rondo_cgroup_walk(membership, mount, "cpu", level_quota, &quota);
    return quota.least;
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

static int level_cpuset(void *arg, const char *directory, int version)
{
    char text[TEXT_MAX];
    if (version == 2) {
        return rondo_cgroup_text(directory, "cpuset.cpus.effective", text, sizeof text) &&
               list_parse(text, arg);
    }
    return (rondo_cgroup_text(directory, "cpuset.effective_cpus", text, sizeof text) &&
            list_parse(text, arg)) ||
           (rondo_cgroup_text(directory, "cpuset.cpus", text, sizeof text) && list_parse(text, arg));
}

int rondo_cores_cpuset(const char *membership, const char *mount, struct rondo_cores *cores)
{
    return rondo_cgroup_walk(membership, mount, "cpuset", level_cpuset, cores);
}

int rondo_cores_near(const char *directory, struct rondo_cores *cores)
{
    char path[PATH_MAX], text[TEXT_MAX];
    snprintf(path, sizeof path, "%.4000s/local_cpulist", directory);
    if (rondo_read_text(path, text, sizeof text) && list_parse(text, cores)) {
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

int rondo_cores_move(int core)
{
    size_t size = CPU_ALLOC_SIZE(KERNEL_CORES);
    cpu_set_t *own = CPU_ALLOC(KERNEL_CORES), *others = CPU_ALLOC(KERNEL_CORES);
    int here = sched_getcpu();
    int moved = own != NULL && others != NULL && here >= 0 && sched_getaffinity(0, size, own) == 0;
    if (moved) {
        memcpy(others, own, size);
        CPU_CLR_S((size_t)here, size, others);
        if (core >= 0) {
            int allowed = CPU_ISSET_S((size_t)core, size, own);
            CPU_ZERO_S(size, others);
            if (allowed) {
                CPU_SET_S((size_t)core, size, others);
            }
        }
        moved = CPU_COUNT_S(size, others) > 0 && sched_setaffinity(0, size, others) == 0;
        moved = moved && sched_setaffinity(0, size, own) == 0;
    }
    CPU_FREE(own);
    CPU_FREE(others);
    return moved ? 0 : -1;
}

int rondo_cores_emptier(const uint16_t *nthreads, int here)
{
    struct rondo_cores own;
    int best = -1;
    if (nthreads[here] < 2 || rondo_cores_affinity(&own) != 0) {
        return -1;
    }
    for (int core = 0; core < RONDO_MAX_CORES; core++) {
        if (is_set(&own, core) && (best < 0 || nthreads[core] < nthreads[best])) {
            best = core;
        }
    }
    return best >= 0 && nthreads[here] >= nthreads[best] + 2 ? best : -1;
}

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
    } else if (rondo_read_text("/proc/self/cgroup", membership, sizeof membership)) {
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
        if (!rondo_read_text(path, text, sizeof text) || !(comm = strchr(text, '(')) ||
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
        !rondo_read_text("/proc/self/cgroup", membership, sizeof membership)) {
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
