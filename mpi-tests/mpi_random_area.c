/* Buffers of mpi_random: blocks of elements in derived datatypes, between bytes that must not change. */
#include "mpi_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_common.h"

enum { GUARD = 64, MOST_PER = 64 };

/* ---- layouts ---- */

static void layout_plain(struct layout *l, const struct basic *basic)
{
    l->type = basic->type;
    l->owned = 0;
    l->per = 1;
    l->extent = basic->extent;
    l->disp[0] = 0;
    snprintf(l->name, sizeof(l->name), "plain");
}

/* Displacements of `per` elements in runs of at most 3, with gaps of at most 3. @return the number of
 * runs. */
static int random_runs(struct rng *rng, int per, int *lengths, int *starts)
{
    int runs = 0, at = rng_below(rng, 3);
    for (int done = 0; done < per; runs++) {
        int length = 1 + rng_below(rng, 3);
        length = length < per - done ? length : per - done;
        lengths[runs] = length;
        starts[runs] = at;
        at += length + rng_below(rng, 4);
        done += length;
    }
    for (int i = runs - 1; i > 0 && rng_one_in(rng, 3); i--) { /* not always in ascending order */
        int j = rng_below(rng, i + 1), length = lengths[i], start = starts[i];
        lengths[i] = lengths[j], starts[i] = starts[j];
        lengths[j] = length, starts[j] = start;
    }
    return runs;
}

static void layout_runs(struct layout *l, struct rng *rng, const struct basic *basic, int how)
{
    int lengths[MOST_PER], starts[MOST_PER], runs = random_runs(rng, l->per, lengths, starts), e = 0;
    MPI_Aint bytes[MOST_PER];
    MPI_Datatype types[MOST_PER];
    for (int i = 0; i < runs; i++) {
        bytes[i] = (MPI_Aint)starts[i] * basic->extent;
        types[i] = basic->type;
        for (int k = 0; k < lengths[i]; k++) {
            l->disp[e++] = (long)bytes[i] + (long)k * basic->extent;
        }
    }
    switch (how) {
    case 0: MPI_Type_indexed(runs, lengths, starts, basic->type, &l->type); break;
    case 1: MPI_Type_create_hindexed(runs, lengths, bytes, basic->type, &l->type); break;
    default: MPI_Type_create_struct(runs, lengths, bytes, types, &l->type); break;
    }
    snprintf(l->name, sizeof(l->name), "%s", how == 0 ? "indexed" : how == 1 ? "hindexed" : "struct");
}

static void layout_vector(struct layout *l, struct rng *rng, const struct basic *basic, int nested)
{
    int length = 1, stride;
    while (length < 4 && l->per % (length * 2) == 0 && rng_one_in(rng, 2)) {
        length *= 2;
    }
    stride = length + rng_below(rng, 3);
    if (!nested && rng_one_in(rng, 4)) { /* backwards, and not dense, which Open MPI 4.1 takes for forwards */
        stride = -stride - 1;
    }
    for (int e = 0; e < l->per; e++) {
        l->disp[e] = ((long)(e / length) * stride + e % length) * basic->extent;
    }
    if (nested) {
        MPI_Datatype inner;
        MPI_Type_contiguous(length, basic->type, &inner);
        MPI_Type_create_hvector(l->per / length, 1, (MPI_Aint)stride * basic->extent, inner, &l->type);
        MPI_Type_free(&inner);
    } else {
        MPI_Type_vector(l->per / length, length, stride, basic->type, &l->type);
    }
    snprintf(l->name, sizeof(l->name), "%s", nested ? "hvector" : "vector");
}

