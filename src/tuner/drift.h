/*
 * Drift: where real calls of a communicator take longer than the cost model predicts, the model is
 * corrected. A correction is a factor for one way to carry one kind of call, a collective and a power of two
 * of bytes. It enters the choice as calibration does (tuner/calibration.h): only among ways with the same
 * bits.
 *
 * Here are the numbers and the judgement, pure functions of what all ranks have in common. call/drift.h says
 * who measures, and how the ranks come to have it in common.
 */
#ifndef RONDO_TUNER_DRIFT_H
#define RONDO_TUNER_DRIFT_H

#include "tuner/tuner.h"

/* The ways to carry a call: enum rondo_algo, over conns, the mailbox or mapped buffers; and direct access
 * where the kernel copies, if the call is in place on all ranks, and else. */
enum { RONDO_WAY_KERNEL_IN_PLACE = RONDO_NUM_ALGOS, RONDO_WAY_KERNEL_APART, RONDO_NUM_WAYS };

enum {
    RONDO_DRIFT_LEAST_BITS = 13, /* calls from 8 KiB on; smaller ones are not timed */
    RONDO_DRIFT_SIZES = 18,      /* powers of two; the last one is of all larger calls, too */
    RONDO_DRIFT_SAMPLES = 32,    /* which are judged together */
    RONDO_DRIFT_LEAST = 8,       /* of them, those of a way that is judged */
    RONDO_DRIFT_CORRECTIONS = 8  /* of a kind; after the last one the model alone chooses */
};

/* A kind of call. All ranks have the same values, except for samples. */
struct rondo_drift_kind {
    uint8_t coll, bits; /* enum rondo_coll; the bytes are from 2^bits on */
    uint8_t ncorrections;
    uint8_t nsamples;                     /* taken, or passed over */
    uint32_t left;                        /* calls before the next one that is sampled */
    uint32_t stride;                      /* calls from one sample to the next, less 1 */
    float factor[RONDO_NUM_WAYS];         /* measured time by the model's; 0: not measured */
    uint32_t sample[RONDO_DRIFT_SAMPLES]; /* rondo_drift_sample; 0: none. Of this rank */
};

/* The corrections of a communicator. The kinds are owned; NULL: not called yet. */
struct rondo_drift {
    struct rondo_drift_kind *kind[RONDO_NUM_COLLS][RONDO_DRIFT_SIZES];
    struct rondo_drift_kind *voted; /* whose samples the ranks have shown and not judged; NULL: none */
    uint64_t nvotes;
    uint32_t *taken; /* the sample of the call that begins; NULL: it is not timed */
    uint8_t ended;   /* nothing is sampled or corrected any more */
};

/** The number of a kind in rondo_drift.kind; bytes: rondo_task_bytes, at least 2^RONDO_DRIFT_LEAST_BITS. */
static inline int rondo_drift_size(size_t bytes)
{
    int bits = 63 - __builtin_clzll((unsigned long long)bytes) - RONDO_DRIFT_LEAST_BITS;
    return bits < RONDO_DRIFT_SIZES ? bits : RONDO_DRIFT_SIZES - 1;
}

/** @return by how much the model's time of a way is multiplied; 1: no way of the kind is corrected. Once one
 * is, a way that was not measured counts as 1.25 times the model's. */
double rondo_drift_factor(const struct rondo_layout *layout, enum rondo_coll coll, size_t bytes, int way);
/** Predict what a way takes, without corrections. ran: what carried the call; us is ignored. */
double rondo_drift_us(const struct rondo_layout *layout, enum rondo_coll coll, size_t bytes, size_t mailbox,
                      const struct rondo_choice *ran, int way, int in_place);
/** Pack a way and a time relative to the predicted one. Neither is 0. */
uint32_t rondo_drift_sample(int way, double ratio);
/** Reduce the samples that all ranks took of the same calls: the shortest is that of the rank which came last
 * and waited for nobody. all: becomes the shorter; samples of different ways, or one that is missing, say
 * nothing. */
void rondo_drift_merge(uint32_t all[RONDO_DRIFT_SAMPLES], const uint32_t of_rank[RONDO_DRIFT_SAMPLES]);
/**
 * Judge the samples of all ranks. A way has drifted if the median of its samples is more than half as much
 * again as what the model and earlier corrections say. Then it is corrected, and, so that no way is preferred
 * because it was not measured, every other way that has samples, from then on. A way that takes less than two
 * thirds of what it was corrected to shows that the host is not what it was, such as busy: all corrections of
 * the kind are forgotten. So they are with the last one that is allowed. A way that takes less than the model
 * says stays chosen, and needs no correction.
 * @return 1: choose anew.
 */
int rondo_drift_judge(struct rondo_drift_kind *kind, const uint32_t all[RONDO_DRIFT_SAMPLES]);
/** Write "oneshot 2.31, the kernel's copies in place 1.10": the factors; "none". @return text */
const char *rondo_drift_text(const struct rondo_drift_kind *kind, char *text, size_t size);

#endif
