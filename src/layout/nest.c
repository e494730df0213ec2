#include "layout/nest.h"

#include "base/mem.h"

/* A group of a level (from 1) begins where that level, or one outside it, is cut. */
static void fill_level(struct rondo_nest *nest, const uint8_t *cut, int level)
{
    int16_t *begin = nest->begin + (size_t)(level - 1) * (size_t)nest->n,
            *end = nest->end + (size_t)(level - 1) * (size_t)nest->n;
    for (int i = 0; i < nest->n; i++) {
        begin[i] = i == 0 || (cut[i] != 0 && cut[i] <= level) ? (int16_t)i : begin[i - 1];
    }
    for (int i = nest->n - 1; i >= 0; i--) {
        end[i] = i == nest->n - 1 || begin[i + 1] != begin[i] ? (int16_t)(i + 1) : end[i + 1];
    }
}

rondo_status rondo_nest_create(struct rondo_nest **out, int n, const int32_t *rank_at, const uint8_t *cut,
                               int nlevels)
{
    static const char what[] = "the groups of a node's ranks";
    struct rondo_nest *nest;
    rondo_status status;
    if (n < 1 || n > RONDO_GROUP_TREE_MOST) {
        return rondo_fail(RONDO_INTERNAL_ERROR, "cannot group %d positions of a node: 1 to %d are supported",
                          n, RONDO_GROUP_TREE_MOST);
    }
    RONDO_TRY(RONDO_NEW(nest, what));
    nest->n = n;
    nest->nlevels = nlevels;
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(nest->rank_at, n, what), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(nest->place, n, what), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(nest->begin, n * nlevels + 1, what), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(nest->end, n * nlevels + 1, what), fail);
    for (int i = 0; i < n; i++) {
        nest->rank_at[i] = (int16_t)rank_at[i];
        nest->place[rank_at[i]] = (int16_t)i;
    }
    for (int level = 1; level <= nlevels; level++) {
        fill_level(nest, cut, level);
    }
    *out = nest;
    return RONDO_SUCCESS;
fail:
    rondo_nest_destroy(nest);
    return status;
}

void rondo_nest_destroy(struct rondo_nest *nest)
{
    if (nest != NULL) {
        rondo_free(nest->rank_at);
        rondo_free(nest->place);
        rondo_free(nest->begin);
        rondo_free(nest->end);
        rondo_free(nest);
    }
}
