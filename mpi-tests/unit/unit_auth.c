/* The handshake that opens a connection: what it proves, and that the secret stays here. The listeners' part
 * is in unit_control_wire_fault and unit_netdev_socket_fault. */
#include "control_nodes.h"

#include <sys/socket.h>
#include <sys/syscall.h>

#include "in_child.h"
#include "net/auth.h"
#include "net/bootstrap/bootstrap.h"
#include "net/netdev.h"

static const uint64_t secret[2] = { 0x0123456789abcdef, 0xfedcba9876543210 };

struct transcript {
    struct rondo_auth_hello hello;
    struct rondo_auth_welcome welcome;
    uint8_t proof[RONDO_AUTH_PROOF];
};

static struct rondo_auth_hello some_hello(void)
{
    struct rondo_auth_hello hello = { .magic = RONDO_WIRE_HELLO_MAGIC,
                                      .version = 3,
                                      .comm_hash = 0x1111,
                                      .client = 0x2222,
                                      .server = 0x3333,
                                      .client_rank = 4,
                                      .server_rank = 5,
                                      .index = 6 };
    assert_int_equal(rondo_auth_nonce(hello.nonce), RONDO_SUCCESS);
    return hello;
}

/* A whole handshake between two who know the secret. */
static struct transcript handshake(void)
{
    struct transcript said = { .hello = some_hello() };
    assert_int_equal(rondo_auth_answer(secret, &said.hello, &said.welcome), RONDO_SUCCESS);
    assert_true(rondo_auth_prove(secret, &said.hello, &said.welcome, said.proof));
    return said;
}

static int server_accepts(const struct transcript *said)
{
    return rondo_auth_proved(secret, &said->hello, &said->welcome, said->proof);
}

static int client_accepts(const struct transcript *said)
{
    uint8_t proof[RONDO_AUTH_PROOF] = { 0 }, none[RONDO_AUTH_PROOF] = { 0 };
    int accepts = rondo_auth_prove(secret, &said->hello, &said->welcome, proof);
    assert_int_equal(memcmp(proof, none, sizeof(proof)) != 0, accepts);
    return accepts;
}

static void the_right_secret_passes_both_ways(void **state)
{
    struct transcript said = handshake();
    (void)state;
    assert_true(client_accepts(&said));
    assert_true(server_accepts(&said));
}

/* By Python's hmac module, with 16 bytes of label before the message. */
static void proofs_are_hmac_sha_256(void **state)
{
    static const char client[] = "d1af5e22c77f4d1a3f5e52ee172ac3e192af41bf60f19d7a5842baa3bcb22dab",
                      server[] = "d3eec3617efc907e2e701eb1af5beb5159f7b6a5180a781e3ebded36f3d539cb",
                      derived[] = "0a9d80bf3084c4296f9a514e7c2cba59318af246ca261186633f4ec7062610b5";
    struct transcript said = { .hello = some_hello(),
                               .welcome = { .magic = RONDO_WIRE_HELLO_MAGIC, .version = 3 } };
    uint8_t out[RONDO_AUTH_PROOF];
    (void)state;
    for (int i = 0; i < RONDO_AUTH_NONCE; i++) {
        said.hello.nonce[i] = (uint8_t)i;
        said.welcome.nonce[i] = (uint8_t)(RONDO_AUTH_NONCE + i);
    }
    for (int i = 0; i < RONDO_AUTH_PROOF; i++) {
        unsigned byte;
        assert_int_equal(sscanf(&server[2 * i], "%2x", &byte), 1);
        said.welcome.proof[i] = (uint8_t)byte;
    }
    assert_true(rondo_auth_prove(secret, &said.hello, &said.welcome, out));
    for (int part = 0; part < 2; part++) {
        char text[2 * RONDO_AUTH_PROOF + 1];
        for (int i = 0; i < RONDO_AUTH_PROOF; i++) {
            snprintf(&text[2 * i], 3, "%02x", out[i]);
        }
        assert_string_equal(text, part == 0 ? client : derived);
        rondo_auth_derive(secret, "rondo child", "abc", 3, out, sizeof(out));
    }
}

