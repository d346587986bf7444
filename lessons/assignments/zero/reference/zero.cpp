#include "zero.hpp"

#include <memory>
#include <optional>
#include <string>

#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"

using namespace lockstep;

namespace {

/// Sets `member` of a layer's parameters to views of `whole`, or to none if it is none.
void show(const Layer& layer, const Tensor& whole, Tensor Parameter::*member) {
    std::int64_t begin = 0;
    for (Parameter* parameter : layer.module->parameters()) {
        const Shape& shape = parameter->shape();
        parameter->*member =
            whole ? whole.slice(begin, shape.elements()).reshaped(shape) : Tensor();
        begin += shape.elements();
    }
}

/// Returns this rank's range of `whole`.
Tensor own_range(const Rank& rank, const Tensor& whole) {
    const std::int64_t count = whole.elements() / rank.size();
    return whole.slice(rank.index() * count, count);
}

/// A layer as this rank holds it: its own range always, other ranges for a while.
struct Sharded {
    const Layer* layer;
    std::int64_t elements;             ///< number of elements of all ranges
    std::unique_ptr<Parameter> shard;  ///< values and gradients of this rank's range
    Tensor values{};                   ///< all ranges
    Tensor gradients{};
    std::optional<Work> gather{};
    std::optional<Work> reduction{};
};
using Network = std::vector<Sharded>;

/// Makes a layer's shard from `own`, the values of this rank's range. If `keeps`, the
/// gradients of all ranges exist from now on.
Sharded share_out(Rank& rank, const Layer& layer, const Tensor& own, bool keeps) {
    Device& device = rank.device();
    const MemoryScope scope(device, MemoryCategory::gradients);
    Sharded made{&layer, rank.size() * own.elements(), nullptr};
    Tensor gradients;
    if (keeps) {
        made.gradients = device.zeros({made.elements}, DType::f64);
        show(layer, made.gradients, &Parameter::gradient);
        gradients = own_range(rank, made.gradients);
    } else {
        gradients = device.zeros(own.shape(), DType::f64);
    }
    const std::string name = layer.module->parameters().front()->name() + " and on";
    made.shard = std::make_unique<Parameter>(name, own, gradients);
    return made;
}

std::vector<Parameter*> shards_of(const Network& network) {
    std::vector<Parameter*> shards;
    for (const Sharded& sharded : network)
        shards.push_back(sharded.shard.get());
    return shards;
}

/// The work that a stage does before and after a layer's forward and backward.
class Stage {
  public:
    virtual ~Stage() = default;
    virtual void before_forward(std::size_t /*layer*/) {}
    virtual void after_forward(std::size_t /*layer*/) {}
    virtual void before_backward(std::size_t /*layer*/) {}
    virtual void after_backward(std::size_t /*layer*/) {}
};

void forward_and_backward(Device& device, const Layers& layers, const MicroBatch& batch,
                          Stage& stage) {
    std::vector<Saved> saved(layers.size());
    Tensor x = batch.x;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        stage.before_forward(i);
        x = layers[i].module->forward(x, saved[i]);
        stage.after_forward(i);
    }
    // The weight already divides by all rows, so gradients only need to be summed.
    Tensor dy = cross_entropy_loss(device, x, batch.targets, batch.weight).gradient;
    x = {};
    for (std::size_t i = layers.size(); i-- > 0;) {
        stage.before_backward(i);
        dy = layers[i].module->backward(dy, saved[i]);
        stage.after_backward(i);
    }
}

/// Updates this rank's range of each layer, and gathers the new values on all ranks.
void update_and_gather(Rank& rank, const Network& network, AdamW& optimizer) {
    std::vector<Work> gathers;
    for (const Sharded& sharded : network) {
        optimizer.step(*sharded.shard);
        gathers.push_back(rank.world().all_gather(
            sharded.layer->values, own_range(rank, sharded.layer->values)));
    }
    for (Work& gather : gathers)
        gather.wait();
}

/// A layer's whole gradients exist during its backward, and until they are reduced.
class Stage2 : public Stage {
  public:
    Stage2(Rank& rank, Network& network) : rank_(rank), network_(network) {}

