#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "topo/machine.h"
#include "topo/machine_field.h"

enum { NAME = 128 };

/* An item with the name that identifies it in the other machine. Equal names are matched in order. */
struct named {
    char name[NAME];
    int32_t place; /* in document order */
    int32_t item;
};

struct side {
    const struct rondo_machine *machine;
    int32_t *order;
    struct named *named; /* sorted */
    int32_t *match;      /* item -> item of the other side, -1: none */
};

static int named_compare(const void *pa, const void *pb)
{
    const struct named *a = pa, *b = pb;
    int by_name = strcmp(a->name, b->name);
    return by_name ? by_name : (a->place > b->place) - (a->place < b->place);
}

static void side_release(struct side *side)
{
    rondo_free(side->order);
    rondo_free(side->named);
    rondo_free(side->match);
}

static rondo_status side_fill(struct side *side, const struct rondo_machine *machine)
{
    int32_t n = machine->nitems;
    side->machine = machine;
    RONDO_TRY(rondo_machine_order(machine, &side->order));
    RONDO_TRY(RONDO_NEW_ARRAY(side->named, n + 1, "the differences of machines"));
    RONDO_TRY(RONDO_NEW_ARRAY(side->match, n + 1, "the differences of machines"));
    for (int32_t i = 0; i < n; i++) {
        side->named[i].place = i;
        side->named[i].item = side->order[i];
        side->match[i] = -1;
        rondo_machine_item_name(machine, side->order[i], side->named[i].name, NAME);
    }
    qsort(side->named, (size_t)n, sizeof *side->named, named_compare);
    return RONDO_SUCCESS;
}

static void sides_match(struct side *a, struct side *b)
{
    for (int32_t i = 0, j = 0; i < a->machine->nitems && j < b->machine->nitems;) {
        int by_name = strcmp(a->named[i].name, b->named[j].name);
        if (by_name == 0) {
            a->match[a->named[i].item] = b->named[j].item;
            b->match[b->named[j].item] = a->named[i].item;
        }
        i += by_name <= 0;
        j += by_name >= 0;
    }
}

/* ---- output ---- */

struct diff {
    FILE *out;
    struct side a, b;
    int n;
};

static void difference(struct diff *diff, int32_t item, const char *what, const char *here, const char *there)
{
    char name[NAME];
    fprintf(diff->out, "%s: %s %s, there %s\n",
            item < 0 ? "machine" : rondo_machine_item_name(diff->a.machine, item, name, sizeof name), what,
            here, there);
    diff->n++;
}

/* Items missing from the other machine, without what is below them. */
static void missing_print(struct diff *diff, const struct side *side, const char *where)
{
    char name[NAME];
    for (int32_t i = 0; i < side->machine->nitems; i++) {
        int32_t item = side->order[i], parent = side->machine->item[item].parent;
        if (side->match[item] < 0 && (parent < 0 || side->match[parent] >= 0)) {
            fprintf(diff->out, "%s: only %s\n",
                    rondo_machine_item_name(side->machine, item, name, sizeof name), where);
            diff->n++;
        }
    }
}

static const char *value_text(const struct rondo_field *field, const struct rondo_item *item, char *text)
{
    return rondo_field_known(field, item) ? rondo_field_text(field, item, text) : "unknown";
}

static const char *link_text(const struct rondo_item *item, char *text)
{
    char speed[24], width[16] = "x?";
    rondo_pci_speed_text(item->pci.speed, speed);
    if (item->pci.width) {
        snprintf(width, sizeof width, "x%d", item->pci.width);
    }
    snprintf(text, RONDO_FIELD_TEXT, "%s %s", speed[0] ? speed : "unknown speed", width);
    return text;
}

static int is_link(const struct rondo_field *field)
{
    return field->kind == RONDO_ITEM_PCI &&
           (field->type == RONDO_FIELD_SPEED || strcmp(field->name, "link_width") == 0);
}

