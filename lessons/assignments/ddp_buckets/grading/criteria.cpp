#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/micro_batches.hpp"
#include "lessons/assignments/suspects.hpp"
#include "lessons/grader/judge.hpp"
#include "src/cost/collectives.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kSteps = 3;

// The grader's cases, drawn again for each grading.

/// Returns a run of a task. All ranks get the network; each rank gets its own rows.
TaskRun given(const Judge& judge, const std::string& task, const MicroBatchCase& one,
              std::int64_t first_bytes, std::int64_t bytes) {
    return run_on_network(judge, one,
                          {task,
                           {},
                           {{"first bytes", first_bytes},
                            {"bytes", bytes},
                            {"gradients before", 3},
                            {"steps", kSteps},
                            {"learning rate in thousandths", 250}}});
}

/// Returns a run with buckets of one or a few parameters of a drawn network. A layer's
/// weight has 128 to 648 bytes.
TaskRun small_buckets(const Judge& judge, const std::string& task,
                      const std::string& label, const std::vector<int>& micro_batches) {
    return given(judge, task, draw_case(judge, label, micro_batches),
                 judge.draw(label + ", first bytes", 100, 300),
                 judge.draw(label + ", bytes", 500, 900));
}

/// Returns runs with a micro-batch for each rank. The buckets are: one for each
/// parameter; small ones; one for all parameters; a large first bucket and small ones.
std::vector<TaskRun> single_runs(const Judge& judge, const std::string& task) {
    const auto ranks = static_cast<std::size_t>(judge.draw("small, ranks", 5, 7));
    return {
        given(judge, task, draw_case(judge, "a bucket a parameter", {1, 1}), 0, 0),
        small_buckets(judge, task, "small buckets", std::vector<int>(ranks, 1)),
        given(judge, task, draw_case(judge, "one bucket", {1, 1, 1}), 1 << 30, 1 << 30),
        given(judge, task, draw_case(judge, "a large first bucket", {1, 1, 1, 1}),
              judge.draw("large first bytes", 900, 1300),
              judge.draw("bytes behind a large first", 100, 300))};
}

/// Returns a run of one rank, which sums over its micro-batches but not over ranks.
std::vector<TaskRun> accumulated_run(const Judge& judge, const std::string& task) {
    return {small_buckets(judge, task, "accumulation",
                          {static_cast<int>(judge.draw("accumulated", 3, 4))})};
}

/// Returns runs whose ranks have different numbers of micro-batches, or none.
std::vector<TaskRun> several_runs(const Judge& judge, const std::string& task) {
    const auto some = [&](const char* what) {
        return static_cast<int>(judge.draw(what, 2, 3));
    };
    return {
        small_buckets(judge, task, "several micro-batches",
                      {some("first"), 1, some("last")}),
        small_buckets(judge, task, "an idle rank", {some("one"), 0, 1, some("another")})};
}

/// Returns a run of 4 ranks. Each has a micro-batch of `rows` rows; a layer is a bucket.
TaskRun large_layers(const Judge& judge, const std::string& task,
                     const std::string& label, std::int64_t rows, std::int64_t width) {
    const MicroBatchCase large{label, {4, {rows}}, 6, width, width, 4};
    return given(judge, task, large, (width + 1) * large.classes * bytes_of(DType::f64),
                 (width + 1) * width * bytes_of(DType::f64));
}

/// Returns a run with few rows, so that most of the memory is parameters and gradients.
std::vector<TaskRun> heavy_run(const Judge& judge, const std::string& task) {
    return {large_layers(judge, task, "large layers", judge.draw("few rows", 2, 4),
                         judge.draw("large width", 112, 128))};
}

/// Returns a run in which an all-reduce takes about half as long as a layer's backward.
std::vector<TaskRun> timed_run(const Judge& judge, const std::string& task) {
    return {large_layers(judge, task, "a bucket a layer",
                         judge.draw("many rows", 240, 248),
                         judge.draw("width", 124, 130))};
}

