/*
 * Answers to requests. A response matches a publication at once or when it comes. It takes one of the
 * publication's pulls, and gives it back if the content does not land.
 */
#include "tensor/answer.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum {
    SEND_EVERY = 64, /* answers to a run of requests, between two attempts to send contents */
/* Responses that are kept for the next ones: to free and allocate them takes longer than the rest of an
 * answer. ASan sees a use after the end. */
#if defined(__SANITIZE_ADDRESS__)
    MOST_SPARE = 0
#else
    MOST_SPARE = 16384
#endif
};

static struct rondo_tensor_response *response_find(const struct rondo_tensor_conn *conn, uint32_t index)
{
    /* The hash of a response is its index. */
    return (struct rondo_tensor_response *)(void *)rondo_tensor_map_first(&conn->responses, index);
}

static void response_unhold(struct rondo_tensor_response *response)
{
    response->pub->holds -= response->holds;
    response->holds = 0;
}

static void response_end(struct rondo_tensor_response *response, int landed)
{
    struct rondo_tensor_core *core = response->conn->core;
    struct rondo_tensor_pub *pub = response->pub;
    if (!response->dropped) {
        rondo_tensor_map_remove(&response->conn->responses, &response->node);
    }
    if (response->staged != NULL) {
        (void)rondo_tensor_arenas_free(&core->arenas, response->staged);
    }
    if (pub != NULL) {
        response_unhold(response);
        pub->unlanded--;
        if (!landed && !pub->ended && pub->left != UINT64_MAX) {
            pub->left++;
            core->unserved = 1; /* somebody may wait for it */
        }
        rondo_tensor_pub_settle(core, pub);
    }
    if (core->nspare < MOST_SPARE) {
        response->next = core->spare;
        core->spare = response;
        core->nspare++;
    } else {
        rondo_free(response);
    }
}

/* ---- those that wait ---- */

