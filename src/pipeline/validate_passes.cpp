#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "src/pipeline/problem.hpp"

namespace lockstep {

using enum InstructionKind;

namespace {

/// The first stage and chunk that hold the part.
std::pair<int, int> holder_of(const Schedule& schedule, int part) {
    for (int stage = 0; stage < schedule.stages; ++stage)
        for (int chunk = 0; chunk < schedule.chunks; ++chunk)
            if (schedule.part(stage, chunk) == part) return {stage, chunk};
    return {-1, -1};
}

/// Where the micro-batch is named otherwise; none where it is nowhere.
Place mention_of(const Schedule& schedule, int micro_batch) {
    for (int stage = 0; stage < schedule.stages; ++stage) {
        const auto& list = schedule.of(stage);
        const auto found =
            std::ranges::find(list, micro_batch, &Instruction::micro_batch);
        if (found != list.end())
            return {stage, static_cast<int>(found - list.begin())};
    }
    return {};
}

/// "stage 1's instruction 6 (B3, line 2) names".
std::string mention_text(const Schedule& schedule, Place mention) {
    const Instruction& work = schedule.at(mention);
    const std::string line =
        work.line > 0 ? fmt::format(", line {}", work.line) : "";
    return fmt::format("stage {}'s instruction {} ({}{}) names",
                       mention.stage, mention.position + 1, text_of(work),
                       line);
}

/// A micro-batch that never passes through a part: where it should, and
/// what makes one think that it is there.
ScheduleProblem missing_pass(const Schedule& schedule, int part,
                             int micro_batch, const char* what) {
    const auto [stage, chunk] = holder_of(schedule, part);
    std::string text = fmt::format("stage {}", stage);
    if (schedule.chunks > 1) text += fmt::format(", chunk {},", chunk);
    text +=
        fmt::format(" never runs {} of micro-batch {}", what, micro_batch);
    const Place mention = mention_of(schedule, micro_batch);
    if (mention)
        text += ", which " + mention_text(schedule, mention);
    else if (micro_batch == 0)
        text += "; micro-batches count from 0";
    else if (const Place last =
                 mention_of(schedule, schedule.micro_batches - 1))
        text += fmt::format("; there are {}, since {} the last",
                            schedule.micro_batches,
                            mention_text(schedule, last));
    const auto& list = schedule.of(stage);
    const int line = list.empty() ? 0 : list.front().line;
    const std::string from =
        schedule.file.empty() ? ""
        : line == 0           ? schedule.file + ": "
                              : fmt::format("{}:{}: ", schedule.file, line);
    return {from + text, {}, {}};
}

/// What `earlier` saved is where `later` needs it.
Problem check_follows(const Schedule& schedule, Place later,
                      Place earlier) {
    const Instruction& before = schedule.at(earlier);
    const char* name = name_of(before.kind);
    if (later.stage != earlier.stage ||
        schedule.at(later).chunk != before.chunk)
        return problem_at(
            schedule, later,
            fmt::format(
                "its {}, and what that saved, is in chunk {} of stage {}",
                name, before.chunk, earlier.stage));
    if (later.position > earlier.position) return std::nullopt;
    return problem_at(
        schedule, later,
        fmt::format("it needs the {} of this micro-batch, which "
                    "this stage runs after it, as instruction {}",
                    name, earlier.position + 1));
}

/// Both passes of a micro-batch through a part.
Problem check_part(const Schedule& schedule, const WorkIndex& index,
                   int part, int micro_batch) {
    const auto missing = [&](const char* what) {
        return missing_pass(schedule, part, micro_batch, what);
    };
    const Place there = index.find(forward, part, micro_batch);
    const Place back = index.find(backward, part, micro_batch);
    const Place weight = index.find(backward_weight, part, micro_batch);
    if (!there) return missing("the forward");
    if (!back && !weight) return missing("the backward");
    if (!back) return missing("the backward-input");
    const bool whole = schedule.at(back).kind == backward;
    if (whole && weight)
        return problem_at(
            schedule, weight,
            fmt::format("instruction {} has done both halves of "
                        "this backward",
                        back.position + 1));
    if (!whole && !weight) return missing("the backward-weight");
    if (Problem found = check_follows(schedule, back, there)) return found;
    return weight ? check_follows(schedule, weight, back) : std::nullopt;
}

}  // namespace

Problem check_passes(const Schedule& schedule, const WorkIndex& index) {
    const int parts = schedule.part_count();
    for (int part = 0; part < parts; ++part)
        for (int i = 0; i < schedule.micro_batches; ++i)
            if (Problem found = check_part(schedule, index, part, i))
                return found;
    return std::nullopt;
}

}  // namespace lockstep
