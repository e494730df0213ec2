/*
 * libnccl-profiler-rondo.so: a profiler plugin that writes a trace for Chrome and Perfetto and a summary for
 * each kind of call. It uses the interface of NCCL's profiler plugins alone (prof_abi.h), so it serves NCCL
 * too, from version 4 on. docs/profiler.md has its variables and its files.
 *
 * trace.c: events become records. clock.c: their times. summary.c: calls that are alike, counted. write.c:
 * the files. An event costs a place in a chunk and a look at the processor's counter; all else waits for the
 * end. A context belongs to one thread at a time, as the interface has it for Rondo; NCCL's proxy threads
 * start and stop events beside the caller, so places are taken by an atomic addition.
 */
#ifndef RONDO_PROF_TRACE_TRACE_H
#define RONDO_PROF_TRACE_TRACE_H

#include <pthread.h>
#include <stdio.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "prof/prof_abi.h"

enum trace_level { TRACE_CALLS, TRACE_CHANNELS, TRACE_STEPS };
enum { TRACE_NAME = 64, TRACE_BUCKETS = 40, TRACE_ROWS = 512 };

/* What a call is: all but its times. Strings are constants of the library that calls. */
struct trace_what {
    const char *func, *datatype, *algo, *proto;
    uint64_t bytes; /* as benchmarks count them: of the larger buffer of a rank */
};

/* An event. Times are ticks (clock.c), and from trace_times on CLOCK_MONOTONIC in ns. */
struct trace_record {
    struct trace_context *context;
    struct trace_record *parent;
    uint64_t start, stop; /* stop 0: open */
    uint32_t type;        /* enum rondo_prof_type */
    int32_t peer, channel;
    union {
        struct {
            struct trace_what what;
            uint64_t seq, count;
            uint64_t last; /* when its last child ended */
            uint8_t nchannels;
        } call;
        struct {
            int32_t nsteps, is_send;
            uint32_t lanes; /* bits: taken by steps that are open */
            uint64_t bytes;
        } op;
        struct {
            int32_t step, lane;     /* steps that overlap have different lanes */
            uint64_t waited, moved; /* when the data was here, and when it began to move */
            uint64_t bytes;
        } step;
    };
};

/* The ticks and the time at one moment. */
struct trace_anchor {
    uint64_t ticks, ns;
};

struct trace_chunk {
    struct trace_chunk *next;
    struct trace_anchor anchor;
    uint32_t room, n; /* n: atomic; above room: it was full */
    struct trace_record record[];
};

/* Calls that are alike. Times in ns. */
struct trace_row {
    struct trace_what what;
    uint64_t count, total, least, most;
    uint32_t bucket[TRACE_BUCKETS]; /* [i]: from 2^i ns to below 2^(i+1) */
};

struct trace_context {
    pthread_mutex_t lock;
    uint64_t hash;
    int nranks, nnodes, rank;
    char name[TRACE_NAME];
    uint64_t begun_monotonic, begun_real;
    struct trace_chunk *first, *last; /* last: atomic */
    uint64_t room,
        lost; /* room: of all chunks; lost: events above RONDO_TRACE_MAX, which the trace lacks; atomic */
    struct trace_anchor end;
    /* What was measured when the communicator began: add offset_ns to times of this host to get those of rank
     * clock_rank's, to error_ns. clock_rank -1: nothing was. */
    int clock_rank;
    int64_t offset_ns, error_ns;
    struct trace_row row[TRACE_ROWS];
    int nrows;
    uint64_t rows_lost; /* calls of kinds for which there was no row */
};

struct trace_settings {
    enum trace_level level;
    uint64_t max; /* records of a communicator */
    char prefix[256];
    int text, json, prometheus;
};
extern struct trace_settings trace_settings;

static inline uint64_t trace_records(const struct trace_chunk *chunk)
{
    return chunk->n < chunk->room ? chunk->n : chunk->room;
}

/** Find out how to tell the time; once, before trace_ticks. */
void trace_clock_open(void);
extern int trace_counts; /* ticks are the processor's counter */
uint64_t trace_ns(void);
static inline uint64_t trace_ticks(void)
{
#if defined(__x86_64__)
    if (__builtin_expect(trace_counts, 1)) {
        return __rdtsc();
    }
#endif
    return trace_ns();
}
struct trace_anchor trace_anchor_now(void);
/** Make all times of the records ns, once the context has its end. */
void trace_times(struct trace_context *context);

/** Count a call that has ended. */
void trace_summary_add(struct trace_context *context, const struct trace_what *what, uint64_t ns);
/** Median or another quantile of a row, in ns: the middle of the bucket that has it. */
double trace_quantile(const struct trace_row *row, double q);
/** Factor of nccl-tests from algbw to busbw. */
double trace_bus_factor(const char *func, int nranks);
/** Write the files of a communicator; a file that cannot be written is named on stderr. */
void trace_write(struct trace_context *context);

#endif
