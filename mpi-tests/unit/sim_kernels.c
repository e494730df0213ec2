/* One copy of the code for all types, operations and protocols. */
#define RONDO_MACHINE_SIM 1
#include "sim_kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
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

void sim_kernel_name(const struct sim_kernel *k, char *name)
{
    const char *way = ways[k->direct ? (size_t)DIRECT : (size_t)k->proto];
    if (k->kind == SIM_KERNEL_P2P) {
        snprintf(name, RONDO_KERNEL_NAME, "rondo_p2p");
    } else if (k->kind == SIM_KERNEL_COPY) {
        snprintf(name, RONDO_KERNEL_NAME, "rondo_copy_%s", way);
    } else {
        snprintf(name, RONDO_KERNEL_NAME, "rondo_%s_%s_%s", dtypes[k->dtype], reduces[k->reduce], way);
    }
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
    /* p2p, copies, reductions */
    for (size_t i = 0; i < 1 + nways + all; i++) {
        const size_t at = i - 1 - nways;
        struct sim_kernel k = { .kind = i == 0       ? SIM_KERNEL_P2P
                                        : i <= nways ? SIM_KERNEL_COPY
                                                     : SIM_KERNEL_REDUCE };
        char text[RONDO_KERNEL_NAME];
        if (k.kind == SIM_KERNEL_COPY) set_way(&k, i - 1);
        if (k.kind == SIM_KERNEL_REDUCE) {
            k.dtype = (rondo_dtype)(at / nways / nops);
            k.reduce = (enum rondo_reduce)(at / nways % nops);
            set_way(&k, at % nways);
        }
        sim_kernel_name(&k, text);
        if (strcmp(name, text) == 0) return k;
    }
    return (struct sim_kernel){ .kind = SIM_KERNEL_NONE };
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

static struct ptx_module *module;

static void __attribute__((noreturn)) give_up(const char *why)
{
    fprintf(stderr, "FAKE_CUDA_PTX=%s: %s\n", getenv("FAKE_CUDA_PTX"), why);
    exit(1);
}

static void open_module(void)
{
    const char *path = getenv("FAKE_CUDA_PTX");
    char why[400];
    if (path == NULL || *path == 0) return;
    module = ptx_open_file(path, why, sizeof why);
    if (module == NULL) give_up(why);
}

struct ptx_module *sim_kernel_ptx(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_module);
    return module;
}

struct rondo_sim_grid sim_kernel_grid(struct sim_kernel_run *run, uint32_t threads)
{
    struct ptx_module *ptx = sim_kernel_ptx();
    char name[RONDO_KERNEL_NAME], why[400];
    sim_kernel_name(&run->kernel, name);
    if (!run->in_c && ptx != NULL && ptx_has(ptx, name)) {
        run->ptx = (struct ptx_run){ .program = ptx_find(ptx, name, why, sizeof why),
                                     .argument = run->launch,
                                     .abort = run->launch->words == NULL ? NULL
                                                                         : &run->launch->words->abort };
        if (run->ptx.program == NULL) give_up(why);
        return ptx_grid(&run->ptx, run->launch->nblocks, threads);
    }
    return (struct rondo_sim_grid){ body, run, run->launch->nblocks, threads,
                                    sizeof(struct rondo_block_shared) };
}
