#include "data_parallel.hpp"

#include <algorithm>

#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"

using namespace lockstep;

namespace {

/// Copies the network's gradients, and then the loss, into one buffer. From then on the
/// gradients are views of the buffer.
Tensor in_one_buffer(Device& device, Module& network, const Tensor& loss) {
    std::int64_t elements = loss.elements();
    for (const Parameter* parameter : network.parameters())
        elements += parameter->gradient.elements();

    const Tensor buffer = device.empty({elements}, loss.dtype());
    std::int64_t begin = 0;
    for (Parameter* parameter : network.parameters()) {
        const Tensor place = buffer.slice(begin, parameter->gradient.elements());
        device.copy(place, parameter->gradient.flat());
        parameter->gradient = place.reshaped(parameter->shape());
        begin += place.elements();
    }
    device.copy(buffer.slice(begin, loss.elements()), loss);
    return buffer;
}

}  // namespace

Tensor shard_gradient(Rank& rank, Module& network, const Shard& shard,
                      std::int64_t most_rows) {
    Device& device = rank.device();
    zero_gradients(network);
    const Tensor mean = device.zeros({1}, DType::f64);
    for (std::int64_t begin = 0; begin < shard.rows(); begin += most_rows) {
        const std::int64_t count = std::min(most_rows, shard.rows() - begin);
        // A micro-batch's mean is weighted by its part of the rows.
        const double weight =
            static_cast<double>(count) / static_cast<double>(shard.rows());
        Saved saved;
        const Tensor logits = network.forward(shard.x.rows(begin, count), saved);
        const LossResult loss =
            cross_entropy_loss(device, logits, shard.targets.rows(begin, count), weight);
        network.backward(loss.gradient, saved);
        device.add(mean, loss.loss);
    }
    return mean;
}

Tensor batch_gradient(Rank& rank, Module& network, const Shard& shard,
                      std::int64_t most_rows) {
    const Tensor mean = shard_gradient(rank, network, shard, most_rows);
    const Tensor buffer = in_one_buffer(rank.device(), network, mean);
    // A shard's mean is weighted by its part of the batch.
    const double weight =
        static_cast<double>(shard.rows()) / static_cast<double>(shard.batch_rows);
    rank.device().scale(buffer, weight);
    rank.world().all_reduce(buffer).wait();
    return buffer.slice(buffer.elements() - 1, 1);
}

Tensor train(Rank& rank, Module& network, const Shard& shard, std::int64_t most_rows,
             int steps, double learning_rate) {
    Device& device = rank.device();
    Sgd optimizer(network.parameters(), {learning_rate, 0, 0});
    const Tensor losses = device.empty({steps}, DType::f64);
    for (int step = 0; step < steps; ++step) {
        const Tensor loss = batch_gradient(rank, network, shard, most_rows);
        device.copy(losses.slice(step, 1), loss);
        optimizer.step();
    }
    return losses;
}
