/* Tuner plugins for NCCL. Contract: tuner/plugin.h. */
#include "tuner/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/library.h"
#include "base/mem.h"
#include "base/param.h"
#include "tuner/plugin_abi.h"

enum { OLDEST = 2, NEWEST = 6, UNKNOWN = -1, SAYS_NOTHING = -1 };

static const struct rondo_library_kind tuner_kind = { "tuner", "RONDO_TUNER_PLUGIN", RONDO_SUBSYS_TUNING };

/* Of the process; constant after the first communicator. */
static struct {
    pthread_once_t once;
    int version; /* 0: none */
    union {
        const struct rondo_tuner_v2 *v2;
        const struct rondo_tuner_v5 *v5;
    } table;
    char text[96 + RONDO_LIBRARY_PATH];
    uint64_t identity;
    int warned; /* that init has failed; atomic */
} used = { .once = PTHREAD_ONCE_INIT };

struct rondo_tuner_plugin {
    void *context;
    int warned;
    struct rondo_tuner_domains domains;
    struct rondo_tuner_constants constants; /* the plugin may keep its address */
};

static void log_line(int level, unsigned long subsystems, const char *file, int line, const char *fmt, ...)
    RONDO_PRINTF(5, 6);
static void log_line(int level, unsigned long subsystems, const char *file, int line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    rondo_library_log(&tuner_kind, level, subsystems, file, line, fmt, args);
    va_end(args);
}

/* ---- loading ---- */

static rondo_status load_word(const char *word)
{
    char symbol[32], path[RONDO_LIBRARY_PATH], name[64];
    void *library;
    RONDO_TRY(rondo_library_open(&tuner_kind, word, &library, path));
    for (int version = NEWEST; version >= OLDEST; version--) {
        snprintf(symbol, sizeof(symbol), "ncclTunerPlugin_v%d", version);
        used.table.v2 = dlsym(library, symbol);
        if (used.table.v2 == NULL) {
            continue;
        }
        if (used.table.v2->init == NULL || used.table.v2->choose.v2 == NULL ||
            used.table.v2->destroy == NULL) {
            dlclose(library);
            return rondo_fail_quiet(RONDO_INVALID_USAGE, "%s of the tuner plugin %s lacks a function", symbol,
                                    path);
        }
        rondo_library_text(name, sizeof(name), used.table.v2->name);
        snprintf(used.text, sizeof(used.text), "%s (v%d, %s)", name, version, path);
        used.version = version;
        used.identity = 1 | rondo_hash(name, strlen(name), (uint64_t)version);
        RONDO_INFO(RONDO_SUBSYS_TUNING | RONDO_SUBSYS_INIT, "tuner plugin %s is loaded", used.text);
        return RONDO_SUCCESS;
    }
    dlclose(library);
    return rondo_fail_quiet(RONDO_INVALID_USAGE,
                            "%s is not a tuner plugin of a supported version: it has none of "
                            "ncclTunerPlugin_v%d to v%d",
                            path, OLDEST, NEWEST);
}

/* Without RONDO_TUNER_PLUGIN, a missing libnccl-tuner.so is no error. */
static void load(void)
{
    const char *word = rondo_params()->tuner_plugin;
    if (strcasecmp(word, "none") == 0) {
        return;
    }
    if (load_word(word[0] != '\0' ? word : "libnccl-tuner.so") != RONDO_SUCCESS) {
        if (word[0] != '\0') {
            RONDO_WARN("%s; the job goes on without it", rondo_error_text());
        }
        rondo_error_clear();
    }
}

