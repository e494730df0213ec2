/* base/shm_socket.h: who gets a descriptor, dead and silent owners, the life of the thread, and leaks. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <cmocka.h>
#include "base/log.h"
#include "base/param.h"
#include "base/shm.h"
#include "base/shm_socket.h"
#include "base/wait.h"
#include "in_child.h"

#define ADDRESS "@rondo-unit-%d" /* of this process */

enum { WAIT_MS = 10000, SHORT_MS = 100, OPENERS = 8, OPENS = 25 };

#ifdef __SANITIZE_THREAD__
/* ThreadSanitizer has a thread of its own, and ends children that start another. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }
#endif

/* Count the threads that share memory; status: the text of /proc/.../status for one of them. */
static int count_servers(char *status, size_t size)
{
    struct dirent *entry;
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        char path[300], text[4096];
        FILE *file;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        file = fopen(path, "r");
        text[file ? fread(text, 1, sizeof text - 1, file) : 0] = '\0';
        if (file) {
            fclose(file);
        }
        if (strncmp(text, "Name:\trondo-shm\n", 16) == 0) {
            n++;
            snprintf(status, size, "%s", text);
        }
    }
    closedir(dir);
    return n;
}

/* A joined thread may stay listed for a moment. */
static void assert_servers(int expected)
{
    int64_t late = rondo_now_ns() + INT64_C(2000000000);
    char unused[1];
    while (count_servers(unused, sizeof unused) != expected && rondo_now_ns() < late) {
        usleep(1000);
    }
    assert_int_equal(count_servers(unused, sizeof unused), expected);
}

static void assert_refused(const struct rondo_shm_name *name, const char *because)
{
    struct rondo_shm shm;
    int64_t start = rondo_now_ns();
    assert_int_equal(rondo_shm_open(&shm, name), RONDO_SYSTEM_ERROR);
    assert_true(rondo_now_ns() - start < INT64_C(3000000000));
    if (!strstr(rondo_error_text(), because)) {
        fail_msg("\"%s\" does not say \"%s\"", rondo_error_text(), because);
    }
}

static void one_thread_serves_all_segments_and_ends_with_the_last(void **state)
{
    struct rondo_shm shm[3], peer;
    struct rondo_shm_name last;
    int fds = count_fds();
    char text[4096];
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rondo_shm_create(&shm[i], 4096, RONDO_SHM_MODE_SOCKET), RONDO_SUCCESS);
        shm[i].base[0] = (uint8_t)i;
        assert_servers(1);
    }
    count_servers(text, sizeof text);
    assert_non_null(strstr(text, "SigBlk:\tfffffff"));
    rondo_shm_close(&shm[1]);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(rondo_shm_open(&peer, &shm[i].name), RONDO_SUCCESS);
        assert_int_equal(peer.base[0], i);
        rondo_shm_close(&peer);
    }
    rondo_shm_close(&shm[0]);
    assert_servers(1);
    last = shm[2].name;
    rondo_shm_unlink(&shm[2]); /* all peers have it */
    assert_servers(0);
    assert_int_equal(count_fds(), fds + 1);
    assert_refused(&last, "nobody offers it there");
    rondo_shm_close(&shm[2]);
    assert_int_equal(count_fds(), fds);
}

/* ---- many at once ---- */

static void *open_many(void *arg)
{
    const struct rondo_shm_name *name = arg;
    struct rondo_shm own, peer;
    for (int i = 0; i < OPENS; i++) {
        if (rondo_shm_create(&own, 4096, RONDO_SHM_MODE_SOCKET) != RONDO_SUCCESS) {
            return "create";
        }
        if (rondo_shm_open(&peer, name) != RONDO_SUCCESS || peer.base[0] != 17) {
            return "open";
        }
        rondo_shm_close(&peer);
        if (!rondo_shm_can_open(&own.name)) {
            return "open own";
        }
        rondo_shm_close(&own);
    }
    return NULL;
}

