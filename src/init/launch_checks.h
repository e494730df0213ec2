/*
 * Launch checks: Rondo warns when launchers or containers start ranks so that they are slow or do not find
 * each other. The lowest rank of each node checks the peers' records against what its process sees.
 */
#ifndef RONDO_INIT_LAUNCH_CHECKS_H
#define RONDO_INIT_LAUNCH_CHECKS_H

#include "init/launcher.h"
#include "net/peer.h"

struct rondo_ctx;

enum rondo_launch_check {
    RONDO_LAUNCH_CORES,    /* more ranks than cores that they are bound to; the launcher has more */
    RONDO_LAUNCH_STRANGER, /* a record claims this host, which has no such process */
    RONDO_LAUNCH_NODES,    /* more processes claim this host than the launcher started on it */
    RONDO_LAUNCH_DIVIDED,  /* one host identity, but another /dev/shm or pid namespace */
    RONDO_LAUNCH_TWINS,    /* another host identity, but memory is shared */
    RONDO_NUM_LAUNCH_CHECKS
};

/* What a process sees; made up by tests. */
struct rondo_launch_scene {
    const struct rondo_peer *peers;
    int rank, nranks;
    int has_hostid; /* RONDO_HOSTID is set: the user says which ranks share a host */
    struct rondo_launcher launcher;
    struct rondo_cores launcher_cores; /* empty: unknown */
    int (*has_process)(int32_t pid);
    int (*can_open)(const struct rondo_shm_name *probe);
};

/* What there is to see. Ranks: -1 none. */
struct rondo_launch_view {
    int leads;                /* 0: another rank of the node looks, nothing else is set */
    int nranks, nprocesses;   /* of this node, by the records */
    struct rondo_cores cores; /* of its ranks, together */
    int stranger, divided, twin;
};

/** One pass over the records, O(n); opens the probes of at most 64 other hosts. */
void rondo_launch_look(const struct rondo_launch_scene *scene, struct rondo_launch_view *view);
/** @return 1: the check found a mistake; @a text names its cause, the host and the remedy. */
int rondo_launch_check_text(const struct rondo_launch_scene *scene, const struct rondo_launch_view *view,
                            enum rondo_launch_check check, char *text, size_t size);

/** After round "peers": warn of each mistake, once a process. */
void rondo_launch_warn(const struct rondo_ctx *ctx);

#endif
