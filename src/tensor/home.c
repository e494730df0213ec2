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

void rondo_tensor_locate_forget(struct rondo_tensor_core *core, const struct rondo_tensor_conn *conn,
                                uint32_t index, int all)
{
    for (size_t i = 0; i < core->homes.nbuckets; i++) {
        for (struct rondo_tensor_node *node = core->homes.bucket[i]; node != NULL; node = node->next) {
            struct rondo_tensor_locate **at = &((struct rondo_tensor_home *)(void *)node)->asking;
            while (*at != NULL) {
                struct rondo_tensor_locate *locate = *at;
                if (locate->conn == conn && (all || locate->index == index)) {
                    *at = locate->next;
                    rondo_free(locate);
                } else {
                    at = &locate->next;
                }
            }
        }
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
    struct rondo_tensor_locate *locate;
    RONDO_TRY(home_get(conn->core, m->name, m->name_bytes, &home));
    if (home->rank >= 0) {
        return say_location(conn, m->index, home->rank);
    }
    RONDO_TRY(RONDO_NEW(locate, "a question for the rank of a key"));
    *locate = (struct rondo_tensor_locate){ home->asking, conn, m->index };
    home->asking = locate;
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_on_announce(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m)
{
    struct rondo_tensor_home *home;
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY(home_get(conn->core, m->name, m->name_bytes, &home));
    home->rank = conn->peer;
    while (home->asking != NULL) {
        struct rondo_tensor_locate *locate = home->asking;
        home->asking = locate->next;
        rondo_status said = say_location(locate->conn, locate->index, home->rank);
        status = said != RONDO_SUCCESS ? said : status;
        if (locate->conn != conn) {
            rondo_tensor_conn_flush(locate->conn);
        }
        rondo_free(locate);
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
