// For tests of pictures: whether an SVG is well formed.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::test {

/// Returns whether tags open and close in order, and text has no stray mark-up.
inline bool is_balanced_xml(const std::string& svg) {
    std::vector<std::string> open;
    for (std::size_t at = svg.find('<'); at != std::string::npos;
         at = svg.find('<', at + 1)) {
        const std::size_t end = svg.find('>', at);
        if (end == std::string::npos) return false;
        const std::string tag = svg.substr(at + 1, end - at - 1);
        const bool stray = tag.find('<') != std::string::npos ||
                           std::count(tag.begin(), tag.end(), '"') % 2 != 0;
        if (stray) return false;
        const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
        if (tag.front() == '/') {
            if (open.empty() || "/" + open.back() != name) return false;
            open.pop_back();
        } else if (tag.back() != '/') {
            open.push_back(name);
        }
    }
    return open.empty();
}

}  // namespace lockstep::test
