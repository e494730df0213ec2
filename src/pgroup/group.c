/* Groups and their world: from creation to the end. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/inside.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/wait.h"
#include "call/group.h"
#include "init/engine.h"
#include "net/bootstrap/meeting.h"
#include "pgroup/pgroup.h"

_Static_assert(sizeof(struct rondo_meeting_id) <= sizeof(rondo_pgroup_id), "an id holds a meeting's");

/* ---- memory ---- */

void pg_world_unref(struct pg_world *world)
{
    int last;
    pthread_mutex_lock(&world->lock);
    last = --world->refs == 0;
    pthread_mutex_unlock(&world->lock);
    if (last) {
        pthread_cond_destroy(&world->wake);
        pthread_mutex_destroy(&world->step);
        pthread_mutex_destroy(&world->lock);
        rondo_free(world);
    }
}

static void group_free(struct rondo_pgroup *group)
{
    struct pg_world *world = group->world;
    while (group->slots != NULL) {
        struct pg_slot *slot = group->slots;
        group->slots = slot->next;
        pg_slot_free(slot);
    }
    rondo_free(group->batch.calls);
    rondo_free(group->children);
    rondo_free(group->members);
    rondo_free(group);
    pg_world_unref(world);
}

void pg_group_unref(struct rondo_pgroup *group)
{
    struct pg_world *world = group->world;
    int last;
    pthread_mutex_lock(&world->lock);
    last = --group->refs == 0;
    pthread_mutex_unlock(&world->lock);
    if (last) {
        group_free(group);
    }
}

/* ---- settings ---- */

static rondo_status config_read(const char *call, const rondo_pgroup_config *config,
                                rondo_pgroup_config *mine)
{
    rondo_pgroup_config defaults = RONDO_PGROUP_CONFIG_INIT;
    *mine = defaults;
    RONDO_TRY(rondo_param_init());
    if (config == NULL) {
        return RONDO_SUCCESS;
    }
    if (config->size < offsetof(rondo_pgroup_config, on_error) || config->size > 4096) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s: the config's size is %zu: start from RONDO_PGROUP_CONFIG_INIT", call,
                          config->size);
    }
    memcpy(mine, config, config->size < sizeof(*mine) ? config->size : sizeof(*mine));
    if (mine->timeout_ms < RONDO_CONFIG_DEFAULT || (mine->watchdog != 0 && mine->watchdog != 1)) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s: config.timeout_ms is %lld, config.watchdog %d: give 0 or more, or "
                          "RONDO_CONFIG_DEFAULT; and 0 or 1",
                          call, (long long)mine->timeout_ms, mine->watchdog);
    }
    return RONDO_SUCCESS;
}

static int64_t limit_of(const rondo_pgroup_config *config)
{
    return config->timeout_ms != RONDO_CONFIG_DEFAULT ? config->timeout_ms
                                                      : rondo_params()->pgroup_timeout / RONDO_NS_PER_MS;
}

static rondo_status no_place(const char *call)
{
    return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: the place for the group is NULL", call);
}

/* ---- making ---- */

/* Make a group that nobody else knows yet. It takes `members` over, and a reference to the world. */
static rondo_status group_make(struct pg_world *world, int *members, int n, int rank,
                               const rondo_pgroup_config *config, struct rondo_pgroup **group)
{
    struct rondo_pgroup *made = NULL;
    rondo_status status = RONDO_NEW(made, "a process group");
    int device = -1;
    if (status == RONDO_SUCCESS) {
        status = pg_device_number(config->device, &device);
    }
    if (status != RONDO_SUCCESS) {
        rondo_free(members);
        rondo_free(made);
        return status;
    }
    made->world = world;
    made->refs = 1;
    made->members = members;
    made->n = n;
    made->rank = rank;
    made->device = device;
    made->on_error = config->on_error;
    made->arg = config->arg;
    made->timeout_ms = limit_of(config);
    *group = made;
    return RONDO_SUCCESS;
}

static void group_publish(struct rondo_pgroup *group)
{
    struct pg_world *world = group->world;
    pthread_mutex_lock(&world->lock);
    world->refs++;
    group->next = world->groups;
    world->groups = group;
    pthread_mutex_unlock(&world->lock);
}

