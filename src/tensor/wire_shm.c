/*
 * The wire between ranks of a node. Each end has an inbox in shared memory: the other end's message buffer,
 * and a ring of what was written, which the other end fills and this one empties. No content goes through it:
 * an entry says where the content is, and the receiver copies it from there to its place, once. It reads a
 * heap segment that it has mapped, memory of its own process if the ranks are threads, or has the kernel copy
 * (process_vm_readv); where the kernel may not, the publisher copies the content to its heap first. A
 * publisher that waits meanwhile copies pieces of large contents, too (share.h).
 *
 * A content has landed, or was dropped, and its data is free again, when the receiver's head has passed its
 * entry; the receiver has then noted in the entry what became of it.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/param.h"
#include "base/pool.h"
#include "tensor/share.h"
#include "tensor/store.h"

enum {
    INBOX_MAGIC = 0x74696e62,
    RING = 512,        /* entries; a power of two */
    NOTES = 32,        /* segments that are described at a time */
    BATCH = 64,        /* contents that the kernel copies in one call */
    APART = 64 << 10,  /* bytes of a batch from which on the copy is made without the lock, and of a content
                       * that both ends copy */
    SHARED = 1 << 16,  /* a flag of an entry: the publisher is ready to copy pieces of it */
    LOOK_NS = 1000000, /* while the publisher copies the last piece, between two looks at how it is */
    PACES = 8,         /* classes of contents by size, from APART on; each is twice as large */
    READS_KERNEL = 1,  /* how the owner of an inbox reads memory of the other end */
    READS_PROCESS = 2,
    READS_HEAP = 3
};

struct entry {
    uint32_t imm, epoch, flags;
    uint32_t dropped; /* set by the receiver: no pull has got it */
    uint64_t bytes, step, checksum, address, segment;
} RONDO_ALIGNED(64);
_Static_assert(sizeof(struct entry) == 64, "an entry is a line");

/* The first members are the owner's, the ring and the message are written by the other end. */
struct inbox {
    uint32_t magic, reads;
    uint64_t probe;   /* a random number at this address, for the other end to read */
    uint32_t revoked; /* atomic; set by the other end: the contents in the ring may be gone */
    uint64_t head RONDO_ALIGNED(RONDO_CTRL_ALIGN); /* atomic */
    uint32_t reading; /* atomic; 1: the owner copies contents that lie in its own process */
    uint64_t tail RONDO_ALIGNED(RONDO_CTRL_ALIGN);                   /* atomic */
    struct rondo_tensor_share share RONDO_ALIGNED(RONDO_CTRL_ALIGN); /* of the content that is copied */
    struct rondo_segment_note note[NOTES];
    struct entry ring[RING];
    uint8_t message[];
};

struct record {
    struct rondo_shm_name inbox, door;
    uint64_t probe, address; /* of the inbox, in its owner */
    int32_t pid, reserved;
};
_Static_assert(sizeof(struct record) <= RONDO_TENSOR_RECORD, "a record has room");

struct segment {
    uint64_t id, owner_base; /* owner_base: its address in the other process */
    uint8_t *base;
    size_t bytes;
};

struct link {
    struct rondo_shm in_memory, out_memory, door_memory;
    struct inbox *in, *out;
    struct rondo_tensor_door *door; /* the other end's */
    int pid;
    uint32_t reads;          /* how this end reads the other's memory */
    int helps;               /* the kernel lets it write there, too */
    uint64_t taken, written; /* positions in the rings; `taken` is published as in->head */
    uint64_t completed;      /* of those written, those that the other end has taken */
    struct rondo_tensor_response *sending[RING];
    uint64_t noted[NOTES], needed[NOTES]; /* segments described in out->note, until so many are completed */
    int nnoted;
    struct segment mapped[NOTES];
    int nmapped;
    struct rondo_tensor_pace pace[PACES];
    uint8_t *message; /* a copy of what came: the other end could change it while it is read */
};

/* ---- connecting ---- */

