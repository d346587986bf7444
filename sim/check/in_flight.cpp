#include <algorithm>
#include <deque>
#include <limits>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "sim/check/activity.hpp"
#include "sim/check/check.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/tensors.hpp"
#include "sim/check/vector_clock.hpp"
#include "sim/engine.hpp"
#include "sim/watcher.hpp"
#include "src/comm/aliasing.hpp"

namespace lockstep::sim {

namespace {

/// A stretch of memory that an operation in flight reads or writes.
struct Use {
    const Storage* storage = nullptr;
    std::int64_t begin = 0;  ///< in bytes
    std::int64_t end = 0;
    bool reads = false;
    bool writes = false;
    bool over = false;         ///< its rank knows that the use has ended
    int held = 0;              ///< tensors that the open launch keeps for this use
    int place = 0;             ///< of the operation in its launch
    std::uint64_t number = 0;  ///< the launch's
    Tensor tensor;             ///< keeps the storage alive
    PastOperation operation;

    // In runs with numbers, to find accesses by data(), which the device does not see.
    std::uint64_t hash = 0;
    bool hashed = false;         ///< at the launch of a read, `hash` was computed
    bool compared_last = false;  ///< compared again at the wait
    bool late = false;           ///< values that arrive are hidden until the wait
    Tensor aside;                ///< values that have arrived but are hidden

    bool meets(const Storage* other, std::int64_t from, std::int64_t to) const {
        return storage == other && begin < to && from < end && !over;
    }
};

/// Finds races between communication and other work of a rank: a buffer is read before
/// its values have arrived (F16), overwritten while it is in use (F17), or freed while it
/// is in use (F18).
///
/// A rank has queues: one for compute, in program order, and one for each communicator.
/// An operation uses its buffers from its launch until it is waited for. It is a race if,
/// in between, a device operation, a copy to or from the host or an operation of another
/// communicator writes to these buffers, or reads a buffer that the operation writes,
/// even if no value is wrong in this run. Two operations of one communicator are ordered
/// by its queue.
///
/// A use ends when the compute queue *knows* that it has ended:
/// - After a wait for an operation, the compute queue knows that this operation and all
///   earlier operations of its queue are done.
/// - Knowledge travels with messages. An operation begins with its rank's knowledge at
///   the launch and the final knowledge of the previous operation in its queue. A message
///   ends with the initial knowledge of both sides, and the fact that the send has read
///   its buffer. A collective ends with the initial knowledge of all members, and the
///   fact that it has read their buffers (with a root, this passes only from senders to
///   receivers). A wait for an operation adds the operation's final knowledge. So if a
///   rank has received an answer to a message, it may overwrite the message's buffer.
///
/// Facts that are not needed are left out of the clocks: if an operation ends while its
/// rank is blocked in a wait for it, the rank learns of the end from the wait.
///
/// The device does not see accesses by Tensor::data(). In a run with numbers, these are
/// found in other ways. A buffer that is written, and not read, is filled with NaN at the
/// launch. If values arrive before the rank waits, they are kept aside until the wait. A
/// buffer that the operation reads is compared with its values at the launch.
class InFlight final : public Watcher {
  public:
    explicit InFlight(Engine& engine);

    void launched(Launch& launch) override;
    void waited(Launch& launch, SourceLine at) override;
    void executing(int rank, const DeviceOperation& operation) override;
    void copying(int rank, CopyDirection direction, const Tensor& tensor,
                 SourceLine at) override;
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void collective_ended(const Team& team, const Meeting& meeting) override;
    void message_begins(Posted& send, Posted& recv) override;
    void message_ended(Posted& send, Posted& recv) override;
    void closing(Launch& launch) override;

