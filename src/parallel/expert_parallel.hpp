#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/mesh.hpp"
#include "src/nn/gpt.hpp"
#include "src/parallel/tensor_parallel.hpp"

namespace lockstep {

struct ExpertParallelOptions {
    /// Axes along which ranks have tokens of the batch, in the order of their tokens: the
    /// loss of balance and capacities count the tokens of all of them, once. The tensor
    /// group's belongs to them if its ranks bring tokens of their own, and need not be
    /// named. Without axes, each rank's own tokens are a batch of their own to the gate,
    /// as GShard's groups are.
    std::vector<std::string> batch{};

    /// Ranks that share out the layers around the experts; null if none do.
    TensorParallel* tp = nullptr;
    /// If the tensor ranks hold the same experts, each has some of their columns: rows of
    /// the gate and of what it gates, columns of the layer after them, so that y is the
    /// sum of what each makes (Singh et al. 2023, DeepSpeed-TED, 2303.06318, section 4).
    /// Else each has them whole.
    bool share_columns = true;
    /// Outside of regions, ranks of a tensor group hold the same tokens: each brings its
    /// share of them to experts, 1/t, and gets the others' results after (DeepSpeed-TED,
    /// section 5.1). Else all bring all of them: t times the bytes, for nothing. With
    /// SequenceParallel they hold different tokens anyway.
    bool drop_copies = true;
};

/// Expert parallelism: the n ranks along those axes, a line or a plane of the mesh, share
/// out the E experts of each layer, E/n neighbours each, and every rank brings tokens of
/// its own to all of them (Shazeer et al. 2017, 1701.06538, section 3.1; Lepikhin et al.
/// 2020, GShard, 2006.16668). Forward and backward each take two all-to-alls of unequal
/// parts, there and back, and forward one of the counts before, 4 bytes an expert:
///
///     M copies of h numbers (M = k N, less what is dropped), of which those for other
///     ranks' experts are sent, (n - 1) / n of them if all experts get as many: 4 M h
///     (n - 1) / n numbers a layer, micro-batch and rank
///
/// The gate is the same on all ranks, and its gradient has terms of each rank's tokens.
/// An expert's gradient has those of all ranks' tokens already: along those axes its
/// parameters are sharded, and nothing is added up. A loss is a sum of terms, each times
/// its weight in the batch, so no gradient needs another factor with experts than
/// without:
///
///     Mesh mesh(rank.world(), {{"dp", 2}, {"ep", 4}});
///     const GptKit kit = expert_parallel({}, mesh, {"ep"});
///     auto gpt = make_gpt(init, sizes, kit);
///     declare_replicas_of(mesh, {"dp", "ep"}, *gpt);
///
/// The t ranks of a tensor group hold other experts if their axis is among those, {"ep",
/// "tp"} say; else the same ones. A group that shares columns gathers between its ranks
/// what each has received, and reduces and scatters what they make: 2 (t-1)/t M h numbers
/// more a rank and pass, M the copies that all t of them bring; the counts of these are
/// all-gathered before, 4 bytes an own expert and rank of "ep". Dropping copies takes an
/// all-gather of N h numbers a pass; if copies are not dropped, sums of columns are
/// all-reduced. The batch's counts are all-gathered, 4 bytes an expert and rank, and an
/// expert, choice and rank if choices come first and there is a capacity; then the ids of
/// all choices are brought to the host, too.
///
/// The program waits for counts before it sends anything: once for the batch's, if they
/// are needed, then for those of each portion.
///
/// Mesh and what the options refer to must stay. Throws UsageError if the tensor group is
/// no line of the mesh, or if ranks that hold other experts would bring the same tokens,
/// or if the batch would count a token twice; and when a layer is made whose experts or
/// columns the ranks do not divide.
GptKit expert_parallel(GptKit kit, Mesh& mesh, const std::vector<std::string>& axes,
                       const ExpertParallelOptions& options = {});

/// The same for a layer by itself: what MixtureOfExperts takes.
std::shared_ptr<ExpertExchange> exchange_experts(
    Mesh& mesh, const std::vector<std::string>& axes,
    const ExpertParallelOptions& options = {});

/// Moves the bias by which each expert is chosen, once a step: up by `rate` if it had
/// fewer copies than the mean since the last call, down if it had more; gates without a
/// bias stay as they are (Wang et al. 2024, 2408.15664, algorithm 1; DeepSeek-V3 has
/// 0.001 at first). `ranks` are all that have these layers' gates, and tokens of the
/// step: in a pipeline, those of one stage. One all-reduce of 4 bytes an expert and
/// layer. Gives the copies that each layer's experts had.
std::vector<std::vector<std::int64_t>> balance_by_bias(
    Device& device, Communicator& ranks, const std::vector<MixtureOfExperts*>& layers,
    double rate, SourceLine at = SourceLine::here());

}  // namespace lockstep
