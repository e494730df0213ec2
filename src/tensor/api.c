/* rondo_tensor.h: arguments are checked, the store's lock taken, and the calling thread marked. */
#include <stdio.h>
#include <string.h>

#include "base/inside.h"
#include "base/log.h"
#include "base/param.h"
#include "tensor/life.h"

static struct rondo_shells stores = { .bytes = sizeof(struct rondo_tensor_store),
                                      .what = "a tensor store's handle",
                                      .alive_magic = RONDO_TENSOR_ALIVE };

static rondo_status not_alive(const rondo_tensor_store *store, const char *what)
{
    uint32_t magic = store != NULL ? __atomic_load_n(&store->shell.magic, __ATOMIC_RELAXED) : 0;
    return rondo_fail(magic == RONDO_SHELL_FORKED ? RONDO_INVALID_USAGE : RONDO_INVALID_ARGUMENT,
                      "%s: the tensor store %s", what,
                      store == NULL ? "is NULL: pass one that rondo_tensor_store_create returned"
                      : magic == RONDO_SHELL_DEAD   ? "was destroyed before this call"
                      : magic == RONDO_SHELL_FORKED ? "belongs to the parent of this process"
                                                    : "is none: was its creation successful?");
}

/* Mark the thread as inside a call. Callbacks of tensors run inside one, with the lock (but
 * pack). */
static rondo_status begin(const char *what)
{
    return rondo_is_inside_call()
               ? rondo_fail(
                     RONDO_INVALID_USAGE,
                     "%s is called inside another call of Rondo: the callbacks of a tensor, and signal "
                     "handlers, may not use a store",
                     what)
               : rondo_inside_begin(what);
}

/* A store that has failed does not say so before nobody reads the data of its publications any more: another
 * thread, a device, or a rank of this process. */
static void let_go_of_data(struct rondo_tensor_core *core)
{
    if (core->failure != RONDO_SUCCESS) {
        rondo_tensor_wait_for_copies(core, rondo_tensor_pubs_idle, core);
    }
}

/* Begin a public function: *core, locked, until leave. */
static rondo_status enter(rondo_tensor_store *store, const char *what, struct rondo_tensor_core **core)
{
    RONDO_TRY(begin(what));
    if (store == NULL || __atomic_load_n(&store->shell.magic, __ATOMIC_ACQUIRE) != RONDO_TENSOR_ALIVE) {
        rondo_inside_end();
        return not_alive(store, what);
    }
    *core = store->core;
    pthread_mutex_lock(&(*core)->lock);
    if ((*core)->failure != RONDO_SUCCESS) {
        let_go_of_data(*core);
        rondo_status status = rondo_fail_quiet((*core)->failure, "%s", (*core)->failure_text);
        pthread_mutex_unlock(&(*core)->lock);
        rondo_inside_end();
        return status;
    }
    return RONDO_SUCCESS;
}

static rondo_status leave(struct rondo_tensor_core *core, rondo_status status)
{
    pthread_mutex_unlock(&core->lock);
    rondo_inside_end();
    return status;
}

static rondo_status check_key(const char *what, const char *key)
{
    size_t bytes = key != NULL ? strnlen(key, RONDO_TENSOR_MAX_KEY + 1) : 0;
    if (bytes > 0 && bytes <= RONDO_TENSOR_MAX_KEY) {
        return RONDO_SUCCESS;
    }
    return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: the key \"%.40s%s\" %s; a key has 1 to %d bytes", what,
                      key != NULL ? key : "", bytes > 40 ? "..." : "",
                      key == NULL  ? "is NULL"
                      : bytes == 0 ? "is empty"
                                   : "is too long",
                      RONDO_TENSOR_MAX_KEY);
}

/* ---- requests ---- */

