#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/debug_the_cluster/grading/trials.hpp"
#include "lessons/assignments/debug_the_cluster/handout/causes.hpp"
#include "lessons/grader/judge.hpp"
#include "lessons/page/sha256.hpp"
#include "src/course/found_mistake.hpp"

namespace lockstep::lessons {

namespace {

/// A measured value of a whole run, such as the bytes of all ranks together.
struct RunFigure {
    const char* name;
    const char* unit;
    std::int64_t (RunReport::*value)() const;
};
constexpr RunFigure kAllBytes{"all ranks sent", "bytes", &RunReport::bytes_sent};
constexpr RunFigure kAllMessages{"all ranks sent", "messages", &RunReport::messages_sent};
/// The devices' work. Programs that may read values on the host do not compute there.
constexpr AskedFigure kWork{kFlops, {50, kAnyMore}, "", "devices compute, not the host"};
constexpr RunFigure kTime{"time", kPicoseconds, &RunReport::makespan};

/// Bounds of drawn numbers: the ranks of a run, and one more number, which counts steps,
/// micro-batches, layers or rows, or is a percentage.
struct Sizes {
    int least_ranks, most_ranks, least, most;
};

/// A program with a mistake.
struct Broken {
    std::string program;
    std::string lesson;  ///< where the mistake is taught
    TaskRun (*run)(const Judge&, int ranks, int size);
    /// Its runs: sizes that ranks divide, sizes that they do not divide, one rank,
    /// others.
    std::vector<Sizes> sizes;
    int size_in_all;  ///< the size, if all six run together
    /// The costs that are judged, because a wrong fix would raise them.
    std::vector<std::pair<RunFigure, Allowed>> of_all;
    std::vector<AskedFigure> of_each_rank;

