/*
 * Pulls. The first request for a part of a key does not know its size: the publisher says what it is, the
 * place is made, and a re-request names it. Later requests carry the meta-data that is known, and their
 * place.
 *
 * Over some wires the publisher writes a content to the place that the request names (offer). Such a place
 * stays until the content has come, or the publisher has said that it will not (CANCELLED), or the connection
 * has ended. So a pull that is given up ends later; a publisher that says nothing for CANCEL_NS loses its
 * connection.
 */
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/param.h"
#include "tensor/store.h"

/* Beginning many pulls, so often look whether the publisher can be given more of them: it answers the first
 * ones meanwhile. */
enum { LOOK_EVERY = 64 };

static struct rondo_tensor_pull *pull_find(const struct rondo_tensor_core *core, uint32_t index)
{
    /* The hash of a pull is its index. */
    return (struct rondo_tensor_pull *)(void *)rondo_tensor_map_first(&core->pulls, index);
}

/* ---- what is known of keys ---- */

static uint64_t known_hash(int peer, const rondo_tensor_slice *slice, const char *key, size_t bytes)
{
    uint64_t hash = rondo_tensor_key_hash(key, bytes) + (uint64_t)peer * 0x9e3779b97f4a7c15ull;
    uint64_t words[] = { slice->part, slice->first, slice->count };
    return slice->part == RONDO_TENSOR_ALL ? hash : rondo_hash(words, sizeof(words), hash);
}

static struct rondo_tensor_known *known_find(const struct rondo_tensor_core *core,
                                             const struct rondo_tensor_pull *pull)
{
    uint64_t hash = known_hash(pull->peer, &pull->slice, pull->key, pull->key_bytes);
    for (struct rondo_tensor_node *node = rondo_tensor_map_first(&core->known, hash); node != NULL;
         node = rondo_tensor_map_next(node)) {
        struct rondo_tensor_known *known = (struct rondo_tensor_known *)(void *)node;
        if (known->peer == pull->peer && known->key_bytes == pull->key_bytes &&
            memcmp(known->key, pull->key, pull->key_bytes) == 0 && known->slice.part == pull->slice.part &&
            known->slice.first == pull->slice.first && known->slice.count == pull->slice.count) {
            return known;
        }
    }
    return NULL;
}

static void map_empty(struct rondo_tensor_map *map)
{
    struct rondo_tensor_node *node;
    size_t from = 0;
    while ((node = rondo_tensor_map_any(map, &from)) != NULL) {
        rondo_tensor_map_remove(map, node);
        rondo_free(node);
    }
}

/* All that is known of keys. What is used again costs one more round trip, and gets a new number. */
static void known_forget(struct rondo_tensor_core *core)
{
    map_empty(&core->known);
    for (struct rondo_tensor_conn *conn = core->conns; conn != NULL; conn = conn->next) {
        conn->next_number = 0;
    }
}

static rondo_status known_set(struct rondo_tensor_core *core, const struct rondo_tensor_pull *pull,
                              const struct rondo_tensor_meta *meta)
{
    struct rondo_tensor_known *known = known_find(core, pull);
    if (known == NULL) {
        if (core->known.n >= (size_t)rondo_params()->tensor_cache) {
            known_forget(core);
        }
        RONDO_TRY(rondo_tensor_map_reserve(&core->known));
        RONDO_TRY(rondo_calloc(&known, 1, sizeof(*known) + pull->key_bytes, "the meta-data of a tensor"));
        known->peer = pull->peer;
        known->slice = pull->slice;
        known->number = RONDO_TENSOR_NUMBERS;
        known->key_bytes = pull->key_bytes;
        memcpy(known->key, pull->key, pull->key_bytes);
        rondo_tensor_map_add(&core->known, &known->node,
                             known_hash(pull->peer, &pull->slice, pull->key, pull->key_bytes));
    }
    known->numbered &= rondo_tensor_meta_same(&known->meta, meta);
    known->meta = *meta;
    return RONDO_SUCCESS;
}

/* ---- the end of a pull ---- */

static void request_note(struct rondo_tensor_request *request, rondo_status status, const char *text)
{
    if (status != RONDO_SUCCESS && request->status == RONDO_SUCCESS) {
        request->status = status;
        snprintf(request->text, sizeof(request->text), "%s", text);
    }
}

