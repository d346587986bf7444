#include "lessons/assignments/data_parallel/grading/dealt_batch.hpp"

#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::lessons {

std::int64_t DealtBatch::rows() const {
    return std::accumulate(shards.begin(), shards.end(), std::int64_t{0});
}

std::string DealtBatch::name() const {
    return fmt::format("{} rank{} with {} rows, {} at once", ranks(),
                       ranks() == 1 ? "" : "s", fmt::join(shards, ", "), most_rows);
}

NetworkTensors initial_network(const Judge& judge, const DealtBatch& batch) {
    const std::map<std::string, Shape> shapes{
        {"hidden.weight", {batch.hidden, batch.features}},
        {"hidden.bias", {batch.hidden}},
        {"output.weight", {batch.classes, batch.hidden}},
        {"output.bias", {batch.classes}}};
    NetworkTensors network;
    for (const auto& [name, shape] : shapes)
        network.emplace(name, judge.normal(batch.name() + ", " + name, shape));
    return network;
}

std::vector<ClassifiedRows> dealt_rows(const Judge& judge, const DealtBatch& batch) {
    std::vector<ClassifiedRows> parts;
    for (const std::int64_t rows : batch.shards) {
        const std::string name = fmt::format("{}, rank {}", batch.name(), parts.size());
        HostTensor targets({rows}, DType::i32);
        for (std::int64_t row = 0; row < rows; ++row) {
            const std::string target = fmt::format("{}, row {}", name, row);
            targets.set(row,
                        static_cast<double>(judge.draw(target, 0, batch.classes - 1)));
        }
        parts.push_back({judge.normal(name, {rows, batch.features}), targets});
    }
    return parts;
}

const TaskResult& run_task(Judge& judge, const std::string& task,
                           const DealtBatch& batch) {
    RankTask same{task, {}, {}};
    for (const auto& [name, values] : initial_network(judge, batch))
        same.tensors.emplace(name, TaskTensor{values, MemoryCategory::parameters});
    same.numbers = {{"batch rows", batch.rows()},
                    {"most rows", batch.most_rows},
                    {"steps", kSteps},
                    {"learning rate in thousandths", kThousandths}};
    TaskRun asked{batch.name(), {}};
    for (const ClassifiedRows& part : dealt_rows(judge, batch)) {
        RankTask& own = asked.ranks.emplace_back(same);
        own.tensors.emplace("x", TaskTensor{part.x});
        own.tensors.emplace("targets", TaskTensor{part.targets});
    }
    return judge.run(asked);
}

}  // namespace lockstep::lessons
