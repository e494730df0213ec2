#include "net/bootstrap/meeting_ranks.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/wait.h"
#include "net/bootstrap/rounds.h"

enum {
    PARKED = 256 << 10, /* bytes that have come by a connection, and that no round has taken yet */
    LIMIT = 4 << 10     /* of a message, but for the table */
};

/* ---- items ---- */

static rondo_status put_item(struct rondo_meet_items *items, struct rondo_meet_conn *conn, const void *data,
                             size_t bytes)
{
    struct rondo_meet_item *item;
    RONDO_TRY(rondo_calloc(&item, 1, sizeof(*item) + bytes, "a record of another rank"));
    item->conn = conn;
    item->bytes = bytes;
    memcpy(item->data, data, bytes);
    *items->end = item;
    items->end = &item->next;
    return RONDO_SUCCESS;
}

struct rondo_meet_item *rondo_meet_item_take(struct rondo_meet_items *items, int from)
{
    for (struct rondo_meet_item **at = &items->first; *at != NULL; at = &(*at)->next) {
        struct rondo_meet_item *item = *at;
        if (from < 0 || item->conn->rank == from) {
            *at = item->next;
            if (items->end == &item->next) {
                items->end = at;
            }
            return item;
        }
    }
    return NULL;
}

void rondo_meet_part_free(struct rondo_meet_item *part)
{
    part->conn->parked -= part->bytes;
    rondo_free(part);
}

static void free_items(struct rondo_meet_items *items)
{
    for (struct rondo_meet_item *item = rondo_meet_item_take(items, -1); item != NULL;
         item = rondo_meet_item_take(items, -1)) {
        rondo_free(item);
    }
}

/* ---- connections ---- */

const uint8_t *rondo_meet_addr_of(const struct rondo_meet_ranks *ranks, int rank)
{
    return ranks->table + (size_t)rank * RONDO_ADDR_BYTES;
}

static size_t limit_of(const struct rondo_meet_ranks *ranks)
{
    size_t table = (size_t)ranks->nranks * RONDO_ADDR_BYTES;
    return table > LIMIT ? table : LIMIT;
}

/* A rank takes connections from other ranks, and from the creator. */
const uint64_t *rondo_meet_ranks_judge(void *arg, const struct rondo_auth_hello *hello)
{
    const struct rondo_meet_ranks *ranks = arg;
    int from = hello->client_rank;
    return hello->comm_hash == ranks->id.name && hello->client == ranks->id.serial &&
                   hello->server_rank == ranks->rank && from >= RONDO_MEET_ROOT && from < ranks->nranks &&
                   from != ranks->rank
               ? ranks->id.secret
               : NULL;
}

/* The connection to send on to a rank: the first one that was there when something was to be sent. A pair may
 * have another, older one whose handshake is complete only later: to change over would break the order. */
static struct rondo_meet_conn *find_conn(const struct rondo_meet_ranks *ranks, int rank)
{
    struct rondo_meet_conn *found = NULL;
    for (struct rondo_meet_conn *conn = ranks->conns; conn != NULL; conn = conn->next) {
        if (conn->rank != rank || rondo_meet_is_unproved(conn->state)) {
            continue;
        }
        if (conn->sends) {
            return conn;
        }
        found = found == NULL ? conn : found;
    }
    return found;
}

static void add_conn(struct rondo_meet_ranks *ranks, struct rondo_meet_conn *conn)
{
    struct rondo_meet_conn **at = &ranks->conns;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    conn->next = NULL;
    *at = conn;
}

/* Did the rank's own system end this connection? Then it ends the others too. */
static int is_closed(const struct rondo_meet_conn *conn)
{
    return conn->error == 0 || conn->error == ECONNRESET || conn->error == ECONNREFUSED ||
           conn->error == EPIPE;
}

/* What does an ended connection say about its rank? An end without a goodbye is a death, but before the
 * handshake was complete it may be that the rank has closed its listener in order. */
static enum rondo_rounds_state verdict(const struct rondo_meet_conn *conn)
{
    switch (conn->ended_in) {
    case RONDO_MEET_ACCEPTED_:
    case RONDO_MEET_WELCOMED: return RONDO_ROUNDS_ALIVE; /* it may be a stranger's */
    case RONDO_MEET_GREETED: return RONDO_ROUNDS_LEFT;
    default: return conn->bye ? RONDO_ROUNDS_LEFT : RONDO_ROUNDS_LOST;
    }
}

/* A connection has ended. A pair may have several, and what the rank sent before it left may be unread in
 * another one: the rank has ended when all of them have, and in order if one of them said so. */
