/* Communicators: their state, Rondo's communicator beside them, and their end. */
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/param.h"
#include "mpi/rondo_mpi.h"
#include "net/peer.h"
#include "shim/mpi/helper.h"
#include "shim/mpi/mpis.h"
#include "shim/mpi/shim.h"

__thread struct shim_thread shim_thread;
unsigned shim_generation = 1;
int shim_reporting, shim_inside_mpi;
struct shim_settings shim_process_settings;

static struct {
    pthread_mutex_t lock;
    int ready; /* the keyval, and the callback of MPI_Finalize */
    int keyval;
    int closed;                     /* MPI_Finalize has begun */
    int nlive;                      /* communicators of Rondo */
    struct shim_comm *first, *last; /* all states */
    struct shim_comm *orphans;      /* children of states that are gone */
    struct shim_comm *late;         /* states whose communicators MPI deleted in a wait of Rondo's */
    pthread_mutex_t self_lock;
    MPI_Comm self; /* of this rank alone */
    int has_self;
} process = { .lock = PTHREAD_MUTEX_INITIALIZER,
              .self_lock = PTHREAD_MUTEX_INITIALIZER,
              .keyval = MPI_KEYVAL_INVALID };

/* What calls find that have no state of their own. */
static struct shim_comm shut = { .leaves = SHIM_BY_CLOSED }, off = { .leaves = SHIM_BY_OFF },
                        threads = { .leaves = SHIM_BY_JOBS };

#define SHIM_NAME_ROW_(ctx, NAME, name, Name) #name,
const char *shim_coll_name(enum shim_coll coll)
{
    static const char *const names[] = { SHIM_TABLE(SHIM_NAME_ROW_, ) };
    return names[coll];
}

/* ---- settings ---- */

