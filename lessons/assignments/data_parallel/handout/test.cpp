// These tests are public. The grader tests more: other networks, other shards, other
// numbers of ranks, and what your program costs.

#include <numeric>

#include <fmt/format.h>

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/course/public_test.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/sequential.hpp"

using namespace lockstep;

constexpr std::int64_t kFeatures = 3;
constexpr std::int64_t kClasses = 4;
constexpr int kSteps = 3;
constexpr double kRate = 0.5;

/// Rows of each rank.
using Rows = std::vector<std::int64_t>;

std::int64_t sum(const Rows& rows) {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

/// Makes a network whose parameters are the same on every rank.
std::unique_ptr<Sequential> make_network(Device& device) {
    constexpr std::int64_t kHidden = 5;
    auto network = std::make_unique<Sequential>();
    network->add<Linear>(ParameterInit{device, DType::f64, 1, "hidden"}, kFeatures,
                         kHidden);
    network->add<Tanh>(device);
    network->add<Linear>(ParameterInit{device, DType::f64, 1, "output"}, kHidden,
                         kClasses);
    network->set_input_gradient(false);
    return network;
}

/// Returns rows [begin, begin + count) of a batch.
Shard make_shard(Device& device, std::int64_t begin, std::int64_t count,
                 std::int64_t batch_rows) {
    const RandomStream stream(1, "x");
    HostTensor x({count, kFeatures}, DType::f64);
    HostTensor targets({count}, DType::i32);
    for (std::int64_t i = 0; i < x.elements(); ++i)
        x.set(i, stream.normal(static_cast<std::uint64_t>(begin * kFeatures + i)));
    for (std::int64_t row = 0; row < count; ++row)
        targets.set(row, static_cast<double>((begin + row) % kClasses));
    return {device.upload(x), device.upload(targets), batch_rows};
}

Shard shard_of(Rank& rank, const Rows& rows) {
    const auto own = rows.begin() + rank.index();
    return make_shard(rank.device(), std::accumulate(rows.begin(), own, std::int64_t{0}),
                      *own, sum(rows));
}

/// Fills gradients with values from an earlier use.
void fill_gradients(Rank& rank, Module& network) {
    for (const Parameter* parameter : network.parameters())
        rank.device().fill(parameter->gradient, 3);
}

void keep_gradients(Rank& rank, Module& network) {
    for (const Parameter* parameter : network.parameters())
        rank.keep("gradient of " + parameter->name(), parameter->gradient);
}

/// Returns the loss and the gradients of each rank after your function.
RunReport run(const Rows& rows, decltype(adapters::batch_gradient) function) {
    return sim::make_cluster(static_cast<int>(rows.size()))->run([&](Rank& rank) {
        const auto network = make_network(rank.device());
        fill_gradients(rank, *network);
        rank.keep("loss", function(rank, *network, shard_of(rank, rows), 4));
        keep_gradients(rank, *network);
    });
}

/// Computes rows [begin, begin + count) at once, on one device.
RunReport run_alone(std::int64_t begin, std::int64_t count) {
    return sim::make_cluster(1)->run([=](Rank& rank) {
        const auto network = make_network(rank.device());
        const Shard rows = make_shard(rank.device(), begin, count, count);
        Saved saved;
        const Tensor logits = network->forward(rows.x, saved);
        const LossResult loss = cross_entropy_loss(rank.device(), logits, rows.targets);
        network->backward(loss.gradient, saved);
        rank.keep("loss", loss.loss);
        keep_gradients(rank, *network);
    });
}

/// Compares losses first, then gradients or parameters.
void expect_kept(const RunReport& got, int rank, const RunReport& expected) {
    for (const bool loss : {true, false})
        for (const auto& [name, values] : expected.ranks[0].kept)
            if (name.starts_with("loss") == loss)
                expect_close(got.ranks[rank].kept.at(name), values,
                             fmt::format("{} on rank {}", name, rank));
}

void test_shard_gradient(std::int64_t rows) {
    expect_kept(run({rows}, adapters::shard_gradient), 0, run_alone(0, rows));
}

void test_no_rows() {
    const RunReport report = run({0, 3}, adapters::shard_gradient);
    for (const auto& [name, values] : report.ranks[0].kept)
        expect_close(values, HostTensor(values.shape(), DType::f64),
                     name + " on the rank without rows");
    expect_kept(report, 1, run_alone(0, 3));
}

void test_batch_gradient(const Rows& rows) {
    const RunReport report = run(rows, adapters::batch_gradient);
    for (std::size_t rank = 0; rank < rows.size(); ++rank)
        expect_kept(report, static_cast<int>(rank), run_alone(0, sum(rows)));
}

void test_messages(const Rows& rows) {
    const RunReport report = run(rows, adapters::batch_gradient);
    const auto ranks = static_cast<std::int64_t>(rows.size());
    for (const RankReport& rank : report.ranks)
        expect_equal(rank.messages_sent(), 2 * (ranks - 1), "messages of one all-reduce");
}

/// Takes three steps, with your function.
RunReport train(const Rows& rows) {
    return sim::make_cluster(static_cast<int>(rows.size()))->run([&](Rank& rank) {
        const auto network = make_network(rank.device());
        fill_gradients(rank, *network);
        const Shard shard = shard_of(rank, rows);
        rank.keep("losses", adapters::train(rank, *network, shard, 4, kSteps, kRate));
        for (const Parameter* parameter : network->parameters())
            rank.keep(parameter->name(), parameter->value);
    });
}

/// Takes three steps with all rows at once, on one device.
RunReport train_alone(std::int64_t count) {
    return sim::make_cluster(1)->run([=](Rank& rank) {
        Device& device = rank.device();
        const auto network = make_network(device);
        const Shard rows = make_shard(device, 0, count, count);
        const Tensor losses = device.zeros({kSteps}, DType::f64);
        for (int step = 0; step < kSteps; ++step) {
            zero_gradients(*network);
            Saved saved;
            const Tensor logits = network->forward(rows.x, saved);
            const LossResult loss = cross_entropy_loss(device, logits, rows.targets);
            network->backward(loss.gradient, saved);
            device.copy(losses.slice(step, 1), loss.loss);
            for (const Parameter* parameter : network->parameters())
                device.add(parameter->value, parameter->gradient, -kRate);
        }
        rank.keep("losses", losses);
        for (const Parameter* parameter : network->parameters())
            rank.keep(parameter->name(), parameter->value);
    });
}

void test_training(const Rows& rows) {
    const RunReport report = train(rows);
    for (std::size_t rank = 0; rank < rows.size(); ++rank)
        expect_kept(report, static_cast<int>(rank), train_alone(sum(rows)));
}

int main() {
    PublicTest test;
    test.check("a2.1 shard_gradient, 8 rows, 4 at once", [] { test_shard_gradient(8); });
    test.check("a2.1 shard_gradient, 10 rows, 4 at once",
               [] { test_shard_gradient(10); });
    test.check("a2.1 shard_gradient, a rank without rows", test_no_rows);
    test.check("a2.2 batch_gradient, 2 ranks, 6 rows each", [] {
        test_batch_gradient({6, 6});
    });
    test.check("a2.2 batch_gradient, 3 ranks with 5, 0, 8 rows", [] {
        test_batch_gradient({5, 0, 8});
    });
    test.check("a2.2 batch_gradient is one all-reduce", [] { test_messages({5, 0, 8}); });
    test.check("a2.3 train, 1 rank", [] { test_training({9}); });
    test.check("a2.3 train, 3 ranks with 2, 9, 1 rows", [] { test_training({2, 9, 1}); });
    return test.finish();
}
