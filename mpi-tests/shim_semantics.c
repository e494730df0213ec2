/*
 * What MPI programs rely on, as a plain MPI program, run with and without the MPI face. Each case is named
 * after what users of similar layers report. With RONDO_MPI_REPORT=FILE it also checks that Rondo carried
 * calls.
 *
 *   shim_semantics [threads | death | blocking | room | large]
 *
 * blocking: Rondo carries blocking calls only, so the cases that MPI alone fails are left out, and MPI_Init
 * is not taken over. room: RONDO_MPI_COMMS is small, and must be enough. large: takes 4 GiB of memory.
 * threads: with MPI_THREAD_MULTIPLE, collectives of several threads. death: the last rank kills itself while
 * the others wait for it in a collective; they must end with an error.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim_semantics.h"

int rank, nranks;
static int failures;
static const char *what, *complaint;

void check(int ok, const char *text)
{
    if (!ok && failures++ < 20) {
        printf("rank %d: %s: %s%s%s\n", rank, what, text,
               complaint != NULL ? "; as users say of other layers: " : "",
               complaint != NULL ? complaint : "");
    }
}

void warm(MPI_Comm comm)
{
    int one = 1, sum;
    for (int i = 0; i < 8; i++) {
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    }
}

static void types_given_with_in_place_are_ignored(void)
{
    int all[64];
    all[rank] = rank + 7;
    MPI_Allgather(MPI_IN_PLACE, -5, MPI_DATATYPE_NULL, all, 1, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < nranks; r++) {
        check(all[r] == r + 7, "allgather");
    }
    MPI_Gather(rank == 0 ? MPI_IN_PLACE : &all[rank], 1, rank == 0 ? MPI_DATATYPE_NULL : MPI_INT, all, 1,
               rank == 0 ? MPI_INT : MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD);
    check(all[nranks - 1] == nranks + 6, "gather");
}

static void reduce_scatter_in_place_is_mpis(void)
{
    int counts[64], block[64 * 2], total = 0, first = 0;
    for (int r = 0; r < nranks; r++) {
        counts[r] = r % 2 + 1;
        first += r < rank ? counts[r] : 0;
        total += counts[r];
    }
    for (int i = 0; i < total; i++) {
        block[i] = i + rank;
    }
    MPI_Reduce_scatter(MPI_IN_PLACE, block, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < counts[rank]; i++) {
        check(block[i] == (first + i) * nranks + nranks * (nranks - 1) / 2, "reduce_scatter");
    }
    for (int i = 0; i < nranks * 2; i++) {
        block[i] = i * 3 - rank;
    }
    MPI_Reduce_scatter_block(MPI_IN_PLACE, block, 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    check(block[0] == rank * 6 - (nranks - 1) && block[1] == rank * 6 + 3 - (nranks - 1), "block");
}

static void minimum_and_maximum_are_right(void)
{
    long least = rank == 0 ? -4611686018427387904L : rank, most = 0;
    unsigned long high = rank == 0 ? ~0UL : (unsigned long)rank, top = 0;
    signed char c = (signed char)(rank - 100), lowest = 0;
    MPI_Allreduce(&least, &most, 1, MPI_LONG, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&high, &top, 1, MPI_UNSIGNED_LONG, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&c, &lowest, 1, MPI_SIGNED_CHAR, MPI_MIN, MPI_COMM_WORLD);
    check(most == -4611686018427387904L, "MPI_MIN of MPI_LONG");
    check(top == ~0UL, "MPI_MAX of MPI_UNSIGNED_LONG");
    check(lowest == -100, "MPI_MIN of MPI_SIGNED_CHAR");
}

/* Element i of a rank as one of C's types: small, because Open MPI 4.1.4 saturates sums. */
#define FILL(C, value) \
    for (int i = 0; i < 9; i++) ((C *)at)[i] = (C)(value)
#define FILL_PAIR(C)            \
    for (int i = 0; i < 9; i++) \
    (((struct {                 \
         C value;               \
         int index;             \
     } *)at)[i]                 \
         .value = (C)v(r, i),   \
     ((struct {                 \
         C value;               \
         int index;             \
     } *)at)[i]                 \
         .index = (r * 3 + i) % 5)
