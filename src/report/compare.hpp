#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/report/safetensors.hpp"

namespace lockstep {

/// One tensor of two records. The relative difference is the largest absolute difference,
/// divided by the tensor's largest finite absolute value in either record.
struct TensorDifference {
    std::string name;
    Shape shape;
    std::string problem;  ///< "only in A", "shapes (2, 3) and (3, 2)"; else empty
    double largest_absolute = 0;
    double largest_relative = 0;
    std::int64_t at = -1;  ///< row-major index of the largest absolute difference
    double a = 0;          ///< the two values there
    double b = 0;
    double bound = 0;  ///< limit of largest_relative; 0: the same bits are required
    bool passed = false;
};

/// An option with different values in two runs, so their tensors may not be comparable.
struct OptionDifference {
    std::string name;  ///< "lesson", "ranks", "dtype" or "seed"
    std::string a;
    std::string b;
};

struct Comparison {
    std::vector<TensorDifference> tensors;
    std::vector<OptionDifference> differs;  ///< between runs, if records are compared

    /// Returns whether all tensors passed. Returns false if there is no tensor.
    bool passed() const;
    /// Returns the differences of the runs (if any), a table with the failed tensors
    /// first, and a summary line.
    std::string text() const;
    std::string json() const;
};

/// Returns a bound on the difference between two results of a sum whose terms are added
/// in different orders, relative to the largest result: 8 √K ε. K is the length of the
/// sum, and ε the distance from 1 to the next number of the dtype. Rounding errors of a
/// sum add up like a random walk, so the difference has a standard deviation of about 0.4
/// √K ε. The rest of the bound is for sums whose terms cancel. Sums of bf16 are computed
/// in f32 and rounded once, so for bf16 any K counts as 1. For integers the bound is 0.
double sum_bound(DType dtype, std::int64_t length);

/// Compares two tensors without a bound; does not set `passed`.
TensorDifference compare_tensor(const std::string& name, const HostTensor& a,
                                const HostTensor& b);

/// Compares tensors by name. `bound` limits the relative difference of every floating
/// tensor. Without `bound`, the limit is sum_bound() for length 1 and the less precise of
/// the two tensors' dtypes. Integers must be equal. Equal infinities are equal. A NaN
/// fails, even if it is on both sides.
Comparison compare_tensors(const NamedTensors& a, const NamedTensors& b,
                           std::optional<double> bound);

/// Compares the outputs of two run directories. Without a bound, the limit is sum_bound()
/// for the least precise dtype of the two tensors and the two runs, and for the larger
/// `sum_length` in the two run.json files. Throws UsageError with one sentence if a
/// folder does not exist or has no record.
Comparison compare_records(const std::filesystem::path& a, const std::filesystem::path& b,
                           std::optional<double> bound);

}  // namespace lockstep
