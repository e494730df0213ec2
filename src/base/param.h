/*
 * Parameters: one table (param.def), one typed struct.
 *
 * Order of sources: environment (RONDO_NAME, then its aliases such as NCCL_NAME), ~/.rondo.conf,
 * /etc/rondo.conf (lines NAME=value, # comments), the default. A bad value is RONDO_INVALID_ARGUMENT that
 * names variable, origin, value and what is allowed; an unknown RONDO_* variable warns once with the nearest
 * name. Nothing here calls setenv. Values are read once, at the first use of the library;
 * rondo_param_reload() is for tests.
 *
 * param.def rows: X(ctx, field, TYPE, NAME, aliases, default text, range or values, agree, help)
 *   TYPE: INT (int64_t), SIZE (K M G; bytes), BOOL (0/1 yes/no true/false on/off), ENUM (one of a comma list;
 * int), LIST (text), TIME (ns/us/ms/s/m; int64_t ns; bare numbers are seconds) A number's range may begin
 * with "auto,": that text is then a value, too, RONDO_PARAM_AUTO. agree: 1 when all ranks of a communicator
 * must have the same value (hashed and compared at init).
 */
#ifndef RONDO_BASE_PARAM_H
#define RONDO_BASE_PARAM_H

#include <stdio.h>
#include "base/status.h"
#include "base/types.h"
#include "base/param.def"

typedef int64_t rondo_param_INT;
typedef int64_t rondo_param_SIZE;
typedef int rondo_param_BOOL;
typedef int rondo_param_ENUM;
typedef const char *rondo_param_LIST;
typedef int64_t rondo_param_TIME;

#define RONDO_PARAM_FIELD_(ctx, field, TYPE, ...) rondo_param_##TYPE field;
struct rondo_params {
    RONDO_PARAM_TABLE(RONDO_PARAM_FIELD_, )
};
#undef RONDO_PARAM_FIELD_

#define RONDO_PARAM_ID_(ctx, field, ...) RONDO_PARAM_##field,
enum rondo_param_id { RONDO_PARAM_TABLE(RONDO_PARAM_ID_, ) RONDO_NUM_PARAMS };
#undef RONDO_PARAM_ID_

/* Values of parameters that are names: RONDO_CMA_AUTO and so on, with their numbers. */
#define RONDO_PARAM_CONSTANT_(ctx, constant, text) RONDO_##constant,
enum rondo_cma_mode { RONDO_PARAM_CMA(RONDO_PARAM_CONSTANT_, ) };
enum rondo_determinism { RONDO_PARAM_DETERMINISM(RONDO_PARAM_CONSTANT_, ) };
enum rondo_net_gdr_read { RONDO_PARAM_NET_GDR_READ(RONDO_PARAM_CONSTANT_, ) };
enum rondo_proxy_cores { RONDO_PARAM_PROXY_CORES(RONDO_PARAM_CONSTANT_, ) };
enum rondo_check_pointers { RONDO_PARAM_CHECK_POINTERS(RONDO_PARAM_CONSTANT_, ) };
enum rondo_shm_mode { RONDO_PARAM_SHM_MODE(RONDO_PARAM_CONSTANT_, ) RONDO_NUM_SHM_MODES };
enum rondo_socket_family { RONDO_PARAM_SOCKET_FAMILY(RONDO_PARAM_CONSTANT_, ) };
enum rondo_ib_addr_family { RONDO_PARAM_IB_ADDR_FAMILY(RONDO_PARAM_CONSTANT_, ) };
enum rondo_ib_adaptive_routing { RONDO_PARAM_IB_ADAPTIVE_ROUTING(RONDO_PARAM_CONSTANT_, ) };
enum rondo_exec_kind { RONDO_PARAM_EXEC(RONDO_PARAM_CONSTANT_, ) };
#undef RONDO_PARAM_CONSTANT_

#define RONDO_PARAM_COUNT_(ctx, ...) +1
enum { RONDO_PARAM_AUTO = -1 };
enum { RONDO_NUM_PARAMS_IGNORED = RONDO_PARAM_IGNORED_TABLE(RONDO_PARAM_COUNT_, ) };
#undef RONDO_PARAM_COUNT_

/** One parameter as text: for rondo-info, the log and the comparison between ranks. Strings live as long as
 * the library. */
struct rondo_param_info {
    const char *name, *aliases, *type, *def, *range, *help; /* from the table; name without RONDO_ */
    const char *value;                                      /* as read, or the default */
    const char *origin; /* "default", "environment RONDO_X", "~/.rondo.conf:3" */
    int agree;
};

/** Read all sources once. @return the first bad value's error, on every call. */
rondo_status rondo_param_init(void);
/** Read again (tests only; not while a communicator is open). */
rondo_status rondo_param_reload(void);
/** The values. Valid (defaults) even when rondo_param_init failed. */
const struct rondo_params *rondo_params(void);
/** Payload bytes of the places of a node's mailbox: MAILBOX_SIZE, or PAIR_SIZE. */
static inline size_t rondo_param_mailbox_size(int nlocal)
{
    return (size_t)(nlocal == 2 ? rondo_params()->pair_size : rondo_params()->mailbox_size);
}
/** Bytes of the buffer of a connection's protocol, on host memory or on GPUs. */
int64_t rondo_param_buffer_bytes(enum rondo_proto proto, int gpus);
/** Most channels; most: what the communicator's config allows, too (below 1: any number). Never fewer than
 * MIN_NCHANNELS. */
int rondo_param_max_channels(int most, int gpus);
void rondo_param_get_info(enum rondo_param_id id, struct rondo_param_info *info);

/** A name that is accepted and changes nothing. */
struct rondo_param_ignored {
    const char *name, *reason; /* from the table; name without RONDO_ or NCCL_ */
    const char *origin;        /* where one was set: "environment NCCL_X", "~/.rondo.conf:3"; "": nowhere */
};
/** i: below RONDO_NUM_PARAMS_IGNORED. */
void rondo_param_get_ignored(int i, struct rondo_param_ignored *ignored);
/** Is this name (with RONDO_ or NCCL_, or bare) in that table? @return its row, or -1. */
int rondo_param_find_ignored(const char *name);

/** Hash of all values that ranks must agree on. */
uint64_t rondo_param_agree_hash(void);

/* The parsers, for tools, tests and fuzzers. @return 0, or -1 when text is not a value of the type. */
int rondo_parse_int(const char *text, int64_t *value);
int rondo_parse_size(const char *text, int64_t *bytes);
int rondo_parse_time(const char *text, int64_t *ns);
int rondo_parse_bool(const char *text, int *value);

#endif
