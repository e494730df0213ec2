#include "base/fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/param.h"

#ifdef RONDO_FAULTS

int rondo_fault_armed;
static struct {
    int rank;
    long long op;
    char phase[16], act[32];
} fault;

static int act_known(void)
{
    static const char *const acts[] = { "kill", "stop", "exit", "fail" };
    for (size_t i = 0; i < RONDO_COUNTOF(acts); i++) {
        if (strcmp(fault.act, acts[i]) == 0) {
            return 1;
        }
    }
    return strncmp(fault.act, "delay:", 6) == 0;
}

/* Called with the lock held. @return 0 if the text is malformed. */
static int parse(const char *text)
{
    char *copy = strdup(text), *save = NULL, *word;
    fault.rank = fault.op = -1;
    fault.phase[0] = fault.act[0] = '\0';
    for (word = copy == NULL ? NULL : strtok_r(copy, ",", &save); word != NULL;
         word = strtok_r(NULL, ",", &save)) {
        if (sscanf(word, "rank=%d", &fault.rank) != 1 && sscanf(word, "op=%lld", &fault.op) != 1 &&
            sscanf(word, "phase=%15s", fault.phase) != 1 && sscanf(word, "act=%31s", fault.act) != 1) {
            fault.act[0] = '\0';
            break;
        }
    }
    free(copy);
    return act_known();
}

rondo_status rondo_fault_init(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char parsed[128];
    const char *text = rondo_params()->fault != NULL ? rondo_params()->fault : "";
    int known;
    pthread_mutex_lock(&lock);
    if (strncmp(text, parsed, sizeof(parsed)) !=
        0) { /* else leave it: a rank that is a thread may be reading it */
        rondo_fault_armed = text[0] != '\0' && parse(text);
        snprintf(parsed, sizeof(parsed), "%s", text);
    }
    known = rondo_fault_armed || text[0] == '\0';
    pthread_mutex_unlock(&lock);
    return known ? RONDO_SUCCESS
                 : rondo_fail(
                       RONDO_INVALID_ARGUMENT,
                       "RONDO_FAULT=%s: expected rank=R,phase=NAME,op=N,act=kill|stop|exit|fail|delay:MS",
                       text);
}

rondo_status rondo_fault_act(const char *phase, int rank, uint64_t op)
{
    if ((fault.rank >= 0 && fault.rank != rank) ||
        (fault.phase[0] != '\0' && strcmp(fault.phase, phase) != 0) ||
        (fault.op >= 0 && (uint64_t)fault.op != op)) {
        return RONDO_SUCCESS;
    }
    if (strcmp(fault.act, "kill") == 0) {
        raise(SIGKILL);
    } else if (strcmp(fault.act, "stop") == 0) {
        raise(SIGSTOP);
    } else if (strcmp(fault.act, "exit") == 0) {
        _exit(3);
    } else if (strncmp(fault.act, "delay:", 6) == 0) {
        long ms = strtol(fault.act + 6, NULL, 10);
        struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
        nanosleep(&t, NULL);
    } else {
        return rondo_fail(RONDO_INTERNAL_ERROR, "rank %d on %s: injected failure in %s (RONDO_FAULT)", rank,
                          rondo_log_host(), phase);
    }
    return RONDO_SUCCESS;
}

#else

rondo_status rondo_fault_init(void)
{
    const char *text = rondo_params()->fault;
    return text == NULL || text[0] == '\0'
               ? RONDO_SUCCESS
               : rondo_fail(
                     RONDO_INVALID_ARGUMENT,
                     "RONDO_FAULT is set, but this build of Rondo has no fault injection: unset it, or "
                     "configure with --enable-devel");
}

#endif
