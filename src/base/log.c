#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>
#include "base/param.h"

enum { LOG_LINE = 4096 }; /* PIPE_BUF: a pipe (mpirun's) takes such a line whole */

#define NAME_ROW(ctx, NAME) #NAME,
static const char *const level_names[] = { RONDO_PARAM_NAMES(RONDO_DEBUG_VALUES) };
static const char *const subsys_names[] = { RONDO_LOG_SUBSYS_TABLE(NAME_ROW, ) };

uint32_t rondo_log_mask = RONDO_LOG_WARN;

static _Thread_local int thread_rank = -1;
static int log_fd = STDERR_FILENO;
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static int ready;                  /* the parameters of the log have been read; atomic */
static char file_in_use[PATH_MAX]; /* under init_lock: the path that log_fd was opened with; "": stderr */

static char host_name[RONDO_HOST_LEN];
static pthread_once_t host_once = PTHREAD_ONCE_INIT;

static void host_read(void)
{
    if (gethostname(host_name, sizeof host_name - 1) != 0 && errno != ENAMETOOLONG) {
        snprintf(host_name, sizeof host_name, "unknown-host");
    }
    /* The name becomes a part of file names and log lines. */
    for (char *at = host_name; *at; at++) {
        if (*at == '/' || *at <= ' ' || *at >= 0x7f) {
            *at = '_';
        }
    }
}

const char *rondo_log_host(void)
{
    pthread_once(&host_once, host_read);
    return host_name;
}

void rondo_log_set_rank(int rank) { thread_rank = rank; }

int rondo_log_rank(void) { return thread_rank; }

/* Rank and size of the process's first communicator, in one word; atomic. NO_RANK: none yet; SEVERAL_RANKS:
 * the process has more than one rank, so that none is its own. */
static const uint64_t NO_RANK = UINT64_MAX, SEVERAL_RANKS = UINT64_MAX - 1;
static uint64_t process_rank = UINT64_MAX;

void rondo_log_set_process_rank(int rank, int nranks)
{
    uint64_t mine = (uint64_t)(uint32_t)nranks << 32 | (uint32_t)rank, first = NO_RANK;
    if (__atomic_compare_exchange_n(&process_rank, &first, mine, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
        first == mine || first >> 32 != mine >> 32) {
        return;
    }
    __atomic_store_n(&process_rank, SEVERAL_RANKS, __ATOMIC_RELAXED);
}

/* The thread's rank, else the process's; -1: neither. */
static int rank_shown(void)
{
    uint64_t process = __atomic_load_n(&process_rank, __ATOMIC_RELAXED);
    if (thread_rank >= 0) {
        return thread_rank;
    }
    return process == NO_RANK || process == SEVERAL_RANKS ? -1 : (int)(uint32_t)process;
}

static uint32_t subsys_bit(const char *name, size_t length)
{
    if (length == 3 && strncasecmp(name, "ALL", 3) == 0) {
        return RONDO_SUBSYS_ALL;
    }
    for (size_t i = 0; i < RONDO_COUNTOF(subsys_names); i++) {
        if (strlen(subsys_names[i]) == length && strncasecmp(name, subsys_names[i], length) == 0) {
            return 1u << i;
        }
    }
    return 0;
}

uint32_t rondo_log_parse_subsys(const char *text, int *unknown)
{
    /* As in NCCL, a leading ^ applies to the whole list, which then removes from ALL. */
    int remove_all = text[0] == '^';
    uint32_t mask = remove_all ? RONDO_SUBSYS_ALL : 0;
    *unknown = 0;
    while (*text) {
        size_t length = strcspn(text, ",");
        int remove = remove_all || *text == '^';
        size_t caret = *text == '^';
        uint32_t bit = subsys_bit(text + caret, length - caret);
        mask = remove ? mask & ~bit : mask | bit;
        *unknown += bit == 0 && length > caret;
        text += length + (text[length] == ',');
    }
    return mask;
}

int rondo_log_path(const char *pattern, char *path, size_t size)
{
    size_t used = 0;
    for (; *pattern; pattern++) {
        int n;
        if (pattern[0] == '%' && pattern[1] == 'h') {
            n = snprintf(path + used, size - used, "%s", rondo_log_host());
        } else if (pattern[0] == '%' && pattern[1] == 'p') {
            n = snprintf(path + used, size - used, "%d", (int)getpid());
        } else {
            n = snprintf(path + used, size - used, "%c", *pattern);
        }
        pattern += pattern[0] == '%' && pattern[1] != '\0' && strchr("hp%", pattern[1]);
        used += (size_t)n;
        if (used >= size) {
            return -1;
        }
    }
    path[used] = '\0';
    return 0;
}

/* With O_NONBLOCK, a pipe without a reader is an error instead of a wait. */
int rondo_log_file(const char *path, int how)
{
    int fd = open(path, O_WRONLY | how | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd >= 0) {
        int flags = fcntl(fd, F_GETFL);
        fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    }
    return fd;
}

static void file_apply(const char *pattern)
{
    char path[PATH_MAX] = "";
    int fd = STDERR_FILENO, old;
    if (rondo_log_path(pattern, path, sizeof path) != 0) {
        RONDO_WARN("RONDO_DEBUG_FILE: the path is longer than %d bytes; logging to stderr", PATH_MAX - 1);
        path[0] = '\0';
    }
    if (strcmp(path, file_in_use) == 0) {
        return;
    }
    if (strcmp(path, "/dev/stdout") == 0) {
        fd = STDOUT_FILENO;
    } else if (path[0] != '\0' && strcmp(path, "/dev/stderr") != 0) {
        fd = rondo_log_file(path, O_APPEND);
        if (fd < 0) {
            RONDO_WARN("RONDO_DEBUG_FILE: cannot open %.256s: %s; logging continues as before", path,
                       errno == ELOOP ? "symbolic links are not followed" : strerror(errno));
            return;
        }
    }
    snprintf(file_in_use, sizeof file_in_use, "%s", path);
    old = __atomic_exchange_n(&log_fd, fd, __ATOMIC_ACQ_REL);
    if (old > STDERR_FILENO) {
        close(old);
    }
}

void rondo_log_init(void)
{
    const struct rondo_params *params = rondo_params();
    int unknown;
    uint32_t mask = rondo_log_parse_subsys(params->debug_subsys, &unknown) << 8 | (uint32_t)params->debug;
    pthread_mutex_lock(&init_lock);
    __atomic_store_n(&rondo_log_mask, mask, __ATOMIC_RELAXED);
    __atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
    file_apply(params->debug_file);
    pthread_mutex_unlock(&init_lock);
}

int rondo_log_shows_warnings(void)
{
    return rondo_log_on(RONDO_LOG_WARN, 0) && __atomic_load_n(&log_fd, __ATOMIC_ACQUIRE) <= STDERR_FILENO;
}

/* A call may fail before it needs a parameter: its sentence, too, goes where the parameters say. */
static int is_on_after_all(enum rondo_log_level level)
{
    if (__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) {
        return 1;
    }
    (void)rondo_params(); /* calls rondo_log_init */
    return rondo_log_on(level, RONDO_SUBSYS_ALL);
}

/* Use one write(2), unless the descriptor accepts less. A line that cannot be written is lost. */
static void line_write(const char *line, size_t bytes)
{
    int fd = __atomic_load_n(&log_fd, __ATOMIC_ACQUIRE);
    while (bytes > 0) {
        ssize_t done = write(fd, line, bytes);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return;
        }
        line += done;
        bytes -= (size_t)done;
    }
}

