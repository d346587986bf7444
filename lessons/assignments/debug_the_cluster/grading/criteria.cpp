#include <algorithm>
#include <set>
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

const TaskResult& run(Judge& judge, const Trial& trial) {
    return judge.run({trial.name, trial.ranks});
}

void judge_values(Judge& judge, const Trial& trial) {
    const TaskResult& result = run(judge, trial);
    for (std::size_t rank = 0; rank < trial.ranks.size(); ++rank)
        for (const auto& [name, values] : trial.expected[rank])
            judge.close(fmt::format("{}: rank {}: {}", trial.name, rank, name),
                        judge.left(result.ranks[rank], name), values);
}

/// How far what a mended program sends may be from what the reference sends.
struct Sends {
    Allowed bytes;
    Allowed messages;
};

/// None of these programs needs one; and one may hide a wait that is missing.
void judge_no_barrier(Judge& judge, const Trial& trial) {
    for (const RankReport& rank : run(judge, trial).report.ranks)
        for (const Traffic& traffic : rank.traffic)
            judge.ask(traffic.verb != "barrier",
                      fmt::format("{}: no barrier", trial.name), traffic.verb);
}

std::string target(const Trial& trial, const std::string& what) {
    return fmt::format("{}: {}: {}", trial.program, trial.name, what);
}

void judge_sent_by_each(Judge& judge, const Trial& trial, const Sends& sends) {
    judge_no_barrier(judge, trial);
    const TaskResult& result = run(judge, trial);
    for (std::size_t rank = 0; rank < trial.ranks.size(); ++rank) {
        const RankReport& left = result.report.ranks[rank];
        judge.as_reference(target(trial, fmt::format("rank {}: sent", rank)), "bytes",
                           left.bytes_sent(), sends.bytes);
        judge.as_reference(target(trial, fmt::format("rank {}: messages", rank)),
                           "messages", left.messages_sent(), sends.messages);
    }
}

void judge_sent_by_all(Judge& judge, const Trial& trial, const Sends& sends) {
    judge_no_barrier(judge, trial);
    const RunReport& report = run(judge, trial).report;
    judge.as_reference(target(trial, "sent"), "bytes", report.bytes_sent(), sends.bytes);
    judge.as_reference(target(trial, "messages"), "messages", report.messages_sent(),
                       sends.messages);
}

void judge_memory(Judge& judge, const Trial& trial, int percent_more) {
    const TaskResult& result = run(judge, trial);
    for (std::size_t rank = 0; rank < trial.ranks.size(); ++rank)
        judge.as_reference(target(trial, fmt::format("rank {}: peak", rank)),
                           "bytes of memory", result.report.ranks[rank].memory.peak,
                           {100, percent_more});
}

void judge_time(Judge& judge, const Trial& trial, int percent_more) {
    judge.as_reference(target(trial, "time"), kPicoseconds,
                       run(judge, trial).report.makespan(), {100, percent_more});
}

// Each mended program is asked for its values on every rank. If a wrong mend would do
// worse in it, what the program sends, what it holds or how long it takes is held against
// the reference as well. Ranks that first agree whether any has a document send a number
// more a step; gradients may go in one message or in two.

void judge_filter(Judge& judge) {
    for (const Trial& trial : filter_trials(judge)) {
        judge_values(judge, trial);
        judge_sent_by_each(judge, trial, {{55, 10}, {80, 60}});
    }
}

void judge_pipeline(Judge& judge) {
    for (const Trial& trial : pipeline_trials(judge)) {
        judge_values(judge, trial);
        judge_sent_by_each(judge, trial, {});
        judge_memory(judge, trial, 15);
        judge_time(judge, trial, 5);
    }
}

void judge_prefetch(Judge& judge) {
    for (const Trial& trial : prefetch_trials(judge)) {
        judge_values(judge, trial);
        judge_sent_by_each(judge, trial, {});
        judge_memory(judge, trial, 5);
        judge_time(judge, trial, 5);
    }
}

