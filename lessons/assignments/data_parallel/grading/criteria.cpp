#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/classifier.hpp"
#include "lessons/assignments/suspects.hpp"
#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

namespace {

// Steps of training, and by how much.
constexpr int kSteps = 3;
constexpr std::int64_t kThousandths = 250;

/// Says how the rows of a batch are dealt out, and to which network: linear, tanh,
/// linear.
struct DealtBatch {
    std::vector<std::int64_t> shards;  ///< rows of each rank
    std::int64_t most_rows = 0;        ///< of a micro-batch
    std::int64_t hidden = 9;
    std::int64_t features = 6;
    std::int64_t classes = 4;
    std::int64_t held = 0;  ///< each element of the gradients, before the call

    /// "3 ranks with 5, 0, 9 rows, 4 at once"
    std::string name() const {
        return fmt::format(
            "{} rank{} with {} rows, {} at once{}", shards.size(),
            shards.size() == 1 ? "" : "s", fmt::join(shards, ", "), most_rows,
            held == 0 ? "" : fmt::format(", gradients of {} before", held));
    }
};

// The grader's cases, drawn anew for each grading.

/// Draws within a case: each number has its name.
class Dealer {
  public:
    Dealer(const Judge& judge, std::string kind)
        : judge_(judge), kind_(std::move(kind)) {}

    std::int64_t draw(const std::string& what, std::int64_t low,
                      std::int64_t high) const {
        return judge_.draw(kind_ + ", " + what, low, high);
    }
    /// A batch for a drawn network, without shards.
    DealtBatch batch(std::int64_t most_rows) const {
        return {{},
                most_rows,
                draw("hidden", 7, 11),
                draw("features", 5, 8),
                draw("classes", 3, 5)};
    }

  private:
    const Judge& judge_;
    std::string kind_;
};

/// Shards of whole micro-batches, or of less than one. They differ, so that a mean of
/// means is another one: one rank, ranks without rows, fewer rows than a micro-batch may
/// have, and more ranks.
std::vector<DealtBatch> whole_batches(const Judge& judge) {
    const auto whole = [&](const char* kind) {
        const Dealer dealer(judge, kind);
        return dealer.batch(dealer.draw("rows at once", 3, 5));
    };
    DealtBatch one = whole("one rank");
    one.shards = {one.most_rows * judge.draw("micro-batches of one rank", 2, 3)};

    DealtBatch idle = whole("a rank without rows");
    idle.shards = {idle.most_rows, idle.most_rows * 2, idle.most_rows * 3};
    idle.shards[static_cast<std::size_t>(judge.draw("idle rank", 0, 2))] = 0;

    DealtBatch small = whole("a small shard");
    small.shards = {small.most_rows * judge.draw("micro-batches of two", 2, 3), 1};

    DealtBatch less = whole("less than a micro-batch");
    less.shards = {0, judge.draw("less", 1, 2), 0, judge.draw("more", 3, less.most_rows)};

    DealtBatch many = whole("more ranks");
    const std::int64_t ranks = judge.draw("more ranks", 5, 7);
    for (std::int64_t rank = 0; rank < ranks; ++rank)
        many.shards.push_back(
            many.most_rows *
            judge.draw(fmt::format("micro-batches of rank {}", rank), 0, 2));
    many.shards.front() = 1;
    many.shards.back() = many.most_rows * 3;
    return {one, idle, small, less, many};
}

/// Shards whose last micro-batch may have fewer rows than the others.
std::vector<DealtBatch> odd_batches(const Judge& judge) {
    const auto odd = [&](const char* kind, std::size_t ranks) {
        const Dealer dealer(judge, kind);
        DealtBatch batch = dealer.batch(dealer.draw("rows at once", 4, 5));
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            const std::string of_rank = fmt::format(" of rank {}", rank);
            batch.shards.push_back(batch.most_rows *
                                       dealer.draw("micro-batches" + of_rank, 1, 2) +
                                   dealer.draw("rest" + of_rank, 1, batch.most_rows - 2));
        }
        return batch;
    };
    DealtBatch some = odd("odd, with an idle rank", 3);
    some.shards[static_cast<std::size_t>(judge.draw("odd idle rank", 0, 2))] = 0;
    return {
        odd("odd, one rank", 1), some,
        odd("odd, more ranks", static_cast<std::size_t>(judge.draw("odd ranks", 5, 6)))};
}