static rondo_status request_new(struct rondo_tensor_core *core, size_t npulls, size_t extra,
                                struct rondo_tensor_request **request_out)
{
    struct rondo_tensor_request *request;
    if (npulls > (SIZE_MAX / 2 - extra) / sizeof(request->pull[0])) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%zu tensors in one pull are too many", npulls);
    }
    RONDO_TRY(rondo_calloc(&request, 1, sizeof(*request) + npulls * sizeof(request->pull[0]) + extra,
                           "a request for tensors"));
    request->core = core;
    request->n = npulls;
    request->left = npulls;
    request->begun_ns = rondo_now_ns();
    request->next = core->requests;
    request->link = &core->requests;
    if (request->next != NULL) {
        request->next->link = &request->next;
    }
    core->requests = request;
    *request_out = request;
    return RONDO_SUCCESS;
}

static void request_free(struct rondo_tensor_request *request)
{
    *request->link = request->next;
    if (request->next != NULL) {
        request->next->link = request->link;
    }
    rondo_free(request);
}

static int request_done(void *arg) { return ((const struct rondo_tensor_request *)arg)->left == 0; }

/* Free a request that is done. @return its status, with its sentence. */
static rondo_status request_result(struct rondo_tensor_request *request)
{
    rondo_status status = request->status;
    if (status != RONDO_SUCCESS) {
        (void)rondo_fail_quiet(status, "%s", request->text);
    }
    request_free(request);
    return status;
}

/* The content of a pull that was given up may still be written: wait, and then end its connection. What
 * another thread copies without the lock ends when it has been copied, also when the store has failed. */
static void request_settle(struct rondo_tensor_request *request)
{
    struct rondo_tensor_core *core = request->core;
    if (request->left > 0 &&
        rondo_tensor_wait_until(core, request_done, request, RONDO_TENSOR_GRACE_NS) != RONDO_SUCCESS) {
        for (size_t i = 0; i < request->n; i++) {
            struct rondo_tensor_pull *pull = &request->pull[i];
            if (pull->state == RONDO_TENSOR_PULL_PLACING || pull->offered) {
                (void)rondo_fail_quiet(request->status, "%s", request->text);
                rondo_tensor_conn_break(pull->conn, request->status);
            }
        }
        rondo_tensor_wait_for_copies(core, request_done, request);
    }
}

/* What does a request wait for? */
static void describe(const struct rondo_tensor_request *request, char *text, size_t bytes)
{
    const struct rondo_tensor_core *core = request->core;
    const struct rondo_tensor_pull *pull = NULL;
    char step[32] = "the latest step", who[96] = "any rank", more[48] = "";
    if (request->is_publication) {
        snprintf(text, bytes, "not all pulls of a published tensor have landed");
        return;
    }
    for (size_t i = 0; i < request->n && pull == NULL; i++) {
        pull = request->pull[i].state != RONDO_TENSOR_PULL_DONE ? &request->pull[i] : NULL;
    }
    if (pull == NULL) {
        snprintf(text, bytes, "nothing is missing");
        return;
    }
    if (pull->step != RONDO_TENSOR_LATEST) {
        snprintf(step, sizeof(step), "step %llu", (unsigned long long)pull->step);
    }
    if (pull->peer >= 0) {
        rondo_tensor_who(core, pull->peer, who);
    }
    if (request->left > 1) {
        snprintf(more, sizeof(more), " (and %zu other tensors)", request->left - 1);
    }
    const char *why = "has not published it";
    if (pull->conn != NULL && pull->conn->state != RONDO_TENSOR_CONN_OPEN) {
        why = "has not answered at all: is its store created?";
    } else if (pull->state == RONDO_TENSOR_PULL_LOCATING) {
        why = "has not announced it";
    } else if (pull->conn != NULL && pull->conn->remote_busy) {
        why = "has not acknowledged a message";
    } else if (pull->state == RONDO_TENSOR_PULL_PLACING) {
        why = "has not sent all of it";
    }
    snprintf(text, bytes, "tensor \"%.100s\" at %s%s: %s %s", pull->key, step, more, who, why);
}

