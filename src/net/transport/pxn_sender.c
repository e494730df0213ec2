/* PXN, the sender's side: conns that use a NIC through another GPU of the node. Contract:
 * net/transport/pxn.h. */
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/wait.h"
#include "net/control/control.h"
#include "net/transport/pxn.h"

void rondo_pxn_ring(struct rondo_pxn_header *header)
{
    if (__atomic_load_n(&header->asleep, __ATOMIC_SEQ_CST) != 0 && rondo_pxn_swap(&header->asleep, 1, 0)) {
        __atomic_fetch_add(&header->bell, 1, __ATOMIC_SEQ_CST);
        (void)syscall(SYS_futex, &header->bell, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

void rondo_pxn_cell_fail(struct rondo_pxn_cell *cell, rondo_status status)
{
    cell->status = status;
    snprintf(cell->text, sizeof(cell->text), "%s", rondo_error_text());
    rondo_pxn_store(&cell->relay, RONDO_PXN_FAILED);
}

struct rondo_pxn_process rondo_pxn_process(const struct rondo_net *net, int rank)
{
    return (struct rondo_pxn_process){ net->peers[rank].pid, rondo_process_start(net->peers[rank].pid) };
}

int rondo_pxn_is_dead(const struct rondo_pxn_process *process)
{
    int fd = (int)syscall(SYS_pidfd_open, process->pid, 0), dead;
    uint64_t start = process->start != 0 ? rondo_process_start(process->pid) : 0;
    if (start != 0 && start != process->start) {
        dead = 1;
    } else if (fd >= 0) {
        dead = poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 0) == 1;
    } else {
        dead = kill(process->pid, 0) != 0 && errno == ESRCH;
    }
    if (fd >= 0) {
        close(fd);
    }
    return dead;
}

rondo_status rondo_pxn_get(struct rondo_net_state *state, struct rondo_pxn **pxn)
{
    if (state->pxn == NULL) {
        RONDO_TRY(RONDO_NEW(state->pxn, "what other GPUs send for this one"));
    }
    *pxn = state->pxn;
    return RONDO_SUCCESS;
}

/* ---- a relay's memory ---- */

/* Is this the memory of that rank's relay, for conns like ours? Checks everything that could point
 * outside. */
static rondo_status map_check(const struct rondo_net *net, struct rondo_pxn_map *map, int relay)
{
    const struct rondo_pxn_header *header = (const struct rondo_pxn_header *)(const void *)map->shm.base;
    size_t room = map->shm.size >= sizeof(*header)
                      ? (map->shm.size - sizeof(*header)) / sizeof(header->cell[0])
                      : 0;
    if (map->shm.size < sizeof(*header) || header->magic != RONDO_PXN_MAGIC ||
        header->version != RONDO_PXN_VERSION || header->rank != relay || header->bytes != map->shm.size ||
        header->ncells < 1 || (size_t)header->ncells > room) {
        return rondo_fail_quiet(RONDO_INTERNAL_ERROR,
                                "the memory that rank %d shares does not have the header of %s", relay,
                                net->name);
    }
    map->ncells = header->ncells;
    return RONDO_SUCCESS;
}

static rondo_status map_open(struct rondo_net_state *state, struct rondo_pxn_map *map, int relay)
{
    const struct rondo_net *net = state->net;
    map->owner = rondo_pxn_process(net, relay);
    RONDO_TRY(rondo_shm_open(&map->shm, &net->relays[net->local_of[relay]]));
    RONDO_TRY(map_check(net, map, relay));
    map->header = (struct rondo_pxn_header *)(void *)map->shm.base;
    if (map->header->block.kind != RONDO_GPU_NONE) {
        const struct rondo_gpu_name name = map->header->block;
        RONDO_TRY(rondo_gpu_mem_open(&map->block, net->device, &name));
    }
    return RONDO_SUCCESS;
}

/* This rank no longer uses any memory of the relay, or its kernels keep that mapped: close it. */
static void map_close(const struct rondo_net *net, struct rondo_pxn_map *map)
{
    struct rondo_pxn_header *header = map->header;
    CUstreamCaptureMode before;
    if (map->block.base != NULL && !net->kept) {
        rondo_gpu_relax(&before);
        rondo_gpu_mem_close(&map->block);
        rondo_gpu_unrelax(before);
    }
    for (int i = 0; header != NULL && i < map->ncells; i++) {
        if (header->cell[i].from == net->rank) {
            rondo_pxn_store(&header->cell[i].sender, RONDO_PXN_GONE);
        }
    }
    if (header != NULL) {
        rondo_pxn_ring(header);
    }
    if (!net->kept) {
        rondo_shm_close(&map->shm);
    }
    map->header = NULL;
}

static rondo_status map_get(struct rondo_net_state *state, int relay, struct rondo_pxn_map **out)
{
    const struct rondo_net *net = state->net;
    struct rondo_pxn *pxn;
    rondo_status status;
    RONDO_TRY(rondo_pxn_get(state, &pxn));
    if (pxn->map == NULL) {
        RONDO_TRY(RONDO_NEW_ARRAY(pxn->map, net->nlocal, "maps of what other GPUs send for this one"));
    }
    struct rondo_pxn_map *map = &pxn->map[net->local_of[relay]];
    if (map->header == NULL && map->shut) {
        return rondo_fail_quiet(RONDO_SYSTEM_ERROR, "its memory could not be opened before");
    }
    status = map->header != NULL ? RONDO_SUCCESS : map_open(state, map, relay);
    if (status != RONDO_SUCCESS) {
        char why[RONDO_ERROR_TEXT];
        snprintf(why, sizeof(why), "%s", rondo_error_text());
        map->shut = 1;
        map_close(net, map);
        return rondo_fail_quiet(status, "%s", why);
    }
    *out = map;
    return RONDO_SUCCESS;
}

/* ---- offer ---- */

/* Do the cell's offsets lie in the relay's memory? */
static int fits(const struct rondo_net *net, const struct rondo_link *link, const struct rondo_pxn_map *map,
                const struct rondo_pxn_cell *cell)
{
    size_t largest = rondo_net_largest(net, link);
    return cell->offset >= sizeof(*map->header) + (size_t)map->ncells * sizeof(*cell) &&
           rondo_net_inside(cell->offset, rondo_net_room(largest), 0, map->shm.size) &&
           cell->offset % (uint64_t)sysconf(_SC_PAGESIZE) == 0 &&
           (map->block.base == NULL ||
            rondo_net_inside(cell->slots, RONDO_SLOTS * largest, 0, map->block.bytes));
}

/* Take a free cell for this link; NULL: there is none. Cells with equal fields are interchangeable. */
static struct rondo_pxn_cell *cell_take(const struct rondo_net *net, const struct rondo_link *link,
                                        const struct rondo_pxn_map *map)
{
    for (int i = 0; i < map->ncells; i++) {
        struct rondo_pxn_cell *cell = &map->header->cell[i];
        if (cell->from == net->rank && cell->to == link->peer && cell->channel == link->channel &&
            cell->protos == link->protos && strncmp(cell->net, link->net_name, sizeof(cell->net)) == 0 &&
            fits(net, link, map, cell) && rondo_pxn_swap(&cell->sender, RONDO_PXN_FREE, RONDO_PXN_TAKEN)) {
            return cell;
        }
    }
    return NULL;
}

/* May this rank use the relay? The error is a clause for the log. */
static rondo_status may_use(const struct rondo_net *net, int relay)
{
    int local = relay >= 0 && relay < net->nranks && relay != net->rank ? net->local_of[relay] : -1;
    if (local < 0 || local >= net->nlocal || net->local_ranks[local] != relay || net->p2p_modes == NULL ||
        net->relays == NULL) {
        return rondo_fail_quiet(RONDO_INVALID_USAGE, "it is not a GPU of this node");
    }
    if (net->p2p_modes[local] != RONDO_P2P_MODE_WRITE && net->p2p_modes[local] != RONDO_P2P_MODE_READ) {
        return rondo_fail_quiet(RONDO_INVALID_USAGE, net->p2p_modes[local] == RONDO_P2P_MODE_BROKEN
                                                         ? "P2P with it failed its check"
                                                         : "there is no P2P path to it");
    }
    return net->relays[local].size == 0
               ? rondo_fail_quiet(RONDO_REMOTE_ERROR, "it offers none (its log says why)")
               : RONDO_SUCCESS;
}

static rondo_status offer(struct rondo_net_state *state, struct rondo_link *link, int relay,
                          struct rondo_connect *record)
{
    struct rondo_pxn_use use = { .relay = relay };
    struct rondo_net_end *end;
    RONDO_TRY(may_use(state->net, relay));
    RONDO_TRY(map_get(state, relay, &use.map));
    RONDO_TRY(rondo_net_end_new(state, link));
    end = link->state;
    RONDO_TRY(RONDO_NEW(end->pxn, "a connection through another GPU"));
    use.cell = cell_take(state->net, link, use.map);
    *end->pxn = use;
    if (use.cell == NULL) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "it offers none for this connection (its log says why)");
    }
    memcpy(record->data, use.cell->record, sizeof(record->data));
    return RONDO_SUCCESS;
}

