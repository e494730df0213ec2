/* The launcher that started this process, according to the environment. Only messages use it; nothing depends
 * on it. */
#ifndef RONDO_INIT_LAUNCHER_H
#define RONDO_INIT_LAUNCHER_H

struct rondo_launcher {
    const char *name;   /* "mpirun", "mpiexec", "srun"; NULL: unknown */
    const char *unbind; /* its command line without binding to cores */
    int tasks;          /* in the job step of this one; 0: unknown */
    int task;           /* this one's number; -1: unknown */
    int local_tasks;    /* on this node, as the launcher counts nodes; 0: unknown */
};

/** Read the environment. */
void rondo_launcher_read(struct rondo_launcher *launcher);
/** @return the tasks on node @a node in a list of Slurm such as "2(x3),1"; 0: unknown. */
int rondo_launcher_slurm_tasks(const char *list, int node);

#endif