static rondo_status request_wait(struct rondo_tensor_request *request, int64_t timeout_ms)
{
    struct rondo_tensor_core *core = request->core;
    int64_t timeout_ns = timeout_ms == RONDO_CONFIG_DEFAULT ? core->timeout_ns : rondo_ms_to_ns(timeout_ms),
            begun_ns = rondo_now_ns();
    rondo_status status = rondo_tensor_wait_until(core, request_done, request, timeout_ns);
    if (status != RONDO_SUCCESS && request->left > 0) {
        char what[RONDO_ERROR_TEXT], text[RONDO_ERROR_TEXT + 64];
        if (status == RONDO_TIMEOUT) {
            describe(request, what, sizeof(what));
            snprintf(text, sizeof(text), "gave up after %.3f s: %s",
                     (double)(rondo_now_ns() - begun_ns) * 1e-9, what);
        } else {
            snprintf(text, sizeof(text), "%s", rondo_error_text());
        }
        rondo_tensor_request_give_up(request, status, text);
        rondo_tensor_flush_all(core); /* the cancellations */
        request_settle(request);
    }
    let_go_of_data(core);
    return request_result(request);
}

/* Hand the request to the user, or wait for it. */
static rondo_status request_return(struct rondo_tensor_request *request, rondo_tensor_request **out)
{
    if (out == NULL) {
        return request_wait(request, RONDO_CONFIG_DEFAULT);
    }
    *out = request;
    return RONDO_SUCCESS;
}

static rondo_status request_enter(rondo_tensor_request *request, const char *what)
{
    RONDO_TRY(begin(what));
    if (request == NULL) {
        rondo_inside_end();
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: the request is NULL", what);
    }
    if (request->core->forks != rondo_tensor_forks) { /* a thread of the parent may hold the lock */
        rondo_inside_end();
        return rondo_fail(RONDO_INVALID_USAGE, "%s: the request belongs to the parent of this process", what);
    }
    pthread_mutex_lock(&request->core->lock);
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_wait(rondo_tensor_request *request, int64_t timeout_ms)
{
    RONDO_TRY(request_enter(request, "rondo_tensor_wait"));
    struct rondo_tensor_core *core = request->core;
    if (timeout_ms < RONDO_CONFIG_DEFAULT) {
        return leave(core, rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_tensor_wait: a time of %lld ms",
                                      (long long)timeout_ms));
    }
    return leave(core, request_wait(request, timeout_ms));
}

rondo_status rondo_tensor_test(rondo_tensor_request *request, int *done)
{
    int moved = 0;
    if (done == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_tensor_test: the place for the answer is NULL");
    }
    RONDO_TRY(request_enter(request, "rondo_tensor_test"));
    struct rondo_tensor_core *core = request->core;
    rondo_tensor_progress(core, &moved);
    *done = request->left == 0 && (core->failure == RONDO_SUCCESS || rondo_tensor_pubs_idle(core));
    return leave(core, *done ? request_result(request) : RONDO_SUCCESS);
}

rondo_status rondo_tensor_cancel(rondo_tensor_request *request)
{
    RONDO_TRY(request_enter(request, "rondo_tensor_cancel"));
    rondo_tensor_request_give_up(request, RONDO_INVALID_USAGE, "the request was cancelled");
    rondo_tensor_flush_all(request->core);
    return leave(request->core, RONDO_SUCCESS);
}

/* ---- stores ---- */

