#include "perf.h"

#include <stdlib.h>
#include <string.h>

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

static void setup(struct perf *perf)
{
    const struct perf_options *o = &perf->options;
    rondo_config config = RONDO_CONFIG_INIT;
    if (o->timeout_s >= 0) {
        config.timeout_ms = 1000 * o->timeout_s;
    }
    config.name = perf->program;
    must(perf, rondo_comm_create(MPI_COMM_WORLD, &config, &perf->comm), "creating the communicator");
    if (!o->blocking) {
        must(perf, rondo_stream_create(&perf->stream), "creating a stream");
    }
    perf->slot = (o->max_bytes + 4095) & ~(size_t)4095;
    perf->send = shared_buffer(perf, perf->slot * (size_t)o->aggregate, &perf->handle[0]);
    perf->recv = shared_buffer(perf, perf->slot * (size_t)o->aggregate, &perf->handle[1]);
    perf->want = perf_buffer(perf->slot);
    perf->samples = (double *)(void *)perf_buffer(PERF_NUM_SAMPLES * (size_t)o->iters * sizeof(double));
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
    test_values_clear();
}

static void run_row(struct perf *perf, size_t bytes, int type, int op, int root)
{
    struct perf_row row = { .type = (rondo_dtype)type, .op = perf->coll->reduces ? op : -1, .root = root };
    row.count = perf_count(perf->coll, bytes, row.type, test.nranks);
    row.bytes = perf_row_bytes(perf->coll, row.count, row.type, test.nranks);
    perf_measure(perf, &row);
    perf_progress_clear();
    if (test.rank == 0) {
        perf_print_row(perf, &row);
        perf_json_row(&row);
    }
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
        ops = o->all_ops && perf->coll->reduces ? RONDO_NUM_OPS : 1;
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

static int report(struct perf *perf, double one_way)
{
    int written = 1;
    if (test.rank == 0) {
        perf_print_trailer(perf, one_way);
        written = perf_json_close(one_way, perf->wrong,
                                  perf->busbw_count > 0 ? perf->busbw_sum / perf->busbw_count : 0);
        if (!written) {
            fprintf(stderr, "%s: cannot write %s\n", perf->program, perf->options.json);
        }
    }
    MPI_Bcast(&written, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return perf->wrong > 0 ? PERF_DATA : written ? PERF_OK : PERF_INTERNAL;
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
    int exit_code, ready = 1;
    test_init(perf.program, MPI_THREAD_SINGLE);
    exit_code = perf_options_parse(&perf.options, argc, argv, test.rank == 0);
    if (exit_code != PERF_OK) {
        MPI_Finalize();
        return exit_code == PERF_HELP ? PERF_OK : exit_code;
    }
    one_way = perf_probe_one_way();
    if (test.rank == 0 && perf.options.json != NULL) {
        ready = perf_json_open(&perf, one_way);
    }
    MPI_Bcast(&ready, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (!ready) {
        MPI_Finalize();
        return PERF_USAGE;
    }
    test_start_open(perf.options.start);
    setup(&perf);
    if (test.rank == 0) {
        perf_print_header(&perf, one_way);
    }
    sweep(&perf);
    exit_code = report(&perf, perf_probe_one_way());
    teardown(&perf);
    test_start_close();
    MPI_Finalize();
    return exit_code;
}