static uint64_t waits_hash(const struct rondo_tensor_key *key, uint64_t step)
{
    uint64_t hash = key->node.hash ^ step * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static struct rondo_tensor_waits *waits_find(const struct rondo_tensor_core *core,
                                             const struct rondo_tensor_key *key, uint64_t step)
{
    struct rondo_tensor_node *node = rondo_tensor_map_first(&core->waits, waits_hash(key, step));
    for (; node != NULL; node = rondo_tensor_map_next(node)) {
        struct rondo_tensor_waits *waits = (struct rondo_tensor_waits *)(void *)node;
        if (waits->key == key && waits->step == step) {
            return waits;
        }
    }
    return NULL;
}

static rondo_status link_waiting(struct rondo_tensor_response *response, struct rondo_tensor_key *key)
{
    struct rondo_tensor_core *core = response->conn->core;
    struct rondo_tensor_waits *waits = waits_find(core, key, response->step);
    if (waits == NULL) {
        RONDO_TRY(rondo_tensor_map_reserve(&core->waits));
        RONDO_TRY(RONDO_NEW(waits, "requests for a step of a tensor"));
        waits->key = key;
        waits->step = response->step;
        waits->next = key->waiting;
        waits->link = &key->waiting;
        if (waits->next != NULL) {
            waits->next->link = &waits->next;
        }
        key->waiting = waits;
        rondo_tensor_map_add(&core->waits, &waits->node, waits_hash(key, response->step));
    }
    rondo_tensor_queue_insert(&waits->queue, response, waits->queue.last);
    response->waits = waits;
    response->came = ++core->nwaited;
    response->state = RONDO_TENSOR_WAITING;
    return RONDO_SUCCESS;
}

/* It waits no more. The key stays. */
static void take_waiting(struct rondo_tensor_response *response)
{
    struct rondo_tensor_waits *waits = response->waits;
    rondo_tensor_queue_remove(&waits->queue, response);
    response->waits = NULL;
    if (waits->queue.first == NULL) {
        *waits->link = waits->next;
        if (waits->next != NULL) {
            waits->next->link = waits->link;
        }
        rondo_tensor_map_remove(&response->conn->core->waits, &waits->node);
        rondo_free(waits);
    }
}

static void unlink_waiting(struct rondo_tensor_response *response)
{
    struct rondo_tensor_key *key = response->waits->key;
    take_waiting(response);
    rondo_tensor_key_settle(response->conn->core, key);
}

/* ---- answers ---- */

static void unlink_queued(struct rondo_tensor_response *response)
{
    rondo_tensor_queue_remove(&response->conn->sends, response);
}

static void unlink_unfilled(struct rondo_tensor_response *response)
{
    struct rondo_tensor_core *core = response->conn->core;
    rondo_tensor_queue_remove(&core->unfilled, response);
    core->nunfilled--;
}

/* Take it off the queue that it waits in. */
static void unlink_anywhere(struct rondo_tensor_response *response)
{
    if (response->state == RONDO_TENSOR_WAITING) {
        unlink_waiting(response);
    } else if (response->state == RONDO_TENSOR_UNFILLED) {
        unlink_unfilled(response);
    } else if (response->state == RONDO_TENSOR_QUEUED) {
        unlink_queued(response);
    }
}

/* Tell the puller that there is no content; the response ends. */
static void refuse(struct rondo_tensor_response *response, rondo_status status, const char *text)
{
    struct rondo_tensor_message message = { .type = RONDO_TENSOR_ERROR_STATUS,
                                            .index = response->index,
                                            .epoch = response->epoch,
                                            .step = response->step,
                                            .status = status,
                                            .text = text,
                                            .text_bytes = strlen(text) };
    struct rondo_tensor_conn *conn = response->conn;
    rondo_status said = rondo_tensor_say(conn, &message);
    response_end(response, 0);
    rondo_tensor_conn_doom(conn, said);
}

static void refuse_with_error(struct rondo_tensor_response *response, rondo_status status)
{
    char text[RONDO_ERROR_TEXT];
    snprintf(text, sizeof(text), "%s", rondo_error_text());
    refuse(response, status, text);
}

static rondo_status stage_new(struct rondo_tensor_response *response)
{
    struct rondo_tensor_core *core = response->conn->core;
    RONDO_TRY(rondo_tensor_arenas_alloc(&core->arenas, response->meta.bytes, &response->staged));
    core->stats.staged_bytes += response->meta.bytes;
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_stage(struct rondo_tensor_response *response)
{
    size_t bytes = response->meta.bytes;
    RONDO_TRY(stage_new(response));
    if (response->gpu != RONDO_TENSOR_NO_GPU) {
        RONDO_TRY(rondo_tensor_gpu_copy(&response->conn->core->gpus, response->gpu, response->staged,
                                        response->data, bytes));
    } else if (bytes > 0) {
        memcpy(response->staged, response->data, bytes);
    }
    response->data = response->staged;
    response->gpu = RONDO_TENSOR_NO_GPU;
    response_unhold(response);
    return RONDO_SUCCESS;
}

/* Memory of a GPU stays where it is if the wire takes it from there. */
static int must_stage(const struct rondo_tensor_response *response)
{
    const struct rondo_tensor_conn *conn = response->conn;
    return response->gpu != RONDO_TENSOR_NO_GPU &&
           ((response->flags & RONDO_TENSOR_CHECKED) != 0 || conn->wire->takes_gpu == NULL ||
            !conn->wire->takes_gpu(response->conn, response->data, response->meta.bytes, response->gpu));
}

static int is_packed(const struct rondo_tensor_response *response)
{
    return response->pub->meta.packed && !response->pub->meta.dead;
}

/* Set meta and data of the part. The flag KNOWN stays if the receiver's meta-data is right. */
static rondo_status find_part(struct rondo_tensor_response *response)
{
    const struct rondo_tensor_pub *pub = response->pub;
    const struct rondo_tensor_meta known = response->meta;
    uint64_t offset;
    RONDO_TRY(rondo_tensor_meta_slice(&pub->meta, &response->slice, &response->meta, &offset));
    if (!rondo_tensor_meta_same(&known, &response->meta)) {
        response->flags &= ~(uint32_t)RONDO_TENSOR_KNOWN;
    }
    if (is_packed(response)) {
        RONDO_TRY(stage_new(response));
        response->data = response->staged;
    } else {
        response->data = (const uint8_t *)pub->tensor.data + offset;
        response->gpu = response->meta.bytes > 0 ? pub->gpu : RONDO_TENSOR_NO_GPU;
    }
    return must_stage(response) ? rondo_tensor_stage(response) : RONDO_SUCCESS;
}

/* Is filling it the user's code, or long? Then it happens without the lock. */
static int fills_apart(const struct rondo_tensor_response *response)
{
    return is_packed(response) ||
           ((response->flags & RONDO_TENSOR_CHECKED) != 0 && response->meta.bytes >= RONDO_TENSOR_APART);
}

/* Pack the part, and make its checksum. The response is in the map, or FILLING, and its data held. */
static rondo_status fill(struct rondo_tensor_response *response)
{
    const rondo_tensor *tensor = &response->pub->tensor;
    size_t bytes = response->meta.bytes;
    if (is_packed(response)) {
        RONDO_TRY(tensor->ops->pack(tensor->arg, response->staged, bytes));
    }
    if (response->flags & RONDO_TENSOR_CHECKED) {
        response->checksum = rondo_hash(response->data, bytes, 0);
    }
    return RONDO_SUCCESS;
}

/* Write the content, or first say what it will be. */
static void go_on(struct rondo_tensor_response *response, rondo_status filled)
{
    struct rondo_tensor_conn *conn = response->conn;
    if (filled != RONDO_SUCCESS) {
        refuse_with_error(response, filled);
        return;
    }
    if (is_packed(response)) {
        response_unhold(response);
    }
    rondo_tensor_pub_settle(conn->core, response->pub); /* it may have ended, and need its data no more */
    if (response->flags & RONDO_TENSOR_KNOWN) {
        rondo_tensor_conn_send(conn, response);
        return;
    }
    response->state = RONDO_TENSOR_ASKED;
    response->flags &= ~(uint32_t)RONDO_TENSOR_FRAMED; /* the re-request says where it goes */
    struct rondo_tensor_message message = { .type = RONDO_TENSOR_META_DATA_RESPONSE,
                                            .index = response->index,
                                            .epoch = response->epoch,
                                            .step = response->step,
                                            .meta = response->meta,
                                            .checksum = response->checksum };
    rondo_tensor_conn_doom(conn, rondo_tensor_say(conn, &message));
}

/* The publication is there. */
static void answer(struct rondo_tensor_response *response, struct rondo_tensor_pub *pub)
{
    struct rondo_tensor_core *core = response->conn->core;
    rondo_status status;
    if (pub->status != RONDO_SUCCESS) {
        response->step = pub->step;
        refuse(response, pub->status, pub->text);
        return;
    }
    pub->left -= pub->left != UINT64_MAX;
    pub->holds++;
    pub->unlanded++;
    response->holds = 1;
    response->pub = pub;
    response->step = pub->step;
    status = find_part(response);
    if (status == RONDO_SUCCESS && fills_apart(response)) {
        response->state = RONDO_TENSOR_UNFILLED;
        rondo_tensor_queue_insert(&core->unfilled, response, core->unfilled.last);
        core->nunfilled++;
        return;
    }
    go_on(response, status == RONDO_SUCCESS ? fill(response) : status);
}

/* Nothing of a content will be written from now on. */
static rondo_status say_cancelled(struct rondo_tensor_conn *conn, uint32_t index, uint32_t epoch)
{
    struct rondo_tensor_message message = { .type = RONDO_TENSOR_CANCELLED, .index = index, .epoch = epoch };
    return rondo_tensor_say(conn, &message);
}

static rondo_status clone_content(struct rondo_tensor_response *response)
{
    RONDO_TRY(rondo_tensor_stage(response));
    response->conn->core->stats.cloned_bytes += response->meta.bytes;
    return RONDO_SUCCESS;
}

/* It was filled. Meanwhile nobody may have wanted it any more, and its publication may have ended. */
static void fill_end(struct rondo_tensor_response *response, rondo_status status)
{
    struct rondo_tensor_conn *conn = response->conn;
    if (response->dropped || response->cancelled) {
        rondo_status said = response->answers && !response->dropped
                                ? say_cancelled(conn, response->index, response->epoch)
                                : RONDO_SUCCESS;
        response_end(response, 0);
        rondo_tensor_conn_doom(conn, said);
    } else {
        int clones = status == RONDO_SUCCESS && response->pub->ended && response->staged == NULL;
        go_on(response, clones ? clone_content(response) : status);
    }
    rondo_tensor_conn_flush(conn); /* before the next one is filled */
}

int rondo_tensor_fill(struct rondo_tensor_core *core)
{
    size_t n = core->filling == NULL ? core->nunfilled : 0, filled = 0; /* more may come for ever */
    for (; filled < n && core->unfilled.first != NULL && core->filling == NULL; filled++) {
        struct rondo_tensor_response *response = core->unfilled.first;
        unlink_unfilled(response);
        response->state = RONDO_TENSOR_FILLING;
        core->filling = response;
        pthread_mutex_unlock(&core->lock);
        rondo_status status = fill(response);
        pthread_mutex_lock(&core->lock);
        core->filling = NULL;
        fill_end(response, status);
    }
    if (filled > 0 && core->unfilled.first != NULL && core->has_thread) {
        rondo_tensor_door_ring(core->door); /* it slept while this thread filled the others */
    }
    return filled > 0;
}

static struct rondo_tensor_response *oldest(const struct rondo_tensor_core *core,
                                            const struct rondo_tensor_key *key, uint64_t step)
{
    const struct rondo_tensor_waits *waits = waits_find(core, key, step);
    return waits != NULL ? waits->queue.first : NULL;
}

int rondo_tensor_serve_waiting(struct rondo_tensor_core *core, struct rondo_tensor_key *key, uint64_t step)
{
    struct rondo_tensor_response *exact = oldest(core, key, step),
                                 *latest = oldest(core, key, RONDO_TENSOR_LATEST);
    int served = 0;
    while (exact != NULL || latest != NULL) {
        struct rondo_tensor_response **first = latest == NULL || (exact != NULL && exact->came < latest->came)
                                                   ? &exact
                                                   : &latest;
        struct rondo_tensor_response *response = *first;
        struct rondo_tensor_pub *pub = rondo_tensor_pub_match(key, response->step);
        *first = pub != NULL ? response->next : NULL;
        if (pub != NULL) {
            take_waiting(response);
            answer(response, pub);
            served = 1;
        }
    }
    return served;
}

void rondo_tensor_serve_again(struct rondo_tensor_core *core)
{
    core->unserved = 0;
    for (size_t i = 0; i < core->keys.nbuckets; i++) {
        for (struct rondo_tensor_node *node = core->keys.bucket[i]; node != NULL; node = node->next) {
            struct rondo_tensor_key *key = (struct rondo_tensor_key *)(void *)node;
            for (const struct rondo_tensor_pub *pub = key->pubs; pub != NULL && key->waiting != NULL;
                 pub = pub->next) {
                if (pub->left > 0) {
                    (void)rondo_tensor_serve_waiting(core, key, pub->step);
                }
            }
        }
    }
}

/* ---- messages ---- */

static rondo_status keep_for_later(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m)
{
    struct rondo_tensor_core *core = conn->core;
    struct rondo_tensor_later *later;
    uint8_t bytes[RONDO_TENSOR_MAX_MESSAGE];
    size_t n = rondo_tensor_encode(m, bytes, sizeof(bytes));
    RONDO_TRY(rondo_tensor_map_reserve(&conn->later));
    RONDO_TRY(rondo_calloc(&later, 1, sizeof(*later) + n, "a request of a later epoch"));
    later->conn = conn;
    later->bytes = n;
    memcpy(later->message, bytes, n);
    later->before = core->later_last;
    *(later->before != NULL ? &later->before->next : &core->later) = later;
    core->later_last = later;
    rondo_tensor_map_add(&conn->later, &later->node, m->index);
    return RONDO_SUCCESS;
}

static void later_end(struct rondo_tensor_later *later)
{
    struct rondo_tensor_core *core = later->conn->core;
    *(later->before != NULL ? &later->before->next : &core->later) = later->next;
    *(later->next != NULL ? &later->next->before : &core->later_last) = later->before;
    rondo_tensor_map_remove(&later->conn->later, &later->node);
    rondo_free(later);
}

/* Take a request of a later epoch back, if there is one. */
static void later_forget(struct rondo_tensor_conn *conn, uint32_t index)
{
    struct rondo_tensor_node *node = rondo_tensor_map_first(&conn->later, index);
    if (node != NULL) {
        later_end((struct rondo_tensor_later *)(void *)node);
    }
}

static rondo_status response_new(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m,
                                 struct rondo_tensor_response **response_out)
{
    struct rondo_tensor_core *core = conn->core;
    struct rondo_tensor_response *response = core->spare;
    if (response_find(conn, m->index) != NULL) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "a second tensor request with index %u", m->index);
    }
    RONDO_TRY(rondo_tensor_map_reserve(&conn->responses));
    if (response != NULL) {
        core->spare = response->next;
        core->nspare--;
        memset(response, 0, sizeof(*response));
    } else {
        RONDO_TRY(RONDO_NEW(response, "an answer to a tensor request"));
    }
    response->conn = conn;
    response->gpu = RONDO_TENSOR_NO_GPU;
    response->index = m->index;
    response->flags = m->flags;
    response->epoch = m->epoch;
    response->step = m->step;
    response->slice = m->slice;
    response->address = m->address;
    memcpy(response->rkey, m->rkey, sizeof(response->rkey));
    response->meta = m->meta;
    rondo_tensor_map_add(&conn->responses, &response->node, m->index);
    *response_out = response;
    return RONDO_SUCCESS;
}