/* The publisher does not write to the place any more. */
static void withdraw(struct rondo_tensor_pull *pull)
{
    struct rondo_tensor_conn *conn = pull->conn;
    if (pull->offered && conn->wire != NULL) { /* else it was closed, and the registrations with it */
        conn->wire->withdraw(conn, &pull->offer);
    }
    pull->offered = 0;
    if (pull->landing != NULL) {
        (void)rondo_tensor_arenas_free(&pull->request->core->arenas, pull->landing);
    }
    pull->landing = NULL;
}

/* Free a place that the store has made. */
static void release_place(struct rondo_tensor_pull *pull)
{
    struct rondo_tensor_core *core = pull->request->core;
    if (pull->owns && pull->place != NULL && pull->gpu != RONDO_TENSOR_NO_GPU) {
        (void)rondo_tensor_gpu_free(&core->gpus, pull->place);
    } else if (pull->owns && pull->place != NULL) {
        (void)rondo_tensor_arenas_free(&core->arenas, pull->place);
    }
    pull->place = NULL;
    pull->owns = 0;
    pull->gpu = RONDO_TENSOR_NO_GPU;
}

/* Where a key was found before; NULL: nowhere. */
static struct rondo_tensor_home *found_find(const struct rondo_tensor_core *core,
                                            const struct rondo_tensor_pull *pull)
{
    uint64_t hash = rondo_tensor_key_hash(pull->key, pull->key_bytes);
    for (struct rondo_tensor_node *node = rondo_tensor_map_first(&core->found, hash); node != NULL;
         node = rondo_tensor_map_next(node)) {
        struct rondo_tensor_home *home = (struct rondo_tensor_home *)(void *)node;
        if (home->key_bytes == pull->key_bytes && memcmp(home->key, pull->key, pull->key_bytes) == 0) {
            return home;
        }
    }
    return NULL;
}

/* The rank where the key was found does not have it: the next pull asks the home again. */
static void found_forget(struct rondo_tensor_core *core, const struct rondo_tensor_pull *pull)
{
    struct rondo_tensor_home *home = pull->any ? found_find(core, pull) : NULL;
    if (home != NULL && home->rank == pull->peer) {
        rondo_tensor_map_remove(&core->found, &home->node);
        rondo_free(home);
    }
}

static void pull_end(struct rondo_tensor_pull *pull, rondo_status status, const char *text)
{
    struct rondo_tensor_core *core = pull->request->core;
    if (status != RONDO_SUCCESS) {
        found_forget(core, pull);
    }
    if (pull->cancelled && pull->offered) {
        pull->conn->ncancels--;
        pull->conn->cancel_ns = rondo_now_ns();
    }
    withdraw(pull);
    if (pull->state != RONDO_TENSOR_PULL_NEW) {
        rondo_tensor_map_remove(&core->pulls, &pull->node);
    }
    pull->state = RONDO_TENSOR_PULL_DONE;
    release_place(pull);
    if (pull->status != NULL) {
        __atomic_store_n(pull->status, status, __ATOMIC_RELEASE); /* the user may look while others come */
    }
    request_note(pull->request, status, text);
    pull->request->left--;
}

void rondo_tensor_pull_fail(struct rondo_tensor_pull *pull, rondo_status status, const char *text)
{
    char sentence[RONDO_ERROR_TEXT], whose[32] = "";
    const struct rondo_tensor_core *core = pull->request->core;
    if (pull->state == RONDO_TENSOR_PULL_DONE) {
        return;
    }
    if (pull->peer >= 0) {
        snprintf(whose, sizeof(whose), " of rank %d", pull->peer);
    }
    snprintf(sentence, sizeof(sentence), "rank %d on %s did not get tensor \"%.100s\"%s: %s", core->rank,
             rondo_log_host(), pull->key, whose, text);
    pull_end(pull, status, sentence);
}

static void pull_fail_with_error(struct rondo_tensor_pull *pull, rondo_status status)
{
    char text[RONDO_ERROR_TEXT];
    snprintf(text, sizeof(text), "%s", rondo_error_text());
    rondo_tensor_pull_fail(pull, status, text);
}

