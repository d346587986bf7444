#pragma once

#include <string>
#include <vector>

#include "lessons/page/document.hpp"
#include "lessons/tools/measurements.hpp"
#include "src/cost/cluster_spec.hpp"

namespace lockstep::lessons {

// The output of `lockstep calibrate`.

/// The relative errors |time / measured - 1| of some measurements.
struct Errors {
    int rows = 0;
    double mean = 0;
    double worst = 0;
};

/// A figure of a cluster that was fitted.
struct FittedConstant {
    std::string name;
    double before = 0;
    double after = 0;
};

/// A measurement, and its time on the cluster as it was and as it was fitted.
struct FittedRow {
    Measurement measured;
    double before = 0;  ///< seconds
    double after = 0;
};

struct Calibration {
    ClusterSpec base;
    ClusterSpec fitted;  ///< with its error on rows that were left out, and its source
    std::vector<FittedConstant> constants;
    std::vector<FittedRow> rows;
    /// Each fold was left out once: the constants were fitted to the other folds, and the
    /// fold's times computed with them. Every fifth row is in the same fold.
    std::vector<Errors> folds;
    Errors before, after;
};

/// Fits those figures of `base` that decide the times of the measurements: the efficiency
/// of products and of memory, and the latencies and rates of links. The fit has the least
/// sum of squares of log(time / measured). A figure that no measurement depends on stays.
/// Throws UsageError for a measurement that the cluster cannot have.
Calibration calibrated(const std::vector<Measurement>& measured, const ClusterSpec& base);

/// Shows the constants, the error before and after, fold by fold, and the worst rows.
Document calibration_page(const Calibration& calibration);

std::string calibration_json(const Calibration& calibration);

}  // namespace lockstep::lessons
