/* Slots: a group's communicators, made when they are needed. */
#include <stdio.h>

#include "base/mem.h"
#include "init/engine.h"
#include "pgroup/pgroup.h"

/* ---- finding ---- */

static int is_slot(const struct pg_slot *slot, enum pg_kind kind, int low, int high)
{
    return slot->kind == kind && slot->low == low && slot->high == high;
}

/* The same on all members: they count their slots of host memory and of GPUs apart, and leave the devices'
 * numbers out, which differ. */
static uint64_t tag_of(const struct rondo_pgroup *group, enum pg_kind kind, int device, int low, int high)
{
    uint64_t part[5] = { group->id, kind, device >= 0, (uint64_t)low << 32 | (uint32_t)high, 0 };
    for (const struct pg_slot *s = group->slots; s != NULL; s = s->next) {
        part[4] += is_slot(s, kind, low, high) && (s->device >= 0) == (device >= 0);
    }
    return rondo_hash(part, sizeof(part), 0);
}

/* With the world's lock. @return NULL: there is none */
static struct pg_slot *slot_find(const struct rondo_pgroup *group, enum pg_kind kind, int device, int low,
                                 int high)
{
    struct pg_slot *found = group->slots;
    while (found != NULL && !(is_slot(found, kind, low, high) && found->device == device)) {
        found = found->next;
    }
    return found;
}

/* Opening a GPU may take long, so this is without the world's lock, and nobody knows the slot yet. */
static rondo_status slot_new(struct rondo_pgroup *group, enum pg_kind kind, int device, int low, int high,
                             struct pg_slot **slot)
{
    struct pg_slot *made;
    RONDO_TRY(RONDO_NEW(made, "a communicator of a process group"));
    made->group = group;
    made->kind = kind;
    made->device = device;
    made->low = low;
    made->high = high;
    if (device >= 0) {
        rondo_status status = pg_device_open(device, &made->gpu);
        if (status != RONDO_SUCCESS) {
            rondo_free(made);
            return status;
        }
    }
    pthread_mutex_init(&made->use, NULL);
    *slot = made;
    return RONDO_SUCCESS;
}

rondo_status pg_slot_get(struct rondo_pgroup *group, int device, int peer, struct pg_slot **slot)
{
    enum pg_kind kind = peer < 0 ? PG_ALL : peer == group->rank ? PG_SELF : PG_PAIR;
    int low = kind == PG_ALL ? 0 : peer < group->rank ? peer : group->rank;
    int high = kind == PG_ALL ? 0 : peer < group->rank ? group->rank : peer;
    struct pg_slot *found, *made = NULL;
    pthread_mutex_lock(&group->world->lock);
    found = slot_find(group, kind, device, low, high);
    pthread_mutex_unlock(&group->world->lock);
    if (found == NULL) {
        pg_group_look(group); /* a peer that knows of its end would not come */
        RONDO_TRY(pg_group_check(group, "a call"));
        RONDO_TRY(slot_new(group, kind, device, low, high, &made));
        pthread_mutex_lock(&group->world->lock);
        found = slot_find(group, kind, device, low, high);
        if (found == NULL) { /* else another thread was faster */
            made->tag = tag_of(group, kind, device, low, high);
            made->next = group->slots;
            group->slots = made;
            found = made;
            made = NULL;
        }
        pthread_mutex_unlock(&group->world->lock);
    }
    if (made != NULL) {
        pg_slot_free(made);
    }
    *slot = found;
    return RONDO_SUCCESS;
}

void pg_slot_free(struct pg_slot *slot)
{
    while (slot->spare != NULL) {
        struct rondo_pgroup_work *work = slot->spare;
        slot->spare = work->queued;
        pg_work_memory_free(work);
    }
    pg_device_close(slot->gpu);
    pthread_mutex_destroy(&slot->use);
    rondo_free(slot);
}

/* ---- creation ---- */

/* Note how far the creation is. @return 0: the group has ended, and the communicator has no owner. */
static int note(struct pg_slot *slot, enum pg_slot_state state, rondo_comm *comm)
{
    struct rondo_pgroup *group = slot->group;
    struct pg_world *world = group->world;
    int goes_on;
    pthread_mutex_lock(&world->lock);
    goes_on = group->failure == RONDO_SUCCESS;
    if (goes_on) {
        __atomic_add_fetch(&world->ncreating, (state == PG_CREATING) - (slot->state == PG_CREATING),
                           __ATOMIC_RELEASE);
        slot->comm = comm;
        __atomic_store_n(&slot->state, state, __ATOMIC_RELEASE);
        if (state == PG_CREATING) { /* it looks more often now */
            world->asleep = 0;
            pthread_cond_signal(&world->wake);
        }
    }
    pthread_mutex_unlock(&world->lock);
    return goes_on;
}

static void creation_failed(struct pg_slot *slot, rondo_comm *comm, rondo_status status)
{
    char text[RONDO_ERROR_TEXT];
    snprintf(text, sizeof(text), "%s", rondo_error_text());
    (void)note(slot, PG_FAILED, comm);
    pg_group_end(slot->group, status, text);
}

