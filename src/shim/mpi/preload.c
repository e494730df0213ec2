/*
 * librondo_pmpi.so, which a user preloads: it finds out which MPI the process uses, opens the face that was
 * built for it (librondo_pmpi_openmpi.so, say, beside this file; base/mpis.def has the MPIs), and jumps
 * there. It needs no MPI itself, so that launchers and shells that inherit LD_PRELOAD take no notice. It does
 * need librondo.so, whose thread-local variables have to be there when the process starts.
 *
 * Its functions have the names of MPI's and know nothing of their arguments: each jumps to what its slot
 * holds. At first that is a function that fills the slot: most programs call few of them. Where there is no
 * face for the MPI, a slot holds the MPI library's own function.
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "shim/mpi/mpis.h"
#include "shim/mpi/shim.def"
#include "shim/mpi/wait.def"

/* Y(function) for every name of a row. */
#define FORTRAN_(Y, name, NAME) Y(name) Y(name##_) Y(name##__) Y(NAME) Y(name##_f08_)
#define NAMES_(Y, NAME, name, Name)                                        \
    Y(MPI_##Name)                                                          \
    Y(MPI_I##name)                                                         \
    FORTRAN_(Y, mpi_##name, MPI_##NAME)                                    \
    FORTRAN_(Y, mpi_i##name, MPI_I##NAME)                                  \
    LARGE_##NAME(Y, name, Name) Y(MPI_##Name##_init) Y(MPIX_##Name##_init) \
        FORTRAN_(Y, mpi_##name##_init, MPI_##NAME##_INIT)                  \
            FORTRAN_(Y, mpix_##name##_init, MPIX_##NAME##_INIT)
#define LARGE_(Y, name, Name) Y(MPI_##Name##_c) Y(MPI_I##name##_c) Y(MPI_##Name##_init_c)
#define LARGE_ALLGATHER(Y, name, Name) LARGE_(Y, name, Name)
#define LARGE_ALLGATHERV(Y, name, Name) LARGE_(Y, name, Name)
#define LARGE_ALLREDUCE(Y, name, Name) LARGE_(Y, name, Name)
#define LARGE_ALLTOALL(Y, name, Name) LARGE_(Y, name, Name)
#define LARGE_ALLTOALLV(Y, name, Name) LARGE_(Y, name, Name)
#define LARGE_BARRIER(Y, name, Name)
#define LARGE_BCAST(Y, name, Name) LARGE_(Y, name, Name)
#define LARGE_GATHER(Y, name, Name) LARGE_(Y, name, Name)
#define LARGE_GATHERV(Y, name, Name) LARGE_(Y, name, Name)
#define LARGE_REDUCE(Y, name, Name) LARGE_(Y, name, Name)
#define LARGE_REDUCE_SCATTER(Y, name, Name) LARGE_(Y, name, Name)
#define LARGE_REDUCE_SCATTER_BLOCK(Y, name, Name) LARGE_(Y, name, Name)
#define LARGE_SCATTER(Y, name, Name) LARGE_(Y, name, Name)
#define LARGE_SCATTERV(Y, name, Name) LARGE_(Y, name, Name)

#define EACH_(Y, NAME, name, Name) NAMES_(Y, NAME, name, Name)
#define WAIT_(Y, Name) Y(MPI_##Name)
/* Y(function) for every function, but those that begin MPI. */
#define EVERY_(Y) SHIM_TABLE(EACH_, Y) STARTS_(Y) FREES_(Y) WAITS_(Y)
#define INITS_(Y)                   \
    Y(MPI_Init)                     \
    Y(MPI_Init_thread)              \
    FORTRAN_(Y, mpi_init, MPI_INIT) \
    FORTRAN_(Y, mpi_init_thread, MPI_INIT_THREAD)
#define STARTS_(Y)                    \
    Y(MPI_Start)                      \
    Y(MPI_Startall)                   \
    Y(MPI_Request_free)               \
    FORTRAN_(Y, mpi_start, MPI_START) \
    FORTRAN_(Y, mpi_startall, MPI_STARTALL) FORTRAN_(Y, mpi_request_free, MPI_REQUEST_FREE)
#define FREES_(Y)                             \
    Y(MPI_Comm_free)                          \
    Y(MPI_Comm_disconnect)                    \
    FORTRAN_(Y, mpi_comm_free, MPI_COMM_FREE) \
    FORTRAN_(Y, mpi_comm_disconnect, MPI_COMM_DISCONNECT)
#define WAITS_(Y)               \
    SHIM_POLLED_TABLE(WAIT_, Y) \
    SHIM_POLLED_LARGE_TABLE(WAIT_, Y) SHIM_ASKED_TABLE(WAIT_, Y) SHIM_HELPED_TABLE(WAIT_, Y)

typedef shim_any_function *any_function;

#define SLOT_(function)                           \
    static int first_##function(SHIM_ANY_PARAMS); \
    any_function shim_at_##function __attribute__((visibility("hidden"))) = first_##function;
EVERY_(SLOT_)

/* The MPI of the process. */
static struct {
    const char *name; /* of Rondo's library */
    char path[4096];  /* of MPI's */
} mpi;

static int library_is_mpi(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    const struct shim_mpi *found = shim_mpi_of(info->dlpi_name);
    (void)bytes, (void)arg;
    if (found == NULL) {
        return 0;
    }
    mpi.name = found->name;
    snprintf(mpi.path, sizeof mpi.path, "%s", info->dlpi_name);
    return 1;
}

/* Open the face for the MPI, from the folder of this library. */
static void *face_open(void)
{
    char path[4200];
    Dl_info info;
    if (mpi.name == NULL || dladdr(&mpi, &info) == 0) {
        RONDO_WARN(
            "librondo_pmpi.so: the program uses an MPI that Rondo does not know (it knows libmpi.so.40, "
            "libmpi.so.12 and libmpi_abi.so.1); MPI carries all calls");
        return NULL;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    snprintf(path, sizeof path, "%.*slibrondo_pmpi_%s.so",
             slash != NULL ? (int)(slash - info.dli_fname + 1) : 0, info.dli_fname, mpi.name);
    void *face = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (face == NULL) {
        RONDO_WARN(
            "librondo_pmpi.so: there is no face for this program's MPI (%s): %s; MPI carries all calls",
            mpi.path, dlerror());
    }
    return face;
}

struct search {
    const char *name;
    void *found;
};

static int library_has(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    struct search *search = arg;
    Dl_info where;
    (void)bytes;
    void *library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = library != NULL ? dlsym(library, search->name) : NULL;
    if (symbol != NULL && dladdr(symbol, &where) != 0 &&
        !shim_file_begins(where.dli_fname, shim_face_prefix)) {
        search->found = symbol;
    }
    if (library != NULL) {
        dlclose(library);
    }
    return search->found != NULL;
}

/* MPI's own function, which may be in a scope that the program opened. */
static void *own_function(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) {
        struct search search = { name, NULL };
        dl_iterate_phdr(library_has, &search);
        found = search.found;
    }
    return found;
}

static int missing(SHIM_ANY_PARAMS)
{
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h, (void)i, (void)j, (void)k,
        (void)l;
    fprintf(stderr, "librondo_pmpi.so: the program called a function that its MPI (%s) does not have\n",
            mpi.path);
    abort();
}

static void *face;                 /* NULL: there is none */
static int (*takes)(const char *); /* of the face: does it need this one of MPI's waits? */
static void (*begun)(void);        /* of the face: MPI has been initialised */

static void face_find(void)
{
    void *symbol;
    dl_iterate_phdr(library_is_mpi, NULL);
    face = face_open();
    symbol = face != NULL ? dlsym(face, "rondo_pmpi_takes") : NULL;
    memcpy(&takes, &symbol, sizeof takes);
    symbol = face != NULL ? dlsym(face, "rondo_pmpi_begun") : NULL;
    memcpy(&begun, &symbol, sizeof begun);
}
static pthread_once_t face_once = PTHREAD_ONCE_INIT;

/* Names that a library's own C functions may have: Fortran's without an underscore. */
static int is_bare(const char *name)
{
    size_t length = strlen(name);
    return name[length - 1] != '_' && (name[0] == 'm' || strpbrk(name, "abcdefghijklmnopqrstuvwxyz") == NULL);
}

/* MPI's library has the name with a P before it, too. */
static int is_mpis(void *function, const char *name)
{
    char profiled[80];
    Dl_info info, other;
    snprintf(profiled, sizeof profiled, "%c%s", name[0] == 'm' ? 'p' : 'P', name);
    if (dladdr(function, &info) == 0) {
        return 1;
    }
    void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = library != NULL ? dlsym(library, profiled) : NULL; /* there, or in what it needs */
    if (library != NULL) {
        dlclose(library);
    }
    return symbol != NULL && dladdr(symbol, &other) != 0 && other.dli_fbase == info.dli_fbase;
}

/* @return such a function, which the program means where it does not load MPI's before it; else NULL */
static void *program_function(const char *name)
{
    void *found = is_bare(name) ? own_function(name) : NULL;
    return found != NULL && !is_mpis(found, name) ? found : NULL;
}

/* Waits that the face does not need stay as they were. @return what the slot holds now */
static any_function slot_fill(const char *name, any_function *slot, int is_wait)
{
    any_function function = missing;
    void *symbol = NULL;
    pthread_once(&face_once, face_find);
    symbol = program_function(name);
    if (symbol == NULL && face != NULL && (!is_wait || (takes != NULL && takes(name)))) {
        symbol = dlsym(face, name);
    }
    if (symbol == NULL) {
        symbol = own_function(name);
    }
    if (symbol != NULL) {
        memcpy(&function, &symbol, sizeof function);
    }
    __atomic_store_n(slot, function, __ATOMIC_RELEASE);
    return function;
}

#define FIRST_AS_(function, is_wait)                                              \
    static int first_##function(SHIM_ANY_PARAMS)                                  \
    {                                                                             \
        return slot_fill(#function, &shim_at_##function, is_wait)(SHIM_ANY_ARGS); \
    }
#define FIRST_(function) FIRST_AS_(function, 0)
#define FIRST_WAIT_(function) FIRST_AS_(function, 1)
SHIM_TABLE(EACH_, FIRST_)
STARTS_(FIRST_)
FREES_(FIRST_)
WAITS_(FIRST_WAIT_)

/* The entries. A jump leaves the arguments where they are; elsewhere the compiler passes on all that there
 * could be. */
#ifdef __x86_64__
#define ENTRY_(function)                                                                    \
    __asm__(".text\n.globl " #function "\n.type " #function ", @function\n" #function ":\n" \
            "\tjmp *shim_at_" #function "(%rip)\n.size " #function ", . - " #function "\n");
#else
#define ENTRY_(function)           \
    int function(SHIM_ANY_PARAMS); \
    int function(SHIM_ANY_PARAMS) { return shim_at_##function(SHIM_ANY_ARGS); }
#endif
EVERY_(ENTRY_)

/* MPI's own functions begin MPI, or those of a tool behind this library. */
static int begin(const char *name, SHIM_ANY_PARAMS)
{
    any_function function = missing;
    pthread_once(&face_once, face_find);
    void *symbol = own_function(name);
    if (symbol != NULL) {
        memcpy(&function, &symbol, sizeof function);
    }
    int code = function(SHIM_ANY_ARGS);
    if (begun != NULL) {
        begun();
    }
    return code;
}
#define BEGIN_(function)           \
    int function(SHIM_ANY_PARAMS); \
    int function(SHIM_ANY_PARAMS) { return begin(#function, SHIM_ANY_ARGS); }
INITS_(BEGIN_)
