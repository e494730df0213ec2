/*
 * Where keys are, for pulls from RONDO_TENSOR_ANY. The home of a key is a rank that its hash chooses:
 * publishers announce the key there, and pullers ask there, once each.
 */
#include "tensor/answer.h"

#include <string.h>

static rondo_status home_get(struct rondo_tensor_core *core, const char *key, size_t bytes,
                             struct rondo_tensor_home **home_out)
{
    uint64_t hash = rondo_tensor_key_hash(key, bytes);
    struct rondo_tensor_home *home;
    for (struct rondo_tensor_node *node = rondo_tensor_map_first(&core->homes, hash); node != NULL;
         node = rondo_tensor_map_next(node)) {
        home = (struct rondo_tensor_home *)(void *)node;
        if (home->key_bytes == bytes && memcmp(home->key, key, bytes) == 0) {
            *home_out = home;
            return RONDO_SUCCESS;
        }
    }
    RONDO_TRY(rondo_tensor_map_reserve(&core->homes));
    RONDO_TRY(rondo_calloc(&home, 1, sizeof(*home) + bytes, "the home of a key"));
    home->rank = -1;
    home->key_bytes = bytes;
    memcpy(home->key, key, bytes);
    rondo_tensor_map_add(&core->homes, &home->node, hash);
    *home_out = home;
    return RONDO_SUCCESS;
}

/* Free the home of a key that nobody has announced and nobody asks for. */
static void home_settle(struct rondo_tensor_core *core, struct rondo_tensor_home *home)
{
    if (home->rank < 0 && home->asking == NULL) {
        rondo_tensor_map_remove(&core->homes, &home->node);
        rondo_free(home);
    }
}

static rondo_status locate_new(struct rondo_tensor_conn *conn, struct rondo_tensor_home *home, uint32_t index)
{
    struct rondo_tensor_locate *locate;
    RONDO_TRY(rondo_tensor_map_reserve(&conn->locates));
    RONDO_TRY(RONDO_NEW(locate, "a question for the rank of a key"));
    locate->home = home;
    locate->conn = conn;
    locate->next = home->asking;
    locate->link = &home->asking;
    if (locate->next != NULL) {
        locate->next->link = &locate->next;
    }
    home->asking = locate;
    rondo_tensor_map_add(&conn->locates, &locate->node, index);
    return RONDO_SUCCESS;
}

static void locate_end(struct rondo_tensor_locate *locate)
{
    *locate->link = locate->next;
    if (locate->next != NULL) {
        locate->next->link = locate->link;
    }
    rondo_tensor_map_remove(&locate->conn->locates, &locate->node);
    rondo_free(locate);
}

void rondo_tensor_locate_forget(struct rondo_tensor_conn *conn, uint32_t index)
{
    struct rondo_tensor_locate *locate = (struct rondo_tensor_locate *)(void *)rondo_tensor_map_first(
        &conn->locates, index);
    if (locate != NULL) {
        struct rondo_tensor_home *home = locate->home;
        locate_end(locate);
        home_settle(conn->core, home);
    }
}

void rondo_tensor_locates_drop(struct rondo_tensor_conn *conn)
{
    struct rondo_tensor_node *node;
    size_t from = 0;
    while ((node = rondo_tensor_map_any(&conn->locates, &from)) != NULL) {
        rondo_tensor_locate_forget(conn, (uint32_t)node->hash);
    }
}

static rondo_status say_location(struct rondo_tensor_conn *conn, uint32_t index, int rank)
{
    struct rondo_tensor_message message = { .type = RONDO_TENSOR_LOCATION, .index = index, .rank = rank };
    return rondo_tensor_say(conn, &message);
}

rondo_status rondo_tensor_on_locate(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m)
{
    struct rondo_tensor_home *home;
    RONDO_TRY(home_get(conn->core, m->name, m->name_bytes, &home));
    if (home->rank >= 0) {
        return say_location(conn, m->index, home->rank);
    }
    rondo_status status = locate_new(conn, home, m->index);
    home_settle(conn->core, home);
    return status;
}

rondo_status rondo_tensor_on_announce(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m)
{
    struct rondo_tensor_home *home;
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY(home_get(conn->core, m->name, m->name_bytes, &home));
    home->rank = conn->peer;
    while (home->asking != NULL) {
        struct rondo_tensor_conn *to = home->asking->conn;
        rondo_status said = say_location(to, (uint32_t)home->asking->node.hash, home->rank);
        status = said != RONDO_SUCCESS ? said : status;
        locate_end(home->asking);
        if (to != conn) {
            rondo_tensor_conn_flush(to);
        }
    }
    return status;
}

rondo_status rondo_tensor_announce_key(struct rondo_tensor_core *core, struct rondo_tensor_key *key)
{
    struct rondo_tensor_message message = { .type = RONDO_TENSOR_ANNOUNCE,
                                            .name = key->text,
                                            .name_bytes = key->bytes };
    struct rondo_tensor_conn *conn;
    if (key->announced) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_tensor_conn_get(core, (int)(key->node.hash % (uint64_t)core->nranks), &conn));
    RONDO_TRY(rondo_tensor_say(conn, &message));
    key->announced = 1;
    rondo_tensor_conn_flush(conn);
    return RONDO_SUCCESS;
}
