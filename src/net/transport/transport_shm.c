/*
 * The shm transport. Each rank has one arena a communicator, a part of its pool (base/pool.h):
 *
 *   header | lazy heads | lazy tails | told | lines  || lazy slots | slots
 *            one line for each local rank     one a link  one area    one area for
 *                                           (head/tail)   a rank      each receive link
 *            reserved by the arena's owner
 *            at creation            by the page    only with a GPU or RONDO_SHM_MODE=file
 *
 * A receive link's slots are a part of their own, which the receiver takes when the first call needs the link
 * (rondo_link_wire). It writes where they are into the sender's head line. Thus a communicator that moves
 * little takes little memory, and the pages lie on the NUMA node of the rank that polls them. With a GPU,
 * which maps the arena once, and with RONDO_SHM_MODE=file, where every part is a file, the slots lie in the
 * arena: a link's are reserved when it is offered, a lazy link's at its first use. With RONDO_MEM_LIMIT parts
 * go between calls, and come again (slots.h).
 *
 * Lazy links need no record. The sender's head lies in its own arena at the receiver's index; the receiver's
 * tail lies in its own arena at the sender's index.
 *
 * "told" is where a rank may write its links for its peers to read, instead of records that travel
 * (rondo_shm_tell).
 *
 * Reserved are a page of header and lines of 128 bytes: one for each link, two for each local rank. A receive
 * link's slots are 8 of each of its protocols (defaults: Simple 512 KiB, LL 64 KiB, LL128 128 KiB), rounded
 * up to pages; a lazy one's are Simple only (between GPUs of a node LL too, unless RONDO_P2P_LL_THRESHOLD is
 * 0). A rank without local peers reserves nothing.
 */
#include "net/transport/transport.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/pool.h"
#include "base/wait.h"
#include "net/control/control.h"
#include "net/transport/pinned.h"
#include "net/transport/slots.h"

enum { SHM_MAGIC = 0x72646172, SHM_VERSION = 1, SHM_HUGE_PAGE = 2 << 20, LEFT_NS = 1000000000 };

struct shm_header {
    uint32_t magic, version;
    int32_t rank, nlocal;
    uint64_t nonce;      /* of the arena: records of another arena are refused */
    uint64_t bytes;      /* of the arena */
    uint64_t lazy_slots; /* offset */
    uint32_t slot_bytes[RONDO_NUM_PROTOS];
};

/* A sender's line: its head, where the receiver has put the link's slots, and who uses them (slots.h). */
struct shm_line {
    uint64_t head;
    uint32_t ready, reserved; /* ready 1: the rest is written */
    uint64_t at;              /* offset in the receiver's arena; 0: they are a part of their own */
    struct rondo_shm_name part;
    uint64_t use;
};
_Static_assert(sizeof(struct shm_line) <= RONDO_CTRL_ALIGN, "a line holds it");

/* The content of a connect record. Offsets from the start of the offering rank's arena. */
struct shm_record {
    uint64_t nonce;
    uint64_t line;               /* head of a sender, tail of a receiver */
    uint64_t slots, slots_bytes; /* of a receiver that has them already, else 0 */
    uint32_t protos;
    uint32_t slot_bytes[RONDO_NUM_PROTOS];
};
_Static_assert(sizeof(struct shm_record) <= RONDO_CONNECT_DATA,
               "the record of a shm link fits a connect record");
_Static_assert(sizeof(struct rondo_conn_head) == RONDO_CTRL_ALIGN &&
                   sizeof(struct rondo_conn_tail) == RONDO_CTRL_ALIGN,
               "a line holds either");

/* One end of a link, as its rank tells its peers. All else of a record is the same for all links. */
struct shm_entry {
    uint64_t line;
    int32_t peer;
    uint16_t channel;
    uint8_t port, is_send;
};
enum { TOLD_NOTHING, TOLD_LINKS, TOLD_FAILED };
struct shm_told {
    uint32_t state, n; /* state is written last */
    struct shm_entry entry[];
};

/* A rank's arena, mapped here. The header is read once. */
struct shm_map {
    struct rondo_shm shm; /* not open for our own arena */
    uint8_t *base;        /* NULL: not mapped yet */
    size_t size;
    uint64_t nonce;
    size_t lazy_slots;
};