static rondo_status check_config(const rondo_tensor_config *config, rondo_tensor_config *out)
{
    static const rondo_tensor_config defaults = RONDO_TENSOR_CONFIG_INIT;
    *out = defaults;
    if (config == NULL) {
        return RONDO_SUCCESS;
    }
    if (config->size < sizeof(size_t) || config->size > sizeof(*config) + 4096) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "rondo_tensor_store_create: the config has size %zu: fill it with "
                          "RONDO_TENSOR_CONFIG_INIT",
                          config->size);
    }
    memcpy(out, config, rondo_min_size(config->size, sizeof(*out)));
    if (out->timeout_ms < RONDO_CONFIG_DEFAULT || out->arena_bytes > SIZE_MAX / 4 ||
        out->checksum < RONDO_CONFIG_DEFAULT || out->checksum > 1 || out->thread < 0 || out->thread > 1) {
        return rondo_fail(
            RONDO_INVALID_ARGUMENT,
            "rondo_tensor_store_create: timeout_ms %lld, arena_bytes %zu, checksum %d, thread %d",
            (long long)out->timeout_ms, out->arena_bytes, out->checksum, out->thread);
    }
    return RONDO_SUCCESS;
}

static rondo_status create(rondo_comm *comm, const rondo_tensor_config *config,
                           struct rondo_tensor_core **core)
{
    struct rondo_ctx *ctx;
    rondo_tensor_config checked;
    rondo_status status;
    RONDO_TRY(rondo_comm_enter(comm, "rondo_tensor_store_create", &ctx));
    status = rondo_ctx_ready(ctx);
    if (status == RONDO_SUCCESS) {
        uint32_t number = ctx->nstores++; /* on all ranks, also where the rest fails */
        status = check_config(config, &checked);
        status = status == RONDO_SUCCESS ? rondo_tensor_core_create(ctx, number, &checked, core) : status;
    }
    status = rondo_ctx_keep_error(ctx, status);
    rondo_comm_leave(comm);
    return status;
}

/* Creating and destroying a store are calls of the communicator, too, which a group would keep. */
static rondo_status outside_groups(const char *what)
{
    return rondo_open_groups() == 0
               ? RONDO_SUCCESS
               : rondo_fail(RONDO_INVALID_USAGE,
                            "%s inside rondo_group_start: call it before, or after rondo_group_end", what);
}

/* All ranks have created their end, or all fail. */
static rondo_status agree(rondo_comm *comm, rondo_status status)
{
    char text[RONDO_ERROR_TEXT];
    int32_t mine = status, worst = 0;
    int device = -1;
    snprintf(text, sizeof(text), "%s", rondo_error_text());
    if (rondo_comm_device(comm, &device) == RONDO_SUCCESS && device >= 0) {
        return rondo_fail_quiet(status, "%s", text); /* all were refused, and mine is no memory of a GPU */
    }
    rondo_status agreed = rondo_all_reduce(&mine, &worst, 1, RONDO_INT32, RONDO_MAX, comm, NULL);
    if (status != RONDO_SUCCESS) {
        return rondo_fail_quiet(status, "%s", text);
    }
    RONDO_TRY(agreed);
    return worst == RONDO_SUCCESS
               ? RONDO_SUCCESS
               : rondo_fail(RONDO_REMOTE_ERROR,
                            "another rank could not create its end of the tensor store: %s; it "
                            "has logged why",
                            rondo_status_string((rondo_status)worst));
}

rondo_status rondo_tensor_store_create(rondo_comm *comm, const rondo_tensor_config *config,
                                       rondo_tensor_store **store_out)
{
    struct rondo_tensor_core *core = NULL;
    void *memory = NULL;
    rondo_status status;
    if (store_out == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "rondo_tensor_store_create: the place for the store is NULL");
    }
    RONDO_TRY(rondo_inside_check("rondo_tensor_store_create"));
    RONDO_TRY(outside_groups("rondo_tensor_store_create"));
    status = create(comm, config, &core);
    status = status == RONDO_SUCCESS ? rondo_shell_create(&stores, &memory) : status;
    struct rondo_tensor_store *store = memory;
    status = agree(comm, status);
    if (status != RONDO_SUCCESS) {
        char text[RONDO_ERROR_TEXT];
        snprintf(text, sizeof(text), "%s", rondo_error_text());
        if (core != NULL) {
            rondo_tensor_core_discard(core);
        }
        if (store != NULL) {
            __atomic_store_n(&store->shell.magic, RONDO_SHELL_DEAD, __ATOMIC_RELEASE);
            rondo_shell_bury(&stores, &store->shell);
        }
        return rondo_fail_quiet(status, "%s", text);
    }
    store->core = core;
    rondo_shell_publish(&stores, &store->shell);
    *store_out = store;
    return RONDO_SUCCESS;
}

