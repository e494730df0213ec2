/* Cases of shim_semantics: what users of similar layers complain of. */
#include <dirent.h>
#include <mpi.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim_semantics.h"

/* The elements of rank r's block: of one rank alone, of some ranks, of all. */
static int block_of(int shape, int largest, int owner, int r)
{
    return shape == 0 ? (r == owner ? largest : 0) : shape == 1 ? (r + owner) % 2 * largest : largest + r % 3;
}

/* Ranks without a block send, too. One of them may pass NULL for what it gets. */
void reduce_scatter_takes_any_blocks(void)
{
    enum { MOST = 3000, NSIZES = 3, NSHAPES = 3 };
    static const int sizes[NSIZES] = { 1, 100, MOST - 2 };
    double *in = malloc((size_t)nranks * MOST * sizeof *in),
           *out = malloc((size_t)nranks * MOST * sizeof *out);
    for (int i = 0; i < 4 * NSIZES * NSHAPES * nranks; i++) {
        int counts[64], first = 0, total = 0, wrong = 0, in_place = i % 2, blocking = i / 2 % 2;
        int shape = i / 4 % NSHAPES, size = sizes[i / 4 / NSHAPES % NSIZES], owner = i / 4 / NSHAPES / NSIZES;
        for (int r = 0; r < nranks; r++) {
            counts[r] = block_of(shape, size, owner, r);
            first += r < rank ? counts[r] : 0;
            total += counts[r];
        }
        for (int k = 0; k < total; k++) {
            in[k] = out[k] = k % 1000 + rank * (i + 1);
        }
        const void *send = in_place ? MPI_IN_PLACE : in;
        void *recv = in_place || counts[rank] > 0 ? out : NULL;
        if (blocking) {
            MPI_Reduce_scatter(send, recv, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        } else {
            MPI_Request request;
            MPI_Ireduce_scatter(send, recv, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        for (int k = 0; k < counts[rank]; k++) {
            int sum = (first + k) % 1000 * nranks + nranks * (nranks - 1) / 2 * (i + 1);
            wrong += out[k] != sum;
        }
        check(wrong == 0, "elements of a block");
    }
    free(in);
    free(out);
}

/* Several at once, of all sizes, each a sum, a minimum and a maximum, completed in another order. */
void iallreduce_is_right(void)
{
    enum { N = 5, MOST = 40000 };
    static long mine[N][MOST], result[N][MOST];
    static const int sizes[N] = { 1, 3, 700, 5000, MOST };
    static const MPI_Op ops[3] = { MPI_SUM, MPI_MIN, MPI_MAX };
    for (int round = 0; round < 6; round++) {
        MPI_Request requests[N];
        for (int k = 0; k < N; k++) {
            for (int i = 0; i < sizes[k]; i++) {
                mine[k][i] = (long)(rank + 1) * (i % 97 - 48) + round;
                result[k][i] = -1;
            }
            MPI_Iallreduce(mine[k], result[k], sizes[k], MPI_LONG, ops[(round + k) % 3], MPI_COMM_WORLD,
                           &requests[k]);
        }
        for (int k = 0; k < N; k++) {
            MPI_Wait(&requests[(k * 3 + rank) % N], MPI_STATUS_IGNORE);
        }
        for (int k = 0; k < N; k++) {
            int wrong = 0, op = (round + k) % 3;
            for (int i = 0; i < sizes[k]; i++) {
                long x = i % 97 - 48, low = x < 0 ? nranks * x : x, high = x < 0 ? x : nranks * x;
                long sum = x * nranks * (nranks + 1) / 2 + (long)nranks * round;
                wrong += result[k][i] != (op == 0 ? sum : op == 1 ? low + round : high + round);
            }
            check(wrong == 0, "elements of a result");
        }
    }
}

void gather_in_place_keeps_every_block(void)
{
    enum { MOST = 20000 };
    static int all[64 * 20], mine[20], *large;
    large = malloc((size_t)nranks * MOST * sizeof *large);
    for (int round = 0; round < 3 * nranks; round++) {
        int root = round % nranks, count = round < nranks ? 1 : round < 2 * nranks ? 20 : MOST, wrong = 0;
        int *at = count > 20 ? large : all, *send = rank == root ? at + rank * count : mine;
        send = rank != root && count > 20 ? large : send;
        memset(at, 255, (size_t)nranks * (size_t)count * sizeof *at);
        for (int i = 0; i < count; i++) {
            send[i] = rank * 100000 + i + round;
        }
        MPI_Gather(rank == root ? MPI_IN_PLACE : send, count, MPI_INT, rank == root ? at : NULL, count,
                   MPI_INT, root, MPI_COMM_WORLD);
        for (int i = 0; rank == root && i < nranks * count; i++) {
            wrong += at[i] != i / count * 100000 + i % count + round;
        }
        check(wrong == 0, "elements at the root");
    }
    free(large);
}

/* The root goes on to something that is not MPI, for which it needs the others to have got the data. */
void a_broadcast_needs_no_more_of_the_root(void)
{
    enum { MOST = 1 << 20 };
    static char data[MOST];
    static const int sizes[] = { 1, 200, 5000, 100000, MOST };
    char path[256] = "/dev/shm/shim_semantics.XXXXXX", file[300];
    MPI_Comm host;
    int on_host;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &on_host);
    MPI_Comm_free(&host);
    if (on_host < nranks) { /* the root would not see the files */
        return;
    }
    if (rank == 0 && mkdtemp(path) == NULL) {
        path[0] = '\0';
    }
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
    check(path[0] != '\0', "a folder in /dev/shm");
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes && path[0] != '\0'; k++) {
        int seen = 1;
        memset(data, rank == 0 ? (int)k + 1 : 0, sizeof data);
        MPI_Bcast(data, sizes[k], MPI_CHAR, 0, MPI_COMM_WORLD);
        check(data[sizes[k] - 1] == (int)k + 1, "the data");
        snprintf(file, sizeof file, "%s/%zu.%d", path, k, rank);
        fclose(fopen(file, "w"));
        for (int ms = 0; rank == 0 && seen < nranks && ms < 20000; ms++) {
            snprintf(file, sizeof file, "%s/%zu.%d", path, k, seen);
            if (access(file, F_OK) == 0) {
                seen++;
            } else {
                usleep(1000);
            }
        }
        check(rank != 0 || seen == nranks, "a rank had no data after 20 s in which the root made no call");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        snprintf(file, sizeof file, "%s/%zu.%d", path, k, rank);
        unlink(file);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        rmdir(path);
    }
}

/* @return the number of files in a folder */
static int entries(const char *folder)
{
    int n = 0;
    DIR *dir = opendir(folder);
    while (dir != NULL && readdir(dir) != NULL) {
        n++;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n;
}

void freed_communicators_leave_nothing(void)
{
    enum { ROUNDS = 40 };
    int files = 0, mappings = 0;
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Comm comm, half;
        MPI_Request request;
        int one = 1, sum = 0;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        warm(comm);
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
        MPI_Comm_split(comm, rank % 2, 0, &half);
        warm(half);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check(sum == nranks, "the sum");
        MPI_Comm_free(i % 2 ? &comm : &half);
        MPI_Comm_free(i % 2 ? &half : &comm);
        if (i == ROUNDS / 4) {
            files = entries("/proc/self/fd");
            mappings = entries("/proc/self/map_files");
        }
    }
    check(entries("/proc/self/fd") < files + ROUNDS / 4, "files are left open");
    check(entries("/proc/self/map_files") < mappings + ROUNDS / 4, "memory stays mapped");
}

/* Its last message ends while rank 0 waits in a collective of another communicator. Libraries of MPICH may
 * delete it then, in Rondo's wait, if a tool hides that it is freed. */
void a_communicator_that_goes_late_leaves_nothing(void)
{
    enum { ROUNDS = 40, N = 1 << 20 };
    static char message[N];
    int files = 0, mappings = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int one = 1, sum = 0;
        MPI_Comm comm;
        MPI_Request request;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        warm(comm);
        if (rank == 0) {
            MPI_Isend(message, N, MPI_CHAR, 1, 11, comm, &request);
            MPI_Request_free(&request);
        } else if (rank == 1) { /* which needs rank 0 to make progress */
            MPI_Recv(message, N, MPI_CHAR, 0, 11, comm, MPI_STATUS_IGNORE);
        }
        (i % 2 ? MPI_Comm_free : PMPI_Comm_free)(&comm);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        check(sum == nranks, "the sum");
        if (i == ROUNDS / 4) {
            files = entries("/proc/self/fd");
            mappings = entries("/proc/self/map_files");
        }
    }
    check(entries("/proc/self/fd") < files + ROUNDS / 4, "files are left open");
    check(entries("/proc/self/map_files") < mappings + ROUNDS / 4, "memory stays mapped");
}

