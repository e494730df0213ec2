/* Registered memory: whole pages, shared by the comms of a NIC that register the same pages in the
 * same way. */
#include "net/verbs/verbs.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/heap.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"

enum relaxed { RELAXED_NO, RELAXED_YES }; /* RONDO_IB_PCI_RELAXED_ORDERING; 2: if the library can */

static rondo_status reg_failed(const struct rondo_verbs_comm *comm, size_t bytes, int error)
{
    struct rlimit limit = { .rlim_cur = RLIM_INFINITY };
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (error == ENOMEM && limit.rlim_cur != RLIM_INFINITY) {
        return rondo_fail(
            RONDO_SYSTEM_ERROR,
            "cannot register %zu bytes with %s on %s: this process may lock %llu bytes of memory; raise the "
            "limit (ulimit -l "
            "unlimited, or memlock in /etc/security/limits.conf and for the batch system's daemon)",
            bytes, comm->port->name, rondo_log_host(), (unsigned long long)limit.rlim_cur);
    }
    return rondo_fail(RONDO_SYSTEM_ERROR, "cannot register %zu bytes with %s on %s: %s; %s", bytes,
                      comm->port->name, rondo_log_host(), strerror(error), rondo_verbs_errno_cause(error));
}

rondo_status rondo_verbs_reg_own(struct rondo_verbs_comm *comm)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = rondo_round_up(sizeof *comm->memory, page);
    /* Pages of its own: the peer may write to the block, and registration covers whole pages. */
    if (posix_memalign((void **)&comm->memory, page, bytes) != 0) {
        comm->memory = NULL;
        return rondo_fail(RONDO_SYSTEM_ERROR, "no memory for a verbs connection to rank %d on %s: %zu bytes",
                          comm->peer.rank, rondo_log_host(), bytes);
    }
    memset(comm->memory, 0, bytes);
    comm->memory_mr = comm->lib->reg_mr(comm->port->nic->pd, comm->memory, bytes,
                                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    return comm->memory_mr != NULL ? RONDO_SUCCESS : reg_failed(comm, bytes, errno);
}

/* Call with the NIC's lock. @return NULL with errno. */
static struct ibv_mr *mr_new(struct rondo_verbs_nic *nic, const struct rondo_verbs_mr *wanted, int fd)
{
    if (wanted->kind == RONDO_NET_DMABUF) {
        return nic->lib->reg_dmabuf_mr(nic->pd, 0, wanted->end - wanted->begin, wanted->begin, fd,
                                       wanted->access);
    }
    if ((wanted->access & IBV_ACCESS_RELAXED_ORDERING) != 0) { /* the older function does not know this bit */
        return nic->lib->reg_mr_iova2(nic->pd, (void *)wanted->begin, wanted->end - wanted->begin,
                                      wanted->begin, (unsigned)wanted->access);
    }
    return nic->lib->reg_mr(nic->pd, (void *)wanted->begin, wanted->end - wanted->begin, wanted->access);
}

/* Call with the NIC's lock. A DMA-BUF is identified by its descriptor, not its address, and never
 * shared. */
static struct rondo_verbs_mr *mr_find(struct rondo_verbs_nic *nic, const struct rondo_verbs_mr *wanted)
{
    struct rondo_verbs_mr *mr = wanted->kind == RONDO_NET_DMABUF ? NULL : nic->mrs;
    while (mr != NULL && (mr->begin > wanted->begin || mr->end < wanted->end || mr->id != wanted->id ||
                          mr->access != wanted->access || mr->kind != wanted->kind)) {
        mr = mr->next;
    }
    return mr;
}

/* Add @a mr, which is new, to the NIC, or free it; *shared has one more reference. @return errno. */
static int mr_get(struct rondo_verbs_nic *nic, struct rondo_verbs_mr *mr, int fd,
                  struct rondo_verbs_mr **shared)
{
    int error = 0;
    pthread_mutex_lock(&nic->lock);
    *shared = mr_find(nic, mr);
    if (*shared == NULL) {
        mr->mr = mr_new(nic, mr, fd);
        error = mr->mr == NULL ? errno : 0;
        if (mr->mr != NULL) {
            mr->next = nic->mrs;
            nic->mrs = *shared = mr;
        }
    }
    if (*shared != NULL) {
        (*shared)->refs++;
    }
    pthread_mutex_unlock(&nic->lock);
    if (*shared != mr) {
        rondo_free(mr);
    }
    return error;
}

static void mr_put(struct rondo_verbs_nic *nic, struct rondo_verbs_mr *mr)
{
    pthread_mutex_lock(&nic->lock);
    int last = --mr->refs == 0;
    if (last) {
        struct rondo_verbs_mr **link = &nic->mrs;
        while (*link != mr) {
            link = &(*link)->next;
        }
        *link = mr->next;
        nic->lib->dereg_mr(mr->mr);
    }
    pthread_mutex_unlock(&nic->lock);
    if (last) {
        rondo_free(mr);
    }
}

