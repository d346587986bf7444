#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "sim/check/parameters.hpp"
#include "sim/team.hpp"

namespace lockstep::sim {

/// Which tensors the ranks have declared to be replicas (declare_replicas), and how often
/// each was updated. A declaration is of a place in memory, until that is freed.
class Declarations {
  public:
    struct Declaration {
        const Team* team;
        int member;
        std::uint64_t number;  ///< the same on all members
        std::string name;
        SourceLine at;
        ByteRange range;
        std::map<ByteRange, std::uint64_t> updates;  ///< of each part, in bytes of it
    };
    /// The part of a declared tensor that an update steps: all of it, or a shard.
    struct Part {
        const Declaration* declaration;
        std::uint64_t step;    ///< of this part, from 1
        std::uint64_t number;  ///< of part and step, the same on all members
        Tensor value;
        Tensor gradient;
    };

    explicit Declarations(std::size_t ranks) : ranks_(ranks) {}

    void add(const Team& team, int member, const Tensor& tensor, const std::string& name,
             SourceLine at);
    void freed(int rank, const Storage& storage) noexcept;
    /// Counts it, too.
    std::vector<Part> updated_by(int rank, const DeviceOperation& update);

  private:
    struct RankDeclarations {
        std::unordered_map<const Storage*, std::vector<Declaration>> by_storage;
        /// By team and name; members need not declare in one order.
        std::map<std::pair<int, std::string>, std::uint64_t> counts;
    };

    RankDeclarations& of(int rank) { return ranks_[rank]; }

    std::vector<RankDeclarations> ranks_;
};

}  // namespace lockstep::sim
