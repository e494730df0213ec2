/* The fake CUDA driver: kernels are those of a module's PTX, if that is its image. With any other image, they
 * are those of kern/cuda/kernels.h on the simulated machine, or the PTX of FAKE_CUDA_PTX. */
#define RONDO_MACHINE_SIM 1
#include "fake_cuda.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/sim_kernels.h"

enum { REGISTERS = 64, MOST_THREADS = 1024, WHY = 400 };

/* So that RONDO_KERNELS_LIB may name this library, too. */
extern const char fake_image[] __asm__(RONDO_KERNELS_SYMBOL);
const char fake_image[] = "kernels of the tests' driver";

struct CUmod_st {
    struct CUfunc_st *functions;
    char *text; /* of ptx; NULL: Rondo's kernels */
    struct ptx_module *ptx;
};

/* Is it PTX? That begins with blanks and comments, and the version. */
static int is_ptx(const char *image)
{
    for (;; image++) {
        if (image[0] == '/' && image[1] == '/') {
            while (*image != '\n' && *image != 0) image++;
        }
        if (!isspace((unsigned char)*image)) return strncmp(image, ".version", 8) == 0;
    }
}

static CUresult open_ptx(CUmodule module, const char *image)
{
    char why[WHY];
    module->text = strdup(image);
    if (module->text == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    module->ptx = ptx_open(module->text, why, sizeof why);
    if (module->ptx != NULL) return CUDA_SUCCESS;
    fprintf(stderr, "fake CUDA: the PTX of a module: %s\n", why);
    return CUDA_ERROR_INVALID_PTX;
}

static void free_module(CUmodule module)
{
    ptx_close(module->ptx);
    free(module->text);
    free(module);
}

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
    if (is_ptx(image)) result = open_ptx(*module, image);
    if (result != CUDA_SUCCESS) {
        free_module(*module);
        return result;
    }
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
    free_module(module);
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
    struct ptx_program *program = NULL;
    char why[WHY];
    FAKE_ENTER_CTX("cuModuleGetFunction", ctx);
    if (module->ptx == NULL ? sim_kernel_find(name).kind == SIM_KERNEL_NONE || !is_in_ptx(name)
                            : !ptx_has(module->ptx, name)) {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (module->ptx != NULL && (program = ptx_find(module->ptx, name, why, sizeof why)) == NULL) {
        fprintf(stderr, "fake CUDA: kernel %s: %s\n", name, why);
        return CUDA_ERROR_INVALID_PTX;
    }
    f = calloc(1, sizeof(*f));
    if (f == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    snprintf(f->name, sizeof f->name, "%s", name);
    f->program = program;
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

/* The argument of one of Rondo's kernels: a pointer to all of it, or a buffer and its size, which may leave
 * out the last works. @return its bytes, or 0. */
static size_t find_argument(void **parameters, void **extra, const struct rondo_launch **argument)
{
    const size_t least = offsetof(struct rondo_launch, inline_works);
    size_t bytes = 0;
    *argument = NULL;
    if (parameters != NULL && extra == NULL) {
        *argument = parameters[0];
        return *argument != NULL ? sizeof(**argument) : 0;
    }
    for (; parameters == NULL && extra != NULL && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) *argument = extra[1];
        if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *(const size_t *)extra[1];
    }
    return *argument != NULL && bytes >= least && bytes <= sizeof(**argument) ? bytes : 0;
}

/* Copy the arguments for a launch of so many blocks. @return 0: they are wrong. */
static int copy_rondo(uint32_t blocks, void **parameters, void **extra, uint8_t *to)
{
    const struct rondo_launch *argument;
    const size_t bytes = find_argument(parameters, extra, &argument);
    if (bytes == 0 || blocks != argument->nblocks) return 0;
    memcpy(to, argument, bytes);
    return 1;
}
static int copy_own(const struct ptx_program *program, void **parameters, void **extra, uint8_t *to)
{
    const struct ptx_parameter *p;
    const int n = ptx_parameters(program, &p);
    if (extra != NULL || (n > 0 && parameters == NULL) || ptx_argument_bytes(program) > FAKE_PARAMETER)
        return 0;
    for (int i = 0; i < n; i++) memcpy(to + p[i].at, parameters[i], p[i].bytes);
    return 1;
}

static uint32_t most_threads(const struct CUfunc_st *function)
{
    const uint32_t own = function->program == NULL ? RONDO_MAX_THREADS : ptx_most_threads(function->program);
    return own == 0 ? MOST_THREADS : own;
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
    if (function == NULL ||
        config->gridDimY * config->gridDimZ * config->blockDimY * config->blockDimZ != 1 ||
        config->sharedMemBytes != 0 || op.threads == 0 || op.threads % RONDO_WARP != 0 ||
        op.threads > most_threads(function) || op.blocks == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    op.parameter = calloc(1, FAKE_PARAMETER); /* arguments have at most 4 KiB */
    if (op.parameter == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(op.parameter, 0xee, FAKE_PARAMETER); /* what the caller left out is anything */
    if (!(function->program == NULL ? copy_rondo(op.blocks, parameters, extra, op.parameter)
                                    : copy_own(function->program, parameters, extra, op.parameter))) {
        free(op.parameter);
        return CUDA_ERROR_INVALID_VALUE;
    }
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

/* Each run has its own seed; 0: FAKE_CUDA_SEED is not set. */
static uint64_t seed_of_run(void)
{
    static uint64_t runs;
    const uint64_t seed = (uint32_t)fake_number("FAKE_CUDA_SEED", 0);
    return seed == 0 ? 0 : seed << 32 | (uint32_t)__atomic_add_fetch(&runs, 1, __ATOMIC_RELAXED);
}

static CUresult run_grid(const struct fake_op *op, const struct rondo_sim_grid *grid)
{
    const uint64_t seed = seed_of_run();
    const struct rondo_sim_rules rules = { .seed = seed, .whole_lines = 1, .late = seed != 0, .open = 1 };
    struct rondo_sim_result result;
    rondo_sim_run(&rules, grid, 1, &result);
    if (result.end != RONDO_SIM_ENDED) {
        fprintf(stderr, "fake CUDA: kernel %s, %u threads, FAKE_CUDA_SEED=%d: %s\n", op->function->name,
                grid->threads, fake_number("FAKE_CUDA_SEED", 0), result.why);
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    return CUDA_SUCCESS;
}

/* Blocks of a program's own kernel may not wait for each other, and run one after another. */
static CUresult run_own(const struct fake_op *op)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < op->blocks && result == CUDA_SUCCESS; i++) {
        struct ptx_run run = {
            .program = op->function->program, .argument = op->parameter, .first = i, .blocks = op->blocks
        };
        const struct rondo_sim_grid grid = ptx_grid(&run, 1, op->threads);
        result = run_grid(op, &grid);
    }
    return result;
}

CUresult fake_run_kernel(const struct fake_op *op)
{
    const uint32_t fewer = (uint32_t)fake_number("FAKE_CUDA_THREADS", 2 * RONDO_WARP),
                   threads = fewer != 0 && fewer < op->threads ? fewer : op->threads;
    struct sim_kernel_run run;
    struct rondo_sim_grid grid;
    if (op->function->program != NULL) return run_own(op);
    run = (struct sim_kernel_run){ .kernel = sim_kernel_find(op->function->name), .launch = op->parameter };
    grid = sim_kernel_grid(&run, threads);
    if (run.ptx.program != NULL && ptx_most_threads(run.ptx.program) < op->threads) {
        fprintf(stderr, "fake CUDA: kernel %s: %u threads, more than its .maxntid\n", op->function->name,
                op->threads);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return run_grid(op, &grid);
}
