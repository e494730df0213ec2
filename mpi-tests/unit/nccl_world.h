/* Programs written for NCCL whose ranks are threads. Included after cmocka.h. */
#ifndef RONDO_TESTS_NCCL_WORLD_H
#define RONDO_TESTS_NCCL_WORLD_H

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/nccl/config.def"
#include "shim/nccl/later.h"
#include "shim/nccl/nccl.def"

/* Forked processes have threads of their own. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

enum { MOST = 8, COUNT = 1000 };
#define OK(call) assert_int_equal((call), ncclSuccess)
#define REFUSED(call, result, words)                              \
    do {                                                          \
        assert_int_equal((call), (result));                       \
        assert_non_null(strstr(ncclGetLastError(NULL), (words))); \
    } while (0)

/* ---- ranks that are threads ---- */

struct rank {
    pthread_t thread;
    ncclUniqueId id;
    int rank, n;
    ncclComm_t comm;
    void (*body)(struct rank *r);
    void *arg;
    int failed; /* line of the first failed check */
    char text[600];
};

/* cmocka's asserts are for the main thread only. */
#define CHECK(condition)                                                                                  \
    do {                                                                                                  \
        if (!(condition) && !r->failed) {                                                                 \
            r->failed = __LINE__;                                                                         \
            snprintf(r->text, sizeof(r->text), "%s; last error: %s", #condition, ncclGetLastError(NULL)); \
        }                                                                                                 \
    } while (0)

static inline void *rank_main(void *arg)
{
    struct rank *r = arg;
    CHECK(ncclCommInitRank(&r->comm, r->n, r->id, r->rank) == ncclSuccess);
    if (!r->failed) {
        r->body(r);
    }
    if (r->comm != NULL) {
        CHECK(ncclCommDestroy(r->comm) == ncclSuccess);
    }
    return NULL;
}

static inline void run(int n, void (*body)(struct rank *r), void *arg)
{
    struct rank ranks[MOST];
    ncclUniqueId id;
    int bad = 0;
    OK(ncclGetUniqueId(&id));
    for (int i = 0; i < n; i++) {
        ranks[i] = (struct rank){ .id = id, .rank = i, .n = n, .body = body, .arg = arg };
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(ranks[i].thread, NULL);
        if (ranks[i].failed) {
            print_error("rank %d of %d, line %d: %s\n", i, n, ranks[i].failed, ranks[i].text);
            bad = 1;
        }
    }
    assert_int_equal(bad, 0);
}

static inline ncclComm_t alone(void)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    OK(ncclGetUniqueId(&id));
    OK(ncclCommInitRank(&comm, 1, id, 0));
    return comm;
}

/* Also where there is a GPU. */
static inline void use_host_memory(void) { setenv("RONDO_NCCL_MEMORY", "host", 0); }

#endif
