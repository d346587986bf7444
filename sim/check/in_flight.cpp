#include "sim/check/in_flight.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "sim/check/activity.hpp"
#include "sim/check/late_delivery.hpp"
#include "sim/check/race_text.hpp"
#include "src/comm/aliasing.hpp"

namespace lockstep::sim {

InFlight::InFlight(Engine& engine) : engine_(engine), sides_(engine.ranks().size()) {}

InFlight::Queue& InFlight::queue_of(int rank, const Team& team) {
    std::vector<Queue>& queues = side_of(rank).queues;
    const auto found = std::find_if(queues.begin(), queues.end(),
                                    [&](const Queue& q) { return q.team == &team; });
    if (found != queues.end()) return *found;
    queues.emplace_back().team = &team;
    return queues.back();
}

InFlight::Flight* InFlight::flight_of(const Batch& batch) {
    std::deque<Flight>& flights = queue_of(batch).flights;
    const auto found = std::lower_bound(flights.begin(), flights.end(), batch.number,
                                        [](const Flight& flight, std::uint64_t number) {
                                            return flight.number < number;
                                        });
    return found == flights.end() || found->number != batch.number ? nullptr : &*found;
}

std::vector<Use> InFlight::uses_in(const Batch& batch) const {
    std::vector<Use> uses;
    for (const Posted& posted : batch.posted) {
        const CommOperation& operation = posted.operation;
        const auto [read, written] = buffers_of(operation, batch.member);
        const auto add = [&](const Tensor& tensor, bool reads, bool writes, int held) {
            Use& use = uses.emplace_back();
            use.storage = tensor.storage();
            use.begin = tensor.offset_bytes();
            use.end = use.begin + tensor.bytes();
            use.reads = reads;
            use.writes = writes;
            use.held = held;
            use.place = static_cast<int>(&posted - batch.posted.data());
            use.number = batch.number;
            use.tensor = tensor.flat();
            use.operation = past_of(posted);
        };
        const bool same = read != nullptr && written != nullptr &&
                          read->storage() == written->storage() &&
                          read->offset_bytes() == written->offset_bytes() &&
                          read->bytes() == written->bytes();
        if (same) {
            add(*read, true, true, 2);
            continue;
        }
        // One that is passed twice, and used once: the root's buffer of a broadcast.
        const int held = operation.input.storage() == operation.output.storage() &&
                                 (read == nullptr || written == nullptr)
                             ? 2
                             : 1;
        if (read != nullptr) add(*read, true, false, held);
        if (written != nullptr) add(*written, false, true, held);
    }
    return uses;
}

template <typename Text>
void InFlight::check(int rank, const Tensor& tensor, bool reads, bool writes,
                     const Team* team, Text text, SourceLine at) {
    const std::int64_t begin = tensor.offset_bytes();
    const std::int64_t end = begin + tensor.bytes();
    for (const Queue& queue : side_of(rank).queues) {
        if (queue.team == team) continue;
        for (const Use& use : queue.uses) {
            if (!use.meets(tensor.storage(), begin, end)) continue;
            const bool unarrived = reads && use.writes;
            if (unarrived || writes)
                throw FaultError(explain_race(rank, use, text(), unarrived, tensor, at));
        }
    }
}

void InFlight::executing(int rank, const DeviceOperation& operation) {
    if (side_of(rank).held.empty()) return;
    const auto name = [&] { return std::string(operation.name); };
    for (const Tensor* read : operation.reads)
        check(rank, *read, true, false, nullptr, name, operation.at);
    for (const Tensor* written : operation.writes)
        check(rank, *written, false, true, nullptr, name, operation.at);
}

void InFlight::copying(int rank, CopyDirection direction, const Tensor& tensor,
                       SourceLine at) {
    if (side_of(rank).held.empty()) return;
    const bool to_host = direction == CopyDirection::to_host;
    const auto name = [&] {
        return std::string(to_host ? "a copy to the host" : "a copy from the host");
    };
    check(rank, tensor, to_host, !to_host, nullptr, name, at);
}

void InFlight::launched(Batch& batch) {
    Side& side = side_of(batch.rank);
    Queue& queue = queue_of(batch);
    std::vector<Use> uses = uses_in(batch);
    for (const Use& use : uses) {
        const auto name = [&] { return text_of(use.operation); };
        check(batch.rank, use.tensor, use.reads, use.writes, batch.team, name,
              use.operation.at);
    }
    for (std::size_t i = 0; i < uses.size(); ++i) {
        Use& use = uses[i];
        bool alone = true;
        for (Use& other : queue.uses) {
            if (!other.meets(use.storage, use.begin, use.end)) continue;
            if (other.number == use.number) continue;  // what all of a group read
            if (use.writes || other.writes) alone = false;
            if (use.writes) other.compared_last = false;
        }
        const auto beside = [&](std::size_t j) {
            return j < uses.size() && uses[j].place == use.place &&
                   uses[j].meets(use.storage, use.begin, use.end);
        };
        prepare(use, alone, !beside(i - 1) && !beside(i + 1));
        side.held[use.storage] += 1 + use.held;
    }
    for (Use& use : uses)
        queue.uses.push_back(std::move(use));
    queue.flights.push_back({batch.number, side.known, nullptr});
}

void InFlight::waited(Batch& batch, SourceLine at) {
    if (batch.state != Batch::State::closed) return;  // the run is being ended
    Side& side = side_of(batch.rank);
    Queue& queue = queue_of(batch);
    std::optional<Diagnosis> found;
    if (const Flight* flight = flight_of(batch)) {
        const Knowledge before = side.known;
        side.known = joined(side.known, flight->end);
        finish(batch.rank, queue, batch.number, at, found);
        if (side.known != before) learn(batch.rank, at, found);
    }
    // Not thrown: destructors wait, too.
    if (found)
        engine_.note_mistake(batch.rank,
                             std::make_exception_ptr(FaultError(std::move(*found))));
}

/// All batches up to `number` are done.
void InFlight::finish(int rank, Queue& queue, std::uint64_t number, SourceLine at,
                      std::optional<Diagnosis>& found) {
    while (!queue.uses.empty() && queue.uses.front().number <= number) {
        if (!queue.uses.front().over) finish(rank, queue.uses.front(), at, found);
        queue.uses.pop_front();
    }
    while (!queue.flights.empty() && queue.flights.front().number <= number)
        queue.flights.pop_front();
    queue.done = std::max(queue.done, number);
}

/// The rank learns that a use is over.
void InFlight::finish(int rank, Use& use, SourceLine at,
                      std::optional<Diagnosis>& found) {
    put_in_place(use);
    Side& side = side_of(rank);
    const auto held = side.held.find(use.storage);
    const bool given_up = use.storage->references() <= held->second;
    if (given_up && !found) found = explain_given_up(rank, use, at);
    if (use.compared_last && !found && !is_unchanged(use))
        found = explain_hidden_write(rank, use, at);
    use.over = true;
    if (--held->second == 0) side.held.erase(held);
    use.tensor = Tensor();
}

/// What others have told of the rank's own queues.
void InFlight::learn(int rank, SourceLine at, std::optional<Diagnosis>& found) {
    Side& side = side_of(rank);
    const auto& entries = side.known->entries;
    auto entry = std::lower_bound(
        entries.begin(), entries.end(), rank,
        [](const VectorClock::Entry& e, int own) { return e.lane.rank < own; });
    for (; entry != entries.end() && entry->lane.rank == rank; ++entry) {
        const Lane& lane = entry->lane;
        const Team& team = *engine_.teams()[lane.team];
        Queue& queue = queue_of(rank, team);
        if (entry->number <= queue.done) continue;
        if (lane.lane == 0) {
            finish(rank, queue, entry->number, at, found);
            continue;
        }
        for (Use& use : queue.uses)
            if (use.number == entry->number && use.place == lane.lane - 1 &&
                !use.writes && !use.over)
                finish(rank, use, at, found);
    }
}

}  // namespace lockstep::sim
