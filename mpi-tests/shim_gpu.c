/*
 * Collectives of an MPI program on GPU memory, under the MPI face with RONDO_MPI_GPU=1 and
 * RONDO_MPI_TUNE=always. Each is compared with plain MPI's on host memory, and RONDO_MPI_REPORT=FILE says
 * where the calls went.
 *
 *   shim_gpu [mixed | trial]
 *
 * The buffers are on all ranks' GPUs or on none, so that Rondo carries all calls. mixed: also calls that must
 * go to MPI: buffers on some ranks' GPUs, types with gaps, types without kernels, non-blocking calls. trial:
 * with RONDO_MPI_TUNE=measure, calls of one kind on GPU memory until their times have decided.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "mpi_common.h"
#include "mpi_device.h"

enum { MOST = 1 << 16 };

struct area {
    int *host, *gpu; /* MOST elements each */
};
static struct area out, in;
static MPI_Comm comm;
static int count, root;

/* The counts of the calls with one for each rank: some are 0. */
static int counts[TEST_MAX_RANKS], places[TEST_MAX_RANKS], back[TEST_MAX_RANKS], back_at[TEST_MAX_RANKS];
static int count_of(int from, int to) { return count * ((from + 2 * to) % 3); }
static void counts_fill(void)
{
    int at = 3, back_end = 1;
    for (int r = 0; r < test.nranks; r++) {
        counts[r] = count_of(r, test.rank);
        places[r] = at;
        at += counts[r] + 2;
        back[r] = count_of(test.rank, r);
        back_at[r] = back_end;
        back_end += back[r] + 1;
    }
}
/* The same for all ranks: what each has. */
static void shares_fill(void)
{
    int at = 2;
    for (int r = 0; r < test.nranks; r++) {
        counts[r] = count * ((r + 1) % 3);
        places[r] = at;
        at += counts[r] + 1;
    }
}

#define CALL(function, ...) (plain ? PMPI_##function(__VA_ARGS__) : MPI_##function(__VA_ARGS__))
#define BODY(name) static void name(int plain, int *s, int *r)

BODY(all_reduce) { CALL(Allreduce, s, r, count, MPI_INT, MPI_SUM, comm); }
BODY(all_reduce_in_place) { (void)s, CALL(Allreduce, MPI_IN_PLACE, r, count, MPI_INT, MPI_MAX, comm); }
BODY(all_reduce_float) { CALL(Allreduce, s, r, count, MPI_FLOAT, MPI_SUM, comm); }
BODY(reduce) { CALL(Reduce, s, r, count, MPI_INT, MPI_SUM, root, comm); }
BODY(broadcast) { (void)s, CALL(Bcast, r, count, MPI_INT, root, comm); }
BODY(all_gather) { CALL(Allgather, s, count, MPI_INT, r, count, MPI_INT, comm); }
BODY(all_to_all) { CALL(Alltoall, s, count, MPI_INT, r, count, MPI_INT, comm); }
BODY(gather) { CALL(Gather, s, count, MPI_INT, r, count, MPI_INT, root, comm); }
BODY(scatter) { CALL(Scatter, s, count, MPI_INT, r, count, MPI_INT, root, comm); }
BODY(barrier) { (void)s, (void)r, CALL(Barrier, comm); }
BODY(reduce_scatter_block) { CALL(Reduce_scatter_block, s, r, count, MPI_INT, MPI_SUM, comm); }
BODY(reduce_scatter)
{
    shares_fill();
    CALL(Reduce_scatter, s, r, counts, MPI_INT, MPI_SUM, comm);
}
BODY(all_gatherv)
{
    shares_fill();
    CALL(Allgatherv, s, counts[test.rank], MPI_INT, r, counts, places, MPI_INT, comm);
}
BODY(gatherv)
{
    shares_fill();
    CALL(Gatherv, s, counts[test.rank], MPI_INT, r, counts, places, MPI_INT, root, comm);
}
BODY(scatterv)
{
    shares_fill();
    CALL(Scatterv, s, counts, places, MPI_INT, r, counts[test.rank], MPI_INT, root, comm);
}
BODY(all_to_allv)
{
    counts_fill();
    CALL(Alltoallv, s, back, back_at, MPI_INT, r, counts, places, MPI_INT, comm);
}