static void refuse_retired(struct rondo_tensor_response *response)
{
    char text[160];
    const struct rondo_tensor_core *core = response->conn->core;
    snprintf(text, sizeof(text), "step %llu was retired: its publisher has retired the steps up to %llu",
             (unsigned long long)response->step, (unsigned long long)core->retired);
    refuse(response, RONDO_INVALID_USAGE, text);
}

rondo_status rondo_tensor_on_request(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m)
{
    struct rondo_tensor_core *core = conn->core;
    struct rondo_tensor_response *response = NULL;
    struct rondo_tensor_key *key;
    struct rondo_tensor_pub *pub;
    if (conn->version >= RONDO_TENSOR_FRAMES_VERSION && m->index >= RONDO_TENSOR_IMM_FRAME) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "a request with the reserved index %08x", m->index);
    }
    if (m->epoch != core->epoch) {
        return m->epoch > core->epoch ? keep_for_later(conn, m) : RONDO_SUCCESS;
    }
    RONDO_TRY(response_new(conn, m, &response));
    key = rondo_tensor_key_find(core, m->name, m->name_bytes);
    pub = key != NULL ? rondo_tensor_pub_match(key, m->step) : NULL;
    if (pub != NULL) {
        answer(response, pub);
        return RONDO_SUCCESS;
    }
    if (rondo_tensor_is_retired(core, m->step)) {
        refuse_retired(response);
        return RONDO_SUCCESS;
    }
    rondo_status status = rondo_tensor_key_get(core, m->name, m->name_bytes, &key);
    if (status == RONDO_SUCCESS) {
        status = link_waiting(response, key);
        if (status != RONDO_SUCCESS) {
            rondo_tensor_key_settle(core, key);
        }
    }
    if (status != RONDO_SUCCESS) {
        response_end(response, 0); /* it waits for nothing */
    }
    return status;
}

