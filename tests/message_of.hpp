#pragma once

#include <string>

namespace lockstep::test {

/// Returns the message of the exception of type E that `action` throws. If nothing is
/// thrown, returns a sentence that no test expects.
template <typename E, typename Action>
std::string message_of(Action&& action) {
    try {
        action();
    } catch (const E& error) {
        return error.what();
    }
    return "(nothing was thrown)";
}

}  // namespace lockstep::test