static void say_cancel(struct rondo_tensor_pull *pull)
{
    struct rondo_tensor_message message = { .type = RONDO_TENSOR_CANCEL,
                                            .flags = pull->offered ? RONDO_TENSOR_ANSWER : 0,
                                            .index = pull->index,
                                            .epoch = pull->epoch };
    if (!pull->cancelled && pull->conn != NULL && pull->conn->state != RONDO_TENSOR_CONN_BROKEN) {
        rondo_tensor_conn_doom(pull->conn, rondo_tensor_say(pull->conn, &message));
    }
}

/* Give a pull up: at once, or if its content may be written, when that has ended. */
static void pull_give_up(struct rondo_tensor_pull *pull, rondo_status status, const char *text)
{
    if (pull->state == RONDO_TENSOR_PULL_DONE || pull->given_up) {
        return;
    }
    if (pull->state == RONDO_TENSOR_PULL_PLACING || pull->offered) {
        pull->given_up = 1;
        request_note(pull->request, status, text);
        if (pull->offered) {
            say_cancel(pull);
            pull->cancelled = 1;
            pull->conn->cancel_ns = pull->conn->ncancels++ == 0 ? rondo_now_ns() : pull->conn->cancel_ns;
        }
        return;
    }
    if (pull->state != RONDO_TENSOR_PULL_NEW) {
        say_cancel(pull);
    }
    rondo_tensor_pull_fail(pull, status, text);
}

void rondo_tensor_request_give_up(struct rondo_tensor_request *request, rondo_status status, const char *text)
{
    for (size_t i = 0; i < request->n && !request->is_publication; i++) {
        pull_give_up(&request->pull[i], status, text);
    }
    if (request->is_publication && request->left > 0) {
        if (request->pub != NULL) {
            rondo_tensor_pub_forget(request->pub);
            request->pub = NULL;
        }
        request_note(request, status, text);
        request->left = 0;
    }
}

/* ---- places ---- */

/* Make the place for meta-data that is known. */
static rondo_status make_place(struct rondo_tensor_pull *pull, const struct rondo_tensor_meta *meta)
{
    struct rondo_tensor_core *core = pull->request->core;
    rondo_tensor *result = pull->result;
    withdraw(pull);
    release_place(pull);
    pull->meta = *meta;
    pull->unpacks = meta->packed && !meta->dead && result->ops != NULL && result->ops->unpack != NULL;
    if (!pull->unpacks && result->data != NULL) {
        if (meta->bytes > result->bytes) {
            return rondo_fail_quiet(
                RONDO_INVALID_ARGUMENT,
                "it has %llu bytes, and the place for it %zu; with data NULL the store finds "
                "the memory",
                (unsigned long long)meta->bytes, result->bytes);
        }
        if (result->memory == RONDO_TENSOR_CUDA && meta->bytes > 0) {
            RONDO_TRY(rondo_tensor_gpu_of(result->data, meta->bytes, &pull->gpu));
        }
        pull->place = result->data;
        return RONDO_SUCCESS;
    }
    if (meta->dead) {
        return RONDO_SUCCESS;
    }
    if (!pull->unpacks && result->memory == RONDO_TENSOR_CUDA) {
        RONDO_TRY(rondo_tensor_gpu_alloc(&core->gpus, pull->current, meta->bytes, &pull->place));
        pull->gpu = pull->current;
        pull->owns = 1;
        return RONDO_SUCCESS;
    }
    RONDO_TRY(rondo_tensor_arenas_alloc(&core->arenas, meta->bytes, &pull->place));
    pull->owns = 1;
    return RONDO_SUCCESS;
}

/* Must the content land in host memory first? Small contents, for memory that would have to be registered for
 * them; and for GPUs whose memory the wire does not write to. */
static int lands_elsewhere(struct rondo_tensor_pull *pull)
{
    struct rondo_tensor_conn *conn = pull->conn;
    size_t bytes = pull->meta.bytes;
    struct rondo_region region;
    if (pull->gpu == RONDO_TENSOR_NO_GPU) {
        return conn->wire->offer != NULL && bytes <= (size_t)rondo_params()->tensor_eager &&
               !rondo_region_find(pull->place, bytes, &region);
    }
    return conn->wire->offer == NULL || conn->core->checksum ||
           conn->wire->offer(conn, pull->place, bytes, pull->gpu, &pull->offer) != RONDO_SUCCESS;
}

