/* The process's control listener: its address, accepting connections, and judging them. */
#include "net/control/control_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

enum { BACKLOG = 4096 /* the kernel cuts it to somaxconn */, BATCH = 64 };

/* ---- drops ---- */

void rondo_wire_count(enum rondo_wire_drop why)
{
    static const char *const what[RONDO_WIRE_NUM_DROPS] = {
        [RONDO_WIRE_DROP_GARBAGE] = "a connection that did not begin with a greeting",
        [RONDO_WIRE_DROP_STRANGER] = "a connection with a wrong proof, version, process or rank",
        [RONDO_WIRE_DROP_SILENT] = "a connection that said nothing",
        [RONDO_WIRE_DROP_EXCESS] = "one connection too many",
        [RONDO_WIRE_DROP_MESSAGE] = "a message for a communicator that is not here",
        [RONDO_WIRE_DROP_OLD] = "a message for a communicator that was never created",
    };
    uint64_t all = 0;
    rondo_wire->dropped[why]++;
    for (int i = 0; i < RONDO_WIRE_NUM_DROPS; i++) {
        all += rondo_wire->dropped[i];
    }
    /* Powers of two only, so that a port scan does not fill the log. */
    if ((all & (all - 1)) == 0) {
        RONDO_INFO(RONDO_SUBSYS_CONTROL,
                   "control plane at %s: %llu connections and messages were dropped, the last was %s",
                   rondo_wire->where, (unsigned long long)all, what[why]);
    }
}

int rondo_wire_unnamed_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur / 4 > RONDO_WIRE_UNNAMED) {
        return RONDO_WIRE_UNNAMED;
    }
    return limit.rlim_cur < 4 ? 1 : (int)(limit.rlim_cur / 4);
}

static struct rondo_wire_conn *oldest_unnamed(void)
{
    struct rondo_wire_conn *oldest = NULL, *mute = NULL; /* new ones come first in the list */
    for (struct rondo_wire_conn *conn = rondo_wire->conns; conn; conn = conn->next) {
        mute = conn->state == RONDO_WIRE_ACCEPTED ? conn : mute;
        oldest = rondo_wire_is_unnamed(conn->state) ? conn : oldest;
    }
    return mute ? mute : oldest; /* rather one without a hello */
}

/* @return 0: there is no unnamed connection. */
static int drop_oldest(void)
{
    struct rondo_wire_conn *oldest = oldest_unnamed();
    if (oldest == NULL) {
        return 0;
    }
    rondo_wire_count(RONDO_WIRE_DROP_EXCESS);
    rondo_wire_end(oldest, ETIMEDOUT);
    return 1;
}

/* ---- judging hellos and proofs ---- */

/* What this process knows about the communicator of a hello. */
struct called {
    const struct rondo_control *control; /* NULL: closed */
    const uint64_t *secret;              /* NULL: not known */
    uint64_t own;                        /* the process that is called */
};

static struct called called_by(const struct rondo_auth_hello *hello)
{
    const struct rondo_control *control = rondo_wire_control(hello->comm_hash, hello->server_rank);
    const struct rondo_wire_closed *closed = rondo_wire_closed_of(hello->comm_hash, hello->server_rank);
    if (control) {
        return (struct called){ .control = control,
                                .secret = control->wire->secret,
                                .own = rondo_wire_process(&control->peers[control->rank]) };
    }
    return closed ? (struct called){ .secret = closed->secret, .own = closed->process }
                  : (struct called){ .secret = NULL };
}

/* A process opens one connection; a second one in its name is not its own. */
static int came_before(const struct rondo_wire_conn *conn, uint64_t own)
{
    for (const struct rondo_wire_conn *other = rondo_wire->conns; other; other = other->next) {
        if (other != conn && other->incoming && other->state == RONDO_WIRE_OPEN &&
            other->process == conn->hello.client && other->own == own) {
            return 1;
        }
    }
    return 0;
}

/* A process calls once; whoever has read its hello on the network may call in its name, and, once the
 * communicator is closed, in any. */
static int too_many_claims(const struct rondo_wire_conn *conn, const struct called *called)
{
    int claims = 0;
    for (const struct rondo_wire_conn *other = rondo_wire->conns; other; other = other->next) {
        claims += other->state == RONDO_WIRE_WELCOMED && other->hello.server == conn->hello.server &&
                  (called->control ? other->hello.client == conn->hello.client
                                   : called_by(&other->hello).control == NULL);
    }
    return claims >= (called->control ? RONDO_WIRE_CLAIMS : RONDO_WIRE_LATE);
}

/* Does the hello name what is not so? */
static int is_wrong(const struct rondo_wire_conn *conn, const struct called *called)
{
    const struct rondo_auth_hello *hello = &conn->hello;
    const struct rondo_control *control = called->control;
    return hello->server != called->own || came_before(conn, called->own) ||
           (control && (hello->client_rank < 0 || hello->client_rank >= control->nranks ||
                        control->local_of[hello->client_rank] >= 0 ||
                        rondo_wire_process(&control->peers[hello->client_rank]) != hello->client));
}