struct shm_link {
    struct rondo_conn_head *head;    /* the conn's, while it has credit */
    size_t line, slots, slots_bytes; /* in our arena */
    struct rondo_slots own;          /* or a part of their own, of a receiver */
    struct rondo_shm part;           /* of a sender: the receiver's */
    int64_t failed_ns;               /* when it could first not be opened */
};

enum { LAZY_SEND_USED = 1, LAZY_RECV_USED = 2 };

struct shm {
    struct rondo_net *net;
    struct rondo_shm arena; /* base NULL: not made yet */
    struct shm_map *map;    /* by local rank */
    uint8_t *lazy;          /* bits LAZY_, by local rank */
    int whole;              /* all slots lie in the arena */
    char via[16];           /* "SHM/memfd" */
    size_t page, max_links,
        conn_bytes; /* conn_bytes: slots of a receive link with all protocols, whole pages */
    size_t heads, tails, told, lines, lazy_slots, slots; /* offsets; slots begin on a page */
    size_t lazy_bytes;                                   /* slots of one lazy link, whole pages */
    size_t nlines, slots_end;                            /* lines given out; end of the slots given out */
    size_t lines_end;                                    /* of the pages that are reserved for lines */
    size_t reserved;
    struct rondo_pinned pinned; /* parts of this and other arenas that a GPU uses */
};

static int shm_reaches(const struct rondo_net *net, const struct rondo_peer *self,
                       const struct rondo_peer *peer)
{
    (void)net;
    /* The parameter forbids sharing memory with other ranks, not with oneself. */
    return self->rank == peer->rank || (!rondo_params()->shm_disable && rondo_peer_same_node(self, peer));
}

static const char *shm_why_not(const struct rondo_net *net, const struct rondo_peer *self,
                               const struct rondo_peer *peer)
{
    (void)net;
    if (rondo_params()->shm_disable) {
        return "is disabled by RONDO_SHM_DISABLE";
    }
    if (self->host_hash != peer->host_hash) {
        return "does not reach another host";
    }
    return "does not reach another container of the host (the ranks differ in /dev/shm or pid namespace)";
}

static rondo_status arena_reserve(struct shm *shm, size_t offset, size_t bytes)
{
    RONDO_TRY(rondo_shm_reserve(&shm->arena, offset, bytes));
    shm->reserved += bytes;
    return RONDO_SUCCESS;
}

static void arena_drop(struct shm *shm)
{
    rondo_shm_unlink(&shm->arena);
    rondo_shm_close(&shm->arena);
    shm->reserved = 0;
}

static size_t arena_layout(struct shm *shm)
{
    size_t nlocal = (size_t)shm->net->nlocal;

    shm->heads = rondo_round_up(sizeof(struct shm_header), RONDO_CTRL_ALIGN);
    shm->tails = shm->heads + nlocal * RONDO_CTRL_ALIGN;
    shm->told = shm->tails + nlocal * RONDO_CTRL_ALIGN;
    shm->lines = shm->told +
                 rondo_round_up(sizeof(struct shm_told) + shm->max_links * sizeof(struct shm_entry),
                                RONDO_CTRL_ALIGN);
    shm->lazy_bytes = rondo_round_up(
        rondo_net_slots_bytes(shm->net, 1u << RONDO_PROTO_SIMPLE | shm->net->lazy_protos), shm->page);
    shm->conn_bytes = rondo_round_up(rondo_net_slots_bytes(shm->net, (1u << RONDO_NUM_PROTOS) - 1),
                                     shm->page);
    size_t slots_bytes = shm->whole ? nlocal * shm->lazy_bytes + shm->max_links * shm->conn_bytes : 0;
    shm->lazy_slots = rondo_round_up(shm->lines + shm->max_links * RONDO_CTRL_ALIGN,
                                     slots_bytes >= SHM_HUGE_PAGE ? SHM_HUGE_PAGE : shm->page);
    shm->slots = shm->lazy_slots + nlocal * shm->lazy_bytes;
    return shm->lazy_slots + slots_bytes;
}

/* Does any other rank map our arena? */
static int has_peers(const struct rondo_net *net) { return net->nlocal > 1 && !rondo_params()->shm_disable; }

static uint64_t nonce_base;
static rondo_status nonce_status;
static void nonce_init(void) { nonce_status = rondo_random(&nonce_base, sizeof(nonce_base)); }

