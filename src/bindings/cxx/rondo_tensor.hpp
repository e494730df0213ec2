/*
 * Named tensors for C++17: the functions of rondo_tensor.h, with owners. As in rondo.hpp, every function has a form
 * that throws rondo::error, and one with std::nothrow first that returns the status. What rondo_tensor.h says of keys,
 * steps, memory, threads and errors holds here too.
 *
 *     rondo::tensor_store store(comm);
 *     store.publish("weights", 7, rondo::tensor_of(data, n));          // on rank 0
 *     rondo::pulled got = store.pull("weights", 0, 7);                 // elsewhere: memory of the store
 *     use(got.data<float>(), got.count<float>());
 */
#ifndef RONDO_TENSOR_HPP
#define RONDO_TENSOR_HPP

#include "rondo.hpp"
#include "rondo_tensor.h"

namespace rondo {

struct tensor_config : rondo_tensor_config {
    tensor_config() noexcept : rondo_tensor_config(RONDO_TENSOR_CONFIG_INIT) {}
};

/** A rondo_tensor with the values of RONDO_TENSOR_INIT. */
struct tensor : rondo_tensor {
    tensor() noexcept : rondo_tensor(RONDO_TENSOR_INIT) {}
};

/** The tensor of @a count elements, in one row. */
template <class T>
tensor tensor_of(T *data, std::size_t count) noexcept
{
    tensor made;
    made.data = const_cast<std::remove_const_t<T> *>(data);
    made.bytes = count * sizeof(T);
    made.type = dtype<std::remove_const_t<T>>;
    return made;
}
/** The same, row after row: the product of @a shape is the number of elements. */
template <class T>
tensor tensor_of(T *data, std::initializer_list<std::int64_t> shape)
{
    std::size_t count = 1;
    tensor made = tensor_of(data, 0);
    for (std::int64_t size : shape) {
        if (made.ndims == RONDO_TENSOR_MAX_DIMS || size < 0) {
            throw error(RONDO_INVALID_ARGUMENT, "rondo::tensor_of: a negative or a ninth dimension");
        }
        made.shape[made.ndims++] = size;
        count *= static_cast<std::size_t>(size);
    }
    made.bytes = count * sizeof(T);
    return made;
}

/** Rows of a tensor, or bytes, as the slice of a pull. */
inline rondo_tensor_slice rows(std::uint64_t first, std::uint64_t count) noexcept
{
    return { RONDO_TENSOR_ROWS, first, count };
}
inline rondo_tensor_slice bytes(std::uint64_t first, std::uint64_t count) noexcept
{
    return { RONDO_TENSOR_BYTES, first, count };
}
inline constexpr rondo_tensor_slice all_of_it = { RONDO_TENSOR_ALL, 0, 0 };

/** A tensor in memory of a store, which it frees at its end. It must end before the store does. */
class pulled {
public:
    pulled() noexcept = default;
    pulled(rondo_tensor_store *store, const rondo_tensor &what) noexcept : store_(store), what_(what) {}
    pulled(pulled &&from) noexcept : store_(std::exchange(from.store_, nullptr)), what_(from.what_) {}
    pulled &operator=(pulled &&from) noexcept
    {
        if (this != &from) {
            end();
            store_ = std::exchange(from.store_, nullptr);
            what_ = from.what_;
        }
        return *this;
    }
    ~pulled() { end(); }
    const rondo_tensor *operator->() const noexcept { return &what_; }
    const rondo_tensor &operator*() const noexcept { return what_; }
    /** Its elements. They are T's: else an exception, RONDO_INVALID_ARGUMENT. */
    template <class T>
    T *data() const
    {
        if (what_.type != dtype<T>) throw error(RONDO_INVALID_ARGUMENT, "the tensor has another data type");
        return static_cast<T *>(what_.data);
    }
    template <class T>
    std::size_t count() const noexcept
    {
        return what_.bytes / sizeof(T);
    }

private:
    void end() noexcept
    {
        if (store_) (void)rondo_tensor_free(store_, what_.data);
        store_ = nullptr;
    }
    rondo_tensor_store *store_ = nullptr;
    rondo_tensor what_ = RONDO_TENSOR_INIT;
};

/** A pull or publication under way. Its destructor cancels it and waits for its end. */
class tensor_request {
public:
    tensor_request() noexcept = default;
    explicit tensor_request(rondo_tensor_request *handle) noexcept : handle_(handle) {}
    tensor_request(tensor_request &&from) noexcept : handle_(std::exchange(from.handle_, nullptr)) {}
    tensor_request &operator=(tensor_request &&from) noexcept
    {
        if (this != &from) {
            end();
            handle_ = std::exchange(from.handle_, nullptr);
        }
        return *this;
    }
    ~tensor_request() { end(); }
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    void wait(std::int64_t timeout_ms = RONDO_CONFIG_DEFAULT) { check(wait(std::nothrow, timeout_ms)); }
    [[nodiscard]] rondo_status wait(std::nothrow_t, std::int64_t timeout_ms = RONDO_CONFIG_DEFAULT) noexcept
    {
        if (timeout_ms < RONDO_CONFIG_DEFAULT) return rondo_tensor_wait(handle_, timeout_ms); // refused
        return rondo_tensor_wait(std::exchange(handle_, nullptr), timeout_ms);
    }
    /** @return true: it has ended. */
    bool test()
    {
        bool done = false;
        check(test(std::nothrow, done));
        return done;
    }
    [[nodiscard]] rondo_status test(std::nothrow_t, bool &done) noexcept
    {
        int is_done = 0;
        rondo_status status = rondo_tensor_test(handle_, &is_done);
        done = is_done != 0;
        if (done) handle_ = nullptr;
        return status;
    }
    /** Its wait ends soon, with an error. */
    void cancel() { check(cancel(std::nothrow)); }
    [[nodiscard]] rondo_status cancel(std::nothrow_t) noexcept { return rondo_tensor_cancel(handle_); }

private:
    void end() noexcept
    {
        if (handle_ && rondo_tensor_cancel(handle_) == RONDO_SUCCESS) (void)wait(std::nothrow);
    }
    rondo_tensor_request *handle_ = nullptr;
};

/**
 * This rank's end of a store. All ranks of the communicator make it and end it, in the same order, and its
 * communicator lives longer.
 *
 * Its destructor serves the other ranks until they end theirs too. While an exception leaves the scope it aborts the
 * communicator instead, as rondo::comm does: the others would wait for this rank.
 */
class tensor_store : public owner<rondo_tensor_store *, rondo_tensor_store_destroy> {
public:
    tensor_store() noexcept = default;
    explicit tensor_store(rondo_comm *comm, const rondo_tensor_config &settings = tensor_config())
    {
        check(create(std::nothrow, comm, settings, *this), comm);
    }
    tensor_store(tensor_store &&) noexcept = default;
    tensor_store &operator=(tensor_store &&) noexcept = default;
    ~tensor_store()
    {
        if (handle_ && std::uncaught_exceptions() > exceptions_) (void)rondo_comm_abort(comm_);
    }
    [[nodiscard]] static rondo_status create(std::nothrow_t, rondo_comm *comm, const rondo_tensor_config &settings,
                                             tensor_store &made) noexcept
    {
        rondo_tensor_store *handle = nullptr;
        rondo_status status = rondo_tensor_store_create(comm, &settings, &handle);
        if (status == RONDO_SUCCESS) {
            (void)made.reset(std::nothrow);
            made.handle_ = handle;
            made.comm_ = comm;
        }
        return status;
    }
    /** Inside a group it is refused, and the store stays. */
    void reset() { check(reset(std::nothrow)); }
    rondo_status reset(std::nothrow_t) noexcept
    {
        rondo_tensor_store *handle = handle_;
        rondo_status status = owner::reset(std::nothrow);
        rondo_tensor_stats counts{};
        counts.size = sizeof counts;
        if (status == RONDO_INVALID_USAGE && rondo_tensor_store_stats(handle, &counts) == RONDO_SUCCESS) {
            handle_ = handle;
        }
        return status;
    }
    rondo_tensor_stats stats() const
    {
        rondo_tensor_stats counts{};
        counts.size = sizeof counts;
        check(rondo_tensor_store_stats(get(), &counts));
        return counts;
    }

