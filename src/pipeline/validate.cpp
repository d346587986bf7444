#include "src/pipeline/validate.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/pipeline/period.hpp"
#include "src/pipeline/walk.hpp"
#include "src/pipeline/weight_versions.hpp"
#include "src/pipeline/work_index.hpp"

namespace lockstep {

namespace {

// Empty if there is no problem.
using Problem = std::optional<ScheduleProblem>;

using enum InstructionKind;

/// "FILE:LINE: stage 2, instruction 5 of 16, …: SENTENCE".
template <typename... Args>
ScheduleProblem problem_at(const Schedule& schedule, Place place,
                           fmt::format_string<Args...> sentence, Args&&... args) {
    return {
        schedule.where(place) + ": " + fmt::format(sentence, std::forward<Args>(args)...),
        place,
        {}};
}

/// A problem of the whole schedule, without a place: "FILE: SENTENCE".
template <typename... Args>
ScheduleProblem problem_of(const Schedule& schedule, fmt::format_string<Args...> sentence,
                           Args&&... args) {
    return {schedule.from() + fmt::format(sentence, std::forward<Args>(args)...), {}, {}};
}

/// Calls `check(place)` for each instruction until one has a problem.
template <typename Check>
Problem first_problem(const Schedule& schedule, Check&& check) {
    for (int stage = 0; stage < schedule.stages; ++stage) {
        for (const Place place : schedule.places(stage))
            if (Problem found = check(place)) return found;
    }
    return std::nullopt;
}

Problem check_sizes(const Schedule& schedule) {
    if (const auto problem =
            size_problem({schedule.stages, schedule.micro_batches, schedule.chunks}))
        return problem_of(schedule, "{}", *problem);
    const auto stages = static_cast<std::size_t>(schedule.stages);
    if (schedule.work.size() == stages && schedule.parts.size() == stages)
        return std::nullopt;
    return problem_of(schedule,
                      "a schedule of {} stages with lists of instructions for {}, "
                      "and lists of parts for {}; each stage needs both",
                      schedule.stages, schedule.work.size(), schedule.parts.size());
}

Problem check_parts(const Schedule& schedule) {
    const auto stages = static_cast<std::size_t>(schedule.stages);
    const std::size_t most = stages * static_cast<std::size_t>(schedule.chunks);
    std::vector<int> held(most, -1);  // by part: the last stage that holds it
    for (const std::vector<int>& parts : schedule.parts) {
        if (parts.size() != static_cast<std::size_t>(schedule.chunks))
            return problem_of(schedule,
                              "a stage holds {} parts of the model; "
                              "one for each of {} chunks is expected",
                              parts.size(), schedule.chunks);
        for (const int part : parts) {
            if (part < 0 || static_cast<std::size_t>(part) >= most)
                return problem_of(schedule,
                                  "a stage holds part {} of the model; parts from 0 to "
                                  "{}, one a stage and chunk, are possible",
                                  part, most - 1);
            const int stage = static_cast<int>(&parts - schedule.parts.data());
            if (std::exchange(held[part], stage) == stage)
                return problem_of(schedule, "stage {} holds part {} of the model twice",
                                  stage, part);
        }
    }
    const int parts = schedule.part_count();
    for (int part = 0; part < parts; ++part)
        if (held[part] < 0)
            return problem_of(schedule, "no stage holds part {} of the model", part);
    return std::nullopt;
}

Problem check_range(const Schedule& schedule, Place place) {
    const Instruction& work = schedule.at(place);
    const auto kind = static_cast<int>(work.kind);
    if (kind >= kInstructionKinds)
        return problem_at(schedule, place,
                          "there is no kind {} of instructions; there are "
                          "{}, counted from 0",
                          kind, kInstructionKinds);
    if (work.chunk < 0 || work.chunk >= schedule.chunks)
        return problem_at(schedule, place,
                          "there is no chunk {}; a stage has {}, counted from 0",
                          work.chunk, schedule.chunks);
    const bool has = has_micro_batch(work.kind);
    if (has && (work.micro_batch < 0 || work.micro_batch >= schedule.micro_batches))
        return problem_at(schedule, place,
                          "there is no micro-batch {}; there are {}, counted from 0",
                          work.micro_batch, schedule.micro_batches);
    const bool reads = has && !is_message(work.kind);
    if (work.weight_version < -1 || (!reads && work.weight_version >= 0))
        return problem_at(schedule, place,
                          "version {} of the weights: only a forward or a backward reads "
                          "weights, and versions count from 0",
                          work.weight_version);
    if (work.estimated && work.weight_version < 0)
        return problem_at(schedule, place,
                          "it reads an estimate of weights but names no version; write "
                          "\"@~2\" for version 2");
    if (work.mixes_weights && (!reads || work.kind == forward))
        return problem_at(
            schedule, place,
            "only a backward can read other weights than its forward (\"!\")");
    return std::nullopt;
}

/// Checks an instruction that begins together with the instruction before it.
Problem check_together(const Schedule& schedule, Place place) {
    const Instruction& work = schedule.at(place);
    if (!work.together) return std::nullopt;
    if (place.position == 0)
        return problem_at(schedule, place,
                          "it begins together with the one before it, but is the first");
    const Instruction& before = schedule.at({place.stage, place.position - 1});
    const auto goes_forward = [](const Instruction& each) {
        return each.kind == forward;
    };
    if (is_message(work.kind) && is_message(before.kind)) {
        if (schedule.queues == MessageQueues::one) return std::nullopt;
        return problem_at(schedule, place,
                          "messages in a group need one queue for all, but this schedule "
                          "has a queue for each direction");
    }
    const bool pair = is_computation(work.kind) && is_computation(before.kind) &&
                      work.kind != backward_weight && before.kind != backward_weight &&
                      goes_forward(work) != goes_forward(before);
    if (pair && schedule.together(place).count() == 2) return std::nullopt;
    return problem_at(schedule, place,
                      "it begins together with {}; only messages can begin together, or "
                      "a forward and a backward (or backward-input) that overlap",
                      text_of(before));
}

Problem check_twice(const Schedule& schedule, const WorkIndex& index) {
    if (!index.twice()) return std::nullopt;
    const auto& [first, second] = *index.twice();
    return problem_at(schedule, second,
                      "this was done before, by stage {}'s instruction {}, {}",
                      first.stage, first.position + 1, text_of(schedule.at(first)));
}

/// Returns the first stage and chunk that hold the part.
std::pair<int, int> holder_of(const Schedule& schedule, int part) {
    for (int stage = 0; stage < schedule.stages; ++stage)
        for (int chunk = 0; chunk < schedule.chunks; ++chunk)
            if (schedule.part(stage, chunk) == part) return {stage, chunk};
    return {-1, -1};
}

/// Returns the first instruction that names the micro-batch; none if no instruction does.
Place mention_of(const Schedule& schedule, int micro_batch) {
    for (int stage = 0; stage < schedule.stages; ++stage) {
        const auto& list = schedule.of_stage(stage);
        const auto found =
            std::ranges::find(list, micro_batch, &Instruction::micro_batch);
        if (found != list.end()) return {stage, static_cast<int>(found - list.begin())};
    }
    return {};
}

/// "stage 1's instruction 6 (B3, line 2) names".
std::string mention_text(const Schedule& schedule, Place mention) {
    const Instruction& work = schedule.at(mention);
    const std::string line = work.line > 0 ? fmt::format(", line {}", work.line) : "";
    return fmt::format("stage {}'s instruction {} ({}{}) names", mention.stage,
                       mention.position + 1, text_of(work), line);
}

/// Describes a missing pass: where it should be, and which instruction shows that the
/// micro-batch exists.
ScheduleProblem missing_pass(const Schedule& schedule, int part, int micro_batch,
                             const char* what) {
    const auto [stage, chunk] = holder_of(schedule, part);
    std::string text = fmt::format("stage {}", stage);
    if (schedule.chunks > 1) text += fmt::format(", chunk {},", chunk);
    text += fmt::format(" never runs {} of micro-batch {}", what, micro_batch);
    const Place mention = mention_of(schedule, micro_batch);
    if (mention)
        text += ", which " + mention_text(schedule, mention);
    else if (micro_batch == 0)
        text += "; micro-batches count from 0";
    else if (const Place last = mention_of(schedule, schedule.micro_batches - 1))
        text += fmt::format("; there are {}, since {} the last", schedule.micro_batches,
                            mention_text(schedule, last));
    const auto& list = schedule.of_stage(stage);
    const int line = list.empty() ? 0 : list.front().line;
    return {schedule.from(line) + text, {}, {}};
}

/// Checks that `later` finds what `earlier` saved.
Problem check_follows(const Schedule& schedule, Place later, Place earlier) {
    const Instruction& before = schedule.at(earlier);
    const char* name = name_of(before.kind);
    if (later.stage != earlier.stage || schedule.at(later).chunk != before.chunk)
        return problem_at(
            schedule, later,
            "its {} runs in chunk {} of stage {}, so the saved tensors are there", name,
            before.chunk, earlier.stage);
    if (later.position > earlier.position) return std::nullopt;
    return problem_at(schedule, later,
                      "it needs the {} of this micro-batch, which "
                      "this stage runs after it, as instruction {}",
                      name, earlier.position + 1);
}

/// Checks both passes of a micro-batch through a part.
Problem check_part(const Schedule& schedule, const WorkIndex& index, int part,
                   int micro_batch) {
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
        return problem_at(schedule, weight,
                          "instruction {} has done both halves of this backward",
                          back.position + 1);
    if (!whole && !weight) return missing("the backward-weight");
    if (Problem found = check_follows(schedule, back, there)) return found;
    return weight ? check_follows(schedule, weight, back) : std::nullopt;
}

/// Checks that each part of the model runs each micro-batch once forward and then once
/// backward (whole or in halves), in one chunk.
Problem check_passes(const Schedule& schedule, const WorkIndex& index) {
    const int parts = schedule.part_count();
    for (int part = 0; part < parts; ++part)
        for (int i = 0; i < schedule.micro_batches; ++i)
            if (Problem found = check_part(schedule, index, part, i)) return found;
    return std::nullopt;
}

/// Checks that the stage computes or uses what a message carries, and that another stage
/// has the message's other end.
Problem check_message(const Schedule& schedule, const WorkIndex& index, Place place) {
    const Instruction& work = schedule.at(place);
    const int part = schedule.part(place);
    const bool activation = work.kind == send_activation || work.kind == recv_activation;
    const Place here =
        index.find(activation ? forward : backward, part, work.micro_batch);
    const int peer = index.peer(place);
    if (peer < 0 || peer == place.stage || here.stage != place.stage)
        return problem_at(schedule, place, "{}",
                          peer == place.stage
                              ? "both parts are on this stage; nothing needs to be sent"
                              : "no other stage makes or needs this tensor");
    const bool sends = is_send(work.kind);
    if (sends ? here.position > place.position : here.position < place.position)
        return problem_at(
            schedule, place, "this {} instruction {}, the {} that {} its data",
            sends ? "send comes before" : "receive comes after", here.position + 1,
            name_of(schedule.at(here).kind), sends ? "makes" : "needs");
    if (index.partner(place)) return std::nullopt;
    return problem_at(schedule, place, "stage {} never {} it", peer,
                      sends ? "receives" : "sends");
}

Problem check_messages(const Schedule& schedule, const WorkIndex& index) {
    if (!schedule.has_messages()) return std::nullopt;
    return first_problem(schedule, [&](Place place) -> Problem {
        const Instruction& work = schedule.at(place);
        if (is_message(work.kind)) return check_message(schedule, index, place);
        if (!index.crosses(place) || index.need(place)) return std::nullopt;
        return problem_at(schedule, place,
                          "this stage never receives the {} that it needs",
                          work.kind == forward ? "activation" : "gradient");
    });
}

Problem check_versions(const Schedule& schedule, const WorkIndex& index) {
    const WeightVersions versions(schedule);
    return first_problem(schedule, [&](Place place) -> Problem {
        const Instruction& work = schedule.at(place);
        if (!is_computation(work.kind)) return std::nullopt;
        const int read = versions.read(place);
        const int newest = versions.newest(place);
        if (read > newest && !work.estimated)
            return problem_at(schedule, place,
                              "it asks for weights of version {}, but the newest before "
                              "it is version {}",
                              read, newest);
        const Place there = index.find(forward, schedule.part(place), work.micro_batch);
        if (read == versions.read(there) || work.mixes_weights) return std::nullopt;
        const bool estimate = schedule.at(there).estimated;
        return problem_at(
            schedule, place,
            "it reads weights of version {}, but its forward, instruction {}, has read "
            "{}version {}; add \"@{}{}\" to it to read the same",
            read, there.position + 1, estimate ? "an estimate of " : "",
            versions.read(there), estimate ? "~" : "", versions.read(there));
    });
}

/// Checks the reductions and updates of each stage's chunks. All stages that hold a part
/// join its reductions; there are gradients to reduce or to update with; and the copies
/// of a part stay equal.
class StepCheck {
  public:
    StepCheck(const Schedule& schedule, const WorkIndex& index)
        : schedule_(schedule), index_(index) {
        for (int stage = 0; stage < schedule.stages; ++stage)
            find_new_gradients(stage);
    }

