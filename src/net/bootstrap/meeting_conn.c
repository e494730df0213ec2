#include "net/bootstrap/meeting_conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/wait.h"

int64_t rondo_meet_silent_ns = 10 * INT64_C(1000000000);

/* ---- addresses ---- */

static _Atomic uint32_t own_scope; /* the number of this host's interface, for link-local addresses */

static void read_addr(union rondo_socket_addr *to, const uint8_t addr[RONDO_ADDR_BYTES])
{
    memset(to, 0, sizeof(*to));
    memcpy(to, addr, RONDO_ADDR_BYTES);
    if (to->any.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&to->in6.sin6_addr)) {
        to->in6.sin6_scope_id = own_scope; /* the other host has other numbers */
    }
}

void rondo_meet_text(char text[RONDO_SOCKET_ADDR_TEXT], const uint8_t addr[RONDO_ADDR_BYTES])
{
    union rondo_socket_addr from;
    read_addr(&from, addr);
    rondo_socket_addr_text(text, &from);
}

/* The first interface of the socket device; a host without any has its loopback. */
static rondo_status choose_addr(union rondo_socket_addr *addr)
{
    struct rondo_socket_device *device = NULL;
    char why[256] = "";
    int n = 0;
    RONDO_TRY(rondo_socket_find(&device, &n, why, sizeof(why)));
    if (n > 0) {
        *addr = device[0].addr;
    } else {
        *addr = (union rondo_socket_addr){ .in = { .sin_family = AF_INET } };
        addr->in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        RONDO_INFO(RONDO_SUBSYS_BOOTSTRAP, "ranks of this host only can be met: %s", why);
    }
    rondo_free(device);
    return RONDO_SUCCESS;
}

rondo_status rondo_meet_listen(int *fd, uint8_t to[RONDO_ADDR_BYTES])
{
    union rondo_socket_addr addr;
    socklen_t bytes;
    char text[RONDO_SOCKET_ADDR_TEXT];
    RONDO_TRY(choose_addr(&addr));
    own_scope = addr.any.sa_family == AF_INET6 ? addr.in6.sin6_scope_id : 0;
    bytes = rondo_socket_addr_bytes(&addr);
    *fd = socket(addr.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind(*fd, &addr.any, bytes) != 0 || listen(*fd, SOMAXCONN) != 0 ||
        getsockname(*fd, &addr.any, &bytes) != 0) {
        rondo_status status;
        rondo_socket_addr_text(text, &addr);
        status = rondo_fail(RONDO_SYSTEM_ERROR,
                            "host %s cannot listen at %s for the ranks of a communicator (%m); check ulimit "
                            "-n and RONDO_SOCKET_IFNAME",
                            rondo_log_host(), text);
        if (*fd >= 0) {
            close(*fd);
        }
        *fd = -1;
        return status;
    }
    memset(to, 0, RONDO_ADDR_BYTES);
    memcpy(to, &addr, bytes);
    return RONDO_SUCCESS;
}

/* ---- queues of bytes ---- */

static rondo_status reserve(struct rondo_meet_bytes *bytes, size_t more)
{
    size_t used = bytes->to - bytes->from;
    if (bytes->from > 0 && (used == 0 || bytes->to + more > bytes->capacity)) {
        memmove(bytes->data, bytes->data + bytes->from, used);
        bytes->from = 0;
        bytes->to = used;
    }
    if (bytes->to + more > bytes->capacity) {
        size_t capacity = 2 * bytes->capacity > bytes->to + more ? 2 * bytes->capacity : bytes->to + more;
        uint8_t *grown = realloc(bytes->data, capacity);
        if (grown == NULL) {
            return rondo_fail(RONDO_SYSTEM_ERROR, "no memory for %zu bytes of a connection on %s", capacity,
                              rondo_log_host());
        }
        bytes->data = grown;
        bytes->capacity = capacity;
    }
    return RONDO_SUCCESS;
}

