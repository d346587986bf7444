#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/cost_of.hpp"
#include "lessons/assignments/micro_batches.hpp"
#include "lessons/assignments/needs.hpp"
#include "lessons/assignments/sgd_training.hpp"
#include "lessons/assignments/suspects.hpp"
#include "lessons/grader/judge.hpp"
#include "src/core/host_tensor.hpp"
#include "src/cost/collectives.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/bucketed_data_parallel.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kTrainedSteps = 3;
constexpr std::int64_t kRateInThousandths = 250;
/// Somebody has left this in the gradients.
constexpr std::int64_t kGradientsBefore = 3;

// The grader's cases, drawn anew for each grading.

struct BucketCase : MicroBatchCase {
    std::int64_t first_bytes = 0;
    std::int64_t bytes = 0;
};

constexpr std::int64_t kHuge = 1 << 30;

/// Buckets of one or a few parameters of a drawn network; a layer's weight has 128 to 648
/// bytes.
BucketCase small_buckets(const Judge& judge, const std::string& label,
                         const std::vector<int>& micro_batches) {
    return {draw_case(judge, label, micro_batches),
            judge.draw(label + ", first bytes", 100, 300),
            judge.draw(label + ", bytes", 500, 900)};
}

std::vector<int> one_each(const Judge& judge, const std::string& label, std::int64_t low,
                          std::int64_t high) {
    return std::vector<int>(
        static_cast<std::size_t>(judge.draw(label + ", ranks", low, high)), 1);
}

/// A micro-batch for each rank: a bucket a parameter, small ones, one for all, and a
/// large first one.
std::vector<BucketCase> single_cases(const Judge& judge) {
    BucketCase large = small_buckets(judge, "a large first bucket",
                                     one_each(judge, "a large first bucket", 4, 4));
    std::swap(large.first_bytes, large.bytes);
    large.first_bytes += 400;
    return {{draw_case(judge, "a bucket a parameter", {1, 1}), 0, 0},
            small_buckets(judge, "small buckets", one_each(judge, "small", 5, 7)),
            {draw_case(judge, "one bucket", {1, 1, 1}), kHuge, kHuge},
            large};
}

/// One rank with several micro-batches: sums over these, and none over ranks.
BucketCase accumulated_case(const Judge& judge) {
    return small_buckets(judge, "accumulation",
                         {static_cast<int>(judge.draw("accumulated", 3, 4))});
}

/// Ranks have more or fewer micro-batches, or none.
std::vector<BucketCase> several_cases(const Judge& judge) {
    const auto some = [&](const char* what) {
        return static_cast<int>(judge.draw(what, 2, 3));
    };
    return {
        small_buckets(judge, "several micro-batches", {some("first"), 1, some("last")}),
        small_buckets(judge, "an idle rank", {some("one"), 0, 1, some("another")})};
}

std::vector<BucketCase> all_cases(const Judge& judge) {
    std::vector<BucketCase> all = single_cases(judge);
    all.push_back(accumulated_case(judge));
    for (const BucketCase& one : several_cases(judge))
        all.push_back(one);
    return all;
}

/// A micro-batch of as many rows for each of 4 ranks, and a bucket a layer.
BucketCase large_case(const std::string& label, std::int64_t rows, std::int64_t width) {
    BucketCase large{{label, {4, {rows}}, 6, width, width, 4}};
    large.first_bytes = (width + 1) * large.classes * bytes_of(DType::f64);
    large.bytes = (width + 1) * width * bytes_of(DType::f64);
    return large;
}

/// For memory: few rows, so that parameters and gradients are most of it.
BucketCase heavy_case(const Judge& judge) {
    return large_case("large layers", judge.draw("few rows", 2, 4),
                      judge.draw("large width", 112, 128));
}

/// For time: an all-reduce takes about half as long as a layer's backward.
BucketCase timed_case(const Judge& judge) {
    return large_case("a bucket a layer", judge.draw("many rows", 240, 248),
                      judge.draw("width", 124, 130));
}

// Students' ranks make this of them.

