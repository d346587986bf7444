#include "ddp_buckets.hpp"

#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"

using namespace lockstep;

namespace {

/// Makes one buffer of these parameters' gradients. The gradients become views of it.
Tensor in_one_buffer(Device& device, const std::vector<Parameter*>& parameters) {
    std::int64_t elements = 0;
    for (const Parameter* parameter : parameters)
        elements += parameter->gradient.elements();

    const MemoryScope scope(device, MemoryCategory::gradients);
    const Tensor buffer = device.zeros({elements}, parameters.front()->gradient.dtype());
    std::int64_t begin = 0;
    for (Parameter* parameter : parameters) {
        const Tensor place = buffer.slice(begin, parameter->gradient.elements());
        parameter->gradient = place.reshaped(parameter->shape());
        begin += place.elements();
    }
    return buffer;
}

}  // namespace

Buckets::Buckets(Rank& rank, Module& network, const BucketLimits& limits)
    : rank_(rank), network_(network) {
    const std::vector<Parameter*> parameters = network.parameters();
    std::int64_t held = 0;
    for (std::size_t i = parameters.size(); i-- > 0;) {
        held += parameters[i]->gradient.bytes();
        const std::int64_t most =
            buckets_.size() == 1 ? limits.first_bytes : limits.bytes;
        if (buckets_.empty() || held > most) {
            buckets_.emplace_back();
            held = parameters[i]->gradient.bytes();
        }
        buckets_.back().members.push_back(parameters[i]);
    }
    for (Bucket& bucket : buckets_) {
        bucket.gradients = in_one_buffer(rank.device(), bucket.members);
        for (Parameter* parameter : bucket.members)
            hooks_.emplace_back(
                parameter, parameter->on_gradient([&](Parameter&) { ready(bucket); }));
    }
}

Buckets::~Buckets() {
    for (const auto& [parameter, hook] : hooks_)
        parameter->remove_hook(hook);
}

std::vector<Tensor> Buckets::tensors() const {
    std::vector<Tensor> tensors;
    for (const Bucket& bucket : buckets_)
        tensors.push_back(bucket.gradients);
    return tensors;
}

void Buckets::begin(int micro_batches) {
    zero_gradients(network_, micro_batches);
    for (Bucket& bucket : buckets_)
        bucket.missing = bucket.members.size();
    next_ = 0;
}

void Buckets::ready(Bucket& bucket) {
    --bucket.missing;
    start(/*all=*/false);
}

void Buckets::start(bool all) {
    for (; next_ < buckets_.size() && (all || buckets_[next_].missing == 0); ++next_)
        buckets_[next_].work = rank_.world().all_reduce(buckets_[next_].gradients);
}

void Buckets::finish() {
    // A rank without micro-batches has not started any all-reduce.
    start(/*all=*/true);
    for (Bucket& bucket : buckets_)
        bucket.work->wait();
}

Tensor batch_gradient(Rank& rank, Module& network, Buckets& buckets,
                      const MicroBatches& micro_batches) {
    Device& device = rank.device();
    const Tensor share = device.zeros({1}, DType::f64);
    buckets.begin(static_cast<int>(micro_batches.size()));
    for (const MicroBatch& micro_batch : micro_batches) {
        Saved saved;
        const Tensor logits = network.forward(micro_batch.x, saved);
        // The weight already divides by all rows, so the ranks' gradients are summed.
        const LossResult loss =
            cross_entropy_loss(device, logits, micro_batch.targets, micro_batch.weight);
        network.backward(loss.gradient, saved);
        device.add(share, loss.loss);
    }
    buckets.finish();
    return share;
}

Tensor train(Rank& rank, Module& network, const MicroBatches& micro_batches,
             const BucketLimits& limits, int steps, double learning_rate) {
    Device& device = rank.device();
    Buckets buckets(rank, network, limits);
    Sgd optimizer(network.parameters(), {learning_rate, 0, 0});
    const Tensor losses = device.empty({steps}, DType::f64);
    for (int step = 0; step < steps; ++step) {
        const Tensor loss = batch_gradient(rank, network, buckets, micro_batches);
        device.copy(losses.slice(step, 1), loss);
        optimizer.step();
    }
    return losses;
}