static rondo_status append(struct rondo_meet_bytes *bytes, const void *data, size_t n)
{
    RONDO_TRY(reserve(bytes, n));
    if (n > 0) {
        memcpy(bytes->data + bytes->to, data, n);
        bytes->to += n;
    }
    return RONDO_SUCCESS;
}

/* ---- life ---- */

void rondo_meet_end(struct rondo_meet_conn *conn, int error)
{
    if (conn->state != RONDO_MEET_ENDED) {
        conn->ended_in = conn->state;
        conn->state = RONDO_MEET_ENDED;
        conn->error = error;
        close(conn->fd);
        conn->fd = -1;
    }
}

void rondo_meet_free(struct rondo_meet_conn *conn)
{
    rondo_meet_end(conn, 0);
    free(conn->in.data);
    free(conn->out.data);
    rondo_free(conn);
}

static rondo_status create(int fd, enum rondo_meet_state state, size_t limit, struct rondo_meet_conn **conn)
{
    rondo_status status = RONDO_NEW(*conn, "a connection");
    if (status != RONDO_SUCCESS) {
        close(fd);
        return status;
    }
    rondo_socket_options(fd); /* a host that is lost says nothing */
    (*conn)->fd = fd;
    (*conn)->state = state;
    (*conn)->limit = limit;
    (*conn)->since_ns = rondo_now_ns();
    return RONDO_SUCCESS;
}

rondo_status rondo_meet_connect(const struct rondo_meeting_id *id, const uint8_t to_addr[RONDO_ADDR_BYTES],
                                int from, int to, size_t limit, struct rondo_meet_conn **made)
{
    union rondo_socket_addr addr;
    struct rondo_meet_conn *conn;
    int fd;
    read_addr(&addr, to_addr);
    fd = socket(addr.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return rondo_fail_quiet(RONDO_SYSTEM_ERROR,
                                "host %s has no socket for a connection between ranks (%m); raise ulimit -n",
                                rondo_log_host());
    }
    RONDO_TRY(create(fd, RONDO_MEET_CONNECTING, limit, &conn));
    conn->calls = 1;
    conn->rank = to;
    memcpy(conn->secret, id->secret, sizeof(conn->secret));
    conn->hello = (struct rondo_auth_hello){ .magic = RONDO_MEET_MAGIC,
                                             .version = RONDO_MEET_VERSION,
                                             .comm_hash = id->name,
                                             .client = id->serial,
                                             .client_rank = from,
                                             .server_rank = to };
    if (rondo_auth_nonce(conn->hello.nonce) != RONDO_SUCCESS) {
        rondo_meet_free(conn);
        return RONDO_SYSTEM_ERROR;
    }
    if (connect(fd, &addr.any, rondo_socket_addr_bytes(&addr)) != 0 && errno != EINPROGRESS) {
        rondo_meet_end(conn, errno);
    }
    *made = conn;
    return RONDO_SUCCESS;
}

rondo_status rondo_meet_accept(int listener, size_t limit, struct rondo_meet_conn **conn)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    *conn = NULL;
    if (fd >= 0) {
        return create(fd, RONDO_MEET_ACCEPTED_, limit, conn);
    }
    int error = errno;
    struct pollfd poller = { .fd = listener, .events = POLLIN }; /* the system wants a descriptor first */
    if ((error != EMFILE && error != ENFILE) || poll(&poller, 1, 0) <= 0) {
        return RONDO_SUCCESS;
    }
    errno = error;
    return rondo_fail_quiet(RONDO_SYSTEM_ERROR,
                            "host %s has no descriptor for a connection between ranks (%m); raise ulimit -n",
                            rondo_log_host());
}

/* ---- moving bytes ---- */

