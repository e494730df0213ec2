/* The net transport over devices that take registered memory: slices leave from user memory and arrive
 * there. Contract: net/transport/transport_net.h. */
#include <string.h>

#include "base/heap.h"
#include "base/log.h"
#include "net/transport/transport_net.h"

/* Shorter slices are copied: looking up the region and sending two pieces costs as much. */
enum { LEAST = 4096 };

enum { NONE = -1 };

/* ---- regions that the device knows ---- */

static void range_end(struct rondo_net_end *end, struct rondo_net_range *range)
{
    if (range->region != NULL) {
        (void)end->device->unreg(end->comm, range->region);
    }
    *range = (struct rondo_net_range){ 0 };
}

/* Find an unused range. */
static int range_free(const struct rondo_net_user *user)
{
    int at = NONE;
    for (int i = 0; i < RONDO_NET_RANGES; i++) {
        if (user->range[i].id == 0) {
            return i;
        }
        if (user->range[i].uses == 0 && (at == NONE || user->range[i].used < user->range[at].used)) {
            at = i; /* unused for the longest time */
        }
    }
    return at;
}

/* @return the range that holds this memory, or NONE: it is not registered, or the device refuses it. */
static int range_find(struct rondo_net_end *end, const uint8_t *at, size_t bytes)
{
    struct rondo_net_user *user = &end->user;
    struct rondo_region region;
    int i = 0;
    while (i < RONDO_NET_RANGES &&
           (at < user->range[i].base || (size_t)(at - user->range[i].base) > user->range[i].bytes ||
            bytes > user->range[i].bytes - (size_t)(at - user->range[i].base))) {
        i++;
    }
    if (i == RONDO_NET_RANGES) {
        i = rondo_region_find(at, bytes, &region) ? range_free(user) : NONE;
        if (i == NONE) {
            return NONE;
        }
        range_end(end, &user->range[i]);
        user->range[i] =
            (struct rondo_net_range){ .id = region.id, .base = region.base, .bytes = region.bytes };
        /* The error has been logged; no end tries again. */
        if (end->owner->refused != region.id &&
            end->device->reg(end->comm, region.base, region.bytes, RONDO_NET_HOST, -1,
                             &user->range[i].region) != RONDO_SUCCESS) {
            end->owner->refused = region.id;
        }
    }
    user->range[i].used = end->posted;
    return user->range[i].region != NULL ? i : NONE;
}

int rondo_net_user_look(struct rondo_net_end *end)
{
    int all = 1;
    for (int i = 0; i < RONDO_NET_RANGES; i++) {
        struct rondo_net_range *range = &end->user.range[i];
        struct rondo_region region;
        if (range->id != 0 &&
            (!rondo_region_find(range->base, range->bytes, &region) || region.id != range->id)) {
            if (range->uses == 0) {
                range_end(end, range);
            }
            all &= range->id == 0;
        }
    }
    return all;
}

void rondo_net_user_close(struct rondo_net_end *end)
{
    if (end->places && end->passed_by > 0) {
        RONDO_INFO(RONDO_SUBSYS_NET,
                   "net: %llu slices %s rank %d (channel %d) used registered memory instead of a slot",
                   (unsigned long long)end->passed_by, end->link->is_send ? "to" : "from", end->link->peer,
                   end->link->channel);
    }
    for (int i = 0; i < RONDO_NET_RANGES; i++) {
        range_end(end, &end->user.range[i]);
    }
}

/* Slice `step` uses a range (NONE: none) until it is done. */
static void use(struct rondo_net_end *end, uint64_t step, int range)
{
    end->user.held[step % RONDO_SLOTS] = (uint8_t)(range + 1);
    if (range != NONE) {
        end->user.range[range].uses++;
        end->user.uses++;
        end->passed_by += end->link->is_send;
    }
}

void rondo_net_user_done(struct rondo_net_end *end, uint64_t step)
{
    uint8_t *held = &end->user.held[step % RONDO_SLOTS];
    if (*held != 0) {
        end->user.range[*held - 1].uses--;
        end->user.uses--;
        *held = 0;
    }
}

/* ---- sending ---- */

rondo_status rondo_net_user_send(struct rondo_net_end *end, const struct rondo_net_header *header,
                                 const uint8_t *outside, void **request)
{
    uint8_t *slot = rondo_net_slot(end, end->posted);
    const struct rondo_net_span head = { .data = slot - sizeof(*header),
                                         .bytes = sizeof(*header),
                                         .region = end->region };
    struct rondo_net_span data = { .data = slot, .bytes = header->bytes, .region = end->region };
    int range = outside != NULL && header->bytes >= LEAST ? range_find(end, outside, header->bytes) : NONE;
    if (range != NONE) {
        data.data = (void *)outside;
        data.region = end->user.range[range].region;
    } else if (outside != NULL &&
               end->user.copied <= end->posted) { /* once, even if the device had no room before */
        memcpy(slot, outside, header->bytes);
        end->user.copied = end->posted + 1;
    }
    RONDO_TRY(end->device->isend_from(end->comm, &head, &data,
                                      header->call == 0 && header->proto == RONDO_PROTO_SIMPLE, 0, request));
    if (*request != NULL) {
        use(end, end->posted, range);
    }
    return RONDO_SUCCESS;
}

