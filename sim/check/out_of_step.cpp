// Finds where ranks fell out of step (F13): they meet in a collective, but come from
// different lines of the program, in different steps, or with different parameters.

#include "sim/check/out_of_step.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "sim/check/activity.hpp"
#include "sim/check/origin.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

const Storage::Label* label_of(const Posted& posted) {
    for (const Tensor* tensor : {&posted.operation.input, &posted.operation.output})
        if (*tensor && tensor->labelled() != nullptr) return tensor->labelled();
    return nullptr;
}

/// Returns whether both buffers have names, which differ and are not known to be tied.
bool are_other_parameters(const Posted& one, const Posted& other) {
    const Storage::Label *mine = label_of(one), *theirs = label_of(other);
    if (mine == nullptr || theirs == nullptr || mine->name == theirs->name) return false;
    const std::set<std::string>& tied = one.launch->team->declared;
    return !(tied.contains(mine->name) && tied.contains(theirs->name));
}

int times(const Engine& engine, const Caller& caller, SourceLine line) {
    return engine.ranks()[caller.ranks.front()]->lines.times(line);
}

const char* has(const Caller& caller) {
    return caller.ranks.size() == 1 ? "has" : "have";
}

/// "1 collective", "3 collectives".
std::string collectives_text(int count) {
    return fmt::format("{} collective{}", count, count == 1 ? "" : "s");
}

}  // namespace

std::string call_text(const Posted& posted) {
    const CommOperation& operation = posted.operation;
    std::string text = text_of(operation);
    const Storage::Label* const label = label_of(posted);
    if (label != nullptr) text.insert(text.find('(') + 1, label->name + ", ");
    const Launch& launch = *posted.launch;
    if (launch.phase == Phase::none) return text;
    text += fmt::format(" in {}", name_of(launch.phase));
    if (launch.micro_batch >= 0)
        text += fmt::format(" of micro-batch {}", launch.micro_batch);
    return text;
}

std::string out_of_step_text(const Engine& engine, const Caller& odd,
                             const Caller& usual) {
    const Launch &mine = *odd.posted->launch, &theirs = *usual.posted->launch;
    if (mine.step != theirs.step)
        return fmt::format("{} {} done {} step{} of training, but {} {}",
                           ranks_text(odd.ranks), has(odd), mine.step,
                           mine.step == 1 ? "" : "s", ranks_text(usual.ranks),
                           theirs.step);
    const SourceLine here = odd.posted->line(), there = usual.posted->line();
    if (here == there)
        return odd.posted->operation.verb == usual.posted->operation.verb &&
                       are_other_parameters(*odd.posted, *usual.posted)
                   ? "their parameters differ: ranks must go through them in one order"
                   : "";
    const int own = times(engine, odd, there), others = times(engine, usual, there);
    const auto launched = [&](const Caller& caller, int count) {
        return fmt::format("{} {} launched {} there", ranks_text(caller.ranks),
                           has(caller), collectives_text(count));
    };
    if (own < others)
        return fmt::format("{} {} left out the call at {}, or {} it later: {}, {} {}",
                           ranks_text(odd.ranks), has(odd), there.text(),
                           odd.ranks.size() == 1 ? "makes" : "make", launched(odd, own),
                           ranks_text(usual.ranks), others);
    const int extra = times(engine, odd, here), fewer = times(engine, usual, here);
    if (extra > fewer)
        return fmt::format("{} {} made a call more at {}: {}, {} {}",
                           ranks_text(odd.ranks), has(odd), here.text(),
                           launched(odd, extra), ranks_text(usual.ranks), fewer);
    return "they make these calls in different orders";
}

bool tell_first_out_of_step(const Engine& engine, const Team& team,
                            Diagnosis& diagnosis) {
    const auto calls_from = [&](const UnlikeLines::Side& side, SourceLine line) {
        return std::ranges::any_of(side.ranks, [&](int rank) {
            return engine.ranks()[rank]->lines.times(line) > 0;
        });
    };
    const auto is_out_of_step = [&](const UnlikeLines& met) {
        return std::ranges::any_of(met.sides, [&](const UnlikeLines::Side& side) {
            return std::ranges::any_of(met.sides, [&](const UnlikeLines::Side& other) {
                return &side != &other && calls_from(side, other.line);
            });
        });
    };
    const auto first = std::ranges::find_if(team.unlike, is_out_of_step);
    if (first == team.unlike.end()) return false;
    const Diagnosis of_class = diagnosis_of("F13");
    diagnosis.fault = of_class.fault;
    diagnosis.title = of_class.title;
    diagnosis.cause = of_class.cause;
    diagnosis.page = of_class.page;
    std::string calls;
    std::vector<Diagnosis::Party> parties;
    for (const UnlikeLines::Side& side : first->sides) {
        const std::string call =
            fmt::format("{} #{} of {}", side.call, first->sequence, team.name);
        calls += fmt::format("{}{} at {} ({})", calls.empty() ? "" : ", ",
                             ranks_text(side.ranks), side.line.text(), side.call);
        parties.push_back(party(side.ranks, call, side.line, "line"));
    }
    diagnosis.sentence = fmt::format(
        "these ranks are out of step since collective #{} of {}, which they called from "
        "different lines: {}. Now {}",
        first->sequence, team.name, calls, diagnosis.sentence);
    diagnosis.parties.insert(diagnosis.parties.begin(), parties.begin(), parties.end());
    return true;
}

}  // namespace lockstep::sim
