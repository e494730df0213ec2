/*
 * Open MPI's Fortran functions do not call the C functions that a preloaded library could replace, so these
 * take their place: mpif.h and the module mpi call mpi_allreduce_ (or another spelling, by compiler), mpi_f08
 * calls mpi_allreduce_f08_. Buffers are plain addresses in all of them. MPICH's Fortran calls C.
 */
#include "shim/mpi/shim.h"

#ifdef OPEN_MPI
typedef MPI_Fint F;

/* The sentinels of Fortran: variables, whose spelling depends on the compiler too. */
#define SENTINEL(name, NAME)                                                            \
    extern MPI_Fint name __attribute__((weak));                                         \
    extern MPI_Fint name##_ __attribute__((weak));                                      \
    extern MPI_Fint name##__ __attribute__((weak));                                     \
    extern MPI_Fint NAME __attribute__((weak));                                         \
    static int is_##name(const void *p)                                                 \
    {                                                                                   \
        return p != NULL && (p == (const void *)&name##_ || p == (const void *)&name || \
                             p == (const void *)&name##__ || p == (const void *)&NAME); \
    }
SENTINEL(mpi_fortran_in_place, MPI_FORTRAN_IN_PLACE)
SENTINEL(mpi_fortran_bottom, MPI_FORTRAN_BOTTOM)

static void *address(char *p)
{
    return is_mpi_fortran_in_place(p) ? MPI_IN_PLACE : is_mpi_fortran_bottom(p) ? MPI_BOTTOM : p;
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

/* Persistent requests: started and freed by us as well. */
void mpi_start_f08_(F *request, F *ierror);
void mpi_start_f08_(F *request, F *ierror)
{
    MPI_Request handle = PMPI_Request_f2c(*request);
    int code = MPI_Start(&handle);
    if (code == MPI_SUCCESS) {
        *request = PMPI_Request_c2f(handle);
    }
    if (ierror != NULL) {
        *ierror = code;
    }
}
SPELLINGS(mpi_start, MPI_START, F *request COMMA F *ierror)

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

void mpi_request_free_f08_(F *request, F *ierror);
void mpi_request_free_f08_(F *request, F *ierror)
{
    MPI_Request handle = PMPI_Request_f2c(*request);
    int code = MPI_Request_free(&handle);
    if (code == MPI_SUCCESS) {
        *request = PMPI_Request_c2f(handle);
    }
    if (ierror != NULL) {
        *ierror = code;
    }
}
SPELLINGS(mpi_request_free, MPI_REQUEST_FREE, F *request COMMA F *ierror)
#endif