    std::string file() const { return program + ".cpp"; }
};

/// Returns all six, in the order of the handout: a6.1 to a6.6.
const std::vector<Broken>& all_broken() {
    static const std::vector<Broken> all{
        // A student's ranks may first agree whether any rank has a document: that is one
        // more number in each step. They may then leave out the last step, in which no
        // rank has a document. The chunks of an all-reduce differ by one number.
        {"filter",
         lesson_step("gradient-accumulation", "distribute"),
         filter_run,
         {{4, 4, 5, 6}, {3, 3, 5, 6}, {1, 1, 2, 2}, {5, 7, 5, 5}},
         2,
         {{kAllBytes, {21, 4}}},
         {{kSent, {100, 10}}, {kMessages, {100, 50}}, kWork}},
        // Runs with more micro-batches than stages, and runs with fewer, down to one.
        {"pipeline",
         lesson_step("pipeline-1f1b", "memory"),
         pipeline_run,
         {{4, 4, 2, 2}, {3, 3, 7, 9}, {1, 1, 2, 4}, {6, 7, 1, 1}, {5, 5, 2, 3}},
         3,
         {{kTime, {100, 5}}},
         {{kMessages}, {kSent}, {kPeak, {100, 15}}}},
        {"prefetch",
         lesson_step("ring-self-attention", "overlap"),
         prefetch_run,
         {{4, 4, 4, 6}, {2, 2, 3, 4}, {1, 1, 2, 3}, {3, 3, 1, 1}, {5, 7, 4, 4}},
         2,
         {{kTime, {100, 5}}},
         {{kMessages}, {kSent}, {kPeak, {100, 5}}}},
        // In evaluate and clip, ranks all-reduce one number; a second one is allowed.
        {"evaluate",
         lesson_step("gradient-accumulation", "average"),
         evaluate_run,
         {{4, 4, 25, 27}, {3, 3, 12, 12}, {1, 1, 6, 10}, {5, 5, 2, 4}, {6, 8, 43, 47}},
         17,
         {{kAllBytes, {0, 100}}, {kAllMessages, {100, 100}}},
         {kWork}},
        {"clip",
         lesson_step("tensor-parallel-block", "sequence"),
         clip_run,
         {{4, 4, 220, 300}, {3, 3, 93, 98}, {1, 1, 115, 130}, {5, 7, 250, 350}},
         200,
         {{kAllBytes, {0, 100}}, {kAllMessages, {100, 100}}},
         {kWork}},
        // The gradients of W1 and W2 may be all-reduced together or separately.
        {"accumulate",
         lesson_step("gradient-accumulation", "distribute"),
         accumulate_run,
         {{4, 4, 5, 7}, {3, 3, 2, 3}, {1, 1, 2, 3}, {2, 2, 1, 1}, {5, 7, 4, 4}},
         2,
         {{kAllBytes, {0, 5}}, {kTime, {100, 15}}},
         {{kSent, {100, 10}}, {kMessages, {100, 0}}, {kPeak, {100, 20}}}}};
    return all;
}

int drawn(const Judge& judge, const std::string& name, int low, int high) {
    return static_cast<int>(judge.draw(name, low, high));
}

std::vector<TaskRun> runs_of(const Judge& judge, const Broken& broken) {
    std::vector<TaskRun> runs;
    for (const auto& [least_ranks, most_ranks, least, most] : broken.sizes) {
        const std::string suffix = fmt::format(" of {}, {}", broken.program, runs.size());
        const int ranks = drawn(judge, "ranks" + suffix, least_ranks, most_ranks);
        runs.push_back(
            broken.run(judge, ranks, drawn(judge, "size" + suffix, least, most)));
    }
    return runs;
}

void judge_values(Judge& judge, const Broken& broken) {
    for (const TaskRun& run : runs_of(judge, broken))
        judge.as_right(run);
}

/// No program needs a barrier, and a barrier may hide that a wait is missing.
void judge_no_barrier(Judge& judge, const TaskRun& run) {
    for (const RankReport& rank : judge.run(run).report.ranks)
        for (const Traffic& traffic : rank.traffic)
            judge.ask(traffic.verb != "barrier", run.name + ": no barrier", traffic.verb);
}

/// Judges a fixed program's values on every rank and, if they are right in all runs, its
/// costs. `exercise` is "a6.1".
void judge_mended(Judge& judge, const std::string& exercise, const Broken& broken) {
    judge_values(judge, broken);
    for (const TaskRun& run : runs_of(judge, broken)) {
        judge_no_barrier(judge, run);
        for (const auto& [figure, allowed] : broken.of_all)
            judge.figure_as_right(
                run, fmt::format("{}: {}: {}", exercise, run.name, figure.name),
                figure.unit, figure.value, allowed);
        judge.figures_as_right(run, exercise, broken.of_each_rank);
    }
}

/// Judges the values of all six in one run, if each program is right when it runs alone.
void judge_all(Judge& judge) {
    const int ranks = drawn(judge, "ranks of all six", 5, 8);
    TaskRun all{fmt::format("all six on {} ranks", ranks), {}};
    all.ranks.resize(static_cast<std::size_t>(ranks), {"all", {}, {}, true});
    for (std::size_t i = 0; i < all_broken().size(); ++i) {
        const Broken& broken = all_broken()[i];
        judge.needs(fmt::format("a6.{}-mended", i + 1),
                    [&](Judge& asking) { judge_values(asking, broken); });
        TaskRun part = broken.run(judge, ranks, broken.size_in_all);
        for (std::size_t rank = 0; rank < all.ranks.size(); ++rank) {
            all.ranks[rank].tensors.merge(part.ranks[rank].tensors);
            all.ranks[rank].numbers.merge(part.ranks[rank].numbers);
        }
    }
    judge.as_right(all);
}

constexpr const char* kAnswers = "answers.json";
/// The number of ranks in run.cpp. Answers name ranks of such a run.
constexpr int kRanks = 4;

/// Returns the "ranks", the "line" or the "cause" of the student's answer; empty if none.
std::string answer_of(const Judge& judge, const std::string& program,
                      const std::string& part) {
    const FoundMistake found(judge.file(kAnswers), kAnswers, program);
    if (part == "cause") return found.cause(kCauses).value_or("");
    if (part == "line") return found.line() ? std::to_string(*found.line()) : "";
    const auto ranks = found.ranks(kRanks);
    return ranks ? fmt::format("{}", fmt::join(*ranks, " ")) : "";
}

/// Judges a part of an answer. The grader has only the hashes of the right answers, in
/// grading/answers.json, which hash_answers.py makes.
void judge_found(Judge& judge, const std::string& program, const std::string& part) {
    const std::string answer = answer_of(judge, program, part);
    const std::string asked = fmt::format("the {} of {}.cpp's mistake", part, program);
    if (answer.empty())
        throw Judge::No{
            Mark::not_written, asked, "",
            fmt::format("{} of {}.cpp's mistake into {}", part, program, kAnswers)};
    const std::string hash = sha256(fmt::format("{}: {}: {}", program, part, answer));
    judge.ask(judge.data(kAnswers).find(hash) != std::string::npos, asked, answer,
              "it is another");
}

/// Judges the ranks of an answer. Ranks are easy to guess, because there are only four,
/// so the line or the cause must be right, too.
void judge_ranks(Judge& judge, const std::string& program) {
    judge_found(judge, program, "ranks");
    const auto is_found = [&](const char* part) {
        return judge.meets([&](Judge& asking) { judge_found(asking, program, part); });
    };
    const bool found = is_found("line") || is_found("cause");
    judge.ask(
        found,
        fmt::format("in addition to the ranks, the line or the cause of {}.cpp's mistake",
                    program),
        found ? "at least one" : "neither",
        "the ranks without the line or the cause could be a guess");
}

/// Adds the criteria of a program; `exercise` is "a6.1".
void add_criteria(const Broken& broken, const std::string& exercise,
                  std::vector<Criterion>& criteria) {
    const std::string file = broken.file(), program = broken.program;
    const auto add = [&](const char* what, const std::string& title, int points,
                         const std::function<void(Judge&)>& judge) {
        criteria.push_back({exercise + "-" + what, title, points, broken.lesson, judge});
    };
    add("ranks", fmt::format("the ranks on which {} goes wrong", file), 2,
        [=](Judge& judge) { judge_ranks(judge, program); });
    add("line", fmt::format("the line of {} that is wrong", file), 2,
        [=](Judge& judge) { judge_found(judge, program, "line"); });
    add("cause", fmt::format("why {} goes wrong", file), 2,
        [=](Judge& judge) { judge_found(judge, program, "cause"); });
    add("mended",
        fmt::format("{} computes and sends what it should, at no more cost", file), 10,
        [=, &broken](Judge& judge) { judge_mended(judge, exercise, broken); });
}

}  // namespace

Assignment debug_the_cluster_assignment() {
    Assignment assignment{"debug-the-cluster",
                          "Debug the cluster",
                          "Six broken distributed programs: name the ranks, the line and "
                          "the cause of each mistake, then mend it.",
                          {"programs.hpp", "stage.hpp", "adapters.cpp", kAnswers},
                          {},
                          debug_the_cluster_solutions};
    for (std::size_t i = 0; i < all_broken().size(); ++i) {
        assignment.files.push_back(all_broken()[i].file());
        add_criteria(all_broken()[i], fmt::format("a6.{}", i + 1), assignment.criteria);
    }
    assignment.criteria.push_back(
        {"a6.7-all", "all six run in one program, one after another", 4,
         lesson_step("gradient-accumulation", "distribute"), judge_all});
    return assignment;
}

}  // namespace lockstep::lessons
