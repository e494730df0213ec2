/* Communicators come and go: from MPI, by split and shrink, with and without blocking; destroyed and
 * aborted. */
#include "storm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MPI_COMMS = 3 };

static struct {
    MPI_Comm comm;
    int n, members[STORM_RANKS];
} mpi[MPI_COMMS][2]; /* [k][1]: the other half, of which only the members matter */

/* All ranks; all in reverse; even and odd ones. They are made before any rank can die. */
void storm_mpi_begin(void)
{
    for (int k = 0; k < MPI_COMMS; k++) {
        int halves = k == 2, mine = halves ? test.rank % 2 : 0;
        MPI_Comm_split(MPI_COMM_WORLD, mine, k == 1 ? -test.rank : test.rank, &mpi[k][mine].comm);
        for (int r = 0; r < test.nranks; r++) {
            int half = halves ? r % 2 : 0;
            mpi[k][half].members[mpi[k][half].n++] = k == 1 ? test.nranks - 1 - r : r;
        }
    }
}

void storm_mpi_end(void)
{
    for (int k = 0; k < MPI_COMMS; k++) {
        MPI_Comm_free(&mpi[k][k == 2 ? test.rank % 2 : 0].comm);
    }
}

int storm_is_in(const struct storm_slot *s) { return s->place >= 0 && s->run.comm != NULL; }

struct storm_slot *storm_pick(uint64_t number, int least)
{
    int n = 0;
    for (int i = least; i < STORM_SLOTS; i++) {
        n += storm.slot[i].used;
    }
    if (n == 0) {
        return NULL;
    }
    n = (int)(number % (uint64_t)n);
    for (int i = least;; i++) {
        if (storm.slot[i].used && n-- == 0) {
            return &storm.slot[i];
        }
    }
}

static int number_of(const struct storm_slot *s) { return (int)(s - storm.slot); }

static struct storm_slot *free_slot(void)
{
    for (int i = 1; i < STORM_SLOTS; i++) {
        if (!storm.slot[i].used) {
            return &storm.slot[i];
        }
    }
    return NULL;
}

static int free_slots(void)
{
    int n = 0;
    for (int i = 1; i < STORM_SLOTS; i++) {
        n += !storm.slot[i].used;
    }
    return n;
}

/* Take a slot for a communicator of these ranks. parent: NULL: none. */
static struct storm_slot *take(struct storm_slot *s, int n, const int *members,
                               const struct storm_slot *parent)
{
    *s =
        (struct storm_slot){ .used = 1, .n = n, .place = -1, .born = storm.step, .over_mpi = parent == NULL };
    snprintf(s->name, sizeof(s->name), "%d.%ld.%d", storm.epoch, storm.step, number_of(s));
    if (parent != NULL) {
        memcpy(s->parent.name, parent->name, sizeof(s->parent.name));
        memcpy(s->parent.members, parent->members, sizeof(s->parent.members));
        s->parent.n = parent->n;
    }
    for (int i = 0; i < n; i++) {
        s->members[i] = members[i];
        if (members[i] == test.rank) {
            s->place = i;
        }
    }
    return s;
}

void storm_slot_free(struct storm_slot *s) { *s = (struct storm_slot){ .place = -1 }; }

rondo_status storm_slot_ready(struct storm_slot *s)
{
    s->run = (struct coll_run){
        .comm = s->run.comm, .seed = storm.seed, .rank = s->place, .nranks = s->n, .most = storm.most
    };
    snprintf(s->run.again, sizeof(s->run.again), "mpi_storm");
    return coll_run_begin(&s->run);
}

/* @return a config with random settings that change no result. */
static rondo_config any_config(const struct storm_slot *s)
{
    static const int channels[] = { RONDO_CONFIG_DEFAULT, RONDO_CONFIG_DEFAULT, 4, 8 };
    rondo_config config = RONDO_CONFIG_INIT;
    config.name = s->name;
    config.max_channels = channels[storm_draw(11) % TEST_ARRAY_LEN(channels)];
    config.blocking = storm_draw(12) % 3 != 0;
    return config;
}

