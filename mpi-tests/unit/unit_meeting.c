/*
 * Meetings: ranks that find each other at an address. Ranks are threads. Where the test's own process makes
 * the id they go on in a hub; where another process does, which is no rank, they go on over TCP.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/wait.h"
#include "net/bootstrap/meeting_conn.h"
#include "net/bootstrap/siblings.h"
#include "in_child.h"
#include "meeting_world.h"

enum { MOST = 24 };

static uint8_t byte_of(int from, int to, int round, size_t i)
{
    return (uint8_t)(from * 31 + to * 17 + round * 7 + (int)i);
}

/* Allgather records of `bytes`; @return how many bytes are wrong, or -1. */
static int gather(struct rondo_bootstrap *b, int round, size_t bytes)
{
    uint8_t *mine = calloc(1, bytes), *all = calloc((size_t)b->nranks, bytes);
    int wrong = 0;
    for (size_t i = 0; i < bytes; i++) {
        mine[i] = byte_of(b->rank, 0, round, i);
    }
    if (b->ops->allgather_start(b, mine, all, bytes) != RONDO_SUCCESS || finish(b) != RONDO_SUCCESS) {
        wrong = -1;
    }
    for (int r = 0; r < b->nranks && wrong >= 0; r++) {
        for (size_t i = 0; i < bytes; i++) {
            wrong += all[(size_t)r * bytes + i] != byte_of(r, 0, round, i);
        }
    }
    free(mine);
    free(all);
    return wrong;
}

/* Exchange with all other ranks. */
static int exchange(struct rondo_bootstrap *b, int round, size_t bytes)
{
    int peers[MOST], n = 0, wrong = 0;
    uint8_t *send = calloc(MOST, bytes), *recv = calloc(MOST, bytes);
    for (int r = 0; r < b->nranks; r++) {
        if (r != b->rank) {
            for (size_t i = 0; i < bytes; i++) {
                send[(size_t)n * bytes + i] = byte_of(b->rank, r, round, i);
            }
            peers[n++] = r;
        }
    }
    if (b->ops->exchange_start(b, n, peers, send, recv, bytes) != RONDO_SUCCESS ||
        finish(b) != RONDO_SUCCESS) {
        wrong = -1;
    }
    for (int p = 0; p < n && wrong >= 0; p++) {
        for (size_t i = 0; i < bytes; i++) {
            wrong += recv[(size_t)p * bytes + i] != byte_of(peers[p], b->rank, round, i);
        }
    }
    free(send);
    free(recv);
    return wrong;
}

struct member {
    pthread_t thread;
    struct rondo_meeting_id id;
    const struct rondo_meeting_place *places; /* NULL: the id counts */
    int listener;
    int rank, nranks;
    int dies; /* after the ranks have met, without a word */
    int wrong;
    rondo_status status;
    char text[RONDO_ERROR_TEXT];
};

static void keep(struct member *m, rondo_status status)
{
    m->status = status;
    snprintf(m->text, sizeof(m->text), "%s", status == RONDO_SUCCESS ? "" : rondo_error_text());
}

static void *take_part(void *arg)
{
    struct member *m = arg;
    struct rondo_bootstrap *b;
    rondo_status status = m->places != NULL
                              ? rondo_bootstrap_places(m->places, m->rank, m->nranks, m->listener, &b)
                              : rondo_bootstrap_meeting(&m->id, m->rank, m->nranks, &b);
    if (status != RONDO_SUCCESS) {
        keep(m, status);
        return NULL;
    }
    status = m->places != NULL ? RONDO_SUCCESS : b->ops->open_start(b);
    status = status == RONDO_SUCCESS ? finish(b) : status;
    for (int round = 0; status == RONDO_SUCCESS && round < 6; round++) {
        static const size_t sizes[] = { 8, 472, 5000, 1, 100, 64 };
        int wrong = round % 3 == 2 ? exchange(b, round, sizes[round]) : gather(b, round, sizes[round]);
        m->wrong += wrong;
        status = wrong == 0 ? RONDO_SUCCESS : RONDO_INTERNAL_ERROR;
    }
    keep(m, status);
    b->ended = status;
    b->ops->close(b, status == RONDO_SUCCESS);
    return NULL;
}

