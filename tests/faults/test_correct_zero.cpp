// ZeRO by hand and by the library, without a mistake. The checker must find nothing.

#include <algorithm>
#include <cmath>
#include <functional>

#include "src/comm/mesh.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/fully_sharded.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/zero_1.hpp"
#include "src/parallel/zero_2.hpp"
#include "src/parallel/zero_offload.hpp"
#include "tests/catch.hpp"
#include "tests/faults/correct.hpp"

namespace lockstep::test {

TEST_CASE("correct: ZeRO-1 and ZeRO-2 over flat buffers", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        const std::int64_t shard = 8;
        const Tensor weight = device.empty({shard * 4, 1}, DType::f64);
        const Tensor gradient = device.zeros({shard * 4, 1}, DType::f64);
        device.random_normal(weight, RandomStream(1, "w"), 0, 1);
        const Tensor own = weight.rows(shard * rank.index(), shard);
        const Tensor own_gradient = device.zeros({shard, 1}, DType::f64);
        Parameter part("w", own, own_gradient);
        AdamW optimizer({&part});
        for (int i = 0; i < kSteps; ++i) {
            device.fill(gradient, 0);
            for (int m = 0; m < 2; ++m) {
                const Tensor x =
                    random_rows(device, "x", 8 * i + 2 * rank.index() + m, 5, shard * 4);
                Tensor y;
                LossResult loss;
                {
                    const PhaseScope phase(device, Phase::forward, m);
                    y = device.matmul(x, weight);
                    loss = mean_squared_error(
                        device, y, random_rows(device, "y", 8 * i + m, 5, 1), 1.0 / 8);
                }
                const PhaseScope phase(device, Phase::backward, m);
                MatmulOptions add;
                add.transpose_a = true;
                add.accumulate = true;
                device.matmul_into(gradient, x, loss.gradient, add);
            }
            rank.world().reduce_scatter(own_gradient, gradient).wait();
            // Computes the norm of the whole from the shards' norms.
            const Tensor square = device.empty({shard, 1}, DType::f64);
            device.copy(square, own_gradient);
            device.multiply(square, own_gradient);
            const Tensor total = device.zeros({1}, DType::f64);
            device.sum(total, square);
            rank.world().all_reduce(total).wait();
            device.scale(own_gradient, 1 / std::max(1.0, device.download(total).at(0)));
            step(device, optimizer);
            rank.world().all_gather(weight, own).wait();
        }
    });
}

namespace {

/// Layers x -> tanh(x W). Their weights are sharded: flat, one part on each rank.
class ShardedLayers {
  public:
    ShardedLayers(Rank& rank, int layers, std::int64_t width)
        : device_(rank.device()), world_(rank.world()), width_(width) {
        const std::int64_t shard = width * width / rank.size();
        for (int layer = 0; layer < layers; ++layer) {
            const std::string name = "layer" + std::to_string(layer);
            const Tensor value = device_.empty({shard}, DType::f64);
            device_.random_normal(value, RandomStream(1, name), 0, 0.3,
                                  shard * rank.index());
            parts_.push_back(std::make_unique<Parameter>(
                name, value, device_.zeros({shard}, DType::f64)));
        }
    }

    std::vector<Parameter*> parameters() const {
        std::vector<Parameter*> all;
        for (const auto& part : parts_)
            all.push_back(part.get());
        return all;
    }

    /// Returns each layer's input and, last, the result. Gathers each weight while the
    /// layer before it computes.
    std::vector<Tensor> forward(const Tensor& x) const {
        std::vector<Tensor> inputs{x};
        Tensor ahead = whole();
        Work coming = gather(0, ahead);
        for (std::size_t layer = 0; layer < parts_.size(); ++layer) {
            coming.wait();
            const Tensor weight = ahead;
            if (layer + 1 < parts_.size()) {
                ahead = whole();
                coming = gather(layer + 1, ahead);
            }
            inputs.push_back(device_.tanh(device_.matmul(inputs.back(), weight)));
        }
        return inputs;
    }

