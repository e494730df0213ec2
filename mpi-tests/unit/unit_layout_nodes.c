/* Several nodes with uneven numbers of ranks: rings, trees and seats as creation makes them, with every
 * collective simulated over them. RONDO_TEST_SEED repeats a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "comm/layout_fill.h"
#include "tuner/model.h"
#include "net/netdev.h"
#include "init/node.h"
#include "sim.h"
#include "topo/stitch.h"

enum { MAX_NODES = 5, CHANNELS = 4 };

static uint64_t seed;

static uint64_t draw(uint64_t below) { return sim_random(&seed) % below; }

struct nodes {
    int n, local[MAX_NODES];
};
static const struct nodes some[] = {
    { 2, { 1, 1 } },          { 2, { 2, 2 } },       { 2, { 1, 3 } },          { 2, { 4, 1 } },
    { 3, { 1, 1, 1 } },       { 3, { 3, 1, 2 } },    { 3, { 2, 2, 2 } },       { 3, { 1, 5, 1 } },
    { 4, { 2, 5, 3, 1 } },    { 4, { 3, 3, 3, 3 } }, { 5, { 1, 2, 3, 4, 5 } }, { 5, { 7, 1, 1, 6, 2 } },
    { 5, { 4, 4, 4, 4, 4 } },
};

static int ranks_of(const struct nodes *nodes)
{
    int n = 0;
    for (int i = 0; i < nodes->n; i++) {
        n += nodes->local[i];
    }
    return n;
}

/* ---- collectives ---- */

static struct sim_case some_case(const struct nodes *nodes, const struct rondo_schedule *s)
{
    struct sim_case c = { .coll = (enum rondo_coll)s->coll,
                          .algo = (enum rondo_algo)s->algo,
                          .nranks = ranks_of(nodes),
                          .nnodes = nodes->n,
                          .local = nodes->local,
                          .nchannels = CHANNELS,
                          .elem_bytes = 8 };
    c.slice = 1 + draw(4);
    c.chunk = 2 * c.slice;
    c.len = 1 + draw(3 * c.chunk * (size_t)c.nranks);
    c.in_place = (int)draw(2);
    c.shuffled = (int)draw(1000);
    c.mode = (enum sim_mode)draw(SIM_NUM_MODES);
    c.seed = draw(UINT64_MAX);
    return c;
}

static void run(const struct sim_case *c)
{
    struct sim_result result;
    sim_run(c, &result);
    if (result.error[0] != '\0') {
        fail_msg("%s %s on %d nodes, %d ranks, root %d, len %zu, slice %zu, order %d: %s",
                 rondo_coll_name(c->coll), rondo_algo_name(c->algo), c->nnodes, c->nranks, c->root, c->len,
                 c->slice, c->shuffled, result.error);
    }
}

static void every_collective_is_right_for_every_root(void **state)
{
    (void)state;
    for (size_t k = 0; k < RONDO_COUNTOF(some); k++) {
        for (int i = 0; i < rondo_num_schedules; i++) {
            const struct rondo_schedule *s = &rondo_schedules[i];
            int rooted = rondo_coll_has_root((enum rondo_coll)s->coll);
            if (rondo_algo_seating(s->algo) != RONDO_SEATING_RING &&
                rondo_algo_seating(s->algo) != RONDO_SEATING_TREE) {
                continue;
            }
            for (int times = 0; times < (rooted ? ranks_of(&some[k]) : 6); times++) {
                struct sim_case c = some_case(&some[k], s);
                c.root = rooted ? times : 0;
                run(&c);
            }
        }
    }
}

/* ---- rings, trees, seats ---- */

typedef void check_fn(struct rondo_layout *layout);

/* Run a check on layouts of all these nodes, in several orders. */
static void on_all(check_fn *check)
{
    for (size_t k = 0; k < RONDO_COUNTOF(some); k++) {
        for (uint64_t order = 0; order < 4; order++) {
            struct rondo_layout *layout = sim_layout_nodes(some[k].local, some[k].n, CHANNELS,
                                                           order == 0 ? 0 : 1 + draw(1 << 30));
            assert_int_equal(layout->nnodes, some[k].n);
            assert_non_null(layout->stitch);
            check(layout);
            sim_layout_free(layout);
        }
    }
}

