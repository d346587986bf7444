// Buckets are filled as in DistributedDataParallel: their order, unused parameters, and
// ranks without a batch.

#include <algorithm>
#include <cmath>

#include "src/core/require.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/bucketed_data_parallel.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/uneven_inputs.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/data_parallel_task.hpp"
#include "tests/parallel/twin.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kWidth = 8;
constexpr std::int64_t kBytes = kWidth * kWidth * 8;  // of a layer

/// Layers without biases. Each micro-batch may skip some layers, and may use the other
/// layers in any order.
class Skipping : public Module {
  public:
    explicit Skipping(Device& device, int layers) {
        for (int i = 0; i < layers; ++i)
            layers_.push_back(std::make_unique<Linear>(
                ParameterInit{device, DType::f64, 1, std::to_string(i)}, kWidth, kWidth,
                false));
        for (int i = 0; i < layers; ++i)
            path.push_back(i);
    }

    std::vector<Parameter*> parameters() override {
        std::vector<Parameter*> all;
        for (const auto& layer : layers_)
            all.push_back(layer->parameters().front());
        return all;
    }

    std::vector<int> path;  ///< the layers that the next forward uses

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override {
        saved.keep_value("path", path);
        Tensor y = x;
        for (const int layer : path)
            y = layers_[layer]->forward(y, saved.child(layer));
        return y;
    }
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override {
        Tensor dx = dy;
        const auto used = saved.value<std::vector<int>>("path");
        for (std::size_t i = used.size(); i-- > 0;)
            dx = layers_[used[i]]->backward(dx, saved.child(used[i]));
        return dx;
    }

    std::vector<std::unique_ptr<Linear>> layers_;
};

MicroBatch batch_of(Device& device, int number, double weight) {
    const std::string name = std::to_string(number);
    return {device.upload(normal_values({4, kWidth}, "x" + name)),
            device.upload(normal_values({4, kWidth}, "y" + name)), weight};
}

using PathOf = std::function<std::vector<int>(int rank, int step, int micro_batch)>;

struct Skipped {
    std::map<std::string, HostTensor> values;
    RunReport report;
};

/// Trains on ranks with two micro-batches each. `path_of` gives their paths. If
/// `evaluates`, runs one more forward after each step.
Skipped train_skipping(int ranks, const PathOf& path_of, BucketOptions options,
                       int steps = 3, bool evaluates = false) {
    Skipped result;
    sim::ClusterOptions cluster;
    cluster.ranks = ranks;
    cluster.workers = 1;
    cluster.spec = load_cluster("classroom");
    cluster.check = sim::CheckLevel::full;
    result.report = sim::make_cluster(cluster)->run([&](Rank& rank) {
        Device& device = rank.device();
        Skipping model(device, 5);
        declare_replicas_of(rank.world(), model);
        BucketedDataParallel sync(device, rank.world(), model.parameters(), options);
        const auto optimizer = momentum_sgd(model.parameters());
        for (int step = 0; step < steps; ++step) {
            sync.begin();
            zero_gradients(model, 2);
            for (int i = 0; i < 2; ++i) {
                model.path = path_of(rank.index(), step, i);
                forward_backward(device, model, mean_squared_error,
                                 batch_of(device, 2 * rank.index() + i, 0.5 / ranks), i);
            }
            sync.finish();
            sync.update(*optimizer);
            if (!evaluates) continue;
            Saved saved;
            model.forward(batch_of(device, 0, 1).input, saved);
        }
        for (const Parameter* parameter : model.parameters())
            rank.keep(parameter->name(), parameter->value);
    });
    result.values = result.report.ranks[0].kept;
    return result;
}

/// Trains one device on all ranks' micro-batches.
std::map<std::string, HostTensor> train_skipping_alone(int ranks, const PathOf& path_of,
                                                       int steps = 3) {
    const RunReport report = sim::make_cluster(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        Skipping model(device, 5);
        const auto optimizer = momentum_sgd(model.parameters());
        for (int step = 0; step < steps; ++step) {
            zero_gradients(model, 2 * ranks);
            for (int i = 0; i < 2 * ranks; ++i) {
                model.path = path_of(i / 2, step, i % 2);
                forward_backward(device, model, mean_squared_error,
                                 batch_of(device, i, 0.5 / ranks), i);
            }
            optimizer->step();
        }
        for (const Parameter* parameter : model.parameters())
            rank.keep(parameter->name(), parameter->value);
    });
    return report.ranks[0].kept;
}

