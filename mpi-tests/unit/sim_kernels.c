/* One copy of the code for all types, operations and protocols. */
#define RONDO_MACHINE_SIM 1
#include "sim_kernels.h"

#include <stdio.h>
#include <string.h>

#include "kern/cuda/block_direct.h"

#define NAME_ROW_(ctx, name, NAME, value, ...) [value] = #name,
static const char *const dtypes[] = { RONDO_DEVICE_DTYPE_TABLE(NAME_ROW_, ) };
static const char *const reduces[] = { RONDO_DEVICE_REDUCE_TABLE(NAME_ROW_, ) };
#undef NAME_ROW_
#define NAME_ROW_(ctx, name, NAME, value) [value] = #name,
enum { DIRECT = RONDO_NUM_PROTOS };
static const char *const ways[] = { RONDO_PROTO_TABLE(NAME_ROW_, )[DIRECT] = "direct" };
#undef NAME_ROW_
#define REDUCES_ROW_(ctx, name, NAME, AS, reduces, root) \
    [RONDO_COLL_##NAME] = RONDO_BLOCK_REDUCES_##AS, /* a barrier is an all_reduce */
static const uint8_t coll_reduces[] = { RONDO_COLL_TABLE(REDUCES_ROW_, ) };
#undef REDUCES_ROW_

static int is_reduction(const char *name, size_t dtype, size_t op, size_t way)
{
    char text[RONDO_KERNEL_NAME];
    snprintf(text, sizeof text, "rondo_%s_%s_%s", dtypes[dtype], reduces[op], ways[way]);
    return strcmp(name, text) == 0;
}

static void set_way(struct sim_kernel *k, size_t way)
{
    k->direct = way == DIRECT;
    k->proto = k->direct ? RONDO_PROTO_SIMPLE : (enum rondo_proto)way;
}

struct sim_kernel sim_kernel_find(const char *name)
{
    const size_t nops = RONDO_COUNTOF(reduces), nways = RONDO_COUNTOF(ways),
                 all = RONDO_COUNTOF(dtypes) * nops * nways;
    struct sim_kernel k = { .kind = SIM_KERNEL_NONE };
    char text[RONDO_KERNEL_NAME];
    if (strcmp(name, "rondo_p2p") == 0) {
        k.kind = SIM_KERNEL_P2P;
    }
    for (size_t i = 0; i < nways; i++) {
        snprintf(text, sizeof text, "rondo_copy_%s", ways[i]);
        if (strcmp(name, text) == 0) {
            k.kind = SIM_KERNEL_COPY;
            set_way(&k, i);
        }
    }
    for (size_t i = 0; i < all && k.kind == SIM_KERNEL_NONE; i++) {
        if (is_reduction(name, i / nways / nops, i / nways % nops, i % nways)) {
            k.kind = SIM_KERNEL_REDUCE;
            k.dtype = (rondo_dtype)(i / nways / nops);
            k.reduce = (enum rondo_reduce)(i / nways % nops);
            set_way(&k, i % nways);
        }
    }
    return k;
}

struct sim_kernel sim_kernel_of(const struct rondo_work *w)
{
    const int p2p = w->coll == RONDO_COLL_SEND || w->coll == RONDO_COLL_RECV;
    return (struct sim_kernel){ .kind = p2p                     ? SIM_KERNEL_P2P
                                        : coll_reduces[w->coll] ? SIM_KERNEL_REDUCE
                                                                : SIM_KERNEL_COPY,
                                .direct = rondo_work_is_direct(w),
                                .dtype = (rondo_dtype)w->dtype,
                                .reduce = (enum rondo_reduce)w->reduce,
                                .proto = (enum rondo_proto)w->proto };
}

static void body(void *arg, void *shared)
{
    const struct sim_kernel_run *run = arg;
    const struct sim_kernel *k = &run->kernel;
    if (k->direct) {
        const int moves = k->kind == SIM_KERNEL_COPY;
        rondo_block_direct(run->launch, shared, moves ? RONDO_UINT8 : k->dtype,
                           moves ? (enum rondo_reduce)RONDO_MOVES_ONLY : k->reduce);
    } else if (k->kind == SIM_KERNEL_REDUCE) {
        rondo_block_reduce(run->launch, shared, k->dtype, k->reduce, k->proto);
    } else if (k->kind == SIM_KERNEL_COPY) {
        rondo_block_copy(run->launch, shared, k->proto);
    } else {
        rondo_block_p2p(run->launch, shared);
    }
}

struct rondo_sim_grid sim_kernel_grid(struct sim_kernel_run *run, uint32_t threads)
{
    return (struct rondo_sim_grid){ body, run, run->launch->nblocks, threads,
                                    sizeof(struct rondo_block_shared) };
}
