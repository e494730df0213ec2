#include "base/intern.h"

#include <string.h>

#include "base/mem.h"

enum { LEAST_PLACES = 16, LAST = 2 };

struct entry {
    uint32_t hash, bytes;
    uint64_t data[]; /* aligned for any basic type */
};

struct rondo_intern {
    int refs, n;
    uint32_t places;          /* a power of two, more than half of them free */
    struct entry **entry;     /* by hash, the next free place where others have it */
    struct entry *last[LAST]; /* what was found last: ranks of a node follow each other */
    uint32_t turn;            /* whose place the next one takes */
};

rondo_status rondo_intern_create(struct rondo_intern **table_out)
{
    struct rondo_intern *table;
    rondo_status status;
    RONDO_TRY(RONDO_NEW(table, "a table of names"));
    status = RONDO_NEW_ARRAY(table->entry, LEAST_PLACES, "a table of names");
    if (status != RONDO_SUCCESS) {
        rondo_free(table);
        return status;
    }
    table->refs = 1;
    table->places = LEAST_PLACES;
    *table_out = table;
    return RONDO_SUCCESS;
}

struct rondo_intern *rondo_intern_hold(struct rondo_intern *table)
{
    __atomic_add_fetch(&table->refs, 1, __ATOMIC_RELAXED);
    return table;
}

void rondo_intern_release(struct rondo_intern *table)
{
    if (table == NULL || __atomic_sub_fetch(&table->refs, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    for (uint32_t i = 0; i < table->places; i++) {
        rondo_free(table->entry[i]);
    }
    rondo_free(table->entry);
    rondo_free(table);
}

static int is_same(const struct entry *entry, const void *data, size_t bytes)
{
    return entry->bytes == bytes && memcmp(entry->data, data, bytes) == 0;
}

/* @return the place of the data, or the free one where it belongs. */
static struct entry **find(const struct rondo_intern *table, uint32_t hash, const void *data, size_t bytes)
{
    uint32_t at = hash & (table->places - 1);
    while (table->entry[at] != NULL &&
           (table->entry[at]->hash != hash || !is_same(table->entry[at], data, bytes))) {
        at = (at + 1) & (table->places - 1);
    }
    return &table->entry[at];
}

static rondo_status grow(struct rondo_intern *table)
{
    struct entry **old = table->entry, **entry;
    uint32_t n = table->places;
    RONDO_TRY(RONDO_NEW_ARRAY(entry, 2 * (size_t)n, "a table of names"));
    table->entry = entry;
    table->places = 2 * n;
    for (uint32_t i = 0; i < n; i++) {
        if (old[i] != NULL) {
            *find(table, old[i]->hash, old[i]->data, old[i]->bytes) = old[i];
        }
    }
    rondo_free(old);
    return RONDO_SUCCESS;
}

rondo_status rondo_intern(struct rondo_intern *table, const void *data, size_t bytes, const void **kept)
{
    struct entry **place, *entry;
    uint32_t hash;
    if (bytes > UINT32_MAX) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%zu bytes are no name", bytes);
    }
    for (int i = 0; i < LAST; i++) {
        if (table->last[i] != NULL && is_same(table->last[i], data, bytes)) {
            *kept = table->last[i]->data;
            return RONDO_SUCCESS;
        }
    }
    if ((uint32_t)table->n >= table->places / 2) {
        RONDO_TRY(grow(table));
    }
    hash = (uint32_t)rondo_hash(data, bytes, 0);
    place = find(table, hash, data, bytes);
    if (*place == NULL) {
        RONDO_TRY(rondo_calloc(&entry, 1, sizeof(*entry) + bytes, "a name"));
        entry->hash = hash;
        entry->bytes = (uint32_t)bytes;
        memcpy(entry->data, data, bytes);
        *place = entry;
        table->n++;
    }
    table->last[table->turn++ % LAST] = *place;
    *kept = (*place)->data;
    return RONDO_SUCCESS;
}

int rondo_intern_count(const struct rondo_intern *table) { return table->n; }
