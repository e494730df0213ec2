#include "base/cgroup.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/types.h"

enum { LINE_MAX_BYTES = 4096, MOST_PATH = 4000 /* leaves room for a file's name */ };

int rondo_read_text(const char *path, char *text, size_t size)
{
    ssize_t got = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, text, size - 1);
        close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
    return got >= 0;
}

int rondo_cgroup_text(const char *directory, const char *file, char *text, size_t size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.4000s/%s", directory, file);
    return rondo_read_text(path, text, size);
}

static int walk_up(const char *root, const char *group, int version, rondo_cgroup_level *visit, void *arg)
{
    char directory[PATH_MAX];
    size_t keep = strlen(root);
    if (snprintf(directory, sizeof directory, "%s%s", root, group) >= MOST_PATH || strstr(group, "..")) {
        snprintf(directory, sizeof directory, "%s", root);
    }
    for (;;) {
        char *slash = strrchr(directory + keep, '/');
        if (slash == NULL || slash[1] != '\0') { /* "/" is the root's group */
            if (visit(arg, directory, version)) {
                return 1;
            }
        }
        if (slash == NULL) {
            return 0;
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
static int walk_line(char *line, const char *mount, const char *controller, rondo_cgroup_level *visit,
                     void *arg)
{
    char root[PATH_MAX], *controllers = strchr(line, ':'), *group;
    if (!controllers || !(group = strchr(controllers + 1, ':'))) {
        return 0;
    }
    *group++ = '\0';
    controllers++;
    if (controllers[0] == '\0') {
        snprintf(root, sizeof root, "%s/unified", mount);
        return walk_up(mount, group, 2, visit, arg) || walk_up(root, group, 2, visit, arg);
    }
    if (!has_controller(controllers, controller)) {
        return 0;
    }
    snprintf(root, sizeof root, "%s/%.256s", mount, controllers);
    if (access(root, F_OK) != 0) {
        snprintf(root, sizeof root, "%s/%s", mount, controller);
    }
    return walk_up(root, group, 1, visit, arg);
}

int rondo_cgroup_walk(const char *membership, const char *mount, const char *controller,
                      rondo_cgroup_level *visit, void *arg)
{
    while (*membership) {
        char line[LINE_MAX_BYTES];
        size_t n = strcspn(membership, "\n");
        snprintf(line, sizeof line, "%.*s", (int)rondo_min_size(n, sizeof line - 1), membership);
        if (walk_line(line, mount, controller, visit, arg)) {
            return 1;
        }
        membership += n + (membership[n] == '\n');
    }
    return 0;
}
