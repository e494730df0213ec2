#include "death_sim.h"

#include <string.h>

#include "base/mem.h"
#include "event_queue.h"
#include "net/control/control_wire.h"

enum { WAKES = 0, WATCH_CAME, BEAT_CAME, END_CAME, REASON_CAME };

/* A connection as a node sees it. A watch opens it, so both ends have one. */
struct link {
    int node; /* at the other end */
    int ended;
    struct rondo_beats beats;
};

struct node {
    struct death_sim *sim;
    int number, silent, dead, knows, blames;
    int64_t knows_ns, free_ns;
    struct rondo_spread spread;
    struct link *links;
    size_t nlinks;
    uint64_t told;
};

struct news {
    int kind, from, blames;
};

struct death_sim {
    struct death_sim_config config;
    int nnodes, *first, *after;
    struct node *node;
    struct event_queue queue;
    int64_t now, event_ns, opened_ns;
    uint64_t random;
    struct death_sim_result *out;
};

static double chance(struct death_sim *sim)
{
    sim->random = rondo_hash(&sim->random, sizeof(sim->random), sim->config.seed);
    return (double)(sim->random >> 11) * 0x1p-53;
}

static int node_of(const struct death_sim *sim, int rank) { return rank / sim->config.nlocal; }

static struct link *link_find(const struct node *node, int other)
{
    for (struct link *link = node->links; link < node->links + node->nlinks; link++) {
        if (link->node == other) {
            return link;
        }
    }
    return NULL;
}

static struct link *link_to(struct node *node, int other)
{
    struct link *link = link_find(node, other);
    if (link == NULL) {
        if (node->nlinks % 8 == 0) {
            node->links = realloc(node->links, sizeof(*link) * (node->nlinks + 8));
        }
        link = &node->links[node->nlinks++];
        *link = (struct link){ .node = other, .beats.heard_ns = node->sim->now };
    }
    return link;
}

/* hops: latencies until it can be read. */
static void post(struct node *from, int to, int kind, int blames, size_t bytes, int hops)
{
    struct death_sim *sim = from->sim;
    struct news *news = malloc(sizeof(*news));
    int64_t at = from->free_ns > sim->now ? from->free_ns : sim->now;
    *news = (struct news){ kind, from->number, blames };
    from->free_ns = at += sim->config.bytes_per_ns > 0 ? (int64_t)((double)bytes / sim->config.bytes_per_ns)
                                                       : 0;
    at += hops * sim->config.latency_ns;
    while (sim->config.loss > 0 && chance(sim) < sim->config.loss) {
        at += sim->config.resend_ns;
    }
    event_push(&sim->queue, at, to, news);
}

/* ---- what spread.h asks for ---- */

/* As a control knows it: by the end of a connection, or a silence. */
static int op_is_alive(void *arg, int rank)
{
    const struct node *node = arg;
    const struct link *link = link_find(node, node_of(node->sim, rank));
    return link == NULL || (!link->ended && !link->beats.silent);
}

static int op_watch(void *arg, int rank)
{
    struct node *node = arg;
    struct link *link = link_to(node, node_of(node->sim, rank));
    if (!link->beats.watching) {
        link->beats.watching = 1;
        /* connect, hello, welcome; the proof and this message follow at once */
        post(node, link->node, WATCH_CAME, -1, 2 * sizeof(struct rondo_wire_head), 5);
    }
    return 1;
}

static int op_tell(void *arg, int rank)
{
    struct node *node = arg;
    int to = node_of(node->sim, rank);
    size_t bytes = sizeof(struct rondo_wire_head) + sizeof(struct rondo_wire_abort);
    node->told++;
    node->sim->out->bytes += bytes;
    post(node, to, REASON_CAME, node->blames, bytes, link_find(node, to) ? 1 : 5);
    return 1;
}

static const struct rondo_spread_ops ops = { op_is_alive, op_watch, op_tell };

/* ---- a node ---- */

static void learn(struct node *node, int blames)
{
    if (!node->knows) {
        node->knows = 1;
        node->knows_ns = node->sim->now;
        node->blames = blames;
        rondo_spread_tell(&node->spread, &ops, node);
    }
}

static void on_end(struct node *node, int other)
{
    struct link *link = link_to(node, other);
    link->ended = 1;
    if (node->knows) {
        rondo_spread_tell(&node->spread, &ops, node); /* that node may have another leader now */
    }
    learn(node, node->sim->first[other]);
}

/* The control thread's beat. */
static void beat(struct node *node)
{
    struct death_sim *sim = node->sim;
    if (!node->knows) {
        rondo_spread_watch(&node->spread, &ops, node);
    }
    for (struct link *link = node->links; link < node->links + node->nlinks; link++) {
        if (link->beats.beating && !link->ended) {
            post(node, link->node, BEAT_CAME, -1, sizeof(struct rondo_wire_head), 1);
        }
        if (!link->ended && rondo_beats_silence(&link->beats, sim->now, sim->config.dead_ns) > 0) {
            learn(node, sim->first[link->node]);
        }
    }
}

