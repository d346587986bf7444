#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/comm/rank.hpp"
#include "src/parallel/context_traffic.hpp"
#include "src/trial/case.hpp"

namespace lockstep::lessons {

/// Attention over s tokens, b sequences.
struct AttentionProblem {
    std::int64_t tokens = 0;
    std::int64_t batch = 1;
    AttentionSizes sizes{};
    std::int64_t width = 0;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
    /// There are no values, and none are uploaded: for sizes that no host could hold.
    bool shapes_alone = false;

    /// Returns the columns of x: queries, keys and values side by side.
    std::int64_t columns() const { return (sizes.heads + 2 * sizes.key_heads()) * width; }
    /// Queries, keys and values, and the gradient of what comes out: (s, b,
    /// …), normal, the same on every machine.
    HostTensor x() const;
    HostTensor dy() const;
    ContextShape shared_out_to(int ranks) const;
};

using MakeRankAttention = std::function<std::unique_ptr<Module>(Device&, Communicator&)>;

/// Runs attention whose tokens the cluster's ranks share out. Each keeps
/// its rows of "y" and, of both passes, of "dx". Both are phases on the
/// timeline; forward alone is told operation by operation.
RunReport run_attention(Cluster& cluster, const AttentionProblem& problem,
                        TokenOrder order, const MakeRankAttention& make,
                        Passes passes = Passes::both);
RunReport run_method(Cluster& cluster, const AttentionProblem& problem,
                     ContextMethod method, TokenOrder order = TokenOrder::contiguous,
                     Passes passes = Passes::both);
/// By CoreAttention, or by FlashAttention, on one device.
RunReport run_core(Cluster& cluster, const AttentionProblem& problem);
RunReport run_flash(Cluster& cluster, const AttentionProblem& problem);

/// Returns what all ranks kept under the name, in the sequence's order.
HostTensor whole_kept(const RunReport& report, const std::string& name, TokenOrder order);

/// The largest whole number, from 0, for which `holds` is true; it is true
/// of all smaller ones, and of 0.
std::int64_t largest_that(const std::function<bool(std::int64_t)>& holds);

}  // namespace lockstep::lessons