/* Shall the content come in a frame? It is copied once more at each end, but shares a write with others, and
 * is one write alone. */
static int comes_framed(const struct rondo_tensor_pull *pull)
{
    const struct rondo_tensor_conn *conn = pull->conn;
    size_t bytes = pull->meta.bytes;
    struct rondo_region region;
    return conn->framed_most > 0 && bytes <= conn->framed_most && pull->gpu == RONDO_TENSOR_NO_GPU &&
           (bytes <= RONDO_TENSOR_ALWAYS_FRAMED || !rondo_region_find(pull->place, bytes, &region));
}

/* Let the publisher write to the place, and name it in the message. */
static rondo_status offer_place(struct rondo_tensor_pull *pull, struct rondo_tensor_message *message)
{
    struct rondo_tensor_conn *conn = pull->conn;
    void *at = pull->place;
    size_t bytes = pull->meta.bytes;
    message->address = (uintptr_t)at;
    if (comes_framed(pull)) {
        message->flags |= RONDO_TENSOR_FRAMED;
        message->address = 0;
        return RONDO_SUCCESS;
    }
    if (bytes == 0) {
        return RONDO_SUCCESS;
    }
    int elsewhere = lands_elsewhere(pull);
    if (elsewhere) {
        RONDO_TRY(rondo_tensor_arenas_alloc(&pull->request->core->arenas, bytes, &pull->landing));
        at = pull->landing;
    }
    if (conn->wire->offer == NULL) {
        return RONDO_SUCCESS;
    }
    if (elsewhere || pull->gpu == RONDO_TENSOR_NO_GPU) {
        RONDO_TRY(conn->wire->offer(conn, at, bytes, RONDO_TENSOR_NO_GPU, &pull->offer));
    }
    pull->offered = 1;
    message->address = pull->offer.address;
    memcpy(message->rkey, pull->offer.key, sizeof(message->rkey));
    return RONDO_SUCCESS;
}

/* ---- requests out ---- */

/* Say the number of the request instead of its key, slice and meta-data; or first, with them. */
static void number_request(struct rondo_tensor_pull *pull, struct rondo_tensor_known *known,
                           struct rondo_tensor_message *message)
{
    struct rondo_tensor_conn *conn = pull->conn;
    if (conn->version <
        (conn->wire->offer != NULL ? RONDO_TENSOR_NUMBERS_VERSION : RONDO_TENSOR_RUNS_VERSION)) {
        return;
    }
    if (known->number == RONDO_TENSOR_NUMBERS && conn->next_number < RONDO_TENSOR_NUMBERS) {
        known->number = conn->next_number++;
    }
    message->number = known->number;
    if (known->numbered) {
        message->type = pull->offered ? RONDO_TENSOR_REPEAT_TO_PLACE : RONDO_TENSOR_REPEAT_REQUEST;
    } else if (known->number < RONDO_TENSOR_NUMBERS) {
        message->type = RONDO_TENSOR_NUMBERED_REQUEST;
    }
}

static rondo_status say_request(struct rondo_tensor_pull *pull)
{
    const struct rondo_tensor_core *core = pull->request->core;
    struct rondo_tensor_known *known = known_find(core, pull);
    struct rondo_tensor_message message = { .type = RONDO_TENSOR_TENSOR_REQUEST,
                                            .flags = core->checksum ? RONDO_TENSOR_CHECKED : 0,
                                            .index = pull->index,
                                            .epoch = pull->epoch,
                                            .step = pull->step,
                                            .slice = pull->slice,
                                            .name = pull->key,
                                            .name_bytes = pull->key_bytes };
    message.meta.type = RONDO_UINT8;
    message.meta.dead = 1; /* valid, and equal to nothing without the flag */
    pull->state = RONDO_TENSOR_PULL_ASKED;
    /* A place that cannot be made is no error yet: the tensor may have changed. */
    if (known != NULL && pull->conn->state == RONDO_TENSOR_CONN_OPEN &&
        make_place(pull, &known->meta) == RONDO_SUCCESS) {
        RONDO_TRY(offer_place(pull, &message));
        message.flags |= RONDO_TENSOR_KNOWN;
        message.meta = known->meta;
        pull->state = RONDO_TENSOR_PULL_TOLD;
        number_request(pull, known, &message);
    }
    RONDO_TRY(rondo_tensor_say(pull->conn, &message));
    if (message.type == RONDO_TENSOR_NUMBERED_REQUEST) {
        known->numbered = 1;
    }
    return RONDO_SUCCESS;
}

