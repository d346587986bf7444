#pragma once

#include "src/nn/flash_attention.hpp"
#include "src/nn/token_deal.hpp"
#include "src/parallel/ring.hpp"

namespace lockstep {

/// The common base of all attentions over sequences whose tokens are sharded over ranks.
/// Only attention needs tokens of other ranks: everything else in a transformer works on
/// one token at a time.
///
/// x (s/N, b, (a + 2 g) width) has queries, keys and values of this rank's tokens; y is
/// (s/N, b, a width). All ranks of the group must run the module with the same number of
/// tokens. Heads are at most Device::kMostHeadWidth wide, except in Ring Self-Attention.
/// Device and group must outlive the module.
class ContextAttention : public Module {
  public:
    /// Throws UsageError if the numbers of heads do not fit each other.
    ContextAttention(Device& device, Communicator& group, const AttentionSizes& sizes,
                     TokenOrder order = TokenOrder::contiguous);

  protected:
    Device& device() const { return device_; }
    Communicator& group() const { return group_; }
    const Ring& ring() const { return ring_; }
    const AttentionSizes& sizes() const { return sizes_; }
    const TokenDeal& deal() const { return deal_; }

    /// Return the options for this rank's queries and one rank's keys, or all keys.
    AttentionOptions seeing_rank(const Heads& queries, int rank) const;
    AttentionOptions seeing_all(const Heads& queries) const;

    /// Returns this rank's keys and values side by side, (s/N, b, 2 g width), so that one
    /// message has both. put_keys_and_values writes the gradients of such a block into
    /// the same columns of x's gradient.
    Tensor keys_and_values(const Tensor& x) const;
    void put_keys_and_values(const Tensor& dx, const Tensor& block) const;
    /// Returns zeros in the shape of the block, for a sum of gradients.
    Tensor zero_block(const Tensor& block) const;
    /// Returns the heads of the queries, and of the keys and values in such a block.
    AttentionHeads with_block(const Heads& queries, const Tensor& block) const;

    /// Returns the heads of attention's result, (s/N, b, a width), or of its gradient.
    Heads heads_of_result(const Tensor& y) const;

  private:
    Device& device_;
    Communicator& group_;
    Ring ring_;
    AttentionSizes sizes_;
    TokenDeal deal_;
};

}  // namespace lockstep
