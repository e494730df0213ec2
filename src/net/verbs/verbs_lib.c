/* libibverbs, opened at run time: one binary works with and without it. */
#include "net/verbs/verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "base/param.h"

static struct {
    void *handle;
    struct rondo_verbs_lib lib;
    const struct rondo_verbs_lib *replaced;
} opened; /* under the lock of the devices */

/* The header's inline function of this name asks the provider itself if possible: old entry points know a
 * shorter struct. */
typedef int (*query_port_fn)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
static query_port_fn query_port_compat;

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
    struct verbs_context *extended = verbs_get_ctx_op(context, query_port);
    memset(attr, 0, sizeof *attr);
    return extended != NULL ? extended->query_port(context, port, attr, sizeof *attr)
                            : query_port_compat(context, port, attr);
}

/* Some symbols exist in two versions; the header has version 1.1, newer functions have one version of
 * their own. */
static void *symbol(void *handle, const char *name)
{
    void *address = dlvsym(handle, name, "IBVERBS_1.1");
    return address != NULL ? address : dlsym(handle, name);
}

#define ROW_(ctx, type, name, symbol, needed, parameters) \
    { #symbol, offsetof(struct rondo_verbs_lib, name), needed },
static const struct {
    const char *name;
    size_t offset;
    int needed;
} symbols[] = { RONDO_VERBS_TABLE(ROW_, ) };
#undef ROW_

const struct rondo_verbs_lib *rondo_verbs_lib_open(char *why, size_t bytes)
{
    if (opened.replaced != NULL || opened.handle != NULL) {
        return opened.replaced != NULL ? opened.replaced : &opened.lib;
    }
    const char *name = rondo_params()->ibverbs_lib;
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL |
                                    RTLD_NODELETE); /* from ibv_fork_init on it tracks registered pages */
    if (handle == NULL) {
        snprintf(why, bytes, "the verbs library cannot be opened (%s); Debian: libibverbs1", dlerror());
        return NULL;
    }
    for (size_t i = 0; i < RONDO_COUNTOF(symbols); i++) {
        void *address = symbol(handle, symbols[i].name);
        if (address == NULL && symbols[i].needed) {
            snprintf(why, bytes, "%.80s has no %s", name, symbols[i].name);
            dlclose(handle);
            return NULL;
        }
        memcpy((char *)&opened.lib + symbols[i].offset, &address, sizeof address);
    }
    query_port_compat = opened.lib.query_port;
    opened.lib.query_port = query_port;
    opened.handle = handle;
    /*
     * A program that forks must not lose registered pages to copy-on-write, its own or the child's, on
     * kernels that do not copy them at fork. It is too late if the program's MPI has registered memory; then
     * MPI must have done it.
     */
    if (opened.lib.fork_init != NULL && opened.lib.fork_init() != 0) {
        RONDO_INFO(RONDO_SUBSYS_NET,
                   "verbs: ibv_fork_init failed (%s): after a fork, registered memory may differ from "
                   "the card's",
                   strerror(errno));
    }
    return &opened.lib;
}

void rondo_verbs_lib_close(void)
{
    if (opened.handle != NULL) {
        dlclose(opened.handle);
        opened.handle = NULL;
    }
}

void rondo_verbs_lib_replace(const struct rondo_verbs_lib *lib) { opened.replaced = lib; }
