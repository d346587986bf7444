#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/report/safetensors.hpp"

namespace lockstep {

/// One tensor of two records. The relative difference is the largest absolute difference
/// over the largest finite absolute value of the tensor in either record.
struct TensorDifference {
    std::string name;
    Shape shape;
    std::string problem;  ///< "only in A", "shapes (2, 3) and (3, 2)"; else empty
    double largest_absolute = 0;
    double largest_relative = 0;
    std::int64_t at = -1;  ///< row-major index of the largest absolute difference
    double a = 0;          ///< the two values there
    double b = 0;
    double bound = 0;  ///< on the relative difference; 0 asks for the same bits
    bool passed = false;
};

/// An option that two runs had different values of, which keeps their tensors from being
/// comparable.
struct OptionDifference {
    std::string name;  ///< "lesson", "ranks", "dtype" or "seed"
    std::string a;
    std::string b;
};

struct Comparison {
    std::vector<TensorDifference> tensors;
    std::vector<OptionDifference> differs;  ///< of the runs, where records are compared

    /// All tensors did, and there was one: comparing nothing shows nothing.
    bool passed() const;
    /// Returns what the runs differ in, if anything, a table, the failed tensors first,
    /// and a summary line.
    std::string text() const;
    std::string json() const;
};

/// How far apart two orders of the same sum may end, relative to its largest result:
/// 8 √K ε, with K the length of the sum and ε the distance from 1 to the next number of
/// the dtype. Rounding errors of a sum add up like a random walk, so the difference of
/// two orders has a deviation of about 0.4 √K ε; the rest is for sums whose terms cancel.
/// bf16's sums are f32's, rounded once: any K counts as 1. 0 for integers.
double sum_bound(DType dtype, std::int64_t length);

/// Compares two tensors, without a bound: `passed` is open.
TensorDifference compare_tensor(const std::string& name, const HostTensor& a,
                                const HostTensor& b);

/// `bound` on the relative difference of every floating tensor; none takes sum_bound of
/// each tensor's dtype, the less precise of the two, and length 1. Integers must be
/// equal. Equal infinities are equal; a NaN anywhere fails, on both sides too.
Comparison compare_tensors(const NamedTensors& a, const NamedTensors& b,
                           std::optional<double> bound);

/// Compares the outputs of two run directories. The bound, unless given, is sum_bound of
/// the least precise dtype of tensors and runs and of the longer `sum_length` of the two
/// run.json. A folder that is not there or holds no record throws UsageError with one
/// sentence.
Comparison compare_records(const std::filesystem::path& a, const std::filesystem::path& b,
                           std::optional<double> bound);

}  // namespace lockstep
