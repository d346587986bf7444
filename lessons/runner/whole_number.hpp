#pragma once

#include <charconv>
#include <string>

#include <fmt/format.h>

#include "lessons/runner/utf8.hpp"
#include "src/core/require.hpp"

namespace lockstep::lessons {

/// The value of an option that takes a whole number. Throws UsageError with option, value
/// and range where it is none, or outside.
template <typename Number>
Number whole_number(const std::string& option, const std::string& text, Number least,
                    Number most) {
    Number value{};
    const char* end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    require(error == std::errc{} && stopped == end && value >= least && value <= most,
            "{} {}: a whole number from {} to {} is expected", option, printable(text),
            least, most);
    return value;
}

}  // namespace lockstep::lessons