static rondo_status refuse_newer(const struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m)
{
    return rondo_fail_quiet(RONDO_REMOTE_ERROR, "a %s, which version %u of the protocol lacks",
                            rondo_tensor_type_name((int)m->type), conn->version);
}

rondo_status rondo_tensor_on_numbered(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m)
{
    struct rondo_tensor_message request = *m;
    if (conn->version < RONDO_TENSOR_NUMBERS_VERSION) {
        return refuse_newer(conn, m);
    }
    if (m->type == RONDO_TENSOR_NUMBERED_REQUEST) { /* of whatever epoch */
        RONDO_TRY(rondo_tensor_numbers_set(&conn->numbers, m));
        request.type = RONDO_TENSOR_TENSOR_REQUEST;
        request.number = 0;
    } else {
        RONDO_TRY(rondo_tensor_numbers_get(&conn->numbers, m, &request));
    }
    return rondo_tensor_on_request(conn, &request);
}

rondo_status rondo_tensor_on_run(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m)
{
    struct rondo_tensor_message one = *m;
    if (conn->version < RONDO_TENSOR_RUNS_VERSION) {
        return refuse_newer(conn, m);
    }
    for (uint32_t i = 0; i < m->count; i++) {
        one.index = m->index + i;
        one.number = m->number + i;
        RONDO_TRY(rondo_tensor_numbers_get(&conn->numbers, &one, &one));
        RONDO_TRY(rondo_tensor_on_request(conn, &one));
        if (i % SEND_EVERY == SEND_EVERY - 1) {
            RONDO_TRY(rondo_tensor_conn_send_early(conn));
        }
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_on_re_request(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m)
{
    struct rondo_tensor_response *response = response_find(conn, m->index);
    if (m->epoch != conn->core->epoch) {
        return RONDO_SUCCESS;
    }
    if (response == NULL || response->state != RONDO_TENSOR_ASKED || response->step != m->step) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "a re-request for index %u, which was not asked for",
                                m->index);
    }
    response->address = m->address;
    memcpy(response->rkey, m->rkey, sizeof(response->rkey));
    response->flags |= m->flags & RONDO_TENSOR_FRAMED;
    rondo_tensor_conn_send(conn, response);
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_on_cancel(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m)
{
    struct rondo_tensor_response *response = response_find(conn, m->index);
    int answers = (m->flags & RONDO_TENSOR_ANSWER) != 0;
    if (response == NULL) { /* the content has gone out, or it was a question for a rank */
        rondo_tensor_locate_forget(conn, m->index);
        later_forget(conn, m->index);
    } else if (response->state == RONDO_TENSOR_SENDING) {
        response->cancelled = 1;
        return RONDO_SUCCESS; /* the whole content comes */
    } else if (response->state == RONDO_TENSOR_FILLING) {
        response->cancelled = 1;
        response->answers = answers; /* when it has been filled */
        return RONDO_SUCCESS;
    } else {
        unlink_anywhere(response);
        response_end(response, 0);
    }
    return answers ? say_cancelled(conn, m->index, m->epoch) : RONDO_SUCCESS;
}

rondo_status rondo_tensor_on_delivered(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m)
{
    struct rondo_tensor_response *response = response_find(conn, m->index);
    if (response == NULL) {
        return RONDO_SUCCESS;
    }
    if (response->state == RONDO_TENSOR_SENDING) {
        response->delivered = 1;
        return RONDO_SUCCESS;
    }
    if (response->state != RONDO_TENSOR_SENT) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "the delivery of content %u, which was not sent",
                                m->index);
    }
    response_end(response, 1);
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_on_delivered_run(struct rondo_tensor_conn *conn,
                                           const struct rondo_tensor_message *m)
{
    struct rondo_tensor_message one = *m;
    if (conn->version < RONDO_TENSOR_RUNS_VERSION) {
        return refuse_newer(conn, m);
    }
    for (uint32_t i = 0; i < m->count; i++) {
        one.index = m->index + i;
        RONDO_TRY(rondo_tensor_on_delivered(conn, &one));
    }
    return RONDO_SUCCESS;
}