static rondo_status identity(int n, int **members)
{
    RONDO_TRY(RONDO_NEW_ARRAY(*members, n, "the members of a process group"));
    for (int r = 0; r < n; r++) {
        (*members)[r] = r;
    }
    return RONDO_SUCCESS;
}

static rondo_status world_new(rondo_comm *root, struct pg_world **world)
{
    pthread_condattr_t monotonic;
    struct pg_world *made;
    RONDO_TRY(RONDO_NEW(made, "the world of process groups"));
    pthread_mutex_init(&made->lock, NULL);
    pthread_mutex_init(&made->step, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&made->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    made->root = root;
    made->refs = 1;
    made->pid = getpid();
    *world = made;
    return RONDO_SUCCESS;
}

/* The default group of a communicator of host memory, which becomes the world's. */
static rondo_status create(const char *call, rondo_comm *root, const rondo_pgroup_config *config,
                           struct rondo_pgroup **group)
{
    struct pg_world *world;
    struct rondo_pgroup *made = NULL;
    int *members, n, rank, device;
    rondo_status status, error;
    RONDO_TRY(rondo_comm_count(root, &n));
    RONDO_TRY(rondo_comm_rank(root, &rank));
    RONDO_TRY(rondo_comm_device(root, &device));
    RONDO_TRY(rondo_comm_async_error(root, &error));
    if (error != RONDO_SUCCESS) {
        return rondo_fail(
            RONDO_INVALID_USAGE, "%s: the communicator %s", call,
            error == RONDO_IN_PROGRESS
                ? "is still being created or ended: ask rondo_comm_async_error until it is ready"
                : "has failed or ended: give one that works");
    }
    if (n == 0) {
        return rondo_fail(RONDO_INVALID_USAGE,
                          "%s: the communicator has no ranks, as its split had no colour here: destroy it",
                          call);
    }
    if (device >= 0) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s: the communicator is of GPU %d: give one of host memory; the groups' own ones "
                          "are of GPUs where config.device says so",
                          call, device);
    }
    RONDO_TRY(world_new(root, &world));
    status = identity(n, &members);
    if (status == RONDO_SUCCESS) {
        status = group_make(world, members, n, rank, config, &made);
    }
    if (status == RONDO_SUCCESS) {
        snprintf(made->name, sizeof(made->name), "%s", config->name != NULL ? config->name : "world");
        group_publish(made);
        status = config->watchdog ? pg_watchdog_start(world) : RONDO_SUCCESS;
        if (status != RONDO_SUCCESS) {
            pg_group_unref(made);
        }
    }
    pg_world_unref(world);
    if (status == RONDO_SUCCESS) {
        *group = made;
    }
    return status;
}

rondo_status rondo_pgroup_create(rondo_comm *comm, const rondo_pgroup_config *config, rondo_pgroup **group)
{
    rondo_pgroup_config mine;
    if (group == NULL) {
        return no_place("rondo_pgroup_create");
    }
    RONDO_TRY(config_read("rondo_pgroup_create", config, &mine));
    return create("rondo_pgroup_create", comm, &mine, group);
}

rondo_status rondo_pgroup_id_create(rondo_pgroup_id *id)
{
    struct rondo_meeting_id made;
    if (id == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_pgroup_id_create: the place for the id is NULL");
    }
    RONDO_TRY(rondo_meeting_create(&made));
    memset(id, 0, sizeof(*id));
    memcpy(id->bytes, &made, sizeof(made));
    return RONDO_SUCCESS;
}

rondo_status rondo_pgroup_create_id(const rondo_pgroup_id *id, int rank, int nranks,
                                    const rondo_pgroup_config *config, rondo_pgroup **group)
{
    struct rondo_meeting_id meeting;
    struct rondo_bootstrap *bootstrap;
    rondo_config root = RONDO_CONFIG_INIT;
    rondo_pgroup_config mine;
    rondo_comm *comm;
    rondo_status status;
    if (group == NULL || id == NULL) {
        return group == NULL ? no_place("rondo_pgroup_create_id")
                             : rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_pgroup_create_id: the id is NULL");
    }
    RONDO_TRY(config_read("rondo_pgroup_create_id", config, &mine));
    memcpy(&meeting, id->bytes, sizeof(meeting));
    RONDO_TRY(rondo_bootstrap_meeting(&meeting, rank, nranks, &bootstrap));
    root.name = mine.name;
    root.init_timeout_ms = limit_of(&mine);
    RONDO_TRY(rondo_engine_create(bootstrap, &root, &comm));
    status = create("rondo_pgroup_create_id", comm, &mine, group);
    if (status != RONDO_SUCCESS) {
        (void)rondo_comm_abort(comm);
    }
    return status;
}

