#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "sim/check/origin.hpp"
#include "src/device/monitor.hpp"

namespace lockstep::sim {

/// Rows of which one call of a loss's backward made the gradient.
struct LossRows {
    int rank;
    int micro_batch;  ///< -1 where there is none
    const char* operation;
    SourceLine at;
    double factor;  ///< of each row (of each element, where errors are squared)
    Shape shape;    ///< of the prediction
    bool squared;
    std::int64_t bytes;     ///< of the gradient
    std::uint64_t content;  ///< of prediction and target: replicas have the same

    std::int64_t rows() const { return shape.rows(); }
    std::int64_t elements() const { return shape.elements(); }
};

/// What was done to a gradient since backward.
struct GradientStep {
    Origin reduction;  ///< a sum or mean over ranks; none is a scaling
    double factor = 1;
    SourceLine at;

    bool operator==(const GradientStep& other) const {
        return reduction == other.reduction && factor == other.factor &&
               (reduction || at == other.at);
    }
};

/// What a value is the gradient of: the sum of factor times loss over rows, and what was
/// done since. Backward is linear, so that all that it makes of a loss's gradient has its
/// rows. No rows at all are zeros.
struct RowWeights {
    std::vector<std::shared_ptr<const LossRows>> losses;
    std::vector<GradientStep> steps;
    bool is_loss_gradient = false;  ///< nothing else was made of it yet

    bool zero() const { return losses.empty(); }
    /// What all factors were multiplied by since.
    double multiplier() const;
};
using Weights = std::shared_ptr<const RowWeights>;

/// Of the sum of two values of one rank, where it can be told; else null. Both may be of
/// the same rows, by different paths through the model.
Weights sum_of(const Weights& one, const Weights& other);
/// Of the sum over ranks of values: null where two have the same rows, since then nobody
/// knows whether they are replicas or parts of one whole.
Weights reduction_of(const std::vector<Weights>& members, const Origin& origin);

/// What is wrong with a gradient of known rows that a parameter is updated with: averaged
/// wrongly (F21), or a mean of unequal means (F28). Only what one such mistake explains
/// exactly; nothing where a row has weight 1, or all rows have one weight and make 1.
///
/// `group_sizes` are those of the communicators that this rank is in.
std::optional<Diagnosis> explain_weights(const RowWeights& gradient,
                                         const DeviceOperation& update,
                                         const std::vector<int>& group_sizes);

}  // namespace lockstep::sim
