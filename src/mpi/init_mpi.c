/* rondo_comm_create, for MPI programs; built once per MPI. Only the files of this folder call MPI. */
#include "mpi/rondo_mpi.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/inside.h"
#include "base/log.h"
#include "base/param.h"
#include "init/engine.h"
#include "init/launcher.h"
#include "mpi/bootstrap_mpi.h"

static struct {
    pthread_mutex_t lock;
    pid_t pid;  /* of the process in which Rondo initialised MPI; 0: the program did */
    int warned; /* singleton_warn did */
} process = { .lock = PTHREAD_MUTEX_INITIALIZER };

/*
 * Finalise MPI for a program for which Rondo initialised it, but not in a forked child, and not when ranks
 * may be out of step: MPI_Finalize waits for all ranks and would never return.
 */
static void finalize_at_exit(void)
{
    int finalized = 1, is_main = 0;
    MPI_Finalized(&finalized);
    if (finalized || process.pid != getpid() || rondo_engine_ncomms() != 0 ||
        rondo_bootstrap_mpi_graves() != 0) {
        return;
    }
    MPI_Is_thread_main(&is_main);
    if (is_main) {
        MPI_Finalize();
    }
}

static rondo_status mpi_initialize(void)
{
    int provided;
    int rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    if (rc != MPI_SUCCESS) {
        return rondo_fail(RONDO_SYSTEM_ERROR,
                          "MPI_Init_thread failed on %s with error %d; start the program with mpirun or srun",
                          rondo_log_host(), rc);
    }
    process.pid = getpid();
    if (atexit(finalize_at_exit) != 0) {
        RONDO_WARN("Rondo will not finalise MPI at exit: atexit failed; call MPI_Finalize");
    }
    RONDO_INFO(RONDO_SUBSYS_INIT, "Rondo initialised MPI for the program (thread level %d)", provided);
    return RONDO_SUCCESS;
}

static rondo_status mpi_ready(void)
{
    int initialized = 0, finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized) {
        return rondo_fail(
            RONDO_INVALID_USAGE,
            "rondo_comm_create is called on %s after MPI_Finalize; call it before: MPI carries the set-up",
            rondo_log_host());
    }
    pthread_mutex_lock(&process.lock);
    MPI_Initialized(&initialized);
    rondo_status status = initialized ? RONDO_SUCCESS : mpi_initialize();
    pthread_mutex_unlock(&process.lock);
    return status;
}

/* An MPI that does not understand its launcher runs n tasks as n programs of one rank, without a word. The
 * first task warns. */
static void singleton_warn(void)
{
    struct rondo_launcher launcher;
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    rondo_launcher_read(&launcher);
    if (size > 1 || launcher.tasks < 2 || launcher.task > 0 ||
        __atomic_exchange_n(&process.warned, 1, __ATOMIC_RELAXED)) {
        return;
    }
    RONDO_WARN(
        "MPI_COMM_WORLD has 1 rank on %s, but the launcher started %d tasks (%s): the program's MPI does not "
        "understand this launcher, so each task runs alone. Use the mpirun of the same MPI, or srun "
        "--mpi=pmix (Open MPI) or srun --mpi=pmi2 (MPICH)",
        rondo_log_host(), launcher.tasks, launcher.name);
}

/* What comes before MPI can be asked about a communicator. */
static rondo_status create_begin(rondo_comm **comm)
{
    RONDO_TRY(rondo_inside_check("rondo_comm_create")); /* MPI is not for signal handlers */
    if (!comm) {
        return rondo_engine_refuse(
            rondo_fail(RONDO_INVALID_ARGUMENT, "comm is NULL; pass the address of a rondo_comm *"));
    }
    (void)rondo_param_init(); /* before the first log line; the engine reports errors in parameters */
    return rondo_engine_refuse(mpi_ready());
}

static rondo_status create(MPI_Comm mpi_comm, const rondo_config *config, rondo_comm **comm)
{
    struct rondo_bootstrap *bootstrap;
    RONDO_TRY(rondo_engine_refuse(rondo_bootstrap_mpi(mpi_comm, &bootstrap)));
    if (bootstrap->nranks == 1) {
        singleton_warn();
    }
    return rondo_engine_create(bootstrap, config, comm);
}

rondo_status rondo_comm_create(MPI_Comm mpi_comm, const rondo_config *config, rondo_comm **comm)
{
    RONDO_TRY(create_begin(comm));
    return create(mpi_comm, config, comm);
}

rondo_status rondo_comm_create_f(RONDO_MPI_FINT_ mpi_comm, const rondo_config *config, rondo_comm **comm)
{
    RONDO_TRY(create_begin(comm));
#if MPI_VERSION >= 5
    MPI_Comm found = MPI_Comm_fromint(mpi_comm);
#else
    MPI_Comm found = MPI_Comm_f2c(mpi_comm); /* Open MPI: NULL for a number that it lacks */
#endif
    return create(found ? found : MPI_COMM_NULL, config, comm);
}