/* A number that no other arena of the host has. It is no secret: whoever may open an arena reads it there. */
static rondo_status make_nonce(uint64_t *nonce)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static uint64_t made;
    const struct {
        uint64_t number;
        int64_t pid; /* a forked child continues to count where its parent does */
    } self = { __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED), getpid() };
    pthread_once(&once, nonce_init);
    RONDO_TRY(nonce_status);
    *nonce = rondo_hash(&self, sizeof(self), nonce_base);
    return RONDO_SUCCESS;
}

/* Create our arena and reserve the header and the lines of lazy links. */
static rondo_status arena_make(struct shm *shm)
{
    struct rondo_net *net = shm->net;
    struct shm_header header = {
        .magic = SHM_MAGIC, .version = SHM_VERSION, .rank = net->rank, .nlocal = net->nlocal
    };

    if (shm->arena.base != NULL) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(make_nonce(&header.nonce));
    size_t bytes = arena_layout(shm); /* it finds out where the lines begin */
    RONDO_TRY((net->device != NULL ? rondo_pool_take_apart : rondo_pool_take)(
        &shm->arena, bytes, shm->lines, net->shm_mode, RONDO_SHM_FOR_BUFFERS));
    shm->reserved = shm->lines_end = rondo_round_up(shm->lines, shm->page);
    header.bytes = shm->arena.size;
    header.lazy_slots = shm->lazy_slots;
    memcpy(header.slot_bytes, net->slot_bytes, sizeof(header.slot_bytes));
    memcpy(shm->arena.base, &header, sizeof(header));
    shm->slots_end = shm->slots;
    snprintf(shm->via, sizeof(shm->via), "SHM/%s", rondo_shm_mode_name(shm->arena.name.mode));
    shm->map[net->local_rank].base = shm->arena.base;
    shm->map[net->local_rank].size = shm->arena.size;
    shm->map[net->local_rank].nonce = header.nonce;
    shm->map[net->local_rank].lazy_slots = shm->lazy_slots;
    net->arena = shm->arena.name;
    if (!has_peers(net)) {
        rondo_shm_unlink(&shm->arena);
    }
    return RONDO_SUCCESS;
}

static void unmap_all(struct shm *shm)
{
    rondo_pinned_release(&shm->pinned);
    for (int i = 0; shm->map != NULL && i < shm->net->nlocal; i++) {
        if (i != shm->net->local_rank) {
            rondo_shm_close(&shm->map[i].shm);
        }
    }
    arena_drop(shm);
}

static void shm_close(void *state)
{
    struct shm *shm = state;

    if (shm->net->kept) {
        rondo_shm_unlink(&shm->arena);
        rondo_pinned_leave(&shm->pinned);
    } else {
        unmap_all(shm);
    }
    rondo_free(shm->map);
    rondo_free(shm->lazy);
    rondo_free(shm);
}

static rondo_status shm_open_arena(struct rondo_net *net, void **state, int max_links)
{
    struct shm *shm;
    rondo_status status;

    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        if (net->slot_bytes[p] % RONDO_CTRL_ALIGN != 0) {
            return rondo_fail(RONDO_INTERNAL_ERROR, "a slot of %s has %u bytes: not a multiple of %d",
                              rondo_proto_name((enum rondo_proto)p), net->slot_bytes[p], RONDO_CTRL_ALIGN);
        }
    }
    RONDO_TRY(RONDO_NEW(shm, "the shm transport"));
    shm->net = net;
    shm->pinned.device = net->device;
    shm->page = (size_t)sysconf(_SC_PAGESIZE);
    shm->whole = net->device != NULL || net->shm_mode == RONDO_SHM_MODE_FILE;
    net->limited = !shm->whole && rondo_params()->mem_limit > 0;
    shm->max_links = (size_t)max_links;
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(shm->map, net->nlocal, "maps of local ranks"), fail);
    RONDO_TRY_GOTO(RONDO_NEW_ARRAY(shm->lazy, net->nlocal, "lazy links of local ranks"), fail);
    /* Peers learn its name in a round. A rank without local peers creates it when it first sends to
     * itself. */
    if (has_peers(net)) {
        RONDO_TRY_GOTO(arena_make(shm), fail);
    }
    *state = shm;
    return RONDO_SUCCESS;