void check_alike(const std::map<std::string, HostTensor>& many,
                 const std::map<std::string, HostTensor>& one) {
    REQUIRE(many.size() == one.size());
    for (const auto& [name, tensor] : one) {
        CAPTURE(name);
        CHECK(relative_difference(many.at(name), tensor) <= 1e-12);
    }
}

}  // namespace

TEST_CASE("Different ranks and micro-batches may skip different layers",
          "[parallel][buckets]") {
    const PathOf path = [](int rank, int step, int micro_batch) {
        std::vector<int> layers{0, 1, 2, 3, 4};
        // In the first step no rank uses layer 3. Rank 1 skips layer 1 in its last
        // micro-batch, and rank 0 skips a different layer in each step.
        if (step == 0) std::erase(layers, 3);
        if (rank == 1 && micro_batch == 1) std::erase(layers, 1);
        if (rank == 0) std::erase(layers, step);
        return layers;
    };
    for (int ranks = 1; ranks <= 3; ++ranks) {
        const auto alone = train_skipping_alone(ranks, path);
        for (const bool find_unused : {false, true}) {
            for (const bool rebuild : {false, true}) {
                CAPTURE(ranks, find_unused, rebuild);
                check_alike(train_skipping(ranks, path,
                                           {.sizes = {kBytes, kBytes},
                                            .rebuild = rebuild,
                                            .find_unused = find_unused})
                                .values,
                            alone);
            }
        }
    }
}

TEST_CASE(
    "A bucket without a gradient delays the later buckets unless unused layers are found",
    "[parallel][buckets]") {
    // Layer 3, the second of five buckets, is skipped in one micro-batch or in both.
    const int skipped = GENERATE(0, 1, 2);
    CAPTURE(skipped);
    const PathOf all = [](int, int, int) { return std::vector<int>{0, 1, 2, 3, 4}; };
    const PathOf skips = [=](int, int, int micro_batch) {
        return micro_batch == 1 - skipped ? std::vector<int>{0, 1, 2, 3, 4}
                                          : std::vector<int>{0, 1, 2, 4};
    };
    const auto waiting = [&](const PathOf& path, int steps, bool find_unused,
                             bool evaluates = false) {
        return train_skipping(3, path,
                              {.sizes = {kBytes, kBytes},
                               .broadcast = false,
                               .rebuild = false,
                               .find_unused = find_unused},
                              steps, evaluates)
            .report.ranks[0]
            .time.waiting;
    };
    // If the unused layer is not found, its bucket and the buckets behind it wait for the
    // end of backward.
    const Picoseconds not_found = waiting(skips, 1, false);
    const Picoseconds found = waiting(skips, 1, true);
    CHECK(found < not_found);
    // If the last micro-batch uses all layers, a rank waits as long as without skips.
    if (skipped == 0) CHECK(found == waiting(all, 1, false));
    // The second step waits as long as the first, even after an evaluation.
    CHECK(waiting(skips, 2, true) == 2 * found);
    CHECK(waiting(skips, 2, true, true) == 2 * found);
    CHECK(waiting(skips, 2, false) == 2 * not_found);
}

TEST_CASE("Buckets that could not be made leave no hook behind", "[parallel][buckets]") {
    sim::make_cluster(1)->run([](Rank& rank) {
        Device& device = rank.device();
        Skipping model(device, 5);
        declare_replicas_of(rank.world(), model);
        Parameter& second = *model.parameters()[1];
        const Tensor gradient = second.gradient;
        second.gradient = device.zeros(second.shape(), DType::f32);  // others are f64
        const auto make = [&] {
            return std::make_unique<BucketedDataParallel>(
                device, rank.world(), model.parameters(),
                BucketOptions{.sizes = BucketSizes::all_in_one(), .find_unused = true});
        };
        CHECK_THROWS_WITH(make(), Catch::Matchers::ContainsSubstring(
                                      "1.weight cannot be put into a flat buffer"));
        // A hook that make() left behind would read these bytes as its counters.
        const std::vector<std::vector<unsigned char>> others(
            100, std::vector<unsigned char>(sizeof(BucketedDataParallel), 0xff));
        second.gradient = gradient;
        zero_gradients(model);
        forward_backward(device, model, mean_squared_error, batch_of(device, 0, 1), 0);
        CHECK(make()->buckets().size() == 1);
    });
}