/* A call that creates this communicator has returned. */
static rondo_status created(struct storm_slot *s, rondo_status status, int blocking)
{
    s->creating = blocking ? 0 : (int)storm.step;
    if (s->place < 0 || (status == RONDO_IN_PROGRESS && !blocking)) {
        return RONDO_SUCCESS;
    }
    if (status != RONDO_SUCCESS) {
        return storm_failed(s, 1, status, rondo_last_error(NULL));
    }
    if (blocking) {
        status = storm_slot_ready(s);
        return status == RONDO_SUCCESS ? status : storm_failed(s, 0, status, rondo_last_error(s->run.comm));
    }
    return RONDO_SUCCESS;
}

/* Poll until the creation has ended. A creation that fails leaves a communicator to be aborted. */
static rondo_status wait_ready(rondo_comm *comm)
{
    rondo_status error = RONDO_IN_PROGRESS;
    for (int i = 0; error == RONDO_IN_PROGRESS; i++) {
        rondo_status status = rondo_comm_async_error(comm, &error);
        if (status != RONDO_SUCCESS) {
            return status;
        }
        if (i > 100) {
            usleep(100);
        }
    }
    return error;
}

rondo_status storm_complete(struct storm_slot *s)
{
    int step = s->creating;
    rondo_status status = RONDO_SUCCESS;
    for (int i = 0; i < STORM_SLOTS && step != 0; i++) {
        struct storm_slot *each = &storm.slot[i];
        if (!each->used || each->creating != step) {
            continue;
        }
        storm_says("completing communicator %d", i);
        if (each->outside != NULL) {
            status = wait_ready(each->outside);
            if (status != RONDO_SUCCESS) {
                status = storm_failed(each, 1, status, rondo_last_error(each->outside));
            }
            if (status != RONDO_SUCCESS) {
                return status;
            }
            rondo_comm_destroy(each->outside);
            each->outside = NULL;
        }
        if (storm_is_in(each)) {
            status = wait_ready(each->run.comm);
            status = status == RONDO_SUCCESS ? storm_slot_ready(each) : status;
            if (status != RONDO_SUCCESS) {
                status = storm_failed(each, 1, status, rondo_last_error(each->run.comm));
            }
            if (status != RONDO_SUCCESS) {
                return status;
            }
        }
        each->creating = 0;
    }
    return RONDO_SUCCESS;
}

rondo_status storm_complete_all(void)
{
    rondo_status status = RONDO_SUCCESS;
    for (int i = 0; i < STORM_SLOTS && status == RONDO_SUCCESS; i++) {
        status = storm_complete(&storm.slot[i]);
    }
    return status;
}

rondo_status storm_world(void)
{
    rondo_config config = RONDO_CONFIG_INIT;
    struct storm_slot *s = take(&storm.slot[0], mpi[0][0].n, mpi[0][0].members, NULL);
    config.name = s->name;
    storm_says("creating the world");
    return created(s, rondo_comm_create(MPI_COMM_WORLD, &config, &s->run.comm), 1);
}

rondo_status storm_create(void)
{
    int k = (int)(storm_draw(1) % MPI_COMMS), halves = k == 2, mine = halves ? test.rank % 2 : 0;
    struct storm_slot *s[2] = { NULL };
    rondo_status status = RONDO_SUCCESS;
    if (free_slots() < 2 || storm.known > 0) { /* MPI does not outlive a death */
        return storm_call();
    }
    if (storm.multiple) { /* rondo_mpi.h: one at a time */
        status = storm_complete_all();
    }
    if (status != RONDO_SUCCESS) {
        return status;
    }
    for (int half = 0; half <= halves; half++) {
        if (mpi[k][half].n > 0) {
            s[half] = take(free_slot(), mpi[k][half].n, mpi[k][half].members, NULL);
        }
    }
    for (int half = 0; half <= halves; half++) {
        if (s[half] == NULL) {
            continue;
        }
        rondo_config config = any_config(s[half]);
        storm_says("creating communicator %d of %d ranks from MPI%s", number_of(s[half]), s[half]->n,
                   config.blocking ? "" : " without blocking");
        if (half == mine) {
            status = rondo_comm_create(mpi[k][half].comm, &config, &s[half]->run.comm);
        }
        status = created(s[half], status, config.blocking);
        if (status != RONDO_SUCCESS) {
            return status;
        }
    }
    return status;
}