static void write_out(struct rondo_meet_conn *conn)
{
    struct rondo_meet_bytes *out = &conn->out;
    while (conn->state != RONDO_MEET_ENDED && out->from < out->to) {
        ssize_t n = send(conn->fd, out->data + out->from, out->to - out->from, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            out->from += (size_t)n;
        } else if (errno != EINTR) {
            int error = errno;
            if (error == EPIPE || error == ECONNRESET) { /* its last message may be a reason */
                conn->cut = error;
                out->from = out->to;
            } else if (error != EAGAIN && error != EWOULDBLOCK) {
                rondo_meet_end(conn, error);
            }
            return;
        }
    }
}

/* Messages that were queued before the handshake was complete follow it; so handshake bytes are written past
 * the queue. They are few, and the first on the connection, so that the kernel takes them at once. */
static void write_now(struct rondo_meet_conn *conn, const void *data, size_t bytes)
{
    ssize_t n;
    do {
        n = send(conn->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)bytes) {
        rondo_meet_end(conn, n < 0 ? errno : ENOBUFS);
    }
}

static void read_in(struct rondo_meet_conn *conn)
{
    struct rondo_meet_bytes *in = &conn->in;
    size_t limit = rondo_meet_is_unproved(conn->state) ? 0 : conn->limit;
    while (!conn->eof) {
        ssize_t n;
        if (in->to - in->from > limit + RONDO_MEET_READ) {
            return; /* the owner takes the messages first */
        }
        if (reserve(in, RONDO_MEET_READ) != RONDO_SUCCESS) {
            rondo_meet_end(conn, ENOMEM);
            return;
        }
        n = recv(conn->fd, in->data + in->to, RONDO_MEET_READ, MSG_DONTWAIT);
        if (n > 0) {
            in->to += (size_t)n;
        } else if (n == 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)) {
            conn->eof = 1; /* the handshake may go on with the bytes that came before */
            conn->eof_error = n == 0 ? conn->cut : errno;
        } else if (errno != EINTR) {
            return;
        }
    }
}

static int take(struct rondo_meet_bytes *in, void *to, size_t bytes)
{
    if (in->to - in->from < bytes) {
        return 0;
    }
    memcpy(to, in->data + in->from, bytes);
    in->from += bytes;
    return 1;
}

static void finish_connect(struct rondo_meet_conn *conn)
{
    struct pollfd poller = { .fd = conn->fd, .events = POLLOUT };
    int error = 0;
    socklen_t bytes = sizeof(error);
    if (poll(&poller, 1, 0) <= 0) {
        return;
    }
    if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0) {
        rondo_meet_end(conn, error != 0 ? error : errno);
        return;
    }
    write_now(conn, &conn->hello, sizeof(conn->hello));
    if (conn->state != RONDO_MEET_ENDED) {
        conn->state = RONDO_MEET_GREETED;
    }
}

/* The client's part: the server proves itself, then this end does. */
static void take_welcome(struct rondo_meet_conn *conn)
{
    uint8_t proof[RONDO_AUTH_PROOF];
    if (!take(&conn->in, &conn->welcome, sizeof(conn->welcome))) {
        return;
    }
    if (!rondo_auth_prove(conn->secret, &conn->hello, &conn->welcome, proof)) {
        rondo_meet_end(conn, EACCES);
        return;
    }
    write_now(conn, proof, sizeof(proof));
    if (conn->state != RONDO_MEET_ENDED) {
        conn->state = RONDO_MEET_OPEN;
        write_out(conn);
    }
}

static void take_hello(struct rondo_meet_conn *conn, rondo_meet_judge *judge, void *arg)
{
    const uint64_t *secret;
    if (!take(&conn->in, &conn->hello, sizeof(conn->hello))) {
        return;
    }
    secret = conn->hello.magic == RONDO_MEET_MAGIC && conn->hello.version == RONDO_MEET_VERSION
                 ? judge(arg, &conn->hello)
                 : NULL;
    if (secret == NULL) {
        rondo_meet_end(conn, EACCES);
        return;
    }
    memcpy(conn->secret, secret, sizeof(conn->secret));
    conn->rank = conn->hello.client_rank;
    if (rondo_auth_answer(conn->secret, &conn->hello, &conn->welcome) != RONDO_SUCCESS) {
        rondo_meet_end(conn, EACCES);
        return;
    }
    write_now(conn, &conn->welcome, sizeof(conn->welcome));
    if (conn->state != RONDO_MEET_ENDED) {
        conn->state = RONDO_MEET_WELCOMED;
    }
}