fail:
    shm_close(shm);
    return status;
}

/* Is the mapped arena the one that the peer names, with the layout that we would give it? */
static rondo_status map_check(struct shm *shm, int peer, struct shm_map *map)
{
    const struct rondo_net *net = shm->net;
    struct shm_header header;
    size_t lazy = shm->whole ? (size_t)net->nlocal * shm->lazy_bytes : 0;

    if (map->shm.size >= shm->lines) {
        memcpy(&header, map->shm.base, sizeof(header));
        if (header.magic == SHM_MAGIC && header.version == SHM_VERSION && header.rank == peer &&
            header.nlocal == net->nlocal && header.bytes == map->shm.size &&
            memcmp(header.slot_bytes, net->slot_bytes, sizeof(header.slot_bytes)) == 0 &&
            header.lazy_slots >= shm->lines && header.lazy_slots % RONDO_CTRL_ALIGN == 0 &&
            lazy <= map->shm.size && header.lazy_slots <= map->shm.size - lazy) {
            map->base = map->shm.base;
            map->size = map->shm.size;
            map->nonce = header.nonce;
            map->lazy_slots = header.lazy_slots;
            return RONDO_SUCCESS;
        }
    }
    return rondo_fail(RONDO_INTERNAL_ERROR,
                      "rank %d: the shared memory of rank %d (host %.*s) does not have the header of %s",
                      net->rank, peer, RONDO_HOST_LEN, net->peers[peer].host, net->name);
}

/* Get the peer's arena; the first use maps it. */
static rondo_status map_get(struct shm *shm, int peer, struct shm_map **out)
{
    const struct rondo_net *net = shm->net;
    int local = net->local_of[peer];

    if (local < 0 || local >= net->nlocal || net->local_ranks[local] != peer) {
        return rondo_fail(RONDO_INTERNAL_ERROR,
                          "rank %d counts rank %d to its node, but the node's list lacks it", net->rank,
                          peer);
    }
    struct shm_map *map = &shm->map[local];
    *out = map;
    if (map->base != NULL) {
        return RONDO_SUCCESS;
    }
    rondo_status status = rondo_shm_open(&map->shm, &net->arenas[local]);
    if (status != RONDO_SUCCESS) {
        return rondo_fail(status, "rank %d cannot map the shared memory of rank %d (host %.*s): %s%s",
                          net->rank, peer, RONDO_HOST_LEN, net->peers[peer].host, rondo_error_text(),
                          net->arenas[local].mode != RONDO_SHM_MODE_FILE
                              ? "; RONDO_SHM_MODE=file shares it through /dev/shm instead"
                              : "");
    }
    status = map_check(shm, peer, map);
    if (status != RONDO_SUCCESS) {
        rondo_shm_close(&map->shm);
        memset(map, 0, sizeof(*map));
    }
    return status;
}

/* Take the next line of our arena. */
static rondo_status take_line(struct shm *shm, size_t *line)
{
    size_t offset = shm->lines + shm->nlines * RONDO_CTRL_ALIGN;

    if (shm->nlines == shm->max_links) {
        return rondo_fail(RONDO_INTERNAL_ERROR, "rank %d offers more than the %zu links that it announced",
                          shm->net->rank, shm->max_links);
    }
    if (offset + RONDO_CTRL_ALIGN > shm->lines_end) {
        RONDO_TRY(arena_reserve(shm, shm->lines_end, shm->page));
        shm->lines_end += shm->page;
    }
    shm->nlines++;
    *line = offset;
    return RONDO_SUCCESS;
}

/* Take the next slots of our arena, which has room for the slots of every line. */
static rondo_status take_slots(struct shm *shm, size_t bytes, struct shm_link *own)
{
    size_t pages = rondo_round_up(bytes, shm->page);

    RONDO_TRY(arena_reserve(shm, shm->slots_end, pages));
    own->slots = shm->slots_end;
    own->slots_bytes = bytes;
    shm->slots_end += pages;
    return RONDO_SUCCESS;
}