/* ---- split and shrink ---- */

struct division {
    int color, key, place;
};

static int compare_division(const void *a, const void *b)
{
    const struct division *x = a, *y = b;
    return x->color != y->color ? x->color - y->color
           : x->key != y->key   ? x->key - y->key
                                : x->place - y->place;
}

/* Take a slot for each colour. @return this rank's; or any for a rank without colour; NULL: there is none. */
static struct storm_slot *divide(const struct storm_slot *parent, const struct division *by_place)
{
    struct division sorted[STORM_RANKS];
    struct storm_slot *mine = NULL, *any = NULL;
    memcpy(sorted, by_place, (size_t)parent->n * sizeof(sorted[0]));
    qsort(sorted, (size_t)parent->n, sizeof(sorted[0]), compare_division);
    for (int i = 0, n; i < parent->n; i += n) {
        int members[STORM_RANKS];
        for (n = 0; i + n < parent->n && sorted[i + n].color == sorted[i].color; n++) {
            members[n] = parent->members[sorted[i + n].place];
        }
        if (sorted[i].color != RONDO_SPLIT_NOCOLOR) {
            any = take(free_slot(), n, members, parent);
            mine = any->place >= 0 ? any : mine;
        }
    }
    return mine != NULL ? mine : any;
}

rondo_status storm_split(void)
{
    struct storm_slot *parent = storm_pick(storm_draw(1), 0), *s;
    struct division by_place[STORM_RANKS];
    rondo_status status = storm_complete(parent);
    int colors = 1 + (int)(storm_draw(2) % 3), without = storm_draw(3) % 4 == 0;
    rondo_config config;
    rondo_comm *comm = NULL;
    if (status != RONDO_SUCCESS || free_slots() < colors) {
        return status;
    }
    for (int r = 0; r < parent->n; r++) {
        int color = (int)(storm_draw_of(4, r) % (uint64_t)(colors + without));
        by_place[r] = (struct division){ .color = color < colors ? 3 + 7 * color : RONDO_SPLIT_NOCOLOR,
                                         .key = (int)(storm_draw_of(5, r) % 3) - 1,
                                         .place = r };
    }
    s = divide(parent, by_place);
    if (s == NULL) { /* nobody has a colour */
        by_place[0].color = 3;
        s = divide(parent, by_place);
    }
    config = any_config(s);
    for (int i = 1; i < STORM_SLOTS && !config.blocking; i++) { /* siblings; also on ranks outside */
        if (storm.slot[i].used && storm.slot[i].born == storm.step) {
            storm.slot[i].creating = (int)storm.step;
        }
    }
    if (!storm_is_in(parent)) {
        return RONDO_SUCCESS;
    }
    storm_says("splitting communicator %d of %d ranks into up to %d%s%s", number_of(parent), parent->n,
               colors, without ? ", some without colour" : "", config.blocking ? "" : ", without blocking");
    status = rondo_comm_split(parent->run.comm, by_place[parent->place].color, by_place[parent->place].key,
                              &config, &comm);
    if (s->place >= 0) {
        s->run.comm = comm;
        return created(s, status, config.blocking);
    }
    s->outside = comm;
    return status == RONDO_SUCCESS || (status == RONDO_IN_PROGRESS && !config.blocking)
               ? RONDO_SUCCESS
               : storm_failed(s, 1, status, rondo_last_error(NULL));
}

rondo_status storm_shrink(void)
{
    struct storm_slot *parent = storm_pick(storm_draw(1), 0), *s;
    int leaving[STORM_RANKS + 1], n = 0, staying[STORM_RANKS], nstaying = 0;
    rondo_status status = storm_complete(parent);
    rondo_config config;
    if (status != RONDO_SUCCESS || free_slots() == 0) {
        return status;
    }
    for (int r = 0; r < parent->n; r++) {
        if (storm_draw_of(4, r) % 3 == 0 && n < parent->n - 1) {
            leaving[n++] = r;
        } else {
            staying[nstaying++] = parent->members[r];
        }
    }
    s = take(free_slot(), nstaying, staying, parent);
    config = any_config(s);
    s->creating = config.blocking ? 0 : (int)storm.step;
    if (!storm_is_in(parent) || s->place < 0) {
        return RONDO_SUCCESS;
    }
    storm_says("shrinking communicator %d from %d to %d ranks%s", number_of(parent), parent->n, nstaying,
               config.blocking ? "" : ", without blocking");
    status = rondo_comm_shrink(parent->run.comm, leaving, n, RONDO_SHRINK_DEFAULT, &config, &s->run.comm);
    return created(s, status, config.blocking);
}

