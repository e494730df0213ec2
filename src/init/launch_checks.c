#include "init/launch_checks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "comm/comm.h"

enum { PROBES_MAX = 64 }; /* hosts whose probe one rank opens at most, among those of higher ranks */

/* A peer may send a host name without its terminator: print no more than the field. */
#define HOST(peer) (int)strnlen((peer)->host, RONDO_HOST_LEN - 1), (peer)->host

/* ---- inspection ---- */

static int by_value(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

/* Count the processes of this node, whose ranks may be threads. @return 0 when memory runs out. */
static int count_processes(const struct rondo_launch_scene *scene, int nlocal)
{
    const struct rondo_peer *self = &scene->peers[scene->rank];
    uint64_t *process;
    int n = 0, count = 0;
    if (RONDO_NEW_ARRAY(process, nlocal, "the list of processes") != RONDO_SUCCESS) {
        return 0;
    }
    for (int r = scene->rank; r < scene->nranks && n < nlocal; r++) {
        if (rondo_peer_same_node(self, &scene->peers[r])) {
            process[n++] = scene->peers[r].process_hash;
        }
    }
    qsort(process, (size_t)n, sizeof *process, by_value);
    for (int i = 0; i < n; i++) {
        count += i == 0 || process[i] != process[i - 1];
    }
    rondo_free(process);
    return count;
}

/* Ranks of a node usually follow each other, so search from the nearest lower rank down. */
static int leads_node(const struct rondo_launch_scene *scene)
{
    const struct rondo_peer *self = &scene->peers[scene->rank];
    for (int r = scene->rank - 1; r >= 0; r--) {
        if (rondo_peer_same_node(self, &scene->peers[r])) {
            return 0;
        }
    }
    return 1;
}

static int shares_memory(const struct rondo_peer *a, const struct rondo_peer *b)
{
    return a->shm_dev != 0 && a->shm_dev == b->shm_dev && a->pidns != 0 && a->pidns == b->pidns;
}

static void inspect_local(const struct rondo_launch_scene *scene, struct rondo_launch_view *view, int r)
{
    const struct rondo_peer *peer = &scene->peers[r];
    view->nranks++;
    rondo_cores_unite(&view->cores, peer->cores);
    if (view->stranger < 0 && peer->pidns != 0 && !scene->has_process(peer->pid)) {
        view->stranger = r;
    }
}

/* Only the host with the lower first rank probes the other one. */
static void inspect_host(const struct rondo_launch_scene *scene, struct rondo_launch_view *view, int r,
                         int *nprobes)
{
    const struct rondo_peer *self = &scene->peers[scene->rank], *peer = &scene->peers[r];
    if (r < scene->rank || view->twin >= 0 || *nprobes >= PROBES_MAX ||
        peer->host_hash == scene->peers[r - 1].host_hash || !shares_memory(self, peer)) {
        return;
    }
    ++*nprobes;
    if (scene->can_open(peer)) {
        view->twin = r;
    }
}

void rondo_launch_look(const struct rondo_launch_scene *scene, struct rondo_launch_view *view)
{
    const struct rondo_peer *self = &scene->peers[scene->rank];
    int nprobes = 0, reported = 0; /* reported: a lower rank of this host warns that it is divided */
    *view =
        (struct rondo_launch_view){ .leads = leads_node(scene), .stranger = -1, .divided = -1, .twin = -1 };
    if (!view->leads) {
        return;
    }
    for (int r = 0; r < scene->nranks; r++) {
        const struct rondo_peer *peer = &scene->peers[r];
        if (rondo_peer_same_node(self, peer)) {
            inspect_local(scene, view, r);
        } else if (self->host_hash != peer->host_hash) {
            inspect_host(scene, view, r, &nprobes);
        } else if (r < scene->rank) {
            reported = 1;
        } else if (view->divided < 0 && !reported) {
            view->divided = r;
        }
    }
    view->nprocesses = count_processes(scene, view->nranks);
}

/* ---- warnings ---- */

typedef int (*check_text)(const struct rondo_launch_scene *scene, const struct rondo_launch_view *view,
                          char *text, size_t size);

static const char *plural(int n) { return n == 1 ? "" : "s"; }

static int few_cores_text(const struct rondo_launch_scene *scene, const struct rondo_launch_view *view,
                          char *text, size_t size)
{
    const struct rondo_peer *self = &scene->peers[scene->rank];
    int used = rondo_cores_count(&view->cores), allowed = rondo_cores_count(&scene->launcher_cores);
    if (view->nprocesses < 2 || view->nranks <= used || allowed <= used) {
        return 0;
    }
    snprintf(text, size,
             "the %d ranks on %.*s are bound to %d core%s, though their launcher may use %d: ranks share "
             "cores, and every call is slow. Start them with %s, or request one core per rank",
             view->nranks, HOST(self), used, plural(used), allowed,
             scene->launcher.unbind ? scene->launcher.unbind
                                    : "no binding (mpirun --bind-to none, srun --cpu-bind=none)");
    return 1;
}

static int stranger_text(const struct rondo_launch_scene *scene, const struct rondo_launch_view *view,
                         char *text, size_t size)
{
    if (view->stranger < 0) {
        return 0;
    }
    const struct rondo_peer *self = &scene->peers[scene->rank], *peer = &scene->peers[view->stranger];
    snprintf(text, size,
             "rank %d on %.*s claims to be process %d on the host of rank %d, %.*s, which has no such "
             "process: either it has exited, or two machines have the same identity (%s). Give each machine "
             "its own RONDO_HOSTID",
             view->stranger, HOST(peer), peer->pid, scene->rank, HOST(self),
             scene->has_hostid ? "RONDO_HOSTID" : "name and boot id, as clones of a virtual machine have");
    return 1;
}

static int merged_hosts_text(const struct rondo_launch_scene *scene, const struct rondo_launch_view *view,
                             char *text, size_t size)
{
    const struct rondo_peer *self = &scene->peers[scene->rank];
    int started = scene->launcher.local_tasks, all = scene->launcher.tasks;
    if (scene->has_hostid || started < 1 || view->nprocesses <= started ||
        (all > 0 && scene->nranks > all)) { /* a task started several ranks, as torchrun does */
        return 0;
    }
    snprintf(text, size,
             "%s started %d process%s on the node of rank %d, but %d processes claim its host %.*s, with the "
             "same name, boot id, /dev/shm and pid namespace, so Rondo treats them as one node. If they run "
             "on several machines, give each machine its own RONDO_HOSTID; if on one, shared memory of the "
             "MPI library may fail there (Open MPI: set OMPI_MCA_btl=self,tcp)",
             scene->launcher.name, started, started == 1 ? "" : "es", scene->rank, view->nprocesses,
             HOST(self));
    return 1;
}

static int divided_host_text(const struct rondo_launch_scene *scene, const struct rondo_launch_view *view,
                             char *text, size_t size)
{
    if (view->divided < 0) {
        return 0;
    }
    const struct rondo_peer *a = &scene->peers[scene->rank], *b = &scene->peers[view->divided];
    int shm = a->shm_dev != b->shm_dev, pidns = a->pidns != b->pidns;
    snprintf(text, size,
             "rank %d on %.*s and rank %d on %.*s have the same host identity (%s), but different %s: Rondo "
             "treats them as two nodes, and their data goes over the network. Let containers share both "
             "(docker run --ipc=host --pid=host); if two nodes are intended, give each its own RONDO_HOSTID",
             scene->rank, HOST(a), view->divided, HOST(b),
             scene->has_hostid ? "RONDO_HOSTID" : "name and boot id",
             !pidns ? "/dev/shm"
             : shm  ? "/dev/shm and pid namespaces"
                    : "pid namespaces");
    return 1;
}

static int shared_host_text(const struct rondo_launch_scene *scene, const struct rondo_launch_view *view,
                            char *text, size_t size)
{
    if (scene->has_hostid || view->twin < 0) {
        return 0;
    }
    const struct rondo_peer *a = &scene->peers[scene->rank], *b = &scene->peers[view->twin];
    snprintf(text, size,
             "rank %d on %.*s and rank %d on %.*s have different host identities (name and boot id, or "
             "RONDO_HOSTID), but share memory, /dev/shm and pid namespace: they are on one machine, yet "
             "Rondo treats them as two nodes, and their data goes over the network. Give both the same "
             "RONDO_HOSTID",
             scene->rank, HOST(a), view->twin, HOST(b));
    return 1;
}

static const check_text texts[RONDO_NUM_LAUNCH_CHECKS] = {
    [RONDO_LAUNCH_CORES] = few_cores_text,    [RONDO_LAUNCH_STRANGER] = stranger_text,
    [RONDO_LAUNCH_NODES] = merged_hosts_text, [RONDO_LAUNCH_DIVIDED] = divided_host_text,
    [RONDO_LAUNCH_TWINS] = shared_host_text,
};

int rondo_launch_check_text(const struct rondo_launch_scene *scene, const struct rondo_launch_view *view,
                            enum rondo_launch_check check, char *text, size_t size)
{
    return view->leads && texts[check](scene, view, text, size);
}

/* ---- this process ---- */

/* kill() also sees processes of other users, and those that /proc hides. */
static int has_process(int32_t pid) { return pid <= 0 || kill(pid, 0) == 0 || errno != ESRCH; }

void rondo_launch_warn(const struct rondo_ctx *ctx)
{
    static int warned[RONDO_NUM_LAUNCH_CHECKS];
    const char *hostid = rondo_params()->hostid;
    struct rondo_launch_view view;
    char text[RONDO_ERROR_TEXT];
    struct rondo_launch_scene scene = {
        .peers = ctx->wiring.peers,
        .rank = ctx->job.rank,
        .nranks = ctx->job.nranks,
        .has_hostid = hostid && hostid[0],
        .has_process = has_process,
        .can_open = rondo_peer_can_open,
    };
    if (ctx->job.nranks < 2 || !rondo_log_on(RONDO_LOG_WARN, 0)) {
        return;
    }
    rondo_launch_look(&scene, &view);
    if (!view.leads) {
        return;
    }
    rondo_launcher_read(&scene.launcher);
    rondo_cores_launcher(&scene.launcher_cores);
    for (int i = 0; i < RONDO_NUM_LAUNCH_CHECKS; i++) {
        if (rondo_launch_check_text(&scene, &view, (enum rondo_launch_check)i, text, sizeof text) &&
            !__atomic_exchange_n(&warned[i], 1, __ATOMIC_RELAXED)) {
            RONDO_WARN("%s", text);
        }
    }
}