static void start(struct member *m, struct rondo_meeting_id id, int rank, int nranks)
{
    *m = (struct member){ .id = id, .rank = rank, .nranks = nranks };
    assert_int_equal(pthread_create(&m->thread, NULL, take_part, m), 0);
}

static void join(struct member *m) { pthread_join(m->thread, NULL); }

static void test_meets(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n += n < 6 ? 1 : 9) {
        struct member m[MOST];
        struct rondo_meeting_id id = new_id();
        for (int r = 0; r < n; r++) {
            start(&m[r], id, r, n);
        }
        for (int r = 0; r < n; r++) {
            join(&m[r]);
            assert_string_equal(m[r].text, "");
            assert_int_equal(m[r].wrong, 0);
        }
    }
}

/* Ranks that know each other's places need no id. The last one comes late, and finds what was sent to it. */
static void test_places(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST; n += 11) {
        struct member m[MOST];
        struct rondo_meeting_place places[MOST];
        for (int r = 0; r < n; r++) {
            m[r] = (struct member){ .places = places, .rank = r, .nranks = n };
            assert_int_equal(rondo_meeting_place_open(&places[r], &m[r].listener), RONDO_SUCCESS);
            assert_int_equal(places[r].status, RONDO_SUCCESS);
        }
        for (int r = 0; r < n; r++) {
            if (r == n - 1) {
                usleep(20000);
            }
            assert_int_equal(pthread_create(&m[r].thread, NULL, take_part, &m[r]), 0);
        }
        for (int r = 0; r < n; r++) {
            join(&m[r]);
            assert_string_equal(m[r].text, "");
            assert_int_equal(m[r].wrong, 0);
        }
    }
}

/* Disjoint communicators at once, whose ids one process made. */
static void test_several(void **state)
{
    struct member m[4][3];
    (void)state;
    for (int c = 0; c < 4; c++) {
        struct rondo_meeting_id id = new_id();
        for (int r = 0; r < 3; r++) {
            start(&m[c][r], id, r, 3);
        }
    }
    for (int c = 0; c < 4; c++) {
        for (int r = 0; r < 3; r++) {
            join(&m[c][r]);
            assert_string_equal(m[c][r].text, "");
        }
    }
}

static void test_id_twice(void **state)
{
    struct rondo_meeting_id id = new_id();
    struct member m[2], again;
    (void)state;
    start(&m[0], id, 0, 2);
    start(&m[1], id, 1, 2);
    join(&m[0]);
    join(&m[1]);
    assert_int_equal(m[0].status, RONDO_SUCCESS);
    start(&again, id, 0, 2);
    join(&again);
    assert_int_equal(again.status, RONDO_INVALID_USAGE);
    assert_non_null(strstr(again.text, "new id"));
}

/* One turn of a round. @return as b->ops->test */
static rondo_status turn(struct rondo_bootstrap *b, int most)
{
    rondo_status status = b->ops->test(b);
    while (--most > 0 && status == RONDO_IN_PROGRESS) {
        usleep(1000);
        status = b->ops->test(b);
    }
    return status;
}

static void leave(struct rondo_bootstrap *b)
{
    b->ended = RONDO_SUCCESS;
    b->ops->close(b, 1);
}

/* Three ranks that have met. */
static void meet(struct rondo_bootstrap *b[3])
{
    struct rondo_meeting_id id = new_id();
    int64_t end = rondo_now_ns() + DEADLINE_NS;
    for (int r = 0; r < 3; r++) {
        assert_int_equal(rondo_bootstrap_meeting(&id, r, 3, &b[r]), RONDO_SUCCESS);
        assert_int_equal(b[r]->ops->open_start(b[r]), RONDO_SUCCESS);
    }
    while (!(b[1]->met && b[2]->met)) {
        assert_true(rondo_now_ns() < end);
        for (int r = 0; r < 3; r++) {
            turn(b[r], 1);
            if (r == 0 && b[0]->met) { /* a round of nothing: the table goes on to the others */
                assert_int_equal(b[0]->ops->exchange_start(b[0], 0, NULL, NULL, NULL, 1), RONDO_SUCCESS);
            }
        }
    }
}

