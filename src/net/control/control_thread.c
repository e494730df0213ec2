/*
 * The watcher: the control thread and a table of the processes of local peers. A process has one while any
 * of its controls is started. One lock protects it, and is held for short, bounded work only: the thread
 * does not log while it holds it. Waiting threads look for deaths themselves, with the same functions, when
 * the lock is free (rondo_control_look).
 */
#include "net/control/control_impl.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "base/process.h"
#include "base/thread.h"

#define STOP_EVENT UINT32_MAX
#define WAKE_NS INT64_C(1000000000)
#define WIRE_EVENT (UINT32_MAX - 1)

enum { SOON_MS = 20 /* until the wire is moved again, if it has calls to make */ };
enum { FALLBACK_NS = 200 * 1000 * 1000 /* between looks at processes that have no pidfd */ };

struct process {
    int pid, fd; /* pidfd; -1: none, use kill(pid, 0) */
    uint64_t start;
    int refs, dead;
};

struct watcher {
    pthread_t thread;
    int epoll, event; /* event wakes the thread so that it ends */
    int stop;
    int nfallback; /* living processes without a pidfd */
    int64_t beat_ns, dead_ns;
    int64_t fallback_ns; /* last look at those processes */
    struct rondo_control *controls;
    struct process *processes;
    int nprocesses, capacity;
};

static pthread_mutex_t watcher_lock = PTHREAD_MUTEX_INITIALIZER;
static struct watcher *watcher; /* NULL: no control is started */

/* Of the process: rondo_control_wake sets wanted; it and rondo_control_ring write to the descriptor. */
static struct {
    void (*_Atomic function)(void);
    _Atomic int wanted, event; /* event: a descriptor + 1; 0: no thread */
    _Atomic int writers;       /* threads that may write to it */
} wake;

void rondo_control_on_wake(void (*function)(void)) { atomic_store(&wake.function, function); }

void rondo_control_ring(void)
{
    uint64_t one = 1;
    int event;
    atomic_fetch_add(&wake.writers, 1); /* before the descriptor is read: see wake_end */
    event = atomic_load(&wake.event) - 1;
    if (event >= 0) {
        (void)!write(event, &one, sizeof(one)); /* if it fails, the thread looks again at its next beat */
    }
    atomic_fetch_sub(&wake.writers, 1);
}

void rondo_control_wake(void)
{
    atomic_store(&wake.wanted, 1);
    rondo_control_ring();
}

/* Nobody is to write to the descriptor any more: another thread may be about to, in a signal handler. Once
 * closed, its number may be that of a file of the program. @return 0: it is stopped; leave it open */
static int wake_end(void)
{
    atomic_store(&wake.event, 0);
    for (int64_t end = rondo_now_ns() + WAKE_NS; atomic_load(&wake.writers) > 0;) {
        if (rondo_now_ns() > end) {
            return 0;
        }
        sched_yield();
    }
    return 1;
}

/* For the control thread, which holds no lock. @return 1: look around before sleeping; watcher_end_unlock
 * writes to the descriptor, too */
static int answer_wake(int event)
{
    uint64_t count;
    void (*function)(void) = atomic_load(&wake.function);
    int rung = read(event, &count, sizeof(count)) > 0; /* or the thread would not sleep again */
    if (atomic_exchange(&wake.wanted, 0) && function != NULL) {
        function();
    }
    return rung;
}

/* A forked child has the watcher's memory, but not its thread, which may have held the lock. */
static void forget_watcher(void)
{
    (void)rondo_fork_lock(&watcher_lock);
    atomic_store(&wake.event, 0);
    atomic_store(&wake.writers, 0);
    watcher = NULL;
}
RONDO_AT_FORK(forget_watcher)

/* Without a pidfd: has this process ended? */
static int process_gone(const struct process *process)
{
    return rondo_process_look(process->pid, process->start) == RONDO_PROCESS_GONE;
}

static void process_set_dead(struct watcher *w, struct process *process)
{
    process->dead = 1;
    if (process->fd >= 0) {
        epoll_ctl(w->epoll, EPOLL_CTL_DEL, process->fd, NULL); /* else it would wake the thread for ever */
        close(process->fd);
        process->fd = -1;
    } else {
        w->nfallback--;
    }
}

static void process_open(struct watcher *w, struct process *process, int index)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u32 = (uint32_t)index };
    process->fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
    if (process->fd >= 0 && epoll_ctl(w->epoll, EPOLL_CTL_ADD, process->fd, &event) != 0) {
        close(process->fd);
        process->fd = -1;
    }
    if (process->fd < 0) {
        w->nfallback++;
    }
    /* Check once the pidfd is open: the process may have ended before, and its pid may be another's now. */
    if (process_gone(process)) {
        process_set_dead(w, process);
    }
}

