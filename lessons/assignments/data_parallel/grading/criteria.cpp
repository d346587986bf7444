#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/cost_of.hpp"
#include "lessons/assignments/data_parallel/grading/dealt_batch.hpp"
#include "lessons/assignments/needs.hpp"
#include "lessons/grader/judge.hpp"
#include "src/cost/collectives.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/bucketed_data_parallel.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep::lessons {

namespace {

using data_parallel::DealtBatch;
using data_parallel::kLearningRate;
using data_parallel::kSteps;
using data_parallel::mean_of;
using data_parallel::Mistakes;

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
            const std::string of = fmt::format(" of rank {}", rank);
            batch.shards.push_back(batch.most_rows *
                                       dealer.draw("micro-batches" + of, 1, 2) +
                                   dealer.draw("rest" + of, 1, batch.most_rows - 2));
        }
        return batch;
    };
    DealtBatch some = odd("odd, with an idle rank", 3);
    some.shards[static_cast<std::size_t>(judge.draw("odd idle rank", 0, 2))] = 0;
    return {
        odd("odd, one rank", 1), some,
        odd("odd, more ranks", static_cast<std::size_t>(judge.draw("odd ranks", 5, 6)))};
}

/// Ranks with as many rows each, in whole micro-batches. What a run costs is looked at in
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

// Students' ranks make this of them.

const TaskResult& run_task(Judge& judge, const std::string& task,
                           const DealtBatch& batch) {
    const Mistakes drawn(judge, batch);
    RankTask same{task, {}, {}};
    for (const auto& [name, values] : drawn.network())
        same.tensors.emplace(name, TaskTensor{values, MemoryCategory::parameters});
    same.numbers = {{"batch rows", batch.rows()},
                    {"most rows", batch.most_rows},
                    {"gradients before", batch.held},
                    {"steps", kSteps},
                    {"learning rate in thousandths", data_parallel::kThousandths}};
    TaskRun asked{batch.name(), {}};
    for (const ClassifiedRows& shard : drawn.shards()) {
        RankTask& own = asked.ranks.emplace_back(same);
        own.tensors.emplace("x", TaskTensor{shard.x});
        own.tensors.emplace("targets", TaskTensor{shard.targets});
    }
    return judge.run(asked);
}

std::string on_rank(const DealtBatch& batch, std::size_t rank, const std::string& what) {
    return fmt::format("{}: rank {}: {}", batch.name(), rank, what);
}

/// Says what a mean is asked for: its gradients, or its loss, too.
enum class Asked : std::uint8_t { all, gradients };

/// Judges loss and gradients: of each rank the mean over its own rows, or over all.
void judge_means(Judge& judge, const std::string& task, const DealtBatch& batch,
                 Asked asked = Asked::all) {
    const bool of_batch = task == "batch_gradient";
    const TaskResult& result = run_task(judge, task, batch);
    const Mistakes mistakes(judge, batch);
    std::vector<NetworkTensors> means;
    means.reserve(batch.ranks());
    for (const ClassifiedRows& shard : mistakes.shards())
        means.push_back(
            mean_of(mistakes.network(),
                    of_batch ? mistakes.shards() : std::vector<ClassifiedRows>{shard}));
    for (const auto& each : means.front()) {
        const std::string& name = each.first;
        const bool loss = name == "loss";
        if (loss && asked == Asked::gradients) continue;
        OfRanks expected;
        expected.reserve(means.size());
        for (const NetworkTensors& mean : means)
            expected.push_back(mean.at(name));
        ask_of_ranks(
            judge, result, name,
            [&](std::size_t rank) {
                return on_rank(batch, rank,
                               loss ? "the mean loss" : "the gradient of " + name);
            },
            expected,
            [&](const OfRanks& left) {
                return of_batch ? mistakes.in_batch(name, left)
                                : mistakes.in_shard(name, left);
            });
    }
}

