#pragma once

#include <cstdint>

#include "src/core/part.hpp"
#include "src/nn/parameter.hpp"

namespace lockstep {

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

}  // namespace lockstep
