#include "layout/double_tree.h"

/*
 * Tree 0, from which tree 1 is made. Position 0 is the root. The level of any other position is its lowest
 * set bit: odd positions are leaves, and a position of level b has its children at distance b/2 to either
 * side; the distance of the right one halves until that position exists.
 *
 *      n = 7:   0 ---------------- 4
 *                            2           6
 *                         1     3     5
 */
static void low_bit_tree(int n, int i, int *parent, int child[2], int *nchildren)
{
    int bit = 1, half;
    *nchildren = 0;
    child[0] = child[1] = -1;
    if (i == 0) {
        *parent = -1;
        while (bit < n) {
            bit *= 2;
        }
        if (n > 1) {
            child[(*nchildren)++] = bit / 2;
        }
        return;
    }
    while ((i & bit) == 0) {
        bit *= 2;
    }
    *parent = (i & (2 * bit)) == 0 && i + bit < n ? i + bit : i - bit;
    if (bit > 1) {
        child[(*nchildren)++] = i - bit / 2;
    }
    for (half = bit / 2; half > 0 && i + half >= n; half /= 2) {
    }
    if (half > 0) {
        child[(*nchildren)++] = i + half;
    }
}

/* Tree 1 is tree 0 mirrored if n is even, and shifted by one if n is odd. Both turn leaves into inner
 * positions. */
static int from_tree0(int n, int which, int i)
{
    if (which == 0 || i < 0) {
        return i;
    }
    return n % 2 == 0 ? n - 1 - i : (i + 1) % n;
}

static int to_tree0(int n, int which, int i)
{
    if (which == 0) {
        return i;
    }
    return n % 2 == 0 ? n - 1 - i : (i + n - 1) % n;
}

int rondo_double_tree_depth(int n)
{
    int depth = 0;
    while (1u << depth < (unsigned)n) {
        depth++;
    }
    return depth;
}

int rondo_double_tree_root(int n, int which) { return from_tree0(n, which, 0); }

void rondo_double_tree(int n, int which, int i, int *parent, int child[2], int *nchildren)
{
    low_bit_tree(n, to_tree0(n, which, i), parent, child, nchildren);
    *parent = from_tree0(n, which, *parent);
    child[0] = from_tree0(n, which, child[0]);
    child[1] = from_tree0(n, which, child[1]);
}

int rondo_double_tree_toward(int n, int which, int i, int to)
{
    int parent, child[2], nchildren, up, ignored[2], unused;
    rondo_double_tree(n, which, i, &parent, child, &nchildren);
    if (i == to) {
        return -1;
    }
    for (; to >= 0; to = up) { /* if `to` is below i, its ancestors include i */
        rondo_double_tree(n, which, to, &up, ignored, &unused);
        if (up == i) {
            return to == child[0] ? 1 : 2;
        }
    }
    return 0;
}
