/* The backend "rondo" of torch.distributed (_torch.cpp): calls under way, and the thread that ends some. */
#ifndef RONDO_TORCH_WORK_HPP
#define RONDO_TORCH_WORK_HPP

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include <sys/prctl.h>

#include "_torch_memory.hpp"
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace rondo_torch
{

using Millis = std::chrono::milliseconds;
constexpr unsigned long kSlackNs = 1000; /* of a sleep */

class Work final : public c10d::Work
{
  public:
    Work(int rank, c10d::OpType type, const char *title, const Tensors &results, Memory memory)
        : c10d::Work(rank, type, title, results), results_(results), memory_(std::move(memory)),
          device_(memory_.device())
    {
        if (!device_.is_cpu()) {
            stream_ = current_stream();
        }
    }
    ~Work() override
    {
        if (handle != nullptr) {
            (void)rondo_pgroup_work_free(handle);
        }
    }
    rondo_pgroup_work *handle = nullptr;

    bool isCompleted() override
    {
        int ended = ended_.load(std::memory_order_acquire);
        if (!ended) {
            rondo_status status = rondo_pgroup_work_test(handle, &ended);
            if (ended || status != RONDO_SUCCESS) {
                end(status);
                ended = 1;
            }
        }
        return ended != 0;
    }
    bool isSuccess() const override { return ended_.load(std::memory_order_acquire) && !exception(); }
    std::exception_ptr exception() const override
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return exception_;
    }
    std::vector<at::Tensor> result() override { return results_; }
    void synchronize() override { wait(kNoTimeout); }
    bool wait(Millis timeout) override
    {
        (void)wait(timeout, rondo_pgroup_work_wait);
        if (copied_) {
            copied_->block(current_stream());
        }
        return true;
    }
    bool wait(Millis timeout, decltype(&rondo_pgroup_work_wait) how)
    {
        if (!ended_.load(std::memory_order_acquire)) {
            rondo_status status = how(handle, timeout > kNoTimeout ? timeout.count() : RONDO_CONFIG_DEFAULT);
            std::string why = status == RONDO_SUCCESS ? "" : rondo_last_error(nullptr);
            if (status == RONDO_TIMEOUT && timeout > kNoTimeout && !isCompleted()) {
                throw std::runtime_error(why); /* this wait is over; the work goes on */
            }
            end(status, why);
        }
        if (std::exception_ptr error = exception()) {
            std::rethrow_exception(error);
        }
        return true;
    }
    void abort() override { fail("a work alone cannot be aborted; abort its group"); }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  private:
    friend class Group;
    void end(rondo_status status, std::string why = "")
    {
        Memory used; /* freed after the lock: to free a tensor may take Python's lock, whose holder may want ours */
        std::unique_lock<std::mutex> lock(once_);
        if (ended_.load(std::memory_order_acquire)) {
            return;
        }
        std::exception_ptr error;
        try {
            if (status != RONDO_SUCCESS) {
                throw std::runtime_error(!why.empty() ? why : rondo_last_error(nullptr));
            }
            copy_back();
        } catch (...) {
            error = std::current_exception();
        }
        std::swap(used, memory_);
        finish(error);
        ended_.store(1, std::memory_order_release);
        c10::intrusive_ptr<c10::ivalue::Future> future = future_;
        lock.unlock(); /* what a program hangs on the future may ask for this work */
        if (future) {
            mark(*future);
        }
    }
    void copy_back()
    {
        if (memory_.back.empty() || !stream_) {
            memory_.copy_back();
            return;
        }
        c10::StreamGuard on(*stream_); /* this thread's current one may be another */
        memory_.copy_back();
        c10::Event after(device_.type());
        after.record(*stream_);
        copied_.emplace(std::move(after));
    }
    void mark(c10::ivalue::Future &future)
    {
        if (std::exception_ptr error = exception()) {
            future.setErrorIfNeeded(error);
        } else if (copied_) { /* who reads the future waits for what is on the current stream now */
            c10::StreamGuard on(*stream_);
            future.markCompleted(c10::IValue(results_));
        } else {
            future.markCompleted(c10::IValue(results_));
        }
    }
    c10::Stream current_stream() const { return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_); }

    const Tensors results_;
    Memory memory_;
    const at::Device device_;
    std::optional<c10::Stream> stream_; /* of the call, on a GPU */
    std::optional<c10::Event> copied_;  /* after the outputs' copies; set before ended_ */
    std::mutex once_;
    std::atomic<int> ended_{ 0 };
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    std::function<void(c10::intrusive_ptr<Work>)> give_to_finisher_;
};

inline c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture()
{
    std::unique_lock<std::mutex> lock(once_);
    if (future_) {
        return future_;
    }
    std::vector<at::Device> devices; /* none: the CPU */
    if (!device_.is_cpu()) {
        devices.push_back(device_);
    }
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                           std::move(devices));
    future_ = future;
    int ended = ended_.load(std::memory_order_acquire);
    lock.unlock();
    if (ended) {
        mark(*future);
    } else if (!isCompleted()) { /* which marks it */
        give_to_finisher_(c10::intrusive_ptr<Work>::reclaim_copy(this));
    }
    return future;
}

/* Ends works one after the other. Collectives of a group end in their order, so it may wait for the oldest;
 * messages need not, so it looks at all. */
class Finisher
{
  public:
    explicit Finisher(bool in_order) : in_order_(in_order) {}
    ~Finisher() /* all works have ended */
    {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stop_ = true;
        }
        wake_.notify_one();
        if (thread_.joinable()) {
            thread_.join();
        }
    }
    void add(c10::intrusive_ptr<Work> work)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!thread_.joinable()) {
            thread_ = std::thread([this] { run(); });
        }
        works_.push_back(std::move(work));
        wake_.notify_one();
    }

  private:
    /* @return whether it has ended */
    bool step(Work &work)
    {
        if (!in_order_) {
            return work.isCompleted();
        }
        try {
            work.wait(kNoTimeout, rondo_pgroup_work_wait_aside);
        } catch (...) { /* the future has it */
        }
        return true;
    }
    void run()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        (void)prctl(PR_SET_TIMERSLACK, kSlackNs); /* 50 us by default, as much as a call may take */
        while (true) {
            wake_.wait(lock, [this] { return stop_ || !works_.empty(); });
            if (works_.empty()) {
                return;
            }
            c10::intrusive_ptr<Work> work = std::move(works_.front());
            works_.pop_front();
            bool all = idle_ >= works_.size(); /* the others were looked at, and have not ended */
            lock.unlock();
            bool ended = step(*work);
            idle_ = ended || all ? 0 : idle_ + 1;
            if (!ended && all) {
                std::this_thread::sleep_for(std::chrono::microseconds(50));
            }
            if (ended) {
                work.reset(); /* before the lock, as it may free tensors */
            }
            lock.lock();
            if (!ended) {
                works_.push_back(std::move(work));
            }
        }
    }

    const bool in_order_;
    bool stop_ = false;
    size_t idle_ = 0; /* works in a row that have not ended; the thread's own */
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<c10::intrusive_ptr<Work>> works_;
    std::thread thread_;
};

} // namespace rondo_torch

#endif
