/* A machine of mpi-tests/unit/machines with its topology and graphs, for the tests of src/tools. Include it
 * after cmocka.h. */
#ifndef RONDO_TEST_MACHINE_SCENE_H
#define RONDO_TEST_MACHINE_SCENE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "topo/search.h"
#include "topo/topo.h"
#include "topo/xml/xml.h"

struct scene {
    struct rondo_machine machine;
    struct rondo_topo *topo;
    struct rondo_graph graphs[RONDO_NUM_GRAPHS];
    int nodes;
};

/* Build the topology of scene->machine for the ranks of `list` (NULL: all GPUs) in a job of `nodes` nodes. */
static inline void scene_topo(struct scene *scene, const char *list, int nodes)
{
    struct rondo_topo_options options = RONDO_TOPO_OPTIONS_DEFAULT;
    struct rondo_topo_rank *ranks = NULL;
    int n = 0;
    scene->nodes = options.nnodes = nodes;
    assert_int_equal(rondo_topo_ranks(&scene->machine, list, &ranks, &n), RONDO_SUCCESS);
    assert_int_equal(rondo_topo_create(&scene->topo, &scene->machine, ranks, n, &options), RONDO_SUCCESS);
    rondo_free(ranks);
}

/* Read machines/NAME.xml and build its topology; the graphs are empty. */
static inline void scene_open(struct scene *scene, const char *name, const char *list, int nodes)
{
    char file[512];
    const char *root = getenv("srcdir");
    memset(scene, 0, sizeof *scene);
    snprintf(file, sizeof file, "%s/mpi-tests/unit/machines/%s.xml", root ? root : ".", name);
    assert_int_equal(rondo_machine_read(&scene->machine, file), RONDO_SUCCESS);
    scene_topo(scene, list, nodes);
}

/* The same, with the graphs that the search finds. */
static inline void scene_search(struct scene *scene, const char *name, const char *list, int nodes)
{
    scene_open(scene, name, list, nodes);
    assert_int_equal(rondo_topo_search(scene->topo, scene->graphs), RONDO_SUCCESS);
}

static inline void scene_close(struct scene *scene)
{
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) rondo_graph_release(&scene->graphs[id]);
    rondo_topo_destroy(scene->topo);
    rondo_machine_release(&scene->machine);
}

#endif
