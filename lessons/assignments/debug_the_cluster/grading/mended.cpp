#include "lessons/assignments/debug_the_cluster/grading/mended.hpp"

#include <fmt/format.h>

#include "lessons/assignments/debug_the_cluster/grading/trials.hpp"

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

}  // namespace

// What is asked beside values. Where ranks first agree whether any has a document, that
// is a number more a step; gradients may go in one message or in two.

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

void judge_all(Judge& judge) {
    const int ranks = static_cast<int>(judge.draw("ranks of all six", 5, 8));
    judge_values(judge, trial_of_all(judge, ranks));
}

}  // namespace lockstep::lessons
