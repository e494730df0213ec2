/* The table of known segments, and which kinds of calls ask for direct access. */
#include "kern/direct_impl.h"

#include <string.h>

#include "base/mem.h"

enum { MIN_KNOWN = 64, KNOWN_PER_RANK = 8, MOST_KNOWN = INT16_MAX, PATIENCE = 4, MOST_DOUBLINGS = 6 };

static int table_size(int nlocal)
{
    int n = nlocal > MOST_KNOWN / KNOWN_PER_RANK ? MOST_KNOWN : nlocal * KNOWN_PER_RANK;
    return n < MIN_KNOWN ? MIN_KNOWN : n;
}

rondo_status rondo_direct_open(struct rondo_direct **direct, const struct rondo_direct_config *config)
{
    struct rondo_direct *d;
    rondo_status status;
    int nlocal = config->nlocal;
    RONDO_TRY(RONDO_NEW(d, "the state of direct access"));
    d->nlocal = nlocal;
    d->index = config->index;
    d->one_process = config->one_process;
    d->serve = config->serve;
    d->nest = config->nest;
    d->nknown = table_size(nlocal);
    if (config->pids != NULL) {
        RONDO_TRY_GOTO(RONDO_NEW_ARRAY(d->pids, nlocal, "the processes of direct access"), fail);
        memcpy(d->pids, config->pids, (size_t)nlocal * sizeof(*d->pids));
    }
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(d->offer, nlocal, "the offers of direct access"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(d->in, nlocal, "the buffers of direct access"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(d->out, nlocal, "the buffers of direct access"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(d->known, d->nknown, "the table of segments"), fail);
    *direct = d;
    return RONDO_SUCCESS;
fail:
    rondo_direct_close(d);
    return status;
}

static void forget(struct rondo_known *k)
{
    if (k->base != NULL) {
        rondo_segment_put(k->id);
        k->base = NULL;
    }
}

void rondo_direct_close(struct rondo_direct *d)
{
    if (d == NULL) {
        return;
    }
    for (int i = 0; d->known != NULL && i < d->nknown; i++) {
        forget(&d->known[i]);
    }
    rondo_free(d->scratch);
    rondo_free(d->pids);
    rondo_free(d->known);
    rondo_free(d->in);
    rondo_free(d->out);
    rondo_free(d->offer);
    rondo_free(d);
}

int rondo_direct_by_kernel(const struct rondo_direct *d, int *in_place)
{
    *in_place = 1;
    for (int r = 0; r < d->nlocal; r++) {
        *in_place &= d->offer[r].in_place != 0;
    }
    return d->reach == RONDO_REACH_CMA;
}

int rondo_direct_asks(struct rondo_direct_kind *kind)
{
    if (RONDO_UNLIKELY(kind->wait > 0)) {
        kind->wait--;
        return 0;
    }
    return 1;
}

void rondo_direct_learn(struct rondo_direct_kind *kind, int refused)
{
    uint16_t times = kind->refused;
    kind->refused = refused ? (uint16_t)(times < UINT16_MAX ? times + 1 : times) : 0;
    kind->wait = !refused || times < PATIENCE
                     ? 0
                     : (uint16_t)(1 << (times - PATIENCE < MOST_DOUBLINGS ? times - PATIENCE
                                                                          : MOST_DOUBLINGS));
}

uint64_t rondo_direct_segment(struct rondo_direct *d, int buffer, const void *ptr, size_t bytes)
{
    uint64_t epoch = rondo_region_epoch();
    struct rondo_region region;
    if (RONDO_LIKELY(d->found[buffer].ptr == ptr && d->found[buffer].bytes == bytes &&
                     d->found[buffer].epoch == epoch)) {
        return d->found[buffer].segment;
    }
    d->found[buffer].ptr = ptr;
    d->found[buffer].bytes = bytes;
    d->found[buffer].epoch = epoch;
    d->found[buffer].segment = rondo_region_find(ptr, bytes, &region) ? region.segment : 0;
    return d->found[buffer].segment;
}

struct rondo_known *rondo_direct_known(struct rondo_direct *d, uint64_t segment)
{
    int16_t *hint = &d->hint[segment % RONDO_DIRECT_HINTS];
    if (RONDO_LIKELY(d->known[*hint].id == segment)) {
        return &d->known[*hint];
    }
    for (int i = 0; i < d->nknown; i++) {
        if (d->known[i].id == segment) {
            *hint = (int16_t)i;
            return &d->known[i];
        }
    }
    return NULL;
}

void rondo_direct_touch(struct rondo_direct *d, uint64_t segment)
{
    struct rondo_known *known = segment != 0 ? rondo_direct_known(d, segment) : NULL;
    if (known != NULL) {
        known->used = d->ncalls;
    }
}

void rondo_direct_remember(struct rondo_direct *d, const struct rondo_segment_note *note, uint8_t *base,
                           size_t bytes)
{
    struct rondo_known *oldest = &d->known[0];
    for (int i = 0; i < d->nknown; i++) {
        oldest = d->known[i].used < oldest->used ? &d->known[i] : oldest; /* free entries were never used */
    }
    forget(oldest);
    *oldest = (struct rondo_known){
        .id = note->id, .owner_base = note->base, .base = base, .bytes = bytes, .used = d->ncalls
    };
}

void rondo_direct_sweep(struct rondo_direct *d)
{
    for (int i = 0; i < d->nknown; i++) {
        if (d->known[i].base != NULL && !rondo_segment_alive(d->known[i].id)) {
            forget(&d->known[i]);
        }
    }
}
