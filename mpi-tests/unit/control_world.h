/* Peers and configs for tests of the control plane: ranks of one node, as threads of this process or as
 * processes of their own. */
#ifndef RONDO_UNIT_CONTROL_WORLD_H
#define RONDO_UNIT_CONTROL_WORLD_H

#include "control_common.h"
#include "net/control/control_impl.h"

enum { WORLD_MAX = 8 };

struct world {
    int nranks;
    int local_ranks[WORLD_MAX];
    struct rondo_peer peers[WORLD_MAX];
    struct rondo_control *control[WORLD_MAX];
};

/* Local rank i is rank i. processes: each rank is its own process. */
static inline void world_init(struct world *world, int nranks, int processes)
{
    memset(world, 0, sizeof(*world));
    world->nranks = nranks;
    for (int i = 0; i < nranks; i++) {
        world->local_ranks[i] = i;
        world->peers[i].rank = i;
        world->peers[i].nranks = nranks;
        world->peers[i].process_hash = processes ? 100 + (uint64_t)i : 7;
        world->peers[i].host = "thishost";
    }
}

static inline struct rondo_control_config world_config(const struct world *world, int rank)
{
    return (struct rondo_control_config){ .rank = rank,
                                          .nranks = world->nranks,
                                          .local_rank = rank,
                                          .nlocal = world->nranks,
                                          .local_ranks = world->local_ranks,
                                          .peers = world->peers,
                                          .comm_hash = 0x1234,
                                          .mailbox_capacity = 200,
                                          .name = "test",
                                          .describe = describe };
}

/* All ranks in this process. */
static inline void world_open(struct world *world, int nranks)
{
    struct rondo_shm_name name;
    world_init(world, nranks, 0);
    for (int i = 0; i < nranks; i++) {
        struct rondo_control_config config = world_config(world, i);
        rondo_status status = i == 0 ? rondo_control_create(&world->control[i], &config, &name)
                                     : rondo_control_attach(&world->control[i], &config, &name);
        assert_int_equal(status, RONDO_SUCCESS);
    }
    for (int i = 0; i < nranks; i++) {
        assert_int_equal(rondo_control_start(world->control[i]), RONDO_SUCCESS);
    }
}

static inline void world_close(struct world *world)
{
    for (int i = 0; i < world->nranks; i++) {
        rondo_control_close(world->control[i]);
    }
}

#endif