static void layout_dense(struct layout *l, struct rng *rng, const struct basic *basic, int how)
{
    if (how == 2) { /* one element and a gap behind it */
        l->per = 1;
        l->disp[0] = 0;
        MPI_Type_create_resized(basic->type, 0, basic->extent * (2 + rng_below(rng, 2)), &l->type);
        snprintf(l->name, sizeof(l->name), "resized");
        return;
    }
    l->per = how == 0 ? 1 : l->per;
    for (int e = 0; e < l->per; e++) {
        l->disp[e] = (long)e * basic->extent;
    }
    if (how == 0) {
        MPI_Type_dup(basic->type, &l->type);
    } else {
        MPI_Type_contiguous(l->per, basic->type, &l->type);
    }
    snprintf(l->name, sizeof(l->name), "%s", how == 0 ? "dup" : "contiguous");
}

/* @return the largest number up to `most` that divides all counts. */
static int common_divisor(int nblocks, const long *counts, int most)
{
    for (int b = 0; b < nblocks; b++) {
        if (counts[b] % most != 0) {
            most--;
            b = -1;
        }
    }
    return most;
}

/* Choose a layout whose items hold a divisor of all `counts`. */
static void layout_choose(struct layout *l, struct rng *rng, const struct basic *basic, int nblocks,
                          const long *counts, int plain)
{
    MPI_Aint lb;
    int how = rng_below(rng, 12), per = 1 + rng_below(rng, 16);
    layout_plain(l, basic);
    if (plain || how < 3 ||
        basic->extent > 16 + 8) { /* Open MPI 4.1 overruns 16 bytes with larger elements */
        return;
    }
    if (rng_one_in(rng, 8)) {
        per = MOST_PER;
    }
    l->per = common_divisor(nblocks, counts, per);
    l->owned = 1;
    switch (how) {
    case 3:
    case 4:
    case 5: layout_dense(l, rng, basic, how - 3); break;
    case 6:
    case 7: layout_vector(l, rng, basic, how == 7); break;
    default: layout_runs(l, rng, basic, how % 3); break;
    }
    MPI_Type_commit(&l->type);
    MPI_Type_get_extent(l->type, &lb, &l->extent);
}

/* ---- areas ---- */

static unsigned char *element_at(const struct area *area, const struct block *block, long e)
{
    const struct layout *l = &area->layout;
    return area->at + block->offset + e / l->per * l->extent + l->disp[e % l->per];
}

/* Replace the type by one with the address of `at` in it, for MPI_BOTTOM. */
static void make_absolute(struct area *area)
{
    struct layout *l = &area->layout;
    int one = 1;
    MPI_Aint address, lb;
    MPI_Datatype type, old = l->type;
    MPI_Get_address(area->at, &address);
    MPI_Type_create_hindexed(1, &one, &address, l->type, &type);
    MPI_Type_commit(&type);
    MPI_Type_get_extent(type, &lb, &l->extent);
    if (l->owned) {
        MPI_Type_free(&old);
    }
    l->type = type;
    l->owned = 1;
    area->absolute = 1;
}

void area_make(struct area *area, struct rng *rng, const struct basic *basic, int nblocks, const long *counts,
               int gaps, int plain)
{
    struct layout *l = &area->layout;
    long low = 0, high = 0, span_low = 0, span_high = 0, place = 0;
    int pad = rng_below(rng, 8) * basic->align, order[MAX_RANKS];
    memset(area, 0, sizeof(*area));
    area->basic = basic;
    area->nblocks = nblocks;
    area->blocks = calloc((size_t)nblocks + 1, sizeof(*area->blocks));
    layout_choose(l, rng, basic, nblocks, counts, plain);
    for (int e = 0; e < l->per; e++) {
        low = l->disp[e] < low ? l->disp[e] : low;
        high = l->disp[e] + basic->extent > high ? l->disp[e] + basic->extent : high;
    }
    for (int b = 0; b < nblocks; b++) {
        order[b] = b;
    }
    for (int b = nblocks - 1; gaps && b > 0; b--) {
        int other = rng_below(rng, b + 1), tmp = order[b];
        order[b] = order[other];
        order[other] = tmp;
    }
    for (int i = 0; i < nblocks; i++) {
        struct block *block = &area->blocks[order[i]];
        long items = counts[order[i]] / l->per, end;
        place += gaps ? rng_below(rng, 3) : 0;
        block->elements = counts[order[i]];
        block->offset = place * l->extent;
        place += items;
        end = (long)block->offset + (items - 1) * (long)l->extent + high;
        span_low = items > 0 && block->offset + low < span_low ? (long)block->offset + low : span_low;
        span_high = items > 0 && end > span_high ? end : span_high;
    }
    area->bytes = (size_t)(span_high - span_low + pad) + 2 * GUARD;
    area->mem = malloc(area->bytes);
    area->image = malloc(area->bytes);
    if (area->mem == NULL || area->image == NULL || area->blocks == NULL) {
        test_die("no memory for %zu bytes", area->bytes);
    }
    area->at = area->mem + GUARD + pad - span_low;
    for (size_t i = 0; i < area->bytes; i++) {
        area->mem[i] = (unsigned char)(0xa5 ^ (i * 29));
    }
    if (!plain && rng_one_in(rng, 8)) {
        make_absolute(area);
    }
}

