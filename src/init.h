/*
 * Creation as a list of phases, private to init.c (which moves them) and init_rounds.c (what each does).
 *
 * A phase is started, tested until done, and finished. What fails on one rank is kept (init->local) and carried by the head of the next round's record: all ranks fail
 * together, with the same sentence. An error of start or test leaves the round open; an error of finish was found by all ranks alike.
 */
#ifndef RONDO_INIT_H
#define RONDO_INIT_H

#include "comm.h"

enum { RONDO_MAX_PHASES = 9 };

struct rondo_init {
    struct rondo_ctx *ctx;
    struct rondo_bootstrap *bootstrap;
    struct rondo_split split; /* parent NULL: no split */
    int phase, started, late;
    int64_t ended_ns; /* when the last round saw that the communicator had ended; 0: it has not */
    int64_t begin_ns, phase_ns, deadline_ns, took_ns[RONDO_MAX_PHASES];
    rondo_status local; /* this rank's failure, told in the next round */
    char local_text[RONDO_ERROR_TEXT];
    /* the round under way */
    void *mine, *all;
    size_t bytes;
    /* kept between rounds */
    struct rondo_shm probe;
    int params_differ;
    int *exchange_peers;
    int nexchange;
    void *copies; /* one record per peer of the exchange */
    struct rondo_link **hello;
    struct rondo_shm_name segment;
};

/* A step of creation. */
struct rondo_phase {
    const char *name;
    rondo_status (*start)(struct rondo_init *init);
    rondo_status (*test)(struct rondo_init *init); /* NULL: the bootstrap's */
    rondo_status (*finish)(struct rondo_init *init);
    int own_deadline; /* test looks at the deadline itself */
};

extern const struct rondo_phase rondo_phases[];
extern const int rondo_num_phases;
enum { RONDO_PHASE_COLORS = 0, RONDO_PHASE_OPEN = 1 }; /* the first of a split, of other creations */

#endif
