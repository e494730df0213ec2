/* Graphs as bytes, and the records of a job's ranks: nothing from another rank is trusted unchecked. */
#include "topo_job.h"

enum { MUTATIONS = 40000, MOST_BYTES = 65536 };

static struct kind *kind_new(void)
{
    struct kind *k = calloc(1, sizeof(*k));
    assert_non_null(k);
    return k;
}

static void kind_free(struct kind *k)
{
    rondo_free(k->bytes);
    free(k);
}

/* ---- bytes ---- */

static void assert_equal_graphs(const struct rondo_graph *a, const struct rondo_graph *b)
{
    struct rondo_graph x = *a, y = *b;
    assert_memory_equal(a->order, b->order, sizeof(*a->order) * (size_t)(a->nchannels * a->ndevs));
    x.order = y.order = NULL;
    x.steps = y.steps = x.searches = y.searches = 0; /* not packed */
    assert_memory_equal(&x, &y, sizeof x);
}

static void packed_graphs_unpack_unchanged(void **state)
{
    (void)state;
    struct kind *k = kind_new();
    for (int i = 0; i < 500; i++) {
        struct rondo_graph graphs[RONDO_NUM_GRAPHS];
        uint8_t *again;
        size_t n;
        memset(graphs, 0, sizeof graphs);
        seed = 0xabcdef1234567ull * (uint64_t)(i + 1);
        kind_draw(k);
        assert_int_equal(rondo_graphs_unpack(k->bytes, k->nbytes, graphs), RONDO_SUCCESS);
        for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
            assert_equal_graphs(&graphs[id], &k->graph[id]);
        }
        struct rondo_graph_net nets[MAX_NETS];
        assert_int_equal(rondo_graphs_nnets(k->bytes), k->nnets);
        rondo_graphs_nets(k->bytes, nets);
        for (int net = 0; net < k->nnets; net++) {
            assert_int_equal(nets[net].rail, k->net[net].rail);
            assert_string_equal(nets[net].name, k->net[net].name);
            assert_memory_equal(nets[net].gdr, k->net[net].gdr, sizeof nets[net].gdr);
            assert_memory_equal(nets[net].relay, k->net[net].relay, sizeof nets[net].relay);
        }
        assert_int_equal(rondo_graphs_pack(graphs, k->ndevs, k->nnets, k->net, &again, &n), RONDO_SUCCESS);
        assert_int_equal(n, k->nbytes);
        assert_memory_equal(again, k->bytes, n);
        for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
            rondo_graph_release(&graphs[id]);
        }
        rondo_free(again);
        rondo_free(k->bytes);
    }
    free(k);
}

static void name_net(struct kind *k, int net, const char *name)
{
    snprintf(k->net[net].name, sizeof k->net[net].name, "%s", name);
}

/* The fuzzer's corpus is in the current format. */
static void fuzzer_seeds_use_the_current_format(void **state)
{
    static const char *const names[] = { "four_gpus", "four_nets", "hosts", "levels", "two_gpus" };
    static uint8_t bytes[MOST_BYTES];
    const char *srcdir = getenv("srcdir");
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(names); i++) {
        struct rondo_graph graphs[RONDO_NUM_GRAPHS] = { { 0 } };
        char path[512];
        snprintf(path, sizeof path, "%s/mpi-tests/fuzz/corpus/fuzz_graph_pack/%s",
                 srcdir != NULL ? srcdir : ".", names[i]);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        size_t n = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        assert_int_equal(rondo_graphs_unpack(bytes, n, graphs), RONDO_SUCCESS);
        for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
            rondo_graph_release(&graphs[id]);
        }
    }
}

