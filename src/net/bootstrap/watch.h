/* The other processes of this node that take part in a creation: has one ended, or been stopped? */
#ifndef RONDO_NET_BOOTSTRAP_WATCH_H
#define RONDO_NET_BOOTSTRAP_WATCH_H

#include "base/process.h"
#include "net/peer.h"

struct rondo_watched {
    int rank, pid;
    uint64_t start; /* rondo_process_start */
    char host[RONDO_HOST_LEN];
    enum rondo_process_state state;
    int64_t since_ns; /* when it was first found in this state */
};
struct rondo_watch {
    struct rondo_watched *process;
    int n, capacity;
    int64_t looked_ns;
};

/** Watch one process more; its state is not read. */
rondo_status rondo_watch_add(struct rondo_watch *watch, const struct rondo_watched *process);
/** List the ranks whose processes this one can see: those of its host and pid namespace. */
rondo_status rondo_watch_open(struct rondo_watch *watch, const struct rondo_hello *hello, int nranks,
                              int self);
/**
 * Look at the processes, at most every 100 ms (@a late: 10 ms). A process that has ended counts after 1 s:
 * its last records may be on their way. A stopped one counts after RONDO_DEAD_AFTER, or at once if @a late:
 * the deadline has passed. @return RONDO_REMOTE_ERROR with a sentence that names the rank, the same on all
 * ranks; RONDO_SUCCESS: all run.
 */
rondo_status rondo_watch_look(struct rondo_watch *watch, int late);
/** @return 1: this rank had ended or was stopped when its process was last looked at. */
int rondo_watch_lost(const struct rondo_watch *watch, int rank);
/** @return 1: this rank's process can be seen. */
int rondo_watch_sees(const struct rondo_watch *watch, int rank);
void rondo_watch_close(struct rondo_watch *watch);

#endif
