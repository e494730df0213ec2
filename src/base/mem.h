/* Memory: zeroed and aligned allocations that name what could not be had. Sizes are checked for overflow. */
#ifndef RONDO_BASE_MEM_H
#define RONDO_BASE_MEM_H

#include <stdlib.h>
#include "base/status.h"

/** *ptr = n zeroed objects of @a size bytes, cache-line aligned; free with rondo_free. n * size == 0 gives a
 * unique pointer. */
rondo_status rondo_calloc(void *ptr, size_t n, size_t size, const char *what);
#define RONDO_NEW(ptr, what) rondo_calloc(&(ptr), 1, sizeof(*(ptr)), what)
#define RONDO_NEW_ARRAY(ptr, n, what) rondo_calloc(&(ptr), (size_t)(n), sizeof(*(ptr)), what)
static inline void rondo_free(void *ptr) { free(ptr); }

/** 64-bit hash (FNV-1a with a final mix); seed 0 to start, a previous result to go on. Not for secrets. */
uint64_t rondo_hash(const void *data, size_t bytes, uint64_t seed);
/** n random bytes from the kernel. */
rondo_status rondo_random(void *data, size_t bytes);

#endif