static void bytes_are_little_endian(void **state)
{
    static const uint8_t head[] = { 0x52, 0x72, 0x67, 0x68, 2, 0, 2, 0 };
    (void)state;
    struct kind *k = kind_new();
    kind_init(k, 3, 2, 1, RONDO_PATTERN_TREE);
    k->net[1].rail = 0x01020304;
    name_net(k, 0, "ib0");
    name_net(k, 1, "");
    kind_pack(k);
    assert_memory_equal(k->bytes, head, sizeof head);
    assert_int_equal(k->bytes[8] | k->bytes[9] << 8, k->nbytes);
    assert_int_equal(k->bytes[12], 3);
    assert_int_equal(k->bytes[14], 2);
    assert_int_equal(k->bytes[20], 3);
    assert_memory_equal(k->bytes + 21, "ib0", 3);
    assert_int_equal(k->bytes[24], 4);
    assert_int_equal(k->bytes[27], 1);
    assert_int_equal(k->bytes[28], 0);
    kind_free(k);
}

/* Accepted bytes are in canonical form. Copies have their exact size, so that sanitizers see reads beyond the
 * end. */
static int try_bytes(const uint8_t *bytes, size_t n)
{
    struct rondo_graph graphs[RONDO_NUM_GRAPHS];
    uint8_t *copy = malloc(n ? n : 1), *again;
    size_t nagain;
    memset(graphs, 0, sizeof graphs);
    assert_non_null(copy);
    if (n > 0) {
        memcpy(copy, bytes, n);
    }
    rondo_status status = rondo_graphs_unpack(copy, n, graphs);
    if (status == RONDO_SUCCESS) {
        static struct rondo_graph_net nets[RONDO_MACHINE_MAX_NETS];
        int nnets = rondo_graphs_nnets(copy);
        rondo_graphs_nets(copy, nets);
        assert_int_equal(rondo_graphs_pack(graphs, graphs[0].ndevs, nnets, nets, &again, &nagain),
                         RONDO_SUCCESS);
        assert_int_equal(nagain, n);
        assert_memory_equal(again, copy, n);
        rondo_free(again);
    } else {
        assert_says("damaged");
    }
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        assert_true(status == RONDO_SUCCESS || graphs[id].order == NULL);
        rondo_graph_release(&graphs[id]);
    }
    free(copy);
    return status == RONDO_SUCCESS;
}

static void assert_refused(const uint8_t *bytes, size_t n, const char *says)
{
    assert_false(try_bytes(bytes, n));
    assert_says(says);
}

/* Set the length field. */
static void say_length(uint8_t *bytes, size_t n) { bytes[8] = (uint8_t)n, bytes[9] = (uint8_t)(n >> 8); }

static void damaged_bytes_are_refused_or_mean_something_else(void **state)
{
    (void)state;
    struct kind *k = kind_new();
    static uint8_t bytes[MOST_BYTES];
    int accepted = 0, refused = 0;
    for (int i = 0; i < MUTATIONS; i++) {
        if (i % 100 == 0) {
            rondo_free(k->bytes);
            seed = 0x1357924680ull * (uint64_t)(i + 7);
            kind_draw(k);
        }
        size_t n = k->nbytes;
        memcpy(bytes, k->bytes, n);
        for (int times = 1 + draw(3); times > 0; times--) {
            size_t at = (size_t)draw((int)n);
            bytes[at] = draw(3) ? (uint8_t)draw(256) : (uint8_t)(bytes[at] ^ 1 << draw(8));
        }
        try_bytes(bytes, n) ? accepted++ : refused++;
    }
    assert_true(accepted > 0 && refused > accepted);
    for (size_t n = 0; n < k->nbytes; n++) {
        memcpy(bytes, k->bytes, n);
        assert_false(try_bytes(bytes, n));
        if (n >= 12) { /* also if the length field agrees */
            say_length(bytes, n);
            assert_false(try_bytes(bytes, n));
        }
    }
    memcpy(bytes, k->bytes, k->nbytes);
    bytes[k->nbytes] = 0;
    say_length(bytes, k->nbytes + 1);
    assert_refused(bytes, k->nbytes + 1, "1 bytes follow");
    kind_free(k);
}

