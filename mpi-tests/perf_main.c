#include "perf.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "holdings.h"

int perf_exit_of(rondo_status status) { return status == RONDO_TIMEOUT ? PERF_TIMEOUT : PERF_LIBRARY; }

void perf_must(rondo_status status, const rondo_comm *comm, const char *what)
{
    if (status != RONDO_SUCCESS) {
        test_say("%s: %s: %s", what, rondo_status_string(status), rondo_last_error(comm));
        MPI_Abort(MPI_COMM_WORLD, perf_exit_of(status));
    }
}

static void must(struct perf *perf, rondo_status status, const char *what)
{
    perf_must(status, perf->comm, what);
}

char *perf_buffer(size_t bytes)
{
    void *mem = NULL;
    if (posix_memalign(&mem, 4096, bytes > 0 ? bytes : 1) != 0) {
        test_say("no memory for a buffer of %zu bytes; use a smaller -e, -m or -n", bytes);
        MPI_Abort(MPI_COMM_WORLD, PERF_INTERNAL);
    }
    memset(mem, 0, bytes); /* touch the pages before anything is timed */
    return mem;
}

/* Allocate a buffer for both Rondo and MPI. */
static char *shared_buffer(struct perf *perf, size_t bytes, void **handle)
{
    void *mem = NULL;
    bytes = bytes > 0 ? bytes : 1;
    if (perf->options.memory == PERF_MEM_ALLOC) {
        must(perf, rondo_mem_alloc(&mem, bytes), "allocating a buffer");
    } else {
        mem = perf_buffer(bytes);
    }
    if (perf->options.memory != PERF_ORDINARY) {
        must(perf, rondo_comm_register(perf->comm, mem, bytes, handle), "registering a buffer");
    }
    return mem;
}

static void release_buffer(struct perf *perf, char *mem, void *handle)
{
    if (handle != NULL) {
        must(perf, rondo_comm_deregister(perf->comm, handle), "deregistering a buffer");
    }
    if (perf->options.memory == PERF_MEM_ALLOC) {
        must(perf, rondo_mem_free(mem), "freeing a buffer");
    } else {
        free(mem);
    }
}

/* Twice the last cache, whose size not every kernel tells. */
static size_t cache_bytes(void)
{
    long bytes = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return 2 * (size_t)(bytes > 0 ? bytes : 64 << 20);
}

static double held_bytes(void) { return rollup_bytes("Pss"); }

static void setup(struct perf *perf)
{
    const struct perf_options *o = &perf->options;
    size_t unaligned = (size_t)o->unalign * 2 * sizeof(long double); /* the largest type */
    rondo_config config = RONDO_CONFIG_INIT;
    perf->held[0] = held_bytes();
    if (o->timeout_s >= 0) {
        config.timeout_ms = 1000 * o->timeout_s;
    }
    config.name = perf->program;
    must(perf, rondo_comm_create(MPI_COMM_WORLD, &config, &perf->comm), "creating the communicator");
    perf->held[1] = held_bytes();
    if (o->blocking == PERF_STREAM) {
        must(perf, rondo_stream_create(&perf->stream), "creating a stream");
    }
    perf->slot = (o->max_bytes * (size_t)(o->osu ? test.nranks : 1) + unaligned + 4095) & ~(size_t)4095;
    perf->send = shared_buffer(perf, perf->slot * (size_t)o->aggregate, &perf->handle[0]);
    perf->recv = shared_buffer(perf, perf->slot * (size_t)o->aggregate, &perf->handle[1]);
    perf->held[2] = held_bytes();
    perf->want = perf_buffer(perf->slot);
    perf->samples = (double *)(void *)perf_buffer(PERF_NUM_SAMPLES * (size_t)o->iters * sizeof(double));
    if (o->flush > 0) {
        perf->evict_bytes = cache_bytes();
        perf->evict = perf_buffer(perf->evict_bytes);
    }
}

static void teardown(struct perf *perf)
{
    if (perf->stream != NULL) {
        must(perf, rondo_stream_destroy(perf->stream), "destroying the stream");
    }
    release_buffer(perf, perf->send, perf->handle[0]);
    release_buffer(perf, perf->recv, perf->handle[1]);
    must(perf, rondo_comm_destroy(perf->comm), "destroying the communicator");
    free(perf->want);
    free(perf->samples);
    free(perf->evict);
    test_values_clear();
}

/* The scalar of a rank is that of the expected results. */
static void make_premul(struct perf *perf, rondo_dtype type)
{
    uint64_t scalar[4] = { 0 };
    test_premul_scalar(type, test.rank, scalar);
    must(perf, rondo_op_create_premul_sum(&perf->premul, scalar, type, perf->comm), "creating an operation");
}

static void run_row(struct perf *perf, size_t bytes, int type, int op, int root)
{
    struct perf_options *o = &perf->options;
    struct perf_row row = { .type = (rondo_dtype)type, .op = perf->coll->reduces ? op : -1, .root = root };
    if (o->osu) {
        row.count = perf_osu_count(bytes, row.type);
        row.bytes = row.count * test_types[type].size;
    } else {
        row.count = perf_count(perf->coll, bytes, row.type, test.nranks);
        row.bytes = perf_row_bytes(perf->coll, row.count, row.type, test.nranks);
    }
    if (o->osu_iters) {
        int is_large = bytes > 8192;
        o->iters = is_large ? 100 : 1000;
        o->warmup = is_large ? 10 : 100;
    }
    if (row.op == TEST_OP_PREMUL) {
        make_premul(perf, row.type);
    }
    perf_measure(perf, &row);
    if (row.op == TEST_OP_PREMUL) {
        must(perf, rondo_op_destroy(perf->premul, perf->comm), "destroying an operation");
    }
    perf_progress_clear();
    if (test.rank != 0) {
        return;
    }
    if (o->osu) {
        perf_osu_row(perf, &row);
    } else {
        perf_print_row(perf, &row);
    }
    perf_json_row(&row);
    perf_nccl_row(perf, &row);
}

