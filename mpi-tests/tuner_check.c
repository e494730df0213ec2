/*
 * An NCCL tuner plugin of version VERSION (2 to 6), for tests. TUNER_CHECK says what it does:
 *   "tree ll128 2"   all_reduce takes that algorithm, protocol and number of channels (0: leave it open)
 *   "init", "call"   its init, or every question, gives an error
 * It ends the process if it is called in a way that NCCL would not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/plugin_abi.h"

#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)

enum { SYSTEM_ERROR = 2, CHUNK = 4096 };

static int context_value; /* a context's address */

static void must(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "tuner_check: v%d: %s\n", VERSION, what);
        abort();
    }
}

static const char *wish(void)
{
    const char *text = getenv("TUNER_CHECK");
    return text != NULL ? text : "";
}

static int begin(void **context, size_t nranks, size_t nnodes, rondo_tuner_log_fn log)
{
    must(nranks > 0 && nnodes > 0 && nnodes <= nranks && log != NULL, "init");
    log(3, 1ul << 6, __FILE__, __LINE__, "%zu ranks", nranks);
    *context = &context_value;
    return strcmp(wish(), "init") == 0 ? SYSTEM_ERROR : 0;
}

/* @return 1: *algo, *proto and *nchannels are what all_reduce is to take. */
static int wanted(int func, int *algo, int *proto, int *nchannels)
{
    char a[16] = "", p[16] = "";
    if (func != RONDO_TUNER_ALL_REDUCE || sscanf(wish(), "%15s %15s %d", a, p, nchannels) != 3) {
        return 0;
    }
    *algo = strcmp(a, "tree") == 0 ? RONDO_TUNER_TREE : RONDO_TUNER_RING;
    *proto = strcmp(p, "ll") == 0      ? RONDO_TUNER_LL
             : strcmp(p, "ll128") == 0 ? RONDO_TUNER_LL128
                                       : RONDO_TUNER_SIMPLE;
    return 1;
}

#if VERSION == 2
static int choose(void *context, int func, size_t bytes, int collnet, int nvls, int npipe, int *algo,
                  int *proto, int *nchannels)
{
    int n = 0;
    must(context == &context_value && bytes > 0 && npipe >= 1 && !collnet && !nvls, "getCollInfo");
    if (wanted(func, algo, proto, &n) && n > 0) {
        *nchannels = n;
    }
    return strcmp(wish(), "call") == 0 ? SYSTEM_ERROR : 0;
}
#else
static int edit(void *context, int func, size_t bytes, float **table, int nalgos, int nprotos, int *nchannels)
{
    float(*us)[RONDO_TUNER_PROTOS] = (float(*)[RONDO_TUNER_PROTOS])(void *)table;
    int algo = 0, proto = 0, n = 0;
    must(context == &context_value && bytes > 0 && nalgos == RONDO_TUNER_ALGOS &&
             nprotos == RONDO_TUNER_PROTOS,
         "getCollInfo");
    for (int a = 2; a < nalgos; a++) {
        for (int p = 0; p < nprotos; p++) {
            must(us[a][p] < 0, "an algorithm that only NCCL has can run");
        }
    }
    must(func != RONDO_TUNER_ALL_REDUCE || us[RONDO_TUNER_RING][RONDO_TUNER_SIMPLE] > 0,
         "the ring cannot run");
    if (wanted(func, &algo, &proto, &n)) {
        us[algo][proto] = 0;
        *nchannels = n > 0 ? n : *nchannels;
    }
    return strcmp(wish(), "call") == 0 ? SYSTEM_ERROR : 0;
}
#endif
#if VERSION == 3
static int choose(void *context, int func, size_t bytes, int npipe, float **table, int nalgos, int nprotos,
                  int *nchannels)
{
    must(npipe >= 1, "numPipeOps");
    return edit(context, func, bytes, table, nalgos, nprotos, nchannels);
}
#elif VERSION >= 4
static int choose(void *context, int func, size_t bytes, int npipe, float **table, int nalgos, int nprotos,
                  int registered, int *nchannels)
{
    must(npipe >= 1 && registered == 0, "numPipeOps");
    return edit(context, func, bytes, table, nalgos, nprotos, nchannels);
}
#endif

static int destroy(void *context)
{
    must(context == &context_value, "finalize");
    return 0;
}

#if VERSION >= 5
static int init(void **context, uint64_t comm, size_t nranks, size_t nnodes, rondo_tuner_log_fn log,
                struct rondo_tuner_domains *domains, struct rondo_tuner_constants *constants)
{
    const char *sizes = getenv("TUNER_DOMAINS"); /* "LEAST MOST" ranks of a node */
    int least = domains->least_ranks, most = domains->most_ranks;
    must(sizes == NULL || sscanf(sizes, "%d %d", &least, &most) == 2, "TUNER_DOMAINS");
    must(comm != 0 && domains->n > 0 && domains->least_ranks == least && domains->most_ranks == most &&
             most > 0,
         "domains");
    memset(constants, 0, sizeof *constants); /* all of it is there */
    return begin(context, nranks, nnodes, log);
}
#if VERSION >= 6
static int chunk(void *context, int func, size_t bytes, int algo, int proto, int nchannels, size_t *size)
{
    must(context == &context_value && bytes > 0 && func >= 0 && algo >= 0 && algo <= 1 && proto >= 0 &&
             proto <= 2 && nchannels > 0 && *size > 0,
         "getChunkSize");
    *size = CHUNK;
    return 0;
}
#endif
#define TABLE struct rondo_tuner_v5
#else
static int init(size_t nranks, size_t nnodes, rondo_tuner_log_fn log, void **context)
{
    return begin(context, nranks, nnodes, log);
}
#define TABLE struct rondo_tuner_v2
#endif

__attribute__((visibility("default"))) extern const TABLE GLUE(ncclTunerPlugin_v, VERSION);
const TABLE GLUE(ncclTunerPlugin_v, VERSION) = {
    .name = "check",
    .init = init,
#if VERSION >= 5
    .choose = choose,
#elif VERSION == 4
    .choose.v4 = choose,
#elif VERSION == 3
    .choose.v3 = choose,
#else
    .choose.v2 = choose,
#endif
    .destroy = destroy,
#if VERSION >= 6
    .chunk = chunk,
#endif
};