    /* ---- publishing ---- */

    /** For @a pulls pulls, or until the step is retired. */
    void publish(const char *key, std::uint64_t step, const rondo_tensor &what,
                 std::uint64_t pulls = RONDO_TENSOR_UNTIL_RETIRED)
    {
        check(rondo_tensor_publish(get(), key, step, &what, pulls, nullptr));
    }
    [[nodiscard]] rondo_status publish(std::nothrow_t, const char *key, std::uint64_t step, const rondo_tensor &what,
                                       std::uint64_t pulls, tensor_request &made) noexcept
    {
        return make(made, [&](auto to) { return rondo_tensor_publish(get(), key, step, &what, pulls, to); });
    }
    /** Ends when all pulls have landed. */
    [[nodiscard]] tensor_request publish_and_tell(const char *key, std::uint64_t step, const rondo_tensor &what,
                                                  std::uint64_t pulls)
    {
        tensor_request made;
        check(publish(std::nothrow, key, step, what, pulls, made));
        return made;
    }
    void announce(const char *key, std::uint64_t step, const rondo_tensor &what,
                  std::uint64_t pulls = RONDO_TENSOR_UNTIL_RETIRED)
    {
        check(rondo_tensor_announce(get(), key, step, &what, pulls, nullptr));
    }
    [[nodiscard]] rondo_status announce(std::nothrow_t, const char *key, std::uint64_t step, const rondo_tensor &what,
                                        std::uint64_t pulls, tensor_request &made) noexcept
    {
        return make(made, [&](auto to) { return rondo_tensor_announce(get(), key, step, &what, pulls, to); });
    }
    void publish_error(const char *key, std::uint64_t step, rondo_status status, const char *text)
    {
        check(rondo_tensor_publish_error(get(), key, step, status, text));
    }
    [[nodiscard]] rondo_status publish_error(std::nothrow_t, const char *key, std::uint64_t step, rondo_status status,
                                             const char *text) noexcept
    {
        return rondo_tensor_publish_error(get(), key, step, status, text);
    }
    void retire(std::uint64_t step) { check(retire(std::nothrow, step)); }
    [[nodiscard]] rondo_status retire(std::nothrow_t, std::uint64_t step) noexcept
    {
        return rondo_tensor_retire(get(), step);
    }
    void next_epoch() { check(next_epoch(std::nothrow)); }
    [[nodiscard]] rondo_status next_epoch(std::nothrow_t) noexcept { return rondo_tensor_next_epoch(get()); }
    /** publish for one pull; ends when it has landed. */
    [[nodiscard]] tensor_request send(const char *key, std::uint64_t step, const rondo_tensor &what)
    {
        tensor_request made;
        check(send(std::nothrow, key, step, what, made));
        return made;
    }
    [[nodiscard]] rondo_status send(std::nothrow_t, const char *key, std::uint64_t step, const rondo_tensor &what,
                                    tensor_request &made) noexcept
    {
        return make(made, [&](auto to) { return rondo_tensor_send(get(), key, step, &what, to); });
    }

