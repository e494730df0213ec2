#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "topo/detect/detect.h"
#include "topo/machine_field.h"
#include "topo/xml/xml.h"
#include "topo/xml/xml_read.h"

struct reader {
    struct rondo_machine *machine;
    const char *file;
    int hwloc;                             /* the root element is hwloc's */
    int32_t *line;                         /* of each item */
    int32_t nlines;                        /* capacity */
    int32_t open[RONDO_XML_MAX_DEPTH + 1]; /* item of each open element */
    int32_t ngpus, nnets;
};

/* ---- elements ---- */

static rondo_status root_read(struct reader *reader, const struct rondo_xml_element *element,
                              enum rondo_xml_next *next)
{
    if (strcmp(element->name, "topology") == 0) {
        reader->hwloc = 1;
        *next = RONDO_XML_SKIP; /* hwloc reads it later, within its own limits */
        return RONDO_SUCCESS;
    }
    if (strcmp(element->name, "system") != 0) {
        return rondo_xml_fail(element, NULL,
                              "not a machine; expected a root element <system version=\"1\"> (NCCL's format) "
                              "or <topology> (hwloc's)");
    }
    const char *version = rondo_xml_attr(element, "version"), *virtual = rondo_xml_attr(element, "virtual");
    if (!version || strcmp(version, "1") != 0) {
        return rondo_xml_fail(element, "version", "expected version=\"1\"");
    }
    if (virtual && strcmp(virtual, "0") != 0 && strcmp(virtual, "1") != 0) {
        return rondo_xml_fail(element, "virtual", "expected 0 or 1");
    }
    const char *note = rondo_xml_attr(element, "note");
    reader->machine->is_virtual = virtual && virtual[0] == '1';
    snprintf(reader->machine->note, sizeof reader->machine->note, "%s", note ? note : "");
    return RONDO_SUCCESS;
}

static int kind_find(const char *name)
{
    for (int kind = 0; kind < RONDO_NUM_ITEM_KINDS; kind++) {
        if (strcmp(rondo_item_kind_name((enum rondo_item_kind)kind), name) == 0) {
            return kind;
        }
    }
    return -1;
}

/* Fill in what files may omit. */
static void defaults_fill(struct reader *reader, struct rondo_item *item,
                          const struct rondo_xml_element *element)
{
    if (item->kind == RONDO_ITEM_GPU) {
        item->gpu.dev = rondo_xml_attr(element, "dev") ? item->gpu.dev : reader->ngpus;
        reader->ngpus++;
    } else if (item->kind == RONDO_ITEM_NET) {
        item->net.dev = rondo_xml_attr(element, "dev") ? item->net.dev : reader->nnets;
        if (item->net.name[0] == '\0') {
            snprintf(item->net.name, sizeof item->net.name, "net%d", item->net.dev);
        }
        reader->nnets++;
    }
}