static rondo_status say_locate(struct rondo_tensor_pull *pull)
{
    struct rondo_tensor_core *core = pull->request->core;
    struct rondo_tensor_message message = { .type = RONDO_TENSOR_LOCATE,
                                            .index = pull->index,
                                            .epoch = pull->epoch,
                                            .name = pull->key,
                                            .name_bytes = pull->key_bytes };
    int home = (int)(rondo_tensor_key_hash(pull->key, pull->key_bytes) % (uint64_t)core->nranks);
    pull->state = RONDO_TENSOR_PULL_LOCATING;
    RONDO_TRY(rondo_tensor_conn_get(core, home, &pull->conn));
    return rondo_tensor_say(pull->conn, &message);
}

static rondo_status found_set(struct rondo_tensor_core *core, const struct rondo_tensor_pull *pull, int rank)
{
    struct rondo_tensor_home *home;
    if (found_find(core, pull) != NULL) {
        return RONDO_SUCCESS;
    }
    if (core->found.n >= (size_t)rondo_params()->tensor_cache) {
        map_empty(&core->found);
    }
    RONDO_TRY(rondo_tensor_map_reserve(&core->found));
    RONDO_TRY(rondo_calloc(&home, 1, sizeof(*home) + pull->key_bytes, "the rank of a key"));
    home->rank = rank;
    home->key_bytes = pull->key_bytes;
    memcpy(home->key, pull->key, pull->key_bytes);
    rondo_tensor_map_add(&core->found, &home->node, rondo_tensor_key_hash(pull->key, pull->key_bytes));
    return RONDO_SUCCESS;
}

static uint32_t next_index(struct rondo_tensor_core *core)
{
    do {
        core->last_index = core->last_index + 1 >= RONDO_TENSOR_IMM_FRAME ? 0 : core->last_index + 1;
    } while (pull_find(core, core->last_index) != NULL);
    return core->last_index;
}

static rondo_status pull_begin(struct rondo_tensor_pull *pull)
{
    struct rondo_tensor_core *core = pull->request->core;
    if (pull->result->memory == RONDO_TENSOR_CUDA) {
        RONDO_TRY(rondo_tensor_gpu_current(&pull->current));
    }
    RONDO_TRY(rondo_tensor_map_reserve(&core->pulls));
    pull->index = next_index(core);
    pull->epoch = core->epoch;
    pull->state = RONDO_TENSOR_PULL_ASKED;
    rondo_tensor_map_add(&core->pulls, &pull->node, pull->index);
    if (pull->any) {
        const struct rondo_tensor_home *home = found_find(core, pull);
        if (home == NULL) {
            return say_locate(pull);
        }
        pull->peer = home->rank;
    }
    RONDO_TRY(rondo_tensor_conn_get(core, pull->peer, &pull->conn));
    return say_request(pull);
}

void rondo_tensor_pulls_begin(struct rondo_tensor_request *request)
{
    int moved = 0;
    for (size_t i = 0; i < request->n; i++) {
        struct rondo_tensor_pull *pull = &request->pull[i];
        if (pull->state != RONDO_TENSOR_PULL_NEW) {
            continue; /* the store has ended meanwhile */
        }
        rondo_status status = pull_begin(pull);
        if (status != RONDO_SUCCESS) {
            pull_fail_with_error(pull, status);
        } else if (i % LOOK_EVERY == LOOK_EVERY - 1 && rondo_tensor_conn_has_enough(pull->conn)) {
            (void)rondo_tensor_conn_progress(pull->conn, &moved);
        }
    }
    rondo_tensor_flush_all(request->core);
    (void)rondo_tensor_fill(request->core); /* what others have asked for meanwhile */
}