    /* ---- pulling ---- */

    /** Into memory of the store. peer may be RONDO_TENSOR_ANY, step RONDO_TENSOR_LATEST. */
    [[nodiscard]] pulled pull(const char *key, int peer, std::uint64_t step,
                              const rondo_tensor_slice &slice = all_of_it)
    {
        tensor what;
        check(rondo_tensor_pull(get(), key, peer, step, &slice, &what, nullptr));
        return pulled(get(), what);
    }
    /** Into what->data, which has what->bytes bytes, or with NULL into memory of the store (then wrap it in pulled).
     * what must live until the request has ended. */
    void pull(const char *key, int peer, std::uint64_t step, rondo_tensor *what,
              const rondo_tensor_slice &slice = all_of_it)
    {
        check(rondo_tensor_pull(get(), key, peer, step, &slice, what, nullptr));
    }
    [[nodiscard]] rondo_status pull(std::nothrow_t, const char *key, int peer, std::uint64_t step, rondo_tensor *what,
                                    const rondo_tensor_slice &slice, tensor_request &made) noexcept
    {
        return make(made, [&](auto to) { return rondo_tensor_pull(get(), key, peer, step, &slice, what, to); });
    }
    [[nodiscard]] tensor_request pull_later(const char *key, int peer, std::uint64_t step, rondo_tensor *what,
                                            const rondo_tensor_slice &slice = all_of_it)
    {
        tensor_request made;
        check(pull(std::nothrow, key, peer, step, what, slice, made));
        return made;
    }
    void recv(const char *key, int peer, std::uint64_t step, rondo_tensor *what)
    {
        check(rondo_tensor_recv(get(), key, peer, step, what, nullptr));
    }
    [[nodiscard]] rondo_status recv(std::nothrow_t, const char *key, int peer, std::uint64_t step, rondo_tensor *what,
                                    tensor_request &made) noexcept
    {
        return make(made, [&](auto to) { return rondo_tensor_recv(get(), key, peer, step, what, to); });
    }
    /** All of them; each item's status says how it ended. */
    void pull_many(std::vector<rondo_tensor_item> &items)
    {
        check(rondo_tensor_pull_many(get(), items.data(), items.size(), nullptr));
    }
    [[nodiscard]] rondo_status pull_many(std::nothrow_t, rondo_tensor_item *items, std::size_t n,
                                         tensor_request &made) noexcept
    {
        return make(made, [&](auto to) { return rondo_tensor_pull_many(get(), items, n, to); });
    }

    /* ---- memory ---- */

    /** Room for @a count elements in memory that is registered once; the store's end frees what free has not. */
    template <class T>
    T *alloc(std::size_t count)
    {
        void *made = nullptr;
        check(rondo_tensor_alloc(get(), count * sizeof(T), &made));
        return static_cast<T *>(made);
    }
    [[nodiscard]] rondo_status alloc(std::nothrow_t, std::size_t size, void **made) noexcept
    {
        return rondo_tensor_alloc(get(), size, made);
    }
    void free(void *data) { check(free(std::nothrow, data)); }
    [[nodiscard]] rondo_status free(std::nothrow_t, void *data) noexcept { return rondo_tensor_free(get(), data); }

private:
    template <class Call>
    [[nodiscard]] static rondo_status make(tensor_request &made, Call call) noexcept
    {
        rondo_tensor_request *handle = nullptr;
        rondo_status status = call(&handle);
        if (status == RONDO_SUCCESS) made = tensor_request(handle);
        return status;
    }
    rondo_comm *comm_ = nullptr;
    int exceptions_ = std::uncaught_exceptions();
};

} // namespace rondo
#endif
