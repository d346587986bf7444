#include "lessons/assignments/debug_the_cluster/grading/trials.hpp"

#include <cmath>

#include <fmt/format.h>

#include "lessons/assignments/debug_the_cluster/handout/one_device.hpp"
#include "src/comm/chunks.hpp"

namespace lockstep::lessons {

namespace {

/// Fills one trial in.
class Draft {
  public:
    Draft(const Judge& judge, const std::string& program, int ranks,
          const std::string& size)
        : judge_(judge) {
        trial.program = program;
        trial.name = fmt::format("{} rank{}{}", ranks, ranks == 1 ? "" : "s", size);
        trial.ranks.resize(static_cast<std::size_t>(ranks));
        trial.expected.resize(trial.ranks.size());
        for (RankTask& rank : trial.ranks)
            rank.task = program;
    }

    int ranks() const { return static_cast<int>(trial.ranks.size()); }
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
    one_device::HostTensors normals(const std::string& name, int count,
                                    const Shape& shape) const {
        one_device::HostTensors values;
        for (int i = 0; i < count; ++i)
            values.push_back(normal(fmt::format("{} {}", name, i), shape));
        return values;
    }

    void give(int rank, const std::string& name, const HostTensor& values) {
        of(rank).tensors.emplace(full(name), TaskTensor{values});
    }
    /// As "name 0", "name 1" …
    void give(int rank, const std::string& name, const one_device::HostTensors& values) {
        for (std::size_t i = 0; i < values.size(); ++i)
            give(rank, fmt::format("{} {}", name, i), values[i]);
    }
    void give_number(int rank, const std::string& name, std::int64_t value) {
        of(rank).numbers.emplace(full(name), value);
    }
    void may_download() {
        for (RankTask& rank : trial.ranks)
            rank.may_download = true;
    }
    void expect(int rank, const std::string& name, const HostTensor& values) {
        trial.expected[rank].emplace(full(name), values);
    }

    Trial trial;

  private:
    RankTask& of(int rank) { return trial.ranks[rank]; }
    std::string full(const std::string& name) const {
        return trial.program + ": " + name;
    }
    std::string own_name(const std::string& name) const {
        return fmt::format("{}, {}: {}", trial.program, trial.name, name);
    }

