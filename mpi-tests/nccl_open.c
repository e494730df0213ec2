/*
 * nccl_open FILE: open NCCL as programs do that are not linked with it, make a communicator of one rank, and
 * print the version. For mpi-tests/nccl_run.sh.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "shim/nccl/nccl.h"

static int find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof(symbol));
    return symbol != NULL;
}

int main(int argc, char **argv)
{
    ncclResult_t (*get_version)(int *), (*get_id)(ncclUniqueId *), (*destroy)(ncclComm_t);
    ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int);
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    ncclUniqueId id;
    ncclComm_t comm;
    int version = 0;
    if (library == NULL) {
        fprintf(stderr, "nccl_open: %s\n", argc == 2 ? dlerror() : "give a file");
        return 1;
    }
    if (!find(library, "ncclGetVersion", &get_version) || !find(library, "ncclGetUniqueId", &get_id) ||
        !find(library, "ncclCommInitRank", &init) || !find(library, "ncclCommDestroy", &destroy) ||
        get_version(&version) != ncclSuccess || get_id(&id) != ncclSuccess ||
        init(&comm, 1, id, 0) != ncclSuccess || destroy(comm) != ncclSuccess) {
        fprintf(stderr, "nccl_open: %s does not work\n", argv[1]);
        return 1;
    }
    printf("%d\n", version);
    return 0;
}