enum { STAMP = 32 };

/* "2026-11-24T14:37:42.123Z". UTC, so that the lines of all hosts sort; and by hand, because the C library's
 * functions take a lock that a thread may have held when it forked this process. */
static void stamp(char text[STAMP])
{
    struct timespec now = { 0 };
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t seconds = now.tv_sec, day = seconds / 86400, second = seconds % 86400;
    /* Days since 1 March of year 0, in periods of 400 years; a year that begins in March ends with the leap
     * day. */
    int64_t days = day + 719468, period = days / 146097, of_period = days % 146097;
    int64_t year = (of_period - of_period / 1460 + of_period / 36524 - of_period / 146096) / 365;
    int64_t of_year = of_period - (365 * year + year / 4 - year / 100), month = (5 * of_year + 2) / 153;
    snprintf(text, STAMP, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ",
             (int)(year + 400 * period + (month >= 10)) % 10000,
             (int)(month < 10 ? month + 3 : month - 9) % 100,
             (int)(of_year - (153 * month + 2) / 5 + 1) % 100, (int)(second / 3600) % 100,
             (int)(second / 60 % 60), (int)(second % 60), (int)(now.tv_nsec / 1000000) % 1000);
}

void rondo_log_print(enum rondo_log_level level, const char *fmt, ...)
{
    char line[LOG_LINE], rank[16] = "", when[STAMP];
    int saved = errno;
    size_t used, start;
    va_list args;

    if (!is_on_after_all(level)) {
        errno = saved;
        return;
    }
    if (rank_shown() >= 0) {
        snprintf(rank, sizeof rank, " [%d]", rank_shown());
    }
    stamp(when);
    used = start = (size_t)snprintf(line, sizeof line, "%s %s:%d:%d%s RONDO %s ", when, rondo_log_host(),
                                    (int)getpid(), (int)gettid(), rank, level_names[level]);
    errno = saved; /* for %m */
    va_start(args, fmt);
    used += (size_t)vsnprintf(line + used, sizeof line - used, fmt, args);
    va_end(args);
    if (used >= sizeof line) {
        used = sizeof line - 1;
        memcpy(line + used - 3, "...", 3);
    }
    /* Text from a peer or a file must not start a new line. */
    for (size_t i = start; i < used; i++) {
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f) {
            line[i] = ' ';
        }
    }
    while (used > start && line[used - 1] == ' ') {
        used--;
    }
    line[used++] = '\n';
    line_write(line, used);
    errno = saved;
}
