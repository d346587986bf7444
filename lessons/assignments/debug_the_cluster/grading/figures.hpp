#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::lessons {

/// A figure of a run of one of the six programs, and what a mended one may have. Bytes
/// and memory by formula, time as a short right program takes it on the same devices.
struct Figure {
    enum class Of : std::uint8_t { bytes, messages, peak, time };
    static constexpr int kAllRanks = -1;

    Of of = Of::bytes;
    int rank = kAllRanks;
    std::int64_t least = 0;
    std::int64_t most = 0;
    /// Typical mistakes have these, and a sentence says which.
    std::vector<std::pair<std::int64_t, std::string>> as_if{};
};

using Figures = std::vector<Figure>;

struct FilterSizes {
    int ranks = 1, steps = 1;
    int empty_steps = 0;  ///< in which no rank has a document
    std::int64_t in = 1, out = 1;
};
Figures filter_figures(const FilterSizes& sizes);

struct PipelineSizes {
    int ranks = 1, micro_batches = 1;
    std::int64_t rows = 1, width = 1;
};
Figures pipeline_figures(const PipelineSizes& sizes);

struct PrefetchSizes {
    int ranks = 1, layers = 1;
    std::int64_t rows = 1, part = 1;  ///< of a layer's width, on each rank
    std::int64_t width() const { return part * ranks; }
};
Figures prefetch_figures(const PrefetchSizes& sizes);

/// Returns those of evaluate and of clip: ranks sum up one number, and may sum up
/// another.
Figures sum_figures(int ranks);

struct AccumulateSizes {
    int ranks = 1, micro_batches = 1;
    std::int64_t rows = 1, in = 1, hidden = 1, out = 1;
};
Figures accumulate_figures(const AccumulateSizes& sizes);

}  // namespace lockstep::lessons
