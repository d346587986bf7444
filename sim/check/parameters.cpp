#include "sim/check/parameters.hpp"

#include <fmt/format.h>

namespace lockstep::sim {

std::string name_of(const Tensor& tensor) {
    if (!tensor.label().empty()) return tensor.label();
    const Storage& storage = *tensor.storage();
    const char* const part = tensor.bytes() < storage.bytes ? "part of the" : "the";
    return fmt::format("{} tensor {} made at {}", part, tensor.shape().text(),
                       storage.allocated_at.text());
}

}  // namespace lockstep::sim
