/* The process's connections on the wire: bytes in and out, making and ending them. */
#include "net/control/control_wire.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"

enum { READS = 16 /* of a connection at a time */, EVENTS = 64, MOST_CALLS = 16 };
#define PAUSE_NS (10 * INT64_C(1000000)) /* doubled with each call again, at most: */
#define LONG_PAUSE_NS (100 * INT64_C(1000000))
#define DRAIN_NS INT64_C(1000000000)

static pthread_mutex_t wire_mutex = PTHREAD_MUTEX_INITIALIZER;
int64_t rondo_wire_fork_ns = 100 * INT64_C(1000000);
struct rondo_wire *rondo_wire;

/* Another thread may be moving the wire, which takes a moment. A fork waits for it, but not for ever: it may
 * come from a signal handler, in that very thread. */
static _Thread_local int forks; /* with the lock */
static void before_fork(void)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += rondo_wire_fork_ns;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    if (pthread_mutex_timedlock(&wire_mutex, &end) == 0) {
        forks = 1;
    }
}

static void after_fork(void)
{
    if (forks) {
        forks = 0;
        pthread_mutex_unlock(&wire_mutex);
    }
}

/* In a forked child all is the parent's. What holds sockets open is closed: else a parent that dies would
 * look silent to its peers, while the child lives. The set is shared with the parent: it stays as it is. */
static void in_child(void)
{
    after_fork();
    int whole = rondo_fork_lock(&wire_mutex);
    if (whole && rondo_wire) {
        for (const struct rondo_wire_conn *conn = rondo_wire->conns; conn; conn = conn->next) {
            if (conn->fd >= 0) {
                close(conn->fd);
            }
        }
        if (rondo_wire->listener >= 0) {
            close(rondo_wire->listener);
        }
        close(rondo_wire->epoll);
    }
    rondo_wire = NULL;
}
static void __attribute__((constructor)) watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, in_child);
}

void rondo_wire_lock(void) { pthread_mutex_lock(&wire_mutex); }
int rondo_wire_trylock(void) { return pthread_mutex_trylock(&wire_mutex) == 0; }

void rondo_wire_note(const char *fmt, ...)
{
    va_list args;
    if (rondo_wire->nnotes < RONDO_WIRE_NOTES) {
        va_start(args, fmt);
        vsnprintf(rondo_wire->note[rondo_wire->nnotes++], RONDO_ERROR_TEXT, fmt, args);
        va_end(args);
    }
}

static int conn_dial(struct rondo_wire_conn *conn);
static void conn_link(struct rondo_wire_conn *conn);

static void conn_free(struct rondo_wire_conn *conn)
{
    rondo_free(conn->out);
    rondo_free(conn);
}

/* A listener that is short of something is given time. */
static void wait_to_call(struct rondo_wire_conn *conn)
{
    int64_t pause_ns = conn->ncalls < 5 ? PAUSE_NS << (conn->ncalls - 1) : LONG_PAUSE_NS;
    conn->again_ns = rondo_now_ns() + (pause_ns < LONG_PAUSE_NS ? pause_ns : LONG_PAUSE_NS);
    conn->fd = -1;
    conn_link(conn);
    rondo_wire->nagain++;
    rondo_control_ring(); /* it may sleep until the next heartbeat, as no socket wakes it */
}

/* Make the calls that are due. If this process lacks something, they wait again. The communicator of the
 * hello may have ended here: those of others, and its own last words, are queued still. */
static void call_waiting(void)
{
    int64_t now = rondo_now_ns();
    for (struct rondo_wire_conn *conn = rondo_wire->conns, *next; conn; conn = next) {
        int error = conn->error;
        next = conn->next;
        if (conn->again_ns == 0 || conn->again_ns > now) {
            continue;
        }
        if (rondo_auth_nonce(conn->hello.nonce) == RONDO_SUCCESS && conn_dial(conn)) {
            continue;
        }
        if (conn->error != ECONNREFUSED && conn->ncalls++ < MOST_CALLS) {
            conn->error = error;
            conn->again_ns = now + LONG_PAUSE_NS;
        } else {
            rondo_wire_end(conn, conn->error == ECONNREFUSED ? ECONNREFUSED : error);
        }
    }
}

