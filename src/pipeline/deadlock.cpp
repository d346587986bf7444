#include "src/pipeline/deadlock.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "src/pipeline/walk.hpp"

namespace lockstep {

namespace {

class Silent final : public WalkVisitor {
    void computed(Place /*place*/, Place /*need*/) override {}
    void posted(Place /*place*/) override {}
    void delivered(Place /*send*/, Place /*recv*/) override {}
};

/// `stuck` waits until `needed` is done, which stands behind `in_front` on
/// its stage, or is that.
struct Link {
    Place stuck;
    Place needed;
    Place in_front;
};

/// What keeps a stuck instruction.
Link link_of(const Schedule& schedule, const WorkIndex& index,
             const Walk& walk, Place stuck) {
    const bool message = is_message(schedule.at(stuck).kind);
    const Place needed = message ? index.partner(stuck) : index.need(stuck);
    const int other = needed.stage;
    if (!is_message(schedule.at(needed).kind))
        return {stuck, needed, walk.at(other)};
    // A message that its stage has posted waits behind those before it; one
    // that is still to come waits for the stage's program.
    const Place program = walk.at(other);
    const bool posted = !program || needed.position < program.position;
    return {stuck, needed, posted ? walk.queued(other) : program};
}

std::vector<Link> follow(const Schedule& schedule, const WorkIndex& index,
                         const Walk& walk) {
    Place stuck;
    for (int stage = 0; stage < schedule.stages && !stuck; ++stage)
        stuck = walk.at(stage) ? walk.at(stage) : walk.queued(stage);
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
    const std::string text =
        fmt::format("stage {}'s instruction {}, {}", place.stage,
                    place.position + 1, words_of(work));
    return work.line > 0 ? fmt::format("{}, line {}", text, work.line)
                         : text;
}

/// What the next link says in full.
std::string short_text(const Schedule& schedule, Place place) {
    return fmt::format("instruction {} ({})", place.position + 1,
                       text_of(schedule.at(place)));
}

std::string link_text(const Schedule& schedule, const Link& link) {
    const std::string text =
        fmt::format("{} waits for {}", place_text(schedule, link.stuck),
                    place_text(schedule, link.needed));
    if (link.needed == link.in_front) return text;
    return fmt::format("{}, before which {} must be done", text,
                       link.needed.stage == link.in_front.stage
                           ? short_text(schedule, link.in_front)
                           : place_text(schedule, link.in_front));
}

}  // namespace

std::optional<ScheduleProblem> find_deadlock(const Schedule& schedule,
                                             const WorkIndex& index) {
    Silent silent;
    Walk walk(schedule, index, silent);
    if (walk.run()) return std::nullopt;
    const std::vector<Link> cycle = follow(schedule, index, walk);
    ScheduleProblem problem;
    const std::string from =
        schedule.file.empty() ? "" : schedule.file + ": ";
    problem.sentence =
        fmt::format("{}deadlock after {} of {} computations: ", from,
                    walk.computations(), schedule.computations());
    constexpr std::size_t kMostLinks = 8;
    for (std::size_t i = 0; i < cycle.size(); ++i) {
        problem.cycle.push_back(cycle[i].stuck);
        if (i < kMostLinks)
            problem.sentence +=
                (i == 0 ? "" : "; ") + link_text(schedule, cycle[i]);
    }
    if (cycle.size() > kMostLinks)
        problem.sentence +=
            fmt::format("; and {} more in turn", cycle.size() - kMostLinks);
    problem.sentence += cycle.size() == 1 ? ", which is itself"
                                          : ", which closes the cycle";
    problem.place = problem.cycle.front();
    return problem;
}

}  // namespace lockstep
