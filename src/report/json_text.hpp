#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// The text as a JSON string with its quotes; bytes that are no UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

/// The number as JSON text from which the same double is read back. JSON has no word for
/// what is not finite, so that becomes a string: "NaN", "Infinity", "-Infinity".
std::string json_number(double value);

bool is_utf8(std::string_view text);

}  // namespace lockstep