static rondo_status shm_offer(void *state, struct rondo_link *link, struct rondo_connect *record)
{
    struct shm *shm = state;
    const struct rondo_net *net = shm->net;
    struct shm_record data = { .protos = link->protos };
    struct shm_link *own;

    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        data.slot_bytes[p] = (link->protos >> p & 1) * net->slot_bytes[p];
        if ((link->protos >> p & 1) && net->slot_bytes[p] == 0) {
            return rondo_fail(RONDO_INTERNAL_ERROR, "rank %d offers a link for %s, which %s does not use",
                              net->rank, rondo_proto_name((enum rondo_proto)p), net->name);
        }
    }
    RONDO_TRY(RONDO_NEW(own, "a shm link"));
    link->state = own; /* disconnect frees it, also when a later step fails */
    RONDO_TRY(arena_make(shm));
    RONDO_TRY(take_line(shm, &own->line));
    if (!link->is_send && shm->whole) {
        rondo_status status = take_slots(shm, rondo_net_slots_bytes(net, link->protos), own);
        if (status != RONDO_SUCCESS) {
            shm->nlines--;
            return status;
        }
    }
    data.nonce = shm->map[net->local_rank].nonce;
    data.line = own->line;
    data.slots = own->slots;
    data.slots_bytes = own->slots_bytes;
    memcpy(record->data, &data, sizeof(data));
    return RONDO_SUCCESS;
}

/* The words and slots of a conn, from either end: pointers into this process's mappings. slots NULL: not yet
 * known. */
struct shm_place {
    uint8_t *slots, *tail, *head;
};

static rondo_status conn_slots(struct shm *shm, struct rondo_link *link, uint8_t *slots)
{
    struct rondo_conn *conn = &link->conn;

    RONDO_TRY(rondo_pinned_map(&shm->pinned, slots, rondo_net_slots_bytes(shm->net, link->protos), &slots));
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        if (link->protos >> p & 1) {
            conn->slots[p] = slots;
            slots += (size_t)RONDO_SLOTS * conn->slot_bytes[p];
        }
    }
    return RONDO_SUCCESS;
}

/* What the sender of an unwired conn reads instead of its head: a receiver that is RONDO_SLOTS behind. */
static struct rondo_conn_head no_credit = { .head = -(uint64_t)RONDO_SLOTS };

static rondo_status conn_fill(struct shm *shm, struct rondo_link *link, struct shm_place place)
{
    struct rondo_conn *conn = &link->conn;
    struct shm_link *own = link->state;
    uint8_t *tail, *head;

    RONDO_TRY(rondo_pinned_map(&shm->pinned, place.tail, RONDO_CTRL_ALIGN, &tail));
    RONDO_TRY(rondo_pinned_map(&shm->pinned, place.head, RONDO_CTRL_ALIGN, &head));
    memset(conn, 0, sizeof(*conn));
    conn->tail = (struct rondo_conn_tail *)tail;
    conn->head = own->head = (struct rondo_conn_head *)head;
    link->tail = (struct rondo_conn_tail *)place.tail;
    link->head = (struct rondo_conn_head *)place.head;
    conn->peer = link->peer;
    conn->channel = link->channel;
    conn->via = shm->via;
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        conn->slot_bytes[p] = (link->protos >> p & 1) * shm->net->slot_bytes[p];
    }
    link->unwired = place.slots == NULL;
    if (link->unwired && link->is_send) {
        conn->head = &no_credit;
        conn->seen = no_credit.head;
    }
    return place.slots != NULL ? conn_slots(shm, link, place.slots) : RONDO_SUCCESS;
}