/* The first message of two GPUs would wait in its call for the peer's: they are connected before. */
static int pairs_gpus(const struct pg_slot *slot) { return slot->gpu != NULL && slot->kind == PG_PAIR; }

static void creation_begin(struct pg_slot *slot)
{
    struct rondo_pgroup *group = slot->group;
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *comm = NULL;
    int members[2] = { group->members[slot->low], group->members[slot->high] };
    rondo_status status;
    config.blocking = 0;
    config.name = group->name;
    config.timeout_ms = config.init_timeout_ms = group->timeout_ms;
    config.device = slot->device >= 0 ? slot->device : RONDO_CONFIG_DEFAULT;
    pthread_mutex_lock(&group->world->step);
    status = slot->kind == PG_ALL
                 ? rondo_engine_among(group->world->root, group->members, group->n, slot->tag, &config, &comm)
                 : rondo_engine_among(group->world->root, members, slot->kind == PG_PAIR ? 2 : 1, slot->tag,
                                      &config, &comm);
    pthread_mutex_unlock(&group->world->step);
    if (status != RONDO_SUCCESS && status != RONDO_IN_PROGRESS) {
        creation_failed(slot, NULL, status);
    } else if (!note(slot, status == RONDO_SUCCESS && !pairs_gpus(slot) ? PG_READY : PG_CREATING, comm)) {
        (void)rondo_comm_abort(comm);
    }
}

static void creation_step(struct pg_slot *slot)
{
    struct pg_world *world = slot->group->world;
    rondo_comm *comm;
    rondo_status error = RONDO_IN_PROGRESS, status;
    pthread_mutex_lock(&world->lock);
    comm = slot->comm; /* another thread may end the group, and abort it */
    pthread_mutex_unlock(&world->lock);
    if (comm == NULL || pthread_mutex_trylock(&world->step) != 0) {
        return;
    }
    status = rondo_comm_async_error(comm, &error);
    pthread_mutex_unlock(&world->step);
    status = status == RONDO_SUCCESS ? error : status;
    if (status == RONDO_SUCCESS && pairs_gpus(slot)) {
        status = rondo_engine_pair(comm);
    }
    if (status == RONDO_SUCCESS) {
        (void)note(slot, PG_READY, comm); /* where the group has ended, it has aborted this one, too */
    } else if (status != RONDO_IN_PROGRESS) {
        creation_failed(slot, comm, status);
    }
}

/* ---- the queue ---- */

static int has_queued(const struct pg_slot *slot, enum rondo_coll direction)
{
    const struct rondo_pgroup_work *work = slot->first;
    while (work != NULL && work->call.coll != direction) {
        work = work->queued;
    }
    return work != NULL;
}

/* May it be issued as soon as its slot is ready? A message to itself waits for its other half. */
static int is_whole(const struct rondo_pgroup_work *work)
{
    return work->slot->kind != PG_SELF ||
           (has_queued(work->slot, RONDO_COLL_SEND) && has_queued(work->slot, RONDO_COLL_RECV));
}

/* The kernels of a stream run in the order of their calls, whatever the order in which communicators are
 * ready: find a work that has to be issued before this one. With the world's lock. */
static struct rondo_pgroup_work *before(const struct rondo_pgroup_work *work)
{
    struct rondo_pgroup_work *w;
    if (work->slot->gpu == NULL) {
        return NULL;
    }
    for (w = work->group->world->open; w != NULL && w != work; w = w->next) {
        if (w->slot != work->slot && w->slot->gpu != NULL && w->slot->device == work->slot->device &&
            w->stream == work->stream && __atomic_load_n(&w->state, __ATOMIC_ACQUIRE) == PG_QUEUED &&
            is_whole(w)) {
            return w;
        }
    }
    return NULL;
}

