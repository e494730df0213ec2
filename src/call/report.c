#include "call/report.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/inside.h"
#include "base/log.h"
#include "base/param.h"
#include "net/control/look.h"
#include "observe/observe.h"

static const int64_t slow_ns = 500000000;

/* ---- files ---- */

/* @return NULL after a warning. */
static FILE *file_open(const char *pattern, int append)
{
    char path[512];
    FILE *file = NULL;
    int fd = -1;
    if (rondo_log_path(pattern, path, sizeof(path)) == 0) {
        fd = rondo_log_file(path, append ? O_APPEND : O_TRUNC);
    } else {
        errno = ENAMETOOLONG;
    }
    if (fd >= 0) {
        file = fdopen(fd, append ? "a" : "w");
    }
    if (file == NULL) {
        RONDO_WARN("cannot write a report to %s on %s: %m", pattern, rondo_log_host());
        if (fd >= 0) {
            close(fd);
        }
    }
    return file;
}

static void report_write(const struct rondo_seen *seen, const char *to, const char *why)
{
    struct rondo_diagnosis diagnosis;
    int is_stderr = strcmp(to, "1") == 0;
    FILE *out = is_stderr ? stderr : file_open(to, 1);
    if (out == NULL) {
        return;
    }
    rondo_diagnose(seen, slow_ns, &diagnosis);
    flockfile(out);
    fprintf(out, "---- rondo-doctor on %s: %s\n", rondo_log_host(), why);
    rondo_seen_text(out, seen, &diagnosis);
    fprintf(out, "---- end of the report\n");
    fflush(out);
    funlockfile(out);
    if (!is_stderr) {
        fclose(out);
    }
}

static int wants(const char *value) { return value[0] != '\0' && strcmp(value, "0") != 0; }

/* Look at the host's ranks, and write what is wanted. why NULL: no report. */
static void look_and_write(const char *report, const char *dump, const char *why)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct rondo_seen seen = { 0 };
    int pid = (int)getpid();
    struct rondo_observe_request request = { .pids = &pid, .npids = 1, .any_host = 1 };
    if (!rondo_params()->recorder || (!wants(report) && !wants(dump)) || pthread_mutex_trylock(&lock) != 0) {
        return;
    }
    if (rondo_observe(&seen, &request) == RONDO_SUCCESS) {
        FILE *file = wants(dump) ? file_open(dump, 0) : NULL;
        if (file != NULL) {
            rondo_seen_flight(file, &seen);
            fclose(file);
        }
        if (wants(report)) {
            report_write(&seen, report, why);
        }
    }
    rondo_seen_release(&seen);
    pthread_mutex_unlock(&lock);
}

void rondo_report(const char *why) { look_and_write(rondo_params()->report, rondo_params()->dump, why); }

void rondo_report_failed(struct rondo_ctx *ctx)
{
    if (RONDO_UNLIKELY(wants(rondo_params()->dump)) && ctx->wiring.control != NULL &&
        rondo_control_claim_report(ctx->wiring.control)) {
        look_and_write("", rondo_params()->dump, NULL);
    }
}

void rondo_report_late(struct rondo_ctx *ctx, int late_here, const char *why)
{
    if (ctx->wiring.control != NULL && (ctx->wiring.layout.node == 0 || late_here) &&
        rondo_control_claim_report(ctx->wiring.control)) {
        rondo_report(why);
    }
}

/* ---- on request ---- */

static rondo_status dump_write(const struct rondo_ctx *ctx, const struct rondo_seen *seen, const char *path)
{
    const struct rondo_seen_rank *rank = NULL;
    const struct rondo_seen_comm *comm = NULL;
    int fd, failed;
    FILE *file;
    for (int c = 0; c < seen->ncomms && rank == NULL; c++) {
        comm = &seen->comms[c];
        for (int r = 0; r < comm->n && comm->hash == ctx->job.hash && rank == NULL; r++) {
            rank = comm->ranks[r].rank == ctx->job.rank ? &comm->ranks[r] : NULL;
        }
    }
    if (rank == NULL) {
        return rondo_fail(
            RONDO_SYSTEM_ERROR,
            "rondo_comm_dump: rank %d on %s cannot read the record of communicator \"%s\" in /proc/self/mem",
            ctx->job.rank, rondo_log_host(), ctx->job.name);
    }
    fd = rondo_log_file(path, O_TRUNC);
    file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL) {
        rondo_status status = rondo_fail(RONDO_SYSTEM_ERROR,
                                         "rondo_comm_dump: rank %d on %s cannot write %s: %m", ctx->job.rank,
                                         rondo_log_host(), path);
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    rondo_seen_flight_of(file, comm, rank);
    failed = fputc('\n', file) == EOF;
    failed |= ferror(file) != 0;
    failed |= fclose(file) != 0;
    return !failed
               ? RONDO_SUCCESS
               : rondo_fail(RONDO_SYSTEM_ERROR, "rondo_comm_dump: rank %d on %s cannot write all of %s: %m",
                            ctx->job.rank, rondo_log_host(), path);
}

