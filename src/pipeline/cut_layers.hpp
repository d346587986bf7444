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

/// Cuts n layers, which cost that much each, into so many parts of
/// neighbours that the dearest part is as cheap as can be, and then the
/// others as even (by their squares, as far as a double holds them). Each
/// part has a layer at least. By dynamic programming, in n * n * parts
/// steps; the dearest part's cost is exact up to 2^53. Throws UsageError if
/// there are more parts than layers, or a cost is negative.
std::vector<LayerRange> cut_layers(const std::vector<std::int64_t>& costs,
                                   int parts);

}  // namespace lockstep
