/*
 * What a communicator of many ranks costs, in simulated time: prints a table for docs/scale.md.
 *
 *     scale_sim [--nlocal N] [--latency-us T] [--loss P] [--seed N] PART RANKS...
 *
 * PART is create, split, end or missing; docs/scale.md says what each simulates. scripts/simulate-scale runs
 * all. Columns are separated by tabs.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "creation_sim.h"
#include "death_sim.h"
#include "init/phases.h"
#include "net/peer_wire.h"
#include "rounds_sim.h"

struct options {
    int nlocal;
    int64_t latency_ns;
    double loss;
    uint64_t seed;
};

/* 100 Gb/s, and what Linux waits at least before it sends a segment of TCP again. */
#define BYTES_PER_NS 12.5
#define RESEND_NS (200 * INT64_C(1000000))

/* ---- create ---- */

static int create(const struct options *options, int nranks, int first)
{
    struct creation_sim_result result;
    if (first) {
        printf("ranks\tcompute ms\tpeak MiB\trecords received MiB\tbytes a rank sends\n");
    }
    if (creation_sim_run(nranks, options->nlocal, &result) != RONDO_SUCCESS) {
        fprintf(stderr, "scale_sim: %s\n", rondo_error_text());
        return 1;
    }
    printf("%d\t%.1f\t%.1f\t%.1f\t%zu\n", nranks, result.compute_ms, result.peak_mib,
           (double)result.received / (1 << 20), result.sent);
    return 0;
}

/* ---- split ---- */

enum { MAX_ROUNDS = 32 };

/* The rounds of a split across nodes, with the bytes that init/phases.h lists; a shape of 2 KiB, and two ends
 * of a ring's connections. */
static int list_rounds(int nranks, size_t *record, uint8_t *kind)
{
    int n = 0;
    record[n] = 24, kind[n++] = ROUNDS_SIM_ALLGATHER; /* colors */
    record[n] = sizeof(struct rondo_peer_wire), kind[n++] = ROUNDS_SIM_ALLGATHER;
    record[n] = 256, kind[n++] = ROUNDS_SIM_ALLGATHER; /* graphs */
    for (int step = 0; 1 << step < nranks; step++) {
        record[n] = 2048, kind[n++] = (uint8_t)(ROUNDS_SIM_SHAPE + step);
    }
    record[n] = 8 + 2 * 256, kind[n++] = ROUNDS_SIM_RING;                              /* connections */
    record[n] = sizeof(struct rondo_round_verdict), kind[n++] = ROUNDS_SIM_REDUCE;     /* ready */
    record[n] = sizeof(struct rondo_round_verdict) + 4, kind[n++] = ROUNDS_SIM_REDUCE; /* done */
    return n;
}

static struct rounds_sim *new_sim(const struct options *options, int nranks, size_t *record, uint8_t *kind)
{
    struct rounds_sim_config config = { .n = nranks,
                                        .nrounds = list_rounds(nranks, record, kind),
                                        .record = record,
                                        .kind = kind,
                                        .coarse = 1,
                                        .latency_ns = options->latency_ns,
                                        .timeout_ns = 60 * INT64_C(1000000000),
                                        .bytes_per_ns = BYTES_PER_NS,
                                        .loss = options->loss,
                                        .resend_ns = RESEND_NS,
                                        .seed = options->seed };
    return rounds_sim_new(&config);
}

static int split(const struct options *options, int nranks, int first)
{
    size_t record[MAX_ROUNDS];
    uint8_t kind[MAX_ROUNDS];
    struct rounds_sim *sim = new_sim(options, nranks, record, kind);
    int64_t took = rounds_sim_run(sim);
    uint64_t most = 0, bytes = 0, small = 0;
    int failed = 0;
    for (int rank = 0; rank < nranks; rank++) {
        const struct rounds_sim_rank *out = rounds_sim_rank(sim, rank);
        most = out->sent > most ? out->sent : most;
        bytes = out->bytes > bytes ? out->bytes : bytes;
        small = out->flows > small ? out->flows : small;
        failed += out->status != RONDO_SUCCESS;
    }
    if (first) {
        printf("ranks\trounds\tdepth\tpieces a rank sends\tmessages of 1 KB\tMiB a rank sends\tready "
               "ms\tevents\n");
    }
    printf("%d\t%d\t%d\t%llu\t%llu\t%.2f\t%.3f\t%llu\n", nranks, list_rounds(nranks, record, kind),
           rondo_subtree_of(nranks - 1, nranks).depth, (unsigned long long)small, (unsigned long long)most,
           (double)bytes / (1 << 20), (double)took * 1e-6, (unsigned long long)rounds_sim_events(sim));
    rounds_sim_free(sim);
    return failed > 0;
}

/* ---- missing ---- */