static rondo_status shm_connect(void *state, struct rondo_link *link, const struct rondo_connect *record)
{
    struct shm *shm = state;
    const struct rondo_net *net = shm->net;
    const struct shm_link *own = link->state;
    struct shm_map *map;
    struct shm_record data;
    int same = 1;

    RONDO_TRY(map_get(shm, link->peer, &map));
    memcpy(&data, record->data, sizeof(data));
    for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
        same &= data.slot_bytes[p] == (link->protos >> p & 1) * net->slot_bytes[p];
    }
    same &= data.nonce == map->nonce && data.protos == link->protos &&
            data.slots_bytes == (link->is_send && shm->whole ? rondo_net_slots_bytes(net, link->protos) : 0);
    if (!same || !rondo_net_inside(data.line, RONDO_CTRL_ALIGN, shm->lines, map->size) ||
        (data.slots_bytes > 0 && !rondo_net_inside(data.slots, data.slots_bytes, shm->lines, map->size))) {
        return rondo_fail(
            RONDO_INTERNAL_ERROR,
            "rank %d refuses the record of rank %d (host %.*s) for channel %d: %s (line at %" PRIu64
            ", %" PRIu64 " bytes of slots at %" PRIu64 ", memory of %zu bytes)",
            net->rank, link->peer, RONDO_HOST_LEN, net->peers[link->peer].host, link->channel,
            same ? "it points outside its shared memory" : "its protocols, sizes or nonce differ", data.line,
            data.slots_bytes, data.slots, map->size);
    }
    uint8_t *mine = shm->arena.base;
    struct shm_place place = { .tail = link->is_send ? map->base + data.line : mine + own->line,
                               .head = link->is_send ? mine + own->line : map->base + data.line };
    if (shm->whole) {
        place.slots = link->is_send ? map->base + data.slots : mine + own->slots;
    }
    return conn_fill(shm, link, place);
}

/* ---- links told in the arena ---- */

rondo_status rondo_shm_map_all(const struct rondo_net *net)
{
    struct shm *shm = rondo_transport_state(net, &rondo_transport_shm);
    struct shm_map *map;
    for (int i = 0; i < net->nlocal; i++) {
        RONDO_TRY(map_get(shm, net->local_ranks[i], &map));
    }
    return RONDO_SUCCESS;
}

void rondo_shm_tell(const struct rondo_net *net, const struct rondo_connect *records, int n)
{
    const struct shm *shm = rondo_transport_state(net, &rondo_transport_shm);
    struct shm_told *told = shm != NULL && shm->arena.base != NULL
                                ? (struct shm_told *)(void *)(shm->arena.base + shm->told)
                                : NULL;
    for (int i = 0; told != NULL && i < n; i++) {
        struct shm_record data;
        memcpy(&data, records[i].data, sizeof(data));
        told->entry[i] = (struct shm_entry){ data.line, records[i].peer, records[i].channel, records[i].port,
                                             records[i].is_send };
    }
    if (told != NULL) {
        told->n = n > 0 ? (uint32_t)n : 0;
        __atomic_store_n(&told->state, n >= 0 ? TOLD_LINKS : TOLD_FAILED, __ATOMIC_RELEASE);
    }
}

rondo_status rondo_shm_hear(const struct rondo_net *net, int peer, uint32_t protos,
                            struct rondo_connect *records, int most)
{
    struct shm *shm = rondo_transport_state(net, &rondo_transport_shm);
    const struct shm_told *told;
    struct shm_map *map;
    uint32_t state, n;

    RONDO_TRY(map_get(shm, peer, &map));
    told = (const struct shm_told *)(const void *)(map->base + shm->told);
    state = __atomic_load_n(&told->state, __ATOMIC_ACQUIRE); /* pairs with the release in rondo_shm_tell() */
    n = told->n;
    if (state == TOLD_NOTHING) {
        return RONDO_IN_PROGRESS;
    }
    if (state != TOLD_LINKS || n > (uint32_t)most ||
        shm->told + sizeof(*told) + n * sizeof(struct shm_entry) > map->size) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "rank %d on %s sent no connections to rank %d on %s",
                                peer, net->peers[peer].host, net->rank, rondo_log_host());
    }
    for (uint32_t i = 0; i < n; i++) {
        struct shm_record data = { .nonce = map->nonce, .line = told->entry[i].line, .protos = protos };
        for (int p = 0; p < RONDO_NUM_PROTOS; p++) {
            data.slot_bytes[p] = (protos >> p & 1) * net->slot_bytes[p];
        }
        records[i] = (struct rondo_connect){ .transport = rondo_transport_shm.number,
                                             .is_send = told->entry[i].is_send,
                                             .port = told->entry[i].port,
                                             .channel = told->entry[i].channel,
                                             .peer = told->entry[i].peer };
        memcpy(records[i].data, &data, sizeof(data));
    }
    return RONDO_SUCCESS;
}

/* As receiver: tell the sender where the slots are. */
static void tell(struct shm_line *line, const struct shm_link *own)
{
    line->at = own->slots;
    line->part = own->own.part.name;
    __atomic_store_n(&line->ready, 1, __ATOMIC_RELEASE);
}

