#include "net/peer.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/process.h"
#include "net/auth.h"

_Static_assert(sizeof(struct sockaddr_in6) <= RONDO_ADDR_BYTES, "an address fits");
_Static_assert(sizeof(struct rondo_hello) == 104, "the layout of hello never changes");

static struct {
    pthread_once_t once;
    rondo_status status;
    uint64_t nonce[2];
    uint32_t sequence; /* of unique ids made here */
} process = { .once = PTHREAD_ONCE_INIT };

static void process_init(void) { process.status = rondo_random(process.nonce, sizeof process.nonce); }

/* Read the id of this boot; "" without /proc. */
static void boot_id_read(char *text, size_t size)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!file || !fgets(text, (int)size, file)) {
        text[0] = '\0';
    }
    if (file) {
        fclose(file);
    }
}

static uint64_t host_hash(void)
{
    const char *id = rondo_params()->hostid;
    if (id && id[0]) {
        return rondo_hash(id, strlen(id), 0);
    }
    char boot[64];
    boot_id_read(boot, sizeof boot);
    const char *host = rondo_log_host();
    return rondo_hash(boot, strlen(boot), rondo_hash(host, strlen(host), 0));
}

/* @return the inode of this process's pid namespace; 0: unknown. */
static uint64_t own_pidns(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

void rondo_hello_fill(struct rondo_hello *hello)
{
    *hello = (struct rondo_hello){ .magic = RONDO_PEER_MAGIC,
                                   .version = RONDO_VERSION_CODE,
                                   .record_bytes = sizeof(struct rondo_peer),
                                   .pid = (int32_t)getpid(),
                                   .host_hash = host_hash(),
                                   .pidns = own_pidns(),
                                   .start = rondo_process_start(getpid()) };
    snprintf(hello->host, sizeof hello->host, "%s", rondo_log_host());
}

rondo_status rondo_peer_fill(struct rondo_peer *peer, struct rondo_peer_parts *parts, int rank, int nranks,
                             const struct rondo_shm *probe)
{
    pthread_once(&process.once, process_init);
    RONDO_TRY(process.status);
    memset(peer, 0, sizeof *peer);
    memset(parts, 0, sizeof *parts);
    peer->head.magic = RONDO_PEER_MAGIC;
    peer->version = RONDO_VERSION_CODE;
    peer->record_bytes = sizeof *peer;
    peer->rank = rank;
    peer->nranks = nranks;
    peer->pid = (int32_t)getpid();
    peer->device = -1;
    peer->host_hash = host_hash();
    struct stat st;
    peer->shm_dev = stat("/dev/shm", &st) == 0 ? (uint64_t)st.st_dev : 0;
    peer->pidns = own_pidns();
    peer->netns = stat("/proc/self/ns/net", &st) == 0 ? (uint64_t)st.st_ino : 0;
    /* A forked child shares the nonce with its parent, but not the pid. */
    peer->process_hash = rondo_hash(&peer->pid, sizeof peer->pid,
                                    rondo_hash(process.nonce, sizeof process.nonce, 0));
    peer->param_hash = rondo_param_agree_hash();
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    peer->memory = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    snprintf(parts->host, sizeof parts->host, "%s", rondo_log_host());
    rondo_cores_allowed(&parts->cores);
    peer->host = parts->host;
    peer->cores = &parts->cores;
    if (probe && probe->name.mode == RONDO_SHM_MODE_MEMFD) {
        peer->probe = (struct rondo_peer_probe){ probe->name.inode, probe->name.size, probe->name.fd, 0 };
    }
    return RONDO_SUCCESS;
}

rondo_status rondo_peer_keep(struct rondo_peer *peer, struct rondo_intern *table)
{
    const void *host, *cores;
    RONDO_TRY(rondo_intern(table, peer->host, strlen(peer->host) + 1, &host));
    RONDO_TRY(rondo_intern(table, peer->cores, sizeof *peer->cores, &cores));
    peer->host = host;
    peer->cores = cores;
    return RONDO_SUCCESS;
}

int rondo_peer_can_open(const struct rondo_peer *peer)
{
    struct rondo_shm_name name = { .mode = RONDO_SHM_MODE_MEMFD,
                                   .pid = peer->pid,
                                   .fd = peer->probe.fd,
                                   .inode = peer->probe.inode,
                                   .size = peer->probe.size };
    return peer->probe.inode != 0 && rondo_shm_can_open(&name);
}

int rondo_peer_same_node(const struct rondo_peer *a, const struct rondo_peer *b)
{
    return a->host_hash == b->host_hash && a->shm_dev == b->shm_dev && a->pidns == b->pidns;
}

rondo_status rondo_unique_id_make(struct rondo_unique_id *id, int root_world_rank, const uint64_t *secret)
{
    memset(id, 0, sizeof *id);
    if (secret == NULL) {
        RONDO_TRY(rondo_random(id->nonce, sizeof id->nonce));
    }
    id->root = root_world_rank;
    id->sequence = __atomic_add_fetch(&process.sequence, 1, __ATOMIC_RELAXED);
    return RONDO_SUCCESS;
}

uint64_t rondo_unique_id_hash(const struct rondo_unique_id *id)
{
    uint64_t hash;
    rondo_auth_derive(id->nonce, "rondo name", id, sizeof *id, &hash, sizeof hash);
    return hash;
}

/* ---- checks ---- */

/* Every rank finds this error, so only rank 0 logs it, or a process without a rank. */
static rondo_status RONDO_PRINTF(2, 3) fail_together(rondo_status status, const char *fmt, ...)
{
    char text[RONDO_ERROR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return rondo_log_rank() <= 0 ? rondo_fail(status, "%s", text) : rondo_fail_quiet(status, "%s", text);
}

/* Host names and bus ids come from peers and may lack their terminator. */
#define HOST(peer) (int)strnlen((peer)->host, RONDO_HOST_LEN - 1), (peer)->host

static rondo_status version_fail(int rank, const struct rondo_hello *hello, const struct rondo_hello *root)
{
    return fail_together(RONDO_INVALID_USAGE,
                         "rank %d on %.*s runs Rondo %u.%u.%u (records of %u bytes), but rank 0 on %.*s runs "
                         "%u.%u.%u (%u bytes); "
                         "install the same version on all hosts and check LD_LIBRARY_PATH",
                         rank, HOST(hello), hello->version / 10000, hello->version / 100 % 100,
                         hello->version % 100, hello->record_bytes, HOST(root), root->version / 10000,
                         root->version / 100 % 100, root->version % 100, root->record_bytes);
}

rondo_status rondo_hello_check(const struct rondo_hello *hello, int nranks)
{
    for (int i = 0; i < nranks; i++) {
        if (hello[i].magic != RONDO_PEER_MAGIC) {
            return fail_together(
                RONDO_INVALID_USAGE,
                "rank %d did not send Rondo's greeting; do all ranks run the same program and library?", i);
        }
        if (hello[i].version != hello[0].version || hello[i].record_bytes != hello[0].record_bytes) {
            return version_fail(i, &hello[i], &hello[0]);
        }
    }
    return RONDO_SUCCESS;
}

static struct rondo_hello hello_of(const struct rondo_peer *peer)
{
    struct rondo_hello hello = { .magic = peer->head.magic,
                                 .version = peer->version,
                                 .record_bytes = peer->record_bytes };
    snprintf(hello.host, sizeof hello.host, "%.*s", RONDO_HOST_LEN - 1, peer->host);
    return hello;
}

static rondo_status ranks_check(const struct rondo_peer *peers, int nranks)
{
    struct rondo_hello root = hello_of(&peers[0]);
    for (int i = 0; i < nranks; i++) {
        const struct rondo_peer *peer = &peers[i];
        if (peer->version != root.version || peer->record_bytes != root.record_bytes) {
            struct rondo_hello other = hello_of(peer);
            return version_fail(i, &other, &root);
        }
        if (peer->nranks != nranks) {
            return fail_together(RONDO_INVALID_ARGUMENT,
                                 "rank %d on %.*s creates a communicator of %d ranks where %d take part; "
                                 "pass the same number of ranks everywhere",
                                 i, HOST(peer), peer->nranks, nranks);
        }
        if (peer->rank != i) {
            return fail_together(RONDO_INVALID_ARGUMENT,
                                 "the process at position %d of %d, on %.*s, says that it is rank %d; "
                                 "give each rank a number of its own",
                                 i, nranks, HOST(peer), peer->rank);
        }
    }
    return RONDO_SUCCESS;
}

/* A host and a UUID identify a GPU (MIG slices share a bus id); without a UUID, the bus id does. */
static int gpu_compare(const struct rondo_peer *a, const struct rondo_peer *b)
{
    static const uint8_t none[sizeof a->gpu_uuid];
    if (a->host_hash != b->host_hash) {
        return a->host_hash < b->host_hash ? -1 : 1;
    }
    int order = memcmp(a->gpu_uuid, b->gpu_uuid, sizeof a->gpu_uuid);
    if (order == 0 && memcmp(a->gpu_uuid, none, sizeof none) == 0) {
        order = strncmp(a->bus_id, b->bus_id, sizeof a->bus_id);
    }
    return order;
}

static int gpu_order(const void *x, const void *y)
{
    const struct rondo_peer *a = *(const struct rondo_peer *const *)x,
                            *b = *(const struct rondo_peer *const *)y;
    int order = gpu_compare(a, b);
    return order ? order : (a > b) - (a < b);
}

int rondo_peer_same_gpu(const struct rondo_peer *a, const struct rondo_peer *b)
{
    return a->device >= 0 && b->device >= 0 && rondo_peer_same_node(a, b) && gpu_compare(a, b) == 0;
}

static rondo_status mixed_fail(const struct rondo_peer *peers, int nranks)
{
    int gpu = 0, host = 0;
    while (gpu < nranks && peers[gpu].device < 0) {
        gpu++;
    }
    while (host < nranks && peers[host].device >= 0) {
        host++;
    }
    return fail_together(RONDO_INVALID_ARGUMENT,
                         "rank %d on %.*s creates the communicator for CUDA device %d and rank %d on %.*s "
                         "for host memory: the config's device must name a GPU on all ranks or on none",
                         gpu, HOST(&peers[gpu]), peers[gpu].device, host, HOST(&peers[host]));
}

static rondo_status gpus_check(const struct rondo_peer *peers, int nranks)
{
    int n = 0;
    for (int i = 0; i < nranks; i++) {
        n += peers[i].device >= 0;
    }
    if (n > 0 && n < nranks) {
        return mixed_fail(peers, nranks);
    }
    if (n < 2) {
        return RONDO_SUCCESS;
    }
    const struct rondo_peer **sorted;
    RONDO_TRY(RONDO_NEW_ARRAY(sorted, n, "the list of GPUs"));
    for (int i = n = 0; i < nranks; i++) {
        if (peers[i].device >= 0) {
            sorted[n++] = &peers[i];
        }
    }
    qsort(sorted, (size_t)n, sizeof *sorted, gpu_order);
    const struct rondo_peer *first = NULL, *second = NULL;
    for (int i = 1; i < n; i++) { /* the pair whose second rank is the lowest */
        int allowed = sorted[i - 1]->shares_gpu && sorted[i]->shares_gpu;
        if (!allowed && gpu_compare(sorted[i - 1], sorted[i]) == 0 && (!second || sorted[i] < second)) {
            first = sorted[i - 1];
            second = sorted[i];
        }
    }
    rondo_free(sorted);
    if (!second) {
        return RONDO_SUCCESS;
    }
    return fail_together(RONDO_INVALID_USAGE,
                         "duplicate GPU: rank %d and rank %d on %.*s are both on CUDA device %d, bus id "
                         "%.*s; start at most one rank per GPU, let each rank choose a device by its local "
                         "rank, and check CUDA_VISIBLE_DEVICES and the launcher's GPU binding; for tests, "
                         "RONDO_ALLOW_SHARED_GPU=1 lets ranks share one",
                         (int)(first - peers), (int)(second - peers), HOST(second), second->device,
                         (int)sizeof second->bus_id, second->bus_id);
}

int rondo_peers_param_differs(const struct rondo_peer *peers, int nranks)
{
    for (int i = 1; i < nranks; i++) {
        if (peers[i].param_hash != peers[0].param_hash) {
            return i;
        }
    }
    return -1;
}

rondo_status rondo_peers_check(const struct rondo_peer *peers, int nranks)
{
    RONDO_TRY(ranks_check(peers, nranks));
    RONDO_TRY(gpus_check(peers, nranks));
    int i = rondo_peers_param_differs(peers, nranks);
    if (i >= 0) {
        return fail_together(RONDO_INVALID_USAGE,
                             "rank %d on %.*s and rank 0 on %.*s have different values of RONDO_ parameters "
                             "that all ranks must agree on; set the same on all ranks (mpirun -x NAME, or "
                             "/etc/rondo.conf on all hosts)",
                             i, HOST(&peers[i]), HOST(&peers[0]));
    }
    return RONDO_SUCCESS;
}

/* ---- errors of rounds ---- */

/* Does the text begin with "rank R on HOST:"? */
static int names_rank(const char *text)
{
    int rank, end = 0;
    return sscanf(text, "rank %d on %*[^: ]%n", &rank, &end) == 1 && end > 0 && text[end] == ':';
}

void rondo_round_text_fill(rondo_round_text text, int rank)
{
    const char *why = rondo_error_text();
    memset(text, 0, sizeof(rondo_round_text)); /* all of it is sent */
    int used = names_rank(why)
                   ? 0
                   : snprintf(text, sizeof(rondo_round_text), "rank %d on %s: ", rank, rondo_log_host());
    size_t length = strnlen(why, sizeof(rondo_round_text) - (size_t)used - 1);
    memcpy(text + used, why, length);
}

static struct rondo_round_head head_at(const void *records, size_t stride, int rank)
{
    struct rondo_round_head head;
    memcpy(&head, (const char *)records + (size_t)rank * stride, sizeof head);
    return head;
}

/* @return the first record without a head; -1: all have one. */
static int find_foreign(const void *records, size_t stride, int nranks)
{
    for (int i = 0; i < nranks; i++) {
        if (head_at(records, stride, i).magic != RONDO_PEER_MAGIC) {
            return i;
        }
    }
    return -1;
}

/* How much does an error say? A rank that fails closes its connections, so others lose or await it: of a
 * cause and what came of it, all report the cause. 0: no error. */
static int says(int32_t status, int has_text)
{
    if (status == RONDO_SUCCESS) {
        return 0;
    }
    return !has_text ? 1 : status == RONDO_REMOTE_ERROR || status == RONDO_TIMEOUT ? 2 : 3;
}

/* @return the rank whose error all report; -1: none has one. */
static int find_failed(const void *records, size_t stride, int nranks, const rondo_round_text *texts)
{
    int failed = -1, most = 0;
    for (int i = 0; i < nranks; i++) {
        int much = says(head_at(records, stride, i).status, texts != NULL && texts[i][0] != '\0');
        if (much > most) {
            most = much;
            failed = i;
        }
    }
    return failed;
}

int rondo_round_failed(const void *records, size_t stride, int nranks)
{
    return find_foreign(records, stride, nranks) < 0 && find_failed(records, stride, nranks, NULL) >= 0;
}

/* Records come from peers: an unknown status, or "in progress", must not end up as this rank's. */
static rondo_status fail_as(int32_t sent, int rank, const char *sentence)
{
    int known = sent > 0 && sent < RONDO_NUM_STATUSES && sent != RONDO_IN_PROGRESS;
    rondo_status status = known ? (rondo_status)sent : RONDO_INTERNAL_ERROR;
    rondo_round_text text;
    snprintf(text, sizeof text, "%.*s", (int)sizeof text - 1,
             sentence && sentence[0] ? sentence : rondo_status_string(status));
    return names_rank(text) ? rondo_fail_quiet(status, "%s", text)
                            : rondo_fail_quiet(status, "rank %d: %s", rank, text);
}

rondo_status rondo_round_check(const void *records, size_t stride, int nranks, const rondo_round_text *texts)
{
    int rank = find_foreign(records, stride, nranks);
    if (rank >= 0) {
        return fail_together(
            RONDO_INTERNAL_ERROR,
            "rank %d did not send a record of Rondo's; do all ranks run the same program and library?", rank);
    }
    rank = find_failed(records, stride, nranks, texts);
    return rank < 0 ? RONDO_SUCCESS
                    : fail_as(head_at(records, stride, rank).status, rank, texts ? texts[rank] : NULL);
}

int rondo_round_verdict_failed(const struct rondo_round_verdict *v)
{
    return v->head.magic != RONDO_PEER_MAGIC || v->head.status != RONDO_SUCCESS;
}

/* Of a record that is not Rondo's nothing is believed but that. */
static int has_text(const struct rondo_round_verdict *v)
{
    return v->head.magic == RONDO_PEER_MAGIC && v->has_text != 0;
}

static int verdict_says(const struct rondo_round_verdict *v)
{
    return says(v->head.magic == RONDO_PEER_MAGIC ? v->head.status : RONDO_INTERNAL_ERROR, has_text(v));
}

/* Does a say more than b? */
static int says_more(const struct rondo_round_verdict *a, const struct rondo_round_verdict *b)
{
    int of_a = verdict_says(a), of_b = verdict_says(b);
    return of_a != of_b ? of_a > of_b : a->rank < b->rank;
}

void rondo_round_merge_verdicts(void *into, const void *from)
{
    if (says_more(from, into)) {
        memcpy(into, from, sizeof(struct rondo_round_verdict));
    }
}

void rondo_round_merge_reasons(void *into, const void *from)
{
    if (says_more(from, into)) {
        memcpy(into, from, sizeof(struct rondo_round_reason));
    }
}

rondo_status rondo_round_reason_check(const struct rondo_round_reason *reason)
{
    const struct rondo_round_verdict *v = &reason->verdict;
    int32_t sent = v->head.magic == RONDO_PEER_MAGIC ? v->head.status : RONDO_INTERNAL_ERROR;
    return rondo_round_verdict_failed(v) ? fail_as(sent, v->rank, has_text(v) ? reason->text : NULL)
                                         : RONDO_SUCCESS;
}

/* ---- parameters by name ---- */

/* Write "NAME=value"; a line break in the value becomes a space. */
static void param_line(char *line, size_t size, const struct rondo_param_info *info)
{
    snprintf(line, size, "%s=%s", info->name, info->value ? info->value : "");
    for (char *c = line; *c; c++) {
        if (*c == '\n' || *c == '\r') {
            *c = ' ';
        }
    }
}

enum { PARAM_LINE = 1024 };

size_t rondo_params_pack(char *text, size_t size)
{
    size_t used = 0;
    if (size > 0) {
        text[0] = '\0';
    }
    for (int i = 0; i < RONDO_NUM_PARAMS; i++) {
        struct rondo_param_info info;
        rondo_param_get_info((enum rondo_param_id)i, &info);
        if (!info.agree) {
            continue;
        }
        char line[PARAM_LINE];
        param_line(line, sizeof line, &info);
        used += (size_t)snprintf(used < size ? text + used : NULL, used < size ? size - used : 0, "%s\n",
                                 line);
    }
    return used;
}

/* @return how many bytes to show of the value in a line "NAME=value" of `length` bytes: at most 100. */
static int value_length(size_t length, int name)
{
    return length <= (size_t)name ? 0 : (int)rondo_min_size(length - (size_t)name - 1, 100);
}

rondo_status rondo_params_compare(const char *root_text, const char *text, int rank, const char *host)
{
    /* Both sides run one version, so they list the same parameters in the same order. A line without its
     * end was cut and cannot be compared. */
    for (;;) {
        size_t here = strcspn(text, "\n"), there = strcspn(root_text, "\n");
        if (text[here] != '\n' || root_text[there] != '\n') {
            return RONDO_SUCCESS;
        }
        if (here != there || memcmp(text, root_text, here) != 0) {
            int name = (int)strcspn(text, "=\n");
            return fail_together(RONDO_INVALID_USAGE,
                                 "rank %d on %.*s: RONDO_%.*s is \"%.*s\", but on rank 0 it is \"%.*s\"; set "
                                 "the same on all ranks (mpirun -x RONDO_%.*s)",
                                 rank, (int)strnlen(host, RONDO_HOST_LEN - 1), host, name, text,
                                 value_length(here, name), text + name + 1, value_length(there, name),
                                 root_text + name + 1, name, text);
        }
        text += here + 1;
        root_text += there + 1;
    }
}
