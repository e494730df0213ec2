/*
 * Memory for tensors: blocks of arenas, which lie in the process's shared heap (base/heap.h), so that ranks
 * of the node map them and network devices register each arena once. Not thread-safe: the store's lock
 * protects it.
 */
#ifndef RONDO_TENSOR_ARENA_H
#define RONDO_TENSOR_ARENA_H

#include "tensor/map.h"

struct rondo_tensor_arena;

struct rondo_tensor_arenas { /* zeroed, except for `least` */
    struct rondo_tensor_arena *first;
    size_t least;                 /* bytes of an arena */
    uint64_t n;                   /* arenas held */
    uint64_t made;                /* arenas so far */
    struct rondo_tensor_map used; /* blocks, by address */
};

/** Allocate, aligned to 64 bytes. 0 bytes: a block of its own as well. */
rondo_status rondo_tensor_arenas_alloc(struct rondo_tensor_arenas *arenas, size_t bytes, void **data);
/** Free a block. The last arena that becomes empty is kept. @return 0: no block begins there. */
int rondo_tensor_arenas_free(struct rondo_tensor_arenas *arenas, void *data);
/** Find the arena that holds all of [data, data + bytes). @return 0: none. */
int rondo_tensor_arenas_find(const struct rondo_tensor_arenas *arenas, const void *data, size_t bytes,
                             void **base, size_t *size);
void rondo_tensor_arenas_release(struct rondo_tensor_arenas *arenas);

#endif