static int part_parse(char *part, struct shim_settings *s)
{
    unsigned named = 0;
    int64_t bytes;
    char *rest = NULL;
    if (strncmp(part, "min=", 4) == 0 || strncmp(part, "max=", 4) == 0) {
        if (rondo_parse_size(part + 4, &bytes) != 0 || bytes < 0) {
            return -1;
        }
        *(part[1] == 'i' ? &s->min : &s->max) = (size_t)bytes;
        return 0;
    }
    int inverted = part[0] == '^';
    for (char *name = strtok_r(part + inverted, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        int coll = 0;
        while (coll < SHIM_NCOLLS && strcmp(name, shim_coll_name((enum shim_coll)coll)) != 0) {
            coll++;
        }
        if (coll == SHIM_NCOLLS && strcmp(name, "none") != 0 && strcmp(name, "all") != 0) {
            return -1;
        }
        named |= coll < SHIM_NCOLLS ? 1U << coll : strcmp(name, "all") == 0 ? ~0U : 0;
    }
    s->allowed = inverted ? ~named : named;
    return 0;
}

int shim_selection_parse(const char *text, struct shim_settings *settings)
{
    char copy[512], *rest = NULL;
    settings->allowed = ~0U;
    settings->min = 0;
    settings->max = SIZE_MAX;
    if (strlen(text) >= sizeof copy) {
        return -1;
    }
    memcpy(copy, text, strlen(text) + 1);
    for (char *part = strtok_r(copy, ";", &rest); part; part = strtok_r(NULL, ";", &rest)) {
        if (part_parse(part, settings) != 0) {
            return -1;
        }
    }
    return 0;
}

static void settings_read(struct shim_settings *s)
{
    const struct rondo_params *params;
    s->wrong = rondo_param_init() != RONDO_SUCCESS;
    params = rondo_params();
    if (shim_selection_parse(params->mpi, s) != 0) {
        s->wrong = 1;
        shim_selection_parse("", s);
        RONDO_WARN("RONDO_MPI=%s: write names of collectives (allreduce,bcast), ^names for all others, all "
                   "or none, and sizes: \"allreduce,bcast;min=1K;max=1M\". All calls go to MPI",
                   params->mpi);
    }
    s->after = (int)params->mpi_after;
    s->comms = (int)params->mpi_comms;
    s->exact = params->mpi_exact;
    s->tune = params->mpi_tune;
    s->gpu = params->mpi_gpu;
    s->report = params->mpi_report;
    shim_reporting = s->report[0] != '\0' && strcmp(s->report, "0") != 0;
}

/* ---- the end ---- */

static void list_remove(struct shim_comm *c)
{
    *(c->previous != NULL ? &c->previous->next : &process.first) = c->next;
    *(c->next != NULL ? &c->next->previous : &process.last) = c->previous;
}

/* The ranks destroy what they share in the same order: that of creation at MPI_Finalize, the program's when
 * it frees communicators. */
void shim_comm_end_rondo(struct shim_comm *c)
{
    if (c->gpu != NULL) {
        shim_gpu_end(c->gpu);
    }
    if (c->rondo != NULL) {
        struct shim_outer outer = shim_enter(shim_thread.inside ? shim_thread.inside : SHIM_CALLS);
        rondo_comm_destroy(c->rondo); /* an error has been reported by the call that met it */
        shim_exit(outer);
        c->rondo = NULL;
        __atomic_sub_fetch(&process.nlive, 1, __ATOMIC_RELAXED);
    }
    shim_cells_free(c->cells);
    free(c->sizes);
    c->cells = c->steady = NULL;
    c->tried = NULL;
    c->sizes = NULL;
}

/* The communicator goes. Its persistent calls may be used still. */
static void children_leave(struct shim_comm *c)
{
    for (int i = 0; i < c->nchildren; i++) {
        struct shim_comm *child = c->children[i];
        pthread_mutex_lock(&process.lock);
        int stays = child->busy;
        if (stays) {
            child->comm = MPI_COMM_SELF; /* whose error handler is called */
            child->orphan = 1;
            child->next = process.orphans;
            process.orphans = child;
        }
        pthread_mutex_unlock(&process.lock);
        if (!stays) {
            shim_comm_end_rondo(child);
            free(child);
        }
    }
}

uint64_t shim_comm_free_children(const struct shim_comm *c)
{
    uint64_t bits = 0;
    pthread_mutex_lock(&process.lock);
    for (int i = 0; i < c->nchildren; i++) {
        bits |= c->children[i]->busy || c->children[i]->failed ? 0 : UINT64_C(1) << i;
    }
    pthread_mutex_unlock(&process.lock);
    return bits;
}

void shim_comm_take_child(struct shim_comm *child)
{
    pthread_mutex_lock(&process.lock);
    child->busy = 1;
    pthread_mutex_unlock(&process.lock);
}

void shim_comm_fail_child(struct shim_comm *child)
{
    pthread_mutex_lock(&process.lock);
    child->failed = 1;
    pthread_mutex_unlock(&process.lock);
}

void shim_comm_leave_child(struct shim_comm *child)
{
    if (child->failed && child->rondo != NULL) {
        shim_comm_fail(child);
    }
    pthread_mutex_lock(&process.lock);
    int ends = child->orphan;
    child->busy = 0;
    for (struct shim_comm **at = &process.orphans; ends && *at != NULL; at = &(*at)->next) {
        if (*at == child) {
            *at = child->next;
            break;
        }
    }
    pthread_mutex_unlock(&process.lock);
    if (ends) {
        shim_comm_end_rondo(child);
        free(child);
    }
}

void shim_comm_fail(struct shim_comm *c)
{
    c->failed = 1;
    struct shim_outer outer = shim_enter(SHIM_CALLS);
    rondo_comm_abort(c->rondo); /* the other ranks' calls end, too */
    shim_exit(outer);
    c->rondo = NULL;
    __atomic_sub_fetch(&process.nlive, 1, __ATOMIC_RELAXED);
}

static void state_end(struct shim_comm *c)
{
    shim_comm_end_rondo(c);
    children_leave(c);
    shim_gpu_free(c->gpu);
    free(c);
}

/* MPICH deletes a communicator when its last message ends. Where the face has not seen MPI_Comm_free, this
 * thread may wait in Rondo then, which cannot destroy anything meanwhile. */
static int comm_deleted(MPI_Comm comm, int key, void *value, void *extra)
{
    struct shim_comm *c = value;
    int is_late = rondo_is_inside_call();
    (void)comm, (void)key, (void)extra;
    __atomic_add_fetch(&shim_generation, 1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&process.lock);
    list_remove(c);
    if (is_late) {
        c->next = process.late;
        __atomic_store_n(&process.late, c, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&process.lock);
    if (!is_late) {
        state_end(c);
    }
    return MPI_SUCCESS;
}

/* End the states that could not be ended when their communicators were deleted. */
static void late_end(void)
{
    struct shim_comm *c;
    if (RONDO_LIKELY(__atomic_load_n(&process.late, __ATOMIC_RELAXED) == NULL) || rondo_is_inside_call()) {
        return;
    }
    pthread_mutex_lock(&process.lock);
    c = process.late;
    __atomic_store_n(&process.late, NULL, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&process.lock);
    for (struct shim_comm *next; c != NULL; c = next) {
        next = c->next;
        state_end(c);
    }
}

/* MPI_Finalize begins: a callback of MPI_COMM_SELF, so that Fortran's call is seen, too. The states stay
 * until MPI deletes their communicators, which it may do after it has ended. */
static int process_ends(MPI_Comm comm, int key, void *value, void *extra)
{
    struct shim_comm *c;
    (void)comm, (void)key, (void)value, (void)extra;
    __atomic_store_n(&process.closed, 1, __ATOMIC_RELEASE);
    __atomic_add_fetch(&shim_generation, 1, __ATOMIC_RELEASE);
    if (shim_reporting) {
        shim_report_write(shim_process_settings.report);
    }
    late_end();
    for (c = process.first; c != NULL; c = c->next) {
        c->leaves = SHIM_BY_CLOSED;
        shim_comm_end_rondo(c);
        for (int i = 0; i < c->nchildren; i++) {
            shim_comm_end_rondo(c->children[i]);
        }
    }
    for (c = process.orphans; c != NULL; c = c->next) {
        shim_comm_end_rondo(c);
    }
    if (process.has_self) {
        __atomic_store_n(&process.has_self, 0, __ATOMIC_RELEASE);
        PMPI_Comm_free(&process.self);
    }
    return MPI_SUCCESS;
}

/* ---- the beginning ---- */

/* A receive there that stands for a persistent call has got too much: the call has failed. */
static void self_failed(MPI_Comm *self, int *code, ...)
{
    int class = MPI_ERR_OTHER;
    (void)self;
    PMPI_Error_class(*code, &class);
    if (class == MPI_ERR_TRUNCATE) {
        shim_persistent_tell();
        *code = MPI_ERR_OTHER;
    }
}

/* All other errors there are only returned. */
static void self_errhandler_set(void)
{
    MPI_Errhandler handler = MPI_ERRORS_RETURN;
    int made = PMPI_Comm_create_errhandler(self_failed, &handler) == MPI_SUCCESS;
    PMPI_Comm_set_errhandler(process.self, made ? handler : MPI_ERRORS_RETURN);
    if (made) {
        PMPI_Errhandler_free(&handler);
    }
}

/* With the lock held. A duplicate would run the program's attribute callbacks. */
static int self_make(void)
{
    MPI_Group group;
    struct shim_outer outer = shim_enter(SHIM_CALLS); /* MPI's progress must not come back here */
    PMPI_Comm_group(MPI_COMM_SELF, &group);
    int rc = PMPI_Comm_create(MPI_COMM_SELF, group, &process.self);
    PMPI_Group_free(&group);
    shim_exit(outer);
    if (rc == MPI_SUCCESS) {
        self_errhandler_set();
        __atomic_store_n(&process.has_self, 1, __ATOMIC_RELEASE);
    }
    return rc;
}

MPI_Comm shim_comm_self_made(void)
{
    return __atomic_load_n(&process.has_self, __ATOMIC_ACQUIRE) ? process.self : MPI_COMM_NULL;
}

int shim_comm_self(MPI_Comm *self)
{
    int rc = MPI_SUCCESS;
    *self = shim_comm_self_made();
    if (RONDO_UNLIKELY(*self == MPI_COMM_NULL)) {
        pthread_mutex_lock(&process.self_lock);
        if (!process.has_self) {
            rc = __atomic_load_n(&process.closed, __ATOMIC_ACQUIRE) ? MPI_ERR_OTHER : self_make();
        }
        *self = shim_comm_self_made();
        pthread_mutex_unlock(&process.self_lock);
    }
    return rc;
}

static void process_begin(void)
{
    int self_key = MPI_KEYVAL_INVALID;
    settings_read(&shim_process_settings);
    if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, comm_deleted, &process.keyval, NULL) != MPI_SUCCESS ||
        PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, process_ends, &self_key, NULL) != MPI_SUCCESS ||
        PMPI_Comm_set_attr(MPI_COMM_SELF, self_key, NULL) != MPI_SUCCESS) {
        shim_process_settings.off = 1; /* without a word to the other ranks, for which there is no state */
    }
    process.ready = 1;
}

