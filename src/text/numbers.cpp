#include "src/text/numbers.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/core/units.hpp"

namespace lockstep {

namespace {

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/// Returns whether commas are between thousands: each is followed by exactly three
/// digits, and the first has one to three digits before it.
bool has_thousands(std::string_view text) {
    std::size_t digits = 0;
    bool seen = false;
    for (std::size_t at = text.find_first_of("0123456789,"); at < text.size(); ++at) {
        if (is_digit(text[at])) {
            ++digits;
            continue;
        }
        if (digits == 0 || digits > 3 || (seen && digits != 3)) return false;
        if (text[at] != ',') return seen;
        // "0,714" means 0.714, not 714.
        if (!seen && digits == 1 && text[at - 1] == '0') return false;
        seen = true;
        digits = 0;
    }
    return seen && digits == 3;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kSpace = " \t\r\n";
    const std::size_t begin = text.find_first_not_of(kSpace);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

bool take_digits(std::string_view& text, int& number) {
    if (text.empty() || !is_digit(text.front())) return false;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
}

std::optional<double> parse_number(std::string_view text) {
    if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
    double value = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), value);
    if (end != text.data() + text.size() || text.empty()) return std::nullopt;
    if (error == std::errc::result_out_of_range) {
        // Too large or too small for a double: from_chars does not say which of the two,
        // but the exponent does.
        const bool tiny = text.find("e-") != text.npos || text.find("E-") != text.npos;
        return tiny ? 0 : std::numeric_limits<double>::infinity();
    }
    if (error != std::errc{}) return std::nullopt;
    return value;
}

std::optional<double> parse_typed_number(std::string_view text) {
    std::string digits(trimmed(text));
    if (digits.find(',') != std::string::npos) {
        if (!has_thousands(digits)) return std::nullopt;
        std::erase(digits, ',');
    }
    const std::optional<double> value = parse_number(digits);
    return value && std::isfinite(*value) ? value : std::nullopt;
}

std::string number_text(double value) {
    constexpr double kLargestExact = 1e15;
    if (value == std::floor(value) && std::abs(value) < kLargestExact)
        return count_text(static_cast<std::int64_t>(value));
    std::string text = fmt::format("{:.4g}", value);
    // "1e-05" becomes "1e-5", and "1e+20" becomes "1e20".
    const std::size_t exponent = text.find('e');
    if (exponent == std::string::npos) return text;
    const std::size_t digits = text.find_first_not_of("e+-0", exponent);
    const std::string sign = text[exponent + 1] == '-' ? "-" : "";
    return text.substr(0, exponent + 1) + sign + text.substr(digits);
}

std::vector<std::string> ranges_of(std::vector<int> numbers) {
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    std::vector<std::string> ranges;
    for (std::size_t begin = 0; begin < numbers.size();) {
        std::size_t end = begin + 1;
        while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1)
            ++end;
        ranges.push_back(end - begin == 1
                             ? std::to_string(numbers[begin])
                             : fmt::format("{}–{}", numbers[begin], numbers[end - 1]));
        begin = end;
    }
    return ranges;
}

std::string ranges_text(const std::vector<int>& numbers) {
    return fmt::format("{}", fmt::join(ranges_of(numbers), ", "));
}

}  // namespace lockstep
