/* Types and operations of MPI, and what they are in Rondo. */
#include "shim/mpi/shim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

unsigned shim_types_generation;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int keyval = MPI_KEYVAL_INVALID;
static pthread_key_t types_key; /* frees a thread's types */
static pthread_once_t types_once = PTHREAD_ONCE_INIT;

/*
 * Predefined types that operations combine: X(type, kind, name of Rondo's type). A name that ends in # gets
 * the number of the type's bits.
 */
#define KIND_ROW_(type, kind, name) { type, SHIM_KIND_##kind, name },
#define KIND_TABLE(X)                            \
    X(MPI_SIGNED_CHAR, INT, "i#")                \
    X(MPI_SHORT, INT, "i#")                      \
    X(MPI_INT, INT, "i#")                        \
    X(MPI_LONG, INT, "i#")                       \
    X(MPI_LONG_LONG_INT, INT, "i#")              \
    X(MPI_INT8_T, INT, "i#")                     \
    X(MPI_INT16_T, INT, "i#")                    \
    X(MPI_INT32_T, INT, "i#")                    \
    X(MPI_INT64_T, INT, "i#")                    \
    X(MPI_UNSIGNED_CHAR, INT, "u#")              \
    X(MPI_UNSIGNED_SHORT, INT, "u#")             \
    X(MPI_UNSIGNED, INT, "u#")                   \
    X(MPI_UNSIGNED_LONG, INT, "u#")              \
    X(MPI_UNSIGNED_LONG_LONG, INT, "u#")         \
    X(MPI_UINT8_T, INT, "u#")                    \
    X(MPI_UINT16_T, INT, "u#")                   \
    X(MPI_UINT32_T, INT, "u#")                   \
    X(MPI_UINT64_T, INT, "u#")                   \
    X(MPI_AINT, OTHER_INT, "i#")                 \
    X(MPI_COUNT, OTHER_INT, "i#")                \
    X(MPI_OFFSET, OTHER_INT, "i#")               \
    X(MPI_INTEGER, OTHER_INT, "i#")              \
    X(MPI_INTEGER1, OTHER_INT, "i#")             \
    X(MPI_INTEGER2, OTHER_INT, "i#")             \
    X(MPI_INTEGER4, OTHER_INT, "i#")             \
    X(MPI_INTEGER8, OTHER_INT, "i#")             \
    X(MPI_FLOAT, FLOAT, "f#")                    \
    X(MPI_DOUBLE, FLOAT, "f#")                   \
    X(MPI_REAL, FLOAT, "f#")                     \
    X(MPI_DOUBLE_PRECISION, FLOAT, "f#")         \
    X(MPI_REAL4, FLOAT, "f#")                    \
    X(MPI_REAL8, FLOAT, "f#")                    \
    X(MPI_LONG_DOUBLE, FLOAT, "ld")              \
    X(MPI_C_BOOL, LOGICAL, "b#")                 \
    X(MPI_CXX_BOOL, LOGICAL, "b#")               \
    X(MPI_LOGICAL, LOGICAL, "b#")                \
    X(MPI_BYTE, BYTE, "u#")                      \
    X(MPI_C_FLOAT_COMPLEX, COMPLEX, "cf32")      \
    X(MPI_C_DOUBLE_COMPLEX, COMPLEX, "cf64")     \
    X(MPI_C_LONG_DOUBLE_COMPLEX, COMPLEX, "cld") \
    X(MPI_COMPLEX8, COMPLEX, "cf32")             \
    X(MPI_COMPLEX16, COMPLEX, "cf64")            \
    X(MPI_FLOAT_INT, PAIR, "float_int")          \
    X(MPI_DOUBLE_INT, PAIR, "double_int")        \
    X(MPI_LONG_INT, PAIR, "long_int")            \
    X(MPI_2INT, PAIR, "int_int")                 \
    X(MPI_SHORT_INT, PAIR, "short_int")          \
    X(MPI_LONG_DOUBLE_INT, PAIR, "ld_int")

/* Fortran's types without a size in the name have that of the compiler's options. */
#define SIZED_TABLE(X)                                  \
    X(MPI_COMPLEX, COMPLEX, 8, "cf32")                  \
    X(MPI_COMPLEX, COMPLEX, 16, "cf64")                 \
    X(MPI_DOUBLE_COMPLEX, COMPLEX, 16, "cf64")          \
    X(MPI_2REAL, PAIR, 8, "float_float")                \
    X(MPI_2REAL, PAIR, 16, "double_double")             \
    X(MPI_2DOUBLE_PRECISION, PAIR, 16, "double_double") \
    X(MPI_2INTEGER, PAIR, 8, "int_int")
#define SIZED_ROW_(type, kind, size, name) { type, SHIM_KIND_##kind, size, name },

