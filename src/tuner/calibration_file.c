/* The cache of calibrations: a small text file for each kind of host. */
#include "tuner/calibration.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "rondo.h"

enum { MOST_TEXT = 2048 };
static const char magic[] = "rondo-calibration 2\n";

/* ---- the key ---- */

/* The value of the first line of /proc/cpuinfo that begins so. */
static void cpu_line(FILE *file, const char *begin, char *value, size_t size)
{
    char line[256];
    value[0] = '\0';
    rewind(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, begin, strlen(begin)) == 0 && colon != NULL) {
            snprintf(value, size, "%s", colon + 1 + strspn(colon + 1, " \t"));
            value[strcspn(value, "\n")] = '\0';
            return;
        }
    }
}

void rondo_calibration_cpu(FILE *cpuinfo, char cpu[RONDO_CALIBRATION_CPU])
{
    char name[96], family[16], model[16];
    cpu_line(cpuinfo, "model name", name, sizeof(name));
    cpu_line(cpuinfo, "cpu family", family, sizeof(family));
    cpu_line(cpuinfo, "model\t", model, sizeof(model));
    if (name[0] == '\0' && model[0] == '\0') { /* Arm has numbers only */
        cpu_line(cpuinfo, "CPU implementer", name, sizeof(name));
        cpu_line(cpuinfo, "CPU part", family, sizeof(family));
        cpu_line(cpuinfo, "CPU variant", model, sizeof(model));
        snprintf(cpu, RONDO_CALIBRATION_CPU, "implementer %.16s, part %s, variant %s", name, family, model);
    } else {
        snprintf(cpu, RONDO_CALIBRATION_CPU, "%.64s, family %s, model %s", name, family, model);
    }
}

const char *rondo_calibration_key(const char *placement, char key[RONDO_CALIBRATION_KEY])
{
    struct utsname host;
    char cpu[RONDO_CALIBRATION_CPU] = "unknown CPU";
    FILE *file = fopen("/proc/cpuinfo", "re");
    int version = 0;
    if (file != NULL) {
        rondo_calibration_cpu(file, cpu);
        fclose(file);
    }
    if (uname(&host) != 0) {
        memset(&host, 0, sizeof(host));
    }
    (void)rondo_get_version(&version);
    snprintf(key, RONDO_CALIBRATION_KEY, "%s, %.16s; %ld cores; %.48s; Rondo %d; cores %s", cpu, host.machine,
             sysconf(_SC_NPROCESSORS_ONLN), host.release, version, placement);
    return key;
}

/* ---- where ---- */

/* The folder, or its parent. @return 0: the user has none. */
static int folder_of(char path[PATH_MAX], int parent)
{
    const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    int n = cache != NULL && cache[0] == '/' ? snprintf(path, PATH_MAX, "%s", cache)
            : home != NULL && home[0] == '/' ? snprintf(path, PATH_MAX, "%s/.cache", home)
                                             : 0;
    if (n <= 0 || n >= PATH_MAX - 64) {
        return 0;
    }
    if (!parent) {
        memcpy(path + n, "/rondo", sizeof("/rondo"));
    }
    return 1;
}

static int file_of(const char *key, char path[PATH_MAX])
{
    size_t n;
    if (!folder_of(path, 0)) {
        return 0;
    }
    n = strlen(path);
    snprintf(path + n, PATH_MAX - n, "/host-%016" PRIx64, rondo_hash(key, strlen(key), 0));
    return 1;
}

/* ---- the content ---- */

