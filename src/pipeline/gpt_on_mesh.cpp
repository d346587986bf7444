#include "src/pipeline/gpt_on_mesh.hpp"

#include <algorithm>

#include "src/comm/expect.hpp"
#include "src/core/call_scope.hpp"
#include "src/core/require.hpp"
#include "src/nn/recompute.hpp"
#include "src/parallel/fully_sharded.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/sequence_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/parallel/zero_1.hpp"
#include "src/parallel/zero_2.hpp"
#include "src/pipeline/generators.hpp"

namespace lockstep {

namespace {

MeshShape with_all_axes(const std::vector<MeshShape::Axis>& given) {
    const std::vector<std::string> names{"pp", "dp", "ep", "cp", "tp"};
    std::vector<MeshShape::Axis> all;
    for (const std::string& name : names)
        if (std::ranges::find(given, name, &MeshShape::Axis::name) == given.end())
            all.push_back({name, 1});
    for (const MeshShape::Axis& axis : given) {
        require(
            std::ranges::find(names, axis.name) != names.end(),
            "a GPT on a mesh: the axis '{}' is unknown; pp, dp, ep, cp and tp are known",
            axis.name);
        all.push_back(axis);
    }
    return MeshShape(all);
}

}  // namespace

std::vector<std::string> replica_axes(const MeshShape& shape) {
    std::vector<std::string> axes{"dp"};
    for (const char* axis : {"ep", "cp"})
        if (shape.size(axis) > 1) axes.emplace_back(axis);
    return axes;
}

MeshPlan::MeshPlan(const GptSizes& sizes, const MeshOptions& options)
    : sizes_(sizes),
      options_(options),
      shape_(with_all_axes(options.axes)),
      pipeline_(make_schedule(options.schedule,
                              {size("pp"), options.micro_batches, options.chunks})),
      cut_(cut_gpt(sizes, pipeline_.schedule())) {
    require(options.zero >= 0 && options.zero <= 3,
            "a GPT on a mesh: ZeRO stage {}; 1 to 3, or 0 for none, is expected",
            options.zero);
    require(sizes.block.experts.count > 0 || size("ep") == 1,
            "a GPT on a mesh: there are {} ranks along ep, but the GPT has no experts",
            size("ep"));
    require(sizes.block.experts.count == 0 || options.zero < 2 || options.sync,
            "a GPT on a mesh: ZeRO stage {} shards whole layers, but experts are on "
            "other ranks than the rest of a layer; 0 or 1 is expected",
            options.zero);
}

namespace {

// lesson: mesh-kit
/// Puts one kit into another; each kit replaces only the modules that it changes.
GptKit kit_on(Mesh& mesh, TensorParallel& tensor, const MeshPlan& plan) {
    const MeshOptions& options = plan.options();
    GptKit kit = options.kit;
    if (mesh.size("tp") > 1) kit = tensor_parallel(kit, tensor);
    if (mesh.size("cp") > 1)
        kit = context_parallel(kit, mesh["cp"], options.context, options.order);
    if (plan.sizes().block.experts.count > 0) {
        ExpertParallelOptions experts = options.experts;
        experts.batch = {"cp"};
        experts.tp = &tensor;
        kit = expert_parallel(kit, mesh, options.expert_axes, experts);
    }
    if (options.recompute == MeshOptions::Recompute::attention)
        kit = selective_recompute(kit);
    return kit;
}
// lesson: end

std::unique_ptr<TensorParallel> tensor_on(Device& device, Mesh& mesh, bool sequence) {
    if (sequence) return std::make_unique<SequenceParallel>(device, mesh["tp"]);
    return std::make_unique<TensorParallel>(device, mesh["tp"]);
}

/// Returns whether modules allocate their parameters; ZeRO allocates them itself.
bool allocates(const MeshOptions& options) {
    return options.sync || options.zero == 0;
}

std::unique_ptr<GradientSync> sync_of(Device& device, Mesh& mesh, Sequential& model,
                                      const MeshOptions& options) {
    // A chunk that is only a head, tied to another chunk's table, has no parameters.
    if ((options.zero == 0 && !options.sync) || model.parameters().empty())
        return std::make_unique<AllReduceSync>(model.parameters());
    if (options.sync) return options.sync(device, mesh, model);
    const std::vector<std::string> axes = replica_axes(mesh.shape());
    if (options.zero == 1)
        return zero_1_by_places(device, mesh, axes, model.parameters());
    Communicator& replicas = mesh.plane(axes);
    if (options.zero == 2)
        return std::make_unique<Zero2>(device, replicas, model.parameters());
    return std::make_unique<FullySharded>(device, replicas, model);
}

}  // namespace

GptOnMesh::GptOnMesh(Rank& rank, const MeshPlan& plan, DType dtype, std::uint64_t seed,
                     SourceLine at)
    : rank_(rank),
      plan_(plan),
      mesh_(rank.world(), plan.shape().axes(), at),
      tensor_(tensor_on(rank.device(), mesh_, plan.options().sequence)),
      kit_(kit_on(mesh_, *tensor_, plan)) {
    Device& device = rank.device();
    Communicator& line = mesh_["pp"];
    const GptSizes& sizes = plan.sizes();
    const Schedule& schedule = plan.pipeline().schedule();
    const ParameterInit init{device, dtype, seed, "", allocates(plan.options())};
    stage_ = make_gpt_stage(init, sizes, schedule, line.rank(), plan.cut(), kit_);
    for (const auto& chunk : stage_.chunks) {
        if (plan.options().recompute == MeshOptions::Recompute::layers)
            recompute_modules(*chunk, 0, chunk->size());
        if (plan.options().offload)
            offloaded_.emplace_back(device, *chunk, 0, chunk->size(),
                                    *plan.options().offload);
    }

    pipeline_ =
        std::make_unique<Pipeline>(device, line, plan.pipeline(), stage_.modules(),
                                   gpt_boundary(sizes, dtype, kit_));
    if (plan.options().scatter_messages && !plan.options().sequence &&
        mesh_.size("tp") > 1)
        pipeline_->scatter_messages(mesh_["tp"]);
    // lesson: sums-on-mesh
    // Only this call decides over which ranks gradients are summed.
    pipeline_->reduce_over(mesh_, replica_axes(plan.shape()), at);
    tied_ = tie_gpt(*pipeline_, stage_, schedule, line, at);
    pipeline_->tie_copies();
    // lesson: end

    std::vector<GradientSync*> of_chunks;
    for (const auto& chunk : stage_.chunks) {
        auto sync = sync_of(device, mesh_, *chunk, plan.options());
        of_chunks.push_back(sync.get());
        sync_.add(std::move(sync));
    }
    pipeline_->sync_by(of_chunks);
}

Tensor GptOnMesh::gradients(std::span<const MicroBatch> micro_batches, SourceLine at) {
    const Tensor loss = pipeline_->run(kit_.loss(plan_.sizes()), micro_batches, at);
    // All ranks of a tensor group have the same loss; only the first returns it.
    return tensor_->rank() == 0 ? loss : Tensor();
}

Tensor GptOnMesh::step(std::span<const MicroBatch> micro_batches, Optimizer& optimizer,
                       double most, SourceLine at) {
    const CallScope call(at);
    Tensor loss = gradients(micro_batches, at);
    if (most > 0) clip_gradients(rank_.device(), rank_.world(), sync_.shards(), most, at);
    update(optimizer);
    return loss;
}

void GptOnMesh::update(Optimizer& optimizer) {
    const PhaseScope phase(rank_.device(), Phase::update);
    sync_.update(optimizer);
}

MicroBatch GptOnMesh::micro_batch(const HostTensor& ids, const HostTensor& targets,
                                  SourceLine at) {
    require(ids.dtype() == DType::i32 && ids.shape().dimensions() == 2 &&
                targets.dtype() == DType::i32 && targets.shape() == ids.shape(),
            at,
            "a micro-batch of ids {} {} and targets {} {}; whole sequences (s, b) of i32 "
            "are expected for both",
            ids.dtype(), ids.shape(), targets.dtype(), targets.shape());
    for (const char* axis : {"pp", "cp", "tp"}) {
        declare_same(mesh_[axis], ids, "ids of a micro-batch", at);
        declare_same(mesh_[axis], targets, "targets of a micro-batch", at);
    }
    Device& device = rank_.device();
    return {device.upload(dealt_rows(ids, tokens()), at),
            device.upload(dealt_rows(targets, tokens()), at), plan_.weight()};
}

}  // namespace lockstep
