#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sim/check/parameters.hpp"
#include "sim/check/watcher.hpp"

namespace lockstep::sim {

/// F25: weights that are read in one version and then in another, or after they should
/// have been gathered again.
///
/// A version is what lies between two updates by an optimizer. Forward of a micro-batch
/// notes what it reads; backward of the same one must find no update since. What was
/// gathered from shards is stale in a forward once the rank's own shard has been updated.
/// Phases say which is which (PhaseScope); outside of them nothing is looked at. A copy
/// of the weights, or values written over them, is the program's own care.
class VersionWatcher final : public Watcher {
  public:
    explicit VersionWatcher(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}
    ~VersionWatcher() override;

    void launched(Batch& batch) override;
    void executing(int rank, const DeviceOperation& operation) override;
    void copied(int rank, CopyDirection direction, const Tensor& tensor,
                SourceLine at) override;
    void freed(int rank, const Storage& storage) noexcept override;
    void phase_began(int rank, Phase phase, int micro_batch) override;
    void phase_ended(int rank) noexcept override;

  private:
    /// Where a part of a storage was read in a forward.
    struct Read {
        ByteRange range;
        std::uint64_t time = 0;
        std::uint64_t pass = 0;  ///< the forward that read
        SourceLine at;
    };
    struct Update {
        ByteRange range;
        std::uint64_t time = 0;
        const char* name = "";
        SourceLine at;
    };
    struct History;
    /// A part of a storage that holds the shards of several ranks.
    struct Gathered {
        ByteRange range;
        std::shared_ptr<const History> source;
        ByteRange shard;  ///< in the source
        bool in_place = false;
        std::uint64_t time = 0;
        SourceLine at;
    };
    /// What happened to a storage.
    struct History {
        std::vector<Update> updates;  ///< the last of each range
        std::vector<Gathered> gathered;
        std::map<int, std::vector<Read>> reads;  ///< by micro-batch
        std::uint64_t written_in_pass = 0;

        const Update* updated(ByteRange range, std::uint64_t since) const;
    };
    struct OpenPhase {
        Phase phase;
        int micro_batch;
        std::uint64_t pass;
    };
    struct RankHistory {
        std::unordered_map<const Storage*, std::shared_ptr<History>> storages;
        std::vector<OpenPhase> phases;
        std::map<int, std::uint64_t> passes;  ///< the last forward of each micro-batch
        std::uint64_t time = 0;               ///< of updates and gathers
        std::uint64_t pass = 0;
    };

    RankHistory& of(int rank) { return ranks_[rank]; }
    static History& history_of(RankHistory& rank, const Tensor& tensor);
    void read_in_forward(int rank, const DeviceOperation& operation, const Tensor& read);
    void read_in_backward(int rank, const DeviceOperation& operation, const Tensor& read);
    void updated(int rank, const DeviceOperation& operation);
    void written(int rank, const Tensor& tensor);

    std::vector<RankHistory> ranks_;
};

}  // namespace lockstep::sim