/* ---- messages in ---- */

/* The pull that a message of a peer is about. *pull NULL: it has ended, or is of another epoch. */
static rondo_status pull_of(const struct rondo_tensor_conn *conn, uint32_t index, uint32_t epoch,
                            struct rondo_tensor_pull **pull)
{
    const struct rondo_tensor_core *core = conn->core;
    *pull = pull_find(core, index);
    if (*pull == NULL || epoch != (*pull)->epoch) {
        *pull = NULL;
    } else if ((*pull)->conn != conn) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "an answer to request %u, which went to rank %d", index,
                                (*pull)->peer);
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_on_meta_data(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m)
{
    struct rondo_tensor_pull *pull;
    rondo_status status;
    RONDO_TRY(pull_of(conn, m->index, m->epoch, &pull));
    if (pull == NULL || pull->given_up) {
        return RONDO_SUCCESS;
    }
    if ((pull->state != RONDO_TENSOR_PULL_ASKED && pull->state != RONDO_TENSOR_PULL_TOLD) ||
        (pull->step != RONDO_TENSOR_LATEST && pull->step != m->step)) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "meta-data for request %u, which did not ask for it",
                                m->index);
    }
    struct rondo_tensor_message message = { .type = RONDO_TENSOR_TENSOR_RE_REQUEST,
                                            .index = pull->index,
                                            .epoch = pull->epoch,
                                            .step = m->step,
                                            .name = pull->key,
                                            .name_bytes = pull->key_bytes };
    status = known_set(conn->core, pull, &m->meta);
    status = status == RONDO_SUCCESS ? make_place(pull, &m->meta) : status;
    status = status == RONDO_SUCCESS ? offer_place(pull, &message) : status;
    if (status != RONDO_SUCCESS) {
        say_cancel(pull);
        pull_fail_with_error(pull, status);
        return RONDO_SUCCESS;
    }
    pull->checksum = m->checksum;
    pull->has_checksum = conn->core->checksum;
    pull->state = RONDO_TENSOR_PULL_TOLD;
    return rondo_tensor_say(conn, &message);
}

rondo_status rondo_tensor_on_error(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m)
{
    struct rondo_tensor_pull *pull;
    char text[RONDO_ERROR_TEXT], who[96], printable[RONDO_TENSOR_MAX_TEXT + 1];
    RONDO_TRY(pull_of(conn, m->index, m->epoch, &pull));
    if (pull == NULL) {
        return RONDO_SUCCESS;
    }
    if (pull->state == RONDO_TENSOR_PULL_PLACING || pull->state == RONDO_TENSOR_PULL_LOCATING) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "an error for request %u while its content comes",
                                m->index);
    }
    for (size_t i = 0; i < m->text_bytes; i++) {
        printable[i] = (unsigned char)m->text[i] < ' ' || m->text[i] == 127 ? '?' : m->text[i];
    }
    printable[m->text_bytes] = '\0';
    snprintf(text, sizeof(text), "%s says: %s", rondo_tensor_who(conn->core, conn->peer, who), printable);
    rondo_tensor_pull_fail(pull, m->status, text);
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_on_cancelled(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m)
{
    struct rondo_tensor_pull *pull;
    RONDO_TRY(pull_of(conn, m->index, m->epoch, &pull));
    if (pull == NULL) {
        return RONDO_SUCCESS; /* its content, or an error, came before */
    }
    if (!pull->cancelled) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "the end of request %u, which was not cancelled",
                                m->index);
    }
    /* Once a part of the content has come, all of it does, and the pull ends then: a GPU's memory may be read
     * until it has been flushed. */
    if (pull->state != RONDO_TENSOR_PULL_PLACING) {
        pull_end(pull, pull->request->status, pull->request->text);
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_on_location(struct rondo_tensor_conn *conn, const struct rondo_tensor_message *m)
{
    struct rondo_tensor_core *core = conn->core;
    struct rondo_tensor_pull *pull = pull_find(core, m->index);
    rondo_status status;
    if (pull == NULL || pull->state != RONDO_TENSOR_PULL_LOCATING || pull->conn != conn) {
        return RONDO_SUCCESS;
    }
    if (m->rank < 0 || m->rank >= core->nranks) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "a key at rank %d of %d", m->rank, core->nranks);
    }
    status = found_set(core, pull, m->rank);
    pull->peer = m->rank;
    pull->state = RONDO_TENSOR_PULL_ASKED;
    status = status == RONDO_SUCCESS ? rondo_tensor_conn_get(core, pull->peer, &pull->conn) : status;
    status = status == RONDO_SUCCESS ? say_request(pull) : status;
    if (status != RONDO_SUCCESS) {
        pull_fail_with_error(pull, status);
    } else if (pull->conn != conn) {
        core->unflushed = 1;
    }
    return RONDO_SUCCESS;
}

