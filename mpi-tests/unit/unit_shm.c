/* base/shm.h: segments between processes, false records, full file systems, and leaks. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/param.h"
#include "base/shm.h"
#include "in_child.h"
#include "own_mounts.h"

enum { MIB = 1 << 20 };

static const enum rondo_shm_mode modes[] = { RONDO_SHM_MODE_MEMFD, RONDO_SHM_MODE_SOCKET,
                                             RONDO_SHM_MODE_FILE };

/* Look for this file only: other programs have files in /dev/shm, too. */
static int file_exists(const struct rondo_shm_name *name)
{
    char path[96];
    snprintf(path, sizeof path, "/dev/shm%s", name->path);
    return access(path, F_OK) == 0;
}

/* Count mappings of segments and of reserved addresses; threads and sanitizers make some, too. */
static int count_maps(int only_segments)
{
    char line[512];
    int n = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        n += strstr(line, "rondo") != NULL ||
             (!only_segments && strstr(line, "---p 00000000 00:00 0 \n") != NULL);
    }
    fclose(file);
    return n;
}

static void modes_are_the_values_of_RONDO_SHM_MODE(void **state)
{
    struct rondo_param_info info;
    char names[64] = "";
    (void)state;
    for (int mode = 0; mode < RONDO_NUM_SHM_MODES; mode++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", mode > 0 ? "," : "", rondo_shm_mode_name(mode));
    }
    rondo_param_get_info(RONDO_PARAM_shm_mode, &info);
    assert_string_equal(info.range, names);
    assert_null(rondo_shm_mode_name(RONDO_NUM_SHM_MODES));
    assert_null(rondo_shm_mode_name(-1));
}

/* The peer sees the creator's byte and answers in the last one. */
static int peer_of(void *arg)
{
    const struct rondo_shm_name *name = arg;
    struct rondo_shm shm;
    if (rondo_shm_open(&shm, name) != RONDO_SUCCESS || shm.fd != -1 || shm.size != name->size ||
        shm.base[0] != 17) {
        return 1;
    }
    shm.base[shm.size - 1] = 71;
    rondo_shm_close(&shm);
    return 0;
}

static void a_peer_sees_the_creators_bytes(void **state)
{
    static const size_t sizes[] = { 1, 4096, 100000, 2 * MIB, 5 * MIB + 1 };
    (void)state;
    for (size_t m = 0; m < RONDO_COUNTOF(modes); m++) {
        for (size_t i = 0; i < RONDO_COUNTOF(sizes); i++) {
            struct rondo_shm shm;
            assert_int_equal(rondo_shm_create(&shm, sizes[i], modes[m]), RONDO_SUCCESS);
            assert_int_equal(shm.name.mode, modes[m]);
            assert_int_equal(shm.size, rondo_round_up(sizes[i], (size_t)sysconf(_SC_PAGESIZE)));
            assert_int_equal((uintptr_t)shm.base % (shm.size >= 2 * MIB ? 2 * MIB : 4096), 0);
            assert_int_equal(rondo_shm_reserve(&shm, 0, shm.size), RONDO_SUCCESS);
            assert_int_equal(shm.base[0] | shm.base[shm.size - 1], 0);
            shm.base[0] = 17;
            assert_true(rondo_shm_can_open(&shm.name));
            assert_int_equal(in_child(peer_of, &shm.name), 0);
            assert_int_equal(shm.base[shm.size - 1], 71);
            rondo_shm_close(&shm);
            assert_null(shm.base);
        }
    }
}