static void fields_print(struct diff *diff, int32_t i, const struct rondo_item *a, const struct rondo_item *b)
{
    int n;
    char here[RONDO_FIELD_TEXT], there[RONDO_FIELD_TEXT];
    const struct rondo_field *field = rondo_fields((enum rondo_item_kind)a->kind, &n);
    for (int f = 0; f < n; f++) {
        if (!(field[f].flags & RONDO_FIELD_IDENTITY) && !is_link(&field[f]) &&
            rondo_field_hash(&field[f], a, 0) != rondo_field_hash(&field[f], b, 0)) {
            difference(diff, i, field[f].name, value_text(&field[f], a, here),
                       value_text(&field[f], b, there));
        }
    }
    if (a->kind == RONDO_ITEM_PCI && (a->pci.speed != b->pci.speed || a->pci.width != b->pci.width)) {
        difference(diff, i, "link", link_text(a, here), link_text(b, there));
    }
}

static void place_print(struct diff *diff, int32_t i, int32_t j)
{
    int32_t above = diff->a.machine->item[i].parent, other = diff->b.machine->item[j].parent;
    char here[NAME] = "nothing", there[NAME] = "nothing";
    if (above < 0 || diff->a.match[above] == other) {
        return;
    }
    difference(diff, i, "below", rondo_machine_item_name(diff->a.machine, above, here, NAME),
               other < 0 ? there : rondo_machine_item_name(diff->b.machine, other, there, NAME));
}

/* @return the first net in document order that shares the wire. */
static int32_t wire_of(const struct side *side, int32_t item)
{
    const struct rondo_item *net = &side->machine->item[item];
    for (int32_t i = 0; net->net.guid && i < side->machine->nitems; i++) {
        const struct rondo_item *other = &side->machine->item[side->order[i]];
        if (other->kind == RONDO_ITEM_NET && other->net.guid == net->net.guid &&
            other->net.port == net->net.port) {
            return side->order[i];
        }
    }
    return item;
}

static void wire_print(struct diff *diff, int32_t i, int32_t j)
{
    int32_t here = wire_of(&diff->a, i), there = wire_of(&diff->b, j);
    char a[NAME] = "of its own", b[NAME] = "of its own";
    if (diff->a.match[here] == there) {
        return;
    }
    if (here != i) {
        rondo_machine_item_name(diff->a.machine, here, a, NAME);
    }
    if (there != j) {
        rondo_machine_item_name(diff->b.machine, there, b, NAME);
    }
    difference(diff, i, "wire", a, b);
}

static void machines_print(struct diff *diff)
{
    if (diff->a.machine->is_virtual != diff->b.machine->is_virtual) {
        difference(diff, -1, "is", diff->a.machine->is_virtual ? "virtual" : "real",
                   diff->b.machine->is_virtual ? "virtual" : "real");
    }
    missing_print(diff, &diff->a, "here");
    missing_print(diff, &diff->b, "there");
    for (int32_t at = 0; at < diff->a.machine->nitems; at++) {
        int32_t i = diff->a.order[at], j = diff->a.match[i];
        if (j < 0) {
            continue;
        }
        place_print(diff, i, j);
        fields_print(diff, i, &diff->a.machine->item[i], &diff->b.machine->item[j]);
        if (diff->a.machine->item[i].kind == RONDO_ITEM_NET) {
            wire_print(diff, i, j);
        }
    }
    if (diff->n == 0 && rondo_machine_hash(diff->a.machine) != rondo_machine_hash(diff->b.machine)) {
        difference(diff, -1, "has", "the same items", "in another order");
    }
}

rondo_status rondo_machine_diff(const struct rondo_machine *a, const struct rondo_machine *b, char **text,
                                int *n)
{
    struct diff diff = { .n = 0 };
    size_t bytes;
    rondo_status status;
    *text = NULL;
    *n = 0;
    RONDO_TRY_GOTO(side_fill(&diff.a, a), out);
    RONDO_TRY_GOTO(side_fill(&diff.b, b), out);
    sides_match(&diff.a, &diff.b);
    diff.out = open_memstream(text, &bytes);
    if (!diff.out) {
        status = rondo_fail(RONDO_SYSTEM_ERROR, "no memory for the differences of machines");
        goto out;
    }
    machines_print(&diff);
    int bad = ferror(diff.out);
    if (fclose(diff.out) != 0 || bad) {
        free(*text);
        *text = NULL;
        status = rondo_fail(RONDO_SYSTEM_ERROR, "no memory for the differences of machines");
        goto out;
    }
    *n = diff.n;
out:
    side_release(&diff.a);
    side_release(&diff.b);
    return status;
}
