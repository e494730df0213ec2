/*
 * nccl_plain RANK NRANKS FILE: a rank of an NCCL program that knows neither MPI nor a launcher. Rank 0 leaves
 * the unique id in FILE, which all ranks can read; then the ranks sum and tell each other their numbers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/nccl/nccl.h"

enum { COUNT = 50000, WAIT_MS = 30000 };

static int ok(ncclResult_t result, const char *what)
{
    if (result != ncclSuccess) {
        fprintf(stderr, "nccl_plain: %s: %s: %s\n", what, ncclGetErrorString(result), ncclGetLastError(NULL));
    }
    return result == ncclSuccess;
}
#define OK(call) ok((call), #call)

/* Others see the file only when it is complete. */
static int leave(const ncclUniqueId *id, const char *path)
{
    char name[4096];
    FILE *file;
    int written;
    snprintf(name, sizeof(name), "%s.new", path);
    file = fopen(name, "wb");
    if (file == NULL) {
        return 0;
    }
    written = fwrite(id, sizeof(*id), 1, file) == 1;
    return fclose(file) == 0 && written && rename(name, path) == 0;
}

static int find(ncclUniqueId *id, const char *path)
{
    FILE *file = NULL;
    int got;
    for (int ms = 0; ms < WAIT_MS && (file = fopen(path, "rb")) == NULL; ms++) {
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    if (file == NULL) {
        return 0;
    }
    got = fread(id, sizeof(*id), 1, file) == 1;
    fclose(file);
    return got;
}

/* @return how many results are wrong */
static int use(ncclComm_t comm, int rank, int nranks)
{
    static double sum[COUNT];
    int *all = calloc((size_t)nranks, sizeof(*all)), wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        sum[i] = i + rank;
    }
    if (all == NULL || !OK(ncclAllReduce(sum, sum, COUNT, ncclFloat64, ncclSum, comm, NULL)) ||
        !OK(ncclAllGather(&rank, all, 1, ncclInt32, comm, NULL))) {
        free(all);
        return 1;
    }
    for (int i = 0; i < COUNT; i++) {
        wrong += sum[i] != (double)i * nranks + nranks * (nranks - 1) / 2;
    }
    for (int r = 0; r < nranks; r++) {
        wrong += all[r] != r;
    }
    free(all);
    return wrong;
}

int main(int argc, char **argv)
{
    int rank = argc == 4 ? atoi(argv[1]) : -1, nranks = argc == 4 ? atoi(argv[2]) : 0, wrong;
    char host[64] = "";
    ncclUniqueId id;
    ncclComm_t comm;
    if (rank < 0 || rank >= nranks) {
        fprintf(stderr, "usage: nccl_plain RANK NRANKS FILE\n");
        return 2;
    }
    if (rank == 0 ? !OK(ncclGetUniqueId(&id)) || !leave(&id, argv[3]) : !find(&id, argv[3])) {
        fprintf(stderr, "nccl_plain: rank %d has no unique id (%s)\n", rank, argv[3]);
        return 1;
    }
    if (!OK(ncclCommInitRank(&comm, nranks, id, rank))) {
        return 1;
    }
    wrong = use(comm, rank, nranks);
    gethostname(host, sizeof(host) - 1);
    printf("rank %d of %d on %s: %d wrong\n", rank, nranks, host, wrong);
    return OK(ncclCommDestroy(comm)) && wrong == 0 ? 0 : 1;
}
