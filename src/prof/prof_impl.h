/* Shared by prof_load.c (plugins and contexts), prof_event.c (one event for all plugins) and prof.c (the
 * objects of a communicator). */
#ifndef RONDO_PROF_PROF_IMPL_H
#define RONDO_PROF_PROF_IMPL_H

#include <pthread.h>

#include "base/library.h"
#include "prof/prof.h"

enum { RONDO_PROF_PLUGINS = 8 /* most plugins at once */ };

struct rondo_prof_version;

/* A plugin in the process. Never unloaded: threads of it may run until the end. */
struct rondo_prof_plugin {
    const struct rondo_prof_plugin_table *table;
    const struct rondo_prof_version *version;
    rondo_prof_clock_fn clock; /* NULL: it does not ask */
    void *library;
    int mask;   /* the plugin keeps its address and may change it; atomic */
    int failed; /* an init failed: later communicators do without it; atomic */
    char name[64], path[RONDO_LIBRARY_PATH];
};

/* A plugin's part of a communicator. */
struct rondo_prof_context {
    struct rondo_prof_plugin *plugin;
    void *context;
    uint64_t started[RONDO_PROF_NUM_TYPES], stopped; /* events that it has a handle for */
    uint64_t declined;                               /* events for which it gave none */
};

struct rondo_prof {
    struct rondo_prof_comm comm;
    char name[128];
    int n;
    struct rondo_prof_context at[RONDO_PROF_PLUGINS];
    int holders;                      /* rondo_prof_hold; atomic */
    int idle;                         /* told last: 1, 0, -1: nothing */
    int shared;                       /* threads of net devices may tell, too (prof_net.c) */
    struct rondo_prof_run *free_runs; /* for later calls, as those below */
    struct rondo_prof_call *free_calls;
    struct rondo_prof_group *free_groups;
    pthread_mutex_t lock;
};

/* An event: its handle in each plugin, NULL: it has none there. A handle stays the parent of later events
 * after the event's stop. */
struct rondo_prof_event {
    void *handle[RONDO_PROF_PLUGINS];
    uint32_t open; /* 1 << plugin that has not got the stop */
};

/* What of an event's meaning older versions have, and newer do not. */
struct rondo_prof_extra {
    size_t traffic_bytes;
    uint32_t op;
    uint8_t func, datatype, algo, proto;
};

/* How to speak to one version of the interface. */
struct rondo_prof_version {
    int version;
    const char *symbol;
    int mask; /* events that it has */
    int (*init)(const struct rondo_prof_plugin_table *table, struct rondo_prof_context *context,
                const struct rondo_prof *prof);
    int (*start)(const struct rondo_prof *prof, const struct rondo_prof_context *context, void **handle,
                 struct rondo_prof_descr_v4 *descr, const struct rondo_prof_extra *extra);
};
extern const struct rondo_prof_version rondo_prof_versions[]; /* newest first */
extern const int rondo_prof_num_versions;

/** Free the objects that prof keeps for later calls. (prof.c) */
void rondo_prof_free_objects(struct rondo_prof *prof);
/** The log function of profiler plugins. */
void rondo_prof_log(int level, unsigned long subsystems, const char *file, int line, const char *fmt, ...)
    RONDO_PRINTF(5, 6);

/** The events that a plugin gets now: those of its mask and their parents, as far as its version has them. */
int rondo_prof_mask(const struct rondo_prof_plugin *plugin);
/** Start an event in each plugin whose mask has its type. descr->parent is not looked at. parents: of each
 * plugin; NULL: none. groups: the Group of each plugin, for Coll and P2p. */
void rondo_prof_start(struct rondo_prof *prof, const int *masks, struct rondo_prof_event *event,
                      struct rondo_prof_descr_v4 *descr, const struct rondo_prof_extra *extra,
                      const struct rondo_prof_event *parents, const struct rondo_prof_event *groups);
void rondo_prof_stop(struct rondo_prof *prof, struct rondo_prof_event *event);
/** Record a state in plugins from version `first` to `last`; args: of those versions. */
void rondo_prof_state(struct rondo_prof *prof, const struct rondo_prof_event *event, int first, int last,
                      enum rondo_prof_state state, void *args);

/* ---- prof_net.c ---- */

/** Calls into plugins are made one after the other where prof->shared. */
void rondo_prof_calls_lock(void);
void rondo_prof_calls_unlock(void);
/** As rondo_prof_start and so on, with that lock held. (prof_event.c) */
void rondo_prof_start_locked(struct rondo_prof *prof, const int *masks, struct rondo_prof_event *event,
                             struct rondo_prof_descr_v4 *descr, const struct rondo_prof_extra *extra,
                             const struct rondo_prof_event *parents, const struct rondo_prof_event *groups);
void rondo_prof_stop_locked(struct rondo_prof *prof, struct rondo_prof_event *event);
void rondo_prof_state_locked(struct rondo_prof *prof, const struct rondo_prof_event *event, int first,
                             int last, enum rondo_prof_state state, void *args);
/** A step that net devices may give events to; NULL: there is no memory. */
void *rondo_prof_ticket_take(struct rondo_prof *prof, const int *masks, const struct rondo_prof_event *step);
/** The step ends: first its events do. NULL is none. */
void rondo_prof_ticket_give(void *ticket);

#endif
