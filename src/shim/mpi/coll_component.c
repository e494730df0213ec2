/*
 * mca_coll_rondo.so: the MPI face as a component of Open MPI, which finds it in its component path instead of
 * by LD_PRELOAD. Open MPI calls it for blocking collectives of every language, once per communicator asks
 * whether it wants that communicator, and hands it the functions that it would have used, to which calls go
 * that Rondo does not take over. The rest is the face's: decisions, Rondo's communicators, the report.
 *
 * Its interface belongs to a series of Open MPI, so the component is built for the one that configure found.
 */
#include <ompi_config.h>

#include <ompi/communicator/communicator.h>
#include <ompi/constants.h>
#include <ompi/mca/coll/coll.h>
#include <opal/mca/base/mca_base_var.h>

#include <link.h>
#include "base/types.h"
#include "shim/mpi/plan.h"
#include "shim/mpi/shim.h"

/* A communicator's functions, and those that they replace. */
struct rondo_coll_module {
    mca_coll_base_module_t base;
#define SAVED_(ctx, NAME, name, Name)        \
    mca_coll_base_module_##name##_fn_t name; \
    mca_coll_base_module_t *name##_module;
    SHIM_TABLE(SAVED_, )
#undef SAVED_
};
typedef struct rondo_coll_module rondo_coll_module;

/* The face calls collectives of MPI while it decides, and Rondo while it creates a communicator: these are
 * for the functions that were replaced. */
static __thread int deciding __attribute__((tls_model("initial-exec")));

#define FUNCTION_(ctx, NAME, name, Name)                                                       \
    static int coll_##name(SHIM_PARAMS_##NAME(int, int), mca_coll_base_module_t *module)       \
    {                                                                                          \
        const rondo_coll_module *own = (const rondo_coll_module *)module;                      \
        struct shim_call call;                                                                 \
        int nested = deciding, code;                                                           \
        deciding = 1;                                                                          \
        if (nested || shim_is_left(0, SHIM_##NAME, comm, LEFT_##NAME)) {                       \
            code = own->name(SHIM_ARGS_##NAME, own->name##_module);                            \
        } else if (shim_begin(&call, SHIM_##NAME, comm) && PLAN_##NAME && shim_takes(&call)) { \
            code = shim_run(&call);                                                            \
        } else {                                                                               \
            shim_note_left(0, &call, comm, LEFT_##NAME);                                       \
            code = own->name(SHIM_ARGS_##NAME, own->name##_module);                            \
            if (call.timed) {                                                                  \
                shim_passed(&call);                                                            \
            }                                                                                  \
        }                                                                                      \
        deciding = nested;                                                                     \
        return code;                                                                           \
    }
SHIM_TABLE(FUNCTION_, )

/* ---- a communicator ---- */

static void module_construct(rondo_coll_module *own)
{
#define CLEAR_(ctx, NAME, name, Name) own->name##_module = NULL;
    SHIM_TABLE(CLEAR_, )
#undef CLEAR_
}

static void module_destruct(rondo_coll_module *own)
{
#define RELEASE_(ctx, NAME, name, Name)  \
    if (own->name##_module != NULL) {    \
        OBJ_RELEASE(own->name##_module); \
    }
    SHIM_TABLE(RELEASE_, )
#undef RELEASE_
}

static OBJ_CLASS_INSTANCE(rondo_coll_module, mca_coll_base_module_t, module_construct, module_destruct);

/* Components of lower priority have filled the communicator's table. */
static int module_enable(mca_coll_base_module_t *module, struct ompi_communicator_t *comm)
{
    rondo_coll_module *own = (rondo_coll_module *)module;
    const mca_coll_base_comm_coll_t *table = comm->c_coll;
#define FOUND_(ctx, NAME, name, Name) &&table->coll_##name != NULL
    if (!(1 SHIM_TABLE(FOUND_, ))) {
        return OMPI_ERR_NOT_AVAILABLE;
    }
#undef FOUND_
#define SAVE_(ctx, NAME, name, Name)                  \
    own->name = table->coll_##name;                   \
    own->name##_module = table->coll_##name##_module; \
    OBJ_RETAIN(own->name##_module);
    SHIM_TABLE(SAVE_, )
#undef SAVE_
    return OMPI_SUCCESS;
}

/* ---- the component ---- */

static int priority = 100; /* above those of Open MPI */

static int is_preload(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    (void)bytes, (void)arg;
    return strstr(info->dlpi_name, "/librondo_pmpi") != NULL;
}

static int component_register(void);
static int component_init(bool progress_threads, bool mpi_threads);
static mca_coll_base_module_t *component_query(struct ompi_communicator_t *comm, int *its_priority);

/* Open MPI finds it by this name. */
__attribute__((visibility("default"))) const mca_coll_base_component_2_0_0_t mca_coll_rondo_component = {
    .collm_version = { MCA_COLL_BASE_VERSION_2_0_0, .mca_component_name = "rondo",
                       MCA_BASE_MAKE_VERSION(component, RONDO_VERSION_MAJOR, RONDO_VERSION_MINOR,
                                             RONDO_VERSION_PATCH),
                       .mca_register_component_params = component_register },
    .collm_data = { MCA_BASE_METADATA_PARAM_CHECKPOINT },
    .collm_init_query = component_init,
    .collm_comm_query = component_query,
};

static int component_register(void)
{
    mca_base_component_var_register(&mca_coll_rondo_component.collm_version, "priority",
                                    "Priority of Rondo's collectives; 0 or less: they are not used",
                                    MCA_BASE_VAR_TYPE_INT, NULL, 0, 0, OPAL_INFO_LVL_6,
                                    MCA_BASE_VAR_SCOPE_READONLY, &priority);
    return OMPI_SUCCESS;
}

static int component_init(bool progress_threads, bool mpi_threads)
{
    (void)progress_threads, (void)mpi_threads;
    shim_inside_mpi = 1;
    /* A preloaded face has decided already. What it leaves is for Open MPI. */
    return priority > 0 && dl_iterate_phdr(is_preload, NULL) == 0 ? OMPI_SUCCESS : OMPI_ERR_NOT_AVAILABLE;
}

static mca_coll_base_module_t *component_query(struct ompi_communicator_t *comm, int *its_priority)
{
    rondo_coll_module *own;
    if (OMPI_COMM_IS_INTER(comm) || ompi_comm_size(comm) < 2) {
        return NULL;
    }
    own = OBJ_NEW(rondo_coll_module);
    if (own == NULL) {
        return NULL;
    }
    own->base.coll_module_enable = module_enable;
#define SET_(ctx, NAME, name, Name) own->base.coll_##name = coll_##name;
    SHIM_TABLE(SET_, )
#undef SET_
    *its_priority = priority;
    return &own->base;
}
