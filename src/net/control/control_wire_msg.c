/* Messages between nodes: their windows, by rank and tag, and those that wait for their rank. */
#include "net/control/control_wire.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

#define POLL_NS (20 * INT64_C(1000)) /* between polls by waiting threads: each is a system call */

/* A rank that has left or exited sends and takes no more. */
static int may_get_msg(int state) { return state == RONDO_RANK_ALIVE || state == RONDO_RANK_SILENT; }

/* ---- windows ---- */

/* @return the link to a window, or to where it would be. */
static struct rondo_wire_window **window_at(struct rondo_wire_window **buckets, int rank, uint64_t tag)
{
    struct rondo_wire_window **link = &buckets[(tag + (tag >> 32) + (uint64_t)rank) % RONDO_WIRE_BUCKETS];
    while (*link && ((*link)->rank != rank || (*link)->tag != tag)) {
        link = &(*link)->next;
    }
    return link;
}

/* Find or make the window of a rank and a tag. @return NULL: no memory. */
static struct rondo_wire_window *window_need(struct rondo_wire_window **buckets, int rank, uint64_t tag)
{
    struct rondo_wire_window **link = window_at(buckets, rank, tag);
    if (*link == NULL && RONDO_NEW(*link, "a window of messages") == RONDO_SUCCESS) {
        (*link)->rank = rank;
        (*link)->tag = tag;
    }
    return *link;
}

static int is_full(struct rondo_wire_window **buckets, int rank, uint64_t tag)
{
    const struct rondo_wire_window *window = *window_at(buckets, rank, tag);
    return window && window->messages >= RONDO_WIRE_WINDOW;
}

static void window_free(struct rondo_wire_window **link)
{
    struct rondo_wire_window *window = *link;
    *link = window->next;
    rondo_free(window);
}

/* Give the sender credit for the messages taken, if they are at least `least`; free the window once it is
 * empty. @return 1: freed */
static int credit(struct rondo_control *control, struct rondo_wire_window **link, unsigned least)
{
    struct rondo_wire_window *window = *link;
    uint32_t n = window->taken;
    if (n < least) {
        return 0;
    }
    if (may_get_msg(rondo_wire_state_of(control, window->rank)) &&
        !rondo_wire_say(control, window->rank, RONDO_WIRE_CREDIT, window->tag, &n, sizeof(n))) {
        control->wire->debt = 1;
        return 0;
    }
    window->taken = 0;
    window->messages = (uint8_t)(window->messages - n);
    if (window->messages > 0) {
        return 0;
    }
    window_free(link);
    return 1;
}

void rondo_wire_repay(struct rondo_control *control)
{
    struct rondo_wire_part *part = control->wire;
    if (!part->debt) {
        return;
    }
    part->debt = 0;
    for (int i = 0; i < RONDO_WIRE_BUCKETS; i++) {
        for (struct rondo_wire_window **link = &part->window_in[i]; *link;) {
            link = credit(control, link, 1) ? link : &(*link)->next;
        }
    }
}

int rondo_wire_on_credit(struct rondo_control *control, const struct rondo_wire_head *head, const void *data)
{
    struct rondo_wire_window **link = window_at(control->wire->window_out, head->from, head->tag);
    uint32_t n;
    if (head->bytes != sizeof(n)) {
        return 0;
    }
    memcpy(&n, data, sizeof(n));
    if (n == 0 || n > RONDO_WIRE_WINDOW) {
        return 0;
    }
    if (*link == NULL) {
        return 1; /* the tag was forgotten here meanwhile */
    }
    if (n > (*link)->messages) {
        return 0;
    }
    (*link)->messages = (uint8_t)((*link)->messages - n);
    if ((*link)->messages == 0) {
        window_free(link);
    }
    return 1;
}

/* ---- sending ---- */

static rondo_status send_on(struct rondo_wire_part *part, struct rondo_wire_conn *conn,
                            const struct rondo_wire_head *head, const void *data)
{
    struct rondo_wire_window *window = window_need(part->window_out, head->to, head->tag);
    if (window == NULL) {
        return RONDO_SYSTEM_ERROR;
    }
    if (rondo_wire_put(conn, head, data, RONDO_WIRE_RESERVE)) {
        window->messages++;
        return RONDO_SUCCESS;
    }
    if (window->messages == 0) {
        window_free(window_at(part->window_out, head->to, head->tag));
    }
    return RONDO_IN_PROGRESS;
}

