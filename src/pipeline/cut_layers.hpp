#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// Layers [first, last) of a model.
struct LayerRange {
    int first = 0;
    int last = 0;
    bool operator==(const LayerRange&) const = default;
};

/// Cuts layers, which cost that much each, into so many parts of neighbours
/// that the dearest part is as cheap as can be, and then the others as
/// even. Each part has a layer at least. Exact, by dynamic programming: n^2
/// parts steps. Throws UsageError where there are more parts than layers,
/// or a cost is negative.
std::vector<LayerRange> cut_layers(const std::vector<std::int64_t>& costs,
                                   int parts);

}  // namespace lockstep
