/* base/log.h: levels, subsystems, files, and lines that stay whole. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/log.h"
#include "base/param.h"

static char directory[] = "/tmp/unit_log.XXXXXX";
static char log_file[128];

static void configure(const char *level, const char *subsys, const char *file)
{
    setenv("RONDO_DEBUG", level, 1);
    setenv("RONDO_DEBUG_SUBSYS", subsys, 1);
    setenv("RONDO_DEBUG_FILE", file, 1);
    assert_int_equal(rondo_param_reload(), RONDO_SUCCESS);
}

/* In a child whose parameters are unread: what a call that fails early prints, with this level. */
static void print_early(const char *level, char *text, size_t size)
{
    int ends[2], status;
    ssize_t n;
    pid_t child;
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        setenv("RONDO_DEBUG", level, 1);
        dup2(ends[1], STDERR_FILENO);
        _exit(rondo_barrier(NULL, NULL) == RONDO_INVALID_ARGUMENT ? 0 : 1);
    }
    close(ends[1]);
    n = read(ends[0], text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    close(ends[0]);
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
}

/* Runs first: this process has not read its parameters. */
static void the_level_holds_from_the_first_line(void **state)
{
    char text[1024];
    (void)state;
    print_early("NONE", text, sizeof(text));
    assert_string_equal(text, "");
    print_early("WARN", text, sizeof(text));
    assert_non_null(strstr(text, "RONDO WARN rondo_barrier: the communicator is NULL"));
}

static int reset(void **state)
{
    (void)state;
    configure("TRACE", "ALL", ""); /* closes the file */
    unlink(log_file);
    configure("TRACE", "ALL", log_file);
    return 0;
}

static const char *logged(void)
{
    static char text[4 << 20];
    FILE *file = fopen(log_file, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) {
        fclose(file);
    }
    text[n] = '\0';
    return text;
}

/* Check the time at the start of a line against the C library's, and return what follows it. */
static const char *after_time(const char *line, time_t earliest)
{
    struct tm parts = { 0 };
    int ms = -1, n = 0;
    const char *rest = strptime(line, "%Y-%m-%dT%H:%M:%S", &parts);
    time_t when;
    assert_non_null(rest);
    assert_int_equal(sscanf(rest, ".%3dZ %n", &ms, &n), 1);
    assert_int_equal(n, 6);
    assert_in_range(ms, 0, 999);
    when = timegm(&parts);
    assert_in_range(when, earliest, time(NULL));
    return rest + n;
}

static void a_line_names_time_host_process_thread_rank_and_level(void **state)
{
    time_t before = time(NULL);
    const char *first, *second;
    char wanted[256];
    (void)state;
    rondo_log_set_rank(3);
    assert_int_equal(rondo_log_rank(), 3);
    errno = ENOENT;
    RONDO_INFO(RONDO_SUBSYS_NET, "port %d: %m\n", 7);
    assert_int_equal(errno, ENOENT);
    rondo_log_set_rank(-1);
    RONDO_TRACE(RONDO_SUBSYS_SHM, "mapped");
    first = after_time(logged(), before);
    snprintf(wanted, sizeof wanted, "%s:%d:%d [3] RONDO INFO port 7: No such file or directory\n",
             rondo_log_host(), getpid(), gettid());
    assert_memory_equal(first, wanted, strlen(wanted));
    second = after_time(first + strlen(wanted), before);
    snprintf(wanted, sizeof wanted, "%s:%d:%d RONDO TRACE mapped\n", rondo_log_host(), getpid(), gettid());
    assert_string_equal(second, wanted);
}

/* Runs last: the process keeps its rank. */
static void threads_without_a_rank_show_that_of_the_process(void **state)
{
    (void)state;
    rondo_log_set_process_rank(2, 4);
    rondo_log_set_process_rank(0, 2); /* of a part of the ranks */
    RONDO_WARN("first");
    rondo_log_set_rank(3);
    RONDO_WARN("second");
    rondo_log_set_rank(-1);
    assert_int_equal(rondo_log_rank(), -1);
    assert_non_null(strstr(logged(), " [2] RONDO WARN first\n"));
    assert_non_null(strstr(logged(), " [3] RONDO WARN second\n"));
    rondo_log_set_process_rank(1, 4); /* of a second rank in this process */
    RONDO_WARN("third");
    assert_null(strstr(logged(), "] RONDO WARN third\n"));
}

static int evaluated;
static int evaluate(void) { return ++evaluated; }

static void disabled_lines_are_neither_printed_nor_evaluated(void **state)
{
    (void)state;
    configure("INFO", "NET,COLL", log_file);
    RONDO_INFO(RONDO_SUBSYS_INIT, "init %d", evaluate());
    RONDO_TRACE(RONDO_SUBSYS_NET, "trace %d", evaluate());
    assert_int_equal(evaluated, 0);
    RONDO_INFO(RONDO_SUBSYS_INIT | RONDO_SUBSYS_NET, "both");
    RONDO_WARN("warnings have no subsystem");
    assert_non_null(strstr(logged(), "RONDO INFO both\n"));
    assert_non_null(strstr(logged(), "RONDO WARN warnings"));
    configure("NONE", "ALL", log_file);
    RONDO_WARN("never %d", evaluate());
    assert_int_equal(evaluated, 0);
}

