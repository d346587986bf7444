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

TEST_CASE("correct: ZeRO-3, weights gathered just in time and ahead", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        const int layers = 3;
        const std::int64_t width = 8;
        const std::int64_t shard = width * width / 4;
        std::vector<std::unique_ptr<Parameter>> parts;
        std::vector<Parameter*> all;
        for (int layer = 0; layer < layers; ++layer) {
            const Tensor value = device.empty({shard}, DType::f64);
            const std::string name = "layer" + std::to_string(layer);
            device.random_normal(value, RandomStream(1, name), 0, 0.3,
                                 shard * rank.index());
            parts.push_back(std::make_unique<Parameter>(
                name, value, device.zeros({shard}, DType::f64)));
            all.push_back(parts.back().get());
        }
        AdamW optimizer(all);
        const auto gather = [&](int layer, const Tensor& whole) {
            return rank.world().all_gather(whole,
                                           all[static_cast<std::size_t>(layer)]->value);
        };
        for (int i = 0; i < kSteps; ++i) {
            std::vector<Tensor> inputs{
                random_rows(device, "x", 4 * (4 * i + rank.index()), 4, width)};
            Tensor ahead = device.empty({width, width}, DType::f64);
            Work coming = gather(0, ahead);
            LossResult loss;
            {
                const PhaseScope phase(device, Phase::forward, 0);
                for (int layer = 0; layer < layers; ++layer) {
                    coming.wait();
                    const Tensor whole = ahead;
                    if (layer + 1 < layers) {
                        ahead = device.empty({width, width}, DType::f64);
                        coming = gather(layer + 1, ahead);
                    }
                    inputs.push_back(device.tanh(device.matmul(inputs.back(), whole)));
                }
                loss = mean_squared_error(
                    device, inputs.back(),
                    random_rows(device, "y", 4 * (4 * i + rank.index()), 4, width), 0.25);
            }
            std::vector<Work> reduced;
            std::vector<Tensor> kept;
            {
                const PhaseScope phase(device, Phase::backward, 0);
                Tensor dy = loss.gradient;
                for (int layer = layers - 1; layer >= 0; --layer) {
                    const auto l = static_cast<std::size_t>(layer);
                    const Tensor whole = device.empty({width, width}, DType::f64);
                    gather(layer, whole).wait();
                    const Tensor dz = device.tanh_backward(inputs[l + 1], dy);
                    MatmulOptions left;
                    left.transpose_a = true;
                    MatmulOptions right;
                    right.transpose_b = true;
                    kept.push_back(device.matmul(inputs[l], dz, left));
                    reduced.push_back(
                        rank.world().reduce_scatter(all[l]->gradient, kept.back()));
                    dy = device.matmul(dz, whole, right);
                }
            }
            for (Work& work : reduced)
                work.wait();
            step(device, optimizer);
        }
    });
}

}  // namespace lockstep::test
