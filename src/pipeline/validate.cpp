#include "src/pipeline/validate.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/pipeline/deadlock.hpp"
#include "src/pipeline/problem.hpp"
#include "src/pipeline/weight_versions.hpp"

namespace lockstep {

using enum InstructionKind;

ScheduleProblem problem_at(const Schedule& schedule, Place place,
                           const std::string& what) {
    return {fmt::format("{}: {}", schedule.where(place), what), place, {}};
}

ScheduleProblem problem_of(const Schedule& schedule,
                           const std::string& what) {
    const std::string from =
        schedule.file.empty() ? "" : schedule.file + ": ";
    return {from + what, {}, {}};
}

namespace {

/// Calls `check(place)` for each instruction until one has a problem.
template <typename Check>
Problem first_problem(const Schedule& schedule, Check&& check) {
    for (int stage = 0; stage < schedule.stages; ++stage) {
        const int count = static_cast<int>(schedule.of(stage).size());
        for (int position = 0; position < count; ++position)
            if (Problem found = check(Place{stage, position})) return found;
    }
    return std::nullopt;
}

Problem check_sizes(const Schedule& schedule) {
    if (const auto problem = size_problem(
            {schedule.stages, schedule.micro_batches, schedule.chunks}))
        return problem_of(schedule, *problem);
    const auto stages = static_cast<std::size_t>(schedule.stages);
    if (schedule.work.size() == stages && schedule.parts.size() == stages)
        return std::nullopt;
    return problem_of(
        schedule,
        fmt::format(
            "a schedule of {} stages with lists of instructions for {}, "
            "and lists of parts for {}; each stage needs both",
            schedule.stages, schedule.work.size(), schedule.parts.size()));
}

Problem check_parts(const Schedule& schedule) {
    const auto stages = static_cast<std::size_t>(schedule.stages);
    const std::size_t most =
        stages * static_cast<std::size_t>(schedule.chunks);
    std::vector<char> held(most, 0);
    for (const std::vector<int>& parts : schedule.parts) {
        if (parts.size() != static_cast<std::size_t>(schedule.chunks))
            return problem_of(
                schedule,
                fmt::format("a stage holds {} parts of the model; "
                            "one for each of {} chunks is expected",
                            parts.size(), schedule.chunks));
        for (const int part : parts) {
            if (part < 0 || static_cast<std::size_t>(part) >= most)
                return problem_of(
                    schedule,
                    fmt::format(
                        "a stage holds part {} of the model; {} stages of "
                        "{} chunks hold at most {} parts, counted from 0",
                        part, schedule.stages, schedule.chunks, most));
            if (std::ranges::count(parts, part) > 1)
                return problem_of(
                    schedule,
                    fmt::format("stage {} holds part {} of the model twice",
                                &parts - schedule.parts.data(), part));
            held[part] = 1;
        }
    }
    for (int part = 0; part < schedule.part_count(); ++part)
        if (!held[part])
            return problem_of(schedule,
                              fmt::format("no stage holds part {} "
                                          "of the model",
                                          part));
    return std::nullopt;
}

Problem check_range(const Schedule& schedule, Place place) {
    const Instruction& work = schedule.at(place);
    const auto kind = static_cast<int>(work.kind);
    if (kind >= kInstructionKinds)
        return problem_at(
            schedule, place,
            fmt::format("there is no kind {} of instructions; there are "
                        "{}, counted from 0",
                        kind, kInstructionKinds));
    if (work.chunk < 0 || work.chunk >= schedule.chunks)
        return problem_at(
            schedule, place,
            fmt::format(
                "there is no chunk {}; a stage has {}, counted from 0",
                work.chunk, schedule.chunks));
    const bool has = has_micro_batch(work.kind);
    if (has && (work.micro_batch < 0 ||
                work.micro_batch >= schedule.micro_batches))
        return problem_at(
            schedule, place,
            fmt::format("there is no micro-batch {}; there are "
                        "{}, counted from 0",
                        work.micro_batch, schedule.micro_batches));
    const bool reads = has && !is_message(work.kind);
    if (work.weight_version < -1 || (!reads && work.weight_version >= 0))
        return problem_at(
            schedule, place,
            fmt::format("version {} of the weights: only a "
                        "forward or a backward reads weights, of a "
                        "version from 0 on",
                        work.weight_version));
    return std::nullopt;
}

Problem check_twice(const Schedule& schedule, const WorkIndex& index) {
    if (!index.twice()) return std::nullopt;
    const auto& [first, second] = *index.twice();
    return problem_at(
        schedule, second,
        fmt::format(
            "this was done before, by stage {}'s instruction {}, {}",
            first.stage, first.position + 1, text_of(schedule.at(first))));
}

/// What a message carries: made by, or used by, a computation of its stage.
Problem check_message(const Schedule& schedule, const WorkIndex& index,
                      Place place) {
    const Instruction& work = schedule.at(place);
    const int part = schedule.part(place);
    const bool activation =
        work.kind == send_activation || work.kind == recv_activation;
    const Place here =
        index.find(activation ? forward : backward, part, work.micro_batch);
    const int peer = index.peer(place);
    if (peer < 0 || peer == place.stage || here.stage != place.stage)
        return problem_at(
            schedule, place,
            peer == place.stage
                ? "both parts are on this stage; nothing needs "
                  "to be sent"
                : "no other stage has, or wants, that");
    const bool sends = is_send(work.kind);
    if (sends ? here.position > place.position
              : here.position < place.position)
        return problem_at(
            schedule, place,
            fmt::format("{} it stands {} the {} that {} it, instruction {}",
                        sends ? "this send cannot go:" : "too late:",
                        sends ? "before" : "behind",
                        name_of(schedule.at(here).kind),
                        sends ? "makes" : "needs", here.position + 1));
    if (index.partner(place)) return std::nullopt;
    return problem_at(schedule, place,
                      fmt::format("stage {} never {} it", peer,
                                  sends ? "receives" : "sends"));
}

Problem check_messages(const Schedule& schedule, const WorkIndex& index) {
    if (!schedule.has_messages()) return std::nullopt;
    return first_problem(schedule, [&](Place place) -> Problem {
        const Instruction& work = schedule.at(place);
        if (is_message(work.kind))
            return check_message(schedule, index, place);
        if (!index.crosses(place) || index.need(place)) return std::nullopt;
        return problem_at(
            schedule, place,
            fmt::format("this stage never receives the {} that "
                        "it needs",
                        work.kind == forward ? "activation" : "gradient"));
    });
}

Problem check_versions(const Schedule& schedule, const WorkIndex& index) {
    const WeightVersions versions(schedule);
    return first_problem(schedule, [&](Place place) -> Problem {
        const Instruction& work = schedule.at(place);
        if (!has_micro_batch(work.kind) || is_message(work.kind))
            return std::nullopt;
        const int read = versions.read(place);
        const int newest = versions.newest(place);
        if (read > newest)
            return problem_at(
                schedule, place,
                fmt::format("it asks for weights of version {}, but {} "
                            "optimizer steps of its chunk stand before it",
                            read, newest));
        const Place there =
            index.find(forward, schedule.part(place), work.micro_batch);
        if (read == versions.read(there)) return std::nullopt;
        return problem_at(
            schedule, place,
            fmt::format("it reads weights of version {}, but its forward, "
                        "instruction {}, has read version {}; \"@{}\" "
                        "behind it would ask for those",
                        read, there.position + 1, versions.read(there),
                        versions.read(there)));
    });
}

}  // namespace

std::optional<ScheduleProblem> find_bad_number(const Schedule& schedule) {
    if (Problem found = check_sizes(schedule)) return found;
    if (Problem found = check_parts(schedule)) return found;
    return first_problem(schedule, [&](Place place) {
        return check_range(schedule, place);
    });
}

std::optional<ScheduleProblem> find_problem(const Schedule& schedule) {
    if (Problem found = find_bad_number(schedule)) return found;
    const WorkIndex index(schedule);
    if (Problem found = check_twice(schedule, index)) return found;
    if (Problem found = check_passes(schedule, index)) return found;
    if (Problem found = check_messages(schedule, index)) return found;
    if (Problem found = check_versions(schedule, index)) return found;
    return find_deadlock(schedule, index);
}

void require_valid(const Schedule& schedule) {
    if (const Problem found = find_problem(schedule))
        throw UsageError(found->sentence);
}

}  // namespace lockstep
