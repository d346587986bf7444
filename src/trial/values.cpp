#include "src/trial/values.hpp"

#include <cmath>

#include "src/core/philox.hpp"

namespace lockstep {

HostTensor normal_values(Shape shape, const std::string& name, DType dtype,
                         std::uint64_t seed) {
    HostTensor tensor(shape, dtype);
    const RandomStream stream(seed, name);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
        tensor.set(i, stream.normal(static_cast<std::uint64_t>(i)));
    return tensor;
}

HostTensor ids_below(Shape shape, std::int64_t limit, const std::string& name,
                     std::uint64_t seed) {
    HostTensor tensor(shape, DType::i32);
    const RandomStream stream(seed, name);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
        tensor.set(i, std::floor(stream.uniform(static_cast<std::uint64_t>(i)) *
                                 static_cast<double>(limit)));
    return tensor;
}

}  // namespace lockstep
