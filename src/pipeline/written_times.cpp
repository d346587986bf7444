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
    bool of_work;  ///< of what a part computes for a micro-batch
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

TickedTimes ticked(const WrittenTimes& written, const Schedule& schedule, int divisor) {
    const auto expected = static_cast<std::size_t>(written.by_part ? schedule.part_count()
                                                                   : schedule.stages);
    const char* of = written.by_part ? "part" : "stage";
    // What `divisor` parts take together is that many ticks of each for a billionth.
    std::int64_t common = WrittenTimes::kUnit * divisor;
    std::size_t entries = 1;
    for (const NamedTime& each : kTimes) {
        const WrittenTimes::Amounts& amounts = written.*each.written;
        require(amounts.size() <= 1 || amounts.size() == expected,
                "{} has {} numbers; one for all {}s, or {}, one a {}, are expected",
                each.name, amounts.size(), of, expected, of);
        entries = std::max(entries, amounts.size());
        for (const std::int64_t amount : amounts)
            common = std::gcd(common, each.of_work ? amount : amount * divisor);
    }
    for (const auto& [stages, amount] : written.links)
        common = std::gcd(common, amount * divisor);

    TickedTimes made;
    made.times.by_part = entries > 1 && written.by_part;
    made.times.each.resize(entries);
    for (std::size_t i = 0; i < entries; ++i)
        for (const NamedTime& each : kTimes) {
            const WrittenTimes::Amounts& amounts = written.*each.written;
            if (amounts.empty()) continue;
            const std::int64_t amount = amounts[amounts.size() == 1 ? 0 : i];
            made.times.each[i].*each.ticks =
                (each.of_work ? amount : amount * divisor) / common;
        }
    for (const auto& [stages, amount] : written.links)
        made.times.links[stages] = amount * divisor / common;
    made.per_unit = static_cast<double>(WrittenTimes::kUnit * divisor / common);
    return made;
}

std::int64_t billionths_of(std::string_view text, const std::string& what) {
    constexpr double kMost = 1'000'000;
    const std::optional<double> time = parse_number(text);
    require(time && *time >= 0 && *time <= kMost,
            "{}: '{}' is not a number from 0 to {:.0f}", what, printable(text), kMost);
    const double billionths = *time * WrittenTimes::kUnit;
    const double whole = std::round(billionths);
    // A double keeps 15 digits; that it does not hold every last one is no fault.
    constexpr double kRounding = 1e-6;
    require(
        std::abs(billionths - whole) <= kRounding * std::max(1.0, whole),
        "{}: times count in billionths, so that {} would be rounded; choose a smaller "
        "unit",
        what, printable(text));
    return std::llround(whole);
}

}  // namespace lockstep
