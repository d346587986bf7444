#pragma once

#include "src/core/bits.hpp"
#include "src/device/device.hpp"

namespace lockstep::sim {

// What a tensor holds, for a watcher: neither charged nor seen by other watchers.

inline HostTensor values_of(const Tensor& tensor) {
    return tensor.device()->transfer_to_host(tensor);
}

inline std::uint64_t hash_of(const Tensor& tensor) {
    const HostTensor values = values_of(tensor);
    return hash_of_bits(values.data(), values.bytes());
}

/// Sums made in another order differ by little; parts of a sum differ. Two of one shape.
bool differ_by_more_than_rounding(const HostTensor& a, const HostTensor& b);

}  // namespace lockstep::sim
