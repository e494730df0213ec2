/* Opening somebody else's library: plugins for NCCL that a user names. Their code is not Rondo's. */
#ifndef RONDO_BASE_LIBRARY_H
#define RONDO_BASE_LIBRARY_H

#include <stdarg.h>

#include "base/log.h"

/* A kind of plugin. */
struct rondo_library_kind {
    const char *name;   /* "net": "x" is libnccl-net-x.so */
    const char *param;  /* the parameter that names it, for messages */
    uint32_t subsystem; /* RONDO_SUBSYS_*, in whose name it always logs */
};

enum { RONDO_LIBRARY_PATH = 256 };

/**
 * Open the library that the user named: a path, a file name with ".so", or what follows "libnccl-<kind>-" in
 * it. A path must not be writable for others. A bare name that the loader does not find is also looked for
 * beside Rondo's own library.
 * @param path  RONDO_LIBRARY_PATH bytes; becomes the file, for messages.
 * @return an error with a sentence that is not logged: the caller may try another name.
 */
rondo_status rondo_library_open(const struct rondo_library_kind *kind, const char *word, void **library,
                                char *path);

/** Copy a name that a library reports. It appears in messages: what cannot be printed becomes '?'. */
void rondo_library_text(char *to, size_t bytes, const char *from);

/* ---- the log function that a plugin gets ---- */

enum rondo_library_log_level {
    RONDO_LIBRARY_LOG_NONE,
    RONDO_LIBRARY_LOG_VERSION,
    RONDO_LIBRARY_LOG_WARN,
    RONDO_LIBRARY_LOG_INFO,
    RONDO_LIBRARY_LOG_ABORT,
    RONDO_LIBRARY_LOG_TRACE
};
typedef void (*rondo_library_log_fn)(int level, unsigned long subsystems, const char *file, int line,
                                     const char *fmt, ...);
/** The body of such a function: write a line of the plugin to Rondo's log. Warnings of a thread that
 * rondo_library_log_quiet() has set are information. Keeps the last warning of this thread, for an error that
 * follows it. */
void rondo_library_log(const struct rondo_library_kind *kind, int level, unsigned long subsystems,
                       const char *file, int line, const char *fmt, va_list args);
void rondo_library_log_quiet(int on);
/** This thread calls a plugin. @return its last warning since then, "": none. */
void rondo_library_call(void);
const char *rondo_library_warning(void);

#endif
