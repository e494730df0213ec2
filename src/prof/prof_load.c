/* Loading profiler plugins, and their contexts. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/param.h"
#include "prof/prof_impl.h"

static const struct rondo_library_kind prof_kind = { "profiler", "RONDO_PROFILER_PLUGIN",
                                                     RONDO_SUBSYS_PROFILE };

/* Of the process. Filled at the first communicator, then constant but for masks. */
static struct {
    pthread_once_t once;
    int n;
    struct rondo_prof_plugin plugin[RONDO_PROF_PLUGINS];
} loaded = { .once = PTHREAD_ONCE_INIT };

void rondo_prof_log(int level, unsigned long subsystems, const char *file, int line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    rondo_library_log(&prof_kind, level, subsystems, file, line, fmt, args);
    va_end(args);
}

/* ---- plugins ---- */

static rondo_status table_check(const struct rondo_prof_plugin *plugin)
{
    const struct rondo_prof_plugin_table *table = plugin->table;
    const char *missing = table->name == NULL || table->name[0] == '\0' ? "name"
                          : table->init.v1 == NULL                      ? "init"
                          : table->start == NULL                        ? "startEvent"
                          : table->stop == NULL                         ? "stopEvent"
                          : table->state == NULL                        ? "recordEventState"
                          : table->finalize == NULL                     ? "finalize"
                                                                        : NULL;
    return missing == NULL ? RONDO_SUCCESS
                           : rondo_fail_quiet(RONDO_INVALID_USAGE, "%s of the profiler plugin %s has no %s",
                                              plugin->version->symbol, plugin->path, missing);
}

static rondo_status table_find(struct rondo_prof_plugin *plugin)
{
    for (int i = 0; i < rondo_prof_num_versions; i++) {
        plugin->table = dlsym(plugin->library, rondo_prof_versions[i].symbol);
        if (plugin->table != NULL) {
            plugin->version = &rondo_prof_versions[i];
            return table_check(plugin);
        }
    }
    return rondo_fail_quiet(
        RONDO_INVALID_USAGE, "%s is not a profiler plugin of a supported version: it has none of %s to %s",
        plugin->path, rondo_prof_versions[rondo_prof_num_versions - 1].symbol, rondo_prof_versions[0].symbol);
}

static rondo_status plugin_load(struct rondo_prof_plugin *plugin, const char *word)
{
    const rondo_prof_clock_fn *clock;
    rondo_status status;
    RONDO_TRY(rondo_library_open(&prof_kind, word, &plugin->library, plugin->path));
    status = table_find(plugin);
    if (status != RONDO_SUCCESS) {
        dlclose(plugin->library);
        return status;
    }
    clock = dlsym(plugin->library, "rondoProfilerClock_v1");
    plugin->clock = clock != NULL ? *clock : NULL;
    rondo_library_text(plugin->name, sizeof(plugin->name), plugin->table->name);
    RONDO_INFO(RONDO_SUBSYS_PROFILE | RONDO_SUBSYS_INIT, "profiler plugin %s (v%d, %s) is loaded",
               plugin->name, plugin->version->version, plugin->path);
    return RONDO_SUCCESS;
}

static void load_named(const char *words)
{
    char *copy, *save = NULL;
    if (rondo_calloc(&copy, 1, strlen(words) + 1, "the names of profiler plugins") != RONDO_SUCCESS) {
        return;
    }
    memcpy(copy, words, strlen(words));
    for (char *word = strtok_r(copy, ", ", &save); word != NULL && strcasecmp(word, "none") != 0;
         word = strtok_r(NULL, ", ", &save)) {
        struct rondo_prof_plugin *plugin = &loaded.plugin[loaded.n];
        if (loaded.n == RONDO_PROF_PLUGINS) {
            RONDO_WARN("RONDO_PROFILER_PLUGIN names more than %d plugins: %s and those after it are not used",
                       (int)RONDO_PROF_PLUGINS, word);
            break;
        }
        if (plugin_load(plugin, word) == RONDO_SUCCESS) {
            loaded.n++;
        } else {
            RONDO_WARN("%s; the job goes on without this plugin", rondo_error_text());
            rondo_error_clear();
            *plugin = (struct rondo_prof_plugin){ .table = NULL };
        }
    }
    rondo_free(copy);
}

/* Without RONDO_PROFILER_PLUGIN, a missing libnccl-profiler.so is no error. */
static void load(void)
{
    const char *words = rondo_params()->profiler_plugin;
    if (words[0] != '\0') {
        load_named(words);
    } else if (plugin_load(&loaded.plugin[0], "libnccl-profiler.so") == RONDO_SUCCESS) {
        loaded.n = 1;
    } else {
        RONDO_TRACE(RONDO_SUBSYS_PROFILE, "%s", rondo_error_text());
        rondo_error_clear();
        loaded.plugin[0] = (struct rondo_prof_plugin){ .table = NULL };
    }
}

/* ---- a communicator ---- */

