/* Peer records: what they contain, what the checks refuse, and how all ranks get the same error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "net/peer_wire.h"
#include "says.h"

static struct rondo_peer_parts parts; /* of all records that are filled here */

static struct rondo_peer *peers_new(int n)
{
    struct rondo_peer *peers, one;
    assert_int_equal(RONDO_NEW_ARRAY(peers, n, "peers"), RONDO_SUCCESS);
    assert_int_equal(rondo_peer_fill(&one, &parts, 0, n, NULL), RONDO_SUCCESS);
    for (int i = 0; i < n; i++) {
        peers[i] = one;
        peers[i].rank = i;
    }
    return peers;
}

static void record_describes_this_process(void **state)
{
    (void)state;
    struct rondo_peer peer;
    struct rondo_shm probe = { .fd = 7,
                               .name = { .mode = RONDO_SHM_MODE_MEMFD, .pid = 1, .fd = 7, .inode = 9 } };
    struct rondo_shm file = { .fd = -1, .name = { .mode = RONDO_SHM_MODE_FILE, .inode = 9 } };
    assert_int_equal(rondo_peer_fill(&peer, &parts, 3, 8, &probe), RONDO_SUCCESS);
    assert_int_equal(peer.head.magic, RONDO_PEER_MAGIC);
    assert_int_equal(peer.head.status, RONDO_SUCCESS);
    assert_int_equal(peer.version, RONDO_VERSION_CODE);
    assert_int_equal(peer.record_bytes, sizeof peer);
    assert_int_equal(peer.rank, 3);
    assert_int_equal(peer.nranks, 8);
    assert_int_equal(peer.pid, getpid());
    assert_int_equal(peer.device, -1);
    assert_string_equal(peer.host, rondo_log_host());
    assert_int_equal(peer.param_hash, rondo_param_agree_hash());
    assert_true(peer.memory > 1 << 20);
    assert_true(rondo_cores_count(peer.cores) > 0);
    assert_int_not_equal(peer.pidns, 0);
    assert_int_not_equal(peer.netns, 0);
    assert_int_equal(peer.probe.inode, 9);
    for (size_t i = 0; i < sizeof peer.control_addr; i++) { /* filled later, with several nodes */
        assert_int_equal(peer.control_addr[i], 0);
    }
    assert_int_equal(peer.control_number, 0);
    assert_int_equal(peer.netdevs, 0);
    assert_false(rondo_peer_can_open(&peer)); /* no process has that descriptor */
    assert_int_equal(rondo_peer_fill(&peer, &parts, 3, 8, &file), RONDO_SUCCESS);
    assert_int_equal(peer.probe.inode, 0);
}

static void a_process_opens_the_probe_of_its_own_record(void **state)
{
    struct rondo_peer peer;
    struct rondo_shm probe = { .fd = -1 };
    (void)state;
    if (rondo_shm_create(&probe, 4096, RONDO_SHM_MODE_MEMFD) != RONDO_SUCCESS) {
        skip(); /* no memfds */
    }
    assert_int_equal(rondo_peer_fill(&peer, &parts, 0, 1, &probe), RONDO_SUCCESS);
    assert_true(rondo_peer_can_open(&peer));
    peer.probe.inode++; /* another file has that descriptor now */
    assert_false(rondo_peer_can_open(&peer));
    rondo_shm_close(&probe);
}

/* Ranks of a host share its name and equal core sets; what a record points to outlives where it came from. */
static void hosts_and_core_sets_are_kept_once(void **state)
{
    enum { RANKS = 4000, PER_HOST = 8, SETS = 4 };
    static struct rondo_peer peers[RANKS];
    struct rondo_intern *table;
    (void)state;
    assert_int_equal(rondo_intern_create(&table), RONDO_SUCCESS);
    for (int r = 0; r < RANKS; r++) {
        struct rondo_peer_parts own = { .host = "" };
        snprintf(own.host, sizeof own.host, "node%d.cluster", r / PER_HOST);
        own.cores.bits[r % SETS] = 0xff;
        peers[r] = (struct rondo_peer){ .rank = r, .host = own.host, .cores = &own.cores };
        assert_int_equal(rondo_peer_keep(&peers[r], table), RONDO_SUCCESS);
    }
    assert_int_equal(rondo_intern_count(table), RANKS / PER_HOST + SETS);
    rondo_intern_hold(table);
    rondo_intern_release(table); /* once is left */
    for (int r = 0; r < RANKS; r++) {
        char host[RONDO_HOST_LEN];
        snprintf(host, sizeof host, "node%d.cluster", r / PER_HOST);
        assert_string_equal(peers[r].host, host);
        assert_ptr_equal(peers[r].host, peers[r / PER_HOST * PER_HOST].host);
        assert_ptr_equal(peers[r].cores, peers[r % SETS].cores);
        assert_int_equal(peers[r].cores->bits[r % SETS], 0xff);
    }
    rondo_intern_release(table);
}

