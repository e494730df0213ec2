/* mpi_random: see mpi_random.h. */
#include "mpi_random.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mpi_common.h"

static struct {
    long seed, count, seconds, threads, timeout, verbose, persistent;
    const char *digests;
} args = { .seed = 1, .count = 50, .timeout = 60 };
static FILE *digests;

static char texts[MOST_THREADS][RUN_TEXT];
static struct run runs[MOST_THREADS];
static MPI_Comm worlds[MOST_THREADS], selves[MOST_THREADS];

static void usage(void)
{
    fprintf(
        stderr,
        "usage: mpi_random [--seed N] [--count N] [--seconds N] [--threads N] [--timeout N] [--persistent]\n"
        "                   [--digests FILE] [--verbose]\n"
        "  --seed N      the first program's seed (default: 1); each program takes the next one\n"
        "  --count N     number of programs (default: 50)\n"
        "  --seconds N   begin no program after so many seconds\n"
        "  --threads N   so many programs at once, with MPI_THREAD_MULTIPLE, on communicators of their own\n"
        "  --timeout N   a program that takes more seconds hangs (default: 60)\n"
        "  --persistent  also persistent collectives (MPI 4), which MPICH 4.0 itself gets wrong\n"
        "  --digests FILE  write to FILE.RANK a line for each program: its seed, and a number that stands "
        "for\n"
        "                all that MPI gave this rank\n"
        "  --verbose     print every statement\n");
    exit(2);
}

static void parse(int argc, char **argv)
{
    static const struct {
        const char *name;
        long *value, most;
    } options[] = {
        { "--seed", &args.seed, 1l << 60 },      { "--count", &args.count, 1l << 40 },
        { "--seconds", &args.seconds, 1000000 }, { "--threads", &args.threads, MOST_THREADS },
        { "--timeout", &args.timeout, 1000000 },
    };
    for (int i = 1; i < argc; i++) {
        size_t k = 0;
        if (strcmp(argv[i], "--verbose") == 0 || strcmp(argv[i], "--persistent") == 0) {
            *(argv[i][2] == 'v' ? &args.verbose : &args.persistent) = 1;
            continue;
        }
        if (strcmp(argv[i], "--digests") == 0 && i + 1 < argc) {
            args.digests = argv[++i];
            continue;
        }
        while (k < TEST_ARRAY_LEN(options) && strcmp(argv[i], options[k].name) != 0) {
            k++;
        }
        if (k == TEST_ARRAY_LEN(options) || i + 1 == argc ||
            !test_parse_long(argv[++i], 0, options[k].most, options[k].value)) {
            usage();
        }
    }
}

/* What every thread does now, when a program hangs or crashes. */
static void bark(int sig)
{
    char line[RUN_TEXT + 160];
    for (int t = 0; t < MOST_THREADS; t++) {
        int len;
        if (texts[t][0] == '\0') {
            continue;
        }
        len = snprintf(line, sizeof(line), "%s: rank %d: %s in: %s (programs begin with --seed %ld)\n",
                       test.program, test.rank, sig == SIGALRM ? "no progress" : strsignal(sig), texts[t],
                       args.seed);
        if (len > 0 && write(STDERR_FILENO, line, (size_t)len) < 0) {
            break;
        }
        for (int i = 0; i < MAX_OPS && sig == SIGALRM; i++) {
            const struct op *op = &runs[t].ops[i];
            if (op->used && op->active) {
                len = snprintf(line, sizeof(line), "%s: rank %d: open since statement %d%s: %s\n",
                               test.program, test.rank, op->statement, op->ready ? "" : ", for a later one",
                               op->text);
                len = len > 0 && write(STDERR_FILENO, line, (size_t)len) < 0 ? 0 : len;
            }
        }
    }
    if (sig == SIGALRM) {
        _exit(4);
    }
    raise(sig); /* the handler was reset */
}

