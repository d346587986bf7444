#include "src/parallel/data_parallel_one_process.hpp"

#include <array>
#include <vector>

#include "src/comm/chunks.hpp"
#include "src/core/require.hpp"

namespace lockstep {

namespace {

constexpr int kMain = 0;

/// A tensor as a matrix whose rows are all dimensions before the one that is dealt out: a
/// rank's part is a run of columns.
struct DealtShape {
    DealtShape(const Shape& shape, int along)
        : whole(shape), dimension(along), extent(shape[along]) {
        for (int i = 0; i < shape.dimensions(); ++i)
            if (i != dimension) (i < dimension ? rows : inner) *= shape[i];
    }

    Shape with(std::int64_t other_extent) const {
        std::array<std::int64_t, Shape::kMaxDimensions> extents{};
        for (int i = 0; i < whole.dimensions(); ++i)
            extents[static_cast<std::size_t>(i)] =
                i == dimension ? other_extent : whole[i];
        return {extents.data(), whole.dimensions()};
    }
    Shape matrix(std::int64_t other_extent) const { return {rows, other_extent * inner}; }

    Shape whole;
    int dimension;
    std::int64_t extent;
    std::int64_t rows = 1;
    std::int64_t inner = 1;
};

/// Device 0 deals out a tensor, which the others need not have; returns this rank's part.
Tensor scatter_along(Device& device, Communicator& group, const DealtShape& shape,
                     DType dtype, const Tensor& whole, SourceLine at) {
    const auto part_of = [&](int rank) {
        return chunk(shape.extent, group.size(), rank);
    };
    const std::int64_t own = part_of(group.rank()).count;
    if (group.rank() != kMain) {
        Tensor part = device.empty(shape.with(own), dtype, at);
        if (own > 0) group.recv(part, kMain, at).wait(at);
        return part;
    }
    std::vector<Tensor> parts;
    for (int rank = 0; rank < group.size(); ++rank) {
        const auto [begin, count] = part_of(rank);
        parts.push_back(device.empty(shape.with(count), dtype, at));
        device.copy_columns(parts.back().reshaped(shape.matrix(count)), 0,
                            whole.reshaped(shape.matrix(shape.extent)),
                            begin * shape.inner, count * shape.inner, at);
    }
    Group messages = group.group(at);
    for (int rank = 1; rank < group.size(); ++rank)
        if (part_of(rank).count > 0) messages.send(parts[rank], rank, at);
    messages.start(at).wait(at);
    return parts[kMain];
}

/// Device 0 puts all ranks' parts together, and returns the whole; others return none.
Tensor gather_along(Device& device, Communicator& group, const DealtShape& shape,
                    const Tensor& part, SourceLine at) {
    const auto part_of = [&](int rank) {
        return chunk(shape.extent, group.size(), rank);
    };
    if (group.rank() != kMain) {
        if (part.elements() > 0) group.send(part, kMain, at).wait(at);
        return {};
    }
    std::vector<Tensor> parts{part};
    Group messages = group.group(at);
    for (int rank = 1; rank < group.size(); ++rank) {
        parts.push_back(device.empty(shape.with(part_of(rank).count), part.dtype(), at));
        if (part_of(rank).count > 0) messages.recv(parts.back(), rank, at);
    }
    messages.start(at).wait(at);
    Tensor whole = device.empty(shape.with(shape.extent), part.dtype(), at);
    for (int rank = 0; rank < group.size(); ++rank) {
        const auto [begin, count] = part_of(rank);
        device.copy_columns(
            whole.reshaped(shape.matrix(shape.extent)), begin * shape.inner,
            parts[rank].reshaped(shape.matrix(count)), 0, count * shape.inner, at);
    }
    return whole;
}

// lesson: one-process
/// One batch, forward and backward; returns its loss on device 0.
Tensor run_batch(Device& device, Communicator& group, Module& model, const Loss& loss,
                 const MainBatch& batch, int index, SourceLine at) {
    Group values = group.group(at);
    for (const Parameter* parameter : model.parameters())
        values.broadcast(parameter->value, kMain, at);
    values.start(at).wait(at);

    const DealtShape inputs(batch.shape, batch.dimension);
    const Tensor input =
        scatter_along(device, group, inputs, batch.dtype, batch.input, at);
    Saved saved;
    Tensor prediction;
    {
        const PhaseScope phase(device, Phase::forward, index);
        prediction = model.forward(input, saved, at);
    }
    require(prediction.shape().dimensions() > batch.dimension &&
                prediction.shape()[batch.dimension] == input.shape()[batch.dimension],
            at,
            "one_process_step: of an input of shape {} the model makes a prediction of "
            "shape {}; as many along dimension {} are expected, where both are dealt out",
            input.shape(), prediction.shape(), batch.dimension);
    const DealtShape outputs(
        DealtShape(prediction.shape(), batch.dimension).with(inputs.extent),
        batch.dimension);
    const Tensor all = gather_along(device, group, outputs, prediction, at);

    LossResult result;
    if (group.rank() == kMain) result = loss(device, all, batch.target, batch.weight, at);
    const Tensor gradient =
        scatter_along(device, group, outputs, prediction.dtype(), result.gradient, at);
    {
        const PhaseScope phase(device, Phase::backward, index);
        model.backward(gradient, saved, at);
    }
    for (const Parameter* parameter : model.parameters())
        group.reduce(parameter->gradient, kMain, Reduction::sum, at).wait(at);
    return result.loss;
}
// lesson: end

}  // namespace

Tensor one_process_step(Device& device, Communicator& group, Module& model,
                        const Loss& loss, std::span<const MainBatch> batches,
                        Optimizer& optimizer, SourceLine at) {
    require(!batches.empty(), at, "one_process_step needs at least one batch");
    const bool is_main = group.rank() == kMain;
    Tensor total;
    for (std::size_t i = 0; i < batches.size(); ++i) {
        const MainBatch& batch = batches[i];
        require(batch.dimension >= 0 && batch.dimension < batch.shape.dimensions(), at,
                "one_process_step: a batch of shape {} is dealt out along dimension {}; "
                "0 to {} are there",
                batch.shape, batch.dimension, batch.shape.dimensions() - 1);
        require(!is_main || batch.input.shape() == batch.shape, at,
                "one_process_step: an input of shape {} in a batch of {}",
                batch.input.shape(), batch.shape);
        // Device 0's gradients add up; what the others have was sent before.
        if (i == 0 || !is_main) zero_gradients(model);
        const Tensor share =
            run_batch(device, group, model, loss, batch, static_cast<int>(i), at);
        if (total)
            device.add(total, share, 1, at);
        else
            total = share;
    }
    const PhaseScope phase(device, Phase::update);
    if (is_main) optimizer.step();
    return total;
}

}  // namespace lockstep