void rondo_tuner_plugin_open(struct rondo_tuner_plugin **plugin, uint64_t comm,
                             const struct rondo_layout *layout)
{
    size_t nranks = (size_t)layout->nranks, nnodes = (size_t)layout->nnodes;
    struct rondo_tuner_plugin *made;
    int code;
    *plugin = NULL;
    pthread_once(&used.once, load);
    if (used.version == 0) {
        return;
    }
    if (RONDO_NEW(made, "a context of a tuner plugin") != RONDO_SUCCESS) {
        rondo_error_clear();
        return;
    }
    made->domains = (struct rondo_tuner_domains){ layout->nnodes, layout->min_local, layout->max_local };
    code = used.version < 5 ? used.table.v2->init(nranks, nnodes, log_line, &made->context)
                            : used.table.v5->init(&made->context, comm, nranks, nnodes, log_line,
                                                  &made->domains, &made->constants);
    if (code != 0) {
        if (!__atomic_exchange_n(&used.warned, 1, __ATOMIC_RELAXED)) {
            RONDO_WARN("init of the tuner plugin %s gave %d on %s: Rondo goes on without it", used.text, code,
                       rondo_log_host());
        }
        rondo_free(made);
        return;
    }
    *plugin = made;
}

void rondo_tuner_plugin_close(struct rondo_tuner_plugin *plugin)
{
    if (plugin != NULL) {
        (void)(used.version < 5 ? used.table.v2->destroy : used.table.v5->destroy)(plugin->context);
        rondo_free(plugin);
    }
}

const char *rondo_tuner_plugin_text(const struct rondo_tuner_plugin *plugin)
{
    return plugin != NULL ? used.text : "none";
}

uint64_t rondo_tuner_plugin_identity(const struct rondo_tuner_plugin *plugin)
{
    return plugin != NULL ? used.identity : 0;
}

/* ---- asking ---- */

static int func_of(enum rondo_coll coll)
{
    switch (coll) {
    case RONDO_COLL_BROADCAST: return RONDO_TUNER_BROADCAST;
    case RONDO_COLL_REDUCE: return RONDO_TUNER_REDUCE;
    case RONDO_COLL_ALL_GATHER: return RONDO_TUNER_ALL_GATHER;
    case RONDO_COLL_REDUCE_SCATTER: return RONDO_TUNER_REDUCE_SCATTER;
    case RONDO_COLL_ALL_REDUCE: return RONDO_TUNER_ALL_REDUCE;
    default: return UNKNOWN;
    }
}

static const struct {
    enum rondo_algo ours;
    enum rondo_tuner_algo theirs;
} algos[] = { { RONDO_ALGO_TREE, RONDO_TUNER_TREE }, { RONDO_ALGO_RING, RONDO_TUNER_RING } };
/* Protocols have the same numbers. */
_Static_assert((int)RONDO_PROTO_LL == (int)RONDO_TUNER_LL &&
                   (int)RONDO_PROTO_LL128 == (int)RONDO_TUNER_LL128 &&
                   (int)RONDO_PROTO_SIMPLE == (int)RONDO_TUNER_SIMPLE,
               "numbers of protocols");

/* Version 2 names its choice: as a table it costs nothing. */
static int choose_v2(const struct rondo_tuner_plugin *plugin, int func, size_t bytes,
                     float table[RONDO_TUNER_ALGOS][RONDO_TUNER_PROTOS], int *nchannels)
{
    int algo = SAYS_NOTHING, proto = SAYS_NOTHING;
    int code = used.table.v2->choose.v2(plugin->context, func, bytes, 0, 0, 1, &algo, &proto, nchannels);
    if (code == 0 && algo >= 0 && algo < RONDO_TUNER_ALGOS && proto >= 0 && proto < RONDO_TUNER_PROTOS) {
        table[algo][proto] = 0;
    }
    return code;
}

static int choose(const struct rondo_tuner_plugin *plugin, int func, size_t bytes,
                  float table[RONDO_TUNER_ALGOS][RONDO_TUNER_PROTOS], int *nchannels)
{
    float **rows = (float **)(void *)table; /* as the interface has it: one block, cast */
    switch (used.version) {
    case 2: return choose_v2(plugin, func, bytes, table, nchannels);
    case 3:
        return used.table.v2->choose.v3(plugin->context, func, bytes, 1, rows, RONDO_TUNER_ALGOS,
                                        RONDO_TUNER_PROTOS, nchannels);
    case 4:
        return used.table.v2->choose.v4(plugin->context, func, bytes, 1, rows, RONDO_TUNER_ALGOS,
                                        RONDO_TUNER_PROTOS, 0, nchannels);
    default:
        return used.table.v5->choose(plugin->context, func, bytes, 1, rows, RONDO_TUNER_ALGOS,
                                     RONDO_TUNER_PROTOS, 0, nchannels);
    }
}

