#include "layout/group_tree.h"

#include <stdio.h>

#include "layout/double_tree.h"
#include "base/mem.h"

/* ---- a tree over sibling groups: those of one level inside one group of the level above ---- */

/* A group among its siblings. Trees that hang below their common group hang below one or two of them. */
struct member {
    int parent, child[2], nchildren;
    int below; /* foreign trees that hang here, before the children */
};

/*
 * With two foreign trees below, one member leads: it takes the first, and has as its child the root of the
 * tree over the other members, which takes the second. So no member has more than two below it. As with the
 * double trees, one of the pair has its leaves at odd members and the other at even ones, so that most
 * members are a leaf in one of the two, with or without foreign trees.
 */
static int to_rest(int n, int which, int i) { return which != 0 ? i - 1 : n % 2 != 0 ? i : n - 2 - i; }
static int from_rest(int n, int which, int j)
{
    return j < 0 ? -1 : which != 0 ? j + 1 : n % 2 != 0 ? j : n - 2 - j;
}

static struct member led_member(int n, int which, int i)
{
    int root = which != 0 ? 0 : n - 1;
    struct member m = { .parent = -1, .child = { from_rest(n, which, 0), -1 }, .nchildren = 1, .below = 1 };
    if (i != root) {
        rondo_double_tree(n - 1, 0, to_rest(n, which, i), &m.parent, m.child, &m.nchildren);
        m.below = m.parent < 0;
        m.parent = m.parent < 0 ? root : from_rest(n, which, m.parent);
        m.child[0] = from_rest(n, which, m.child[0]);
        m.child[1] = from_rest(n, which, m.child[1]);
    }
    return m;
}

static struct member member_at(int n, int which, int below, int i)
{
    struct member m;
    if (below == 2) {
        return led_member(n, which, i);
    }
    rondo_double_tree(n, which, i, &m.parent, m.child, &m.nchildren);
    m.below = m.parent < 0 ? below : 0;
    return m;
}

/* ---- the whole tree ---- */

/* A finished group: the root of its tree, where a first foreign tree hangs, and the place of a second one. */
struct ends {
    int16_t root, second;
};

struct laying {
    const uint8_t *cut;
    int nlevels, which;
    struct rondo_tree_link *link;
    struct ends *ends; /* per position: of the group that begins there and was finished last */
    int16_t *start[RONDO_NUM_LEVELS + 1]; /* per level: where the subgroups of the current group begin */
};

static int starts(const struct laying *l, int i, int level)
{
    return level == l->nlevels || (l->cut[i] != 0 && l->cut[i] <= level + 1);
}

/* Hang a group at place 0 or 1 of another one. A single position has both places, in this order. */
static void hang(const struct laying *l, const struct ends *group, const struct ends *at, int place)
{
    int up = place == 0 ? at->root : at->second;
    l->link[group->root].parent = (int16_t)up;
    l->link[up].child[place == 1 && at->root == at->second] = group->root;
}

static struct ends join(const struct laying *l, const int16_t *start, int n, int below)
{
    struct ends ends = { .root = -1, .second = -1 };
    for (int i = 0; i < n; i++) {
        struct member m = member_at(n, l->which, below, i);
        const struct ends *mine = &l->ends[start[i]];
        if (m.parent < 0) {
            ends.root = mine->root;
            ends.second = ends.second < 0 ? mine->second : ends.second;
        } else {
            struct member up = member_at(n, l->which, below, m.parent);
            hang(l, mine, &l->ends[start[m.parent]], up.below + (up.child[0] == i ? 0 : 1));
            ends.second = below == 2 && m.below ? mine->root : ends.second;
        }
    }
    return ends;
}

static struct ends lay(const struct laying *l, int begin, int end, int level, int below)
{
    int n = 0;
    if (end - begin == 1) {
        return (struct ends){ (int16_t)begin, (int16_t)begin };
    }
    int16_t *start = l->start[level] + begin; /* beyond the last level, each position is alone */
    for (int i = begin; i < end; i++) {
        if (i == begin || starts(l, i, level)) {
            start[n++] = (int16_t)i;
        }
    }
    if (n == 1) {
        return lay(l, begin, end, level + 1, below);
    }
    for (int i = 0; i < n; i++) {
        struct member m = member_at(n, l->which, below, i);
        l->ends[start[i]] = lay(l, start[i], i + 1 < n ? start[i + 1] : end, level + 1,
                                m.below + m.nchildren);
    }
    return join(l, start, n, below);
}

static int hops_of(const struct rondo_group_tree *tree, int i)
{
    int hops = 0;
    for (; tree->link[i].parent >= 0; hops++) {
        i = tree->link[i].parent;
    }
    return hops;
}

static void finish(struct rondo_group_tree *tree, int n, const struct ends *ends)
{
    tree->root = ends->root;
    tree->second = ends->second;
    for (int i = 0; i < n; i++) {
        int hops = hops_of(tree, i);
        int16_t *child = tree->link[i].child;
        tree->depth = hops > tree->depth ? hops : tree->depth;
        if (child[0] < 0) { /* this place is for a foreign tree */
            child[0] = child[1];
            child[1] = -1;
        }
    }
    tree->hops = hops_of(tree, tree->second);
}