static rondo_status shm_open_end(struct rondo_tensor_conn *conn, void *record_out)
{
    struct rondo_tensor_core *core = conn->core;
    enum rondo_shm_mode mode = core->ctx->wiring.net.shm_mode;
    size_t bytes = sizeof(struct inbox) + core->message_bytes;
    struct record record;
    struct link *link;
    memset(&record, 0, sizeof(record));
    RONDO_TRY(RONDO_NEW(link, "the shared memory of a connection for tensors"));
    conn->link = link;
    RONDO_TRY(rondo_calloc(&link->message, 1, core->message_bytes, "a message about tensors"));
    RONDO_TRY(rondo_pool_take(&link->in_memory, bytes, bytes, mode, RONDO_SHM_FOR_CONTROL));
    link->in = (struct inbox *)(void *)link->in_memory.base;
    RONDO_TRY(rondo_random(&link->in->probe, sizeof(link->in->probe)));
    link->in->magic = INBOX_MAGIC;
    rondo_tensor_share_close(&link->in->share);
    record.inbox = link->in_memory.name;
    record.door = core->door_memory.name;
    record.probe = link->in->probe;
    record.address = (uintptr_t)&link->in->probe;
    record.pid = getpid();
    memcpy(record_out, &record, sizeof(record));
    return RONDO_SUCCESS;
}

/* Does the kernel copy between the two processes? What it lets one read it also lets it write. */
static int kernel_copies(const struct record *record)
{
    uint64_t probe = 0;
    struct iovec local = { &probe, sizeof(probe) },
                 remote = { (void *)(uintptr_t)record->address, sizeof(probe) };
    return rondo_params()->cma != RONDO_CMA_NEVER &&
           process_vm_readv(record->pid, &local, 1, &remote, 1, 0) == (ssize_t)sizeof(probe) &&
           probe == record->probe;
}

/* Find out how to read the other end's memory. */
static uint32_t find_reads(const struct rondo_tensor_conn *conn)
{
    const struct rondo_peer *peers = conn->core->ctx->wiring.peers;
    if (peers[conn->peer].process_hash == peers[conn->core->rank].process_hash) {
        return READS_PROCESS;
    }
    if (((struct link *)conn->link)->helps) {
        return READS_KERNEL;
    }
    RONDO_INFO(
        RONDO_SUBSYS_SHM,
        "rank %d: the kernel does not copy from rank %d (process_vm_readv, RONDO_CMA): tensors outside its "
        "heap are copied there first",
        conn->core->rank, conn->peer);
    return READS_HEAP;
}

static rondo_status shm_connect(struct rondo_tensor_conn *conn, const void *record_in)
{
    struct link *link = conn->link;
    struct record record;
    char who[96];
    memcpy(&record, record_in, sizeof(record));
    if (link->out == NULL) {
        rondo_status status = rondo_shm_open(&link->out_memory, &record.inbox);
        status = status == RONDO_SUCCESS ? rondo_shm_open(&link->door_memory, &record.door) : status;
        if (status != RONDO_SUCCESS) {
            return rondo_fail_aloud(status);
        }
        link->out = (struct inbox *)(void *)link->out_memory.base;
        if (link->out_memory.size < sizeof(struct inbox) + conn->core->message_bytes ||
            link->out->magic != INBOX_MAGIC || link->door_memory.size < sizeof(*link->door)) {
            link->out = NULL;
            return rondo_fail(RONDO_REMOTE_ERROR, "rank %d on %s: the inbox for tensors of %s is none",
                              conn->core->rank, rondo_log_host(),
                              rondo_tensor_who(conn->core, conn->peer, who));
        }
        link->door = (struct rondo_tensor_door *)(void *)link->door_memory.base;
        link->pid = record.pid;
        link->helps = kernel_copies(&record);
        link->reads = find_reads(conn);
        __atomic_store_n(&link->in->reads, link->reads, __ATOMIC_RELEASE);
        rondo_tensor_door_ring(link->door);
    }
    /* The other end must know how this one reads before it writes. */
    return __atomic_load_n(&link->out->reads, __ATOMIC_ACQUIRE) != 0 ? RONDO_SUCCESS : RONDO_IN_PROGRESS;
}

static void shm_revoke(struct rondo_tensor_conn *conn)
{
    struct link *link = conn->link;
    if (link != NULL && link->out != NULL) {
        __atomic_store_n(&link->out->revoked, 1, __ATOMIC_SEQ_CST);
        __atomic_thread_fence(__ATOMIC_SEQ_CST); /* before anybody writes to the contents */
    }
}

