#include "tools/explain/explain_options.h"

static const struct tool_option table[] = { EXPLAIN_OPTION_TABLE(TOOL_OPTION_ROW, ) };
_Static_assert((int)EXPLAIN_NUM_OPTIONS <= (int)TOOL_MAX_OPTIONS, "TOOL_MAX_OPTIONS is too small");

const struct tool_options explain_options = {
    .program = "rondo-explain",
    .usage =
        "[OPTION]... COLLECTIVE SIZE\n"
        "       mpirun ... rondo-explain --measure [OPTION]... [COLLECTIVE [SIZE]]\n"
        "\n"
        "Show which algorithm and protocol Rondo would choose, and the predicted time of every choice.\n"
        "With --measure, run them all and write the times to a tuning file.\n"
        "\n"
        "  COLLECTIVE  all_reduce, broadcast, ... (--measure: default all that have a choice)\n"
        "  SIZE        bytes of the larger buffer of a rank: 64M, or a range, 8:128M (--measure: default "
        "8:16M)\n"
        "\n"
        "RONDO_ALGO, RONDO_PROTO, RONDO_DETERMINISM, RONDO_TUNE_FILE and the limits of channels apply as in "
        "a\n"
        "job. In the table, '>' marks what a call runs; with --measure, '*' marks what was fastest.",
    .outro =
        "Exit status:\n"
        "  0  success\n"
        "  1  failure\n"
        "  2  wrong usage, or a file that cannot be read\n"
        "\n"
        "Examples:\n"
        "  rondo-explain --ranks n4 all_reduce 64K --channels       four ranks in this machine's memory\n"
        "  rondo-explain --file dgx.xml --nodes 16 all_reduce 8:1G  a job of 16 such nodes\n"
        "  mpirun -n 4 rondo-explain --measure --output four.tune   measure, then run jobs with\n"
        "  RONDO_TUNE_FILE=four.tune mpirun -n 4 ...                the measured times\n",
    .option = table,
    .n = EXPLAIN_NUM_OPTIONS,
    .most_words = 2,
    .help = EXPLAIN_HELP,
    .version = EXPLAIN_VERSION,
};