static void each_bit_of_the_secret_counts(void **state)
{
    struct transcript said = handshake();
    uint8_t proof[RONDO_AUTH_PROOF];
    (void)state;
    for (int bit = 0; bit < 128; bit++) {
        uint64_t wrong[2] = { secret[0], secret[1] };
        wrong[bit / 64] ^= UINT64_C(1) << bit % 64;
        assert_false(rondo_auth_prove(wrong, &said.hello, &said.welcome, proof));
        assert_false(rondo_auth_proved(wrong, &said.hello, &said.welcome, said.proof));
    }
}

/* Ranks, ids, purpose, index, both nonces, both proofs. */
static void each_byte_of_the_transcript_counts(void **state)
{
    struct transcript said = handshake();
    size_t proof = offsetof(struct transcript, proof),
           sent = offsetof(struct transcript, welcome) + offsetof(struct rondo_auth_welcome, proof);
    (void)state;
    for (size_t i = 0; i < sizeof(said); i++) {
        struct transcript other = said;
        ((uint8_t *)&other)[i] ^= 0x10;
        int head = i >= sizeof(other.hello) && i < sizeof(other.hello) + 8; /* of the welcome */
        assert_int_equal(client_accepts(&other), i >= proof);
        assert_int_equal(server_accepts(&other), head || (i >= sent && i < proof));
    }
}

static void a_replayed_transcript_is_refused(void **state)
{
    struct transcript old = handshake(), now = old;
    (void)state;
    assert_int_equal(rondo_auth_answer(secret, &now.hello, &now.welcome), RONDO_SUCCESS);
    assert_false(server_accepts(&now)); /* the old hello and proof, a new welcome */
    now = old;
    now.hello = some_hello();
    assert_false(client_accepts(&now)); /* a new hello, the old welcome */
}

static void a_reflected_message_is_refused(void **state)
{
    struct transcript said = handshake(), mirror = said;
    (void)state;
    memcpy(mirror.proof, said.welcome.proof, sizeof(mirror.proof));
    assert_false(server_accepts(&mirror));
    memcpy(mirror.welcome.proof, said.proof, sizeof(mirror.proof));
    assert_false(client_accepts(&mirror));
}

static void swapped_roles_are_refused(void **state)
{
    struct transcript said = handshake(), swapped = said;
    (void)state;
    swapped.hello.client = said.hello.server;
    swapped.hello.server = said.hello.client;
    swapped.hello.client_rank = said.hello.server_rank;
    swapped.hello.server_rank = said.hello.client_rank;
    assert_false(client_accepts(&swapped));
    assert_false(server_accepts(&swapped));
}

static void derived_values_tell_labels_and_data_apart(void **state)
{
    const uint64_t other[2] = { secret[0], secret[1] + 1 };
    uint64_t value[6] = { 0 }, again = 0;
    (void)state;
    rondo_auth_derive(secret, "ab", "c", 1, &value[0], sizeof(value[0]));
    rondo_auth_derive(secret, "a", "bc", 2, &value[1], sizeof(value[1]));
    rondo_auth_derive(secret, "ab", "", 0, &value[2], sizeof(value[2]));
    rondo_auth_derive(secret, "abc", "", 0, &value[3], sizeof(value[3]));
    rondo_auth_derive(other, "ab", "c", 1, &value[4], sizeof(value[4]));
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < i; k++) {
            assert_true(value[i] != value[k]);
        }
    }
    rondo_auth_derive(secret, "ab", "c", 1, &again, sizeof(again));
    assert_true(again == value[0]);
}

