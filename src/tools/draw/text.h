/* Text for terminals: numbers and lists, colors, and lines that wrap at the width of the terminal. */
#ifndef RONDO_TOOLS_DRAW_TEXT_H
#define RONDO_TOOLS_DRAW_TEXT_H

#include "tools/draw/draw.h"

enum rondo_ink {
    RONDO_INK_PLAIN,
    RONDO_INK_TITLE,
    RONDO_INK_DIM,
    RONDO_INK_BEST,
    RONDO_INK_GOOD,
    RONDO_INK_FAIR,
    RONDO_INK_BAD,
    RONDO_NUM_INKS
};

/** Switch the color of the terminal; does nothing without draw->color. */
void rondo_ink(const struct rondo_draw *draw, enum rondo_ink ink);
/** @return the color of a path type. */
enum rondo_ink rondo_ink_of_path(int type);

/* Functions that fill `text` return it. */

/** "24.0", "1.25": GB/s from MB/s */
const char *rondo_text_gbs(int64_t mbs, char text[24]);
/** "24.0 GB/s" from MB/s; "no limit" for links that have none */
const char *rondo_text_bandwidth(int64_t mbs, char text[32]);
/** "12", "12.5" from 120, 125 */
const char *rondo_text_tenths(int64_t tenths, char text[24]);
/** "0-3,7-4,9": the values in their order, rising and falling runs folded. Ends in "..." if text is too
 * short. */
const char *rondo_text_ranges(const int32_t *value, int n, char *text, size_t bytes);
const char *rondo_text_cores(const struct rondo_cores *cores, char *text, size_t bytes);
/** "32 MiB" */
const char *rondo_text_bytes(int64_t bytes, char text[24]);
/** "Gen4 x16"; "": unknown */
const char *rondo_text_pci_link(int speed, int width, char text[24]);
/** Text from a file: everything but printable ASCII becomes '?'. */
const char *rondo_text_plain(const char *from, char *text, size_t bytes);
/** @return the columns that UTF-8 text takes. */
int rondo_text_columns(const char *text);
/** Append to text like snprintf; cut off at its size. */
void rondo_text_add(char *text, size_t bytes, const char *fmt, ...) RONDO_PRINTF(3, 4);

/** @return whether the item is a PCI bridge. */
int rondo_text_is_bridge(const struct rondo_item *item);
/** Hash each item of the machine with its children, without addresses and names: equal parts have equal
 * hashes. shape[nitems] must be zero. */
void rondo_draw_shapes(const struct rondo_machine *machine, uint64_t *shape);

/* A line made of pieces. A piece that does not fit starts the next line, after `indent`. */
struct rondo_line {
    const struct rondo_draw *draw;
    const char *indent;
    int column, start; /* start: least column of the next piece in this line */
    int pieces;
};
void rondo_line_begin(struct rondo_line *line, const struct rondo_draw *draw, const char *indent, int column,
                      int start);
void rondo_line_piece(struct rondo_line *line, const char *separator, enum rondo_ink ink, const char *text);
/** Add a sentence; each word is a piece. */
void rondo_line_words(struct rondo_line *line, enum rondo_ink ink, const char *text);
void rondo_line_end(struct rondo_line *line);

/** Flush the stream. @return RONDO_SYSTEM_ERROR if anything could not be written. */
rondo_status rondo_draw_finish(FILE *out);

#endif
