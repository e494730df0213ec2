/* Transports without faults: links, lazy links, the hello, memory that is reserved, which ranks a transport
 * reaches, and what it logs. */
#include "transport_world.h"

#include <regex.h>
#include <sys/stat.h>

#include "base/param.h"
#include "base/pool.h"

static void rings_and_trees_carry_their_own_slices(void **state)
{
    static const struct {
        int nranks;
        uint32_t slot_bytes;
    } cases[] = { { 2, 128 }, { 3, 8192 + 128 }, { 5, 1024 }, { 8, 512 } };
    (void)state;

    for (size_t m = 0; m < RONDO_COUNTOF(modes); m++) {
        for (size_t i = 0; i < RONDO_COUNTOF(cases); i++) {
            struct world *w = world_new(cases[i].nranks, modes[m], cases[i].slot_bytes);
            w->body = body_stream;
            run_threads(w);
            world_free(w);
        }
    }
}

static void lazy_links_join_all_pairs(void **state)
{
    (void)state;
    for (size_t m = 0; m < RONDO_COUNTOF(modes); m++) {
        for (int n = 2; n <= MAX_RANKS; n += 3) {
            struct world *w = world_new(n, modes[m], 1024);
            w->body = body_lazy;
            run_threads(w);
            world_free(w);
        }
    }
}

static void lazy_sender_waits_for_its_receiver(void **state)
{
    struct world *w = world_new(2, RONDO_SHM_MODE_FILE, 1024);
    struct rondo_link send, recv, again;
    (void)state;

    ranks_connect(w);
    size_t before = rondo_net_bytes(&w->rank[1].net);
    assert_int_equal(rondo_link_lazy(&w->rank[0].net, &send, 1, 1), RONDO_SUCCESS);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rondo_link_connect_lazy(&w->rank[0].net, &send), RONDO_IN_PROGRESS);
    }
    assert_int_equal(rondo_net_bytes(&w->rank[1].net), before); /* rank 1 has not asked for the link */
    assert_int_equal(rondo_link_lazy(&w->rank[1].net, &recv, 0, 0), RONDO_SUCCESS);
    assert_int_equal(rondo_link_connect_lazy(&w->rank[1].net, &recv), RONDO_SUCCESS);
    assert_int_equal(rondo_net_bytes(&w->rank[1].net), before + 8 * (1024 + 512)); /* Simple and LL */
    assert_int_equal(rondo_link_connect_lazy(&w->rank[0].net, &send), RONDO_SUCCESS);
    assert_int_equal(rondo_link_connect_lazy(&w->rank[0].net, &send), RONDO_SUCCESS);
    /* The link's head and tail have counted, so it cannot be opened a second time. */
    rondo_link_close(&w->rank[0].net, &send);
    rondo_link_close(&w->rank[0].net, &send);
    rondo_log_mask = RONDO_LOG_NONE;
    assert_int_equal(rondo_link_lazy(&w->rank[0].net, &again, 1, 1), RONDO_SUCCESS);
    assert_int_equal(rondo_link_connect_lazy(&w->rank[0].net, &again), RONDO_INTERNAL_ERROR);
    rondo_link_close(&w->rank[0].net, &again);
    rondo_link_close(&w->rank[1].net, &recv);
    ranks_close(w);
    world_free(w);
}

static void one_rank_reserves_nothing_until_it_sends_to_itself(void **state)
{
    struct world *w = world_new(1, RONDO_SHM_MODE_MEMFD, 1024);
    struct end ends[2];
    struct rank *r = &w->rank[0];
    (void)state;

    memset(ends, 0, sizeof(ends));
    assert_int_equal(rank_open(w, 0, 0), RONDO_SUCCESS);
    assert_int_equal(rondo_net_bytes(&r->net), 0);
    assert_null(r->net.arena.size == 0 ? NULL : r);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rondo_link_lazy(&r->net, &ends[i].link, 0, i), RONDO_SUCCESS);
        assert_int_equal(rondo_link_connect_lazy(&r->net, &ends[i].link), RONDO_SUCCESS);
    }
    stream(r, ends, 2, 20);
    for (int i = 0; i < 2; i++) {
        rondo_link_close(&r->net, &ends[i].link);
    }
    rank_close(r);
    world_free(w);
}

/* The pages of heads, tails and what is told are there before anybody writes to them, and stay for the next
 * arena. */