/* Ranks 1 and 2 connect at once, so that the pair has two connections. One has its records first and leaves:
 * its goodbye on one connection does not overtake what the other connection still holds. */
static void test_leaves_first(void **state)
{
    enum { BYTES = 200000 };
    struct rondo_bootstrap *b[3];
    uint8_t *send = calloc(3, BYTES), *recv = calloc(3, BYTES);
    (void)state;
    meet(b);
    for (int r = 1; r < 3; r++) {
        memset(send + (size_t)r * BYTES, 'a' + r, BYTES);
        assert_int_equal(b[r]->ops->exchange_start(b[r], 1, (int[]){ 3 - r }, send + (size_t)r * BYTES,
                                                   recv + (size_t)r * BYTES, BYTES),
                         RONDO_SUCCESS);
    }
    for (int i = 0; i < 6; i++) { /* rank 2 sends all, and reads at most 20 KiB a turn */
        turn(b[1], 3);
        turn(b[2], 1);
    }
    assert_int_equal(turn(b[1], 1000), RONDO_SUCCESS);
    leave(b[1]);
    usleep(20000); /* the next turn looks at the other ranks */
    assert_int_equal(turn(b[2], 1000), RONDO_SUCCESS);
    for (int i = 0; i < BYTES; i++) {
        assert_int_equal(recv[2 * BYTES + i], 'a' + 1);
    }
    leave(b[2]);
    leave(b[0]);
    free(send);
    free(recv);
}

/* Rank 1 of 3 is not to be had: whoever waits for it finds out before its deadline. */
static void nobody_is_at(const struct sockaddr_in *addr)
{
    struct rondo_bootstrap *b[3];
    struct rondo_meeting_place places[3];
    uint8_t mine = 0, all[3];
    int listener[3];
    rondo_status status;
    for (int r = 0; r < 3; r++) {
        assert_int_equal(rondo_meeting_place_open(&places[r], &listener[r]), RONDO_SUCCESS);
    }
    close(listener[1]);
    if (addr != NULL) {
        memcpy(places[1].addr, addr, sizeof(*addr));
    }
    for (int r = 0; r < 3; r += 2) {
        assert_int_equal(rondo_bootstrap_places(places, r, 3, listener[r], &b[r]), RONDO_SUCCESS);
        assert_int_equal(b[r]->ops->allgather_start(b[r], &mine, all, 1), RONDO_SUCCESS);
    }
    status = finish(b[0]);
    assert_int_equal(status, RONDO_REMOTE_ERROR);
    assert_non_null(strstr(rondo_error_text(), "rank 1 ("));
    assert_non_null(strstr(rondo_error_text(), "has exited, or cannot be reached"));
    for (int r = 0; r < 3; r += 2) {
        b[r]->ended = RONDO_REMOTE_ERROR;
        b[r]->ops->close(b[r], 0);
    }
}

/* Its process is gone; or no network leads there, which connect() says at once. */
static void test_nobody_is_there(void **state)
{
    const struct sockaddr_in nowhere = { .sin_family = AF_INET,
                                         .sin_port = htons(9),
                                         .sin_addr = { htonl(INADDR_BROADCAST) } };
    (void)state;
    nobody_is_at(NULL);
    nobody_is_at(&nowhere);
}

/* Turn until all have done their round; that one has not begun is done. */
static void turn_all(struct rondo_bootstrap *b[3])
{
    int64_t end = rondo_now_ns() + DEADLINE_NS;
    int left = 3;
    while (left > 0) {
        left = 0;
        for (int r = 0; r < 3; r++) {
            rondo_status status = turn(b[r], 1);
            left += status == RONDO_IN_PROGRESS;
            assert_true(status == RONDO_SUCCESS || (status == RONDO_IN_PROGRESS && rondo_now_ns() < end));
        }
    }
}

