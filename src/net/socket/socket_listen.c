/* A device's listener: accepts connections and hands them to their comms. Drops and counts garbage,
 * strangers and silent connections. */
#include "net/socket/socket.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/wait.h"

enum {
    BACKLOG = 4096, /* the kernel limits it to somaxconn */
    BATCH = 64,
    NEAR_US = 1000 /* a host that answers sooner is in the same building */
};

static void options_keepalive(int fd)
{
    int on = 1, seconds = (int)(rondo_params()->socket_timeout / 1000000000);
    int interval = seconds < 10 ? 1 : seconds / 10;
    int idle = seconds < 2 ? 1 : seconds / 2, probes = (seconds - idle) / interval;
    probes = probes < 1 ? 1 : probes;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

void rondo_socket_options(int fd)
{
    int on = 1, sndbuf = (int)rondo_params()->socket_sndbuf, rcvbuf = (int)rondo_params()->socket_rcvbuf;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    options_keepalive(fd);
    if (sndbuf > 0) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf);
    }
    if (rcvbuf > 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof rcvbuf);
    }
}

/* ---- congestion control ---- */

int rondo_socket_paces_in_vain(const char *name, uint32_t rtt_us)
{
    return strncmp(name, "bbr", 3) == 0 && rtt_us > 0 && rtt_us < NEAR_US;
}

static int names_one(const char *said)
{
    return said[0] != '\0' && strcmp(said, "auto") != 0 && strcmp(said, "system") != 0;
}

static int congestion_set(int fd, const char *name)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

rondo_status rondo_socket_congestion_check(const char *name)
{
    rondo_status status = RONDO_SUCCESS;
    if (names_one(name)) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && !congestion_set(fd, name)) {
            status = rondo_fail(RONDO_INVALID_ARGUMENT,
                                "RONDO_SOCKET_CONGESTION=%s cannot be used on host %s (%m): say auto, or one "
                                "of /proc/sys/net/ipv4/tcp_allowed_congestion_control",
                                name, rondo_log_host());
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    return status;
}

void rondo_socket_congestion(int fd)
{
    const char *said = rondo_params()->socket_congestion;
    struct tcp_info info;
    char name[32] = "";
    socklen_t bytes = sizeof(name) - 1, info_bytes = sizeof(info);
    memset(&info, 0, sizeof(info));
    if (names_one(said)) {
        (void)congestion_set(fd, said);
    } else if (strcmp(said, "auto") == 0 && getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) == 0 &&
               getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &info_bytes) == 0 &&
               rondo_socket_paces_in_vain(name, info.tcpi_rtt) && !congestion_set(fd, "cubic")) {
        (void)congestion_set(fd, "reno"); /* which everybody may use */
    }
}

/* ---- connections that have not proved who they are ---- */

/* Log a line whenever the number has doubled: a port scan does not fill the log. */
static void count_drop(struct rondo_socket_device *device, enum rondo_socket_drop why)
{
    static const char *const what[] = { "an invalid greeting", "a wrong proof, version or communicator",
                                        "silence", "too many at a time" };
    uint64_t all = 0;
    device->dropped[why]++;
    for (int i = 0; i < RONDO_SOCKET_NUM_DROPS; i++) {
        all += device->dropped[i];
    }
    if ((all & (all - 1)) == 0) {
        RONDO_INFO(RONDO_SUBSYS_NET,
                   "net: %llu connections to %s of %s were dropped, the last one for %s; something else uses "
                   "port %u?",
                   (unsigned long long)all, device->text, device->name, what[why], ntohs(device->port));
    }
}

static void unnamed_forget(struct rondo_socket_device *device, struct rondo_socket_unnamed *unnamed)
{
    *(unnamed->prev ? &unnamed->prev->next : &device->oldest) = unnamed->next;
    *(unnamed->next ? &unnamed->next->prev : &device->newest) = unnamed->prev;
    device->nunnamed -= !unnamed->welcomed;
    epoll_ctl(device->epoll, EPOLL_CTL_DEL, unnamed->fd,
              NULL); /* a forked child may still hold the socket, and then closing does not remove it */
    rondo_free(unnamed);
}