/* ---- groups of a group ---- */

/* Count the groups of these members. With the world's lock. */
static rondo_status child_serial(struct rondo_pgroup *parent, uint64_t hash, uint64_t *serial)
{
    struct pg_children *known = parent->children, *grown;
    while (known < parent->children + parent->nchildren && known->members != hash) {
        known++;
    }
    if (known == parent->children + parent->nchildren) {
        RONDO_TRY(RONDO_NEW_ARRAY(grown, parent->nchildren + 1, "the groups of a process group"));
        if (parent->nchildren > 0) {
            memcpy(grown, parent->children, sizeof(*grown) * (size_t)parent->nchildren);
        }
        known = grown + parent->nchildren++;
        known->members = hash;
        rondo_free(parent->children);
        parent->children = grown;
    }
    *serial = ++known->n;
    return RONDO_SUCCESS;
}

/* Translate ranks of the parent into ranks of root, and find this one. */
static rondo_status members_of(const struct rondo_pgroup *parent, const int *ranks, int n, int **members,
                               int *self)
{
    int *made = NULL;
    char *seen;
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY(RONDO_NEW_ARRAY(seen, parent->n, "the ranks of a process group"));
    status = RONDO_NEW_ARRAY(made, n, "the members of a process group");
    *self = -1;
    for (int i = 0; i < n && status == RONDO_SUCCESS; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->n || seen[ranks[i]]) {
            status = rondo_fail(
                RONDO_INVALID_ARGUMENT, "rondo_pgroup_new on rank %d of group \"%s\": rank %d of the list %s",
                parent->rank, parent->name, ranks[i],
                ranks[i] < 0 || ranks[i] >= parent->n ? "is not in the group" : "comes twice");
            break;
        }
        seen[ranks[i]] = 1;
        *self = ranks[i] == parent->rank ? i : *self;
        made[i] = parent->members[ranks[i]];
    }
    if (status == RONDO_SUCCESS && *self < 0) {
        status = rondo_fail(RONDO_INVALID_ARGUMENT,
                            "rondo_pgroup_new on rank %d of group \"%s\": the list of %d ranks does not name "
                            "this rank: only members make a group",
                            parent->rank, parent->name, n);
    }
    rondo_free(seen);
    if (status != RONDO_SUCCESS) {
        rondo_free(made);
        return status;
    }
    *members = made;
    return RONDO_SUCCESS;
}

static rondo_status name_child(struct rondo_pgroup *parent, struct rondo_pgroup *made, const char *name)
{
    struct {
        uint64_t parent, members, serial;
    } key = { parent->id, 0, 0 };
    rondo_status status;
    int number = 0;
    key.members = rondo_hash(made->members, sizeof(*made->members) * (size_t)made->n, 1);
    pthread_mutex_lock(&parent->world->lock);
    status = child_serial(parent, key.members, &key.serial);
    for (int i = 0; i < parent->nchildren; i++) {
        number += (int)parent->children[i].n;
    }
    pthread_mutex_unlock(&parent->world->lock);
    made->id = rondo_hash(&key, sizeof(key), 0);
    if (name != NULL) {
        snprintf(made->name, sizeof(made->name), "%s", name);
    } else {
        snprintf(made->name, sizeof(made->name), "%.24s.%d", parent->name, number);
    }
    return status;
}

rondo_status rondo_pgroup_new(rondo_pgroup *parent, const int *ranks, int n,
                              const rondo_pgroup_config *config, rondo_pgroup **group)
{
    struct rondo_pgroup *made;
    rondo_pgroup_config mine;
    int *members, self;
    rondo_status status;
    RONDO_TRY(pg_group_check(parent, "rondo_pgroup_new"));
    if (group == NULL || ranks == NULL || n < 1 || n > parent->n) {
        return group == NULL ? no_place("rondo_pgroup_new")
                             : rondo_fail(RONDO_INVALID_ARGUMENT,
                                          "rondo_pgroup_new: a list of %d ranks at %p; group \"%s\" has %d",
                                          n, (const void *)ranks, parent->name, parent->n);
    }
    RONDO_TRY(config_read("rondo_pgroup_new", config, &mine));
    mine.device = mine.device == RONDO_CONFIG_DEFAULT ? parent->device : mine.device;
    mine.timeout_ms = mine.timeout_ms == RONDO_CONFIG_DEFAULT ? parent->timeout_ms : mine.timeout_ms;
    RONDO_TRY(members_of(parent, ranks, n, &members, &self));
    RONDO_TRY(group_make(parent->world, members, n, self, &mine, &made));
    status = name_child(parent, made, mine.name);
    group_publish(made);
    if (status != RONDO_SUCCESS) {
        (void)rondo_pgroup_destroy(made);
        return status;
    }
    *group = made;
    return RONDO_SUCCESS;
}

