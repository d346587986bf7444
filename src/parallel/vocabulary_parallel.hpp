#pragma once

#include "src/nn/losses.hpp"
#include "src/nn/module.hpp"
#include "src/parallel/tensor_parallel.hpp"

namespace lockstep {

/// An embedding whose table (V, width) is sharded by rows (Shoeybi et al. 2019,
/// 1909.08053, section 3). Rank r looks up the ids whose rows it has and uses zeros for
/// the other ids; g sums the results. If the ranks do not divide the vocabulary, the last
/// rows are padding.
///
/// ids (s, b), i32, give y (s, b, width); with sequence parallelism they give this rank's
/// part of y. Saves the ids. Between the two halves of backward, also saves dy. Initial
/// values are those of an Embedding of the same name.
class VocabularyParallelEmbedding : public Module {
  public:
    VocabularyParallelEmbedding(const ParameterInit& init, TensorParallel& tp,
                                std::int64_t vocabulary, std::int64_t width,
                                double deviation = 1);

    Parameter& weight() { return weight_; }

  private:
    Tensor do_forward(const Tensor& ids, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    std::vector<Parameter*> own_parameters() override { return {&weight_}; }
    bool reads_in_backward(const Parameter& /*own*/) const override { return false; }

    TensorParallel& tp_;
    Device& device_;
    Parameter weight_;
    VocabularyShard shard_;
};

/// cross_entropy_loss of logits with sharded columns. `logits` (…, V/t) are this rank's
/// columns, padded if t does not divide V. `targets` (…), i32, are the same on all ranks.
/// No rank ever holds a whole row. One all-reduce computes each row's largest logit;
/// another computes the sum of exponentials and the target's logit (section 3 of the
/// paper). For N rows each rank sends 6 N (t-1)/t numbers. Throws UsageError unless the
/// ranks' columns together are the vocabulary.
LossResult vocabulary_parallel_cross_entropy(TensorParallel& tp, const Tensor& logits,
                                             const Tensor& targets,
                                             std::int64_t vocabulary, double weight = 1,
                                             SourceLine at = SourceLine::here());

}  // namespace lockstep