    const Judge& judge_;
};

using one_device::HostTensors;

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

Trial filter_trial(const Judge& judge, int ranks, int steps) {
    constexpr std::int64_t kIn = 8, kOut = 5;
    Draft draft(judge, "filter", ranks, counted(steps, "step", "steps"));
    draft.may_download();
    const HostTensor weight = draft.normal("weight", {kIn, kOut});
    const HostTensor bias = draft.normal("bias", {kOut});
    std::vector<HostTensors> x, y;
    for (int step = 0; step < steps; ++step) {
        const std::vector<std::int64_t> documents = documents_of(draft, step, steps);
        x.emplace_back(), y.emplace_back();
        for (int rank = 0; rank < ranks; ++rank) {
            const std::int64_t count = documents[rank];
            x.back().push_back(
                draft.normal(fmt::format("x {} {}", step, rank), {count, kIn}));
            y.back().push_back(
                draft.normal(fmt::format("y {} {}", step, rank), {count, kOut}));
            draft.give(rank, fmt::format("inputs {}", step), x.back().back());
            draft.give(rank, fmt::format("targets {}", step), y.back().back());
        }
    }
    const HostTensors left = one_device::train_filtered(weight, bias, x, y);
    for (int rank = 0; rank < ranks; ++rank) {
        draft.give(rank, "weight", weight);
        draft.give(rank, "bias", bias);
        draft.expect(rank, "weight", left[0]);
        draft.expect(rank, "bias", left[1]);
    }
    return draft.trial;
}

Trial pipeline_trial(const Judge& judge, int ranks, int micro_batches) {
    constexpr std::int64_t kRows = 48, kWidth = 24;
    Draft draft(judge, "pipeline", ranks,
                counted(micro_batches, "micro-batch", "micro-batches"));
    const HostTensors weights = draft.normals("weight", ranks, {kWidth, kWidth});
    const HostTensors x = draft.normals("x", micro_batches, {kRows, kWidth});
    const HostTensors y = draft.normals("y", micro_batches, {kRows, kWidth});
    const HostTensors gradients = one_device::pipeline_gradients(weights, x, y);
    for (int rank = 0; rank < ranks; ++rank) {
        const auto index = static_cast<std::size_t>(rank);
        draft.give(rank, "weight", weights[index]);
        draft.give(rank, "gradient", draft.normal("before", {kWidth, kWidth}));
        draft.give_number(rank, "micro-batches", micro_batches);
        draft.give_number(rank, "rows", kRows);
        if (rank == 0) draft.give(rank, "inputs", x);
        if (rank + 1 == ranks) draft.give(rank, "targets", y);
        draft.expect(rank, "gradient", gradients[index]);
    }
    return draft.trial;
}

Trial prefetch_trial(const Judge& judge, int ranks, int layers) {
    constexpr std::int64_t kRows = 128;
    const std::int64_t part = (64 + ranks - 1) / ranks, width = part * ranks;
    Draft draft(judge, "prefetch", ranks, counted(layers, "layer", "layers"));
    const HostTensors weights = draft.normals("weight", layers, {width, width});
    for (int rank = 0; rank < ranks; ++rank) {
        HostTensors shards;
        for (const HostTensor& weight : weights)
            shards.push_back(weight.rows(part * rank, part));
        const HostTensor x = draft.normal(fmt::format("x {}", rank), {kRows, width});
        draft.give(rank, "shards", shards);
        draft.give(rank, "x", x);
        draft.expect(rank, "y", one_device::forward(weights, x));
    }
    return draft.trial;
}

Trial evaluate_trial(const Judge& judge, int ranks, std::int64_t rows) {
    constexpr std::int64_t kIn = 6, kClasses = 5;
    Draft draft(judge, "evaluate", ranks, counted(rows, "row", "rows"));
    draft.may_download();
    const HostTensor weight = draft.normal("weight", {kIn, kClasses});
    const HostTensor x = draft.normal("x", {rows, kIn});
    HostTensor labels({rows}, DType::i32);
    for (std::int64_t row = 0; row < rows; ++row)
        labels.set(row, static_cast<double>(
                            draft.draw(fmt::format("label {}", row), 0, kClasses - 1)));
    const HostTensor loss = one_device::evaluate(weight, x, labels);
    for (int rank = 0; rank < ranks; ++rank) {
        const Chunk own = chunk(rows, ranks, rank);
        draft.give(rank, "weight", weight);
        draft.give_number(rank, "rows", rows);
        draft.give(rank, "x", x.rows(own.begin, own.count));
        draft.give(rank, "labels", labels.rows(own.begin, own.count));
        draft.expect(rank, "loss", loss);
    }
    return draft.trial;
}

/// With a bound that the norm is `percent` of.
Trial clip_trial(const Judge& judge, int ranks, int percent) {
    Draft draft(judge, "clip", ranks, fmt::format(", norm at {} %", percent));
    draft.may_download();
    const HostTensors replicated{draft.normal("norm", {12}),
                                 draft.normal("bias", {2, 5})};
    HostTensors all = replicated;
    std::vector<HostTensors> sharded;
    for (int rank = 0; rank < ranks; ++rank) {
        sharded.push_back(draft.normals(fmt::format("sharded {}", rank), 2, {3, 4}));
        all.insert(all.end(), sharded.back().begin(), sharded.back().end());
    }
    const double norm = 1 / one_device::clip_factor(all, 1);
    const auto largest = static_cast<std::int64_t>(std::ceil(norm * 1e5 / percent));
    const double factor =
        one_device::clip_factor(all, static_cast<double>(largest) / 1000);
    const auto expect = [&](int rank, const std::string& name, HostTensors given) {
        draft.give(rank, name, given);
        for (std::size_t i = 0; i < given.size(); ++i) {
            for (std::int64_t j = 0; j < given[i].elements(); ++j)
                given[i].set(j, factor * given[i].at(j));
            draft.expect(rank, fmt::format("{} {}", name, i), given[i]);
        }
    };
    for (int rank = 0; rank < ranks; ++rank) {
        expect(rank, "sharded", sharded[rank]);
        expect(rank, "replicated", replicated);
        draft.give_number(rank, "largest in thousandths", largest);
    }
    return draft.trial;
}

Trial accumulate_trial(const Judge& judge, int ranks, int micro_batches) {
    constexpr std::int64_t kRows = 16, kIn = 10, kHidden = 24, kOut = 6;
    Draft draft(judge, "accumulate", ranks,
                counted(micro_batches, "micro-batch", "micro-batches"));
    const HostTensors weights{draft.normal("W1", {kIn, kHidden}),
                              draft.normal("W2", {kHidden, kOut})};
    const HostTensors before{draft.normal("d_W1", {kIn, kHidden}),
                             draft.normal("d_W2", {kHidden, kOut})};
    const int all = ranks * micro_batches;
    const HostTensors x = draft.normals("x", all, {kRows, kIn});
    const HostTensors y = draft.normals("y", all, {kRows, kOut});
    const HostTensors gradients = one_device::accumulate_gradients(weights, x, y);
    for (int rank = 0; rank < ranks; ++rank) {
        const auto own = [&](const HostTensors& batches) {
            const auto begin = batches.begin() + micro_batches * rank;
            return HostTensors(begin, begin + micro_batches);
        };
        draft.give(rank, "weights", weights);
        draft.give(rank, "gradients", before);
        draft.give(rank, "inputs", own(x));
        draft.give(rank, "targets", own(y));
        draft.expect(rank, "gradients 0", gradients[0]);
        draft.expect(rank, "gradients 1", gradients[1]);
    }
    return draft.trial;
}

int drawn(const Judge& judge, const std::string& name, int low, int high) {
    return static_cast<int>(judge.draw(name, low, high));
}

}  // namespace

Trials filter_trials(const Judge& judge) {
    return {filter_trial(judge, 4, 4), filter_trial(judge, 3, 5),
            filter_trial(judge, 1, 2),
            filter_trial(judge, drawn(judge, "filter, ranks", 5, 7), 3)};
}

Trials pipeline_trials(const Judge& judge) {
    return {pipeline_trial(judge, 4, 2), pipeline_trial(judge, 3, 8),
            pipeline_trial(judge, 1, 3), pipeline_trial(judge, 6, 1),
            pipeline_trial(judge, drawn(judge, "pipeline, ranks", 5, 7),
                           drawn(judge, "pipeline, micro-batches", 2, 3))};
}

Trials prefetch_trials(const Judge& judge) {
    return {prefetch_trial(judge, 4, 5), prefetch_trial(judge, 2, 3),
            prefetch_trial(judge, 1, 2), prefetch_trial(judge, 3, 1),
            prefetch_trial(judge, drawn(judge, "prefetch, ranks", 5, 7), 4)};
}

Trials evaluate_trials(const Judge& judge) {
    return {evaluate_trial(judge, 4, 22), evaluate_trial(judge, 3, 12),
            evaluate_trial(judge, 1, 9), evaluate_trial(judge, 5, 3),
            evaluate_trial(judge, drawn(judge, "evaluate, ranks", 6, 8),
                           judge.draw("evaluate, rows", 43, 47))};
}

Trials clip_trials(const Judge& judge) {
    return {clip_trial(judge, 4, 250), clip_trial(judge, 3, 97),
            clip_trial(judge, 1, 120),
            clip_trial(judge, drawn(judge, "clip, ranks", 5, 7), 300)};
}

Trials accumulate_trials(const Judge& judge) {
    return {accumulate_trial(judge, 4, 6), accumulate_trial(judge, 3, 2),
            accumulate_trial(judge, 1, 3), accumulate_trial(judge, 2, 1),
            accumulate_trial(judge, drawn(judge, "accumulate, ranks", 5, 7), 4)};
}

Trial trial_of_all(const Judge& judge, int ranks) {
    Trial all{"all", fmt::format("all six on {} ranks", ranks), {}, {}};
    for (const Trial& part :
         {filter_trial(judge, ranks, 2), pipeline_trial(judge, ranks, 3),
          prefetch_trial(judge, ranks, 2), evaluate_trial(judge, ranks, 17),
          clip_trial(judge, ranks, 200), accumulate_trial(judge, ranks, 2)}) {
        all.ranks.resize(part.ranks.size());
        all.expected.resize(part.ranks.size());
        for (std::size_t rank = 0; rank < part.ranks.size(); ++rank) {
            RankTask task = part.ranks[rank];
            all.ranks[rank].task = "all";
            all.ranks[rank].may_download = true;
            all.ranks[rank].tensors.merge(task.tensors);
            all.ranks[rank].numbers.merge(task.numbers);
            all.expected[rank].insert(part.expected[rank].begin(),
                                      part.expected[rank].end());
        }
    }
    return all;
}

}  // namespace lockstep::lessons