static void watch(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = bark;
    sigaction(SIGALRM, &action, NULL);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    action.sa_flags = (int)SA_RESETHAND;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGABRT, &action, NULL);
    sigaction(SIGFPE, &action, NULL);
#endif
}

struct job {
    int thread;
    uint64_t seed;
};

static void *run_job(void *arg)
{
    struct job *job = arg;
    run_program(&runs[job->thread], job->seed, worlds[job->thread], selves[job->thread]);
    return NULL;
}

/* Some programs at once, each with communicators of its own. */
static void run_threads(uint64_t seed)
{
    pthread_t threads[MOST_THREADS];
    struct job jobs[MOST_THREADS];
    run_turns_open((int)args.threads);
    for (int t = 0; t < args.threads; t++) {
        jobs[t] = (struct job){ t, seed + (uint64_t)t };
        if (pthread_create(&threads[t], NULL, run_job, &jobs[t]) != 0) {
            test_die("cannot start a thread");
        }
    }
    for (int t = 0; t < args.threads; t++) {
        pthread_join(threads[t], NULL);
    }
}

/* A program on MPI_COMM_WORLD, or on a communicator that dies with it. */
static void run_alone(uint64_t seed)
{
    MPI_Comm own;
    if (seed % 2 == 0) {
        run_program(&runs[0], seed, MPI_COMM_WORLD, MPI_COMM_SELF);
        return;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    run_program(&runs[0], seed, own, MPI_COMM_SELF);
    MPI_Comm_free(&own);
}

static void digests_open(void)
{
    char path[4096];
    if (args.digests == NULL) {
        return;
    }
    snprintf(path, sizeof(path), "%s.%d", args.digests, test.rank);
    digests = fopen(path, "w");
    if (digests == NULL) {
        test_die("cannot write %s", path);
    }
}

static void digests_write(void)
{
    for (int t = 0; digests != NULL && t < (args.threads > 0 ? args.threads : 1); t++) {
        fprintf(digests, "%llu %016llx\n", (unsigned long long)runs[t].seed,
                (unsigned long long)runs[t].digest);
    }
}

static void digests_close(void)
{
    if (digests != NULL && (ferror(digests) | fclose(digests)) != 0) {
        test_die("cannot write %s", args.digests);
    }
}

static void open_runs(void)
{
    for (int t = 0; t < MOST_THREADS; t++) {
        runs[t].thread = t;
        runs[t].text = texts[t];
        runs[t].quiet = !args.verbose;
        runs[t].persistent = (int)args.persistent;
        runs[t].threaded = args.threads > 0;
        if (t < args.threads) {
            MPI_Comm_dup(MPI_COMM_WORLD, &worlds[t]);
            MPI_Comm_dup(MPI_COMM_SELF, &selves[t]);
        }
    }
}

int main(int argc, char **argv)
{
    double start = test_now();
    long done = 0;
    int go_on = 1, step;
    parse(argc, argv);
    setenv("OMPI_MCA_op", "^avx", 0); /* Open MPI 4.1's saturates small integers */
    test_init("mpi_random", args.threads > 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    if (test.nranks > MAX_RANKS) {
        test_die("%d ranks: expected at most %d", test.nranks, MAX_RANKS);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    watch();
    values_open();
    open_runs();
    digests_open();
    step = args.threads > 0 ? (int)args.threads : 1;
    for (; done < args.count && go_on; done += step) {
        alarm((unsigned)args.timeout);
        if (args.threads > 0) {
            run_threads((uint64_t)(args.seed + done));
        } else {
            run_alone((uint64_t)(args.seed + done));
        }
        test.cases += (unsigned long)step;
        digests_write();
        if (args.seconds > 0) {
            go_on = test_now() - start < (double)args.seconds;
            MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
    }
    for (int t = 0; t < args.threads; t++) {
        MPI_Comm_free(&worlds[t]);
        MPI_Comm_free(&selves[t]);
    }
    values_close();
    digests_close();
    alarm((unsigned)args.timeout);
    return test_finish();
}
