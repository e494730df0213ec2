#include "topo/machine_field.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"

/* NCCL reads values of up to 254 bytes, which is this many words of a core set. */
enum { WORDS = RONDO_MAX_CORES / 32, LOW_WORDS = 28 };
enum { MAX_INDEX = 65535, MAX_MBPS = RONDO_MACHINE_MAX_MBS * 8, MAX_US = 1000000 };

/* clang-format off */
#define FIELD(KIND, part, member, name, TYPE, flags, unknown, min, max)     \
    { name, RONDO_ITEM_##KIND, RONDO_FIELD_##TYPE, flags, sizeof(((struct rondo_item *)0)->part.member),   \
      offsetof(struct rondo_item, part.member), unknown, min, max }
#define REQUIRED RONDO_FIELD_REQUIRED
#define IDENTITY RONDO_FIELD_IDENTITY
#define OPTIONAL RONDO_FIELD_OPTIONAL

/* Every field of cpu and pci is written: NCCL fills missing ones in from the machine it runs on and then
 * no longer recognizes its own items. */
static const struct rondo_field fields[] = {
    FIELD(CPU, cpu, host_hash, "host_hash", HEX, IDENTITY, 0, 0, -1),
    FIELD(CPU, cpu, numa, "numaid", INT, REQUIRED, -1, -1, MAX_INDEX),
    FIELD(CPU, cpu, cores, "affinity", CORES, 0, 0, 0, 0),
    FIELD(CPU, cpu, cores, "affinity_high", CORES_HIGH, OPTIONAL, 0, 0, 0),
    FIELD(CPU, cpu, arch, "arch", ARCH, 0, -1, -1, RONDO_NUM_ARCHS - 1),
    FIELD(CPU, cpu, vendor, "vendor", VENDOR, 0, -1, -1, RONDO_NUM_VENDORS - 1),
    FIELD(CPU, cpu, family, "familyid", INT, 0, 0, -1, INT32_MAX),
    FIELD(CPU, cpu, model, "modelid", INT, 0, 0, -1, INT32_MAX),
    FIELD(CPU, cpu, package, "package", INT, OPTIONAL, -1, -1, MAX_INDEX),
    FIELD(PCI, pci, busid, "busid", BUSID, REQUIRED, -1, 0, 0),
    FIELD(PCI, pci, class_code, "class", HEX, REQUIRED, 0, 0, 0xffffff),
    FIELD(PCI, pci, vendor, "vendor", HEX, 0, 0, 0, 0xffff),
    FIELD(PCI, pci, device, "device", HEX, 0, 0, 0, 0xffff),
    FIELD(PCI, pci, subsystem_vendor, "subsystem_vendor", HEX, 0, 0, 0, 0xffff),
    FIELD(PCI, pci, subsystem_device, "subsystem_device", HEX, 0, 0, 0, 0xffff),
    FIELD(PCI, pci, speed, "link_speed", SPEED, 0, 0, 0, RONDO_PCI_MAX_SPEED),
    FIELD(PCI, pci, width, "link_width", INT, 0, 0, 0, 64),
    FIELD(GPU, gpu, dev, "dev", INT, 0, -1, 0, MAX_INDEX),
    FIELD(GPU, gpu, sm, "sm", INT, OPTIONAL, 0, 0, 9999),
    FIELD(GPU, gpu, rank, "rank", INT, IDENTITY | OPTIONAL, -1, -1, INT32_MAX),
    FIELD(GPU, gpu, gdr, "gdr", INT, OPTIONAL, -1, -1, 1),
    FIELD(GPU, gpu, no_p2p, "nop2p", HEX, OPTIONAL, 0, 0, -1),
    FIELD(GPU, gpu, uuid, "uuid", UUID, IDENTITY | OPTIONAL, 0, 0, 0),
    FIELD(GPU, gpu, name, "name", NAME, OPTIONAL, 0, 0, 0),
    FIELD(NET, net, name, "name", NAME, 0, 0, 0, 0),
    FIELD(NET, net, dev, "dev", INT, 0, -1, 0, MAX_INDEX),
    FIELD(NET, net, latency, "latency", REAL, OPTIONAL, 0, 0, MAX_US),
    FIELD(NET, net, mbps, "speed", INT, 0, 0, -1, MAX_MBPS),
    FIELD(NET, net, port, "port", INT, 0, 0, 0, MAX_INDEX),
    FIELD(NET, net, rail, "rail", INT, OPTIONAL, -1, -1, MAX_INDEX),
    FIELD(NET, net, plane, "plane", INT, OPTIONAL, -1, -1, MAX_INDEX),
    FIELD(NET, net, guid, "guid", HEX, IDENTITY, 0, 0, -1),
    FIELD(NET, net, maxconn, "maxconn", INT, OPTIONAL, 0, 0, INT32_MAX),
    FIELD(NET, net, gdr, "gdr", INT, OPTIONAL, -1, -1, 1),
    FIELD(NET, net, coll, "coll", INT, OPTIONAL, -1, -1, 1),
    FIELD(NET, net, keep, "keep", INT, OPTIONAL, -1, -1, 1),
    FIELD(NVLINK, nvlink, target, "target", TARGET, REQUIRED, -1, 0, 0),
    FIELD(NVLINK, nvlink, count, "count", INT, REQUIRED, 0, 1, RONDO_MACHINE_MAX_NVLINKS),
    FIELD(NVLINK, nvlink, tclass, "tclass", HEX, OPTIONAL, 0, 0, 0xffffff),
    FIELD(C2C, c2c, mbs, "bw", INT, REQUIRED, 0, 1, RONDO_MACHINE_MAX_MBS),
    FIELD(C2C, c2c, count, "count", INT, REQUIRED, 0, 1, 1024),
    FIELD(PCILINK, pcilink, target, "target", BUSID, REQUIRED, -1, 0, 0),
    FIELD(CACHE, cache, level, "level", INT, REQUIRED, 0, 1, 9),
    FIELD(CACHE, cache, bytes, "size", INT, 0, 0, 0, INT64_C(1) << 50),
    FIELD(CACHE, cache, cores, "affinity", CORES, 0, 0, 0, 0),
    FIELD(CACHE, cache, cores, "affinity_high", CORES_HIGH, OPTIONAL, 0, 0, 0),
};
/* clang-format on */

