/* Types and operations of MPI, and what they are in Rondo. */
#include "shim/mpi/shim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* A thread's types: direct-mapped by handle. */
enum { NENTRIES = 32 };
struct shim_types {
    unsigned generation;
    struct shim_type entry[NENTRIES]; /* handle MPI_DATATYPE_NULL: none */
};

static unsigned types_generation; /* of the process: grows when a type is freed */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int keyval = MPI_KEYVAL_INVALID;
static pthread_key_t types_key; /* frees a thread's types */
static pthread_once_t types_once = PTHREAD_ONCE_INIT;

/* Predefined types that operations combine. The size and `prefix` make the name of Rondo's type. */
#define KIND_ROW_(type, kind, prefix) { type, SHIM_KIND_##kind, prefix },
#define KIND_TABLE(X)                   \
    X(MPI_SIGNED_CHAR, INT, 'i')        \
    X(MPI_SHORT, INT, 'i')              \
    X(MPI_INT, INT, 'i')                \
    X(MPI_LONG, INT, 'i')               \
    X(MPI_LONG_LONG_INT, INT, 'i')      \
    X(MPI_INT8_T, INT, 'i')             \
    X(MPI_INT16_T, INT, 'i')            \
    X(MPI_INT32_T, INT, 'i')            \
    X(MPI_INT64_T, INT, 'i')            \
    X(MPI_AINT, INT, 'i')               \
    X(MPI_COUNT, INT, 'i')              \
    X(MPI_OFFSET, INT, 'i')             \
    X(MPI_INTEGER, INT, 'i')            \
    X(MPI_INTEGER1, INT, 'i')           \
    X(MPI_INTEGER2, INT, 'i')           \
    X(MPI_INTEGER4, INT, 'i')           \
    X(MPI_INTEGER8, INT, 'i')           \
    X(MPI_UNSIGNED_CHAR, INT, 'u')      \
    X(MPI_UNSIGNED_SHORT, INT, 'u')     \
    X(MPI_UNSIGNED, INT, 'u')           \
    X(MPI_UNSIGNED_LONG, INT, 'u')      \
    X(MPI_UNSIGNED_LONG_LONG, INT, 'u') \
    X(MPI_UINT8_T, INT, 'u')            \
    X(MPI_UINT16_T, INT, 'u')           \
    X(MPI_UINT32_T, INT, 'u')           \
    X(MPI_UINT64_T, INT, 'u')           \
    X(MPI_FLOAT, FLOAT, 'f')            \
    X(MPI_DOUBLE, FLOAT, 'f')           \
    X(MPI_REAL, FLOAT, 'f')             \
    X(MPI_DOUBLE_PRECISION, FLOAT, 'f') \
    X(MPI_REAL4, FLOAT, 'f')            \
    X(MPI_REAL8, FLOAT, 'f')

static void kind_find(struct shim_type *type)
{
    const struct {
        MPI_Datatype handle;
        enum shim_kind kind;
        char prefix;
    } table[] = { KIND_TABLE(KIND_ROW_) };
    for (size_t i = 0; i < RONDO_COUNTOF(table); i++) {
        if (table[i].handle == type->handle) {
            char name[8];
            snprintf(name, sizeof name, "%c%u", table[i].prefix, (unsigned)(type->size * 8) & 0xfff);
            type->kind = table[i].kind;
            type->dtype = rondo_dtype_from_name(name);
            return;
        }
    }
}

/* Operations, and the kinds of types that MPI lets them combine. */
#define OP_TABLE(X)                                                          \
    X(MPI_SUM, "sum", SHIM_KIND_INT | SHIM_KIND_FLOAT | SHIM_KIND_COMPLEX)   \
    X(MPI_PROD, "prod", SHIM_KIND_INT | SHIM_KIND_FLOAT | SHIM_KIND_COMPLEX) \
    X(MPI_MAX, "max", SHIM_KIND_INT | SHIM_KIND_FLOAT)                       \
    X(MPI_MIN, "min", SHIM_KIND_INT | SHIM_KIND_FLOAT)
#define OP_ROW_(op, name, kinds) { op, name, kinds },

int shim_op_find(MPI_Op op, const struct shim_type *type)
{
    static const struct {
        MPI_Op op;
        const char *name;
        int kinds;
    } table[] = { OP_TABLE(OP_ROW_) };
    static int numbers[RONDO_COUNTOF(table)]; /* of Rondo, plus 1; the same whoever writes it */
    for (size_t i = 0; i < RONDO_COUNTOF(table); i++) {
        if (table[i].op == op) {
            int number = __atomic_load_n(&numbers[i], __ATOMIC_RELAXED);
            if (RONDO_UNLIKELY(number == 0)) {
                number = rondo_op_from_name(table[i].name) + 1;
                __atomic_store_n(&numbers[i], number, __ATOMIC_RELAXED);
            }
            return type->dtype >= 0 && (table[i].kinds & (int)type->kind) ? number - 1 : -1;
        }
    }
    return -1;
}

static int type_deleted(MPI_Datatype type, int key, void *value, void *extra)
{
    (void)type, (void)key, (void)value, (void)extra;
    __atomic_add_fetch(&types_generation, 1, __ATOMIC_RELEASE);
    return MPI_SUCCESS;
}