const TaskResult& run_case(Judge& judge, const std::string& task, const BucketCase& one) {
    RankTask same{task, {}, {}};
    for (const auto& [name, values] : draw_network(judge, one))
        same.tensors.emplace(name, TaskTensor{values, MemoryCategory::parameters});
    same.numbers = {
        {"layers", one.layers},   {"first bytes", one.first_bytes},
        {"bytes", one.bytes},     {"gradients before", kGradientsBefore},
        {"steps", kTrainedSteps}, {"learning rate in thousandths", kRateInThousandths}};
    return run_on_rows(judge, one, {one.rows.size(), same});
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

/// Says what is wrong with all buckets of a rank, if gradients are in them in another
/// order.
std::string cause_of_order(const RankResult& rank) {
    std::vector<double> numbers;
    for (std::size_t i = 0; i < rank.tensors.size(); ++i) {
        const auto bucket = rank.tensors.find(fmt::format("bucket {}", i));
        if (bucket == rank.tensors.end() || bucket->second.dtype() != DType::f64)
            return "";
        for (const double number : bucket->second.values<double>())
            numbers.push_back(number);
    }
    if (numbers.empty()) return "";
    if (std::ranges::all_of(numbers, [](double number) { return number == 0; }))
        return "nothing that is written to the gradients is seen in the buckets: these "
               "are no views of them";
    if (numbers.front() == 1 && std::ranges::is_sorted(numbers))
        return "the first bucket begins with the first parameter; it is to begin with "
               "the "
               "last, to which backward comes first";
    return "";
}

constexpr auto kRuleOfBuckets =
    "each holds a parameter at least, and ends before its bytes would be exceeded";

/// Asks for bucket i of a rank; `order` is what is wrong with all of them.
void judge_bucket(Judge& judge, const std::string& asked, const RankResult& left,
                  std::size_t i, const HostTensor& expected, const std::string& order) {
    const std::string bucket = fmt::format("bucket {}", i);
    try {
        judge.same(fmt::format("{}, if gradient i is filled with i, from 1", asked),
                   judge.left(left, bucket), expected);
    } catch (Judge::No& no) {
        if (!no.said.empty()) throw;
        const auto own = left.tensors.find(bucket);
        const bool other_size =
            own != left.tensors.end() && own->second.elements() != expected.elements();
        no.said = order.empty() && other_size ? kRuleOfBuckets : order;
        throw;
    }
}

void judge_buckets(Judge& judge) {
    for (const BucketCase& one : all_cases(judge)) {
        const TaskResult& result = run_case(judge, "make_buckets", one);
        const std::vector<HostTensor> expected = expected_buckets(one);
        for (std::size_t rank = 0; rank < one.rows.size(); ++rank) {
            const RankResult& left = result.ranks[rank];
            const std::string order = cause_of_order(left);
            judge.ask(left.tensors.size() == expected.size(),
                      one.on_rank(rank, fmt::format("{} buckets", expected.size())),
                      fmt::format("{} buckets", left.tensors.size()),
                      order.empty() ? kRuleOfBuckets : order);
            for (std::size_t i = 0; i < expected.size(); ++i)
                judge_bucket(judge, one.on_rank(rank, fmt::format("bucket {}", i)), left,
                             i, expected[i], order);
        }
        judge.ask(result.report.messages_sent() == 0, one.name() + ": no messages",
                  fmt::format("{} messages", result.report.messages_sent()));
    }
}

// Gradients should be this, and mistakes make that of them.

/// Rank by rank, what each micro-batch adds to a gradient of the mean over all rows.
std::vector<OfRanks> terms_of(const Judge& judge, const BucketCase& one,
                              const std::string& name) {
    const NetworkTensors network = draw_network(judge, one);
    const std::vector<ClassifiedRows> rows = draw_rows(judge, one);
    std::vector<OfRanks> terms(one.rows.size());
    for (std::size_t rank = 0; rank < terms.size(); ++rank) {
        std::int64_t begin = 0;
        for (const std::int64_t count : one.rows[rank]) {
            const ClassifiedRows own{rows[rank].x.rows(begin, count),
                                     rows[rank].targets.rows(begin, count)};
            terms[rank].push_back(weighted_sum(
                {mean_loss(one.layer_names(), network, {own}).gradients.at(name)},
                {static_cast<double>(count) / static_cast<double>(one.batch_rows())}));
            begin += count;
        }
    }
    return terms;
}

HostTensor plain_sum(const OfRanks& terms) {
    return weighted_sum(terms, std::vector(terms.size(), 1.0));
}

/// Returns what each rank has if an all-reduce follows each micro-batch.
HostTensor reduced_each_time(const std::vector<OfRanks>& terms, const HostTensor& zeros) {
    std::size_t most = 0;
    for (const OfRanks& own : terms)
        most = std::max(most, own.size());
    HostTensor held = zeros;
    for (std::size_t i = 0; i < most; ++i) {
        OfRanks sums;
        for (const OfRanks& own : terms)
            sums.push_back(i < own.size() ? plain_sum({held, own[i]}) : held);
        held = plain_sum(sums);
    }
    return held;
}

std::string cause_of_gradient(const Judge& judge, const BucketCase& one,
                              const std::string& name, const OfRanks& left,
                              const HostTensor& expected) {
    const std::size_t ranks = one.rows.size();
    std::string said = suspected_sum(left, expected);
    if (!said.empty()) return said;
    const std::vector<OfRanks> terms = terms_of(judge, one, name);
    const HostTensor zeros(expected.shape(), DType::f64);
    HostTensor before = zeros;
    for (std::int64_t i = 0; i < before.elements(); ++i)
        before.set(i, static_cast<double>(kGradientsBefore));
    OfRanks first, last, alike;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const OfRanks& own = terms[rank];
        first.push_back(own.empty() ? zeros : own.front());
        last.push_back(own.empty() ? zeros : own.back());
        for (std::size_t i = 0; i < own.size(); ++i)
            alike.push_back(
                weighted_sum({own[i]}, {static_cast<double>(one.batch_rows()) /
                                        static_cast<double>(one.rows[rank][i])}));
    }
    const auto n = static_cast<double>(ranks);
    const auto on_all = [&](const HostTensor& values) { return OfRanks(ranks, values); };
    const std::string held = "what the gradients held before the step is in them";
    return suspected(
        left,
        {{"only the first micro-batch's part is there", on_all(plain_sum(first))},
         {"only the last micro-batch's part is there: gradients are set to zero once a "
          "step",
          on_all(plain_sum(last))},
         {"what an all-reduce summed is in another one: a step has one a bucket, behind "
          "its last micro-batch",
          on_all(reduced_each_time(terms, zeros))},
         {"each micro-batch's mean counts alike: its weight is missing",
          on_all(plain_sum(alike))},
         {held, on_all(plain_sum({expected, before}))},
         {held, on_all(weighted_sum({expected, before}, {1, n}))}});
}

