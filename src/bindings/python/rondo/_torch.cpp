/*
 * The backend "rondo" of torch.distributed, on rondo_pgroup.h. rondo/torch.py compiles and registers it.
 *
 *     Group     a group of ranks (c10d's Backend, before PyTorch 2 its ProcessGroup): one rondo_pgroup
 *     Work      a call under way (_torch_work.hpp): one rondo_pgroup_work, and the tensors that it uses
 *     Finisher  a thread that ends works which have a Future, as nobody waits in those; it sleeps meanwhile,
 *               for the cores belong to the computation
 *
 * Memory (_torch_memory.hpp). Rondo reads and writes contiguous tensors where they are, and lists of tensors
 * that lie one behind the other. Anything else goes through a copy: an input's is made by the call, an output's
 * is copied back by whoever finds the work complete. A group keeps its works, and so their tensors, until they
 * have ended.
 *
 * CUDA (RONDO_TORCH_CUDA). A call on tensors of a GPU is enqueued on the stream that is current there when it
 * is made; its wait() lets the caller wait until it is complete. An output's copy is enqueued on that stream
 * too, whoever finds the work complete, and wait() and futures let the reader's stream wait for it. The barrier
 * is one of processes.
 *
 * Types. What only moves may have any type: an unknown one is bytes. Arithmetic needs a type of Rondo.
 */
#include <functional>
#include <list>
#include <unistd.h>

#include "_torch_work.hpp"
#include <pybind11/chrono.h>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#endif
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#ifdef RONDO_TORCH_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

namespace rondo_torch
{

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif

/* ---- groups ---- */

class Group final : public Base
{
  public:
    using WorkPtr = c10::intrusive_ptr<c10d::Work>;
    Group(rondo_pgroup *group, int rank, int size)
        : Base(rank, size), group_(group), collectives_(new Finisher(true)), messages_(new Finisher(false))
    {
    }
    ~Group() override { release_resources(); }
    /* Nobody has the group any more, though a weak pointer may keep its memory. */
    void release_resources() override
    {
        if (group_ == nullptr) { /* perhaps after the end of Python */
            return;
        }
        if (PyGILState_Check() != 0) { /* what hangs on a future may need Python */
            py::gil_scoped_release no_gil;
            close();
        } else {
            close();
        }
    }
    const std::string getBackendName() const override { return "rondo"; }

