/* The parameters, as NCCL 2.30 shows its own: by name ("NCCL_BUFFSIZE", "RONDO_BUFFSIZE", "BUFFSIZE"). */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "shim/nccl/face.h"

/* A handle is an element of this array: one that is none is noticed. */
struct ncclParamHandle {
    char key[48];
};
static struct ncclParamHandle handles[RONDO_NUM_PARAMS];
static const char *keys[RONDO_NUM_PARAMS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill(void)
{
    (void)rondo_param_init();
    for (int i = 0; i < RONDO_NUM_PARAMS; i++) {
        struct rondo_param_info info;
        rondo_param_get_info((enum rondo_param_id)i, &info);
        snprintf(handles[i].key, sizeof(handles[i].key), "RONDO_%s", info.name);
        keys[i] = handles[i].key;
    }
}

static const char *bare(const char *key)
{
    return strncmp(key, "NCCL_", 5) == 0 ? key + 5 : strncmp(key, "RONDO_", 6) == 0 ? key + 6 : key;
}

/* Is the name in a list such as "NCCL_NET NCCL_IB_HCA"? */
static int lists(const char *aliases, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = aliases; *at != '\0';) {
        size_t word = strcspn(at, " ,");
        const char *plain = bare(at);
        size_t rest = word - (size_t)(plain - at);
        if (plain < at + word && rest == length && strncmp(plain, name, length) == 0) {
            return 1;
        }
        at += word;
        at += strspn(at, " ,");
    }
    return 0;
}

static int find(const char *key)
{
    const char *name = bare(key);
    pthread_once(&once, fill);
    for (int i = 0; i < RONDO_NUM_PARAMS; i++) {
        struct rondo_param_info info;
        rondo_param_get_info((enum rondo_param_id)i, &info);
        if (strcmp(info.name, name) == 0 || lists(info.aliases, name)) {
            return i;
        }
    }
    return -1;
}

static ncclResult_t unknown(const char *call, const char *key)
{
    return nccl_refuse(RONDO_INVALID_ARGUMENT, "%s: there is no parameter \"%s\"; rondo-info lists all", call,
                       key);
}

static int index_of(const ncclParamHandle_t *handle)
{
    for (int i = 0; i < RONDO_NUM_PARAMS; i++) {
        if (handle == &handles[i]) {
            return i;
        }
    }
    return -1;
}

static ncclResult_t value_of(const char *call, const ncclParamHandle_t *handle, const void *to,
                             const char **text)
{
    struct rondo_param_info info;
    int i = index_of(handle);
    if (i < 0 || to == NULL) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT, "%s: %s", call,
                           i < 0 ? "the handle is not one of ncclParamBind"
                                 : "the place for the value is NULL");
    }
    pthread_once(&once, fill);
    rondo_param_get_info((enum rondo_param_id)i, &info);
    *text = info.value;
    return ncclSuccess;
}

NCCL_FACE(ncclResult_t, ParamBind, ncclParamHandle_t **handle, const char *key)
{
    int i;
    if (handle == NULL || key == NULL) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT,
                           "ncclParamBind: the place for the handle or the key is NULL");
    }
    i = find(key);
    if (i < 0) {
        return unknown("ncclParamBind", key);
    }
    *handle = &handles[i];
    return ncclSuccess;
}

/* A number, with the suffixes of sizes and times (ns); yes and no are 1 and 0. */
static int parse(const char *text, int64_t *number)
{
    int flag;
    if (rondo_parse_int(text, number) == 0 || rondo_parse_size(text, number) == 0 ||
        rondo_parse_time(text, number) == 0) {
        return 0;
    }
    if (rondo_parse_bool(text, &flag) != 0) {
        return -1;
    }
    *number = flag;
    return 0;
}

static ncclResult_t number_of(const char *call, const ncclParamHandle_t *handle, const void *to, int64_t low,
                              int64_t high, int64_t *number)
{
    const char *text;
    ncclResult_t result = value_of(call, handle, to, &text);
    if (result != ncclSuccess) {
        return result;
    }
    if (parse(text, number) != 0 || *number < low || *number > high) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT, "%s: \"%s\" of %s is no number of this type", call, text,
                           handle->key);
    }
    return ncclSuccess;
}

#define GETTER_(NAME, type, low, high)                                                            \
    NCCL_FACE(ncclResult_t, ParamGet##NAME, ncclParamHandle_t *handle, type *value)               \
    {                                                                                             \
        int64_t number = 0;                                                                       \
        ncclResult_t result = number_of("ncclParamGet" #NAME, handle, value, low, high, &number); \
        if (result == ncclSuccess) *value = (type)number;                                         \
        return result;                                                                            \
    }
GETTER_(I8, int8_t, INT8_MIN, INT8_MAX)
GETTER_(I16, int16_t, INT16_MIN, INT16_MAX)
GETTER_(I32, int32_t, INT32_MIN, INT32_MAX)
GETTER_(I64, int64_t, INT64_MIN, INT64_MAX)
GETTER_(U8, uint8_t, 0, UINT8_MAX)
GETTER_(U16, uint16_t, 0, UINT16_MAX)
GETTER_(U32, uint32_t, 0, UINT32_MAX)
GETTER_(U64, uint64_t, 0, INT64_MAX)

NCCL_FACE(ncclResult_t, ParamGetStr, ncclParamHandle_t *handle, const char **value)
{
    return value_of("ncclParamGetStr", handle, value, value != NULL ? value : &(const char *){ NULL });
}

NCCL_FACE(ncclResult_t, ParamGet, ncclParamHandle_t *handle, void *buffer, int maxLen, int *len)
{
    const char *text;
    ncclResult_t result = value_of("ncclParamGet", handle, buffer, &text);
    if (result != ncclSuccess) {
        return result;
    }
    if (maxLen < 1 || strlen(text) >= (size_t)maxLen) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT, "ncclParamGet: %s has %zu bytes, the buffer %d",
                           handle->key, strlen(text) + 1, maxLen);
    }
    memcpy(buffer, text, strlen(text) + 1);
    if (len != NULL) {
        *len = (int)strlen(text);
    }
    return ncclSuccess;
}

NCCL_FACE(ncclResult_t, ParamGetParameter, const char *key, const char **value, int *len)
{
    struct rondo_param_info info;
    int i;
    if (key == NULL || value == NULL) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT,
                           "ncclParamGetParameter: the key or the place for the value is NULL");
    }
    i = find(key);
    if (i < 0) {
        return unknown("ncclParamGetParameter", key);
    }
    rondo_param_get_info((enum rondo_param_id)i, &info);
    *value = info.value;
    if (len != NULL) {
        *len = (int)strlen(info.value);
    }
    return ncclSuccess;
}

NCCL_FACE(ncclResult_t, ParamGetAllParameterKeys, const char ***table, int *len)
{
    if (table == NULL || len == NULL) {
        return nccl_refuse(RONDO_INVALID_ARGUMENT, "ncclParamGetAllParameterKeys: a place is NULL");
    }
    pthread_once(&once, fill);
    *table = keys;
    *len = RONDO_NUM_PARAMS;
    return ncclSuccess;
}

NCCL_FACE(void, ParamDumpAll, void)
{
    pthread_once(&once, fill);
    for (int i = 0; i < RONDO_NUM_PARAMS; i++) {
        struct rondo_param_info info;
        rondo_param_get_info((enum rondo_param_id)i, &info);
        printf("RONDO_%s=%s (%s)\n", info.name, info.value, info.origin);
    }
}