    Problem run() const {
        for (int stage = 0; stage < schedule_.stages; ++stage) {
            std::vector<Place> used(static_cast<std::size_t>(schedule_.chunks));
            std::vector<char> any(used.size(), 0);
            for (const Place place : schedule_.places(stage)) {
                const Instruction& work = schedule_.at(place);
                if (adds_gradients(work.kind)) any[work.chunk] = 1;
                if (!ends_step(work.kind)) continue;
                if (Problem found = check(place, any[work.chunk] != 0, used[work.chunk]))
                    return found;
                any[work.chunk] = work.kind == reduce_gradients ? 1 : 0;
                used[work.chunk] = place;
            }
        }
        return check_copies();
    }

  private:
    static bool adds_gradients(InstructionKind kind) {
        return kind == backward || kind == backward_weight;
    }
    static bool ends_step(InstructionKind kind) {
        return kind == reduce_gradients || kind == optimizer_step;
    }

    /// `any`: the chunk has gradients to update with. `used`: the previous reduction or
    /// update.
    Problem check(Place place, bool any, Place used) const {
        const bool reduces = schedule_.at(place).kind == reduce_gradients;
        if (Problem found = reduces ? check_meeting(place) : std::nullopt) return found;
        if (!(reduces ? reduces_something(place) : any))
            return nothing(place, used, reduces);
        const int part = schedule_.part(place);
        if (reduces || !index_.is_shared(part) || !has_new_gradients(place))
            return std::nullopt;
        return problem_at(
            schedule_, place,
            "another stage also holds part {}: put an R between the last backward and "
            "this update, or each stage updates with only its own gradients",
            part);
    }