/* A listener also ends the calls of living processes: those that were stopped before their hello, or whose
 * communicator it does not know for long, or one too many. If the process has ended, the next call is
 * refused. @return 1: it is called again, with what is queued */
static int call_again(struct rondo_wire_conn *conn)
{
    int ended = conn->error == 0 || conn->error == ECONNRESET || conn->error == EPIPE;
    int error = conn->error;
    if (conn->ended_in != RONDO_WIRE_GREETED || !ended || conn->was_open || conn->in_bytes > 0 ||
        conn->ncalls >= MOST_CALLS || !rondo_wire_hello_renew(conn)) {
        return 0;
    }
    conn->ncalls++;
    conn->state = RONDO_WIRE_CONNECTING;
    conn->prev = NULL;
    if (conn->ncalls > 1 || rondo_auth_nonce(conn->hello.nonce) != RONDO_SUCCESS || !conn_dial(conn)) {
        if (conn->error == ECONNREFUSED) {
            return 0;
        }
        conn->error = error; /* what failed now is this process's, which may lack descriptors */
        wait_to_call(conn);
    }
    rondo_wire_conn_use(conn);
    return 1;
}

void rondo_wire_settle(void) /* this may end others */
{
    struct rondo_wire_conn *conn;
    while (rondo_wire && (conn = rondo_wire->ended) != NULL) {
        rondo_wire->ended = conn->next;
        if (!rondo_wire_is_unproved(conn->ended_in) && rondo_wire_pass_on(conn) == 0) {
            if (call_again(conn)) {
                continue;
            }
            rondo_wire_lost(conn);
        }
        conn_free(conn);
    }
}

void rondo_wire_unlock(void)
{
    char note[RONDO_WIRE_NOTES][RONDO_ERROR_TEXT];
    int n = 0;
    rondo_wire_settle();
    if (rondo_wire) {
        n = rondo_wire->nnotes;
        memcpy(note, rondo_wire->note, sizeof(note[0]) * (size_t)n);
        rondo_wire->nnotes = 0;
    }
    pthread_mutex_unlock(&wire_mutex);
    for (int i = 0; i < n; i++) {
        RONDO_WARN("%s", note[i]);
    }
}

/* ---- what epoll waits for ---- */

static void conn_wait_for(struct rondo_wire_conn *conn, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.ptr = conn };
    if (conn->events != events) {
        conn->events = events;
        epoll_ctl(rondo_wire->epoll, EPOLL_CTL_MOD, conn->fd, &event);
    }
}

void rondo_wire_pause(struct rondo_wire_conn *conn, int paused)
{
    conn_wait_for(conn, paused ? conn->events & ~(uint32_t)EPOLLIN : conn->events | EPOLLIN);
}

/* ---- the list ---- */

static struct rondo_wire_conn **bucket_of(uint64_t process)
{
    return &rondo_wire->bucket[process % RONDO_WIRE_BUCKETS];
}

struct rondo_wire_conn *rondo_wire_conn_of(uint64_t own, uint64_t process)
{
    struct rondo_wire_conn *conn = *bucket_of(process);
    while (conn && (conn->process != process || conn->own != own)) {
        conn = conn->chain;
    }
    return conn;
}

void rondo_wire_conn_use(struct rondo_wire_conn *conn)
{
    if (rondo_wire_conn_of(conn->own, conn->process) == NULL) {
        conn->chain = *bucket_of(conn->process);
        *bucket_of(conn->process) = conn;
        conn->sending = 1;
    }
}

static void conn_flush(struct rondo_wire_conn *conn);

/* A connection has ended before it was open, so nothing behind the place for its proof was sent yet. */
static void hand_over(struct rondo_wire_conn *ended, struct rondo_wire_conn *other)
{
    if (ended->ended_in != RONDO_WIRE_OPEN && ended->out_to > RONDO_AUTH_PROOF) {
        if (rondo_wire_put_bytes(other, ended->out + RONDO_AUTH_PROOF, ended->out_to - RONDO_AUTH_PROOF)) {
            conn_flush(other);
        } else {
            ended->lost = ended->error != 0 ? ended->error : ECONNRESET;
        }
    }
}

