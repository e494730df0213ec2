/* Mail of the wire: the windows of pairs of ranks, and what waits for a rank to take it. */
#include "net/control_wire_impl.h"

#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

#define POLL_NS (20 * INT64_C(1000)) /* between looks of waiting threads: a look is a system call */

/* Give the sender back what this rank has taken. */
static void credit(struct rondo_control *control, int rank, unsigned least)
{
    struct rondo_wire_part *part = control->wire;
    unsigned n = part->taken[rank];
    if (n < least || rondo_wire_state_of(control, rank) == RONDO_WIRE_DEAD) {
        return;
    }
    if (!rondo_wire_say(control, rank, RONDO_WIRE_CREDIT, n, NULL, 0)) {
        part->debt = 1;
        return;
    }
    part->taken[rank] = 0;
    atomic_fetch_sub_explicit(&part->received[rank], (uint8_t)n, memory_order_relaxed);
}

void rondo_wire_repay(struct rondo_control *control)
{
    if (control->wire->debt) {
        control->wire->debt = 0;
        for (int r = 0; r < control->nranks; r++) {
            credit(control, r, 1);
        }
    }
}

int rondo_wire_on_mail(struct rondo_control *control, const struct rondo_wire_head *head, const void *data)
{
    struct rondo_wire_part *part = control->wire;
    struct rondo_wire_mail *mail;
    int bucket = head->from % RONDO_WIRE_BUCKETS, forgotten;
    if (atomic_load_explicit(&part->received[head->from], memory_order_relaxed) >= RONDO_WIRE_WINDOW) {
        return 0;
    }
    if (rondo_calloc(&mail, 1, sizeof(*mail) + head->bytes, "mail") != RONDO_SUCCESS) {
        rondo_control_end(control, RONDO_SYSTEM_ERROR, control->rank, "out of memory for the control plane's mail");
        return 1;
    }
    mail->tag = head->tag;
    mail->rank = head->from;
    mail->bytes = head->bytes;
    memcpy(mail->data, data, head->bytes);
    pthread_mutex_lock(&control->mail.lock);
    forgotten = rondo_mail_forgotten(&control->mail, head->tag);
    if (!forgotten) {
        *part->last_mail[bucket] = mail;
        part->last_mail[bucket] = &mail->next;
    }
    atomic_fetch_add_explicit(&part->received[head->from], 1, memory_order_release);
    pthread_mutex_unlock(&control->mail.lock);
    if (forgotten) {
        rondo_free(mail);
        part->taken[head->from]++;
        credit(control, head->from, 1);
    }
    return 1;
}

int rondo_wire_on_credit(struct rondo_control *control, const struct rondo_wire_head *head, const void *data)
{
    (void)data;
    if (head->tag > control->wire->sent[head->from]) {
        return 0;
    }
    control->wire->sent[head->from] = (uint8_t)(control->wire->sent[head->from] - head->tag);
    return 1;
}

rondo_status rondo_wire_send(struct rondo_control *control, int rank, uint64_t tag, const void *data, size_t bytes)
{
    struct rondo_wire_part *part = control->wire;
    struct rondo_wire_head head = rondo_wire_head_of(control, rank, RONDO_WIRE_MAIL, tag, bytes);
    struct rondo_wire_conn *conn;
    int state = rondo_wire_state_of(control, rank);
    rondo_status status;
    if (state != RONDO_WIRE_ALIVE && state != RONDO_WIRE_SILENT) {
        return rondo_fail_quiet(RONDO_REMOTE_ERROR, "%s: no mail to rank %d (pid %d on host %.*s): it has %s", control->name, rank,
                                control->peers[rank].pid, RONDO_HOST_LEN - 1, control->peers[rank].host,
                                state == RONDO_WIRE_LEFT   ? "left"
                                : state == RONDO_WIRE_DEAD ? "exited"
                                                           : "left or exited");
    }
    rondo_wire_lock();
    if (part->sent[rank] >= RONDO_WIRE_WINDOW) {
        rondo_wire_turn();
    }
    status = part->sent[rank] < RONDO_WIRE_WINDOW ? rondo_wire_conn_to(control, rank, &conn) : RONDO_IN_PROGRESS;
    if (status == RONDO_SUCCESS) {
        status = rondo_wire_put(conn, &head, data, RONDO_WIRE_RESERVE) ? RONDO_SUCCESS : RONDO_IN_PROGRESS;
        part->sent[rank] = (uint8_t)(part->sent[rank] + (status == RONDO_SUCCESS));
    }
    rondo_wire_unlock();
    return status;
}