    /* Wait for the group's calls, and free it. */
    void close()
    {
        if (group_ == nullptr) {
            return;
        }
        if (getpid() != pid_) { /* a forked child: the group is its parent's, and so are these threads */
            (void)collectives_.release();
            (void)messages_.release();
            group_ = nullptr;
            return;
        }
        for (c10::intrusive_ptr<Work> &work : open_) {
            try {
                work->wait(kNoTimeout);
            } catch (...) { /* its owner gets it */
            }
        }
        open_.clear();
        collectives_.reset();
        messages_.reset();
        (void)rondo_pgroup_destroy(group_);
        group_ = nullptr;
    }
    void end_all() { check(rondo_pgroup_abort(handle())); }
    c10::intrusive_ptr<Group> child(const std::vector<int> &ranks, const std::string &name,
                                    int64_t timeout_ms)
    {
        rondo_pgroup_config config = RONDO_PGROUP_CONFIG_INIT;
        rondo_pgroup *made;
        auto self = std::find(ranks.begin(), ranks.end(), getRank());
        config.name = name.c_str();
        config.timeout_ms = timeout_ms;
        check(rondo_pgroup_new(handle(), ranks.data(), static_cast<int>(ranks.size()), &config, &made));
        return c10::make_intrusive<Group>(made, static_cast<int>(self - ranks.begin()),
                                          static_cast<int>(ranks.size()));
    }

    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override
    {
        const at::Tensor &t = only(tensors);
        Elements e(t);
        Memory memory;
        void *at = memory.out(t, true);
        int root = static_cast<int>(opts.rootRank);
        return issue(c10d::OpType::BROADCAST, "rondo:broadcast", opts.timeout, tensors, memory,
                     [=](const rondo_pgroup_opts *o, rondo_pgroup_work **w) {
                         return rondo_pgroup_broadcast(group_, at, at, e.count, e.type, root, o, w);
                     });
    }
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override
    {
        const at::Tensor &t = only(tensors);
        Operands e(t, opts.reduceOp);
        Memory memory;
        void *at = memory.in_place(t, scaled(t, opts.reduceOp));
        return issue(c10d::OpType::ALLREDUCE, "rondo:all_reduce", opts.timeout, tensors, memory,
                     [=](const rondo_pgroup_opts *o, rondo_pgroup_work **w) {
                         return rondo_pgroup_all_reduce(group_, at, at, e.count, e.type, e.op, o, w);
                     });
    }
    WorkPtr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts) override
    {
        Memory memory;
        std::vector<std::pair<Operands, void *>> calls;
        for (const at::Tensor &t : tensors) {
            check_tensor(t);
            calls.emplace_back(Operands(t, opts.reduceOp), memory.in_place(t, scaled(t, opts.reduceOp)));
        }
        return issue_batch(c10d::OpType::ALLREDUCE_COALESCED, "rondo:all_reduce_coalesced", opts.timeout,
                           tensors, memory, [&] {
                               for (auto &call : calls) {
                                   const Operands &e = call.first;
                                   (void)rondo_pgroup_all_reduce(group_, call.second, call.second, e.count,
                                                                 e.type, e.op, nullptr, nullptr);
                               }
                           });
    }
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override
    {
        const at::Tensor &t = only(tensors);
        Operands e(t, opts.reduceOp);
        Memory memory;
        int root = static_cast<int>(opts.rootRank);
        const at::Tensor from = scaled(t, opts.reduceOp);
        void *to = root == getRank() ? memory.in_place(t, from) : nullptr;
        const void *at = to != nullptr ? to : memory.in(from);
        return issue(c10d::OpType::REDUCE, "rondo:reduce", opts.timeout, tensors, memory,
                     [=](const rondo_pgroup_opts *o, rondo_pgroup_work **w) {
                         return rondo_pgroup_reduce(group_, at, to, e.count, e.type, e.op, root, o, w);
                     });
    }
    WorkPtr allgather(Lists &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override
    {
        const at::Tensor &t = only(inputs);
        const Tensors &all = only(outputs);
        Elements e(t);
        Memory memory;
        check_list(all, getSize(), t);
        Blocks blocks(all);
        require(blocks.counts[static_cast<size_t>(getRank())] == e.count,
                "all_gather: the place for this rank's tensor has another number of elements");
        const void *from = memory.in(t);
        void *to = memory.out(all);
        return issue(c10d::OpType::ALLGATHER, "rondo:all_gather", opts.timeout, all, memory,
                     [&](const rondo_pgroup_opts *o, rondo_pgroup_work **w) {
                         return blocks.equal
                                    ? rondo_pgroup_all_gather(group_, from, to, e.count, e.type, o, w)
                                    : rondo_pgroup_all_gatherv(group_, from, to, blocks.counts.data(),
                                                               blocks.displs.data(), e.type, o, w);
                     });
    }
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
                            const c10d::AllgatherOptions &opts) override
    {
        Elements e(input);
        Memory memory;
        check_base("all_gather", output, input);
        const void *from = memory.in(input);
        void *to = memory.out(output, false);
        return issue(c10d::OpType::_ALLGATHER_BASE, "rondo:all_gather", opts.timeout, { output }, memory,
                     [=](const rondo_pgroup_opts *o, rondo_pgroup_work **w) {
                         return rondo_pgroup_all_gather(group_, from, to, e.count, e.type, o, w);
                     });
    }
    /* outputs[r][i] is inputs[i] of rank r. */
    WorkPtr allgather_coalesced(Lists &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override
    {
        Memory memory;
        Tensors results;
        std::vector<Call> calls;
        require(outputs.size() == static_cast<size_t>(getSize()),
                "all_gather_coalesced: one list of tensors for each rank is needed");
        for (size_t i = 0; i < inputs.size(); i++) {
            Tensors all;
            check_tensor(inputs[i]);
            for (const Tensors &of_rank : outputs) {
                require(of_rank.size() == inputs.size() && of_rank[i].numel() == inputs[i].numel(),
                        "all_gather_coalesced: the places have other sizes than the tensors");
                all.push_back(of_rank[i]);
            }
            check_list(all, getSize(), inputs[i]);
            results.insert(results.end(), all.begin(), all.end());
            Elements e(inputs[i]);
            const void *from = memory.in(inputs[i]);
            calls.push_back({ e.type, RONDO_SUM, e.count, from, memory.out(all) });
        }
        return issue_batch(c10d::OpType::ALLGATHER_COALESCED, "rondo:all_gather_coalesced", opts.timeout,
                           results, memory, [&] {
                               for (const Call &c : calls) {
                                   (void)rondo_pgroup_all_gather(group_, c.from, c.to, c.count, c.type,
                                                                 nullptr, nullptr);
                               }
                           });
    }
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts) override
    {
        Memory memory;
        std::vector<Call> calls;
        check_equally_many(outputs, inputs);
        for (size_t i = 0; i < inputs.size(); i++) {
            Elements e(inputs[i]);
            check_base("all_gather", outputs[i], inputs[i]);
            const void *from = memory.in(inputs[i]);
            calls.push_back({ e.type, RONDO_SUM, e.count, from, memory.out(outputs[i], false) });
        }
        return issue_batch(c10d::OpType::_ALLGATHER_BASE, "rondo:all_gather_into_tensor_coalesced",
                           opts.timeout, outputs, memory, [&] {
                               for (const Call &c : calls) {
                                   (void)rondo_pgroup_all_gather(group_, c.from, c.to, c.count, c.type,
                                                                 nullptr, nullptr);
                               }
                           });
    }
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &opts) override
    {
        Memory memory;
        std::vector<Call> calls;
        check_equally_many(outputs, inputs);
        for (size_t i = 0; i < inputs.size(); i++) {
            Operands e(outputs[i], opts.reduceOp);
            check_base("reduce_scatter", inputs[i], outputs[i]);
            const void *from = memory.in(scaled(inputs[i], opts.reduceOp));
            calls.push_back({ e.type, e.op, e.count, from, memory.out(outputs[i], false) });
        }
        return issue_batch(c10d::OpType::_REDUCE_SCATTER_BASE, "rondo:reduce_scatter_tensor_coalesced",
                           opts.timeout, outputs, memory, [&] {
                               for (const Call &c : calls) {
                                   (void)rondo_pgroup_reduce_scatter(group_, c.from, c.to, c.count, c.type,
                                                                     c.op, nullptr, nullptr);
                               }
                           });
    }
