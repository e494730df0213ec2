#include "base/shm_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/wait.h"

#define STOP_EVENT UINT64_MAX

enum {
    RETRY_MS = 1, /* pause of a client while the queue of the listening socket is full */
    REST_MS = 20  /* pause of the thread while it has no descriptor to accept a client */
};

struct offer {
    struct offer *next;
    uint64_t key;
    int fd, listener;
};

/* All fields are under the lock, which is never held while waiting. */
struct server {
    pthread_t thread;
    int epoll, event; /* event wakes the thread to end */
    int stop;
    struct offer *offers;
};

static pthread_mutex_t server_lock = PTHREAD_MUTEX_INITIALIZER;
static struct server *server; /* NULL: nothing is offered */

/* @return bytes of the address; 0: it is malformed. */
static socklen_t address_fill(struct sockaddr_un *un, const char *address)
{
    size_t length = strlen(address);
    memset(un, 0, sizeof *un);
    un->sun_family = AF_UNIX;
    if (address[0] != '@' || length > sizeof un->sun_path) {
        return 0;
    }
    memcpy(un->sun_path + 1, address + 1, length - 1);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
}

/* Get the credentials of the other end of the connection. */
static int is_same_user(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

/* ---- one message: 0 and a descriptor, or the errno that says why there is none ---- */

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* Does not wait, since the queue of the new socket has room. fd -1: send none. @return -1 with errno. */
static int answer_send(int client, int32_t error, int fd)
{
    union control control = { .bytes = { 0 } };
    struct iovec data = { &error, sizeof error };
    struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1 };
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_LEN(sizeof fd);
        control.align = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof fd),
                                          .cmsg_level = SOL_SOCKET,
                                          .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(&control.align), &fd, sizeof fd);
    }
    return sendmsg(client, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof error ? 0 : -1;
}

static int answer_receive(int fd, const char **why)
{
    union control control;
    int32_t error = 0;
    int received;
    struct iovec data = { &error, sizeof error };
    /* Room for one descriptor: CMSG_SPACE has room for a second one, which nobody would close. */
    struct msghdr message = { .msg_iov = &data,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = CMSG_LEN(sizeof received) };
    const struct cmsghdr *cmsg;
    ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    cmsg = n >= 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (cmsg != NULL && cmsg->cmsg_level == SOL_SOCKET && cmsg->cmsg_type == SCM_RIGHTS &&
        cmsg->cmsg_len == CMSG_LEN(sizeof received)) {
        memcpy(&received, CMSG_DATA(cmsg), sizeof received);
        return received;
    }
    if (n == (ssize_t)sizeof error && error != 0) {
        *why = error == EACCES ? "its owner hands it to its own user only" : strerror(error);
    } else if (n > 0 && (message.msg_flags & MSG_CTRUNC) != 0) {
        *why = "no descriptor is left to receive it with; raise ulimit -n";
    } else {
        *why = n < 0 && errno != ECONNRESET ? strerror(errno) : "its owner ended before it answered";
    }
    return -1;
}

/* ---- the thread ---- */

/* @return 1 if a client waits, but there is no free descriptor to accept it. */
static int offer_answer(const struct offer *offer)
{
    int client = accept4(offer->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0) {
        return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    }
    if (!is_same_user(client)) {
        answer_send(client, EACCES, -1);
    } else if (answer_send(client, 0, offer->fd) != 0) {
        answer_send(client, errno, -1);
    }
    close(client);
    return 0;
}

/* @return 1 to pause, because a client has to wait. */
static int server_progress(const struct server *s, const struct epoll_event *events, int n)
{
    int rest = 0;
    for (int i = 0; i < n; i++) {
        for (const struct offer *offer = s->offers; offer != NULL; offer = offer->next) {
            if (offer->key == events[i].data.u64) { /* else it was withdrawn meanwhile */
                rest |= offer_answer(offer);
            }
        }
    }
    return rest;
}