/* ---- contents ---- */

const struct rondo_tensor_offer *rondo_tensor_offer_of(const struct rondo_tensor_conn *conn,
                                                       const struct rondo_tensor_content *content)
{
    const struct rondo_tensor_pull *pull = pull_find(conn->core, content->index);
    return pull != NULL && pull->conn == conn && pull->offered ? &pull->offer : NULL;
}

rondo_status rondo_tensor_place(struct rondo_tensor_conn *conn, const struct rondo_tensor_content *content,
                                void **place)
{
    static uint8_t nothing[1];
    struct rondo_tensor_pull *pull;
    *place = NULL;
    RONDO_TRY(pull_of(conn, content->index, content->epoch, &pull));
    if (pull == NULL) {
        conn->core->stats.dropped++;
        return RONDO_SUCCESS;
    }
    if (pull->state != RONDO_TENSOR_PULL_TOLD || content->bytes != pull->meta.bytes ||
        (pull->step != RONDO_TENSOR_LATEST && pull->step != content->step)) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "a content of %llu bytes for request %u, which has %llu",
                                (unsigned long long)content->bytes, content->index,
                                (unsigned long long)pull->meta.bytes);
    }
    pull->state = RONDO_TENSOR_PULL_PLACING;
    *place = pull->landing != NULL ? pull->landing
             : pull->place != NULL ? pull->place
                                   : nothing; /* no bytes */
    return RONDO_SUCCESS;
}

/* at: where the content has landed, in host memory. nth: counts contents. */
static rondo_status check(const struct rondo_tensor_pull *pull, const struct rondo_tensor_content *content,
                          uint8_t *at, uint64_t nth)
{
    const struct rondo_tensor_core *core = pull->request->core;
    int has = pull->has_checksum || (content->flags & RONDO_TENSOR_CONTENT_CHECKED);
    uint64_t wanted = pull->has_checksum ? pull->checksum : content->checksum;
    if (rondo_fault("tensor_content", core->rank, nth) != RONDO_SUCCESS && pull->meta.bytes > 0) {
        at[pull->meta.bytes / 2] ^= 1;
    }
    if (has && core->checksum && rondo_hash(at, pull->meta.bytes, 0) != wanted) {
        return rondo_fail_quiet(
            RONDO_REMOTE_ERROR,
            "its %llu bytes of step %llu were changed on their way from rank %d: the checksum "
            "differs",
            (unsigned long long)pull->meta.bytes, (unsigned long long)content->step, pull->peer);
    }
    return RONDO_SUCCESS;
}

/* Check a content, and copy it from where it has landed to its place; a large one without the lock. */
static rondo_status move_on(struct rondo_tensor_pull *pull, const struct rondo_tensor_content *content)
{
    struct rondo_tensor_core *core = pull->request->core;
    int on_host = pull->gpu == RONDO_TENSOR_NO_GPU, lands = pull->landing != NULL;
    size_t bytes = pull->meta.bytes;
    int apart = on_host && bytes >= RONDO_TENSOR_APART && (lands || core->checksum);
    uint64_t nth = core->stats.pulled + 1;
    rondo_status status = RONDO_SUCCESS;
    if (apart) {
        pthread_mutex_unlock(&core->lock);
    }
    if (on_host || lands) {
        status = check(pull, content, lands ? pull->landing : pull->place, nth);
    }
    if (status == RONDO_SUCCESS && lands && on_host) {
        memcpy(pull->place, pull->landing, bytes);
    }
    if (apart) {
        pthread_mutex_lock(&core->lock);
    }
    core->stats.staged_bytes += status == RONDO_SUCCESS && lands ? bytes : 0;
    return status == RONDO_SUCCESS && lands && !on_host
               ? rondo_tensor_gpu_copy(&core->gpus, pull->gpu, pull->place, pull->landing, bytes)
               : status;
}