/// Ranks may tell each other their numbers of rows.
void judge_evaluate(Judge& judge) {
    for (const Trial& trial : evaluate_trials(judge)) {
        judge_values(judge, trial);
        judge_sent_by_all(judge, trial, {{0, 100}, {100, 100}});
    }
}

void judge_clip(Judge& judge) {
    for (const Trial& trial : clip_trials(judge)) {
        judge_values(judge, trial);
        judge_sent_by_all(judge, trial, {{0, 100}, {100, 100}});
    }
}

void judge_accumulate(Judge& judge) {
    for (const Trial& trial : accumulate_trials(judge)) {
        judge_values(judge, trial);
        judge_sent_by_each(judge, trial, {{5, 5}, {60, 0}});
        judge_memory(judge, trial, 20);
        judge_time(judge, trial, 15);
    }
}

/// All six in one run: values.
void judge_all(Judge& judge) {
    const int ranks = static_cast<int>(judge.draw("ranks of all six", 5, 8));
    judge_values(judge, trial_of_all(judge, ranks));
}

constexpr const char* kSlug = "debug-the-cluster";
constexpr const char* kAnswers = "answers.json";
/// run.cpp has as many; the answers name ranks of these.
constexpr int kRanks = 4;

/// A program with a mistake, and where one learns of it.
struct Broken {
    std::string program;
    std::string lesson;
    void (*judge_mended)(Judge&) = nullptr;
};

const std::vector<Broken> kBroken{
    {"filter", "gradient-accumulation, step 2", judge_filter},
    {"pipeline", "pipeline-1f1b, step 3", judge_pipeline},
    {"prefetch", "ring-self-attention, step 8", judge_prefetch},
    {"evaluate", "gradient-accumulation, step 3", judge_evaluate},
    {"clip", "tensor-parallel-block, step 4", judge_clip},
    {"accumulate", "gradient-accumulation, step 2", judge_accumulate}};

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

void judge_found(Judge& judge, const std::string& program, const std::string& name,
                 Part part) {
    const std::string asked = fmt::format("the {} of {}.cpp's mistake", name, program);
    std::string answer;
    try {
        answer = part(FoundMistake(judge.file(kAnswers), kAnswers, program));
    } catch (const UsageError& wrong) {
        throw Judge::No{Mark::failed, asked, "", wrong.what()};
    }
    if (answer.empty())
        throw Judge::No{
            Mark::not_written, asked, "",
            fmt::format("{} of {}.cpp's mistake into {}", name, program, kAnswers)};
    judge.ask(is_right(judge, program, name, answer), asked, answer, "it is another");
}

}  // namespace

Assignment debug_the_cluster_assignment() {
    Assignment assignment{kSlug,
                          "Debug the cluster",
                          "Six broken distributed programs: name the ranks, the line and "
                          "the cause of each mistake, then mend it.",
                          {"programs.hpp", "stage.hpp", "adapters.cpp", kAnswers},
                          {}};
    int number = 0;
    for (const Broken& broken : kBroken) {
        const std::string id = fmt::format("a6.{}", ++number);
        const std::string file = broken.program + ".cpp";
        assignment.files.push_back(file);
        const auto add_found = [&](const std::string& name, const std::string& title,
                                   Part part) {
            assignment.criteria.push_back(
                {fmt::format("{}-{}", id, name), title, 2, broken.lesson,
                 [program = broken.program, name, part](Judge& judge) {
                     judge_found(judge, program, name, part);
                 }});
        };
        add_found("ranks", fmt::format("the ranks on which {} goes wrong", file),
                  ranks_of);
        add_found("line", fmt::format("the line of {} that is wrong", file), line_of);
        add_found("cause", fmt::format("why {} goes wrong", file), cause_of);
        assignment.criteria.push_back(
            {id + "-mended",
             fmt::format("{} computes and sends what it should, at no more cost", file),
             10, broken.lesson, broken.judge_mended});
    }
    assignment.criteria.push_back({"a6.7-all",
                                   "all six run in one program, one after another", 4,
                                   "gradient-accumulation, step 2", judge_all});
    return assignment;
}

}  // namespace lockstep::lessons