void judge_shards(Judge& judge, const std::vector<DealtBatch>& batches) {
    for (const DealtBatch& batch : batches) {
        judge_means(judge, "shard_gradient", batch);
        const TaskResult& result = run_task(judge, "shard_gradient", batch);
        judge.ask(result.report.messages_sent() == 0, batch.name() + ": no messages",
                  fmt::format("{} messages", result.report.messages_sent()));
    }
}

void judge_whole_shards(Judge& judge) {
    judge_shards(judge, whole_batches(judge));
}

void judge_odd_shards(Judge& judge) {
    ask_unless_said(judge, "a2.1-values", judge_whole_shards,
                    [](Judge& asking) { judge_shards(asking, odd_batches(asking)); });
}

/// Whatever gradients held before, of a shard without rows, too.
void judge_shards_anew(Judge& judge) {
    ask_unless_said(judge, "a2.1-values", judge_whole_shards, [](Judge& asking) {
        std::vector<DealtBatch> batches = whole_batches(asking);
        for (DealtBatch& batch : batches)
            batch.held = asking.draw("gradients before", 2, 9);
        judge_shards(asking, batches);
    });
}

void judge_batches(Judge& judge) {
    ask_unless_said(judge, "a2.1-values", judge_whole_shards, [](Judge& asking) {
        for (const DealtBatch& batch : whole_batches(asking))
            judge_means(asking, "batch_gradient", batch);
    });
}

/// Judges `then` of training, unless a criterion before it has said what is wrong.
void judge_of_training(Judge& judge, const std::function<void(Judge&)>& then) {
    ask_unless_said(judge, "a2.1-values", judge_whole_shards, [&](Judge& again) {
        ask_unless_said(again, "a2.1-rests", judge_odd_shards, [&](Judge& more) {
            ask_unless_said(more, "a2.1-before", judge_shards_anew, [&](Judge& last) {
                ask_unless_said(last, "a2.2-values", judge_batches, then);
            });
        });
    });
}

void judge_parameters(Judge& judge, const DealtBatch& batch) {
    const TaskResult& result = run_task(judge, "train", batch);
    const SgdTraining training = Mistakes(judge, batch).training();
    const NetworkTensors trained = training.alone().network;
    for (const auto& parameter : trained) {
        const std::string& name = parameter.first;
        ask_of_ranks(
            judge, result, name,
            [&](std::size_t rank) { return on_rank(batch, rank, name); },
            OfRanks(batch.ranks(), parameter.second),
            [&](const OfRanks& left) {
                return suspected_training(training, name, left);
            });
    }
    for (std::size_t rank = 0; rank < batch.ranks(); ++rank)
        for (const auto& [name, values] : training.network)
            judge.same(on_rank(batch, rank, name + " as on rank 0"),
                       judge.left(result.ranks[rank], name),
                       judge.left(result.ranks.front(), name));
}

std::vector<DealtBatch> trained_batches(const Judge& judge) {
    std::vector<DealtBatch> all = whole_batches(judge);
    for (const DealtBatch& odd : odd_batches(judge))
        all.push_back(odd);
    return all;
}

void judge_trained(Judge& judge) {
    judge_of_training(judge, [](Judge& asking) {
        for (const DealtBatch& batch : trained_batches(asking))
            judge_parameters(asking, batch);
    });
}

void judge_losses(Judge& judge) {
    needs(judge, "a2.3-values", judge_trained);
    judge_of_training(judge, [](Judge& asking) {
        for (const DealtBatch& batch : trained_batches(asking)) {
            const TaskResult& result = run_task(asking, "train", batch);
            const Mistakes mistakes(asking, batch);
            const std::vector<double> losses = mistakes.training().alone().losses;
            ask_of_ranks(
                asking, result, "losses",
                [&](std::size_t rank) {
                    return on_rank(batch, rank, "the mean loss of each step");
                },
                OfRanks(batch.ranks(), HostTensor::of<double>({kSteps}, losses)),
                [&](const OfRanks& left) { return mistakes.in_losses(left); });
        }
    });
}

