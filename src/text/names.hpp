#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns the name that is nearest to the mistyped one; none if no name is near.
std::optional<std::string> nearest(std::string_view typed,
                                   const std::vector<std::string>& names);

/// Returns "; did you mean fibers?", or nothing if no name is near.
std::string did_you_mean(std::string_view typed, const std::vector<std::string>& names);

/// Returns a sentence that refuses a name: "there is no lesson 'rng'; did you mean
/// ring?", or if no name is near, "…; the lessons are ring, wheel".
std::string no_such(const std::string& kind, std::string_view typed,
                    const std::vector<std::string>& names);

/// Returns "a", "a or b", "a, b or c".
std::string either(const std::vector<std::string>& names);
/// Splits "dp,,tp" into "dp", "" and "tp": one part more than there are commas.
std::vector<std::string> split_at_commas(std::string_view text);

}  // namespace lockstep
