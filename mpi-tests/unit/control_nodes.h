/*
 * Control planes of several "nodes" for tests, all on this host, over the loopback interface. Each node has
 * its own segment and table of local ranks, so ranks reach other nodes by sockets only. All ranks are in
 * this process; each node has a process hash of its own.
 */
#ifndef RONDO_UNIT_CONTROL_NODES_H
#define RONDO_UNIT_CONTROL_NODES_H

#include <unistd.h>

#include "base/param.h"
#include "control_common.h"
#include "net/control/control_wire.h"

enum { NODES_MAX = 12 };

struct nodes {
    int nranks, nnodes;
    int node_of[NODES_MAX], local_of[NODES_MAX];
    int local_ranks[NODES_MAX][NODES_MAX], nlocal[NODES_MAX]; /* by node */
    uint64_t comm_hash;
    struct rondo_peer peers[NODES_MAX];
    char hosts[NODES_MAX][16];             /* by node */
    struct rondo_shm_name name[NODES_MAX]; /* by node */
    struct rondo_control *control[NODES_MAX];
};

/* nnodes nodes of nlocal ranks, in order. processes: a process hash for each rank, else for each node. */
static inline void nodes_init(struct nodes *w, int nnodes, int nlocal, int processes)
{
    static uint64_t serial;
    memset(w, 0, sizeof(*w));
    w->nnodes = nnodes;
    w->nranks = nnodes * nlocal;
    w->comm_hash = 0x5eed + ++serial;
    for (int r = 0; r < w->nranks; r++) {
        int node = r / nlocal;
        w->node_of[r] = node;
        w->local_of[r] = w->nlocal[node];
        w->local_ranks[node][w->nlocal[node]++] = r;
        w->peers[r].rank = r;
        w->peers[r].nranks = w->nranks;
        w->peers[r].pid = getpid();
        w->peers[r].process_hash = 100 + (uint64_t)(processes ? r : node);
        w->peers[r].id.nonce[0] = 0xabcd0000 + serial;
        w->peers[r].id.nonce[1] = 77;
        snprintf(w->hosts[node], sizeof(w->hosts[node]), "host%d", node);
        w->peers[r].host = w->hosts[node];
    }
}

static inline struct rondo_control_config nodes_config(const struct nodes *w, int r)
{
    int node = w->node_of[r];
    return (struct rondo_control_config){ .rank = r,
                                          .nranks = w->nranks,
                                          .local_rank = w->local_of[r],
                                          .nlocal = w->nlocal[node],
                                          .local_ranks = w->local_ranks[node],
                                          .peers = w->peers,
                                          .nnodes = w->nnodes,
                                          .node_of = w->node_of,
                                          .comm_hash = w->comm_hash,
                                          .name = "test",
                                          .describe = describe };
}

static inline rondo_status nodes_make(struct nodes *w, int r)
{
    struct rondo_control_config config = nodes_config(w, r);
    return w->local_of[r] == 0 ? rondo_control_create(&w->control[r], &config, &w->name[w->node_of[r]])
                               : rondo_control_attach(&w->control[r], &config, &w->name[w->node_of[r]]);
}

/* All but the start. */
static inline void nodes_prepare(struct nodes *w, int nnodes, int nlocal)
{
    uint8_t addr[RONDO_ADDR_BYTES];
    uint32_t number;
    nodes_init(w, nnodes, nlocal, 0);
    assert_int_equal(rondo_control_listen(addr, &number), RONDO_SUCCESS);
    for (int r = 0; r < w->nranks; r++) {
        memcpy(w->peers[r].control_addr, addr, sizeof(addr));
        w->peers[r].control_number = number;
    }
    for (int r = 0; r < w->nranks; r++) {
        assert_int_equal(nodes_make(w, r), RONDO_SUCCESS);
    }
}

static inline void nodes_open(struct nodes *w, int nnodes, int nlocal)
{
    nodes_prepare(w, nnodes, nlocal);
    for (int r = 0; r < w->nranks; r++) {
        assert_int_equal(rondo_control_start(w->control[r]), RONDO_SUCCESS);
    }
}

static inline void nodes_close(struct nodes *w)
{
    for (int r = 0; r < w->nranks; r++) {
        rondo_control_close(w->control[r]);
    }
    rondo_control_unlisten();
}

/* Use loopback and these beats. */
static inline void use_loop(const char *heartbeat, const char *dead_after)
{
    setenv("RONDO_SOCKET_IFNAME", "lo", 1);
    setenv("RONDO_HEARTBEAT", heartbeat, 1);
    setenv("RONDO_DEAD_AFTER", dead_after, 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
}

static inline void send_all(struct rondo_control *control, int rank, uint64_t tag, const void *data,
                            size_t bytes)
{
    rondo_status status = RONDO_IN_PROGRESS;
    WAIT_FOR((status = rondo_control_send(control, rank, tag, data, bytes)) != RONDO_IN_PROGRESS);
    assert_int_equal(status, RONDO_SUCCESS);
}

static inline void receive_all(struct rondo_control *control, int rank, uint64_t tag, void *data,
                               size_t bytes)
{
    rondo_status status = RONDO_IN_PROGRESS;
    size_t got = 0;
    WAIT_FOR((status = rondo_control_receive(control, rank, tag, data, bytes, &got)) != RONDO_IN_PROGRESS);
    assert_int_equal(status, RONDO_SUCCESS);
    assert_int_equal(got, bytes);
}

#endif