/* ---- receiving ---- */

/*
 * Normally receives are posted before their destination is known, so that the sender need not wait for this
 * rank. Once a slice that somebody waits for could have arrived in registered memory, later receives are
 * posted only when their destination is known, until two slices in a row could not; one is the first slice of
 * a call, which always arrives in its slot.
 */
enum { PATIENCE = 2 };

static void be_late_or_not(struct rondo_net_end *end, int range)
{
    struct rondo_net_user *user = &end->user;
    if (range != NONE) {
        user->late = PATIENCE;
    } else if (user->late > 0 && user->asked != end->link->conn.step) {
        user->late--;
    }
    user->asked = end->link->conn.step;
}

/* Find the place of slice end->posted among those that the executor has offered. @return 0: none. */
static int place_next(const struct rondo_net_end *end, struct rondo_net_span *place)
{
    const struct rondo_conn *conn = &end->link->conn;
    size_t all = (size_t)conn->into_bytes + conn->into_ahead,
           skip = (size_t)(end->posted - conn->step) * conn->into_bytes;
    if (skip >= all) {
        return 0;
    }
    place->data = conn->into + skip;
    place->bytes = all - skip < conn->into_bytes ? all - skip : conn->into_bytes;
    return 1;
}

static rondo_status post_one(struct rondo_net_end *end, const struct rondo_net_span *place, int range,
                             void **request)
{
    uint32_t slot = (uint32_t)(end->posted % RONDO_SLOTS);
    struct rondo_net_span whole = { .data = rondo_net_slot(end, end->posted) -
                                            sizeof(struct rondo_net_header),
                                    .bytes = end->stride - RONDO_CTRL_ALIGN + sizeof(struct rondo_net_header),
                                    .region = end->region };
    const int tag = 0;
    rondo_status status;
    rondo_net_parent_begin(end);
    status = place != NULL
                 ? end->device->irecv_into(end->comm, &whole, place, tag, request)
                 : end->device->irecv(end->comm, 1, &whole.data, &whole.bytes, &tag, &whole.region, request);
    rondo_net_parent = NULL;
    RONDO_TRY(status);
    if (*request != NULL) {
        end->user.place[slot] = place != NULL ? place->data : NULL;
        end->user.place_bytes[slot] = place != NULL ? (uint32_t)place->bytes : 0;
        end->request[slot] = *request;
        use(end, end->posted, place != NULL ? range : NONE);
        end->posted++;
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_net_user_receive(struct rondo_net_end *end, uint64_t head)
{
    const struct rondo_conn *conn = &end->link->conn;
    struct rondo_net_span place = { 0 };
    void *request;
    int range = NONE, go = 1;
    if (conn->wanted) {
        range = conn->into != NULL && conn->into_bytes >= LEAST
                    ? range_find(end, conn->into, (size_t)conn->into_bytes + conn->into_ahead)
                    : NONE;
        be_late_or_not(end, range);
    }
    while (end->posted < head + RONDO_SLOTS && go && rondo_net_may_receive(end)) {
        int placed = range != NONE && place_next(end, &place);
        if (end->user.late && !placed && !(conn->wanted && end->posted == conn->step)) {
            break;
        }
        place.region = placed ? end->user.range[range].region : NULL;
        RONDO_TRY(post_one(end, placed ? &place : NULL, range, &request));
        go = request != NULL;
    }
    return RONDO_SUCCESS;
}

int rondo_net_user_arrived(struct rondo_net_end *end, const size_t bytes[2])
{
    uint32_t slot = (uint32_t)(end->done % RONDO_SLOTS);
    int placed = end->user.place[slot] != NULL && bytes[1] > 0 && bytes[1] == end->user.place_bytes[slot];
    end->outside[slot] = placed ? end->user.place[slot] : NULL;
    if (placed) { /* what its header would have said */
        struct rondo_net_header *header = (struct rondo_net_header *)(void *)rondo_net_slot(end, end->done) -
                                          1;
        *header = (struct rondo_net_header){ .step = (uint32_t)end->done,
                                             .bytes = (uint32_t)bytes[1],
                                             .proto = RONDO_PROTO_SIMPLE };
        end->passed_by++;
    }
    return placed;
}