/* The parents of all ranks in a channel. */
static void parents_of(struct rondo_layout *layout, int channel, int *parent)
{
    for (int r = 0; r < layout->nranks; r++) {
        sim_layout_view(layout, r);
        parent[r] = layout->channel[channel].tree.parent;
    }
}

static void check_edges(struct rondo_layout *layout)
{
    int parent[32];
    for (int c = 0; c < layout->nchannels; c++) {
        const struct rondo_ring *ring = &layout->channel[c].ring;
        int across = 0, up = 0;
        for (int i = 0; i < layout->nranks; i++) {
            across += layout->node_of[ring->rank_at[i]] !=
                      layout->node_of[ring->rank_at[(i + 1) % layout->nranks]];
        }
        parents_of(layout, c, parent);
        for (int r = 0; r < layout->nranks; r++) {
            up += parent[r] >= 0 && layout->node_of[parent[r]] != layout->node_of[r];
        }
        assert_int_equal(across, layout->nnodes);
        assert_int_equal(up, layout->nnodes - 1);
    }
}

/* A ring leaves each node once; a tree has one edge between nodes less than there are nodes. */
static void each_ring_leaves_a_node_once(void **state)
{
    (void)state;
    on_all(check_edges);
}

static void check_tree(struct rondo_layout *layout)
{
    int parent[32], hops, most;
    for (int c = 0; c < layout->nchannels; c++) {
        most = 0;
        parents_of(layout, c, parent);
        for (int r = 0; r < layout->nranks; r++) {
            const struct rondo_tree *tree = &layout->channel[c].tree;
            sim_layout_view(layout, r);
            assert_true(tree->nchildren + (tree->parent >= 0) <=
                        RONDO_TREE_FAN); /* what fits into a step with any root */
            assert_true((tree->root == r) == (tree->parent < 0));
            for (int i = 0; i < RONDO_TREE_FAN; i++) {
                assert_true(i < tree->nchildren ? parent[tree->child[i]] == r : tree->child[i] == -1);
            }
            hops = 0;
            for (int up = r; parent[up] >= 0 && hops <= layout->nranks; hops++) {
                up = parent[up];
            }
            most = hops > most ? hops : most;
        }
        assert_int_equal(most, layout->channel[c].tree.depth);
    }
}

static void trees_reach_all_ranks_and_have_few_neighbours(void **state)
{
    (void)state;
    on_all(check_tree);
}

/* The two trees of a pair of channels load the nodes equally: a node is a leaf in at least one. */
static void check_pair(struct rondo_layout *layout)
{
    for (int node = 0, inner_in_both = 0; node < layout->nnodes; node++) {
        int inner[2] = { 0, 0 };
        for (int r = 0; r < layout->nranks; r++) {
            sim_layout_view(layout, r);
            for (int c = 0; c < 2; c++) {
                const struct rondo_tree *tree = &layout->channel[c].tree;
                for (int i = 0; i < tree->nchildren; i++) {
                    inner[c] |= layout->node_of[r] == node && layout->node_of[tree->child[i]] != node;
                }
            }
        }
        inner_in_both += inner[0] && inner[1];
        assert_true(inner_in_both <= layout->nnodes % 2);
    }
}

static void channels_take_turns_between_the_two_trees(void **state)
{
    (void)state;
    on_all(check_pair);
}

/* Seats have the layout's trees, and `toward` leads from every rank to every root on the shortest path. */
static void check_seats(struct rondo_layout *layout)
{
    for (int c = 0; c < layout->nchannels; c++) {
        for (int from = 0; from < layout->nranks; from++) {
            for (int root = 0; root < layout->nranks; root++) {
                struct rondo_seat seat;
                int at = from, came_from = -1, hops = 0;
                for (;; hops++) {
                    const struct rondo_tree *tree = &layout->channel[c].tree;
                    int next;
                    sim_layout_view(layout, at);
                    rondo_seat_of(layout, c, RONDO_ALGO_TREE, RONDO_COLL_BROADCAST, root, &seat);
                    assert_int_equal(seat.index, at);
                    assert_int_equal(seat.root, root);
                    assert_int_equal(seat.parent, tree->parent);
                    assert_int_equal(seat.nchildren, tree->nchildren);
                    assert_memory_equal(seat.child, tree->child, sizeof(seat.child));
                    if (seat.toward < 0 || hops > layout->nranks) {
                        break;
                    }
                    next = seat.toward == 0 ? seat.parent : seat.child[seat.toward - 1];
                    assert_true(next >= 0 && next != came_from);
                    came_from = at;
                    at = next;
                }
                assert_int_equal(at, root);
                rondo_seat_of(layout, c, RONDO_ALGO_TREE, RONDO_COLL_ALL_REDUCE, -1, &seat);
                assert_int_equal(seat.toward, seat.parent < 0 ? -1 : 0);
            }
        }
    }
}

