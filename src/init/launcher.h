/* What the environment tells of the launcher that started this process. It is a hint for messages: nothing is
 * decided by it. */
#ifndef RONDO_INIT_LAUNCHER_H
#define RONDO_INIT_LAUNCHER_H

struct rondo_launcher {
    const char *name;   /* "mpirun", "mpiexec", "srun"; NULL: none is known */
    const char *unbind; /* how it is told not to bind ranks to cores */
    int tasks;          /* started together with this one; 0: unknown */
    int task;           /* number of this one among them; -1: unknown */
    int local_tasks;    /* of them on this node, as the launcher counts nodes; 0: unknown */
};

void rondo_launcher_read(struct rondo_launcher *launcher);
/** Tasks on node @a node of Slurm's list "2(x3),1"; 0: the list does not tell. */
int rondo_launcher_slurm_tasks(const char *list, int node);

#endif
