#include "sim/check/tensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

namespace lockstep::sim {

std::string name_of(const Tensor& tensor) {
    if (!tensor.label().empty()) return tensor.label();
    const Storage& storage = *tensor.storage();
    const char* const part = tensor.bytes() < storage.bytes ? "part of the" : "the";
    return fmt::format("{} tensor {} made at {}", part, tensor.shape().text(),
                       storage.allocated_at.text());
}

bool is_one_number(const HostTensor& values) {
    const auto each = static_cast<std::size_t>(bytes_of(values.dtype()));
    for (std::int64_t i = 1; i < values.elements(); ++i)
        if (std::memcmp(values.data(),
                        values.data() + i * static_cast<std::int64_t>(each), each) != 0)
            return false;
    return true;
}

bool differ_by_more_than_rounding(const HostTensor& a, const HostTensor& b) {
    constexpr double kRounding = 1e-3;
    double largest = 0;
    double difference = 0;
    for (std::int64_t i = 0; i < a.elements(); ++i) {
        largest = std::max({largest, std::abs(a.at(i)), std::abs(b.at(i))});
        difference = std::max(difference, std::abs(a.at(i) - b.at(i)));
    }
    return difference > kRounding * largest;
}

}  // namespace lockstep::sim
