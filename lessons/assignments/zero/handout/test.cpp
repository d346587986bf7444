// These tests are public. The grader tests more: other networks, other numbers of ranks,
// and what your program costs.

#include <algorithm>

#include <fmt/format.h>

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/course/public_test.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "src/nn/sequential.hpp"

using namespace lockstep;

constexpr int kSteps = 3;
const Training kTraining{kSteps,
                         {.learning_rate = 0.05, .epsilon = 0.01, .weight_decay = 0.1}};

/// The number of columns of each layer's input, and of the last layer's output.
constexpr std::int64_t kColumns[] = {3, 5, 5, 4};
constexpr int kLayers = 3;

/// For each rank, the rows of each of its micro-batches.
using Rows = std::vector<std::vector<std::int64_t>>;
using Stage = void (*)(Rank&, const Layers&, const MicroBatches&, const Training&);

std::int64_t sum(const Rows& rows) {
    std::int64_t all = 0;
    for (const auto& own : rows)
        for (const std::int64_t count : own)
            all += count;
    return all;
}

std::int64_t elements(int layer) {
    return (kColumns[layer] + 1) * kColumns[layer + 1];
}

/// Returns the number of elements of a rank's range of the layer.
std::int64_t range(int layer, std::int64_t ranks) {
    return (elements(layer) + ranks - 1) / ranks;
}

/// Returns a layer's values, with zeros at the end.
HostTensor values_of(int layer, std::int64_t ranks) {
    const RandomStream stream(1, fmt::format("layer{}", layer));
    HostTensor values({ranks * range(layer, ranks)}, DType::f64);
    for (std::int64_t i = 0; i < elements(layer); ++i)
        values.set(i, stream.normal(static_cast<std::uint64_t>(i)) / 2);
    return values;
}

struct Network {
    std::vector<std::unique_ptr<Sequential>> modules{};
    Layers layers{};
};

/// Makes the network, with whole layers or with only this rank's ranges.
Network make_network(Rank& rank, bool whole) {
    Device& device = rank.device();
    Network network;
    for (int i = 0; i < kLayers; ++i) {
        const ParameterInit init{device, DType::f64, 0, fmt::format("layer{}", i), false};
        auto& module = *network.modules.emplace_back(std::make_unique<Sequential>());
        module.add<Linear>(init, kColumns[i], kColumns[i + 1]);
        if (i + 1 < kLayers) module.add<Tanh>(device);
        const MemoryScope scope(device, MemoryCategory::parameters);
        const HostTensor all = values_of(i, rank.size());
        const std::int64_t own = range(i, rank.size());
        const Tensor values =
            device.upload(whole ? all : all.rows(rank.index() * own, own));
        std::int64_t begin = 0;
        for (Parameter* parameter : module.parameters()) {
            const Shape& shape = parameter->shape();
            if (whole)
                parameter->value = values.slice(begin, shape.elements()).reshaped(shape);
            begin += shape.elements();
        }
        network.layers.push_back({&module, values});
    }
    return network;
}

/// Returns rows [begin, begin + count) of a batch.
MicroBatch make_rows(Device& device, std::int64_t begin, std::int64_t count,
                     double weight) {
    const RandomStream stream(1, "x");
    HostTensor x({count, kColumns[0]}, DType::f64);
    HostTensor targets({count}, DType::i32);
    for (std::int64_t i = 0; i < x.elements(); ++i)
        x.set(i, stream.normal(static_cast<std::uint64_t>(begin * kColumns[0] + i)));
    for (std::int64_t row = 0; row < count; ++row)
        targets.set(row, static_cast<double>((begin + row) % kColumns[kLayers]));
    return {device.upload(x), device.upload(targets), weight};
}

MicroBatches batches_of(Rank& rank, const Rows& rows) {
    MicroBatches mine;
    std::int64_t begin = 0;
    for (int other = 0; other < rank.size(); ++other)
        for (const std::int64_t count : rows[static_cast<std::size_t>(other)]) {
            if (other == rank.index())
                mine.push_back(make_rows(
                    rank.device(), begin, count,
                    static_cast<double>(count) / static_cast<double>(sum(rows))));
            begin += count;
        }
    return mine;
}

/// Returns the values of all layers after your function.
RunReport run(const Rows& rows, Stage stage, bool whole) {
    return sim::make_cluster(static_cast<int>(rows.size()))->run([&](Rank& rank) {
        const Network network = make_network(rank, whole);
        stage(rank, network.layers, batches_of(rank, rows), kTraining);
        for (int i = 0; i < kLayers; ++i)
            rank.keep(fmt::format("layer{}", i),
                      network.layers[static_cast<std::size_t>(i)].values);
    });
}