/* The receiver's slots cannot be opened: has it left, or died? Then its control plane says so soon. */
static int may_have_left(const struct rondo_net *net, struct shm_link *own, int peer, rondo_status status)
{
    int64_t now = rondo_now_ns();
    own->failed_ns = own->failed_ns != 0 ? own->failed_ns : now;
    return status == RONDO_REMOTE_ERROR || now - own->failed_ns < LEFT_NS ||
           (net->control != NULL && (rondo_control_aborted(net->control) ||
                                     rondo_control_state_of(net->control, peer) != RONDO_RANK_ALIVE));
}

/* As sender: find the slots that the receiver told of. */
static rondo_status slots_of(struct shm *shm, struct rondo_link *link, const struct shm_map *map,
                             const struct shm_line *line, uint8_t **slots)
{
    const struct rondo_net *net = shm->net;
    struct shm_link *own = link->state;
    size_t bytes = rondo_net_slots_bytes(net, link->protos);
    rondo_status status;

    if (line->at != 0 && rondo_net_inside(line->at, bytes, shm->lines, map->size)) {
        *slots = map->base + line->at;
        return RONDO_SUCCESS;
    }
    status = rondo_shm_open(&own->part, &line->part);
    if (status != RONDO_SUCCESS && may_have_left(net, own, link->peer, status)) {
        return RONDO_IN_PROGRESS; /* whoever needs the receiver learns that by waiting */
    }
    if (status != RONDO_SUCCESS || own->part.size < bytes) {
        return rondo_fail(status != RONDO_SUCCESS ? status : RONDO_INTERNAL_ERROR,
                          "rank %d cannot use the buffers of rank %d (host %.*s) for channel %d: %s",
                          net->rank, link->peer, RONDO_HOST_LEN, net->peers[link->peer].host, link->channel,
                          status != RONDO_SUCCESS ? rondo_error_text() : "they are too small");
    }
    *slots = own->part.base;
    return RONDO_SUCCESS;
}

/* The receiver takes slots and tells the sender, who waits for that. */
static rondo_status shm_wire(void *state, struct rondo_link *link)
{
    struct shm *shm = state;
    struct shm_link *own = link->state;
    struct shm_line *line = (struct shm_line *)link->head;
    uint8_t *slots = NULL;

    if (link->is_send) {
        struct shm_map *map;
        if (__atomic_load_n(&line->ready, __ATOMIC_ACQUIRE) == 0) { /* pairs with the release in tell() */
            return RONDO_IN_PROGRESS;
        }
        RONDO_TRY(map_get(shm, link->peer, &map));
        RONDO_TRY(slots_of(shm, link, map, line, &slots));
        link->conn.head = own->head;
        link->conn.seen = link->conn.step; /* the receiver has consumed what was posted, a hello or nothing */
        return conn_slots(shm, link, slots);
    }
    size_t bytes = rondo_net_slots_bytes(shm->net, link->protos);
    RONDO_TRY(rondo_slots_take(&own->own, bytes, shm->net->shm_mode, shm->net->limited ? &line->use : NULL,
                               link->conn.step));
    shm->reserved += own->own.part.size;
    RONDO_TRY(conn_slots(shm, link, own->own.part.base));
    tell(line, own);
    return RONDO_SUCCESS;
}

/* The slots were there at the link's last use, and may be gone. A sender without them has no credit. */
static rondo_status shm_use(void *state, struct rondo_link *link)
{
    struct shm_link *own = link->state;
    struct shm_line *line = (struct shm_line *)link->head;
    struct rondo_conn *conn = &link->conn;
    (void)state;
    if (!link->is_send) {
        return rondo_slots_begin(&own->own);
    }
    if (!rondo_use_begin(&line->use, conn->step)) {
        conn->head = &no_credit;
        conn->seen = no_credit.head;
        return RONDO_IN_PROGRESS;
    }
    conn->head = own->head;
    if (conn->seen == no_credit.head) {
        conn->seen = conn->step; /* the receiver has consumed all, or it would have kept the slots */
    }
    return RONDO_SUCCESS;
}

static void shm_rest(void *state, struct rondo_link *link)
{
    struct shm_link *own = link->state;
    (void)state;
    if (link->is_send) {
        rondo_use_rest(&((struct shm_line *)link->head)->use, link->conn.step);
    } else {
        rondo_slots_rest(&own->own, link->conn.step);
    }
}