static void kind_set(struct shim_type *type, enum shim_kind kind, const char *name)
{
    char text[24];
    size_t length = strlen(name);
    if (name[length - 1] == '#') {
        snprintf(text, sizeof text, "%.*s%u", (int)length - 1, name, (unsigned)(type->size * 8) & 0xfff);
        name = text;
    }
    type->kind = kind;
    type->dtype = rondo_dtype_from_name(name);
    if (type->dtype >= 0 && (MPI_Aint)rondo_dtype_size((rondo_dtype)type->dtype) != type->extent) {
        type->dtype = -1; /* another layout in memory */
    }
}

static void kind_find(struct shim_type *type)
{
    const struct {
        MPI_Datatype handle;
        enum shim_kind kind;
        const char *name;
    } table[] = { KIND_TABLE(KIND_ROW_) };
    const struct {
        MPI_Datatype handle;
        enum shim_kind kind;
        size_t size;
        const char *name;
    } sized[] = { SIZED_TABLE(SIZED_ROW_) };
    for (size_t i = 0; i < RONDO_COUNTOF(table); i++) {
        if (table[i].handle == type->handle) {
            kind_set(type, table[i].kind, table[i].name);
            return;
        }
    }
    for (size_t i = 0; i < RONDO_COUNTOF(sized); i++) {
        if (sized[i].handle == type->handle && sized[i].size == type->size) {
            kind_set(type, sized[i].kind, sized[i].name);
            return;
        }
    }
}

/* Is it one of MPI's own, which no program can have left uncommitted? (Not those that few compilers have.) */
static int is_predefined(MPI_Datatype type)
{
#define KIND_HANDLE_(handle, kind, name) handle,
#define SIZED_HANDLE_(handle, kind, size, name) handle,
    const MPI_Datatype all[] = { KIND_TABLE(KIND_HANDLE_) SIZED_TABLE(SIZED_HANDLE_) MPI_CHAR, MPI_WCHAR,
                                 MPI_CHARACTER, MPI_PACKED };
    size_t i = 0;
    while (i < RONDO_COUNTOF(all) && all[i] != type) {
        i++;
    }
    return i < RONDO_COUNTOF(all) && type != MPI_DATATYPE_NULL; /* which a library may call what it lacks */
}

/* Operations, and the kinds of types that MPI lets them combine. */
#define SHIM_NUMBERS (SHIM_KIND_INT | SHIM_KIND_OTHER_INT | SHIM_KIND_FLOAT)
#define SHIM_BITS (SHIM_KIND_INT | SHIM_KIND_OTHER_INT | SHIM_KIND_BYTE)
#define OP_TABLE(X)                                        \
    X(MPI_SUM, "sum", SHIM_NUMBERS | SHIM_KIND_COMPLEX)    \
    X(MPI_PROD, "prod", SHIM_NUMBERS | SHIM_KIND_COMPLEX)  \
    X(MPI_MAX, "max", SHIM_NUMBERS)                        \
    X(MPI_MIN, "min", SHIM_NUMBERS)                        \
    X(MPI_LAND, "land", SHIM_KIND_INT | SHIM_KIND_LOGICAL) \
    X(MPI_LOR, "lor", SHIM_KIND_INT | SHIM_KIND_LOGICAL)   \
    X(MPI_LXOR, "lxor", SHIM_KIND_INT | SHIM_KIND_LOGICAL) \
    X(MPI_BAND, "band", SHIM_BITS)                         \
    X(MPI_BOR, "bor", SHIM_BITS)                           \
    X(MPI_BXOR, "bxor", SHIM_BITS)                         \
    X(MPI_MINLOC, "minloc", SHIM_KIND_PAIR)                \
    X(MPI_MAXLOC, "maxloc", SHIM_KIND_PAIR)
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
    __atomic_add_fetch(&shim_types_generation, 1, __ATOMIC_RELEASE);
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

/* How the type was made. Of one that was made with large counts only a function of MPI 4 says it: in MPICH the
 * older one is an error then, which ends the program. An older library need not have it, nor such types. */
#if MPI_VERSION >= 4
#pragma weak PMPI_Type_get_envelope_c
#pragma weak PMPI_Type_get_contents_c
#endif
static int combiner_of(MPI_Datatype type, int *combiner)
{
    int nints, naddresses, ntypes;
#if MPI_VERSION >= 4
    MPI_Count ints, addresses, counts, types;
    if (PMPI_Type_get_envelope_c != NULL) {
        return PMPI_Type_get_envelope_c(type, &ints, &addresses, &counts, &types, combiner);
    }
#endif
    return PMPI_Type_get_envelope(type, &nints, &naddresses, &ntypes, combiner);
}

/* The type that a duplicate or a contiguous type is made of. */
static int inner_of(MPI_Datatype type, MPI_Datatype *inner)
{
    int count;
    MPI_Aint none;
#if MPI_VERSION >= 4
    MPI_Count large;
    if (PMPI_Type_get_contents_c != NULL) {
        return PMPI_Type_get_contents_c(type, 1, 0, 1, 1, &count, &none, &large, inner);
    }
#endif
    return PMPI_Type_get_contents(type, 1, 0, 1, &count, &none, inner);
}

