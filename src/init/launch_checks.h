/*
 * Launch checks: warnings about common mistakes in how ranks were started, by launchers or in containers,
 * which make calls slow or hide ranks from one another. They read the peers' records and what this process
 * sees of its host. The lowest rank of each node runs all of them.
 */
#ifndef RONDO_INIT_LAUNCH_CHECKS_H
#define RONDO_INIT_LAUNCH_CHECKS_H

#include "init/launcher.h"
#include "net/peer.h"

struct rondo_ctx;

enum rondo_launch_check {
    RONDO_LAUNCH_CORES,    /* a node's ranks are bound to fewer cores than there are ranks, though their
                                  launcher may use more */
    RONDO_LAUNCH_STRANGER, /* a record claims this host, which has no such process */
    RONDO_LAUNCH_NODES,    /* more processes claim this host than the launcher started on it */
    RONDO_LAUNCH_DIVIDED,  /* one host identity, but another /dev/shm or pid namespace */
    RONDO_LAUNCH_TWINS,    /* two host identities, but memory is shared */
    RONDO_NUM_LAUNCH_CHECKS
};

/* What the checks read. Tests make it up. */
struct rondo_launch_scene {
    const struct rondo_peer *peers;
    int rank, nranks;
    int has_hostid; /* RONDO_HOSTID is set: the user has decided which ranks share a host */
    struct rondo_launcher launcher;
    struct rondo_cores launcher_cores; /* empty: unknown */
    int (*has_process)(int32_t pid);
    int (*can_open)(const struct rondo_peer *peer);
};

/* What they find. Ranks are -1 where there is none. */
struct rondo_launch_view {
    int leads;                /* 0: another rank checks this node; nothing else is set */
    int nranks, nprocesses;   /* on this node, according to the records */
    struct rondo_cores cores; /* all cores of the node's ranks */
    int stranger, divided, twin;
};

/** Inspect the records in one pass, O(nranks); opens the probes of at most 64 other hosts. */
void rondo_launch_look(const struct rondo_launch_scene *scene, struct rondo_launch_view *view);
/** @return 1 when the check fails; @a text then names cause, host and remedy. */
int rondo_launch_check_text(const struct rondo_launch_scene *scene, const struct rondo_launch_view *view,
                            enum rondo_launch_check check, char *text, size_t size);
/** Log each failed check as a warning, once a process. Call it when the peers' records are complete. */
void rondo_launch_warn(const struct rondo_ctx *ctx);

#endif
