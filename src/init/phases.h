/*
 * Creation as a list of phases: private to init.c, which steps through them, and to the file of each phase.
 *
 * init.c starts a phase, tests it until it is done, and finishes it. A rank that fails keeps its error
 * (init->local) and sends it in the head of the next round's record, so all ranks fail together, with the
 * same sentence. A phase with own_deadline checks the deadline itself; the round after it has a second more.
 * An error of start or test leaves the round open. So does one of finish, unless it is of usage or arguments:
 * those all ranks find alike.
 */
#ifndef RONDO_INIT_PHASES_H
#define RONDO_INIT_PHASES_H

#include "init/init.h"
#include "init/node.h"
#include "net/bootstrap/rounds.h"
#include "topo/stitch.h"
#include "tuner/calibration.h"

enum { RONDO_MAX_PHASES = 14 };

/*
 * Bytes that each rank sends in a round, by an allgather unless noted. A record begins with a head of 8
 * bytes.
 *
 *     colors       24     split only, among the parent's ranks
 *     peers       256     not in a split of a communicator of one node and host memory, which has them
 *     params    8,200     only when ranks disagree on a parameter
 *     graphs      144     on one node; 184 on several, or without shared memory; GPUs add
 *                         backend->record_bytes
 *     shapes              no head; each distinct graph once to every rank, down a binomial tree
 *     p2p_modes    88     GPUs only; plus one for each rank of the fullest node
 *     connections         8 and one struct rondo_connect for each end; above 64 ranks to neighbours only
 *     ready         8      between nodes, over a control plane: 16, merged into one on its way up a tree
 *     done         60     between nodes, over a control plane: 20, merged into one
 *
 * A split within a node (near) has the rounds colors and graphs only: the graphs lie in the new segment,
 * links in the arenas, which each rank reads itself. A rank that writes its links there has done all that can
 * fail, so who has read the links of all is ready. Only if one wrote that it failed, round "ready" follows.
 *
 * When a head reports an error, the sentences follow in the same phase: 512 bytes a rank, all to all; over a
 * control plane 528, of which the lowest rank's comes down a tree.
 */

/* In round "graphs", a node's lowest rank describes its graphs and machine (nbytes 0: another rank), and
 * every rank gives the hash of its RONDO_TUNE_FILE (tune 0: none) and which tuner plugin it has (plugin 0:
 * none). */
struct rondo_graph_note {
    uint64_t hash, fabric, machine, tune, plugin;
    uint32_t nbytes;
    uint32_t handover; /* local ranks 0 and 1: rondo_init_known_handover */
};

/* Time of a cache line from core to core, measured by local ranks 0 and 1 (handover.c). */
struct rondo_handover {
    uint64_t said;              /* the last number written */
    int64_t begin_ns, batch_ns; /* 0: not begun; the batch was interrupted */
    uint32_t best_ns;           /* one way; 0: unknown */
    int known;                  /* both ranks know it from a communicator before */
};

/* What all ranks agree on in round "done" where that merges records. */
struct rondo_done {
    struct rondo_round_verdict verdict;
    int32_t no_ll128; /* the lowest rank of which a conn takes no LL128; INT32_MAX: none */
};
/* The node's first rank has measured it; in the control plane's segment, where the records do not carry
 * it. */
struct rondo_node_measured {
    _Atomic uint32_t told;
    uint32_t handover_ns;
    struct rondo_calibration calibration;
};

/* The calibration of this host by local ranks 0 and 1 (calibrate.c). */
struct rondo_calibrating {
    int begun;
    int step; /* local rank 0: the current one, -1: none; local rank 1: how many it has done */
    int64_t begin_ns;
    uint8_t *mine, *sum;            /* this rank's input and result in ordinary memory */
    uint64_t *ns;                   /* times of all steps */
    struct rondo_calibration found; /* all zero: unknown */
};