static void threads_may_create_open_and_close_concurrently(void **state)
{
    struct rondo_shm shm;
    pthread_t thread[OPENERS];
    int fds = count_fds();
    (void)state;
    assert_int_equal(rondo_shm_create(&shm, 4096, RONDO_SHM_MODE_SOCKET), RONDO_SUCCESS);
    shm.base[0] = 17;
    for (int i = 0; i < OPENERS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, open_many, &shm.name), 0);
    }
    for (int i = 0; i < OPENERS; i++) {
        void *failed;
        pthread_join(thread[i], &failed);
        if (failed) {
            fail_msg("%s fails", (const char *)failed);
        }
    }
    rondo_shm_close(&shm);
    assert_int_equal(count_fds(), fds);
    assert_servers(0);
}

/* ---- owners ---- */

static int can_open_both(void *arg)
{
    const struct rondo_shm *shm = arg;
    return rondo_shm_can_open(&shm[0].name) | rondo_shm_can_open(&shm[1].name) << 1;
}

/* @return what a peer can open: 1: the memfd, 2: the socket segment. */
static int be_closed(void *arg)
{
    struct rondo_shm shm[2];
    (void)arg;
    if ((geteuid() == 0 && become_nobody()) || prctl(PR_SET_DUMPABLE, 0) != 0 ||
        rondo_shm_create(&shm[0], 4096, RONDO_SHM_MODE_MEMFD) != RONDO_SUCCESS ||
        rondo_shm_create(&shm[1], 4096, RONDO_SHM_MODE_SOCKET) != RONDO_SUCCESS) {
        return 4;
    }
    return in_child(can_open_both, shm);
}

static void a_process_that_is_not_dumpable_shares_over_its_socket(void **state)
{
    (void)state;
    assert_int_equal(in_child(be_closed, NULL), 2);
}

static int create_and_die(void *arg)
{
    const int *to = arg;
    struct rondo_shm shm;
    if (rondo_shm_create(&shm, 4096, RONDO_SHM_MODE_SOCKET) == RONDO_SUCCESS &&
        write(*to, &shm.name, sizeof shm.name) == sizeof shm.name) {
        raise(SIGKILL);
    }
    return 1;
}

static void an_error_names_a_dead_owner_at_once(void **state)
{
    struct rondo_shm_name name;
    int pipes[2];
    (void)state;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(in_child(create_and_die, &pipes[1]), 128 + SIGKILL);
    assert_int_equal(read(pipes[0], &name, sizeof name), sizeof name);
    assert_refused(&name, "its owner has ended");
    close(pipes[0]);
    close(pipes[1]);
}

static void hold_what_is_inherited(void *arg)
{
    char end;
    (void)!read(*(int *)arg, &end, 1);
}

