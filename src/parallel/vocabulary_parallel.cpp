#include "src/parallel/vocabulary_parallel.hpp"

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/nn/part.hpp"

namespace lockstep {

namespace {

/// Rows of a table that each rank holds, the last ones padded.
std::int64_t rows_each(const ParameterInit& init, const TensorParallel& tp,
                       std::int64_t vocabulary, std::int64_t width) {
    require(vocabulary > 0 && width > 0, [&] {
        return fmt::format(
            "{}: an embedding of {} rows and {} columns; both must be "
            "positive",
            init.child("weight").name, vocabulary, width);
    });
    return (vocabulary + tp.size() - 1) / tp.size();
}

}  // namespace

VocabularyParallelEmbedding::VocabularyParallelEmbedding(
    const ParameterInit& init, TensorParallel& tp, std::int64_t vocabulary,
    std::int64_t width)
    : tp_(tp),
      device_(init.device),
      shard_{tp.rank() * rows_each(init, tp, vocabulary, width),
             vocabulary},
      weight_(init, "weight",
              {rows_each(init, tp, vocabulary, width), width},
              rows_of({vocabulary, width}, shard_.first,
                      rows_each(init, tp, vocabulary, width))) {
    draw_normal(weight_, init.seed);
}

// lesson: vocabulary-parallel
// y[i] (width) = g(table_r[ids[i]], or 0 where another rank holds the row)
Tensor VocabularyParallelEmbedding::do_forward(const Tensor& ids,
                                               Saved& saved) {
    saved.keep("ids", ids);
    return tp_.leave(device_.embedding(weight_.value, ids, shard_));
}

Tensor VocabularyParallelEmbedding::do_backward_input(const Tensor& dy,
                                                      Saved& saved) {
    saved.keep("dy", tp_.leave_backward(dy));
    return {};
}

// d_table_r[ids[i]] += dy[i], where this rank holds the row
void VocabularyParallelEmbedding::do_backward_weight(Saved& saved) {
    device_.embedding_backward(weight_.gradient, saved.at("ids"),
                               saved.at("dy"), shard_);
    weight_.accumulated();
}

// loss = weight / N * sum log(sum exp(z - max)) + max - z[target],
// gradient = weight / N * (softmax(z) - one_hot(target)), N rows z
LossResult vocabulary_parallel_cross_entropy(TensorParallel& tp,
                                             const Tensor& logits,
                                             const Tensor& targets,
                                             std::int64_t vocabulary,
                                             double weight, SourceLine at) {
    require_rows("vocabulary_parallel_cross_entropy", logits, at);
    Device& device = tp.device();
    const VocabularyShard shard{tp.rank() * logits.shape().columns(),
                                vocabulary};
    const double factor =
        weight / static_cast<double>(logits.shape().rows());

    const Tensor maximum = device.row_maximum(logits, shard, at);
    tp.group().all_reduce(maximum, Reduction::maximum, at).wait(at);
    const Tensor parts =
        device.cross_entropy_parts(logits, targets, maximum, shard, at);
    tp.group().all_reduce(parts, Reduction::sum, at).wait(at);

    Tensor loss = device.empty({1}, logits.dtype(), at);
    device.sum(loss, device.cross_entropy_of_parts(maximum, parts, at),
               /*accumulate=*/false, at);
    device.scale(loss, factor, at);
    return {std::move(loss),
            device.cross_entropy_backward_of_parts(
                logits, targets, maximum, parts, factor, shard, at)};
}
// lesson: end

}  // namespace lockstep
