#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/debug_the_cluster/grading/trials.hpp"
#include "lessons/assignments/debug_the_cluster/handout/causes.hpp"
#include "lessons/grader/judge.hpp"
#include "lessons/grader/kit.hpp"
#include "src/core/require.hpp"
#include "src/course/found_mistake.hpp"
#include "src/report/files.hpp"

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

/// One program's mistake. If several answers are right, all of them.
struct Mistake {
    std::string program;
    std::vector<std::set<int>> ranks;
    std::vector<std::string> lines;  ///< the text of each, which the program has once
    std::string cause;
    std::string lesson;
};

const std::set<int> kAll{0, 1, 2, 3};

const std::vector<Mistake> kMistakes{
    {"filter",
     {{2}},
     {"if (x.elements() == 0) continue;  // all were too long"},
     "other_path",
     "gradient-accumulation, step 2"},
    // With fewer micro-batches than stages before the last.
    {"pipeline",
     {{1, 2, 3}},
     {"const int ahead = std::min(last, micro_batches) - stage;"},
     "wrong_schedule",
     "pipeline-1f1b, step 3"},
    // Whoever gathers the first layer may wait for it, too.
    {"prefetch",
     {kAll},
     {"if (layer > 0) arriving.wait();", "Work arriving = gather(0);"},
     "not_arrived",
     "ring-self-attention, step 8"},
    {"evaluate",
     {kAll},
     {"device.scale(loss, 1.0 / static_cast<double>(own.count * rank.size()));"},
     "wrong_mean",
     "gradient-accumulation, step 3"},
    // One rank may count what all hold; or none, and each adds it afterwards.
    {"clip",
     {{1, 2, 3}, kAll},
     {"count(replicated);", "rank.world().all_reduce(squares).wait();"},
     "summed_again",
     "tensor-parallel-block, step 4"},
    {"accumulate",
     {kAll},
     {"rank.world().all_reduce(parts[i], Reduction::mean).wait();"},
     "too_often",
     "gradient-accumulation, step 2"}};

/// The number of the line in the program as it is handed out.
std::int64_t number_of(const std::string& line, const std::string& file) {
    constexpr std::uint64_t kLargest = 1 << 20;
    std::istringstream text(read_text_file(Kit::find().handout(kSlug) / file, kLargest));
    std::int64_t number = 0, found = 0;
    std::string read;
    while (std::getline(text, read)) {
        ++number;
        const std::size_t begin = std::min(read.find_first_not_of(' '), read.size());
        if (read.substr(begin) != line) continue;
        if (found != 0) throw std::logic_error(file + " has twice: " + line);
        found = number;
    }
    if (found == 0) throw std::logic_error(file + " has not: " + line);
    return found;
}

bool is_right(const FoundMistake& found, const Mistake& mistake) {
    const auto is_line = [&](const std::string& line) {
        return number_of(line, mistake.program + ".cpp") == found.line;
    };
    return std::count(mistake.ranks.begin(), mistake.ranks.end(), found.ranks) > 0 &&
           std::any_of(mistake.lines.begin(), mistake.lines.end(), is_line) &&
           found.cause == mistake.cause;
}

/// It does not say which of the three is wrong: one would be tried after another.
void judge_found(Judge& judge, const Mistake& mistake) {
    const std::string asked =
        fmt::format("the ranks, the line and the cause of {}.cpp's mistake, all three",
                    mistake.program);
    std::optional<FoundMistake> found;
    try {
        found = read_found_mistake(judge.file(kAnswers), kAnswers, mistake.program,
                                   kRanks, kCauses);
    } catch (const UsageError& wrong) {
        throw Judge::No{Mark::failed, asked, "", wrong.what()};
    }
    if (!found)
        throw Judge::No{Mark::not_written, asked, "",
                        fmt::format("ranks, line and cause of {}.cpp's mistake into {}",
                                    mistake.program, kAnswers)};
    judge.ask(is_right(*found, mistake), asked,
              fmt::format("ranks {}, line {}, {}", fmt::join(found->ranks, ", "),
                          found->line, found->cause),
              "at least one of the three is not right");
}

}  // namespace

Assignment debug_the_cluster_assignment() {
    Assignment assignment{kSlug,
                          "Debug the cluster",
                          "Six broken distributed programs: name the ranks, the line and "
                          "the cause of each mistake, then mend it.",
                          {"programs.hpp", "stage.hpp", "adapters.cpp", kAnswers},
                          {}};
    const std::map<std::string, void (*)(Judge&)> mended{
        {"filter", judge_filter},     {"pipeline", judge_pipeline},
        {"prefetch", judge_prefetch}, {"evaluate", judge_evaluate},
        {"clip", judge_clip},         {"accumulate", judge_accumulate}};
    int number = 0;
    for (const Mistake& mistake : kMistakes) {
        const std::string id = fmt::format("a6.{}", ++number);
        const std::string file = mistake.program + ".cpp";
        assignment.files.push_back(file);
        assignment.criteria.push_back(
            {id + "-found", fmt::format("the mistake of {} is named", file), 6,
             mistake.lesson, [&mistake](Judge& judge) { judge_found(judge, mistake); }});
        assignment.criteria.push_back(
            {id + "-mended",
             fmt::format("{} computes and sends what it should, at no more cost", file),
             10, mistake.lesson, mended.at(mistake.program)});
    }
    assignment.criteria.push_back({"a6.7-all",
                                   "all six run in one program, one after another", 4,
                                   "gradient-accumulation, step 2", judge_all});
    return assignment;
}

}  // namespace lockstep::lessons