// A run costs this.

/// Returns what training costs with the library's own strategy: one bucket of all
/// gradients, which is all-reduced when they are there.
RunReport cost_of_training(const DealtBatch& batch) {
    return cost_of(static_cast<int>(batch.ranks()), [&](Rank& rank) {
        Device& device = rank.device();
        const std::int64_t rows = batch.shards[static_cast<std::size_t>(rank.index())];
        const Tensor x = device.empty({rows, batch.features}, DType::f64);
        const Tensor targets = device.zeros({rows}, DType::i32);
        Sequential network;
        network.add<Linear>(ParameterInit{device, DType::f64, 0, "hidden"},
                            batch.features, batch.hidden);
        network.add<Tanh>(device);
        network.add<Linear>(ParameterInit{device, DType::f64, 0, "output"}, batch.hidden,
                            batch.classes);
        network.set_input_gradient(false);
        std::vector<MicroBatch> micro_batches;
        for (std::int64_t begin = 0; begin < rows; begin += batch.most_rows)
            micro_batches.push_back(
                {x.rows(begin, batch.most_rows), targets.rows(begin, batch.most_rows)});
        declare_replicas_of(rank.world(), network);
        BucketedDataParallel sync(
            device, rank.world(), network.parameters(),
            {BucketSizes::all_in_one(), /*broadcast=*/false, /*rebuild=*/false});
        Sgd optimizer(network.parameters(), {kLearningRate, 0, 0});
        for (int step = 0; step < kSteps; ++step)
            train_step(device, network, cross_entropy_loss, micro_batches, sync,
                       optimizer);
    });
}

/// Returns a run that leaves the right gradients or parameters; if it does not, `id` has
/// said so. Bytes, memory and time count of no others: doing nothing is fast.
const TaskResult& run_right(Judge& judge, const std::string& id, const std::string& task,
                            const DealtBatch& batch) {
    needs(judge, id, [&](Judge& asking) {
        if (task == "train")
            judge_parameters(asking, batch);
        else
            judge_means(asking, task, batch, Asked::gradients);
    });
    return run_task(judge, task, batch);
}

std::int64_t bytes_received(const RankReport& rank) {
    std::int64_t bytes = 0;
    for (const Traffic& traffic : rank.traffic)
        bytes += traffic.bytes_received;
    return bytes;
}

/// The buffer may have some elements more than it must, which has 64 at least; and which
/// chunks a ring hands on, whose sizes differ by an element, is up to it.
constexpr Allowed kBytesAllowed{3, 8};

/// Judges bytes and messages of so many ring all-reduces of all gradients and the loss.
void judge_traffic(Judge& judge, const std::string& exercise, const DealtBatch& batch,
                   const RunReport& report, std::int64_t all_reduces) {
    const CollectiveCall call{Verb::all_reduce, batch.elements() + 1,
                              bytes_of(DType::f64), static_cast<int>(batch.ranks())};
    for (std::size_t rank = 0; rank < batch.ranks(); ++rank) {
        const CollectiveTraffic each = collective_traffic(call, static_cast<int>(rank));
        const RankReport& left = report.ranks[rank];
        const std::string name = exercise + ": " + on_rank(batch, rank, "");
        judge.figure(name + "messages", "messages", all_reduces * each.messages_sent,
                     left.messages_sent());
        judge.figure(name + "sent", "bytes", all_reduces * each.bytes_sent,
                     left.bytes_sent(), kBytesAllowed);
        judge.figure(name + "received", "bytes", all_reduces * each.bytes_received,
                     bytes_received(left), kBytesAllowed);
    }
}