/* A name that is too long, continues beyond the bytes, or is not printable. */
static void damaged_names_are_refused(void **state)
{
    (void)state;
    struct kind *k = kind_new();
    kind_init(k, 2, 1, 1, RONDO_PATTERN_TREE);
    kind_pack(k);
    assert_memory_equal(k->bytes + 21, "net0:1", 6);
    k->bytes[20] = 64;
    assert_refused(k->bytes, k->nbytes, "the name of net 0 has 64 bytes");
    k->bytes[20] = 255;
    assert_refused(k->bytes, 40, "40 bytes, but the header says");
    say_length(k->bytes, 40);
    assert_refused(k->bytes, 40, "truncated in the name of net 0");
    say_length(k->bytes, 20);
    assert_refused(k->bytes, 20, "truncated in the list of 1 nets");
    rondo_free(k->bytes);
    kind_pack(k);
    k->bytes[23] = '\n';
    assert_refused(k->bytes, k->nbytes, "byte 2 of the name of net 0 is 10");
    kind_free(k);
}

/* Make three devices and two nets. @return the packed bytes without masks and relays. */
static size_t pack_three(struct kind *k)
{
    kind_init(k, 3, 2, 1, RONDO_PATTERN_TREE);
    kind_pack(k);
    rondo_free(k->bytes);
    return k->nbytes;
}

/* GPUDirect masks come at the end, only if any bit is set. */
static void gdr_masks_have_one_encoding(void **state)
{
    (void)state;
    struct kind *k = kind_new();
    size_t without = pack_three(k);
    k->net[1].gdr[RONDO_GDR_READ] = 4;
    kind_pack(k);
    assert_int_equal(k->bytes[4], 3);
    assert_int_equal(k->nbytes, without + (size_t)(2 * 8 * RONDO_NUM_GDR));
    uint8_t *devices = k->bytes + without + 8 * RONDO_NUM_GDR + 8 * RONDO_GDR_READ;
    assert_int_equal(*devices, 4);
    *devices = 8;
    assert_refused(k->bytes, k->nbytes, "net 1 has GPUDirect with device 3 of 3");
    *devices = 0;
    assert_refused(k->bytes, k->nbytes, "version 3 without GPUDirect to any of 2 nets");
    say_length(k->bytes, k->nbytes - 1);
    assert_refused(k->bytes, k->nbytes - 1, "truncated in the GPUDirect bits of 2 nets");
    kind_free(k);
}

/* Relays follow the masks. */
static void relays_have_one_encoding(void **state)
{
    (void)state;
    struct kind *k = kind_new();
    size_t without = pack_three(k);
    k->net[1].relay[2] = 1;
    kind_pack(k);
    assert_int_equal(k->bytes[4], 5);
    assert_int_equal(k->nbytes, without + (size_t)(2 * (8 * RONDO_NUM_GDR + 3)));
    uint8_t *relay = k->bytes + k->nbytes - 1;
    assert_int_equal(*relay, 1);
    *relay = 4;
    assert_refused(k->bytes, k->nbytes, "device 2 of 3 sends to net 1 through device 3");
    *relay = 3;
    assert_refused(k->bytes, k->nbytes, "device 2 of 3 sends to net 1 through device 2");
    *relay = 0;
    assert_refused(k->bytes, k->nbytes, "version 5 without a relay to any of 2 nets");
    say_length(k->bytes, k->nbytes - 1);
    assert_refused(k->bytes, k->nbytes - 1, "truncated in the relays of 2 nets");
    kind_free(k);
}

