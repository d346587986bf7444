#include "src/parallel/vocabulary_parallel.hpp"

#include "src/comm/expect.hpp"
#include "src/core/require.hpp"
#include "src/nn/embedding.hpp"
#include "src/nn/part.hpp"

namespace lockstep {

namespace {

/// Returns this rank's rows of the table; the last rows may be padding.
Part own_rows(const ParameterInit& init, const TensorParallel& tp,
              std::int64_t vocabulary, std::int64_t width) {
    const Shape whole = table_shape(init, vocabulary, width);
    return stacked_part(whole, {vocabulary}, tp.size(), tp.rank());
}

/// Returns which part of the vocabulary this rank's columns are.
VocabularyShard shard_of_columns(const TensorParallel& tp, const Tensor& logits,
                                 std::int64_t vocabulary, SourceLine at) {
    const std::int64_t columns = logits.shape().columns();
    const int ranks = tp.size();
    require(vocabulary > 0 && columns == (vocabulary + ranks - 1) / ranks, at,
            "vocabulary_parallel_cross_entropy: {} columns of logits on each of {} ranks "
            "do not fit a vocabulary of {}; {} are expected",
            columns, ranks, vocabulary, (vocabulary + ranks - 1) / ranks);
    return {tp.rank() * columns, vocabulary};
}

}  // namespace

VocabularyParallelEmbedding::VocabularyParallelEmbedding(const ParameterInit& init,
                                                         TensorParallel& tp,
                                                         std::int64_t vocabulary,
                                                         std::int64_t width,
                                                         double deviation)
    : tp_(tp),
      device_(init.device),
      weight_(init, "weight", own_rows(init, tp, vocabulary, width)),
      shard_{tp.rank() * weight_.shape()[0], vocabulary} {
    tp.shard(weight_);
    start_normal(weight_, init.seed, deviation);
}

// lesson: vocabulary-parallel
// y[i] (width) = g(table_r[ids[i]], or 0 if another rank holds the row)
Tensor VocabularyParallelEmbedding::do_forward(const Tensor& ids, Saved& saved) {
    declare_same(tp_.group(), ids, "ids for " + weight_.name());
    saved.keep("ids", ids);
    return tp_.leave(device_.embedding(weight_.value, ids, shard_));
}

Tensor VocabularyParallelEmbedding::do_backward_input(const Tensor& dy, Saved& saved) {
    saved.keep("dy", tp_.leave_backward(dy));
    return {};
}

// d_table_r[ids[i]] += dy[i], if this rank holds the row
void VocabularyParallelEmbedding::do_backward_weight(Saved& saved) {
    device_.embedding_backward(weight_.gradient, saved.at("ids"), saved.at("dy"), shard_);
    weight_.accumulated();
}

// loss = weight / N * sum log(sum exp(z - max)) + max - z[target],
// gradient = weight / N * (softmax(z) - one_hot(target)), N rows z
LossResult vocabulary_parallel_cross_entropy(TensorParallel& tp, const Tensor& logits,
                                             const Tensor& targets,
                                             std::int64_t vocabulary, double weight,
                                             SourceLine at) {
    require_rows("vocabulary_parallel_cross_entropy", logits, at);
    require_targets("vocabulary_parallel_cross_entropy", logits, targets, at);
    declare_same(tp.group(), targets, "targets", at);
    Device& device = tp.device();
    const VocabularyShard shard = shard_of_columns(tp, logits, vocabulary, at);
    const double factor = weight / static_cast<double>(logits.shape().matrix_rows());

    const Tensor maximum = device.row_maximum(logits, shard, at);
    tp.group().all_reduce(maximum, Reduction::maximum, at).wait(at);
    const Tensor parts = device.cross_entropy_parts(logits, targets, maximum, shard, at);
    tp.group().all_reduce(parts, Reduction::sum, at).wait(at);

    Tensor loss = device.empty({1}, maximum.dtype(), at);
    device.sum(loss, device.cross_entropy_of_parts(maximum, parts, at),
               /*accumulate=*/false, at);
    device.scale(loss, factor, at);
    return {std::move(loss), device.cross_entropy_backward_of_parts(
                                 logits, targets, maximum, parts, factor, shard, at)};
}
// lesson: end

}  // namespace lockstep