    void before_backward(std::size_t layer) override {
        Sharded& sharded = network_[layer];
        const MemoryScope scope(rank_.device(), MemoryCategory::gradients);
        sharded.gradients = rank_.device().zeros({sharded.elements}, DType::f64);
        show(*sharded.layer, sharded.gradients, &Parameter::gradient);
    }
    void after_backward(std::size_t layer) override {
        if (layer + 1 < network_.size()) finish(network_[layer + 1]);
        Sharded& sharded = network_[layer];
        show(*sharded.layer, {}, &Parameter::gradient);
        sharded.reduction = rank_.world().reduce_scatter(
            own_range(rank_, sharded.gradients), sharded.gradients);
        if (layer == 0) finish(sharded);
    }

  protected:
    Rank& rank() { return rank_; }
    Network& network() { return network_; }

  private:
    /// Adds the reduced range to the shard's gradients, and frees the whole gradients.
    void finish(Sharded& sharded) {
        sharded.reduction->wait();
        rank_.device().add(sharded.shard->gradient, own_range(rank_, sharded.gradients));
        sharded.gradients = {};
    }

    Rank& rank_;
    Network& network_;
};

/// A layer's whole values exist while it computes, and are gathered one layer ahead.
class Stage3 : public Stage2 {
  public:
    using Stage2::Stage2;

    void before_forward(std::size_t layer) override {
        open(layer);
        if (layer + 1 < network().size()) gather(layer + 1);
    }
    void after_forward(std::size_t layer) override {
        if (layer + 1 < network().size()) close(layer);
    }
    void before_backward(std::size_t layer) override {
        open(layer);
        if (layer > 0) gather(layer - 1);
        Stage2::before_backward(layer);
    }
    void after_backward(std::size_t layer) override {
        close(layer);
        Stage2::after_backward(layer);
    }

  private:
    void gather(std::size_t layer) {
        Sharded& sharded = network()[layer];
        const MemoryScope scope(rank().device(), MemoryCategory::parameters);
        sharded.values = rank().device().empty({sharded.elements}, DType::f64);
        sharded.gather = rank().world().all_gather(sharded.values, sharded.shard->value);
    }
    void open(std::size_t layer) {
        Sharded& sharded = network()[layer];
        if (!sharded.values) gather(layer);
        if (!sharded.gather) return;
        sharded.gather->wait();
        sharded.gather.reset();
        show(*sharded.layer, sharded.values, &Parameter::value);
    }
    void close(std::size_t layer) {
        Sharded& sharded = network()[layer];
        show(*sharded.layer, {}, &Parameter::value);
        sharded.values = {};
    }
};

}  // namespace

void stage_1(Rank& rank, const Layers& layers, const MicroBatches& micro_batches,
             const Training& training) {
    Device& device = rank.device();
    Network network;
    for (const Layer& layer : layers)
        network.push_back(share_out(rank, layer, own_range(rank, layer.values), true));
    AdamW optimizer(shards_of(network), training.adamw);
    Stage nothing;
    for (int step = 0; step < training.steps; ++step) {
        for (const Sharded& sharded : network)
            device.fill(sharded.gradients, 0);
        for (const MicroBatch& batch : micro_batches)
            forward_and_backward(device, layers, batch, nothing);
        for (Sharded& sharded : network)
            sharded.reduction =
                rank.world().reduce_scatter(sharded.shard->gradient, sharded.gradients);
        for (Sharded& sharded : network)
            sharded.reduction->wait();
        update_and_gather(rank, network, optimizer);
    }
}

void stage_2(Rank& rank, const Layers& layers, const MicroBatches& micro_batches,
             const Training& training) {
    Device& device = rank.device();
    Network network;
    for (const Layer& layer : layers)
        network.push_back(share_out(rank, layer, own_range(rank, layer.values), false));
    AdamW optimizer(shards_of(network), training.adamw);
    Stage2 stage(rank, network);
    for (int step = 0; step < training.steps; ++step) {
        for (const Sharded& sharded : network)
            device.fill(sharded.shard->gradient, 0);
        for (const MicroBatch& batch : micro_batches)
            forward_and_backward(device, layers, batch, stage);
        update_and_gather(rank, network, optimizer);
    }
}

void stage_3(Rank& rank, const Layers& layers, const MicroBatches& micro_batches,
             const Training& training) {
    Device& device = rank.device();
    Network network;
    for (const Layer& layer : layers)
        network.push_back(share_out(rank, layer, layer.values, false));
    AdamW optimizer(shards_of(network), training.adamw);
    Stage3 stage(rank, network);
    for (int step = 0; step < training.steps; ++step) {
        for (const Sharded& sharded : network)
            device.fill(sharded.shard->gradient, 0);
        for (const MicroBatch& batch : micro_batches)
            forward_and_backward(device, layers, batch, stage);
        optimizer.step();
    }
}
