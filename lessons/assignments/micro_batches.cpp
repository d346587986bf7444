#include "lessons/assignments/micro_batches.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/suspects.hpp"

namespace lockstep::lessons {

namespace {

std::int64_t sum(const std::vector<std::int64_t>& rows) {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

/// Returns the rows of micro-batches as text: "3+1", "12 x 8" or "none".
std::string text_of(const std::vector<std::int64_t>& rows) {
    if (rows.empty()) return "none";
    if (rows.size() > 2 &&
        std::ranges::adjacent_find(rows, std::not_equal_to<>()) == rows.end())
        return fmt::format("{} x {}", rows.size(), rows.front());
    return fmt::format("{}", fmt::join(rows, "+"));
}

/// Adds drawn rows to a rank's inputs: x (rows, features) and targets (rows), i32.
void give_rows(const Judge& judge, const std::string& name, std::int64_t rows,
               const MicroBatchCase& one, RankTask& given) {
    HostTensor targets({rows}, DType::i32);
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::string target = fmt::format("{}, row {}", name, row);
        targets.set(row, static_cast<double>(judge.draw(target, 0, one.classes - 1)));
    }
    given.tensors.emplace("x", TaskTensor{judge.normal(name, {rows, one.features})});
    given.tensors.emplace("targets", TaskTensor{targets});
}

}  // namespace

std::string MicroBatchCase::name() const {
    std::vector<std::string> each;
    for (const auto& own : rows)
        each.push_back(text_of(own));
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
    // One micro-batch has more rows than any other.
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

TaskRun run_on_network(const Judge& judge, const MicroBatchCase& one, RankTask given) {
    given.numbers["layers"] = one.layers;
    for (const auto& [name, values] : draw_network(judge, one))
        given.tensors.emplace(name, TaskTensor{values, MemoryCategory::parameters});
    return run_on_rows(judge, one, {one.rows.size(), given});
}

void judge_parameters(Judge& judge, const TaskRun& run) {
    const bool trains = run.ranks.front().task == "train";
    AskedValues asked;
    for (const auto& [name, tensor] : run.ranks.front().tensors)
        if (name.starts_with("layer")) asked.tensors.push_back(name);
    asked.called = [=](const std::string& name) {
        return trains ? name : "the gradient of " + name;
    };
    if (!trains) asked.cause = suspected_sums(judge, run);
    asked.same_on_ranks = trains;
    judge.as_right(run, asked);
}

void judge_own_rows(Judge& judge, const TaskRun& run) {
    judge.figure_as_right(
        run, fmt::format("{}: {}: computed by all ranks", judge.exercise(), run.name),
        kFlops.unit,
        [](const RunReport& report) {
            std::int64_t flops = 0;
            for (const RankReport& rank : report.ranks)
                flops += rank.flops;
            return flops;
        },
        {50, 110}, "each rank computes its own rows, and no row is computed twice");
}

TaskRun run_on_rows(const Judge& judge, const MicroBatchCase& one,
                    std::vector<RankTask> given) {
    std::int64_t batch_rows = 0;
    for (const auto& own : one.rows)
        batch_rows += sum(own);
    for (std::size_t rank = 0; rank < given.size(); ++rank) {
        const std::vector<std::int64_t>& rows = one.rows[rank];
        RankTask& own = given[rank];
        give_rows(judge, fmt::format("{}, rank {}", one.name(), rank), sum(rows), one,
                  own);
        own.numbers["batch rows"] = batch_rows;
        own.numbers["micro-batches"] = static_cast<std::int64_t>(rows.size());
        for (std::size_t i = 0; i < rows.size(); ++i)
            own.numbers[fmt::format("rows {}", i)] = rows[i];
    }
    return {one.name(), std::move(given)};
}

}  // namespace lockstep::lessons
