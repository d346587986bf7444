#include "tests/gpu/emulator/reduction.hpp"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "src/core/bf16.hpp"

namespace emulated {

namespace {

template <typename T>
T combine(ncclRedOp_t reduction, T sum, T x) {
    switch (reduction) {
        case ncclProd:
            return static_cast<T>(sum * x);
        case ncclMax:
            return std::max(sum, x);
        case ncclMin:
            return std::min(sum, x);
        default:
            return static_cast<T>(sum + x);
    }
}

template <typename T>
void reduce_as(ncclRedOp_t reduction, const std::vector<const char*>& parts, char* result,
               std::size_t count) {
    const auto part = [&](std::size_t rank) {
        return reinterpret_cast<const T*>(parts[rank]);
    };
    const bool mean = reduction == ncclAvg;
    const T before = mean && !std::is_integral_v<T>
                         ? static_cast<T>(1.0 / static_cast<double>(parts.size()))
                         : static_cast<T>(1.0);
    const T after = mean && std::is_integral_v<T>
                        ? static_cast<T>(static_cast<double>(parts.size()))
                        : static_cast<T>(1.0);
    for (std::size_t i = 0; i < count; ++i) {
        T sum = static_cast<T>(part(0)[i] * before);
        for (std::size_t rank = 1; rank < parts.size(); ++rank)
            sum = combine(reduction, sum, static_cast<T>(part(rank)[i] * before));
        reinterpret_cast<T*>(result)[i] = static_cast<T>(sum / after);
    }
}

}  // namespace

std::size_t bytes_of(ncclDataType_t type) {
    switch (type) {
        case ncclInt8:
        case ncclUint8:
        case ncclFloat8e4m3:
        case ncclFloat8e5m2:
            return 1;
        case ncclFloat16:
        case ncclBfloat16:
            return 2;
        case ncclInt32:
        case ncclUint32:
        case ncclFloat32:
            return 4;
        case ncclInt64:
        case ncclUint64:
        case ncclFloat64:
            return 8;
        case ncclNumTypes:
            return 0;
    }
    return 0;
}

bool can_reduce(ncclDataType_t type) {
    return type <= ncclUint64 || type == ncclFloat32 || type == ncclFloat64 ||
           type == ncclBfloat16;
}

void reduce(ncclDataType_t type, ncclRedOp_t reduction,
            const std::vector<const char*>& parts, char* result, std::size_t count) {
    switch (type) {
        case ncclInt8:
            return reduce_as<std::int8_t>(reduction, parts, result, count);
        case ncclUint8:
            return reduce_as<std::uint8_t>(reduction, parts, result, count);
        case ncclInt32:
            return reduce_as<std::int32_t>(reduction, parts, result, count);
        case ncclUint32:
            return reduce_as<std::uint32_t>(reduction, parts, result, count);
        case ncclInt64:
            return reduce_as<std::int64_t>(reduction, parts, result, count);
        case ncclUint64:
            return reduce_as<std::uint64_t>(reduction, parts, result, count);
        case ncclFloat32:
            return reduce_as<float>(reduction, parts, result, count);
        case ncclFloat64:
            return reduce_as<double>(reduction, parts, result, count);
        case ncclBfloat16:
            return reduce_as<lockstep::Bf16>(reduction, parts, result, count);
        default:
            return;
    }
}

}  // namespace emulated