/* Does the publisher want to know when the content has landed? */
static int wants_delivery(const struct rondo_tensor_response *response)
{
    return response->pub->request != NULL || response->pub->left != UINT64_MAX;
}

void rondo_tensor_content_of(const struct rondo_tensor_response *response,
                             struct rondo_tensor_content *content)
{
    *content = (struct rondo_tensor_content){ .index = response->index,
                                              .epoch = response->epoch,
                                              .bytes = response->meta.bytes,
                                              .step = response->step,
                                              .checksum = response->checksum };
    content->flags = wants_delivery(response) ? RONDO_TENSOR_CONTENT_TELL : 0;
    if (response->pub->request != NULL && response->pub->left == 0) {
        content->flags |= RONDO_TENSOR_CONTENT_SOON;
    }
    if (response->flags & RONDO_TENSOR_CHECKED) {
        content->flags |= RONDO_TENSOR_CONTENT_CHECKED;
    }
}

void rondo_tensor_unable(struct rondo_tensor_response *response, rondo_status status)
{
    struct rondo_tensor_core *core = response->conn->core;
    core->stats.contents--; /* as success, it is counted */
    core->stats.content_bytes -= response->meta.bytes;
    refuse_with_error(response, status);
}

void rondo_tensor_sent(struct rondo_tensor_response *response, int dropped)
{
    struct rondo_tensor_pub *pub = response->pub;
    response->cancelled |= dropped;
    if (response->conn->wire->delivers || response->cancelled || response->delivered ||
        !wants_delivery(response)) {
        response_end(response, !response->cancelled);
        return;
    }
    response->state = RONDO_TENSOR_SENT;
    response_unhold(response);
    rondo_tensor_pub_settle(response->conn->core, pub);
}

