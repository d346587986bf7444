#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/pipeline/times.hpp"

namespace lockstep {

/// Times as people write them: decimal numbers of any unit, kept exactly.
struct WrittenTimes {
    /// Amounts in billionths of the unit: one for all parts (or stages), or one for each.
    using Amounts = std::vector<std::int64_t>;
    static constexpr std::int64_t kUnit = 1'000'000'000;

    Amounts forward{kUnit};
    Amounts backward_input{kUnit};
    Amounts backward_weight{kUnit};
    Amounts message{0};  ///< by part: to and from the next part
    Amounts recompute{0};
    Amounts reduce{0};
    Amounts update{0};
    Amounts overlapped;  ///< empty stands for the sum of forward and backward
    std::map<std::pair<int, int>, std::int64_t> links;
    bool by_part = true;  ///< else by stage

    bool has_lists() const;
    /// Returns the amounts that a file calls `name`; null for an unknown name.
    Amounts* named(std::string_view name);
    /// All names: "forward", "backward_input", …
    static const std::vector<std::string>& names();
};

/// Times in ticks. A tick is the largest time that divides all of them.
struct TickedTimes {
    ScheduleTimes times;
    double per_unit = 1;  ///< ticks in one unit
};

/// `divisor`: a written time of a computation is the sum over this many parts. Times of
/// messages, links, reductions and updates are not divided. Throws UsageError, with the
/// time's name, unless there is one amount, or one for each part (or stage).
TickedTimes ticked(const WrittenTimes& written, const Schedule& schedule,
                   int divisor = 1);

/// Reads a time, exact to nine decimals. Throws UsageError, which begins with `what`, if
/// the text is not a number from 0 to a million, or if it would be rounded.
std::int64_t billionths_of(std::string_view text, const std::string& what);

}  // namespace lockstep
