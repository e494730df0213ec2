/*
 * An NCCL net plugin (version 11) for tests: messages over TCP on the loopback, and NetPlugin events for each
 * of them through the callback of its init. It updates and stops them, stops them again, and a thread of its
 * own makes further ones while a message is in flight. mpi_profiler --net plugin counts them (prof_check.h).
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "prof_check.h"
#include "unit/mock_net_plugin.h"

enum { SYSTEM = 2, USAGE = 5, ROOM = 64 /* requests of a comm */, HEAD = 8 };

struct request {
    struct comm *comm;
    int used, done;
    char *data;
    size_t bytes, moved; /* moved: of head and data */
    uint32_t head[2];    /* bytes, tag */
    int tag;
    void *parent, *event, *other; /* other: of the thread */
    int updated;
};

struct comm {
    struct comm *next;
    int fd, is_send;
    uint64_t first, last; /* requests [first, last) are in flight, at their number % ROOM */
    struct request request[ROOM];
};

struct handle {
    uint16_t port;
    int fd; /* of the connecting end, + 1 */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of comms, and of what the thread looks at */
static pthread_t thread;
static struct comm *comms;
static int contexts, ends;
static profile_fn profile;

/* ---- events ---- */

static void tell(void **event, enum rondo_net_what what, void *parent)
{
    int data = -PROF_CHECK_KIND;
    (void)profile(event, (int)what, parent, PROF_CHECK_KIND, &data);
}

static void *tell_beside(void *unused)
{
    struct timespec pause = { 0, 200000 };
    for (int over = 0; !over;) {
        pthread_mutex_lock(&lock);
        for (struct comm *c = comms; c != NULL; c = c->next) {
            for (uint64_t i = c->first; i < c->last; i++) {
                struct request *r = &c->request[i % ROOM];
                if (r->parent != NULL && r->other == NULL) {
                    tell(&r->other, RONDO_NET_EVENT_START, r->parent);
                } else if (r->parent != NULL) {
                    tell(&r->other, RONDO_NET_EVENT_STOP, NULL);
                    r->other = NULL;
                }
            }
        }
        over = ends;
        pthread_mutex_unlock(&lock);
        nanosleep(&pause, NULL);
    }
    return unused;
}

/* ---- contexts and devices ---- */

static int net_init(void **context, uint64_t id, const int *config, log_fn log, profile_fn callback)
{
    (void)id, (void)config, (void)log;
    pthread_mutex_lock(&lock);
    profile = callback;
    *context = &contexts;
    if (contexts++ == 0) {
        ends = 0;
        pthread_create(&thread, NULL, tell_beside, NULL);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static int net_finalize(void *context)
{
    (void)context;
    pthread_mutex_lock(&lock);
    int last = --contexts == 0;
    ends = last;
    pthread_mutex_unlock(&lock);
    if (last) {
        pthread_join(thread, NULL);
    }
    return 0;
}

static int net_devices(int *n)
{
    *n = 1;
    return 0;
}

static int net_properties(int device, struct properties *p)
{
    static char name[] = "check0";
    (void)device;
    memset(p, 0, sizeof *p);
    p->name = name;
    p->ptrSupport = 1;
    p->speed = 10000;
    p->maxComms = 65536;
    p->maxRecvs = 1;
    p->maxP2pBytes = p->maxCollBytes = 1 << 30;
    p->maxMultiRequestSize = 1;
    return 0;
}

/* ---- connections ---- */

static struct comm *comm_new(int fd, int is_send)
{
    struct comm *c = calloc(1, sizeof *c);
    c->fd = fd;
    c->is_send = is_send;
    pthread_mutex_lock(&lock);
    c->next = comms;
    comms = c;
    pthread_mutex_unlock(&lock);
    return c;
}

static int net_listen(void *context, int device, struct handle *handle, void **listener)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    (void)context, (void)device;
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, size) != 0 || listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0) {
        return SYSTEM;
    }
    *handle = (struct handle){ .port = at.sin_port };
    *listener = comm_new(fd, 0);
    return 0;
}

static int net_connect(void *context, int device, struct handle *handle, void **comm, void **offload)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = handle->port };
    (void)context, (void)device, (void)offload;
    *comm = NULL;
    if (handle->fd == 0) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0 || (connect(fd, (struct sockaddr *)&at, sizeof at) != 0 && errno != EINPROGRESS)) {
            return SYSTEM;
        }
        handle->fd = fd + 1;
    }
    struct pollfd ready = { .fd = handle->fd - 1, .events = POLLOUT };
    if (poll(&ready, 1, 0) == 1) {
        *comm = comm_new(handle->fd - 1, 1);
    }
    return 0;
}

static int net_accept(struct comm *listener, void **comm, void **offload)
{
    int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    (void)offload;
    *comm = fd >= 0 ? comm_new(fd, 0) : NULL;
    return fd >= 0 || errno == EAGAIN ? 0 : SYSTEM;
}

static int net_close(struct comm *comm)
{
    struct comm **at = &comms;
    pthread_mutex_lock(&lock);
    while (*at != comm) {
        at = &(*at)->next;
    }
    *at = comm->next;
    pthread_mutex_unlock(&lock);
    close(comm->fd);
    free(comm);
    return 0;
}

