#include "lessons/runner/quote.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace lockstep::lessons {

const Quote& find_quote(std::string_view name) {
    const std::span<const Quote> all = quotes();
    const auto found = std::find_if(all.begin(), all.end(), [name](const Quote& quote) {
        return quote.name == name;
    });
    if (found == all.end())
        throw std::logic_error(
            fmt::format("no code in the project is marked `// lesson: {}`", name));
    return *found;
}

}  // namespace lockstep::lessons
