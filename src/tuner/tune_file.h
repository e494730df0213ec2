/*
 * Tuning files and measured times. `rondo-explain --measure` writes a tuning file, RONDO_TUNE_FILE names
 * it. It is plain text; blank lines and everything after # are ignored, and blanks separate words:
 *
 *     rondo-tune 1
 *     shape machine=0123456789abcdef nodes=2 ranks=8 per_node=4 memory=host
 *     all_reduce ring simple 2 65536 31.250
 *
 * The first line is the version of the format. `shape` says on which job the lines below were measured:
 * machine is rondo_machine_hash (of all nodes together if they differ), per_node the most ranks of a node,
 * memory host or gpu. A measurement is collective, algorithm, protocol, channels, bytes of the larger
 * buffer of a rank, microseconds; v-forms and barrier use the times of the collective that carries them.
 *
 * A file may have several shapes, so files may be joined with cat; only the first section of a shape
 * counts. A job uses the section of exactly its shape. Measured times replace the model's, and what was not
 * measured is chosen only if nothing else can run.
 *
 * A series is the sizes of one collective, algorithm, protocol and number of channels. Between two sizes
 * the time is interpolated linearly; below the first it is the first's, beyond the last it grows with the
 * bytes.
 */
#ifndef RONDO_TUNER_TUNE_FILE_H
#define RONDO_TUNER_TUNE_FILE_H

#include <stdio.h>

#include "tuner/tuner.h"

enum { RONDO_TUNE_VERSION = 1, RONDO_TUNE_MAX_BYTES = 4 << 20, RONDO_TUNE_MAX_SHAPES = 1024 };

struct rondo_measured_point {
    uint8_t coll, algo, proto, nchannels;
    uint32_t line; /* in its file; 0: no file */
    uint64_t bytes;
    double us;
};

struct rondo_measured {
    int npoints;
    struct rondo_measured_point *point; /* sorted; every size of a series once */
};

struct rondo_tune_shape {
    uint64_t machine;
    int32_t nodes, ranks, per_node;
    int32_t gpu; /* 1: GPU memory */
};

struct rondo_tune_section {
    struct rondo_tune_shape shape;
    struct rondo_measured measured;
};

struct rondo_tune {
    int nsections;
    struct rondo_tune_section *section;
    uint64_t hash; /* of the text */
};

/** Sort the points. @return the later one of two points with the same series and size; NULL: none. */
const struct rondo_measured_point *rondo_measured_sort(struct rondo_measured *measured);
/** @return us; negative: the series is empty. */
double rondo_measured_us(const struct rondo_measured *measured, enum rondo_coll coll, enum rondo_algo algo,
                         enum rondo_proto proto, int nchannels, size_t bytes);

/** Parse n bytes of text; free the result with rondo_tune_free. @return RONDO_INVALID_ARGUMENT naming file
 * and line; *tune is NULL then. */
rondo_status rondo_tune_parse(struct rondo_tune **tune, const char *text, size_t n, const char *file);
/** Read and parse a file. @return as rondo_tune_parse. */
rondo_status rondo_tune_read(struct rondo_tune **tune, const char *file);
void rondo_tune_free(struct rondo_tune *tune);
/** Write one section; head: write the first line of the file before it. */
rondo_status rondo_tune_write(FILE *out, const struct rondo_tune_section *section, int head);

/** @return the shape of a job. The layout has its nodes, machine and model. */
struct rondo_tune_shape rondo_tune_shape_of(const struct rondo_layout *layout);
/** Find the measurements of a shape. @return NULL: none; `why` says which shapes the file has. */
const struct rondo_measured *rondo_tune_find(const struct rondo_tune *tune,
                                             const struct rondo_tune_shape *shape, char *why, size_t size);
/** "2 nodes, 8 ranks, at most 4 a node, of machine 0123456789abcdef, host memory" */
void rondo_tune_shape_text(const struct rondo_tune_shape *shape, char *text, size_t size);

#endif
