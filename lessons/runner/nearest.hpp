#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::lessons {

/// The name that was most likely meant by a mistyped one; none where all are far from it.
std::optional<std::string> nearest(std::string_view typed,
                                   const std::vector<std::string>& names);

/// "; did you mean fibers?", or nothing where no name is near.
std::string did_you_mean(std::string_view typed, const std::vector<std::string>& names);

/// "a", "a or b", "a, b or c".
std::string either(const std::vector<std::string>& names);

}  // namespace lockstep::lessons