  private:
    /// A launch that is not yet known to be done.
    struct Flight {
        std::uint64_t number;
        Knowledge at_launch;  ///< what its rank knew
        Knowledge end;        ///< the knowledge at the end of its operations so far
        bool moved = false;
    };
    /// A rank's side of a communicator.
    struct Queue {
        const Team* team = nullptr;
        std::uint64_t done = 0;  ///< the last launch that is known to be done
        Knowledge known;         ///< the knowledge at the end of its last launch
        std::deque<Flight> flights;
        std::deque<Use> uses;  ///< by (number, place)
    };
    struct Side {
        Knowledge known;  ///< what the compute queue knows
        std::vector<Queue> queues;
        /// By storage: how many of its tensors the engine and this watcher have.
        std::unordered_map<const Storage*, int> held;
    };
    using Uses = std::deque<Use>::iterator;

    Side& side_of(int rank) { return sides_[rank]; }
    Queue& queue_of(int rank, const Team& team);
    Queue& queue_of(const Launch& launch) { return queue_of(launch.rank, *launch.team); }
    Flight* flight_of(const Launch& launch);
    std::pair<Uses, Uses> uses_of(const Posted& posted);
    bool is_blocked_on(const Launch& launch) const;

    std::vector<Use> uses_in(const Launch& launch) const;
    template <typename Text>
    void check(int rank, const Tensor& tensor, bool reads, bool writes, const Team* team,
               Text text, SourceLine at);

    Knowledge start_of(const Launch& launch);
    void add_facts(KnowledgeSum& sum, const Posted& posted);
    Knowledge end_of(KnowledgeSum& sum);
    void end_with(const Posted& posted, const Knowledge& end);

    void begin(const Posted& posted);
    void arrive(const Posted& posted);
    void finish(int rank, Queue& queue, std::uint64_t number, SourceLine at,
                std::optional<Diagnosis>& found);
    void finish(int rank, Use& use, SourceLine at, std::optional<Diagnosis>& found);
    void learn(int rank, SourceLine at, std::optional<Diagnosis>& found);

