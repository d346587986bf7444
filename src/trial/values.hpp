#pragma once

#include <cstdint>
#include <string>

#include "src/core/host_tensor.hpp"

namespace lockstep {

// Values that depend only on a name and a seed, and are the same on every machine.

/// Normal values, with mean 0 and deviation 1.
HostTensor normal_values(Shape shape, const std::string& name, DType dtype = DType::f64,
                         std::uint64_t seed = 1234);
/// Whole numbers from 0 to limit - 1, i32.
HostTensor ids_below(Shape shape, std::int64_t limit, const std::string& name,
                     std::uint64_t seed = 1234);

}  // namespace lockstep