/* Take a connection out of its bucket; another open one to the same process replaces it. */
static void conn_disuse(struct rondo_wire_conn *conn)
{
    struct rondo_wire_conn **link = bucket_of(conn->process);
    while (*link != conn) {
        link = &(*link)->chain;
    }
    *link = conn->chain;
    conn->sending = 0;
    for (struct rondo_wire_conn *other = rondo_wire->conns; other; other = other->next) {
        if (other->process == conn->process && other->own == conn->own && other->state == RONDO_WIRE_OPEN) {
            rondo_wire_conn_use(other);
            hand_over(conn, other);
            return;
        }
    }
}

static void conn_link(struct rondo_wire_conn *conn)
{
    conn->next = rondo_wire->conns;
    if (conn->next) {
        conn->next->prev = conn;
    }
    rondo_wire->conns = conn;
}

static struct rondo_wire_conn *conn_add(struct rondo_wire_conn *conn, int fd, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.ptr = conn };
    if (epoll_ctl(rondo_wire->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        return NULL;
    }
    conn->fd = fd;
    conn->events = events;
    conn->since_ns = conn->beats.heard_ns = rondo_now_ns();
    if (conn->again_ns != 0) { /* it has waited in the list */
        conn->again_ns = 0;
        rondo_wire->nagain--;
    } else {
        conn_link(conn);
    }
    return conn;
}

/* Is something under way that the other end has not got, or this one not whole? */
static int has_rest(const struct rondo_wire_conn *conn)
{
    int unsent = 0;
    return conn->ended_in == RONDO_WIRE_OPEN && (conn->out_from < conn->out_to || conn->in_bytes > 0 ||
                                                 (ioctl(conn->fd, SIOCOUTQ, &unsent) == 0 && unsent > 0));
}

void rondo_wire_end(struct rondo_wire_conn *conn, int error)
{
    if (conn->state == RONDO_WIRE_ENDED) {
        return;
    }
    conn->ended_in = conn->state;
    conn->state = RONDO_WIRE_ENDED;
    conn->error = error;
    rondo_wire->nunnamed -= rondo_wire_is_unnamed(conn->ended_in);
    rondo_wire->nagain -= conn->again_ns != 0;
    conn->again_ns = 0;
    if (conn->lost == 0 && has_rest(conn)) {
        conn->lost = error != 0 ? error : ECONNRESET;
    }
    if (conn->fd >= 0) {
        /* Closing alone would not remove it from the set while a forked child has the descriptor. */
        epoll_ctl(rondo_wire->epoll, EPOLL_CTL_DEL, conn->fd, NULL);
        close(conn->fd);
    }
    *(conn->prev ? &conn->prev->next : &rondo_wire->conns) = conn->next;
    if (conn->next) {
        conn->next->prev = conn->prev;
    }
    if (conn->sending) {
        conn_disuse(conn);
    }
    conn->next = rondo_wire->ended;
    rondo_wire->ended = conn;
}

/* ---- out ---- */

static void conn_flush(struct rondo_wire_conn *conn)
{
    while (conn->out_from < conn->out_to) {
        ssize_t n = send(conn->fd, conn->out + conn->out_from, conn->out_to - conn->out_from,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            conn_wait_for(conn, conn->events | EPOLLOUT);
            return;
        }
        if (n < 0) {
            /* Keep reading until the stream ends: the peer's last message may be a reason. */
            conn->lost = conn->lost == 0 ? errno : conn->lost;
            if (errno != EPIPE && errno != ECONNRESET) {
                conn->cut = errno; /* which neither recv() nor the next send() will say again */
            }
            conn->out_from = conn->out_to = 0;
            shutdown(conn->fd, SHUT_WR);
            break;
        }
        conn->out_from += (size_t)n;
    }
    conn->out_from = conn->out_to = 0;
    conn_wait_for(conn, conn->events & ~(uint32_t)EPOLLOUT);
}