/* MPI lets the older functions that ask how a type was made fail for these. */
void types_may_have_large_counts(void)
{
#if MPI_VERSION >= 4
    MPI_Datatype five, twice, again, column, *types[] = { &five, &twice, &again, &column };
    MPI_Type_contiguous_c(5, MPI_INT, &five);
    MPI_Type_contiguous(2, five, &twice);
    MPI_Type_dup(twice, &again);
    MPI_Type_vector_c(5, 1, 2, MPI_INT, &column);
    for (int i = 0; i < 4; i++) {
        int data[20], wrong = 0;
        MPI_Type_commit(types[i]);
        for (int k = 0; k < 20; k++) {
            data[k] = rank == 0 ? k : -1;
        }
        MPI_Bcast(data, i == 0 ? 2 : 1, *types[i], 0, MPI_COMM_WORLD);
        for (int k = 0; k < 10; k++) {
            wrong += data[k] != (rank == 0 || i < 3 || k % 2 == 0 ? k : -1);
        }
        check(wrong == 0, "elements of a type made with large counts");
    }
    for (int i = 0; i < 4; i++) {
        MPI_Type_free(types[i]);
    }
#endif
}

static int uses_on_delete(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)keyval, (void)value, (void)extra;
    warm(comm);
    return MPI_SUCCESS;
}

