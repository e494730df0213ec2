/* Which MPI a library that the process has loaded belongs to. */
#ifndef RONDO_SHIM_MPI_MPIS_H
#define RONDO_SHIM_MPI_MPIS_H

#include <string.h>
#include "base/mpis.def"
#include "base/types.h"

struct shim_mpi {
    const char *name, *text, *files; /* base/mpis.def */
};

static const struct shim_mpi shim_mpis[] = {
#define SHIM_MPI_ROW_(ctx, name, text, files, variables) { #name, text, files },
    RONDO_MPIS(SHIM_MPI_ROW_, )
#undef SHIM_MPI_ROW_
};

static inline int shim_file_begins(const char *path, const char *prefix)
{
    const char *slash = strrchr(path, '/'), *file = slash != NULL ? slash + 1 : path;
    return strncmp(file, prefix, strlen(prefix)) == 0;
}
static const char shim_face_prefix[] = "librondo_pmpi"; /* of the faces, and of what opens them */

/** Find the MPI whose library has this path; its version may be longer (libmpi.so.40.30.4).
 * @return NULL: none */
static inline const struct shim_mpi *shim_mpi_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *file = slash != NULL ? slash + 1 : path;
    for (size_t i = 0; i < RONDO_COUNTOF(shim_mpis); i++) {
        for (const char *at = shim_mpis[i].files; *at != '\0'; at += *at == ',') {
            size_t length = strcspn(at, ",");
            if (strncmp(file, at, length) == 0 && (file[length] == '\0' || file[length] == '.')) {
                return &shim_mpis[i];
            }
            at += length;
        }
    }
    return NULL;
}

#endif