static void note_end(struct rondo_meet_ranks *ranks, const struct rondo_meet_conn *ended)
{
    enum rondo_rounds_state state = verdict(ended);
    int said_goodbye = 0;
    if (ended->rank < 0 || ranks->state[ended->rank] != RONDO_ROUNDS_ALIVE) {
        return;
    }
    for (const struct rondo_meet_conn *conn = ranks->conns; conn != NULL && is_closed(ended);
         conn = conn->next) {
        if (conn->rank != ended->rank || conn->state == RONDO_MEET_ACCEPTED_) {
            continue;
        }
        if (conn->state != RONDO_MEET_ENDED) {
            return;
        }
        said_goodbye |= conn->bye;
        state = verdict(conn) > state ? verdict(conn) : state;
    }
    ranks->state[ended->rank] = said_goodbye ? RONDO_ROUNDS_LEFT : state;
}

rondo_status rondo_meet_conn_to(struct rondo_meet_ranks *ranks, int rank, struct rondo_meet_conn **conn)
{
    *conn = find_conn(ranks, rank);
    if (*conn == NULL) {
        rondo_status status = rondo_meet_connect(&ranks->id, rondo_meet_addr_of(ranks, rank), ranks->rank,
                                                 rank, limit_of(ranks), conn);
        if (status != RONDO_SUCCESS) {
            return rondo_fail_aloud(status);
        }
        add_conn(ranks, *conn);
        if ((*conn)->state == RONDO_MEET_ENDED) { /* no network leads there */
            note_end(ranks, *conn);
        }
    }
    (*conn)->sends = 1;
    return RONDO_SUCCESS;
}

static rondo_status take_table(struct rondo_meet_ranks *ranks, const void *data, size_t bytes)
{
    struct rondo_subtree place = rondo_subtree_of(ranks->rank, ranks->nranks);
    if (ranks->table != NULL || bytes != (size_t)ranks->nranks * RONDO_ADDR_BYTES) {
        return RONDO_SUCCESS; /* it came before */
    }
    RONDO_TRY(rondo_calloc(&ranks->table, (size_t)ranks->nranks, RONDO_ADDR_BYTES, "the ranks' addresses"));
    memcpy(ranks->table, data, bytes);
    for (int i = 0; i < place.nchildren; i++) {
        struct rondo_meet_conn *conn;
        RONDO_TRY(rondo_meet_conn_to(ranks, place.child[i], &conn));
        RONDO_TRY(rondo_meet_send(conn, RONDO_MEET_TABLE, ranks->table, bytes, NULL, 0));
    }
    return RONDO_SUCCESS;
}

static rondo_status take_part(struct rondo_meet_ranks *ranks, struct rondo_meet_conn *conn, const void *data,
                              size_t bytes)
{
    if (bytes < sizeof(struct rondo_meet_part) || conn->rank < 0) {
        return RONDO_SUCCESS;
    }
    conn->parked += bytes;
    return put_item(&ranks->parts, conn, data, bytes);
}

static rondo_status take_message(struct rondo_meet_ranks *ranks, struct rondo_meet_conn *conn,
                                 const struct rondo_meet_head *head, const void *data)
{
    switch (head->kind) {
    case RONDO_MEET_TABLE: return take_table(ranks, data, head->bytes);
    case RONDO_MEET_PART: return take_part(ranks, conn, data, head->bytes);
    case RONDO_MEET_NOTE:
        return head->bytes == sizeof(struct rondo_rounds_note) && conn->rank >= 0
                   ? put_item(&ranks->notes, conn, data, head->bytes)
                   : RONDO_SUCCESS;
    case RONDO_MEET_BYE: conn->bye = 1; return RONDO_SUCCESS;
    default: return RONDO_SUCCESS;
    }
}

/* Drop the oldest connection that has proved nothing for so long. */
static void drop_stranger(struct rondo_meet_ranks *ranks, int64_t silent_ns)
{
    int64_t now = rondo_now_ns();
    for (struct rondo_meet_conn *conn = ranks->conns; conn != NULL; conn = conn->next) {
        if (rondo_meet_is_unproved(conn->state) && now - conn->since_ns >= silent_ns) {
            rondo_meet_end(conn, ETIMEDOUT);
            return;
        }
    }
}

/* Out of descriptors: connections wait in the kernel, for a time. */
static rondo_status run_short(struct rondo_meet_ranks *ranks, rondo_status status)
{
    int64_t now = rondo_now_ns();
    drop_stranger(ranks, rondo_meet_silent_ns);
    ranks->short_ns = ranks->short_ns == 0 ? now : ranks->short_ns;
    return now - ranks->short_ns < rondo_meet_silent_ns ? RONDO_SUCCESS : rondo_fail_aloud(status);
}

static int count_strangers(const struct rondo_meet_ranks *ranks)
{
    int n = 0;
    for (const struct rondo_meet_conn *conn = ranks->conns; conn != NULL; conn = conn->next) {
        n += rondo_meet_is_unproved(conn->state);
    }
    return n;
}