static int shm_is_read(struct rondo_tensor_conn *conn)
{
    const struct link *link = conn->link;
    return link != NULL && link->out != NULL && link->reads == READS_PROCESS &&
           __atomic_load_n(&link->out->reading, __ATOMIC_SEQ_CST);
}

static void shm_close_end(struct rondo_tensor_conn *conn)
{
    struct link *link = conn->link;
    if (link == NULL) {
        return;
    }
    for (int i = 0; i < link->nmapped; i++) {
        rondo_segment_put(link->mapped[i].id);
    }
    rondo_shm_close(&link->in_memory);
    rondo_shm_close(&link->out_memory);
    rondo_shm_close(&link->door_memory);
    rondo_free(link->message);
    rondo_free(link);
    conn->link = NULL;
}

/* ---- out ---- */

/* @return the next entry of the other end's ring; NULL: it is full. */
static struct entry *entry_next(struct link *link)
{
    return link->written - link->completed < RING ? &link->out->ring[link->written % RING] : NULL;
}

/* Publish the entry. The other end is awake while its ring is not empty. */
static void entry_publish(struct link *link, struct rondo_tensor_response *response)
{
    int was_empty = __atomic_load_n(&link->out->head, __ATOMIC_SEQ_CST) == link->written;
    link->sending[link->written % RING] = response;
    link->written++;
    __atomic_store_n(&link->out->tail, link->written, __ATOMIC_SEQ_CST);
    if (was_empty || __atomic_load_n(&link->out->head, __ATOMIC_SEQ_CST) + 1 >= link->written) {
        rondo_tensor_door_ring(link->door);
    }
}

static uint8_t *shm_buffer(struct rondo_tensor_conn *conn)
{
    return ((struct link *)conn->link)->out->message;
}

static rondo_status write_word(struct rondo_tensor_conn *conn, uint32_t imm, size_t bytes)
{
    struct link *link = conn->link;
    struct entry *entry = entry_next(link);
    if (entry == NULL) {
        return RONDO_IN_PROGRESS;
    }
    *entry = (struct entry){ .imm = imm, .bytes = bytes };
    entry_publish(link, NULL);
    return RONDO_SUCCESS;
}

static rondo_status shm_write(struct rondo_tensor_conn *conn, size_t bytes)
{
    RONDO_TRY(write_word(conn, RONDO_TENSOR_IMM_MESSAGE, bytes));
    rondo_tensor_written(conn); /* it was encoded in its place */
    return RONDO_SUCCESS;
}

static rondo_status shm_ack(struct rondo_tensor_conn *conn)
{
    return write_word(conn, RONDO_TENSOR_IMM_ACK, 0);
}

/* Describe a segment to the other end, for the next entry. @return RONDO_IN_PROGRESS: not before it has taken
 * earlier entries; else an error: it cannot be described. */
static rondo_status note_segment(struct rondo_tensor_conn *conn, uint64_t segment)
{
    struct link *link = conn->link;
    struct rondo_segment_note note;
    int at = 0;
    while (at < NOTES && link->noted[at] != segment) {
        at++;
    }
    if (at == NOTES) {
        at = link->nnoted % NOTES;
        if (link->needed[at] > link->completed) {
            return RONDO_IN_PROGRESS;
        }
        RONDO_TRY(rondo_segment_note(segment, conn->core->ctx->wiring.net.shm_mode == RONDO_SHM_MODE_SOCKET,
                                     &note));
        link->out->note[at] = note;
        link->noted[at] = segment;
        link->nnoted++;
    }
    link->needed[at] = link->written + 1;
    return RONDO_SUCCESS;
}

/* Is a response's data in this process's heap, whose segments the other end can map? *segment: its; 0: no.
 * @return RONDO_IN_PROGRESS: ask again later */
static rondo_status segment_under(struct rondo_tensor_conn *conn,
                                  const struct rondo_tensor_response *response, uint64_t *segment)
{
    struct rondo_region region;
    *segment = 0;
    if (rondo_region_find(response->data, response->meta.bytes, &region) && region.segment != 0) {
        rondo_status status = note_segment(conn, region.segment);
        *segment = status == RONDO_SUCCESS ? region.segment : 0;
        return status == RONDO_IN_PROGRESS ? status : RONDO_SUCCESS;
    }
    return RONDO_SUCCESS;
}

