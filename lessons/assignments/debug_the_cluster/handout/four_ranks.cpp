#include "four_ranks.hpp"

#include <fmt/format.h>

#include "adapters.hpp"
#include "one_device.hpp"
#include "src/comm/chunks.hpp"
#include "src/core/philox.hpp"

using namespace lockstep;
using adapters::Tensors;
using one_device::HostTensors;

namespace {

HostTensor normal(const std::string& name, const Shape& shape) {
    const RandomStream stream(1, name);
    HostTensor values(shape, DType::f64);
    for (std::int64_t i = 0; i < values.elements(); ++i)
        values.set(i, 0.3 * stream.normal(static_cast<std::uint64_t>(i)));
    return values;
}

/// `count` of one shape: "name 0", "name 1" …
HostTensors normals(const std::string& name, int count, const Shape& shape) {
    HostTensors values;
    for (int i = 0; i < count; ++i)
        values.push_back(normal(fmt::format("{} {}", name, i), shape));
    return values;
}

Tensors upload(Rank& rank, const HostTensors& values) {
    Tensors tensors;
    for (const HostTensor& value : values)
        tensors.push_back(rank.device().upload(value));
    return tensors;
}

std::size_t index_of(const Rank& rank) {
    return static_cast<std::size_t>(rank.index());
}

ProgramCase filter_case() {
    // Documents of each step, on each rank.
    const std::vector<std::vector<std::int64_t>> documents{
        {3, 2, 4, 1}, {2, 4, 0, 3}, {1, 3, 2, 2}, {4, 1, 3, 2}};
    const HostTensor weight = normal("weight", {6, 3}), bias = normal("bias", {3});
    std::vector<HostTensors> x, y;
    for (std::size_t step = 0; step < documents.size(); ++step) {
        x.emplace_back(), y.emplace_back();
        for (std::size_t r = 0; r < kRanks; ++r) {
            const std::int64_t count = documents[step][r];
            x[step].push_back(normal(fmt::format("x {} {}", step, r), {count, 6}));
            y[step].push_back(normal(fmt::format("y {} {}", step, r), {count, 3}));
        }
    }
    const Program program = [=](Rank& rank) {
        HostTensors inputs, targets;
        for (std::size_t step = 0; step < x.size(); ++step) {
            inputs.push_back(x[step][index_of(rank)]);
            targets.push_back(y[step][index_of(rank)]);
        }
        const Tensors trained = upload(rank, {weight, bias});
        adapters::train_filtered(rank, trained[0], trained[1], upload(rank, inputs),
                                 upload(rank, targets));
        rank.keep("weight", trained[0]);
        rank.keep("bias", trained[1]);
    };
    const HostTensors left = one_device::train_filtered(weight, bias, x, y);
    return {"filter", program, {kRanks, {{"weight", left[0]}, {"bias", left[1]}}}};
}

ProgramCase pipeline_case() {
    constexpr int kMicroBatches = 2;
    const HostTensors weights = normals("weight", kRanks, {16, 16});
    const HostTensors x = normals("x", kMicroBatches, {32, 16});
    const HostTensors y = normals("y", kMicroBatches, {32, 16});
    const Program program = [=](Rank& rank) {
        const Tensor weight = rank.device().upload(weights[index_of(rank)]);
        const Tensor gradient = rank.device().zeros({16, 16}, DType::f64);
        const bool first = rank.index() == 0, last = rank.index() == kRanks - 1;
        adapters::pipeline_gradients(rank, weight, gradient, kMicroBatches, 32,
                                     upload(rank, first ? x : HostTensors()),
                                     upload(rank, last ? y : HostTensors()));
        rank.keep("gradient", gradient);
    };
    ProgramCase made{"pipeline", program, {}};
    for (const HostTensor& gradient : one_device::pipeline_gradients(weights, x, y))
        made.expected.push_back({{"gradient", gradient}});
    return made;
}

ProgramCase prefetch_case() {
    constexpr std::int64_t kWidth = 64;
    const HostTensors weights = normals("weight", 4, {kWidth, kWidth});
    const HostTensors x = normals("x", kRanks, {128, kWidth});
    const Program program = [=](Rank& rank) {
        HostTensors shards;
        for (const HostTensor& weight : weights)
            shards.push_back(
                weight.rows(kWidth / kRanks * rank.index(), kWidth / kRanks));
        rank.keep("y",
                  adapters::prefetching_forward(rank, upload(rank, shards),
                                                rank.device().upload(x[index_of(rank)])));
    };
    ProgramCase made{"prefetch", program, {}};
    for (const HostTensor& rows : x)
        made.expected.push_back({{"y", one_device::forward(weights, rows)}});
    return made;
}

ProgramCase evaluate_case() {
    constexpr std::int64_t kRows = 22, kClasses = 5;
    const HostTensor weight = normal("weight", {6, kClasses}),
                     x = normal("x", {kRows, 6});
    HostTensor labels({kRows}, DType::i32);
    for (std::int64_t row = 0; row < kRows; ++row)
        labels.set(row, static_cast<double>(row * row % kClasses));
    const Program program = [=](Rank& rank) {
        const Chunk own = chunk(kRows, rank.size(), rank.index());
        const Tensors given = upload(rank, {weight, x.rows(own.begin, own.count),
                                            labels.rows(own.begin, own.count)});
        rank.keep("loss", adapters::evaluate(rank, given[0], kRows, given[1], given[2]));
    };
    const HostTensor loss = one_device::evaluate(weight, x, labels);
    return {"evaluate", program, {kRanks, {{"loss", loss}}}};
}

ProgramCase clip_case() {
    constexpr double kLargest = 1;
    const HostTensors sharded = normals("sharded", kRanks, {4, 6});
    const HostTensor replicated = normal("replicated", {6});
    const Program program = [=](Rank& rank) {
        const Tensors given = upload(rank, {sharded[index_of(rank)], replicated});
        adapters::clip_gradients(rank, {given[0]}, {given[1]}, kLargest);
        rank.keep("sharded", given[0]);
        rank.keep("replicated", given[1]);
    };
    HostTensors all = sharded;
    all.push_back(replicated);
    const double factor = one_device::clip_factor(all, kLargest);
    const auto scaled = [&](HostTensor gradient) {
        for (std::int64_t i = 0; i < gradient.elements(); ++i)
            gradient.set(i, factor * gradient.at(i));
        return gradient;
    };
    ProgramCase made{"clip", program, {}};
    for (const HostTensor& part : sharded)
        made.expected.push_back(
            {{"sharded", scaled(part)}, {"replicated", scaled(replicated)}});
    return made;
}

ProgramCase accumulate_case() {
    constexpr int kMicroBatches = 3;
    const HostTensors weights{normal("W1", {16, 32}), normal("W2", {32, 8})};
    const HostTensors x = normals("x", kRanks * kMicroBatches, {24, 16});
    const HostTensors y = normals("y", kRanks * kMicroBatches, {24, 8});
    const Program program = [=](Rank& rank) {
        const auto own = [&](const HostTensors& all) {
            const auto begin = all.begin() + kMicroBatches * rank.index();
            return upload(rank, {begin, begin + kMicroBatches});
        };
        const Tensors gradients{rank.device().zeros({16, 32}, DType::f64),
                                rank.device().zeros({32, 8}, DType::f64)};
        adapters::accumulate_gradients(rank, upload(rank, weights), gradients, own(x),
                                       own(y));
        rank.keep("W1's", gradients[0]);
        rank.keep("W2's", gradients[1]);
    };
    const HostTensors left = one_device::accumulate_gradients(weights, x, y);
    return {"accumulate", program, {kRanks, {{"W1's", left[0]}, {"W2's", left[1]}}}};
}

}  // namespace

std::vector<ProgramCase> program_cases() {
    return {filter_case(),   pipeline_case(), prefetch_case(),
            evaluate_case(), clip_case(),     accumulate_case()};
}
