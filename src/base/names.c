#include "base/types.h"

#include <strings.h>
#include "base/status.h"

#define NAME_ROW(ctx, name, NAME, value, ...) [value] = #name,
static const char *const dtype_names[] = { RONDO_DTYPE_TABLE(NAME_ROW, ) };
static const char *const op_names[] = { RONDO_OP_TABLE(NAME_ROW, ) };
static const char *const proto_names[] = { RONDO_PROTO_TABLE(NAME_ROW, ) };

#define TEXT_ROW(ctx, name, NAME, value, text) [value] = text,
static const char *const status_texts[] = { RONDO_STATUS_TABLE(TEXT_ROW, ) };

#define SIZE_ROW(ctx, name, NAME, value, storage, ...) [value] = sizeof(storage),
static const uint8_t dtype_sizes[] = { RONDO_DTYPE_TABLE(SIZE_ROW, ) };

/* The pairwise operations of each type, as bits. */
#define REDUCE_BIT(ctx, name, NAME, ...) | 1u << RONDO_REDUCE_##NAME
#define REDUCES_ROW(ctx, name, NAME, value, storage, arith, to, from, class, kin) \
    [value] = 0 RONDO_REDUCES_OF_##class(REDUCE_BIT, ),
static const uint16_t dtype_reduces[] = { RONDO_DTYPE_TABLE(REDUCES_ROW, ) };
_Static_assert(RONDO_NUM_REDUCES <= 16, "dtype_reduces has a bit for each");

#define PAIRWISE_ROW(ctx, name, NAME, value, pairwise) [value] = RONDO_REDUCE_##pairwise,
static const uint8_t op_reduces[] = { RONDO_OP_TABLE(PAIRWISE_ROW, ) };

/* An enum may hold any int that a caller passes; unsigned, negative values are too large, too. */
static const char *name_at(const char *const *names, size_t n, unsigned value)
{
    return value < n ? names[value] : NULL;
}

static int name_find(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; name && i < n; i++) {
        if (strcasecmp(names[i], name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

const char *rondo_dtype_name(rondo_dtype type)
{
    return name_at(dtype_names, RONDO_COUNTOF(dtype_names), (unsigned)type);
}
const char *rondo_op_name(rondo_op op) { return name_at(op_names, RONDO_COUNTOF(op_names), (unsigned)op); }
const char *rondo_proto_name(enum rondo_proto proto)
{
    return name_at(proto_names, RONDO_COUNTOF(proto_names), (unsigned)proto);
}
int rondo_dtype_from_name(const char *name)
{
    return name_find(dtype_names, RONDO_COUNTOF(dtype_names), name);
}
int rondo_op_from_name(const char *name) { return name_find(op_names, RONDO_COUNTOF(op_names), name); }
int rondo_proto_from_name(const char *name)
{
    return name_find(proto_names, RONDO_COUNTOF(proto_names), name);
}

size_t rondo_dtype_size(rondo_dtype type)
{
    return (unsigned)type < RONDO_COUNTOF(dtype_sizes) ? dtype_sizes[type] : 0;
}

enum rondo_reduce rondo_op_reduce(rondo_op op) { return (enum rondo_reduce)op_reduces[op]; }

int rondo_dtype_allows(rondo_dtype type, rondo_op op)
{
    return (unsigned)type < RONDO_NUM_DTYPES && (unsigned)op < RONDO_NUM_OPS &&
           (dtype_reduces[type] >> op_reduces[op] & 1) != 0;
}

/* An integer or a float whose scalar fits in a work. */
int rondo_dtype_premul(rondo_dtype type)
{
    return rondo_dtype_size(type) <= sizeof(uint64_t) && rondo_dtype_allows(type, RONDO_PROD) &&
           rondo_dtype_allows(type, RONDO_MAX);
}

const char *rondo_status_string(rondo_status status)
{
    const char *text = name_at(status_texts, RONDO_COUNTOF(status_texts), (unsigned)status);
    return text ? text : "unknown status";
}

rondo_status rondo_get_version(int *version)
{
    if (!version) {
        return rondo_fail(RONDO_INVALID_ARGUMENT,
                          "rondo_get_version: version is NULL; pass the address of an int");
    }
    *version = RONDO_VERSION_CODE;
    return RONDO_SUCCESS;
}