static int v(int r, int i) { return (r * 7 + i * 5) % 6; }
static void fill(void *at, char form, int r)
{
    switch (form) {
    case 'c': FILL(signed char, v(r, i)); break;
    case 's': FILL(short, v(r, i)); break;
    case 'i': FILL(int, v(r, i)); break;
    case 'l': FILL(long, v(r, i)); break;
    case 'f': FILL(float, v(r, i) - 3); break;
    case 'd': FILL(double, v(r, i) - 3); break;
    case 'D': FILL(long double, v(r, i) - 3); break;
    case 'b': FILL(_Bool, v(r, i) % 2); break;
    case 'F': FILL(float _Complex, v(r, i) - 3 + (v(i, r) - 2) * 1.0if); break;
    case 'Z': FILL(double _Complex, v(r, i) - 3 + (v(i, r) - 2) * 1.0i); break;
    case '1': FILL_PAIR(float); break;
    case '2': FILL_PAIR(double); break;
    case '3': FILL_PAIR(long); break;
    case '4': FILL_PAIR(int); break;
    case '5': FILL_PAIR(short); break;
    default: FILL_PAIR(long double); break;
    }
}

/* MPI_Reduce_local says what the library's own operation gives. */
static void compare(MPI_Datatype type, char form, MPI_Op op)
{
    static _Alignas(16) char mine[512], sum[512], expected[512], other[512];
    memset(mine, 0, sizeof mine);
    memset(sum, 0, sizeof sum);
    memset(expected, 0, sizeof expected);
    fill(mine, form, rank);
    fill(expected, form, nranks - 1);
    for (int r = nranks - 2; r >= 0; r--) {
        memset(other, 0, sizeof other);
        fill(other, form, r);
        MPI_Reduce_local(other, expected, 9, type, op);
    }
    MPI_Allreduce(mine, sum, 9, type, op, MPI_COMM_WORLD);
    if (memcmp(sum, expected, sizeof sum) != 0) {
        char names[2 * MPI_MAX_OBJECT_NAME + 30], name[MPI_MAX_OBJECT_NAME];
        int length;
        MPI_Type_get_name(type, name, &length);
        snprintf(names, sizeof names, "%s, operation 0x%zx", name, (size_t)op);
        check(0, names);
    }
}

static void every_type_has_mpis_operations(void)
{
    static const MPI_Op arithmetic[] = { MPI_SUM, MPI_PROD }, order[] = { MPI_MAX, MPI_MIN },
                        logic[] = { MPI_LAND, MPI_LOR, MPI_LXOR }, bits[] = { MPI_BAND, MPI_BOR, MPI_BXOR },
                        places[] = { MPI_MINLOC, MPI_MAXLOC };
    const struct {
        MPI_Datatype type;
        char form;
        const char *operations; /* initials of the lists above */
    } types[] = {
        { MPI_SIGNED_CHAR, 'c', "aolb" },  { MPI_UNSIGNED_CHAR, 'c', "aolb" },
        { MPI_SHORT, 's', "aolb" },        { MPI_UNSIGNED_SHORT, 's', "aolb" },
        { MPI_INT, 'i', "aolb" },          { MPI_UNSIGNED, 'i', "aolb" },
        { MPI_LONG, 'l', "aolb" },         { MPI_LONG_LONG, 'l', "aolb" },
        { MPI_INT64_T, 'l', "aolb" },      { MPI_FLOAT, 'f', "ao" },
        { MPI_DOUBLE, 'd', "ao" },         { MPI_LONG_DOUBLE, 'D', "ao" },
        { MPI_C_BOOL, 'b', "l" },          { MPI_BYTE, 'c', "b" },
        { MPI_C_FLOAT_COMPLEX, 'F', "a" }, { MPI_C_DOUBLE_COMPLEX, 'Z', "a" },
        { MPI_FLOAT_INT, '1', "p" },       { MPI_DOUBLE_INT, '2', "p" },
        { MPI_LONG_INT, '3', "p" },        { MPI_2INT, '4', "p" },
        { MPI_SHORT_INT, '5', "p" },       { MPI_LONG_DOUBLE_INT, '6', "p" },
        { MPI_AINT, 'l', "aob" },
    };
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (const char *o = types[t].operations; *o; o++) {
            const MPI_Op *ops = *o == 'a'   ? arithmetic
                                : *o == 'o' ? order
                                : *o == 'l' ? logic
                                : *o == 'b' ? bits
                                            : places;
            for (int i = 0; i < (*o == 'l' || *o == 'b' ? 3 : 2); i++) {
                compare(types[t].type, types[t].form, ops[i]);
            }
        }
    }
}

