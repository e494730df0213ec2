#include "mpi_coll.h"
#include "mpi_device.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MARGIN 128       /* guard bytes on either side of a buffer */
enum { ROOM = 2 << 20 }; /* granularity of shared device memory */

static const char *const memory_names[] = { [COLL_ORDINARY] = "ordinary",
                                            [COLL_HEAP] = "heap",
                                            [COLL_MIXED] = "mixed",
                                            [COLL_DEVICE] = "device",
                                            [COLL_DEVICE_HEAP] = "device-heap" };

int coll_memory_by_name(const char *name)
{
    for (size_t i = 0; i < TEST_ARRAY_LEN(memory_names); i++) {
        if (strcmp(name, memory_names[i]) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* COLL_MIXED: two of three buffers lie in the heap, different ones on each rank. */
static int takes_heap(const struct coll_run *run)
{
    static unsigned boxes;
    return run->memory == COLL_HEAP ||
           (run->memory == COLL_MIXED && (boxes++ + (unsigned)run->rank) % 3 != 0);
}

/* COLL_MIXED: the other buffers have one address in all processes, although they are different memory. */
static void *same_place(int which, size_t bytes)
{
    void *at = (void *)(uintptr_t)((1ull << 44) + ((uint64_t)which << 36));
    void *mem = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mem == MAP_FAILED ? NULL : mem;
}

static unsigned char filler(size_t i) { return (unsigned char)(0x5b + i * 37); }

void coll_run_room(struct coll_run *run, int which, size_t bytes, int open)
{
    run->room[which].bytes = bytes;
    run->room[which].open = open;
    if (open) {
        TEST_MUST(rondo_mem_alloc_device((void **)&run->room[which].memory, bytes, RONDO_DEVICE_CURRENT),
                  NULL);
    } else {
        run->room[which].memory = test_device_alloc(bytes);
    }
}

static void room_free(const struct coll_run *run, int which)
{
    if (run->room[which].open) {
        TEST_MUST(rondo_mem_free(run->room[which].memory), NULL);
    } else if (run->room[which].memory != NULL) {
        test_device_free(run->room[which].memory);
    }
}

/* which: index in run->room. */
static void box_init(const struct coll_run *run, struct coll_box *box, int which, size_t bytes, size_t offset)
{
    box->bytes = bytes + offset + 2 * MARGIN;
    box->in_heap = takes_heap(run);
    box->device = NULL;
    box->mapped = 0;
    box->in_room = box->bytes <= run->room[which].bytes;
    if (box->in_room) {
        box->device = run->room[which].memory;
    } else if (run->memory == COLL_DEVICE) {
        box->device = test_device_alloc(box->bytes);
    }
    if (box->in_heap) {
        TEST_MUST(rondo_mem_alloc((void **)&box->mem, box->bytes), NULL);
    } else if (run->memory == COLL_MIXED) {
        box->mapped = box->bytes;
        box->mem = same_place(which, box->bytes);
    } else {
        box->mem = aligned_alloc(64, (box->bytes + 63) & ~(size_t)63);
    }
    box->image = malloc(box->bytes);
    if (box->mem == NULL || box->image == NULL) {
        test_die("no memory for a buffer of %zu bytes", bytes);
    }
    for (size_t i = 0; i < box->bytes; i++) {
        box->mem[i] = filler(i);
    }
    box->data = box->mem + MARGIN + offset;
}

/* @return the address to pass to the library for a place in the buffer. */
static void *given(const struct coll_box *box, unsigned char *at)
{
    return box->device == NULL ? at : box->device + (at - box->mem);
}

static void box_to_device(const struct coll_box *box)
{
    if (box->device != NULL) {
        test_device_copy(box->device, box->mem, box->bytes);
    }
}
static void box_from_device(const struct coll_box *box)
{
    if (box->device != NULL) {
        test_device_copy(box->mem, box->device, box->bytes);
    }
}

static void box_release(struct coll_box *box)
{
    if (box->device != NULL && !box->in_room) {
        test_device_free(box->device);
    }
    if (box->in_heap) {
        TEST_MUST(rondo_mem_free(box->mem), NULL);
    } else if (box->mapped > 0) {
        munmap(box->mem, box->mapped);
    } else {
        free(box->mem);
    }
    free(box->image);
}

/* @return the place in the image for a place in the buffer. */
static char *imaged(const struct coll_box *box, const unsigned char *at)
{
    return (char *)box->image + (at - box->mem);
}

static void run_on_device(struct coll_run *run)
{
    const char *why = "";
    rondo_config config = RONDO_CONFIG_INIT;
    config.device = test_device_begin(test.rank, &why);
    if (config.device < 0) {
        test_die("--memory device: %s", why);
    }
    TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, &config, &run->comm), NULL);
    run->stream = test_device_stream_new();
}

rondo_status coll_run_begin(struct coll_run *run)
{
    rondo_status status = RONDO_SUCCESS;
    for (int type = 0; type < RONDO_NUM_DTYPES && status == RONDO_SUCCESS; type++) {
        uint64_t scalar = 0;
        if (!test_has_op((rondo_dtype)type, TEST_OP_PREMUL)) {
            continue;
        }
        test_premul_scalar((rondo_dtype)type, run->rank, &scalar);
        status = rondo_op_create_premul_sum(&run->premul[type], &scalar, (rondo_dtype)type, run->comm);
    }
    return status;
}

void coll_run_end(struct coll_run *run)
{
    for (int type = 0; type < RONDO_NUM_DTYPES; type++) {
        if (test_has_op((rondo_dtype)type, TEST_OP_PREMUL)) {
            TEST_MUST(rondo_op_destroy(run->premul[type], run->comm), run->comm);
        }
    }
    for (int which = 0; which < 2; which++) {
        room_free(run, which);
    }
}

void coll_run_init(struct coll_run *run, uint64_t seed, size_t most, int memory)
{
    *run = (struct coll_run){
        .seed = seed, .rank = test.rank, .nranks = test.nranks, .memory = memory, .most = most
    };
    snprintf(run->again, sizeof(run->again), "mpirun -n %d mpi_coll", test.nranks);
    if (memory == COLL_DEVICE || memory == COLL_DEVICE_HEAP) {
        run->memory = COLL_DEVICE;
        run_on_device(run);
        for (int which = 0; which < 2 && memory == COLL_DEVICE_HEAP; which++) {
            coll_run_room(run, which, ROOM, 1);
        }
    } else {
        TEST_MUST(rondo_comm_create(MPI_COMM_WORLD, NULL, &run->comm), NULL);
        TEST_MUST(rondo_stream_create(&run->stream), NULL);
    }
    TEST_MUST(coll_run_begin(run), run->comm);
}

void coll_run_release(struct coll_run *run)
{
    coll_run_end(run);
    if (run->memory == COLL_DEVICE) {
        test_device_stream_free(run->stream);
    } else {
        TEST_MUST(rondo_stream_destroy(run->stream), NULL);
    }
    TEST_MUST(rondo_comm_destroy(run->comm), NULL);
    if (run->memory == COLL_DEVICE) {
        test_device_end();
    }
    test_values_clear();
}

/* ---- the text of a case ---- */

static const char *const place_names[COLL_NUM_PLACES] = { "out", "in", "start" };

void coll_case_text(const struct coll_case *c, char *text, size_t len)
{
    snprintf(text, len, "%s,%s,%s,%zu,%d,%s,%d,%s", c->coll->name, test_types[c->type].name,
             test_op_names[c->op], c->count, c->root, place_names[c->inplace], c->align,
             c->stream ? "stream" : "call");
}

int coll_case_parse(const char *text, int nranks, struct coll_case *c)
{
    char coll[32], type[16], op[16], place[8], how[8];
    int type_index;
    memset(c, 0, sizeof(*c));
    if (sscanf(text, "%31[^,],%15[^,],%15[^,],%zu,%d,%7[^,],%d,%7s", coll, type, op, &c->count, &c->root,
               place, &c->align, how) != 8) {
        return 0;
    }
    c->coll = test_coll_by_name(coll);
    type_index = test_type_by_name(type);
    c->type = (rondo_dtype)type_index;
    c->op = test_op_by_name(op);
    for (int p = 0; p < COLL_NUM_PLACES; p++) {
        c->inplace = strcmp(place, place_names[p]) == 0 ? p : c->inplace;
    }
    c->stream = strcmp(how, "stream") == 0;
    return c->coll != NULL && type_index >= 0 && c->op >= 0 && c->root >= 0 && c->root < nranks &&
           (c->op != TEST_OP_NONE) == c->coll->reduces && test_has_op(c->type, c->op);
}

/* ---- one case ---- */

/* @return random counts around c->count, a quarter of them zero; in place, a symmetric matrix. */
static size_t *vector_counts(const struct coll_run *run, const struct coll_case *c, uint64_t salt)
{
    size_t n = (size_t)run->nranks * (size_t)run->nranks, *counts = malloc(n * sizeof(*counts));
    if (counts == NULL) {
        test_die("no memory for counts");
    }
    for (size_t i = 0; i < n; i++) {
        size_t from = i / (size_t)run->nranks, to = i % (size_t)run->nranks;
        size_t which = c->inplace && from > to ? to * (size_t)run->nranks + from : i;
        uint64_t hash = test_hash(salt, 1, which);
        counts[i] = hash % 4 == 0 ? 0 : (hash >> 8) % (c->count + 1);
    }
    return counts;
}

static void setup_call(const struct coll_run *run, const struct coll_case *c, uint64_t salt,
                       struct test_call *call)
{
    *call = (struct test_call){ .coll = c->coll,
                                .type = c->type,
                                .op = c->op,
                                .root = c->root,
                                .count = c->count,
                                .rank = run->rank,
                                .nranks = run->nranks,
                                .first = salt % TEST_PERIOD };
    call->handle = c->op == TEST_OP_PREMUL ? run->premul[c->type] : (rondo_op)c->op;
    call->values = test_values_get(c->type, c->op, run->nranks, run->seed);
    call->many = c->coll->vform ? vector_counts(run, c, salt) : NULL;
}

static void report(const struct coll_run *run, const char *text, const char *what)
{
    test_check(0, "at rank %d: %s; repeat with: %s --seed %llu --case %s", run->rank, what, run->again,
               (unsigned long long)run->seed, text);
}

/* Check the elements, then look for other bytes that changed. @return 1 if everything is right. */
static int verify(const struct coll_run *run, const struct test_call *call, struct coll_box *box,
                  unsigned char *out, size_t count, const char *name, const char *text)
{
    size_t size = test_types[call->type].size, first = 0,
           wrong = test_values_wrong(call->values, out, imaged(box, out), count, &first);
    char what[256], got[64], want[64];
    if (wrong > 0) {
        test_values_text(call->type, out + first * size, got, sizeof(got));
        test_values_text(call->type, imaged(box, out) + first * size, want, sizeof(want));
        snprintf(what, sizeof(what), "%zu of %zu elements wrong, first at %zu: expected %s, got %s", wrong,
                 count, first, want, got);
        report(run, text, what);
        return 0;
    }
    memcpy(out, imaged(box, out), count * size); /* within the tolerance */
    if (memcmp(box->mem, box->image, box->bytes) != 0) {
        size_t at = 0;
        while (box->mem[at] == box->image[at]) {
            at++;
        }
        snprintf(what, sizeof(what), "%s buffer: the call wrote byte %td, which it must not: was %#x, is %#x",
                 name, at - (box->data - box->mem), box->image[at], box->mem[at]);
        report(run, text, what);
        return 0;
    }
    return 1;
}

static void wait_for_call(const struct coll_run *run, const struct coll_case *c, rondo_status status)
{
    if (status == RONDO_SUCCESS && run->memory == COLL_DEVICE) {
        test_device_wait(c->stream ? run->stream : NULL);
        (void)rondo_comm_async_error(run->comm, &status);
    } else if (status == RONDO_SUCCESS && c->stream) {
        status = rondo_stream_synchronize(run->stream);
    }
    if (status != RONDO_SUCCESS) {
        test_die("at rank %d: %s: %s; repeat with: %s --seed %llu --case %s", run->rank,
                 rondo_status_string(status), rondo_last_error(run->comm), run->again,
                 (unsigned long long)run->seed, run->text);
    }
}

static size_t offset_of(const struct coll_case *c, int bit)
{
    return c->align & bit ? test_types[c->type].size : 0;
}

/* @return the bytes from the start of the buffer to the end of the data sent or received in it. */
static size_t inplace_span(const struct test_extent *e, size_t size)
{
    size_t send = e->inplace_send + e->send, recv = e->inplace_recv + e->recv;
    return (send > recv ? send : recv) * size;
}

static struct coll_box *box_of_recv(struct coll_open *open) { return open->alone ? &open->in : &open->out; }

static void setup_inplace(const struct coll_run *run, struct coll_open *open)
{
    const struct coll_case *c = &open->c;
    struct test_extent e = c->coll->extent(&open->call);
    size_t size = test_types[c->type].size;
    struct coll_box *box = &open->in;
    /* In reduce and broadcast, ranks other than the root also pass a single buffer. */
    box_init(run, box, 0, inplace_span(&e, size), offset_of(c, COLL_ALIGN_RECV));
    open->send = box->data + e.inplace_send * size;
    open->recv = box->data + (c->inplace == COLL_START ? 0 : e.inplace_recv * size);
    test_call_fill(&open->call, open->send);
    memcpy(box->image, box->mem, box->bytes);
    box_to_device(box);
}

static void setup_outplace(const struct coll_run *run, struct coll_open *open)
{
    const struct coll_case *c = &open->c;
    struct test_extent e = c->coll->extent(&open->call);
    size_t size = test_types[c->type].size;
    box_init(run, &open->in, 0, e.send * size, offset_of(c, COLL_ALIGN_SEND));
    box_init(run, &open->out, 1, e.recv * size, offset_of(c, COLL_ALIGN_RECV));
    open->send = open->in.data;
    open->recv = open->out.data;
    test_call_fill(&open->call, open->send);
    memcpy(open->in.image, open->in.mem, open->in.bytes);
    memcpy(open->out.image, open->out.mem, open->out.bytes);
    box_to_device(&open->in);
    box_to_device(&open->out);
}

rondo_status coll_case_start(struct coll_run *run, const struct coll_case *c, struct coll_open *open)
{
    struct test_extent e;
    uint64_t salt = test_hash(run->seed, (uint64_t)(c->coll - test_colls) * 64 + (uint64_t)c->type,
                              c->count * 1000 + (uint64_t)(c->op * 8 + c->align));
    int null_send, null_recv;
    *open = (struct coll_open){ .c = *c };
    coll_case_text(c, open->text, sizeof(open->text));
    setup_call(run, c, salt, &open->call);
    open->alone = c->inplace && test_call_inplace(&open->call);
    if (open->alone) {
        setup_inplace(run, open);
    } else {
        setup_outplace(run, open);
    }
    e = c->coll->extent(&open->call);
    null_send = !open->alone && e.send == 0 && salt & 1 << 20;
    null_recv = !open->alone && e.recv == 0 && salt & 1 << 21;
    return c->coll->run(&open->call, null_send ? NULL : given(&open->in, open->send),
                        null_recv ? NULL : given(box_of_recv(open), open->recv), run->comm,
                        c->stream ? run->stream : NULL);
}

static void check_open(const struct coll_run *run, struct coll_open *open)
{
    size_t recv = open->c.coll->extent(&open->call).recv;
    struct coll_box *box = box_of_recv(open);
    box_from_device(box);
    if (recv > 0) {
        open->c.coll->expect(&open->call, imaged(box, open->recv));
    }
    test_check(1, "%s", open->text);
    if (verify(run, &open->call, box, open->recv, recv, open->alone ? "the one" : "recv", open->text) &&
        !open->alone) {
        box_from_device(&open->in);
        verify(run, &open->call, &open->in, open->in.data, 0, "send", open->text);
    }
}

void coll_case_finish(const struct coll_run *run, struct coll_open *open, int succeeded)
{
    if (succeeded) {
        check_open(run, open);
    }
    box_release(&open->in);
    if (!open->alone) {
        box_release(&open->out);
    }
    free((void *)open->call.many);
}

void coll_case_run(struct coll_run *run, const struct coll_case *c)
{
    struct coll_open open;
    coll_case_text(c, run->text, sizeof(run->text));
    test.what = run->text;
    wait_for_call(run, c, coll_case_start(run, c, &open));
    coll_case_finish(run, &open, 1);
}

size_t coll_case_room(const struct coll_run *run, const struct coll_case *c)
{
    return (c->count + TEST_CALL_GAP + 1) * (size_t)run->nranks * test_types[c->type].size + 2 * MARGIN;
}
