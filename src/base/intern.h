/*
 * Equal data, kept once: the names of hosts, the core sets of their ranks. A table only grows, and ends when
 * nobody holds it any more: a communicator and its children hold the same one. One thread at a time may add;
 * holding and releasing are safe from any thread.
 *
 * Memory: what was added, and for each entry 16 bytes and at most 16 of the index.
 */
#ifndef RONDO_BASE_INTERN_H
#define RONDO_BASE_INTERN_H

#include "base/status.h"

struct rondo_intern;

/** Make an empty table, held once. */
rondo_status rondo_intern_create(struct rondo_intern **table);
struct rondo_intern *rondo_intern_hold(struct rondo_intern *table);
/** Safe on NULL. */
void rondo_intern_release(struct rondo_intern *table);
/** Find or add: @a kept is set to the table's copy, aligned for any basic type, which lives as long as the
 * table. */
rondo_status rondo_intern(struct rondo_intern *table, const void *data, size_t bytes, const void **kept);
/** @return how many different ones there are. */
int rondo_intern_count(const struct rondo_intern *table);

#endif
