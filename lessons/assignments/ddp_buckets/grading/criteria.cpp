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

constexpr int kTrainedSteps = 3;
constexpr std::int64_t kRateInThousandths = 250;

/// A network, its buckets, and the rows of each rank's micro-batches.
struct BucketCase {
    std::string buckets;  ///< "small buckets"
    std::int64_t first_bytes = 0;
    std::int64_t bytes = 0;
    std::vector<std::vector<std::int64_t>> rows;
    int layers = 3;
    std::int64_t width = 7;
    std::int64_t features = 5;
    std::int64_t classes = 4;

    std::size_t ranks() const { return rows.size(); }
    std::int64_t batch_rows() const {
        std::int64_t all = 0;
        for (const auto& own : rows)
            all = std::accumulate(own.begin(), own.end(), all);
        return all;
    }
    std::string name() const {
        std::vector<std::string> each;
        for (const auto& own : rows)
            each.push_back(own.empty() ? "none" : fmt::format("{}", fmt::join(own, "+")));
        return fmt::format("{}, {} rank{}, micro-batches of {} rows", buckets, ranks(),
                           ranks() == 1 ? "" : "s", fmt::join(each, ", "));
    }
    std::vector<std::string> layer_names() const {
        std::vector<std::string> names;
        names.reserve(static_cast<std::size_t>(layers));
        for (int layer = 0; layer < layers; ++layer)
            names.push_back(fmt::format("layer{}", layer));
        return names;
    }
    /// Names and shapes of the parameters, in the network's order.
    std::vector<std::pair<std::string, Shape>> parameters() const {
        std::vector<std::pair<std::string, Shape>> all;
        for (int layer = 0; layer < layers; ++layer) {
            const std::int64_t in = layer == 0 ? features : width;
            const std::int64_t out = layer + 1 == layers ? classes : width;
            const std::string name = fmt::format("layer{}", layer);
            all.emplace_back(name + ".weight", Shape{out, in});
            all.emplace_back(name + ".bias", Shape{out});
        }
        return all;
    }
};

NetworkTensors drawn_network(const Judge& judge, const BucketCase& one) {
    NetworkTensors network;
    for (const auto& [name, shape] : one.parameters()) {
        HostTensor values = judge.normal(one.name() + ", " + name, shape);
        for (std::int64_t i = 0; i < values.elements(); ++i)
            values.set(i, values.at(i) / 2);
        network.emplace(name, values);
    }
    return network;
}

std::vector<ClassifiedRows> drawn_rows(const Judge& judge, const BucketCase& one) {
    std::vector<ClassifiedRows> shards;
    for (const auto& own : one.rows)
        shards.push_back(
            draw_rows(judge, fmt::format("{}, rank {}", one.name(), shards.size()),
                      std::accumulate(own.begin(), own.end(), std::int64_t{0}),
                      one.features, one.classes));
    return shards;
}

const TaskResult& run_case(Judge& judge, const std::string& task, const BucketCase& one) {
    RankTask same{task, {}, {}};
    for (const auto& [name, values] : drawn_network(judge, one))
        same.tensors.emplace(name, TaskTensor{values, MemoryCategory::parameters});
    same.numbers = {
        {"layers", one.layers},   {"first bytes", one.first_bytes},
        {"bytes", one.bytes},     {"batch rows", one.batch_rows()},
        {"steps", kTrainedSteps}, {"learning rate in thousandths", kRateInThousandths}};
    TaskRun asked{one.name(), {}};
    const std::vector<ClassifiedRows> shards = drawn_rows(judge, one);
    for (std::size_t rank = 0; rank < one.ranks(); ++rank) {
        RankTask& own = asked.ranks.emplace_back(same);
        own.tensors.emplace("x", TaskTensor{shards[rank].x});
        own.tensors.emplace("targets", TaskTensor{shards[rank].targets});
        own.numbers["micro-batches"] = static_cast<std::int64_t>(one.rows[rank].size());
        for (std::size_t i = 0; i < one.rows[rank].size(); ++i)
            own.numbers[fmt::format("rows {}", i)] = one.rows[rank][i];
    }
    return judge.run(asked);
}

constexpr std::int64_t kHuge = 1 << 30;

