/*
 * librondo_nccl_audit.so, for LD_AUDIT: whenever the loader looks for an NCCL library, by soname or by path,
 * it gets the libnccl.so.2 beside this file. It needs nothing but the C library, because the loader gives an
 * auditor a name space of its own.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define AUDIT_ __attribute__((visibility("default")))

static char ours[4096];

static const char *file_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

AUDIT_ unsigned int la_version(unsigned int version)
{
    Dl_info info;
    if (dladdr(ours, &info) != 0) {
        int folder = (int)(file_of(info.dli_fname) - info.dli_fname);
        int n = snprintf(ours, sizeof(ours), "%.*slibnccl.so.2", folder, info.dli_fname);
        if (n < 0 || (size_t)n >= sizeof(ours)) {
            ours[0] = '\0';
        }
    }
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

AUDIT_ char *la_objsearch(const char *name, uintptr_t *cookie, unsigned int flag)
{
    const char *file = file_of(name);
    (void)cookie, (void)flag;
    if (ours[0] != '\0' && (strcmp(file, "libnccl.so.2") == 0 || strcmp(file, "libnccl.so") == 0)) {
        return ours;
    }
    return (char *)(uintptr_t)name; /* the interface has no const */
}
