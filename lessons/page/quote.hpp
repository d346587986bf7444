#pragma once

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep::lessons {

/// Code of the project between `// lesson: NAME` and `// lesson: end`, as the build found
/// it. Regions may lie inside one another; the lines that mark them are left out.
struct Quote {
    std::string_view name;
    std::string_view file;  ///< from the project's root
    int line = 0;           ///< of the first line of code
    std::string_view code;  ///< without common indentation; ends without a line break
};

/// All of them, by name. Defined in the file that quote.py makes at build time.
std::span<const Quote> quotes();

/// Throws std::logic_error if no code is marked with this name.
inline const Quote& find_quote(std::string_view name) {
    const auto found = std::ranges::find(quotes(), name, &Quote::name);
    if (found == quotes().end())
        throw std::logic_error(
            "no code in the project is marked `// lesson: " + std::string(name) + "`");
    return *found;
}

}  // namespace lockstep::lessons