static void unnamed_drop(struct rondo_socket_device *device, struct rondo_socket_unnamed *unnamed,
                         enum rondo_socket_drop why)
{
    int fd = unnamed->fd;
    unnamed_forget(device, unnamed);
    close(fd);
    count_drop(device, why);
}

static int unnamed_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur / 4 > RONDO_SOCKET_UNNAMED) {
        return RONDO_SOCKET_UNNAMED;
    }
    return limit.rlim_cur < 4 ? 1 : (int)(limit.rlim_cur / 4);
}

/* Drop the oldest connection without a right hello: it had the most time. @return 0: there is none */
static int oldest_drop(struct rondo_socket_device *device)
{
    struct rondo_socket_unnamed *at = device->oldest;
    while (at && at->welcomed) {
        at = at->next;
    }
    if (at) {
        unnamed_drop(device, at, RONDO_SOCKET_EXCESS);
    }
    return at != NULL;
}

static void silent_drop(struct rondo_socket_device *device, int64_t now_ns)
{
    struct rondo_socket_unnamed *at = device->oldest, *next;
    for (; at && now_ns - at->since_ns > rondo_ms_to_ns(RONDO_SOCKET_SILENT_MS); at = next) {
        next = at->next;
        if (!at->welcomed) { /* else its sender may be busy elsewhere, as any sender may */
            unnamed_drop(device, at, RONDO_SOCKET_SILENT);
        }
    }
}

/* Find the comm that a hello is for; NULL: none. */
static struct rondo_socket_comm *comm_of(const struct rondo_socket_device *device,
                                         const struct rondo_auth_hello *hello)
{
    struct rondo_socket_comm *comm = hello->version == RONDO_SOCKET_VERSION ? device->waiting : NULL;
    while (comm && comm->cookie != hello->server) {
        comm = comm->next;
    }
    return comm && hello->client_rank == comm->peer.rank && hello->server_rank == comm->peer.self &&
                   hello->index < (uint32_t)comm->nconns && comm->conn[hello->index].fd < 0
               ? comm
               : NULL;
}

/* A sender calls once for each place; whoever has read its hello on the network may call in its name. */
static int too_many_claims(const struct rondo_socket_device *device, const struct rondo_auth_hello *hello)
{
    int claims = 0;
    for (const struct rondo_socket_unnamed *at = device->oldest; at; at = at->next) {
        claims += at->welcomed && at->hello.server == hello->server && at->hello.index == hello->index;
    }
    return claims >= RONDO_SOCKET_CLAIMS;
}