static void an_arena_has_its_first_pages(void **state)
{
    struct world *w = world_new(2, RONDO_SHM_MODE_MEMFD, 1024);
    struct rondo_shm stays;
    struct rondo_pool_use use;
    (void)state;

    assert_int_equal(rondo_pool_take(&stays, 4096, 4096, RONDO_SHM_MODE_MEMFD, RONDO_SHM_FOR_BUFFERS),
                     RONDO_SUCCESS);
    assert_int_equal(rank_open(w, 0, MAX_LINKS), RONDO_SUCCESS);
    assert_true(w->rank[0].net.arena.bytes > 0);
    const size_t bytes = rondo_net_bytes(&w->rank[0].net);
    rank_close(&w->rank[0]);
    rondo_pool_look(&use);
    assert_true(bytes > 0);
    assert_int_equal(use.kept, bytes);
    rondo_shm_close(&stays);
    world_free(w);
}

static void only_what_a_call_needs_is_reserved(void **state)
{
    struct world *w = world_new(2, RONDO_SHM_MODE_MEMFD, 128 << 10);
    struct rank *r = &w->rank[0];
    struct stat st;
    (void)state;

    assert_int_equal(rank_open(w, 0, MAX_LINKS), RONDO_SUCCESS);
    assert_int_equal(rank_open(w, 1, MAX_LINKS), RONDO_SUCCESS);
    assert_true(rondo_net_bytes(&r->net) <= 65536); /* at most a page */
    w->protos = 1u << RONDO_PROTO_SIMPLE;
    const size_t before = rondo_net_bytes(&r->net);
    assert_int_equal(offer_one(w, r, RING, 0, 1, 0), RONDO_SUCCESS);
    assert_int_equal(offer_one(w, r, RING, 0, 1, 1), RONDO_SUCCESS);
    for (int is_send = 0; is_send < 2; is_send++) {
        assert_int_equal(offer_one(w, &w->rank[1], RING, 0, 0, is_send), RONDO_SUCCESS);
    }
    assert_int_equal(rondo_net_bytes(&r->net), before);
    assert_int_equal(rank_connect(w, 0), RONDO_SUCCESS);
    assert_int_equal(rank_connect(w, 1), RONDO_SUCCESS);
    assert_int_equal(rondo_net_bytes(&r->net), before);
    assert_int_equal(rank_wire(r), RONDO_IN_PROGRESS); /* its receiver is there, the other's is not */
    assert_int_equal(rondo_net_bytes(&r->net), before + (1 << 20));
    assert_int_equal(rank_wire(r), RONDO_IN_PROGRESS);
    assert_int_equal(rondo_net_bytes(&r->net), before + (1 << 20));
    assert_int_equal(fstat(r->net.arena.fd, &st), 0);
    assert_true((size_t)st.st_blocks * 512 >= rondo_net_bytes(&r->net));
    ranks_close(w);
    world_free(w);
}

static void hello_names_the_silent_peer(void **state)
{
    struct world *w = world_new(3, RONDO_SHM_MODE_MEMFD, 128);
    int pending;
    (void)state;

    ranks_connect(w);
    /* Rank 2 does not say hello. Ranks 0 and 1 greet each other and wait for it. */
    for (int round = 0; round < 4; round++) {
        assert_int_equal(rank_hello(&w->rank[0], &pending), RONDO_IN_PROGRESS);
        assert_int_equal(round == 0 || pending == 2, 1);
        assert_int_equal(rank_hello(&w->rank[1], &pending), RONDO_IN_PROGRESS);
    }
    assert_int_equal(pending, 2);
    for (int round = 0; round < 3; round++) {
        for (int i = 2; i >= 0; i--) {
            rank_hello(&w->rank[i], &pending);
        }
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rank_hello(&w->rank[i], &pending), RONDO_SUCCESS);
        assert_int_equal(pending, -1);
        for (int e = 0; e < w->rank[i].nends; e++) {
            const struct rondo_conn *conn = &w->rank[i].ends[e].link.conn;
            assert_int_equal(conn->step, 1);
            assert_true(w->rank[i].ends[e].link.unwired);
            assert_true(w->rank[i].ends[e].link.is_send ? conn->seen + RONDO_SLOTS <= 1 : conn->seen == 1);
            assert_int_equal(conn->tail->tail, 1);
            assert_int_equal(w->rank[i].ends[e].link.head->head, 1);
        }
    }
    ranks_close(w);
    world_free(w);
}

