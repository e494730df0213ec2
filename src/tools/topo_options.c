#include "tools/topo_options.h"

#define ROW_(ctx, NAME, name, arguments, least, most, group, help) \
    { name, arguments, least, most, group, help },
static const struct tool_option table[] = { TOPO_OPTION_TABLE(ROW_, ) };
_Static_assert((int)TOPO_NUM_OPTIONS <= (int)TOOL_MAX_OPTIONS, "TOOL_MAX_OPTIONS has room for the options");

const struct tool_options topo_options = {
    .program = "rondo-topo",
    .usage = "[OPTION]...\n"
             "  Shows a machine as Rondo sees it: NUMA nodes, GPUs, network ports, the paths between them, "
             "and the rings and trees laid over "
             "them.",
    .outro = "Exit status: 0; 1 failure, or --compare found differences; 2 wrong use, a file that cannot be "
             "read, a list that is not one.\n"
             "Under mpirun or srun the first process of each node reports; rondo-topo-mpi reports once for "
             "all nodes that are alike.\n"
             "Examples:\n"
             "  rondo-topo                                  this machine\n"
             "  rondo-topo --file dgx.xml --nodes 4         channels of a job on four such machines\n"
             "  rondo-topo --why GPU0 mlx5_3                why this path\n"
             "  rondo-topo --html topo.html                 a page to click through\n",
    .option = table,
    .n = TOPO_NUM_OPTIONS,
};
