/* Check the text of the last error. */
#ifndef RONDO_UNIT_SAYS_H
#define RONDO_UNIT_SAYS_H

#include <string.h>
#include "base/status.h"

#define assert_says(part)                                               \
    do {                                                                \
        if (!strstr(rondo_error_text(), part)) {                        \
            fail_msg("\"%s\" is not in: %s", part, rondo_error_text()); \
        }                                                               \
    } while (0)

#endif
