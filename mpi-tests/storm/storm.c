/* The sequence of random steps; see storm.h. */
#include "storm.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "holdings.h"

enum { ROUND = 200, LAST_EPOCH = 100 }; /* steps */

struct storm storm = { .seed = 1,
                       .limit_ms = 5000,
                       .dead_after_ms = 2000,
                       .watchdog_s = 60,
                       .most = SIZE_MAX,
                       .signals = STORM_KILL | STORM_STOP };

uint64_t storm_draw(uint64_t salt) { return test_hash(storm.key, salt, 0); }
uint64_t storm_draw_of(uint64_t salt, int of) { return test_hash(storm.key, salt, 1 + (uint64_t)of); }

void storm_says(const char *fmt, ...)
{
    va_list args;
    int n = snprintf(storm.what, sizeof(storm.what),
                     "seed %llu, epoch %d, step %ld: ", (unsigned long long)storm.seed, storm.epoch,
                     storm.step);
    va_start(args, fmt);
    vsnprintf(storm.what + n, sizeof(storm.what) - (size_t)n, fmt, args);
    va_end(args);
    if (storm.verbose > 1) {
        test_say("%s", storm.what);
    }
}

static const struct {
    rondo_status (*run)(void);
    int weight; /* per cent */
} steps[] = { { storm_call, 36 },  { storm_batch, 20 },  { storm_messages, 12 }, { storm_barrier, 4 },
              { storm_misuse, 3 }, { storm_memory, 2 },  { storm_create, 4 },    { storm_split, 8 },
              { storm_shrink, 4 }, { storm_destroy, 5 }, { storm_abort, 2 } };

/* Ranks are early or late, each in its own way. */
static void dawdle(void)
{
    uint64_t hash = test_hash(storm.key, 77, (uint64_t)test.rank);
    if (hash % 150 == 0) {
        usleep((useconds_t)(hash >> 16) % 30000);
    } else if (hash % 6 == 0) {
        usleep((useconds_t)(hash >> 16) % 1500);
    }
}

static void begin_step(void)
{
    storm.step++;
    storm.key = test_hash(storm.seed, (uint64_t)storm.epoch, (uint64_t)storm.step);
    storm.step_began = test_now();
    test_watchdog((int)storm.watchdog_s);
}

static rondo_status one_step(void)
{
    int at;
    begin_step();
    at = (int)(storm_draw(0) % 100);
    dawdle();
    for (size_t i = 0;; i++) {
        at -= steps[i].weight;
        if (at < 0) {
            return steps[i].run();
        }
    }
}

/* ---- without deaths: rounds, each with a new world ---- */

/* All ranks end a round alike, with communicators that have failed as well. */
static int go_on(long rounds, double begin)
{
    int more = storm.steps > 0 ? rounds * ROUND < storm.steps : test_now() - begin < (double)storm.seconds;
    MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return more;
}