std::vector<DealtBatch> all_batches(const Judge& judge) {
    std::vector<DealtBatch> all = whole_batches(judge);
    for (const DealtBatch& odd : odd_batches(judge))
        all.push_back(odd);
    return all;
}

/// Whatever gradients held before, of a shard without rows, too.
std::vector<DealtBatch> batches_with_gradients(const Judge& judge) {
    std::vector<DealtBatch> batches = whole_batches(judge);
    for (DealtBatch& batch : batches)
        batch.held = judge.draw("gradients before", 2, 9);
    return batches;
}

/// Ranks with equally many rows, in whole micro-batches. What a run costs is looked at in
/// these, so that a mean of means costs no points twice.
DealtBatch even_batch(const Judge& judge, const char* kind, std::int64_t ranks,
                      std::int64_t most_rows, std::int64_t micro_batches) {
    DealtBatch even = Dealer(judge, kind).batch(most_rows);
    even.shards.assign(static_cast<std::size_t>(ranks), most_rows * micro_batches);
    return even;
}

DealtBatch small_batch(const Judge& judge) {
    return even_batch(judge, "even", judge.draw("even ranks", 3, 5),
                      judge.draw("even rows at once", 3, 5), 2);
}

/// One where a micro-batch's activations are most of what a device holds.
DealtBatch wide_batch(const Judge& judge) {
    DealtBatch wide =
        even_batch(judge, "wide", 3, judge.draw("wide rows at once", 56, 72),
                   judge.draw("wide micro-batches", 5, 7));
    wide.features = 3;
    wide.hidden = judge.draw("wide hidden", 24, 32);
    return wide;
}

/// One with many micro-batches.
DealtBatch long_batch(const Judge& judge) {
    return even_batch(judge, "long", 4, judge.draw("long rows at once", 6, 9),
                      judge.draw("long micro-batches", 11, 14));
}

/// Returns a run of a task: all ranks are given the network, each its own rows.
TaskRun given(const Judge& judge, const std::string& task, const DealtBatch& batch) {
    const std::pair<const char*, Shape> parameters[] = {
        {"hidden.weight", {batch.hidden, batch.features}},
        {"hidden.bias", {batch.hidden}},
        {"output.weight", {batch.classes, batch.hidden}},
        {"output.bias", {batch.classes}}};
    RankTask same{task, {}, {}};
    for (const auto& [name, shape] : parameters)
        same.tensors.emplace(name,
                             TaskTensor{judge.normal(batch.name() + ", " + name, shape),
                                        MemoryCategory::parameters});
    same.numbers = {{"batch rows", std::accumulate(batch.shards.begin(),
                                                   batch.shards.end(), std::int64_t{0})},
                    {"most rows", batch.most_rows},
                    {"gradients before", batch.held},
                    {"steps", kSteps},
                    {"learning rate in thousandths", kThousandths}};
    TaskRun run{batch.name(), {}};
    for (const std::int64_t rows : batch.shards) {
        const ClassifiedRows shard =
            draw_rows(judge, fmt::format("{}, rank {}", batch.name(), run.ranks.size()),
                      rows, batch.features, batch.classes);
        RankTask& own = run.ranks.emplace_back(same);
        own.tensors.emplace("x", TaskTensor{shard.x});
        own.tensors.emplace("targets", TaskTensor{shard.targets});
    }
    return run;
}

std::vector<TaskRun> given(const Judge& judge, const std::string& task,
                           const std::vector<DealtBatch>& batches) {
    std::vector<TaskRun> runs;
    runs.reserve(batches.size());
    for (const DealtBatch& batch : batches)
        runs.push_back(given(judge, task, batch));
    return runs;
}