rondo_status rondo_tensor_store_destroy(rondo_tensor_store *store)
{
    rondo_status status;
    RONDO_TRY(rondo_inside_check("rondo_tensor_store_destroy"));
    RONDO_TRY(outside_groups("rondo_tensor_store_destroy"));
    if (store == NULL || !rondo_shell_kill(&stores, &store->shell)) {
        return not_alive(store, "rondo_tensor_store_destroy");
    }
    status = rondo_tensor_core_destroy(store->core);
    store->core = NULL;
    rondo_shell_bury(&stores, &store->shell);
    return status;
}

rondo_status rondo_tensor_store_stats(rondo_tensor_store *store, rondo_tensor_stats *stats)
{
    struct rondo_tensor_core *core;
    if (stats == NULL || stats->size < sizeof(size_t) || stats->size > sizeof(*stats) + 4096) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "rondo_tensor_store_stats: set the size of the place first");
    }
    RONDO_TRY(enter(store, "rondo_tensor_store_stats", &core));
    size_t size = rondo_min_size(stats->size, sizeof(*stats));
    rondo_tensor_stats all = core->stats;
    all.arenas = core->arenas.n;
    all.arenas_made = core->arenas.made;
    all.size = size;
    memcpy(stats, &all, size);
    return leave(core, RONDO_SUCCESS);
}

/* ---- publishing ---- */

static rondo_status publish(rondo_tensor_store *store, const char *what, const char *key, uint64_t step,
                            const rondo_tensor *tensor, uint64_t pulls, int announce,
                            rondo_tensor_request **request_out)
{
    struct rondo_tensor_core *core;
    struct rondo_tensor_request *request = NULL;
    rondo_status status;
    RONDO_TRY(check_key(what, key));
    if (tensor == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: the tensor is NULL", what);
    }
    RONDO_TRY(enter(store, what, &core));
    if (request_out != NULL) {
        status = request_new(core, 0, 0, &request);
        if (status != RONDO_SUCCESS) {
            return leave(core, status);
        }
        request->is_publication = 1;
        request->left = 1;
    }
    status = rondo_tensor_pub_add(core, key, step, tensor, pulls, announce, request);
    if (status != RONDO_SUCCESS) {
        if (request != NULL) {
            request_free(request);
        }
        return leave(core, status);
    }
    if (request_out != NULL) {
        *request_out = request;
    }
    (void)rondo_tensor_fill(core); /* for those that have waited for it */
    return leave(core, RONDO_SUCCESS);
}

rondo_status rondo_tensor_publish(rondo_tensor_store *store, const char *key, uint64_t step,
                                  const rondo_tensor *tensor, uint64_t pulls, rondo_tensor_request **request)
{
    return publish(store, "rondo_tensor_publish", key, step, tensor, pulls, 0, request);
}

rondo_status rondo_tensor_announce(rondo_tensor_store *store, const char *key, uint64_t step,
                                   const rondo_tensor *tensor, uint64_t pulls, rondo_tensor_request **request)
{
    return publish(store, "rondo_tensor_announce", key, step, tensor, pulls, 1, request);
}

rondo_status rondo_tensor_send(rondo_tensor_store *store, const char *key, uint64_t step,
                               const rondo_tensor *tensor, rondo_tensor_request **request)
{
    return publish(store, "rondo_tensor_send", key, step, tensor, 1, 0, request);
}