/* Have type_deleted called when the type goes, whoever frees it. */
static int type_watch(MPI_Datatype type)
{
    void *value;
    int found = 0;
    pthread_mutex_lock(&lock);
    if (keyval == MPI_KEYVAL_INVALID &&
        PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, type_deleted, &keyval, NULL) != MPI_SUCCESS) {
        keyval = MPI_KEYVAL_INVALID;
    }
    pthread_mutex_unlock(&lock);
    return keyval != MPI_KEYVAL_INVALID && PMPI_Type_get_attr(type, keyval, &value, &found) == MPI_SUCCESS &&
           (found || PMPI_Type_set_attr(type, keyval, NULL) == MPI_SUCCESS);
}

static int is_plain(MPI_Datatype type, int *combiner);

/* Is the type that a duplicate or a contiguous type is made of plain? */
static int is_plain_inside(MPI_Datatype type, int combiner, int nints)
{
    int ints[1], plain, inner_combiner;
    MPI_Aint none;
    MPI_Datatype inner;
    if ((combiner != MPI_COMBINER_DUP && combiner != MPI_COMBINER_CONTIGUOUS) ||
        PMPI_Type_get_contents(type, nints, 0, 1, ints, &none, &inner) != MPI_SUCCESS) {
        return 0;
    }
    plain = is_plain(inner, &inner_combiner);
    if (inner_combiner != MPI_COMBINER_NAMED && inner_combiner != MPI_COMBINER_F90_INTEGER &&
        inner_combiner != MPI_COMBINER_F90_REAL && inner_combiner != MPI_COMBINER_F90_COMPLEX) {
        PMPI_Type_free(&inner);
    }
    return plain;
}

static int is_plain(MPI_Datatype type, int *combiner)
{
    int nints, naddresses, ntypes, size;
    MPI_Aint lb, extent;
    *combiner = MPI_COMBINER_NAMED;
    if (PMPI_Type_get_envelope(type, &nints, &naddresses, &ntypes, combiner) != MPI_SUCCESS) {
        return 0;
    }
    if (*combiner == MPI_COMBINER_NAMED || *combiner == MPI_COMBINER_F90_INTEGER ||
        *combiner == MPI_COMBINER_F90_REAL || *combiner == MPI_COMBINER_F90_COMPLEX) {
        return PMPI_Type_size(type, &size) == MPI_SUCCESS &&
               PMPI_Type_get_extent(type, &lb, &extent) == MPI_SUCCESS && lb == 0 && extent == size;
    }
    return is_plain_inside(type, *combiner, nints);
}

static int type_read(MPI_Datatype handle, struct shim_type *type)
{
    MPI_Count size = 0;
    MPI_Aint lb;
    int combiner;
    *type = (struct shim_type){ .handle = handle, .dtype = -1 };
    type->is_plain = is_plain(handle, &combiner);
    if (PMPI_Type_size_x(handle, &size) != MPI_SUCCESS || size < 0 ||
        PMPI_Type_get_extent(handle, &lb, &type->extent) != MPI_SUCCESS) {
        return 0;
    }
    type->size = (size_t)size;
    if (combiner == MPI_COMBINER_NAMED) {
        kind_find(type);
        return 1;
    }
    return type_watch(handle);
}

static void types_once_init(void) { pthread_key_create(&types_key, free); }

static struct shim_types *types_of_thread(void)
{
    struct shim_types *types = shim_thread.types;
    if (RONDO_LIKELY(types != NULL)) {
        return types;
    }
    pthread_once(&types_once, types_once_init);
    types = malloc(sizeof *types);
    if (types != NULL) {
        types->generation = __atomic_load_n(&types_generation, __ATOMIC_ACQUIRE) - 1;
        pthread_setspecific(types_key, types);
        shim_thread.types = types;
    }
    return types;
}

static __attribute__((noinline)) const struct shim_type *type_miss(MPI_Datatype handle,
                                                                   struct shim_types *types,
                                                                   struct shim_type *entry)
{
    static __thread struct shim_type alone; /* a thread without memory for more */
    unsigned generation = __atomic_load_n(&types_generation, __ATOMIC_ACQUIRE);
    if (handle == MPI_DATATYPE_NULL) {
        return NULL;
    }
    if (types == NULL) {
        return type_read(handle, &alone) ? &alone : NULL;
    }
    if (types->generation != generation) {
        for (int i = 0; i < NENTRIES; i++) {
            types->entry[i].handle = MPI_DATATYPE_NULL;
        }
        types->generation = generation;
    }
    if (!type_read(handle, entry)) {
        entry->handle = MPI_DATATYPE_NULL;
        return NULL;
    }
    return entry;
}

const struct shim_type *shim_type_find(MPI_Datatype handle)
{
    struct shim_types *types = types_of_thread();
    uint64_t hash = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15);
    struct shim_type *entry = types != NULL ? &types->entry[hash >> 59] : NULL;
    if (RONDO_LIKELY(types != NULL && entry->handle == handle &&
                     types->generation == __atomic_load_n(&types_generation, __ATOMIC_ACQUIRE)) &&
        RONDO_LIKELY(handle != MPI_DATATYPE_NULL)) {
        return entry;
    }
    return type_miss(handle, types, entry);
}