/* A rank that is a round ahead sends more than is kept for later; what this round waits for comes past it. */
static void test_one_is_ahead(void **state)
{
    enum { RECORD = 64, AHEAD = 600000 };
    struct rondo_bootstrap *b[3];
    struct rondo_meeting_place places[3];
    uint8_t *mine = calloc(1, AHEAD), *all = calloc(9, AHEAD), send[RECORD] = "from 2 to 0", recv[2][RECORD];
    int listener[3];
    (void)state;
    memset(mine, 'm', AHEAD);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(rondo_meeting_place_open(&places[r], &listener[r]), RONDO_SUCCESS);
    }
    for (int r = 0; r < 3; r++) {
        assert_int_equal(rondo_bootstrap_places(places, r, 3, listener[r], &b[r]), RONDO_SUCCESS);
    }
    assert_int_equal(b[0]->ops->exchange_start(b[0], 1, (int[]){ 2 }, send, recv[0], RECORD), RONDO_SUCCESS);
    assert_int_equal(b[1]->ops->exchange_start(b[1], 0, NULL, NULL, NULL, RECORD), RONDO_SUCCESS);
    assert_int_equal(turn(b[1], 1000), RONDO_SUCCESS);
    assert_int_equal(b[1]->ops->allgather_start(b[1], mine, all + 3 * AHEAD, AHEAD), RONDO_SUCCESS);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(turn(b[1], 1), RONDO_IN_PROGRESS);
        assert_int_equal(turn(b[0], 2), RONDO_IN_PROGRESS);
    }
    assert_int_equal(b[2]->ops->exchange_start(b[2], 1, (int[]){ 0 }, send, recv[1], RECORD), RONDO_SUCCESS);
    assert_int_equal(turn(b[2], 2), RONDO_IN_PROGRESS);
    for (int64_t end = rondo_now_ns() + DEADLINE_NS; turn(b[0], 2) != RONDO_SUCCESS;) {
        assert_true(rondo_now_ns() < end);
        turn(b[2], 1);
    }
    assert_memory_equal(recv[0], send, RECORD);
    assert_int_equal(turn(b[2], 1000), RONDO_SUCCESS);
    for (int r = 0; r < 3; r += 2) {
        assert_int_equal(b[r]->ops->allgather_start(b[r], mine, all + 3 * (size_t)r * AHEAD, AHEAD),
                         RONDO_SUCCESS);
    }
    turn_all(b);
    for (size_t i = 0; i < 9; i++) {
        assert_memory_equal(all + i * AHEAD, mine, AHEAD);
    }
    for (int r = 0; r < 3; r++) {
        leave(b[r]);
    }
    free(mine);
    free(all);
}

static void test_mismatch(void **state)
{
    struct rondo_meeting_id id = new_id();
    struct rondo_bootstrap *b = begin(id, 0, 3);
    struct member same, other;
    (void)state;
    start(&same, id, 0, 3);
    join(&same);
    assert_int_equal(same.status, RONDO_INVALID_USAGE);
    assert_non_null(strstr(same.text, "two callers are rank 0"));
    start(&other, id, 1, 4);
    join(&other);
    assert_int_equal(other.status, RONDO_INVALID_USAGE);
    assert_non_null(strstr(other.text, "of 4 ranks"));
    b->ended = RONDO_INVALID_USAGE;
    b->ops->close(b, 0);
}

static void test_missing(void **state)
{
    struct rondo_meeting_id id = new_id();
    struct rondo_bootstrap *b = begin(id, 1, 4);
    int ranks[8], n = 0;
    rondo_status status;
    int64_t end = rondo_now_ns() + DEADLINE_NS;
    struct member late;
    (void)state;
    while ((status = b->ops->missing(b, ranks, 8, &n)) == RONDO_IN_PROGRESS && rondo_now_ns() < end) {
        sched_yield();
    }
    assert_int_equal(status, RONDO_SUCCESS);
    assert_int_equal(n, 3);
    assert_int_equal(ranks[0], 0);
    assert_int_equal(ranks[1], 2);
    assert_int_equal(ranks[2], 3);
    rondo_fail_quiet(RONDO_TIMEOUT, "rank 1 waited long enough");
    b->ended = RONDO_TIMEOUT;
    b->ops->close(b, 0);
    usleep(100000); /* the creator hears of it */
    start(&late, id, 0, 4);
    join(&late);
    assert_int_not_equal(late.status, RONDO_SUCCESS);
    assert_non_null(strstr(late.text, "waited long enough"));
}

