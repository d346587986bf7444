#pragma once

#include "src/nn/flash_attention.hpp"
#include "src/nn/token_deal.hpp"
#include "src/parallel/ring.hpp"

namespace lockstep {

/// All attentions have this in common if ranks share out the tokens of each
/// sequence. Attention alone has to see tokens of other ranks: all else in
/// a transformer looks at one token at a time.
///
/// x (s/N, b, (a + 2 g) width) holds queries, keys and values of this rank's tokens; y is
/// (s/N, b, a width). All ranks of the group call it with as many tokens. Heads are up to
/// Device::kMostHeadWidth wide, but for Ring Self-Attention. Device and group must stay.
class ContextAttention : public Module {
  public:
    /// Throws UsageError for heads that do not fit each other.
    ContextAttention(Device& device, Communicator& group, const AttentionSizes& sizes,
                     TokenOrder order = TokenOrder::contiguous);

  protected:
    Device& device() const { return device_; }
    Communicator& group() const { return group_; }
    const Ring& ring() const { return ring_; }
    const AttentionSizes& sizes() const { return sizes_; }
    const TokenDeal& deal() const { return deal_; }

    /// Options for own queries that see the keys of one rank, or of all.
    AttentionOptions seeing_rank(const Heads& queries, int rank) const;
    AttentionOptions seeing_all(const Heads& queries) const;

    /// Own keys and values side by side, to travel together: (s/N, b, 2 g
    /// width). What arrives of them is written to the same columns of x's
    /// gradient by put_keys_and_values.
    Tensor keys_and_values(const Tensor& x) const;
    void put_keys_and_values(const Tensor& dx, const Tensor& block) const;
    /// Zeros of its shape, to add gradients up in.
    Tensor zero_block(const Tensor& block) const;
    /// Queries, with the keys and values of such a block.
    AttentionHeads with_block(const Heads& queries, const Tensor& block) const;

    /// All of what attention gives, (s/N, b, a width), or its gradient.
    Heads heads_of_result(const Tensor& y) const;

  private:
    Device& device_;
    Communicator& group_;
    Ring ring_;
    AttentionSizes sizes_;
    TokenDeal deal_;
};

}  // namespace lockstep