struct place {
    int color, key, rank;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int by_key = (x->key > y->key) - (x->key < y->key);
    return by_key != 0 ? by_key : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Make the group of this rank's colour, from the places of all ranks. */
static rondo_status split_by(struct rondo_pgroup *parent, struct place *all, int color,
                             const rondo_pgroup_config *config, rondo_pgroup **group)
{
    int n = 0, *ranks;
    rondo_status status;
    for (int r = 0; r < parent->n; r++) {
        if (all[r].color == color) {
            all[n++] = all[r];
        }
    }
    qsort(all, (size_t)n, sizeof(*all), compare_places);
    RONDO_TRY(RONDO_NEW_ARRAY(ranks, n, "the ranks of a split"));
    for (int i = 0; i < n; i++) {
        ranks[i] = all[i].rank;
    }
    status = rondo_pgroup_new(parent, ranks, n, config, group);
    rondo_free(ranks);
    return status;
}

rondo_status rondo_pgroup_split(rondo_pgroup *parent, int color, int key, const rondo_pgroup_config *config,
                                rondo_pgroup **group)
{
    rondo_pgroup_opts host = RONDO_PGROUP_OPTS_INIT;
    struct place *all;
    rondo_status status;
    RONDO_TRY(pg_group_check(parent, "rondo_pgroup_split"));
    if (group == NULL || color < RONDO_SPLIT_NOCOLOR) {
        return group == NULL ? no_place("rondo_pgroup_split")
                             : rondo_fail(RONDO_INVALID_ARGUMENT,
                                          "rondo_pgroup_split on rank %d: colour %d: give 0 or more, or "
                                          "RONDO_SPLIT_NOCOLOR",
                                          parent->rank, color);
    }
    host.device = -1;
    RONDO_TRY(RONDO_NEW_ARRAY(all, parent->n, "the colours of a split"));
    all[parent->rank] = (struct place){ color, key, parent->rank };
    status = rondo_pgroup_all_gather(parent, &all[parent->rank], all, sizeof(*all), RONDO_UINT8, &host, NULL);
    if (status == RONDO_SUCCESS && color != RONDO_SPLIT_NOCOLOR) {
        status = split_by(parent, all, color, config, group);
    } else if (status == RONDO_SUCCESS) {
        *group = NULL;
    }
    rondo_free(all);
    return status;
}

/* ---- the end ---- */

/* The locks of a parent may be held for ever. */
static rondo_status check_process(const struct rondo_pgroup *group, const char *call)
{
    return group->world->pid == getpid()
               ? RONDO_SUCCESS
               : rondo_fail(RONDO_INVALID_USAGE,
                            "%s: this process is a forked child, and the group belongs to its parent", call);
}

rondo_status pg_group_check(struct rondo_pgroup *group, const char *call)
{
    rondo_status failure;
    char text[RONDO_ERROR_TEXT];
    if (group == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: the group is NULL", call);
    }
    RONDO_TRY(check_process(group, call));
    pthread_mutex_lock(&group->world->lock);
    failure = group->failure;
    if (RONDO_UNLIKELY(failure != RONDO_SUCCESS)) {
        snprintf(text, sizeof(text), "%s", group->failure_text);
    }
    pthread_mutex_unlock(&group->world->lock);
    return RONDO_LIKELY(failure == RONDO_SUCCESS) ? RONDO_SUCCESS : rondo_fail_quiet(failure, "%s", text);
}

rondo_status pg_outside_groups(const char *call)
{
    RONDO_TRY(rondo_inside_check(call));
    return rondo_group_depth() == 0
               ? RONDO_SUCCESS
               : rondo_fail(RONDO_INVALID_USAGE,
                            "%s of a process group inside rondo_group_start: call it after rondo_group_end; "
                            "calls that belong together go between rondo_pgroup_batch_start and _end",
                            call);
}

/* End a slot's communicator, and take its queue. With the world's lock, which it gives back meanwhile. */
static void slot_end(struct pg_slot *slot, rondo_status status, const char *text)
{
    struct pg_world *world = slot->group->world;
    struct rondo_pgroup_work *queue = slot->first;
    rondo_comm *comm = slot->comm;
    int state = slot->state;
    slot->first = slot->last = NULL;
    for (struct rondo_pgroup_work *work = queue; work != NULL; work = work->queued) {
        __atomic_add_fetch(&work->refs, 1, __ATOMIC_RELAXED); /* the group may be destroyed meanwhile */
    }
    if (state != PG_READY) {
        __atomic_sub_fetch(&world->ncreating, state == PG_CREATING, __ATOMIC_RELEASE);
        __atomic_store_n(&slot->state, PG_FAILED, __ATOMIC_RELEASE);
        slot->comm = state == PG_CREATING ? NULL : comm; /* it is aborted here */
    }
    pthread_mutex_unlock(&world->lock);
    if (state == PG_READY) {
        rondo_engine_end(comm, status, text);
    } else if (state == PG_CREATING) {
        (void)rondo_comm_abort(comm);
    }
    while (queue != NULL) {
        struct rondo_pgroup_work *work = queue;
        queue = work->queued;
        work->queued = NULL;
        pg_work_end(work, status);
        pg_work_unref(work);
    }
    pthread_mutex_lock(&world->lock);
}

void pg_group_end(struct rondo_pgroup *group, rondo_status status, const char *text)
{
    struct pg_world *world = group->world;
    pthread_mutex_lock(&world->lock);
    if (group->failure == RONDO_SUCCESS) {
        snprintf(group->failure_text, sizeof(group->failure_text), "%s", text);
        group->failure = status;
        /* New slots come at the front, and have nothing to end: their works see the failure. */
        for (struct pg_slot *slot = group->slots; slot != NULL; slot = slot->next) {
            slot_end(slot, status, group->failure_text);
        }
        if (world->asleep) {
            world->asleep = 0;
            pthread_cond_signal(&world->wake);
        }
    }
    pthread_mutex_unlock(&world->lock);
}

rondo_status rondo_pgroup_abort(rondo_pgroup *group)
{
    char text[RONDO_ERROR_TEXT];
    if (group == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_pgroup_abort: the group is NULL");
    }
    RONDO_TRY(rondo_inside_check("rondo_pgroup_abort"));
    RONDO_TRY(check_process(group, "rondo_pgroup_abort"));
    snprintf(text, sizeof(text), "rank %d on %s aborted the process group \"%s\"", group->rank,
             rondo_log_host(), group->name);
    pthread_mutex_lock(&group->world->lock);
    group->told = 1; /* the caller knows */
    pthread_mutex_unlock(&group->world->lock);
    pg_group_end(group, RONDO_REMOTE_ERROR, text);
    return RONDO_SUCCESS;
}

/* Find an open work of the group that this thread may wait for, with a reference. */
static struct rondo_pgroup_work *open_work(struct rondo_pgroup *group)
{
    struct rondo_pgroup_work *work;
    pthread_mutex_lock(&group->world->lock);
    for (work = group->world->open; work != NULL; work = work->next) {
        if (work->group == group && __atomic_load_n(&work->state, __ATOMIC_ACQUIRE) != PG_RUNS) {
            __atomic_add_fetch(&work->refs, 1, __ATOMIC_RELAXED);
            break;
        }
    }
    pthread_mutex_unlock(&group->world->lock);
    return work;
}

static rondo_status finish_works(struct rondo_pgroup *group)
{
    rondo_status first = RONDO_SUCCESS, status;
    struct rondo_pgroup_work *work;
    while ((work = open_work(group)) != NULL) {
        status = pg_work_wait(work, RONDO_CONFIG_DEFAULT, 0);
        first = first == RONDO_SUCCESS ? status : first;
        pg_work_unref(work);
    }
    return first;
}

static void close_slots(struct rondo_pgroup *group, int failed)
{
    for (struct pg_slot *slot = group->slots; slot != NULL; slot = slot->next) {
        rondo_comm *comm;
        pthread_mutex_lock(&group->world->lock);
        comm = slot->comm;
        slot->first = slot->last = NULL; /* those of a group that has ended: destroy ends them */
        __atomic_sub_fetch(&group->world->ncreating, slot->state == PG_CREATING, __ATOMIC_RELEASE);
        __atomic_store_n(&slot->state, PG_FAILED, __ATOMIC_RELEASE);
        pthread_mutex_unlock(&group->world->lock);
        if (comm != NULL) {
            (void)(failed ? rondo_comm_abort(comm) : rondo_comm_destroy(comm));
        }
        pthread_mutex_lock(&slot->use); /* nobody issues its works any more */
        pthread_mutex_unlock(&slot->use);
    }
}

rondo_status rondo_pgroup_destroy(rondo_pgroup *group)
{
    struct pg_world *world;
    struct rondo_pgroup_work *work;
    rondo_status status = RONDO_SUCCESS;
    int failed, last;
    if (group == NULL || group->world->pid != getpid()) {
        return pg_group_check(group, "rondo_pgroup_destroy");
    }
    RONDO_TRY(pg_outside_groups("rondo_pgroup_destroy"));
    world = group->world;
    failed = pg_group_check(group, "rondo_pgroup_destroy") != RONDO_SUCCESS;
    if (!failed) {
        status = finish_works(group);
        failed = pg_group_check(group, "rondo_pgroup_destroy") != RONDO_SUCCESS;
    }
    close_slots(group, failed);
    while ((work = open_work(group)) != NULL) { /* of a group that has ended: their communicators are gone */
        (void)pg_work_poll(work);
        pg_work_end(work, rondo_fail_quiet(RONDO_INVALID_USAGE, "the process group \"%s\" was destroyed",
                                           group->name));
        pg_work_unref(work);
    }
    pthread_mutex_lock(&world->lock);
    for (struct rondo_pgroup **at = &world->groups; *at != NULL; at = &(*at)->next) {
        if (*at == group) {
            *at = group->next;
            break;
        }
    }
    last = world->groups == NULL;
    world->refs += last;
    while (world->telling == group && !pthread_equal(world->thread, pthread_self())) {
        pthread_cond_wait(&world->wake, &world->lock); /* then nobody uses on_error's arg any more */
    }
    pthread_mutex_unlock(&world->lock);
    pg_group_unref(group);
    if (last) {
        pg_watchdog_stop(world);
        (void)rondo_comm_destroy(world->root);
        pg_world_unref(world);
    }
    return status;
}

/* ---- queries ---- */

static rondo_status group_or(const struct rondo_pgroup *group, const void *place, const char *call)
{
    return group != NULL && place != NULL
               ? RONDO_SUCCESS
               : rondo_fail(RONDO_INVALID_ARGUMENT, "%s: the group or the place for the answer is NULL",
                            call);
}

rondo_status rondo_pgroup_rank(const rondo_pgroup *group, int *rank)
{
    RONDO_TRY(group_or(group, rank, "rondo_pgroup_rank"));
    *rank = group->rank;
    return RONDO_SUCCESS;
}

rondo_status rondo_pgroup_count(const rondo_pgroup *group, int *count)
{
    RONDO_TRY(group_or(group, count, "rondo_pgroup_count"));
    *count = group->n;
    return RONDO_SUCCESS;
}

rondo_status rondo_pgroup_sequence(rondo_pgroup *group, uint64_t *sequence)
{
    RONDO_TRY(group_or(group, sequence, "rondo_pgroup_sequence"));
    RONDO_TRY(check_process(group, "rondo_pgroup_sequence"));
    pthread_mutex_lock(&group->world->lock);
    *sequence = group->sequence;
    pthread_mutex_unlock(&group->world->lock);
    return RONDO_SUCCESS;
}

rondo_status rondo_pgroup_error(rondo_pgroup *group, rondo_status *error)
{
    RONDO_TRY(group_or(group, error, "rondo_pgroup_error"));
    RONDO_TRY(check_process(group, "rondo_pgroup_error"));
    if (!rondo_is_inside_call()) { /* it may end communicators */
        pg_group_look(group);
    }
    *error = pg_group_check(group, "rondo_pgroup_error");
    return RONDO_SUCCESS;
}