/* Do all calls go to MPI, without a state? */
static int is_off(void)
{
    return shim_process_settings.off || (shim_process_settings.allowed == 0 && !shim_reporting);
}

static void process_begin_once(void)
{
    pthread_mutex_lock(&process.lock);
    if (!process.ready) {
        process_begin();
    }
    pthread_mutex_unlock(&process.lock);
}

static int is_mpi_running(void)
{
    int initialized = 0, finalized = 0;
    PMPI_Initialized(&initialized);
    PMPI_Finalized(&finalized);
    return initialized && !finalized;
}

/* librondo_pmpi.so says that MPI_Init has returned. MPI_Finalize deletes the attributes of MPI_COMM_SELF
 * before all else, the first one last: so the collectives that a program's own callbacks make then find Rondo
 * on all ranks. Where nobody says it, a process begins with its first collective, each at a time of its own.
 */
void rondo_pmpi_begun(void);
__attribute__((visibility("default"))) void rondo_pmpi_begun(void)
{
    MPI_Comm self;
    if (is_mpi_running()) {
        process_begin_once();
        if (!is_off()) { /* later, beside an MPI_Comm_idup, Open MPI would wait for the end of that */
            shim_comm_self(&self);
        }
    }
}

static struct shim_comm *comm_attach(MPI_Comm comm)
{
    struct shim_comm *c = calloc(1, sizeof *c);
    int inter = 0;
    if (c == NULL || PMPI_Comm_set_attr(comm, process.keyval, c) != MPI_SUCCESS) {
        free(c); /* the other ranks go on with Rondo, so this is an error */
        if (!shim_inside_mpi) {
            PMPI_Comm_call_errhandler(comm, MPI_ERR_NO_MEM);
        }
        return &off;
    }
    c->comm = comm;
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_rank(comm, &c->rank);
    PMPI_Comm_size(comm, &c->n);
    c->leaves = inter ? SHIM_BY_INTER : c->n == 1 ? SHIM_BY_ALONE : SHIM_BY_NONE;
    pthread_mutex_lock(&process.lock);
    c->previous = process.last;
    *(process.last != NULL ? &process.last->next : &process.first) = c;
    process.last = c;
    pthread_mutex_unlock(&process.lock);
    return c;
}

