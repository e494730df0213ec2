/* Parsing and printing a machine's values: addresses, classes, speeds, architectures. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "topo/machine.h"

#define NAME_ROW(ctx, NAME, name) name,
static const char *const archs[] = { RONDO_TOPO_ARCH_TABLE(NAME_ROW, ) };
static const char *const vendors[] = { RONDO_TOPO_VENDOR_TABLE(NAME_ROW, ) };
#define SPEED_ROW(ctx, name, speed, mbs) { name, speed },
static const struct {
    const char *name;
    int32_t speed;
} speeds[] = { RONDO_TOPO_PCI_TABLE(SPEED_ROW, ) };

static const char *name_at(const char *const *names, size_t n, int value)
{
    return value >= 0 && (size_t)value < n ? names[value] : NULL;
}

static int name_find(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

const char *rondo_arch_name(int arch) { return name_at(archs, RONDO_COUNTOF(archs), arch); }
const char *rondo_vendor_name(int vendor) { return name_at(vendors, RONDO_COUNTOF(vendors), vendor); }
int rondo_arch_from_name(const char *name) { return name_find(archs, RONDO_COUNTOF(archs), name); }
int rondo_vendor_from_name(const char *name) { return name_find(vendors, RONDO_COUNTOF(vendors), name); }

/* ---- addresses ---- */

/* NCCL's spelling, which it compares as text. Other sources have other lengths and append a function. */
static const char hidden[] = "fffffff:ffff:ff";
enum { DEVICE_MAX = 0x1f };

static int is_hidden(const char *text)
{
    if (strspn(text, "fF") < 7) {
        return 0;
    }
    text += strspn(text, "fF:");
    return *text == '\0' || strcmp(text, ".0") == 0;
}

/* Read hexadecimal digits up to a separator. @return NULL if there are none or too many. */
static const char *digits_read(const char *text, int most, int64_t *value)
{
    int n = 0;
    for (*value = 0; isxdigit((unsigned char)*text); text++) {
        if (++n > most) {
            return NULL;
        }
        *value = *value << 4 | (isdigit((unsigned char)*text) ? *text - '0' : (*text | 0x20) - 'a' + 10);
    }
    return n ? text : NULL;
}

int64_t rondo_busid_parse(const char *text)
{
    int64_t part[3] = { 0, 0, 0 }, function;
    int colons = 0;
    if (!text) {
        return -1;
    }
    if (is_hidden(text)) {
        return RONDO_BUSID_HIDDEN;
    }
    for (const char *c = text; *c; c++) {
        colons += *c == ':';
    }
    if (colons != 1 && colons != 2) {
        return -1;
    }
    for (int i = 2 - colons; i < 3; i++) {
        text = digits_read(text, i == 0 ? 8 : 2, &part[i]);
        if (!text || *text++ != (i == 2 ? '.' : ':')) {
            return -1;
        }
    }
    text = digits_read(text, 1, &function);
    if (!text || *text || part[2] > DEVICE_MAX) {
        return -1;
    }
    return part[0] << 20 | part[1] << 12 | part[2] << 4 | function;
}

int rondo_busid_valid(int64_t busid)
{
    return busid >= 0 && busid >> 52 == 0 && (busid >> 4 & 0xff) <= DEVICE_MAX;
}

const char *rondo_busid_text(int64_t busid, char text[24])
{
    if (busid < 0) {
        snprintf(text, 24, "none");
    } else if (busid == RONDO_BUSID_HIDDEN) {
        snprintf(text, 24, "%s", hidden);
    } else {
        snprintf(text, 24, "%04" PRIx64 ":%02x:%02x.%x", (uint64_t)busid >> 20 & 0xffffffff,
                 (unsigned)(busid >> 12 & 0xff), (unsigned)(busid >> 4 & 0xff), (unsigned)(busid & 0xf));
    }
    return text;
}

/* ---- PCI ---- */

enum rondo_pci_kind rondo_pci_kind(uint32_t class_code)
{
    if (class_code >> 16 == 0x03) {
        return RONDO_PCI_GPU;
    }
    if (class_code >> 16 == 0x02) {
        return RONDO_PCI_NIC;
    }
    if (class_code == 0x068001) {
        return RONDO_PCI_NVLINK_CPU;
    }
    return class_code == 0x068000 ? RONDO_PCI_NVSWITCH : RONDO_PCI_BRIDGE;
}

static const char *blanks_skip(const char *text)
{
    while (isspace((unsigned char)*text)) {
        text++;
    }
    return text;
}

int32_t rondo_pci_speed_parse(const char *text)
{
    int32_t value = 0, digits = 0;
    text = blanks_skip(text);
    if (*text == '\0' || strncasecmp(text, "unknown", 7) == 0) {
        return 0;
    }
    for (; isdigit((unsigned char)*text) && digits < 5; text++, digits++) {
        value = 10 * value + *text - '0';
    }
    value *= 10;
    if (digits && *text == '.' && isdigit((unsigned char)text[1])) {
        value += text[1] - '0';
        for (text += 2; *text == '0'; text++) {
        }
    }
    text = blanks_skip(text);
    if (digits && value == 0 && *text == '\0') {
        return 0;
    }
    if (!digits || value > RONDO_PCI_MAX_SPEED || strncasecmp(text, "GT/s", 4) != 0) {
        return -1;
    }
    text = blanks_skip(text + 4);
    return *text == '\0' || strcasecmp(text, "PCIe") == 0 ? value : -1;
}

const char *rondo_pci_speed_text(int32_t speed, char text[24])
{
    for (size_t i = 0; i < RONDO_COUNTOF(speeds); i++) {
        if (speeds[i].speed == speed) {
            snprintf(text, 24, "%s", speeds[i].name);
            return text;
        }
    }
    if (speed <= 0) {
        text[0] = '\0';
    } else {
        snprintf(text, 24, "%d.%d GT/s", speed / 10, speed % 10);
    }
    return text;
}
