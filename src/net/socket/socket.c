/* The socket net device: TCP over the network interfaces. Its parts: socket.h. */
#include "net/socket/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/wait.h"

enum {
    LATENCY_US = 20,
    MAX_COMMS = 65536,
    LOOK_TESTS = 32 /* calls of test between two looks at the clock */
};
static const int64_t
    LOOK_NS = 1000000,
    LOOK_IDLE_NS = 100000000; /* interval between looks at a listener: with comms waiting for connections,
                               * and without */

static struct {
    pthread_mutex_t lock; /* held by init and finalize */
    int done, n;
    struct rondo_socket_device *device;
    char why[160];
} found = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The parent's comms use its devices, so the child leaves them and finds its own. */
static void in_child(void)
{
    int whole = rondo_fork_lock(&found.lock) && found.done;
    for (int i = 0; whole && i < found.n; i++) {
        rondo_socket_forget(&found.device[i]);
    }
    found.device = NULL;
    found.n = found.done = 0;
}
RONDO_AT_FORK(in_child)

/* ---- errors ---- */

rondo_status rondo_socket_ended(const struct rondo_socket_comm *comm)
{
    return rondo_fail_quiet(comm->status, "%s", comm->text);
}

static void addr_of_handle(union rondo_socket_addr *addr, const struct rondo_socket_handle *handle,
                           const struct rondo_socket_device *device)
{
    memset(addr, 0, sizeof *addr);
    if (handle->family == 6) {
        addr->in6.sin6_family = AF_INET6;
        addr->in6.sin6_port = handle->port;
        memcpy(&addr->in6.sin6_addr, handle->addr, 16);
        /* Scope numbers are valid on one host only: the peer is on the link of this host's interface. */
        addr->in6.sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(&addr->in6.sin6_addr) ? device->addr.in6.sin6_scope_id
                                                                              : 0;
    } else {
        addr->in.sin_family = AF_INET;
        addr->in.sin_port = handle->port;
        memcpy(&addr->in.sin_addr, handle->addr, 4);
    }
}

/* "the other end is rank 3 on hostb at 10.0.0.2:4711 of eth0; this one is hosta at 10.0.0.1 of eth0, channel
 * 1". */
static void ends_text(const struct rondo_socket_comm *comm, char *text, size_t size)
{
    char other[RONDO_SOCKET_ADDR_TEXT] = "an address not known yet";
    if (comm->other.family != 0) {
        union rondo_socket_addr addr;
        addr_of_handle(&addr, &comm->other, comm->device);
        rondo_socket_addr_text(other, &addr);
    }
    snprintf(text, size, "the other end is rank %d on %s at %s%s%.*s; this one is %s at %s of %s, channel %d",
             comm->peer.rank, comm->peer.host, other, comm->other.ifname[0] ? " of " : "",
             (int)strnlen(comm->other.ifname, RONDO_IFACE_NAME - 1), comm->other.ifname, rondo_log_host(),
             comm->device->text, comm->device->name, comm->peer.channel);
}

rondo_status rondo_socket_end(struct rondo_socket_comm *comm, rondo_status status, const char *fmt, ...)
{
    char what[RONDO_ERROR_TEXT], ends[RONDO_ERROR_TEXT / 2];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    ends_text(comm, ends, sizeof ends);
    rondo_socket_help_end(comm); /* nobody else touches the memory of messages any more */
    rondo_fail(status, "%s (%s)", what, ends);
    snprintf(comm->text, sizeof comm->text, "%s", rondo_error_text());
    comm->status = status;
    return status;
}

