/* The fake CUDA driver: kernels are those of kern/cuda/kernels.h on the simulated machine, or the PTX of
 * FAKE_CUDA_PTX, whatever the image. */
#define RONDO_MACHINE_SIM 1
#include "fake_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/sim_kernels.h"

enum { REGISTERS = 64 };

/* So that RONDO_KERNELS_LIB may name this library, too. */
extern const char fake_image[] __asm__(RONDO_KERNELS_SYMBOL);
const char fake_image[] = "kernels of the tests' driver";

struct CUmod_st {
    struct CUfunc_st *functions;
};

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    CUcontext ctx;
    CUresult result;
    FAKE_ENTER_CTX("cuModuleLoadData", ctx);
    if (image == NULL) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake.lock);
    result = fake_unsafe();
    pthread_mutex_unlock(&fake.lock);
    if (result != CUDA_SUCCESS) return result;
    *module = calloc(1, sizeof(**module));
    if (*module == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    fake_count(FAKE_MODULE, 1);
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
    CUcontext ctx;
    FAKE_ENTER_CTX("cuModuleUnload", ctx);
    while (module->functions != NULL) {
        struct CUfunc_st *f = module->functions;
        module->functions = f->next;
        free(f);
    }
    free(module);
    fake_count(FAKE_MODULE, -1);
    return CUDA_SUCCESS;
}

static int is_in_ptx(const char *name)
{
    const struct ptx_module *ptx = sim_kernel_ptx();
    return ptx == NULL || ptx_has(ptx, name);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    CUcontext ctx;
    struct CUfunc_st *f;
    FAKE_ENTER_CTX("cuModuleGetFunction", ctx);
    if (sim_kernel_find(name).kind == SIM_KERNEL_NONE || !is_in_ptx(name)) return CUDA_ERROR_NOT_FOUND;
    f = calloc(1, sizeof(*f));
    if (f == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    snprintf(f->name, sizeof f->name, "%s", name);
    f->loaded = fake_number("FAKE_CUDA_LAZY", 0) == 0;
    pthread_mutex_lock(&fake.lock);
    f->next = module->functions;
    module->functions = f;
    pthread_mutex_unlock(&fake.lock);
    *function = f;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    FAKE_ENTER("cuFuncGetAttribute");
    (void)function;
    *value = attribute == CU_FUNC_ATTRIBUTE_NUM_REGS                ? REGISTERS
             : attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? RONDO_MAX_THREADS
                                                                    : 0;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function)
{
    CUresult result;
    FAKE_ENTER("cuFuncLoad");
    pthread_mutex_lock(&fake.lock);
    result = fake_unsafe();
    pthread_mutex_unlock(&fake.lock);
    if (result == CUDA_SUCCESS) __atomic_store_n(&function->loaded, 1, __ATOMIC_RELEASE);
    return result;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    FAKE_ENTER("cuFuncIsLoaded");
    *state = __atomic_load_n(&function->loaded, __ATOMIC_ACQUIRE) ? CU_FUNCTION_LOADING_STATE_LOADED
                                                                  : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    FAKE_ENTER("cuFuncSetAttribute");
    (void)function, (void)attribute, (void)value;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t shared)
{
    FAKE_ENTER("cuOccupancyMaxActiveBlocksPerMultiprocessor");
    (void)function, (void)shared;
    *blocks = threads > 0 && threads <= RONDO_MAX_THREADS;
    return CUDA_SUCCESS;
}

/* Load a kernel that no call has loaded. Call with the lock held. */
static CUresult load_late(CUcontext ctx, CUfunction function)
{
    CUresult result = CUDA_SUCCESS;
    if (!__atomic_load_n(&function->loaded, __ATOMIC_ACQUIRE)) {
        result = fake_wait_idle("the first launch of a kernel", ctx);
        __atomic_store_n(&function->loaded, 1, __ATOMIC_RELEASE);
    }
    return result;
}

static CUresult launch(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    CUcontext ctx = fake_current();
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    struct fake_op op = {
        .kind = FAKE_OP_KERNEL, .function = function, .blocks = config->gridDimX, .threads = config->blockDimX
    };
    CUstream s;
    if (ctx == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (ctx->error != CUDA_SUCCESS) return ctx->error;
    if (function == NULL || parameters == NULL || parameters[0] == NULL || extra != NULL ||
        config->gridDimY * config->gridDimZ * config->blockDimY * config->blockDimZ != 1 ||
        config->sharedMemBytes != 0 || op.threads == 0 || op.threads % RONDO_WARP != 0 ||
        op.threads > RONDO_MAX_THREADS ||
        op.blocks != ((const struct rondo_launch *)parameters[0])->nblocks) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    op.parameter = calloc(1, FAKE_PARAMETER); /* arguments have at most 4 KiB */
    if (op.parameter == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(op.parameter, parameters[0], sizeof(struct rondo_launch));
    pthread_mutex_lock(&fake.lock);
    s = fake_stream(config->hStream, ctx);
    if (s != NULL && s->ctx == ctx) {
        result = load_late(ctx, function);
        if (result == CUDA_SUCCESS) result = fake_issue(s, &op);
    }
    pthread_mutex_unlock(&fake.lock);
    if (result != CUDA_SUCCESS) free(op.parameter);
    return result;
}

CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads,
                        unsigned threads_y, unsigned threads_z, unsigned shared, CUstream stream,
                        void **parameters, void **extra)
{
    const CUlaunchConfig config = { .gridDimX = x,
                                    .gridDimY = y,
                                    .gridDimZ = z,
                                    .blockDimX = threads,
                                    .blockDimY = threads_y,
                                    .blockDimZ = threads_z,
                                    .sharedMemBytes = shared,
                                    .hStream = stream };
    FAKE_ENTER("cuLaunchKernel");
    return launch(&config, function, parameters, extra);
}

/* The attributes that Rondo uses. */
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    FAKE_ENTER("cuLaunchKernelEx");
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attr = &config->attrs[i];
        const int fine = attr->id == CU_LAUNCH_ATTRIBUTE_PRIORITY
                             ? attr->value.priority <= 0
                             : attr->id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN &&
                                   attr->value.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
        if (!fine) return CUDA_ERROR_INVALID_VALUE;
    }
    return launch(config, function, parameters, extra);
}

CUresult fake_run_kernel(const struct fake_op *op)
{
    const uint32_t fewer = (uint32_t)fake_number("FAKE_CUDA_THREADS", 2 * RONDO_WARP),
                   threads = fewer != 0 && fewer < op->threads ? fewer : op->threads;
    const struct rondo_sim_rules rules = { .whole_lines = 1 };
    struct sim_kernel_run run = { .kernel = sim_kernel_find(op->function->name), .launch = op->parameter };
    const struct rondo_sim_grid grid = sim_kernel_grid(&run, threads);
    struct rondo_sim_result result;
    if (run.ptx.program != NULL && ptx_most_threads(run.ptx.program) < op->threads) {
        fprintf(stderr, "fake CUDA: kernel %s: %u threads, more than its .maxntid\n", op->function->name,
                op->threads);
        return CUDA_ERROR_INVALID_VALUE;
    }
    rondo_sim_run(&rules, &grid, 1, &result);
    if (result.end != RONDO_SIM_ENDED) {
        fprintf(stderr, "fake CUDA: kernel %s: %s\n", op->function->name, result.why);
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    return CUDA_SUCCESS;
}