static void seats_lead_to_every_root(void **state)
{
    (void)state;
    on_all(check_seats);
}

/* ---- nets ---- */

static void assert_net(const char *found, const struct rondo_layout *layout, int net)
{
    char name[RONDO_NET_NAME];
    snprintf(name, sizeof(name), "n%d:%d", layout->node, net);
    assert_non_null(found);
    assert_string_equal(found, name);
}

static int away(const struct rondo_layout *layout, int peer)
{
    return peer >= 0 && layout->node_of[peer] != layout->node;
}

static void check_nets(struct rondo_layout *layout)
{
    for (int r = 0; r < layout->nranks; r++) {
        sim_layout_view(layout, r);
        for (int c = 0; c < layout->nchannels; c++) {
            const struct rondo_channel_layout *channel = &layout->channel[c];
            for (int is_send = 0; is_send < 2; is_send++) {
                const char *net = rondo_layout_net(layout, c, RONDO_PORT_RING, is_send);
                if (away(layout, is_send ? channel->ring.next : channel->ring.prev)) {
                    assert_net(net, layout, is_send);
                } else {
                    assert_null(net);
                }
                for (int port = RONDO_PORT_PARENT; port < RONDO_PORT_PEER; port++) {
                    int child = port - RONDO_PORT_CHILD;
                    int peer = port == RONDO_PORT_PARENT         ? channel->tree.parent
                               : child < channel->tree.nchildren ? channel->tree.child[child]
                                                                 : -1;
                    net = rondo_layout_net(layout, c, port, is_send);
                    assert_true((net != NULL) == away(layout, peer));
                    assert_true(net == NULL || (net[0] == 'n' && atoi(net + 1) == layout->node));
                    if (net != NULL && port == RONDO_PORT_PARENT) { /* a node's first rank */
                        assert_net(net, layout, 0);
                    }
                }
                assert_null(rondo_layout_net(layout, c, RONDO_PORT_PEER, is_send));
            }
        }
    }
}

static void conns_between_nodes_have_the_nets_of_their_nodes(void **state)
{
    (void)state;
    on_all(check_nets);
}

/* ---- one node ---- */

/* The layout keeps no stitch, and its trees are those over the ring of channel 0. */
static void one_node_has_the_double_trees_over_its_ring(void **state)
{
    (void)state;
    for (int n = 1; n <= 20; n++) {
        struct rondo_layout *layout = sim_layout_nodes(&n, 1, CHANNELS, 1 + draw(1 << 30));
        assert_null(layout->stitch);
        for (int r = 0; r < n; r++) {
            sim_layout_view(layout, r);
            for (int c = 0; c < CHANNELS; c++) {
                struct rondo_tree tree = layout->channel[c].tree;
                rondo_tree_fill(layout, c);
                assert_memory_equal(&tree, &layout->channel[c].tree, sizeof(tree));
                assert_null(rondo_layout_net(layout, c, RONDO_PORT_RING, 1));
            }
        }
        sim_layout_free(layout);
    }
}

/* ---- the model ---- */

