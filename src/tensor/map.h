/* A hash table of nodes that lie in their objects. The owner hashes and compares; nothing here frees them. */
#ifndef RONDO_TENSOR_MAP_H
#define RONDO_TENSOR_MAP_H

#include "base/mem.h"

struct rondo_tensor_node {
    struct rondo_tensor_node *next;
    uint64_t hash;
};

struct rondo_tensor_map { /* zeroed: empty */
    struct rondo_tensor_node **bucket;
    size_t nbuckets, n;
};

/** @return the first node with this hash, whose chain the caller follows with rondo_tensor_map_next. */
static inline struct rondo_tensor_node *rondo_tensor_map_first(const struct rondo_tensor_map *map,
                                                               uint64_t hash)
{
    struct rondo_tensor_node *node = map->nbuckets > 0 ? map->bucket[hash & (map->nbuckets - 1)] : NULL;
    while (node != NULL && node->hash != hash) {
        node = node->next;
    }
    return node;
}

static inline struct rondo_tensor_node *rondo_tensor_map_next(const struct rondo_tensor_node *node)
{
    uint64_t hash = node->hash;
    struct rondo_tensor_node *next = node->next;
    while (next != NULL && next->hash != hash) {
        next = next->next;
    }
    return next;
}

/** Make room for one more node. @return an error: there is no memory. */
static inline rondo_status rondo_tensor_map_reserve(struct rondo_tensor_map *map)
{
    size_t wanted = map->nbuckets == 0 ? 16 : 2 * map->nbuckets;
    struct rondo_tensor_node **bucket;
    if (map->n < map->nbuckets) {
        return RONDO_SUCCESS;
    }
    RONDO_TRY(RONDO_NEW_ARRAY(bucket, wanted, "a table of tensors"));
    for (size_t i = 0; i < map->nbuckets; i++) {
        for (struct rondo_tensor_node *node = map->bucket[i], *next; node != NULL; node = next) {
            struct rondo_tensor_node **to = &bucket[node->hash & (wanted - 1)];
            next = node->next;
            node->next = *to;
            *to = node;
        }
    }
    rondo_free(map->bucket);
    map->bucket = bucket;
    map->nbuckets = wanted;
    return RONDO_SUCCESS;
}

/** Add a node after rondo_tensor_map_reserve. */
static inline void rondo_tensor_map_add(struct rondo_tensor_map *map, struct rondo_tensor_node *node,
                                        uint64_t hash)
{
    struct rondo_tensor_node **to = &map->bucket[hash & (map->nbuckets - 1)];
    node->hash = hash;
    node->next = *to;
    *to = node;
    map->n++;
}

static inline void rondo_tensor_map_remove(struct rondo_tensor_map *map, struct rondo_tensor_node *node)
{
    struct rondo_tensor_node **at = &map->bucket[node->hash & (map->nbuckets - 1)];
    while (*at != node) {
        at = &(*at)->next;
    }
    *at = node->next;
    map->n--;
}

/** @return a node of the table, for emptying it; NULL: it is empty. */
static inline struct rondo_tensor_node *rondo_tensor_map_any(const struct rondo_tensor_map *map, size_t *from)
{
    for (; *from < map->nbuckets; ++*from) {
        if (map->bucket[*from] != NULL) {
            return map->bucket[*from];
        }
    }
    return NULL;
}

static inline void rondo_tensor_map_release(struct rondo_tensor_map *map)
{
    rondo_free(map->bucket);
    *map = (struct rondo_tensor_map){ NULL, 0, 0 };
}

#endif