#endif
    WorkPtr gather(Lists &outputs, Tensors &inputs, const c10d::GatherOptions &opts) override
    {
        const at::Tensor &t = only(inputs);
        Elements e(t);
        Memory memory;
        Tensors results;
        int root = static_cast<int>(opts.rootRank);
        const void *from = memory.in(t);
        void *to = nullptr;
        if (root == getRank()) {
            results = only(outputs);
            check_list(results, getSize(), t);
            check_equal("gather", results, t);
            to = memory.out(results);
        }
        return issue(c10d::OpType::GATHER, "rondo:gather", opts.timeout, results, memory,
                     [=](const rondo_pgroup_opts *o, rondo_pgroup_work **w) {
                         return rondo_pgroup_gather(group_, from, to, e.count, e.type, root, o, w);
                     });
    }
    WorkPtr scatter(Tensors &outputs, Lists &inputs, const c10d::ScatterOptions &opts) override
    {
        const at::Tensor &t = only(outputs);
        Elements e(t);
        Memory memory;
        int root = static_cast<int>(opts.rootRank);
        const void *from = nullptr;
        if (root == getRank()) {
            const Tensors &all = only(inputs);
            check_list(all, getSize(), t);
            check_equal("scatter", all, t);
            from = memory.in(all);
        }
        void *to = memory.out(t, false);
        return issue(c10d::OpType::SCATTER, "rondo:scatter", opts.timeout, outputs, memory,
                     [=](const rondo_pgroup_opts *o, rondo_pgroup_work **w) {
                         return rondo_pgroup_scatter(group_, from, to, e.count, e.type, root, o, w);
                     });
    }
    WorkPtr reduce_scatter(Tensors &outputs, Lists &inputs, const c10d::ReduceScatterOptions &opts) override
    {
        const at::Tensor &t = only(outputs);
        Operands e(t, opts.reduceOp);
        Memory memory;
        Tensors all = only(inputs);
        check_list(all, getSize(), t);
        Blocks blocks(all);
        require(blocks.counts[static_cast<size_t>(getRank())] == e.count,
                "reduce_scatter: the place for the result has another number of elements than its inputs");
        for (at::Tensor &part : all) {
            part = scaled(part, opts.reduceOp);
        }
        const void *from = memory.in(all);
        void *to = memory.out(t, false);
        return issue(c10d::OpType::REDUCE_SCATTER, "rondo:reduce_scatter", opts.timeout, outputs, memory,
                     [&](const rondo_pgroup_opts *o, rondo_pgroup_work **w) {
                         return blocks.equal
                                    ? rondo_pgroup_reduce_scatter(group_, from, to, e.count, e.type, e.op, o,
                                                                  w)
                                    : rondo_pgroup_reduce_scatterv(group_, from, to, blocks.counts.data(),
                                                                   blocks.displs.data(), e.type, e.op, o, w);
                     });
    }
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &opts) override
    {
        Operands e(output, opts.reduceOp);
        Memory memory;
        check_base("reduce_scatter", input, output);
        const void *from = memory.in(scaled(input, opts.reduceOp));
        void *to = memory.out(output, false);
        return issue(c10d::OpType::_REDUCE_SCATTER_BASE, "rondo:reduce_scatter", opts.timeout, { output },
                     memory, [=](const rondo_pgroup_opts *o, rondo_pgroup_work **w) {
                         return rondo_pgroup_reduce_scatter(group_, from, to, e.count, e.type, e.op, o, w);
                     });
    }
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                          std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &opts) override
    {
        check_tensor(output);
        check_tensor(input);
        require(output.scalar_type() == input.scalar_type(), "all_to_all: the tensors have different types");
        Blocks to(output, output_splits, getSize()), from(input, input_splits, getSize());
        Memory memory;
        const void *in = memory.in(input);
        void *out = memory.out(output, false);
        return exchange(c10d::OpType::ALLTOALL_BASE, opts, { output }, memory, in, from, out, to,
                        Elements(input).type);
    }
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override
    {
        require(!inputs.empty(), "all_to_all: there are no tensors");
        check_list(inputs, getSize(), inputs[0]);
        check_list(outputs, getSize(), inputs[0]);
        Blocks to(outputs), from(inputs);
        Memory memory;
        const void *in = memory.in(inputs);
        void *out = memory.out(outputs);
        return exchange(c10d::OpType::ALLTOALL, opts, outputs, memory, in, from, out, to,
                        Elements(inputs[0]).type);
    }
    WorkPtr send(Tensors &tensors, int peer, int tag) override
    {
        const at::Tensor &t = only(tensors);
        Elements e(t);
        Memory memory;
        check_tag(tag);
        const void *at = memory.in(t);
        return issue(c10d::OpType::SEND, "rondo:send", c10d::kUnsetTimeout, tensors, memory,
                     [=](const rondo_pgroup_opts *o, rondo_pgroup_work **w) {
                         return rondo_pgroup_send(group_, at, e.count, e.type, peer, o, w);
                     });
    }
    WorkPtr recv(Tensors &tensors, int peer, int tag) override
    {
        const at::Tensor &t = only(tensors);
        Elements e(t);
        Memory memory;
        check_tag(tag);
        void *at = memory.out(t, false);
        return issue(c10d::OpType::RECV, "rondo:recv", c10d::kUnsetTimeout, tensors, memory,
                     [=](const rondo_pgroup_opts *o, rondo_pgroup_work **w) {
                         return rondo_pgroup_recv(group_, at, e.count, e.type, peer, o, w);
                     });
    }
    WorkPtr recvAnysource(Tensors &, int) override
    {
        fail("recv without a source: a message of Rondo comes from a rank that the receiver names (src=)");
    }
    WorkPtr barrier(const c10d::BarrierOptions &opts) override
    {
        return issue(c10d::OpType::BARRIER, "rondo:barrier", opts.timeout, {}, Memory(),
                     [=](const rondo_pgroup_opts *o, rondo_pgroup_work **w) {
                         return rondo_pgroup_barrier(group_, o, w);
                     });
    }
    /* An error names the ranks that have not come, all of them. */
    void monitoredBarrier(const c10d::BarrierOptions &opts, bool) override
    {
        barrier(opts)->wait(kNoTimeout);
    }
    void setSequenceNumberForGroup() override {}
    uint64_t getSequenceNumberForGroup() override
    {
        uint64_t number;
        check(rondo_pgroup_sequence(handle(), &number));
        return number;
    }

  private:
    /* Of a batch; op: of a reduction. */
    struct Call {
        rondo_dtype type;
        rondo_op op;
        size_t count;
        const void *from;
        void *to;
    };
    rondo_pgroup *handle()
    {
        require(group_ != nullptr, "the process group was closed");
        return group_;
    }
    static void check_tag(int tag)
    {
        require(tag == 0, "a message has tag " + std::to_string(tag) +
                              "; those of two ranks arrive in their order, so give tag 0");
    }
    static void check_equal(const char *call, const Tensors &list, const at::Tensor &like)
    {
        for (const at::Tensor &t : list) {
            require(t.numel() == like.numel(), std::string(call) + ": the tensors have different sizes");
        }
    }
    static void check_equally_many(const Tensors &outputs, const Tensors &inputs)
    {
        require(outputs.size() == inputs.size(), "there are " + std::to_string(inputs.size()) +
                                                     " tensors and places for " +
                                                     std::to_string(outputs.size()));
    }
    /* whole: of all ranks; part: of one */
    void check_base(const char *call, const at::Tensor &whole, const at::Tensor &part)
    {
        check_tensor(whole);
        check_tensor(part);
        require(whole.scalar_type() == part.scalar_type() && whole.numel() == part.numel() * getSize(),
                std::string(call) + ": one tensor must have the other's type and " +
                    std::to_string(getSize()) + " times its elements");
    }
    WorkPtr exchange(c10d::OpType type, const c10d::AllToAllOptions &opts, const Tensors &results,
                     const Memory &memory, const void *in, const Blocks &from, void *out, const Blocks &to,
                     rondo_dtype kind)
    {
        return issue(type, "rondo:all_to_all", opts.timeout, results, memory,
                     [&](const rondo_pgroup_opts *o, rondo_pgroup_work **w) {
                         return rondo_pgroup_all_to_allv(group_, in, from.counts.data(), from.displs.data(),
                                                         out, to.counts.data(), to.displs.data(), kind, o, w);
                     });
    }

    static void set_place(rondo_pgroup_opts &opts, const std::optional<c10::Stream> &stream)
    {
        opts.device = -1;
#ifdef RONDO_TORCH_CUDA
        if (stream) {
            opts.device = stream->device_index();
            opts.stream = reinterpret_cast<rondo_stream>(c10::cuda::CUDAStream(*stream).stream());
        }
#else
        (void)stream;
#endif
    }
    using Issue = std::function<rondo_status(const rondo_pgroup_opts *, rondo_pgroup_work **)>;
    /* Make a call. One thread at a time: the calls of a batch belong together. */
    WorkPtr issue(c10d::OpType type, const char *title, Millis timeout, const Tensors &results,
                  const Memory &memory, const Issue &call)
    {
        auto work = c10::make_intrusive<Work>(getRank(), type, title, results, memory);
        rondo_pgroup_opts opts = RONDO_PGROUP_OPTS_INIT;
        bool message = type == c10d::OpType::SEND || type == c10d::OpType::RECV;
        set_place(opts, work->stream_);
        opts.timeout_ms = timeout > kNoTimeout ? timeout.count() : RONDO_CONFIG_DEFAULT;
        work->give_to_finisher_ = [this, message](c10::intrusive_ptr<Work> given) {
            (message ? messages_ : collectives_)->add(std::move(given));
        };
        c10::intrusive_ptr<Work> oldest;
        std::list<c10::intrusive_ptr<Work>> ended; /* freed after the lock, as they may free tensors */
        {
            std::lock_guard<std::mutex> lock(mutex_);
            handle();
            check(call(&opts, &work->handle));
            for (auto w = open_.begin(); w != open_.end();) {
                auto next = std::next(w);
                if ((*w)->ended_.load() != 0) {
                    ended.splice(ended.end(), open_, w);
                }
                w = next;
            }
            open_.push_back(work);
            oldest = open_.front();
        }
        (void)oldest->isCompleted(); /* it may be one that nobody waits for */
        return work;
    }
    /* The first error of a call comes from the batch's end. */
    WorkPtr issue_batch(c10d::OpType type, const char *title, Millis timeout, const Tensors &results,
                        const Memory &memory, const std::function<void()> &calls)
    {
        return issue(type, title, timeout, results, memory,
                     [&](const rondo_pgroup_opts *o, rondo_pgroup_work **w) {
                         rondo_status status = rondo_pgroup_batch_start(group_, o);
                         if (status == RONDO_SUCCESS) {
                             calls();
                             status = rondo_pgroup_batch_end(group_, w);
                         }
                         return status;
                     });
    }

    rondo_pgroup *group_;
    pid_t pid_ = getpid();
    std::mutex mutex_;
    std::list<c10::intrusive_ptr<Work>> open_;
    std::unique_ptr<Finisher> collectives_, messages_;
};

