/* Questions of rondo-doctor (look.h): where the ranks listen, written to the segment, and the answers. */
#include "net/control/look.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/thread.h"
#include "net/control/control_wire.h"

enum { STACKS_SHIFT = 16, ALL_SHIFT = 17 };

static void (*_Atomic on_look)(int fd, const struct rondo_look *look);

void rondo_control_on_look(void (*function)(int fd, const struct rondo_look *look))
{
    atomic_store(&on_look, function);
}

void rondo_look_ask(const struct rondo_look *look, struct rondo_auth_hello *hello)
{
    hello->magic = RONDO_LOOK_MAGIC;
    hello->version = RONDO_LOOK_VERSION;
    hello->client = (uint64_t)look->stack_of;
    hello->client_rank = -1;
    hello->index = (uint32_t)look->sample_ms | (uint32_t)(look->stacks != 0) << STACKS_SHIFT |
                   (uint32_t)(look->all != 0) << ALL_SHIFT;
    hello->zero = 0;
}

int rondo_look_asked(const struct rondo_auth_hello *hello, struct rondo_look *look)
{
    *look = (struct rondo_look){ .sample_ms = (int)(hello->index & 0xffff),
                                 .all = (int)(hello->index >> ALL_SHIFT & 1),
                                 .stacks = (int)(hello->index >> STACKS_SHIFT & 1),
                                 .stack_of = (int)hello->client };
    return hello->magic == RONDO_LOOK_MAGIC && hello->version == RONDO_LOOK_VERSION &&
           hello->client_rank == -1 && hello->zero == 0 && hello->index >> (ALL_SHIFT + 1) == 0 &&
           look->sample_ms <= RONDO_LOOK_SAMPLE_MS && hello->client <= INT32_MAX;
}

/* ---- where the ranks listen ---- */

size_t rondo_control_places_bytes(int nnodes, int nranks)
{
    return nnodes <= 1 ? 0
                       : sizeof(struct rondo_control_place) * (size_t)nranks +
                             (size_t)RONDO_HOST_LEN * (size_t)nnodes;
}

void rondo_wire_places(struct rondo_control *control)
{
    struct rondo_wire_part *part = control->wire;
    struct rondo_control_head *head = control->head;
    struct rondo_control_place *place = (struct rondo_control_place *)(void *)control->places;
    char *hosts = (char *)(place + control->nranks);
    if (part == NULL || control->local_rank != 0) {
        return;
    }
    for (int r = 0; r < control->nranks; r++) {
        place[r].process = rondo_wire_process(&control->peers[r]);
        place[r].node = part->node_of[r];
        memcpy(place[r].addr, control->peers[r].control_addr, RONDO_ADDR_BYTES);
    }
    for (int n = 0; n < control->nnodes; n++) {
        snprintf(hosts + (size_t)n * RONDO_HOST_LEN, RONDO_HOST_LEN, "%s",
                 part->first[n] >= 0 ? control->peers[part->first[n]].host : "");
    }
    rondo_wire_lock();
    head->scope = rondo_wire->scope;
    rondo_wire_unlock();
    head->secret[0] = part->secret[0];
    head->secret[1] = part->secret[1];
    head->places_at = (uint64_t)(control->places - control->shm.base);
    atomic_store_explicit(&head->places, 1, memory_order_release);
}

/* ---- answers ---- */

static void *answer(void *arg)
{
    struct rondo_wire_look *look = arg;
    void (*function)(int fd, const struct rondo_look *look) = atomic_load(&on_look);
    if (function != NULL) {
        function(look->fd, &look->what);
    }
    shutdown(look->fd, SHUT_RDWR); /* the doctor may go on now; close follows when the thread is joined */
    atomic_store(&look->state, RONDO_WIRE_LOOK_ENDED);
    return NULL;
}

static void look_join(struct rondo_wire_look *look)
{
    pthread_join(look->thread, NULL);
    close(look->fd);
    atomic_store(&look->state, RONDO_WIRE_LOOK_FREE);
}

/* @return NULL: all are in use. */
static struct rondo_wire_look *look_free(void)
{
    for (int i = 0; i < RONDO_LOOKS; i++) {
        struct rondo_wire_look *look = &rondo_wire->looks[i];
        if (atomic_load(&look->state) == RONDO_WIRE_LOOK_ENDED) {
            look_join(look);
        }
        if (atomic_load(&look->state) == RONDO_WIRE_LOOK_FREE) {
            return look;
        }
    }
    return NULL;
}

/* A descriptor of the connection that blocks, for a limited time; the wire closes its own. */
static int look_fd(int conn)
{
    struct timeval limit = { .tv_sec = RONDO_LOOK_NS / 1000000000 };
    int fd = fcntl(conn, F_DUPFD_CLOEXEC, 0), flags = fd >= 0 ? fcntl(fd, F_GETFL) : -1;
    if (fd >= 0 && (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0 ||
                    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

int rondo_wire_look_start(const struct rondo_wire_conn *conn)
{
    struct rondo_wire_look *look = look_free();
    if (look == NULL || !rondo_look_asked(&conn->hello, &look->what) || (look->fd = look_fd(conn->fd)) < 0) {
        return 0;
    }
    atomic_store(&look->unwanted, 0);
    look->what.ended = &look->unwanted;
    atomic_store(&look->state, RONDO_WIRE_LOOK_RUNS);
    if (rondo_thread_start(&look->thread, "rondo-look", answer, look) != RONDO_SUCCESS) {
        close(look->fd);
        atomic_store(&look->state, RONDO_WIRE_LOOK_FREE);
        return 0;
    }
    return 1;
}

void rondo_wire_looks_end(void)
{
    for (int i = 0; i < RONDO_LOOKS; i++) {
        struct rondo_wire_look *look = &rondo_wire->looks[i];
        if (atomic_load(&look->state) != RONDO_WIRE_LOOK_FREE) {
            atomic_store(&look->unwanted, 1);
            shutdown(look->fd, SHUT_RDWR);
            look_join(look);
        }
    }
}

enum rondo_wire_state rondo_wire_look_name(struct rondo_wire_conn *conn, const struct rondo_control *control)
{
    struct rondo_look what;
    int welcomed = 0;
    for (const struct rondo_wire_conn *other = rondo_wire->conns; other; other = other->next) {
        welcomed += other->state == RONDO_WIRE_WELCOMED && other->hello.magic == RONDO_LOOK_MAGIC;
    }
    return control != NULL && atomic_load(&on_look) != NULL && welcomed < RONDO_LOOK_WELCOMED &&
                   rondo_look_asked(&conn->hello, &what) &&
                   conn->hello.server == rondo_wire_process(&control->peers[control->rank])
               ? RONDO_WIRE_WELCOMED
               : RONDO_WIRE_ENDED;
}
