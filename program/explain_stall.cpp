#include "program/explain_stall.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "sim/replay.hpp"
#include "src/comm/operation_log.hpp"
#include "src/core/require.hpp"
#include "src/run/diagnosis.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::programs {

namespace {

std::string paragraph(const std::string& text, int width) {
    std::string lines;
    for (const std::string& line : wrap(text, width))
        lines += line + "\n";
    return lines;
}

/// Returns the log in a rank's answer, or nothing if the answer is no log.
std::optional<RankLog> log_of(const std::string& bytes) {
    try {
        return bytes.empty() ? std::nullopt : std::optional<RankLog>(read_log(bytes));
    } catch (const UsageError&) {
        return std::nullopt;
    }
}

/// Returns the logs of the cluster's ranks; other processes of the run have none.
std::vector<std::optional<RankLog>> logs_of_members(
    const std::vector<std::string>& logs) {
    std::vector<std::optional<RankLog>> read;
    std::size_t members = logs.size();
    for (const std::string& bytes : logs) {
        read.push_back(log_of(bytes));
        if (read.back())
            members = std::min(members, static_cast<std::size_t>(read.back()->ranks));
    }
    read.resize(members);
    return read;
}

std::vector<RankLog> complete_ones(const std::vector<std::optional<RankLog>>& logs) {
    std::vector<RankLog> complete;
    for (const std::optional<RankLog>& log : logs)
        if (log && log->complete) complete.push_back(*log);
    return complete;
}

std::string place_text(const std::optional<RankLog>& log) {
    if (!log) return "gave no answer";
    if (log->calls.empty())
        return log->ended ? "has ended; it launched nothing" : "has launched nothing";
    const LoggedCall& last = log->calls.back();
    return fmt::format("{}{} at {}", log->ended ? "has ended; its last call was " : "",
                       text_of(last), last.at.text());
}

/// Says how far each rank has come; ranks with the same last call share a paragraph.
std::string places_text(const std::vector<std::optional<RankLog>>& logs, int width) {
    std::map<std::string, std::vector<int>> places;
    for (std::size_t rank = 0; rank < logs.size(); ++rank)
        places[place_text(logs[rank])].push_back(static_cast<int>(rank));
    std::string text;
    for (const auto& [place, ranks] : places)
        text += paragraph(ranks_text(ranks) + ": " + place, width);
    return text;
}

}  // namespace

std::string stall_text(const std::vector<std::string>& logs, int stalled, int width) {
    const std::vector<std::optional<RankLog>> read = logs_of_members(logs);
    const std::vector<RankLog> complete = complete_ones(read);
    const std::string stands = fmt::format(
        "lockstep: the run is stuck: rank {} has made no progress within the time that "
        "--set timeout allows.",
        stalled);
    if (complete.size() < read.size())
        return paragraph(stands + " The last calls of its ranks:", width) +
               places_text(read, width);
    if (const std::optional<Diagnosis> diagnosis = sim::replay(complete))
        return paragraph(stands + " Its calls, repeated on virtual devices, show why.",
                         width) +
               diagnosis->text(width);
    return paragraph(
               stands +
                   " The calls of all ranks match so far, so the cause is something "
                   "else: a program that computes for long or loops, a GPU that fails, a "
                   "link that is down, or a timeout that is too short. The last calls:",
               width) +
           places_text(read, width);
}

void check_calls(const std::vector<std::string>& logs) {
    const std::vector<std::optional<RankLog>> read = logs_of_members(logs);
    const std::vector<RankLog> complete = complete_ones(read);
    if (complete.size() < read.size()) return;
    std::optional<Diagnosis> diagnosis = sim::replay(complete);
    if (!diagnosis) return;
    diagnosis->sentence =
        "this run ended on the GPUs without an error, but its calls are wrong: " +
        diagnosis->sentence;
    throw FaultError(*diagnosis);
}

}  // namespace lockstep::programs