/* Take a changed time, and the number of channels if the choice can have it. @return 1: something changed. */
static int take(const struct rondo_layout *layout, struct rondo_choice *choice, float us, int nchannels)
{
    int most = layout->nchannels, changed;
    nchannels = nchannels > most ? most : nchannels;
    changed = us != (float)choice->us || (nchannels > 0 && nchannels != choice->nchannels);
    if (us != (float)choice->us) {
        choice->us = us < 0 ? -1 : (double)us;
    }
    choice->nchannels = nchannels > 0 ? (uint8_t)nchannels : choice->nchannels;
    return changed;
}

int rondo_tuner_plugin_edit(struct rondo_tuner_plugin *plugin, const struct rondo_layout *layout,
                            enum rondo_coll coll, size_t bytes,
                            struct rondo_choice table[RONDO_NUM_ALGOS][RONDO_NUM_PROTOS])
{
    float theirs[RONDO_TUNER_ALGOS][RONDO_TUNER_PROTOS];
    int func = func_of(coll), nchannels = SAYS_NOTHING, changed = 0, code;
    if (func == UNKNOWN) {
        return 0;
    }
    for (int i = 0; i < RONDO_TUNER_ALGOS * RONDO_TUNER_PROTOS; i++) {
        theirs[i / RONDO_TUNER_PROTOS][i % RONDO_TUNER_PROTOS] = -1; /* cannot run */
    }
    for (size_t a = 0; a < RONDO_COUNTOF(algos); a++) {
        for (int p = 0; p < RONDO_TUNER_PROTOS; p++) {
            theirs[algos[a].theirs][p] = table[algos[a].ours][p].us < 0 ? -1
                                                                        : (float)table[algos[a].ours][p].us;
        }
    }
    code = choose(plugin, func, bytes, theirs, &nchannels);
    if (code != 0) {
        if (!plugin->warned) {
            RONDO_WARN("tuner plugin %s gave %d for %s of %zu bytes: the cost model chooses such calls",
                       used.text, code, rondo_coll_name(coll), bytes);
        }
        plugin->warned = 1;
        return 0;
    }
    for (size_t a = 0; a < RONDO_COUNTOF(algos); a++) {
        for (int p = 0; p < RONDO_TUNER_PROTOS; p++) {
            struct rondo_choice *choice = &table[algos[a].ours][p];
            changed |= choice->us >= 0 && take(layout, choice, theirs[algos[a].theirs][p], nchannels);
        }
    }
    for (int i = 0; changed && i < RONDO_NUM_ALGOS * RONDO_NUM_PROTOS; i++) { /* one scale for all */
        table[i / RONDO_NUM_PROTOS][i % RONDO_NUM_PROTOS].measured = 0;
    }
    return changed;
}

size_t rondo_tuner_plugin_chunk(struct rondo_tuner_plugin *plugin, enum rondo_coll coll, size_t bytes,
                                enum rondo_algo algo, enum rondo_proto proto, int nchannels, size_t chunk)
{
    size_t theirs = chunk;
    int func = func_of(coll);
    if (used.version < 6 || used.table.v5->chunk == NULL || func == UNKNOWN ||
        (algo != RONDO_ALGO_TREE && algo != RONDO_ALGO_RING)) {
        return chunk;
    }
    return used.table.v5->chunk(plugin->context, func, bytes,
                                algo == RONDO_ALGO_TREE ? RONDO_TUNER_TREE : RONDO_TUNER_RING, (int)proto,
                                nchannels, &theirs) == 0 &&
                   theirs > 0
               ? theirs
               : chunk;
}