/* MPICH's threadcomm, whose ranks are threads: they have one handle, and set its attributes all at once. */
static int is_of_threads(MPI_Comm comm)
{
    int nmembers = 0, n = 0;
#ifndef OPEN_MPI
    MPI_Group group;
    PMPI_Comm_group(comm, &group);
    PMPI_Group_size(group, &nmembers);
    PMPI_Group_free(&group);
    PMPI_Comm_size(comm, &n);
#else
    (void)comm;
#endif
    return nmembers != n;
}

static struct shim_comm *comm_look_up(MPI_Comm comm)
{
    void *value = NULL;
    int found = 0;
    if (__atomic_load_n(&process.closed, __ATOMIC_ACQUIRE)) {
        return &shut;
    }
    process_begin_once();
    if (is_off()) {
        return &off;
    }
    if (PMPI_Comm_get_attr(comm, process.keyval, &value, &found) != MPI_SUCCESS) {
        return NULL;
    }
    return found ? value : is_of_threads(comm) ? &threads : comm_attach(comm);
}

/* A communicator that this thread is about to free. */
struct shim_freed {
    MPI_Comm comm;
    const struct shim_freed *outer;
};

static int is_freed(MPI_Comm comm)
{
    const struct shim_freed *freed = shim_thread.freed;
    while (freed != NULL && freed->comm != comm) {
        freed = freed->outer;
    }
    return freed != NULL;
}