int rondo_pxn_offer(struct rondo_net_state *state, struct rondo_link *link, struct rondo_connect *record)
{
    const struct rondo_net *net = state->net;
    const struct rondo_nic *nic = link->net_name != NULL ? rondo_net_nic(net, link->net_name) : NULL;
    if (net->device == NULL || nic == NULL || nic->relay == 0 ||
        state->segment != NULL) { /* a relay's own net does not relay again */
        return 0;
    }
    if (offer(state, link, nic->relay - 1, record) != RONDO_SUCCESS) {
        RONDO_INFO(
            RONDO_SUBSYS_NET,
            "rank %d, channel %d to rank %d: not through the GPU of rank %d, which is nearer to %s: %s",
            net->rank, link->channel, link->peer, nic->relay - 1, link->net_name, rondo_error_text());
        rondo_transport_net.disconnect(state, link);
        return 0;
    }
    RONDO_INFO(RONDO_SUBSYS_NET | RONDO_SUBSYS_GRAPH,
               "rank %d, channel %d to rank %d: through the GPU of rank %d, which is nearer to %s", net->rank,
               link->channel, link->peer, nic->relay - 1, link->net_name);
    return 1;
}

/* ---- connect ---- */

static rondo_status relay_error(const struct rondo_net_end *end)
{
    const struct rondo_pxn_cell *cell = end->pxn->cell;
    char text[RONDO_ERROR_TEXT];
    memcpy(text, cell->text, sizeof(text));
    text[sizeof(text) - 1] = '\0';
    int known = cell->status > RONDO_SUCCESS && cell->status != RONDO_IN_PROGRESS;
    return rondo_fail(known ? (rondo_status)cell->status : RONDO_REMOTE_ERROR,
                      "rank %d sends to rank %d through the GPU of rank %d: %s", end->owner->net->rank,
                      end->link->peer, end->pxn->relay, text);
}