/* Find or add a process, and take a reference to it. */
static rondo_status process_get(struct watcher *w, int pid, uint64_t start, int *index)
{
    int unused = -1;
    for (int i = 0; i < w->nprocesses; i++) {
        struct process *process = &w->processes[i];
        if (process->refs > 0 && process->pid == pid && process->start == start) {
            process->refs++;
            *index = i;
            return RONDO_SUCCESS;
        }
        unused = process->refs == 0 ? i : unused;
    }
    if (unused < 0) {
        RONDO_TRY(RONDO_ARRAY_GROW(w->processes, w->nprocesses, w->capacity, "control plane's processes"));
        unused = w->nprocesses++;
    }
    w->processes[unused] = (struct process){ .pid = pid, .start = start, .refs = 1, .fd = -1 };
    process_open(w, &w->processes[unused], unused);
    *index = unused;
    return RONDO_SUCCESS;
}

static void process_put(struct watcher *w, int index)
{
    struct process *process = &w->processes[index];
    if (--process->refs == 0 && !process->dead) {
        process_set_dead(w, process);
    }
}

/* Find out which processes have ended. */
static void watcher_reap(struct watcher *w, int64_t now)
{
    struct epoll_event events[16];
    int n;
    /* Reported processes leave the set, so this would end by itself but for the stop event and the wire's,
     * which stay. */
    for (int round = 0; round <= w->nprocesses / 8; round++) {
        n = epoll_wait(w->epoll, events, (int)RONDO_COUNTOF(events), 0);
        for (int i = 0; i < n; i++) {
            uint32_t index = events[i].data.u32;
            if (index != STOP_EVENT && index != WIRE_EVENT && !w->processes[index].dead) {
                process_set_dead(w, &w->processes[index]);
            }
        }
        if (n < (int)RONDO_COUNTOF(events)) {
            break;
        }
    }
    if (w->nfallback == 0 || now - w->fallback_ns < FALLBACK_NS) {
        return;
    }
    w->fallback_ns = now;
    for (int i = 0; i < w->nprocesses; i++) {
        struct process *process = &w->processes[i];
        if (process->refs > 0 && process->fd < 0 && !process->dead && process_gone(process)) {
            process_set_dead(w, process);
        }
    }
}

static void describe_last_call(struct rondo_control *control, int rank, char *text, size_t bytes)
{
    struct rondo_call call;
    char words[128];
    if (!rondo_control_call_of(control, rank, 0, &call)) {
        snprintf(text, bytes, "it had made no call yet");
        return;
    }
    snprintf(words, sizeof(words), "call #%llu", (unsigned long long)call.seq);
    if (control->describe) {
        control->describe(&call, words, sizeof(words));
    }
    snprintf(text, bytes, "last call: %s (%s)", words, call.state == 2 ? "finished" : "under way");
}

/* End the communicator because of a local rank. silent_ns: how long its beat has stood still; 0: its
 * process is dead. @return 1: this is the first reason, in text. */
static int report(struct rondo_control *control, int local, int64_t silent_ns, char *text)
{
    int rank = control->local_ranks[local];
    char who[RONDO_HOST_LEN + RONDO_CONTROL_NAME + 80], last[160];
    if (rondo_control_aborted(control)) {
        return 0;
    }
    rondo_loss_who(control, rank, who, sizeof(who));
    describe_last_call(control, rank, last, sizeof(last));
    if (silent_ns == 0) {
        snprintf(
            text, RONDO_ERROR_TEXT,
            "%s exited without destroying its communicator; %s; see that rank's own output for the cause",
            who, last);
    } else {
        snprintf(text, RONDO_ERROR_TEXT,
                 "%s is unresponsive: no heartbeat for %lld ms; %s; is it stopped, or its host overloaded? "
                 "RONDO_DEAD_AFTER sets the limit",
                 who, (long long)(silent_ns / 1000000), last);
    }
    if (!rondo_control_end(control, RONDO_REMOTE_ERROR, rank,
                           silent_ns == 0 ? RONDO_LOSS_DEAD : RONDO_LOSS_SILENT, text)) {
        return 0;
    }
    rondo_wire_spread_later(control);
    return 1;
}

