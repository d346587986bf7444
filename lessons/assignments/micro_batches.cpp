#include "lessons/assignments/micro_batches.hpp"

#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::lessons {

namespace {

std::int64_t sum(const std::vector<std::int64_t>& rows) {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

}  // namespace

std::int64_t MicroBatchCase::batch_rows() const {
    std::int64_t all = 0;
    for (const auto& own : rows)
        all += sum(own);
    return all;
}

std::string MicroBatchCase::name() const {
    std::vector<std::string> each;
    for (const auto& own : rows)
        each.push_back(own.empty() ? "none" : fmt::format("{}", fmt::join(own, "+")));
    return fmt::format("{}, {} rank{}, micro-batches of {} rows", label, ranks(),
                       ranks() == 1 ? "" : "s", fmt::join(each, ", "));
}

std::string MicroBatchCase::on_rank(std::size_t rank, const std::string& what) const {
    return fmt::format("{}: rank {}: {}", name(), rank, what);
}

std::vector<std::string> MicroBatchCase::layer_names() const {
    std::vector<std::string> names;
    names.reserve(static_cast<std::size_t>(layers));
    for (int layer = 0; layer < layers; ++layer)
        names.push_back(fmt::format("layer{}", layer));
    return names;
}

std::vector<std::pair<std::string, Shape>> MicroBatchCase::parameters() const {
    std::vector<std::pair<std::string, Shape>> all;
    for (int layer = 0; layer < layers; ++layer) {
        const std::string name = fmt::format("layer{}", layer);
        all.emplace_back(name + ".weight", Shape{out(layer), in(layer)});
        all.emplace_back(name + ".bias", Shape{out(layer)});
    }
    return all;
}

MicroBatchCase draw_case(const Judge& judge, const std::string& label,
                         const std::vector<int>& micro_batches) {
    const auto draw = [&](const std::string& what, std::int64_t low, std::int64_t high) {
        return judge.draw(label + ", " + what, low, high);
    };
    MicroBatchCase drawn{label, {}};
    drawn.layers = static_cast<int>(draw("layers", 3, 5));
    drawn.width = draw("width", 6, 9);
    drawn.features = draw("features", 4, 6);
    drawn.classes = draw("classes", 3, 5);
    for (const int count : micro_batches) {
        auto& own = drawn.rows.emplace_back();
        for (int i = 0; i < count; ++i)
            own.push_back(
                draw(fmt::format("rows {} of rank {}", i, drawn.ranks()), 1, 4));
    }
    // One has more rows than any other.
    drawn.rows.back().back() += 4;
    return drawn;
}

NetworkTensors draw_network(const Judge& judge, const MicroBatchCase& one) {
    const double scale = 1 / std::sqrt(static_cast<double>(one.width));
    NetworkTensors network;
    for (const auto& [name, shape] : one.parameters()) {
        HostTensor values = judge.normal(one.name() + ", " + name, shape);
        for (std::int64_t i = 0; i < values.elements(); ++i)
            values.set(i, values.at(i) * scale);
        network.emplace(name, values);
    }
    return network;
}

std::vector<ClassifiedRows> draw_rows(const Judge& judge, const MicroBatchCase& one) {
    std::vector<ClassifiedRows> shards;
    for (const auto& own : one.rows)
        shards.push_back(draw_rows(judge,
                                   fmt::format("{}, rank {}", one.name(), shards.size()),
                                   sum(own), one.features, one.classes));
    return shards;
}

const TaskResult& run_on_rows(Judge& judge, const MicroBatchCase& one,
                              std::vector<RankTask> given) {
    const std::vector<ClassifiedRows> shards = draw_rows(judge, one);
    for (std::size_t rank = 0; rank < given.size(); ++rank) {
        RankTask& own = given[rank];
        own.tensors.emplace("x", TaskTensor{shards[rank].x});
        own.tensors.emplace("targets", TaskTensor{shards[rank].targets});
        own.numbers["batch rows"] = one.batch_rows();
        own.numbers["micro-batches"] = static_cast<std::int64_t>(one.rows[rank].size());
        for (std::size_t i = 0; i < one.rows[rank].size(); ++i)
            own.numbers[fmt::format("rows {}", i)] = one.rows[rank][i];
    }
    return judge.run({one.name(), std::move(given)});
}

}  // namespace lockstep::lessons