/* A rank's process dies once all have met: the others end with an error, not with their deadline. */
static void test_death(void **state)
{
    struct rondo_meeting_id id = new_id();
    struct member m[4];
    pid_t pid;
    (void)state;
    pid = fork();
    if (pid == 0) {
        struct rondo_bootstrap *b;
        if (rondo_bootstrap_meeting(&id, 2, 5, &b) == RONDO_SUCCESS &&
            b->ops->open_start(b) == RONDO_SUCCESS && finish(b) == RONDO_SUCCESS) {
            _exit(7);
        }
        _exit(1);
    }
    for (int i = 0; i < 4; i++) {
        start(&m[i], id, i < 2 ? i : i + 1, 5);
    }
    for (int i = 0; i < 4; i++) {
        join(&m[i]);
        assert_int_equal(m[i].status, RONDO_INTERNAL_ERROR); /* gather's: a round failed */
    }
    int how;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 7);
}

/* A process that registers as rank 2 of 4, says so, and dies when it is told to. */
static pid_t dying_member(struct rondo_meeting_id id, int *tell)
{
    int ready[2], order[2];
    char byte = 0;
    pid_t pid;
    assert_return_code(pipe(ready), errno);
    assert_return_code(pipe(order), errno);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rondo_bootstrap *b = begin(id, 2, 4);
        int ranks[8], n = 0;
        close(order[1]);
        while (b->ops->missing(b, ranks, 8, &n) == RONDO_IN_PROGRESS) { /* answered once it has registered */
            sched_yield();
        }
        _exit(n == 3 && write(ready[1], &byte, 1) == 1 && read(order[0], &byte, 1) <= 1 ? 7 : 1);
    }
    close(ready[1]);
    close(order[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    *tell = order[1];
    return pid;
}

/* A rank's process dies when it has registered and others have not: those that wait, and those that come
 * later, are told which rank it was, long before their deadline. */
static void test_death_before(void **state)
{
    struct rondo_meeting_id id = new_id();
    struct member m[2], late;
    int tell, how;
    pid_t pid = dying_member(id, &tell);
    (void)state;
    start(&m[0], id, 0, 4);
    start(&m[1], id, 1, 4);
    close(tell);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 7);
    for (int i = 0; i < 2; i++) {
        join(&m[i]);
        assert_int_equal(m[i].status, RONDO_REMOTE_ERROR);
        assert_non_null(strstr(m[i].text, "rank 2 of 4"));
        assert_non_null(strstr(m[i].text, "has exited before all ranks had come"));
    }
    start(&late, id, 3, 4);
    join(&late);
    assert_int_equal(late.status, RONDO_REMOTE_ERROR);
    assert_non_null(strstr(late.text, "rank 2 of 4"));
}

/* A process of the job that is no rank yet. */
static pid_t sibling(void)
{
    static char *const environment[] = { "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=unit", "MASTER_PORT=1",
                                         NULL };
    static char *const arguments[] = { "sleep", "60", NULL };
    int started[2];
    char byte;
    pid_t pid;
    assert_return_code(pipe2(started, O_CLOEXEC), errno);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        execve("/bin/sleep", arguments, environment);
        _exit(1);
    }
    close(started[1]);
    assert_int_equal(read(started[0], &byte, 1), 0); /* it has its environment now */
    close(started[0]);
    return pid;
}

/* This process is number 0 of that job. */
static void set_job(void)
{
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "unit", 1);
    setenv("MASTER_PORT", "1", 1);
}

/* A process of the job dies before it has said anything. A communicator of fewer ranks does not need it. */
static void test_sibling_dies(void **state)
{
    struct rondo_meeting_id id, other;
    struct member m, few[3];
    pid_t pid = sibling();
    (void)state;
    set_job();
    creator_start();
    unsetenv("RANK");
    id = new_id();
    other = new_id();
    start(&m, id, 0, 2);
    start(&few[0], other, 0, 3);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    join(&m);
    assert_int_equal(m.status, RONDO_REMOTE_ERROR);
    assert_non_null(strstr(m.text, "process 1 of the job's 2 (pid "));
    for (int r = 1; r < 3; r++) {
        start(&few[r], other, r, 3);
    }
    for (int r = 0; r < 3; r++) {
        join(&few[r]);
        assert_int_equal(few[r].status, RONDO_SUCCESS);
    }
}