    Engine& engine_;
    std::vector<Side> sides_;  ///< by rank
};

/// Fills a tensor with values that nobody mistakes for a result.
void spoil(const Tensor& tensor) {
    tensor.device()->transfer_fill(tensor, is_floating(tensor.dtype())
                                               ? std::numeric_limits<double>::quiet_NaN()
                                               : -1.0);
}

// These functions reveal accesses by Tensor::data(), which the device does not see. They
// use the device's own operations, so they work on any backend.

/// Prepares a use at its launch. `alone`: no other operation in flight uses the memory.
/// `arrives_apart`: the operation does not read the buffer that it writes.
void prepare(Use& use, bool alone, bool arrives_apart) {
    if (use.tensor.bytes_begin() == nullptr) return;
    if (use.reads && alone) {
        use.hash = hash_of(use.tensor);
        use.hashed = true;
        use.compared_last = !use.writes && arrives_apart;
    }
    use.late = use.writes && alone && arrives_apart;
    if (use.late && !use.reads) spoil(use.tensor);
}

/// Copies the operation's values from the buffer into `aside`, and spoils the buffer.
void put_aside(Use& use) {
    if (!use.late || use.aside || use.tensor.device() == nullptr) return;
    use.aside = use.tensor.device()->scratch(use.tensor.shape(), use.tensor.dtype());
    use.tensor.device()->transfer(use.aside, use.tensor);
    spoil(use.tensor);
}

/// Copies the values in `aside` back into the buffer.
void put_in_place(Use& use) {
    if (!use.aside) return;
    use.tensor.device()->transfer(use.tensor, use.aside);
    use.aside = Tensor();
    use.late = false;
}

/// Returns whether a buffer that is read still holds its values from the launch.
bool is_unchanged(const Use& use) {
    return !use.hashed || hash_of(use.tensor) == use.hash;
}

Diagnosis start_diagnosis(const char* fault, int rank, const Use& use) {
    const PastOperation& past = use.operation;
    Diagnosis diagnosis = diagnosis_on(*past.team, fault);
    if (!is_point_to_point(past.verb))
        diagnosis.sequence = static_cast<std::int64_t>(past.sequence);
    diagnosis.parties = {party({rank}, text_of(past) + ", launched", past.at)};
    return diagnosis;
}

/// F16 or F17: in `what` at line `at`, the rank touches a buffer that an operation uses.
Diagnosis explain_race(int rank, const Use& use, const std::string& what, bool reads,
                       const Tensor& touched, SourceLine at) {
    Diagnosis diagnosis = start_diagnosis(reads ? "F16" : "F17", rank, use);
    const std::int64_t begin = std::max(use.begin, touched.offset_bytes());
    const std::int64_t end = std::min(use.end, touched.offset_bytes() + touched.bytes());
    diagnosis.sentence = fmt::format(
        "rank {} {} a buffer in {} at {} while {}, launched at {}, still {} it: the rank "
        "has not waited for that {} (the two share {})",
        rank, reads ? "reads" : "overwrites", what, at.text(), text_of(use.operation),
        use.operation.at.text(), use.writes ? "writes to" : "reads from",
        name_of(use.operation.verb), buffer_text(touched, begin, end));
    diagnosis.parties.push_back(
        party({rank},
              fmt::format("{} {} the buffer", what, reads ? "reads" : "overwrites"), at));
    return diagnosis;
}

/// F17: a buffer has changed, but no device operation wrote there. Noticed when the
/// operation moved its data or, if there is a line, when the rank waited at that line.
Diagnosis explain_hidden_write(int rank, const Use& use, SourceLine waited_at) {
    Diagnosis diagnosis = start_diagnosis("F17", rank, use);
    const bool waited = waited_at.line != 0;
    diagnosis.sentence = fmt::format(
        "rank {} overwrote a buffer{}, although {}, launched at {}, still reads it: {} "
        "changed since the launch. No device operation wrote there, so the program wrote "
        "through Tensor::data()",
        rank, waited ? fmt::format(" before its wait at {}", waited_at.text()) : "",
        text_of(use.operation), use.operation.at.text(),
        buffer_text(use.tensor, use.begin, use.end));
    if (waited) diagnosis.parties.push_back(party({rank}, "wait", waited_at));
    return diagnosis;
}

/// F18: the program freed an operation's buffer before the operation was known to be
/// done.
Diagnosis explain_given_up(int rank, const Use& use, SourceLine waited_at) {
    Diagnosis diagnosis = start_diagnosis("F18", rank, use);
    diagnosis.sentence = fmt::format(
        "rank {} freed the buffer of {}, launched at {}, before its wait at {}: the last "
        "tensor with these {} x {}, made at {}, was destroyed while the communication "
        "could still {} them",
        rank, text_of(use.operation), use.operation.at.text(), waited_at.text(),
        use.tensor.elements(), name_of(use.tensor.dtype()),
        use.tensor.storage()->allocated_at.text(), use.writes ? "write to" : "read");
    diagnosis.parties.push_back(
        party({rank}, "wait, after the buffer was freed", waited_at));
    return diagnosis;
}

InFlight::InFlight(Engine& engine) : engine_(engine), sides_(engine.ranks().size()) {}

InFlight::Queue& InFlight::queue_of(int rank, const Team& team) {
    std::vector<Queue>& queues = side_of(rank).queues;
    const auto found = std::find_if(queues.begin(), queues.end(),
                                    [&](const Queue& q) { return q.team == &team; });
    if (found != queues.end()) return *found;
    queues.emplace_back().team = &team;
    return queues.back();
}

InFlight::Flight* InFlight::flight_of(const Launch& launch) {
    std::deque<Flight>& flights = queue_of(launch).flights;
    const auto found = std::lower_bound(flights.begin(), flights.end(), launch.number,
                                        [](const Flight& flight, std::uint64_t number) {
                                            return flight.number < number;
                                        });
    return found == flights.end() || found->number != launch.number ? nullptr : &*found;
}

std::vector<Use> InFlight::uses_in(const Launch& launch) const {
    std::vector<Use> uses;
    for (const Posted& posted : launch.posted) {
        const CommOperation& operation = posted.operation;
        const auto [read, written] = buffers_of(operation, launch.member);
        const auto add = [&](const Tensor& tensor, bool reads, bool writes, int held) {
            Use& use = uses.emplace_back();
            use.storage = tensor.storage();
            use.begin = tensor.offset_bytes();
            use.end = use.begin + tensor.bytes();
            use.reads = reads;
            use.writes = writes;
            use.held = held;
            use.place = static_cast<int>(&posted - launch.posted.data());
            use.number = launch.number;
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
        // A call may pass a buffer twice and use it once, as a broadcast's root does.
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

void InFlight::launched(Launch& launch) {
    Side& side = side_of(launch.rank);
    Queue& queue = queue_of(launch);
    std::vector<Use> uses = uses_in(launch);
    for (const Use& use : uses) {
        const auto name = [&] { return text_of(use.operation); };
        check(launch.rank, use.tensor, use.reads, use.writes, launch.team, name,
              use.operation.at);
    }
    for (std::size_t i = 0; i < uses.size(); ++i) {
        Use& use = uses[i];
        bool alone = true;
        for (Use& other : queue.uses) {
            if (!other.meets(use.storage, use.begin, use.end)) continue;
            if (other.number == use.number) continue;  // one group may read a byte twice
            if (use.writes || other.writes) alone = false;
            if (use.writes) other.compared_last = false;
        }
        const auto adjoins = [&](std::size_t j) {
            return j < uses.size() && uses[j].place == use.place &&
                   uses[j].meets(use.storage, use.begin, use.end);
        };
        prepare(use, alone, !adjoins(i - 1) && !adjoins(i + 1));
        side.held[use.storage] += 1 + use.held;
    }
    for (Use& use : uses)
        queue.uses.push_back(std::move(use));
    queue.flights.push_back({launch.number, side.known, nullptr});
}

void InFlight::waited(Launch& launch, SourceLine at) {
    if (launch.state != Launch::State::closed) return;  // the run is ending
    Side& side = side_of(launch.rank);
    Queue& queue = queue_of(launch);
    std::optional<Diagnosis> found;
    if (const Flight* flight = flight_of(launch)) {
        const Knowledge before = side.known;
        side.known = joined(side.known, flight->end);
        finish(launch.rank, queue, launch.number, at, found);
        if (side.known != before) learn(launch.rank, at, found);
    }
    // Noted, not thrown, because destructors wait for operations, too.
    if (found)
        engine_.note_mistake(launch.rank,
                             std::make_exception_ptr(FaultError(std::move(*found))));
}

/// Ends the uses of all launches up to `number`, which are done.
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

/// Ends a use, because the rank has learnt that it is over.
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

/// Ends the rank's uses that are over, as it has learnt from other ranks.
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

std::pair<InFlight::Uses, InFlight::Uses> InFlight::uses_of(const Posted& posted) {
    std::deque<Use>& uses = queue_of(*posted.launch).uses;
    const auto place = static_cast<int>(&posted - posted.launch->posted.data());
    const auto before = [](const Use& use, const std::pair<std::uint64_t, int>& key) {
        return std::make_pair(use.number, use.place) < key;
    };
    const auto key = std::make_pair(posted.launch->number, place);
    const Uses first = std::lower_bound(uses.begin(), uses.end(), key, before);
    Uses last = first;
    while (last != uses.end() && std::make_pair(last->number, last->place) == key)
        ++last;
    return {first, last};
}

/// Returns whether the launch's rank is blocked in a wait for this launch or a later one.
bool InFlight::is_blocked_on(const Launch& launch) const {
    const Launch* const waiting = engine_.ranks()[launch.rank]->waiting;
    return waiting != nullptr && waiting->team == launch.team &&
           waiting->number >= launch.number;
}

/// Returns the knowledge with which the launch began. All earlier launches in its queue
/// must be closed.
Knowledge InFlight::start_of(const Launch& launch) {
    const Flight* const flight = flight_of(launch);
    return flight == nullptr ? nullptr
                             : joined(flight->at_launch, queue_of(launch).known);
}

/// Adds the facts that are true when an operation has moved its data: all earlier
/// operations of its queue are done, and this operation has read its own buffer.
void InFlight::add_facts(KnowledgeSum& sum, const Posted& posted) {
    const Launch& launch = *posted.launch;
    const Queue& queue = queue_of(launch);
    if (launch.number > queue.done + 1 && !queue.flights.empty() &&
        queue.flights.front().number < launch.number)
        sum.add({launch.rank, launch.team->id, 0}, launch.number - 1);
    const auto place = static_cast<int>(&posted - launch.posted.data());
    if (buffers_of(posted.operation, launch.member).read != nullptr)
        sum.add({launch.rank, launch.team->id, place + 1}, launch.number);
}

Knowledge InFlight::end_of(KnowledgeSum& sum) {
    sum.forget([&](const VectorClock::Entry& entry) {
        const Team& team = *engine_.teams()[entry.lane.team];
        return queue_of(entry.lane.rank, team).done >= entry.number;
    });
    return sum.take();
}

void InFlight::end_with(const Posted& posted, const Knowledge& end) {
    Flight* const flight = flight_of(*posted.launch);
    if (flight == nullptr) return;
    flight->end = joined(flight->end, end);
    flight->moved = true;
}

/// Before the data move.
void InFlight::begin(const Posted& posted) {
    for (Use& use : queue_of(*posted.launch).uses) {
        if (use.number >= posted.launch->number) break;
        put_in_place(use);
    }
    const auto [first, last] = uses_of(posted);
    for (auto use = first; use != last; ++use)
        if (!use->over && !is_unchanged(*use))
            engine_.note_mistake(posted.launch->rank,
                                 std::make_exception_ptr(FaultError(explain_hidden_write(
                                     posted.launch->rank, *use, SourceLine{}))));
}

/// The data have moved.
void InFlight::arrive(const Posted& posted) {
    const bool blocked = is_blocked_on(*posted.launch);
    const auto [first, last] = uses_of(posted);
    for (auto use = first; use != last; ++use) {
        if (!blocked) put_aside(*use);
        // Nothing can touch the buffer until the wait ends.
        if (blocked) use->compared_last = false;
    }
}

void InFlight::message_begins(Posted& send, Posted& recv) {
    begin(send);
    if (&send != &recv) begin(recv);
}

void InFlight::message_ended(Posted& send, Posted& recv) {
    KnowledgeSum sum;
    sum.add(start_of(*send.launch));
    sum.add(start_of(*recv.launch));
    for (const Posted* side : {&send, &recv})
        if (!is_blocked_on(*side->launch)) add_facts(sum, *side);
    const Knowledge end = end_of(sum);
    end_with(send, end);
    arrive(send);
    if (&send == &recv) return;
    end_with(recv, end);
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
    // This knowledge travels with the data, so all receivers learn it.
    KnowledgeSum sum;
    for (const Posted* posted : meeting.arrived) {
        if (from_root && posted != root) continue;
        sum.add(start_of(*posted->launch));
        if (!is_blocked_on(*posted->launch)) add_facts(sum, *posted);
    }
    const Knowledge sent = end_of(sum);
    for (const Posted* posted : meeting.arrived) {
        const bool receives = from_root ? posted != root : !to_root || posted == root;
        const Knowledge own = start_of(*posted->launch);
        end_with(*posted, receives ? joined(sent, own) : own);
        arrive(*posted);
    }
}

void InFlight::closing(Launch& launch) {
    Flight* const flight = flight_of(launch);
    if (flight == nullptr) return;
    if (!flight->moved) flight->end = start_of(launch);
    Queue& queue = queue_of(launch);
    queue.known = flight->end;
    std::unordered_map<const Storage*, int>& held = side_of(launch.rank).held;
    auto use = std::lower_bound(
        queue.uses.begin(), queue.uses.end(), launch.number,
        [](const Use& a, std::uint64_t number) { return a.number < number; });
    for (; use != queue.uses.end() && use->number == launch.number; ++use) {
        const auto count = held.find(use->storage);
        if ((count->second -= use->held) == 0) held.erase(count);
    }
}

}  // namespace

std::unique_ptr<Watcher> watch_buffers(Engine& engine) {
    return std::make_unique<InFlight>(engine);
}

}  // namespace lockstep::sim