int rondo_wire_put_bytes(struct rondo_wire_conn *conn, const void *data, size_t bytes)
{
    if (conn->out_to + bytes > RONDO_WIRE_OUT && conn->out_from > 0) {
        memmove(conn->out, conn->out + conn->out_from, conn->out_to - conn->out_from);
        conn->out_to -= conn->out_from;
        conn->out_from = 0;
    }
    if (conn->out_to + bytes > RONDO_WIRE_OUT) {
        return 0;
    }
    memcpy(conn->out + conn->out_to, data, bytes);
    conn->out_to += bytes;
    return 1;
}

int rondo_wire_put(struct rondo_wire_conn *conn, const struct rondo_wire_head *head, const void *data,
                   size_t room)
{
    uint8_t message[RONDO_WIRE_MESSAGE];
    if (conn->out_to - conn->out_from + sizeof(*head) + head->bytes + room > RONDO_WIRE_OUT) {
        return 0;
    }
    memcpy(message, head, sizeof(*head));
    if (head->bytes > 0) {
        memcpy(message + sizeof(*head), data, head->bytes);
    }
    if (!rondo_wire_put_bytes(conn, message, sizeof(*head) + head->bytes)) {
        return 0;
    }
    if (conn->state == RONDO_WIRE_OPEN) {
        conn_flush(conn);
    }
    return 1;
}

/* ---- in ---- */

static int message_is_good(const struct rondo_wire_head *head)
{
    return head->magic == RONDO_WIRE_MAGIC && head->kind > 0 && head->kind < RONDO_WIRE_NUM_KINDS &&
           head->bytes <= RONDO_MSG_BYTES && head->zero == 0;
}

/* Send the proof, for which the output buffer has its first bytes, and what was queued meanwhile. */
static size_t parse_welcome(struct rondo_wire_conn *conn, const uint8_t *at, size_t bytes)
{
    if (bytes < sizeof(conn->welcome)) {
        return 0;
    }
    memcpy(&conn->welcome, at, sizeof(conn->welcome));
    if (!rondo_auth_prove(conn->secret, &conn->hello, &conn->welcome, conn->out)) {
        rondo_wire_count(RONDO_WIRE_DROP_STRANGER);
        rondo_wire_end(conn, ECONNREFUSED); /* another program has that port: the process has ended */
        return 0;
    }
    conn->state = RONDO_WIRE_OPEN;
    rondo_wire_proved(conn);
    conn_flush(conn);
    return sizeof(conn->welcome);
}

/* Parse one message. @return its length; 0: incomplete. */
static size_t parse_message(struct rondo_wire_conn *conn, const uint8_t *at, size_t bytes)
{
    struct rondo_wire_head head;
    if (bytes < sizeof(head)) {
        return 0;
    }
    memcpy(&head, at, sizeof(head));
    if (!message_is_good(&head)) {
        rondo_wire_end(conn, EPROTO);
        return 0;
    }
    if (bytes < sizeof(head) + head.bytes) {
        return 0;
    }
    if (!rondo_wire_dispatch(conn, &head, at + sizeof(head))) {
        rondo_wire_end(conn, EPROTO);
    }
    return sizeof(head) + head.bytes;
}

/* Judge a hello as soon as its first bytes are here, so as not to wait for strangers. @return its length; 0:
 * incomplete, dropped, or waiting. */
static size_t parse_hello(struct rondo_wire_conn *conn)
{
    static const uint32_t magic = RONDO_WIRE_HELLO_MAGIC, look = RONDO_LOOK_MAGIC;
    if (conn->state == RONDO_WIRE_ACCEPTED) {
        size_t n = rondo_min_size(conn->in_bytes, sizeof(magic));
        if (memcmp(conn->in, &magic, n) != 0 && memcmp(conn->in, &look, n) != 0) {
            rondo_wire_count(RONDO_WIRE_DROP_GARBAGE);
            rondo_wire_end(conn, EPROTO);
            return 0;
        }
        if (conn->in_bytes < sizeof(conn->hello)) {
            return 0;
        }
        memcpy(&conn->hello, conn->in, sizeof(conn->hello));
    }
    enum rondo_wire_state named = rondo_wire_name(conn);
    if (named == RONDO_WIRE_ENDED) {
        rondo_wire_end(conn, EPROTO);
    } else {
        conn->state = named;
        rondo_wire->nunnamed -= named == RONDO_WIRE_WELCOMED;
        rondo_wire_pause(conn, named == RONDO_WIRE_WAITING);
    }
    return named == RONDO_WIRE_WELCOMED ? sizeof(conn->hello) : 0;
}

