#include "base/room.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/wait.h"

static const double MIB = 1 << 20;
static const int64_t trusted_ns = 100000000;
static const uint64_t unlimited = UINT64_C(1) << 60; /* version 1 has 2^63 less a page */
enum { TEXT_BYTES = 8192, SPARE = 1 << 20, PAGE_TABLES = 128 /* one byte for this many, and more */ };

/* Find "KEY 123" or "KEY: 123" at the start of a line. @return 0: it is not there. */
static int number_of(const char *text, const char *key, uint64_t *number)
{
    size_t n = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && (line[n] == ' ' || line[n] == ':')) {
            char *end;
            *number = strtoull(line + n + 1, &end, 10);
            return end > line + n + 1;
        }
    }
    return 0;
}

/* A file with one number. @return 0: it has none, such as "max". */
static int file_number(const char *directory, const char *file, uint64_t *number)
{
    char text[64], *end;
    if (!rondo_cgroup_text(directory, file, text, sizeof text)) {
        return 0;
    }
    *number = strtoull(text, &end, 10);
    return end > text && *number < unlimited;
}

static uint64_t rest(uint64_t limit, uint64_t used) { return limit > used ? limit - used : 0; }

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

struct search {
    struct rondo_room *room;
    uint64_t swap; /* free on the host */
};

/* Caches of files in a group: the kernel drops them for the group's other memory. */
static uint64_t caches(const char *directory, const char *prefix)
{
    char text[TEXT_BYTES], key[64];
    uint64_t active = 0, inactive = 0;
    rondo_cgroup_text(directory, "memory.stat", text, sizeof text);
    snprintf(key, sizeof key, "%sactive_file", prefix);
    number_of(text, key, &active);
    snprintf(key, sizeof key, "%sinactive_file", prefix);
    number_of(text, key, &inactive);
    return active + inactive;
}

/* Version 2 limits a group's swap space; the files do not exist in version 1. */
static uint64_t swap_of(const struct search *search, const char *directory)
{
    uint64_t limit, used = 0;
    if (!file_number(directory, "memory.swap.max", &limit)) {
        return search->swap;
    }
    file_number(directory, "memory.swap.current", &used);
    return least(rest(limit, used), search->swap);
}

static int level(void *arg, const char *directory, int version)
{
    struct search *search = arg;
    uint64_t limit, used, cached, bytes, both, both_used;
    if (!file_number(directory, version == 2 ? "memory.max" : "memory.limit_in_bytes", &limit) ||
        !file_number(directory, version == 2 ? "memory.current" : "memory.usage_in_bytes", &used)) {
        return 0;
    }
    cached = caches(directory, version == 2 ? "" : "total_");
    bytes = rest(limit + cached, used) + swap_of(search, directory);
    /* Version 1 has a limit of memory and swap together. */
    if (version == 1 && file_number(directory, "memory.memsw.limit_in_bytes", &both) &&
        file_number(directory, "memory.memsw.usage_in_bytes", &both_used)) {
        bytes = least(bytes, rest(both + cached, both_used));
    }
    if (bytes < search->room->bytes) {
        search->room->bytes = bytes;
        search->room->is_cgroup = 1;
        snprintf(search->room->limit, RONDO_ROOM_TEXT, "cgroup %.110s: %.1f of %.1f MiB left", directory,
                 (double)bytes / MIB, (double)limit / MIB);
    }
    return 0;
}

void rondo_room_find(const char *root, struct rondo_room *room)
{
    char path[PATH_MAX], text[TEXT_BYTES];
    uint64_t available, kib;
    struct search search = { .room = room };
    *room = (struct rondo_room){ .bytes = UINT64_MAX };
    snprintf(path, sizeof path, "%.2000s/proc/meminfo", root);
    if (rondo_read_text(path, text, sizeof text) && number_of(text, "MemAvailable", &available)) {
        search.swap = number_of(text, "SwapFree", &kib) ? kib * 1024 : 0;
        room->bytes = available * 1024 + search.swap;
        snprintf(room->limit, RONDO_ROOM_TEXT, "the host has %.1f MiB available", (double)room->bytes / MIB);
    }
    snprintf(path, sizeof path, "%.2000s/proc/self/cgroup", root);
    if (rondo_read_text(path, text, sizeof text)) {
        snprintf(path, sizeof path, "%.2000s/sys/fs/cgroup", root);
        rondo_cgroup_walk(text, path, "memory", level, &search);
    }
}

/* ---- reservations ---- */

static const char *room_root = "";
static _Thread_local struct {
    uint64_t bytes; /* granted without another look */
    int64_t until_ns;
} credit;

void rondo_room_set_root(const char *root)
{
    room_root = root;
    credit.until_ns = 0;
}

int rondo_room_for(size_t bytes, struct rondo_room *room)
{
    int64_t now = rondo_now_ns();
    uint64_t need = (uint64_t)bytes + bytes / PAGE_TABLES + SPARE;
    if (now < credit.until_ns && need <= credit.bytes) {
        credit.bytes -= need;
        return 1;
    }
    rondo_room_find(room_root, room);
    if (need > room->bytes) {
        return 0;
    }
    credit.bytes = (room->bytes - need) / 64;
    credit.until_ns = now + trusted_ns;
    return 1;
}