rondo_status rondo_socket_lost(struct rondo_socket_comm *comm, int error, const char *doing)
{
    static const struct {
        int error;
        const char *what, *causes;
    } known[] = {
        { 0, "the other end closed the connection", "its process has ended or aborted: see its log" },
        { -1, "the received data is not a message of Rondo",
          "another program or version at the other end, or memory was overwritten" },
        { ECONNRESET, "the connection was reset",
          "its process was killed or has ended: see its log; or a firewall cut the connection" },
        { EPIPE, "the connection was closed at the other end",
          "its process was killed or has ended: see its log" },
        { ETIMEDOUT, "the other host did not answer for RONDO_SOCKET_TIMEOUT",
          "a host that is down, a cable, a switch, or a firewall" },
        { ECONNREFUSED, "connection refused",
          "its process has ended: see its log; or a firewall rejects it" },
        { EHOSTUNREACH, "no route to the other host",
          "a wrong interface (RONDO_SOCKET_IFNAME), routes, or a firewall" },
        { ENETUNREACH, "no route to the other network",
          "a wrong interface (RONDO_SOCKET_IFNAME), or routes" },
        { EACCES, "the connection is not allowed", "a firewall" },
        { EPERM, "the connection is not allowed", "a firewall" },
    };
    for (size_t i = 0; i < RONDO_COUNTOF(known); i++) {
        if (known[i].error == error) {
            return rondo_socket_end(comm, RONDO_REMOTE_ERROR, "%s failed: %s; usual causes: %s", doing,
                                    known[i].what, known[i].causes);
        }
    }
    errno = error;
    return rondo_socket_end(
        comm, RONDO_SYSTEM_ERROR,
        "%s failed: %m; usual causes: limits of this host (ulimit -n, memory) or its interface", doing);
}

/* ---- devices ---- */

static rondo_status socket_init(int *ndevices, char *why, size_t bytes)
{
    rondo_status status = RONDO_SUCCESS;
    pthread_mutex_lock(&found.lock);
    if (!found.done) {
        found.why[0] = '\0';
        status = rondo_socket_find(&found.device, &found.n, found.why, sizeof found.why);
        for (int i = 0; status == RONDO_SUCCESS && i < found.n; i++) {
            pthread_mutex_init(&found.device[i].lock, NULL);
        }
        found.done = status == RONDO_SUCCESS;
    }
    *ndevices = found.n;
    if (why && bytes > 0) {
        snprintf(why, bytes, "%s", found.why);
    }
    pthread_mutex_unlock(&found.lock);
    return status;
}

static void socket_finalize(void)
{
    pthread_mutex_lock(&found.lock);
    for (int i = 0; i < found.n; i++) {
        pthread_mutex_destroy(&found.device[i].lock);
    }
    rondo_free(found.device);
    found.device = NULL;
    found.n = found.done = 0;
    pthread_mutex_unlock(&found.lock);
}

static rondo_status device_at(int device, struct rondo_socket_device **at)
{
    if (device < 0 || device >= found.n) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "there is no socket device %d; host %s has %d", device,
                          rondo_log_host(), found.n);
    }
    *at = &found.device[device];
    return RONDO_SUCCESS;
}

static rondo_status socket_properties(int device, struct rondo_net_properties *properties)
{
    struct rondo_socket_device *at;
    RONDO_TRY(device_at(device, &at));
    *properties = (struct rondo_net_properties){ .memory = RONDO_NET_HOST | RONDO_NET_APART,
                                                 .guid = at->guid,
                                                 .speed_mbps = at->mbps,
                                                 .max_comms = MAX_COMMS,
                                                 .max_recvs = RONDO_NET_MAX_RECVS,
                                                 .latency_us = LATENCY_US };
    snprintf(properties->name, sizeof properties->name, "%s", at->name);
    memcpy(properties->pci_path, at->pci_path, sizeof properties->pci_path);
    return RONDO_SUCCESS;
}

/* Whichever comm's thread is here serves the listeners, so no helper thread is needed. */
static void accept_for_all(int64_t pause_ns, int64_t idle_ns)
{
    int64_t now_ns = rondo_now_ns();
    for (int i = 0; i < found.n; i++) {
        struct rondo_socket_device *device = &found.device[i];
        int64_t pause = __atomic_load_n(&device->nwaiting, __ATOMIC_RELAXED) > 0 ? pause_ns : idle_ns;
        if (now_ns - __atomic_load_n(&device->looked_ns, __ATOMIC_RELAXED) >= pause) {
            rondo_socket_accept(device);
        }
    }
}

/* ---- comms that share a connection ---- */