    /// Gathers the weights again. Reduces each gradient while earlier layers compute.
    void backward(const std::vector<Tensor>& inputs, Tensor dy) const {
        std::vector<Work> reduced;
        std::vector<Tensor> kept;
        MatmulOptions left;
        left.transpose_a = true;
        MatmulOptions right;
        right.transpose_b = true;
        for (std::size_t layer = parts_.size(); layer-- > 0;) {
            const Tensor weight = whole();
            gather(layer, weight).wait();
            const Tensor dz = device_.tanh_backward(inputs[layer + 1], dy);
            kept.push_back(device_.matmul(inputs[layer], dz, left));
            reduced.push_back(
                world_.reduce_scatter(parts_[layer]->gradient, kept.back()));
            dy = device_.matmul(dz, weight, right);
        }
        for (Work& work : reduced)
            work.wait();
    }

  private:
    Tensor whole() const { return device_.empty({width_, width_}, DType::f64); }
    Work gather(std::size_t layer, const Tensor& into) const {
        return world_.all_gather(into, parts_[layer]->value);
    }

    Device& device_;
    Communicator& world_;
    std::int64_t width_;
    std::vector<std::unique_ptr<Parameter>> parts_;
};

}  // namespace

TEST_CASE("correct: ZeRO-3, weights gathered just in time and ahead", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        const std::int64_t width = 8;
        const ShardedLayers layers(rank, 3, width);
        AdamW optimizer(layers.parameters());
        for (int i = 0; i < kSteps; ++i) {
            const int first = 4 * (4 * i + rank.index());
            std::vector<Tensor> inputs;
            LossResult loss;
            {
                const PhaseScope phase(device, Phase::forward, 0);
                inputs = layers.forward(random_rows(device, "x", first, 4, width));
                loss =
                    mean_squared_error(device, inputs.back(),
                                       random_rows(device, "y", first, 4, width), 0.25);
            }
            {
                const PhaseScope phase(device, Phase::backward, 0);
                layers.backward(inputs, loss.gradient);
            }
            step(device, optimizer);
        }
    });
}

namespace {

using Shards = std::vector<Parameter*>;

/// The library's ways of sharding a model over a line.
struct Way {
    std::string name;
    std::function<std::pair<std::unique_ptr<GradientSync>, Shards>(Device&, Communicator&,
                                                                   Sequential&)>
        make;
    bool on_host = false;  ///< shards on the host: no replicas between nodes
    bool delayed = false;
};

template <typename Sync, typename... Options>
Way way(std::string name, bool on_host, Options... options) {
    return {std::move(name),
            [=](Device& device, Communicator& line, Sequential& model) {
                std::unique_ptr<Sync> sync;
                if constexpr (std::is_same_v<Sync, FullySharded>)
                    sync = std::make_unique<Sync>(device, line, model, options...);
                else
                    sync = std::make_unique<Sync>(device, line, model.parameters(),
                                                  options...);
                auto shards = sync->shards();
                return std::pair<std::unique_ptr<GradientSync>, Shards>(
                    std::move(sync), std::move(shards));
            },
            on_host, sizeof...(Options) == 2};
}

std::vector<Way> ways() {
    constexpr BucketSizes kSmall{300, 300};
    using Sharded = FullyShardedOptions;
    return {
        way<Zero1>("1", false, ZeroOptions{.sizes = kSmall}),
        way<Zero1>("1, all reduced", false,
                   ZeroOptions{.sizes = kSmall, .all_reduce = true}),
        way<Zero1>("1, hidden", false, ZeroOptions{.sizes = kSmall, .hide_gather = true}),
        way<Zero2>("2", false, ZeroOptions{.sizes = kSmall}),
        way<Zero2>("2, hidden", false, ZeroOptions{.sizes = kSmall, .hide_gather = true}),
        way<ZeroOffload>("offload", true, ZeroOptions{.sizes = kSmall}),
        way<ZeroOffload>("offload, delayed", true, ZeroOptions{.sizes = kSmall}, true),
        way<FullySharded>("3", false, Sharded{}),
        way<FullySharded>("3, kept", false, Sharded{.reshard_after_forward = false}),
        way<FullySharded>("3, packed", false, Sharded{.shard_by = ShardBy::packed_rows}),
        way<FullySharded>("3, flat, not prefetched", false,
                          Sharded{.shard_by = ShardBy::flat, .prefetch = 0}),
        way<FullySharded>("3, on the host", true, Sharded{.on_host = true}),
    };
}

/// Trains with two micro-batches a step, and clips the gradients.
void train(Rank& rank, Communicator& line, Sequential& model, const Way& way,
           const std::function<std::unique_ptr<Optimizer>(Shards)>& make) {
    Device& device = rank.device();
    const DType dtype = model.parameters().front()->dtype();
    const auto [sync, shards] = way.make(device, line, model);
    const auto optimizer = make(shards);
    for (std::int64_t i = 0; i < kSteps; ++i) {
        std::vector<MicroBatch> batches;
        for (int m = 0; m < 2; ++m) {
            const std::int64_t first = 6 * (2 * (i * rank.size() + rank.index()) + m);
            MicroBatch batch{device.empty({3, 6}, dtype), device.empty({3, 4}, dtype),
                             0.5 / rank.size()};
            device.random_normal(batch.input, RandomStream(3, "x"), 0, 1, first * 6);
            device.random_normal(batch.target, RandomStream(3, "y"), 0, 1, first * 4);
            batches.push_back(batch);
        }
        sync->begin();
        accumulate_gradients(device, model, mean_squared_error, batches);
        sync->finish();
        if (!way.delayed) clip_gradients(device, rank.world(), shards, 0.05);
        const PhaseScope phase(device, Phase::update);
        sync->update(*optimizer);
    }
    sync->wait_for_values();
}

}  // namespace

