#pragma once

#include <deque>
#include <unordered_map>
#include <vector>

#include "sim/check/vector_clock.hpp"
#include "sim/check/watcher.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

/// A stretch of memory that an operation in flight reads or writes.
struct Use {
    const Storage* storage = nullptr;
    std::int64_t begin = 0;  ///< in bytes
    std::int64_t end = 0;
    bool reads = false;
    bool writes = false;
    bool over = false;  ///< its rank knows that it has been read, and lets go of it
    int held = 0;       ///< tensors of it that the open batch has
    int place = 0;      ///< of the operation in its batch
    std::uint64_t number = 0;  ///< the batch's
    Tensor tensor;             ///< keeps the storage
    Past operation;

    // Where there are numbers, for what the device does not see: data().
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
/// Accesses by Tensor::data() go past the device. For these, where there are numbers: a
/// buffer to be written holds NaN from the launch on, what arrives for a rank that does
/// not wait for it yet is kept aside until it does, and what is read is compared with
/// what it was at the launch.
class InFlight final : public Watcher {
  public:
    explicit InFlight(Engine& engine);

    void launched(Batch& batch) override;
    void waited(Batch& batch, SourceLine at) override;
    void executing(int rank, const DeviceOperation& operation) override;
    void copying(int rank, CopyDirection direction, const Tensor& tensor,
                 SourceLine at) override;
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void collective_ended(const Team& team, const Meeting& meeting) override;
    void message_begins(Posted& send, Posted& recv) override;
    void message_ended(Posted& send, Posted& recv) override;
    void closing(Batch& batch) override;

  private:
    /// A batch that its rank does not know to be done.
    struct Flight {
        std::uint64_t number;
        Knowledge launch;  ///< what its rank knew
        Knowledge end;     ///< what its operations have ended with so far
        bool moved = false;
    };
    /// A rank's side of a communicator.
    struct Queue {
        const Team* team = nullptr;
        std::uint64_t done = 0;  ///< its rank knows that all up to this one are
        Knowledge known;         ///< what its last batch ended with
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
    Queue& queue_of(const Batch& batch) { return queue_of(batch.rank, *batch.team); }
    Flight* flight_of(const Batch& batch);
    std::pair<Uses, Uses> uses_of(const Posted& posted);
    bool is_blocked_on(const Batch& batch) const;

    std::vector<Use> uses_in(const Batch& batch) const;
    template <typename Text>
    void check(int rank, const Tensor& tensor, bool reads, bool writes, const Team* team,
               Text text, SourceLine at);

    Knowledge start_of(const Batch& batch);
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

}  // namespace lockstep::sim
