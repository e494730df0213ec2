#include "tuner/drift.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/cost_impl.h"

/* A sample: way + 1 in the upper bits, below it the ratio in units of 1 / UNIT. */
enum { RATIO_BITS = 24, UNIT = 1024 };
static const uint32_t ratio_mask = (1u << RATIO_BITS) - 1;

/* A way drifts by more than the first factor. Once one has, those that were not measured count as slower by
 * the second: a gain of less than a fifth is not worth a trial. */
static const double drifts = 1.5, untried = 1.25;

/* Is any way of the kind corrected? */
static int is_corrected(const struct rondo_drift_kind *kind)
{
    for (int w = 0; w < RONDO_NUM_WAYS; w++) {
        if (kind->factor[w] > 0) {
            return 1;
        }
    }
    return 0;
}

double rondo_drift_factor(const struct rondo_layout *layout, enum rondo_coll coll, size_t bytes, int way)
{
    const struct rondo_drift_kind *kind;
    if (layout->drift == NULL || bytes >> RONDO_DRIFT_LEAST_BITS == 0) {
        return 1;
    }
    kind = layout->drift->kind[coll][rondo_drift_size(bytes)];
    return kind == NULL || !is_corrected(kind) ? 1
           : kind->factor[way] > 0             ? (double)kind->factor[way]
                                               : untried;
}

double rondo_drift_us(const struct rondo_layout *layout, enum rondo_coll coll, size_t bytes, size_t mailbox,
                      const struct rondo_choice *ran, int way, int in_place)
{
    struct rondo_layout plain = *layout;
    struct rondo_choice choice = *ran;
    plain.drift = NULL;
    if (way >= RONDO_WAY_KERNEL_IN_PLACE) {
        return rondo_kernel_us(&plain, (enum rondo_algo)ran->algo, coll, bytes,
                               way == RONDO_WAY_KERNEL_IN_PLACE);
    }
    (void)rondo_choice_time(&plain, coll, bytes, mailbox, &choice);
    return choice.us + (in_place ? 0 : rondo_apart_us(&plain, coll, bytes, 0));
}

uint32_t rondo_drift_sample(int way, double ratio)
{
    double units = ratio * UNIT;
    uint32_t packed = units < 1 ? 1 : units > ratio_mask ? ratio_mask : (uint32_t)units;
    return ((uint32_t)way + 1) << RATIO_BITS | packed;
}

void rondo_drift_merge(uint32_t all[RONDO_DRIFT_SAMPLES], const uint32_t of_rank[RONDO_DRIFT_SAMPLES])
{
    for (int i = 0; i < RONDO_DRIFT_SAMPLES; i++) {
        if (all[i] >> RATIO_BITS != of_rank[i] >> RATIO_BITS) {
            all[i] = 0;
        } else if (of_rank[i] < all[i]) {
            all[i] = of_rank[i];
        }
    }
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The median of a way's samples, as a factor. @return 0: there are too few. */
static double median(const uint32_t all[RONDO_DRIFT_SAMPLES], int way)
{
    uint32_t ratio[RONDO_DRIFT_SAMPLES];
    int n = 0;
    for (int i = 0; i < RONDO_DRIFT_SAMPLES; i++) {
        if (all[i] >> RATIO_BITS == (uint32_t)way + 1) {
            ratio[n++] = all[i] & ratio_mask;
        }
    }
    qsort(ratio, (size_t)n, sizeof(*ratio), by_value);
    return n < RONDO_DRIFT_LEAST ? 0 : (double)ratio[n / 2] / UNIT;
}

static int forget(struct rondo_drift_kind *kind)
{
    memset(kind->factor, 0, sizeof(kind->factor));
    return 1;
}

/* Ranks may have cached different calls of the kind, chosen by its factors. So if one changes, all are chosen
 * anew. @return 1: a factor has changed. */
static int adopt(struct rondo_drift_kind *kind, const double now[RONDO_NUM_WAYS])
{
    int drifted = is_corrected(kind), slower = 0, anew = 0;
    for (int w = 0; w < RONDO_NUM_WAYS; w++) {
        double was = (double)kind->factor[w];
        if (was > 0 && now[w] > 0 && was > drifts * now[w]) {
            return forget(kind);
        }
        slower |= now[w] > drifts * (was > 0 ? was : 1);
    }
    for (int w = 0; w < RONDO_NUM_WAYS; w++) {
        double was = (double)kind->factor[w];
        int takes = was > 0 ? now[w] > drifts * was : drifted || slower;
        if (now[w] > 0 && takes) {
            kind->factor[w] = (float)now[w];
            anew = 1;
        }
    }
    return anew;
}

int rondo_drift_judge(struct rondo_drift_kind *kind, const uint32_t all[RONDO_DRIFT_SAMPLES])
{
    double now[RONDO_NUM_WAYS];
    int anew;
    for (int w = 0; w < RONDO_NUM_WAYS; w++) {
        now[w] = median(all, w);
    }
    anew = adopt(kind, now);
    kind->ncorrections = (uint8_t)(kind->ncorrections + anew);
    if (kind->ncorrections >= RONDO_DRIFT_CORRECTIONS) {
        (void)forget(kind);
    }
    return anew;
}

static const char *way_name(int way)
{
    return way < RONDO_NUM_ALGOS              ? rondo_algo_name((enum rondo_algo)way)
           : way == RONDO_WAY_KERNEL_IN_PLACE ? "the kernel's copies in place"
                                              : "the kernel's copies apart";
}

const char *rondo_drift_text(const struct rondo_drift_kind *kind, char *text, size_t size)
{
    size_t at = 0;
    snprintf(text, size, "none");
    for (int w = 0; w < RONDO_NUM_WAYS; w++) {
        if (kind->factor[w] > 0 && at < size) {
            at += (size_t)snprintf(text + at, size - at, "%s%s %.2f", at > 0 ? ", " : "", way_name(w),
                                   (double)kind->factor[w]);
        }
    }
    return text;
}
