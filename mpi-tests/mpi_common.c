#include "mpi_common.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct test_env test = { .program = "test", .rank = -1, .nranks = 0, .what = "start" };

#define GUARD 64

void test_init_plain(const char *program)
{
    test.program = program;
    setvbuf(stdout, NULL, _IOLBF, 0);
}

void test_init(const char *program, int thread_level)
{
    int given;
    test_init_plain(program);
    if (MPI_Init_thread(NULL, NULL, thread_level, &given) != MPI_SUCCESS) {
        test_die("MPI_Init_thread failed");
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &test.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &test.nranks);
    if (given < thread_level) {
        test_die("MPI provides thread level %d, expected %d", given, thread_level);
    }
    if (test.nranks > TEST_MAX_RANKS) {
        test_die("%d ranks: expected at most %d", test.nranks, TEST_MAX_RANKS);
    }
}

int test_finish_plain(void)
{
    test_watchdog(0);
    if (test.rank <= 0) {
        printf("%s: %lu cases, %lu failed\n", test.program, test.cases, test.failed);
        fflush(stdout);
    }
    return test.failed == 0 ? 0 : 1;
}

int test_finish(void)
{
    unsigned long failed = 0;
    test.what = "finish";
    MPI_Allreduce(&test.failed, &failed, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (test.rank == 0) {
        printf("%s: %lu cases, %lu failed\n", test.program, test.cases, failed);
        fflush(stdout);
    }
    MPI_Finalize();
    test_watchdog(0);
    return failed == 0 ? 0 : 1;
}

static void watchdog_bark(int sig)
{
    char line[512];
    int len = snprintf(line, sizeof(line), "%s: rank %d: no progress, stuck in: %s\n", test.program,
                       test.rank, test.what);
    (void)sig;
    if (len > 0 &&
        write(STDERR_FILENO, line, (size_t)len < sizeof(line) ? (size_t)len : sizeof(line) - 1) < 0) {
        _exit(5);
    }
    _exit(4);
}

void test_watchdog(int seconds)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = watchdog_bark;
    sigaction(SIGALRM, &action, NULL);
    alarm((unsigned)seconds);
}

static void say(const char *prefix, const char *fmt, va_list args)
{
    char text[1536], line[2048];
    int len;
    vsnprintf(text, sizeof(text), fmt, args);
    len = snprintf(line, sizeof(line), "%s: rank %d: %s%s\n", test.program, test.rank, prefix, text);
    fflush(stdout);
    if (write(STDERR_FILENO, line, (size_t)len < sizeof(line) ? (size_t)len : sizeof(line) - 1) < 0) {
        abort();
    }
}

void test_say(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say("", fmt, args);
    va_end(args);
}

void test_die(const char *fmt, ...)
{
    va_list args;
    int mpi = 0, ended = 0;
    va_start(args, fmt);
    say("FAIL ", fmt, args);
    va_end(args);
    MPI_Initialized(&mpi);
    MPI_Finalized(&ended);
    if (mpi && !ended) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    _exit(1);
}

int test_check(int ok, const char *fmt, ...)
{
    __atomic_add_fetch(&test.cases, 1, __ATOMIC_RELAXED); /* ranks may be threads */
    if (!ok) {
        char prefix[256];
        va_list args;
        __atomic_add_fetch(&test.failed, 1, __ATOMIC_RELAXED);
        snprintf(prefix, sizeof(prefix), "FAIL %s: ", test.what);
        va_start(args, fmt);
        say(prefix, fmt, args);
        va_end(args);
    }
    return ok;
}

void test_folder_make(char *path, size_t bytes)
{
    const char *root = getenv("TMPDIR");
    int n = snprintf(path, bytes, "%s/rondo-test-XXXXXX", root != NULL && root[0] != '\0' ? root : "/tmp");
    if (n < 0 || (size_t)n >= bytes || mkdtemp(path) == NULL) {
        test_die("cannot make a folder %s", path);
    }
}