/// A bucket a parameter, small ones, one for all, and sizes that nobody has seen;
/// accumulation, ranks with fewer micro-batches, and one without any.
std::vector<BucketCase> bucket_cases(const Judge& judge) {
    BucketCase drawn{"drawn buckets",
                     judge.draw("first bytes", 100, 300),
                     judge.draw("bytes", 400, 900),
                     {}};
    drawn.layers = static_cast<int>(judge.draw("layers", 4, 6));
    const std::int64_t ranks = judge.draw("ranks", 5, 7);
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
        auto& own = drawn.rows.emplace_back();
        const std::int64_t count = judge.draw(fmt::format("of rank {}", rank), 1, 3);
        for (std::int64_t i = 0; i < count; ++i)
            own.push_back(judge.draw(fmt::format("rows {} of rank {}", i, rank), 1, 4));
    }
    return {{"a bucket a parameter", 0, 0, {{4}, {2}}},
            {"small buckets", 60, 500, {{3, 2, 1}, {2, 2, 2}, {1, 4, 3}}},
            {"one bucket", kHuge, kHuge, {{5, 1}}},
            {"a large first bucket", 700, 100, {{2, 2}, {}, {6}, {1, 1, 1}}},
            drawn};
}

/// For memory and time: layers whose all-reduce takes about as long as their backward.
const BucketCase kOverlapped{"a bucket a layer",
                             4000,
                             150'000,
                             {{24, 24}, {24, 24}, {24, 24}, {24, 24}},
                             6,
                             128,
                             64,
                             4};

std::string on_rank(const BucketCase& one, std::size_t rank, const std::string& what) {
    return fmt::format("{}: rank {}: {}", one.name(), rank, what);
}

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
        for (std::size_t rank = 0; rank < one.ranks(); ++rank) {
            const auto given = result.ranks[rank].tensors.size();
            judge.ask(given == expected.size(),
                      on_rank(one, rank, fmt::format("{} buckets", expected.size())),
                      fmt::format("{} buckets", given),
                      "each holds a parameter at least, and ends before its bytes would "
                      "be exceeded");
            for (std::size_t i = 0; i < expected.size(); ++i) {
                const std::string bucket = fmt::format("bucket {}", i);
                judge.same(on_rank(one, rank,
                                   bucket + ", if gradient i is filled with i, from 1"),
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
        mean_loss(one.layer_names(), drawn_network(judge, one), drawn_rows(judge, one));
    for (std::size_t rank = 0; rank < one.ranks(); ++rank)
        for (const auto& [name, gradient] : expected.gradients)
            judge.close(on_rank(one, rank, "the gradient of " + name),
                        judge.left(result.ranks[rank], name), gradient);
}

/// Ranks have parts of a loss, or of several: their sum is the mean.
void judge_parts(Judge& judge, const BucketCase& one, const TaskResult& result,
                 const std::string& name, const std::vector<double>& expected) {
    const Shape shape = Shape::flat(static_cast<std::int64_t>(expected.size()));
    HostTensor sum(shape, DType::f64);
    for (const RankResult& rank : result.ranks) {
        const HostTensor& part = judge.left(rank, name);
        judge.ask(part.shape() == shape && part.dtype() == DType::f64,
                  one.name() + ": the shape of the loss " + shape.text(),
                  part.shape().text());
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
        judge_parts(judge, one, result, "loss",
                    {mean_loss(one.layer_names(), drawn_network(judge, one),
                               drawn_rows(judge, one))
                         .loss});
    }
}

void judge_batch_bytes(Judge& judge) {
    for (const BucketCase& one : bucket_cases(judge)) {
        judge_gradients(judge, one);
        const TaskResult& result = run_case(judge, "batch_gradient", one);
        for (std::size_t rank = 0; rank < one.ranks(); ++rank) {
            const RankReport& left = result.report.ranks[rank];
            const std::string name = "a7.2: " + on_rank(one, rank, "");
            judge.as_reference(name + "sent", "bytes", left.bytes_sent());
            judge.as_reference(name + "messages", "messages", left.messages_sent());
        }
    }
}

void judge_batch_memory(Judge& judge) {
    judge_gradients(judge, kOverlapped);
    const TaskResult& result = run_case(judge, "batch_gradient", kOverlapped);
    for (std::size_t rank = 0; rank < kOverlapped.ranks(); ++rank)
        judge.as_reference("a7.2: " + on_rank(kOverlapped, rank, "peak"),
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
    return train_alone(one.layer_names(), drawn_network(judge, one),
                       drawn_rows(judge, one), kTrainedSteps,
                       kRateInThousandths / 1000.0);
}

void judge_trained_parameters(Judge& judge, const BucketCase& one) {
    const TaskResult& result = run_case(judge, "train", one);
    for (const auto& [name, expected] : trained_alone(judge, one).network)
        for (std::size_t rank = 0; rank < one.ranks(); ++rank) {
            judge.close(on_rank(one, rank, name), judge.left(result.ranks[rank], name),
                        expected);
            judge.same(on_rank(one, rank, name + " as on rank 0"),
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
        for (std::size_t rank = 0; rank < one.ranks(); ++rank)
            judge.as_reference("a7.3: " + on_rank(one, rank, "sent"), "bytes",
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
