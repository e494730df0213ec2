#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "topo/machine_field.h"
#include "topo/xml/xml.h"
#include "topo/xml/xml_read.h"

enum { NCCL_VALUE = 254 }; /* the longest value that NCCL reads */

/* Copy foreign text into a value: NCCL's parser knows neither entities nor tabs. */
static void value_clean(const char *text, char *clean, size_t bytes)
{
    size_t n = 0;
    for (; *text && n + 1 < bytes; text++) {
        int good = *text >= ' ' && *text <= '~' && !strchr("\"'&<>", *text);
        clean[n++] = good ? *text : ' ';
    }
    clean[n] = '\0';
}

static void system_write(FILE *out, const struct rondo_machine *machine)
{
    char note[NCCL_VALUE + 1];
    fprintf(out, "<system version=\"1\"");
    if (machine->is_virtual) {
        fprintf(out, " virtual=\"1\"");
    }
    if (machine->note[0]) {
        value_clean(machine->note, note, sizeof note);
        fprintf(out, " note=\"%s\"", note);
    }
    fprintf(out, ">\n");
}

static void item_write(FILE *out, const struct rondo_item *item)
{
    int n;
    char text[RONDO_FIELD_TEXT];
    const struct rondo_field *field = rondo_fields((enum rondo_item_kind)item->kind, &n);
    fprintf(out, "<%s", rondo_item_kind_name((enum rondo_item_kind)item->kind));
    for (int i = 0; i < n; i++) {
        if (!(field[i].flags & RONDO_FIELD_OPTIONAL) || rondo_field_known(&field[i], item)) {
            fprintf(out, " %s=\"%s\"", field[i].name, rondo_field_text(&field[i], item, text));
        }
    }
}

static int depth_of(const struct rondo_machine *machine, int32_t item)
{
    int depth = 0;
    for (; item >= 0; item = machine->item[item].parent) {
        depth++;
    }
    return depth;
}

static void indent(FILE *out, int depth) { fprintf(out, "%*s", 2 * depth, ""); }

static void items_write(FILE *out, const struct rondo_machine *machine, const int32_t *order)
{
    int32_t open[RONDO_MACHINE_MAX_DEPTH + 1];
    int depth = 0;
    for (int32_t i = 0; i < machine->nitems; i++) {
        int32_t item = order[i];
        int here = depth_of(machine, item);
        for (; depth >= here; depth--) {
            indent(out, depth);
            fprintf(out, "</%s>\n",
                    rondo_item_kind_name((enum rondo_item_kind)machine->item[open[depth]].kind));
        }
        indent(out, here);
        item_write(out, &machine->item[item]);
        if (i + 1 < machine->nitems && machine->item[order[i + 1]].parent == item) {
            fprintf(out, ">\n");
            open[++depth] = item;
        } else {
            fprintf(out, "/>\n");
        }
    }
    for (; depth > 0; depth--) {
        indent(out, depth);
        fprintf(out, "</%s>\n", rondo_item_kind_name((enum rondo_item_kind)machine->item[open[depth]].kind));
    }
}

rondo_status rondo_machine_text(const struct rondo_machine *machine, char **text)
{
    size_t bytes;
    int32_t *order;
    *text = NULL;
    RONDO_TRY(rondo_machine_check(machine));
    RONDO_TRY(rondo_machine_order(machine, &order));
    FILE *out = open_memstream(text, &bytes);
    if (!out) {
        rondo_free(order);
        return rondo_fail(RONDO_SYSTEM_ERROR, "no memory for the text of a machine");
    }
    system_write(out, machine);
    items_write(out, machine, order);
    fprintf(out, "</system>\n");
    rondo_free(order);
    int bad = ferror(out);
    if (fclose(out) != 0 || bad) {
        free(*text);
        *text = NULL;
        return rondo_fail(RONDO_SYSTEM_ERROR, "no memory for the text of a machine");
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_machine_write(const struct rondo_machine *machine, const char *file)
{
    char *text;
    RONDO_TRY(rondo_machine_text(machine, &text));
    rondo_status status = rondo_xml_store(file, text, strlen(text));
    free(text);
    return status;
}
