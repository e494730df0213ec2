/* What the text pictures share: numbers and lists as people write them, colours, and lines that wrap at the
 * width of the terminal. */
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

/** Switch colours on the terminal; nothing without draw->color. */
void rondo_ink(const struct rondo_draw *draw, enum rondo_ink ink);
/** How a path of this type is shown. */
enum rondo_ink rondo_ink_of_path(int type);

/** "24.0", "1.25": GB/s of MB/s. @return text. */
const char *rondo_text_gbs(int64_t mbs, char text[24]);
/** "12" or "12.5" of 120 or 125. @return text. */
const char *rondo_text_tenths(int64_t tenths, char text[24]);
/** "0-3,7": values in the order given; falling runs are runs too ("7-0"). Cut with "..." when the text is
 * short. @return text. */
const char *rondo_text_ranges(const int32_t *value, int n, char *text, size_t bytes);
const char *rondo_text_cores(const struct rondo_cores *cores, char *text, size_t bytes);
/** "32 MiB". @return text. */
const char *rondo_text_bytes(int64_t bytes, char text[24]);
/** "Gen4 x16"; "" unknown. @return text. */
const char *rondo_text_pci_link(int speed, int width, char text[24]);
/** Text that may have come from a file: printable characters of ASCII only, others as '?'. @return text. */
const char *rondo_text_plain(const char *from, char *text, size_t bytes);
/** Columns that UTF-8 text takes. */
int rondo_text_columns(const char *text);
/** snprintf behind what is there; cut at the end of the text. */
void rondo_text_add(char *text, size_t bytes, const char *fmt, ...) RONDO_PRINTF(3, 4);

/* A line of pieces: a piece that does not fit goes on in the next line, behind `indent`. */
struct rondo_line {
    const struct rondo_draw *draw;
    const char *indent;
    int column, start; /* start: least column of the next piece, if it stays in the line */
    int pieces;
};
void rondo_line_begin(struct rondo_line *line, const struct rondo_draw *draw, const char *indent, int column,
                      int start);
void rondo_line_piece(struct rondo_line *line, const char *separator, enum rondo_ink ink, const char *text);
/** A sentence: each word is a piece. */
void rondo_line_words(struct rondo_line *line, enum rondo_ink ink, const char *text);
void rondo_line_end(struct rondo_line *line);

/** Flush; an error of the stream is RONDO_SYSTEM_ERROR. */
rondo_status rondo_draw_finish(FILE *out);

#endif
