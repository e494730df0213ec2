/* What this rank publishes: keys, their publications, and the end of these. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "tensor/answer.h"

/* ---- keys ---- */

struct rondo_tensor_key *rondo_tensor_key_find(const struct rondo_tensor_core *core, const char *text,
                                               size_t bytes)
{
    struct rondo_tensor_node *node = rondo_tensor_map_first(&core->keys, rondo_tensor_key_hash(text, bytes));
    for (; node != NULL; node = rondo_tensor_map_next(node)) {
        struct rondo_tensor_key *key = (struct rondo_tensor_key *)(void *)node;
        if (key->bytes == bytes && memcmp(key->text, text, bytes) == 0) {
            return key;
        }
    }
    return NULL;
}

rondo_status rondo_tensor_key_get(struct rondo_tensor_core *core, const char *text, size_t bytes,
                                  struct rondo_tensor_key **key_out)
{
    struct rondo_tensor_key *key = rondo_tensor_key_find(core, text, bytes);
    if (key == NULL) {
        RONDO_TRY(rondo_tensor_map_reserve(&core->keys));
        RONDO_TRY(rondo_calloc(&key, 1, sizeof(*key) + bytes + 1, "the key of a tensor"));
        key->bytes = bytes;
        memcpy(key->text, text, bytes);
        rondo_tensor_map_add(&core->keys, &key->node, rondo_tensor_key_hash(text, bytes));
    }
    *key_out = key;
    return RONDO_SUCCESS;
}

void rondo_tensor_key_settle(struct rondo_tensor_core *core, struct rondo_tensor_key *key)
{
    if (key->pubs == NULL && key->waiting == NULL && !key->announced) {
        rondo_tensor_map_remove(&core->keys, &key->node);
        rondo_free(key);
    }
}

/* ---- publications ---- */

static void pub_release_data(struct rondo_tensor_pub *pub)
{
    const rondo_tensor_ops *ops = pub->tensor.ops;
    if (ops != NULL && ops->release != NULL) {
        ops->release(pub->tensor.arg, pub->tensor.data);
    }
    pub->tensor.ops = NULL;
}

static void request_done(struct rondo_tensor_pub *pub, rondo_status status, const char *text)
{
    struct rondo_tensor_request *request = pub->request;
    pub->request = NULL;
    if (request != NULL) {
        request->pub = NULL;
        request->status = status;
        snprintf(request->text, sizeof(request->text), "%s", text);
        request->left = 0;
    }
}

void rondo_tensor_pub_forget(struct rondo_tensor_pub *pub) { pub->request = NULL; }

static void pub_unlink(struct rondo_tensor_core *core, struct rondo_tensor_pub *pub)
{
    struct rondo_tensor_key *key = pub->key;
    struct rondo_tensor_pub **at = &key->pubs;
    while (*at != pub) {
        at = &(*at)->next;
    }
    *at = pub->next;
    pub->key = NULL;
    pub->ended = 1;
    rondo_tensor_key_settle(core, key);
}

/* End or free a publication that has nothing left to do. */
void rondo_tensor_pub_settle(struct rondo_tensor_core *core, struct rondo_tensor_pub *pub)
{
    if (!pub->ended && pub->left == 0 && pub->unlanded == 0) {
        pub_unlink(core, pub);
    }
    if (pub->ended && pub->holds == 0) {
        pub_release_data(pub);
    }
    if (pub->ended && pub->holds == 0 && pub->unlanded == 0) {
        request_done(pub, RONDO_SUCCESS, "");
        rondo_free(pub->text);
        rondo_free(pub);
    }
}

struct rondo_tensor_pub *rondo_tensor_pub_match(const struct rondo_tensor_key *key, uint64_t step)
{
    struct rondo_tensor_pub *pub = key->pubs;
    while (pub != NULL && (pub->left == 0 || (step != RONDO_TENSOR_LATEST && pub->step != step))) {
        pub = pub->next;
    }
    return pub;
}

/* ---- publishing ---- */

int rondo_tensor_is_retired(const struct rondo_tensor_core *core, uint64_t step)
{
    return core->has_retired && step != RONDO_TENSOR_LATEST && step <= core->retired;
}

/* Check where a tensor lies. *gpu: of its data. */
static rondo_status check_memory(const rondo_tensor *tensor, int packed, int *gpu)
{
    *gpu = RONDO_TENSOR_NO_GPU;
    if (tensor->memory != RONDO_TENSOR_HOST && tensor->memory != RONDO_TENSOR_CUDA) {
        return rondo_fail_quiet(RONDO_INVALID_ARGUMENT, "its memory is of no known kind (%d)",
                                tensor->memory);
    }
    if (packed || tensor->bytes == 0) {
        return RONDO_SUCCESS;
    }
    if (tensor->data == NULL) {
        return rondo_fail_quiet(RONDO_INVALID_ARGUMENT, "its data is NULL");
    }
    return tensor->memory == RONDO_TENSOR_CUDA ? rondo_tensor_gpu_of(tensor->data, tensor->bytes, gpu)
                                               : RONDO_SUCCESS;
}

