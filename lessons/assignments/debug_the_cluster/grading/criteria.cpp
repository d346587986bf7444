#include <algorithm>
#include <cassert>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/debug_the_cluster/grading/trials.hpp"
#include "lessons/assignments/debug_the_cluster/handout/causes.hpp"
#include "lessons/grader/judge.hpp"
#include "lessons/page/sha256.hpp"
#include "src/core/require.hpp"
#include "src/course/found_mistake.hpp"
#include "src/text/json.hpp"

namespace lockstep::lessons {

namespace {

// What a mended program sends, what it holds and how long it takes, as far as a wrong
// mend would do worse in it. `exercise` is "a6.1".

/// Compares the bytes that all ranks send.
void judge_bytes(Judge& judge, const std::string& exercise, const TaskRun& run,
                 Allowed allowed) {
    judge.figure_as_right(
        run, fmt::format("{}: {}: all ranks sent", exercise, run.name), "bytes",
        [](const RunReport& report) { return report.bytes_sent(); }, allowed);
}

/// Compares the bytes and messages that each rank sends, which may be less.
void judge_sent(Judge& judge, const std::string& exercise, const TaskRun& run,
                int more_bytes, int more_messages) {
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
        const std::string name =
            fmt::format("{}: {}: rank {} sent", exercise, run.name, rank);
        judge.figure_as_right(
            run, name, "bytes",
            [=](const RunReport& report) { return report.ranks[rank].bytes_sent(); },
            {100, more_bytes});
        judge.figure_as_right(
            run, name, "messages",
            [=](const RunReport& report) { return report.ranks[rank].messages_sent(); },
            {100, more_messages});
    }
}

/// Ranks that first agree whether any has a document send a number more a step, and may
/// leave out the last step, in which none has. The chunks of an all-reduce differ by a
/// number.
void judge_filter(Judge& judge, const std::string& exercise, const TaskRun& run) {
    const auto& given = run.ranks[0].tensors;
    const int ranks = static_cast<int>(run.ranks.size());
    int elements = 0, largest_chunks = 1;
    for (const char* name : {"filter: weight", "filter: bias"}) {
        const auto count = static_cast<int>(given.at(name).values.elements());
        elements += count;
        largest_chunks += (count + ranks - 1) / ranks;
    }
    assert(elements > 0);
    const auto steps = std::ranges::count_if(
        given, [](const auto& each) { return each.first.starts_with("filter: inputs"); });
    assert(steps > 0);
    judge_bytes(judge, exercise, run,
                {100 / static_cast<int>(steps) + 1, 100 * ranks / elements + 1});
    judge_sent(judge, exercise, run, 100 * largest_chunks * ranks / elements - 99, 50);
}

void judge_pipeline(Judge& judge, const std::string& exercise, const TaskRun& run) {
    judge.traffic_as_right(run, exercise);
    judge.figures_as_right(run, exercise, {{kPeak, {100, 15}}});
    judge.time_as_right(run, exercise, {100, 5});
}

void judge_prefetch(Judge& judge, const std::string& exercise, const TaskRun& run) {
    judge.traffic_as_right(run, exercise);
    judge.figures_as_right(run, exercise, {{kPeak, {100, 5}}});
    judge.time_as_right(run, exercise, {100, 5});
}

/// Ranks sum up one number, and may sum up another.
void judge_sum(Judge& judge, const std::string& exercise, const TaskRun& run) {
    judge_bytes(judge, exercise, run, {0, 100});
    judge.figure_as_right(
        run, fmt::format("{}: {}: all ranks sent", exercise, run.name), "messages",
        [](const RunReport& report) { return report.messages_sent(); }, {100, 100});
}

/// Gradients may go in one message or in two.
void judge_accumulate(Judge& judge, const std::string& exercise, const TaskRun& run) {
    judge_bytes(judge, exercise, run, {0, 5});
    judge_sent(judge, exercise, run, 10, 0);
    judge.figures_as_right(run, exercise, {{kPeak, {100, 20}}});
    judge.time_as_right(run, exercise, {100, 15});
}

/// A program with a mistake, and where one learns of it.
struct Broken {
    std::string program;
    std::string lesson;
    std::vector<TaskRun> (*runs)(const Judge&) = nullptr;
    void (*judge_cost)(Judge&, const std::string& exercise, const TaskRun&) = nullptr;

