#include "init/launcher.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"

/* Names of variables; NULL: none. */
struct row {
    const char *mark; /* set: this launcher started the process */
    const char *name, *unbind;
    const char *tasks, *task, *local_tasks;
};

/* The first match wins. Under mpirun in a Slurm job, Slurm's variables describe mpirun's daemons, so Slurm
 * comes after it. srun --mpi=pmi2 sets PMI_SIZE too. */
static const struct row rows[] = {
    { "OMPI_COMM_WORLD_SIZE", "mpirun", "mpirun --bind-to none", "OMPI_COMM_WORLD_SIZE",
      "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE" },
    { "MPI_LOCALNRANKS", "mpiexec", "mpiexec -bind-to none", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS" },
    { "SLURM_STEP_ID", "srun", "srun --cpu-bind=none", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", NULL },
    { "PMI_SIZE", "mpiexec", "mpiexec -bind-to none", "PMI_SIZE", "PMI_RANK", NULL },
};

/* @return the variable as a non-negative int, or `otherwise`. */
static int env_int(const char *name, int otherwise)
{
    const char *text = name ? getenv(name) : NULL;
    char *end;
    if (!text || !*text) {
        return otherwise;
    }
    long value = strtol(text, &end, 10);
    return *end || value < 0 || value > INT_MAX ? otherwise : (int)value;
}

int rondo_launcher_slurm_tasks(const char *list, int node)
{
    for (int first = 0;;) {
        char *end;
        long tasks = strtol(list, &end, 10), nodes = 1;
        if (end == list || tasks < 0 || tasks > INT_MAX) {
            return 0;
        }
        if (end[0] == '(' && end[1] == 'x') {
            nodes = strtol(end + 2, &end, 10);
            if (*end++ != ')' || nodes < 1 || nodes > INT_MAX - first) {
                return 0;
            }
        }
        if (node < first + (int)nodes) {
            return node >= first ? (int)tasks : 0;
        }
        first += (int)nodes;
        if (*end != ',') {
            return 0;
        }
        list = end + 1;
    }
}

static int slurm_local_tasks(void)
{
    const char *list = getenv("SLURM_STEP_TASKS_PER_NODE");
    int node = env_int("SLURM_NODEID", -1);
    return list && node >= 0 ? rondo_launcher_slurm_tasks(list, node) : 0;
}

void rondo_launcher_read(struct rondo_launcher *launcher)
{
    *launcher = (struct rondo_launcher){ .task = -1 };
    for (size_t i = 0; i < RONDO_COUNTOF(rows); i++) {
        const struct row *row = &rows[i];
        if (!getenv(row->mark)) {
            continue;
        }
        int is_slurm = strcmp(row->name, "srun") == 0;
        launcher->name = row->name;
        launcher->unbind = row->unbind;
        launcher->tasks = env_int(row->tasks, is_slurm ? env_int("SLURM_NTASKS", 0) : 0);
        launcher->task = env_int(row->task, -1);
        launcher->local_tasks = is_slurm ? slurm_local_tasks() : env_int(row->local_tasks, 0);
        return;
    }
}
