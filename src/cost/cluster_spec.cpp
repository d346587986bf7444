#include "src/cost/cluster_spec.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

double ClusterSpec::flops(DType dtype) const {
    switch (dtype) {
        case DType::f32:
        case DType::i32:
            return flops_f32;
        case DType::f64:
            return flops_f64;
        case DType::bf16:
            return flops_bf16;
    }
    return 0;
}

namespace {

Picoseconds time_at_rate(std::int64_t amount, double per_second) {
    return per_second > 0 ? picoseconds(static_cast<double>(amount) / per_second) : 0;
}

}  // namespace

Picoseconds message_time(const LinkSpec& link, std::int64_t bytes) {
    return picoseconds(link.alpha_seconds) + time_at_rate(bytes, link.bytes_per_second);
}

Picoseconds operation_time(const ClusterSpec& spec, std::int64_t flops,
                           std::int64_t bytes, DType dtype) {
    return picoseconds(spec.launch_seconds) +
           std::max(time_at_rate(flops, spec.flops(dtype)),
                    time_at_rate(bytes, spec.memory_bytes_per_second));
}

}  // namespace lockstep