    /// Checks that all stages that hold a part reduce and update it in one order.
    Problem check_copies() const {
        std::map<int, std::vector<std::vector<Place>>> copies;
        for (int stage = 0; stage < schedule_.stages; ++stage) {
            for (int chunk = 0; chunk < schedule_.chunks; ++chunk)
                if (const int part = schedule_.part(stage, chunk); index_.is_shared(part))
                    copies[part].emplace_back();
            for (const Place place : schedule_.places(stage))
                if (const auto copy = copies.find(schedule_.part(place));
                    copy != copies.end() && ends_step(schedule_.at(place).kind))
                    copy->second.back().push_back(place);
        }
        for (const auto& [part, steps] : copies)
            for (const std::vector<Place>& copy : steps)
                if (Problem found = check_alike(steps.front(), copy)) return found;
        return std::nullopt;
    }

    /// Compares the reductions and updates of two copies of a part.
    Problem check_alike(const std::vector<Place>& one,
                        const std::vector<Place>& other) const {
        const auto updates = [&](const std::vector<Place>& steps, std::size_t i) {
            return i < steps.size() && schedule_.at(steps[i]).kind == optimizer_step;
        };
        for (std::size_t i = 0; i < std::max(one.size(), other.size()); ++i) {
            if (updates(one, i) == updates(other, i)) continue;
            const std::vector<Place>& there = updates(one, i) ? one : other;
            // This copy joins the same reductions, so its list is not empty.
            const std::vector<Place>& missing = updates(one, i) ? other : one;
            return problem_at(schedule_, there[i],
                              "stage {} holds part {}, too, but does not update it here: "
                              "the two copies would no longer be equal",
                              missing.front().stage, schedule_.part(there[i]));
        }
        return std::nullopt;
    }

