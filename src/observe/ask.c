/* Asking the ranks of other nodes, as net/control/look.h says: a thread for each node, some at a time. And
 * the stacks of those ranks, here and there, that others wait for. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"
#include "net/control/control_impl.h"
#include "net/control/look.h"
#include "net/socket/socket.h"
#include "observe/observe.h"

/*
 * A process of the node is asked every NEXT_NS until one says welcome, which any of its threads does within
 * microseconds, unless the host has no core for it or it is stopped.
 */
enum { AT_ONCE = 64, MOST_ASKED = 8, MOST_STACKS = 4 };
static const int64_t next_ns = 150000000, welcome_ns = 2000000000, stacks_ns = 45000000000;
static const size_t most_bytes = (size_t)1 << 30;

struct asked {
    int fd; /* -1: it has failed */
    int connected;
    size_t got;
    struct rondo_auth_hello hello;
    struct rondo_auth_welcome welcome;
};

struct node {
    const struct rondo_seen_wire *wire;
    const struct rondo_look *look;
    int node, started;
    pthread_t thread;
    char *bytes; /* the answer; NULL: none */
    size_t n;
};

/* ---- one process ---- */

static int is_place(const struct rondo_control_place *place)
{
    const struct sockaddr *any = (const void *)place->addr;
    return any->sa_family == AF_INET || any->sa_family == AF_INET6;
}

static void asked_begin(struct asked *asked, const struct node *node, int rank)
{
    const struct rondo_seen_wire *wire = node->wire;
    const struct rondo_control_place *place = &wire->places[rank];
    union rondo_socket_addr addr = { 0 };
    *asked = (struct asked){ .fd = -1 };
    rondo_look_ask(node->look, &asked->hello);
    asked->hello.comm_hash = wire->hash;
    asked->hello.server = place->process;
    asked->hello.server_rank = rank;
    memcpy(&addr, place->addr, RONDO_ADDR_BYTES);
    if (addr.any.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&addr.in6.sin6_addr)) {
        addr.in6.sin6_scope_id = wire->scope;
    }
    if (rondo_auth_nonce(asked->hello.nonce) != RONDO_SUCCESS) {
        return;
    }
    asked->fd = socket(addr.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (asked->fd >= 0 && connect(asked->fd, &addr.any, rondo_socket_addr_bytes(&addr)) != 0 &&
        errno != EINPROGRESS) {
        close(asked->fd);
        asked->fd = -1;
    }
}

static int send_all(int fd, const void *data, size_t bytes)
{
    return send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes; /* the connection is new: it has room */
}

/* Go on with one that can be read or written. @return 1: it has said welcome, and got the proof; -1: it
 * failed */
