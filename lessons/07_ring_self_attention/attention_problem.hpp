#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/comm/rank.hpp"
#include "src/parallel/context_traffic.hpp"
#include "src/trial/case.hpp"

namespace lockstep::lessons {

/// Attention over s tokens of b sequences.
struct AttentionProblem {
    std::int64_t tokens = 0;
    std::int64_t batch = 1;
    AttentionSizes sizes{};
    std::int64_t width = 0;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
    /// If true, makes and uploads no values, so sizes may be too large for any host.
    bool shapes_alone = false;

    /// Returns the columns of x: queries, keys and values side by side.
    std::int64_t columns() const { return (sizes.heads + 2 * sizes.key_heads()) * width; }
    /// x() returns queries, keys and values; dy() returns the gradient of the output.
    /// Both are (s, b, …), of normal numbers that are the same on every machine.
    HostTensor x() const;
    HostTensor dy() const;
    ContextShape shared_out_to(int ranks) const;
};

using MakeRankAttention = std::function<std::unique_ptr<Module>(Device&, Communicator&)>;

/// Runs attention with its tokens sharded over the cluster's ranks. Each rank keeps its
/// rows of "y" and, if both passes run, of "dx". If both run, each is a phase on the
/// timeline; if only forward runs, the timeline shows its operations.
RunReport run_attention(Cluster& cluster, const AttentionProblem& problem,
                        TokenOrder order, const MakeRankAttention& make,
                        Passes passes = Passes::both);
RunReport run_method(Cluster& cluster, const AttentionProblem& problem,
                     ContextMethod method, TokenOrder order = TokenOrder::contiguous,
                     Passes passes = Passes::both);
/// Run CoreAttention, or FlashAttention, on one device.
RunReport run_core(Cluster& cluster, const AttentionProblem& problem);
RunReport run_flash(Cluster& cluster, const AttentionProblem& problem);

/// Returns the rows that all ranks kept under the name, in the sequence's order.
HostTensor whole_kept(const RunReport& report, const std::string& name, TokenOrder order);

/// Returns the largest whole number for which `holds` is true. `holds` must be true for 0
/// and for all numbers below the result.
std::int64_t largest_that(const std::function<bool(std::int64_t)>& holds);

}  // namespace lockstep::lessons
