#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "src/core/require.hpp"
#include "tests/message_of.hpp"

namespace lockstep::test {

/// Returns whether the sentence contains all of these facts.
inline bool tells(const std::string& sentence, const std::vector<std::string>& facts) {
    return std::all_of(facts.begin(), facts.end(), [&](const std::string& fact) {
        return sentence.find(fact) != std::string::npos;
    });
}

/// Returns the message of the UsageError that `action` throws.
template <typename Action>
std::string refusal(Action&& action) {
    return message_of<UsageError>(action);
}

}  // namespace lockstep::test