static rondo_status fields_read(struct rondo_item *item, const struct rondo_xml_element *element)
{
    int n;
    char expected[RONDO_FIELD_TEXT];
    const struct rondo_field *field = rondo_fields((enum rondo_item_kind)item->kind, &n);
    for (int i = 0; i < n; i++) {
        const char *text = rondo_xml_attr(element, field[i].name);
        if (!text && (field[i].flags & RONDO_FIELD_REQUIRED)) {
            return rondo_xml_fail(element, NULL, "the attribute %s is missing", field[i].name);
        }
        if (text && rondo_field_parse(&field[i], item, text, expected)) {
            return rondo_xml_fail(element, field[i].name, "expected %s", expected);
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status line_note(struct reader *reader, int32_t item, int line)
{
    if (item >= reader->nlines) {
        int32_t n = item ? 2 * item : 64, *lines;
        RONDO_TRY(RONDO_NEW_ARRAY(lines, n, "the lines of a file"));
        memcpy(lines, reader->line ? reader->line : lines, (size_t)reader->nlines * sizeof *lines);
        rondo_free(reader->line);
        reader->line = lines;
        reader->nlines = n;
    }
    reader->line[item] = line;
    return RONDO_SUCCESS;
}

static rondo_status item_read(struct reader *reader, const struct rondo_xml_element *element,
                              enum rondo_item_kind kind)
{
    int32_t index, parent = reader->open[element->depth - 1];
    char why[RONDO_ERROR_TEXT];
    if (!rondo_machine_may_add(reader->machine, kind, parent, why)) {
        return rondo_xml_fail(element, NULL, "%s", why);
    }
    RONDO_TRY(rondo_machine_add(reader->machine, kind, parent, &index));
    reader->open[element->depth] = index;
    RONDO_TRY(line_note(reader, index, element->line));
    RONDO_TRY(fields_read(&reader->machine->item[index], element));
    defaults_fill(reader, &reader->machine->item[index], element);
    return RONDO_SUCCESS;
}

static rondo_status on_start(void *arg, const struct rondo_xml_element *element, enum rondo_xml_next *next)
{
    struct reader *reader = arg;
    reader->open[element->depth] = -1;
    if (element->depth == 1) {
        return root_read(reader, element, next);
    }
    int kind = kind_find(element->name);
    if (kind < 0) {
        RONDO_TRACE(RONDO_SUBSYS_GRAPH, "%s:%d: skipped unknown element <%.64s>", element->file,
                    element->line, element->name);
        *next = RONDO_XML_SKIP;
        return RONDO_SUCCESS;
    }
    return item_read(reader, element, (enum rondo_item_kind)kind);
}

/* ---- NVLinks: one item per direction, always both directions, with equal counts ---- */

struct link {
    int64_t from, to;
    int32_t item;
};

static int link_compare(const void *pa, const void *pb)
{
    const struct link *a = pa, *b = pb;
    if (a->from != b->from) {
        return a->from < b->from ? -1 : 1;
    }
    if (a->to != b->to) {
        return a->to < b->to ? -1 : 1;
    }
    return (a->item > b->item) - (a->item < b->item);
}

/* Sorted list of GPUs by address (to is 0), or of NVLinks by both ends. */
static int32_t links_fill(const struct rondo_machine *machine, int32_t kind, struct link *link)
{
    int32_t n = 0;
    for (int32_t i = 0; i < machine->nitems; i++) {
        const struct rondo_item *item = &machine->item[i];
        if (item->kind == kind) {
            int32_t gpu = kind == RONDO_ITEM_GPU ? i : item->parent;
            int64_t from = machine->item[machine->item[gpu].parent].pci.busid;
            link[n++] = (struct link){ from, kind == RONDO_ITEM_GPU ? 0 : item->nvlink.target, i };
        }
    }
    qsort(link, (size_t)n, sizeof *link, link_compare);
    return n;
}

/* @return the first link with these ends, -1: none. */
static int32_t link_find(const struct link *link, int32_t n, int64_t from, int64_t to)
{
    const struct link want = { from, to, -1 };
    int32_t low = 0, high = n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (link_compare(&link[middle], &want) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < n && link[low].from == from && link[low].to == to ? low : -1;
}

/* Merge several elements for one target by adding their counts. *n gets the number of remaining links. */
static rondo_status links_merge(struct reader *reader, struct link *link, int32_t *n)
{
    struct rondo_item *item = reader->machine->item;
    int32_t left = 0;
    for (int32_t i = 0; i < *n; i++) {
        if (left == 0 || link[left - 1].from != link[i].from || link[left - 1].to != link[i].to) {
            link[left++] = link[i];
            continue;
        }
        struct rondo_item *first = &item[link[left - 1].item], *more = &item[link[i].item];
        if (first->nvlink.count > RONDO_MACHINE_MAX_NVLINKS - more->nvlink.count) {
            return rondo_fail(RONDO_INVALID_ARGUMENT, "%s:%d: more than %d NVLinks to one target in total",
                              reader->file, reader->line ? reader->line[link[i].item] : 1,
                              RONDO_MACHINE_MAX_NVLINKS);
        }
        first->nvlink.count += more->nvlink.count;
        more->kind = -1;
    }
    *n = left;
    return RONDO_SUCCESS;
}

/* Make NVLinks between GPUs symmetric: use the smaller count, and add a direction that the file omits. */
static rondo_status links_pair(struct reader *reader, const struct link *link, int32_t n,
                               const struct link *gpu, int32_t ngpus)
{
    struct rondo_machine *machine = reader->machine;
    for (int32_t i = 0; i < n; i++) {
        int32_t other = link_find(gpu, ngpus, link[i].to, 0),
                back = link_find(link, n, link[i].to, link[i].from), index;
        struct rondo_item *item = &machine->item[link[i].item];
        char name[128], why[RONDO_ERROR_TEXT];
        rondo_machine_item_name(machine, link[i].item, name, sizeof name);
        if (other < 0) {
            if (rondo_pci_kind(item->nvlink.tclass) == RONDO_PCI_GPU) {
                RONDO_INFO(RONDO_SUBSYS_GRAPH, "%s: %s: the file has no such GPU", reader->file, name);
            }
            continue;
        }
        if (back >= 0) {
            int32_t count = machine->item[link[back].item].nvlink.count;
            if (item->nvlink.count > count) {
                RONDO_INFO(RONDO_SUBSYS_GRAPH, "%s: %s: count is %d, but %d in the other direction: using %d",
                           reader->file, name, item->nvlink.count, count, count);
                item->nvlink.count = count;
            }
            continue;
        }
        RONDO_INFO(RONDO_SUBSYS_GRAPH, "%s: %s: the other direction is missing and assumed equal",
                   reader->file, name);
        int32_t count = item->nvlink.count, above = machine->item[machine->item[link[i].item].parent].parent;
        uint32_t tclass = item->nvlink.tclass ? machine->item[above].pci.class_code : 0;
        if (!rondo_machine_may_add(machine, RONDO_ITEM_NVLINK, gpu[other].item, why)) {
            return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: %s", reader->file, why);
        }
        RONDO_TRY(rondo_machine_add(machine, RONDO_ITEM_NVLINK, gpu[other].item, &index));
        machine->item[index].nvlink.target = link[i].from;
        machine->item[index].nvlink.count = count;
        machine->item[index].nvlink.tclass = tclass;
    }
    return RONDO_SUCCESS;
}

static rondo_status items_compact(struct rondo_machine *machine)
{
    int32_t left = 0, *place;
    RONDO_TRY(RONDO_NEW_ARRAY(place, machine->nitems + 1, "the NVLinks of a machine"));
    for (int32_t i = 0; i < machine->nitems; i++) {
        if (machine->item[i].kind >= 0) {
            place[i] = left;
            machine->item[left] = machine->item[i];
            machine->item[left].parent = machine->item[i].parent < 0 ? -1 : place[machine->item[i].parent];
            left++;
        }
    }
    machine->nitems = left;
    rondo_free(place);
    return RONDO_SUCCESS;
}

static rondo_status links_normalize(struct reader *reader)
{
    struct rondo_machine *machine = reader->machine;
    struct link *link;
    RONDO_TRY(RONDO_NEW_ARRAY(link, machine->nitems + 1, "the NVLinks of a machine"));
    /* The halves cannot overlap: each item is of one kind. */
    int32_t n = links_fill(machine, RONDO_ITEM_NVLINK, link),
            ngpus = links_fill(machine, RONDO_ITEM_GPU, link + n);
    struct link *gpu = link + n;
    rondo_status status;
    RONDO_TRY_GOTO(links_merge(reader, link, &n), out);
    RONDO_TRY_GOTO(links_pair(reader, link, n, gpu, ngpus), out);
    RONDO_TRY_GOTO(items_compact(machine), out);
    status = rondo_machine_sort(machine);
out:
    rondo_free(link);
    return status;
}

/* ---- whole machines ---- */

/* hwloc honours the declared encoding where our reader does not, so pass on only UTF-8 that is declared as
 * such. The declaration is known to be well-formed here. */
static rondo_status hwloc_read(struct rondo_machine *machine, const char *text, size_t bytes,
                               const char *name)
{
    size_t mark = bytes > 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, left = bytes - mark;
    const char *start = text + mark, *end = memmem(start, left, "?>", 2), *at = NULL;
    int good = left > 1 && (start[0] == '<' || isspace((unsigned char)start[0])) && start[1] != '\0';
    if (end && memcmp(start, "<?xml", 5) == 0) {
        at = memmem(start, (size_t)(end - start), "encoding", 8);
    }
    if (at) { /* the skip and the comparison cannot run past `end` */
        at += 8;
        at += strspn(at, " \t\r\n=\"'");
        good = good && strncasecmp(at, "UTF-8", 5) == 0 && (at[5] == '"' || at[5] == '\'');
    }
    if (!good) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: hwloc's XML must be UTF-8, as lstopo writes it", name);
    }
    return rondo_machine_from_hwloc_xml(machine, text, bytes, name);
}

static rondo_status machine_finish(struct reader *reader)
{
    char text[RONDO_ERROR_TEXT];
    int32_t item;
    if (reader->machine->nitems == 0) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s: the machine has no <cpu>; expected at least one NUMA node", reader->file);
    }
    rondo_status status = rondo_machine_fault(reader->machine, text, &item);
    return status == RONDO_SUCCESS
               ? status
               : rondo_fail(status, "%s:%d: %s", reader->file, item < 0 ? 1 : reader->line[item], text);
}

rondo_status rondo_machine_parse(struct rondo_machine *machine, const char *text, size_t bytes,
                                 const char *name)
{
    const struct rondo_xml_visitor visitor = { .start = on_start,
                                               .doctype = "topology",
                                               .max_elements = RONDO_MACHINE_MAX_ITEMS };
    struct reader reader = { .machine = machine, .file = name };
    rondo_machine_release(machine);
    rondo_status status;
    RONDO_TRY_GOTO(rondo_xml_walk(text, bytes, name, &visitor, &reader), out);
    RONDO_TRY_GOTO(reader.hwloc ? hwloc_read(machine, text, bytes, name) : machine_finish(&reader), out);
    RONDO_TRY_GOTO(links_normalize(&reader), out);
    snprintf(machine->source, sizeof machine->source, "%s", name);
out:
    rondo_free(reader.line);
    if (status != RONDO_SUCCESS) {
        rondo_machine_release(machine);
    }
    return status;
}

rondo_status rondo_machine_read(struct rondo_machine *machine, const char *file)
{
    char *text, label[RONDO_FILE_LABEL];
    size_t bytes;
    rondo_machine_release(machine);
    RONDO_TRY(rondo_xml_load(file, &text, &bytes));
    rondo_status status = rondo_machine_parse(machine, text, bytes, rondo_param_file_label(file, label));
    rondo_free(text);
    return status;
}
