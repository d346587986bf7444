#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "src/comm/operation.hpp"
#include "src/core/philox.hpp"
#include "src/core/wire.hpp"
#include "src/device/monitor.hpp"

namespace lockstep {

// How enumerations and structs of devices and communicators are sent to another process:
// the last values of enumerations, and the fields of structs (see wire.hpp).

template <>
inline constexpr std::int64_t kLast<Reduction> =
    static_cast<std::int64_t>(Reduction::mean);
template <>
inline constexpr std::int64_t kLast<GeluForm> = static_cast<std::int64_t>(GeluForm::tanh);
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

// A plain struct is sent member by member. The following structs are not plain, or not
// all of their members are sent.

template <typename Line>
void fields(Line& line, RandomPart& part) {
    line(part.offset, part.pitch);
}
template <typename Line>
void fields(Line& line, RandomStream& stream) {
    line(stream.seed, stream.purpose);
}
/// The reader makes a new object with the same tokens.
template <typename Line>
void fields(Line& line, PagedTokensRef& tokens) {
    PagedTokens all = tokens ? *tokens : PagedTokens{};
    line(all);
    tokens = std::make_shared<const PagedTokens>(std::move(all));
}
template <typename Line>
void fields(Line& line, CommOperation& operation) {
    line(operation.verb, operation.reduction, operation.peer, operation.output,
         operation.input, operation.at);
}

}  // namespace lockstep