static size_t parse_proof(struct rondo_wire_conn *conn, const uint8_t *at, size_t bytes)
{
    enum rondo_wire_state proved;
    if (bytes < RONDO_AUTH_PROOF) {
        return 0;
    }
    proved = rondo_wire_prove(conn, at);
    if (proved == RONDO_WIRE_ENDED) {
        rondo_wire_end(conn, EPROTO);
        return 0;
    }
    conn->state = proved;
    return RONDO_AUTH_PROOF;
}

/* Parse what comes next. @return its length; 0: incomplete, or not to be handled yet. */
static size_t parse_one(struct rondo_wire_conn *conn, const uint8_t *at, size_t bytes)
{
    switch (conn->state) {
    case RONDO_WIRE_GREETED: return parse_welcome(conn, at, bytes);
    case RONDO_WIRE_WELCOMED: return parse_proof(conn, at, bytes);
    case RONDO_WIRE_OPEN: return parse_message(conn, at, bytes);
    default: return 0;
    }
}

void rondo_wire_parse(struct rondo_wire_conn *conn)
{
    size_t at = 0, n;
    if (conn->state == RONDO_WIRE_ACCEPTED || conn->state == RONDO_WIRE_WAITING) {
        at = parse_hello(conn);
    }
    while ((n = parse_one(conn, conn->in + at, conn->in_bytes - at)) > 0) {
        at += n;
    }
    if (at > 0) {
        conn->in_bytes -= at;
        memmove(conn->in, conn->in + at, conn->in_bytes);
    }
}

static void conn_read(struct rondo_wire_conn *conn)
{
    for (int i = 0; i < READS && conn->state != RONDO_WIRE_ENDED && conn->state != RONDO_WIRE_WAITING; i++) {
        ssize_t n = recv(conn->fd, conn->in + conn->in_bytes, RONDO_WIRE_IN - conn->in_bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n <= 0) {
            if (rondo_wire_is_unproved(conn->state)) {
                rondo_wire_count(conn->state == RONDO_WIRE_WELCOMED ? RONDO_WIRE_DROP_STRANGER
                                                                    : RONDO_WIRE_DROP_GARBAGE);
            }
            rondo_wire_end(conn, n < 0 ? errno : conn->cut);
            return;
        }
        conn->in_bytes += (size_t)n;
        rondo_wire_heard(conn, rondo_now_ns());
        rondo_wire_parse(conn);
    }
}

static void conn_connected(struct rondo_wire_conn *conn)
{
    int error = 0;
    socklen_t bytes = sizeof(error);
    if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0) {
        rondo_wire_end(conn, error ? error : EIO);
        return;
    }
    if (send(conn->fd, &conn->hello, sizeof(conn->hello), MSG_NOSIGNAL | MSG_DONTWAIT) !=
        sizeof(conn->hello)) { /* the send buffer is empty, so all of it fits */
        rondo_wire_end(conn, errno);
        return;
    }
    conn->state = RONDO_WIRE_GREETED;
    conn_wait_for(conn, EPOLLIN);
}

static void conn_progress(struct rondo_wire_conn *conn, uint32_t events)
{
    if (conn->state == RONDO_WIRE_ENDED) {
        return; /* ended by what another connection brought in this round of events */
    }
    if (conn->state == RONDO_WIRE_CONNECTING) {
        if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) {
            conn_connected(conn);
        }
        return;
    }
    if (conn->state == RONDO_WIRE_WAITING && (events & (EPOLLERR | EPOLLHUP))) {
        rondo_wire_end(conn, ECONNRESET);
        return;
    }
    if (events & EPOLLOUT) {
        conn_flush(conn);
    }
    conn_read(conn);
}

void rondo_wire_progress(void)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(rondo_wire->epoll, events, EVENTS, 0);
    if (rondo_wire->nagain > 0) {
        call_waiting();
    }
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr) {
            /* Connections that end stay in memory until the lock is given back. */
            conn_progress(events[i].data.ptr, events[i].events);
        }
    }
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr == NULL) {
            rondo_wire_accept();
        }
    }
}

