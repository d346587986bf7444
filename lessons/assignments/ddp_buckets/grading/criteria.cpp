#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/micro_batches.hpp"
#include "lessons/assignments/suspects.hpp"
#include "lessons/grader/judge.hpp"
#include "src/cost/collectives.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kTrainedSteps = 3;

// The grader's cases, drawn anew for each grading.

struct BucketCase : MicroBatchCase {
    std::int64_t first_bytes = 0;
    std::int64_t bytes = 0;
};

/// Buckets of one or a few parameters of a drawn network; a layer's weight has 128 to 648
/// bytes.
BucketCase small_buckets(const Judge& judge, const std::string& label,
                         const std::vector<int>& micro_batches) {
    return {draw_case(judge, label, micro_batches),
            judge.draw(label + ", first bytes", 100, 300),
            judge.draw(label + ", bytes", 500, 900)};
}

/// A micro-batch for each rank: a bucket a parameter, small ones, one for all, and a
/// large first one.
std::vector<BucketCase> single_cases(const Judge& judge) {
    const auto ranks = static_cast<std::size_t>(judge.draw("small, ranks", 5, 7));
    BucketCase large = small_buckets(judge, "a large first bucket", {1, 1, 1, 1});
    std::swap(large.first_bytes, large.bytes);
    large.first_bytes += 400;
    return {{draw_case(judge, "a bucket a parameter", {1, 1}), 0, 0},
            small_buckets(judge, "small buckets", std::vector<int>(ranks, 1)),
            {draw_case(judge, "one bucket", {1, 1, 1}), 1 << 30, 1 << 30},
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

/// Each rank has micro-batches.
std::vector<BucketCase> busy_cases(const Judge& judge) {
    std::vector<BucketCase> busy = single_cases(judge);
    busy.push_back(accumulated_case(judge));
    return busy;
}

std::vector<BucketCase> all_cases(const Judge& judge) {
    std::vector<BucketCase> all = busy_cases(judge);
    std::ranges::copy(several_cases(judge), std::back_inserter(all));
    return all;
}

/// A micro-batch for each of 4 ranks, all of the same rows, and a bucket a layer.
BucketCase large_case(const std::string& label, std::int64_t rows, std::int64_t width) {
    BucketCase large{{label, {4, {rows}}, 6, width, width, 4}};
    large.first_bytes = (width + 1) * large.classes * bytes_of(DType::f64);
    large.bytes = (width + 1) * width * bytes_of(DType::f64);
    return large;
}

/// Returns a run of a task: all ranks are given the network, each its own rows.
TaskRun given(const Judge& judge, const std::string& task, const BucketCase& one) {
    RankTask same{task, {}, {}};
    for (const auto& [name, values] : draw_network(judge, one))
        same.tensors.emplace(name, TaskTensor{values, MemoryCategory::parameters});
    same.numbers = {{"layers", one.layers},   {"first bytes", one.first_bytes},
                    {"bytes", one.bytes},     {"gradients before", 3},
                    {"steps", kTrainedSteps}, {"learning rate in thousandths", 250}};
    return run_on_rows(judge, one, {one.rows.size(), same});
}

// Buckets.

/// Says what is wrong with a rank's buckets, if gradient i is filled with i, from 1.
std::string cause_of_buckets(const RankResult& left, bool other_sizes) {
    const auto bucket = left.tensors.find("bucket 0");
    const bool none = bucket == left.tensors.end() || bucket->second.elements() == 0;
    const double first = none ? -1 : bucket->second.at(0);
    if (first == 0)
        return "nothing that is written to the gradients is seen in the buckets: these "
               "are no views of them";
    if (first == 1)
        return "the first bucket begins with the first parameter; it is to begin with "
               "the last, to which backward comes first";
    return other_sizes ? "each holds a parameter at least, and ends before its bytes "
                         "would be exceeded"
                       : "";
}

void judge_buckets(Judge& judge, const BucketCase& one) {
    const TaskRun run = given(judge, "make_buckets", one);
    const TaskResult& result = judge.run(run);
    const std::vector<RankResult>& right = judge.right(run).ranks;
    for (std::size_t rank = 0; rank < right.size(); ++rank) {
        const std::size_t asked = right[rank].tensors.size();
        const std::size_t made = result.ranks[rank].tensors.size();
        judge.ask(
            made == asked, fmt::format("{}: rank {}: {} buckets", run.name, rank, asked),
            fmt::format("{} buckets", made), cause_of_buckets(result.ranks[rank], true));
    }
    AskedValues asked;
    asked.called = [](const std::string& bucket) {
        return bucket + ", if gradient i is filled with i, from 1";
    };
    asked.cause = [&](const std::string& bucket, const OfRanks& left) {
        const HostTensor& expected = right.front().tensors.at(bucket);
        return cause_of_buckets(result.ranks.front(),
                                left.front().elements() != expected.elements());
    };
    judge.as_right(run, asked);
    judge.ask(result.report.messages_sent() == 0, run.name + ": no messages",
              fmt::format("{} messages", result.report.messages_sent()));
}

// Gradients, parameters and losses.

AskedValues all_parameters(const BucketCase& one) {
    AskedValues asked;
    for (const auto& [name, shape] : one.parameters())
        asked.tensors.push_back(name);
    return asked;
}

void judge_gradients(Judge& judge, const BucketCase& one) {
    const TaskRun run = given(judge, "batch_gradient", one);
    AskedValues asked = all_parameters(one);
    asked.called = [](const std::string& name) { return "the gradient of " + name; };
    asked.cause = [&](const std::string& name, const OfRanks& left) -> std::string {
        const auto& right = judge.right(run).ranks.front().tensors;
        const auto is_right = [&](const std::string& other) {
            const auto& first = judge.run(run).ranks.front().tensors;
            return first.contains(other) &&
                   Judge::are_close(first.at(other), right.at(other));
        };
        if (adds_up(left, right.at(name)) && std::ranges::any_of(asked.tensors, is_right))
            return "other gradients have the sum over the ranks, and this one each "
                   "rank's own terms alone: its bucket is not reduced";
        return suspected_sum(left, right.at(name));
    };
    judge.as_right(run, asked);
}

void judge_parameters(Judge& judge, const BucketCase& one) {
    const TaskRun run = given(judge, "train", one);
    const AskedValues asked = all_parameters(one);
    judge.as_right(run, asked);
    const std::vector<RankResult>& ranks = judge.run(run).ranks;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        for (const std::string& name : asked.tensors)
            judge.same(fmt::format("{}: rank {}: {} as on rank 0", run.name, rank, name),
                       judge.left(ranks[rank], name), judge.left(ranks.front(), name));
}

/// Ranks have parts of a loss, or of several: their sum is the mean.
void judge_parts(Judge& judge, const TaskRun& run, const std::string& name) {
    OfRanks parts, right;
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
        parts.push_back(judge.left(judge.run(run).ranks[rank], name));
        right.push_back(judge.right(run).ranks[rank].tensors.at(name));
    }
    const std::vector<double> once(parts.size(), 1);
    const HostTensor mean = weighted_sum(right, once);
    for (const HostTensor& part : parts)
        Judge::form(run.name + ": the loss", part, mean.shape());
    try {
        judge.close(run.name + ": the sum of the ranks' parts of the mean loss",
                    weighted_sum(parts, once), mean);
    } catch (Judge::No& no) {
        if (std::ranges::all_of(parts, [&](const HostTensor& part) {
                return Judge::are_close(part, mean);
            }))
            no.explain(
                "each rank has the whole mean; its own micro-batches' part is asked");
        throw;
    }
}

// What a run costs is asked if its values are right: doing nothing is fast.

TaskRun right_gradients(const Judge& judge, const BucketCase& one) {
    judge.needs("a7.2-values", [&](Judge& asking) { judge_gradients(asking, one); });
    return given(judge, "batch_gradient", one);
}

/// Judges what ranks send in so many steps: a ring all-reduce a step of each bucket that
/// the student makes. Whether these are the right ones is asked in a7.1-buckets.
void judge_traffic(Judge& judge, const BucketCase& one, const TaskRun& run, int steps) {
    std::vector<std::int64_t> buckets;
    judge.needs("a7.1-buckets", [&](Judge& asking) {
        const TaskResult& made = asking.run(given(asking, "make_buckets", one));
        for (const auto& [name, bucket] : made.ranks.front().tensors)
            buckets.push_back(bucket.elements());
    });
    for (std::size_t rank = 0; rank < one.rows.size(); ++rank) {
        std::int64_t bytes = 0, messages = 0;
        for (const std::int64_t elements : buckets) {
            const CollectiveTraffic each =
                collective_traffic({Verb::all_reduce, elements, bytes_of(DType::f64),
                                    static_cast<int>(one.ranks())},
                                   static_cast<int>(rank));
            bytes += steps * each.bytes_sent;
            messages += steps * each.messages_sent;
        }
        const RankReport& left = judge.run(run).report.ranks[rank];
        const std::string name =
            fmt::format("a7.{}: {}: rank {}: ", steps == 1 ? 2 : 3, run.name, rank);
        judge.figure(name + "sent", "bytes", bytes, left.bytes_sent());
        judge.figure(name + "messages", "messages", messages, left.messages_sent());
    }
}

void judge_batch_bytes(Judge& judge) {
    for (const BucketCase& one : single_cases(judge))
        judge_traffic(judge, one, right_gradients(judge, one), 1);
    // Another criterion says what is wrong with several micro-batches.
    for (const BucketCase& one : several_cases(judge)) {
        const TaskRun run = given(judge, "batch_gradient", one);
        judge.needs("a7.2-ranks", [&](Judge& asking) { asking.run(run); });
        judge_traffic(judge, one, run, 1);
    }
}

void judge_training_bytes(Judge& judge) {
    for (const BucketCase& one : single_cases(judge)) {
        judge.needs("a7.3-values", [&](Judge& asking) { judge_parameters(asking, one); });
        judge_traffic(judge, one, given(judge, "train", one), kTrainedSteps);
    }
}

/// Has few rows, so that parameters and gradients are most of what is held.
void judge_memory(Judge& judge) {
    const BucketCase heavy = large_case("large layers", judge.draw("few rows", 2, 4),
                                        judge.draw("large width", 112, 128));
    judge.figures_as_right(right_gradients(judge, heavy), "a7.2", {{kPeak, {100, 10}}});
}

/// An all-reduce takes about half as long as a layer's backward. If backward hid nothing,
/// it would take 25 % more, and with one bucket for everything 17 %. A third of the
/// former is allowed: copies of gradients are charged as memory.
void judge_time(Judge& judge) {
    const BucketCase timed =
        large_case("a bucket a layer", judge.draw("many rows", 240, 248),
                   judge.draw("width", 124, 130));
    judge.time_as_right(right_gradients(judge, timed), "a7.2", {20, 8},
                        "a bucket's all-reduce begins when backward has come to its last "
                        "gradient, and is waited for when backward is over");
}

/// Returns what judges each case.
std::function<void(Judge&)> each(std::vector<BucketCase> (*cases)(const Judge&),
                                 void (*one)(Judge&, const BucketCase&)) {
    return [=](Judge& judge) {
        for (const BucketCase& drawn : cases(judge))
            one(judge, drawn);
    };
}

Criterion criterion(const std::string& id, const std::string& title, int points,
                    std::function<void(Judge&)> judge) {
    return {id, title, points, lesson_step("data-parallel", "buckets"), std::move(judge)};
}

std::vector<Criterion> bucket_criteria() {
    std::vector<Criterion> all{
        criterion("a7.1-buckets",
                  "buckets hold the gradients in reverse order, as views, within limits",
                  25, each(all_cases, judge_buckets)),
        criterion("a7.2-accumulation",
                  "batch_gradient leaves one rank the sum over its micro-batches", 15,
                  [](Judge& judge) { judge_gradients(judge, accumulated_case(judge)); }),
        criterion("a7.2-values",
                  "batch_gradient leaves every rank the gradient of the mean over all "
                  "rows",
                  6, each(single_cases, judge_gradients)),
        criterion("a7.2-ranks", "ranks may have more or fewer micro-batches, or none", 4,
                  each(several_cases, judge_gradients)),
        criterion("a7.2-loss", "the ranks' parts of the loss add up to its mean", 5,
                  each(busy_cases,
                       [](Judge& judge, const BucketCase& one) {
                           judge_parts(judge, given(judge, "batch_gradient", one),
                                       "loss");
                       })),
        criterion("a7.2-bytes", "batch_gradient is one all-reduce a bucket", 12,
                  judge_batch_bytes),
        criterion("a7.2-memory", "batch_gradient holds the gradients once", 5,
                  judge_memory),
        criterion("a7.2-time", "buckets travel while backward goes on", 20, judge_time),
        criterion("a7.3-values", "train ends with one device's parameters on every rank",
                  3, each(all_cases, judge_parameters)),
        criterion("a7.3-losses",
                  "the ranks' parts of each step's loss add up to its mean", 3,
                  each(all_cases,
                       [](Judge& judge, const BucketCase& one) {
                           judge_parts(judge, given(judge, "train", one), "losses");
                       })),
        criterion("a7.3-bytes", "train is one all-reduce a bucket and step", 2,
                  judge_training_bytes)};
    all[3].after = {"a7.2-accumulation", "a7.2-values"};
    all[4].after = {"a7.2-accumulation", "a7.2-values"};
    all[8].after = {"a7.2-accumulation", "a7.2-values", "a7.2-ranks"};
    all[9].needs = {"a7.3-values"};
    all[9].after = {"a7.2-loss"};
    return all;
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