struct rondo_init {
    struct rondo_ctx *ctx;
    struct rondo_bootstrap *bootstrap;
    struct rondo_split split; /* parent NULL: not a split */
    rondo_comm *older; /* the split that had the same place before; NULL: none. It may have ended since */
    int phase, started, late;
    int64_t ended_ns; /* when a round saw that the communicator had ended; 0: it has not */
    int64_t begin_ns, phase_ns, deadline_ns, took_ns[RONDO_MAX_PHASES];
    rondo_status local; /* this rank's failure, which the next round reports */
    char local_text[RONDO_ERROR_TEXT];
    int heard; /* the failure is a neighbour's, which reports it itself */
    /* the current round */
    void *mine, *all;
    size_t bytes;
    enum {
        RONDO_ROUND_NO_HEADS,
        RONDO_ROUND_HEADS,
        RONDO_ROUND_VERDICT,
        RONDO_ROUND_TEXTS
    } heads;                       /* what the current round carries */
    rondo_round_text text, *texts; /* texts: all ranks' errors, once a head has reported one */
    struct rondo_round_verdict verdict[RONDO_ROUNDS_REDUCED];
    struct rondo_done done[RONDO_ROUNDS_REDUCED];
    const struct rondo_round_verdict *agreed; /* where the round's verdict is */
    struct rondo_round_reason *reason;        /* instead of texts, where the bootstrap reduces; else NULL */
    /* kept between rounds */
    int inherits;    /* a child that has its peers from a parent of one node, on host memory */
    int near;        /* all ranks of such a child share memory in the parent's way: fewer rounds will do */
    int near_failed; /* one of them has told all that it failed: round "ready" says why */
    size_t extra;    /* of the control plane's segment: the node's graphs, where inherits is 1, or a struct
                      * rondo_node_measured, where merges is 1 */
    int merges;      /* round "done" is a reduction */
    struct rondo_shm probe;
    int *members; /* of a split: the parent's ranks of this rank's colour, in the child's order */
    int params_differ;
    int *exchange_peers;
    int nexchange;
    void *copies; /* of this rank's record, one per exchange peer */
    struct rondo_link **hello;
    struct rondo_handover handover;
    struct rondo_calibrating calibrating;
    struct rondo_shm_name segment;
    /* the nodes' graphs (phase_shapes.c) */
    uint8_t *graph_bytes; /* this node's, on its lowest rank; else NULL */
    size_t graph_nbytes;
    struct rondo_shape *shape; /* the distinct ones */
    int nshapes, shape_at, shape_step, shape_peer[1];
    uint64_t *node_graphs, *node_fabric; /* per node */
};

/* A step of creation. NULL: nothing to do; test NULL: rondo_init_test_round. */
struct rondo_phase {
    const char *name;
    rondo_status (*start)(struct rondo_init *init);
    rondo_status (*test)(struct rondo_init *init);
    rondo_status (*finish)(struct rondo_init *init);
    int own_deadline; /* test checks the deadline itself */
};

extern const struct rondo_phase rondo_phase_colors, rondo_phase_open, rondo_phase_peers, rondo_phase_params,
    rondo_phase_graphs, rondo_phase_shapes, rondo_phase_p2p_check, rondo_phase_p2p_modes,
    rondo_phase_connections, rondo_phase_connect, rondo_phase_ready, rondo_phase_hello, rondo_phase_done;

/* phases.c */
extern const struct rondo_phase *const rondo_phases[];
extern const int rondo_num_phases;
enum { RONDO_PHASE_COLORS = 0, RONDO_PHASE_OPEN = 1 }; /* the first phase of a split, and of others */

/* round.c */
/** Keep this rank's first failure for the head of the next record. */
void rondo_init_keep(struct rondo_init *init, rondo_status status);
/** Keep a failure and tell the other ranks at once, by the control plane: once it runs, they would wait for
 * this rank's hello. */
void rondo_init_keep_and_tell(struct rondo_init *init, rondo_status status);
/** Allocate this rank's record (init->mine, zeroed) and room for those of n ranks. */
rondo_status rondo_init_new_round(struct rondo_init *init, size_t bytes, int n);
/** Write this rank's status into the head of init->mine. */
void rondo_init_set_head(const struct rondo_init *init);
/** Start to send init->mine, with this rank's status, to all ranks. */
rondo_status rondo_init_allgather(struct rondo_init *init);
/** Start to agree on a status, without records. */
rondo_status rondo_init_agree(struct rondo_init *init);
/** The same, with more to agree on: record begins with a verdict, of which this fills the first, and has room
 * for RONDO_ROUNDS_REDUCED. The bootstrap must reduce. */