static int net_reg(void *comm, void *data, size_t size, int type, void **region)
{
    (void)data, (void)size;
    *region = comm;
    return type == 1 ? 0 : USAGE;
}

static int net_unreg(void *comm, void *region) { return comm == region ? 0 : USAGE; }

/* ---- messages ---- */

static void begin(struct comm *comm, void *data, size_t bytes, int tag, void *parent, void **out)
{
    struct request *r = &comm->request[comm->last % ROOM];
    *out = NULL;
    if (comm->last - comm->first == ROOM || r->used) {
        return;
    }
    *r = (struct request){ .comm = comm,
                           .used = 1,
                           .data = data,
                           .bytes = bytes,
                           .head = { (uint32_t)bytes, (uint32_t)tag },
                           .tag = tag };
    tell(&r->event, RONDO_NET_EVENT_START, parent);
    pthread_mutex_lock(&lock);
    r->parent = parent;
    comm->last++;
    pthread_mutex_unlock(&lock);
    *out = r;
}

static int net_isend(struct comm *comm, void *data, size_t size, int tag, void *region, void *parent,
                     void **out)
{
    (void)region;
    begin(comm, data, size, tag, parent, out);
    return 0;
}

static int net_irecv(struct comm *comm, int n, void **data, size_t *sizes, int *tags, void **regions,
                     void **parents, void **out)
{
    (void)regions;
    begin(comm, data[0], sizes[0], tags[0], parents[0], out);
    return n == 1 ? 0 : USAGE;
}

static int net_iflush(void *comm, int n, void **data, int *sizes, void **regions, void **out)
{
    (void)comm, (void)n, (void)data, (void)sizes, (void)regions;
    *out = NULL;
    return 0;
}

static void end(struct comm *comm, struct request *r)
{
    void *event = r->event, *again = event;
    pthread_mutex_lock(&lock);
    if (r->other != NULL) {
        tell(&r->other, RONDO_NET_EVENT_STOP, NULL);
    }
    r->parent = r->other = NULL;
    r->done = 1;
    comm->first++;
    pthread_mutex_unlock(&lock);
    if (event != NULL) {
        tell(&event, r->bytes % 2 == 0 ? RONDO_NET_EVENT_STOP : RONDO_NET_EVENT_UPDATE_AND_STOP, NULL);
        tell(&again, RONDO_NET_EVENT_UPDATE_AND_STOP, NULL); /* which has ended */
    }
}

/* Move bytes of the first request. @return 1: it is done; 0: no more can move; -1: the connection is lost. */
static int move(struct comm *comm, struct request *r)
{
    while (r->moved < HEAD + r->bytes) {
        int in_head = r->moved < HEAD;
        char *at = in_head ? (char *)r->head + r->moved : r->data + (r->moved - HEAD);
        size_t left = in_head ? HEAD - r->moved : HEAD + r->bytes - r->moved;
        ssize_t n = comm->is_send ? send(comm->fd, at, left, MSG_NOSIGNAL) : recv(comm->fd, at, left, 0);
        if (n <= 0) {
            return n < 0 && errno == EAGAIN ? 0 : -1;
        }
        r->moved += (size_t)n;
        if (!comm->is_send && r->moved == HEAD) {
            if (r->head[0] > r->bytes || (int)r->head[1] != r->tag) {
                return -1;
            }
            r->bytes = r->head[0];
        }
        if (r->event != NULL && !r->updated++) {
            tell(&r->event, RONDO_NET_EVENT_UPDATE, NULL);
        }
    }
    return 1;
}

static int net_test(struct request *r, int *done, int *sizes)
{
    struct comm *comm = r->comm;
    *done = 0;
    while (comm->first < comm->last && !r->done) {
        struct request *first = &comm->request[comm->first % ROOM];
        int moved = move(comm, first);
        if (moved <= 0) {
            return moved < 0 ? SYSTEM : 0;
        }
        end(comm, first);
    }
    if (sizes != NULL && !comm->is_send) {
        sizes[0] = (int)r->bytes;
    }
    r->used = 0;
    *done = 1;
    return 0;
}

#define ANY(function) ((any_fn)(void *)(function))
__attribute__((visibility("default"))) extern const struct functions ncclNetPlugin_v11;
const struct functions ncclNetPlugin_v11 = {
    .name = "Check Net",
    .init = ANY(net_init),
    .devices = ANY(net_devices),
    .getProperties = ANY(net_properties),
    .listen = ANY(net_listen),
    .connect = ANY(net_connect),
    .accept = ANY(net_accept),
    .regMr = ANY(net_reg),
    .deregMr = ANY(net_unreg),
    .isend = ANY(net_isend),
    .irecv = ANY(net_irecv),
    .iflush = ANY(net_iflush),
    .test = ANY(net_test),
    .closeSend = ANY(net_close),
    .closeRecv = ANY(net_close),
    .closeListen = ANY(net_close),
    .finalize = ANY(net_finalize),
};