struct shim_comm *shim_comm_find(MPI_Comm comm)
{
    unsigned generation = __atomic_load_n(&shim_generation, __ATOMIC_ACQUIRE);
    if (!is_mpi_running() || comm == MPI_COMM_NULL || comm == (MPI_Comm)0) { /* a wrong number of Fortran's */
        return NULL;
    }
    if (RONDO_UNLIKELY(shim_thread.freed != NULL) && is_freed(comm)) {
        return &shut;
    }
    late_end();
    struct shim_comm *c = comm_look_up(comm);
    if (c != NULL && c != &threads) { /* without an attribute, nothing says when that communicator goes */
        shim_thread.comm = comm;
        shim_thread.state = c;
        shim_thread.generation = generation;
    }
    return c;
}

/* ---- communicators that are freed ---- */

/* Without a question to MPI, which calls an error handler for what is no communicator. */
static int has_state(MPI_Comm comm)
{
    pthread_mutex_lock(&process.lock);
    const struct shim_comm *c = process.last; /* most go in the opposite order */
    while (c != NULL && c->comm != comm) {
        c = c->previous;
    }
    pthread_mutex_unlock(&process.lock);
    return c != NULL;
}

/* The callbacks of the program's attributes may make collectives on it. Those go to MPI on all ranks, where
 * the state's own attribute would go before or after the others by the order in which a rank has set them. */
static int comm_free(int (*function)(MPI_Comm *), MPI_Comm *comm)
{
    if (comm == NULL || *comm == MPI_COMM_NULL || *comm == MPI_COMM_WORLD) {
        return function(comm); /* an error, whose handler need not return */
    }
    struct shim_freed freed = { *comm, shim_thread.freed };
    if (has_state(freed.comm)) {
        PMPI_Comm_delete_attr(freed.comm, process.keyval);
    }
    shim_thread.freed = &freed;
    int code = function(comm);
    shim_thread.freed = freed.outer;
    return code;
}

int MPI_Comm_free(MPI_Comm *comm) { return comm_free(PMPI_Comm_free, comm); }

int MPI_Comm_disconnect(MPI_Comm *comm)
{
    int helped = shim_help_begin(), code = comm_free(PMPI_Comm_disconnect, comm);
    shim_help_end(helped);
    return code;
}

/* ---- Rondo's communicator ---- */