const struct rondo_field *rondo_fields(enum rondo_item_kind kind, int *n)
{
    const struct rondo_field *first = NULL;
    *n = 0;
    for (size_t i = 0; i < RONDO_COUNTOF(fields); i++) {
        if (fields[i].kind == kind) {
            first = first ? first : &fields[i];
            ++*n;
        }
    }
    return first;
}

static const void *member(const struct rondo_field *field, const struct rondo_item *item)
{
    return (const char *)item + field->offset;
}

/* Numbers of any width; hexadecimal ones are unsigned. */
static int64_t number_get(const struct rondo_field *field, const struct rondo_item *item)
{
    const void *at = member(field, item);
    switch (field->bytes) {
    case 2: return *(const uint16_t *)at;
    case 4:
        return field->type == RONDO_FIELD_HEX ? (int64_t) * (const uint32_t *)at
                                              : (int64_t) * (const int32_t *)at;
    default: return *(const int64_t *)at;
    }
}

static void number_set(const struct rondo_field *field, struct rondo_item *item, int64_t value)
{
    void *at = (char *)item + field->offset;
    switch (field->bytes) {
    case 2: *(uint16_t *)at = (uint16_t)value; break;
    case 4: *(uint32_t *)at = (uint32_t)value; break;
    default: *(int64_t *)at = value; break;
    }
}

static int all_zero(const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (((const uint8_t *)data)[i]) {
            return 0;
        }
    }
    return 1;
}

int rondo_field_known(const struct rondo_field *field, const struct rondo_item *item)
{
    switch (field->type) {
    case RONDO_FIELD_NAME: return *(const char *)member(field, item) != '\0';
    case RONDO_FIELD_CORES_HIGH:
        return !all_zero((const char *)member(field, item) + 4 * LOW_WORDS, 4 * (WORDS - LOW_WORDS));
    case RONDO_FIELD_CORES:
    case RONDO_FIELD_UUID: return !all_zero(member(field, item), field->bytes);
    case RONDO_FIELD_REAL: return *(const double *)member(field, item) != 0;
    default: return number_get(field, item) != field->unknown;
    }
}

