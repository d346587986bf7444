#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/gradient_buckets.hpp"

namespace lockstep::test {

/// A student's ZeRO-1: buckets of values and gradients, sums in flight, and this rank's
/// shards. It is correct. A program with a mistake overrides one of its functions.
class ZeroByHand : public GradientBuckets {
  public:
    ZeroByHand(Rank& rank, Module& model)
        : GradientBuckets(model.parameters(), {256, 256}), world(rank.world()) {
        const int n = rank.size();
        for (const Bucket& bucket : buckets()) {
            values.push_back(make_flat(rank.device(), bucket, &Parameter::value, n));
            gradients.push_back(
                make_flat(rank.device(), bucket, &Parameter::gradient, n));
            const std::int64_t share = values.back().elements() / n;
            for (auto& shard :
                 shards_in(bucket, {rank.index() * share, share}, own(values.back()),
                           own(gradients.back()), world))
                shards_.push_back(std::move(shard));
        }
    }
    std::vector<Parameter*> shards() const override {
        std::vector<Parameter*> all;
        for (const auto& shard : shards_)
            all.push_back(shard.get());
        return all;
    }
    void finish() override {
        start_rest();
        wait_for(sums.size());
    }
    void update(Optimizer& optimizer) override {
        optimizer.step();
        gather_from(0);
    }

  protected:
    /// Waits for the first `count` sums.
    void wait_for(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i)
            sums[i].wait();
        sums.clear();
    }
    /// Gathers the values of this bucket and of all later buckets.
    void gather_from(std::size_t bucket) {
        for (; bucket < values.size(); ++bucket)
            world.all_gather(values[bucket], own(values[bucket])).wait();
    }
    Tensor own(const Tensor& flat) const { return own_range(flat, world); }

    Communicator& world;
    std::vector<Tensor> values;  ///< by bucket
    std::vector<Tensor> gradients;
    std::vector<Work> sums;  ///< sums in flight

  private:
    void start(std::size_t bucket) override {
        sums.push_back(world.reduce_scatter(own(gradients[bucket]), gradients[bucket]));
    }

    std::vector<std::unique_ptr<Parameter>> shards_;
};

inline std::unique_ptr<Sequential> two_layers(Device& device) {
    auto model = std::make_unique<Sequential>();
    model->add<Linear>(ParameterInit{device, DType::f64, 7, "up"}, 6, 8);
    model->add<Linear>(ParameterInit{device, DType::f64, 7, "down"}, 8, 4);
    return model;
}

/// Returns this rank's rows in a step. All ranks have the same number of rows.
inline MicroBatch rows_of(Rank& rank, int step) {
    Device& device = rank.device();
    MicroBatch batch{device.empty({4, 6}, DType::f64), device.zeros({4, 4}, DType::f64),
                     1.0 / rank.size()};
    device.random_normal(batch.input, RandomStream(3 + step, "x"), 0, 1,
                         rank.index() * batch.input.elements());
    return batch;
}

inline void train_two_steps(Rank& rank, Module& model, GradientSync& zero,
                            Optimizer& optimizer) {
    for (int step = 0; step < 2; ++step) {
        const MicroBatch batch = rows_of(rank, step);
        train_step(rank.device(), model, mean_squared_error, {&batch, 1}, zero,
                   optimizer);
    }
}

}  // namespace lockstep::test
