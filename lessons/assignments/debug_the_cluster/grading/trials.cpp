#include "lessons/assignments/debug_the_cluster/grading/trials.hpp"

#include <cmath>
#include <string>

#include <fmt/format.h>

#include "lessons/assignments/suspects.hpp"
#include "src/comm/chunks.hpp"

namespace lockstep::lessons {

namespace {

std::string counted(int count, const char* one, const char* many) {
    return fmt::format("{} {}", count, count == 1 ? one : many);
}

/// Builds a run of a program, with drawn values. The names of a rank's inputs begin with
/// the program's name.
class Draft {
  public:
    Draft(const Judge& judge, const std::string& program, int ranks,
          const std::string& size, bool may_download = false)
        : run{fmt::format("{}, {}", counted(ranks, "rank", "ranks"), size), {}},
          judge_(judge),
          program_(program + " ") {
        run.ranks.resize(static_cast<std::size_t>(ranks),
                         {program, {}, {}, may_download});
    }

    std::int64_t draw(const std::string& name, std::int64_t low,
                      std::int64_t high) const {
        return judge_.draw(program_ + run.name + ": " + name, low, high);
    }

    void give(int rank, const std::string& name, const HostTensor& values) {
        run.ranks[rank].tensors[program_ + name] = {values};
    }
    void give(int rank, const std::string& name, const Shape& shape) {
        give(rank, name, normal(fmt::format("{} of rank {}", name, rank), shape));
    }
    /// The next two functions give the same values to all ranks.
    void give_all(const std::string& name, const Shape& shape) {
        const HostTensor values = normal(name, shape);
        for (int rank = 0; rank < std::ssize(run.ranks); ++rank)
            give(rank, name, values);
    }
    void give_all_number(const std::string& name, std::int64_t value) {
        for (RankTask& rank : run.ranks)
            rank.numbers[program_ + name] = value;
    }

    TaskRun run;

  private:
    HostTensor normal(const std::string& name, const Shape& shape) const {
        return weighted_sum({judge_.normal(program_ + run.name + ": " + name, shape)},
                            {0.3});
    }

    const Judge& judge_;
    std::string program_;
};

/// Returns the sum of the squares of the gradient that is to be clipped.
double squares(const TaskRun& run) {
    double sum = 0;
    for (const RankTask& rank : run.ranks)
        for (const auto& [name, given] : rank.tensors)
            if (name.starts_with("clip sharded") || &rank == &run.ranks.front())
                for (const double value : given.values.values<double>())
                    sum += value * value;
    return sum;
}

}  // namespace

/// In each step one rank has no document, and in the last step no rank has one.
TaskRun filter_run(const Judge& judge, int ranks, int steps) {
    Draft draft(judge, "filter", ranks, counted(steps, "step", "steps"), true);
    const std::int64_t in = draft.draw("in", 20, 24), out = draft.draw("out", 10, 14);
    draft.give_all("weight", {in, out});
    draft.give_all("bias", {out});
    for (int step = 0; step < steps; ++step) {
        const std::int64_t empty_rank =
            draft.draw(fmt::format("without {}", step), 0, ranks - 1);
        for (int rank = 0; rank < ranks; ++rank) {
            const bool none = step + 1 == steps || rank == empty_rank;
            const std::int64_t documents =
                none ? 0 : draft.draw(fmt::format("documents {} {}", step, rank), 1, 4);
            draft.give(rank, fmt::format("inputs {}", step), {documents, in});
            draft.give(rank, fmt::format("targets {}", step), {documents, out});
        }
    }
    return draft.run;
}

TaskRun pipeline_run(const Judge& judge, int ranks, int micro_batches) {
    Draft draft(judge, "pipeline", ranks,
                counted(micro_batches, "micro-batch", "micro-batches"));
    const std::int64_t rows = draft.draw("rows", 44, 52);
    const std::int64_t width = draft.draw("width", 22, 26);
    for (int rank = 0; rank < ranks; ++rank)
        draft.give(rank, "weight", {width, width});
    draft.give_all("gradient", {width, width});
    draft.give_all_number("micro-batches", micro_batches);
    draft.give_all_number("rows", rows);
    for (int i = 0; i < micro_batches; ++i) {
        draft.give(0, fmt::format("inputs {}", i), {rows, width});
        draft.give(ranks - 1, fmt::format("targets {}", i), {rows, width});
    }
    return draft.run;
}

TaskRun prefetch_run(const Judge& judge, int ranks, int layers) {
    Draft draft(judge, "prefetch", ranks, counted(layers, "layer", "layers"));
    const std::int64_t rows = draft.draw("rows", 120, 136);
    const std::int64_t part = (draft.draw("least width", 58, 64) + ranks - 1) / ranks;
    for (int rank = 0; rank < ranks; ++rank) {
        for (int layer = 0; layer < layers; ++layer)
            draft.give(rank, fmt::format("shards {}", layer), {part, part * ranks});
        draft.give(rank, "x", {rows, part * ranks});
    }
    return draft.run;
}

TaskRun evaluate_run(const Judge& judge, int ranks, int rows) {
    constexpr std::int64_t kIn = 6, kClasses = 5;
    Draft draft(judge, "evaluate", ranks, counted(rows, "row", "rows"), true);
    draft.give_all("weight", {kIn, kClasses});
    draft.give_all_number("rows", rows);
    for (int rank = 0; rank < ranks; ++rank) {
        const Chunk own = chunk(rows, ranks, rank);
        draft.give(rank, "x", {own.count, kIn});
        HostTensor labels({own.count}, DType::i32);
        for (std::int64_t row = 0; row < own.count; ++row)
            labels.set(row,
                       static_cast<double>(draft.draw(
                           fmt::format("label {}", own.begin + row), 0, kClasses - 1)));
        draft.give(rank, "labels", labels);
    }
    return draft.run;
}

TaskRun clip_run(const Judge& judge, int ranks, int percent) {
    Draft draft(judge, "clip", ranks, fmt::format("norm at {} %", percent), true);
    const std::int64_t rows = draft.draw("rows", 2, 4);
    const std::int64_t columns = draft.draw("columns", 3, 5);
    draft.give_all("replicated 0", {draft.draw("of norm", 10, 14)});
    draft.give_all("replicated 1", {2, columns});
    for (int rank = 0; rank < ranks; ++rank)
        for (const char* name : {"sharded 0", "sharded 1"})
            draft.give(rank, name, {rows, columns});
    const double norm = std::sqrt(squares(draft.run));
    draft.give_all_number("largest in thousandths",
                          static_cast<std::int64_t>(std::ceil(norm * 1e5 / percent)));
    return draft.run;
}

TaskRun accumulate_run(const Judge& judge, int ranks, int micro_batches) {
    Draft draft(judge, "accumulate", ranks,
                counted(micro_batches, "micro-batch", "micro-batches"));
    const std::int64_t rows = draft.draw("rows", 14, 18), in = draft.draw("in", 9, 11);
    const std::int64_t hidden = draft.draw("hidden", 22, 26),
                       out = draft.draw("out", 5, 7);
    for (const std::string name : {"weights", "gradients"}) {
        draft.give_all(name + " 0", {in, hidden});
        draft.give_all(name + " 1", {hidden, out});
    }
    for (int rank = 0; rank < ranks; ++rank)
        for (int i = 0; i < micro_batches; ++i) {
            draft.give(rank, fmt::format("inputs {}", i), {rows, in});
            draft.give(rank, fmt::format("targets {}", i), {rows, out});
        }
    return draft.run;
}

}  // namespace lockstep::lessons