static size_t print(const char *key, const struct rondo_calibration *c, char text[MOST_TEXT])
{
    size_t n = (size_t)snprintf(text, MOST_TEXT, "%skey %s\n", magic, key);
#define ROW(ctx, name, ...) \
    n += (size_t)snprintf(text + n, MOST_TEXT - n, "%s %" PRIu32 "\n", #name, c->name);
    RONDO_CALIBRATION_TABLE(ROW, )
#undef ROW
    n += (size_t)snprintf(text + n, MOST_TEXT - n, "end %016" PRIx64 "\n", rondo_hash(text, n, 0));
    return n;
}

/* Read "NAME NUMBER\n" at *at and step over it. */
static int parse_row(const char **at, const char *name, uint32_t *value)
{
    size_t n = strlen(name);
    unsigned long long number;
    char *end;
    if (strncmp(*at, name, n) != 0 || (*at)[n] != ' ' || (*at)[n + 1] < '0' || (*at)[n + 1] > '9') {
        return 0;
    }
    errno = 0;
    number = strtoull(*at + n + 1, &end, 10);
    if (errno != 0 || number > UINT32_MAX || *end != '\n') {
        return 0;
    }
    *value = (uint32_t)number;
    *at = end + 1;
    return 1;
}

int rondo_calibration_parse(const char *text, const char *key, struct rondo_calibration *c, const char **why)
{
    struct rondo_calibration read;
    const char *at = text;
    char end[32];
    size_t n = strlen(key);
    *why = "it was not written by this version of Rondo";
    if (strncmp(at, magic, sizeof(magic) - 1) != 0) {
        return 0;
    }
    at += sizeof(magic) - 1;
    if (strncmp(at, "key ", 4) != 0 || strncmp(at + 4, key, n) != 0 || at[4 + n] != '\n') {
        *why = "it is of another host";
        return 0;
    }
    at += 4 + n + 1;
    *why = "it is damaged";
#define ROW(ctx, name, ...) \
    if (!parse_row(&at, #name, &read.name)) return 0;
    RONDO_CALIBRATION_TABLE(ROW, )
#undef ROW
    snprintf(end, sizeof(end), "end %016" PRIx64 "\n", rondo_hash(text, (size_t)(at - text), 0));
    if (strcmp(at, end) != 0) {
        return 0;
    }
    *why = "its numbers are impossible";
    if (!rondo_calibration_known(&read) || !rondo_calibration_valid(&read)) {
        return 0;
    }
    *c = read;
    return 1;
}

/* ---- reading and writing ---- */

/* @return bytes; 0: there is no file, or *why it is not read. */
static size_t read_text(const char *path, char text[MOST_TEXT], const char **why)
{
    struct stat info;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    *why = fd >= 0 || errno == ENOENT || errno == ENOTDIR ? NULL : strerror(errno);
    if (fd < 0) {
        return 0;
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        *why = "it is no plain file";
    } else if (info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        *why = "others can write it";
    } else if (info.st_size >= MOST_TEXT) {
        *why = "it is too long";
    }
    n = *why == NULL ? read(fd, text, MOST_TEXT - 1) : 0;
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    if (*why == NULL && (n <= 0 || strlen(text) != (size_t)n)) {
        *why = "it is damaged";
        return 0;
    }
    return n > 0 ? (size_t)n : 0;
}

int rondo_calibration_read(const char *key, struct rondo_calibration *c)
{
    char path[PATH_MAX], text[MOST_TEXT];
    const char *why = NULL;
    if (!file_of(key, path)) {
        return 0;
    }
    if (read_text(path, text, &why) > 0 && rondo_calibration_parse(text, key, c, &why)) {
        return 1;
    }
    if (why != NULL) {
        RONDO_WARN("the calibration in %s is ignored: %s; it is measured again", path, why);
    }
    return 0;
}

static int write_whole(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t wrote = write(fd, text, n);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            return 0;
        }
        text += wrote;
        n -= (size_t)wrote;
    }
    return 1;
}

void rondo_calibration_write(const char *key, const struct rondo_calibration *c)
{
    char path[PATH_MAX], folder[PATH_MAX], part[PATH_MAX + 32], text[MOST_TEXT];
    size_t n = print(key, c, text);
    int fd, ok;
    if (!file_of(key, path) || !folder_of(folder, 1)) {
        return;
    }
    (void)mkdir(folder, 0700); /* both may exist */
    (void)folder_of(folder, 0);
    (void)mkdir(folder, 0700);
    snprintf(part, sizeof(part), "%s.%d.part", path, (int)getpid());
    (void)unlink(part); /* of a process that had this number */
    fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    ok = fd >= 0 && write_whole(fd, text, n);
    ok = (fd < 0 || close(fd) == 0) && ok && rename(part, path) == 0;
    if (!ok) {
        RONDO_INFO(RONDO_SUBSYS_TUNING, "the calibration is not kept in %s: %m", path);
        if (fd >= 0) {
            (void)unlink(part);
        }
    }
}