/* A rank far down the tree does not come. */
static int missing(const struct options *options, int nranks, int first)
{
    size_t record[MAX_ROUNDS];
    uint8_t kind[MAX_ROUNDS];
    struct rounds_sim *sim = new_sim(options, nranks, record, kind);
    int absent = (int)((int64_t)nranks * 5 / 7), wrong = 0;
    rounds_sim_rank(sim, absent)->fate = ROUNDS_SIM_ABSENT;
    int64_t last = rounds_sim_run(sim) - 60 * INT64_C(1000000000);
    uint64_t notes = 0;
    for (int rank = 0; rank < nranks; rank++) {
        const struct rounds_sim_rank *out = rounds_sim_rank(sim, rank);
        wrong += rank != absent && (out->nmissing != 1 || out->missing[0] != absent);
        notes = out->notes > notes ? out->notes : notes;
    }
    if (first) {
        printf("ranks\tmissing rank\tits place\tnotes a rank sends\tall know after ms\tname another rank\n");
    }
    printf("%d\t%d\tlevel %d of %d\t%llu\t%.1f\t%d\n", nranks, absent, rondo_subtree_of(absent, nranks).depth,
           rondo_subtree_of(nranks - 1, nranks).depth, (unsigned long long)notes, (double)last * 1e-6, wrong);
    rounds_sim_free(sim);
    return wrong > 0;
}

/* ---- end ---- */

static int one_end(const struct options *options, int nranks, const char *name, enum death_sim_kind kind,
                   int also)
{
    struct death_sim_config config = { .nranks = nranks,
                                       .nlocal = options->nlocal,
                                       .kind = kind,
                                       .rank = nranks / 3,
                                       .also = also,
                                       .latency_ns = options->latency_ns,
                                       .beat_ns = rondo_params()->heartbeat,
                                       .dead_ns = rondo_params()->dead_after,
                                       .bytes_per_ns = BYTES_PER_NS,
                                       .loss = options->loss,
                                       .resend_ns = RESEND_NS,
                                       .seed = options->seed };
    struct death_sim_result result;
    death_sim_run(&config, &result);
    printf("%d\t%s\t%llu\t%.1f\t%llu\t%.1f\t%.3f\t%.3f\t%d\n", nranks, name,
           (unsigned long long)result.connections, result.beats, (unsigned long long)result.most_messages,
           (double)result.bytes / 1024 / (result.nlive + also), (double)result.first_ns * 1e-6,
           (double)result.last_ns * 1e-6, result.nlive - result.nknow);
    return result.nknow < result.nlive || result.wrong > 0;
}

static int end(const struct options *options, int nranks, int first)
{
    int bad = 0;
    if (first) {
        printf("ranks\tend\tconnections of a node\tbeats a node sends per interval\tmessages a node "
               "sends\tKiB a "
               "node\tfirst knows ms\tlast knows ms\tnever know\n");
    }
    bad |= one_end(options, nranks, "abort", DEATH_SIM_ABORT, 0);
    bad |= one_end(options, nranks, "death", DEATH_SIM_DEATH, 0);
    if (nranks / options->nlocal >= 64) {
        bad |= one_end(options, nranks, "death of 1 in 16 nodes", DEATH_SIM_DEATH,
                       nranks / options->nlocal / 16 - 1);
    }
    bad |= one_end(options, nranks, "silence", DEATH_SIM_SILENCE, 0);
    return bad;
}

/* ---- command line ---- */

static int run(int (*part)(const struct options *, int, int), const struct options *options, char **ranks)
{
    int bad = 0;
    for (int i = 0; ranks[i]; i++) {
        int nranks = atoi(ranks[i]);
        if (nranks < 2 * options->nlocal || nranks > 1 << 20) {
            fprintf(stderr, "scale_sim: %s ranks: give %d to %d, two nodes at least\n", ranks[i],
                    2 * options->nlocal, 1 << 20);
            return 2;
        }
        bad |= part(options, nranks, i == 0);
        fflush(stdout);
    }
    return bad;
}

int main(int argc, char **argv)
{
    static const struct option longs[] = { { "nlocal", required_argument, NULL, 'n' },
                                           { "latency-us", required_argument, NULL, 't' },
                                           { "loss", required_argument, NULL, 'l' },
                                           { "seed", required_argument, NULL, 's' },
                                           { NULL, 0, NULL, 0 } };
    static const struct {
        const char *name;
        int (*run)(const struct options *, int, int);
    } parts[] = { { "create", create }, { "split", split }, { "end", end }, { "missing", missing } };
    struct options options = { .nlocal = 1, .latency_ns = 10000, .seed = 1 };
    int c;
    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (c) {
        case 'n': options.nlocal = atoi(optarg) > 0 ? atoi(optarg) : 1; break;
        case 't': options.latency_ns = (int64_t)(atof(optarg) * 1e3); break;
        case 'l': options.loss = atof(optarg); break;
        case 's': options.seed = strtoull(optarg, NULL, 0); break;
        default: return 2;
        }
    }
    for (size_t i = 0; i < RONDO_COUNTOF(parts) && optind + 1 < argc; i++) {
        if (strcmp(argv[optind], parts[i].name) == 0) {
            return run(parts[i].run, &options, argv + optind + 1);
        }
    }
    fprintf(stderr, "usage: scale_sim [--nlocal N] [--latency-us T] [--loss P] [--seed N] "
                    "create|split|end|missing RANKS...\n");
    return 2;
}
