/* The time of records (trace.h). Where the kernel itself tells the time by the processor's counter, records
 * hold the counter, whose look takes a quarter of the time. Each chunk of records has one moment in both,
 * and between two of these the counter's rate is taken as constant. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "prof/trace/trace.h"

int trace_counts;

uint64_t trace_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void trace_clock_open(void)
{
#if defined(__x86_64__)
    char text[16] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "r");
    if (file != NULL) {
        trace_counts = fgets(text, sizeof text, file) != NULL && strcmp(text, "tsc\n") == 0;
        fclose(file);
    }
#endif
}

/* The thread may be interrupted in between: the shortest of some tries. */
struct trace_anchor trace_anchor_now(void)
{
    enum { TRIES = 4 };
    struct trace_anchor best = { 0, 0 };
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = trace_ticks(), ns = trace_ns(), took = trace_ticks() - before;
        if (took < least) {
            least = took;
            best = (struct trace_anchor){ .ticks = before + took / 2, .ns = ns };
        }
    }
    return best;
}

/* Between these two moments, and beyond them for an event that began or ended there. */
static uint64_t time_at(uint64_t ticks, struct trace_anchor a, struct trace_anchor b)
{
    double rate = b.ticks > a.ticks ? (double)(b.ns - a.ns) / (double)(b.ticks - a.ticks) : 1;
    return ticks == 0 ? 0 : (uint64_t)((int64_t)a.ns + (int64_t)((double)(int64_t)(ticks - a.ticks) * rate));
}

static uint64_t time_of(const struct trace_context *c, const struct trace_chunk *chunk, uint64_t ticks)
{
    while (chunk->next != NULL && chunk->next->anchor.ticks < ticks) {
        chunk = chunk->next;
    }
    return time_at(ticks, chunk->anchor, chunk->next != NULL ? chunk->next->anchor : c->end);
}

void trace_times(struct trace_context *c)
{
    for (struct trace_chunk *chunk = c->first; chunk != NULL && trace_counts; chunk = chunk->next) {
        for (uint64_t i = 0; i < trace_records(chunk); i++) {
            struct trace_record *r = &chunk->record[i];
            r->start = time_of(c, chunk, r->start);
            r->stop = time_of(c, chunk, r->stop);
            if (r->type == RONDO_PROF_PROXY_STEP) {
                r->step.waited = time_of(c, chunk, r->step.waited);
                r->step.moved = time_of(c, chunk, r->step.moved);
            } else if (r->type == RONDO_PROF_COLL || r->type == RONDO_PROF_P2P) {
                r->call.last = time_of(c, chunk, r->call.last);
            }
        }
    }
}