static void forked_child_is_another_process_on_the_same_node(void **state)
{
    (void)state;
    struct rondo_peer parent, again, child;
    assert_int_equal(rondo_peer_fill(&parent, &parts, 0, 2, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_peer_fill(&again, &parts, 1, 2, NULL), RONDO_SUCCESS);
    assert_int_equal(parent.process_hash, again.process_hash);
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int bad = rondo_peer_fill(&child, &parts, 1, 2, NULL) != RONDO_SUCCESS ||
                  write(fd[1], &child, sizeof child) != (ssize_t)sizeof child;
        _exit(bad);
    }
    close(fd[1]);
    assert_int_equal(read(fd[0], &child, sizeof child), sizeof child);
    close(fd[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_not_equal(child.process_hash, parent.process_hash);
    assert_true(rondo_peer_same_node(&parent, &child));
}

static void node_is_host_and_shm_device_and_pid_namespace(void **state)
{
    (void)state;
    struct rondo_peer *peers = peers_new(2);
    assert_true(rondo_peer_same_node(&peers[0], &peers[1]));
    peers[1].shm_dev++;
    assert_false(rondo_peer_same_node(&peers[0], &peers[1]));
    peers[1].shm_dev--;
    peers[1].pidns++;
    assert_false(rondo_peer_same_node(&peers[0], &peers[1]));
    rondo_free(peers);
}

static void RONDO_HOSTID_replaces_the_identity_of_the_host(void **state)
{
    (void)state;
    static const char *const ids[] = { "n1", "n2", "n1", NULL };
    struct rondo_peer peer[4];
    for (int i = 0; i < 4; i++) {
        if (ids[i]) {
            setenv("RONDO_HOSTID", ids[i], 1);
        } else {
            unsetenv("RONDO_HOSTID");
        }
        assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
        assert_int_equal(rondo_peer_fill(&peer[i], &parts, i, 4, NULL), RONDO_SUCCESS);
    }
    assert_false(rondo_peer_same_node(&peer[0], &peer[1]));
    assert_true(rondo_peer_same_node(&peer[0], &peer[2]));
    assert_false(rondo_peer_same_node(&peer[0], &peer[3]));
    /* Ranks need not agree on it. */
    assert_int_equal(peer[0].param_hash, peer[1].param_hash);
}

static void unique_ids_differ(void **state)
{
    (void)state;
    struct rondo_unique_id a, b;
    assert_int_equal(rondo_unique_id_make(&a, 5, NULL), RONDO_SUCCESS);
    assert_int_equal(rondo_unique_id_make(&b, 5, NULL), RONDO_SUCCESS);
    assert_int_equal(a.root, 5);
    assert_int_equal(b.sequence, a.sequence + 1);
    assert_memory_not_equal(a.nonce, b.nonce, sizeof a.nonce);
    static const uint64_t zero[2];
    assert_memory_not_equal(a.nonce, zero, sizeof zero);
    assert_int_equal(rondo_unique_id_make(&a, 5, b.nonce), RONDO_SUCCESS); /* it does not travel */
    assert_memory_equal(a.nonce, zero, sizeof zero);
}

static void an_identity_has_a_public_name(void **state)
{
    (void)state;
    struct rondo_unique_id id;
    assert_int_equal(rondo_unique_id_make(&id, 5, NULL), RONDO_SUCCESS);
    uint64_t name = rondo_unique_id_hash(&id);
    assert_true(name == rondo_unique_id_hash(&id));
    assert_true(name != id.nonce[0] && name != id.nonce[1]);
    id.sequence++;
    assert_true(name != rondo_unique_id_hash(&id));
    id.sequence--;
    id.nonce[1] ^= 1;
    assert_true(name != rondo_unique_id_hash(&id));
}

static void equal_records_pass(void **state)
{
    (void)state;
    static const int sizes[] = { 1, 2, 5, 20000 };
    for (size_t s = 0; s < RONDO_COUNTOF(sizes); s++) {
        struct rondo_peer *peers = peers_new(sizes[s]);
        for (int i = 0; i < sizes[s]; i++) {
            peers[i].device = 0;
            memcpy(peers[i].gpu_uuid, &i, sizeof i);
            peers[i].gpu_uuid[15] = 1;
        }
        assert_int_equal(rondo_peers_check(peers, sizes[s]), RONDO_SUCCESS);
        rondo_free(peers);
    }
}

static void a_different_version_is_named_with_both_hosts(void **state)
{
    (void)state;
    struct rondo_peer *peers = peers_new(3);
    peers[2].version = 90807;
    char unterminated[RONDO_HOST_LEN]; /* the check must not read past it */
    memset(unterminated, 'x', sizeof unterminated);
    peers[2].host = unterminated;
    assert_int_equal(rondo_peers_check(peers, 3), RONDO_INVALID_USAGE);
    assert_says("rank 2 on xxx");
    assert_says("Rondo 9.8.7");
    assert_says("rank 0 on ");
    char too_long[RONDO_HOST_LEN + 1] = { 0 };
    memset(too_long, 'x', RONDO_HOST_LEN);
    assert_null(strstr(rondo_error_text(), too_long));
    rondo_free(peers);

    struct rondo_hello hello[3];
    memset(hello, 0, sizeof hello);
    for (int i = 0; i < 3; i++) {
        hello[i] = (struct rondo_hello){
            .magic = RONDO_PEER_MAGIC, .version = 100, .record_bytes = 1000, .host = "h"
        };
    }
    assert_int_equal(rondo_hello_check(hello, 3), RONDO_SUCCESS);
    hello[1].record_bytes = 1008;
    assert_int_equal(rondo_hello_check(hello, 3), RONDO_INVALID_USAGE);
    assert_says("rank 1 on h runs Rondo 0.1.0 (records of 1008 bytes)");
    hello[0].magic = 0;
    assert_int_equal(rondo_hello_check(hello, 3), RONDO_INVALID_USAGE);
    assert_says("rank 0");
}

static void ranks_and_sizes_that_do_not_match_are_named(void **state)
{
    (void)state;
    struct rondo_peer *peers = peers_new(4);
    peers[2].rank = 1;
    assert_int_equal(rondo_peers_check(peers, 4), RONDO_INVALID_ARGUMENT);
    assert_says("position 2 of 4");
    assert_says("says that it is rank 1");
    peers[2].rank = 2;
    peers[3].nranks = 5;
    assert_int_equal(rondo_peers_check(peers, 4), RONDO_INVALID_ARGUMENT);
    assert_says("rank 3 on ");
    assert_says("of 5 ranks where 4 take part");
    rondo_free(peers);
}

static void two_ranks_on_one_gpu_are_refused(void **state)
{
    (void)state;
    struct rondo_peer *peers = peers_new(6);
    for (int i = 0; i < 6; i++) {
        peers[i].device = i % 4;
        peers[i].gpu_uuid[0] = (uint8_t)(i + 1);
        snprintf(peers[i].bus_id, sizeof peers[i].bus_id, "0000:%02x:00.0", i + 1);
    }
    assert_int_equal(rondo_peers_check(peers, 6), RONDO_SUCCESS);
    /* MIG slices of a GPU share its bus id, not the UUID. */
    memcpy(peers[5].bus_id, peers[2].bus_id, sizeof peers[5].bus_id);
    assert_int_equal(rondo_peers_check(peers, 6), RONDO_SUCCESS);
    peers[5].gpu_uuid[0] = peers[2].gpu_uuid[0];
    assert_int_equal(rondo_peers_check(peers, 6), RONDO_INVALID_USAGE);
    assert_says("rank 2 and rank 5 on ");
    assert_says(peers[0].host);
    assert_says("0000:03:00.0");
    assert_says("local rank");
    peers[5].host_hash++; /* another host may have a GPU with the same UUID */
    assert_int_equal(rondo_peers_check(peers, 6), RONDO_SUCCESS);
    peers[5].host_hash--;
    peers[5].shares_gpu = 1; /* both must allow it */
    assert_int_equal(rondo_peers_check(peers, 6), RONDO_INVALID_USAGE);
    peers[2].shares_gpu = 1;
    assert_int_equal(rondo_peers_check(peers, 6), RONDO_SUCCESS);
    peers[5].device = -1; /* host memory */
    assert_int_equal(rondo_peers_check(peers, 6), RONDO_INVALID_ARGUMENT);
    assert_says("on all ranks or on none");
    peers[5].device = 1;
    peers[5].gpu_uuid[0] = 6;
    peers[2].shares_gpu = peers[5].shares_gpu = 0;
    /* Without UUIDs the bus id decides. */
    memset(peers[0].gpu_uuid, 0, sizeof peers[0].gpu_uuid);
    memset(peers[1].gpu_uuid, 0, sizeof peers[1].gpu_uuid);
    assert_int_equal(rondo_peers_check(peers, 6), RONDO_SUCCESS);
    memcpy(peers[1].bus_id, peers[0].bus_id, sizeof peers[1].bus_id);
    assert_int_equal(rondo_peers_check(peers, 6), RONDO_INVALID_USAGE);
    assert_says("rank 0 and rank 1 on ");
    rondo_free(peers);
}

static void differing_parameters_are_seen_and_then_named(void **state)
{
    (void)state;
    struct rondo_peer *peers = peers_new(4);
    assert_int_equal(rondo_peers_param_differs(peers, 4), -1);
    peers[2].param_hash++;
    peers[3].param_hash++;
    assert_int_equal(rondo_peers_param_differs(peers, 4), 2);
    assert_int_equal(rondo_peers_check(peers, 4), RONDO_INVALID_USAGE);
    assert_says("rank 2 on ");
    rondo_free(peers);

    char root[4096], other[4096], cut[64];
    size_t length = rondo_params_pack(root, sizeof root);
    assert_true(length > 0 && length < sizeof root);
    assert_int_equal(strlen(root), length);
    assert_int_equal(rondo_params_pack(NULL, 0), length);
    assert_int_equal(rondo_params_compare(root, root, 3, "h3"), RONDO_SUCCESS);
    assert_int_equal(rondo_params_pack(cut, sizeof cut), length);
    assert_memory_equal(cut, root, sizeof cut - 1);
    assert_int_equal(rondo_params_compare(cut, root, 3, "h3"), RONDO_SUCCESS);
    assert_int_equal(rondo_params_compare("", root, 3, "h3"), RONDO_SUCCESS);

    uint64_t before = rondo_param_agree_hash();
    setenv("RONDO_ALGO", "tree", 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_int_not_equal(rondo_param_agree_hash(), before);
    assert_int_equal(rondo_params_pack(other, sizeof other), length + 4);
    unsetenv("RONDO_ALGO");
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
    assert_int_equal(rondo_params_compare(root, other, 3, "h3"), RONDO_INVALID_USAGE);
    assert_says("rank 3 on h3: RONDO_ALGO is \"tree\", but on rank 0 it is \"\"");
    assert_int_equal(rondo_params_compare(other, root, 1, "h1"), RONDO_INVALID_USAGE);
    assert_says("rank 1 on h1: RONDO_ALGO is \"\", but on rank 0 it is \"tree\"");
    /* A peer may send anything. */
    assert_int_equal(rondo_params_compare("\nx\n", "ALGO=a\n", 1, "h1"), RONDO_INVALID_USAGE);
    assert_says("RONDO_ALGO is \"a\", but on rank 0 it is \"\"");
    assert_int_equal(rondo_params_compare("ALGO=a\n", "\n", 1, "h1"), RONDO_INVALID_USAGE);
}

/* ---- errors of rounds ---- */

struct record {
    struct rondo_round_head head;
    int payload;
};

static struct record record_of(rondo_status status)
{
    return (struct record){ .head = { RONDO_PEER_MAGIC, status }, .payload = 0x7a7a7a7a };
}

static void first_error_of_a_round_becomes_the_error_of_all(void **state)
{
    (void)state;
    struct record record[5];
    rondo_round_text text[5] = { "" };
    for (int i = 0; i < 5; i++) {
        record[i] = record_of(RONDO_SUCCESS);
    }
    assert_false(rondo_round_failed(record, sizeof record[0], 5));
    assert_int_equal(rondo_round_check(record, sizeof record[0], 5, NULL), RONDO_SUCCESS);
    record[3] = record_of(RONDO_SYSTEM_ERROR);
    record[4] = record_of(RONDO_INVALID_USAGE);
    rondo_fail_quiet(RONDO_SYSTEM_ERROR, "/dev/shm is full; free 1 MiB");
    rondo_round_text_fill(text[3], 3);
    rondo_fail_quiet(RONDO_INVALID_USAGE, "a later one");
    rondo_round_text_fill(text[4], 4);
    assert_true(rondo_round_failed(record, sizeof record[0], 5));
    assert_int_equal(rondo_round_check(record, sizeof record[0], 5, text), RONDO_SYSTEM_ERROR);
    char expect[RONDO_ERROR_TEXT];
    snprintf(expect, sizeof expect, "rank 3 on %s: /dev/shm is full; free 1 MiB", rondo_log_host());
    assert_string_equal(rondo_error_text(), expect);
    /* A sentence that names its rank does not get the name again. */
    record[0] = record_of(RONDO_SYSTEM_ERROR);
    rondo_round_text_fill(text[0], 0);
    assert_int_equal(rondo_round_check(record, sizeof record[0], 5, text), RONDO_SYSTEM_ERROR);
    assert_string_equal(rondo_error_text(), expect);
    /* One without a rank gets it here. */
    snprintf(text[0], sizeof text[0], "bare");
    assert_int_equal(rondo_round_check(record, sizeof record[0], 5, text), RONDO_SYSTEM_ERROR);
    assert_string_equal(rondo_error_text(), "rank 0: bare");
}

static void a_rank_that_only_heard_of_an_error_does_not_hide_the_reason(void **state)
{
    (void)state;
    struct record record[3] = { record_of(RONDO_SUCCESS), record_of(RONDO_REMOTE_ERROR),
                                record_of(RONDO_SYSTEM_ERROR) };
    rondo_round_text text[3] = { "", "", "rank 2 on h2: no memory" };
    assert_int_equal(rondo_round_check(record, sizeof record[0], 3, text), RONDO_SYSTEM_ERROR);
    assert_string_equal(rondo_error_text(), "rank 2 on h2: no memory");
    text[2][0] = '\0';
    assert_int_equal(rondo_round_check(record, sizeof record[0], 3, text), RONDO_REMOTE_ERROR);
    assert_says("rank 1: ");
}

static void a_cause_is_reported_before_the_loss_that_came_of_it(void **state)
{
    struct record record[] = { record_of(RONDO_REMOTE_ERROR), record_of(RONDO_SYSTEM_ERROR),
                               record_of(RONDO_TIMEOUT) };
    rondo_round_text text[3] = { "rank 0 on h0: connection refused", "rank 1 on h1: too many open files",
                                 "rank 2 on h2: rank 1 did not connect" };
    (void)state;
    assert_int_equal(rondo_round_check(record, sizeof record[0], 3, text), RONDO_SYSTEM_ERROR);
    assert_string_equal(rondo_error_text(), text[1]);
    text[1][0] = '\0'; /* it only reports another's */
    assert_int_equal(rondo_round_check(record, sizeof record[0], 3, text), RONDO_REMOTE_ERROR);
    assert_string_equal(rondo_error_text(), text[0]);
}

static struct rondo_round_reason reason_of(int rank, rondo_status status, const char *text)
{
    struct rondo_round_reason reason = {
        .verdict = { .head = { RONDO_PEER_MAGIC, status }, .rank = rank, .has_text = text[0] != '\0' }
    };
    snprintf(reason.text, sizeof reason.text, "%s", text);
    return reason;
}

/* In any order: an error counts before none, then one with a sentence before one without, then a cause before
 * a lost rank, then the lowest rank's. */
static void merged_reasons_are_those_of_the_heads(void **state)
{
    const struct rondo_round_reason reason[] = { reason_of(0, RONDO_SUCCESS, ""),
                                                 reason_of(1, RONDO_REMOTE_ERROR, ""),
                                                 reason_of(2, RONDO_SYSTEM_ERROR, "rank 2 on h2: no memory"),
                                                 reason_of(3, RONDO_INVALID_USAGE, "bare"),
                                                 reason_of(4, RONDO_TIMEOUT, "rank 4 on h4: no answer") };
    enum { N = RONDO_COUNTOF(reason) };
    (void)state;
    for (unsigned members = 1; members < 1u << N; members++) {
        struct record record[N];
        rondo_round_text text[N] = { "" };
        char expect[RONDO_ERROR_TEXT] = "";
        for (int turn = 0; turn < N; turn++) {
            struct rondo_round_reason sum = { .verdict.rank = INT32_MAX };
            struct rondo_round_verdict verdict;
            sum.verdict.head.magic = RONDO_PEER_MAGIC;
            verdict = sum.verdict;
            for (int i = 0; i < N; i++) {
                int at = (i + turn) % N, is_in = members >> at & 1;
                record[at] = record_of(is_in ? reason[at].verdict.head.status : RONDO_SUCCESS);
                snprintf(text[at], sizeof text[at], "%s", is_in ? reason[at].text : "");
                if (is_in) {
                    rondo_round_merge_reasons(&sum, &reason[at]);
                    rondo_round_merge_verdicts(&verdict, &reason[at].verdict);
                }
            }
            rondo_fail_quiet(RONDO_INTERNAL_ERROR, "none");
            rondo_status status = rondo_round_check(record, sizeof record[0], N, text);
            snprintf(expect, sizeof expect, "%s", rondo_error_text());
            rondo_fail_quiet(RONDO_INTERNAL_ERROR, "none");
            assert_int_equal(rondo_round_reason_check(&sum), status);
            assert_string_equal(rondo_error_text(), expect);
            assert_int_equal(rondo_round_verdict_failed(&verdict), status != RONDO_SUCCESS);
            assert_int_equal(verdict.rank, sum.verdict.rank);
        }
    }
    struct rondo_round_reason bad = reason_of(1, RONDO_IN_PROGRESS, "");
    assert_int_equal(rondo_round_reason_check(&bad), RONDO_INTERNAL_ERROR);
    bad = reason_of(1, RONDO_SUCCESS, "");
    bad.verdict.head.magic = 0;
    assert_true(rondo_round_verdict_failed(&bad.verdict));
    assert_int_equal(rondo_round_reason_check(&bad), RONDO_INTERNAL_ERROR);
    assert_says("rank 1: ");
}

static void round_check_trusts_nothing_a_peer_wrote(void **state)
{
    (void)state;
    static const int32_t bad[] = { -1, RONDO_IN_PROGRESS, RONDO_NUM_STATUSES, 0x7fffffff };
    for (size_t i = 0; i < RONDO_COUNTOF(bad); i++) {
        struct record record[2] = { record_of(RONDO_SUCCESS), record_of(RONDO_SUCCESS) };
        struct {
            rondo_round_text text[2];
            char behind;
        } sent = { .behind = 'z' };
        record[1].head.status = bad[i];
        memset(sent.text[1], 'y', sizeof sent.text[1]);
        assert_int_equal(rondo_round_check(record, sizeof record[0], 2, sent.text), RONDO_INTERNAL_ERROR);
        assert_says("rank 1: yyy");
        assert_null(strchr(rondo_error_text(), 'z'));
        assert_int_equal(rondo_round_check(record, sizeof record[0], 2, NULL), RONDO_INTERNAL_ERROR);
        assert_says("rank 1: ");
        record[1].head.magic = 0;
        assert_false(rondo_round_failed(record, sizeof record[0], 2)); /* it would send no sentence */
        assert_int_equal(rondo_round_check(record, sizeof record[0], 2, NULL), RONDO_INTERNAL_ERROR);
        assert_says("rank 1 did not send a record");
    }
}

static void a_long_sentence_is_cut_not_lost(void **state)
{
    (void)state;
    char why[RONDO_ERROR_TEXT];
    memset(why, 'q', sizeof why - 1);
    why[sizeof why - 1] = '\0';
    struct record record = record_of(RONDO_SYSTEM_ERROR);
    rondo_round_text text;
    rondo_fail_quiet(RONDO_SYSTEM_ERROR, "%s", why);
    rondo_round_text_fill(text, 123456);
    assert_int_equal(strnlen(text, sizeof text), sizeof text - 1);
    assert_int_equal(rondo_round_check(&record, sizeof record, 1, &text), RONDO_SYSTEM_ERROR);
    assert_says("rank 123456 on ");
    assert_says("qqqqqqqq");
}

/* At 131,072 ranks every rank receives that many records, so they must not carry error texts. */
static void records_carry_no_error_text(void **state)
{
    (void)state;
    assert_int_equal(sizeof(struct rondo_round_head), 8);
    assert_int_equal(sizeof(struct rondo_peer_wire), 256);
}

/* ---- the record on the wire ---- */

static struct rondo_peer random_peer(uint64_t seed)
{
    struct rondo_peer peer;
    uint64_t random[4] = { 0 };
    for (int i = 0; i < 4; i++) {
        random[i] = rondo_hash(&i, sizeof i, seed);
    }
    assert_int_equal(rondo_peer_fill(&peer, &parts, (int)(random[0] >> 40), (int)(random[0] >> 33) | 1, NULL),
                     RONDO_SUCCESS);
    peer.device = random[1] & 1 ? (int)(random[1] >> 60) : -1;
    peer.shares_gpu = random[1] >> 1 & 1;
    peer.host_hash = random[2];
    peer.memory = random[3] >> 20;
    if (peer.device >= 0) {
        memcpy(peer.gpu_uuid, random, sizeof peer.gpu_uuid);
        snprintf(peer.bus_id, sizeof peer.bus_id, "00000000:%02x:00.0", (unsigned)(random[1] >> 8 & 255));
        peer.gpu_capability = 90;
    }
    if (random[1] & 4) {
        peer.id = (struct rondo_unique_id){ { random[0], random[1] }, -1, (uint32_t)random[2] };
    }
    if (random[1] & 8) {
        peer.probe = (struct rondo_peer_probe){ 123456 + random[2] % 99, 4096, 77, 0 };
    }
    memset(&parts.cores, 0, sizeof parts.cores);
    for (int k = 0; k < (int)(random[3] & 3); k++) { /* some ranges */
        int from = (int)(random[k] >> 30 & 511), n = 1 + (int)(random[k] >> 20 & 127);
        for (int core = from; core < from + n; core++) {
            parts.cores.bits[core / 64] |= UINT64_C(1) << (core % 64);
        }
    }
    memset(parts.host, 0, sizeof parts.host);
    memset(parts.host, 'a' + (int)(random[3] & 15), 1 + (random[2] & 31));
    return peer;
}

static void assert_same(const struct rondo_peer *a, const struct rondo_peer *b)
{
    struct rondo_peer copy = *a;
    assert_string_equal(a->host, b->host);
    assert_memory_equal(a->cores, b->cores, sizeof *a->cores);
    copy.host = b->host;
    copy.cores = b->cores;
    assert_memory_equal(&copy, b, sizeof copy);
}

static void a_packed_record_says_the_same(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        struct rondo_peer peer = random_peer(seed), again;
        struct rondo_peer_parts read;
        struct rondo_peer_wire wire;
        assert_true(rondo_peer_pack(&wire, &peer));
        assert_true(rondo_peer_unpack(&again, &read, &wire));
        assert_same(&again, &peer);
    }
}

/* As creation reads a table: what is kept of a record takes the begin of its place. */
static void records_are_read_where_they_lie(void **state)
{
    enum { RANKS = 40 };
    struct rondo_peer_wire wire[RANKS];
    struct rondo_peer *peers = (struct rondo_peer *)(void *)wire;
    struct rondo_intern *table;
    struct rondo_peer_parts read;
    (void)state;
    assert_int_equal(rondo_intern_create(&table), RONDO_SUCCESS);
    for (int r = 0; r < RANKS; r++) {
        struct rondo_peer peer = random_peer((uint64_t)r + 1);
        assert_true(rondo_peer_pack(&wire[r], &peer));
    }
    for (int r = 0; r < RANKS; r++) {
        assert_true(rondo_peer_unpack(&peers[r], &read, &wire[r]));
        assert_int_equal(rondo_peer_keep(&peers[r], table), RONDO_SUCCESS);
    }
    for (int r = 0; r < RANKS; r++) {
        struct rondo_peer peer = random_peer((uint64_t)r + 1);
        assert_same(&peers[r], &peer);
    }
    rondo_intern_release(table);
}

static void set_core(struct rondo_cores *cores, int core)
{
    cores->bits[core / 64] |= UINT64_C(1) << (core % 64);
}

/* Every second of 256 cores, as with hyperthreads, and a long name. */
static void a_usual_core_set_keeps_its_gaps(void **state)
{
    struct rondo_peer peer = random_peer(1), again;
    struct rondo_peer_parts read;
    struct rondo_peer_wire wire;
    (void)state;
    memset(&parts.cores, 0, sizeof parts.cores);
    for (int core = 0; core < 256; core += 2) {
        set_core(&parts.cores, core);
    }
    snprintf(parts.host, sizeof parts.host, "node0123456.rack17.cluster.example.org");
    assert_true(rondo_peer_pack(&wire, &peer));
    assert_true(rondo_peer_unpack(&again, &read, &wire));
    assert_same(&again, &peer);
}

static void what_does_not_fit_is_cut_as_documented(void **state)
{
    struct rondo_peer peer = random_peer(1), again;
    struct rondo_peer_parts read;
    struct rondo_peer_wire wire;
    (void)state;
    for (uint64_t seed = 1; seed < 50; seed++) {
        memset(&parts.cores, 0, sizeof parts.cores);
        for (int core = 0; core < RONDO_MAX_CORES; core++) {
            if (rondo_hash(&core, sizeof core, seed) & 1) {
                set_core(&parts.cores, core);
            }
        }
        memset(parts.host, 'h', sizeof parts.host - 1);
        assert_true(rondo_peer_pack(&wire, &peer));
        assert_true(rondo_peer_unpack(&again, &read, &wire));
        assert_true(strlen(again.host) >= 23 && strncmp(again.host, peer.host, strlen(again.host)) == 0);
        for (int i = 0; i < RONDO_MAX_CORES / 64; i++) {
            assert_int_equal(peer.cores->bits[i] & ~again.cores->bits[i], 0);
        }
        assert_int_equal(again.param_hash, peer.param_hash);
    }
}

/* A record that was cut, or in which bytes were changed: refused, or read within its bounds. */
static void records_that_peers_wrote_are_read_within_bounds(void **state)
{
    int refused = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        struct rondo_peer peer = random_peer(seed % 40 + 1), again;
        struct rondo_peer_parts read;
        struct rondo_peer_wire wire;
        assert_true(rondo_peer_pack(&wire, &peer));
        for (int k = 0; k < 3; k++) {
            uint64_t random = rondo_hash(&k, sizeof k, seed);
            wire.bytes[8 + random % (sizeof wire.bytes - 8)] = (uint8_t)(random >> 32);
        }
        refused += !rondo_peer_unpack(&again, &read, &wire);
        assert_non_null(memchr(read.host, 0, sizeof read.host));
        assert_non_null(memchr(again.bus_id, 0, sizeof again.bus_id));
    }
    assert_true(refused > 100);
}

static void a_record_of_another_version_is_left_to_the_check(void **state)
{
    struct rondo_peer peer = random_peer(1), again[2];
    struct rondo_peer_parts read[2];
    struct rondo_peer_wire wire;
    (void)state;
    peer.rank = 0;
    peer.nranks = 2;
    assert_true(rondo_peer_pack(&wire, &peer));
    assert_true(rondo_peer_unpack(&again[0], &read[0], &wire));
    peer.version++;
    assert_true(rondo_peer_pack(&wire, &peer));
    assert_true(rondo_peer_unpack(&again[1], &read[1], &wire));
    assert_int_equal(rondo_peers_check(again, 2), RONDO_INVALID_USAGE);
    assert_says("runs Rondo");
}

int main(void)
{
    setenv("RONDO_DEBUG", "NONE", 1); /* the test reads the errors itself */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_describes_this_process),
        cmocka_unit_test(a_process_opens_the_probe_of_its_own_record),
        cmocka_unit_test(hosts_and_core_sets_are_kept_once),
        cmocka_unit_test(forked_child_is_another_process_on_the_same_node),
        cmocka_unit_test(node_is_host_and_shm_device_and_pid_namespace),
        cmocka_unit_test(RONDO_HOSTID_replaces_the_identity_of_the_host),
        cmocka_unit_test(unique_ids_differ),
        cmocka_unit_test(an_identity_has_a_public_name),
        cmocka_unit_test(equal_records_pass),
        cmocka_unit_test(a_different_version_is_named_with_both_hosts),
        cmocka_unit_test(ranks_and_sizes_that_do_not_match_are_named),
        cmocka_unit_test(two_ranks_on_one_gpu_are_refused),
        cmocka_unit_test(differing_parameters_are_seen_and_then_named),
        cmocka_unit_test(first_error_of_a_round_becomes_the_error_of_all),
        cmocka_unit_test(a_rank_that_only_heard_of_an_error_does_not_hide_the_reason),
        cmocka_unit_test(a_cause_is_reported_before_the_loss_that_came_of_it),
        cmocka_unit_test(merged_reasons_are_those_of_the_heads),
        cmocka_unit_test(round_check_trusts_nothing_a_peer_wrote),
        cmocka_unit_test(a_long_sentence_is_cut_not_lost),
        cmocka_unit_test(records_carry_no_error_text),
        cmocka_unit_test(a_packed_record_says_the_same),
        cmocka_unit_test(records_are_read_where_they_lie),
        cmocka_unit_test(a_usual_core_set_keeps_its_gaps),
        cmocka_unit_test(what_does_not_fit_is_cut_as_documented),
        cmocka_unit_test(records_that_peers_wrote_are_read_within_bounds),
        cmocka_unit_test(a_record_of_another_version_is_left_to_the_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
