#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "lessons/page/language.hpp"
#include "src/core/units.hpp"

namespace lockstep::lessons {

/// The kind of a number. It determines how the number is written.
enum class Unit {
    number,    ///< 25,647; 0.0123
    bytes,     ///< 153,884 bytes
    memory,    ///< 150 KiB
    time,      ///< 45.4 us; the value is in picoseconds
    seconds,   ///< 12 s
    percent,   ///< 27.3 %; the value is in hundredths
    decimals,  ///< 3.3566, with `digits` digits
    power,     ///< 1.4e-1
};

/// Returns a unit's name: "bytes".
std::string_view name_of(Unit unit);
/// Returns the unit with this name. Throws UsageError if there is none.
Unit unit_called(std::string_view name);

struct Figure {
    double value = 0;
    Unit unit = Unit::number;
    int digits = 0;  ///< digits after the decimal point, for decimals and percent

    template <typename Number>
    static Figure count(Number number) {
        return {static_cast<double>(number), Unit::number};
    }
    static Figure bytes(std::int64_t bytes) {
        return {static_cast<double>(bytes), Unit::bytes};
    }
    static Figure memory(std::int64_t bytes) {
        return {static_cast<double>(bytes), Unit::memory};
    }
    static Figure time(Picoseconds time) {
        return {static_cast<double>(time), Unit::time};
    }
    static Figure seconds(double seconds) { return {seconds, Unit::seconds}; }
    static Figure percent(double hundredths, int digits = 0) {
        return {hundredths, Unit::percent, digits};
    }
    /// Returns a quotient as a percentage: "25 %", "27.3 %".
    static Figure part(double numerator, double denominator) {
        const double hundredths = 100 * numerator / denominator;
        return percent(hundredths, hundredths == std::floor(hundredths) ? 0 : 1);
    }
    static Figure decimals(double value, int digits) {
        return {value, Unit::decimals, digits};
    }
    static Figure power(double value) { return {value, Unit::power}; }
};

/// Returns the quotient.
template <typename Numerator, typename Denominator>
double ratio(Numerator numerator, Denominator denominator) {
    return static_cast<double>(numerator) / static_cast<double>(denominator);
}

/// Returns "153,884 bytes", "45.4 us", "27.3 %".
std::string text_of(const Figure& figure, Language language = Language::english);

}  // namespace lockstep::lessons
