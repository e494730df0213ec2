/* The two complementary binary trees in seats and layouts, and trees of trees over groups. RONDO_TEST_SEED
 * repeats a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "layout/group_tree.h"
#include "base/mem.h"
#include "sim.h"

enum { MOST = 90 }; /* positions in groups */

static uint64_t seed;

static int draw(int below) { return (int)(sim_random(&seed) % (uint64_t)below); }

struct node {
    int parent, child[2], nchildren, depth;
};

static int log2_up(int n)
{
    int bits = 0;
    while (1 << bits < n) {
        bits++;
    }
    return bits;
}

/* The whole tree. It is checked: parents and children name each other, one root, no cycle. */
static struct node *whole_tree(int n, int which, int *root, int *depth)
{
    struct node *t = calloc((size_t)n, sizeof(*t));
    int nroots = 0, nedges = 0;
    assert_non_null(t);
    for (int i = 0; i < n; i++) {
        rondo_double_tree(n, which, i, &t[i].parent, t[i].child, &t[i].nchildren);
        assert_in_range(t[i].nchildren, 0, 2);
        assert_true(t[i].parent >= -1 && t[i].parent < n);
        nedges += t[i].nchildren;
        if (t[i].parent < 0) {
            *root = i;
            nroots++;
        }
    }
    assert_int_equal(nroots, 1);
    assert_int_equal(nedges, n - 1);
    *depth = 0;
    for (int i = 0; i < n; i++) {
        int up = i, hops = 0;
        for (int c = 0; c < 2; c++) {
            assert_true(c < t[i].nchildren ? t[t[i].child[c]].parent == i : t[i].child[c] == -1);
        }
        assert_true(t[i].nchildren < 2 || t[i].child[0] != t[i].child[1]);
        for (; t[up].parent >= 0 && hops <= n; hops++) {
            up = t[up].parent;
        }
        assert_int_equal(up, *root);
        t[i].depth = hops;
        *depth = hops > *depth ? hops : *depth;
    }
    return t;
}

static void check_pair(int n)
{
    int root[2], depth[2], leaves_once = 0, inner_twice = 0, leaves_twice = 0;
    struct node *t[2];
    for (int which = 0; which < 2; which++) {
        t[which] = whole_tree(n, which, &root[which], &depth[which]);
        assert_int_equal(depth[which], log2_up(n));
    }
    for (int i = 0; i < n; i++) {
        int leaves = (t[0][i].nchildren == 0) + (t[1][i].nchildren == 0);
        leaves_once += leaves == 1;
        inner_twice += leaves == 0;
        leaves_twice += leaves == 2;
    }
    if (n > 1) {
        assert_int_equal(leaves_twice, 0);
        assert_int_equal(inner_twice, n % 2);
        assert_int_equal(leaves_once, n - n % 2);
        assert_int_not_equal(root[0], root[1]);
    }
    free(t[0]);
    free(t[1]);
}

/* Every position is a leaf in exactly one tree; with odd n one position is inner in both. */
static void position_is_leaf_in_exactly_one_tree(void **state)
{
    static const int large[] = { 1023, 1024, 1025, 4095, 4096, 131071, 131072 };
    (void)state;
    for (int n = 1; n <= 1000; n++) {
        check_pair(n);
    }
    for (size_t i = 0; i < RONDO_COUNTOF(large); i++) {
        check_pair(large[i]);
    }
}

/* `toward` leads from every position to every other one over neighbours, on the shortest path. */
static void toward_leads_to_any_position(void **state)
{
    (void)state;
    for (int n = 1; n <= 40; n++) {
        for (int which = 0; which < 2; which++) {
            int root, depth;
            struct node *t = whole_tree(n, which, &root, &depth);
            for (int from = 0; from < n; from++) {
                for (int to = 0; to < n; to++) {
                    int at = from, came_from = -1, hops = 0, way;
                    for (; (way = rondo_double_tree_toward(n, which, at, to)) >= 0 && hops <= 2 * depth;
                         hops++) {
                        int next = way == 0 ? t[at].parent : t[at].child[way - 1];
                        assert_true(way <= t[at].nchildren);
                        assert_true(next >= 0 && next != came_from);
                        came_from = at;
                        at = next;
                    }
                    assert_int_equal(way, -1);
                    assert_int_equal(at, to);
                }
            }
            free(t);
        }
    }
}

/* The layout's trees, which conns are made from, and the seats, which steps are made from, are the same
 * trees in channel 0's order. */
