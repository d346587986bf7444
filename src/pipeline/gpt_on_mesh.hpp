#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/nn/offloaded_activations.hpp"
#include "src/parallel/context_parallel.hpp"
#include "src/parallel/expert_parallel.hpp"
#include "src/pipeline/pipeline_gpt.hpp"

namespace lockstep {

/// Makes a data-parallel strategy for one of a rank's chunks, `model`. The placements of
/// its parameters are already declared (src/parallel/placement.hpp).
using MakeSync = std::function<std::unique_ptr<GradientSync>(Device& device, Mesh& mesh,
                                                             Sequential& model)>;

/// Returns the axes along which each rank has its own micro-batches or tokens: "dp", and
/// "ep" and "cp" if they have several ranks.
std::vector<std::string> replica_axes(const MeshShape& shape);

/// How a GPT and its batch are distributed over a mesh. The axes have these names, and
/// each shards something:
///
///     pp   layers (pipeline)          dp   sequences (data)
///     tp   heads and columns          cp   tokens of each sequence (context)
///     ep   sequences, and experts
///
/// Axes may be in any order, the slowest first; a missing axis has one rank.
struct MeshOptions {
    std::vector<MeshShape::Axis> axes;

    std::string schedule = "1f1b";
    int chunks = 1;         ///< parts of the model on a stage
    int micro_batches = 1;  ///< micro-batches of a replica in a step

    bool sequence = false;  ///< SequenceParallel along "tp"
    /// Between two stages, each rank along "tp" sends its share of the tokens, and the
    /// receivers gather them (Pipeline::scatter_messages). With `sequence` a rank has no
    /// more than its share anyway.
    bool scatter_messages = false;
    ContextMethod context = ContextMethod::ring_attention;
    TokenOrder order = TokenOrder::zigzag;  ///< of the tokens along "cp"
    /// Axes along which experts are sharded: "ep", or "ep" and "tp".
    std::vector<std::string> expert_axes{"ep"};
    ExpertParallelOptions experts{};  ///< the mesh sets their batch and tensor group

    /// The replicas shard: 0 nothing, 1 the optimizer's state, 2 also gradients,
    /// 3 also parameters. With experts, only 0 and 1 are possible.
    int zero = 0;
    MakeSync sync{};  ///< if given, replaces `zero`

    enum class Recompute { nothing, attention, layers } recompute = Recompute::nothing;
    std::optional<OffloadOptions> offload{};  ///< offloads the tensors that layers save
    GptKit kit{};                             ///< the mesh's kits are put around this kit
};

/// A GPT's distribution over a mesh, and its schedule. Made once, for all ranks of a
/// process.
class MeshPlan {
  public:
    /// Throws UsageError for an unknown axis, or if the schedule or the cut into parts
    /// refuses the sizes.
    MeshPlan(const GptSizes& sizes, const MeshOptions& options);

    const GptSizes& sizes() const { return sizes_; }
    const MeshOptions& options() const { return options_; }
    /// All five axes: first the axes that were not given, then the given axes.
    const MeshShape& shape() const { return shape_; }
    int size(const std::string& axis) const { return shape_.size(axis); }
    const PipelinePlan& pipeline() const { return pipeline_; }
    const std::vector<LayerRange>& cut() const { return cut_; }

    /// The number of replicas; each has its own sequences in its own micro-batches.
    int replicas() const { return size("dp") * size("ep"); }
    int micro_batches() const { return replicas() * options_.micro_batches; }
    /// The weight of a rank's micro-batch: the loss is the mean over all micro-batches
    /// and over their tokens, which "cp" shards.
    double weight() const { return 1.0 / (micro_batches() * size("cp")); }

  private:
    GptSizes sizes_;
    MeshOptions options_;
    MeshShape shape_;
    PipelinePlan pipeline_;
    std::vector<LayerRange> cut_;
};

/// One device's part of a GPT on a mesh, and its training. No strategy is written here:
/// kits are put into one another, the stage is made from them, and the placement of a
/// parameter decides over which ranks its gradient is summed.
///
///     const MeshPlan plan(sizes, {.axes = {{"pp", 2}, {"dp", 2}, {"tp", 2}}});
///
///     GptOnMesh gpt(rank, plan, DType::bf16, seed);
///     AdamW optimizer(gpt.sync().shards());
///     const Tensor loss = gpt.step(micro_batches, optimizer);
///
/// Narayanan et al. 2021, Megatron-LM, 2104.04473, section 3.
class GptOnMesh {
  public:
    /// Every rank of the world calls it, with the same plan, which must outlive the
    /// object. Throws UsageError if the world does not have the mesh's size, or if a kit
    /// or a strategy refuses the plan.
    GptOnMesh(Rank& rank, const MeshPlan& plan, DType dtype, std::uint64_t seed,
              SourceLine at = SourceLine::here());

    const MeshPlan& plan() const { return plan_; }
    Mesh& mesh() { return mesh_; }
    Pipeline& pipeline() { return *pipeline_; }
    /// This rank's parameters, whole or sharded.
    std::vector<Parameter*> parameters() const { return stage_.parameters(); }
    /// The strategy for all parameters of this rank. It updates `sync().shards()`; norms
    /// and checkpoints are made from them.
    GradientSync& sync() { return sync_; }

    /// The replica whose sequences this rank reads; tokens() says which of their tokens.
    int replica() const {
        return mesh_.coordinate("dp") * mesh_.size("ep") + mesh_.coordinate("ep");
    }
    const TokenDeal& tokens() const { return kit_.tokens; }
    /// Makes this rank's part of a micro-batch. The replica's micro-batch is given as
    /// whole sequences, (s, b) of i32: `ids` and, as `targets`, the ids that follow.
    /// Uploads this rank's tokens of both to the device; the result has the weight
    /// plan().weight(). All ranks of a replica must give the same micro-batches in the
    /// same order: along "pp" because one stage reads the ids and another the targets,
    /// along "cp" and "tp" because they shard the sequences. Under --check full, virtual
    /// devices compare them (declare_same).
    MicroBatch micro_batch(const HostTensor& ids, const HostTensor& targets,
                           SourceLine at = SourceLine::here());

    /// Runs all micro-batches of the replica, each with plan().weight(), through the
    /// pipeline. Leaves the batch's gradients in the shards. Returns this rank's term of
    /// the batch's loss, (1), or none; the batch's loss is the sum over all ranks.
    Tensor gradients(std::span<const MicroBatch> micro_batches,
                     SourceLine at = SourceLine::here());
    /// Computes the gradients, clips them if their norm over the whole model is more than
    /// `most` (0 never clips), and updates once. Returns this rank's term of the loss.
    Tensor step(std::span<const MicroBatch> micro_batches, Optimizer& optimizer,
                double most = 0, SourceLine at = SourceLine::here());
    /// Updates once. Compute norms and clip gradients between gradients() and update().
    void update(Optimizer& optimizer);

  private:
    Rank& rank_;
    const MeshPlan& plan_;
    Mesh mesh_;
    std::unique_ptr<TensorParallel> tensor_;
    GptKit kit_;
    GptStage stage_;
    std::deque<OffloadedActivations> offloaded_;
    std::unique_ptr<Pipeline> pipeline_;
    std::unique_ptr<Communicator> tied_;
    CombinedSync sync_;
};

}  // namespace lockstep
