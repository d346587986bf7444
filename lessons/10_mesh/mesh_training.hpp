#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "lessons/runner/gpt_task.hpp"
#include "src/pipeline/gpt_on_mesh.hpp"

namespace lockstep::lessons {

/// The sizes of the lesson's mesh.
struct MeshSizes {
    int dp = 1, pp = 1, cp = 1, tp = 1;

    int ranks() const { return dp * pp * cp * tp; }
    /// In the order in which the lesson has them, the slowest first.
    std::vector<MeshShape::Axis> axes() const {
        return {{"dp", dp}, {"pp", pp}, {"cp", cp}, {"tp", tp}};
    }
    /// Of a replica, in a step: twice as many as stages keep the pipeline busy.
    int micro_batches() const { return 2 * pp; }
};

/// Returns the sizes that the settings dp, pp, cp and tp ask for. Those that are not set
/// share out what is left of the ranks: 2 each, tp and pp first, and odd factors are
/// dp's. Throws UsageError if they do not multiply to the ranks that are asked for.
MeshSizes mesh_sizes(const LessonOptions& options);

/// A GPT that such a mesh can share out, with heads of keys and values that two of
/// queries share, and a table that is tied to its head.
std::shared_ptr<const GptTask> make_mesh_task(const LessonOptions& options,
                                              const MeshSizes& sizes);

/// The lesson's way to spread a GPT over those axes: sequence parallelism, ring
/// attention in zigzag order, 1F1B, and ZeRO's stage 1 over all replicas.
MeshOptions mesh_options(std::vector<MeshShape::Axis> axes, int micro_batches);

/// Where a training begins and ends, and what it leaves on the way.
struct MeshTraining {
    /// Checkpoints go there, after every so many steps.
    std::filesystem::path folder{};
    int save_every = 0;
    /// Begins with the newest of these.
    std::filesystem::path resume{};
    /// This rank is lost before that step.
    std::optional<int> lost_rank{};
    int lost_at = 0;
};

/// Trains on `cluster`, of the plan's ranks. Leaves what train does, and in rank
/// 0's series "norm" the norm of each step's gradients.
RunReport train_on_mesh(Cluster& cluster, const GptTask& task, const MeshPlan& plan,
                        const Advance& advance = {}, const MeshTraining& training = {});

/// Trains on one device with as many micro-batches a step, and none of a mesh's code.
/// Leaves the same.
RunReport train_alone(Cluster& cluster, const GptTask& task, int micro_batches,
                      const Advance& advance = {});

}  // namespace lockstep::lessons
