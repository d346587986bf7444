#include "src/trial/task.hpp"

#include <limits>

#include "src/core/require.hpp"

namespace lockstep {

const Tensor& TaskInputs::tensor(const std::string& name) const {
    const auto found = tensors.find(name);
    require(found != tensors.end(), "this task is given no tensor '{}'", name);
    return found->second;
}

std::int64_t TaskInputs::number(const std::string& name) const {
    const auto found = numbers.find(name);
    require(found != numbers.end(), "this task is given no number '{}'", name);
    return found->second;
}

int TaskInputs::integer(const std::string& name) const {
    const std::int64_t value = number(name);
    require(value >= std::numeric_limits<int>::min() &&
                value <= std::numeric_limits<int>::max(),
            "the number '{}' is {}, too large", name, value);
    return static_cast<int>(value);
}

}  // namespace lockstep
