#pragma once

#include <cstdint>

#include "src/nn/parameter.hpp"

namespace lockstep {

// A vector counts as a matrix of one column.

/// Rows [from, from + count) of a whole matrix; those beyond its end are padding.
Part row_part(const Shape& whole, std::int64_t from, std::int64_t count);
/// Columns [from, from + count).
Part column_part(const Shape& whole, std::int64_t from, std::int64_t count);
/// Layers of so many rows each lie one below the other in the whole, and are all of it.
/// The part holds a share of the rows of each: share `index` of `parts` equal ones. The
/// last ones are padded if `parts` does not divide a layer's rows.
Part stacked_part(const Shape& whole, const std::vector<std::int64_t>& layers, int parts,
                  int index);

/// Returns whether the part is the whole.
bool holds_all(const Part& part);

/// Says that the parameter begins so, and fills it if its value is there; see draw_…
/// below.
void start_uniform(Parameter& parameter, std::uint64_t seed, double bound);
void start_normal(Parameter& parameter, std::uint64_t seed, double deviation = 1);
void start_constant(Parameter& parameter, double value);

/// Fills the parameter with numbers, uniform in ±bound or normal with mean 0 and that
/// deviation: element i of the whole is number i of RandomStream(seed, the parameter's
/// name), so that shards are slices of the whole. Padding becomes 0.
void draw_uniform(const Parameter& parameter, std::uint64_t seed, double bound);
void draw_normal(const Parameter& parameter, std::uint64_t seed, double deviation = 1);

/// A shard of the whole, and back: `whole` gets what the shard holds. Padding is 0, and
/// left out.
HostTensor shard_of(const HostTensor& whole, const Part& part);
void put_shard(HostTensor& whole, const HostTensor& shard, const Part& part);

}  // namespace lockstep
