/*
 * Hostile behaviours of mock_net_plugin.c. MOCK_NET, read when the plugin is loaded and when it is called,
 * has words: missing=FUNCTION, noname, longname, badname, init=CODE, devices=N, devicescode=CODE,
 * properties=CODE, offload, nonames, wild, never, oversize, nolisten, fail=FUNCTION:CODE, warn, silent
 * (accept and connect stay in progress).
 */
#ifndef RONDO_MOCK_NET_HOSTILE_H
#define RONDO_MOCK_NET_HOSTILE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mock_net_plugin.h"

static log_fn logger; /* NCCL's log function, from init on */

/* The value of a word in MOCK_NET; "" if it has none, NULL if the word is missing. */
static inline const char *word(const char *name)
{
    static char copy[128];
    char *rest = copy, *one;
    snprintf(copy, sizeof copy, "%s", getenv("MOCK_NET") != NULL ? getenv("MOCK_NET") : "");
    while ((one = strsep(&rest, ",")) != NULL) {
        size_t n = strcspn(one, "=");
        if (strlen(name) == n && strncmp(one, name, n) == 0) {
            return one[n] == '=' ? one + n + 1 : "";
        }
    }
    return NULL;
}

static inline int number(const char *name, int otherwise)
{
    return word(name) != NULL ? atoi(word(name)) : otherwise;
}

/* Must this function fail? */
static inline int fails(const char *function)
{
    const char *value = word("fail");
    size_t n = strlen(function);
    if (value == NULL || strncmp(value, function, n) != 0 || value[n] != ':') {
        return 0;
    }
    if (word("warn") != NULL) {
        logger(2, 16, __FILE__, __LINE__, "the NIC is on fire\n");
    }
    return atoi(value + n + 1);
}

/* Change the exported functions as the words say. */
static inline void become_hostile(struct functions *functions)
{
    const char *missing = word("missing");
    if (missing != NULL) {
#define DROP(function) functions->function = strcmp(missing, #function) == 0 ? NULL : functions->function;
        FUNCTIONS(DROP)
    }
    if (word("noname") != NULL) {
        functions->name = NULL;
    }
    if (word("longname") != NULL) {
        functions->name = "a name of a net that is far longer than any name of a net can sensibly be, so "
                          "that it fits nowhere";
    }
    if (word("badname") != NULL) {
        functions->name = "Mock\nNet";
    }
}

#endif
