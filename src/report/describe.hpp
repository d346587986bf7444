#pragma once

#include "src/device/options.hpp"
#include "src/nn/char_model.hpp"
#include "src/text/json.hpp"

namespace lockstep {

struct GptSizes;

// How a model is built and trained, as a record's run.json says it (Record::models):
// another program builds the same from this, without a look at a lesson's source.

/// "kind" "gpt", each of its sizes and forms, defaults too, and "parameters", how many
/// numbers they hold.
Json describe(const GptSizes& sizes);
/// "kind" "char_model", its sizes, and "parameters".
Json describe(const CharModelSizes& sizes);
/// "kind" "linear": y = x weight^T + bias.
Json describe_linear(std::int64_t in, std::int64_t out);
/// "kind" "sgd" or "adamw", and each of its numbers, by PyTorch's names. "master" is the
/// dtype of the weights that are updated, where the model's are in 16 bits.
Json describe(const SgdOptions& options, DType dtype);
Json describe(const AdamWOptions& options, DType dtype);

/// Appends how it is trained: `optimizer`, `steps`, and the loss: `kind` "cross_entropy"
/// (in nats) or "mean_squared_error", the mean over all rows of a step, times `factor`.
/// Recorded losses and gradients are of this product.
Json trained(Json model, Json optimizer, const char* loss, double factor, int steps);

}  // namespace lockstep
