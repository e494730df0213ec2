/*
 * Logging. The levels are NCCL's: NONE, VERSION, WARN, INFO, TRACE (RONDO_DEBUG). RONDO_DEBUG_SUBSYS selects
 * subsystems ("INIT,NET", "^COLL", "ALL"), RONDO_DEBUG_FILE the file (%h: host, %p: pid; default stderr). A
 * line reads "<time> <host>:<pid>:<tid> [<rank>] RONDO <LEVEL> <text>" and is written by one write(2), so
 * that lines of threads and ranks never mix. The time is UTC, "2026-11-24T14:37:42.123Z". The rank is left
 * out before the first communicator, and where a process has several. A disabled line costs one load and a
 * branch.
 */
#ifndef RONDO_BASE_LOG_H
#define RONDO_BASE_LOG_H

#include "base/param.h" /* enum rondo_log_level */
#include "base/types.h"

/* X(ctx, NAME) */
/* clang-format off */
#define RONDO_LOG_SUBSYS_TABLE(X, ctx)                                                   \
    X(ctx, INIT) X(ctx, COLL) X(ctx, P2P) X(ctx, SHM) X(ctx, NET) X(ctx, GRAPH)          \
    X(ctx, TUNING) X(ctx, ENV) X(ctx, ALLOC) X(ctx, CALL) X(ctx, PROXY)                  \
    X(ctx, BOOTSTRAP) X(ctx, REG) X(ctx, PROFILE) X(ctx, CONTROL) X(ctx, DESTROY)
/* clang-format on */

#define RONDO_ENUM_ROW_(ctx, NAME) RONDO_SUBSYS_##NAME##_BIT,
enum rondo_log_subsys_bit { RONDO_LOG_SUBSYS_TABLE(RONDO_ENUM_ROW_, ) RONDO_NUM_LOG_SUBSYS };
#undef RONDO_ENUM_ROW_
#define RONDO_ENUM_ROW_(ctx, NAME) RONDO_SUBSYS_##NAME = 1 << RONDO_SUBSYS_##NAME##_BIT,
enum rondo_log_subsys {
    RONDO_LOG_SUBSYS_TABLE(RONDO_ENUM_ROW_, ) RONDO_SUBSYS_ALL = (1 << RONDO_NUM_LOG_SUBSYS) - 1
};
#undef RONDO_ENUM_ROW_

/* Of the process: the level in the low byte, the mask of subsystems above it. WARN until rondo_log_init(),
 * which the first line calls if nobody did before. */
extern uint32_t rondo_log_mask;

/* Parse a text like RONDO_DEBUG_SUBSYS into a mask. Unknown names are ignored, and counted in *unknown. */
uint32_t rondo_log_parse_subsys(const char *text, int *unknown);

/* True when a line of this level and subsystem would be printed. WARN and below ignore subsystems. */
static inline int rondo_log_on(enum rondo_log_level level, uint32_t subsys)
{
    uint32_t mask = __atomic_load_n(&rondo_log_mask, __ATOMIC_RELAXED);
    return level <= (mask & 0xff) && (level <= RONDO_LOG_WARN || (subsys & (mask >> 8)) != 0);
}

/* Apply the parameters. Idempotent; called by the first rondo_param_init() and by rondo_param_reload(). */
void rondo_log_init(void);
/* True when the user sees warnings: they are neither off nor go to a file. */
int rondo_log_shows_warnings(void);
void rondo_log_set_rank(int rank); /* of this thread; -1: none */
/* A communicator is being created with this rank. The first one's is shown by threads that have none, unless
 * another communicator of the same size has another rank in this process. */
void rondo_log_set_process_rank(int rank, int nranks);
int rondo_log_rank(void);
const char *rondo_log_host(void); /* this host's name, at most RONDO_HOST_LEN - 1 bytes */

/** Expand %h (host), %p (pid) and %% in a file's name. @return 0, or -1: the path is too long. */
int rondo_log_path(const char *pattern, char *path, size_t size);
/** Open a file for writing, which this user alone may read; does not follow a link, and does not block.
 * @param how  O_APPEND or O_TRUNC
 * @return a descriptor, or -1 with errno */
int rondo_log_file(const char *path, int how);
void rondo_log_print(enum rondo_log_level level, const char *fmt, ...) RONDO_PRINTF(2, 3);

#define RONDO_WARN(...)                                                                    \
    do {                                                                                   \
        if (rondo_log_on(RONDO_LOG_WARN, 0)) rondo_log_print(RONDO_LOG_WARN, __VA_ARGS__); \
    } while (0)
#define RONDO_INFO(subsys, ...)                                                                 \
    do {                                                                                        \
        if (rondo_log_on(RONDO_LOG_INFO, subsys)) rondo_log_print(RONDO_LOG_INFO, __VA_ARGS__); \
    } while (0)
#define RONDO_TRACE(subsys, ...)                                                                  \
    do {                                                                                          \
        if (rondo_log_on(RONDO_LOG_TRACE, subsys)) rondo_log_print(RONDO_LOG_TRACE, __VA_ARGS__); \
    } while (0)

#endif