/* The relay has connected: build the conn from its memory. */
static rondo_status join(struct rondo_net_end *end)
{
    const struct rondo_net *net = end->owner->net;
    const struct rondo_pxn_use *use = end->pxn;
    size_t largest = rondo_net_largest(net, end->link);
    char via[sizeof(use->cell->via)];
    memcpy(via, use->cell->via, sizeof(via));
    via[sizeof(via) - 1] = '\0';
    snprintf(end->via, sizeof(end->via), "%.50s/PXN%d", via, use->relay);
    end->gdr.on = use->cell->gdr != 0 && use->map->block.base != NULL;
    end->gdr.slots = end->gdr.on ? use->map->block.base + use->cell->slots : NULL;
    end->gdr.stride = largest;
    end->stride = RONDO_CTRL_ALIGN + (end->gdr.on ? 0 : largest);
    end->bytes = rondo_net_room(end->gdr.on ? 0 : largest);
    end->borrowed = 1;
    end->offset = use->cell->offset;
    end->memory = use->map->shm.base + end->offset;
    end->gpu = 1;
    end->pinned.device = net->device;
    RONDO_TRY(rondo_pinned_map(&end->pinned, end->memory, end->bytes, &end->address));
    rondo_net_conn_fill(end);
    return rondo_net_carry(end);
}

