/*
 * Rondo: process groups, as training frameworks use them. A group is a list of ranks; its communicators are
 * made when a call first needs one, and its calls give works that can be tested, waited for and watched.
 *
 *     rondo_comm_create(MPI_COMM_WORLD, NULL, &comm);             every rank
 *     rondo_pgroup_create(comm, NULL, &world);                    takes comm over
 *     rondo_pgroup_new(world, (int[]){ 1, 3 }, 2, NULL, &pair);   ranks 1 and 3 only
 *     rondo_pgroup_all_reduce(pair, x, x, n, RONDO_FLOAT32, RONDO_SUM, NULL, &work);
 *     rondo_pgroup_work_wait(work, RONDO_CONFIG_DEFAULT);
 *     rondo_pgroup_work_free(work);
 *
 * What holds for every function below:
 *  - Creating the default group is collective; all else is carried by its communicator. So nothing here calls
 *    MPI, members need nobody else, and any thread may make any call at any time.
 *  - A group has a communicator for each kind of memory (host; a GPU) that its collectives use, one of two
 *    ranks for each pair that exchanges messages, and one of this rank alone for messages to itself. Each is
 *    made by the first call that needs it, of all members or of the pair; meanwhile the call waits in its
 *    work, not in the caller. In a communicator of a pair the lower rank is 0 and the higher one 1.
 *  - All ranks of a group make the same collectives in the same order, as in rondo.h; two ranks of a pair
 *    make matching sends and receives. Different groups and pairs need no common order; on a GPU those that
 *    are under way at once go to streams of their own, as the kernels of a stream run one after the other.
 *  - With a place for a work, a call returns at once, and its buffers belong to Rondo until the work is done;
 *    counts per rank are copied. Without one (NULL), a call on host memory returns when it is complete, one
 *    on a GPU when it is enqueued on its stream, once its communicator is made. Calls on a stream are
 *    enqueued in the order in which they were made, whichever communicator is made first.
 *  - Works on host memory make progress in rondo_pgroup_work_test and _wait, in every call of Rondo that
 *    waits, and now and then in the watchdog.
 *  - A call that is refused, as for a bad argument, changes nothing. When a communicator ends, by an error, a
 *    death or a time limit, it does so on all its ranks, and so does the group on each of them: its works and
 *    later calls return that error. A rank with no call on that communicator notices in rondo_pgroup_error,
 *    when its next call needs a new communicator, and in its watchdog while there are works. Other groups go
 *    on.
 *  - An error leaves output arguments untouched, and rondo_last_error(NULL) says cause, rank, host and
 *    remedy. Times are in milliseconds.
 *  - A thread inside rondo_group_start makes no calls here but rondo_pgroup_work_free and rondo_pgroup_abort;
 *    one inside another call of Rondo, as in a tensor's callback, none but rondo_pgroup_work_free and those
 *    that only ask about a group; a signal handler none but rondo_pgroup_rank and rondo_pgroup_count.
 *  - A forked child may not use its parent's groups.
 */
#ifndef RONDO_PGROUP_H
#define RONDO_PGROUP_H

#include "rondo.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Some ranks of a default group. */
typedef struct rondo_pgroup rondo_pgroup;
/** A call, or a batch of calls, under way. Owned by the caller until rondo_pgroup_work_free. */
typedef struct rondo_pgroup_work rondo_pgroup_work;
/** What ranks that have no MPI need to find each other. Plain bytes; hand them on however you like. */
typedef struct rondo_pgroup_id {
    unsigned char bytes[128];
} rondo_pgroup_id;

/** Settings of a group. Fill it with RONDO_PGROUP_CONFIG_INIT; later versions may add fields at the end. */
typedef struct rondo_pgroup_config {
    size_t size;        /**< sizeof(rondo_pgroup_config) at compile time */
    const char *name;   /**< in errors; copied; NULL: "world", or the parent's name and a number */
    int device;         /**< of calls that name none: a CUDA device or RONDO_DEVICE_CURRENT;
                             RONDO_CONFIG_DEFAULT: host memory, or the parent's */
    int64_t timeout_ms; /**< most time from a call to its end, and for making a communicator; 0: none;
                             RONDO_CONFIG_DEFAULT: RONDO_PGROUP_TIMEOUT, or the parent's */
    int watchdog;       /**< of a default group. 1 (default): a thread watches the works of the group and of
                             those made from it. It wakes ten times a second while there are any. 0: no
                             thread; limits hold while a rank waits, and nobody moves works between calls */
    /** Called by the watchdog, once for a group, when a call of it has exceeded its time or has failed, or
     * another rank has ended it; the group has then ended. @a text: the sentence, which names the ranks that are out of step. It may call
     * anything here, also rondo_pgroup_abort and rondo_pgroup_destroy. NULL: the sentence is only logged. */
    void (*on_error)(void *arg, rondo_pgroup *group, rondo_status status, const char *text);
    void *arg; /**< of on_error */
} rondo_pgroup_config;
#define RONDO_PGROUP_CONFIG_INIT                                                                     \
    {                                                                                                \
        sizeof(rondo_pgroup_config), NULL, RONDO_CONFIG_DEFAULT, RONDO_CONFIG_DEFAULT, 1, NULL, NULL \
    }