/// Returns whether each rank left what is expected of one gradient at least.
bool one_is_right(const TaskResult& result, const NetworkTensors& expected) {
    return std::ranges::any_of(expected, [&](const auto& each) {
        return std::ranges::all_of(result.ranks, [&](const RankResult& rank) {
            const auto left = rank.tensors.find(each.first);
            return left != rank.tensors.end() &&
                   Judge::are_close(left->second, each.second);
        });
    });
}

void judge_gradients(Judge& judge, const BucketCase& one) {
    const TaskResult& result = run_case(judge, "batch_gradient", one);
    const MeanLoss expected =
        mean_loss(one.layer_names(), draw_network(judge, one), draw_rows(judge, one));
    for (const auto& each : expected.gradients) {
        const std::string& name = each.first;
        const HostTensor& gradient = each.second;
        ask_of_ranks(
            judge, result, name,
            [&](std::size_t rank) {
                return one.on_rank(rank, "the gradient of " + name);
            },
            OfRanks(one.rows.size(), gradient),
            [&](const OfRanks& left) -> std::string {
                if (adds_up(left, gradient) && one_is_right(result, expected.gradients))
                    return "other gradients have the sum over the ranks, and this one "
                           "each rank's own terms alone: its bucket is not reduced";
                return cause_of_gradient(judge, one, name, left, gradient);
            });
    }
}

void judge_accumulation(Judge& judge) {
    judge_gradients(judge, accumulated_case(judge));
}