/* The program sets other variables later, in any thread. */
static int look_with_another_environment(int in, int out)
{
    struct rondo_siblings siblings;
    char byte = 0;
    rondo_siblings_open(&siblings);
    setenv("MASTER_PORT", "2", 1);
    if (write(out, &byte, 1) != 1 || read(in, &byte, 1) != 1 || rondo_siblings_ended(&siblings) != NULL) {
        return 1;
    }
    return write(out, &byte, 1) != 1 || read(in, &byte, 1) != 1 || rondo_siblings_ended(&siblings) == NULL;
}

static void test_environment_changes(void **state)
{
    int in[2], out[2], how;
    char byte = 0;
    (void)state;
    set_job();
    assert_return_code(pipe2(in, O_CLOEXEC), errno);
    assert_return_code(pipe2(out, O_CLOEXEC), errno);
    pid_t looks = fork();
    if (looks == 0) {
        _exit(look_with_another_environment(in[0], out[1]));
    }
    assert_int_equal(read(out[0], &byte, 1), 1);
    pid_t pid = sibling();
    assert_int_equal(write(in[1], &byte, 1), 1);
    assert_int_equal(read(out[0], &byte, 1), 1); /* it has seen the other */
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(write(in[1], &byte, 1), 1);
    assert_int_equal(waitpid(looks, &how, 0), looks);
    assert_int_equal(how, 0);
    for (int i = 0; i < 2; i++) {
        close(in[i]);
        close(out[i]);
    }
    unsetenv("RANK");
}

/* A rank that has written over its environment has started another program, which has the rank's number, and
 * ends. */
static int look_at_helper(void *arg)
{
    static char *const nothing[] = { NULL };
    static char *const rank[] = { "sh", "-c",
                                  "RANK=1 WORLD_SIZE=2 MASTER_ADDR=unit MASTER_PORT=1 /bin/sh -c "
                                  "'echo; exec /bin/cat' <&3 & wait; echo; read line",
                                  NULL };
    struct rondo_siblings siblings;
    int from[2], end[2], main_end[2];
    char byte;
    (void)arg;
    if (pipe(from) != 0 || pipe2(end, O_CLOEXEC) != 0 || pipe2(main_end, O_CLOEXEC) != 0) {
        return 1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        dup2(main_end[0], 0);
        dup2(from[1], 1);
        dup2(end[0], 3);
        execve("/bin/sh", rank, nothing);
        _exit(1);
    }
    close(from[1]);
    if (read(from[0], &byte, 1) != 1) { /* the program runs */
        return 2;
    }
    rondo_siblings_open(&siblings);
    close(end[1]);
    if (read(from[0], &byte, 1) != 1 || rondo_siblings_ended(&siblings) != NULL) {
        return 3;
    }
    close(main_end[1]);
    return waitpid(pid, NULL, 0) == pid ? 0 : 4;
}

static void test_helper_ends(void **state)
{
    (void)state;
    set_job();
    assert_int_equal(in_child(look_at_helper, NULL), 0);
    unsetenv("RANK");
}

/* The creator dies when some have registered. */
static void test_creator_dies(void **state)
{
    struct rondo_meeting_id id = new_id();
    struct rondo_bootstrap *b = begin(id, 0, 3);
    int ranks[8], n = 0;
    rondo_status status;
    (void)state;
    while (b->ops->missing(b, ranks, 8, &n) == RONDO_IN_PROGRESS) {
        sched_yield();
    }
    kill(creator, SIGKILL);
    status = finish(b);
    assert_int_equal(status, RONDO_REMOTE_ERROR);
    assert_non_null(strstr(rondo_error_text(), "has exited before all ranks had come"));
    b->ended = status;
    b->ops->close(b, 0);
    creator_stop(NULL);
}

static void test_creator_gone(void **state)
{
    struct rondo_meeting_id id = new_id();
    struct member m;
    (void)state;
    kill(creator, SIGKILL);
    creator_stop(NULL);
    start(&m, id, 0, 2);
    join(&m);
    assert_int_equal(m.status, RONDO_REMOTE_ERROR);
    assert_non_null(strstr(m.text, "cannot reach the process that made the unique id"));
}