static void packing_refuses_invalid_graphs(void **state)
{
    (void)state;
    struct kind *k = kind_new();
    uint8_t *bytes;
    size_t n;
#define REFUSED(change, says)                                                                 \
    do {                                                                                      \
        kind_init(k, 4, 2, 3, RONDO_PATTERN_TREE);                                            \
        change;                                                                               \
        assert_int_equal(rondo_graphs_pack(k->graph, k->ndevs, k->nnets, k->net, &bytes, &n), \
                         RONDO_INTERNAL_ERROR);                                               \
        assert_says(says);                                                                    \
    } while (0)
    REFUSED(k->graph[1].nchannels = 0, "nchannels of graph 1 is 0, expected 1 to 32");
    REFUSED(k->graph[0].nchannels = 33, "nchannels of graph 0 is 33");
    REFUSED(k->graph[0].pattern = RONDO_PATTERN_TREE, "pattern 3 does not belong to graph 0");
    REFUSED(k->graph[1].pattern = RONDO_PATTERN_RING, "pattern 4 does not belong to graph 1");
    REFUSED(k->graph[1].id = 0, "found graph 0 instead of graph 1");
    REFUSED(k->graph[1].order = NULL, "graph 1 has 0 devices, expected 4");
    REFUSED(k->order[0][4] = 1, "graph 0: device 1 at place 1 of an order");
    REFUSED(k->order[0][4] = -1, "device -1 at place 0");
    REFUSED(k->graph[0].net[5] = 2, "graph 0, channel 2: net 2 does not exist, there are 2");
    REFUSED(k->ndevs = 1025, "1025 devices");
    REFUSED(k->nnets = -1, "-1 nets");
    REFUSED(k->net[1].gdr[0] = 0x18, "net 1 has GPUDirect with device 4 of 4");
    REFUSED(k->net[0].relay[4] = 1, "device 4 of 4 sends to net 0 through device 0");
    REFUSED(name_net(k, 1, "eth 0"), "byte 3 of the name of net 1 is 32, expected a visible character");
    REFUSED(name_net(k, 0, "\xc3"), "byte 0 of the name of net 0 is 195");
    REFUSED(memset(k->net[1].name, 'x', RONDO_NET_NAME),
            "the name of net 1 has 64 bytes, expected at most 63");
#undef REFUSED
    free(k);
}

/* ---- a job whose ranks disagree ---- */

static struct job *job_of_two_kinds(void)
{
    struct job *job = job_new();
    int kinds[4] = { 0, 1, 0, 1 };
    job->nkinds = 2;
    kind_init(&job->kind[0], 2, 1, 1, RONDO_PATTERN_TREE);
    kind_init(&job->kind[1], 3, 1, 1, RONDO_PATTERN_TREE);
    kind_pack(&job->kind[0]);
    kind_pack(&job->kind[1]);
    job_lay(job, kinds, 4, 0); /* ranks 0 1 | 2 3 4 | 5 6 | 7 8 9 */
    return job;
}

