/* gpu_bench --nccl: NVIDIA's library, or another one with its interface, carries the calls of mpirun's
 * processes. It refuses ranks that share a GPU unless NCCL_MULTI_RANK_GPU_ENABLE=1, which it knows since
 * 2.30. */
#include "gpu_bench.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "shim/nccl/nccl.h"

/* X(NAME) of what is called. */
#define NCCL_CALLS(X) \
    X(GetVersion) X(GetUniqueId) X(CommInitRank) X(AllReduce) X(GetErrorString) X(GetLastError) X(CommDestroy)

struct gpu_nccl {
    void *library;
    ncclComm_t comm;
    char name[32];
#define NCCL_FIELD(NAME) __typeof__(nccl##NAME) *NAME;
    NCCL_CALLS(NCCL_FIELD)
#undef NCCL_FIELD
};

static const char *find_calls(struct gpu_nccl *n, const char *file)
{
    n->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (n->library == NULL) {
        return dlerror();
    }
#define NCCL_FIND(NAME)                        \
    n->NAME = dlsym(n->library, "nccl" #NAME); \
    if (n->NAME == NULL) return "it has no nccl" #NAME;
    NCCL_CALLS(NCCL_FIND)
#undef NCCL_FIND
    return NULL;
}

/* Collective. @return NULL, or why there is no communicator on this rank. */
static const char *connect_ranks(struct gpu_nccl *n)
{
    ncclUniqueId id;
    ncclResult_t result = ncclSuccess;
    int version = 0;
    memset(&id, 0, sizeof(id));
    if (test.rank == 0) {
        result = n->GetUniqueId(&id);
    }
    MPI_Bcast(&result, sizeof(result), MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (n->GetVersion(&version) == ncclSuccess) {
        snprintf(n->name, sizeof(n->name), "NCCL %d.%d.%d", version / 10000, version / 100 % 100,
                 version % 100);
    }
    if (result == ncclSuccess) {
        result = n->CommInitRank(&n->comm, test.nranks, id, test.rank);
    }
    return result == ncclSuccess ? NULL : n->GetLastError(NULL);
}

struct gpu_nccl *gpu_nccl_open(const char *file)
{
    struct gpu_nccl *n = calloc(1, sizeof(*n));
    const char *why;
    int refused[2];
    if (n == NULL) {
        test_die("no memory for a library");
    }
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    why = find_calls(n, file);
    refused[0] = why != NULL;
    MPI_Allreduce(&refused[0], &refused[1], 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (refused[1] == 0) {
        why = connect_ranks(n);
        refused[0] = why != NULL;
        MPI_Allreduce(&refused[0], &refused[1], 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    if (refused[1] == 0) {
        return n;
    }
    if (why != NULL) {
        printf("skipped: %s (%s) refuses %d ranks: %s\n", n->name[0] != '\0' ? n->name : "NCCL", file,
               test.nranks, why);
    }
    free(n); /* the library stays: what of it runs on after a failure is unknown */
    return NULL;
}

void gpu_nccl_close(struct gpu_nccl *n)
{
    (void)n->CommDestroy(n->comm);
    free(n);
}

const char *gpu_nccl_name(const struct gpu_nccl *n) { return n->name; }

void gpu_nccl_all_reduce(struct gpu_nccl *n, const struct buffers *x, rondo_stream stream)
{
    static const int types[RONDO_NUM_DTYPES] = {
        [RONDO_FLOAT32] = ncclFloat32 + 1, [RONDO_BFLOAT16] = ncclBfloat16 + 1,
        [RONDO_FLOAT16] = ncclFloat16 + 1, [RONDO_FLOAT64] = ncclFloat64 + 1,
        [RONDO_INT32] = ncclInt32 + 1,     [RONDO_UINT64] = ncclUint64 + 1,
    };
    ncclResult_t result = ncclInvalidArgument;
    if (types[x->type] > 0) {
        result = n->AllReduce(x->send, x->recv, x->count, (ncclDataType_t)(types[x->type] - 1), ncclSum,
                              n->comm, (cudaStream_t)stream);
    }
    if (result != ncclSuccess) {
        test_die("rank %d: %s: all_reduce of %zu bytes: %s", test.rank, n->name, x->bytes,
                 n->GetErrorString(result));
    }
}
