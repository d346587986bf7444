#pragma once

#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/reduce.hpp"
#include "gpu/kernels/team.cuh"

namespace lockstep::gpu {

// Reduces all terms to one result, in two passes, in an order that depends only on the
// number of terms. The reduced object has:
//
//     static constexpr int kWidth = 4;  // elements in a pack
//     std::int64_t elements;
//     using Result = double;            // of a pack, and of all
//     using Loaded = …;                 // the operands of a pack
//     Loaded load(std::int64_t pack) const;
//     Loaded load_rest(std::int64_t pack) const;  // the last, partial pack
//     Result of(const Loaded& loaded, std::int64_t pack) const;

inline constexpr int kReduceThreads = 256;
inline constexpr int kReduceUnroll = 4;

template <typename Terms, typename Op>
__global__ void __launch_bounds__(kReduceThreads)
    partials_kernel(typename Terms::Result* partials, std::int64_t packs, Terms terms,
                    Op op) {
    using Result = typename Terms::Result;
    const std::int64_t stride = std::int64_t{gridDim.x} * kReduceThreads;
    std::int64_t pack = std::int64_t{blockIdx.x} * kReduceThreads + threadIdx.x;
    Result result = Op::template identity<Result>();
    for (; pack + (kReduceUnroll - 1) * stride < packs; pack += kReduceUnroll * stride) {
        typename Terms::Loaded loaded[kReduceUnroll];
#pragma unroll
        for (int u = 0; u < kReduceUnroll; ++u)
            loaded[u] = terms.load(pack + u * stride);
#pragma unroll
        for (int u = 0; u < kReduceUnroll; ++u)
            result = op(result, terms.result_of(loaded[u], pack + u * stride));
    }
    for (; pack < packs; pack += stride)
        result = op(result, terms.result_of(terms.load(pack), pack));
    if (pack == packs) result = op(result, terms.result_of(terms.load_rest(pack), pack));
    result = combined<kReduceThreads>(result, op);
    if (threadIdx.x == 0) partials[blockIdx.x] = result;
}

/// One thread calls finish(result).
template <typename Result, typename Op, typename Finish>
__global__ void __launch_bounds__(kReduceThreads)
    finish_kernel(const Result* partials, int count, Op op, Finish finish) {
    Result result = Op::template identity<Result>();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kReduceThreads)
        result = op(result, partials[i]);
    result = combined<kReduceThreads>(result, op);
    if (threadIdx.x == 0) finish(result);
}

template <typename Terms, typename Op, typename Finish>
void reduce(cudaStream_t stream, void* workspace, const Terms& terms, const Op& op,
            const Finish& finish) {
    static_assert(sizeof(typename Terms::Result) * kMostPartials <= kReduceBytes);
    auto* partials = static_cast<typename Terms::Result*>(workspace);
    const std::int64_t packs = terms.elements / Terms::kWidth;
    const std::int64_t wanted = packs / (kReduceThreads * kReduceUnroll) + 1;
    const int blocks = static_cast<int>(wanted < kMostPartials ? wanted : kMostPartials);
    launch(stream, partials_kernel<Terms, Op>, blocks, kReduceThreads, partials, packs,
           terms, op);
    launch(stream, finish_kernel<typename Terms::Result, Op, Finish>, 1, kReduceThreads,
           partials, blocks, op, finish);
}

}  // namespace lockstep::gpu
