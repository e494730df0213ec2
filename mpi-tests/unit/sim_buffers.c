/* Buffers, connections and works of simulated ranks, and the results that must come out. */
#include <stdlib.h>
#include <string.h>

#include "coll/doubling.h"
#include "sim_impl.h"

/* ---- ranks, buffers, conns ---- */

size_t sim_gathered(const struct sim *s)
{
    size_t end = 0;
    for (int r = 0; r < s->n; r++) {
        end = rondo_max_size(end, s->displs[r] + count_of(s, r));
    }
    return end;
}

void sim_make_buffers(struct sim *s, int r, size_t all)
{
    struct rank *k = &s->rank[r];
    enum rondo_coll coll = coll_of(s, r), as = rondo_coll_scheduled_as(coll);
    int is_root = r == s->c->root;
    int has_in = coll != RONDO_COLL_RECV && (as != RONDO_COLL_BROADCAST || is_root);
    int has_out = coll != RONDO_COLL_SEND && (as != RONDO_COLL_REDUCE || is_root);
    k->nin = as == RONDO_COLL_REDUCE_SCATTER ? all : count_of(s, r);
    k->nout = as == RONDO_COLL_ALL_GATHER ? all : count_of(s, r);
    if (has_out && !(s->c->in_place && as == RONDO_COLL_REDUCE_SCATTER)) {
        k->out = k->out_memory = sim_zeroed(k->nout, sizeof(struct elem));
    }
    if (has_in && s->c->in_place && k->out != NULL) {
        k->in = k->out + (as == RONDO_COLL_ALL_GATHER ? s->displs[r] : 0);
    } else if (has_in) {
        k->in = k->in_memory = sim_zeroed(k->nin, sizeof(struct elem));
        k->out = k->out == NULL && has_out ? k->in + s->displs[r] : k->out;
    }
    k->writes = sim_zeroed(k->nout, 1);
    for (size_t i = 0; k->in != NULL && i < k->nin; i++) {
        k->in[i] = value_of(r, i);
    }
}

static void connect(struct sim *s, int from, int port, int to, int to_port)
{
    struct conn *conn = &s->rank[from].send[port];
    conn->to = to;
    conn->to_port = to_port;
    s->rank[to].recv[to_port] = conn;
    s->rank[to].receives_from[to_port] = from;
}

void sim_connect_rank(struct sim *s, int channel, int r)
{
    const struct rondo_tree *tree;
    sim_layout_view(s->layout, r);
    tree = &s->layout->channel[channel].tree;
    if (s->n > 1) {
        connect(s, r, RONDO_PORT_RING, s->layout->channel[channel].ring.next, RONDO_PORT_RING);
    }
    for (int i = 0; i < tree->nchildren; i++) {
        connect(s, r, RONDO_PORT_CHILD + i, tree->child[i], RONDO_PORT_PARENT);
        connect(s, tree->child[i], RONDO_PORT_PARENT, r, RONDO_PORT_CHILD + i);
    }
    for (int j = 0;
         rondo_algo_seating(s->c->algo) == RONDO_SEATING_DIMS && j < (int)rondo_doubling_ports(s->n); j++) {
        int peer = rondo_doubling_peer(r, s->n, (uint32_t)j);
        if (peer >= 0) {
            connect(s, r, RONDO_PORT_DIM + j, peer, RONDO_PORT_DIM + j);
        }
    }
    if (coll_of(s, r) == RONDO_COLL_SEND && r + 1 < s->n) {
        connect(s, r, RONDO_PORT_PEER, r + 1, RONDO_PORT_PEER);
    }
}