void judge_single(Judge& judge) {
    for (const BucketCase& one : single_cases(judge))
        judge_gradients(judge, one);
}

void judge_several(Judge& judge) {
    const auto several = [](Judge& asking) {
        for (const BucketCase& one : several_cases(asking))
            judge_gradients(asking, one);
    };
    ask_unless_said(judge, "a7.2-accumulation", judge_accumulation, [&](Judge& asking) {
        ask_unless_said(asking, "a7.2-values", judge_single, several);
    });
}

/// Ranks have parts of a loss, or of several: their sum is the mean.
void judge_parts(Judge& judge, const BucketCase& one, const TaskResult& result,
                 const std::string& name, const std::vector<double>& expected) {
    const HostTensor mean = HostTensor::of<double>(
        Shape::flat(static_cast<std::int64_t>(expected.size())), expected);
    OfRanks parts;
    for (const RankResult& rank : result.ranks) {
        parts.push_back(judge.left(rank, name));
        Judge::form(one.name() + ": the loss", parts.back(), mean.shape());
    }
    try {
        judge.close(one.name() + ": the sum of the ranks' parts of the mean loss",
                    plain_sum(parts), mean);
    } catch (Judge::No& no) {
        no.said = suspected(
            parts, {{"each rank has the whole mean; its own micro-batches' part is asked",
                     OfRanks(parts.size(), mean)}});
        throw;
    }
}

/// Judges it where each rank has micro-batches; training asks it of an idle rank, too.
void judge_losses(Judge& judge) {
    std::vector<BucketCase> cases = single_cases(judge);
    cases.push_back(accumulated_case(judge));
    for (const BucketCase& one : cases) {
        const TaskResult* result = nullptr;
        needs(judge, one.ranks() == 1 ? "a7.2-accumulation" : "a7.2-values",
              [&](Judge& asking) { result = &run_case(asking, "batch_gradient", one); });
        judge_parts(
            judge, one, *result, "loss",
            {mean_loss(one.layer_names(), draw_network(judge, one), draw_rows(judge, one))
                 .loss});
    }
}

SgdTraining training_of(const Judge& judge, const BucketCase& one) {
    return {one.layer_names(), draw_network(judge, one), draw_rows(judge, one),
            kTrainedSteps, kRateInThousandths / 1000.0};
}

void judge_trained_parameters(Judge& judge, const BucketCase& one) {
    const TaskResult& result = run_case(judge, "train", one);
    const SgdTraining training = training_of(judge, one);
    const NetworkTensors trained = training.alone().network;
    for (const auto& each : trained) {
        const std::string& name = each.first;
        ask_of_ranks(
            judge, result, name,
            [&](std::size_t rank) { return one.on_rank(rank, name); },
            OfRanks(one.rows.size(), each.second),
            [&](const OfRanks& left) {
                return suspected_training(training, name, left);
            });
        for (std::size_t rank = 0; rank < one.rows.size(); ++rank)
            judge.same(one.on_rank(rank, name + " as on rank 0"),
                       judge.left(result.ranks[rank], name),
                       judge.left(result.ranks.front(), name));
    }
}

void judge_training(Judge& judge) {
    const auto training = [](Judge& asking) {
        for (const BucketCase& one : all_cases(asking))
            judge_trained_parameters(asking, one);
    };
    ask_unless_said(judge, "a7.2-accumulation", judge_accumulation, [&](Judge& again) {
        ask_unless_said(again, "a7.2-values", judge_single, [&](Judge& last) {
            ask_unless_said(last, "a7.2-ranks", judge_several, training);
        });
    });
}

void judge_training_losses(Judge& judge) {
    needs(judge, "a7.3-values", judge_training);
    ask_unless_said(judge, "a7.2-loss", judge_losses, [](Judge& asking) {
        for (const BucketCase& one : all_cases(asking))
            judge_parts(asking, one, run_case(asking, "train", one), "losses",
                        training_of(asking, one).alone().losses);
    });
}

// A run costs this.