static rondo_status accept_all(struct rondo_meet_ranks *ranks)
{
    struct rondo_meet_conn *conn;
    do {
        rondo_status status = rondo_meet_accept(ranks->listener, limit_of(ranks), &conn);
        if (status != RONDO_SUCCESS) {
            return run_short(ranks, status);
        }
        ranks->short_ns = 0;
        if (conn != NULL) {
            add_conn(ranks, conn);
            if (count_strangers(ranks) > ranks->nranks + RONDO_MEET_STRANGERS) {
                drop_stranger(ranks, 0);
            }
        }
    } while (conn != NULL);
    return RONDO_SUCCESS;
}

static rondo_status move_one(struct rondo_meet_ranks *ranks, struct rondo_meet_conn *conn)
{
    struct rondo_meet_head head;
    const void *data;
    if (conn->noted) {
        return RONDO_SUCCESS;
    }
    rondo_meet_move(conn, conn->parked < PARKED, rondo_meet_ranks_judge, ranks);
    while ((data = rondo_meet_next(conn, &head)) != NULL) {
        RONDO_TRY(take_message(ranks, conn, &head, data));
    }
    if (conn->state == RONDO_MEET_ENDED) { /* here, or in a send */
        conn->noted = 1;
        note_end(ranks, conn);
    }
    return RONDO_SUCCESS;
}

/* Move all connections between ranks. An ended one stays in the list, unless it is a stranger's: it is still
 * the one to send on. One by which too much has come waits, and no other: what this round needs may come by
 * any of them. */
rondo_status rondo_meet_ranks_move(struct rondo_meet_ranks *ranks)
{
    RONDO_TRY(accept_all(ranks));
    for (struct rondo_meet_conn **at = &ranks->conns; *at != NULL;) {
        struct rondo_meet_conn *conn = *at;
        RONDO_TRY(move_one(ranks, conn));
        if (conn->noted && rondo_meet_is_unproved(conn->ended_in)) {
            *at = conn->next;
            rondo_meet_free(conn);
        } else {
            at = &conn->next;
        }
    }
    return RONDO_SUCCESS;
}

/* ---- the end ---- */

static int is_unsent(const struct rondo_meet_conn *conn)
{
    return conn->state == RONDO_MEET_CONNECTING || conn->state == RONDO_MEET_GREETED ||
           (conn->state == RONDO_MEET_OPEN && rondo_meet_queued(conn) > 0);
}

void rondo_meet_flush(struct rondo_meet_ranks *ranks, struct rondo_meet_conn *first, int64_t limit_ns)
{
    int64_t end = rondo_now_ns() + limit_ns;
    int open = 1;
    while (open && rondo_now_ns() < end) {
        struct pollfd poller = { .fd = -1 };
        open = 0;
        for (struct rondo_meet_conn *conn = first; conn != NULL; conn = conn->next) {
            rondo_meet_move(conn, 1, rondo_meet_ranks_judge, ranks);
            if (conn->state == RONDO_MEET_OPEN || conn->state == RONDO_MEET_ENDED) {
                conn->in.from = conn->in.to; /* nobody reads it any more; only the handshake's bytes count */
            }
            if (is_unsent(conn)) {
                open = 1;
                poller = (struct pollfd){ .fd = conn->fd, .events = rondo_meet_events(conn) };
            }
        }
        if (open) {
            poll(&poller, 1, 5);
        }
    }
}

void rondo_meet_say_goodbye(struct rondo_meet_ranks *ranks, int64_t limit_ns)
{
    for (struct rondo_meet_conn *conn = ranks->conns; conn != NULL; conn = conn->next) {
        if (conn->state == RONDO_MEET_OPEN || is_unsent(conn)) {
            (void)rondo_meet_send(conn, RONDO_MEET_BYE, NULL, 0, NULL, 0);
        }
    }
    rondo_meet_flush(ranks, ranks->conns, limit_ns);
}

rondo_status rondo_meet_ranks_init(struct rondo_meet_ranks *ranks, int rank, int nranks)
{
    *ranks = (struct rondo_meet_ranks){ .rank = rank, .nranks = nranks, .listener = -1 };
    ranks->parts.end = &ranks->parts.first;
    ranks->notes.end = &ranks->notes.first;
    return RONDO_NEW_ARRAY(ranks->state, nranks, "the states of ranks");
}

void rondo_meet_ranks_release(struct rondo_meet_ranks *ranks)
{
    free_items(&ranks->parts);
    free_items(&ranks->notes);
    while (ranks->conns != NULL) {
        struct rondo_meet_conn *conn = ranks->conns;
        ranks->conns = conn->next;
        rondo_meet_free(conn);
    }
    if (ranks->listener >= 0) {
        close(ranks->listener);
    }
    rondo_free(ranks->table);
    rondo_free(ranks->state);
}
