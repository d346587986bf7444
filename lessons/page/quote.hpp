#pragma once

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep::lessons {

/// Code of the project between `// lesson: NAME` and `// lesson: end`, as the build found
/// it. Regions may be nested; the lines that mark them are left out.
struct Quote {
    std::string_view name;
    std::string_view file;  ///< from the project's root
    int line = 0;           ///< the first line of code
    std::string_view code;  ///< without common indentation and without a final line break
};

/// Returns all quotes, by name. At build time, quote.py writes this function.
std::span<const Quote> quotes();

/// Throws std::logic_error if no code has this name.
inline const Quote& find_quote(std::string_view name) {
    const auto found = std::ranges::find(quotes(), name, &Quote::name);
    if (found == quotes().end())
        throw std::logic_error(
            "no code in the project is marked `// lesson: " + std::string(name) + "`");
    return *found;
}

}  // namespace lockstep::lessons
