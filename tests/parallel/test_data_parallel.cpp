#include <cmath>
#include <functional>

#include "sim/cluster.hpp"
#include "src/comm/chunks.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/optimizer.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/data_parallel.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kRows = 37;
constexpr std::int64_t kIn = 6;
constexpr std::int64_t kOut = 3;
constexpr int kSteps = 10;

HostTensor random_rows(const char* name, std::int64_t columns) {
    HostTensor rows({kRows, columns}, DType::f64);
    for (std::int64_t i = 0; i < rows.elements(); ++i)
        rows.set(i, RandomStream(5, name).normal(static_cast<std::uint64_t>(i)));
    return rows;
}

MicroBatch part(Device& device, const Chunk& rows, double weight) {
    return {device.upload(random_rows("x", kIn).rows(rows.begin, rows.count)),
            device.upload(random_rows("y", kOut).rows(rows.begin, rows.count)), weight};
}

double share_of(const Chunk& rows) {
    return static_cast<double>(rows.count) / static_cast<double>(kRows);
}

using Gradients = std::function<Tensor(Rank&, Module&)>;

/// Trains a small network for some steps; each rank keeps its parameters.
RunReport train(int ranks, const Gradients& gradients,
                sim::CheckLevel check = sim::check_level_asked()) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = load_cluster("classroom");
    options.check = check;
    return sim::make_cluster(std::move(options))->run([&](Rank& rank) {
        const ParameterInit init{rank.device(), DType::f64, 11, "net"};
        Sequential model;
        model.add(std::make_unique<Linear>(init.child("0"), kIn, 8));
        model.add(std::make_unique<Tanh>(rank.device()));
        model.add(std::make_unique<Linear>(init.child("2"), 8, kOut));
        Sgd optimizer(model.parameters(), {0.05, 0.9, 0});
        for (int step = 0; step < kSteps; ++step) {
            rank.keep_value("loss", rank.device().peek(gradients(rank, model)).at(0));
            optimizer.step();
        }
        for (const Parameter* parameter : model.parameters())
            rank.keep(parameter->name(), parameter->value);
    });
}

double difference(const RankReport& a, const RankReport& b) {
    double worst = 0;
    for (const auto& [name, tensor] : a.kept)
        for (std::int64_t i = 0; i < tensor.elements(); ++i)
            worst = std::max(worst, std::abs(tensor.at(i) - b.kept.at(name).at(i)));
    return worst;
}

RunReport whole_batch() {
    return train(1, [](Rank& rank, Module& model) {
        const std::vector<MicroBatch> all{part(rank.device(), {0, kRows}, 1)};
        return accumulate_gradients(rank.device(), model, mean_squared_error, all);
    });
}

/// Returns a rank's chunk of rows in two micro-batches, or in one if it has one row.
std::vector<MicroBatch> own_parts(Rank& rank) {
    const Chunk mine = chunk(kRows, rank.size(), rank.index());
    std::vector<MicroBatch> parts;
    for (int half = 0; half < 2; ++half) {
        const Chunk rows = chunk(mine.count, 2, half);
        if (rows.count > 0)
            parts.push_back(part(rank.device(), {mine.begin + rows.begin, rows.count},
                                 share_of(rows)));
    }
    return parts;
}

}  // namespace

TEST_CASE("data parallelism over n devices trains as one device does",
          "[sim][parallel]") {
    const RunReport one = whole_batch();
    for (int n = 1; n <= 9; ++n) {
        const RunReport many = train(n, [](Rank& rank, Module& model) {
            const std::vector<MicroBatch> mine = own_parts(rank);
            return data_parallel_gradients(rank.device(), rank.world(), model,
                                           mean_squared_error, mine);
        });
        std::vector<double> loss(kSteps);
        for (const RankReport& rank : many.ranks) {
            CHECK(difference(one.ranks[0], rank) < 1e-13);
            CHECK(rank.kept == many.ranks[0].kept);
            for (std::size_t step = 0; step < loss.size(); ++step)
                loss[step] += rank.series.at("loss")[step];
        }
        for (std::size_t step = 0; step < loss.size(); ++step)
            CHECK(std::abs(loss[step] - one.ranks[0].series.at("loss")[step]) < 1e-13);
    }
}

