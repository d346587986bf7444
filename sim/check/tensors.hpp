#pragma once

#include <compare>
#include <string>

#include "src/core/bits.hpp"
#include "src/device/device.hpp"
#include "src/device/monitor.hpp"

namespace lockstep::sim {

/// Bytes [begin, end) of a storage.
struct ByteRange {
    std::int64_t begin = 0;
    std::int64_t end = 0;

    static ByteRange of(const Tensor& tensor) {
        return {tensor.offset_bytes(), tensor.offset_bytes() + tensor.bytes()};
    }
    bool empty() const { return begin >= end; }
    bool overlaps(const ByteRange& other) const {
        return begin < other.end && other.begin < end;
    }
    bool contains(const ByteRange& other) const {
        return begin <= other.begin && other.end <= end;
    }
    auto operator<=>(const ByteRange&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Returns whether an optimizer updates a parameter with a gradient.
inline bool is_update(const DeviceOperation& operation) {
    return operation.derivation.kind == Derivation::Kind::update;
}
inline const Tensor& parameter_of(const DeviceOperation& update) {
    return *update.reads[0];
}
inline const Tensor& gradient_of(const DeviceOperation& update) {
    return *update.reads[1];
}

/// "hidden.weight", or "the tensor (3, 4) made at model.cpp:12" if it has no name.
std::string name_of(const Tensor& tensor);

// Watchers read tensors with these functions. The reads cost no time, and other watchers
// do not see them.

inline HostTensor values_of(const Tensor& tensor) {
    return tensor.device()->transfer_to_host(tensor);
}

inline std::uint64_t hash_of(const Tensor& tensor) {
    const HostTensor values = values_of(tensor);
    return hash_of_bits(values.data(), values.bytes());
}

/// Returns whether all elements have the same bits.
bool is_one_number(const HostTensor& values);

/// Returns whether two tensors of one shape differ by more than rounding, which depends
/// on the order of a sum.
bool differ_by_more_than_rounding(const HostTensor& a, const HostTensor& b);

}  // namespace lockstep::sim