static void handles_prove_direction_ranks_and_channel(void **state)
{
    struct rondo_net_peer here = { .rank = 1, .self = 2, .channel = 3, .secret = { 4, 5 } },
                          there = { .rank = 2, .self = 1, .channel = 3, .secret = { 4, 5 } }, other;
    uint64_t proof = rondo_netdev_proof(&here, "verbs", 1, 1, 6);
    (void)state;
    assert_true(proof == rondo_netdev_proof(&there, "verbs", 0, 1, 6));
    assert_true(proof != rondo_netdev_proof(&there, "verbs", 1, 1, 6)); /* reflected */
    assert_true(proof != rondo_netdev_proof(&there, "verbs", 0, 0, 6));
    assert_true(proof != rondo_netdev_proof(&there, "plugin", 0, 1, 6));
    assert_true(proof != rondo_netdev_proof(&there, "verbs", 0, 1, 7));
    for (int i = 0; i < 5; i++) {
        other = there;
        other.rank += i == 0;
        other.self += i == 1;
        other.channel += i == 2;
        other.secret[0] += i == 3;
        other.secret[1] += i == 4;
        assert_true(proof != rondo_netdev_proof(&other, "verbs", 0, 1, 6));
    }
}

static int handshake_in_child(void *arg)
{
    struct transcript said = handshake();
    (void)arg;
    return !server_accepts(&said);
}

static void a_forked_child_can_do_it(void **state)
{
    handshake();
    (void)state;
    assert_int_equal(in_child(handshake_in_child, NULL), 0);
}

/* ---- what is sent ---- */

static struct {
    pthread_mutex_t lock;
    uint64_t never[2][2]; /* secrets */
    int halves;           /* of them that were sent */
    size_t bytes;
} tap = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void tap_look(const uint8_t *data, size_t bytes)
{
    pthread_mutex_lock(&tap.lock);
    tap.bytes += bytes;
    for (size_t i = 0; i + sizeof(uint64_t) <= bytes; i++) {
        for (int half = 0; half < 4; half++) {
            uint64_t word = tap.never[half / 2][half % 2];
            tap.halves += word != 0 && memcmp(data + i, &word, sizeof(word)) == 0;
        }
    }
    pthread_mutex_unlock(&tap.lock);
}

/* Instead of the C library's: all that goes over sockets passes here. */
ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    tap_look(data, bytes);
    return syscall(SYS_sendto, fd, data, bytes, flags, NULL, 0);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        tap_look(message->msg_iov[i].iov_base, message->msg_iov[i].iov_len);
    }
    return syscall(SYS_sendmsg, fd, message, flags);
}

static void tap_start(const struct nodes *w)
{
    pthread_mutex_lock(&tap.lock);
    memset(tap.never, 0, sizeof(tap.never));
    memcpy(tap.never[0], w->peers[0].id.nonce, sizeof(tap.never[0]));
    tap.halves = 0;
    tap.bytes = 0;
    pthread_mutex_unlock(&tap.lock);
}

static int tap_halves(void)
{
    pthread_mutex_lock(&tap.lock);
    int halves = tap.halves;
    pthread_mutex_unlock(&tap.lock);
    return halves;
}

static void nodes_secret(struct nodes *w)
{
    nodes_prepare(w, 2, 1);
    for (int r = 0; r < w->nranks; r++) {
        memcpy(w->peers[r].id.nonce, secret, sizeof(secret));
    }
    tap_start(w);
    for (int r = 0; r < w->nranks; r++) {
        assert_int_equal(rondo_control_start(w->control[r]), RONDO_SUCCESS);
    }
}

static void the_tap_sees_what_is_sent(void **state)
{
    struct nodes w;
    char got[sizeof(secret)];
    (void)state;
    nodes_secret(&w);
    send_all(w.control[0], 1, 1, secret, sizeof(secret));
    receive_all(w.control[1], 0, 1, got, sizeof(got));
    assert_int_equal(tap_halves(), 2);
    nodes_close(&w);
}

static void the_control_plane_never_sends_the_secret(void **state)
{
    struct nodes w;
    char got[1];
    (void)state;
    nodes_secret(&w);
    send_all(w.control[0], 1, 1, "x", 1);
    receive_all(w.control[1], 0, 1, got, sizeof(got));
    nodes_close(&w);
    assert_true(tap.bytes > sizeof(struct rondo_auth_hello));
    assert_int_equal(tap_halves(), 0);
}

