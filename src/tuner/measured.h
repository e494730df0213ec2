/*
 * Times that were measured on a machine (rondo-explain --measure): they stand for the model's where there are
 * any. Pure functions of the table.
 *
 * Series: the sizes of one collective, algorithm, protocol and number of channels. Between two sizes the time
 * lies on the line between theirs; below the first it is the first's, beyond the last it grows with the
 * bytes.
 */
#ifndef RONDO_TUNER_MEASURED_H
#define RONDO_TUNER_MEASURED_H

#include "coll/algo.h"

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

/** Sort what was put in in any order. @return the later of two points of one size in one series, NULL: there
 * are none. */
const struct rondo_measured_point *rondo_measured_sort(struct rondo_measured *measured);
/** us; negative: nothing was measured of this. */
double rondo_measured_us(const struct rondo_measured *measured, enum rondo_coll coll, enum rondo_algo algo,
                         enum rondo_proto proto, int nchannels, size_t bytes);

#endif