/* These go to MPI if a buffer is on a GPU. */
BODY(all_reduce_double) { CALL(Allreduce, s, r, count / 2 + 1, MPI_DOUBLE, MPI_MAX, comm); }
BODY(reduce_scatter_in_place)
{
    (void)s, shares_fill();
    CALL(Reduce_scatter, MPI_IN_PLACE, r, counts, MPI_INT, MPI_SUM, comm);
}
BODY(reduce_scatter_equal)
{
    (void)s;
    for (int i = 0; i < test.nranks; i++) {
        counts[i] = count;
    }
    CALL(Reduce_scatter, MPI_IN_PLACE, r, counts, MPI_INT, MPI_SUM, comm);
}
BODY(reduce_scatter_block_in_place)
{
    (void)s, CALL(Reduce_scatter_block, MPI_IN_PLACE, r, count, MPI_INT, MPI_SUM, comm);
}
BODY(gapped_broadcast)
{
    MPI_Datatype gapped;
    (void)s;
    MPI_Type_vector(count, 1, 2, MPI_INT, &gapped);
    MPI_Type_commit(&gapped);
    if (test.rank == root) { /* the others' need not have gaps */
        CALL(Bcast, r, 1, gapped, root, comm);
    } else {
        CALL(Bcast, r, count, MPI_INT, root, comm);
    }
    MPI_Type_free(&gapped);
}
BODY(pending)
{
    MPI_Request request;
    CALL(Iallreduce, s, r, count, MPI_INT, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static const struct body {
    const char *name;
    void (*run)(int plain, int *s, int *r);
    int mixed;
} bodies[] = {
    { "Allreduce", all_reduce, 0 },
    { "Allreduce in place", all_reduce_in_place, 0 },
    { "Allreduce of floats", all_reduce_float, 0 },
    { "Reduce", reduce, 0 },
    { "Bcast", broadcast, 0 },
    { "Allgather", all_gather, 0 },
    { "Alltoall", all_to_all, 0 },
    { "Gather", gather, 0 },
    { "Scatter", scatter, 0 },
    { "Barrier", barrier, 0 },
    { "Reduce_scatter_block", reduce_scatter_block, 0 },
    { "Reduce_scatter", reduce_scatter, 0 },
    { "Allgatherv", all_gatherv, 0 },
    { "Gatherv", gatherv, 0 },
    { "Scatterv", scatterv, 0 },
    { "Alltoallv", all_to_allv, 0 },
    { "Allreduce of doubles", all_reduce_double, 1 },
    { "Reduce_scatter in place", reduce_scatter_in_place, 1 },
    { "Reduce_scatter in place, equal counts", reduce_scatter_equal, 1 },
    { "Reduce_scatter_block in place", reduce_scatter_block_in_place, 1 },
    { "Bcast of a type with gaps", gapped_broadcast, 1 },
    { "Iallreduce", pending, 1 },
};

/* Small numbers, of either type. */
static void fill(int *a, int floats, int what)
{
    for (int i = 0; i < MOST; i++) {
        int value = (i + 7 * test.rank + what) % 100;
        float number = (float)value;
        a[i] = value;
        if (floats) {
            memcpy(&a[i], &number, sizeof number);
        }
    }
}

static void compare(const struct body *body, int sends, int receives)
{
    static int want[MOST], got[MOST];
    const size_t bytes = MOST * sizeof(int);
    int *s = sends ? out.gpu : out.host, *r = receives ? in.gpu : in.host, wrong = -1;
    int floats = body->run == all_reduce_float;
    test.what = body->name;
    fill(out.host, floats, 1);
    fill(want, floats, 50);
    memcpy(got, want, bytes);
    body->run(1, out.host, want);
    memcpy(in.host, got, bytes);
    if (sends) {
        test_device_copy(out.gpu, out.host, bytes);
    }
    if (receives) {
        test_device_copy(in.gpu, got, bytes);
    }
    body->run(0, s, r);
    if (receives) {
        test_device_copy(got, in.gpu, bytes);
    } else {
        memcpy(got, in.host, bytes);
    }
    for (int i = 0; i < MOST && wrong < 0; i++) {
        wrong = got[i] != want[i] ? i : -1;
    }
    test_check(wrong < 0, "%d elements, root %d, %s to %s: element %d is %#x, not %#x", count, root,
               sends ? "GPU" : "host", receives ? "GPU" : "host", wrong, wrong < 0 ? 0 : (unsigned)got[wrong],
               wrong < 0 ? 0 : (unsigned)want[wrong]);
}

static void all_bodies(int mixed)
{
    static const int sizes[] = { 1, 5, 200, 3000 };
    for (size_t k = 0; k < TEST_ARRAY_LEN(sizes); k++) {
        count = sizes[k];
        for (size_t b = 0; b < TEST_ARRAY_LEN(bodies); b++) {
            root = (int)(b + k) % test.nranks;
            if (bodies[b].mixed && !mixed) {
                continue;
            }
            compare(&bodies[b], 1, 1);
            compare(&bodies[b], 0, 0);
            if (mixed) {
                compare(&bodies[b], test.rank % 2, test.rank % 2);
                compare(&bodies[b], test.rank == root, 0);
            }
        }
    }
}

static void one_body(void)
{
    count = 200;
    for (int i = 0; i < 60; i++) {
        compare(&bodies[0], 1, 1);
    }
}

/* ---- a call while another thread captures ---- */

#ifdef RONDO_CUDA

static struct {
    pthread_barrier_t turn;
    CUcontext context;
} capture;

static void *driver_call(const char *name)
{
    void *driver = dlopen(rondo_params()->cuda_lib, RTLD_NOW | RTLD_NOLOAD),
         *address = driver != NULL ? dlsym(driver, name) : NULL;
    if (address == NULL) {
        test_die("the CUDA driver (%s) has no %s", rondo_params()->cuda_lib, name);
    }
    dlclose(driver);
    return address;
}

static void *capture_alone(void *arg)
{
    CUresult (*begin)(CUstream, CUstreamCaptureMode) =
        (CUresult(*)(CUstream, CUstreamCaptureMode))driver_call("cuStreamBeginCapture_v2");
    CUresult (*end)(CUstream,
                    CUgraph *) = (CUresult(*)(CUstream, CUgraph *))driver_call("cuStreamEndCapture");
    CUresult (*destroy)(CUgraph) = (CUresult(*)(CUgraph))driver_call("cuGraphDestroy");
    CUgraph graph = NULL;
    rondo_stream stream;
    test_device_must(rondo_cuda(NULL)->CtxPushCurrent(capture.context), "cuCtxPushCurrent");
    stream = test_device_stream_new();
    test_device_must(begin((CUstream)(void *)stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
    pthread_barrier_wait(&capture.turn);
    pthread_barrier_wait(&capture.turn);
    test_device_must(end((CUstream)(void *)stream, &graph), "cuStreamEndCapture");
    test_device_must(destroy(graph), "cuGraphDestroy");
    test_device_stream_free(stream);
    return arg;
}

/* Neither disturbs the other. */
static void one_beside_a_capture(void)
{
    pthread_t thread;
    int status;
    test.what = "Allreduce beside a capture";
    test_device_must(rondo_cuda(NULL)->CtxGetCurrent(&capture.context), "cuCtxGetCurrent");
    pthread_barrier_init(&capture.turn, NULL, 2);
    if (pthread_create(&thread, NULL, capture_alone, NULL) != 0) {
        test_die("no thread");
    }
    pthread_barrier_wait(&capture.turn);
    status = MPI_Allreduce(out.gpu, in.gpu, 200, MPI_INT, MPI_SUM, comm);
    pthread_barrier_wait(&capture.turn);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&capture.turn);
    test_check(status == MPI_SUCCESS, "status %d", status);
}

#else
static void one_beside_a_capture(void) {}
#endif

/* Calls on host memory until Rondo has its communicator. */
static void warm(void)
{
    for (int i = 0; i < 3; i++) {
        int one = 1, sum = 0;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    }
}

static void area_begin(struct area *area)
{
    area->host = malloc(MOST * sizeof(int));
    area->gpu = test_device_alloc(MOST * sizeof(int));
    if (area->host == NULL) {
        test_die("no memory");
    }
}
static void area_end(struct area *area)
{
    test_device_free(area->gpu);
    free(area->host);
}

/* After MPI_Finalize, on rank 0. */
static int is_well_reported(int mixed)
{
    const char *name = getenv("RONDO_MPI_REPORT");
    FILE *file = name != NULL ? fopen(name, "r") : NULL;
    char line[256];
    int by_place = 0, others = 0, taken = 0, calls, on_rondo;
    if (test.rank != 0) {
        return 1;
    }
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%*s %*s %d %*s %*s %d", &calls, &on_rondo) == 2) {
            taken += on_rondo;
        } else if (strncmp(line, "#   ", 4) == 0) {
            int early = strstr(line, "first calls") != NULL, place = strstr(line, "not on all ranks") != NULL;
            by_place += place;
            others += !place && !early;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    if (taken < 200 || (mixed ? !by_place || !others : by_place || others)) {
        printf("shim_gpu: %d calls on Rondo, %d and %d reasons why others were not, in %s\n", taken, by_place,
               others, name != NULL ? name : "no RONDO_MPI_REPORT");
        return 0;
    }
    return 1;
}

/* Both libraries' times were added up: MPI is faster, or so much is saved. */
static int is_decided(void)
{
    const char *name = getenv("RONDO_MPI_REPORT");
    FILE *file = name != NULL ? fopen(name, "r") : NULL;
    char line[256];
    double saved = 0;
    int found = test.rank != 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        found |= strstr(line, "MPI is faster") != NULL ||
                 (sscanf(line, " allreduce %*s %*s %*s %*s %*s %lf", &saved) == 1 && saved != 0);
    }
    if (file != NULL) {
        fclose(file);
    }
    if (!found) {
        printf("shim_gpu: no trial has come to its end, in %s\n",
               name != NULL ? name : "no RONDO_MPI_REPORT");
    }
    return found;
}

int main(int argc, char **argv)
{
    int mixed = argc > 1 && strcmp(argv[1], "mixed") == 0, trial = argc > 1 && strcmp(argv[1], "trial") == 0;
    const char *why = "";
    int failed;
    test_init("shim_gpu", MPI_THREAD_SINGLE);
    test_watchdog(100);
    if (test_device_begin(test.rank, &why) < 0) {
        printf("skipped: %s\n", why);
        MPI_Finalize();
        return 77;
    }
    area_begin(&out);
    area_begin(&in);
    for (int i = 0; i < 2; i++) {
        PMPI_Comm_dup(MPI_COMM_WORLD, &comm);
        warm();
        if (trial) {
            one_body();
        } else {
            all_bodies(mixed);
            one_beside_a_capture();
        }
        MPI_Comm_free(&comm);
    }
    area_end(&in);
    area_end(&out);
    test_device_end();
    failed = test_finish();
    return failed || (trial ? !is_decided() : !is_well_reported(mixed));
}
