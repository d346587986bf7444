#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/require.hpp"
#include "src/text/utf8.hpp"

namespace lockstep {

/// Reads the whole of `text` as a decimal number, "-1.5e3"; a leading plus is allowed.
/// Returns none if it is not a number. "nan" and "inf" are accepted.
std::optional<double> parse_number(std::string_view text);

/// Reads a number as people type it, with spaces around it and commas between thousands:
/// "1,000,000". The result is never NaN or infinite.
std::optional<double> parse_typed_number(std::string_view text);

/// Reads the value of an option that takes a whole number. If the value is not a whole
/// number in the range, throws UsageError that names option, value and range.
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

/// Returns a whole number as "1,234,567", and any other number with four significant
/// digits: "0.0123", "1.5e-7".
std::string number_text(double value);

/// Returns the text without white space at both ends.
std::string_view trimmed(std::string_view text);

/// Reads a whole number, written with digits only, at the front of the text, and removes
/// these digits. Returns false if there are none, or if the number does not fit.
bool take_digits(std::string_view& text, int& number);

/// Returns runs of consecutive numbers, ascending, as "1–3". Repeated numbers count once.
std::vector<std::string> ranges_of(std::vector<int> numbers);
/// "1–3, 8, 10–11".
std::string ranges_text(const std::vector<int>& numbers);

}  // namespace lockstep
