#pragma once

#include <cstdint>
#include <limits>

#include "src/comm/operation.hpp"
#include "src/core/philox.hpp"
#include "src/device/monitor.hpp"

namespace lockstep::lessons {

// Enumerations and structs on the line: their last values, and their fields.

/// The last of an enumeration's values, which begin at 0.
template <typename Enum>
inline constexpr std::int64_t kLast = -1;
template <>
inline constexpr std::int64_t kLast<DType> = static_cast<std::int64_t>(DType::bf16);
template <>
inline constexpr std::int64_t kLast<Reduction> =
    static_cast<std::int64_t>(Reduction::mean);
template <>
inline constexpr std::int64_t kLast<TokenOrder> =
    static_cast<std::int64_t>(TokenOrder::zigzag);
template <>
inline constexpr std::int64_t kLast<Verb> = static_cast<std::int64_t>(kVerbs) - 1;
template <>
inline constexpr std::int64_t kLast<Phase> = static_cast<std::int64_t>(Phase::update);
template <>
inline constexpr std::int64_t kLast<OperationKind> =
    static_cast<std::int64_t>(kOperations) - 1;
template <>
inline constexpr std::int64_t kLast<MemoryCategory> = kMemoryCategories - 1;

// A struct that is plain data goes over the line member by member. These are not, or not
// all of them goes.

template <typename Line>
void fields(Line& line, RandomPart& part) {
    line(part.offset, part.pitch);
}
template <typename Line>
void fields(Line& line, RandomStream& stream) {
    line(stream.seed, stream.purpose);
}
template <typename Line>
void fields(Line& line, CommOperation& operation) {
    line(operation.verb, operation.reduction, operation.peer, operation.output,
         operation.input, operation.at);
}

}  // namespace lockstep::lessons