void sim_make_work(struct sim *s, int channel, int r)
{
    const struct sim_case *c = s->c;
    struct rank *k = &s->rank[r];
    enum rondo_coll coll = coll_of(s, r);
    size_t share = c->len / (size_t)c->nchannels;
    int root = coll == RONDO_COLL_SEND || coll == RONDO_COLL_RECV ? r ^ 1 : c->root;
    sim_layout_view(s->layout, r);
    memset(&k->work, 0, sizeof(k->work));
    k->work.coll = (uint8_t)coll;
    k->work.algo = (uint8_t)c->algo;
    k->work.proto = RONDO_PROTO_SIMPLE;
    k->work.elem_bytes = (uint8_t)c->elem_bytes;
    k->work.block_rank = rondo_algo_medium(c->algo) != RONDO_MEDIUM_CONNS
                             ? NULL
                             : s->layout->channel[channel].ring.rank_at;
    k->work.counts = c->counts;
    k->work.displs = c->displs;
    k->work.block = c->len;
    k->work.off = c->counts != NULL ? 0 : share * (size_t)channel;
    k->work.len = channel + 1 < c->nchannels ? share : c->len - share * (size_t)channel;
    k->work.chunk = c->chunk;
    rondo_seat_of(s->layout, channel, c->algo, coll, root, &k->work.seat);
    k->schedule = c->schedule != NULL ? c->schedule : rondo_schedule_find(coll, c->algo);
    k->nloops = rondo_work_nloops(&k->work, k->schedule->map);
    memset(k->flow, 0, sizeof(k->flow));
}

/* ---- results ---- */

static uint64_t sum_of_all(const struct sim *s, size_t at)
{
    uint64_t sum = 0;
    for (int r = 0; r < s->n; r++) {
        sum += value_of(r, at).sum;
    }
    return sum * 3 + 1; /* finish() */
}

static void check_range(struct sim *s, int r, size_t begin, size_t n, const uint64_t *sums, int from)
{
    const struct rank *k = &s->rank[r];
    for (size_t i = 0; i < n; i++) {
        uint64_t want = sums != NULL ? sums[i] : value_of(from, i).sum, state;
        if (k->out == NULL || k->out[begin + i].sum != want || k->writes[begin + i] != 1) {
            sim_fail(s, "rank %d: element %zu is wrong, or was not written", r, begin + i);
            return;
        }
        k->writes[begin + i] = 0; /* whatever is left at the end must not have been written */
        state = s->result->digest ^ k->out[begin + i].order;
        s->result->digest = sim_random(&state) + k->out[begin + i].sum;
    }
}

void sim_check_results(struct sim *s, size_t all)
{
    enum rondo_coll as = rondo_coll_scheduled_as(s->c->coll);
    int reduces = as == RONDO_COLL_ALL_REDUCE || as == RONDO_COLL_REDUCE || as == RONDO_COLL_REDUCE_SCATTER;
    size_t n = reduces ? (as == RONDO_COLL_REDUCE_SCATTER ? all : s->c->len) : 0;
    uint64_t *sums = sim_zeroed(n, sizeof(*sums));
    for (size_t i = 0; i < n; i++) {
        sums[i] = sum_of_all(s, i);
    }
    for (int r = 0; r < s->n; r++) {
        if (as == RONDO_COLL_ALL_REDUCE || (as == RONDO_COLL_REDUCE && r == s->c->root)) {
            check_range(s, r, 0, s->c->len, sums, -1);
        } else if (as == RONDO_COLL_REDUCE_SCATTER) {
            check_range(s, r, 0, count_of(s, r), sums + s->displs[r], -1);
        } else if (as == RONDO_COLL_BROADCAST) {
            check_range(s, r, 0, s->c->len, NULL, s->c->root);
        } else if (coll_of(s, r) == RONDO_COLL_RECV) {
            check_range(s, r, 0, s->c->len, NULL, r - 1);
        }
        for (int q = 0; as == RONDO_COLL_ALL_GATHER && q < s->n; q++) {
            check_range(s, r, s->displs[q], count_of(s, q), NULL, q);
        }
        for (size_t i = 0; i < s->rank[r].nout; i++) {
            if (s->rank[r].writes[i] != 0) {
                sim_fail(s, "rank %d writes element %zu, which nobody asked for", r, i);
            }
        }
        for (size_t i = 0; as == RONDO_COLL_ALL_REDUCE && i < s->c->len && s->rank[r].out != NULL; i++) {
            if (s->rank[r].out[i].order != s->rank[0].out[i].order) {
                sim_fail(s, "ranks 0 and %d have element %zu reduced in different orders", r, i);
            }
        }
    }
    free(sums);
}