    /// Marks each reduction or update if a backward of its chunk is between it and the
    /// previous reduction or update.
    void find_new_gradients(int stage) {
        std::vector<char>& marks = new_gradients_.emplace_back();
        marks.resize(schedule_.of_stage(stage).size());
        std::vector<char> since(static_cast<std::size_t>(schedule_.chunks), 0);
        for (const Place place : schedule_.places(stage)) {
            const Instruction& work = schedule_.at(place);
            if (adds_gradients(work.kind)) since[work.chunk] = 1;
            if (ends_step(work.kind))
                marks[place.position] = std::exchange(since[work.chunk], char{0});
        }
    }

    bool has_new_gradients(Place step) const {
        return new_gradients_[step.stage][step.position] != 0;
    }

    /// A stage without gradients of its own joins a reduction if another stage that holds
    /// the part has gradients.
    bool reduces_something(Place place) const {
        return std::ranges::any_of(index_.meeting(place),
                                   [&](Place end) { return has_new_gradients(end); });
    }

    Problem check_meeting(Place place) const {
        for (const Place end : index_.meeting(place))
            if (end.position < 0)
                return problem_at(
                    schedule_, place,
                    "stage {} also holds part {}, but reduces its gradients less often: "
                    "this reduction would wait for ever",
                    end.stage, schedule_.part(place));
        return std::nullopt;
    }

