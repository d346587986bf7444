// These tests are public. The grader tests more: other networks, other limits, other
// numbers of ranks, and what your program costs.

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
constexpr std::int64_t kHidden = 5;
constexpr int kSteps = 3;
constexpr double kRate = 0.5;

/// For each rank, the rows of each of its micro-batches.
using Rows = std::vector<std::vector<std::int64_t>>;

std::int64_t sum(const Rows& rows) {
    std::int64_t all = 0;
    for (const auto& own : rows)
        for (const std::int64_t count : own)
            all += count;
    return all;
}

/// Makes a network whose parameters are the same on every rank, with gradients from an
/// earlier use. Bytes of the gradients, in f64: 120, 40, 160, 32.
std::unique_ptr<Sequential> make_network(Device& device) {
    auto network = std::make_unique<Sequential>();
    network->add<Linear>(ParameterInit{device, DType::f64, 1, "hidden"}, kFeatures,
                         kHidden);
    network->add<Tanh>(device);
    network->add<Linear>(ParameterInit{device, DType::f64, 1, "output"}, kHidden,
                         kClasses);
    network->set_input_gradient(false);
    for (const Parameter* parameter : network->parameters())
        device.fill(parameter->gradient, 3);
    return network;
}

/// Returns rows [begin, begin + count) of a batch.
MicroBatch make_rows(Device& device, std::int64_t begin, std::int64_t count,
                     double weight) {
    const RandomStream stream(1, "x");
    HostTensor x({count, kFeatures}, DType::f64);
    HostTensor targets({count}, DType::i32);
    for (std::int64_t i = 0; i < x.elements(); ++i)
        x.set(i, stream.normal(static_cast<std::uint64_t>(begin * kFeatures + i)));
    for (std::int64_t row = 0; row < count; ++row)
        targets.set(row, static_cast<double>((begin + row) % kClasses));
    return {device.upload(x), device.upload(targets), weight};
}

MicroBatches batches_of(Rank& rank, const Rows& rows) {
    MicroBatches mine;
    std::int64_t begin = 0;
    for (int other = 0; other < rank.size(); ++other)
        for (const std::int64_t count : rows[other]) {
            if (other == rank.index())
                mine.push_back(make_rows(
                    rank.device(), begin, count,
                    static_cast<double>(count) / static_cast<double>(sum(rows))));
            begin += count;
        }
    return mine;
}

void test_buckets(const BucketLimits& limits, const std::vector<std::int64_t>& bytes) {
    sim::make_cluster(2)->run([&](Rank& rank) {
        const auto network = make_network(rank.device());
        const auto buckets = adapters::make_buckets(rank, *network, limits);
        expect_equal(static_cast<std::int64_t>(buckets.size()),
                     static_cast<std::int64_t>(bytes.size()), "number of buckets");
        double number = 0;
        for (const Parameter* parameter : network->parameters())
            rank.device().fill(parameter->gradient, ++number);
        double last = number + 1;
        for (std::size_t i = 0; i < buckets.size(); ++i) {
            expect_equal(buckets[i].bytes(), bytes[i],
                         fmt::format("bytes of bucket {}", i));
            const HostTensor values = rank.device().peek(buckets[i]);
            for (std::int64_t e = 0; e < values.elements(); ++e) {
                expect_equal(static_cast<std::int64_t>(values.at(e) <= last), 1,
                             "later parameters come first");
                last = values.at(e);
            }
        }
        expect_equal(static_cast<std::int64_t>(last), 1, "the last gradient");
    });
}

/// Returns your function's losses, and its gradients or parameters.
RunReport run(const Rows& rows, const BucketLimits& limits, bool trains) {
    return sim::make_cluster(static_cast<int>(rows.size()))->run([&](Rank& rank) {
        const auto network = make_network(rank.device());
        const MicroBatches mine = batches_of(rank, rows);
        const Tensor loss =
            trains ? adapters::train(rank, *network, mine, limits, kSteps, kRate)
                   : adapters::batch_gradient(rank, *network, mine, limits);
        rank.keep("loss", loss);
        for (const Parameter* parameter : network->parameters())
            rank.keep(parameter->name(), trains ? parameter->value : parameter->gradient);
    });
}