void *area_buffer(const struct area *area) { return area->absolute ? MPI_BOTTOM : area->at; }

int area_items(const struct area *area, int block)
{
    return (int)(area->blocks[block].elements / area->layout.per);
}

int area_place(const struct area *area, int block)
{
    return (int)(area->blocks[block].offset / area->layout.extent);
}

void area_fill(struct area *area, int op, uint64_t call)
{
    for (int b = 0; b < area->nblocks; b++) {
        const struct block *to = &area->blocks[b];
        for (long e = 0; e < to->elements && to->filled; e++) {
            value_write(area->basic, op, call, to->in_a, to->in_b, to->in_first + e, element_at(area, to, e));
        }
    }
    memcpy(area->image, area->mem, area->bytes);
}

static void expected(const struct area *area, const struct block *block, int op, uint64_t call, long e,
                     void *dst)
{
    if (block->want == W_VALUE) {
        value_write(area->basic, op, call, block->a, block->b, block->first + e, dst);
    } else {
        value_reduce(area->basic, op, call, block->a, block->b, block->first + e, dst);
    }
}

int area_check(struct area *area, int op, uint64_t call, uint64_t *digest, char *text, size_t len)
{
    size_t size = (size_t)area->basic->extent;
    for (int b = 0; b < area->nblocks; b++) {
        const struct block *block = &area->blocks[b];
        for (long e = 0; e < block->elements && block->want != W_KEEP; e++) {
            unsigned char *got = element_at(area, block, e), want[64] = { 0 };
            if (block->want != W_ANY) {
                expected(area, block, op, call, e, want);
                *digest = test_hash(*digest, (uint64_t)e, value_digest(area->basic, got));
                if (!value_same(area->basic, got, want)) {
                    char g[96], w[96];
                    value_text(area->basic, got, g, sizeof(g));
                    value_text(area->basic, want, w, sizeof(w));
                    snprintf(text, len, "block %d of %d, element %ld of %ld (%s) is %s, not %s", b,
                             area->nblocks, e, block->elements, area->layout.name, g, w);
                    return 1;
                }
            }
            memcpy(area->image + (got - area->mem), got, size); /* with its padding */
        }
    }
    if (memcmp(area->image, area->mem, area->bytes) != 0) {
        long i = 0;
        while (area->image[i] == area->mem[i]) {
            i++;
        }
        snprintf(text, len, "byte %ld of %zu (%s, data starts at %ld) changed from 0x%02x to 0x%02x",
                 i - GUARD, area->bytes - 2 * GUARD, area->layout.name, (long)(area->at - area->mem) - GUARD,
                 area->image[i], area->mem[i]);
        return 1;
    }
    return 0;
}

void area_type_free(struct area *area)
{
    if (area->layout.owned) {
        MPI_Type_free(&area->layout.type);
        area->layout.owned = 0;
    }
}

void area_free(struct area *area)
{
    area_type_free(area);
    free(area->mem);
    free(area->image);
    free(area->blocks);
    memset(area, 0, sizeof(*area));
}
