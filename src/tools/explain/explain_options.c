#include "tools/explain/explain_options.h"

#define ROW_(ctx, NAME, name, arguments, least, most, group, help) \
    { name, arguments, least, most, group, help },
static const struct tool_option table[] = { EXPLAIN_OPTION_TABLE(ROW_, ) };
_Static_assert((int)EXPLAIN_NUM_OPTIONS <= (int)TOOL_MAX_OPTIONS,
               "TOOL_MAX_OPTIONS has room for the options");

const struct tool_options explain_options = {
    .program = "rondo-explain",
    .usage = "[OPTION]... COLL SIZE        what the tuner would choose for all_reduce, ... of SIZE bytes "
             "(64M; a range: 8:128M), and why\n"
             "       mpirun ... rondo-explain --measure [OPTION]... [COLL [SIZE]]    default: all that have "
             "a choice, 8:16M\n"
             "  Sizes are those of the larger buffer of a rank. RONDO_ALGO, RONDO_PROTO, RONDO_DETERMINISM, "
             "RONDO_TUNE_FILE and the limits\n"
             "  of channels count as they would in a job. > is what a call runs; in the tables of --measure "
             "* is what took the least time.",
    .outro =
        "Exit status: 0; 1 failure; 2 wrong use, a file that cannot be read.\n"
        "Examples:\n"
        "  rondo-explain --ranks n4 all_reduce 64K --channels       four ranks on this machine's memory\n"
        "  rondo-explain --file dgx.xml --nodes 16 all_reduce 8:1G  a job of 16 such nodes\n"
        "  mpirun -n 4 rondo-explain --measure --output four.tune   then RONDO_TUNE_FILE=four.tune mpirun -n "
        "4 ...\n",
    .option = table,
    .n = EXPLAIN_NUM_OPTIONS,
    .most_words = 2,
};