/* Has the creation of the world the same status on all ranks? */
static void compare_status(rondo_status status)
{
    int mine[2] = { (int)status, -(int)status }, most[2];
    MPI_Allreduce(mine, most, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    test_check(most[0] == -most[1], "creation: %d here, %d elsewhere", (int)status,
               most[0] == (int)status ? -most[1] : most[0]);
}

/* With RONDO_SHM_MODE=socket, the first communicator that reaches the memory of rondo_mem_alloc starts a
 * thread with three descriptors, which lives as long as the process. That may happen in any round, once. */
static int heap_is_served(const struct holdings *before, const struct holdings *now)
{
    const char *mode = getenv("RONDO_SHM_MODE");
    return mode != NULL && strcmp(mode, "socket") == 0 && now->threads == before->threads + 1 &&
           now->fds <= before->fds + 3;
}

static void run_rounds(void)
{
    struct holdings first = { 0 }, now;
    int served = 0;
    double begin = test_now();
    for (long round = 0; go_on(round, begin); round++) {
        begin_step();
        storm_world();
        if (storm.scarce) {
            compare_status(storm_is_in(&storm.slot[0]) ? RONDO_SUCCESS : RONDO_SYSTEM_ERROR);
        }
        for (int i = 0; i < ROUND && (storm.steps == 0 || storm.step < storm.steps); i++) {
            one_step();
        }
        storm_destroy_all();
        MPI_Barrier(MPI_COMM_WORLD);
        now = holdings_now();
        if (round == 0 || (!served && heap_is_served(&first, &now))) {
            served = round > 0;
            first = now;
        }
        test_check(storm.scarce || (now.fds <= first.fds && now.threads <= first.threads),
                   "%d files and %d threads after the first round, %d and %d after round %ld", first.fds,
                   first.threads, now.fds, now.threads, round);
    }
    storm_mpi_end();
}

/* ---- with deaths: an epoch ends with one, the last one after some steps ---- */

static rondo_status play(void)
{
    double begin = test_now(), late = 30 + 6e-3 * (double)(storm.limit_ms + storm.dead_after_ms);
    rondo_status status = RONDO_SUCCESS;
    for (int i = 0; status == RONDO_SUCCESS && (storm.nvictims > 0 || i < LAST_EPOCH); i++) {
        status = one_step();
        if (storm.nvictims > 0 && test_now() - begin > late) {
            test_die("the death of rank %d is not noticed", storm.victim[0]);
        }
    }
    return status;
}

static void run_deaths(void)
{
    rondo_status status;
    storm_board_open();
    begin_step();
    storm_world();
    do {
        begin_step();
        storm_aim();
        status = play();
        if (status != RONDO_SUCCESS) {
            storm_recover();
        }
    } while (status != RONDO_SUCCESS);
    storm_destroy_all();
    storm_says("the end");
    test_say(
        "storm: rank %d is done, %ld steps, %d deaths, the latest news after %.0f ms, %lu cases, %lu failed",
        test.rank, storm.step, storm.known, 1e3 * storm.worst, test.cases, test.failed);
    fflush(stdout);
    if (storm.known > 0) { /* MPI cannot be finalized after a death */
        _exit(test.failed == 0 ? 0 : 1);
    }
}

static int usage(int status)
{
    fprintf(
        status == 0 ? stdout : stderr,
        "usage: mpirun -n RANKS mpi_storm [OPTION]...\n"
        "\n"
        "Make random calls on random communicators, and check every result.\n"
        "\n"
        "  --seed N         of the random choices (default: 1)\n"
        "  --seconds S      end after this long (default: 10)\n"
        "  --steps N        or after so many steps\n"
        "  --deaths N       so many ranks die or stop, one or two at a time; the others go on without them\n"
        "  --kill           they only die\n"
        "  --stop           they only stop; set RONDO_DEAD_AFTER, too\n"
        "  --dead-after MS  what that is set to (default: 2000)\n"
        "  --limit MS       the others must know of it after this long (default: 5000)\n"
        "  --scarce         memory or files may run out: that ends communicators and nothing else\n"
        "  --most BYTES     limit a rank's block\n"
        "  --timeout S      give up when a step takes longer (default: 60)\n"
        "  --thread LEVEL   level of MPI's threads, 0 to 3 (default: 0)\n"
        "  --verbose        print errors that belong to it; twice: and every step\n"
        "  --help           show this help and exit\n");
    return status;
}

static int thread_level;

static int parse_one(int opt, const char *text)
{
    long seed = 1;
    switch (opt) {
    case 's': return test_parse_long(text, 0, 1L << 62, &seed) && (storm.seed = (uint64_t)seed, 1);
    case 't': return test_parse_long(text, 1, 1000000, &storm.seconds);
    case 'n': return test_parse_long(text, 1, 1L << 40, &storm.steps);
    case 'd': return test_parse_long(text, 1, STORM_RANKS - 1, &storm.deaths);
    case 'k': storm.signals = STORM_KILL; return 1;
    case 'p': storm.signals = STORM_STOP; return 1;
    case 'a': return test_parse_long(text, 1, 1000000, &storm.dead_after_ms);
    case 'l': return test_parse_long(text, 1, 1000000, &storm.limit_ms);
    case 'c': storm.scarce = 1; return 1;
    case 'b': return test_parse_size(text, &storm.most) && storm.most >= 64;
    case 'w': return test_parse_long(text, 1, 1000000, &storm.watchdog_s);
    case 'v': storm.verbose++; return 1;
    case 'm': thread_level = atoi(text); return thread_level >= 0 && thread_level <= 3;
    default: return 0;
    }
}

int main(int argc, char **argv)
{
    static const struct option rows[] = {
        { "seed", 1, NULL, 's' },       { "seconds", 1, NULL, 't' }, { "steps", 1, NULL, 'n' },
        { "deaths", 1, NULL, 'd' },     { "kill", 0, NULL, 'k' },    { "stop", 0, NULL, 'p' },
        { "dead-after", 1, NULL, 'a' }, { "limit", 1, NULL, 'l' },   { "scarce", 0, NULL, 'c' },
        { "most", 1, NULL, 'b' },       { "timeout", 1, NULL, 'w' }, { "thread", 1, NULL, 'm' },
        { "verbose", 0, NULL, 'v' },    { "help", 0, NULL, 'h' },    { NULL, 0, NULL, 0 }
    };
    static const int levels[] = { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED,
                                  MPI_THREAD_MULTIPLE };
    int opt;
    storm.seconds = 10;
    while ((opt = getopt_long(argc, argv, "h", rows, NULL)) != -1) {
        if (opt == 'h') {
            return usage(0);
        }
        if (!parse_one(opt, optarg)) {
            return usage(2);
        }
    }
    if (optind < argc) {
        return usage(2);
    }
    test_init("mpi_storm", levels[thread_level]);
    storm.multiple = thread_level == 3;
    if (test.nranks > STORM_RANKS) {
        test_die("%d ranks: expected at most %d", test.nranks, STORM_RANKS);
    }
    test.what = storm.what;
    storm_says("start");
    storm_mpi_begin();
    for (int i = 0; i < STORM_STREAMS; i++) {
        TEST_MUST(rondo_stream_create(&storm.stream[i]), NULL);
    }
    if (test.rank == 0) {
        printf("mpi_storm: %d ranks, seed %llu\n", test.nranks, (unsigned long long)storm.seed);
    }
    if (storm.deaths > 0) {
        run_deaths();
    } else {
        run_rounds();
    }
    for (int i = 0; i < STORM_STREAMS; i++) {
        TEST_MUST(rondo_stream_destroy(storm.stream[i]), NULL);
    }
    if (test.rank == 0) {
        printf("mpi_storm: %ld steps, %ld refusals\n", storm.step, storm.refusals);
    }
    test_values_clear();
    return test_finish();
}