/// Returns a run whose gradients are right; else a7.2-values has said so. Bytes, time and
/// memory count of no others: doing nothing is fast.
const TaskResult& run_right(Judge& judge, const BucketCase& one) {
    needs(judge, "a7.2-values", [&](Judge& asking) { judge_gradients(asking, one); });
    return run_case(judge, "batch_gradient", one);
}

/// Returns the elements of each bucket that the student makes: whether these are the
/// right ones is asked in a7.1-buckets.
std::vector<std::int64_t> own_buckets(Judge& judge, const BucketCase& one) {
    std::vector<std::int64_t> buckets;
    needs(judge, "a7.1-buckets", [&](Judge& asking) {
        const TaskResult& result = run_case(asking, "make_buckets", one);
        std::int64_t missing = 0;
        for (const auto& [name, shape] : one.parameters())
            missing += shape.elements();
        for (const auto& [name, bucket] : result.ranks.front().tensors) {
            buckets.push_back(bucket.elements());
            missing -= bucket.elements();
        }
        asking.ask(missing == 0, "all gradients in buckets",
                   fmt::format("{} elements are missing", missing));
    });
    return buckets;
}

/// Judges what ranks send in so many steps: a ring all-reduce of each bucket a step.
void judge_traffic(Judge& judge, const std::string& exercise, const BucketCase& one,
                   const RunReport& report, int steps) {
    const std::vector<std::int64_t> buckets = own_buckets(judge, one);
    for (std::size_t rank = 0; rank < one.rows.size(); ++rank) {
        CollectiveTraffic step;
        for (const std::int64_t elements : buckets) {
            const CollectiveTraffic each =
                collective_traffic({Verb::all_reduce, elements, bytes_of(DType::f64),
                                    static_cast<int>(one.ranks())},
                                   static_cast<int>(rank));
            step.bytes_sent += each.bytes_sent;
            step.messages_sent += each.messages_sent;
        }
        const RankReport& left = report.ranks[rank];
        const std::string name = exercise + ": " + one.on_rank(rank, "");
        judge.figure(name + "sent", "bytes", steps * step.bytes_sent, left.bytes_sent());
        judge.figure(name + "messages", "messages", steps * step.messages_sent,
                     left.messages_sent());
    }
}

void judge_batch_bytes(Judge& judge) {
    for (const BucketCase& one : single_cases(judge))
        judge_traffic(judge, "a7.2", one, run_right(judge, one).report, 1);
    // Another criterion says what is wrong with several micro-batches.
    for (const BucketCase& one : several_cases(judge)) {
        const TaskResult* result = nullptr;
        needs(judge, "a7.2-ranks",
              [&](Judge& asking) { result = &run_case(asking, "batch_gradient", one); });
        judge_traffic(judge, "a7.2", one, result->report, 1);
    }
}

void judge_training_bytes(Judge& judge) {
    for (const BucketCase& one : single_cases(judge)) {
        needs(judge, "a7.3-values",
              [&](Judge& asking) { judge_trained_parameters(asking, one); });
        judge_traffic(judge, "a7.3", one, run_case(judge, "train", one).report,
                      kTrainedSteps);
    }
}

/// Says if gradients are there before buckets are made. Filling them takes as long as
/// what the task does; copying them into the buckets is more than is asked.
enum class Before : std::uint8_t { filled_and_gone, there };

/// Makes the network that a task is given, with values that cost nothing.
void add_layers(Sequential& network, Device& device, const BucketCase& one,
                Before gradients) {
    for (int layer = 0; layer < one.layers; ++layer) {
        network.add<Linear>(
            ParameterInit{device, DType::f64, 0, fmt::format("layer{}", layer), false},
            one.in(layer), one.out(layer));
        if (layer + 1 < one.layers) network.add<Tanh>(device);
    }
    network.set_input_gradient(false);
    for (Parameter* parameter : network.parameters()) {
        const MemoryScope values(device, MemoryCategory::parameters);
        parameter->value = device.upload(HostTensor(parameter->shape(), DType::f64));
        const MemoryScope scope(device, MemoryCategory::gradients);
        const Tensor before = device.empty(parameter->shape(), DType::f64);
        device.fill(before, kGradientsBefore);
        if (gradients == Before::there) parameter->gradient = before;
    }
}