static void *server_main(void *arg)
{
    const struct server *s = arg;
    struct epoll_event events[16];
    int stop = 0, rest;
    while (!stop) {
        int n = epoll_wait(s->epoll, events, (int)RONDO_COUNTOF(events), -1);
        pthread_mutex_lock(&server_lock);
        stop = s->stop;
        rest = server_progress(s, events, n);
        pthread_mutex_unlock(&server_lock);
        if (rest) {
            poll(NULL, 0, REST_MS);
        }
    }
    return NULL;
}

static void offer_free(struct offer *offer)
{
    if (offer->listener >= 0) {
        close(offer->listener);
    }
    rondo_free(offer);
}

static void server_free(struct server *s)
{
    while (s->offers != NULL) {
        struct offer *next = s->offers->next;
        offer_free(s->offers);
        s->offers = next;
    }
    if (s->epoll >= 0) {
        close(s->epoll);
    }
    if (s->event >= 0) {
        close(s->event);
    }
    rondo_free(s);
}

/* A forked child has the memory and the descriptors, but no thread; the parent's descriptors stay open. */
static void in_child(void)
{
    if (rondo_fork_lock(&server_lock) && server != NULL) {
        server_free(server);
    }
    server = NULL;
}
RONDO_AT_FORK(in_child)

static rondo_status server_start_thread(struct server *s)
{
    rondo_status status = rondo_thread_start(&s->thread, "rondo-shm", server_main, s);
    return status == RONDO_SUCCESS
               ? RONDO_SUCCESS
               : rondo_fail(status, "%s, or use another RONDO_SHM_MODE", rondo_error_text());
}

static rondo_status socket_failed(const char *what)
{
    return rondo_fail(RONDO_SYSTEM_ERROR, "cannot %s on %s: %m; %s", what, rondo_log_host(),
                      errno == EMFILE   ? "raise the limit of open files (ulimit -n)"
                      : errno == ENFILE ? "all open files of the host are in use (sysctl fs.file-max)"
                                        : "use another RONDO_SHM_MODE");
}

/* Called with the lock held. */
static rondo_status server_start(struct server **server_out)
{
    struct epoll_event stop = { .events = EPOLLIN, .data.u64 = STOP_EVENT };
    struct server *s;
    rondo_status status;
    RONDO_TRY(RONDO_NEW(s, "the thread that shares memory"));
    s->event = -1;
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll >= 0) {
        s->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    }
    if (s->event < 0 || epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->event, &stop) != 0) {
        status = socket_failed("make the descriptors of the thread that shares memory");
        goto fail;
    }
    RONDO_TRY_GOTO(server_start_thread(s), fail);
    *server_out = s;
    return RONDO_SUCCESS;
fail:
    server_free(s);
    return status;
}

/* End a server that offers nothing. Called with the lock held; releases it. */
static void server_end_unlock(struct server *s)
{
    uint64_t one = 1;
    s->stop = 1;
    server = NULL;
    pthread_mutex_unlock(&server_lock);
    while (write(s->event, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    pthread_join(s->thread, NULL);
    server_free(s);
}

/* ---- offers ---- */

static rondo_status offer_new(struct offer **offer_out, int fd, uint64_t key, const char *address)
{
    struct sockaddr_un un;
    socklen_t bytes = address_fill(&un, address);
    struct offer *offer;
    rondo_status status;
    RONDO_TRY(RONDO_NEW(offer, "an offer of shared memory"));
    offer->key = key;
    offer->fd = fd;
    offer->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (offer->listener < 0 || bind(offer->listener, (const struct sockaddr *)&un, bytes) != 0 ||
        listen(offer->listener, SOMAXCONN) != 0) {
        status = socket_failed("listen on a Unix socket for those who share memory");
        offer_free(offer);
        return status;
    }
    *offer_out = offer;
    return RONDO_SUCCESS;
}

/* Called with the lock held. */
static rondo_status server_add(struct server *s, struct offer *offer)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = offer->key };
    if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, offer->listener, &event) != 0) {
        return socket_failed("watch a Unix socket");
    }
    offer->next = s->offers;
    s->offers = offer;
    return RONDO_SUCCESS;
}

