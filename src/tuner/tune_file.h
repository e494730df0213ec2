/*
 * What bounds and informs the tuner beside its model: what the parameters allow, and what was measured on a
 * job of the same shape.
 *
 * A tuning file is plain text that `rondo-explain --measure` writes and RONDO_TUNE_FILE names. Blank lines
 * and what follows a # mean nothing; words are apart by blanks:
 *
 *     rondo-tune 1                                                                  the version of the
 * format; first shape machine=0123456789abcdef nodes=2 ranks=8 per_node=4 memory=host         what the lines
 * below it were measured on all_reduce ring simple 2 65536 31.250 collective, algorithm, protocol, channels,
 * bytes, microseconds
 *
 * machine: rondo_machine_hash (nodes that differ: of all of them together); per_node: the most ranks of a
 * node; memory: host or gpu; bytes: of the larger buffer of a rank. Collectives are those that algorithms
 * carry (v-forms and barrier are found under them). Several shapes may follow each other, and files may be
 * joined with cat; of one shape only one counts: the first. A file is used for exactly the shape that it
 * says; the times stand for the model's (tuner/measured.h), and what was not measured is chosen only where
 * nothing else is.
 */
#ifndef RONDO_TUNER_TUNE_FILE_H
#define RONDO_TUNER_TUNE_FILE_H

#include <stdio.h>

#include "tuner/tuner.h"

enum { RONDO_TUNE_VERSION = 1, RONDO_TUNE_MAX_BYTES = 4 << 20, RONDO_TUNE_MAX_SHAPES = 1024 };

struct rondo_measured_point {
    uint8_t coll, algo, proto, nchannels;
    uint32_t line; /* of the file that it is from; 0: of none */
    uint64_t bytes;
    double us;
};

struct rondo_measured {
    int npoints;
    struct rondo_measured_point *point; /* sorted; no two of one size in a series */
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

/** Sort what was put in in any order. @return the later of two points of one size in one series, NULL: there
 * are none. */
const struct rondo_measured_point *rondo_measured_sort(struct rondo_measured *measured);
/** us; negative: nothing was measured of this. */
double rondo_measured_us(const struct rondo_measured *measured, enum rondo_coll coll, enum rondo_algo algo,
                         enum rondo_proto proto, int nchannels, size_t bytes);

/** Parse n bytes of text. @return RONDO_INVALID_ARGUMENT naming file and line. *tune is NULL after an error.
 */
rondo_status rondo_tune_parse(struct rondo_tune **tune, const char *text, size_t n, const char *file);
/** The same of a file. */
rondo_status rondo_tune_read(struct rondo_tune **tune, const char *file);
void rondo_tune_free(struct rondo_tune *tune);
/** Write one section; head: the file's first line before it. */
rondo_status rondo_tune_write(FILE *out, const struct rondo_tune_section *section, int head);

/** The shape of a job; layout->machine, the model and the nodes are filled. */
struct rondo_tune_shape rondo_tune_shape_of(const struct rondo_layout *layout);
/** The measurements of a shape, or NULL; then `why` says what the file has instead. */
const struct rondo_measured *rondo_tune_find(const struct rondo_tune *tune,
                                             const struct rondo_tune_shape *shape, char *why, size_t size);
/** "2 nodes, 8 ranks, at most 4 a node, of machine 0123456789abcdef, host memory" */
void rondo_tune_shape_text(const struct rondo_tune_shape *shape, char *text, size_t size);

#endif
