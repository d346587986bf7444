#include "lessons/assignments/debug_the_cluster/grading/trials.hpp"

#include <cmath>
#include <string>

#include <fmt/format.h>

#include "src/comm/chunks.hpp"

namespace lockstep::lessons {

namespace {

using HostTensors = std::vector<HostTensor>;

/// Fills one run of a program in. The names of what a rank is given begin with the
/// program's.
class Draft {
  public:
    Draft(const Judge& judge, const std::string& program, int ranks,
          const std::string& size, bool may_download = false)
        : judge_(judge), program_(program) {
        run.name = fmt::format("{} rank{}{}", ranks, ranks == 1 ? "" : "s", size);
        run.ranks.resize(static_cast<std::size_t>(ranks),
                         {program, {}, {}, may_download});
    }

    int ranks() const { return static_cast<int>(run.ranks.size()); }
    std::int64_t draw(const std::string& name, std::int64_t low,
                      std::int64_t high) const {
        return judge_.draw(own_name(name), low, high);
    }
    HostTensor normal(const std::string& name, const Shape& shape) const {
        HostTensor values = judge_.normal(own_name(name), shape);
        for (std::int64_t i = 0; i < values.elements(); ++i)
            values.set(i, 0.3 * values.at(i));
        return values;
    }
    HostTensors normals(const std::string& name, int count, const Shape& shape) const {
        HostTensors values;
        for (int i = 0; i < count; ++i)
            values.push_back(normal(fmt::format("{} {}", name, i), shape));
        return values;
    }

    void give(int rank, const std::string& name, const HostTensor& values) {
        run.ranks[rank].tensors.emplace(full(name), TaskTensor{values});
    }
    /// As "name 0", "name 1" …
    void give(int rank, const std::string& name, const HostTensors& values) {
        for (std::size_t i = 0; i < values.size(); ++i)
            give(rank, fmt::format("{} {}", name, i), values[i]);
    }
    void give_number(int rank, const std::string& name, std::int64_t value) {
        run.ranks[rank].numbers.emplace(full(name), value);
    }
    /// The same on all ranks.
    template <typename Given>
    void give_all(const std::string& name, const Given& given) {
        for (int rank = 0; rank < ranks(); ++rank)
            give(rank, name, given);
    }
    void give_all_number(const std::string& name, std::int64_t value) {
        for (int rank = 0; rank < ranks(); ++rank)
            give_number(rank, name, value);
    }

    TaskRun run;

  private:
    std::string full(const std::string& name) const { return program_ + ": " + name; }
    std::string own_name(const std::string& name) const {
        return fmt::format("{}, {}: {}", program_, run.name, name);
    }