/* Libraries call the callbacks in the order in which the attributes were set, or in the opposite one. Which
 * the ranks need not have in common. The next communicator may get the handle of the one that went. */
void callbacks_may_use_a_communicator_that_goes(void)
{
    int keyval;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, uses_on_delete, &keyval, NULL);
    for (int i = 0; i < 8; i++) {
        int first = i % 4 == 0 || (i % 4 == 1 && rank == 0) || (i % 4 == 2 && rank > 0), n, own, all[64];
        MPI_Comm comm, next;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        if (first) {
            MPI_Comm_set_attr(comm, keyval, NULL);
        }
        warm(comm);
        if (!first) {
            MPI_Comm_set_attr(comm, keyval, NULL);
        }
        (i < 4 ? MPI_Comm_free : MPI_Comm_disconnect)(&comm);
        MPI_Comm_split(MPI_COMM_WORLD, i % 2 * (rank % 2), -rank, &next);
        MPI_Comm_rank(next, &own);
        MPI_Comm_size(next, &n);
        warm(next);
        MPI_Allgather(&own, 1, MPI_INT, all, 1, MPI_INT, next);
        for (int r = 0; r < n; r++) {
            check(all[r] == r, "a rank of the next communicator");
        }
        MPI_Comm_free(&next);
    }
    MPI_Comm_free_keyval(&keyval);
}

#ifdef OPEN_MPI /* Debian's MPICH checks nothing */
static jmp_buf before;
static void leaves(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
    longjmp(before, 1);
}

/* Where the frames were that have gone. */
static __attribute__((noinline)) void stack_fill(void)
{
    volatile char bytes[8192];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = -1;
    }
}

void an_error_handler_may_not_return(void)
{
    static MPI_Comm none;
    MPI_Comm comm;
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(leaves, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler); /* which MPI 4 asks */
    none = MPI_COMM_NULL;
    if (setjmp(before) == 0) {
        MPI_Comm_free(&none);
        check(0, "an error");
    }
    stack_fill();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    warm(comm);
    MPI_Comm_free(&comm);
}
#else
void an_error_handler_may_not_return(void) {}
#endif
