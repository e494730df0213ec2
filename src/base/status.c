#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"

static _Thread_local char error_text[RONDO_ERROR_TEXT];
static _Thread_local int logged; /* error_text was */

static void error_set(const char *fmt, va_list args)
{
    /* The new sentence may quote the old one. */
    char text[RONDO_ERROR_TEXT];
    if (vsnprintf(text, sizeof text, fmt, args) >= (int)sizeof text) {
        snprintf(text + sizeof text - 4, 4, "...");
    }
    logged = logged && strcmp(text, error_text) == 0; /* repeating an error does not log it again */
    snprintf(error_text, sizeof error_text, "%s", text);
}

rondo_status rondo_fail(rondo_status status, const char *fmt, ...)
{
    int saved = errno;
    va_list args;
    va_start(args, fmt);
    error_set(fmt, args);
    va_end(args);
    logged = 0;
    rondo_fail_aloud(status);
    errno = saved;
    return status;
}

rondo_status rondo_fail_quiet(rondo_status status, const char *fmt, ...)
{
    int saved = errno;
    va_list args;
    va_start(args, fmt);
    error_set(fmt, args);
    va_end(args);
    errno = saved;
    return status;
}

rondo_status rondo_fail_aloud(rondo_status status)
{
    if (!logged) {
        RONDO_WARN("%s", error_text);
        logged = 1;
    }
    return status;
}

int rondo_error_logged(void) { return logged; }

const char *rondo_error_text(void) { return error_text; }

void rondo_error_clear(void) { error_text[0] = '\0'; }