void pg_work_advance(struct rondo_pgroup_work *work)
{
    struct rondo_pgroup_work *first;
    pthread_mutex_lock(&work->group->world->lock);
    first = before(work);
    if (first != NULL) {
        __atomic_add_fetch(&first->refs, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&work->group->world->lock);
    if (first != NULL) {
        pg_slot_advance(first->slot, 0);
        pg_work_unref(first);
    }
    pg_slot_advance(work->slot, 0);
}

/* Take the first work; of a slot to itself, the first of this direction. */
static struct rondo_pgroup_work *take(struct pg_slot *slot, enum rondo_coll direction, int any)
{
    struct rondo_pgroup_work **at, *work, *last = NULL;
    pthread_mutex_lock(&slot->group->world->lock);
    for (at = &slot->first; (work = *at) != NULL; at = &work->queued) {
        if (any || work->call.coll == direction) {
            if (before(work) != NULL) {
                work = NULL;
                break;
            }
            *at = work->queued;
            work->queued = NULL;
            slot->last = slot->last == work ? last : slot->last;
            break;
        }
        last = work;
    }
    pthread_mutex_unlock(&slot->group->world->lock);
    return work;
}

/* @return 0: the group has ended meanwhile, and with it all works that were in the queue. */
static int put_back(struct pg_slot *slot, struct rondo_pgroup_work *work)
{
    struct rondo_pgroup *group = slot->group;
    int goes_on;
    pthread_mutex_lock(&group->world->lock);
    goes_on = group->failure == RONDO_SUCCESS;
    if (goes_on) {
        work->queued = slot->first;
        slot->first = work;
        slot->last = slot->last == NULL ? work : slot->last;
    }
    pthread_mutex_unlock(&group->world->lock);
    return goes_on;
}

static void issue_queue(struct pg_slot *slot)
{
    struct rondo_pgroup_work *work, *other;
    while ((work = take(slot, RONDO_COLL_SEND, slot->kind != PG_SELF)) != NULL) {
        if (slot->kind != PG_SELF) {
            pg_work_issue(work);
            continue;
        }
        other = take(slot, RONDO_COLL_RECV, 0);
        if (other == NULL) {
            if (!put_back(slot, work)) {
                pg_work_end(work, pg_group_check(slot->group, "a send"));
            }
            return;
        }
        pg_work_issue_both(work, other);
    }
}

void pg_slot_advance(struct pg_slot *slot, int wait)
{
    if (wait) {
        pthread_mutex_lock(&slot->use);
    } else if (pthread_mutex_trylock(&slot->use) != 0) {
        return;
    }
    pg_slot_advance_held(slot);
    pthread_mutex_unlock(&slot->use);
}

void pg_slot_advance_held(struct pg_slot *slot)
{
    switch (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE)) {
    case PG_NONE: creation_begin(slot); break;
    case PG_CREATING: creation_step(slot); break;
    default: break;
    }
    if (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == PG_READY) {
        issue_queue(slot);
    }
}

/* Get slots in a state, at most PG_MOST_POLLED, each with a reference to its group. With the world's lock. */
static int slots_in(const struct pg_world *world, int state, struct pg_slot **slots, int skip)
{
    int n = 0;
    for (struct rondo_pgroup *group = world->groups; group != NULL; group = group->next) {
        for (struct pg_slot *slot = group->slots; slot != NULL && n < PG_MOST_POLLED; slot = slot->next) {
            if (slot->state == state && skip-- <= 0) {
                group->refs++;
                slots[n++] = slot;
            }
        }
    }
    return n;
}

int pg_slots_move(struct pg_world *world)
{
    struct pg_slot *slots[PG_MOST_POLLED];
    int n;
    if (RONDO_LIKELY(__atomic_load_n(&world->ncreating, __ATOMIC_ACQUIRE) == 0)) {
        return 0;
    }
    pthread_mutex_lock(&world->lock);
    n = slots_in(world, PG_CREATING, slots, world->moved);
    world->moved = n == PG_MOST_POLLED ? world->moved + n : 0; /* the others next time */
    pthread_mutex_unlock(&world->lock);
    for (int i = 0; i < n; i++) {
        struct rondo_pgroup *group = slots[i]->group;
        pg_slot_advance(slots[i], 0);
        pg_group_unref(group);
    }
    return 1;
}

static void slot_look(struct pg_slot *slot)
{
    rondo_status status = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == PG_READY
                              ? rondo_engine_check(slot->comm)
                              : RONDO_SUCCESS;
    char text[RONDO_ERROR_TEXT];
    if (status != RONDO_SUCCESS) {
        snprintf(text, sizeof(text), "%s", rondo_error_text());
        pg_group_end(slot->group, status, text);
    }
}

void pg_group_look(struct rondo_pgroup *group)
{
    struct pg_slot *slot;
    pthread_mutex_lock(&group->world->lock);
    slot = group->slots; /* new ones come at the front */
    pthread_mutex_unlock(&group->world->lock);
    for (; slot != NULL; slot = slot->next) {
        slot_look(slot);
    }
}

void pg_slots_look(struct pg_world *world)
{
    struct pg_slot *slots[PG_MOST_POLLED];
    int n;
    pthread_mutex_lock(&world->lock);
    n = slots_in(world, PG_READY, slots, world->looked);
    world->looked = n == PG_MOST_POLLED ? world->looked + n : 0;
    pthread_mutex_unlock(&world->lock);
    for (int i = 0; i < n; i++) {
        struct rondo_pgroup *group = slots[i]->group;
        slot_look(slots[i]);
        pg_group_unref(group);
    }
}

int pg_slot_queue(struct pg_slot *slot, struct rondo_pgroup_work *work)
{
    struct rondo_pgroup *group = slot->group;
    int goes_on;
    pthread_mutex_lock(&group->world->lock);
    goes_on = group->failure == RONDO_SUCCESS;
    if (goes_on && slot->last != NULL) {
        slot->last->queued = work;
        slot->last = work;
    } else if (goes_on) {
        slot->first = slot->last = work;
    }
    pthread_mutex_unlock(&group->world->lock);
    return goes_on;
}