TEST_CASE("accumulation holds the activations of one micro-batch", "[sim][parallel]") {
    const auto activations = [](int parts) {
        const RunReport report = train(1, [parts](Rank& rank, Module& model) {
            std::vector<MicroBatch> batches;
            for (int i = 0; i < parts; ++i) {
                const MemoryScope data(rank.device(), MemoryCategory::workspace);
                const Chunk rows = chunk(36, parts, i);
                batches.push_back(part(rank.device(), rows, share_of(rows)));
            }
            return accumulate_gradients(rank.device(), model, mean_squared_error,
                                        batches);
        });
        return report.ranks[0].memory.peak_of(MemoryCategory::activations);
    };
    const std::int64_t whole = activations(1);
    const std::int64_t thirds = activations(3);
    // Everything except a few scalars (the losses) shrinks to a third.
    CHECK(thirds < whole / 3 + 64);
    CHECK(thirds > whole / 4);
}

// Mutations: each omits a step, does it twice, or weighs rows wrongly. The comparison
// above and the checker must both find each mutation.

TEST_CASE("without its all-reduce the replicas drift apart", "[sim][parallel]") {
    const RunReport drifting = train(4, [](Rank& rank, Module& model) {
        const std::vector<MicroBatch> mine = own_parts(rank);
        return accumulate_gradients(rank.device(), model, mean_squared_error, mine);
    });
    CHECK_FALSE(drifting.ranks[1].kept == drifting.ranks[0].kept);
    CHECK(difference(whole_batch().ranks[0], drifting.ranks[0]) > 1e-3);
}

TEST_CASE("a mean taken twice, or a mean of unequal means, trains differently",
          "[sim][parallel]") {
    const RunReport one = whole_batch();
    const auto train_with = [](auto weight_of, Reduction reduction,
                               sim::CheckLevel check) {
        const auto gradients = [&](Rank& rank, Module& model) {
            const Chunk mine = chunk(kRows, rank.size(), rank.index());
            const std::vector<MicroBatch> batches{
                part(rank.device(), mine, weight_of(mine))};
            Tensor loss =
                accumulate_gradients(rank.device(), model, mean_squared_error, batches);
            for (Parameter* parameter : model.parameters())
                rank.world().all_reduce(parameter->gradient, reduction).wait();
            return loss;
        };
        return train(4, gradients, check);
    };
    const auto wrong = [&](auto weight_of, Reduction reduction) {
        const RunReport report = train_with(weight_of, reduction, sim::CheckLevel::cheap);
        return difference(one.ranks[0], report.ranks[0]);
    };
    const auto found = [&](auto weight_of, Reduction reduction) {
        try {
            train_with(weight_of, reduction, sim::CheckLevel::full);
        } catch (const FaultError& fault) {
            return fault.diagnosis().fault;
        }
        return std::string();
    };
    const auto one_each = [](const Chunk&) { return 1.0; };
    const auto equal_parts = [](const Chunk&) { return 0.25; };
    CHECK(wrong(share_of, Reduction::sum) < 1e-13);
    CHECK(found(share_of, Reduction::sum) == "");
    CHECK(wrong(share_of, Reduction::mean) > 1e-3);
    CHECK(found(share_of, Reduction::mean) == "F21");
    CHECK(wrong(one_each, Reduction::sum) > 1e-3);
    CHECK(found(one_each, Reduction::sum) == "F21");
    CHECK(wrong(equal_parts, Reduction::sum) > 1e-5);
    CHECK(found(equal_parts, Reduction::sum) == "F28");
}

TEST_CASE("an empty batch is refused", "[sim][parallel][errors]") {
    CHECK_THROWS_WITH(train(1,
                            [](Rank& rank, Module& model) {
                                return accumulate_gradients(rank.device(), model,
                                                            mean_squared_error, {});
                            }),
                      Catch::Matchers::ContainsSubstring("test_data_parallel.cpp") &&
                          Catch::Matchers::ContainsSubstring("at least one micro-batch"));
}

}  // namespace lockstep::test