/* Will this end have time for pieces of a content? It has a thread that waits, on a core of its own. */
static int has_time(const struct rondo_tensor_core *core)
{
    return __atomic_load_n(&core->drivers, __ATOMIC_RELAXED) > 0 && core->spins;
}

static rondo_status shm_content(struct rondo_tensor_conn *conn, struct rondo_tensor_response *response)
{
    struct link *link = conn->link;
    struct entry *entry = entry_next(link);
    struct rondo_tensor_content content;
    uint64_t segment = 0;
    if (entry == NULL) {
        return RONDO_IN_PROGRESS;
    }
    uint32_t reads = __atomic_load_n(&link->out->reads, __ATOMIC_RELAXED);
    rondo_tensor_content_of(response, &content);
    if (reads != READS_PROCESS && content.bytes > 0) {
        RONDO_TRY(segment_under(conn, response, &segment));
        if (segment == 0 && reads == READS_HEAP && response->staged == NULL) {
            rondo_status status = rondo_tensor_stage(response);
            if (status != RONDO_SUCCESS) {
                rondo_tensor_unable(response, status);
                return RONDO_SUCCESS;
            }
            RONDO_TRY(segment_under(conn, response, &segment));
        }
    }
    if (content.bytes >= APART && content.bytes <= RONDO_TENSOR_SHARE_MOST && link->helps &&
        has_time(conn->core)) {
        content.flags |= SHARED;
    }
    *entry = (struct entry){ .imm = content.index,
                             .epoch = content.epoch,
                             .flags = content.flags,
                             .bytes = content.bytes,
                             .step = content.step,
                             .checksum = content.checksum,
                             .address = (uintptr_t)response->data,
                             .segment = segment };
    entry_publish(link, response);
    return RONDO_SUCCESS;
}

/* Copy pieces of the content that the other end copies now. The lock is released for each. */
static void help(struct rondo_tensor_conn *conn, int *moved)
{
    struct link *link = conn->link;
    struct rondo_tensor_share *share = &link->out->share;
    uint16_t number = rondo_tensor_share_number(share);
    uint64_t at = link->completed + (uint16_t)(number - (uint16_t)link->completed), place;
    struct rondo_tensor_response *response = at < link->written ? link->sending[at % RING] : NULL;
    size_t bytes, from;
    if (!link->helps || response == NULL || response->meta.bytes < APART) {
        return;
    }
    while (!conn->closing && has_time(conn->core) &&
           (bytes = rondo_tensor_share_take(share, number, response->meta.bytes, 1, &from, &place)) > 0) {
        struct iovec local = { (void *)(uintptr_t)(response->data + from), bytes },
                     remote = { (void *)(uintptr_t)place, bytes };
        pthread_mutex_unlock(&conn->core->lock);
        int failed = rondo_fault("tensor_help", conn->core->rank, at) != RONDO_SUCCESS ||
                     process_vm_writev(link->pid, &local, 1, &remote, 1, 0) != (ssize_t)bytes;
        rondo_tensor_share_finish(share, bytes, failed);
        pthread_mutex_lock(&conn->core->lock);
        link->helps &= !failed;
        conn->core->stats.helped_bytes += failed ? 0 : bytes;
        *moved = 1;
    }
}

/* ---- in ---- */

struct batch {
    int n;
    size_t bytes; /* of all */
    struct rondo_tensor_content content[BATCH];
    struct entry *entry[BATCH]; /* in the ring */
    void *place[BATCH];
    const uint8_t *from[BATCH]; /* here; NULL: the kernel copies */
    uint16_t number[BATCH];     /* its position in the ring */
    uint8_t shared[BATCH];      /* both ends copy it */
    struct iovec local[BATCH], remote[BATCH];
    rondo_status status[BATCH];
    int lost; /* the publisher may write to a place at any time */
};

static const struct segment *mapped(const struct link *link, uint64_t id)
{
    for (int i = 0; i < link->nmapped; i++) {
        if (link->mapped[i].id == id) {
            return &link->mapped[i];
        }
    }
    return NULL;
}

