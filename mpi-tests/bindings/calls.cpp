// Every method of rondo.hpp gives what rondo.h promises, throws what it should, and gives the same status with
// std::nothrow.
#include <rondo_mpi.hpp>
#include <array>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

static_assert(rondo::dtype<int> == RONDO_INT32 && rondo::dtype<unsigned> == RONDO_UINT32);
static_assert(rondo::dtype<long> == RONDO_INT64 && rondo::dtype<long long> == RONDO_INT64);
static_assert(rondo::dtype<signed char> == RONDO_INT8 && rondo::dtype<unsigned char> == RONDO_UINT8);
static_assert(rondo::dtype<float> == RONDO_FLOAT32 && rondo::dtype<double> == RONDO_FLOAT64);
static_assert(rondo::dtype<rondo::float16> == RONDO_FLOAT16 && rondo::dtype<rondo::bfloat16> == RONDO_BFLOAT16);
static_assert(rondo::dtype<short> == RONDO_INT16 && rondo::dtype<bool> == RONDO_BOOL8);
static_assert(rondo::dtype<std::complex<double>> == RONDO_COMPLEX_FLOAT64);
static_assert(!std::is_copy_constructible_v<rondo::comm> && std::is_nothrow_move_constructible_v<rondo::comm>);
static_assert(!std::is_copy_assignable_v<rondo::memory<int>>);
static_assert(noexcept(std::declval<rondo::comm &>().barrier(std::nothrow)));

