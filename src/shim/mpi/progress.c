/*
 * How MPI's own waits move Rondo's non-blocking calls. What a library offers, best first:
 *   a hook    Open MPI's progress engine runs functions that are registered with it (opal_progress_register,
 *             which its own components use).
 *   a task    MPICH from 4.3 runs a function that MPIX_Async_start began until that says it is done.
 *   nothing   Older MPICH, and libraries of its ABI: the waits of the program are taken over (wait.c,
 *   helper.c).
 *
 * MPICH's MPI_Waitall fails on a generalized request beside a null one, so it is always taken over. MPICH's
 * mpi_f08 waits in functions that cannot be. So a process with its Fortran library leaves the non-blocking
 * calls of its communicators to MPI.
 */
#include "shim/mpi/helper.h"
#include "shim/mpi/mpis.h"
#include "shim/mpi/shim.h"
#include "shim/mpi/wait.def"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

typedef int hook_install(int (*)(void));
typedef int task_start(int (*poll)(void *task), void *state, int stream);
enum { STREAM_NULL = 0x3c000000, TASK_PENDING = 0, TASK_DONE = 1 }; /* of MPICH's mpi.h from 4.3 */

static struct {
    pthread_mutex_t lock;
    hook_install *install;
    task_start *start;
    int running;       /* the hook is installed, or there is a task */
    int waits, starts; /* the program's calls of what waits, and of what starts persistent calls, come here */
} process = { .lock = PTHREAD_MUTEX_INITIALIZER };
int shim_waits_are_taken;

/* Look in the libraries that MPI itself needs: the program may have opened them in a scope of their own. */
static void *mpi_symbol(const char *name)
{
    Dl_info info;
    void *library = dladdr((void *)(uintptr_t)PMPI_Grequest_start, &info) != 0
                        ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
                        : NULL;
    return library != NULL ? dlsym(library, name) : NULL;
}

/* Does the program's call of this function come to Rondo? Not if a tool that comes before it has its own, which
 * calls PMPI. */
static int comes_here(const char *name)
{
    void *function = dlsym(RTLD_DEFAULT, name);
    const ElfW(Sym) *symbol = NULL;
    Dl_info info;
    return function == NULL || dladdr1(function, &info, (void **)&symbol, RTLD_DL_SYMENT) == 0 ||
           (symbol != NULL && symbol->st_shndx == SHN_UNDEF) || /* a program's jump to what comes next */
           shim_file_begins(info.dli_fname, shim_face_prefix);
}

static int all_come_here(const char *const *names, size_t n)
{
    while (n > 0 && comes_here(names[n - 1])) {
        n--;
    }
    return n == 0;
}

/* A tool need not know the calls that make requests, and then hides those that Rondo needs to see. */
static void look_for_tools(void)
{
#define WAIT_(ctx, Name) "MPI_" #Name,
#define COLLECTIVE_(ctx, NAME, name, Name) \
    "MPI_" #Name, "MPI_" #Name "_c", "MPI_" #Name "_init", "MPI_" #Name "_init_c",
    static const char *const waits[] = { SHIM_POLLED_TABLE(WAIT_, ) SHIM_POLLED_LARGE_TABLE(WAIT_, )
                                             SHIM_ASKED_TABLE(WAIT_, ) SHIM_HELPED_TABLE(WAIT_, )
                                                 SHIM_TABLE(COLLECTIVE_, ) "MPI_Comm_disconnect" };
    static const char *const starts[] = { "MPI_Start",      "MPI_Startall",      "MPI_Request_free",
#ifdef OPEN_MPI
                                          "mpi_start_",     "mpi_startall_",     "mpi_request_free_",
                                          "mpi_start_f08_", "mpi_startall_f08_", "mpi_request_free_f08_"
#endif
    };
    process.starts = all_come_here(starts, RONDO_COUNTOF(starts));
    process.waits = shim_waits_are_taken    ? all_come_here(waits, RONDO_COUNTOF(waits))
                    : process.start != NULL ? comes_here("MPI_Waitall")
                                            : 1;
}

static void ways_find(void)
{
#ifdef OPEN_MPI
    void *symbol = mpi_symbol("opal_progress_register");
    memcpy(&process.install, &symbol, sizeof symbol);
#else
    void *symbol = mpi_symbol("PMPIX_Async_start");
    memcpy(&process.start, &symbol, sizeof symbol);
    shim_waits_are_taken = symbol == NULL;
#endif
    look_for_tools();
}

static int is_mpich_fortran(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    static const char *const names[] = { "libmpichfort.so", "libmpifort.so", "libmpichf90.so" };
    (void)bytes, (void)arg;
    for (size_t i = 0; i < RONDO_COUNTOF(names); i++) {
        if (shim_file_begins(info->dlpi_name, names[i])) {
            return 1;
        }
    }
    return 0;
}

static void ways_find_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ways_find);
}

int shim_progress_works(void)
{
    ways_find_once();
    return process.install != NULL || ((process.start != NULL || shim_waits_are_taken) && process.waits &&
                                       dl_iterate_phdr(is_mpich_fortran, NULL) == 0);
}

int shim_starts_are_seen(void)
{
    ways_find_once();
    return process.starts;
}

/* The task ends when nothing is under way, because MPI_Finalize waits for it. */
static int task_poll(void *task)
{
    int ends;
    (void)task;
    shim_move();
    pthread_mutex_lock(&process.lock);
    ends = shim_nrequests() == 0;
    process.running = !ends;
    pthread_mutex_unlock(&process.lock);
    return ends ? TASK_DONE : TASK_PENDING;
}

void shim_progress_begin(void)
{
    if (process.install != NULL && __atomic_load_n(&process.running, __ATOMIC_ACQUIRE)) {
        return; /* a hook stays */
    }
    pthread_mutex_lock(&process.lock);
    int begins = !process.running;
    __atomic_store_n(&process.running, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&process.lock);
    if (begins && process.install != NULL) {
        process.install(shim_move);
    } else if (begins && process.start != NULL) { /* MPI holds a lock of its own there and in task_poll */
        process.start(task_poll, NULL, STREAM_NULL);
    }
}

/* librondo_pmpi.so asks whether a function of wait.def need be ours. The others stay visible to tools. */
int rondo_pmpi_takes(const char *function);
__attribute__((visibility("default"))) int rondo_pmpi_takes(const char *function)
{
    ways_find_once();
    return shim_waits_are_taken || (process.start != NULL && strcmp(function, "MPI_Waitall") == 0);
}
