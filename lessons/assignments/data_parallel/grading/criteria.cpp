#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/classifier.hpp"
#include "lessons/grader/judge.hpp"
#include "src/core/host_tensor.hpp"

namespace lockstep::lessons {

namespace {

// One device's network: logits = W2 tanh(W1 x + b1) + b2 of each row.
const std::vector<std::string> kLayers{"hidden", "output"};

// Steps of training, and by how much.
constexpr int kSteps = 3;
constexpr std::int64_t kThousandths = 250;
constexpr double kLearningRate = kThousandths / 1000.0;

/// How the rows of a batch are dealt out, and to which network.
struct DealtBatch {
    std::vector<std::int64_t> shards;  ///< rows of each rank
    std::int64_t most_rows = 0;        ///< of a micro-batch
    std::int64_t hidden = 9;
    std::int64_t features = 6;
    std::int64_t classes = 4;

    std::size_t ranks() const { return shards.size(); }
    std::int64_t rows() const {
        return std::accumulate(shards.begin(), shards.end(), std::int64_t{0});
    }
    std::string name() const {
        return fmt::format("{} rank{} with {} rows, {} at once", ranks(),
                           ranks() == 1 ? "" : "s", fmt::join(shards, ", "), most_rows);
    }
};

/// Draws the network's tensors.
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

/// Draws the rows of each rank.
std::vector<ClassifiedRows> dealt_rows(const Judge& judge, const DealtBatch& batch) {
    std::vector<ClassifiedRows> shards;
    for (const std::int64_t rows : batch.shards)
        shards.push_back(
            draw_rows(judge, fmt::format("{}, rank {}", batch.name(), shards.size()),
                      rows, batch.features, batch.classes));
    return shards;
}

/// Runs the task with the batch.
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
    for (const ClassifiedRows& shard : dealt_rows(judge, batch)) {
        RankTask& own = asked.ranks.emplace_back(same);
        own.tensors.emplace("x", TaskTensor{shard.x});
        own.tensors.emplace("targets", TaskTensor{shard.targets});
    }
    return judge.run(asked);
}

/// One rank, ranks without rows, shards of less than a micro-batch, last micro-batches of
/// any size, and a batch that nobody has seen.
std::vector<DealtBatch> batches(const Judge& judge) {
    DealtBatch drawn{{}, judge.draw("rows at once", 2, 4)};
    const std::int64_t ranks = judge.draw("ranks", 5, 7);
    const std::int64_t idle = judge.draw("rank without rows", 0, ranks - 1);
    for (std::int64_t rank = 0; rank < ranks; ++rank)
        drawn.shards.push_back(
            rank == idle ? 0 : judge.draw(fmt::format("rows of rank {}", rank), 1, 11));
    return {{{7}, 3}, {{5, 0, 9}, 4}, {{12, 1}, 5}, {{0, 3, 0, 2}, 8}, drawn};
}

// For memory and time; micro-batches are whole, so that a mean of unequal ones is right.
/// One where a micro-batch's activations are most of what a device holds.
const DealtBatch kWide{{512, 64, 128}, 64, 64};
/// One with many micro-batches.
const DealtBatch kLong{{96, 40, 0, 64}, 8};

std::string on_rank(const DealtBatch& batch, std::size_t rank, const std::string& what) {
    return fmt::format("{}: rank {}: {}", batch.name(), rank, what);
}

/// Returns what each rank is to have: the mean over its own rows, or over all.
std::vector<MeanLoss> means(const Judge& judge, const std::string& task,
                            const DealtBatch& batch) {
    const NetworkTensors network = initial_network(judge, batch);
    const std::vector<ClassifiedRows> shards = dealt_rows(judge, batch);
    if (task == "batch_gradient")
        return std::vector(batch.ranks(), mean_loss(kLayers, network, shards));
    std::vector<MeanLoss> own;
    own.reserve(shards.size());
    for (const ClassifiedRows& shard : shards)
        own.push_back(mean_loss(kLayers, network, {shard}));
    return own;
}

void judge_mean_losses(Judge& judge, const std::string& task, const DealtBatch& batch) {
    const TaskResult& result = run_task(judge, task, batch);
    const std::vector<MeanLoss> expected = means(judge, task, batch);
    for (std::size_t rank = 0; rank < batch.ranks(); ++rank)
        judge.close(on_rank(batch, rank, "the mean loss"),
                    judge.left(result.ranks[rank], "loss"),
                    HostTensor::of<double>({1}, std::vector{expected[rank].loss}));
}

void judge_gradients(Judge& judge, const std::string& task, const DealtBatch& batch) {
    const TaskResult& result = run_task(judge, task, batch);
    const std::vector<MeanLoss> expected = means(judge, task, batch);
    for (std::size_t rank = 0; rank < batch.ranks(); ++rank)
        for (const auto& [name, gradient] : expected[rank].gradients)
            judge.close(on_rank(batch, rank, "the gradient of " + name),
                        judge.left(result.ranks[rank], name), gradient);
}

void judge_shard_values(Judge& judge) {
    for (const DealtBatch& batch : batches(judge)) {
        judge_mean_losses(judge, "shard_gradient", batch);
        judge_gradients(judge, "shard_gradient", batch);
        const TaskResult& result = run_task(judge, "shard_gradient", batch);
        judge.ask(result.report.messages_sent() == 0, batch.name() + ": no messages",
                  fmt::format("{} messages", result.report.messages_sent()));
    }
}

void judge_batch_values(Judge& judge) {
    for (const DealtBatch& batch : batches(judge)) {
        judge_mean_losses(judge, "batch_gradient", batch);
        judge_gradients(judge, "batch_gradient", batch);
    }
}

Trained trained(const Judge& judge, const DealtBatch& batch) {
    return train_alone(kLayers, initial_network(judge, batch), dealt_rows(judge, batch),
                       kSteps, kLearningRate);
}

void judge_parameters(Judge& judge, const DealtBatch& batch) {
    const TaskResult& result = run_task(judge, "train", batch);
    for (const auto& [name, expected] : trained(judge, batch).network)
        for (std::size_t rank = 0; rank < batch.ranks(); ++rank)
            judge.close(on_rank(batch, rank, name), judge.left(result.ranks[rank], name),
                        expected);
}

void judge_trained(Judge& judge) {
    for (const DealtBatch& batch : batches(judge)) {
        judge_parameters(judge, batch);
        const TaskResult& result = run_task(judge, "train", batch);
        for (std::size_t rank = 0; rank < batch.ranks(); ++rank)
            for (const auto& [name, values] : initial_network(judge, batch))
                judge.same(on_rank(batch, rank, name + " as on rank 0"),
                           judge.left(result.ranks[rank], name),
                           judge.left(result.ranks.front(), name));
    }
}

void judge_losses(Judge& judge) {
    for (const DealtBatch& batch : batches(judge)) {
        const TaskResult& result = run_task(judge, "train", batch);
        const HostTensor expected =
            HostTensor::of<double>({kSteps}, trained(judge, batch).losses);
        for (std::size_t rank = 0; rank < batch.ranks(); ++rank)
            judge.close(on_rank(batch, rank, "the mean loss of each step"),
                        judge.left(result.ranks[rank], "losses"), expected);
    }
}

/// A run that leaves the right gradients or parameters. Bytes, memory and time count of
/// no others: doing nothing is fast.
const TaskResult& run_right(Judge& judge, const std::string& task,
                            const DealtBatch& batch) {
    if (task == "train")
        judge_parameters(judge, batch);
    else
        judge_gradients(judge, task, batch);
    return run_task(judge, task, batch);
}

std::int64_t bytes_received(const RankReport& rank) {
    std::int64_t bytes = 0;
    for (const Traffic& traffic : rank.traffic)
        bytes += traffic.bytes_received;
    return bytes;
}

/// The buffer may have some elements more than it must.
constexpr Allowed kBytesAllowed{3, 8};

void judge_bytes(Judge& judge, const std::string& exercise, const std::string& task) {
    for (const DealtBatch& batch : batches(judge)) {
        const TaskResult& result = run_right(judge, task, batch);
        for (std::size_t rank = 0; rank < batch.ranks(); ++rank) {
            const RankReport& left = result.report.ranks[rank];
            const std::string name = exercise + ": " + on_rank(batch, rank, "");
            judge.as_reference(name + "sent", "bytes", left.bytes_sent(), kBytesAllowed);
            judge.as_reference(name + "received", "bytes", bytes_received(left),
                               kBytesAllowed);
            judge.as_reference(name + "messages", "messages", left.messages_sent());
        }
    }
}

void judge_memory(Judge& judge, const std::string& exercise, const std::string& task) {
    const TaskResult& result = run_right(judge, task, kWide);
    for (std::size_t rank = 0; rank < kWide.ranks(); ++rank)
        judge.as_reference(exercise + ": " + on_rank(kWide, rank, "peak"),
                           "bytes of memory", result.report.ranks[rank].memory.peak,
                           {100, 50});
}

void judge_time(Judge& judge) {
    const TaskResult& result = run_right(judge, "train", kLong);
    judge.as_reference("a2.3: " + kLong.name() + ": time", kPicoseconds,
                       result.report.makespan(), {30, 30});
}

Criterion criterion(const std::string& id, const std::string& title, int points, int step,
                    std::function<void(Judge&)> judge) {
    return {id, title, points, fmt::format("gradient-accumulation, step {}", step),
            std::move(judge)};
}

std::vector<Criterion> all_criteria() {
    return {
        criterion("a2.1-values",
                  "shard_gradient leaves the gradient of the mean over the shard's rows",
                  15, 1, judge_shard_values),
        criterion("a2.1-memory", "shard_gradient holds one micro-batch's activations", 10,
                  4, [](Judge& judge) { judge_memory(judge, "a2.1", "shard_gradient"); }),
        criterion(
            "a2.2-values",
            "batch_gradient leaves every rank the gradient of the mean over all rows", 20,
            3, judge_batch_values),
        criterion("a2.2-bytes",
                  "batch_gradient is one all-reduce of the gradients and the loss", 15, 4,
                  [](Judge& judge) { judge_bytes(judge, "a2.2", "batch_gradient"); }),
        criterion("a2.3-values", "train ends with one device's parameters on every rank",
                  15, 2, judge_trained),
        criterion("a2.3-losses",
                  "train gives the mean loss over all rows before each step", 5, 3,
                  judge_losses),
        criterion("a2.3-bytes", "train is one all-reduce a step, and nothing else", 5, 4,
                  [](Judge& judge) { judge_bytes(judge, "a2.3", "train"); }),
        criterion("a2.3-memory",
                  "batch_gradient and train hold one micro-batch's activations", 5, 4,
                  [](Judge& judge) {
                      judge_memory(judge, "a2.2", "batch_gradient");
                      judge_memory(judge, "a2.3", "train");
                  }),
        criterion("a2.3-time",
                  "a step takes the largest shard's micro-batches and one all-reduce", 10,
                  4, judge_time)};
}

}  // namespace

Assignment data_parallel_assignment() {
    return {"data-parallel",
            "Gradient accumulation and data parallelism",
            "The gradient of a batch that ranks have dealt out unequally: micro-batches "
            "on each, one all-reduce a step, and training with it.",
            {"data_parallel.hpp", "data_parallel.cpp", "adapters.cpp"},
            all_criteria()};
}

}  // namespace lockstep::lessons