static void a_childs_members_derive_its_secret(void **state)
{
    static const int members[2] = { 0, 1 };
    struct rondo_bootstrap *b[2], *next;
    struct nodes w;
    (void)state;
    nodes_secret(&w);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(rondo_bootstrap_control(w.control[r], members, 2, r, 7, 0, &b[r]), RONDO_SUCCESS);
    }
    assert_int_equal(rondo_bootstrap_control(w.control[0], members, 2, 0, 8, 0, &next), RONDO_SUCCESS);
    assert_memory_equal(b[0]->secret, b[1]->secret, sizeof(secret));
    assert_memory_not_equal(b[0]->secret, next->secret, sizeof(secret));
    assert_memory_not_equal(b[0]->secret, secret, sizeof(secret));
    next->ops->close(next, 1);
    for (int r = 0; r < 2; r++) {
        b[r]->ops->close(b[r], 1);
    }
    nodes_close(&w);
}

static void socket_comms_never_send_the_secret(void **state)
{
    const struct rondo_net_device *net = &rondo_netdev_socket;
    struct rondo_net_peer to = { .rank = 1, .self = 0, .secret = { secret[0], secret[1] } },
                          from = { .rank = 0, .self = 1, .secret = { secret[0], secret[1] } };
    struct nodes w = { .peers[0].id.nonce = { secret[0], secret[1] } };
    uint8_t to_receiver[RONDO_NET_HANDLE], to_sender[RONDO_NET_HANDLE];
    void *sender, *receiver;
    rondo_status one = RONDO_IN_PROGRESS, two = RONDO_IN_PROGRESS;
    int n;
    (void)state;
    tap_start(&w);
    assert_int_equal(net->init(&n, NULL, 0), RONDO_SUCCESS);
    assert_int_equal(net->prepare(0, &from, 0, &receiver, to_sender), RONDO_SUCCESS);
    assert_int_equal(net->prepare(0, &to, 1, &sender, to_receiver), RONDO_SUCCESS);
    tap_look(to_receiver, sizeof(to_receiver));
    tap_look(to_sender, sizeof(to_sender));
    WAIT_FOR((one = one == RONDO_IN_PROGRESS ? net->connect(sender, to_sender) : one,
              two = two == RONDO_IN_PROGRESS ? net->connect(receiver, to_receiver) : two,
              one != RONDO_IN_PROGRESS && two != RONDO_IN_PROGRESS));
    assert_int_equal(one, RONDO_SUCCESS);
    assert_int_equal(two, RONDO_SUCCESS);
    assert_true(tap.bytes > sizeof(to_sender) + sizeof(to_receiver));
    assert_int_equal(tap_halves(), 0);
    net->close(sender);
    net->close(receiver);
    net->finalize();
}

static int setup(void **state)
{
    (void)state;
    use_loop("50ms", "10s");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_right_secret_passes_both_ways),
        cmocka_unit_test(proofs_are_hmac_sha_256),
        cmocka_unit_test(each_bit_of_the_secret_counts),
        cmocka_unit_test(each_byte_of_the_transcript_counts),
        cmocka_unit_test(a_replayed_transcript_is_refused),
        cmocka_unit_test(a_reflected_message_is_refused),
        cmocka_unit_test(swapped_roles_are_refused),
        cmocka_unit_test(derived_values_tell_labels_and_data_apart),
        cmocka_unit_test(handles_prove_direction_ranks_and_channel),
        cmocka_unit_test(a_forked_child_can_do_it),
        cmocka_unit_test(the_tap_sees_what_is_sent),
        cmocka_unit_test(the_control_plane_never_sends_the_secret),
        cmocka_unit_test(a_childs_members_derive_its_secret),
        cmocka_unit_test(socket_comms_never_send_the_secret),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