static void handle(struct node *node, const struct news *news)
{
    if (news->kind != END_CAME && news->kind != REASON_CAME) {
        rondo_beats_heard(&link_to(node, news->from)->beats, node->sim->now);
    }
    switch (news->kind) {
    case WATCH_CAME:
        link_to(node, news->from)->beats.beating = 1;
        node->sim->opened_ns = node->sim->now;
        break;
    case END_CAME: on_end(node, news->from); break;
    case REASON_CAME: learn(node, news->blames); break;
    default: break;
    }
}

/* ---- the run ---- */

static void strike(struct death_sim *sim, int number)
{
    struct node *node = &sim->node[number];
    if (sim->config.kind == DEATH_SIM_ABORT) {
        learn(node, sim->config.rank);
        return;
    }
    node->silent = 1;
    node->dead = sim->config.kind == DEATH_SIM_DEATH;
    for (struct link *link = node->links; link < node->links + node->nlinks && node->dead; link++) {
        post(node, link->node, END_CAME, -1, 0, 1);
    }
}

static struct death_sim *sim_new(const struct death_sim_config *config, struct death_sim_result *result)
{
    struct death_sim *sim = calloc(1, sizeof(*sim));
    sim->config = *config;
    sim->out = result;
    sim->nnodes = (config->nranks + config->nlocal - 1) / config->nlocal;
    sim->node = calloc((size_t)sim->nnodes, sizeof(*sim->node));
    sim->first = malloc(sizeof(int) * (size_t)sim->nnodes);
    sim->after = malloc(sizeof(int) * (size_t)sim->nnodes * (size_t)config->nlocal);
    for (int n = 0; n < sim->nnodes; n++) {
        sim->first[n] = n * config->nlocal;
        sim->after[sim->first[n]] = -1; /* a node that dies, dies with all its ranks */
        sim->node[n].sim = sim;
        sim->node[n].number = n;
        rondo_spread_init(&sim->node[n].spread, n, sim->nnodes, sim->first, sim->after);
        /* Control threads beat at times of their own. */
        event_push(&sim->queue, (int64_t)(chance(sim) * (double)config->beat_ns), n, NULL);
    }
    /* After all have connected, and a few beats. */
    sim->event_ns = 4 * config->beat_ns;
    return sim;
}

static void sim_free(struct death_sim *sim)
{
    struct event event;
    while (event_pop(&sim->queue, &event)) {
        free(event.what);
    }
    for (int n = 0; n < sim->nnodes; n++) {
        free(sim->node[n].links);
    }
    event_free(&sim->queue);
    free(sim->node);
    free(sim->first);
    free(sim->after);
    free(sim);
}

static void summarise(struct death_sim *sim)
{
    struct death_sim_result *out = sim->out;
    uint64_t nbeats = 0;
    out->first_ns = INT64_MAX;
    for (int n = 0; n < sim->nnodes; n++) {
        const struct node *node = &sim->node[n];
        int64_t took = node->knows_ns - sim->event_ns;
        out->messages += node->told;
        out->most_messages = node->told > out->most_messages ? node->told : out->most_messages;
        out->connections = node->nlinks > out->connections ? node->nlinks : out->connections;
        for (const struct link *link = node->links; link < node->links + node->nlinks; link++) {
            nbeats += link->beats.beating;
        }
        if (node->silent) {
            continue;
        }
        out->nlive++;
        if (node->knows) {
            out->nknow++;
            out->first_ns = took < out->first_ns ? took : out->first_ns;
            out->last_ns = took > out->last_ns ? took : out->last_ns;
            out->wrong += sim->config.kind != DEATH_SIM_ABORT &&
                          !sim->node[node_of(sim, node->blames)].silent;
        }
    }
    out->ready_ns = sim->opened_ns;
    out->beats = (double)nbeats / sim->nnodes;
}

void death_sim_run(const struct death_sim_config *config, struct death_sim_result *result)
{
    struct event event;
    memset(result, 0, sizeof(*result));
    struct death_sim *sim = sim_new(config, result);
    int64_t end = sim->event_ns + (config->kind == DEATH_SIM_SILENCE ? config->dead_ns : 0) +
                  3 * config->beat_ns;
    int struck = 0;
    while (sim->queue.n > 0 && sim->queue.event[0].at_ns <= end) {
        event_pop(&sim->queue, &event);
        struct node *node = &sim->node[event.rank];
        if (!struck && event.at_ns >= sim->event_ns) {
            struck = 1;
            sim->now = sim->event_ns;
            for (int i = 0; i <= config->also; i++) {
                strike(sim,
                       (node_of(sim, config->rank) + (int)((int64_t)sim->nnodes * i / (config->also + 1))) %
                           sim->nnodes);
            }
        }
        sim->now = event.at_ns;
        result->events++;
        if (event.what == NULL && !node->silent) {
            beat(node);
            event_push(&sim->queue, sim->now + config->beat_ns, node->number, NULL);
        } else if (event.what && !node->silent) {
            handle(node, event.what);
        }
        free(event.what);
    }
    summarise(sim);
    sim_free(sim);
}