/* Map a segment of the other end. @return NULL: it cannot be mapped. */
static const struct segment *segment_of(struct link *link, uint64_t id)
{
    const struct segment *known = mapped(link, id);
    struct rondo_segment_note note;
    struct segment *segment;
    int at = 0;
    if (known != NULL) {
        return known;
    }
    while (at < NOTES && link->in->note[at].id != id) {
        at++;
    }
    if (at == NOTES) {
        return NULL;
    }
    note = link->in->note[at];
    for (int i = link->nmapped - 1; i >= 0 && link->nmapped == NOTES; i--) { /* make room */
        if (i == 0 || !rondo_segment_alive(link->mapped[i].id)) {
            rondo_segment_put(link->mapped[i].id);
            link->mapped[i] = link->mapped[--link->nmapped];
        }
    }
    segment = &link->mapped[link->nmapped];
    if (rondo_segment_get(&note, &segment->base, &segment->bytes) != RONDO_SUCCESS) {
        return NULL;
    }
    segment->id = id;
    segment->owner_base = note.base;
    link->nmapped++;
    return segment;
}

/* Where an entry's content can be read by this process; NULL: the kernel must copy it. */
static const uint8_t *source_of(struct link *link, const struct entry *entry)
{
    const struct segment *segment;
    if (link->reads == READS_PROCESS) {
        return (const uint8_t *)(uintptr_t)entry->address;
    }
    segment = entry->segment != 0 ? segment_of(link, entry->segment) : NULL;
    uint64_t offset = segment != NULL ? entry->address - segment->owner_base : 0;
    return segment != NULL && offset <= segment->bytes && entry->bytes <= segment->bytes - offset
               ? segment->base + offset
               : NULL;
}

static rondo_status batch_add(struct rondo_tensor_conn *conn, struct batch *batch, const struct entry *entry,
                              struct entry *in_ring)
{
    struct link *link = conn->link;
    int i = batch->n;
    batch->content[i] = (struct rondo_tensor_content){ .index = entry->imm,
                                                       .epoch = entry->epoch,
                                                       .flags = entry->flags & ~(uint32_t)SHARED,
                                                       .bytes = entry->bytes,
                                                       .step = entry->step,
                                                       .checksum = entry->checksum };
    RONDO_TRY(rondo_tensor_place(conn, &batch->content[i], &batch->place[i]));
    batch->n++;
    batch->entry[i] = in_ring;
    batch->status[i] = RONDO_SUCCESS;
    batch->from[i] = NULL;
    batch->number[i] = (uint16_t)(link->taken - 1);
    batch->shared[i] = 0;
    batch->local[i].iov_len = batch->remote[i].iov_len = 0;
    if (batch->place[i] != NULL && entry->bytes > 0) {
        batch->from[i] = source_of(link, entry);
        batch->bytes += entry->bytes;
        batch->shared[i] = entry->bytes >= APART && (entry->flags & SHARED) != 0;
        if (batch->from[i] == NULL) {
            batch->local[i] = (struct iovec){ batch->place[i], entry->bytes };
            batch->remote[i] = (struct iovec){ (void *)(uintptr_t)entry->address, entry->bytes };
        }
    }
    return RONDO_SUCCESS;
}

/* The kernel copies at most 2 GiB a call, and stops at what it cannot read. */
static rondo_status copy_one(const struct link *link, struct iovec local, struct iovec remote)
{
    while (local.iov_len > 0) {
        ssize_t n = process_vm_readv(link->pid, &local, 1, &remote, 1, 0);
        if (n <= 0) {
            return rondo_fail_quiet(RONDO_REMOTE_ERROR, "its memory in process %d cannot be read: %s",
                                    link->pid, n < 0 ? strerror(errno) : "nothing was copied");
        }
        local.iov_base = (uint8_t *)local.iov_base + n;
        remote.iov_base = (uint8_t *)remote.iov_base + n;
        local.iov_len -= (size_t)n;
        remote.iov_len -= (size_t)n;
    }
    return RONDO_SUCCESS;
}

/* Copy a part of a content. source NULL: the kernel copies; remote: the whole. */
static rondo_status copy_part(const struct link *link, const uint8_t *source, uint8_t *place,
                              const struct iovec *remote, size_t from, size_t bytes)
{
    if (source != NULL) {
        memcpy(place + from, source + from, bytes);
        return RONDO_SUCCESS;
    }
    return copy_one(link, (struct iovec){ place + from, bytes },
                    (struct iovec){ (uint8_t *)remote->iov_base + from, bytes });
}

