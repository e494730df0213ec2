/* Zeroed, aligned allocations, checked for overflow, whose errors name what could not be allocated. */
#ifndef RONDO_BASE_MEM_H
#define RONDO_BASE_MEM_H

#include <stdlib.h>
#include "base/status.h"

/** Allocate n zeroed objects of @a size bytes at *ptr; free with rondo_free. n * size == 0 gives a unique
 * pointer. It is cache-line aligned where an object takes whole lines, and from RONDO_MEM_ALIGN_FROM bytes
 * on; else aligned for any basic type, which costs a sixth of the time. */
enum { RONDO_MEM_ALIGN_FROM = 1024 };
rondo_status rondo_calloc(void *ptr, size_t n, size_t size, const char *what);
#define RONDO_NEW(ptr, what) rondo_calloc(&(ptr), 1, sizeof(*(ptr)), what)
#define RONDO_NEW_ARRAY(ptr, n, what) rondo_calloc(&(ptr), (size_t)(n), sizeof(*(ptr)), what)
static inline void rondo_free(void *ptr) { free(ptr); }

/** 64-bit hash (FNV-1a with a final mix); seed 0 to start, or a previous result to continue. Not for secrets.
 */
uint64_t rondo_hash(const void *data, size_t bytes, uint64_t seed);
/** n random bytes from the kernel. */
rondo_status rondo_random(void *data, size_t bytes);

#endif