rondo_status rondo_tensor_publish_error(rondo_tensor_store *store, const char *key, uint64_t step,
                                        rondo_status error, const char *text)
{
    struct rondo_tensor_core *core;
    RONDO_TRY(check_key("rondo_tensor_publish_error", key));
    if (error <= RONDO_SUCCESS || error >= RONDO_NUM_STATUSES || error == RONDO_IN_PROGRESS || text == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "rondo_tensor_publish_error: status %d is no error, or the text is NULL",
                          (int)error);
    }
    RONDO_TRY(enter(store, "rondo_tensor_publish_error", &core));
    return leave(core, rondo_tensor_pub_add_error(core, key, step, error, text));
}

static rondo_status wait_for_data(struct rondo_tensor_core *core, const char *what)
{
    rondo_status status = rondo_tensor_wait_until(core, rondo_tensor_pubs_idle, core, core->timeout_ns);
    if (status == RONDO_TIMEOUT) {
        return rondo_fail(
            RONDO_TIMEOUT,
            "rank %d on %s: %s gave up after %.3f s: a rank that pulls a tensor has not taken its "
            "content; the tensor's data must stay until it has",
            core->rank, rondo_log_host(), what, (double)core->timeout_ns * 1e-9);
    }
    let_go_of_data(core);
    return status;
}

rondo_status rondo_tensor_retire(rondo_tensor_store *store, uint64_t step)
{
    struct rondo_tensor_core *core;
    if (step > RONDO_TENSOR_MAX_STEP) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_tensor_retire: RONDO_TENSOR_LATEST is no step");
    }
    RONDO_TRY(enter(store, "rondo_tensor_retire", &core));
    rondo_tensor_pubs_retire(core, step, 0);
    return leave(core, wait_for_data(core, "rondo_tensor_retire"));
}

rondo_status rondo_tensor_next_epoch(rondo_tensor_store *store)
{
    struct rondo_tensor_core *core;
    RONDO_TRY(enter(store, "rondo_tensor_next_epoch", &core));
    for (struct rondo_tensor_request *request = core->requests; request != NULL; request = request->next) {
        if (!request->is_publication) {
            rondo_tensor_request_give_up(request, RONDO_INVALID_USAGE, "the epoch has ended");
        }
    }
    rondo_tensor_flush_all(core);
    rondo_tensor_pubs_retire(core, 0, 1);
    core->epoch++;
    core->has_retired = 0;
    rondo_tensor_later_replay(core);
    rondo_tensor_flush_all(core);
    return leave(core, wait_for_data(core, "rondo_tensor_next_epoch"));
}

/* ---- pulling ---- */

static rondo_status check_item(const struct rondo_tensor_core *core, const char *what,
                               const rondo_tensor_item *item)
{
    RONDO_TRY(check_key(what, item->key));
    if (item->tensor == NULL || (unsigned)item->slice.part > RONDO_TENSOR_ROWS) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: tensor \"%s\": %s", what, item->key,
                          item->tensor == NULL ? "the place for it is NULL"
                                               : "the slice is of no known kind");
    }
    if (item->tensor->memory != RONDO_TENSOR_HOST && item->tensor->memory != RONDO_TENSOR_CUDA) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "%s: tensor \"%s\": its memory is of no known kind (%d)",
                          what, item->key, item->tensor->memory);
    }
    if (item->peer != RONDO_TENSOR_ANY && (item->peer < 0 || item->peer >= core->nranks)) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "%s: tensor \"%s\": there is no rank %d; the communicator has %d", what, item->key,
                          item->peer, core->nranks);
    }
    return RONDO_SUCCESS;
}

static void fill_pull(struct rondo_tensor_request *request, size_t i, const rondo_tensor_item *item,
                      char **keys)
{
    struct rondo_tensor_pull *pull = &request->pull[i];
    pull->request = request;
    pull->peer = item->peer;
    pull->any = item->peer == RONDO_TENSOR_ANY;
    pull->step = item->step;
    pull->slice = item->slice;
    if (pull->slice.part == RONDO_TENSOR_ALL) {
        pull->slice.first = pull->slice.count = 0;
    }
    pull->key_bytes = strlen(item->key);
    pull->key = memcpy(*keys, item->key, pull->key_bytes + 1);
    *keys += pull->key_bytes + 1;
    pull->result = item->tensor;
    pull->gpu = RONDO_TENSOR_NO_GPU;
}