static void auto_is_a_memfd_where_available(void **state)
{
    struct rondo_shm shm;
    (void)state;
    assert_int_equal(rondo_shm_create(&shm, 4096, RONDO_SHM_MODE_AUTO), RONDO_SUCCESS);
    assert_int_equal(shm.name.mode, RONDO_SHM_MODE_MEMFD);
    assert_int_equal(fcntl(shm.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    /* A peer cannot truncate the segment. */
    assert_int_equal(ftruncate(shm.fd, 0), -1);
    rondo_shm_close(&shm);
}

static void nothing_is_reserved_before_reserve(void **state)
{
    struct rondo_shm shm;
    struct stat st;
    (void)state;
    for (size_t m = 0; m < RONDO_COUNTOF(modes); m++) {
        assert_int_equal(rondo_shm_create(&shm, 64 * MIB, modes[m]), RONDO_SUCCESS);
        assert_int_equal(fstat(shm.fd, &st), 0);
        assert_int_equal(st.st_blocks, 0);
        assert_int_equal(rondo_shm_reserve(&shm, 8 * MIB, 100000), RONDO_SUCCESS);
        assert_int_equal(rondo_shm_reserve(&shm, 0, 0), RONDO_SUCCESS);
        assert_int_equal(fstat(shm.fd, &st), 0);
        assert_in_range(st.st_blocks * 512, 100000, 4 * MIB);
        assert_int_equal(rondo_shm_reserve(&shm, shm.size, 1), RONDO_INTERNAL_ERROR);
        assert_int_equal(rondo_shm_reserve(&shm, 1, SIZE_MAX), RONDO_INTERNAL_ERROR);
        rondo_shm_close(&shm);
    }
}

static void a_file_is_private_and_disappears_when_unlinked(void **state)
{
    struct rondo_shm shm, peer;
    struct rondo_shm_name name;
    char path[96];
    struct stat st;
    (void)state;
    assert_int_equal(rondo_shm_create(&shm, 4096, RONDO_SHM_MODE_FILE), RONDO_SUCCESS);
    name = shm.name;
    snprintf(path, sizeof path, "/dev/shm%s", name.path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(rondo_shm_open(&peer, &name), RONDO_SUCCESS);
    rondo_shm_unlink(&shm);
    rondo_shm_unlink(&shm);
    assert_false(file_exists(&name));
    assert_false(rondo_shm_can_open(&name));
    shm.base[5] = 5;
    assert_int_equal(peer.base[5], 5); /* mappings and reserve still work */
    assert_int_equal(rondo_shm_reserve(&shm, 0, 4096), RONDO_SUCCESS);
    rondo_shm_close(&peer);
    rondo_shm_close(&shm);

    assert_int_equal(rondo_shm_create(&shm, 4096, RONDO_SHM_MODE_FILE), RONDO_SUCCESS);
    name = shm.name;
    assert_int_equal(rondo_shm_open(&peer, &name), RONDO_SUCCESS);
    rondo_shm_close(&peer);
    assert_true(file_exists(&name)); /* a peer's close does not remove it */
    rondo_shm_close(&shm);
    assert_false(file_exists(&name)); /* the creator's does */
}

static void refuse(const struct rondo_shm_name *name, const char *because)
{
    struct rondo_shm shm;
    rondo_error_clear();
    assert_false(rondo_shm_can_open(name));
    assert_int_equal(rondo_shm_open(&shm, name), RONDO_SYSTEM_ERROR);
    if (!strstr(rondo_error_text(), because)) {
        fail_msg("\"%s\" does not say \"%s\"", rondo_error_text(), because);
    }
}

static void false_records_are_refused(void **state)
{
    struct rondo_shm shm;
    int fds = count_fds();
    (void)state;
    for (size_t m = 0; m < RONDO_COUNTOF(modes); m++) {
        struct rondo_shm_name name;
        assert_int_equal(rondo_shm_create(&shm, 4096, modes[m]), RONDO_SUCCESS);
        name = shm.name;
        name.inode++;
        refuse(&name, "other inode");
        name = shm.name;
        name.size = 8192;
        refuse(&name, "shorter");
        name.size = 0;
        refuse(&name, "invalid record of shared memory");
        name.size = 4097;
        refuse(&name, "invalid record of shared memory");
        name.size = UINT64_MAX - 4095;
        refuse(&name, "invalid record of shared memory");
        name = shm.name;
        name.mode = 7;
        refuse(&name, "invalid record of shared memory");
        rondo_shm_close(&shm);
    }
    assert_int_equal(count_fds(), fds);
}

static void malformed_names_are_refused(void **state)
{
    static const char *const paths[] = { "",
                                         "/rondo-",
                                         "/../etc/passwd",
                                         "/rondo-../../etc/pass",
                                         "/rondo-0123456789abcde/",
                                         "/rondo-0123456789abcdef0",
                                         "rondo-00123456789abcdef" };
    struct rondo_shm_name name = { .size = 4096 };
    (void)state;
    for (size_t m = 1; m < RONDO_COUNTOF(modes); m++) {
        name.mode = modes[m];
        for (size_t i = 0; i < RONDO_COUNTOF(paths); i++) {
            snprintf(name.path, sizeof name.path, "%s", paths[i]);
            refuse(&name, "invalid record of shared memory");
        }
        snprintf(name.path, sizeof name.path, "%s",
                 modes[m] == RONDO_SHM_MODE_FILE ? "@rondo-0123456789abcdef" : "/rondo-0123456789abcdef");
        refuse(&name, "invalid record of shared memory");
        memset(name.path, 'a', sizeof name.path); /* not terminated */
        refuse(&name, "invalid record of shared memory");
    }
}

static void a_link_in_place_of_a_file_is_refused(void **state)
{
    struct rondo_shm shm;
    struct rondo_shm_name name;
    char path[96], target[] = "/tmp/unit_shm.XXXXXX";
    struct stat st;
    int fd = mkstemp(target);
    (void)state;
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(rondo_shm_create(&shm, 4096, RONDO_SHM_MODE_FILE), RONDO_SUCCESS);
    name = shm.name;
    name.inode = st.st_ino;
    rondo_shm_close(&shm);
    snprintf(path, sizeof path, "/dev/shm%s", name.path);
    assert_int_equal(symlink(target, path), 0);
    refuse(&name, "symbolic links");
    unlink(path);
    unlink(target);
    close(fd);
}

static void a_descriptor_that_became_a_pipe_does_not_block(void **state)
{
    struct rondo_shm_name name = { .mode = RONDO_SHM_MODE_MEMFD, .pid = getpid(), .size = 4096 };
    int pipes[2];
    (void)state;
    assert_int_equal(pipe(pipes), 0);
    name.fd = pipes[0];
    refuse(&name, "other inode");
    close(pipes[0]);
    close(pipes[1]);
    name.fd = pipes[0];
    refuse(&name, "No such file");
    name.pid = -1;
    refuse(&name, "invalid record of shared memory");
}

static int open_as_nobody(void *arg) { return become_nobody() ? SKIPPED : rondo_shm_can_open(arg); }

static void another_user_cannot_open_a_segment(void **state)
{
    struct rondo_shm shm;
    (void)state;
    for (size_t m = 0; m < RONDO_COUNTOF(modes); m++) {
        int code;
        assert_int_equal(rondo_shm_create(&shm, 4096, modes[m]), RONDO_SUCCESS);
        code = in_child(open_as_nobody, &shm.name);
        rondo_shm_close(&shm);
        if (code == SKIPPED) {
            print_message("skipped: only root can become another user\n");
            skip();
        }
        assert_int_equal(code, 0);
    }
}

/* As user nobody: send the name of a segment, and keep the segment until the reader closes. */
static int create_as_nobody(enum rondo_shm_mode mode, int to, int until)
{
    struct rondo_shm shm;
    char end;
    if (become_nobody()) {
        return SKIPPED;
    }
    if (rondo_shm_create(&shm, 4096, mode) != RONDO_SUCCESS ||
        write(to, &shm.name, sizeof shm.name) != sizeof shm.name) {
        return 1;
    }
    (void)!read(until, &end, 1);
    rondo_shm_close(&shm);
    return 0;
}

/* Root can open any user's file, and must refuse it. @return the creator's exit code. */
static int refuse_nobodys(enum rondo_shm_mode mode)
{
    struct rondo_shm_name name;
    int there[2], back[2], status;
    pid_t child;
    assert_int_equal(pipe(there) | pipe(back), 0);
    child = fork();
    if (child == 0) {
        close(back[1]);
        _exit(create_as_nobody(mode, there[1], back[0]));
    }
    close(there[1]);
    close(back[0]);
    if (read(there[0], &name, sizeof name) == sizeof name) {
        refuse(&name, "another user");
    }
    close(there[0]);
    close(back[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_segment_of_another_user_is_refused(void **state)
{
    (void)state;
    for (size_t m = 0; m < RONDO_COUNTOF(modes); m++) {
        int code = refuse_nobodys(modes[m]);
        if (code == SKIPPED) {
            print_message("skipped: only root can become another user\n");
            skip();
        }
        assert_int_equal(code, 0);
    }
}

static void cycle(enum rondo_shm_mode mode, size_t size)
{
    struct rondo_shm shm, peer;
    struct rondo_shm_name name;
    assert_int_equal(rondo_shm_create(&shm, size, mode), RONDO_SUCCESS);
    name = shm.name;
    assert_int_equal(rondo_shm_open(&peer, &shm.name), RONDO_SUCCESS);
    assert_true(rondo_shm_can_open(&shm.name));
    rondo_shm_close(&peer);
    rondo_shm_close(&shm);
    rondo_shm_close(&shm);
    assert_false(mode == RONDO_SHM_MODE_FILE && file_exists(&name));
}

static void cycles_leak_no_descriptor_mapping_or_file(void **state)
{
    (void)state;
    for (size_t m = 0; m < RONDO_COUNTOF(modes); m++) {
        int fds = 0, maps = 0, threads = modes[m] == RONDO_SHM_MODE_SOCKET;
        for (int i = 0; i <= 40; i++) {
            cycle(modes[m], i % 2 == 0 ? 3 * MIB : 10000);
            if (i == 0) {
                fds = count_fds();
                maps = count_maps(threads);
            }
        }
        assert_int_equal(count_fds(), fds);
        assert_int_equal(count_maps(threads), maps);
    }
}

static void closing_a_zeroed_struct_closes_nothing(void **state)
{
    struct rondo_shm shm = { 0 };
    int fds = count_fds();
    (void)state;
    rondo_shm_close(&shm);
    assert_int_equal(count_fds(), fds);
    assert_int_not_equal(fcntl(0, F_GETFD), -1);
}

static int die_with_a_memfd(void *arg)
{
    struct rondo_shm shm;
    (void)arg;
    if (rondo_shm_create(&shm, 4 * MIB, RONDO_SHM_MODE_AUTO) == RONDO_SUCCESS &&
        rondo_shm_reserve(&shm, 0, shm.size) == RONDO_SUCCESS) {
        raise(SIGKILL);
    }
    return 1;
}

static int watch_a_death(void *arg)
{
    if (own_mounts_enter("/dev/shm") != 0) {
        return SKIPPED;
    }
    if (in_child(die_with_a_memfd, arg) != 128 + SIGKILL) {
        return 1;
    }
    return count_entries("/dev/shm", "") != 0;
}

static void a_killed_process_leaves_nothing(void **state)
{
    int code = in_child(watch_a_death, NULL);
    (void)state;
    if (code == SKIPPED) {
        print_message("skipped: no permission for a mount namespace with its own /dev/shm\n");
        skip();
    }
    assert_int_equal(code, 0);
}

/* Hosts may refuse memory that could be executed (sysctl vm.memfd_noexec). */
static void nobody_can_execute_a_segment(void **state)
{
    int probe = memfd_create("probe", 8u /* MFD_NOEXEC_SEAL */);
    struct rondo_shm shm;
    struct stat st;
    (void)state;
    if (probe < 0) {
        print_message("skipped: this kernel does not know of memfds that are not executable\n");
        skip();
    }
    close(probe);
    assert_int_equal(rondo_shm_create(&shm, MIB, RONDO_SHM_MODE_MEMFD), RONDO_SUCCESS);
    assert_int_equal(fstat(shm.fd, &st), 0);
    assert_int_equal(st.st_mode & 0111, 0);
    rondo_shm_close(&shm);
}

static void impossible_sizes_are_errors(void **state)
{
    struct rondo_shm shm = { .fd = -2 };
    (void)state;
    assert_int_equal(rondo_shm_create(&shm, 0, RONDO_SHM_MODE_AUTO), RONDO_INVALID_ARGUMENT);
    assert_int_equal(rondo_shm_create(&shm, SIZE_MAX, RONDO_SHM_MODE_AUTO), RONDO_INVALID_ARGUMENT);
    assert_int_equal(shm.fd, -2); /* untouched */
}

/* Under a limit on file sizes, growing a file would raise a signal. */
static int create_under_file_limit(void *arg)
{
    struct rlimit limit = { MIB, MIB };
    struct rondo_shm shm;
    (void)arg;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 ||
        rondo_shm_create(&shm, 2 * MIB, RONDO_SHM_MODE_AUTO) != RONDO_SYSTEM_ERROR) {
        return 1;
    }
    return !strstr(rondo_error_text(), "ulimit -f");
}

static int create_without_descriptors(void *arg)
{
    struct rlimit limit = { 3, 3 };
    struct rondo_shm shm;
    enum rondo_shm_mode mode = (enum rondo_shm_mode) * (int *)arg;
    while (dup(0) >= 0) {
        limit.rlim_cur++;
        limit.rlim_max++;
        if (limit.rlim_cur > 40) {
            break;
        }
    }
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || rondo_shm_create(&shm, MIB, mode) != RONDO_SYSTEM_ERROR) {
        return 1;
    }
    return !strstr(rondo_error_text(), "raise ulimit -n");
}

static void errors_name_the_process_limit_that_was_hit(void **state)
{
    (void)state;
    assert_int_equal(in_child(create_under_file_limit, NULL), 0);
    for (int mode = 0; mode < RONDO_NUM_SHM_MODES; mode++) {
        assert_int_equal(in_child(create_without_descriptors, &mode), 0);
    }
}

/* With a /dev/shm of 1 MiB, reserving more is an error, and touching reserved pages raises no SIGBUS. */
static int with_a_small_dev_shm(void *arg)
{
    struct rondo_shm shm;
    (void)arg;
    if (own_mounts_enter("/dev/shm") != 0) {
        return SKIPPED;
    }
    if (rondo_shm_create(&shm, 4 * MIB, RONDO_SHM_MODE_FILE) != RONDO_SUCCESS ||
        rondo_shm_reserve(&shm, 0, 400000) != RONDO_SUCCESS) {
        return 1;
    }
    memset(shm.base, 1, 400000);
    if (rondo_shm_reserve(&shm, 0, 4 * MIB) != RONDO_SYSTEM_ERROR) {
        return 2;
    }
    if (!strstr(rondo_error_text(), "cannot reserve 4.0 MiB of shared memory on host ") ||
        !strstr(rondo_error_text(), "(/dev/shm has 0.6 MiB free of 1.0 MiB); enlarge it")) {
        return 3;
    }
    rondo_shm_close(&shm);
    return count_entries("/dev/shm", "") == 0 ? 0 : 4;
}

static void a_full_dev_shm_is_an_error_with_needed_and_free(void **state)
{
    int code = in_child(with_a_small_dev_shm, NULL);
    (void)state;
    if (code == SKIPPED) {
        print_message("skipped: no permission for a mount namespace with its own /dev/shm\n");
        skip();
    }
    assert_int_equal(code, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_are_the_values_of_RONDO_SHM_MODE),
        cmocka_unit_test(a_peer_sees_the_creators_bytes),
        cmocka_unit_test(auto_is_a_memfd_where_available),
        cmocka_unit_test(nothing_is_reserved_before_reserve),
        cmocka_unit_test(a_file_is_private_and_disappears_when_unlinked),
        cmocka_unit_test(false_records_are_refused),
        cmocka_unit_test(malformed_names_are_refused),
        cmocka_unit_test(a_link_in_place_of_a_file_is_refused),
        cmocka_unit_test(a_descriptor_that_became_a_pipe_does_not_block),
        cmocka_unit_test(another_user_cannot_open_a_segment),
        cmocka_unit_test(a_segment_of_another_user_is_refused),
        cmocka_unit_test(cycles_leak_no_descriptor_mapping_or_file),
        cmocka_unit_test(closing_a_zeroed_struct_closes_nothing),
        cmocka_unit_test(a_killed_process_leaves_nothing),
        cmocka_unit_test(nobody_can_execute_a_segment),
        cmocka_unit_test(impossible_sizes_are_errors),
        cmocka_unit_test(errors_name_the_process_limit_that_was_hit),
        cmocka_unit_test(a_full_dev_shm_is_an_error_with_needed_and_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