/* The publisher has taken the last pieces, and nobody may touch their place before it is done with them.
 * Called without the lock. @return an error: it will not be done. */
static rondo_status await_publisher(struct rondo_tensor_conn *conn, size_t bytes)
{
    struct link *link = conn->link;
    int64_t end_ns = 0, look_ns = 0;
    char who[96];
    for (int rounds = 0; __atomic_load_n(&link->in->share.finished, __ATOMIC_ACQUIRE) < bytes; rounds++) {
        if (rounds < 200) {
            rondo_cpu_relax();
            continue;
        }
        sched_yield();
        int64_t now_ns = rondo_now_ns();
        end_ns = end_ns == 0 ? now_ns + RONDO_TENSOR_GRACE_NS : end_ns;
        if (now_ns >= look_ns) {
            look_ns = now_ns + LOOK_NS;
            pthread_mutex_lock(&conn->core->lock);
            int gone = rondo_tensor_has_gone(conn); /* a connection that is broken is no reason */
            pthread_mutex_unlock(&conn->core->lock);
            if (gone || now_ns >= end_ns) {
                return rondo_fail_quiet(RONDO_REMOTE_ERROR, "%s %s while it copied its part",
                                        rondo_tensor_who(conn->core, conn->peer, who),
                                        gone ? "has gone" : "was not heard of for 5 s");
            }
        }
    }
    return RONDO_SUCCESS;
}

/* Copy a content together with its publisher. Without the lock. */
static rondo_status copy_shared(struct rondo_tensor_conn *conn, struct batch *batch, int i)
{
    struct link *link = conn->link;
    struct rondo_tensor_share *share = &link->in->share;
    uint8_t *place = batch->place[i];
    size_t all = batch->content[i].bytes, mine = 0, from, bytes;
    rondo_status status = RONDO_SUCCESS;
    uint16_t number = batch->number[i];
    uint64_t at;
    rondo_tensor_share_open(share, number, place);
    while (mine < all && (bytes = rondo_tensor_share_take(share, number, all, 0, &from, &at)) > 0) {
        if (status == RONDO_SUCCESS) {
            status = copy_part(link, batch->from[i], place, &batch->remote[i], from, bytes);
        }
        mine += bytes;
    }
    rondo_status waited = await_publisher(conn, all - rondo_min_size(mine, all));
    int failed = __atomic_load_n(&share->failed, __ATOMIC_RELAXED);
    rondo_tensor_share_close(share);
    batch->lost |= waited != RONDO_SUCCESS;
    if (waited != RONDO_SUCCESS || status != RONDO_SUCCESS || !failed) {
        return waited != RONDO_SUCCESS ? waited : status;
    }
    return copy_part(link, batch->from[i], place, &batch->remote[i], 0, all);
}

static struct rondo_tensor_pace *pace_of(struct link *link, size_t bytes)
{
    int class = 0;
    while (class < PACES - 1 && bytes >= (size_t)2 * APART << class) {
        class ++;
    }
    return &link->pace[class];
}

/* A content that its publisher is ready to help with. Without the lock. */
static rondo_status copy_large(struct rondo_tensor_conn *conn, struct batch *batch, int i)
{
    struct link *link = conn->link;
    size_t bytes = batch->content[i].bytes;
    struct rondo_tensor_pace *pace = pace_of(link, bytes);
    int both = rondo_tensor_pace_both(pace);
    int64_t begun_ns = rondo_now_ns();
    rondo_status status = both
                              ? copy_shared(conn, batch, i)
                              : copy_part(link, batch->from[i], batch->place[i], &batch->remote[i], 0, bytes);
    rondo_tensor_pace_note(pace, both, bytes, rondo_now_ns() - begun_ns);
    return status;
}

