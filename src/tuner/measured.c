#include "tuner/measured.h"

#include <stdlib.h>

static uint32_t series_of(const struct rondo_measured_point *p)
{
    return (uint32_t)p->coll << 24 | (uint32_t)p->algo << 16 | (uint32_t)p->proto << 8 | p->nchannels;
}

static int by_series(const void *x, const void *y)
{
    const struct rondo_measured_point *a = x, *b = y;
    uint32_t s = series_of(a), t = series_of(b);
    if (s != t) {
        return s < t ? -1 : 1;
    }
    if (a->bytes != b->bytes) {
        return a->bytes < b->bytes ? -1 : 1;
    }
    return (a->line > b->line) - (a->line < b->line);
}

const struct rondo_measured_point *rondo_measured_sort(struct rondo_measured *m)
{
    if (m->npoints > 0) {
        qsort(m->point, (size_t)m->npoints, sizeof(*m->point), by_series);
    }
    for (int i = 1; i < m->npoints; i++) {
        if (series_of(&m->point[i]) == series_of(&m->point[i - 1]) &&
            m->point[i].bytes == m->point[i - 1].bytes) {
            return &m->point[i];
        }
    }
    return NULL;
}

/* The first point that is not below (series, bytes). */
static int lower_bound(const struct rondo_measured *m, const struct rondo_measured_point *key)
{
    int from = 0, to = m->npoints;
    while (from < to) {
        int middle = from + (to - from) / 2;
        if (by_series(&m->point[middle], key) < 0) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

double rondo_measured_us(const struct rondo_measured *m, enum rondo_coll coll, enum rondo_algo algo,
                         enum rondo_proto proto, int nchannels, size_t bytes)
{
    struct rondo_measured_point key = { .coll = (uint8_t)rondo_coll_scheduled_as(coll),
                                        .algo = (uint8_t)algo,
                                        .proto = (uint8_t)proto,
                                        .nchannels = (uint8_t)nchannels,
                                        .bytes = bytes };
    int at = lower_bound(m, &key);
    const struct rondo_measured_point *above = at < m->npoints && series_of(&m->point[at]) == series_of(&key)
                                                   ? &m->point[at]
                                                   : NULL;
    const struct rondo_measured_point *below = at > 0 && series_of(&m->point[at - 1]) == series_of(&key)
                                                   ? &m->point[at - 1]
                                                   : NULL;
    if (above == NULL) {
        return below == NULL ? -1 : below->us * ((double)bytes / (double)below->bytes);
    }
    if (below == NULL || above->bytes == bytes) {
        return above->us;
    }
    return below->us +
           (above->us - below->us) * (double)(bytes - below->bytes) / (double)(above->bytes - below->bytes);
}
