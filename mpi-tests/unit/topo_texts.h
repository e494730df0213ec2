/* Pieces of XML and a temporary directory for tests of topology files. Include it after cmocka.h. */
#ifndef RONDO_TEST_TOPO_TEXTS_H
#define RONDO_TEST_TOPO_TEXTS_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "topo/xml/xml.h"
#include "says.h"

#define assert_ok(call)                                                                    \
    do {                                                                                   \
        if ((call) != RONDO_SUCCESS) fail_msg("%s failed: %s", #call, rondo_error_text()); \
    } while (0)
#define PCI(busid, class) \
    "<pci busid=\"" busid "\" class=\"" class "\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">"
#define CPU                                                                                               \
    "<system version=\"1\">\n<cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"143\" " \
    "modelid=\"49\">\n"
#define END "</cpu></system>"
#define GPU_A PCI("0000:17:00.0", "0x030200") "<gpu dev=\"0\" sm=\"80\">"
#define GPU_B PCI("0000:18:00.0", "0x030200") "<gpu dev=\"1\" sm=\"80\">"
#define TO_A(n) "<nvlink target=\"0000:17:00.0\" count=\"" #n "\" tclass=\"0x030200\"/>"
#define TO_B(n) "<nvlink target=\"0000:18:00.0\" count=\"" #n "\" tclass=\"0x030200\"/>"
#define GPU_END "</gpu></pci>\n"

static inline rondo_status parse(struct rondo_machine *machine, const char *text)
{
    memset(machine, 0, sizeof *machine);
    return rondo_machine_parse(machine, text, strlen(text), "m.xml");
}

static inline const struct rondo_item *item_at(const struct rondo_machine *machine, enum rondo_item_kind kind,
                                               int n)
{
    int32_t item = rondo_machine_nth(machine, kind, n);
    assert_true(item >= 0);
    return &machine->item[item];
}

/* @return the head, n copies of the middle, and the tail. */
static inline char *repeat(const char *head, const char *middle, int n, const char *tail, size_t *bytes)
{
    char *text;
    size_t at = strlen(head), one = strlen(middle);
    *bytes = at + (size_t)n * one + strlen(tail);
    assert_ok(rondo_calloc(&text, *bytes + 1, 1, "the text of a test"));
    memcpy(text, head, at);
    for (int i = 0; i < n; i++, at += one) {
        memcpy(text + at, middle, one);
    }
    memcpy(text + at, tail, strlen(tail));
    return text;
}

static char directory[] = "/tmp/unit_topo_texts.XXXXXX";

static inline const char *path(const char *name)
{
    static char text[128];
    snprintf(text, sizeof text, "%s/%s", directory, name);
    return text;
}

static inline int files_here(void)
{
    int n = 0;
    DIR *dir = opendir(directory);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        n += entry->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}

static inline int directory_make(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static inline int directory_remove(void **state)
{
    (void)state;
    return rmdir(directory);
}

#endif
