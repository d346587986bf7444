// ZeRO by hand, without a mistake: the checker must not find any.

#include <algorithm>

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
            // The norm of the whole from the norms of the shards.
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

/// Layers x -> tanh(x W) whose weights are sharded: flat, a part on each rank.
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

    /// What each layer reads, and last the result. Gathers each weight while the layer
    /// before it works.
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

    /// Gathers once more; reduces each gradient while the layers before it work.
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

}  // namespace lockstep::test