static void a_waiting_collective_moves_messages(void)
{
    enum { N = 1 << 20 };
    static char message[N];
    MPI_Request request;
    int one = 1, sum = 0;
    memset(message, rank == 1 ? 7 : 0, N);
    if (rank == 0) {
        MPI_Irecv(message, N, MPI_CHAR, 1, 3, MPI_COMM_WORLD, &request);
    } else if (rank == 1) {
        MPI_Send(message, N, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
    }
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check(message[N - 1] == 7, "the message");
    }
    check(sum == nranks, "the sum");
}

/* MPI_Iprobe reports a message that waits, and makes no progress then. */
static void a_message_that_waits_stops_nothing(void)
{
    enum { N = 1 << 20 };
    static char message[N];
    MPI_Request requests[2];
    int token = 5, got = 0, one = 1, sum = 0;
    memset(message, rank == 1 ? 9 : 0, N);
    if (rank == 0) {
        MPI_Isend(&token, 1, MPI_INT, 0, 8, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(message, N, MPI_CHAR, 1, 9, MPI_COMM_WORLD, &requests[1]);
    } else if (rank == 1) {
        MPI_Send(message, N, MPI_CHAR, 0, 9, MPI_COMM_WORLD);
    }
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Recv(&got, 1, MPI_INT, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Waitall(2, requests, (MPI_Status[2]){ 0 });
        check(got == 5 && message[N - 1] == 9, "the messages");
    }
    check(sum == nranks, "the sum");
}

static void types_may_have_absolute_addresses(void)
{
    static int there[3];
    int lengths[2] = { 1, 1 }, all[64 * 2];
    MPI_Aint at[2];
    MPI_Datatype type;
    MPI_Get_address(&there[2], &at[0]);
    MPI_Get_address(&there[0], &at[1]);
    MPI_Type_create_hindexed(2, lengths, at, MPI_INT, &type);
    MPI_Type_commit(&type);
    there[0] = rank * 2;
    there[2] = rank * 2 + 1;
    MPI_Allgather(MPI_BOTTOM, 1, type, all, 2, MPI_INT, MPI_COMM_WORLD);
    check(all[2 * (nranks - 1)] == 2 * nranks - 1 && all[2 * nranks - 1] == 2 * nranks - 2, "allgather");
    MPI_Bcast(MPI_BOTTOM, 1, type, 1, MPI_COMM_WORLD);
    check(there[0] == 2 && there[2] == 3, "bcast");
    MPI_Type_free(&type);
}

static void a_blocked_receive_moves_a_collective(void)
{
    enum { N = 200000 };
    static int mine[N], sum[N];
    MPI_Request request;
    int token = 0;
    for (int i = 0; i < N; i++) {
        mine[i] = rank + i;
    }
    MPI_Iallreduce(mine, sum, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (rank == 0) {
        MPI_Recv(&token, 1, MPI_INT, 1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (rank == 1) {
            MPI_Send(&token, 1, MPI_INT, 0, 4, MPI_COMM_WORLD);
        }
    }
    check(sum[N - 1] == nranks * (N - 1) + nranks * (nranks - 1) / 2, "the sum");
}

static void requests_behave_as_mpis(void)
{
    MPI_Request requests[4];
    MPI_Status statuses[4];
    int values[4], sums[4], indices[4], n, done = 0, flag = 0;
    for (int i = 0; i < 4; i++) {
        values[i] = rank * (i + 1);
        MPI_Iallreduce(&values[i], &sums[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
    }
    while (!flag) {
        MPI_Request_get_status(requests[2], &flag, &statuses[0]);
    }
    check(requests[2] != MPI_REQUEST_NULL, "MPI_Request_get_status freed the request");
    while (done < 4) {
        MPI_Waitsome(4, requests, &n, indices, statuses);
        done += n;
    }
    for (int i = 0; i < 4; i++) {
        check(requests[i] == MPI_REQUEST_NULL && sums[i] == (i + 1) * nranks * (nranks - 1) / 2, "a sum");
    }
}

/* The last rank's calls end as they start. Its requests must be like the others. */
static void requests_that_end_at_once_behave_as_mpis(void)
{
    enum { N = 4 };
    MPI_Request requests[N + 1];
    MPI_Status statuses[N + 1];
    int values[N], sums[N], token = 0, index = -1, flag = 0, n = -1, is_last = rank == nranks - 1;
    for (int round = 0; round < 6; round++) {
        for (int r = 0; is_last && r < nranks - 1; r++) { /* the others have started theirs */
            MPI_Recv(&token, 1, MPI_INT, r, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        for (int i = 0; i < N; i++) {
            values[i] = rank * (i + 1);
            sums[i] = -1;
            MPI_Iallreduce(&values[i], &sums[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
            check(requests[i] != MPI_REQUEST_NULL, "a call gave no request");
        }
        if (!is_last) {
            MPI_Send(&token, 1, MPI_INT, nranks - 1, 8, MPI_COMM_WORLD);
        }
        requests[N] = MPI_REQUEST_NULL;
        while (round % 3 == 0 && !flag) {
            MPI_Request_get_status(requests[0], &flag, &statuses[0]);
        }
        flag = 0;
        while (round % 3 == 1 && !flag) {
            MPI_Test(&requests[0], &flag, &statuses[0]);
        }
        MPI_Waitany(2, requests, &index, &statuses[0]);
        check(index == 1 || (index == 0 && round % 3 != 1), "MPI_Waitany names another request");
        MPI_Get_count(&statuses[0], MPI_BYTE, &n);
        check(n == 0, "the status of a collective has a count");
        MPI_Waitall(N + 1, requests, statuses);
        for (int i = 0; i < N; i++) {
            check(requests[i] == MPI_REQUEST_NULL && sums[i] == (i + 1) * nranks * (nranks - 1) / 2, "a sum");
        }
    }
}

/* Ranks give different counts: an error on all, and for other communicators, whose calls use what the failed
 * ones have left, nothing. */
static void a_failed_call_harms_its_communicator_alone(void)
{
    MPI_Comm bad[2], good;
    MPI_Comm_dup(MPI_COMM_WORLD, &good);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    warm(good);
    for (int i = 0; i < 2; i++) {
        int two[2] = { 1, 1 }, sums[2], one = 1, sum = 0, code;
        MPI_Request request;
        MPI_Comm_dup(MPI_COMM_WORLD, &bad[i]);
        MPI_Comm_set_errhandler(bad[i], MPI_ERRORS_RETURN);
        warm(bad[i]);
        code = MPI_Iallreduce(two, sums, rank == 0 ? 1 : 2, MPI_INT, MPI_SUM, bad[i], &request);
        code = code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
        check(code != MPI_SUCCESS, "an error of the call with different counts");
        code = MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, good, &request);
        code = code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
        check(code == MPI_SUCCESS && sum == nranks, "a call on another communicator after it");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_free(&bad[0]);
    MPI_Comm_free(&bad[1]);
    MPI_Comm_free(&good);
}

/* A communicator that the settings have no room for shows in the report. */
static void failed_communicators_make_room(void)
{
    MPI_Comm comm;
    for (int i = 0; i < 8; i++) {
        int two[2] = { 1, 1 }, sums[2];
        MPI_Comm bad;
        MPI_Comm_dup(MPI_COMM_WORLD, &bad);
        MPI_Comm_set_errhandler(bad, MPI_ERRORS_RETURN);
        warm(bad);
        check(MPI_Allreduce(two, sums, rank == 0 ? 1 : 2, MPI_INT, MPI_SUM, bad) != MPI_SUCCESS,
              "an error of the call with different counts");
        MPI_Comm_free(&bad);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    warm(comm);
    MPI_Comm_free(&comm);
}

static void communicators_go_in_any_order(void)
{
    enum { N = 12 };
    MPI_Comm comms[N], left;
    for (int i = 0; i < N; i++) {
        if (i % 3 == 0) {
            MPI_Comm_dup(i == 0 ? MPI_COMM_WORLD : comms[i - 1], &comms[i]);
        } else {
            MPI_Comm_split(MPI_COMM_WORLD, i % 2 ? rank % 2 : 0, -rank, &comms[i]);
        }
        warm(comms[i]);
    }
    for (int i = 0; i < N; i++) {
        MPI_Comm_free(&comms[(i * 5 + 3) % N]);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &left); /* alive at MPI_Finalize */
    warm(left);
    warm(MPI_COMM_SELF);
}

static void a_communicator_is_freed_with_a_call_under_way(void)
{
    MPI_Comm comm;
    MPI_Request request;
    int one = 1, sum = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    warm(comm);
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
    MPI_Comm_free(&comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(sum == nranks, "the sum");
}

static void a_handle_is_used_again_for_another_type(void)
{
    for (int i = 0; i < 6; i++) {
        MPI_Datatype type;
        int stride = i % 3 + 1, data[12], n = 0;
        MPI_Type_vector(3, 1, stride, MPI_INT, &type);
        MPI_Type_commit(&type);
        for (int k = 0; k < 12; k++) {
            data[k] = rank == 0 ? k + i : -1;
        }
        MPI_Bcast(data, 1, type, 0, MPI_COMM_WORLD);
        for (int k = 0; k < 12; k++) {
            n += data[k] == k + i;
        }
        check(rank == 0 || n == 3, "elements of the vector");
        MPI_Type_free(&type);
    }
}

static int type_copies;
static int on_type_copy(MPI_Datatype type, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)type, (void)keyval, (void)extra, (void)in, (void)out;
    type_copies++;
    *flag = 0;
    return MPI_ERR_OTHER;
}

/* The face keeps a type until its call ends. */
static void a_types_attributes_are_left_alone(void)
{
    int keyval, data[6];
    MPI_Datatype type;
    MPI_Request request;
    MPI_Type_vector(3, 1, 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Type_create_keyval(on_type_copy, MPI_TYPE_NULL_DELETE_FN, &keyval, NULL);
    MPI_Type_set_attr(type, keyval, NULL);
    for (int k = 0; k < 6; k++) {
        data[k] = rank == 0 ? k : -1;
    }
    MPI_Ibcast(data, 1, type, 0, MPI_COMM_WORLD, &request);
    MPI_Type_free(&type);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(data[0] == 0 && data[2] == 2 && data[4] == 4 && data[1] == (rank == 0 ? 1 : -1), "the elements");
    check(type_copies == 0, "a callback of a type's attributes runs");
    MPI_Type_free_keyval(&keyval);
}

static void other_communicators_stay_with_mpi(void)
{
    MPI_Comm half, inter;
    int mine = rank, sum = -1, expected = 0;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &inter);
    for (int i = 0; i < 8; i++) {
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, inter);
    }
    for (int r = 1 - rank % 2; r < nranks; r += 2) {
        expected += r;
    }
    check(sum == expected, "an intercommunicator's sum is the other group's");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

static inline int error_class(int code)
{
    int class = MPI_SUCCESS;
    MPI_Error_class(code, &class);
    return class;
}

#ifdef OPEN_MPI /* Debian's MPICH checks nothing */
static int errors;
static void on_error(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
    errors++;
}

static void wrong_arguments_get_mpis_errors(void)
{
    MPI_Comm comm;
    int in = 0, out = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    warm(comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    check(error_class(MPI_Allreduce(&in, &out, -1, MPI_INT, MPI_SUM, comm)) == MPI_ERR_COUNT, "a count");
    check(MPI_Allreduce(&in, &out, 1, MPI_DATATYPE_NULL, MPI_SUM, comm) != MPI_SUCCESS, "a type");
    check(error_class(MPI_Bcast(&in, 1, NULL, 0, comm)) == MPI_ERR_TYPE, "no type, as Fortran may give it");
    check(error_class(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_OP_NULL, comm)) == MPI_ERR_OP, "an operation");
    check(error_class(MPI_Bcast(&in, 1, MPI_INT, nranks, comm)) == MPI_ERR_ROOT, "a root");
    check(error_class(MPI_Allreduce(&in, &out, 1, MPI_FLOAT, MPI_BAND, comm)) == MPI_ERR_OP,
          "bits of floats");
    MPI_Datatype type;
    MPI_Type_contiguous(1, MPI_INT, &type);
    check(error_class(MPI_Bcast(&in, 1, type, 0, comm)) == MPI_ERR_TYPE, "a type that is not committed");
    MPI_Type_free(&type);
    warm(comm);
    MPI_Comm_free(&comm);
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(on_error, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    check(error_class(MPI_Barrier(NULL)) == MPI_ERR_COMM && errors == 1, "no communicator, as from Fortran");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
}
#else
static void wrong_arguments_get_mpis_errors(void) {}
#endif

static void nothing_moves_with_a_count_of_zero(void)
{
    int counts[64] = { 0 }, displs[64] = { 0 }, value = 5, got = -1;
    MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Bcast(NULL, 0, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Alltoallv(&value, counts, displs, MPI_INT, &got, counts, displs, MPI_INT, MPI_COMM_WORLD);
    counts[nranks - 1] = 1; /* only the last rank sends something */
    MPI_Allgatherv(rank == nranks - 1 ? &value : NULL, counts[rank], MPI_INT, &got, counts, displs, MPI_INT,
                   MPI_COMM_WORLD);
    check(got == 5, "allgatherv");
}

/* mpif.h, the module mpi and mpi_f08 call these, with the addresses of variables as sentinels. */
#ifdef OPEN_MPI
typedef MPI_Fint F;
void mpi_allreduce_(void *, void *, F *, F *, F *, F *, F *) __attribute__((weak));
void mpi_allreduce_f08_(void *, void *, F *, F *, F *, F *, F *) __attribute__((weak));
extern MPI_Fint mpi_fortran_in_place_ __attribute__((weak));
static void fortrans_sentinel_is_known(void)
{
    F count = 1, type = MPI_Type_c2f(MPI_INT), op = MPI_Op_c2f(MPI_SUM), comm = MPI_Comm_c2f(MPI_COMM_WORLD),
      error = -1;
    int value = rank;
    if (mpi_allreduce_ == NULL || mpi_allreduce_f08_ == NULL || &mpi_fortran_in_place_ == NULL) {
        return; /* without the face, a C program has no Fortran functions */
    }
    mpi_allreduce_(&mpi_fortran_in_place_, &value, &count, &type, &op, &comm, &error);
    check(error == MPI_SUCCESS && value == nranks * (nranks - 1) / 2, "mpif.h");
    value = rank;
    mpi_allreduce_f08_(&mpi_fortran_in_place_, &value, &count, &type, &op, &comm, NULL);
    check(value == nranks * (nranks - 1) / 2, "mpi_f08");
}

/* The library comes after the face has seen Fortran calls. */
static void a_librarys_own_sentinel_is_known(void)
{
    char file[4096];
    int value = rank, (*sum)(int *) = NULL;
    snprintf(file, sizeof file, "%s/.libs/libmpishim.so", getenv("BUILD_DIR") ? getenv("BUILD_DIR") : ".");
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL), *symbol;
    if (mpi_allreduce_ == NULL) {
        return;
    }
    symbol = library != NULL ? dlsym(library, "shim_fortran_sum") : NULL;
    memcpy(&sum, &symbol, sizeof sum);
    check(sum != NULL && sum(&value) == MPI_SUCCESS && value == nranks * (nranks - 1) / 2, "a sum in place");
}
#else
static void fortrans_sentinel_is_known(void) {}
static void a_librarys_own_sentinel_is_known(void) {}
#endif

/* ---- a death ---- */

static void a_killed_rank_ends_the_job(void)
{
    int one = 1, sum;
    for (int i = 0; i < 100; i++) {
        if (i == 50 && rank == nranks - 1) {
            kill(getpid(), SIGKILL);
        }
        /* Calls begin before the control plane's connections are open. A death earlier than that shows in the
         * data's connection alone, whose error names rank and host, and no pid. So all ranks leave the core
         * to their other threads, again and again, however busy the machine is. */
        usleep(20000);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    check(0, "collectives go on without a rank");
}

/* ---- the end ---- */

static int on_finalize(MPI_Comm comm, int keyval, void *value, void *extra)
{
    int one = 1, sum = 0;
    (void)comm, (void)keyval, (void)value, (void)extra;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum != nranks) {
        printf("rank %d: the sum of a callback in MPI_Finalize is %d\n", rank, sum);
        exit(1);
    }
    return MPI_SUCCESS;
}

/* MPI_Finalize will call back. */
static void callback_add(void)
{
    int keyval;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
    MPI_Comm_free_keyval(&keyval);
}

/* ---- the report ---- */

/* @return whether a line of the file has the text */
static int report_has(const char *file, const char *text)
{
    char line[512];
    int found = 0;
    FILE *f = fopen(file, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        found |= strstr(line, text) != NULL;
    }
    if (f != NULL) {
        fclose(f);
    }
    return found;
}

static int report_says_taken(const char *file)
{
    char line[512];
    int taken = 0;
    FILE *f = fopen(file, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char name[32];
        unsigned long long calls, bytes, on_rondo;
        char size[16];
        double ms;
        taken |= sscanf(line, " %31s %15s %llu %llu %lf %llu", name, size, &calls, &bytes, &ms, &on_rondo) ==
                     6 &&
                 strcmp(name, "allreduce") == 0 && on_rondo > 0;
    }
    if (f != NULL) {
        fclose(f);
    }
    return taken;
}

/* clang-format off */
#define CASE(name, complaint) { #name, name, complaint, 0 }
#define ONLY(name, complaint) { #name, name, complaint, 1 }
/* clang-format on */
static const struct {
    const char *name;
    void (*run)(void);
    const char *complaint; /* of users of similar layers, NULL: none */
    int only_rondo; /* MPI alone fails it (a wrong maximum, crashes, a start refused), or the component */
} cases[] = {
    CASE(one_rank_has_a_derived_type_in_a_v_collective, "ucc PR#1300: deadlock"),
    CASE(types_given_with_in_place_are_ignored, "ompi#13224: they were looked at"),
    CASE(reduce_scatter_in_place_is_mpis, "ucc#683: the result at another place"),
    CASE(reduce_scatter_takes_any_blocks, NULL),
    ONLY(minimum_and_maximum_are_right, "ompi#10521: a wrong MPI_MIN"),
    CASE(iallreduce_is_right, "ompi#9385: wrong results"),
    CASE(gather_in_place_keeps_every_block, "ompi#11545: HAN overwrites some"),
    CASE(a_broadcast_needs_no_more_of_the_root, "cuDecomp PR#24: the set-up of NCCL stalls"),
    CASE(every_type_has_mpis_operations, NULL),
    CASE(a_waiting_collective_moves_messages, NULL),
    CASE(a_message_that_waits_stops_nothing, NULL),
    CASE(types_may_have_absolute_addresses, NULL),
    CASE(a_blocked_receive_moves_a_collective, NULL),
    CASE(requests_behave_as_mpis, NULL),
    ONLY(requests_that_end_at_once_behave_as_mpis, "MPICH 4: its statuses of collectives have counts"),
    ONLY(a_failed_call_harms_its_communicator_alone, NULL),
    CASE(communicators_go_in_any_order, "mpich#6075: some live in MPI_Finalize, which crashed"),
    CASE(freed_communicators_leave_nothing, "ucc#925, ompi#13767: leaks and crashes"),
    ONLY(a_communicator_is_freed_with_a_call_under_way, "ompi#13767"),
    CASE(a_communicator_that_goes_late_leaves_nothing, NULL),
    ONLY(callbacks_may_use_a_communicator_that_goes, NULL),
    ONLY(an_error_handler_may_not_return, NULL),
    CASE(a_handle_is_used_again_for_another_type, NULL),
    CASE(a_types_attributes_are_left_alone, NULL),
    CASE(types_may_have_large_counts, NULL),
    CASE(other_communicators_stay_with_mpi, NULL),
    CASE(wrong_arguments_get_mpis_errors, NULL),
    CASE(nothing_moves_with_a_count_of_zero, NULL),
    CASE(one_address_has_nothing_to_send_and_receive, NULL),
    CASE(one_buffer_has_disjoint_parts, NULL),
    CASE(only_the_root_knows_the_counts, NULL),
    ONLY(blocks_with_gaps_outlive_their_communicator, NULL),
    ONLY(the_programs_attributes_are_left_alone, NULL),
    ONLY(persistent_calls_start_in_any_order, NULL),
    ONLY(a_persistent_call_outlives_its_communicator, NULL),
    ONLY(a_failed_persistent_call_calls_its_error_handler, NULL),
    CASE(fortrans_sentinel_is_known, "ompi#3954, IPM PR#6: mpi_f08 and MPI_IN_PLACE"),
    CASE(a_librarys_own_sentinel_is_known, "Fortran libraries of a Python program"),
    CASE(threads_use_different_communicators, "ompi#9761, #6917, mpich PR#2768: switched off, or crashes"),
    ONLY(a_wait_meets_requests_that_end, NULL),
};
enum { NCASES = sizeof cases / sizeof *cases, THREADED = 2 /* the last ones */ };

int main(int argc, char **argv)
{
    const char *report = getenv("RONDO_MPI_REPORT");
    int level, all = 0, n;
    int threads = argc > 1 && strcmp(argv[1], "threads") == 0,
        blocking = argc > 1 && strcmp(argv[1], "blocking") == 0,
        room = argc > 1 && strcmp(argv[1], "room") == 0, large = argc > 1 && strcmp(argv[1], "large") == 0,
        death = argc > 1 && !threads && !blocking && !room && !large;
    n = threads ? NCASES : NCASES - THREADED;
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    if (nranks < 2 || nranks > 64 || (threads && level < MPI_THREAD_MULTIPLE)) {
        printf("needs 2 to 64 ranks, and an MPI with threads\n");
        MPI_Finalize();
        return 77;
    }
    if (rank == 0 && !blocking) { /* the others after all else */
        callback_add();
    }
    warm(MPI_COMM_WORLD);
    if (death) {
        what = "a_killed_rank_ends_the_job";
        a_killed_rank_ends_the_job();
    }
    if (room) {
        what = "room";
        failed_communicators_make_room();
        freed_persistent_calls_make_room();
    }
    if (large) {
        what = "an_element_may_be_larger_than_1_gib";
        an_element_may_be_larger_than_1_gib();
    }
    for (int i = 0; i < n && !room && !large; i++) {
        what = cases[i].name;
        complaint = cases[i].complaint;
        if ((report != NULL && !blocking) || !cases[i].only_rondo) {
            cases[i].run();
        }
    }
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank > 0 && !blocking) {
        callback_add();
    }
    MPI_Finalize();
    if (rank == 0 && report != NULL && !report_says_taken(report)) {
        printf("the report %s does not say that Rondo carried an allreduce\n", report);
        all++;
    }
    if (rank == 0 && room && report_has(report, "RONDO_MPI_COMMS")) {
        printf("the report %s says that there was no room for a communicator\n", report);
        all++;
    }
    if (rank == 0) {
        printf("shim_semantics: %d cases, %d wrong\n", room ? 2 : large ? 1 : n, all);
    }
    return all != 0;
}
