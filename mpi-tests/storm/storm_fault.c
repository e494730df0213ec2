/* Ranks die or stop; what the survivors must be told, and how they go on. */
#include "storm.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void storm_board_open(void)
{
    char path[] = "/tmp/rondo-storm-XXXXXX";
    int fd = -1;
    if (test.rank == 0) {
        fd = mkstemp(path);
        if (fd < 0 || ftruncate(fd, sizeof(*storm.board)) != 0) {
            test_die("%s: %s", path, strerror(errno));
        }
    }
    MPI_Bcast(path, sizeof(path), MPI_CHAR, 0, MPI_COMM_WORLD);
    fd = fd < 0 ? open(path, O_RDWR | O_CLOEXEC) : fd;
    storm.board = fd < 0 ? MAP_FAILED
                         : mmap(NULL, sizeof(*storm.board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (storm.board == MAP_FAILED) {
        test_die("%s: %s", path, strerror(errno));
    }
    close(fd);
    storm.board->pid[test.rank] = getpid();
    MPI_Barrier(MPI_COMM_WORLD);
    if (test.rank == 0) {
        unlink(path);
    }
}

/* ---- how it happens ---- */

static useconds_t strike_after;
static struct storm_slot aimed_at;

/* Have all made the world? A rank that is still at it has no other to go on with. */
static int all_aim(void)
{
    int n = 0;
    for (int i = 0; i < aimed_at.n; i++) {
        n += __atomic_load_n(&storm.board->aimed[aimed_at.members[i]], __ATOMIC_ACQUIRE) >=
             storm.board->aimed[test.rank];
    }
    return n == aimed_at.n;
}

static void *strike(void *unused)
{
    double end = test_now() + 10;
    (void)unused;
    while (!all_aim() && test_now() < end) {
        usleep(100);
    }
    usleep(strike_after);
    __atomic_store_n(&storm.board->struck_us[test.rank], (int64_t)(1e6 * test_now()), __ATOMIC_SEQ_CST);
    kill(getpid(), storm.signal == STORM_KILL ? SIGKILL : SIGSTOP);
    return NULL;
}

static double struck(int rank)
{
    return 1e-6 * (double)__atomic_load_n(&storm.board->struck_us[rank], __ATOMIC_SEQ_CST);
}

static int is_victim(int rank)
{
    return (storm.nvictims > 0 && storm.victim[0] == rank) || (storm.nvictims > 1 && storm.victim[1] == rank);
}

void storm_aim(void)
{
    const struct storm_slot *world = &storm.slot[0];
    double share = (double)(storm_draw(1) % 1000000) * 1e-6;
    long delay_us = (long)(1.5e6 * share * share); /* short ones more often */
    pthread_t thread;
    storm.nvictims = 0;
    __atomic_add_fetch(&storm.board->aimed[test.rank], 1, __ATOMIC_RELEASE);
    if (storm.deaths <= 0 || world->n < 2) {
        return;
    }
    storm.nvictims = storm.deaths > 1 && world->n > 2 && storm_draw(2) % 4 == 0 ? 2 : 1;
    storm.deaths -= storm.nvictims;
    for (int i = 0, at = (int)(storm_draw(3) % (uint64_t)world->n); i < storm.nvictims; i++) {
        at = (at + i * (1 + (int)(storm_draw(4) % (uint64_t)(world->n - 1)))) % world->n;
        storm.victim[i] = world->members[at];
    }
    storm.signal = storm.signals != (STORM_KILL | STORM_STOP) ? storm.signals
                   : storm_draw(5) % 3 == 0                   ? STORM_STOP
                                                              : STORM_KILL;
    if (storm.nvictims == 2 && storm.victim[1] == test.rank) {
        delay_us += (long)(storm_draw(6) % 30000);
    }
    if (is_victim(test.rank)) {
        strike_after = (useconds_t)delay_us;
        aimed_at = *world;
        if (pthread_create(&thread, NULL, strike, NULL) != 0) {
            test_die("no thread");
        }
        pthread_detach(thread);
    }
}

/* ---- what is said about it ---- */

static const char *signal_name(void) { return storm.signal == STORM_KILL ? "killed" : "stopped"; }

static int place_of(int n, const int *members, int rank)
{
    for (int i = 0; i < n; i++) {
        if (members[i] == rank) {
            return i;
        }
    }
    return -1;
}

static int has_victim(int n, const int *members)
{
    return (storm.nvictims > 0 && place_of(n, members, storm.victim[0]) >= 0) ||
           (storm.nvictims > 1 && place_of(n, members, storm.victim[1]) >= 0);
}

/* Does the text name one of the victims, by its rank among these members? loosely: among others. */
static int names_a_victim(int n, const int *members, const char *text, int loosely)
{
    for (int i = 0; i < storm.nvictims; i++) {
        int place = place_of(n, members, storm.victim[i]);
        char name[32];
        snprintf(name, sizeof(name), "rank %d ", place);
        if (place >= 0 && struck(storm.victim[i]) > 0 &&
            (test_names_rank(text, place) || (loosely && strstr(text, name) != NULL))) {
            return 1;
        }
    }
    return 0;
}

/* Too little memory: the communicator is lost, on all of its ranks; the others hear of this rank's abort. */
static rondo_status give_up(struct storm_slot *s, rondo_status status, const char *text)
{
    if (status != RONDO_SYSTEM_ERROR && status != RONDO_REMOTE_ERROR) {
        test_die("%s: %s", rondo_status_string(status), text);
    }
    storm.refusals++;
    if (storm.verbose) {
        test_say("%s: refused: %s", storm.what, text);
    }
    if (s != NULL && s->run.comm != NULL) {
        rondo_comm_abort(s->run.comm);
        s->run.comm = NULL;
    }
    if (s != NULL && s->outside != NULL) {
        rondo_comm_abort(s->outside);
        s->outside = NULL;
    }
    return RONDO_SUCCESS;
}

static double first_struck(void)
{
    double first = 0;
    for (int i = 0; i < storm.nvictims; i++) {
        double at = struck(storm.victim[i]);
        first = at > 0 && (first == 0 || at < first) ? at : first;
    }
    return first;
}

/* @return the communicator whose rank the text names; NULL: it does not say. */
static const struct storm_slot *named_slot(const char *text)
{
    for (int i = 0; i < STORM_SLOTS; i++) {
        char of[64];
        snprintf(of, sizeof(of), " of communicator %s ", storm.slot[i].name);
        if (storm.slot[i].used && strstr(text, of) != NULL) {
            return &storm.slot[i];
        }
    }
    return NULL;
}

/*
 * A failed group gives all of its communicators the sentence of the first one, which says whose rank it
 * names. A creation that fails names ranks of the new communicator, or the parent and its ranks. A creation
 * over MPI may miss others, too: who has failed before does not come; and MPI itself may fail first.
 */
static void judge_death(const struct storm_slot *s, int over_mpi, rondo_status status, const char *text)
{
    double begin = first_struck() > storm.step_began ? first_struck() : storm.step_began,
           took = test_now() - begin,
           limit = 1e-3 * (double)(storm.limit_ms + (storm.signal == STORM_STOP ? storm.dead_after_ms : 0));
    if (over_mpi) { /* on another host a death may show by the limit of creation only */
        limit += 2e-3 * (double)storm.limit_ms;
    }
    const struct storm_slot *other = named_slot(text);
    int by_parent = s->parent.n > 0 && strstr(text, s->parent.name) != NULL;
    int named = other != NULL ? names_a_victim(other->n, other->members, text, 0)
                : by_parent   ? names_a_victim(s->parent.n, s->parent.members, text, 0)
                              : names_a_victim(s->n, s->members, text, over_mpi);
    test_check(named || (over_mpi && strstr(text, "MPI_") != NULL),
               "the victim is rank %d, here %d, in the parent %d: %s: %s", storm.victim[0],
               place_of(s->n, s->members, storm.victim[0]),
               place_of(s->parent.n, s->parent.members, storm.victim[0]), rondo_status_string(status), text);
    test_check(status == RONDO_REMOTE_ERROR || over_mpi, "%s instead of %s: %s", rondo_status_string(status),
               rondo_status_string(RONDO_REMOTE_ERROR), text);
    test_check(took < limit, "%.1f s until the error: %s", took, text);
    storm.worst = took > storm.worst ? took : storm.worst;
}

rondo_status storm_failed(struct storm_slot *s, int creating, rondo_status status, const char *text)
{
    char copy[1024];
    snprintf(copy, sizeof(copy), "%s", text);
    if (storm.verbose) {
        test_say("%s: %s: %s", storm.what, rondo_status_string(status), copy);
    }
    if (storm.scarce) {
        return give_up(s, status, copy);
    }
    if (first_struck() == 0 || s == NULL) {
        test_die("%s: %s without a fault: %s", storm.what, rondo_status_string(status), copy);
    }
    if (struck(test.rank) > 0) {
        return status; /* this rank was stopped and goes on */
    }
    creating |= s->creating != 0;
    if (has_victim(s->n, s->members) || (creating && has_victim(s->parent.n, s->parent.members))) {
        judge_death(s, creating && s->over_mpi, status, copy);
    } else { /* who has failed before aborts it, or does not come */
        test_check(status == RONDO_REMOTE_ERROR || (status == RONDO_TIMEOUT && creating),
                   "a communicator without a victim: %s: %s", rondo_status_string(status), copy);
    }
    return status;
}

/* ---- how it goes on ---- */

static void leave(const char *how)
{
    test_say("storm: rank %d %s, %lu cases, %lu failed", test.rank, how, test.cases, test.failed);
    fflush(stdout);
    _exit(test.failed == 0 ? 0 : 1);
}

static void abort_all(int but_world)
{
    for (int i = but_world; i < STORM_SLOTS; i++) {
        struct storm_slot *s = &storm.slot[i];
        storm_says("aborting communicator %d", i);
        if (s->outside != NULL) {
            test_check(rondo_comm_abort(s->outside) == RONDO_SUCCESS, "abort");
        }
        if (s->run.comm != NULL) {
            test_check(rondo_comm_abort(s->run.comm) == RONDO_SUCCESS, "abort");
        }
        storm_slot_free(s);
    }
}

/* A victim waits for its fate. If it was stopped and goes on, all its communicators must be over. */
static void be_a_victim(void)
{
    test_watchdog(0);
    while (struck(test.rank) == 0) {
        usleep(1000);
    }
    for (int i = 0; i < 10; i++) {
        usleep(1000); /* the signal arrives */
    }
    test_watchdog((int)storm.watchdog_s);
    for (int i = 0; i < STORM_SLOTS; i++) {
        struct storm_slot *s = &storm.slot[i];
        if (storm_is_in(s) && s->n > 1 && !s->creating) {
            rondo_status status = rondo_barrier(s->run.comm, NULL);
            test_check(status == RONDO_REMOTE_ERROR, "communicator %d of a resumed rank: %s: %s", i,
                       rondo_status_string(status), rondo_last_error(s->run.comm));
        }
    }
    abort_all(0);
    leave("was stopped, has failed and has left");
}

/* Every communicator with a victim must say so, whether it is called or not. */
static void hear_of_it(struct storm_slot *s)
{
    rondo_status error = RONDO_SUCCESS;
    double end;
    storm.step_began = test_now();
    end = storm.step_began + 3e-3 * (double)storm.limit_ms + 1e-3 * (double)storm.dead_after_ms;
    storm_says("hearing of the death by communicator %d of %d%s", (int)(s - storm.slot), s->n,
               s->creating ? ", which is being created" : "");
    do {
        if (rondo_comm_async_error(s->run.comm, &error) != RONDO_SUCCESS) {
            test_die("%s: async_error failed: %s", storm.what, rondo_last_error(NULL));
        }
        usleep(500);
    } while ((error == RONDO_SUCCESS || error == RONDO_IN_PROGRESS) && test_now() < end);
    if (test_check(error != RONDO_SUCCESS && error != RONDO_IN_PROGRESS, "%s: no error after %.1f s",
                   storm.what, test_now() - storm.step_began)) {
        storm_failed(s, 0, error, rondo_last_error(s->run.comm));
    }
}

static void go_on_without_victims(void)
{
    struct storm_slot world = storm.slot[0];
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_comm *old = world.run.comm;
    int exclude[2], n = 0;
    rondo_status status;
    storm.slot[0].n = 0;
    for (int i = 0; i < world.n; i++) {
        if (is_victim(world.members[i])) {
            exclude[n++] = i;
            continue;
        }
        storm.slot[0].place = world.members[i] == test.rank ? storm.slot[0].n : storm.slot[0].place;
        storm.slot[0].members[storm.slot[0].n++] = world.members[i];
    }
    snprintf(storm.slot[0].name, sizeof(storm.slot[0].name), "world.%d", storm.epoch + 1);
    config.name = storm.slot[0].name;
    config.init_timeout_ms = 10 * storm.limit_ms; /* others may hear of it later */
    storm_says("shrinking the world to %d ranks", storm.slot[0].n);
    status = rondo_comm_shrink(old, exclude, n, RONDO_SHRINK_ABORT, &config, &storm.slot[0].run.comm);
    if (status != RONDO_SUCCESS) {
        test_die("%s: %s: %s", storm.what, rondo_status_string(status), rondo_last_error(NULL));
    }
    test_check(rondo_comm_abort(old) == RONDO_SUCCESS, "abort");
    TEST_MUST(storm_slot_ready(&storm.slot[0]), storm.slot[0].run.comm);
    storm.slot[0].over_mpi = 0;
}

static void release_victims(void)
{
    if (storm.slot[0].place != 0 || storm.signal != STORM_STOP) {
        return;
    }
    for (int i = 0; i < storm.nvictims; i++) {
        kill(storm.board->pid[storm.victim[i]], storm_draw_of(90, i) % 2 ? SIGKILL : SIGCONT);
    }
}

void storm_recover(void)
{
    double begin = test_now();
    if (is_victim(test.rank)) {
        be_a_victim();
    }
    for (int i = 0; i < storm.nvictims; i++) {
        while (struck(storm.victim[i]) == 0 && test_now() - begin < 10) {
            usleep(1000);
        }
    }
    for (int i = 0; i < STORM_SLOTS; i++) {
        if (storm_is_in(&storm.slot[i]) && has_victim(storm.slot[i].n, storm.slot[i].members)) {
            hear_of_it(&storm.slot[i]);
        }
    }
    abort_all(1);
    go_on_without_victims();
    storm_drop();
    release_victims();
    storm.known += storm.nvictims;
    storm.epoch++;
    storm.step = 0; /* each rank noticed in a step of its own */
    if (storm.verbose) {
        test_say("%d %s, %d go on", storm.nvictims, signal_name(), storm.slot[0].n);
    }
}
