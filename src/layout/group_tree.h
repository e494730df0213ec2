/*
 * Trees of trees, for n positions that form groups within groups (packages of NUMA nodes of caches of cores).
 * A double tree (layout/double_tree.h) joins the groups of each level, and one joins the positions of each
 * innermost group. So the fewest possible edges cross each level: one less than it has groups. No position
 * has more than three neighbours.
 */
#ifndef RONDO_LAYOUT_GROUP_TREE_H
#define RONDO_LAYOUT_GROUP_TREE_H

#include "base/status.h"

/* What divides a node's ranks, outermost first: X(ctx, NAME, "name of one", "names of several") */
#define RONDO_LEVEL_TABLE(X, ctx)           \
    X(ctx, PACKAGE, "package", "packages")  \
    X(ctx, NUMA, "NUMA node", "NUMA nodes") \
    X(ctx, CACHE, "shared cache", "shared caches")

#define RONDO_ENUM_ROW_(ctx, NAME, ...) RONDO_LEVEL_##NAME,
enum rondo_level_kind { RONDO_LEVEL_TABLE(RONDO_ENUM_ROW_, ) RONDO_NUM_LEVELS };
#undef RONDO_ENUM_ROW_

/*
 * Levels that divide the positions into more groups than the level before, but not into single positions.
 * They come with an array cut[n]: cut[i] is the number (from 1) of the outermost level whose group ends
 * between i - 1 and i; 0: none; cut[0] is 0.
 */
struct rondo_group_levels {
    int32_t n; /* 0: no groups */
    uint8_t kind[RONDO_NUM_LEVELS];
    int16_t groups[RONDO_NUM_LEVELS]; /* in all */
    uint8_t even;                     /* 1: all groups of a level are of equal size */
    int16_t several;                  /* innermost groups that hold more than one position */
};

enum { RONDO_GROUP_TREE_MOST = 1 << 14 }; /* positions */

struct rondo_tree_link {
    int16_t parent, child[2]; /* -1: none */
};

struct rondo_group_tree {
    struct rondo_tree_link *link; /* per position; rondo_free it. NULL: there is no tree here */
    int32_t root, depth;          /* hops from the root to the farthest position */
    int32_t second,
        hops; /* where a second foreign tree can hang (the first hangs at the root), and its depth */
};

/**
 * Create tree 0 or 1 of a pair that shares the load. Without levels and foreign trees, these are the double
 * trees.
 * @param cut  ignored without levels
 * @param below  how many foreign trees hang below this one: 0 to 2. With 2, the root of tree 1 is position 0.
 */
rondo_status rondo_group_tree_create(struct rondo_group_tree *tree, int n, const uint8_t *cut, int nlevels,
                                     int which, int below);
/** As rondo_double_tree_toward. O(depth). */
int rondo_group_tree_toward(const struct rondo_group_tree *tree, int i, int to);

/** Compute groups, even and several from n, kind and the cuts. */
void rondo_levels_count(struct rondo_group_levels *levels, const uint8_t *cut, int npositions);
/** What is wrong with levels and cuts from another rank; NULL: nothing. Call rondo_levels_count before, which
 * accepts any cuts. */
const char *rondo_levels_fault(const struct rondo_group_levels *levels, const uint8_t *cut, int npositions);
/** "2 packages x 4 NUMA nodes x 8 ranks", or for unequal groups "2 packages, 7 NUMA nodes, 50 ranks". @return
 * text. */
const char *rondo_levels_text(const struct rondo_group_levels *levels, int npositions, char *text,
                              size_t bytes);
/** "1 between packages, 6 between NUMA nodes, 56 between ranks": the edges of a tree of trees, or of a closed
 * ring that keeps groups together. @return text. */
const char *rondo_levels_edges_text(const struct rondo_group_levels *levels, int npositions, int closed,
                                    char *text, size_t bytes);

#endif