/* ---- to text ---- */

static void cores_text(const struct rondo_cores *cores, int first, int last, char *text)
{
    int word = last - 1, at = 0;
    while (word > first && (uint32_t)(cores->bits[word / 2] >> (word % 2 * 32)) == 0) {
        word--;
    }
    for (; word >= first; word--) {
        at += snprintf(text + at, (size_t)(RONDO_FIELD_TEXT - at), "%08" PRIx32 "%s",
                       (uint32_t)(cores->bits[word / 2] >> (word % 2 * 32)), word > first ? "," : "");
    }
}

static void uuid_text(const uint8_t *uuid, char *text)
{
    int at = snprintf(text, RONDO_FIELD_TEXT, "GPU");
    for (int i = 0; i < 16; i++) {
        int dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
        at += snprintf(text + at, (size_t)(RONDO_FIELD_TEXT - at), "%s%02x", dash ? "-" : "", uuid[i]);
    }
}

/* With a decimal point in every locale. */
static void real_text(double value, char *text)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", NULL), old = plain ? uselocale(plain) : NULL;
    int digits = 0;
    do { /* the shortest text that reads back equal */
        snprintf(text, RONDO_FIELD_TEXT, "%.*g", ++digits, value);
    } while (digits < 17 && strtod(text, NULL) != value);
    if (plain) {
        uselocale(old);
        freelocale(plain);
    }
}

/* The spelling that NCCL knows for all generations. */
static void speed_text(int32_t speed, char *text)
{
    text[0] = '\0';
    if (speed > 0) {
        snprintf(text, RONDO_FIELD_TEXT, "%d.%d GT/s PCIe", speed / 10, speed % 10);
    }
}

const char *rondo_field_text(const struct rondo_field *field, const struct rondo_item *item, char *text)
{
    const void *at = member(field, item);
    const char *name;
    switch (field->type) {
    case RONDO_FIELD_INT: snprintf(text, RONDO_FIELD_TEXT, "%" PRId64, number_get(field, item)); break;
    case RONDO_FIELD_HEX:
        /* The widths of sysfs and of NCCL's own dumps, for class and ids. */
        snprintf(text, RONDO_FIELD_TEXT, "0x%0*" PRIx64,
                 field->bytes == 2   ? 4
                 : field->bytes == 4 ? 6
                                     : 1,
                 (uint64_t)number_get(field, item));
        break;
    case RONDO_FIELD_BUSID:
    case RONDO_FIELD_TARGET: rondo_busid_text(number_get(field, item), text); break;
    case RONDO_FIELD_NAME:
        snprintf(text, RONDO_FIELD_TEXT, "%.*s", RONDO_MACHINE_NAME, (const char *)at);
        break;
    case RONDO_FIELD_CORES: cores_text(at, 0, LOW_WORDS, text); break;
    case RONDO_FIELD_CORES_HIGH: cores_text(at, LOW_WORDS, WORDS, text); break;
    case RONDO_FIELD_SPEED: speed_text((int32_t)number_get(field, item), text); break;
    case RONDO_FIELD_ARCH:
    case RONDO_FIELD_VENDOR:
        name = field->type == RONDO_FIELD_ARCH ? rondo_arch_name(*(const int32_t *)at)
                                               : rondo_vendor_name(*(const int32_t *)at);
        snprintf(text, RONDO_FIELD_TEXT, "%s", name ? name : "unknown");
        break;
    case RONDO_FIELD_REAL: real_text(*(const double *)at, text); break;
    default: uuid_text(at, text); break;
    }
    return text;
}

/* ---- from text ---- */

static const char *number_expected(const struct rondo_field *field, char *expected)
{
    if (field->type == RONDO_FIELD_HEX) {
        snprintf(expected, RONDO_FIELD_TEXT, "a hexadecimal number up to 0x%" PRIx64, (uint64_t)field->max);
    } else {
        snprintf(expected, RONDO_FIELD_TEXT, "an integer from %" PRId64 " to %" PRId64, field->min,
                 field->max);
    }
    return expected;
}

