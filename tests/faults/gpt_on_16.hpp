#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/context_parallel.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/gpt_on_mesh.hpp"

namespace lockstep::test {

/// The mesh has 16 ranks. The rank at (pp, dp, cp, tp) is 8 pp + 4 dp + 2 cp + tp.
inline const std::vector<MeshShape::Axis> kAxes{
    {"pp", 2}, {"dp", 2}, {"cp", 2}, {"tp", 2}};
constexpr int kReplicas = 2;
constexpr int kMicroBatches = 2;  ///< of one replica in one step
constexpr int kSteps = 2;

/// A GPT that is just large enough to be sharded along these axes.
inline GptSizes small_gpt(bool tied = false) {
    GptSizes sizes;
    sizes.vocabulary = 13;
    sizes.context = 8;
    sizes.layers = 2;
    sizes.block.hidden = 8;
    sizes.block.heads = 2;
    sizes.tied = tied;
    return sizes;
}

inline MeshPlan plan_on(const std::vector<MeshShape::Axis>& axes) {
    return {small_gpt(), {.axes = axes, .micro_batches = kMicroBatches}};
}

/// Sequence `number` of the data, and the next token after each token.
struct Sequence {
    HostTensor ids{{8, 1}, DType::i32};
    HostTensor next{{8, 1}, DType::i32};

    explicit Sequence(int number) {
        const auto token = [](std::int64_t i) {
            return static_cast<double>((i * i + i / 3) % 13);
        };
        for (std::int64_t i = 0; i < ids.elements(); ++i) {
            ids.set(i, token(8 * number + i));
            next.set(i, token(8 * number + i + 1));
        }
    }
};

/// Returns the number of a micro-batch. In a step, replicas have different micro-batches.
inline int number_of(int step, int replica, int micro_batch) {
    return (step * kReplicas + replica) * kMicroBatches + micro_batch;
}

inline std::vector<MicroBatch> batches_of(GptOnMesh& gpt, int step) {
    std::vector<MicroBatch> batches;
    for (int i = 0; i < kMicroBatches; ++i) {
        const Sequence text(number_of(step, gpt.replica(), i));
        batches.push_back(gpt.micro_batch(text.ids, text.next));
    }
    return batches;
}

/// A student's GPT on the mesh. It consists of the library's kits, a GptStage and a
/// Pipeline. It is correct, but declares no replicas and completes no gradients. A
/// program adds the rest.
struct GptByHand {
    Device& device;
    Mesh mesh;
    TensorParallel tensor;
    GptKit kit;
    GptSizes sizes;
    PipelinePlan plan;
    GptStage stage;
    Pipeline pipeline;
    Sgd optimizer;

    explicit GptByHand(Rank& rank, bool tied = false)
        : device(rank.device()),
          mesh(rank.world(), kAxes),
          tensor(device, mesh["tp"]),
          kit(context_parallel(tensor_parallel({}, tensor), mesh["cp"],
                               ContextMethod::ring_attention)),
          sizes(small_gpt(tied)),
          plan(make_schedule("1f1b", {2, kMicroBatches, 1})),
          stage(make_gpt_stage({device, DType::f32, 1, ""}, sizes, plan.schedule(),
                               mesh.coordinate("pp"), cut_gpt(sizes, plan.schedule()),
                               kit)),
          pipeline(device, mesh["pp"], plan, stage.modules(),
                   gpt_boundary(sizes, DType::f32, kit)),
          optimizer(stage.parameters()) {}

    std::vector<Parameter*> parameters() const { return stage.parameters(); }

    /// Returns the chosen tokens of a sequence, with their weight.
    MicroBatch micro_batch(const Sequence& text, const TokenDeal& tokens,
                           SourceLine at = SourceLine::here()) const {
        constexpr double kAll = kReplicas * kMicroBatches * 2;  // cp halves a sequence
        return {device.upload(dealt_rows(text.ids, tokens), at),
                device.upload(dealt_rows(text.next, tokens), at), 1 / kAll};
    }
    std::vector<MicroBatch> batches(int step) const {
        std::vector<MicroBatch> all;
        for (int i = 0; i < kMicroBatches; ++i)
            all.push_back(micro_batch(Sequence(number_of(step, mesh.coordinate("dp"), i)),
                                      kit.tokens));
        return all;
    }
    /// Computes gradients. Each rank's gradient has only the rank's own terms.
    void backward(const std::vector<MicroBatch>& micro_batches,
                  SourceLine at = SourceLine::here()) {
        pipeline.run(kit.loss(sizes), micro_batches, at);
    }
};

}  // namespace lockstep::test
