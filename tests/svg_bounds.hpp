// For tests of pictures: whether anything is outside an SVG's viewport.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

namespace lockstep::test {

/// Returns an attribute's number in the tag that begins at `at`; 0 if it is missing.
inline double attribute(const std::string& svg, std::size_t at, const std::string& name) {
    const std::string opening = " " + name + "=\"";
    const std::size_t found = svg.find(opening, at);
    if (found > svg.find('>', at)) return 0;
    return std::strtod(svg.c_str() + found + opening.size(), nullptr);
}

/// Returns the rectangles, circles and texts that are at least partly outside the
/// viewport. Assumes that letters are 5 pixels wide; most are wider.
inline std::vector<std::string> outside_of_viewport(const std::string& svg) {
    const double width = attribute(svg, 0, "width");
    const double height = attribute(svg, 0, "height");
    // The style sheet's patterns and markers have viewports of their own.
    const std::size_t body = svg.find("height=\"100%\"");
    std::vector<std::string> outside;
    for (std::size_t at = svg.find('<', body); at != std::string::npos;
         at = svg.find('<', at + 1)) {
        const std::string tag = svg.substr(at, svg.find('>', at) - at + 1);
        const auto number = [&](const char* name) { return attribute(tag, 0, name); };
        double left = number("x");
        double right = left + number("width");
        double top = number("y");
        double bottom = top + number("height");
        if (tag.starts_with("<text")) {
            const std::size_t text = at + tag.size();
            const double wide = 5. * static_cast<double>(svg.find('<', text) - text);
            const bool ends = tag.find("class=\"e\"") != std::string::npos;
            const bool middle = tag.find("class=\"m\"") != std::string::npos ||
                                tag.find("class=\"b") != std::string::npos;
            left -= ends ? wide : middle ? wide / 2 : 0;
            right = left + wide;
            top -= 8;
        } else if (tag.starts_with("<circle")) {
            left = number("cx") - number("r");
            right = number("cx") + number("r");
            top = number("cy") - number("r");
            bottom = number("cy") + number("r");
        } else if (!tag.starts_with("<rect")) {
            continue;
        }
        if (left < 0 || top < 0 || right > width || bottom > height)
            outside.push_back(tag);
    }
    return outside;
}

}  // namespace lockstep::test