static void layout_and_seats_have_the_same_trees(void **state)
{
    (void)state;
    for (int n = 1; n <= 70; n++) {
        struct rondo_layout *layout = sim_layout_new(n, 3, n);
        const struct rondo_ring *order = &layout->channel[0].ring;
        for (int rank = 0; rank < n; rank++) {
            sim_layout_view(layout, rank);
            for (int c = 0; c < layout->nchannels; c++) {
                const struct rondo_tree *tree = &layout->channel[c].tree;
                struct rondo_seat seat;
                rondo_seat_of(layout, c, RONDO_ALGO_TREE, RONDO_COLL_ALL_REDUCE, -1, &seat);
                assert_int_equal(seat.index, order->index_of[rank]);
                assert_int_equal(seat.nranks, n);
                assert_int_equal(seat.nchildren, tree->nchildren);
                assert_int_equal(tree->parent, seat.parent < 0 ? -1 : order->rank_at[seat.parent]);
                assert_int_equal(seat.toward, seat.parent < 0 ? -1 : 0);
                for (int i = 0; i < RONDO_TREE_FAN; i++) {
                    assert_int_equal(tree->child[i], i < seat.nchildren ? order->rank_at[seat.child[i]] : -1);
                    assert_true(i < seat.nchildren || seat.child[i] == -1);
                }
                assert_int_equal(tree->depth, log2_up(n));
                assert_true((tree->root == rank) == (tree->parent == -1));
            }
        }
        sim_layout_free(layout);
    }
}

static void seats_have_the_positions_of_their_seating(void **state)
{
    struct rondo_layout *layout = sim_layout_new(11, 2, 7);
    struct rondo_seat seat;
    (void)state;
    assert_true(
        memcmp(layout->channel[0].ring.rank_at, layout->channel[1].ring.rank_at, 11 * sizeof(int32_t)) != 0);
    for (int rank = 0; rank < 11; rank++) {
        sim_layout_view(layout, rank);
        rondo_seat_of(layout, 1, RONDO_ALGO_RING, RONDO_COLL_BROADCAST, 4, &seat);
        assert_int_equal(seat.index, layout->channel[1].ring.index_of[rank]);
        assert_int_equal(seat.root, layout->channel[1].ring.index_of[4]);
        assert_int_equal(seat.toward, -1);
        rondo_seat_of(layout, 1, RONDO_ALGO_TREE, RONDO_COLL_BROADCAST, 4, &seat);
        assert_int_equal(seat.index, layout->channel[0].ring.index_of[rank]);
        assert_int_equal(seat.root, layout->channel[0].ring.index_of[4]);
        assert_true((seat.toward == -1) == (rank == 4));
        rondo_seat_of(layout, 0, RONDO_ALGO_RING, RONDO_COLL_ALL_REDUCE, 4,
                      &seat); /* a root that the collective does not have */
        assert_int_equal(seat.root, 0);
        rondo_seat_of(layout, 0, RONDO_ALGO_ONESHOT, RONDO_COLL_ALL_REDUCE, -1, &seat);
        assert_int_equal(seat.index, rank);
        rondo_seat_of(layout, 0, RONDO_ALGO_P2P, RONDO_COLL_SEND, 4, &seat);
        assert_int_equal(seat.index, rank);
        assert_int_equal(seat.root, 4);
        assert_int_equal(seat.nchildren, 0);
        assert_int_equal(seat.parent, -1);
    }
    sim_layout_free(layout);
}

/* ---- trees of trees ---- */

/* The group of a level (from 0) that each position is in. */
static int groups_of(const uint8_t *cut, int n, int level, int *group)
{
    int at = 0;
    for (int i = 0; i < n; i++) {
        at += cut[i] != 0 && cut[i] <= level + 1;
        group[i] = at;
    }
    return at + 1;
}

static void cuts_draw(uint8_t *cut, int n, int nlevels)
{
    for (int i = 0; i < n; i++) {
        cut[i] = (uint8_t)(i > 0 && draw(3) == 0 ? draw(nlevels + 1) : 0);
    }
}

/* Check that it is a tree, that no position has too many neighbours, that one edge less than there are groups
 * crosses each level, and that `toward` leads everywhere. */
static void check_tree(const struct rondo_group_tree *t, const uint8_t *cut, int n, int nlevels, int below)
{
    int depth = 0, group[MOST];
    assert_int_equal(t->link[t->root].parent, -1);
    for (int i = 0; i < n; i++) {
        const struct rondo_tree_link *link = &t->link[i];
        int hops = 0, up = i,
            neighbours = (link->parent >= 0) + (link->child[0] >= 0) + (link->child[1] >= 0);
        for (; t->link[up].parent >= 0 && hops <= n; hops++) {
            up = t->link[up].parent;
        }
        assert_int_equal(up, t->root);
        depth = hops > depth ? hops : depth;
        assert_true(i != t->second || hops == t->hops);
        for (int c = 0; c < 2; c++) {
            assert_true(link->child[c] < 0 || t->link[link->child[c]].parent == i);
        }
        assert_true(link->child[0] >= 0 || link->child[1] < 0);
        assert_true(link->child[0] < 0 || link->child[0] != link->child[1]);
        neighbours += (i == t->root && below > 0) + (i == t->second && below > 1) +
                      (i == t->root && below > 0);
        assert_in_range(neighbours, n > 1, RONDO_TREE_FAN);
    }
    assert_int_equal(depth, t->depth);
    for (int level = 0; level < nlevels; level++) {
        int crossed = 0, groups = groups_of(cut, n, level, group);
        for (int i = 0; i < n; i++) {
            crossed += t->link[i].parent >= 0 && group[i] != group[t->link[i].parent];
        }
        assert_int_equal(crossed, groups - 1);
    }
    for (int k = 0; k < 20; k++) {
        int at = draw(n), to = draw(n), way, hops = 0;
        for (; (way = rondo_group_tree_toward(t, at, to)) >= 0 && hops <= 2 * depth; hops++) {
            at = way == 0 ? t->link[at].parent : t->link[at].child[way - 1];
        }
        assert_true(way == -1 && at == to);
    }
}