/// Asks for right values where all shards are equal, and that all other runs come to
/// their end: what is wrong with unequal shards is said elsewhere.
void judge_bytes(Judge& judge, const std::string& exercise, const std::string& task,
                 std::int64_t all_reduces) {
    const std::string values = exercise + "-values";
    const DealtBatch even = small_batch(judge);
    judge_traffic(judge, exercise, even, run_right(judge, values, task, even).report,
                  all_reduces);
    for (const DealtBatch& batch : trained_batches(judge)) {
        const TaskResult* result = nullptr;
        needs(judge, values,
              [&](Judge& asking) { result = &run_task(asking, task, batch); });
        judge_traffic(judge, exercise, batch, result->report, all_reduces);
    }
}

void judge_memory(Judge& judge, const std::string& exercise, const std::string& task) {
    const DealtBatch wide = wide_batch(judge);
    const TaskResult& result = run_right(judge, exercise + "-values", task, wide);
    const std::int64_t peak = cost_of_training(wide).most_held();
    for (std::size_t rank = 0; rank < wide.ranks(); ++rank)
        judge.figure(exercise + ": " + on_rank(wide, rank, "peak"), "bytes of memory",
                     peak, result.report.ranks[rank].memory.peak, {100, 50});
}

void judge_time(Judge& judge) {
    const DealtBatch batch = long_batch(judge);
    const TaskResult& result = run_right(judge, "a2.3-values", "train", batch);
    judge.figure("a2.3: " + batch.name() + ": time", kPicoseconds,
                 cost_of_training(batch).makespan(), result.report.makespan(), {30, 30},
                 "all gradients go in one all-reduce, once a step");
}

Criterion criterion(const std::string& id, const std::string& title, int points,
                    const char* step, std::function<void(Judge&)> judge) {
    return {id, title, points, lesson_step("gradient-accumulation", step),
            std::move(judge)};
}

std::vector<Criterion> all_criteria() {
    return {
        criterion("a2.1-values",
                  "shard_gradient leaves the gradient of the mean over the shard's rows",
                  15, "accumulate", judge_whole_shards),
        criterion("a2.1-rests",
                  "rows of a smaller last micro-batch count as much as all others", 10,
                  "accumulate", judge_odd_shards),
        criterion("a2.1-before",
                  "what gradients held before the call is not in what shard_gradient "
                  "leaves",
                  10, "accumulate", judge_shards_anew),
        criterion("a2.1-memory", "shard_gradient holds one micro-batch's activations", 15,
                  "measure",
                  [](Judge& judge) { judge_memory(judge, "a2.1", "shard_gradient"); }),
        criterion(
            "a2.2-values",
            "batch_gradient leaves every rank the gradient of the mean over all rows", 15,
            "average", judge_batches),
        criterion("a2.2-bytes",
                  "batch_gradient is one all-reduce of the gradients and the loss", 15,
                  "ring",
                  [](Judge& judge) { judge_bytes(judge, "a2.2", "batch_gradient", 1); }),
        criterion("a2.3-values", "train ends with one device's parameters on every rank",
                  5, "distribute", judge_trained),
        criterion("a2.3-losses",
                  "train gives the mean loss over all rows before each step", 5,
                  "average", judge_losses),
        criterion("a2.3-bytes", "train is one all-reduce a step, and nothing else", 3,
                  "ring",
                  [](Judge& judge) { judge_bytes(judge, "a2.3", "train", kSteps); }),
        criterion("a2.3-memory",
                  "batch_gradient and train hold one micro-batch's activations", 3,
                  "measure",
                  [](Judge& judge) {
                      judge_memory(judge, "a2.2", "batch_gradient");
                      judge_memory(judge, "a2.3", "train");
                  }),
        criterion("a2.3-time", "a step takes a rank's micro-batches and one all-reduce",
                  4, "measure", judge_time)};
}

}  // namespace

Assignment data_parallel_assignment() {
    return {"data-parallel",
            "Gradient accumulation and data parallelism",
            "The gradient of a batch that ranks have dealt out unequally: micro-batches "
            "on each, one all-reduce a step, and training with it.",
            {"data_parallel.hpp", "data_parallel.cpp", "adapters.cpp"},
            all_criteria(),
            data_parallel_solutions};
}

}  // namespace lockstep::lessons