static void context_add(struct rondo_prof *prof, struct rondo_prof_plugin *plugin)
{
    struct rondo_prof_context *context = &prof->at[prof->n];
    int code;
    if (__atomic_load_n(&plugin->failed, __ATOMIC_RELAXED)) {
        return;
    }
    context->plugin = plugin;
    code = plugin->version->init(plugin->table, context, prof);
    if (code == 0) {
        prof->n++;
        return;
    }
    __atomic_store_n(&plugin->failed, 1, __ATOMIC_RELAXED);
    *context = (struct rondo_prof_context){ .plugin = NULL };
    RONDO_WARN(
        "rank %d on %s: init of the profiler plugin %s (v%d, %s) gave %d (%s): Rondo goes on without it",
        prof->comm.rank, rondo_log_host(), plugin->name, plugin->version->version, plugin->path, code,
        code > 0 && code < RONDO_NUM_STATUSES ? rondo_status_string((rondo_status)code) : "unknown code");
}

void rondo_prof_open(struct rondo_prof **prof, const struct rondo_prof_comm *comm)
{
    struct rondo_prof *made;
    *prof = NULL;
    if (strcasecmp(rondo_params()->profiler_plugin, "none") == 0) {
        return; /* also of a communicator after others that have plugins */
    }
    pthread_once(&loaded.once, load);
    if (loaded.n == 0) {
        return;
    }
    if (RONDO_NEW(made, "a profile") != RONDO_SUCCESS) {
        rondo_error_clear();
        return;
    }
    made->comm = *comm;
    snprintf(made->name, sizeof(made->name), "%s", comm->name);
    made->comm.name = made->name;
    made->holders = 1;
    made->idle = -1;
    pthread_mutex_init(&made->lock, NULL);
    for (int i = 0; i < loaded.n; i++) {
        context_add(made, &loaded.plugin[i]);
    }
    if (made->n == 0) {
        pthread_mutex_destroy(&made->lock);
        rondo_free(made);
        return;
    }
    *prof = made;
}

int rondo_prof_wants_clock(const struct rondo_prof *prof)
{
    int wants = 0;
    for (int i = 0; prof != NULL && i < prof->n; i++) {
        wants |= prof->at[i].plugin->clock != NULL;
    }
    return wants;
}

void rondo_prof_clock(const struct rondo_prof *prof, int rank, int64_t offset_ns, int64_t error_ns)
{
    for (int i = 0; i < prof->n; i++) {
        if (prof->at[i].plugin->clock != NULL) {
            (void)prof->at[i].plugin->clock(prof->at[i].context, rank, offset_ns, error_ns);
        }
    }
}

/* "Coll 12, ProxyOp 48" */
static void counts_text(const struct rondo_prof_context *context, char *text, size_t bytes)
{
#define RONDO_PROF_ROW_(ctx, NAME, name, bit, version) #name,
    static const char *const names[] = { RONDO_PROF_TYPE_TABLE(RONDO_PROF_ROW_, ) };
#undef RONDO_PROF_ROW_
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < RONDO_PROF_NUM_TYPES && at < bytes; i++) {
        if (context->started[i] > 0) {
            at += (size_t)snprintf(text + at, bytes - at, "%s%s %llu", at > 0 ? ", " : "", names[i],
                                   (unsigned long long)context->started[i]);
        }
    }
}

static void context_end(const struct rondo_prof *prof, struct rondo_prof_context *context)
{
    const struct rondo_prof_plugin *plugin = context->plugin;
    char text[256];
    uint64_t started = 0;
    for (int i = 0; i < RONDO_PROF_NUM_TYPES; i++) {
        started += context->started[i];
    }
    counts_text(context, text, sizeof(text));
    RONDO_INFO(RONDO_SUBSYS_PROFILE | RONDO_SUBSYS_DESTROY,
               "profiler plugin %s got %llu events of rank %d in communicator \"%s\"%s%s; %llu ended, and it "
               "declined %llu",
               plugin->name, (unsigned long long)started, prof->comm.rank, prof->name,
               started > 0 ? ": " : "", text, (unsigned long long)context->stopped,
               (unsigned long long)context->declined);
    (void)plugin->table->finalize(context->context);
}

void rondo_prof_close(struct rondo_prof *prof)
{
    if (prof == NULL || __atomic_sub_fetch(&prof->holders, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    for (int i = 0; i < prof->n; i++) {
        context_end(prof, &prof->at[i]);
    }
    rondo_prof_free_objects(prof);
    pthread_mutex_destroy(&prof->lock);
    rondo_free(prof);
}

void rondo_prof_hold(struct rondo_prof *prof) { __atomic_add_fetch(&prof->holders, 1, __ATOMIC_RELAXED); }

void rondo_prof_lock_calls(struct rondo_prof *prof)
{
    if (prof->comm.locks) {
        rondo_prof_lock(prof);
    }
}

void rondo_prof_unlock_calls(struct rondo_prof *prof)
{
    if (prof->comm.locks) {
        rondo_prof_unlock(prof);
    }
}

void rondo_prof_lock(struct rondo_prof *prof) { pthread_mutex_lock(&prof->lock); }

void rondo_prof_unlock(struct rondo_prof *prof) { pthread_mutex_unlock(&prof->lock); }
