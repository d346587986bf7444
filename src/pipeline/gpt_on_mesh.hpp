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

/// Makes a strategy of data parallelism for what a rank holds of the model, over the
/// ranks that hold the same, which have been declared before.
using MakeSync = std::function<std::unique_ptr<GradientSync>(Device& device, Mesh& mesh,
                                                             Sequential& model)>;

/// Returns the axes whose ranks have micro-batches, or tokens, of their own: "dp", and
/// "ep" and "cp" if they have several ranks.
std::vector<std::string> replica_axes(const MeshShape& shape);

/// Says how a GPT and its batch are spread over a mesh. Axes have these names, and each
/// shares something out:
///
///     pp   layers (pipeline)          dp   sequences (data)
///     tp   heads and columns          cp   tokens of each sequence (context)
///     ep   sequences, and experts
///
/// They stand in any order, the slowest first; an axis that is not there has one rank.
struct MeshOptions {
    std::vector<MeshShape::Axis> axes;

    std::string schedule = "1f1b";
    int chunks = 1;         ///< parts of the model on a stage
    int micro_batches = 1;  ///< of a replica, in a step

    bool sequence = false;  ///< SequenceParallel along "tp"
    ContextMethod context = ContextMethod::ring_attention;
    TokenOrder order = TokenOrder::zigzag;  ///< of the tokens along "cp"
    /// Axes along which experts are shared out: "ep", or that and "tp".
    std::vector<std::string> expert_axes{"ep"};
    ExpertParallelOptions experts{};  ///< whose batch and tensor group are the mesh's

    /// What the replicas share out: 0 nothing, 1 the optimizer's state, 2 gradients, too,
    /// 3 parameters, too. With experts 0 or 1.
    int zero = 0;
    MakeSync sync{};  ///< in the place of that

    enum class Recompute { nothing, attention, layers } recompute = Recompute::nothing;
    std::optional<OffloadOptions> offload{};  ///< what layers save waits on the host
    GptKit kit{};                             ///< around which the others are put
};

/// A GPT's spread over a mesh, and its schedule. Made once, for all ranks of a process.
class MeshPlan {
  public:
    /// Throws UsageError for an axis of another name, and for what the schedule, or the
    /// cut into its parts, refuses.
    MeshPlan(const GptSizes& sizes, const MeshOptions& options);

    const GptSizes& sizes() const { return sizes_; }
    const MeshOptions& options() const { return options_; }
    /// All five axes: those that were given, behind those that were not.
    const MeshShape& shape() const { return shape_; }
    int size(const std::string& axis) const { return shape_.size(axis); }
    const PipelinePlan& pipeline() const { return pipeline_; }
    const std::vector<LayerRange>& cut() const { return cut_; }

    /// Sequences are dealt to so many replicas, each with its micro-batches.
    int replicas() const { return size("dp") * size("ep"); }
    int micro_batches() const { return replicas() * options_.micro_batches; }
    /// The weight of a rank's micro-batch: the mean is over all, and over the tokens of
    /// each, which "cp" shares out.
    double weight() const { return 1.0 / (micro_batches() * size("cp")); }

  private:
    GptSizes sizes_;
    MeshOptions options_;
    MeshShape shape_;
    PipelinePlan pipeline_;
    std::vector<LayerRange> cut_;
};

/// What one device of a mesh has of a GPT, and how it trains it. No strategy is written
/// here: kits are put into one another, the stage is made of them, and all else follows
/// from where parameters lie.
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
    /// Every rank of the world calls it, with the same plan, which must stay. Throws
    /// UsageError if the world has another size, and for what a kit or a strategy
    /// refuses.
    GptOnMesh(Rank& rank, const MeshPlan& plan, DType dtype, std::uint64_t seed,
              SourceLine at = SourceLine::here());

    const MeshPlan& plan() const { return plan_; }
    Mesh& mesh() { return mesh_; }
    Pipeline& pipeline() { return *pipeline_; }
    /// This rank's parameters, whole or its part of them.
    std::vector<Parameter*> parameters() const { return stage_.parameters(); }
    /// Of all that this rank has: `sync().shards()` are what it updates, and what norms
    /// and checkpoints are made of.
    GradientSync& sync() { return sync_; }

    /// Which replica's sequences this rank reads, and which tokens of each.
    int replica() const {
        return mesh_.coordinate("dp") * mesh_.size("ep") + mesh_.coordinate("ep");
    }
    const TokenDeal& tokens() const { return kit_.tokens; }
    /// One of the replica's micro-batches, whole sequences (s, b), i32: its ids, and what
    /// follows each. Puts this rank's tokens of them on the device, of plan().weight().
    /// All ranks of the replica give the same in the same order: those along "pp", since
    /// one reads the ids and another the targets, and those along "cp" and "tp", since
    /// they share the sequences out. Under --check full, virtual devices compare them
    /// (declare_same).
    MicroBatch micro_batch(const HostTensor& ids, const HostTensor& targets,
                           SourceLine at = SourceLine::here());

    /// All micro-batches of the replica, of plan().weight() each, through the pipeline;
    /// leaves the batch's gradients in the shards. Gives this rank's share of the loss,
    /// (1): all ranks' together are the batch's. None where there is none.
    Tensor gradients(std::span<const MicroBatch> micro_batches,
                     SourceLine at = SourceLine::here());
    /// The gradients; clipped, if their norm over all of the model is more than `most`
    /// and that is not 0; and one update. Gives the share of the loss.
    Tensor step(std::span<const MicroBatch> micro_batches, Optimizer& optimizer,
                double most = 0, SourceLine at = SourceLine::here());
    /// One update. Norms, and clipping by them, come between gradients() and this.
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
