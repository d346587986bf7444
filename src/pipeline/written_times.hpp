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
    /// In billionths of the unit: one for all, or one a part of the model (or a stage).
    using Amounts = std::vector<std::int64_t>;
    static constexpr std::int64_t kUnit = 1'000'000'000;

    Amounts forward{kUnit};
    Amounts backward_input{kUnit};
    Amounts backward_weight{kUnit};
    Amounts message{0};  ///< by part: between it and the next
    Amounts recompute{0};
    Amounts reduce{0};
    Amounts update{0};
    Amounts overlapped;  ///< empty: as long as one after the other
    std::map<std::pair<int, int>, std::int64_t> links;
    bool by_part = true;  ///< else by stage

    bool has_lists() const;
    /// Where a name of a time, as it stands in a file, is kept; null for another name.
    Amounts* named(std::string_view name);
    /// "forward", "backward_input", …: all of them.
    static const std::vector<std::string>& names();
};

/// Times as whole numbers of the largest tick of which all are multiples.
struct TickedTimes {
    ScheduleTimes times;
    double per_unit = 1;  ///< ticks in one unit
};

/// `divisor`: what is written for all parts (but not for messages, links, reductions and
/// updates) is of that many parts together. Throws UsageError, with the time's name, for
/// another number of amounts than one or one a part (or stage).
TickedTimes ticked(const WrittenTimes& written, const Schedule& schedule,
                   int divisor = 1);

/// Reads a time, exact to nine decimals. Throws UsageError that begins with `what` for
/// text that is no number, for one that is not from 0 to a million, or that would be
/// rounded.
std::int64_t billionths_of(std::string_view text, const std::string& what);

}  // namespace lockstep
