// How a run ends that cannot go on: the first mistake, who waits for whom, and what only
// the engine knows of it.

#include <algorithm>

#include "sim/check/activity.hpp"
#include "sim/check/checker.hpp"
#include "sim/check/lifecycle.hpp"
#include "sim/check/memory.hpp"
#include "sim/check/unwaited.hpp"
#include "sim/check/waits.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

/// Where the run ends with a mistake that was found by who knows one rank only, says what
/// only the engine knows.
void Engine::complete_diagnosis() const {
    try {
        if (failure_) std::rethrow_exception(failure_);
    } catch (FaultError& fault) {
        complete(*this, fault.diagnosis());
        if (fault.diagnosis().fault == "F30")
            add_memory_of_others(*this, fault.diagnosis());
    } catch (...) {
    }
}

/// Of virtual things alone: which side of a collective or message came last on the host
/// must not show.
Engine::Order Engine::order_of(const Mistake& mistake) const {
    if (mistake.posted == nullptr) {
        const RankState& state = *ranks_[mistake.rank];
        return {state.clock.now(), mistake.rank, -1, 0, 0, 0};
    }
    const Posted& posted = *mistake.posted;
    const Team& team = *posted.batch->team;
    if (is_point_to_point(posted.operation.verb)) {
        const Posted& send =
            posted.operation.verb == Verb::send ? posted : *posted.partner;
        return {std::max(posted.batch->opened, posted.partner->batch->opened),
                std::min(posted.batch->rank, posted.partner->batch->rank),
                team.id,
                1,
                send.batch->rank,
                static_cast<std::int64_t>(send.sequence)};
    }
    Order order{
        0, posted.batch->rank, team.id, 0, 0, static_cast<std::int64_t>(posted.sequence)};
    for (const Posted* side : meeting_of(posted).arrived) {
        if (side == nullptr) continue;
        order[0] = std::max(order[0], side->batch->opened);
        order[1] = std::min<std::int64_t>(order[1], side->batch->rank);
    }
    return order;
}

bool Engine::note_failure() {
    if (mistakes_.empty()) return false;
    const Mistake& first = *std::min_element(
        mistakes_.begin(), mistakes_.end(),
        [&](const Mistake& a, const Mistake& b) { return order_of(a) < order_of(b); });
    if (first.posted == nullptr)
        failure_ = rank(first.rank).failure;
    else
        note_diagnosis(explain_difference(*this, *first.posted));
    return true;
}

void Engine::note_stop() {
    if (std::optional<Diagnosis> diagnosis = explain_stop(*this))
        note_diagnosis(std::move(*diagnosis));
    else if (std::optional<Diagnosis> forgotten = explain_unwaited(*this))
        note_diagnosis(std::move(*forgotten));
}

/// Of who can go no further.
void Engine::note_diagnosis(Diagnosis diagnosis) {
    diagnosis.waits = waits_of(*this);
    trace_open(diagnosis.time);
    failure_ = std::make_exception_ptr(FaultError(std::move(diagnosis)));
}

/// Every rank has ended, and nothing is left open.
void Engine::note_kept_communicators() {
    if (std::optional<Diagnosis> diagnosis = explain_kept(*this))
        failure_ = std::make_exception_ptr(FaultError(std::move(*diagnosis)));
}

}  // namespace lockstep::sim
