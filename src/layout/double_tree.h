/*
 * Two complementary binary trees over n positions, so that a pair of channels loads all positions equally:
 * every position is a leaf in exactly one of them (n odd: one position is inner in both). Pure functions.
 */
#ifndef RONDO_LAYOUT_DOUBLE_TREE_H
#define RONDO_LAYOUT_DOUBLE_TREE_H

/** Hops from the root to the farthest position: ceil(log2 n). */
int rondo_double_tree_depth(int n);
/** Position at the root of tree 0 or 1 of n. It has one child, n > 1. */
int rondo_double_tree_root(int n, int which);
/** Parent (-1: root) and children of position i of n in tree 0 or 1; absent children are -1. */
void rondo_double_tree(int n, int which, int i, int *parent, int child[2], int *nchildren);
/** The neighbour of position i on the way to position `to`: -1: i is `to`; 0: the parent; 1 + c: child c.
 * O(log n). */
int rondo_double_tree_toward(int n, int which, int i, int to);

#endif