rondo_status rondo_wire_send(struct rondo_control *control, int rank, uint64_t tag, const void *data,
                             size_t bytes)
{
    struct rondo_wire_part *part = control->wire;
    struct rondo_wire_head head = rondo_wire_head_of(control, rank, RONDO_WIRE_MSG, tag, bytes);
    struct rondo_wire_conn *conn;
    int state = rondo_wire_state_of(control, rank);
    rondo_status status;
    if (!may_get_msg(state)) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR,
                                "%s: cannot send to rank %d (pid %d on host %.*s): it has %s", control->name,
                                rank, control->peers[rank].pid, RONDO_HOST_LEN - 1, control->peers[rank].host,
                                state == RONDO_RANK_LEFT   ? "left"
                                : state == RONDO_RANK_DEAD ? "exited"
                                                           : "left or exited");
    }
    rondo_wire_lock();
    if (is_full(part->window_out, rank, tag)) {
        rondo_wire_progress();
    }
    status = is_full(part->window_out, rank, tag) ? RONDO_IN_PROGRESS
                                                  : rondo_wire_conn_to(control, rank, &conn);
    if (status == RONDO_SUCCESS) {
        status = send_on(part, conn, &head, data);
    }
    rondo_wire_unlock();
    return status;
}

/* ---- receiving ---- */

/* End the communicator for a failure on this side, not the sender's. @return 1 */
static int give_up(struct rondo_control *control, rondo_status status, const char *text)
{
    if (rondo_control_end(control, status, control->rank, RONDO_LOSS_NONE, text)) {
        rondo_wire_note("%s", text);
        control->wire->spreading = 1;
        rondo_wire_spread_on(control);
    }
    return 1;
}

static int too_many(struct rondo_control *control, int rank)
{
    char text[RONDO_ERROR_TEXT];
    snprintf(text, sizeof(text), "%s: %d messages from rank %d wait for rank %d, which asks for none of them",
             control->name, RONDO_MSG_PARKED, rank, control->rank);
    return give_up(control, RONDO_INTERNAL_ERROR, text);
}

/* Put a message into its list, unless its tag was forgotten. @return 0: dropped */
static int msg_link(struct rondo_control *control, struct rondo_wire_msg *message)
{
    struct rondo_wire_part *part = control->wire;
    int bucket = message->rank % RONDO_WIRE_BUCKETS, forgotten;
    pthread_mutex_lock(&control->inbox.lock);
    forgotten = rondo_msg_forgotten(&control->inbox, message->tag);
    if (!forgotten) {
        *part->last_msg[bucket] = message;
        part->last_msg[bucket] = &message->next;
        atomic_fetch_add_explicit(&part->waiting[message->rank], 1, memory_order_release);
        atomic_fetch_add_explicit(&part->nwaiting, 1, memory_order_release);
    }
    pthread_mutex_unlock(&control->inbox.lock);
    if (forgotten) {
        rondo_free(message);
    }
    return !forgotten;
}

int rondo_wire_on_msg(struct rondo_control *control, const struct rondo_wire_head *head, const void *data)
{
    struct rondo_wire_part *part = control->wire;
    struct rondo_wire_window *window;
    struct rondo_wire_msg *message;
    if (is_full(part->window_in, head->from, head->tag)) {
        return 0;
    }
    if (atomic_load_explicit(&part->waiting[head->from], memory_order_relaxed) >= RONDO_MSG_PARKED) {
        return too_many(control, head->from);
    }
    window = window_need(part->window_in, head->from, head->tag);
    if (window == NULL ||
        rondo_calloc(&message, 1, sizeof(*message) + head->bytes, "message") != RONDO_SUCCESS) {
        return give_up(control, RONDO_SYSTEM_ERROR, "out of memory for a control message");
    }
    message->tag = head->tag;
    message->rank = head->from;
    message->bytes = head->bytes;
    memcpy(message->data, data, head->bytes);
    window->messages++;
    if (!msg_link(control, message)) {
        window->taken++;
        credit(control, window_at(part->window_in, head->from, head->tag), 1);
    }
    return 1;
}

/* Unlink the oldest message of a bucket with this tag (rank -1: any rank), with the inbox's lock held. */
static struct rondo_wire_msg *msg_unlink(struct rondo_wire_part *part, int bucket, int rank, uint64_t tag)
{
    struct rondo_wire_msg **link = &part->first_msg[bucket], *message;
    while ((message = *link) != NULL && (message->tag != tag || (rank >= 0 && message->rank != rank))) {
        link = &message->next;
    }
    if (message) {
        *link = message->next;
        if (part->last_msg[bucket] == &message->next) {
            part->last_msg[bucket] = link;
        }
        atomic_fetch_sub_explicit(&part->waiting[message->rank], 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&part->nwaiting, 1, memory_order_relaxed);
    }
    return message;
}