// Questions about a run.

/// Judges gradients or parameters, and whether each rank computes its own rows.
void judge_sums(Judge& judge, const TaskRun& run) {
    judge_parameters(judge, run);
    judge_own_rows(judge, run);
}

/// Returns how many elements each bucket of a rank has.
std::vector<std::int64_t> bucket_sizes(const RankResult& left) {
    std::vector<std::int64_t> sizes;
    for (const auto& [name, tensor] : left.tensors)
        if (name.starts_with("bucket")) sizes.push_back(tensor.elements());
    return sizes;
}

void judge_buckets(Judge& judge, const TaskRun& run) {
    AskedValues asked{{"gradients"}};
    asked.called = [](const std::string&) {
        return "the contents of the buckets in order, if gradient i is filled with i, "
               "from 1";
    };
    judge.as_right(run, asked);
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
        const auto expected = bucket_sizes(judge.right(run).ranks[rank]);
        const auto made = bucket_sizes(judge.run(run).ranks[rank]);
        judge.ask(made == expected,
                  fmt::format("{}: rank {}: buckets of {} elements", run.name, rank,
                              fmt::join(expected, ", ")),
                  fmt::format("{} elements", fmt::join(made, ", ")),
                  "each bucket has at least one parameter, and ends before its bytes "
                  "would be exceeded");
        for (std::size_t i = 0; i < made.size(); ++i) {
            const std::string name = fmt::format("bucket {}", i);
            const HostTensor& bucket = judge.left(judge.run(run).ranks[rank], name);
            Judge::form(fmt::format("{}: rank {}: {}", run.name, rank, name), bucket,
                        {bucket.elements()});
        }
    }
    judge.figures_as_right(run, "a7.1", {{kMessages}});
}

/// Judges the ranks' parts of each loss: the parts must add up to the mean loss.
void judge_loss(Judge& judge, const TaskRun& run) {
    const char* name = run.ranks.front().task == "train" ? "losses" : "loss";
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
        const auto is_mean = [&](const HostTensor& part) {
            return Judge::are_close(part, mean);
        };
        if (std::ranges::all_of(parts, is_mean))
            no.explain(
                "each rank has the whole mean; its own micro-batches' part is asked");
        throw;
    }
}

/// Judges what ranks send in each of `steps` steps: a ring all-reduce of each bucket that
/// the student makes. a7.1-buckets judges whether these buckets are right.
void judge_traffic(Judge& judge, const TaskRun& run, int steps) {
    TaskRun making = run;
    for (RankTask& own : making.ranks)
        own.task = "make_buckets";
    std::vector<std::int64_t> sizes;
    judge.needs("a7.1-buckets", [&](Judge& asking) {
        sizes = bucket_sizes(asking.run(making).ranks.front());
    });
    const auto ranks = static_cast<int>(run.ranks.size());
    for (int rank = 0; rank < ranks; ++rank) {
        std::int64_t bytes = 0, messages = 0;
        for (const std::int64_t elements : sizes) {
            const CollectiveTraffic each = collective_traffic(
                {Verb::all_reduce, elements, bytes_of(DType::f64), ranks}, rank);
            bytes += steps * each.bytes_sent;
            messages += steps * each.messages_sent;
        }
        const RankReport& left =
            judge.run(run).report.ranks[static_cast<std::size_t>(rank)];
        const std::string name =
            fmt::format("{}: {}: rank {}: ", judge.exercise(), run.name, rank);
        judge.figure(name + "sent", "bytes", bytes, left.bytes_sent());
        judge.figure(name + "messages", "messages", messages, left.messages_sent());
    }
}

void judge_batch_bytes(Judge& judge) {
    const std::string task = "batch_gradient";
    for (const TaskRun& run : single_runs(judge, task)) {
        judge.needs_values(run, judge_parameters);
        judge_traffic(judge, run, 1);
    }
    // Another criterion judges the values with several micro-batches.
    for (const TaskRun& run : several_runs(judge, task)) {
        judge.needs("a7.2-ranks", [&](Judge& asking) { asking.run(run); });
        judge_traffic(judge, run, 1);
    }
}

