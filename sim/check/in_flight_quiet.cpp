// Communication in flight while the run is quiet: operations move data, and end.

#include <algorithm>

#include "sim/check/in_flight.hpp"
#include "sim/check/late_delivery.hpp"
#include "sim/check/race_text.hpp"
#include "src/comm/aliasing.hpp"

namespace lockstep::sim {

std::pair<InFlight::Uses, InFlight::Uses> InFlight::uses_of(const Posted& posted) {
    std::deque<Use>& uses = queue_of(*posted.batch).uses;
    const auto place = static_cast<int>(&posted - posted.batch->posted.data());
    const auto before = [](const Use& use, const std::pair<std::uint64_t, int>& key) {
        return std::make_pair(use.number, use.place) < key;
    };
    const auto key = std::make_pair(posted.batch->number, place);
    const Uses first = std::lower_bound(uses.begin(), uses.end(), key, before);
    Uses last = first;
    while (last != uses.end() && std::make_pair(last->number, last->place) == key)
        ++last;
    return {first, last};
}

/// Whether its rank will know by itself when the batch is done.
bool InFlight::is_blocked_on(const Batch& batch) const {
    const Batch* const waiting = engine_.ranks()[batch.rank]->waiting;
    return waiting != nullptr && waiting->team == batch.team &&
           waiting->number >= batch.number;
}

/// What the batch began with; it is its queue's first that is not closed.
Knowledge InFlight::start_of(const Batch& batch) {
    const Flight* const flight = flight_of(batch);
    return flight == nullptr ? nullptr : joined(flight->launch, queue_of(batch).known);
}

/// What an operation that has moved its data says of its rank's queue: that all before it
/// are done, and that it has read its own.
void InFlight::add_facts(KnowledgeSum& sum, const Posted& posted) {
    const Batch& batch = *posted.batch;
    const Queue& queue = queue_of(batch);
    if (batch.number > queue.done + 1 && !queue.flights.empty() &&
        queue.flights.front().number < batch.number)
        sum.add({batch.rank, batch.team->id, 0}, batch.number - 1);
    const auto place = static_cast<int>(&posted - batch.posted.data());
    if (buffers_of(posted.operation, batch.member).read != nullptr)
        sum.add({batch.rank, batch.team->id, place + 1}, batch.number);
}

Knowledge InFlight::end_of(KnowledgeSum& sum) {
    sum.forget([&](const VectorClock::Entry& entry) {
        const Team& team = *engine_.teams()[entry.lane.team];
        return queue_of(entry.lane.rank, team).done >= entry.number;
    });
    return sum.take();
}

void InFlight::end_with(const Posted& posted, const Knowledge& end) {
    Flight* const flight = flight_of(*posted.batch);
    if (flight == nullptr) return;
    flight->end = joined(flight->end, end);
    flight->moved = true;
}

/// Before the data move.
void InFlight::begin(const Posted& posted) {
    for (Use& use : queue_of(*posted.batch).uses) {
        if (use.number >= posted.batch->number) break;
        put_in_place(use);
    }
    const auto [first, last] = uses_of(posted);
    for (auto use = first; use != last; ++use)
        if (!use->over && !is_unchanged(*use))
            engine_.note_mistake(posted.batch->rank,
                                 std::make_exception_ptr(FaultError(explain_hidden_write(
                                     posted.batch->rank, *use, SourceLine{}))));
}

/// The data have moved.
void InFlight::arrive(const Posted& posted) {
    const bool blocked = is_blocked_on(*posted.batch);
    const auto [first, last] = uses_of(posted);
    for (auto use = first; use != last; ++use) {
        if (!blocked) put_aside(*use);
        // Nobody can touch it from here to the end of the wait.
        if (blocked) use->compared_last = false;
    }
}

void InFlight::message_begins(Posted& send, Posted& recv) {
    begin(send);
    begin(recv);
}

void InFlight::message_ended(Posted& send, Posted& recv) {
    KnowledgeSum sum;
    sum.add(start_of(*send.batch));
    sum.add(start_of(*recv.batch));
    for (const Posted* side : {&send, &recv})
        if (!is_blocked_on(*side->batch)) add_facts(sum, *side);
    const Knowledge end = end_of(sum);
    end_with(send, end);
    end_with(recv, end);
    arrive(send);
    arrive(recv);
}

void InFlight::collective_begins(const Team& /*team*/, const Meeting& meeting) {
    for (const Posted* posted : meeting.arrived)
        begin(*posted);
}

void InFlight::collective_ended(const Team& /*team*/, const Meeting& meeting) {
    const CommOperation& operation = meeting.first->operation;
    const VerbFacts verb = facts_of(operation.verb);
    const bool from_root = verb.from == VerbFacts::Who::root;
    const bool to_root = verb.to == VerbFacts::Who::root;
    const Posted* const root =
        verb.has_root() ? meeting.arrived[operation.peer] : nullptr;
    // What went along with the data that somebody has.
    KnowledgeSum sum;
    for (const Posted* posted : meeting.arrived) {
        if (from_root && posted != root) continue;
        sum.add(start_of(*posted->batch));
        if (!is_blocked_on(*posted->batch)) add_facts(sum, *posted);
    }
    const Knowledge sent = end_of(sum);
    for (const Posted* posted : meeting.arrived) {
        const bool receives = from_root ? posted != root : !to_root || posted == root;
        const Knowledge own = start_of(*posted->batch);
        end_with(*posted, receives ? joined(sent, own) : own);
        arrive(*posted);
    }
}

void InFlight::closing(Batch& batch) {
    Flight* const flight = flight_of(batch);
    if (flight == nullptr) return;
    if (!flight->moved) flight->end = start_of(batch);
    Queue& queue = queue_of(batch);
    queue.known = flight->end;
    std::unordered_map<const Storage*, int>& held = side_of(batch.rank).held;
    auto use = std::lower_bound(
        queue.uses.begin(), queue.uses.end(), batch.number,
        [](const Use& a, std::uint64_t number) { return a.number < number; });
    for (; use != queue.uses.end() && use->number == batch.number; ++use) {
        const auto count = held.find(use->storage);
        if ((count->second -= use->held) == 0) held.erase(count);
    }
}

}  // namespace lockstep::sim
