/* The names of the kernels, and the library with their code. */
#include "kern/cuda/kernels.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/param.h"
#include "coll/algo.h"
#include "kern/cuda/kernel_list.h"

#define PROTO_ROW(ctx, name, NAME, value) [RONDO_PROTO_##NAME] = { #name, RONDO_THREADS_##name },
static const struct {
    const char *name;
    uint32_t threads;
} protos[] = { RONDO_PROTO_TABLE(PROTO_ROW, ) };
#define DTYPE_ROW(ctx, name, NAME, ...) [RONDO_##NAME] = #name,
static const char *const dtypes[] = { RONDO_DEVICE_DTYPE_TABLE(DTYPE_ROW, ) };
#define REDUCE_ROW(ctx, name, NAME, ...) [RONDO_REDUCE_##NAME] = #name,
static const char *const reduces[] = { RONDO_DEVICE_REDUCE_TABLE(REDUCE_ROW, ) };

static int is_p2p(const struct rondo_work *work)
{
    return work->coll == RONDO_COLL_SEND || work->coll == RONDO_COLL_RECV;
}

static const char *way_of(const struct rondo_work *work)
{
    return rondo_work_is_direct(work) ? "direct" : protos[work->proto].name;
}

void rondo_kernel_name(char name[RONDO_KERNEL_NAME], const struct rondo_work *work)
{
    if (is_p2p(work)) {
        snprintf(name, RONDO_KERNEL_NAME, "rondo_p2p");
    } else if (rondo_coll_reduces(rondo_coll_scheduled_as((enum rondo_coll)work->coll))) {
        snprintf(name, RONDO_KERNEL_NAME, "rondo_%s_%s_%s", dtypes[work->dtype], reduces[work->reduce],
                 way_of(work));
    } else {
        snprintf(name, RONDO_KERNEL_NAME, "rondo_copy_%s", way_of(work));
    }
}

uint32_t rondo_kernel_threads(const struct rondo_work *work)
{
    const uint32_t most = is_p2p(work)                 ? RONDO_THREADS_p2p
                          : rondo_work_is_direct(work) ? RONDO_THREADS_direct
                                                       : protos[work->proto].threads;
    const uint32_t asked = (uint32_t)rondo_params()->nthreads / RONDO_WARP * RONDO_WARP;
    if (asked == 0 || asked > most) {
        return most;
    }
    return asked < 2 * RONDO_WARP ? 2 * RONDO_WARP : asked; /* trees have two teams */
}

/* ---- the library ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const void *image;
static char why_not[512];

/* Open it beside the library that this function is in; in a program, let the loader search. */
static void *open_library(void)
{
    const char *asked = rondo_params()->kernels_lib;
    char path[4096];
    Dl_info here;
    if (asked[0] != '\0') {
        return dlopen(asked, RTLD_NOW | RTLD_LOCAL);
    }
    if (dladdr(&once, &here) != 0 && strrchr(here.dli_fname, '/') != NULL) {
        int folder = (int)(strrchr(here.dli_fname, '/') - here.dli_fname);
        int n = snprintf(path, sizeof path, "%.*s/" RONDO_KERNELS_LIBRARY, folder, here.dli_fname);
        void *library = n < (int)sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
        if (library != NULL) {
            return library;
        }
    }
    return dlopen(RONDO_KERNELS_LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

static void open_once(void)
{
    void *library = open_library(); /* never closed: devices run its code */
    if (library == NULL) {
        snprintf(why_not, sizeof why_not,
                 "cannot open the kernel library (%s): install " RONDO_KERNELS_LIBRARY
                 " beside librondo.so, or name it in RONDO_KERNELS_LIB",
                 dlerror());
        return;
    }
    image = dlsym(library, RONDO_KERNELS_SYMBOL);
    if (image == NULL) {
        snprintf(why_not, sizeof why_not,
                 "%s has no symbol " RONDO_KERNELS_SYMBOL
                 ": it is not Rondo's; unset RONDO_KERNELS_LIB or name " RONDO_KERNELS_LIBRARY,
                 rondo_params()->kernels_lib);
        dlclose(library);
    }
}

const void *rondo_kernels_image(const char **why)
{
    pthread_once(&once, open_once);
    *why = image == NULL ? why_not : NULL;
    return image;
}
