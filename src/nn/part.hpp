#pragma once

#include <cstdint>

#include "src/core/part.hpp"
#include "src/nn/parameter.hpp"

namespace lockstep {

/// Sets how the parameter is initialized, and fills it if its value exists; see draw_…
/// below.
void start_uniform(Parameter& parameter, std::uint64_t seed, double bound);
void start_normal(Parameter& parameter, std::uint64_t seed, double deviation = 1);
void start_constant(Parameter& parameter, double value);

/// Fills the parameter with random numbers, uniform in ±bound or normal with mean 0 and
/// that deviation. Element i of the whole is number i of RandomStream(seed, the
/// parameter's name), so shards are slices of the whole. Padding becomes 0.
void draw_uniform(const Parameter& parameter, std::uint64_t seed, double bound);
void draw_normal(const Parameter& parameter, std::uint64_t seed, double deviation = 1);

}  // namespace lockstep