/* Of GPUs that Rondo knows nothing of. */
static int is_gpu_library(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    static const char *const names[] = {
        "libamdhip64.so",
        "libze_loader.so",
#ifndef RONDO_CUDA
        "libcuda.so",
        "libcudart.so",
#endif
    };
    (void)bytes, (void)arg;
    for (size_t i = 0; i < RONDO_COUNTOF(names); i++) {
        if (shim_file_begins(info->dlpi_name, names[i])) {
            return 1;
        }
    }
    return 0;
}

int shim_comm_is_full(void)
{
    return __atomic_load_n(&process.nlive, __ATOMIC_RELAXED) >= shim_process_settings.comms;
}

/* The numbers of the ranks whose maximum decides. */
struct vote {
    int64_t against; /* an enum shim_reason; the largest counts */
    int64_t host, minus_host;
    int64_t no_requests, no_starts;
    int64_t uses_gpu, no_gpu;
};

static void vote_fill(const struct shim_cells *cells, const struct shim_gpu *gpu, struct vote *mine)
{
    struct rondo_hello hello;
    rondo_hello_fill(&hello);
    mine->host = (int64_t)((hello.host_hash ^ hello.pidns * 31) >> 2);
    mine->minus_host = -mine->host;
    mine->no_requests = !shim_progress_works();
    mine->no_starts = !shim_starts_are_seen();
    mine->uses_gpu = shim_gpu_is_used();
    mine->no_gpu = gpu == NULL || !shim_gpu_works();
    mine->against = cells == NULL                           ? SHIM_BY_FAILED
                    : dl_iterate_phdr(is_gpu_library, NULL) ? SHIM_BY_GPU
                    : shim_comm_is_full()                   ? SHIM_BY_MANY
                    : shim_process_settings.wrong           ? SHIM_BY_OFF
                                                            : SHIM_BY_NONE;
}

rondo_status shim_comm_make_rondo(struct shim_comm *c, int device)
{
    rondo_config config = RONDO_CONFIG_INIT;
    rondo_status status;
    config.timeout_ms = 0;
    config.init_timeout_ms = 0;
    config.mpi_progress = 1; /* MPI lets no other thread in while this one is in a call of MPI */
    config.device = device;
    struct shim_outer outer = shim_enter(SHIM_CREATES);
    status = rondo_comm_create(c->comm, &config, &c->rondo);
    shim_exit(outer);
    if (status == RONDO_SUCCESS) {
        __atomic_add_fetch(&process.nlive, 1, __ATOMIC_RELAXED);
    }
    return status;
}

int shim_comm_agree(const void *mine, void *all, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    int helped = shim_help_begin(), code = PMPI_Allreduce(mine, all, count, type, op, comm);
    shim_help_end(helped);
    return code;
}

/* The ranks' votes, and Rondo's communicator. @return why all calls go to MPI */
static enum shim_reason make_agreed(struct shim_comm *c, const struct shim_cells *cells)
{
    struct vote mine, all;
    vote_fill(cells, c->gpu, &mine);
    if (shim_comm_agree(&mine, &all, (int)(sizeof mine / sizeof(int64_t)), MPI_INT64_T, MPI_MAX, c->comm) !=
        MPI_SUCCESS) {
        return SHIM_BY_FAILED;
    }
    if (all.against != SHIM_BY_NONE || (all.uses_gpu && all.no_gpu)) {
        return all.against != SHIM_BY_NONE ? (enum shim_reason)all.against : SHIM_BY_GPU;
    }
    c->one_host = all.host == -all.minus_host;
    c->moves_requests = !all.no_requests;
    c->starts_requests = !all.no_starts;
    if (!all.uses_gpu) {
        shim_gpu_free(c->gpu);
        c->gpu = NULL;
    }
    if (shim_comm_make_rondo(c, RONDO_CONFIG_DEFAULT) != RONDO_SUCCESS) { /* all ranks get this */
        RONDO_INFO(RONDO_SUBSYS_INIT, "a communicator of %d ranks stays with MPI: %s", c->n,
                   rondo_last_error(NULL));
        return SHIM_BY_FAILED;
    }
    return SHIM_BY_NONE;
}