/* A forked child inherits the socket, but no thread that answers. */
static void a_forked_child_blocks_no_client(void **state)
{
    struct rondo_shm shm;
    struct rondo_shm_name name;
    int pipes[2], status;
    pid_t child;
    (void)state;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(rondo_shm_create(&shm, 4096, RONDO_SHM_MODE_SOCKET), RONDO_SUCCESS);
    child = fork();
    if (child == 0) {
        close(pipes[1]);
        hold_what_is_inherited(&pipes[0]);
        _exit(0);
    }
    name = shm.name;
    rondo_shm_close(&shm);
    assert_refused(&name, "nobody offers it there");
    close(pipes[0]);
    close(pipes[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static int close_inherited(void *arg)
{
    int fds = count_fds(); /* without listener, epoll and event of the parent */
    rondo_shm_close(arg);
#ifndef __SANITIZE_THREAD__ /* it takes a new thread for the parent's */
    struct rondo_shm own;
    if (rondo_shm_create(&own, 4096, RONDO_SHM_MODE_SOCKET) != RONDO_SUCCESS ||
        !rondo_shm_can_open(&own.name)) {
        return 1;
    }
    rondo_shm_close(&own);
#endif
    return count_fds() != fds - 1;
}

static void a_forked_child_does_not_touch_its_parents_segment(void **state)
{
    struct rondo_shm shm;
    (void)state;
    assert_int_equal(rondo_shm_create(&shm, 4096, RONDO_SHM_MODE_SOCKET), RONDO_SUCCESS);
    assert_int_equal(in_child(close_inherited, &shm), 0);
    assert_true(rondo_shm_can_open(&shm.name));
    rondo_shm_close(&shm);
}

/* ---- misbehaving owners ---- */

static void address_of(char *text, size_t size, struct sockaddr_un *un, socklen_t *bytes)
{
    memset(un, 0, sizeof *un);
    un->sun_family = AF_UNIX;
    snprintf(text, size, ADDRESS, (int)getpid());
    memcpy(un->sun_path + 1, text + 1, strlen(text) - 1);
    *bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(text));
}

static int listen_at(char *text, size_t size, int backlog)
{
    struct sockaddr_un un;
    socklen_t bytes;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    address_of(text, size, &un, &bytes);
    assert_int_equal(bind(fd, (const struct sockaddr *)&un, bytes) | listen(fd, backlog), 0);
    return fd;
}

static int connect_to(const char *text)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    memcpy(un.sun_path + 1, text + 1, strlen(text) - 1);
    if (connect(fd, (const struct sockaddr *)&un,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(text))) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void assert_no_descriptor(const char *address, int timeout_ms, const char *because)
{
    const char *why = "";
    int fds = count_fds();
    assert_int_equal(rondo_shm_receive(address, timeout_ms, &why), -1);
    if (!strstr(why, because)) {
        fail_msg("\"%s\" does not say \"%s\"", why, because);
    }
    assert_int_equal(count_fds(), fds);
}

static void waiting_for_a_silent_owner_has_a_limit(void **state)
{
    char address[64];
    int fd = listen_at(address, sizeof address, 0);
    int64_t start = rondo_now_ns(), took;
    (void)state;
    assert_no_descriptor(address, SHORT_MS, "does not answer; is it stopped?");
    took = (rondo_now_ns() - start) / 1000000;
    assert_in_range(took, SHORT_MS, 5000);
    assert_no_descriptor(address, SHORT_MS, "too many ask"); /* one waits already, which fills its queue */
    close(fd);
    assert_no_descriptor(address, WAIT_MS, "nobody offers it there");
    assert_no_descriptor("/rondo", WAIT_MS, "");
    assert_no_descriptor("", WAIT_MS, "");
}

/* The answer of a misbehaving owner. */
struct answer {
    int listener, bytes, ndescriptors;
    int32_t error;
};

static void *answer_once(void *arg)
{
    const struct answer *a = arg;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = { .bytes = { 0 } };
    int fds[2] = { 0, 0 }, client = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC);
    struct iovec data = { (void *)&a->error, (size_t)a->bytes };
    struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1 };
    if (a->ndescriptors > 0) {
        size_t length = CMSG_LEN(sizeof(int) * (size_t)a->ndescriptors);
        message.msg_control = control.bytes;
        message.msg_controllen = length;
        control.align =
            (struct cmsghdr){ .cmsg_len = length, .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * (size_t)a->ndescriptors);
    }
    if (a->bytes > 0) {
        (void)!sendmsg(client, &message, MSG_NOSIGNAL);
    }
    close(client);
    return NULL;
}

static void malformed_answers_give_no_descriptor(void **state)
{
    static const struct {
        int bytes;
        int32_t error;
        const char *because;
    } cases[] = {
        { 0, 0, "ended before it answered" },      { 4, 0, "ended before it answered" },
        { 4, EMFILE, "Too many open files" },      { 4, EACCES, "own user only" },
        { 2, EACCES, "ended before it answered" },
    };
    char address[64];
    struct answer answer = { .listener = listen_at(address, sizeof address, 8) };
    pthread_t thread;
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(cases); i++) {
        const char *why = "";
        answer.bytes = cases[i].bytes;
        answer.error = cases[i].error;
        assert_int_equal(pthread_create(&thread, NULL, answer_once, &answer), 0);
        assert_int_equal(rondo_shm_receive(address, WAIT_MS, &why), -1);
        pthread_join(thread, NULL);
        if (!strstr(why, cases[i].because)) {
            fail_msg("\"%s\" does not say \"%s\"", why, cases[i].because);
        }
    }
    close(answer.listener);
}

