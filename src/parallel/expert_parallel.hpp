#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/nn/gpt.hpp"
#include "src/parallel/tensor_parallel.hpp"

namespace lockstep {

/// What the ranks of a tensor group do with experts.
enum class TensorRanks {
    /// They are among the ranks that share out the experts: each holds other ones, whole.
    hold_other_experts,
    /// They hold the same experts, and of each some of its columns: rows of the gate and
    /// of what it gates, columns of the layer after them, so that y is the sum of what
    /// each of them makes (Singh et al. 2023, DeepSpeed-TED, 2303.06318, section 4).
    share_columns,
    /// They hold the same experts, whole.
    hold_same_experts
};

struct ExpertParallelOptions {
    /// All ranks whose tokens are of the batch, in the order of their tokens: the loss of
    /// balance and capacities count the tokens of all of them, once. Without, each rank's
    /// own tokens are a batch of their own to the gate, as GShard's groups are.
    Communicator* batch = nullptr;

    /// Ranks that share out the layers around the experts; null if none do.
    TensorParallel* tp = nullptr;
    TensorRanks tensor_ranks = TensorRanks::share_columns;
    /// Outside of regions, ranks of a tensor group hold the same tokens: each brings its
    /// share of them to experts, 1/t, and gets the others' results after (DeepSpeed-TED,
    /// section 5.1). Else all bring all of them: t times the bytes, for nothing. With
    /// SequenceParallel they hold different tokens anyway.
    bool drop_copies = true;
};

/// Expert parallelism: the n ranks of `group` share out the E experts of each layer, E/n
/// neighbours each, and every rank brings tokens of its own to all of them (Shazeer et
/// al. 2017, 1701.06538, section 3.1; Lepikhin et al. 2020, GShard, 2006.16668). Forward
/// and backward each take two all-to-alls of unequal parts, there and back, after one of
/// the counts, 4 bytes an expert:
///
///     M copies of h numbers (M = k N, less what is dropped), of which those for other
///     ranks' experts are sent, (n - 1) / n of them if all experts get as many: 4 M h
///     (n - 1) / n numbers a layer, micro-batch and rank
///
/// The gate is the same on all ranks, and its gradient has terms of each rank's tokens.
/// An expert's gradient has those of all ranks' tokens already: along the group its
/// parameters are sharded, and nothing is added up. A loss is a sum of terms, each times
/// its weight in the batch, so no gradient needs another factor with experts than
/// without:
///
///     Mesh mesh(rank.world(), {{"dp", 2}, {"ep", 4}});
///     const GptKit kit = expert_parallel({}, mesh["ep"]);
///     auto gpt = make_gpt(init, sizes, kit);
///     declare_replicas_of(mesh, {"dp", "ep"}, *gpt);
///
/// If a tensor group shares columns, what came over the group is gathered over it, and
/// what it makes is reduced and scattered: each message 2 (t-1)/t M h numbers more a rank
/// and pass, M the copies that all t of them bring.
///
/// The group must stay, and so must what the options refer to. Throws UsageError when a
/// layer is made whose experts or columns the ranks do not divide.
GptKit expert_parallel(GptKit kit, Communicator& group,
                       const ExpertParallelOptions& options = {});

/// The same for a layer by itself: what MixtureOfExperts takes.
std::shared_ptr<ExpertExchange> exchange_experts(
    Communicator& group, const ExpertParallelOptions& options = {});

/// Moves the bias by which each expert is chosen, once a step: up by `rate` if it had
/// fewer copies than the mean since the last call, down if it had more; gates without a
/// bias stay as they are (Wang et al. 2024, 2408.15664, algorithm 1; DeepSeek-V3 has
/// 0.001 at first). `ranks` are all whose tokens were of the step. One all-reduce of 4
/// bytes an expert. Gives the copies that each layer's experts had.
std::vector<std::vector<std::int64_t>> balance_by_bias(
    Device& device, Communicator& ranks, const std::vector<MixtureOfExperts*>& layers,
    double rate, SourceLine at = SourceLine::here());

}  // namespace lockstep
