#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

rondo_status rondo_calloc(void *ptr, size_t n, size_t size, const char *what)
{
    size_t bytes, rounded;
    void *memory = NULL;
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > (size_t)PTRDIFF_MAX - RONDO_CACHE_LINE) {
        return rondo_fail(RONDO_SYSTEM_ERROR,
                          "cannot allocate %s: %zu objects of %zu bytes are more than an address space holds",
                          what, n, size);
    }
    rounded = rondo_round_up(bytes ? bytes : 1, RONDO_CACHE_LINE);
    if (bytes < RONDO_MEM_ALIGN_FROM && size % RONDO_CACHE_LINE != 0) {
        memory = malloc(bytes ? bytes : 1);
        rounded = bytes;
    } else if (posix_memalign(&memory, RONDO_CACHE_LINE, rounded) != 0) {
        memory = NULL;
    }
    if (memory == NULL) {
        return rondo_fail(RONDO_SYSTEM_ERROR,
                          "cannot allocate %s: no memory for %zu bytes; look at ulimit -v, the cgroup's "
                          "memory limit and free",
                          what, bytes);
    }
    memset(memory, 0, rounded);
    memcpy(ptr, &memory, sizeof memory); /* ptr is the address of a pointer to any type */
    return RONDO_SUCCESS;
}

uint64_t rondo_hash(const void *data, size_t bytes, uint64_t seed)
{
    const uint8_t *at = data;
    uint64_t hash = seed ^ 0xcbf29ce484222325ull;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ at[i]) * 0x100000001b3ull;
    }
    hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdull;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53ull;
    return hash ^ hash >> 33;
}

rondo_status rondo_random(void *data, size_t bytes)
{
    uint8_t *at = data;
    while (bytes > 0) {
        ssize_t got = getrandom(at, bytes, 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return rondo_fail(
                RONDO_SYSTEM_ERROR,
                "no random bytes from the kernel (getrandom: %m); a seccomp filter may forbid the call");
        }
        at += got;
        bytes -= (size_t)got;
    }
    return RONDO_SUCCESS;
}
