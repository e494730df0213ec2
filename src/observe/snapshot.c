/* From processes to struct rondo_seen: indices, control segments, records. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/control/control_impl.h"
#include "observe/observe.h"

enum { MOST_LOCAL = RONDO_CONTROL_MAX_LOCAL };
static const int64_t look_ns = 20000000; /* between two looks whether the sample is still wanted */

/* The clocks of this host at one moment, and what a segment's tick is. */
struct clocks {
    int64_t mono_ns, real_ns;
    uint64_t ticks;
};

struct scale {
    enum rondo_record_clock clock;
    double ns_per_tick;
    uint64_t ticks;
    int64_t real_ns; /* at these ticks */
};

static void clocks_read(struct clocks *now)
{
    struct timespec t;
    now->ticks = rondo_counter();
    now->mono_ns = rondo_now_ns();
    clock_gettime(CLOCK_REALTIME, &t);
    now->real_ns = t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void scale_make(struct scale *scale, const struct rondo_control_head *head, const struct clocks *now)
{
    uint64_t ticks = now->ticks - head->ticks;
    scale->clock = (enum rondo_record_clock)head->clock;
    scale->ticks = scale->clock == RONDO_CLOCK_NS ? (uint64_t)now->mono_ns : now->ticks;
    scale->real_ns = now->real_ns;
    scale->ns_per_tick = scale->clock == RONDO_CLOCK_NS || ticks == 0
                             ? 1
                             : (double)(now->mono_ns - head->ticks_ns) / (double)ticks;
}

static int64_t real_time(const struct scale *scale, uint64_t ticks)
{
    return ticks == 0 || scale->clock == RONDO_CLOCK_OFF
               ? 0
               : scale->real_ns - (int64_t)((double)(int64_t)(scale->ticks - ticks) * scale->ns_per_tick);
}

/* ---- processes ---- */

/* Find or add a process. @return its index, or -1: no memory. */
static int process_of(struct rondo_seen *seen, int pid, uint64_t start, const char *host)
{
    struct rondo_seen_process *p;
    for (int i = 0; i < seen->nprocesses; i++) {
        p = &seen->processes[i];
        if (p->pid == pid && p->start == start && strcmp(p->host, host) == 0) {
            return i;
        }
    }
    if (RONDO_ARRAY_GROW(seen->processes, seen->nprocesses, seen->nprocesses_room, "processes") !=
        RONDO_SUCCESS) {
        return -1;
    }
    p = &seen->processes[seen->nprocesses];
    memset(p, 0, sizeof(*p));
    p->pid = pid;
    p->start = start;
    snprintf(p->host, sizeof(p->host), "%s", host);
    rondo_process_seen(p);
    return seen->nprocesses++;
}

/* ---- a control segment ---- */

/* pread, complete or not at all; holes of a memfd stay holes. */
static int read_at(int fd, uint64_t at, void *data, size_t bytes)
{
    return pread(fd, data, bytes, (off_t)at) == (ssize_t)bytes;
}

static int head_valid(const struct rondo_control_head *head, const struct rondo_record_entry *entry)
{
    return head->magic == RONDO_CONTROL_MAGIC && head->version == RONDO_CONTROL_VERSION &&
           head->record_version == RONDO_RECORD_VERSION && head->comm_hash == entry->comm_hash &&
           head->nlocal == entry->nlocal && head->nlocal >= 1 && head->nlocal <= MOST_LOCAL &&
           head->block_bytes == sizeof(struct rondo_control_block) &&
           head->rings_bytes == sizeof(struct rondo_record_rings) && head->bytes == entry->bytes &&
           head->blocks_at + (uint64_t)head->block_bytes * (uint64_t)head->nlocal <= head->bytes &&
           head->rings_at <= head->bytes &&
           (uint64_t)head->rings_bytes * (uint64_t)head->nlocal <= head->bytes - head->rings_at &&
           head->reason_at + sizeof(struct rondo_control_reason) <= head->bytes;
}

static void call_unpack(const struct rondo_record_line *line, const struct scale *scale,
                        struct rondo_seen_call *call)
{
    uint64_t word[RONDO_LINE_WORDS];
    for (int i = 0; i < RONDO_LINE_WORDS; i++) {
        word[i] = atomic_load_explicit(&line->word[i], memory_order_relaxed);
    }
    *call = (struct rondo_seen_call){ .seq = word[RONDO_LINE_SEQ],
                                      .count = word[RONDO_LINE_COUNT],
                                      .word = (uint32_t)word[RONDO_LINE_OP],
                                      .op = (int32_t)(word[RONDO_LINE_OP] >> 32),
                                      .root = (int32_t)(uint32_t)word[RONDO_LINE_KIND],
                                      .coll = (uint8_t)(word[RONDO_LINE_KIND] >> 32),
                                      .dtype = (uint8_t)(word[RONDO_LINE_KIND] >> 40),
                                      .state = (uint8_t)(word[RONDO_LINE_KIND] >> RONDO_LINE_STATE_SHIFT),
                                      .begin_ns = real_time(scale, word[RONDO_LINE_BEGIN]),
                                      .end_ns = real_time(scale, word[RONDO_LINE_END]) };
}

/* Read a ring twice, and keep the lines that are the same: a rank may be writing one. */
static int ring_read(int fd, uint64_t at, uint64_t newest, const struct scale *scale,
                     struct rondo_seen_call **calls, int *n)
{
    struct rondo_record_line *twice;
    uint64_t mask = scale->clock == RONDO_CLOCK_OFF ? RONDO_CALL_RING - 1 : RONDO_RECORD_CALLS - 1;
    uint64_t first = newest > mask ? newest - mask : 1;
    size_t bytes = sizeof(*twice) * RONDO_RECORD_CALLS;
    int ok = newest == 0 || (RONDO_NEW_ARRAY(twice, 2 * RONDO_RECORD_CALLS, "a ring") == RONDO_SUCCESS &&
                             RONDO_NEW_ARRAY(*calls, RONDO_RECORD_CALLS, "calls") == RONDO_SUCCESS);
    *n = 0;
    if (newest == 0 || !ok) {
        return ok;
    }
    if (read_at(fd, at, twice, bytes) && read_at(fd, at, twice + RONDO_RECORD_CALLS, bytes)) {
        for (uint64_t seq = first; seq <= newest; seq++) {
            const struct rondo_record_line *line = &twice[seq & mask];
            struct rondo_seen_call call;
            if (memcmp(line, line + RONDO_RECORD_CALLS, sizeof(*line)) == 0) {
                call_unpack(line, scale, &call);
                if (call.seq == seq) {
                    (*calls)[(*n)++] = call;
                }
            }
        }
    }
    rondo_free(twice);
    return 1;
}

static void wait_unpack(const struct rondo_control_block *block, const struct clocks *now,
                        struct rondo_seen_rank *rank)
{
    const struct rondo_record_wait *wait = &block->wait;
    int open = rank->begun > rank->done || rank->message_open;
    if (wait->stamp % 2 != 0 || wait->since_ns == 0 || wait->nlanes == 0 ||
        wait->nlanes > RONDO_RECORD_LANES || wait->begun != rank->begun || !open) {
        return;
    }
    rank->waits = 1;
    rank->since_ns = now->real_ns - (now->mono_ns - wait->since_ns);
    rank->nlanes = wait->nlanes;
    memcpy(rank->lane, wait->lane, sizeof(rank->lane));
    memcpy(rank->text, wait->text, sizeof(rank->text));
    rank->text[sizeof(rank->text) - 1] = '\0';
}

/* Another's memory may hold anything. Such a number of calls would never be counted up to. */
static int is_count(uint64_t calls) { return calls < INT64_MAX; }

/* The newest of its messages, if that is open. */
static void find_message(struct rondo_seen_rank *rank)
{
    for (int i = 0; i < rank->nmessages; i++) {
        if (rank->messages[i].state == 1) { /* the oldest that is open */
            rank->message = rank->messages[i];
            rank->message_open = 1;
            return;
        }
    }
}

static int rank_read(struct rondo_seen *seen, struct rondo_seen_comm *comm, int fd,
                     const struct rondo_record_entry *entry, const struct rondo_control_head *head, int local,
                     const char *host, const struct clocks *now)
{
    uint64_t base = entry->offset;
    struct rondo_control_block block;
    struct rondo_seen_rank *rank = &comm->ranks[comm->n];
    struct scale scale;
    uint64_t rings = base + head->rings_at + (uint64_t)local * head->rings_bytes;
    if (!read_at(fd, base + head->blocks_at + (uint64_t)local * head->block_bytes, &block, sizeof(block)) ||
        block.life.state == RONDO_LIFE_NONE || block.life.rank < 0 || block.life.rank >= comm->nranks ||
        !is_count(block.calls.begun) || !is_count(block.calls.messages)) {
        return 1;
    }
    memset(rank, 0, sizeof(*rank));
    scale_make(&scale, head, now);
    rank->rank = block.life.rank;
    rank->node = entry->node;
    rank->life = (uint8_t)block.life.state;
    rank->begun = block.calls.begun;
    rank->done = block.calls.done;
    rank->process = process_of(seen, block.life.pid, block.life.start, host);
    if (rank->process < 0 ||
        !ring_read(fd, rings + offsetof(struct rondo_record_rings, collective), rank->begun, &scale,
                   &rank->calls, &rank->ncalls) ||
        !ring_read(fd, rings + offsetof(struct rondo_record_rings, message), block.calls.messages, &scale,
                   &rank->messages, &rank->nmessages)) {
        return 0;
    }
    find_message(rank);
    wait_unpack(&block, now, rank);
    comm->n++;
    return 1;
}

static void reason_read(struct rondo_seen_comm *comm, int fd, uint64_t at)
{
    struct rondo_control_reason reason;
    if (read_at(fd, at, &reason, sizeof(reason)) && reason.word != 0) {
        comm->reason = (int32_t)(reason.word >> 8 & 0xff);
        comm->reason_rank = (int32_t)(uint32_t)(reason.word >> 32) - 1;
        if ((reason.word & 3) == RONDO_REASON_SET) {
            memcpy(comm->reason_text, reason.text, sizeof(comm->reason_text));
            comm->reason_text[sizeof(comm->reason_text) - 1] = '\0';
        }
    }
}

static struct rondo_seen_comm *comm_find(struct rondo_seen *seen, uint64_t hash)
{
    for (int i = 0; i < seen->ncomms; i++) {
        if (seen->comms[i].hash == hash) {
            return &seen->comms[i];
        }
    }
    return NULL;
}

static int by_rank(const void *a, const void *b)
{
    const struct rondo_seen_rank *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Make room for the ranks of a node. @return NULL: no memory */
static struct rondo_seen_comm *comm_add(struct rondo_seen *seen, uint64_t hash, int more)
{
    struct rondo_seen_comm *comm = comm_find(seen, hash);
    struct rondo_seen_rank *ranks;
    int room;
    if (comm == NULL) {
        if (RONDO_ARRAY_GROW(seen->comms, seen->ncomms, seen->ncomms_room, "communicators") !=
            RONDO_SUCCESS) {
            return NULL;
        }
        comm = &seen->comms[seen->ncomms++];
        memset(comm, 0, sizeof(*comm));
        comm->hash = hash;
        comm->reason_rank = -1;
    }
    if (comm->n + more <= comm->room) {
        return comm;
    }
    room = comm->n + (more > comm->n ? more : comm->n); /* thousands of nodes may follow */
    if (RONDO_NEW_ARRAY(ranks, room, "ranks") != RONDO_SUCCESS) {
        return NULL;
    }
    if (comm->n > 0) {
        memcpy(ranks, comm->ranks, sizeof(*ranks) * (size_t)comm->n);
    }
    rondo_free(comm->ranks);
    comm->ranks = ranks;
    comm->room = room;
    return comm;
}

/* Sort, if need be: the first n0 are in order, and so are those behind them. Nodes mostly answer in the order
 * of their ranks. */
static void ranks_sort(struct rondo_seen_comm *comm, int n0)
{
    if (n0 > 0 && n0 < comm->n && comm->ranks[n0 - 1].rank > comm->ranks[n0].rank) {
        qsort(comm->ranks, (size_t)comm->n, sizeof(*comm->ranks), by_rank);
    }
}

static void wire_release(struct rondo_seen_wire *wire)
{
    rondo_free(wire->places);
    rondo_free(wire->hosts);
}

static int places_read(const struct rondo_seen_wire *wire, int fd, uint64_t at)
{
    size_t bytes = sizeof(*wire->places) * (size_t)wire->nranks;
    if (!read_at(fd, at, wire->places, bytes) ||
        !read_at(fd, at + bytes, wire->hosts, sizeof(*wire->hosts) * (size_t)wire->nnodes)) {
        return 0;
    }
    for (int n = 0; n < wire->nnodes; n++) {
        wire->hosts[n][RONDO_HOST_LEN - 1] = '\0';
    }
    return 1;
}

/* Keep where the ranks of all nodes listen. @return 0: no memory */
static int wire_read(struct rondo_seen *seen, int fd, const struct rondo_record_entry *entry,
                     const struct rondo_control_head *head)
{
    size_t bytes = rondo_control_places_bytes(entry->nnodes, entry->nranks);
    struct rondo_seen_wire *wire;
    int ok;
    for (int i = 0; i < seen->nwires; i++) {
        if (seen->wires[i].hash == entry->comm_hash) {
            return 1;
        }
    }
    if (entry->nnodes <= 1 || entry->nnodes > entry->nranks || head->places != 1 || bytes > head->bytes ||
        head->places_at > head->bytes - bytes) {
        return 1;
    }
    if (RONDO_ARRAY_GROW(seen->wires, seen->nwires, seen->nwires_room, "places") != RONDO_SUCCESS) {
        return 0;
    }
    wire = &seen->wires[seen->nwires];
    *wire = (struct rondo_seen_wire){ .hash = entry->comm_hash,
                                      .secret = { head->secret[0], head->secret[1] },
                                      .scope = head->scope,
                                      .nranks = entry->nranks,
                                      .nnodes = entry->nnodes };
    ok = RONDO_NEW_ARRAY(wire->places, wire->nranks, "places") == RONDO_SUCCESS &&
         RONDO_NEW_ARRAY(wire->hosts, wire->nnodes, "places") == RONDO_SUCCESS;
    if (ok && places_read(wire, fd, entry->offset + head->places_at)) {
        seen->nwires++;
    } else {
        wire_release(wire);
    }
    return ok;
}

/* Read a communicator's segment through a descriptor of one of its processes. @return 0: no memory */
static int segment_read(struct rondo_seen *seen, int fd, const struct rondo_record_entry *entry,
                        const char *host, int wires)
{
    struct rondo_control_head head;
    struct rondo_seen_comm *comm;
    struct clocks now;
    if (!read_at(fd, entry->offset, &head, sizeof(head)) || !head_valid(&head, entry)) {
        return 1;
    }
    comm = comm_add(seen, entry->comm_hash, head.nlocal);
    if (comm == NULL) {
        return 0;
    }
    if (wires && !wire_read(seen, fd, entry, &head)) {
        return 0;
    }
    clocks_read(&now);
    comm->nranks = entry->nranks;
    comm->nnodes = entry->nnodes;
    memcpy(comm->name, entry->name, sizeof(comm->name));
    comm->name[sizeof(comm->name) - 1] = '\0';
    reason_read(comm, fd, entry->offset + head.reason_at);
    for (int i = 0; i < head.nlocal; i++) {
        if (!rank_read(seen, comm, fd, entry, &head, i, host, &now)) {
            return 0;
        }
    }
    qsort(comm->ranks, (size_t)comm->n, sizeof(*comm->ranks), by_rank);
    return 1;
}

/* ---- indices ---- */

static int entry_valid(const struct rondo_record_entry *entry)
{
    return entry->state == 1 && entry->fd >= 0 && entry->nranks >= 1 && entry->rank >= 0 &&
           entry->rank < entry->nranks && entry->nlocal >= 1 && entry->nlocal <= MOST_LOCAL &&
           entry->bytes >= sizeof(struct rondo_control_head);
}

/* Was the node's segment read already, through another process? */
static int is_known(const struct rondo_seen *seen, const struct rondo_record_entry *entry, const char *host)
{
    for (int i = 0; i < seen->ncomms; i++) {
        const struct rondo_seen_comm *comm = &seen->comms[i];
        for (int r = 0; comm->hash == entry->comm_hash && r < comm->n; r++) {
            if (comm->ranks[r].node == entry->node &&
                strcmp(seen->processes[comm->ranks[r].process].host, host) == 0) {
                return 1;
            }
        }
    }
    return 0;
}

static int index_read(struct rondo_seen *seen, int fd, int pid, const struct rondo_observe_request *request)
{
    struct rondo_record_index index;
    struct rondo_record_entry entry;
    char path[64];
    int process, n, ok = 1;
    if (!read_at(fd, 0, &index, sizeof(index)) || index.magic != RONDO_RECORD_MAGIC ||
        index.version != RONDO_RECORD_VERSION || index.pid != pid) {
        return 1; /* another version's, or a forked child's */
    }
    index.host[sizeof(index.host) - 1] = index.job[sizeof(index.job) - 1] = '\0';
    if (request->job != NULL && strcmp(request->job, index.job) != 0) {
        return 1;
    }
    if (!request->any_host && strcmp(index.host, rondo_log_host()) != 0) {
        seen->nelsewhere++;
        return 1;
    }
    process = process_of(seen, pid, index.start, index.host);
    if (process < 0) {
        return 0;
    }
    memcpy(seen->processes[process].job, index.job, sizeof(index.job));
    seen->processes[process].slurm = index.slurm != 0;
    n = index.ncomms < RONDO_RECORD_COMMS ? index.ncomms : RONDO_RECORD_COMMS;
    for (int i = 0; i < n && ok; i++) {
        struct stat st;
        int segment;
        if (!read_at(fd, sizeof(index) + sizeof(entry) * (size_t)i, &entry, sizeof(entry)) ||
            !entry_valid(&entry) || is_known(seen, &entry, index.host)) {
            continue;
        }
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, entry.fd);
        segment = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (segment >= 0) {
            ok = fstat(segment, &st) != 0 || st.st_ino != entry.inode ||
                 segment_read(seen, segment, &entry, index.host, request->wires);
            close(segment);
        }
    }
    return ok;
}

static int is_of(int pid, uid_t user)
{
    char path[32];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d", pid);
    return stat(path, &st) == 0 && st.st_uid == user;
}

/* Look for the index among a process's descriptors. @return 0: no memory */
static int process_read(struct rondo_seen *seen, int pid, const struct rondo_observe_request *request)
{
    char path[320], link[64];
    struct dirent *file;
    DIR *dir;
    int ok = 1;
    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    dir = opendir(path);
    seen->nforbidden += dir == NULL && errno == EACCES && !is_of(pid, geteuid());
    while (dir != NULL && ok && (file = readdir(dir)) != NULL) {
        ssize_t n;
        snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, file->d_name);
        n = readlink(path, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = '\0';
        if (strncmp(link, "/memfd:" RONDO_RECORD_NAME, sizeof("/memfd:" RONDO_RECORD_NAME) - 1) == 0) {
            int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
            if (fd >= 0) {
                ok = index_read(seen, fd, pid, request);
                close(fd);
            }
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return ok;
}

/* ---- which processes ---- */

/* Visit every process of this user. */
static int all_read(struct rondo_seen *seen, const struct rondo_observe_request *request)
{
    struct dirent *file;
    DIR *proc = opendir("/proc");
    int ok = 1;
    while (proc != NULL && ok && (file = readdir(proc)) != NULL) {
        int pid = isdigit((unsigned char)file->d_name[0]) ? atoi(file->d_name) : 0;
        if (pid > 0 && (geteuid() == 0 || is_of(pid, geteuid()))) {
            ok = process_read(seen, pid, request);
        }
    }
    if (proc != NULL) {
        closedir(proc);
    }
    return ok;
}

/* Begin with some processes. Each segment names the processes of its ranks, so the list grows. */
static int some_read(struct rondo_seen *seen, const struct rondo_observe_request *request)
{
    int ok = 1;
    for (int i = 0; i < request->npids && ok; i++) {
        ok = process_read(seen, request->pids[i], request);
    }
    for (int i = 0; i < seen->nprocesses && ok; i++) {
        if (seen->processes[i].state != 0) {
            ok = process_read(seen, seen->processes[i].pid, request);
        }
    }
    return ok;
}

/* ---- what the processes use of a core ---- */

static uint64_t cpu_ticks(int pid)
{
    char path[32], text[1024], *at;
    unsigned long long user = 0, system = 0;
    FILE *file;
    size_t n;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    at = strrchr(text, ')');
    return at != NULL && sscanf(at + 1, " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu %llu", &user,
                                &system) == 2
               ? user + system
               : 0;
}

static void sample_wait(int64_t end, const _Atomic int *ended)
{
    int64_t left;
    while ((left = end - rondo_now_ns()) > 0 && (ended == NULL || !atomic_load(ended))) {
        struct timespec t = { .tv_nsec = (long)(left < look_ns ? left : look_ns) };
        nanosleep(&t, NULL);
    }
}

static rondo_status sample(struct rondo_seen *seen, int ms, const _Atomic int *ended)
{
    int64_t begin = rondo_now_ns();
    uint64_t *before;
    double ticks;
    RONDO_TRY(RONDO_NEW_ARRAY(before, seen->nprocesses, "times of processes"));
    for (int i = 0; i < seen->nprocesses; i++) {
        before[i] = cpu_ticks(seen->processes[i].pid);
    }
    sample_wait(begin + ms * INT64_C(1000000), ended);
    ticks = (double)(rondo_now_ns() - begin) * 1e-9 * (double)sysconf(_SC_CLK_TCK);
    for (int i = 0; i < seen->nprocesses; i++) {
        uint64_t after = cpu_ticks(seen->processes[i].pid), used = after > before[i] ? after - before[i] : 0;
        double percent = 100.0 * (double)used / ticks + 0.5;
        seen->processes[i].sampled = 1;
        seen->processes[i].percent = (int16_t)(percent < INT16_MAX ? percent : INT16_MAX);
    }
    rondo_free(before);
    return RONDO_SUCCESS;
}

const struct rondo_seen_call *rondo_seen_call_of(const struct rondo_seen_rank *rank, uint64_t seq)
{
    for (int i = rank->ncalls - 1; i >= 0 && rank->calls[i].seq >= seq; i--) {
        if (rank->calls[i].seq == seq) {
            return &rank->calls[i];
        }
    }
    return NULL;
}

/* ---- the whole ---- */

rondo_status rondo_observe(struct rondo_seen *seen, const struct rondo_observe_request *request)
{
    struct clocks now;
    int ok = request->pids != NULL ? some_read(seen, request) : all_read(seen, request);
    clocks_read(&now);
    seen->now_ns = now.real_ns;
    if (!ok) {
        return RONDO_SYSTEM_ERROR;
    }
    return request->sample_ms > 0 && seen->nprocesses > 0 ? sample(seen, request->sample_ms, request->ended)
                                                          : RONDO_SUCCESS;
}

/* Memory is read as another process's would be: by pread, so one reader serves both. */
rondo_status rondo_observe_own(struct rondo_seen *seen, const struct rondo_record_entry *entry,
                               const void *base)
{
    struct rondo_record_entry here = *entry;
    struct clocks now;
    int ok, fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return rondo_fail(RONDO_SYSTEM_ERROR, "cannot open /proc/self/mem on %s: %m", rondo_log_host());
    }
    here.offset = (uint64_t)(uintptr_t)base;
    ok = segment_read(seen, fd, &here, rondo_log_host(), 0);
    close(fd);
    clocks_read(&now);
    seen->now_ns = now.real_ns;
    return ok ? RONDO_SUCCESS : RONDO_SYSTEM_ERROR;
}

static void rank_release(struct rondo_seen_rank *rank)
{
    rondo_free(rank->calls);
    rondo_free(rank->messages);
}

static void comm_release(struct rondo_seen_comm *comm)
{
    for (int r = 0; r < comm->n; r++) {
        rank_release(&comm->ranks[r]);
    }
    rondo_free(comm->ranks);
}

void rondo_seen_release(struct rondo_seen *seen)
{
    for (int i = 0; i < seen->ncomms; i++) {
        comm_release(&seen->comms[i]);
    }
    for (int i = 0; i < seen->nwires; i++) {
        wire_release(&seen->wires[i]);
    }
    rondo_free(seen->wires);
    rondo_free(seen->comms);
    rondo_free(seen->processes);
    memset(seen, 0, sizeof(*seen));
}

/* ---- from host to host ---- */

enum { WIRE_MAGIC = 0x6e656573 };

struct wire_head {
    uint32_t magic, version;
    uint32_t process_bytes, rank_bytes, call_bytes, comm_bytes;
    int32_t nprocesses, ncomms;
    int64_t now_ns;
};

static const struct wire_head wire_shape = { .magic = WIRE_MAGIC,
                                             .version = RONDO_RECORD_VERSION,
                                             .process_bytes = sizeof(struct rondo_seen_process),
                                             .rank_bytes = sizeof(struct rondo_seen_rank),
                                             .call_bytes = sizeof(struct rondo_seen_call),
                                             .comm_bytes = sizeof(struct rondo_seen_comm) };

static void put(FILE *out, const void *data, size_t size, int n)
{
    if (n > 0) {
        (void)fwrite(data, size, (size_t)n, out); /* ferror tells in the end */
    }
}

rondo_status rondo_seen_write(FILE *out, const struct rondo_seen *seen)
{
    struct wire_head head = wire_shape;
    head.nprocesses = seen->nprocesses;
    head.ncomms = seen->ncomms;
    head.now_ns = seen->now_ns;
    put(out, &head, sizeof(head), 1);
    put(out, seen->processes, sizeof(*seen->processes), seen->nprocesses);
    for (int i = 0; i < seen->ncomms; i++) {
        const struct rondo_seen_comm *comm = &seen->comms[i];
        put(out, comm, sizeof(*comm), 1);
        for (int r = 0; r < comm->n; r++) {
            const struct rondo_seen_rank *rank = &comm->ranks[r];
            put(out, rank, sizeof(*rank), 1);
            put(out, rank->calls, sizeof(*rank->calls), rank->ncalls);
            put(out, rank->messages, sizeof(*rank->messages), rank->nmessages);
        }
    }
    return fflush(out) == 0 && !ferror(out)
               ? RONDO_SUCCESS
               : rondo_fail(RONDO_SYSTEM_ERROR, "cannot write what the ranks of %s do: %m", rondo_log_host());
}

static int get(FILE *in, void *data, size_t size, size_t n)
{
    return n == 0 || fread(data, size, n, in) == n;
}

static int calls_get(FILE *in, struct rondo_seen_call **calls, int n)
{
    *calls = NULL;
    return n == 0 || (n > 0 && n <= RONDO_RECORD_CALLS &&
                      RONDO_NEW_ARRAY(*calls, RONDO_RECORD_CALLS, "calls") == RONDO_SUCCESS &&
                      get(in, *calls, sizeof(**calls), (size_t)n));
}

/* Read a rank. @return 0: this is none, and nothing is held */
static int rank_get(FILE *in, struct rondo_seen_rank *rank, int nranks, int nprocesses)
{
    if (!get(in, rank, sizeof(*rank), 1)) {
        return 0;
    }
    rank->calls = rank->messages = NULL;
    rank->text[sizeof(rank->text) - 1] = '\0';
    if (rank->process >= 0 && rank->process < nprocesses && rank->rank >= 0 && rank->rank < nranks &&
        is_count(rank->begun) && rank->nlanes <= RONDO_RECORD_LANES &&
        calls_get(in, &rank->calls, rank->ncalls) && calls_get(in, &rank->messages, rank->nmessages)) {
        return 1;
    }
    rank_release(rank);
    return 0;
}

static int comm_get(FILE *in, struct rondo_seen *seen, int processes, int nprocesses)
{
    struct rondo_seen_comm theirs, *comm;
    int known, before = -1;
    if (!get(in, &theirs, sizeof(theirs), 1) || theirs.n < 0 || theirs.n > MOST_LOCAL ||
        theirs.nranks < theirs.n || theirs.nranks < 1) {
        return 0;
    }
    comm = comm_add(seen, theirs.hash, theirs.n);
    if (comm == NULL || (comm->nranks != 0 && comm->nranks != theirs.nranks)) {
        return 0;
    }
    known = comm->n;
    if (comm->nranks == 0 || comm->reason == 0) { /* new, or they know why it has ended */
        struct rondo_seen_rank *ranks = comm->ranks;
        int room = comm->room;
        *comm = theirs;
        comm->ranks = ranks;
        comm->room = room;
        comm->n = known;
        comm->reason_text[sizeof(comm->reason_text) - 1] = comm->name[sizeof(comm->name) - 1] = '\0';
    }
    for (int r = 0; r < theirs.n; r++) {
        struct rondo_seen_rank *rank = &comm->ranks[comm->n];
        if (!rank_get(in, rank, comm->nranks, nprocesses)) {
            return 0;
        }
        if (rank->rank <= before) { /* they are in order */
            rank_release(rank);
            return 0;
        }
        before = rank->rank;
        rank->process += processes;
        if (bsearch(rank, comm->ranks, (size_t)known, sizeof(*rank), by_rank) == NULL) {
            comm->n++;
        } else {
            rank_release(rank); /* another one has seen it already */
        }
    }
    ranks_sort(comm, known);
    return 1;
}

static int processes_get(FILE *in, struct rondo_seen *seen, int n)
{
    for (int i = 0; i < n; i++) {
        struct rondo_seen_process *p;
        if (RONDO_ARRAY_GROW(seen->processes, seen->nprocesses, seen->nprocesses_room, "processes") !=
            RONDO_SUCCESS) {
            return 0;
        }
        p = &seen->processes[seen->nprocesses];
        if (!get(in, p, sizeof(*p), 1)) {
            return 0;
        }
        p->host[sizeof(p->host) - 1] = p->job[sizeof(p->job) - 1] = p->command[sizeof(p->command) - 1] = '\0';
        p->wchan[sizeof(p->wchan) - 1] = p->syscall[sizeof(p->syscall) - 1] = '\0';
        p->stack[sizeof(p->stack) - 1] = '\0';
        seen->nprocesses++;
    }
    return 1;
}

rondo_status rondo_seen_read(FILE *in, struct rondo_seen *seen)
{
    struct wire_head head;
    int processes = seen->nprocesses, ok;
    ok = get(in, &head, sizeof(head), 1) && head.nprocesses >= 0 && head.ncomms >= 0 &&
         memcmp(&head, &wire_shape, offsetof(struct wire_head, nprocesses)) == 0 &&
         processes_get(in, seen, head.nprocesses);
    for (int i = 0; ok && i < head.ncomms; i++) {
        ok = comm_get(in, seen, processes, head.nprocesses);
    }
    seen->now_ns = ok && head.now_ns > seen->now_ns ? head.now_ns : seen->now_ns;
    return ok ? RONDO_SUCCESS
              : rondo_fail_quiet(RONDO_REMOTE_ERROR, "not what rondo-doctor of this version writes");
}
