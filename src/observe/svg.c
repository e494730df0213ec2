/* Ranks by time: a row for each rank, a bar for each recorded call. Contract: observe.h. */
#include <string.h>

#include "coll/algo.h"
#include "observe/observe.h"

enum { LEFT = 90, WIDTH = 1100, ROW = 22, TOP = 62, MOST_ROWS = 256 };

/* Text of XML. */
static void text_print(FILE *out, const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        switch (*at) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default: putc(*at < 0x20 || *at >= 0x7f ? '?' : *at, out);
        }
    }
}

/* From the first call that is shown until now. */
struct span {
    int64_t begin_ns, end_ns;
};

static struct span span_of(const struct rondo_seen *seen, const struct rondo_seen_comm *comm)
{
    struct span span = { 0, seen->now_ns };
    for (int i = 0; i < comm->n; i++) {
        for (int k = 0; k < comm->ranks[i].ncalls; k++) {
            int64_t begin_ns = comm->ranks[i].calls[k].begin_ns;
            if (begin_ns != 0 && (span.begin_ns == 0 || begin_ns < span.begin_ns)) {
                span.begin_ns = begin_ns;
            }
        }
    }
    span.begin_ns = span.begin_ns == 0 ? span.end_ns - 1 : span.begin_ns;
    return span;
}

static double x_of(const struct span *span, int64_t ns)
{
    return LEFT + (double)WIDTH * (double)(ns - span->begin_ns) / (double)(span->end_ns - span->begin_ns);
}

/* Open calls are red. A call whose end is not timed is a hairline. */
static void bar(FILE *out, const struct rondo_seen *seen, const struct span *span,
                const struct rondo_seen_call *call, int y, int is_message)
{
    int64_t end = call->state == 1 ? seen->now_ns : call->end_ns != 0 ? call->end_ns : call->begin_ns;
    double x = x_of(span, call->begin_ns), width = x_of(span, end) - x;
    char text[128];
    if (call->begin_ns == 0) {
        return;
    }
    rondo_seen_call_text(call, text, sizeof(text));
    fprintf(out, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>", x, y,
            width < 0.5 ? 0.5 : width, is_message ? 4 : ROW - 8,
            call->state == 1 ? "#d62728"
            : is_message     ? "#9467bd"
            : call->seq % 2  ? "#1f77b4"
                             : "#5fa2d3");
    text_print(out, text);
    fprintf(out, "</title></rect>\n");
}

static int rows_of(const struct rondo_seen_comm *comm) { return comm->n < MOST_ROWS ? comm->n : MOST_ROWS; }

static void comm_svg(FILE *out, const struct rondo_seen *seen, const struct rondo_seen_comm *comm, int top)
{
    struct span span = span_of(seen, comm);
    char time[16];
    fprintf(out, "<text x=\"8\" y=\"%d\" font-weight=\"bold\">communicator ", top + 14);
    text_print(out, comm->name);
    fprintf(out, ": the last %s</text>\n", rondo_seen_time_text(span.end_ns - span.begin_ns, time));
    for (int i = 0; i < rows_of(comm); i++) {
        const struct rondo_seen_rank *r = &comm->ranks[i];
        const struct rondo_seen_process *p = &seen->processes[r->process];
        int y = top + 22 + i * ROW;
        fprintf(out, "<text x=\"8\" y=\"%d\">rank %d%s</text>\n", y + 14, r->rank,
                p->state == 0                        ? " dead"
                : p->state == 'T' || p->state == 't' ? " stopped"
                                                     : "");
        fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f2f2f2\"/>\n", LEFT, y,
                WIDTH, ROW - 4);
        for (int k = 0; k < r->ncalls; k++) {
            bar(out, seen, &span, &r->calls[k], y + 2, 0);
        }
        for (int k = 0; k < r->nmessages; k++) {
            bar(out, seen, &span, &r->messages[k], y + ROW - 8, 1);
        }
    }
}

void rondo_seen_svg(FILE *out, const struct rondo_seen *seen, const struct rondo_diagnosis *diagnosis)
{
    int height = TOP;
    for (int c = 0; c < seen->ncomms; c++) {
        height += 40 + rows_of(&seen->comms[c]) * ROW;
    }
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            LEFT + WIDTH + 20, height);
    fprintf(out, "<text x=\"8\" y=\"20\" font-size=\"14\">");
    text_print(out, diagnosis->finding[0].text);
    fprintf(out,
            "</text>\n<text x=\"8\" y=\"40\" fill=\"#555\">blue: a collective, violet: a send or receive, "
            "red: not done yet; a hairline: its end is not timed</text>\n");
    height = TOP;
    for (int c = 0; c < seen->ncomms; c++) {
        comm_svg(out, seen, &seen->comms[c], height);
        height += 40 + rows_of(&seen->comms[c]) * ROW;
    }
    fprintf(out, "</svg>\n");
}