/* May run without the lock; does if a content is shared. */
static void batch_copy(struct rondo_tensor_conn *conn, struct batch *batch)
{
    const struct link *link = conn->link;
    struct iovec local[BATCH], remote[BATCH];
    size_t bytes = 0;
    unsigned n = 0;
    for (int i = 0; i < batch->n; i++) {
        if (batch->shared[i]) {
            batch->status[i] = copy_large(conn, batch, i);
            batch->local[i].iov_len = 0;
        } else if (batch->from[i] != NULL) {
            memcpy(batch->place[i], batch->from[i], batch->content[i].bytes);
        } else if (batch->local[i].iov_len > 0) {
            local[n] = batch->local[i];
            remote[n++] = batch->remote[i];
            bytes += batch->local[i].iov_len;
        }
    }
    if (n == 0 || (n > 1 && process_vm_readv(link->pid, local, n, remote, n, 0) == (ssize_t)bytes)) {
        return;
    }
    for (int i = 0; i < batch->n; i++) { /* one by one: each has its own error */
        if (batch->local[i].iov_len > 0) {
            batch->status[i] = copy_one(link, batch->local[i], batch->remote[i]);
        }
    }
}

/* Copy unless the contents were given back. Within a process the publisher waits for copies that have begun:
 * either it sees `reading`, or this end sees `revoked`. */
static void batch_copy_unless_revoked(struct rondo_tensor_conn *conn, struct batch *batch)
{
    struct inbox *in = ((struct link *)conn->link)->in;
    int in_process = ((struct link *)conn->link)->reads == READS_PROCESS;
    if (in_process) {
        __atomic_store_n(&in->reading, 1, __ATOMIC_SEQ_CST);
    }
    if (!__atomic_load_n(&in->revoked, __ATOMIC_SEQ_CST)) {
        batch_copy(conn, batch);
    }
    if (in_process) {
        __atomic_store_n(&in->reading, 0, __ATOMIC_SEQ_CST);
    }
}

/* A publisher that ends the connection gives contents back: what was copied may be something else. */
static void check_revoked(struct rondo_tensor_conn *conn, struct batch *batch)
{
    const struct link *link = conn->link;
    char who[96];
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* the copies are older than this look */
    if (__atomic_load_n(&link->in->revoked, __ATOMIC_ACQUIRE)) {
        for (int i = 0; i < batch->n; i++) {
            batch->status[i] = rondo_fail_quiet(RONDO_REMOTE_ERROR,
                                                "%s has ended the connection for tensors meanwhile",
                                                rondo_tensor_who(conn->core, conn->peer, who));
        }
    }
}

static rondo_status batch_move(struct rondo_tensor_conn *conn, struct batch *batch)
{
    struct link *link = conn->link;
    int tells = 0;
    char who[96];
    if (batch->bytes >= APART) {
        pthread_mutex_unlock(&conn->core->lock);
        batch_copy_unless_revoked(conn, batch);
        pthread_mutex_lock(&conn->core->lock);
    } else {
        batch_copy_unless_revoked(conn, batch);
    }
    check_revoked(conn, batch);
    for (int i = 0; i < batch->n; i++) {
        int landed = batch->place[i] != NULL &&
                     rondo_tensor_landed(conn, &batch->content[i], batch->status[i]);
        batch->entry[i]->dropped = !landed; /* published by the head */
        tells |= batch->content[i].flags & RONDO_TENSOR_CONTENT_TELL;
    }
    __atomic_store_n(&link->in->head, link->taken, __ATOMIC_SEQ_CST);
    if (tells) {
        rondo_tensor_door_ring(link->door);
    }
    batch->n = 0;
    batch->bytes = 0;
    return batch->lost ? rondo_fail_quiet(RONDO_REMOTE_ERROR, "%s did not finish its part of a copy",
                                          rondo_tensor_who(conn->core, conn->peer, who))
                       : RONDO_SUCCESS;
}

static rondo_status take_message(struct rondo_tensor_conn *conn, size_t bytes)
{
    struct link *link = conn->link;
    char who[96];
    if (bytes > conn->core->message_bytes) {
        return rondo_fail(RONDO_REMOTE_ERROR,
                          "rank %d on %s got a message of %zu bytes about tensors from %s", conn->core->rank,
                          rondo_log_host(), bytes, rondo_tensor_who(conn->core, conn->peer, who));
    }
    memcpy(link->message, link->in->message, bytes);
    __atomic_store_n(&link->in->head, link->taken, __ATOMIC_SEQ_CST);
    return rondo_tensor_message_came(conn, link->message, bytes);
}

