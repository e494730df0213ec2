/*
 * Parameters: one table (param.def), one typed struct.
 *
 * A value comes from the environment (RONDO_NAME, then its aliases such as NCCL_NAME), else from
 * ~/.rondo.conf, else from /etc/rondo.conf (lines NAME=value; # starts a comment), else it is the default. An
 * invalid value is RONDO_INVALID_ARGUMENT; the error names the variable, its origin, the value and what is
 * allowed. An unknown RONDO_* variable causes one warning with the nearest name. Nothing here calls setenv.
 * The sources are read once, at the first use of the library; rondo_param_reload() is for tests.
 *
 * Rows of param.def: X(ctx, field, TYPE, NAME, aliases, default, range, agree, help)
 *   TYPE    INT   int64_t
 *           SIZE  int64_t, bytes; K, M and G are powers of 1024
 *           TIME  int64_t, nanoseconds; ns, us, ms, s and m; a bare number is in seconds
 *           BOOL  int; 0/1, no/yes, false/true, off/on
 *           ENUM  int; one of the constants that the range, a macro RONDO_..._VALUES, generates
 *           LIST  text
 *   range   "low..high" of a number; "auto,low..high" also takes auto, which is RONDO_PARAM_AUTO
 *   agree   1: all ranks of a communicator must have the same value (hashed and compared at creation)
 */
#ifndef RONDO_BASE_PARAM_H
#define RONDO_BASE_PARAM_H

#include <stdio.h>
#include "base/mailbox.h"
#include "base/status.h"
#include "base/types.h"
#include "base/param.def"
#include "base/param_nccl.def"

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

/* The enums of the parameters of type ENUM, such as enum rondo_cma_mode. */
#define RONDO_PARAM_CONSTANT_(constant, spelling) constant,
#define RONDO_PARAM_ENUM_(tag, ...) enum tag { __VA_ARGS__ };
#define RONDO_PARAM_VALUES_ENUM(values) values(RONDO_PARAM_ENUM_, RONDO_PARAM_CONSTANT_)
#define RONDO_PARAM_VALUES_INT(range)
#define RONDO_PARAM_VALUES_SIZE(range)
#define RONDO_PARAM_VALUES_BOOL(range)
#define RONDO_PARAM_VALUES_LIST(range)
#define RONDO_PARAM_VALUES_TIME(range)
#define RONDO_PARAM_VALUES_(ctx, field, TYPE, NAME, aliases, def, range, ...) RONDO_PARAM_VALUES_##TYPE(range)
RONDO_PARAM_TABLE(RONDO_PARAM_VALUES_, )
#undef RONDO_PARAM_VALUES_

/* { RONDO_PARAM_NAMES(RONDO_CMA_VALUES) } initializes an array of spellings by value. */
#define RONDO_PARAM_NAME_(constant, spelling) [constant] = spelling,
#define RONDO_PARAM_NAME_LIST_(tag, ...) __VA_ARGS__
#define RONDO_PARAM_NAMES(values) values(RONDO_PARAM_NAME_LIST_, RONDO_PARAM_NAME_)

#define RONDO_PARAM_ID_(ctx, field, ...) RONDO_PARAM_##field,
enum rondo_param_id { RONDO_PARAM_TABLE(RONDO_PARAM_ID_, ) RONDO_NUM_PARAMS };
#undef RONDO_PARAM_ID_

#define RONDO_PARAM_COUNT_(ctx, ...) +1
enum { RONDO_PARAM_AUTO = -1, RONDO_NUM_SHM_MODES = RONDO_SHM_MODE_FILE + 1 };
enum { RONDO_NUM_PARAMS_IGNORED = RONDO_PARAM_IGNORED_TABLE(RONDO_PARAM_COUNT_, ) };
#undef RONDO_PARAM_COUNT_

/** One parameter as text, for rondo-info and the log. The strings live as long as the library. */
struct rondo_param_info {
    const char *section, *name, *aliases, *type, *def; /* from the table; name without RONDO_ */
    const char *range;                                 /* of an ENUM: its values, "near/0,any,nic/1" */
    const char *help;
    const char *value;  /* as read, or the default */
    const char *origin; /* "default", "environment RONDO_X", "~/.rondo.conf:3" */
    int agree;
};

/** Read all sources once. @return the error of the first invalid value, on every call. */
rondo_status rondo_param_init(void);
/** Read again (tests only; not while a communicator is open). */
rondo_status rondo_param_reload(void);
/** The values. After an error of rondo_param_init, invalid ones have their defaults. */
const struct rondo_params *rondo_params(void);
/** Payload bytes of a place in a node's mailbox: MAILBOX_SIZE, or PAIR_SIZE on a node of two ranks. */
static inline size_t rondo_param_mailbox_size(int nlocal)
{
    int64_t said = nlocal == 2 ? rondo_params()->pair_size : rondo_params()->mailbox_size;
    return said != RONDO_PARAM_AUTO ? (size_t)said : (size_t)(nlocal <= RONDO_MAILBOX_FEW ? 128 : 16) << 10;
}
/** Bytes of a staging place of direct access on GPUs; 0: there is none. */
static inline size_t rondo_param_direct_gpu(void)
{
    int64_t said = rondo_params()->direct_gpu;
    return said == RONDO_PARAM_AUTO ? (size_t)RONDO_PARAM_DIRECT_GPU << 10 : (size_t)said;
}
/** Bytes of a connection's buffer for a protocol, on host memory or on GPUs. */
int64_t rondo_param_buffer_bytes(enum rondo_proto proto, int gpus);
/** Most channels of a communicator whose config allows @a most (below 1: any); at least MIN_NCHANNELS. */
int rondo_param_max_channels(int most, int gpus);
enum { RONDO_LOWER_TEXT = 128 };
/**
 * What a user can do about connections' buffers that do not fit: "lower RONDO_BUFFSIZE or ..." with the
 * parameters that are not at their least yet, or "use fewer ranks ...".
 * @return text, or a constant
 */
const char *rondo_param_lower_buffers(int gpus, char text[RONDO_LOWER_TEXT]);
void rondo_param_get_info(enum rondo_param_id id, struct rondo_param_info *info);

enum { RONDO_FILE_LABEL = 4096 };
/**
 * How sentences call a file: "RONDO_TOPO_FILE=/path" if @a file is the text of a parameter (the pointer that
 * rondo_params() holds), else the path.
 * @return label, or file
 */
const char *rondo_param_file_label(const char *file, char label[RONDO_FILE_LABEL]);

/** A name that is accepted without effect. */
struct rondo_param_ignored {
    const char *name, *reason; /* from the table; name without RONDO_ or NCCL_ */
    const char *origin;        /* where it is set: "environment NCCL_X", "~/.rondo.conf:3"; "": nowhere */
};
/** @param i row of the table, below RONDO_NUM_PARAMS_IGNORED */
void rondo_param_get_ignored(int i, struct rondo_param_ignored *ignored);
/** Find a name (with RONDO_ or NCCL_ in front, or bare) in that table. @return its row, or -1. */
int rondo_param_find_ignored(const char *name);

/** Hash the values that all ranks must agree on. */
uint64_t rondo_param_agree_hash(void);

/* The parsers, for tools, tests and fuzzers. @return 0, or -1 if the text is not a value of the type. */
int rondo_parse_int(const char *text, int64_t *value);
int rondo_parse_size(const char *text, int64_t *bytes);
int rondo_parse_time(const char *text, int64_t *ns);
int rondo_parse_bool(const char *text, int *value);

#endif
