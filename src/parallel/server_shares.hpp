#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/comm/chunks.hpp"
#include "src/comm/communicator.hpp"
#include "src/nn/parameter.hpp"

namespace lockstep {

/// How parameters are distributed over servers.
enum class ServerDeal : std::uint8_t {
    /// Whole parameters, the largest first, each to the server that has the fewest
    /// elements so far.
    whole,
    /// Equal ranges of each bucket.
    ranges
};

/// Says which rank serves which part of a model's parameters. The parameters lie in
/// buckets; a server has at most one range of elements of each bucket.
///
/// Values become views of one buffer, gradients of another. A rank that does not train
/// keeps only the parts that it serves.
class ServerShares {
  public:
    /// `servers` are ranks of the group. The parts that this rank serves are declared as
    /// shards along the group.
    ServerShares(Device& device, const Communicator& group,
                 const std::vector<std::vector<Parameter*>>& buckets,
                 const std::vector<int>& servers, ServerDeal deal, bool keeps_all);

    /// Returns whether the rank serves a part of the bucket.
    bool has(std::size_t bucket, int rank) const { return range(bucket, rank).count > 0; }
    /// Return the part of the bucket that the rank serves, (elements).
    Tensor values(std::size_t bucket, int rank) const;
    Tensor gradients(std::size_t bucket, int rank) const;
    /// All gradients that this rank keeps.
    const Tensor& all_gradients() const { return gradients_; }

    /// The shards of parameters that this rank serves.
    const std::vector<Parameter*>& served(std::size_t bucket) const {
        return served_in_[bucket];
    }
    std::vector<Parameter*> served() const;

  private:
    using Parameters = std::vector<Parameter*>;

    /// Returns the parameters in the order in which they lie in the buffers.
    Parameters deal_out(const std::vector<Parameters>& buckets,
                        const std::vector<int>& servers, ServerDeal deal, int ranks);
    /// Releases everything that this rank does not serve.
    void keep_own(Device& device, const Parameters& all);
    const Chunk& range(std::size_t bucket, int rank) const;
    Tensor part(const Tensor& flat, std::size_t bucket, int rank) const;

    int rank_;
    Tensor values_;
    Tensor gradients_;
    /// ranges_[bucket][rank] is the range of the whole buffers that this rank serves.
    std::vector<std::vector<Chunk>> ranges_;
    /// The beginning of each bucket's part, if the rank keeps only its own parts.
    std::vector<std::int64_t> own_begin_;
    std::vector<std::unique_ptr<Parameter>> shards_;
    std::vector<Parameters> served_in_;  ///< by bucket
};

}  // namespace lockstep
