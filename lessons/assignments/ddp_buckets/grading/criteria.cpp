#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/micro_batches.hpp"
#include "lessons/grader/judge.hpp"
#include "src/core/host_tensor.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kTrainedSteps = 3;
constexpr std::int64_t kRateInThousandths = 250;

struct BucketCase : MicroBatchCase {
    std::int64_t first_bytes = 0;
    std::int64_t bytes = 0;
};

const TaskResult& run_case(Judge& judge, const std::string& task, const BucketCase& one) {
    RankTask same{task, {}, {}};
    for (const auto& [name, values] : draw_network(judge, one))
        same.tensors.emplace(name, TaskTensor{values, MemoryCategory::parameters});
    same.numbers = {{"layers", one.layers},
                    {"first bytes", one.first_bytes},
                    {"bytes", one.bytes},
                    {"steps", kTrainedSteps},
                    {"learning rate in thousandths", kRateInThousandths}};
    return run_on_rows(judge, one, {one.rows.size(), same});
}

constexpr std::int64_t kHuge = 1 << 30;

/// A bucket a parameter, small ones, one for all, and sizes that nobody has seen;
/// accumulation, ranks with fewer micro-batches, and one without any.
std::vector<BucketCase> bucket_cases(const Judge& judge) {
    return {{{"a bucket a parameter", {{4}, {2}}}, 0, 0},
            {{"small buckets", {{3, 2, 1}, {2, 2, 2}, {1, 4, 3}}}, 60, 500},
            {{"one bucket", {{5, 1}}}, kHuge, kHuge},
            {{"a large first bucket", {{2, 2}, {}, {6}, {1, 1, 1}}}, 700, 100},
            {draw_case(judge, "drawn buckets", false),
             judge.draw("first bytes", 100, 300), judge.draw("bytes", 400, 900)}};
}