// What is asked of a run.

AskedValues values_of(const TaskRun& run, std::vector<std::string> tensors = {}) {
    AskedValues asked{std::move(tensors)};
    const std::string& task = run.ranks.front().task;
    asked.called = [=](const std::string& tensor) {
        if (tensor == "loss") return std::string("the mean loss");
        if (tensor == "losses") return std::string("the mean loss of each step");
        return task == "train" ? tensor : "the gradient of " + tensor;
    };
    return asked;
}

void judge_shard_gradients(Judge& judge, const std::vector<DealtBatch>& batches) {
    for (const TaskRun& run : given(judge, "shard_gradient", batches)) {
        judge.as_right(run, values_of(run));
        const std::int64_t sent = judge.run(run).report.messages_sent();
        judge.ask(sent == 0, run.name + ": no messages",
                  fmt::format("{} messages", sent));
    }
}

void judge_batch_gradient(Judge& judge, const TaskRun& run,
                          std::vector<std::string> tensors = {}) {
    AskedValues asked = values_of(run, std::move(tensors));
    asked.cause = [&](const std::string& tensor, const OfRanks& left) {
        return suspected_sum(left, judge.right(run).ranks[0].tensors.at(tensor));
    };
    judge.as_right(run, asked);
}

const std::vector<std::string> kParameters{"hidden.bias", "hidden.weight", "output.bias",
                                           "output.weight"};

void judge_parameters(Judge& judge, const TaskRun& run) {
    judge.as_right(run, values_of(run, kParameters));
    const std::vector<RankResult>& ranks = judge.run(run).ranks;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        for (const std::string& name : kParameters)
            judge.same(fmt::format("{}: rank {}: {} as on rank 0", run.name, rank, name),
                       judge.left(ranks[rank], name), judge.left(ranks.front(), name));
}

void judge_losses(Judge& judge, const TaskRun& run) {
    AskedValues asked = values_of(run, {"losses"});
    asked.cause = [&](const std::string& tensor, const OfRanks& left) {
        return suspected_sum(left, judge.right(run).ranks[0].tensors.at(tensor));
    };
    judge.as_right(run, asked);
}

/// Bytes, memory and time count of runs that leave the right gradients or parameters:
/// doing nothing is fast.
void needs_values(const Judge& judge, const std::string& exercise, const TaskRun& run) {
    judge.needs(exercise + "-values", [&](Judge& asking) {
        const std::string& task = run.ranks.front().task;
        if (task == "train") return judge_parameters(asking, run);
        if (task == "batch_gradient")
            return judge_batch_gradient(asking, run, kParameters);
        asking.as_right(run, values_of(run, kParameters));
    });
}

/// The buffer may have some elements more than it must, which has 64 at least; and which
/// chunks a ring hands on, whose sizes differ by an element, is up to it.
constexpr Allowed kBytesAllowed{3, 8};

/// Asks for right values where all shards are equal, and that all other runs come to
/// their end: what is wrong with unequal shards is said elsewhere.
void judge_bytes(Judge& judge, const std::string& exercise, const std::string& task) {
    const TaskRun even = given(judge, task, small_batch(judge));
    needs_values(judge, exercise, even);
    judge.traffic_as_right(even, exercise, kBytesAllowed);
    for (const TaskRun& run : given(judge, task, all_batches(judge))) {
        judge.needs(exercise + "-values", [&](Judge& asking) { asking.run(run); });
        judge.traffic_as_right(run, exercise, kBytesAllowed);
    }
}

void judge_memory(Judge& judge, const std::string& exercise, const std::string& task) {
    const TaskRun wide = given(judge, task, wide_batch(judge));
    needs_values(judge, exercise, wide);
    judge.figures_as_right(wide, exercise, {{kPeak, {100, 50}}});
}

void judge_time(Judge& judge) {
    const TaskRun run = given(judge, "train", long_batch(judge));
    needs_values(judge, "a2.3", run);
    judge.time_as_right(run, "a2.3", {30, 30},
                        "all gradients go in one all-reduce, once a step");
}