rondo_status rondo_init_agree_with(struct rondo_init *init, struct rondo_round_verdict *record, size_t bytes,
                                   void (*merge)(void *into, const void *from));
/** Test the round. If a head reports an error, the round also waits for the sentences of all ranks. */
rondo_status rondo_init_test_round(struct rondo_init *init);
/** After rondo_init_test_round: @return the error that all ranks report alike; its sentence becomes this
 * thread's. */
rondo_status rondo_init_check_round(struct rondo_init *init);
/** @return the record of a rank. */
void *rondo_init_record(const struct rondo_init *init, int rank);
/** Outside rounds: @return the error by which a rank that died or gave up has ended the creation;
 * RONDO_SUCCESS: none is known. After the deadline a stopped rank counts, too. */
rondo_status rondo_init_look_out(struct rondo_init *init);
/** @return RONDO_IN_PROGRESS, or the error by which the control plane ended the communicator: it names a rank
 * that died or gave up at once. */
rondo_status rondo_init_in_progress(struct rondo_ctx *ctx);

/* phase_open.c */
/** Arm the faults of RONDO_FAULT (base/fault.h). */
void rondo_init_arm_faults(struct rondo_init *init);

/* phase_graphs.c */
/** Attach to the node's control plane, unless this rank has made it. */
rondo_status rondo_init_attach(struct rondo_init *init);
/** Protocols for which conns get buffers, as a mask. */
uint32_t rondo_init_wanted_protos(const struct rondo_layout *layout, const struct rondo_allowed *allowed);
/** @return what a rank reported in round "graphs". */
const struct rondo_graph_note *rondo_init_graph_note(const struct rondo_init *init, int rank);

/* phase_ready.c */
/** Near, before this rank tells its links: do all that may fail. */
rondo_status rondo_init_prepare_near(struct rondo_init *init);

/* phase_shapes.c */
/** @return the rank with which one of n exchanges a shape in a step of its broadcast; -1: none. In step k the
 * 2^k ranks that have it, counted from its owner, send it to as many others. */
static inline int rondo_shape_partner(int n, int rank, int owner, int step)
{
    int at = (rank - owner + n) % n, bit = 1 << step, other;
    if (at >= 2 * bit) {
        return -1;
    }
    other = at < bit ? at + bit : at - bit;
    return other < n ? (other + owner) % n : -1;
}
/** After round "graphs": list the distinct graphs and who owns them. */
rondo_status rondo_init_list_shapes(struct rondo_init *init);
void rondo_init_free_shapes(struct rondo_init *init);

/* calibrate.c */
/** One step of the calibration, on local ranks 0 and 1, once the handover is measured. @return as
 * rondo_init_measure_handover. */
rondo_status rondo_init_calibrate(struct rondo_init *init, int *silent);
/** Adapt the model to what local rank 0 has sent to all: the calibration, and the time of the handover. */
void rondo_init_use_measured(struct rondo_init *init, const struct rondo_calibration *c, uint32_t ns);
/** A split or shrink whose ranks measure nothing: the parent's calibration, if it is of this placement. */
void rondo_init_use_inherited(struct rondo_init *init);
/** done: round "done" has succeeded, so the other rank no longer copies into this one's memory. */
void rondo_init_free_calibrating(struct rondo_init *init, int done);

/* handover.c */
/** Does the other rank write the wanted number within 20 us? */
int rondo_init_hears(const uint64_t *word, uint64_t wanted);
/** One step of the measurement, on local ranks 0 and 1. @return RONDO_IN_PROGRESS: call again; *silent is
 * then the rank that has not answered. */
rondo_status rondo_init_measure_handover(struct rondo_init *init, int *silent);
/** Has this process measured lately, as local rank 0 or 1, with the process of the other, or has the parent
 * of a split? @return 1 + ns (1: no time was found); 0: no. */
uint32_t rondo_init_known_handover(const struct rondo_init *init);
/** Give the model the measured time, which all ranks have agreed on; 0: none. */
void rondo_init_use_handover(struct rondo_init *init, uint32_t ns);

#endif
