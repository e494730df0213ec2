/* The programs of Rondo that run under mpirun or srun: benchmarks and the MPI halves of the tools. They are
 * not on PATH, because one prefix may hold them for several MPIs: libexec/rondo/openmpi, libexec/rondo/mpich
 * and so on. */
#ifndef RONDO_TOOLS_LIBEXEC_H
#define RONDO_TOOLS_LIBEXEC_H

#include <limits.h>

/**
 * Find the folder of the programs for an MPI: that of the running program in a build tree, else the one in
 * libexec, by a path relative to the running program, so that a tree may be moved.
 * @param mpi   the MPI's name; NULL: the one whose launcher started this process, else the one that is
 *              installed, else the first of base/mpis.def
 * @param name  a program that the folder must hold
 * @return 0, or -1 after a message on stderr in the name of @a program
 */
int libexec_find(const char *program, const char *mpi, const char *name, char folder[PATH_MAX]);
/** Become the program @a name with the arguments @a argv. Returns only after a failure and its message, with
 * the exit status. */
int libexec_become(const char *program, const char *mpi, const char *name, char **argv);

#endif
