#pragma once

#include "src/nn/module.hpp"
#include "src/nn/token_deal.hpp"

namespace lockstep {

/// Looks up row ids[i] of a table for each i, like PyTorch's nn.Embedding. weight is the
/// table, (vocabulary, width).
///
/// ids (…), i32, give y (…, width). Saves the ids and, between the two halves of
/// backward, also dy. Ids have no gradient, so backward returns an empty tensor.
///
/// Initial values are normal with mean 0 and the given deviation: element i of
/// "embedding.weight" is number i of RandomStream(seed, "embedding.weight").
class Embedding : public Module {
  public:
    /// Throws UsageError unless vocabulary and width are positive.
    Embedding(const ParameterInit& init, std::int64_t vocabulary, std::int64_t width,
              double deviation = 1);

    Parameter& weight() { return weight_; }

  private:
    Tensor do_forward(const Tensor& ids, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    std::vector<Parameter*> own_parameters() override { return {&weight_}; }
    bool reads_in_backward(const Parameter& /*own*/) const override { return false; }

    Device& device_;
    Parameter weight_;
};

/// Returns the shape of the table. Throws UsageError unless both sizes are positive.
Shape table_shape(const ParameterInit& init, std::int64_t vocabulary, std::int64_t width);

/// Adds to each token a learnt vector for its position in the sequence: x (s, b, width)
/// gives y[i, j] = x[i, j] + weight[i], of the same shape (Gehring et al. 2017,
/// 1705.03122, section 3.1).
///
/// weight is (context, width) and starts normal with mean 0 and deviation 1. Saves the
/// places, (s, b) i32, and, between the two halves of backward, also dy.
class PositionEmbedding : public Module {
  public:
    /// If ranks shard a sequence, `deal` says which tokens this rank has. If these tokens
    /// are sharded once more, `stretch` says which of these tokens x has. If `given` has
    /// positions, these are used instead of `deal` and `stretch`.
    PositionEmbedding(const ParameterInit& init, std::int64_t context, std::int64_t width,
                      TokenDeal deal = {}, TokenDeal stretch = {},
                      std::shared_ptr<const RowPlaces> given = nullptr);

    Parameter& weight() { return weight_; }

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    std::vector<Parameter*> own_parameters() override { return {&weight_}; }
    bool reads_in_backward(const Parameter& /*own*/) const override { return false; }
    /// Returns the position of each token of x: `given` or, if it is empty, the position
    /// in the sequence, which is computed again only if the shape of x changes.
    Tensor places_of(const Tensor& x, const RowPlaces& given);

    Device& device_;
    Parameter weight_;
    TokenDeal deal_;
    TokenDeal stretch_;
    std::shared_ptr<const RowPlaces> given_;
    Tensor places_;
};

}  // namespace lockstep
