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
    /// Axes along which ranks have different tokens of the batch, in the order of their
    /// tokens. The balance loss and the capacities count the tokens of all these ranks,
    /// once. The tensor group's axis is added if its ranks bring different tokens; you
    /// need not name it. Without axes, the gate treats each rank's own tokens as a batch,
    /// like GShard's groups.
    std::vector<std::string> batch{};

    /// The tensor group that shards the layers around the experts; null if there is none.
    TensorParallel* tp = nullptr;
    /// If the tensor ranks hold the same experts, they shard the columns of each expert,
    /// that is, rows of the gate and up weights and columns of the down weight. y is then
    /// the sum of the ranks' results (Singh et al. 2023, DeepSpeed-TED, 2303.06318,
    /// section 4). If false, each rank holds its experts whole.
    bool share_columns = true;
    /// Outside regions, the ranks of a tensor group hold the same tokens. Each brings
    /// only its share of them to experts, 1/t, and gathers the others' results after
    /// (DeepSpeed-TED, section 5.1). If false, all bring all tokens: t times the bytes.
    /// With SequenceParallel the ranks hold different tokens anyway.
    bool drop_copies = true;
};

/// Expert parallelism: the n ranks along those axes, a line or a plane of the mesh, shard
/// the E experts of each layer, E/n neighbours each. Every rank sends its own tokens to
/// all experts (Shazeer et al. 2017, 1701.06538, section 3.1; Lepikhin et al. 2020,
/// GShard, 2006.16668). Forward and backward each take two all-to-alls of unequal parts,
/// there and back. Before these, forward takes an all-to-all of counts, 4 bytes per
/// expert:
///
///     M copies of h numbers (M = k N, without dropped ones). Those for other ranks'
///     experts are sent, (n - 1) / n of M if all experts get the same number of copies:
///     4 M h (n - 1) / n numbers per layer, micro-batch and rank
///
/// The gate is the same on all ranks, and its gradient has terms from each rank's tokens.
/// An expert's gradient already covers all ranks' tokens: its parameters are sharded
/// along those axes, and nothing is summed over them. A loss is a sum of terms, each
/// times its weight in the batch. So gradients need no other factor with experts than
/// without:
///
///     Mesh mesh(rank.world(), {{"dp", 2}, {"ep", 4}});
///     const GptKit kit = expert_parallel({}, mesh, {"ep"});
///     auto gpt = make_gpt(init, sizes, kit);
///     declare_replicas_of(mesh, {"dp", "ep"}, *gpt);
///
/// If the tensor group's axis is among those, such as {"ep", "tp"}, its t ranks hold
/// different experts; else they hold the same ones. If a group shards columns, its ranks
/// gather what each has received, and reduce and scatter the results. This is 2 (t-1)/t M
/// h more numbers per rank and pass, with M the copies that all t ranks bring. Their
/// counts are all-gathered before, 4 bytes per own expert and rank of "ep". Dropping
/// copies costs an all-gather of N h numbers a pass; without it, sums of columns are
/// all-reduced. The batch's counts are all-gathered, 4 bytes per expert and rank. If
/// there is a capacity and choices come first, these are counts per expert, choice and
/// rank, and the ids of all choices are copied to the host, too.
///
/// The program waits for counts before it sends anything: once for the batch's, if they
/// are needed, then for those of each portion.
///
/// The mesh, and what the options refer to, must outlive the kit. Throws UsageError if
/// the tensor group is no line of the mesh, if ranks with different experts would bring
/// the same tokens, or if the batch would count a token twice. Making a layer throws if
/// the ranks do not divide its experts or columns.
GptKit expert_parallel(GptKit kit, Mesh& mesh, const std::vector<std::string>& axes,
                       const ExpertParallelOptions& options = {});

/// Returns the exchange for a single layer, as MixtureOfExperts takes it.
std::shared_ptr<ExpertExchange> exchange_experts(
    Mesh& mesh, const std::vector<std::string>& axes,
    const ExpertParallelOptions& options = {});

/// Adjusts the bias by which each expert is chosen, once a step: adds `rate` if the
/// expert had fewer copies than the mean since the last call, subtracts it if it had
/// more. Gates without a bias do not change (Wang et al. 2024, 2408.15664, algorithm 1;
/// DeepSeek-V3 starts with 0.001). `ranks` are all that have these layers' gates and
/// tokens of the step: in a pipeline, those of one stage. One all-reduce of 4 bytes per
/// expert and layer. Returns the copies that each layer's experts had.
std::vector<std::vector<std::int64_t>> balance_by_bias(
    Device& device, Communicator& ranks, const std::vector<MixtureOfExperts*>& layers,
    double rate, SourceLine at = SourceLine::here());

}  // namespace lockstep