/* Before its handle is filled, a sender finds its reverse comm among the receivers that wait. */
static void reverse_find(struct rondo_socket_comm *comm)
{
    struct rondo_socket_device *device = comm->device;
    struct rondo_socket_comm *first = NULL;
    if (comm->peer.owner == NULL) {
        return;
    }
    pthread_mutex_lock(&device->lock);
    for (struct rondo_socket_comm *at = device->waiting; at;
         at = at->next) { /* newest first: the last match was prepared first */
        if (at->peer.owner == comm->peer.owner && at->peer.rank == comm->peer.rank &&
            at->peer.channel == comm->peer.channel && at->reverse == NULL) {
            first = at;
        }
    }
    pthread_mutex_unlock(&device->lock);
    if (first) {
        comm->reverse = first;
        first->reverse = comm;
    }
}

static void part(struct rondo_socket_comm *comm)
{
    comm->reverse->reverse = NULL;
    comm->reverse = NULL;
}

/* Does the comm have a lane? 1, 0; -1: unknown yet. */
static int has_lane(struct rondo_socket_comm *comm)
{
    const struct rondo_socket_comm *reverse = comm->reverse, *sender = comm->is_send ? comm : reverse,
                                   *receiver = comm->is_send ? reverse : comm;
    if (reverse->other.magic == 0) {
        return -1;
    }
    if (receiver->other.reverse !=
        sender->other.cookie) { /* our receiver's other end has a reverse comm that is not our sender's
                                 * other end */
        part(comm);
        return 0;
    }
    return comm->is_send ? sender->cookie > receiver->other.cookie : sender->cookie < receiver->other.cookie;
}

/* Complete a comm whose own connections exist: it needs no lane or gets one. RONDO_IN_PROGRESS until this
 * comm and its reverse comm know their other ends and the reverse comm has its connections. */
static rondo_status lane_connect(struct rondo_socket_comm *comm)
{
    int has = comm->reverse != NULL ? has_lane(comm) : 0;
    if (has < 0 || (has > 0 && !comm->reverse->opened)) {
        return RONDO_IN_PROGRESS;
    }
    if (has > 0) {
        if (!comm->is_send) {
            RONDO_TRY(rondo_socket_stage_room(comm, &comm->stage[1], RONDO_SOCKET_READ));
        }
        comm->lane = comm->nconns;
        comm->conn[comm->lane] = (struct rondo_socket_conn){ .fd = comm->reverse->conn[0].fd,
                                                             .state = RONDO_SOCKET_READY };
        comm->shared = comm->reverse->shared = 1;
    }
    comm->connected = 1;
    return RONDO_SUCCESS;
}

/* The comm closes. @return the index of a connection that stays open for the reverse comm; -1: none. The
 * other end sees that nothing more is sent. */
static int reverse_leave(struct rondo_socket_comm *comm)
{
    int stays = comm->shared && comm->reverse != NULL
                    ? comm->lane
                    : -1; /* the reverse comm's, or the one that is its lane */
    if (comm->reverse != NULL) {
        part(comm);
    }
    if (stays >= 0 && comm->is_send) {
        shutdown(comm->conn[stays].fd, SHUT_WR);
    }
    return stays;
}

/* ---- the life of a comm ---- */

static void handle_fill(struct rondo_socket_handle *handle, const struct rondo_socket_comm *comm)
{
    const struct rondo_socket_device *device = comm->device;
    *handle = (struct rondo_socket_handle){ .magic = RONDO_SOCKET_MAGIC,
                                            .version = RONDO_SOCKET_VERSION,
                                            .is_send = (uint8_t)comm->is_send,
                                            .nconns = (uint32_t)comm->nconns,
                                            .part = (uint32_t)comm->least_part,
                                            .cookie = comm->cookie,
                                            .reverse = comm->reverse ? comm->reverse->cookie : 0 };
    handle->port = comm->is_send ? 0 : device->port;
    memcpy(handle->ifname, device->name, sizeof handle->ifname);
    if (device->addr.any.sa_family == AF_INET6) {
        handle->family = 6;
        memcpy(handle->addr, &device->addr.in6.sin6_addr, 16);
    } else {
        handle->family = 4;
        memcpy(handle->addr, &device->addr.in.sin_addr, 4);
    }
}