static void as_few_edges_as_possible_cross_each_level(void **state)
{
    (void)state;
    for (int i = 0; i < 600; i++) {
        int n = 1 + draw(MOST), nlevels = draw(RONDO_NUM_LEVELS + 1), below = draw(3);
        struct rondo_group_tree tree[2];
        uint8_t cut[MOST];
        cuts_draw(cut, n, nlevels);
        for (int which = 0; which < 2; which++) {
            assert_int_equal(rondo_group_tree_create(&tree[which], n, cut, nlevels, which, below),
                             RONDO_SUCCESS);
            check_tree(&tree[which], cut, n, nlevels, below);
        }
        assert_true(below < 2 || tree[1].root == 0);
        rondo_free(tree[0].link);
        rondo_free(tree[1].link);
    }
}

static void without_groups_they_are_the_double_trees(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        for (int which = 0; which < 2; which++) {
            struct rondo_group_tree tree;
            assert_int_equal(rondo_group_tree_create(&tree, n, NULL, 0, which, 0), RONDO_SUCCESS);
            assert_int_equal(tree.root, rondo_double_tree_root(n, which));
            assert_int_equal(tree.depth, rondo_double_tree_depth(n));
            for (int i = 0; i < n; i++) {
                int parent, child[2], nchildren;
                rondo_double_tree(n, which, i, &parent, child, &nchildren);
                assert_int_equal(tree.link[i].parent, parent);
                assert_int_equal(tree.link[i].child[0], child[0]);
                assert_int_equal(tree.link[i].child[1], child[1]);
            }
            rondo_free(tree.link);
        }
    }
}

/* With even numbers of groups and ranks, a rank has at most five neighbours in the two trees together, one
 * more than without groups, except those that join the outermost groups. */
static void the_two_trees_share_the_load(void **state)
{
    (void)state;
    for (int outer = 2; outer <= 6; outer += 2) {
        for (int inner = 2; inner <= 4; inner += 2) {
            for (int size = 2; size <= 8 && outer * inner * size <= MOST; size += 2) {
                int n = outer * inner * size, sixes = 0;
                struct rondo_group_tree tree[2];
                uint8_t cut[MOST];
                for (int i = 0; i < n; i++) {
                    cut[i] = (uint8_t)(i == 0 ? 0 : i % (inner * size) == 0 ? 1 : i % size == 0 ? 2 : 0);
                }
                for (int which = 0; which < 2; which++) {
                    assert_int_equal(rondo_group_tree_create(&tree[which], n, cut, 2, which, 0),
                                     RONDO_SUCCESS);
                }
                for (int i = 0; i < n; i++) {
                    int neighbours = 0;
                    for (int which = 0; which < 2; which++) {
                        const struct rondo_tree_link *link = &tree[which].link[i];
                        neighbours += (link->parent >= 0) + (link->child[0] >= 0) + (link->child[1] >= 0);
                    }
                    assert_in_range(neighbours, 2, 6);
                    sixes += neighbours == 6;
                }
                assert_int_not_equal(tree[0].root, tree[1].root);
                assert_true(sixes <= outer - 2);
                rondo_free(tree[0].link);
                rondo_free(tree[1].link);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(position_is_leaf_in_exactly_one_tree),
        cmocka_unit_test(toward_leads_to_any_position),
        cmocka_unit_test(layout_and_seats_have_the_same_trees),
        cmocka_unit_test(seats_have_the_positions_of_their_seating),
        cmocka_unit_test(as_few_edges_as_possible_cross_each_level),
        cmocka_unit_test(without_groups_they_are_the_double_trees),
        cmocka_unit_test(the_two_trees_share_the_load),
    };
    const char *text = getenv("RONDO_TEST_SEED");
    seed = text != NULL ? strtoull(text, NULL, 0) : 20261122;
    print_message("seed %llu (RONDO_TEST_SEED)\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