/* @return 1: a death ended the communicator, sentence in text. */
static int check_deaths(struct watcher *w, struct rondo_control *control, char *text)
{
    int ended = 0;
    for (int i = 0; i < control->nlocal; i++) {
        struct rondo_control_watch *watch = &control->watch[i];
        if (watch->process < 0 || !w->processes[watch->process].dead) {
            continue;
        }
        if (atomic_load_explicit(&control->blocks[i].life.state, memory_order_acquire) == RONDO_LIFE_LEFT) {
            continue;
        }
        if (atomic_exchange_explicit(&watch->state, RONDO_RANK_DEAD, memory_order_acq_rel) !=
            RONDO_RANK_DEAD) {
            ended |= !ended && report(control, i, 0, text);
        }
    }
    return ended;
}

/* restart: this process was itself stopped, so everyone's silence counts from now. @return 1: a silent rank
 * ended the communicator, sentence in text. */
static int check_beats(struct watcher *w, struct rondo_control *control, int64_t now, int restart, char *text)
{
    int ended = 0;
    for (int i = 0; i < control->nlocal && w->dead_ns > 0; i++) {
        struct rondo_control_watch *watch = &control->watch[i];
        struct rondo_control_life *life = &control->blocks[i].life;
        uint64_t beat = atomic_load_explicit(&life->beat, memory_order_relaxed);
        int state = atomic_load_explicit(&watch->state, memory_order_relaxed);
        if (watch->process < 0 || state == RONDO_RANK_DEAD ||
            atomic_load_explicit(&life->state, memory_order_acquire) != RONDO_LIFE_ALIVE) {
            continue;
        }
        if (beat != watch->beat || restart || watch->since_ns == 0) {
            watch->beat = beat;
            watch->since_ns = now;
            atomic_store_explicit(&watch->state, RONDO_RANK_ALIVE, memory_order_release);
        } else if (now - watch->since_ns > w->dead_ns && state == RONDO_RANK_ALIVE) {
            atomic_store_explicit(&watch->state, RONDO_RANK_SILENT, memory_order_release);
            ended |= !ended && report(control, i, now - watch->since_ns, text);
        }
    }
    return ended;
}

static void beat(struct rondo_control *control)
{
    atomic_fetch_add_explicit(&control->own->life.beat, 1, memory_order_relaxed);
}

/* Beat and check all. @return 1: a communicator was ended, sentence in text; check again for others. */
static int watcher_check(struct watcher *w, int64_t now, int restart, char *text)
{
    for (struct rondo_control *control = w->controls; control; control = control->next) {
        beat(control);
    }
    watcher_reap(w, now);
    for (struct rondo_control *control = w->controls; control; control = control->next) {
        if (check_deaths(w, control, text) || check_beats(w, control, now, restart, text)) {
            return 1;
        }
    }
    return 0;
}

static void *watcher_main(void *arg)
{
    struct watcher *w = arg;
    int64_t last = rondo_now_ns(), now;
    struct epoll_event events[16];
    char text[RONDO_ERROR_TEXT];
    int timeout_ms, again, restart;
    rondo_log_set_rank(-1);
    pthread_mutex_lock(&watcher_lock);
    while (!w->stop) {
        now = rondo_now_ns();
        restart = now - last > 2 * w->beat_ns;
        last = now;
        do {
            again = watcher_check(w, now, restart, text);
            if (again) {
                pthread_mutex_unlock(&watcher_lock);
                RONDO_WARN("%s", text);
                pthread_mutex_lock(&watcher_lock);
            }
        } while (again && !w->stop);
        timeout_ms = (int)((w->nfallback && w->beat_ns > FALLBACK_NS ? FALLBACK_NS : w->beat_ns) / 1000000);
        if (!w->stop) {
            pthread_mutex_unlock(&watcher_lock);
            if (rondo_wire_tick(now, restart, w->beat_ns, w->dead_ns) && timeout_ms > SOON_MS) {
                timeout_ms = SOON_MS;
            }
            if (!answer_wake(w->event)) {
                /* Only to sleep: the events may be out of date by the time the lock is held, so watcher_check
                 * asks again. */
                epoll_wait(w->epoll, events, (int)RONDO_COUNTOF(events), timeout_ms > 0 ? timeout_ms : 1);
            }
            pthread_mutex_lock(&watcher_lock);
        }
    }
    pthread_mutex_unlock(&watcher_lock);
    return NULL;
}

static void watcher_free(struct watcher *w)
{
    if (w->epoll >= 0) {
        close(w->epoll);
    }
    if (w->event >= 0) {
        close(w->event);
    }
    rondo_free(w->processes);
    rondo_free(w);
}

static rondo_status watcher_start_thread(struct watcher *w)
{
    rondo_status status = rondo_thread_start(&w->thread, "rondo-control", watcher_main, w);
    return status == RONDO_SUCCESS ? RONDO_SUCCESS : rondo_fail_aloud(status);
}