TEST_CASE("Buckets are filled in reverse order, then in the order of arrival",
          "[parallel][buckets]") {
    const auto names_of = [](const BucketedDataParallel& sync) {
        std::string names;
        for (const auto& bucket : sync.buckets()) {
            for (const Parameter* parameter : bucket)
                names += parameter->name().substr(0, 1);
            names += " ";
        }
        return names;
    };
    const bool rebuild = GENERATE(false, true);
    sim::make_cluster(2)->run([&](Rank& rank) {
        Device& device = rank.device();
        Skipping model(device, 5);
        // The ranks take different paths, but all ranks' buckets follow rank 0's order.
        model.path = rank.index() == 0 ? std::vector<int>{2, 0, 4, 1}
                                       : std::vector<int>{4, 3, 2, 1, 0};
        declare_replicas_of(rank.world(), model);
        BucketedDataParallel sync(device, rank.world(), model.parameters(),
                                  {.sizes = {2 * kBytes, kBytes}, .rebuild = rebuild});
        CHECK(names_of(sync) == "4 32 10 ");
        const auto optimizer = momentum_sgd(model.parameters());
        const std::vector<MicroBatch> mine{batch_of(device, rank.index(), 0.5)};
        train_step(device, model, mean_squared_error, mine, sync, *optimizer);
        CHECK(names_of(sync) == "4 32 10 ");
        train_step(device, model, mean_squared_error, mine, sync, *optimizer);
        CHECK(names_of(sync) == (rebuild ? "1 40 23 " : "4 32 10 "));
        for (const Parameter* parameter : model.parameters())
            CHECK(parameter->gradient.bytes() == kBytes);
    });
}

TEST_CASE("Bucket sizes: one parameter at least, and no byte too many",
          "[parallel][buckets]") {
    sim::make_cluster(1)->run([](Rank& rank) {
        Device& device = rank.device();
        Skipping model(device, 5);
        const auto sizes_of = [&](BucketSizes sizes) {
            std::vector<std::size_t> counts;
            const BucketedDataParallel sync(device, rank.world(), model.parameters(),
                                            {.sizes = sizes});
            for (const auto& bucket : sync.buckets())
                counts.push_back(bucket.size());
            return counts;
        };
        using Counts = std::vector<std::size_t>;
        CHECK(sizes_of({0, 0}) == Counts{1, 1, 1, 1, 1});
        CHECK(sizes_of({2 * kBytes, 1}) == Counts{1, 2, 2});
        CHECK(sizes_of({2 * kBytes - 1, 3 * kBytes}) == Counts{3, 1, 1});
        CHECK(sizes_of(BucketSizes::all_in_one()) == Counts{5});
        CHECK(sizes_of({}) == Counts{5});
    });
}

TEST_CASE("Buckets have 25 MiB by default, and the first one 1 MiB",
          "[parallel][buckets]") {
    constexpr std::int64_t kKiB = 1024;
    sim::ClusterOptions options;
    options.ranks = 1;
    options.numbers = false;
    sim::make_cluster(options)->run([&](Rank& rank) {
        // Layers of 512 KiB. One layer has 4 bytes more.
        std::vector<std::unique_ptr<Parameter>> owned;
        std::vector<Parameter*> parameters;
        for (int i = 0; i < 110; ++i) {
            owned.push_back(std::make_unique<Parameter>(
                ParameterInit{rank.device(), DType::f32, 0, std::to_string(i)}, "w",
                Shape{128 * kKiB + (i == 57 ? 1 : 0)}));
            parameters.push_back(owned.back().get());
        }
        replicate_over(rank.world(), parameters, Placement::Kind::partial);
        const BucketedDataParallel sync(rank.device(), rank.world(), parameters);
        std::vector<std::size_t> counts;
        for (const auto& bucket : sync.buckets())
            counts.push_back(bucket.size());
        // The buckets have 2 layers, 50, 49 (one layer is larger), and the rest.
        CHECK(counts == std::vector<std::size_t>{2, 50, 49, 9});
    });
}

TEST_CASE("A bucket has gradients of one type", "[parallel][buckets]") {
    sim::make_cluster(2)->run([](Rank& rank) {
        std::vector<std::unique_ptr<Parameter>> owned;
        std::vector<Parameter*> parameters;
        for (const DType dtype : {DType::f32, DType::f32, DType::f64, DType::f32}) {
            owned.push_back(std::make_unique<Parameter>(
                ParameterInit{rank.device(), dtype, 0, std::to_string(owned.size())}, "w",
                Shape{3}));
            rank.device().fill(owned.back()->value, 1);
            parameters.push_back(owned.back().get());
        }
        replicate_over(rank.world(), parameters, Placement::Kind::partial);
        BucketedDataParallel sync(rank.device(), rank.world(), parameters);
        REQUIRE(sync.buckets().size() == 3);
        CHECK(sync.buckets()[2].size() == 2);
        sync.begin();
        for (Parameter* parameter : parameters)
            rank.device().fill(parameter->gradient, rank.index() + 1);
        sync.finish();
        for (const Parameter* parameter : parameters)
            CHECK(rank.device().peek(parameter->gradient).at(2) == 3);
    });
}