/// Returns what a gradient costs with the library's own buckets.
RunReport cost_of_gradient(const BucketCase& one, Before gradients) {
    return cost_of(static_cast<int>(one.ranks()), [&](Rank& rank) {
        Device& device = rank.device();
        Sequential network;
        add_layers(network, device, one, gradients);
        std::vector<MicroBatch> micro_batches;
        for (const std::int64_t rows : one.rows[static_cast<std::size_t>(rank.index())])
            micro_batches.push_back(
                {device.upload(HostTensor({rows, one.features}, DType::f64)),
                 device.upload(HostTensor({rows}, DType::i32))});
        declare_replicas_of(rank.world(), network);
        BucketedDataParallel sync(device, rank.world(), network.parameters(),
                                  {{one.bytes, one.first_bytes},
                                   /*broadcast=*/false,
                                   /*rebuild=*/false});
        sync.begin();
        accumulate_gradients(device, network, cross_entropy_loss, micro_batches);
        sync.finish();
    });
}

void judge_batch_memory(Judge& judge) {
    const BucketCase one = heavy_case(judge);
    const TaskResult& result = run_right(judge, one);
    const std::int64_t peak = cost_of_gradient(one, Before::there).most_held();
    for (std::size_t rank = 0; rank < one.rows.size(); ++rank)
        judge.figure("a7.2: " + one.on_rank(rank, "peak"), "bytes of memory", peak,
                     result.report.ranks[rank].memory.peak, {100, 10});
}

/// If backward hid nothing, it would take 25 % more, and with one bucket for everything
/// 17 %. A third of the former is allowed: copies of gradients are charged as memory.
void judge_batch_time(Judge& judge) {
    const BucketCase one = timed_case(judge);
    const TaskResult& result = run_right(judge, one);
    judge.figure("a7.2: " + one.name() + ": time", kPicoseconds,
                 cost_of_gradient(one, Before::filled_and_gone).makespan(),
                 result.report.makespan(), {20, 8},
                 "a bucket's all-reduce begins when backward has come to its last "
                 "gradient, and is waited for when backward is over");
}

Criterion criterion(const std::string& id, const std::string& title, int points,
                    std::function<void(Judge&)> judge) {
    return {id, title, points, lesson_step("data-parallel", "buckets"), std::move(judge)};
}

std::vector<Criterion> bucket_criteria() {
    return {
        criterion("a7.1-buckets",
                  "buckets hold the gradients in reverse order, as views, within limits",
                  25, judge_buckets),
        criterion("a7.2-accumulation",
                  "batch_gradient leaves one rank the sum over its micro-batches", 15,
                  judge_accumulation),
        criterion("a7.2-values",
                  "batch_gradient leaves every rank the gradient of the mean over all "
                  "rows",
                  6, judge_single),
        criterion("a7.2-ranks", "ranks may have more or fewer micro-batches, or none", 4,
                  judge_several),
        criterion("a7.2-loss", "the ranks' parts of the loss add up to its mean", 5,
                  judge_losses),
        criterion("a7.2-bytes", "batch_gradient is one all-reduce a bucket", 12,
                  judge_batch_bytes),
        criterion("a7.2-memory", "batch_gradient holds the gradients once", 5,
                  judge_batch_memory),
        criterion("a7.2-time", "buckets travel while backward goes on", 20,
                  judge_batch_time),
        criterion("a7.3-values", "train ends with one device's parameters on every rank",
                  3, judge_training),
        criterion("a7.3-losses",
                  "the ranks' parts of each step's loss add up to its mean", 3,
                  judge_training_losses),
        criterion("a7.3-bytes", "train is one all-reduce a bucket and step", 2,
                  judge_training_bytes)};
}

}  // namespace

Assignment ddp_buckets_assignment() {
    return {"ddp-buckets",
            "Buckets that travel while backward goes on",
            "Gradients in buckets, each all-reduced as soon as its last gradient of the "
            "step is there, as PyTorch's DistributedDataParallel does it.",
            {"ddp_buckets.hpp", "ddp_buckets.cpp", "adapters.cpp"},
            bucket_criteria(),
            ddp_buckets_solutions};
}

}  // namespace lockstep::lessons