/* Accept exactly one number, surrounded by blanks at most. */
static int number_parse(const char *text, int base, int64_t *value)
{
    char *end;
    while (isspace((unsigned char)*text)) {
        text++;
    }
    const char *digits = text + (base == 10 && (*text == '-' || *text == '+'));
    int hex = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X');
    if (!isxdigit((unsigned char)digits[hex ? 2 : 0])) {
        return 0;
    }
    errno = 0;
    *value = base == 16 ? (int64_t)strtoull(text, &end, 16) : strtoll(text, &end, hex ? 16 : 10);
    while (isspace((unsigned char)*end)) {
        end++;
    }
    return errno == 0 && end != text && *end == '\0';
}

/* A class may be abbreviated to its first digits: "0x03" is 0x030000. */
static int64_t class_widen(const char *text, int64_t value)
{
    text += text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 2 : 0;
    size_t digits = strspn(text, "0123456789abcdefABCDEF");
    return digits < 6 ? value << 4 * (6 - digits) : value;
}

static int in_range(const struct rondo_field *field, int64_t value)
{
    int all = field->type == RONDO_FIELD_HEX && field->bytes == 8; /* 64 bits: any value */
    return all || (value >= field->min && value <= field->max);
}

/* Fill the words from `first` on; the others stay. */
static int cores_parse(const char *text, int first, struct rondo_cores *cores)
{
    int words = first + 1, digits = 0;
    memset((char *)cores + 4 * first, 0, sizeof *cores - 4 * (size_t)first);
    for (const char *c = text; *c; c++) {
        words += *c == ',';
    }
    for (int word = words - 1; word >= first; word--) {
        uint64_t bits = 0;
        for (digits = 0; isxdigit((unsigned char)*text); text++) {
            int digit = isdigit((unsigned char)*text) ? *text - '0' : (*text | 0x20) - 'a' + 10;
            bits = bits << 4 | (uint64_t)digit;
            if (++digits > 8) {
                return 0;
            }
        }
        if ((*text != ',' && *text != '\0') || (digits == 0 && words > first + 1) ||
            (bits && word >= WORDS)) {
            return 0;
        }
        if (bits) {
            cores->bits[word / 2] |= bits << (word % 2 * 32);
        }
        text += *text == ',';
    }
    return *text == '\0';
}

static int uuid_parse(const char *text, uint8_t *uuid)
{
    memset(uuid, 0, 16);
    text += strncmp(text, "GPU-", 4) == 0 ? 4 : 0;
    int digits = 0;
    for (; *text; text++) {
        if (*text == '-') {
            continue;
        }
        if (!isxdigit((unsigned char)*text) || digits >= 32) {
            return 0;
        }
        int digit = isdigit((unsigned char)*text) ? *text - '0' : (*text | 0x20) - 'a' + 10;
        uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | digit);
        digits++;
    }
    return digits == 32 || digits == 0;
}

static int name_valid(const char *name)
{
    size_t n = strnlen(name, RONDO_MACHINE_NAME);
    for (size_t i = 0; i < n; i++) {
        if (name[i] < ' ' || name[i] > '~' || strchr("\"'&<>", name[i])) {
            return 0;
        }
    }
    return n < RONDO_MACHINE_NAME;
}

static int real_parse(const char *text, double *value)
{
    char *end;
    locale_t plain = newlocale(LC_ALL_MASK, "C", NULL);
    errno = 0;
    *value = plain ? strtod_l(text, &end, plain) : strtod(text, &end);
    int good = errno == 0 && end != text && *end == '\0';
    if (plain) {
        freelocale(plain);
    }
    return good;
}

