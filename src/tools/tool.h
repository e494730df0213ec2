/* What every tool shares: options, error messages and exit statuses. */
#ifndef RONDO_TOOLS_TOOL_H
#define RONDO_TOOLS_TOOL_H

#include "tools/options.h"

/** Read the parameters. Unless the user asked for a log, silence it: a tool reports an error once, itself.
 * @return -1 to go on, else the exit status of the program after a message. */
int tool_params_begin(const char *program);
/** Print the calling thread's last error on stderr. @return code. */
int tool_fail(const char *program, int code);

#endif