/* Unlink the oldest mail of a bucket with this tag; rank -1: of any rank. With the mailbox's lock. */
static struct rondo_wire_mail *mail_unlink(struct rondo_wire_part *part, int bucket, int rank, uint64_t tag)
{
    struct rondo_wire_mail **link = &part->first_mail[bucket], *mail;
    while ((mail = *link) != NULL && (mail->tag != tag || (rank >= 0 && mail->rank != rank))) {
        link = &mail->next;
    }
    if (mail) {
        *link = mail->next;
        if (part->last_mail[bucket] == &mail->next) {
            part->last_mail[bucket] = link;
        }
    }
    return mail;
}

static void mail_taken(struct rondo_control *control, int rank, unsigned least)
{
    rondo_wire_lock();
    control->wire->taken[rank]++;
    credit(control, rank, least);
    rondo_wire_unlock();
}

rondo_status rondo_wire_receive(struct rondo_control *control, int rank, uint64_t tag, void *data, size_t max, size_t *bytes)
{
    struct rondo_wire_part *part = control->wire;
    struct rondo_wire_mail *mail;
    rondo_status status = RONDO_SUCCESS;
    if (atomic_load_explicit(&part->received[rank], memory_order_acquire) == 0) {
        rondo_wire_poll();
        return RONDO_IN_PROGRESS;
    }
    pthread_mutex_lock(&control->mail.lock);
    mail = mail_unlink(part, rank % RONDO_WIRE_BUCKETS, rank, tag);
    pthread_mutex_unlock(&control->mail.lock);
    if (mail == NULL) {
        rondo_wire_poll();
        return RONDO_IN_PROGRESS;
    }
    mail_taken(control, rank, RONDO_WIRE_WINDOW / 2);
    if (mail->bytes > max) {
        status = rondo_fail(RONDO_INTERNAL_ERROR, "%s: a mail of %zu bytes from rank %d, at most %zu expected", control->name, mail->bytes,
                            rank, max);
    } else {
        memcpy(data, mail->data, mail->bytes);
        *bytes = mail->bytes;
    }
    rondo_free(mail);
    return status;
}

void rondo_wire_forget(struct rondo_control *control, uint64_t tag)
{
    struct rondo_wire_mail *mail;
    for (int i = 0; i < RONDO_WIRE_BUCKETS; i++) {
        do {
            pthread_mutex_lock(&control->mail.lock);
            mail = mail_unlink(control->wire, i, -1, tag);
            pthread_mutex_unlock(&control->mail.lock);
            if (mail) {
                mail_taken(control, mail->rank, 1);
                rondo_free(mail);
            }
        } while (mail);
    }
}

void rondo_wire_poll(void)
{
    static _Atomic int64_t polled_ns;
    int64_t now = rondo_now_ns();
    if (now - atomic_load_explicit(&polled_ns, memory_order_relaxed) < POLL_NS || !rondo_wire_trylock()) {
        return;
    }
    if (rondo_wire && rondo_wire->pid == getpid()) {
        rondo_wire_turn();
    }
    atomic_store_explicit(&polled_ns, rondo_now_ns(), memory_order_relaxed);
    rondo_wire_unlock();
}