static rondo_status check_tensor(const struct rondo_tensor_core *core, const char *key,
                                 const rondo_tensor *tensor, struct rondo_tensor_meta *meta, int *gpu)
{
    size_t size = rondo_dtype_size(tensor->type);
    char text[RONDO_ERROR_TEXT];
    *meta = (struct rondo_tensor_meta){ .type = tensor->type,
                                        .dead = tensor->dead != 0,
                                        .packed = tensor->ops != NULL && tensor->ops->pack != NULL,
                                        .ndims = tensor->ndims,
                                        .bytes = tensor->bytes };
    for (int i = 0; i < tensor->ndims && i < RONDO_TENSOR_MAX_DIMS; i++) {
        meta->shape[i] = tensor->shape[i];
    }
    if (tensor->ndims == 0 && size > 0 && tensor->bytes % size == 0) {
        meta->ndims = 1;
        meta->shape[0] = (int64_t)(tensor->bytes / size);
    }
    rondo_status status = rondo_tensor_meta_check(meta);
    status = status == RONDO_SUCCESS ? check_memory(tensor, meta->packed, gpu) : status;
    if (status == RONDO_SUCCESS) {
        return RONDO_SUCCESS;
    }
    snprintf(text, sizeof(text), "%s", rondo_error_text());
    return rondo_fail(status == RONDO_REMOTE_ERROR ? RONDO_INVALID_ARGUMENT : status,
                      "rank %d on %s cannot publish tensor \"%s\": %s", core->rank, rondo_log_host(), key,
                      text);
}

