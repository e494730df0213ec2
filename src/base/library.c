/* Opening plugins for NCCL, and the log function that they get. */
#include "base/library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

/* ---- the log ---- */

static _Thread_local int quiet, warned;

/* NCCL's subsystem bits, in their order; 0: Rondo has no such subsystem. */
static const uint32_t subsystem_of[] = {
    RONDO_SUBSYS_INIT,      RONDO_SUBSYS_COLL,  RONDO_SUBSYS_P2P,     RONDO_SUBSYS_SHM,
    RONDO_SUBSYS_NET,       RONDO_SUBSYS_GRAPH, RONDO_SUBSYS_TUNING,  RONDO_SUBSYS_ENV,
    RONDO_SUBSYS_ALLOC,     RONDO_SUBSYS_CALL,  RONDO_SUBSYS_PROXY,   0 /* NVLS */,
    RONDO_SUBSYS_BOOTSTRAP, RONDO_SUBSYS_REG,   RONDO_SUBSYS_PROFILE, 0 /* RAS */,
    RONDO_SUBSYS_DESTROY,
};

static uint32_t subsystems_of(const struct rondo_library_kind *kind, unsigned long bits)
{
    uint32_t mask = kind->subsystem; /* whatever the plugin says */
    for (size_t i = 0; i < RONDO_COUNTOF(subsystem_of); i++) {
        mask |= bits >> i & 1 ? subsystem_of[i] : 0;
    }
    return mask;
}

void rondo_library_log(const struct rondo_library_kind *kind, int level, unsigned long subsystems,
                       const char *file, int line, const char *fmt, va_list args)
{
    static const enum rondo_log_level levels[] = {
        [RONDO_LIBRARY_LOG_NONE] = RONDO_LOG_TRACE, [RONDO_LIBRARY_LOG_VERSION] = RONDO_LOG_INFO,
        [RONDO_LIBRARY_LOG_WARN] = RONDO_LOG_WARN,  [RONDO_LIBRARY_LOG_INFO] = RONDO_LOG_INFO,
        [RONDO_LIBRARY_LOG_ABORT] = RONDO_LOG_INFO, [RONDO_LIBRARY_LOG_TRACE] = RONDO_LOG_TRACE
    };
    enum rondo_log_level ours = level >= 0 && level < (int)RONDO_COUNTOF(levels) ? levels[level]
                                                                                 : RONDO_LOG_TRACE;
    char text[RONDO_ERROR_TEXT];
    uint32_t mask = subsystems_of(kind, subsystems);
    ours = quiet && ours == RONDO_LOG_WARN ? RONDO_LOG_INFO : ours;
    if (ours != RONDO_LOG_WARN && !rondo_log_on(ours, mask)) {
        return;
    }
    vsnprintf(text, sizeof text, fmt, args);
    text[strcspn(text, "\n")] = '\0';
    if (ours == RONDO_LOG_WARN) {
        struct rondo_thread_texts *texts = rondo_thread_texts_get();
        snprintf(texts->plugin_warning, sizeof texts->plugin_warning, "%.*s",
                 (int)sizeof texts->plugin_warning - 1, text);
        warned = 1;
    }
    if (rondo_log_on(ours, mask)) {
        rondo_log_print(ours, "%s plugin: %s (%s:%d)", kind->name, text, file != NULL ? file : "", line);
    }
}

void rondo_library_log_quiet(int on) { quiet = on; }

void rondo_library_call(void) { warned = 0; }

const char *rondo_library_warning(void) { return warned ? rondo_thread_texts_get()->plugin_warning : ""; }

void rondo_library_text(char *to, size_t bytes, const char *from)
{
    snprintf(to, bytes, "%s", from != NULL ? from : "");
    for (char *c = to; *c != '\0'; c++) {
        *c = *c < ' ' || *c == 127 ? '?' : *c;
    }
}

/* ---- the library ---- */

