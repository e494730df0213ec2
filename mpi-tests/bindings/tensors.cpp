// Every method of rondo_tensor.hpp gives what rondo_tensor.h promises, throws what it should, and gives the same
// status with std::nothrow.
#include <rondo_mpi.hpp>
#include <rondo_tensor.hpp>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

static_assert(!std::is_copy_constructible_v<rondo::tensor_store> && !std::is_copy_constructible_v<rondo::pulled>);
static_assert(std::is_nothrow_move_constructible_v<rondo::tensor_store>);
static_assert(!std::is_copy_assignable_v<rondo::tensor_request>);

static void check(bool ok, const char *what, int line)
{
    if (ok) return;
    std::fprintf(stderr, "tensors.cpp:%d: %s\n", line, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define CHECK(condition) check(condition, #condition, __LINE__)

template <class Call>
static void throws(rondo_status status, const char *says, Call call, int line)
{
    try {
        call();
    } catch (const rondo::error &error) {
        check(error.status() == status && std::strstr(error.what(), says), error.what(), line);
        return;
    }
    check(false, "no exception", line);
}
#define THROWS(status, says, call) throws(status, says, [&] { call; }, __LINE__)

// Every rank publishes a matrix of its number, and pulls that of the next one.
static void matrices(rondo::tensor_store &store, int me, int n)
{
    const int next = (me + 1) % n;
    std::array<float, 12> mine, rows{};
    for (std::size_t i = 0; i < mine.size(); i++) mine[i] = static_cast<float>(me * 100) + static_cast<float>(i);
    rondo::tensor matrix = rondo::tensor_of(mine.data(), { 4, 3 });
    CHECK(matrix.bytes == 48 && matrix.ndims == 2 && matrix.type == RONDO_FLOAT32);
    store.publish("matrix", 1, matrix);

    rondo::pulled got = store.pull("matrix", next, 1);
    CHECK(got->ndims == 2 && got->shape[0] == 4 && got->shape[1] == 3 && got->peer == next && got->step == 1);
    CHECK(got.count<float>() == 12 && got.data<float>()[11] == static_cast<float>(next * 100 + 11));
    THROWS(RONDO_INVALID_ARGUMENT, "another data type", (void)got.data<int>());
    rondo::pulled moved = std::move(got);
    CHECK((*moved).bytes == 48);

    rondo::tensor into = rondo::tensor_of(rows.data(), rows.size());
    store.pull("matrix", next, RONDO_TENSOR_LATEST, &into, rondo::rows(2, 1));
    CHECK(into.bytes == 12 && rows[0] == static_cast<float>(next * 100 + 6) && rows[3] == 0);
    rondo::pulled four = store.pull("matrix", next, 1, rondo::bytes(4, 4));
    CHECK(four->type == RONDO_UINT8 && four->bytes == 4);

    std::vector<rondo_tensor_item> items(2);
    std::array<rondo::tensor, 2> many;
    for (std::size_t i = 0; i < items.size(); i++) {
        items[i] = { "matrix", static_cast<int>(i), 1, rondo::all_of_it, &many[i], RONDO_SUCCESS };
    }
    store.pull_many(items);
    for (std::size_t i = 0; i < items.size(); i++) {
        rondo::pulled one(store.get(), many[i]);
        CHECK(items[i].status == RONDO_SUCCESS && one.data<float>()[0] == static_cast<float>(i * 100));
    }
    THROWS(RONDO_INVALID_ARGUMENT, "ninth dimension", (void)rondo::tensor_of(mine.data(), { -1 }));
    MPI_Barrier(MPI_COMM_WORLD);
    store.retire(1);
    THROWS(RONDO_INVALID_USAGE, "was retired", store.publish("matrix", 1, matrix));
}

static void requests(rondo::tensor_store &store, int me, int n)
{
    const int next = (me + 1) % n, before = (me + n - 1) % n;
    int *value = store.alloc<int>(1), got = -1;
    *value = me;
    rondo::tensor out = rondo::tensor_of(value, 1), in = rondo::tensor_of(&got, 1), none;
    rondo::tensor_request pull = store.pull_later("value", before, 2, &in);
    rondo::tensor_request sent = store.send("value", 2, out);
    while (!pull.test()) {
    }
    CHECK(got == before && !pull);
    sent.wait(60000);
    rondo::tensor_request told = store.publish_and_tell("told", 2, out, 1);
    store.recv("told", next, 2, &in);
    CHECK(got == next);
    told.wait();
    store.announce(("key of " + std::to_string(me)).c_str(), 2, out);
    store.pull(("key of " + std::to_string(next)).c_str(), RONDO_TENSOR_ANY, RONDO_TENSOR_LATEST, &in);
    CHECK(got == next && in.peer == next);
    store.publish_error("bad", 2, RONDO_SYSTEM_ERROR, "the disk is full");
    THROWS(RONDO_SYSTEM_ERROR, "the disk is full", (void)store.pull("bad", next, 2));
    rondo::tensor_request never = store.pull_later("never", next, 2, &none);
    THROWS(RONDO_TIMEOUT, "never", never.wait(10));
    never = store.pull_later("never", next, 2, &none);
    never.cancel();
    CHECK(never.wait(std::nothrow) == RONDO_INVALID_USAGE && !never);
    never = store.pull_later("never", next, 2, &none);
    CHECK(never.wait(std::nothrow, -2) == RONDO_INVALID_ARGUMENT && never); // a refused wait keeps it
    { // a request that is dropped is cancelled
        rondo::tensor_request dropped = store.pull_later("never", next, 2, &none);
    }
    CHECK(store.stats().requests >= 6 && store.stats().arenas == 1);
    MPI_Barrier(MPI_COMM_WORLD);
    store.next_epoch();
    store.free(value);
    THROWS(RONDO_INVALID_ARGUMENT, "not memory of this store", store.free(value));
}

static void statuses(rondo::tensor_store &store, int n)
{
    rondo::tensor_request request;
    rondo::tensor none;
    rondo_tensor_item bad = { "x", n, 0, rondo::all_of_it, &none, RONDO_SUCCESS };
    void *memory = nullptr;
    bool done = true;
    CHECK(store.publish(std::nothrow, "", 0, none, 1, request) == RONDO_INVALID_ARGUMENT && !request);
    CHECK(store.announce(std::nothrow, nullptr, 0, none, 1, request) == RONDO_INVALID_ARGUMENT);
    CHECK(store.send(std::nothrow, "", 0, none, request) == RONDO_INVALID_ARGUMENT);
    CHECK(store.publish_error(std::nothrow, "x", 0, RONDO_SUCCESS, "") == RONDO_INVALID_ARGUMENT);
    CHECK(store.pull(std::nothrow, "x", n, 0, &none, rondo::all_of_it, request) == RONDO_INVALID_ARGUMENT);
    CHECK(store.recv(std::nothrow, "x", n, 0, &none, request) == RONDO_INVALID_ARGUMENT && !request);
    CHECK(store.pull_many(std::nothrow, &bad, 1, request) == RONDO_INVALID_ARGUMENT);
    CHECK(store.retire(std::nothrow, RONDO_TENSOR_LATEST) == RONDO_INVALID_ARGUMENT);
    CHECK(store.alloc(std::nothrow, SIZE_MAX, &memory) == RONDO_SYSTEM_ERROR && !memory);
    CHECK(request.test(std::nothrow, done) == RONDO_INVALID_ARGUMENT && !done);
    CHECK(request.cancel(std::nothrow) == RONDO_INVALID_ARGUMENT);
    rondo::tensor_store empty;
    CHECK(empty.next_epoch(std::nothrow) == RONDO_INVALID_ARGUMENT);
    THROWS(RONDO_INVALID_ARGUMENT, "the tensor store is NULL", (void)empty.pull("x", 0, 0));
}

// An exception that leaves the scope ends the store and its communicator on all ranks.
static void exceptions(int me)
{
    rondo::comm comm = rondo::create(MPI_COMM_WORLD);
    rondo::tensor none;
    try {
        rondo::tensor_store store(comm);
        if (me == 0) throw 7;
        THROWS(RONDO_REMOTE_ERROR, "rank 0", store.recv("never", 0, 0, &none));
    } catch (int) {
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    try {
        rondo::comm comm = rondo::create(MPI_COMM_WORLD);
        rondo::tensor_config settings;
        settings.timeout_ms = 60000;
        rondo::tensor_store store(comm, settings);
        matrices(store, comm.rank(), comm.count());
        requests(store, comm.rank(), comm.count());
        statuses(store, comm.count());
        store.reset();
        CHECK(!store.get());
        rondo_comm *none = nullptr;
        CHECK(rondo::tensor_store::create(std::nothrow, none, settings, store) == RONDO_INVALID_ARGUMENT);
        exceptions(comm.rank());
        std::printf("rank %d: all calls are right\n", comm.rank());
    } catch (const rondo::error &error) {
        std::fprintf(stderr, "unexpected: %s\n", error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
}