Criterion criterion(const std::string& id, const std::string& title, int points,
                    const char* step, std::function<void(Judge&)> judge) {
    return {id, title, points, lesson_step("gradient-accumulation", step),
            std::move(judge)};
}

std::vector<Criterion> gradient_criteria() {
    std::vector<Criterion> all{
        criterion(
            "a2.1-values",
            "shard_gradient leaves the gradient of the mean over the shard's rows", 15,
            "accumulate",
            [](Judge& judge) { judge_shard_gradients(judge, whole_batches(judge)); }),
        criterion("a2.1-rests",
                  "rows of a smaller last micro-batch count as much as all others", 10,
                  "accumulate",
                  [](Judge& judge) { judge_shard_gradients(judge, odd_batches(judge)); }),
        criterion("a2.1-before",
                  "what gradients held before the call is not in what shard_gradient "
                  "leaves",
                  10, "accumulate",
                  [](Judge& judge) {
                      judge_shard_gradients(judge, batches_with_gradients(judge));
                  }),
        criterion("a2.1-memory", "shard_gradient holds one micro-batch's activations", 15,
                  "measure",
                  [](Judge& judge) { judge_memory(judge, "a2.1", "shard_gradient"); }),
        criterion(
            "a2.2-values",
            "batch_gradient leaves every rank the gradient of the mean over all rows", 15,
            "average",
            [](Judge& judge) {
                for (const auto& run :
                     given(judge, "batch_gradient", whole_batches(judge)))
                    judge_batch_gradient(judge, run);
            }),
        criterion("a2.2-bytes",
                  "batch_gradient is one all-reduce of the gradients and the loss", 15,
                  "ring",
                  [](Judge& judge) { judge_bytes(judge, "a2.2", "batch_gradient"); })};
    for (const std::size_t later : {1, 2, 4})
        all[later].after = {"a2.1-values"};
    return all;
}

std::vector<Criterion> training_criteria() {
    std::vector<Criterion> all{
        criterion("a2.3-values", "train ends with one device's parameters on every rank",
                  5, "distribute",
                  [](Judge& judge) {
                      for (const auto& run : given(judge, "train", all_batches(judge)))
                          judge_parameters(judge, run);
                  }),
        criterion("a2.3-losses",
                  "train gives the mean loss over all rows before each step", 5,
                  "average",
                  [](Judge& judge) {
                      for (const auto& run : given(judge, "train", all_batches(judge)))
                          judge_losses(judge, run);
                  }),
        criterion("a2.3-bytes", "train is one all-reduce a step, and nothing else", 3,
                  "ring", [](Judge& judge) { judge_bytes(judge, "a2.3", "train"); }),
        criterion("a2.3-memory",
                  "batch_gradient and train hold one micro-batch's activations", 3,
                  "measure",
                  [](Judge& judge) {
                      judge_memory(judge, "a2.2", "batch_gradient");
                      judge_memory(judge, "a2.3", "train");
                  }),
        criterion("a2.3-time", "a step takes a rank's micro-batches and one all-reduce",
                  4, "measure", judge_time)};
    for (const std::size_t of_values : {0, 1})
        all[of_values].after = {"a2.1-values", "a2.1-rests", "a2.1-before",
                                "a2.2-values"};
    all[1].needs = {"a2.3-values"};
    return all;
}

}  // namespace

Assignment data_parallel_assignment() {
    std::vector<Criterion> criteria = gradient_criteria();
    std::ranges::move(training_criteria(), std::back_inserter(criteria));
    return {"data-parallel",
            "Gradient accumulation and data parallelism",
            "The gradient of a batch that ranks have dealt out unequally: micro-batches "
            "on each, one all-reduce a step, and training with it.",
            {"data_parallel.hpp", "data_parallel.cpp", "adapters.cpp"},
            std::move(criteria),
            data_parallel_solutions};
}

}  // namespace lockstep::lessons