    std::string file() const { return program + ".cpp"; }
};

/// Returns all, in the order of the handout: a6.1 to a6.6.
const std::vector<Broken>& all_broken() {
    static const std::vector<Broken> all{
        {"filter", lesson_step("gradient-accumulation", "distribute"), filter_runs,
         judge_filter},
        {"pipeline", lesson_step("pipeline-1f1b", "memory"), pipeline_runs,
         judge_pipeline},
        {"prefetch", lesson_step("ring-self-attention", "overlap"), prefetch_runs,
         judge_prefetch},
        {"evaluate", lesson_step("gradient-accumulation", "average"), evaluate_runs,
         judge_sum},
        {"clip", lesson_step("tensor-parallel-block", "sequence"), clip_runs, judge_sum},
        {"accumulate", lesson_step("gradient-accumulation", "distribute"),
         accumulate_runs, judge_accumulate}};
    return all;
}

/// None of these programs needs one; and one may hide a wait that is missing.
void judge_no_barrier(Judge& judge, const TaskRun& run) {
    for (const RankReport& rank : judge.run(run).report.ranks)
        for (const Traffic& traffic : rank.traffic)
            judge.ask(traffic.verb != "barrier", run.name + ": no barrier", traffic.verb);
}

void judge_values(Judge& judge, const Broken& broken) {
    for (const TaskRun& run : broken.runs(judge))
        judge.as_right(run);
}

/// Judges a mended program's values on every rank; and when they are right in all runs,
/// what they cost.
void judge_mended(Judge& judge, const std::string& exercise, const Broken& broken) {
    judge_values(judge, broken);
    for (const TaskRun& run : broken.runs(judge)) {
        judge_no_barrier(judge, run);
        broken.judge_cost(judge, exercise, run);
    }
}

/// Judges the values of all six in one run. One that is wrong alone is not told again.
void judge_all(Judge& judge) {
    for (std::size_t i = 0; i < all_broken().size(); ++i)
        judge.needs(fmt::format("a6.{}-mended", i + 1),
                    [&](Judge& asking) { judge_values(asking, all_broken()[i]); });
    judge.as_right(
        run_of_all(judge, static_cast<int>(judge.draw("ranks of all six", 5, 8))));
}

constexpr const char* kSlug = "debug-the-cluster";
constexpr const char* kAnswers = "answers.json";
/// run.cpp has as many; the answers name ranks of these.
constexpr int kRanks = 4;

/// A part of an answer, as text; empty if it is open.
using Part = std::string (*)(const FoundMistake&);

std::string ranks_of(const FoundMistake& found) {
    const auto ranks = found.ranks(kRanks);
    return ranks ? fmt::format("{}", fmt::join(*ranks, " ")) : "";
}

std::string line_of(const FoundMistake& found) {
    const auto line = found.line();
    return line ? std::to_string(*line) : "";
}

std::string cause_of(const FoundMistake& found) {
    return found.cause(kCauses).value_or("");
}

/// Returns whether an answer is right. The right ones are not written here: answers.json
/// of the grading side, which hash_answers.py makes, has what they hash to.
bool is_right(const Judge& judge, const std::string& program, const std::string& part,
              const std::string& answer) {
    const std::string hash = sha256(fmt::format("{}: {}: {}", program, part, answer));
    try {
        const Json right = Json::parse(judge.data(kAnswers)).at(program).at(part);
        return std::ranges::any_of(right.elements(),
                                   [&](const Json& each) { return each.is(hash); });
    } catch (const JsonError& error) {
        throw MissingError(
            fmt::format("the grader's own {}: {}", kAnswers, error.what()));
    }
}

/// Returns a part of the student's answer; empty if it is open.
std::string answer_of(const Judge& judge, const std::string& program, Part part) {
    return part(FoundMistake(judge.file(kAnswers), kAnswers, program));
}

void judge_found(Judge& judge, const std::string& program, const std::string& name,
                 Part part) {
    const std::string asked = fmt::format("the {} of {}.cpp's mistake", name, program);
    std::string answer;
    try {
        answer = answer_of(judge, program, part);
    } catch (const UsageError& wrong) {
        throw Judge::No{Mark::failed, asked, "", wrong.what()};
    }
    if (answer.empty())
        throw Judge::No{
            Mark::not_written, asked, "",
            fmt::format("{} of {}.cpp's mistake into {}", name, program, kAnswers)};
    judge.ask(is_right(judge, program, name, answer), asked, answer, "it is another");
}

/// Ranks are few, and so easily guessed.
void judge_ranks(Judge& judge, const std::string& program) {
    judge_found(judge, program, "ranks", ranks_of);
    const auto is_found = [&](const std::string& name, Part part) {
        try {
            return is_right(judge, program, name, answer_of(judge, program, part));
        } catch (const UsageError&) {
            return false;  // its own criterion says why
        }
    };
    const bool found = is_found("line", line_of) || is_found("cause", cause_of);
    judge.ask(found,
              fmt::format("beside the ranks, the line or the cause of {}.cpp's mistake",
                          program),
              found ? "one at least" : "neither", "ranks alone are a guess");
}

Criterion found_criterion(const Broken& broken, const std::string& id,
                          const std::string& title, const std::string& name) {
    const auto judged = [program = broken.program, name](Judge& judge) {
        if (name == "ranks")
            judge_ranks(judge, program);
        else
            judge_found(judge, program, name, name == "line" ? line_of : cause_of);
    };
    return {fmt::format("{}-{}", id, name), title, 2, broken.lesson, judged};
}

}  // namespace

Assignment debug_the_cluster_assignment() {
    Assignment assignment{kSlug,
                          "Debug the cluster",
                          "Six broken distributed programs: name the ranks, the line and "
                          "the cause of each mistake, then mend it.",
                          {"programs.hpp", "stage.hpp", "adapters.cpp", kAnswers},
                          {}};
    for (std::size_t i = 0; i < all_broken().size(); ++i) {
        const Broken& broken = all_broken()[i];
        const std::string id = fmt::format("a6.{}", i + 1), file = broken.file();
        assignment.files.push_back(file);
        auto& criteria = assignment.criteria;
        criteria.push_back(found_criterion(
            broken, id, fmt::format("the ranks on which {} goes wrong", file), "ranks"));
        criteria.push_back(found_criterion(
            broken, id, fmt::format("the line of {} that is wrong", file), "line"));
        criteria.push_back(
            found_criterion(broken, id, fmt::format("why {} goes wrong", file), "cause"));
        criteria.push_back(
            {id + "-mended",
             fmt::format("{} computes and sends what it should, at no more cost", file),
             10, broken.lesson,
             [id, &broken](Judge& judge) { judge_mended(judge, id, broken); }});
    }
    assignment.criteria.push_back(
        {"a6.7-all", "all six run in one program, one after another", 4,
         lesson_step("gradient-accumulation", "distribute"), judge_all});
    assignment.solutions = debug_the_cluster_solutions;
    return assignment;
}

}  // namespace lockstep::lessons