double test_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int test_are_punctual(double start, int but, double deadline, double longest)
{
    double mine[2] = { start, test_now() }, all[TEST_MAX_RANKS][2], first = 0, last = 0, took = 0;
    MPI_Allgather(mine, 2, MPI_DOUBLE, all, 2, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int r = 0; r < test.nranks; r++) {
        if (r != but) {
            first = first == 0 || all[r][0] < first ? all[r][0] : first;
            last = all[r][0] > last ? all[r][0] : last;
            took = all[r][1] - all[r][0] > took ? all[r][1] - all[r][0] : took;
        }
    }
    return last - first < 0.25 * deadline && took < longest;
}

int test_compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

uint64_t test_hash(uint64_t a, uint64_t b, uint64_t c) { return mix(mix(mix(a) ^ b) ^ c); }

static unsigned char guard_byte(size_t i) { return (unsigned char)(0xa5 ^ (i * 29)); }

void *test_guard_alloc(size_t bytes)
{
    unsigned char *mem = malloc(bytes + 2 * GUARD);
    if (mem == NULL) {
        test_die("no memory for %zu bytes", bytes);
    }
    for (size_t i = 0; i < bytes + 2 * GUARD; i++) {
        mem[i] = guard_byte(i);
    }
    return mem + GUARD;
}

static int guard_range_intact(const unsigned char *mem, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if (mem[i] != guard_byte(i)) {
            return 0;
        }
    }
    return 1;
}

int test_guard_intact(const void *mem, size_t bytes)
{
    const unsigned char *base = (const unsigned char *)mem - GUARD;
    return guard_range_intact(base, 0, GUARD) && guard_range_intact(base, GUARD + bytes, 2 * GUARD + bytes);
}

int test_guard_untouched(const void *mem, size_t bytes)
{
    return guard_range_intact((const unsigned char *)mem - GUARD, 0, 2 * GUARD + bytes);
}

void test_guard_free(void *mem)
{
    if (mem != NULL) {
        free((unsigned char *)mem - GUARD);
    }
}

int test_parse_size(const char *text, size_t *out)
{
    static const char units[] = "KMG";
    char *end;
    unsigned long long value;
    int shift = 0;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (end == text || errno != 0 || *text < '0' || *text > '9') {
        return 0;
    }
    if (*end != '\0') {
        const char *unit = strchr(units, *end & ~0x20);
        if (unit == NULL || *unit == '\0' || (end[1] != '\0' && (end[1] & ~0x20) != 'B')) {
            return 0;
        }
        shift = 10 * (int)(unit - units + 1);
    }
    if (value > SIZE_MAX >> shift) {
        return 0;
    }
    *out = (size_t)value << shift;
    return 1;
}

int test_parse_long(const char *text, long min, long max, long *out)
{
    char *end;
    long value;
    errno = 0;
    value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < min || value > max) {
        return 0;
    }
    *out = value;
    return 1;
}

rondo_status test_wait_error(rondo_comm *comm, double seconds)
{
    double end = test_now() + seconds;
    for (;;) {
        rondo_status error = RONDO_SUCCESS;
        rondo_status status = rondo_comm_async_error(comm, &error);
        if (status != RONDO_SUCCESS) {
            return status;
        }
        if (error != RONDO_SUCCESS || test_now() > end) {
            return error;
        }
        usleep(1000);
    }
}

int test_names_rank(const char *text, int rank)
{
    const char *list = strstr(text, "answer: rank ");
    char name[32];
    if (list != NULL) {
        char *end;
        long first = strtol(list + strlen("answer: rank "), &end, 10);
        return first == rank && end[strcspn(end, ",:")] == ':'; /* a host's name has no comma and no colon */
    }
    snprintf(name, sizeof(name), "rank %d ", rank);
    return strstr(text, name) != NULL;
}