    Problem nothing(Place place, Place used, bool reduces) const {
        const std::string where =
            used ? fmt::format("between it and instruction {}, {}", used.position + 1,
                               text_of(schedule_.at(used)))
                 : "before it";
        return problem_at(schedule_, place,
                          "there is nothing to {}: no backward of its chunk stands {}",
                          reduces ? "reduce" : "update with", where);
    }

    const Schedule& schedule_;
    const WorkIndex& index_;
    std::vector<std::vector<char>> new_gradients_;  ///< by place
};

/// `stuck` waits for `needed`. `in_front`, on the stage of `needed`, must run first; it
/// may be `needed` itself.
struct Link {
    Place stuck;
    Place needed;
    Place in_front;
};

/// Returns the first instruction that a stuck instruction, or an instruction that begins
/// together with it, waits for.
Place needed_by(const Schedule& schedule, const WorkIndex& index, const Walk& walk,
                Place stuck) {
    if (is_message(schedule.at(stuck).kind)) return index.partner(stuck);
    if (schedule.at(stuck).kind == reduce_gradients) {
        const std::vector<Place> ends = index.meeting(stuck);
        return *std::ranges::find_if(
            ends, [&](Place end) { return walk.at(end.stage) != end; });
    }
    const Positions together = schedule.together(stuck);
    for (int i = together.first; i < together.last; ++i)
        if (const Place need = index.need({stuck.stage, i}); need && !walk.done(need))
            return need;
    return {};
}

/// Returns the reason why an instruction is stuck.
Link link_of(const Schedule& schedule, const WorkIndex& index, const Walk& walk,
             Place stuck) {
    const Place needed = needed_by(schedule, index, walk, stuck);
    const Place program = walk.at(needed.stage);
    // A message that its stage has posted waits for the messages before it in the queue.
    // Any other instruction waits for the instruction that its stage has reached.
    const bool posted = is_message(schedule.at(needed).kind) &&
                        (!program || needed.position < program.position);
    return {stuck, needed, posted ? walk.in_front_of(needed) : program};
}

std::vector<Link> follow(const Schedule& schedule, const WorkIndex& index,
                         const Walk& walk) {
    Place stuck;
    for (int stage = 0; stage < schedule.stages && !stuck; ++stage)
        stuck = walk.at(stage) ? walk.at(stage) : walk.stuck_message(stage);
    std::vector<Link> chain;
    while (true) {
        const auto again = std::ranges::find(chain, stuck, &Link::stuck);
        if (again != chain.end()) return {again, chain.end()};
        chain.push_back(link_of(schedule, index, walk, stuck));
        stuck = chain.back().in_front;
    }
}

/// "stage 0's instruction 3, forward of micro-batch 2 (F2), line 7".
std::string place_text(const Schedule& schedule, Place place) {
    const Instruction& work = schedule.at(place);
    const std::string text = fmt::format("stage {}'s instruction {}, {}", place.stage,
                                         place.position + 1, words_of(work));
    return work.line > 0 ? fmt::format("{}, line {}", text, work.line) : text;
}

/// Names an instruction briefly, since the next link names it in full.
std::string short_text(const Schedule& schedule, Place place) {
    return fmt::format("instruction {} ({})", place.position + 1,
                       text_of(schedule.at(place)));
}

std::string link_text(const Schedule& schedule, const Link& link) {
    std::string text = fmt::format("{} waits for {}", place_text(schedule, link.stuck),
                                   place_text(schedule, link.needed));
    if (link.needed == link.in_front) return text;
    return fmt::format("{}, before which {} must be done", text,
                       link.needed.stage == link.in_front.stage
                           ? short_text(schedule, link.in_front)
                           : place_text(schedule, link.in_front));
}

/// Describes a deadlock: which instruction waits for which. Everything that instructions
/// wait for must be in the schedule.
ScheduleProblem deadlock(const Schedule& schedule, const WorkIndex& index,
                         const Walk& walk) {
    const std::vector<Link> cycle = follow(schedule, index, walk);
    ScheduleProblem problem;
    problem.sentence =
        fmt::format("{}deadlock after {} of {} computations: ", schedule.from(),
                    walk.computations(), schedule.computations());
    constexpr std::size_t kMostLinks = 8;
    for (std::size_t i = 0; i < cycle.size(); ++i) {
        problem.cycle.push_back(cycle[i].stuck);
        if (i < kMostLinks)
            problem.sentence += (i == 0 ? "" : "; ") + link_text(schedule, cycle[i]);
    }
    if (cycle.size() > kMostLinks)
        problem.sentence +=
            fmt::format("; and {} more in turn", cycle.size() - kMostLinks);
    problem.sentence +=
        cycle.size() == 1 ? ", which is itself" : ", which closes the cycle";
    problem.place = problem.cycle.front();
    return problem;
}

/// Checks that the copies of a stage's middle match the first copy.
Problem check_copies(const Schedule& schedule, int stage) {
    const Period& period = *schedule.period;
    const Positions first = period.first[stage];
    const auto size = static_cast<std::int64_t>(schedule.of_stage(stage).size());
    const std::int64_t end = first.first + std::int64_t{period.times} * first.count();
    if (first.first < 0 || first.count() < 1 || end > size)
        return problem_of(schedule,
                          "stage {}'s middle is said to repeat {} times, first as "
                          "instructions {} to {}, but the stage has only {} instructions",
                          stage, period.times, first.first + 1, first.last, size);
    const PeriodShift shift(schedule, stage);
    for (int position = first.last; position < end; ++position) {
        const int copies = (position - first.first) / first.count();
        const Place place{stage, position};
        const Instruction expected = shift.shifted(
            schedule.of_stage(stage)[position - copies * first.count()], copies);
        if (!(schedule.at(place) == expected))
            return problem_at(schedule, place,
                              "{} is expected here, in copy {} of the repeated middle",
                              text_of(expected), copies + 1);
    }
    return std::nullopt;
}

Problem check_period(const Schedule& schedule) {
    if (!schedule.period) return std::nullopt;
    const Period& period = *schedule.period;
    if (period.micro_batches < 1 || period.times < 1 ||
        period.first.size() != schedule.work.size())
        return problem_of(
            schedule,
            "a middle of {} micro-batches that repeats {} times on {} stages; at least "
            "one micro-batch and one copy, and all {} stages, are expected",
            period.micro_batches, period.times, period.first.size(), schedule.stages);
    for (int stage = 0; stage < schedule.stages; ++stage)
        if (Problem found = check_copies(schedule, stage)) return found;
    return std::nullopt;
}

}  // namespace

std::optional<ScheduleProblem> find_bad_number(const Schedule& schedule) {
    if (Problem found = check_sizes(schedule)) return found;
    if (Problem found = check_parts(schedule)) return found;
    if (Problem found = first_problem(
            schedule, [&](Place place) { return check_range(schedule, place); }))
        return found;
    if (Problem found = first_problem(
            schedule, [&](Place place) { return check_together(schedule, place); }))
        return found;
    return check_period(schedule);
}

namespace {

/// Finds any problem but a deadlock.
Problem find_misfit(const Schedule& schedule, const WorkIndex& index) {
    if (Problem found = check_twice(schedule, index)) return found;
    if (Problem found = check_passes(schedule, index)) return found;
    if (Problem found = check_messages(schedule, index)) return found;
    if (Problem found = check_versions(schedule, index)) return found;
    return StepCheck(schedule, index).run();
}

}  // namespace

Examination examine_schedule(const Schedule& schedule, const ScheduleTimes& times) {
    if (Problem found = find_bad_number(schedule)) return {found, {}};
    const WorkIndex index(schedule);
    if (Problem found = find_misfit(schedule, index)) return {found, {}};
    Walk walk(schedule, index, times);
    if (!walk.run()) return {deadlock(schedule, index, walk), {}};
    return {std::nullopt, walk.timing()};
}

std::optional<ScheduleProblem> find_problem(const Schedule& schedule) {
    return examine_schedule(schedule, {}).problem;
}

void require_valid(const Schedule& schedule) {
    if (const Problem found = find_problem(schedule)) throw UsageError(found->sentence);
}

}  // namespace lockstep
