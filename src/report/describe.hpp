#pragma once

#include "src/device/options.hpp"
#include "src/nn/char_model.hpp"
#include "src/text/json.hpp"

namespace lockstep {

struct GptSizes;

// How a model is built and trained, for a record's run.json (Record::models). Another
// program can build the same model from this, without reading a lesson's source.

/// Returns "kind" ("gpt"), sizes and forms, defaults too, and the number of "parameters".
Json describe(const GptSizes& sizes);
/// Returns "kind" ("char_model"), the sizes, and the number of "parameters".
Json describe(const CharModelSizes& sizes);
/// Returns "kind" ("linear"): y = x weight^T + bias.
Json describe_linear(std::int64_t in, std::int64_t out);
/// Returns "kind" ("sgd" or "adamw"), and all options under PyTorch's names. "master" is
/// the dtype of the weights that are updated, if the model's weights are in 16 bits.
Json describe(const SgdOptions& options, DType dtype);
Json describe(const AdamWOptions& options, DType dtype);

/// Appends how the model is trained: `optimizer`, `steps` and `loss`. The loss's `kind`
/// is "cross_entropy" (in nats) or "mean_squared_error". The loss is the mean over all
/// rows of a step, times `factor`; recorded losses and gradients belong to this product.
Json trained(Json model, Json optimizer, const char* loss, double factor, int steps);

}  // namespace lockstep