/* Two equal nodes of LOCAL ranks each, seen by rank 0; release the layout. */
enum { LOCAL = 4, TWO = 2 * LOCAL };
static void lay_two(struct rondo_layout *layout, struct rondo_peer peers[TWO])
{
    static int16_t order[LOCAL] = { 0, 1, 2, 3 };
    struct rondo_graph graph[RONDO_NUM_GRAPHS];
    struct rondo_shape shape = { .bytes = NULL };
    uint64_t graphs[2];
    size_t n;
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        graph[id] = (struct rondo_graph){
            .id = id, .nchannels = 1, .ndevs = LOCAL, .bw_inter = 12500, .order = order
        };
        graph[id].pattern = id == RONDO_GRAPH_RING ? RONDO_PATTERN_RING : RONDO_PATTERN_BALANCED_TREE;
    }
    assert_int_equal(rondo_graphs_pack(graph, LOCAL, 1, NULL, &shape.bytes, &n), RONDO_SUCCESS);
    shape.nbytes = (uint32_t)n;
    shape.hash = graphs[0] = graphs[1] = rondo_graphs_hash(shape.bytes, n);
    for (int r = 0; r < TWO; r++) {
        peers[r].host_hash = (uint64_t)(r / LOCAL);
    }
    memset(layout, 0, sizeof(*layout));
    assert_int_equal(rondo_layout_fill(layout, peers, 0, TWO), RONDO_SUCCESS);
    assert_int_equal(rondo_layout_channels(layout, 1, 1, RONDO_ALL_PROTOS), RONDO_SUCCESS);
    assert_int_equal(rondo_node_rings(layout, peers, &shape, 1, graphs, NULL), RONDO_SUCCESS);
    rondo_layout_trees(layout);
    rondo_free(shape.bytes);
}

/* Ranks have these net devices, except the last one. */
static struct rondo_model model_of(uint32_t mask, uint32_t last)
{
    struct rondo_peer peers[TWO];
    struct rondo_layout layout;
    struct rondo_model model;
    memset(peers, 0, sizeof(peers));
    for (int r = 0; r < TWO; r++) {
        peers[r].device = -1;
        peers[r].netdevs = r == TWO - 1 ? last : mask;
    }
    lay_two(&layout, peers);
    model = layout.model;
    rondo_layout_release(&layout);
    return model;
}

static uint32_t bit_of(const struct rondo_net_device *net)
{
    for (int i = 0; i < rondo_num_netdevs; i++) {
        if (rondo_netdevs[i] == net) {
            return 1u << i;
        }
    }
    fail_msg("%s is not in the list", net->name);
    return 0;
}

/* If one rank has no NIC, all use the numbers of sockets. */
static void model_uses_the_net_device_that_all_ranks_have(void **state)
{
    uint32_t sockets = bit_of(&rondo_netdev_socket), both = sockets | bit_of(&rondo_netdev_verbs);
    struct rondo_model slow = model_of(both, sockets), fast = model_of(both, both), none = model_of(0, 0);
    (void)state;
    assert_true(slow.net_us[RONDO_PROTO_SIMPLE] > 4 * fast.net_us[RONDO_PROTO_SIMPLE]);
    assert_true(slow.net_bw[RONDO_PROTO_SIMPLE] < 3 && fast.net_bw[RONDO_PROTO_SIMPLE] > 12);
    assert_true(none.net_us[RONDO_PROTO_SIMPLE] >= slow.net_us[RONDO_PROTO_SIMPLE]);
}

/* Chains need a GPU on every rank. */
static void gpus_have_chains_and_host_memory_has_binary_trees(void **state)
{
    (void)state;
    for (int gpus = TWO; gpus >= TWO - 1; gpus--) {
        struct rondo_peer peers[TWO];
        struct rondo_layout layout;
        memset(peers, 0, sizeof(peers));
        for (int r = 0; r < TWO; r++) {
            peers[r].device = r < gpus ? r % LOCAL : -1;
        }
        lay_two(&layout, peers);
        sim_layout_view(&layout, 2);
        assert_int_equal(layout.channel[0].tree.parent, gpus == TWO ? 1 : 3);
        rondo_layout_release(&layout);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_is_right_for_every_root),
        cmocka_unit_test(each_ring_leaves_a_node_once),
        cmocka_unit_test(trees_reach_all_ranks_and_have_few_neighbours),
        cmocka_unit_test(channels_take_turns_between_the_two_trees),
        cmocka_unit_test(seats_lead_to_every_root),
        cmocka_unit_test(conns_between_nodes_have_the_nets_of_their_nodes),
        cmocka_unit_test(one_node_has_the_double_trees_over_its_ring),
        cmocka_unit_test(model_uses_the_net_device_that_all_ranks_have),
        cmocka_unit_test(gpus_have_chains_and_host_memory_has_binary_trees),
    };
    const char *text = getenv("RONDO_TEST_SEED");
    seed = text != NULL ? strtoull(text, NULL, 0) : 20240608;
    print_message("seed %llu (RONDO_TEST_SEED)\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
