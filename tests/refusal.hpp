// For tests of messages about a caller's mistake.
#pragma once

#include <string>

#include "src/core/require.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

/// Matches a sentence that contains `part`; a matcher that Catch2 v2 and v3 both have.
inline auto says(const std::string& part) {
    return Catch::Matchers::Predicate<std::string>(
        [part](const std::string& sentence) {
            return sentence.find(part) != std::string::npos;
        },
        "contains \"" + part + "\"");
}

/// Returns the message of the UsageError that `call` throws.
template <typename Call>
std::string refusal(Call&& call) {
    try {
        call();
    } catch (const UsageError& error) {
        return error.what();
    }
    return "nothing was refused";
}

}  // namespace lockstep::test
