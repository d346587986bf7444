#include "src/pipeline/written_times.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/text/numbers.hpp"
#include "src/text/utf8.hpp"

namespace lockstep {

namespace {

struct NamedTime {
    const char* name;
    WrittenTimes::Amounts WrittenTimes::*written;
    Picoseconds Durations::*ticks;
    bool of_work;  ///< whether it is a computation's time
};

constexpr std::array kTimes{
    NamedTime{"forward", &WrittenTimes::forward, &Durations::forward, true},
    NamedTime{"backward_input", &WrittenTimes::backward_input, &Durations::backward_input,
              true},
    NamedTime{"backward_weight", &WrittenTimes::backward_weight,
              &Durations::backward_weight, true},
    NamedTime{"recompute", &WrittenTimes::recompute, &Durations::recompute, true},
    NamedTime{"overlapped", &WrittenTimes::overlapped, &Durations::overlapped, true},
    NamedTime{"message", &WrittenTimes::message, &Durations::message, false},
    NamedTime{"reduce", &WrittenTimes::reduce, &Durations::reduce, false},
    NamedTime{"update", &WrittenTimes::update, &Durations::update, false}};

}  // namespace

WrittenTimes::Amounts* WrittenTimes::named(std::string_view name) {
    for (const NamedTime& each : kTimes)
        if (name == each.name) return &(this->*each.written);
    return nullptr;
}

const std::vector<std::string>& WrittenTimes::names() {
    static const std::vector<std::string> all = [] {
        std::vector<std::string> list;
        list.reserve(kTimes.size());
        for (const NamedTime& each : kTimes)
            list.emplace_back(each.name);
        return list;
    }();
    return all;
}

bool WrittenTimes::has_lists() const {
    return std::ranges::any_of(
        kTimes, [&](const NamedTime& each) { return (this->*each.written).size() > 1; });
}

namespace {

/// Returns the largest number of amounts that a time has. Throws UsageError if a time has
/// neither one nor `expected` amounts.
std::size_t entries_of(const WrittenTimes& written, std::size_t expected) {
    const char* unit = written.by_part ? "part" : "stage";
    std::size_t entries = 1;
    for (const NamedTime& each : kTimes) {
        const std::size_t count = (written.*each.written).size();
        const bool unsaid = count == 0 && each.written == &WrittenTimes::overlapped;
        require(count == 1 || count == expected || unsaid,
                "{} has {} numbers; one for all {}s, or {}, one per {}, are expected",
                each.name, count, unit, expected, unit);
        entries = std::max(entries, count);
    }
    return entries;
}

/// Returns the largest number that divides all amounts and `unit`.
std::int64_t common_measure(const WrittenTimes& written, std::int64_t unit, int divisor) {
    for (const NamedTime& each : kTimes)
        for (const std::int64_t amount : written.*each.written)
            unit = std::gcd(unit, each.of_work ? amount : amount * divisor);
    for (const auto& [stages, amount] : written.links)
        unit = std::gcd(unit, amount * divisor);
    return unit;
}

}  // namespace

TickedTimes ticked(const WrittenTimes& written, const Schedule& schedule, int divisor) {
    const int expected = written.by_part ? schedule.part_count() : schedule.stages;
    const std::size_t entries = entries_of(written, static_cast<std::size_t>(expected));
    // The unit is a billionth divided by `divisor`, so that the time of one part is a
    // whole number.
    const std::int64_t unit = WrittenTimes::kUnit * divisor;
    const std::int64_t common = common_measure(written, unit, divisor);
    TickedTimes made;
    made.times.by_part = entries > 1 && written.by_part;
    made.times.each.resize(entries);
    for (const NamedTime& each : kTimes) {
        const WrittenTimes::Amounts& amounts = written.*each.written;
        for (std::size_t i = 0; i < entries && !amounts.empty(); ++i) {
            const std::int64_t amount = amounts[amounts.size() == 1 ? 0 : i];
            made.times.each[i].*each.ticks =
                (each.of_work ? amount : amount * divisor) / common;
        }
    }
    for (const auto& [stages, amount] : written.links)
        made.times.links[stages] = amount * divisor / common;
    const std::int64_t per_unit = unit / common;  // a whole number
    made.per_unit = static_cast<double>(per_unit);
    return made;
}

std::int64_t billionths_of(std::string_view text, const std::string& what) {
    constexpr double kMost = 1'000'000;
    const std::optional<double> time = parse_number(text);
    require(time && *time >= 0 && *time <= kMost,
            "{}: '{}' is not a number from 0 to {:.0f}", what, printable(text), kMost);
    const double billionths = *time * WrittenTimes::kUnit;
    const double whole = std::round(billionths);
    // A double has 15 digits; an error after the last of them is allowed.
    constexpr double kRounding = 1e-6;
    require(std::abs(billionths - whole) <= kRounding * std::max(1.0, whole),
            "{}: times have at most nine decimals, so {} would be rounded; choose a "
            "smaller unit",
            what, printable(text));
    return std::llround(whole);
}

}  // namespace lockstep
