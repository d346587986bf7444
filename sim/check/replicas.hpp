#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "sim/check/declarations.hpp"
#include "sim/check/parameters.hpp"
#include "sim/check/rollcall.hpp"
#include "sim/check/shadow.hpp"
#include "sim/check/watcher.hpp"

namespace lockstep::sim {

class Engine;
class Layouts;

/// F24: ranks that step with one reduced gradient hold the same parameter before the
/// step; so do ranks that have declared it a replica (declare_replicas). F23 by
/// declaration: these step with the same gradient, too, bit by bit.
///
/// What is compared: parameters that members of a team update with the same part of what
/// was reduced over the team, by their bits. Shards that are updated with different parts
/// are told apart by that; who steps with gradients of its own (local SGD) is not looked
/// at, unless by declaration.
class ReplicaWatcher final : public Watcher {
  public:
    ReplicaWatcher(const Engine& engine, const Layouts& layouts);

    void declared(const Team& team, int member, const Tensor& tensor,
                  const std::string& name, SourceLine at) override;
    void executing(int rank, const DeviceOperation& operation) override;
    void copied(int rank, CopyDirection direction, const Tensor& tensor,
                SourceLine at) override;
    void launched(Batch& batch) override;
    void freed(int rank, const Storage& storage) noexcept override;
    void quiet() override;
    void run_ended() override { quiet(); }

  private:
    /// What last wrote a part of the memory.
    struct Maker {
        const char* name = "";
        SourceLine at;
    };
    struct RankMemory {
        Shadow<Maker> makers;
        template <typename Value>
        using ByPlace = std::unordered_map<const Storage*, std::map<std::int64_t, Value>>;
        /// Updates of each parameter.
        ByPlace<std::uint64_t> steps;
        /// The last claim of each gradient, and how often it was made in a row.
        ByPlace<std::pair<std::uint64_t, std::uint64_t>> uses;
    };

    RankMemory& of(int rank) { return ranks_[rank]; }
    Rollcall::Claim claim_of(int rank, const DeviceOperation& update,
                             const Tensor& tensor, std::uint64_t step);
    void compare_declared(int rank, const DeviceOperation& update);
    void compare_reduced(int rank, const DeviceOperation& update);

    const Engine& engine_;
    const Layouts& layouts_;
    std::vector<RankMemory> ranks_;
    Declarations declarations_;
    Rollcall rollcall_;
    bool noted_ = false;
};

}  // namespace lockstep::sim