/* ---- the end of publications, epochs and connections ---- */

/* Copy what is not with a wire yet. */
static void clone_part(struct rondo_tensor_response *response)
{
    rondo_status status = clone_content(response);
    if (status != RONDO_SUCCESS) {
        unlink_anywhere(response);
        refuse_with_error(response, status);
    }
}

/* Clone for, or drop, the responses of publications that end. */
void rondo_tensor_responses_leave(struct rondo_tensor_conn *conn, int drop)
{
    for (size_t i = 0; i < conn->responses.nbuckets; i++) {
        for (struct rondo_tensor_node *node = conn->responses.bucket[i], *next; node != NULL; node = next) {
            struct rondo_tensor_response *response = (struct rondo_tensor_response *)(void *)node;
            next = node->next;
            if (response->pub == NULL || !response->pub->ended || response->state == RONDO_TENSOR_SENDING) {
                continue;
            }
            if (response->state == RONDO_TENSOR_FILLING) {
                response->cancelled |= drop; /* else it is cloned when it was filled */
            } else if (drop) {
                unlink_anywhere(response);
                response_end(response, 0);
            } else if (response->holds && response->state != RONDO_TENSOR_UNFILLED) {
                clone_part(response);
            }
        }
    }
}

void rondo_tensor_end_waiting(struct rondo_tensor_core *core, struct rondo_tensor_key *key, int drop)
{
    for (struct rondo_tensor_waits *waits = key->waiting, *next; waits != NULL; waits = next) {
        next = waits->next;
        for (struct rondo_tensor_response *response = waits->queue.first, *other;
             response != NULL && (drop || rondo_tensor_is_retired(core, waits->step)); response = other) {
            other = response->next;
            take_waiting(response); /* with the last one, waits ends */
            if (drop) {
                response_end(response, 0);
            } else {
                refuse_retired(response);
            }
        }
    }
}