static void unnamed_welcome(struct rondo_socket_device *device, struct rondo_socket_unnamed *unnamed)
{
    struct rondo_auth_welcome *welcome = &unnamed->welcome;
    struct rondo_socket_comm *comm = comm_of(device, &unnamed->hello);
    /* The connection is new: its send buffer has room for the welcome. */
    if (!comm || too_many_claims(device, &unnamed->hello) ||
        rondo_auth_answer(comm->peer.secret, &unnamed->hello, welcome) != RONDO_SUCCESS ||
        send(unnamed->fd, welcome, sizeof *welcome, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof *welcome) {
        unnamed_drop(device, unnamed, RONDO_SOCKET_STRANGER);
        return;
    }
    unnamed->welcomed = 1;
    unnamed->bytes = 0;
    device->nunnamed--;
}

static void unnamed_named(struct rondo_socket_device *device, struct rondo_socket_unnamed *unnamed)
{
    const struct rondo_auth_hello *hello = &unnamed->hello;
    struct rondo_socket_comm *comm = comm_of(device, hello); /* again: much may have happened since */
    if (!comm || !rondo_auth_proved(comm->peer.secret, hello, &unnamed->welcome, unnamed->proof)) {
        unnamed_drop(device, unnamed, RONDO_SOCKET_STRANGER);
        return;
    }
    rondo_socket_options(unnamed->fd);
    rondo_socket_congestion(unnamed->fd);
    comm->conn[hello->index].fd = unnamed->fd;
    comm->conn[hello->index].from = hello->client;
    comm->conn[hello->index].state = RONDO_SOCKET_READY;
    comm->narrived++;
    unnamed_forget(device, unnamed);
}

/* Read no byte beyond the hello, then none beyond the proof. */
static void unnamed_read(struct rondo_socket_device *device, struct rondo_socket_unnamed *unnamed)
{
    static const uint32_t magic = RONDO_SOCKET_MAGIC;
    char *to = unnamed->welcomed ? (char *)unnamed->proof : (char *)&unnamed->hello;
    size_t wanted = unnamed->welcomed ? sizeof unnamed->proof : sizeof unnamed->hello;
    ssize_t n = recv(unnamed->fd, to + unnamed->bytes, wanted - unnamed->bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    unnamed->bytes += n > 0 ? (size_t)n : 0;
    if (n <= 0 ||
        (!unnamed->welcomed && memcmp(to, &magic, rondo_min_size(unnamed->bytes, sizeof magic)) != 0)) {
        unnamed_drop(device, unnamed, unnamed->welcomed ? RONDO_SOCKET_STRANGER : RONDO_SOCKET_GARBAGE);
    } else if (unnamed->bytes == wanted) {
        (unnamed->welcomed ? unnamed_named : unnamed_welcome)(device, unnamed);
    }
}

static void unnamed_new(struct rondo_socket_device *device, int fd, int64_t now_ns)
{
    struct rondo_socket_unnamed *unnamed;
    while (device->nunnamed >= unnamed_limit()) {
        oldest_drop(device);
    }
    if (RONDO_NEW(unnamed, "a connection") != RONDO_SUCCESS) {
        close(fd);
        return;
    }
    unnamed->fd = fd;
    unnamed->since_ns = now_ns;
    unnamed->prev = device->newest;
    *(device->newest ? &device->newest->next : &device->oldest) = unnamed;
    device->newest = unnamed;
    device->nunnamed++;
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = unnamed };
    if (epoll_ctl(device->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        unnamed_drop(device, unnamed, RONDO_SOCKET_EXCESS);
        return;
    }
    unnamed_read(device, unnamed);
}

/* ---- accepting ---- */

int rondo_socket_someone_calls(int listener)
{
    struct pollfd pollfd = { .fd = listener, .events = POLLIN };
    return poll(&pollfd, 1, 0) != 0;
}

static void accept_some(struct rondo_socket_device *device, int64_t now_ns)
{
    for (int i = 0; i < BATCH; i++) {
        int fd = accept4(device->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            device->accept_errno = 0;
            unnamed_new(device, fd, now_ns);
        } else if ((errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
            int error = errno;
            if (!rondo_socket_someone_calls(device->listener)) {
                device->accept_errno = 0;
                return;
            }
            if (!oldest_drop(device)) {
                device->accept_errno = error;
                return;
            }
        } else if (errno == EAGAIN) {
            device->accept_errno = 0;
            return;
        } /* else the connection ended before it was accepted */
    }
}

static void accept_locked(struct rondo_socket_device *device)
{
    struct epoll_event event[BATCH];
    int64_t now_ns = rondo_now_ns();
    int n = epoll_wait(device->epoll, event, BATCH, 0), more = 0;
    __atomic_store_n(&device->looked_ns, now_ns, __ATOMIC_RELAXED);
    for (int i = 0; i < n; i++) { /* each of these frees only itself; accept may free others */
        if (event[i].data.ptr) {
            unnamed_read(device, event[i].data.ptr);
        } else {
            more = 1;
        }
    }
    silent_drop(device, now_ns);
    if (more) {
        accept_some(device, now_ns);
    }
}

void rondo_socket_accept(struct rondo_socket_device *device)
{
    if (pthread_mutex_trylock(&device->lock) == 0) {
        if (device->listener >= 0) {
            accept_locked(device);
        }
        pthread_mutex_unlock(&device->lock);
    } /* else another thread serves it */
}

/* ---- the listener ---- */

static void listener_close(struct rondo_socket_device *device)
{
    const uint64_t *dropped = device->dropped;
    while (device->oldest) {
        int fd = device->oldest->fd;
        unnamed_forget(device, device->oldest);
        close(fd);
    }
    if (device->epoll >= 0) {
        close(device->epoll);
    }
    if (device->listener >= 0) {
        close(device->listener);
        RONDO_INFO(
            RONDO_SUBSYS_NET,
            "net: %s of %s no longer listens; of the dropped connections %llu sent an invalid greeting, "
            "%llu had a wrong proof, version or "
            "communicator, %llu were silent, %llu too many",
            device->text, device->name, (unsigned long long)dropped[RONDO_SOCKET_GARBAGE],
            (unsigned long long)dropped[RONDO_SOCKET_STRANGER],
            (unsigned long long)dropped[RONDO_SOCKET_SILENT],
            (unsigned long long)dropped[RONDO_SOCKET_EXCESS]);
    }
    device->epoll = device->listener = -1;
}

void rondo_socket_forget(struct rondo_socket_device *device)
{
    if (!rondo_fork_lock(&device->lock)) {
        return;
    }
    for (struct rondo_socket_unnamed *at = device->oldest; at; at = at->next) {
        close(at->fd); /* the set is the parent's too: leave it as it is */
    }
    if (device->listener >= 0) {
        close(device->epoll);
        close(device->listener);
    }
}

static int listener_bind(struct rondo_socket_device *device)
{
    union rondo_socket_addr addr = device->addr;
    socklen_t bytes = rondo_socket_addr_bytes(&addr);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = NULL };
    device->listener = socket(addr.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    device->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (device->listener < 0 || device->epoll < 0) {
        return -1;
    }
    rondo_socket_options(device->listener); /* the receive buffer size applies from the first packet */
    if (bind(device->listener, &addr.any, bytes) != 0 || listen(device->listener, BACKLOG) != 0 ||
        getsockname(device->listener, &addr.any, &bytes) != 0) {
        return -1;
    }
    device->port = addr.any.sa_family == AF_INET6 ? addr.in6.sin6_port : addr.in.sin_port;
    return epoll_ctl(device->epoll, EPOLL_CTL_ADD, device->listener, &event);
}

static rondo_status listener_open(struct rondo_socket_device *device)
{
    memset(device->dropped, 0, sizeof device->dropped);
    device->accept_errno = 0;
    if (listener_bind(device) != 0) {
        rondo_status status = rondo_fail(RONDO_SYSTEM_ERROR,
                                         "host %s cannot listen at %s of %s (%m); check ulimit -n, "
                                         "net.ipv4.ip_local_port_range, and that the interface is up",
                                         rondo_log_host(), device->text, device->name);
        listener_close(device);
        return status;
    }
    RONDO_INFO(RONDO_SUBSYS_NET, "net: %s of %s listens at port %u", device->text, device->name,
               ntohs(device->port));
    return RONDO_SUCCESS;
}

rondo_status rondo_socket_listen(struct rondo_socket_comm *comm)
{
    struct rondo_socket_device *device = comm->device;
    rondo_status status = RONDO_SUCCESS;
    pthread_mutex_lock(&device->lock);
    if (device->refs == 0) {
        status = listener_open(device);
    }
    if (status == RONDO_SUCCESS) {
        device->refs++;
        comm->next = device->waiting;
        comm->waiting = 1;
        device->waiting = comm;
        __atomic_add_fetch(&device->nwaiting, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

/* Connections that were welcomed for this comm and have not proved anything: nobody waits for them now. */
static void welcomed_close(struct rondo_socket_device *device, const struct rondo_socket_comm *comm)
{
    for (struct rondo_socket_unnamed *at = device->oldest, *next; at; at = next) {
        int fd = at->fd;
        next = at->next;
        if (at->welcomed && at->hello.server == comm->cookie) {
            unnamed_forget(device, at);
            close(fd);
        }
    }
}

void rondo_socket_unlisten(struct rondo_socket_comm *comm, int gone)
{
    struct rondo_socket_device *device = comm->device;
    pthread_mutex_lock(&device->lock);
    struct rondo_socket_comm **at = &device->waiting;
    while (*at && *at != comm) {
        at = &(*at)->next;
    }
    if (*at) {
        *at = comm->next;
        comm->waiting = 0;
        welcomed_close(device, comm);
        __atomic_sub_fetch(&device->nwaiting, 1, __ATOMIC_RELAXED);
    }
    if (gone && --device->refs == 0) {
        listener_close(device);
    }
    pthread_mutex_unlock(&device->lock);
}