static rondo_status take_entry(struct rondo_tensor_conn *conn, struct batch *batch, const struct entry *entry)
{
    struct link *link = conn->link;
    if (entry->imm <= RONDO_TENSOR_LAST_INDEX) {
        return batch_add(conn, batch, entry, &link->in->ring[(link->taken - 1) % RING]);
    }
    RONDO_TRY(batch_move(conn, batch)); /* in order */
    if (conn->closing) {
        return RONDO_SUCCESS;
    }
    if (entry->imm == RONDO_TENSOR_IMM_MESSAGE) {
        return take_message(conn, entry->bytes);
    }
    __atomic_store_n(&link->in->head, link->taken, __ATOMIC_SEQ_CST);
    return rondo_tensor_ack_came(conn);
}

/* Does an entry need a segment for which another one is unmapped, of which the batch may have contents? */
static int needs_room(const struct link *link, const struct batch *batch, const struct entry *entry)
{
    return batch->n > 0 && link->nmapped == NOTES && entry->imm <= RONDO_TENSOR_LAST_INDEX &&
           entry->segment != 0 && mapped(link, entry->segment) == NULL;
}

/* What the other end has taken is sent. */
static rondo_status complete(struct rondo_tensor_conn *conn, int *moved)
{
    struct link *link = conn->link;
    uint64_t head = __atomic_load_n(&link->out->head, __ATOMIC_SEQ_CST);
    char who[96];
    if (head > link->written || head < link->completed) {
        return rondo_fail(RONDO_REMOTE_ERROR, "rank %d on %s: %s has taken %llu of %llu writes about tensors",
                          conn->core->rank, rondo_log_host(), rondo_tensor_who(conn->core, conn->peer, who),
                          (unsigned long long)head, (unsigned long long)link->written);
    }
    for (; link->completed < head; link->completed++) {
        struct rondo_tensor_response *response = link->sending[link->completed % RING];
        link->sending[link->completed % RING] = NULL;
        *moved = 1;
        if (response != NULL) {
            rondo_tensor_sent(response, link->out->ring[link->completed % RING].dropped != 0);
        }
    }
    return RONDO_SUCCESS;
}

static rondo_status shm_progress(struct rondo_tensor_conn *conn, int *moved)
{
    struct link *link = conn->link;
    uint64_t tail = __atomic_load_n(&link->in->tail, __ATOMIC_SEQ_CST);
    struct batch batch;
    RONDO_TRY(complete(conn, moved));
    help(conn, moved);
    if (conn->closing) {
        return RONDO_SUCCESS;
    }
    batch.n = batch.lost = 0;
    batch.bytes = 0;
    if (tail - link->taken > RING) {
        char who[96];
        return rondo_fail(RONDO_REMOTE_ERROR,
                          "rank %d on %s: %s has filled its ring of writes beyond its end", conn->core->rank,
                          rondo_log_host(), rondo_tensor_who(conn->core, conn->peer, who));
    }
    while (link->taken < tail && !conn->closing) {
        struct entry entry = link->in->ring[link->taken % RING];
        if (needs_room(link, &batch, &entry)) {
            RONDO_TRY(batch_move(conn, &batch));
            continue; /* it may be closing by now */
        }
        link->taken++;
        *moved = 1;
        rondo_status status = take_entry(conn, &batch, &entry);
        if (status != RONDO_SUCCESS) {
            (void)batch_move(conn, &batch); /* those before it have come */
            return status;
        }
        if (batch.n == BATCH || batch.bytes >= APART) {
            RONDO_TRY(batch_move(conn, &batch));
        }
    }
    return batch.n > 0 ? batch_move(conn, &batch) : RONDO_SUCCESS;
}

const struct rondo_tensor_wire rondo_tensor_wire_shm = { .name = "shared memory",
                                                         .delivers = 1,
                                                         .open = shm_open_end,
                                                         .connect = shm_connect,
                                                         .buffer = shm_buffer,
                                                         .write = shm_write,
                                                         .ack = shm_ack,
                                                         .content = shm_content,
                                                         .progress = shm_progress,
                                                         .revoke = shm_revoke,
                                                         .is_read = shm_is_read,
                                                         .close = shm_close_end };