    const Judge& judge_;
    std::string program_;
};

std::string counted(std::int64_t count, const char* one, const char* many) {
    return fmt::format(", {} {}", count, count == 1 ? one : many);
}

/// Documents of a step on each rank: a rank without any in each, and in the last step
/// none has any.
std::vector<std::int64_t> documents_of(const Draft& draft, int step, int steps) {
    std::vector<std::int64_t> documents;
    const std::int64_t without = draft.draw(fmt::format("without {}", step), 0, 99);
    for (int rank = 0; rank < draft.ranks(); ++rank) {
        const bool none = step + 1 == steps || without % draft.ranks() == rank;
        documents.push_back(
            none ? 0 : draft.draw(fmt::format("documents {} {}", step, rank), 1, 4));
    }
    return documents;
}

TaskRun filter_run(const Judge& judge, int ranks, int steps) {
    Draft draft(judge, "filter", ranks, counted(steps, "step", "steps"), true);
    const std::int64_t in = draft.draw("in", 6, 9), out = draft.draw("out", 4, 7);
    for (int step = 0; step < steps; ++step) {
        const std::vector<std::int64_t> counts = documents_of(draft, step, steps);
        for (int rank = 0; rank < ranks; ++rank) {
            draft.give(
                rank, fmt::format("inputs {}", step),
                draft.normal(fmt::format("x {} {}", step, rank), {counts[rank], in}));
            draft.give(
                rank, fmt::format("targets {}", step),
                draft.normal(fmt::format("y {} {}", step, rank), {counts[rank], out}));
        }
    }
    draft.give_all("weight", draft.normal("weight", {in, out}));
    draft.give_all("bias", draft.normal("bias", {out}));
    return draft.run;
}

TaskRun pipeline_run(const Judge& judge, int ranks, int micro_batches) {
    Draft draft(judge, "pipeline", ranks,
                counted(micro_batches, "micro-batch", "micro-batches"));
    const std::int64_t rows = draft.draw("rows", 44, 52);
    const std::int64_t width = draft.draw("width", 22, 26);
    for (int rank = 0; rank < ranks; ++rank)
        draft.give(rank, "weight",
                   draft.normal(fmt::format("weight {}", rank), {width, width}));
    draft.give_all("gradient", draft.normal("before", {width, width}));
    draft.give_all_number("micro-batches", micro_batches);
    draft.give_all_number("rows", rows);
    draft.give(0, "inputs", draft.normals("x", micro_batches, {rows, width}));
    draft.give(ranks - 1, "targets", draft.normals("y", micro_batches, {rows, width}));
    return draft.run;
}

TaskRun prefetch_run(const Judge& judge, int ranks, int layers) {
    Draft draft(judge, "prefetch", ranks, counted(layers, "layer", "layers"));
    const std::int64_t rows = draft.draw("rows", 120, 136);
    const std::int64_t part = (draft.draw("least width", 58, 64) + ranks - 1) / ranks;
    const std::int64_t width = part * ranks;
    const HostTensors weights = draft.normals("weight", layers, {width, width});
    for (int rank = 0; rank < ranks; ++rank) {
        for (int layer = 0; layer < layers; ++layer)
            draft.give(rank, fmt::format("shards {}", layer),
                       weights[layer].rows(part * rank, part));
        draft.give(rank, "x", draft.normal(fmt::format("x {}", rank), {rows, width}));
    }
    return draft.run;
}

TaskRun evaluate_run(const Judge& judge, int ranks, std::int64_t rows) {
    constexpr std::int64_t kIn = 6, kClasses = 5;
    Draft draft(judge, "evaluate", ranks, counted(rows, "row", "rows"), true);
    draft.give_all("weight", draft.normal("weight", {kIn, kClasses}));
    draft.give_all_number("rows", rows);
    const HostTensor x = draft.normal("x", {rows, kIn});
    HostTensor labels({rows}, DType::i32);
    for (std::int64_t row = 0; row < rows; ++row)
        labels.set(row, static_cast<double>(
                            draft.draw(fmt::format("label {}", row), 0, kClasses - 1)));
    for (int rank = 0; rank < ranks; ++rank) {
        const Chunk own = chunk(rows, ranks, rank);
        draft.give(rank, "x", x.rows(own.begin, own.count));
        draft.give(rank, "labels", labels.rows(own.begin, own.count));
    }
    return draft.run;
}

double squares(const HostTensors& tensors) {
    double sum = 0;
    for (const HostTensor& each : tensors)
        for (const double value : each.values<double>())
            sum += value * value;
    return sum;
}

/// With a bound that the norm is `percent` of.
TaskRun clip_run(const Judge& judge, int ranks, std::int64_t percent) {
    Draft draft(judge, "clip", ranks, fmt::format(", norm at {} %", percent), true);
    const std::int64_t rows = draft.draw("rows", 2, 4);
    const std::int64_t columns = draft.draw("columns", 3, 5);
    const HostTensors replicated{draft.normal("norm", {draft.draw("of norm", 10, 14)}),
                                 draft.normal("bias", {2, columns})};
    draft.give_all("replicated", replicated);
    double sum = squares(replicated);
    for (int rank = 0; rank < ranks; ++rank) {
        const HostTensors sharded =
            draft.normals(fmt::format("sharded {}", rank), 2, {rows, columns});
        draft.give(rank, "sharded", sharded);
        sum += squares(sharded);
    }
    draft.give_all_number("largest in thousandths",
                          static_cast<std::int64_t>(std::ceil(
                              std::sqrt(sum) * 1e5 / static_cast<double>(percent))));
    return draft.run;
}

TaskRun accumulate_run(const Judge& judge, int ranks, int micro_batches) {
    Draft draft(judge, "accumulate", ranks,
                counted(micro_batches, "micro-batch", "micro-batches"));
    const std::int64_t rows = draft.draw("rows", 14, 18), in = draft.draw("in", 9, 11);
    const std::int64_t hidden = draft.draw("hidden", 22, 26),
                       out = draft.draw("out", 5, 7);
    const Shape shapes[] = {{in, hidden}, {hidden, out}};
    draft.give_all("weights", HostTensors{draft.normal("W1", shapes[0]),
                                          draft.normal("W2", shapes[1])});
    draft.give_all("gradients", HostTensors{draft.normal("d_W1", shapes[0]),
                                            draft.normal("d_W2", shapes[1])});
    for (int i = 0; i < ranks * micro_batches; ++i) {
        const int rank = i / micro_batches, own = i % micro_batches;
        draft.give(rank, fmt::format("inputs {}", own),
                   draft.normal(fmt::format("x {}", i), {rows, in}));
        draft.give(rank, fmt::format("targets {}", own),
                   draft.normal(fmt::format("y {}", i), {rows, out}));
    }
    return draft.run;
}

int drawn(const Judge& judge, const std::string& name, int low, int high) {
    return static_cast<int>(judge.draw(name, low, high));
}

}  // namespace

std::vector<TaskRun> filter_runs(const Judge& judge) {
    const auto steps = [&](int ranks, int low, int high) {
        return drawn(judge, fmt::format("filter, steps of {}", ranks), low, high);
    };
    return {filter_run(judge, 4, steps(4, 3, 5)), filter_run(judge, 3, steps(3, 4, 6)),
            filter_run(judge, 1, 2),
            filter_run(judge, drawn(judge, "filter, ranks", 5, 7), 3)};
}

/// More micro-batches than stages and fewer, down to one.
std::vector<TaskRun> pipeline_runs(const Judge& judge) {
    const auto batches = [&](int ranks, int low, int high) {
        return drawn(judge, fmt::format("pipeline, micro-batches of {}", ranks), low,
                     high);
    };
    return {pipeline_run(judge, 4, 2), pipeline_run(judge, 3, batches(3, 7, 9)),
            pipeline_run(judge, 1, batches(1, 2, 4)),
            pipeline_run(judge, drawn(judge, "pipeline, ranks", 6, 7), 1),
            pipeline_run(judge, 5, batches(5, 2, 3))};
}

std::vector<TaskRun> prefetch_runs(const Judge& judge) {
    const auto layers = [&](int ranks, int low, int high) {
        return drawn(judge, fmt::format("prefetch, layers of {}", ranks), low, high);
    };
    return {prefetch_run(judge, 4, layers(4, 4, 6)),
            prefetch_run(judge, 2, layers(2, 3, 4)),
            prefetch_run(judge, 1, layers(1, 2, 3)), prefetch_run(judge, 3, 1),
            prefetch_run(judge, drawn(judge, "prefetch, ranks", 5, 7), 4)};
}

std::vector<TaskRun> evaluate_runs(const Judge& judge) {
    const auto rows = [&](int ranks, int low, int high) {
        return judge.draw(fmt::format("evaluate, rows of {}", ranks), low, high);
    };
    return {evaluate_run(judge, 4, 4 * rows(4, 5, 7) + 2),
            evaluate_run(judge, 3, 3 * rows(3, 3, 5)),
            evaluate_run(judge, 1, rows(1, 6, 10)), evaluate_run(judge, 5, rows(5, 2, 4)),
            evaluate_run(judge, drawn(judge, "evaluate, ranks", 6, 8),
                         drawn(judge, "evaluate, rows", 43, 47))};
}

std::vector<TaskRun> clip_runs(const Judge& judge) {
    const auto percent = [&](int ranks, int low, int high) {
        return drawn(judge, fmt::format("clip, percent of {}", ranks), low, high);
    };
    return {clip_run(judge, 4, percent(4, 220, 300)),
            clip_run(judge, 3, percent(3, 93, 98)),
            clip_run(judge, 1, percent(1, 115, 130)),
            clip_run(judge, drawn(judge, "clip, ranks", 5, 7),
                     drawn(judge, "clip, percent", 250, 350))};
}

std::vector<TaskRun> accumulate_runs(const Judge& judge) {
    const auto batches = [&](int ranks, int low, int high) {
        return drawn(judge, fmt::format("accumulate, micro-batches of {}", ranks), low,
                     high);
    };
    return {accumulate_run(judge, 4, batches(4, 5, 7)),
            accumulate_run(judge, 3, batches(3, 2, 3)),
            accumulate_run(judge, 1, batches(1, 2, 3)), accumulate_run(judge, 2, 1),
            accumulate_run(judge, drawn(judge, "accumulate, ranks", 5, 7), 4)};
}

TaskRun run_of_all(const Judge& judge, int ranks) {
    TaskRun all{fmt::format("all six on {} ranks", ranks), {}};
    all.ranks.resize(static_cast<std::size_t>(ranks), {"all", {}, {}, true});
    for (TaskRun& part :
         std::vector{filter_run(judge, ranks, 2), pipeline_run(judge, ranks, 3),
                     prefetch_run(judge, ranks, 2), evaluate_run(judge, ranks, 17),
                     clip_run(judge, ranks, 200), accumulate_run(judge, ranks, 2)})
        for (std::size_t rank = 0; rank < all.ranks.size(); ++rank) {
            all.ranks[rank].tensors.merge(part.ranks[rank].tensors);
            all.ranks[rank].numbers.merge(part.ranks[rank].numbers);
        }
    return all;
}

}  // namespace lockstep::lessons