static rondo_status socket_prepare(int device, const struct rondo_net_peer *peer, int is_send, void **comm,
                                   void *handle)
{
    struct rondo_socket_device *at;
    struct rondo_socket_comm *new;
    int nconns;
    size_t part;
    rondo_status status;
    *comm = NULL;
    RONDO_TRY(device_at(device, &at));
    rondo_socket_wants(&nconns, &part);
    RONDO_TRY(
        rondo_calloc(&new, 1, sizeof *new + (size_t)(nconns + 1) * sizeof new->conn[0], "a socket comm"));
    new->device = at;
    new->peer = *peer;
    new->peer.host[sizeof new->peer.host - 1] = '\0';
    new->is_send = is_send != 0;
    new->nconns = nconns;
    new->least_part = part;
    for (int i = 0; i < nconns; i++) {
        new->conn[i].fd = -1;
    }
    RONDO_TRY_GOTO(
        rondo_socket_stage_room(new, &new->stage[0], is_send ? RONDO_SOCKET_COPIED : RONDO_SOCKET_READ),
        fail);
    RONDO_TRY_GOTO(rondo_random(&new->cookie, sizeof new->cookie), fail);
    RONDO_TRY_GOTO(rondo_auth_nonce(new->nonce), fail);
    if (is_send) {
        reverse_find(new);
    } else {
        RONDO_TRY_GOTO(rondo_socket_listen(new), fail);
    }
    memset(handle, 0, RONDO_NET_HANDLE);
    handle_fill(handle, new);
    *comm = new;
    return RONDO_SUCCESS;
fail:
    free(new->stage[0].bytes);
    rondo_free(new);
    return status;
}

static void socket_stop(void *arg)
{
    struct rondo_socket_comm *comm = arg;
    rondo_socket_help_end(comm);
    if (comm->status == RONDO_SUCCESS) {
        comm->status = RONDO_REMOTE_ERROR;
        snprintf(comm->text, sizeof comm->text, "the connection with rank %d was given up", comm->peer.rank);
    }
}

static void socket_close(void *arg)
{
    struct rondo_socket_comm *comm = arg;
    if (!comm) {
        return;
    }
    if (!comm->is_send) {
        rondo_socket_unlisten(comm, 1);
    }
    rondo_socket_help_end(comm);
    int stays = reverse_leave(comm);
    for (int i = 0; i < rondo_socket_conns(comm); i++) {
        if (comm->conn[i].fd >= 0 && i != stays) {
            close(comm->conn[i].fd);
        }
    }
    free(comm->stage[0].bytes);
    free(comm->stage[1].bytes);
    rondo_free(comm);
}

/* Check and keep the other end's handle, which may be anything. */
static rondo_status handle_take(struct rondo_socket_comm *comm, const void *handle)
{
    struct rondo_socket_handle other;
    memcpy(&other, handle, sizeof other);
    if (other.magic != RONDO_SOCKET_MAGIC || other.version != RONDO_SOCKET_VERSION ||
        other.is_send == comm->is_send || other.is_send > 1 || (other.family != 4 && other.family != 6) ||
        other.nconns < 1 || other.nconns > RONDO_SOCKET_CONNS || other.part < RONDO_SOCKET_HELPED_PART ||
        other.part > RONDO_SOCKET_PART || (comm->is_send && other.port == 0)) {
        return rondo_socket_end(comm, RONDO_INTERNAL_ERROR,
                                "the other end's handle is not a %s socket handle of this version",
                                comm->is_send ? "receiver's" : "sender's");
    }
    for (size_t i = 0; i < sizeof other.ifname; i++) { /* it appears in messages */
        other.ifname[i] = other.ifname[i] == '\0' || (other.ifname[i] > ' ' && other.ifname[i] < 127)
                              ? other.ifname[i]
                              : '?';
    }
    comm->other = other;
    comm->least_part = rondo_min_size(comm->least_part, other.part);
    if (other.family != (comm->device->addr.any.sa_family == AF_INET6 ? 6 : 4)) {
        return rondo_socket_end(
            comm, RONDO_INVALID_USAGE,
            "the two ends chose addresses of different families; set RONDO_SOCKET_FAMILY to 4 or 6, or "
            "RONDO_SOCKET_IFNAME to interfaces of one network");
    }
    return RONDO_SUCCESS;
}

