#include "src/pipeline/pytorch_schedule.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/core/require.hpp"
#include "src/pipeline/period.hpp"
#include "src/text/numbers.hpp"

namespace lockstep {

namespace {

/// PyTorch's names of kinds, in the order of InstructionKind. An optimizer step has none.
constexpr std::array<const char*, kInstructionKinds> kNames{
    "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "REDUCE_GRAD", nullptr};
constexpr std::string_view kPair = "OVERLAP_F_B";

}  // namespace

bool is_pytorch_action(std::string_view cell) {
    if (cell.starts_with('(')) cell.remove_prefix(1);
    int number = 0;
    return take_digits(cell, number);
}

/// Reads an action such as "2SEND_F0", "2REDUCE_GRAD" or "2UNSHARD".
std::optional<PyTorchRank::Action> PyTorchRank::read(std::string_view text) {
    Action action;
    if (!take_digits(text, action.part)) return std::nullopt;
    if (text == "UNSHARD" || text == "RESHARD") return action;
    const std::string_view name = text.substr(0, text.find_first_of("0123456789"));
    for (int kind = 0; kind < kInstructionKinds; ++kind)
        if (kNames[kind] != nullptr && name == kNames[kind])
            action.kind = static_cast<InstructionKind>(kind);
    if (!action.kind) return std::nullopt;
    text.remove_prefix(name.size());
    const bool whole =
        !has_micro_batch(*action.kind) || take_digits(text, action.micro_batch);
    return whole && text.empty() ? std::optional(action) : std::nullopt;
}

bool PyTorchRank::add(std::string_view cell, int line) {
    cell = trimmed(cell);
    Cell made{{}, line};
    const bool pair = cell.starts_with('(') && cell.ends_with(kPair);
    if (pair) {
        cell = trimmed(cell.substr(0, cell.size() - kPair.size()));
        if (!cell.ends_with(')')) return false;
        cell = cell.substr(1, cell.size() - 2);
    }
    while (true) {
        const std::size_t end =
            pair ? std::min(cell.find(';'), cell.size()) : cell.size();
        std::optional<Action> action = read(trimmed(cell.substr(0, end)));
        if (!action) return false;
        if (action->kind) made.actions.push_back(*action);
        if (end == cell.size()) break;
        cell.remove_prefix(end + 1);
    }
    if (!made.actions.empty()) cells_.push_back(std::move(made));
    return true;
}

std::vector<int> PyTorchRank::parts() const {
    std::set<int> parts;
    for (const Cell& cell : cells_)
        for (const Action& action : cell.actions)
            parts.insert(action.part);
    return {parts.begin(), parts.end()};
}

std::vector<std::pair<std::string, int>> PyTorchRank::texts() const {
    const std::vector<int> held = parts();
    std::vector<std::pair<std::string, int>> texts;
    for (const Cell& cell : cells_) {
        std::vector<Instruction> work;
        for (const Action& action : cell.actions) {
            const auto chunk =
                std::lower_bound(held.begin(), held.end(), action.part) - held.begin();
            work.push_back({*action.kind, action.micro_batch, static_cast<int>(chunk)});
            work.back().together = work.size() > 1;
        }
        texts.emplace_back(texts_of(work).front(), cell.line);
    }
    return texts;
}

namespace {

std::string pytorch_text(const Schedule& schedule, Place place) {
    const Instruction& work = schedule.at(place);
    require(work.weight_version < 0 && !work.mixes_weights, [&] {
        return schedule.where(place) +
               ": torch.distributed.pipelining has no versions of weights";
    });
    std::string text = std::to_string(schedule.part(place)) +
                       kNames[static_cast<std::size_t>(work.kind)];
    if (has_micro_batch(work.kind)) text += std::to_string(work.micro_batch);
    return text;
}

/// Requires that no work follows an update of weights: PyTorch's caller updates weights
/// when the whole schedule is done.
void require_at_end(const Schedule& schedule, Place update) {
    const std::vector<Instruction>& list = schedule.of_stage(update.stage);
    require(
        std::none_of(list.begin() + update.position, list.end(),
                     [](const Instruction& each) { return is_computation(each.kind); }),
        [&] {
            return schedule.where(update) +
                   ": work follows this update, but torch.distributed.pipelining updates "
                   "only after the whole schedule";
        });
}

void require_parts_once(const Schedule& schedule) {
    std::set<int> parts;
    for (int stage = 0; stage < schedule.stages; ++stage)
        for (const int part : schedule.parts[stage])
            require(parts.insert(part).second,
                    "schedule '{}' has part {} of the model on two stages; "
                    "torch.distributed.pipelining has each on one rank",
                    schedule.name, part);
}

/// Returns whether chunk c of stage s is part c p + s.
bool are_dealt_round(const Schedule& schedule) {
    for (int stage = 0; stage < schedule.stages; ++stage)
        for (int chunk = 0; chunk < schedule.chunks; ++chunk)
            if (schedule.part(stage, chunk) != chunk * schedule.stages + stage)
                return false;
    return true;
}

std::string lines_of(const std::vector<std::vector<std::string>>& rows) {
    std::string text;
    for (const std::vector<std::string>& row : rows) {
        for (std::size_t i = 0; i < row.size(); ++i)
            text.append(i == 0 ? "" : ",").append(row[i]);
        text += '\n';
    }
    return text;
}

}  // namespace

std::string pytorch_csv(const Schedule& schedule) {
    require(schedule.queues == MessageQueues::one,
            "schedule '{}' has a message queue for each direction; "
            "torch.distributed.pipelining does not have that",
            schedule.name);
    require_parts_once(schedule);
    std::vector<std::vector<std::string>> rows;
    for (int stage = 0; stage < schedule.stages; ++stage) {
        std::vector<std::string>& row = rows.emplace_back();
        for (const Place place : schedule.places(stage)) {
            const Instruction& work = schedule.at(place);
            if (work.kind == InstructionKind::optimizer_step) {
                require_at_end(schedule, place);
                continue;
            }
            const std::string text = pytorch_text(schedule, place);
            if (!work.together) {
                row.push_back(text);
                continue;
            }
            require(is_computation(work.kind), [&] {
                return schedule.where(place) +
                       ": torch.distributed.pipelining has no groups of messages";
            });
            row.back() = fmt::format("({};{}){}", row.back(), text, kPair);
        }
    }
    return lines_of(rows);
}

std::string schedule_csv(const Schedule& schedule) {
    std::vector<std::vector<std::string>> rows;
    if (!are_dealt_round(schedule)) {
        std::vector<std::string>& row = rows.emplace_back(1, "parts");
        for (const std::vector<int>& held : schedule.parts)
            row.push_back(fmt::format("{}", fmt::join(held, " ")));
    }
    if (schedule.queues == MessageQueues::by_direction)
        rows.push_back({"queues", "by direction"});
    for (int stage = 0; stage < schedule.stages; ++stage)
        rows.push_back(texts_of(schedule, stage));
    return lines_of(rows);
}

}  // namespace lockstep
