#include "data.hpp"

#include <algorithm>

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

/// Returns `count` tensors of one shape, with the values of "name 0", "name 1" …
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

std::vector<std::map<std::string, HostTensor>> on_each(
    int ranks, const std::map<std::string, HostTensor>& expected) {
    return {static_cast<std::size_t>(ranks), expected};
}

/// Returns a rank's documents in a step. In the second of four steps one rank has none.
std::int64_t documents(int step, int rank, int ranks) {
    const bool none = step % 4 == 1 && rank == std::min(2, ranks - 1);
    return none ? 0 : 1 + (3 * step + 2 * rank + step * rank) % 4;
}

ProgramCase filter_case(int ranks, int steps) {
    const HostTensor weight = normal("weight", {6, 3}), bias = normal("bias", {3});
    std::vector<HostTensors> x, y;
    for (int step = 0; step < steps; ++step) {
        x.emplace_back(), y.emplace_back();
        for (int rank = 0; rank < ranks; ++rank) {
            const std::int64_t count = documents(step, rank, ranks);
            x.back().push_back(normal(fmt::format("x {} {}", step, rank), {count, 6}));
            y.back().push_back(normal(fmt::format("y {} {}", step, rank), {count, 3}));
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
    return {"filter", program, on_each(ranks, {{"weight", left[0]}, {"bias", left[1]}})};
}

ProgramCase pipeline_case(int ranks, int micro_batches) {
    const HostTensors weights = normals("weight", ranks, {16, 16});
    const HostTensors x = normals("x", micro_batches, {32, 16});
    const HostTensors y = normals("y", micro_batches, {32, 16});
    const Program program = [=](Rank& rank) {
        const Tensor weight = rank.device().upload(weights[index_of(rank)]);
        const Tensor gradient = rank.device().zeros({16, 16}, DType::f64);
        const bool first = rank.index() == 0, last = rank.index() == ranks - 1;
        adapters::pipeline_gradients(rank, weight, gradient, micro_batches, 32,
                                     upload(rank, first ? x : HostTensors()),
                                     upload(rank, last ? y : HostTensors()));
        rank.keep("gradient", gradient);
    };
    ProgramCase made{"pipeline", program, {}};
    for (const HostTensor& gradient : one_device::pipeline_gradients(weights, x, y))
        made.expected.push_back({{"gradient", gradient}});
    return made;
}

ProgramCase prefetch_case(int ranks, int layers) {
    constexpr std::int64_t kPart = 16;
    const std::int64_t width = kPart * ranks;
    const HostTensors weights = normals("weight", layers, {width, width});
    const HostTensors x = normals("x", ranks, {128, width});
    const Program program = [=](Rank& rank) {
        HostTensors shards;
        for (const HostTensor& weight : weights)
            shards.push_back(weight.rows(kPart * rank.index(), kPart));
        rank.keep("y",
                  adapters::prefetching_forward(rank, upload(rank, shards),
                                                rank.device().upload(x[index_of(rank)])));
    };
    ProgramCase made{"prefetch", program, {}};
    for (const HostTensor& rows : x)
        made.expected.push_back({{"y", one_device::forward(weights, rows)}});
    return made;
}

ProgramCase evaluate_case(int ranks, int rows) {
    constexpr std::int64_t kClasses = 5;
    const HostTensor weight = normal("weight", {6, kClasses}), x = normal("x", {rows, 6});
    HostTensor labels({rows}, DType::i32);
    for (std::int64_t row = 0; row < rows; ++row)
        labels.set(row, static_cast<double>(row * row % kClasses));
    const Program program = [=](Rank& rank) {
        const Chunk own = chunk(rows, rank.size(), rank.index());
        const Tensors given = upload(rank, {weight, x.rows(own.begin, own.count),
                                            labels.rows(own.begin, own.count)});
        rank.keep("loss", adapters::evaluate(rank, given[0], rows, given[1], given[2]));
    };
    const HostTensor loss = one_device::evaluate(weight, x, labels);
    return {"evaluate", program, on_each(ranks, {{"loss", loss}})};
}

ProgramCase clip_case(int ranks, int columns) {
    constexpr double kLargest = 1;
    const HostTensors sharded = normals("sharded", ranks, {4, columns});
    const HostTensor replicated = normal("replicated", {columns});
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

ProgramCase accumulate_case(int ranks, int micro_batches) {
    const HostTensors weights{normal("W1", {16, 32}), normal("W2", {32, 8})};
    const HostTensors x = normals("x", ranks * micro_batches, {24, 16});
    const HostTensors y = normals("y", ranks * micro_batches, {24, 8});
    const Program program = [=](Rank& rank) {
        const auto own = [&](const HostTensors& all) {
            const auto begin = all.begin() + micro_batches * rank.index();
            return upload(rank, {begin, begin + micro_batches});
        };
        const Tensors gradients{rank.device().zeros({16, 32}, DType::f64),
                                rank.device().zeros({32, 8}, DType::f64)};
        adapters::accumulate_gradients(rank, upload(rank, weights), gradients, own(x),
                                       own(y));
        rank.keep("W1's", gradients[0]);
        rank.keep("W2's", gradients[1]);
    };
    const HostTensors left = one_device::accumulate_gradients(weights, x, y);
    return {"accumulate", program,
            on_each(ranks, {{"W1's", left[0]}, {"W2's", left[1]}})};
}

}  // namespace

const std::vector<ProgramData>& program_data() {
    static const std::vector<ProgramData> data{
        {"filter", "steps", 4, filter_case},
        {"pipeline", "micro-batches", 2, pipeline_case},
        {"prefetch", "layers", 4, prefetch_case},
        {"evaluate", "rows", 22, evaluate_case},
        {"clip", "columns", 6, clip_case},
        {"accumulate", "micro-batches", 3, accumulate_case}};
    return data;
}