/* ---- new connections ---- */

/* Set the socket device's options; what is written must arrive within RONDO_SOCKET_TIMEOUT, too. */
static void conn_options(int fd)
{
    unsigned ms = (unsigned)(rondo_params()->socket_timeout / 1000000);
    rondo_socket_options(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

void rondo_wire_conn_accepted(int fd)
{
    struct rondo_wire_conn *conn;
    if (RONDO_NEW(conn, "a control connection") != RONDO_SUCCESS) {
        close(fd);
        return;
    }
    conn->state = RONDO_WIRE_ACCEPTED;
    conn->incoming = 1;
    conn_options(fd);
    if (conn_add(conn, fd, EPOLLIN) == NULL) {
        rondo_wire_count(RONDO_WIRE_DROP_EXCESS);
        close(fd);
        conn_free(conn);
        return;
    }
    rondo_wire->nunnamed++;
    conn_read(conn);
}

/* Get the address at which the process listens. @return its bytes; 0: it does not listen. */
static socklen_t addr_of(const struct rondo_wire_conn *conn, union rondo_socket_addr *addr)
{
    memset(addr, 0, sizeof(*addr));
    memcpy(addr, conn->addr, sizeof(conn->addr));
    if (addr->any.sa_family == AF_INET6) {
        if (IN6_IS_ADDR_LINKLOCAL(&addr->in6.sin6_addr)) {
            /* The peer's scope is the number of an interface on its own host. */
            addr->in6.sin6_scope_id = rondo_wire->scope;
        }
        return addr->in6.sin6_port ? sizeof(addr->in6) : 0;
    }
    return addr->any.sa_family == AF_INET && addr->in.sin_port ? sizeof(addr->in) : 0;
}

/* @return 0: conn->error says why not. */
static int conn_dial(struct rondo_wire_conn *conn)
{
    union rondo_socket_addr addr;
    socklen_t bytes = addr_of(conn, &addr);
    int fd = socket(addr.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        conn_options(fd);
        if ((connect(fd, &addr.any, bytes) == 0 || errno == EINPROGRESS) &&
            conn_add(conn, fd, EPOLLOUT) != NULL) {
            return 1;
        }
    }
    conn->error = errno;
    if (fd >= 0) {
        close(fd);
    }
    return 0;
}

static rondo_status first_dial(struct rondo_wire_conn *conn, const struct rondo_peer *peer)
{
    union rondo_socket_addr addr;
    char text[RONDO_SOCKET_ADDR_TEXT];
    memcpy(conn->addr, peer->control_addr, sizeof(conn->addr));
    if (addr_of(conn, &addr) == 0) {
        return rondo_fail_quiet(RONDO_INTERNAL_ERROR,
                                "rank %d on host %.*s does not listen for control messages", peer->rank,
                                RONDO_HOST_LEN - 1, peer->host);
    }
    if (conn_dial(conn)) {
        return RONDO_SUCCESS;
    }
    rondo_socket_addr_text(text, &addr);
    return rondo_fail_quiet(conn->error == ECONNREFUSED ? RONDO_REMOTE_ERROR : RONDO_SYSTEM_ERROR,
                            "host %s cannot connect to rank %d (pid %d on host %.*s at %s) for control "
                            "messages: %s; check ulimit -n and RONDO_SOCKET_IFNAME",
                            rondo_log_host(), peer->rank, peer->pid, RONDO_HOST_LEN - 1, peer->host, text,
                            strerror(conn->error));
}

rondo_status rondo_wire_conn_to(struct rondo_control *control, int rank, struct rondo_wire_conn **conn_out)
{
    const struct rondo_peer *peer = &control->peers[rank];
    uint64_t own = rondo_wire_process(&control->peers[control->rank]), process = rondo_wire_process(peer);
    struct rondo_wire_conn *conn = rondo_wire_conn_of(own, process);
    rondo_status status;
    *conn_out = conn;
    if (conn) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(RONDO_NEW(conn, "a control connection"));
    RONDO_TRY_GOTO(rondo_calloc(&conn->out, 1, RONDO_WIRE_OUT, "a control connection"), fail);
    conn->state = RONDO_WIRE_CONNECTING;
    conn->process = process;
    conn->own = own;
    conn->hello = (struct rondo_auth_hello){ .magic = RONDO_WIRE_HELLO_MAGIC,
                                             .version = RONDO_WIRE_VERSION,
                                             .comm_hash = control->head->comm_hash,
                                             .client = own,
                                             .server = process,
                                             .client_rank = control->rank,
                                             .server_rank = rank };
    memcpy(conn->secret, control->wire->secret, sizeof(conn->secret));
    RONDO_TRY_GOTO(rondo_auth_nonce(conn->hello.nonce), fail);
    conn->out_to = RONDO_AUTH_PROOF; /* its place, before all messages */
    RONDO_TRY_GOTO(first_dial(conn, peer), fail);
    rondo_wire_conn_use(conn);
    *conn_out = conn;
    return RONDO_SUCCESS;
fail:
    if (conn->error == ECONNREFUSED) {
        rondo_wire_lost(conn); /* refused at once, as on the loopback interface */
    }
    conn_free(conn);
    return status;
}

/* ---- the process's wire ---- */

rondo_status rondo_wire_need(void)
{
    static uint32_t number;
    struct rondo_wire *wire;
    if (rondo_wire) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(RONDO_NEW(wire, "the control connections"));
    wire->listener = -1;
    wire->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (wire->epoll < 0) {
        rondo_free(wire);
        return rondo_fail(RONDO_SYSTEM_ERROR,
                          "cannot create the epoll descriptor of control connections on %s: %m; raise the "
                          "limit on open files (ulimit -n)",
                          rondo_log_host());
    }
    wire->number = ++number;
    rondo_wire = wire;
    return RONDO_SUCCESS;
}

static int drain_wanted(void)
{
    for (const struct rondo_wire_conn *conn = rondo_wire->conns; conn; conn = conn->next) {
        if (conn->out_from < conn->out_to && conn->state != RONDO_WIRE_WAITING) {
            return 1;
        }
    }
    return 0;
}

/* @return when the first of the calls that wait is due, if that is before end. */
static int64_t next_call(int64_t end)
{
    for (const struct rondo_wire_conn *conn = rondo_wire->conns; conn; conn = conn->next) {
        end = conn->again_ns != 0 && conn->again_ns < end ? conn->again_ns : end;
    }
    return end;
}

/* Write the reasons and leaves still queued: without them peers would take this process for dead. A new
 * connection writes only when its peer's control thread has answered. */
static void drain(void)
{
    int64_t end = rondo_now_ns() + DRAIN_NS, now;
    while (drain_wanted() && (now = rondo_now_ns()) < end) {
        struct pollfd pollfd = { .fd = rondo_wire->epoll, .events = POLLIN };
        int64_t pause_ns = next_call(end) - now;
        poll(&pollfd, 1, 1 + (pause_ns > 0 ? (int)(pause_ns / 1000000) : 0));
        rondo_wire_progress();
    }
}

void rondo_wire_release(void)
{
    struct rondo_wire *wire = rondo_wire;
    const struct rondo_wire_head bye = {
        .magic = RONDO_WIRE_MAGIC, .kind = RONDO_WIRE_BYE, .from = -1, .to = -1
    };
    if (wire->controls || wire->listens > 0) {
        return;
    }
    for (struct rondo_wire_conn *conn = wire->conns, *next; conn; conn = next) {
        next = conn->next;
        if (conn->out) {
            rondo_wire_put(conn, &bye, NULL, 0);
        }
    }
    drain();
    rondo_wire_looks_end();
    while (wire->conns) {
        /* Unread bytes would turn the close into a reset, which may lose written ones. */
        uint8_t unread[RONDO_WIRE_IN];
        for (int i = 0; i < READS && recv(wire->conns->fd, unread, sizeof(unread), MSG_DONTWAIT) > 0; i++) {
        }
        rondo_wire_end(wire->conns, 0);
    }
    rondo_wire_settle();
    close(wire->epoll);
    rondo_free(wire);
    rondo_wire = NULL;
}
