#pragma once

#include <string>

namespace lockstep::test {

/// What an exception of type E that `action` throws has to say; a sentence that no test
/// expects where it throws none.
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
