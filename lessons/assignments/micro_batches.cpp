#include "lessons/assignments/micro_batches.hpp"

#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/classifier.hpp"

namespace lockstep::lessons {

namespace {

std::int64_t sum(const std::vector<std::int64_t>& rows) {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

}  // namespace

std::string MicroBatchCase::name() const {
    std::vector<std::string> each;
    for (const auto& own : rows)
        each.push_back(own.empty() ? "none" : fmt::format("{}", fmt::join(own, "+")));
    return fmt::format("{}, {} rank{}, micro-batches of {} rows", label, ranks(),
                       ranks() == 1 ? "" : "s", fmt::join(each, ", "));
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

std::map<std::string, HostTensor> draw_network(const Judge& judge,
                                               const MicroBatchCase& one) {
    const double scale = 1 / std::sqrt(static_cast<double>(one.width));
    std::map<std::string, HostTensor> network;
    for (const auto& [name, shape] : one.parameters()) {
        HostTensor values = judge.normal(one.name() + ", " + name, shape);
        for (std::int64_t i = 0; i < values.elements(); ++i)
            values.set(i, values.at(i) * scale);
        network.emplace(name, values);
    }
    return network;
}

TaskRun run_on_rows(const Judge& judge, const MicroBatchCase& one,
                    std::vector<RankTask> given) {
    std::int64_t batch_rows = 0;
    for (const auto& own : one.rows)
        batch_rows += sum(own);
    for (std::size_t rank = 0; rank < given.size(); ++rank) {
        const std::vector<std::int64_t>& rows = one.rows[rank];
        const ClassifiedRows shard =
            draw_rows(judge, fmt::format("{}, rank {}", one.name(), rank), sum(rows),
                      one.features, one.classes);
        RankTask& own = given[rank];
        own.tensors.emplace("x", TaskTensor{shard.x});
        own.tensors.emplace("targets", TaskTensor{shard.targets});
        own.numbers["batch rows"] = batch_rows;
        own.numbers["micro-batches"] = static_cast<std::int64_t>(rows.size());
        for (std::size_t i = 0; i < rows.size(); ++i)
            own.numbers[fmt::format("rows {}", i)] = rows[i];
    }
    return {one.name(), std::move(given)};
}

}  // namespace lockstep::lessons