rondo_status rondo_shm_offer(int fd, uint64_t key, const char *address)
{
    struct offer *offer = NULL;
    rondo_status status;
    RONDO_TRY(offer_new(&offer, fd, key, address));
    pthread_mutex_lock(&server_lock);
    status = server == NULL ? server_start(&server) : RONDO_SUCCESS;
    if (status == RONDO_SUCCESS) {
        status = server_add(server, offer);
    }
    if (status != RONDO_SUCCESS) {
        offer_free(offer);
        if (server != NULL && server->offers == NULL) {
            server_end_unlock(server);
            return status;
        }
    }
    pthread_mutex_unlock(&server_lock);
    return status;
}

void rondo_shm_withdraw(uint64_t key)
{
    struct offer **link, *offer;
    pthread_mutex_lock(&server_lock);
    if (server == NULL) {
        pthread_mutex_unlock(&server_lock);
        return;
    }
    for (link = &server->offers; *link != NULL && (*link)->key != key; link = &(*link)->next) {
    }
    offer = *link;
    if (offer != NULL) {
        *link = offer->next;
        epoll_ctl(server->epoll, EPOLL_CTL_DEL, offer->listener, NULL);
        shutdown(
            offer->listener,
            SHUT_RDWR); /* a forked child may still hold it: refuse clients, instead of letting them wait */
        offer_free(offer);
    }
    if (server->offers == NULL) {
        server_end_unlock(server);
        return;
    }
    pthread_mutex_unlock(&server_lock);
}

/* ---- the client ---- */

/* @return -1 with errno; EAGAIN: the queue stayed full. */
static int connect_until(int fd, const struct sockaddr_un *un, socklen_t bytes, int64_t end_ns)
{
    while (connect(fd, (const struct sockaddr *)un, bytes) != 0) {
        if ((errno != EAGAIN && errno != EINTR) || rondo_now_ns() >= end_ns) {
            return -1;
        }
        poll(NULL, 0, RETRY_MS);
    }
    return 0;
}

static int wait_until(int fd, int64_t end_ns)
{
    struct pollfd events = { .fd = fd, .events = POLLIN };
    int64_t left_ns;
    while ((left_ns = end_ns - rondo_now_ns()) > 0) {
        if (poll(&events, 1, (int)((left_ns + 999999) / 1000000)) > 0) {
            return 0;
        }
    }
    errno = EAGAIN;
    return -1;
}

static int ask(int fd, const char *address, int64_t end_ns, const char **why)
{
    struct sockaddr_un un;
    socklen_t bytes = address_fill(&un, address);
    if (connect_until(fd, &un, bytes, end_ns) != 0) {
        *why = errno == ECONNREFUSED
                   ? "nobody offers it there: its owner has ended, or is in another network namespace"
               : errno == EAGAIN ? "too many ask its owner at once"
                                 : strerror(errno);
        return -1;
    }
    if (!is_same_user(fd)) {
        *why = "it belongs to another user";
        return -1;
    }
    if (wait_until(fd, end_ns) != 0) {
        *why = "its owner does not answer; is it stopped?";
        return -1;
    }
    return answer_receive(fd, why);
}

int rondo_shm_receive(const char *address, int timeout_ms, const char **why)
{
    int64_t end_ns = rondo_now_ns() + rondo_ms_to_ns(timeout_ms);
    int received, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        *why = errno == EMFILE ? "no descriptor is left for a socket; raise ulimit -n" : strerror(errno);
        return -1;
    }
    received = ask(fd, address, end_ns, why);
    close(fd);
    return received;
}