static void msg_taken(struct rondo_control *control, int rank, uint64_t tag)
{
    struct rondo_wire_window **link;
    rondo_wire_lock();
    link = window_at(control->wire->window_in, rank, tag);
    if (*link &&
        (*link)->taken < (*link)->messages) { /* else the tag was forgotten, and its credit given back */
        (*link)->taken++;
        credit(control, link, RONDO_WIRE_WINDOW / 2);
    }
    rondo_wire_unlock();
}

/* Hand a message over, and free it. */
static rondo_status msg_deliver(struct rondo_control *control, struct rondo_wire_msg *message, void *data,
                                size_t max, size_t *bytes)
{
    rondo_status status = RONDO_SUCCESS;
    msg_taken(control, message->rank, message->tag);
    if (message->bytes > max) {
        status = rondo_fail(RONDO_INTERNAL_ERROR,
                            "%s: a message of %zu bytes came from rank %d, at most %zu expected",
                            control->name, message->bytes, message->rank, max);
    } else {
        memcpy(data, message->data, message->bytes);
        *bytes = message->bytes;
    }
    rondo_free(message);
    return status;
}

rondo_status rondo_wire_receive(struct rondo_control *control, int rank, uint64_t tag, void *data, size_t max,
                                size_t *bytes)
{
    struct rondo_wire_part *part = control->wire;
    struct rondo_wire_msg *message = NULL;
    if (atomic_load_explicit(&part->waiting[rank], memory_order_acquire) > 0) {
        pthread_mutex_lock(&control->inbox.lock);
        message = msg_unlink(part, rank % RONDO_WIRE_BUCKETS, rank, tag);
        pthread_mutex_unlock(&control->inbox.lock);
    }
    if (message == NULL) {
        rondo_wire_poll();
        return RONDO_IN_PROGRESS;
    }
    return msg_deliver(control, message, data, max, bytes);
}

rondo_status rondo_wire_receive_any(struct rondo_control *control, uint64_t tag, int *rank, void *data,
                                    size_t max, size_t *bytes)
{
    struct rondo_wire_part *part = control->wire;
    struct rondo_wire_msg *message = NULL;
    if (atomic_load_explicit(&part->nwaiting, memory_order_acquire) > 0) {
        pthread_mutex_lock(&control->inbox.lock);
        for (int i = 0; i < RONDO_WIRE_BUCKETS && message == NULL; i++) {
            message = msg_unlink(part, i, -1, tag);
        }
        pthread_mutex_unlock(&control->inbox.lock);
    }
    if (message == NULL) {
        rondo_wire_poll();
        return RONDO_IN_PROGRESS;
    }
    *rank = message->rank;
    return msg_deliver(control, message, data, max, bytes);
}

void rondo_wire_forget(struct rondo_control *control, uint64_t tag)
{
    struct rondo_wire_part *part = control->wire;
    struct rondo_wire_msg *message;
    rondo_wire_lock();
    pthread_mutex_lock(&control->inbox.lock);
    for (int i = 0; i < RONDO_WIRE_BUCKETS; i++) {
        while ((message = msg_unlink(part, i, -1, tag)) != NULL) {
            rondo_free(message);
        }
    }
    pthread_mutex_unlock(&control->inbox.lock);
    for (int i = 0; i < RONDO_WIRE_BUCKETS; i++) {
        for (struct rondo_wire_window **link = &part->window_out[i]; *link;) {
            if ((*link)->tag == tag) {
                window_free(link);
            } else {
                link = &(*link)->next;
            }
        }
        for (struct rondo_wire_window **link = &part->window_in[i]; *link;) {
            (*link)->taken = (*link)->tag == tag ? (*link)->messages : (*link)->taken;
            link = (*link)->tag == tag && credit(control, link, 1) ? link : &(*link)->next;
        }
    }
    rondo_wire_unlock();
}

void rondo_wire_msg_clear(struct rondo_wire_part *part)
{
    for (int i = 0; i < RONDO_WIRE_BUCKETS; i++) {
        while (part->first_msg[i]) {
            struct rondo_wire_msg *message = part->first_msg[i];
            part->first_msg[i] = message->next;
            rondo_free(message);
        }
        while (part->window_out[i]) {
            window_free(&part->window_out[i]);
        }
        while (part->window_in[i]) {
            window_free(&part->window_in[i]);
        }
    }
}

void rondo_wire_poll(void)
{
    static _Atomic int64_t polled_ns;
    int64_t now = rondo_now_ns();
    if (now - atomic_load_explicit(&polled_ns, memory_order_relaxed) < POLL_NS || !rondo_wire_trylock()) {
        return;
    }
    if (rondo_wire) {
        rondo_wire_progress();
    }
    atomic_store_explicit(&polled_ns, rondo_now_ns(), memory_order_relaxed);
    rondo_wire_unlock();
}