void judge_training_bytes(Judge& judge, const TaskRun& run) {
    judge.needs_values(run, judge_parameters);
    judge_traffic(judge, run, kSteps);
}

void judge_memory(Judge& judge, const TaskRun& run) {
    judge.needs_values(run, judge_parameters);
    judge.figures_as_right(run, "a7.2", {{kPeak, {100, 10}}});
}

/// A step would take 25 % more time without overlap, and 17 % more with a single bucket.
/// 8 % more is allowed, because copies of gradients cost memory time.
void judge_time(Judge& judge, const TaskRun& run) {
    judge.needs_values(run, judge_parameters);
    judge.time_as_right(run, "a7.2", {20, 8},
                        "a bucket's all-reduce begins when backward has come to its last "
                        "gradient, and is waited for when backward is over");
}

std::vector<Criterion> criteria() {
    const std::vector<Runs> busy{single_runs, accumulated_run};
    const std::vector<Runs> all{single_runs, accumulated_run, several_runs};
    const std::string gradient = "batch_gradient";
    return {{"a7.1-buckets",
             "buckets hold the gradients in reverse order, as views, within limits", 25,
             "buckets", each_run(all, "make_buckets", judge_buckets)},
            {"a7.2-accumulation",
             "batch_gradient leaves one rank the sum over its micro-batches", 15,
             "buckets", each_run({accumulated_run}, gradient, judge_parameters)},
            {"a7.2-values",
             "batch_gradient leaves every rank the gradient of the mean over all rows", 6,
             "buckets", each_run({single_runs}, gradient, judge_sums)},
            {"a7.2-ranks", "ranks may have more or fewer micro-batches, or none", 4,
             "buckets", each_run({several_runs}, gradient, judge_sums),
             /*needs=*/{}, /*after=*/{"a7.2-accumulation", "a7.2-values"}},
            {"a7.2-loss", "the ranks' parts of the loss add up to its mean", 5, "buckets",
             each_run(busy, gradient, judge_loss),
             /*needs=*/{}, /*after=*/{"a7.2-accumulation", "a7.2-values"}},
            {"a7.2-bytes", "batch_gradient: one all-reduce per bucket", 12, "buckets",
             judge_batch_bytes},
            {"a7.2-memory", "batch_gradient holds the gradients once", 5, "buckets",
             each_run({heavy_run, timed_run}, gradient, judge_memory)},
            {"a7.2-time", "buckets are all-reduced during backward", 20, "buckets",
             each_run({timed_run}, gradient, judge_time)},
            {"a7.3-values", "train ends with one device's parameters on every rank", 3,
             "buckets", each_run(all, "train", judge_sums),
             /*needs=*/{}, /*after=*/{"a7.2-accumulation", "a7.2-values", "a7.2-ranks"}},
            {"a7.3-losses", "the ranks' parts of each step's loss add up to its mean", 3,
             "buckets", each_run(all, "train", judge_loss), /*needs=*/{"a7.3-values"},
             /*after=*/{"a7.2-loss"}},
            {"a7.3-bytes", "train: one all-reduce per bucket and step", 2, "buckets",
             each_run({single_runs}, "train", judge_training_bytes)}};
}

}  // namespace

Assignment ddp_buckets_assignment() {
    return {"ddp-buckets",
            "Buckets that are all-reduced during backward",
            "Gradients in buckets, each all-reduced as soon as its last gradient of the "
            "step is there, as PyTorch's DistributedDataParallel does it.",
            {"ddp_buckets.hpp", "ddp_buckets.cpp", "adapters.cpp"},
            taught_by("data-parallel", criteria()),
            ddp_buckets_solutions};
}

}  // namespace lockstep::lessons