/* "aws-ofi" is libnccl-net-aws-ofi.so; a word with a slash or ".so" is used unchanged. */
static rondo_status file_of(const struct rondo_library_kind *kind, const char *word, char *file, size_t bytes)
{
    int whole = strchr(word, '/') != NULL || strstr(word, ".so") != NULL;
    int n = whole ? snprintf(file, bytes, "%s", word)
                  : snprintf(file, bytes, "libnccl-%s-%s.so", kind->name, word);
    return n > 0 && (size_t)n < bytes
               ? RONDO_SUCCESS
               : rondo_fail_quiet(RONDO_INVALID_ARGUMENT,
                                  "the name of a %s plugin in %s is longer than %zu bytes: %.40s...",
                                  kind->name, kind->param, bytes - 1, word);
}

static int others_write(const struct stat *info)
{
    return (info->st_mode & S_IWOTH) != 0 && (info->st_mode & S_ISVTX) == 0;
}

/* The user chose a path: check that nobody else can put code there. */
static rondo_status path_check(const struct rondo_library_kind *kind, const char *path)
{
    struct stat file, folder;
    char parent[RONDO_LIBRARY_PATH];
    if (strchr(path, '/') == NULL) {
        return RONDO_SUCCESS; /* found on the loader's path: whoever can write there can do anything anyway */
    }
    snprintf(parent, sizeof parent, "%.*s/.", (int)(strrchr(path, '/') - path), path);
    if (stat(path, &file) != 0 || stat(parent, &folder) != 0) {
        return rondo_fail_quiet(RONDO_INVALID_ARGUMENT, "the %s plugin %s of %s cannot be read on %s: %m",
                                kind->name, path, kind->param, rondo_log_host());
    }
    if (!S_ISREG(file.st_mode) || (file.st_mode & S_IWOTH) != 0 || others_write(&folder) ||
        (file.st_uid != 0 && file.st_uid != geteuid())) {
        return rondo_fail_quiet(RONDO_INVALID_ARGUMENT,
                                "the %s plugin %s of %s is not loaded on %s: it must be a "
                                "file of yours or root's that others "
                                "cannot write, in a folder that others cannot write (chmod o-w)",
                                kind->name, path, kind->param, rondo_log_host());
    }
    return RONDO_SUCCESS;
}

/* Rondo's own plugins are installed beside its library, where the loader may not look. */
static void *open_beside(const char *file)
{
    Dl_info own;
    char path[2 * RONDO_LIBRARY_PATH];
    const char *slash;
    if (strchr(file, '/') != NULL || dladdr(&subsystem_of, &own) == 0 || own.dli_fname == NULL ||
        (slash = strrchr(own.dli_fname, '/')) == NULL) {
        return NULL;
    }
    if ((size_t)snprintf(path, sizeof path, "%.*s/%s", (int)(slash - own.dli_fname), own.dli_fname, file) >=
            sizeof path ||
        access(path, R_OK) != 0) {
        return NULL;
    }
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

rondo_status rondo_library_open(const struct rondo_library_kind *kind, const char *word, void **library,
                                char *path)
{
    char file[RONDO_LIBRARY_PATH], why[RONDO_ERROR_TEXT / 2];
    struct link_map *map;
    RONDO_TRY(file_of(kind, word, file, sizeof file));
    RONDO_TRY(path_check(kind, file));
    *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (*library == NULL) {
        snprintf(why, sizeof why, "%s", dlerror());
        *library = open_beside(file);
    }
    if (*library == NULL) {
        return rondo_fail_quiet(RONDO_SYSTEM_ERROR,
                                "the %s plugin %s cannot be opened on %s (%s); check LD_LIBRARY_PATH and %s",
                                kind->name, file, rondo_log_host(), why, kind->param);
    }
    snprintf(path, RONDO_LIBRARY_PATH, "%s",
             dlinfo(*library, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : file);
    return RONDO_SUCCESS;
}