/** Settings of one call. NULL where a call takes it: the group's. */
typedef struct rondo_pgroup_opts {
    size_t size;         /**< sizeof(rondo_pgroup_opts) at compile time */
    int device;          /**< where the buffers are: -1 for host memory, a CUDA device, RONDO_DEVICE_CURRENT;
                              RONDO_PGROUP_DEVICE: the group's */
    rondo_stream stream; /**< on a GPU, the CUDA stream that the call is enqueued on (RONDO_CUDA_STREAM) */
    int64_t timeout_ms;  /**< of this call, kept by the watchdog; RONDO_CONFIG_DEFAULT: the group's */
} rondo_pgroup_opts;
#define RONDO_PGROUP_DEVICE (-3)
#define RONDO_PGROUP_OPTS_INIT                                                     \
    {                                                                              \
        sizeof(rondo_pgroup_opts), RONDO_PGROUP_DEVICE, NULL, RONDO_CONFIG_DEFAULT \
    }

/* ---- groups ---- */

/**
 * Make the default group of a communicator's ranks. The group takes @a comm over, uses it to make others,
 * and destroys it with its last group. Collective in that all ranks must do it; it does not wait for them.
 * Under MPI, this is the default group of MPI_COMM_WORLD if rondo_comm_create made @a comm of that.
 * @return an error: @a comm still belongs to the caller.
 */
rondo_status rondo_pgroup_create(rondo_comm *comm, const rondo_pgroup_config *config, rondo_pgroup **group);
/** Make an id for one default group, on any process, which must live until all ranks have used it. */
rondo_status rondo_pgroup_id_create(rondo_pgroup_id *id);
/** Make the default group of @a nranks ranks that have the same id, without MPI or a launcher. Returns when
 * all have come. */
rondo_status rondo_pgroup_create_id(const rondo_pgroup_id *id, int rank, int nranks,
                                    const rondo_pgroup_config *config, rondo_pgroup **group);
/**
 * Make a group of the parent's ranks ranks[0 .. n - 1], in this order. Only these call it, all with the same
 * list; it waits for nobody. Groups of the same list are told apart by the order in which they are made. The
 * parent may be destroyed before the group.
 */
rondo_status rondo_pgroup_new(rondo_pgroup *parent, const int *ranks, int n,
                              const rondo_pgroup_config *config, rondo_pgroup **group);
/** Split a group: all of its ranks call it, and wait for each other. Those of equal colour form a group,
 * ordered by (key, rank). RONDO_SPLIT_NOCOLOR gives NULL. */
rondo_status rondo_pgroup_split(rondo_pgroup *parent, int color, int key, const rondo_pgroup_config *config,
                                rondo_pgroup **group);
/**
 * End the group on this rank and its communicators on all ranks, as soon as they notice. Its works end with
 * an error. Never waits; from any thread, also while others wait in its calls. Then destroy the group.
 */
rondo_status rondo_pgroup_abort(rondo_pgroup *group);
/**
 * Wait for the group's works unless it has ended, and free it. Collective where the group has communicators:
 * all their ranks do it, or abort. No other thread may use the group any more; works stay valid. Its on_error
 * is not called afterwards: unless on_error itself calls this, it waits for one that runs.
 * @return the first error of a work that it waited for
 */
rondo_status rondo_pgroup_destroy(rondo_pgroup *group);
/** Store the calling rank's number in the group. */
rondo_status rondo_pgroup_rank(const rondo_pgroup *group, int *rank);
/** Store the number of ranks. */
rondo_status rondo_pgroup_count(const rondo_pgroup *group, int *count);
/** Store how many collectives (a batch is one) this rank has called: equal on all ranks of the group that
 * have made the same calls, whatever messages they exchange. */
rondo_status rondo_pgroup_sequence(rondo_pgroup *group, uint64_t *sequence);
/** Store RONDO_SUCCESS, or the error that ended the group, whose sentence is then this thread's last one. */
rondo_status rondo_pgroup_error(rondo_pgroup *group, rondo_status *error);

/* ---- works ---- */

/** Make progress. *done 1: the work has ended; its error, if any, is returned. May be repeated. */
rondo_status rondo_pgroup_work_test(rondo_pgroup_work *work, int *done);
/**
 * Wait until the work has ended, and return its error. May be repeated, and from several threads.
 * @param timeout_ms  RONDO_CONFIG_DEFAULT: as long as the call may take. Else, when this time is over,
 *                    RONDO_TIMEOUT: the work goes on, and its buffers still belong to it; 0: as if tested
 */
rondo_status rondo_pgroup_work_wait(rondo_pgroup_work *work, int64_t timeout_ms);
/** The same, for a thread beside others of the process that compute: it sleeps between looks in which nothing
 * moved, the longer the longer it has waited, so that it takes little of a core from them. */
