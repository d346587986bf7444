#pragma once

#include <cstdint>
#include <vector>

#include "src/nn/parameter.hpp"

namespace lockstep {

/// The part of a whole matrix that runs over `rows` rows from `from` on, or `columns`
/// columns. A vector counts as a matrix of one column.
Part rows_of(const Shape& whole, std::int64_t from, std::int64_t count);
Part columns_of(const Shape& whole, std::int64_t from);

/// Fills the parameter with numbers, uniform in ±bound or normal with mean 0 and
/// deviation 1: element i of the whole is number i of RandomStream(seed, the parameter's
/// name), so that shards are slices of the whole. Padding becomes 0.
void draw_uniform(const Parameter& parameter, std::uint64_t seed, double bound);
void draw_normal(const Parameter& parameter, std::uint64_t seed);

/// A shard of the whole, and back: `whole` gets what the shard holds. Padding is 0, and
/// left out.
HostTensor shard_of(const HostTensor& whole, const Part& part, const Shape& shape);
void put_shard(HostTensor& whole, const HostTensor& shard, const Part& part);

}  // namespace lockstep