static void take_proof(struct rondo_meet_conn *conn)
{
    uint8_t proof[RONDO_AUTH_PROOF];
    if (!take(&conn->in, proof, sizeof(proof))) {
        return;
    }
    if (!rondo_auth_proved(conn->secret, &conn->hello, &conn->welcome, proof)) {
        rondo_meet_end(conn, EACCES);
        return;
    }
    conn->state = RONDO_MEET_OPEN;
    write_out(conn);
}

void rondo_meet_move(struct rondo_meet_conn *conn, int reads, rondo_meet_judge *judge, void *arg)
{
    if (conn->state == RONDO_MEET_CONNECTING) {
        finish_connect(conn);
    }
    if (reads && conn->state != RONDO_MEET_CONNECTING && conn->state != RONDO_MEET_ENDED) {
        read_in(conn);
    }
    if (conn->state == RONDO_MEET_GREETED) {
        take_welcome(conn);
    }
    if (conn->state == RONDO_MEET_ACCEPTED_) {
        take_hello(conn, judge, arg);
    }
    if (conn->state == RONDO_MEET_WELCOMED) {
        take_proof(conn);
    }
    if (conn->state == RONDO_MEET_OPEN) {
        write_out(conn);
        if (conn->closes && rondo_meet_queued(conn) == 0) {
            rondo_meet_end(conn, 0);
        } else if (conn->finishes == 1 && rondo_meet_queued(conn) == 0 && !conn->eof) {
            conn->finishes = 2; /* who had ended before has not taken the last of it */
            shutdown(conn->fd, SHUT_WR);
        }
    }
    if (conn->eof) {
        rondo_meet_end(conn, conn->eof_error);
    }
}

rondo_status rondo_meet_send(struct rondo_meet_conn *conn, enum rondo_meet_kind kind, const void *data,
                             size_t bytes, const void *more, size_t more_bytes)
{
    struct rondo_meet_head head = { RONDO_MEET_MAGIC, kind, bytes + more_bytes };
    RONDO_TRY(reserve(&conn->out, sizeof(head) + bytes + more_bytes));
    RONDO_TRY(append(&conn->out, &head, sizeof(head)));
    RONDO_TRY(append(&conn->out, data, bytes));
    RONDO_TRY(append(&conn->out, more, more_bytes));
    if (conn->state == RONDO_MEET_OPEN) {
        write_out(conn);
    }
    return RONDO_SUCCESS;
}

const void *rondo_meet_next(struct rondo_meet_conn *conn, struct rondo_meet_head *head)
{
    struct rondo_meet_bytes *in = &conn->in;
    const void *data;
    enum rondo_meet_state state = conn->state == RONDO_MEET_ENDED ? conn->ended_in : conn->state;
    if (state != RONDO_MEET_OPEN || in->to - in->from < sizeof(*head)) {
        return NULL;
    }
    memcpy(head, in->data + in->from, sizeof(*head));
    if (head->magic != RONDO_MEET_MAGIC || head->bytes > conn->limit) {
        in->from = in->to;
        rondo_meet_end(conn, EPROTO);
        return NULL;
    }
    if (in->to - in->from < sizeof(*head) + head->bytes) {
        return NULL;
    }
    data = in->data + in->from + sizeof(*head);
    in->from += sizeof(*head) + head->bytes;
    return data;
}

short rondo_meet_events(const struct rondo_meet_conn *conn)
{
    int writes = conn->state == RONDO_MEET_CONNECTING ||
                 (conn->state == RONDO_MEET_OPEN && rondo_meet_queued(conn) > 0);
    return (short)(POLLIN | (writes ? POLLOUT : 0));
}
