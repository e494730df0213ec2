/* Launches without a communicator: the library's kernels by name, and one that does nothing. */
#include "gpu_world.h"

#include <stdlib.h>

#include "kern/cuda/kernels.h"

/* Every driver compiles this. It is shorter than our kernels, which first read 4 KiB of arguments. */
static const char empty_text[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry gpu_empty()\n{\n    ret;\n}\n";

CUmodule gpu_module_load(void)
{
    const char *why = "";
    const void *image = rondo_kernels_image(&why);
    CUmodule module;
    if (image == NULL) {
        test_die("%s", why);
    }
    test_device_must(gpu_cuda()->ModuleLoadData(&module, image), "loading the kernels");
    return module;
}

static int find_text(struct gpu_empty *empty)
{
    if (gpu_cuda()->ModuleLoadData(&empty->module, empty_text) != CUDA_SUCCESS) {
        return 0;
    }
    if (gpu_cuda()->ModuleGetFunction(&empty->function, empty->module, "gpu_empty") != CUDA_SUCCESS) {
        test_device_must(gpu_cuda()->ModuleUnload(empty->module), "cuModuleUnload");
        return 0;
    }
    empty->name = "an empty kernel";
    return 1;
}

/* For a driver without a compiler: use a kernel of the library with an empty launch. */
static void find_ours(struct gpu_empty *empty)
{
    static const char name[] = "rondo_copy_ll";
    struct rondo_launch *launch = calloc(1, sizeof(*launch));
    CUdeviceptr there;
    if (launch == NULL) {
        test_die("no memory for a launch");
    }
    test_device_must(
        gpu_cuda()->MemHostAlloc(&empty->words, sizeof(struct rondo_gpu_words), CU_MEMHOSTALLOC_DEVICEMAP),
        "cuMemHostAlloc");
    test_device_must(gpu_cuda()->MemHostGetDevicePointer(&there, empty->words, 0),
                     "cuMemHostGetDevicePointer");
    launch->serial = 1;
    launch->nblocks = 1;
    launch->words = (struct rondo_gpu_words *)(uintptr_t)there;
    empty->launch = launch;
    empty->module = gpu_module_load();
    empty->name = "a kernel of ours without works";
    test_device_must(gpu_cuda()->ModuleGetFunction(&empty->function, empty->module, name), name);
}

void gpu_empty_open(struct gpu_empty *empty)
{
    *empty = (struct gpu_empty){ 0 };
    if (!find_text(empty)) {
        find_ours(empty);
    }
}

void gpu_empty_launch(const struct gpu_empty *empty, CUstream stream)
{
    void *arguments[] = { empty->launch };
    test_device_must(gpu_cuda()->LaunchKernel(empty->function, 1, 1, 1, RONDO_WARP, 1, 1, 0, stream,
                                              empty->launch == NULL ? NULL : arguments, NULL),
                     "cuLaunchKernel of an empty kernel");
}

void gpu_empty_close(struct gpu_empty *empty)
{
    test_device_must(gpu_cuda()->ModuleUnload(empty->module), "cuModuleUnload");
    if (empty->launch != NULL) {
        test_device_must(gpu_cuda()->MemFreeHost(empty->words), "cuMemFreeHost");
        free(empty->launch);
    }
}
