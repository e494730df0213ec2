#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/log.h"
#include "base/param.h"

int tool_params_begin(const char *program)
{
    if (rondo_param_init() != RONDO_SUCCESS) /* The library has already warned of the value. */
        return rondo_log_shows_warnings() ? TOOL_USAGE : tool_fail(program, TOOL_USAGE);
    if (!getenv("RONDO_DEBUG") && !getenv("NCCL_DEBUG")) rondo_log_mask = RONDO_LOG_NONE;
    return -1;
}

int tool_fail(const char *program, int code)
{
    fprintf(stderr, "%s: %s\n", program, rondo_error_text()[0] ? rondo_error_text() : "failed");
    return code;
}
