/*
 * Creation as a list of phases, private to init.c (which moves them), init_rounds.c, init_colors.c,
 * init_graphs.c and init_shapes.c (what each does).
 *
 * A phase is started, tested until done, and finished. What fails on one rank is kept (init->local) and
 * carried by the head of the next round's record: all ranks fail together, with the same sentence. Where a
 * phase looks at the deadline itself, that round has a second more. An error of start or test leaves the
 * round open; an error of finish was found by all ranks alike.
 */
#ifndef RONDO_INIT_PHASES_H
#define RONDO_INIT_PHASES_H

#include "init/init.h"
#include "init/node.h"
#include "topo/stitch.h"

enum { RONDO_MAX_PHASES = 14 };

/*
 * Bytes that a rank sends in each round; an allgather delivers as many from every rank. Each record begins
 * with a head of 8 bytes.
 *
 *     colors       16     ranks of the parent, split only
 *     peers       472
 *     params    8,200     only when ranks disagree on a parameter
 *     graphs      216     host memory on one node; 256 on several; GPUs: backend->record_bytes more
 *     shapes              no head: each distinct graph goes once to every rank (a binomial tree of pairs)
 *     ways         88     plus one for each rank of the fullest node; GPUs only
 *     connections         8 and one struct rondo_connect for each end; above 64 ranks between neighbours only
 *     ready         8
 *     done         16
 *
 * When a head of an allgather reports an error, one more allgather follows in the same phase: the sentences,
 * 512 bytes for each rank.
 */

/* What a node's lowest rank says of its graphs and machine in round "graphs" (nbytes 0: another rank), and
 * every rank of what it read by RONDO_TUNE_FILE (0: nothing). */
struct rondo_graph_note {
    uint64_t hash, fabric, machine, tune;
    uint32_t nbytes;
};

/* How long a line takes from core to core (init_handover.c): local ranks 0 and 1. */
struct rondo_handover {
    uint64_t said;              /* the last number */
    int64_t begin_ns, batch_ns; /* 0: not begun; the batch does not count */
    uint32_t best_ns;           /* one way; 0: not known */
};

struct rondo_init {
    struct rondo_ctx *ctx;
    struct rondo_bootstrap *bootstrap;
    struct rondo_split split; /* parent NULL: no split */
    int phase, started, late;
    int64_t ended_ns; /* when the last round saw that the communicator had ended; 0: it has not */
    int64_t begin_ns, phase_ns, deadline_ns, took_ns[RONDO_MAX_PHASES];
    rondo_status local; /* this rank's failure, told in the next round */
    char local_text[RONDO_ERROR_TEXT];
    int heard; /* the failure is a neighbour's, which tells it itself */
    /* the round under way */
    void *mine, *all;
    size_t bytes;
    enum {
        RONDO_ROUND_NO_HEADS,
        RONDO_ROUND_HEADS,
        RONDO_ROUND_TEXTS
    } heads;                       /* what the bootstrap carries */
    rondo_round_text text, *texts; /* texts: of all ranks, once a head has reported an error */
    /* kept between rounds */
    struct rondo_shm probe;
    int params_differ;
    int *exchange_peers;
    int ndoubling;
    void *copies; /* one record per peer of the exchange */
    struct rondo_link **hello;
    struct rondo_handover handover;
    struct rondo_shm_name segment;
    /* the nodes' graphs (init_shapes.c) */
    uint8_t *graph_bytes; /* of this node, at its lowest rank; else NULL */
    size_t graph_nbytes;
    struct rondo_shape *shape; /* distinct ones */
    int nshapes, shape_at, shape_step, shape_peer[1];
    uint64_t *node_graphs, *node_fabric; /* per node */
};

/* A step of creation. */
struct rondo_phase {
    const char *name;
    rondo_status (*start)(struct rondo_init *init);
    rondo_status (*test)(struct rondo_init *init); /* NULL: the bootstrap's */
    rondo_status (*finish)(struct rondo_init *init);
    int own_deadline; /* test looks at the deadline itself */
};

/* init_rounds.c: what rounds are made of */
/** Keep a failure, the first one, for the head of the next record. */
void rondo_init_keep(struct rondo_init *init, rondo_status status);
/** A zeroed record of this rank (init->mine), and room for n ranks'. */
rondo_status rondo_init_new_round(struct rondo_init *init, size_t bytes, int n);
/** Send init->mine with this rank's status to all. */
rondo_status rondo_init_allgather(struct rondo_init *init);
/** Test what the bootstrap carries. When a head of an allgather reports an error, the round is done once the
 * sentences of all ranks have arrived too. */
rondo_status rondo_init_test_round(struct rondo_init *init);
/** After rondo_init_test_round: the error that all ranks report alike; its sentence becomes this thread's. */
rondo_status rondo_init_check_round(struct rondo_init *init);
/** What rank r sent. */
void *rondo_init_record(const struct rondo_init *init, int rank);

/** What goes wrong on purpose (base/fault.h), from here on. */
void rondo_init_arm_faults(struct rondo_init *init);

/* init_colors.c */
rondo_status rondo_init_start_colors(struct rondo_init *init);
rondo_status rondo_init_finish_colors(struct rondo_init *init);

/* init_graphs.c */
rondo_status rondo_init_start_graphs(struct rondo_init *init);
rondo_status rondo_init_finish_graphs(struct rondo_init *init);
/** After the shapes: rings and trees. */
rondo_status rondo_init_finish_shapes(struct rondo_init *init);
/** How this rank's control plane is to be. */
void rondo_init_control_config(const struct rondo_ctx *ctx, struct rondo_control_config *config);
/** What rank r said in round "graphs". */
const struct rondo_graph_note *rondo_init_graph_note(const struct rondo_init *init, int r);

/* init_handover.c */
/** Local ranks 0 and 1 measure; RONDO_IN_PROGRESS: call again. *silent: who is waited for. */
rondo_status rondo_init_measure_handover(struct rondo_init *init, int *silent);
/** ns: what was measured, the same on all ranks; 0: nothing. */
void rondo_init_use_handover(struct rondo_ctx *ctx, uint32_t ns);

/* init_shapes.c */
/** After that round: which graphs there are and who has them. */
rondo_status rondo_init_list_shapes(struct rondo_init *init);
rondo_status rondo_init_start_shapes(struct rondo_init *init);
rondo_status rondo_init_test_shapes(struct rondo_init *init);
void rondo_init_free_shapes(struct rondo_init *init);

extern const struct rondo_phase rondo_phases[];
extern const int rondo_num_phases;
enum { RONDO_PHASE_COLORS = 0, RONDO_PHASE_OPEN = 1 }; /* the first of a split, of other creations */

#endif
