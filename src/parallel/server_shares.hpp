#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/comm/chunks.hpp"
#include "src/comm/communicator.hpp"
#include "src/nn/parameter.hpp"

namespace lockstep {

/// How parameters are dealt out to servers.
enum class ServerDeal : std::uint8_t {
    /// Whole parameters, each to the server that has fewest bytes so far, the largest
    /// ones first.
    whole,
    /// Equal ranges of each bucket.
    ranges
};

/// Who serves which part of a model's parameters. They lie in buckets; of each bucket a
/// server has a run of elements, or none.
///
/// Values and gradients become views of one buffer each. A rank that does not keep all of
/// them, since it does not train, keeps what it serves.
class ServerShares {
  public:
    /// `servers` are ranks of the group; placements along the group say that what a rank
    /// serves is a shard.
    ServerShares(Device& device, const Communicator& group,
                 const std::vector<std::vector<Parameter*>>& buckets,
                 const std::vector<int>& servers, ServerDeal deal, bool keeps_all);

    /// Returns whether the rank serves anything of the bucket.
    bool has(std::size_t bucket, int rank) const { return range(bucket, rank).count > 0; }
    /// Return what the rank serves of the bucket, (elements).
    Tensor values(std::size_t bucket, int rank) const;
    Tensor gradients(std::size_t bucket, int rank) const;
    /// All gradients that this rank has.
    const Tensor& all_gradients() const { return gradients_; }

    /// Shards of the parameters that this rank serves.
    const std::vector<Parameter*>& served(std::size_t bucket) const {
        return served_in_[bucket];
    }
    std::vector<Parameter*> served() const;

  private:
    using Parameters = std::vector<Parameter*>;

    /// Returns the parameters in the order in which they lie in the buffers.
    Parameters deal_out(const std::vector<Parameters>& buckets,
                        const std::vector<int>& servers, ServerDeal deal, int ranks);
    /// Lets go of all but what this rank serves.
    void keep_own(Device& device, const Parameters& all);
    const Chunk& range(std::size_t bucket, int rank) const;
    Tensor part(const Tensor& flat, std::size_t bucket, int rank) const;

    int rank_;
    Tensor values_;
    Tensor gradients_;
    /// Elements of the whole buffers that a server has of a bucket; by bucket, by rank.
    std::vector<std::vector<Chunk>> ranges_;
    /// If the rank keeps its own part alone: where that of a bucket begins.
    std::vector<std::int64_t> own_begin_;
    std::vector<std::unique_ptr<Parameter>> shards_;
    std::vector<Parameters> served_in_;  ///< by bucket
};

}  // namespace lockstep