static size_t next_size(const struct perf_options *o, size_t bytes)
{
    size_t next = o->factor > 0 ? bytes * o->factor : bytes + o->step_bytes;
    if (o->factor > 0 && (bytes == 0 || next / o->factor != bytes)) {
        return bytes == 0 ? 8 : SIZE_MAX;
    }
    return next > bytes ? next : SIZE_MAX;
}

/* Of all types or all operations, pass those over that do not go together. */
static int is_wanted(const struct perf *perf, int type, int op)
{
    const struct perf_options *o = &perf->options;
    return !perf->coll->reduces || (!o->all_types && !o->all_ops) ||
           test_has_op((rondo_dtype)(o->all_types ? type : o->type), o->all_ops ? op : o->op);
}

static void sweep(struct perf *perf)
{
    const struct perf_options *o = &perf->options;
    int sendrecv = strcmp(perf->coll->name, "sendrecv") == 0, rooted = perf->coll->rooted && !sendrecv;
    int types = o->all_types ? RONDO_NUM_DTYPES : 1,
        ops = o->all_ops && perf->coll->reduces ? TEST_OP_PREMUL + 1 : 1;
    int roots = o->all_roots && rooted ? test.nranks : 1;
    if (strcmp(perf->coll->name, "barrier") == 0) { /* it has no size, so one row */
        run_row(perf, 0, o->type, o->op, -1);
        return;
    }
    for (int type = 0; type < types; type++) {
        for (int op = 0; op < ops; op++) {
            for (int root = 0; root < roots && is_wanted(perf, type, op); root++) {
                for (size_t bytes = o->min_bytes; bytes <= o->max_bytes && bytes != SIZE_MAX;
                     bytes = next_size(o, bytes)) {
                    run_row(perf, bytes, o->all_types ? type : o->type, o->all_ops ? op : o->op,
                            !rooted        ? -1
                            : o->all_roots ? root
                                           : o->root);
                }
            }
        }
    }
}

static int write_files(const struct perf *perf, double one_way)
{
    double busbw = perf->busbw_count > 0 ? perf->busbw_sum / perf->busbw_count : 0;
    int json = perf_json_close(one_way, perf->wrong, busbw), nccl = perf_nccl_close(perf, busbw);
    if (!json || !nccl) {
        fprintf(stderr, "%s: cannot write %s\n", perf->program,
                json ? perf->options.nccl_json : perf->options.json);
    }
    return json && nccl;
}

static int report(struct perf *perf, double one_way)
{
    int result[2] = { 1, 1 }; /* the files are written; the bandwidth is enough */
    if (perf->options.memory_report) {
        perf_memory_report(perf);
    }
    if (test.rank == 0) {
        result[1] = perf->options.osu || perf_print_trailer(perf, one_way);
        result[0] = write_files(perf, one_way);
    }
    if (test.rank == 0 && perf->options.osu && perf->wrong > 0) {
        fprintf(stderr, "%s: %zu wrong elements\n", perf->program, perf->wrong);
    }
    MPI_Bcast(result, 2, MPI_INT, 0, MPI_COMM_WORLD);
    return perf->wrong > 0 || !result[1] ? PERF_DATA : result[0] ? PERF_OK : PERF_INTERNAL;
}

static int open_files(const struct perf *perf, double one_way, int argc, char **argv)
{
    struct perf_rank *ranks = perf->options.osu && perf->options.nccl_json == NULL ? NULL
                                                                                   : perf_ranks_gather();
    int ready = 1;
    if (test.rank == 0) {
        ready = (perf->options.json == NULL || perf_json_open(perf, one_way)) &&
                (perf->options.nccl_json == NULL || perf_nccl_open(perf, ranks, argc, argv));
        if (ready && perf->options.osu) {
            perf_osu_header(perf);
        } else if (ready) {
            perf_print_header(perf, ranks, one_way);
        }
    }
    free(ranks);
    MPI_Bcast(&ready, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return ready;
}

const char *perf_program_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

int perf_main(int argc, char **argv, const char *coll)
{
    struct perf perf = { .coll = test_coll_by_name(coll), .program = perf_program_name(argv[0]) };
    double one_way;
    int exit_code;
    test_init(perf.program, MPI_THREAD_SINGLE);
    exit_code = perf_options_parse(&perf.options, argc, argv, test.rank == 0);
    if (exit_code != PERF_OK) {
        MPI_Finalize();
        return exit_code == PERF_HELP ? PERF_OK : exit_code;
    }
    one_way = perf_probe_one_way();
    test_start_open(perf.options.start);
    if (!open_files(&perf, one_way, argc, argv)) {
        test_start_close();
        MPI_Finalize();
        return PERF_USAGE;
    }
    setup(&perf);
    for (long cycle = 0; cycle < perf.options.cycles || perf.options.cycles == 0; cycle++) {
        sweep(&perf);
    }
    exit_code = report(&perf, perf_probe_one_way());
    teardown(&perf);
    test_start_close();
    MPI_Finalize();
    return exit_code;
}