/// For memory and time: layers whose all-reduce takes about as long as their backward.
const BucketCase kOverlapped{
    {"a bucket a layer", {{24, 24}, {24, 24}, {24, 24}, {24, 24}}, 6, 128, 64, 4},
    4000,
    150'000};

/// The buckets' elements if gradient i (from 1) is filled with i.
std::vector<HostTensor> expected_buckets(const BucketCase& one) {
    const auto parameters = one.parameters();
    std::vector<std::vector<double>> buckets;
    for (std::size_t i = parameters.size(); i-- > 0;) {
        const auto elements = static_cast<std::size_t>(parameters[i].second.elements());
        const std::int64_t most = buckets.size() == 1 ? one.first_bytes : one.bytes;
        if (buckets.empty() ||
            static_cast<std::int64_t>((buckets.back().size() + elements) * 8) > most)
            buckets.emplace_back();
        buckets.back().insert(buckets.back().end(), elements, static_cast<double>(i + 1));
    }
    std::vector<HostTensor> tensors;
    tensors.reserve(buckets.size());
    for (const std::vector<double>& bucket : buckets)
        tensors.push_back(HostTensor::of<double>(
            Shape::flat(static_cast<std::int64_t>(bucket.size())), bucket));
    return tensors;
}

void judge_buckets(Judge& judge) {
    for (const BucketCase& one : bucket_cases(judge)) {
        const TaskResult& result = run_case(judge, "make_buckets", one);
        const std::vector<HostTensor> expected = expected_buckets(one);
        for (std::size_t rank = 0; rank < one.rows.size(); ++rank) {
            const auto given = result.ranks[rank].tensors.size();
            judge.ask(given == expected.size(),
                      one.on_rank(rank, fmt::format("{} buckets", expected.size())),
                      fmt::format("{} buckets", given),
                      "each holds a parameter at least, and ends before its bytes would "
                      "be exceeded");
            for (std::size_t i = 0; i < expected.size(); ++i) {
                const std::string bucket = fmt::format("bucket {}", i);
                judge.same(one.on_rank(
                               rank, bucket + ", if gradient i is filled with i, from 1"),
                           judge.left(result.ranks[rank], bucket), expected[i]);
            }
        }
        judge.ask(result.report.messages_sent() == 0, one.name() + ": no messages",
                  fmt::format("{} messages", result.report.messages_sent()));
    }
}

void judge_gradients(Judge& judge, const BucketCase& one) {
    const TaskResult& result = run_case(judge, "batch_gradient", one);
    const MeanLoss expected =
        mean_loss(one.layer_names(), draw_network(judge, one), draw_rows(judge, one));
    for (std::size_t rank = 0; rank < one.rows.size(); ++rank)
        for (const auto& [name, gradient] : expected.gradients)
            judge.close(one.on_rank(rank, "the gradient of " + name),
                        judge.left(result.ranks[rank], name), gradient);
}

/// Ranks have parts of a loss, or of several: their sum is the mean.
void judge_parts(Judge& judge, const BucketCase& one, const TaskResult& result,
                 const std::string& name, const std::vector<double>& expected) {
    const Shape shape = Shape::flat(static_cast<std::int64_t>(expected.size()));
    HostTensor sum(shape, DType::f64);
    for (const RankResult& rank : result.ranks) {
        const HostTensor& part = judge.left(rank, name);
        Judge::form(one.name() + ": the loss", part, shape);
        for (std::int64_t i = 0; i < sum.elements(); ++i)
            sum.set(i, sum.at(i) + part.at(i));
    }
    judge.close(one.name() + ": the sum of the ranks' parts of the mean loss", sum,
                HostTensor::of<double>(shape, expected));
}

void judge_batch(Judge& judge) {
    for (const BucketCase& one : bucket_cases(judge)) {
        judge_gradients(judge, one);
        const TaskResult& result = run_case(judge, "batch_gradient", one);
        judge_parts(
            judge, one, result, "loss",
            {mean_loss(one.layer_names(), draw_network(judge, one), draw_rows(judge, one))
                 .loss});
    }
}

void judge_batch_bytes(Judge& judge) {
    for (const BucketCase& one : bucket_cases(judge)) {
        judge_gradients(judge, one);
        const TaskResult& result = run_case(judge, "batch_gradient", one);
        for (std::size_t rank = 0; rank < one.rows.size(); ++rank) {
            const RankReport& left = result.report.ranks[rank];
            const std::string name = "a7.2: " + one.on_rank(rank, "");
            judge.as_reference(name + "sent", "bytes", left.bytes_sent());
            judge.as_reference(name + "messages", "messages", left.messages_sent());
        }
    }
}

void judge_batch_memory(Judge& judge) {
    judge_gradients(judge, kOverlapped);
    const TaskResult& result = run_case(judge, "batch_gradient", kOverlapped);
    for (std::size_t rank = 0; rank < kOverlapped.rows.size(); ++rank)
        judge.as_reference("a7.2: " + kOverlapped.on_rank(rank, "peak"),
                           "bytes of memory", result.report.ranks[rank].memory.peak,
                           {100, 10});
}

void judge_batch_time(Judge& judge) {
    judge_gradients(judge, kOverlapped);
    const TaskResult& result = run_case(judge, "batch_gradient", kOverlapped);
    judge.as_reference("a7.2: " + kOverlapped.name() + ": time", kPicoseconds,
                       result.report.makespan(), {20, 5});
}

Trained trained_alone(const Judge& judge, const BucketCase& one) {
    return train_alone(one.layer_names(), draw_network(judge, one), draw_rows(judge, one),
                       kTrainedSteps, kRateInThousandths / 1000.0);
}

void judge_trained_parameters(Judge& judge, const BucketCase& one) {
    const TaskResult& result = run_case(judge, "train", one);
    for (const auto& [name, expected] : trained_alone(judge, one).network)
        for (std::size_t rank = 0; rank < one.rows.size(); ++rank) {
            judge.close(one.on_rank(rank, name), judge.left(result.ranks[rank], name),
                        expected);
            judge.same(one.on_rank(rank, name + " as on rank 0"),
                       judge.left(result.ranks[rank], name),
                       judge.left(result.ranks.front(), name));
        }
}

void judge_training(Judge& judge) {
    for (const BucketCase& one : bucket_cases(judge))
        judge_trained_parameters(judge, one);
}

void judge_training_losses(Judge& judge) {
    for (const BucketCase& one : bucket_cases(judge))
        judge_parts(judge, one, run_case(judge, "train", one), "losses",
                    trained_alone(judge, one).losses);
}

void judge_training_bytes(Judge& judge) {
    for (const BucketCase& one : bucket_cases(judge)) {
        judge_trained_parameters(judge, one);
        const TaskResult& result = run_case(judge, "train", one);
        for (std::size_t rank = 0; rank < one.rows.size(); ++rank)
            judge.as_reference("a7.3: " + one.on_rank(rank, "sent"), "bytes",
                               result.report.ranks[rank].bytes_sent());
    }
}

Criterion criterion(const std::string& id, const std::string& title, int points,
                    std::function<void(Judge&)> judge) {
    return {id, title, points, "data-parallel, step 4", std::move(judge)};
}

std::vector<Criterion> bucket_criteria() {
    return {
        criterion("a7.1-buckets",
                  "buckets hold the gradients in reverse order, as views, within limits",
                  20, judge_buckets),
        criterion("a7.2-values",
                  "batch_gradient leaves every rank the gradient of the mean over all "
                  "rows",
                  20, judge_batch),
        criterion("a7.2-bytes", "batch_gradient is one all-reduce a bucket", 15,
                  judge_batch_bytes),
        criterion("a7.2-memory", "batch_gradient holds the gradients once", 10,
                  judge_batch_memory),
        criterion("a7.2-time", "buckets travel while backward goes on", 15,
                  judge_batch_time),
        criterion("a7.3-values", "train ends with one device's parameters on every rank",
                  10, judge_training),
        criterion("a7.3-losses",
                  "the ranks' parts of each step's loss add up to its mean", 5,
                  judge_training_losses),
        criterion("a7.3-bytes", "train is one all-reduce a bucket and step", 5,
                  judge_training_bytes)};
}

}  // namespace

Assignment ddp_buckets_assignment() {
    return {"ddp-buckets",
            "Buckets that travel while backward goes on",
            "Gradients in buckets, each all-reduced as soon as its last gradient of the "
            "step is there, as PyTorch's DistributedDataParallel does it.",
            {"ddp_buckets.hpp", "ddp_buckets.cpp", "adapters.cpp"},
            bucket_criteria()};
}

}  // namespace lockstep::lessons