/* ---- connecting: the sender ---- */

static rondo_status conn_start(struct rondo_socket_comm *comm, struct rondo_socket_conn *conn)
{
    union rondo_socket_addr to, from = comm->device->addr;
    socklen_t bytes = rondo_socket_addr_bytes(&from);
    int on = 1;
    addr_of_handle(&to, &comm->other, comm->device);
    conn->fd = socket(to.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (conn->fd < 0) {
        return rondo_socket_lost(comm, errno, "connecting");
    }
    rondo_socket_options(conn->fd);
    setsockopt(conn->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on,
               sizeof on); /* share ports, which are scarce, until the other end is known */
    if (bind(conn->fd, &from.any, bytes) != 0 ||
        (connect(conn->fd, &to.any, bytes) != 0 && errno != EINPROGRESS)) {
        return rondo_socket_lost(comm, errno, "connecting");
    }
    conn->begun_ns = rondo_now_ns();
    conn->state = RONDO_SOCKET_CONNECTING;
    return RONDO_SUCCESS;
}

/* The connection has ended without a welcome. If this rank was busy elsewhere before its hello, the receiver
 * may have dropped it for its silence: begin another one. */
static rondo_status conn_unwelcome(struct rondo_socket_comm *comm, struct rondo_socket_conn *conn)
{
    if (!conn->late) {
        return rondo_socket_end(comm, RONDO_REMOTE_ERROR,
                                "connecting failed: the other end closed the connection instead of a "
                                "welcome; usual causes: its process has ended, "
                                "or it is of another communicator or version: see its log");
    }
    close(conn->fd);
    *conn = (struct rondo_socket_conn){ .fd = -1 };
    return RONDO_SUCCESS;
}

static struct rondo_auth_hello hello_of(const struct rondo_socket_comm *comm,
                                        const struct rondo_socket_conn *conn)
{
    struct rondo_auth_hello hello = { .magic = RONDO_SOCKET_MAGIC,
                                      .version = RONDO_SOCKET_VERSION,
                                      .client = comm->cookie,
                                      .server = comm->other.cookie,
                                      .client_rank = comm->peer.self,
                                      .server_rank = comm->peer.rank,
                                      .index = (uint32_t)(conn - comm->conn) };
    memcpy(hello.nonce, comm->nonce, sizeof hello.nonce);
    return hello;
}

static rondo_status conn_greet(struct rondo_socket_comm *comm, struct rondo_socket_conn *conn)
{
    struct rondo_auth_hello hello = hello_of(comm, conn);
    struct pollfd poll_fd = { .fd = conn->fd, .events = POLLOUT };
    int error = 0;
    socklen_t bytes = sizeof error;
    if (poll(&poll_fd, 1, 0) <= 0) {
        return RONDO_SUCCESS;
    }
    if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0) {
        return rondo_socket_lost(comm, error, "connecting");
    }
    rondo_socket_congestion(conn->fd);
    conn->late = rondo_now_ns() - conn->begun_ns > rondo_ms_to_ns(RONDO_SOCKET_SILENT_MS / 2);
    if (send(conn->fd, &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) !=
        sizeof hello) { /* the send buffer is empty, so all of it fits */
        return conn->late && (errno == EPIPE || errno == ECONNRESET)
                   ? conn_unwelcome(comm, conn)
                   : rondo_socket_lost(comm, errno, "connecting");
    }
    conn->state = RONDO_SOCKET_GREETED;
    return RONDO_SUCCESS;
}