static rondo_status pull(rondo_tensor_store *store, const char *what, rondo_tensor_item *items, size_t n,
                         int reports, rondo_tensor_request **request_out)
{
    struct rondo_tensor_core *core;
    struct rondo_tensor_request *request = NULL;
    size_t keys_bytes = 0;
    rondo_status status = RONDO_SUCCESS;
    RONDO_TRY(enter(store, what, &core));
    for (size_t i = 0; i < n && status == RONDO_SUCCESS; i++) {
        status = check_item(core, what, &items[i]);
        keys_bytes += status == RONDO_SUCCESS ? strlen(items[i].key) + 1 : 0;
    }
    status = status == RONDO_SUCCESS ? request_new(core, n, keys_bytes, &request) : status;
    if (status != RONDO_SUCCESS) {
        return leave(core, status);
    }
    char *keys = (char *)&request->pull[n];
    for (size_t i = 0; i < n; i++) {
        fill_pull(request, i, &items[i], &keys);
        if (reports) {
            items[i].status = RONDO_IN_PROGRESS;
            request->pull[i].status = &items[i].status;
        }
    }
    rondo_tensor_pulls_begin(request);
    return leave(core, request_return(request, request_out));
}

rondo_status rondo_tensor_pull(rondo_tensor_store *store, const char *key, int peer, uint64_t step,
                               const rondo_tensor_slice *slice, rondo_tensor *tensor,
                               rondo_tensor_request **request)
{
    rondo_tensor_item item = { .key = key, .peer = peer, .step = step, .tensor = tensor };
    if (slice != NULL) {
        item.slice = *slice;
    }
    return pull(store, "rondo_tensor_pull", &item, 1, 0, request);
}

rondo_status rondo_tensor_recv(rondo_tensor_store *store, const char *key, int peer, uint64_t step,
                               rondo_tensor *tensor, rondo_tensor_request **request)
{
    return rondo_tensor_pull(store, key, peer, step, NULL, tensor, request);
}

rondo_status rondo_tensor_pull_many(rondo_tensor_store *store, rondo_tensor_item *items, size_t n,
                                    rondo_tensor_request **request)
{
    if (items == NULL && n > 0) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_tensor_pull_many: the items are NULL");
    }
    return pull(store, "rondo_tensor_pull_many", items, n, 1, request);
}

/* ---- memory ---- */

rondo_status rondo_tensor_alloc(rondo_tensor_store *store, size_t bytes, void **data)
{
    struct rondo_tensor_core *core;
    if (data == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_tensor_alloc: the place for the address is NULL");
    }
    RONDO_TRY(enter(store, "rondo_tensor_alloc", &core));
    return leave(core, rondo_tensor_arenas_alloc(&core->arenas, bytes, data));
}

rondo_status rondo_tensor_free(rondo_tensor_store *store, void *data)
{
    RONDO_TRY(begin("rondo_tensor_free"));
    if (store == NULL || __atomic_load_n(&store->shell.magic, __ATOMIC_ACQUIRE) != RONDO_TENSOR_ALIVE) {
        rondo_inside_end();
        return not_alive(store, "rondo_tensor_free");
    }
    struct rondo_tensor_core *core = store->core; /* also of a store that has failed */
    pthread_mutex_lock(&core->lock);
    int freed = data == NULL || rondo_tensor_arenas_free(&core->arenas, data) ||
                rondo_tensor_gpu_free(&core->gpus, data);
    return leave(core,
                 freed ? RONDO_SUCCESS
                       : rondo_fail(RONDO_INVALID_ARGUMENT,
                                    "rondo_tensor_free: %p is not memory of this store, or was freed", data));
}