static rondo_status pub_insert(struct rondo_tensor_core *core, const char *text, struct rondo_tensor_pub *pub)
{
    struct rondo_tensor_key *key;
    struct rondo_tensor_pub **at;
    if (rondo_tensor_is_retired(core, pub->step) || pub->step > RONDO_TENSOR_MAX_STEP) {
        return rondo_fail(RONDO_INVALID_USAGE,
                          "rank %d on %s: tensor \"%s\" cannot be published at step %llu: %s", core->rank,
                          rondo_log_host(), text, (unsigned long long)pub->step,
                          pub->step > RONDO_TENSOR_MAX_STEP ? "that is RONDO_TENSOR_LATEST"
                                                            : "the step was retired; use a higher one, or "
                                                              "rondo_tensor_next_epoch");
    }
    RONDO_TRY(rondo_tensor_key_get(core, text, strlen(text), &key));
    for (at = &key->pubs; *at != NULL && (*at)->step > pub->step; at = &(*at)->next) {
    }
    for (struct rondo_tensor_pub *same = *at; same != NULL && same->step == pub->step; same = same->next) {
        if (same->left > 0) {
            return rondo_fail(
                RONDO_INVALID_USAGE,
                "rank %d on %s: tensor \"%s\" is published at step %llu already, and not pulled yet: "
                "retire the step first, or use another one",
                core->rank, rondo_log_host(), text, (unsigned long long)pub->step);
        }
    }
    pub->next = *at;
    pub->key = key;
    *at = pub;
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_pub_add(struct rondo_tensor_core *core, const char *key, uint64_t step,
                                  const rondo_tensor *tensor, uint64_t pulls, int announce,
                                  struct rondo_tensor_request *request)
{
    struct rondo_tensor_pub *pub;
    struct rondo_tensor_meta meta;
    rondo_status status;
    int gpu;
    RONDO_TRY(check_tensor(core, key, tensor, &meta, &gpu));
    RONDO_TRY(RONDO_NEW(pub, "a published tensor"));
    pub->step = step;
    pub->left = pulls == RONDO_TENSOR_UNTIL_RETIRED ? UINT64_MAX : pulls;
    pub->tensor = *tensor;
    pub->gpu = gpu;
    pub->meta = meta;
    status = pub_insert(core, key, pub);
    if (status != RONDO_SUCCESS) {
        rondo_free(pub);
        return status;
    }
    if (announce) {
        status = rondo_tensor_announce_key(core, pub->key);
        if (status != RONDO_SUCCESS) {
            pub->tensor.ops = NULL;
            pub_unlink(core, pub);
            rondo_tensor_pub_settle(core, pub);
            return status;
        }
    }
    pub->request = request;
    if (request != NULL) {
        request->pub = pub;
    }
    if (rondo_tensor_serve_waiting(core, pub->key, step)) {
        rondo_tensor_flush_all(core);
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_pub_add_error(struct rondo_tensor_core *core, const char *key, uint64_t step,
                                        rondo_status status, const char *text)
{
    struct rondo_tensor_pub *pub;
    rondo_status inserted;
    size_t bytes = rondo_min_size(strlen(text), RONDO_TENSOR_MAX_TEXT);
    RONDO_TRY(RONDO_NEW(pub, "a published error"));
    inserted = rondo_calloc(&pub->text, 1, bytes + 1, "the text of an error");
    pub->step = step;
    pub->left = UINT64_MAX;
    pub->status = status;
    if (inserted == RONDO_SUCCESS) {
        memcpy(pub->text, text, bytes);
        inserted = pub_insert(core, key, pub);
    }
    if (inserted != RONDO_SUCCESS) {
        rondo_free(pub->text);
        rondo_free(pub);
        return inserted;
    }
    if (rondo_tensor_serve_waiting(core, pub->key, step)) {
        rondo_tensor_flush_all(core);
    }
    return RONDO_SUCCESS;
}

/* ---- the end of publications ---- */

void rondo_tensor_pubs_retire(struct rondo_tensor_core *core, uint64_t step, int all)
{
    struct rondo_tensor_pub *ended = NULL, *pub;
    if (!all) {
        core->retired = core->has_retired && core->retired > step ? core->retired : step;
        core->has_retired = 1;
    }
    for (size_t i = 0; i < core->keys.nbuckets; i++) {
        for (struct rondo_tensor_node *node = core->keys.bucket[i], *next; node != NULL; node = next) {
            struct rondo_tensor_key *key = (struct rondo_tensor_key *)(void *)node;
            struct rondo_tensor_pub **at = &key->pubs;
            next = node->next;
            rondo_tensor_end_waiting(core, key, all);
            while (*at != NULL) {
                pub = *at;
                if (!all && pub->step > step) {
                    at = &pub->next;
                    continue;
                }
                *at = pub->next;
                pub->key = NULL;
                pub->ended = 1;
                pub->holds++; /* until the list has been walked */
                pub->next = ended;
                ended = pub;
            }
            rondo_tensor_key_settle(core, key);
        }
    }
    for (struct rondo_tensor_conn *conn = core->conns; conn != NULL; conn = conn->next) {
        rondo_tensor_responses_leave(conn, all);
        rondo_tensor_conn_flush(conn);
    }
    while ((pub = ended) != NULL) {
        ended = pub->next;
        pub->holds--;
        rondo_tensor_pub_settle(core, pub);
    }
}

static int is_under_way(const struct rondo_tensor_response *response)
{
    return response->state == RONDO_TENSOR_QUEUED || response->state == RONDO_TENSOR_SENDING;
}

static int holds_ended(const struct rondo_tensor_response *response)
{
    return response->pub != NULL && response->pub->ended && response->holds;
}

static int is_any(const struct rondo_tensor_core *core, int (*is)(const struct rondo_tensor_response *))
{
    for (const struct rondo_tensor_conn *conn = core->conns; conn != NULL; conn = conn->next) {
        for (size_t i = 0; i < conn->responses.nbuckets; i++) {
            for (const struct rondo_tensor_node *at = conn->responses.bucket[i]; at != NULL; at = at->next) {
                if (is((const struct rondo_tensor_response *)(const void *)at)) {
                    return 1;
                }
            }
        }
    }
    return 0;
}

int rondo_tensor_serves(const struct rondo_tensor_core *core)
{
    return core->filling != NULL || is_any(core, is_under_way);
}

int rondo_tensor_pubs_idle(void *arg)
{
    const struct rondo_tensor_core *core = arg;
    return (core->filling == NULL || !core->filling->pub->ended) && !is_any(core, holds_ended);
}

void rondo_tensor_pubs_release(struct rondo_tensor_core *core)
{
    struct rondo_tensor_node *node;
    size_t from = 0;
    while ((node = rondo_tensor_map_any(&core->keys, &from)) != NULL) {
        struct rondo_tensor_key *key = (struct rondo_tensor_key *)(void *)node;
        rondo_tensor_map_remove(&core->keys, node);
        rondo_free(key);
    }
    rondo_tensor_map_release(&core->keys);
    rondo_tensor_map_release(&core->waits);
    from = 0;
    while ((node = rondo_tensor_map_any(&core->homes, &from)) != NULL) {
        rondo_tensor_map_remove(&core->homes, node);
        rondo_free(node);
    }
    rondo_tensor_map_release(&core->homes);
    while (core->spare != NULL) {
        struct rondo_tensor_response *response = core->spare;
        core->spare = response->next;
        rondo_free(response);
    }
}
