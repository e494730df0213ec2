/* Helper threads that move connections of a comm, with RONDO_SOCKET_NTHREADS. Contract: socket.h. */
#include "net/socket/socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/thread.h"
#include "base/wait.h"

enum { LOOKS = 400 /* polls of `published` before sleeping: some microseconds */ };

/* Each helper moves connections 1 + index, 1 + index + n, ... */
struct helper {
    struct rondo_socket_helpers *all;
    pthread_t thread;
    int index, event; /* event: wakes the helper */
    int asleep;       /* atomic: sleeps or is about to */
};

struct rondo_socket_helpers {
    struct rondo_socket_comm *comm;
    int n, started;
    int stop, lost; /* atomic; lost: the first error, as rondo_socket_conn_move */
    struct helper helper[];
};

void rondo_socket_wants(int *nconns, size_t *part)
{
    const struct rondo_params *params = rondo_params();
    int each = (int)params->socket_nconns, threads = (int)params->socket_nthreads;
    if (threads > 0 && each > RONDO_SOCKET_HELPED / threads) {
        each = RONDO_SOCKET_HELPED / threads;
    }
    *nconns = threads > 0 ? 1 + threads * each : each;
    *part = threads > 0 ? RONDO_SOCKET_HELPED_PART : RONDO_SOCKET_PART;
}

/* ---- a thread ---- */

static int is_over(const struct rondo_socket_helpers *all)
{
    return __atomic_load_n(&all->stop, __ATOMIC_SEQ_CST);
}

static uint64_t published(const struct helper *h)
{
    return __atomic_load_n(&h->all->comm->published, __ATOMIC_SEQ_CST);
}

/* Progress all its connections. @return how many have more to move once the other end continues, in fds. */
static int helper_progress(const struct helper *h, struct pollfd *fds)
{
    struct rondo_socket_comm *comm = h->all->comm;
    int n = 0, left;
    for (int i = 1 + h->index;
         i < comm->nconns && __atomic_load_n(&h->all->lost, __ATOMIC_RELAXED) == RONDO_SOCKET_FINE;
         i += h->all->n) {
        int error = rondo_socket_conn_move(comm, i, &left), fine = RONDO_SOCKET_FINE;
        if (error != RONDO_SOCKET_FINE) {
            __atomic_compare_exchange_n(&h->all->lost, &fine, error, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
        } else if (left) {
            fds[n++] = (struct pollfd){ .fd = comm->conn[i].fd, .events = comm->is_send ? POLLOUT : POLLIN };
        }
    }
    return n;
}

/* Sleep until a connection can continue, more than `seen` is published, or the comm stops. fds: the event,
 * and the n connections. */
static void rest(struct helper *h, struct pollfd *fds, int n, uint64_t seen)
{
    eventfd_t count;
    for (int look = 0; n == 0 && look < LOOKS; look++) {
        if (published(h) != seen || is_over(h->all)) {
            return;
        }
        rondo_cpu_relax();
    }
    /* The publisher reads `asleep` after publishing: at least one of the two sees the other. */
    __atomic_store_n(&h->asleep, 1, __ATOMIC_SEQ_CST);
    if (published(h) == seen && !is_over(h->all)) {
        fds[0] = (struct pollfd){ .fd = h->event, .events = POLLIN };
        (void)poll(fds, 1 + (nfds_t)n, -1);
        if (fds[0].revents != 0) {
            eventfd_read(h->event, &count);
        }
    }
    __atomic_store_n(&h->asleep, 0, __ATOMIC_SEQ_CST);
}

static void *help(void *arg)
{
    struct helper *h = arg;
    struct pollfd fds[1 + RONDO_SOCKET_CONNS];
    while (!is_over(h->all)) {
        uint64_t seen = published(h);
        rest(h, fds, helper_progress(h, fds + 1), seen);
    }
    return NULL;
}

/* ---- for the comm's user ---- */

void rondo_socket_help_wake(struct rondo_socket_comm *comm)
{
    struct rondo_socket_helpers *all = comm->helpers;
    for (int i = 0; all != NULL && i < all->started; i++) {
        if (__atomic_load_n(&all->helper[i].asleep, __ATOMIC_SEQ_CST)) {
            eventfd_write(all->helper[i].event, 1);
        }
    }
}

int rondo_socket_help_lost(const struct rondo_socket_comm *comm)
{
    return __atomic_load_n(&comm->helpers->lost, __ATOMIC_ACQUIRE);
}

void rondo_socket_help_end(struct rondo_socket_comm *comm)
{
    struct rondo_socket_helpers *all = comm->helpers;
    if (all == NULL) {
        return;
    }
    __atomic_store_n(&all->stop, 1, __ATOMIC_SEQ_CST);
    rondo_socket_help_wake(comm);
    for (int i = 0; i < all->started; i++) {
        pthread_join(all->helper[i].thread, NULL);
        close(all->helper[i].event);
    }
    comm->helpers = NULL;
    rondo_free(all);
}

static rondo_status helper_start(struct helper *h)
{
    rondo_status status;
    h->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->event < 0) {
        return rondo_fail_quiet(
            RONDO_SYSTEM_ERROR,
            "cannot create an eventfd on %s: %m; raise the limit of open files (ulimit -n)",
            rondo_log_host());
    }
    status = rondo_thread_start(&h->thread, "rondo-socket", help, h);
    if (status != RONDO_SUCCESS) {
        close(h->event);
    }
    return status;
}

rondo_status rondo_socket_help(struct rondo_socket_comm *comm)
{
    struct rondo_socket_helpers *all;
    int n = (int)rondo_min_size((size_t)rondo_params()->socket_nthreads, (size_t)comm->nconns - 1);
    rondo_status status = RONDO_SUCCESS;
    if (n == 0) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_calloc(&all, 1, sizeof *all + (size_t)n * sizeof all->helper[0],
                           "the threads of a socket comm"));
    all->comm = comm;
    all->lost = RONDO_SOCKET_FINE;
    all->n = n;
    comm->helpers = all;
    for (int i = 0; i < n && status == RONDO_SUCCESS; i++) {
        all->helper[i].all = all;
        all->helper[i].index = i;
        status = helper_start(&all->helper[i]);
        all->started += status == RONDO_SUCCESS;
    }
    return status == RONDO_SUCCESS
               ? RONDO_SUCCESS
               : rondo_socket_end(comm, status, "%s, or lower RONDO_SOCKET_NTHREADS (here %d)",
                                  rondo_error_text(), n);
}