rondo_status rondo_group_tree_create(struct rondo_group_tree *tree, int n, const uint8_t *cut, int nlevels,
                                     int which, int below)
{
    static const char what[] = "a tree over a node's ranks";
    struct laying l = { .cut = cut, .nlevels = nlevels, .which = which };
    int16_t *starts_of_all = NULL;
    rondo_status status;
    *tree = (struct rondo_group_tree){ .link = NULL };
    if (n < 1 || n > RONDO_GROUP_TREE_MOST) {
        return rondo_fail(RONDO_INTERNAL_ERROR,
                          "cannot make a tree over %d positions of a node: 1 to %d are supported", n,
                          RONDO_GROUP_TREE_MOST);
    }
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(tree->link, n, what), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(l.ends, n, what), out);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(starts_of_all, (nlevels + 1) * n, what), out);
    for (int i = 0; i <= nlevels; i++) {
        l.start[i] = starts_of_all + i * n;
    }
    for (int i = 0; i < n; i++) {
        tree->link[i] = (struct rondo_tree_link){ -1, { -1, -1 } };
    }
    l.link = tree->link;
    struct ends ends = lay(&l, 0, n, 0, below);
    finish(tree, n, &ends);
out:
    rondo_free(starts_of_all);
    rondo_free(l.ends);
    if (status != RONDO_SUCCESS) {
        rondo_free(tree->link);
        tree->link = NULL;
    }
    return status;
}

int rondo_group_tree_toward(const struct rondo_group_tree *tree, int i, int to)
{
    if (i == to) {
        return -1;
    }
    for (int up; to >= 0; to = up) { /* if `to` is below i, its ancestors include i */
        up = tree->link[to].parent;
        if (up == i) {
            return to == tree->link[i].child[0] ? 1 : 2;
        }
    }
    return 0;
}

/* ---- levels ---- */

void rondo_levels_count(struct rondo_group_levels *levels, const uint8_t *cut, int npositions)
{
    int size[RONDO_NUM_LEVELS] = { 0 }, first[RONDO_NUM_LEVELS] = { 0 };
    levels->even = 1;
    levels->several = 0;
    for (int l = 0; l < levels->n; l++) {
        levels->groups[l] = 1;
    }
    for (int i = 1; i <= npositions; i++) {
        for (int l = 0; l < levels->n; l++) {
            int ends = i == npositions || (cut[i] != 0 && cut[i] <= l + 1);
            size[l]++;
            if (ends) {
                first[l] = first[l] == 0 ? size[l] : first[l];
                levels->even &= size[l] == first[l];
                levels->groups[l] = (int16_t)(levels->groups[l] + (i < npositions));
                levels->several = (int16_t)(levels->several + (l == levels->n - 1 && size[l] > 1));
                size[l] = 0;
            }
        }
    }
}

const char *rondo_levels_fault(const struct rondo_group_levels *levels, const uint8_t *cut, int npositions)
{
    int before = 1;
    if (levels->n < 0 || levels->n > RONDO_NUM_LEVELS || npositions < 1 || cut[0] != 0) {
        return "there are too many, or a group ends before the first rank";
    }
    for (int i = 1; i < npositions; i++) {
        if (cut[i] > levels->n) {
            return "a group ends on a level that there is not";
        }
    }
    for (int l = 0; l < levels->n; l++) {
        if (levels->kind[l] >= RONDO_NUM_LEVELS || (l > 0 && levels->kind[l] <= levels->kind[l - 1])) {
            return "they are of no kind, or not in order";
        }
        if (levels->groups[l] <= before || levels->groups[l] >= npositions) {
            return "one divides nothing, or all";
        }
        before = levels->groups[l];
    }
    return NULL;
}

static const char *const level_names[RONDO_NUM_LEVELS][2] = {
#define ROW_(ctx, NAME, one, several) { one, several },
    RONDO_LEVEL_TABLE(ROW_, )
#undef ROW_
};

const char *rondo_levels_text(const struct rondo_group_levels *levels, int npositions, char *text,
                              size_t bytes)
{
    size_t at = 0;
    int before = 1;
    text[0] = '\0';
    for (int l = 0; l <= levels->n && at < bytes; l++) {
        int all = l < levels->n ? levels->groups[l] : npositions, shown = levels->even ? all / before : all;
        const char *name = l == levels->n ? (shown == 1 ? "rank" : "ranks")
                                          : level_names[levels->kind[l]][shown != 1];
        at += (size_t)snprintf(text + at, bytes - at, "%s%d %s",
                               l == 0         ? ""
                               : levels->even ? " x "
                                              : ", ",
                               shown, name);
        before = all;
    }
    return text;
}

const char *rondo_levels_edges_text(const struct rondo_group_levels *levels, int npositions, int closed,
                                    char *text, size_t bytes)
{
    size_t at = 0;
    int before = closed ? 0 : 1;
    text[0] = '\0';
    for (int l = 0; l <= levels->n && at < bytes; l++) {
        int all = l < levels->n ? levels->groups[l] : npositions;
        at += (size_t)snprintf(text + at, bytes - at, "%s%d between %s", l == 0 ? "" : ", ", all - before,
                               l < levels->n ? level_names[levels->kind[l]][1] : "ranks");
        before = all;
    }
    return text;
}