static void inconsistent_jobs_are_refused(void **state)
{
    (void)state;
#define REFUSED(change, status, says)                               \
    do {                                                            \
        struct job *job = job_of_two_kinds();                       \
        struct rondo_stitch_input *in = &job->input;                \
        struct rondo_stitch_rank *rank = job->rank;                 \
        struct rondo_stitch *stitch = (struct rondo_stitch *)job;   \
        (void)rank;                                                 \
        change;                                                     \
        assert_int_equal(rondo_stitch_create(&stitch, in), status); \
        assert_null(stitch);                                        \
        assert_says(says);                                          \
        job_free(job);                                              \
    } while (0)
    REFUSED(in->nranks = 0, RONDO_INVALID_ARGUMENT, "0 ranks");
    REFUSED(in->nranks = RONDO_STITCH_MAX_RANKS + 1, RONDO_INVALID_ARGUMENT, "expected 1 to 16777216");
    REFUSED(in->ndistinct = 0, RONDO_INVALID_ARGUMENT, "0 distinct graphs");
    REFUSED(in->ndistinct = 11, RONDO_INVALID_ARGUMENT, "11 distinct graphs for 10 ranks");
    REFUSED(in->max_channels = -1, RONDO_INVALID_ARGUMENT, "at most -1 channels");
    REFUSED(rank[6].graphs ^= 1, RONDO_INTERNAL_ERROR, "rank 6 on node 2: its graphs");
    REFUSED(in->ndistinct = 1, RONDO_INTERNAL_ERROR, "rank 2 on node 1: its graphs");
    REFUSED(rank[6].graphs = rank[2].graphs, RONDO_INTERNAL_ERROR, "rank 5 and rank 6, both on node 2");
    REFUSED(rank[6].node = 3, RONDO_INTERNAL_ERROR, "rank 6 and rank 7, both on node 3");
    REFUSED(rank[2].node = 3, RONDO_INTERNAL_ERROR, "rank 2 claims node 3, expected at most 1");
    REFUSED(rank[9].node = 0xffffffff, RONDO_INTERNAL_ERROR, "rank 9 claims node 4294967295");
    REFUSED(rank[9].node = 1, RONDO_INTERNAL_ERROR,
            "node 1 (rank 2 and others) has 4 ranks, but its graphs are for 3 devices");
    REFUSED(in->nranks = 9, RONDO_INTERNAL_ERROR, "node 3 (rank 7 and others) has 2 ranks");
    REFUSED(rank[4].local = 1, RONDO_INTERNAL_ERROR,
            "rank 4 claims local rank 1 of node 1, as does another rank");
    REFUSED(rank[4].local = 3, RONDO_INTERNAL_ERROR,
            "rank 4 claims local rank 3 of node 1, which has fewer ranks");
    REFUSED(job->nbytes[1]--, RONDO_INTERNAL_ERROR, "rank 2 on node 1: its graphs");
    REFUSED(job->kind[1].bytes[9] ^= 1; for (int r = 0; r < 10; r++) if (rank[r].node % 2) rank[r].graphs =
                                            rondo_graphs_hash(job->bytes[1], job->nbytes[1]),
                                        RONDO_INTERNAL_ERROR, "damaged");
#undef REFUSED
}

/* Graphs given twice, and graphs that no rank has, change nothing. */
static void repeated_and_unused_graphs_are_harmless(void **state)
{
    (void)state;
    struct job *job = job_of_two_kinds();
    struct rondo_stitch *stitch;
    struct kind *other = kind_new();
    const uint8_t *bytes[4] = { job->bytes[1], NULL, job->bytes[1], job->bytes[0] };
    size_t nbytes[4] = { job->nbytes[1], 0, job->nbytes[1], job->nbytes[0] };
    kind_init(other, 1, 0, 1, RONDO_PATTERN_TREE);
    other->graph[0].bw_intra = 1;
    kind_pack(other);
    bytes[1] = other->bytes, nbytes[1] = other->nbytes;
    job->input.bytes = bytes, job->input.nbytes = nbytes, job->input.ndistinct = 4;
    assert_int_equal(rondo_stitch_create(&stitch, &job->input), RONDO_SUCCESS);
    assert_int_equal(rondo_stitch_summary(stitch)->graph[0].bw_intra, 20000);
    assert_int_equal(rondo_stitch_check(stitch), RONDO_SUCCESS);
    rondo_stitch_destroy(stitch);
    rondo_stitch_destroy(NULL);
    kind_free(other);
    job_free(job);
}

int main(void)
{
    rondo_log_mask = RONDO_LOG_NONE; /* tests check the sentences */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_graphs_unpack_unchanged),
        cmocka_unit_test(fuzzer_seeds_use_the_current_format),
        cmocka_unit_test(bytes_are_little_endian),
        cmocka_unit_test(damaged_bytes_are_refused_or_mean_something_else),
        cmocka_unit_test(damaged_names_are_refused),
        cmocka_unit_test(gdr_masks_have_one_encoding),
        cmocka_unit_test(relays_have_one_encoding),
        cmocka_unit_test(packing_refuses_invalid_graphs),
        cmocka_unit_test(inconsistent_jobs_are_refused),
        cmocka_unit_test(repeated_and_unused_graphs_are_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
