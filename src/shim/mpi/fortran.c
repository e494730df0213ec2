/*
 * Open MPI's Fortran functions do not call the C functions that a preloaded library could replace, so these
 * take their place: mpif.h and the module mpi call mpi_allreduce_ (or another spelling, by compiler), mpi_f08
 * calls mpi_allreduce_f08_. Buffers are plain addresses in all of them. MPICH's Fortran calls C.
 */
#include "shim/mpi/shim.h"

#ifdef OPEN_MPI
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

typedef MPI_Fint F;

/*
 * The sentinels of Fortran are variables, spelled as the compiler does. Open MPI has them, and each Fortran
 * library has a copy (a common block). In a scope of its own, as Python's extensions have, a library and Open
 * MPI's Fortran use that copy. So all copies count. They are looked for again when a library was loaded.
 */
enum { SPELLINGS_EACH = 4, MOST_COPIES = 64, PLAIN = 64 };
struct sentinel {
    const char *name[SPELLINGS_EACH];
    const void *copy[MOST_COPIES];
    int n; /* atomic: copies are added only */
};
#define SENTINEL(name, NAME)                                 \
    {                                                        \
        { #name "_", #name, #name "__", #NAME }, { NULL }, 0 \
    }
static struct sentinel in_place = SENTINEL(mpi_fortran_in_place, MPI_FORTRAN_IN_PLACE),
                       bottom = SENTINEL(mpi_fortran_bottom, MPI_FORTRAN_BOTTOM);
static pthread_mutex_t copies_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long long looked; /* dlpi_adds when all libraries were looked at; atomic */
static const void *plain[PLAIN];  /* buffers that are no sentinels, by address; atomic */

static int is_copy(const struct sentinel *s, const void *p)
{
    int i = __atomic_load_n(&s->n, __ATOMIC_ACQUIRE) - 1;
    while (i >= 0 && s->copy[i] != p) {
        i--;
    }
    return i >= 0;
}

static void add_copies(struct sentinel *s, void *library)
{
    for (int i = 0; i < SPELLINGS_EACH; i++) {
        const void *p = dlsym(library, s->name[i]);
        pthread_mutex_lock(&copies_lock); /* the loader's locks are never waited for in it */
        if (p != NULL && !is_copy(s, p) && s->n < MOST_COPIES) {
            s->copy[s->n] = p;
            __atomic_store_n(&s->n, s->n + 1, __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&copies_lock);
    }
}

static int look_into(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    void *library = dlopen(info->dlpi_name[0] != '\0' ? info->dlpi_name : NULL, RTLD_LAZY | RTLD_NOLOAD);
    (void)bytes;
    if (library != NULL) {
        add_copies(&in_place, library);
        add_copies(&bottom, library);
        dlclose(library);
    }
    *(unsigned long long *)arg = info->dlpi_adds;
    return 0;
}

static int count_libraries(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    (void)bytes;
    *(unsigned long long *)arg = info->dlpi_adds;
    return 1; /* the first says how many have been loaded */
}

static void look_for_copies(void)
{
    unsigned long long now = 0;
    dl_iterate_phdr(count_libraries, &now);
    if (__atomic_load_n(&looked, __ATOMIC_ACQUIRE) != now) {
        dl_iterate_phdr(look_into, &now);
        __atomic_store_n(&looked, now, __ATOMIC_RELEASE);
    }
}

/* @return MPI's sentinel; else p */
static void *known(void *p)
{
    return is_copy(&in_place, p) ? MPI_IN_PLACE : is_copy(&bottom, p) ? MPI_BOTTOM : p;
}

static void *address(char *p)
{
    const void **same = &plain[((uintptr_t)p >> 6) % PLAIN];
    void *to = known(p);
    if (to != p || p == NULL || __atomic_load_n(same, __ATOMIC_RELAXED) == p) {
        return to;
    }
    look_for_copies();
    to = known(p);
    if (to == p) {
        __atomic_store_n(same, p, __ATOMIC_RELAXED);
    }
    return to;
}
#define BUF(p) address(p)
#define TYPE(f) PMPI_Type_f2c(*(f))
#define OP(f) PMPI_Op_f2c(*(f))
#define COMM(f) PMPI_Comm_f2c(*(f))

/* ierror is optional in mpi_f08. */
#define SPELLINGS(name, NAME, params)                            \
    void name(params) __attribute__((alias(#name "_f08_")));     \
    void name##_(params) __attribute__((alias(#name "_f08_")));  \
    void name##__(params) __attribute__((alias(#name "_f08_"))); \
    void NAME(params) __attribute__((alias(#name "_f08_")));
#define COMMA ,

#define FORTRAN_BLOCKING(NAME, name, Name)                  \
    void mpi_##name##_f08_(SHIM_FPARAMS_##NAME, F *ierror); \
    void mpi_##name##_f08_(SHIM_FPARAMS_##NAME, F *ierror)  \
    {                                                       \
        int code = MPI_##Name(SHIM_FARGS_##NAME);           \
        if (ierror != NULL) {                               \
            *ierror = code;                                 \
        }                                                   \
    }                                                       \
    SPELLINGS(mpi_##name, MPI_##NAME, SHIM_FPARAMS_##NAME COMMA F *ierror)

#define FORTRAN_REQUEST(NAME, name)                                      \
    void mpi_i##name##_f08_(SHIM_FPARAMS_##NAME, F *request, F *ierror); \
    void mpi_i##name##_f08_(SHIM_FPARAMS_##NAME, F *request, F *ierror)  \
    {                                                                    \
        MPI_Request made;                                                \
        int code = MPI_I##name(SHIM_FARGS_##NAME, &made);                \
        if (code == MPI_SUCCESS) {                                       \
            *request = PMPI_Request_c2f(made);                           \
        }                                                                \
        if (ierror != NULL) {                                            \
            *ierror = code;                                              \
        }                                                                \
    }                                                                    \
    SPELLINGS(mpi_i##name, MPI_I##NAME, SHIM_FPARAMS_##NAME COMMA F *request COMMA F *ierror)

#define FORTRAN_INIT(NAME, X, x, name, Name)                                          \
    void x##_##name##_init_f08_(SHIM_FPARAMS_##NAME, F *info, F *request, F *ierror); \
    void x##_##name##_init_f08_(SHIM_FPARAMS_##NAME, F *info, F *request, F *ierror)  \
    {                                                                                 \
        MPI_Request made;                                                             \
        int code = X##_##Name##_init(SHIM_FARGS_##NAME, PMPI_Info_f2c(*info), &made); \
        if (code == MPI_SUCCESS) {                                                    \
            *request = PMPI_Request_c2f(made);                                        \
        }                                                                             \
        if (ierror != NULL) {                                                         \
            *ierror = code;                                                           \
        }                                                                             \
    }                                                                                 \
    SPELLINGS(x##_##name##_init, X##_##NAME##_INIT,                                   \
              SHIM_FPARAMS_##NAME COMMA F *info COMMA F *request COMMA F *ierror)

#define ROW_(ctx, NAME, name, Name)    \
    FORTRAN_BLOCKING(NAME, name, Name) \
    FORTRAN_REQUEST(NAME, name)
SHIM_TABLE(ROW_, )

#ifdef SHIM_PERSISTENT
#if OMPI_MAJOR_VERSION >= 5
#define INIT_ROW_(ctx, NAME, name, Name) FORTRAN_INIT(NAME, MPI, mpi, name, Name)
#else
#define INIT_ROW_(ctx, NAME, name, Name) FORTRAN_INIT(NAME, MPIX, mpix, name, Name)
#endif
SHIM_TABLE(INIT_ROW_, )
#endif

/* Functions of one handle: persistent requests are started and freed by us as well, and communicators freed. */
#define FORTRAN_HANDLE(name, NAME, Name, Type)      \
    void mpi_##name##_f08_(F *at, F *ierror);       \
    void mpi_##name##_f08_(F *at, F *ierror)        \
    {                                               \
        MPI_##Type handle = PMPI_##Type##_f2c(*at); \
        int code = MPI_##Name(&handle);             \
        if (code == MPI_SUCCESS) {                  \
            *at = PMPI_##Type##_c2f(handle);        \
        }                                           \
        if (ierror != NULL) {                       \
            *ierror = code;                         \
        }                                           \
    }                                               \
    SPELLINGS(mpi_##name, MPI_##NAME, F *at COMMA F *ierror)

FORTRAN_HANDLE(start, START, Start, Request)
FORTRAN_HANDLE(request_free, REQUEST_FREE, Request_free, Request)
FORTRAN_HANDLE(comm_free, COMM_FREE, Comm_free, Comm)
FORTRAN_HANDLE(comm_disconnect, COMM_DISCONNECT, Comm_disconnect, Comm)

void mpi_startall_f08_(F *count, F *requests, F *ierror);
void mpi_startall_f08_(F *count, F *requests, F *ierror)
{
    int code = MPI_SUCCESS;
    for (F i = 0; i < *count && code == MPI_SUCCESS; i++) {
        mpi_start_f08_(&requests[i], &code);
    }
    if (ierror != NULL) {
        *ierror = code;
    }
}
SPELLINGS(mpi_startall, MPI_STARTALL, F *count COMMA F *requests COMMA F *ierror)
#endif
