#include "creation_sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "init/engine.h"
#include "net/peer_wire.h"

struct fake {
    struct rondo_bootstrap base;
    struct creation_sim_result *result;
    int nlocal, stopped, shapes;
    double fake_ms; /* CPU time of making up records */
};

static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* Read a line such as "VmHWM:  1234 kB" of /proc/self/status. */
static double status_mib(const char *name)
{
    char line[256];
    double kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, name, strlen(name)) == 0) {
            kib = strtod(line + strlen(name) + 1, NULL);
        }
    }
    if (file) {
        fclose(file);
    }
    return kib / 1024;
}

/* Let VmHWM count from now on. */
static void reset_peak(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (write(fd, "5", 1) != 1) {
            fprintf(stderr, "creation_sim: the peak of memory includes earlier uses\n");
        }
        close(fd);
    }
}

static rondo_status open_start(struct rondo_bootstrap *b)
{
    (void)b;
    return RONDO_SUCCESS;
}

static void make_up_peer(struct rondo_peer_wire *wire, const struct rondo_peer *mine, int rank, int nlocal)
{
    struct rondo_peer copy = *mine, *peer = &copy;
    char host[RONDO_HOST_LEN];
    int node = rank / nlocal;
    peer->rank = rank;
    peer->process_hash += (uint64_t)rank;
    peer->host_hash += (uint64_t)node;
    if (node > 0) {
        snprintf(host, sizeof(host), "node%06d.cluster.example.org", node);
        peer->host = host;
    }
    rondo_peer_pack(wire, peer);
}

static rondo_status allgather_start(struct rondo_bootstrap *b, const void *mine, void *all, size_t bytes)
{
    struct fake *fake = (struct fake *)b;
    double begin = cpu_ms();
    struct rondo_peer peer = { .rank = 0 };
    struct rondo_peer_parts parts;
    if (fake->result->rounds == 0 && !rondo_peer_unpack(&peer, &parts, mine)) {
        return rondo_fail(RONDO_INTERNAL_ERROR, "the first record is no peer's");
    }
    for (int rank = 0; rank < b->nranks; rank++) {
        uint8_t *record = (uint8_t *)all + (size_t)rank * bytes;
        memcpy(record, mine, bytes);
        if (fake->result->rounds == 0) {
            make_up_peer((struct rondo_peer_wire *)(void *)record, &peer, rank, fake->nlocal);
        }
    }
    fake->result->rounds++;
    fake->result->sent += bytes;
    fake->result->received += bytes * (size_t)b->nranks;
    fake->fake_ms += cpu_ms() - begin;
    return RONDO_SUCCESS;
}

/* The first exchanges carry the graphs, of which this rank is the owner. Then come connections. */
static rondo_status exchange_start(struct rondo_bootstrap *b, int n, const int *peer, const void *send,
                                   void *recv, size_t bytes)
{
    struct fake *fake = (struct fake *)b;
    (void)peer;
    (void)recv;
    (void)send;
    if (n > 0 && bytes == 0) {
        return rondo_fail(RONDO_INTERNAL_ERROR, "an exchange of empty records");
    }
    fake->result->sent += (size_t)n * bytes;
    if (1 << fake->shapes++ < b->nranks) {
        return RONDO_SUCCESS;
    }
    fake->stopped = 1;
    return rondo_fail_quiet(RONDO_REMOTE_ERROR, "the simulation ends here");
}

static rondo_status test(struct rondo_bootstrap *b)
{
    (void)b;
    return RONDO_SUCCESS;
}

static rondo_status missing(struct rondo_bootstrap *b, int *ranks, int max, int *n)
{
    (void)b;
    (void)ranks;
    (void)max;
    *n = 0;
    return RONDO_SUCCESS;
}

static void close_it(struct rondo_bootstrap *b, int ok)
{
    (void)b;
    (void)ok; /* the caller's */
}

static const struct rondo_bootstrap_ops ops = {
    .name = "simulated",
    .open_start = open_start,
    .allgather_start = allgather_start,
    .exchange_start = exchange_start,
    .test = test,
    .missing = missing,
    .close = close_it,
};

rondo_status creation_sim_run(int nranks, int nlocal, struct creation_sim_result *result)
{
    struct fake fake = { .base = { .ops = &ops, .nranks = nranks }, .result = result, .nlocal = nlocal };
    rondo_comm *comm = NULL;
    memset(result, 0, sizeof(*result));
    reset_peak();
    double memory = status_mib("VmRSS:"), begin = cpu_ms();
    rondo_status status = rondo_engine_create(&fake.base, NULL, &comm);
    result->compute_ms = cpu_ms() - begin - fake.fake_ms;
    result->peak_mib = status_mib("VmHWM:") - memory;
    result->stopped = "connections";
    if (comm != NULL) {
        rondo_comm_abort(comm);
    }
    return fake.stopped ? RONDO_SUCCESS
                        : rondo_fail(RONDO_INTERNAL_ERROR, "the creation ended early with status %d: %s",
                                     status, rondo_error_text());
}