static enum rondo_wire_state stranger(void)
{
    rondo_wire_count(RONDO_WIRE_DROP_STRANGER);
    return RONDO_WIRE_ENDED;
}

enum rondo_wire_state rondo_wire_name(struct rondo_wire_conn *conn)
{
    struct called called = called_by(&conn->hello);
    int looks = conn->hello.magic == RONDO_LOOK_MAGIC;
    if (looks && rondo_wire_look_name(conn, called.control) == RONDO_WIRE_ENDED) {
        return stranger();
    }
    if (!looks && conn->hello.version != RONDO_WIRE_VERSION) {
        return stranger();
    }
    if (called.secret == NULL) {
        return RONDO_WIRE_WAITING;
    }
    /* The connection is new: the kernel has room for the welcome. */
    if ((!looks && (is_wrong(conn, &called) || too_many_claims(conn, &called))) ||
        rondo_auth_answer(called.secret, &conn->hello, &conn->welcome) != RONDO_SUCCESS ||
        send(conn->fd, &conn->welcome, sizeof(conn->welcome), MSG_NOSIGNAL | MSG_DONTWAIT) !=
            sizeof(conn->welcome)) {
        return stranger();
    }
    conn->since_ns = rondo_now_ns();
    return RONDO_WIRE_WELCOMED;
}

enum rondo_wire_state rondo_wire_prove(struct rondo_wire_conn *conn, const uint8_t proof[RONDO_AUTH_PROOF])
{
    struct called called = called_by(&conn->hello); /* again: much may have happened since the welcome */
    int looks = conn->hello.magic == RONDO_LOOK_MAGIC;
    if (called.secret == NULL || (!looks && is_wrong(conn, &called)) ||
        !rondo_auth_proved(called.secret, &conn->hello, &conn->welcome, proof)) {
        return stranger();
    }
    if (looks) { /* another thread has the connection from here on */
        if (!rondo_wire_look_start(conn)) {
            rondo_wire_count(RONDO_WIRE_DROP_EXCESS);
        }
        return RONDO_WIRE_ENDED;
    }
    if (rondo_calloc(&conn->out, 1, RONDO_WIRE_OUT, "a control connection") != RONDO_SUCCESS) {
        return RONDO_WIRE_ENDED;
    }
    conn->process = conn->hello.client;
    conn->own = called.own;
    rondo_wire_conn_use(conn);
    rondo_wire_proved(conn);
    return RONDO_WIRE_OPEN;
}

/* ---- accepting ---- */

static void listener_accept(int accepts)
{
    struct epoll_event event = { .events = accepts ? EPOLLIN : 0, .data.ptr = NULL };
    rondo_wire->accepts = accepts;
    epoll_ctl(rondo_wire->epoll, EPOLL_CTL_MOD, rondo_wire->listener, &event);
}

