/* Functions passed to a net plugin: the log, and a profiler that ignores all events. */
#include "net/plugin/plugin.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

static _Thread_local char warning[160];
static _Thread_local int quiet;

/* NCCL's subsystem bits, in their order; 0: Rondo has no such subsystem. */
static const uint32_t subsystem_of[] = {
    RONDO_SUBSYS_INIT,      RONDO_SUBSYS_COLL,  RONDO_SUBSYS_P2P,     RONDO_SUBSYS_SHM,
    RONDO_SUBSYS_NET,       RONDO_SUBSYS_GRAPH, RONDO_SUBSYS_TUNING,  RONDO_SUBSYS_ENV,
    RONDO_SUBSYS_ALLOC,     RONDO_SUBSYS_CALL,  RONDO_SUBSYS_PROXY,   0 /* NVLS */,
    RONDO_SUBSYS_BOOTSTRAP, RONDO_SUBSYS_REG,   RONDO_SUBSYS_PROFILE, 0 /* RAS */,
    RONDO_SUBSYS_DESTROY,
};

static uint32_t subsystems_of(unsigned long bits)
{
    uint32_t mask = RONDO_SUBSYS_NET; /* always NET, whatever the plugin says */
    for (size_t i = 0; i < RONDO_COUNTOF(subsystem_of); i++) {
        mask |= bits >> i & 1 ? subsystem_of[i] : 0;
    }
    return mask;
}

void rondo_plugin_log(int level, unsigned long subsystems, const char *file, int line, const char *fmt, ...)
{
    static const enum rondo_log_level levels[] = {
        [RONDO_PLUGIN_LOG_NONE] = RONDO_LOG_TRACE, [RONDO_PLUGIN_LOG_VERSION] = RONDO_LOG_INFO,
        [RONDO_PLUGIN_LOG_WARN] = RONDO_LOG_WARN,  [RONDO_PLUGIN_LOG_INFO] = RONDO_LOG_INFO,
        [RONDO_PLUGIN_LOG_ABORT] = RONDO_LOG_INFO, [RONDO_PLUGIN_LOG_TRACE] = RONDO_LOG_TRACE
    };
    enum rondo_log_level ours = level >= 0 && level < (int)RONDO_COUNTOF(levels) ? levels[level]
                                                                                 : RONDO_LOG_TRACE;
    char text[RONDO_ERROR_TEXT];
    va_list args;
    ours = quiet && ours == RONDO_LOG_WARN ? RONDO_LOG_INFO : ours;
    if (ours != RONDO_LOG_WARN && !rondo_log_on(ours, subsystems_of(subsystems))) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    text[strcspn(text, "\n")] = '\0';
    if (ours == RONDO_LOG_WARN) {
        snprintf(warning, sizeof warning, "%.*s", (int)sizeof warning - 1, text);
    }
    if (rondo_log_on(ours, subsystems_of(subsystems))) {
        rondo_log_print(ours, "net plugin: %s (%s:%d)", text, file != NULL ? file : "", line);
    }
}

void rondo_plugin_log_quiet(int on) { quiet = on; }

const char *rondo_plugin_warning(void) { return warning; }

int rondo_plugin_profile(void **event, int what, void *parent, int64_t kind, void *more)
{
    (void)what, (void)parent, (void)kind, (void)more;
    if (event != NULL) {
        *event = NULL;
    }
    return 0;
}