static void reload_with(const char *shm_disable)
{
    setenv("RONDO_SHM_DISABLE", shm_disable, 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
}

static void only_ranks_of_a_node_are_reached(void **state)
{
    struct world *w = world_new(6, RONDO_SHM_MODE_MEMFD, 128);
    static const char *const reason[] = { NULL,
                                          NULL,
                                          "shm does not reach another host",
                                          "shm does not reach another container",
                                          "shm does not reach another container",
                                          NULL };
    const struct rondo_transport *t;
    (void)state;

    w->peers[2].host_hash++;
    w->peers[3].pidns++;
    w->peers[4].shm_dev++;
    for (int disabled = 0; disabled <= 1; disabled++) {
        reload_with(disabled ? "1" : "0");
        uint32_t mask = rondo_log_mask;
        assert_int_equal(rank_open(w, 0, 2), RONDO_SUCCESS);
        for (int peer = 0; peer < 6; peer++) {
            const char *why = disabled && peer != 0 ? "shm is disabled by RONDO_SHM_DISABLE" : reason[peer];
            rondo_log_mask = RONDO_LOG_NONE;
            if (why == NULL) {
                assert_int_equal(rondo_transport_select(&w->rank[0].net, peer, &t), RONDO_SUCCESS);
                assert_string_equal(t->name, "shm");
            } else {
                char expect[256];
                snprintf(expect, sizeof(expect),
                         "no transport found between rank 0 (host host0) and rank %d (host host%d): %s", peer,
                         peer, why);
                assert_int_equal(rondo_transport_select(&w->rank[0].net, peer, &t), RONDO_INTERNAL_ERROR);
                assert_memory_equal(rondo_error_text(), expect, strlen(expect));
            }
            rondo_log_mask = mask;
        }
        assert_int_equal(rondo_net_bytes(&w->rank[0].net) > 0, !disabled);
        rank_close(&w->rank[0]);
    }
    reload_with("0");
    world_free(w);
}

static int count_matches(FILE *file, const char *pattern)
{
    char line[1024];
    regex_t regex;
    int n = 0;

    rewind(file);
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NEWLINE | REG_NOSUB), 0);
    while (fgets(line, sizeof(line), file) != NULL) {
        n += regexec(&regex, line, 0, NULL, 0) == 0;
    }
    regfree(&regex);
    return n;
}

static void the_log_names_each_connection_and_each_error_once(void **state)
{
    struct world *w = world_new(3, RONDO_SHM_MODE_FILE, 128);
    uint32_t mask = rondo_log_mask;
    const struct rondo_transport *t;
    struct rondo_link lazy;
    FILE *file = tmpfile();
    int saved = dup(2);
    (void)state;

    dup2(fileno(file), 2);
    rondo_log_mask = RONDO_LOG_INFO | RONDO_SUBSYS_P2P << 8;
    ranks_connect(w);
    rondo_link_lazy(&w->rank[2].net, &lazy, 1, 0);
    rondo_link_connect_lazy(&w->rank[2].net, &lazy);
    rondo_link_close(&w->rank[2].net, &lazy);
    w->peers[2].host_hash++;
    rondo_transport_select(&w->rank[0].net, 2, &t);
    rondo_log_mask = mask;
    dup2(saved, 2);
    close(saved);
    assert_int_equal(
        count_matches(file, "RONDO INFO Channel 00 : 0\\[host0\\] -> 1\\[host1\\] \\[send\\] via SHM/file$"),
        2); /* one for the ring, one for the tree */
    assert_int_equal(
        count_matches(file,
                      "RONDO INFO Channel 01 : 0\\[host0\\] -> 1\\[host1\\] \\[receive\\] via SHM/file$"),
        2);
    assert_int_equal(
        count_matches(file,
                      "RONDO INFO Channel p2p : 1\\[host1\\] -> 2\\[host2\\] \\[receive\\] via SHM/file$"),
        1);
    assert_int_equal(count_matches(file, "Channel"), 2 * 2 * (3 + 4) + 1);
    assert_int_equal(count_matches(file, "no transport found"), 1);
    fclose(file);
    ranks_close(w);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_and_trees_carry_their_own_slices),
        cmocka_unit_test(lazy_links_join_all_pairs),
        cmocka_unit_test(lazy_sender_waits_for_its_receiver),
        cmocka_unit_test(one_rank_reserves_nothing_until_it_sends_to_itself),
        cmocka_unit_test(an_arena_has_its_first_pages),
        cmocka_unit_test(only_what_a_call_needs_is_reserved),
        cmocka_unit_test(hello_names_the_silent_peer),
        cmocka_unit_test(only_ranks_of_a_node_are_reached),
        cmocka_unit_test(the_log_names_each_connection_and_each_error_once),
    };

    alarm(120);
    rondo_log_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