/// Computes all rows at once, on one device.
RunReport run_alone(std::int64_t count, bool trains) {
    return sim::make_cluster(1)->run([=](Rank& rank) {
        Device& device = rank.device();
        const auto network = make_network(device);
        const MicroBatch rows = make_rows(device, 0, count, 1);
        const int steps = trains ? kSteps : 1;
        const Tensor losses = device.zeros({steps}, DType::f64);
        for (int step = 0; step < steps; ++step) {
            zero_gradients(*network);
            Saved saved;
            const Tensor logits = network->forward(rows.x, saved);
            const LossResult loss = cross_entropy_loss(device, logits, rows.targets);
            network->backward(loss.gradient, saved);
            device.copy(losses.slice(step, 1), loss.loss);
            for (const Parameter* parameter : network->parameters())
                if (trains) device.add(parameter->value, parameter->gradient, -kRate);
        }
        rank.keep("loss", losses);
        for (const Parameter* parameter : network->parameters())
            rank.keep(parameter->name(), trains ? parameter->value : parameter->gradient);
    });
}

void test_results(const Rows& rows, const BucketLimits& limits, bool trains) {
    const RunReport got = run(rows, limits, trains);
    const RunReport expected = run_alone(sum(rows), trains);
    const auto& one = expected.ranks[0].kept;
    HostTensor loss(one.at("loss").shape(), DType::f64);
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        const auto& kept = got.ranks[rank].kept;
        for (const auto& [name, values] : one)
            if (name != "loss")
                expect_close(kept.at(name), values,
                             fmt::format("{} on rank {}", name, rank));
        for (std::int64_t i = 0; i < loss.elements(); ++i)
            loss.set(i, loss.at(i) + kept.at("loss").at(i));
    }
    expect_close(loss, one.at("loss"), "the sum of the ranks' parts of the loss");
}

void test_messages(const Rows& rows, const BucketLimits& limits, std::int64_t buckets) {
    const RunReport report = run(rows, limits, false);
    const auto ranks = static_cast<std::int64_t>(rows.size());
    for (const RankReport& rank : report.ranks)
        expect_equal(rank.messages_sent(), buckets * 2 * (ranks - 1),
                     "messages of one all-reduce per bucket");
}

int main() {
    constexpr std::int64_t kHuge = 1 << 30;
    PublicTest test;
    test.check("a7.1 one bucket for each parameter", [] {
        test_buckets({0, 0}, {32, 160, 40, 120});
    });
    test.check("a7.1 a small first bucket", [] {
        test_buckets({32, 200}, {32, 200, 120});
    });
    test.check("a7.1 one bucket", [] { test_buckets({kHuge, kHuge}, {352}); });
    test.check("a7.2 batch_gradient, 1 rank, 1 micro-batch", [] {
        test_results({{6}}, {0, 0}, false);
    });
    test.check("a7.2 batch_gradient, 2 ranks, 3 micro-batches each", [] {
        test_results({{2, 1, 3}, {1, 1, 2}}, {32, 200}, false);
    });
    test.check("a7.2 batch_gradient, a rank without micro-batches", [] {
        test_results({{2, 4}, {}, {3}}, {kHuge, kHuge}, false);
    });
    test.check("a7.2 batch_gradient: one all-reduce per bucket", [] {
        test_messages({{2, 1}, {3, 2}, {1, 1}}, {32, 200}, 3);
    });
    test.check("a7.3 train, 3 ranks", [] {
        test_results({{2}, {3, 1}, {1, 1, 1}}, {32, 200}, true);
    });
    return test.finish();
}