TEST_CASE("All ranks begin with rank 0's values", "[parallel][buckets]") {
    const bool broadcast = GENERATE(false, true);
    const RunReport report = sim::make_cluster(3)->run([&](Rank& rank) {
        Device& device = rank.device();
        Sequential model;
        model.add<Linear>(ParameterInit{device, DType::f64,
                                        static_cast<std::uint64_t>(rank.index()), "a"},
                          kWidth, kWidth);
        declare_replicas_of(rank.world(), model);
        const BucketedDataParallel sync(device, rank.world(), model.parameters(),
                                        {.broadcast = broadcast});
        for (const Parameter* parameter : model.parameters())
            rank.keep(parameter->name(), parameter->value);
    });
    for (const RankReport& rank : report.ranks) {
        if (&rank == &report.ranks[0]) continue;
        CHECK((rank.kept == report.ranks[0].kept) == broadcast);
    }
    const std::int64_t bytes = (kWidth + 1) * kWidth * 8;
    CHECK(report.ranks[0].bytes_sent() == (broadcast ? bytes : 0));
}

namespace {

// Rank r has batches of r + 1 rows in 2 + r steps. In each step all ranks' rows have
// equal weight.

int rows_of_rank(int rank, int step) {
    return step < 2 + rank ? rank + 1 : 0;
}

int rows_before(int rank, int step) {
    int rows = 0;
    for (int other = 0; other < rank; ++other)
        rows += rows_of_rank(other, step);
    return rows;
}

void train_all_rows(Rank& rank, const RowTask& task, int ranks) {
    Device& device = rank.device();
    const auto model = task.make_model({device, DType::f64, 1, ""});
    AllReduceSync sync(model->parameters());
    const auto optimizer = momentum_sgd(model->parameters());
    for (int step = 0; rows_before(ranks, step) > 0; ++step) {
        const int all = rows_before(ranks, step);
        const auto [input, target] = task.rows(step, all, 0, all);
        const MicroBatch batch{device.upload(input), device.upload(target)};
        train_step(device, *model, task.loss, {&batch, 1}, sync, *optimizer);
    }
    for (const Parameter* parameter : model->parameters())
        rank.keep(parameter->name(), parameter->value);
}

/// Returns the number of steps until all ranks had run out of rows.
int train_own_rows(Rank& rank, const RowTask& task) {
    Device& device = rank.device();
    const auto model = task.make_model({device, DType::f64, 1, ""});
    declare_replicas_of(rank.world(), *model);
    BucketedDataParallel sync(device, rank.world(), model->parameters(),
                              {.sizes = {300, 100}});
    const auto optimizer = momentum_sgd(model->parameters());
    int step = 0;
    for (;; ++step) {
        const int mine = rows_of_rank(rank.index(), step);
        const auto all = static_cast<int>(rows_of_all(device, rank.world(), mine));
        CHECK(all == rows_before(rank.size(), step));
        if (all == 0) break;
        if (mine == 0) {
            join_step(device, *model, sync, *optimizer);
            continue;
        }
        const auto [input, target] =
            task.rows(step, all, rows_before(rank.index(), step), mine);
        const MicroBatch batch{device.upload(input), device.upload(target),
                               static_cast<double>(mine) / all};
        train_step(device, *model, task.loss, {&batch, 1}, sync, *optimizer);
    }
    for (const Parameter* parameter : model->parameters())
        rank.keep(parameter->name(), parameter->value);
    return step;
}

}  // namespace

TEST_CASE("Ranks without batches join until all ranks have none", "[parallel][buckets]") {
    const RowTask task = mlp_task();
    const int ranks = GENERATE(1, 2, 4);
    const RunReport one =
        sim::make_cluster(1)->run([&](Rank& rank) { train_all_rows(rank, task, ranks); });
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.workers = 1;
    options.check = sim::CheckLevel::full;
    const RunReport many = sim::make_cluster(options)->run(
        [&](Rank& rank) { CHECK(train_own_rows(rank, task) == 1 + ranks); });
    for (const RankReport& rank : many.ranks)
        check_alike(rank.kept, one.ranks[0].kept);
}

}  // namespace lockstep::test