void rondo_wire_accept(void)
{
    for (int i = 0; i < BATCH; i++) {
        int fd = accept4(rondo_wire->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            if (rondo_wire->nunnamed >= rondo_wire_unnamed_limit()) {
                drop_oldest(); /* it has had the most time to send its hello */
            }
            rondo_wire_conn_accepted(fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            if (!rondo_socket_someone_calls(rondo_wire->listener)) {
                return; /* a descriptor is looked for before a connection */
            }
            if (!drop_oldest()) {
                listener_accept(0); /* else it would wake the thread for ever */
                return;
            }
        } else if (errno == EAGAIN) {
            return;
        } /* else the connection ended before it was accepted */
    }
}

void rondo_wire_expire(int64_t now)
{
    if (rondo_wire->listener >= 0 && !rondo_wire->accepts) {
        listener_accept(1);
    }
    for (struct rondo_wire_conn *conn = rondo_wire->conns, *next; conn; conn = next) {
        next = conn->next;
        if (conn->state == RONDO_WIRE_ACCEPTED && now - conn->since_ns > RONDO_WIRE_UNNAMED_NS) {
            rondo_wire_count(RONDO_WIRE_DROP_SILENT);
            rondo_wire_end(conn, ETIMEDOUT);
        } else if (rondo_wire_is_unproved(conn->state) && now - conn->since_ns > RONDO_WIRE_PARKED_NS) {
            rondo_wire_count(conn->state == RONDO_WIRE_WAITING ? RONDO_WIRE_DROP_OLD
                                                               : RONDO_WIRE_DROP_SILENT);
            rondo_wire_end(conn, ETIMEDOUT);
        }
    }
}

/* ---- the listener ---- */

static int listener_bind(const struct rondo_socket_device *device)
{
    union rondo_socket_addr addr = device->addr;
    socklen_t bytes = rondo_socket_addr_bytes(&addr);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = NULL };
    rondo_wire->listener = socket(addr.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (rondo_wire->listener < 0 || bind(rondo_wire->listener, &addr.any, bytes) != 0 ||
        listen(rondo_wire->listener, BACKLOG) != 0 ||
        getsockname(rondo_wire->listener, &addr.any, &bytes) != 0) {
        return -1;
    }
    memset(rondo_wire->addr, 0, sizeof(rondo_wire->addr));
    memcpy(rondo_wire->addr, &addr, bytes);
    rondo_wire->scope = addr.any.sa_family == AF_INET6 ? addr.in6.sin6_scope_id : 0;
    rondo_wire->accepts = 1;
    rondo_socket_addr_text(rondo_wire->where, &addr);
    return epoll_ctl(rondo_wire->epoll, EPOLL_CTL_ADD, rondo_wire->listener, &event);
}

/* To a process that knows this one is alive: without it, the end of the connection would be a death. */
static void bye(struct rondo_wire_conn *conn)
{
    const struct rondo_wire_head head = {
        .magic = RONDO_WIRE_MAGIC, .kind = RONDO_WIRE_BYE, .from = -1, .to = -1
    };
    uint8_t unread[RONDO_WIRE_IN];
    send(conn->fd, &head, sizeof(head), MSG_NOSIGNAL | MSG_DONTWAIT);
    /* Unread bytes would turn the close into a reset, which may lose written ones. */
    recv(conn->fd, unread, sizeof(unread), MSG_DONTWAIT);
}

static void listener_close(void)
{
    const uint64_t *dropped = rondo_wire->dropped;
    if (rondo_wire->listener < 0) {
        return;
    }
    epoll_ctl(rondo_wire->epoll, EPOLL_CTL_DEL, rondo_wire->listener, NULL);
    close(rondo_wire->listener);
    rondo_wire->listener = -1;
    for (struct rondo_wire_conn *conn = rondo_wire->conns, *next; conn; conn = next) {
        next = conn->next;
        if (conn->state == RONDO_WIRE_WELCOMED) {
            bye(conn);
        }
        if (rondo_wire_is_unproved(conn->state)) {
            rondo_wire_end(conn, 0);
        }
    }
    RONDO_INFO(RONDO_SUBSYS_CONTROL,
               "control plane at %s listens no longer; dropped connections: %llu garbage, %llu strangers, "
               "%llu silent, %llu too many; messages: %llu for nobody, %llu too old",
               rondo_wire->where, (unsigned long long)dropped[RONDO_WIRE_DROP_GARBAGE],
               (unsigned long long)dropped[RONDO_WIRE_DROP_STRANGER],
               (unsigned long long)dropped[RONDO_WIRE_DROP_SILENT],
               (unsigned long long)dropped[RONDO_WIRE_DROP_EXCESS],
               (unsigned long long)dropped[RONDO_WIRE_DROP_MESSAGE],
               (unsigned long long)dropped[RONDO_WIRE_DROP_OLD]);
}

static rondo_status listener_open(void)
{
    struct rondo_socket_device *device = NULL;
    char why[256] = "";
    int n = 0;
    rondo_status status;
    RONDO_TRY(rondo_socket_find(&device, &n, why, sizeof(why)));
    if (n == 0) {
        return rondo_fail(RONDO_SYSTEM_ERROR,
                          "host %s cannot listen for control messages from other hosts: %s", rondo_log_host(),
                          why);
    }
    status = RONDO_SUCCESS;
    if (listener_bind(&device[0]) != 0) {
        status = rondo_fail(RONDO_SYSTEM_ERROR,
                            "host %s cannot listen for control messages at %s of %s (%m); check ulimit -n, "
                            "net.ipv4.ip_local_port_range, and that the interface is up",
                            rondo_log_host(), device[0].text, device[0].name);
        if (rondo_wire->listener >= 0) {
            close(rondo_wire->listener);
            rondo_wire->listener = -1;
        }
    } else {
        RONDO_INFO(RONDO_SUBSYS_CONTROL, "control plane listens at %s of %s", rondo_wire->where,
                   device[0].name);
    }
    rondo_free(device);
    return status;
}

rondo_status rondo_control_listen(uint8_t addr[RONDO_ADDR_BYTES], uint32_t *number)
{
    rondo_status status;
    rondo_wire_lock();
    status = rondo_wire_need();
    if (status == RONDO_SUCCESS && rondo_wire->listens == 0) {
        status = listener_open();
    }
    if (status == RONDO_SUCCESS) {
        rondo_wire->listens++;
        memcpy(addr, rondo_wire->addr, RONDO_ADDR_BYTES);
        *number = rondo_wire->number;
    } else if (rondo_wire) {
        rondo_wire_release();
    }
    rondo_wire_unlock();
    return status;
}

void rondo_control_unlisten(void)
{
    rondo_wire_lock();
    if (rondo_wire && rondo_wire->listens > 0 && --rondo_wire->listens == 0) {
        listener_close();
        rondo_wire_release();
    }
    rondo_wire_unlock();
}