static void check(bool ok, const char *what, int line)
{
    if (ok) return;
    std::fprintf(stderr, "calls.cpp:%d: %s\n", line, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define CHECK(condition) check(condition, #condition, __LINE__)

template <class Call>
static void throws(rondo_status status, Call call, int line)
{
    try {
        call();
    } catch (const rondo::error &error) {
        check(error.status() == status, error.what(), line);
        check(std::strlen(error.what()) > 20, "the exception has the sentence", line);
        return;
    }
    check(false, "no exception", line);
}
#define THROWS(status, call) throws(status, [&] { call; }, __LINE__)

static void collectives(rondo::comm &comm)
{
    const int n = comm.count(), me = comm.rank(), last = n - 1;
    const std::size_t ranks = static_cast<std::size_t>(n), self = static_cast<std::size_t>(me);
    std::vector<double> one(2, me + 1.0), all(2 * ranks), two(2);
    comm.all_reduce(one.data(), two.data(), 2, rondo::sum);
    CHECK(two[1] == n * (n + 1) / 2.0);
    comm.reduce(one.data(), me == last ? two.data() : nullptr, 2, rondo::max, last);
    CHECK(me != last || two[0] == n);
    comm.reduce(RONDO_FLOAT64, one.data(), two.data(), 2, rondo::min, last);
    CHECK(me != last || two[0] == 1);
    if (me == 0) {
        comm.broadcast(one.data(), two.data(), 2, 0);
    } else {
        comm.broadcast(nullptr, two.data(), 2, 0);
    }
    CHECK(two[1] == 1);
    comm.all_gather(one.data(), all.data(), 2);
    CHECK(all[2 * ranks - 1] == n);
    comm.reduce_scatter(all.data(), two.data(), 2, rondo::avg);
    CHECK(two[0] == me + 1);
    for (std::size_t i = 0; i < all.size(); i++) all[i] = me;
    comm.all_to_all(all.data(), all.data(), 2);
    CHECK(all[2 * ranks - 1] == last);
    comm.gather(one.data(), all.data(), 2, 0);
    CHECK(me != 0 || all[2 * ranks - 1] == n);
    comm.scatter(all.data(), two.data(), 2, 0);
    CHECK(me != 0 || two[0] == 1);

    std::vector<std::size_t> counts(ranks), displs(ranks);
    std::size_t total = 0;
    for (std::size_t r = 0; r < ranks; r++) {
        counts[r] = r + 1, displs[r] = total;
        total += counts[r];
    }
    std::vector<int> mine(self + 1, me), every(total);
    comm.all_gatherv(mine.data(), every.data(), counts.data(), displs.data());
    CHECK(every[total - 1] == last && every[0] == 0);
    comm.reduce_scatterv(every.data(), mine.data(), counts.data(), displs.data(), rondo::prod);
    CHECK(mine[0] == (me == 0 ? 0 : me == 1 ? 1 : mine[self]));
    std::vector<std::size_t> each(ranks, 1), at(ranks);
    for (std::size_t r = 0; r < ranks; r++) at[r] = r;
    std::vector<unsigned char> out(ranks, static_cast<unsigned char>(me)), in(ranks);
    comm.all_to_allv(out.data(), each.data(), at.data(), in.data(), each.data(), at.data());
    CHECK(in[ranks - 1] == last);
    CHECK(comm.barrier(std::nothrow) == RONDO_SUCCESS);
}

static void streams(rondo::comm &comm)
{
    const int n = comm.count(), me = comm.rank();
    rondo::stream stream = rondo::stream::create();
    rondo::memory<int> mine(100), sum(100);
    mine[99] = 1;
    comm.all_reduce(mine.data(), sum.data(), 100, rondo::sum, stream);
    while (!stream.query()) std::this_thread::yield();
    CHECK(sum[99] == n);
    rondo::registration registered = comm.register_memory(mine.data(), 100 * sizeof(int));
    rondo::stream moved = std::move(stream);
    CHECK(!stream.get() && moved.get());
    float right = static_cast<float>(me), left = -1;
    rondo::group([&] {
        comm.send(&right, 1, (me + 1) % n, moved);
        comm.recv(&left, 1, (me + n - 1) % n, moved);
    });
    moved.synchronize();
    CHECK(left == static_cast<float>((me + n - 1) % n));
    CHECK(rondo::group(std::nothrow, [&] { return comm.barrier(std::nothrow); }) == RONDO_SUCCESS);

    rondo::premul_sum doubled = comm.create_premul_sum(2.0f);
    comm.all_reduce(&right, &left, 1, doubled);
    CHECK(left == static_cast<float>(n * (n - 1)));
    registered.reset();
    doubled.reset();
    THROWS(RONDO_INVALID_ARGUMENT, comm.all_reduce(&right, &left, 1, doubled)); // it is empty now
}

static void errors(rondo::comm &comm)
{
    int x = 0, mine = 1;
    try {
        rondo::group([&] {
            comm.all_reduce(&mine, &x, 1, rondo::sum);
            throw 7;
        });
    } catch (int) {
    }
    CHECK(rondo::group(std::nothrow, [&] {
              rondo_status status = comm.all_reduce(std::nothrow, &mine, &x, 1, rondo::sum);
              return status == RONDO_SUCCESS ? RONDO_TIMEOUT : status;
          }) == RONDO_TIMEOUT);
    CHECK(x == 0);
    THROWS(RONDO_INVALID_ARGUMENT, comm.broadcast(&x, &x, 1, comm.count()));
    CHECK(comm.broadcast(std::nothrow, &x, &x, 1, comm.count()) == RONDO_INVALID_ARGUMENT);
    CHECK(std::strlen(comm.last_error()) > 20);
    THROWS(RONDO_INVALID_ARGUMENT, rondo::comm().barrier());
    THROWS(RONDO_INVALID_ARGUMENT, rondo::create(MPI_COMM_NULL));
    rondo::comm none;
    CHECK(rondo::create(std::nothrow, MPI_COMM_NULL, rondo::config(), none) == RONDO_INVALID_ARGUMENT && !none);
    rondo_comm *handle = nullptr;
    CHECK(rondo_comm_create_f(MPI_Comm_c2f(MPI_COMM_NULL), nullptr, &handle) == RONDO_INVALID_ARGUMENT);
    CHECK(rondo_comm_create_f(MPI_Comm_c2f(MPI_COMM_WORLD), nullptr, nullptr) == RONDO_INVALID_ARGUMENT);
    THROWS(RONDO_INVALID_ARGUMENT, rondo::memory<double>(SIZE_MAX / 2));
    CHECK(comm.async_error() == RONDO_SUCCESS && comm.device() == -1);
    comm.dump("/dev/null");
    THROWS(RONDO_SYSTEM_ERROR, comm.dump("/nowhere/at/all"));
    CHECK(rondo::version() == RONDO_VERSION_CODE);
}

static void children(rondo::comm &comm)
{
    const int n = comm.count(), me = comm.rank();
    rondo::comm half = comm.split(me % 2, me);
    CHECK(half.count() == (n + 1 - me % 2) / 2 && half.rank() == me / 2);
    rondo::comm none = comm.split(me == 0 ? RONDO_SPLIT_NOCOLOR : 0, me);
    CHECK((me == 0) == !none);
    if (me > 0) {
        rondo::comm others = none.shrink({});
        CHECK(others.count() == n - 1);
        others.finalize();
        others.destroy();
        CHECK(!others);
    }
    /* What a group makes comes to be at its end, or comes to nothing; by then the object has moved. */
    rondo::comm later, never;
    rondo::group([&] { later = comm.split(me == 0 ? RONDO_SPLIT_NOCOLOR : 0, me); });
    CHECK((me == 0) == !later);
    CHECK(!later || later.count() == n - 1);
    int x = 0;
    THROWS(RONDO_INVALID_ARGUMENT, rondo::group([&] {
               never = comm.split(0, me);
               CHECK(rondo::comm::create(std::nothrow, nullptr, 0, rondo::config(), later) == RONDO_INVALID_ARGUMENT);
               comm.broadcast(&x, &x, 1, n);
           }));
    CHECK(!never && (me == 0) == !later);
    /* Ranks that are threads; then an exception leaves a scope, which aborts the communicator. */
    rondo::local place = rondo::local::create(2);
    auto thread = [&place](int rank, bool leaves) {
        rondo::comm both = rondo::comm::create(place, rank);
        int one = 1, sum = 0;
        both.all_reduce(&one, &sum, 1, rondo::sum);
        CHECK(sum == 2);
        if (!leaves) return THROWS(RONDO_REMOTE_ERROR, both.all_reduce(&one, &sum, 1, rondo::sum));
        try {
            rondo::comm gone = std::move(both);
            throw 7;
        } catch (int) {
        }
    };
    std::thread first(thread, 0, false), second(thread, 1, true);
    first.join();
    second.join();
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    try {
        rondo::config settings;
        settings.name = "calls";
        settings.timeout_ms = 60000;
        rondo::comm comm = rondo::create(MPI_COMM_WORLD, settings);
        collectives(comm);
        streams(comm);
        errors(comm);
        children(comm);
        std::printf("rank %d: all calls are right\n", comm.rank());
    } catch (const rondo::error &error) {
        std::fprintf(stderr, "unexpected: %s\n", error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
}
