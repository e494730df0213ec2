#include "call/report.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/param.h"
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
