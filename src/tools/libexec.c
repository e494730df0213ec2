#include "tools/libexec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/mpis.def"
#include "base/types.h"
#include "tools/tool.h"

struct mpi {
    const char *name, *variables;
};

static const struct mpi mpis[] = {
#define ROW(ctx, name, text, files, variables) { #name, variables },
    RONDO_MPIS(ROW, )
#undef ROW
};

/* The folder of the running program. */
static int own_folder(char folder[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    char *slash;
    folder[n > 0 ? n : 0] = '\0';
    slash = strrchr(folder, '/');
    if (slash == NULL) {
        return -1;
    }
    *slash = '\0';
    return 0;
}

static int holds(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && access(path, X_OK) == 0;
}

/* Did this MPI's launcher start the process? */
static int launched_by(const struct mpi *mpi)
{
    char name[32];
    for (const char *at = mpi->variables; *at; at += *at == ',') {
        size_t n = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        if (getenv(name) != NULL) {
            return 1;
        }
        at += n;
    }
    return 0;
}

static int in_libexec(const char *own, const struct mpi *mpi, const char *name, char folder[PATH_MAX])
{
    const char *base = RONDO_LIBEXEC[0] == '/' ? "" : own;
    int n = snprintf(folder, PATH_MAX, "%s%s%s/%s", base, base[0] ? "/" : "", RONDO_LIBEXEC, mpi->name);
    return n < PATH_MAX && holds(folder, name);
}

/* Of the MPIs that have the program here: the one whose launcher started this process, else the first. */
static int choose(const char *own, const char *name, char folder[PATH_MAX])
{
    const struct mpi *best = NULL;
    for (size_t i = RONDO_COUNTOF(mpis); i-- > 0;) {
        int better = best == NULL || launched_by(&mpis[i]) || !launched_by(best);
        best = in_libexec(own, &mpis[i], name, folder) && better ? &mpis[i] : best;
    }
    return best != NULL && in_libexec(own, best, name, folder);
}

int libexec_find(const char *program, const char *mpi, const char *name, char folder[PATH_MAX])
{
    char own[PATH_MAX];
    if (own_folder(own) != 0) {
        fprintf(stderr, "%s: cannot find the folder of this program: %s\n", program, strerror(errno));
        return -1;
    }
    for (size_t i = 0; mpi != NULL && i < RONDO_COUNTOF(mpis); i++) {
        if (strcmp(mpi, mpis[i].name) == 0 && in_libexec(own, &mpis[i], name, folder)) {
            return 0;
        }
    }
    if (mpi == NULL && holds(own, name)) { /* the build tree */
        memcpy(folder, own, PATH_MAX);
        return 0;
    }
    if (mpi == NULL && choose(own, name, folder)) {
        return 0;
    }
    fprintf(stderr, "%s: %s is not installed%s%s (looked in %s/%s); was Rondo built with this MPI?\n",
            program, name, mpi != NULL ? " for " : "", mpi != NULL ? mpi : "", own, RONDO_LIBEXEC);
    return -1;
}

int libexec_become(const char *program, const char *mpi, const char *name, char **argv)
{
    char folder[PATH_MAX], path[PATH_MAX];
    if (libexec_find(program, mpi, name, folder) != 0) {
        return TOOL_FAILED;
    }
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
    } else {
        execv(path, argv);
    }
    fprintf(stderr, "%s: cannot run %s: %s\n", program, path, strerror(errno));
    return TOOL_FAILED;
}