TEST_CASE("correct: a frozen layer, and values in a flat buffer", "[faults]") {
    for (const bool flat : {false, true})
        must_stay_silent(2, [&](Rank& rank) {
            Device& device = rank.device();
            const auto model = make_mlp(device);
            if (flat) make_flat(device, model->parameters(), &Parameter::value);
            declare_replicas_of(rank.world(), *model);
            AllReduceSync sync(model->parameters());
            AdamW optimizer({model->parameters()[2], model->parameters()[3]});
            for (int i = 0; i < kSteps; ++i) {
                const int first = 4 * (i * rank.size() + rank.index());
                const MicroBatch batch{random_rows(device, "x", first, 4, 6),
                                       random_rows(device, "y", first, 4, 4),
                                       1.0 / rank.size()};
                train_step(device, *model, mean_squared_error, {&batch, 1}, sync,
                           optimizer);
            }
        });
}

TEST_CASE("correct: the library's ZeRO, with micro-batches and a clip", "[faults]") {
    for (const Way& way : ways()) {
        CAPTURE(way.name);
        for (const int ranks : {2, 3})
            must_stay_silent(ranks, [&](Rank& rank) {
                const auto model = make_mlp(rank.device());
                declare_replicas_of(rank.world(), *model);
                train(rank, rank.world(), *model, way, [](const Shards& shards) {
                    return std::make_unique<AdamW>(
                        decay_matrices_only(shards, {.weight_decay = 0.1}));
                });
            });
    }
}

TEST_CASE("correct: the library's ZeRO with masters of values in bf16", "[faults]") {
    for (const Way& way : ways()) {
        CAPTURE(way.name);
        must_stay_silent(2, [&](Rank& rank) {
            Sequential model;
            const ParameterInit init{rank.device(), DType::bf16, 7, ""};
            model.add<Linear>(init.child("up"), 6, 8);
            model.add<Linear>(init.child("down"), 8, 4);
            declare_replicas_of(rank.world(), model);
            train(rank, rank.world(), model, way, [](Shards shards) {
                return make_optimizer<AdamW>(std::move(shards), AdamWOptions{});
            });
        });
    }
}

