#include "lessons/assignments/data_parallel/grading/criteria.hpp"

#include <fmt/format.h>

#include "lessons/assignments/data_parallel/grading/dealt_batch.hpp"

namespace lockstep::lessons {

namespace {

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

/// What each rank is to have: the mean over its own rows, or over all.
std::vector<MeanLoss> means(const Judge& judge, const std::string& task,
                            const DealtBatch& batch) {
    const NetworkTensors network = initial_network(judge, batch);
    const std::vector<ClassifiedRows> parts = dealt_rows(judge, batch);
    if (task == "batch_gradient")
        return std::vector(batch.ranks(), mean_loss(network, parts));
    std::vector<MeanLoss> own;
    for (const ClassifiedRows& part : parts)
        own.push_back(mean_loss(network, {part}));
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

/// What one device that has all rows ends with, and its losses.
struct Trained {
    NetworkTensors network;
    std::vector<double> losses;
};

Trained trained(const Judge& judge, const DealtBatch& batch) {
    Trained alone{initial_network(judge, batch), {}};
    const std::vector<ClassifiedRows> rows = dealt_rows(judge, batch);
    for (int step = 0; step < kSteps; ++step) {
        const MeanLoss mean = mean_loss(alone.network, rows);
        alone.losses.push_back(mean.loss);
        for (auto& [name, values] : alone.network)
            for (std::int64_t i = 0; i < values.elements(); ++i)
                values.set(i,
                           values.at(i) - kLearningRate * mean.gradients.at(name).at(i));
    }
    return alone;
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

void judge_bytes(Judge& judge, const std::string& part, const std::string& task) {
    for (const DealtBatch& batch : batches(judge)) {
        const TaskResult& result = run_right(judge, task, batch);
        for (std::size_t rank = 0; rank < batch.ranks(); ++rank) {
            const RankReport& left = result.report.ranks[rank];
            const std::string name = part + ": " + on_rank(batch, rank, "");
            judge.as_reference(name + "sent", "bytes", left.bytes_sent(), kBytesAllowed);
            judge.as_reference(name + "received", "bytes", bytes_received(left),
                               kBytesAllowed);
            judge.as_reference(name + "messages", "messages", left.messages_sent());
        }
    }
}

void judge_memory(Judge& judge, const std::string& part, const std::string& task) {
    const TaskResult& result = run_right(judge, task, kWide);
    for (std::size_t rank = 0; rank < kWide.ranks(); ++rank)
        judge.as_reference(part + ": " + on_rank(kWide, rank, "peak"), "bytes of memory",
                           result.report.ranks[rank].memory.peak, {100, 50});
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