static void an_answer_with_two_descriptors_leaks_none(void **state)
{
    char address[64];
    const char *why = "";
    int fds = count_fds(), fd;
    struct answer answer = { .listener = listen_at(address, sizeof address, 8),
                             .bytes = 4,
                             .ndescriptors = 2 };
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, answer_once, &answer), 0);
    fd = rondo_shm_receive(address, WAIT_MS, &why);
    pthread_join(thread, NULL);
    close(answer.listener);
    assert_true(fd > 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    close(fd);
    assert_int_equal(count_fds(), fds);
}

static void an_address_can_be_offered_once(void **state)
{
    char address[64];
    int fds = count_fds(), fd = listen_at(address, sizeof address, 8);
    (void)state;
    assert_int_equal(rondo_shm_offer(0, 1, address), RONDO_SYSTEM_ERROR);
    assert_non_null(strstr(rondo_error_text(), "Address already in use"));
    close(fd);
    assert_int_equal(rondo_shm_offer(0, 1, address), RONDO_SUCCESS);
    rondo_shm_withdraw(2);
    assert_servers(1);
    rondo_shm_withdraw(1);
    rondo_shm_withdraw(1);
    assert_servers(0);
    assert_int_equal(count_fds(), fds);
}

/* ---- clients ---- */

/* User nobody asks root's socket directly, without the checks of the library. */
static int ask_as_nobody(void *arg)
{
    const struct rondo_shm *shm = arg;
    int32_t error = 0;
    char control[256];
    struct iovec data = { &error, sizeof error };
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
    };
    const char *why = "";
    int fd;
    if (become_nobody()) {
        return SKIPPED;
    }
    fd = connect_to(shm->name.path);
    if (recvmsg(fd, &message, 0) != sizeof error || error != EACCES || message.msg_controllen != 0) {
        return 1;
    }
    return rondo_shm_receive(shm->name.path, WAIT_MS, &why) != -1 || !strstr(why, "another user");
}

static void another_user_is_refused(void **state)
{
    struct rondo_shm shm;
    int code;
    (void)state;
    assert_int_equal(rondo_shm_create(&shm, 4096, RONDO_SHM_MODE_SOCKET), RONDO_SUCCESS);
    code = in_child(ask_as_nobody, &shm);
    rondo_shm_close(&shm);
    if (code == SKIPPED) {
        print_message("skipped: only root can become another user\n");
        skip();
    }
    assert_int_equal(code, 0);
}

static void silent_clients_do_not_disturb_others(void **state)
{
    struct rondo_shm shm;
    int client[20], fds = count_fds();
    (void)state;
    assert_int_equal(rondo_shm_create(&shm, 4096, RONDO_SHM_MODE_SOCKET), RONDO_SUCCESS);
    for (size_t i = 0; i < RONDO_COUNTOF(client); i++) {
        client[i] = connect_to(shm.name.path);
        assert_true(client[i] >= 0);
    }
    assert_true(rondo_shm_can_open(&shm.name));
    for (size_t i = 0; i < RONDO_COUNTOF(client); i++) {
        close(client[i]);
    }
    rondo_shm_close(&shm);
    assert_int_equal(count_fds(), fds);
}

/* ---- descriptors ---- */

static void limit_files(int files)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = files > 0 ? (rlim_t)files : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* The lowest number that a new descriptor would have. */
static int next_fd(void)
{
    int fd = dup(0);
    close(fd);
    return fd;
}