static void subsystems_add_remove_and_invert(void **state)
{
    static const struct {
        const char *text;
        uint32_t mask;
        int unknown;
    } cases[] = {
        { "", 0, 0 },
        { "ALL", RONDO_SUBSYS_ALL, 0 },
        { "init,Net", RONDO_SUBSYS_INIT | RONDO_SUBSYS_NET, 0 },
        { "^COLL", RONDO_SUBSYS_ALL & ~RONDO_SUBSYS_COLL, 0 },
        { "^COLL,NET", RONDO_SUBSYS_ALL & ~(RONDO_SUBSYS_COLL | RONDO_SUBSYS_NET), 0 },
        { "ALL,^NET", RONDO_SUBSYS_ALL & ~RONDO_SUBSYS_NET, 0 },
        { "INIT,NVLS,COL", RONDO_SUBSYS_INIT, 2 },
        { ",,INIT,,", RONDO_SUBSYS_INIT, 0 },
        { "^", RONDO_SUBSYS_ALL, 0 },
    };
    (void)state;
    for (size_t i = 0; i < RONDO_COUNTOF(cases); i++) {
        int unknown = -1;
        if (rondo_log_parse_subsys(cases[i].text, &unknown) != cases[i].mask || unknown != cases[i].unknown) {
            fail_msg("subsystems \"%s\": %x, %d unknown", cases[i].text,
                     rondo_log_parse_subsys(cases[i].text, &unknown), unknown);
        }
    }
}

static void file_names_expand_host_and_pid_and_files_are_private(void **state)
{
    char pattern[128], path[256];
    struct stat st;
    mode_t mask = umask(0);
    (void)state;
    snprintf(pattern, sizeof pattern, "%s/%%h.%%p.%%%%.%%x", directory);
    snprintf(path, sizeof path, "%s/%s.%d.%%.%%x", directory, rondo_log_host(), getpid());
    configure("WARN", "ALL", pattern);
    umask(mask);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    unlink(path);
}

static void links_and_pipes_are_refused_and_logging_continues(void **state)
{
    char link_path[128], fifo_path[128];
    (void)state;
    snprintf(link_path, sizeof link_path, "%s/link", directory);
    snprintf(fifo_path, sizeof fifo_path, "%s/fifo", directory);
    assert_int_equal(symlink("/etc/passwd", link_path), 0);
    assert_int_equal(mkfifo(fifo_path, 0600), 0);
    configure("WARN", "ALL", link_path);
    assert_non_null(strstr(logged(), "symbolic links are not followed"));
    configure("WARN", "ALL", fifo_path); /* no reader: must not wait for one */
    assert_non_null(strstr(logged(), "fifo: No such device"));
    unlink(link_path);
    unlink(fifo_path);
}

static void text_cannot_forge_lines_and_long_ones_are_cut(void **state)
{
    static char huge[100000];
    const char *text;
    RONDO_WARN("peer says %s", "hi\nhost:1:1 RONDO WARN forged\x1b[2J\r");
    text = logged();
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_null(strchr(text, '\x1b'));
    memset(huge, 'x', sizeof huge - 1);
    reset(state);
    RONDO_WARN("%s", huge);
    text = logged();
    assert_int_equal(strlen(text), 4096);
    assert_string_equal(text + 4096 - 5, "x...\n");
}

enum { WRITERS = 4, LINES = 300 };

static void *write_lines(void *arg)
{
    int writer = (int)(intptr_t)arg;
    char body[400];
    memset(body, 'a' + writer, sizeof body - 1);
    body[sizeof body - 1] = '\0';
    rondo_log_set_rank(writer);
    for (int i = 0; i < LINES; i++) {
        RONDO_INFO(RONDO_SUBSYS_INIT, "%s %d end", body, i);
    }
    return NULL;
}

static void write_threads(int first)
{
    pthread_t threads[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        pthread_create(&threads[i], NULL, write_lines, (void *)(intptr_t)(first + i));
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* Two processes of four threads write one file: no line is torn or lost, and each writer's are in order. */
static void lines_of_threads_and_processes_stay_whole(void **state)
{
    int next[2 * WRITERS] = { 0 }, lines = 0, status;
    char *text, *line, *more;
    pid_t child = fork();
    (void)state;
    if (child == 0) { /* has its own descriptor and file position */
        configure("TRACE", "ALL", "");
        configure("TRACE", "ALL", log_file);
        write_threads(WRITERS);
        _exit(0);
    }
    write_threads(0);
    assert_int_equal(waitpid(child, &status, 0), child);
    text = strdup(logged());
    for (line = strtok_r(text, "\n", &more); line; line = strtok_r(NULL, "\n", &more), lines++) {
        char body[512], end[8];
        int writer, number;
        char *rank = strchr(line, '[');
        assert_non_null(rank);
        assert_int_equal(sscanf(rank, "[%d] RONDO INFO %511s %d %7s", &writer, body, &number, end), 4);
        assert_in_range(writer, 0, 2 * WRITERS - 1);
        assert_int_equal(number, next[writer]++);
        assert_string_equal(end, "end");
        assert_int_equal(strlen(body), 399);
        for (const char *at = body; *at; at++) {
            assert_int_equal(*at, 'a' + writer);
        }
    }
    assert_int_equal(lines, 2 * WRITERS * LINES);
    free(text);
}

static int make_directory(void **state)
{
    (void)state;
    clearenv();
    snprintf(log_file, sizeof log_file, "%s/log", mkdtemp(directory) ? directory : "");
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    unlink(log_file);
    return rmdir(directory);
}

#define TEST(name) cmocka_unit_test_setup(name, reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_level_holds_from_the_first_line),
        TEST(a_line_names_time_host_process_thread_rank_and_level),
        TEST(disabled_lines_are_neither_printed_nor_evaluated),
        TEST(subsystems_add_remove_and_invert),
        TEST(file_names_expand_host_and_pid_and_files_are_private),
        TEST(links_and_pipes_are_refused_and_logging_continues),
        TEST(text_cannot_forge_lines_and_long_ones_are_cut),
        TEST(lines_of_threads_and_processes_stay_whole),
        TEST(threads_without_a_rank_show_that_of_the_process),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
