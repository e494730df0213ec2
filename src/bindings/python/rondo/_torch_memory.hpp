/* The backend "rondo" of torch.distributed (_torch.cpp): tensors as Rondo's types and memory. */
#ifndef RONDO_TORCH_MEMORY_HPP
#define RONDO_TORCH_MEMORY_HPP

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/python.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "rondo_pgroup.h"

namespace rondo_torch
{

using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<Tensors>;
using Sizes = std::vector<size_t>;

[[noreturn]] inline void fail(const std::string &why) { throw std::runtime_error("rondo: " + why); }

inline void require(bool holds, const std::string &why)
{
    if (!holds) {
        fail(why);
    }
}

/* An exception with the sentence of what this thread called last. */
inline void check(rondo_status status)
{
    if (status != RONDO_SUCCESS) {
        throw std::runtime_error(rondo_last_error(nullptr));
    }
}

/* ---- types and operations ---- */

inline bool find_type(at::ScalarType scalar, rondo_dtype *type)
{
    switch (scalar) {
    case at::kByte: *type = RONDO_UINT8; return true;
    case at::kChar: *type = RONDO_INT8; return true;
    case at::kShort: *type = RONDO_INT16; return true;
    case at::kInt: *type = RONDO_INT32; return true;
    case at::kLong: *type = RONDO_INT64; return true;
    case at::kHalf: *type = RONDO_FLOAT16; return true;
    case at::kBFloat16: *type = RONDO_BFLOAT16; return true;
    case at::kFloat: *type = RONDO_FLOAT32; return true;
    case at::kDouble: *type = RONDO_FLOAT64; return true;
    case at::kBool: *type = RONDO_BOOL8; return true;
    case at::kComplexFloat: *type = RONDO_COMPLEX_FLOAT32; return true;
    case at::kComplexDouble: *type = RONDO_COMPLEX_FLOAT64; return true;
#if TORCH_VERSION_MAJOR >= 2 && (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 1)
    case at::kFloat8_e4m3fn: *type = RONDO_FLOAT8E4M3; return true;
    case at::kFloat8_e5m2: *type = RONDO_FLOAT8E5M2; return true;
#endif
    default: return false;
    }
}

/* Elements that only move. */
struct Elements {
    rondo_dtype type;
    size_t count;
    explicit Elements(const at::Tensor &t) : type(RONDO_UINT8), count(static_cast<size_t>(t.numel()))
    {
        if (!find_type(t.scalar_type(), &type)) {
            count *= static_cast<size_t>(t.element_size());
        }
    }
};

inline rondo_op find_op(c10d::ReduceOp::RedOpType op, bool logical)
{
    switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM: return logical ? RONDO_LOR : RONDO_SUM;
    case c10d::ReduceOp::AVG: return RONDO_AVG;
    case c10d::ReduceOp::PRODUCT: return logical ? RONDO_LAND : RONDO_PROD;
    case c10d::ReduceOp::MIN: return logical ? RONDO_LAND : RONDO_MIN;
    case c10d::ReduceOp::MAX: return logical ? RONDO_LOR : RONDO_MAX;
    case c10d::ReduceOp::BAND: return logical ? RONDO_LAND : RONDO_BAND;
    case c10d::ReduceOp::BOR: return logical ? RONDO_LOR : RONDO_BOR;
    case c10d::ReduceOp::BXOR: return logical ? RONDO_LXOR : RONDO_BXOR;
    default: return RONDO_NUM_OPS;
    }
}

/* Elements that are reduced. A sum of logical ones is true if any is, as torch adds them. */
struct Operands {
    rondo_dtype type = RONDO_UINT8;
    rondo_op op;
    size_t count;
    Operands(const at::Tensor &t, const c10d::ReduceOp &how)
        : op(find_op(how, t.scalar_type() == at::kBool)), count(static_cast<size_t>(t.numel()))
    {
        require(find_type(t.scalar_type(), &type),
                std::string("no arithmetic with tensors of type ") + c10::toString(t.scalar_type()));
        require(op != RONDO_NUM_OPS && rondo_dtype_allows(type, op),
                std::string("tensors of type ") + c10::toString(t.scalar_type()) +
                    " have no reduction of this kind: sum, product, min and max are for numbers, band, bor "
                    "and bxor for integers and bool");
    }
};

/* The input of a reduction: as it is, or with the factor of a pre-multiplied sum. It has t's type and number of
 * elements, which the call goes by. */
inline at::Tensor scaled(const at::Tensor &t, const c10d::ReduceOp &how)
{
    if (how.op_ != c10d::ReduceOp::PREMUL_SUM) {
        return t;
    }
    auto *with = static_cast<const c10d::NCCLPreMulSumSupplement *>(how.supplement_.get());
#if TORCH_VERSION_MAJOR >= 2
    const at::Tensor factor = with->tensor_factor;
#else
    const at::Tensor factor = with->tensor_factors.empty() ? at::Tensor() : with->tensor_factors[0];
#endif
    require(!factor.defined() || factor.numel() == 1, "the factor of a pre-multiplied sum has one element");
    const at::Tensor product = factor.defined() ? t.mul(factor.reshape({})) : t.mul(with->double_factor);
    require(c10::canCast(product.scalar_type(), t.scalar_type()),
            std::string("the factor of a pre-multiplied sum makes tensors of type ") +
                c10::toString(t.scalar_type()) + " ones of " + c10::toString(product.scalar_type()) +
                ": pass tensors of a floating-point type");
    return product.to(t.scalar_type());
}

/* ---- memory ---- */

#ifdef RONDO_TORCH_CUDA
constexpr bool kCuda = true;
#else
constexpr bool kCuda = false;
#endif