/* A connection on which nothing is said for long shows the loss of the other host. */
static void test_probes(void **state)
{
    struct rondo_meeting_id id = new_id();
    struct rondo_meet_conn *conn;
    int seconds = 0;
    socklen_t bytes = sizeof(seconds);
    (void)state;
    assert_int_equal(rondo_meet_connect(&id, id.addr, 0, RONDO_MEET_ROOT, 4096, &conn), RONDO_SUCCESS);
    assert_return_code(getsockopt(conn->fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, &bytes), errno);
    assert_in_range(seconds, 1, 600);
    rondo_meet_free(conn);
}

/* Strangers at the creator's address: garbage, a wrong secret, silence. The meeting goes on. */
static void test_strangers(void **state)
{
    struct rondo_meeting_id id = new_id(), wrong = id;
    struct member m[2];
    int fd[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct sockaddr_in addr;
        memcpy(&addr, id.addr, sizeof(addr));
        fd[i] = socket(addr.sin_family, SOCK_STREAM, 0);
        if (addr.sin_family == AF_INET) {
            assert_return_code(connect(fd[i], (struct sockaddr *)&addr, sizeof(addr)), errno);
        }
        if (i < 2) {
            char junk[200];
            memset(junk, 'x', sizeof(junk));
            assert_true(send(fd[i], junk, i == 0 ? 20 : sizeof(junk), MSG_NOSIGNAL) > 0);
        }
    }
    wrong.secret[0] ^= 1;
    assert_int_equal(rondo_meeting_check(&wrong), RONDO_INVALID_ARGUMENT);
    start(&m[0], id, 0, 2);
    start(&m[1], id, 1, 2);
    for (int r = 0; r < 2; r++) {
        join(&m[r]);
        assert_string_equal(m[r].text, "");
    }
    for (int i = 0; i < 3; i++) {
        close(fd[i]);
    }
}

static void test_bad_id(void **state)
{
    struct rondo_meeting_id id = new_id();
    struct rondo_bootstrap *b;
    (void)state;
    for (size_t i = 0; i < sizeof(id); i += 5) {
        struct rondo_meeting_id bad = id;
        ((uint8_t *)&bad)[i] ^= 0x40;
        assert_int_equal(rondo_bootstrap_meeting(&bad, 0, 1, &b), RONDO_INVALID_ARGUMENT);
    }
    memset(&id, 0, sizeof(id));
    assert_int_equal(rondo_bootstrap_meeting(&id, 0, 1, &b), RONDO_INVALID_ARGUMENT);
    id = new_id();
    assert_int_equal(rondo_bootstrap_meeting(&id, 2, 2, &b), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_bootstrap_meeting(&id, -1, 2, &b), RONDO_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meets),
        cmocka_unit_test_setup_teardown(test_meets, remote, creator_stop),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_nobody_is_there),
        cmocka_unit_test(test_one_is_ahead),
        cmocka_unit_test(test_several),
        cmocka_unit_test_setup_teardown(test_several, remote, creator_stop),
        cmocka_unit_test(test_id_twice),
        cmocka_unit_test_setup_teardown(test_id_twice, remote, creator_stop),
        cmocka_unit_test_setup_teardown(test_leaves_first, remote, creator_stop),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test_setup_teardown(test_mismatch, remote, creator_stop),
        cmocka_unit_test(test_missing),
        cmocka_unit_test_setup_teardown(test_missing, remote, creator_stop),
        cmocka_unit_test_setup_teardown(test_death, remote, creator_stop),
        cmocka_unit_test(test_death_before),
        cmocka_unit_test_setup_teardown(test_death_before, remote, creator_stop),
        cmocka_unit_test_teardown(test_sibling_dies, creator_stop),
        cmocka_unit_test(test_environment_changes),
        cmocka_unit_test(test_helper_ends),
        cmocka_unit_test(test_probes),
        cmocka_unit_test_setup_teardown(test_creator_dies, remote, creator_stop),
        cmocka_unit_test_setup_teardown(test_creator_gone, remote, creator_stop),
        cmocka_unit_test_setup_teardown(test_strangers, remote, creator_stop),
        cmocka_unit_test(test_bad_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