rondo_status rondo_pgroup_work_wait_aside(rondo_pgroup_work *work, int64_t timeout_ms);
/** Give the handle up. A work that has not ended goes on; its buffers belong to it until the group is
 * destroyed. */
rondo_status rondo_pgroup_work_free(rondo_pgroup_work *work);
/** Write what the work is: "all_reduce #17 (1024 float32) of group \"dp\"", cut to @a size bytes. */
rondo_status rondo_pgroup_work_text(const rondo_pgroup_work *work, char *text, size_t size);

/* ---- calls ----
 * Arguments are those of the functions of rondo.h with the same name. opts: NULL, or settings of this call.
 * work: NULL, or becomes the caller's.
 */

/**
 * Begin a batch: the calls of this thread on the group until rondo_pgroup_batch_end are issued together and
 * cannot block each other. They have neither opts nor works of their own, nor counts for each rank. A batch
 * is a collective: all ranks of the group make one, and its sends and receives go through the group's own
 * communicator.
 */
rondo_status rondo_pgroup_batch_start(rondo_pgroup *group, const rondo_pgroup_opts *opts);
/** Issue the batch. If one of its calls was refused, it makes none and returns that error. */
rondo_status rondo_pgroup_batch_end(rondo_pgroup *group, rondo_pgroup_work **work);

rondo_status rondo_pgroup_all_reduce(rondo_pgroup *group, const void *send, void *recv, size_t count,
                                     rondo_dtype type, rondo_op op, const rondo_pgroup_opts *opts,
                                     rondo_pgroup_work **work);
rondo_status rondo_pgroup_reduce(rondo_pgroup *group, const void *send, void *recv, size_t count,
                                 rondo_dtype type, rondo_op op, int root, const rondo_pgroup_opts *opts,
                                 rondo_pgroup_work **work);
rondo_status rondo_pgroup_broadcast(rondo_pgroup *group, const void *send, void *recv, size_t count,
                                    rondo_dtype type, int root, const rondo_pgroup_opts *opts,
                                    rondo_pgroup_work **work);
rondo_status rondo_pgroup_all_gather(rondo_pgroup *group, const void *send, void *recv, size_t count,
                                     rondo_dtype type, const rondo_pgroup_opts *opts,
                                     rondo_pgroup_work **work);
rondo_status rondo_pgroup_reduce_scatter(rondo_pgroup *group, const void *send, void *recv, size_t count,
                                         rondo_dtype type, rondo_op op, const rondo_pgroup_opts *opts,
                                         rondo_pgroup_work **work);
rondo_status rondo_pgroup_all_to_all(rondo_pgroup *group, const void *send, void *recv, size_t count,
                                     rondo_dtype type, const rondo_pgroup_opts *opts,
                                     rondo_pgroup_work **work);
rondo_status rondo_pgroup_gather(rondo_pgroup *group, const void *send, void *recv, size_t count,
                                 rondo_dtype type, int root, const rondo_pgroup_opts *opts,
                                 rondo_pgroup_work **work);
rondo_status rondo_pgroup_scatter(rondo_pgroup *group, const void *send, void *recv, size_t count,
                                  rondo_dtype type, int root, const rondo_pgroup_opts *opts,
                                  rondo_pgroup_work **work);
rondo_status rondo_pgroup_all_gatherv(rondo_pgroup *group, const void *send, void *recv, const size_t *counts,
                                      const size_t *displs, rondo_dtype type, const rondo_pgroup_opts *opts,
                                      rondo_pgroup_work **work);
rondo_status rondo_pgroup_reduce_scatterv(rondo_pgroup *group, const void *send, void *recv,
                                          const size_t *counts, const size_t *displs, rondo_dtype type,
                                          rondo_op op, const rondo_pgroup_opts *opts,
                                          rondo_pgroup_work **work);
rondo_status rondo_pgroup_all_to_allv(rondo_pgroup *group, const void *send, const size_t *sendcounts,
                                      const size_t *sdispls, void *recv, const size_t *recvcounts,
                                      const size_t *rdispls, rondo_dtype type, const rondo_pgroup_opts *opts,
                                      rondo_pgroup_work **work);
rondo_status rondo_pgroup_barrier(rondo_pgroup *group, const rondo_pgroup_opts *opts,
                                  rondo_pgroup_work **work);
/**
 * Send to @a peer, a rank of the group, which receives with rondo_pgroup_recv. To itself: the n-th send meets
 * the n-th receive, and one of the two at least must have a work, or both be in a batch.
 */
rondo_status rondo_pgroup_send(rondo_pgroup *group, const void *send, size_t count, rondo_dtype type,
                               int peer, const rondo_pgroup_opts *opts, rondo_pgroup_work **work);
/** Receive from @a peer what it sends with rondo_pgroup_send, in the order in which it sends. */
rondo_status rondo_pgroup_recv(rondo_pgroup *group, void *recv, size_t count, rondo_dtype type, int peer,
                               const rondo_pgroup_opts *opts, rondo_pgroup_work **work);

#ifdef __cplusplus
}
#endif
#endif
