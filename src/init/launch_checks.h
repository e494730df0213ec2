/*
 * Ways in which launchers and containers set ranks up so that they are slow or do not find each other, found
 * from the peers' records and named in a warning. What is looked for depends on the records and on what this
 * process sees of its host; the lowest rank of each node looks for all of it.
 */
#ifndef RONDO_INIT_LAUNCH_CHECKS_H
#define RONDO_INIT_LAUNCH_CHECKS_H

#include "init/launcher.h"
#include "net/peer.h"

struct rondo_ctx;

enum rondo_trap {
    RONDO_TRAP_CORES,    /* the node's ranks are bound to fewer cores than they are, though their launcher may
                            use more */
    RONDO_TRAP_STRANGER, /* a record claims this host, which has no such process */
    RONDO_TRAP_NODES,    /* more processes claim this host than the launcher started on it */
    RONDO_TRAP_DIVIDED,  /* one host identity, but another /dev/shm or pid namespace */
    RONDO_TRAP_TWINS,    /* another host identity, but memory is shared */
    RONDO_NUM_TRAPS
};

/* What a process sees; made up by tests. */
struct rondo_trap_scene {
    const struct rondo_peer *peers;
    int rank, nranks;
    int has_hostid; /* RONDO_HOSTID is set here: who shares what is meant so */
    struct rondo_launcher launcher;
    struct rondo_cores launcher_cores; /* empty: unknown */
    int (*has_process)(int32_t pid);
    int (*can_open)(const struct rondo_shm_name *probe);
};

/* What there is to see. Ranks: -1 none. */
struct rondo_trap_view {
    int leads;                /* 0: another rank of the node looks, nothing else is set */
    int nranks, nprocesses;   /* of this node, by the records */
    struct rondo_cores cores; /* of its ranks, together */
    int stranger, divided, twin;
};

/** One pass over the records, O(n); opens the probes of at most 64 other hosts. */
void rondo_traps_look(const struct rondo_trap_scene *scene, struct rondo_trap_view *view);
/** @return 1 when this rank is in the trap; @a text then says cause, host and remedy. */
int rondo_trap_text(const struct rondo_trap_scene *scene, const struct rondo_trap_view *view,
                    enum rondo_trap trap, char *text, size_t size);

/** After the round of peers: warn of every trap this rank is in, of each once a process. */
void rondo_init_traps(const struct rondo_ctx *ctx);

#endif