/* As receiver, with all slots in the arena: reserve those for this sender, then tell it. */
static rondo_status lazy_receive(struct shm *shm, struct rondo_link *link, int local)
{
    struct shm_link *own = link->state;
    own->slots = shm->lazy_slots + (size_t)local * shm->lazy_bytes;
    RONDO_TRY(arena_reserve(shm, own->slots, shm->lazy_bytes));
    RONDO_TRY(conn_slots(shm, link, shm->arena.base + own->slots));
    tell((struct shm_line *)link->head, own);
    return RONDO_SUCCESS;
}

static rondo_status lazy_fill(struct shm *shm, struct rondo_link *link, const struct shm_map *peer)
{
    int self = shm->net->local_rank, local = shm->net->local_of[link->peer];
    const struct shm_map *sender = link->is_send ? &shm->map[self] : peer,
                         *receiver = link->is_send ? peer : &shm->map[self];
    size_t from = (size_t)(link->is_send ? self : local), to = (size_t)(link->is_send ? local : self);
    struct shm_link *own;

    RONDO_TRY(RONDO_NEW(own, "a shm link"));
    link->state = own;
    return conn_fill(shm, link,
                     (struct shm_place){ .tail = receiver->base + shm->tails + from * RONDO_CTRL_ALIGN,
                                         .head = sender->base + shm->heads + to * RONDO_CTRL_ALIGN });
}

static rondo_status shm_connect_lazy(void *state, struct rondo_link *link)
{
    struct shm *shm = state;
    int used = link->is_send ? LAZY_SEND_USED : LAZY_RECV_USED;
    struct shm_map *peer;
    rondo_status status;

    RONDO_TRY(arena_make(shm));
    RONDO_TRY(map_get(shm, link->peer, &peer));
    int local = shm->net->local_of[link->peer];
    if (link->state == NULL) {
        if (shm->lazy[local] & used) {
            /* Its head and tail are no longer zero. */
            return rondo_fail(RONDO_INTERNAL_ERROR,
                              "rank %d creates the lazy %s link with rank %d a second time", shm->net->rank,
                              link->is_send ? "send" : "receive", link->peer);
        }
        RONDO_TRY(lazy_fill(shm, link, peer));
        shm->lazy[local] |= (uint8_t)used;
    }
    status = shm->whole && !link->is_send ? lazy_receive(shm, link, local) : shm_wire(shm, link);
    link->unwired = status != RONDO_SUCCESS;
    return status;
}

static void shm_disconnect(void *state, struct rondo_link *link)
{
    struct shm_link *own = link->state;
    (void)state;
    if (own != NULL) {
        rondo_slots_close(&own->own);
        rondo_shm_close(&own->part);
    }
    rondo_free(own);
    link->state = NULL;
}

static rondo_status shm_connect_all(void *state)
{
    struct shm *shm = state;
    struct shm_map *map;

    if (shm->arena.base == NULL) {
        return RONDO_SUCCESS;
    }
    /* A memfd can be opened while its owner has it open; a file name or a socket is removed in its owner's
     * settle. */
    for (int i = 0; i < shm->net->nlocal; i++) {
        if (shm->net->arenas[i].mode != RONDO_SHM_MODE_MEMFD) {
            RONDO_TRY(map_get(shm, shm->net->local_ranks[i], &map));
        }
    }
    return RONDO_SUCCESS;
}

static void shm_settle(void *state) { rondo_shm_unlink(&((struct shm *)state)->arena); }

static size_t shm_bytes(void *state) { return ((struct shm *)state)->reserved; }

const struct rondo_transport rondo_transport_shm = {
    .name = "shm",
    .number = 1,
    .reaches = shm_reaches,
    .why_not = shm_why_not,
    .open = shm_open_arena,
    .offer = shm_offer,
    .connect = shm_connect,
    .connect_lazy = shm_connect_lazy,
    .wire = shm_wire,
    .use = shm_use,
    .rest = shm_rest,
    .disconnect = shm_disconnect,
    .connect_all = shm_connect_all,
    .settle = shm_settle,
    .close = shm_close,
    .bytes = shm_bytes,
};