/* ---- for Python ---- */

/* The groups that live; a program may keep them in C++ only. */
class Living
{
  public:
    c10::intrusive_ptr<Group> add(c10::intrusive_ptr<Group> group)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        groups_.remove_if([](const Weak &weak) { return weak.expired(); });
        groups_.emplace_back(group);
        return group;
    }
    std::vector<c10::intrusive_ptr<Group>> all()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        std::vector<c10::intrusive_ptr<Group>> found;
        for (const Weak &weak : groups_) {
            if (auto group = weak.lock()) {
                found.push_back(std::move(group));
            }
        }
        return found;
    }

  private:
    using Weak = c10::weak_intrusive_ptr<Group>;
    std::mutex mutex_;
    std::list<Weak> groups_;
};

Living &living()
{
    static Living *list =
        new Living; /* until the process ends: a group may outlive what is destroyed at exit */
    return *list;
}

py::bytes make_id()
{
    rondo_pgroup_id id;
    check(rondo_pgroup_id_create(&id));
    return py::bytes(reinterpret_cast<const char *>(id.bytes), sizeof(id.bytes));
}

c10::intrusive_ptr<Group> create(const std::string &bytes, int rank, int size, const std::string &name,
                                 int64_t timeout_ms)
{
    rondo_pgroup_config config = RONDO_PGROUP_CONFIG_INIT;
    rondo_pgroup_id id;
    rondo_pgroup *group;
    require(bytes.size() == sizeof(id.bytes), "the store gave an id of " + std::to_string(bytes.size()) +
                                                  " bytes; is the first rank's Rondo of this version?");
    std::copy(bytes.begin(), bytes.end(), id.bytes);
    config.name = name.c_str();
    config.timeout_ms = timeout_ms;
    check(rondo_pgroup_create_id(&id, rank, size, &config, &group));
    return living().add(c10::make_intrusive<Group>(group, rank, size));
}

c10::intrusive_ptr<Group> child(Group &parent, const std::vector<int> &ranks, const std::string &name,
                                int64_t timeout_ms)
{
    return living().add(parent.child(ranks, name, timeout_ms));
}

} // namespace rondo_torch

PYBIND11_MODULE(_torch, m)
{
    using namespace rondo_torch;
    using no_gil = py::call_guard<py::gil_scoped_release>;
    m.def("make_id", &make_id);
    m.def("create", &create, no_gil());
    m.def("groups", [] { return living().all(); });
    py::class_<Group, c10::intrusive_ptr<Group>, Base>(m, "Group")
        .def("abort", &Group::end_all, no_gil())
        .def("close", &Group::close, no_gil())
        .def("child", &child, no_gil());
}
