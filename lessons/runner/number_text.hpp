#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::lessons {

/// The whole of `text` as a decimal number, "-1.5e3"; a leading plus is allowed. None if
/// it is no number. "nan" and "inf" are read as such.
std::optional<double> parse_number(std::string_view text);

/// The same, as people type it: spaces around it, and commas between thousands,
/// "1,000,000". Never NaN or infinite.
std::optional<double> parse_typed_number(std::string_view text);

/// "1,234,567"; "0.0123" or "1.5e-7", four significant digits, if it is no whole number.
std::string number_text(double value);

std::string_view trimmed(std::string_view text);

}  // namespace lockstep::lessons