/// Computes all rows at once, on one device.
RunReport run_alone(std::int64_t count) {
    return sim::make_cluster(1)->run([=](Rank& rank) {
        Device& device = rank.device();
        const Network network = make_network(rank, true);
        const MicroBatch rows = make_rows(device, 0, count, 1);
        std::vector<Parameter*> parameters;
        for (const auto& module : network.modules)
            for (Parameter* parameter : module->parameters()) {
                parameter->gradient = device.empty(parameter->shape(), DType::f64);
                parameters.push_back(parameter);
            }
        AdamW optimizer(parameters, kTraining.adamw);
        for (int step = 0; step < kSteps; ++step) {
            std::vector<Saved> saved(kLayers);
            Tensor x = rows.x;
            for (std::size_t i = 0; i < kLayers; ++i) {
                zero_gradients(*network.modules[i]);
                x = network.modules[i]->forward(x, saved[i]);
            }
            Tensor dy = cross_entropy_loss(device, x, rows.targets).gradient;
            for (std::size_t i = kLayers; i-- > 0;)
                dy = network.modules[i]->backward(dy, saved[i]);
            optimizer.step();
        }
        for (int i = 0; i < kLayers; ++i)
            rank.keep(fmt::format("layer{}", i),
                      network.layers[static_cast<std::size_t>(i)].values);
    });
}

void test_values(const Rows& rows, Stage stage, bool whole) {
    const RunReport got = run(rows, stage, whole);
    const RunReport expected = run_alone(sum(rows));
    const auto ranks = static_cast<std::int64_t>(rows.size());
    for (int i = 0; i < kLayers; ++i)
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
            const std::string name = fmt::format("layer{}", i);
            const HostTensor& left =
                got.ranks[static_cast<std::size_t>(rank)].kept.at(name);
            // The last ranges may hold fewer values.
            const std::int64_t first = whole ? 0 : rank * range(i, ranks);
            const std::int64_t count =
                std::min(left.elements(), elements(i) - std::min(first, elements(i)));
            expect_close(
                left.rows(0, count),
                expected.ranks[0].kept.at(name).rows(std::min(first, elements(i)), count),
                fmt::format("{} on rank {}", name, rank));
        }
}

void test_bytes(const Rows& rows, Stage stage, bool whole, std::int64_t gathers,
                std::int64_t reductions, std::int64_t kept) {
    const RunReport report = run(rows, stage, whole);
    const auto ranks = static_cast<std::int64_t>(rows.size());
    std::int64_t all = 0;
    for (int i = 0; i < kLayers; ++i)
        all += range(i, ranks);
    const std::int64_t last = range(kLayers - 1, ranks);
    for (const RankReport& rank : report.ranks)
        expect_equal(rank.bytes_sent(),
                     std::int64_t{kSteps} * 8 * (ranks - 1) *
                         ((gathers + reductions) * all - kept * last),
                     "bytes");
}

int main() {
    const Rows one{{6}};
    const Rows alike{{2, 1}, {1, 3}, {2, 2}};
    const Rows unlike{{2, 1, 3}, {}, {4}};
    PublicTest test;
    test.check("a8.1 stage 1, 1 rank",
               [&] { test_values(one, adapters::stage_1, true); });
    test.check("a8.1 stage 1, 3 ranks, one without micro-batches",
               [&] { test_values(unlike, adapters::stage_1, true); });
    test.check("a8.1 bytes of stage 1",
               [&] { test_bytes(unlike, adapters::stage_1, true, 1, 1, 0); });
    test.check("a8.2 stage 2, 1 rank",
               [&] { test_values(one, adapters::stage_2, true); });
    test.check("a8.2 stage 2, 3 ranks, 2 micro-batches each",
               [&] { test_values(alike, adapters::stage_2, true); });
    test.check("a8.2 bytes of stage 2",
               [&] { test_bytes(alike, adapters::stage_2, true, 1, 2, 0); });
    test.check("a8.3 stage 3, 1 rank",
               [&] { test_values(one, adapters::stage_3, false); });
    test.check("a8.3 stage 3, 3 ranks, 2 micro-batches each",
               [&] { test_values(alike, adapters::stage_3, false); });
    test.check("a8.3 bytes of stage 3",
               [&] { test_bytes(alike, adapters::stage_3, false, 4, 2, 2); });
    return test.finish();
}