void rondo_tensor_later_replay(struct rondo_tensor_core *core)
{
    struct rondo_tensor_later *last =
        core->later_last; /* behind it are those of an epoch that is later still */
    for (int more = last != NULL; more;) {
        struct rondo_tensor_later *later = core->later;
        struct rondo_tensor_message message;
        size_t used;
        rondo_status status = rondo_tensor_decode(later->message, later->bytes, &message, &used);
        if (status == RONDO_SUCCESS && later->conn->state == RONDO_TENSOR_CONN_OPEN) {
            status = rondo_tensor_on_request(later->conn, &message);
        }
        rondo_tensor_conn_doom(later->conn, status); /* not at once: its other requests end with it */
        more = later != last;
        later_end(later);
    }
}

void rondo_tensor_responses_drop(struct rondo_tensor_conn *conn)
{
    struct rondo_tensor_node *node;
    size_t from = 0;
    conn->sends = (struct rondo_tensor_queue){ NULL, NULL };
    while ((node = rondo_tensor_map_any(&conn->responses, &from)) != NULL) {
        struct rondo_tensor_response *response = (struct rondo_tensor_response *)(void *)node;
        if (response->state == RONDO_TENSOR_FILLING) { /* it ends when it has been filled */
            rondo_tensor_map_remove(&conn->responses, node);
            response->dropped = 1;
            continue;
        }
        if (response->state != RONDO_TENSOR_QUEUED) {
            unlink_anywhere(response);
        }
        response_end(response, 0);
    }
    from = 0;
    while ((node = rondo_tensor_map_any(&conn->later, &from)) != NULL) {
        later_end((struct rondo_tensor_later *)(void *)node);
    }
    rondo_tensor_locates_drop(conn);
}
