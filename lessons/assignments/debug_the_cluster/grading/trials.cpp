#include "lessons/assignments/debug_the_cluster/grading/trials.hpp"

#include <algorithm>
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
        trial.mistakes.resize(trial.ranks.size());
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
    void mistake(int rank, const std::string& name, const HostTensor& values,
                 const std::string& sentence) {
        trial.mistakes[rank][full(name)].push_back({values, sentence});
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

HostTensor scaled(HostTensor values, double factor) {
    for (std::int64_t i = 0; i < values.elements(); ++i)
        values.set(i, factor * values.at(i));
    return values;
}

/// a + factor b.
HostTensor sum_of(HostTensor a, const HostTensor& b, double factor = 1) {
    for (std::int64_t i = 0; i < a.elements(); ++i)
        a.set(i, a.at(i) + factor * b.at(i));
    return a;
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

/// Documents and targets: [step][rank].
struct Documents {
    std::vector<HostTensors> x, y;

    Documents of_rank(std::size_t rank) const {
        Documents own;
        for (std::size_t step = 0; step < x.size(); ++step) {
            own.x.push_back({x[step][rank]});
            own.y.push_back({y[step][rank]});
        }
        return own;
    }
    Documents of_step(std::size_t step) const { return {{x[step]}, {y[step]}}; }
    /// Ranks that have none in the step.
    std::int64_t without(std::size_t step) const {
        return std::ranges::count_if(
            x[step], [](const HostTensor& each) { return each.elements() == 0; });
    }
    /// Those steps in which every rank has some.
    Documents full_steps() const {
        Documents full;
        for (std::size_t step = 0; step < x.size(); ++step) {
            if (without(step) > 0) continue;
            full.x.push_back(x[step]);
            full.y.push_back(y[step]);
        }
        return full;
    }
};

HostTensors trained(const HostTensors& weights, const Documents& documents) {
    return one_device::train_filtered(weights[0], weights[1], documents.x, documents.y);
}

/// Trains by the mean of the ranks' gradients.
HostTensors trained_by_mean(HostTensors weights, const Documents& documents) {
    for (std::size_t step = 0; step < documents.x.size(); ++step) {
        const HostTensors after = trained(weights, documents.of_step(step));
        const double share = 1.0 / static_cast<double>(documents.x[step].size());
        for (std::size_t i = 0; i < weights.size(); ++i)
            weights[i] = sum_of(scaled(weights[i], 1 - share), after[i], share);
    }
    return weights;
}

void expect_trained(Draft& draft, const HostTensors& weights,
                    const Documents& documents) {
    const HostTensors expected = trained(weights, documents);
    const HostTensors full = trained(weights, documents.full_steps());
    const HostTensors mean = trained_by_mean(weights, documents);
    for (int rank = 0; rank < draft.ranks(); ++rank) {
        const HostTensors own = trained(weights, documents.of_rank(rank));
        const char* const names[] = {"weight", "bias"};
        for (std::size_t i = 0; i < weights.size(); ++i) {
            draft.give(rank, names[i], weights[i]);
            draft.expect(rank, names[i], expected[i]);
            const auto mistake = [&](const HostTensors& left, const std::string& what) {
                draft.mistake(rank, names[i], left[i], what);
            };
            mistake(weights, "it is as it was before the first step");
            mistake(own,
                    "that is what this rank's own documents give: nothing came from "
                    "the other ranks");
            mistake(full,
                    "that is what comes of leaving out, on all ranks, each step in which "
                    "a rank has no document: those of the other ranks count");
            mistake(mean,
                    "that is what the mean over the ranks of their gradients "
                    "gives; the sum over all documents is asked");
        }
    }
}

Trial filter_trial(const Judge& judge, int ranks, int steps) {
    Draft draft(judge, "filter", ranks, counted(steps, "step", "steps"));
    draft.may_download();
    const std::int64_t in = draft.draw("in", 6, 9), out = draft.draw("out", 4, 7);
    Documents documents;
    int empty_steps = 0;
    for (int step = 0; step < steps; ++step) {
        const std::vector<std::int64_t> counts = documents_of(draft, step, steps);
        empty_steps += std::ranges::max(counts) == 0;
        documents.x.emplace_back(), documents.y.emplace_back();
        for (int rank = 0; rank < ranks; ++rank) {
            HostTensor& x = documents.x.back().emplace_back(
                draft.normal(fmt::format("x {} {}", step, rank), {counts[rank], in}));
            HostTensor& y = documents.y.back().emplace_back(
                draft.normal(fmt::format("y {} {}", step, rank), {counts[rank], out}));
            draft.give(rank, fmt::format("inputs {}", step), x);
            draft.give(rank, fmt::format("targets {}", step), y);
        }
    }
    expect_trained(draft,
                   {draft.normal("weight", {in, out}), draft.normal("bias", {out})},
                   documents);
    draft.trial.figures = filter_figures({ranks, steps, empty_steps, in, out});
    return draft.trial;
}

/// Adds what a stage's gradient may be by mistake.
void mistake_gradients(Draft& draft, const HostTensors& weights, const HostTensors& x,
                       const HostTensors& y, const HostTensors& gradients,
                       const HostTensor& before) {
    const double share = 1 / static_cast<double>(x.size());
    for (int rank = 0; rank < draft.ranks(); ++rank) {
        draft.mistake(rank, "gradient", scaled(gradients[rank], share),
                      "that is the mean over the micro-batches; the sum is asked");
        draft.mistake(rank, "gradient", sum_of(gradients[rank], before),
                      "what lay in it before is still in it");
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
        const HostTensors alone = one_device::pipeline_gradients(weights, {x[i]}, {y[i]});
        for (int rank = 0; rank < draft.ranks(); ++rank) {
            draft.mistake(rank, "gradient", alone[rank],
                          fmt::format("that is the gradient of micro-batch {} alone", i));
            draft.mistake(rank, "gradient", sum_of(gradients[rank], alone[rank], -1),
                          fmt::format("the gradient of micro-batch {} is missing", i));
        }
    }
}

Trial pipeline_trial(const Judge& judge, int ranks, int micro_batches) {
    Draft draft(judge, "pipeline", ranks,
                counted(micro_batches, "micro-batch", "micro-batches"));
    const std::int64_t rows = draft.draw("rows", 44, 52);
    const std::int64_t width = draft.draw("width", 22, 26);
    const HostTensors weights = draft.normals("weight", ranks, {width, width});
    const HostTensors x = draft.normals("x", micro_batches, {rows, width});
    const HostTensors y = draft.normals("y", micro_batches, {rows, width});
    const HostTensors gradients = one_device::pipeline_gradients(weights, x, y);
    const HostTensor before = draft.normal("before", {width, width});
    for (int rank = 0; rank < ranks; ++rank) {
        const auto index = static_cast<std::size_t>(rank);
        draft.give(rank, "weight", weights[index]);
        draft.give(rank, "gradient", before);
        draft.give_number(rank, "micro-batches", micro_batches);
        draft.give_number(rank, "rows", rows);
        if (rank == 0) draft.give(rank, "inputs", x);
        if (rank + 1 == ranks) draft.give(rank, "targets", y);
        draft.expect(rank, "gradient", gradients[index]);
    }
    mistake_gradients(draft, weights, x, y, gradients, before);
    draft.trial.figures = pipeline_figures({ranks, micro_batches, rows, width});
    return draft.trial;
}

Trial prefetch_trial(const Judge& judge, int ranks, int layers) {
    Draft draft(judge, "prefetch", ranks, counted(layers, "layer", "layers"));
    const std::int64_t rows = draft.draw("rows", 120, 136);
    const std::int64_t part = (draft.draw("least width", 58, 64) + ranks - 1) / ranks;
    const std::int64_t width = part * ranks;
    const HostTensors weights = draft.normals("weight", layers, {width, width});
    for (int rank = 0; rank < ranks; ++rank) {
        HostTensors shards;
        for (const HostTensor& weight : weights)
            shards.push_back(weight.rows(part * rank, part));
        const HostTensor x = draft.normal(fmt::format("x {}", rank), {rows, width});
        const HostTensor before_last =
            one_device::forward({weights.begin(), weights.end() - 1}, x);
        draft.give(rank, "shards", shards);
        draft.give(rank, "x", x);
        draft.expect(rank, "y", one_device::forward({weights.back()}, before_last));
        draft.mistake(rank, "y", before_last, "the last layer is missing");
    }
    draft.trial.figures = prefetch_figures({ranks, layers, rows, part});
    return draft.trial;
}

/// Adds what a loss may be by mistake; `means` are each rank's own, of so many rows.
void mistake_losses(Draft& draft, double loss, const std::vector<double>& means,
                    std::int64_t rows) {
    const double ranks = draft.ranks();
    double mean_of_means = 0;
    for (const double mean : means)
        mean_of_means += mean / ranks;
    for (int rank = 0; rank < draft.ranks(); ++rank) {
        const auto mistake = [&](double value, const std::string& sentence) {
            HostTensor left({1}, DType::f64);
            left.set(0, value);
            draft.mistake(rank, "loss", left, sentence);
        };
        const std::int64_t own = chunk(rows, draft.ranks(), rank).count;
        const double share = static_cast<double>(own) / static_cast<double>(rows);
        mistake(means[rank], "that is the mean over this rank's own rows");
        mistake(means[rank] * share,
                "that is this rank's part of the mean: the parts are not summed");
        mistake(mean_of_means,
                "that is the mean of the ranks' means: a row of a rank with fewer rows "
                "counts for more");
        mistake(loss / ranks, "it was divided by the number of ranks once too often");
        mistake(loss * ranks, "that is the number of ranks times what it should be");
        mistake(loss * static_cast<double>(rows),
                "that is the sum over all rows; their mean is asked");
    }
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
    std::vector<double> means;
    for (int rank = 0; rank < ranks; ++rank) {
        const Chunk own = chunk(rows, ranks, rank);
        const HostTensor own_x = x.rows(own.begin, own.count);
        const HostTensor own_labels = labels.rows(own.begin, own.count);
        means.push_back(one_device::evaluate(weight, own_x, own_labels).at(0));
        draft.give(rank, "weight", weight);
        draft.give_number(rank, "rows", rows);
        draft.give(rank, "x", own_x);
        draft.give(rank, "labels", own_labels);
        draft.expect(rank, "loss", loss);
    }
    mistake_losses(draft, loss.at(0), means, rows);
    draft.trial.figures = sum_figures(ranks);
    return draft.trial;
}

/// Factors by which gradients may be multiplied by mistake, on each rank.
using Factors = std::vector<std::pair<double, std::string>>;

Factors wrong_factors(const std::vector<HostTensors>& sharded,
                      const HostTensors& replicated, std::size_t rank, double largest) {
    const auto joined = [](HostTensors a, const HostTensors& b) {
        a.insert(a.end(), b.begin(), b.end());
        return a;
    };
    HostTensors shards, all;
    for (const HostTensors& each : sharded) {
        shards = joined(shards, each);
        all = joined(joined(all, each), replicated);
    }
    const auto factor_by = [&](const HostTensors& counted) {
        return one_device::clip_factor(counted, largest);
    };
    const HostTensors right = joined(shards, replicated);
    const double norm = 1 / one_device::clip_factor(right, 1);
    return {{1, "it is as it was: nothing has scaled it"},
            {largest / norm, "it has been scaled up: a norm below `largest` stays"},
            {largest / (norm * norm),
             "it was divided by the square of the norm: a root is missing"},
            {factor_by(shards), "the norm lacks what is the same on all ranks"},
            {factor_by(all),
             fmt::format("the norm counts what is the same on all ranks {} times",
                         sharded.size())},
            {factor_by(joined(sharded[rank], replicated)),
             "that is clipped by the norm of what this rank has: other ranks' parts are "
             "missing in it"},
            {factor_by(sharded[rank]),
             "that is clipped by the norm of this rank's own part alone"}};
}

/// With a bound that the norm is `percent` of.
Trial clip_trial(const Judge& judge, int ranks, std::int64_t percent) {
    Draft draft(judge, "clip", ranks, fmt::format(", norm at {} %", percent));
    draft.may_download();
    const std::int64_t rows = draft.draw("rows", 2, 4);
    const std::int64_t columns = draft.draw("columns", 3, 5);
    const HostTensors replicated{draft.normal("norm", {draft.draw("of norm", 10, 14)}),
                                 draft.normal("bias", {2, columns})};
    HostTensors all = replicated;
    std::vector<HostTensors> sharded;
    for (int rank = 0; rank < ranks; ++rank) {
        sharded.push_back(
            draft.normals(fmt::format("sharded {}", rank), 2, {rows, columns}));
        all.insert(all.end(), sharded.back().begin(), sharded.back().end());
    }
    const double norm = 1 / one_device::clip_factor(all, 1);
    const auto thousandths =
        static_cast<std::int64_t>(std::ceil(norm * 1e5 / static_cast<double>(percent)));
    const double largest = static_cast<double>(thousandths) / 1000;
    const double factor = one_device::clip_factor(all, largest);
    for (int rank = 0; rank < ranks; ++rank) {
        const Factors wrong = wrong_factors(sharded, replicated, rank, largest);
        const auto expect = [&](const std::string& name, const HostTensors& given) {
            draft.give(rank, name, given);
            for (std::size_t i = 0; i < given.size(); ++i) {
                const std::string each = fmt::format("{} {}", name, i);
                draft.expect(rank, each, scaled(given[i], factor));
                for (const auto& [by, sentence] : wrong)
                    draft.mistake(rank, each, scaled(given[i], by), sentence);
            }
        };
        expect("sharded", sharded[rank]);
        expect("replicated", replicated);
        draft.give_number(rank, "largest in thousandths", thousandths);
    }
    draft.trial.figures = sum_figures(ranks);
    return draft.trial;
}

/// Holds gradients of all micro-batches, of a rank's own alone, and of all ranks' last.
struct Accumulated {
    HostTensors all, own, last;
};

/// Adds what the gradients of a rank may be by mistake.
void mistake_accumulated(Draft& draft, int rank, int micro_batches, const Accumulated& of,
                         const HostTensors& before) {
    const double ranks = draft.ranks();
    for (std::size_t i = 0; i < before.size(); ++i) {
        const auto mistake = [&](const HostTensor& left, const std::string& sentence) {
            draft.mistake(rank, fmt::format("gradients {}", i), left, sentence);
        };
        mistake(of.own[i],
                "that is the mean over this rank's own micro-batches: nothing "
                "came from the other ranks");
        mistake(scaled(of.own[i], 1 / ranks),
                "that is this rank's part of the mean: the parts are not summed");
        mistake(of.last[i], "that is the mean of the ranks' last micro-batches alone");
        mistake(scaled(of.all[i], ranks),
                "that is the sum over the ranks; the mean is asked");
        mistake(scaled(of.all[i], 1 / ranks),
                "it was divided by the number of ranks once too often");
        mistake(scaled(of.all[i], micro_batches),
                "that is the sum over the micro-batches; their mean is asked");
        mistake(sum_of(of.all[i], before[i]), "what lay in it before is still in it");
    }
}

Trial accumulate_trial(const Judge& judge, int ranks, int micro_batches) {
    Draft draft(judge, "accumulate", ranks,
                counted(micro_batches, "micro-batch", "micro-batches"));
    const AccumulateSizes sizes{ranks,
                                micro_batches,
                                draft.draw("rows", 14, 18),
                                draft.draw("in", 9, 11),
                                draft.draw("hidden", 22, 26),
                                draft.draw("out", 5, 7)};
    const Shape shapes[] = {{sizes.in, sizes.hidden}, {sizes.hidden, sizes.out}};
    const HostTensors weights{draft.normal("W1", shapes[0]),
                              draft.normal("W2", shapes[1])};
    const HostTensors before{draft.normal("d_W1", shapes[0]),
                             draft.normal("d_W2", shapes[1])};
    const int all = ranks * micro_batches;
    const HostTensors x = draft.normals("x", all, {sizes.rows, sizes.in});
    const HostTensors y = draft.normals("y", all, {sizes.rows, sizes.out});
    HostTensors last_x, last_y;
    for (int i = micro_batches - 1; i < all; i += micro_batches) {
        last_x.push_back(x[i]);
        last_y.push_back(y[i]);
    }
    const auto by = [&](const HostTensors& inputs, const HostTensors& targets) {
        return one_device::accumulate_gradients(weights, inputs, targets);
    };
    const HostTensors gradients = by(x, y), last = by(last_x, last_y);
    for (int rank = 0; rank < ranks; ++rank) {
        const auto own = [&](const HostTensors& batches) {
            const auto begin = batches.begin() + std::ptrdiff_t{micro_batches} * rank;
            return HostTensors(begin, begin + micro_batches);
        };
        draft.give(rank, "weights", weights);
        draft.give(rank, "gradients", before);
        draft.give(rank, "inputs", own(x));
        draft.give(rank, "targets", own(y));
        draft.expect(rank, "gradients 0", gradients[0]);
        draft.expect(rank, "gradients 1", gradients[1]);
        mistake_accumulated(draft, rank, micro_batches,
                            {gradients, by(own(x), own(y)), last}, before);
    }
    draft.trial.figures = accumulate_figures(sizes);
    return draft.trial;
}

int drawn(const Judge& judge, const std::string& name, int low, int high) {
    return static_cast<int>(judge.draw(name, low, high));
}

}  // namespace

Trials filter_trials(const Judge& judge) {
    const auto steps = [&](int ranks, int low, int high) {
        return drawn(judge, fmt::format("filter, steps of {}", ranks), low, high);
    };
    return {filter_trial(judge, 4, steps(4, 3, 5)),
            filter_trial(judge, 3, steps(3, 4, 6)), filter_trial(judge, 1, 2),
            filter_trial(judge, drawn(judge, "filter, ranks", 5, 7), 3)};
}

/// More micro-batches than stages and fewer, down to one.
Trials pipeline_trials(const Judge& judge) {
    const auto batches = [&](int ranks, int low, int high) {
        return drawn(judge, fmt::format("pipeline, micro-batches of {}", ranks), low,
                     high);
    };
    return {pipeline_trial(judge, 4, 2), pipeline_trial(judge, 3, batches(3, 7, 9)),
            pipeline_trial(judge, 1, batches(1, 2, 4)),
            pipeline_trial(judge, drawn(judge, "pipeline, ranks", 6, 7), 1),
            pipeline_trial(judge, 5, batches(5, 2, 3))};
}

Trials prefetch_trials(const Judge& judge) {
    const auto layers = [&](int ranks, int low, int high) {
        return drawn(judge, fmt::format("prefetch, layers of {}", ranks), low, high);
    };
    return {prefetch_trial(judge, 4, layers(4, 4, 6)),
            prefetch_trial(judge, 2, layers(2, 3, 4)),
            prefetch_trial(judge, 1, layers(1, 2, 3)), prefetch_trial(judge, 3, 1),
            prefetch_trial(judge, drawn(judge, "prefetch, ranks", 5, 7), 4)};
}

Trials evaluate_trials(const Judge& judge) {
    const auto rows = [&](int ranks, int low, int high) {
        return judge.draw(fmt::format("evaluate, rows of {}", ranks), low, high);
    };
    return {evaluate_trial(judge, 4, 4 * rows(4, 5, 7) + 2),
            evaluate_trial(judge, 3, 3 * rows(3, 3, 5)),
            evaluate_trial(judge, 1, rows(1, 6, 10)),
            evaluate_trial(judge, 5, rows(5, 2, 4)),
            evaluate_trial(judge, drawn(judge, "evaluate, ranks", 6, 8),
                           drawn(judge, "evaluate, rows", 43, 47))};
}

Trials clip_trials(const Judge& judge) {
    const auto percent = [&](int ranks, int low, int high) {
        return drawn(judge, fmt::format("clip, percent of {}", ranks), low, high);
    };
    return {clip_trial(judge, 4, percent(4, 220, 300)),
            clip_trial(judge, 3, percent(3, 93, 98)),
            clip_trial(judge, 1, percent(1, 115, 130)),
            clip_trial(judge, drawn(judge, "clip, ranks", 5, 7),
                       drawn(judge, "clip, percent", 250, 350))};
}

Trials accumulate_trials(const Judge& judge) {
    const auto batches = [&](int ranks, int low, int high) {
        return drawn(judge, fmt::format("accumulate, micro-batches of {}", ranks), low,
                     high);
    };
    return {accumulate_trial(judge, 4, batches(4, 5, 7)),
            accumulate_trial(judge, 3, batches(3, 2, 3)),
            accumulate_trial(judge, 1, batches(1, 2, 3)), accumulate_trial(judge, 2, 1),
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
