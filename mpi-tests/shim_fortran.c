/* A library as a Fortran compiler makes it: with a copy of the variable that Open MPI's Fortran takes for
 * MPI_IN_PLACE. Protected, it is the library's own, as it is where a program opens the library, and MPI with
 * it, in a scope of their own. shim_semantics opens it. */
#include <mpi.h>
#include <stddef.h>

__attribute__((visibility("protected"))) MPI_Fint mpi_fortran_in_place_;

void mpi_allreduce_(void *, void *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *)
    __attribute__((weak));
int shim_fortran_sum(int *value);
int mpi_bcast(int value);

/* The library's own: a spelling of Fortran that no compiler here uses. (Its file's name begins as MPI's.) */
int mpi_bcast(int value) { return value + 1; }

/* Sum in place over MPI_COMM_WORLD. @return the error; -1: MPI has no such function here; -2: the
 * library's own function was not called */
int shim_fortran_sum(int *value)
{
    MPI_Fint count = 1, type = MPI_Type_c2f(MPI_INT), op = MPI_Op_c2f(MPI_SUM),
             comm = MPI_Comm_c2f(MPI_COMM_WORLD), error = -1;
    int (*volatile own)(int) = mpi_bcast; /* as the loader finds it */
    if (own(*value) != *value + 1) {
        return -2;
    }
    if (mpi_allreduce_ != NULL) {
        mpi_allreduce_(&mpi_fortran_in_place_, value, &count, &type, &op, &comm, &error);
    }
    return error;
}