static rondo_status give_result(struct rondo_tensor_pull *pull, uint64_t step)
{
    rondo_tensor *result = pull->result;
    if (pull->unpacks) {
        RONDO_TRY(result->ops->unpack(result->arg, pull->place, pull->meta.bytes));
    } else if (pull->owns) {
        result->data = pull->place;
        pull->owns = 0; /* the user's now */
    }
    if (!pull->unpacks) {
        result->bytes = pull->meta.bytes;
    }
    result->type = pull->meta.type;
    result->ndims = pull->meta.ndims;
    memcpy(result->shape, pull->meta.shape, sizeof(result->shape));
    result->dead = pull->meta.dead;
    result->packed = pull->meta.packed;
    result->step = step;
    result->peer = pull->peer;
    return RONDO_SUCCESS;
}

static void tell_delivered(struct rondo_tensor_conn *conn, const struct rondo_tensor_content *content)
{
    struct rondo_tensor_message message = { .type = RONDO_TENSOR_DELIVERED,
                                            .index = content->index,
                                            .epoch = content->epoch };
    if ((content->flags & RONDO_TENSOR_CONTENT_TELL) != 0 && !conn->wire->delivers) {
        int soon = (content->flags & RONDO_TENSOR_CONTENT_SOON) != 0;
        rondo_tensor_conn_doom(conn, soon ? rondo_tensor_say(conn, &message)
                                          : rondo_tensor_say_later(conn, &message));
    }
}

int rondo_tensor_landed(struct rondo_tensor_conn *conn, const struct rondo_tensor_content *content,
                        rondo_status status)
{
    struct rondo_tensor_core *core = conn->core;
    struct rondo_tensor_pull *pull = pull_find(core, content->index);
    if (pull == NULL || pull->state != RONDO_TENSOR_PULL_PLACING) {
        return 0; /* the connection broke while it was copied */
    }
    if (status == RONDO_SUCCESS && !pull->given_up) {
        status = move_on(pull, content);
    }
    if (pull->given_up) {
        core->stats.dropped++;
        say_cancel(pull); /* it was not delivered */
        pull_end(pull, pull->request->status, pull->request->text);
        return 0;
    }
    status = status == RONDO_SUCCESS ? give_result(pull, content->step) : status;
    if (status != RONDO_SUCCESS) {
        withdraw(pull); /* it has come: nobody need say so */
        say_cancel(pull);
        pull_fail_with_error(pull, status);
        return 0;
    }
    core->stats.pulled++;
    core->stats.pulled_bytes += content->bytes;
    tell_delivered(conn, content);
    pull_end(pull, RONDO_SUCCESS, "");
    return 1;
}

/* ---- the end of a connection, or of the store ---- */

void rondo_tensor_pulls_drop(struct rondo_tensor_core *core, struct rondo_tensor_conn *conn,
                             rondo_status status, const char *text)
{
    for (size_t i = 0; i < core->pulls.nbuckets; i++) {
        for (struct rondo_tensor_node *node = core->pulls.bucket[i], *next; node != NULL; node = next) {
            struct rondo_tensor_pull *pull = (struct rondo_tensor_pull *)(void *)node;
            next = node->next;
            if (conn != NULL && pull->conn != conn) {
                continue;
            }
            /* A copy without the lock, and what the publisher writes by itself, end when the wire is closed,
             * and the pull with them. */
            if (pull->conn != NULL && pull->conn->busy &&
                (pull->state == RONDO_TENSOR_PULL_PLACING || pull->offered)) {
                pull_give_up(pull, status, text);
            } else {
                rondo_tensor_pull_fail(pull, status, text);
            }
        }
    }
}

void rondo_tensor_pulls_release(struct rondo_tensor_core *core)
{
    known_forget(core);
    map_empty(&core->found);
    rondo_tensor_map_release(&core->known);
    rondo_tensor_map_release(&core->found);
    rondo_tensor_map_release(&core->pulls);
}
