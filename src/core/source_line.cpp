#include "src/core/source_line.hpp"

#include <cstring>
#include <string_view>

namespace lockstep {

bool SourceLine::operator==(const SourceLine& other) const {
    return line == other.line &&
           (file == other.file || std::strcmp(file, other.file) == 0);
}

std::string SourceLine::text() const {
    // The build runs in a folder beside the sources, so names arrive as "../src/...".
    std::string_view name = file;
    while (name.starts_with("../"))
        name.remove_prefix(3);
    return std::string(name) + ":" + std::to_string(line);
}

}  // namespace lockstep
