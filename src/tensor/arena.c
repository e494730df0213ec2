/*
 * Arenas: next fit over blocks in the order of their addresses, which merge when they are free. A search goes
 * on where the last one ended, so that thousands of small tensors in a row cost one step each.
 */
#include "tensor/arena.h"

#include <stddef.h>

#include "base/heap.h"
#include "base/mem.h"

/* Blocks are described apart from the memory: a tensor that is written past its end does not break the
 * list. */
struct block {
    struct rondo_tensor_node node; /* by address, while it is used */
    struct block *next, *prev;
    struct rondo_tensor_arena *arena;
    size_t offset, bytes;
    int used;
};

struct rondo_tensor_arena {
    struct rondo_tensor_arena *next;
    uint8_t *base;
    size_t bytes, used;
    struct block *first, *rover;
};

static rondo_status arena_new(struct rondo_tensor_arenas *arenas, size_t bytes,
                              struct rondo_tensor_arena **arena_out)
{
    struct rondo_tensor_arena *arena;
    void *memory = NULL;
    rondo_status status;
    RONDO_TRY(RONDO_NEW(arena, "an arena of tensors"));
    arena->bytes = rondo_max_size(bytes, arenas->least);
    RONDO_TRY_GOTO(RONDO_NEW(arena->first, "a block of an arena"), fail);
    RONDO_TRY_GOTO(rondo_heap_alloc(&memory, arena->bytes), fail);
    arena->base = memory;
    arena->first->bytes = arena->bytes;
    arena->first->arena = arena;
    arena->rover = arena->first;
    arena->next = arenas->first;
    arenas->first = arena;
    arenas->n++;
    arenas->made++;
    *arena_out = arena;
    return RONDO_SUCCESS;
fail:
    rondo_free(arena->first);
    rondo_free(arena);
    return status;
}

static struct block *fit(const struct rondo_tensor_arena *arena, size_t bytes)
{
    struct block *block = arena->rover;
    if (arena->bytes - arena->used < bytes) {
        return NULL;
    }
    do {
        if (!block->used && block->bytes >= bytes) {
            return block;
        }
        block = block->next != NULL ? block->next : arena->first;
    } while (block != arena->rover);
    return NULL;
}

static uint64_t address_hash(const void *data) { return (uintptr_t)data / RONDO_CACHE_LINE; }

static rondo_status take(struct rondo_tensor_arenas *arenas, struct block *block, size_t bytes, void **data)
{
    struct rondo_tensor_arena *arena = block->arena;
    RONDO_TRY(rondo_tensor_map_reserve(&arenas->used));
    if (block->bytes > bytes) {
        struct block *rest;
        RONDO_TRY(RONDO_NEW(rest, "a block of an arena"));
        *rest = (struct block){ .arena = arena,
                                .offset = block->offset + bytes,
                                .bytes = block->bytes - bytes,
                                .next = block->next,
                                .prev = block };
        if (rest->next != NULL) {
            rest->next->prev = rest;
        }
        block->next = rest;
        block->bytes = bytes;
    }
    block->used = 1;
    arena->used += bytes;
    arena->rover = block->next != NULL ? block->next : arena->first;
    *data = arena->base + block->offset;
    rondo_tensor_map_add(&arenas->used, &block->node, address_hash(*data));
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_arenas_alloc(struct rondo_tensor_arenas *arenas, size_t bytes, void **data)
{
    struct rondo_tensor_arena *arena = arenas->first;
    struct block *block = NULL;
    if (bytes > SIZE_MAX / 2) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "no memory for a tensor of %zu bytes", bytes);
    }
    bytes = rondo_round_up(rondo_max_size(bytes, 1), RONDO_CACHE_LINE);
    for (; arena != NULL && (block = fit(arena, bytes)) == NULL; arena = arena->next) {
    }
    if (block == NULL) {
        RONDO_TRY(arena_new(arenas, bytes, &arena));
        block = arena->first;
    }
    return take(arenas, block, bytes, data);
}

/* Join a free block with the next one if that is free. */
static void merge(struct block *block)
{
    struct block *next = block->next;
    if (block->used || next == NULL || next->used) {
        return;
    }
    if (block->arena->rover == next) {
        block->arena->rover = block;
    }
    block->bytes += next->bytes;
    block->next = next->next;
    if (block->next != NULL) {
        block->next->prev = block;
    }
    rondo_free(next);
}

static void arena_free(struct rondo_tensor_arenas *arenas, struct rondo_tensor_arena *arena)
{
    struct rondo_tensor_arena **at = &arenas->first;
    while (*at != arena) {
        at = &(*at)->next;
    }
    *at = arena->next;
    arenas->n--;
    for (struct block *block = arena->first, *next; block != NULL; block = next) {
        next = block->next;
        if (block->used) {
            rondo_tensor_map_remove(&arenas->used, &block->node);
        }
        rondo_free(block);
    }
    (void)rondo_heap_free(arena->base);
    rondo_free(arena);
}

static struct rondo_tensor_arena *arena_of(const struct rondo_tensor_arenas *arenas, const void *data)
{
    const uint8_t *at = data;
    struct rondo_tensor_arena *arena = arenas->first;
    while (arena != NULL && (at < arena->base || at >= arena->base + arena->bytes)) {
        arena = arena->next;
    }
    return arena;
}

static struct block *block_of(const struct rondo_tensor_arenas *arenas, const void *data)
{
    struct rondo_tensor_node *node = rondo_tensor_map_first(&arenas->used, address_hash(data));
    /* Addresses are multiples of a line, so a hash is an address. */
    struct block *block = node != NULL ? (struct block *)(void *)node : NULL;
    return block != NULL && block->arena->base + block->offset == data ? block : NULL;
}

int rondo_tensor_arenas_free(struct rondo_tensor_arenas *arenas, void *data)
{
    struct block *block = block_of(arenas, data), *before;
    if (block == NULL) {
        return 0;
    }
    struct rondo_tensor_arena *arena = block->arena;
    before = block->prev;
    rondo_tensor_map_remove(&arenas->used, &block->node);
    block->used = 0;
    arena->used -= block->bytes;
    merge(block);
    if (before != NULL) {
        merge(before);
    }
    for (struct rondo_tensor_arena *other = arenas->first; arena->used == 0 && other != NULL;
         other = other->next) {
        if (other != arena && other->used == 0) {
            arena_free(arenas, arena); /* the other one is kept */
            break;
        }
    }
    return 1;
}

int rondo_tensor_arenas_find(const struct rondo_tensor_arenas *arenas, const void *data, size_t bytes,
                             void **base, size_t *size)
{
    const struct rondo_tensor_arena *arena = arena_of(arenas, data);
    if (arena == NULL || bytes > arena->bytes - (size_t)((const uint8_t *)data - arena->base)) {
        return 0;
    }
    *base = arena->base;
    *size = arena->bytes;
    return 1;
}

void rondo_tensor_arenas_release(struct rondo_tensor_arenas *arenas)
{
    while (arenas->first != NULL) {
        arena_free(arenas, arenas->first);
    }
    rondo_tensor_map_release(&arenas->used);
}