/* Called with the lock held; the new thread waits for it. */
static rondo_status watcher_start(struct watcher **watcher_out)
{
    struct epoll_event stop = { .events = EPOLLIN, .data.u32 = STOP_EVENT };
    const struct rondo_params *params = rondo_params();
    struct watcher *w;
    rondo_status status;
    RONDO_TRY(RONDO_NEW(w, "control thread"));
    w->beat_ns = params->heartbeat;
    w->dead_ns = params->dead_after;
    /* A limit below four beats would blame living ranks. (Ranks of a job normally have the same values.) */
    if (w->dead_ns > 0 && w->beat_ns > w->dead_ns / 4) {
        w->beat_ns = w->dead_ns / 4;
    }
    w->event = -1;
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->epoll < 0 || w->event < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->event, &stop) != 0) {
        status = rondo_fail(
            RONDO_SYSTEM_ERROR,
            "cannot create the control thread's descriptors on %s: %m; raise the limit on open "
            "files (ulimit -n)",
            rondo_log_host());
        goto fail;
    }
    RONDO_TRY_GOTO(watcher_start_thread(w), fail);
    atomic_store(&wake.event, w->event + 1);
    *watcher_out = w;
    return RONDO_SUCCESS;
fail:
    watcher_free(w);
    return status;
}

/* End a watcher that watches nothing. Called with the lock held; gives it back. */
static void watcher_end_unlock(struct watcher *w)
{
    uint64_t one = 1;
    int unused;
    w->stop = 1;
    watcher = NULL;
    unused = wake_end();
    pthread_mutex_unlock(&watcher_lock);
    while (write(w->event, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    pthread_join(w->thread, NULL);
    w->event = unused ? w->event : -1;
    watcher_free(w);
}

static int same_process(const struct rondo_control *control, int local)
{
    return control->peers[control->local_ranks[local]].process_hash ==
           control->peers[control->rank].process_hash;
}

static void drop_processes(struct watcher *w, struct rondo_control *control)
{
    for (int i = 0; i < control->nlocal; i++) {
        if (control->watch[i].process >= 0) {
            process_put(w, control->watch[i].process);
            control->watch[i].process = -1;
        }
    }
}

/* Wake the thread when something comes over the wire. */
static void watch_wire(struct watcher *w)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u32 = WIRE_EVENT };
    int wire = rondo_wire_epoll();
    if (wire >= 0) {
        epoll_ctl(w->epoll, EPOLL_CTL_ADD, wire, &event); /* fails when it is there already */
    }
}

rondo_status rondo_control_watch(struct rondo_control *control)
{
    rondo_status status = RONDO_SUCCESS;
    pthread_mutex_lock(&watcher_lock);
    if (watcher == NULL) {
        status = watcher_start(&watcher);
    }
    for (int i = 0; i < control->nlocal && status == RONDO_SUCCESS; i++) {
        struct rondo_control_life *life = &control->blocks[i].life;
        if (!same_process(control, i) &&
            atomic_load_explicit(&life->state, memory_order_acquire) != RONDO_LIFE_NONE) {
            status = process_get(watcher, life->pid, life->start, &control->watch[i].process);
        }
    }
    if (status == RONDO_SUCCESS) {
        watch_wire(watcher);
        control->next = watcher->controls;
        control->link = &watcher->controls;
        if (control->next) {
            control->next->link = &control->next;
        }
        watcher->controls = control;
        control->watched = 1;
        beat(control);
    } else if (watcher) {
        drop_processes(watcher, control);
        if (watcher->controls == NULL) {
            watcher_end_unlock(watcher);
            return status;
        }
    }
    pthread_mutex_unlock(&watcher_lock);
    return status;
}

void rondo_control_unwatch(struct rondo_control *control)
{
    if (!control->watched) {
        return;
    }
    pthread_mutex_lock(&watcher_lock);
    *control->link = control->next;
    if (control->next) {
        control->next->link = control->link;
    }
    control->watched = 0;
    drop_processes(watcher, control);
    if (watcher->controls == NULL) {
        watcher_end_unlock(watcher);
        return;
    }
    pthread_mutex_unlock(&watcher_lock);
}

void rondo_control_look(struct rondo_control *control)
{
    char text[RONDO_ERROR_TEXT];
    int ended = 0;
    if (pthread_mutex_trylock(&watcher_lock) != 0) {
        return;
    }
    if (control->watched) {
        watcher_reap(watcher, rondo_now_ns());
        ended = check_deaths(watcher, control, text);
    }
    pthread_mutex_unlock(&watcher_lock);
    if (ended) {
        RONDO_WARN("%s", text);
        rondo_wire_spread(control);
    }
}