/* Send the proof. From then on the sender sends messages: it does not wait for the receiver to read it. */
static rondo_status conn_prove(struct rondo_socket_comm *comm, struct rondo_socket_conn *conn,
                               const struct rondo_auth_welcome *welcome)
{
    struct rondo_auth_hello hello = hello_of(comm, conn);
    uint8_t proof[RONDO_AUTH_PROOF];
    if (!rondo_auth_prove(comm->peer.secret, &hello, welcome, proof)) {
        return rondo_socket_end(comm, RONDO_REMOTE_ERROR,
                                "connecting failed: the other end does not prove that it belongs to this "
                                "communicator; usual causes: another program has taken that port, or Rondo's "
                                "versions differ");
    }
    if (send(conn->fd, proof, sizeof proof, MSG_NOSIGNAL | MSG_DONTWAIT) !=
        sizeof proof) { /* the receiver has read the hello, so there is room */
        return rondo_socket_lost(comm, errno, "connecting");
    }
    conn->state = RONDO_SOCKET_READY;
    return RONDO_SUCCESS;
}

/* A welcome is one packet: read it whole, or leave it until it is whole. */
static rondo_status conn_welcomed(struct rondo_socket_comm *comm, struct rondo_socket_conn *conn)
{
    struct rondo_auth_welcome welcome;
    ssize_t n = recv(conn->fd, &welcome, sizeof welcome, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return RONDO_SUCCESS;
    }
    if (n == 0 || (n < 0 && errno == ECONNRESET)) {
        return conn_unwelcome(comm, conn);
    }
    if (n < 0) {
        return rondo_socket_lost(comm, errno, "connecting");
    }
    if ((size_t)n < sizeof welcome) {
        return RONDO_SUCCESS;
    }
    n = recv(conn->fd, &welcome, sizeof welcome, MSG_DONTWAIT);
    return (size_t)n == sizeof welcome ? conn_prove(comm, conn, &welcome)
                                       : rondo_socket_lost(comm, errno, "connecting");
}

static rondo_status sender_connect(struct rondo_socket_comm *comm)
{
    static rondo_status (*const step[])(
        struct rondo_socket_comm *, struct rondo_socket_conn *) = { [RONDO_SOCKET_NEW] = conn_start,
                                                                    [RONDO_SOCKET_CONNECTING] = conn_greet,
                                                                    [RONDO_SOCKET_GREETED] = conn_welcomed };
    int nready = 0;
    for (int i = 0; i < comm->nconns; i++) {
        struct rondo_socket_conn *conn = &comm->conn[i];
        enum rondo_socket_state before = RONDO_SOCKET_READY;
        while (conn->state != RONDO_SOCKET_READY && conn->state != before) {
            before = conn->state;
            RONDO_TRY(step[before](comm, conn));
        }
        nready += conn->state == RONDO_SOCKET_READY;
    }
    comm->opened = nready == comm->nconns;
    return RONDO_SUCCESS;
}

/* ---- connecting: the receiver ---- */

static rondo_status receiver_connect(struct rondo_socket_comm *comm)
{
    struct rondo_socket_device *device = comm->device;
    pthread_mutex_lock(&device->lock);
    int narrived = comm->narrived, error = device->accept_errno;
    pthread_mutex_unlock(&device->lock);
    if (narrived < comm->nconns) {
        return error ? rondo_socket_lost(comm, error, "accepting") : RONDO_SUCCESS;
    }
    rondo_socket_unlisten(comm, 0); /* from here on only this thread touches the comm */
    for (int i = 0; i < comm->nconns; i++) {
        if (comm->conn[i].fd < 0 || comm->conn[i].from != comm->other.cookie) {
            return rondo_socket_lost(comm, -1, "accepting");
        }
    }
    comm->opened = 1;
    return RONDO_SUCCESS;
}

/* Both ends know both numbers and use the lower one; more connections come only if somebody lies. */
static rondo_status connect_first(struct rondo_socket_comm *comm, const void *handle)
{
    RONDO_TRY(handle_take(comm, handle));
    if ((int)comm->other.nconns < comm->nconns) {
        pthread_mutex_lock(&comm->device->lock);
        for (int i = (int)comm->other.nconns; i < comm->nconns; i++) {
            if (comm->conn[i].fd >= 0) {
                close(comm->conn[i].fd);
                comm->narrived--;
            }
        }
        comm->nconns = (int)comm->other.nconns;
        pthread_mutex_unlock(&comm->device->lock);
    }
    return RONDO_SUCCESS;
}

