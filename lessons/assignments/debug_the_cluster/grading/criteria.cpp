#include <algorithm>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/debug_the_cluster/grading/trials.hpp"
#include "lessons/assignments/debug_the_cluster/handout/causes.hpp"
#include "lessons/assignments/needs.hpp"
#include "lessons/grader/judge.hpp"
#include "lessons/page/sha256.hpp"
#include "src/core/require.hpp"
#include "src/course/found_mistake.hpp"
#include "src/text/json.hpp"

namespace lockstep::lessons {

namespace {

/// Returns what the values are that a rank left, if a typical mistake leaves the same.
std::string mistake_in(const Trial& trial, std::size_t rank, const std::string& name,
                       const HostTensor& got) {
    if (trial.mistakes.empty()) return "";
    const auto found = trial.mistakes[rank].find(name);
    if (found == trial.mistakes[rank].end()) return "";
    for (const Mistake& mistake : found->second)
        if (Judge::are_close(got, mistake.values)) return mistake.sentence;
    return "";
}

/// Returns a run whose values are right.
const TaskResult& run_right(Judge& judge, const Trial& trial) {
    const TaskResult& result = judge.run({trial.name, trial.ranks});
    for (std::size_t rank = 0; rank < trial.ranks.size(); ++rank)
        for (const auto& [name, values] : trial.expected[rank]) {
            const HostTensor& got = judge.left(result.ranks[rank], name);
            try {
                judge.close(fmt::format("{}: rank {}: {}", trial.name, rank, name), got,
                            values);
            } catch (Judge::No& no) {
                no.explain(mistake_in(trial, rank, name, got));
                throw;
            }
        }
    return result;
}

/// None of these programs needs one; and one may hide a wait that is missing.
void judge_no_barrier(Judge& judge, const Trial& trial, const RunReport& report) {
    for (const RankReport& rank : report.ranks)
        for (const Traffic& traffic : rank.traffic)
            judge.ask(traffic.verb != "barrier",
                      fmt::format("{}: no barrier", trial.name), traffic.verb);
}

std::int64_t measured(const Figure& figure, const RunReport& report) {
    const bool all = figure.rank == Figure::kAllRanks;
    const auto of_rank = [&]() -> const RankReport& {
        return report.ranks[static_cast<std::size_t>(figure.rank)];
    };
    switch (figure.of) {
        case Figure::Of::bytes:
            return all ? report.bytes_sent() : of_rank().bytes_sent();
        case Figure::Of::messages:
            return all ? report.messages_sent() : of_rank().messages_sent();
        case Figure::Of::peak:
            return of_rank().memory.peak;
        default:
            return report.makespan();
    }
}

std::string text_of(const Figure& figure, std::int64_t value) {
    switch (figure.of) {
        case Figure::Of::bytes:
            return fmt::format("{} bytes", value);
        case Figure::Of::messages:
            return fmt::format("{} messages", value);
        case Figure::Of::peak:
            return fmt::format("{} bytes of memory", value);
        default:
            return time_text(value) + " of virtual time";
    }
}

std::string asked_of(const Figure& figure) {
    const std::string who = figure.rank != Figure::kAllRanks
                                ? fmt::format("rank {}: ", figure.rank)
                            : figure.of == Figure::Of::time ? ""
                                                            : "all ranks: ";
    const char* how = figure.of == Figure::Of::peak   ? "holds "
                      : figure.of == Figure::Of::time ? ""
                                                      : "sent ";
    if (figure.least == figure.most) return who + how + text_of(figure, figure.most);
    const std::string from =
        figure.least > 0 ? std::to_string(figure.least) + " to " : "at most ";
    return who + how + from + text_of(figure, figure.most);
}

/// A figure that is within 2 % of a typical mistake's is taken for it.
std::string mistake_in(const Figure& figure, std::int64_t value) {
    for (const auto& [as_if, sentence] : figure.as_if)
        if (std::abs(value - as_if) * 50 <= as_if) return sentence;
    return "";
}

void judge_figures(Judge& judge, const Trial& trial, const RunReport& report) {
    for (const Figure& figure : trial.figures) {
        const std::int64_t value = measured(figure, report);
        const bool right = value >= figure.least && value <= figure.most;
        judge.ask(right, fmt::format("{}: {}", trial.name, asked_of(figure)),
                  text_of(figure, value), right ? "" : mistake_in(figure, value));
    }
}

using MadeTrials = Trials (*)(const Judge&);

void judge_values(Judge& judge, MadeTrials made) {
    for (const Trial& trial : made(judge))
        run_right(judge, trial);
}

/// Judges a mended program's values on every rank; and when they are right in all runs,
/// what it sends, what it holds and how long it takes, as far as a wrong mend would do
/// worse in it.
void judge_mended(Judge& judge, MadeTrials made) {
    const Trials trials = made(judge);
    for (const Trial& trial : trials)
        run_right(judge, trial);
    for (const Trial& trial : trials) {
        const RunReport& report = run_right(judge, trial).report;
        judge_no_barrier(judge, trial, report);
        judge_figures(judge, trial, report);
    }
}

constexpr const char* kSlug = "debug-the-cluster";
constexpr const char* kAnswers = "answers.json";
/// run.cpp has as many; the answers name ranks of these.
constexpr int kRanks = 4;

/// A program with a mistake, and where one learns of it.
struct Broken {
    std::string program;
    std::string lesson;
    MadeTrials trials = nullptr;

    std::string file() const { return program + ".cpp"; }
};

/// Returns all, in the order of the handout: a6.1 to a6.6.
const std::vector<Broken>& all_broken() {
    static const std::vector<Broken> all{
        {"filter", lesson_step("gradient-accumulation", "distribute"), filter_trials},
        {"pipeline", lesson_step("pipeline-1f1b", "memory"), pipeline_trials},
        {"prefetch", lesson_step("ring-self-attention", "overlap"), prefetch_trials},
        {"evaluate", lesson_step("gradient-accumulation", "average"), evaluate_trials},
        {"clip", lesson_step("tensor-parallel-block", "sequence"), clip_trials},
        {"accumulate", lesson_step("gradient-accumulation", "distribute"),
         accumulate_trials}};
    return all;
}

std::string mended_id(std::size_t number) {
    return fmt::format("a6.{}-mended", number + 1);
}

/// Judges the values of all six in one run. One that is wrong alone is not told again.
void judge_all(Judge& judge) {
    for (std::size_t i = 0; i < all_broken().size(); ++i)
        needs(judge, mended_id(i),
              [&](Judge& asking) { judge_values(asking, all_broken()[i].trials); });
    const int ranks = static_cast<int>(judge.draw("ranks of all six", 5, 8));
    run_right(judge, trial_of_all(judge, ranks));
}

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
            {mended_id(i),
             fmt::format("{} computes and sends what it should, at no more cost", file),
             10, broken.lesson,
             [trials = broken.trials](Judge& judge) { judge_mended(judge, trials); }});
    }
    assignment.criteria.push_back(
        {"a6.7-all", "all six run in one program, one after another", 4,
         lesson_step("gradient-accumulation", "distribute"), judge_all});
    assignment.solutions = debug_the_cluster_solutions;
    return assignment;
}

}  // namespace lockstep::lessons