static int is_plain(MPI_Datatype type, int *combiner);

/* Is the type that a duplicate or a contiguous type is made of plain? */
static int is_plain_inside(MPI_Datatype type, int combiner)
{
    int plain, inner_combiner;
    MPI_Datatype inner;
    if ((combiner != MPI_COMBINER_DUP && combiner != MPI_COMBINER_CONTIGUOUS) ||
        inner_of(type, &inner) != MPI_SUCCESS) {
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
    int size;
    MPI_Aint lb, extent;
    *combiner = MPI_COMBINER_NAMED;
    if (combiner_of(type, combiner) != MPI_SUCCESS) {
        return 0;
    }
    if (*combiner == MPI_COMBINER_NAMED || *combiner == MPI_COMBINER_F90_INTEGER ||
        *combiner == MPI_COMBINER_F90_REAL || *combiner == MPI_COMBINER_F90_COMPLEX) {
        return PMPI_Type_size(type, &size) == MPI_SUCCESS &&
               PMPI_Type_get_extent(type, &lb, &extent) == MPI_SUCCESS && lb == 0 && extent == size;
    }
    return is_plain_inside(type, *combiner);
}

static int packs_nothing(MPI_Datatype type, MPI_Comm comm)
{
    char none[1] = { 0 };
    int position = 0;
    return PMPI_Pack(none, 0, type, none, (int)sizeof none, &position, comm) == MPI_SUCCESS;
}

/* Will MPI use the type? It refuses one that it does not know or that is not committed, and only tells when
 * it is used. Functions that only describe a type have no communicator: they would call the error handler of
 * MPI_COMM_WORLD, which ends the program. */
static int is_usable(MPI_Datatype type)
{
    MPI_Comm self = shim_comm_self_made();
    MPI_Errhandler handler;
    int usable;
    if (self != MPI_COMM_NULL || shim_inside_mpi) { /* where MPI has looked at it */
        return shim_inside_mpi || packs_nothing(type, self);
    }
    if (is_predefined(type)) { /* another thread may change the handler */
        return 1;
    }
    pthread_mutex_lock(&lock);
    PMPI_Comm_get_errhandler(MPI_COMM_SELF, &handler);
    PMPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    usable = packs_nothing(type, MPI_COMM_SELF);
    PMPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    PMPI_Errhandler_free(&handler);
    pthread_mutex_unlock(&lock);
    return usable;
}

static int type_read(MPI_Datatype handle, struct shim_type *type)
{
    MPI_Count size = 0;
    MPI_Aint lb;
    int combiner;
    *type = (struct shim_type){ .handle = handle, .dtype = -1 };
    if (!is_usable(handle)) {
        return 0;
    }
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

int shim_type_hold(MPI_Datatype type, MPI_Datatype *held)
{
    int code = PMPI_Type_contiguous(1, type, held);
    return code == MPI_SUCCESS ? PMPI_Type_commit(held) : code;
}

static int have_types_key; /* else a thread's types stay when it ends */
static void types_once_init(void) { have_types_key = pthread_key_create(&types_key, free) == 0; }

static struct shim_types *types_of_thread(void)
{
    struct shim_types *types = shim_thread.types;
    if (RONDO_LIKELY(types != NULL)) {
        return types;
    }
    pthread_once(&types_once, types_once_init);
    types = malloc(sizeof *types);
    if (types != NULL) {
        types->generation = __atomic_load_n(&shim_types_generation, __ATOMIC_ACQUIRE) - 1;
        if (have_types_key) {
            pthread_setspecific(types_key, types);
        }
        shim_thread.types = types;
    }
    return types;
}

static __attribute__((noinline)) const struct shim_type *type_miss(MPI_Datatype handle,
                                                                   struct shim_types *types,
                                                                   struct shim_type *entry)
{
    static __thread struct shim_type alone; /* a thread without memory for more */
    unsigned generation = __atomic_load_n(&shim_types_generation, __ATOMIC_ACQUIRE);
    if (handle == MPI_DATATYPE_NULL) {
        return NULL;
    }
    if (types == NULL) {
        return type_read(handle, &alone) ? &alone : NULL;
    }
    if (types->generation != generation) {
        for (int i = 0; i < SHIM_NTYPES; i++) {
            types->entry[i].handle = MPI_DATATYPE_NULL;
        }
        for (int coll = 0; coll < SHIM_NCOLLS; coll++) {
            types->left[0][coll].comm = types->left[1][coll].comm = MPI_COMM_NULL;
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
                     types->generation == __atomic_load_n(&shim_types_generation, __ATOMIC_ACQUIRE)) &&
        RONDO_LIKELY(handle != MPI_DATATYPE_NULL)) {
        return entry;
    }
    return type_miss(handle, types, entry);
}