rondo_status rondo_pxn_connect(struct rondo_net_end *end, const struct rondo_connect *connect)
{
    struct rondo_pxn_use *use = end->pxn;
    if (!use->asked) {
        memcpy(use->cell->theirs, connect->data, sizeof(use->cell->theirs));
        use->asked = 1;
        if (!rondo_pxn_swap(&use->cell->sender, RONDO_PXN_TAKEN, RONDO_PXN_CONNECT)) {
            return rondo_fail(RONDO_REMOTE_ERROR,
                              "rank %d: rank %d, which relays to rank %d, has stopped relaying",
                              end->owner->net->rank, use->relay, end->link->peer);
        }
    }
    rondo_pxn_ring(use->map->header);
    switch (rondo_pxn_load(&use->cell->relay)) {
    case RONDO_PXN_CONNECTED: return join(end);
    case RONDO_PXN_FAILED: return relay_error(end);
    default: return RONDO_IN_PROGRESS;
    }
}

/* ---- running, and the end ---- */

/* A relay that has left normally may exit before it has sent everything (exit_wait in pxn_relay.c is
 * bounded), and then nobody reports a death. So a waiting sender checks now and then. */
static void look_at_relay(struct rondo_net_end *end)
{
    struct rondo_pxn_use *use = end->pxn;
    int64_t now = rondo_now_ns();
    if (use->still_ns == 0) {
        use->still_ns = now;
    }
    if (now - use->still_ns < RONDO_PXN_LOOK_NS) {
        return;
    }
    use->still_ns = now;
    if (rondo_pxn_is_dead(&use->map->owner)) {
        rondo_pxn_cell_fail(use->cell, rondo_fail_quiet(RONDO_REMOTE_ERROR,
                                                        "its process, %d on %s, ended before it had sent "
                                                        "what was posted; let no process end before all "
                                                        "ranks have destroyed the communicator (exit waits "
                                                        "for RONDO_P2P_CHECK), or set RONDO_PXN_DISABLE=1",
                                                        (int)use->map->owner.pid, rondo_log_host()));
    }
}

rondo_status rondo_pxn_progress(struct rondo_net_end *end, uint64_t tail, int *busy, int *moved)
{
    /* Pairs with the relay's release: its NIC no longer reads those slots. */
    uint64_t head = __atomic_load_n(&end->link->head->head, __ATOMIC_ACQUIRE);
    int still = head == end->done && head < tail;
    *moved |= head != end->done;
    end->done = end->posted = head;
    if (!still) {
        end->pxn->still_ns = 0;
    }
    if (head >= tail) {
        return RONDO_SUCCESS;
    }
    *busy = 1;
    rondo_pxn_ring(end->pxn->map->header);
    if (still) {
        look_at_relay(end);
    }
    if (rondo_pxn_load(&end->pxn->cell->relay) == RONDO_PXN_FAILED) {
        return relay_error(end);
    }
    return RONDO_SUCCESS;
}

void rondo_pxn_disconnect(struct rondo_net_end *end)
{
    struct rondo_pxn_cell *cell = end->pxn->cell;
    (end->owner->net->kept ? rondo_pinned_leave : rondo_pinned_release)(&end->pinned);
    if (cell != NULL) {
        rondo_pxn_store(&cell->sender, RONDO_PXN_CLOSED);
        rondo_pxn_ring(end->pxn->map->header);
    }
    rondo_free(end->pxn);
    end->pxn = NULL;
}

void rondo_pxn_settle(struct rondo_net_state *state)
{
    if (state->pxn != NULL && state->pxn->relay != NULL) {
        rondo_pxn_relay_settle(state->pxn->relay);
    }
}

void rondo_pxn_close(struct rondo_net_state *state)
{
    struct rondo_pxn *pxn = state->pxn;
    if (pxn == NULL) {
        return;
    }
    for (int i = 0; pxn->map != NULL && i < state->net->nlocal; i++) {
        map_close(state->net, &pxn->map[i]);
    }
    rondo_free(pxn->map);
    if (pxn->relay != NULL) {
        rondo_pxn_relay_leave(pxn->relay);
    }
    rondo_free(pxn);
    state->pxn = NULL;
}