/* ---- the end ---- */

static rondo_status destroy(struct storm_slot *s, int finalize)
{
    rondo_status status = RONDO_SUCCESS;
    rondo_comm *comm = s->run.comm;
    if (storm_is_in(s)) {
        storm_says("destroying communicator %d%s", number_of(s), finalize ? " after its end" : "");
        if (finalize) {
            status = rondo_comm_finalize(comm);
        }
        if (status != RONDO_SUCCESS) {
            status = storm_failed(s, 0, status, rondo_last_error(comm));
            if (status != RONDO_SUCCESS) {
                return status;
            }
        }
    }
    if (storm_is_in(s)) {
        s->run.comm = NULL;
        status = rondo_comm_destroy(comm);
        status = status == RONDO_SUCCESS ? status : storm_failed(s, 0, status, rondo_last_error(NULL));
        if (status != RONDO_SUCCESS) {
            return status;
        }
        test_check(rondo_barrier(comm, NULL) == RONDO_INVALID_ARGUMENT, "a destroyed communicator was used");
    }
    storm_slot_free(s);
    return RONDO_SUCCESS;
}

rondo_status storm_destroy(void)
{
    struct storm_slot *s = storm_pick(storm_draw(1), 1);
    rondo_status status = s != NULL ? storm_complete(s)
                                    : RONDO_SUCCESS; /* its children may not be complete */
    return s == NULL || status != RONDO_SUCCESS ? status : destroy(s, storm_draw(2) % 3 == 0);
}

rondo_status storm_destroy_all(void)
{
    rondo_status status = storm_complete_all();
    for (int i = STORM_SLOTS - 1; i >= 0 && status == RONDO_SUCCESS; i--) {
        status = destroy(&storm.slot[i], 0);
    }
    return status;
}

/* One rank ends a communicator; the others must be told by whom. */
rondo_status storm_abort(void)
{
    struct storm_slot *s = storm_pick(storm_draw(1), 1);
    rondo_status status = storm_complete_all(), error = RONDO_SUCCESS;
    double begin;
    int who;
    if (s == NULL || status != RONDO_SUCCESS) {
        return status;
    }
    who = (int)(storm_draw(2) % (uint64_t)s->n);
    storm_says("communicator %d is aborted by its rank %d", number_of(s), who);
    if (storm_is_in(s)) { /* which may be told of the abort before it is complete */
        error = rondo_barrier(s->run.comm, NULL);
    }
    if (storm_is_in(s) && s->place != who) {
        begin = test_now();
        while (error == RONDO_SUCCESS && test_now() - begin < 1e-3 * (double)storm.limit_ms) {
            size_t wrong = 0;
            error = test_call_once("all_reduce", s->run.comm, RONDO_INT32, RONDO_SUM, 100, storm.key, &wrong);
            test_check(error != RONDO_SUCCESS || wrong == 0, "a wrong sum before the abort");
        }
        test_check(error == RONDO_REMOTE_ERROR, "after an abort: %s", rondo_status_string(error));
        /* between hosts the end of a connection may come before the word about the abort */
        if (!test_names_rank(rondo_last_error(s->run.comm), who) &&
            strstr(rondo_last_error(s->run.comm), "closed the connection") == NULL) {
            storm_failed(s, 0, error, rondo_last_error(s->run.comm));
        }
    }
    if (storm_is_in(s)) {
        test_check(rondo_comm_abort(s->run.comm) == RONDO_SUCCESS, "abort");
    }
    storm_slot_free(s);
    return RONDO_SUCCESS;
}