/* Has it a member outside of this process's MPI_COMM_WORLD? Such a process need not have the face. Each
 * member is outside of another one's, so all find the same. Open MPI looks for each rank along the world: in
 * a large one some ranks stand for all, the first and the last among them, which are of two jobs after
 * MPI_Intercomm_merge. */
static int spans_jobs(const struct shim_comm *c)
{
    enum { PART = 256, MOST_STEPS = 1 << 26 };
    int ranks[PART], in_world[PART], spans = 0, nworld, asked;
    MPI_Group group, world;
    PMPI_Comm_group(c->comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_size(world, &nworld);
    asked = c->n <= MOST_STEPS / nworld ? c->n : MOST_STEPS / nworld + 2;
    for (int first = 0; first < asked && !spans; first += PART) {
        int n = asked - first < PART ? asked - first : PART;
        for (int i = 0; i < n; i++) {
            ranks[i] = (int)((int64_t)(first + i) * (c->n - 1) / (asked - 1));
        }
        PMPI_Group_translate_ranks(group, n, ranks, world, in_world);
        for (int i = 0; i < n; i++) {
            spans |= in_world[i] == MPI_UNDEFINED;
        }
    }
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    return spans;
}

void shim_comm_make(struct shim_comm *c)
{
    if (c->comm != MPI_COMM_WORLD && spans_jobs(c)) {
        c->leaves = SHIM_BY_JOBS;
        return;
    }
    struct shim_cells *cells = calloc(1, sizeof *cells);
    c->gpu = shim_process_settings.gpu ? shim_gpu_new(c) : NULL;
    c->leaves = make_agreed(c, cells);
    if (c->leaves != SHIM_BY_NONE) {
        free(cells);
        shim_gpu_free(c->gpu);
        c->gpu = NULL;
        return;
    }
    c->cells = cells;
    c->steady = c->gpu == NULL ? cells : NULL;
}

struct shim_comm *shim_comm_new_child(const struct shim_comm *c)
{
    struct shim_comm *child = NULL;
    if (c->nchildren < SHIM_MAX_CHILDREN && !shim_comm_is_full()) {
        child = calloc(1, sizeof *child);
    }
    if (child != NULL) {
        child->comm = c->comm;
        child->rank = c->rank;
        child->n = c->n;
    }
    return child;
}

int shim_comm_make_child(struct shim_comm *c, struct shim_comm *child)
{
    if (shim_comm_make_rondo(child, RONDO_CONFIG_DEFAULT) != RONDO_SUCCESS) {
        return 0;
    }
    c->children[c->nchildren++] = child;
    return 1;
}

/* ---- a wrong pairing ---- */

/* The MPI for which this file is compiled. */
static const struct shim_mpi *own_mpi(void)
{
    const struct shim_mpi *own = shim_mpis;
    while (strcmp(own->name, SHIM_MPI) != 0) {
        own++;
    }
    return own;
}

static int is_other_mpi(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    const struct shim_mpi *found = shim_mpi_of(info->dlpi_name);
    (void)bytes;
    if (found == NULL || found == own_mpi()) {
        return 0;
    }
    *(const char **)arg = info->dlpi_name;
    return 1;
}

/* Preloaded by name into a program of another MPI, whose handles mean something else. (librondo_pmpi.so finds
 * the right library itself.) */
static __attribute__((constructor)) void pairing_check(void)
{
    static const char own_name[] = "librondo_pmpi_" SHIM_MPI ".so";
    const char *preloaded = getenv("LD_PRELOAD"), *other = NULL;
    if (preloaded != NULL && strstr(preloaded, own_name) != NULL &&
        dl_iterate_phdr(is_other_mpi, &other) != 0) {
        fprintf(stderr, "%s is for programs of %s, but this one uses %s: preload librondo_pmpi.so instead\n",
                own_name, own_mpi()->text, other);
        _exit(1);
    }
}
