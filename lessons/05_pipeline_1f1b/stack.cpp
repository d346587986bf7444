#include "lessons/05_pipeline_1f1b/stack.hpp"

#include <fmt/format.h>

#include "src/comm/mesh.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"

namespace lockstep::lessons {

std::unique_ptr<Sequential> stack_part(const ParameterInit& init, int part, int layers) {
    auto stack = std::make_unique<Sequential>();
    for (int layer = part * layers; layer < (part + 1) * layers; ++layer) {
        stack->add<Linear>(init.child(fmt::format("layer_{}", layer)), kStackWidth,
                           kStackWidth);
        stack->add<Tanh>(init.device);
    }
    return stack;
}

std::vector<MicroBatch> stack_batches(Device& device, const StackOptions& options,
                                      int count, double weight) {
    const MemoryScope scope(device, MemoryCategory::workspace);
    std::vector<MicroBatch> batches;
    for (int i = 0; i < count; ++i) {
        const Shape shape{kStackRows, kStackWidth};
        const Tensor x = device.empty(shape, options.dtype);
        const Tensor target = device.empty(shape, options.dtype);
        device.random_normal(x, RandomStream(options.seed, "x"), 0, 1, i * x.elements());
        device.random_normal(target, RandomStream(options.seed, "target"), 0, 1,
                             i * target.elements());
        batches.push_back({x, target, weight});
    }
    return batches;
}

PartBoundary stack_boundary(DType dtype) {
    return {[](const MicroBatch& batch) { return batch.input.shape(); }, dtype};
}

// lesson: pipeline-program
Program stack_program(const PipelinePlan& plan, const StackOptions& options) {
    return [&plan, options](Rank& rank) {
        Device& device = rank.device();
        const Schedule& schedule = plan.schedule();
        const Mesh mesh(rank.world(), {{"pp", schedule.stages}});
        const ParameterInit init{device, options.dtype, options.seed, ""};
        const int layers = kStackLayers / schedule.chunks;
        std::vector<std::unique_ptr<Sequential>> parts;
        std::vector<Module*> chunks;
        for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
            const int part = schedule.part(rank.index(), chunk);
            parts.push_back(stack_part(init, part, layers));
            chunks.push_back(parts.back().get());
        }
        const PartBoundary between = stack_boundary(options.dtype);
        Pipeline pipeline(device, mesh["pp"], plan, chunks, between);
        const int count = schedule.micro_batches;
        const auto batches = stack_batches(device, options, count, 1.0 / count);
        const Tensor loss = pipeline.run(mean_squared_error, batches);
        if (loss) rank.keep_value("loss", device.peek(loss).at(0));
    };
}
// lesson: end

std::int64_t stack_boundary_bytes(DType dtype) {
    return kStackRows * kStackWidth * bytes_of(dtype);
}

}  // namespace lockstep::lessons