static int create_with_few_descriptors(void *arg)
{
    int fds = count_fds(), first = next_fd(), failures = 0;
    (void)arg;
    for (int spare = 0; spare < 6; spare++) {
        struct rondo_shm shm = { 0 };
        rondo_status status;
        limit_files(first + spare);
        status = rondo_shm_create(&shm, 4096, RONDO_SHM_MODE_SOCKET);
        limit_files(0);
        failures += status != RONDO_SUCCESS;
        if (status != RONDO_SUCCESS && !strstr(rondo_error_text(), "ulimit -n")) {
            return 1;
        }
        rondo_shm_close(&shm);
        if (count_fds() != fds) {
            return 2;
        }
    }
    return failures == 4 ? 0 : 3; /* memfd, listener, epoll, event */
}

static int open_with_few_descriptors(void *arg)
{
    const struct rondo_shm_name *name = arg;
    struct rondo_shm shm;
    int first = next_fd();
    for (int spare = 0; spare < 2; spare++) {
        limit_files(first + spare); /* too few for a socket, or for the descriptor it brings */
        if (rondo_shm_open(&shm, name) != RONDO_SYSTEM_ERROR || !strstr(rondo_error_text(), "ulimit -n")) {
            return 1;
        }
        limit_files(0);
        if (next_fd() != first) {
            return 2;
        }
    }
    limit_files(first + 2);
    return rondo_shm_open(&shm, name) != RONDO_SUCCESS;
}

static void running_out_of_descriptors_is_an_error_and_leaks_none(void **state)
{
    struct rondo_shm shm;
    (void)state;
    assert_int_equal(in_child(create_with_few_descriptors, NULL), 0);
    assert_int_equal(rondo_shm_create(&shm, 4096, RONDO_SHM_MODE_SOCKET), RONDO_SUCCESS);
    assert_int_equal(in_child(open_with_few_descriptors, &shm.name), 0);
    rondo_shm_close(&shm);
}

static void *lift_the_limit(void *arg)
{
    (void)arg;
    usleep(SHORT_MS * 1000);
    limit_files(0);
    return NULL;
}

/* The owner has no descriptor to accept a client with, for a while. */
static int serve_without_descriptors(void *arg)
{
    struct rondo_shm shm;
    pthread_t thread;
    char name[64];
    const char *why;
    int fd;
    (void)arg;
    if (rondo_shm_create(&shm, 4096, RONDO_SHM_MODE_SOCKET) != RONDO_SUCCESS) {
        return 1;
    }
    snprintf(name, sizeof name, "%s", shm.name.path);
    limit_files(next_fd() + 1); /* for the client of the same process */
    pthread_create(&thread, NULL, lift_the_limit, NULL);
    fd = rondo_shm_receive(name, WAIT_MS, &why);
    pthread_join(thread, NULL);
    rondo_shm_close(&shm);
    return fd >= 0 ? 0 : 2;
}

static void an_owner_out_of_descriptors_answers_once_it_has_one(void **state)
{
    (void)state;
    assert_int_equal(in_child(serve_without_descriptors, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_serves_all_segments_and_ends_with_the_last),
        cmocka_unit_test(threads_may_create_open_and_close_concurrently),
        cmocka_unit_test(a_process_that_is_not_dumpable_shares_over_its_socket),
        cmocka_unit_test(an_error_names_a_dead_owner_at_once),
        cmocka_unit_test(a_forked_child_blocks_no_client),
        cmocka_unit_test(a_forked_child_does_not_touch_its_parents_segment),
        cmocka_unit_test(waiting_for_a_silent_owner_has_a_limit),
        cmocka_unit_test(malformed_answers_give_no_descriptor),
        cmocka_unit_test(an_answer_with_two_descriptors_leaks_none),
        cmocka_unit_test(an_address_can_be_offered_once),
        cmocka_unit_test(another_user_is_refused),
        cmocka_unit_test(silent_clients_do_not_disturb_others),
        cmocka_unit_test(running_out_of_descriptors_is_an_error_and_leaks_none),
        cmocka_unit_test(an_owner_out_of_descriptors_answers_once_it_has_one),
    };
    rondo_params();
    rondo_log_mask = RONDO_LOG_NONE; /* errors are expected */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