/* For data only: clear-to-sends rely on order. */
static int access_relaxed(const struct rondo_verbs_comm *comm)
{
    int64_t wanted = rondo_params()->ib_pci_relaxed_ordering;
    return wanted != RELAXED_NO && comm->lib->reg_mr_iova2 != NULL ? IBV_ACCESS_RELAXED_ORDERING : 0;
}

/* Access rights: none for the peer to memory that is sent, so that read-only memory can be sent. Flushes
 * read what has arrived. */
static int access_of(const struct rondo_verbs_comm *comm, int kind)
{
    int access = access_relaxed(comm) |
                 (comm->is_send ? 0 : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    return !comm->is_send && kind != RONDO_NET_HOST ? access | IBV_ACCESS_REMOTE_READ : access;
}

static rondo_status reg_new(struct rondo_verbs_comm *comm, uintptr_t begin, size_t bytes, int kind, int fd,
                            struct rondo_verbs_region *region)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct rondo_verbs_mr *mr;
    struct rondo_region user;
    size_t length;
    int error;
    RONDO_TRY(RONDO_NEW(mr, "a memory registration"));
    mr->id = kind == RONDO_NET_HOST && rondo_region_find((void *)begin, bytes, &user) ? user.id : 0;
    mr->begin = begin / page * page;
    mr->end = (begin + bytes + page - 1) / page * page;
    /* A descriptor begins where its memory does. For user memory, the peer gets no access to the rest of
     * its pages. */
    if (kind == RONDO_NET_DMABUF || mr->id != 0) {
        mr->begin = begin;
        mr->end = begin + bytes;
    }
    length = mr->end - mr->begin;
    mr->access = access_of(comm, kind);
    mr->kind = kind;
    region->begin = begin;
    region->end = begin + bytes;
    error = mr_get(comm->port->nic, mr, fd, &region->shared);
    return error == 0 ? RONDO_SUCCESS : reg_failed(comm, length, error);
}

rondo_status rondo_verbs_reg(void *comm_in, void *data, size_t bytes, int kind, int fd, void **region_out)
{
    struct rondo_verbs_comm *comm = comm_in;
    struct rondo_verbs_region *region;
    rondo_status status;
    *region_out = NULL;
    if (data == NULL || bytes == 0 || bytes > UINTPTR_MAX / 2 || (uintptr_t)data > UINTPTR_MAX - 2 * bytes ||
        (kind != RONDO_NET_HOST && kind != RONDO_NET_CUDA && kind != RONDO_NET_DMABUF) ||
        (kind == RONDO_NET_DMABUF) != (fd >= 0)) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "memory to register with %s: %p, %zu bytes, kind %d, descriptor %d",
                          comm->port->name, data, bytes, kind, fd);
    }
    if ((comm->port->nic->memory & (uint32_t)kind) == 0) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s on %s cannot be given memory of this kind (%d; it knows %#x): GPU memory needs "
                          "DMA-BUF or the module nvidia_peermem",
                          comm->port->name, rondo_log_host(), kind, comm->port->nic->memory);
    }
    if (rondo_params()->ib_pci_relaxed_ordering == RELAXED_YES && comm->lib->reg_mr_iova2 == NULL) {
        return rondo_fail(RONDO_SYSTEM_ERROR,
                          "RONDO_IB_PCI_RELAXED_ORDERING=1, but the verbs library on %s is too old for it; "
                          "set it to 2 or 0",
                          rondo_log_host());
    }
    if (!comm->is_send && kind != RONDO_NET_HOST && !rondo_params()->gdr_flush_disable) {
        RONDO_TRY(rondo_verbs_qp_open_flush(comm));
    }
    RONDO_TRY(RONDO_NEW(region, "a registered region"));
    status = reg_new(comm, (uintptr_t)data, bytes, kind, fd, region);
    if (status != RONDO_SUCCESS) {
        rondo_free(region);
        return status;
    }
    region->next = comm->regions;
    region->link = &comm->regions;
    if (region->next != NULL) {
        region->next->link = &region->next;
    }
    comm->regions = region;
    *region_out = region;
    return RONDO_SUCCESS;
}

rondo_status rondo_verbs_unreg(void *comm_in, void *region_in)
{
    struct rondo_verbs_comm *comm = comm_in;
    struct rondo_verbs_region *region = region_in;
    *region->link = region->next;
    if (region->next != NULL) {
        region->next->link = region->link;
    }
    mr_put(comm->port->nic, region->shared);
    rondo_free(region);
    return RONDO_SUCCESS;
}

void rondo_verbs_unreg_all(struct rondo_verbs_comm *comm)
{
    while (comm->regions != NULL) {
        rondo_verbs_unreg(comm, comm->regions);
    }
    if (comm->memory_mr != NULL) {
        comm->lib->dereg_mr(comm->memory_mr);
    }
    free(comm->memory);
}