TEST_CASE("correct: the library's ZeRO inside of nodes, replicas between them",
          "[faults]") {
    for (const Way& way : ways()) {
        if (way.on_host) continue;
        CAPTURE(way.name);
        must_stay_silent(4, [&](Rank& rank) {
            const Mesh mesh(rank.world(), {{"between", 2}, {"inside", 2}});
            const auto model = make_mlp(rank.device());
            declare_replicas_of(mesh["between"], *model);
            declare_replicas_of(mesh["inside"], *model);
            train(rank, mesh["inside"], *model, way,
                  [](const Shards& shards) { return std::make_unique<AdamW>(shards); });
        });
    }
}

namespace {

/// Runs forward and backward of the model on this rank's own rows.
void pass(Rank& rank, Sequential& model, int step) {
    Device& device = rank.device();
    const int first = 5 * (step * rank.size() + rank.index());
    const MicroBatch batch{random_rows(device, "x", first, 5, 6),
                           random_rows(device, "y", first, 5, 4), 1.0 / rank.size()};
    accumulate_gradients(device, model, mean_squared_error, {&batch, 1});
}

}  // namespace

TEST_CASE("correct: each rank owns whole parameters and broadcasts them", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        const auto model = make_mlp(rank.device());
        const std::vector<Parameter*> all = model->parameters();
        make_flat(rank.device(), all, &Parameter::value);
        Parameter& own = *all[rank.index()];
        AdamW optimizer({&own});
        for (int i = 0; i < kSteps; ++i) {
            pass(rank, *model, i);
            for (int owner = 0; owner < rank.size(); ++owner)
                rank.world().reduce(all[owner]->gradient, owner).wait();
            step(rank.device(), optimizer);
            for (int owner = 0; owner < rank.size(); ++owner)
                rank.world().broadcast(all[owner]->value, owner).wait();
        }
    });
}

TEST_CASE("correct: a flat buffer, stepped and gathered parameter by parameter",
          "[faults]") {
    must_stay_silent(2, [](Rank& rank) {
        Device& device = rank.device();
        Communicator& world = rank.world();
        const auto model = make_mlp(device);
        std::vector<Parameter*> trained = model->parameters();
        make_flat(device, trained, &Parameter::value);
        make_flat(device, trained, &Parameter::gradient);
        trained.pop_back();  // the last parameter is frozen
        std::vector<std::unique_ptr<Parameter>> shards;
        AdamW::Groups groups;
        for (const Parameter* parameter : trained) {
            const std::int64_t share = parameter->shape().elements() / 2;
            auto shard = shards_in({model->parameters()[shards.size()]},
                                   {rank.index() * share, share},
                                   own_range(parameter->value.flat(), world),
                                   own_range(parameter->gradient.flat(), world), world);
            shards.push_back(std::move(shard.front()));
            groups.push_back({{shards.back().get()}, {}});
        }
        AdamW optimizer(groups);
        for (int i = 0; i < kSteps; ++i) {
            pass(rank, *model, i);
            std::vector<Work> gathers;
            for (std::size_t p = 0; p < trained.size(); ++p) {
                const Tensor whole = trained[p]->gradient.flat();
                world.reduce_scatter(own_range(whole, world), whole).wait();
                // Each parameter has its own clipping and its own learning rate.
                const Tensor squares = device.zeros({1}, DType::f64);
                device.sum_of_squares(squares, shards[p]->gradient);
                world.all_reduce(squares).wait();
                const double norm = std::sqrt(device.download(squares).at(0));
                device.scale(shards[p]->gradient, 0.01 / std::max(norm, 0.01));
                optimizer.groups[p].options.learning_rate = 0.01 / double(i + p + 1);
                {
                    const PhaseScope phase(device, Phase::update);
                    optimizer.step(*shards[p]);
                }
                const Tensor values = trained[p]->value.flat();
                gathers.push_back(world.all_gather(values, own_range(values, world)));
            }
            for (Work& work : gathers)
                work.wait();
        }
    });
}

}  // namespace lockstep::test