static rondo_status dump_look(const struct rondo_ctx *ctx, const char *path)
{
    struct rondo_seen seen = { 0 };
    struct rondo_record_entry entry;
    const void *base = rondo_control_record(ctx->wiring.control, &entry);
    rondo_status status = rondo_observe_own(&seen, &entry, base);
    if (status == RONDO_SUCCESS) {
        status = dump_write(ctx, &seen, path);
    }
    rondo_seen_release(&seen);
    return status;
}

static rondo_status dump(const rondo_comm *comm, const char *path)
{
    struct rondo_ctx *ctx;
    rondo_status status;
    if (path == NULL) {
        return rondo_fail(RONDO_INVALID_ARGUMENT, "rondo_comm_dump: the name of the file is NULL");
    }
    RONDO_TRY(rondo_comm_visit(comm, "rondo_comm_dump", &ctx));
    if (ctx->wiring.control == NULL || !rondo_params()->recorder) {
        status = rondo_fail(RONDO_INVALID_USAGE,
                            "rondo_comm_dump: communicator \"%s\" keeps no record of its calls: %s",
                            ctx->job.name,
                            ctx->job.nranks > 1 ? "it is being created, or RONDO_RECORDER is 0"
                                                : "it has one rank, which waits for nobody");
    } else {
        status = dump_look(ctx, path);
    }
    rondo_comm_unvisit(comm);
    return status;
}

rondo_status rondo_comm_dump(const rondo_comm *comm, const char *file)
{
    RONDO_RUN_INSIDE("rondo_comm_dump", dump(comm, file));
}

/* ---- rondo-doctor on another host ---- */

static void answer(int fd, const struct rondo_look *look)
{
    struct rondo_seen seen = { 0 };
    int pid = (int)getpid(), own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    struct rondo_observe_request request = { .pids = look->all ? NULL : &pid,
                                             .npids = 1,
                                             .sample_ms = look->sample_ms,
                                             .any_host = !look->all,
                                             .ended = look->ended };
    FILE *out = own >= 0 ? fdopen(own, "w") : NULL;
    char stack[RONDO_SEEN_STACK];
    if (out != NULL && look->stack_of != 0) {
        (void)rondo_process_stack(look->stack_of, stack);
        (void)fputs(stack, out);
    } else if (out != NULL && rondo_observe(&seen, &request) == RONDO_SUCCESS) {
        if (look->stacks) {
            rondo_seen_stacks(&seen, look->ended);
        }
        (void)rondo_seen_write(out, &seen); /* the doctor knows what it has not got */
    }
    rondo_seen_release(&seen);
    if (out != NULL) {
        fclose(out);
    } else if (own >= 0) {
        close(own);
    }
}

/* ---- SIGUSR1 ---- */

static void on_signal(int number)
{
    int saved = errno;
    (void)number;
    rondo_control_wake(); /* async-signal-safe: the control thread writes the report */
    errno = saved;
}

static void report_signal(void) { rondo_report("SIGUSR1"); }

static void install(void)
{
    struct sigaction now, mine = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    const struct rondo_params *params = rondo_params();
    if (params->recorder) {
        rondo_control_on_look(answer);
    }
    if (!params->recorder || (!wants(params->report) && !wants(params->dump)) ||
        sigaction(SIGUSR1, NULL, &now) != 0 || now.sa_handler != SIG_DFL) {
        return;
    }
    rondo_control_on_wake(report_signal);
    sigemptyset(&mine.sa_mask);
    (void)sigaction(SIGUSR1, &mine, NULL);
}

void rondo_report_on_signal(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
}
