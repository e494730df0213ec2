#include "tools/draw/text.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

void rondo_ink(const struct rondo_draw *draw, enum rondo_ink ink)
{
    static const char *const codes[RONDO_NUM_INKS] = { "0", "1", "2", "32", "36", "33", "31" };
    if (draw->color) fprintf(draw->out, "\033[%sm", codes[ink]);
}

enum rondo_ink rondo_ink_of_path(int type)
{
    switch (type) {
    case RONDO_PATH_LOC: return RONDO_INK_DIM;
    case RONDO_PATH_NVL:
    case RONDO_PATH_NVB:
    case RONDO_PATH_C2C: return RONDO_INK_BEST;
    case RONDO_PATH_PIX:
    case RONDO_PATH_PXB:
    case RONDO_PATH_P2C:
    case RONDO_PATH_PXN: return RONDO_INK_GOOD;
    case RONDO_PATH_PHB: return RONDO_INK_FAIR;
    default: return RONDO_INK_BAD;
    }
}

void rondo_text_add(char *text, size_t bytes, const char *fmt, ...)
{
    size_t n = strlen(text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(text + n, bytes - n, fmt, args);
    va_end(args);
}

const char *rondo_text_gbs(int64_t mbs, char text[24])
{
    int64_t hundredths = (mbs + 5) / 10;
    if (hundredths < 1000 && hundredths % 10 != 0) {
        snprintf(text, 24, "%lld.%02lld", (long long)(hundredths / 100), (long long)(hundredths % 100));
    } else {
        int64_t tenths = (mbs + 50) / 100;
        snprintf(text, 24, "%lld.%lld", (long long)(tenths / 10), (long long)(tenths % 10));
    }
    return text;
}

const char *rondo_text_bandwidth(int64_t mbs, char text[32])
{
    char number[24];
    if (mbs >= RONDO_LOC_MBS) {
        snprintf(text, 32, "no limit");
    } else {
        snprintf(text, 32, "%s GB/s", rondo_text_gbs(mbs, number));
    }
    return text;
}

static int run_length(const int32_t *value, int n, int step)
{
    int length = 1;
    while (length < n && value[length] == value[length - 1] + step) length++;
    return length;
}

const char *rondo_text_ranges(const int32_t *value, int n, char *text, size_t bytes)
{
    text[0] = '\0';
    for (int i = 0; i < n;) {
        int up = run_length(value + i, n - i, 1), down = run_length(value + i, n - i, -1);
        int length = up >= down ? up : down;
        if (strlen(text) + 32 > bytes) {
            rondo_text_add(text, bytes, "...");
            break;
        }
        /* A pair reads better as two numbers: "2,3", not "2-3". */
        if (length < 3) length = 1;
        rondo_text_add(text, bytes, length > 1 ? "%s%d-%d" : "%s%d", i ? "," : "", value[i],
                       value[i + length - 1]);
        i += length;
    }
    return text;
}

const char *rondo_text_cores(const struct rondo_cores *cores, char *text, size_t bytes)
{
    int32_t list[RONDO_MAX_CORES];
    int n = 0;
    for (int i = 0; i < RONDO_MAX_CORES; i++) {
        if (cores->bits[i / 64] >> (i % 64) & 1) list[n++] = i;
    }
    return rondo_text_ranges(list, n, text, bytes);
}

const char *rondo_text_tenths(int64_t tenths, char text[24])
{
    if (tenths % 10) {
        snprintf(text, 24, "%lld.%lld", (long long)(tenths / 10), (long long)(tenths % 10));
    } else {
        snprintf(text, 24, "%lld", (long long)(tenths / 10));
    }
    return text;
}

const char *rondo_text_bytes(int64_t bytes, char text[24])
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    size_t unit = 0;
    int64_t one = 1;
    while (unit + 1 < RONDO_COUNTOF(units) && bytes >= one * 1024) {
        one *= 1024;
        unit++;
    }
    rondo_text_tenths(bytes / one * 10 + bytes % one * 10 / one, text);
    rondo_text_add(text, 24, " %s", units[unit]);
    return text;
}

const char *rondo_text_pci_link(int speed, int width, char text[24])
{
#define SPEED_(ctx, name, gts, lane) gts,
    static const int speeds[] = { RONDO_TOPO_PCI_TABLE(SPEED_, ) };
#undef SPEED_
    text[0] = '\0';
    for (size_t i = 0; i < RONDO_COUNTOF(speeds); i++) {
        if (speeds[i] == speed) snprintf(text, 24, "Gen%zu x%d", i + 1, width);
    }
    return text;
}

const char *rondo_text_plain(const char *from, char *text, size_t bytes)
{
    size_t n = 0;
    for (; from[n] && n + 1 < bytes; n++) {
        text[n] = from[n] >= ' ' && from[n] <= '~' ? from[n] : '?';
    }
    text[n] = '\0';
    return text;
}

int rondo_text_columns(const char *text)
{
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

void rondo_line_begin(struct rondo_line *line, const struct rondo_draw *draw, const char *indent, int column,
                      int start)
{
    *line = (struct rondo_line){ .draw = draw, .indent = indent, .column = column, .start = start };
}

void rondo_line_piece(struct rondo_line *line, const char *separator, enum rondo_ink ink, const char *text)
{
    FILE *out = line->draw->out;
    int columns = rondo_text_columns(text), glue = line->pieces ? rondo_text_columns(separator) : 0;
    int width = line->draw->width;
    int margin = rondo_text_columns(line->indent), at = line->column + glue;
    if (at < line->start) at = line->start;
    if (at > margin && width > 0 && at + columns + 1 > width) {
        /* Keep the visible part of the separator at the end of the line. */
        fprintf(out, "%.*s\n%s", line->pieces ? (int)strcspn(separator, " ") : 0, separator, line->indent);
        at = margin;
    } else {
        fprintf(out, "%s%*s", line->pieces ? separator : "", at - line->column - glue, "");
    }
    line->start = 0;
    if (ink != RONDO_INK_PLAIN) rondo_ink(line->draw, ink);
    fputs(text, out);
    if (ink != RONDO_INK_PLAIN) rondo_ink(line->draw, RONDO_INK_PLAIN);
    line->column = at + columns;
    line->pieces++;
}

void rondo_line_words(struct rondo_line *line, enum rondo_ink ink, const char *text)
{
    char word[128];
    while (*text) {
        int n = (int)strcspn(text, " ");
        snprintf(word, sizeof word, "%.*s", n, text);
        rondo_line_piece(line, " ", ink, word);
        text += n + (text[n] == ' ');
    }
}

void rondo_line_end(struct rondo_line *line) { fputc('\n', line->draw->out); }

int rondo_text_is_bridge(const struct rondo_item *item)
{
    return item->kind == RONDO_ITEM_PCI && item->pci.class_code >> 8 == 0x0604;
}

rondo_status rondo_draw_finish(FILE *out)
{
    errno = 0;
    if (fflush(out) != 0 || ferror(out)) {
        return rondo_fail(RONDO_SYSTEM_ERROR,
                          "cannot write the output: %s; is the disk full, or has the reader exited?",
                          errno ? strerror(errno) : "an earlier write failed");
    }
    return RONDO_SUCCESS;
}