inline void check_tensor(const at::Tensor &t)
{
    require(t.device().is_cpu() || (kCuda && t.is_cuda()),
            "a tensor is on " + t.device().str() +
                (kCuda
                     ? "; this backend is for tensors on the CPU and on CUDA devices"
                     : "; this extension was compiled for a PyTorch without CUDA, or without CUDA's headers "
                       "(cuda_runtime_api.h): give CPU tensors"));
    require(t.layout() == at::kStrided, "a tensor is sparse; give a dense one");
}

inline const at::Tensor &only(const Tensors &list)
{
    require(list.size() == 1, "a call has " + std::to_string(list.size()) + " tensors of a rank; give one");
    check_tensor(list[0]);
    return list[0];
}

inline const Tensors &only(const Lists &lists)
{
    require(lists.size() == 1, "a call has " + std::to_string(lists.size()) + " lists of tensors; give one");
    return lists[0];
}

/* The tensors of the ranks: n of one type. */
inline void check_list(const Tensors &list, int n, const at::Tensor &like)
{
    require(list.size() == static_cast<size_t>(n),
            "a list has " + std::to_string(list.size()) + " tensors for " + std::to_string(n) + " ranks");
    for (const at::Tensor &t : list) {
        check_tensor(t);
        require(t.scalar_type() == like.scalar_type(), "the tensors of a call have different types");
    }
}

inline bool one_behind_the_other(const Tensors &list)
{
    const char *next = static_cast<const char *>(list[0].data_ptr());
    for (const at::Tensor &t : list) {
        if (!t.is_contiguous() || (t.numel() > 0 && t.data_ptr() != next)) {
            return false;
        }
        next += t.nbytes();
    }
    return true;
}

/* Where the blocks of the ranks begin and how long they are, in units of Elements. */
struct Blocks {
    Sizes counts, displs;
    bool equal = true;
    void add(size_t count)
    {
        displs.push_back(counts.empty() ? 0 : displs.back() + counts.back());
        counts.push_back(count);
        equal = equal && count == counts[0];
    }
    explicit Blocks(const Tensors &list)
    {
        for (const at::Tensor &t : list) {
            add(Elements(t).count);
        }
    }
    /* Of a tensor that is cut along its first dimension, as `splits` say; empty: equally. */
    Blocks(const at::Tensor &t, const std::vector<int64_t> &splits, int n)
    {
        int64_t rows = t.dim() > 0 ? t.size(0) : 0, sum = 0;
        require(!splits.empty() || rows % n == 0, "all_to_all: " + std::to_string(rows) +
                                                      " rows cannot be cut equally for " + std::to_string(n) +
                                                      " ranks");
        require(splits.empty() || splits.size() == static_cast<size_t>(n),
                "all_to_all: " + std::to_string(splits.size()) + " split sizes for " + std::to_string(n) +
                    " ranks");
        for (int r = 0; r < n; r++) {
            int64_t part = splits.empty() ? rows / n : splits[static_cast<size_t>(r)];
            require(part >= 0, "all_to_all: a split size is negative");
            add(rows == 0 ? 0 : Elements(t).count / static_cast<size_t>(rows) * static_cast<size_t>(part));
            sum += part;
        }
        require(sum == rows, "all_to_all: the split sizes add up to " + std::to_string(sum) + " of " +
                                 std::to_string(rows) + " rows");
    }
};

/* What a work uses, and what is to be copied when it is complete. */
struct Memory {
    Tensors held;
    std::vector<std::pair<at::Tensor, at::Tensor>> back; /* to, from */

    const void *in(const at::Tensor &t)
    {
        held.push_back(t.contiguous());
        return held.back().data_ptr();
    }
    /* content: what is there is part of the call */
    void *out(const at::Tensor &t, bool content)
    {
        if (t.is_contiguous()) {
            held.push_back(t);
        } else {
            held.push_back(content ? t.contiguous() : at::empty(t.sizes(), t.options()));
            back.emplace_back(t, held.back());
        }
        return held.back().data_ptr();
    }
    /* Read at `from`, which may be `to`; then the result is found in `to`. */
    void *in_place(const at::Tensor &to, const at::Tensor &from)
    {
        if (from.is_same(to)) {
            return out(to, true);
        }
        held.push_back(from.contiguous());
        back.emplace_back(to, held.back());
        return held.back().data_ptr();
    }
    const void *in(const Tensors &list)
    {
        if (one_behind_the_other(list)) {
            held.insert(held.end(), list.begin(), list.end());
            return list[0].data_ptr();
        }
        Tensors flat;
        for (const at::Tensor &t : list) {
            flat.push_back(t.reshape({ -1 }));
        }
        return in(at::cat(flat));
    }
    void *out(const Tensors &list)
    {
        int64_t all = 0, at = 0;
        if (one_behind_the_other(list)) {
            held.insert(held.end(), list.begin(), list.end());
            return list[0].data_ptr();
        }
        for (const at::Tensor &t : list) {
            all += t.numel();
        }
        held.push_back(at::empty({ all }, list[0].options()));
        for (const at::Tensor &t : list) {
            back.emplace_back(t, held.back().narrow(0, at, t.numel()).view(t.sizes()));
            at += t.numel();
        }
        return held.back().data_ptr();
    }
    /* Where the tensors are: all in one place. Without any, on the CPU. */
    at::Device device() const
    {
        at::Device first = held.empty() ? at::Device(at::kCPU) : held[0].device();
        for (const at::Tensor &t : held) {
            require(t.device() == first, "a call has tensors on " + first.str() + " and on " +
                                             t.device().str() + "; they must be on one device");
        }
        return first;
    }
    void copy_back()
    {
        at::NoGradGuard no_grad;
        for (auto &pair : back) {
            pair.first.copy_(pair.second);
        }
    }
};

} // namespace rondo_torch

#endif