static rondo_status socket_connect(void *arg, const void *handle)
{
    struct rondo_socket_comm *comm = arg;
    if (comm->status != RONDO_SUCCESS) {
        return rondo_socket_ended(comm);
    }
    if (comm->connected) {
        return RONDO_SUCCESS;
    }
    if (comm->other.magic == 0) {
        RONDO_TRY(connect_first(comm, handle));
    }
    accept_for_all(0, LOOK_IDLE_NS);
    if (!comm->opened) {
        RONDO_TRY(comm->is_send ? sender_connect(comm) : receiver_connect(comm));
    }
    if (!comm->opened) {
        return RONDO_IN_PROGRESS;
    }
    RONDO_TRY(lane_connect(comm));
    RONDO_TRY(rondo_socket_help(comm));
    if (rondo_log_on(RONDO_LOG_INFO, RONDO_SUBSYS_NET)) {
        char ends[RONDO_ERROR_TEXT / 2];
        ends_text(comm, ends, sizeof ends);
        rondo_log_print(RONDO_LOG_INFO, "net: %s over %d connections%s: %s",
                        comm->is_send ? "sends" : "receives", comm->nconns, comm->lane ? " and a lane" : "",
                        ends);
    }
    return RONDO_SUCCESS;
}

/* ---- requests ---- */

static rondo_status socket_reg(void *comm, void *data, size_t bytes, int kind, int fd, void **region)
{
    (void)bytes;
    (void)fd;
    *region = NULL;
    if (kind != RONDO_NET_HOST) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "sockets can only move host memory, not memory of kind %d at %p", kind, data);
    }
    *region = comm; /* any non-NULL value: sockets register nothing */
    return RONDO_SUCCESS;
}

static rondo_status socket_unreg(void *comm, void *region)
{
    (void)comm;
    (void)region;
    return RONDO_SUCCESS;
}

static rondo_status socket_iflush(void *comm, int n, void *const *data, const size_t *bytes,
                                  void *const *regions, void **request)
{
    (void)comm, (void)n, (void)data, (void)bytes, (void)regions;
    *request = NULL; /* host memory needs no flush */
    return RONDO_SUCCESS;
}

static rondo_status socket_test(void *arg, int *done, size_t *bytes)
{
    struct rondo_socket_request *request = arg;
    struct rondo_socket_comm *comm = request->comm;
    rondo_status status = comm->status;
    *done = 0;
    if (++comm->tests % LOOK_TESTS == 0) {
        accept_for_all(LOOK_NS, LOOK_IDLE_NS);
    }
    if (__atomic_load_n(&request->left, __ATOMIC_ACQUIRE) > 0 && status == RONDO_SUCCESS) {
        status = rondo_socket_progress(comm);
    }
    if (__atomic_load_n(&request->left, __ATOMIC_ACQUIRE) >
        0) { /* requests completed before an error stay complete */
        return status == RONDO_SUCCESS ? status : rondo_socket_ended(comm);
    }
    *done = 1;
    request->used = 0;
    if (RONDO_UNLIKELY(request->events.parent != NULL)) {
        rondo_net_events_end(&request->events);
    }
    if (bytes && !comm->is_send) {
        memcpy(bytes, request->bytes, (size_t)request->n * sizeof *bytes);
    }
    return RONDO_SUCCESS;
}

const struct rondo_net_device rondo_netdev_socket = {
    .name = "socket",
    .init = socket_init,
    .properties = socket_properties,
    .prepare = socket_prepare,
    .connect = socket_connect,
    .reg = socket_reg,
    .unreg = socket_unreg,
    .isend = rondo_socket_isend,
    .irecv = rondo_socket_irecv,
    .isend_apart = rondo_socket_isend_apart,
    .irecv_apart = rondo_socket_irecv_apart,
    .iflush = socket_iflush,
    .test = socket_test,
    .stop = socket_stop,
    .close = socket_close,
    .finalize = socket_finalize,
};
