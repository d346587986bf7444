#include "src/text/wrap.hpp"

#include <algorithm>

namespace lockstep {

int columns_of(std::string_view text) {
    return static_cast<int>(std::ranges::count_if(
        text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string wrapped(std::string_view text, int width, std::string_view first,
                    std::string_view rest) {
    std::string lines;
    std::string line(first);
    bool line_has_word = false;
    while (!text.empty()) {
        const std::size_t spaces = std::min(text.find_first_not_of(' '), text.size());
        const std::size_t end = std::min(text.find(' ', spaces), text.size());
        const std::string_view gap = text.substr(0, line_has_word ? spaces : 0);
        const std::string_view word = text.substr(spaces, end - spaces);
        text.remove_prefix(end);
        if (word.empty()) break;
        if (line_has_word &&
            columns_of(line) + columns_of(gap) + columns_of(word) > width) {
            lines += line + "\n";
            line = rest;
            line += word;
        } else {
            line += gap;
            line += word;
        }
        line_has_word = true;
    }
    return line_has_word ? lines + line + "\n" : "";
}

}  // namespace lockstep
