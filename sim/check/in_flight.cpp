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
    bool over = false;  ///< its rank knows that it has been read, and lets go of it
    int held = 0;       ///< tensors of it that the open launch has
    int place = 0;      ///< of the operation in its launch
    std::uint64_t number = 0;  ///< the launch's
    Tensor tensor;             ///< keeps the storage
    PastOperation operation;

    // If there are numbers: for what the device does not see, data().
    std::uint64_t hash = 0;
    bool hashed = false;         ///< hash is that of what is read, at its launch
    bool compared_last = false;  ///< once more when it is waited for
    bool late = false;           ///< what arrives shows when it is waited for
    Tensor aside;                ///< what has arrived, and does not show yet

    bool meets(const Storage* other, std::int64_t from, std::int64_t to) const {
        return storage == other && begin < to && from < end && !over;
    }
};

/// Races between communication and what else a rank does: a buffer read before it has
/// arrived (F16), overwritten while it is in use (F17), given up while it is in use
/// (F18).
///
/// A rank has queues: compute, in program order, and one for each communicator. An
/// operation that is launched at one line and waited for at another uses its buffers in
/// between. What else touches them there, a device operation, a copy to or from the host,
/// an operation of another communicator, is a race, whether or not this run shows it; two
/// operations of one communicator are ordered by its queue.
///
/// A use ends when the compute queue *knows* so:
/// - waiting for an operation is knowing that it and all before it in its queue are done;
/// - knowledge travels with messages. An operation begins with what its rank knew at the
///   launch and what the operation before it in its queue ended with. A message ends with
///   what both sides began with, and with that the send has read its buffer; a collective
///   with what all members began with, and that it has read theirs (a rooted one only
///   along the way of the data). Waiting for an operation adds what it ended with. So a
///   rank that has sent, and has received an answer to that, may overwrite what it sent.
///
/// The clocks hold only what somebody needs: what an operation has done that ends while
/// its rank is blocked in a wait for it, the rank will know by itself.
///
/// Accesses by Tensor::data() go past the device. If there are numbers, they show: a
/// buffer to be written holds NaN from the launch on, what arrives for a rank that does
/// not wait for it yet is kept aside until it does, and what is read is compared with
/// what it was at the launch.
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
    /// A launch that its rank does not know to be done.
    struct Flight {
        std::uint64_t number;
        Knowledge at_launch;  ///< what its rank knew
        Knowledge end;        ///< what its operations have ended with so far
        bool moved = false;
    };
    /// A rank's side of a communicator.
    struct Queue {
        const Team* team = nullptr;
        std::uint64_t done = 0;  ///< its rank knows that all up to this one are
        Knowledge known;         ///< what its last launch ended with
        std::deque<Flight> flights;
        std::deque<Use> uses;  ///< by (number, place)
    };
    struct Side {
        Knowledge known;  ///< to the compute queue
        std::vector<Queue> queues;
        /// Tensors that the engine and this watcher have of each storage in use.
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

/// Fills it with what no program takes for a result.
void spoil(const Tensor& tensor) {
    tensor.device()->transfer_fill(tensor, is_floating(tensor.dtype())
                                               ? std::numeric_limits<double>::quiet_NaN()
                                               : -1.0);
}

// An access that the device does not see, Tensor::data(), shows by what follows. It goes
// by way of the device, and so works on any backend.

/// At the launch. `alone`: no other operation in flight uses the memory. `arrives_apart`:
/// what is written is not what the operation reads.
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

/// Keeps aside what the operation has written.
void put_aside(Use& use) {
    if (!use.late || use.aside || use.tensor.device() == nullptr) return;
    use.aside = use.tensor.device()->scratch(use.tensor.shape(), use.tensor.dtype());
    use.tensor.device()->transfer(use.aside, use.tensor);
    spoil(use.tensor);
}

/// Shows what was kept aside.
void put_in_place(Use& use) {
    if (!use.aside) return;
    use.tensor.device()->transfer(use.tensor, use.aside);
    use.aside = Tensor();
    use.late = false;
}

/// Returns whether a buffer that is read still holds what it held at the launch.
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

/// F16 or F17: at `at`, in `what`, the rank touches a buffer that an operation uses.
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

/// F17 by a write that no device operation made: seen when the operation moved its data,
/// or, with a line, when its rank waited for it.
Diagnosis explain_hidden_write(int rank, const Use& use, SourceLine waited_at) {
    Diagnosis diagnosis = start_diagnosis("F17", rank, use);
    const bool waited = waited_at.line != 0;
    diagnosis.sentence = fmt::format(
        "rank {} overwrote a buffer that {}, launched at {}, reads, {}: {} no longer "
        "hold what they held at the launch; no device operation wrote there, so the "
        "program did by itself (Tensor::data())",
        rank, text_of(use.operation), use.operation.at.text(),
        waited ? fmt::format("before its wait at {}", waited_at.text())
               : std::string("before that was done"),
        buffer_text(use.tensor, use.begin, use.end));
    if (waited) diagnosis.parties.push_back(party({rank}, "wait", waited_at));
    return diagnosis;
}

/// F18: what the rank has just learned to be done used memory that nobody had kept.
Diagnosis explain_given_up(int rank, const Use& use, SourceLine waited_at) {
    Diagnosis diagnosis = start_diagnosis("F18", rank, use);
    diagnosis.sentence = fmt::format(
        "rank {} let go of the buffer of {}, launched at {}, before it waited at {}: the "
        "last variable that held these {} x {}, made at {}, went while the communication "
        "could still {} them",
        rank, text_of(use.operation), use.operation.at.text(), waited_at.text(),
        use.tensor.elements(), name_of(use.tensor.dtype()),
        use.tensor.storage()->allocated_at.text(), use.writes ? "write to" : "read");
    diagnosis.parties.push_back(
        party({rank}, "wait, when the buffer had gone", waited_at));
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
    queue.flights.push_back({launch.number, side.known, nullptr});
}

void InFlight::waited(Launch& launch, SourceLine at) {
    if (launch.state != Launch::State::closed) return;  // the run is being ended
    Side& side = side_of(launch.rank);
    Queue& queue = queue_of(launch);
    std::optional<Diagnosis> found;
    if (const Flight* flight = flight_of(launch)) {
        const Knowledge before = side.known;
        side.known = joined(side.known, flight->end);
        finish(launch.rank, queue, launch.number, at, found);
        if (side.known != before) learn(launch.rank, at, found);
    }
    // Not thrown: destructors wait, too.
    if (found)
        engine_.note_mistake(launch.rank,
                             std::make_exception_ptr(FaultError(std::move(*found))));
}

/// All launches up to `number` are done.
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

/// The rank learns what others have told of its own queues.
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

/// Returns whether its rank will know by itself when the launch is done.
bool InFlight::is_blocked_on(const Launch& launch) const {
    const Launch* const waiting = engine_.ranks()[launch.rank]->waiting;
    return waiting != nullptr && waiting->team == launch.team &&
           waiting->number >= launch.number;
}

/// Returns what the launch began with; it is its queue's first that is not closed.
Knowledge InFlight::start_of(const Launch& launch) {
    const Flight* const flight = flight_of(launch);
    return flight == nullptr ? nullptr
                             : joined(flight->at_launch, queue_of(launch).known);
}

/// Adds what an operation that has moved its data says of its rank's queue: that all
/// before it are done, and that it has read its own.
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
        // Nobody can touch it from here to the end of the wait.
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
    // This went along with the data that somebody has.
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
