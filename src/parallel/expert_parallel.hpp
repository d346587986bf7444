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
    /// each token once. If the tensor group's ranks bring different tokens, its axis is
    /// added; you need not name it. Without axes, the gate treats each rank's own tokens
    /// as a batch, like GShard's groups.
    std::vector<std::string> batch{};

    /// The tensor group that shards the layers around the experts; null if there is none.
    TensorParallel* tp = nullptr;
    /// If the tensor ranks hold the same experts, they shard the columns of each expert:
    /// the rows of the gate and up weights, and the columns of the down weight. y is then
    /// the sum of the ranks' results (Singh et al. 2023, DeepSpeed-TED, 2303.06318,
    /// section 4). If false, each rank holds its experts whole.
    bool share_columns = true;
    /// Outside regions, the ranks of a tensor group hold the same tokens. If true, each
    /// rank sends only its share of these tokens, 1/t, to experts, and then gathers the
    /// other ranks' results (DeepSpeed-TED, section 5.1). If false, all ranks send all
    /// tokens: t times the bytes. Has no effect with SequenceParallel (tokens differ).
    bool drop_copies = true;
};

/// Expert parallelism: the n ranks along `axes` (a line or a plane of the mesh) shard the
/// E experts of each layer; each rank holds E/n consecutive experts. Every rank sends its
/// own tokens to all experts (Shazeer et al. 2017, 1701.06538, section 3.1; Lepikhin et
/// al. 2020, GShard, 2006.16668). Forward and backward each need two all-to-alls of
/// unequal parts, one to the experts and one back. Before these, forward needs an
/// all-to-all of the counts (4 bytes per expert). With N tokens and k experts per token,
/// a rank has M = k N copies of h numbers, minus dropped copies. If all experts get the
/// same number of copies, the rank sends (n - 1) / n of its copies to other ranks:
///
///     4 M h (n - 1) / n numbers per layer, micro-batch and rank
///
/// The gate is the same on all ranks, and its gradient has terms from each rank's tokens.
/// An expert's gradient already covers all ranks' tokens: the expert's parameters are
/// sharded along `axes`, and no sum runs along them. A loss is a sum of terms, and each
/// term has its weight in the batch. So gradients need no additional factor.
///
///     Mesh mesh(rank.world(), {{"dp", 2}, {"ep", 4}});
///     const GptKit kit = expert_parallel({}, mesh, {"ep"});
///     auto gpt = make_gpt(init, sizes, kit);
///     declare_replicas_of(mesh, {"dp", "ep"}, *gpt);
///
/// If the tensor group's axis is one of `axes`, such as {"ep", "tp"}, its t ranks hold
/// different experts; otherwise they hold the same experts. If the tensor group shards
/// columns, each of its ranks gathers the rows that all t ranks received, and the results
/// are reduced and scattered. Each rank then sends 2 (t-1)/t M h more numbers per pass,
/// where M counts the copies of all t ranks. Before this, the counts of these rows are
/// all-gathered (4 bytes per own expert and rank of "ep"). With drop_copies, a pass needs
/// an all-gather of N h numbers; without drop_copies, the results of sharded columns are
/// all-reduced. The batch's counts are all-gathered (4 bytes per expert and rank). With a
/// capacity and CopyOrder::choices_first, there is one count per expert, choice and rank,
/// and the ids of all choices are also copied to the host.
///
/// The program waits for counts before it sends rows: once for the batch's counts, if
/// they are needed, then for the counts of each portion.
///
/// The mesh and the options' tensor group must outlive the kit. Throws UsageError if the
/// tensor group is not a line of the mesh, if ranks with different experts would bring
/// the same tokens, or if the batch would count a token twice. Making a layer throws
/// UsageError if the ranks do not divide its experts or columns.
GptKit expert_parallel(GptKit kit, Mesh& mesh, const std::vector<std::string>& axes,
                       const ExpertParallelOptions& options = {});

/// Returns the exchange for a single layer, for the constructor of MixtureOfExperts.
std::shared_ptr<ExpertExchange> exchange_experts(
    Mesh& mesh, const std::vector<std::string>& axes,
    const ExpertParallelOptions& options = {});

/// Adjusts the bias that helps to choose each expert; call it once a step. Adds `rate` if
/// the expert had fewer copies than the mean since the last call; subtracts it if it had
/// more. Gates without a bias do not change (Wang et al. 2024, 2408.15664, algorithm 1;
/// DeepSeek-V3 starts with 0.001). `ranks` are all ranks that have these gates and tokens
/// of the step; in a pipeline, the ranks of one stage. Costs one all-reduce of 4 bytes
/// per expert and layer. Returns each layer's numbers of copies, expert by expert.
std::vector<std::vector<std::int64_t>> balance_by_bias(
    Device& device, Communicator& ranks, const std::vector<MixtureOfExperts*>& layers,
    double rate, SourceLine at = SourceLine::here());

}  // namespace lockstep
