#pragma once

// Parts of C++20's library that Lockstep uses and that old versions of libc++ lack.
// Debian 12 and Ubuntu 24.04 have emscripten 3.1.6 with libc++ 13. compile_module.py
// includes this file before all others. With a newer libc++, this file is empty.

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <ranges>
#include <string>
#include <utility>

// NOLINTBEGIN(cert-dcl58-cpp,readability-identifier-naming): the library's own names

// Versions before 16 have five digits (15.0.7 is 15007), later ones have six (16.0.6 is
// 160006).
#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 15000

namespace std::ranges {

// Each function calls the algorithm of the same name that takes two iterators.

template <typename Range, typename Value, typename Projection = identity>
constexpr auto find(Range&& range, const Value& value, Projection projection = {}) {
    return std::find_if(ranges::begin(range), ranges::end(range), [&](auto&& each) {
        return std::invoke(projection, each) == value;
    });
}

template <typename Range, typename Test, typename Projection = identity>
constexpr auto find_if(Range&& range, Test test, Projection projection = {}) {
    return std::find_if(ranges::begin(range), ranges::end(range), [&](auto&& each) {
        return std::invoke(test, std::invoke(projection, each));
    });
}

template <typename Range, typename Test>
constexpr auto find_if_not(Range&& range, Test test) {
    return std::find_if_not(ranges::begin(range), ranges::end(range), test);
}

template <typename Range, typename Test, typename Projection = identity>
constexpr bool any_of(Range&& range, Test test, Projection projection = {}) {
    return ranges::find_if(range, test, projection) != ranges::end(range);
}

template <typename Range, typename Test>
constexpr bool all_of(Range&& range, Test test) {
    return std::all_of(ranges::begin(range), ranges::end(range), test);
}

template <typename Range, typename Value>
constexpr auto count(Range&& range, const Value& value) {
    return std::count(ranges::begin(range), ranges::end(range), value);
}

template <typename Range, typename Test>
constexpr auto count_if(Range&& range, Test test) {
    return std::count_if(ranges::begin(range), ranges::end(range), test);
}

template <typename Range>
constexpr void reverse(Range&& range) {
    std::reverse(ranges::begin(range), ranges::end(range));
}

template <typename Range, typename Order = std::less<>, typename Projection = identity>
constexpr void sort(Range&& range, Order order = {}, Projection projection = {}) {
    std::sort(ranges::begin(range), ranges::end(range), [&](auto&& a, auto&& b) {
        return std::invoke(order, std::invoke(projection, a), std::invoke(projection, b));
    });
}

template <typename Range, typename Value, typename Order = std::less<>,
          typename Projection = identity>
constexpr auto upper_bound(Range&& range, const Value& value, Order order = {},
                           Projection projection = {}) {
    return std::upper_bound(ranges::begin(range), ranges::end(range), value,
                            [&](const auto& wanted, auto&& each) {
                                return order(wanted, std::invoke(projection, each));
                            });
}

template <typename Range, typename Value>
constexpr void fill(Range&& range, const Value& value) {
    std::fill(ranges::begin(range), ranges::end(range), value);
}

template <typename Range, typename Out>
constexpr auto copy(Range&& range, Out out) {
    return std::copy(ranges::begin(range), ranges::end(range), out);
}

template <typename Range, typename Other>
constexpr bool equal(Range&& range, Other&& other) {
    return std::equal(ranges::begin(range), ranges::end(range), ranges::begin(other),
                      ranges::end(other));
}

}  // namespace std::ranges

#endif

#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 170000

namespace std::ranges {

template <typename Range, typename Other>
constexpr bool is_permutation(Range&& range, Other&& other) {
    return std::is_permutation(ranges::begin(range), ranges::end(range),
                               ranges::begin(other), ranges::end(other));
}

}  // namespace std::ranges

#endif

#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 200000

namespace std {

/// Reads a decimal number as from_chars does: it does not accept spaces, plus signs or
/// hexadecimal digits.
inline from_chars_result from_chars(const char* first, const char* last, double& value) {
    const char* digits = first != last && *first == '-' ? first + 1 : first;
    const bool is_word = last - digits >= 3 && (*digits | 0x20) > '9';  // nan, inf
    const bool is_digit = digits != last && ((*digits >= '0' && *digits <= '9') ||
                                             (*digits == '.' && last - digits > 1));
    if (!is_word && !is_digit) return {first, errc::invalid_argument};
    if (last - digits > 1 && *digits == '0' && (digits[1] | 0x20) == 'x')
        last = digits + 1;
    const string text(first, last);
    char* end = nullptr;
    errno = 0;
    const double read = strtod(text.c_str(), &end);
    if (end == text.c_str()) return {first, errc::invalid_argument};
    const char* stopped = first + (end - text.c_str());
    if (errno == ERANGE) return {stopped, errc::result_out_of_range};
    value = read;
    return {stopped, errc()};
}

}  // namespace std

#endif

// NOLINTEND(cert-dcl58-cpp,readability-identifier-naming)
