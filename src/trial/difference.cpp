#include "src/trial/difference.hpp"

#include <algorithm>
#include <cmath>

#include "src/core/require.hpp"
#include "src/report/compare.hpp"

namespace lockstep {

namespace {

TensorDifference compared(const std::string& name, const HostTensor& got,
                          const HostTensor& expected) {
    TensorDifference here = compare_tensor(name, got, expected);
    require(here.problem.empty(), "'{}' cannot be compared with the expected tensor: {}",
            name, here.problem);
    return here;
}

}  // namespace

Difference difference(const NamedTensors& got, const NamedTensors& expected) {
    require(!expected.empty(), "there is no tensor to compare");
    for (const auto& [name, tensor] : got)
        require(expected.contains(name), "'{}' is there, but is not expected", name);
    Difference worst;
    for (const auto& [name, tensor] : expected) {
        const auto found = got.find(name);
        require(found != got.end(), "'{}' is expected, but missing", name);
        const TensorDifference here = compared(name, found->second, tensor);
        if (std::isnan(here.largest_relative))
            return {here.largest_absolute, here.largest_relative, name, here.at};
        worst.absolute = std::max(worst.absolute, here.largest_absolute);
        if (here.largest_relative <= worst.relative) continue;
        worst = {worst.absolute, here.largest_relative, name, here.at};
    }
    return worst;
}

double relative_difference(const HostTensor& got, const HostTensor& expected) {
    return compared("tensor", got, expected).largest_relative;
}

}  // namespace lockstep