static int asked_move(struct asked *asked, const uint64_t secret[2])
{
    uint8_t proof[RONDO_AUTH_PROOF];
    ssize_t n;
    if (!asked->connected) {
        int error = 0;
        socklen_t size = sizeof(error);
        if (getsockopt(asked->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0 ||
            !send_all(asked->fd, &asked->hello, sizeof(asked->hello))) {
            return -1;
        }
        asked->connected = 1;
        return 0;
    }
    n = recv(asked->fd, (uint8_t *)&asked->welcome + asked->got, sizeof(asked->welcome) - asked->got, 0);
    if (n <= 0) {
        return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    }
    asked->got += (size_t)n;
    if (asked->got < sizeof(asked->welcome)) {
        return 0;
    }
    return rondo_auth_prove(secret, &asked->hello, &asked->welcome, proof) &&
                   send_all(asked->fd, proof, sizeof(proof))
               ? 1
               : -1;
}

/* ---- one node ---- */

/* The next rank of the node whose process is not that of the one before. @return -1: none */
static int next_rank(const struct node *node, int rank)
{
    const struct rondo_control_place *place = node->wire->places;
    uint64_t before = rank >= 0 ? place[rank].process : 0;
    int first = rank < 0;
    for (rank++; rank < node->wire->nranks; rank++) {
        if (place[rank].node == node->node && is_place(&place[rank]) &&
            (first || place[rank].process != before)) {
            return rank;
        }
    }
    return -1;
}

/* @return the descriptor of the first process that has said welcome; -1: none */
static int greet(const struct node *node)
{
    struct asked asked[MOST_ASKED];
    struct pollfd fds[MOST_ASKED];
    int64_t begin = rondo_now_ns(), now;
    int n = 0, alive = 0, found = -1, rank = next_rank(node, -1);
    for (now = begin; found < 0 && now - begin < welcome_ns && (alive > 0 || (rank >= 0 && n < MOST_ASKED));
         now = rondo_now_ns()) {
        if (rank >= 0 && n < MOST_ASKED && (alive == 0 || now - begin >= n * next_ns)) {
            asked_begin(&asked[n++], node, rank);
            rank = next_rank(node, rank);
        }
        for (int i = 0; i < n; i++) {
            fds[i] = (struct pollfd){ .fd = asked[i].fd, .events = asked[i].connected ? POLLIN : POLLOUT };
        }
        (void)poll(fds, (nfds_t)n, 20);
        alive = 0;
        for (int i = 0; i < n && found < 0; i++) {
            int moved = asked[i].fd >= 0 && fds[i].revents != 0 ? asked_move(&asked[i], node->wire->secret)
                                                                : 0;
            if (moved > 0) {
                found = i;
            } else if (moved < 0) {
                close(asked[i].fd);
                asked[i].fd = -1;
            }
            alive += asked[i].fd >= 0;
        }
    }
    for (int i = 0; i < n; i++) {
        if (i != found && asked[i].fd >= 0) {
            close(asked[i].fd);
        }
    }
    return found >= 0 ? asked[found].fd : -1;
}

/* Read to the end of the stream. @return 0: it does not come */
static int read_answer(struct node *node, int fd)
{
    int64_t limit = RONDO_LOOK_NS + node->look->sample_ms * INT64_C(1000000) +
                    (node->look->stacks || node->look->stack_of != 0 ? stacks_ns : 0);
    int64_t end = rondo_now_ns() + limit, now;
    size_t room = 0;
    while ((now = rondo_now_ns()) < end && node->n < most_bytes) {
        struct pollfd one = { .fd = fd, .events = POLLIN };
        ssize_t n;
        if (node->n == room) {
            size_t more = room > 0 ? 2 * room : (size_t)1 << 16;
            char *bytes;
            if (rondo_calloc(&bytes, 1, more, "an answer") != RONDO_SUCCESS) {
                return 0;
            }
            if (node->n > 0) {
                memcpy(bytes, node->bytes, node->n);
            }
            rondo_free(node->bytes);
            node->bytes = bytes;
            room = more;
        }
        (void)poll(&one, 1, 1 + (int)((end - now) / 1000000));
        n = recv(fd, node->bytes + node->n, room - node->n, 0);
        if (n == 0) {
            return node->n > 0;
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return 0;
        }
        if (n > 0) {
            node->n += (size_t)n;
            end = rondo_now_ns() + RONDO_LOOK_NS; /* it has begun to write */
        }
    }
    return 0;
}

static void *ask(void *arg)
{
    struct node *node = arg;
    int fd = greet(node), ok = fd >= 0 && read_answer(node, fd);
    if (fd >= 0) {
        close(fd);
    }
    if (!ok) {
        rondo_free(node->bytes);
        node->bytes = NULL;
    }
    return NULL;
}

/* ---- all ---- */

/* Of which nodes has a rank been seen? by_node: a byte each. */
static void mark_seen(const struct rondo_seen *seen, const struct rondo_seen_wire *wire, uint8_t *by_node)
{
    for (int i = 0; i < seen->ncomms; i++) {
        const struct rondo_seen_comm *comm = &seen->comms[i];
        for (int r = 0; comm->hash == wire->hash && r < comm->n; r++) {
            if (comm->ranks[r].node >= 0 && comm->ranks[r].node < wire->nnodes) {
                by_node[comm->ranks[r].node] = 1;
            }
        }
    }
}

/* Read an answer twice: nothing of one that is wrong is added. */
static void add_answer(struct rondo_seen *seen, const struct node *node)
{
    struct rondo_seen alone = { 0 };
    rondo_status status = RONDO_SUCCESS;
    for (int i = 0; i < 2 && status == RONDO_SUCCESS; i++) {
        FILE *in = fmemopen(node->bytes, node->n, "r");
        status = in != NULL ? rondo_seen_read(in, i == 0 ? &alone : seen) : RONDO_SYSTEM_ERROR;
        if (in != NULL) {
            fclose(in);
        }
    }
    rondo_seen_release(&alone);
}

static void ask_some(struct rondo_seen *seen, struct node *nodes, int n)
{
    for (int i = 0; i < n; i++) {
        nodes[i].started = rondo_thread_start(&nodes[i].thread, "ask", ask, &nodes[i]) == RONDO_SUCCESS;
    }
    for (int i = 0; i < n; i++) {
        if (nodes[i].started) {
            pthread_join(nodes[i].thread, NULL);
        }
        if (nodes[i].bytes != NULL) {
            add_answer(seen, &nodes[i]);
        }
        rondo_free(nodes[i].bytes);
    }
}

static void ask_wire(struct rondo_seen *seen, const struct rondo_seen_wire *wire,
                     const struct rondo_look *look, void (*silent)(const char *host, void *arg), void *arg)
{
    struct node nodes[AT_ONCE];
    uint8_t *was_seen;
    int n = 0;
    if (RONDO_NEW_ARRAY(was_seen, wire->nnodes, "the list of nodes") != RONDO_SUCCESS) {
        rondo_error_clear();
        for (int node = 0; node < wire->nnodes; node++) {
            silent(wire->hosts[node], arg);
        }
        return;
    }
    mark_seen(seen, wire, was_seen);
    for (int node = 0; node < wire->nnodes; node++) {
        if (!was_seen[node]) {
            nodes[n++] = (struct node){ .wire = wire, .look = look, .node = node };
        }
        if (n == AT_ONCE || node == wire->nnodes - 1) {
            ask_some(seen, nodes, n);
            n = 0;
        }
    }
    mark_seen(seen, wire, was_seen);
    for (int node = 0; node < wire->nnodes; node++) {
        if (!was_seen[node]) {
            silent(wire->hosts[node], arg);
        }
    }
    rondo_free(was_seen);
}

void rondo_observe_nodes(struct rondo_seen *seen, const struct rondo_look *look,
                         void (*silent)(const char *host, void *arg), void *arg)
{
    for (int i = 0; i < seen->nwires; i++) {
        ask_wire(seen, &seen->wires[i], look, silent, arg);
    }
}

/* ---- stacks ---- */

/* Is it of a rank that a finding names? */
static int is_named(const struct rondo_seen *seen, const struct rondo_diagnosis *d, int process)
{
    for (int i = 0; i < d->n; i++) {
        const struct rondo_seen_comm *comm = d->finding[i].comm >= 0 ? &seen->comms[d->finding[i].comm]
                                                                     : NULL;
        for (int r = 0; comm != NULL && r < comm->n; r++) {
            if (comm->ranks[r].process == process && comm->ranks[r].rank == d->finding[i].rank &&
                d->finding[i].kind != RONDO_FINDING_LATE) {
                return 1;
            }
        }
    }
    return 0;
}

/* Find a node to ask for a process. @return 0: there is none */
static int node_of(const struct rondo_seen *seen, int process, struct node *node)
{
    for (int w = 0; w < seen->nwires; w++) {
        for (int c = 0; c < seen->ncomms; c++) {
            const struct rondo_seen_comm *comm = &seen->comms[c];
            for (int r = 0; comm->hash == seen->wires[w].hash && r < comm->n; r++) {
                if (comm->ranks[r].process == process) {
                    node->wire = &seen->wires[w];
                    node->node = comm->ranks[r].node;
                    return 1;
                }
            }
        }
    }
    return 0;
}

static void ask_stack(struct rondo_seen *seen, int process)
{
    struct rondo_seen_process *p = &seen->processes[process];
    struct rondo_look look = { .stack_of = p->pid };
    struct node node = { .look = &look };
    size_t n = 0;
    if (!node_of(seen, process, &node)) {
        return;
    }
    ask(&node);
    for (size_t i = 0; node.bytes != NULL && i < node.n && n + 1 < sizeof(p->stack); i++) {
        char c = node.bytes[i];
        p->stack[n++] = c == '\n' || (c >= ' ' && c <= '~') ? c : '?'; /* it goes to a terminal */
    }
    p->stack[n] = '\0';
    rondo_free(node.bytes);
}

void rondo_seen_stacks_wanted(struct rondo_seen *seen, int nhere, int nasked, int64_t slow_ns)
{
    struct rondo_diagnosis d;
    int taken = 0;
    rondo_diagnose(seen, slow_ns, &d);
    for (int i = 0; i < nasked && taken < MOST_STACKS; i++) {
        struct rondo_seen_process *p = &seen->processes[i];
        if (rondo_process_runs(p) && is_named(seen, &d, i)) {
            taken++;
            if (i < nhere) {
                (void)rondo_process_stack(p->pid, p->stack);
            } else {
                ask_stack(seen, i);
            }
        }
    }
}