static int text_parse(const struct rondo_field *field, struct rondo_item *item, const char *text)
{
    void *at = (char *)item + field->offset;
    int64_t value;
    switch (field->type) {
    case RONDO_FIELD_NAME:
        snprintf(at, RONDO_MACHINE_NAME, "%s", text);
        return strlen(text) < RONDO_MACHINE_NAME;
    case RONDO_FIELD_CORES: return cores_parse(text, 0, at);
    case RONDO_FIELD_CORES_HIGH: return cores_parse(text, LOW_WORDS, at);
    case RONDO_FIELD_UUID: return uuid_parse(text, at);
    case RONDO_FIELD_REAL: return real_parse(text, at);
    case RONDO_FIELD_ARCH: value = rondo_arch_from_name(text); break;
    case RONDO_FIELD_VENDOR: value = rondo_vendor_from_name(text); break;
    case RONDO_FIELD_SPEED: value = rondo_pci_speed_parse(text); break;
    case RONDO_FIELD_BUSID:
    case RONDO_FIELD_TARGET: value = rondo_busid_parse(text); break;
    default:
        /* Dumps have an empty text where sysfs's value is unknown. */
        if (text[0] == '\0' && !(field->flags & RONDO_FIELD_REQUIRED)) {
            value = field->unknown;
        } else if (!number_parse(text, field->type == RONDO_FIELD_HEX ? 16 : 10, &value)) {
            return 0;
        } else if (field->type == RONDO_FIELD_HEX && field->bytes == 4) {
            value = class_widen(text, value);
        }
        if (!in_range(field, value)) {
            return 0; /* before truncation to the member's width */
        }
    }
    number_set(field, item, value);
    return 1;
}

static const char *expectation(const struct rondo_field *field, char *expected)
{
    const char *text = NULL;
    switch (field->type) {
    case RONDO_FIELD_BUSID: text = "a PCI address like 0000:17:00.0"; break;
    case RONDO_FIELD_TARGET:
        text = "a PCI address like 0000:17:00.0, or fffffff:ffff:ff for a hidden one";
        break;
    case RONDO_FIELD_NAME:
        text = "a name of at most 63 printable ASCII characters without quotes, & and angle brackets";
        break;
    case RONDO_FIELD_CORES_HIGH:
    case RONDO_FIELD_CORES:
        text =
            "hexadecimal words of at most 8 digits, highest first, with commas between (at most 1024 cores)";
        break;
    case RONDO_FIELD_SPEED: text = "a speed like \"16 GT/s\", or nothing when it is unknown"; break;
    case RONDO_FIELD_UUID: text = "a UUID of 32 hexadecimal digits"; break;
    case RONDO_FIELD_REAL:
        snprintf(expected, RONDO_FIELD_TEXT, "a number from %" PRId64 " to %" PRId64, field->min, field->max);
        break;
    default: number_expected(field, expected); break;
    }
    if (text) {
        snprintf(expected, RONDO_FIELD_TEXT, "%s", text);
    }
    return expected;
}

const char *rondo_field_check(const struct rondo_field *field, const struct rondo_item *item, char *expected)
{
    const void *at = member(field, item);
    int64_t value;
    int good = 1;
    switch (field->type) {
    case RONDO_FIELD_CORES:
    case RONDO_FIELD_CORES_HIGH:
    case RONDO_FIELD_UUID: break;
    case RONDO_FIELD_NAME: good = name_valid(at); break;
    case RONDO_FIELD_REAL:
        good = *(const double *)at >= (double)field->min && *(const double *)at <= (double)field->max;
        break;
    case RONDO_FIELD_BUSID:
    case RONDO_FIELD_TARGET:
        value = number_get(field, item);
        good = rondo_busid_valid(value) || (field->type == RONDO_FIELD_TARGET && value == RONDO_BUSID_HIDDEN);
        break;
    default: good = in_range(field, number_get(field, item));
    }
    return good ? NULL : expectation(field, expected);
}

const char *rondo_field_parse(const struct rondo_field *field, struct rondo_item *item, const char *text,
                              char *expected)
{
    return text_parse(field, item, text) ? rondo_field_check(field, item, expected)
                                         : expectation(field, expected);
}

uint64_t rondo_field_hash(const struct rondo_field *field, const struct rondo_item *item, uint64_t seed)
{
    const void *at = member(field, item);
    double real;
    int64_t value;
    switch (field->type) {
    case RONDO_FIELD_NAME: return rondo_hash(at, strnlen(at, RONDO_MACHINE_NAME), seed);
    case RONDO_FIELD_CORES_HIGH: return seed;
    case RONDO_FIELD_CORES:
    case RONDO_FIELD_UUID: return rondo_hash(at, field->bytes, seed);
    case RONDO_FIELD_REAL:
        real = *(const double *)at + 0.0; /* -0 and 0 are one */
        return rondo_hash(&real, sizeof real, seed);
    default: value = number_get(field, item); return rondo_hash(&value, sizeof value, seed);
    }
}
